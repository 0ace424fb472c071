"""Keywords of other libraries: each is answered with what to write instead, by every ranker."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import sinkprop
from sinkprop import SinkPropRanker, baselines
from sinkprop.estimator.keyword_habits import INSTEAD
from sinkprop.gbdt import BoostedRanker

X, Y, QID = np.arange(12.0).reshape(6, 2), [0, 1, 2, 0, 1, 0], [1, 1, 1, 2, 2, 2]
RANKERS = [SinkPropRanker, BoostedRanker] + [
    getattr(baselines, name) for name in baselines.__all__ if name.endswith("Ranker")
]


@pytest.mark.parametrize("kind", RANKERS, ids=lambda kind: kind.__name__)
def test_every_habit_has_an_answer(kind):
    arguments = inspect.signature(kind.fit).parameters
    for keyword in INSTEAD:
        if keyword not in arguments:
            with pytest.raises(TypeError, match=rf"^{kind.__name__}\.fit\(\) got .* '{keyword}' \(.+\)\.$"):
                kind().fit(X, Y, qid=QID, **{keyword: 1})
        if keyword not in kind._get_param_names() and kind is not BoostedRanker:
            with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) got .* '{keyword}' \(.+\)\.$"):
                kind(**{keyword: 1})


@pytest.mark.parametrize(
    ("call", "answers"),
    [
        (lambda: SinkPropRanker().fit(X, Y, qid=QID, eval_at=[5]), ['Selection(criterion="ndcg@5")']),
        (lambda: BoostedRanker().fit(X, Y, qid=QID, eval_metric="ndcg"), ['criterion="ndcg@5"']),
        (
            lambda: SinkPropRanker().fit(X, Y, qid=QID, eval_X=X, eval_y=Y, eval_at=[5]),
            ["unexpected keyword arguments 'eval_X' (give the validation", "eval_set=[(X, y)]", "Selection("],
        ),
        (lambda: SinkPropRanker().fit(X, Y, group_id=QID), ["query id of each row as qid="]),
        (lambda: BoostedRanker().fit(X, Y, qid=QID, early_stopping_rounds=5), ["in the constructor"]),
        (lambda: BoostedRanker().fit(X, Y, qid=QID, cat_features=[0]), ["give fit categorical_feature="]),
        (lambda: SinkPropRanker().fit(X, Y, qid=QID, cat_features=[0]), ["only sinkprop.gbdt.BoostedRanker"]),
        (lambda: SinkPropRanker().fit(X, Y, qid=QID, verbose=False), ["set verbose= in the constructor"]),
        (lambda: SinkPropRanker(n_estimators=5), ["grows no trees", "max_iter="]),
        (lambda: SinkPropRanker(objective="lambdarank"), ['such as "ndcg@10"', "LightGBMRanker"]),
        (lambda: SinkPropRanker(num_leaves=5), ["sinkprop.gbdt.BoostedRanker"]),
        (lambda: SinkPropRanker(eval_set=[(X, Y)]), ["give eval_set= to fit"]),
        (lambda: SinkPropRanker(n_jobs=2), ["set n_threads="]),
        (lambda: BoostedRanker(loss_function="YetiRank"), ['Set gain= in the constructor, the metric']),
        (lambda: SinkPropRanker(penality=1), ["did you mean 'penalty'?"]),
        (lambda: SinkPropRanker().fit(X, Y, quid=QID), ["did you mean 'qid'?"]),
    ],
)  # fmt: skip
def test_the_answers_of_some(call, answers):
    with pytest.raises(TypeError) as caught:
        call()
    for answer in answers:
        assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


def test_constructors_stay_those_of_scikit_learn():
    ranker = SinkPropRanker("p@5", penalty=0.1)
    assert clone(ranker).get_params() == ranker.get_params()
    assert "unknown" not in ranker.get_params()
    assert pickle.loads(pickle.dumps(ranker)).gain == "p@5"
    assert "penalty" in inspect.signature(SinkPropRanker).parameters
    with pytest.raises(TypeError, match="positional"):
        SinkPropRanker("ndcg", "gaussian", 1, 2, 3)
    with sinkprop_routing():
        assert ranker.get_metadata_routing().fit.requests["qid"] is True


def sinkprop_routing():
    import sklearn

    return sklearn.config_context(enable_metadata_routing=True)


def test_a_subclass_with_its_own_parameters():
    class Mine(sinkprop.SinkPropRanker):
        def __init__(self, mine=1, *, penalty=0.1):
            super().__init__(penalty=penalty)
            self.mine = mine

    assert Mine(2).get_params() == {"mine": 2, "penalty": 0.1}
    with pytest.raises(TypeError, match=r"^Mine\(\) got an unexpected keyword argument 'seed' \("):
        Mine(seed=1)
