"""RankCalibration: probabilities of ranks and relevance from anyone's scores, fitted to held-out queries."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.calibration.guarantees import (
    IntervalRisk,
    interval_from,
    interval_record,
    interval_risk,
    least_queries,
    rank_bounds,
    saved_count,
)
from sinkprop.calibration.ideal import informative
from sinkprop.calibration.label_models import Best, Relevance, fit_best, fit_grades, of_firsts
from sinkprop.calibration.relevance import Places, places
from sinkprop.calibration.widths import RANKS, RankMixture, fit_mixture, log_score
from sinkprop.common.arguments import number, whole
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.blocks import one_blas_thread
from sinkprop.data.checks import as_labels
from sinkprop.data.queries import Groups, group_rows
from sinkprop.metrics.ranking import one_score_per_row
from sinkprop.objective.rank_distribution import chosen_ranks

__all__ = ["LEAST_QUERIES", "RankCalibration", "calibration_of"]

LEAST_QUERIES = 10  # held-out queries with different labels without which nothing is calibrated

Ids = ArrayLike | Sequence[Hashable]


@dataclass(frozen=True, eq=False, repr=False)
class RankCalibration:
    """Calibrated probabilities of ranks and relevance, computed from scores.

    Fit it to the scores and labels of queries that the scorer was not trained on, at best some hundreds.
    It works for the scores of any model. Rankers of this library are calibrated by `fit` and `calibrate`,
    and have the methods of this class.

    The rank probabilities are a mixture of smoothed indicators of several widths, with weights that minimize
    the cross entropy between the probabilities of the first ten ranks and the ideal ranks of the labels;
    documents with equal labels share their ranks. The probability of relevance is a logistic model of the
    score, the rank, and the scores of the query. Statements with a guarantee use conformal prediction. The
    order of documents by score never changes.

    Attributes
    ----------
    mixture : RankMixture
        Probabilities of ranks: parameters of the mixture.
    relevance : tuple of Relevance
        For each grade, the model of the probability that a label is at least this grade.
    best : Best or None
        Model of the probability that a document has the best label of its query.
    intervals : IntervalRisk or None
        Risk of rank intervals on the held-out queries.
    n_queries : int
        Number of queries of the fit.
    log_score : float
        Mean log score of the rank probabilities on the queries of the fit, in nats per rank.
    uniform_log_score : float
        That of forecasts that give every rank the same probability.
    grades : array of shape (G,)
        Labels above 0 in the data; at most eight of them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> qid, scores = np.repeat(np.arange(200), 15), rng.normal(size=3000)
    >>> y = np.digitize(scores + rng.normal(size=3000), [0.5, 2])
    >>> calibration = RankCalibration.fit(scores, y, qid)
    >>> calibration.top_k_probability([2.0, 0.5, 0.3, -1.0], 1).round(2)
    array([0.75, 0.13, 0.09, 0.03])
    """

    mixture: RankMixture
    relevance: tuple[Relevance, ...] = field(default=())
    best: Best | None = None
    intervals: IntervalRisk | None = None
    n_queries: int = 0
    log_score: float = float("nan")
    uniform_log_score: float = float("nan")

    @classmethod
    def fit(cls, scores: ArrayLike, y: ArrayLike, qid: Ids | None) -> RankCalibration:
        """Fit the calibration to held-out queries.

        Parameters
        ----------
        scores : array of shape (N,)
            One score per document, larger is better, from a model that was not trained on these queries.
        y : array of shape (N,)
            Labels, 0 or more; larger for more relevant documents.
        qid : array of shape (N,)
            Query id of each row: any hashable ids, in any order.

        Returns
        -------
        RankCalibration
            The fitted calibration.

        Raises
        ------
        ValueError
            If fewer than ten queries have documents with different labels.
        """
        if qid is None:
            raise ValueError("RankCalibration.fit needs qid, the query of each row.")
        x = one_score_per_row(scores)
        groups = group_rows(qid, len(x))
        labels = as_labels(y, len(x))
        n = int(informative(labels, groups).sum())
        if n < LEAST_QUERIES:
            raise ValueError(too_few(n, len(groups.queries)) + " Give more held-out queries.")
        return calibration_of(x, labels, groups)

    def __repr__(self) -> str:
        gain = f"log score {self.log_score:.3f}, uniform {self.uniform_log_score:.3f}"
        return f"RankCalibration({self.n_queries} queries, {gain} nats per rank)"

    @property
    def grades(self) -> Floats:
        """Labels above 0 whose probabilities are known."""
        return np.array([each.grade for each in self.relevance])

    def rank_distribution(self, scores: ArrayLike, *, ranks: ArrayLike | None = None) -> Floats:
        """Matrix of rank probabilities of one query.

        Parameters
        ----------
        scores : array of shape (n,)
            Scores of the documents of one query.
        ranks : int or array of int, optional
            Ranks, from 1 to n, whose columns are computed, in linear time each; None computes all.

        Returns
        -------
        array of shape (n, n), or (n, len(ranks)) with `ranks`
            Pi[j, k - 1] is the probability that document j is at rank k. Rows sum to 1.
        """
        x = one_score_per_row(scores)
        chosen = np.arange(1, len(x) + 1) if ranks is None else chosen_ranks(ranks, len(x))
        columns = np.zeros((len(chosen), len(x)))
        columns[np.arange(len(chosen)), chosen - 1] = 1
        return self.mixture.project(x, group_rows(None, len(x)), columns).clip(0, 1)

    def expected_rank(self, scores: ArrayLike, qid: Ids | None = None) -> Floats:
        """Expected rank of each document in its query.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows form one query.

        Returns
        -------
        array of shape (N,)
            Expected ranks, from 1 for the top.
        """
        x, groups = _scored(scores, qid)
        return self.mixture.project(x, groups, np.arange(1.0, groups.longest + 1)[None])[:, 0]

    def top_k_probability(self, scores: ArrayLike, k: int, qid: Ids | None = None) -> Floats:
        """Probability that each document is among the first k of its query.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores.
        k : int
            Number of ranks, at least 1.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows form one query.

        Returns
        -------
        array of shape (N,)
            Probabilities. If documents share the best label, each counts as first with an equal share.
        """
        k = whole("k", k, 1)
        x, groups = _scored(scores, qid)
        columns = (np.arange(groups.longest) < k).astype(np.float64)[None]
        return self.mixture.project(x, groups, columns)[:, 0].clip(0, 1)

    def relevance_probability(
        self, scores: ArrayLike, qid: Ids | None = None, *, threshold: float = 1
    ) -> Floats:
        """Probability that the label of each document is at least a threshold.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows form one query.
        threshold : float, default 1
            Least label of a relevant document. If it is not one of `grades`, the next of them counts.

        Returns
        -------
        array of shape (N,)
            Probabilities, comparable between queries. They do not increase down a ranking.
        """
        x, groups = _scored(scores, qid)
        return self._relevance(x, groups, self._index(threshold, "relevance_probability"))

    def best_probability(self, scores: ArrayLike, qid: Ids | None = None) -> Floats:
        """Probability that each document has the best label of its query, alone or with others.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows form one query.

        Returns
        -------
        array of shape (N,)
            Probabilities. For the first document of each query, that of `confidence`.
        """
        x, groups = _scored(scores, qid)
        return self._best_model("best_probability")(self._places(x, groups))

    def confidence(self, scores: ArrayLike, qid: Ids | None = None) -> Floats:
        """Probability that the first document of each ranking has the best label of its query.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows form one query.

        Returns
        -------
        array of shape (Q,)
            Probabilities, one per query, in the order in which the queries first appear.
        """
        x, groups = _scored(scores, qid)
        documents = self._places(x, groups)
        p: Floats = of_firsts(self._best_model("confidence")(documents), documents)
        return p

    def best_set(self, scores: ArrayLike, qid: Ids | None = None, *, coverage: float = 0.9) -> Mask:
        """Smallest set of documents of each query that holds one of the best with a given probability.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows form one query.
        coverage : float, default 0.9
            Probability, over queries like the held-out ones, that a set holds a document with the best label.

        Returns
        -------
        array of bool of shape (N,)
            Whether each document is in the set of its query. The first document always is.
        """
        x, groups = _scored(scores, qid)
        best = self._best_model("best_set")
        _check_coverage(coverage, best.sets.n_queries, "best_set", "held-out queries")
        return best.sets.chosen(best.model(self._places(x, groups)), x, groups, coverage)

    def shortest_list(
        self, scores: ArrayLike, qid: Ids | None = None, *, coverage: float = 0.95, threshold: float = 1
    ) -> Mask:
        """Shortest prefix of each ranking that holds a relevant document with a given probability.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows form one query.
        coverage : float, default 0.95
            Probability, over queries that have a relevant document, that the prefix holds one.
        threshold : float, default 1
            Least label of a relevant document.

        Returns
        -------
        array of bool of shape (N,)
            Whether each document is in the prefix of its query.
        """
        x, groups = _scored(scores, qid)
        known = self.relevance[self._index(threshold, "shortest_list")]
        n, of = known.lists.n_queries, "held-out queries with a relevant document"
        _check_coverage(coverage, n, "shortest_list", of)
        return known.lists.chosen(known.model(self._places(x, groups)), x, groups, coverage)

    def rank_interval(self, scores: ArrayLike, qid: Ids | None = None, *, coverage: float = 0.9) -> Integers:
        """Interval of ranks of each document.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows form one query.
        coverage : float, default 0.9
            Expected share of a query's documents whose ideal rank is in the interval. The ideal rank is the
            rank by label, drawn at random among documents with equal labels.

        Returns
        -------
        array of int of shape (N, 2)
            First and last rank. From rank 64, ends are rounded to a grid of ranks that grow by a tenth, which
            makes intervals somewhat wider.
        """
        x, groups = _scored(scores, qid)
        if self.intervals is None:
            raise ValueError(self._without("rank_interval"))
        _check_coverage(coverage, self.intervals.n_queries, "rank_interval", "held-out queries")
        return rank_bounds(self.mixture, x, groups, self.intervals.tail(coverage))

    def answers(
        self,
        scores: ArrayLike,
        qid: Ids | None = None,
        *,
        precision: float = 0.9,
        confidence: float = 0.9,
        threshold: float = 1,
    ) -> Mask:
        """First documents that are relevant with a given precision; none for queries to abstain from.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows form one query.
        precision : float, default 0.9
            Least share of relevant documents among the answers.
        confidence : float, default 0.9
            Probability, over the held-out queries, that the precision is reached.
        threshold : float, default 1
            Least label of a relevant document.

        Returns
        -------
        array of bool of shape (N,)
            True for the first document of each query that is answered. All are False if the held-out queries
            do not show the precision for any share of the queries.
        """
        x, groups = _scored(scores, qid)
        number("precision", precision, above=True, below=1)
        number("confidence", confidence, above=True, below=1)
        known = self.relevance[self._index(threshold, "answers")]
        least, n = known.answers.least_queries(precision, confidence), int(known.answers.answered[-1])
        if n < least:
            raise ValueError(
                f"answers: precision {precision:g} with confidence {confidence:g} needs at least {least} "
                f"held-out queries; there are {n}. Calibrate with more queries, or lower the precision."
            )
        documents = self._places(x, groups)
        p = known.model(documents)
        found: Mask = (documents.ranks == 1) & (p >= known.answers.threshold(precision, confidence))
        return found

    def record(self) -> dict[str, Any]:
        """Convert the calibration to plain data, which a model file can hold.

        Returns
        -------
        dict
            Data for `from_record`.
        """
        return {
            "mixture": self.mixture.record(),
            "relevance": [each.record() for each in self.relevance],
            "best": None if self.best is None else self.best.record(),
            "intervals": None if self.intervals is None else interval_record(self.intervals),
            "n_queries": self.n_queries,
            "log_score": self.log_score,
            "uniform_log_score": self.uniform_log_score,
        }

    @classmethod
    def from_record(cls, state: dict[str, Any]) -> RankCalibration:
        """Convert plain data from `record` back to a calibration.

        Parameters
        ----------
        state : dict
            What `record` returned.

        Returns
        -------
        RankCalibration
            The calibration. Data that are not valid raise a LookupError, TypeError or ValueError.
        """
        relevance = tuple(Relevance.from_record(each) for each in state["relevance"])
        if any(one.grade >= other.grade for one, other in pairwise(relevance)):
            raise ValueError("calibration: grades must be increasing")
        best, intervals = state["best"], state["intervals"]
        log_scores = state["log_score"], state["uniform_log_score"]
        if any(type(value) is not float for value in log_scores):
            raise ValueError("calibration: log scores must be floats")
        return cls(
            RankMixture.from_record(state["mixture"]),
            relevance,
            None if best is None else Best.from_record(best),
            None if intervals is None else interval_from(intervals),
            saved_count(state["n_queries"]),
            *log_scores,
        )

    def _places(self, x: Floats, groups: Groups) -> Places:
        return places(x, groups, self.mixture.scale)

    def _relevance(self, x: Floats, groups: Groups, index: int) -> Floats:
        """Probability of a grade or more: not above that of any lower grade."""
        documents = self._places(x, groups)
        p: Floats = np.min([each.model(documents) for each in self.relevance[: index + 1]], axis=0)
        return p

    def _best_model(self, method: str) -> Best:
        if self.best is None:
            raise ValueError(self._without(method))
        return self.best

    def _index(self, threshold: float, method: str) -> int:
        """Index of the smallest grade that is not below the threshold."""
        number("threshold", threshold, above=True)
        if not self.relevance:
            raise ValueError(self._without(method))
        above = np.flatnonzero(self.grades >= threshold)
        if not len(above):
            raise ValueError(
                f"{method}: threshold must be at most {self.grades[-1]:g}, the largest label of the held-out "
                f"queries; got {threshold:g}."
            )
        return int(above[0])

    def _without(self, method: str) -> str:
        return f"{method}: this calibration has no model of labels; fit it to queries with labels above 0."


def too_few(n: int, n_queries: int) -> str:
    """Sentence that says that there are too few queries to calibrate."""
    return (
        f"calibration needs at least {LEAST_QUERIES} held-out queries with documents of different labels; "
        f"{n} of {n_queries} have them."
    )


def calibration_of(scores: Floats, labels: Floats, groups: Groups) -> RankCalibration:
    """Fit a calibration to arrays that have been checked."""
    order = np.arange(len(scores)) if groups.rows is None else groups.rows
    x, y, groups = scores[order], labels[order], groups.sorted
    n_ranks = min(RANKS, groups.longest)
    with one_blas_thread():  # the same bits on every number of threads
        mixture = fit_mixture(x, y, groups)
        documents = places(x, groups, mixture.scale)
        Pi = mixture.project(x, groups, np.eye(n_ranks, groups.longest))
        return RankCalibration(
            mixture,
            fit_grades(documents, y),
            fit_best(documents, y),
            interval_risk(mixture, x, y, groups),
            len(groups.queries),
            float(log_score(Pi, y, groups).mean()),
            float(np.log(groups.sizes).mean()),
        )


def _scored(scores: ArrayLike, qid: Ids | None) -> tuple[Floats, Groups]:
    x = one_score_per_row(scores)
    return x, group_rows(qid, len(x))


def _check_coverage(coverage: float, n: int, method: str, of: str) -> None:
    """Raise a ValueError unless n held-out queries are enough for a coverage; `of` says which queries."""
    least = least_queries(number("coverage", coverage, above=True, below=1))
    if n < least:
        raise ValueError(
            f"{method}: coverage {coverage:g} needs at least {least} {of}; there are {n}. "
            "Calibrate with more queries, or lower the coverage."
        )
