"""PermELearn and the perturbed leader: updates against their definition, draws, estimates, bounds, states."""

import itertools
import json
import math
import re

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.stats import chi2, gamma

from sinkprop import sinkhorn_limit
from sinkprop.permutations import (
    LearningRecord,
    PermutationLearner,
    PerturbedLeader,
    best_ranking,
    play,
)
from sinkprop.permutations.projection import projected
from sinkprop.policies import birkhoff

SURPRISE = 1e-7  # probability that a statistical test would fail with another seed


def some_losses(T, n, seed=0):
    """Losses of 0 and 1 with their own means, so that some rankings are better than others."""
    rng = np.random.default_rng([T, n, seed])
    return (rng.random((T, n, n)) < rng.random((n, n))).astype(float)


def learners(n, T, feedback, seed=0):
    yield PermutationLearner(n, n_rounds=T, feedback=feedback, seed=seed)
    yield PermutationLearner(n, feedback=feedback, seed=seed)
    yield PermutationLearner(n, learning_rate=0.3, feedback=feedback, seed=seed)
    if feedback == "full":
        yield PermutationLearner(n, loss_bound=5, seed=seed)
        yield PerturbedLeader(n, n_rounds=T, perturbation="uniform", seed=seed)
    else:
        yield PermutationLearner(n, n_rounds=T, feedback=feedback, exploration=0.05, seed=seed)
    yield PerturbedLeader(n, n_rounds=T, feedback=feedback, seed=seed)
    yield PerturbedLeader(n, learning_rate=0.3, feedback=feedback, seed=seed)


class TestUpdates:
    def test_weights_are_those_of_the_multiplicative_updates_of_the_paper(self):
        learner, W = PermutationLearner(6, learning_rate=0.7), np.full((6, 6), 1 / 6)
        for L in np.random.default_rng(0).random((40, 6, 6)):
            learner.update(L)
            W = sinkhorn_limit(W * np.exp(-0.7 * L), tol=1e-12).matrix
            np.testing.assert_allclose(learner.weights, W, rtol=1e-9, atol=1e-13)

    @pytest.mark.parametrize("feedback", ["full", "semi-bandit"])
    def test_weights_are_those_of_optimal_transport_with_decreasing_rates(self, feedback):
        n = 5
        learner = PermutationLearner(n, feedback=feedback, seed=1)
        for L in some_losses(30, n):
            ranking = learner.draw()
            learner.update(L if feedback == "full" else L[ranking, np.arange(n)])
        total, eta = np.array(learner.state()["total"]), learner.rate()
        plan = ot.sinkhorn(
            np.full(n, 1 / n), np.full(n, 1 / n), total, 1 / eta, stopThr=1e-14, numItermax=10**5
        )
        np.testing.assert_allclose(learner.weights, n * plan, atol=1e-9)
        scale = 2 if feedback == "full" else 1 / math.sqrt(n)
        assert eta == pytest.approx(scale * math.sqrt(math.log(n) / 31))

    def test_predict_is_the_best_ranking_by_brute_force(self):
        losses = some_losses(7, 5)
        learner = PermutationLearner(5, seed=0)
        for L in losses:
            learner.update(L)
        total = losses.sum(axis=0)
        every = {s: sum(total[j, k] for k, j in enumerate(s)) for s in itertools.permutations(range(5))}
        found = tuple(learner.predict().tolist())
        assert every[found] == learner.best_loss() == min(every.values()) == best_ranking(losses)[1]
        assert learner.regret() == learner.loss - min(every.values())

    @given(st.integers(1, 9), st.sampled_from([1.0, 30.0, 1e4, 1e8]), st.integers(0, 10**6))
    def test_the_projection_is_a_doubly_stochastic_scaling(self, n, spread, seed):
        rng = np.random.default_rng(seed)
        log_K = spread * rng.normal(size=(n, n))
        W, log_v = projected(log_K, spread * rng.normal(size=n))
        for axis in (0, 1):
            np.testing.assert_allclose(W.sum(axis=axis), 1, atol=1e-9)
        again, _ = projected(log_K, log_v)
        np.testing.assert_allclose(again, W, atol=1e-8)
        rows, columns = np.nonzero(W > 1e-200)
        left = np.log(W[rows, columns]) - log_K[rows, columns] - log_v[columns]
        for j in range(n):  # log u
            assert np.ptp(left[rows == j]) < 1e-6 * max(1, spread / 1e4)

    @pytest.mark.parametrize("rate", [1e3, 1e9])
    def test_huge_rates_follow_the_leader(self, rate):
        learner = PermutationLearner(4, learning_rate=rate, seed=0)
        for L in some_losses(25, 4, 3) + 1e-3 * np.random.default_rng(0).random((25, 4, 4)):
            learner.update(np.minimum(L, 1))
            np.testing.assert_allclose(learner.weights.sum(axis=0), 1, atol=1e-9)
            np.testing.assert_allclose(learner.weights.sum(axis=1), 1, atol=1e-9)
        leader = learner.predict()
        assert learner.weights[leader, np.arange(4)].min() > 0.6


class TestDraws:
    def test_every_draw_has_the_probabilities_of_the_weights(self):
        learner = PermutationLearner(4, learning_rate=0.5, seed=0)
        for L in some_losses(4, 4):
            learner.update(L)
        W, N = learner.weights, 4000
        counts = np.zeros((4, 4))
        for _ in range(N):
            counts[learner.draw(), np.arange(4)] += 1
        for rank in range(4):
            statistic = ((counts[:, rank] - N * W[:, rank]) ** 2 / (N * W[:, rank])).sum()
            assert statistic < chi2.isf(SURPRISE, 3)

    @pytest.mark.parametrize("exploration", [0.0, 0.2])
    def test_estimates_are_unbiased_over_all_draws(self, exploration):
        learner = PermutationLearner(
            4, feedback="semi-bandit", learning_rate=0.5, exploration=exploration, seed=0
        )
        for L in some_losses(5, 4):
            ranking = learner.draw()
            learner.update(L[ranking, np.arange(4)])
        W, state = learner.weights, learner.state()
        mixture = birkhoff(W, tol=1e-13)
        L, mean = np.random.default_rng(5).random((4, 4)), np.zeros((4, 4))
        for weight, ranking in zip(mixture.weights, mixture.rankings, strict=True):
            one = PermutationLearner.from_state({**state, "drawn": ranking.tolist()})
            one.update(L[ranking, np.arange(4)])
            mean += weight * (np.array(one.state()["total"]) - state["total"])
        np.testing.assert_allclose(mean, L * W / (W + exploration), atol=1e-9)

    @pytest.mark.parametrize("perturbation", ["exponential", "uniform"])
    def test_the_leader_of_two_documents_has_its_exact_distribution(self, perturbation):
        leader = PerturbedLeader(2, learning_rate=0.4, perturbation=perturbation, seed=0)
        leader.update([[0.9, 0.0], [0.1, 0.8]])
        gap = 0.4 * (0.9 + 0.8 - 0.1)  # of the identity over the exchange
        if perturbation == "exponential":
            law = gamma(2)
            chance = quad(lambda x: law.pdf(x) * law.sf(x + gap), 0, 60)[0]
        else:  # a sum of four uniform numbers, with two signs reversed: Irwin-Hall
            x = 2 - gap
            chance = sum((-1) ** i * math.comb(4, i) * (x - i) ** 4 for i in range(int(x) + 1)) / 24
        N = 20_000
        found = sum(int(leader.draw()[0] == 0) for _ in range(N))
        assert abs(found - N * chance) < 5.5 * math.sqrt(N * chance * (1 - chance))

    @pytest.mark.parametrize("max_draws", [1, 3])
    def test_resampled_estimates_have_their_exact_mean(self, max_draws):
        leader = PerturbedLeader(2, feedback="semi-bandit", learning_rate=0.5, max_draws=max_draws, seed=0)
        N, mean = 20_000, np.zeros((2, 2))
        state = leader.state()
        for _ in range(N):
            leader.draw()
            leader.update([0.5, 1.0])
            estimate = np.array(leader.state()["total"])
            mean += estimate / N
            leader = PerturbedLeader.from_state({**state, "random": leader.state()["random"]})
        seen = 1 - 0.5**max_draws  # both rankings are equally probable
        np.testing.assert_allclose(mean, np.array([[0.5, 1.0], [0.5, 1.0]]) * seen, atol=0.06)

    def test_the_same_seed_draws_the_same(self):
        for one, two in zip(learners(4, 9, "full", seed=3), learners(4, 9, "full", seed=3), strict=True):
            assert [one.draw().tolist() for _ in range(9)] == [two.draw().tolist() for _ in range(9)]
        a, b = (PermutationLearner(6, seed=np.random.default_rng(s)) for s in (1, 1))
        other = PermutationLearner(6, seed=2)
        drawn = [[x.draw().tolist() for _ in range(5)] for x in (a, b, other)]
        assert drawn[0] == drawn[1] != drawn[2]


class TestBounds:
    @settings(max_examples=60)
    @given(st.integers(1, 5), st.integers(1, 25), st.data())
    def test_the_expected_regret_is_below_the_bound_for_every_sequence(self, n, T, data):
        losses = data.draw(arrays(float, (T, n, n), elements=st.sampled_from([0.0, 0.5, 1.0])))
        best = best_ranking(losses)[1]
        rate = data.draw(st.floats(1e-3, 5))
        for learner in (
            PermutationLearner(n, n_rounds=T, seed=0),
            PermutationLearner(n, seed=0),
            PermutationLearner(n, learning_rate=rate, seed=0),
            PermutationLearner(n, loss_bound=best + 1e-3, seed=0),
        ):
            record = play(learner, losses)
            assert np.all(record.regret <= record.bound + 1e-9)
            if learner.learning_rate is not None:
                assert record.regret[-1] <= learner.regret_bound(best_loss=best) + 1e-9

    @pytest.mark.parametrize("adversary", ["leader", "heaviest", "alternating"])
    def test_adversaries_stay_below_the_bound(self, adversary):
        n, T = 4, 150

        def losses(learner):
            L = np.zeros((n, n))
            if adversary == "alternating":
                L[:, (learner.rounds % 2) :: 2] = np.eye(n)[:, (learner.rounds % 2) :: 2]
                return L
            chosen = learner.predict() if adversary == "leader" else best_ranking(-learner.weights)[0]
            L[chosen, np.arange(n)] = 1
            return L

        for learner in (PermutationLearner(n, n_rounds=T, seed=0), PermutationLearner(n, seed=0)):
            record = play(learner, losses, T)
            assert np.all(record.regret <= record.bound)
            assert record.regret[-1] > 0.02 * record.bound[-1]

    def test_semi_bandit_regret_is_below_the_bound_in_the_mean(self):
        n, T = 4, 300
        losses = some_losses(T, n)
        for make in (PermutationLearner, PerturbedLeader):
            records = [play(make(n, n_rounds=T, feedback="semi-bandit", seed=s), losses) for s in range(10)]
            assert np.mean([r.regret[-1] for r in records]) < records[0].bound[-1]
        chance = (losses.mean(axis=(1, 2)) * n).sum() - best_ranking(losses)[1]
        learned = play(PermutationLearner(n, n_rounds=T, feedback="semi-bandit", seed=0), losses).regret[-1]
        assert learned < 0.6 * chance

    def test_bounds_are_those_of_the_table(self):
        n, T, log_n = 7, 90, math.log(7)
        semi = {"feedback": "semi-bandit"}
        for learner, bound in (
            (PermutationLearner(n, n_rounds=T), n * math.sqrt(T * log_n / 2)),
            (PermutationLearner(n, n_rounds=T, **semi), n * math.sqrt(2 * n * T * log_n)),
            (PermutationLearner(n), n * math.sqrt(T * log_n)),
            (PermutationLearner(n, **semi), 2 * n * math.sqrt(n * T * log_n)),
            (PerturbedLeader(n, n_rounds=T), 2 * n * math.sqrt(n * T * log_n)),
            (PerturbedLeader(n, n_rounds=T, perturbation="uniform"), n**2 * math.sqrt(2 * T)),
            (
                PerturbedLeader(n, n_rounds=T, max_draws=20, **semi),
                2 * n**2 * math.sqrt(2 * T * log_n) + n**2 * T / (20 * math.e),
            ),
        ):
            assert learner.regret_bound(T) == pytest.approx(bound)
            assert learner.regret_bound() == 0
        B = 25.0
        freund = math.sqrt(2 * B * n * log_n) + n * log_n
        tuned = PermutationLearner(n, loss_bound=B).regret_bound(10**6)
        assert 0.5 * freund < tuned <= freund
        explored = PermutationLearner(n, n_rounds=T, exploration=0.1, **semi).regret_bound(T)
        assert explored == pytest.approx(n * math.sqrt(2 * n * T * log_n) + 0.1 * n**2 * T)

    @pytest.mark.parametrize("feedback", ["full", "semi-bandit"])
    def test_one_document_has_no_regret(self, feedback):
        for learner in learners(1, 5, feedback):
            record = play(learner, np.random.default_rng(0).random((5, 1, 1)))
            np.testing.assert_allclose(record.regret, 0, atol=1e-12)
            assert learner.draw().tolist() == [0]


class TestPlay:
    def test_the_record_adds_up(self):
        losses = some_losses(12, 3)
        learner = PermutationLearner(3, n_rounds=12, seed=0)
        record = play(learner, losses)
        assert isinstance(record, LearningRecord)
        assert record.loss.shape == record.expected_loss.shape == record.best_loss.shape == (12,)
        assert record.loss[-1] == learner.loss
        assert record.expected_loss[-1] == pytest.approx(learner.expected_loss)
        np.testing.assert_allclose(record.best_loss, [best_ranking(losses[: t + 1])[1] for t in range(12)])
        assert record.bound[-1] == learner.regret_bound()
        assert play(PerturbedLeader(3, n_rounds=12, seed=0), losses).regret.shape == (12,)

    def test_generators_and_no_rounds(self):
        record = play(PermutationLearner(3, seed=0), (L for L in some_losses(12, 3)), 5)
        assert len(record.loss) == 5
        assert play(PermutationLearner(3), np.empty((0, 3, 3))).regret.shape == (0,)


class TestStates:
    @pytest.mark.parametrize("feedback", ["full", "semi-bandit"])
    @pytest.mark.parametrize("between", [False, True])
    def test_a_learner_continues_bit_for_bit(self, feedback, between):
        losses = some_losses(30, 4)
        for learner in learners(4, 30, feedback):
            play(learner, losses[:13])
            if between:
                learner.draw()
            copy = type(learner).from_state(json.loads(json.dumps(learner.state(), allow_nan=False)))
            for one in (learner, copy):
                if between:
                    played = one.state()["drawn"]
                    L = losses[13]
                    one.update(L if feedback == "full" else L[played, np.arange(4)])
                one.record = play(one, losses[14:])
            np.testing.assert_array_equal(copy.record.loss, learner.record.loss)
            np.testing.assert_array_equal(copy.record.expected_loss, learner.record.expected_loss)
            assert json.dumps(copy.state()) == json.dumps(learner.state())

    def test_states_of_others(self):
        state = PermutationLearner(3, seed=0).state()
        with pytest.raises(ValueError, match=r"^state must be that of a PerturbedLeader; got 'PermutationLe"):
            PerturbedLeader.from_state(state)
        with pytest.raises(ValueError, match=r"got 'list'\.$"):
            PermutationLearner.from_state([1])


class TestBadInput:
    @pytest.mark.parametrize(
        ("loss", "message"),
        [
            ([[0, 1], [2, 0]], "entries from 0 to 1; got loss[1, 0] = 2.0. Divide losses"),
            ([[0, -0.1], [0, 0]], "got loss[0, 1] = -0.1."),
            ([[0, math.nan], [0, 0]], "got loss[0, 1] = nan."),
            ([[0, math.inf], [0, 0]], "got loss[0, 1] = inf."),
            ([0, 1], "one row per document and one column per rank, (2, 2); got shape (2,)."),
            (np.zeros((3, 3)), "got shape (3, 3)."),
            ([["a", "b"], ["c", "d"]], "loss must be an array of numbers"),
        ],
    )
    def test_losses(self, loss, message):
        for learner in learners(2, 5, "full"):
            before = json.dumps(learner.state())
            with pytest.raises(ValueError, match=re.escape(message)):
                learner.update(loss)
            assert json.dumps(learner.state()) == before

    def test_semi_bandit_losses(self):
        for learner in learners(2, 5, "semi-bandit"):
            with pytest.raises(ValueError, match=r"^update: no ranking was drawn in this round, .*draw\(\)"):
                learner.update([0, 1])
            learner.draw()
            with pytest.raises(ValueError, match=r"drawn document at each rank, .* \(2,\); got shape \(2, 2"):
                learner.update(np.zeros((2, 2)))
            learner.update([0, 1])
            with pytest.raises(ValueError, match="no ranking was drawn"):
                learner.update([0, 1])
            with pytest.raises(ValueError, match="semi-bandit feedback does not show"):
                learner.regret()

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: PermutationLearner(0), "n must be at least 1; got 0."),
            (lambda: PermutationLearner(2.5), "n must be a whole number"),
            (lambda: PermutationLearner(2, feedback="bandit"), "feedback must be 'full' or 'semi-bandit'"),
            (lambda: PermutationLearner(2, n_rounds=0), "n_rounds must be at least 1; got 0."),
            (
                lambda: PermutationLearner(2, learning_rate=0),
                "learning_rate must be a finite number, above 0",
            ),
            (lambda: PermutationLearner(2, loss_bound=math.inf), "loss_bound must be a finite number"),
            (lambda: PermutationLearner(2, n_rounds=3, loss_bound=3), "got n_rounds and loss_bound."),
            (lambda: PermutationLearner(2, exploration=0.1), "exploration is for semi-bandit feedback"),
            (lambda: PermutationLearner(2, feedback="semi-bandit", loss_bound=1), "loss_bound tunes"),
            (
                lambda: PermutationLearner(2, feedback="semi-bandit").regret_bound(3, best_loss=1),
                "does not depend on it.",
            ),
            (lambda: PerturbedLeader(2), "give either n_rounds or learning_rate; got neither."),
            (lambda: PerturbedLeader(2, n_rounds=3, learning_rate=3), "got both."),
            (lambda: PerturbedLeader(2, learning_rate=-1), "learning_rate must be a finite number, above 0"),
            (lambda: PerturbedLeader(2, n_rounds=3, perturbation="normal"), "perturbation must be"),
            (lambda: PerturbedLeader(2, n_rounds=3, max_draws=3), "max_draws is for semi-bandit feedback"),
            (
                lambda: PerturbedLeader(2, n_rounds=3, feedback="semi-bandit", perturbation="uniform"),
                "perturbation must be 'exponential' for semi-bandit feedback",
            ),
            (lambda: play(PermutationLearner(2), [np.zeros((3, 3))]), "matrix (2, 2) per round; got shape"),
            (lambda: play(PermutationLearner(2), lambda _: np.eye(2)), "n_rounds must be given"),
            (lambda: best_ranking([1, 2]), "(n, n) or (T, n, n); got shape (2,)."),
            (lambda: best_ranking([[1, math.nan], [1, 1]]), "losses must be finite; got losses[0, 1] = nan."),
        ],
    )
    def test_arguments(self, make, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            make()

    def test_losses_of_other_kinds_and_layouts(self):
        L = np.asfortranarray(np.eye(3, dtype=int))
        L.setflags(write=False)
        weights = []
        for loss in (L, L.tolist(), L.astype(bool), np.repeat(L, 2, axis=1)[:, ::2]):
            learner = PermutationLearner(3, n_rounds=2, seed=0)
            learner.update(loss)
            weights.append(learner.weights)
        assert all(np.array_equal(W, weights[0]) for W in weights)
        weights[0][:] = 7  # a copy
        assert learner.weights.max() < 1
