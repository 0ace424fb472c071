"""The criterion of a fit: it follows the convention of the ranker, also for queries of few documents."""

from __future__ import annotations

import numpy as np
import pytest

from sinkprop import SinkPropRanker, evaluate
from sinkprop.baselines import RegressionRanker
from sinkprop.data.queries import Queries
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.criteria import gain_criterion
from sinkprop.estimator.selection import Selection
from sinkprop.objective.gains import as_gain

LEVELS = [f"ndcg@{k}" for k in range(1, 11)]


def short_queries(n=30, size=5):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n * size, 3))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=len(X)), [0, 1])
    return Queries(X, y, np.repeat(np.arange(n), size))


@pytest.mark.parametrize("gain", ["ndcg", "ndcg@10", "ndcg(discount=log2)"])
@pytest.mark.parametrize("convention", ["standard", "letor", "lightgbm"])
def test_the_criterion_is_the_mean_of_ndcg_under_the_convention(gain, convention):
    data = short_queries()
    scores = data.X[:, 1]
    criterion_of, name = gain_criterion(as_gain(gain), Selection(), convention, weighted=False)
    found = evaluate(data, scores, metrics=LEVELS, convention=convention)
    assert name == "ndcg@1-10"
    np.testing.assert_allclose(
        criterion_of(TrainingSet(data.X, data.y, data.groups), scores),
        np.mean(list(found.per_query.values()), axis=0),
        rtol=0,
        atol=1e-15,
    )


@pytest.mark.parametrize(
    "ranker",
    [
        SinkPropRanker(penalty=1e-3, selection="validation", max_iter=5, verbose=False),
        RegressionRanker(penalty="auto", selection="validation", verbose=False),
    ],
)
def test_a_fit_on_short_queries_has_a_criterion(ranker):
    data = short_queries()
    ranker.fit(data, eval_set=data)
    result = ranker.fit_result_
    records = result.stages if hasattr(result, "stages") else result.trials
    assert min(record.criterion for record in records) > 0.5
    assert ranker.score(data) > 0.5
