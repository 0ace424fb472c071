"""Calibrated probabilities of ONNX exports, by onnxruntime itself."""

import copy
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from export_rankers import BY_QUERY, fitted, real_queries, training
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkprop import load_model, reference
from sinkprop.baselines import RegressionRanker
from sinkprop.calibration import RankCalibration
from sinkprop.calibration.relevance import DocumentModel
from sinkprop.calibration.widths import EPSILON, N_ITER, WARPS
from sinkprop.export import calibration_to_onnx, to_onnx, write_export
from sinkprop.export.write import agreement, export, probability_difference
from sinkprop.objective.relaxations import SmoothedIndicator

onnx = pytest.importorskip("onnx", reason="exports to ONNX need onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX is checked by onnxruntime")

NAMES = ["top_k", "expected_rank", "relevance", "confidence"]


def opened(model):
    content = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def run(session, values):
    """All outputs of a model for one query."""
    (taken,) = session.get_inputs()
    dtype = np.float32 if taken.type == "tensor(float)" else np.float64
    outputs = session.run(None, {taken.name: np.asarray(values, dtype=dtype)})
    return dict(zip([output.name for output in session.get_outputs()], outputs, strict=True))


@cache
def calibration():
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 60, size=60)
    scores = 3 + 0.5 * rng.normal(size=sizes.sum())
    labels = np.digitize((scores - 3) / 0.5 + rng.normal(size=len(scores)), [0.5, 1.5])
    return RankCalibration.fit(scores, labels, np.repeat(np.arange(60), sizes))


@cache
def session():
    return opened(calibration_to_onnx(calibration()))


def used_names(graph):
    """Names of the inputs of all nodes, also of those in loops."""
    names = {name for node in graph.node for name in node.input}
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return names.union(*map(used_names, inner))


def with_mixture(**changes):
    own = calibration()
    return replace(own, mixture=replace(own.mixture, **changes))


def warped(scores, mixture):
    """The increasing function g of the standardized scores, by the formulas themselves."""
    z = (scores - scores.mean()) / mixture.scale
    kind, parameter = mixture.warp
    if kind == "softplus":
        return np.log(1 + np.exp(2 * (z - parameter))) / 2
    return (np.exp(np.clip(parameter * z, -6, 6)) - 1) / parameter if parameter else z


def matrix(scores, mixture):
    """The mixture's matrix Pi, from the reference's matrices of each width."""
    n, (low, high) = len(scores), np.log(mixture.lengths)
    t = np.clip((np.log(n) - low) / (high - low), 0, 1) if high > low else 0.0
    weights = (1 - t) * mixture.weights[0] + t * mixture.weights[1]
    Pi = np.full((n, n), weights[-1] / n)
    for weight, width in zip(weights, mixture.widths, strict=False):
        A = reference.pre_sinkhorn(warped(scores, mixture), SmoothedIndicator(width)) + EPSILON
        Pi += weight * reference.sinkhorn(A, N_ITER)
    return Pi


def assert_same(found, scores, own, tolerance=1e-12):
    """Outputs equal the reference's ranks, and the library's probabilities of relevance."""
    Pi, n = matrix(scores, own.mixture), len(scores)
    tops = np.cumsum(Pi, axis=1)[:, np.minimum(np.arange(10), n - 1)]
    np.testing.assert_allclose(found["top_k"], tops, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found["expected_rank"], Pi @ np.arange(1, n + 1), rtol=0, atol=n * tolerance)
    relevance = [own.relevance_probability(scores, threshold=grade) for grade in own.grades]
    np.testing.assert_allclose(found["relevance"], np.transpose(relevance), rtol=0, atol=tolerance)
    np.testing.assert_allclose(found["confidence"], own.confidence(scores), rtol=0, atol=tolerance)


@pytest.mark.parametrize("n", [1, 2, 3, 9, 10, 11, 40, 200])
def test_probabilities_of_queries_of_every_size(n):
    scores = 3 + 0.5 * np.random.default_rng(n).normal(size=n)
    assert_same(run(session(), scores), scores, calibration())


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros(12),
        np.round(np.random.default_rng(0).normal(size=50)),
        np.repeat([2.0, 5.0, 3.0], [1, 30, 2]),
        3 + np.random.default_rng(1).standard_t(1, size=120),
        np.arange(20.0)[::-1],
        np.array([-1e8, 0.0, 1e8]),
        1e-9 * np.random.default_rng(2).normal(size=15),
    ],
    ids=["all tied", "ties", "blocks of ties", "outliers", "sorted", "huge", "almost tied"],
)
def test_awkward_scores(scores):
    assert_same(run(session(), scores), scores, calibration())


def test_a_thousand_documents_agree_with_the_library():
    scores, own = 3 + 0.5 * np.random.default_rng(0).normal(size=1000), calibration()
    found = run(session(), scores)
    for k in (1, 3, 5, 10):  # the library's sums in linear time have errors of about 1e-9
        np.testing.assert_allclose(found["top_k"][:, k - 1], own.top_k_probability(scores, k), atol=1e-7)
    np.testing.assert_allclose(found["expected_rank"], own.expected_rank(scores), rtol=1e-6)
    np.testing.assert_allclose(found["confidence"], own.confidence(scores), atol=1e-12)
    for i, grade in enumerate(own.grades):
        expected = own.relevance_probability(scores, threshold=grade)
        np.testing.assert_allclose(found["relevance"][:, i], expected, atol=1e-12)


@pytest.mark.parametrize("warp", WARPS)
def test_every_function_of_the_scores(warp):
    own = with_mixture(warp=warp)
    scores, model = 3 + np.random.default_rng(0).standard_t(2, size=30), calibration_to_onnx(own)
    assert_same(run(opened(model), scores), scores, own, tolerance=1e-11)
    # onnxruntime warns of a constant that is not used
    assert {constant.name for constant in model.graph.initializer} <= used_names(model.graph)


def test_weights_go_over_from_short_to_long_queries():
    own = with_mixture(
        widths=np.array([0.2, 1.0]),
        weights=np.array([[0.8, 0.1, 0.1], [0.1, 0.6, 0.3]]),
        lengths=np.array([5.0, 50.0]),
    )
    opening = opened(calibration_to_onnx(own))
    for n in (1, 5, 20, 50, 100):
        scores = np.random.default_rng(n).normal(size=n)
        assert_same(run(opening, scores), scores, own)


def test_a_mixture_that_is_only_uniform():
    own = with_mixture(widths=np.zeros(0), weights=np.ones((2, 1)), lengths=np.array([7.0, 7.0]))
    found = run(opened(calibration_to_onnx(own)), [0.4, 0.1, 0.3, 0.2])
    by_hand = np.minimum(np.arange(1, 11), 4) / 4
    np.testing.assert_allclose(found["top_k"], np.broadcast_to(by_hand, (4, 10)), atol=1e-15)
    np.testing.assert_allclose(found["expected_rank"], np.full(4, 2.5), atol=1e-15)


def test_probabilities_of_relevance_by_hand():
    # one knot, so no pieces: the logit is s - ln(rank) + [rank = 1] + 2 ln(n) - 3
    coefficients = np.array([1.0, 0, 1, 1, 0, 0, 2, 0, 0, 0, -3])
    own = with_mixture(scale=2.0)
    model = DocumentModel(np.array([0.5]), coefficients)
    own = replace(own, relevance=(replace(own.relevance[0], model=model),))
    found = run(opened(calibration_to_onnx(own)), [0.6, 1.4, 1.0])["relevance"]
    logits = np.array([0.3 - np.log(3), 0.7 + 1, 0.5 - np.log(2)]) + 2 * np.log(3) - 3
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits[:, None])), rtol=1e-14)


def test_a_higher_grade_is_never_more_likely():
    own = calibration()
    reversed_models = [each.model for each in own.relevance][::-1]
    own = replace(
        own,
        relevance=tuple(
            replace(each, model=model) for each, model in zip(own.relevance, reversed_models, strict=True)
        ),
    )
    scores = 3 + 0.5 * np.random.default_rng(0).normal(size=40)
    found = run(opened(calibration_to_onnx(own)), scores)
    assert (np.diff(found["relevance"], axis=1) <= 0).all()
    assert_same(found, scores, own)


def test_without_models_of_labels():
    model = calibration_to_onnx(RankCalibration(calibration().mixture))
    assert [output.name for output in model.graph.output] == NAMES[:2]
    assert {p.key: p.value for p in model.metadata_props}["grades"] == "[]"


@settings(max_examples=40, deadline=None)
@given(
    scores=st.lists(st.integers(-40, 40), min_size=1, max_size=25, unique=True),
    seed=st.integers(0, 1000),
)
def test_laws(scores, seed):
    scores = np.array(scores) / 16
    found = run(session(), scores)
    n = len(scores)
    np.testing.assert_allclose(found["top_k"][:, n - 1 : 10], 1, atol=1e-14)  # rows of Pi sum to 1
    assert ((found["expected_rank"] >= 1 - 1e-14) & (found["expected_rank"] <= n + 1e-12)).all()
    ordered = np.argsort(-scores)
    assert (np.diff(found["relevance"][ordered], axis=0) <= 0).all()
    assert (np.diff(found["top_k"], axis=1) >= -1e-15).all()
    order = np.random.default_rng(seed).permutation(n)
    moved = run(session(), scores[order])
    for name in NAMES[:3]:
        np.testing.assert_allclose(moved[name], found[name][order], rtol=0, atol=1e-13)
    np.testing.assert_allclose(moved["confidence"], found["confidence"], rtol=0, atol=1e-13)


def test_the_earlier_row_of_a_tie_is_first():
    found = run(session(), [3.0, 4.0, 4.0, 4.0])["relevance"][:, 0]
    assert found[1] > found[2] > found[3] > found[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_score_that_is_no_number_makes_all_outputs_nan(bad):
    found = run(session(), [0.0, bad, 1.0])
    assert all(np.isnan(values).all() for values in found.values())


def test_single_precision():
    own = calibration()
    model = calibration_to_onnx(own, dtype="float32")
    scores = (3 + 0.5 * np.random.default_rng(0).normal(size=60)).astype(np.float32)
    found = run(opened(model), scores)
    assert {values.dtype for values in found.values()} == {np.dtype(np.float32)}
    assert_same(found, scores.astype(np.float64), own, tolerance=1e-6)
    with pytest.raises(ValueError, match="dtype must be 'float32' or 'float64'"):
        calibration_to_onnx(own, dtype="double")


def test_what_the_file_of_a_calibration_says_of_itself(tmp_path):
    own = calibration()
    model = calibration_to_onnx(own, tmp_path / "c.onnx")
    again = calibration_to_onnx(RankCalibration.from_record(own.record()))
    assert (tmp_path / "c.onnx").read_bytes() == again.SerializeToString(deterministic=True)
    said = {p.key: p.value for p in model.metadata_props}
    assert json.loads(said["grades"]) == [1.0, 2.0]
    assert said["rows"] == "one query"
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 18)]
    shapes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    rows = "documents_of_one_query"
    assert shapes == {
        "scores": [rows],
        "top_k": [rows, 10],
        "expected_rank": [rows],
        "relevance": [rows, 2],
        "confidence": [1],
    }


@cache
def calibrated(name):
    """A ranker, calibrated to all queries of the test set."""
    own = copy.copy(fitted(name))  # other tests use the ranker without a calibration
    return own.calibrate(real_queries())


def few_queries():
    """Some queries, whose rows are not consecutive."""
    test = real_queries()
    rows = np.flatnonzero(np.isin(test.qid, np.unique(test.qid)[:6]))
    return test.take(np.random.default_rng(0).permutation(rows))


@pytest.mark.parametrize(
    "name",
    [
        "sinkprop", "ridge", "feature", "beta", "boosted", "lightgbm", "xgboost", "catboost", "network",
        "network, gelu, layer", "network, float64", "network, beta", *BY_QUERY,
    ],
)  # fmt: skip
def test_exported_rankers(name):
    ranker, test = calibrated(name), few_queries()
    assert test.groups.rows is not None
    exported = export(ranker, format="onnx", probabilities=True)
    outputs = exported.outputs(test.X, test.groups)
    assert list(outputs) == ["scores", *["parameters"] * ("beta" in name), *NAMES]
    np.testing.assert_allclose(outputs["scores"], ranker.predict(test), rtol=0, atol=1e-5)
    assert probability_difference(outputs, ranker.calibration_, test.groups) < 1e-7


@pytest.mark.parametrize("name", ["sinkprop", "boosted", "network"])
def test_probabilities_are_those_of_the_rankers_methods(name):
    ranker, test = calibrated(name), few_queries()
    outputs = export(ranker, format="onnx", probabilities=True).outputs(test.X, test.groups)
    for k in (1, 3, 5, 10):
        expected = ranker.top_k_probability(test, k)
        np.testing.assert_allclose(outputs["top_k"][:, k - 1], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(outputs["expected_rank"], ranker.expected_rank(test), rtol=1e-6)
    np.testing.assert_allclose(outputs["relevance"][:, 0], ranker.predict_proba(test), rtol=0, atol=1e-6)
    np.testing.assert_allclose(outputs["relevance"][:, 1], ranker.predict_proba(test, threshold=2), atol=1e-6)
    np.testing.assert_allclose(outputs["confidence"], ranker.confidence(test), rtol=0, atol=1e-6)


def test_rankers_in_single_precision():
    ranker, test = calibrated("sinkprop"), few_queries()
    exported = export(ranker, format="onnx", probabilities=True, dtype="float32")
    outputs = exported.outputs(test.X, test.groups)
    # the probabilities belong to the scores as they are given out, in single precision
    assert probability_difference(outputs, ranker.calibration_, test.groups) < 1e-6


def test_scores_stay_as_they_are():
    ranker, test = calibrated("sinkprop"), real_queries()
    plain, more = to_onnx(ranker), to_onnx(ranker, probabilities=True)
    rows = test.X[test.qid == test.qid[0]]
    np.testing.assert_array_equal(run(opened(plain), rows)["scores"], run(opened(more), rows)["scores"])
    assert [output.name for output in plain.graph.output] == ["scores"]
    said, of_more = ({p.key: p.value for p in model.metadata_props} for model in (plain, more))
    assert (said["rows"], of_more["rows"]) == ("any", "one query")
    assert "grades" not in said
    assert json.loads(of_more["grades"]) == ranker.calibration_.grades.tolist()


def test_a_saved_ranker_exports_to_the_same_bytes(tmp_path):
    ranker = calibrated("sinkprop")
    ranker.save(tmp_path / "m.model")
    again = load_model(tmp_path / "m.model")
    for own, file in ((ranker, "a.onnx"), (again, "b.onnx")):
        write_export(own, tmp_path / file, format="onnx", probabilities=True)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_ranker_without_a_calibration(tmp_path):
    train = training()
    ranker = RegressionRanker().fit(train.X, train.y, qid=train.qid)
    ranker._keep_held_out(None)
    with pytest.raises(ValueError, match=r"probabilities=True needs a calibrated ranker.*RegressionRanker"):
        to_onnx(ranker, tmp_path / "m.onnx", probabilities=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["elasticsearch", "opensearch", "solr"])
def test_search_engines_have_scores_only(form):
    with pytest.raises(ValueError, match="probabilities is for onnx"):
        export(calibrated("sinkprop"), format=form, probabilities=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_check_finds_wrong_probabilities(name):
    ranker, test = calibrated("sinkprop"), few_queries()
    outputs = export(ranker, format="onnx", probabilities=True).outputs(test.X, test.groups)
    scores = agreement(outputs["scores"], ranker.predict(test), test.groups, up_to_constant=False)
    difference = probability_difference(outputs, ranker.calibration_, test.groups)
    assert replace(scores, probabilities=difference).sound
    for wrong in (outputs[name] + 0.02, np.full_like(outputs[name], np.nan)):
        difference = probability_difference({**outputs, name: wrong}, ranker.calibration_, test.groups)
        assert not replace(scores, probabilities=difference).sound
