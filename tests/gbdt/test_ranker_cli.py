"""`sinkprop train --method boosted`, and `predict` and `evaluate` with what it saved."""

import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import sinkprop

pytest.importorskip("lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm")

from sinkprop.gbdt import BoostedRanker

FAST = ["--method", "boosted", "--trees", "20", "--leaves", "4", "--rate", "1.5"]
SAME = {"n_estimators": 20, "num_leaves": 4, "learning_rate": 1.5, "verbose": False}


def problem(seed=0, n_queries=30):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries * 9, 3)).round(3)
    y = np.digitize(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=len(X)), [0.3, 1.0]).astype(float)
    return X, y, np.repeat(np.arange(1, n_queries + 1), 9)


def letor(X, y, qid):
    rows = zip(y, qid, X, strict=True)
    return "".join(
        f"{label:g} qid:{q} " + " ".join(f"{j}:{x!r}" for j, x in enumerate(row.tolist(), 1)) + "\n"
        for label, q, row in rows
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boosted")
    for seed, name in enumerate(("train", "vali", "test")):
        (folder / f"{name}.txt").write_text(letor(*problem(seed)), "utf-8")
    return folder


def test_it_saves_the_model_that_python_would(files, tmp_path, run):
    model = tmp_path / "m.model"
    data = [files / "train.txt", "--vali", files / "vali.txt", "--model", model]
    status, out, error = run("train", *data, *FAST, "--gain", "ndcg@5", "--seed", "3", "--metric", "map")
    assert (status, error) == (0, "")
    (X, y, qid), (Xv, yv, qv) = problem(), problem(1)
    direct = BoostedRanker("ndcg@5", random_state=3, metric="map", **SAME)
    direct.fit(X, y, qid=qid, eval_set=[(Xv, yv)], eval_qid=[qv])
    saved = sinkprop.load_model(model)
    assert isinstance(saved, BoostedRanker)
    assert saved.fit_result_ == direct.fit_result_
    np.testing.assert_array_equal(saved.predict(X), direct.predict(X))
    assert 1 < direct.n_trees_ < 20
    gain = re.escape("expected ndcg(discount=log2)@5")
    assert re.search(rf"^Model +{gain}, {direct.n_trees_} trees *$", out, re.MULTILINE)
    assert re.search(rf"^Chosen +round {direct.best_iteration_} of 20 *$", out, re.MULTILINE)
    assert re.search(rf"^Chosen by +{gain}, 30 validation queries *$", out, re.MULTILINE)
    means = re.findall(r"^boosted +([\d. ]+)$", out, re.MULTILINE)[0].split()
    expected = [direct.score(X, y, qid=qid), direct.score(Xv, yv, qid=qv)]
    assert means == [f"{value:.4f}" for value in expected]
    assert "least squares" not in out

    Xt, yt, qt = problem(2)
    status, out, error = run("predict", model, files / "test.txt")
    assert (status, error) == (0, "")
    assert [float(line) for line in out.split()] == direct.predict(Xt).tolist()
    status, out, error = run("predict", model, files / "test.txt", "--format", "ranks")
    assert [int(line) for line in out.split()] == direct.rank(Xt, qid=qt).tolist()
    status, out, error = run("evaluate", files / "test.txt", "--model", model, "--metrics", "map")
    assert (status, error) == (0, "")
    assert f"{direct.score(Xt, yt, qid=qt):.4f}" in out


def test_without_validation_queries_all_trees_are_grown(files, tmp_path, run):
    record = tmp_path / "r.json"
    status, out, error = run("train", files / "train.txt", "--model", tmp_path / "m", *FAST, "--json", record)
    assert (status, error) == (0, "")
    assert "expected ndcg(discount=log2), 20 trees" in out
    found = json.loads(record.read_text())
    assert (found["method"], found["status"], found["criterion"]) == ("boosted", "finished", None)
    assert found["boosting"]["trees"] == found["boosting"]["n_rounds"] == found["boosting"]["best"] == 20
    assert found["stages"] == []
    assert found["parameters"]["num_leaves"] == 4
    X, y, qid = problem()
    direct = BoostedRanker(**SAME).fit(X, y, qid=qid)
    assert found["metrics"] == {"training": {"model": direct.score(X, y, qid=qid)}}


def test_defaults_are_the_rankers(files, tmp_path, run):
    status, out, _ = run("train", files / "train.txt", "--model", tmp_path / "m", "--method", "boosted")
    assert status == 0
    saved = sinkprop.load_model(tmp_path / "m")
    given, defaults = saved.get_params(), BoostedRanker().get_params()
    given["widths"] = tuple(given["widths"])  # a file knows lists only
    assert {name for name in defaults if given[name] != defaults[name]} == set()
    assert saved.n_boosters_ == 5
    assert f"{saved.n_trees_:,} trees" in out


def test_effort(files, tmp_path, run):
    given = ("--method", "boosted", "--effort", "fast", "--trees", "3")
    status, out, _ = run("train", files / "train.txt", "--model", tmp_path / "m", *given)
    assert status == 0
    assert sinkprop.load_model(tmp_path / "m").effort == "fast"
    assert "3 trees" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "boosted", "--penalty", "1e-3"], "--penalty applies only to --method sinkprop."),
        (["--method", "boosted", "--normalization", "query"], "--normalization applies only to --method"),
        (["--method", "boosted", "--checkpoint", "c"], "--checkpoint applies only to --method sinkprop."),
        (["--trees", "5"], "--trees applies only to --method boosted."),
        (["--method", "regression", "--leaves", "5"], "--leaves applies only to --method boosted."),
        (["--method", "boosted", "--trees", "0"], "0 is not in the range"),
        (["--method", "boosted", "--leaves", "1"], "1 is not in the range"),
        (["--method", "boosted", "--rate", "0"], "0"),
    ],
)
def test_options_of_other_methods(files, tmp_path, run, options, message):
    status, out, error = run("train", files / "train.txt", "--model", tmp_path / "m", *options)
    assert status == 2
    assert out == ""
    assert message in error
    assert not (tmp_path / "m").exists()


def test_without_lightgbm(files, tmp_path):
    code = "import sys; sys.modules['lightgbm'] = None; from sinkprop.cli import main; main()"
    arguments = ["train", files / "train.txt", "--model", tmp_path / "m", "--method", "boosted"]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert 'pip install "sinkprop[lightgbm]"' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_saves_the_best_so_far(tmp_path):
    (tmp_path / "train.txt").write_text(letor(*problem(n_queries=800)), "utf-8")
    model = tmp_path / "m"
    data = [tmp_path / "train.txt", "--model", model, "--threads", "1"]
    # a progress line would tell how far it is, on a terminal; here the same function prints
    code = """
from sinkprop.gbdt.growing import loop
run = loop.Growth.run
def told(self, notify, *rest):
    def loud(done, total, what):
        if done == 5:
            print("started", flush=True)
        notify(done, total, what)
    return run(self, loud, *rest)
loop.Growth.run = told
from sinkprop.cli import main
main()
"""
    arguments = ["train", *data, "--method", "boosted", "--trees", "1000000"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "started\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert re.fullmatch(
        rf"sinkprop: interrupted: {model} is the best model of \d+ finished rounds?\.\n", error
    )
    assert f"Wrote {model}" in out
    assert sinkprop.load_model(model).fit_result_.status == "interrupted"
