"""`sinkprop train --method auto`, and the commands that read its model."""

import json
import re

import numpy as np
import pytest

import sinkprop
from sinkprop.experiment.methods import METHODS, is_ours


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(180, 3)).round(3), np.repeat(np.arange(1, 21), 9)
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=180), [0.3, 1.0])
    path = tmp_path_factory.mktemp("auto") / "train.txt"
    sinkprop.save_letor(path, sinkprop.Queries(X, y, qid))
    return path


@pytest.fixture
def quick(monkeypatch):
    """Only ridge regression is tried."""
    monkeypatch.setattr("sinkprop.auto.ranker.named_methods", lambda methods: ["ridge"])


@pytest.mark.usefixtures("quick")
def test_it_says_what_it_tried_and_saves_a_model_that_every_command_reads(train, tmp_path, run):
    model = tmp_path / "a.model"
    status, out, err = run("train", train, "--model", model, "--method", "auto", "--time-budget", "45")
    assert status == 0, err
    for text in (r"Model +ridge", r"Outcome +Every member was fitted", r"of 45 seconds used", r"to the best"):
        assert re.search(text, out), out
    assert re.search(r"ndcg@10, standard +training\n\W*auto +0\.\d{4}", out), out
    assert "least squares" not in out
    ranker = sinkprop.load_model(model)
    assert (type(ranker).__name__, ranker.time_budget) == ("AutoRanker", 45.0)
    assert run("evaluate", train, "--model", model)[0] == 0
    scores = run("predict", model, train)[1].split()
    np.testing.assert_allclose(np.array(scores, dtype=float), ranker.predict(sinkprop.load_letor(train)))
    status, _, err = run("export", model, "--to", "onnx", "-o", tmp_path / "a.onnx")
    assert status != 0
    assert "an AutoRanker combines several rankers" in err


@pytest.mark.usefixtures("quick")
def test_json_has_the_members(train, tmp_path, run):
    options = ("--selection", "cross-validation", "--criterion", "ndcg@5", "--seed", "3", "--threads", "1")
    status, out, err = run(
        "train", train, "--model", tmp_path / "m", "--method", "auto", *options, "--json", "-"
    )
    assert status == 0, err
    record = json.loads(out)
    assert record["method"] == "auto"
    assert (record["criterion"], record["status"]) == ("ndcg@5", "finished")
    (member,) = record["auto"]["members"]
    assert (member["name"], member["weight"], member["n_fits"]) == ("ridge", 1.0, 5)
    assert list(record["metrics"]["training"]) == ["model"]


@pytest.mark.usefixtures("quick")
def test_a_small_budget_is_said_in_one_line(train, tmp_path, run):
    arguments = ("train", train, "--model", tmp_path / "m", "--method", "auto", "--time-budget", "0.001")
    status, out, err = run(*arguments)
    assert status == 0
    assert "too small to compare the members" in err
    assert re.search(r"Outcome +No member could be compared", out), out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "auto", "--time-budget", "0"], "0.0 is not in the range x>0"),
        (["--method", "auto", "--penalty", "1"], "--penalty applies only to --method sinkprop"),
        (["--method", "auto", "--cluster", "2"], "--cluster applies only to --method"),
        (["--time-budget", "5"], "--time-budget applies only to --method auto"),
    ],
)
def test_options_that_do_not_apply_are_refused(options, message, train, tmp_path, run):
    status, _, err = run("train", train, "--model", tmp_path / "m", *options)
    assert status == 2
    assert message in " ".join(err.split())


def test_compare_knows_the_method():
    assert type(METHODS["auto"].make()).__name__ == "AutoRanker"
    assert is_ours("auto")
