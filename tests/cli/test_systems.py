"""Several systems in `evaluate`, and given scores in `report`: models, scores, columns, features and runs."""

from __future__ import annotations

import csv
import io
import json
import re
from functools import partial

import numpy as np
import pytest
from click.testing import CliRunner
from program import run_here

import sinkprop
from sinkprop import Queries, cli
from sinkprop.baselines import RegressionRanker
from sinkprop.data.letor import save_letor
from sinkprop.store import save_queries

NAMES = ("title", "body", "age")
METRICS = ("--metrics", "ndcg@5,map")


@pytest.fixture(scope="module")
def data():
    """Queries whose labels depend on their features, and scores that know less."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20 * 9, 3)).round(3)
    y = np.digitize(X @ [2.0, 1.0, 0.0] + rng.normal(size=len(X)), [1.0, 3.0]).astype(float)
    qid, docid = np.repeat(np.arange(1, 21), 9), np.array([f"d{i}" for i in range(len(X))])
    return Queries(X, y, qid, docid, NAMES), (X[:, 0] + rng.normal(0, 2, len(X))).round(4)


@pytest.fixture(scope="module")
def model(data):
    return RegressionRanker().fit(data[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data, model):
    """The queries in every format, with the scores as a file, a run and a column, and models."""
    folder = tmp_path_factory.mktemp("systems")
    queries, scores = data
    save_letor(folder / "d.txt", queries)
    save_queries(folder / "d.queries", queries, block_bytes=500)
    save_queries(folder / "s.queries", with_column(queries, scores), block_bytes=500)
    save_letor(folder / "s.txt", with_column(queries, scores))
    (folder / "prod.txt").write_text("".join(f"{x!r}\n" for x in scores.tolist()))
    lines = [
        f"{q} Q0 {d} 1 {x!r} r\n" for q, d, x in zip(queries.qid, queries.docid, scores.tolist(), strict=True)
    ]
    (folder / "prod.run").write_text("".join(lines))
    model.save(folder / "new.model")
    RegressionRanker().fit(queries.X, queries.y, qid=queries.qid).save(folder / "unnamed.model")
    return folder


@pytest.fixture(scope="module")
def parquet(folder, data):
    """The queries as Parquet with columns in another order, the scores and a column of text."""
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    import pyarrow.parquet as pq

    queries, scores = data
    columns = dict(zip(NAMES, queries.X.T, strict=True))
    table = {"qid": queries.qid, "prod": scores, "age": columns["age"], "label": queries.y, **columns}
    pq.write_table(pa.table({**table, "docid": queries.docid}), folder / "d.parquet")
    holes = np.where(np.arange(len(scores)) == 7, np.nan, scores)
    pq.write_table(pa.table({**table, "prod": holes}), folder / "holes.parquet")
    return folder / "d.parquet"


def with_column(queries, scores):
    X = np.column_stack([queries.X, scores])
    return Queries(X, queries.y, queries.qid, queries.docid, (*NAMES, "prod"))


@pytest.fixture
def run(capfd, folder, monkeypatch):
    """The program in this process, in the folder."""
    monkeypatch.chdir(folder)
    return partial(run_here, capfd)


def one_line(error):
    return error.startswith("sinkprop: ") and error.endswith("\n") and error.count("\n") == 1


def expected(data, model, names=("production", "new"), metrics="ndcg@5,map", **options):
    queries, scores = data
    arrays = {"production": scores, "new": model.predict(queries), "title": queries.X[:, 0]}
    given = {name: arrays[key] for name, key in zip(names, ("production", "new", "title"), strict=False)}
    return sinkprop.compare_scores(queries.y, given, queries.qid, metrics, **options)


class TestEvaluate:
    @pytest.mark.parametrize(
        ("file", "production", "new"),
        [
            ("d.txt", "--scores production=prod.txt", "new.model"),
            ("d.txt", "--run production=prod.run", "new=unnamed.model"),
            ("s.txt", "--scores production=@4", None),
            ("d.queries", "--scores production=prod.txt", "new.model"),
            ("d.queries", "--run production=prod.run", "new.model"),
            ("s.queries", "--scores production=@prod", None),
            ("d.parquet", "--scores production=prod.txt --feature-columns title,body,age", "new.model"),
            ("d.parquet", "--scores production=@prod", "new.model"),
            ("d.parquet", "--scores production=@prod", "new=unnamed.model"),
        ],
    )
    def test_every_kind_of_scores_and_files(self, run, parquet, data, model, file, production, new):
        other = ["--model", new] if new else ["--feature", "1"]
        done = run("evaluate", file, *production.split(), *other, *METRICS, "--json", "-", "--per-query")
        assert (done.status, done.error) == (0, "")
        record = json.loads(done.out)
        words = [own.pop("ranked_by") for own in record["systems"]]
        assert record.pop("data") == file
        if new:
            found = expected(data, model)
            assert words[1] == f"the model {new.removeprefix('new=')}"
        else:
            queries, scores = data
            found = sinkprop.compare_scores(
                queries.y,
                {"production": scores, "feature:1": queries.X[:, 0]},
                queries.qid,
                "ndcg@5,map",
            )
            assert words == [f"the column {'4' if file == 's.txt' else 'prod'}", "the feature 1"]
        theirs = found.record(per_query=True)
        if file == "d.parquet" and "unnamed" in str(new):  # its features are in another order there
            assert record["systems"][0] == theirs["systems"][0]
            assert record["systems"][1] != theirs["systems"][1]
        else:
            assert record == theirs

    def test_the_first_typed_is_the_baseline(self, run, data, model):
        arguments = ["--model", "new.model", "--scores", "production=prod.txt", "--feature", "1", *METRICS]
        record = json.loads(run("evaluate", "d.txt", *arguments, "--json", "-").out)
        assert record["baseline"] == "new"
        assert [own["name"] for own in record["systems"]] == ["new", "production", "feature:1"]
        found = expected(data, model, ("production", "new", "feature:1")).against("new")
        assert record["differences"] == found.record()["differences"]

    def test_options_of_metrics_apply_to_every_system(self, run, data, model):
        options = ("--convention", "lightgbm", "--empty", "skip", "--ties", "average", "--threshold", "2")
        call = ("--scores", "production=prod.txt", "--model", "new.model", *METRICS, *options)
        record = json.loads(run("evaluate", "d.txt", *call, "--json", "-").out)
        found = expected(
            data, model, convention="lightgbm", empty="skip", ties="average", threshold=2.0
        ).record()
        assert record["description"] == found["description"]
        assert record["differences"] == found["differences"]

    def test_the_printed_tables(self, run, data, model):
        call = ("--scores", "production=prod.txt", "--model", "new.model", *METRICS)
        done = run("evaluate", "d.txt", *call)
        assert (done.status, done.error) == (0, "")
        lines = done.out.splitlines()
        assert lines[0] == "d.txt, 180 rows, 20 queries"
        assert "production  the scores prod.txt" in lines
        assert "new         the model new.model" in lines
        found = expected(data, model)
        for metric in found.metrics:
            heads, *rows = found.rows(metric)
            at = next(i for i, line in enumerate(lines) if line.startswith(metric))
            assert lines[at].split() == " ".join(heads).split()
            for row, line in zip(rows, lines[at + 2 :], strict=False):
                shown = re.sub("[▲▼]", lambda mark: {"▲": "+", "▼": "-"}[mark[0]], line)
                assert shown.split() == " ".join(row).split()
        first = found.largest_wins("new", "ndcg@5")[0]
        (wins,) = (line for line in lines if line.startswith("Largest wins of new in ndcg@5: "))
        assert wins.split(": ")[1].startswith(f"{first.query} ({first.difference:+.4f}), ")
        assert lines[-1] == found.definition()

    def test_every_query(self, run, data, model):
        call = ("--scores", "production=prod.txt", "--model", "new.model", *METRICS)
        done = run("evaluate", "d.txt", *call, "--csv", "-")
        head, *rows = csv.reader(io.StringIO(done.out))
        assert head == ["query", "system", "ndcg@5", "map"]
        values = expected(data, model).per_query
        assert [row[:2] for row in rows[:3]] == [["1", "production"], ["1", "new"], ["2", "production"]]
        for i, (query, system, *numbers) in enumerate(rows):
            assert [float(x) for x in numbers] == [own[i // 2] for own in values[system].values()]
            assert query == str(1 + i // 2)
        done = run("evaluate", "d.txt", *call, "--per-query")
        (at,) = (i for i, x in enumerate(done.out.splitlines()) if x.startswith("query, map"))
        assert done.out.splitlines()[at + 2].split() == [
            "1",
            *(f"{values[system]['map'][0]:.4f}" for system in ("production", "new")),
        ]

    def test_queries_left_out_are_empty_fields(self, run, tmp_path):
        (tmp_path / "d.txt").write_text("1 qid:1 1:1 2:2\n0 qid:1 1:2 2:1\n0 qid:2 1:3 2:1\n")
        call = (tmp_path / "d.txt", "--feature", "1", "--feature", "2", "--empty", "skip", "--metrics", "mrr")
        done = run("evaluate", *call, "--csv", "-")
        assert done.out == "query,system,mrr\n1,feature:1,0.5\n1,feature:2,1.0\n2,feature:1,\n2,feature:2,\n"
        assert run("evaluate", *call).status == 0

    def test_models_with_other_features_each_read_their_own(self, run, parquet, folder, data, model):
        queries, _ = data
        part = Queries(queries.X[:, [2, 0]], queries.y, queries.qid, None, ("age", "title"))
        small = RegressionRanker().fit(part)
        small.save(folder / "small.model")
        call = ("--model", "small.model", "--model", "new.model", *METRICS, "--json", "-")
        record = json.loads(run("evaluate", parquet, "--scores", "@prod", *call).out)
        for own, ranker, own_queries in ((1, small, part), (2, model, queries)):
            means = sinkprop.evaluate(own_queries, ranker.predict(own_queries), metrics="ndcg@5,map")
            assert record["systems"][own]["metrics"] == dict(means)
        done = run("evaluate", parquet, "--model", "small.model", "--feature-columns", "age,title,body")
        assert (done.status, "unexpected 'body'" in done.error) == (1, True)

    def test_a_column_that_a_model_was_trained_on_stays_a_feature(self, run, parquet, folder, data):
        ranker = RegressionRanker().fit(with_column(*data))
        ranker.save(folder / "with.model")
        call = ("--scores", "production=@prod", "--model", "with.model", *METRICS, "--json", "-")
        record = json.loads(run("evaluate", parquet, *call).out)
        means = sinkprop.evaluate(data[0], ranker.predict(with_column(*data)), metrics="ndcg@5,map")
        assert record["systems"][1]["metrics"] == dict(means)

    def test_the_index_of_a_frame_is_no_feature(self, run, folder, data, model):
        pd = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        queries, scores = data
        frame = pd.DataFrame(queries.X, columns=list(NAMES))
        frame = frame.assign(qid=queries.qid, label=queries.y, prod=scores)
        frame.index = np.arange(len(frame))[::-1]
        frame.to_parquet(folder / "index.parquet")
        call = ("--scores", "production=@prod", "--model", "new.model", *METRICS, "--json", "-")
        record = json.loads(run("evaluate", "index.parquet", *call).out)
        assert record["differences"] == expected(data, model).record()["differences"]

    def test_scores_from_stdin(self, data, model, folder, monkeypatch):
        monkeypatch.chdir(folder)
        call = [
            "evaluate",
            "d.txt",
            "--scores",
            "production=-",
            "--model",
            "new.model",
            *METRICS,
            "--json",
            "-",
        ]
        done = CliRunner().invoke(cli.program(), call, input=(folder / "prod.txt").read_bytes())
        assert json.loads(done.stdout)["differences"] == expected(data, model).record()["differences"]
        unnamed = [text.replace("production=-", "-") for text in call]
        done = CliRunner().invoke(cli.program(), unnamed, input=(folder / "prod.txt").read_bytes())
        assert json.loads(done.stdout)["baseline"] == "stdin"

    def test_a_run_without_some_documents_and_a_query(self, run, folder, data, model):
        queries, scores = data
        lines = (folder / "prod.run").read_text().splitlines(keepends=True)
        kept = (queries.qid > 1) & (np.arange(180) % 4 > 0)
        text = "".join(line for line, keep in zip(lines, kept, strict=True) if keep)
        (folder / "part.run").write_text(text)
        call = ("--run", "production=part.run", "--model", "new.model", *METRICS, "--json", "-")
        done = run("evaluate", "d.txt", *call)
        assert one_line(done.error)
        assert f"{180 - kept.sum()} of 180 rows are not in part.run; they rank last" in done.error
        assert "1 query has no row in it and keeps the order of the data." in done.error
        found = expected((queries, np.where(kept, scores, -1e9)), model)
        assert json.loads(done.out)["differences"] == found.record()["differences"]

    def test_one_system_has_the_output_of_one(self, run, data, parquet):
        queries, scores = data
        single = sinkprop.evaluate(queries.y, scores, queries.qid, "ndcg@5,map")
        done = run("evaluate", parquet, "--scores", "production=@prod", *METRICS, "--json", "-")
        assert json.loads(done.out) == {
            "data": str(parquet),
            "ranked_by": "the column prod",
            "convention": "standard",
            "description": single.definition(),
            "queries": 20,
            "metrics": dict(single),
        }

    def test_a_name_is_not_part_of_a_path_that_exists(self, run, folder):
        (folder / "a=b.txt").write_text((folder / "prod.txt").read_text())
        call = ("--scores", "a=b.txt", "--scores", "other=a=b.txt", *METRICS, "--json", "-")
        record = json.loads(run("evaluate", "d.txt", *call).out)
        assert [own["name"] for own in record["systems"]] == ["a=b", "other"]


class TestReport:
    def report(self, folder, *arguments):
        call = ["report", *map(str, arguments), "-o", str(folder / "p.html"), "--json", "-", *METRICS]
        done = CliRunner().invoke(cli.program(), call)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    @pytest.mark.parametrize(
        ("file", "scores"), [("d.txt", "prod.txt"), ("d.parquet", "@prod"), ("d.queries", "prod.txt")]
    )
    def test_given_scores_beside_a_model(self, folder, parquet, data, model, file, scores, monkeypatch):
        monkeypatch.chdir(folder)
        page = self.report(folder, file, "--scores", f"production={scores}", "--model", "new.model")
        assert page["title"] == f"A saved model and given scores on {file}"
        assert page["against"] == "production"
        (own,) = page["datasets"]
        found = expected(data, model)
        assert own["means"] == found.means
        assert {k: tuple(v) for k, v in own["intervals"]["new"].items()} == found.intervals["new"]
        (test,) = (t for t in own["tests"] if t["metric"] == "map")
        theirs = found.difference("new", "map")
        assert (test["method"], test["against"]) == ("new", "production")
        assert test["randomization"] == theirs.randomization
        assert tuple(test["interval"]) == theirs.interval
        assert own["seconds"]["production"] == {"fit": None, "predict": None}
        assert list(own["weights"]) == ["new"]
        assert own["weights"]["new"]["features"] == (
            list(NAMES) if file != "d.txt" else own["weights"]["new"]["features"]
        )
        assert list(own["explorer"]["distributions"]) == ["new"]
        np.testing.assert_allclose(
            own["explorer"]["queries"][1]["scores"]["production"], data[1][9:18], rtol=0, atol=1e-5
        )
        assert {m["name"]: m["description"] for m in page["methods"]}["production"] == "given scores"

    def test_scores_alone_make_a_page(self, folder, data, monkeypatch):
        monkeypatch.chdir(folder)
        page = self.report(folder, "s.txt", "--scores", "@4", "--scores", "new=@1")
        assert page["title"] == "Given scores on s.txt"
        (own,) = page["datasets"]
        queries, scores = data
        assert own["means"]["4"] == dict(sinkprop.evaluate(queries, scores, metrics="ndcg@5,map"))
        assert own["explorer"]["distributions"] == {}
        assert own["about"].startswith("Given scores")
        assert (own["weights"], own["training"], own["calibration"]) == ({}, {}, {})

    def test_arrays_among_the_models_of_the_function(self, data, model):
        from sinkprop.report import models_report

        queries, scores = data
        rows = np.random.default_rng(0).permutation(len(scores))  # rows of a query need not be adjacent
        mixed = queries.take(rows)
        page = models_report({"new": model, "production": scores[rows]}, mixed, metrics="map")
        (own,) = page["datasets"]
        assert own["means"]["production"] == dict(sinkprop.evaluate(mixed, scores[rows], metrics="map"))
        first = mixed.groups.rows[: mixed.groups.offsets[1]]
        np.testing.assert_allclose(
            own["explorer"]["queries"][0]["scores"]["production"], scores[rows][first], rtol=0, atol=1e-5
        )
        with pytest.raises(ValueError, match=r"models\['p'\] must have one score per row: 180 rows, but 3"):
            models_report({"p": [1, 2, 3]}, queries)
        with pytest.raises(ValueError, match=r"models\['p'\]: "):
            models_report({"p": np.full(180, np.nan)}, queries)
        with pytest.raises(ValueError, match="at least one"):
            models_report({}, queries)


class TestErrors:
    @pytest.mark.parametrize("command", ["evaluate", "report"])
    @pytest.mark.parametrize(
        ("arguments", "status", "said"),
        [
            ("d.txt --scores short.txt", 1, "short.txt has 2 scores, but d.txt has 180 rows"),
            (
                "d.txt --scores a=bad.txt",
                1,
                "bad.txt, line 2: expected a score, one finite number per line; got",
            ),
            (
                "d.parquet --scores @prd",
                1,
                "--scores '@prd': d.parquet has no column 'prd'. Did you mean 'prod'?",
            ),
            ("d.parquet --scores @zzzz", 1, "has no column 'zzzz'. It has 'qid', 'prod', 'age'"),
            ("d.parquet --scores @docid", 1, "column 'docid' must hold numbers; it is"),
            ("holes.parquet --scores @prod", 1, "column 'prod' holds nan in row 7; expected a finite number"),
            ("d.txt --scores @4", 1, "--scores '@4': d.txt has the features 1 to 3."),
            ("d.txt --scores @body", 1, "--scores '@body': d.txt has the features 1 to 3."),
            ("s.queries --scores @prd", 1, "you can also give a column name. Did you mean 'prod'?"),
            ("d.txt --scores gone.txt", 2, "'gone.txt' does not exist"),
            ("d.txt --scores a=gone.txt", 2, "'gone.txt' does not exist"),
            ("d.txt --scores =prod.txt", 2, "the name is empty"),
            ("d.txt --scores @", 2, "expected @ and the name of a column"),
            ("d.txt --scores prod.txt --scores prod.txt", 2, "two systems are called 'prod'; name them"),
            ("d.txt --scores new=prod.txt --model new.model", 2, "two systems are called 'new'"),
            ("d.txt --scores - --scores b=-", 2, "only one system can be stdin"),
            ("- --scores -", 2, "cannot both be stdin"),
        ],
    )
    def test_one_line_and_nothing_written(self, run, folder, parquet, command, arguments, status, said):
        (folder / "short.txt").write_text("1\n2\n")
        (folder / "bad.txt").write_text("1\ninf\n")
        before = sorted(path.name for path in folder.iterdir())
        out = ("--json", "out.json") if command == "evaluate" else ("-o", "out.html")
        done = run(command, *arguments.split(), *out)
        assert (done.status, done.out) == (status, "")
        assert one_line(done.error)
        assert said in done.error
        assert sorted(path.name for path in folder.iterdir()) == before

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ("d.txt", "got none of them"),
            (
                "d.txt --model new.model --feature 1 --calibration",
                "--calibration takes one --model and nothing",
            ),
            ("d.txt --feature 1 --feature 1", "--feature '1' is given twice"),
            (
                "d.txt --model new.model --scores prod.txt --csv prod.txt",
                "--csv and --scores are the same file",
            ),
            ("d.txt --scores prod.txt --scores b=prod.txt --json prod.txt", "are the same file"),
            ("d.txt --feature 1 --feature 2 --json - --csv -", "--csv and --json are the same file"),
        ],
    )
    def test_wrong_use_of_evaluate(self, run, arguments, said):
        done = run("evaluate", *arguments.split())
        assert (done.status, done.out) == (2, "")
        assert one_line(done.error)
        assert said in done.error

    def test_clicks_take_one_model(self, run, click_logs):
        log = click_logs / "ab.parquet"
        done = run("evaluate", "--clicks", log, "--model", "new.model", "--model", "b=new.model")
        assert (done.status, "--clicks takes one --model; give the other as --baseline" in done.error) == (
            2,
            True,
        )
        done = run("evaluate", "--clicks", log, "--model", "new.model", "--scores", "prod.txt")
        assert (done.status, "--scores does not apply to click logs" in done.error) == (2, True)

    def test_a_report_without_systems_needs_a_comparison(self, run):
        done = run("report", "d.txt", "--metrics", "map")
        assert (done.status, "--metrics is for data with --model or --scores" in done.error) == (2, True)
