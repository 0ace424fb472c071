"""ONNX exports by onnxruntime-node and, in Chromium, onnxruntime-web: the outputs are those of Python."""

import json
import re
from dataclasses import dataclass

import numpy as np
import pytest
from browser import chromium, opened, served
from category_frames import features, frame
from engine_scorers import same_order
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
from javascript import FOLDER, node, packages, web_runtime
from places import ROOT

from sinkprop import Annealing, SinkPropRanker
from sinkprop.baselines import CatBoostRanker, LightGBMRanker, RegressionRanker, XGBoostRanker
from sinkprop.data.frames import load_frame
from sinkprop.data.queries import group_rows
from sinkprop.export import to_onnx
from sinkprop.gbdt.ranker import BoostedRanker
from sinkprop.torch import NeuralRanker

onnx = pytest.importorskip("onnx", reason="exports to ONNX need onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX is checked by onnxruntime")

N_QUERIES = 4


@dataclass
class Case:
    """A model with the rows of some queries, one call each, and the scores that `predict` gives them."""

    name: str
    model: object
    queries: list
    expected: list
    tolerance: float = 1e-6
    type: str = "float64"
    ranker: object = None  # whose probabilities the outputs hold


def by_query(X, qid):
    return [X[qid == q] for q in list(dict.fromkeys(qid))[:N_QUERIES]]


def exported_kinds():
    """Every kind of ranker that test_onnx.py exports, on real queries."""
    test = real_queries()
    queries = by_query(test.X, test.qid)
    for name in (*LINEAR, *PARTITIONED, *TREES, *NETWORKS, *MORE_NETWORKS, *BY_QUERY):
        ranker = fitted(name)
        network = isinstance(ranker, NeuralRanker)
        expected = [ranker.predict(rows, qid=np.zeros(len(rows))) for rows in queries]
        yield Case(name, to_onnx(ranker), queries, expected, 1e-5 if network else 1e-6)


def single_precision():
    queries = [rows.astype(np.float32) for rows in by_query(real_queries().X, real_queries().qid)]
    for name in ("sinkprop", "boosted", "network, log"):
        expected = [fitted(name).predict(rows.astype(np.float64)) for rows in queries]
        yield Case(
            f"{name}, single", to_onnx(fitted(name), dtype="float32"), queries, expected, 2e-6, "float32"
        )


def missing_values():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(200, 3)) + 5, np.repeat(np.arange(10), 20)
    y = np.digitize(X @ [1, 1, 0] + rng.normal(size=200), [10, 12])
    X[rng.random(X.shape) < [0.3, 0.0, 0.5]] = np.nan
    X[:20, 2] = np.nan
    linear = {"penalty": 1e-3, "annealing": Annealing(2, 1), "max_iter": 2, "verbose": False}
    trees = {"n_estimators": 10, "num_leaves": 4, "verbose": False}
    rankers = {
        "linear": SinkPropRanker(missing="indicator", **linear),
        "linear, mean": RegressionRanker(missing="mean", verbose=False),
        "linear, query": SinkPropRanker(missing="indicator", normalization="query", **linear),
        "network": NeuralRanker(missing="indicator", max_epochs=1, verbose=False),
        "boosted": BoostedRanker(**trees, min_child_samples=3),
        "lightgbm": LightGBMRanker(**trees, min_child_samples=3),
        "xgboost": XGBoostRanker(**trees, min_child_weight=1.0),
    }
    queries = by_query(X, qid)
    for name, ranker in rankers.items():
        ranker.fit(X, y, qid=qid)
        expected = [ranker.predict(rows, qid=np.zeros(len(rows))) for rows in queries]
        yield Case(f"{name}, missing values", to_onnx(ranker), queries, expected, 1e-5)


def categories():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    rows = frame(pd)
    quick = {"n_estimators": 8, "num_leaves": 6, "n_threads": 1, "verbose": False}
    rankers = [
        BoostedRanker(**quick, min_child_samples=5),
        LightGBMRanker(**quick, min_child_samples=5),
        XGBoostRanker(**quick, min_child_weight=1.0),
        CatBoostRanker(n_estimators=8, depth=4, learning_rate=0.3, n_threads=1, verbose=False),
    ]
    X, qid = features(rows), rows["qid"].to_numpy()
    codes = by_query(load_frame(rows, allow_nan=True).X, qid)
    for ranker in rankers:
        scores = ranker.fit(X, rows["label"], qid=qid).predict(X)
        yield Case(f"{type(ranker).__name__}, categories", to_onnx(ranker), codes, by_query(scores, qid))


def probabilities():
    """Calibrated rankers, and queries of several sizes."""
    train, test = training(), real_queries()
    queries = [*by_query(test.X, test.qid), test.X[:1], test.X[:3]]
    rankers = {
        "linear": SinkPropRanker(penalty=0.1, annealing=Annealing(0.5, 0.25), verbose=False),
        "trees": BoostedRanker(n_estimators=10, verbose=False),
        "network": NeuralRanker(max_epochs=2, verbose=False),
    }
    for name, ranker in rankers.items():
        ranker.fit(train.X, train.y, qid=train.qid).calibrate(test.X, test.y, qid=test.qid)
        expected = [ranker.predict(rows) for rows in queries]
        tolerance = 1e-5 if name == "network" else 1e-6
        model = to_onnx(ranker, probabilities=True)
        yield Case(f"{name}, probabilities", model, queries, expected, tolerance, ranker=ranker)


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """All cases, and the folder in which they are written for JavaScript."""
    packages()
    folder = tmp_path_factory.mktemp("graphs")
    made = [*exported_kinds(), *single_precision(), *missing_values(), *categories(), *probabilities()]
    listed, written = [], {}
    for i, case in enumerate(made):
        (folder / f"{i}.onnx").write_bytes(case.model.SerializeToString())
        runs = []
        for rows in case.queries:
            content = np.ascontiguousarray(rows, dtype="<f4" if case.type == "float32" else "<f8").tobytes()
            name = written.setdefault(content, f"rows{len(written)}.bin")
            (folder / name).write_bytes(content)
            runs.append({"rows": name, "shape": rows.shape})
        taken = case.model.graph.input[0].name
        listed.append({"model": f"{i}.onnx", "input": taken, "type": case.type, "runs": runs})
    (folder / "cases.json").write_text(json.dumps(listed))
    return made, folder


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


def in_node(folder, request):
    return json.loads(node(FOLDER / "run_graphs.mjs", folder))


def in_chromium(folder, request):
    browser = request.getfixturevalue("browser")
    web_runtime(folder / "ort")
    (folder / "graphs.mjs").write_bytes((FOLDER / "graphs.mjs").read_bytes())
    (folder / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>graphs</title>')
    with (
        served(folder) as address,
        opened(browser, f"{address}/index.html", within=address, ready="html", seconds=60) as page,
    ):
        return page.evaluate("""async () => {
            const ort = await import("./ort/ort.wasm.min.mjs");
            const { outputsOf } = await import("./graphs.mjs");
            ort.env.wasm.numThreads = 1;
            const read = async (name) => (await fetch(name)).arrayBuffer();
            return await outputsOf(ort, await (await fetch("cases.json")).json(), read);
        }""")


def python_outputs(case):
    """What onnxruntime gives in Python for each query."""
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for rows in case.queries:
        outputs = session.run(names, {session.get_inputs()[0].name: rows})
        yield dict(zip(names, outputs, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [in_node, in_chromium])
def test_outputs_and_rankings_are_those_of_python(engine, cases, request):
    made, folder = cases
    found = engine(folder, request)
    assert len(found) == len(made)
    for case, runs in zip(made, found, strict=True):
        queries = zip(case.queries, runs, case.expected, python_outputs(case), strict=True)
        for rows, outputs, scores, reference in queries:
            arrays = {
                name: np.array(output["data"], dtype=output["type"]).reshape(output["dims"])
                for name, output in outputs.items()
            }
            assert arrays["scores"].dtype == case.type
            np.testing.assert_allclose(
                arrays["scores"], scores, rtol=0, atol=case.tolerance, err_msg=case.name
            )
            groups = group_rows(np.zeros(len(scores)), len(scores))
            assert same_order(arrays["scores"], reference["scores"], groups), case.name
            assert set(arrays) == set(reference)
            for name, values in arrays.items():
                assert values.shape == reference[name].shape
                bound = case.tolerance * (len(scores) if name == "expected_rank" else 1)
                np.testing.assert_allclose(
                    values, reference[name], rtol=0, atol=bound, err_msg=f"{case.name}: {name}"
                )
            if case.ranker is not None:
                assert_probabilities(case.ranker, rows, arrays)


def assert_probabilities(ranker, rows, arrays):
    """Outputs are the probabilities that the ranker's methods have for the same rows, one query."""
    if not isinstance(ranker, NeuralRanker):  # whose scores are in single precision
        n, query = len(rows), {"qid": np.zeros(len(rows))}
        expected = {
            "top_k": np.column_stack([ranker.top_k_probability(rows, k, **query) for k in (1, 3, 10)]),
            "relevance": np.column_stack([ranker.predict_proba(rows, threshold=t, **query) for t in (1, 2)]),
            "confidence": ranker.confidence(rows, **query),
            "expected_rank": ranker.expected_rank(rows, **query) / n,
        }
        found = arrays | {
            "top_k": arrays["top_k"][:, [0, 2, 9]],
            "expected_rank": arrays["expected_rank"] / n,
        }
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6, err_msg=name)


def blocks(language):
    """The blocks of a language in docs/browser.md."""
    text = (ROOT / "docs/browser.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The folder in which the Python of the guide has run, and the lines that its JavaScript should print."""
    folder = tmp_path_factory.mktemp("guide")
    (code,) = blocks("python")
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(compile(code, "docs/browser.md", "exec"), names)
    ranker, query = names["ranker"], names["query"]
    probabilities = ranker.predict_proba(query)
    first = np.argsort(-ranker.predict(query), kind="stable")[:5]
    lines = [f"{query.docid[i]} {probabilities[i]:.3f}" for i in first]
    return folder, lines, f"sure of the first: {ranker.confidence(query)[0]:.3f}"


def test_the_guide_writes_a_model_and_a_query(guide):
    folder, lines, _ = guide
    assert sorted(path.name for path in folder.iterdir()) == ["query.json", "ranker.onnx"]
    assert len(lines) == 5


def test_the_guide_runs_in_node(guide, tmp_path):
    folder, lines, sure = guide
    (code,) = blocks("js")
    (tmp_path / "rank.mjs").write_text(code)
    (tmp_path / "node_modules").symlink_to(packages())
    for path in folder.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert node("rank.mjs", cwd=tmp_path).splitlines() == [*lines, sure]


def test_the_guide_runs_in_a_browser(browser, guide, tmp_path):
    folder, lines, _ = guide
    web_runtime(tmp_path / "ort")
    (code,) = blocks("html")
    (tmp_path / "index.html").write_text(code.replace("<title>", '<link rel="icon" href="data:,"><title>'))
    for path in folder.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (
        served(tmp_path) as address,
        opened(browser, f"{address}/index.html", within=address, ready="li", seconds=60) as page,
    ):
        assert page.locator("li").all_inner_texts() == lines
