"""`sinkprop export`."""

import json
import re
from copy import copy

import numpy as np
import pytest
from engine_scorers import Elasticsearch, Solr, same_order, scores
from export_rankers import fitted, real_queries, training

from sinkprop import load_letor, load_model, save_letor
from sinkprop.data import group_rows
from sinkprop.export import write_export
from sinkprop.export.write import agreement

pytest.importorskip("onnxruntime", reason="ONNX is checked by onnxruntime")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    for name, file in {
        "sinkprop": "linear", "boosted": "trees", "network": "network", "network, log": "log",
        "sinkprop, query": "query", "beta": "beta",
    }.items():  # fmt: skip
        fitted(name).save(folder / f"{file}.model")
    copy(fitted("sinkprop")).calibrate(real_queries()).save(folder / "calibrated.model")
    test = real_queries()
    save_letor(folder / "test.txt", test.select(np.unique(test.qid)[:5]))
    (folder / "names.txt").write_text("\n".join(training().feature_names) + "\n", "utf-8")
    return folder


@pytest.mark.parametrize(
    ("model", "form"),
    [
        *[(model, form) for model in ("linear", "trees", "beta") for form in ("onnx", "opensearch", "solr")],
        ("network", "solr"), ("log", "onnx"), ("query", "onnx"), ("linear", "elasticsearch"),
    ],
)  # fmt: skip
def test_it_writes_and_checks(model, form, folder, tmp_path, run):
    out = tmp_path / "out"
    status, text, error = run(
        "export", folder / f"{model}.model", "--to", form, "-o", out, "--check", folder / "test.txt"
    )
    assert (status, error) == (0, "")
    assert text.startswith(f"Wrote {out}: ")
    assert "with 50 features for " + form in text
    assert re.search(r"^Checked on .*test\.txt \(5 queries, \d+ documents\) with ", text, re.MULTILINE)
    assert float(re.search(r"score difference: ([\d.e-]*\d)", text)[1]) < 1e-4
    assert "Same order in all 5 queries." in text
    assert ("assignment" in text) == (model == "beta")
    kinds = {"linear": "sinkprop", "trees": "boosted", "log": "network, log", "query": "sinkprop, query"}
    ranker = fitted(kinds.get(model, model))
    more = {} if form == "onnx" else {"name": model}
    write_export(ranker, tmp_path / "direct", format=form, **more)
    assert out.read_bytes() == (tmp_path / "direct").read_bytes()


def test_probabilities_are_checked_too(folder, tmp_path, run):
    model, out = folder / "calibrated.model", tmp_path / "m.onnx"
    command = ["export", model, "--to", "onnx", "-o", out, "--check", folder / "test.txt"]
    status, text, error = run(*command, "--probabilities")
    assert (status, error) == (0, "")
    assert float(re.search(r"Largest probability difference: ([\d.e-]*\d)\.$", text, re.MULTILINE)[1]) < 1e-6
    write_export(load_model(model), tmp_path / "direct", format="onnx", probabilities=True)
    assert out.read_bytes() == (tmp_path / "direct").read_bytes()
    assert "probability" not in run(*command)[1]


def test_wrong_probabilities_are_not_written(folder, tmp_path, run, monkeypatch):
    monkeypatch.setattr("sinkprop.export.write.probability_difference", lambda *_: 0.1)
    status, text, error = run(
        "export", folder / "calibrated.model", "--to", "onnx", "--probabilities", "-o", tmp_path / "m.onnx",
        "--check", folder / "test.txt",
    )  # fmt: skip
    assert (status, text) == (1, "")
    assert "the export does not agree" in error
    assert list(tmp_path.iterdir()) == []


def test_names_and_definitions(folder, tmp_path, run):
    names = list(training().feature_names)
    out, definitions = tmp_path / "model.json", tmp_path / "features.json"
    status, text, error = run(
        "export", folder / "trees.model", "--to", "elasticsearch", "-o", out, "--name", "shop",
        "--features", folder / "names.txt", "--definitions", definitions,
    )  # fmt: skip
    assert (status, error) == (0, "")
    assert f"Wrote {out} and {definitions}: BoostedRanker" in text
    assert [f["name"] for f in json.loads(definitions.read_text("utf-8"))["featureset"]["features"]] == names
    assert json.loads(out.read_text("utf-8"))["model"]["name"] == "shop"
    test = load_letor(folder / "test.txt")
    found = scores(Elasticsearch(out.read_text("utf-8"), names), test.X)
    assert same_order(found, fitted("boosted").predict(test.X), test.groups)

    given = tmp_path / "given.json"
    given.write_text(json.dumps({name: f"{{!func}}{name}" for name in names}), "utf-8")
    status, text, error = run(
        "export", folder / "linear.model", "--to", "solr", "-o", out, "--store", "s",
        "--features", given, "--definitions", definitions,
    )  # fmt: skip
    assert (status, error) == (0, "")
    store = json.loads(definitions.read_text("utf-8"))
    assert store[0]["params"] == {"q": "{!func}name_tf"}
    assert {feature["store"] for feature in store} == {"s"}
    found = scores(Solr(out.read_text("utf-8"), names), test.X)
    assert same_order(found, fitted("sinkprop").predict(test.X), test.groups)


def test_stdout_has_the_model_alone(folder, run):
    status, text, error = run("export", folder / "linear.model", "--to", "solr", "-o", "-")
    assert status == 0
    assert json.loads(text)["name"] == "linear"
    assert error.startswith("Wrote: SinkPropRanker")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["network.model", "--to", "elasticsearch"], 1, "has no networks"),
        (["query.model", "--to", "solr"], 1, "normalization='query'"),
        (["log.model", "--to", "solr"], 1, "say --transformed"),
        (["linear.model", "--to", "onnx", "--store", "s"], 2, "--store applies only to --to solr"),
        (["linear.model", "--to", "solr", "--dtype", "float32"], 2, "--dtype applies only to --to onnx"),
        (["linear.model", "--to", "solr", "--probabilities"], 2, "--probabilities applies only to --to onnx"),
        (["log.model", "--to", "onnx", "--probabilities"], 1, "--probabilities needs a calibrated ranker"),
        (["linear.model", "--to", "onnx", "--name", "s"], 2, "--name applies only to --to elasticsearch or"),
        (["linear.model", "--to", "lucene"], 2, "'lucene' is not one of"),
        (["none.model", "--to", "onnx"], 2, "does not exist"),
        (["test.txt", "--to", "onnx"], 1, "not a sinkprop model"),
        (["linear.model", "--to", "solr", "--name", "a b"], 1, "name must be one word"),
        (["linear.model", "--to", "solr", "--features", "test.txt"], 1, "name the 50 features of the model"),
        (["linear.model"], 2, "Missing option '--to'"),
    ],
)
def test_errors(arguments, status, message, folder, tmp_path, run):
    here = [folder / a if a.endswith((".model", ".txt")) else a for a in arguments]
    found, text, error = run("export", *here, "-o", tmp_path / "out")
    assert (found, text) == (status, "")
    assert message in error
    assert error.startswith("sinkprop: ")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_files_are_kept_apart(folder, tmp_path, run):
    model = tmp_path / "m.model"
    model.write_bytes((folder / "linear.model").read_bytes())
    status, _, error = run("export", model, "--to", "onnx", "-o", model)
    assert status == 2
    assert "--out and MODEL are the same file" in error
    status, _, error = run(
        "export", model, "--to", "solr", "-o", tmp_path / "a", "--definitions", tmp_path / "a"
    )
    assert status == 2
    assert "--definitions and --out are the same file" in error
    broken = tmp_path / "names.json"
    broken.write_text("[1, 2", "utf-8")
    status, _, error = run("export", model, "--to", "solr", "-o", tmp_path / "a", "--features", broken)
    assert status == 1
    assert "starts like JSON" in error
    assert not (tmp_path / "a").exists()


def test_an_export_that_does_not_agree_is_not_written(folder, tmp_path, run, monkeypatch):
    from sinkprop.export import write as files

    real = files.Export.scores
    monkeypatch.setattr(files.Export, "scores", lambda self, X, groups: -real(self, X, groups))
    status, text, error = run(
        "export",
        folder / "linear.model",
        "--to",
        "solr",
        "-o",
        tmp_path / "a",
        "--check",
        folder / "test.txt",
    )
    assert (status, text) == (1, "")
    assert "the export does not agree" in error
    assert "Same order in 0 of 5 queries" in error
    assert list(tmp_path.iterdir()) == []


def test_agreement_is_arithmetic_a_reader_can_check():
    model, groups = np.array([3.0, 2.0, 1.0, 5.0, 5.0]), group_rows([1, 1, 1, 2, 2], 5)
    same = agreement(model + 7, model, groups, up_to_constant=True)
    assert (same.difference, same.queries, same.same, same.turned) == (0.0, 2, 2, 0.0)
    assert agreement(model + 7, model, groups, up_to_constant=False).difference == 7.0
    assert same.spread == pytest.approx(np.sqrt(2 / 5))
    turned = agreement(np.array([3.0, 0.5, 1.0, 5.0, 5.0]), model, groups, up_to_constant=False)
    assert (turned.difference, turned.same, turned.turned) == (1.5, 1, 1.0)
    tied = agreement(np.array([3.0, 2.0, 1.0, 5.0, 5.5]), model, groups, up_to_constant=False)
    assert (tied.same, tied.turned) == (1, 0.0)  # a tie of the model's that is none has no wrong order
    assert same.sound
    assert not turned.sound
    for up_to_constant in (False, True):
        nothing = agreement(np.array([np.nan] * 5), model, groups, up_to_constant=up_to_constant)
        assert not nothing.sound
        one = agreement(np.array([3.0, 2.0, np.nan, 5.0, 5.0]), model, groups, up_to_constant=up_to_constant)
        assert not one.sound
