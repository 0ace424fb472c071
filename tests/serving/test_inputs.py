"""Documents as frames, columns, records and arrays with categories; wrong documents and wrong files."""

from __future__ import annotations

import hashlib
import os
import threading

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from category_frames import features, frame

from sinkprop import AutoRanker, load_frame, load_model, serving
from sinkprop.baselines import CatBoostRanker, FeatureRanker, LightGBMRanker, RegressionRanker, XGBoostRanker
from sinkprop.gbdt import BoostedRanker
from sinkprop.model_files import ModelFileError, read_model, write_model

_SHORT = {"n_estimators": 8, "verbose": False}
CATEGORICAL = {
    "boosted": lambda: BoostedRanker(**_SHORT),
    "lightgbm": lambda: LightGBMRanker(num_leaves=4, **_SHORT),
    "xgboost": lambda: XGBoostRanker(num_leaves=4, min_child_weight=1.0, learning_rate=0.3, **_SHORT),
    "catboost": lambda: CatBoostRanker(depth=3, l2_leaf_reg=None, learning_rate=0.3, **_SHORT),
    "auto": lambda: AutoRanker(methods="trees", time_budget=1e6, verbose=False),
}


def restored(ranker, folder):
    path = folder / "model"
    ranker.save(path)
    return serving.load(path)


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """A ranker of the features bm25, length and age, and its scorer."""
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.normal(size=(60, 3)), columns=["bm25", "length", "age"])
    ranker = RegressionRanker().fit(X, rng.integers(0, 3, 60), qid=np.repeat(range(6), 10))
    return ranker, restored(ranker, tmp_path_factory.mktemp("linear"))


@pytest.fixture(scope="module", params=CATEGORICAL)
def categorical(request, tmp_path_factory):
    train = frame(pandas)
    ranker = CATEGORICAL[request.param]().fit(features(train), train.label, qid=train.qid)
    return ranker, restored(ranker, tmp_path_factory.mktemp("categorical"))


def documents(seed=5):
    return features(frame(pandas, n_queries=4, seed=seed))


def test_categories_of_frames_have_the_scores_of_the_ranker(categorical):
    ranker, scorer = categorical
    X = documents()
    expected = ranker.predict(X)
    assert len(np.unique(expected)) > 3
    plain = X.astype({"site": object, "size": object})
    arrow = pyarrow.Table.from_pandas(X, preserve_index=False)
    given = {
        "pandas": X,
        "pyarrow": arrow,
        "polars": polars.from_arrow(arrow),
        "columns": {name: plain[name].tolist() for name in reversed(plain.columns)},
        "records": [{"id": 7, **record} for record in plain.to_dict("records")],
        "queries": load_frame(frame(pandas, n_queries=4, seed=5), allow_nan=True),
    }
    for how, X in given.items():
        assert scorer.predict(X).tobytes() == expected.tobytes(), how
    assert scorer.categories == ranker.categories_


def test_a_split_between_known_and_missing_values(tmp_path):
    known = np.tile([1.0, np.nan], 40)
    X, y = np.column_stack([known, np.zeros(80)]), np.tile([1, 0], 40)
    ranker = BoostedRanker(n_estimators=3, min_child_samples=5, verbose=False)
    ranker.fit(X, y, qid=np.repeat(range(8), 10)).save(tmp_path / "m")
    assert b"inf" in (tmp_path / "m").read_bytes()
    expected = ranker.predict(X[:2])
    assert expected[0] > expected[1]
    assert serving.load(tmp_path / "m").predict(X[:2]).tobytes() == expected.tobytes()
    assert load_model(tmp_path / "m").predict(X[:2]).tobytes() == expected.tobytes()


def test_codes_in_arrays_are_those_of_the_categories(categorical):
    ranker, scorer = categorical
    X = documents()
    codes = np.column_stack([X.bm25, X.site.cat.codes, X["size"].cat.codes]).astype(np.float64)
    codes[codes == -1] = np.nan
    with warnings_of_names():
        expected = ranker.predict(codes)
    assert scorer.predict(codes).tobytes() == expected.tobytes()
    assert expected.tobytes() == ranker.predict(X).tobytes()


def test_a_category_not_seen_counts_as_missing_with_a_warning(categorical):
    ranker, scorer = categorical
    X = documents().astype({"site": object})
    X.loc[3, "site"] = "forum"
    X["site"] = X["site"].astype("category")
    says = "X has categories that were not in the training data, and count as missing: 'forum' of 'site'"
    with pytest.warns(UserWarning, match=says):
        expected = ranker.predict(X)
    for given in (X, X.astype({"site": object, "size": object}).to_dict("records")):
        with pytest.warns(UserWarning, match=says):
            found = scorer.predict(given)
        assert found.tobytes() == expected.tobytes()


def test_a_column_of_another_kind(categorical):
    _, scorer = categorical
    X = documents()
    with pytest.raises(ValueError, match="column 'site' of X was categorical when the ranker was fitted"):
        scorer.predict(X.astype({"site": object}))
    with pytest.raises(ValueError, match="column 'bm25' of X was not categorical"):
        scorer.predict(X.astype({"bm25": "category"}))


def warnings_of_names():
    return pytest.warns(UserWarning, match="X does not have valid feature names")


@pytest.mark.parametrize(
    "kind", ["float32", "mixed", "bool", "nullable", "polars", "pyarrow", "columns", "records", "fortran"]
)
def test_frames_of_numbers_have_the_scores_of_the_ranker(linear, kind):
    ranker, scorer = linear
    X = pandas.DataFrame({"bm25": [1.5, -0.25, 2.0], "length": [3, 4, 5], "age": [1.0, 0.0, 1.0]})
    expected = ranker.predict(X)
    given = {
        "float32": X.astype(np.float32),
        "mixed": X.astype({"bm25": np.float32, "length": np.int8}),
        "bool": X.astype({"age": bool}),
        "nullable": X.astype({"length": "Int64"}),
        "polars": polars.from_pandas(X),
        "pyarrow": pyarrow.Table.from_pandas(X),
        "columns": {"age": X.age, "bm25": tuple(X.bm25), "length": X.length.to_numpy(), "title": ["a"] * 3},
        "records": X.to_dict("records"),
        "fortran": np.asfortranarray(X.to_numpy()),
    }[kind]
    assert scorer.predict(given).tobytes() == expected.tobytes()


def test_missing_values_may_be_none(tmp_path):
    X = pandas.DataFrame({"a": [1.0, np.nan, 3.0, 2.0] * 3, "b": [0.5, 1.0, 2.0, np.nan] * 3})
    ranker = RegressionRanker().fit(X, [0, 1, 2, 1] * 3, qid=[1] * 6 + [2] * 6)
    scorer = restored(ranker, tmp_path)
    expected = ranker.predict(X[:4])
    for given in (
        [{"a": 1, "b": 0.5}, {"a": None, "b": 1.0}, {"a": 3.0, "b": 2.0}, {"a": 2.0, "b": None}],
        {"a": [1, None, 3, 2], "b": [0.5, 1, 2, None]},
        [[1.0, 0.5], [None, 1.0], [3.0, 2.0], [2.0, None]],
        X[:4].astype("Float64"),
        polars.from_pandas(X[:4], nan_to_null=True),
    ):
        assert scorer.predict(given).tobytes() == expected.tobytes()


WRONG = [
    (lambda X: X[["bm25", "age", "length"]], r"the model in another order; the first that differs is 'age'"),
    (lambda X: X.drop(columns="age"), "X has no 'age', which the model needs"),
    (
        lambda X: X.rename(columns={"age": "agee"}),
        r"which the model does not know. Was 'age' renamed 'agee'\?",
    ),
    (lambda X: X.assign(title=1.0), r"X has 'title', which the model does not know. Give X\[scorer"),
    (lambda X: X.assign(age="old"), "column 'age' must hold numbers; it is .*, with 'old' in row 0"),
    (lambda X: X.assign(age=np.inf), r"row 0, column 2 \('age'\) holds inf"),
    (lambda X: X.to_numpy()[:, :2], "X has 2 features, but the model has 3"),
    (lambda X: X.to_numpy()[0], r"X must have the shape \(N, D\), one row per document; got \(3,\)"),
    (lambda X: X.to_numpy()[:0], "X must hold at least one document"),
    (lambda X: X.to_numpy().astype(str), "X must be an array of real numbers"),
    (lambda X: [["a", 1, 2]], "X must be an array of real numbers"),
    (lambda X: [["a", None, 2]], "X must hold numbers; row 0 holds 'a'"),
    (lambda X: "age", "X must be an array of real numbers"),
    (lambda X: {"bm25": [1.0], "age": [2.0]}, "X has no 'length', which the model needs"),
    (lambda X: {"bm25": [1.0], "length": [1, 2], "age": [2.0]}, "one value per document in each column"),
    (lambda X: {"bm25": 1.0, "length": 1, "age": 2.0}, "one value per document in each column"),
    (
        lambda X: {"bm25": ["1.0"], "length": [1], "age": [2]},
        "column 'bm25' of X must hold numbers",
    ),
    (lambda X: [{"bm25": 1, "length": 1, "age": 2}, {"bm25": 1}], "document 1: X has no 'length', 'age'"),
    (lambda X: [{"bm25": 1, "length": 1, "age": 2}, 3], "one mapping per document; item 1 is 3"),
    (lambda X: polars.from_pandas(X).lazy(), r"call its collect\(\) first"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[says for _, says in WRONG])
def test_wrong_documents_get_one_clear_line(linear, change, says):
    ranker, scorer = linear
    X = pandas.DataFrame({"bm25": [1.5, -0.25], "length": [3.0, 4.0], "age": [1.0, 0.0]})
    with pytest.raises(ValueError, match=says) as error:
        scorer.predict(change(X))
    assert "\n" not in str(error.value)
    if isinstance(change(X), pandas.DataFrame):  # the ranker refuses it as well
        with pytest.raises(ValueError, match=r"."):
            ranker.predict(change(X))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"qid": [1]}, "qid must have one id per row: 2 rows, but 1 ids"),
        ({"qid": [1, None]}, "qid must not hold None; row 1"),
        ({"group": [3]}, "group must sum to the number of rows, 2; its sum is 3"),
        ({"qid": [1, 1], "group": [2]}, "give qid or group, not both"),
    ],
)
def test_wrong_queries(linear, arguments, says):
    with pytest.raises(ValueError, match=says):
        linear[1].rank(np.zeros((2, 3)), **arguments)


def test_a_model_without_names_takes_frames_by_position_and_no_columns_by_name(tmp_path):
    scorer = restored(FeatureRanker(2).fit([[1.0, 2.0], [2.0, 1.0]], [0, 1], qid=[1, 1]), tmp_path)
    np.testing.assert_array_equal(scorer.predict(pandas.DataFrame({"a": [1.0], "b": [7.0]})), [7.0])
    with pytest.raises(ValueError, match="the model has no feature names, by which it could take records"):
        scorer.predict([{"a": 1.0, "b": 2.0}])
    with pytest.raises(ValueError, match=r"finite, without NaN or inf; row 0, column 1 holds nan"):
        scorer.predict([[1.0, np.nan]])


def rewritten(path, **changes):
    """Change the bytes of a model file and give it a valid checksum."""
    data = path.read_bytes()
    for old, new in changes.values():
        assert old in data
        data = data.replace(old, new, 1)
    covered = data[:-81]
    return covered + b'  "sha256": "' + hashlib.sha256(covered).hexdigest().encode() + b'"\n}\n'


def test_wrong_files_get_one_clear_line(linear, tmp_path):
    path = tmp_path / "model"
    linear[0].save(path)
    data = path.read_bytes()
    wrong = {
        b"": "is empty: it is not a sinkprop model",
        b"hello": "is not a sinkprop model, or its first lines are damaged",
        data[:-200]: "is damaged: it is cut off",
        data.replace(b"0.", b"1.", 1): "is damaged: its bytes do not agree with its checksum",
        rewritten(path, version=(b'"version": 1', b'"version": 7')): "was written in the newer format 7",
        rewritten(path, kind=(b"RegressionRanker", b"ForestRanker")): "holds a 'ForestRanker'; this sinkprop",
        rewritten(path, coef=(b'"coef"', b'"cof"')): "it is not a RegressionRanker that sinkprop .* can read",
        rewritten(path, n=(b'"n_features": 3', b'"n_features": 4')): "can read",
    }
    for content, says in wrong.items():
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=says) as error:
            serving.load(path)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)
        with pytest.raises(ModelFileError, match=says):
            serving.loads(content)
    with pytest.raises(FileNotFoundError):
        serving.load(tmp_path / "none")


def test_a_network_of_own_code_and_a_damaged_network(tmp_path):
    import torch

    from sinkprop.torch import NeuralRanker

    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(40, 2)), np.tile([0, 1], 20), np.repeat(range(4), 10)
    path = tmp_path / "network"
    ranker = NeuralRanker(network=torch.nn.Linear(2, 1), max_epochs=1, validation_fraction=0, verbose=False)
    ranker.fit(X, y, qid=qid).save(path)
    says = "custom network, Linear, but not its code, which only NeuralRanker.load"
    with pytest.raises(ModelFileError, match=says):
        serving.load(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with pytest.raises(ModelFileError, match="the model is damaged: its bytes do not agree"):
        serving.loads(bytes(data))
    path.write_bytes(data[:100])
    with pytest.raises(ModelFileError, match="is damaged: it is cut off in its header"):
        serving.load(path)


def test_a_network_that_overflows(tmp_path):
    from sinkprop.torch import MLP, NeuralRanker

    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(40, 2)), np.tile([0, 1], 20), np.repeat(range(4), 10)
    options = {"max_epochs": 1, "validation_fraction": 0, "verbose": False, "input_transform": "none"}
    ranker = NeuralRanker(network=MLP(()), normalization="none", **options).fit(X, y, qid=qid)
    scorer = restored(ranker, tmp_path)
    with pytest.raises(ValueError, match=r"X holds .*1e\+39.* in row 1, column 0, which is too large"):
        scorer.predict([[0.0, 0.0], [1e39, 0.0]])


def test_a_model_from_a_pipe(linear, tmp_path):
    path, pipe = tmp_path / "model", tmp_path / "pipe"
    linear[0].save(path)
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    scorer = serving.load(pipe)
    writer.join()
    assert scorer.predict(np.ones((1, 3))).tobytes() == linear[1].predict(np.ones((1, 3))).tobytes()


def test_a_member_of_another_name(tmp_path):
    train = frame(pandas)
    ranker = AutoRanker(methods="ridge", time_budget=1e6, verbose=False)
    ranker.fit(train[["bm25"]], train.label, qid=train.qid).save(tmp_path / "m")
    model = read_model(tmp_path / "m")
    models = model.state["fitted"]["models"]
    models["forest"] = models.pop("ridge")
    write_model(tmp_path / "m", "AutoRanker", model.state)
    with pytest.raises(ModelFileError, match="the member 'forest' is not one of ridge, linear, trees"):
        serving.load(tmp_path / "m")


def test_the_members_of_an_auto_ranker_have_the_classes_that_it_fits():
    from sinkprop.auto.members import KINDS

    assert {name: kind.ranker for name, kind in KINDS.items()} == serving.loading.MEMBERS


def test_every_kind_of_model_is_known():
    from sinkprop.registry import RANKERS
    from sinkprop.serving.loading import KINDS

    assert set(KINDS) == set(RANKERS)
