"""Readers and writer of LETOR and SVMlight text, which may have its query sizes in a separate file.

The parser is native and multithreaded; the error messages are written in Python. A value that cannot be read
is never guessed: it raises an error that shows its line.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from contextlib import nullcontext
from numbers import Real
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sinkprop import _native
from sinkprop.common.arguments import threads as _threads
from sinkprop.common.arguments import whole as _whole
from sinkprop.common.atomic import replacing
from sinkprop.common.compressed import Bytes, Source, StrPath, compression_by_name, opened, read_source
from sinkprop.common.types import Integers
from sinkprop.data.checks import as_features, as_labels
from sinkprop.data.frames import load_frame, load_parquet
from sinkprop.data.letor_errors import (
    line_at,
    line_of_document,
    parts_of,
    raise_fault,
    raise_too_sparse,
    size_in_words,
)
from sinkprop.data.queries import Queries
from sinkprop.data.query_sizes import load_query_sizes, raise_wrong_sizes, sizes_for
from sinkprop.data.split_queries import check_option, refuse_split

__all__ = ["load_frame", "load_letor", "load_parquet", "load_queries", "load_query_sizes", "save_letor"]

_CHUNK = 1 << 20  # bytes of text that a thread reads at a time
_BLOCK = 1 << 20  # number of values that are formatted before each write to the file
# If the matrix X would have more than DENSE_LIMIT bytes, a file that gives less than the fraction
# LEAST_FILLED of its entries is an error, unless the caller sets n_features.
DENSE_LIMIT, LEAST_FILLED = 256 << 20, 0.01
LARGEST = {
    np.dtype(np.float64): float(np.finfo(np.float64).max),
    # numbers slightly above the largest float32, 2^128 - 2^104, still round to it
    np.dtype(np.float32): float(np.nextafter(2.0**128 - 2.0**103, 0.0)),
}
_NUMBERS, _NAMES = 1, 2  # values of LetorIds in native/letor/letor.hpp; 0 means no query ids


def load_letor(
    path: StrPath | IO[bytes] | IO[str],
    *,
    n_features: int | None = None,
    dtype: DTypeLike = np.float64,
    null: float | None = None,
    allow_nan: bool = False,
    zero_based: bool = False,
    group: StrPath | Sequence[int] | NDArray[Any] | None = None,
    split_queries: Literal["error", "join"] = "error",
    n_threads: int | None = None,
) -> Queries:
    r"""Read a LETOR or SVMlight ranking file, with one line `label qid:7 1:0.5 3:2 # docid` per document.

    Parameters
    ----------
    path : path or open file
        The file, plain or compressed by gzip, xz or bzip2. The compression is detected from the
        content, not from the name.
    n_features : int, optional
        Number of columns of X. The default is the largest feature id in the file.
    dtype : dtype, default float64
        Type of X: float64, where each value is the double nearest to its text, or float32, where that double
        is rounded once more.
    null : float, optional
        Number to use for values written NULL or nan, as in LETOR 4.0. By default they are an error.
    allow_nan : bool, default False
        Whether values written NULL or nan become NaN, which means missing. Most rankers accept such queries.
        Do not combine it with `null`.
    zero_based : bool, default False
        Whether feature ids count from 0.
    group : path or sequence of int, optional
        Sizes of the queries of a file without qid, or the path of a file with one size per line. The default
        is LightGBM's `<path>.query`. The queries are numbered from 1.
    split_queries : {"error", "join"}, default "error"
        What to do if the lines of a query are not consecutive, as in files that use an id twice. "error"
        raises an error that names both lines. "join" reads all lines with the same id as one query.
    n_threads : int, optional
        Number of threads. The default is SINKPROP_NUM_THREADS if set, or the number of CPU cores; small files
        use one.

    Returns
    -------
    Queries
        The documents, in the order of the file.

    Raises
    ------
    ValueError
        If the file is malformed; the message shows the first faulty line.

    Notes
    -----
    Features that a line leaves out are 0. Labels are from 0 to 2^53. Query ids are whole numbers (int64; 007
    is 7) or names such as WT04-132 (str), one kind per file. The docid of a line is the word after `docid =`,
    `docid:` or `docid` in its comment, or the first word of the comment. A line without a docid has the docid
    "". If no line has a comment, the attribute `docid` of the result is None. Bytes of a docid that are not
    UTF-8 are kept as surrogate escapes.

    Examples
    --------
    >>> import io
    >>> q = load_letor(io.StringIO("2 qid:1 1:0.5 3:1.25 #docid = a\n0 qid:1 2:7 #docid = b\n"))
    >>> q.X
    array([[0.5 , 0.  , 1.25],
           [0.  , 7.  , 0.  ]])
    >>> q.y, q.qid, q.docid
    (array([2., 0.]), array([1, 1]), array(['a', 'b'], dtype='<U1'))
    """
    check_option(split_queries)
    kind = _float_type(dtype)
    if n_features is not None:
        n_features = _whole("n_features", n_features, 1)
    if null is not None:
        if allow_nan:
            raise ValueError(
                f"null must not be given with allow_nan, which keeps NULL as NaN; got null={null!r}."
            )
        null = null_value(null, kind)
    elif allow_nan:
        null = math.nan
    source = read_source(path)
    data = source.data
    threads = _threads(n_threads, len(data) >> 8)
    layout = _native.letor_scan(data, _CHUNK, threads)
    n = layout.rows
    columns = max(0, layout.largest_id + zero_based) if n_features is None else n_features
    cells = n * columns
    too_sparse = (
        n_features is None
        and cells * kind.itemsize > DENSE_LIMIT
        and _native.letor_count_features(data, layout, threads) < LEAST_FILLED * cells
    )
    X, shortage = None, None
    if columns and not too_sparse:
        try:
            X = _empty((n, columns), kind)
        except MemoryError as error:
            # Raised below, after all lines are parsed: a faulty line may be why so much memory is needed, and
            # the error that shows that line is then raised instead.
            shortage = error
    y = np.empty(n)
    numbers = np.empty(n, np.int64) if layout.ids == _NUMBERS else None
    names = np.empty((n, 2), np.int64) if layout.ids == _NAMES else None
    docids = np.empty((n, 2), np.int64) if layout.comments else None
    fault, *place = _native.letor_read(
        data,
        layout,
        X=X,
        columns=columns,
        y=y,
        qid=numbers,
        names=names,
        docids=docids,
        zero_based=zero_based,
        limited=n_features is not None,
        null=null,
        largest=LARGEST[kind],
        n_threads=threads,
    )
    if fault:
        raise_fault(source, fault, *place, n_features=n_features, zero_based=zero_based, kind=kind)
    if not n:
        what = "holds no document, only comments or blank lines" if len(data) else "is empty"
        raise ValueError(
            f"{source.name}: the file {what}; expected one line per document, such as `2 qid:7 1:0.5`."
        )
    if too_sparse:
        number, _ = line_at(data, layout.largest_line)
        raise_too_sparse((source.name, number), layout.largest_id, n, columns, cells * kind.itemsize)
    if shortage is not None:
        raise shortage
    if X is None:
        raise ValueError(
            f"{source.name}: no line has a feature; expected features such as 1:0.5 after the qid."
        )
    if layout.ids and group is not None:
        raise ValueError(
            f"{source.name} has a qid on its lines; group= is only for files without qid. Leave it out."
        )
    if numbers is not None:
        qid = numbers
    elif names is not None:
        qid = words_at(data, names, threads)
    else:
        qid = _qid_of_sizes(source, group, n)
    docid = None if docids is None else words_at(data, docids, threads)
    queries = Queries(X, y, qid, docid, allow_nan=allow_nan)
    if split_queries == "error":
        refuse_split(queries.groups, lambda row: f"{source.name}:{line_of_document(parts_of(data), row)}")
    return queries


def load_queries(path: StrPath, **options: Any) -> Queries:
    """Read queries from a file according to its suffix.

    Calls `load_parquet` for a name that ends in .parquet and `load_letor` for any other.

    Parameters
    ----------
    path : path
        The file.
    **options : Any
        Options of the function that is called.

    Returns
    -------
    Queries
        The documents, in the order of the file.
    """
    name = os.fsdecode(path)
    return load_parquet(name, **options) if name.endswith(".parquet") else load_letor(name, **options)


def _float_type(dtype: DTypeLike) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind not in LARGEST:
        raise ValueError(f"dtype must be float64 or float32; got {kind}.")
    return kind


def null_value(null: float, kind: np.dtype[Any]) -> float:
    """Return `null`, the number to use for NULL, as float.

    Raises a ValueError unless it is finite in the type `kind` of the features.
    """
    if not isinstance(null, Real) or isinstance(null, bool) or not abs(float(null)) <= LARGEST[kind]:
        raise ValueError(f"null must be the finite number to use for NULL, such as 0; got {null!r}.")
    return float(null)


def _empty(shape: tuple[int, int], kind: np.dtype[Any]) -> NDArray[Any]:
    try:
        return np.empty(shape, kind)
    except ValueError:  # raised by NumPy for a size beyond the address space
        size = size_in_words(shape[0] * shape[1] * kind.itemsize)
        raise MemoryError(f"{shape[0]} rows of {shape[1]} features take {size}.") from None


def words_at(data: Bytes, places: Integers, threads: int) -> NDArray[Any]:
    """Return words of the text `data` as an array of str.

    Row i of `places` (N, 2) holds the offsets at which word i begins and ends.
    """
    lengths = places[:, 1] - places[:, 0]
    n, width = len(lengths), max(1, int(lengths.max()))
    # NumPy gives every word the width of the longest, so one very long word would take N times its size.
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


def _qid_of_sizes(source: Source, group: StrPath | Sequence[int] | NDArray[Any] | None, n: int) -> Integers:
    """Return the query id of each of the n rows of a file without qid: 1 for the first query, then 2, ...

    `group` gives the sizes of the queries, as in `sizes_for`. Raises a ValueError if their sum is not n.
    """
    sizes, name, place = sizes_for(source, group)
    ends = np.cumsum(sizes.astype(object))  # sums of Python's whole numbers do not overflow
    if ends[-1] != n:
        raise_wrong_sizes(source, name, place, ends, n)
    return np.repeat(np.arange(1, len(sizes) + 1, dtype=np.int64), sizes)


def save_letor(path: StrPath, queries: Queries, *, sparse: bool = False) -> None:
    """Write queries to a LETOR file, from which `load_letor` reads back exactly the same values.

    The file is written under a temporary name and then renamed, so that an error leaves an existing file
    unchanged.

    Parameters
    ----------
    path : path
        The file to write. It is compressed if the name ends in .gz, .xz or .bz2.
    queries : Queries
        The documents. Document ids are written into the comment as `#docid = X`.
    sparse : bool, default False
        Whether to leave out features that are 0, except the last feature of the first row, which records the
        number of features.

    Raises
    ------
    ValueError
        If a query id or document id cannot be written as LETOR text, or a feature is NaN.

    Notes
    -----
    Every number has the fewest digits that read back to the same value. A float32 X reads back exactly with
    `load_letor(dtype=float32)`. Rows keep their order: if the rows of a query are not consecutive,
    `load_letor` needs `split_queries="join"`.

    Examples
    --------
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
    if queries.categories:
        raise ValueError(
            f"LETOR text has numbers only, but {next(iter(queries.categories))!r} holds categories. Write a "
            "stored set with sinkprop.store.save_queries."
        )
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
            text = _native.letor_write(
                X,
                y,
                qid=qid,
                qid_end=qid_end,
                docid=docid,
                docid_end=docid_end,
                first=first,
                last=last,
                sparse=sparse,
                n_threads=threads,
            )
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
        hint = " Convert such texts to whole numbers first." if isinstance(q, str) and q.isdecimal() else ""
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


def _joined(texts: list[str], name: str) -> tuple[bytes, Integers]:
    """Return the texts joined to UTF-8 bytes, and the offset at which each text ends.

    Raises a ValueError, whose message calls the texts `name`, if UTF-8 cannot hold a text.
    """
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
