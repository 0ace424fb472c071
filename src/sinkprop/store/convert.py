"""Conversion of files to a stored set: streaming, and resumable after a kill."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import sinkprop
from sinkprop.common.arguments import whole as _whole
from sinkprop.common.atomic import naming
from sinkprop.common.compressed import StrPath, compression_by_name
from sinkprop.common.leftovers import working_folder
from sinkprop.common.progress import Notify, silent
from sinkprop.data.letor import null_value
from sinkprop.data.queries import Queries
from sinkprop.data.split_queries import ADVICE, SplitQueryError, check_option
from sinkprop.store.chunks import Inputs
from sinkprop.store.format import FORMAT_VERSION, INDEX, MANIFEST, StoreError, is_stored, need_pyarrow
from sinkprop.store.from_arrays import QueriesInputs
from sinkprop.store.from_letor import LetorInputs
from sinkprop.store.from_tables import CsvInputs, ParquetInputs
from sinkprop.store.joined import JoinedInputs
from sinkprop.store.stored import StoredQueries, open_queries
from sinkprop.store.writer import (
    JOURNAL,
    SET,
    Layout,
    Progress,
    SetWriter,
    flush_folder,
    read_journal,
    write_journal,
)

__all__ = ["convert", "save_queries"]

_NAMES = {"letor": "LETOR text", "csv": "CSV", "parquet": "Parquet"}
_KINDS = tuple(_NAMES)


def convert(
    inputs: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    kind: str | None = None,
    n_features: int | None = None,
    null: float | None = None,
    zero_based: bool = False,
    group: StrPath | Sequence[int] | NDArray[Any] | None = None,
    qid: str = "qid",
    label: str | None = "label",
    docid: str | None = None,
    features: Sequence[str] | None = None,
    delimiter: str | None = None,
    allow_nan: bool = False,
    categorical: Sequence[str] | None = None,
    split_queries: Literal["error", "join"] = "error",
    join_bytes: int = 2 << 30,
    block_bytes: int = 8 << 20,
    part_bytes: int = 256 << 20,
    n_threads: int | None = None,
    overwrite: bool = False,
    resume: bool = True,
    progress: Notify | None = None,
) -> StoredQueries:
    r"""Convert one or several files to a stored set, with little memory.

    Features become float32. The rows of a query must be consecutive and in one file, unless `split_queries`
    is "join". Until the set is complete, the work is in the folder `out` + ".unfinished". After a kill, the
    same call resumes it and produces the same bytes.

    Parameters
    ----------
    inputs : path or sequence of paths
        Files of one kind: LETOR text, CSV with a line of column names, or Parquet.
    out : path
        Folder of the set, such as "train.queries".
    kind : {"letor", "csv", "parquet"}, optional
        Kind of the files. By default their names decide: .csv and .tsv (also compressed by gzip, xz or
        bzip2), .parquet, and LETOR text for all others.
    n_features : int, optional
        LETOR text: number of features. By default it is the largest feature id, plus 1 if `zero_based`; to
        find it, the whole text is read before the conversion.
    null : float, optional
        LETOR text: number to use for values written NULL. By default such a value is an error, or becomes
        NaN if `allow_nan` is True.
    zero_based : bool, default False
        LETOR text: whether feature ids count from 0.
    group : path or sequence of int, optional
        LETOR text without qid: sizes of the queries, or the path of a file with one size per line. The
        default is LightGBM's `<path>.query`.
    qid : str, default "qid"
        CSV and Parquet: column of the query ids.
    label : str or None, default "label"
        CSV and Parquet: column of the labels. None is for documents without labels: every label becomes 0.
    docid : str, optional
        CSV and Parquet: column of the document names.
    features : sequence of str, optional
        CSV and Parquet: feature columns, in order. The default is all other columns.
    delimiter : str, optional
        CSV: the character between columns. The default is a comma, or a tab for a file called .tsv.
    allow_nan : bool, default False
        Whether to keep missing values (an empty field of CSV, a null of Parquet, NULL in LETOR text) as NaN,
        which boosted trees accept and other rankers reject. By default they are an error.
    categorical : sequence of str, optional
        CSV and Parquet: feature columns to read as categories, for boosted trees. Dictionary columns of
        Parquet, as which pandas and polars write categories of text, are read as categories in any case. In
        CSV, the categories are text, and an empty field is a missing value. The columns are read once more,
        before the conversion, to find the categories.
    split_queries : {"error", "join"}, default "error"
        What to do if the rows of a query are not consecutive or not in one file. "error" raises an error that
        names both places. "join" puts the rows with the same id together: only if there is such a query, all
        rows are read into memory and sorted, queries in order of first appearance.
    join_bytes : int, default 2 << 30
        Largest size, in bytes, of the rows that "join" sorts in memory. A row counts as 4 bytes per feature
        plus 16 bytes. Larger inputs with split queries are an error.
    block_bytes : int, default 8 << 20
        Largest size, in bytes, of a block: a group of whole queries that is read at once. A query larger than
        this is a block by itself. A row counts as 4 bytes per feature plus 16 bytes.
    part_bytes : int, default 256 << 20
        Size in bytes, counted in the same way. The rows are stored in one or more files, and a new file
        begins when the current one has reached this size.
    n_threads : int, optional
        LETOR text: number of threads. The default is SINKPROP_NUM_THREADS if set, or the number of CPU cores.
    overwrite : bool, default False
        Whether to replace an existing set at `out`, and to delete an unfinished conversion to `out` that had
        other input files or options.
    resume : bool, default True
        Whether to continue an unfinished conversion to `out` that had the same input files and options. If
        False, an unfinished conversion is deleted.
    progress : callable, optional
        Function called during the conversion as progress(bytes read so far, total bytes, text), where the
        text names the current step, such as "counting features".

    Returns
    -------
    StoredQueries
        The set.

    Raises
    ------
    ValueError
        If an argument is invalid, if the input is malformed, or if a feature is too large for float32. For
        errors in the input, the message names the file and the line or row.
    FileExistsError
        If `out` exists and is a file or a folder of other files, or is a stored set and `overwrite` is False.
    StoreError
        If another process is converting to `out`. Also if an unfinished conversion to `out` had other input
        files or options, unless `overwrite` is True or `resume` is False.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = pathlib.Path(folder, "train.txt")
    ...     _ = text.write_text("2 qid:1 1:0.5 3:1.25\n0 qid:1 2:7\n1 qid:2 1:3\n")
    ...     stored = convert(text, pathlib.Path(folder, "train.queries"))
    ...     print(stored.n_rows, stored.n_queries, stored.n_features, stored.block(0).y)
    3 2 3 [2. 0. 1.]
    """
    need_pyarrow("convert")
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    if not paths:
        raise ValueError("inputs must name at least one file; got none.")
    if kind is not None and kind not in _KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, _KINDS))}; got {kind!r}.")
    names = [os.fsdecode(path) for path in paths]
    for name in names:
        with open(name, "rb"):  # a file that cannot be opened raises Python's usual error before any work
            pass
    kinds = sorted({kind_of(name) if kind is None else kind for name in names})
    if len(kinds) > 1:
        raise ValueError(
            f"the files of a set must be of one kind; got {' and '.join(kinds)}. Convert them separately."
        )
    for_text: dict[str, Any] = {
        "n_features": n_features,
        "null": null,
        "zero_based": zero_based,
        "group": group,
    }
    for_tables: dict[str, Any] = {
        "qid": qid,
        "label": label,
        "docid": docid,
        "features": features,
        "categorical": categorical,
    }
    _check_options(kinds[0], for_text, for_tables, delimiter)
    check_option(split_queries)
    if not isinstance(join_bytes, int) or isinstance(join_bytes, bool) or join_bytes < 1:
        raise ValueError(f"join_bytes must be a whole number, at least 1; got {join_bytes!r}.")
    for_text = _checked_text(**for_text)
    source: Inputs
    if kinds[0] == "letor":
        source = LetorInputs(names, **for_text, allow_nan=allow_nan, n_threads=n_threads)
    elif kinds[0] == "csv":
        source = CsvInputs(names, delimiter=delimiter, **for_tables, allow_nan=allow_nan)
    else:
        source = ParquetInputs(names, **for_tables, allow_nan=allow_nan)
    options: dict[str, Any] = {
        "kind": kinds[0],
        **for_text,
        **for_tables,
        "group": None if group is None else _described(group),
        "features": None if features is None else list(features),
        "categorical": None if categorical is None else list(categorical),
        "delimiter": delimiter,
        "allow_nan": bool(allow_nan),
        "split_queries": split_queries,
        "block_bytes": _whole("block_bytes", block_bytes, 1),
        "part_bytes": _whole("part_bytes", part_bytes, 1),
    }
    notify = silent if progress is None else progress
    limit = join_bytes if split_queries == "join" else 0
    try:
        return _made(source, out, options, notify, overwrite=overwrite, resume=resume, join_bytes=limit)
    except SplitQueryError as error:
        raise ValueError(f"{error} {ADVICE}") from None


def save_queries(
    out: StrPath,
    queries: Queries | Iterable[Queries],
    *,
    block_bytes: int = 8 << 20,
    part_bytes: int = 256 << 20,
    overwrite: bool = False,
) -> StoredQueries:
    """Write queries in memory, or from an iterator, to a stored set.

    Features become float32. A call that fails leaves no files behind and cannot be resumed.

    Parameters
    ----------
    out : path
        Folder of the set, such as "train.queries".
    queries : Queries or iterable of Queries
        The queries. All must have the same features and the same kind of ids (whole numbers or text), and
        each query id may occur once.
    block_bytes : int, default 8 << 20
        Largest size, in bytes, of a block: a group of whole queries that is read at once. A query larger than
        this is a block by itself. A row counts as 4 bytes per feature plus 16 bytes.
    part_bytes : int, default 256 << 20
        Size in bytes, counted in the same way. The rows are stored in one or more files, and a new file
        begins when the current one has reached this size.
    overwrite : bool, default False
        Whether to replace an existing set.

    Returns
    -------
    StoredQueries
        The set.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = (Queries([[0.5], [q]], [1, 0], qid=[q, q]) for q in range(3))
    ...     stored = save_queries(os.path.join(folder, "three.queries"), parts)
    ...     stored.n_queries, stored.load().X[:, 0]
    (3, array([0.5, 0. , 0.5, 1. , 0.5, 2. ], dtype=float32))
    """
    need_pyarrow("save_queries")
    source = QueriesInputs([queries] if isinstance(queries, Queries) else queries)
    options = {
        "label": "label",
        "allow_nan": True,
        "block_bytes": _whole("block_bytes", block_bytes, 1),
        "part_bytes": _whole("part_bytes", part_bytes, 1),
    }
    try:
        return _made(source, out, options, silent, overwrite=overwrite, resume=False)
    except SplitQueryError as error:
        raise ValueError(f"{error} Each query must be in one of the Queries, with its own id.") from None


def _made(
    source: Inputs,
    out: StrPath,
    options: dict[str, Any],
    notify: Notify,
    *,
    overwrite: bool,
    resume: bool,
    join_bytes: int = 0,
) -> StoredQueries:
    """Convert an input to a set in a working folder, move the set to `out`, and open it.

    If a query is in several places, rows of at most `join_bytes` bytes are sorted by query in memory. If it
    is 0, SplitQueryError is raised.
    """
    target = Path(os.path.realpath(out))
    folder = target.with_name(target.name + ".unfinished")
    fingerprint = _fingerprint(source, options)
    if resume and _is_done(folder, target, fingerprint):
        _remove_replaced(target)
        _discard(folder)
        return open_queries(out)
    _check_target(target, out, overwrite=overwrite)
    try:
        with naming(out, folder), _working_folder(folder, out):
            _convert(
                source,
                folder,
                fingerprint,
                options,
                notify,
                resume=resume,
                again=overwrite,
                join_bytes=join_bytes,
            )
            _put_in_place(folder / SET, target)
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), os.fspath(out)) from None
    _discard(folder)
    return open_queries(out)


def _check_options(
    kind: str, for_text: dict[str, Any], for_tables: dict[str, Any], delimiter: str | None
) -> None:
    """Raise a ValueError for an option that does not apply to files of this kind."""
    if kind == "letor":
        defaults = {"qid": "qid", "label": "label"}
        given = [name for name, value in for_tables.items() if value != defaults.get(name)]
        what = "CSV and Parquet, which have columns"
    else:
        given = [name for name, value in for_text.items() if value is not None and value is not False]
        what = "LETOR text"
    if given:
        raise ValueError(f"{given[0]}= is for {what}, but these files are {_NAMES[kind]}. Leave it out.")
    if delimiter is not None and (kind != "csv" or len(delimiter) != 1 or not delimiter.isascii()):
        raise ValueError(
            f"delimiter= must be the one character between the columns of CSV; got {delimiter!r}."
        )


def _checked_text(n_features: int | None, null: float | None, zero_based: bool, group: Any) -> dict[str, Any]:
    return {
        "n_features": None if n_features is None else _whole("n_features", n_features, 1),
        "null": None if null is None else null_value(null, np.dtype(np.float32)),
        "zero_based": bool(zero_based),
        "group": group,
    }


def kind_of(name: str) -> str:
    """Kind of a file by its name: "letor", "csv" or "parquet"."""
    stem = os.path.splitext(name)[0] if compression_by_name(name) else name
    suffix = os.path.splitext(stem)[1].lower()
    return {".parquet": "parquet", ".csv": "csv", ".tsv": "csv"}.get(suffix, "letor")


def _described(group: StrPath | Sequence[int] | NDArray[Any]) -> Any:
    if isinstance(group, str | os.PathLike):
        return os.path.realpath(group)
    return np.asarray(group).tolist()


def _fingerprint(source: Inputs, options: dict[str, Any]) -> dict[str, Any]:
    """Return a dict that identifies a conversion: input files, options, versions of sinkprop and the format.

    An unfinished conversion can be resumed only by a call with an equal fingerprint.
    """
    files = []
    for path in source.paths:
        found = os.stat(path)
        files.append([os.path.realpath(path), found.st_size, found.st_mtime_ns])
    return {
        "format": FORMAT_VERSION,
        "library": sinkprop.__version__,
        "files": files,
        "options": options,
    }


def _is_done(folder: Path, target: Path, fingerprint: dict[str, Any]) -> bool:
    """Whether an earlier run of this conversion moved the finished set to `target`, and was then stopped.

    In this case only the cleanup is missing: its working folder, `folder`, has not been deleted.
    """
    journal = read_journal(folder)
    if journal is None or (folder / SET).exists() or not is_stored(target):
        return False
    return bool(journal["fingerprint"] == fingerprint and journal["progress"]["complete"])


def _check_target(target: Path, out: StrPath, *, overwrite: bool) -> None:
    name = os.fspath(out)
    if not target.name:
        raise ValueError(f"out must be a folder's name, such as train.queries; got {name!r}.")
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(17, "A file of this name exists, but a stored set is a folder", name)
    if is_stored(target):
        if not overwrite:
            raise FileExistsError(17, "A stored set exists there; pass overwrite=True to replace it", name)
    elif any(target.iterdir()):
        raise FileExistsError(17, "The folder exists, is not empty, and is not a stored set", name)


@contextmanager
def _working_folder(folder: Path, out: StrPath) -> Iterator[None]:
    """Create the folder of an unfinished conversion, and lock it during a `with` block.

    Raises StoreError if another process has locked the folder. A killed process loses its lock.
    """
    try:
        folder.mkdir(exist_ok=True)
        (folder / SET).mkdir(exist_ok=True)
        lock = open(folder / "lock", "wb")  # noqa: SIM115 - for the length of the block below
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(out)) from None
    with lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has no fcntl: there, nothing stops a second process in this folder
            pass
        except OSError:
            raise StoreError(f"{os.fspath(out)}: another process is converting to it.") from None
        yield


def _convert(
    source: Inputs,
    folder: Path,
    fingerprint: dict[str, Any],
    options: dict[str, Any],
    notify: Notify,
    *,
    resume: bool,
    again: bool,
    join_bytes: int,
) -> None:
    """Write all files of the new set to the subfolder `set` of `folder`, with the manifest last.

    If `resume` is True, continue after the last part (file of rows) that the journal in `folder` lists as
    finished. If that journal is from a conversion of other files or options, start again if `again` is True;
    otherwise raise StoreError.
    """
    journal = read_journal(folder) if resume else None
    if journal is not None and journal["fingerprint"] != fingerprint:
        if not again:
            raise StoreError(_other_work(folder, journal["fingerprint"], fingerprint))
        journal = None
    done = Progress() if journal is None else Progress.of(journal["progress"])
    finished = journal is not None and done.complete and (folder / SET / MANIFEST).exists()
    parts = {part.file for part in done.parts}
    _clear(folder / SET, parts | {INDEX, MANIFEST} if finished else parts)
    _clear(folder, {SET, "lock", JOURNAL} | {f"queries-{i:05d}.arrow" for i in range(len(parts))})
    if finished:
        return
    try:
        known = source.prepare(notify, None if journal is None else journal["known"])
        joined = journal is not None and journal["known"].get("joined", False)
        if journal is None:
            write_journal(folder, fingerprint, known, done)
        if not joined:
            try:
                _write(source, folder, fingerprint, known, options, done, notify)
                return
            except SplitQueryError:
                if not join_bytes:
                    raise
            known, done = {**known, "joined": True}, Progress()
            write_journal(folder, fingerprint, known, done)
            _clear(folder / SET, set())
        rows = JoinedInputs(source, join_bytes, notify)
        _write(rows, folder, fingerprint, {**known, "joined": True}, options, done, notify)
    except BaseException as error:
        # Delete the folder if the conversion cannot be resumed. A ValueError is an error in an input file,
        # which the user must change, and a conversion of changed files starts again. A conversion of queries
        # in memory, which has no input files, cannot be resumed either.
        if isinstance(error, ValueError) or not source.paths:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _write(
    source: Inputs,
    folder: Path,
    fingerprint: dict[str, Any],
    known: dict[str, Any],
    options: dict[str, Any],
    done: Progress,
    notify: Notify,
) -> None:
    """Write the rows of an input from the end of the progress `done` on, and then the manifest."""
    layout = Layout(
        n_features=source.n_features,
        feature_names=source.feature_names,
        qid=source.qid,
        docid=source.docid,
        labeled=options["label"] is not None,
        allow_nan=options["allow_nan"],
        categories=source.categories,
        ordered=source.ordered,
        block_bytes=options["block_bytes"],
        part_bytes=options["part_bytes"],
    )
    writer = SetWriter(
        folder,
        layout,
        done,
        save=lambda progress: write_journal(folder, fingerprint, known, progress),
        locate=source.locate,
    )
    try:
        if not done.complete:
            start, skipped = (None, 0) if done.next is None else done.next
            total = sum(size for _, size, _ in fingerprint["files"])
            for chunk in source.chunks(start):
                # in a resumed run, chunks may be smaller than the number of rows to skip
                if skipped >= len(chunk.y):
                    skipped -= len(chunk.y)
                    continue
                writer.add(chunk, skipped)
                skipped = 0
                if source.paths:
                    name = os.path.basename(source.paths[chunk.place.file])
                    notify(chunk.done, total, f"converting {name}")
        writer.finish([(os.path.basename(path), size) for path, size, _ in fingerprint["files"]])
    finally:
        writer.abandon()


def _clear(folder: Path, keep: set[str]) -> None:
    """Remove everything from a folder except the names in `keep`."""
    for path in folder.iterdir():
        if path.name not in keep:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _other_work(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> str:
    """Return an error message: how an unfinished conversion differs from the requested one, and what to do.

    folder    Working folder of the unfinished conversion.
    old, new  Fingerprints of the unfinished and of the requested conversion; see `_fingerprint`.
    """
    if [name for name, *_ in old["files"]] != [name for name, *_ in new["files"]]:
        what = "of other files"
    elif old["files"] != new["files"]:
        changed = next(a[0] for a, b in zip(old["files"], new["files"], strict=True) if a != b)
        what = f"of an earlier version of {os.path.basename(changed)}"
    elif old["options"] != new["options"]:
        name = next(name for name in new["options"] if old["options"].get(name) != new["options"][name])
        what = f"with {name}={old['options'].get(name)!r}, not {new['options'][name]!r}"
    else:
        what = f"by sinkprop {old['library']}"
    return (
        f"{folder} holds an unfinished conversion {what}. Finish it as it was started, delete the folder, or "
        "pass overwrite=True to start again."
    )


def _put_in_place(made: Path, target: Path) -> None:
    """Move the finished folder to `target`, and then remove the set that it replaces."""
    if is_stored(target):
        os.rename(target, _remove_replaced(target))
    os.rename(made, target)
    flush_folder(target.parent)
    _remove_replaced(target)


def _remove_replaced(target: Path) -> Path:
    """Delete the stored set at `target` + ".replaced", if there is one, and return that path.

    A set that is about to be replaced is moved to that path until the new set is in place.
    """
    old = target.with_name(f"{target.name}.replaced")
    if is_stored(old):
        _discard(old)
    return old


def _discard(folder: Path) -> None:
    """Remove a folder that is no longer needed, in one step for every reader.

    A kill while its files were removed one by one could leave a part that no later run knows to remove. So
    it is first moved to a temporary folder, which the next write removes if this process is killed.
    """
    with working_folder(str(folder.parent)) as temporary:
        os.rename(folder, os.path.join(temporary, folder.name))
