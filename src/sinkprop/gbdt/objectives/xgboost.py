"""XGBoost on the expected gain: `xgboost_objective`, in place of "rank:ndcg"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.common.arguments import threads
from sinkprop.common.types import Singles
from sinkprop.data.queries import Groups
from sinkprop.gbdt.derivatives import GAIN, Derivatives, TreeLoss
from sinkprop.gbdt.objectives.prepared import Layouts, consecutive, kept, present, settings_text, tree_loss
from sinkprop.objective.gains import Gain

__all__ = ["XGBoostObjective", "xgboost_objective"]


def xgboost_objective(
    gain: str | Gain = GAIN,
    *,
    sample_weight: ArrayLike | None = None,
    n_threads: int | None = None,
    **loss: Any,
) -> XGBoostObjective:
    """Objective for XGBoost that maximizes the expected gain.

    Pass it as `obj` to `xgboost.train` or `xgboost.cv`. `XGBRanker` does not work with it: it refuses every
    objective that is a function.

    Parameters
    ----------
    gain : str or Gain, default "ndcg"
        Gain that the trees maximize: a `Gain`, or a name such as "ndcg@10", "p@5" or "rbp@0.8". If it does
        not state the discount of NDCG, the discount of rank k is 1 / log2(k + 1).
    sample_weight : array of shape (N,), optional
        Row weights of the training DMatrix, in its row order. They multiply the contribution of each document
        to the gain, as in `expected_gain`. They are given here because XGBoost keeps no row weights for data
        with queries: the `weight` of its DMatrix is one number per query, and is used as query weight.
    n_threads : int, optional
        Number of threads, see `expected_gain`. XGBoost's `nthread` has no effect on it.
    **loss
        Settings of `TreeLoss`: `widths`, `blend`, `noise`, `seed`, `n_iter`, `epsilon`.

    Returns
    -------
    XGBoostObjective
        Function of (preds, dtrain) that returns gradient and curvature. It can be pickled and copied; its
        only state is a cache of derivatives prepared for the matrices it has seen.

    Notes
    -----
    Queries (`qid` or `group`), labels and query weights come from the DMatrix, which may be of any class.
    Labels may be any numbers not below 0, and queries may have any length.

    Examples
    --------
    >>> from sinkprop.gbdt import xgboost_objective
    >>> xgboost_objective("ndcg@10")
    xgboost_objective('ndcg(discount=log2)@10')
    """
    weights = None if sample_weight is None else np.asarray(sample_weight)
    return XGBoostObjective(tree_loss("xgboost_objective", gain, loss), weights, n_threads)


@dataclass(frozen=True, eq=False, repr=False)
class XGBoostObjective:
    """Gradient and curvature of the negative of the expected gain, for XGBoost: see `xgboost_objective`."""

    loss: TreeLoss
    sample_weight: NDArray[Any] | None = None
    n_threads: int | None = None
    _layouts: Layouts[Derivatives] = field(default_factory=Layouts, init=False)

    def __post_init__(self) -> None:
        if self.sample_weight is not None:
            object.__setattr__(self, "sample_weight", kept(self.sample_weight))
        threads(self.n_threads, 0)

    def __call__(self, preds: Any, dtrain: Any) -> tuple[Singles, Singles]:
        """Gradient and curvature, shape (N,) each; XGBoost calls it as f(preds, dtrain)."""
        labels, weight, pointers = rows_of(dtrain)
        derivatives = self._layouts.get(
            dtrain, (labels, weight, pointers), lambda: self._prepare(labels, weight, pointers)
        )
        return derivatives(preds)

    def _prepare(
        self, labels: NDArray[Any], weight: NDArray[Any] | None, pointers: NDArray[Any]
    ) -> Derivatives:
        groups = groups_of(pointers, len(labels))
        return Derivatives(
            self.loss,
            labels,
            groups,
            sample_weight=self.sample_weight,
            query_weight=None if weight is None else present(weight, groups, len(pointers) - 1),
            n_threads=self.n_threads,
        )

    def __repr__(self) -> str:
        given = "" if self.sample_weight is None else f", sample_weight={self.sample_weight!r}"
        return f"xgboost_objective({settings_text(self.loss)}{given})"


def rows_of(matrix: Any) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any]]:
    """Read a DMatrix: returns its labels, its weights (or None), and the row offsets of its queries."""
    if not hasattr(matrix, "get_uint_info"):
        raise TypeError(
            f"the second argument must be an xgboost.DMatrix; got a {type(matrix).__name__!r}. Pass this as "
            "obj= or custom_metric= of xgboost.train: scikit-learn's interface does not pass the queries."
        )
    labels, weight = matrix.get_label(), matrix.get_weight()
    if not labels.size:
        raise ValueError("the DMatrix must have labels; got none. Give it label=, one number per row.")
    return labels, weight if weight.size else None, matrix.get_uint_info("group_ptr")


def groups_of(pointers: NDArray[Any], n: int) -> Groups:
    """Divide n rows into queries, given the row offsets of the queries: XGBoost's `group_ptr`."""
    if len(pointers) < 2:
        raise ValueError(
            "qid must hold the query of each row; the DMatrix has none. Pass qid= (sorted) or group= (the "
            "number of documents of each query) to xgboost.DMatrix."
        )
    return consecutive(np.diff(pointers.astype(np.int64)), n, owner="the DMatrix")
