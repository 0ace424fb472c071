"""`sinkprop compare`: what it prints and writes, and how it fails, which harms nothing that exists."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from fold_folders import OLD, contents, letor_text, write_data_set, write_fold
from warm import PROGRAM

from sinkprop import cli
from sinkprop.experiment import METHODS, Comparison, compare, find_data_sets, published_rows
from sinkprop.experiment.tables import print_comparison

DASH = "\N{EN DASH}"
CHEAP = "regression,feature:1,feature:3"


@pytest.fixture
def ohsumed(tmp_path):
    return write_data_set(tmp_path / "OHSUMED" / "QueryLevelNorm", n_folds=3)


def invoke(*arguments):
    return CliRunner().invoke(cli.program(), ["compare", *map(str, arguments)])


def run(*arguments, **environment):
    """The program as a user's shell runs it, with both outputs piped."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "compare", *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def failure(capsys, *arguments):
    """Exit code and the one line on stderr."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(["compare", *map(str, arguments)])
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("sinkprop: ")
    assert error.count("\n") == 1
    return exit_.value.code, error


def table(output, title):
    """The rows of the first table under a title that begins like this, {name: cells}."""
    lines = output.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    rows = {}
    for line in lines[start + 3 :]:
        if not line.strip():
            break
        name, *cells = re.split(r"\s{2,}", line.strip(" ▸>"))
        rows[name] = cells
    return re.split(r"\s{2,}", lines[start + 1].strip()), rows


def test_help_teaches_by_example_and_names_the_methods():
    result = invoke("--help")
    assert result.exit_code == 0
    for option in (
        "--methods",
        "--metrics",
        "--against",
        "--folds",
        "--per-fold",
        "--plot",
        "--json",
        "--csv",
    ):
        assert option in result.output
    for name in (*METHODS, "feature:N"):
        assert name in result.output
    assert "sinkprop compare Gov/QueryLevelNorm OHSUMED --plot figure2.png" in result.output
    assert "sinkprop compare" in CliRunner().invoke(cli.program(), []).output


def test_tables_hold_the_numbers_of_the_json(ohsumed, tmp_path, warm):
    result = warm.run(
        PROGRAM,
        "compare",
        ohsumed,
        "--methods",
        CHEAP,
        "--per-fold",
        "--json",
        tmp_path / "r.json",
        "--jobs",
        1,
        env={"COLUMNS": "60", "TERM": "xterm-256color"},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert "…" not in result.stdout
    found = Comparison.from_json((tmp_path / "r.json").read_text("utf-8"))
    assert found.datasets == ("OHSUMED",)
    heads, rows = table(result.stdout, "OHSUMED: test means, 3 folds, 18 queries")
    assert heads == ["method", *found.metrics, "fit s"]
    means = found.means("OHSUMED")
    marks = {(t.method, t.metric): {1: "▲", -1: "▼", 0: ""}[t.verdict] for t in found.tests("OHSUMED")}
    for method in found.methods:
        expected = [f"{means[method][k]:.4f}{marks.get((method, k), '')}" for k in found.metrics]
        assert rows[method] == [*expected, f"{found.fit_seconds('OHSUMED', method):.2f}"]
    assert "▼" in result.stdout
    for metric in found.metrics:
        heads, rows = table(result.stdout, f"OHSUMED: {metric} by fold")
        assert heads == ["method", "Fold1", "Fold2", "Fold3", "mean"]
        for method in found.methods:
            values = [*found.fold_means("OHSUMED", method, metric).values(), means[method][metric]]
            assert rows[method] == [f"{value:.4f}" for value in values]
    _, rows = table(result.stdout, "OHSUMED: differences to regression")
    t = next(t for t in found.tests("OHSUMED") if (t.method, t.metric) == ("feature:3", "map"))
    assert rows["feature:3, map"][0].strip("▲▼") == f"{t.difference:+.4f}"
    assert rows["feature:3, map"][1] == f"{t.interval[0]:+.4f} to {t.interval[1]:+.4f}"
    ps = [t.t_test_holm, t.wilcoxon_holm, t.randomization_holm]
    assert rows["feature:3, map"][2:] == ["< .0001" if p < 0.00005 else f"{p:.4f}" for p in ps]
    low, high = found.intervals("OHSUMED")["regression"]["map"]
    assert (
        table(result.stdout, "OHSUMED: 95 % intervals")[1]["regression"][-1] == f"{low:.4f} {DASH} {high:.4f}"
    )
    assert found.describe("OHSUMED") in result.stdout
    assert "letor: gain 2^r - 1, discount 1 at ranks 1 and 2" in result.stdout


def test_published_rows_stand_beside_ours_in_order(ohsumed):
    result = invoke(ohsumed, "--methods", "regression", "--jobs", "1")
    heads, rows = table(result.output, "OHSUMED: compared with published means, sorted by ndcg@10")
    assert heads == ["method", "ndcg@3", "ndcg@5", "ndcg@10", "map"]
    assert len(rows) == len(published_rows("OHSUMED")) + 1
    assert rows["Regression"] == ["0.4426", "0.4278", "0.4110", "0.4220"]
    tens = [float(cells[2]) for cells in rows.values() if cells[2] != DASH]
    assert tens == sorted(tens, reverse=True)
    assert "▸ regression" in result.output
    assert "N. Tax (TaXxER/Afstuderen), a secondary source" in result.output
    assert "Nobody has reproduced LRUF and LARF" in result.output
    assert "means of 5 folds, not of 3" in result.output


@pytest.mark.parametrize(
    ("options", "there", "absent"),
    [
        (["--published", "smoothrank,ListNet"], "SmoothRank", "LRUF"),
        (["--published", "none"], "test means", "compared with published"),
        (["--published", "all"], "LRUF", "left out"),
        (["--convention", "standard"], "they use the convention letor", "SmoothRank"),
        (["--metrics", "p@5"], "p@5 by fold", "compared with published"),
        (["--name", "mine"], "mine: test means", "SmoothRank"),
    ],
    ids=" ".join,
)
def test_which_published_rows(ohsumed, options, there, absent):
    result = invoke(ohsumed, "--methods", "regression", "--jobs", 1, *options)
    assert result.exit_code == 0, result.output
    assert there in result.output
    assert absent not in result.output


def test_the_layouts_side_by_side(tmp_path):
    gov = tmp_path / "Gov" / "QueryLevelNorm"
    write_data_set(gov / "2003_hp_dataset", packed=".gz")
    write_data_set(gov / "2004_td_dataset", names=OLD, seed=1)
    write_data_set(tmp_path / "OHSUMED" / "QueryLevelNorm", seed=2)
    write_data_set(tmp_path / "OHSUMED" / "Feature-min", names=OLD, seed=3)
    result = invoke(tmp_path / "Gov", tmp_path / "OHSUMED", "--methods", CHEAP, "--published", "none")
    assert result.exit_code == 0, result.output
    for name in ("HP2003", "TD2004", "OHSUMED"):
        assert f"{name}: test means, 2 folds, 12 queries" in result.output
    assert "OHSUMED: used QueryLevelNorm; to use Feature-min, give its folder as DIR." in result.output


def test_files_are_written_and_agree(ohsumed, tmp_path):
    pytest.importorskip("matplotlib", reason="--plot needs the extra plot")
    files = {key: tmp_path / f"out.{key}" for key in ("json", "csv", "queries", "svg")}
    options = [f"--json={files['json']}", f"--csv={files['csv']}", f"--plot={files['svg']}"]
    files["csv"].write_text("old")
    result = invoke(ohsumed, "--methods", CHEAP, *options, f"--per-query={files['queries']}")
    assert result.exit_code == 0, result.output
    for path in files.values():
        assert f"Wrote {path}\n" in result.output
    record = json.loads(files["json"].read_text("utf-8"))
    means = {m["method"]: m["means"] for m in record["datasets"][0]["methods"]}
    with files["csv"].open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    by_key = {(r["method"], r["metric"]): float(r["value"]) for r in rows if r["fold"] == "mean"}
    for method, values in means.items():
        for metric, value in values.items():
            assert by_key[method, metric] == value
    with files["queries"].open(newline="") as handle:
        assert len(list(csv.DictReader(handle))) == 3 * 18 * 15
    assert ">OHSUMED<" in files["svg"].read_text("utf-8")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["OHSUMED", *(p.name for p in files.values())]
    )


def test_json_to_stdout_is_nothing_else(ohsumed):
    result = run(ohsumed, "--methods", "regression", "--json", "-", "--jobs", 1)
    assert (result.returncode, result.stderr) == (0, "")
    assert Comparison.from_json(result.stdout).methods == ("regression",)


def test_any_number_of_jobs_prints_the_same(ohsumed):
    one, two = (
        invoke(ohsumed, "--methods", CHEAP, "--jobs", n, "--metrics", "ndcg@1-3,map").output for n in (1, 2)
    )
    seconds = re.compile(r"\d+\.\d\d$", re.MULTILINE)  # those of the fits differ
    assert seconds.sub("", one) == seconds.sub("", two)


@pytest.mark.parametrize("width", [44, 60, 80])
def test_narrow_terminals_get_the_columns_in_several_tables(ohsumed, width):
    from rich.console import Console

    (data,) = find_data_sets(ohsumed)
    found = compare({"OHSUMED": data.folds}, CHEAP, n_jobs=1)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(width=width, record=True, file=nowhere, force_terminal=True)
        print_comparison(console, found, per_fold=True)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    heads = [word for line in lines if line.startswith(("method ", "method, ")) for word in line.split()[1:]]
    assert [heads.count(metric) for metric in ("ndcg@2", "p@3", "Fold2", "Wilcoxon")] == [1, 1, 15, 1]


def test_output_without_unicode(ohsumed, warm):
    ascii_ = {"PYTHONIOENCODING": "ascii"}
    result = warm.run(PROGRAM, "compare", ohsumed, "--methods", CHEAP, "--jobs", 1, env=ascii_)
    assert result.returncode == 0
    assert result.stdout.isascii()
    assert "> regression" in result.stdout


def test_one_fold_and_one_query(tmp_path):
    write_fold(tmp_path / "x", [letor_text(1, 6), letor_text(7, 1), letor_text(8, 1)])
    result = invoke(tmp_path / "x", "--methods", CHEAP, "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "x: test means, 1 fold, 1 queries" not in result.output
    assert "x: test means, 1 fold, 1 query" in result.output
    assert "by fold" not in result.output
    assert table(result.output, "x: differences")[1]["feature:1, map"][2] == DASH


class TestFailures:
    @pytest.fixture(autouse=True)
    def untouched(self, ohsumed, tmp_path):
        """Whatever fails, the data and a result of an earlier run stay as they were, and nothing is left."""
        self.old = tmp_path / "old.csv"
        self.old.write_text("an earlier result\n")
        self.folder = ohsumed
        yield
        assert self.old.read_text() == "an earlier result\n"
        assert list(tmp_path.rglob(".sinkprop*")) == []

    def fails(self, capsys, *options, folder=None):
        before = contents(self.folder)
        status, error = failure(capsys, folder or self.folder, "--csv", self.old, *options)
        assert contents(self.folder) == before
        return status, error

    @pytest.mark.parametrize("name", ["train.txt", "vali.txt", "test.txt"])
    def test_a_missing_file(self, capsys, name):
        (self.folder / "Fold2" / name).unlink()
        status, error = self.fails(capsys)
        assert status == 1
        assert f"{self.folder / 'Fold2'}: {name} is missing" in error

    def test_a_fold_left_out_may_lack_files(self, capsys):
        (self.folder / "Fold2" / "train.txt").unlink()
        result = invoke(self.folder, "--folds", "1,3", "--methods", "regression", "--jobs", 1)
        assert result.exit_code == 0, result.output

    def test_a_faulty_line(self, capsys):
        path = self.folder / "Fold3" / "test.txt"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines[:4], "1 qid:9 1:0.5 2:abc\n", *lines[4:]]))
        for jobs in (1, 2):
            status, error = self.fails(capsys, "--methods", "regression", "--jobs", jobs)
            assert status == 1
            assert f"{path}, line 5" in error

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_another_number_of_features(self, capsys, jobs):
        (self.folder / "Fold3" / "test.txt").write_text(letor_text(90, 2, n_features=5))
        status, error = self.fails(capsys, "--methods", "regression", "--jobs", jobs)
        assert status == 1
        assert "test.txt has 5 features, but train.txt beside it has 4" in error
        assert "--n-features" in error
        result = invoke(self.folder, "--methods", "regression", "--n-features", 5, "--jobs", jobs)
        assert result.exit_code == 0, result.output

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_a_method_that_fails(self, capsys, jobs):
        status, error = self.fails(capsys, "--methods", "regression,feature:9", "--jobs", jobs)
        assert status == 1
        assert re.search(r"feature:9 failed on OHSUMED, Fold\d: ValueError: feature must be a number", error)

    def test_no_data_set(self, capsys, tmp_path):
        (tmp_path / "empty").mkdir()
        status, error = self.fails(capsys, folder=tmp_path / "empty")
        assert (status, "no data set is here" in error) == (1, True)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--methods", "regression,sinkhorn"], "method 'sinkhorn' is not known"),
            (["--methods", "nothing"], "The methods are regression, sinkprop, sinkprop-laplace"),
            (["--methods", "regression,,sinkprop"], "method '' is not known"),
            (["--metrics", "ndgc@10"], "Did you mean 'ndcg@10'"),
            (["--convention", "trek"], "trek"),
            (["--against", "listnet"], "--against must be one of regression, sinkprop; got 'listnet'"),
            (["--folds", "one"], "'one' is not the number of a fold"),
            (["--folds", "1,0"], "'0' is not the number of a fold"),
            (["--jobs", "0"], "--jobs"),
            (["--n-features", "0"], "--n-features"),
            (["--published", "SmoothRank,Rankzilla"], "there is no result 'Rankzilla'"),
            (["--plot", "figure.gif"], "'figure.gif' must end in .png, .svg or .pdf"),
            (
                ["--plot", "figure.png", "--metrics", "ndcg@10,map"],
                "--plot needs NDCG at two or more cutoffs",
            ),
            (["--json", "no/such/folder/r.json"], "there is no folder 'no/such/folder'"),
            (["--fast"], "--fast"),
        ],
        ids=lambda x: " ".join(x) if isinstance(x, list) else "",
    )
    def test_wrong_use(self, capsys, options, said):
        status, error = self.fails(capsys, *options)
        assert status == 2
        assert said in error
        assert "See sinkprop compare --help." in error

    def test_wrong_use_of_files(self, capsys, tmp_path):
        status, error = self.fails(capsys, "--per-query", self.old)
        assert (status, "and --csv are the same file" in error) == (2, True)
        status, error = self.fails(capsys, "--json", self.folder / "Fold1" / "test.txt")
        assert (status, "are the same file" in error) == (2, True)
        status, error = self.fails(capsys, "--json", tmp_path)
        assert (status, "is a directory" in error) == (2, True)

    def test_no_such_folder_or_fold(self, capsys, tmp_path):
        status, error = failure(capsys, tmp_path / "gone")
        assert (status, "gone" in error) == (2, True)
        status, error = self.fails(capsys, "--folds", "1,7")
        assert (status, "OHSUMED has no Fold7; there is only Fold1, Fold2 and Fold3" in error) == (1, True)

    def test_a_name_for_several_sets(self, capsys, tmp_path):
        write_data_set(tmp_path / "other")
        status, error = failure(capsys, tmp_path, "--name", "mine")
        assert (status, "a name is for a single data set; there are 2" in error) == (1, True)

    @pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="rights do not bind this user")
    def test_an_output_that_may_not_be_written(self, capsys):
        self.old.chmod(0o400)
        status, error = self.fails(capsys)
        assert (status, "cannot be written" in error) == (2, True)

    @pytest.mark.parametrize("option", ["--csv", "--json", "--per-query", "--plot"])
    def test_outputs_are_checked_before_the_work(self, capsys, monkeypatch, tmp_path, option):
        monkeypatch.setattr(cli.options.os, "access", lambda *a, **k: False)
        monkeypatch.setattr("sinkprop.experiment.compare", None)  # would fail if it came to that
        status, error = failure(capsys, self.folder, option, tmp_path / "out.png")
        assert (status, f"{option[2:]}" in error, "cannot be written" in error) == (2, True, True)

    def test_a_write_that_fails_leaves_every_file(self, capsys, monkeypatch, tmp_path):
        first = tmp_path / "first.json"
        first.write_text("first")

        def full(self):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Comparison, "per_query_csv", full)
        options = ["--json", first, "--per-query", tmp_path / "q.csv", "--methods", "regression", "--jobs", 1]
        status, error = self.fails(capsys, *options)
        assert (status, "No space left on device" in error) == (1, True)
        assert first.read_text() == "first"
        assert not (tmp_path / "q.csv").exists()

    @pytest.mark.skipif(os.name == "nt", reason="signals")
    @pytest.mark.parametrize("jobs", [1, 2])
    def test_ctrl_c_is_130_without_a_traceback(self, jobs):
        for fold in (1, 2, 3):  # enough that the fits take far longer than the test
            (self.folder / f"Fold{fold}" / "train.txt").write_text(letor_text(100, 60, n_documents=200))
        code = "from sinkprop import cli; print('ready', flush=True); cli.main()"
        arguments = ["compare", str(self.folder), "--methods", "sinkprop-beta", "--csv", str(self.old)]
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments, "--jobs", str(jobs)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(4)  # long enough to be fitting, far shorter than the whole
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
        began = time.monotonic()
        out, error = process.communicate(timeout=60)
        assert process.returncode == 130
        assert time.monotonic() - began < 20
        assert (out, error.strip()) == ("", "")


def test_counts_are_checked_if_asked_for(tmp_path, capsys):
    folder = write_data_set(tmp_path / "MQ2008")
    options = ("--methods", "feature:1", "--jobs", "1")
    assert invoke(folder, *options).exit_code == 0
    code, error = failure(capsys, folder, *options, "--check-counts")
    assert code == 1
    assert "24 queries instead of 784" in error
    assert "4 features instead of 46" in error
    code, error = failure(capsys, folder, "--name", "mine", "--check-counts")
    assert code == 1
    assert "there are no published counts for 'mine'" in error
