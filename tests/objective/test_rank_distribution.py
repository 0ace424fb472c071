"""Pi, expected ranks and the probability of the first k against Pi computed densely; the sort they imply."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import PROBLEMS, Problem

from sinkprop import _native, reference
from sinkprop.objective.permutation import choose_permutation
from sinkprop.objective.rank_distribution import doubly_stochastic, expected_ranks, top_k_probability
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator

# of a probability, and of an expected rank relative to the number of documents
TOLERANCE = {
    "fast": 1e-5,
    "exact": 1e-9,
    "laplace": 1e-10,
    "logit-logistic": 1e-9,
    "probit": 1e-9,
    "beta": 1e-9,
    "dense": 1e-12,
}

SMOOTHED = ["fast", "exact", "laplace"]
PARTITIONED = ["logit-logistic", "probit", "beta"]
KINDS = SMOOTHED + PARTITIONED


def relax(kind: str, sigma: float = 1.0) -> Relaxation:
    if kind in PARTITIONED:
        return PartitionedMeasure(kind)
    kernel = "laplace" if kind == "laplace" else "gaussian"
    return SmoothedIndicator(sigma, kernel, accuracy="exact" if kind == "exact" else "fast")


def posed(problem: Problem, kind: str) -> np.ndarray:
    if kind in SMOOTHED:
        return problem.scores
    return problem.beta_theta if kind == "beta" else problem.theta


def dense(scores: np.ndarray, relaxation: Relaxation, n_iter: int = 5, epsilon: float = 1e-6) -> np.ndarray:
    return reference.sinkhorn(reference.pre_sinkhorn(scores, relaxation) + epsilon, n_iter)


def random_scores(kind: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, 2)) if kind in PARTITIONED else rng.normal(size=n)


def assert_close(actual: np.ndarray, desired: np.ndarray, kind: str, size: float = 1.0) -> None:
    assert actual.shape == desired.shape
    np.testing.assert_allclose(actual, desired, rtol=0, atol=TOLERANCE[kind] * size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_named_problems(problem: Problem, kind: str) -> None:
    scores, relaxation = posed(problem, kind), relax(kind, problem.sigma)
    n = len(scores)
    for n_iter in (0.5, 1, 2, 5):
        Pi = dense(scores, relaxation, n_iter)
        assert_close(doubly_stochastic(scores, relaxation=relaxation, n_iter=n_iter), Pi, "dense")
        ranks = np.arange(n, 0, -1)
        some = doubly_stochastic(scores, ranks=ranks, relaxation=relaxation, n_iter=n_iter)
        assert_close(some, Pi[:, ranks - 1], kind)
        expected = expected_ranks(scores, relaxation=relaxation, n_iter=n_iter)
        assert_close(expected, Pi @ np.arange(1, n + 1), kind, n)
        for k in {1, 2, n, n + 3}:
            first = top_k_probability(scores, k, relaxation=relaxation, n_iter=n_iter)
            assert_close(first, Pi[:, :k].sum(axis=1), kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.5])
def test_no_iteration_leaves_the_matrix_as_it_is(epsilon: float, kind: str) -> None:
    scores, relaxation = random_scores(kind, 7), relax(kind)
    A = reference.pre_sinkhorn(scores, relaxation) + epsilon
    setting = {"relaxation": relaxation, "n_iter": 0, "epsilon": epsilon}
    assert_close(doubly_stochastic(scores, **setting), A, "dense")
    assert_close(doubly_stochastic(scores, ranks=range(1, 8), **setting), A, kind)
    assert_close(expected_ranks(scores, **setting), A @ np.arange(1, 8), kind, 7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 10.0])
def test_other_epsilons(epsilon: float, kind: str) -> None:
    scores, relaxation = random_scores(kind, 30), relax(kind, 0.2)
    Pi = dense(scores, relaxation, epsilon=epsilon)
    setting = {"relaxation": relaxation, "epsilon": epsilon}
    assert_close(doubly_stochastic(scores, **setting), Pi, "dense")
    assert_close(doubly_stochastic(scores, ranks=[1, 30], **setting), Pi[:, [0, 29]], kind)
    assert_close(top_k_probability(scores, 4, **setting), Pi[:, :4].sum(axis=1), kind)


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("sigma", [1e-3, 0.02, 0.3, 5.0])
@pytest.mark.parametrize("n", [9, 17, 33, 60, 130, 500])
def test_random_scores(n: int, sigma: float, kind: str) -> None:
    scores, relaxation = random_scores(kind, n), relax(kind, sigma)
    Pi = dense(scores, relaxation)
    ranks = [1, 2, n // 2, n]
    some = doubly_stochastic(scores, ranks=ranks, relaxation=relaxation)
    assert_close(some, Pi[:, np.array(ranks) - 1], kind)
    assert_close(expected_ranks(scores, relaxation=relaxation), Pi @ np.arange(1, n + 1), kind, n)
    assert_close(top_k_probability(scores, 5, relaxation=relaxation), Pi[:, :5].sum(axis=1), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_come_as_asked(kind: str) -> None:
    scores = random_scores(kind, 12)
    Pi = doubly_stochastic(scores, relaxation=relax(kind))
    for ranks in ([3], [12, 1, 1, 7], np.array([5, 4], np.uint8), range(1, 13), 6):
        columns = np.atleast_1d(np.array(ranks)) - 1
        assert_close(doubly_stochastic(scores, ranks=ranks, relaxation=relax(kind)), Pi[:, columns], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_ragged_and_unsorted(kind: str) -> None:
    rng = np.random.default_rng(0)
    codes = rng.permutation(np.repeat(np.arange(7), [1, 2, 40, 9, 25, 3, 60]))
    qid = [f"query {c * 7919 % 101}" for c in codes]
    scores, relaxation = random_scores(kind, len(codes)), relax(kind, 0.2)
    expected = expected_ranks(scores, qid, relaxation=relaxation)
    first = top_k_probability(scores, 3, qid, relaxation=relaxation)
    for q in range(7):
        rows = codes == q
        Pi = dense(scores[rows], relaxation)
        assert_close(expected[rows], Pi @ np.arange(1, len(Pi) + 1), kind, len(Pi))
        assert_close(first[rows], Pi[:, :3].sum(axis=1), kind)
        np.testing.assert_array_equal(expected[rows], expected_ranks(scores[rows], relaxation=relaxation))


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_whatever_the_number_of_threads(kind: str) -> None:
    qid = np.random.default_rng(0).integers(0, 100, size=4500)
    scores, relaxation = random_scores(kind, len(qid)), relax(kind, 0.2)
    one = expected_ranks(scores, qid, relaxation=relaxation, n_threads=1)
    first = top_k_probability(scores, 3, qid, relaxation=relaxation, n_threads=1)
    for n_threads in (2, 3, 8, None):
        again = expected_ranks(scores, qid, relaxation=relaxation, n_threads=n_threads)
        assert again.tobytes() == one.tobytes()
        again = top_k_probability(scores, 3, qid, relaxation=relaxation, n_threads=n_threads)
        assert again.tobytes() == first.tobytes()


def test_two_documents_by_hand() -> None:
    # A = [[1, q], [q, 1]] + epsilon is made doubly stochastic by one division, by 1 + q + 2 epsilon.
    q, epsilon = np.exp(-0.5), 0.25
    upper = (1 + epsilon) / (1 + q + 2 * epsilon)
    setting = {"relaxation": SmoothedIndicator(2.0, "laplace"), "epsilon": epsilon}
    Pi = [[1 - upper, upper], [upper, 1 - upper]]
    np.testing.assert_allclose(doubly_stochastic([3.0, 4.0], **setting), Pi, rtol=1e-14)
    np.testing.assert_allclose(doubly_stochastic([3.0, 4.0], ranks=[2], **setting)[:, 0], [upper, 1 - upper])
    np.testing.assert_allclose(expected_ranks([3.0, 4.0], **setting), [1 + upper, 2 - upper], rtol=1e-14)
    np.testing.assert_allclose(top_k_probability([3.0, 4.0], 1, **setting), [1 - upper, upper], rtol=1e-14)
    np.testing.assert_allclose(top_k_probability([3.0, 4.0], 2, **setting), [1, 1], rtol=1e-14)


@pytest.mark.parametrize("sigma", [1e-5, 1e-4, 0.3])
def test_fast_against_exact_at_a_hundred_thousand(sigma: float) -> None:
    scores = random_scores("fast", 100_000)
    fast, exact = (
        (
            doubly_stochastic(scores, ranks=[1, 5000], relaxation=relax(kind, sigma)),
            expected_ranks(scores, relaxation=relax(kind, sigma)) / len(scores),
            top_k_probability(scores, 1000, relaxation=relax(kind, sigma)),
        )
        for kind in ("fast", "exact")
    )
    for a, b in zip(fast, exact, strict=True):
        assert b.max() > 1e-5
        assert_close(a, b, "fast", b.max())


@pytest.mark.parametrize("kind", SMOOTHED)
def test_a_hundred_thousand_documents_against_the_reference(kind: str) -> None:
    # A hundred clusters of a thousand, too far apart to matter to each other: without epsilon each is a
    # problem of its own, on its own ranks.
    rng = np.random.default_rng(0)
    scores = np.repeat(1e5 * np.arange(100)[::-1], 1000) + rng.random(100_000)
    relaxation, rows = relax(kind, 0.1), slice(37_000, 38_000)
    Pi = dense(scores[rows], relaxation, epsilon=0)
    place = rng.permutation(len(scores))
    column, first, expected = np.empty(100_000), np.empty(100_000), np.empty(100_000)
    setting = {"relaxation": relaxation, "epsilon": 0}
    column[place] = doubly_stochastic(scores[place], ranks=[37_018], **setting)[:, 0]
    first[place] = top_k_probability(scores[place], 37_018, **setting)
    expected[place] = expected_ranks(scores[place], **setting)
    assert_close(column[rows], Pi[:, 17], kind, Pi[:, 17].max())
    assert_close(first[rows], Pi[:, :18].sum(axis=1), kind)
    assert_close(expected[rows], 37_000 + Pi @ np.arange(1, 1001), kind, 1000)
    column[rows] = 0
    np.testing.assert_array_equal(column, 0)
    np.testing.assert_allclose(first[:37_000], 1, atol=TOLERANCE[kind])
    np.testing.assert_allclose(first[38_000:], 0, atol=TOLERANCE[kind])


# ---- Laws

# multiples of 1/8
score_lists = st.lists(st.integers(-60, 60), min_size=1, max_size=40).map(lambda s: np.array(s) / 8)
distinct_scores = st.lists(st.integers(-60, 60), min_size=1, max_size=30, unique=True).map(
    lambda s: np.array(s) / 8
)
sigmas = st.sampled_from([0.05, 0.5, 2.0, 20.0])
iterations = st.integers(1, 8)


@given(score_lists, sigmas, st.sampled_from(SMOOTHED), iterations)
def test_rows_sum_to_one(scores, sigma, kind, n_iter) -> None:
    setting = {"relaxation": relax(kind, sigma), "n_iter": n_iter}
    n = len(scores)
    np.testing.assert_allclose(doubly_stochastic(scores, **setting).sum(axis=1), 1, rtol=1e-12)
    by_column = doubly_stochastic(scores, ranks=np.arange(1, n + 1), **setting)
    assert ((by_column >= 0) & (by_column <= 1)).all()
    assert_close(by_column.sum(axis=1), np.ones(n), kind)
    assert_close(top_k_probability(scores, n, **setting), np.ones(n), kind)


@given(st.integers(1, 12), st.sampled_from(PARTITIONED), st.integers(0, 99), iterations)
def test_rows_of_partitioned_measures_sum_to_one(n, family, seed, n_iter) -> None:
    theta = np.random.default_rng(seed).normal(size=(n, 2))
    setting = {"relaxation": PartitionedMeasure(family), "n_iter": n_iter}
    np.testing.assert_allclose(doubly_stochastic(theta, **setting).sum(axis=1), 1, rtol=1e-12)
    assert_close(top_k_probability(theta, n, **setting), np.ones(n), "dense")


@given(score_lists, sigmas, st.sampled_from(SMOOTHED))
def test_the_better_document_has_the_lower_expected_rank(scores, sigma, kind) -> None:
    # The kernels are totally positive, and stay so when scaled: rows are in likelihood-ratio order.
    expected = expected_ranks(scores, relaxation=relax(kind, sigma), epsilon=0)
    assert (expected >= 1 - TOLERANCE[kind] * len(scores)).all()
    assert (expected <= len(scores) * (1 + TOLERANCE[kind])).all()
    assert (np.diff(expected[np.argsort(-scores, kind="stable")]) >= -TOLERANCE[kind] * len(scores)).all()


@given(distinct_scores, sigmas, st.sampled_from(["gaussian", "laplace"]), st.sampled_from([0.0, 1e-6, 1e-2]))
def test_the_best_assignment_is_the_sort(scores, sigma, kernel, epsilon) -> None:
    Pi = doubly_stochastic(scores, relaxation=SmoothedIndicator(sigma, kernel), epsilon=epsilon)
    by_score = np.argsort(-scores)
    if kernel == "laplace" or sigma < 10:  # else neighbors differ by less than rounding
        np.testing.assert_array_equal(choose_permutation(Pi, "hungarian"), by_score)
    logs = np.log(np.maximum(Pi, 1e-300))
    ranks = np.arange(len(scores))
    best = logs[choose_permutation(Pi, "hungarian"), ranks].sum()
    assert logs[by_score, ranks].sum() == pytest.approx(best, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("n", [2, 10, 60, 150])
def test_the_best_assignment_of_random_scores_is_the_sort(n: int, kernel: str) -> None:
    scores = random_scores("exact", n)
    for sigma in (0.05, 0.3, 1.0):
        Pi = doubly_stochastic(scores, relaxation=SmoothedIndicator(sigma, kernel))
        np.testing.assert_array_equal(choose_permutation(Pi, "hungarian"), np.argsort(-scores))


# ---- Edges and errors


@pytest.mark.parametrize("family", PARTITIONED)
@pytest.mark.parametrize(
    "theta",
    [
        [[1e300, 0.0], [0.0, 0.0], [-1e300, 0.0]],
        [[0.0, 1e3], [0.0, -1e3], [1.0, 0.0]],
        [[1e3, 1e3], [-1e3, -1e3], [1e3, -1e3]],
    ],
)
def test_extreme_parameters_have_finite_marginals(theta: list, family: str) -> None:
    relaxation = PartitionedMeasure(family)
    some = doubly_stochastic(theta, ranks=[1, 2, 3], relaxation=relaxation)
    assert np.isfinite(some).all()
    assert np.isfinite(expected_ranks(theta, relaxation=relaxation)).all()
    assert_close(doubly_stochastic(theta, relaxation=relaxation), some, family)


@pytest.mark.parametrize("kind", SMOOTHED)
def test_extreme_sigma_and_scores_have_finite_marginals(kind: str) -> None:
    for scores in ([1e308, -1e308, 0.0], [1e-310, 0.0, -1e-310], [3.0, 3.0, 3.0], list(range(30))):
        n = len(scores)
        for sigma in (1e-300, 1.0, 1e300):
            Pi = doubly_stochastic(scores, relaxation=relax(kind, sigma))
            some = doubly_stochastic(scores, ranks=np.arange(1, n + 1), relaxation=relax(kind, sigma))
            assert_close(some, Pi, kind)
            assert_close(
                expected_ranks(scores, relaxation=relax(kind, sigma)), Pi @ np.arange(1, n + 1), kind, n
            )


@pytest.mark.parametrize(
    "call",
    [
        lambda scores=(0.1, 0.2), **change: doubly_stochastic(scores, **change),
        lambda scores=(0.1, 0.2), **change: doubly_stochastic(scores, ranks=[1], **change),
        lambda scores=(0.1, 0.2), **change: expected_ranks(scores, **change),
        lambda scores=(0.1, 0.2), **change: top_k_probability(scores, 1, **change),
    ],
    ids=["all columns", "one column", "expected ranks", "first k"],
)
@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"scores": [0.0, np.nan]}, ValueError, r"^scores must be finite; row 1 holds nan"),
        ({"scores": [0.0, np.inf]}, ValueError, r"^scores must be finite; row 1 holds inf"),
        ({"scores": []}, ValueError, r"^scores must hold at least one document"),
        ({"scores": [[0.0, 1.0]]}, ValueError, r"^scores must have the shape \(N,\)"),
        ({"relaxation": PartitionedMeasure()}, ValueError, r"^scores must have the shape \(N, 2\)"),
        ({"relaxation": "gauss"}, ValueError, r"^relaxation must be one of 'gaussian', .*; got 'gauss'"),
        ({"n_iter": -1}, ValueError, r"^n_iter must be a number of iterations, at least 0.*got -1"),
        ({"n_iter": 1.2}, ValueError, r"^n_iter must be .*a whole number plus 0\.5.*got 1.2"),
        ({"epsilon": -1.0}, ValueError, r"^epsilon must be a finite number, not below 0"),
        ({"epsilon": np.nan}, ValueError, r"^epsilon must be a finite number, not below 0"),
    ],
)
def test_bad_input_is_explained(call, change: dict, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(**change)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: top_k_probability([0.1, 0.2], 0), r"^k must be at least 1; got 0"),
        (lambda: top_k_probability([0.1, 0.2], 1.0), r"^k must be a whole number, at least 1; got 1.0"),
        (lambda: top_k_probability([0.1, 0.2], 1, [1]), r"^qid must have one id per row: 2 rows, but 1"),
        (lambda: expected_ranks([0.1, 0.2], [1, 2, 3]), r"^qid must have one id per row: 2 rows, but 3"),
        (lambda: expected_ranks([0.1, 0.2], n_threads=0), r"^n_threads must be at least 1; got 0"),
        (lambda: doubly_stochastic([0.1, 0.2], ranks=[0, 1]), r"^ranks must be from 1 to 2.*got 0"),
        (lambda: doubly_stochastic([0.1, 0.2], ranks=[1, 3]), r"^ranks must be from 1 to 2.*got 3"),
        (lambda: doubly_stochastic([0.1, 0.2], ranks=[1.0]), r"^ranks must be whole numbers from 1 to 2"),
        (lambda: doubly_stochastic([0.1, 0.2], ranks=[[1]]), r"^ranks must be whole numbers from 1 to 2"),
        (lambda: doubly_stochastic([0.1, 0.2], ranks=[]), r"^ranks must be whole numbers from 1 to 2"),
    ],
)
def test_bad_ranks_and_queries_are_explained(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "fault", ["float32", "fortran", "one dimension", "read-only", "too few rows", "too few"]
)
def test_a_wrong_output_array_is_refused(fault: str) -> None:
    # Within a larger array, so that a write past the end does no harm and is seen.
    memory = np.full(100, -7.25, np.float32 if fault == "float32" else np.float64)
    out = {
        "float32": memory[:10].reshape(5, 2),
        "fortran": memory[:10].reshape(2, 5).T,
        "one dimension": memory[:10],
        "read-only": memory[:10].reshape(5, 2),
        "too few rows": memory[:8].reshape(4, 2),
        "too few": memory[:5].reshape(5, 1),
    }[fault]
    out.flags.writeable = fault != "read-only"
    before = memory.copy()
    with pytest.raises(TypeError):
        _native.project(
            np.arange(5.0), np.array([0, 5]), None, np.ones((2, 5)), (0, 1.0, True, 10, 1e-6, 0.0), 1, out
        )
    np.testing.assert_array_equal(memory, before)


def test_masses_that_round_below_zero_count_as_zero() -> None:
    # here the incomplete beta functions of two neighboring bins differ by -2e-310
    theta = np.tile([5.338436523926976, 3.3069531778027157], (180, 1))
    relaxation = PartitionedMeasure("beta")
    assert reference.pre_sinkhorn(theta, relaxation).min() < 0
    Pi = doubly_stochastic(theta, relaxation=relaxation)
    assert (Pi >= 0).all()
    np.testing.assert_allclose(Pi.sum(axis=1), 1, rtol=1e-9)
