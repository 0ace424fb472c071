"""Exposure policies against the linear program over all doubly-stochastic matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog

from sinkprop import exposure_policy, sample_rankings
from sinkprop.policies import ExposureGapAtMost, MaxExposure, MinExposure, ProportionalExposure


def problem(n, n_groups, seed, *, ties=False):
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(n_groups), rng.integers(n_groups, size=n - n_groups)])
    r = rng.beta(1, 2, size=n) * (0.4 + 0.6 * rng.random(n_groups))[groups]
    return np.round(r, 1) + 0.1 if ties else r, groups


def inequalities(constraint, groups, r, total):
    """Rows A and bounds b of A X <= b for the sums X of the exposures of the groups."""
    names = np.unique(groups)
    sizes = np.array([(groups == g).sum() for g in names])
    merits = np.array([r[groups == g].sum() for g in names])
    eye = np.eye(len(names))
    if isinstance(constraint, MinExposure | MaxExposure):
        sign = -1 if isinstance(constraint, MinExposure) else 1
        return sign * eye, sign * np.array([constraint.shares[g] for g in names]) * total
    pairs = [(i, j) for i in range(len(names)) for j in range(len(names)) if i != j]
    if not pairs:
        return np.zeros((1, 1)), 0.0
    if isinstance(constraint, ExposureGapAtMost):
        return np.array([eye[i] / sizes[i] - eye[j] / sizes[j] for i, j in pairs]), constraint.gap
    factor = 1 + constraint.tolerance
    return np.array([eye[i] / merits[i] - factor * eye[j] / merits[j] for i, j in pairs]), 0.0


def by_linear_program(r, groups, constraints, e):
    """Largest sum of relevance times exposure over all doubly-stochastic matrices."""
    n = len(r)
    names = np.unique(groups)
    member = (groups == names[:, None]).astype(float)
    rows, bounds = [], []
    for constraint in constraints:
        A, b = inequalities(constraint, groups, r, e.sum())
        rows.append(np.kron(A @ member, e))
        bounds.append(np.broadcast_to(b, len(A)))
    sums = np.concatenate([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    found = linprog(
        -np.kron(r, e),
        A_ub=np.concatenate(rows),
        b_ub=np.concatenate(bounds),
        A_eq=sums,
        b_eq=np.ones(2 * n),
        method="highs",
    )
    return None if found.status == 2 else -found.fun


def weights(n, k=None):
    e = 1 / np.log2(np.arange(n) + 2.0)
    e[n if k is None else k :] = 0
    return e


KINDS = {
    "minimum": lambda n: [MinExposure(dict.fromkeys(range(n), 0.8 / n))],
    "maximum": lambda n: [MaxExposure(dict.fromkeys(range(n), 1.2 / n))],
    "gap": lambda n: [ExposureGapAtMost(0.02)],
    "no gap": lambda n: [ExposureGapAtMost(0)],
    "merit": lambda n: [ProportionalExposure(0.1)],
    "several": lambda n: [ProportionalExposure(0.6), MinExposure(dict.fromkeys(range(n), 0.5 / n))],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "n_groups"), [(4, 2), (9, 2), (12, 3), (16, 5)])
@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("ties", [False, True])
def test_the_value_is_that_of_the_linear_program(kind, n, n_groups, k, ties):
    solved = 0
    for seed in range(4):
        r, groups = problem(n, n_groups, seed, ties=ties)
        constraints, e = KINDS[kind](n_groups), weights(n, k)
        expected = by_linear_program(r, groups, constraints, e)
        if expected is None:
            with pytest.raises(ValueError, match="no policy has"):
                exposure_policy(r, groups, constraints, k=k)
            continue
        solved += 1
        policy = exposure_policy(r, groups, constraints, k=k)
        assert_allclose(policy.value, expected / (np.sort(r)[::-1] @ e), atol=1e-7)
        assert policy.value <= policy.bound + 1e-9
        assert_allclose(policy.bound, policy.value, atol=1e-7)
        check(policy, r, groups, constraints, e)
    assert solved


def check(policy, r, groups, constraints, e):
    """The record is consistent, and the constraints hold."""
    P = policy.matrix()
    assert_allclose(P.sum(axis=0), 1, atol=1e-9)
    assert P.sum(axis=1).max() <= 1 + 1e-9
    assert P.min() >= 0
    assert_allclose(P @ e[: P.shape[1]], policy.exposure, atol=1e-9)
    assert_allclose(policy.value, r @ policy.exposure / (np.sort(r)[::-1] @ e), atol=1e-9)
    X = np.array([policy.exposure[groups == g].sum() for g in np.unique(groups)])
    for constraint in constraints:
        A, b = inequalities(constraint, groups, r, e.sum())
        assert (A @ X - b).max() <= 1e-6


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 60), st.integers(1, 4), st.integers(0, 10**6), st.floats(0, 0.5))
def test_laws(n, n_groups, seed, gap):
    r, groups = problem(max(n, n_groups), n_groups, seed)
    policy = exposure_policy(r, groups, ExposureGapAtMost(gap))
    check(policy, r, groups, [ExposureGapAtMost(gap)], weights(len(r)))
    assert policy.value <= 1 + 1e-12
    # more freedom is not worse
    assert exposure_policy(r, groups, ExposureGapAtMost(gap + 0.1)).value >= policy.value - 1e-7


def test_a_constraint_that_sorting_satisfies_changes_nothing():
    r, groups = problem(20, 2, 0)
    policy = exposure_policy(r, groups, ExposureGapAtMost(1))
    assert policy.value == pytest.approx(1, abs=1e-12)
    assert_array_equal(policy.mixture.rankings, [np.argsort(-r, kind="stable")])
    assert all(price == 0 for price in policy.duals[0].values())


def test_the_prices_explain_the_rankings():
    r, groups = problem(15, 2, 1)
    policy = exposure_policy(r, groups, MinExposure({0: 0.2, 1: 0.6}))
    bonus = np.array([policy.duals[0][g] for g in groups])
    for ranking in policy.mixture.rankings:
        assert np.diff((r + bonus)[ranking]).max() <= 1e-6
    assert policy.duals[0][1] > 0 == policy.duals[0][0]


def test_two_documents_by_hand():
    # the mean of both orders; without it the gap is 1 - 1/log2(3)
    policy = exposure_policy([1.0, 0.0], ["a", "b"], ExposureGapAtMost(0))
    assert_allclose(policy.mixture.weights, [0.5, 0.5])
    assert_allclose(policy.exposure, (1 + 1 / np.log2(3)) / 2)
    assert policy.value == pytest.approx((1 + 1 / np.log2(3)) / 2)


def test_small_cases():
    one = exposure_policy([0.3], ["only"], ExposureGapAtMost(0))
    assert one.value == 1
    assert one.mixture.rankings.tolist() == [[0]]
    same = exposure_policy(np.ones(6), [0, 0, 0, 1, 1, 1], ExposureGapAtMost(0))
    assert same.value == pytest.approx(1)
    nothing = exposure_policy(np.zeros(4), [0, 0, 1, 1], ExposureGapAtMost(0))
    assert (nothing.value, nothing.bound) == (1, 1)
    # a group without relevance has no merit
    merit = exposure_policy([0.5, 0.4, 0.0], [0, 1, 2], ProportionalExposure(0.05))
    assert_allclose(merit.exposure[0] / 0.5, merit.exposure[1] / 0.4, rtol=0.0501)


def test_overlapping_groups_and_own_weights():
    r = np.array([0.9, 0.8, 0.3, 0.2])
    member = np.array([[1, 0], [1, 0], [0, 1], [1, 1]], dtype=bool)
    e = np.array([1.0, 0.2])
    policy = exposure_policy(r, member, MinExposure({1: 0.5}), discount=e)
    assert policy.exposure[2:].sum() >= 0.5 * e.sum() - 1e-9
    # 0.6 of the exposure of 1.2 goes to document 2: rank 1 with x and rank 2 with 1 - x, x + .2 (1 - x) = .6
    assert_allclose(policy.exposure, [0.5 * 1 + 0.5 * 0.2, 0, 0.5 * 1 + 0.5 * 0.2, 0], atol=1e-9)


def test_it_can_be_drawn_from():
    r, groups = problem(30, 2, 3)
    policy = exposure_policy(r, groups, ExposureGapAtMost(0), k=10)
    drawn = sample_rankings(policy.mixture, 20_000, seed=0)
    assert drawn.rankings.shape == (20_000, 10)
    shown = np.broadcast_to(weights(10) / 20_000, drawn.rankings.shape)
    exposure = np.bincount(drawn.rankings.ravel(), shown.ravel(), 30)
    assert_allclose(exposure, policy.exposure, atol=0.01)


@pytest.mark.parametrize("n_groups", [2, 30])
def test_many_documents(n_groups):
    r, groups = problem(3000, n_groups, 0)
    policy = exposure_policy(r, groups, MaxExposure(1.05 / n_groups))
    check(policy, r, groups, [MaxExposure(dict.fromkeys(range(n_groups), 1.05 / n_groups))], weights(3000))
    assert_allclose(policy.bound, policy.value, atol=1e-6)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"relevance": [0.1, np.nan]}, "relevance.*1"),
        ({"relevance": [0.1, -1.0]}, "relevance.*1"),
        ({"relevance": [[0.1, 0.2]]}, "relevance"),
        ({"relevance": []}, "relevance"),
        ({"groups": ["a"]}, "groups.*2.*1"),
        ({"groups": np.ones((3, 2), dtype=bool)}, "groups.*2.*3"),
        ({"constraint": "fair"}, "constraint"),
        ({"constraint": []}, "constraint"),
        ({"constraint": MinExposure({"c": 0.1})}, "'c'.*'a', 'b'"),
        ({"discount": "log"}, "discount"),
        ({"discount": [1.0, -1.0]}, "discount"),
        ({"discount": [0.0, 0.0]}, "discount"),
        ({"k": 0}, "k must be"),
    ],
)
def test_bad_input_is_named(given_, words):
    call = {"relevance": [0.4, 0.2], "groups": ["a", "b"], "constraint": ExposureGapAtMost(0), **given_}
    with pytest.raises((ValueError, TypeError), match=words):
        exposure_policy(**call)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MinExposure({"a": 1.2}), "MinExposure"),
        (lambda: MaxExposure({"a": -0.1}), "MaxExposure"),
        (lambda: ExposureGapAtMost(-1), "gap"),
        (lambda: ProportionalExposure(tolerance=np.nan), "tolerance"),
    ],
)
def test_limits_are_checked(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_contradictions_are_named():
    r, groups = [0.9, 0.5, 0.4, 0.2], ["a", "a", "b", "b"]
    with pytest.raises(ValueError, match=r"at least 0.6 .*'a' and at least 0.5 .*'b'.*not 1.1"):
        exposure_policy(r, groups, MinExposure({"a": 0.6, "b": 0.5}))
    # two documents of four have at most 1.63 of the exposure of 2.56
    with pytest.raises(ValueError, match=r"no policy has at least 0.7 .*'b'.*at most 0.636"):
        exposure_policy(r, groups, MinExposure({"b": 0.7, "a": 0.1}))
    with pytest.raises(ValueError, match=r"at least 0.6 .*'b' and mean exposures .* at most 0\."):
        exposure_policy(r, groups, [MinExposure({"b": 0.6}), ExposureGapAtMost(0)])
