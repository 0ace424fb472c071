"""What holds for every baseline: the interface, the awkward cases, the files, the choice among candidates."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import sinkprop
from sinkprop import Annealing, baselines

NEEDS_QID = {
    "check_fit_score_takes_y": "calls score without queries",
    "check_pipeline_consistency": "calls score without queries",
}
NO_WEIGHTS = dict.fromkeys(
    (
        "check_all_zero_sample_weights_error",
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weights_not_overwritten",
    ),
    "a row's weight is an error that says why, unless all are equal",
)


@dataclass(frozen=True)
class Baseline:
    """A ranker with settings that make it quick.

    failing       scikit-learn's checks that it does not pass, with reasons
    row_weights   whether `sample_weight` has a meaning for it
    from_queries  whether it chooses among candidates, by queries held out
    by_row        whether the order of the rows in a query matters, as where ties or draws go by it
    alone         whether `predict` does without qid, as scikit-learn's checks call it
    needs         a package that may not be installed
    """

    make: Callable[..., Any]
    failing: Mapping[str, str] = field(default_factory=lambda: NEEDS_QID)
    row_weights: bool = True
    from_queries: bool = True
    by_row: bool = False
    alone: bool = True
    needs: str | None = None


def smoothrank(**options):
    quick = {"penalty": [1e-4, 1e-2], "annealing": Annealing(4, 1), "max_iter": 8}
    return baselines.SmoothRankRanker(**{**quick, **options})


def listnet(**options):
    return baselines.ListNetRanker(**{"penalty": [1.0, 0.01], **options})


def adarank(**options):
    return baselines.AdaRankRanker(**{"n_rounds": 8, **options})


def softrank(**options):
    quick = {"sigma": [2.0, 0.5], "penalty": [1e-1, 1e-3], "max_iter": 8}
    return baselines.SoftRankRanker(**{**quick, **options})


def boltzrank(**options):
    quick = {"mixing": 0.5, "penalty": [0.3, 0.03], "n_rankings": 30, "n_hidden": 3, "max_iter": 10}
    return baselines.BoltzRankRanker(**{**quick, **options})


def ridge(**options):
    return baselines.RegressionRanker(**{"penalty": [1.0, 0.01], **options})


def trees(objective, **options):
    quick = {"n_estimators": 20, "num_leaves": (4, 8), "learning_rate": 0.2, "min_child_samples": 5}
    return baselines.LightGBMRanker(objective, **{**quick, **options})


STILL_RANKED = {"check_sample_weight_equivalence_on_dense_data": "a document of weight 0 still takes a rank"}
COUNTED = {"check_sample_weight_equivalence_on_dense_data": "a leaf counts a row of weight 2 once"}
BASELINES = {
    "regression": Baseline(baselines.RegressionRanker, from_queries=False),
    "ridge": Baseline(ridge),
    "smoothrank": Baseline(smoothrank, NEEDS_QID | STILL_RANKED),
    "listnet": Baseline(listnet, NEEDS_QID | NO_WEIGHTS, row_weights=False),
    "listnet-top2": Baseline(partial(listnet, top_k=2), NEEDS_QID | NO_WEIGHTS, row_weights=False),
    "adarank": Baseline(adarank, NEEDS_QID | NO_WEIGHTS, row_weights=False),
    "adarank-ranklib": Baseline(
        partial(adarank, variant="ranklib"), NEEDS_QID | NO_WEIGHTS, row_weights=False
    ),
    "softrank": Baseline(softrank, NEEDS_QID | STILL_RANKED),
    "softrank-balanced": Baseline(partial(softrank, balance=True), NEEDS_QID | STILL_RANKED),
    "boltzrank-single": Baseline(boltzrank, NEEDS_QID | NO_WEIGHTS, row_weights=False),
    "boltzrank-pair": Baseline(partial(boltzrank, potential="pair"), {}, row_weights=False, alone=False),
    "lambdamart": Baseline(partial(trees, "lambdarank"), NEEDS_QID | COUNTED, by_row=True, needs="lightgbm"),
    "xendcg-trees": Baseline(
        partial(trees, "rank_xendcg"), NEEDS_QID | COUNTED, by_row=True, needs="lightgbm"
    ),
    "ranknet-trees": Baseline(partial(trees, "ranknet"), NEEDS_QID | COUNTED, needs="lightgbm"),
}
CHOOSING = [name for name, baseline in BASELINES.items() if baseline.from_queries]


def ranking_data(n_queries=30, seed=0, n_features=5):
    """Labels 0 to 2 by the first two features and noise; queries of 1 to 14 documents."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, n_queries)
    qid = np.repeat(np.arange(n_queries), sizes)
    X = rng.normal(size=(len(qid), n_features))
    return X, np.digitize(X @ [2, 1, 0, 0, 0][:n_features] + rng.normal(size=len(qid)), [0.5, 2]), qid


@pytest.fixture(params=BASELINES)
def baseline(request):
    return found(request.param)


def found(name):
    if BASELINES[name].needs is not None:
        pytest.importorskip(BASELINES[name].needs)
    return BASELINES[name]


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.mark.filterwarnings("ignore:fit. no qid was given:UserWarning")
def test_scikit_learns_checks(baseline):
    if not baseline.alone:
        pytest.skip("its scores depend on the query, and these checks call predict without one")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        results = check_estimator(baseline.make(), on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed.keys() == baseline.failing.keys(), failed
    assert sum(r["status"] == "passed" for r in results) >= 40


def test_it_learns(baseline):
    train, test = ranking_data(60, 1), ranking_data(60, 2)
    ranker = baseline.make().fit(*train[:2], qid=train[2])
    chance = sinkprop.evaluate(test[1], np.zeros(len(test[1])), test[2], "ndcg@5")["ndcg@5"]
    ranker.set_params(metric="ndcg@5")
    assert ranker.score(*test[:2], qid=test[2]) > chance + 0.1


def test_rows_in_any_order_and_ids_of_any_kind_make_the_same_ranking(baseline, data):
    X, y, qid = data
    ranks = baseline.make().fit(X, y, qid=qid).rank(X, qid=qid)
    names = np.array([f"query {q}" for q in qid])
    # the queries appear in the same order, so that the same ones are held out
    order = np.argsort(np.arange(len(y)) % 3, kind="stable")
    first = np.array([np.flatnonzero(qid == q)[0] for q in np.unique(qid)])
    order = np.concatenate([first, order[~np.isin(order, first)]])
    if baseline.by_row:  # all queries' first rows, then the second ones
        order = np.argsort(np.arange(len(y)) - first[qid], kind="stable")
    again = baseline.make().fit(X[order], y[order], qid=names[order]).rank(X, qid=names)
    assert_array_equal(again, ranks)
    sizes = np.bincount(qid)
    assert_array_equal(baseline.make().fit(X, y, group=sizes).rank(X, group=sizes), ranks)


@pytest.mark.parametrize("labels", ["none relevant", "all equal", "one relevant"])
def test_queries_that_say_little(baseline, labels):
    X, y, qid = ranking_data(8, 3)
    given = {"none relevant": 0 * y, "all equal": 0 * y + 2, "one relevant": np.eye(1, len(y))[0]}[labels]
    ranker = baseline.make().fit(X, given, qid=qid)
    assert np.isfinite(ranker.predict(X, qid=qid)).all()
    assert np.isfinite(ranker.score(X, given, qid=qid))


def test_one_document_and_one_query(baseline, data):
    X, y, _ = data
    one = baseline.make().fit(X[:1], [1], qid=[7])
    assert_array_equal(one.rank(X[:1], qid=[7]), [1])
    alone = baseline.make().fit(X[:9], y[:9], qid=[1] * 9)
    assert_array_equal(np.sort(alone.rank(X[:9], qid=[1] * 9)), np.arange(1, 10))


def test_tied_documents_share_a_score(baseline, data):
    X, y, qid = data
    ranker = baseline.make().fit(X, y, qid=qid)
    twice = np.repeat(X[:5], 2, axis=0)
    scores = ranker.predict(twice, qid=[0] * 10)
    assert_array_equal(scores[::2], scores[1::2])
    ranks = ranker.rank(twice, qid=[0] * 10)
    assert (ranks[::2] < ranks[1::2]).all()  # the earlier row wins


def test_constant_features_and_fewer_rows_than_features(baseline):
    X, y, qid = ranking_data(3, 4)
    wide = np.concatenate([X, np.ones((len(X), 40)), np.repeat(X, 8, axis=1)], axis=1)
    ranker = baseline.make().fit(wide[:10], y[:10], qid=qid[:10])
    assert np.isfinite(ranker.predict(wide, qid=qid)).all()


def test_single_precision(baseline, data):
    X, y, qid = data
    rounded = X.astype(np.float32)
    double = baseline.make().fit(rounded.astype(np.float64), y, qid=qid)
    single = baseline.make().fit(rounded, y, qid=qid)
    agree = np.mean(single.rank(rounded, qid=qid) == double.rank(rounded.astype(np.float64), qid=qid))
    assert agree > 0.9


def test_the_same_model_again_and_for_any_number_of_threads(baseline, data):
    X, y, qid = data
    first = baseline.make().fit(X, y, qid=qid).predict(X, qid=qid)
    assert_array_equal(baseline.make().fit(X, y, qid=qid).predict(X, qid=qid), first)
    if "n_threads" in baseline.make().get_params():
        for n_threads in (1, 3):
            again = baseline.make(n_threads=n_threads).fit(X, y, qid=qid)
            assert_array_equal(again.predict(X, qid=qid), first)


def test_a_model_file_gives_the_same_ranker(baseline, data, tmp_path):
    X, y, qid = data
    ranker = baseline.make(metric="map", convention="letor").fit(X, y, qid=qid)
    ranker.save(tmp_path / "model.json")
    for again in (type(ranker).load(tmp_path / "model.json"), sinkprop.load_model(tmp_path / "model.json")):
        assert type(again) is type(ranker)
        assert_array_equal(again.predict(X, qid=qid), ranker.predict(X, qid=qid))
        assert_array_equal(again.rank(X, qid=qid), ranker.rank(X, qid=qid))
        assert (again.metric, again.convention) == ("map", "letor")
        assert again.score(X, y, qid=qid) == ranker.score(X, y, qid=qid)
        again.save(tmp_path / "again.json")
        assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()
        clone(again).fit(X, y, qid=qid)
    with pytest.raises(NotFittedError):
        baseline.make().save(tmp_path / "none.json")


def test_a_query_of_weight_zero_does_not_matter(baseline, data):
    X, y, qid = data
    vali = ranking_data(12, 9)
    more = {"eval_set": [vali[:2]], "eval_qid": [vali[2]]}
    kept = qid % 3 > 0
    spoiled = np.where(kept, y, 2 - y)
    weight = {q: float(q % 3 > 0) for q in np.unique(qid)}
    options = {"normalization": "none"} if "normalization" in baseline.make().get_params() else {}
    weighted = baseline.make(**options).fit(X, spoiled, qid=qid, query_weight=weight, **more)
    without = baseline.make(**options).fit(X[kept], y[kept], qid=qid[kept], **more)
    a, b = weighted.predict(X, qid=qid), without.predict(X, qid=qid)
    assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max())


def test_weights_of_rows_count_or_are_refused(baseline, data):
    X, y, qid = data
    weight = np.random.default_rng(0).uniform(0.1, 3, len(y))
    if not baseline.row_weights:
        with pytest.raises(ValueError, match="sample_weight"):
            baseline.make().fit(X, y, qid=qid, sample_weight=weight)
        return
    plain = baseline.make().fit(X, y, qid=qid).predict(X, qid=qid)
    weighted = baseline.make().fit(X, y, qid=qid, sample_weight=weight).predict(X, qid=qid)
    assert not np.array_equal(plain, weighted)


@pytest.mark.parametrize("name", CHOOSING)
def test_validation_queries_choose(name, data):
    X, y, qid = data
    vali = ranking_data(12, 9)
    baseline = found(name)
    ranker = baseline.make().fit(X, y, qid=qid, eval_set=[vali[:2]], eval_qid=[vali[2]])
    assert ranker.fit_result_.validated_on == "12 validation queries"
    crossed = baseline.make(selection="cross-validation")
    crossed.fit(X, y, qid=qid, eval_set=[vali[:2]], eval_qid=[vali[2]])
    assert crossed.fit_result_.validated_on == "5-fold cross-validation over 42 queries"
    with pytest.raises(ValueError, match="method must be"):
        baseline.make(selection="luck").fit(X, y, qid=qid)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": [-1.0] * 12}, "labels|y"),
        ({"y": [1.0] * 11}, "11"),
        ({"qid": [1] * 11}, "11"),
        ({"X": np.full((12, 2), np.inf)}, "X"),
        ({"X": np.ones(12)}, "2D"),
    ],
)
def test_bad_arrays_are_errors(baseline, change, said):
    good = {"X": np.random.default_rng(0).normal(size=(12, 2)), "y": [0, 1, 2] * 4, "qid": [1] * 6 + [2] * 6}
    given = good | change
    with pytest.raises(ValueError, match=said):
        baseline.make().fit(given["X"], given["y"], qid=given["qid"])


def test_a_wrong_metric_or_convention_fails_before_the_work(baseline, data):
    X, y, qid = data
    for wrong in ({"metric": "ndgc@10"}, {"convention": "leotr"}):
        with pytest.raises(ValueError, match=r"Did you mean|not known|convention"):
            baseline.make(**wrong).fit(X, y, qid=qid)
