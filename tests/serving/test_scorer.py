"""Scorers of saved models against their rankers: scores, ranks and probabilities, to the last bit."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from export_rankers import real_queries, training
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scorer_rankers import EXACT, NETWORKS, with_missing

from sinkprop import Queries, SinkPropRanker, serving
from sinkprop.baselines import RegressionRanker
from sinkprop.serving import Scorer

CALIBRATED = [
    ("predict_proba", {}),
    ("predict_proba", {"threshold": 2}),
    ("confidence", {}),
    ("best_set", {"coverage": 0.5}),
    ("shortest_list", {"coverage": 0.5}),
    ("rank_interval", {"coverage": 0.5}),
    ("answers", {"precision": 0.5, "confidence": 0.5}),
    ("expected_rank", {}),
    ("expected_rank", {"calibrated": False}),
    ("top_k_probability", {"k": 3}),
    ("top_k_probability", {"k": 3, "calibrated": False}),
]


def same(found, expected):
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def inputs():
    """Features and query ids: in order, mixed up, few rows, one row, single precision."""
    queries = real_queries()
    mixed = np.random.default_rng(1).permutation(len(queries))[:300]
    yield queries.X, queries.qid
    yield queries.X[mixed], queries.qid[mixed]
    yield queries.X.astype(np.float32), queries.qid
    yield queries.X[:7], queries.qid[:7]
    yield queries.X[:1], queries.qid[:1]


@pytest.mark.parametrize("name", EXACT)
def test_scores_and_ranks_are_those_of_the_ranker_to_the_last_bit(loaded, name):
    ranker, scorer = loaded(name)
    assert scorer.kind == type(ranker).__name__
    assert scorer.n_features == ranker.n_features_in_
    for X, qid in inputs():
        assert same(scorer.predict(X, qid=qid), ranker.predict(X, qid=qid))
        assert same(scorer.rank(X, qid=qid), ranker.rank(X, qid=qid))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_score_like_the_ranker_up_to_rounding_in_single_precision(loaded, name):
    ranker, scorer = loaded(name)
    for X, qid in inputs():
        expected = ranker.predict(X, qid=qid)
        found = scorer.predict(X, qid=qid)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
        assert (found == expected).mean() > 0.98
        assert (scorer.rank(X, qid=qid) == ranker.rank(X, qid=qid)).mean() > 0.98


@pytest.mark.parametrize(
    "name", [n for n in (*EXACT, *NETWORKS) if n in ("mean", "auto", "sinkprop", "boosted") or "missing" in n]
)
def test_missing_values_are_treated_as_by_the_ranker(loaded, name):
    ranker, scorer = loaded(name)
    queries = real_queries()
    X = with_missing(queries.X)
    expected = ranker.predict(X, qid=queries.qid)
    np.testing.assert_allclose(scorer.predict(X, qid=queries.qid), expected, rtol=1e-6, atol=1e-6)
    if name in EXACT:
        assert same(scorer.predict(X, qid=queries.qid), expected)


@pytest.mark.parametrize("name", ["indicator, query", "mean"])
@given(
    X=arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(1, 12), st.just(50)),
        elements=st.floats(-1e6, 1e6, width=32) | st.just(float("nan")),
        fill=st.floats(-10, 10, width=32),
    ),
    seed=st.integers(0, 9),
)
@settings(max_examples=25, deadline=None)
def test_odd_features_have_the_scores_of_the_ranker(loaded, name, X, seed):
    ranker, scorer = loaded(name)
    qid = np.random.default_rng(seed).integers(0, 3, len(X))
    assert same(scorer.predict(X, qid=qid), ranker.predict(X, qid=qid))
    assert same(scorer.rank(np.asfortranarray(X), qid=qid), ranker.rank(X, qid=qid))


@pytest.mark.parametrize(
    "name", ["sinkprop", "partitioned, query", "softrank", "boltzrank, pairs", "boosted"]
)
@pytest.mark.parametrize(("method", "arguments"), CALIBRATED, ids=str)
def test_probabilities_are_those_of_the_ranker_to_the_last_bit(loaded, name, method, arguments):
    ranker, scorer = loaded(name)
    queries = real_queries()
    X, qid = queries.X[:400], queries.qid[:400]
    expected = getattr(ranker, method)(X, qid=qid, **arguments)
    assert same(getattr(scorer, method)(X, qid=qid, **arguments), expected)


@pytest.mark.parametrize("name", ["sinkprop", "beta", "softrank", "softrank, three", "listnet"])
def test_rank_distributions_are_those_of_the_ranker_to_the_last_bit(loaded, name):
    ranker, scorer = loaded(name)
    queries = real_queries()
    X = queries.X[queries.qid == queries.qid[0]]
    for options in ({}, {"calibrated": False}, {"ranks": [1, 3]}, {"calibrated": False, "ranks": [2]}):
        assert same(scorer.rank_distribution(X, **options), ranker.rank_distribution(X, **options))
    if name != "beta":
        assert same(scorer.rank_distribution(X, sigma=0.7), ranker.rank_distribution(X, sigma=0.7))


@pytest.mark.parametrize("name", ["sinkprop", "sinkprop, query", "boltzrank, pairs", "attention", "beta"])
def test_one_query_needs_no_ids(loaded, name):
    ranker, scorer = loaded(name)
    X = real_queries().X[:9]
    expected = ranker.predict(X, qid=np.zeros(9))
    np.testing.assert_allclose(scorer.predict(X), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(scorer.rank(X), ranker.rank(X, qid=np.zeros(9)))
    assert same(scorer.rank(X, group=[4, 5]), scorer.rank(X, qid=[0] * 4 + [1] * 5))
    np.testing.assert_array_equal(scorer.predict(X.tolist()), scorer.predict(X))


def test_documents_with_equal_scores_keep_their_order(loaded):
    _, scorer = loaded("feature")
    X = np.zeros((4, 50))
    np.testing.assert_array_equal(scorer.rank(X), [1, 2, 3, 4])


@pytest.mark.parametrize(
    "name", ["sinkprop", "sinkprop, query", "beta", "boosted", "network, log", "attention"]
)
def test_threads_get_the_same_bits(loaded, name):
    _, shared = loaded(name)
    scorer = serving.loads(_bytes(shared, loaded(name)[0]))  # its calibration has not been read yet
    queries = real_queries()
    parts = [queries.X[queries.qid == q] for q in np.unique(queries.qid)[:8]]
    expected = [(shared.predict(X).tobytes(), shared.rank_interval(X).tobytes()) for X in parts]
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda X: (scorer.predict(X).tobytes(), scorer.rank_interval(X).tobytes()), parts * 4)
        )
    assert found == expected * 4


def _bytes(scorer, ranker):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m")
        ranker.save(path)
        return path.read_bytes()


def test_a_scorer_describes_itself(loaded):
    _, scorer = loaded("sinkprop")
    assert repr(scorer) == "<Scorer: SinkPropRanker, 50 features, calibrated>"
    assert scorer.feature_names is None
    assert scorer.categories == {}
    assert isinstance(scorer, Scorer)


def test_queries_bring_their_own_ids_and_the_order_of_their_features():
    queries = training()
    ranker = SinkPropRanker(penalty=0.01, verbose=False).fit(queries)
    scorer = serving.loads(_bytes(None, ranker))
    assert scorer.feature_names == list(queries.feature_names)
    assert same(scorer.rank(queries), ranker.rank(queries))
    other = dataclasses.replace(queries, X=queries.X[:, ::-1], feature_names=queries.feature_names[::-1])
    assert same(scorer.predict(other), ranker.predict(queries))
    with pytest.raises(ValueError, match="qid must not be given with Queries"):
        scorer.rank(queries, qid=queries.qid)
    renamed = Queries(queries.X, queries.y, queries.qid, feature_names=("x", *queries.feature_names[1:]))
    with pytest.raises(ValueError, match="the features are not those of the model; only one of them has"):
        scorer.rank(renamed)


def test_an_uncalibrated_model_says_what_to_do(tmp_path):
    queries = training()
    ranker = RegressionRanker().fit(queries)
    ranker.save(tmp_path / "m")
    scorer = serving.load(tmp_path / "m")
    assert scorer.calibration_ is None
    with pytest.raises(ValueError, match="predict_proba: the RegressionRanker was saved without"):
        scorer.predict_proba(queries)
    with pytest.warns(UserWarning, match="expected_rank: the RegressionRanker was saved without"):
        found = scorer.expected_rank(queries)
    assert same(found, ranker.expected_rank(queries, calibrated=False))


def test_several_queries_where_one_is_expected(loaded):
    _, scorer = loaded("sinkprop")
    with pytest.raises(ValueError, match="rank_distribution takes one query, but qid has 2"):
        scorer.rank_distribution(np.zeros((2, 50)), qid=["a", "b"])
