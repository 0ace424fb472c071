"""AdaRankRanker: rounds worked by hand, both variants against plain loops, and awkward cases."""

from dataclasses import replace
from math import e, exp, log, log2, sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from ohsumed import five_fold_means, needs_ohsumed, published

from sinkprop import evaluate, load_model
from sinkprop.baselines import AdaRankRanker, FeatureRanker
from sinkprop.baselines.adarank import paper_rounds, ranklib_rounds
from sinkprop.estimator.selection import Selection
from sinkprop.metrics.conventions import CONVENTIONS

# Three queries of two documents, the first of which is relevant. A feature that ranks it first has an average
# precision of 1, and one that ranks it last of 1/2.
TWO = np.repeat([1, 2, 3], 2)
FIRST = [1, 0, 1, 0, 1, 0]


def features(*right):
    """Feature columns with 1 for the document that each ranks first: right[f][q] says whether it should."""
    return (
        np.array([[float(good), float(not good)] for column in right for good in column])
        .reshape(len(right), -1)
        .T
    )


def all_candidates(ranker, X, y, qid):
    """The weights of every candidate, trained on all of the queries."""
    seen = {}

    class Spy(AdaRankRanker):
        def _candidates(self, problem, seed):
            for candidate in super()._candidates(problem, seed):
                seen.setdefault(id(problem), []).append(candidate)
                yield candidate

    made = Spy(**ranker.get_params())
    made.fit(X, y, qid=qid, eval_set=[(X, y)], eval_qid=[qid])
    (candidates,) = seen.values()
    return np.array([candidate.model for candidate in candidates])


def test_the_papers_rounds_by_hand():
    """E is (1, 1, 1/2) for the feature A and (1/2, 1, 1) for B.

    Round 1: P = (1/3, 1/3, 1/3), both have the mean 5/6, and the first is taken with the weight
    1/2 ln((11/6) / (1/6)) = 1/2 ln 11.
    Round 2: P is (e^-1, e^-1, e^-1/2) / Z with Z = 2 e^-1 + e^-1/2. A has the mean 1 - e^-1/2 / (2 Z), B has
    1 - e^-1 / (2 Z), which is more. Its weight is 1/2 ln((2 - x) / x) with x = e^-1 / (2 Z) =
    1 / (4 + 2 sqrt e), that is 1/2 ln(7 + 4 sqrt e), which is above 1/2 ln 11: the sum ranks as B does, and
    its E is (1/2, 1, 1).
    Round 3: P is (e^-1/2, e^-1, e^-1) / Z: the mirror image of round 2. A is taken, with the same weight.
    """
    X = features([True, True, False], [False, True, True])
    a, b = log(11) / 2, log(7 + 4 * sqrt(e)) / 2
    assert b > a
    ranker = AdaRankRanker(n_rounds=3)
    found = all_candidates(ranker, X, FIRST, TWO)
    assert_allclose(found, [[a, 0], [a, b], [a + b, b]], rtol=1e-14)
    ranker.fit(X, FIRST, qid=TWO, eval_set=[(X, FIRST)], eval_qid=[TWO])
    assert [trial.setting for trial in ranker.fit_result_.trials] == [{"round": n} for n in (1, 2, 3)]
    assert_allclose([trial.value for trial in ranker.fit_result_.trials], 5 / 6, rtol=1e-15)
    assert ranker.fit_result_.criterion == "map"
    assert_allclose(ranker.coef_, [a, 0])  # the first of equals


def test_ranklibs_rounds_by_hand():
    """The same features. The distributions are (11^(-E/2)) after round 1, and times exp(-b E) after round 2.

    Round 2: p_1 = 11^-1/2 / (2 * 11^-1/2 + 11^-1/4) = 1 / (2 + 11^1/4) is what B gets half wrong, so that its
    weight is 1/2 ln((2 - p_1 / 2) / (p_1 / 2)) = 1/2 ln(4 / p_1 - 1) = 1/2 ln(7 + 4 * 11^1/4).
    Round 3: with r = 7 + 4 * 11^1/4 and E = (1/2, 1, 1) of the sum, P is (11^-1/2 r^-1/4, 11^-1/2 r^-1/2,
    11^-1/4 r^-1/2) / Z. r > 11, so that the first is above the third, and A is taken.
    """
    X = features([True, True, False], [False, True, True])
    a, r = log(11) / 2, 7 + 4 * 11**0.25
    b = log(r) / 2
    P = np.array([11**-0.5 * r**-0.25, 11**-0.5 * r**-0.5, 11**-0.25 * r**-0.5])
    c = log(4 / (P[2] / P.sum()) - 1) / 2
    found = all_candidates(AdaRankRanker(n_rounds=3, variant="ranklib"), X, FIRST, TWO)
    assert_allclose(found, [[a, 0], [a, b], [a + c, b]], rtol=1e-14)


def test_ranklib_sets_a_strong_feature_aside_where_the_paper_takes_it_forever():
    """A: (1, 1, 1/2), B: (1/2, 1/2, 1).

    The paper's: A with 1/2 ln 11, then P = (e^-1, e^-1, e^-1/2) / Z, under which A has the mean
    1 - e^-1/2 / (2 Z) = 0.774 and B 1 - e^-1 / Z = 0.726. A again; the sum ranks as before, and nothing
    ever changes.
    RankLib's: A twice, so its round is undone and it is set aside; B with the mean 2/3 and the weight
    1/2 ln 5, twice, so it goes the same way. Nothing is left. B comes back, the first model that is kept,
    and repeats without effect until it is left out; then A comes back.
    """
    X = features([True, True, False], [False, False, True])
    paper = all_candidates(AdaRankRanker(n_rounds=10), X, FIRST, TWO)
    x = exp(-0.5) / (2 * (2 * exp(-1) + exp(-0.5)))
    again = log((2 - x) / x) / 2
    assert_allclose(paper[:, 0], log(11) / 2 + again * np.arange(10), rtol=1e-13)
    assert_array_equal(paper[:, 1], 0)
    ranklib = all_candidates(AdaRankRanker(n_rounds=30, variant="ranklib"), X, FIRST, TWO)
    assert_allclose(ranklib[0], [0, log(5) / 2], rtol=1e-14)
    # five more without effect, then it is left out, and A comes back
    assert_array_equal(ranklib[:6, 0], 0)
    assert (np.diff(ranklib[:6, 1]) > 0).all()
    assert ranklib[6, 0] > 0
    assert ranklib[6, 1] == ranklib[5, 1]


# ---- Plain loops over lists, as the oracle


def average_precision(labels):
    hits, total = 0, 0.0
    for rank, label in enumerate(labels, 1):
        if label >= 1:
            hits += 1
            total += hits / rank
    return total / hits if hits else 0.0


def ndcg_at_3(labels):
    if len(labels) < 3:
        return 0.0
    discounts = [1, 1, 1 / log2(3)]
    best = sum((2**r - 1) * d for r, d in zip(sorted(labels, reverse=True), discounts, strict=False))
    return sum((2**r - 1) * d for r, d in zip(labels, discounts, strict=False)) / best if best else 0.0


MEASURES = {"map": average_precision, "ndcg@3": ndcg_at_3}


def performance(queries, w, measure):
    """The measure of each query's labels in the order of falling w x; of equals the first stays first."""
    found = []
    for rows, labels in queries:
        scores = [sum(a * b for a, b in zip(w, row, strict=True)) for row in rows]
        order = sorted(range(len(rows)), key=lambda i: -scores[i])
        found.append(MEASURES[measure]([labels[i] for i in order]))
    return found


def unit(feature, n):
    return [float(i == feature) for i in range(n)]


def alpha(P, E):
    right = sum(p * (1 + x) for p, x in zip(P, E, strict=True))
    return 0.5 * log(right / sum(p * (1 - x) for p, x in zip(P, E, strict=True)))


def naive_paper(queries, n_features, measure, n_rounds, weight):
    total = sum(weight)
    P, w, found = [c / total for c in weight], [0.0] * n_features, []
    for _ in range(n_rounds):
        each = [performance(queries, unit(f, n_features), measure) for f in range(n_features)]
        means = [sum(p * x for p, x in zip(P, E, strict=True)) for E in each]
        best = means.index(max(means))
        w[best] += alpha(P, each[best])
        found.append(list(w))
        P = [c * exp(-x) for c, x in zip(weight, performance(queries, w, measure), strict=True)]
        P = [p / sum(P) for p in P]
    return found


def naive_ranklib(queries, n_features, measure, n_rounds, tolerance, events=None):
    """RankLib's order of events, on lists of weak rankers, with distributions that are not normalized."""
    events = set() if events is None else events
    chosen = []  # (feature, weight)
    state = {"P": [1 / len(queries)] * len(queries), "score": -1.0, "latest": None, "count": 0, "t": 1}
    saved = {"P": list(state["P"]), "score": -1.0}
    queue, removed, snapshots = [], set(), []
    each = [performance(queries, unit(f, n_features), measure) for f in range(n_features)]

    def weights():
        w = [0.0] * n_features
        for f, a in chosen:
            w[f] += a
        return w

    def phase(enqueue):
        while state["t"] <= n_rounds:
            pool = [f for f in range(n_features) if f not in queue and f not in removed]
            if not pool:
                events.add("none left")
                return
            means = {f: sum(p * x for p, x in zip(state["P"], each[f], strict=True)) for f in pool}
            best = max(pool, key=lambda f: means[f])
            if enqueue and best == state["latest"]:
                events.add("set aside")
                queue.append(best)
                chosen.pop()
                snapshots.clear()
                state.update(P=list(saved["P"]), score=saved["score"])
                state["t"] += 1
                continue
            if enqueue:
                state["latest"] = best
                saved.update(P=list(state["P"]), score=state["score"])
            a = alpha(state["P"], each[best])
            chosen.append((best, a))
            now = performance(queries, weights(), measure)
            score = sum(now) / len(now)
            if not enqueue:
                same_again = score == state["score"] and best == state["latest"]
                state["count"] = state["count"] + 1 if same_again else 0
                if not same_again:
                    removed.clear()
                elif state["count"] == 5:
                    events.add("left out")
                    state["count"] = 0
                    removed.add(best)
                state["latest"] = best
            snapshots.append(weights())
            if score + tolerance - state["score"] <= 0:
                events.add("undone")
                chosen.pop()
                return
            state["score"] = score
            state["P"] = [p * exp(-a * x) for p, x in zip(state["P"], now, strict=True)]
            state["t"] += 1

    phase(True)
    while queue:
        queue.pop()
        phase(False)
    return (snapshots + [weights()] * n_rounds)[:n_rounds]


def problem(seed, n_queries=9, n_features=5):
    """Whole numbers as features: many ties."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, n_queries)
    qid = np.repeat(np.arange(n_queries), sizes)
    X = rng.integers(0, 6, (len(qid), n_features)) + (seed % 2) * rng.normal(size=(len(qid), n_features))
    latent = X[:, 0] + X[:, 1] - 0.5 * X[:, 2] + rng.normal(0, 3, len(qid))
    y = np.digitize(latent, [5.0, 9.0])
    queries = [(X[qid == q].tolist(), y[qid == q].tolist()) for q in range(n_queries)]
    return X, y, qid, queries


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("seed", range(12))
def test_the_papers_variant_against_plain_loops(seed, measure):
    X, y, qid, queries = problem(seed)
    found = all_candidates(AdaRankRanker(measure=measure, n_rounds=12, convention="letor"), X, y, qid)
    assert_allclose(found, naive_paper(queries, 5, measure, 12, [1.0] * 9), rtol=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("seed", range(12))
def test_ranklibs_variant_against_plain_loops(seed, measure):
    X, y, qid, queries = problem(seed)
    settings = {"variant": "ranklib", "n_rounds": 40, "tolerance": 0.01, "convention": "letor"}
    ranker = AdaRankRanker(measure=measure, **settings)
    found = all_candidates(ranker, X, y, qid)
    assert_allclose(found, naive_ranklib(queries, 5, measure, 40, 0.01), rtol=1e-9)


def test_the_problems_above_meet_every_rule_of_ranklib():
    events = set()
    for seed in range(12):
        for measure in MEASURES:
            naive_ranklib(problem(seed)[3], 5, measure, 40, 0.01, events)
    assert events == {"set aside", "left out", "undone", "none left"}


def test_query_weights_count_as_repeated_queries():
    X, y, qid, queries = problem(3)
    weight = [1, 3, 1, 2, 1, 1, 2, 1, 1]
    found = naive_paper(queries, 5, "map", 8, [float(c) for c in weight])
    E = np.array([performance(queries, unit(f, 5), "map") for f in range(5)]).T
    rounds = paper_rounds(E, lambda v: np.array(performance(queries, v, "map")), np.array(weight, float), 8)
    assert_allclose([v for v, _ in rounds], found, rtol=1e-12)
    for variant in ("paper", "ranklib"):
        ranker = AdaRankRanker(n_rounds=1, variant=variant)
        weighted = ranker.fit(X, y, qid=qid, query_weight=weight).coef_
        rows = np.concatenate([np.flatnonzero(qid == q) for q in range(9) for _ in range(weight[q])])
        copies = [
            f"{q} {i}" for q in range(9) for i in range(weight[q]) for _ in range(int((qid == q).sum()))
        ]
        assert_allclose(ranker.fit(X[rows], y[rows], qid=copies).coef_, weighted, rtol=1e-12)
    with pytest.raises(ValueError, match="AdaRankRanker takes no sample_weight"):
        AdaRankRanker().fit(X, y, qid=qid, sample_weight=np.arange(1.0, len(y) + 1))


# ---- What users meet


def ranking_data(n_queries=40, seed=0):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), 15)
    X = rng.normal(size=(len(qid), 4))
    latent = X[:, 0] + X[:, 1] - X[:, 3] + 0.3 * rng.normal(size=len(qid))
    return X, np.digitize(latent, [0.5, 1.5]).astype(float), qid


def test_the_reverse_direction_is_an_option():
    X, y, qid = ranking_data()
    one_way = AdaRankRanker(variant="ranklib").fit(X, y, qid=qid)
    both_ways = AdaRankRanker(variant="ranklib", both_directions=True).fit(X, y, qid=qid)
    assert (one_way.coef_ >= 0).all()
    assert both_ways.coef_[3] < 0
    test = ranking_data(200, seed=1)
    scores = [r.score(*test[:2], qid=test[2]) for r in (one_way, both_ways)]
    assert scores[1] > scores[0] + 0.05
    reversed_only = AdaRankRanker(n_rounds=1, both_directions=True).fit(-X[:, :1], y, qid=qid)
    assert reversed_only.coef_[0] < 0


def test_the_sum_is_above_its_best_feature_and_rounds_are_chosen_by_validation():
    X, y, qid = ranking_data()
    Xv, yv, qv = ranking_data(seed=2)
    ranker = AdaRankRanker(measure="ndcg@10", variant="ranklib", both_directions=True)
    ranker.fit(X, y, qid=qid, eval_set=[(Xv, yv)], eval_qid=[qv])
    r = ranker.fit_result_
    assert len(r.trials) == 500
    assert r.criterion == "ndcg@10"
    assert r.validated_on == "40 validation queries"
    assert r.chosen.criterion == max(trial.criterion for trial in r.trials)
    assert r.chosen.criterion == pytest.approx(ranker.score(Xv, yv, qid=qv), rel=1e-12)
    by_another = AdaRankRanker(selection=Selection("validation", criterion="p@3")).fit(X, y, qid=qid)
    assert by_another.fit_result_.criterion == "p@3"
    test = ranking_data(200, seed=1)
    best = FeatureRanker(metric="ndcg@10").fit(X, y, qid=qid)
    assert ranker.score(*test[:2], qid=test[2]) > best.score(*test[:2], qid=test[2]) + 0.05


def test_a_perfect_feature_has_a_large_but_finite_weight():
    X = features([True, True, True], [False, True, False])
    ranker = AdaRankRanker(n_rounds=1).fit(X, FIRST, qid=TWO)
    assert_allclose(ranker.coef_, [log(2e6) / 2, 0], rtol=1e-14)
    assert 7.2 < ranker.coef_[0] < 7.3
    for variant in ("paper", "ranklib"):
        many = AdaRankRanker(variant=variant).fit(X, FIRST, qid=TWO)
        assert np.isfinite(many.coef_).all()
        assert many.score(X, FIRST, qid=TWO) == 1
        assert many.set_params(metric="map").score(X, FIRST, qid=TWO) == 1


def test_tied_documents_rank_as_the_convention_says():
    """A feature tied in every query but one is as good as the file's order, unless ties are averaged."""
    tied = np.array([0.5, 0.5, 0.5, 0.5, 1.0, 0.0])
    right = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    X = np.column_stack([tied, right])
    assert_array_equal(AdaRankRanker(n_rounds=1).fit(X, FIRST, qid=TWO).coef_[1], 0)  # E = (1, 1, 1)
    averaged = AdaRankRanker(n_rounds=1, convention=replace(CONVENTIONS["letor"], ties="average"))
    # E = (3/4, 3/4, 1) and (1, 1/2, 1): equal means, so the first; its weight is 1/2 ln((11/6) / (1/6))
    assert_allclose(averaged.fit(X, FIRST, qid=TWO).coef_, [log(11) / 2, 0])


def test_constant_features_take_no_part():
    X, y, qid = ranking_data(10)
    by_label = np.lexsort([-y, qid])  # file order is the best order
    constant = np.column_stack([qid, np.full(len(y), 3.0), X])[by_label]  # the first is so within queries
    for variant in ("paper", "ranklib"):
        ranker = AdaRankRanker(variant=variant).fit(constant, y[by_label], qid=qid)
        assert_array_equal(ranker.coef_[:2], 0)
        assert ranker.coef_[2:].any()
    nothing_else = AdaRankRanker(n_rounds=3).fit(constant[:, :2], y[by_label], qid=qid)
    assert_array_equal(nothing_else.rank(constant[:, :2], qid=qid), np.tile(np.arange(1, 16), 10))


@pytest.mark.parametrize("variant", ["paper", "ranklib"])
def test_awkward_data(variant):
    ranker = AdaRankRanker(n_rounds=10, variant=variant)
    one_document = ranker.fit([[1.0], [2.0], [0.5]], [1, 0, 2], qid=[1, 2, 3])
    assert np.isfinite(one_document.coef_).all()
    X, y, qid = ranking_data(6)
    nothing_relevant = ranker.fit(X, np.zeros(len(y)), qid=qid)
    assert_array_equal(nothing_relevant.coef_, 0)
    single = ranker.fit(X.astype(np.float32), y, qid=qid)
    assert_allclose(single.coef_, ranker.fit(X.astype(np.float32).astype(float), y, qid=qid).coef_, rtol=1e-6)
    one_feature = ranker.fit(X[:, :1], y, qid=qid)
    assert one_feature.coef_[0] > 0
    order = np.argsort(np.arange(len(y)) % 7, kind="stable")
    ids = [f"q{q}" for q in qid[order]]
    alone = {"n_rounds": 1, "variant": variant}
    assert_allclose(
        AdaRankRanker(**alone).fit(X[order], y[order], qid=ids).coef_,
        AdaRankRanker(**alone).fit(X, y, qid=qid).coef_,
        rtol=1e-13,
    )


def test_queries_that_the_convention_leaves_out_do_not_count():
    X, y, qid = ranking_data(10)
    empty = np.isin(qid, [2, 5])
    skip = replace(CONVENTIONS["letor"], empty="skip")
    with_them = AdaRankRanker(n_rounds=1, convention=skip).fit(X, np.where(empty, 0, y), qid=qid)
    without = AdaRankRanker(n_rounds=1).fit(X[~empty], y[~empty], qid=qid[~empty])
    assert_allclose(with_them.coef_, without.coef_, rtol=1e-13)


def test_weights_that_leave_a_part_of_the_queries_without_any():
    X, y, qid = ranking_data(4)
    ranker = AdaRankRanker(n_rounds=4, selection=Selection("cross-validation", n_splits=2))
    ranker.fit(X, y, qid=qid, query_weight=[1, 0, 0, 0])
    assert np.isfinite(ranker.coef_).all()


def test_features_on_other_scales_need_normalization():
    X, y, qid = ranking_data()
    wide = X * [1.0, 1000.0, 1.0, 1.0]
    test = ranking_data(200, seed=1)
    Xt = test[0] * [1.0, 1000.0, 1.0, 1.0]
    scores = {}
    for kind in ("none", "standard", "query"):
        ranker = AdaRankRanker(measure="ndcg@10", normalization=kind).fit(wide, y, qid=qid)
        scores[kind] = ranker.score(Xt, test[1], qid=test[2])
    assert scores["standard"] > scores["none"] + 0.1
    assert scores["query"] > scores["none"] + 0.1


def test_saved_and_loaded(tmp_path):
    X, y, qid = ranking_data()
    ranker = AdaRankRanker(measure="ndcg@5", variant="ranklib", both_directions=True, n_rounds=7)
    ranker.fit(X, y, qid=qid).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded, AdaRankRanker)
    assert_array_equal(loaded.predict(X), ranker.predict(X))
    assert loaded.fit_result_.trials == ranker.fit_result_.trials
    assert loaded.get_params() == ranker.get_params()


def test_rounds_that_end_with_one_undone_keep_what_there_was():
    """With two rounds RankLib would be left with nothing where the second undoes the first."""
    E = np.array([[1.0, 0.5], [1.0, 0.5], [0.5, 1.0]])
    found = list(ranklib_rounds(E, lambda v: E[:, int(np.argmax(v))], np.ones(3), 2, 0.002))
    assert len(found) == 2
    assert_allclose([v for v, _ in found], [[log(11) / 2, 0]] * 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"measure": "ndgc@10"}, "metric 'ndgc@10' is not known"),
        ({"measure": "dcg@10"}, r"measure must have values in \[0, 1\].*'dcg@10' is"),
        ({"variant": "java"}, "variant must be 'paper' or 'ranklib'"),
        ({"n_rounds": 0, "variant": "ranklib"}, "n_rounds must be at least 1"),
        ({"n_rounds": 0}, "n_rounds must be at least 1"),
        ({"tolerance": -0.1}, "tolerance must be a number, not below 0"),
        ({"normalization": "max"}, "normalization must be"),
        ({"selection": "luck"}, "method must be"),
    ],
)
def test_wrong_parameters(parameters, message):
    X, y, qid = ranking_data(10)
    with pytest.raises(ValueError, match=message):
        AdaRankRanker(**parameters).fit(X, y, qid=qid)


@needs_ohsumed
@pytest.mark.parametrize(("measure", "row"), [("map", "AdaRank-MAP"), ("ndcg@5", "AdaRank-NDCG")])
def test_the_published_rows_of_ohsumed(measure, row):
    assert_allclose(five_fold_means(lambda: AdaRankRanker(measure=measure)), published(row), atol=0.015)


def test_every_measure_with_values_from_0_to_1():
    X, y, qid = ranking_data(12)
    for measure in ("p@5", "recall@5", "hit@3", "mrr", "err@10", "meanndcg", "map@5", "rbp(threshold=1)@0.8"):
        ranker = AdaRankRanker(measure=measure, n_rounds=3).fit(X, y, qid=qid)
        first = ranker.fit_result_.trials[0].value
        assert 0 < first <= 1
        assert evaluate(y, ranker.predict(X), qid, metrics=measure)[measure] > 0
