"""Stored sets with categories: Parquet, CSV and queries in memory, the manifest, and older readers."""

import json

import numpy as np
import pytest
from category_frames import SITES, SIZES, frame
from numpy.testing import assert_array_equal

from sinkprop.data.frames import load_frame
from sinkprop.data.queries import Queries
from sinkprop.store import StoreError, convert, open_queries, save_queries
from sinkprop.store import format as store_format

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture(scope="module")
def rows():
    return frame(pd, 20)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_parquet_csv_and_queries_give_the_same_set(rows, tmp_path):
    queries = load_frame(rows, allow_nan=True)
    rows.to_parquet(tmp_path / "a.parquet", index=False, row_group_size=50)
    rows.astype({"size": str}).to_csv(tmp_path / "a.csv", index=False)
    small = {"block_bytes": 1000, "allow_nan": True}
    sets = [
        convert(tmp_path / "a.parquet", tmp_path / "a.queries", **small),
        convert(tmp_path / "a.csv", tmp_path / "b.queries", categorical=["site", "size"], **small),
        save_queries(tmp_path / "c.queries", queries, block_bytes=1000),
    ]
    assert sets[0].n_blocks > 3
    for stored in (sets[0], sets[2]):
        assert stored.categories == {"site": SITES, "size": SIZES}
        assert stored.ordered == ("size",)
        assert_array_equal(stored.load().X, queries.X.astype(np.float32))
        for part in (stored.load(), stored.block(1), stored.take([3, 1]), open_queries(stored.path).block(0)):
            assert (part.categories, part.ordered) == (stored.categories, stored.ordered)
    # CSV cannot say that categories have an order
    assert (sets[1].categories, sets[1].ordered) == ({"site": SITES, "size": tuple(sorted(SIZES))}, ())
    assert_array_equal(sets[1].load().X[:, :2], queries.X[:, :2].astype(np.float32))
    assert len({stored.digest for stored in sets}) == 2
    assert sets[0].digest == sets[2].digest


def test_versions_of_the_format(rows, tmp_path, monkeypatch):
    queries = load_frame(rows, allow_nan=True)
    numbers = Queries(queries.X[:, :1], queries.y, queries.qid, None, ("bm25",), allow_nan=True)
    plain = save_queries(tmp_path / "plain.queries", numbers)
    save_queries(tmp_path / "with.queries", queries)
    assert (plain.categories, plain.ordered) == ({}, ())
    assert [manifest(tmp_path / f"{name}.queries")["version"] for name in ("plain", "with")] == [2, 2]
    monkeypatch.setattr(store_format, "FORMAT_VERSION", 1)  # a reader that does not know categories
    with pytest.raises(StoreError, match="the set has format version 2"):
        open_queries(tmp_path / "with.queries")


@pytest.mark.parametrize(
    "change",
    [
        {"categories": {"other": ["a"]}},
        {"categories": {"site": [["a"]]}},
        {"categories": {"site": ["a", "a"]}},
        {"categories": ["site"]},
        {"ordered": ["bm25"]},
    ],
    ids=str,
)
def test_a_manifest_with_wrong_categories(rows, tmp_path, change):
    stored = save_queries(tmp_path / "a.queries", load_frame(rows, allow_nan=True))
    record = {**manifest(stored.path), **change}
    lines = "".join(f"  {json.dumps(k)}: {json.dumps(v)},\n" for k, v in record.items() if k != "sha256")
    text = f"{{\n{lines}".encode()
    digest = store_format.hashlib.sha256(text).hexdigest()
    (stored.path / "manifest.json").write_bytes(text + f'  "sha256": "{digest}"\n}}\n'.encode())
    with pytest.raises(StoreError, match="not a manifest that sinkprop"):
        open_queries(stored.path)


def test_categories_of_several_files_and_a_resumed_conversion(rows, tmp_path, monkeypatch):
    parts = [rows[rows["qid"] < 9], rows[rows["qid"] >= 9]]
    parts[0] = parts[0].assign(site=parts[0]["site"].cat.remove_categories(["docs"]))
    files = []
    for i, part in enumerate(parts):
        files.append(tmp_path / f"{i}.parquet")
        part.to_parquet(files[-1], index=False)
    options = {"allow_nan": True, "block_bytes": 500, "part_bytes": 2000}
    whole = convert(files, tmp_path / "a.queries", **options)
    assert whole.categories["site"] == SITES
    expected = load_frame(
        pd.concat(parts).assign(site=lambda f: f["site"].astype("category")), allow_nan=True
    )
    assert_array_equal(whole.load().X, expected.X.astype(np.float32))

    from sinkprop.store import writer

    end, done = writer.SetWriter._end_part, []

    def stopped(self):
        end(self)
        done.append(self)
        if len(done) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(writer.SetWriter, "_end_part", stopped)
    with pytest.raises(KeyboardInterrupt):
        convert(files, tmp_path / "b.queries", **options)
    monkeypatch.setattr(writer.SetWriter, "_end_part", end)
    again = convert(files, tmp_path / "b.queries", **options)
    assert (again.path / "manifest.json").read_bytes() == (whole.path / "manifest.json").read_bytes()


def test_errors_name_the_column_and_the_row(rows, tmp_path):
    rows = rows.assign(lang="en", bm25=1.0)
    rows.loc[7, "site"] = None
    rows.to_parquet(tmp_path / "a.parquet", index=False)
    rows.to_csv(tmp_path / "a.csv", index=False)
    out = tmp_path / "a.queries"
    with pytest.raises(ValueError, match=r"column 'lang' must hold numbers.*categorical=\[\.\.\.\]"):
        convert(tmp_path / "a.parquet", out, allow_nan=True)
    with pytest.raises(ValueError, match=r"column 'size' must hold numbers; line 2 .*categorical=\[\.\.\.\]"):
        convert(tmp_path / "a.csv", out, allow_nan=True)
    row = int(np.argmax(rows["site"].isna()))
    for file, place in (("a.parquet", f"row {row}"), ("a.csv", f"line {row + 2}")):
        with pytest.raises(ValueError, match=f"column 'site' has no value in {place}. .*allow_nan=True"):
            convert(tmp_path / file, out, categorical=["site", "lang", "size"])
    with pytest.raises(ValueError, match="categorical= is for CSV and Parquet"):
        convert(__file__, out, categorical=["site"])
    reordered = rows.assign(size=rows["size"].cat.reorder_categories(SIZES[::-1]), qid=rows["qid"] + 100)
    reordered.to_parquet(tmp_path / "b.parquet", index=False)
    with pytest.raises(
        ValueError, match=r"b\.parquet: column 'size' has ordered categories, but not the same"
    ):
        convert([tmp_path / "a.parquet", tmp_path / "b.parquet"], out, allow_nan=True, categorical=["lang"])
    assert not out.exists()


def test_queries_with_other_categories_in_one_set(rows, tmp_path):
    first = load_frame(rows, allow_nan=True)
    other = rows.assign(site=rows["site"].cat.rename_categories({"wiki": "shop"}), qid=rows["qid"] + 100)
    with pytest.raises(ValueError, match="queries must have the same categories"):
        save_queries(tmp_path / "a.queries", [first, load_frame(other, allow_nan=True)])
