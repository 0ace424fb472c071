"""The commands on data with missing values: text, Parquet and stored sets, for linear models."""

import numpy as np
import pytest

from sinkprop import cli, load_model

FAST = ["--penalty", "1e-3", "--selection", "validation"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same rows as LETOR text with NULL, as Parquet with nulls and as CSV with empty fields."""
    pa = pytest.importorskip("pyarrow", reason="Parquet and stored sets need pyarrow")
    from pyarrow import parquet

    folder = tmp_path_factory.mktemp("missing")
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(120, 3)).astype(np.float32), np.repeat(np.arange(12), 10)
    y = np.digitize(X @ [1, 1, 0] + rng.normal(size=120), [0, 1.5])
    X[rng.random(X.shape) < [0.3, 0, 0.5]] = np.nan
    text, csv = [], ["qid,label,bm25,title,year"]
    for label, q, row in zip(y.tolist(), qid.tolist(), X, strict=True):
        values = ["" if np.isnan(x) else str(x) for x in row]
        text.append(f"{label} qid:{q} " + " ".join(f"{i}:{x or 'NULL'}" for i, x in enumerate(values, 1)))
        csv.append(",".join([str(q), str(label), *values]))
    (folder / "a.txt").write_text("\n".join(text) + "\n")
    (folder / "a.csv").write_text("\n".join(csv) + "\n")
    columns = dict(zip(("bm25", "title", "year"), (pa.array(x, from_pandas=True) for x in X.T), strict=True))
    parquet.write_table(pa.table({"qid": qid, "label": y, **columns}), folder / "a.parquet")
    assert run("convert", folder / "a.csv", "--out", folder / "a.queries", "--allow-nan") == 0
    return folder


def run(*arguments):
    with pytest.raises(SystemExit) as done:
        cli.main([str(a) for a in arguments])
    return done.value.code


@pytest.mark.parametrize("method", ["sinkprop", "regression"])
def test_missing_values_go_the_whole_way(folder, tmp_path, capfd, method):
    options = ["--method", method, *(FAST if method == "sinkprop" else [])]
    weights, scores = [], []
    for name in ("a.parquet", "a.txt", "a.queries"):
        model = tmp_path / "m.model"
        assert run("train", folder / name, "--model", model, *options) == 0
        ranker = load_model(model)
        assert ranker.missing_.indicators.tolist() == [0, 2]
        weights.append(ranker.coef_)
        capfd.readouterr()
        assert run("predict", model, folder / name) == 0
        scores.append(np.array(capfd.readouterr().out.split(), dtype=float))
        assert run("evaluate", folder / name, "--model", model, "--json", tmp_path / "e.json") == 0
    for others in (weights, scores):
        np.testing.assert_allclose(others, others[:1] * 3, rtol=1e-5, atol=1e-5)


def test_missing_values_can_be_refused(folder, tmp_path, capfd):
    for name, said in (
        ("a.parquet", r"column 'bm25'"),
        ("a.txt", "NULL"),
        ("a.queries", "some features of the set are NaN (missing)"),
    ):
        capfd.readouterr()
        assert run("train", folder / name, "--model", tmp_path / "m.model", "--missing", "error", *FAST) == 1
        error = capfd.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_a_report_shows_the_weights_of_indicators(folder, tmp_path):
    from sinkprop.data.frames import load_parquet
    from sinkprop.report import models_report

    assert run("train", folder / "a.parquet", "--model", tmp_path / "m.model", *FAST) == 0
    ranker = load_model(tmp_path / "m.model")
    data = models_report({"m": ranker}, load_parquet(folder / "a.parquet", allow_nan=True))
    weights = data["datasets"][0]["weights"]["m"]
    assert weights["features"] == ["bm25", "title", "year", "missing(bm25)", "missing(year)"]
    (own,) = weights["folds"].values()
    np.testing.assert_allclose(own, ranker.coef_ / np.abs(ranker.coef_).sum(), rtol=1e-3)
    page = tmp_path / "page.html"
    assert run("report", folder / "a.parquet", "--model", tmp_path / "m.model", "--out", page) == 0
    assert "missing(bm25)" in page.read_text()
