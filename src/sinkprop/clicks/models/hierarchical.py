"""Examination and relevance together: the relevance of a document varies about a prediction from features.

The relevance r_d has a gamma distribution with mean m_d, the prediction, and shape s. Document d has the
expected examinations E_d = sum_k n_dk theta_k. If clicks are rare, the number X_d of its clicks is negative
binomial with mean E_d m_d, and their positions are multinomial with the shares of E_d. The log-likelihood is

    sum_dk x_dk ln theta_k
    + sum_d [ln G(X_d + s) - ln G(s) + X_d ln(m_d / (s + E_d m_d)) - s ln(1 + E_d m_d / s)]

with G the gamma function. Documents at several positions tell theta for any m, as in `conditional`; the
more impressions they have, the less a difference between documents counts. Documents at one position tell it
by their predictions. Its derivatives have mean 0 if the means are right, also if clicks are not rare.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sinkprop.calibration.ridge import sigmoid
from sinkprop.clicks.models.cells import Cells
from sinkprop.common.lbfgs import descend
from sinkprop.common.types import Floats

__all__ = [
    "Hierarchical",
    "examinations",
    "fit_coefficients",
    "fit_hierarchical",
    "fit_relevance",
    "posterior_relevance",
]

_PRIOR = 10.0  # precision of the coefficients, per feature: the logit of the relevance varies by about 0.1
_BOUND = 12.0  # of ln s


@dataclass(frozen=True, eq=False)
class Hierarchical:
    """Maximum of the likelihood: m_d = sigmoid(Z b).

    u           (K - 1,) log examination at the positions from 2.
    covariance  (K - 1, K - 1) its covariance.
    predicted   (D,) m.
    coefficients  (P,) b.
    shape       s.
    """

    u: Floats
    covariance: Floats
    predicted: Floats
    coefficients: Floats
    shape: float


def fit_hierarchical(
    cells: Cells, Z: Floats, *, start: Floats | None = None, max_iter: int, tol: float
) -> Hierarchical:
    """Maximize the likelihood over theta, b and s; the last column of Z is 1, and has no penalty.

    With too weak a prior of b, differences between positions pass for relevance, and with too strong a prior
    the reverse. The features of Z are standardized, so that the prior does not depend on their number.

    start  (K - 1,) log examination to start from.
    """
    K, clicks = cells.K, float(cells.x.sum())
    penalty = _penalty(Z)
    x = cells.by_position(cells.x)[1:]

    def loss(point: Floats) -> tuple[float, Floats]:
        u, b, log_s = point[: K - 1], point[K - 1 : -1], float(point[-1])
        mass, E = _examinations(cells, u)
        value, of_E, of_b, of_s = _relevance_terms(cells.clicks, E, Z, b, log_s)
        of_u = x + cells.by_position(mass * cells.to_cells(of_E))[1:]
        value += float(x @ u) - 0.5 * float(penalty @ b**2)
        return -value / clicks, -np.r_[of_u, of_b - penalty * b, of_s] / clicks

    u = -0.8 * np.log(np.arange(2, K + 1)) if start is None else start
    b = _constant(cells.clicks, _examinations(cells, u)[1], Z.shape[1])
    point = descend(loss, np.r_[u, b, 0.0], max_iter=max_iter, tol=tol)
    u, b, s = point[: K - 1], point[K - 1 : -1], float(np.exp(np.clip(point[-1], -_BOUND, _BOUND)))
    covariance = np.linalg.inv(_information(cells, u, Z, b, s, penalty))
    return Hierarchical(u, covariance.astype(np.float64), sigmoid(Z @ b), b, s)


def fit_coefficients(X: Floats, E: Floats, Z: Floats) -> tuple[Floats, float]:
    """(b, s) of the largest likelihood of clicks X (D,), given the expected examinations E (D,)."""
    total, penalty = max(float(X.sum()), 1.0), _penalty(Z)

    def loss(point: Floats) -> tuple[float, Floats]:
        b = point[:-1]
        value, _, of_b, of_s = _relevance_terms(X, E, Z, b, float(point[-1]))
        return (0.5 * float(penalty @ b**2) - value) / total, -np.r_[of_b - penalty * b, of_s] / total

    point = descend(loss, np.r_[_constant(X, E, Z.shape[1]), 0.0], max_iter=500, tol=1e-10)
    return point[:-1], float(np.exp(np.clip(point[-1], -_BOUND, _BOUND)))


def fit_relevance(cells: Cells, u: Floats) -> tuple[float, float]:
    """Mean and shape of the distribution of the relevance, for a given log examination."""
    _, E = _examinations(cells, u)
    b, s = fit_coefficients(cells.clicks, E, np.ones((len(E), 1)))
    return float(sigmoid(b)[0]), s


def examinations(cells: Cells, u: Floats) -> Floats:
    """Expected examinations of each document, (D,)."""
    return _examinations(cells, u)[1]


def posterior_relevance(cells: Cells, u: Floats, predicted: Floats, shape: float) -> Floats:
    """Mean relevance of each document given its clicks, (D,), at most 1."""
    r: Floats = (cells.clicks + shape) / (examinations(cells, u) + shape / np.maximum(predicted, 1e-12))
    return np.minimum(r, 1.0)


def _examinations(cells: Cells, u: Floats) -> tuple[Floats, Floats]:
    """Expected examinations of each cell (C,) and document (D,)."""
    mass = cells.n * np.exp(np.r_[0.0, u])[cells.positions]
    return mass, cells.by_document(mass)


def _constant(X: Floats, E: Floats, size: int) -> Floats:
    """Coefficients that predict the same relevance for all documents."""
    mean = float(np.clip(X.sum() / E.sum(), 1e-6, 0.9))
    b: Floats = np.r_[np.zeros(size - 1), np.log(mean / (1 - mean))]
    return b


def _penalty(Z: Floats) -> Floats:
    """Precision of the prior of each coefficient; none for the last, a constant."""
    n = Z.shape[1] - 1
    precision: Floats = np.r_[np.full(n, _PRIOR * n), 0.0]
    return precision


def _relevance_terms(
    X: Floats, E: Floats, Z: Floats, b: Floats, log_s: float
) -> tuple[float, Floats, Floats, float]:
    """The sum over documents in the log-likelihood, and its derivatives by E, b and ln s."""
    from scipy.special import digamma, gammaln

    s = float(np.exp(np.clip(log_s, -_BOUND, _BOUND)))
    m = np.maximum(sigmoid(Z @ b), 1e-12)
    mu = E * m
    value = gammaln(X + s) - gammaln(s) + X * np.log(m / (s + mu)) - s * np.log1p(mu / s)
    of_log_mean = X - (X + s) * mu / (mu + s)
    of_s = s * float((digamma(X + s) - digamma(s) - np.log1p(mu / s) + (mu - X) / (mu + s)).sum())
    of_E = -(X + s) * m / (mu + s)
    return float(value.sum()), of_E, Z.T @ (of_log_mean * (1 - m)), of_s if abs(log_s) < _BOUND else 0.0


def _information(cells: Cells, u: Floats, Z: Floats, b: Floats, s: float, penalty: Floats) -> Floats:
    """Expected second derivatives of minus the log-likelihood by u, less what estimating b costs."""
    mass, E = _examinations(cells, u)
    m = sigmoid(Z @ b)
    mu = E * m
    w = mu / (1 + mu / s)
    q = mass / cells.to_cells(E)
    Q, rest = cells.matrix(q), cells.matrix(q * cells.to_cells(mu - w))
    scaled = Z * (1 - m)[:, None]
    of_u = np.diag(cells.by_position(q * cells.to_cells(mu))) - (Q.T @ rest).toarray()
    of_both = Q.T @ (scaled * w[:, None])
    of_b = scaled.T @ (scaled * w[:, None]) + np.diag(penalty + 1e-9 * (1 + w.sum()))
    H = of_u - of_both @ np.linalg.solve(of_b, of_both.T)
    information: Floats = H[1:, 1:] + 1e-6 * np.eye(len(u))
    return information
