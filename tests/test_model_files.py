"""Model files: what was written reads back, bit for bit; anything else in the file's place is an error."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from enum import IntEnum
from math import isnan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from places import ROOT

import sinkprop
from sinkprop import model_files
from sinkprop.model_files import FORMAT_VERSION, Model, ModelFileError, read_model, write_model

DOCUMENTATION = ROOT / "docs" / "model-files.md"
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "U7"]

STATE = {
    "weights": np.array([0.1, -0.0, 1 / 3, 5e-324, 1.7976931348623157e308, -2.5, np.pi]),
    "bias": -0.25,
    "means": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    "names": np.array(["BM25", "Gr\u00f6\u00dfe"]),
    "used": np.array([True, False]),
    "options": {"n_iter": 5, "gain": "ndcg@10", "tol": None, "warm": False, "sizes": [1, 2, 3]},
}


def same(a: object, b: object) -> bool:
    """Equal in type, order and bits, but for the payload of a NaN and the width of text arrays."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (isnan(a) and isnan(b))
    if isinstance(a, np.ndarray):
        if (a.dtype.kind, a.shape) != (b.dtype.kind, b.shape):
            return False
        if a.dtype.kind == "U":
            return a.tolist() == b.tolist()
        a = np.ascontiguousarray(a)
        if a.dtype.kind == "f":
            a, b = (
                np.where(np.isnan(a), np.nan, a).astype(a.dtype),
                np.where(np.isnan(b), np.nan, b).astype(b.dtype),
            )
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return a == b


def round_trip(path: Path, state: dict, about: dict | None = None) -> Model:
    write_model(path, "Linear", state, about=about)
    return read_model(path, kind="Linear")


def sealed(body: bytes) -> bytes:
    """A body with its checksum, made as the documentation says."""
    return body + b'  "sha256": "%s"\n}\n' % hashlib.sha256(body).hexdigest().encode()


def with_state(text: str, *, version: int = 1, about: str = "{}", kind: str = '"Linear"') -> bytes:
    """A file with the state given as JSON text and a valid checksum."""
    return sealed(
        f'{{\n  "format": "sinkprop-model",\n  "version": {version},\n  "kind": {kind},\n'
        f'  "library": "0.1.0",\n  "about": {about},\n  "state": {text},\n'.encode("utf-8", "surrogatepass")
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.json"
    write_model(path, "SinkPropRanker", STATE, about={"gain": "ndcg@10", "queries": 106})
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.json"


@pytest.fixture
def unflushed(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path for hundreds of files that need not survive a power cut."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    return path


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        elements=texts.map(lambda text: text[:7].rstrip("\x00")) if dtype == "U7" else None,
    )
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(texts | st.sampled_from(["dtype", "shape", "data"]), inner, max_size=4)
        | st.fixed_dictionaries({"dtype": inner, "shape": inner, "data": inner})
        | st.sampled_from(["float", "tuple", "dict"]).flatmap(lambda key: st.fixed_dictionaries({key: inner}))
    ),
    max_leaves=10,
)
states = st.dictionaries(texts, values, max_size=5)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(state=states, about=states)
@example(state={}, about={})
@example(state={"float": "nan"}, about={"dict": {"dict": {}}})
@example(state={"dtype": "float64", "shape": [1], "data": [1.0]}, about={"tuple": [1]})
@example(
    state={"sha256": "0" * 64, 'a",\n  "sha256": "': "\r\n\u2028\x00\x7f\u202e\U0001f600\U000e0001"}, about={}
)
def test_states_read_back_with_the_same_bits(unflushed: Path, state: dict, about: dict) -> None:
    read = round_trip(unflushed, state, about)
    assert (read.kind, read.library) == ("Linear", sinkprop.__version__)
    assert same(read.state, state)
    assert same(read.about, about)
    data = unflushed.read_bytes()
    write_model(unflushed, "Linear", read.state, about=read.about)
    assert unflushed.read_bytes() == data
    text = data.decode("utf-8")
    assert text.replace("\n", "").isprintable()
    fields = json.loads(text, parse_constant=pytest.fail)
    body, _, closing = text.rpartition('  "sha256"')
    assert len(closing.encode()) + len('  "sha256"') == 81
    assert hashlib.sha256(body.encode()).hexdigest() == fields["sha256"]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bits=st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_doubles_of_any_bits(unflushed: Path, bits: list[int]) -> None:
    doubles = np.array(bits, dtype=np.uint64).view(np.float64)
    assert same(
        round_trip(unflushed, {"x": doubles, "y": doubles.tolist()}).state,
        {"x": doubles, "y": doubles.tolist()},
    )


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bits=st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_singles_of_any_bits(unflushed: Path, bits: list[int]) -> None:
    singles = np.array(bits, dtype=np.uint32).view(np.float32)
    assert same(round_trip(unflushed, {"x": singles}).state, {"x": singles})


def test_every_half(path: Path) -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    assert same(round_trip(path, {"x": halves}).state, {"x": halves})


def test_a_single_whose_shortest_text_rounds_wrongly_through_a_double(path: Path) -> None:
    # 7.038531e-26 is the shortest text for this number, but the double nearest to that lies in the middle
    # between this number and the next, and rounds to the next.
    x = np.array([0x15AE43FD], dtype=np.uint32).view(np.float32)
    assert str(x[0]) == "7.038531e-26"
    assert np.float32(float("7.038531e-26")) != x[0]
    assert round_trip(path, {"x": x}).state["x"].tobytes() == x.tobytes()


def test_numbers_are_written_shortest(path: Path) -> None:
    state = {
        "double": np.array([0.1, 1e16, -0.0, 5e-324, 1 / 3]),
        "single": np.array([0.1, 1e16, -0.0, 1e-45, 1 / 3], dtype=np.float32),
        "half": np.array([0.1, 1 / 3, 6e-8], dtype=np.float16),
        "swapped": np.array([0.1, 2.0], dtype=">f4"),
    }
    round_trip(path, state)
    lines = [line.partition('"data": ')[2] for line in path.read_text().splitlines() if '"data": ' in line]
    assert lines == [
        "[0.1, 1e+16, -0.0, 5e-324, 0.3333333333333333]},",
        "[0.1, 1e+16, -0.0, 1e-45, 0.33333334]},",
        "[0.1, 0.3333, 6e-08]},",
        "[0.1, 2.0]}",
    ]


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24)[::-2],
        np.arange(6.0).reshape(2, 3).T,
        np.broadcast_to(np.float32(0.1), (2, 2)),
        np.array([1.5, np.nan, -np.inf], dtype=">f8"),
        np.array([-1, 2**40], dtype=">i8"),
        np.array(["a", "bc"], dtype=">U9"),
    ],
    ids=[
        "Fortran order",
        "backwards",
        "transposed",
        "broadcast",
        "swapped floats",
        "swapped ints",
        "swapped text",
    ],
)
def test_arrays_that_lie_otherwise_in_memory(path: Path, array: np.ndarray) -> None:
    read = round_trip(path, {"x": array}).state["x"]
    np.testing.assert_array_equal(read, array)
    assert read.shape == array.shape
    assert read.dtype.kind == array.dtype.kind
    assert read.dtype.kind == "U" or read.dtype == array.dtype.newbyteorder("=")
    assert read.dtype.isnative
    assert read.flags.c_contiguous
    assert read.flags.writeable


def test_numpy_scalars_become_numbers(path: Path) -> None:
    state = {
        "a": np.float64(0.1),
        "b": np.float32(0.1),
        "c": np.int64(-3),
        "d": np.bool_(True),
        "e": np.str_("x"),
    }
    read = round_trip(path, {**state, "f": np.float64("nan")}).state
    expected = {"a": 0.1, "b": float(np.float32(0.1)), "c": -3, "d": True, "e": "x", "f": float("nan")}
    assert same(read, expected)


def test_the_largest_whole_numbers(path: Path) -> None:
    state = {"x": [2**2048 - 1, 1 - 2**2048]}
    assert round_trip(path, state).state == state


def test_the_same_state_makes_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for place in (first, second):
        write_model(place, "SinkPropRanker", STATE)
    assert first.read_bytes() == second.read_bytes()


def test_a_changed_weight_changes_its_line_and_the_checksum(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=700)
    texts = []
    for x in (weights[333], 1.0):
        weights[333] = x
        write_model(tmp_path / "model", "Linear", {"weights": weights})
        texts.append((tmp_path / "model").read_text().splitlines())
    changed = [i for i, (a, b) in enumerate(zip(*texts, strict=True)) if a != b]
    assert len(changed) == 2
    assert changed[1] == len(texts[0]) - 2
    assert max(map(len, texts[0])) <= 120


def test_about_is_optional(path: Path) -> None:
    write_model(path, "Linear", {})
    assert read_model(path).about == {}


Point = namedtuple("Point", ["x", "y"])
Color = IntEnum("Color", ["RED"])


class Sub(np.ndarray):
    pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, r"state\['a'\]\[1\] is of type set"),
        (b"x", "is of type bytes"),
        (1j, "is of type complex"),
        (object(), "is of type object"),
        (print, "is of type builtin_function_or_method"),
        (Point(1, 2), "is of type Point"),
        (Color.RED, "is of type Color"),
        (OrderedDict(), "is of type OrderedDict"),
        (np.zeros(2).view(Sub), "is of type Sub"),
        (np.ma.zeros(2), "is of type MaskedArray"),
        (np.datetime64("2020-01-01", "ns"), "is of type datetime64"),
        (np.timedelta64(3, "ns"), "is of type timedelta64"),
        (np.zeros(2, complex), "is an array of complex128"),
        (
            np.array(["a", 1], dtype=object),
            r"array of object; .*; make it a list, or text by \.astype\(str\)",
        ),
        (np.zeros(2, dtype="S3"), "array of bytes24"),
        (np.zeros(2, dtype="M8[s]"), "array of datetime64"),
        (np.zeros(2, dtype=[("a", "f8")]), "array of void"),
        ({1: 2}, "must have text keys only; got 1"),
        ({None: 2}, "must have text keys only; got None"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_written_is_named(model: Path, value: object, message: str) -> None:
    before = model.read_bytes()
    with pytest.raises(TypeError, match=message):
        write_model(model, "Linear", {"a": [0, value]})
    with pytest.raises(TypeError, match=message.replace("state", "about")):
        write_model(model, "Linear", {}, about={"a": [0, value]})
    assert model.read_bytes() == before
    assert list(model.parent.iterdir()) == [model]


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def test_values_out_of_range_are_named(path: Path) -> None:
    circle: list = []
    circle.append(circle)
    for value, message in [
        ("\ud800", r"state\['a'\] must be text that UTF-8 can write; got '\\ud800'"),
        ({"\udcff": 1}, "UTF-8"),
        (np.array(["a", "\udcff"]), "UTF-8"),
        (2**2048, "more than 2048 bits"),
        (-(2**2048), "more than 2048 bits"),
        (circle, "nested more than 64 deep, or holds itself"),
        (nested(63), "nested more than 64 deep"),
    ]:
        with pytest.raises(ValueError, match=message):
            write_model(path, "Linear", {"a": value})
    assert not path.exists()
    assert round_trip(path, {"a": nested(61)}).state == {"a": nested(61)}


@pytest.mark.parametrize("kind", ["", " ", "a b", "a\nb", "1a", "a.", "a..b", None, 3, b"a"])
def test_a_kind_is_a_name(path: Path, kind: object) -> None:
    with pytest.raises(ValueError, match="kind must be the name of a class, such as 'SinkPropRanker'; got"):
        write_model(path, kind, {})  # type: ignore[arg-type]
    assert not path.exists()


def test_state_and_about_are_dicts(path: Path) -> None:
    for state in ([], None, np.zeros(2), OrderedDict()):
        with pytest.raises(TypeError, match="state must be a dict; got "):
            write_model(path, "Linear", state)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="about must be a dict; got list"):
        write_model(path, "Linear", {}, about=[])  # type: ignore[arg-type]
    assert not path.exists()


def test_a_kind_may_be_dotted(path: Path) -> None:
    write_model(path, "baselines.ListNetRanker", {})
    assert read_model(path, kind="baselines.ListNetRanker").kind == "baselines.ListNetRanker"


# Damage


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every way to damage a file a little, at every byte; and some ways to damage it much."""
    rng = random.Random(1106_1925)
    for i, byte in enumerate(data):
        for bit in (0, 5, 7):
            yield f"bit {bit} of byte {i} flipped", data[:i] + bytes([byte ^ 1 << bit]) + data[i + 1 :]
        yield f"byte {i} other", data[:i] + bytes([(byte + rng.randrange(1, 256)) % 256]) + data[i + 1 :]
        yield f"byte {i} lost", data[:i] + data[i + 1 :]
        yield f"byte {i} lost with all after it", data[:i]
        yield f"all before byte {i + 1} lost", data[i + 1 :]
        yield f"byte {i} twice", data[: i + 1] + data[i:]
        for more in (rng.choice([b" ", b"\n", b"0"]), bytes([rng.randrange(256)])):
            yield f"{more!r} before byte {i}", data[:i] + more + data[i:]
        j = rng.randrange(len(data))
        low, high = min(i, j), max(i, j)
        yield f"bytes {low} to {high} lost", data[:low] + data[high + 1 :]
        yield f"bytes {low} to {high} zero", data[:low] + bytes(high - low + 1) + data[high + 1 :]
        yield f"bytes {low} to {high} twice", data[: high + 1] + data[low:]
    lines = data.splitlines(keepends=True)
    for i in range(len(lines)):
        yield f"line {i} lost", b"".join(lines[:i] + lines[i + 1 :])
        yield f"line {i} twice", b"".join([*lines[:i], lines[i], *lines[i:]])
        for j in range(i):
            swapped = lines.copy()
            swapped[i], swapped[j] = lines[j], lines[i]
            yield f"lines {j} and {i} swapped", b"".join(swapped)
    for more in (
        b"\n",
        b" ",
        b"\x00",
        b"\r\n",
        b"}",
        b"# a note\n",
        b"{}",
        data,
        data[-81:],
        b"\x1a",
        bytes(4096),
    ):
        yield f"{more[:9]!r} after the end", data + more
        yield f"{more[:9]!r} before the beginning", more + data
    yield "line ends changed", data.replace(b"\n", b"\r\n")
    yield "no line end at the end", data.rstrip()
    yield "a byte order mark", b"\xef\xbb\xbf" + data
    yield "UTF-16", data.decode().encode("utf-16")
    yield "checksum in upper case", data[:-81] + data[-81:].replace(b"sha256", b"SHA256").upper()
    yield "digest in upper case", data[:-68] + data[-68:].upper()
    yield "checksum of nothing", data[:-68] + hashlib.sha256(b"").hexdigest().encode() + data[-4:]
    yield "written again by another program", json.dumps(json.loads(data), indent=2).encode() + b"\n"
    yield "written again without its spaces", json.dumps(json.loads(data), separators=(",", ":")).encode()
    yield "keys sorted", json.dumps(json.loads(data), indent=2, sort_keys=True).encode() + b"\n"


def test_a_damaged_file_is_never_another_model(model: Path) -> None:
    data = model.read_bytes()
    tried = 0
    loaded = []
    for how, bytes_ in damaged(data):
        if bytes_ == data:  # two equal bytes or lines swapped, or a part of one byte
            continue
        tried += 1
        model.unlink()  # some file systems flush a file that is written over
        model.write_bytes(bytes_)
        try:
            read_model(model)
        except ModelFileError as error:
            message = str(error)
            if not message.startswith(repr(str(model))) or "\n" in message:
                loaded.append(f"{how}: {message}")
        else:
            loaded.append(how)
    assert not loaded
    assert tried > 8000
    model.write_bytes(data)
    assert same(read_model(model).state, STATE)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: b"", "is empty: it is not a sinkprop model"),
        (lambda d: d[:200], "is cut off before its checksum"),
        (lambda d: d[:-1], "is cut off before its checksum"),
        (lambda d: d + b"note\n", "5 bytes follow its end"),
        (lambda d: d.replace(b"ndcg@10", b"ndcg@11"), "do not agree with its checksum"),
        (lambda d: d.replace(b"\n", b"\r\n"), "its line ends were changed"),
        (lambda d: d.replace(b'"version": 1', b'"version": 2'), "do not agree with its checksum"),
        (lambda d: d.replace(b"sinkprop-model", b"other-model"), "is not a sinkprop model, or its first"),
        (lambda d: b"\x00" * len(d), r"is not a sinkprop model, .* it begins b'\\x00"),
        (lambda d: np.random.default_rng(0).bytes(5000), "is not a sinkprop model"),
        (lambda d: b"<!DOCTYPE html>\n<html>", "it begins b'<!DOCTYPE html>"),
        (lambda d: b"\x80\x04\x95" + d, r"it begins b'\\x80\\x04\\x95"),
        (lambda d: b"{}", "is not a sinkprop model"),
        (lambda d: b'{\r\n  "weights": []\r\n}\r\n', "is not a sinkprop model"),
    ],
)
def test_the_error_says_what_is_wrong(model: Path, damage, message: str) -> None:
    model.write_bytes(damage(model.read_bytes()))
    with pytest.raises(ModelFileError, match=f"^{re.escape(repr(str(model)))} .*{message}"):
        read_model(model)


def test_a_pickle_is_refused_and_not_run(path: Path) -> None:
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(path.with_name("trap")),)

    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelFileError, match="is not a sinkprop model"):
        read_model(path)
    assert list(path.parent.iterdir()) == [path]


def assert_invalid(path: Path, state: str, message: str) -> None:
    path.write_bytes(with_state(state))
    start = f"^{re.escape(repr(str(path)))} has a valid checksum but is not valid in format 1: "
    with pytest.raises(ModelFileError, match=f"{start}.*{message}"):
        read_model(path)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("[]", "about and state must be objects"),
        ("3", "about and state must be objects"),
        ('{"dtype": "float64", "shape": [0], "data": []}', "about and state must be objects"),
        ('{"float": "nan"}', "about and state must be objects"),
        ('{"tuple": []}', "about and state must be objects"),
        ('{"a": 1, "a": 1}', "the key 'a' occurs twice"),
        ('{"a": {"b": [{"c": 1, "d": 2, "c": 3}]}}', "the key 'c' occurs twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1e999}', "the number 1e999 is too large"),
        ('{"a": -1e999}', "the number -1e999 is too large"),
        ('{"a": ' + "9" * 5000 + "}", "the whole number 9{20}... has more than 2048 bits"),
        ('{"a": 1,}', "line 7 column"),
        ("{'a': 1}", "line 7 column"),
        ('{"a": 01}', "line 7 column"),
        ('{"a": "\t"}', "control character"),
        ('{"a": "\udc80"}', "can't decode byte"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "nested more than 64 deep"),
        ('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}", "recursion"),
        ('{"a": {"float": "NaN"}}', r"state\['a'\] must be one of nan, inf, -inf; got 'NaN'"),
        ('{"a": {"float": 1.0}}', "must be one of nan, inf, -inf; got 1.0"),
        ('{"a": {"float": ["nan"]}}', "must be one of nan, inf, -inf"),
        ('{"a": {"tuple": {}}}', "must hold the items of a tuple as a list"),
        ('{"a": {"dict": []}}', "must hold the entries of a dict as an object"),
    ],
    ids=lambda text: text[:40].encode("ascii", "backslashreplace").decode(),
)
def test_a_valid_checksum_is_not_enough(path: Path, state: str, message: str) -> None:
    assert_invalid(path, state, message)


@pytest.mark.parametrize(
    ("dtype", "shape", "data", "message"),
    [
        ("object", [1], [1], "has the dtype 'object'; known are bool, "),
        ("<f8", [1], [1.0], "has the dtype '<f8'"),
        (["float64"], [1], [1.0], "has the dtype"),
        ("float64", [2], [1.0], r"does not hold the entries of the shape \[2\]"),
        ("float64", [], [], "does not hold the entries"),
        ("float64", [1], 1.0, "does not hold the entries"),
        ("float64", 1, [1.0], "has the shape 1"),
        ("float64", [-1], [1.0], r"has the shape \[-1\]"),
        ("float64", [1.0], [1.0], r"has the shape \[1.0\]"),
        ("float64", [True], [1.0], r"has the shape \[True\]"),
        ("float64", [1] * 100, [1.0], "which no array can have"),
        ("float64", [0, 10**30], [], "which no array can have"),
        ("float64", [1], [True], "not of the dtype float64"),
        ("float64", [1], [None], "not of the dtype float64"),
        ("float64", [1], [[1.0]], "not of the dtype float64"),
        ("float64", [1], [2**53 + 1], "not of the dtype float64"),
        ("float64", [1], [10**400], "not of the dtype float64"),
        ("float64", [1], ["1.0"], "must be one of nan, inf, -inf"),
        ("float32", [1], [1e39], "not of the dtype float32"),
        ("float16", [1], [-70000], "not of the dtype float16"),
        ("int64", [1], [1.0], "not of the dtype int64"),
        ("int64", [1], [True], "not of the dtype int64"),
        ("int64", [1], [2**63], "not of the dtype int64"),
        ("uint8", [2], [256, 0], "not of the dtype uint8"),
        ("uint8", [1], [-1], "not of the dtype uint8"),
        ("bool", [1], [1], "not of the dtype bool"),
        ("str", [1], [1], "not of the dtype str"),
        ("str", [1], ["a\x00"], "not of the dtype str"),
    ],
    ids=lambda value: str(value)[:20].encode("ascii", "backslashreplace").decode(),
)
def test_an_array_that_is_none(path: Path, dtype: object, shape: object, data: object, message: str) -> None:
    array = json.dumps({"dtype": dtype, "shape": shape, "data": data})
    assert_invalid(path, f'{{"a": [0, {array}]}}', rf"state\['a'\]\[1\] .*{message}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'  "kind": "Linear",\n', b""),
        (b'  "kind": "Linear",\n', b'  "kind": "Linear",\n  "more": 1,\n'),
        (b'  "kind": "Linear",\n', b'  "kind": "Linear",\n  "kind": "Linear",\n'),
        (b'  "kind": "Linear",\n', b'  "kind": "Linear",\n  "sha256": "",\n'),
        (b'  "kind": "Linear",\n', b'  "kind": 3,\n'),
        (b'  "kind": "Linear",\n', b'  "kind": "a b",\n'),
        (b'"library": "0.1.0"', b'"library": 0.1'),
        (b'  "about": {},\n', b""),
        (b'  "about": {},\n', b'  "about": [],\n'),
        (b'  "state": {},\n', b'  "state": {}},\n'),
        (b'  "state": {},\n', b'  "state": {,\n'),
    ],
)
def test_the_fields_are_those_of_the_format(path: Path, old: bytes, new: bytes) -> None:
    body = with_state("{}")[:-81]
    assert old in body
    path.write_bytes(sealed(body))
    assert read_model(path).kind == "Linear"
    path.write_bytes(sealed(body.replace(old, new)))
    with pytest.raises(ModelFileError, match="has a valid checksum but is not valid in format 1"):
        read_model(path)


def test_the_checksum_stands_on_a_line_of_its_own(path: Path) -> None:
    path.write_bytes(
        sealed(with_state("{}")[:-82])
    )  # else tools that go by lines would find another checksum
    with pytest.raises(ModelFileError, match="is damaged"):
        read_model(path)


@pytest.mark.parametrize("version", ["0", "01", "1.0", "-1", '"1"', "null", "1234567890"])
def test_a_version_that_is_no_version(path: Path, version: str) -> None:
    path.write_bytes(
        sealed(with_state("{}")[:-81].replace(b'"version": 1', b'"version": ' + version.encode()))
    )
    with pytest.raises(ModelFileError, match="is not a sinkprop model"):
        read_model(path)


@pytest.mark.parametrize("version", [2, 3, 10, 999_999_999])
@pytest.mark.parametrize(
    "state",
    ["{}", "not even JSON", '{"a": {"dtype": "bfloat16"}}', "\udcff"],
    ids=["as now", "text", "dtype", "bytes"],
)
def test_a_newer_format_says_that_it_is_newer(path: Path, version: int, state: str) -> None:
    path.write_bytes(with_state(state, version=version))
    message = (
        f"{str(path)!r} was written in the newer format {version}; sinkprop {sinkprop.__version__} reads "
        f"formats up to {FORMAT_VERSION}: upgrade sinkprop."
    )
    for kind in (None, "Linear", "Other"):
        with pytest.raises(ModelFileError, match=f"^{re.escape(message)}$"):
            read_model(path, kind=kind)


def test_files_of_other_programs_with_other_spaces_and_whole_numbers(path: Path) -> None:
    path.write_bytes(
        with_state('{"w":{"data":[1,2.50,-0,"inf"],"shape":[4],"dtype":"float64"}, "u": "\\u00df"}')
    )
    read = read_model(path).state
    assert same(read, {"w": np.array([1.0, 2.5, 0.0, np.inf]), "u": "\u00df"})


def test_another_kind(model: Path) -> None:
    assert read_model(model, kind="SinkPropRanker").kind == "SinkPropRanker"
    message = f"{str(model)!r} is of the kind SinkPropRanker, but ListNetRanker was asked for."
    with pytest.raises(ModelFileError, match=f"^{re.escape(message)}$"):
        read_model(model, kind="ListNetRanker")


def test_what_is_not_there_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "missing")
    for call in (read_model, lambda path: write_model(path, "Linear", {})):
        with pytest.raises(IsADirectoryError):
            call(tmp_path)


def test_a_model_file_error_is_a_value_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a\nb"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is empty") as raised:
        read_model(path)
    assert "\n" not in str(raised.value)


def test_a_path_may_be_text(path: Path) -> None:
    write_model(str(path), "Linear", {"x": 1})
    assert read_model(str(path)).state == {"x": 1}


@pytest.mark.skipif(os.name != "posix", reason="/dev/fd")
def test_a_model_that_comes_through_a_pipe(model: Path) -> None:
    program = "import sys; from sinkprop.model_files import read_model; print(read_model('/dev/stdin').kind)"
    run = subprocess.run(
        [sys.executable, "-c", program], input=model.read_bytes(), stdout=subprocess.PIPE, check=True
    )
    assert run.stdout == b"SinkPropRanker\n"


def test_huge_files_are_refused_unread(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(model.with_name("huge"), "wb") as handle:
        handle.truncate(2**40)  # sparse: takes no room
    with pytest.raises(ModelFileError, match="is larger than the 268435456 bytes that a model file may have"):
        read_model(model.with_name("huge"))
    size = model.stat().st_size
    monkeypatch.setattr(model_files, "MAX_BYTES", size)
    assert read_model(model).kind == "SinkPropRanker"
    monkeypatch.setattr(model_files, "MAX_BYTES", size - 1)
    with pytest.raises(ModelFileError, match=f"is larger than the {size - 1} bytes"):
        read_model(model)
    before = model.read_bytes()
    with pytest.raises(ValueError, match=f"makes a file of {size} bytes; a model file may have {size - 1}"):
        write_model(model, "SinkPropRanker", STATE, about={"gain": "ndcg@10", "queries": 106})
    assert model.read_bytes() == before


def test_a_small_file_cannot_ask_for_all_memory(path: Path) -> None:
    strings = ["x" * 100_000] + [""] * 10_000
    text = json.dumps({"dtype": "str", "shape": [len(strings)], "data": strings})
    path.write_bytes(with_state(f'{{"a": {text}}}'))
    with pytest.raises(ModelFileError, match=r"state\['a'\] takes 4000400000 bytes as an array of text"):
        read_model(path)
    assert round_trip(path, {"a": strings}).state == {"a": strings}


def test_only_data_comes_out(path: Path) -> None:
    tricks = '{"__class__": "os.system", "__reduce__": ["os.system", "false"], "py/object": "os.system"}'
    path.write_bytes(with_state(tricks))
    assert same(read_model(path).state, json.loads(tricks))


# Interrupted and concurrent saves


def test_a_full_disk_leaves_the_old_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_model(model, "SinkPropRanker", {"weights": np.zeros(1000)})
    monkeypatch.undo()
    assert same(read_model(model).state, STATE)
    assert list(model.parent.iterdir()) == [model]


# The n-th model has n * 1500 weights, all n: sizes differ, and a mixture of two models shows.
MODELS = """
import os, random, signal, sys, time
import numpy as np
from sinkprop.model_files import read_model, write_model

def write(path, n):
    write_model(path, "Linear", {"n": n, "weights": np.full(1500 * n, n + 0.1)})

def check(path):
    state = read_model(path, kind="Linear").state
    n = state["n"]
    assert state["weights"].shape == (1500 * n,) and (state["weights"] == n + 0.1).all()
    return n
"""

KILLS = """
path, kills = sys.argv[1], int(sys.argv[2])
write(path, 1)
seen = set()
for kill in range(kills):
    end, tell = os.pipe()
    child = os.fork()
    if not child:
        while True:
            for n in random.sample(range(1, 9), 8):
                write(path, n)
                os.write(tell, b".")
    os.read(end, 1)
    time.sleep(random.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    os.close(end)
    os.close(tell)
    seen.add(check(path))
print(len(seen))
"""

WRITER = """
path, numbers = sys.argv[1], list(map(int, sys.argv[2:]))
for _ in range(30):
    for n in numbers:
        write(path, n)
        check(path)
"""

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes as POSIX does")


@fork
def test_a_kill_while_saving_leaves_a_whole_model(path: Path) -> None:
    command = [sys.executable, "-c", MODELS + KILLS, str(path), "40"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 1  # the children did write
    write_model(path, "Linear", {"after": True})  # whatever the killed ones left behind
    assert read_model(path).state == {"after": True}


def test_two_processes_that_write_one_file(path: Path) -> None:
    command = [sys.executable, "-c", MODELS + WRITER, str(path)]
    write_model(path, "Linear", {"n": 1, "weights": np.full(1500, 1.1)})
    writers = [
        subprocess.Popen([*command, *numbers], stderr=subprocess.PIPE, text=True)
        for numbers in (["1", "4", "7"], ["2", "3", "8"])
    ]
    read = 0
    while any(writer.poll() is None for writer in writers):
        state = read_model(path, kind="Linear").state
        np.testing.assert_array_equal(state["weights"], np.full(1500 * state["n"], state["n"] + 0.1))
        read += 1
    for writer in writers:
        assert writer.communicate()[1] == ""
        assert writer.returncode == 0
    assert read > 10
    assert list(path.parent.iterdir()) == [path]


@fork
def test_ctrl_c_while_saving(path: Path) -> None:
    program = (
        MODELS
        + "write(sys.argv[1], 1); print('ready', flush=True)\nfor _ in range(5000): write(sys.argv[1], 8)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate()[1]
    assert read_model(path).state["n"] in (1, 8)


# The documentation


def blocks(language: str) -> list[str]:
    if not DOCUMENTATION.exists():
        pytest.skip("the documentation is not here")
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENTATION.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model of the documentation's example, written by its code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sinkprop, "__version__", "0.1.0")
    exec(compile(blocks("python")[0], DOCUMENTATION, "exec"), {})
    return tmp_path / "model.json"


def test_the_documented_file_is_the_one_that_is_written(documented: Path) -> None:
    assert documented.read_text(encoding="utf-8") == blocks("json")[0]


@pytest.mark.parametrize("number", [0, 1], ids=["the checksum", "every byte"])
def test_the_documented_shell_commands(documented: Path, number: int) -> None:
    for tool in ("sh", "sed", "sha256sum", "cmp"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", blocks("sh")[number]],
            cwd=documented.parent,
            capture_output=True,
            text=True,
            check=False,
        )

    data = documented.read_bytes()
    right = run()
    assert right.returncode == 0, right.stderr
    digest = json.loads(data)["sha256"]
    if number == 0:
        assert digest in right.stdout
        documented.write_bytes(data.replace(b"0.25", b"0.26"))
        assert digest not in run().stdout
        return
    assert right.stdout == "model.json is whole\n"
    for changed in (
        data + b"\n",
        data[:-1],
        data.replace(b"0.25", b"0.26"),
        data[:-68] + data[-68:].upper(),
        b"",
    ):
        documented.write_bytes(changed)
        assert "whole" not in run().stdout
