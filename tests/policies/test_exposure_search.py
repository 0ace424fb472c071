"""The search behind exposure policies: many groups, its certificate, its parts, and contradictions."""

import re
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog, nnls

from sinkprop.policies import (
    ExposureGapAtMost,
    MaxExposure,
    MinExposure,
    ProportionalExposure,
    exposure_policy,
)
from sinkprop.policies.exposure_search import _decomposed, _projection


def log2_weights(n, k=None):
    return np.where(np.arange(n) < (k or n), 1 / np.log2(np.arange(n) + 2), 0.0)


def membership(groups):
    if isinstance(groups, np.ndarray) and groups.ndim == 2:
        return dict(enumerate(groups.T.astype(float)))
    return {g: np.array([float(g == h) for h in groups]) for g in dict.fromkeys(groups)}


def rows_of(constraint, members, r, e):
    """Inequalities a . E <= b, with a row for each pair of groups."""
    if isinstance(constraint, (MinExposure, MaxExposure)):
        sign = 1 if isinstance(constraint, MaxExposure) else -1
        shares = constraint.shares if isinstance(constraint.shares, dict) else None
        limits = shares or dict.fromkeys(members, constraint.shares)
        return [(sign * members[g], sign * share * e.sum()) for g, share in limits.items()]
    pairs = list(permutations(members.values(), 2))
    if isinstance(constraint, ExposureGapAtMost):
        return [(a / a.sum() - b / b.sum(), constraint.gap) for a, b in pairs]
    factor = 1 + constraint.tolerance
    return [(a / (a @ r) - factor * b / (b @ r), 0.0) for a, b in pairs if a @ r > 0 and b @ r > 0]


def best_value(r, groups, constraints, e):
    """Expected NDCG of the best doubly-stochastic matrix by linear programming, or None."""
    n, members = len(r), membership(groups)
    limits = [row for constraint in constraints for row in rows_of(constraint, members, r, e)]
    eye, ones = sparse.eye_array(n), np.ones((1, n))
    found = linprog(
        -np.outer(r, e).ravel(),
        A_ub=np.array([np.outer(a, e).ravel() for a, _ in limits]).reshape(len(limits), n * n),
        b_ub=[b for _, b in limits],
        A_eq=sparse.vstack([sparse.kron(eye, ones), sparse.kron(ones, eye)]),
        b_eq=np.ones(2 * n),
    )
    assert found.status in (0, 2)
    return -found.fun / (np.sort(r)[::-1] @ np.sort(e)[::-1]) if found.status == 0 else None


def assert_policy(policy, r, groups, constraints, e, k=None):
    """The mixture keeps the constraints, and has the value and exposures that the policy states."""
    n_ranks = min(k or len(r), len(r))
    mixture = policy.mixture
    assert mixture.rankings.shape[1] == n_ranks
    assert all(len(set(ranking)) == n_ranks for ranking in mixture.rankings.tolist())
    assert mixture.weights.min() > 0
    matrix = policy.matrix()
    assert matrix.sum(axis=0) == pytest.approx(np.ones(n_ranks), abs=1e-12)
    assert matrix.sum(axis=1).max() <= 1 + 1e-12
    assert policy.exposure == pytest.approx(matrix @ e[:n_ranks], abs=1e-12)
    members = membership(groups)
    limits = [row for constraint in constraints for row in rows_of(constraint, members, r, e)]
    for a, b in limits:
        assert a @ policy.exposure <= b + 1e-7 * max(1.0, abs(a).max())
    assert len(mixture.weights) <= 1 + 2 * len(constraints) * len(members)
    if r.any():
        ideal = np.sort(r)[::-1] @ np.sort(e)[::-1]
        assert policy.value == pytest.approx(r @ policy.exposure / ideal, abs=1e-12)
        assert policy.value <= 1 + 1e-12
        assert abs(policy.bound - policy.value) <= 1e-7


def text(message):
    return f"^{re.escape(message)}$"


class TestLinearProgram:
    @pytest.mark.parametrize(
        "constraint",
        [
            MaxExposure(0.075),
            MinExposure(0.06),
            ExposureGapAtMost(0.02),
            ExposureGapAtMost(0),
            ProportionalExposure(2),
        ],
    )
    @pytest.mark.parametrize("decimals", [None, 1])
    def test_many_groups(self, constraint, decimals):
        rng = np.random.default_rng(5)
        groups = rng.permutation(np.arange(45) % 15)
        r = rng.beta(2, 3, size=45) * (1 - groups / 30)
        r = r if decimals is None else r.round(decimals)
        e = log2_weights(45)
        policy = exposure_policy(r, groups, constraint)
        assert policy.value == pytest.approx(best_value(r, groups.tolist(), [constraint], e), abs=1e-7)
        assert_policy(policy, r, groups.tolist(), [constraint], e)

    def test_groups_that_overlap(self):
        rng = np.random.default_rng(3)
        groups, r = rng.random((14, 4)) < 0.4, rng.random(14)
        groups[:, 0] = True  # all documents
        groups[0] = [True, False, False, False]
        constraints = [MinExposure({2: 0.31}), ExposureGapAtMost(0.12), MaxExposure({3: 0.555})]
        policy = exposure_policy(r, groups, constraints)
        assert policy.value == pytest.approx(best_value(r, groups, constraints, log2_weights(14)), abs=1e-7)
        assert_policy(policy, r, groups, constraints, log2_weights(14))

    def test_positions_in_any_order(self):
        # The middle of the shelf has the best position, and the last is worth nothing.
        rng = np.random.default_rng(1)
        e, r, groups = np.array([0.5, 2.0, 1.0, 0.0]), rng.random(4), [0, 1, 1, 0]
        policy = exposure_policy(r, groups, ExposureGapAtMost(0.1), discount=e)
        assert policy.value == pytest.approx(best_value(r, groups, [ExposureGapAtMost(0.1)], e), abs=1e-7)
        assert policy.matrix() @ e == pytest.approx(policy.exposure)


class TestDuals:
    def test_a_minimum_at_the_first_rank(self):
        # b is shown in 30 % of the cases; a share of the exposure costs 2 - 0.5 of the relevance.
        policy = exposure_policy([2, 0.5], ["a", "b"], MinExposure({"b": 0.3}), k=1)
        assert policy.matrix() == pytest.approx(np.array([[0.7], [0.3]]))
        assert policy.value == pytest.approx((0.7 * 2 + 0.3 * 0.5) / 2)
        assert policy.duals == ({"b": pytest.approx(1.5)},)

    @pytest.mark.parametrize(
        "constraints",
        [
            [MinExposure({2: 0.33})],
            [MaxExposure({0: 0.35})],
            [ExposureGapAtMost(0.005)],
            [ProportionalExposure(0.4)],
            [ExposureGapAtMost(0.02), MinExposure({2: 0.32})],
        ],
    )
    def test_rankings_sort_by_relevance_plus_bonus(self, constraints):
        rng = np.random.default_rng(0)
        groups = rng.permutation(np.arange(40) % 3)
        r = rng.random(40) * (1 - 0.3 * groups)
        policy = exposure_policy(r, groups, constraints)
        adjusted = r + [sum(bonus.get(g, 0) for bonus in policy.duals) for g in groups.tolist()]
        for ranking in policy.mixture.rankings:  # a gap of 1e-8 determines the prices less exactly
            assert np.diff(adjusted[ranking]).max() <= 1e-4
        assert max(abs(bonus) for one in policy.duals for bonus in one.values()) > 1e-3

    def test_price_of_a_minimum(self):
        rng = np.random.default_rng(0)
        r, groups = rng.random(50), np.arange(50) % 2
        r[1::2] *= 0.5
        values = [exposure_policy(r, groups, MinExposure({1: x})).value for x in (0.4700, 0.4701)]
        bonus = exposure_policy(r, groups, MinExposure({1: 0.47005})).duals[0][1]
        e = log2_weights(50)
        ideal = np.sort(r)[::-1] @ e
        assert (values[0] - values[1]) / 1e-4 == pytest.approx(bonus * e.sum() / ideal, rel=0.02)


class TestAwkward:
    @pytest.mark.parametrize("n_groups", [2, 40])
    def test_equal_relevance(self, n_groups):
        groups = np.arange(200) % n_groups
        constraints = [ExposureGapAtMost(0)]
        policy = exposure_policy(np.ones(200), groups, constraints)
        assert policy.value == pytest.approx(1, abs=1e-12)
        assert_policy(policy, np.ones(200), groups.tolist(), constraints, log2_weights(200))

    def test_more_positions_than_documents(self):
        policy = exposure_policy([1, 2], [0, 1], MaxExposure(0.7), discount=[5.0, 3.0, 1.0], k=9)
        assert policy.exposure.sum() == pytest.approx(8)

    def test_minima_that_need_everything(self):
        shares = dict.fromkeys(range(10), 0.1)
        policy = exposure_policy(np.arange(40) % 7, np.arange(40) % 10, MinExposure(shares))
        parts = np.bincount(np.arange(40) % 10, policy.exposure) / policy.exposure.sum()
        assert parts == pytest.approx(np.full(10, 0.1), abs=1e-7)

    @pytest.mark.parametrize("constraint", [MaxExposure(0.02), MinExposure(0.015), ExposureGapAtMost(0.03)])
    def test_many_suppliers(self, constraint):
        rng = np.random.default_rng(0)
        groups = rng.permutation(np.arange(400) % 60)
        r = rng.beta(1, 3, size=400) * (0.5 + 0.5 * rng.random(60)[groups])
        policy = exposure_policy(r, groups, constraint)
        assert policy.value < 0.9999
        assert_policy(policy, r, groups.tolist(), [constraint], log2_weights(400))

    def test_a_hundred_thousand_documents(self):
        rng = np.random.default_rng(0)
        groups = (rng.random(100_000) < 0.3).astype(int)
        r = rng.random(100_000) * (1 - 0.5 * groups)
        policy = exposure_policy(r, groups, MinExposure({1: 0.29}), k=50)
        assert abs(policy.bound - policy.value) <= 1e-7
        assert policy.exposure[groups == 1].sum() == pytest.approx(0.29 * policy.exposure.sum(), abs=1e-6)
        assert policy.mixture.rankings.shape == (2, 50)

    def test_input_is_left_alone(self):
        r, e = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 0.5])
        exposure_policy(r, [0, 1, 1], MinExposure({0: 0.5}), discount=e)
        assert r.tolist() == [1, 2, 3]
        assert e.tolist() == [1, 2, 0.5]

    @pytest.mark.parametrize("groups", [("x", None, 2), np.array([1, 2, 3]), [(1, 2), (1, 3), "b"]])
    def test_groups_are_any_hashable(self, groups):
        policy = exposure_policy([3, 2, 1], groups, MaxExposure(0.5))
        assert list(policy.duals[0]) == (groups.tolist() if isinstance(groups, np.ndarray) else list(groups))


class TestParts:
    @given(st.integers(1, 9), st.integers(0, 2**32 - 1))
    def test_projection(self, n, seed):
        rng = np.random.default_rng(seed)
        weights = np.sort(rng.random(n))[::-1]
        z = rng.normal(size=n).round(1)
        nearest = _projection(z, weights)
        # no vertex lies further in the direction from the projection to z
        assert np.sort(z - nearest)[::-1] @ weights <= (z - nearest) @ nearest + 1e-9
        assert nearest.sum() == pytest.approx(weights.sum())
        prefixes = np.cumsum(np.sort(nearest)[::-1])
        assert (prefixes <= np.cumsum(weights) + 1e-9).all()

    @given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 2**32 - 1))
    def test_decomposition(self, n, n_rankings, seed):
        rng = np.random.default_rng(seed)
        weights = np.sort(rng.integers(0, 5, size=n))[::-1] / 10 + 0.1
        shares = rng.dirichlet(np.ones(n_rankings))
        exposures = sum(s * rng.permutation(weights) for s in shares)
        orders = _decomposed(exposures, weights, 10 * n)
        assert len(orders) <= n
        vertices = np.stack([weights[np.argsort(order)] for order in orders], axis=1)
        _, residual = nnls(np.vstack([vertices, np.ones(len(orders))]), np.append(exposures, 1))
        assert residual <= 1e-9


class TestContradictions:
    def test_minima_above_everything(self):
        with pytest.raises(
            ValueError,
            match=text(
                "constraint: no policy has at least 0.7 of the exposure for group 'a' and at least 0.5 of "
                "the exposure for group 'b'. Their documents can have at most 1 of the exposure, not 1.2. "
                "Relax one of them."
            ),
        ):
            exposure_policy([1, 2, 3, 4], "aabb", MinExposure({"a": 0.7, "b": 0.5}), k=2)

    def test_maxima_below_the_last_ranks(self):
        with pytest.raises(
            ValueError, match=r"documents have at least 1 of the exposure in any ranking, not 0\.9\."
        ):
            exposure_policy([1, 2, 3], "abc", MaxExposure(0.3))

    def test_different_kinds(self):
        with pytest.raises(
            ValueError,
            match=text(
                "constraint: no policy has at least 0.6 of the exposure for group 1 and mean exposures of "
                "the groups that differ by at most 0.01. Relax one of them."
            ),
        ):
            exposure_policy(
                np.ones(8),
                [0, 0, 0, 0, 1, 1, 1, 1],
                [MaxExposure({0: 0.9}), MinExposure({1: 0.6}), ExposureGapAtMost(0.01)],
            )

    def test_only_constraints_that_contradict_each_other_are_named(self):
        shares = dict.fromkeys(range(30), 0.02) | {7: 0.5, 11: 0.4}
        with pytest.raises(ValueError, match="no policy has") as caught:
            exposure_policy(np.arange(300), np.arange(300) % 30, [MinExposure(shares), MaxExposure({0: 0.9})])
        named = [int(g) for g in re.findall(r"group (\d+)", str(caught.value))]
        assert {7, 11} & set(named)
        left = {g: shares[g] for g in named}
        with pytest.raises(ValueError, match="no policy has"):
            exposure_policy(np.arange(300), np.arange(300) % 30, MinExposure(left))
        for g in left:  # without any one of them the others hold
            others = {h: share for h, share in left.items() if h != g}
            assume_feasible = MinExposure(others or {0: 0.0})
            assert exposure_policy(np.arange(300), np.arange(300) % 30, assume_feasible).value > 0

    def test_a_long_contradiction_is_counted(self):
        with pytest.raises(
            ValueError, match=r", \.\.\. \(40 in all\)\. Their documents can have at most 1 of"
        ):
            exposure_policy(np.arange(80), np.arange(80) % 40, MinExposure(0.026))
