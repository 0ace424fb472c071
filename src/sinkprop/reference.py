"""The paper in plain NumPy, one query at a time: the definition against which every fast kernel is tested.

R. P. Adams and R. S. Zemel, *Ranking via Sinkhorn Propagation*, arXiv 1106.1925, 2011. The letters are the
paper's, except that the number of documents is n, not J. Document j has the label r_j and the score phi(x_j).
The order by decreasing score is s-hat. A is the matrix before the Sinkhorn iterations, and Pi = Z^i(A) is the
matrix after i iterations; in both, row = document and column = rank. The paper prints the discount of NDCG as
log_2(-k); 1 / log_2(k) is meant, and `NDCG` uses that.

A reverse pass has the suffix `_rev` and follows its forward pass. From `X_bar`, the derivative of the
expected gain with respect to the output X of the forward pass, it computes the derivative with respect to the
input.

All matrices are dense, so time and memory are quadratic in n; the code is written to be read. Scores may be
complex, to compute derivatives by a complex step, except with the beta distribution. Complex scores are
ordered by their real parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.common.arguments import one_of
from sinkprop.common.types import Floats
from sinkprop.data.queries import group_rows
from sinkprop.objective.gains import Gain, RankLinearGain, Term, as_gain
from sinkprop.objective.gains.base import with_bound_arrays
from sinkprop.objective.normalization import Converged, Iterations, as_iterations
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator
from sinkprop.objective.sinkhorn_limit import sinkhorn_limit

__all__ = [
    "column_normalize",
    "column_normalize_rev",
    "expected_gain",
    "expected_value",
    "gain_matrix",
    "gain_of_matrix",
    "gain_of_matrix_rev",
    "hard_gain",
    "partitioned_measure",
    "partitioned_measure_rev",
    "pre_sinkhorn",
    "pre_sinkhorn_rev",
    "row_normalize",
    "row_normalize_rev",
    "sinkhorn",
    "sinkhorn_rev",
    "smoothed_indicator",
    "smoothed_indicator_rev",
]

Array = NDArray[Any]  # of float64, or of complex128 for a complex step


def gain_matrix(labels: ArrayLike, gain: str | Gain) -> Floats:
    """Gain matrix l(r_j, k): the amount that document j adds at rank k.

    Parameters
    ----------
    labels : array of shape (n,)
        Labels r of one query.
    gain : str or RankLinearGain
        The gain, or its text form. It must be rank-linear, such as NDCG.

    Returns
    -------
    array of shape (n, n)
        The matrix l(r_j, k). If the gain is normalized, it is divided by the value of the best ranking.

    Examples
    --------
    >>> gain_matrix([0, 1], "ndcg(discount=log2)").round(3)
    array([[0.   , 0.   ],
           [1.   , 0.631]])
    """
    gain, r = as_gain(gain), np.asarray(labels, dtype=np.float64)
    if not isinstance(gain, RankLinearGain):
        raise TypeError(
            f"gain: {gain} is not rank-linear, so that it has no gain matrix; use gain_of_matrix."
        )
    if not gain.separable:
        classes, table = gain.class_discounts(r, len(r))
        return table[classes]
    G, D = gain.gains(r), gain.discounts(len(r))
    if gain.normalized:
        ideal = np.sort(G)[::-1] @ D
        G = G / ideal if ideal > 0 else np.zeros_like(G)
    return np.outer(G, D)


def gain_of_matrix(Pi: Array, labels: ArrayLike, gain: str | Gain) -> complex:
    """Gain of a matrix Pi of rank probabilities.

    For a rank-linear gain it is E_Pi[L(r)] = sum_jk Pi[j, k] l(r_j, k), the expected gain under any
    distribution over rankings with these probabilities. The other gains are functions of what is expected at
    each rank, R_c[k] = sum_j Pi[j, k] a_c[j], and of the exposures E[j] = sum_k Pi[j, k] e[k], which equal
    the metric if Pi is a permutation matrix::

        average precision:    (1/m) sum_k d_k R[k] (1 + sum_(i<k) R[i])
        reciprocal rank, ERR: sum_k d_k R[k] prod_(i<k) (1 - R[i])
        alpha-NDCG, ERR-IA:   sum_c sum_k d_k R_c[k] prod_(i<k) (1 - alpha R_c[i])
        (if only one document has the attribute: sum_k d_k R[k] in all of these, which is exact)
        ExpectedExposure:     sum_j (E[j] - t[j])^2
        ExposureGap:          mean over pairs of groups of (X_g - X_h)^2, X_g = sum_(j in g) w_j E[j]

    Parameters
    ----------
    Pi : array of shape (n, n)
        Probability of each document (row) at each rank (column); real or complex.
    labels : array of shape (n,) or (n, L)
        Labels r of one query.
    gain : str or Gain
        The gain, or its text form.

    Returns
    -------
    float or complex
        The gain; real for a real matrix.

    Examples
    --------
    >>> S = np.array([[0.0, 1.0], [1.0, 0.0]])  # the second document is first
    >>> gain_of_matrix(S, [1, 0], "mrr")
    0.5
    """
    gain, r = as_gain(gain), np.asarray(labels, dtype=np.float64)
    if isinstance(gain, RankLinearGain):
        value: complex = (Pi * gain_matrix(r, gain)).sum().item()
        return value
    return _number(sum(_term(term, _statistic(term, Pi))[0] for term in _terms(gain, r)))


def gain_of_matrix_rev(Pi: Array, labels: ArrayLike, gain: str | Gain) -> Floats:
    """Derivative of `gain_of_matrix` with respect to Pi.

    It is l(r_j, k) for a rank-linear gain, and otherwise the sum of a_c[j] D_c[k] with D_c = dF/dR_c over the
    attributes c, and of h[j] e[k] with h = dH/dE.

    Parameters
    ----------
    Pi : array of shape (n, n)
        Probability of each document (row) at each rank (column).
    labels : array of shape (n,) or (n, L)
        Labels r of one query.
    gain : str or Gain
        The gain, or its text form.

    Returns
    -------
    array of shape (n, n)
        Pi_bar.
    """
    gain, r = as_gain(gain), np.asarray(labels, dtype=np.float64)
    if isinstance(gain, RankLinearGain):
        return gain_matrix(r, gain)
    Pi_bar = np.zeros(Pi.shape)
    for term in _terms(gain, r):
        S_bar = _term(term, _statistic(term, Pi))[1]
        Pi_bar += np.outer(S_bar[0], term.discounts[0]) if term.of_rows else term.attributes.T @ S_bar
    return Pi_bar


def _terms(gain: Gain, r: Floats) -> list[Term]:
    gain, r = with_bound_arrays(gain, r)
    return gain.terms(r, group_rows(None, len(r)), None)


def _statistic(term: Term, Pi: Array) -> Array:
    """R (C, n), or E (1, n), the statistics of which the term is a function."""
    return term.discounts @ Pi.T if term.of_rows else term.attributes @ Pi


def _term(term: Term, S: Array) -> tuple[complex, Array]:
    """Value of a term, and its derivative with respect to the statistics S, in the shape of S."""
    norm = _norm(term)
    factor = term.weight / norm if norm > 0 else 0.0
    d, a = np.broadcast_to(term.discounts, S.shape), term.attributes
    if term.function is not None:
        S_bar = np.zeros(S.shape)
        value = term.function(S.real.copy(), a, S_bar)
        # for a complex step, the function to first order
        return factor * (value + (S_bar * (S - S.real)).sum()), factor * S_bar
    if term.form == "linear":
        return factor * (d * S).sum(), factor * d
    # An attribute of one document is at one rank only, and the expectation is linear in R.
    several = np.count_nonzero(a, axis=1, keepdims=True) > 1
    if term.form == "precisions":
        above = several * (np.cumsum(S, axis=1) - S)
        below = several * (np.cumsum((d * S)[:, ::-1], axis=1)[:, ::-1] - d * S)
        return factor * (d * S * (1 + above)).sum(), factor * (d * (1 + above) + below)
    if term.form == "cascade":
        total: complex = 0.0
        D = np.zeros_like(S)
        for c in range(len(S)):
            # the interest of a reader at each rank, and how it changes with each R[i] above
            alpha = term.alpha * several[c, 0]
            left = 1 - alpha * S[c]
            for k in range(S.shape[1]):
                interest = np.prod(left[:k])
                total += d[c, k] * S[c, k] * interest
                D[c, k] += d[c, k] * interest
                others = np.where(np.eye(k, dtype=bool), 1.0, left[:k]).prod(axis=1)  # for each i: all but i
                D[c, :k] -= alpha * d[c, k] * S[c, k] * others
        return factor * total, factor * D
    if term.form == "target":
        return factor * ((S - a) ** 2).sum(), 2 * factor * (S - a)
    codes, w = a
    groups = [g for g in np.unique(codes) if g >= 0]
    X = [(w * S[0])[codes == g].sum() for g in groups]
    pairs = [(g, h) for g in range(len(X)) for h in range(g)]
    H_bar = np.zeros_like(S)
    for g, h in pairs:
        H_bar[0] += 2 * (X[g] - X[h]) * w * ((codes == groups[g]) * 1.0 - (codes == groups[h]))
    share = factor / max(1, len(pairs))
    return share * sum((X[g] - X[h]) ** 2 for g, h in pairs), share * H_bar


def _norm(term: Term) -> float:
    """Divisor of the value of a term; a term whose norm is 0 has the value 0."""
    a, d, (c0, c1) = term.attributes, term.discounts[0], term.constants
    if term.norm == "ideal":
        return float(np.sort(a[0])[::-1] @ d)
    if term.norm == "count":
        return float(c0 + c1 * a.sum()) if a.sum() > 0 else 0.0
    if term.norm == "intents":
        return float(c0 * a.any(axis=1).sum())
    if term.norm == "none":
        return 1.0
    interest, left, value = np.ones(len(a)), list(range(a.shape[1])), 0.0
    for rank in range(a.shape[1]):  # greedily: the document that adds most, the first of equal ones
        best = max(left, key=lambda j: (interest @ a[:, j], -j))
        value += d[rank] * (interest @ a[:, best])
        interest = interest * (1 - term.alpha * a[:, best])
        left.remove(best)
    return float(value)


def _number(value: Any) -> complex:
    """Return a number as Python's float, or as complex if it is complex."""
    return complex(value) if np.iscomplexobj(value) else float(value)


def hard_gain(order: ArrayLike, labels: ArrayLike, gain: str | Gain) -> float:
    """Gain of one ranking s; for a rank-linear gain, L(s; r) = sum_k l(r_s[k], k).

    l(r, k) is the amount that a document with label r adds at rank k.

    Parameters
    ----------
    order : array of shape (n,)
        The ranking s: document indices, best first.
    labels : array of shape (n,) or (n, L)
        Labels r of one query.
    gain : str or Gain
        The gain, or its text form.

    Returns
    -------
    float
        L(s; r).

    Examples
    --------
    >>> hard_gain([2, 0, 1], [0, 1, 1], "p@2")
    0.5
    """
    s = np.asarray(order)
    S = np.zeros((len(s), len(s)))
    S[s, np.arange(len(s))] = 1
    return float(gain_of_matrix(S, labels, gain).real)


def expected_value(
    scores: ArrayLike,
    labels: ArrayLike,
    gain: str | Gain,
    relaxation: Relaxation,
    *,
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
) -> complex:
    """Expected gain of one query, for the rank probabilities Pi that the scores give; see `gain_of_matrix`.

    Parameters
    ----------
    scores : array of shape (n,) or (n, 2)
        Scores: phi for a smoothed indicator, theta for a partitioned measure; real or complex.
    labels : array of shape (n,) or (n, L)
        Labels r.
    gain : str or Gain
        The gain, or its text form.
    relaxation : Relaxation
        The map h_J from scores to a matrix A, which the Sinkhorn iterations turn into rank probabilities Pi.
    n_iter : float, "converged" or Converged, default 5
        Number i of Sinkhorn iterations, or their limit.
    epsilon : float, default 1e-6
        Constant added to every entry of A.

    Returns
    -------
    float or complex
        The expected gain; real for real scores.

    Examples
    --------
    >>> round(expected_value([0, 0, 0], [0, 1, 0], "p@2", SmoothedIndicator()), 6)  # every Pi[j, k] is 1/3
    0.333333
    """
    phi, r = _one_query(scores, labels, relaxation)
    return gain_of_matrix(sinkhorn(pre_sinkhorn(phi, relaxation) + epsilon, n_iter), r, gain)


def expected_gain(
    scores: ArrayLike,
    labels: ArrayLike,
    gain: str | Gain,
    relaxation: Relaxation,
    *,
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
) -> tuple[float, Floats]:
    """Expected gain of one query and its derivative with respect to the scores.

    Parameters
    ----------
    scores : array of shape (n,) or (n, 2)
        Scores: phi for a smoothed indicator, theta for a partitioned measure.
    labels : array of shape (n,) or (n, L)
        Labels r.
    gain : str or Gain
        The gain, or its text form.
    relaxation : Relaxation
        The map h_J from scores to a matrix A, which the Sinkhorn iterations turn into rank probabilities Pi.
    n_iter : float, "converged" or Converged, default 5
        Number i of Sinkhorn iterations, or their limit.
    epsilon : float, default 1e-6
        Constant added to every entry of A.

    Returns
    -------
    value : float
        The expected gain.
    gradient : array of shape (n,) or (n, 2)
        Its derivative, in the shape of the scores.

    Examples
    --------
    >>> value, gradient = expected_gain([2, 1, 0], [0, 1, 2], "ndcg", SmoothedIndicator(0.5))
    >>> round(value, 4), gradient.round(4)
    (0.7439, array([ 0.006 , -0.0823,  0.0763]))
    """
    phi, r = _one_query(scores, labels, relaxation)
    A = pre_sinkhorn(phi, relaxation) + epsilon
    Pi = sinkhorn(A, n_iter)
    A_bar = sinkhorn_rev(A, n_iter, gain_of_matrix_rev(Pi, r, gain))
    return float(gain_of_matrix(Pi, r, gain).real), pre_sinkhorn_rev(phi, relaxation, A_bar)


def row_normalize(A: Array) -> Array:
    """Row normalization T_R(A) = A / (A 1 1'): every row divided by its sum.

    Parameters
    ----------
    A : array of shape (n, n)
        Matrix whose row sums are above 0.

    Returns
    -------
    array of shape (n, n)
        T_R(A).
    """
    return A / _sums(A, 1, "row")


def row_normalize_rev(A: Array, Y_bar: Array) -> Array:
    """Reverse pass of the row normalization Y = T_R(A): the derivative A_bar from Y_bar.

    With a_j the sum of row j of A::

        A_bar[j, k] = sum_k' [delta_kk' / a_j - A[j, k'] / a_j^2] Y_bar[j, k']

    Parameters
    ----------
    A : array of shape (n, n)
        Input of the forward pass.
    Y_bar : array of shape (n, n)
        Derivative of the expected gain with respect to Y.

    Returns
    -------
    array of shape (n, n)
        A_bar, the derivative with respect to A.
    """
    a = _sums(A, 1, "row")
    A_bar: Array = (Y_bar - (A / a * Y_bar).sum(axis=1, keepdims=True)) / a
    return A_bar


def column_normalize(A: Array) -> Array:
    """Column normalization T_C(A) = A / (1 1' A): every column divided by its sum.

    Parameters
    ----------
    A : array of shape (n, n)
        Matrix whose column sums are above 0.

    Returns
    -------
    array of shape (n, n)
        T_C(A).
    """
    return A / _sums(A, 0, "column")


def column_normalize_rev(A: Array, Y_bar: Array) -> Array:
    """Reverse pass of the column normalization Y = T_C(A): the derivative A_bar from Y_bar.

    The formula is that of `row_normalize_rev` with rows and columns exchanged.

    Parameters
    ----------
    A : array of shape (n, n)
        Input of the forward pass.
    Y_bar : array of shape (n, n)
        Derivative of the expected gain with respect to Y.

    Returns
    -------
    array of shape (n, n)
        A_bar, the derivative with respect to A.
    """
    a = _sums(A, 0, "column")
    A_bar: Array = (Y_bar - (A / a * Y_bar).sum(axis=0, keepdims=True)) / a
    return A_bar


def sinkhorn(A: Array, n_iter: Iterations) -> Array:
    """Incomplete Sinkhorn normalization Z^i(A) = T_R(T_C(Z^(i-1)(A))) with Z^0(A) = A.

    T_C divides every column by its sum, and T_R every row. The limit is the matrix diag(u) A diag(v) whose
    rows and columns sum to 1.

    Parameters
    ----------
    A : array of shape (n, n)
        Nonnegative matrix whose row and column sums are above 0.
    n_iter : float, "converged" or Converged
        Number i of iterations: columns first, then rows. An extra half iteration, such as 5.5, normalizes the
        columns once more at the end; 0.5 is SmoothRank's normalization. "converged" is the limit, which a
        positive matrix has.

    Returns
    -------
    array of shape (n, n)
        Pi = Z^i(A).

    Examples
    --------
    >>> sinkhorn(np.array([[3.0, 1.0], [1.0, 1.0]]), 100).round(4)
    array([[0.634, 0.366],
           [0.366, 0.634]])
    """
    n_iter = as_iterations(n_iter)
    if isinstance(n_iter, Converged):
        return _limit(A, n_iter)
    for t in range(int(2 * n_iter)):
        A = row_normalize(A) if t % 2 else column_normalize(A)
    return A


def sinkhorn_rev(A: Array, n_iter: Iterations, Pi_bar: Array) -> Array:
    """Reverse pass of i Sinkhorn iterations Pi = Z^i(A): the derivative A_bar from Pi_bar.

    This is the paper's SinkProp: it goes back through every intermediate matrix. For the limit, it is the
    derivative of the implicit function: with a and b the row and column sums of Pi_bar * Pi, ::

        A_bar[j, k] = u_j v_k (Pi_bar[j, k] - alpha_j - beta_k),  alpha + Pi beta = a,  Pi' alpha + beta = b

    Parameters
    ----------
    A : array of shape (n, n)
        Input of the forward pass.
    n_iter : float, "converged" or Converged
        Number i of iterations, or their limit.
    Pi_bar : array of shape (n, n)
        Derivative of the expected gain with respect to Pi.

    Returns
    -------
    array of shape (n, n)
        A_bar, the derivative with respect to A.
    """
    n_iter = as_iterations(n_iter)
    if isinstance(n_iter, Converged):
        Pi = _limit(A, n_iter)
        solution = _solved(Pi, np.concatenate([(Pi_bar * Pi).sum(axis=1), (Pi_bar * Pi).sum(axis=0)]))
        # Pi / A is u v'; where A is 0, Pi does not change with the other entries
        ratio = np.divide(Pi, A, out=np.zeros_like(Pi), where=A != 0)
        limit_bar: Array = ratio * (Pi_bar - solution[: len(A), None] - solution[len(A) :])
        return limit_bar
    inputs = []
    for t in range(int(2 * n_iter)):
        inputs.append(A)
        A = row_normalize(A) if t % 2 else column_normalize(A)
    A_bar = Pi_bar
    while inputs:
        A = inputs.pop()
        A_bar = row_normalize_rev(A, A_bar) if len(inputs) % 2 else column_normalize_rev(A, A_bar)
    return A_bar


def _limit(A: Array, settings: Converged) -> Array:
    """Return the limit of the Sinkhorn iterations.

    After the real part of A, one Newton step gives the imaginary part to first order, for a complex step.
    """
    limit = sinkhorn_limit(A.real, tol=settings.tol, max_iter=max(settings.max_iter, 10_000))
    Pi = np.exp(limit.log_u[:, None] + limit.log_v) * A
    excess = np.concatenate([Pi.sum(axis=1), Pi.sum(axis=0)]) - 1
    step = _solved(Pi.real, excess)
    result: Array = Pi * (1 - step[: len(A), None] - step[len(A) :])
    return result


def _solved(Pi: Array, b: Array) -> Array:
    """Solve the system [[1, Pi], [Pi', 1]] x = b, of which the solution is determined up to a constant."""
    eye = np.eye(len(Pi))
    x: Array = np.linalg.lstsq(np.block([[eye, Pi], [Pi.T, eye]]), b, rcond=1e-13)[0]
    return x


def _sums(A: Array, axis: int, what: str) -> Array:
    a: Array = A.sum(axis=axis, keepdims=True)
    if (a.real <= 0).any():
        first = int(np.argmax(a.real.ravel() <= 0))
        raise ValueError(
            f"A: every {what} must have a sum above 0 to be normalized; {what} {first} sums to "
            f"{a.ravel()[first].real}. Add a small epsilon to every entry."
        )
    return a


def pre_sinkhorn(scores: Array, relaxation: Relaxation) -> Array:
    """Matrix A = h_J(scores) of one query, before epsilon is added.

    Parameters
    ----------
    scores : array of shape (n,) or (n, 2)
        Scores: phi for a smoothed indicator, theta for a partitioned measure.
    relaxation : Relaxation
        The map h_J.

    Returns
    -------
    array of shape (n, n)
        A, with row = document and column = rank.
    """
    if isinstance(relaxation, SmoothedIndicator):
        return smoothed_indicator(scores, relaxation.sigma, relaxation.kernel)[1]
    family = _family(relaxation)
    if relaxation.width == 1:
        scores = shared_scale(scores, relaxation)
    return partitioned_measure(scores, family)


def pre_sinkhorn_rev(scores: Array, relaxation: Relaxation, A_bar: Array) -> Array:
    """Reverse pass of A = h_J(scores): the derivative with respect to the scores, from A_bar.

    Parameters
    ----------
    scores : array of shape (n,) or (n, 2)
        Input of the forward pass.
    relaxation : Relaxation
        The map h_J.
    A_bar : array of shape (n, n)
        Derivative of the expected gain with respect to A.

    Returns
    -------
    array of shape (n,) or (n, 2)
        Derivative with respect to the scores.
    """
    if isinstance(relaxation, SmoothedIndicator):
        return smoothed_indicator_rev(scores, relaxation.sigma, relaxation.kernel, A_bar)
    family = _family(relaxation)
    if relaxation.width == 2:
        return partitioned_measure_rev(scores, family, A_bar)
    theta_bar = partitioned_measure_rev(shared_scale(scores, relaxation), family, A_bar)
    return shared_scale_rev(scores, relaxation, theta_bar)


def shared_scale(phi: Array, relaxation: Relaxation) -> Array:
    """Parameters theta of the documents of one query that share the scale of a partitioned measure.

    Parameters
    ----------
    phi : array of shape (n,)
        Scores.
    relaxation : PartitionedMeasure
        The measure, with a `sigma`.

    Returns
    -------
    array of shape (n, 2)
        (-x, log sigma), or (log a, log b) for the beta distribution, where x is phi less its mean.
    """
    family, sigma = _family(relaxation), _scale(relaxation)
    x = phi - phi.mean()
    if family != "beta":
        return np.column_stack([-x, np.full(len(x), np.log(sigma))])
    total = np.log(4 / sigma**2)
    return np.column_stack([total - np.logaddexp(0, x), total - np.logaddexp(0, -x)])


def shared_scale_rev(phi: Array, relaxation: Relaxation, theta_bar: Array) -> Array:
    """Reverse pass of theta = shared_scale(phi): the derivative by phi, from theta_bar (n, 2)."""
    x_bar = -theta_bar[:, 0]
    if _family(relaxation) == "beta":
        m = _sigmoid(phi.mean() - phi)
        x_bar = m * theta_bar[:, 1] - (1 - m) * theta_bar[:, 0]
    phi_bar: Array = x_bar - x_bar.mean()
    return phi_bar


def smoothed_indicator(phi: Array, sigma: float, kernel: str) -> tuple[NDArray[np.intp], Array]:
    """Smoothed indicator A[j, k] = K((phi_j - phi_s[k]) / sigma), and the order s.

    s[k] is the document at rank k in the order by decreasing score. K(t) is exp(-t^2 / 2) for the "gaussian"
    kernel and exp(-|t|) for "laplace". The sign of t in |t| is taken from the ranks: a document counts as
    above the documents that follow it in the order, even if their scores tie.

    Parameters
    ----------
    phi : array of shape (n,)
        Scores.
    sigma : float
        Smoothing width, above 0.
    kernel : {"gaussian", "laplace"}
        The kernel K.

    Returns
    -------
    order : array of shape (n,)
        The order s, called s-hat in the paper: document indices by decreasing score, ties in input order.
    A : array of shape (n, n)
        The matrix, with row = document and column = rank.

    Examples
    --------
    >>> order, A = smoothed_indicator(np.array([1.0, 3.0]), 1.0, "laplace")
    >>> order, A.round(3)
    (array([1, 0]), array([[0.135, 1.   ],
           [1.   , 0.135]]))
    """
    order, exponent, _ = _kernel_exponent(phi, sigma, kernel)
    return order, np.exp(-exponent)


def smoothed_indicator_rev(phi: Array, sigma: float, kernel: str, A_bar: Array) -> Array:
    """Reverse pass of the smoothed indicator A: the derivative with respect to phi, from A_bar.

    A[j, k] depends on phi_j and on the score phi_s[k] at rank k. The order s is held fixed.

    Parameters
    ----------
    phi : array of shape (n,)
        Scores.
    sigma : float
        Smoothing width.
    kernel : {"gaussian", "laplace"}
        The kernel K.
    A_bar : array of shape (n, n)
        Derivative of the expected gain with respect to A.

    Returns
    -------
    array of shape (n,)
        The derivative phi_bar with respect to phi.
    """
    order, exponent, slope = _kernel_exponent(phi, sigma, kernel)
    t_bar = -A_bar * np.exp(-exponent) * slope
    phi_bar: Array = t_bar.sum(axis=1)
    phi_bar[order] -= t_bar.sum(axis=0)
    phi_bar /= sigma
    return phi_bar


def _kernel_exponent(phi: Array, sigma: float, kernel: str) -> tuple[NDArray[np.intp], Array, Array]:
    """Return three arrays: s, -ln K(t), and the derivative of -ln K(t) with respect to t.

    s (n,) holds the document indices in order of decreasing score phi. The other two arrays are (n, n), with
    t[j, k] = (phi_j - phi_s[k]) / sigma. K(t) is exp(-t^2 / 2) for the kernel "gaussian" and exp(-|t|) for
    "laplace".
    """
    one_of("kernel", kernel, ("gaussian", "laplace"))
    order = np.argsort(-phi.real, kind="stable")
    rank = np.argsort(order)
    with np.errstate(over="ignore", invalid="ignore"):
        t = (phi[:, None] - phi[order][None, :]) / sigma
    # For |t| above 40 (gaussian) or 750 (laplace), K(t) and its derivative are 0 in double precision.
    if kernel == "gaussian":
        t = np.where(np.abs(t.real) > 40, 40, t)
        return order, t * t / 2, t
    above = np.sign(np.arange(len(phi))[None, :] - rank[:, None])
    t = np.where(np.abs(t.real) > 750, 750 * above, t)
    return order, above * t, above


def partitioned_measure(theta: Array, family: str) -> Array:
    """Partitioned measure A[j, k] = F(k/n; theta_j) - F((k-1)/n; theta_j).

    F is a distribution function on (0, 1), which is cut into n equal bins, and A[j, k] is the probability of
    bin k for document j. The family gives F and the meaning of the two parameters theta_j::

        family "logit-logistic":  F(u) = sigmoid((logit(u) - mu) / s)       theta = (mu, log s)
        family "probit":          F(u) = Phi((Phi^-1(u) - mu) / s)          theta = (mu, log s)
        family "beta":            F(u) = I_u(a, b)                          theta = (log a, log b)

    Phi is the standard normal distribution function and I_u(a, b) the regularized incomplete beta function.

    Parameters
    ----------
    theta : array of shape (n, 2)
        Parameters of each document.
    family : {"logit-logistic", "probit", "beta"}
        Family of distributions.

    Returns
    -------
    array of shape (n, n)
        A, with row = document and column = rank.

    Examples
    --------
    >>> partitioned_measure(np.array([[0.0, 0.0], [-1.0, 0.0]]), "logit-logistic").round(3)
    array([[0.5  , 0.5  ],
           [0.731, 0.269]])
    """
    if family == "beta":
        return _masses(*_beta_cdf(theta))
    z = _standardized_edges(theta, family)
    if family == "probit":
        return _normal_masses(z)
    # A bin with the edges y < z has the probability sigmoid(z) - sigmoid(y). It is computed as
    # sigmoid(z) sigmoid(-y) (1 - exp(y - z)), without cancellation. In the first bin y = -inf, in the last
    # bin z = inf, and the factors that contain an infinite edge are 1.
    A = np.ones((len(theta), len(theta)), dtype=z.dtype)
    A[:, :-1] *= _sigmoid(z)
    A[:, 1:] *= _sigmoid(-z)
    A[:, 1:-1] *= -np.expm1(z[:, :-1] - z[:, 1:])
    return A


def partitioned_measure_rev(theta: Array, family: str, A_bar: Array) -> Array:
    """Reverse pass of the partitioned measure A: the derivative with respect to theta, from A_bar.

    Parameters
    ----------
    theta : array of shape (n, 2)
        Parameters of each document.
    family : {"logit-logistic", "probit", "beta"}
        Family of distributions.
    A_bar : array of shape (n, n)
        Derivative of the expected gain with respect to A.

    Returns
    -------
    array of shape (n, 2)
        The derivative theta_bar with respect to theta.
    """
    if family == "beta":
        dA_da, dA_db = _beta_derivatives(theta)
        a, b = np.exp(theta).T
        return np.stack([a * (A_bar * dA_da).sum(axis=1), b * (A_bar * dA_db).sum(axis=1)], axis=1)
    z = _standardized_edges(theta, family)
    # F at an inner edge is added in the bin before the edge and subtracted in the bin after it.
    F_bar = A_bar[:, :-1] - A_bar[:, 1:]
    density = _normal_density(z) if family == "probit" else _sigmoid(z) * _sigmoid(-z)
    z_bar = F_bar * density
    return np.stack([-z_bar.sum(axis=1) / np.exp(theta[:, 1]), -(z_bar * z).sum(axis=1)], axis=1)


def _standardized_edges(theta: Array, family: str) -> Array:
    """Return (Q(k/n) - mu_j) / s_j for each document j and the inner edges k/n of the bins, as (n, n - 1).

    Q is logit for the family "logit-logistic". For "probit" it is Phi^-1, the inverse of the standard normal
    distribution function. Row j of theta is (mu_j, log s_j).
    """
    from scipy import special

    one_of("family", family, ("logit-logistic", "probit", "beta"))
    n = len(theta)
    k = np.arange(1, n)
    Q = np.log(k / (n - k)) if family == "logit-logistic" else special.ndtri(k / n)
    mu, log_s = theta[:, :1], theta[:, 1:]
    if (np.abs(log_s.real) > 700).any():
        row = int(np.argmax(np.abs(log_s.real) > 700))
        raise ValueError(
            f"scores: log s must lie between -700 and 700, so that s is a positive number; row {row} has "
            f"{log_s[row, 0].real}. Standardize the features, or start the scorer nearer to 0."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        z = (Q[None, :] - mu) * np.exp(-log_s)
    # For larger |z| the smaller tail is 0 in double precision, and so is the density.
    limit = 800 if family == "logit-logistic" else 40
    return np.where(np.abs(z.real) > limit, np.copysign(limit, z.real), z)


def _masses(F: Array, S: Array) -> Array:
    """Return the probability of each bin, as (n, n), from F and S = 1 - F at the n - 1 inner edges.

    F is a distribution function. Bins above the median are differences of S, and other bins are differences
    of F, so that small probabilities in either tail keep their relative accuracy.
    """
    zero, one = np.zeros((len(F), 1)), np.ones((len(F), 1))
    F, S = np.hstack([zero, F, one]), np.hstack([one, S, zero])
    return np.where(F[:, :-1].real > 0.5, S[:, :-1] - S[:, 1:], F[:, 1:] - F[:, :-1])


def _sigmoid(z: Array) -> Array:
    e = np.exp(-np.where(z.real > 0, z, -z))
    sigmoid: Array = np.where(z.real > 0, 1, e) / (1 + e)
    return sigmoid


def _normal_masses(z: Array) -> Array:
    """Return the standard normal probability of each bin, as (n, n).

    Row j of z (n, n - 1) holds the edges between the n bins; the first and the last bin are unbounded.
    """
    A = _masses(_normal_cdf(z), _normal_cdf(-z))
    # In a narrow bin, a difference of two values of Phi loses digits. There, Gauss-Legendre quadrature of
    # the density is exact to rounding.
    mid, half = (z[:, 1:] + z[:, :-1]) / 2, (z[:, 1:] - z[:, :-1]) / 2
    nodes, weights = np.polynomial.legendre.leggauss(16)
    x = mid[..., None] + half[..., None] * nodes
    narrow = half.real * (1 + np.abs(mid.real)) < 0.5
    A[:, 1:-1] = np.where(narrow, half * (_normal_density(x) @ weights), A[:, 1:-1])
    return A


def _normal_density(z: Array) -> Array:
    density: Array = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    return density


def _normal_cdf(z: Array) -> Array:
    from scipy import special

    Phi: Array = special.erfc(-z / np.sqrt(2)) / 2
    return Phi


def _beta_cdf(theta: Array) -> tuple[Floats, Floats]:
    """Return I_u(a, b) and 1 - I_u(a, b) = I_(1-u)(b, a) at the inner edges u = k/n, each as (n, n - 1).

    I is the regularized incomplete beta function. Row j of theta holds the log a and log b of document j.
    """
    from scipy import special

    if np.iscomplexobj(theta):
        raise TypeError(
            "scores: the beta distribution takes real scores only; got complex ones. It has no complex step; "
            "use expected_gain for the derivative."
        )
    n = len(theta)
    k = np.arange(1, n)
    a, b = np.exp(theta[:, :1]), np.exp(theta[:, 1:])
    return special.betainc(a, b, k / n), special.betainc(b, a, (n - k) / n)


def _beta_derivatives(theta: Array) -> tuple[Floats, Floats]:
    """Derivatives dA/da and dA/db, each (n, n), by quadrature: within 1e-11 for a and b from 0.05 to 500.

    A[j, k] is the probability of bin k under the beta distribution of document j, with parameters a and b.
    Let pi(u) be its density. dA[j, k]/da is the integral over bin k of pi(u) (ln u - E[ln u]), where
    E[ln u] = psi(a) - psi(a + b) and psi is the digamma function. dA/db is the same with 1 - u for u, and
    with a and b exchanged. The variable of integration is x = logit(u), in which the integrand is smooth and
    falls off exponentially. The inner bins use Gauss-Legendre nodes. The two outer bins, which are unbounded
    in x, use the double-exponential rule: x = x_1 - y or x_(n-1) + y, where y = exp(t - exp(-t)) and
    x_1, ..., x_(n-1) are the inner edges.
    """
    from scipy import special

    n = len(theta)
    dA_da, dA_db = np.zeros((n, n)), np.zeros((n, n))
    if n == 1:  # one bin holds all the mass
        return dA_da, dA_db
    k = np.arange(1, n)
    edges = np.log(k / (n - k))
    nodes, weights = np.polynomial.legendre.leggauss(100)
    half = np.diff(edges)[:, None] / 2
    inner_x, inner_w = edges[:-1, None] + half * (1 + nodes), half * weights
    for j, (a, b) in enumerate(np.exp(theta)):
        first_y, first_w = _half_line(a)
        last_y, last_w = _half_line(b)
        x = [edges[0] - first_y, *inner_x, edges[-1] + last_y]
        w = [first_w, *inner_w, last_w]
        ln_B = special.betaln(a, b)
        mean_ln_u, mean_ln_v = special.psi([a, b]) - special.psi(a + b)
        for bin_k in range(n):
            ln_u, ln_v = -np.logaddexp(0, -x[bin_k]), -np.logaddexp(0, x[bin_k])
            mass = w[bin_k] * np.exp(a * ln_u + b * ln_v - ln_B)
            dA_da[j, bin_k] = mass @ (ln_u - mean_ln_u)
            dA_db[j, bin_k] = mass @ (ln_v - mean_ln_v)
    return dA_da, dA_db


def _half_line(decay: float) -> tuple[Floats, Floats]:
    """Nodes and weights of quadrature over y in (0, inf), for a function that falls off as exp(-decay y)."""
    t, h = np.linspace(-3.7, np.log(50 + 50 / decay), 700, retstep=True)
    y = np.exp(t - np.exp(-t))
    return y, h * y * (1 + np.exp(-t))


def _family(relaxation: Relaxation) -> str:
    if not isinstance(relaxation, PartitionedMeasure):
        raise TypeError(
            f"relaxation must be a SmoothedIndicator or a PartitionedMeasure; got {relaxation!r}. Build one, "
            "such as SmoothedIndicator(sigma=1.0)."
        )
    return relaxation.family


def _scale(relaxation: Relaxation) -> float:
    sigma = getattr(relaxation, "sigma", None)
    assert sigma is not None
    return float(sigma)


def _one_query(scores: ArrayLike, labels: ArrayLike, relaxation: Relaxation) -> tuple[Array, Floats]:
    phi, r = np.asarray(scores), np.asarray(labels, dtype=np.float64)
    phi = phi.astype(np.result_type(phi.dtype, np.float64))
    one_a_document = relaxation.width == 1
    if phi.ndim != (1 if one_a_document else 2) or phi.shape[1:] not in ((), (relaxation.width,)):
        wanted = "(n,)" if one_a_document else f"(n, {relaxation.width})"
        raise ValueError(f"scores: {relaxation} takes the shape {wanted}; got the shape {phi.shape}.")
    if r.shape[:1] != phi.shape[:1] or r.ndim > 2 or not len(r):
        raise ValueError(
            "labels: expected one value for each document of a query that has at least one; got the shape "
            f"{r.shape} for scores of the shape {phi.shape}."
        )
    if not np.isfinite(phi).all():
        row = int(np.argwhere(~np.isfinite(phi))[0, 0])
        raise ValueError(f"scores: expected finite numbers; row {row} has {phi[row].tolist()}.")
    return phi, r
