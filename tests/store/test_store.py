"""Stored sets: what is converted reads back as the in-memory readers have it, a block at a time."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stored_mutations import as_version_1, read_set, with_checksums, write_set, written

import sinkprop
from sinkprop.data import Queries
from sinkprop.store import StoredQueries, StoreError, convert, is_stored, open_queries, save_queries
from sinkprop.store.format import rows_schema

pa = pytest.importorskip("pyarrow", reason="stored sets are Arrow files")

SIZES = (3, 1, 40, 2, 7, 90, 5, 5, 11, 1)


def some_queries(*, names: bool = False, seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Queries:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    numbers = rng.permutation(len(sizes)) + 1
    ids = np.array([f"Q-{number}" for number in numbers]) if names else numbers
    X = rng.normal(size=(n, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.3] = 0
    docid = np.array([f"d{i}" for i in range(n)])
    return Queries(X, rng.integers(0, 4, n).astype(float), np.repeat(ids, sizes), docid)


def same(found: Queries, expected: Queries) -> None:
    """Equal in every field, types included."""
    for name in ("X", "y", "qid", "docid"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype.kind == b.dtype.kind, name
            assert a.dtype == b.dtype or a.dtype.kind == "U", name
            np.testing.assert_array_equal(a, b, err_msg=name)
    np.testing.assert_array_equal(found.groups.queries, expected.groups.queries)
    np.testing.assert_array_equal(found.groups.offsets, expected.groups.offsets)
    assert found.groups.rows is None
    assert found.groups.longest == expected.groups.longest
    assert found.feature_names == expected.feature_names


@pytest.fixture(params=[False, True], ids=["numbers", "names"])
def letor(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    sinkprop.save_letor(path, some_queries(names=request.param))
    return path


@pytest.fixture
def stored(letor: Path, tmp_path: Path) -> StoredQueries:
    return convert(letor, tmp_path / "train.queries", block_bytes=600, part_bytes=500)


def test_a_stored_set_reads_back_as_the_reader_in_memory_has_it(stored: StoredQueries, letor: Path) -> None:
    expected = sinkprop.load_letor(letor, dtype=np.float32)
    same(stored.load(), expected)
    assert len(stored) == stored.n_rows == len(expected)
    assert (stored.n_queries, stored.n_features) == (expected.n_queries, expected.n_features)
    assert stored.longest == max(SIZES)
    np.testing.assert_array_equal(stored.sizes, SIZES)
    np.testing.assert_array_equal(stored.offsets, expected.groups.offsets)
    np.testing.assert_array_equal(stored.query_ids, expected.groups.queries)
    np.testing.assert_array_equal(stored.labels(), expected.y)
    assert len(stored.manifest.parts) > 2
    assert is_stored(stored.path)
    stored.verify()


def test_blocks_are_whole_queries_in_order(stored: StoredQueries, letor: Path) -> None:
    expected = sinkprop.load_letor(letor, dtype=np.float32)
    blocks = list(stored.blocks())
    assert len(blocks) == stored.n_blocks > 3
    row = 0
    for b, block in enumerate(blocks):
        first, last = stored.block_queries[b : b + 2]
        same(block, expected.take(np.arange(row, row + len(block))))
        np.testing.assert_array_equal(block.groups.queries, stored.query_ids[first:last])
        assert block.X.dtype == np.float32
        assert block.X.ctypes.data % 64 == 0
        same(stored.block(b), block)
        row += len(block)
    assert row == len(stored)
    some = list(stored.blocks(1, 3, ahead=0))
    assert [len(block) for block in some] == [len(block) for block in blocks[1:3]]


def test_queries_are_taken_by_number_in_the_order_asked_for(stored: StoredQueries, letor: Path) -> None:
    expected = sinkprop.load_letor(letor, dtype=np.float32)
    numbers = [7, 0, 9, 5, 0]
    offsets = expected.groups.offsets
    rows = np.concatenate([np.arange(offsets[q], offsets[q + 1]) for q in numbers])
    found = stored.take(numbers)
    np.testing.assert_array_equal(found.X, expected.X[rows])
    np.testing.assert_array_equal(found.y, expected.y[rows])
    np.testing.assert_array_equal(found.qid, expected.qid[rows])
    np.testing.assert_array_equal(found.docid, expected.docid[rows])
    np.testing.assert_array_equal(np.diff(found.groups.offsets), stored.sizes[numbers])


def test_a_set_is_pickled_by_its_path(stored: StoredQueries) -> None:
    data = pickle.dumps(stored)
    assert len(data) < 1000
    again = pickle.loads(data)
    same(again.load(), stored.load())
    assert again.digest == stored.digest


def test_the_size_of_blocks_and_parts_changes_no_row(letor: Path, tmp_path: Path) -> None:
    one = convert(letor, tmp_path / "one.queries")
    many = convert(letor, tmp_path / "many.queries", block_bytes=1, part_bytes=1)
    assert one.n_blocks == 1
    assert many.n_blocks == many.n_queries == len(many.manifest.parts)
    same(one.load(), many.load())


def test_the_names_are_there_without_an_import_of_pyarrow() -> None:
    assert sinkprop.open_queries is open_queries
    assert sinkprop.StoredQueries is StoredQueries


def test_a_part_is_mapped_again_when_many_are_open(
    letor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sinkprop.store import stored as module

    convert(letor, tmp_path / "many.queries", block_bytes=1, part_bytes=1)
    monkeypatch.setattr(module, "_OPEN_PARTS", 2)
    stored = open_queries(tmp_path / "many.queries")
    held = [stored.block(b) for b in range(stored.n_blocks)]
    assert len(stored._parts) == 2
    np.testing.assert_array_equal(np.concatenate([block.X for block in held]), stored.load().X)


def test_numbers_of_blocks_and_queries_are_checked(stored: StoredQueries) -> None:
    with pytest.raises(IndexError, match="b must be the number of a block"):
        stored.block(stored.n_blocks)
    with pytest.raises(IndexError, match="start and stop must be from 0 to"):
        stored.blocks(2, 1)
    with pytest.raises(IndexError, match="numbers must be from 0 to 9; got 3 to 10"):
        stored.take([3, 10])
    with pytest.raises(ValueError, match="numbers must be a sequence of one or more"):
        stored.take([])


def test_a_loop_that_ends_early_leaves_no_thread(stored: StoredQueries) -> None:
    import threading

    for block in stored.blocks():
        assert len(block)
        break
    blocks = stored.blocks(ahead=3)
    next(blocks)
    blocks.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sinkprop-read")]


# Damage


def change_byte(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def rewrite_manifest(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    """The manifest changed by someone who knows how to keep it whole."""
    path = folder / "manifest.json"
    record = json.loads(path.read_bytes())
    change(record)
    path.write_bytes(written(record))


def other_part(folder: Path, n_features: int) -> None:
    """The first part replaced by one of other features, with the manifest told of it."""
    write_set(folder, as_version_1(read_set(folder)))
    path = folder / "part-00000.arrow"
    schema = rows_schema(n_features, "int64", True)
    row = {"features": [0.0] * n_features, "label": 0.0, "qid": 1, "docid": "a"}
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([row], schema=schema))
    write_set(folder, with_checksums(read_set(folder)))


def no_arrow_file(folder: Path) -> None:
    path = folder / "part-00000.arrow"
    path.write_bytes(bytes(path.stat().st_size))
    write_set(folder, with_checksums(read_set(folder)))


def set_version(record: dict[str, object]) -> None:
    record["version"] = 3


def lose_rows(record: dict[str, object]) -> None:
    record["rows"] -= 1


def lose_a_field(record: dict[str, object]) -> None:
    del record["longest"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


OPENING_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "part missing": (lambda f: (f / "part-00001.arrow").unlink(), r"part-00001\.arrow: the file is missing"),
    "part cut off": (
        lambda f: cut(f / "part-00001.arrow"),
        r"part-00001\.arrow: the file has .*: it is cut off",
    ),
    "part longer": (
        lambda f: (f / "part-00001.arrow").write_bytes((f / "part-00001.arrow").read_bytes() + b"x"),
        r"part-00001\.arrow: the file has .*: it is not the one that was written",
    ),
    "index missing": (lambda f: (f / "queries.arrow").unlink(), r"queries\.arrow: the file is missing"),
    "no manifest": (
        lambda f: (f / "manifest.json").unlink(),
        r"not a stored set: the folder has no manifest",
    ),
    "empty manifest": (
        lambda f: (f / "manifest.json").write_text(""),
        r"manifest\.json: not the manifest of",
    ),
    "cut manifest": (
        lambda f: cut(f / "manifest.json"),
        r"manifest\.json: the manifest is damaged or cut off",
    ),
    "changed manifest": (
        lambda f: change_byte(f / "manifest.json", 120),
        r"manifest\.json: the manifest is damaged",
    ),
    "newer": (
        lambda f: rewrite_manifest(f, set_version),
        r"the set has format version 3, but sinkprop .* reads versions up to 2",
    ),
    "wrong count": (
        lambda f: rewrite_manifest(f, lose_rows),
        r"the file is complete, but not a manifest that sinkprop",
    ),
    "a field less": (lambda f: rewrite_manifest(f, lose_a_field), r"not a manifest .*KeyError: 'longest'"),
    "other features": (
        lambda f: other_part(f, 9),
        r"part-00000\.arrow: the part has 9 features, but the set has 5",
    ),
    "other blocks": (
        lambda f: other_part(f, 5),
        r"part-00000\.arrow: the part has 1 blocks, but the manifest",
    ),
    "no Arrow file": (no_arrow_file, r"part-00000\.arrow: not an Arrow file"),
}


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    sinkprop.save_letor(tmp_path / "n.txt", some_queries())
    return convert(tmp_path / "n.txt", tmp_path / "n.queries", block_bytes=300, part_bytes=500).path


@pytest.mark.parametrize("fault", OPENING_FAULTS)
def test_a_set_that_is_not_whole_is_named_when_it_is_opened(numbered: Path, fault: str) -> None:
    damage, message = OPENING_FAULTS[fault]
    damage(numbered)
    with pytest.raises(StoreError, match=message) as found:
        open_queries(numbered)
    assert "\n" not in str(found.value)
    assert str(numbered) in str(found.value)


def test_a_changed_byte_is_found_by_the_checksums(numbered: Path) -> None:
    name = "part-00001.arrow"
    at = open_queries(numbered).manifest.parts[1].blocks[0].sums.features
    change_byte(numbered / name, at)
    stored = open_queries(numbered)
    with pytest.raises(StoreError, match=rf"{name}: the file is damaged: its SHA-256 is .*Convert the data"):
        stored.verify()
    with pytest.raises(StoreError, match="the file is damaged"):
        open_queries(numbered, verify=True)
    change_byte(numbered / name, at)
    told: list[tuple[int, int, str]] = []
    stored.verify(progress=lambda *arguments: told.append(arguments), n_threads=2)
    assert told[-1][0] == told[-1][1] == sum(size for _, size, _ in stored.manifest.files)


def test_a_path_that_is_no_set_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        open_queries(tmp_path / "nothing")
    (tmp_path / "file.txt").write_text("1 qid:1 1:1\n")
    with pytest.raises(StoreError, match=r"file\.txt: a file, but a stored set is a folder"):
        open_queries(tmp_path / "file.txt")
    assert not is_stored(tmp_path)
    assert not is_stored(tmp_path / "file.txt")


def test_a_set_that_was_converted_again_is_not_taken_for_the_one_that_was_pickled(
    stored: StoredQueries, letor: Path
) -> None:
    data = pickle.dumps(stored)
    convert(letor, stored.path, n_features=8, overwrite=True)
    with pytest.raises(StoreError, match="the set has changed since it was pickled"):
        pickle.loads(data)


# Memory


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is told by /proc")
def test_the_memory_of_a_pass_does_not_grow_with_the_set(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((4000, 128), dtype=np.float32)  # 2 MB, eighty times over
    parts = (Queries(X, np.zeros(4000), np.repeat(np.arange(40) + 40 * i, 100)) for i in range(80))
    stored = save_queries(tmp_path / "big.queries", parts, block_bytes=2 << 20, part_bytes=30 << 20)
    code = textwrap.dedent(
        """
        import sys
        from sinkprop.store import open_queries

        def resident():
            lines = open("/proc/self/status").read().splitlines()
            return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) >> 10

        stored = open_queries(sys.argv[1])
        sizes, most = stored.sizes, 0
        next(stored.blocks()).X.sum()
        before = resident()
        for _ in range(2):
            for block in stored.blocks():
                block.X.sum()
                most = max(most, resident())
        labels = stored.labels()
        print(most - before, resident() - before)
        """
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(stored.path)], capture_output=True, text=True, check=True
    )
    most, after = map(int, found.stdout.split())
    size = sum(part.bytes for part in stored.manifest.parts) >> 20
    assert size > 150
    assert most < 40
    assert after < 20


# Rankers


def test_rankers_give_a_stored_set_the_numbers_of_its_rows_in_memory(numbered: Path) -> None:
    from sinkprop.baselines import RegressionRanker
    from sinkprop.linear.ranker import SinkPropRanker

    stored = open_queries(numbered)
    rows = stored.load()
    weight = np.linspace(1, 2, stored.n_queries)
    rankers = [RegressionRanker(normalization=kind, metric="err@5") for kind in ("none", "query", "standard")]
    rankers.append(
        SinkPropRanker(relaxation=sinkprop.PartitionedMeasure("logit-logistic"), max_iter=2, annealing=None)
    )
    for ranker in rankers:
        ranker.fit(rows.X, rows.y, qid=rows.qid)
        for given in (stored, numbered, str(numbered)):
            np.testing.assert_array_equal(ranker.predict(given), ranker.predict(rows.X, qid=rows.qid))
        np.testing.assert_array_equal(ranker.rank(stored), ranker.rank(rows.X, qid=rows.qid))
        assert ranker.score(stored) == ranker.score(rows.X, rows.y, qid=rows.qid)
        weighted = ranker.score(rows.X, rows.y, qid=rows.qid, query_weight=weight)
        assert ranker.score(stored, query_weight=weight) == weighted
        by_id = dict(zip(stored.query_ids.tolist(), weight.tolist(), strict=True))
        assert ranker.score(stored, query_weight=by_id) == weighted


def test_what_does_not_fit_a_ranker_is_said_before_the_first_block(tmp_path: Path) -> None:
    from sinkprop.baselines import RegressionRanker

    rows = some_queries()
    named = Queries(rows.X, rows.y, rows.qid, None, ("a", "b", "c", "d", "e"))
    swapped = [1, 0, 2, 4, 3]
    names = tuple(named.feature_names[i] for i in swapped)
    other = Queries(rows.X[:, swapped], rows.y, rows.qid, None, names)
    ranker = RegressionRanker().fit(named.X, named.y, qid=named.qid)
    stored = save_queries(tmp_path / "a.queries", other)
    with pytest.raises(ValueError, match=r"qid is already in the stored set .*a\.queries"):
        ranker.predict(stored, qid=rows.qid)
    with pytest.raises(ValueError, match=r"y is already in the stored set"):
        ranker.score(stored, rows.y)
    with pytest.raises(ValueError, match="score needs y"):
        ranker.score(rows.X, qid=rows.qid)
    ranker.feature_names_in_ = np.array(named.feature_names, dtype=object)
    np.testing.assert_array_equal(
        ranker.rank(stored), ranker.rank(save_queries(tmp_path / "b.queries", named))
    )
    short = save_queries(tmp_path / "c.queries", Queries(rows.X[:, :4], rows.y, rows.qid))
    with pytest.raises(ValueError, match=r"c\.queries has 4 features, but RegressionRanker is expecting 5"):
        ranker.predict(short)
    strange = Queries(rows.X, rows.y, rows.qid, None, ("a", "b", "c", "d", "z"))
    with pytest.raises(ValueError, match=r"not those of the model; only one of them has 'e'"):
        ranker.predict(save_queries(tmp_path / "d.queries", strange))
    (tmp_path / "nan.csv").write_text("qid,label,a,b,c,d,e\n1,0,1,2,,4,5\n")
    missing = convert(tmp_path / "nan.csv", tmp_path / "e.queries", allow_nan=True)
    with pytest.raises(ValueError, match=r"e\.queries: some features of the set are NaN.*RegressionRanker"):
        ranker.set_params(missing="error").predict(missing)


@pytest.mark.parametrize("metrics", ["ndcg@3,map,err@5", "mrr,p@2"])
@pytest.mark.parametrize("options", [{}, {"empty": "skip", "ties": "average"}, {"max_grade": 7.0}])
def test_blocks_are_evaluated_as_all_rows_are(
    numbered: Path, metrics: str, options: dict[str, object]
) -> None:
    from sinkprop.metrics.evaluation import evaluate_blocks

    stored = open_queries(numbered)
    rows = stored.load()
    scores = np.round(np.random.default_rng(1).normal(size=len(rows)), 1)
    expected = sinkprop.evaluate(rows.y, scores, rows.qid, metrics, **options)
    ends = stored.block_rows
    found = evaluate_blocks(
        (
            (labels, scores[ends[b] : ends[b + 1]], groups)
            for b, (labels, groups) in enumerate(stored.labels_by_block())
        ),
        stored.query_ids,
        stored.largest_label,
        metrics,
        **options,
    )
    assert dict(found) == pytest.approx(dict(expected), rel=1e-14)
    assert found.describe() == expected.describe()
    np.testing.assert_array_equal(found.queries, expected.queries)
    for name, values in expected.per_query.items():
        # the sums of a query may be taken in another order where it stands elsewhere in an array
        np.testing.assert_allclose(found.per_query[name], values, rtol=1e-14, atol=0)


def test_rankers_that_load_a_set_check_it_and_keep_its_names(tmp_path: Path) -> None:
    from sinkprop.baselines import RegressionRanker

    rows = some_queries()
    names, order = ("a", "b", "c", "d", "e"), [4, 3, 2, 1, 0]
    train = save_queries(tmp_path / "train.queries", Queries(rows.X, rows.y, rows.qid, None, names))
    turned = Queries(rows.X[:, order], rows.y, rows.qid, None, tuple(names[i] for i in order))
    vali = save_queries(tmp_path / "vali.queries", turned)
    ranker = RegressionRanker(penalty=[0.1, 1.0]).fit(train, eval_set=[vali])
    assert ranker.feature_names_in_.tolist() == list(names)
    expected = RegressionRanker(penalty=[0.1, 1.0]).fit(
        rows.X, rows.y, qid=rows.qid, eval_set=[(rows.X, rows.y)], eval_qid=[rows.qid]
    )
    np.testing.assert_array_equal(ranker.coef_, expected.coef_)
    change_byte(vali.path / "part-00000.arrow", 2000)
    with pytest.raises(StoreError, match=r"vali\.queries.part-00000\.arrow: the file is damaged"):
        RegressionRanker().fit(train, eval_set=[vali])
    (tmp_path / "bare.csv").write_text("qid,a\n1,2\n1,3\n")
    bare = convert(tmp_path / "bare.csv", tmp_path / "bare.queries", label=None)
    with pytest.raises(ValueError, match=r"bare\.queries: the set was converted without labels"):
        RegressionRanker().fit(bare)


# Commands


def program(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    pytest.importorskip("click", reason="the command line comes with the extra cli")
    pytest.importorskip("rich", reason="the command line comes with the extra cli")
    from sinkprop.cli import main

    with pytest.raises(SystemExit) as done:
        main([str(word) for word in words])
    told = capsys.readouterr()
    return int(done.value.code or 0), told.out, told.err


@pytest.fixture
def model(numbered: Path, tmp_path: Path) -> Path:
    from sinkprop.baselines import RegressionRanker

    rows = open_queries(numbered).load()
    RegressionRanker().fit(rows.X, rows.y, qid=rows.qid).save(tmp_path / "m.model")
    return tmp_path / "m.model"


def test_predict_writes_what_the_rows_in_memory_get(
    numbered: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = save_queries(tmp_path / "one.queries", open_queries(numbered).load()).path
    assert open_queries(one).n_blocks == 1
    assert open_queries(numbered).n_blocks > 3
    ranker = sinkprop.load_model(model)
    expected = "".join(f"{score!r}\n" for score in ranker.predict(one).tolist())
    assert program(capsys, "predict", model, numbered) == (0, expected, "")
    for form in ("scores", "ranks", "trec"):
        out = tmp_path / f"{form}.txt"
        assert program(capsys, "predict", model, numbered, "--format", form, "--out", out) == (0, "", "")
        assert out.read_text() == program(capsys, "predict", model, one, "--format", form)[1]


def test_evaluate_prints_what_the_rows_in_memory_get(
    numbered: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = open_queries(numbered).load()
    sinkprop.save_letor(tmp_path / "rows.txt", rows)
    scores, run = tmp_path / "scores.txt", tmp_path / "trec.run"
    program(capsys, "predict", model, numbered, "--out", scores)
    program(capsys, "predict", model, numbered, "--format", "trec", "--out", run)
    for by in (("--model", model), ("--scores", scores), ("--run", run), ("--feature", 2)):
        words = (*by, "--metrics", "ndcg@3,err@5", "--per-query", "--json", "-")
        found = program(capsys, "evaluate", numbered, *words)
        expected = program(capsys, "evaluate", tmp_path / "rows.txt", *words)
        assert found[0] == 0
        assert found[1].replace("n.queries", "rows.txt") == expected[1]


def test_a_damaged_or_unfit_set_is_one_line_of_the_command(
    numbered: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, error = program(capsys, "predict", model, numbered, "--n-features", 4)
    assert (status, out) == (2, "")
    assert "--n-features applies only to files" in error
    status, out, error = program(capsys, "evaluate", tmp_path, "--model", model)
    assert status == 2
    assert "is a folder but not a stored set" in error
    (tmp_path / "bare.csv").write_text("qid,a\n1,2\n")
    convert(tmp_path / "bare.csv", tmp_path / "bare.queries", label=None)
    status, out, error = program(capsys, "evaluate", tmp_path / "bare.queries", "--feature", 1)
    assert (status, out) == (1, "")
    assert "was converted without labels" in error
    status, out, error = program(capsys, "report", numbered)
    assert (status, out) == (1, "")
    assert "To report on data, give a saved model: --model FILE" in error
    cut(numbered / "part-00001.arrow")
    status, out, error = program(capsys, "predict", model, numbered)
    assert (status, out) == (1, "")
    assert error.startswith(f"sinkprop: {numbered / 'part-00001.arrow'}: the file has")
    assert error.count("\n") == 1


# Comparisons


def test_methods_are_compared_on_stored_folds_as_on_rows_in_memory(tmp_path: Path) -> None:
    from sinkprop.experiment import compare, find_data_sets

    folder = tmp_path / "data" / "Fold1"
    folder.mkdir(parents=True)
    parts = {}
    for seed, name in enumerate(("train", "vali", "test")):
        parts[name] = some_queries(seed=seed, sizes=(12, 9, 14, 11, 8))
        sinkprop.save_letor(folder / f"{name}.txt", parts[name])
        save_queries(folder / f"{name}.queries", parts[name], block_bytes=600)
    (found,) = find_data_sets(tmp_path / "data")
    assert [path.name for path in found.folds[0].paths] == ["train.queries", "vali.queries", "test.queries"]
    options = {"methods": "regression,sinkprop-best", "metrics": "ndcg@3,err@3", "n_jobs": 1}
    streamed = compare(found.folds, **options)
    expected = compare([sinkprop.Fold("Fold1", *parts.values())], **options)
    assert streamed.means("data") == expected.means("data")
    for ours, theirs in zip(streamed.results, expected.results, strict=True):
        assert ours.queries == theirs.queries
        assert ours.details.scores == theirs.details.scores
        assert ours.details.weights["values"] == pytest.approx(theirs.details.weights["values"], rel=1e-6)
    change_byte(folder / "vali.queries" / "part-00000.arrow", 2000)
    with pytest.raises(StoreError, match=r"vali\.queries.part-00000\.arrow: the file is damaged"):
        compare(found.folds, **options)
    shutil.rmtree(folder / "train.queries")
    (mixed,) = find_data_sets(tmp_path / "data")
    assert [path.name for path in mixed.folds[0].paths] == ["train.txt", "vali.queries", "test.queries"]
