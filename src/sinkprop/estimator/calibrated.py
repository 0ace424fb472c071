"""Probabilities of ranks and relevance of a ranker's documents, and statements with a guarantee."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sinkprop.calibration.ideal import informative
from sinkprop.calibration.rank_calibration import LEAST_QUERIES, calibration_of, too_few
from sinkprop.calibration.widths import typical_spread
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.checks import as_labels
from sinkprop.data.queries import Groups, Queries
from sinkprop.estimator.criteria import gain_under
from sinkprop.estimator.external_queries import as_stored
from sinkprop.estimator.held_out import HeldOut
from sinkprop.estimator.inputs import Ids, RankerInputs
from sinkprop.explain.ranking import explain_ranking
from sinkprop.metrics.ranking import one_score_per_row
from sinkprop.objective.rank_distribution import doubly_stochastic, expected_ranks, top_k_probability
from sinkprop.objective.relaxations import SmoothedIndicator

if TYPE_CHECKING:
    from sinkprop.calibration import RankCalibration
    from sinkprop.explain import RankingExplanation
    from sinkprop.objective.gains import Gain

__all__ = ["CalibratedRanker", "take_held_out"]

C = TypeVar("C", bound="CalibratedRanker")


def _knows_probabilities(ranker: CalibratedRanker) -> bool:
    """Whether the ranker is calibrated; raises an AttributeError that says why it is not."""
    if ranker.calibration_ is None:
        raise AttributeError(f"predict_proba: {ranker._not_calibrated()}")
    return True


class CalibratedRanker(RankerInputs):
    """Base class of rankers, with the methods that need a calibration of their scores.

    `fit` keeps the scores of the queries that chose the model in `_calibrating`. The calibration is fitted to
    them when it is first used, or saved, so that fits whose probabilities nobody asks for take no longer.
    """

    _calibrating: HeldOut | None = None
    _calibration: RankCalibration | None = None
    _n_calibrating = (0, 0)  # queries of the fit with different labels, and all queries, that chose the model

    def _keep_held_out(self, held: HeldOut | None) -> None:
        """Set the queries that `calibration_` is fitted to; every fit calls this, with None without any."""
        self._calibrating = None if held is None else held.limited()
        self._calibration, self._n_calibrating = None, (0, 0)

    @property
    def calibration_(self) -> RankCalibration | None:
        """Calibration of the scores; None if fewer than ten queries with different labels chose the model."""
        held = self._calibrating
        if held is not None:
            groups = Groups.of_sizes(held.sizes)
            self._n_calibrating = int(informative(held.labels, groups).sum()), len(held.sizes)
            if self._n_calibrating[0] >= LEAST_QUERIES and np.isfinite(held.scores).all():
                self._calibration = calibration_of(held.scores, held.labels, groups)
            self._calibrating = None  # last, for other threads, and in case of an interrupt
        return self._calibration

    def calibrate(
        self: C, X: Any, y: ArrayLike | None = None, *, qid: Ids | None = None, group: ArrayLike | None = None
    ) -> C:
        """Calibrate the probabilities of the ranker on queries that it was not trained on.

        `fit` does this with the queries that chose the model. More queries, or newer ones, make the
        probabilities more accurate. Scores and rankings stay the same.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A stored set is read one block at a time.
        y : array of shape (N,), optional
            Labels. Not allowed with `Queries` or a stored set, which hold their own.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X holds its own queries.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.

        Returns
        -------
        self
            The ranker with a new calibration. If fewer than ten queries have documents with different labels,
            a ValueError is raised, and the ranker keeps the calibration that it had.
        """
        stored = as_stored(X)
        if stored is not None:
            stored.require_labels("calibration")
        elif y is None and not isinstance(X, Queries):
            raise ValueError("calibrate needs y, one label per row.")
        scores, groups = self._scored(X if stored is None else stored, qid, group, "calibrate", y=y)
        labels: Any = X.y if isinstance(X, Queries) else y if stored is None else stored.labels()
        labels = as_labels(labels, len(scores), rows_of="X")
        n = int(informative(labels, groups).sum())
        if n < LEAST_QUERIES:
            kept = "keeps its calibration" if self.calibration_ is not None else "stays uncalibrated"
            raise ValueError(f"calibrate: {too_few(n, len(groups.queries))} The ranker {kept}.")
        self._calibrating, self._calibration = None, calibration_of(one_score_per_row(scores), labels, groups)
        return self

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
            Query id of each row. Needed, unless `group` is given or X is `Queries`.
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
            Query id of each row. Needed, unless `group` is given or X is `Queries`.
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
            theta, setting = self._uncalibrated(rows, groups, sigma)
            return top_k_probability(theta, k, groups.codes, **setting)
        return calibration.top_k_probability(self._score_rows(rows, groups), k, groups.codes)

    @available_if(_knows_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(
        self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None, threshold: float = 1
    ) -> Floats:
        """Probability that the label of each document is at least a threshold.

        Unlike scores, these probabilities can be compared between queries.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A stored set is read one block at a time.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X holds its own queries.
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
            Documents. A stored set is read one block at a time.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X holds its own queries.
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
            Documents. A stored set is read one block at a time.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X holds its own queries.
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
            Documents. A stored set is read one block at a time.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X holds its own queries.
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
            Documents. A stored set is read one block at a time.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X holds its own queries.
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
            Documents. A stored set is read one block at a time.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X holds its own queries.
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

    def explain(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        metric: str | Gain | None = None,
        calibrated: bool = True,
        sigma: float | None = None,
        top: int | None = None,
        tol: float = 0.05,
    ) -> RankingExplanation:
        """Contribution of each feature to the expected rank of each document, and to the metric of its query.

        For rankers whose `predict` has contributions (`pred_contrib=True`): linear rankers and trees.
        `sinkprop.explain_ranking` defines the result, and takes the contributions of any model.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame or Queries
            Documents.
        y : array of shape (N,) or (N, L), optional
            Labels, for the metric; by default those of `Queries`. Without labels, the metric is that of the
            gains which the calibration expects.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X is `Queries`.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        metric : str or Gain, optional
            Metric to explain, such as "ndcg@10" or "map". By default the ranker's `metric`.
        calibrated : bool, default True
            Whether to explain the calibrated expected ranks; see `expected_rank`.
        sigma : float, optional
            Width of the smoothed indicator for expected ranks that are not calibrated.
        top : int, optional
            Explain only the ranks of the first `top` documents of each query; 0 explains the metric only.
            Needed for queries with more than 1,000 documents.
        tol : float, default 0.05
            Largest error of the contributions' sum, in ranks.

        Returns
        -------
        RankingExplanation
            Contributions of the features.

        Examples
        --------
        >>> from sinkprop import SinkPropRanker
        >>> from sinkprop.datasets import load_pydocs
        >>> fold = load_pydocs(fold=1)
        >>> ranker = SinkPropRanker(penalty=1e-2).fit(fold.train, eval_set=fold.vali)
        >>> query = fold.test.select(fold.test.groups.queries[:1])
        >>> found = ranker.explain(query)
        >>> change = found.expected_ranks - (len(query) + 1) / 2
        >>> bool(abs(found.ranks.sum(axis=1) - change).max() < 0.05)
        True
        """
        rows, groups = self._rows_in_queries(X, qid, group, "explain")
        calibration = self._calibration_for("explain", calibrated and sigma is None)
        parts = self.predict(X, qid=qid, group=group, pred_contrib=True)
        setting: dict[str, Any] = {"calibration": calibration}
        if calibration is None:
            _, setting = self._uncalibrated(self._prepared(rows, groups), groups, sigma)
        labels = X.y if y is None and isinstance(X, Queries) else y
        names = getattr(self, "feature_names_in_", None)
        metric = self.metric if metric is None else metric
        found = explain_ranking(
            parts,
            groups.codes,
            labels,
            metric=gain_under(metric, self.convention),
            top=top,
            feature_names=None if names is None else [str(name) for name in names],
            tol=tol,
            **setting,
        )
        return replace(found, groups=groups, metric_name=str(metric))

    def _plain_distribution(
        self, X: NDArray[Any], groups: Groups, ranks: ArrayLike | None, sigma: float | None
    ) -> Floats:
        """Rank probabilities, without calibration, of rows X of one query, which `_prepared` returned."""
        theta, setting = self._uncalibrated(X, groups, sigma)
        return doubly_stochastic(theta, ranks=ranks, **setting)

    def _uncalibrated(
        self, X: NDArray[Any], groups: Groups, sigma: float | None
    ) -> tuple[Floats, dict[str, Any]]:
        """Return outputs for rows X, and settings for rank probabilities without calibration."""
        relaxation = getattr(self, "relaxation_", None)
        if relaxation is None:
            scores = self._score_rows(X, groups)
            width = typical_spread(scores, groups) if sigma is None else sigma
            return scores, {"relaxation": SmoothedIndicator(width)}
        if sigma is not None:
            if not isinstance(relaxation, SmoothedIndicator):
                raise ValueError("sigma is for the smoothed indicator; a partitioned measure has none.")
            relaxation = replace(relaxation, sigma=sigma)
        setting = {"relaxation": relaxation, "n_iter": self.n_iter, "epsilon": self.epsilon}
        return self._theta(X, groups), setting

    def _calibration_for(self, method: str, wanted: bool) -> RankCalibration | None:
        """Return the calibration if it is wanted. Warns if there is none."""
        check_is_fitted(self)
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

    def _not_calibrated(self) -> str:
        n, n_queries = self._n_calibrating
        why = (
            too_few(n, n_queries)
            if n_queries
            else "calibration needs queries that chose the model; none did."
        )
        return f"{type(self).__name__} is not calibrated: {why} Call calibrate() with held-out queries."

    def _calibrated(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, method: str
    ) -> tuple[Floats, Integers, RankCalibration]:
        """Return the scores of the rows of X, the index of each row's query, and the calibration."""
        check_is_fitted(self)
        calibration = self.calibration_
        if calibration is None:
            raise ValueError(f"{method}: {self._not_calibrated()}")
        scores, groups = self._scored(X, qid, group, method)
        return scores, groups.codes, calibration

    def _scored(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, method: str, **given: Any
    ) -> tuple[Floats, Groups]:
        """Return the scores of the rows of X, and their queries; `given` are arguments such as y."""
        stored = self._given_stored(X, qid=qid, group=group, **given)
        if stored is not None:
            return self.predict(stored), stored.groups
        X, groups = self._rows_in_queries(X, qid, group, method, **given)
        return self._score_rows(self._prepared(X, groups), groups), groups


def take_held_out(ranker: CalibratedRanker) -> HeldOut | None:
    """Return the queries that would calibrate a ranker, and leave it without calibration."""
    held = ranker._calibrating
    ranker._keep_held_out(None)
    return held
