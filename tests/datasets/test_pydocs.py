"""The data set that ships with the package, and the formulas of the tool that makes it."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import lzma
import re
import subprocess
import sys
from importlib.resources import files
from math import log, log1p
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from places import ROOT

from sinkprop import Fold, Queries
from sinkprop.datasets import load_pydocs, pydocs_folds, pydocs_queries, write_pydocs

FOLDER = files("sinkprop.datasets") / "pydocs"
TOOL = ROOT / "tools" / "make_pydocs.py"
PARTS = [f"S{i}.txt.xz" for i in range(1, 6)]


@pytest.fixture(scope="module")
def folds() -> tuple[Fold, ...]:
    return pydocs_folds()


@pytest.fixture(scope="module")
def texts() -> list[bytes]:
    return [lzma.decompress((FOLDER / name).read_bytes()) for name in PARTS]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pydocs", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def rows_of(text: bytes) -> list[tuple[int, int, list[float], str]]:
    """Label, qid, values and docid of each line, read with a pattern of its own."""
    rows = []
    for line in text.decode().splitlines():
        match = re.fullmatch(r"([012]) qid:(\d+) (.*) #docid = (\S+)", line)
        pairs = [pair.split(":") for pair in match[3].split(" ")]
        assert [int(i) for i, _ in pairs] == list(range(1, 51))
        rows.append((int(match[1]), int(match[2]), [float(value) for _, value in pairs], match[4]))
    return rows


def table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def test_the_files_are_those_of_the_data_card() -> None:
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    sums = dict(re.findall(r"^([\w.]+) +([0-9a-f]{64})$", card, flags=re.MULTILINE))
    assert set(sums) == {*PARTS, "queries.tsv", "features.tsv"}
    for name, expected in sums.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == expected, name


def test_the_wheel_stays_small() -> None:
    assert sum(len(path.read_bytes()) for path in FOLDER.iterdir()) < 1_500_000


def test_the_loader_reads_what_the_parts_hold(folds: tuple[Fold, ...], texts: list[bytes]) -> None:
    for i, text in enumerate(texts):
        part = folds[(i + 1) % 5].test
        labels, qids, values, docids = zip(*rows_of(text), strict=True)
        np.testing.assert_array_equal(part.y, labels)
        np.testing.assert_array_equal(part.qid, qids)
        np.testing.assert_array_equal(part.X, values)
        assert part.docid.tolist() == list(docids)


def test_fold_f_trains_on_three_parts_and_tests_on_the_fifth(folds: tuple[Fold, ...]) -> None:
    part_of = {qid: (qid - 1) // 32 + 1 for qid in pydocs_queries()}

    def parts(queries: Queries) -> list[int]:
        return list(dict.fromkeys(part_of[qid] for qid in queries.groups.queries.tolist()))

    rotation = [(fold.name, parts(fold.train), parts(fold.vali), parts(fold.test)) for fold in folds]
    assert rotation == [
        ("Fold1", [1, 2, 3], [4], [5]),
        ("Fold2", [2, 3, 4], [5], [1]),
        ("Fold3", [3, 4, 5], [1], [2]),
        ("Fold4", [4, 5, 1], [2], [3]),
        ("Fold5", [5, 1, 2], [3], [4]),
    ]


@pytest.mark.parametrize("number", [1, 4, np.int64(5)])
def test_one_fold_is_the_same_as_among_all(number: int, folds: tuple[Fold, ...]) -> None:
    fold = load_pydocs(number)
    expected = folds[number - 1]
    assert fold.name == expected.name
    for name in ("train", "vali", "test"):
        one, other = getattr(fold, name), getattr(expected, name)
        assert one.feature_names == other.feature_names
        for field in ("X", "y", "qid", "docid"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


@pytest.mark.parametrize("bad", [0, 6, -1, 1.0, "1", None])
def test_a_fold_that_does_not_exist_is_explained(bad: object) -> None:
    with pytest.raises(
        ValueError, match=rf"^fold must be a whole number from 1 to 5; got {re.escape(repr(bad))}"
    ):
        load_pydocs(bad)


def test_features_are_named(folds: tuple[Fold, ...]) -> None:
    header, *rows = table("features.tsv")
    assert header == ["id", "name", "field", "formula"]
    assert [int(row[0]) for row in rows] == list(range(1, 51))
    names = tuple(row[1] for row in rows)
    assert len(set(names)) == 50
    assert {"name_tf", "signature_bm25", "summary_lm_jm", "body_lm_dir", "whole_lm_abs", "depth"} <= set(
        names
    )
    for fold in folds:
        assert fold.train.feature_names == fold.vali.feature_names == fold.test.feature_names == names


def test_queries_are_documented() -> None:
    header, *rows = table("queries.tsv")
    assert header == ["qid", "kind", "text"]
    assert [int(row[0]) for row in rows] == list(range(1, 161))
    for first in range(0, 160, 32):  # every part has the same share of each kind
        kinds = [kind for _, kind, _ in rows[first : first + 32]]
        assert (kinds.count("topical"), kinds.count("known")) == (20, 12)
    assert pydocs_queries() == {int(qid): text for qid, _, text in rows}
    assert len(set(pydocs_queries().values())) == 160


def test_every_query_can_be_trained_and_measured_on(folds: tuple[Fold, ...]) -> None:
    kinds = {int(qid): kind for qid, kind, _ in table("queries.tsv")[1:]}
    seen = 0
    for fold in folds:
        test = fold.test
        assert test.groups.rows is None  # a query's rows stand together
        for qid in test.groups.queries.tolist():
            query = test.select([qid])
            seen += 1
            assert 50 <= len(query) <= 200
            assert len(set(query.docid.tolist())) == len(query)
            assert set(query.y.tolist()) <= {0.0, 1.0, 2.0}
            n_best = int((query.y == 2).sum())
            assert n_best == 1 if kinds[qid] == "known" else n_best >= 1
            # LETOR's QueryLevelNorm: each feature from 0 to 1 within the query, or 0 throughout
            low, high = query.X.min(axis=0), query.X.max(axis=0)
            np.testing.assert_array_equal(low, 0)
            assert set(high.tolist()) <= {0.0, 1.0}
            assert high.sum() >= 20
    assert seen == 160


def test_the_order_of_the_file_says_nothing_of_the_grade(folds: tuple[Fold, ...]) -> None:
    # Ties are broken in file order: a constant scorer must do no better than chance, 0.085 on these grades.
    constant = np.concatenate([ndcg_at_10(fold.test, np.zeros(len(fold.test))) for fold in folds])
    assert constant.mean() < 0.12


def test_the_folder_is_laid_out_as_letor(tmp_path: Path, texts: list[bytes]) -> None:
    target = tmp_path / "new" / "pydocs"
    (tmp_path / "new").mkdir()
    assert write_pydocs(str(target)) == target
    files_written = sorted(path.relative_to(target).as_posix() for path in target.rglob("*.txt"))
    expected = [f"Fold{f}/{name}.txt" for f in range(1, 6) for name in ("test", "train", "vali")]
    assert files_written == [*expected, "PSF-LICENSE.txt"]
    for f in range(5):
        folder = target / f"Fold{f + 1}"
        assert (folder / "train.txt").read_bytes() == texts[f] + texts[(f + 1) % 5] + texts[(f + 2) % 5]
        assert (folder / "vali.txt").read_bytes() == texts[(f + 3) % 5]
        assert (folder / "test.txt").read_bytes() == texts[(f + 4) % 5]
    for name in ("README.md", "queries.tsv", "features.tsv"):
        assert (target / name).read_bytes() == (FOLDER / name).read_bytes()

    (target / "Fold2" / "vali.txt").write_text("changed")
    (target / "mine.txt").write_text("kept")
    write_pydocs(target)
    assert (target / "Fold2" / "vali.txt").read_bytes() == texts[4]
    assert (target / "mine.txt").read_text() == "kept"


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pydocs").write_text("")
    with pytest.raises(OSError, match="pydocs"):
        write_pydocs(tmp_path / "pydocs")


def test_the_module_needs_numpy_only() -> None:
    program = (
        "import sys, sinkprop.datasets as d; d.pydocs_queries();"
        "print({'scipy', 'sklearn', 'torch', 'pandas', 'click'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def ndcg_at_10(queries: Queries, scores: np.ndarray) -> np.ndarray:
    """NDCG@10 in LETOR's convention: gain 2^r - 1, discounts 1, 1, 1/log2(3), ..., ties in file order."""
    discounts = [1.0, 1.0, *(log(2) / log(k) for k in range(3, 11))]
    values = []
    for qid in queries.groups.queries.tolist():
        mine = [i for i, q in enumerate(queries.qid.tolist()) if q == qid]
        ranked = sorted(mine, key=lambda i: -scores[i])
        gained = [2 ** queries.y[i] - 1 for i in ranked]
        ideal = sorted(gained, reverse=True)
        values.append(
            sum(g * d for g, d in zip(gained, discounts, strict=False))
            / sum(g * d for g, d in zip(ideal, discounts, strict=False))
        )
    return np.array(values)


def test_least_squares_clearly_beats_bm25(folds: tuple[Fold, ...]) -> None:
    # The figures of the data card. They hold the data, the folds and the metric together.
    bm25, regression = [], []
    for fold in folds:
        train, test = fold.train, fold.test
        bm25.append(ndcg_at_10(test, test.X[:, train.feature_names.index("whole_bm25")]).mean())
        design = np.column_stack([train.X, np.ones(len(train))])
        weights = np.linalg.lstsq(design, train.y, rcond=None)[0]
        regression.append(ndcg_at_10(test, test.X @ weights[:-1]).mean())
    assert np.mean(bm25) == pytest.approx(0.5425, abs=5e-5)
    assert np.mean(regression) == pytest.approx(0.5953, abs=5e-5)
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^whole_bm25 .* 0\.5425 ", card, flags=re.MULTILINE)
    assert re.search(r"^least squares .* 0\.5953$", card, flags=re.MULTILINE)


def test_the_frozen_queries_and_grades_are_those_of_the_judgments(
    tool: ModuleType, texts: list[bytes]
) -> None:
    judged = {query.text: query for query in tool.read_judgments(tool.JUDGMENTS)}
    frozen = table("queries.tsv")[1:]
    assert {(text, kind) for _, kind, text in frozen} == {(q.text, q.kind) for q in judged.values()}
    query_of = {int(qid): judged[text] for qid, _, text in frozen}

    def grade(query: object, docid: str) -> int:
        best = 0
        for value, patterns in query.patterns.items():
            chosen = False
            for pattern in patterns:
                if fnmatch.fnmatchcase(docid, pattern.removeprefix("!")):
                    chosen = not pattern.startswith("!")
            best = max(best, value * chosen)
        return best

    for text in texts:
        for label, qid, _, docid in rows_of(text):
            expected = grade(query_of[qid], docid)
            if query_of[qid].kind == "known" and expected == 0:
                (target,) = query_of[qid].patterns[2]
                # a function stands in its module, a method in its class, and builtins have no prefix
                expected = int(docid == (target.rpartition(".")[0] or "builtins"))
            assert label == expected, (query_of[qid].text, docid)


# Three documents whose counts a reader can check: lengths 4, 2 and 0, so a mean length of 2.
DOCUMENTS = [["sort", "list", "sort", "key"], ["list", "copy"], []]


@pytest.fixture
def index(tool: ModuleType) -> object:
    return tool.Index.of(DOCUMENTS, vocabulary=4)


def test_index_counts(index: object) -> None:
    assert (index.n, index.total, index.mean_length, index.length) == (3, 6, 2.0, [4, 2, 0])
    assert (index.df["sort"], index.df["list"], index.df["absent"]) == (1, 2, 0)
    assert (index.cf["sort"], index.cf["list"], index.cf["absent"]) == (2, 2, 0)
    assert index.idf("sort") == pytest.approx(log(1 + 2.5 / 1.5))
    assert index.idf("list") == pytest.approx(log(1 + 1.5 / 2.5))
    # half an occurrence for each of the 4 words: (2 + 1/2) / (6 + 2)
    assert index.background("sort") == pytest.approx(2.5 / 8)
    assert index.background("copy") == pytest.approx(1.5 / 8)


def test_counting_features(tool: ModuleType, index: object) -> None:
    query = ["sort", "list"]
    assert [tool.sum_tf(index, d, query) for d in range(3)] == [3, 1, 0]
    sort, both = log(1 + 2.5 / 1.5), log(1 + 1.5 / 2.5)
    assert tool.sum_idf(index, 0, query) == pytest.approx(sort + both)
    assert tool.sum_idf(index, 1, query) == pytest.approx(both)
    assert tool.sum_idf(index, 2, query) == 0
    assert tool.tf_idf(index, 0, query) == pytest.approx(log(3) * sort + log(2) * both)
    assert [tool.coverage(index, d, query) for d in range(3)] == [1, 0.5, 0]
    assert [tool.field_length(index, d, query) for d in range(3)] == [log1p(4), log1p(2), 0]


def test_bm25(tool: ModuleType, index: object) -> None:
    query = ["sort", "list"]
    sort, both = log(1 + 2.5 / 1.5), log(1 + 1.5 / 2.5)
    # document 0 is twice as long as the mean: k1 (1 - b + 2 b) = 1.2 * 1.75 = 2.1
    assert tool.bm25(index, 0, query) == pytest.approx(sort * 2 * 2.2 / (2 + 2.1) + both * 2.2 / (1 + 2.1))
    # document 1 has the mean length: k1 = 1.2
    assert tool.bm25(index, 1, query) == pytest.approx(both * 2.2 / (1 + 1.2))
    assert tool.bm25(index, 2, query) == 0
    assert tool.bm25(index, 0, ["absent"]) == 0


def test_jelinek_mercer(tool: ModuleType, index: object) -> None:
    query = ["sort", "list"]
    p = 2.5 / 8
    assert tool.lm_jelinek_mercer(index, 0, query) == pytest.approx(
        log(0.5 * 2 / 4 + 0.5 * p) + log(0.5 * 1 / 4 + 0.5 * p)
    )
    assert tool.lm_jelinek_mercer(index, 1, query) == pytest.approx(log(0.5 * p) + log(0.5 / 2 + 0.5 * p))
    assert tool.lm_jelinek_mercer(index, 2, query) == pytest.approx(2 * log(0.5 * p))


def test_dirichlet(tool: ModuleType, index: object) -> None:
    query = ["sort", "list"]
    p, mu = 2.5 / 8, 2.0
    assert tool.lm_dirichlet(index, 0, query) == pytest.approx(log((2 + mu * p) / 6) + log((1 + mu * p) / 6))
    assert tool.lm_dirichlet(index, 1, query) == pytest.approx(log(mu * p / 4) + log((1 + mu * p) / 4))
    assert tool.lm_dirichlet(index, 2, query) == pytest.approx(2 * log(p))


def test_absolute_discounting(tool: ModuleType, index: object) -> None:
    query = ["sort", "list"]
    p = 2.5 / 8
    # document 0 has 3 different words among 4, document 1 has 2 among 2
    assert tool.lm_absolute(index, 0, query) == pytest.approx(
        log((1.3 + 0.7 * 3 * p) / 4) + log((0.3 + 0.7 * 3 * p) / 4)
    )
    assert tool.lm_absolute(index, 1, query) == pytest.approx(
        log(0.7 * 2 * p / 2) + log((0.3 + 0.7 * 2 * p) / 2)
    )
    assert tool.lm_absolute(index, 2, query) == pytest.approx(2 * log(p))


@pytest.mark.parametrize("model", ["lm_jelinek_mercer", "lm_dirichlet", "lm_absolute"])
@pytest.mark.parametrize("d", [0, 1])
def test_a_smoothed_model_is_a_distribution(tool: ModuleType, index: object, model: str, d: int) -> None:
    words = ["sort", "list", "key", "copy"]
    probabilities = [np.exp(getattr(tool, model)(index, d, [word])) for word in words]
    assert sum(probabilities) == pytest.approx(1)


def test_query_level_norm(tool: ModuleType) -> None:
    rows = [[1.0, 5.0, -3.0], [3.0, 5.0, -3.0 - 1e-15], [2.0, 5.0, -3.0]]
    assert tool.query_level_norm(rows) == [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.0]]
    assert tool.query_level_norm([[7.0, -1.0]]) == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("collections.Counter.most_common", ["collection", "counter", "most", "common"]),
        ("getElementsByTagName", ["get", "element", "tag", "name"]),
        ("IPv4Address ipv4 BytesIO XMLReader", ["ipv4", "address", "ipv4", "byte", "io", "xml", "reader"]),
        ("The matches of a MATCH are matched, 3 x", ["match", "match", "match"]),
        ("", []),
    ],
)
def test_words(tool: ModuleType, text: str, words: list[str]) -> None:
    assert tool.tokens(text) == words


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("f", "Do it.\n\nMore.", ([], "Do it.", "More.")),
        ("f", "f(a, b=None) -> int", (["a", "b"], "int", "")),
        ("f", "C.f(a) -- do it\nmore", (["a"], "do it", "more")),
        ("f", "f(a) --> x\nf(b) --> y\n\nDo it.", (["a", "b"], "Do it.", "")),
        ("f", "f() -> (a,\n        b)\n\nDo it.", ([], "Do it.", "")),
        ("f", "g(a) is called.", ([], "g(a) is called.", "")),
        ("f", "", ([], "", "")),
    ],
)
def test_docstrings(tool: ModuleType, name: str, text: str, expected: tuple) -> None:
    assert tool.split_docstring(name, text) == expected


def collection(tool: ModuleType, *docids: str) -> object:
    """Documents that are their own names, each in the module or class before its last dot."""
    documents = []
    for docid in sorted(docids):
        parent = docid.rpartition(".")[0] or docid
        words = dict.fromkeys(("signature", "summary", "body"), ()) | {"name": tuple(tool.tokens(docid))}
        words["whole"] = words["name"]
        kind = "module" if parent == docid else "function"
        documents.append(tool.Document(docid, kind, docid.split(".")[0], parent, words, 0, ""))
    return tool.Collection(documents)


def test_grades_of_patterns(tool: ModuleType) -> None:
    library = collection(tool, "heap", "heap.push", "heap.pop", "queue", "queue.pop", "queue.put")

    def graded(kind: str, **patterns: str) -> dict[str, int]:
        query = tool.Query(kind, "text", {int(g[1]): tuple(p.split()) for g, p in patterns.items()})
        return {library.documents[d].docid: g for d, g in tool.grades(query, library).items()}

    assert graded("topical", g2="heap.*", g1="*.pop") == {"heap.push": 2, "heap.pop": 2, "queue.pop": 1}
    assert graded("topical", g2="*.* !queue.*") == {"heap.push": 2, "heap.pop": 2}
    assert graded("known", g2="queue.put", g1="heap.push") == {"queue.put": 2, "heap.push": 1, "queue": 1}
    assert graded("known", g2="queue") == {"queue": 2}
    with pytest.raises(ValueError, match=r"no document matches 'heap\.pusch'"):
        graded("topical", g2="heap.pusch")
    with pytest.raises(ValueError, match="a known item is one document, not 2"):
        graded("known", g2="heap.*")


@pytest.mark.parametrize(
    "text",
    ["topical: no grades", "other: kind\n2 a", "topical: only ones\n1 a", "topical: a grade of 3\n3 a\n2 b"],
)
def test_malformed_judgments_are_refused(tool: ModuleType, tmp_path: Path, text: str) -> None:
    path = tmp_path / "judgments.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"judgments.txt: not a query"):
        tool.read_judgments(path)


def test_a_query_judged_twice_is_refused(tool: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "judgments.txt"
    path.write_text("# a remark\n\ntopical: sort\n2 a\n\nknown: sort\n2 b\n")
    with pytest.raises(ValueError, match=r"twice: \['sort'\]"):
        tool.read_judgments(path)


def test_a_pool_holds_what_the_query_could_find_and_more(tool: ModuleType) -> None:
    names = [f"m{i % 10}x.word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(400)]
    library = collection(tool, "heap", "heap.push", "heap.lift", "tree.raise", *names)
    query = tool.Query("topical", "push a heap", {2: ("heap.push",), 1: ("tree.raise",)})
    graded = tool.grades(query, library)
    rows = tool.pool(query, graded, library)
    assert rows == tool.pool(query, graded, library)
    assert 50 <= len(rows) == len(set(rows)) <= 200
    pooled = {library.documents[d].docid for d in rows}
    assert {"heap", "heap.push", "heap.lift"} <= pooled
    # tree.raise shares no word with the query: it is drawn as any other document, not put in
    texts = [f"push a heap {i}" for i in range(40)]
    drawn = sum(
        library.number["tree.raise"]
        in tool.pool(tool.Query("topical", text, query.patterns), graded, library)
        for text in texts
    )
    assert 0 < drawn < 30
