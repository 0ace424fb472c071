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
    """The expected gain as an objective for XGBoost: `obj` of `xgboost.train` and of `xgboost.cv`.

    gain           what the trees are to make large: a `Gain`, or a name such as "ndcg@10", "p@5", "rbp@0.8"
    sample_weight  (N,) row weights of the training DMatrix, in its order: they multiply what each document
                   adds to the gain, as in `expected_gain`. XGBoost keeps none where it has queries: its own
                   `weight` is one number a query, and is taken as that
    n_threads      see `expected_gain`; XGBoost's own `nthread` is not known here
    loss           the settings of `TreeLoss`

    Queries (`qid` or `group`), labels and query weights are the DMatrix's, of whatever class: labels are any
    numbers not below 0, queries of any length. `XGBRanker` refuses every objective that is a function. The
    object has no state but what it prepared for the matrices it has seen; it can be pickled and copied.

    >>> xgboost_objective("ndcg@10")
    xgboost_objective('ndcg@10')
    """
    weights = None if sample_weight is None else np.asarray(sample_weight)
    return XGBoostObjective(tree_loss("xgboost_objective", gain, loss), weights, n_threads)


@dataclass(frozen=True, eq=False, repr=False)
class XGBoostObjective:
    """Gradient and curvature of minus the expected gain, for XGBoost: see `xgboost_objective`."""

    loss: TreeLoss
    sample_weight: NDArray[Any] | None = None
    n_threads: int | None = None
    _layouts: Layouts[Derivatives] = field(default_factory=Layouts, init=False)

    def __post_init__(self) -> None:
        if self.sample_weight is not None:
            object.__setattr__(self, "sample_weight", kept(self.sample_weight))
        threads(self.n_threads, 0)

    def __call__(self, preds: Any, dtrain: Any) -> tuple[Singles, Singles]:
        """(N,) each: called as f(preds, dtrain)."""
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
    """Labels, weights or None, and where the queries begin and end, of a DMatrix."""
    if not hasattr(matrix, "get_uint_info"):
        raise TypeError(
            f"the second argument must be an xgboost.DMatrix; got a {type(matrix).__name__!r}. Pass this as "
            "obj= or custom_metric= of xgboost.train: scikit-learn's interface does not pass the queries."
        )
    labels, weight = matrix.get_label(), matrix.get_weight()
    if not labels.size:
        raise ValueError("the DMatrix must have labels; got none. Give it label=, one number a row.")
    return labels, weight if weight.size else None, matrix.get_uint_info("group_ptr")


def groups_of(pointers: NDArray[Any], n: int) -> Groups:
    """The queries of XGBoost's `group_ptr`."""
    if len(pointers) < 2:
        raise ValueError(
            "qid must hold the query of each row; the DMatrix has none. Pass qid= (rising) or group= (the "
            "number of documents of each query) to xgboost.DMatrix."
        )
    return consecutive(np.diff(pointers.astype(np.int64)), n, owner="the DMatrix")
