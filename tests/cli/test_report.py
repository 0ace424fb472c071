"""`sinkprop report`, and what `compare` and `demo` write for it: pages, and errors that harm nothing."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest
from click.testing import CliRunner
from fold_folders import contents, letor_text, write_data_set

import sinkprop
from sinkprop import cli
from sinkprop.baselines import RegressionRanker
from sinkprop.cli import demonstration as demo
from sinkprop.datasets import load_pydocs, pydocs_queries
from sinkprop.experiment import Comparison
from sinkprop.report import comparison_report, models_report

CHEAP = ("--methods", "regression,feature:1", "--jobs", "1")


def invoke(*arguments):
    return CliRunner().invoke(cli.program(), [*map(str, arguments)])


def failure(capsys, *arguments):
    """Exit code and the one line on stderr."""
    with pytest.raises(SystemExit) as exit_:
        cli.main([*map(str, arguments)])
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("sinkprop: ")
    assert error.count("\n") == 1
    return exit_.value.code, error


def shown(path):
    """The data in a page."""
    found = re.search(
        r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', path.read_text("utf-8"), re.S
    )
    return json.loads(found[1])


@pytest.fixture
def folder(tmp_path):
    """A data set, the JSON of a comparison on it, test queries, and a saved model."""
    write_data_set(tmp_path / "OHSUMED", n_folds=2)
    (tmp_path / "test.txt").write_text(letor_text(50, 4), "utf-8")
    train = sinkprop.load_letor(tmp_path / "OHSUMED" / "Fold1" / "train.txt")
    RegressionRanker().fit(train.X, train.y, qid=train.qid).save(tmp_path / "a.model")
    return tmp_path


@pytest.fixture
def results(folder):
    assert invoke("compare", folder / "OHSUMED", *CHEAP, "--json", folder / "r.json").exit_code == 0
    return folder / "r.json"


def test_help_teaches_by_example():
    output = invoke("report", "--help").output
    assert "sinkprop report test.txt --model my.model -o my-model.html" in output
    assert "--report" in invoke("compare", "--help").output
    assert "sinkprop report" in invoke().output


def test_a_comparison_and_its_json_make_the_same_page(folder, capsys):
    page, other, text = folder / "page.html", folder / "other.html", folder / "r.json"
    arguments = ["compare", folder / "OHSUMED", *CHEAP, "--report", page, "--json", text]
    with pytest.raises(SystemExit) as exit_:
        cli.main([*map(str, arguments)])
    assert exit_.value.code == 0
    assert f"Wrote {page}" in capsys.readouterr().out
    data = shown(page)
    assert data["command"] == "sinkprop " + " ".join(map(str, arguments))
    done = invoke("report", text, "-o", other, "--json", folder / "data.json")
    assert (done.exit_code, done.output) == (0, f"Wrote {other}\nWrote {folder / 'data.json'}\n")
    again = shown(other)
    assert again == json.loads((folder / "data.json").read_text("utf-8"))
    assert {**again, "command": data["command"]} == data
    assert again == comparison_report(Comparison.from_json(text.read_text("utf-8")))


def test_the_page_is_report_html_unless_told(results, monkeypatch):
    monkeypatch.chdir(results.parent)
    done = invoke("report", "r.json", "--title", "Our <search>")
    assert (done.exit_code, done.output) == (0, "Wrote report.html\n")
    assert shown(results.parent / "report.html")["title"] == "Our <search>"


def test_json_to_stdout_is_nothing_else(results):
    done = invoke("report", results, "-o", results.parent / "p.html", "--json", "-")
    assert json.loads(done.output)["format"] == "sinkprop-report"
    assert (results.parent / "p.html").is_file()
    arguments = ["report", "-", "-o", str(results.parent / "p.html"), "--json", "-"]
    again = CliRunner().invoke(cli.program(), arguments, input=results.read_bytes())
    assert again.output == done.output


def test_models_on_data(folder):
    (folder / "b=c.model").write_bytes((folder / "a.model").read_bytes())
    page = folder / "m.html"
    options = (
        "--model",
        f"ours={folder / 'a.model'}",
        "--model",
        folder / "b=c.model",
        "--metrics",
        "ndcg@3,map",
    )
    done = invoke("report", folder / "test.txt", *options, "--convention", "standard", "-o", page)
    assert done.exit_code == 0, done.output
    data = shown(page)
    queries = sinkprop.load_letor(folder / "test.txt")
    model = sinkprop.load_model(folder / "a.model")
    expected = models_report(
        {"ours": model, "b=c": model}, queries, metrics="ndcg@3,map", convention="standard", name="test.txt"
    )
    for one in (data, expected):
        for own in one["datasets"]:
            del own["seconds"]
    assert data == expected
    assert data["title"] == "2 saved models on test.txt"


def test_wrong_use_is_said_before_the_work_and_nothing_is_written(folder, results, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "text.json").write_text("{}", "utf-8")
    (folder / "narrow.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.1\n", "utf-8")
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    (folder / "dir.html").mkdir()
    before = contents(folder)
    model = ("--model", "a.model")
    for arguments, code, said in (
        (("report", "nothing.json"), 2, "nothing.json"),
        (("report", "text.json"), 1, "text.json: not a comparison that sinkprop wrote as JSON"),
        (("report", "test.txt"), 1, "give a saved model: --model"),
        (("report", "binary"), 1, "binary: not a comparison"),
        (("report", "r.json", "-o", "page.pdf"), 2, "must end in .html"),
        (("report", "r.json", "-o", "nowhere/p.html"), 2, "there is no folder 'nowhere'"),
        (("report", "r.json", "-o", "dir.html"), 2, "dir.html"),
        (("report", "r.json", "--json", "r.json"), 2, "--json and SOURCE are the same file"),
        (("report", "r.json", "--metrics", "map"), 2, "--metrics is for data with --model"),
        (("report", "r.json", "--n-features", "4"), 2, "--n-features is for data with --model"),
        (("report", "test.txt", "--model", "gone.model"), 2, "'gone.model' does not exist"),
        (("report", "test.txt", "--model", "x=gone.model"), 2, "'gone.model' does not exist"),
        (("report", "test.txt", *model, *model), 2, "two systems are called 'a'"),
        (("report", "test.txt", "--model", "=a.model"), 2, "the name is empty"),
        (("report", "test.txt", "--model", "test.txt"), 1, "test.txt"),
        (("report", "narrow.txt", *model), 1, "a.model was trained on 4 features, but narrow.txt has 1"),
        (("report", "test.txt", *model, "--metrics", "nonsense"), 2, "nonsense"),
        (("compare", "OHSUMED", "--report", "p.txt"), 2, "must end in .html"),
        (("compare", "OHSUMED", "--report", "nowhere/p.html"), 2, "there is no folder 'nowhere'"),
        (("compare", "OHSUMED", "--report", "-"), 2, "must end in .html"),
        (("compare", "OHSUMED", "--report", "p.html", "--json", "p.html"), 2, "are the same file"),
    ):
        status, error = failure(capsys, *arguments)
        assert (status, said in error) == (code, True), (arguments, status, error)
    assert contents(folder) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="rights do not bind this user")
def test_a_folder_that_cannot_be_written_is_said_first(results, capsys):
    closed = results.parent / "closed"
    closed.mkdir(mode=0o500)
    status, error = failure(capsys, "report", results, "-o", closed / "p.html")
    assert (status, "cannot be written" in error) == (2, True)


def test_a_model_of_named_columns_takes_them_by_name(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet files need pyarrow")
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=["words", "length"])
    frame["label"], frame["qid"] = rng.integers(0, 3, 40), np.repeat([1, 2, 3, 4], 10)
    X = frame[["words", "length"]]
    RegressionRanker().fit(X, frame["label"], qid=frame["qid"]).save(tmp_path / "m.model")
    swapped = frame[["length", "qid", "label", "words"]]
    swapped.to_parquet(tmp_path / "d.parquet")
    assert pq.read_schema(tmp_path / "d.parquet").names[0] == "length"
    done = invoke(
        "report", tmp_path / "d.parquet", "--model", tmp_path / "m.model", "-o", tmp_path / "p.html"
    )
    assert done.exit_code == 0, done.output
    (own,) = shown(tmp_path / "p.html")["datasets"]
    assert own["weights"]["m"]["features"] == ["words", "length"]
    expected = sinkprop.load_model(tmp_path / "m.model").predict(X)
    np.testing.assert_allclose(own["explorer"]["queries"][0]["scores"]["m"], expected[:10], atol=1e-5)


def test_the_report_of_the_demonstration_speaks_to_a_newcomer():
    fold = load_pydocs(1)
    small = sinkprop.Fold(
        fold.name,
        *(part.select(part.groups.queries[:8]) for part in (fold.train, fold.vali, fold.test)),
    )
    tested, texts = [demo.run_fold(small)], pydocs_queries()
    data = demo.report(tested, texts)
    (own,) = data["datasets"]
    results = demo.compare(tested)
    for method, means in own["means"].items():
        for metric, mean in means.items():
            assert mean == pytest.approx(results.means[method][metric], abs=1e-12)
    assert [q["name"] for q in own["queries"]] == [texts[q["id"]] for q in own["queries"]]
    assert [m["ours"] for m in data["methods"]] == [False, False, True]
    names = own["weights"]["SinkProp"]["features"]
    assert names == [demo.feature_in_words(name) for name in fold.test.feature_names]
    assert not any("_" in name for name in names)
    assert len(set(names)) == 50
    assert "rank probabilities" in own["about"]
    assert own["explorer"]["distributions"]["SinkProp"]["Fold1"]["own"]
    assert data["command"] == "sinkprop demo --fold 1"
