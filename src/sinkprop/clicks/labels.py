"""Labels without position bias: the relevance of documents, estimated from their clicks and a click model.

For document j of a query with N_j sessions, let C_j be its clicks, less those that the model expects on a
document of relevance 0, and E_j its expected examinations: sums over the sessions that showed it. If the
model is right, C_j has the mean E_j r_j, where r_j is the relevance. The estimate of r_j is

    m_j + (C_j - E_j m_j) / (N_j max(E_j / N_j, clip)),

with a prediction m_j from features, or m_j = 0 for inverse propensities. Without a clip this is C_j / E_j, an
unbiased estimate for any m_j. With a clip, the variance for documents that are rarely examined is
smaller, and their estimates tend to m_j.

A rank-linear gain that is not normalized, such as DCG or RBP, is linear in the relevance, so that the
expected gain of these labels is an unbiased estimate of that of the true relevance. NDCG divides it by the
best gain of a query, which is too large if the estimates are noisy, and depends on the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from sinkprop.calibration.ridge import sigmoid
from sinkprop.clicks.clipping import ClipChoice, choose_clip
from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel
from sinkprop.clicks.models.regression import predictions
from sinkprop.clicks.models.sequences import average_examination
from sinkprop.common.arguments import number, numbers, one_of
from sinkprop.common.plain_data import plain_data
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.queries import Queries
from sinkprop.objective.gains import NDCG, RBP, Gain
from sinkprop.objective.gains.base import GainSum

__all__ = ["CLIPS", "DebiasedClicks", "debias"]

Method = Literal["doubly robust", "inverse propensity", "none"]
_METHODS = ("doubly robust", "inverse propensity", "none")

CLIPS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, eq=False)
class DebiasedClicks:
    """Relevance of documents, estimated from clicks without position bias: what rankers are trained on.

    Attributes
    ----------
    log : ClickLog
        The clicks.
    model : ClickModel or None
        The click model; None if position bias was ignored.
    method : str
        "doubly robust", "inverse propensity" or "none".
    relevance : array of shape (N,)
        Estimated relevance of each document; NaN if the log says nothing about it. Estimates may lie outside
        0 to 1, since they are unbiased.
    examinations : array of shape (N,)
        Expected number of times that users examined each document.
    sessions : array of shape (Q,)
        Number of sessions of each query.
    clip : float
        Propensity below which propensities are clipped.
    choice : ClipChoice or None
        How the clip was chosen, unless it was given.
    """

    log: ClickLog
    model: ClickModel | None
    method: Method
    relevance: Floats
    examinations: Floats
    sessions: Floats
    clip: float
    choice: ClipChoice | None

    @property
    def known(self) -> Mask:
        """Documents, (N,), whose relevance is estimated."""
        return ~np.isnan(self.relevance)

    def queries(self, gain: Gain | None = None, *, shift: Literal["query", "log"] = "query") -> Queries:
        """Documents with labels, for training.

        The documents whose relevance is known, of queries with sessions.

        Parameters
        ----------
        gain : Gain, optional
            Gain on which a ranker will be trained. The gain of a label is then the estimated relevance: the
            labels of an exponential gain, such as that of NDCG by default, are log2(1 + relevance), and those
            of a linear gain are the relevance.
        shift : {"query", "log"}, default "query"
            Labels are not negative, but estimates can be. With "query", the least estimate of a query becomes
            0 if it is negative, which changes the DCG of all rankings of the query by the same amount. With
            "log", the least of the log does, for losses that compare labels of different queries.

        Returns
        -------
        Queries
            The documents. `query_weight` has the weight of each query.

        Raises
        ------
        ValueError
            If the gain is not linear in the relevance, as that of precision, which counts labels.
        """
        known = self.known
        documents = self.log.documents.take(np.flatnonzero(known))
        codes = documents.groups.codes
        r = self.relevance[known]
        one_of("shift", shift, ("query", "log"))
        if shift == "log":
            r = r - min(float(r.min()), 0.0)
        else:
            least = np.zeros(documents.n_queries)
            np.minimum.at(least, codes, r)
            r = r - least[codes]
        return replace(documents, y=np.log2(1 + r) if _exponential(gain) else r)

    @property
    def query_weight(self) -> Floats:
        """Number of sessions of each query of `queries`, in its order, relative to the mean."""
        documents = self.log.documents.groups.codes[self.known]
        _, first = np.unique(documents, return_index=True)
        weight = self.sessions[documents[np.sort(first)]]
        shares: Floats = weight / weight.mean()
        return shares

    def summary(self) -> dict[str, Any]:
        """Plain data that describe the estimate: the log, the click model, the clip and how it was chosen.

        Returns
        -------
        dict
            Numbers of "sessions", "impressions", "clicks", "documents" and "documents_unknown", whose
            relevance is not estimated. "click_model" is the class of the click model, "bias_method" the
            method of its fit, such as "harvest", "examination" its curve (K,), and "interval" the bounds
            (2, K) of the curve. "method" and "clip" are those of the estimate, and "clip_choice" has the
            "clips" that were tried, their "errors" and "standard_errors". What is unknown is None.
        """
        model, choice = self.model, self.choice
        return {
            "sessions": self.log.n_sessions,
            "impressions": len(self.log),
            "clicks": self.log.n_clicks,
            "method": self.method,
            "clip": self.clip,
            "clip_choice": None if choice is None else _plain_choice(choice),
            "click_model": None if model is None else type(model).__name__,
            "bias_method": getattr(getattr(model, "fitted", None), "method", None),
            "examination": None if model is None else _rounded(_curve(model, self.log)),
            "interval": None if model is None or model.interval is None else _rounded(model.interval),
            "documents": len(self.relevance),
            "documents_unknown": int((~self.known).sum()),
        }


def debias(
    log: ClickLog,
    model: ClickModel | None = None,
    *,
    method: Method = "doubly robust",
    relevance: Floats | None = None,
    clip: float | None = None,
    clips: Sequence[float] = CLIPS,
) -> DebiasedClicks:
    """Estimate the relevance of documents from clicks, corrected for position bias.

    `ranker.fit(log)` calls this function with its defaults. Call it to choose another click model or method,
    or to look at the estimates.

    Parameters
    ----------
    log : ClickLog
        The clicks.
    model : ClickModel, optional
        How users examine positions. By default `estimate_position_bias(log)`. Not used by the method "none".
    method : {"doubly robust", "inverse propensity", "none"}, default "doubly robust"
        "inverse propensity" divides the clicks of a document by its expected examinations. "doubly robust"
        does the same for what clicks add to a prediction of the relevance from features: the less a document
        was examined, the more its estimate is the prediction. "none" is the click rate, with position bias,
        for comparison. Trust bias in the model is corrected by both ("affine correction").
    relevance : array of shape (N,), optional
        Prediction of the relevance of each document for "doubly robust". By default that of a logistic
        regression. No document's prediction is made from its own clicks and, if the log has five queries or
        more, none from the clicks of its query.
    clip : float, optional
        Propensity, from 0 to 1, below which propensities are raised to it. By default the smallest of
        `clips` whose estimates have a squared error within one standard error of the least. `choice` of the
        result has the errors.
    clips : sequence of float
        Clips to choose from.

    Returns
    -------
    DebiasedClicks
        The estimates.

    Raises
    ------
    ValueError
        If the log has no clicks, or the model does not fit the log.

    Examples
    --------
    >>> from sinkprop.clicks import PositionBasedModel, simulate_clicks
    >>> documents = Queries([[0.9], [0.1]], [0, 1], qid=[1, 1])
    >>> users = PositionBasedModel(np.array([1.0, 0.25]))
    >>> log = simulate_clicks(documents, [1, 0], 10_000, users, relevance=[0.2, 0.4], seed=0)
    >>> debias(log, method="none").relevance.round(2)
    array([0.2, 0.1])
    >>> debias(log, users, method="inverse propensity").relevance.round(2)
    array([0.2, 0.4])
    """
    if not isinstance(log, ClickLog):
        raise ValueError(
            f"log must be a ClickLog, such as read_clicks makes; got an object of type {type(log).__name__}."
        )
    if model is not None and not isinstance(model, ClickModel):
        raise ValueError(
            "model must be a ClickModel, such as PositionBasedModel.fit(log), or None, to estimate one; got "
            f"{model!r}."
        )
    one_of("method", method, _METHODS)
    if log.n_clicks == 0:
        raise ValueError(
            "the log has no clicks, so nothing can be learned about relevance. Check that the column of "
            "clicks was read, or log more sessions."
        )
    if clip is not None:
        clip = number("clip", clip)
        if clip > 1:
            raise ValueError(f"clip must be at most 1; got {clip:g}.")
    if method == "none":
        sums = _Sums.of(log, None)
        return _debiased(log, None, method, sums, np.zeros(len(log.documents)), 0.0, None)
    if model is None:
        from sinkprop.clicks.estimation import estimate_position_bias

        model = estimate_position_bias(log)
    sums = _Sums.of(log, model)
    if method == "inverse propensity":
        m = np.zeros(len(log.documents))
    elif relevance is None:
        m = _predicted(log.documents, sums)
    else:
        m = _prediction(relevance, len(log.documents))
    choice = None
    if clip is None:
        grid = np.asarray(numbers("clips", clips, most=1.0))
        choice = choose_clip(
            grid, sums.variance, sums.clicks, sums.examinations, m, sums.sessions, sums.codes
        )
        clip = choice.clip
    return _debiased(log, model, method, sums, m, clip, choice)


def _debiased(
    log: ClickLog,
    model: ClickModel | None,
    method: Method,
    sums: _Sums,
    m: Floats,
    clip: float,
    choice: ClipChoice | None,
) -> DebiasedClicks:
    estimates = sums.estimates(m, clip)
    return DebiasedClicks(
        log, model, method, estimates, sums.examinations, sums.sessions, float(clip), choice
    )


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over the sessions of a log.

    clicks        (N,) clicks of each document, less those expected without relevance.
    variance      (N,) estimated variance of the clicks. It is unbiased for documents that were shown twice or
                  more at one position, and otherwise too large.
    examinations  (N,) expected examinations of each document.
    sessions      (Q,) sessions of each query.
    codes         (N,) query of each document.
    """

    clicks: Floats
    variance: Floats
    examinations: Floats
    sessions: Floats
    codes: Integers

    @classmethod
    def of(cls, log: ClickLog, model: ClickModel | None) -> _Sums:
        """Sums for a model; None means that users examine every position."""
        n, n_queries = len(log.documents), log.documents.n_queries
        observed = np.bincount(log.rows, log.clicked, n).astype(np.float64)
        clicks, examinations = observed, None
        if model is not None:
            p = model.propensities(log)
            clicks, examinations = observed - np.bincount(log.rows, p.intercept, n), p.slope
        shown = np.bincount(log.rows, minlength=n)
        spread = np.where(shown > 1, (shown - observed) / np.maximum(shown - 1, 1), 1.0)
        return cls(
            clicks,
            observed * spread,
            np.bincount(log.rows, examinations, n).astype(np.float64),
            np.bincount(log.queries, minlength=n_queries).astype(np.float64),
            log.documents.groups.codes,
        )

    def estimates(self, m: Floats, clip: float) -> Floats:
        """Estimated relevance (N,), given predictions m; NaN where nothing is known.

        Something is known of documents that were examined, and, if there are predictions, of all documents of
        queries with sessions.
        """
        N = self.sessions[self.codes]
        with np.errstate(divide="ignore", invalid="ignore"):
            found = m + (self.clicks - self.examinations * m) / np.maximum(self.examinations, clip * N)
        predicted = np.where(N > 0, m, np.nan) if np.any(m) else np.nan
        return np.where(self.examinations > 0, found, predicted)


def _curve(model: ClickModel, log: ClickLog) -> Floats:
    """Examination curve of a model (K,); if it holds none, the average over the log."""
    try:
        return model.examination_curve()
    except ValueError:  # examination depends on the clicks above, and the model was not fitted
        return average_examination(log, model.propensities(log).slope, np.ones(len(log)))


def _rounded(values: Any) -> list[Any]:
    """Numbers with six decimals, as lists; None for those that are not finite, which JSON cannot hold."""
    found: list[Any] = plain_data(np.round(np.asarray(values, dtype=np.float64), 6), finite=True)
    return found


def _plain_choice(choice: ClipChoice) -> dict[str, Any]:
    errors = {"errors": choice.errors, "standard_errors": choice.standard_errors}
    found: dict[str, Any] = plain_data({"clips": choice.clips, **errors}, finite=True)
    return found


def _predicted(documents: Queries, sums: _Sums) -> Floats:
    """Relevance of each document, predicted from its features by a model fitted to other queries."""
    shown = np.flatnonzero(sums.examinations > 0)
    E = sums.examinations[shown]
    rates = np.maximum(sums.clicks[shown] / E, 0.0)
    return sigmoid(predictions("linear", documents, shown, rates, E))


def _prediction(relevance: Any, n: int) -> Floats:
    m = np.asarray(relevance, dtype=np.float64)
    if m.shape != (n,) or not np.isfinite(m).all():
        raise ValueError(
            f"relevance must have one finite number per document of the log, ({n},); got shape {m.shape}."
        )
    return m


def _exponential(gain: Gain | None) -> bool:
    """Whether the gain of a label r is 2^r - 1 rather than r."""
    if gain is None:
        return True
    if isinstance(gain, GainSum):
        kinds = {_exponential(part) for _, part in gain.parts}
        if len(kinds) == 1:
            return kinds.pop()
    if isinstance(gain, NDCG):
        return gain.gain == "exponential"
    if isinstance(gain, RBP):
        return False
    raise ValueError(
        f"gain: clicks give estimates of relevance, not grades, and the value of {gain} is not linear in "
        "them. Train on 'ndcg@10', 'ndcg(gain=linear)@10' or 'rbp@0.8', and measure any metric afterwards."
    )
