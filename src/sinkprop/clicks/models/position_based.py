"""The position-based model: a user examines a position, and clicks the document there if it is relevant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.calibration.ridge import sigmoid
from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel, Propensities
from sinkprop.clicks.models.cells import Cells, cells_of
from sinkprop.clicks.models.conditional import all_pairs, unbounded, unconnected
from sinkprop.clicks.models.curves import curve_interval, smoothed
from sinkprop.clicks.models.hierarchical import (
    Hierarchical,
    examinations,
    fit_hierarchical,
    fit_relevance,
    posterior_relevance,
)
from sinkprop.clicks.models.regression import columns, predictions, standardized, tell_apart
from sinkprop.common.arguments import number, one_of, true_or_false, whole
from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["PositionBasedModel", "PositionFit"]

_ROUNDS = 3  # fits of trees or of a ranker, each with the examination that the one before led to
_CHANGE = 1e-3  # of log examination, below which there is no further round
_LIGHT = 5.0  # scale of the predictions, so that their penalty is small next to that of the features


@dataclass(frozen=True, eq=False)
class PositionFit:
    """Record of how a position-based model was estimated.

    Attributes
    ----------
    method : str
        "documents", "linear", "trees", "ranker", "swaps" or "harvest".
    raw : array of shape (K,)
        Examination before smoothing.
    covariance : array of shape (K - 1, K - 1)
        Covariance of the error of the logarithm of the examination at positions 2 to K.
    shape : float
        How closely the predicted relevance holds: the relevance of a document with the prediction m has the
        standard deviation m / sqrt(shape). For "documents" and interventions, m is the same for all.
    n_documents : int
        Number of clicked documents that were shown at two positions or more.
    """

    method: str
    raw: Floats
    covariance: Floats
    shape: float
    n_documents: int


@final
@dataclass(frozen=True, eq=False)
class PositionBasedModel(ClickModel):
    """The position-based model: P(click) = examination[position] * relevance[document].

    `fit` estimates it from a log. `swap_bias` and `harvest_bias` do so from experiments.

    Parameters
    ----------
    examination : array of shape (K,)
        Probability that a user examines each position, relative to the first.
    relevance : array of shape (N,), optional
        Relevance of each document.
    interval : array of shape (2, K), optional
        Lower and upper bounds of the examination, with 95 % coverage at each position.
    fitted : PositionFit, optional
        How the model was estimated.

    Examples
    --------
    >>> model = PositionBasedModel([1, 0.5, 0.25])
    >>> model.examination_curve()
    array([1.  , 0.5 , 0.25])
    """

    examination: Floats
    relevance: Floats | None = None
    interval: Floats | None = None
    fitted: PositionFit | None = None

    def __post_init__(self) -> None:
        curve = np.asarray(self.examination, dtype=np.float64)
        if curve.ndim != 1 or not len(curve) or not (np.isfinite(curve) & (curve > 0)).all():
            raise ValueError(
                "examination must have one finite number above 0 per position, from the first; got "
                f"{self.examination!r}."
            )
        object.__setattr__(self, "examination", curve)

    @classmethod
    def fit(
        cls,
        log: ClickLog,
        *,
        relevance: Literal["documents", "linear", "trees"] | Any = "documents",
        smooth: bool = True,
        max_iter: int = 500,
        tol: float = 1e-10,
        weight: ArrayLike | None = None,
    ) -> PositionBasedModel:
        """Estimate examination and relevance from a log.

        Parameters
        ----------
        log : ClickLog
            The log.
        relevance : {"documents", "linear", "trees"} or ranker, default "documents"
            What is assumed of the relevance.

            - "documents": nothing. Each position is compared with others on the same documents, so that the
              log must show documents at several positions, for reasons unrelated to the session's user:
              several rankers, an experiment, or a ranker that changed.
            - "linear", "trees" or a ranker: it varies about a prediction from features, a logistic regression
              on the features, their logarithms and their standardized differences within the query. "trees"
              adds the predictions of boosted trees to these, and a ranker with `fit(X, y, qid=)` and
              `predict(X, qid=)` its scores; both for queries that they were not fitted to. How much the
              relevance varies is estimated. Documents at several positions are used as well, and count more
              the more impressions they have. This is the model of regression-EM (Wang et al., 2018) with
              variation about the prediction. The estimate is biased if the rankers that made the log know
              more of the relevance than these features tell.
        smooth : bool, default True
            Whether the logarithm of the examination is smoothed over the logarithm of the position, as much
            as the data suggest. Curves with a sudden drop need more clicks to be seen with smoothing.
        max_iter : int, default 500
            Maximum number of iterations of the optimization with features.
        tol : float, default 1e-10
            Relative improvement of the likelihood below which this optimization ends.
        weight : array of shape (S,), optional
            Weight of each session, such as the number of times that it is in a bootstrap sample.

        Returns
        -------
        PositionBasedModel
            Examination, relative to the first position, its interval, the relevance of each document of the
            log, and how it was estimated. The interval takes clicks to be independent, given the documents;
            `examination_interval` makes one by resampling sessions.

        Raises
        ------
        ValueError
            If the log does not tell the examination of all positions.

        Examples
        --------
        >>> from sinkprop.clicks import simulate_clicks
        >>> from sinkprop.datasets import make_ranking
        >>> queries = make_ranking(100, sizes=(5, 5))
        >>> users = PositionBasedModel([1, 0.6, 0.4, 0.3, 0.2])
        >>> rng = np.random.default_rng(0)
        >>> log = simulate_clicks(queries, rng.random((3, len(queries))), 100_000, users, seed=1)
        >>> PositionBasedModel.fit(log).examination.round(2)
        array([1.  , 0.6 , 0.4 , 0.29, 0.2 ])
        """
        true_or_false("smooth", smooth)
        whole("max_iter", max_iter, 1)
        number("tol", tol)
        method = _method(relevance)
        cells = cells_of(log, weight)
        if method == "documents":
            _require_connected(cells)
            if weight is None:
                require_finite(cells)
            u, C = all_pairs(cells)
            return position_model(log, cells, method, u, C, smooth=smooth)
        if not tell_apart(log.documents):
            raise ValueError(
                f"relevance={relevance!r} predicts the relevance from features, and all documents of the log "
                "have the same ones. Give it features that tell how relevant documents are, or use "
                "relevance='documents', which compares the same documents at several positions."
            )
        found, predicted = _with_features(log, cells, relevance, max_iter=max_iter, tol=tol)
        prior = (predicted, found.shape)
        return position_model(log, cells, method, found.u, found.covariance, prior, smooth=smooth)

    def examination_curve(self) -> Floats:
        return self.examination

    def propensities(self, log: ClickLog) -> Propensities:
        if log.longest > len(self.examination):
            raise ValueError(
                f"the log has {log.longest} positions, and the model {len(self.examination)}; fit the model "
                "to sessions as long, or use log.first(k)."
            )
        slope = self.examination[log.positions - 1]
        return Propensities(slope, np.zeros_like(slope))

    def draw(self, relevance: Floats, offsets: Integers, rng: np.random.Generator) -> Mask:
        sizes = np.diff(offsets)
        at = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        clicked: Mask = rng.random(len(relevance)) < self.examination[at] * relevance
        return clicked


def position_model(
    log: ClickLog,
    cells: Cells,
    method: str,
    u: Floats,
    C: Floats,
    prior: tuple[Floats, float] | None = None,
    *,
    smooth: bool,
) -> PositionBasedModel:
    """Model with a given log examination (K - 1,) and its covariance.

    prior  Mean (N,) and shape of the distribution of the relevance of each document; by default estimated,
           with the same mean for all documents.
    """
    raw = np.exp(np.r_[0.0, u])
    if smooth and len(u) > 1:
        u, C = smoothed(u, C)
    if prior is None:
        mean, shape = fit_relevance(cells, u)
        prior = np.full(len(log.documents), mean), shape
    predicted, shape = prior
    relevance = predicted.copy()
    relevance[cells.rows] = posterior_relevance(cells, u, predicted[cells.rows], shape)
    n_documents = int(((np.diff(cells.starts) > 1) & (cells.clicks > 0)).sum())
    fitted = PositionFit(method, raw, C, shape, n_documents)
    return PositionBasedModel(np.exp(np.r_[0.0, u]), relevance, curve_interval(u, C), fitted)


def _with_features(
    log: ClickLog, cells: Cells, relevance: Any, *, max_iter: int, tol: float
) -> tuple[Hierarchical, Floats]:
    """Estimates with predicted relevance, and the prediction for each document (N,)."""
    method = _method(relevance)
    Z = features = columns(log.documents)
    found = fit_hierarchical(cells, Z[cells.rows], max_iter=max_iter, tol=tol)
    for _ in range(0 if method == "linear" else _ROUNDS):
        exposure = examinations(cells, found.u)
        y = posterior_relevance(cells, found.u, found.predicted, found.shape)
        if method == "trees":
            y, exposure = cells.clicks / exposure, exposure / (1 + exposure * found.predicted / found.shape)
        # One more column, not the only one: models of other queries leave much of the relevance unexplained,
        # and what is unexplained passes for examination.
        scores = predictions(relevance, log.documents, cells.rows, y, exposure)
        Z = np.column_stack([_LIGHT * standardized(scores[:, None]), features])
        before = found.u
        found = fit_hierarchical(cells, Z[cells.rows], start=before, max_iter=max_iter, tol=tol)
        if np.abs(found.u - before).max() < _CHANGE:
            break
    return found, sigmoid(Z @ found.coefficients)


def _method(relevance: Any) -> str:
    if isinstance(relevance, str):
        one_of("relevance", relevance, ("documents", "linear", "trees"))
        return relevance
    if isinstance(relevance, type) or not (hasattr(relevance, "fit") and hasattr(relevance, "predict")):
        raise ValueError(
            "relevance must be 'documents', 'linear', 'trees' or a ranker with fit(X, y, qid=) and "
            f"predict(X, qid=); got {relevance!r}."
        )
    return "ranker"


def _require_connected(cells: Cells) -> None:
    alone = unconnected(cells)
    if alone:
        raise ValueError(
            "relevance='documents' compares positions by clicked documents that were shown at several, and "
            f"no such documents connect {named(alone)} with position 1: where clicks are fewer, users may "
            "examine less or documents may be less relevant. Log the rankings of several rankers, "
            "exchange documents in some sessions (see swap_bias), or give relevance='linear', which predicts "
            "the relevance from features."
        )


def require_finite(cells: Cells, *, with_first: bool = False) -> None:
    """Raise a ValueError unless the clicks of documents shown at several positions bound the examination."""
    alone = unbounded(cells, with_first=with_first)
    if alone:
        raise ValueError(
            f"too few clicks compare {named(alone)} with position 1: the estimated examination would be 0 or "
            "infinite, because the documents that were shown both there and elsewhere were clicked only "
            "there, or only elsewhere. Log more sessions, or use log.first(k)."
        )


def named(positions: list[int]) -> str:
    """Positions in words.

    >>> named([2, 3, 4, 9])
    'the positions 2, 3, 4 and 9'
    """
    if len(positions) == 1:
        return f"position {positions[0]}"
    if len(positions) > 8:
        return f"{len(positions)} positions, from {positions[0]},"
    return f"the positions {', '.join(map(str, positions[:-1]))} and {positions[-1]}"
