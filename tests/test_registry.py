"""Every ranker is registered, and a model of each kind is loaded by its name alone."""

import importlib
import inspect
from operator import attrgetter

import numpy as np
import pytest

import sinkprop
from sinkprop.estimator.base import BaseRanker
from sinkprop.model_files import ModelFileError, read_model, write_model
from sinkprop.registry import RANKERS


def test_every_public_ranker_is_registered():
    public = {
        name: value
        for package in ("sinkprop", "sinkprop.baselines", "sinkprop.gbdt", "sinkprop.torch")
        for name in importlib.import_module(package).__all__
        if inspect.isclass(value := getattr(importlib.import_module(package), name))
        and issubclass(value, BaseRanker)
        and not inspect.isabstract(value)
        and name != "LinearBaseline"  # to be inherited from
    }
    assert set(public) == set(RANKERS)
    for name, ranker in public.items():
        assert getattr(importlib.import_module(RANKERS[name]), name) is ranker


@pytest.mark.parametrize("name", ["SinkPropRanker", "baselines.RegressionRanker"])
def test_a_file_with_the_old_name_of_a_field_is_loaded(name, tmp_path):
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(40, 2)), rng.integers(0, 3, 40), np.repeat(np.arange(4), 10)
    ranker = attrgetter(name)(sinkprop)(penalty=1e-3, selection="validation").fit(X, y, qid=qid)
    ranker.save(tmp_path / "new")
    state = read_model(tmp_path / "new").state
    state["fitted"]["judged_by"] = state["fitted"].pop("validated_on")
    write_model(tmp_path / "old", name.rpartition(".")[2], state)
    loaded = sinkprop.load_model(tmp_path / "old")
    assert loaded.fit_result_.validated_on == ranker.fit_result_.validated_on
    np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))


def test_a_kind_is_loaded_by_its_name(tmp_path):
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(40, 2)), rng.integers(0, 3, 40), np.repeat(np.arange(4), 10)
    for name in ("RegressionRanker", "FeatureRanker"):
        ranker = getattr(sinkprop.baselines, name)().fit(X, y, qid=qid)
        ranker.save(tmp_path / name)
        loaded = sinkprop.load_model(tmp_path / name)
        assert type(loaded) is type(ranker)
        np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))


@pytest.mark.parametrize("kind", ["Unknown", "NeuralRanker"])  # a network is not a file of text
def test_another_kind_is_refused_with_those_that_are_known(tmp_path, kind):
    write_model(tmp_path / "a.model", kind, {})
    with pytest.raises(
        ModelFileError, match=rf"a\.model: holds a '{kind}'; this sinkprop knows AdaRankRanker"
    ):
        sinkprop.load_model(tmp_path / "a.model")
