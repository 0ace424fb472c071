"""`sinkprop evaluate --save-reference` and `--against`: the numbers of the library, and wrong input."""

import dataclasses
import json

import numpy as np
import pytest

from sinkprop import datasets, save_letor
from sinkprop.baselines import RegressionRanker
from sinkprop.drift import Reference, compare, reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """LETOR files of two sets of queries, one with a changed unit, a model, its scores and its reference."""
    where = tmp_path_factory.mktemp("drift")
    fold = datasets.load_pydocs(1)
    ranker = RegressionRanker(penalty=0.1, normalization="standard").fit(fold.train).calibrate(fold.train)
    ranker.save(where / "m.model")
    RegressionRanker().fit(fold.train).save(where / "other.model")
    X = fold.test.X.copy()
    X[:, 7] *= 1.3
    for name, queries in {
        "then": fold.vali, "now": fold.test, "moved": dataclasses.replace(fold.test, X=X)
    }.items():  # fmt: skip
        save_letor(where / f"{name}.txt", queries)
        np.savetxt(where / f"{name}.scores", ranker.predict(queries))
    reference(ranker, fold.vali, metrics="ndcg@10,map").save(where / "r.json")
    return where


OPTIONS = ("--n-features", "50")


def test_the_reference_and_the_comparison_are_those_of_the_library(folder, run, tmp_path):
    model = ("--model", str(folder / "m.model"), *OPTIONS)
    out = tmp_path / "r.json"
    status, text, _ = run(
        "evaluate", str(folder / "then.txt"), *model, "--metrics", "ndcg@10,map", "--save-reference", str(out)
    )
    assert status == 0
    assert f"Wrote {out}" in text
    assert out.read_bytes() == (folder / "r.json").read_bytes()
    status, text, _ = run("evaluate", str(folder / "now.txt"), *model, "--against", str(out), "--json", "-")
    fold, ranker = datasets.load_pydocs(1), RegressionRanker.load(folder / "m.model")
    assert (status, json.loads(text)) == (0, compare(Reference.load(out), ranker, fold.test).record())


def test_marks_and_the_exit_status(folder, run):
    given = ("--model", str(folder / "m.model"), *OPTIONS, "--against", str(folder / "r.json"))
    moved, now = str(folder / "moved.txt"), str(folder / "now.txt")
    status, text, error = run("evaluate", moved, *given, "--fail-on-drift")
    assert (status, error) == (3, "")
    lines = [line for line in text.splitlines() if line.endswith("*")]
    assert {line.split(":")[0] for line in lines} == {"name_length"}
    assert all("<0.001" in line for line in lines)
    assert run("evaluate", moved, *given)[0] == 0
    status, text, _ = run("evaluate", now, *given, "--fail-on-drift")
    assert status == 0
    assert "No difference is beyond chance (*)." in text
    assert "ndcg@10" in text
    status, text, _ = run("evaluate", now, *given, "--unlabeled")
    assert status == 0
    assert "ndcg@10" not in text
    assert "mean score" in text


def test_scores_in_place_of_a_model(folder, run, tmp_path):
    out = tmp_path / "r.json"
    scores = [("--scores", str(folder / f"{name}.scores"), *OPTIONS) for name in ("then", "now")]
    assert run("evaluate", str(folder / "then.txt"), *scores[0], "--save-reference", str(out))[0] == 0
    status, text, _ = run("evaluate", str(folder / "now.txt"), *scores[1], "--against", str(out))
    assert status == 0
    assert "of the features" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "other.model", "--against", "r.json"], "another model, .* give --other-model"),
        (
            ["--scores", "now.scores", "--against", "r.json"],
            "made from a RegressionRanker; give the same, or",
        ),
        (["--model", "m.model", "--against", "m.model"], "holds a RegressionRanker, not a reference"),
        (["--model", "m.model", "--against", "now.scores"], "is not a sinkprop model"),
        (["--model", "m.model", "--against", "r.json", "--metrics", "map"], "--metrics does not apply with"),
        (["--model", "m.model", "--against", "r.json", "--csv", "x"], "--csv does not apply with --against"),
        (["--model", "m.model", "--unlabeled"], "--unlabeled needs --against"),
        (["--feature", "3", "--save-reference", "x"], "--save-reference needs --model or --scores"),
        (["--feature", "3", "--against", "r.json"], "--feature does not apply with --against"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(folder, run, monkeypatch, options, message):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    status, out, error = run("evaluate", "now.txt", *OPTIONS, *options, "--json", "written.json")
    assert status in (1, 2)
    assert out == ""
    assert error.count("\n") == 1
    import re

    assert re.search(message, error), error
    assert sorted(folder.iterdir()) == before
