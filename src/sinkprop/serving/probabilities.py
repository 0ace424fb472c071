"""Methods of rankers and of saved models whose probabilities come from the calibration of their scores."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.queries import Groups, Ids

if TYPE_CHECKING:
    from sinkprop.calibration import RankCalibration

__all__ = ["Probabilities"]


class Probabilities:
    """Base class of rankers and of `Scorer`, with the methods that need a calibration of the scores."""

    @property
    @abstractmethod
    def calibration_(self) -> RankCalibration | None:
        """Calibration of the scores, or None."""

    @abstractmethod
    def _check_fitted(self) -> None:
        """Raise an error if there is no fitted model."""

    @abstractmethod
    def _not_calibrated(self) -> str:
        """Sentences that say that there is no calibration, why, and what to do."""

    @abstractmethod
    def _rows_in_queries(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, what: str
    ) -> tuple[NDArray[Any], Groups]:
        """Return the checked features of the rows X, and their queries, for the method `what`."""

    @abstractmethod
    def _rows_of_one_query(self, X: Any, qid: Ids | None, what: str) -> tuple[NDArray[Any], Groups]:
        """Return the rows X of one query, prepared for scoring, and a `Groups` of it, for `what`."""

    @abstractmethod
    def _prepared(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        """Return checked rows X as the model scores them."""

    @abstractmethod
    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Scores (N,) of rows X, which `_prepared` returned."""

    @abstractmethod
    def _theta(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Outputs of the model for rows X, which `_prepared` returned: (N,) or (N, 2)."""

    @abstractmethod
    def _scored(self, X: Any, qid: Ids | None, group: ArrayLike | None, method: str) -> tuple[Floats, Groups]:
        """Return the scores of the rows of X, and their queries, for the method `method`."""

    @abstractmethod
    def _relaxed(self) -> tuple[Any, dict[str, Any]]:
        """Relaxation of the model, None if it has none, and its Sinkhorn settings for probabilities."""

    def rank_distribution(
        self,
        X: Any,
        *,
        ranks: ArrayLike | None = None,
        sigma: float | None = None,
        calibrated: bool = True,
        qid: Ids | None = None,
    ) -> Floats:
        """Probability of each document of one query at each rank.

        Parameters
        ----------
        X : array of shape (n, D), DataFrame or Queries
            Documents of one query.
        ranks : array of shape (K,), optional
            Ranks whose columns to return, from 1 to n; None returns all.
        sigma : float, optional
            Width of the smoothed indicator, in units of the scores, for probabilities that are not
            calibrated.
        calibrated : bool, default True
            Whether to use the calibration, if there is no sigma. Without it, the probabilities are those of
            the relaxation of the fit; for rankers that have none, those of a smoothed indicator with the
            spread of the scores.
        qid : array of shape (n,), optional
            Query ids, used only to check that the rows belong to a single query.

        Returns
        -------
        array of shape (n, n) or (n, K)
            Matrix Pi. Without `ranks`, Pi[j, k - 1] is the probability that row j has rank k. With `ranks`,
            Pi[j, i] is the probability that row j has rank ``ranks[i]``.
        """
        rows, one = self._rows_of_one_query(X, qid, "rank_distribution")
        calibration = self._calibration_for("rank_distribution", calibrated and sigma is None)
        if calibration is None:
            return self._plain_distribution(rows, one, ranks, sigma)
        return calibration.rank_distribution(self._score_rows(rows, one), ranks=ranks)

    def expected_rank(
        self,
        X: Any,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        sigma: float | None = None,
        calibrated: bool = True,
    ) -> Floats:
        """Expected rank of each document in its query.

        For document j it is sum_k k p_jk, where p_jk is the probability that j has rank k.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame or Queries
            Documents.
        qid : array of shape (N,), optional
            Query id of each row. A ranker needs it, unless `group` is given or X is `Queries`; for a
            `Scorer`, all rows are one query by default.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        sigma : float, optional
            Width of the smoothed indicator for probabilities that are not calibrated.
        calibrated : bool, default True
            Whether to use the calibration; see `rank_distribution`.

        Returns
        -------
        array of shape (N,)
            Expected ranks, from 1 for the top.
        """
        X, groups = self._rows_in_queries(X, qid, group, "expected_rank")
        calibration = self._calibration_for("expected_rank", calibrated and sigma is None)
        rows = self._prepared(X, groups)
        if calibration is None:
            from sinkprop.objective.rank_distribution import expected_ranks

            theta, setting = self._uncalibrated(rows, groups, sigma)
            return expected_ranks(theta, groups.codes, **setting)
        return calibration.expected_rank(self._score_rows(rows, groups), groups.codes)

    def top_k_probability(
        self,
        X: Any,
        k: int,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        sigma: float | None = None,
        calibrated: bool = True,
    ) -> Floats:
        """Probability that each document is among the first k of its query.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame or Queries
            Documents.
        k : int
            Number of ranks, at least 1.
        qid : array of shape (N,), optional
            Query id of each row. A ranker needs it, unless `group` is given or X is `Queries`; for a
            `Scorer`, all rows are one query by default.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        sigma : float, optional
            Width of the smoothed indicator for probabilities that are not calibrated.
        calibrated : bool, default True
            Whether to use the calibration; see `rank_distribution`.

        Returns
        -------
        array of shape (N,)
            Probabilities. Documents with the same label share their ranks evenly.
        """
        X, groups = self._rows_in_queries(X, qid, group, "top_k_probability")
        calibration = self._calibration_for("top_k_probability", calibrated and sigma is None)
        rows = self._prepared(X, groups)
        if calibration is None:
            from sinkprop.objective.rank_distribution import top_k_probability

            theta, setting = self._uncalibrated(rows, groups, sigma)
            return top_k_probability(theta, k, groups.codes, **setting)
        return calibration.top_k_probability(self._score_rows(rows, groups), k, groups.codes)

    def predict_proba(
        self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None, threshold: float = 1
    ) -> Floats:
        """Probability that the label of each document is at least a threshold.

        Unlike scores, these probabilities can be compared between queries.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A ranker reads a stored set one block at a time; a `Scorer` does not take one.
        qid : array of shape (N,), optional
            Query id of each row. A ranker needs it, unless `group` is given or X holds its own queries; for a
            `Scorer`, all rows are one query by default.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        threshold : float, default 1
            Least label of a relevant document.

        Returns
        -------
        array of shape (N,)
            Probabilities. They decrease down each ranking.
        """
        scores, codes, calibration = self._calibrated(X, qid, group, "predict_proba")
        return calibration.relevance_probability(scores, codes, threshold=threshold)

    def confidence(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Floats:
        """Probability that the first document of each ranking has the best label of its query.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A ranker reads a stored set one block at a time; a `Scorer` does not take one.
        qid : array of shape (N,), optional
            Query id of each row. A ranker needs it, unless `group` is given or X holds its own queries; for a
            `Scorer`, all rows are one query by default.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.

        Returns
        -------
        array of shape (Q,)
            Probabilities, one per query, in the order in which the queries first appear.
        """
        scores, codes, calibration = self._calibrated(X, qid, group, "confidence")
        return calibration.confidence(scores, codes)

    def best_set(
        self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None, coverage: float = 0.9
    ) -> Mask:
        """Smallest set of documents of each query that holds one of the best with a given probability.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A ranker reads a stored set one block at a time; a `Scorer` does not take one.
        qid : array of shape (N,), optional
            Query id of each row. A ranker needs it, unless `group` is given or X holds its own queries; for a
            `Scorer`, all rows are one query by default.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        coverage : float, default 0.9
            Probability, over queries like the held-out ones, that a set holds a document with the best label.

        Returns
        -------
        array of bool of shape (N,)
            Whether each document is in the set of its query. The first document always is.
        """
        scores, codes, calibration = self._calibrated(X, qid, group, "best_set")
        return calibration.best_set(scores, codes, coverage=coverage)

    def shortest_list(
        self,
        X: Any,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        coverage: float = 0.95,
        threshold: float = 1,
    ) -> Mask:
        """Shortest prefix of each ranking that holds a relevant document with a given probability.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A ranker reads a stored set one block at a time; a `Scorer` does not take one.
        qid : array of shape (N,), optional
            Query id of each row. A ranker needs it, unless `group` is given or X holds its own queries; for a
            `Scorer`, all rows are one query by default.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        coverage : float, default 0.95
            Probability, over queries that have a relevant document, that the prefix holds one.
        threshold : float, default 1
            Least label of a relevant document.

        Returns
        -------
        array of bool of shape (N,)
            Whether each document is in the prefix of its query.
        """
        scores, codes, calibration = self._calibrated(X, qid, group, "shortest_list")
        return calibration.shortest_list(scores, codes, coverage=coverage, threshold=threshold)

    def rank_interval(
        self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None, coverage: float = 0.9
    ) -> Integers:
        """Interval of ranks of each document, such as "between 2 and 6".

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A ranker reads a stored set one block at a time; a `Scorer` does not take one.
        qid : array of shape (N,), optional
            Query id of each row. A ranker needs it, unless `group` is given or X holds its own queries; for a
            `Scorer`, all rows are one query by default.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        coverage : float, default 0.9
            Expected share of a query's documents whose ideal rank is in the interval. The ideal rank is the
            rank by label, drawn at random among documents with equal labels.

        Returns
        -------
        array of int of shape (N, 2)
            First and last rank.
        """
        scores, codes, calibration = self._calibrated(X, qid, group, "rank_interval")
        return calibration.rank_interval(scores, codes, coverage=coverage)

    def answers(
        self,
        X: Any,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        precision: float = 0.9,
        confidence: float = 0.9,
        threshold: float = 1,
    ) -> Mask:
        """First documents that are relevant with a given precision; none for queries to abstain from.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A ranker reads a stored set one block at a time; a `Scorer` does not take one.
        qid : array of shape (N,), optional
            Query id of each row. A ranker needs it, unless `group` is given or X holds its own queries; for a
            `Scorer`, all rows are one query by default.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        precision : float, default 0.9
            Least share of relevant documents among the answers.
        confidence : float, default 0.9
            Probability, over the held-out queries, that the precision is reached.
        threshold : float, default 1
            Least label of a relevant document.

        Returns
        -------
        array of bool of shape (N,)
            True for the first document of each query that is answered.
        """
        scores, codes, calibration = self._calibrated(X, qid, group, "answers")
        return calibration.answers(
            scores, codes, precision=precision, confidence=confidence, threshold=threshold
        )

    def _plain_distribution(
        self, X: NDArray[Any], groups: Groups, ranks: ArrayLike | None, sigma: float | None
    ) -> Floats:
        """Rank probabilities, without calibration, of rows X of one query, which `_prepared` returned."""
        from sinkprop.objective.rank_distribution import doubly_stochastic

        theta, setting = self._uncalibrated(X, groups, sigma)
        return doubly_stochastic(theta, ranks=ranks, **setting)

    def _uncalibrated(
        self, X: NDArray[Any], groups: Groups, sigma: float | None
    ) -> tuple[Floats, dict[str, Any]]:
        """Return outputs for rows X, and settings for rank probabilities without calibration."""
        from sinkprop.objective.relaxations import SmoothedIndicator

        relaxation, settings = self._relaxed()
        if relaxation is None:
            from sinkprop.calibration.widths import typical_spread

            scores = self._score_rows(X, groups)
            width = typical_spread(scores, groups) if sigma is None else sigma
            return scores, {"relaxation": SmoothedIndicator(width)}
        if sigma is not None:
            if not isinstance(relaxation, SmoothedIndicator):
                raise ValueError("sigma is for the smoothed indicator; a partitioned measure has none.")
            relaxation = replace(relaxation, sigma=sigma)
        return self._theta(X, groups), {"relaxation": relaxation, **settings}

    def _calibration_for(self, method: str, wanted: bool) -> RankCalibration | None:
        """Return the calibration if it is wanted. Warns if there is none."""
        self._check_fitted()
        if not wanted:
            return None
        if self.calibration_ is None:
            warnings.warn(
                f"{method}: {self._not_calibrated()} These probabilities are those of a relaxation, without "
                "calibration; calibrated=False gives them without this warning.",
                UserWarning,
                stacklevel=3,
            )
        return self.calibration_

    def _calibrated(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, method: str
    ) -> tuple[Floats, Integers, RankCalibration]:
        """Return the scores of the rows of X, the index of each row's query, and the calibration."""
        self._check_fitted()
        calibration = self.calibration_
        if calibration is None:
            raise ValueError(f"{method}: {self._not_calibrated()}")
        scores, groups = self._scored(X, qid, group, method)
        return scores, groups.codes, calibration
