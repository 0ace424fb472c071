"""Functions that rankers call after each stage, round or epoch: what they get, what their exceptions do."""

import multiprocessing
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from sinkprop import SinkPropRanker
from sinkprop.datasets import make_ranking
from sinkprop.gbdt import BoostedRanker, Round
from sinkprop.torch import MLP, NeuralRanker


@pytest.fixture(scope="module")
def data():
    queries = make_ranking(60, sizes=(10, 30))
    train, vali = queries.select(range(1, 41)), queries.select(range(41, 61))
    return SimpleNamespace(train=train, vali=vali)


# class, settings of a short fit, name of the function, the criteria in the record of the fit
RANKERS = {
    "linear": (
        SinkPropRanker,
        {"selection": "validation", "penalty": [1.0, 0.1, 0.01]},
        "on_stage",
        lambda ranker: [stage.criterion for stage in ranker.fit_result_.stages],
    ),
    "linear-folds": (
        SinkPropRanker,
        {"penalty": [1.0, 0.1]},
        "on_stage",
        lambda ranker: [stage.criterion for stage in ranker.fit_result_.stages],
    ),
    "trees": (
        BoostedRanker,
        {"n_estimators": 8, "n_boosters": 3},
        "on_round",
        lambda ranker: ranker.history_[ranker.fit_result_.criterion],
    ),
    "one-booster": (
        BoostedRanker,
        {"n_estimators": 8},
        "on_round",
        lambda ranker: ranker.history_[ranker.fit_result_.criterion],
    ),
    "network": (
        NeuralRanker,
        {"max_epochs": 4, "network": MLP((8,))},
        "on_epoch",
        lambda ranker: [epoch.criterion for epoch in ranker.fit_result_.epochs],
    ),
}


class PrunedError(Exception):
    """As raised to end a trial."""


@pytest.mark.parametrize("kind", RANKERS)
def test_each_step_is_told_with_the_criterion_of_the_record(kind, data):
    make, settings, name, criteria = RANKERS[kind]
    told = []
    ranker = make(**settings, **{name: told.append}).fit(data.train, eval_set=data.vali)
    assert [record.criterion for record in told] == pytest.approx(criteria(ranker), rel=1e-12)
    assert len(told) > 2
    assert np.isfinite([record.criterion for record in told]).all()


@pytest.mark.parametrize("kind", RANKERS)
def test_an_exception_ends_the_fit_and_leaves_nothing(kind, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, settings, name, _ = RANKERS[kind]
    raised, told = PrunedError("no better than the others"), []
    threads = set(threading.enumerate())

    def stop(record):
        told.append(record)
        if len(told) == 2:
            raise raised

    ranker = make(**settings, n_threads=2, **{name: stop})
    with pytest.raises(PrunedError) as caught:
        ranker.fit(data.train, eval_set=data.vali)
    assert caught.value is raised
    assert len(told) == 2
    assert set(threading.enumerate()) == threads
    assert multiprocessing.active_children() == []
    assert list(tmp_path.iterdir()) == []
    assert not hasattr(ranker, "fit_result_")
    # the same ranker can be fitted later, to the same model as a new one
    again = ranker.set_params(**{name: None}).fit(data.train, eval_set=data.vali)
    new = make(**settings).fit(data.train, eval_set=data.vali)
    np.testing.assert_array_equal(again.predict(data.vali), new.predict(data.vali))


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_after_an_exception_a_fit_with_a_checkpoint_resumes(kind, data, tmp_path):
    make, settings, name, _ = RANKERS[kind]
    path, told = tmp_path / "fit.checkpoint", []

    def stop(record):
        told.append(record)
        if len(told) == 2:
            raise PrunedError

    ranker = make(**settings, checkpoint=path, **{name: stop})
    with pytest.raises(PrunedError):
        ranker.fit(data.train, eval_set=data.vali)
    assert [file.name for file in tmp_path.iterdir()] == ["fit.checkpoint"]
    ranker.fit(data.train, eval_set=data.vali)
    new = make(**settings).fit(data.train, eval_set=data.vali)
    np.testing.assert_array_equal(ranker.predict(data.vali), new.predict(data.vali))
    assert list(tmp_path.iterdir()) == []


class TestRounds:
    def test_rounds_are_numbered_from_1(self, data):
        told = []
        BoostedRanker(n_estimators=3, n_boosters=2, on_round=told.append).fit(data.train, eval_set=data.vali)
        assert [record.number for record in told] == [1, 2, 3]
        assert all(type(record) is Round and type(record.criterion) is float for record in told)

    def test_the_model_is_that_without_the_function(self, data, tmp_path):
        settings = {"n_estimators": 3, "n_boosters": 2}
        plain = BoostedRanker(**settings).fit(data.train, eval_set=data.vali)
        ranker = BoostedRanker(**settings, on_round=lambda _: None).fit(data.train, eval_set=data.vali)
        assert ranker.n_boosters_ == 2
        for each, name in ((plain, "a"), (ranker, "b")):
            each.save(tmp_path / name)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    def test_the_criterion_is_nan_without_validation_queries(self, data):
        told = []
        BoostedRanker(n_estimators=2, on_round=told.append).fit(data.train)
        assert np.isnan([record.criterion for record in told]).tolist() == [True, True]

    def test_it_is_called_beside_lightgbms_callbacks(self, data):
        told, seen = [], []
        ranker = BoostedRanker(n_estimators=4, on_round=told.append)
        ranker.fit(data.train, eval_set=data.vali, callbacks=[lambda env: seen.append(env.iteration)])
        assert [record.number - 1 for record in told] == seen == [0, 1, 2, 3]

    def test_an_interrupt_keeps_the_best_trees(self, data):
        def stop(record):
            if record.number == 3:
                raise KeyboardInterrupt

        ranker = BoostedRanker(n_estimators=9, n_boosters=2, on_round=stop)
        with pytest.warns(RuntimeWarning, match="The fit was interrupted"):
            ranker.fit(data.train, eval_set=data.vali)
        assert ranker.fit_result_.n_rounds == 3

    def test_it_is_refused_on_a_cluster_before_anything_starts(self, data):
        ranker = BoostedRanker(on_round=print, cluster="tcp://127.0.0.1:1")
        with pytest.raises(ValueError, match="on_round cannot be given with cluster=: it works only in one"):
            ranker.fit(data.train)

    def test_fit_says_where_to_put_functions(self, data):
        with pytest.raises(TypeError, match="on_round= in the constructor"):
            BoostedRanker().fit(data.train, callback=print)


def test_clones_keep_the_function():
    from sklearn.base import clone

    for make, _, name, _ in RANKERS.values():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert clone(make(**{name: print})).get_params()[name] is print
