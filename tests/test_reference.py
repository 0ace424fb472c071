"""The reference against arithmetic a reader can check, complex steps, multiprecision, torch and its laws."""

import re
from math import erf, exp, log, log2

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from problems import GAINS, PROBLEMS, Problem, gain_name
from scipy import special

from sinkprop.objective.gains import NDCG, Gain, RankLinear
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator
from sinkprop.reference import (
    column_normalize,
    column_normalize_rev,
    expected_gain,
    expected_value,
    gain_matrix,
    hard_gain,
    partitioned_measure,
    partitioned_measure_rev,
    pre_sinkhorn,
    row_normalize,
    row_normalize_rev,
    sinkhorn,
    sinkhorn_rev,
    smoothed_indicator,
)

# relative to the largest entry of the gradient, over the gains compared
TOLERANCE = {"complex step": 1e-12, "multiprecision": 1e-11, "torch": 1e-11}

RELAXATIONS = ["gaussian", "laplace", "logit-logistic", "probit", "beta"]
ANALYTIC = RELAXATIONS[:-1]


BY_NAME = {problem.name: problem for problem in PROBLEMS}


def posed(problem: Problem, kind: str) -> tuple[np.ndarray, Relaxation]:
    """The problem's scores for a kind of relaxation, and the relaxation."""
    if kind in ("gaussian", "laplace"):
        return problem.scores, SmoothedIndicator(problem.sigma, kind)
    return problem.beta_theta if kind == "beta" else problem.theta, PartitionedMeasure(kind)


def complex_step(f, x: np.ndarray, h: float = 1e-30) -> np.ndarray:
    """df/dx, of the shape of f(x) followed by that of x."""
    columns = []
    for i in np.ndindex(x.shape):
        z = x.astype(complex)
        z[i] += 1j * h
        columns.append(np.imag(f(z)) / h)
    return np.moveaxis(columns, 0, -1).reshape(*np.shape(columns[0]), *x.shape)


def assert_close(actual: np.ndarray, desired: np.ndarray, tolerance: float, rounding: float = 0) -> None:
    np.testing.assert_allclose(actual, desired, rtol=0, atol=tolerance * np.abs(desired).max() + rounding)


def test_ndcg_of_a_ranking() -> None:
    labels = [3, 1, 0, 2]
    dcg = 7 * 1 + 1 * 1 + 0 / log2(3) + 3 / log2(4)
    ideal = 7 * 1 + 3 * 1 + 1 / log2(3) + 0 / log2(4)
    assert hard_gain([0, 1, 2, 3], labels, "ndcg") == pytest.approx(dcg / ideal, rel=1e-15)
    assert hard_gain([0, 3, 1, 2], labels, "ndcg") == pytest.approx(1, rel=1e-15)


def test_ndcg_with_cutoff_log2_discount_and_linear_gain() -> None:
    gain = NDCG(2, discount="log2", gain="linear")
    dcg = 1 / log2(2) + 3 / log2(3)
    ideal = 3 / log2(2) + 2 / log2(3)
    assert hard_gain([1, 0, 3, 2], [3, 1, 0, 2], gain) == pytest.approx(dcg / ideal, rel=1e-15)


def test_precision_of_a_ranking() -> None:
    assert hard_gain([0, 1, 2, 3], [3, 0, 1, 2], "p@3") == pytest.approx((1 + 0 + 1) / 3)
    assert hard_gain([0, 1, 2, 3], [3, 0, 1, 2], "p(threshold=2)@3") == pytest.approx((1 + 0 + 0) / 3)
    assert hard_gain([0, 1], [1, 1], "p@5") == pytest.approx((1 + 1) / 5)


def test_rank_biased_precision_of_a_ranking() -> None:
    assert hard_gain([2, 0, 1], [0, 2, 1], "rbp@0.5") == pytest.approx(0.5 * (1 + 0 * 0.5 + 2 * 0.25))


def test_a_table_of_a_ranking() -> None:
    gain = RankLinear(table=lambda r, k: r / (r + k))
    assert hard_gain([1, 0], [3, 2], gain) == pytest.approx(2 / (2 + 1) + 3 / (3 + 2))


def test_a_query_without_a_relevant_document_is_worth_zero() -> None:
    value, gradient = expected_gain([1.0, 0.0], [0, 0], "ndcg", SmoothedIndicator())
    assert value == 0
    np.testing.assert_array_equal(gradient, [0, 0])


def test_gaussian_smoothed_indicator() -> None:
    order, A = smoothed_indicator(np.array([1.0, 3.0, 2.0]), 2.0, "gaussian")
    half, one = exp(-((1 / 2) ** 2) / 2), exp(-((2 / 2) ** 2) / 2)
    np.testing.assert_array_equal(order, [1, 2, 0])
    np.testing.assert_allclose(A, [[one, half, 1], [1, half, one], [half, 1, half]], rtol=1e-15)


def test_laplace_smoothed_indicator() -> None:
    order, A = smoothed_indicator(np.array([1.0, 3.0, 2.0]), 2.0, "laplace")
    half, one = exp(-1 / 2), exp(-2 / 2)
    np.testing.assert_array_equal(order, [1, 2, 0])
    np.testing.assert_allclose(A, [[one, half, 1], [1, half, one], [half, 1, half]], rtol=1e-15)


def test_ties_keep_the_input_order() -> None:
    order, _ = smoothed_indicator(np.array([0.0, 1.0, 0.0, 1.0]), 1.0, "laplace")
    np.testing.assert_array_equal(order, [1, 3, 0, 2])


def test_logit_logistic_partition() -> None:
    A = partitioned_measure(np.array([[log(2), 0.0], [0.0, log(2)], [0.0, 0.0]]), "logit-logistic")
    # logit(1/3) = -ln 2, logit(2/3) = ln 2; sigmoid(ln x) = x / (1 + x)
    shifted = [(1 / 4) / (1 + 1 / 4), 1 / (1 + 1)]
    widened = [2**-0.5 / (1 + 2**-0.5), 2**0.5 / (1 + 2**0.5)]
    rows = [np.diff([0, *edges, 1]) for edges in (shifted, widened, [1 / 3, 2 / 3])]
    np.testing.assert_allclose(A, rows, rtol=1e-14)


def test_probit_partition() -> None:
    A = partitioned_measure(np.array([[0.5, 0.0], [-1.0, log(2)]]), "probit")
    F = [(1 + erf(-0.5 / 2**0.5)) / 2, (1 + erf(0.5 / 2**0.5)) / 2]  # Phi(-1/2) and Phi(1/2)
    np.testing.assert_allclose(A, [[F[0], 1 - F[0]], [F[1], 1 - F[1]]], rtol=1e-14)


def test_beta_partition() -> None:
    # I_u(2, 1) = u^2, I_u(1, 2) = 1 - (1 - u)^2, I_u(1, 1) = u, I_u(1/2, 1) = sqrt(u)
    theta = np.log([[2, 1], [1, 2], [1, 1], [0.5, 1]])
    u = np.array([0, 1, 2, 3, 4]) / 4
    expected = np.diff([u**2, 1 - (1 - u) ** 2, u, u**0.5], axis=1)
    np.testing.assert_allclose(partitioned_measure(theta, "beta"), expected, rtol=1e-13)


def test_tails_keep_their_relative_accuracy() -> None:
    A = partitioned_measure(np.array([[-60.0, 0.0], [60.0, 0.0]]), "logit-logistic")
    np.testing.assert_allclose(A[0, 1], exp(-60), rtol=1e-12)
    np.testing.assert_allclose(A[1, 0], exp(-60), rtol=1e-12)
    A = partitioned_measure(np.array([[-9.0, 0.0], [9.0, 0.0]]), "probit")
    np.testing.assert_allclose([A[0, 1], A[1, 0]], float(mpmath.ncdf(-9)), rtol=1e-12)
    A = partitioned_measure(np.tile([0.0, log(1e9)], (4, 1)), "probit")  # Phi(x / s) - Phi(y / s), s huge
    np.testing.assert_allclose(A[0, 2], special.ndtri(3 / 4) / 1e9 / (2 * np.pi) ** 0.5, rtol=1e-13)
    A = partitioned_measure(np.log([[1.0, 50.0], [50.0, 1.0]]), "beta")
    np.testing.assert_allclose([A[0, 1], A[1, 0]], 0.5**50, rtol=1e-12)


def test_one_iteration_normalizes_columns_then_rows() -> None:
    A = np.array([[3.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(column_normalize(A), [[3 / 4, 1 / 2], [1 / 4, 1 / 2]], rtol=1e-15)
    np.testing.assert_allclose(row_normalize(A), [[3 / 4, 1 / 4], [1 / 2, 1 / 2]], rtol=1e-15)
    # rows of [[3/4, 1/2], [1/4, 1/2]] sum to 5/4 and 3/4
    np.testing.assert_allclose(sinkhorn(A, 1), [[3 / 5, 2 / 5], [1 / 3, 2 / 3]], rtol=1e-15)
    np.testing.assert_array_equal(sinkhorn(A, 0), A)
    np.testing.assert_allclose(sinkhorn(A, 0.5), [[3 / 4, 1 / 2], [1 / 4, 1 / 2]], rtol=1e-15)


@pytest.mark.parametrize("n_iter", [1, 5])
def test_two_documents_in_closed_form(n_iter: int) -> None:
    # A = [[1, q], [q, 1]] + epsilon is made doubly stochastic by one division, by 1 + q + 2 epsilon.
    d, epsilon = 0.7, 1e-3
    q = exp(-(d**2) / 2)
    value, gradient = expected_gain(
        [d, 0], [1, 0], "p@1", SmoothedIndicator(), n_iter=n_iter, epsilon=epsilon
    )
    total = 1 + q + 2 * epsilon
    assert value == pytest.approx((1 + epsilon) / total, rel=1e-14)
    slope = (1 + epsilon) * d * q / total**2
    np.testing.assert_allclose(gradient, [slope, -slope], rtol=1e-13)


def test_laplace_parts_a_tie_that_gaussian_leaves() -> None:
    # One-sided: q = exp(-d) at d = 0 for the document that comes first in the order.
    _, gradient = expected_gain([0, 0], [0, 1], "p@1", SmoothedIndicator(1, "laplace"), epsilon=0)
    np.testing.assert_allclose(gradient, [-1 / (1 + 1) ** 2, 1 / (1 + 1) ** 2], rtol=1e-14)
    _, gradient = expected_gain([0, 0], [0, 1], "p@1", SmoothedIndicator(), epsilon=0)
    np.testing.assert_array_equal(gradient, [0, 0])


@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 1.5, 2, 5, 5.5])
@pytest.mark.parametrize("kind", ANALYTIC)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gradient_by_complex_step(problem: Problem, kind: str, n_iter: int) -> None:
    scores, relaxation = posed(problem, kind)
    weights = np.stack([gain_matrix(problem.labels, gain) for gain in GAINS])

    def values(z: np.ndarray) -> np.ndarray:
        Pi = sinkhorn(pre_sinkhorn(z, relaxation) + 1e-6, n_iter)
        return (Pi * weights).sum(axis=(1, 2))

    results = [expected_gain(scores, problem.labels, gain, relaxation, n_iter=n_iter) for gain in GAINS]
    np.testing.assert_allclose([value for value, _ in results], values(scores), rtol=1e-14, atol=1e-14)
    # Where all gradients cancel, as when the labels are equal, what is left is the rounding of their terms.
    width = problem.sigma if relaxation.width == 1 else np.exp(problem.theta[:, 1]).min()
    gradients = np.stack([gradient for _, gradient in results])
    assert_close(gradients, complex_step(values, scores), TOLERANCE["complex step"], rounding=1e-15 / width)


@pytest.mark.parametrize("kind", ANALYTIC)
@pytest.mark.parametrize("gain", GAINS, ids=gain_name)
def test_expected_value_takes_a_complex_step(gain: Gain, kind: str) -> None:
    problem = BY_NAME["some tied"]
    scores, relaxation = posed(problem, kind)
    value, gradient = expected_gain(scores, problem.labels, gain, relaxation)
    expected = complex_step(lambda z: expected_value(z, problem.labels, gain, relaxation), scores)
    assert expected_value(scores, problem.labels, gain, relaxation) == value
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", RELAXATIONS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_problem_has_a_finite_result(problem: Problem, kind: str) -> None:
    scores, relaxation = posed(problem, kind)
    for gain in GAINS:
        value, gradient = expected_gain(scores, problem.labels, gain, relaxation)
        assert np.isfinite(value)
        assert gradient.shape == scores.shape
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("forward", "reverse"), [(row_normalize, row_normalize_rev), (column_normalize, column_normalize_rev)]
)
def test_normalization_rev(forward, reverse) -> None:
    rng = np.random.default_rng(0)
    A, Y_bar = rng.random((4, 4)), rng.normal(size=(4, 4))
    expected = complex_step(lambda Z: (forward(Z) * Y_bar).sum(), A)
    assert_close(reverse(A, Y_bar), expected, TOLERANCE["complex step"])


@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 1.5, 2, 5, 5.5])
def test_sinkhorn_rev(n_iter: int) -> None:
    rng = np.random.default_rng(int(2 * n_iter))
    A, Pi_bar = rng.random((5, 5)), rng.normal(size=(5, 5))
    expected = complex_step(lambda Z: (sinkhorn(Z, n_iter) * Pi_bar).sum(), A)
    assert_close(sinkhorn_rev(A, n_iter, Pi_bar), expected, TOLERANCE["complex step"])


def beta_mass(log_a: mpmath.mpf, log_b: mpmath.mpf, k: int, n: int) -> mpmath.mpf:
    """I_(k/n)(a, b) - I_((k-1)/n)(a, b) in multiprecision."""
    edges = mpmath.mpf(k - 1) / n, mpmath.mpf(k) / n
    return mpmath.betainc(mpmath.exp(log_a), mpmath.exp(log_b), *edges, regularized=True)


@pytest.mark.parametrize("a", [0.05, 1.0, 20.0, 500.0])
@pytest.mark.parametrize("b", [0.05, 3.0, 500.0])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (3, 3), (20, 7)])
def test_beta_against_multiprecision(a: float, b: float, n: int, k: int) -> None:
    theta = np.tile(np.log([a, b]), (n, 1))
    A_bar = np.zeros((n, n))
    A_bar[0, k - 1] = 1
    with mpmath.workdps(60):  # differences of F lose digits in the tails
        log_a, log_b = map(mpmath.mpf, theta[0].tolist())
        mass = float(beta_mass(log_a, log_b, k, n))
        slopes = [
            float(mpmath.diff(lambda x: beta_mass(x, log_b, k, n), log_a)),
            float(mpmath.diff(lambda x: beta_mass(log_a, x, k, n), log_b)),
        ]
    assert partitioned_measure(theta, "beta")[0, k - 1] == pytest.approx(mass, rel=1e-11, abs=1e-40)
    np.testing.assert_allclose(partitioned_measure_rev(theta, "beta", A_bar)[0], slopes, rtol=0, atol=1e-11)


def test_beta_gradient_against_multiprecision() -> None:
    theta = np.log([[0.7, 2.0], [3.0, 1.2], [40.0, 9.0]])
    labels, n_iter, epsilon = [1, 2, 0], 3, 1e-6
    weights = gain_matrix(labels, "ndcg")

    def value(flat: list) -> mpmath.mpf:
        A = [[beta_mass(flat[2 * j], flat[2 * j + 1], k, 3) + epsilon for k in (1, 2, 3)] for j in range(3)]
        for _ in range(n_iter):
            columns = [mpmath.fsum(column) for column in zip(*A, strict=True)]
            A = [[x / c for x, c in zip(row, columns, strict=True)] for row in A]
            A = [[x / mpmath.fsum(row) for x in row] for row in A]
        return mpmath.fsum(A[j][k] * weights[j, k] for j in range(3) for k in range(3))

    with mpmath.workdps(30):
        point = [mpmath.mpf(x) for x in theta.ravel().tolist()]
        expected = float(value(point))
        slopes = [
            float(mpmath.diff(lambda x, i=i: value([*point[:i], x, *point[i + 1 :]]), point[i]))
            for i in range(6)
        ]
    relaxation = PartitionedMeasure("beta")
    v, gradient = expected_gain(theta, labels, "ndcg", relaxation, n_iter=n_iter, epsilon=epsilon)
    assert v == pytest.approx(expected, rel=1e-13)
    assert_close(gradient, np.reshape(slopes, (3, 2)), TOLERANCE["multiprecision"])


@pytest.mark.parametrize("kind", ANALYTIC)
def test_gradient_by_torch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    problem = BY_NAME["forty documents"]
    scores, relaxation = posed(problem, kind)
    n = len(scores)
    x = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    if kind in ("gaussian", "laplace"):
        t = (x[:, None] - torch.sort(x, descending=True).values[None, :]) / problem.sigma
        A = torch.exp(-t.square() / 2) if kind == "gaussian" else torch.exp(-t.abs())
    else:
        u = torch.arange(1, n, dtype=torch.float64) / n
        quantile, cdf = (
            (torch.logit, torch.sigmoid)
            if kind == "logit-logistic"
            else (torch.special.ndtri, torch.special.ndtr)
        )
        F = cdf((quantile(u)[None, :] - x[:, :1]) / x[:, 1:].exp())
        edges = torch.zeros(n, 1, dtype=torch.float64), torch.ones(n, 1, dtype=torch.float64)
        A = torch.diff(torch.cat([edges[0], F, edges[1]], dim=1))
    A = A + 1e-6
    for _ in range(5):
        A = A / A.sum(dim=0, keepdim=True)
        A = A / A.sum(dim=1, keepdim=True)
    G = 2.0 ** torch.tensor(problem.labels) - 1
    D = 1 / torch.log2(torch.arange(1, n + 1, dtype=torch.float64).clamp(min=2))
    D[10:] = 0
    expected = (A * torch.outer(G, D)).sum() / (torch.sort(G, descending=True).values * D).sum()
    expected.backward()
    value, gradient = expected_gain(scores, problem.labels, "ndcg@10", relaxation)
    assert value == pytest.approx(expected.item(), rel=1e-12)
    assert_close(gradient, x.grad.numpy(), TOLERANCE["torch"])


positive_matrices = st.integers(1, 7).flatmap(
    lambda n: arrays(np.float64, (n, n), elements=st.floats(0.1, 1))
)
# multiples of 1/8, so that shifts are exact
score_lists = st.lists(st.integers(-40, 40), min_size=1, max_size=9).map(lambda s: np.array(s) / 8)
distinct_scores = st.lists(st.integers(-40, 40), min_size=1, max_size=9, unique=True).map(
    lambda s: np.array(s) / 8
)
kernels = st.sampled_from(["gaussian", "laplace"])
gains = st.sampled_from(GAINS)


def labels_for(scores: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, size=len(scores)).astype(float)


@given(positive_matrices, st.integers(1, 8))
def test_rows_sum_to_one_after_every_iteration(A: np.ndarray, n_iter: int) -> None:
    np.testing.assert_allclose(sinkhorn(A, n_iter).sum(axis=1), 1, rtol=1e-13)


@given(positive_matrices)
def test_columns_sum_to_one_in_the_limit(A: np.ndarray) -> None:
    np.testing.assert_allclose(sinkhorn(A, 300).sum(axis=0), 1, rtol=1e-9)


@given(score_lists, kernels, st.randoms())
def test_permuting_documents_permutes_rows(scores: np.ndarray, kernel: str, random) -> None:
    p = random.sample(range(len(scores)), len(scores))
    relaxation = SmoothedIndicator(0.5, kernel)
    Pi, permuted = (sinkhorn(pre_sinkhorn(phi, relaxation) + 1e-6, 5) for phi in (scores, scores[p]))
    np.testing.assert_allclose(permuted, Pi[p], rtol=1e-12)


@given(distinct_scores, kernels, gains, st.integers(0, 99), st.randoms())
def test_permuting_documents_permutes_the_gradient(scores, kernel, gain, seed, random) -> None:
    p = random.sample(range(len(scores)), len(scores))
    labels, relaxation = labels_for(scores, seed), SmoothedIndicator(0.5, kernel)
    value, gradient = expected_gain(scores, labels, gain, relaxation)
    permuted_value, permuted = expected_gain(scores[p], labels[p], gain, relaxation)
    assert permuted_value == pytest.approx(value, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(permuted, gradient[p], rtol=1e-10, atol=1e-12)


@given(score_lists, kernels, gains, st.integers(0, 99), st.integers(-1000, 1000))
def test_shifting_all_scores_changes_nothing(scores, kernel, gain, seed, shift) -> None:
    labels, relaxation = labels_for(scores, seed), SmoothedIndicator(0.5, kernel)
    value, gradient = expected_gain(scores, labels, gain, relaxation)
    shifted_value, shifted = expected_gain(scores + shift, labels, gain, relaxation)
    assert shifted_value == value
    np.testing.assert_array_equal(shifted, gradient)
    assert abs(gradient.sum()) < 1e-12 * max(1, np.abs(gradient).max())


@given(distinct_scores, kernels, gains, st.integers(0, 99))
def test_small_sigma_gives_the_hard_metric(scores, kernel, gain, seed) -> None:
    # Scores are at least 1/8 apart, 40 times sigma.
    labels = labels_for(scores, seed)
    value, gradient = expected_gain(scores, labels, gain, SmoothedIndicator(1 / 320, kernel), epsilon=0)
    assert value == pytest.approx(hard_gain(np.argsort(-scores), labels, gain), abs=1e-12)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)


@given(st.permutations(range(6)), gains, st.integers(0, 99))
def test_a_permutation_matrix_gives_the_metric(order, gain, seed) -> None:
    labels = np.random.default_rng(seed).integers(0, 4, size=6)
    Pi = np.zeros((6, 6))
    Pi[order, np.arange(6)] = 1
    assert (Pi * gain_matrix(labels, gain)).sum() == pytest.approx(hard_gain(order, labels, gain), rel=1e-14)


@given(st.permutations(range(6)), st.integers(0, 99))
def test_no_ranking_beats_the_ideal(order, seed) -> None:
    labels = np.random.default_rng(seed).integers(0, 4, size=6)
    for gain in (NDCG(), NDCG(3, discount="log2")):
        assert 0 <= hard_gain(order, labels, gain) <= 1 + 1e-15
        best = hard_gain(np.argsort(-labels), labels, gain)
        assert best == pytest.approx(1 if labels.any() else 0, rel=1e-14)


@pytest.mark.parametrize("kind", ["logit-logistic", "probit", "beta"])
def test_masses_of_a_partition_sum_to_one(kind: str) -> None:
    for problem in PROBLEMS:
        A = pre_sinkhorn(*posed(problem, kind))
        assert (A >= 0).all()
        np.testing.assert_allclose(A.sum(axis=1), 1, rtol=1e-13)


@pytest.mark.parametrize(
    ("scores", "labels", "relaxation", "message"),
    [
        ([[0.0, 1.0]], [1], SmoothedIndicator(), "takes the shape (n,); got the shape (1, 2)."),
        ([0.0], [1], PartitionedMeasure(), "takes the shape (n, 2); got the shape (1,)."),
        ([0.0, 1.0], [1], SmoothedIndicator(), "got the shape (1,) for scores of the shape (2,)."),
        (
            [],
            [],
            SmoothedIndicator(),
            "labels: expected one value for each document of a query that has at least one",
        ),
        ([0.0, np.nan], [1, 0], SmoothedIndicator(), "scores: expected finite numbers; row 1 has nan."),
        ([[0.0, 0.0], [0, 800]], [1, 0], PartitionedMeasure(), "log s must lie between -700 and 700"),
        ([0.0, 1.0], [1, -1], SmoothedIndicator(), "labels[1] = -1.0: ndcg cannot take it."),
    ],
)
def test_bad_input_is_explained(scores, labels, relaxation, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        expected_gain(scores, labels, "ndcg", relaxation)


def test_a_column_without_mass_needs_epsilon() -> None:
    theta = [[-2000.0, 0.0], [-2000.0, 0.0]]
    with pytest.raises(
        ValueError, match=re.escape("every column must have a sum above 0 to be normalized; column 1")
    ):
        expected_gain(theta, [1, 0], "ndcg", PartitionedMeasure(), epsilon=0)
    assert np.isfinite(expected_gain(theta, [1, 0], "ndcg", PartitionedMeasure())[1]).all()


def test_a_misspelt_kernel_or_family_is_explained() -> None:
    with pytest.raises(ValueError, match="kernel must be 'gaussian' or 'laplace'; got 'gauss'"):
        smoothed_indicator(np.zeros(2), 1.0, "gauss")
    with pytest.raises(
        ValueError, match="family must be 'logit-logistic' or 'probit' or 'beta'; got 'logit'"
    ):
        partitioned_measure(np.zeros((2, 2)), "logit")


def test_beta_has_no_complex_step() -> None:
    with pytest.raises(TypeError, match="the beta distribution takes real scores only"):
        expected_value([[0j, 0j]], [1], "ndcg", PartitionedMeasure("beta"))


def test_an_unknown_relaxation_is_explained() -> None:
    class Another(Relaxation):
        width = 1

    with pytest.raises(TypeError, match="relaxation must be a SmoothedIndicator or a PartitionedMeasure"):
        expected_gain([0.0], [1], "ndcg", Another())


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda: SmoothedIndicator(0), ValueError, "sigma must be finite and above 0; got 0.0."),
        (lambda: SmoothedIndicator(np.inf), ValueError, "sigma must be finite and above 0; got inf."),
        (lambda: SmoothedIndicator(np.nan), ValueError, "sigma must be finite and above 0; got nan."),
        (lambda: SmoothedIndicator("1"), TypeError, "sigma must be a number above 0; got '1'."),
        (lambda: SmoothedIndicator(True), TypeError, "sigma must be a number above 0; got True."),
        (
            lambda: SmoothedIndicator(1, "cauchy"),
            ValueError,
            "kernel must be 'gaussian' or 'laplace'; got 'cauchy'.",
        ),
        (
            lambda: SmoothedIndicator(accuracy="good"),
            ValueError,
            "accuracy must be 'fast' or 'exact'; got 'good'.",
        ),
        (
            lambda: PartitionedMeasure("normal"),
            ValueError,
            "family must be 'logit-logistic' or 'probit' or 'beta'; got",
        ),
    ],
)
def test_a_bad_relaxation_is_explained(build, kind, message) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        build()


def test_relaxations_are_values() -> None:
    assert SmoothedIndicator(np.float64(2)) == SmoothedIndicator(2.0, "gaussian", accuracy="fast")
    assert hash(PartitionedMeasure()) == hash(PartitionedMeasure("logit-logistic"))
    assert (SmoothedIndicator().width, PartitionedMeasure().width) == (1, 2)
