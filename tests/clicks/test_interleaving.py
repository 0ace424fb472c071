"""Interleaving: without bias for random clicks, by enumeration, and the tests against SciPy's."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, ttest_1samp

from sinkprop.clicks.interleaving import (
    interleaving_test,
    optimized_interleaving,
    sessions_needed,
    team_draft,
)


@st.composite
def two_rankings(draw, most=5):
    k = draw(st.integers(1, most))
    n = draw(st.integers(k, 2 * k))
    return tuple(draw(st.permutations(range(n)))[:k] for _ in range(2))


def all_team_drafts(a, b):
    """The different drafts of 300 draws: for up to 3 coins, all there are, or this fails once in 10^16."""
    rng = np.random.default_rng(0)
    found = [team_draft(a, b, seed=rng) for _ in range(300)]
    return {(x.documents, tuple(x.credit)): x for x in found}.values()


def assert_random_clicks_prefer_neither(lists):
    """Exactly: at each position, and for clicks on all positions that depend on each other in any way."""
    assert sum(x.probability for x in lists) == pytest.approx(1, abs=1e-12)
    expected = sum(x.probability * x.credit for x in lists)
    assert expected == pytest.approx(np.zeros(len(expected)), abs=1e-9)
    every = list(itertools.product([0, 1], repeat=len(expected)))
    clicks = np.random.default_rng(0).dirichlet(np.ones(len(every)))  # probability of each set of clicks
    total = sum(x.probability * p * x.score(c) for x in lists for c, p in zip(every, clicks, strict=True))
    assert total == pytest.approx(0, abs=1e-9)


class TestTeamDraft:
    @settings(max_examples=30)
    @given(two_rankings())
    def test_random_clicks_prefer_neither(self, rankings):
        lists = all_team_drafts(*rankings)
        assert_random_clicks_prefer_neither(lists)
        for clicked in itertools.product([0, 1], repeat=len(rankings[0])):
            signs = sum(x.probability * np.sign(x.score(clicked)) for x in lists)
            assert signs == pytest.approx(0, abs=1e-12)  # so the sign test is exact

    @given(two_rankings(8), st.integers(0, 2**32))
    def test_each_document_is_the_best_that_was_left_of_its_team(self, rankings, seed):
        shown = team_draft(*rankings, seed=seed)
        assert len(set(shown.documents)) == len(rankings[0])
        for i, (document, credit) in enumerate(zip(shown.documents, shown.credit, strict=True)):
            left = [d for d in rankings[0 if credit > 0 else 1] if d not in shown.documents[:i]]
            assert document == left[0]
        picks = np.cumsum(shown.credit)
        assert not picks[1::2].any()  # as many picks after each round
        assert np.abs(picks).max() <= 1

    def test_draws_have_the_probabilities(self):
        rng = np.random.default_rng(0)
        size = 4000
        drawn = [team_draft("abcd", "dabc", seed=rng) for _ in range(size)]
        counts = {}
        for x in drawn:
            counts.setdefault((x.documents, tuple(x.credit)), [0, x.probability])[0] += 1
        assert len(counts) == 4
        for count, p in counts.values():
            assert count / size == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / size))

    def test_fewer_positions_than_documents(self):
        shown = team_draft(["a", "b", "c"], ["x", "y", "z"], 1, seed=0)
        assert shown.documents in {("a",), ("x",)}
        assert shown.probability == 0.5

    def test_one_document(self):
        assert team_draft([7], [7]).documents == (7,)


def vertices(credit):
    """All distributions over lists with expected credit 0 that are determined by the lists they use."""
    equations = np.vstack([credit.T, np.ones(len(credit))])
    right = np.append(np.zeros(credit.shape[1]), 1.0)
    for size in range(1, len(right) + 1):
        for chosen in itertools.combinations(range(len(credit)), size):
            columns = equations[:, chosen]
            p = np.linalg.lstsq(columns, right, rcond=None)[0]
            if np.allclose(columns @ p, right, atol=1e-10) and (p > -1e-10).all():
                yield np.array(chosen), p


def allowed(shown, a, b):
    """Whether each first part of the list consists of first parts of both rankings."""
    return all(
        any(set(shown[:m]) == {*a[:i], *b[:j]} for i in range(m + 1) for j in range(m + 1))
        for m in range(1, len(shown) + 1)
    )


class TestOptimized:
    @given(two_rankings())
    def test_random_clicks_prefer_neither(self, rankings):
        assert_random_clicks_prefer_neither(optimized_interleaving(*rankings).lists)

    @given(two_rankings())
    def test_lists_and_credits(self, rankings):
        a, b = rankings
        k = len(a)
        for shown in optimized_interleaving(a, b).lists:
            assert allowed(shown.documents, a, b)
            for d, credit in zip(shown.documents, shown.credit, strict=True):
                in_a = a.index(d) + 1 if d in a else k + 1
                in_b = b.index(d) + 1 if d in b else k + 1
                assert credit == pytest.approx(1 / in_a - 1 / in_b, abs=1e-15)

    @pytest.mark.parametrize("b", list(itertools.permutations(range(4), 3)))
    def test_no_other_distribution_is_more_sensitive(self, b):
        a = (0, 1, 2)
        lists = [x for x in itertools.permutations({*a, *b}, 3) if allowed(x, a, b)]
        inverse = [{d: 1 / (1 + (r.index(d) if d in r else 3)) for d in {*a, *b}} for r in (a, b)]
        credits_of = {d: inverse[0][d] - inverse[1][d] for d in {*a, *b}}
        credit = np.array([[credits_of[d] for d in x] for x in lists])
        clicks = np.array([6, 3, 2]) / 11
        sensitivity = [(clicks * (c - clicks @ c) ** 2).sum() for c in credit]
        best = max(p @ np.take(sensitivity, chosen) for chosen, p in vertices(credit))
        assert optimized_interleaving(a, b).sensitivity == pytest.approx(best, abs=1e-9)

    @pytest.mark.parametrize("k", range(1, 5))
    def test_every_pair_of_short_rankings_has_a_distribution(self, k):
        for b in itertools.permutations(range(2 * k), k):
            new = [d for d in b if d >= k]
            if new == list(range(k, k + len(new))):  # other names of the new documents are the same pair
                assert optimized_interleaving(range(k), b).lists

    def test_longest(self):
        rng = np.random.default_rng(0)
        design = optimized_interleaving(rng.permutation(20).tolist(), rng.permutation(20).tolist(), 12)
        expected = sum(x.probability * x.credit for x in design.lists)
        assert expected == pytest.approx(np.zeros(12), abs=1e-9)

    def test_equal_rankings_leave_one_list_without_credit(self):
        design = optimized_interleaving("abc", "abc")
        assert [x.documents for x in design.lists] == [("a", "b", "c")]
        assert not design.lists[0].credit.any()
        assert design.sensitivity == 0

    def test_draws_have_the_probabilities(self):
        design = optimized_interleaving("abcd", "bdac")
        rng = np.random.default_rng(0)
        drawn = [design.draw(rng).documents for _ in range(4000)]
        assert len(design.lists) > 1
        for x in design.lists:
            share = drawn.count(x.documents) / 4000
            assert share == pytest.approx(x.probability, abs=5 * 0.5 / np.sqrt(4000))


@pytest.mark.parametrize("method", ["team draft", "optimized"])
def test_users_who_click_relevant_documents_prefer_the_better_ranking(method):
    rng = np.random.default_rng(0)
    relevance = {"a": 0.8, "b": 0.5, "c": 0.2, "d": 0.1}
    design = optimized_interleaving("abcd", "dcba")
    credits_seen = []
    for _ in range(400):
        shown = team_draft("abcd", "dcba", seed=rng) if method == "team draft" else design.draw(rng)
        clicked = rng.random(4) < [relevance[d] / (i + 1) for i, d in enumerate(shown.documents)]
        credits_seen.append(shown.score(clicked))
    found = interleaving_test(credits_seen, by="sessions" if method == "team draft" else "credit")
    assert found.interval[0] > 0
    assert found.p_value < 1e-3


class TestTests:
    @pytest.mark.parametrize(
        ("wins", "losses", "ties"), [(60, 40, 100), (5, 0, 3), (0, 7, 0), (1, 1, 0), (900, 1000, 9)]
    )
    def test_sessions_by_the_sign_test(self, wins, losses, ties):
        found = interleaving_test([0.3] * wins + [-2.0] * losses + [0] * ties, level=0.9)
        oracle = binomtest(wins, wins + losses)
        n, decided = wins + losses + ties, wins + losses
        assert (found.wins, found.losses, found.ties) == (wins, losses, ties)
        assert found.preference == pytest.approx((wins - losses) / n)
        assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-9)
        ends = oracle.proportion_ci(0.9)
        assert found.interval == pytest.approx([(2 * end - 1) * decided / n for end in ends], rel=1e-9)

    def test_credit_by_students_t(self):
        x = np.random.default_rng(0).normal(0.1, 1.0, 50)
        found, oracle = interleaving_test(x, by="credit"), ttest_1samp(x, 0)
        assert found.preference == pytest.approx(x.mean())
        assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-9)
        assert found.interval == pytest.approx(tuple(oracle.confidence_interval()), rel=1e-9)

    @given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 2.0]), min_size=2).filter(lambda x: len(set(x)) > 1))
    def test_exchanging_the_rankings_exchanges_the_result(self, x):
        for by in ("sessions", "credit"):
            one, other = interleaving_test(x, by=by), interleaving_test(-np.array(x), by=by)
            assert (one.wins, one.losses) == (other.losses, other.wins)
            assert one.preference == pytest.approx(-other.preference)
            assert one.interval == pytest.approx((-other.interval[1], -other.interval[0]))
            assert one.p_value == pytest.approx(other.p_value)


def powers(n, preference, ties, level):
    """Probability, for each number of sessions up to n, of a significant result for the preferred ranking."""
    wins, losses = np.indices((n + 1, n + 1))
    p_values = 2 * binom.cdf(np.minimum(wins, losses), wins + losses, 0.5)
    found = (p_values <= 1 - level) & (wins > losses)
    win, lose = (1 - ties + preference) / 2, (1 - ties - preference) / 2
    sizes = np.arange(n + 1)[:, None, None]
    p = binom.pmf(wins, sizes, win) * binom.pmf(
        losses, np.maximum(sizes - wins, 0), min(1.0, lose / (1 - win))
    )
    return (p * found).sum(axis=(1, 2))


class TestSessionsNeeded:
    @pytest.mark.parametrize("level", [0.95, 0.8])
    @pytest.mark.parametrize("power", [0.6, 0.8])
    @pytest.mark.parametrize(
        ("preference", "ties"), [(0.5, 0.3), (0.6, 0.0), (0.45, 0.05), (0.4, 0.5), (0.35, 0.2), (0.08, 0.9)]
    )
    def test_is_the_smallest_number_from_which_on_the_power_is_enough(self, preference, ties, power, level):
        n = sessions_needed(preference, ties=ties, power=power, level=level)
        found = powers(n + 15, preference, ties, level)
        assert found[n - 1] < power
        assert (found[n:] >= power).all()

    @pytest.mark.parametrize("preference", [0.02, 0.021, 0.1, 0.3])
    def test_without_ties_the_power_stays_above_from_there_on(self, preference):
        n = sessions_needed(preference)
        sizes = np.arange(n - 1, n + 2000)
        most = binom.ppf(0.025, sizes, 0.5)  # losses that are significant, after a correction
        most -= binom.cdf(most, sizes, 0.5) > 0.025
        found = binom.cdf(most, sizes, (1 - preference) / 2)
        assert found[0] < 0.8
        assert (found[1:] >= 0.8).all()

    def test_a_simulation_has_the_power(self):
        n = sessions_needed(0.3, ties=0.2)
        rng = np.random.default_rng(0)
        credits_of = rng.choice([1, -1, 0], size=(2000, n), p=[0.55, 0.25, 0.2])
        tests = [interleaving_test(x) for x in credits_of]
        share = np.mean([x.p_value <= 0.05 and x.preference > 0 for x in tests])
        assert 0.8 - 3 * 0.009 < share < 0.83 + 3 * 0.009

    @pytest.mark.parametrize("ties", [0.0, 0.5, 0.99])
    @pytest.mark.parametrize("level", [0.95, 0.1])
    def test_the_approximation_for_many_sessions_joins_the_exact_numbers(self, ties, level, monkeypatch):
        sizes = []
        for exact in (20_000, 10):
            monkeypatch.setattr("sinkprop.clicks.interleaving._EXACT", exact)
            sizes.append(sessions_needed(0.022 * (1 - ties), ties=ties, level=level))
        assert sizes[0] <= sizes[1] < 1.03 * sizes[0] + 100 / (1 - ties) * (level < 0.5)

    def test_many_ties_leave_as_many_sessions_that_are_not_tied(self):
        for difference in (0.3, 0.9):
            sizes = [sessions_needed(difference * x, ties=1 - x) * x for x in (1e-5, 1e-6, 1e-9, 1e-15)]
            assert sizes == pytest.approx([sizes[0]] * 4, rel=0.01)

    def test_extremes(self):
        assert sessions_needed(0.999) == 6  # the smallest p-value of 5 sessions is 1 / 16
        assert sessions_needed(1e-6) == pytest.approx(7.849e12, rel=1e-3)
        assert sessions_needed(0.5, power=1 - 1e-12, level=1 - 1e-12) < 1000


class TestErrors:
    @pytest.mark.parametrize("method", [team_draft, optimized_interleaving])
    def test_rankings(self, method):
        with pytest.raises(ValueError, match=r"at least 3 documents.*got 3 and 2"):
            method("abc", "ab", 3)
        with pytest.raises(ValueError, match=r"at least 1 documents"):
            method([], "ab")
        with pytest.raises(ValueError, match="ranking_b must have each document once; 'b' is in it twice"):
            method("abc", "bab")
        with pytest.raises(ValueError, match="k must be at least 1"):
            method("abc", "abc", 0)

    def test_too_many_lists(self):
        with pytest.raises(ValueError, match=r"k must be at most 12.*team_draft"):
            optimized_interleaving(range(13), range(13))

    @pytest.mark.parametrize("clicked", [[1], [1, 2], [[1, 0]]])
    def test_clicks(self, clicked):
        with pytest.raises(ValueError, match="clicked must have one entry"):
            team_draft("ab", "ba").score(clicked)

    @pytest.mark.parametrize("x", [[1.0], [[1.0, 2.0]], [1.0, np.nan]])
    def test_credits(self, x):
        with pytest.raises(ValueError, match="credits must have one finite number"):
            interleaving_test(x)

    def test_nothing_to_test(self):
        with pytest.raises(ValueError, match="every session is tied"):
            interleaving_test([0, 0, 0])
        with pytest.raises(ValueError, match=r"every session has the credit 0\.1"):
            interleaving_test([0.1, 0.1, 0.1], by="credit")

    def test_options(self):
        with pytest.raises(ValueError, match="by must be"):
            interleaving_test([1, -1], by="clicks")
        with pytest.raises(ValueError, match="level must be below 1"):
            interleaving_test([1, -1], level=95)
        with pytest.raises(ValueError, match=r"preference must be below 0\.5"):
            sessions_needed(0.5, ties=0.5)
        with pytest.raises(ValueError, match=r"power must be above 0\.5"):
            sessions_needed(0.1, power=0.4)
