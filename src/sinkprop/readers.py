"""Files to `Queries`, and back: LETOR and SVMlight text, with LightGBM's query sizes.

The parser is native and multithreaded; what is wrong with a file is worded here. A value that cannot be read
is an error with its line, never a guess.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from numbers import Real
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sinkprop import _native
from sinkprop.arguments import threads as _threads
from sinkprop.arguments import whole as _whole
from sinkprop.atomic import replacing
from sinkprop.data import Queries, as_features, as_labels
from sinkprop.files import Bytes, Source, StrPath, compression_by_name, opened, read_source
from sinkprop.frames import load_frame, load_parquet

__all__ = [
    "load_frame",
    "load_letor",
    "load_parquet",
    "load_queries",
    "load_query_sizes",
    "save_letor",
]

_CHUNK = 1 << 20  # bytes of text that a thread takes at a time
_BLOCK = 1 << 20  # values that are written at a time
_DENSE_LIMIT, _LEAST_FILLED = 256 << 20, 0.01  # a matrix of more bytes must be filled at least so far
_LARGEST = {
    np.dtype(np.float64): float(np.finfo(np.float64).max),
    # what is less than half a unit past the largest float32 still rounds to it
    np.dtype(np.float32): float(np.nextafter(2.0**128 - 2.0**103, 0.0)),
}
_NUMBERS, _NAMES = 1, 2  # LetorIds in native/letor/letor.hpp; 0 is none


def load_letor(
    path: StrPath | IO[bytes] | IO[str],
    *,
    n_features: int | None = None,
    dtype: DTypeLike = np.float64,
    null: float | None = None,
    zero_based: bool = False,
    group: StrPath | Sequence[int] | NDArray[Any] | None = None,
    n_threads: int | None = None,
) -> Queries:
    r"""The documents of a LETOR or SVMlight ranking file: a line `label qid:7 1:0.5 3:2 # docid` each.

    path        a file, plain or compressed by gzip, xz or bzip2 whatever its name, or an open file
    n_features  columns of X; None takes the largest id in the file
    dtype       float64, each value the nearest double to its text, or float32, that rounded once more
    null        the number for values written NULL, as in LETOR 4.0; None makes them an error
    zero_based  whether feature ids count from 0
    group       for a file without qid: sizes of its queries, or a file of them, one a line; None looks for
                LightGBM's `<path>.query`. The queries are numbered from 1.
    n_threads   None takes the processors there are, or SINKPROP_NUM_THREADS

    Features that a line leaves out are 0. Query ids are whole numbers (int64; 007 is 7) or names such as
    WT04-132 (str), one kind a file; a query's lines may stand anywhere, and rows keep the file's order. The
    docid is what follows `docid =`, `docid:` or `docid` in the comment, or its first word; "" on a line
    without, None if no line has a comment. Bytes in it that are not UTF-8 are kept as surrogate escapes.

    Anything else is a ValueError with the first faulty line.

    >>> import io
    >>> q = load_letor(io.StringIO("2 qid:1 1:0.5 3:1.25 #docid = a\n0 qid:1 2:7 #docid = b\n"))
    >>> q.X
    array([[0.5 , 0.  , 1.25],
           [0.  , 7.  , 0.  ]])
    >>> q.y, q.qid, q.docid
    (array([2., 0.]), array([1, 1]), array(['a', 'b'], dtype='<U1'))
    """
    kind = _float_type(dtype)
    if n_features is not None:
        n_features = _whole("n_features", n_features, 1)
    if null is not None:
        null = _null_value(null, kind)
    source = read_source(path)
    data = source.data
    threads = _threads(n_threads, len(data) >> 8)
    layout = _native.letor_scan(data, _CHUNK, threads)
    n = layout.rows
    columns = max(0, layout.largest_id + zero_based) if n_features is None else n_features
    cells = n * columns
    too_sparse = (
        n_features is None
        and cells * kind.itemsize > _DENSE_LIMIT
        and _native.letor_count_features(data, layout, threads) < _LEAST_FILLED * cells
    )
    X, shortage = None, None
    if columns and not too_sparse:
        try:
            X = _empty((n, columns), kind)
        except MemoryError as error:  # perhaps for a line that is faulty: then that is what to say
            shortage = error
    y = np.empty(n)
    numbers = np.empty(n, np.int64) if layout.ids == _NUMBERS else None
    names = np.empty((n, 2), np.int64) if layout.ids == _NAMES else None
    docids = np.empty((n, 2), np.int64) if layout.comments else None
    fault, *place = _native.letor_read(
        data,
        layout,
        X,
        columns,
        y,
        numbers,
        names,
        docids,
        zero_based,
        n_features is not None,
        null,
        _LARGEST[kind],
        threads,
    )
    if fault:
        _raise_fault(source, fault, *place, n_features=n_features, zero_based=zero_based, kind=kind)
    if not n:
        what = "holds no document, only comments or blank lines" if len(data) else "is empty"
        raise ValueError(f"{source.name}: the file {what}; expected a line such as `2 qid:7 1:0.5` for each.")
    if too_sparse:
        number, _ = _line_at(data, layout.largest_line)
        _raise_too_sparse((source.name, number), layout.largest_id, n, columns, cells * kind.itemsize)
    if shortage is not None:
        raise shortage
    if X is None:
        raise ValueError(
            f"{source.name}: no line has a feature; expected some, such as 1:0.5, after the qid."
        )
    if layout.ids and group is not None:
        raise ValueError(f"{source.name} has a qid on its lines; group= is for files without. Leave it out.")
    if numbers is not None:
        qid = numbers
    elif names is not None:
        qid = _words(data, names, threads)
    else:
        qid = _qid_of_sizes(source, group, n)
    return Queries(X, y, qid, None if docids is None else _words(data, docids, threads))


def load_queries(path: StrPath, **options: Any) -> Queries:
    """The documents of a file by its kind: `load_parquet` for a name in .parquet, `load_letor` for any other.

    Options are those of the function that it goes to.
    """
    name = os.fsdecode(path)
    return load_parquet(name, **options) if name.endswith(".parquet") else load_letor(name, **options)


def _float_type(dtype: DTypeLike) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind not in _LARGEST:
        raise ValueError(f"dtype must be float64 or float32; got {kind}.")
    return kind


def _null_value(null: float, kind: np.dtype[Any]) -> float:
    if not isinstance(null, Real) or isinstance(null, bool) or not abs(float(null)) <= _LARGEST[kind]:
        raise ValueError(f"null must be the finite number that NULL stands for, such as 0; got {null!r}.")
    return float(null)


def _empty(shape: tuple[int, int], kind: np.dtype[Any]) -> NDArray[Any]:
    try:
        return np.empty(shape, kind)
    except ValueError:  # NumPy's word for a size past the address space
        size = _size(shape[0] * shape[1] * kind.itemsize)
        raise MemoryError(f"{shape[0]} rows of {shape[1]} features take {size}.") from None


def _words(data: Bytes, places: NDArray[np.int64], threads: int) -> NDArray[Any]:
    """The words at `places`, (N, 2) begins and ends, as an array of str."""
    lengths = places[:, 1] - places[:, 0]
    n, width = len(lengths), max(1, int(lengths.max()))
    # NumPy gives every word the width of the longest: one very long word must not cost as much N times.
    wide = 4 * n * width > max(16 << 20, 4 * (57 * n + int(lengths.sum())))
    if not wide:
        points = np.empty((n, width), np.uint32)
        if _native.letor_words(data, places, points, threads):
            return points.view(f"=U{width}")[:, 0]
    words = [data[a:b].tobytes().decode("utf-8", "surrogateescape") for a, b in places.tolist()]
    if not wide:
        return np.array(words)
    objects = np.empty(n, dtype=object)
    objects[:] = words
    return objects


# What is wrong, in the order of LetorFault in native/letor/letor.hpp
_FAULTS = (
    "",
    "a line begins with its label, but this one with {token}",
    "the label {token} is not a finite decimal number, such as 2 or 0.5",
    "the label {token} is below 0",
    "the label {token} is too large for a double",
    "expected a qid directly after the label, as on the lines before; got {token}",
    "{token} on this line, but no qid on the lines before; expected one on every line or on none",
    "a second qid, {token}",
    "the qid stands after a feature: {token}; expected it directly after the label",
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
    "the value of {token} is not known; pass null=0, or another number to use for every NULL",
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


def _raise_fault(
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
    """The error of a faulty line; the data may be a part of a file, with so many lines before it."""
    number, text = _line_at(source.data, line)
    number += lines_before
    token = text[begin - line : end - line]
    what = _FAULTS[fault].format(
        token=_shown(token, 0, width=40) if token else "the end of the line",
        least=0 if zero_based else 1,
        n_features=n_features,
        kind=kind,
    )
    if b"\0" in token and fault != len(_FAULTS) - 1:
        what += " (it holds a zero byte)"
    shown = _shown(text, begin - line)
    raise ValueError(f"{source.name}, line {number}: {what}. The line: {shown}.{_hint(source, number)}")


def _raise_too_sparse(where: tuple[str, int], largest: int, rows: int, columns: int, size: int) -> NoReturn:
    name, number = where
    right = f" If the id is right, pass n_features={columns} to allow that." if columns < 2**30 else ""
    raise ValueError(
        f"{name}, line {number}: the feature id {largest} asks for a dense matrix of "
        f"{rows} x {columns}, {_size(size)}, of which less than 1 % would be filled.{right} If it is "
        "wrong, correct the line, or pass the largest id that there should be as n_features= to be shown the "
        "first line past it."
    )


def _hint(source: Source, number: int) -> str:
    """What the file seems to be, if its first line is not LETOR text."""
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
            " The file seems to be CSV: read it by pandas.read_csv; load_frame takes the frame, and its "
            "to_parquet writes a file that can be read here."
        )
    return ""


def _line_at(data: Bytes, at: int) -> tuple[int, bytes]:
    """The number, from 1, of the line that begins at an offset, and its text."""
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


def _shown(text: bytes, at: int, *, width: int = 90) -> str:
    """Text in quotes, what cannot be printed escaped, and only the part around a place if it is long."""
    first = 0 if len(text) <= width else max(0, min(at - width // 3, len(text) - width))
    last = min(len(text), first + width)
    part = text[first:last].decode("utf-8", "backslashreplace")
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in part)
    return f"'{'...' if first else ''}{printable}{'...' if last < len(text) else ''}'"


def _size(count: int) -> str:
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 10_000 and len(units) > 1:
        count //= 1000
        del units[0]
    return f"{count} {units[0]}"


def load_query_sizes(path: StrPath | IO[bytes] | IO[str]) -> NDArray[np.int64]:
    r"""The sizes of consecutive queries, (Q,): a whole number of at least 1 a line, as LightGBM's `.query`.

    >>> import io
    >>> load_query_sizes(io.StringIO("3\n1\n"))
    array([3, 1])
    """
    return _read_sizes(read_source(path))[0]


def _read_sizes(source: Source) -> tuple[NDArray[np.int64], list[int]]:
    """The sizes in a file, and the line of each."""
    sizes, lines = [], []
    text = source.data.tobytes().removeprefix(b"\xef\xbb\xbf")
    for number, line in enumerate(text.split(b"\n"), 1):
        word = line.strip(b" \t\r")
        if not word:
            continue
        if not re.fullmatch(rb"[0-9]{1,19}", word) or not 1 <= int(word) < 2**63:
            raise ValueError(
                f"{source.name}, line {number}: expected the size of a query, a whole number of at least 1; "
                f"got {_shown(word, 0)}."
            )
        sizes.append(int(word))
        lines.append(number)
    if not sizes:
        raise ValueError(f"{source.name}: the file holds no sizes; expected one a line, for each query.")
    return np.array(sizes, np.int64), lines


def _qid_of_sizes(
    source: Source, group: StrPath | Sequence[int] | NDArray[Any] | None, n: int
) -> NDArray[np.int64]:
    """Query numbers 1, 2, ... for the n rows of a file without qid."""
    sizes, name, place = _sizes_for(source, group)
    ends = np.cumsum(sizes.astype(object))  # Python's whole numbers do not overflow
    if ends[-1] != n:
        _raise_wrong_sizes(source, name, place, ends, n)
    return np.repeat(np.arange(1, len(sizes) + 1, dtype=np.int64), sizes)


def _sizes_for(
    source: Source, group: StrPath | Sequence[int] | NDArray[Any] | None
) -> tuple[NDArray[np.int64], str, Callable[[int], str]]:
    """The sizes of the queries of a file without qid, what to call them, and where the i-th stands."""
    if group is None:
        group = _sibling(source)
    if isinstance(group, str | os.PathLike):
        file = read_source(group)
        sizes, lines = _read_sizes(file)
        return sizes, file.name, lambda i: f"line {lines[i]}"
    return _given_sizes(group), "group", lambda i: f"group[{i}]"


def _raise_wrong_sizes(
    source: Source, name: str, place: Callable[[int], str], ends: NDArray[Any], n: int
) -> NoReturn:
    past = f", past it from {place(int(np.argmax(ends > n)))} on" if ends[-1] > n else ""
    raise ValueError(
        f"{name}: the sizes must sum to {n}, the number of documents in {source.name}; the {len(ends)} "
        f"sizes sum to {ends[-1]}{past}."
    )


def _sibling(source: Source) -> str:
    if source.path is not None:
        stem = os.path.splitext(source.path)[0]
        for path in (source.path, stem) if compression_by_name(source.path) else (source.path,):
            if os.path.exists(path + ".query"):
                return path + ".query"
    beside = f" nor a file {source.path}.query beside it" if source.path is not None else ""
    raise ValueError(
        f"{source.name}: there is no qid on its lines{beside}, so its queries are not known. Pass group=, "
        "the sizes of its queries in order, or the path of a file with one size a line."
    )


def _given_sizes(group: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    sizes = np.asarray(group)
    if sizes.ndim != 1 or not len(sizes) or sizes.dtype.kind not in "iuf":
        raise ValueError(f"group must hold the sizes of the queries, whole numbers; got {group!r}.")
    bad = ~((sizes >= 1) & (sizes < 2**63) & (sizes == np.floor(sizes)))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"group[{i}] must be a size, a whole number of at least 1; got {sizes[i]}.")
    return sizes.astype(np.int64)


def save_letor(path: StrPath, queries: Queries, *, sparse: bool = False) -> None:
    """A LETOR file of the rows, which `load_letor` reads back to the same bits.

    Compressed if the name ends in .gz, .xz or .bz2. Every number has the fewest digits that read back to it;
    for a float32 X, with `load_letor(dtype=float32)`. Docids go into the comment as `#docid = X`.

    sparse  leave out features that are 0, but the last one of the first row, which tells how many there are

    The file appears whole: it is written beside its place and renamed. An error leaves the old one as it was.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "two.txt")
    ...     save_letor(path, Queries([[0.1, 0], [0, 1e-9]], [1, 0], qid=["Q-1", "Q-1"]))
    ...     print(path.read_text())
    1 qid:Q-1 1:0.1 2:0
    0 qid:Q-1 1:0 2:1e-09
    <BLANKLINE>
    """
    if not isinstance(queries, Queries):
        raise TypeError(f"queries must be Queries; got {type(queries).__name__}.")
    X = as_features(queries.X)
    y = as_labels(queries.y, len(X), rows_of="X")
    qid, qid_end = _joined(_qid_texts(queries.qid), "qid")
    docid, docid_end = (b"", None) if queries.docid is None else _joined(_docid_texts(queries.docid), "docid")
    step = max(1, _BLOCK // X.shape[1])
    threads = _threads(None, X.size)
    name = os.fsdecode(path)
    compression = compression_by_name(name)
    with (
        replacing(name) as temporary,
        open(temporary, "wb") as file,
        nullcontext(file) if compression is None else opened(compression, file, "wb") as stream,
    ):
        for first in range(0, len(X), step):
            last = min(len(X), first + step)
            text = _native.letor_write(X, y, qid, qid_end, docid, docid_end, first, last, sparse, threads)
            stream.write(text)


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_UNFIT = re.compile("[\0-\x20#]")


def _qid_texts(qid: NDArray[Any]) -> list[str]:
    ids: list[Any] = qid.tolist()
    if qid.dtype.kind in "iu" and qid.min() >= 0 and qid.max() < 2**63:
        return list(map(str, ids))
    numbers = [isinstance(q, Real) and not isinstance(q, bool) for q in ids]
    for row, (q, number) in enumerate(zip(ids, numbers, strict=True)):
        if number != numbers[0]:
            raise ValueError(f"qid must be all numbers or all names; row {row} has {q!r}, row 0 {ids[0]!r}.")
        if number and 0 <= q < 2**63 and q == math.floor(q):
            continue
        if not number and isinstance(q, str) and _NAME.fullmatch(q):
            continue
        hint = " Make whole numbers of such texts first." if isinstance(q, str) and q.isdecimal() else ""
        raise ValueError(
            "qid must be whole numbers from 0 to 2^63 - 1, or names, a letter and then letters, digits, "
            f"'.', '_' or '-'; row {row} has {q!r}.{hint}"
        )
    return [str(int(q)) for q in ids] if numbers[0] else ids


def _docid_texts(docid: NDArray[Any]) -> list[str]:
    texts: list[Any] = docid.tolist()
    for row, text in enumerate(texts):
        if isinstance(text, int) and not isinstance(text, bool):
            texts[row] = str(text)
        elif not isinstance(text, str):
            raise ValueError(f"docid must hold text; row {row} has {text!r}.")
        elif _UNFIT.search(text):
            raise ValueError(
                "docid must not hold a space, a line end, another control character or '#', which would end "
                f"it in the file; row {row} has {text!r}."
            )
    return texts


def _joined(texts: list[str], name: str) -> tuple[bytes, NDArray[np.int64]]:
    """Texts as UTF-8, one after another, and where each ends."""
    whole = "".join(texts)
    if whole.isascii():
        return whole.encode(), np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    words = []
    for row, text in enumerate(texts):
        try:
            word = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            word = b""
        if word.decode("utf-8", "surrogateescape") != text:
            raise ValueError(f"{name} must be text that UTF-8 can hold; row {row} has {text!r}.")
        words.append(word)
    return b"".join(words), np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
