"""TREC diversity qrels: topics, intents and labels, their order, compressed files and errors."""

from __future__ import annotations

import dataclasses
import gzip
import io
import lzma
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sinkprop import evaluate
from sinkprop.data.diversity_qrels import load_diversity_qrels

TEXT = """201 10 doc-a 1
201 2 doc-a 0
201 2 doc-b 2
7 1 doc-a -2
7 1  doc-c\t1

"""


def test_topics_intents_and_labels() -> None:
    qrels = load_diversity_qrels(io.StringIO(TEXT))
    assert qrels.topics == ("201", "7")
    assert qrels.intents == ("1", "2", "10")  # as numbers, of all topics
    assert qrels.documents == (("201", "doc-a"), ("201", "doc-b"), ("7", "doc-a"), ("7", "doc-c"))
    assert (qrels.n_topics, qrels.n_intents) == (2, 3)
    np.testing.assert_array_equal(qrels.values, [[0, 0, 1], [0, 2, 0], [0, 0, 0], [1, 0, 0]])
    assert repr(qrels) == "DiversityQrels(2 topics, 3 intents, 4 labeled documents)"
    one = load_diversity_qrels(io.BytesIO(b"1 1 a 0"))
    assert repr(one) == "DiversityQrels(1 topic, 1 intent, 1 labeled document)"


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["3", "10", "2"], ("2", "3", "10")),
        (["3", "10", "b"], ("10", "3", "b")),
        (["0", "-1", "1"], ("-1", "0", "1")),
        (["b", "a"], ("a", "b")),
    ],
)
def test_order_of_intents(names: list[str], order: tuple[str, ...]) -> None:
    qrels = load_diversity_qrels(io.StringIO("".join(f"1 {name} d 1\n" for name in names)))
    assert qrels.intents == order


@pytest.mark.parametrize(
    "qid",
    [
        [201, 7, 201, 201, 7],
        ["201", "7", "201", "201", "7"],
        np.array([201, 7, 201, 201, 7], np.int32),
        np.array([201.0, 7, 201, 201, 7]),
        np.array(["201", 7, 201, "201", 7], object),
        np.array([b"201", b"7", b"201", b"201", b"7"]),
    ],
)
def test_labels_of_rows(qid: Any) -> None:
    qrels = load_diversity_qrels(io.StringIO(TEXT))
    labels = qrels.labels(qid, ["doc-b", "doc-c", "doc-a", "doc-c", "doc-z"])
    assert labels.dtype == np.float64
    # doc-c is labeled for topic 7 only, and doc-z for none
    np.testing.assert_array_equal(labels, [[0, 2, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    labels[0] = 5  # a copy
    assert qrels.values.max() == 2


def test_rows_of_unknown_topics_are_zero_beside_known_ones() -> None:
    qrels = load_diversity_qrels(io.StringIO(TEXT))
    np.testing.assert_array_equal(qrels.labels([7, 9], ["doc-c", "doc-c"]), [[1, 0, 0], [0, 0, 0]])
    assert qrels.labels([], []).shape == (0, 3)


def test_labels_are_for_evaluate() -> None:
    qrels = load_diversity_qrels(io.StringIO(TEXT))
    qid, docid = [201, 201, 7], ["doc-a", "doc-b", "doc-c"]
    found = evaluate(qrels.labels(qid, docid), [2, 1, 1], qid, "alphandcg@2,erria@1")
    assert found == {
        "alphandcg@2": 1,
        "erria@1": 3 / 4,
    }  # topic 201: one of two intents at rank 1; topic 7: 1


def test_compressed_files(tmp_path: Path) -> None:
    plain = load_diversity_qrels(io.StringIO(TEXT))
    data = TEXT.encode()
    crlf = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")  # with a byte order mark
    for name, content in {
        "a.txt": data,
        "a.gz": gzip.compress(data),
        "a.xz": lzma.compress(data),
        "crlf.txt": crlf,
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        found = load_diversity_qrels(path)
        assert (found.topics, found.intents, found.documents) == (
            plain.topics,
            plain.intents,
            plain.documents,
        )
        np.testing.assert_array_equal(found.values, plain.values)


def test_a_value_that_does_not_change_and_can_be_pickled() -> None:
    qrels = load_diversity_qrels(io.StringIO(TEXT))
    with pytest.raises(dataclasses.FrozenInstanceError):
        qrels.topics = ()  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        qrels.values[0, 0] = 1
    again = pickle.loads(pickle.dumps(qrels))
    np.testing.assert_array_equal(again.labels([201], ["doc-b"]), [[0, 2, 0]])


def test_a_repeated_line_is_allowed() -> None:
    qrels = load_diversity_qrels(io.StringIO("1 1 a 1\n1 2 a 0\n1 1 a 1\n"))
    np.testing.assert_array_equal(qrels.values, [[1, 0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "qrels.txt: the file holds no labels; expected lines 'topic intent document label'."),
        ("\n \n", "qrels.txt: the file holds no labels"),
        (
            "1 1 a 1\n\n1 1 a\n",
            "qrels.txt, line 3: expected four fields, 'topic intent document label'; got 3. "
            "The line: '1 1 a'.",
        ),
        ("1 Q0 a 1 0.5 run\n", "qrels.txt, line 1: expected four fields"),
        (
            "1 1 a 1\n1 1 b 0.5\n",
            "qrels.txt, line 2: expected a label that is an integer, not above 2^53; got '0.5'. The line: "
            "'1 1 b 0.5'.",
        ),
        ("1 1 a x\n", "qrels.txt, line 1: expected a label that is an integer, not above 2^53; got 'x'."),
        ("1 1 a 1_0\n", "got '1_0'."),
        ("1 1 a 99999999999999999\n", "got '99999999999999999'."),
        (
            "1 1 a 1\n1 2 a 0\n1 1 a 0\n",
            "qrels.txt, line 3: the label 0 of topic 1, intent 1, document a differs from the label 1 on "
            "line 1. Remove one of the lines.",
        ),
    ],
)
def test_malformed_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "qrels.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        load_diversity_qrels(path)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "qrels.gz"
    path.write_bytes(gzip.compress(TEXT.encode())[:-12])
    with pytest.raises(ValueError, match="damaged or cut off"):
        load_diversity_qrels(path)


@pytest.mark.parametrize(
    ("qid", "docid", "message"),
    [
        ([201], None, "docid must have one id per row, (N,); got None."),
        (201, ["doc-a"], "qid must have one id per row, (N,); got ()."),
        ([[201]], ["doc-a"], "qid must have one id per row, (N,); got (1, 1)."),
        ([201, 7], ["doc-a"], "docid must have one document id per row of qid: 2 rows, but 1 ids."),
        ([201.0, 0.5], ["doc-a", "doc-b"], "qid must hold integers or texts; row 1 holds 0.5."),
        ([201.0, np.nan], ["doc-a", "doc-b"], "qid must hold integers or texts; row 1 holds nan."),
        (
            ["wt-201"],
            ["doc-a"],
            "qid must hold topics of the qrels, such as '201'; got none of them, but 'wt-201'. Convert",
        ),
        (np.ma.array([201, 7], mask=[0, 1]), ["doc-a", "doc-b"], "qid must not have masked entries"),
    ],
)
def test_ids_that_are_wrong(qid: Any, docid: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        load_diversity_qrels(io.StringIO(TEXT)).labels(qid, docid)
