"""`sinkprop train --clicks`: the model that Python trains on the log, its report, and wrong input."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import click
import numpy as np
import pytest
from click.testing import CliRunner

from sinkprop import SinkPropRanker, cli, load_model
from sinkprop.baselines import RegressionRanker
from sinkprop.cli.clicks.logs import ClickReading
from sinkprop.cli.options import LogOption
from sinkprop.clicks import (
    DependentClickModel,
    TrustBiasModel,
    debias,
    estimate_position_bias,
    harvest_bias,
    read_clicks,
)
from sinkprop.clicks.labels import CLIPS

pytest.importorskip("pyarrow", reason="click logs are read with pyarrow")

LEAST_SQUARES = ["--method", "regression"]
FAST = ["--penalty", "1e-3", "--selection", "validation"]
NOTE = "4 columns are features: title, body, clicks_before, length; to choose the features, give"


def direct(**options):
    return SinkPropRanker(penalty=1e-3, selection="validation", verbose=False, **options)


def trained(run, folder, *arguments):
    """(weights of the model, its `clicks_`, the report as JSON) of a training that succeeds."""
    model, report = folder / "m.model", folder / "report.json"
    status, _, error = run("train", "--clicks", *arguments, "--model", model, "--json", report)
    assert status == 0, error
    ranker = load_model(model)
    return ranker.coef_, ranker.clicks_, json.loads(report.read_text())


# the model


def test_the_model_is_the_one_that_python_trains(click_logs, tmp_path, run):
    log = read_clicks(click_logs / "ab.parquet")
    expected = direct().fit(debias(log))
    weights, clicks, _ = trained(run, tmp_path, click_logs / "ab.parquet", *FAST)
    np.testing.assert_array_equal(weights, expected.coef_)
    np.testing.assert_array_equal(weights, direct().fit(log).coef_)
    assert clicks == expected.clicks_


def test_boosted_trees_too(click_logs, tmp_path, run):
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    from sinkprop.gbdt import BoostedRanker

    log = read_clicks(click_logs / "ab.parquet")
    model = tmp_path / "t.model"
    options = ["--method", "boosted", "--trees", "5", "--threads", "1"]
    status, out, _ = run("train", "--clicks", click_logs / "ab.parquet", "--model", model, *options)
    assert status == 0
    expected = BoostedRanker(n_estimators=5, n_threads=1, random_state=0).fit(log)
    documents = log.documents
    np.testing.assert_array_equal(load_model(model).predict(documents), expected.predict(documents))
    assert re.search(r"^Model +expected ndcg.*, 5 trees$", out, re.M)


@pytest.mark.parametrize(
    ("method", "argument", "clip"),
    [
        ("dr", "doubly robust", None),
        ("dr", "doubly robust", "0.1"),
        ("ips", "inverse propensity", None),
        ("ips", "inverse propensity", "0"),
        ("none", "none", None),
    ],
)
def test_methods_and_clips_are_those_of_debias(click_logs, tmp_path, run, method, argument, clip):
    log = read_clicks(click_logs / "ab.parquet")
    labels = debias(log, method=argument, clip=None if clip is None else float(clip))
    options = ["--click-method", method, *([] if clip is None else ["--clip", clip])]
    weights, clicks, _ = trained(run, tmp_path, click_logs / "ab.parquet", *LEAST_SQUARES, *options)
    np.testing.assert_array_equal(weights, RegressionRanker().fit(labels).coef_)
    assert (clicks["method"], clicks["clip"]) == (argument, labels.clip)


def test_a_bias_file_of_the_same_log_changes_nothing(click_logs, tmp_path, run):
    log, bias = click_logs / "ab.parquet", tmp_path / "bias.json"
    assert run("clicks", "bias", log, "-o", bias)[0] == 0
    weights, _, before = trained(run, tmp_path, log, *FAST)
    again, _, after = trained(run, tmp_path, log, *FAST, "--bias", bias)
    np.testing.assert_array_equal(again, weights)
    assert before["clicks"]["bias_file"] is None
    assert after["clicks"]["bias_file"] == str(bias)
    for name in ("bias", "examination", "interval", "clip", "clip_choice"):
        assert after["clicks"][name] == before["clicks"][name]


@pytest.mark.parametrize(
    ("kind", "fit"), [("trust", TrustBiasModel.fit), ("dependent", DependentClickModel.fit)]
)
def test_a_bias_file_of_another_model(click_logs, tmp_path, run, kind, fit):
    path, bias = click_logs / "ab.parquet", tmp_path / "bias.json"
    assert run("clicks", "bias", path, "--model-type", kind, "-o", bias)[0] == 0
    log = read_clicks(path)
    weights, _, report = trained(run, tmp_path, path, "--bias", bias, *LEAST_SQUARES)
    np.testing.assert_array_equal(weights, RegressionRanker().fit(debias(log, fit(log))).coef_)
    assert report["clicks"]["bias"].startswith({"trust": "trust-bias", "dependent": "dependent click"}[kind])


@pytest.mark.parametrize("kind", ["position", "trust", "dependent"])
def test_a_validation_log_gets_labels_from_the_same_model(click_logs, tmp_path, run, kind):
    paths = click_logs / "ab.parquet", click_logs / "later.parquet"
    fit = {"position": harvest_bias, "trust": TrustBiasModel.fit, "dependent": DependentClickModel.fit}[kind]
    bias = tmp_path / "bias.json"
    assert run("clicks", "bias", paths[0], "--model-type", kind, "-o", bias)[0] == 0
    log, other = map(read_clicks, paths)
    labels = debias(log, fit(log))
    # the dependent click model holds the relevance of the documents of its log
    model = fit(other) if kind == "dependent" else labels.model
    held_out = debias(other, model, clip=labels.clip)
    expected = direct().fit(labels, eval_set=held_out)
    weights, _, report = trained(run, tmp_path, paths[0], "--vali", paths[1], "--bias", bias, *FAST)
    np.testing.assert_array_equal(weights, expected.coef_)
    assert report["clicks"]["validation"]["clicks"] == other.n_clicks
    assert report["data"]["vali"]["file"] == str(paths[1])


def test_a_validation_log_may_have_other_columns(click_logs, altered, tmp_path, run):
    """Features are matched by name, and others than those of the training log are left out."""

    def turned(columns):
        return {**dict(reversed(columns.items())), "extra": np.arange(len(columns["query"]))}

    train = click_logs / "ab.parquet"
    plain, _, _ = trained(run, tmp_path, train, "--vali", altered(lambda columns: columns), *FAST)
    weights, _, _ = trained(run, tmp_path, train, "--vali", altered(turned), *FAST)
    np.testing.assert_array_equal(weights, plain)


def test_documents_from_another_file(click_logs, tmp_path, run):
    from sinkprop.data.frames import load_parquet

    pages = load_parquet(click_logs / "pages.parquet", qid="query", docid="doc", label=None)
    labels = debias(read_clicks(click_logs / "bare.parquet", documents=pages))
    arguments = click_logs / "bare.parquet", "--documents", click_logs / "pages.parquet"
    weights, clicks, report = trained(run, tmp_path, *arguments, *LEAST_SQUARES)
    np.testing.assert_array_equal(weights, RegressionRanker().fit(labels).coef_)
    assert clicks["documents"] == report["data"]["train"]["rows"] == 480
    shown = len(np.unique(labels.log.rows))
    assert report["clicks"]["documents"] == shown < 480


def test_some_sessions_some_positions_and_some_features(click_logs, tmp_path, run):
    path = click_logs / "ab.parquet"
    log = read_clicks(path, features=["body", "title"]).first(4)
    log = log.select(np.logical_or.reduceat(log.clicked, log.offsets[:-1]))
    options = ["--top", "4", "--without-clicks", "drop", "--feature-columns", "body,title"]
    weights, clicks, _ = trained(run, tmp_path, path, *options, *LEAST_SQUARES)
    np.testing.assert_array_equal(weights, RegressionRanker().fit(debias(log)).coef_)
    assert clicks["sessions"] == log.n_sessions


# the report


def test_the_report_describes_the_clicks(click_logs, tmp_path, run):
    path, model = click_logs / "ab.parquet", tmp_path / "m.model"
    status, out, error = run("train", "--clicks", path, "--model", model, *FAST)
    assert status == 0
    assert error.count("\n") == 1
    assert NOTE in error
    log = read_clicks(path)
    labels = debias(log)
    n = len(np.unique(log.rows))
    without = 4000 - int(np.logical_or.reduceat(log.clicked, log.offsets[:-1]).sum())
    last = estimate_position_bias(log).examination[-1]
    for line in (
        f"Click log +4,000 sessions of 40 queries, 24,000 impressions of {n} documents, {log.n_clicks:,} "
        rf"clicks  \({path}\)",
        f"Sessions +{without:,} of 4,000 have no click",
        rf"Documents +{n} documents of 40 queries, 4 features  \({path}\)",
        "Position bias +position-based model, estimated from documents that several rankers show at "
        "different positions",
        f"Examination +1 at position 1, {last:.3f} at position 6",
        r"Labels +relevance, estimated from clicks without position bias \(doubly robust\)",
        f"Clip +(none|examination raised to at least {labels.clip:g}), chosen from {len(CLIPS)} by its "
        "estimated error",
    ):
        assert re.search(f"^{line}$", out, re.M), line
    assert "There are no metrics, because the labels are estimates." in out
    assert out.endswith(f"Wrote {model}\n")
    assert not re.search(r" $", out, re.M)


def test_columns_that_are_no_features(click_logs, tmp_path, run):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.read_parquet(click_logs / "ab.parquet").query("position <= 3")
    frame["shown_at"] = np.arange(len(frame))
    frame["timestamp"] = np.arange(len(frame))
    frame.to_parquet(tmp_path / "log.parquet")  # with the numbers of the rows that were kept, as its index
    options = ["--model", tmp_path / "m.model", *LEAST_SQUARES]
    status, _, error = run("train", "--clicks", tmp_path / "log.parquet", *options)
    assert status == 0
    doubt, note = error.splitlines()
    assert "6 columns are features: title, body, clicks_before, length, shown_at, timestamp; to" in note
    assert "names are those of other things: 'timestamp' (a date)." in doubt
    assert "name the features with --feature-columns." in doubt


def test_labels_without_position_bias_removed_are_called_so(click_logs, tmp_path, run):
    path = click_logs / "ab.parquet"
    options = ["--click-method", "none", *LEAST_SQUARES]
    _, out, _ = run("train", "--clicks", path, "--model", tmp_path / "m.model", *options)
    assert re.search(r"^Labels +click rates, with position bias$", out, re.M)
    assert "Examination" not in out
    assert "Clip" not in out


def test_json_has_the_numbers_of_the_labels(click_logs, tmp_path, run):
    log = read_clicks(click_logs / "ab.parquet")
    labels = debias(log, method="inverse propensity", clip=0.25)
    options = ["--click-method", "ips", "--clip", "0.25", *LEAST_SQUARES]
    _, _, report = trained(run, tmp_path, click_logs / "ab.parquet", *options)
    assert report["metrics"] == {}
    clicks = report["clicks"]
    summary = labels.summary()
    assert {name: clicks[name] for name in summary if name != "documents"} == {
        name: value for name, value in summary.items() if name != "documents"
    }
    assert (clicks["clip"], clicks["clip_choice"], clicks["validation"]) == (0.25, None, None)


def test_files_without_clicks_have_none_in_their_report(tmp_path, run):
    (tmp_path / "a.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    model = tmp_path / "m.model"
    status, out, _ = run("train", tmp_path / "a.txt", "--model", model, *LEAST_SQUARES, "--json", "-")
    assert status == 0
    assert json.loads(out)["clicks"] is None


# wrong input


def test_wrong_logs_are_errors_and_no_model_is_written(altered, tmp_path, run):
    changes = {
        "Name the column with --position-column": lambda c: {k: v for k, v in c.items() if k != "position"},
        "Positions count from 1": lambda c: c | {"position": c["position"] - 1},
        "no document of the log was clicked": lambda c: c | {"clicked": 0 * c["clicked"]},
        "have one position each": lambda c: {k: v[c["position"] == 1] for k, v in c.items()},
        "Give the features of the documents with --documents": lambda c: {
            k: v for k, v in c.items() if k in ("query", "doc", "position", "clicked")
        },
    }
    for said, change in changes.items():
        log = altered(change)
        status, out, error = run(
            "train", "--clicks", log, "--model", tmp_path / "m", "--json", tmp_path / "j"
        )
        assert (status, out) == (1, "")
        assert said in error
        assert error.count("\n") == 1
        assert list(tmp_path.iterdir()) == [log]


@pytest.fixture
def bias_record(click_logs, run):
    _, out, _ = run("clicks", "bias", click_logs / "ab.parquet", "--json", "-")
    return json.loads(out)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda record: "examination: 1, 0.5", "it is not JSON"),
        (lambda record: ["a list"], "got JSON of another kind"),
        (lambda record: {"a": 1}, "got JSON of another kind"),
        (lambda record: record | {"version": 2}, "written by a newer version of sinkprop"),
        (lambda record: record | {"model": "dynamic"}, "written by a newer version of sinkprop"),
        (lambda record: record | {"examination": [1, -1]}, "examination must have one finite number above 0"),
        (lambda record: record | {"examination": None}, "examination must have one finite number above 0"),
        (lambda record: record | {"examination": {"a": 1}}, "expected position bias as written by"),
        (lambda record: record | {"model": "trust"}, "it has no 'slope'"),
        (lambda record: record | {"examination": [1, 0.5], "interval": None}, "Give --top 2, or estimate"),
    ],
)
@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_wrong_bias_files(click_logs, tmp_path, run, bias_record, command, change, said):
    changed, file = change(bias_record), tmp_path / "bias.json"
    file.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    model = tmp_path / "m" if command == "train" else click_logs / "one.model"
    arguments = ["--clicks", click_logs / "ab.parquet", "--bias", file, "--model", model]
    status, out, error = run(command, *arguments)
    assert (status, out) == (1, "")
    assert said in error
    assert error.startswith(f"sinkprop: {file}")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [file]


def test_a_validation_log_with_more_positions(click_logs, altered, tmp_path, run):
    short = altered(lambda c: {k: v[c["position"] < 4] for k, v in c.items()})
    options = ["--vali", click_logs / "ab.parquet", "--model", tmp_path / "m.model", *LEAST_SQUARES]
    status, _, error = run("train", "--clicks", short, *options)
    assert (status, error.count("\n")) == (1, 1)
    assert "ab.parquet has 6 positions, but position bias is known for 3; give --top 3." in error
    assert run("train", "--clicks", short, *options, "--top", "3")[0] == 0


def test_a_validation_log_without_the_features(click_logs, tmp_path, run):
    logs = click_logs / "ab.parquet", "--vali", click_logs / "bare.parquet"
    status, _, error = run("train", "--clicks", *logs, "--model", tmp_path / "m.model")
    assert (status, error.count("\n")) == (1, 1)
    assert "does not have the features of" in error
    assert "missing 'title', 'body', 'clicks_before' and 1 more. If they are in another file, give" in error


@pytest.mark.parametrize("gain", ["p@5", "map"])
def test_gains_that_clicks_do_not_estimate(click_logs, tmp_path, run, gain):
    status, out, error = run(
        "train", "--clicks", click_logs / "ab.parquet", "--model", tmp_path / "m", "--gain", gain
    )
    assert (status, out) == (1, "")
    assert "sinkprop: --gain: clicks give estimates of relevance" in error.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--click-method", "none", "--clip", "0.1"], "--clip does not apply to --click-method none"),
        (["--click-method", "none", "--bias", "BIAS"], "--bias does not apply to --click-method none"),
        (["--clip", "1.5"], "1.5 is not in the range 0<=x<=1"),
        (["--qid-column", "q"], "--qid-column does not apply to click logs; give --query-column"),
        (["--docid-column", "d"], "--docid-column does not apply to click logs; give --document-column"),
        (["--label-column", "l"], "--label-column does not apply to click logs; give --clicked-column"),
        (["--null", "0"], "--null does not apply to click logs"),
        (["--zero-based"], "--zero-based does not apply to click logs"),
        (["--bias", "MODEL"], "--model and --bias are the same file"),
        (["--documents", "MODEL"], "--model and --documents are the same file"),
    ],
)
def test_wrong_usage(altered, tmp_path, monkeypatch, run, options, said):
    log = altered(lambda columns: columns)
    names = {"BIAS": "bias.json", "MODEL": "m.model"}
    for name in names.values():
        (tmp_path / name).write_text("{}")
    monkeypatch.chdir(tmp_path)
    words = [names.get(word, word) for word in options]
    status, out, error = run("train", "--clicks", log, "--model", "m.model", *words)
    assert (status, out) == (2, "")
    assert said in error
    assert error.count("\n") == 1
    assert (tmp_path / "m.model").read_text() == "{}"


def options_of(command):
    return [p for p in cli.program().commands[command].params if isinstance(p, click.Option)]


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_options_for_click_logs_need_clicks_and_have_a_heading(click_logs, tmp_path, run, command):
    data, existing = tmp_path / "a.txt", click_logs / "one.model"
    data.write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    given = {"without_clicks": "drop", "top": "3", "clip": "0.1", "click_method": "dr"}
    given |= dict.fromkeys(("bias", "documents", "baseline"), existing)
    own = [option for option in options_of(command) if isinstance(option, LogOption)]
    assert {field.name for field in fields(ClickReading)} < {option.name for option in own}
    for option in own:
        if option.name != "clicks":
            words = option.opts[0], given.get(option.name, "name")
            model = tmp_path / "m.model" if command == "train" else existing
            status, out, error = run(command, data, "--model", model, *words)
            assert (status, out) == (2, "")
            assert f"{option.opts[0]} applies only to click logs; add --clicks." in error
    assert list(tmp_path.iterdir()) == [data]
    before, after = (
        CliRunner().invoke(cli.program(), [command, "--help"]).output.split("Options for click logs:")
    )
    for option in options_of(command):
        assert f"  {option.opts[0]}" in (after if option in own else before)
        assert f"\n  {option.opts[0]} " not in (before if option in own else after)


def test_a_folder_is_a_log_with_clicks_only(click_logs, tmp_path, run):
    parts, model = click_logs / "parts", tmp_path / "m.model"
    weights, _, _ = trained(run, tmp_path, parts, *LEAST_SQUARES)
    np.testing.assert_array_equal(
        weights, trained(run, tmp_path, click_logs / "ab.parquet", *LEAST_SQUARES)[0]
    )
    status, _, error = run("train", parts, "--model", model)
    assert status == 2
    assert "is a folder but not a stored set" in error
    status, _, error = run("train", "--clicks", "-", "--model", model)
    assert status == 2
    assert "not from stdin" in error
