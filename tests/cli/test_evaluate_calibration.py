"""`sinkprop evaluate --calibration`: the library's numbers in a table, as JSON, as CSV and as a picture."""

from __future__ import annotations

import csv
import io
import json
import os
import re

import numpy as np
import pytest
from terminal import shown
from warm import PROGRAM

from sinkprop import PartitionedMeasure, Queries, SinkPropRanker
from sinkprop.baselines import RegressionRanker
from sinkprop.calibration import calibration_report
from sinkprop.data.letor import load_letor, save_letor
from sinkprop.registry import load_model
from sinkprop.store import save_queries

EVENTS = ["top 1", "top 3", "top 5", "top 10", "first is best", "label >= 1", "label >= 2"]


def queries(n_queries, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries * 8, 3)).round(3)
    y = np.digitize(X @ [1, 0.5, 0] + rng.normal(size=len(X)), [0.5, 2.0]).astype(float)
    return Queries(X, y, np.repeat(np.arange(n_queries), 8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibration")
    train, held, test = queries(30, 0), queries(30, 1), queries(25, 2)
    save_letor(folder / "test.txt", test)
    save_queries(folder / "test.queries", test)
    ranker = SinkPropRanker(penalty=1e-3, selection="validation").fit(train, eval_set=held)
    ranker.save(folder / "m.model")
    RegressionRanker(penalty=1.0).fit(train).save(folder / "plain.model")
    RegressionRanker(penalty=1.0).fit(train).calibrate(held).save(folder / "regression.model")
    ranker = SinkPropRanker(
        penalty=1e-3, selection="validation", relaxation=PartitionedMeasure("probit"), max_iter=2
    )
    ranker.fit(train, eval_set=held).calibrate(held).save(folder / "partitioned.model")
    return folder


def report_of(folder, model="m.model"):
    ranker, test = load_model(folder / model), load_letor(folder / "test.txt")
    sigma = getattr(getattr(ranker, "relaxation_", None), "sigma", None)
    return calibration_report(ranker.calibration_, ranker.predict(test), test.y, test.qid, sigma=sigma)


def rows_of(text, head):
    """Cells of the rows of a printed table, in columns of two spaces or more, below its head."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(head))
    next(lines)
    rows = []
    for line in lines:
        if not line.strip():
            return rows
        rows.append(re.split(r"\s{2,}", line.strip()))
    return rows


def test_the_table_has_the_errors_and_log_scores_of_the_library(folder, run):
    status, out, error = run("evaluate", folder / "test.txt", "--model", folder / "m.model", "--calibration")
    assert (status, error) == (0, "")
    report = report_of(folder)
    assert out.index("ndcg@10") < out.index("Probabilities, before and after calibration on 30 queries")
    expected = [
        [event, *(f"{side.error:.4f}" for side in sides if side is not None)]
        for event, *sides in report.events()
    ]
    assert rows_of(out, "calibration error") == expected
    assert [row[0] for row in expected] == EVENTS
    scores = report.log_scores
    numbers = [f"{x:.4f}" for x in (scores.before, scores.after, scores.uniform)]
    assert rows_of(out, "log score") == [["ranks", *numbers]]


@pytest.mark.parametrize("model", ["m.model", "regression.model", "partitioned.model"])
@pytest.mark.parametrize("data", ["test.txt", "test.queries"])
def test_json_has_every_bin(folder, run, data, model):
    status, out, error = run(
        "evaluate", folder / data, "--model", folder / model, "--calibration", "--json", "-"
    )
    assert (status, error) == (0, "")
    expected = report_of(folder, model).record()
    found = json.loads(out)["calibration"]
    assert (found["n_queries"], found["n_calibrating"]) == (25, 30)
    for own, other in zip(found["events"], expected["events"], strict=True):
        assert own["event"] == other["event"]
        assert own["after"]["counts"] == other["after"]["counts"]
        assert own["after"]["error"] == pytest.approx(other["after"]["error"])
    assert found["log_scores"] == pytest.approx(expected["log_scores"])


def test_csv_has_the_table_in_full_precision(folder, run):
    _, out, _ = run(
        "evaluate", folder / "test.txt", "--model", folder / "m.model", "--calibration", "--csv", "-"
    )
    head, first, *rows = csv.reader(io.StringIO(out))
    report = report_of(folder)
    assert head == ["measure", "before", "after", "uniform"]
    assert first[0] == "log score"
    assert [float(x) for x in first[1:]] == pytest.approx(list(vars(report.log_scores).values()))
    assert [row[0] for row in rows] == [f"calibration error, {event}" for event in EVENTS]
    assert [float(row[2]) for row in rows] == pytest.approx([own.error for own in report.after.values()])
    assert [row[1] for row in rows[-2:]] == ["", ""]


def test_without_the_option_nothing_changes(folder, run):
    _, out, _ = run("evaluate", folder / "test.txt", "--model", folder / "m.model", "--json", "-")
    assert "calibration" not in json.loads(out)


def test_the_picture_is_drawn(folder, run, tmp_path):
    pytest.importorskip("matplotlib")
    for name, start in (("r.png", b"\x89PNG"), ("r.svg", b"<?xml"), ("r.pdf", b"%PDF")):
        status, out, error = run(
            "evaluate", folder / "test.txt", "--model", folder / "m.model", "--calibration",
            "--plot", tmp_path / name,
        )  # fmt: skip
        assert (status, error) == (0, "")
        assert out.endswith(f"Wrote {tmp_path / name}\n")
        assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (
            ["--model", "plain.model", "--calibration"],
            1,
            "plain.model has no calibration. Train it",
        ),
        (["--feature", "1", "--calibration"], 2, "--calibration needs --model"),
        (["--model", "m.model", "--plot", "r.png"], 2, "--plot needs --calibration"),
        (["--model", "m.model", "--calibration", "--plot", "r.txt"], 2, "must end in .png, .svg or .pdf"),
    ],
)
def test_what_cannot_be_is_one_line(folder, run, monkeypatch, options, status, said):
    monkeypatch.chdir(folder)
    found, out, error = run("evaluate", "test.txt", *options)
    assert (found, out) == (status, "")
    assert said in error
    assert error.count("\n") == 1
    assert not os.path.exists("r.png")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("columns", [30, 40, 100])
def test_a_terminal_shows_what_a_pipe_gets(warm, folder, columns):
    arguments = ("evaluate", "test.txt", "--model", "m.model", "--calibration")
    piped = warm.run(PROGRAM, *arguments, cwd=folder)
    assert (piped.returncode, piped.stderr) == (0, "")
    screen = shown(warm, *arguments, columns=columns, cwd=folder)
    assert screen.status == 0
    assert not any("checking the probabilities" in line for line in screen.lines)
    assert max(map(len, screen.lines)) <= columns
    text = "\n".join(screen.lines)
    for event, *before_and_after in rows_of(piped.stdout, "calibration error"):
        shown_numbers = re.findall(rf"^{re.escape(event)} +([\d. ]+)$", text, re.MULTILINE)
        assert " ".join(shown_numbers).split() == before_and_after
