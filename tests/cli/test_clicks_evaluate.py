"""`sinkprop evaluate --clicks`: the library's comparison of rankers as tables and JSON, and wrong input."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from terminal import shown
from warm import PROGRAM

from sinkprop import PartitionedMeasure, Queries, SinkPropRanker, load_model
from sinkprop.baselines import RegressionRanker
from sinkprop.clicks import (
    DependentClickModel,
    compare_rankers,
    debias,
    estimate_position_bias,
    read_clicks,
)
from sinkprop.data.frames import load_parquet

pytest.importorskip("pyarrow", reason="click logs are read with pyarrow")

ALL = ["dcg@6", "ctr@6", "mrr@6"]


def evaluated(run, *arguments):
    """(JSON, errors) of an evaluation that succeeds."""
    status, out, error = run("evaluate", "--clicks", *arguments, "--json", "-")
    assert status == 0, error
    return json.loads(out), error


def prominence(log):
    """Scores by the sum of 1 / position over the sessions, one document after another."""
    scores = np.zeros(len(log.documents))
    for row, position in zip(log.rows.tolist(), log.positions.tolist(), strict=True):
        scores[row] += 1 / position
    return scores


def two_features(log):
    """Documents of a log with the features of two.model."""
    X = log.documents.X[:, [2, 0]]
    return replace(log.documents, X=X, feature_names=("clicks_before", "title"))


def same(found, expected):
    """Compare a metric in the JSON with a `RankerComparison`."""
    for side, value in (("model", expected.first), ("baseline", expected.second)):
        assert found[side] == {
            "value": value.value,
            "interval": list(value.interval),
            "standard_error": value.standard_error,
            "effective_sample_size": value.effective_sample_size,
            "overlap": value.overlap,
            "documents_uncovered": len(value.uncovered),
        }
    assert found["difference"] == {
        "value": expected.difference,
        "interval": list(expected.interval),
        "standard_error": expected.standard_error,
        "p_value": expected.p_value,
    }


def tables(out):
    """{metric: rows of cells} of the printed tables."""
    lines, found = out.splitlines(), {}
    for i, line in enumerate(lines):
        if re.match(r"(dcg|ctr|mrr)\S* +per session", line):
            found[line.split()[0]] = [re.split(r"\s{2,}", row.strip()) for row in lines[i + 2 : i + 5]]
    return found


def one_error(status, out, error, *said):
    assert (status, out) == (1, "")
    assert error.startswith("sinkprop: ")
    assert error.count("\n") == 1
    for text in said:
        assert text in error


# numbers


def test_the_numbers_are_those_of_compare_rankers(click_logs, run):
    path, model = click_logs / "later.parquet", click_logs / "one.model"
    found, error = evaluated(run, path, "--model", model)
    assert error == ""
    log = read_clicks(path)
    users, scores = estimate_position_bias(log), load_model(model).predict(log.documents)
    assert list(found["metrics"]) == ALL  # of the six positions of the log
    for metric, numbers in found["metrics"].items():
        same(numbers, compare_rankers(log, scores, prominence(log), users, metric=metric))
    assert (found["model"], found["baseline"]) == (str(model), None)
    assert found["clicks"] == log.n_clicks
    several = {}
    for s, q in enumerate(log.queries.tolist()):
        several.setdefault(q, set()).add(tuple(log.rows[log.offsets[s] : log.offsets[s + 1]]))
    assert found["queries_with_several_rankings"] == sum(len(lists) > 1 for lists in several.values()) == 40


def test_the_tables_have_these_numbers(click_logs, run):
    arguments = [click_logs / "later.parquet", "--model", click_logs / "one.model"]
    found, _ = evaluated(run, *arguments)
    status, out, error = run("evaluate", "--clicks", *arguments)
    assert (status, error) == (0, "")
    printed = tables(out)
    assert list(printed) == list(found["metrics"])
    for metric, numbers in found["metrics"].items():
        rows = []
        for side in ("model", "baseline"):
            value = numbers[side]
            low, high = value["interval"]
            cells = [f"{value['value']:.4f}", f"{low:.4f} to {high:.4f}"]
            rows.append([side, *cells, f"{value['effective_sample_size']:,.0f}", f"{value['overlap']:.1%}"])
        change = numbers["difference"]
        low, high = change["interval"]
        p = f"{change['p_value']:.4f}" if change["p_value"] >= 1e-4 else "<0.0001"
        rows.append(["difference", f"{change['value']:+.4f}", f"{low:+.4f} to {high:+.4f}", p])
        assert printed[metric] == rows
    log = read_clicks(click_logs / "later.parquet")
    assert f"\nObserved in the log: {log.n_clicks / 4000:.4f} clicks per session.\n" in out
    assert found["metrics"]["ctr@6"]["observed"] == log.n_clicks / 4000
    assert re.search(r"^Baseline +the rankings in the log$", out, re.M)
    assert re.search(rf"^Ranked +{len(log.documents)} documents of the log$", out, re.M)
    assert "The log has several rankings of 40 queries. The baseline combines them" in out
    assert "Only documents of the log are ranked." in out


def test_a_baseline_is_a_second_model(click_logs, run):
    path, models = click_logs / "later.parquet", (click_logs / "one.model", click_logs / "two.model")
    arguments = [path, "--model", models[0], "--baseline", models[1], "--metrics", "dcg@3, CTR@2"]
    found, error = evaluated(run, *arguments)
    assert error == ""
    log = read_clicks(path)
    users = estimate_position_bias(log)
    one = load_model(models[0]).predict(log.documents)
    # the second model has two of the features, in another order
    two = load_model(models[1]).predict(two_features(log))
    assert list(found["metrics"]) == ["dcg@3", "ctr@2"]
    for metric, numbers in found["metrics"].items():
        same(numbers, compare_rankers(log, one, two, users, metric=metric))
    assert found["baseline"] == str(models[1])
    first_two = np.add.reduceat(log.clicked * (log.positions <= 2), log.offsets[:-1]).mean()
    assert found["metrics"]["ctr@2"]["observed"] == pytest.approx(first_two)
    _, out, _ = run("evaluate", "--clicks", *arguments)
    assert re.search(rf"^Baseline +{models[1]}$", out, re.M)
    assert "combines them" not in out


@pytest.mark.parametrize(
    ("options", "arguments", "metrics"),
    [
        (["--click-method", "ips"], {"method": "ips"}, ALL),
        (["--click-method", "snips"], {"method": "snips"}, ["dcg@6", "ctr@6"]),
        (["--clip", "0.3"], {"clip": 0.3}, ALL),
        (["--clip", "0"], {}, ALL),
        (
            ["--click-method", "ips", "--clip", "0.5"],
            {"method": "ips", "clip": 0.5},
            ["dcg@6", "ctr@6", "mrr@6"],
        ),
    ],
)
def test_estimators(click_logs, run, options, arguments, metrics):
    path, model = click_logs / "later.parquet", click_logs / "one.model"
    found, _ = evaluated(run, path, "--model", model, *options)
    log = read_clicks(path)
    users, scores = estimate_position_bias(log), load_model(model).predict(log.documents)
    assert list(found["metrics"]) == metrics
    for metric, numbers in found["metrics"].items():
        same(numbers, compare_rankers(log, scores, prominence(log), users, metric=metric, **arguments))
    _, out, _ = run("evaluate", "--clicks", path, "--model", model, *options)
    names = {"ips": "inverse propensity", "snips": "self-normalized ips"}
    clip = f", examination raised to at least {arguments['clip']:g}" if "clip" in arguments else ""
    estimator = names.get(arguments.get("method"), "doubly robust") + clip
    assert re.search(rf"^Estimator +{estimator}$", out, re.M)


@pytest.mark.parametrize("kind", ["position", "trust", "dependent"])
def test_position_bias_from_a_file(click_logs, tmp_path, run, kind):
    bias, path, model = tmp_path / "bias.json", click_logs / "later.parquet", click_logs / "one.model"
    assert run("clicks", "bias", click_logs / "ab.parquet", "--model-type", kind, "-o", bias)[0] == 0
    found, _ = evaluated(run, path, "--model", model, "--bias", bias)
    log, other = read_clicks(path), read_clicks(click_logs / "ab.parquet")
    record = json.loads(bias.read_text())
    if kind == "dependent":
        users = DependentClickModel.fit(log)  # whose examination depends on the clicks of this log
        assert list(found["metrics"]) == ["dcg@6"]
    else:
        from sinkprop.clicks import PositionBasedModel, TrustBiasModel

        users = PositionBasedModel(record["examination"])
        if kind == "trust":
            users = TrustBiasModel(record["slope"], record["intercept"])
        else:
            np.testing.assert_array_equal(users.examination, estimate_position_bias(other).examination)
        assert list(found["metrics"]) == ALL
    scores = load_model(model).predict(log.documents)
    for metric, numbers in found["metrics"].items():
        same(numbers, compare_rankers(log, scores, prominence(log), users, metric=metric))
    assert found["bias_file"] == str(bias)
    _, out, _ = run("evaluate", "--clicks", path, "--model", model, "--bias", bias, "--metrics", "dcg@2")
    assert re.search(rf"^Position bias .*  \({bias}\)$", out, re.M)


def test_the_rankings_of_one_ranker_are_the_baseline_as_shown(click_logs, run):
    path, model = click_logs / "fixed.parquet", click_logs / "one.model"
    found, _ = evaluated(run, path, "--model", model)
    log = read_clicks(path)
    at = np.full(len(log.documents), np.nan)
    at[log.rows] = log.positions
    assert (at[log.rows] == log.positions).all()  # every document has one position
    users, scores = estimate_position_bias(log), load_model(model).predict(log.documents)
    for metric, numbers in found["metrics"].items():
        same(numbers, compare_rankers(log, scores, -at, users, metric=metric))
    assert found["queries_with_several_rankings"] == 0
    # with the documents at their positions in the log, estimated clicks are the observed ones
    ctr = found["metrics"]["ctr@6"]
    assert ctr["baseline"]["value"] == pytest.approx(ctr["observed"], rel=1e-9)


def test_a_ranker_that_does_not_rank_by_its_scores(click_logs, tmp_path, run):
    path, log = click_logs / "later.parquet", read_clicks(click_logs / "later.parquet")
    options = {"penalty": 1e-3, "selection": "validation", "max_iter": 2, "verbose": False}
    ranker = SinkPropRanker(relaxation=PartitionedMeasure("probit"), **options).fit(
        read_clicks(click_logs / "ab.parquet")
    )
    ranker.save(tmp_path / "probit.model")
    found, _ = evaluated(run, path, "--model", tmp_path / "probit.model", "--metrics", "dcg@3")
    users, scores = estimate_position_bias(log), -ranker.rank(log.documents).astype(float)
    same(found["metrics"]["dcg@3"], compare_rankers(log, scores, prominence(log), users, metric="dcg@3"))


def test_some_sessions_and_positions(click_logs, run):
    path, model = click_logs / "later.parquet", click_logs / "two.model"
    found, _ = evaluated(run, path, "--model", model, "--top", "4", "--without-clicks", "drop")
    log = read_clicks(path).first(4)
    log = log.select(np.logical_or.reduceat(log.clicked, log.offsets[:-1]))
    assert list(found["metrics"]) == ["dcg@4", "ctr@4", "mrr@4"]
    assert (found["sessions"], found["without_clicks"]) == (log.n_sessions, "drop")
    users = estimate_position_bias(log)
    scores = load_model(model).predict(two_features(log))
    with pytest.warns(UserWarning, match="the log never shows"):
        expected = compare_rankers(log, scores, prominence(log), users, metric="dcg@4")
    same(found["metrics"]["dcg@4"], expected)


def test_models_without_names_take_features_in_their_order(click_logs, tmp_path, run):
    path, log = click_logs / "later.parquet", read_clicks(click_logs / "later.parquet")
    documents = log.documents
    labels = debias(log).queries()
    unnamed = Queries(labels.X, labels.y, labels.qid)
    RegressionRanker().fit(unnamed).save(tmp_path / "unnamed.model")
    found, _ = evaluated(run, path, "--model", tmp_path / "unnamed.model", "--metrics", "dcg@3")
    scores = load_model(tmp_path / "unnamed.model").predict(documents.X)
    users = estimate_position_bias(log)
    same(found["metrics"]["dcg@3"], compare_rankers(log, scores, prominence(log), users, metric="dcg@3"))


# candidates that the log does not show


def test_candidates_from_another_file(click_logs, run):
    log_path, pages, model = (click_logs / name for name in ("bare.parquet", "pages.parquet", "two.model"))
    arguments = [log_path, "--documents", pages, "--model", model]
    found, error = evaluated(run, *arguments)
    table = load_parquet(pages, qid="query", docid="doc", label=None)
    log = read_clicks(log_path, documents=table)
    users, scores = estimate_position_bias(log), load_model(model).predict(two_features(log))
    for metric, numbers in found["metrics"].items():
        with pytest.warns(UserWarning, match="the log never shows"):
            same(numbers, compare_rankers(log, scores, prominence(log), users, metric=metric))
    assert (found["candidates"], found["documents_file"]) == (480, str(pages))
    assert found["documents"] < 480
    # one note for all metrics, with the number of documents but without their rows
    uncovered = found["metrics"]["dcg@6"]["model"]["documents_uncovered"]
    assert error.count("\n") == 1
    assert (
        f"note: {model}: the log never shows {uncovered} of the 240 documents that count for dcg@6" in error
    )
    assert "Their value is assumed, not observed" in error
    assert "rows" not in error
    assert "`" not in error
    _, out, _ = run("evaluate", "--clicks", *arguments)
    assert re.search(rf"^Ranked +480 documents of {pages}$", out, re.M)
    assert "Only documents of the log are ranked" not in out


def test_a_model_whose_documents_were_never_shown(click_logs, altered, tmp_path, run):
    """Models that put documents first that the log does not show can be estimated only with a prediction."""
    import pyarrow as pa
    from pyarrow import parquet

    pages = parquet.read_table(click_logs / "pages.parquet")
    columns = {name: np.array(pages[name].to_numpy()) for name in pages.column_names}
    others = {name: x[:400] for name, x in columns.items()}
    others["doc"] = np.array([f"other {i}" for i in range(400)], dtype=object)
    others["title"] = others["title"] + 1000
    both = {name: np.concatenate([columns[name], others[name]]) for name in columns}
    parquet.write_table(pa.table(both), tmp_path / "both.parquet")
    arguments = [click_logs / "bare.parquet", "--documents", tmp_path / "both.parquet", "--metrics", "dcg@5"]
    arguments += ["--model", click_logs / "one.model"]
    found, error = evaluated(run, *arguments)
    assert found["metrics"]["dcg@5"]["model"]["overlap"] < 0.2
    assert "the log never shows" in error
    for method in ("ips", "snips"):
        log = altered(lambda c: {k: v[c["query"] <= 30] for k, v in c.items()})
        words = ["--documents", tmp_path / "both.parquet", *arguments[3:], "--click-method", method]
        one_error(
            *run("evaluate", "--clicks", log, *words),
            "one.model: the log shows none of the documents that count for dcg@5",
            f"so '{method}' cannot estimate its value. Log rankings that explore",
        )


# notes


def test_a_model_that_was_trained_on_the_log(click_logs, tmp_path, run):
    log, model = click_logs / "ab.parquet", tmp_path / "m.model"
    assert run("train", "--clicks", log, "--model", model, "--method", "regression")[0] == 0
    note = f"sinkprop: note: {model} seems to have been trained on this log"
    assert evaluated(run, log, "--model", model, "--metrics", "dcg@2")[1].startswith(note)
    assert evaluated(run, click_logs / "later.parquet", "--model", model, "--metrics", "dcg@2")[1] == ""


def test_one_session_has_no_interval(click_logs, altered, tmp_path, run):
    bias = tmp_path / "bias.json"
    assert run("clicks", "bias", click_logs / "ab.parquet", "-o", bias)[0] == 0

    def one(columns):
        columns["clicked"][:6] = [1, 0, 0, 0, 0, 0]
        return {name: x[:6] for name, x in columns.items()}

    arguments = [altered(one), "--model", click_logs / "one.model", "--bias", bias, "--metrics", "dcg@3"]
    found, error = evaluated(run, *arguments)
    assert found["metrics"]["dcg@3"]["model"]["interval"] == [None, None]
    assert "the log has one session, so the error of the estimate is unknown." in error
    assert "NaN" not in error
    _, out, _ = run("evaluate", "--clicks", *arguments)
    assert [row[2] for row in tables(out)["dcg@3"]] == ["unknown"] * 3
    assert "1 session of 1 query, 6 impressions of 6 documents, 1 click\n" in out


# wrong input


def test_wrong_logs(click_logs, altered, tmp_path, run):
    changes = {
        "Name the column with --clicked-column": lambda c: {k: v for k, v in c.items() if k != "clicked"},
        "row 2 shows position 4": lambda c: {k: v[c["position"] != 3] for k, v in c.items()},
        "no document of the log was clicked": lambda c: c | {"clicked": 0 * c["clicked"]},
        "missing 'title', 'body', 'clicks_before' and 1 more. If they are in another file, give it as": (
            lambda c: {k: v for k, v in c.items() if k in ("query", "doc", "position", "clicked")}
        ),
    }
    for said, change in changes.items():
        log = altered(change)
        words = ["--model", click_logs / "one.model", "--json", tmp_path / "j.json"]
        one_error(*run("evaluate", "--clicks", log, *words), said, str(log))
        assert list(tmp_path.iterdir()) == [log]


def test_letor_text_is_no_log(click_logs, tmp_path, run):
    (tmp_path / "a.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    said = f"{tmp_path / 'a.txt'}: not a Parquet or CSV file that can be read"
    one_error(*run("evaluate", "--clicks", tmp_path / "a.txt", "--model", click_logs / "one.model"), said)


def test_documents_without_the_features_of_the_model(click_logs, run):
    log, model = click_logs / "bare.parquet", click_logs / "one.model"
    documents = click_logs / "bare.parquet"
    error = run("evaluate", "--clicks", log, "--documents", documents, "--model", model)
    one_error(*error, f"{documents} does not have the features of {model}: missing 'title'")
    assert "give it as" not in error[2]


@pytest.mark.parametrize(
    ("log", "options", "said"),
    [
        ("later", ["--metrics", "ctr@9"], "ctr@9 needs the position bias of 9 positions, but it is known"),
        ("later", ["--metrics", "mrr"], "positions, but it is known for 6; give mrr@6."),
        ("later", ["--top", "3", "--metrics", "ctr@4"], "positions, but it is known for 3; give ctr@3."),
        ("later", ["--bias", "dependent.json", "--metrics", "ctr@3"], "in the dependent click model, it"),
        ("later", ["--bias", "cascade.json"], "in the cascade model users leave with their first click"),
    ],
)
def test_what_cannot_be_estimated(click_logs, tmp_path, monkeypatch, run, log, options, said):
    monkeypatch.chdir(tmp_path)
    for kind, name in (("dependent", "ab"), ("cascade", "cascade")):
        if f"{kind}.json" in options:
            arguments = [click_logs / f"{name}.parquet", "--model-type", kind, "-o", f"{kind}.json"]
            assert run("clicks", "bias", *arguments)[0] == 0
    arguments = [click_logs / f"{log}.parquet", "--model", click_logs / "one.model", *options]
    status, out, error = run("evaluate", "--clicks", *arguments)
    one_error(status, out, error, said)
    assert not re.search(r"\w=|[a-z]_[a-z]|`|Model\b", error)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--clicks needs --model, the model to evaluate."),
        (["--feature", "title"], "--feature does not apply to click logs."),
        (["--model", "MODEL", "--per-query"], "--per-query does not apply to click logs."),
        (["--model", "MODEL", "--calibration"], "--calibration does not apply to click logs."),
        (["--model", "MODEL", "--plot", "a.png"], "--plot does not apply to click logs."),
        (["--model", "MODEL", "--csv", "a.csv"], "--csv does not apply to click logs."),
        (["--model", "MODEL", "--convention", "trec"], "--convention does not apply to click logs."),
        (["--model", "MODEL", "--qid-column", "q"], "does not apply to click logs; give --query-column."),
        (
            ["--model", "MODEL", "--metrics", "ndcg@10"],
            "'ndcg@10' cannot be estimated from clicks; give",
        ),
        (["--model", "MODEL", "--metrics", "ctr@0"], "'ctr@0' cannot be estimated from clicks"),
        (["--model", "MODEL", "--click-method", "snips", "--metrics", "mrr"], "snips cannot estimate MRR"),
        (["--model", "MODEL", "--json", "LOG"], "--json and DATA are the same file"),
        (["--model", "MODEL", "--clip", "2"], "2.0 is not in the range 0<=x<=1"),
    ],
)
def test_wrong_usage(click_logs, altered, tmp_path, monkeypatch, run, options, said):
    log = altered(lambda columns: columns)
    before = log.read_bytes()
    monkeypatch.chdir(tmp_path)
    names = {"MODEL": click_logs / "one.model", "LOG": log}
    status, out, error = run("evaluate", "--clicks", log, *(names.get(word, word) for word in options))
    assert (status, out) == (2, "")
    assert said in error
    assert error.endswith(" See sinkprop evaluate --help.\n")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [log]
    assert log.read_bytes() == before


def test_metrics_of_labels_stay_as_they_are(tmp_path, run):
    (tmp_path / "a.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    status, _, error = run("evaluate", tmp_path / "a.txt", "--feature", "1", "--metrics", "ctr@3")
    assert status == 2
    assert "metric 'ctr@3' is not known" in error
    _, out, _ = run("evaluate", tmp_path / "a.txt", "--feature", "1", "--json", "-")
    assert list(json.loads(out)["metrics"]) == ["ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "map"]


# terminals


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_terminal_shows_what_a_pipe_gets(warm, click_logs, columns):
    arguments = ("evaluate", "--clicks", "later.parquet", "--model", "one.model")
    piped = warm.run(PROGRAM, *arguments, cwd=click_logs)
    assert (piped.returncode, piped.stderr) == (0, "")
    screen = shown(warm, *arguments, columns=columns, cwd=click_logs)
    assert screen.status == 0
    assert max(map(len, screen.lines)) <= columns
    assert not any("estimating" in line or "…" in line for line in screen.lines)
    if columns == 80:
        assert tables("\n".join(screen.lines)) == tables(piped.stdout)
    words = " ".join("\n".join(screen.lines).split())
    for rows in tables(piped.stdout).values():
        assert all(cell in words for row in rows for cell in row)
    for sentence in re.findall(r"^(?:Effective|Observed|The log|Only).*$", piped.stdout, re.M):
        assert " ".join(sentence.split()) in words
