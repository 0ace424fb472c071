"""ONNX exports, by onnxruntime itself."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from engine_scorers import same_order
from export_rankers import (
    ALL,
    BY_QUERY,
    LINEAR,
    MORE_NETWORKS,
    NETWORKS,
    PARTITIONED,
    TREES,
    fitted,
    real_queries,
    training,
)
from ohsumed import folds, needs_ohsumed

import sinkprop
from sinkprop import PartitionedMeasure, SinkPropRanker, load_model
from sinkprop.baselines import BoltzRankRanker, LightGBMRanker, RegressionRanker, XGBoostRanker
from sinkprop.export import to_onnx, write_export
from sinkprop.gbdt.ranker import BoostedRanker
from sinkprop.registry import RANKERS
from sinkprop.torch import MLP, NeuralRanker

onnx = pytest.importorskip("onnx", reason="exports to ONNX need onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX is checked by onnxruntime")


class Odd(torch.nn.Linear):
    """A network that no graph can hold: it looks at numbers to decide what to do."""

    def forward(self, rows):
        return super().forward(rows) if float(rows.sum().item()) > 0 else -super().forward(rows)


LINEAR_TOLERANCE, NETWORK_TOLERANCE, TREE_TOLERANCE = 1e-6, 1e-5, 1e-6
QUICK = {"max_epochs": 1, "validation_fraction": 0, "verbose": False}


def run(model, X):
    """All outputs of a model, or of the bytes of a file."""
    content = model if isinstance(model, bytes) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    dtype = np.float32 if taken.type == "tensor(float)" else np.float64
    outputs = session.run(None, {taken.name: np.asarray(X, dtype=dtype)})
    return dict(zip([output.name for output in session.get_outputs()], outputs, strict=True))


def small(n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(60, n_features)), np.repeat(np.arange(6), 10)
    return X, np.digitize(X[:, 0] + 0.5 * rng.normal(size=60), [0.5, 1.5]), qid


def tolerance(name):
    return NETWORK_TOLERANCE if name in {**NETWORKS, **MORE_NETWORKS} else LINEAR_TOLERANCE


@pytest.mark.parametrize("name", [*LINEAR, *PARTITIONED, *TREES, *NETWORKS, *MORE_NETWORKS])
def test_scores_are_those_of_predict(name):
    ranker, test = fitted(name), real_queries()
    found, expected = run(to_onnx(ranker), test.X)["scores"], ranker.predict(test.X)
    assert found.shape == expected.shape
    assert found.dtype == np.float64
    assert np.abs(found - expected).max() < tolerance(name)
    assert same_order(found, expected, test.groups)


@pytest.mark.parametrize("name", BY_QUERY)
def test_a_query_at_a_time_where_features_are_normalized_by_query(name):
    ranker, test = fitted(name), real_queries()
    model = to_onnx(ranker)
    found = np.concatenate([run(model, test.X[test.qid == q])["scores"] for q in np.unique(test.qid)])
    order = np.argsort(test.qid, kind="stable")
    expected = ranker.predict(test.X, qid=test.qid)[order]
    assert np.abs(found - expected).max() < (1e-5 if name == "network, query" else 1e-6)
    assert {p.key: p.value for p in model.metadata_props}["rows"] == "one query"
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "documents_of_one_query"


@needs_ohsumed
@pytest.mark.parametrize(
    ("make", "bound"),
    [
        (lambda: SinkPropRanker(penalty=0.01, selection="validation", verbose=False), 1e-6),
        (RegressionRanker, 1e-6),
        (lambda: BoostedRanker(n_estimators=50, verbose=False), 1e-6),
        (lambda: XGBoostRanker(n_estimators=30, num_leaves=10, min_child_weight=1.0, verbose=False), 1e-6),
        (lambda: NeuralRanker(max_epochs=3, verbose=False), 1e-5),
    ],
    ids=["sinkprop", "regression", "boosted", "xgboost", "network"],
)
def test_on_ohsumed(make, bound):
    fold = folds()[0]
    ranker = make().fit(fold.vali.X, fold.vali.y, qid=fold.vali.qid)
    found, expected = run(to_onnx(ranker), fold.test.X)["scores"], ranker.predict(fold.test.X)
    assert np.abs(found - expected).max() < bound
    assert same_order(found, expected, fold.test.groups)


@pytest.mark.parametrize("name", PARTITIONED)
def test_a_partitioned_measure_gives_its_two_outputs(name):
    ranker, test = fitted(name), real_queries()
    outputs = run(to_onnx(ranker), test.X)
    assert list(outputs) == ["scores", "parameters"]
    theta = ranker._theta(test.X)
    np.testing.assert_allclose(outputs["parameters"], theta, rtol=0, atol=1e-9)
    by_hand = theta[:, 1] - theta[:, 0] if name == "beta" else -theta[:, 0]
    np.testing.assert_allclose(outputs["scores"], by_hand, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["sinkprop", "boosted", "xgboost", "network, log"])
def test_any_number_of_rows_and_the_same_score_for_each(name):
    ranker, test = fitted(name), real_queries()
    model = to_onnx(ranker)
    whole = run(model, test.X[:50])["scores"]
    alone = np.concatenate([run(model, row[None])["scores"] for row in test.X[:50]])
    np.testing.assert_allclose(alone, whole, rtol=0, atol=1e-12)
    assert run(model, test.X[:0])["scores"].shape == (0,)
    twice = run(model, np.repeat(test.X[:50], 3, axis=0))["scores"].reshape(50, 3)
    assert (twice == twice[:, :1]).all()  # exact ties stay


@pytest.mark.parametrize("name", ["sinkprop", "boosted", "network, log"])
def test_single_precision_in_and_out(name):
    ranker = fitted(name)
    X = real_queries().X.astype(np.float32)
    found = run(to_onnx(ranker, dtype="float32"), X)["scores"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ranker.predict(X.astype(np.float64)), rtol=2e-7, atol=1e-6)


def test_what_the_file_says_of_itself():
    train = training()
    model = to_onnx(fitted("sinkprop"), features=train.feature_names)
    said = {p.key: p.value for p in model.metadata_props}
    assert said.pop("sinkprop") == sinkprop.__version__ == model.producer_version
    assert json.loads(said.pop("features")) == list(train.feature_names)
    assert said == {"ranker": "SinkPropRanker", "metric": "ndcg@10", "convention": "standard", "rows": "any"}
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 18)]
    assert model.ir_version == 8
    trees = to_onnx(fitted("boosted"))
    assert {o.domain: o.version for o in trees.opset_import} == {"": 18, "ai.onnx.ml": 5}
    (shape,) = (value.type.tensor_type.shape for value in model.graph.input)
    assert [d.dim_param or d.dim_value for d in shape.dim] == ["documents", train.X.shape[1]]


@pytest.mark.parametrize(
    "name", ["sinkprop", "beta", "boosted", "xgboost", "network, gelu, layer", "feature"]
)
def test_a_saved_model_exports_to_the_same_bytes(name, tmp_path):
    ranker = fitted(name)
    ranker.save(tmp_path / "m.model")
    write_export(ranker, tmp_path / "a.onnx", format="onnx")
    write_export(load_model(tmp_path / "m.model"), tmp_path / "b.onnx", format="onnx")
    content = (tmp_path / "a.onnx").read_bytes()
    assert content == (tmp_path / "b.onnx").read_bytes()
    onnx.checker.check_model(onnx.load(tmp_path / "a.onnx"), full_check=True)
    to_onnx(ranker, tmp_path / "c.onnx")
    assert content == (tmp_path / "c.onnx").read_bytes()
    assert np.abs(run(content, real_queries().X)["scores"] - ranker.predict(real_queries().X)).max() < 1e-5


def test_linear_models_need_no_torch(tmp_path):
    fitted("sinkprop").save(tmp_path / "m.model")
    program = """if True:
        import sys
        from sinkprop import load_model
        from sinkprop.export import write_export

        write_export(load_model(sys.argv[1]), sys.argv[2], format="onnx")
        print("torch" in sys.modules, "lightgbm" in sys.modules)
    """
    files = str(tmp_path / "m.model"), str(tmp_path / "m.onnx")
    command = [sys.executable, "-W", "error", "-c", program, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: SinkPropRanker(penalty=0.1, verbose=False),
        lambda: SinkPropRanker(relaxation=PartitionedMeasure("beta"), penalty=0.1, verbose=False),
        lambda: BoostedRanker(n_estimators=3, verbose=False),
        lambda: NeuralRanker(dtype="float64", **QUICK),
        lambda: NeuralRanker(network=MLP((1,)), dtype="float64", input_transform="none", **QUICK),
        lambda: NeuralRanker(network=MLP((), layer_normalization="layer"), **QUICK),
    ],
)
def test_one_feature(make):
    X, y, qid = small(1)
    ranker = make().fit(X, y, qid=qid)
    found, expected = run(to_onnx(ranker), X)["scores"], ranker.predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)  # nothing is done in single precision


def test_constant_and_large_features():
    X, y, qid = small(4)
    X = X * [1, 0, 1e6, 1e-6] + [0, 7, 1e9, 1e-3]
    for ranker in (SinkPropRanker(penalty=0.1, verbose=False), NeuralRanker(**QUICK)):
        ranker.fit(X, y, qid=qid)
        assert ranker.scaling_.factor[1] == 0
        moved = X + np.array([0, 3, 0, 0])  # a constant feature is of no account
        for rows in (X, moved):
            assert np.abs(run(to_onnx(ranker), rows)["scores"] - ranker.predict(rows)).max() < 1e-6


def test_huge_weights():
    X, y, qid = small()
    X *= 1e-100
    ranker = RegressionRanker().fit(X, y, qid=qid)
    assert np.abs(ranker.coef_).max() > 1e90
    np.testing.assert_allclose(run(to_onnx(ranker), X)["scores"], ranker.predict(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [BoostedRanker, LightGBMRanker, XGBoostRanker])
def test_missing_values_go_their_way_in_trees(make):
    X, y, qid = small(3)
    rng = np.random.default_rng(1)
    X[rng.random(X.shape) < 0.3] = np.nan
    more = {"min_child_weight": 1.0} if make is XGBoostRanker else {"min_child_samples": 3}
    ranker = make(n_estimators=10, num_leaves=8, verbose=False, **more).fit(X, y, qid=qid)
    scorer = sinkprop.export.scorers.scorer_of(ranker)
    assert any((tree.missing_left != tree.zero_left).any() for tree in scorer.trees)
    rows = np.concatenate([X, np.full((1, 3), np.nan), np.zeros((1, 3)), -np.zeros((1, 3))])
    np.testing.assert_allclose(run(to_onnx(ranker), rows)["scores"], ranker.predict(rows), rtol=0, atol=1e-7)


def test_missing_values_where_features_are_normalized_by_query():
    X, y, qid = small(3)
    X[np.random.default_rng(1).random(X.shape) < 0.3] = np.nan
    ranker = LightGBMRanker(
        n_estimators=10, num_leaves=4, min_child_samples=3, normalization="query", verbose=False
    ).fit(X, y, qid=qid)
    X[qid == 1, 0], X[qid == 2, 1] = np.nan, 7.0  # all missing; constant
    model, expected = to_onnx(ranker), ranker.predict(X, qid=qid)
    assert len(np.unique(expected)) > 3
    for q in range(6):
        found = run(model, X[qid == q])["scores"]
        np.testing.assert_allclose(found, expected[qid == q], rtol=0, atol=1e-12)


def test_values_at_and_beside_every_threshold():
    ranker = BoostedRanker(n_estimators=10, verbose=False).fit(*small()[:2], qid=small()[2])
    xgboost = XGBoostRanker(n_estimators=10, num_leaves=4, min_child_weight=0.1, verbose=False)
    xgboost.fit(*small()[:2], qid=small()[2])
    for model in (ranker, xgboost):
        scorer = sinkprop.export.scorers.scorer_of(model)
        rows = []
        for tree in scorer.trees:
            for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
                kind = np.float32 if scorer.single else np.float64
                for value in (threshold, *np.nextafter(kind(threshold), [kind(-np.inf), kind(np.inf)])):
                    row = np.zeros(3)
                    row[feature] = value
                    rows.append(row)
        found, expected = run(to_onnx(model), rows)["scores"], model.predict(np.array(rows))
        assert len(np.unique(expected)) > 2
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


def test_trees_of_one_leaf():
    X, _, qid = small()
    for n_estimators in (1, 3):
        ranker = BoostedRanker(n_estimators=n_estimators, min_child_samples=100, verbose=False)
        ranker.fit(X, np.arange(60) % 3, qid=qid)
        assert all(not len(tree.feature) for tree in sinkprop.export.scorers.scorer_of(ranker).trees)
        rows = np.concatenate([X, np.full((1, 3), np.nan)])
        assert np.abs(run(to_onnx(ranker), rows)["scores"] - ranker.predict(rows)).max() < 1e-12


@pytest.mark.parametrize("boosting", ["rf", "dart"])
def test_other_ways_to_boost(boosting):
    X, y, qid = small()
    params = {"boosting": boosting, "bagging_fraction": 0.7, "bagging_freq": 1}
    ranker = LightGBMRanker(n_estimators=10, num_leaves=4, min_child_samples=3, params=params, verbose=False)
    ranker.fit(X, y, qid=qid)
    assert len(np.unique(ranker.predict(X))) > 2
    np.testing.assert_allclose(run(to_onnx(ranker), X)["scores"], ranker.predict(X), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_a_network_of_ones_own():
    class Own(torch.nn.Module):
        def __init__(self, n_features):
            super().__init__()
            self.inner, self.outer = torch.nn.Linear(n_features, 8), torch.nn.Linear(8, 1)

        def forward(self, rows):
            return self.outer(torch.sin(self.inner(rows)))

    X, y, qid = small()
    ranker = NeuralRanker(network=Own, **QUICK).fit(X, y, qid=qid)
    model = to_onnx(ranker)
    for rows in (X, X[:1]):
        assert np.abs(run(model, rows)["scores"] - ranker.predict(rows)).max() < 1e-5
    assert b".py" not in model.SerializeToString()  # no paths


def test_pytorchs_older_exporter_where_the_newer_is_not_there(monkeypatch):
    X, y, qid = small()
    made = lambda n: torch.nn.Sequential(torch.nn.Linear(n, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 1))  # noqa: E731
    ranker = NeuralRanker(network=made, **QUICK).fit(X, y, qid=qid)
    from sinkprop.export import onnx_models

    monkeypatch.setattr(onnx_models.importlib.util, "find_spec", lambda name: None)
    assert np.abs(run(to_onnx(ranker), X[:7])["scores"] - ranker.predict(X[:7])).max() < 1e-5
    odd = NeuralRanker(network=lambda n: Odd(n, 1), **QUICK).fit(X, y, qid=qid)
    with pytest.raises(ValueError, match=r"PyTorch cannot export the network Odd.*onnxscript"):
        to_onnx(odd)


def test_an_mlp_of_ones_own_needs_no_exporter(monkeypatch):
    X, y, qid = small()
    made = MLP((6,), linear=False, activation="tanh", dropout=0)
    monkeypatch.setattr(torch.onnx, "export", None)
    for network in (made, made(3), lambda n: made(n, 1)):
        ranker = NeuralRanker(network=network, **QUICK).fit(X, y, qid=qid)
        assert np.abs(run(to_onnx(ranker), X)["scores"] - ranker.predict(X)).max() < 1e-5


def test_what_cannot_be_exported_is_an_error_before_anything_is_written(tmp_path):
    from sklearn.linear_model import LinearRegression

    X, y, qid = small()

    class Listwise(torch.nn.Linear):
        def forward(self, rows, offsets):
            return super().forward(rows)

    cases = [
        (LinearRegression(), "must be a ranker of sinkprop"),
        (SinkPropRanker(), "not fitted"),
        (
            BoltzRankRanker("pair", penalty=0.1, max_iter=2, verbose=False).fit(X, y, qid=qid),
            "potential='single'",
        ),
        (NeuralRanker(network=lambda n: Listwise(n, 1), **QUICK).fit(X, y, qid=qid), "takes offsets"),
        (NeuralRanker(network=lambda n: Odd(n, 1), **QUICK).fit(X, y, qid=qid), "PyTorch cannot export"),
        (
            BoostedRanker(n_estimators=2, linear_tree=True, min_child_samples=3, verbose=False).fit(
                X, y, qid=qid
            ),
            "linear_tree",
        ),
    ]
    for ranker, message in cases:
        with pytest.raises(ValueError, match=message):
            write_export(ranker, tmp_path / "m.onnx", format="onnx")
    with pytest.raises(ValueError, match="dtype must be"):
        to_onnx(fitted("sinkprop"), dtype="float16")
    with pytest.raises(ValueError, match="50 features of the model; got 2"):
        to_onnx(fitted("sinkprop"), features=["a", "b"])
    assert list(tmp_path.iterdir()) == []


def test_without_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"sinkprop\[onnx\]"):
        to_onnx(fitted("sinkprop"))


def test_all_kinds_are_tested():
    assert {type(fitted(name)).__name__ for name in ALL} == set(RANKERS)
