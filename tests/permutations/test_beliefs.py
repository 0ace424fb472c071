"""Belief matrices: against all rankings and partial assignments, one by one; exchanges, slack, bad input."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sinkprop import doubly_stochastic, sinkhorn_limit
from sinkprop.permutations import BeliefMatrix, condition
from sinkprop.policies import birkhoff


def limit(n, seed=0, spread=1.0):
    A = np.exp(spread * np.random.default_rng([n, seed]).normal(size=(n, n)))
    return sinkhorn_limit(A, tol=1e-13).matrix


def slack_belief(n, m, seed=0):
    """A belief with slack, from a table of probabilities with sums below 1."""
    A = np.random.default_rng([n, m, seed]).random((n, m))
    P = 0.9 * A / max(A.sum(axis=0).max(), A.sum(axis=1).max())
    return BeliefMatrix(P, 1 - P.sum(axis=1), 1 - P.sum(axis=0))


def assignments(belief):
    """Distribution over partial assignments, proportional to the product of entries: {ranks: probability}.

    The key has the rank of each document, or -1 for a document without one.
    """
    n, m = belief.matrix.shape
    found = {}
    for ranks in itertools.product(range(-1, m), repeat=n):
        used = [k for k in ranks if k >= 0]
        if len(set(used)) < len(used):
            continue
        free = [k for k in range(m) if k not in used]
        found[ranks] = math.prod(
            belief.absent[j] if k < 0 else belief.matrix[j, k] for j, k in enumerate(ranks)
        ) * math.prod(belief.vacant[k] for k in free)
    total = sum(found.values())
    return {ranks: p / total for ranks, p in found.items()}


def posterior(prior, likelihood):
    """Bayes' rule for a distribution over assignments."""
    found = {ranks: p * likelihood(ranks) for ranks, p in prior.items()}
    total = sum(found.values())
    return {ranks: p / total for ranks, p in found.items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    np.testing.assert_allclose(list(one.values()), list(other.values()), atol=1e-10)


def assert_sums(belief):
    np.testing.assert_allclose(belief.matrix.sum(axis=1) + belief.absent, 1, atol=1e-9)
    np.testing.assert_allclose(belief.matrix.sum(axis=0) + belief.vacant, 1, atol=1e-9)
    assert min(x.min(initial=1) for x in (belief.matrix, belief.absent, belief.vacant)) >= 0


class TestAgainstAllRankings:
    @pytest.mark.parametrize("n", [2, 3, 5])
    def test_an_observation_is_the_condition_of_the_product_distribution(self, n):
        for seed in range(4):
            belief = BeliefMatrix(limit(n, seed))
            j, k = seed % n, (seed * 2 + 1) % n
            exact = posterior(assignments(belief), lambda ranks, j=j, k=k: ranks[j] == k)
            assert_same(assignments(belief.observe(j, k + 1)), exact)

    @pytest.mark.parametrize("n", [2, 4])
    def test_evidence_is_bayes_rule_for_the_product_distribution(self, n):
        rng = np.random.default_rng(n)
        belief = BeliefMatrix(limit(n))
        table = rng.random((n, n))
        after = belief.weigh(table)

        def likelihood(ranks):
            return math.prod(table[j, k] for j, k in enumerate(ranks))

        prior = {ranks: p for ranks, p in assignments(belief).items() if -1 not in ranks}
        exact = posterior(prior, likelihood)
        assert_same({ranks: assignments(after)[ranks] for ranks in exact}, exact)

    @pytest.mark.parametrize(("n", "m"), [(2, 3), (3, 3), (3, 2), (1, 1)])
    def test_slack_keeps_bayes_rule_for_partial_assignments(self, n, m):
        belief = slack_belief(n, m)
        table = np.random.default_rng(7).random((n, m))
        exact = posterior(
            assignments(belief),
            lambda ranks: math.prod(table[j, k] for j, k in enumerate(ranks) if k >= 0),
        )
        assert_same(assignments(belief.weigh(table)), exact)
        exact = posterior(assignments(belief), lambda ranks: ranks[n - 1] == m - 1)
        assert_same(assignments(belief.observe(n - 1, m)), exact)

    def test_marginals_of_two_documents_are_not_those_of_the_product_distribution(self):
        # odds of the matrix are the square root of the odds of the distribution
        for seed in range(5):
            belief = BeliefMatrix(limit(2)).weigh(np.random.default_rng(seed).random((2, 2)))
            p = assignments(belief)[(0, 1)]
            odds = belief.matrix[0, 0] / belief.matrix[0, 1]
            assert odds == pytest.approx(math.sqrt(p / (1 - p)))

    @pytest.mark.parametrize("n", [2, 3, 5])
    def test_evidence_about_one_document_is_exact_for_it_and_closest_for_the_others(self, n):
        Pi, likelihood = limit(n, 3), np.random.default_rng(n).random(n)
        mixture, exact = birkhoff(Pi, tol=1e-13), np.zeros((n, n))
        for weight, ranking in zip(mixture.weights, mixture.rankings, strict=True):
            ranks = np.argsort(ranking)
            exact[np.arange(n), ranks] += weight * likelihood[ranks[1]]
        exact /= exact[0].sum()
        after = BeliefMatrix(Pi).weigh(likelihood, document=1)
        np.testing.assert_allclose(after.matrix[1], exact[1], atol=1e-10)
        if n == 2:
            np.testing.assert_allclose(after.matrix, exact, atol=1e-10)
        assert_sums(after)
        change = np.delete(np.log(after.matrix / Pi), 1, axis=0)  # a sum of a row's and a column's number
        np.testing.assert_allclose(change - change[0], (change[:, 0] - change[0, 0])[:, None] + 0 * change)
        turned = BeliefMatrix(Pi.T).weigh(likelihood, rank=2)
        np.testing.assert_allclose(turned.matrix, after.matrix.T, atol=1e-10)

    @pytest.mark.parametrize(("n", "m"), [(2, 3), (3, 3), (3, 2), (1, 1)])
    def test_evidence_with_slack(self, n, m):
        belief, weights = slack_belief(n, m), np.random.default_rng(7).random(m)
        after = belief.weigh(weights, document=0, slack=0.3)
        assert_sums(after)
        odds = np.append(belief.matrix[0] * weights, belief.absent[0] * 0.3)
        np.testing.assert_allclose([*after.matrix[0], after.absent[0]], odds / odds.sum())
        rows, columns = np.log(after.absent / belief.absent)[1:], np.log(after.vacant / belief.vacant)
        change = np.log(after.matrix / belief.matrix)[1:]
        np.testing.assert_allclose(change, rows[:, None] + columns, atol=1e-9)

    def test_marginals_are_exact_from_a_uniform_belief(self):
        n = 5
        Pi = condition(np.full((n, n), 1 / n), [0, 3], [2, 5])
        expected = np.zeros((n, n))
        rankings = [s for s in itertools.permutations(range(n)) if s[0] == 1 and s[3] == 4]
        for ranks in rankings:
            expected[np.arange(n), ranks] += 1 / len(rankings)
        np.testing.assert_allclose(Pi, expected, atol=1e-12)

    def test_exchanges_are_exact_for_every_distribution(self):
        Pi = limit(4)
        mixture = birkhoff(Pi, tol=1e-13)
        M = 0.5 * np.eye(4) + 0.3 * np.eye(4)[[1, 0, 3, 2]] + 0.2 * np.eye(4)[[2, 3, 0, 1]]
        swapped, mixed = np.zeros((4, 4)), np.zeros((4, 4))
        for weight, ranking in zip(mixture.weights, mixture.rankings, strict=True):
            ranks = np.argsort(ranking)
            for chance, order in ((0.7, [0, 1, 2, 3]), (0.3, [0, 3, 2, 1])):
                swapped[np.arange(4), ranks[order]] += weight * chance
            for chance, order in ((0.5, [0, 1, 2, 3]), (0.3, [1, 0, 3, 2]), (0.2, [2, 3, 0, 1])):
                mixed[np.arange(4), ranks[order]] += weight * chance
        np.testing.assert_allclose(BeliefMatrix(Pi).swap(1, 3, 0.3).matrix, swapped, atol=1e-10)
        np.testing.assert_allclose(BeliefMatrix(Pi).mix(M).matrix, mixed, atol=1e-10)


class TestLaws:
    @given(st.integers(2, 6), st.integers(0, 10**6))
    def test_the_order_of_observations_does_not_matter(self, n, seed):
        rng = np.random.default_rng(seed)
        Pi, documents, ranks = limit(n, seed), rng.permutation(n), 1 + rng.permutation(n)
        some = int(rng.integers(1, n + 1))
        one = condition(Pi, documents[:some], ranks[:some])
        two = condition(Pi, documents[:some][::-1], ranks[:some][::-1])
        np.testing.assert_allclose(one, two, atol=1e-9)
        assert np.all(one[documents[:some], ranks[:some] - 1] == pytest.approx(1))
        np.testing.assert_allclose(one.sum(axis=0), 1, atol=1e-9)
        np.testing.assert_allclose(one.sum(axis=1), 1, atol=1e-9)

    def test_conditions_average_to_about_the_matrix(self):
        # exactly so for true probabilities: sum over k of Pi[0, k] P(. | 0 is at k)
        Pi = limit(5, spread=0.5)
        mean = sum(Pi[0, k] * condition(Pi, 0, k + 1) for k in range(5))
        np.testing.assert_allclose(mean[0], Pi[0], atol=1e-12)
        assert 1e-6 < np.abs(mean - Pi).max() < 0.02

    @settings(max_examples=60)
    @given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 0.7]))
    def test_sums_with_slack_hold_after_any_evidence(self, n, m, seed, zeros):
        rng = np.random.default_rng(seed)
        belief = slack_belief(n, m, seed)
        likelihood = rng.random((n, m)) ** 5 * (rng.random((n, m)) >= zeros)
        after = belief.weigh(likelihood)
        assert_sums(after)
        after = after.weigh(rng.random(m), document=0, slack=rng.random() * 1e-3)
        assert_sums(after)
        j, k = np.unravel_index(np.argmax(after.matrix), (n, m))
        assume(after.matrix[j, k] > 0)
        after = after.observe(int(j), int(k) + 1)
        assert_sums(after)
        assert after.matrix[j, k] == pytest.approx(1)

    @settings(max_examples=40)
    @given(st.integers(2, 6), st.booleans(), st.integers(0, 10**6))
    def test_sums_hold_through_any_history(self, n, known, seed):
        rng = np.random.default_rng(seed)
        belief = BeliefMatrix(np.eye(n)) if known else BeliefMatrix.uniform(n)
        for _ in range(12):
            n, m = belief.matrix.shape
            j, k, slack = int(rng.integers(n)), int(rng.integers(m)), float(rng.choice([0, 0.1, 1]))
            step = rng.integers(6)
            if step == 0 and n > 1:
                belief = belief.swap(j, (j + 1) % n, float(rng.choice([0.5, 0.1, 1e-6])))
            elif step == 1 and belief.matrix[j].any():
                belief = belief.weigh(0.1 + rng.random(m) ** 9, document=j, slack=slack)
            elif step == 2 and belief.matrix[:, k].any():
                belief = belief.weigh(0.1 + rng.random(n) ** 9, rank=k + 1, slack=slack)
            elif step == 3 and belief.matrix[j, k] > 1e-6:
                belief = belief.observe(j, k + 1)
            elif step == 4 and n > 1:
                belief = belief.remove_document(j)
            elif step == 5:
                belief = belief.add_document()
            assert_sums(belief)

    def test_zeros_of_the_slack_force_assignments(self):
        # document 0 must have a rank, and only rank 1 is possible for it
        belief = BeliefMatrix([[0.6, 0.4], [0.2, 0.3]], [0, 0.5], [0.2, 0.3])
        after = belief.weigh([1, 0], document=0)
        np.testing.assert_allclose(after.matrix[:, 0], [1, 0], atol=1e-12)
        assert_sums(after)
        np.testing.assert_allclose(after.absent[1], after.vacant[1])
        with pytest.raises(ValueError, match=r"^the likelihood of document 0 has probability 0: no assign"):
            belief.weigh([0, 0], document=0)

    def test_removed_and_added(self):
        belief = slack_belief(3, 4)
        gone = belief.remove_document(1)
        assert_sums(gone)
        np.testing.assert_allclose(gone.vacant, belief.vacant + belief.matrix[1])
        back = gone.add_document()
        assert_sums(back)
        assert back.absent[-1] == pytest.approx(0)
        np.testing.assert_allclose(back.matrix[-1], gone.vacant / gone.vacant.sum())
        fewer = belief.remove_rank(4)
        assert_sums(fewer)
        np.testing.assert_allclose(fewer.absent, belief.absent + belief.matrix[:, 3])
        assert_sums(fewer.add_rank(0.2))
        assert fewer.add_rank(0.2).vacant[-1] == pytest.approx(0.8)

    def test_a_square_belief_gains_and_loses_everything(self):
        belief = BeliefMatrix.uniform(2).remove_document(0)
        np.testing.assert_allclose(belief.vacant, [0.5, 0.5])
        same = belief.add_document()
        np.testing.assert_allclose(same.matrix, 0.5)
        assert_sums(same)
        empty = belief.remove_document(0)
        assert empty.matrix.shape == (0, 2)
        np.testing.assert_allclose(empty.vacant, 1)
        new = BeliefMatrix([[1.0]]).add_document().add_rank()
        np.testing.assert_allclose(new.matrix, np.eye(2))
        np.testing.assert_allclose([*new.absent, *new.vacant], 0)
        assert repr(new) == "BeliefMatrix(2 documents, 2 ranks, 0 documents absent)"

    def test_beliefs_do_not_change(self):
        start = np.full((3, 3), 1 / 3)
        belief = BeliefMatrix(start)
        belief.observe(0, 1), belief.swap(0, 1), belief.weigh([1, 2, 3], document=0)
        np.testing.assert_allclose(belief.matrix, 1 / 3)
        with pytest.raises(ValueError, match="read-only"):
            belief.matrix[0, 0] = 1
        start[:] = 7
        np.testing.assert_allclose(belief.matrix, 1 / 3)

    def test_sums_after_few_iterations_are_repaired(self):
        Pi = doubly_stochastic([1.0, 0.5, 0.1, -2.0])
        found = condition(Pi, 2, 1)
        rest = np.delete(np.delete(Pi, 2, axis=0), 0, axis=1)
        np.testing.assert_allclose(
            np.delete(np.delete(found, 2, axis=0), 0, axis=1), sinkhorn_limit(rest).matrix, atol=1e-8
        )

    def test_one_document(self):
        assert condition([[1.0]], 0, 1).tolist() == [[1.0]]
        assert condition([[1]], np.int64(0), np.int64(1)).tolist() == [[1.0]]


class TestBadInput:
    EYE, HALF = np.eye(3), np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0]])

    @pytest.mark.parametrize(
        ("Pi", "document", "rank", "message"),
        [
            (
                HALF,
                [0, 0],
                [1, 2],
                "document 0 is at rank 1 with certainty, so it cannot be observed at rank 2.",
            ),
            (
                HALF,
                [0, 1],
                [1, 1],
                "document 1 is at rank 2 with certainty, so it cannot be observed at rank 1.",
            ),
            (np.full((3, 3), 1 / 3), [0, 1], [1, 1], "rank 1 is taken: document 0 is there with certainty"),
            (HALF, 0, 3, "rank 3 is taken: document 2 is there with certainty, so document 0 cannot"),
            (
                [[0.5, 0.5, 0], [0.25, 0.25, 0.5], [0.25, 0.25, 0.5]],
                0,
                3,
                "document 0 has probability 0 at rank 3, so it cannot be observed there.",
            ),
            (-EYE, 0, 1, "Pi must have finite entries of at least 0; got Pi[0, 0] = -1.0."),
            (EYE * np.nan, 0, 1, "got Pi[0, 0] = nan."),
            (2 * EYE, 0, 1, "Pi must have column sums of about 1; column 0 sums to 2"),
            (EYE[:, :2], 0, 1, "Pi must be a square matrix; got shape (3, 2)."),
            ([1.0], 0, 1, "got shape (1,)."),
            (EYE, 3, 1, "document must be from 0 to 2; got 3."),
            (EYE, -1, 1, "document must be at least 0; got -1."),
            (EYE, 0, 0, "rank must be at least 1; got 0."),
            (EYE, 0, 4, "rank must be from 1 to 3; got 4."),
            (EYE, 0.5, 1, "document must be a whole number"),
            (EYE, [0, 1], [1], "two sequences of the same length; got [0, 1] and [1]."),
            (EYE, [0], 1, "two numbers, or two sequences"),
        ],
    )
    def test_conditions(self, Pi, document, rank, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            condition(Pi, document, rank)

    def test_a_document_may_be_observed_again_at_its_rank_or_after_an_exchange(self):
        belief = BeliefMatrix(self.HALF).observe(0, 1).observe(0, 1)
        assert belief.swap(0, 1).observe(0, 2).matrix[0, 1] == 1

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: BeliefMatrix([[0.5, 0.5]]), "matrix must be square without slack; got shape (1, 2)."),
            (
                lambda: BeliefMatrix([[0.5, 0.5]], [0.1]),
                "matrix must have row sums of 1 together with absent",
            ),
            (lambda: BeliefMatrix([[0.5]], [0.5], [0.4]), "column 0 sums to 0.9."),
            (lambda: BeliefMatrix([[0.5]], [0.5, 0.5]), "absent must have shape (1,); got shape (2,)."),
            (lambda: BeliefMatrix([[-0.5]], [1.5]), "matrix must have finite entries of at least 0"),
            (
                lambda: BeliefMatrix([0.5], [0.5]),
                "one row per document and one column per rank; got shape (1,)",
            ),
            (lambda: BeliefMatrix.uniform(0), "n must be at least 1; got 0."),
            (lambda: BeliefMatrix.uniform(2).swap(0, 0), "two documents; got 0 twice."),
            (lambda: BeliefMatrix.uniform(2).swap(0, 1, 1.5), "probability must be at most 1; got 1.5."),
            (lambda: BeliefMatrix.uniform(2).swap(0, 2), "second must be from 0 to 1; got 2."),
            (lambda: BeliefMatrix.uniform(2).mix([[1, 0], [1, 0]]), "column 0 sums to 2, not 1."),
            (lambda: BeliefMatrix.uniform(2).mix(np.eye(3)), "mixing must have shape (2, 2)"),
            (
                lambda: BeliefMatrix.uniform(2).weigh([1, 2]),
                "likelihood must have shape (2, 2); got shape (2,)",
            ),
            (lambda: BeliefMatrix.uniform(2).weigh([1, -2], rank=1), "got likelihood[1] = -2.0."),
            (lambda: BeliefMatrix.uniform(2).weigh([1, 2], rank=1, document=1), "got both."),
            (
                lambda: BeliefMatrix.uniform(2).weigh(np.eye(2), slack=0.5),
                "slack is for the evidence about one",
            ),
            (lambda: BeliefMatrix.uniform(2).weigh(np.zeros((2, 2))), "the likelihood has probability 0"),
            (
                lambda: BeliefMatrix.uniform(2).weigh([0, 0], rank=2),
                "the likelihood of rank 2 has probability 0",
            ),
            (
                lambda: BeliefMatrix.uniform(2).add_document(0.5),
                "probability must be at most 0, because the expected number of vacant ranks is 0; got 0.5.",
            ),
        ],
    )
    def test_beliefs(self, call, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
