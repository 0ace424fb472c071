"""Position bias with trust: users click a document at the top more readily, even if it is not relevant.

An impression of a document of relevance r at position k is clicked with the probability

    theta_k (plus_k r + minus_k (1 - r)) = slope_k r + intercept_k,

where theta is the examination, and plus and minus are the probabilities that a relevant and an irrelevant
document is clicked if examined (Agarwal et al., 2019; Vardasbi et al., 2020).

The fit. Click rates y_dk = x_dk / n_dk of a document at two positions lie on the line y_dk = a_k (y_d1 +
c_k), with errors in both. For given a and c, the click rate at position 1 that fits document d best is

    rho_d = sum_k w_dk a_k (y_dk - a_k c_k) / A_d,   A_d = sum_k w_dk a_k^2,

and a and c minimize

    sum_dk w_dk (y_dk - a_k (rho_d + c_k))^2 + sum_d A_d v_d,   v_d = sum_k w_dk^2 a_k^2 s_dk / A_d^2.

The second term makes up for the error of rho_d, whose variance is v_d: without it, the slopes are biased
where documents have few impressions. s_dk = y_dk (1 - y_dk) / (n_dk - 1) is the unbiased estimate of the
variance of y_dk, for which a document needs two impressions at a position; others are left out. The weights
w_dk = n_dk / (p_k (1 - p_k)) are computed from the average click rate p_k in the fit before, and the search
is repeated. They do not depend on the clicks of the document: their errors would be those of y_dk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel, Propensities
from sinkprop.clicks.models.cells import Cells, cells_of
from sinkprop.clicks.models.conditional import all_pairs, unconnected
from sinkprop.clicks.models.curves import curve_interval, smoothed
from sinkprop.clicks.models.position_based import named, require_finite
from sinkprop.common.arguments import true_or_false, whole
from sinkprop.common.lbfgs import descend
from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["TrustBiasModel"]

_ROUNDS, _CHANGE = 10, 1e-4  # searches, and the change of ln a below which there is no other
_LEAST_RATE = 0.05  # smallest click rate from which variances are computed, per average of the position


@final
@dataclass(frozen=True, eq=False)
class TrustBiasModel(ClickModel):
    """The model of trust bias: P(click) = slope[position] * relevance[document] + intercept[position].

    Parameters
    ----------
    slope : array of shape (K,)
        Difference of the click probabilities of documents of relevance 1 and 0, at each position.
    intercept : array of shape (K,)
        Probability of a click on a document of relevance 0. In the normalization of `fit` it is negative at
        positions where a document of this relevance would get no click.
    relevance : array of shape (N,), optional
        Relevance of each document.
    interval : array of shape (2, K), optional
        Lower and upper bounds of slope / slope[0], with 95 % coverage at each position.

    Examples
    --------
    >>> users = TrustBiasModel.of_examination([1, 0.5, 0.25], plus=[0.96, 0.95, 0.94], minus=[0.4, 0.2, 0.1])
    >>> users.slope, users.intercept
    (array([0.56 , 0.375, 0.21 ]), array([0.4  , 0.1  , 0.025]))
    """

    slope: Floats
    intercept: Floats
    relevance: Floats | None = None
    interval: Floats | None = None

    def __post_init__(self) -> None:
        slope = np.asarray(self.slope, dtype=np.float64)
        intercept = np.asarray(self.intercept, dtype=np.float64)
        if slope.ndim != 1 or not len(slope) or not (np.isfinite(slope) & (slope > 0)).all():
            raise ValueError(
                f"slope must have one finite number above 0 per position, from the first; got {self.slope!r}."
            )
        if intercept.shape != slope.shape or not np.isfinite(intercept).all():
            raise ValueError(
                f"intercept must have one finite number per position, {slope.shape}, like slope; got "
                f"{self.intercept!r}."
            )
        object.__setattr__(self, "slope", slope)
        object.__setattr__(self, "intercept", intercept)

    @classmethod
    def of_examination(cls, examination: ArrayLike, plus: ArrayLike, minus: ArrayLike) -> TrustBiasModel:
        """Model of given examination and click probabilities.

        Parameters
        ----------
        examination : array of shape (K,)
            Probability that a user examines each position.
        plus : array of shape (K,)
            Probability that a user clicks an examined document of relevance 1.
        minus : array of shape (K,)
            Probability that a user clicks an examined document of relevance 0.

        Returns
        -------
        TrustBiasModel
            The model.
        """
        theta, high, low = (np.asarray(values, dtype=np.float64) for values in (examination, plus, minus))
        if not theta.shape == high.shape == low.shape:
            raise ValueError(
                "examination, plus and minus must have one number per position each; got the shapes "
                f"{theta.shape}, {high.shape} and {low.shape}."
            )
        return cls(theta * (high - low), theta * low)

    @classmethod
    def fit(
        cls,
        log: ClickLog,
        *,
        first: tuple[float, float] = (0.0, 1.0),
        smooth: bool = True,
        max_iter: int = 1000,
        weight: ArrayLike | None = None,
    ) -> TrustBiasModel:
        """Estimate slopes, intercepts and the relevance from a log with documents at several positions.

        Clicks determine the relevance only up to its unit and origin. `first` fixes both: by default, the
        relevance of a document is the probability of a click on it at position 1, so that slope[0] = 1 and
        intercept[0] = 0. With the click probabilities at position 1 of documents that assessors call
        irrelevant and relevant, it is their scale.

        Parameters
        ----------
        log : ClickLog
            The log. It must show clicked documents of different relevance at several positions, twice or more
            at each, for reasons unrelated to the session's user.
        first : (float, float), default (0, 1)
            Probabilities of a click at position 1 on documents of relevance 0 and 1.
        smooth : bool, default True
            Whether ln slope, and intercept / slope, are smoothed over the logarithm of the position, as much
            as the data suggest.
        max_iter : int, default 1000
            Maximum number of iterations of each of the searches.
        weight : array of shape (S,), optional
            Weight of each session.

        Returns
        -------
        TrustBiasModel
            The model, with the relevance of each document of the log; documents that were not shown have the
            average.

        Raises
        ------
        ValueError
            If the log does not tell the slopes of all positions.

        Examples
        --------
        >>> from sinkprop.clicks import simulate_clicks
        >>> from sinkprop.datasets import make_ranking
        >>> queries = make_ranking(20, sizes=(5, 5))
        >>> mistakes = [0.3, 0.2, 0.1, 0.1, 0.1]  # clicks on what is not relevant
        >>> users = TrustBiasModel.of_examination([1, 0.6, 0.4, 0.3, 0.2], [0.9] * 5, mistakes)
        >>> rng = np.random.default_rng(0)
        >>> log = simulate_clicks(queries, rng.random((5, len(queries))), 300_000, users, seed=1)
        >>> found = TrustBiasModel.fit(log, first=(0.3, 0.9))
        >>> found.slope.round(2), found.intercept.round(2)
        (array([0.6 , 0.42, 0.32, 0.23, 0.16]), array([0.3 , 0.12, 0.04, 0.03, 0.02]))
        """
        true_or_false("smooth", smooth)
        whole("max_iter", max_iter, 1)
        low, high = _ends(first)
        cells = cells_of(log, weight)
        several = cells.of_at_least(2)
        several = several.keep(np.diff(several.starts) > 1)
        _require_two_relevances(several)
        if weight is None:
            require_finite(several)
        line, C = _fitted(several, max_iter)
        u, c = line.log_slope, line.offset
        if smooth and len(u) > 1:
            both, C = smoothed(np.r_[u, c], C, blocks=2)
            u, c = np.split(both, 2)
        slope, rates = np.exp(np.r_[0.0, u]), np.r_[0.0, c]
        # rho = low + (high - low) r: the click rate at position 1
        model = cls(slope * (high - low), slope * (low + rates))
        interval = curve_interval(u, C[: len(u), : len(u)])
        relevance = _relevance(log, cells, replace(line, log_slope=u, offset=c))
        return replace(model, relevance=np.clip((relevance - low) / (high - low), 0, 1), interval=interval)

    def examination_curve(self) -> Floats:
        """Slope at each position, relative to the first, (K,)."""
        curve: Floats = self.slope / self.slope[0]
        return curve

    def propensities(self, log: ClickLog) -> Propensities:
        if log.longest > len(self.slope):
            raise ValueError(
                f"the log has {log.longest} positions, and the model {len(self.slope)}; fit the model to "
                "sessions as long, or use log.first(k)."
            )
        at = log.positions - 1
        return Propensities(self.slope[at], self.intercept[at])

    def draw(self, relevance: Floats, offsets: Integers, rng: np.random.Generator) -> Mask:
        at = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
        clicked: Mask = rng.random(len(relevance)) < self.slope[at] * relevance + self.intercept[at]
        return clicked


@dataclass(frozen=True, eq=False)
class _Line:
    """Click rate a_k (rho + c_k) of a document with the click rate rho at position 1.

    log_slope  (K - 1,) ln a at the positions from 2.
    offset     (K - 1,) c.
    rate       (D,) rho, shrunk to the mean by as much as its error suggests.
    mean       Mean of rho.
    """

    log_slope: Floats
    offset: Floats
    rate: Floats
    mean: float


def _ends(first: tuple[float, float]) -> tuple[float, float]:
    ends = np.asarray(first, dtype=np.float64)
    low, high = ends.tolist() if ends.shape == (2,) else (np.nan, np.nan)
    if not 0 <= low < high <= 1:
        raise ValueError(
            "first must be the two probabilities of a click at position 1 on documents of relevance 0 and 1, "
            f"the second larger than the first, from 0 to 1; got {first!r}."
        )
    return low, high


def _require_two_relevances(cells: Cells) -> None:
    """Raise a ValueError unless at least two documents connect each position with others."""
    shared = cells.keep(cells.clicks > 0) if len(cells.rows) else cells
    few = [] if len(shared.rows) else list(range(2, cells.K + 1))
    if len(shared.rows):
        few = unconnected(shared)
        documents = np.bincount(shared.positions, minlength=cells.K)
        few = few or (np.flatnonzero(documents < 2) + 1).tolist()
    if few:
        raise ValueError(
            f"trust bias needs two clicked documents or more that were shown at {named(few)} and at other "
            "positions that connect it with position 1, at least twice at each: a line needs two points, and "
            "their errors are estimated. Log more sessions, the rankings of several rankers or sessions in "
            "which documents are exchanged, or use log.first(k)."
        )


def _fitted(cells: Cells, max_iter: int) -> tuple[_Line, Floats]:
    """The line, and the covariance of (ln a, c)."""
    K = cells.K
    u, _ = all_pairs(cells)
    point = np.r_[u, np.zeros(K - 1)]
    y = cells.x / cells.n
    s = y * (1 - y) / (cells.n - 1)
    average = cells.by_position(cells.x)[cells.positions] / cells.by_position(cells.n)[cells.positions]
    expected = average
    for _ in range(_ROUNDS):
        p = np.clip(expected, _LEAST_RATE * average + 1e-9, 1 - 1e-3)
        w = cells.n / (p * (1 - p))
        before = point
        point = descend(partial(_loss, cells, y, w, s), before, max_iter=max_iter, tol=1e-12)
        a, c = _curves(point, K)
        rate, mean = _shrunk(cells, y, w, a, c)
        expected = (a * (mean + c))[cells.positions]
        if np.abs(point - before).max() < _CHANGE:
            break
    line = _Line(point[: K - 1], point[K - 1 :], rate, mean)
    return line, np.linalg.inv(_information(cells, w, a, c, rate)).astype(np.float64)


def _curves(point: Floats, K: int) -> tuple[Floats, Floats]:
    return np.exp(np.r_[0.0, point[: K - 1]]), np.r_[0.0, point[K - 1 :]]


def _best_rates(cells: Cells, y: Floats, w: Floats, a: Floats, c: Floats) -> tuple[Floats, Floats]:
    """The rho (D,) with the least error for each document, and its precision."""
    at = cells.positions
    precision = cells.by_document(w * a[at] ** 2)
    return cells.by_document(w * a[at] * (y - a[at] * c[at])) / precision, precision


def _loss(cells: Cells, y: Floats, w: Floats, s: Floats, point: Floats) -> tuple[float, Floats]:
    """Half of the sum that is minimized, per cell, and its gradient by (ln a, c)."""
    a, c = _curves(point, cells.K)
    at = cells.positions
    rho, A = _best_rates(cells, y, w, a, c)
    mean = a[at] * (cells.to_cells(rho) + c[at])
    error = w * (mean - y)
    of_log_a, of_c = cells.by_position(error * mean), a * cells.by_position(error)
    noise = w**2 * a[at] ** 2 * s
    v = cells.by_document(noise) / A**2
    of_log_a += cells.by_position(noise / cells.to_cells(A) - w * a[at] ** 2 * cells.to_cells(v))
    value = 0.5 * float(error @ (mean - y)) + 0.5 * float(A @ v)
    return value / len(y), np.r_[of_log_a[1:], of_c[1:]] / len(y)


def _shrunk(cells: Cells, y: Floats, w: Floats, a: Floats, c: Floats) -> tuple[Floats, float]:
    """Expected rho (D,) given the clicks, for normal errors and rho; and the mean of rho."""
    rho, precision = _best_rates(cells, y, w, a, c)
    mean = float(np.average(rho, weights=precision))
    excess = float((precision * (rho - mean) ** 2 - 1).sum() / precision.sum())
    variance = max(excess, 1e-6)
    return (precision * rho + mean / variance) / (precision + 1 / variance), mean


def _information(cells: Cells, w: Floats, a: Floats, c: Floats, rate: Floats) -> Floats:
    """Inverse of the covariance of (ln a, c) at the positions from 2, with rho estimated as well."""
    at = cells.positions
    of_log_a, of_c = a[at] * (cells.to_cells(rate) + c[at]), a[at]
    scale = 1 / np.sqrt(cells.to_cells(cells.by_document(w * a[at] ** 2)))
    blocks = []
    sides = [
        (of_log_a, cells.matrix(w * a[at] * of_log_a * scale)),
        (of_c, cells.matrix(w * a[at] * of_c * scale)),
    ]
    for left, of_left in sides:
        row = []
        for right, of_right in sides:
            own = np.diag(cells.by_position(w * left * right))
            row.append((own - (of_left.T @ of_right).toarray())[1:, 1:])
        blocks.append(row)
    information: Floats = np.block(blocks)
    return information + 1e-6 * np.diag(np.diag(information)) + 1e-9 * np.eye(len(information))


def _relevance(log: ClickLog, cells: Cells, line: _Line) -> Floats:
    """Expected click rate at position 1 of each document of the log, (N,)."""
    a, c = np.exp(np.r_[0.0, line.log_slope]), np.r_[0.0, line.offset]
    p = np.clip(a * (line.mean + c), 1e-6, 1 - 1e-3)[cells.positions]
    rate, mean = _shrunk(cells, cells.x / cells.n, cells.n / (p * (1 - p)), a, c)
    rates = np.full(len(log.documents), mean)
    rates[cells.rows] = rate
    return rates
