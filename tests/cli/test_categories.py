"""Commands on data with missing values and categories: trees accept them without options."""

from dataclasses import replace

import numpy as np
import pytest
from category_frames import SITES, features, frame
from program import run_here

from sinkprop.registry import load_model
from sinkprop.store import open_queries

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("lightgbm", reason="lightgbm is not installed")

TREES = ("--method", "boosted", "--trees", "8", "--threads", "1")


@pytest.fixture
def run(capfd):
    def call(*arguments):
        done = run_here(capfd, *arguments)
        # train and convert say which columns of a table are features
        kept = [line for line in done.error.splitlines(keepends=True) if " are features: " not in line]
        return replace(done, error="".join(kept))

    return call


@pytest.fixture
def folder(tmp_path, run):
    """Parquet with a column of text, and boosted trees that were trained on it."""
    rows = frame(pd).assign(lang=lambda f: np.where(f["label"] > 1, "de", "fr"))
    rows.to_parquet(tmp_path / "text.parquet", index=False)
    rows.drop(columns=["lang", "size"]).to_parquet(tmp_path / "a.parquet", index=False)
    rows.astype({"size": str}).to_csv(tmp_path / "a.csv", index=False)
    done = run("train", tmp_path / "a.parquet", "--model", tmp_path / "a.model", *TREES)
    assert (done.status, done.error) == (0, "")
    return tmp_path


def test_train_evaluate_predict_and_report_without_options(folder, run):
    data, model = folder / "a.parquet", folder / "a.model"
    ranker = load_model(model)
    assert ranker.categories_ == {"site": SITES}
    rows = pd.read_parquet(data)
    scores = [float(line) for line in run("predict", model, data).out.split()]
    assert scores == ranker.predict(features(rows)).tolist()
    assert run("evaluate", data, "--model", model).status == 0
    done = run("report", data, "--model", model, "-o", folder / "a.html")
    assert (done.status, done.error) == (0, "")
    assert "site" in (folder / "a.html").read_text("utf-8")
    validated = run("train", data, "--vali", data, "--model", folder / "v.model", *TREES)
    assert (validated.status, validated.error) == (0, "")


def test_stored_sets_go_the_same_way(folder, run):
    stored, model = folder / "a.queries", folder / "a.model"
    done = run("convert", folder / "a.parquet", "-o", stored, "--allow-nan")
    assert (done.status, done.error) == (0, "")
    assert "1 feature has categories" in done.out
    assert run("train", stored, "--model", folder / "s.model", *TREES).error == ""
    expected = run("predict", model, folder / "a.parquet").out
    for saved in (model, folder / "s.model"):
        assert run("predict", saved, stored).out == expected
    assert run("evaluate", stored, "--model", model).status == 0
    assert run("report", stored, "--model", model, "-o", folder / "s.html").error == ""
    for feature, message in (("site", "the feature has categories"), ("bm25", "have no value (NaN)")):
        done = run("evaluate", stored, "--feature", feature)
        assert (done.status, message in done.error) == (1, True)


def test_text_is_named_once(folder, run):
    data, model = folder / "text.parquet", folder / "t.model"
    done = run("train", data, "--model", model, *TREES)
    assert done.status == 1
    assert "column 'lang' must hold numbers" in done.error
    assert "read it as categories with --categorical" in done.error
    assert run("train", data, "--model", model, *TREES, "--categorical", "lang").status == 0
    done = run("predict", model, data)  # the model knows which columns hold categories
    assert (done.status, done.error) == (0, "")
    assert run("evaluate", data, "--model", model).status == 0
    assert run("report", data, "--model", model, "-o", folder / "t.html").status == 0
    done = run("train", data, "--model", model, *TREES, "--categorical", "long")
    assert "--categorical 'long' is not a feature column" in done.error


def test_csv_through_convert(folder, run):
    out, columns = folder / "c.queries", "site,size,lang"
    done = run("convert", folder / "a.csv", "-o", out, "--categorical", columns)
    assert (done.status, "--allow-nan" in done.error) == (1, True)
    done = run("convert", folder / "a.csv", "-o", out, "--categorical", columns, "--allow-nan")
    assert (done.status, done.error) == (0, "")
    assert open_queries(out).categories["lang"] == ("de", "fr")
    assert run("train", out, "--model", folder / "c.model", *TREES).status == 0
    # the order of "size" is known in Parquet only, but categories are matched by value
    done = run("predict", folder / "c.model", folder / "text.parquet")
    assert (done.status, done.error) == (0, "")
    assert done.out == run("predict", folder / "c.model", out).out
    done = run("predict", folder / "c.model", out, "--categorical", "lang")
    assert (done.status, "--categorical applies only to files" in done.error) == (2, True)


def test_unknown_categories_are_noted_once(folder, run):
    rows = pd.read_parquet(folder / "a.parquet")
    rows["site"] = rows["site"].cat.rename_categories({"docs": "shop"})
    rows.to_parquet(folder / "new.parquet", index=False)
    from sinkprop.store import convert

    stored = convert(folder / "new.parquet", folder / "new.queries", allow_nan=True, block_bytes=1000)
    assert stored.n_blocks > 3
    for data in ("new.parquet", "new.queries"):
        done = run("predict", folder / "a.model", folder / data)
        assert done.status == 0
        assert done.error.count("'shop' of 'site'") == 1


def test_other_methods_say_what_to_do(folder, run):
    done = run("train", folder / "a.parquet", "--model", folder / "l.model", "--method", "regression")
    assert (done.status, "the feature 'site' holds categories" in done.error) == (1, True)


def test_missing_values_of_letor_text(tmp_path, run):
    lines = [f"{i % 3} qid:{i // 6} 1:{'NULL' if i % 5 == 0 else i % 3} 2:{i % 7}" for i in range(120)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    model = tmp_path / "a.model"
    assert run("train", tmp_path / "a.txt", "--model", model, *TREES).error == ""
    assert run("predict", model, tmp_path / "a.txt").error == ""
    assert run("evaluate", tmp_path / "a.txt", "--model", model).error == ""


def test_export_and_its_check(folder, run):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model, data = folder / "a.model", folder / "a.parquet"
    done = run("export", model, "--to", "onnx", "-o", folder / "a.onnx", "--check", data)
    assert (done.status, "Same order in all" in done.out) == (0, True)
    done = run("export", model, "--to", "solr", "-o", folder / "a.json", "--missing", "nan")
    assert (done.status, "the trees split 'site' by sets of categories" in done.error) == (1, True)
