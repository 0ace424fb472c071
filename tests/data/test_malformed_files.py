"""Malformed and legal files: `load_letor` and `convert` refuse the same ones, with one message."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sinkprop import Queries, load_letor
from sinkprop.store import convert

pytest.importorskip("pyarrow", reason="stored sets are Arrow files")

GOOD = "2 qid:1 1:0.5 2:1 #docid = a\n0 qid:1 1:0.25 2:0\n"
DATA = (GOOD + "1 qid:2 1:3 2:4\n").encode()


def with_line_3(line: str | bytes) -> bytes:
    """Two legal lines, the line, and one more legal line."""
    return GOOD.encode() + (line if isinstance(line, bytes) else line.encode()) + b"\n1 qid:2 1:1 2:1\n"


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as writer:
        writer.writestr("train.txt", DATA)
    return file.getvalue()


# Line 3 of four, and the reason in the message
LINES: dict[str, tuple[str | bytes, str]] = {
    "no label": ("qid:2 1:1", "must begin with its label"),
    "only features": ("1:1 2:1", "must begin with its label"),
    "label a word": ("good qid:2 1:1", "is not a finite decimal number"),
    "label NaN": ("NaN qid:2 1:1", "is not a finite decimal number"),
    "label inf": ("inf qid:2 1:1", "is not a finite decimal number"),
    "label with a decimal comma": ("1,5 qid:2 1:1", "is not a finite decimal number"),
    "label hexadecimal": ("0x2 qid:2 1:1", "is not a finite decimal number"),
    "label negative": ("-1 qid:2 1:1", "is below 0"),
    "label past 2^53": ("99999999999999999999 qid:2 1:1", "is too large; the largest label is 2^53"),
    "label overflows": ("1e400 qid:2 1:1", "is too large; the largest label is 2^53"),
    "label twice": ("1 1 qid:2 1:1", "expected a qid directly after the label"),
    "label alone": ("1", "expected a qid directly after the label"),
    "qid missing": ("1 1:1", "expected a qid directly after the label"),
    "qid in capitals": ("1 QID:2 1:1", "expected a qid directly after the label"),
    "qid empty": ("1 qid: 1:1", "is neither a whole number"),
    "qid with a decimal point": ("1 qid:2.0 1:1", "is neither a whole number"),
    "qid negative": ("1 qid:-2 1:1", "is neither a whole number"),
    "qid digits, then letters": ("1 qid:2b 1:1", "is neither a whole number"),
    "qid not ASCII": ("1 qid:ü 1:1", "is neither a whole number"),
    "qid past 64 bits": ("1 qid:9223372036854775808 1:1", "is past the largest query id"),
    "qid a name among numbers": ("1 qid:two 1:1", "is a name, but the lines before have whole numbers"),
    "qid twice": ("1 qid:2 qid:2 1:1", "a second qid"),
    "qid at the end": ("1 qid:2 1:1 qid:2", "a second qid"),
    "id zero": ("1 qid:2 0:1", "pass zero_based=True"),
    "id negative": ("1 qid:2 -1:1", "is below 1"),
    "id with a sign": ("1 qid:2 +1:1", "is not a whole number"),
    "id with a decimal point": ("1 qid:2 1.0:1", "is not a whole number"),
    "id a name": ("1 qid:2 bm25:1", "is not a whole number"),
    "id missing": ("1 qid:2 :1", "is not a whole number"),
    "id past 64 bits": ("1 qid:2 99999999999999999999:1", "is too large for any matrix"),
    "id twice": ("1 qid:2 1:1 1:2", "is there twice"),
    "ids fall": ("1 qid:2 2:1 1:2", "is not above the one before"),
    "ids fall from a large one": ("1 qid:2 900000000000:1 1:2", "is not above the one before"),
    "value missing": ("1 qid:2 1: 2:1", "is missing"),
    "value NaN": ("1 qid:2 1:NaN", "pass null=0"),
    "value inf": ("1 qid:2 1:inf", "is not a finite decimal number"),
    "value overflows": ("1 qid:2 1:1e400", "is too large for float32"),
    "value overflows float32": ("1 qid:2 1:1e39", "is too large for float32"),
    "value NULL": ("1 qid:2 1:NULL", "pass null=0"),
    "value with a decimal comma": ("1 qid:2 1:0,5", "is not a finite decimal number"),
    "value with two points": ("1 qid:2 1:0.5.5", "is not a finite decimal number"),
    "value hexadecimal": ("1 qid:2 1:0x1p3", "is not a finite decimal number"),
    "value with an underscore": ("1 qid:2 1:1_000", "is not a finite decimal number"),
    "value with a broken exponent": ("1 qid:2 1:1e", "is not a finite decimal number"),
    "value in per cent": ("1 qid:2 1:50%", "is not a finite decimal number"),
    "value of two numbers": ("1 qid:2 1:2:3", "is not a finite decimal number"),
    "space before the value": ("1 qid:2 1: 2", "is missing"),
    "space before the colon": ("1 qid:2 1 :2", "expected a feature, id:value"),
    "extra word": ("1 qid:2 1:1 title 2:1", "expected a feature, id:value"),
    "extra number": ("1 qid:2 1:1 0.5", "expected a feature, id:value"),
    "semicolons": ("1 qid:2 1:1; 2:1;", "is not a finite decimal number"),
    "line of CSV": ("1,2,0.5,0.25", "is not a finite decimal number"),
    "header": ("label qid f1 f2", "is not a finite decimal number"),
    "NUL in a value": ("1 qid:2 1:0.\0005", "is not a finite decimal number"),
    "NUL in a comment": ("1 qid:2 1:1 # a\0b", "a zero byte"),
    "carriage return in a comment": ("1 qid:2 1:1 # a\r0 qid:2 1:1", "a carriage return within the line"),
    "carriage returns end lines": ("1 qid:2 1:1\r0 qid:2 1:1", "is not a finite decimal number"),
    "form feed": ("1 qid:2 1:1\f2:1", "is not a finite decimal number"),
    "no-break space": ("1 qid:2\u00a01:1", "is neither a whole number"),
    "byte order mark": ("\ufeff1 qid:2 1:1", "is not a finite decimal number"),
    "bytes that are not text": (b"1 qid:2 1:\xff\xfe", "is not a finite decimal number"),
    "a very long value": ("1 qid:2 1:" + "9" * 300_000, "is too large for float32"),
    "a very long word": ("1 qid:2 1:1 " + "x" * 300_000, "expected a feature, id:value"),
}

# Whole files: the content, the line in the message if there is one, and the reason
FILES: dict[str, tuple[bytes, int | None, str]] = {
    "empty": (b"", None, "the file is empty"),
    "only a byte order mark": (b"\xef\xbb\xbf", None, "the file holds no document"),
    "only comments": (b"# a\n\n  # b\n", None, "the file holds no document"),
    "NUL in the only comment": (b"# a\n# b\0\n", 2, "a zero byte"),
    "no features": (b"1 qid:1\n0 qid:1\n", None, "no line has a feature"),
    "no qid and no sizes": (b"1 1:1\n0 1:2\n", None, "its queries are not known"),
    "qid from line 2 on": (b"1 1:1\n0 qid:1 1:2\n", 2, "but no qid on the lines before"),
    "numbers after names": (b"1 qid:a 1:1\n0 qid:7 1:2\n", 2, "but the lines before have names"),
    "a huge feature id": (b"1 qid:1 1:1\n1 qid:1 900000000:1\n", 2, "asks for a dense matrix"),
    "UTF-16": (DATA.decode().encode("utf-16"), 1, "UTF-16 text: save it as UTF-8"),
    "UTF-16 without a mark": (DATA.decode().encode("utf-16-le"), 1, "UTF-16 text: save text as UTF-8"),
    "UTF-32": (DATA.decode().encode("utf-32"), 1, "UTF-16 text: save it as UTF-8"),
    "PNG": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), 1, "a PNG picture"),
    "pickle": (pickle.dumps({"X": np.arange(5.0)}), 1, "a pickle, or other binary data"),
    "zip": (archive(), 1, "a zip archive: unpack it first"),
    "Parquet": (b"PAR1\x15\x04" + bytes(50), 1, "use load_parquet"),
    "zstandard": (b"\x28\xb5\x2f\xfd\x04\0" + bytes(50), 1, "compressed by zstandard"),
    "NumPy": (b"\x93NUMPY\x01\0v\0{'descr': '<f8'}\n" + bytes(50), 1, "a NumPy array file"),
    "HTML": (b"<!DOCTYPE html>\n<p>404</p>\n", 1, "HTML or XML"),
    "JSON": (b'{"qid": 1, "label": 2}\n', 1, "JSON"),
    "CSV": (b"qid,label,bm25\n7,2,0.5\n", 1, "CSV: read it with pandas.read_csv"),
    "zeros": (bytes(2000), 1, "binary"),
    "gzip, cut off": (gzip.compress(DATA * 200, mtime=0)[:-9], None, "stream (gzip) is damaged or cut off"),
    "gzip, then other bytes": (gzip.compress(DATA, mtime=0) + b"more", None, "stream (gzip) is damaged"),
    "gzip of a faulty line": (gzip.compress(with_line_3("x"), mtime=0), 3, "is not a finite decimal number"),
    "xz, cut off": (lzma.compress(DATA * 200)[:-9], None, "stream (xz) is damaged or cut off"),
    "xz, then other bytes": (lzma.compress(DATA) + b"more", None, "stream (xz) is damaged"),
    "bzip2, cut off": (bz2.compress(DATA * 200)[:-9], None, "stream (bzip2) is damaged or cut off"),
    "bzip2, then other bytes": (bz2.compress(DATA) + b"more", None, "stream (bzip2) is damaged"),
    "gzip of gzip": (gzip.compress(gzip.compress(DATA, mtime=0), mtime=0), 1, "is not a finite decimal"),
}
MALFORMED = {name: (with_line_3(line), 3, reason) for name, (line, reason) in LINES.items()} | FILES

# Files of one document per pair (label, query): the content, and the documents
PAIRS = [(2.0, 1), (0.0, 1), (1.0, 2)]
LEGAL: dict[str, bytes] = {
    "plain": DATA,
    "CRLF": DATA.replace(b"\n", b"\r\n"),
    "no newline at the end": DATA[:-1],
    "byte order mark": b"\xef\xbb\xbf" + DATA,
    "comments between": b"# made by hand\n" + DATA.replace(b"\n", b"\n  # more\n"),
    "empty lines": b"\n\n" + DATA.replace(b"\n", b"\n \t\n\r\n"),
    "tabs": DATA.replace(b" ", b"\t"),
    "several spaces": DATA.replace(b" ", b"   ").replace(b"\n", b"  \n"),
    "spaces before the label": b"  " + DATA.replace(b"\n", b"\n  ").rstrip(b" "),
    "comment without a space": DATA.replace(b" #", b"#"),
    "comment that is no docid": DATA.replace(b"#docid = a", "# 12:5 qid:7 é".encode()),
    "sparse lines": b"2 qid:1 2:1\n0 qid:1\n1 qid:2 1:3\n",
    "exponents": b"2 qid:1 1:5e-1 2:1E0\n0 qid:1 1:.25e+0\n1 qid:2 1:3. 2:4\n",
    "plus signs": b"+2 qid:1 1:+0.5 2:+1\n+0 qid:1 1:-0.25\n+1 qid:2 1:3\n",
    "labels with a decimal point": b"2.0 qid:1 1:0.5\n0. qid:1 1:1\n1e0 qid:2 1:3\n",
    "leading zeros": b"02 qid:001 01:0.5\n00 qid:1 1:1\n1 qid:0002 002:3\n",
    "tiny values": b"2 qid:1 1:1e-400 2:-1e-60\n0 qid:1 1:0\n1 qid:2 1:3\n",
    "query ids that fall": b"2 qid:1 1:1\n0 qid:1 1:2\n1 qid:2 1:3\n".replace(b"qid:1", b"qid:9"),
    "names as query ids": DATA.replace(b"qid:", b"qid:WT04-"),
    "a very long line": DATA.replace(b"#docid = a", b"# " + b"x" * 300_000),
    "gzip": gzip.compress(DATA, mtime=0),
    "gzip in two streams": gzip.compress(DATA[:30], mtime=0) + gzip.compress(DATA[30:], mtime=0),
    "xz": lzma.compress(DATA),
    "xz in two streams, padded": lzma.compress(DATA[:30]) + bytes(8) + lzma.compress(DATA[30:]) + bytes(4),
    "bzip2": bz2.compress(DATA),
    "bzip2 in two streams": bz2.compress(DATA[:30]) + bz2.compress(DATA[30:]),
}


def message_of(path: Path, read) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        read(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1000
    return message


def converted(path: Path) -> Queries:
    return convert(path, path.with_name("set.queries")).load()


def test_there_are_enough_files() -> None:
    assert len(MALFORMED) >= 66
    assert len(LEGAL) >= 16


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused_by_both_with_its_line_and_reason(name: str, tmp_path: Path) -> None:
    content, line, reason = MALFORMED[name]
    path = tmp_path / "train.txt"
    path.write_bytes(content)
    message = message_of(path, lambda path: load_letor(path, dtype=np.float32))
    assert message.startswith(f"{path}: " if line is None else f"{path}, line {line}: ")
    assert reason in message
    assert message_of(path, converted) == message
    assert [found.name for found in tmp_path.iterdir()] == ["train.txt"]


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_file_is_read_by_both(name: str, tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(LEGAL[name])
    read, stored = load_letor(path, dtype=np.float32), converted(path)
    assert read.y.tolist() == [label for label, _ in PAIRS]
    assert read.groups.sizes.tolist() == [2, 1]
    np.testing.assert_array_equal(stored.X, read.X)
    np.testing.assert_array_equal(stored.y, read.y)
    assert stored.qid.tolist() == read.qid.tolist()
    assert (stored.docid is None) == (read.docid is None or not any(read.docid.tolist()))


def test_a_query_in_two_places_is_refused_by_both_with_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(DATA + b"# more\n0 qid:1 1:1\n")
    message = message_of(path, load_letor)
    assert message.startswith(
        f"the query 1 occurs in two places, {path}:1 and {path}:5. If they are one query"
    )
    assert message_of(path, converted) == message
