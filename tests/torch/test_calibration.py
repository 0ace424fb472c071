"""Held-out scores of NeuralRanker, to which its calibration is fitted."""

import itertools
from collections import Counter
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch", reason="NeuralRanker needs PyTorch")

from sinkprop import Queries, doubly_stochastic, expected_ranks  # noqa: E402
from sinkprop.objective.relaxations import SmoothedIndicator  # noqa: E402
from sinkprop.torch import LBFGS, MLP, Adam, ListTransformer, NetworkOverflowError, NeuralRanker  # noqa: E402
from sinkprop.torch.losses.baselines import approx_ndcg_loss  # noqa: E402
from sinkprop.torch.neural import feeds, held_out  # noqa: E402
from sinkprop.torch.neural.files import read_network, write_network  # noqa: E402

MODELS = {
    "default": {},
    "by query": {"normalization": "query"},
    "attention": {"network": ListTransformer(8)},
    "partitioned": {"relaxation": "beta"},
    "two networks": {"n_networks": 2},
    "double": {"dtype": "float64", "optimizer": LBFGS(2)},
    "another loss": {"loss": "listnet"},
}


def ranking_data(n_queries=30, seed=0):
    """Labels 0 to 2 by the first feature and noise; the rows of a query are not consecutive."""
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), rng.integers(2, 9, n_queries)))
    X = rng.normal(size=(len(qid), 4)).astype(np.float32)
    X[::9, 3] = np.nan
    return X, np.digitize(X[:, 0] + 0.7 * rng.normal(size=len(qid)), [0.5, 1.5]), qid


def quick(**options):
    return NeuralRanker(**{"network": MLP((4,)), "optimizer": Adam(1e-2), "max_epochs": 3, **options})


def validated(ranker, data, *sets):
    """Fit a ranker to `data` with the evaluation sets `sets`."""
    X, y, qid = data
    return ranker.fit(
        X, y, qid=qid, eval_set=[each[:2] for each in sets], eval_qid=[each[2] for each in sets]
    )


def sorted_by_query(values, qid):
    """The values query by query, in the order in which the queries first appear."""
    return np.concatenate([values[qid == q] for q in dict.fromkeys(qid.tolist())])


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def vali():
    return ranking_data(40, 1)


@pytest.mark.parametrize("name", MODELS)
class TestEveryKindOfNetwork:
    def test_the_kept_scores_are_those_of_predict(self, name, data, vali):
        sets = vali, ranking_data(15, 2)
        ranker = validated(quick(**MODELS[name]), data, *sets)
        held = ranker._calibrating
        predicted = [sorted_by_query(ranker.predict(X, qid=qid), qid) for X, _, qid in sets]
        assert_array_equal(held.scores, np.concatenate(predicted))
        assert_array_equal(held.labels, np.concatenate([sorted_by_query(y, qid) for _, y, qid in sets]))
        assert held.sizes.tolist() == [n for *_, qid in sets for n in Counter(qid.tolist()).values()]

    def test_a_calibration_changes_no_score_and_is_saved_bit_by_bit(self, name, data, vali, tmp_path):
        ranker = validated(quick(**MODELS[name]), data, vali)
        X, _, qid = ranking_data(5, 3)
        scores, ranks = ranker.predict(X, qid=qid), ranker.rank(X, qid=qid)
        assert ranker.calibration_.n_queries == 40
        assert_array_equal(ranker.predict(X, qid=qid), scores)
        assert_array_equal(ranker.rank(X, qid=qid), ranks)
        ranker.save(tmp_path / "a")
        loaded = NeuralRanker.load(tmp_path / "a")
        assert_array_equal(loaded.predict(X, qid=qid), scores)
        for method in ("predict_proba", "expected_rank", "confidence"):
            found = [getattr(each, method)(X, qid=qid) for each in (ranker, loaded)]
            assert_array_equal(*found)
        loaded.save(tmp_path / "b")
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_queries_that_are_held_out_of_the_training_data(data):
    X, y, qid = data
    ranker = quick(validation_fraction=0.4).fit(X, y, qid=qid)
    of_queries = list(dict.fromkeys(qid.tolist()))
    chosen = np.sort(np.random.default_rng([0, 0]).permutation(30)[:12])
    rows = np.concatenate([np.flatnonzero(qid == of_queries[q]) for q in chosen])
    assert_array_equal(ranker._calibrating.scores, ranker.predict(X[rows]))
    assert_array_equal(ranker._calibrating.labels, y[rows])
    assert ranker.calibration_.n_queries == 12


def test_a_new_fit_replaces_the_calibration(data, vali):
    ranker = validated(quick(), data, vali)
    assert ranker.calibration_.n_queries == 40
    few = ranking_data(8, 5)
    validated(ranker, data, few)
    assert ranker.calibration_ is None
    with pytest.raises(ValueError, match=r"is not calibrated: calibration needs at least 10 .* of 8 have"):
        ranker.confidence(few[0], qid=few[2])
    ranker.calibrate(*vali[:2], qid=vali[2])
    assert ranker.calibration_.n_queries == 40
    ranker.set_params(validation_fraction=0).fit(*data[:2], qid=data[2])
    assert ranker.calibration_ is None
    with pytest.raises(ValueError, match="calibration needs queries that chose the model; none did"):
        ranker.confidence(few[0], qid=few[2])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("options", [{}, {"normalization": "query"}])
def test_some_of_the_queries_of_large_sets(options, streamed, data, vali, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="stored sets are Arrow files")
    from sinkprop.store import save_queries

    monkeypatch.setattr(held_out, "taken_queries", partial(held_out.taken_queries, most=100))
    sets = [vali, ranking_data(15, 2)]
    given = [Queries(*each, allow_nan=True) for each in sets]
    if streamed:
        monkeypatch.setattr(feeds, "HELD_BYTES", 0)
        given[0] = save_queries(tmp_path / "vali.queries", given[0], block_bytes=400)
    X, y, qid = data
    ranker = quick(**options).fit(X, y, qid=qid, eval_set=given)
    sizes = np.array([n for *_, ids in sets for n in Counter(ids.tolist()).values()])
    step = -(-sizes.sum() // 100)
    assert step == 3
    rows = np.repeat(np.arange(55) % step == 0, sizes)
    predicted = np.concatenate([sorted_by_query(ranker.predict(X, qid=q), q) for X, _, q in sets])
    assert_array_equal(ranker._calibrating.scores, predicted[rows])
    assert_array_equal(ranker._calibrating.sizes, sizes[::step])


def test_after_an_overflow_they_are_the_scores_of_the_best_network(data, vali):
    calls = itertools.count()

    def overflowing(scores, labels, *, offsets, query_weight=None):
        loss = approx_ndcg_loss(scores, labels, offsets=offsets, query_weight=query_weight)
        return loss * float("nan") if next(calls) > 3 else loss

    ranker = quick(loss=overflowing, max_epochs=9)
    with pytest.raises(NetworkOverflowError):
        validated(ranker, data, vali)
    assert_array_equal(ranker._calibrating.scores, sorted_by_query(ranker.predict(vali[0]), vali[2]))


def test_files_without_a_calibration(data, vali, tmp_path):
    ranker = validated(quick(), data, vali)
    ranker.save(tmp_path / "new")
    model, tensors = read_network(tmp_path / "new")
    del model.state["calibration"]
    write_network(tmp_path / "old", "NeuralRanker", model.state, tensors)
    loaded = NeuralRanker.load(tmp_path / "old")
    assert loaded.calibration_ is None
    assert_array_equal(loaded.predict(vali[0]), ranker.predict(vali[0]))
    loaded.calibrate(*vali[:2], qid=vali[2])
    assert_array_equal(loaded.predict_proba(vali[0], qid=vali[2]), ranker.predict_proba(vali[0], qid=vali[2]))


class TestWithoutCalibration:
    def test_probabilities_of_the_relaxation_of_the_fit(self, data, vali):
        X, y, qid = data
        ranker = quick(validation_fraction=0, sigma=0.7, n_iter=3).fit(X, y, qid=qid)
        one = vali[0][:6]
        with pytest.warns(UserWarning, match="rank_distribution: NeuralRanker is not calibrated"):
            found = ranker.rank_distribution(one)
        setting = {"relaxation": SmoothedIndicator(0.7), "n_iter": 3, "epsilon": 1e-6}
        assert_array_equal(found, doubly_stochastic(ranker.predict(one), **setting))
        setting["relaxation"] = SmoothedIndicator(0.2)
        assert_array_equal(
            ranker.rank_distribution(one, sigma=0.2), doubly_stochastic(ranker.predict(one), **setting)
        )

    def test_of_another_loss_the_width_is_the_spread_of_the_scores(self, data, vali):
        X, y, qid = data
        ranker = quick(loss="listnet", validation_fraction=0).fit(X, y, qid=qid)
        X = vali[0][:6]
        scores = ranker.predict(X)
        with pytest.warns(UserWarning, match="is not calibrated"):
            found = ranker.expected_rank(X, qid=np.zeros(6))
        assert_allclose(found, expected_ranks(scores, relaxation=SmoothedIndicator(scores.std())), rtol=1e-9)

    def test_of_a_partitioned_measure(self, data, vali):
        X, y, qid = data
        ranker = quick(validation_fraction=0, relaxation="beta").fit(X, y, qid=qid)
        X = vali[0][:6]
        theta = ranker.outputs(X)
        assert theta.shape == (6, 2)
        with pytest.warns(UserWarning, match="is not calibrated"):
            found = ranker.rank_distribution(X)
        setting = {"relaxation": "beta", "n_iter": 5, "epsilon": 1e-6}
        assert_array_equal(found, doubly_stochastic(theta, **setting))
        with pytest.raises(ValueError, match="a partitioned measure has none"):
            ranker.rank_distribution(X, sigma=0.5)
