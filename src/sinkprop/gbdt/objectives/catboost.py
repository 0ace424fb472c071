"""CatBoost on the expected gain: `catboost_objective`, in place of "YetiRank".

CatBoost asks a Python objective for the derivatives of a few hundred rows at a time, from several threads. It
passes their scores, targets and weights, but does not say which rows they are. This module works around that:

- The targets are row numbers; the objective keeps the labels and the queries. Rows are numbered by increasing
  label, so that the statistics of targets that CatBoost computes for categorical features follow the labels.
- After each tree CatBoost passes the scores of all rows to its metric. The metric passes them to the
  objective, which uses them to answer the calls of the next round. The objective checks that each call has
  these scores.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.arguments import threads
from sinkprop.common.types import Floats, Integers, Singles
from sinkprop.data.checks import as_labels, as_scores
from sinkprop.data.queries import Groups, group_rows
from sinkprop.gbdt.derivatives import GAIN, Derivatives, TreeLoss
from sinkprop.gbdt.objectives.prepared import settings_text, tree_loss
from sinkprop.objective.gains import Gain

__all__ = ["CatBoostObjective", "CatBoostRows", "catboost_objective"]


# Difference between the targets of two consecutive row numbers. CatBoost keeps targets in float32, in which
# all multiples of this number below 1 are exact.
_UNIT = 2.0**-24
# Tolerance between scores that should be equal, as a fraction of the range of the scores. With monotone
# constraints and Langevin noise CatBoost keeps two versions of a tree, one to continue training from and one
# for the model, whose scores differ by about 1/500 of the range. Settings that this objective does not
# support cause differences of a tenth of the range and more within the first rounds.
_SAME = 5e-3
_SINGLE = 1e-6  # relative tolerance of a score: CatBoost keeps a baseline in float32


def catboost_objective(
    gain: str | Gain = GAIN,
    *,
    labels: ArrayLike,
    qid: ArrayLike | Sequence[Hashable],
    eval_set: Sequence[tuple[ArrayLike, ArrayLike | Sequence[Hashable]]] = (),
    sample_weight: ArrayLike | None = None,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    init_score: ArrayLike | None = None,
    n_threads: int | None = None,
    **loss: Any,
) -> CatBoostObjective:
    """Objective for CatBoost that maximizes the expected gain.

    Pass it as `loss_function`, together with a `catboost_metric` as `eval_metric`. Pass `objective.label` as
    the labels of the training Pool and `objective.eval_labels[i]` as those of the evaluation Pools. Give the
    Pools neither weights nor queries: the objective keeps them.

    Parameters
    ----------
    gain : str or Gain, default "ndcg"
        Gain that the trees maximize: a `Gain`, or a name such as "ndcg@10", "p@5" or "rbp@0.8". If it does
        not state the discount of NDCG, the discount of rank k is 1 / log2(k + 1).
    labels : array of shape (N,)
        Relevance of the training rows: any numbers not below 0.
    qid : array of shape (N,)
        Query id of each row: any hashable ids, in any order.
    eval_set : sequence of (labels, qid), default ()
        Labels and query ids of each evaluation set.
    sample_weight : array of shape (N,), optional
        Row weights, see `expected_gain`.
    query_weight : array of shape (Q,) or (N,), or mapping from query id to float, optional
        Query weights: one per query in order of first appearance, one per row, or by query id.
    init_score : array of shape (N,), optional
        Scores to start from: the `baseline` of the Pool, or the predictions of the `init_model`. Zeros by
        default.
    n_threads : int, optional
        Number of threads, see `expected_gain`. CatBoost's `thread_count` has no effect on it.
    **loss
        Settings of `TreeLoss`: `widths`, `blend`, `noise`, `seed`, `n_iter`, `epsilon`.

    Returns
    -------
    CatBoostObjective
        Objective with the attributes `label` and `eval_labels`. Only one training at a time may use it.

    Notes
    -----
    It works with plain boosting (CatBoost's default for a user-defined objective), with one leaf estimation
    per tree, on the CPU. If CatBoost asks for derivatives at scores that are not those of the round, an error
    says what to set.

    Examples
    --------
    >>> from sinkprop.gbdt import catboost_objective
    >>> objective = catboost_objective("ndcg@10", labels=[0, 2, 1], qid=["a", "a", "b"])
    >>> (objective.label * 2**24).tolist()
    [0.0, 2.0, 1.0]
    """
    return CatBoostObjective(
        tree_loss("catboost_objective", gain, loss),
        CatBoostRows.of("labels", labels, qid, 0),
        eval_set=eval_set,
        sample_weight=sample_weight,
        query_weight=query_weight,
        init_score=init_score,
        n_threads=n_threads,
    )


@dataclass(frozen=True, eq=False)
class CatBoostRows:
    """A data set whose rows are identified by their targets: a row's target is its row number times 2**-24.

    labels  Labels (N,) of the rows.
    groups  Queries of the rows.
    rows    Indices (N,) of the rows, in the order of their numbers: row `rows[i]` has the number first + i.
    first   Smallest row number; each data set of a training has its own range of numbers.
    """

    labels: Floats
    groups: Groups
    rows: Integers
    first: int

    @staticmethod
    def of(name: str, labels: ArrayLike, qid: Any, first: int) -> CatBoostRows:
        """Check labels and query ids, and number the rows; `name` is the labels' name in error messages."""
        n = len(np.asarray(labels))
        y = as_labels(labels, n, rows_of=name)
        if not n:
            raise ValueError(f"{name} must hold at least one document; got none.")
        if qid is None:
            raise ValueError("qid must hold the query of each row; got None.")
        if first + n > 2**24:
            raise ValueError(
                "labels and eval_set must have at most 2**24 rows together, the most that CatBoost's targets "
                f"can number; got {first + n}."
            )
        return CatBoostRows(y, group_rows(qid, n), np.argsort(y, kind="stable"), first)

    @property
    def target(self) -> Floats:
        """Targets (N,) to give to CatBoost as labels."""
        target = np.empty(len(self.rows))
        target[self.rows] = (self.first + np.arange(len(self.rows))) * _UNIT
        return target

    def find(self, targets: Any) -> Integers | None:
        """Indices of the rows with these targets, or None if a target does not belong to this data set."""
        numbers = np.asarray(targets, dtype=np.float64) / _UNIT - self.first
        places = numbers.astype(np.int64)
        if len(places) and (places.min() < 0 or places.max() >= len(self.rows) or (places != numbers).any()):
            return None
        return self.rows[places]


class _Round:
    """Scores of all rows between two trees, and the derivatives at these scores once they are computed."""

    def __init__(self, scores: Floats) -> None:
        self.scores = scores
        self.derivatives: tuple[Singles, Singles] | None = None
        self._tolerance = _SAME * np.ptp(scores) + _SINGLE * np.abs(scores).max()

    def has(self, rows: Integers, scores: Floats) -> bool:
        """Whether the scores of the rows with the indices `rows` equal `scores`, up to a tolerance."""
        return bool((np.abs(self.scores[rows] - scores) <= self._tolerance).all())


class CatBoostObjective:
    """Gradient and curvature of the expected gain, for CatBoost: see `catboost_objective`."""

    no_jit = True  # otherwise CatBoost lets numba compile the methods, and warns that this fails

    def __init__(
        self,
        loss: TreeLoss,
        rows: CatBoostRows,
        *,
        eval_set: Sequence[tuple[ArrayLike, ArrayLike | Sequence[Hashable]]] = (),
        sample_weight: ArrayLike | None = None,
        query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
        init_score: ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> None:
        threads(n_threads, 0)
        self.loss, self.rows, n = loss, rows, len(rows.labels)
        self._derivatives = Derivatives(
            loss,
            rows.labels,
            rows.groups,
            sample_weight=sample_weight,
            query_weight=query_weight,
            n_threads=n_threads,
        )
        self.eval_rows: list[CatBoostRows] = []
        first = n
        for i, pair in enumerate(eval_set):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ValueError(
                    f"eval_set must hold pairs (labels, qid); got a {type(pair).__name__!r} at {i}."
                )
            self.eval_rows.append(CatBoostRows.of(f"eval_set[{i}]", *pair, first))
            first += len(self.eval_rows[-1].labels)
        start = np.zeros(n) if init_score is None else as_scores(init_score, 1)
        if len(start) != n:
            raise ValueError(f"init_score must have one value per row: {n} rows, but {len(start)} scores.")
        self._start = _Round(start)
        self._now, self._lock = self._start, Lock()

    @property
    def label(self) -> Floats:
        """Labels (N,) to give to the training Pool."""
        return self.rows.target

    @property
    def eval_labels(self) -> list[Floats]:
        """Labels to give to the Pools of `eval_set`, in its order."""
        return [rows.target for rows in self.eval_rows]

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> list[tuple[float, float]]:
        """First and second derivatives of the gain for some rows. CatBoost calls it from several threads."""
        rows = self.rows.find(targets)
        if rows is None:
            raise ValueError(
                "the labels of the training Pool must be this objective's `label`, which identifies the rows."
            )
        if weights is not None and not np.all(np.asarray(weights) == 1):
            raise ValueError(
                "the Pool must have no weights; give sample_weight= or query_weight= to catboost_objective."
            )
        with self._lock:
            first, second = self._at(rows, np.asarray(approxes))
        return list(zip(first[rows].tolist(), second[rows].tolist(), strict=True))

    def see(self, rows: CatBoostRows, order: Integers, scores: Floats) -> Floats:
        """Take the scores that CatBoost passed to the metric, and return them in row order.

        Scores of the training set are kept: the derivatives of the next round are computed at them. Raises a
        ValueError unless every row has exactly one score.

        rows    Data set to which the scores belong.
        order   Row index of each score.
        scores  Scores of all rows, in any order.
        """
        if len(order) != len(rows.labels) or np.bincount(order, minlength=len(order)).max() > 1:
            raise ValueError(
                f"the metric must get every row of its data set once: {len(rows.labels)} rows, but "
                f"{len(order)} scores. Parts of a Pool, and catboost.cv, cannot be used."
            )
        sorted_scores = np.empty(len(order))
        sorted_scores[order] = scores
        if rows is self.rows:
            with self._lock:
                self._now = _Round(sorted_scores)
        return sorted_scores

    def _at(self, rows: Integers, scores: Floats) -> tuple[Singles, Singles]:
        """Return the first and second derivatives of the gain for all training rows in the current round.

        The arguments serve only as a check. If `scores` are the scores of the current round, the round goes
        on. If they are the initial scores, another training starts. Otherwise a ValueError is raised.

        rows    Indices of the rows for which CatBoost asks.
        scores  Scores that CatBoost passes for these rows.
        """
        if not self._now.has(rows, scores):
            if not self._start.has(rows, scores):
                _refuse(self._now is self._start)
            self._now = self._start  # CatBoost passed the initial scores: another training starts
        if self._now.derivatives is None:
            gradient, hessian = self._derivatives(self._now.scores)
            self._now.derivatives = -gradient, -hessian  # minus, because CatBoost maximizes
        return self._now.derivatives

    # CatBoost copies its parameters, but the metric must keep its objective, so a copy is the same object.
    def __copy__(self) -> CatBoostObjective:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CatBoostObjective:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in vars(self).items() if name not in ("_lock", "_now")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._now, self._lock = self._start, Lock()

    def __repr__(self) -> str:
        return f"catboost_objective({settings_text(self.loss)}, labels=..., qid=...)"


def _refuse(first_round: bool) -> NoReturn:
    """Raise a ValueError: CatBoost asked for derivatives at scores other than those of the current round.

    The message says what to set in CatBoost.

    first_round  Whether the current round has the initial scores; the message depends on it, because the
                 likely causes differ.
    """
    if first_round:
        raise ValueError(
            "CatBoost asks for derivatives at scores that the objective does not know. Pass "
            "eval_metric=catboost_metric(..., objective=objective), with the same objective, and leave "
            "metric_period=1: the metric passes the scores to the objective. If training starts from a "
            "baseline or an init_model, give those scores to catboost_objective as init_score."
        )
    raise ValueError(
        "CatBoost asks for derivatives at scores that are not those of the round, so the scores of whole "
        "queries are not known. Set boosting_type='Plain', leaf_estimation_iterations=1, metric_period=1, "
        "model_shrink_rate=0; with categorical features, one_hot_max_size (as large as the number of their "
        "values) or has_time=True. One objective serves one training at a time."
    )
