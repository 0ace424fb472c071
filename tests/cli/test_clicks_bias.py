"""`sinkprop clicks bias`: the library's estimates as a table, JSON, a picture and a file of position bias."""

from __future__ import annotations

import json
import re
import shlex
from functools import partial

import click
import numpy as np
import pytest
from click.testing import CliRunner
from terminal import shown
from warm import PROGRAM

from sinkprop import cli
from sinkprop.cli.clicks.bias_files import bias_of
from sinkprop.cli.clicks.logs import for_the_shell
from sinkprop.clicks import (
    CascadeModel,
    DependentClickModel,
    PositionBasedModel,
    TrustBiasModel,
    examination_interval,
    harvest_bias,
    read_clicks,
    swap_bias,
)

pytest.importorskip("pyarrow", reason="click logs are read with pyarrow")

# name of the log, options, and the estimate of the library
ESTIMATES = {
    "harvest": ("ab", [], harvest_bias),
    "swaps": ("swaps", ["--method", "swaps"], swap_bias),
    "documents": ("shuffled", ["--method", "documents"], PositionBasedModel.fit),
    "linear": ("ab", ["--method", "linear"], partial(PositionBasedModel.fit, relevance="linear")),
    "trees": ("ab", ["--method", "trees"], partial(PositionBasedModel.fit, relevance="trees")),
    "trust": ("ab", ["--model-type", "trust"], TrustBiasModel.fit),
    "cascade": ("cascade", ["--model-type", "cascade"], CascadeModel.fit),
    "dependent": ("ab", ["--model-type", "dependent"], DependentClickModel.fit),
}
# words of Python that messages to a shell must not have
PYTHON = r"\w=|=\w|`(?!sinkprop )|\b(log|clicks|np)\.\w|\w\(|[a-z]_[a-z]|Model\b|NaN"


def rows_of(text, head):
    """Cells of the rows of the printed table whose first column has this head."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(rf"{head}  ", line))
    end = next(i for i in range(start, len(lines)) if not lines[i].strip())
    return [re.split(r"\s{2,}", line.strip()) for line in lines[start + 2 : end]]


def estimate(run, *arguments):
    """JSON of an estimate whose command succeeds."""
    status, out, error = run("clicks", "bias", *arguments, "--json", "-")
    assert status == 0, error
    return json.loads(out)


# what is shown


def test_the_table_has_the_numbers_of_the_library(click_logs, run):
    status, out, error = run("clicks", "bias", click_logs / "ab.parquet")
    assert (status, error) == (0, "")
    log = read_clicks(click_logs / "ab.parquet")
    model = harvest_bias(log)
    at = log.positions - 1
    low, high = model.interval
    rates = np.bincount(at, log.clicked) / 4000
    expected = [
        [f"{k + 1}", "4,000", f"{rates[k]:.4f}", f"{model.examination[k]:.3f}"]
        + ([f"{low[k]:.3f} to {high[k]:.3f}"] if k else [])
        for k in range(6)
    ]
    assert rows_of(out, "position") == expected
    without = sum(not log.clicked[i : i + 6].any() for i in range(0, len(log), 6))
    shown_documents = len(set(log.rows.tolist()))
    assert out.splitlines()[0] == (
        f"{click_logs / 'ab.parquet'}, 4,000 sessions of 40 queries, 24,000 impressions of {shown_documents} "
        f"documents, {log.n_clicks:,} clicks"
    )
    assert re.search(r"^Model +position-based model, estimated from documents that several", out, re.M)
    assert re.search(r"^Assumption +sessions were divided between the rankers at random", out, re.M)
    assert re.search(rf"^Sessions +{without:,} of 4,000 have no click$", out, re.M)
    assert not re.search(r"^(Model|Assumption|Sessions) .* $", out, re.M)


@pytest.mark.parametrize("name", ESTIMATES)
def test_every_model_and_method_is_that_of_the_library(click_logs, run, name):
    log_name, options, fit = ESTIMATES[name]
    path = click_logs / f"{log_name}.parquet"
    found = estimate(run, path, *options)
    model = fit(read_clicks(path))
    np.testing.assert_array_equal(found["examination"], model.examination_curve())
    if model.interval is None:
        assert found["interval"] is None
        assert any("--bootstrap" in text for text in found["cautions"])
    else:
        np.testing.assert_array_equal(found["interval"], model.interval)
    position_based = isinstance(model, PositionBasedModel)
    assert found["model"] == ("position" if position_based else name)
    assert found["method"] == (name if position_based else None)
    for parameter in ("slope", "intercept", "continuation"):
        if hasattr(model, parameter):
            np.testing.assert_array_equal(found[parameter], getattr(model, parameter))


@pytest.mark.parametrize(
    ("log", "method"), [("ab", "harvest"), ("fixed", "linear"), ("shuffled", "documents")]
)
def test_the_method_is_chosen_by_what_the_log_has(click_logs, run, log, method):
    assert estimate(run, click_logs / f"{log}.parquet")["method"] == method


def test_logged_propensities_choose_the_method_documents(altered, run):
    def explored(columns):
        del columns["policy"]
        return columns | {"propensity": np.full(len(columns["query"]), 0.5)}

    found = estimate(run, altered(explored), "--top", "2")
    assert (found["method"], len(found["examination"])) == ("documents", 2)


def test_trust_bias_has_a_column_of_intercepts(click_logs, run):
    _, out, _ = run("clicks", "bias", click_logs / "ab.parquet", "--model-type", "trust")
    model = TrustBiasModel.fit(read_clicks(click_logs / "ab.parquet"))
    assert [row[-1] for row in rows_of(out, "position")] == [f"{x:.4f}" for x in model.intercept]
    assert "P(click) = examination * relevance + intercept" in out


def test_features_of_an_estimate_are_named(click_logs, run):
    _, out, error = run("clicks", "bias", click_logs / "fixed.parquet")
    assert "4 columns are features: title, body, clicks_before, length; to choose" in error
    assert "Assumption  the features tell as much about the relevance" in out
    chosen = run("clicks", "bias", click_logs / "fixed.parquet", "--feature-columns", "title,body")
    assert chosen[2] == ""
    assert chosen[1] != out


def test_intervals_are_resampled_by_sessions_or_by_queries(click_logs, run):
    path = click_logs / "ab.parquet"
    log = read_clicks(path)
    for method, by in (("harvest", "sessions"), ("linear", "queries")):
        found = estimate(run, path, "--method", method, "--bootstrap", "20")
        fit = ESTIMATES[method][2]
        np.testing.assert_array_equal(found["interval"], examination_interval(fit, log, n=20, by=by, seed=0))
        np.testing.assert_array_equal(found["examination"], fit(log).examination)


# what to distrust


@pytest.mark.parametrize(
    ("log", "options", "caution"),
    [
        ("ab", ["--without-clicks", "drop"], "There are no sessions without a click."),
        ("cascade", [], "No session has two clicks."),
        ("cascade", ["--model-type", "cascade"], "The estimate has no interval. Give --bootstrap 200"),
        ("ab", ["--model-type", "trust"], "is wider than half the estimate. Log more sessions."),
    ],
)
def test_cautions(click_logs, run, log, options, caution):
    status, out, _ = run("clicks", "bias", click_logs / f"{log}.parquet", *options)
    assert status == 0
    assert len([line for line in out.splitlines() if line.startswith("Caution: ") and caution in line]) == 1


def test_documents_at_several_positions_are_counted(click_logs, run):
    for name, options in (("ab", ["--method", "linear"]), ("fixed", [])):
        log = read_clicks(click_logs / f"{name}.parquet")
        at = {}
        for row, position in zip(log.rows.tolist(), log.positions.tolist(), strict=True):
            at.setdefault(row, set()).add(position)
        clicked = set(log.rows[log.clicked].tolist())
        several = sum(len(at[row]) > 1 for row in clicked)
        assert bool(several) == (name == "ab")
        found = estimate(run, click_logs / f"{name}.parquet", *options)
        caution = found["cautions"][0]
        assert caution.startswith(f"{several} of {len(clicked)} clicked documents were shown at several")


def test_an_estimate_without_doubt_has_no_caution(click_logs, run):
    assert estimate(run, click_logs / "ab.parquet")["cautions"] == []


# files


@pytest.mark.parametrize("name", ESTIMATES)
def test_a_bias_file_gives_the_model_again(click_logs, tmp_path, run, name):
    log_name, options, fit = ESTIMATES[name]
    path, file = click_logs / f"{log_name}.parquet", tmp_path / "bias.json"
    status, out, _ = run("clicks", "bias", path, *options, "-o", file)
    assert status == 0
    assert out.endswith(f"Wrote {file}\n")
    log = read_clicks(path)
    model, again = fit(log), bias_of(log, file)[0]
    assert type(again) is type(model)
    before, after = model.propensities(log), again.propensities(log)
    np.testing.assert_array_equal(after.slope, before.slope)
    np.testing.assert_array_equal(after.intercept, before.intercept)
    if model.interval is not None:
        np.testing.assert_array_equal(again.interval, model.interval)


def test_json_is_the_bias_file(click_logs, tmp_path, run):
    log, file = click_logs / "ab.parquet", tmp_path / "bias.json"
    status, out, error = run("clicks", "bias", log, "-o", file, "--json", "-")
    assert (status, error) == (0, "")
    assert out == file.read_text("utf-8")
    assert json.loads(out)["description"].startswith("position-based model, ")


@pytest.mark.parametrize("name", ["ab.csv", "parts"])
def test_all_kinds_of_files_say_the_same(click_logs, run, name):
    expected = estimate(run, click_logs / "ab.parquet")
    assert estimate(run, click_logs / name) == expected | {"log": str(click_logs / name)}


def test_columns_may_have_other_names(altered, run):
    expected = estimate(run, altered(lambda columns: columns, "same.parquet"))
    names = {
        "query": "q", "doc": "d", "position": "pos", "clicked": "c", "session": "s", "policy": "ranker",
    }  # fmt: skip
    renamed = altered(lambda columns: {names.get(name, name): x for name, x in columns.items()})
    options = [f"--{name.replace('doc', 'document')}-column={column}" for name, column in names.items()]
    assert estimate(run, renamed, *options) == expected | {"log": str(renamed)}


def test_some_sessions_and_some_positions(click_logs, run):
    path = click_logs / "ab.parquet"
    log = read_clicks(path)
    found = estimate(run, path, "--top", "3")
    np.testing.assert_array_equal(found["examination"], harvest_bias(log.first(3)).examination)
    with_click = log.select(np.logical_or.reduceat(log.clicked, log.offsets[:-1]))
    found = estimate(run, path, "--without-clicks", "drop")
    np.testing.assert_array_equal(found["examination"], harvest_bias(with_click).examination)
    assert found["sessions"] == with_click.n_sessions == 4000 - found["sessions_without_clicks"]


def test_documents_from_another_file(click_logs, run):
    log, pages = click_logs / "bare.parquet", click_logs / "pages.parquet"
    found = estimate(run, log, "--documents", pages, "--method", "linear")
    log = read_clicks(click_logs / "ab.parquet")
    expected = PositionBasedModel.fit(log, relevance="linear").examination
    np.testing.assert_allclose(found["examination"], expected, rtol=1e-2)
    assert found["documents"] == len(log.documents)  # of 480 candidates
    assert found["queries"] == 40


def test_the_picture_is_drawn(click_logs, tmp_path, run):
    pytest.importorskip("matplotlib")
    for name, start in (("b.png", b"\x89PNG"), ("b.svg", b"<?xml"), ("b.pdf", b"%PDF")):
        status, out, error = run("clicks", "bias", click_logs / "ab.parquet", "--plot", tmp_path / name)
        assert (status, error) == (0, "")
        assert out.endswith(f"Wrote {tmp_path / name}\n")
        assert (tmp_path / name).read_bytes().startswith(start)


# bad input


def without(*names):
    return lambda columns: {name: x for name, x in columns.items() if name not in names}


def put(name, row, value):
    """Change that puts a value in a row of a column."""

    def change(columns):
        columns[name][row] = value
        return columns

    return change


def rows_where(mask):
    """Change that keeps the rows where a function of the columns is true."""

    def change(columns):
        kept = mask(columns)
        return {name: x[kept] for name, x in columns.items()}

    return change


def only(columns, name, value):
    return columns | {name: np.full(len(columns["query"]), value)}


WRONG = {
    "no queries": (without("query"), [], "--query-column 'query' is not a column of the log, which has"),
    "no documents": (without("doc"), [], "With --document-column none, each row is a document of its own"),
    "no positions": (without("position"), [], "Name the column with --position-column"),
    "no clicks column": (without("clicked"), [], "Name the column with --clicked-column"),
    "from 0": (lambda c: c | {"position": c["position"] - 1}, [], "Positions count from 1: add 1 to them"),
    "a fraction": (lambda c: c | {"position": c["position"] + 0.5}, [], "holds 1.5 in row 0; expected a pos"),
    "a gap": (rows_where(lambda c: c["position"] != 3), [], "row 2 shows position 4, but its session does"),
    "two at one": (put("position", 1, 1), [], "rows 0 and 1 are both at position 1 of one session"),
    "two clicks": (put("clicked", 5, 2), [], "'clicked' holds 2 in row 5; expected 0 or 1"),
    "no click": (partial(only, name="clicked", value=0), [], "no document of the log was clicked"),
    "one position": (rows_where(lambda c: c["position"] == 1), [], "have one position each"),
    "no rows": (rows_where(lambda c: c["position"] > 9), [], "the log has no rows"),
    "propensity": (partial(only, name="propensity", value=0.0), [], "propensity must be above 0 and at most"),
    "a document twice": (put("doc", slice(0, 2), "d1"), [], "session 0 shows a document at two positions"),
    "sessions of two queries": (put("session", slice(0, 12), 0), [], "same session but different queries"),
    "policies": (put("policy", 0, "abc"), [], "rows 0 and 1 have the same session but different policies"),
    "text": (partial(only, name="url", value="x"), [], "column 'url' must hold numbers; it is string"),
    "no such feature": (None, ["--feature-columns", "bm25"], "--feature-columns 'bm25' is not a column of"),
    "no such policy": (None, ["--policy-column", "ranker"], "--policy-column 'ranker' is not a column of"),
    "one ranker": (partial(only, name="policy", value="a"), ["--method", "harvest"], "of one ranker only"),
    "no policy": (without("policy"), ["--method", "harvest"], "named by --policy-column; got no such column"),
    "no features": (
        without("title", "body", "clicks_before", "length"),
        ["--method", "linear"],
        "--method linear predicts the relevance from features",
    ),
    "several clicks": (None, ["--model-type", "cascade"], "--model-type dependent"),
    "every row another": (without("doc"), ["--document-column", "none"], "the rankers show no clicked docum"),
    "a position without clicks": (
        lambda c: c | {"clicked": c["clicked"] * (c["position"] != 4)},
        [],
        "position 4 was shown 600 times and has no click",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_logs_are_one_line_and_nothing_is_written(altered, tmp_path, run, name):
    change, options, said = WRONG[name]
    log = altered(change or (lambda columns: columns))
    written = ["-o", tmp_path / "b.json", "--json", tmp_path / "j.json", "--plot", tmp_path / "b.png"]
    status, out, error = run("clicks", "bias", log, *options, *written)
    assert (status, out) == (1, "")
    assert said in error
    assert error.startswith("sinkprop: ")
    assert error.count("\n") == 1
    assert not re.search(PYTHON, error.replace(str(log), "LOG").replace("clicks_before", ""))
    assert list(tmp_path.iterdir()) == [log]


@pytest.mark.parametrize("method", ["documents", "swaps"])
def test_a_fixed_ranker_needs_features(click_logs, run, method):
    status, out, error = run("clicks", "bias", click_logs / "fixed.parquet", "--method", method)
    assert (status, out) == (1, "")
    assert "no clicked document was shown" in error or "no such documents connect" in error
    assert error.count("\n") == 1
    assert not re.search(PYTHON, error)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("log.txt", "1 qid:1 1:0.5\n0 qid:1 1:0.2\n", "not a Parquet or CSV file that can be read"),
        ("log.parquet", "1 qid:1 1:0.5\n", "not a Parquet or CSV file that can be read"),
        ("log.parquet", "", "not a Parquet or CSV file that can be read"),
        ("log.csv", "", "not a Parquet or CSV file that can be read"),
        ("log.csv", "query,doc,position,clicked\n", "the log has no rows"),
    ],
)
def test_files_that_are_no_logs(tmp_path, run, name, content, said):
    (tmp_path / name).write_text(content)
    status, out, error = run("clicks", "bias", tmp_path / name, "-o", tmp_path / "b.json")
    assert (status, out) == (1, "")
    assert f"{tmp_path / name}: {said}" in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_without_logs(tmp_path, run):
    status, _, error = run("clicks", "bias", tmp_path)
    assert (status, error.count("\n")) == (1, 1)
    assert "the folder has no files whose names end in .parquet" in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-"], "is read from a Parquet or CSV file, not from stdin"),
        (["nothing.parquet"], "does not exist"),
        (["LOG", "-o", "LOG"], "--bias-file and LOG are the same file"),
        (["LOG", "-o", "-"], "must be a file"),
        (["LOG", "-o", "b.json", "--json", "b.json"], "--json and --bias-file are the same file"),
        (["LOG", "--plot", "b.gif"], "must end in .png, .svg or .pdf"),
        (["LOG", "--plot", "nowhere/b.png"], "there is no folder 'nowhere'"),
        (["LOG", "--method", "linear", "--model-type", "trust"], "does not apply to --model-type trust"),
        (["LOG", "--bootstrap", "5"], "5 is not in the range"),
        (["LOG", "--top", "0"], "0 is not in the range"),
        (["LOG", "--documents", "LETOR"], "--documents must be a Parquet file"),
        (["LOG", "--documents", "LOG", "--document-column", "none"], "needs document ids in the log"),
    ],
)
def test_wrong_usage(altered, tmp_path, monkeypatch, run, arguments, said):
    log = altered(lambda columns: columns)
    (tmp_path / "letor.txt").write_text("1 qid:1 1:0.5\n")
    before = log.read_bytes()
    monkeypatch.chdir(tmp_path)
    names = {"LOG": log.name, "LETOR": "letor.txt"}
    status, out, error = run("clicks", "bias", *(names.get(a, a) for a in arguments))
    assert (status, out) == (2, "")
    assert said in error
    assert error.endswith(" See sinkprop clicks bias --help.\n")
    assert error.count("\n") == 1
    assert log.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {log.name, "letor.txt"}


def test_pyarrow_is_named_if_it_is_missing(click_logs, run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    status, out, error = run("clicks", "bias", click_logs / "ab.parquet")
    assert (status, out) == (2, "")
    assert 'pip install "sinkprop[parquet]"' in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("message", "worded"),
    [
        ("Name it with value=.", "Name it with --value-column."),
        ("doc='d' is wrong", "--document-column 'd' is wrong"),
        ("log: use log.first(3) instead, or log.first(k)", "give --top 3 instead, or --top N"),
        ("pass clip=, or wait", "give --clip, or wait"),
        ("gain: p@5 is not linear", "--gain: p@5 is not linear"),
        ("a session of its own", "a session of its own"),
    ],
)
def test_messages_name_options(message, worded):
    assert for_the_shell(message) == worded


# help and terminals


def test_help_has_headings_and_examples_whose_options_exist():
    group = cli.program().commands["clicks"]
    for arguments in (["clicks"], ["clicks", "--help"]):
        result = CliRunner().invoke(cli.program(), arguments)
        assert result.exit_code == 0
        assert re.search(r"^  bias +Estimate how the position", result.output, re.M)
    text = CliRunner().invoke(cli.program(), ["clicks", "bias", "--help"]).output
    assert max(map(len, text.splitlines())) <= 80
    own, of_logs = text.split("Options for click logs:")
    command = group.commands["bias"]
    for option in command.params[1:]:
        of_log = option.name.endswith("_column") or option.name in ("top", "documents", "without_clicks")
        assert f"  {option.opts[0]}" in (of_logs if of_log else own)
    examples = re.findall(r"^ *sinkprop clicks bias (.*?)(?: \|.*)?$", command.help, re.M)
    assert len(examples) == 5
    for example in examples:
        command.make_parser(click.Context(command)).parse_args(shlex.split(example))


def test_examples_of_the_overview_parse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("log.parquet", "later.parquet", "bias.json", "m.model"):
        (tmp_path / name).touch()
    found = re.findall(r"^ *sinkprop ([a-z]+) (.*)$", cli.program().commands["clicks"].help, re.M)
    assert [name for name, _ in found] == ["clicks", "train", "evaluate"]
    for name, example in found:
        cli.program().commands[name].make_context(name, shlex.split(example))


@pytest.mark.parametrize("columns", [30, 60, 120])
def test_a_terminal_shows_what_a_pipe_gets(warm, click_logs, columns):
    arguments = ("clicks", "bias", "ab.parquet", "--model-type", "trust")
    piped = warm.run(PROGRAM, *arguments, cwd=click_logs)
    assert (piped.returncode, piped.stderr) == (0, "")
    screen = shown(warm, *arguments, columns=columns, cwd=click_logs)
    assert screen.status == 0
    assert max(map(len, screen.lines)) <= columns
    assert not any("estimating" in line or "…" in line for line in screen.lines)
    words = " ".join("\n".join(screen.lines).split())
    for row in rows_of(piped.stdout, "position"):
        assert all(cell in words for cell in row)
    for sentence in ("Caution: ", "P(click) = examination * relevance + intercept", "Assumption"):
        assert sentence.strip() in words
