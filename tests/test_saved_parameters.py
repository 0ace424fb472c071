"""A loaded ranker has the parameters of the saved one, with the same types."""

import numpy as np
import pytest
from sklearn.base import clone

import sinkprop
from sinkprop import (
    NDCG,
    AutoRanker,
    Converged,
    PartitionedMeasure,
    Precision,
    RankLinear,
    Selection,
    SinkPropRanker,
    SmoothedIndicator,
)
from sinkprop.estimator.base import OF_THE_RUN
from sinkprop.linear.records import Annealing
from sinkprop.metrics import CONVENTIONS
from sinkprop.model_files import ModelFileError, read_model, write_model
from sinkprop.registry import RANKERS, load_model

for package in ("torch", "lightgbm", "xgboost", "catboost"):
    pytest.importorskip(package)

from export_rankers import training  # noqa: E402 - it imports these packages

from sinkprop import baselines  # noqa: E402
from sinkprop.gbdt.ranker import BoostedRanker  # noqa: E402
from sinkprop.torch import LBFGS, MLP, Adam, ListTransformer, NeuralRanker  # noqa: E402

VALIDATION = Selection("validation", "best", ("ndcg@3", "map"), fraction=0.3, patience=2)
COMMON = {
    "metric": "map", "convention": "letor", "random_state": np.int64(3), "verbose": False, "n_threads": 1,
}  # fmt: skip
LINEAR = {**COMMON, "normalization": "none", "missing": "mean", "selection": VALIDATION}
NETWORK = {**COMMON, "max_epochs": 2, "validation_fraction": 0, "normalization": "query"}
CASES = {
    "sinkprop": SinkPropRanker(
        NDCG(5, discount="log2"), SmoothedIndicator(np.float64(0.5)), penalty=(0.5, np.float32(0.25)),
        annealing=Annealing(1, 0.5), start="least-squares", resample=1, n_iter=Converged(1e-8), epsilon=0,
        max_iter=2, tol=1e-3, top=5, **LINEAR,
    ),
    "texts and numbers": SinkPropRanker("p@5", "laplace", penalty=0.5, max_iter=1, n_iter="converged",
        selection="validation", **COMMON),
    "a list": SinkPropRanker(penalty=[0.5, 1], max_iter=1, n_iter=2.5,
        selection=Selection(criterion=["map", "p@5"], n_splits=np.int64(2)), **COMMON),
    "an array": SinkPropRanker(penalty=np.array([0.5, 1]), max_iter=1, **COMMON),
    "measure": SinkPropRanker(relaxation=PartitionedMeasure("probit"), penalty=0.5, max_iter=1, **COMMON),
    "metrics": SinkPropRanker(Precision(5).on(0) + 2 * NDCG(), penalty=0.5, max_iter=1,
        **{**COMMON, "metric": sinkprop.metrics.parse_metric("p@3"), "convention": CONVENTIONS["trec"]}),
    "regression": baselines.RegressionRanker(penalty=(1.0, 2), **LINEAR),
    "ridge": baselines.RegressionRanker(penalty="auto", normalization="standard"),
    "listnet": baselines.ListNetRanker(
        top_k=2, gain="exponential", penalty=[1.0], max_iter=2, tol=1e-2, **LINEAR
    ),
    "adarank": baselines.AdaRankRanker(
        measure="ndcg@5", variant="ranklib", both_directions=True, n_rounds=np.int32(3), tolerance=0.1,
        **{**LINEAR, "normalization": "standard"},
    ),
    "smoothrank": baselines.SmoothRankRanker(
        NDCG(3), penalty=1, annealing=Annealing(2.0, 1), max_iter=1, tol=1e-2, **LINEAR
    ),
    "softrank": baselines.SoftRankRanker(
        "ndcg@5", sigma=1, penalty=[1.0], balance=True, top=5, max_iter=1, tol=1e-2, **LINEAR
    ),
    "boltzrank": baselines.BoltzRankRanker(
        "pair", gain=NDCG(), mixing=[0.5], penalty=1, n_rankings=9, sharpness=1, n_hidden=2, max_iter=1,
        tol=1e-2, **LINEAR,
    ),
    "feature": baselines.FeatureRanker(
        "f3", feature_names=tuple(f"f{i}" for i in range(50)), metric="map", convention="letor"
    ),
    "boosted": BoostedRanker(
        NDCG(4), n_estimators=np.int64(3), learning_rate=1, num_leaves=3, min_child_samples=2,
        widths=[0.5, 2], blend=0, noise=1, n_iter=Converged(), epsilon=0, effort="fast", n_boosters=2,
        importance_type="gain", early_stopping_rounds=None, criterion=["map"],
        validation_fraction=0.5, reg_lambda=2, monotone_constraints=(0,) * 49 + (1,), **COMMON,
    ),
    "boosted, LightGBM's names": BoostedRanker(eta=0.5, n_estimators=2, validation_fraction=0, num_threads=1,
        random_state=None, verbose=False),
    "lightgbm": baselines.LightGBMRanker(
        "sinkprop", n_estimators=2, num_leaves=3, learning_rate=(1, 0.5), min_child_samples=[5], step=1,
        truncation_level=3, loss={"gain": NDCG(3), "widths": (1, 0.5)}, params={"lambda_l2": 1},
        selection=VALIDATION, normalization="query", **COMMON,
    ),
    "xgboost": baselines.XGBoostRanker(
        n_estimators=2, num_leaves=3, learning_rate=1, min_child_weight=[1], step=2, selection=VALIDATION,
        normalization="query", **COMMON,
    ),
    "catboost": baselines.CatBoostRanker(
        "queryrmse", n_estimators=2, depth=[1, 2], l2_leaf_reg=[None, 1], learning_rate=None, step=1,
        selection=VALIDATION, normalization="query", **COMMON,
    ),
    "network": NeuralRanker(
        gain=NDCG(2), relaxation=SmoothedIndicator(2), sigma=1, start_epochs=1, n_iter=Converged(),
        epsilon=1e-3, network=MLP([4], dropout=0.5), input_transform="none", input_noise=0.5, missing="mean",
        optimizer=LBFGS(2), n_networks=2, criterion=["map"], patience=3, dtype="float64", **NETWORK,
    ),
    "network of defaults": NeuralRanker(max_epochs=2, verbose=False),
    "transformer": NeuralRanker(loss="listnet", network=ListTransformer(8), optimizer=Adam(0.01), **NETWORK),
    "auto": AutoRanker(
        time_budget=1000, methods=("ridge", "linear"), gain=NDCG(5), selection=VALIDATION, **COMMON
    ),
    "auto, text": AutoRanker(time_budget=1e3, methods="ridge", **COMMON),
}  # fmt: skip


def plain(value):
    """The value with its type, for comparison; NumPy's numbers count as Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [plain(item) for item in value]
    if isinstance(value, dict):
        return dict, [(name, plain(item)) for name, item in value.items()]
    return type(value), value


def parameters(ranker):
    given = ranker.get_params(deep=False)
    return {name: plain(value) for name, value in given.items() if name not in {*OF_THE_RUN, "num_threads"}}


def test_the_cases_cover_every_ranker_and_parameter():
    assert {type(ranker).__name__ for ranker in CASES.values()} == set(RANKERS)
    for kind in {type(ranker) for ranker in CASES.values()}:
        made = [ranker for ranker in CASES.values() if type(ranker) is kind]
        same = [n for n, v in parameters(kind()).items() if all(parameters(r)[n] == v for r in made)]
        assert set(same) <= {"distributed"}, (kind.__name__, same)


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_ranker_has_the_saved_parameters_and_fits_to_the_same_bytes(name, tmp_path):
    train = training()
    ranker = clone(CASES[name]).fit(train.X, train.y, qid=train.qid)
    ranker.save(tmp_path / "first")
    loaded = load_model(tmp_path / "first")
    assert parameters(loaded) == parameters(ranker)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "first").read_bytes()
    if isinstance(loaded.get_params().get("random_state", 0), int):
        clone(loaded).fit(train.X, train.y, qid=train.qid).save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "first").read_bytes()


def test_a_loaded_ranker_refuses_to_train_on_a_gain_that_the_file_does_not_hold(tmp_path):
    train = training()
    gain = RankLinear(gain=lambda y: 3**y - 1, discount=lambda k: 1 / k)
    for ranker in (
        BoostedRanker(gain, n_estimators=2, verbose=False),
        baselines.LightGBMRanker("sinkprop", loss={"gain": gain}, n_estimators=2, step=1, verbose=False),
        NeuralRanker(gain=gain, max_epochs=2, verbose=False),
    ):
        ranker.fit(train.X, train.y, qid=train.qid).save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(train), ranker.predict(train))
        with pytest.raises(ValueError, match="gain was a RankLinear with a function or an array"):
            clone(loaded).fit(train.X, train.y, qid=train.qid)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"checkpoint": "/tmp/x"}, "must not set checkpoint"),
        ({"penalty": {"type": "Path", "settings": {}}}, "KeyError: 'Path'"),
        ({"gain": {"type": "Gain", "settings": "ndgc"}}, "gain 'ndgc' is not known"),
        ({"annealing": {"type": "Annealing", "settings": {"start": -1}}}, "start must be a finite number"),
        ({"gain": {"type": "UnsavedGain", "settings": "a b"}}, "must be the name of a class"),
        ({"colour": 1}, "unexpected keyword argument 'colour'|colour"),
        ([], "AttributeError|TypeError"),
    ],
)
def test_a_changed_file_is_refused_in_one_line(given, message, tmp_path):
    train = training()
    SinkPropRanker(penalty=1, max_iter=1, verbose=False).fit(train).save(tmp_path / "model")
    state = read_model(tmp_path / "model").state
    write_model(tmp_path / "model", "SinkPropRanker", {**state, "given": given or [1]})
    with pytest.raises(ModelFileError, match=message) as error:
        load_model(tmp_path / "model")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["boosted", "lightgbm"])
def test_no_file_sets_a_path_of_lightgbm(name, tmp_path):
    train = training()
    ranker = clone(CASES[name]).fit(train.X, train.y, qid=train.qid)
    ranker.save(tmp_path / "model")
    state = read_model(tmp_path / "model").state
    given = (
        {"forcedsplits_filename": "x"}
        if name == "boosted"
        else {"params": {"type": "dict", "settings": {"forcedsplits_filename": "x"}}}
    )
    write_model(tmp_path / "model", type(ranker).__name__, {**state, "given": {**state["given"], **given}})
    with pytest.raises(ModelFileError, match="a model file must not set forcedsplits_filename"):
        load_model(tmp_path / "model")


def test_a_file_of_an_earlier_version_has_no_given_parameters(tmp_path):
    train = training()
    ranker = SinkPropRanker(penalty=0.5, max_iter=1, verbose=False).fit(train)
    ranker.save(tmp_path / "model")
    state = read_model(tmp_path / "model").state
    assert state.pop("given") == {"relaxation": "gaussian", "penalty": 0.5}
    write_model(tmp_path / "model", "SinkPropRanker", state)
    loaded = load_model(tmp_path / "model")
    assert loaded.penalty == (0.5,)
    np.testing.assert_array_equal(loaded.predict(train), ranker.predict(train))
