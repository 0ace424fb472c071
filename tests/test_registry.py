"""Every ranker is registered, and a model of each kind is loaded by its name alone."""

import copy
import functools
import importlib
import inspect
import os
import threading
import time
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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("name", ["regression", "network"])
def test_a_model_is_read_once(tmp_path, name):
    """From a pipe, which can be read once, in pieces of any size."""
    pytest.importorskip("torch", reason="the helper imports it")
    from export_rankers import fitted

    ranker = fitted(name)
    ranker.save(tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    os.mkfifo(tmp_path / "pipe")

    def feed() -> None:
        with open(tmp_path / "pipe", "wb", buffering=0) as pipe:
            for piece in (data[:5], data[5:20], data[20:]):
                pipe.write(piece)
                time.sleep(0.02)

    thread = threading.Thread(target=feed)
    thread.start()
    loaded = sinkprop.load_model(tmp_path / "pipe")
    thread.join()
    assert type(loaded) is type(ranker)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == data


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Record of a small model of each linear kind, as its file holds it."""
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(40, 2)), rng.integers(0, 3, 40), np.repeat(np.arange(4), 10)
    path = tmp_path_factory.mktemp("states") / "model"
    found = {}
    for name, options in {
        "baselines.RegressionRanker": {},
        "baselines.FeatureRanker": {},
        "baselines.ListNetRanker": {"penalty": 0.1},
        "baselines.BoltzRankRanker": {"penalty": 0.1, "max_iter": 1},
        "SinkPropRanker": {"penalty": 0.1, "max_iter": 1, "selection": "validation"},
    }.items():
        attrgetter(name)(sinkprop)(**options).fit(X, y, qid=qid).save(path)
        found[name.rpartition(".")[2]] = read_model(path).state
    return found


@pytest.mark.parametrize(
    ("kind", "where", "value", "message"),
    [
        ("FeatureRanker", ["feature_names"], np.array("a"), "feature_names must be a list of 2 names"),
        ("FeatureRanker", ["feature_names"], ["a", 1], "feature_names must be a list of 2 names"),
        ("FeatureRanker", ["n_rows"], 1.5, "must be whole numbers above 0"),
        ("FeatureRanker", ["fitted", "feature"], 3, "feature 3 of 2 features"),
        ("FeatureRanker", ["fitted"], [1], "AttributeError"),
        ("RegressionRanker", ["normalization", "kind"], "other", "normalization must be"),
        ("RegressionRanker", ["normalization", "shift"], {"a": 1}, "shift must be an array of numbers"),
        ("RegressionRanker", ["normalization", "factor"], np.ones(3), "factor must be an array of numbers"),
        ("RegressionRanker", ["fitted", "model", "coef"], np.array(["a", "b"]), "weights must be an array"),
        ("ListNetRanker", ["fitted", "model"], np.array([1.0, np.nan]), "weights must be finite"),
        ("BoltzRankRanker", ["fitted", "model", "strengths"], np.ones(70), "directions must be an array"),
        ("SinkPropRanker", ["fitted", "weights"], [1.0, 2.0], "weights must be an array of numbers"),
        ("SinkPropRanker", ["fitted", "status"], ["finished"], "status must be one of"),
        ("ListNetRanker", ["fitted", "status"], "other", "status must be one of"),
        ("ListNetRanker", ["fitted", "trials"], [], "one of 0 must be the chosen one"),
        ("SinkPropRanker", ["fitted", "stages"], [], "one of 0 must be the chosen one"),
        ("RegressionRanker", ["fitted", "criterion"], 7, "status must be one of"),
    ],
)  # fmt: skip
def test_a_model_that_does_not_fit_together_is_refused_in_one_line(
    states, tmp_path, kind, where, value, message
):
    state = copy.deepcopy(states[kind])
    *path, last = where
    functools.reduce(dict.__getitem__, path, state)[last] = value
    write_model(tmp_path / "a.model", kind, state)
    with pytest.raises(ModelFileError, match=f"not a {kind} that sinkprop") as error:
        sinkprop.load_model(tmp_path / "a.model")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
