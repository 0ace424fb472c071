"""The demonstration: what it computes, from small folds, and what the command shows and leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from warm import PROGRAM

import sinkprop
from sinkprop.cli import demonstration as demo
from sinkprop.cli.demo import FIGURE, MODEL, REPORT
from sinkprop.cli.demonstration_figure import draw_demonstration
from sinkprop.data import Fold, Queries
from sinkprop.linear.annealed import PATH


def queries(n_queries, seed, n=12):
    rng = np.random.default_rng(seed)
    X = rng.lognormal(size=(n_queries * n, 3))  # a long tail, which least squares runs after
    y = np.digitize(np.log(X) @ [2, 1, 0] + rng.normal(size=len(X)), [1.0, 3.0])
    qid = np.repeat(1000 * seed + np.arange(n_queries), n)
    docid = np.array([f"module.d{seed}-{i}" for i in range(len(X))])
    return Queries(X, y, qid, docid, ("length", "whole_bm25", "depth"))


@pytest.fixture(scope="module")
def tested():
    return [
        demo.run_fold(Fold(f"Fold{f}", queries(9, 10 * f), queries(5, 10 * f + 1), queries(6, 10 * f + 2)))
        for f in (1, 2)
    ]


def test_a_fold_is_trained_by_the_public_estimator(tested):
    fold = tested[0].fold
    direct = sinkprop.SinkPropRanker(verbose=False)
    direct.fit(
        fold.train.X,
        fold.train.y,
        qid=fold.train.qid,
        eval_set=[(fold.vali.X, fold.vali.y)],
        eval_qid=[fold.vali.qid],
    )
    assert type(tested[0].ranker) is sinkprop.SinkPropRanker
    np.testing.assert_array_equal(tested[0].ranker.coef_, direct.coef_)
    np.testing.assert_array_equal(tested[0].scores["SinkProp"], direct.predict(fold.test.X))
    np.testing.assert_array_equal(tested[0].scores["BM25"], fold.test.X[:, 1])


def test_every_stage_is_reported_as_it_is_finished():
    fold, seen = Fold("F", queries(6, 1), queries(4, 2), queries(4, 3)), []
    trained = demo.run_fold(fold, seen.append)
    # what is known only at the end, the error, the choice and the share, aside
    last = {"criterion": 0, "standard_error": 0, "chosen": False, "share": 0}
    stages = trained.ranker.fit_result_.stages
    assert [replace(s, **last) for s in seen] == [replace(s, **last) for s in stages]
    assert [s.criterion for s in seen] == pytest.approx([s.criterion for s in stages], rel=1e-12)
    assert seen[0].penalty == np.inf
    assert tuple(s.penalty for s in seen[1:]) == PATH[: len(seen) - 1]


def test_an_interrupt_ends_the_fold():
    def stop(stage):
        if stage.penalty == PATH[0]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.run_fold(Fold("F", queries(6, 1), queries(4, 2), queries(4, 3)), stop)


def test_means_are_over_all_queries_of_all_folds(tested):
    results = demo.compare(tested)
    assert results.n_queries == 12
    for method in demo.METHODS:
        for name in ("ndcg@1", "ndcg@10", "map"):
            values = [
                sinkprop.evaluate(t.fold.test.y, t.scores[method], t.fold.test.qid, name)[name]
                for t in tested
            ]
            assert results.means[method][name] == pytest.approx(np.mean(values), abs=1e-12)


def test_the_paired_test_is_scipys(tested):
    stats = pytest.importorskip("scipy.stats")
    per_query = {
        method: np.concatenate(
            [
                sinkprop.evaluate(t.fold.test.y, t.scores[method], t.fold.test.qid).per_query["ndcg@10"]
                for t in tested
            ]
        )
        for method in demo.METHODS
    }
    for d in demo.compare(tested).differences:
        theirs = stats.ttest_rel(per_query[d.above], per_query[d.below])
        assert d.p == pytest.approx(theirs.pvalue, rel=1e-9)
        gain = per_query[d.above] - per_query[d.below]
        assert d.mean == pytest.approx(gain.mean(), abs=1e-12)
        interval = stats.bootstrap((gain,), np.mean, method="percentile", rng=1).confidence_interval
        width = interval.high - interval.low
        assert (d.low, d.high) == pytest.approx((interval.low, interval.high), abs=0.25 * width)


def test_examples_are_the_largest_gain_the_mean_one_and_the_largest_loss(tested):
    results = demo.compare(tested, top=3)
    gain, place = [], []
    for t in tested:
        before, after = (
            sinkprop.evaluate(t.fold.test.y, t.scores[m], t.fold.test.qid).per_query["ndcg@10"]
            for m in ("BM25", "SinkProp")
        )
        gain += (after - before).tolist()
        place += t.fold.test.groups.queries.tolist()
    shown = [example.query for example in results.examples]
    assert shown[0] == place[int(np.argmax(gain))]
    assert shown[-1] == place[int(np.argmin(gain))]
    if len(shown) == 3:
        assert shown[1] == place[int(np.argmin(np.abs(np.array(gain) - np.mean(gain))))]
    for example in results.examples:
        t = next(t for t in tested if example.query in t.fold.test.qid)
        rows = np.flatnonzero(t.fold.test.qid == example.query)
        for found, method in ((example.before, "BM25"), (example.after, "SinkProp")):
            best = rows[np.argsort(-t.scores[method][rows], kind="stable")][:3]
            assert found == tuple((str(t.fold.test.docid[i]), float(t.fold.test.y[i])) for i in best)


def test_a_fold_without_bm25_is_refused(tested):
    part = tested[0].fold.test
    unnamed = Queries(part.X, part.y, part.qid, part.docid)
    with pytest.raises(ValueError, match="whole_bm25"):
        demo.bm25_column(unnamed)


def test_the_figure_is_drawn_whole(tested, tmp_path):
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "figure.png"
    draw_demonstration(tested[0], demo.compare(tested), path, tested_on="12 queries")
    pixels = image.imread(path)
    assert pixels.shape[0] > 600
    assert pixels.shape[1] > 1500
    for half in np.array_split(pixels[..., :3], 2, axis=1):
        assert half.std() > 0.02


# the command


@pytest.fixture(scope="module")
def shown(tmp_path_factory, warm):
    """One run of one fold, piped."""
    folder = tmp_path_factory.mktemp("demo")
    arguments = ["demo", "--fold", "2", "--out", folder / "new", "--json", folder / "d.json"]
    done = warm.run(PROGRAM, *arguments, env={"TERM": "xterm-256color", "COLUMNS": "60"})
    assert (done.returncode, done.stderr) == (0, "")
    return folder, done.stdout


def test_piped_output_is_plain_and_whole(shown):
    folder, out = shown
    assert "\x1b" not in out
    for line in (
        "Training on Fold2",
        "ridge regression",
        "share of the model",
        "Test results: means over 32 queries of Fold2",
        "The query that gained most",
        "The query whose change is closest to the mean change",
        "Labels: ** the entry answers the query, * it helps.",
        f"Saved {folder / 'new' / MODEL}, the model of Fold2",
        "Next",
    ):
        assert line in out
    assert not re.search(r"[.\u2026]{2,}", out)


def test_the_numbers_shown_are_those_of_the_saved_model(shown):
    folder, out = shown
    test = sinkprop.datasets.load_pydocs(2).test
    ranker = sinkprop.load_model(folder / "new" / MODEL)
    result = sinkprop.evaluate(test, ranker.predict(test), metrics="ndcg@1,ndcg@3,ndcg@5,ndcg@10,map")
    table = [line.split() for line in out.splitlines() if line.startswith("SinkProp ")]
    assert ["SinkProp", *(f"{value:.4f}" for value in result.values())] in table
    record = json.loads((folder / "d.json").read_text("utf-8"))
    assert record["means"]["SinkProp"]["ndcg@10"] == pytest.approx(result["ndcg@10"], abs=1e-12)
    bm25 = test.X[:, test.feature_names.index("whole_bm25")]
    expected = sinkprop.evaluate(test.y, bm25, test.qid, "map")["map"]
    assert record["means"]["BM25"]["map"] == pytest.approx(expected, abs=1e-12)
    assert record["means"]["SinkProp"]["ndcg@10"] > record["means"]["BM25"]["ndcg@10"]
    texts = sinkprop.datasets.pydocs_queries()
    for example in record["examples"]:
        assert example["text"] == texts[example["query"]]
        assert f'"{example["text"]}"' in out
        assert len(example["before"]) == len(example["after"]) == 5
        for document, _ in example["after"]:
            assert document in out


def test_model_figure_and_report_are_left_and_nothing_else(shown):
    folder = shown[0] / "new"
    image = pytest.importorskip("matplotlib.image")
    assert sorted(path.name for path in folder.iterdir()) == sorted([MODEL, FIGURE, REPORT])
    assert image.imread(folder / FIGURE).shape[1] > 1500


def test_the_lines_of_python_at_the_end_run(shown, tmp_path, warm):
    lines = re.search(r"data to files:\n((?:  .*\n)+)", shown[1])[1]
    code = "\n".join(line.strip() for line in lines.splitlines())
    done = warm.run(f"import warnings\nwarnings.simplefilter('error')\n{code}", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for path in re.findall(r"pydocs/\S+\.txt", shown[1]):
        assert (tmp_path / path).is_file()


@pytest.mark.slow
def test_all_folds_on_a_terminal_in_ascii(tmp_path):
    """In a real pseudo-terminal, 60 columns wide, the grid fills and nothing is wider than the terminal."""
    pty = pytest.importorskip("pty", reason="pseudo-terminals")
    import fcntl
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 60, 0, 0))
    environment = os.environ | {"TERM": "xterm", "PYTHONIOENCODING": "ascii"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "demo", "--no-figure", "--out", str(tmp_path)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
    )
    os.close(follower)
    data = b""
    with contextlib.suppress(OSError):  # Linux's word for the end
        while block := os.read(leader, 65536):
            data += block
    os.close(leader)
    assert process.wait(timeout=60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode("ascii"))
    text = re.sub(r"[\r\n]+", "\n", text)
    assert "Traceback" not in text
    assert max(map(len, text.splitlines())) <= 60
    for fold in range(1, 6):
        assert f"Training Fold{fold}: penalty" in text
        assert re.search(rf"^Fold{fold} +0\.\d+ +0\.\d+ +0\.\d+", text, re.MULTILINE)
    assert "160 queries of 5 folds" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([MODEL, REPORT])


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_is_130_and_leaves_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "demo", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # the data is read, training begins
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_without_matplotlib_it_says_how_to_get_it(tmp_path, warm):
    hide = "import sys; assert 'matplotlib' not in sys.modules; sys.modules['matplotlib'] = None; "
    done = warm.run(hide + PROGRAM, "demo", "--fold", "1", "--out", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'pip install "sinkprop[plot]"' in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([MODEL, REPORT])


@pytest.mark.slow
def test_json_alone_on_stdout(tmp_path, warm):
    done = warm.run(PROGRAM, "demo", "--fold", "3", "--no-figure", "--out", tmp_path, "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    assert record["queries"] == 32
    assert record["figure"] is None
    assert [fold["name"] for fold in record["folds"]] == ["Fold3"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "no/such/folder"], "there is no folder"),
        (["--out", "file"], "is a file"),
        (["--fold", "6"], "--fold"),
        (["--quick"], "--quick"),
    ],
)
def test_wrong_use(tmp_path, monkeypatch, capfd, arguments, said):
    from sinkprop.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as exit_:
        main(["demo", *arguments])
    out, error = capfd.readouterr()
    assert (exit_.value.code, out, error.count("\n")) == (2, "", 1)
    assert said in error
