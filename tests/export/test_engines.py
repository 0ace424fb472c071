"""Exports to search engines, by scorers written from what the engines say of themselves."""

import json

import numpy as np
import pytest
from engine_scorers import Elasticsearch, RefusedError, Solr, same_order, scores
from export_rankers import (
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
from hypothesis import given
from hypothesis import strategies as st
from ohsumed import DATA, folds, needs_ohsumed

from sinkprop import SinkPropRanker, load_letor, load_model
from sinkprop.baselines import FeatureRanker, LightGBMRanker, RegressionRanker, XGBoostRanker
from sinkprop.export import (
    elasticsearch_features,
    solr,
    solr_features,
    to_elasticsearch,
    to_solr,
    write_export,
)
from sinkprop.export.engine_scores import elasticsearch_scores, solr_scores
from sinkprop.export.float32 import single
from sinkprop.export.scorers import LinearScorer, NetworkScorer, scorer_of
from sinkprop.gbdt.ranker import BoostedRanker
from sinkprop.torch import MLP, NeuralRanker

FORMATS = {"elasticsearch": (to_elasticsearch, Elasticsearch), "solr": (to_solr, Solr)}
QUICK = {"max_epochs": 2, "validation_fraction": 0, "verbose": False}


def engine_of(format, ranker, n_features, **options):
    """The engine with the export of a ranker, which has gone through JSON text."""
    export, engine = FORMATS[format]
    body = json.dumps(export(ranker, name="m", **options), allow_nan=False)
    return engine(body, [f"feature_{i}" for i in range(1, n_features + 1)])


def small(n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(60, n_features)), np.repeat(np.arange(6), 10)
    return X, np.digitize(X[:, 0] + 0.5 * rng.normal(size=60), [0.5, 1.5]), qid


def centered(values, groups):
    out = values.astype(np.float64).copy()
    for first, last in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        rows = np.arange(first, last) if groups.rows is None else groups.rows[first:last]
        out[rows] -= out[rows].mean()
    return out


def few(n_queries=4):
    """Some of the queries: one document at a time takes long."""
    test = real_queries()
    return test.select(np.unique(test.qid)[:n_queries])


def rounding(ranker, X):
    """The most by which a linear model's sums in single precision can be off."""
    scorer = scorer_of(ranker)
    scaling = scorer.scaling
    terms = (np.abs(X) + np.abs(scaling.shift)) @ (scaling.factor * np.abs(scorer.coefficients))
    return (X.shape[1] + 4) * 2.0**-24 * terms.max()  # each of a sum's roundings, and four of a term


def network_rounding(ranker, X):
    """(N,) the same for each score of a network of rectified units."""
    scorer, unit = scorer_of(ranker), 2.0**-24
    scaling = scorer.scaling
    features = (X - scaling.shift) * scaling.factor
    off_by = 4 * unit * (np.abs(X) + np.abs(scaling.shift)) * scaling.factor

    def applied(layer, x, off_by):
        size = np.abs(layer.weight)
        roundings = (x.shape[1] + 4) * unit * (np.abs(x) @ size.T + np.abs(layer.bias))
        return x @ layer.weight.T + layer.bias, off_by @ size.T + roundings

    x, most = features, off_by
    for layer in scorer.layers:
        assert layer.kind in ("linear", "relu")
        x, most = (np.maximum(x, 0), most) if layer.kind == "relu" else applied(layer, x, most)
    beside, more = applied(scorer.linear, features, off_by)
    # an engine carries the linear part through the layers, as two rectified units for each feature
    return (most + more + 4 * unit * (np.abs(x) + np.abs(beside)))[:, 0]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", [*LINEAR, *PARTITIONED, *TREES])
def test_the_engine_gives_the_models_order(name, format):
    ranker, test = fitted(name), few()
    found = scores(engine_of(format, ranker, test.X.shape[1]), test.X)
    expected = ranker.predict(test.X)
    assert found.dtype == np.float32
    assert same_order(found, expected, test.groups)
    # constants are dropped, nothing else
    difference = np.abs(centered(found, test.groups) - centered(expected, test.groups)).max()
    assert difference < 1e-5 * max(1, centered(expected, test.groups).std())


@pytest.mark.parametrize("name", NETWORKS)
def test_solr_has_networks_of_rectified_units(name):
    ranker, test = fitted(name), few(2)
    model = to_solr(ranker, name="m")
    assert model["class"].endswith("LinearModel" if name == "network, no layer" else "NeuralNetworkModel")
    found, expected = scores(engine_of("solr", ranker, test.X.shape[1]), test.X), ranker.predict(test.X)
    assert same_order(found, expected, test.groups)
    difference = centered(found, test.groups) - centered(expected, test.groups)
    assert np.abs(difference).max() < 1e-5 * max(1, np.abs(expected).max())


def test_elasticsearch_takes_a_network_without_layers():
    ranker, test = fitted("network, no layer"), few()
    found = scores(engine_of("elasticsearch", ranker, test.X.shape[1]), test.X)
    assert same_order(found, ranker.predict(test.X), test.groups)


def test_solr_takes_features_that_are_logarithms_already():
    ranker, test = fitted("network, log"), few(1)
    logs = np.copysign(np.log1p(np.abs(test.X)), test.X)
    found = scores(engine_of("solr", ranker, test.X.shape[1], transformed=True), logs)
    assert same_order(found, ranker.predict(test.X), test.groups)


def test_solr_takes_a_perceptron_of_tanh_units_without_a_linear_part():
    X, y, qid = small()
    ranker = NeuralRanker(
        network=MLP((6, 4), linear=False, activation="tanh", dropout=0), input_transform="none", **QUICK
    ).fit(X, y, qid=qid)
    found = scores(engine_of("solr", ranker, 3), X)
    assert np.abs(found - ranker.predict(X)).max() < 1e-5


def letor_parts():
    if (DATA / "ohsumed").is_dir():
        yield "OHSUMED", folds()[0].vali, folds()[0].test
    if (DATA / "np2004-part").is_dir():
        vali, test = (load_letor(DATA / "np2004-part" / f"{part}.txt.xz") for part in ("vali", "test"))
        yield "NP2004", vali, test


@needs_ohsumed
@pytest.mark.parametrize(
    "make",
    [
        lambda: SinkPropRanker(penalty=0.01, selection="validation", verbose=False),
        RegressionRanker,
        lambda: BoostedRanker(n_estimators=50, verbose=False),
        lambda: XGBoostRanker(n_estimators=30, num_leaves=10, min_child_weight=1.0, verbose=False),
        lambda: NeuralRanker(input_transform="none", max_epochs=3, verbose=False),
    ],
    ids=["sinkprop", "regression", "boosted", "xgboost", "network"],
)
def test_the_order_on_letor_queries(make):
    for name, train, test in letor_parts():
        ranker = make().fit(train.X, train.y, qid=train.qid)
        expected, names = ranker.predict(test.X), [f"feature_{i}" for i in range(1, test.X.shape[1] + 1)]
        formats = {"solr": solr_scores}
        if not isinstance(ranker, NeuralRanker):
            formats["elasticsearch"] = elasticsearch_scores
        # the first queries by the independent scorer: one document at a time takes long
        first = np.flatnonzero(np.isin(test.qid, np.unique(test.qid)[: 10 if name == "OHSUMED" else 1]))
        for format, by_arrays in formats.items():
            # all documents by the package's own scorer, which is held to the independent one on these
            found = by_arrays(FORMATS[format][0](ranker, name="m"), names, test.X)
            one_by_one = scores(engine_of(format, ranker, test.X.shape[1]), test.X[first])
            np.testing.assert_array_equal(found[first], one_by_one)
            if name == "OHSUMED" or not isinstance(scorer_of(ranker), LinearScorer | NetworkScorer):
                assert same_order(found, expected, test.groups)
            elif isinstance(ranker, NeuralRanker):  # lists of a thousand near ties: only those change places
                assert only_near_ties_turn(found, expected, test.groups, network_rounding(ranker, test.X))
            else:
                assert turned(found, expected, test.groups) <= 2 * rounding(ranker, test.X)


def only_near_ties_turn(found, expected, groups, off_by):
    """Whether two documents change places only where both scores are as near as their rounding, (N,) each."""
    for first, last in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        rows = np.arange(first, last) if groups.rows is None else groups.rows[first:last]
        above = found[rows][:, None] > found[rows][None]
        short_by = expected[rows][None] - expected[rows][:, None]
        if (above & (short_by > 2 * (off_by[rows][:, None] + off_by[rows][None]))).any():
            return False
    return True


def turned(found, expected, groups):
    """The largest difference of the model's scores of two documents that the engine puts the other way."""
    worst = 0.0
    for first, last in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        rows = np.arange(first, last) if groups.rows is None else groups.rows[first:last]
        ordered = expected[rows][np.argsort(-found[rows], kind="stable")]
        worst = max(worst, float((ordered - np.minimum.accumulate(ordered)).max()))
    return worst


@pytest.mark.parametrize("name", ["sinkprop", "boosted", "xgboost", "network", "network, no layer"])
def test_the_packages_scorers_give_the_same_bits(name):
    ranker, test = fitted(name), few()
    names = [f"feature_{i}" for i in range(1, test.X.shape[1] + 1)]
    rows = test.X[:40]
    found = solr_scores(to_solr(ranker, name="m"), names, rows)
    np.testing.assert_array_equal(found, scores(engine_of("solr", ranker, len(names)), rows))
    if name != "network":
        found = elasticsearch_scores(to_elasticsearch(ranker, name="m"), names, rows)
        np.testing.assert_array_equal(found, scores(engine_of("elasticsearch", ranker, len(names)), rows))


def edge_rows(ranker):
    """Rows with a float32 at, below and above each threshold, and zeros and NaN."""
    scorer = scorer_of(ranker)
    rows = [np.zeros(scorer.n_features), -np.zeros(scorer.n_features)]
    for tree in scorer.trees:
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
            near = np.float32(threshold)
            for value in (
                near,
                np.nextafter(near, np.float32(-np.inf)),
                np.nextafter(near, np.float32(np.inf)),
            ):
                row = np.zeros(scorer.n_features)
                row[feature] = value
                rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e6, 1e-30])
@pytest.mark.parametrize("make", [BoostedRanker, XGBoostRanker])
def test_every_value_at_a_threshold_goes_as_in_the_model(make, scale, format):
    X, y, qid = small()
    X[::3, 1] = 0  # LightGBM then splits at its own zero, 1e-35
    more = {"min_child_weight": 0.1} if make is XGBoostRanker else {"min_child_samples": 3}
    ranker = make(n_estimators=8, num_leaves=6, learning_rate=0.3, verbose=False, **more)
    ranker.fit(np.float32(X * scale).astype(np.float64), y, qid=qid)
    rows = edge_rows(ranker)
    if format == "solr":  # there what LightGBM takes for 0 is 0
        rows = rows[(np.abs(rows) >= 1e-34).any(axis=1) | (rows == 0).all(axis=1)]
    expected = ranker.predict(rows)
    found = scores(engine_of(format, ranker, 3), rows)
    assert len(np.unique(expected)) > 3
    assert np.abs((found - found[0]) - (expected - expected[0])).max() < 1e-6


def test_solrs_slack_is_taken_off_by_a_power_of_two():
    X, y, qid = small()
    ranker = BoostedRanker(n_estimators=3, min_child_samples=3, verbose=False).fit(X * 1e-12, y, qid=qid)
    plain = BoostedRanker(n_estimators=3, min_child_samples=3, verbose=False).fit(np.abs(X), y, qid=qid)
    assert not any("norm" in feature for feature in to_solr(plain, name="m")["features"])
    norms = [feature.get("norm") for feature in to_solr(ranker, name="m")["features"]]
    used = {int(feature) for tree in scorer_of(ranker).trees for feature in tree.feature}
    for i, norm in enumerate(norms):
        if i in used:
            assert norm["params"]["avg"] == "0.0"
            assert np.log2(float(np.float32(norm["params"]["std"]))) % 1 == 0
        else:
            assert norm is None


@given(
    st.lists(
        st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0 or abs(x) > 1e-20), min_size=1, max_size=30
    )
)
def test_solrs_slack_does_no_harm_to_any_thresholds(values):
    wanted = np.array(values, dtype=np.float32)
    scale = solr._scale(wanted, "x")
    written, exact = solr._less_slack(np.ldexp(wanted, scale))
    assert exact
    factor = np.float32(2.0**-scale)
    below, above = (np.nextafter(wanted, np.float32(end)) for end in (-np.inf, np.inf))
    with np.errstate(over="ignore"):
        for value, left in ((wanted, True), (below, True), (above, False), (np.float32(1e30), False)):
            assert ((value / factor <= written + np.float32(1e-6)) == left).all()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_a_number_is_read_as_the_float32_it_stands_for(values):
    for value in values:
        short = single(value, "it")
        assert np.float32(short) == np.float32(value)  # as a double that is made a float
        assert np.float32(repr(short)) == np.float32(value)  # as text
        assert len(repr(short)) <= len(repr(float(np.float32(value))))


def test_numbers_are_never_written_as_whole_ones():
    X = np.array([[4.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    ranker = FeatureRanker(1).fit(X, [2, 1, 0], qid=[1, 1, 1])
    assert to_elasticsearch(ranker, name="m")["model"]["model"]["definition"] == (
        '{"feature_1": 1.0, "feature_2": 0.0}'
    )
    assert '"weights": {"feature_1": 1.0, "feature_2": 0.0}' in json.dumps(to_solr(ranker, name="m"))
    engine_of("solr", ranker, 2)
    with pytest.raises(RefusedError, match="ClassCastException"):  # what the engine would say
        Solr(json.dumps(to_solr(ranker, name="m")).replace("1.0", "1"), ["feature_1", "feature_2"])
    tree = to_solr(fitted("boosted"), name="m")["params"]["trees"][0]
    assert tree["weight"] == "1.0"
    assert isinstance(tree["root"]["threshold"], str)


@pytest.mark.parametrize("format", FORMATS)
def test_exact_ties_stay(format):
    test = few()
    for name in ("sinkprop", "boosted", "xgboost"):
        rows = np.repeat(test.X[:5], 3, axis=0)
        found = scores(engine_of(format, fitted(name), rows.shape[1]), rows).reshape(5, 3)
        assert (found == found[:, :1]).all()


@pytest.mark.parametrize("format", FORMATS)
def test_one_feature_and_a_constant_one(format):
    X, y, qid = small(2)
    X[:, 1] = 5.0
    for rows in (X[:, :1], X):
        ranker = SinkPropRanker(penalty=0.1, verbose=False).fit(rows, y, qid=qid)
        expected = ranker.predict(rows)
        for moved in (rows, rows + np.array([0.0, 9.0])[: rows.shape[1]]):  # which moves no score
            found = scores(engine_of(format, ranker, rows.shape[1]), moved)
            assert np.abs(centered(found, _groups(qid)) - centered(expected, _groups(qid))).max() < 1e-5


def _groups(qid):
    from sinkprop.data import group_rows

    return group_rows(qid, len(qid))


@pytest.mark.parametrize("format", FORMATS)
def test_trees_of_one_leaf(format):
    X, _, qid = small()
    ranker = BoostedRanker(n_estimators=2, min_child_samples=100, verbose=False)
    ranker.fit(X, np.arange(60) % 3, qid=qid)
    assert (scores(engine_of(format, ranker, 3), X) == 0).all()


def missing_data():
    X, y, qid = small(3)
    X[np.random.default_rng(1).random(X.shape) < 0.3] = np.nan
    return X, y, qid


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("make", [BoostedRanker, LightGBMRanker, XGBoostRanker])
def test_missing_values_go_where_the_model_sends_them(make, format):
    X, y, qid = missing_data()
    more = {"min_child_weight": 1.0} if make is XGBoostRanker else {"min_child_samples": 3}
    ranker = make(n_estimators=10, num_leaves=8, verbose=False, **more).fit(X, y, qid=qid)
    found = scores(engine_of(format, ranker, 3, missing="nan"), X)
    expected = ranker.predict(X)
    assert np.abs((found - found[0]) - (expected - expected[0])).max() < 1e-6
    # the other way, what is missing is 0
    zeros = ranker.predict(np.nan_to_num(X))
    assert np.abs(zeros - expected).max() > 1e-3
    for knows_missing in (False, True):
        body = json.dumps(to_elasticsearch(ranker, name="m", missing="zero"))
        engine = Elasticsearch(body, [f"feature_{i}" for i in range(1, 4)], knows_missing=knows_missing)
        found = scores(engine, X)
        assert np.abs((found - found[0]) - (zeros - zeros[0])).max() < 1e-6
    found = scores(engine_of("solr", ranker, 3, missing="zero"), X)
    assert np.abs((found - found[0]) - (zeros - zeros[0])).max() < 1e-6


def test_learned_missing_values_have_to_be_spoken_of():
    X, y, qid = missing_data()
    ranker = BoostedRanker(n_estimators=5, min_child_samples=3, verbose=False).fit(X, y, qid=qid)
    for export in (to_elasticsearch, to_solr):
        with pytest.raises(ValueError, match=r"missing='nan'.*missing='zero'"):
            export(ranker, name="m")
        with pytest.raises(ValueError, match="missing must be 'zero', 'nan' or None; got 'left'"):
            export(ranker, name="m", missing="left")
    # and those that were not learned do not: old versions of Solr take the plain form
    assert set(to_solr(fitted("boosted"), name="m")["params"]) == {"trees"}


def test_zero_as_missing_is_refused():
    X, y, qid = small()
    X[X < 0] = 0
    ranker = BoostedRanker(n_estimators=10, min_child_samples=2, zero_as_missing=True, verbose=False)
    ranker.fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="zero_as_missing"):
        to_elasticsearch(ranker, name="m")


ODD = ["title: bm25", "größe", 'quo"te\\', "日本", "a,b=c", "{{x}}", "end"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "make",
    [
        lambda: SinkPropRanker(penalty=0.1, verbose=False),
        lambda: BoostedRanker(n_estimators=3, verbose=False),
    ],
)
def test_odd_names(make, format, tmp_path):
    import pandas as pd

    X, y, qid = small(len(ODD))
    ranker = make().fit(pd.DataFrame(X, columns=ODD), y, qid=qid)
    write_export(ranker, tmp_path / "model.json", format=format)
    engine = FORMATS[format][1]((tmp_path / "model.json").read_text(encoding="utf-8"), ODD)
    found, expected = scores(engine, X), ranker.predict(pd.DataFrame(X, columns=ODD))
    assert same_order(found, expected, _groups(qid))
    others = [f"f{i}" for i in range(len(ODD))]
    export, read = FORMATS[format]
    engine = read(json.dumps(export(ranker, name="m", features=others)), others)
    np.testing.assert_array_equal(scores(engine, X), found)


def test_names_have_to_be_different_and_as_many_as_features():
    X, y, qid = small(2)
    ranker = RegressionRanker().fit(X, y, qid=qid)
    for export in (to_elasticsearch, to_solr):
        for features, message in (
            (["a"], "name the 2 features of the model; got 1"),
            (["a", "a"], "'a' occurs twice"),
            (["a", ""], "not empty"),
            (["a", 3], "must be text"),
            ("ab", "sequence of names"),
        ):
            with pytest.raises(ValueError, match=message):
                export(ranker, name="m", features=features)
        for name in ("", "two words", "a/b", None):
            with pytest.raises(ValueError, match="name must be one word"):
                export(ranker, name=name)


def test_what_an_engine_does_not_have_is_an_error_before_anything_is_written(tmp_path):
    X, y, qid = small()
    own = NeuralRanker(network=_own_network, input_transform="none", **QUICK).fit(X, y, qid=qid)
    huge = RegressionRanker().fit(X * 1e-60, y, qid=qid)
    tiny = RegressionRanker(penalty=0.1, normalization="standard").fit(X * 1e-60, y, qid=qid)
    cases = [
        *[("elasticsearch", fitted(name), "no networks") for name in ("network", "network, log")],
        *[("solr", fitted(name), "normalization='query'") for name in BY_QUERY],
        *[("elasticsearch", fitted(f"{name}, query"), "by one") for name in ("sinkprop", "lightgbm")],
        ("solr", fitted("network, log"), "transformed=True"),
        ("solr", own, "Export to ONNX"),
        *[(format, huge, "weight of 'feature_1' is .*single precision") for format in FORMATS],
        *[(format, tiny, "deviation of 'feature_1'.*is 0 in the single precision") for format in FORMATS],
        *[(format, SinkPropRanker(), "not fitted") for format in FORMATS],
    ]  # fmt: skip
    for format, ranker, message in cases:
        with pytest.raises(ValueError, match=message):
            write_export(ranker, tmp_path / "model.json", format=format)
    for name in ("network, gelu, layer", "network, silu, batch", "network, elu", "network, tanh"):
        with pytest.raises(ValueError, match=r"Solr's layers.*'relu'"):
            to_solr(fitted(name), name="m", transformed=True)
    with pytest.raises(ValueError, match="two outputs"):
        to_solr(fitted("network, beta"), name="m", transformed=True)
    assert set(MORE_NETWORKS) >= {"network, beta"}
    assert list(tmp_path.iterdir()) == []


def _own_network(n_features):
    import torch

    return torch.nn.Sequential(torch.nn.Linear(n_features, 1))


def test_options_of_another_format_are_an_error(tmp_path):
    ranker = fitted("regression")
    for options, message in (
        ({"format": "onnx", "name": "m"}, "name is for elasticsearch"),
        ({"format": "onnx", "store": "s"}, "store is for solr"),
        ({"format": "elasticsearch", "store": "s"}, "store is for solr"),
        ({"format": "opensearch", "dtype": "float32"}, "dtype is for onnx"),
        ({"format": "elasticsearch", "transformed": True}, "transformed is for solr"),
        ({"format": "lucene"}, "format must be 'onnx' or"),
    ):
        with pytest.raises(ValueError, match=message):
            write_export(ranker, tmp_path / "m", **options)
    with pytest.raises(TypeError, match="feature_names"):
        write_export(ranker, tmp_path / "m", format="onnx", feature_names=["a"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["elasticsearch", "opensearch", "solr"])
def test_a_saved_model_exports_to_the_same_file(format, tmp_path):
    for name in ("sinkprop", "boosted", "xgboost", "beta"):
        ranker = fitted(name)
        ranker.save(tmp_path / "m.model")
        write_export(ranker, tmp_path / "one.json", format=format, name="m")
        write_export(load_model(tmp_path / "m.model"), tmp_path / "two.json", format=format, name="m")
        assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    write_export(fitted("regression"), tmp_path / "by_file.json", format=format)
    written = json.loads((tmp_path / "by_file.json").read_text(encoding="utf-8"))
    assert (written if format == "solr" else written["model"])["name"] == "by_file"


def test_an_old_file_stays_where_the_export_fails(tmp_path):
    path = tmp_path / "model.json"
    path.write_text("old")
    with pytest.raises(ValueError, match="no networks"):
        write_export(fitted("network"), path, format="elasticsearch")
    assert path.read_text() == "old"


def test_deep_trees():
    n = 600
    X = np.linspace(0, 1, n)[:, None]
    ranker = BoostedRanker(
        n_estimators=1, num_leaves=500, min_child_samples=1, min_sum_hessian_in_leaf=0, verbose=False
    ).fit(X, np.arange(n) % 5, qid=np.zeros(n))
    from sinkprop.export import float32 as module

    tree = max(scorer_of(ranker).trees, key=lambda tree: len(tree.feature))
    depth = int(module.deepest(tree).max()) + 1
    engine = engine_of("elasticsearch", ranker, 1)
    assert len(np.unique(scores(engine, X))) > 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_DEEPEST", depth - 1)
        with pytest.raises(ValueError, match=f"{depth} levels of splits.*max_depth"):
            to_elasticsearch(ranker, name="m")
        patch.setattr(module, "_DEEPEST", depth)
        to_solr(ranker, name="m")


def test_features_of_elasticsearch():
    train = training()
    ranker = fitted("sinkprop")
    body = elasticsearch_features(ranker, features=train.feature_names)
    assert [f["name"] for f in body["featureset"]["features"]] == list(train.feature_names)
    first = body["featureset"]["features"][0]
    assert first["template"]["function_score"]["field_value_factor"] == {"field": "name_tf", "missing": 0.0}
    assert first["params"] == []
    definitions = {
        name: {"match": {"body": "{{ words }} {{words}} {{user.place}}"}} for name in train.feature_names
    }
    definitions["name_idf"] = {
        "params": ["k"],
        "template_language": "derived_expression",
        "template": "k * 2",
    }
    features = elasticsearch_features(ranker, features=definitions)["featureset"]["features"]
    assert features[0] == {
        "name": "name_tf",
        "params": ["words", "user.place"],
        "template_language": "mustache",
        "template": {"match": {"body": "{{ words }} {{words}} {{user.place}}"}},
    }
    assert features[1]["template"] == "k * 2"
    with pytest.raises(ValueError, match=r"features\['name_tf'\] must be a query"):
        elasticsearch_features(ranker, features={**definitions, "name_tf": "match"})
    model = to_elasticsearch(ranker, name="m", features=definitions)["model"]["model"]
    assert list(json.loads(model["definition"])) == list(train.feature_names)


def test_features_of_solr():
    X, y, qid = small(3)
    ranker = RegressionRanker().fit(X, y, qid=qid)
    given = {
        "title": "{!field f=title}${user_query}",
        "score": {"class": "org.apache.solr.ltr.feature.OriginalScoreFeature", "params": {}},
        "price": None,
    }
    features = solr_features(ranker, features=given, store="shop")
    assert [feature["name"] for feature in features] == list(given)
    assert {feature["store"] for feature in features} == {"shop"}
    assert [feature["class"].rpartition(".")[2] for feature in features] == [
        "SolrFeature",
        "OriginalScoreFeature",
        "FieldValueFeature",
    ]
    assert features[0]["params"] == {"q": "{!field f=title}${user_query}"}
    assert to_solr(ranker, name="m", store="shop", features=given)["store"] == "shop"
    defaults = [f["params"].get("defaultValue") for f in solr_features(ranker, features=given, missing="nan")]
    assert defaults == ["NaN", None, "NaN"]
    assert "store" not in to_solr(ranker, name="m")
    with pytest.raises(ValueError, match=r"features\['title'\] must be a query as text"):
        solr_features(ranker, features={**given, "title": 3})


def test_a_mapping_may_have_another_order_than_the_models_names():
    import pandas as pd

    X, y, qid = small(2)
    ranker = RegressionRanker().fit(pd.DataFrame(X, columns=["a", "b"]), y, qid=qid)
    query = {"match_all": {}}
    swapped = to_elasticsearch(ranker, name="m", features={"b": query, "a": query})
    assert swapped == to_elasticsearch(ranker, name="m")
    names = [
        f["name"]
        for f in elasticsearch_features(ranker, features={"b": query, "a": query})["featureset"]["features"]
    ]
    assert names == ["a", "b"]
