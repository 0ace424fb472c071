"""LightGBM on the expected gain: `lightgbm_objective`, in place of "lambdarank"."""

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
from sinkprop.objective.gains import Gain, as_gain

__all__ = ["LightGBMObjective", "lightgbm_objective"]


def lightgbm_objective(
    gain: str | Gain = GAIN,
    *,
    query_weight: ArrayLike | Literal["dataset"] | None = None,
    n_threads: int | None = None,
    **loss: Any,
) -> LightGBMObjective:
    """The expected gain as an objective for LightGBM: one object for `lightgbm.train` and for `LGBMRanker`.

    gain          what the trees are to make large: a `Gain`, or a name such as "ndcg@10", "p@5", "rbp@0.8"
    query_weight  (Q,) weights in the order of the Dataset's queries; "dataset": the Dataset's `weight`, which
                  must then be one number within a query, weighs queries. Otherwise that `weight` multiplies
                  what each document adds to the gain, as `sample_weight` does in `expected_gain`
    n_threads     see `expected_gain`; LightGBM's own `num_threads` is not known here
    loss          the settings of `TreeLoss`

    Groups, labels and weights are the Dataset's: labels are any numbers not below 0, queries of any length.
    The object has no state but what it prepared for the Datasets it has seen; it can be pickled and copied.

    >>> objective = lightgbm_objective("ndcg@10")
    >>> labels, scores, sizes = np.array([0.0, 1.0]), np.zeros(2), np.array([2])
    >>> gradient, curvature = objective(labels, scores, None, sizes)  # as LGBMRanker calls it
    >>> gradient.shape, bool((curvature > 0).all())
    ((2,), True)
    """
    return LightGBMObjective(tree_loss("lightgbm_objective", gain, loss), query_weight, n_threads)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class LightGBMObjective:
    """Gradient and curvature of minus the expected gain, for LightGBM: see `lightgbm_objective`."""

    loss: TreeLoss
    query_weight: NDArray[Any] | Literal["dataset"] | None = None
    n_threads: int | None = None
    _layouts: Layouts[Derivatives] = field(default_factory=Layouts, init=False)

    def __post_init__(self) -> None:
        weights = self.query_weight
        if isinstance(weights, str) and weights != "dataset":
            raise ValueError(f"query_weight must be one weight a query, 'dataset' or None; got {weights!r}.")
        if isinstance(weights, Mapping):
            raise ValueError(
                "query_weight must be one weight a query, in the order of the Dataset's queries; got a "
                "mapping, but LightGBM keeps no query ids."
            )
        if weights is not None and not isinstance(weights, str):
            object.__setattr__(self, "query_weight", kept(weights))
        threads(self.n_threads, 0)

    # LightGBM counts the parameters: four make LGBMRanker pass the weights and the groups as well.
    def __call__(
        self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None
    ) -> tuple[Singles, Singles]:
        """(N,) each: f(y_true, y_pred, weight, group), or as `lightgbm.train` calls it, f(preds, dataset)."""
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
                    "which LightGBM drops). Give it weight=, one number a row that is equal within a query, "
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
    """Scores, labels, weights, groups and the Dataset or None, from either of LightGBM's two calls."""
    if hasattr(second, "get_group"):
        second.construct()  # does nothing but the first time
        return first, second.get_label(), second.get_weight(), second.get_group(), second
    return second, first, weight, group, None


def groups_of(group: Any, n: int) -> Groups:
    """The queries of LightGBM's `group`."""
    if group is None or not len(group):
        raise ValueError(
            "group must hold the number of documents of each query; the Dataset has none. Pass group= to "
            "lightgbm.Dataset or to LGBMRanker.fit: the sizes of the queries, whose rows stand together."
        )
    return consecutive(group, n, owner="the Dataset")


def _check_whole_queries(dataset: Any) -> None:
    """Warn where a subset has some documents of a query and not others: so does cross-validation by rows."""
    whole = getattr(dataset, "reference", None)
    if getattr(dataset, "used_indices", None) is None or whole is None or whole.get_group() is None:
        return
    sizes = np.asarray(whole.get_group())
    query = np.repeat(np.arange(len(sizes)), sizes)
    taken = np.bincount(query[np.asarray(dataset.used_indices)], minlength=len(sizes))
    cut = np.flatnonzero((taken > 0) & (taken < sizes))
    if len(cut):
        warnings.warn(
            f"{len(cut)} of {np.count_nonzero(taken)} queries are in this subset of a Dataset in part: query "
            f"{cut[0]} with {taken[cut[0]]} of its {sizes[cut[0]]} documents. lightgbm.cv divides rows, not "
            "queries, unless the objective is its own: pass folds=sklearn.model_selection.GroupKFold(5).",
            stacklevel=2,
        )


def _check_weights_count(weight: NDArray[Any], groups: Groups, gain: Gain) -> None:
    """Warn of weights that divide out: one number within a query, for a gain that is a share of the best."""
    if not gain.normalized or weight.shape != (groups.offsets[-1],):
        return
    starts = groups.offsets[:-1]
    least, most = np.minimum.reduceat(weight, starts), np.maximum.reduceat(weight, starts)
    if np.array_equal(least, most) and least.min() != least.max():
        warnings.warn(
            f"the Dataset's weights are equal within each query, where {gain} divides them out: they change "
            "nothing. To weigh queries by them, pass query_weight='dataset'.",
            stacklevel=2,
        )
