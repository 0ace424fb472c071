"""Trees on the limit of the Sinkhorn normalization: ties, terms, boosters and model files."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sinkprop
from sinkprop import Converged, RankLinear, SmoothedIndicator, expected_gain
from sinkprop.data import group_rows
from sinkprop.gbdt import BoostedRanker, Derivatives, TreeLoss
from sinkprop.objective.gains import as_gain

TIGHT = Converged(1e-13)
TABLE = RankLinear(table=lambda r, k: np.sqrt(r) / (k + r))
GAINS = ["ndcg", "p@2", TABLE, "map", "err", "0.5*map + 0.5*ndcg@3"]


def named(gain):
    """Name of a gain in test ids, which have to be the same in every process."""
    return "table" if gain is TABLE else str(gain)


TIED = [[0.0] * 5, [0.4, 0.0, 0.4, 0.4, 0.0], [0.2, 0.1, 0.2, -1.0, 0.1], [1.0, 0.0, 0.0, 0.0, -0.3]]


def over_orders(scores, labels, gain, widths, epsilon):
    """Value and gradient as a mean over the widths and over every order of the rows, which breaks ties."""
    total, values, orders = np.zeros(len(scores)), [], list(itertools.permutations(range(len(scores))))
    for order in map(list, orders):
        for width in widths:
            r = expected_gain(
                scores[order],
                labels[order],
                gain=as_gain(gain, "log2"),
                relaxation=SmoothedIndicator(width, kernel="laplace"),
                n_iter=TIGHT,
                epsilon=epsilon,
            )
            total[order] += r.gradient
            values.append(r.value)
    return np.mean(values), total / (len(orders) * len(widths))


@pytest.mark.parametrize("epsilon", [0, 1e-2])
@pytest.mark.parametrize("tied", TIED, ids=["all", "two groups", "pairs", "middle"])
@pytest.mark.parametrize("gain", GAINS, ids=named)
def test_ties_are_a_mean_over_their_orders(gain, tied, epsilon):
    scores, labels = np.array(tied), np.array([2, 0, 1, 2, 0])
    if isinstance(gain, str) and "map" in gain:
        labels = labels > 0
    widths = (0.2, 1.0)
    found = Derivatives(
        TreeLoss(gain, widths=widths, noise=0, n_iter=TIGHT, epsilon=epsilon), labels, group_rows(None, 5)
    )
    value, gradient = over_orders(scores, labels, gain, widths, epsilon)
    assert found.value(scores) == pytest.approx(value, rel=1e-11)
    assert_allclose(found(scores)[0], -5 * gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("gain", GAINS, ids=named)
def test_long_lists_without_ties_are_those_of_the_expected_gain(gain):
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=60), rng.integers(0, 2, 60)
    found = Derivatives(TreeLoss(gain, widths=0.3, noise=0, n_iter="converged"), labels, group_rows(None, 60))
    smoothed = SmoothedIndicator(0.3, kernel="laplace")
    r = expected_gain(scores, labels, gain=as_gain(gain, "log2"), relaxation=smoothed, n_iter=TIGHT)
    assert found.value(scores) == pytest.approx(r.value, abs=1e-9)
    assert_allclose(found(scores)[0], -60 * r.gradient, rtol=1e-5, atol=1e-6)


def test_the_limit_that_is_not_reached_is_a_warning():
    found = Derivatives(
        TreeLoss(widths=0.3, noise=0, n_iter=Converged(max_iter=2)), np.arange(9) % 3, group_rows(None, 9)
    )
    with pytest.warns(RuntimeWarning, match="did not converge for 1 of 1 queries"):
        found(np.random.default_rng(0).normal(size=9))


def problem(n_queries=12, n=8):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_queries * n, 3))
    return X, np.digitize(X[:, 0] + rng.normal(size=len(X)), [0.3, 1.2]), np.repeat(np.arange(n_queries), n)


@pytest.mark.parametrize("given", ["converged", Converged(1e-7)])
def test_a_boosted_ranker_is_trained_saved_and_loaded(tmp_path, given):
    pytest.importorskip("lightgbm", reason="BoostedRanker needs LightGBM")
    X, y, qid = problem()
    ranker = BoostedRanker(n_estimators=5, n_iter=given, n_boosters=1, validation_fraction=0, verbose=False)
    ranker.fit(X, y, qid=qid)
    incomplete = BoostedRanker(n_estimators=5, n_iter=1, n_boosters=1, validation_fraction=0, verbose=False)
    assert (incomplete.fit(X, y, qid=qid).predict(X) != ranker.predict(X)).any()
    ranker.save(tmp_path / "model")
    loaded = sinkprop.load_model(tmp_path / "model")
    assert loaded.get_params()["n_iter"] == given
    assert_array_equal(loaded.predict(X), ranker.predict(X))


def test_objectives_of_libraries_take_it():
    lightgbm = pytest.importorskip("lightgbm", reason="the objective is LightGBM's")
    from sinkprop.gbdt import lightgbm_objective

    X, y, qid = problem()
    data = lightgbm.Dataset(X, y, group=np.unique(qid, return_counts=True)[1])
    trained = {}
    for n_iter in ("converged", 2000, 1):
        settings = {
            "objective": lightgbm_objective("ndcg", n_iter=n_iter, noise=0),
            "verbose": -1,
            "num_threads": 1,
        }
        trained[n_iter] = lightgbm.train({**settings, "min_data_in_leaf": 5}, data, 3).predict(X)
    assert_allclose(trained["converged"], trained[2000], rtol=1e-5, atol=1e-7)
    assert np.abs(trained["converged"] - trained[1]).max() > 1e-4
