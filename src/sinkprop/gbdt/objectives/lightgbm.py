"""`lightgbm_objective`, a LightGBM objective that maximizes the expected gain."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.common.arguments import threads
from sinkprop.common.types import Singles
from sinkprop.data.queries import Groups
from sinkprop.gbdt.derivatives import GAIN, Derivatives, TreeLoss
from sinkprop.gbdt.objectives.prepared import Layouts, consecutive, kept, present, settings_text, tree_loss
from sinkprop.objective.gains import Gain, RankLinearGain, as_gain

__all__ = ["LightGBMObjective", "lightgbm_objective"]


def lightgbm_objective(
    gain: str | Gain = GAIN,
    *,
    query_weight: ArrayLike | Literal["dataset"] | None = None,
    n_threads: int | None = None,
    **loss: Any,
) -> LightGBMObjective:
    """Objective for LightGBM that maximizes the expected gain.

    Pass it as `objective` to `lightgbm.train` (in the parameters) or to `LGBMRanker`.

    Parameters
    ----------
    gain : str or Gain, default "ndcg"
        Gain that the trees maximize: a `Gain`, or a name such as "ndcg@10", "p@5" or "rbp@0.8". If it does
        not state the discount of NDCG, the discount of rank k is 1 / log2(k + 1).
    query_weight : array of shape (Q,) or "dataset", optional
        Query weights, in the order of the Dataset's queries. "dataset" takes the Dataset's `weight` as query
        weights; it must then be the same for all rows of a query. Otherwise the Dataset's `weight` multiplies
        the contribution of each document to the gain, like `sample_weight` of `expected_gain`.
    n_threads : int, optional
        Number of threads, see `expected_gain`. LightGBM's `num_threads` has no effect on it.
    **loss
        Settings of `TreeLoss`: `widths`, `blend`, `noise`, `seed`, `n_iter`, `epsilon`.

    Returns
    -------
    LightGBMObjective
        Function that returns gradient and curvature. It can be pickled and copied; its only state is a cache
        of derivatives prepared for the Datasets it has seen.

    Notes
    -----
    Queries (`group`), labels and weights come from the Dataset. Labels may be any numbers not below 0, and
    queries may have any length.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkprop.gbdt import lightgbm_objective
    >>> objective = lightgbm_objective("ndcg@10")
    >>> labels, scores, sizes = np.array([0.0, 1.0]), np.zeros(2), np.array([2])
    >>> gradient, curvature = objective(labels, scores, None, sizes)  # as LGBMRanker calls it
    >>> gradient.shape, bool((curvature > 0).all())
    ((2,), True)
    """
    return LightGBMObjective(tree_loss("lightgbm_objective", gain, loss), query_weight, n_threads)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class LightGBMObjective:
    """Gradient and curvature of the negative of the expected gain, for LightGBM: see `lightgbm_objective`."""

    loss: TreeLoss
    query_weight: NDArray[Any] | Literal["dataset"] | None = None
    n_threads: int | None = None
    _layouts: Layouts[Derivatives] = field(default_factory=Layouts, init=False)

    def __post_init__(self) -> None:
        weights = self.query_weight
        if isinstance(weights, str) and weights != "dataset":
            raise ValueError(
                f"query_weight must be one weight per query, 'dataset' or None; got {weights!r}."
            )
        if isinstance(weights, Mapping):
            raise ValueError(
                "query_weight must be one weight per query, in the order of the Dataset's queries; got a "
                "mapping, but LightGBM keeps no query ids."
            )
        if weights is not None and not isinstance(weights, str):
            object.__setattr__(self, "query_weight", kept(weights))
        threads(self.n_threads, 0)

    # LGBMRanker counts the parameters of this function: because there are four, it passes weights and groups.
    def __call__(
        self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None
    ) -> tuple[Singles, Singles]:
        """Gradient and curvature, shape (N,) each.

        `LGBMRanker` calls it as f(y_true, y_pred, weight, group), `lightgbm.train` as f(preds, dataset).
        """
        scores, labels, weight, group, dataset = rows_of(y_true, y_pred, weight, group)
        derivatives = self._layouts.get(
            dataset, (labels, weight, group), lambda: self._prepare(labels, weight, group, dataset)
        )
        return derivatives(scores)

    def _prepare(self, labels: Any, weight: Any, group: Any, dataset: Any) -> Derivatives:
        groups = groups_of(group, len(labels))
        if dataset is not None:
            _check_whole_queries(dataset)
        sample_weight, query_weight = weight, self.query_weight
        if isinstance(query_weight, str):
            if weight is None:
                raise ValueError(
                    "query_weight='dataset' takes the weights of the Dataset, which has none (or only ones, "
                    "which LightGBM drops). Give it weight=, one number per row, equal within a query, "
                    "or leave query_weight out."
                )
            sample_weight, query_weight = None, np.asarray(weight, dtype=np.float64)
        elif weight is not None and query_weight is None:
            _check_weights_count(np.asarray(weight), groups, as_gain(self.loss.gain))
        if query_weight is not None:
            query_weight = present(query_weight, groups, len(group))
        return Derivatives(
            self.loss,
            labels,
            groups,
            sample_weight=sample_weight,
            query_weight=query_weight,
            n_threads=self.n_threads,
        )

    def __repr__(self) -> str:
        weights = self.query_weight
        given = "" if weights is None else f", query_weight={weights!r}"
        return f"lightgbm_objective({settings_text(self.loss)}{given})"


def rows_of(first: Any, second: Any, weight: Any, group: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Read the arguments with which LightGBM calls an objective or a metric.

    They are (labels, scores, weight, group) from `LGBMRanker`, and (scores, dataset) from `lightgbm.train`.
    Returns scores, labels, weights, query sizes, and the Dataset or None.
    """
    if hasattr(second, "get_group"):
        second.construct()  # does nothing if the Dataset is already constructed
        return first, second.get_label(), second.get_weight(), second.get_group(), second
    return second, first, weight, group, None


def groups_of(group: Any, n: int) -> Groups:
    """Divide n rows into queries, given the query sizes that LightGBM passes as `group`."""
    if group is None or not len(group):
        raise ValueError(
            "group must hold the number of documents of each query; the Dataset has none. Pass group= to "
            "lightgbm.Dataset or to LGBMRanker.fit: the sizes of the queries, whose rows must be consecutive."
        )
    return consecutive(group, n, owner="the Dataset")


def _check_whole_queries(dataset: Any) -> None:
    """Warn if a subset of a Dataset has only some of a query's documents.

    LightGBM's cross-validation makes such subsets when it splits by row.
    """
    whole = getattr(dataset, "reference", None)
    if getattr(dataset, "used_indices", None) is None or whole is None or whole.get_group() is None:
        return
    sizes = np.asarray(whole.get_group())
    query = np.repeat(np.arange(len(sizes)), sizes)
    taken = np.bincount(query[np.asarray(dataset.used_indices)], minlength=len(sizes))
    cut = np.flatnonzero((taken > 0) & (taken < sizes))
    if len(cut):
        warnings.warn(
            f"{len(cut)} of {np.count_nonzero(taken)} queries are only partly in this subset of a Dataset: "
            f"query {cut[0]} has {taken[cut[0]]} of its {sizes[cut[0]]} documents. lightgbm.cv splits by "
            "row, not by query, unless the objective is one of LightGBM's: pass "
            "folds=sklearn.model_selection.GroupKFold(5).",
            stacklevel=2,
        )


def _check_weights_count(weight: NDArray[Any], groups: Groups, gain: Gain) -> None:
    """Warn if row weights are equal within each query and have no effect, because the gain is normalized."""
    if not (isinstance(gain, RankLinearGain) and gain.normalized) or weight.shape != (groups.offsets[-1],):
        return
    starts = groups.offsets[:-1]
    least, most = np.minimum.reduceat(weight, starts), np.maximum.reduceat(weight, starts)
    if np.array_equal(least, most) and least.min() != least.max():
        warnings.warn(
            f"the Dataset's weights are equal within each query, so {gain} cancels them: they have no "
            "effect. To use them as query weights, pass query_weight='dataset'.",
            stacklevel=2,
        )
