"""LETOR text: what is read, to the bit; what is refused, with its line; what is written reads back."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import pathlib
import pickle
import re
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from places import DATA, ROOT
from sklearn.datasets import load_svmlight_file

import sinkprop
from sinkprop import Queries, load_letor, load_queries, load_query_sizes, save_letor
from sinkprop.data import letor as readers
from sinkprop.data import letor_errors


def data_file(name: str) -> pathlib.Path:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not in the data folder; set SINKPROP_DATA")
    return DATA / name


def read(text: bytes | str, **options) -> Queries:
    return load_letor(io.BytesIO(text.encode() if isinstance(text, str) else text), **options)


def same(a: Queries, b: Queries) -> None:
    for name in ("X", "y"):
        x, z = getattr(a, name), getattr(b, name)
        assert x.dtype == z.dtype
        assert x.shape == z.shape
        assert x.tobytes() == z.tobytes()
    assert a.qid.dtype.kind == b.qid.dtype.kind
    assert a.qid.tolist() == b.qid.tolist()
    assert (a.docid is None) == (b.docid is None)
    assert a.docid is None or a.docid.tolist() == b.docid.tolist()


NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def plain_letor(text: bytes, n_features: int) -> tuple[Queries | None, int]:
    """The definition, a line at a time, with Python's own float(): the rows, or the first line refused.

    Rows without qid get the query 1. A text without documents is refused at "line" 0.
    """
    rows, labels, ids, docids, kind, comments = [], [], [], [], None, False
    for line_number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        body, hash_, comment = line.rstrip(b"\r").partition(b"#")
        tokens = [t for t in re.split(rb"[ \t]", body) if t]
        if b"\0" in comment or b"\r" in comment:
            return None, line_number
        if not tokens:
            continue
        document = plain_document(tokens, n_features)
        if document is None or document[1] != (kind or document[1]):
            return None, line_number
        row, kind, label, qid = document
        comment = comment.lstrip(bytes(range(33)) + b"#")
        named = re.match(rb"docid[\0-\x20]*[=:][\0-\x20]*([^\0-\x20]*)|docid[\0-\x20]+([^\0-\x20]+)", comment)
        docid = (named[1] or named[2] or b"") if named else re.split(rb"[\0-\x20]+", comment)[0]
        docids.append(docid.decode("utf-8", "surrogateescape"))
        comments |= bool(hash_)
        rows.append(row)
        labels.append(label)
        ids.append(qid)
    if not rows:
        return None, 0
    return Queries(np.array(rows), np.array(labels), np.array(ids), np.array(docids) if comments else None), 0


def plain_document(tokens: list[bytes], n_features: int) -> tuple[np.ndarray, str, float, int | str] | None:
    """The features, the kind of query id, the label and the query id of a line, or None."""

    def number(token: bytes) -> float:
        return float(token) if NUMBER.fullmatch(token) else float("nan")

    label = number(tokens.pop(0))
    qid = tokens.pop(0)[4:] if tokens and tokens[0].startswith(b"qid:") else None
    if qid is None:
        kind, query = "none", 1
    elif re.fullmatch(rb"[0-9]+", qid) and int(qid) < 2**63:
        kind, query = "number", int(qid)
    elif re.fullmatch(rb"[A-Za-z][A-Za-z0-9._-]*", qid):
        kind, query = "name", qid.decode()
    else:
        return None
    row, last = np.zeros(n_features), 0
    for token in tokens:
        id_, colon, value = token.partition(b":")
        if not colon or not re.fullmatch(rb"[0-9]+", id_) or not last < int(id_) <= n_features:
            return None
        last = int(id_)
        row[last - 1] = number(value)
    if not (np.isfinite(row).all() and 0 <= label <= 2**53):
        return None
    return row, kind, label, query


# ---- what is read

MSLR = "".join(
    f"{i % 5} qid:{i // 3 + 1} " + " ".join(f"{j}:{(i * j) % 7 / 4:g}" for j in range(1, 137)) + " \n"
    for i in range(9)
)

LEGAL = {
    "LETOR 3.0": "0 qid:1 1:1.000000 2:0.833333 3:0 #docid = 244338\n2 qid:1 1:0.6 2:1 3:0 #docid = 143821\n",
    "LETOR 4.0": "2 qid:10032 1:0.056537 2:0.000000 #docid = GX029-35-5894638 inc = 1 prob = 0.086622\n",
    "MSLR": MSLR,
    "Yahoo": "1 qid:1 10:0.89028 11:0.75088 699:0.5\n2 qid:1 3:0.1 700:0.3\n0 qid:2 1:0.5\n",
    "Istella": "0 qid:1 1:1.79769313486e+308 2:-1 3:0.0\n4 qid:2 1:17.95 2:0 3:5\n",
    "CRLF": "1 qid:3 1:0.5 2:1\r\n0 qid:3 1:0.25 2:0 # x\r\n",
    "tabs": "1\tqid:3\t1:0.5\t2:1\n0\tqid:3\t \t1:0.25\t2:0\t\n",
    "several spaces": "  1   qid:3   1:0.5    2:1   \n0 qid:3   1:0.25 2:0\n",
    "trailing space": "1 qid:3 1:0.5 \n0 qid:3 1:0.25 \n",
    "last line without newline": "1 qid:3 1:0.5\n0 qid:3 1:0.25",
    "last line is short": "1 qid:3 1:0.5\n0 qid:3 1:1",
    "comment-only lines": "# made by hand\n1 qid:3 1:0.5\n   # more\n0 qid:3 1:0.25\n#\n",
    "blank lines": "\n\n1 qid:3 1:0.5\n \n\t\n0 qid:3 1:0.25\n\n",
    "comment without space": "1 qid:3 1:0.5#a\n0 qid:3 1:0.25# b c\n",
    "missing features": "1 qid:3 2:0.5\n0 qid:3\n2 qid:3 1:7 5:1\n",
    "plus signs": "+1 qid:3 1:+0.5 2:+1e+2\n+0 qid:3 1:-0.5 2:-1e-2\n",
    "float labels": "1.5 qid:3 1:0.5\n0.25 qid:3 1:0.5\n1e-3 qid:4 1:2\n",
    "exponents": "1 qid:3 1:1e3 2:1E-3 3:2.5e+10 4:1e0\n",
    "bare points": "1. qid:3 1:.5 2:5. 3:-.5e1\n",
    "integers": "1 qid:3 1:12345678 2:123456789 3:12345678901234567890 4:007\n",
    "scattered queries": "1 qid:3 1:1\n0 qid:1 1:2\n2 qid:3 1:3\n0 qid:1 1:4\n",
    "large qid": "1 qid:9223372036854775807 1:1\n1 qid:0 1:1\n",
    "leading zeros": "1 qid:007 1:1\n0 qid:7 01:2 002:3\n",
    "one document": "3 qid:1 1:0.125\n",
    "underflow": "1 qid:1 1:1e-999 2:-1e-400 3:4.9e-324 4:2.2250738585072011e-308\n",
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_text_is_read_as_scikit_learn_and_the_definition_read_it(name: str) -> None:
    text = LEGAL[name].encode()
    X, y, qid = load_svmlight_file(io.BytesIO(text), query_id=True, zero_based=False)
    q = read(text, split_queries="join" if name == "scattered queries" else "error")
    np.testing.assert_array_equal(q.X, X.toarray())
    np.testing.assert_array_equal(q.y, y)
    np.testing.assert_array_equal(q.qid, qid)
    assert (q.X.dtype, q.y.dtype, q.qid.dtype) == (np.float64, np.float64, np.int64)
    assert q.X.flags.c_contiguous
    expected, _ = plain_letor(text, q.n_features)
    same(q, expected)


DOCIDS = [
    ("#docid = GX029-35-5894638 inc = 1 prob = 0.086622", "GX029-35-5894638"),
    ("#docid = 244338", "244338"),
    ("#docid=a", "a"),
    ("# docid= a b", "a"),
    ("#docid =a", "a"),
    ("#\tdocid\t=\ta\tb", "a"),
    ("# a b c", "a"),
    ("#a", "a"),
    ("## a", "a"),
    ("#", ""),
    ("# ", ""),
    ("", ""),
    ("#docid", "docid"),
    ("#docid x", "x"),
    ("# docid x y", "x"),
    ("#docid: x", "x"),
    ("#docid:x", "x"),
    ("#docid ", "docid"),
    ("#docids = x", "docids"),
    ("#docid =", ""),
    ("#docid = =", "="),
    ("# 12:5", "12:5"),
    ("# é-日本 x", "é-日本"),
    ("# https://example.org/a?b=1#c", "https://example.org/a?b=1#c"),
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_docids(end: str) -> None:
    text = "".join(f"1 qid:1 1:0.5 {comment}{end}" for comment, _ in DOCIDS)
    for options in ({}, {"n_threads": 2}):
        q = read(text, **options)
        assert q.docid.dtype.kind == "U"
        assert q.docid.tolist() == [docid for _, docid in DOCIDS]


def test_docids_that_are_not_utf_8_are_kept() -> None:
    q = read(b"1 qid:1 1:1 #M\xfcller\n1 qid:1 1:1 #\xc3\xa9\xff\n")
    assert [d.encode("utf-8", "surrogateescape") for d in q.docid.tolist()] == [b"M\xfcller", b"\xc3\xa9\xff"]


def test_returns_alone_do_not_end_lines_nor_hide_documents_in_a_comment() -> None:
    for text in ("1 qid:1 1:1 # a\r0 qid:1 1:2 # b\r", "1 qid:1 1:1\r0 qid:1 1:2\n", "# a\r1 qid:1 1:1\n"):
        with pytest.raises(ValueError, match="line 1"):
            read(text)


def test_no_comment_makes_no_docids() -> None:
    assert read("# only here\n1 qid:1 1:1\n").docid is None


def test_one_very_long_docid_does_not_cost_as_much_on_every_row() -> None:
    text = "1 qid:1 1:1 #a\n" * 5000 + f"1 qid:1 1:1 #{'x' * 100_000}\n"
    q = read(text)
    assert q.docid.dtype == object
    assert q.docid.tolist() == ["a"] * 5000 + ["x" * 100_000]


def test_query_names() -> None:
    q = read("1 qid:WT04-132 1:1\n0 qid:a 1:2\n0 qid:WT04-132 1:3\n1 qid:A.b_9- 1:4\n", split_queries="join")
    assert q.qid.dtype.kind == "U"
    assert q.qid.tolist() == ["WT04-132", "a", "WT04-132", "A.b_9-"]
    assert q.n_queries == 3


def test_byte_order_mark() -> None:
    same(read(b"\xef\xbb\xbf1 qid:1 1:0.5\n"), read("1 qid:1 1:0.5\n"))
    with pytest.raises(ValueError, match=r"line 2: the label"):
        read(b"\xef\xbb\xbf1 qid:1 1:0.5\n\xef\xbb\xbf1 qid:1 1:0.5\n")


def test_zero_based_ids() -> None:
    q = read("1 qid:1 0:5 2:7\n0 qid:1 1:3\n", zero_based=True)
    np.testing.assert_array_equal(q.X, [[5, 0, 7], [0, 3, 0]])
    with pytest.raises(ValueError, match=r"the feature id of '-1:2' is below 0"):
        read("1 qid:1 -1:2 0:5\n", zero_based=True)
    np.testing.assert_array_equal(read("1 qid:1 0:5\n", zero_based=True, n_features=2).X, [[5, 0]])
    with pytest.raises(ValueError, match=r"line 1: the feature id of '2:5' is past the last of n_features=2"):
        read("1 qid:1 2:5\n", zero_based=True, n_features=2)


def test_n_features_widens_and_limits() -> None:
    np.testing.assert_array_equal(read("1 qid:1 2:5\n", n_features=4).X, [[0, 5, 0, 0]])
    np.testing.assert_array_equal(read("1 qid:1\n", n_features=2).X, [[0, 0]])
    with pytest.raises(ValueError, match=r"line 2: the feature id of '5:1' is past the last of n_features=4"):
        read("1 qid:1 4:5\n1 qid:1 5:1\n", n_features=4)


def test_null() -> None:
    text = "1 qid:1 1:NULL 2:3 3:NULL\n0 qid:1 2:NULL\n"
    np.testing.assert_array_equal(read(text, null=-1).X, [[-1, 3, -1], [0, -1, 0]])
    with pytest.raises(ValueError, match=r"line 1: the value of '1:NULL' is not known; pass null=0"):
        read(text)
    np.testing.assert_array_equal(read(text.replace("NULL", "nan"), null=-1).X, [[-1, 3, -1], [0, -1, 0]])
    np.testing.assert_array_equal(read("1 qid:1 1:NaN 2:NAN\n", null=5).X, [[5, 5]])
    for bad in ("NULLS", "null", "NUL", "-NULL", "NULL:1", "nans", "-nan", "na", "nan:1", "nan(0)"):
        with pytest.raises(ValueError, match=r"line 1: the value of .* is not a finite decimal number"):
            read(f"1 qid:1 1:{bad}\n", null=0)


@pytest.mark.parametrize("null", [np.nan, np.inf, -np.inf, "0", True])
def test_null_must_be_a_finite_number(null) -> None:
    with pytest.raises(ValueError, match=r"^null must be the finite number"):
        read("1 qid:1 1:NULL\n", null=null)
    with pytest.raises(ValueError, match=r"^null must be the finite number"):
        read("1 qid:1 1:NULL\n", null=1e39, dtype=np.float32)


def test_float32() -> None:
    values = [
        "0.1",
        "16777217",
        "1e-50",
        "3.4028235e38",
        "-3.4028235677973362e38",
        "1.00000017881393432617187499",
    ]
    text = "1 qid:1 " + " ".join(f"{i}:{v}" for i, v in enumerate(values, 1)) + "\n"
    q = read(text, dtype="float32")
    assert q.X.dtype == np.float32
    np.testing.assert_array_equal(q.X[0], np.array(values, np.float64).astype(np.float32))
    for value in ("3.4028235677973366e38", "1e39", "-1e300"):
        with pytest.raises(ValueError, match=r"line 1: the value of '1:.*' is too large for float32"):
            read(f"1 qid:1 1:{value}\n", dtype=np.float32)
    for dtype in (np.int64, "float16", object):
        with pytest.raises(ValueError, match=r"^dtype must be float64 or float32"):
            read(text, dtype=dtype)


def values_of(texts: list[str]) -> np.ndarray:
    return read("".join(f"0 qid:1 1:{text}\n" for text in texts)).X[:, 0]


def check_values(texts: list[str]) -> None:
    expected = np.array([float(text) for text in texts])
    assert values_of(texts).tobytes() == expected.tobytes()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_values_are_the_nearest_doubles(values: list[float]) -> None:
    for form in ("{!r}", "{:.17g}", "{:.16e}", "{:.3e}", "{:.25e}", "{:.40f}", "{:.6f}", "{:+.9E}"):
        texts = [form.format(v) for v in values]
        check_values([t for t in texts if abs(float(t)) < float("inf")] or ["0"])


@given(st.lists(st.from_regex(NUMBER.pattern.decode(), fullmatch=True), min_size=1, max_size=50))
@example(["9007199254740993", "9007199254740993.0", "90071992547409930e-1", "9007199254740992.5"])
@example(["0." + "0" * 400 + "1e400", "1" + "0" * 400 + "e-400", "0" * 50 + "1.5", "1e-0000000000001"])
@example(["8.5e-324", "2.4703282292062328e-324", "2.4703282292062327e-324", "1.7976931348623158e308"])
@example(["0.500000000000000166533453693773481063544750213623046875", "3.518437208883201171875e13"])
def test_any_decimal_text(texts: list[str]) -> None:
    check_values([t for t in texts if t.isascii() and abs(float(t)) < float("inf")] or ["0"])


def test_many_random_values() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    finite = bits[np.isfinite(bits)].tolist()
    subnormal = rng.integers(0, 2**53, 2000, dtype=np.uint64).view(np.float64).tolist()
    check_values([repr(v) for v in finite + subnormal])
    check_values([f"{v:.{k}f}" for k in range(20) for v in rng.normal(size=500).tolist()])
    digits = ["".join(map(str, rng.integers(0, 10, n))) for n in rng.integers(1, 30, 20_000)]
    texts = [
        f"{d[:5]}.{d[5:]}e{e}" for d, e in zip(digits, rng.integers(-330, 290, len(digits)), strict=True)
    ]
    check_values(texts)


def test_values_halfway_between_two_doubles() -> None:
    from fractions import Fraction

    rng = np.random.default_rng(1)
    texts = []
    for v in np.concatenate([rng.normal(size=300), rng.integers(2**53, 2**62, 300).astype(float)]).tolist():
        half = (Fraction(v) + Fraction(float(np.nextafter(v, np.inf)))) / 2
        scale = 200  # enough places for all of them: the denominators are powers of two
        digits = half * 10**scale
        assert digits.denominator == 1
        for nudge in (-1, 0, 1):
            whole = digits.numerator + nudge
            texts.append(f"{'-' if whole < 0 else ''}{abs(whole)}e-{scale}")
    check_values(texts)


def test_values_do_not_depend_on_the_locale(tmp_path: pathlib.Path) -> None:
    make = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")]
    if shutil.which("localedef") is None or subprocess.run(make, capture_output=True, check=False).returncode:
        pytest.skip("a locale with a decimal comma cannot be made here")
    program = """
        import io, locale, tempfile, sinkprop
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
        assert locale.localeconv()["decimal_point"] == ","
        texts = ["1.5", "4.9e-324", "-0." + "1" * 40, "2.4703282292062328e-324"]  # the last ones take strtod
        lines = "".join(f"1 qid:1 1:{text}\\n" for text in texts)
        q = sinkprop.load_letor(io.StringIO(lines))
        assert q.X[:, 0].tolist() == [float(text) for text in texts], q.X
        with tempfile.NamedTemporaryFile() as file:
            sinkprop.save_letor(file.name, q)
            assert sinkprop.load_letor(file.name).X.tobytes() == q.X.tobytes()
        """
    run(program, LOCPATH=str(tmp_path))


# ---- where it is read from


def test_real_ohsumed() -> None:
    path = data_file("ohsumed/S1.txt.xz")
    q = load_letor(path)
    text = lzma.decompress(path.read_bytes())
    X, y, qid = load_svmlight_file(io.BytesIO(text), query_id=True)
    np.testing.assert_array_equal(q.X, X.toarray())
    np.testing.assert_array_equal(q.y, y)
    np.testing.assert_array_equal(q.qid, qid)
    assert q.docid.tolist() == [m.decode() for m in re.findall(rb"#docid = (\d+)", text)]
    assert q.n_features == 45


def test_real_ohsumed_is_whole() -> None:
    parts = [load_letor(data_file(f"ohsumed/S{i}.txt.xz")) for i in range(1, 6)]
    assert sum(map(len, parts)) == 16_140
    assert sum(q.n_queries for q in parts) == 106


def test_real_np2004_has_names_and_crlf() -> None:
    path = data_file("np2004-part/vali.txt.xz")
    q = load_letor(path, n_threads=2)
    text = lzma.decompress(path.read_bytes())
    assert b"\r\n" in text
    X, y = load_svmlight_file(io.BytesIO(re.sub(rb"qid:WT04-", b"qid:", text)))
    np.testing.assert_array_equal(q.X, X.toarray())
    np.testing.assert_array_equal(q.y, y)
    assert q.qid.tolist() == [m.decode() for m in re.findall(rb"qid:(\S+)", text)]
    assert q.docid.tolist() == [m.decode() for m in re.findall(rb"#docid = (\S+)", text)]
    assert (q.X.shape, q.n_queries) == ((15_000, 64), 15)


def test_real_lightgbm_example_finds_its_sizes() -> None:
    path = data_file("lightgbm-example/rank.train.xz")
    q = load_letor(path)
    sizes = load_query_sizes(path.with_suffix(".query"))
    X, y = load_svmlight_file(io.BytesIO(lzma.decompress(path.read_bytes())))
    np.testing.assert_array_equal(q.X, X.toarray())
    np.testing.assert_array_equal(q.y, y)
    np.testing.assert_array_equal(q.qid, np.repeat(np.arange(1, 202), sizes))
    assert q.docid is None


TEXT = "".join(f"{i % 3} qid:{i // 4} 1:{i / 7!r} 3:{i} #docid = D-{i}\n" for i in range(20))
PACKERS = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_by_content_not_by_name(suffix: str, tmp_path: pathlib.Path) -> None:
    expected = read(TEXT)
    packed = PACKERS[suffix](TEXT.encode())
    for name in (f"a.{suffix}", "a.txt", "a"):
        (tmp_path / name).write_bytes(packed)
        same(load_letor(tmp_path / name), expected)
        same(load_letor(str(tmp_path / name), n_threads=3), expected)
        with open(tmp_path / name, "rb") as file:
            same(load_letor(file), expected)
    same(read(packed), expected)
    (tmp_path / f"plain.{suffix}").write_text(TEXT)
    same(load_letor(tmp_path / f"plain.{suffix}"), expected)


def test_compressed_in_several_streams() -> None:
    half = TEXT.index("\n", 300) + 5
    for pack in PACKERS.values():
        same(read(pack(TEXT[:half].encode()) + pack(TEXT[half:].encode())), read(TEXT))


def test_open_files(tmp_path: pathlib.Path) -> None:
    expected = read(TEXT)
    path = tmp_path / "a.txt"
    path.write_text("a heading\n" + TEXT)
    with open(path, encoding="utf-8") as text_file:
        text_file.readline()
        same(load_letor(text_file), expected)
        assert not text_file.closed
    with open(path, "rb") as binary_file:
        binary_file.readline()
        same(load_letor(binary_file), expected)
    refusal = pytest.raises(ValueError, match=re.escape(f"{path}, line 1: the label 'a'"))
    with open(path, "rb", buffering=0) as raw_file, refusal:
        load_letor(raw_file)
    same(load_letor(io.StringIO(TEXT)), expected)
    with pytest.raises(ValueError, match=r"^<StringIO>, line 1: "):
        load_letor(io.StringIO("x"))

    class Wrong:
        def read(self, size: int) -> object:
            return None

    with pytest.raises(TypeError, match=r"^<Wrong>: read\(\) must return bytes or text; got None"):
        load_letor(Wrong())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(TEXT * 1000,))
    writer.start()
    q = load_letor(tmp_path / "pipe", split_queries="join")
    writer.join()
    same(q, read(TEXT * 1000, split_queries="join"))


def test_missing_files_keep_their_errors(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_letor(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError):
        load_query_sizes(tmp_path / "none.txt")
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        load_letor(tmp_path)
    for wrong in (3, None, ["a"]):
        with pytest.raises(TypeError):
            load_letor(wrong)


# ---- what is refused

GOOD = [f"{i % 3} qid:{i // 5 + 1} 1:0.{i:02} 2:{i} 3:-1e-{i} #docid = D-{i}" for i in range(1, 21)]
LINE = "1 qid:2 1:0.5 2:7 3:1 #docid = D-7"

MALFORMED = {  # line 7 of 20, and what the message says of it
    "label missing": ("qid:2 1:0.5 2:7", "must begin with its label, but this one begins with 'qid:2'"),
    "label and qid missing": ("1:0.5 2:7", "must begin with its label, but this one begins with '1:0.5'"),
    "label a word": ("good qid:2 1:0.5", "the label 'good' is not a finite decimal number"),
    "label with a comma": ("1,5 qid:2 1:0.5", "the label '1,5' is not"),
    "label nan": ("nan qid:2 1:0.5", "the label 'nan' is not"),
    "label inf": ("inf qid:2 1:0.5", "the label 'inf' is not"),
    "label NULL": ("NULL qid:2 1:0.5", "the label 'NULL' is not"),
    "label hexadecimal": ("0x1 qid:2 1:0.5", "the label '0x1' is not"),
    "label with underscore": ("1_0 qid:2 1:0.5", "the label '1_0' is not"),
    "label two signs": ("+-1 qid:2 1:0.5", "the label '+-1' is not"),
    "label a sign": ("- qid:2 1:0.5", "the label '-' is not"),
    "label a point": (". qid:2 1:0.5", "the label '.' is not"),
    "label with a broken exponent": ("1e qid:2 1:0.5", "the label '1e' is not"),
    "label of other digits": ("٣ qid:2 1:0.5", "the label '٣' is not"),
    "label negative": ("-1 qid:2 1:0.5", "the label '-1' is below 0"),
    "label slightly negative": ("-1e-300 qid:2 1:0.5", "the label '-1e-300' is below 0"),
    "label overflows": ("1e999 qid:2 1:0.5", "the label '1e999' is too large; the largest label is 2^53"),
    "label past whole numbers": ("99999999999999999999 qid:2 1:0.5", "'99999999999999999999' is too large"),
    "label twice": ("1 1 qid:2 1:0.5", "as on the lines before; got '1'"),
    "label in quotes": ('"1" qid:2 1:0.5', "the label '\"1\"' is not"),
    "qid missing": ("1 1:0.5 2:7", "as on the lines before; got '1:0.5'"),
    "qid and features missing": ("1", "as on the lines before; got the end of the line"),
    "qid after a comment": ("1 # qid:2 1:0.5", "expected a qid directly after the label"),
    "qid empty": ("1 qid: 1:0.5", "'qid:' is neither a whole number"),
    "qid apart from its number": ("1 qid: 2 1:0.5", "'qid:' is neither a whole number"),
    "qid before a space": ("1 qid :2 1:0.5", "expected a qid directly after the label"),
    "qid fractional": ("1 qid:1.5 1:0.5", "'qid:1.5' is neither a whole number"),
    "qid negative": ("1 qid:-3 1:0.5", "'qid:-3' is neither a whole number"),
    "qid signed": ("1 qid:+3 1:0.5", "'qid:+3' is neither a whole number"),
    "qid with an exponent": ("1 qid:1e3 1:0.5", "'qid:1e3' is neither a whole number"),
    "qid of two numbers": ("1 qid:1:2 1:0.5", "'qid:1:2' is neither a whole number"),
    "qid starting with a digit": ("1 qid:2a 1:0.5", "'qid:2a' is neither a whole number"),
    "qid starting with a mark": ("1 qid:_a 1:0.5", "'qid:_a' is neither a whole number"),
    "qid with an accent": ("1 qid:é 1:0.5", "'qid:é' is neither a whole number"),
    "qid a name among numbers": ("1 qid:abc 1:0.5", "'qid:abc' is a name, but the lines before"),
    "qid overflows": ("1 qid:9223372036854775808 1:0.5", "is past the largest query id"),
    "qid overflows by far": ("1 qid:" + "9" * 300 + " 1:0.5", "is past the largest query id"),
    "qid in capitals": ("1 QID:2 1:0.5", "expected a qid directly after the label"),
    "qid twice": ("1 qid:2 qid:2 1:0.5", "a second qid, 'qid:2'"),
    "qid again at the end": ("1 qid:2 1:0.5 qid:2", "a second qid, 'qid:2'"),
    "qid after the features": ("1 1:0.5 qid:2", "expected a qid directly after the label"),
    "id zero": ("1 qid:2 0:1 1:0.5", "'0:1' is 0, but ids count from 1; pass zero_based=True"),
    "id negative": ("1 qid:2 -1:1 1:0.5", "the feature id of '-1:1' is below 1"),
    "id signed": ("1 qid:2 +1:1", "the feature id of '+1:1' is not a whole number"),
    "id fractional": ("1 qid:2 1.5:1", "the feature id of '1.5:1' is not a whole number"),
    "id a word": ("1 qid:2 bm25:1", "the feature id of 'bm25:1' is not a whole number"),
    "id missing": ("1 qid:2 :0.5", "the feature id of ':0.5' is not a whole number"),
    "id hexadecimal": ("1 qid:2 0x1:0.5", "the feature id of '0x1:0.5' is not a whole number"),
    "id with underscore": ("1 qid:2 1_0:0.5", "the feature id of '1_0:0.5' is not a whole number"),
    "id of other digits": ("1 qid:2 \uff11:0.5", "the feature id of '\uff11:0.5' is not a whole number"),
    "id overflows": ("1 qid:2 99999999999999999999:1", "'99999999999999999999:1' is too large"),
    "id past 64 bits": ("1 qid:2 9223372036854775808:1", "'9223372036854775808:1' is too large"),
    "id repeated": ("1 qid:2 1:0.5 2:1 2:1 3:4", "the feature id of '2:1' is there twice"),
    "id out of order": ("1 qid:2 1:0.5 3:1 2:5", "'2:5' is not above the one before"),
    "id far out of order": ("1 qid:2 900000000:0.5 2:5", "'2:5' is not above the one before"),
    "value missing": ("1 qid:2 1:0.5 2: 3:1", "the value of '2:' is missing"),
    "value missing at the end": ("1 qid:2 1:0.5 2:", "the value of '2:' is missing"),
    "value missing before a comment": ("1 qid:2 1:0.5 2:# x", "the value of '2:' is missing"),
    "value apart from its id": ("1 qid:2 1: 0.5", "the value of '1:' is missing"),
    "colon apart from the id": ("1 qid:2 1 :0.5", "id:value without spaces in it; got '1'"),
    "value nan": ("1 qid:2 1:nan", "the value of '1:nan' is not known; pass null=0"),
    "value inf": ("1 qid:2 1:-inf", "the value of '1:-inf' is not"),
    "value Infinity": ("1 qid:2 1:Infinity", "the value of '1:Infinity' is not"),
    "value overflows": ("1 qid:2 1:1e999", "the value of '1:1e999' is too large for float64"),
    "value overflows by little": ("1 qid:2 1:-1.7976931348623159e308", "is too large for float64"),
    "value NULL": ("1 qid:2 1:NULL", "the value of '1:NULL' is not known; pass null=0"),
    "value None": ("1 qid:2 1:None", "the value of '1:None' is not"),
    "value with a letter": ("1 qid:2 1:0.5x 2:1", "the value of '1:0.5x' is not"),
    "value with a comma": ("1 qid:2 1:0,5", "the value of '1:0,5' is not"),
    "value with two points": ("1 qid:2 1:0.5.1", "the value of '1:0.5.1' is not"),
    "value with two colons": ("1 qid:2 1::2", "the value of '1::2' is not"),
    "value with a third part": ("1 qid:2 1:2:3", "the value of '1:2:3' is not"),
    "value hexadecimal": ("1 qid:2 1:0x1p3", "the value of '1:0x1p3' is not"),
    "value with underscore": ("1 qid:2 1:1_000", "the value of '1:1_000' is not"),
    "value of other digits": ("1 qid:2 1:٣", "the value of '1:٣' is not"),
    "value a sign": ("1 qid:2 1:- 2:1", "the value of '1:-' is not"),
    "value a point": ("1 qid:2 1:. 2:1", "the value of '1:.' is not"),
    "value an exponent": ("1 qid:2 1:e5", "the value of '1:e5' is not"),
    "value with a broken exponent": ("1 qid:2 1:1e+ 2:1", "the value of '1:1e+' is not"),
    "value with a Fortran exponent": ("1 qid:2 1:1d5", "the value of '1:1d5' is not"),
    "value with two signs": ("1 qid:2 1:--1", "the value of '1:--1' is not"),
    "value in per cent": ("1 qid:2 1:50%", "the value of '1:50%' is not"),
    "value a boolean": ("1 qid:2 1:true", "the value of '1:true' is not"),
    "stray word": ("1 qid:2 1:0.5 docid 2:1", "id:value without spaces in it; got 'docid'"),
    "stray number": ("1 qid:2 1:0.5 0.7 2:1", "id:value without spaces in it; got '0.7'"),
    "semicolons": ("1 qid:2 1:0.5; 2:1", "the value of '1:0.5;' is not"),
    "CSV": ("1,2,0.5,7", "the label '1,2,0.5,7' is not"),
    "zero byte in a value": ("1 qid:2 1:0.\x005 2:1", r"the value of '1:0.\x005' is not"),
    "zero byte between": ("1 qid:2 1:0.5 \0 2:1", r"id:value without spaces in it; got '\x00'"),
    "zero byte in a comment": ("1 qid:2 1:0.5 # a\0b", "a zero byte"),
    "zero byte in a comment line": ("# a\0b", "a zero byte"),
    "zero byte as the line": ("\0", r"the label '\x00' is not"),
    "carriage return inside": ("1 qid:2 1:0.5\r2:1", r"the value of '1:0.5\r2:1' is not"),
    "form feed": ("1 qid:2 1:0.5\f2:1", r"the value of '1:0.5\x0c2:1' is not"),
    "no-break space": ("1 qid:2\u00a01:0.5", "is neither a whole number"),
    "bytes that are not text": (b"1 qid:2 1:\xff\xfe", r"the value of '1:\xff\xfe' is not"),
    "byte order mark inside": ("\ufeff1 qid:2 1:0.5", "is not a finite decimal number"),
}


def with_line_7(line: str | bytes, end: bytes = b"\n") -> bytes:
    lines = [good.encode() for good in GOOD]
    lines[6] = line if isinstance(line, bytes) else line.encode()
    return end.join(lines) + end


def message_of(text: bytes, **options) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        read(text, **options)
    assert type(caught.value) is ValueError
    return str(caught.value)


def test_the_lines_around_are_legal() -> None:
    assert len(read(with_line_7(LINE))) == 20
    assert len(MALFORMED) >= 66
    assert len(LEGAL) >= 16


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_line_7_of_20(name: str, tmp_path: pathlib.Path) -> None:
    line, what = MALFORMED[name]
    path = tmp_path / "train.txt"
    for end in (b"\n", b"\r\n"):
        path.write_bytes(with_line_7(line, end))
        with pytest.raises(ValueError, match=r"line 7") as caught:
            load_letor(path)
        message = str(caught.value)
        assert message.startswith(f"{path}, line 7: ")
        assert what in message
        shown = line if isinstance(line, str) else line.decode("utf-8", "backslashreplace")
        if len(shown) < 80:
            escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
            assert f"The line: '{escaped}'" in message
        assert "\0" not in message
    assert plain_letor(with_line_7(line), 10**4) == (None, 7)


@pytest.mark.parametrize("name", MALFORMED)
def test_the_first_faulty_line_is_told_whatever_the_threads(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = MALFORMED[name][0]
    text = (
        with_line_7(line) + with_line_7("nonsense") * 3 + (line if isinstance(line, bytes) else line.encode())
    )
    expected = message_of(text, n_threads=1)
    assert "line 7:" in expected
    for chunk in (1, 50, 300, 1000):
        monkeypatch.setattr(readers, "_CHUNK", chunk)
        for n_threads in (1, 2, 5, 8):
            assert message_of(text, n_threads=n_threads) == expected


def lines_of_the_two_places(ids: list[str]) -> tuple[int, int] | None:
    """The lines of the first query that returns after another one, or None, by reading one line at a time."""
    seen: dict[str, int] = {}
    for i, q in enumerate(ids, 1):
        if q in seen and ids[i - 2] != q:
            return seen[q], i
        seen.setdefault(q, i)
    return None


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.booleans())
def test_a_query_in_two_places_is_refused_with_both_lines(ids: list[str], names: bool) -> None:
    lines = [f"1 qid:{q if names else ord(q)} 1:1" for q in ids]
    text = "\ufeff# heading\n\n" + "\n# between\n".join(lines)
    places = lines_of_the_two_places(ids)
    if places is None:
        assert read(text).groups.rows is None
        return
    first, second = (2 * line + 1 for line in places)
    query = ids[places[0] - 1] if names else ord(ids[places[0] - 1])
    assert message_of(text.encode()).startswith(
        f"the query {query!r} occurs in two places, <BytesIO>:{first} and <BytesIO>:{second}. If they are "
        "one query, pass split_queries='join'"
    )
    assert read(text, split_queries="join").y.sum() == len(ids)


def test_the_lines_of_a_split_query_in_a_large_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letor_errors, "_PART", 64)
    lines = [f"0 qid:{i // 3} 1:{i}" for i in range(600)] + ["0 qid:77 1:1", "0 qid:500 1:1"]
    assert "<BytesIO>:232 and <BytesIO>:601." in message_of("\n".join(lines).encode())


def test_split_queries_is_error_or_join(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"split_queries must be 'error' or 'join'; got 'sort'\."):
        read("1 qid:1 1:1\n", split_queries="sort")
    path = tmp_path / "a.txt"
    path.write_text("1 qid:1 1:1\n1 qid:2 1:1\n1 qid:1 1:1\n")
    with pytest.raises(ValueError, match=re.escape(f"two places, {path}:1 and {path}:3.")):
        load_queries(path)
    assert load_queries(path, split_queries="join").n_queries == 2


KINDS = {
    "number among names": (["1 qid:A 1:1", "1 qid:7 1:1"], "line 2: 'qid:7' is a whole number, but"),
    "name among numbers": (["1 qid:7 1:1", "1 qid:A 1:1"], "line 2: 'qid:A' is a name, but"),
    "number after none": (["1 1:1", "1 qid:7 1:1"], "line 2: 'qid:7' on this line, but no qid"),
    "name after none": (["1 1:1", "1 qid:A 1:1"], "line 2: 'qid:A' on this line, but no qid"),
    "late in the first": (["1 1:1 qid:7", "1 qid:7 1:1"], "line 1: the qid comes after a feature: 'qid:7'"),
    "none after names": (["1 qid:A 1:1", "", "1 1:1"], "line 3: expected a qid directly after the label"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_query_ids_do_not_mix(name: str) -> None:
    lines, what = KINDS[name]
    assert what in message_of("\n".join(lines).encode())


BINARY = {
    "PNG": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), "a PNG picture"),
    "pickle": (pickle.dumps({"X": np.arange(5.0)}), "a pickle"),
    "zip": (b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(50), "a zip archive"),
    "Parquet": (b"PAR1\x15\x04" + bytes(50), "use load_parquet"),
    "zstandard": (b"\x28\xb5\x2f\xfd\x04\x00" + bytes(50), "zstandard"),
    "NumPy": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'}", "a NumPy array"),
    "HTML": (b"<!DOCTYPE html>\n<html><body>404</body></html>\n", "HTML or XML"),
    "JSON": (b'{"qid": 1}\n', "JSON"),
    "PDF": (b"%PDF-1.4\n", "a PDF document"),
    "CSV": (
        b"query,label,bm25\n7,2,0.5\n",
        "CSV: read it with pandas.read_csv and pass the frame to load_frame",
    ),
    "CSV without a head": (b"2;7;0.5;1.25\n", "CSV: read it with pandas"),
    "UTF-16": ("1 qid:1 1:0.5\n".encode("utf-16"), "UTF-16 text: save it as UTF-8"),
    "UTF-16 big-endian": (
        b"\xfe\xff" + "1 qid:1 1:0.5\n".encode("utf-16-be"),
        "UTF-16 text: save it as UTF-8",
    ),
    "UTF-16 without a mark": ("1 qid:1 1:0.5\n".encode("utf-16-le"), "UTF-16 text: save text as UTF-8"),
    "zeros": (bytes(1000), "binary"),
    "random": (np.random.default_rng(0).bytes(5000), ""),
}


@pytest.mark.parametrize("name", BINARY)
def test_files_of_other_kinds(name: str) -> None:
    text, hint = BINARY[name]
    message = message_of(text)
    assert message.startswith("<BytesIO>, line 1: ")
    assert hint in message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf", "the file holds no document"),
        (b"\n", "the file holds no document"),
        (b"\n\r\n  \n# only\n#comments", "the file holds no document"),
        (b"1 qid:1\n2 qid:2 # nothing\n", "no line has a feature"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
    ],
)
def test_files_without_documents(text: bytes, what: str) -> None:
    assert message_of(text).startswith(f"<BytesIO>: {what}") or message_of(text).startswith(
        f"<BytesIO>: the {what}"
    )


@pytest.mark.parametrize("suffix", PACKERS)
def test_damaged_compressed_streams(suffix: str, tmp_path: pathlib.Path) -> None:
    packed = PACKERS[suffix](TEXT.encode() * 50)
    path = tmp_path / f"a.{suffix}"
    middle = bytearray(packed)
    middle[len(middle) // 2] ^= 0xFF
    for damaged in (packed[:-1], packed[: len(packed) // 2], packed[:12], bytes(middle)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=re.escape(f"{path}: the compressed stream (")):
            load_letor(path)
    path.write_bytes(b"\0\0" + packed[2:])
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 1: ")):
        load_letor(path)


def test_a_name_that_promises_compression_is_mentioned(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.gz").write_text("nonsense")
    with pytest.raises(ValueError, match=r"The file is not compressed as its name says\.$"):
        load_letor(tmp_path / "a.gz")


def test_long_lines_are_shown_around_the_place() -> None:
    features = [f"{i}:{i / 8:g}" for i in range(1, 5000)]
    features[2500] = "2501:oops"
    message = message_of(("1 qid:1 " + " ".join(features) + "\n").encode())
    assert "the value of '2501:oops' is not" in message
    assert "The line: '..." in message
    assert "2500:312.5 2501:oops 2502:312.75" in message
    assert len(message) < 300
    message = message_of(b"1 qid:1 1:" + b"x" * 10**6)
    assert len(message) < 400


def test_line_numbers_count_every_line() -> None:
    text = "# heading\n\n1 qid:1 1:1\r\n\n# x\n1 qid:1 1:1\n\nbad\n"
    assert ", line 8: " in message_of(text.encode())


# ---- chunks and threads


def awkward_text() -> bytes:
    rng = np.random.default_rng(0)
    lines = []
    for i in range(300):
        ids = np.flatnonzero(rng.random(40) < 0.5) + 1
        features = " ".join(
            f"{j}:{v!r}" for j, v in zip(ids, rng.normal(size=len(ids)).tolist(), strict=True)
        )
        comment = ("", "# x", f"#docid = {i}", "#é")[i % 4]
        lines.append(f"{i % 5} qid:{i // 15} {features} {comment}")
        if i % 7 == 0:
            lines.append(("", "# a line of comment", "   ")[i % 3])
    return "\n".join(lines).encode()


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1000, 10_000, 1 << 20])
def test_chunks_and_threads_change_nothing(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = awkward_text()
    names = re.sub(rb"qid:", b"qid:N-", text)
    (expected, _), (expected_names, _) = plain_letor(text, 40), plain_letor(names, 40)
    monkeypatch.setattr(readers, "_CHUNK", chunk)
    for n_threads in range(1, 9):
        same(read(text, n_threads=n_threads), expected)
        same(read(names, n_threads=n_threads), expected_names)
    same(read(text + b"\n"), expected)


def test_every_cut_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    # The end of the text, and with small chunks of every part of it, falls on every kind of character.
    text = b"1 qid:12 1:0.5 2:1e-3 # a\r\n\n0 qid:3 2:7\n"
    monkeypatch.setattr(readers, "_CHUNK", 5)
    for end in range(len(text) + 1):
        check_against_definition(text[:end], n_threads=2)


def check_against_definition(text: bytes, **options) -> None:
    expected, refused = plain_letor(text, 12)
    if expected is not None and expected.groups.rows is not None:
        assert "occurs in two places" in message_of(text, n_features=12, **options)
        options["split_queries"] = "join"
    if expected is None:
        message = message_of(text, n_features=12, **options)
        assert message.startswith(f"<BytesIO>, line {refused}: " if refused else "<BytesIO>: the file ")
        return
    if re.search(rb"^[^#\n]*qid:", text, re.MULTILINE):
        same(read(text, n_features=12, **options), expected)
    else:
        assert "there is no qid on its lines" in message_of(text, n_features=12, **options)
        same(read(text, n_features=12, group=[len(expected)], **options), expected)


PIECES = [b"\n", b"\r\n", b"\r", b"\t", b" ", b"  ", b"\0", b"\xff", b"\xef\xbb\xbf", b"9" * 25]
PIECES += (
    b"1 0.5 -1 qid: qid:3 qid:A 1: 2: 3:0.25 12:1e5 13:1 : # #a #docid=b docid = . e5 NULL 1e999".split()
)
PIECES += [b"1 qid:3 1:0.5\n", b"0 qid:A 2:0.5\n", b"0 1:2\n", b"1 qid:3 1:0.5 #docid = x\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.integers(1, 40))
@settings(max_examples=500)
def test_any_text_is_read_or_refused_as_defined(text: bytes, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_CHUNK", chunk)
        check_against_definition(text, n_threads=2)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from(list(b"0159:.+-eE #\t\r\nqdA\0\xff"))), max_size=4
    ),
    st.sampled_from(["insert", "replace", "delete"]),
)
@settings(max_examples=500)
def test_a_text_with_wrong_bytes_is_read_or_refused_as_defined(changes: list, how: str) -> None:
    text = bytearray(with_line_7(LINE))
    for place, byte in changes:
        at = place % len(text)
        if how == "insert":
            text.insert(at, byte)
        elif how == "replace":
            text[at] = byte
        else:
            del text[at]
    check_against_definition(bytes(text))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    if data[:2] == b"\x1f\x8b" or data[:3] == b"BZh" or data[:6] == b"\xfd7zXZ\0":
        return
    check_against_definition(data)


def test_a_line_longer_than_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_CHUNK", 100)
    values = np.random.default_rng(0).normal(size=20_000)
    long = "1 qid:1 " + " ".join(f"{i}:{v!r}" for i, v in enumerate(values.tolist(), 1))
    text = f"0 qid:1 1:1\n{long}\n2 qid:1 2:1\n# {'x' * 5000}\n3 qid:2 3:1 # {'y' * 5000}\n"
    for n_threads in (1, 4):
        q = read(text, n_threads=n_threads)
        np.testing.assert_array_equal(q.X[1], values)
        np.testing.assert_array_equal(q.y, [0, 1, 2, 3])
        assert q.docid[3] == "y" * 5000


def test_a_million_features_on_one_line() -> None:
    text = (
        "1 qid:1 1:1\n1 qid:1 "
        + " ".join(f"{i}:{i % 97}" for i in range(1, 10**6 + 1))
        + "\n"
        + "0 qid:2 5:1\n" * 18
    )
    q = read(text)
    assert q.X.shape == (20, 10**6)
    np.testing.assert_array_equal(q.X[1], np.arange(1, 10**6 + 1) % 97)
    assert (np.count_nonzero(q.X[0]), np.count_nonzero(q.X[2:])) == (1, 18)


@pytest.mark.parametrize("large", ["2147483647", "4294967296", "900000000000000000"])
def test_a_huge_id_does_not_ask_for_memory(large: str) -> None:
    text = with_line_7(f"1 qid:2 1:0.5 {large}:1")
    message = message_of(text)
    assert f"line 7: the feature id {large} asks for a dense matrix of 20 x {large}" in message
    assert "n_features=" in message
    assert f"line 7: the feature id of '{large}:1' is past the last of n_features=3" in message_of(
        text, n_features=3
    )
    # a line that cannot be read comes first, wherever it stands
    assert ", line 21: the label 'bad' is not" in message_of(text + b"bad\n")


def test_a_large_matrix_that_is_filled_enough_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "DENSE_LIMIT", 1000)
    rows = [" ".join(f"{j}:1" for j in range(1, 11)) for _ in range(50)]
    text = "".join(f"1 qid:1 {row} # a:b:c\n" for row in rows)
    assert read(text + "1 qid:1 900:1\n").X.shape == (51, 900)  # 501 of 45,900
    assert "line 51: the feature id 1100 asks for" in message_of((text + "1 qid:1 1100:1\n").encode())
    assert read(text + "1 qid:1 1100:1\n", n_features=1100).X.shape == (51, 1100)


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="limits and reads memory as Linux does")
def test_too_little_memory_is_a_memory_error() -> None:
    run(
        """
        import io, resource, sinkprop
        text = b"1 qid:1 1:1\\n" * 1000
        sinkprop.load_letor(io.BytesIO(text))
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        for n_features in (10**6, 2**30 - 1):
            try:
                sinkprop.load_letor(io.BytesIO(text), n_features=n_features)
            except MemoryError:
                pass
            else:
                raise SystemExit("read")
            try:
                sinkprop.load_letor(io.BytesIO(text + b"x"), n_features=n_features)
            except ValueError as error:
                assert "line 1001: the label 'x'" in str(error), error
            else:
                raise SystemExit("read")
        """
    )


@pytest.mark.skipif(sys.platform != "linux", reason="limits and reads memory as Linux does")
def test_memory_is_at_most_twice_the_file_and_the_result(tmp_path: pathlib.Path) -> None:
    row = "1 qid:1 " + " ".join(f"{j}:{j / 128}" for j in range(1, 137)) + " #docid = G00-00-0000000\n"
    path = tmp_path / "a.txt"
    path.write_text(row * 40_000)
    out = run(
        f"""
        import io, os, resource, sinkprop
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        sinkprop.load_letor(io.BytesIO(b"1 qid:1 1:1\\n"))
        before = peak()
        q = sinkprop.load_letor({str(path)!r}, n_threads=2)
        result = q.X.nbytes + q.y.nbytes + q.qid.nbytes + q.docid.nbytes
        print(peak() - before, os.path.getsize({str(path)!r}), result)
        """
    )
    used, size, result = map(int, out.split())
    assert used < 2 * size + result


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads as Linux does")
def test_threads_end_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_CHUNK", 100)
    before = len(os.listdir("/proc/self/task"))
    read(awkward_text(), n_threads=8)
    message_of(awkward_text() + b"\nbad", n_threads=8)
    assert len(os.listdir("/proc/self/task")) <= before


@pytest.mark.parametrize("n_threads", [0, -1, 1.5, "2", True])
def test_wrong_n_threads(n_threads) -> None:
    with pytest.raises(ValueError, match=r"^n_threads must be"):
        read(TEXT, n_threads=n_threads)
    with pytest.raises(ValueError, match=r"^n_features must be"):
        read(TEXT, n_features=n_threads)


class Blocks(io.RawIOBase):
    """A file of `count` times the same block, then an end, made as it is read."""

    def __init__(self, block: bytes, count: int, end: bytes) -> None:
        self.block, self.count, self.end = block, count, end

    def read(self, size: int = -1) -> bytes:
        if self.count:
            self.count -= 1
            return self.block
        end, self.end = self.end, b""
        return end


@pytest.mark.slow
def test_texts_past_two_gigabytes() -> None:
    block = (b"#" + b"x" * 65_534 + b"\n") * 256  # 16 MiB
    good = b"1 qid:1 1:0.1 2:0.3 #docid = a\n2 qid:5 2:-7 #docid = bc\n"
    q = load_letor(Blocks(good + block, 1, b""))
    assert q.docid.tolist() == ["a", "bc"]
    q = load_letor(Blocks(block, 129, good))
    np.testing.assert_array_equal(q.X, [[0.1, 0.3], [0, -7]])
    assert (q.y.tolist(), q.qid.tolist(), q.docid.tolist()) == ([1, 2], [1, 5], ["a", "bc"])
    with pytest.raises(ValueError, match=rf"line {129 * 256 + 3}: the value of '1:x' is not"):
        load_letor(Blocks(block, 129, good + b"1 qid:1 1:x\n"))


# ---- sizes of queries

NO_QID = "".join(f"{i % 2} 1:{i}\n" for i in range(6))


def test_sizes_given() -> None:
    for group in ([2, 3, 1], (2, 3, 1), np.array([2, 3, 1], np.int32), np.array([2.0, 3.0, 1.0])):
        q = read(NO_QID, group=group)
        np.testing.assert_array_equal(q.qid, [1, 1, 2, 2, 2, 3])
        assert q.qid.dtype == np.int64


def test_sizes_in_a_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sizes").write_bytes(b"\xef\xbb\xbf2\r\n 3 \n\n1")
    for group in (tmp_path / "sizes", str(tmp_path / "sizes")):
        np.testing.assert_array_equal(read(NO_QID, group=group).qid, [1, 1, 2, 2, 2, 3])
    np.testing.assert_array_equal(load_query_sizes(tmp_path / "sizes"), [2, 3, 1])
    assert load_query_sizes(tmp_path / "sizes").dtype == np.int64


def test_sizes_beside_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rank.train"
    path.write_text(NO_QID)
    with pytest.raises(
        ValueError, match=r"no qid on its lines nor a file .*rank\.train\.query beside it.*group="
    ):
        load_letor(path)
    (tmp_path / "rank.train.query").write_text("2\n3\n1\n")
    assert load_letor(path).n_queries == 3
    np.testing.assert_array_equal(load_letor(path, group=[6]).qid, [1] * 6)
    (tmp_path / "rank.train.gz").write_bytes(gzip.compress(NO_QID.encode()))
    assert load_letor(tmp_path / "rank.train.gz").n_queries == 3
    (tmp_path / "rank.train.gz.query").write_text("6\n")
    assert load_letor(tmp_path / "rank.train.gz").n_queries == 1
    # a file with qid has no use for it
    (tmp_path / "rank.train").write_text("1 qid:1 1:1\n")
    assert load_letor(path).qid.tolist() == [1]


@pytest.mark.parametrize(
    ("sizes", "what"),
    [
        ("2\n3\n", r"sizes: the sizes must sum to 6, .*; the 2 sizes sum to 5\.$"),
        ("2\n\n3\n4\n1\n", r"; the 4 sizes sum to 10, past it from line 4 on\.$"),
        (
            "2\n3\n0\n1\n",
            r"sizes, line 3: expected the size of a query, a whole number of at least 1; got '0'",
        ),
        ("2\n-3\n", r"sizes, line 2: .*got '-3'"),
        ("2.0\n4\n", r"sizes, line 1: .*got '2\.0'"),
        ("2\n\n4x\n", r"sizes, line 3: .*got '4x'"),
        ("2 4\n", r"sizes, line 1: .*got '2 4'"),
        ("9223372036854775808\n", r"sizes, line 1: .*got '9223372036854775808'"),
        (
            "9223372036854775807\n9223372036854775807\n",
            r"sum to 18446744073709551614, past it from line 1 on",
        ),
        ("٣\n", r"sizes, line 1: .*got '٣'"),
        ("\n\n", r"sizes: the file holds no sizes"),
        ("", r"sizes: the file holds no sizes"),
    ],
)
def test_wrong_sizes_in_a_file(sizes: str, what: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "sizes").write_text(sizes, encoding="utf-8")
    with pytest.raises(ValueError, match=what):
        read(NO_QID, group=tmp_path / "sizes")


@pytest.mark.parametrize(
    ("sizes", "what"),
    [
        ([2, 3], r"^group: the sizes must sum to 6, .*; the 2 sizes sum to 5\.$"),
        ([5, 3], r"; the 2 sizes sum to 8, past it from group\[1\] on\.$"),
        ([6, 0], r"^group\[1\] must be a size, a whole number of at least 1; got 0"),
        ([-6, 12], r"^group\[0\] must be a size, .*got -6"),
        ([2.5, 3.5], r"^group\[0\] must be a size, .*got 2\.5"),
        ([np.nan, 6], r"^group\[0\] must be a size, .*got nan"),
        ([], r"^group must hold the sizes of the queries"),
        ([[6]], r"^group must hold the sizes of the queries"),
        (["6"], r"^group must hold the sizes of the queries"),
        (6, r"^group must hold the sizes of the queries"),
    ],
)
def test_wrong_sizes_given(sizes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        read(NO_QID, group=sizes)


def test_no_sizes_and_sizes_beside_qid() -> None:
    with pytest.raises(ValueError, match=r"^<BytesIO>: there is no qid on its lines, so .* Pass group="):
        read(NO_QID)
    with pytest.raises(ValueError, match=r"^<BytesIO> has a qid on its lines; group= is only for files"):
        read(TEXT, group=[20])


# ---- what is written

qids = st.one_of(
    st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=12).map(lambda v: np.array(v, np.int64)),
    st.lists(st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,9}", fullmatch=True), min_size=1, max_size=12).map(
        np.array
    ),
)
finite = {"allow_nan": False, "allow_infinity": False}


@st.composite
def queries(draw: st.DrawFn) -> Queries:
    qid = draw(qids)
    n = len(qid)
    width = draw(st.sampled_from([64, 32]))
    X = draw(
        hnp.arrays(f"f{width // 8}", (n, draw(st.integers(1, 5))), elements=st.floats(width=width, **finite))
    )
    y = draw(hnp.arrays("f8", n, elements=st.floats(0, 2.0**53)))
    word = st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="#", min_codepoint=33), max_size=8
    )
    docid = draw(st.none() | st.lists(word, min_size=n, max_size=n).map(np.array))
    return Queries(X, y, qid, docid)


@given(queries(), st.booleans(), st.sampled_from(["txt", "gz", "xz", "bz2"]), st.integers(1, 8))
@settings(max_examples=200)
def test_what_is_saved_reads_back_to_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory, q: Queries, sparse: bool, suffix: str, block: int
) -> None:
    path = tmp_path_factory.getbasetemp() / f"round.{suffix}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_BLOCK", block)
        save_letor(path, q, sparse=sparse)
    back = load_letor(path, dtype=q.X.dtype, split_queries="join")
    if q.docid is not None and not any(q.docid.tolist()):
        assert back.docid is None
        q = Queries(q.X, q.y, q.qid)
    same(back, q)
    packed = path.read_bytes()
    magic = {"txt": b"", "gz": b"\x1f\x8b", "xz": b"\xfd7zXZ", "bz2": b"BZh"}[suffix]
    assert packed.startswith(magic)


def texts_of(X: np.ndarray, tmp_path: pathlib.Path) -> list[str]:
    save_letor(tmp_path / "a.txt", Queries(X.reshape(-1, 1), np.zeros(X.size), np.zeros(X.size, int)))
    return [line.partition(" 1:")[2] for line in (tmp_path / "a.txt").read_text().splitlines()]


def test_doubles_are_written_as_python_writes_them(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    X = np.concatenate(
        [
            bits[np.isfinite(bits)],
            rng.normal(size=5000),
            rng.normal(size=5000).round(5),
            rng.integers(0, 2**53, 1000, dtype=np.uint64).view(np.float64),
            rng.integers(-(2**60), 2**60, 1000).astype(np.float64),
            10.0 ** np.arange(-323, 309),
            2.0 ** np.arange(-1074, 1024),
            np.nextafter(2.0 ** np.arange(-1073, 1024), 0),
            [0.0, -0.0, 9007199254740993.0, 1e15, 1e16, 123456789012345680.0, 0.0001, 0.00001, 1 / 3, 5e-324],
            [np.finfo(np.float64).max, np.finfo(np.float64).tiny],
        ]
    )
    assert texts_of(X, tmp_path) == [repr(x).removesuffix(".0") for x in X.tolist()]


def test_floats_are_written_in_the_fewest_digits(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    X = np.concatenate(
        [
            bits[np.isfinite(bits)],
            np.float32(2) ** np.arange(-149, 128, dtype=np.float32),
            np.float32([0, -0.0, 0.1]),
        ]
    )
    texts = texts_of(X, tmp_path)
    assert np.array([float(t) for t in texts]).astype(np.float32).tobytes() == X.tobytes()

    def digits(text: str) -> str:
        return text.lstrip("-").partition("e")[0].replace(".", "").strip("0")

    expected = [digits(np.format_float_scientific(x, unique=True)) for x in X]
    assert [digits(t) for t in texts] == expected


def test_sparse_keeps_the_number_of_features(tmp_path: pathlib.Path) -> None:
    q = Queries([[0, 1, 0], [0, 0, 0], [-0.0, 0, 2]], [1, 0, 2], [1, 1, 2])
    save_letor(tmp_path / "a.txt", q, sparse=True)
    assert (tmp_path / "a.txt").read_text() == "1 qid:1 2:1 3:0\n0 qid:1\n2 qid:2 1:-0 3:2\n"
    same(load_letor(tmp_path / "a.txt"), q)


def test_ids_of_other_types_are_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.txt"
    for qid in (
        np.array([3.0, 4.0]),
        np.array([3, 4], object),
        np.array([np.int8(3), 4.0], object),
        np.uint64([3, 4]),
    ):
        save_letor(path, Queries([[1.0], [2.0]], [0, 1], qid, np.array([10, 11])))
        assert path.read_text() == "0 qid:3 1:1 #docid = 10\n1 qid:4 1:2 #docid = 11\n"


@pytest.mark.parametrize(
    ("qid", "what"),
    [
        ([1, -1], r"^qid must be whole numbers from 0 .*; row 1 has -1\."),
        ([1.0, 1.5], r"^qid must be whole numbers from 0 .*; row 1 has 1\.5\."),
        ([1.0, float("inf")], r"row 1 has inf\."),
        ([1, 2**63], r"row 1 has 9223372036854775808\."),
        (np.uint64([1, 2**63]), r"row 1 has 9223372036854775808\."),
        (["a", "b c"], r"row 1 has 'b c'\."),
        (["a", "1"], r"row 1 has '1'\. Convert such texts to whole numbers first\."),
        (["a", ""], r"row 1 has ''\."),
        (["a", "é"], r"row 1 has 'é'\."),
        (["a", "b\n"], r"row 1 has 'b\\n'\."),
        ([("a", 1), ("a", 2)], r"row 0 has \('a', 1\)\."),
        ([True, False], r"row 0 has True\."),
        ([1, "a"], r"^qid must be all numbers or all names; row 1 has 'a', row 0 1\."),
    ],
    ids=str,
)
def test_ids_that_cannot_be_written(qid, what: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ValueError, match=what):
        save_letor(path, Queries([[1.0], [2.0]], [0, 1], qid))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    "docid", ["a b", "a\nb", "a#b", "#", "\t", "a\0b", "a\r", " a", "\ud800", "\udcc3\udca9", None, b"a"]
)
def test_docids_that_cannot_be_written(docid, tmp_path: pathlib.Path) -> None:
    docids = np.array(["fine", docid], dtype=object)
    with pytest.raises(ValueError, match=r"^docid must .*; row 1 has "):
        save_letor(tmp_path / "a.txt", Queries([[1.0], [2.0]], [0, 1], [1, 1], docids))
    assert os.listdir(tmp_path) == []


def test_values_spoilt_after_the_check_are_not_written(tmp_path: pathlib.Path) -> None:
    q = read(TEXT)
    q.X[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"^X must be finite, without NaN or inf; row 3, column 1"):
        save_letor(tmp_path / "a.txt", q)
    with pytest.raises(TypeError, match=r"^queries must be Queries; got ndarray"):
        save_letor(tmp_path / "a.txt", q.X)
    assert os.listdir(tmp_path) == []


@dataclass
class Failing:
    """Fails at its second call, as a full disk does."""

    calls: int = 0

    def __call__(self, *arguments: object, **named: object) -> bytes:
        self.calls += 1
        if self.calls == 2:
            raise OSError("No space left on device")
        return b"1 qid:1 1:1\n" * 1000


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.xz", "a.bz2"])
@pytest.mark.parametrize("old", [None, "old"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    name: str, old: str | None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    if old is not None:
        path.write_text(old)
    monkeypatch.setattr(readers, "_BLOCK", 5)
    with monkeypatch.context() as patch:
        patch.setattr(readers._native, "letor_write", Failing())
        with pytest.raises(OSError, match=r"^No space left"):
            save_letor(path, read(TEXT))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", Failing(calls=1))
        with pytest.raises(OSError, match=r"^No space left"):
            save_letor(path, read(TEXT))
    assert os.listdir(tmp_path) == ([] if old is None else [name])
    assert old is None or path.read_text() == old
    save_letor(path, read(TEXT))
    same(load_letor(path), read(TEXT))


@pytest.mark.skipif(os.name != "posix", reason="modes and links as on POSIX")
def test_modes_and_links_are_kept(tmp_path: pathlib.Path) -> None:
    q = read(TEXT)
    (tmp_path / "there").mkdir()
    path, link = tmp_path / "there" / "a.txt", tmp_path / "link.txt"
    link.symlink_to(path)
    save_letor(link, q)
    assert link.is_symlink()
    same(load_letor(path), q)
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    path.chmod(0o640)
    save_letor(path, q)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(OSError, match="Not a regular file"):  # a device cannot be replaced in one step
        save_letor(os.devnull, q)
    with pytest.raises(IsADirectoryError):
        save_letor(tmp_path, q)
    with pytest.raises(FileNotFoundError):
        save_letor(tmp_path / "none" / "a.txt", q)
    if os.geteuid():
        path.chmod(0o440)
        with pytest.raises(PermissionError):
            save_letor(path, q)


def test_the_same_rows_make_the_same_bytes(tmp_path: pathlib.Path) -> None:
    for suffix in PACKERS:
        save_letor(tmp_path / f"a.{suffix}", read(TEXT))
        save_letor(tmp_path / f"b.{suffix}", read(TEXT))
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_load_queries_goes_by_the_name(tmp_path: pathlib.Path) -> None:
    save_letor(tmp_path / "a.txt", read(TEXT))
    same(load_queries(tmp_path / "a.txt"), read(TEXT))
    assert load_queries(str(tmp_path / "a.txt"), n_features=9).n_features == 9
    with pytest.raises(TypeError, match="widht"):
        load_queries(tmp_path / "a.txt", widht=9)


def test_reading_and_writing_load_numpy_only() -> None:
    out = run(
        """
        import io, sys, tempfile, sinkprop
        with tempfile.TemporaryDirectory() as folder:
            sinkprop.save_letor(folder + "/a.gz", sinkprop.load_letor(io.StringIO("1 qid:1 1:1\\n")))
            sinkprop.load_queries(folder + "/a.gz")
        print(*sorted({name.partition(".")[0] for name in sys.modules}))
        """
    )
    assert not set(out.split()) & {"scipy", "sklearn", "pandas", "polars", "pyarrow", "torch"}
    assert sinkprop.load_letor is load_letor


def test_the_examples_in_the_documentation(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "data.md"
    monkeypatch.chdir(tmp_path)
    for part in page.read_text(encoding="utf-8").split("```python\n")[1:]:
        example_ = part.split("```")[0]
        if "import pandas" in example_:
            pytest.importorskip("pandas", reason="the example has a frame of pandas")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example_, "data.md", "exec"), {})
        expected = [line.strip()[2:] for line in example_.splitlines() if line.strip().startswith("# ")]
        assert printed.getvalue().splitlines() == expected


def test_missing_values_are_kept_as_nan():
    text = "1 qid:1 1:NULL 2:3\n0 qid:1 1:4 2:NULL\n0 qid:1 2:0\n"
    for kind in (np.float64, np.float32):
        q = load_letor(io.StringIO(text), allow_nan=True, dtype=kind)
        np.testing.assert_array_equal(q.X, np.array([[np.nan, 3], [4, np.nan], [0, 0]], kind))
        assert q.allow_nan
        assert q.X.dtype == kind
    with pytest.raises(ValueError, match="'1:NULL'"):
        load_letor(io.StringIO(text))
    with pytest.raises(ValueError, match="null must not be given with allow_nan, which keeps NULL as NaN"):
        load_letor(io.StringIO(text), allow_nan=True, null=0)
    with pytest.raises(ValueError, match="too large for float32"):
        load_letor(io.StringIO("1 qid:1 1:NULL 2:1e39\n"), allow_nan=True, dtype=np.float32)
