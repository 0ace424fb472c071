"""`Queries` in place of arrays, at every door of every ranker: the same model, scores and metrics."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sinkprop import Queries, Selection, SinkPropRanker, baselines, evaluate
from sinkprop.gbdt import BoostedRanker

CHOICE = Selection("validation")
MAKE = {
    "SinkPropRanker": lambda: SinkPropRanker(penalty=0.01, selection=CHOICE, verbose=False),
    "by query": lambda: SinkPropRanker(penalty=0.01, selection=CHOICE, normalization="query", verbose=False),
    "BoostedRanker": lambda: BoostedRanker(n_estimators=5, verbose=False),
    "NeuralRanker": lambda: pytest.importorskip("sinkprop.torch").NeuralRanker(max_epochs=2, verbose=False),
    "RegressionRanker": baselines.RegressionRanker,
    "ListNetRanker": lambda: baselines.ListNetRanker(verbose=False),
    "SmoothRankRanker": lambda: baselines.SmoothRankRanker(penalty=0.01, selection=CHOICE, verbose=False),
    "SoftRankRanker": lambda: baselines.SoftRankRanker(penalty=0.01, selection=CHOICE, verbose=False),
    "AdaRankRanker": lambda: baselines.AdaRankRanker(verbose=False),
    "BoltzRankRanker": lambda: baselines.BoltzRankRanker(verbose=False),
    "FeatureRanker": baselines.FeatureRanker,
    "LightGBMRanker": lambda: baselines.LightGBMRanker(n_estimators=5, num_leaves=7, verbose=False),
    "XGBoostRanker": lambda: baselines.XGBoostRanker(n_estimators=5, num_leaves=7, verbose=False),
    "CatBoostRanker": lambda: baselines.CatBoostRanker(n_estimators=5, depth=3, verbose=False),
}
NAMES = ("a", "b", "c", "d")


def queries(n_queries=8, seed=0, names=None, missing=False):
    """Unsorted queries: rows of all of them in turn."""
    rng = np.random.default_rng(seed)
    qid = np.repeat([f"q{i}" for i in range(n_queries)], 9)
    X = rng.normal(size=(len(qid), 4))
    y = np.digitize(X @ [1, 0.5, 0, -1] + rng.normal(size=len(qid)), [0, 1.5]).astype(float)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    order = rng.permutation(len(qid))
    return Queries(X[order], y[order], qid[order], feature_names=names, allow_nan=missing)


@pytest.mark.parametrize("name", MAKE)
def test_queries_are_arrays_with_their_ids(name):
    train, vali, test = queries(), queries(5, seed=1), queries(6, seed=2)
    ours = MAKE[name]().fit(train, eval_set=vali)
    theirs = MAKE[name]().fit(
        train.X, train.y, qid=train.qid, eval_set=[(vali.X, vali.y)], eval_qid=[vali.qid]
    )
    expected = theirs.predict(test.X, qid=test.qid)
    assert_array_equal(ours.predict(test), expected)
    assert_array_equal(ours.rank(test), theirs.rank(test.X, qid=test.qid))
    assert ours.score(test) == theirs.score(test.X, test.y, qid=test.qid)
    weight = {q: i for i, q in enumerate(test.groups.queries.tolist())}
    assert ours.score(test, query_weight=weight) == theirs.score(
        test.X, test.y, qid=test.qid, query_weight=weight
    )
    assert evaluate(test, expected, metrics="ndcg@3,map") == evaluate(
        test.y, expected, test.qid, "ndcg@3,map"
    )


def test_several_evaluation_sets_of_both_kinds():
    train, one, other = queries(), queries(4, seed=1), queries(3, seed=2)
    make = MAKE["SinkPropRanker"]
    pairs = [(one.X, one.y), (other.X, other.y)]
    expected = make().fit(train, eval_set=pairs, eval_qid=[one.qid, other.qid]).coef_
    assert_array_equal(make().fit(train, eval_set=[one, other]).coef_, expected)
    assert_array_equal(make().fit(train, eval_set=[one, pairs[1]], eval_qid=[other.qid]).coef_, expected)
    assert_array_equal(make().fit(train, eval_set=[pairs[0], other], eval_qid=[one.qid]).coef_, expected)
    with pytest.raises(ValueError, match=r"eval_qid and eval_group need an eval_set: \[\(X, y\)\]"):
        make().fit(train, eval_set=one, eval_qid=[one.qid])


def test_the_distribution_over_ranks():
    train = queries()
    ranker = MAKE["SinkPropRanker"]().fit(train)
    plain = {"calibrated": False}  # too few queries for a calibration
    expected = ranker.expected_rank(train.X, qid=train.qid, **plain)
    assert_array_equal(ranker.expected_rank(train, **plain), expected)
    one = train.select(["q3"])
    assert_array_equal(ranker.rank_distribution(one, **plain), ranker.rank_distribution(one.X, **plain))
    with pytest.raises(ValueError, match=r"takes one query, but qid has 8"):
        ranker.rank_distribution(train)


@pytest.mark.parametrize("name", ["SinkPropRanker", "BoostedRanker", "NeuralRanker", "RegressionRanker"])
def test_features_are_found_by_their_names(name):
    train, vali, test = (queries(6, seed, NAMES) for seed in range(3))

    def turned(q):
        columns = [2, 0, 3, 1]
        return Queries(q.X[:, columns], q.y, q.qid, feature_names=[NAMES[i] for i in columns])

    ranker = MAKE[name]().fit(train, eval_set=vali)
    assert ranker.feature_names_in_.tolist() == list(NAMES)
    assert_array_equal(ranker.predict(turned(test)), ranker.predict(test))
    other = MAKE[name]().fit(train, eval_set=turned(vali))
    assert_array_equal(other.predict(test), ranker.predict(test))
    unnamed = Queries(test.X, test.y, test.qid)
    assert_array_equal(ranker.predict(unnamed), ranker.predict(test))
    wrong = Queries(test.X, test.y, test.qid, feature_names=["a", "b", "c", "e"])
    with pytest.raises(ValueError, match=r"^the queries: the features are not those of the model; .* 'd'"):
        ranker.predict(wrong)


def test_missing_values_go_where_they_are_taken():
    train, test = queries(missing=True), queries(4, seed=1, missing=True)
    ours = MAKE["BoostedRanker"]().fit(train, eval_set=test)
    theirs = MAKE["BoostedRanker"]().fit(
        train.X, train.y, qid=train.qid, eval_set=[(test.X, test.y)], eval_qid=[test.qid]
    )
    assert_array_equal(ours.predict(test), theirs.predict(test.X))
    for name in ("SinkPropRanker", "RegressionRanker", "NeuralRanker"):
        ours = MAKE[name]().fit(train, eval_set=test)
        theirs = MAKE[name]().fit(
            train.X, train.y, qid=train.qid, eval_set=[(test.X, test.y)], eval_qid=[test.qid]
        )
        assert_array_equal(ours.predict(test), theirs.predict(test.X))
        with pytest.raises(ValueError, match=r"X must be finite, without NaN.*missing='indicator'"):
            MAKE[name]().set_params(missing="error").fit(train)
    assert np.isnan(train.select(["q1", "q2"]).X).any()
    with pytest.raises(ValueError, match=r"X must be finite, without NaN.* Pass allow_nan=True"):
        Queries(train.X, train.y, train.qid)
    with pytest.raises(ValueError, match=r"X must be finite, or NaN for missing; .* holds inf"):
        Queries(np.where(np.isnan(train.X), np.inf, train.X), train.y, train.qid, allow_nan=True)


@pytest.mark.parametrize("name", ["SinkPropRanker", "BoostedRanker", "NeuralRanker", "FeatureRanker"])
def test_nothing_is_given_beside_them(name):
    train = queries()
    for extra in ({"y": train.y}, {"qid": train.qid}, {"group": [72]}):
        with pytest.raises(ValueError, match=f"fit: give no {next(iter(extra))} with Queries, which have"):
            MAKE[name]().fit(train, **extra)
    ranker = MAKE[name]().fit(train, sample_weight=np.ones(len(train)))
    for call, extra in (
        (ranker.predict, {"qid": train.qid}),
        (ranker.rank, {"group": [72]}),
        (ranker.score, {"y": train.y}),
    ):
        with pytest.raises(ValueError, match=f"^{next(iter(extra))} is already in the Queries"):
            call(train, **extra)
    with pytest.raises(ValueError, match="do not pass qid with Queries"):
        evaluate(train, train.y, train.qid)
    with pytest.raises(ValueError, match="4 features as input"):
        ranker.predict(Queries(train.X[:, :3], train.y, train.qid))
