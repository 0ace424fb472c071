"""Exports of linear models and networks that were trained with missing values."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sinkprop import Annealing, SinkPropRanker
from sinkprop.baselines import RegressionRanker
from sinkprop.export import to_elasticsearch, to_onnx, to_solr
from sinkprop.torch import MLP, NeuralRanker

FEW = {"penalty": 1e-3, "annealing": Annealing(2, 1), "max_iter": 2, "verbose": False}
NETWORK = {"network": MLP((4,)), "max_epochs": 1, "verbose": False}
RANKERS = {
    "sinkprop": lambda **given: SinkPropRanker(**FEW, **given),
    "probit": lambda **given: SinkPropRanker("ndcg", "probit", **FEW, **given),
    "regression": lambda **given: RegressionRanker(verbose=False, **given),
    "network": lambda **given: NeuralRanker(**NETWORK, **given),
}


def rows():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(200, 3)) + 5, np.repeat(np.arange(10), 20)
    y = np.digitize(X @ [1, 1, 0] + rng.normal(size=200), [10, 12])
    X[rng.random(X.shape) < [0.3, 0.0, 0.5]] = np.nan
    X[:20, 2] = np.nan  # a query without any value of a feature
    return X, y, qid


X, Y, QID = rows()


@pytest.mark.parametrize("missing", ["indicator", "mean"])
@pytest.mark.parametrize("normalization", ["standard", "query", "none"])
@pytest.mark.parametrize("name", list(RANKERS))
def test_onnx_gives_the_scores_of_the_ranker(name, normalization, missing):
    pytest.importorskip("onnx", reason="exports to ONNX need onnx")
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX is checked by onnxruntime")
    ranker = RANKERS[name](normalization=normalization, missing=missing).fit(X, Y, qid=QID)
    given = X.copy()
    given[25, 1] = np.nan  # a feature that was always known in training
    session = onnxruntime.InferenceSession(to_onnx(ranker).SerializeToString())
    scores = [session.run(["scores"], {"features": given[q == QID]})[0] for q in range(10)]
    expected = ranker.predict(given, qid=QID)
    assert np.isfinite(expected).all()
    assert_allclose(np.concatenate(scores), expected, rtol=0, atol=1e-12)


def test_search_engines_refuse_them():
    for ranker in (RANKERS["sinkprop"](), RANKERS["network"](input_transform="none")):
        ranker.fit(X, Y, qid=QID)
        with pytest.raises(
            ValueError, match=r"trained with missing values .*, but Solr takes .* export to ONNX"
        ):
            to_solr(ranker, name="a")
    with pytest.raises(ValueError, match=r"trained with missing values .*, but the plugin takes"):
        to_elasticsearch(RANKERS["regression"]().fit(X, Y, qid=QID), name="a")
