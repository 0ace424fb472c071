"""The discount that rankers train with: the convention's, unless the gain states one."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import sinkprop
from sinkprop import NDCG, SinkPropRanker, expected_gain
from sinkprop.baselines import BoltzRankRanker, LightGBMRanker, SmoothRankRanker, SoftRankRanker
from sinkprop.data.queries import Queries
from sinkprop.estimator.criteria import gain_under
from sinkprop.metrics import CONVENTIONS

LOG2, LETOR = "ndcg(discount=log2)", "ndcg(discount=letor)"
QUIET = {"verbose": False, "n_threads": 1}
needs_lightgbm = pytest.mark.skipif(
    importlib.util.find_spec("lightgbm") is None, reason="lightgbm is not installed"
)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def boosted(**parameters):
    from sinkprop.gbdt import BoostedRanker

    return BoostedRanker(n_estimators=15, num_leaves=4, **QUIET, **parameters)


def lightgbm(gain=None, **parameters):
    loss = None if gain is None else {"gain": gain}
    grid = {"num_leaves": 4, "learning_rate": 0.1, "min_child_samples": 5, "n_estimators": 10}
    return LightGBMRanker("sinkprop", loss=loss, **grid, **QUIET, **parameters)


def neural(**parameters):
    from sinkprop.torch import NeuralRanker

    return NeuralRanker(max_epochs=3, **QUIET, **parameters)


def linear(kind, **settings):
    return lambda **parameters: kind(penalty=1e-3, max_iter=10, **settings, **QUIET, **parameters)


RANKERS = [
    pytest.param(linear(SinkPropRanker, selection="validation"), id="linear"),
    pytest.param(linear(SmoothRankRanker), id="smoothrank"),
    pytest.param(linear(SoftRankRanker, sigma=0.5), id="softrank"),
    pytest.param(linear(BoltzRankRanker, n_rankings=20, mixing=1.0), id="boltzrank"),
    pytest.param(boosted, id="boosted", marks=needs_lightgbm),
    pytest.param(lightgbm, id="lightgbm", marks=needs_lightgbm),
    pytest.param(neural, id="neural", marks=needs_torch),
]


@pytest.fixture(scope="module")
def queries():
    rng = np.random.default_rng(4)
    X, qid = rng.normal(size=(240, 4)), np.repeat(np.arange(20), 12)
    y = np.digitize(X @ [1, 1, 0, 0.3] + rng.normal(size=240), [0.5, 2])
    return Queries(X, y, qid)


@pytest.mark.parametrize("convention", ["standard", "letor", "letor4", "mslr"])
@pytest.mark.parametrize("make", RANKERS)
def test_an_open_discount_is_that_of_the_convention(make, convention, queries):
    same, other = (LOG2, LETOR) if convention == "standard" else (LETOR, LOG2)

    def found(**gain):
        """Scores, and the expected gain of each stage: a selected model may be the start of all stages."""
        ranker = make(convention=convention, **gain).fit(queries, eval_set=[queries])
        stages = getattr(ranker.fit_result_, "stages", ())
        return np.append(ranker.predict(queries), [stage.expected_gain for stage in stages])

    np.testing.assert_array_equal(found(), found(gain=same))
    assert not np.array_equal(found(gain="ndcg"), found(gain=other))


@pytest.mark.parametrize("make", RANKERS)
@pytest.mark.parametrize("gain", ["ndcg", LETOR, LOG2 + "@5"])
def test_a_file_keeps_the_gain_as_it_was_given(make, gain, queries, tmp_path):
    path = tmp_path / "model"
    ranker = make(gain=gain, convention="letor").fit(queries, eval_set=[queries])
    ranker.save(path)
    loaded = type(ranker).load(path)
    np.testing.assert_array_equal(loaded.predict(queries), ranker.predict(queries))
    kept = loaded.get_params()
    assert (kept["loss"]["gain"] if isinstance(ranker, LightGBMRanker) else kept["gain"]) == gain


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_convention_decides(name):
    convention = CONVENTIONS[name]
    for stated in (name, convention):
        assert gain_under("ndcg@5", stated) == NDCG(5, discount=convention.discount)
        assert gain_under(NDCG(discount="letor"), stated).discount == "letor"
        assert gain_under("p@5", stated) == sinkprop.Precision(5)


def test_functions_of_the_paper_use_letors():
    scores, labels = [1.0, 0.2, 0.1], [0, 2, 1]
    for function in (
        lambda gain: expected_gain(scores, labels, gain=gain).value,
        lambda gain: sinkprop.reference.expected_gain(scores, labels, gain, sinkprop.SmoothedIndicator())[0],
    ):
        assert function(NDCG()) == function("ndcg") == function(LETOR)
        assert function(NDCG()) > function(LOG2) + 0.01


def test_the_criterion_of_weighted_rows_is_the_stated_gain(queries):
    weights = np.linspace(1, 2, len(queries))
    ranker = SinkPropRanker(penalty=1e-3, max_iter=3, selection="validation", **QUIET)
    ranker.fit(queries.X, queries.y, qid=queries.qid, sample_weight=weights)
    assert ranker.fit_result_.criterion == LOG2
