"""Probabilities of ranks and relevance of a ranker's documents, and statements with a guarantee."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sinkprop.calibration.ideal import informative
from sinkprop.calibration.rank_calibration import LEAST_QUERIES, calibration_of, too_few
from sinkprop.common.types import Floats
from sinkprop.data.checks import as_labels
from sinkprop.data.queries import Groups, Ids, Queries
from sinkprop.estimator.criteria import gain_under
from sinkprop.estimator.external_queries import as_stored
from sinkprop.estimator.held_out import HeldOut
from sinkprop.estimator.inputs import RankerInputs
from sinkprop.explain.ranking import explain_ranking
from sinkprop.metrics.ranking import one_score_per_row
from sinkprop.serving.probabilities import Probabilities

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


class CalibratedRanker(RankerInputs, Probabilities):
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

    def _check_fitted(self) -> None:
        check_is_fitted(self)

    def _relaxed(self) -> tuple[Any, dict[str, Any]]:
        relaxation = getattr(self, "relaxation_", None)
        return relaxation, {} if relaxation is None else {"n_iter": self.n_iter, "epsilon": self.epsilon}

    predict_proba = available_if(_knows_probabilities)(Probabilities.predict_proba)

    def _not_calibrated(self) -> str:
        n, n_queries = self._n_calibrating
        why = (
            too_few(n, n_queries)
            if n_queries
            else "calibration needs queries that chose the model; none did."
        )
        return f"{type(self).__name__} is not calibrated: {why} Call calibrate() with held-out queries."

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
