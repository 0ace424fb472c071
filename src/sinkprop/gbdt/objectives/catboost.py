"""CatBoost on the expected gain: `catboost_objective`, in place of "YetiRank".

CatBoost asks a Python objective for the derivatives of some hundred rows at a time, from several threads, and
tells it their scores, targets and weights, but not which rows they are. Two things make up for that:

- The targets are row numbers. The labels stay here, with the queries. Rows are numbered by rising label, so
  that what CatBoost makes of targets for categorical features still goes by the labels.
- CatBoost shows its metric the scores of all rows after each tree. The metric hands them to the objective,
  which answers the calls of the next round from them, and checks that the scores it is asked about are those.
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


_UNIT = 2.0**-24  # of the targets, which CatBoost keeps in float32: exact below 1
# Of the scores' spread. The trees that monotone constraints and Langevin noise change, CatBoost keeps two
# versions of, one to go on from and one for the model, whose scores differ by about a five hundredth of it;
# what would cut queries apart differs by a tenth and more within the first rounds.
_SAME = 5e-3
_SINGLE = 1e-6  # of a score: a baseline is kept in float32


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
    """The expected gain as a `loss_function` for CatBoost, with `catboost_metric` as its `eval_metric`.

    gain           what the trees are to make large: a `Gain`, or a name such as "ndcg@10", "p@5", "rbp@0.8"
    labels         (N,) relevance of the training rows, any numbers not below 0
    qid            (N,) the query of each row, any hashable ids in any order
    eval_set       labels and qid of each evaluation set, [(labels, qid), ...]
    sample_weight  (N,) row weights, as in `expected_gain`
    query_weight   (Q,) in order of first appearance, (N,) by row, or {id: weight}
    init_score     (N,) scores to start from: the Pool's `baseline`, or the predictions of the `init_model`
    n_threads      see `expected_gain`; CatBoost's own `thread_count` is not known here
    loss           the settings of `TreeLoss`

    The Pools get `objective.label` and `objective.eval_labels[i]` for labels, and no weights: CatBoost is not
    told the queries. One training at a time may use the object. What CatBoost can do with it: plain boosting
    (its default for an objective of one's own) with one leaf estimation a tree, on the CPU. Where scores come
    that are not those of the round, an error says what to set.

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
    """A data set whose rows are told by their targets: `rows[i]` is the row of number first + i."""

    labels: Floats
    groups: Groups
    rows: Integers
    first: int

    @staticmethod
    def of(name: str, labels: ArrayLike, qid: Any, first: int) -> CatBoostRows:
        n = len(np.asarray(labels))
        y = as_labels(labels, n, rows_of=name)
        if not n:
            raise ValueError(f"{name} must hold at least one document; got none.")
        if qid is None:
            raise ValueError("qid must hold the query of each row; got None.")
        if first + n > 2**24:
            raise ValueError(
                "labels and eval_set must have at most 2**24 rows together, which CatBoost's targets can "
                f"tell apart; got {first + n}."
            )
        return CatBoostRows(y, group_rows(qid, n), np.argsort(y, kind="stable"), first)

    @property
    def target(self) -> Floats:
        """(N,) what to give CatBoost for labels."""
        target = np.empty(len(self.rows))
        target[self.rows] = (self.first + np.arange(len(self.rows))) * _UNIT
        return target

    def find(self, targets: Any) -> Integers | None:
        """The rows with these targets, or None where some are not of this data set."""
        numbers = np.asarray(targets, dtype=np.float64) / _UNIT - self.first
        places = numbers.astype(np.int64)
        if len(places) and (places.min() < 0 or places.max() >= len(self.rows) or (places != numbers).any()):
            return None
        return self.rows[places]


class _Round:
    """The scores of all rows between two trees, and the derivatives at them once they are asked for."""

    def __init__(self, scores: Floats) -> None:
        self.scores = scores
        self.derivatives: tuple[Singles, Singles] | None = None
        self._tolerance = _SAME * np.ptp(scores) + _SINGLE * np.abs(scores).max()

    def has(self, rows: Integers, scores: Floats) -> bool:
        return bool((np.abs(self.scores[rows] - scores) <= self._tolerance).all())


class CatBoostObjective:
    """Derivatives of the expected gain, for CatBoost: see `catboost_objective`."""

    no_jit = True  # CatBoost would have numba compile the methods, and warn that it cannot

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
            raise ValueError(f"init_score must have one value a row: {n} rows, but {len(start)} scores.")
        self._start = _Round(start)
        self._now, self._lock = self._start, Lock()

    @property
    def label(self) -> Floats:
        """(N,) the training Pool's labels."""
        return self.rows.target

    @property
    def eval_labels(self) -> list[Floats]:
        """The labels of the Pools of `eval_set`, in its order."""
        return [rows.target for rows in self.eval_rows]

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> list[tuple[float, float]]:
        """First and second derivative of the gain for some rows, as CatBoost calls it, from any thread."""
        rows = self.rows.find(targets)
        if rows is None:
            raise ValueError(
                "the labels of the training Pool must be this objective's `label`: it tells rows by them."
            )
        if weights is not None and not np.all(np.asarray(weights) == 1):
            raise ValueError(
                "the Pool must have no weights; give sample_weight= or query_weight= to catboost_objective."
            )
        with self._lock:
            first, second = self._at(rows, np.asarray(approxes))
        return list(zip(first[rows].tolist(), second[rows].tolist(), strict=True))

    def see(self, rows: CatBoostRows, order: Integers, scores: Floats) -> Floats:
        """Scores of a data set in its rows' order, from those that the metric got; those to train on kept."""
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
        """Derivatives of all rows in this round, for a call that names the scores of some."""
        if not self._now.has(rows, scores):
            if not self._start.has(rows, scores):
                _refuse(self._now is self._start)
            self._now = self._start  # another training has begun
        if self._now.derivatives is None:
            gradient, hessian = self._derivatives(self._now.scores)
            self._now.derivatives = -gradient, -hessian  # CatBoost climbs
        return self._now.derivatives

    # CatBoost copies its parameters, but the metric and the objective have to stay together.
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
    if first_round:
        raise ValueError(
            "CatBoost asks for the derivatives at other scores than the objective knows of. Pass "
            "eval_metric=catboost_metric(..., objective=objective), with the same objective, and leave "
            "metric_period=1: the metric hands the scores over. Where training starts from a baseline or an "
            "init_model, give those scores to catboost_objective as init_score."
        )
    raise ValueError(
        "CatBoost asks for the derivatives at other scores than those of the round, of which not all of a "
        "query's are known. Set boosting_type='Plain', leaf_estimation_iterations=1, metric_period=1, "
        "model_shrink_rate=0; with categorical features, one_hot_max_size (as large as the number of their "
        "values) or has_time=True. One objective serves one training at a time."
    )
