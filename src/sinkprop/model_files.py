"""Model files: readable JSON text with a checksum over every byte, and nothing to execute.

The first three lines and the last two have the same form, byte for byte, in this and every later version:

    {
      "format": "sinkprop-model",
      "version": 1,
      ...
      "sha256": "<64 hexadecimal digits, lower case>"
    }

A file ends with the newline after the last brace. The last two lines have 81 bytes, and the checksum is the
SHA-256 of all bytes before these two lines. So every byte is covered by the checksum, is part of it, or is
fixed. A file in which a byte was changed, added or lost is refused.

The lines between are specific to version 1: after "version", and in this order, "kind" and "library", which
are text, then "about" and "state", which are objects. In these two, in addition to JSON's own values:

    {"dtype": "float64", "shape": [2, 2], "data": [...]}    an array, its entries in C order
    {"float": "nan"}                                        a float that is not finite: nan, inf or -inf
    {"tuple": [...]}                                        a tuple
    {"dict": {...}}                                         a dict that would look like one of these forms

The last form holds a dict that has exactly the keys of one of the four forms, such as a dict with the only
key "tuple".

Floats are written as the shortest text that reads back to the same bits. In an array, non-finite floats are
strings.

The same model gives the same bytes: no time, host or path is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from math import isfinite, isinf, prod
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sinkprop.common.atomic import StrPath

__all__ = [
    "FORMAT_VERSION",
    "MAX_BYTES",
    "NETWORK_OPENING",
    "START",
    "Model",
    "ModelFileError",
    "is_network",
    "model_bytes",
    "model_from",
    "parse_model",
    "read_model",
    "saved_floats",
    "saved_names",
    "write_model",
]

FORMAT_VERSION = 1
# The bytes 8 to 34 of a saved network: a safetensors file whose metadata begin with sinkprop's checksum.
NETWORK_OPENING = b'{"__metadata__":{"sha256":"'
START = 8 + len(NETWORK_OPENING)  # number of bytes that tell a network from other models
# Largest size of a model file, in bytes. It is enough for some ten million numbers; models in this format
# have thousands.
MAX_BYTES = 2**28

_OPENING = re.compile(rb'\{\n  "format": "sinkprop-model",\n  "version": ([1-9][0-9]{0,8}),\n')
_CLOSING = re.compile(rb'  "sha256": "([0-9a-f]{64})"\n\}\n')
_CLOSING_BYTES = 81
_FIELDS = ["format", "version", "kind", "library", "about", "state", "sha256"]

_ARRAY, _FLOAT, _TUPLE, _DICT = {"dtype", "shape", "data"}, {"float"}, {"tuple"}, {"dict"}
_RESERVED = (_ARRAY, _FLOAT, _TUPLE, _DICT)
_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64")
_DTYPES = ("bool", *_INTEGERS, *_FLOATS, "str")

_DEEPEST = 64
# Largest number of bits of an integer. It then has at most 617 digits, so Python can always read it: Python's
# limit on the number of digits cannot be set below 640.
_WIDEST_INT = 2048
_WIDTH = 110
# Array entries per line: a fixed count rather than a width, so that a changed weight changes one line.
_PER_LINE = {"b": 10, "i": 10, "u": 10, "f": 5, "U": 1}


class ModelFileError(ValueError):
    """A file does not hold a model of the requested kind, or is damaged, too new or too large."""


@dataclass(frozen=True, eq=False)
class Model:
    """Contents of a model file.

    Parameters
    ----------
    kind : str
        Name of the estimator's class.
    library : str
        Version of sinkprop that wrote the file.
    about : dict
        Summary for a person: the gain, the shape of the data, and the like.
    state : dict
        State that was passed to `write_model`.
    """

    kind: str
    library: str
    about: dict[str, Any]
    state: dict[str, Any]


def write_model(
    path: StrPath, kind: str, state: dict[str, Any], *, about: dict[str, Any] | None = None
) -> None:
    """Write a model file in one step; an interrupted save leaves the old file.

    `state` and `about` hold dicts with text keys, lists, tuples, text, bool, int, float, None and arrays of
    bool, int8 to int64, uint8 to uint64, float16 to float64 and text, of any shape. All of it reads back with
    the same types, order and bits, with four exceptions: NumPy scalars come back as Python's, arrays come
    back in C order and native byte order, arrays of text are as wide as their longest entry, and a NaN loses
    its sign and payload.

    Parameters
    ----------
    path : str or path
        File to write.
    kind : str
        Name of the estimator's class.
    state : dict
        State of the model.
    about : dict, optional
        Summary for a person who opens the file.

    Raises
    ------
    TypeError or ValueError
        If `state` or `about` holds a value that is not of these kinds, or the file would be too large. The
        message says where the value is. Nothing is written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.json")
    ...     write_model(path, "Linear", {"weights": np.array([0.1, -0.0])}, about={"gain": "ndcg@10"})
    ...     model = read_model(path, kind="Linear")
    >>> model.state, model.about["gain"]
    ({'weights': array([ 0.1, -0. ])}, 'ndcg@10')
    """
    from sinkprop.common.atomic import write_atomically

    write_atomically(path, model_bytes(kind, state, {} if about is None else about))


def is_network(start: bytes) -> bool:
    """Whether a file that begins with these `START` bytes is a saved network (`torch/neural/files.py`)."""
    return start[8:].startswith(NETWORK_OPENING)


def read_model(path: StrPath, *, kind: str | None = None) -> Model:
    """Read a model file.

    The checksum finds damage; it does not prove who wrote the file. But a file holds data only, and nothing
    in it is ever executed.

    Parameters
    ----------
    path : str or path
        File to read.
    kind : str, optional
        Required kind of the model; None accepts any.

    Returns
    -------
    Model
        Contents of the file.

    Raises
    ------
    ModelFileError
        If the file is not a model, is of another kind, is in a newer format, is too large, or is not byte for
        byte as it was written. The message is one line that names the file.
    """
    with open(path, "rb") as handle:
        return model_from(handle, b"", path, kind=kind)


def model_from(handle: IO[bytes], start: bytes, path: StrPath, *, kind: str | None = None) -> Model:
    """Read a model from an open file whose first bytes, `start`, have been read. See `read_model`."""
    name = os.fsdecode(path)
    found = os.fstat(handle.fileno())
    size = found.st_size if stat.S_ISREG(found.st_mode) else MAX_BYTES
    data = b"" if size > MAX_BYTES else start + handle.read(size + 1 - len(start))
    if max(size, len(data)) > MAX_BYTES:
        raise ModelFileError(f"{name!r} is larger than the {MAX_BYTES} bytes that a model file may have.")
    try:
        model = parse_model(data)
    except ModelFileError as error:
        raise ModelFileError(f"{name!r} {error}") from None
    if kind is not None and model.kind != kind:
        raise ModelFileError(f"{name!r} is of the kind {model.kind}, but {kind} was asked for.")
    return model


def model_bytes(kind: str, state: dict[str, Any], about: dict[str, Any]) -> bytes:
    """Bytes of a model file, as `write_model` writes them."""
    from sinkprop import __version__

    if not _is_kind(kind):
        raise ValueError(f"kind must be the name of a class, such as 'SinkPropRanker'; got {kind!r}.")
    for name, value in (("state", state), ("about", about)):
        if type(value) is not dict:
            raise TypeError(f"{name} must be a dict; got {type(value).__name__}.")
    lines = [
        '  "format": "sinkprop-model"',
        f'  "version": {FORMAT_VERSION}',
        f'  "kind": {_text(kind, "kind")}',
        f'  "library": {_text(__version__, "library")}',
        f'  "about": {_layout(about, "about", 1)}',
        f'  "state": {_layout(state, "state", 1)}',
    ]
    covered = ("{\n" + "".join(line + ",\n" for line in lines)).encode("utf-8")
    data = covered + f'  "sha256": "{hashlib.sha256(covered).hexdigest()}"\n}}\n'.encode("ascii")
    if len(data) > MAX_BYTES:
        raise ValueError(f"state makes a file of {len(data)} bytes; a model file may have {MAX_BYTES}.")
    return data


def _is_kind(kind: object) -> bool:
    return isinstance(kind, str) and all(part.isidentifier() for part in kind.split("."))


def _layout(value: Any, where: str, depth: int) -> str:
    """Return a value as JSON text. Lines after the first are indented by at least `depth` levels.

    Raises a TypeError or ValueError if a model file cannot hold the value. `where` describes, for the
    message, which part of the model the value is.
    """
    if depth > _DEEPEST:
        raise ValueError(f"{where} is nested more than {_DEEPEST} deep, or holds itself.")
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    kind = type(value)
    if value is None or kind is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if kind is int:
        if value.bit_length() > _WIDEST_INT:
            raise ValueError(f"{where} is a whole number of more than {_WIDEST_INT} bits.")
        return str(value)
    if kind is float:
        return repr(value) if isfinite(value) else f'{{"float": "{value!r}"}}'
    if kind is str:
        return _text(value, where)
    if kind is np.ndarray:
        return _array_layout(value, where, depth)
    if kind is list:
        items = [_layout(x, f"{where}[{i}]", depth + 1) for i, x in enumerate(value)]
        return _bracketed("[", items, "]", depth, apart=any(isinstance(x, dict) for x in value))
    if kind is tuple:
        return f'{{"tuple": {_layout(list(value), where, depth)}}}'
    if kind is dict:
        entries = []
        for key, x in value.items():
            if type(key) is not str:
                raise TypeError(f"{where} must have text keys only; got {key!r}.")
            place = f"{where}[{key!r}]"
            entries.append(f"{_text(key, place)}: {_layout(x, place, depth + 1)}")
        text = _bracketed("{", entries, "}", depth, apart=True)
        return f'{{"dict": {text}}}' if value.keys() in _RESERVED else text
    raise TypeError(
        f"{where} is of type {kind.__name__}; a model file holds dicts, lists, tuples, text, bool, int, "
        f"float, None and NumPy arrays."
    )


def _bracketed(left: str, items: list[str], right: str, depth: int, *, apart: bool) -> str:
    """Items between brackets: on one line if they fit and `apart` is False, and else one item per line."""
    indent = "  " * depth
    if (
        not apart
        and sum(map(len, items)) + 2 * len(items) + len(indent) < _WIDTH
        and "\n" not in "".join(items)
    ):
        return left + ", ".join(items) + right
    return _on_lines(left, items, right, indent) if items else left + right


def _on_lines(left: str, lines: list[str], right: str, indent: str) -> str:
    return f"{left}\n" + ",\n".join(f"{indent}  {line}" for line in lines) + f"\n{indent}{right}"


def _text(text: str, where: str) -> str:
    """A string as JSON, with printable characters unchanged and all others escaped."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{where} must be text that UTF-8 can write; got {text!r}.") from None
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in quoted)


def _array_layout(array: NDArray[Any], where: str, depth: int) -> str:
    name = "str" if array.dtype.kind == "U" else array.dtype.name
    if name not in _DTYPES:
        hint = "; make it a list, or text by .astype(str)" if name == "object" else ""
        raise TypeError(
            f"{where} is an array of {name}; a model file holds arrays of {', '.join(_DTYPES)}{hint}."
        )
    items = _item_texts(array.reshape(-1), name, where)
    shape = list(array.shape)
    opening = f'{{"dtype": "{name}", "shape": {shape}, "data": ['
    per_line, row = _PER_LINE[array.dtype.kind], shape[-1] if shape else 1
    short = opening + ", ".join(items[:10]) + "]}"
    if not items or (len(items) <= max(per_line, 5) and len(short) + 2 * depth < _WIDTH):
        return short
    lines = [
        ", ".join(items[start : min(start + per_line, begin + row)])
        for begin in range(0, len(items), max(row, 1))
        for start in range(begin, begin + row, per_line)
    ]
    return _on_lines(opening, lines, "]}", "  " * depth)


def _item_texts(flat: NDArray[Any], name: str, where: str) -> list[str]:
    if name == "bool":
        return ["true" if x else "false" for x in flat.tolist()]
    if name == "str":
        strings = flat.tolist()
        _check_text_array(strings, where)
        return [_text(x, where) for x in strings]
    if name in _INTEGERS:
        return list(map(str, flat.tolist()))
    numbers = flat.tolist()
    texts = [repr(x) if isfinite(x) else f'"{x!r}"' for x in numbers]
    if name != "float64":
        # A reader turns the text into a double and rounds it to the array's type. The shortest text of a
        # float16 or float32 may lie next to the midpoint of two numbers, and then round to the wrong one. In
        # this case the number is converted to a double, and the text of the double is written.
        native = flat.astype(flat.dtype.newbyteorder("="))
        for i, x in enumerate(native):
            if isfinite(x):
                short = str(x)
                if native.dtype.type(float(short)).tobytes() == x.tobytes():
                    texts[i] = short
    return texts


def _check_text_array(strings: list[str], where: str) -> None:
    """Raise a ValueError if an array of these strings would take more than `MAX_BYTES` of memory.

    NumPy gives every entry the space of the longest, so a small file could take up all memory.
    """
    size = 4 * len(strings) * max(map(len, strings), default=0)
    if size > MAX_BYTES:
        raise ValueError(
            f"{where} takes {size} bytes as an array of text, more than {MAX_BYTES}; use a list."
        )


def parse_model(data: bytes) -> Model:
    """Return the model in the bytes of a file.

    Raises a ModelFileError if they are not valid. Its message begins with a verb, such as "is damaged"; the
    caller puts the name of the file before it.
    """
    from sinkprop import __version__

    if not data:
        raise ModelFileError("is empty: it is not a sinkprop model.")
    opening = _OPENING.match(data)
    if opening is None:
        if _OPENING.match(data[:100].replace(b"\r\n", b"\n")):
            raise ModelFileError("is damaged: its line ends were changed. Copy it again, as binary.")
        raise ModelFileError(
            f"is not a sinkprop model, or its first lines are damaged: it begins {data[:24]!r}."
        )
    closing = _CLOSING.fullmatch(data, max(len(data) - _CLOSING_BYTES, 0))
    if closing is None:
        end = _CLOSING.search(data)
        if end is None:
            raise ModelFileError(
                "is damaged: it is cut off before its checksum, or the checksum's line was changed."
            )
        raise ModelFileError(f"is damaged: {len(data) - end.end()} bytes follow its end.")
    covered = data[:-_CLOSING_BYTES]
    if hashlib.sha256(covered).hexdigest().encode("ascii") != closing[1] or not covered.endswith(b",\n"):
        raise ModelFileError("is damaged: its bytes do not agree with its checksum. Save the model again.")
    version = int(opening[1])
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"was written in the newer format {version}; sinkprop {__version__} reads formats up to "
            f"{FORMAT_VERSION}: upgrade sinkprop."
        )
    try:
        fields = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_float=_finite,
            parse_int=_whole,
            parse_constant=_refuse_constant,
        )
        if list(fields) != _FIELDS:
            raise ValueError(f"its fields are {', '.join(map(repr, fields))}")
        if not _is_kind(fields["kind"]) or not isinstance(fields["library"], str):
            raise ValueError("kind and library must be text")
        about, state = (_decode(fields[name], name, 1) for name in ("about", "state"))
        if not isinstance(about, dict) or not isinstance(state, dict):
            raise ValueError("about and state must be objects")
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"has a valid checksum but is not valid in format {version}: {' '.join(str(error).split())}."
        ) from None
    return Model(fields["kind"], fields["library"], about, state)


def saved_floats(
    what: str, value: Any, shape: tuple[int, ...], *, finite: bool = True
) -> NDArray[np.float64]:
    """Return a saved array as float64. Raises a ValueError unless it holds numbers in this shape.

    If `finite`, the numbers must be finite.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu" or value.shape != shape:
        found = (
            f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        )
        raise ValueError(f"{what} must be an array of numbers of shape {shape}; got {found}")
    if finite and not np.isfinite(value).all():
        raise ValueError(f"{what} must be finite")
    return value.astype(np.float64, copy=False)


def saved_names(what: str, value: Any, n: int) -> list[str]:
    """Return a saved list of n names. Raises a ValueError if it is not one."""
    if not isinstance(value, list) or len(value) != n or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{what} must be a list of {n} names")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(
            f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice in an object"
        )
    return entries


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > 1 + len(
        str(2**_WIDEST_INT)
    ):  # the time to parse a number grows with the square of its length
        raise ValueError(f"the whole number {text[:20]}... has more than {_WIDEST_INT} bits")
    return int(text)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _decode(value: Any, where: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"{where} is nested more than {_DEEPEST} deep")
    if isinstance(value, list):
        return [_decode(x, f"{where}[{i}]", depth + 1) for i, x in enumerate(value)]
    if not isinstance(value, dict):
        return value
    keys = value.keys()
    if keys == _ARRAY:
        return _decode_array(value, where)
    if keys == _FLOAT:
        return _decode_float(value["float"], where)
    if keys == _TUPLE:
        if not isinstance(value["tuple"], list):
            raise ValueError(f"{where} must hold the items of a tuple as a list")
        return tuple(_decode(value["tuple"], where, depth))
    if keys == _DICT:
        value = value["dict"]
        if not isinstance(value, dict):
            raise ValueError(f"{where} must hold the entries of a dict as an object")
    return {key: _decode(x, f"{where}[{key!r}]", depth + 1) for key, x in value.items()}


def _decode_float(text: object, where: str) -> float:
    if not isinstance(text, str) or text not in _NOT_FINITE:
        raise ValueError(f"{where} must be one of {', '.join(_NOT_FINITE)}; got {text!r}")
    return _NOT_FINITE[text]


def _decode_array(value: dict[str, Any], where: str) -> NDArray[Any]:
    name, shape, data = value["dtype"], value["shape"], value["data"]
    if name not in _DTYPES:
        raise ValueError(f"{where} has the dtype {name!r}; known are {', '.join(_DTYPES)}")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{where} has the shape {shape!r}")
    if not isinstance(data, list) or len(data) != prod(shape):
        raise ValueError(f"{where} does not hold the entries of the shape {shape!r}")
    array = _decode_items(data, name, where)
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):  # too many axes, or an empty array with an axis that is too long
        raise ValueError(f"{where} has the shape {shape!r}, which no array can have") from None


def _decode_items(data: list[Any], name: str, where: str) -> NDArray[Any]:
    types = set(map(type, data))
    if name == "bool" and types <= {bool}:
        return np.array(data, dtype=np.bool_)
    if name == "str" and types <= {str}:
        _check_text_array(data, where)
        strings = np.array(data, dtype=np.str_)
        if strings.tolist() == data:  # False if a string ends with U+0000, which NumPy drops
            return strings
    if name in _INTEGERS and types <= {int}:
        limits = np.iinfo(name)
        if all(limits.min <= x <= limits.max for x in data):
            return np.array(data, dtype=name)
    if name in _FLOATS and types <= {float, int, str}:
        numbers = [_decode_float(x, where) if isinstance(x, str) else x for x in data]
        if int not in types or all(abs(x) <= 2**53 for x in numbers if type(x) is int):
            doubles = np.array(numbers, dtype=np.float64)
            with np.errstate(over="ignore"):
                floats = doubles.astype(name)
            if (np.isinf(floats) == np.isinf(doubles)).all():
                return floats
    raise ValueError(f"{where} has entries that are not of the dtype {name}")
