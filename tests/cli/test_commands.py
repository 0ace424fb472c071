"""`train`, `predict` and `evaluate`: what they write, what they refuse, and what stays as it was."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import partial

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from places import ROOT
from program import Run, run_here
from warm import PROGRAM

import sinkprop
from sinkprop import cli
from sinkprop.baselines import RegressionRanker
from sinkprop.cli.predict import falling

FAST = ["--penalty", "1e-3", "--selection", "validation"]


def letor(X, y, qid, docid=None) -> str:
    """The text of a file, written here and not by the library."""
    lines = []
    for i, row in enumerate(X):
        pairs = " ".join(f"{j}:{float(x)!r}" for j, x in enumerate(row, 1))
        lines.append(f"{y[i]:g} qid:{qid[i]} {pairs}" + (f" #docid = {docid[i]}" if docid else ""))
    return "\n".join(lines) + "\n"


def problem(n_queries=12, n=9, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries * n, n_features)).round(3)
    y = np.digitize(X @ np.arange(n_features, 0, -1) + rng.normal(size=len(X)), [1.0, 3.0]).astype(float)
    qid = np.repeat(np.arange(1, n_queries + 1), n)
    return X, y, qid, [f"d{q}-{i % n}" for i, q in enumerate(qid)]


@pytest.fixture
def run(capfd):
    """The program in this process."""
    return partial(run_here, capfd)


def shell(*arguments, **options):
    """The program as a user's shell runs it."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        **options,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory, warm):
    """A folder with data and a model of each kind, which tests read and do not change."""
    folder = tmp_path_factory.mktemp("commands")
    for name, seed in (("train", 0), ("vali", 1), ("test", 2)):
        (folder / f"{name}.txt").write_text(letor(*problem(seed=seed)), "utf-8")
    for name, options in (
        ("m", ["--vali", folder / "vali.txt"]),
        ("two", ["--relaxation", "logit-logistic"]),
    ):
        done = warm.run(
            PROGRAM, "train", folder / "train.txt", "--model", folder / f"{name}.model", *FAST, *options
        )
        assert (done.returncode, done.stderr) == (0, "")
    return folder


def snapshot(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def one_line(error: str) -> bool:
    return error.startswith("sinkprop: ") and error.endswith("\n") and error.count("\n") == 1


# help


@pytest.mark.parametrize("name", ["train", "predict", "evaluate", "demo", "bench"])
def test_help_teaches_by_examples_whose_options_exist(name):
    command = cli.program().commands[name]
    result = CliRunner().invoke(cli.program(), [name, "--help"])
    assert result.exit_code == 0
    options = {o for p in command.params if isinstance(p, click.Option) for o in (*p.opts, *p.secondary_opts)}
    examples = re.findall(rf"^ +((?:\w.* \| )?sinkprop {name}\b.*)$", result.output, re.MULTILINE)
    assert len(examples) >= 4
    assert name == "bench" or max(map(len, result.output.splitlines())) <= 80
    for example in examples:
        used = set(re.findall(r"(?<= )--[a-z-]+", example))
        assert used <= options, example
    for option in options:
        assert option in result.output


def test_every_example_of_a_command_parses(tmp_path, monkeypatch):
    """With files of these names there, each example gets past the checks of its options."""
    monkeypatch.chdir(tmp_path)
    names = "train.txt train.txt.gz vali.txt.gz train.parquet rank.train big.txt test.txt scores.txt test.run"
    names += " log.parquet bias.json test.parquet new.txt reference.json"
    for name in (*names.split(), "m.model", "old.model", "sparse.txt"):
        pathlib.Path(name).touch()
    for name in ("train.queries", "test.queries", "logs.queries"):
        pathlib.Path(name).mkdir()
        opening = '{\n  "format": "sinkprop-queries",\n  "version": 1,\n'
        pathlib.Path(name, "manifest.json").write_text(opening)
    seen = 0
    for name in ("train", "predict", "evaluate"):
        command = cli.program().commands[name]
        for example in re.findall(rf"^ *(?:.* \| )?sinkprop {name} (.*)$", command.help, re.MULTILINE):
            words = shlex.split(re.split(r" {2,}| \||>", example)[0])
            command.make_context(name, words)
            seen += 1
    assert seen > 15


def test_overview_names_every_command():
    result = CliRunner().invoke(cli.program(), [])
    assert result.exit_code == 0
    for name in ("demo", "train", "predict", "evaluate", "compare", "bench"):
        assert f"sinkprop {name}" in result.output


# train


@pytest.mark.parametrize("n_iter", ["converged", "converged(tol=1e-06)", "1.5"])
def test_train_takes_a_number_of_iterations_or_their_limit(files, tmp_path, run, n_iter):
    model = tmp_path / "m.model"
    given = ["train", files / "train.txt", "--vali", files / "vali.txt", "--model", model, *FAST]
    done = run(*given, "--n-iter", n_iter)
    assert (done.status, done.error) == (0, "")
    X, y, qid, _ = problem()
    Xv, yv, qv, _ = problem(seed=1)
    setting = float(n_iter) if n_iter == "1.5" else n_iter
    direct = sinkprop.SinkPropRanker(penalty=1e-3, selection="validation", n_iter=setting, verbose=False)
    direct.fit(X, y, qid=qid, eval_set=[(Xv, yv)], eval_qid=[qv])
    saved = sinkprop.load_model(model)
    assert saved.n_iter == setting
    np.testing.assert_array_equal(saved.coef_, direct.coef_)


def test_train_saves_the_model_that_python_would(files, tmp_path, run):
    model = tmp_path / "m.model"
    done = run("train", files / "train.txt", "--vali", files / "vali.txt", "--model", model, *FAST)
    assert (done.status, done.error) == (0, "")
    X, y, qid, _ = problem()
    Xv, yv, qv, _ = problem(seed=1)
    direct = sinkprop.SinkPropRanker(penalty=1e-3, selection="validation", verbose=False)
    direct.fit(X, y, qid=qid, eval_set=[(Xv, yv)], eval_qid=[qv])
    saved = sinkprop.load_model(model)
    np.testing.assert_array_equal(saved.coef_, direct.coef_)
    assert re.search(r"^Data +108 rows, 12 queries, 3 features", done.out, re.MULTILINE)
    means = dict(re.findall(r"^(least squares|sinkprop) +([\d. ]+)$", done.out, re.MULTILINE))
    regression = RegressionRanker().fit(X, y, qid=qid)
    for name, ranker in (("least squares", regression), ("sinkprop", direct)):
        expected = [ranker.score(X, y, qid=qid), ranker.score(Xv, yv, qid=qv)]
        assert means[name].split() == [f"{value:.4f}" for value in expected]
    assert done.out.endswith(f"Wrote {model}\n")


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("relaxation", ["gaussian", "logit-logistic"])
def test_the_line_of_least_squares_is_the_fits_own_start(
    files, tmp_path, run, monkeypatch, stored, relaxation
):
    data = files / "train.txt"
    if stored:
        pytest.importorskip("pyarrow", reason="stored sets are Arrow files")
        data = tmp_path / "train.queries"
        assert run("convert", files / "train.txt", "-o", data).status == 0
    X, y, qid, _ = problem()
    expected = RegressionRanker().fit(X, y, qid=qid).score(X, y, qid=qid)

    def refuse(self, *arguments, **options):
        raise AssertionError("a second model was fitted")

    monkeypatch.setattr(RegressionRanker, "fit", refuse)
    options = [*FAST, "--vali", files / "vali.txt", "--relaxation", relaxation, "--json", tmp_path / "j"]
    done = run("train", data, "--model", tmp_path / "m.model", *options)
    assert (done.status, done.error) == (0, "")
    assert re.search(rf"^least squares +{expected:.4f} ", done.out, re.MULTILINE)
    assert json.loads((tmp_path / "j").read_text())["metrics"]["training"]["regression"] == expected


def test_train_regression(files, tmp_path, run):
    model = tmp_path / "ls.model"
    done = run("train", files / "train.txt", "--model", model, "--method", "regression", "--metric", "map")
    assert (done.status, done.error) == (0, "")
    X, y, qid, _ = problem()
    direct = RegressionRanker(metric="map").fit(X, y, qid=qid)
    saved = sinkprop.load_model(model)
    assert isinstance(saved, RegressionRanker)
    np.testing.assert_array_equal(saved.predict(X), direct.predict(X))
    assert f"{direct.score(X, y, qid=qid):.4f}" in done.out


def test_train_json_alone_on_stdout(files, tmp_path, warm):
    model = tmp_path / "m.model"
    done = warm.run(PROGRAM, "train", files / "train.txt", "--model", model, *FAST, "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    assert record["data"]["train"] == {
        "file": str(files / "train.txt"),
        "rows": 108,
        "queries": 12,
        "features": 3,
    }
    assert record["data"]["vali"] is None
    assert (record["status"], record["method"], record["metric"]) == ("finished", "sinkprop", "ndcg@10")
    assert record["stages"][0]["penalty"] is None  # the regression's is infinite, which JSON does not have
    assert sum(stage["chosen"] for stage in record["stages"]) >= 1
    assert record["metrics"]["training"]["model"] == pytest.approx(
        sinkprop.load_model(model).score(*problem()[:2], qid=problem()[2]), abs=0
    )


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_compressed_text_gives_the_same_scores(files, tmp_path, run, suffix):
    import bz2
    import lzma

    packed = {".gz": gzip, ".xz": lzma, ".bz2": bz2}[suffix].compress((files / "test.txt").read_bytes())
    (tmp_path / f"test.txt{suffix}").write_bytes(packed)
    plain = run("predict", files / "m.model", files / "test.txt")
    assert run("predict", files / "m.model", tmp_path / f"test.txt{suffix}") == plain


def test_query_sizes_beside_the_file_or_given(tmp_path, run):
    X, y, qid, _ = problem()
    text = re.sub(r" qid:\d+", "", letor(X, y, qid))
    (tmp_path / "rank.train").write_text(text)
    (tmp_path / "sizes").write_text("9\n" * 12)
    missing = run("train", tmp_path / "rank.train", "--model", tmp_path / "m", "--method", "regression")
    assert missing.status == 1
    assert "--group" in missing.error
    assert "group=" not in missing.error
    given = ["--group", tmp_path / "sizes"]
    done = run("train", tmp_path / "rank.train", "--model", tmp_path / "a", "--method", "regression", *given)
    assert done.status == 0
    assert "12 queries" in done.out
    (tmp_path / "sizes").rename(tmp_path / "rank.train.query")
    done = run("train", tmp_path / "rank.train", "--model", tmp_path / "b", "--method", "regression")
    assert done.status == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_reader_speaks_of_options(tmp_path, run):
    path = tmp_path / "d.txt"
    path.write_text("1 qid:1 1:NULL\n0 qid:1 1:2\n")
    done = run("train", path, "--model", tmp_path / "m", "--method", "regression", "--missing", "error")
    assert (done.status, "--null 0" in done.error, "null=" in done.error) == (1, True, False)
    done = run("train", path, "--model", tmp_path / "m", "--method", "regression", "--null", "0")
    assert (done.status, done.error) == (0, "")
    path.write_text("1 qid:1 0:1\n0 qid:1 0:2\n")
    done = run("train", path, "--model", tmp_path / "z", "--method", "regression")
    assert (done.status, "--zero-based" in done.error) == (1, True)
    done = run("train", path, "--model", tmp_path / "z", "--method", "regression", "--zero-based")
    assert (done.status, done.error) == (0, "")


def test_validation_with_other_features(files, tmp_path, run):
    X, y, qid, _ = problem(n_features=4)
    (tmp_path / "vali.txt").write_text(letor(X, y, qid))
    train, model = files / "train.txt", tmp_path / "m"
    done = run("train", train, "--vali", tmp_path / "vali.txt", "--model", model, "--method", "regression")
    assert done.status == 1
    assert one_line(done.error)
    assert "has 3 features, but" in done.error
    assert "--n-features 4" in done.error
    assert not model.exists()
    done = run("train", train, "--vali", tmp_path / "vali.txt", "--model", model, *FAST, "--n-features", "4")
    assert (done.status, done.error) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_saves_the_best_so_far_and_the_checkpoint_resumes(tmp_path, warm):
    X, y, qid, _ = problem(n_queries=300, n=60, n_features=20)
    (tmp_path / "train.txt").write_text(letor(X, y, qid))
    model, check = tmp_path / "m.model", tmp_path / "m.check"
    train = ["train", str(tmp_path / "train.txt"), "--selection", "validation", "--threads", "1"]
    arguments = [*train, "--model", str(model), "--checkpoint", str(check)]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(6000):
        if check.exists() or process.poll() is not None:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert one_line(error)
    assert "m.model is the best model of" in error
    assert f"resume from {check}" in error
    assert f"Wrote {model}" in out
    first = sinkprop.load_model(model)
    assert first.fit_result_.status == "interrupted"
    stages = len(first.fit_result_.stages)
    resumed = warm.run(PROGRAM, *arguments)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert not check.exists()
    whole = warm.run(PROGRAM, *train, "--model", tmp_path / "w.model")
    assert whole.returncode == 0
    last, uninterrupted = sinkprop.load_model(model), sinkprop.load_model(tmp_path / "w.model")
    assert len(last.fit_result_.stages) > stages
    np.testing.assert_array_equal(last.coef_, uninterrupted.coef_)


# predict


def test_scores_read_back_to_the_same_bits(files, run):
    X, _, qid, _ = problem(seed=2)
    for name in ("m", "two"):
        done = run("predict", files / f"{name}.model", files / "test.txt")
        assert (done.status, done.error) == (0, "")
        ranker = sinkprop.load_model(files / f"{name}.model")
        assert [float(x) for x in done.out.split("\n")[:-1]] == ranker.predict(X).tolist()
        done = run("predict", files / f"{name}.model", files / "test.txt", "--format", "ranks")
        assert [int(x) for x in done.out.split("\n")[:-1]] == ranker.rank(X, qid=qid).tolist()


def test_contributions_sum_to_the_scores(files, run):
    for name in ("m", "two"):
        done = run("predict", files / f"{name}.model", files / "test.txt", "--format", "contributions")
        assert (done.status, done.error) == (0, "")
        parts = np.array([[float(x) for x in line.split("\t")] for line in done.out.splitlines()])
        ranker, (X, *_) = sinkprop.load_model(files / f"{name}.model"), problem(seed=2)
        np.testing.assert_array_equal(parts, ranker.predict(X, pred_contrib=True))
        np.testing.assert_allclose(parts.sum(axis=1), ranker.predict(X), atol=1e-10)


def test_contributions_of_a_model_that_has_none_are_refused(files, tmp_path, run):
    X, y, qid, _ = problem()
    ranker = sinkprop.baselines.BoltzRankRanker(n_hidden=2, potential="pair", max_iter=1, verbose=False)
    ranker.fit(X, y, qid=qid).save(tmp_path / "pair.model")
    out = tmp_path / "out.txt"
    done = run(
        "predict", tmp_path / "pair.model", files / "test.txt", "--format", "contributions", "--out", out
    )
    assert (done.status, done.out) == (2, "")
    assert "pair.model is a BoltzRankRanker, which has no contributions of features" in done.error
    assert not out.exists()


def test_predict_from_stdin_to_a_file(files, tmp_path, run):
    out = tmp_path / "scores.txt"
    out.write_text("old")
    text = (files / "test.txt").read_text()
    done = shell("predict", files / "m.model", "-", "--out", out, input=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert out.read_text() == run("predict", files / "m.model", files / "test.txt").out
    assert [p.name for p in tmp_path.iterdir()] == ["scores.txt"]


def test_names_with_markup_and_other_alphabets(tmp_path, warm):
    data = tmp_path / "[bold]d\N{GREEK SMALL LETTER ALPHA}[x].txt"
    data.write_text("1 qid:A.1 1:2 #docid = [/red]\n0 qid:A.1 1:1 #docid = b\n")
    environment = {"PYTHONIOENCODING": "ascii"}
    arguments = ["train", data, "--method", "regression", "--model", tmp_path / "m"]
    done = warm.run(PROGRAM, *arguments, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"[bold]d\u03b1[x].txt" in done.stdout
    done = warm.run(PROGRAM, "evaluate", data, "--feature", "1", "--per-query", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "A.1" in done.stdout
    done = warm.run(PROGRAM, "predict", tmp_path / "m", data, "--format", "trec", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("A.1 Q0 [/red] 1 ")


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="devices")
def test_predict_to_a_device(files, run):
    assert run("predict", files / "m.model", files / "test.txt", "--out", "/dev/null") == Run(0, "", "")
    assert pathlib.Path("/dev/null").is_char_device()


def tied(n_queries=8, n=12, seed=5):
    """Queries whose documents share few different rows, in a scattered order, one of them alone."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, size=(n_queries * n + 1, 3)).astype(float)
    y = rng.integers(0, 3, size=len(X)).astype(float)
    qid = np.append(rng.permutation(np.repeat(np.arange(1, n_queries + 1), n)), 99)
    return X, y, qid, [f"doc{i}" for i in range(len(X))]


@pytest.mark.parametrize("name", ["m", "two"])
@pytest.mark.parametrize("data", [problem(seed=2), tied()], ids=["plain", "tied and scattered"])
def test_a_run_gives_trec_eval_our_ranking(files, tmp_path, run, name, data):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    X, y, qid, docid = data
    (tmp_path / "d.txt").write_text(letor(X, y, qid, docid))
    out = tmp_path / "d.run"
    arguments = ["--format", "trec", "--run-name", "mine", "--out", out, "--split-queries", "join"]
    done = run("predict", files / f"{name}.model", tmp_path / "d.txt", *arguments)
    assert done == Run(0, "", "")
    qrels: dict[str, dict[str, int]] = {}
    for q, d, label in zip(qid, docid, y, strict=True):
        qrels.setdefault(str(q), {})[d] = int(label)
    lines = [line.split() for line in out.read_text().splitlines()]
    assert {(len(words), words[1], words[5]) for words in lines} == {(6, "Q0", "mine")}
    with open(out, encoding="utf-8") as handle:
        parsed = pytrec_eval.parse_run(handle)
    assert {q: set(d) for q, d in parsed.items()} == {q: set(d) for q, d in qrels.items()}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "map"}).evaluate(parsed)
    ranks = sinkprop.load_model(files / f"{name}.model").rank(X, qid=qid)
    ours = sinkprop.evaluate(y, -ranks.astype(float), qid, "ndcg@10,map", "trec")
    for ours_name, theirs_name in (("ndcg@10", "ndcg_cut_10"), ("map", "map")):
        expected = [theirs[str(q)][theirs_name] for q in ours.queries]
        np.testing.assert_allclose(ours.per_query[ours_name], expected, rtol=0, atol=1e-12)
    # the ranks in the file are those of the model, query after query
    place = {(str(q), d): r for q, d, r in zip(qid, docid, ranks, strict=True)}
    assert [int(words[3]) for words in lines] == [place[words[0], words[2]] for words in lines]
    assert [words[0] for words in lines] == [str(q) for q in np.repeat(ours.queries, [
        int((qid == q).sum()) for q in ours.queries
    ])]  # fmt: skip


def test_our_own_evaluation_of_a_run_is_that_of_the_model(files, tmp_path, run):
    for name in ("m", "two"):
        out = tmp_path / f"{name}.run"
        run("predict", files / f"{name}.model", files / "test.txt", "--format", "trec", "--out", out)
        by_run = run("evaluate", files / "test.txt", "--run", out, "--json", "-")
        by_model = run("evaluate", files / "test.txt", "--model", files / f"{name}.model", "--json", "-")
        assert json.loads(by_run.out)["metrics"] == json.loads(by_model.out)["metrics"]


def test_rows_without_docid_are_numbered_within_their_query(files, tmp_path, run):
    X, y, qid, _ = tied()
    (tmp_path / "d.txt").write_text(letor(X, y, qid))
    join = ["--split-queries", "join"]
    done = run("predict", files / "m.model", tmp_path / "d.txt", "--format", "trec", *join)
    named: dict[str, set[str]] = {}
    for line in done.out.splitlines():
        q, _, document, *_ = line.split()
        named.setdefault(q, set()).add(document)
    assert named == {str(q): {str(i + 1) for i in range((qid == q).sum())} for q in set(qid.tolist())}
    out = tmp_path / "d.run"
    out.write_text(done.out)
    by_run = run("evaluate", tmp_path / "d.txt", "--run", out, "--json", "-", *join)
    by_model = run("evaluate", tmp_path / "d.txt", "--model", files / "m.model", "--json", "-", *join)
    assert json.loads(by_run.out)["metrics"] == json.loads(by_model.out)["metrics"]


def test_a_query_in_two_places_is_refused_unless_it_is_joined(files, tmp_path, run):
    text, out = tmp_path / "d.txt", tmp_path / "d.queries"
    text.write_text("1 qid:1 1:1 2:0 3:2\n0 qid:2 1:1\n0 qid:1 1:3\n")
    places = f"the query 1 occurs in two places, {text}:1 and {text}:3. If they are one query, give"
    predict, convert = ("predict", files / "m.model", text), ("convert", text, "-o", out)
    for command in (predict, convert):
        done = run(*command)
        assert (done.status, done.out) == (1, "")
        assert done.error.startswith(
            f"sinkprop: {places} --split-queries join to put its documents together; if not, "
        )
        assert run(*command, "--split-queries", "join").status == 0
    small = run(*convert, "--force", "--split-queries", "join", "--join-bytes", "50")
    assert small.status == 1
    assert small.error.endswith("with `sort -s -k2,2 FILE`, or give a larger --join-bytes.\n")


def test_doubtful_columns_are_named_with_the_option_for_them(tmp_path, run):
    (tmp_path / "d.csv").write_text("qid,label,bm25,position\n1,0,0.5,1\n1,1,0.25,2\n")
    command = ("convert", tmp_path / "d.csv", "-o", tmp_path / "d.queries", "--force")
    done = run(*command)
    assert done.status == 0
    first, second = done.error.splitlines()
    assert "'position' (a position). To leave them out" in first
    assert first.endswith("name the features with --feature-columns.")
    assert second.startswith("sinkprop: note: 2 columns are features: bm25, position; to choose")
    assert run(*command, "--feature-columns", "bm25").error == ""


def test_a_docid_twice_in_a_query_is_refused_in_a_run(files, tmp_path, run):
    X, y, qid, docid = problem(seed=2)
    docid[4] = docid[2]
    (tmp_path / "d.txt").write_text(letor(X, y, qid, docid))
    done = run("predict", files / "m.model", tmp_path / "d.txt", "--format", "trec")
    assert (done.status, done.out) == (1, "")
    assert one_line(done.error)
    assert "'d1-2' occurs twice in query 1" in done.error
    assert run("predict", files / "m.model", tmp_path / "d.txt").status == 0


@given(hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(allow_nan=False, width=64)))
def test_falling_scores_fall_strictly_in_single_precision(values):
    scores = falling(values)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert (np.diff(scores.astype(np.float64)) < 0).all()
    texts = scores.astype(str)
    np.testing.assert_array_equal(texts.astype(np.float64).astype(np.float32), scores)
    assert not ((scores != 0) & (np.abs(scores) < np.finfo(np.float32).tiny)).any()


@given(
    st.sets(
        st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda x: abs(x) > 1e-25), min_size=1, max_size=50
    )
)
def test_scores_that_fall_already_stay(values):
    scores = np.array(sorted(values, reverse=True))
    np.testing.assert_array_equal(falling(scores), scores.astype(np.float32))


# shell completion, as docs/command-line.md sets it up


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("sinkprop co", ["compare", "convert"]),
        ("sinkprop evaluate --conv", ["--convention"]),
        ("sinkprop train --convention l", ["letor", "letor4", "lightgbm"]),
    ],
)
def test_the_shell_completes(run, monkeypatch, words, completions):
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    monkeypatch.setenv("_SINKPROP_COMPLETE", "bash_complete")
    done = run()
    assert (done.status, done.error) == (0, "")
    assert [line.removeprefix("plain,") for line in done.out.split()] == completions


# evaluate


def test_evaluate_prints_what_the_library_computes(files, run):
    X, y, qid, _ = problem(seed=2)
    names = "ndcg@1-3,map,p@5,mrr"
    arguments = ["--metrics", names, "--convention", "lightgbm", "--empty", "skip", "--ties", "average"]
    done = run("evaluate", files / "test.txt", "--feature", "2", *arguments)
    assert (done.status, done.error) == (0, "")
    expected = sinkprop.evaluate(y, X[:, 1], qid, names, "lightgbm", empty="skip", ties="average")
    printed = dict(re.findall(r"^([a-z]+(?:@\d+)?) +(\d\.\d{4})$", done.out, re.MULTILINE))
    assert printed == {name: f"{value:.4f}" for name, value in expected.items()}
    assert expected.definition() in done.out


def test_tables_say_how_many_short_queries_count_0(files, tmp_path, run):
    counts = "Queries that count 0 because they have fewer than k documents: 12 of 12 for k = 10."
    call = ("evaluate", files / "test.txt", "--feature", "1")
    assert counts in run(*call, "--convention", "letor").out
    done = run(*call)
    assert "count 0 because" not in done.out
    assert "\nstandard: gain 2^r - 1, discount 1/log2(rank + 1)" in done.out
    assert "\nndcg@10   0.0000" not in done.out
    train = ("train", files / "train.txt", "--method", "regression", "--model", tmp_path / "m.model")
    assert f"training: {counts}" in run(*train, "--convention", "letor").out
    done = run(*train)
    assert "ndcg@10, standard" in done.out
    assert "count 0 because" not in done.out
    assert sinkprop.load_model(tmp_path / "m.model").convention == "standard"


def test_evaluate_in_json_and_csv_for_each_query(files, tmp_path, run):
    X, y, qid, _ = problem(seed=2)
    table, record_file = tmp_path / "q.csv", tmp_path / "q.json"
    arguments = ["--metrics", "ndcg@5,p@2", "--per-query", "--csv", table, "--json", record_file]
    done = run("evaluate", files / "test.txt", "--feature", "1", *arguments)
    assert (done.status, done.error) == (0, "")
    expected = sinkprop.evaluate(y, X[:, 0], qid, "ndcg@5,p@2")
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [row["query"] for row in rows] == [str(q) for q in expected.queries]
    for name, values in expected.per_query.items():
        assert [float(row[name]) for row in rows] == values.tolist()
    record = json.loads(record_file.read_text())
    assert record["metrics"] == dict(expected)
    assert record["description"] == expected.definition()
    assert [row["p@2"] for row in record["per_query"]] == expected.per_query["p@2"].tolist()
    shown = [line.split() for line in done.out.splitlines() if re.match(r"\d+ +\d\.|mean ", line)]
    assert len(shown) == 13
    assert shown[-1] == ["mean", *(f"{value:.4f}" for value in expected.values())]


def test_a_query_left_out_is_null_and_empty(tmp_path, run):
    (tmp_path / "d.txt").write_text("1 qid:1 1:2\n0 qid:1 1:1\n0 qid:2 1:1\n")
    table = tmp_path / "q.csv"
    done = run(
        "evaluate", tmp_path / "d.txt", "--feature", "1", "--empty", "skip", "--metrics", "mrr",
        "--per-query", "--json", "-", "--csv", table,
    )  # fmt: skip
    record = json.loads(done.out)
    assert record["per_query"] == [{"query": "1", "mrr": 1.0}, {"query": "2", "mrr": None}] or record[
        "per_query"
    ] == [{"query": 1, "mrr": 1.0}, {"query": 2, "mrr": None}]
    assert table.read_text() == "query,mrr\n1,1.0\n2,\n"


def test_evaluate_scores_of_another_program(files, tmp_path, run):
    _, y, qid, _ = problem(seed=2)
    values = np.random.default_rng(3).normal(size=len(y)).round(1)
    scores = tmp_path / "s.txt"
    scores.write_text("\r\n".join(f" {v:g}" for v in values) + "\n\n")
    done = run("evaluate", files / "test.txt", "--scores", scores, "--ties", "worst", "--json", "-")
    expected = sinkprop.evaluate(y, values, qid, "ndcg@1,ndcg@3,ndcg@5,ndcg@10,map", ties="worst")
    assert json.loads(done.out)["metrics"] == dict(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1\n2\n", "has 2 scores, but"),
        ("1\n" * 107, "has 107 scores, but"),
        ("1\n" * 109, "has 109 scores, but"),
        ("", "has 0 scores, but"),
        ("1\nnan\n", "line 2: expected a score"),
        ("1\n1e999\n", "line 2: expected a score"),
        ("1 2\n", "line 1: expected a score"),
        ("one\n", "line 1: expected a score"),
        ("\x00\x01\n", "line 1: expected a score"),
    ],
)
def test_wrong_scores(files, tmp_path, run, text, said):
    scores = tmp_path / "s.txt"
    scores.write_text(text)
    done = run("evaluate", files / "test.txt", "--scores", scores)
    assert (done.status, done.out) == (1, "")
    assert one_line(done.error)
    assert said in done.error
    assert "s.txt" in done.error


def test_a_run_that_leaves_documents_out(files, tmp_path, run):
    _, y, qid, docid = problem(seed=2)
    values = np.random.default_rng(4).normal(size=len(y))
    kept = np.arange(len(y)) % 3 != 1
    (tmp_path / "part.run").write_text(
        "".join(f"{qid[i]} Q0 {docid[i]} 1 {float(values[i])!r} x\n" for i in np.flatnonzero(kept))
    )
    done = run("evaluate", files / "test.txt", "--run", tmp_path / "part.run", "--json", "-")
    assert done.status == 0
    assert one_line(done.error)
    assert "36 of 108 rows are not in" in done.error
    expected = sinkprop.evaluate(y, np.where(kept, values, -1e9), qid, "ndcg@1,ndcg@3,ndcg@5,ndcg@10,map")
    assert json.loads(done.out)["metrics"] == dict(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the run is empty"),
        ("1 Q0 d1-0 1 0.5\n", "line 1: expected six words"),
        ("1 Q0 d1-0 1 0.5 x\n1 Q0 other 2 0.4 x\n", "line 2: "),
        ("99 Q0 d1-0 1 0.5 x\n", "no document 'd1-0' of query '99'"),
        ("1 Q0 d1-0 1 0.5 x\n1 Q0 d1-0 2 0.4 x\n", "line 2: document 'd1-0' of query '1' occurs twice"),
        ("1 Q0 d1-0 1 nan x\n", "line 1: expected a finite number as the score; got 'nan'"),
    ],
)
def test_wrong_runs(files, tmp_path, run, text, said):
    (tmp_path / "x.run").write_text(text)
    done = run("evaluate", files / "test.txt", "--run", tmp_path / "x.run")
    assert (done.status, done.out) == (1, "")
    assert one_line(done.error)
    assert said in done.error


# Parquet


def parquet(path, names, data):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    import pyarrow.parquet as pq

    X, y, qid, docid = data
    columns = {"qid": qid, "label": y, "docid": docid, **dict(zip(names, X.T, strict=True))}
    pq.write_table(pa.table(columns), path)


def test_parquet_columns_are_matched_by_name(files, tmp_path, run):
    X, y, qid, docid = problem()
    parquet(tmp_path / "train.parquet", ["bm25", "len", "pr"], (X, y, qid, docid))
    order = [2, 0, 1]
    parquet(tmp_path / "test.parquet", ["pr", "bm25", "len"], (X[:, order], y, qid, docid))
    model = tmp_path / "m.model"
    done = run("train", tmp_path / "train.parquet", "--model", model, *FAST)
    note = "sinkprop: note: 3 columns are features: bm25, len, pr; to choose the features, give "
    assert (done.status, done.error) == (0, f"{note}--feature-columns.\n")
    assert "3 features" in done.out
    same = run("predict", model, tmp_path / "train.parquet")
    assert same.status == 0
    assert run("predict", model, tmp_path / "test.parquet") == same
    # text has no names: there the number decides
    assert run("predict", model, files / "train.txt").out == same.out
    done = run("evaluate", tmp_path / "test.parquet", "--feature", "bm25", "--json", "-")
    expected = sinkprop.evaluate(y, X[:, 0], qid, "ndcg@1,ndcg@3,ndcg@5,ndcg@10,map")
    assert json.loads(done.out)["metrics"] == dict(expected)
    done = run("predict", model, tmp_path / "test.parquet", "--format", "trec")
    assert {line.split()[2] for line in done.out.splitlines()} == set(docid)


def test_parquet_with_other_columns_is_refused(tmp_path, run):
    data = problem()
    parquet(tmp_path / "train.parquet", ["bm25", "len", "pr"], data)
    parquet(tmp_path / "test.parquet", ["bm25", "len", "age"], data)
    model = tmp_path / "m.model"
    assert run("train", tmp_path / "train.parquet", "--model", model, "--method", "regression").status == 0
    for arguments in (["predict", model], ["evaluate", "--model", model]):
        done = run(*arguments, tmp_path / "test.parquet")
        assert (done.status, done.out) == (1, "")
        assert one_line(done.error)
        assert "missing 'pr'; unexpected 'age'" in done.error
    done = run("predict", model, tmp_path / "test.parquet", "--n-features", "3")
    assert done.status == 2
    assert "--n-features applies only to LETOR text" in done.error


def test_feature_columns_leave_the_others_out(tmp_path, run):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    import pyarrow.parquet as pq

    X, y, qid, docid = problem()
    columns = {"qid": qid, "label": y, "title": docid, "bm25": X[:, 0], "shop": docid, "len": X[:, 1]}
    path, model = tmp_path / "train.parquet", tmp_path / "m.model"
    pq.write_table(pa.table(columns), path)
    train = ["train", path, "--model", model, "--method", "regression"]
    done = run(*train)
    assert done.status == 1
    assert "column 'title' must hold numbers" in done.error
    assert "Leave it out with --feature-columns, encode" in done.error
    done = run(*train, "--feature-columns", "bm25,lne")
    assert done.status == 1
    assert "--feature-columns 'lne' is not a column of the frame. Did you mean 'len'? It has" in done.error
    chosen = ["--feature-columns", "len, bm25"]
    assert run(*train, *chosen).status == 0
    expected = RegressionRanker().fit(X[:, [1, 0]], y, qid=qid).predict(X[:, [1, 0]])
    done = run("predict", model, path, *chosen)
    np.testing.assert_allclose(np.array(done.out.split(), float), expected, rtol=1e-12)
    done = run("predict", model, path, "--feature-columns", "len,bm25,label", "--label-column", "bm25")
    assert done.status == 1
    (tmp_path / "train.txt").write_text("1 qid:1 1:1\n")
    done = run("train", tmp_path / "train.txt", "--model", model, *chosen)
    assert done.status == 2
    assert "--feature-columns applies only to Parquet" in done.error


def test_predict_takes_parquet_without_labels(tmp_path, run):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    import pyarrow.parquet as pq

    X, y, qid, docid = problem()
    parquet(tmp_path / "train.parquet", ["bm25", "len", "pr"], (X, y, qid, docid))
    new = {"qid": qid, "docid": docid, "bm25": X[:, 0], "len": X[:, 1], "pr": X[:, 2]}
    pq.write_table(pa.table(new), tmp_path / "new.parquet")
    pq.write_table(pa.table({**new, "age": X[:, 2]}), tmp_path / "more.parquet")
    model = tmp_path / "m.model"
    assert run("train", tmp_path / "train.parquet", "--model", model, "--method", "regression").status == 0
    for form in ("scores", "ranks", "trec"):
        labeled = run("predict", model, tmp_path / "train.parquet", "--format", form)
        assert labeled.status == 0
        assert run("predict", model, tmp_path / "new.parquet", "--format", form) == labeled
    done = run("predict", model, tmp_path / "more.parquet")
    assert done.status == 1
    assert "unexpected 'age'. Select features with --feature-columns." in done.error
    done = run("evaluate", tmp_path / "new.parquet", "--model", model)  # there labels are the point
    assert done.status == 1
    assert "--label-column 'label' is not a column" in done.error


def test_a_model_in_the_place_of_data_is_called_one(files, tmp_path, run):
    model = tmp_path / "m.model"
    assert run("train", files / "train.txt", "--model", model, "--method", "regression").status == 0
    done = run("predict", files / "train.txt", model)
    assert (done.status, done.out) == (2, "")
    assert f"MODEL comes first, then DATA, but '{model}' is a model." in done.error
    done = run("predict", files / "train.txt", files / "train.txt")
    assert done.status == 1
    assert "is not a sinkprop model" in done.error
    done = run("evaluate", model, "--model", model)
    assert done.status == 1
    assert "The file is a model that sinkprop saved, not data." in done.error


# what is wrong with data

GOOD = "1 qid:1 1:0.5 2:1 3:2\n0 qid:1 1:0.1 2:2 3:2\n"
BAD = {
    "empty": b"",
    "only blank lines and comments": b"\n\n# nothing\n",
    "cut off within gzip": gzip.compress(GOOD.encode() * 50)[:-20],
    "cut off after a colon": (GOOD + "1 qid:2 1:0.5 2:").encode(),
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "random bytes": np.random.default_rng(0).bytes(4000),
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00",
    "a qid that is no number or name": (GOOD + "1 qid:-2 1:0.5 2:1 3:2\n").encode(),
    "a qid that is missing": (GOOD + "1 1:0.5 2:1 3:2\n").encode(),
    "a qid that is empty": (GOOD + "1 qid: 1:0.5 2:1 3:2\n").encode(),
    "a feature id twice": (GOOD + "1 qid:2 1:0.5 2:1 2:2\n").encode(),
    "feature ids out of order": (GOOD + "1 qid:2 2:0.5 1:1 3:2\n").encode(),
    "inf": (GOOD + "1 qid:2 1:0.5 2:inf 3:2\n").encode(),
    "infinity": (GOOD + "1 qid:2 1:0.5 2:-inf 3:2\n").encode(),
    "1e999": (GOOD + "1 qid:2 1:0.5 2:1e999 3:2\n").encode(),
    "a label that is nan": (GOOD + "nan qid:2 1:0.5 2:1 3:2\n").encode(),
    "a label below 0": (GOOD + "-1 qid:2 1:0.5 2:1 3:2\n").encode(),
    "a million features on a line": (
        GOOD + "1 qid:2 " + " ".join(f"{i}:1" for i in range(1, 1_000_001)) + "\n"
    ).encode(),
    "a feature id past all memory": (GOOD + "1 qid:2 1:1 99999999999999:1\n").encode(),
    "another program's text": b"<html><body>404</body></html>\n",
}


@pytest.mark.parametrize("command", ["train", "vali", "predict", "evaluate"])
@pytest.mark.parametrize("what", list(BAD))
def test_bad_data_is_one_line_and_nothing_changes(files, tmp_path, run, what, command):
    data, out, record = tmp_path / "bad.txt", tmp_path / "out.model", tmp_path / "out.json"
    data.write_bytes(BAD[what])
    out.write_text("what was there")
    record.write_text("{}")
    arguments = {
        "train": ["train", data, "--model", out, "--json", record],
        "vali": ["train", files / "train.txt", "--vali", data, "--model", out, "--json", record],
        "predict": ["predict", files / "m.model", data, "--out", out],
        "evaluate": ["evaluate", data, "--model", files / "m.model", "--json", record, "--csv", out],
    }[command]
    before, shared = snapshot(tmp_path), snapshot(files)
    done = run(*arguments)
    assert (done.status, done.out) == (1, "")
    assert one_line(done.error)
    assert len(done.error) < 1000
    assert "bad.txt" in done.error
    assert "bug" not in done.error
    assert snapshot(tmp_path) == before
    assert snapshot(files) == shared


@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
def test_bad_data_from_a_shell(files, tmp_path, warm, command):
    data = tmp_path / "bad.txt"
    data.write_bytes(BAD["a feature id twice"])
    arguments = {
        "train": ["train", data, "--model", tmp_path / "m"],
        "predict": ["predict", files / "m.model", data],
        "evaluate": ["evaluate", data, "--feature", "1"],
    }[command]
    done = shell(*arguments) if command == "train" else warm.run(PROGRAM, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
    assert "bad.txt, line 3" in done.stderr
    assert "there twice" in done.stderr


@pytest.mark.parametrize("n_features", [2, 4])
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_model_of_other_features(files, tmp_path, run, n_features, command):
    X, y, qid, _ = problem(n_features=n_features)
    data, out = tmp_path / "d.txt", tmp_path / "out"
    data.write_text(letor(X, y, qid))
    out.write_text("what was there")
    before = snapshot(tmp_path)
    arguments = {
        "predict": ["predict", files / "m.model", data, "--out", out],
        "evaluate": ["evaluate", data, "--model", files / "m.model", "--csv", out],
    }[command]
    done = run(*arguments)
    assert (done.status, done.out) == (1, "")
    assert one_line(done.error)
    assert f"m.model was trained on 3 features, but {data} has {n_features}" in done.error
    assert ("--n-features 3" in done.error) is (n_features == 2)
    assert snapshot(tmp_path) == before
    if n_features == 2:  # lines that leave out what is 0
        assert run(*arguments, "--n-features", "3").status == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\x80\x04pickled", "not a sinkprop model"),
        ("changed", "is damaged"),
        ("cut", "is damaged"),
    ],
)
def test_a_file_that_is_no_model(files, tmp_path, run, content, said):
    model, out = tmp_path / "x.model", tmp_path / "out"
    whole = (files / "m.model").read_bytes()
    if content == "changed":
        content = whole.replace(b'"n_features": 3', b'"n_features": 4')
    elif content == "cut":
        content = whole[:-100]
    model.write_bytes(content)
    out.write_text("what was there")
    before = snapshot(tmp_path)
    for arguments in (
        ["predict", model, files / "test.txt", "--out", out],
        ["evaluate", files / "test.txt", "--model", model, "--csv", out],
    ):
        done = run(*arguments)
        assert (done.status, done.out) == (1, "")
        assert one_line(done.error)
        assert said in done.error
        assert "x.model" in done.error
        assert snapshot(tmp_path) == before


# wrong use


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "TRAIN"], "Missing option '--model'"),
        (["train", "TRAIN", "--model", "no/folder/m"], "there is no folder 'no/folder'"),
        (["train", "TRAIN", "--model", "-"], "'-' must be a file"),
        (["train", "TRAIN", "--model", "/dev/null"], "'/dev/null' must be a file"),
        (["train", "TRAIN", "--model", "new", "--checkpoint", "/dev/null"], "'/dev/null' must be a file"),
        (["train", "TRAIN", "--model", "TRAIN"], "--model and TRAIN are the same file"),
        (["train", "TRAIN", "--model", "LINK"], "--model and TRAIN are the same file"),
        (["train", "TRAIN", "--vali", "TEST", "--model", "TEST"], "--model and --vali are the same file"),
        (["train", "TRAIN", "--model", "new", "--json", "new"], "--json and --model are the same file"),
        (["train", "TRAIN", "--model", "new", "--checkpoint", "TRAIN"], "--checkpoint and TRAIN"),
        (["train", "TRAIN", "--model", "new", "--gain", "mdcg"], "gain 'mdcg' is not known"),
        (["train", "TRAIN", "--model", "new", "--metric", "ndgc@10"], "Did you mean 'ndcg@10'"),
        (["train", "TRAIN", "--model", "new", "--criterion", "p"], "p needs a cutoff"),
        (["train", "TRAIN", "--model", "new", "--penalty", "1e-3,x"], "'x' is not a penalty"),
        (["train", "TRAIN", "--model", "new", "--penalty", "-1"], "'-1' is not a penalty"),
        (["train", "TRAIN", "--model", "new", "--penalty", "nan"], "'nan' is not a penalty"),
        (["train", "TRAIN", "--model", "new", "--n-iter", "limit"], "'converged' or a form such as"),
        (["train", "TRAIN", "--model", "new", "--n-iter", "-1"], "n_iter must be a number of iterations"),
        (["train", "TRAIN", "--model", "new", "--method", "auto", "--n-iter", "3"], "--n-iter"),
        (["train", "TRAIN", "--model", "new", "--threads", "0"], "--threads"),
        (["train", "TRAIN", "--model", "new", "--relaxation", "cauchy"], "--relaxation"),
        (["train", "TRAIN", "--model", "new", "--vali-group", "TEST"], "--vali-group requires --vali"),
        (
            ["train", "TRAIN", "--model", "new", "--docid-column", "d"],
            "--docid-column applies only to Parquet",
        ),
        (
            ["train", "TRAIN", "--model", "new", "--method", "regression", "--gain", "ndcg"],
            "--gain applies only to --method sinkprop",
        ),
        (["train", "absent", "--model", "new"], "'absent' does not exist"),
        (["predict", "MODEL", "absent"], "'absent' does not exist"),
        (["predict", "MODEL", "TEST", "--out", "TEST"], "--out and DATA are the same file"),
        (["predict", "MODEL", "TEST", "--out", "MODEL"], "--out and MODEL are the same file"),
        (["predict", "MODEL", "TEST", "--run-name", "two words"], "'two words' is not a single word"),
        (["predict", "MODEL", "TEST", "--format", "csv"], "--format"),
        (["evaluate", "TEST"], "got none of them"),
        (["evaluate", "TEST", "--model", "MODEL", "--feature", "1", "--calibration"], "got 2 systems"),
        (["evaluate", "TEST", "--feature", "1", "--feature", "1"], "--feature '1' is given twice"),
        (["evaluate", "TEST", "--feature", "1", "--csv", "TEST"], "--csv and DATA are the same file"),
        (["evaluate", "TEST", "--feature", "1", "--csv", "-", "--json", "-"], "--csv and --json are"),
        (["evaluate", "TEST", "--feature", "1", "--metrics", "ndcg@"], "ndcg@"),
        (["evaluate", "TEST", "--feature", "1", "--convention", "ours"], "--convention"),
        (["evaluate", "-", "--scores", "-"], "cannot both be stdin"),
    ],
)
def test_wrong_use_is_one_line_and_2_before_any_work(files, tmp_path, monkeypatch, run, arguments, said):
    for name in ("train.txt", "test.txt", "m.model"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    (tmp_path / "link").symlink_to(tmp_path / "train.txt")
    names = {"TRAIN": "train.txt", "TEST": "test.txt", "MODEL": "m.model", "LINK": "link"}
    monkeypatch.chdir(tmp_path)
    before = snapshot(tmp_path)
    done = run(*(names.get(a, a) for a in arguments))
    assert (done.status, done.out) == (2, "")
    assert one_line(done.error)
    assert said in done.error
    assert "--help" in done.error
    assert snapshot(tmp_path) == before


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_cannot_be_written(files, tmp_path, run):
    (tmp_path / "closed").mkdir(mode=0o500)
    done = run("train", files / "train.txt", "--model", tmp_path / "closed" / "m")
    assert done.status == 2
    assert "cannot be written" in done.error


@pytest.mark.parametrize("feature", ["0", "4", "-1", "x", "1.0", "²"])
def test_a_feature_that_is_not_there(files, run, feature):
    done = run("evaluate", files / "test.txt", f"--feature={feature}")
    assert (done.status, done.out) == (1, "")
    assert one_line(done.error)
    assert "has the features 1 to 3" in done.error


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, run, monkeypatch):
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    done = run("evaluate", tmp_path / "d.parquet", "--feature", "1")
    assert (done.status, done.out) == (2, "")
    assert one_line(done.error)
    assert 'pip install "sinkprop[parquet]"' in done.error


def test_a_defect_is_one_line_too(files, run, monkeypatch):
    def broken(*arguments, **options):
        raise KeyError("no such thing")

    monkeypatch.setattr("sinkprop.cli.evaluation.systems.evaluate", broken)
    monkeypatch.delenv("SINKPROP_TRACEBACK", raising=False)
    done = run("evaluate", files / "test.txt", "--feature", "1")
    assert (done.status, done.out) == (1, "")
    assert one_line(done.error)
    assert "please report it: KeyError" in done.error
    monkeypatch.setenv("SINKPROP_TRACEBACK", "1")
    with pytest.raises(KeyError):
        cli.main(["evaluate", str(files / "test.txt"), "--feature", "1"])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_full_disk_is_one_line(files, command):
    arguments = {
        "predict": ["predict", files / "m.model", files / "test.txt"],
        "evaluate": ["evaluate", files / "test.txt", "--feature", "1"],
    }[command]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *map(str, arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "No space left" in done.stderr


def test_commands_are_made_without_scikit_learn():
    code = "import sys; from sinkprop.cli import program; program(); print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert isinstance(cli.program(), click.Group)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="shell scripts")
def test_the_examples_of_the_documentation_run(tmp_path, warm):
    """docs/command-line.md, block after block in one folder, without the demonstration, which has its own."""
    page = ROOT / "docs" / "command-line.md"
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 8
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, text in (("python", warm.shim("", takes_code=True)), ("sinkprop", warm.shim(PROGRAM))):
        shim = shims / name
        shim.write_text(text)
        shim.chmod(0o755)
    script = "".join(block for block in blocks if "sinkprop demo" not in block)
    first = "--vali pydocs/Fold1/vali.txt --model my.model\n"
    assert script.count(first) == 1
    # cross-validation, the default, takes six times as long, and has tests of its own
    script = script.replace(first, first.replace("\n", " --selection validation\n"))
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{shims}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "still rose when the 100 trees" not in line]
    assert (done.returncode, said) == (0, [])
    models = ("my.model", "p5.model", "ls.model", "trees.model", "fast.model")
    pages, exports = ("my-model.html", "both.html"), ("my.onnx", "model.json", "features.json")
    for name in (*models, *pages, *exports, "test.run", "my.run", "scores.txt"):
        assert (tmp_path / name).stat().st_size > 0
    assert not (tmp_path / "fast.check").exists()
    assert json.loads((tmp_path / "p5.json").read_text())["metrics"].keys() == {"p@5"}
