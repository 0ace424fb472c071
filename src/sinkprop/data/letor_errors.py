"""Error messages for LETOR text: the fault, its line, and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import numpy as np

from sinkprop import _native
from sinkprop.common.compressed import Bytes, Source, compression_by_name

__all__ = [
    "FAULTS",
    "line_at",
    "line_of_document",
    "parts_of",
    "raise_fault",
    "raise_too_sparse",
    "shown_line",
    "size_in_words",
]

_MARK = b"\xef\xbb\xbf"  # UTF-8 byte order mark
_PART = 1 << 24  # bytes per part of a text in which a line is searched

# The faults, in the order of LetorFault in native/letor/letor.hpp
FAULTS = (
    "",
    "a line must begin with its label, but this one begins with {token}",
    "the label {token} is not a finite decimal number, such as 2 or 0.5",
    "the label {token} is below 0",
    "the label {token} is too large; the largest label is 2^53",
    "expected a qid directly after the label, as on the lines before; got {token}",
    "{token} on this line, but no qid on the lines before; expected one on every line or on none",
    "a second qid, {token}",
    "the qid comes after a feature: {token}; expected it directly after the label",
    "{token} is neither a whole number, such as qid:7, nor a name, a letter and then letters, digits, '.', "
    "'_' or '-'",
    "{token} is past the largest query id, 2^63 - 1",
    "{token} is a name, but the lines before have whole numbers; expected one kind in a file",
    "{token} is a whole number, but the lines before have names; expected one kind in a file",
    "expected a feature, id:value without spaces in it; got {token}",
    "the feature id of {token} is not a whole number",
    "the feature id of {token} is below {least}",
    "the feature id of {token} is 0, but ids count from 1; pass zero_based=True if they count from 0 in this "
    "file",
    "the feature id of {token} is too large for any matrix",
    "the feature id of {token} is past the last of n_features={n_features}",
    "the feature id of {token} is there twice",
    "the feature id of {token} is not above the one before; ids must rise along a line",
    "the value of {token} is missing; expected id:value without spaces in it",
    "the value of {token} is not a finite decimal number",
    "the value of {token} is too large for {kind}",
    "the value of {token} is not known; pass null=0, or another number to use for every NULL and nan",
    "a carriage return within the line; expected lines that end with \\n or \\r\\n",
    "a zero byte",
)


_MAGICS = (
    (b"\x89PNG", "a PNG picture"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"PAR1", "Parquet: use load_parquet"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstandard: decompress it first"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"\x80", "a pickle, or other binary data"),
    (b"\xff\xfe", "UTF-16 text: save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text: save it as UTF-8"),
    (b"%PDF", "a PDF document"),
    (b"<", "HTML or XML: perhaps an error page in place of the file"),
    (b"{", "JSON"),
    (b"[", "JSON"),
)


def raise_fault(
    source: Source,
    fault: int,
    line: int,
    begin: int,
    end: int,
    *,
    n_features: int | None,
    zero_based: bool,
    kind: np.dtype[Any],
    lines_before: int = 0,
) -> NoReturn:
    """Raise the error for a faulty line.

    fault         Kind of fault: the index of its message in `FAULTS`.
    line          Offset in the data where the line begins.
    begin, end    Offsets of the faulty word.
    n_features    Number of columns, if the caller set it.
    zero_based    Whether feature ids count from 0.
    kind          Type of the features.
    lines_before  Number of lines of the file before the data, if the data are only a part of the file.
    """
    number, text = line_at(source.data, line)
    number += lines_before
    token = text[begin - line : end - line]
    what = FAULTS[fault].format(
        token=shown_line(token, 0, width=40) if token else "the end of the line",
        least=0 if zero_based else 1,
        n_features=n_features,
        kind=kind,
    )
    if b"\0" in token and fault != len(FAULTS) - 1:
        what += " (it holds a zero byte)"
    shown = shown_line(text, begin - line)
    raise ValueError(f"{source.name}, line {number}: {what}. The line: {shown}.{_hint(source, number)}")


def raise_too_sparse(where: tuple[str, int], largest: int, rows: int, columns: int, size: int) -> NoReturn:
    """Raise the ValueError for a file whose dense matrix would be large and nearly empty.

    where          (name of the file, number of the line with the largest feature id).
    largest        The largest feature id.
    rows, columns  Shape of the matrix.
    size           Number of bytes of the matrix.
    """
    name, number = where
    right = f" If the id is right, pass n_features={columns} to allow that." if columns < 2**30 else ""
    raise ValueError(
        f"{name}, line {number}: the feature id {largest} asks for a dense matrix of "
        f"{rows} x {columns}, {size_in_words(size)}, of which less than 1 % would be filled.{right} If it is "
        "wrong, correct the line, or pass the largest valid id as n_features= to find the first line that "
        "exceeds it."
    )


def _hint(source: Source, number: int) -> str:
    """Return a sentence for the error message that guesses the kind of the file, such as a zip archive.

    `number` is the number of the faulty line, from 1. The sentence is empty if a line after the first is
    faulty, because the file is then probably text.
    """
    if number > 1:
        return ""
    start = source.data[:64].tobytes()
    if b'"sinkprop-model"' in start:
        return " The file is a model that sinkprop saved, not data."
    for magic, what in _MAGICS:
        if start.startswith(magic):
            return f" The file seems to be {what}."
    if b"\0" in start:
        return " The file seems to be binary, or UTF-16 text: save text as UTF-8."
    if source.path is not None and compression_by_name(source.path):
        return " The file is not compressed as its name says."
    first = start.split(b"\n")[0]
    if b":" not in first and (first.count(b",") > 1 or first.count(b";") > 1):
        return (
            " The file seems to be CSV: read it with pandas.read_csv and pass the frame to load_frame, or "
            "save the frame with its to_parquet for load_parquet."
        )
    return ""


def line_at(data: Bytes, at: int) -> tuple[int, bytes]:
    """Return the number, counted from 1, and the text of the line that begins at the offset `at`."""
    block, number = 1 << 24, 1
    for i in range(0, at, block):
        number += int(np.count_nonzero(data[i : min(at, i + block)] == 10))
    stop = at
    while stop < len(data):
        newlines = np.flatnonzero(data[stop : stop + block] == 10)
        if len(newlines):
            stop += int(newlines[0])
            break
        stop = min(len(data), stop + block)
    return number, data[at:stop].tobytes().rstrip(b"\r")


def line_of_document(parts: Iterable[tuple[int, Bytes]], row: int) -> int | None:
    """Return the number of the line, from 1, that holds a document of a text; None if there is no such line.

    parts  Consecutive parts of the text, each of whole lines, as pairs (number of lines before, data).
    row    Index of the document, from 0. Lines that are not documents are not counted.
    """
    for before, data in parts:
        rows = _native.letor_scan(data, max(1, len(data)), 1).rows
        if row >= rows:
            row -= rows
            continue
        text = data.tobytes() if before else data.tobytes().removeprefix(_MARK)
        for number, line in enumerate(text.split(b"\n"), before + 1):
            if line.rstrip(b"\r").split(b"#")[0].lstrip(b" \t"):
                if not row:
                    return number
                row -= 1
    return None


def parts_of(data: Bytes) -> Iterator[tuple[int, Bytes]]:
    """Divide a text into parts for `line_of_document`, so that only one of them is copied at a time."""
    at = line = 0
    while at < len(data):
        stop = at + _PART
        newlines = np.flatnonzero(data[stop : stop + _PART] == 10)
        stop = stop + int(newlines[0]) + 1 if len(newlines) else len(data)
        yield line, data[at:stop]
        line += int(np.count_nonzero(data[at:stop] == 10))
        at = stop


def shown_line(text: bytes, at: int, *, width: int = 90) -> str:
    """Quote at most `width` bytes of a text, around the offset `at`, with unprintable characters escaped."""
    first = 0 if len(text) <= width else max(0, min(at - width // 3, len(text) - width))
    last = min(len(text), first + width)
    part = text[first:last].decode("utf-8", "backslashreplace")
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in part)
    return f"'{'...' if first else ''}{printable}{'...' if last < len(text) else ''}'"


def size_in_words(count: int) -> str:
    """Return a number of bytes as text with a unit, such as "12 MB"."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 10_000 and len(units) > 1:
        count //= 1000
        del units[0]
    return f"{count} {units[0]}"
