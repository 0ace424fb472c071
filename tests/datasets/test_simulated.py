"""Simulated queries: their bits, their shape, and what their labels depend on."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkprop import evaluate
from sinkprop.datasets import make_ranking

KINDS = ("graded", "binary", "clicks")
ONLY_THE_QUERYS = ("words", "rarity", "frequency", "navigational", "news", "noise3", "noise8")


def digest(queries) -> str:
    found = hashlib.sha256()
    for array, kind in ((queries.X, "<f8"), (queries.y, "<f8"), (queries.qid, "<i8")):
        found.update(np.ascontiguousarray(array, dtype=kind).tobytes())
    return found.hexdigest()[:32]


# computed once: another machine, or another version of NumPy, has the same
DIGESTS = {
    "graded": "a2b26eedf48205c1dd69594659238d2c",
    "binary": "0b1b4a621f6a61ed4b7df6fd900e595d",
    "clicks": "d1053fe8f82a563c522726127a52abf5",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_arguments_are_the_same_bits_everywhere(kind):
    assert digest(make_ranking(50, labels=kind, random_state=3)) == DIGESTS[kind]


def test_another_seed_is_other_data():
    one, other = make_ranking(20, random_state=1), make_ranking(20, random_state=2)
    assert digest(one) == digest(make_ranking(20, random_state=1)) != digest(other)


def test_the_shape_of_the_default():
    queries = make_ranking()
    sizes = np.diff(queries.groups.offsets)
    assert queries.n_queries == 2000
    assert (sizes.min(), sizes.max()) == (5, 120)
    assert 38 < sizes.mean() < 41
    assert queries.groups.rows is None
    assert queries.qid[0] == 1
    assert queries.qid[-1] == 2000
    assert len(set(queries.feature_names)) == queries.n_features == 44
    shares = [np.mean(queries.y == grade) for grade in range(5)]
    np.testing.assert_allclose(shares, [0.60, 0.22, 0.11, 0.05, 0.02], atol=1e-4)
    relevant = np.add.reduceat(queries.y > 0, queries.groups.offsets[:-1])
    assert 0 < np.mean(relevant == 0) < 0.1  # some queries have nothing to find


def test_binary_labels_are_the_best_few():
    queries = make_ranking(1000, labels="binary")
    relevant = np.add.reduceat(queries.y, queries.groups.offsets[:-1])
    np.testing.assert_allclose([np.mean(relevant == n) for n in (1, 2, 3)], [0.7, 0.2, 0.1], atol=0.04)
    assert set(queries.y.tolist()) == {0.0, 1.0}


def test_clicks_are_few_and_favour_what_was_shown_first():
    queries = make_ranking(1000, labels="clicks", noise=0)
    assert set(queries.y.tolist()) == {0.0, 1.0}
    assert 0.02 < queries.y.mean() < 0.12
    # with the same relevance the older ranker, of the body's match, is nearer to the clicks than to the best
    best = make_ranking(1000, labels="binary", noise=0)
    body = queries.feature_names.index("body_bm25")
    old, new = (
        evaluate(q.y, q.X[:, body], q.qid, metrics=["mrr"], convention="standard")["mrr"]
        for q in (queries, best)
    )
    assert old > new


def test_kinds_of_features():
    queries = make_ranking(300)
    X = dict(zip(queries.feature_names, queries.X.T, strict=True))
    starts = queries.groups.offsets[:-1]
    for name, column in X.items():
        constant = np.all(np.maximum.reduceat(column, starts) == np.minimum.reduceat(column, starts))
        assert constant == (name in ONLY_THE_QUERYS), name
        assert len(np.unique(column)) > 1, name
    for name in ("exact", "home", "spam", "language", "anchor_there", "noise4"):
        assert set(X[name].tolist()) == {0.0, 1.0}, name
    for name in ("links", "visits", "length", "age", "body_count", "frequency"):
        assert np.all(X[name] == np.floor(X[name])), name
        assert X[name].max() > 30 * np.median(X[name]) + 30, name
    scores = np.corrcoef([X[f"{field}_bm25"] for field in ("title", "body", "anchor", "url")])
    assert scores[0, 1] > 0.5
    assert scores.min() > 0.1  # of anchor and url, which half of the documents lack
    assert np.corrcoef(X["body_bm25"], X["body_lm"])[0, 1] > 0.7
    for name in ("anchor_bm25", "anchor_covered", "anchor_count"):
        assert np.all(X[name][X["anchor_there"] == 0] == 0)
    assert np.all(X["anchor_lm"][X["anchor_there"] == 0] == -16)


def least_squares(queries) -> float:
    """The share of the variance of labels, within queries, that a weighted sum of features explains."""
    code = queries.qid - 1
    sizes = np.bincount(code)

    def centred(column):
        return column - (np.bincount(code, column) / sizes)[code]

    X = np.stack([centred(column) for column in queries.X.T] + [np.ones(len(code))], axis=1)
    y = centred(queries.y)
    residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return 1 - residual @ residual / (y @ y)


def test_noise_and_nonlinearity_do_what_they_say():
    explained = {
        (noise, bend): least_squares(make_ranking(400, noise=noise, nonlinearity=bend))
        for noise in (0, 1, 4)
        for bend in (0, 1)
    }
    for bend in (0, 1):
        assert explained[0, bend] > explained[1, bend] + 0.1
        assert explained[1, bend] > explained[4, bend] + 0.1
    assert explained[0, 0] > explained[0, 1] + 0.1


def test_interactions_depend_on_the_other_documents():
    plain, among = (make_ranking(300, noise=0.0, interactions=i, n_noise_features=0) for i in (0.0, 1.0))
    assert among.feature_names == (*plain.feature_names, "price")
    np.testing.assert_array_equal(among.X[:, :-1], plain.X)
    price, groups = among.X[:, -1], among.groups
    ratio = np.empty(len(price))
    for first, last in pairwise(groups.offsets):
        ordered = np.sort(price[first:last])
        ratio[first:last] = np.log(price[first:last] / ordered[(len(ordered) - 1) // 2])
    level = np.array([among.y[np.abs(ratio) < b].mean() for b in (0.1, 0.5, 2.0)])
    assert (np.diff(level) < -0.1).all()
    # documents of the same price are more or less relevant in other queries
    middle = (price > 2) & (price < 4)
    assert abs(np.corrcoef(price[middle], among.y[middle])[0, 1]) < 0.15


def test_noise_features_say_nothing_and_change_nothing_else():
    with_them, without = make_ranking(400), make_ranking(400, n_noise_features=0)
    np.testing.assert_array_equal(with_them.y, without.y)
    np.testing.assert_array_equal(with_them.X[:, :34], without.X)
    assert with_them.feature_names[34:] == tuple(f"noise{i}" for i in range(1, 11))
    for column in with_them.X[:, 34:].T:
        assert abs(np.corrcoef(column, with_them.y)[0, 1]) < 0.04


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_rows_says_nothing(kind):
    queries = make_ranking(1000, labels=kind)
    rng = np.random.default_rng(0)
    first, shuffled = (
        evaluate(queries.y, s, queries.qid, metrics=["ndcg@5"], convention="standard")["ndcg@5"]
        for s in (np.zeros(len(queries)), rng.random(len(queries)))
    )
    assert abs(first - shuffled) < 0.03


@given(
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 6),
    st.sampled_from(KINDS),
    st.floats(0, 10),
    st.floats(0, 1),
    st.integers(0, 7),
)
def test_any_size_is_made(n_queries, least, more, kind, noise, bend, extra):
    queries = make_ranking(
        n_queries,
        labels=kind,
        noise=noise,
        nonlinearity=bend,
        sizes=(least, least + more),
        n_noise_features=extra,
        random_state=extra,
    )
    sizes = np.diff(queries.groups.offsets)
    assert queries.n_queries == n_queries
    assert least <= sizes.min()
    assert sizes.max() <= least + more
    assert queries.n_features == 34 + extra
    assert np.isfinite(queries.X).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_queries": 0}, "n_queries must be at least 1; got 0"),
        ({"n_queries": 1.5}, "n_queries must be a whole number; got 1.5"),
        ({"labels": "stars"}, "labels must be 'graded', 'binary' or 'clicks'; got 'stars'"),
        ({"noise": -1}, "noise must be a finite number from 0 to 1e6; got -1"),
        ({"noise": np.nan}, "noise must be a finite number from 0 to 1e6; got nan"),
        ({"nonlinearity": 1.5}, "nonlinearity must be a number from 0 to 1; got 1.5"),
        ({"interactions": 2}, "interactions must be a number from 0 to 1; got 2"),
        ({"nonlinearity": "much"}, "nonlinearity must be a number from 0 to 1; got 'much'"),
        ({"sizes": 5}, r"sizes must be the least and the largest size of a query, such as \(5, 120\); got 5"),
        ({"sizes": (0, 5)}, r"sizes\[0\] must be at least 1; got 0"),
        ({"sizes": (9, 5)}, r"sizes\[1\] must be at least 9; got 5"),
        ({"n_noise_features": -1}, "n_noise_features must be at least 0; got -1"),
        ({"random_state": -1}, "random_state must be at least 0; got -1"),
        ({"random_state": None}, "random_state must be a whole number; got None"),
    ],
)
def test_wrong_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        make_ranking(**arguments)
