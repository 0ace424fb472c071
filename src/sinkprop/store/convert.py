"""Files of rows to a stored set: streaming, and resumable after a kill."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkprop
from sinkprop.common.arguments import whole as _whole
from sinkprop.common.compressed import StrPath, compression_by_name
from sinkprop.common.progress import Notify, silent
from sinkprop.data.letor import null_value
from sinkprop.data.queries import Queries
from sinkprop.store.chunks import Inputs
from sinkprop.store.format import FORMAT_VERSION, INDEX, MANIFEST, StoreError, is_stored, need_pyarrow
from sinkprop.store.from_arrays import QueriesInputs
from sinkprop.store.from_letor import LetorInputs
from sinkprop.store.from_tables import CsvInputs, ParquetInputs
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
    block_bytes: int = 8 << 20,
    part_bytes: int = 256 << 20,
    n_threads: int | None = None,
    overwrite: bool = False,
    resume: bool = True,
    progress: Notify | None = None,
) -> StoredQueries:
    r"""A stored set in the folder `out` of the rows of one or several files, made with little memory.

    inputs       one file or several: LETOR text, CSV with a line of names, or Parquet
    kind         "letor", "csv" or "parquet"; None goes by the name: .csv and .tsv (also compressed by gzip,
                 xz or bzip2), .parquet, and LETOR text for all others

    For LETOR text `n_features`, `null`, `zero_based` and `group` are those of `load_letor`; without
    n_features all of the text is looked at first. For CSV and Parquet `qid`, `label`, `docid` and `features`
    name columns, as for `load_frame`; `delimiter` stands between the columns of CSV: a comma, or a tab in a
    file called .tsv.

    allow_nan    keep what is missing (an empty field of CSV, a null of Parquet, NULL in LETOR text) as NaN,
                 which boosted trees take and other rankers refuse; without it, it is an error
    block_bytes  bytes that a block has at most, unless it is one longer query; a row counts four a feature
                 and 16 more
    part_bytes   bytes, counted so, after which a part, a file of the set, ends
    overwrite    replace a set that stands there, and begin again where other work was left unfinished
    resume       go on with unfinished work of the same files and options
    progress     called as progress(bytes done, bytes in all, what)

    Features become float32; a value past its largest is an error, and so is all that the readers in memory
    refuse, with the file and the line or row. Rows of a query must stand together, in one file.

    Until the set is complete, the work is in the folder `out` + ".unfinished"; the same call goes on with it
    after a kill, and makes the same bytes.

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
        with open(name, "rb"):  # what cannot be opened is Python's own error, before anything is made
            pass
    kinds = sorted({kind_of(name) if kind is None else kind for name in names})
    if len(kinds) > 1:
        raise ValueError(
            f"the files of a set must be of one kind; got {' and '.join(kinds)}. Convert them apart."
        )
    for_text: dict[str, Any] = {
        "n_features": n_features,
        "null": null,
        "zero_based": zero_based,
        "group": group,
    }
    for_tables: dict[str, Any] = {"qid": qid, "label": label, "docid": docid, "features": features}
    _check_options(kinds[0], for_text, for_tables, delimiter)
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
        "delimiter": delimiter,
        "allow_nan": bool(allow_nan),
        "block_bytes": _whole("block_bytes", block_bytes, 1),
        "part_bytes": _whole("part_bytes", part_bytes, 1),
    }
    notify = silent if progress is None else progress
    return _made(source, out, options, notify, overwrite=overwrite, resume=resume)


def save_queries(
    out: StrPath,
    queries: Queries | Iterable[Queries],
    *,
    block_bytes: int = 8 << 20,
    part_bytes: int = 256 << 20,
    overwrite: bool = False,
) -> StoredQueries:
    """A stored set in the folder `out` of queries in memory, or of as many as an iterator gives in turn.

    All of them have the same features and ids of one kind, whole numbers or text, each query once. Features
    become float32. Nothing of it is left where it fails, and it cannot be resumed.

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
    return _made(source, out, options, silent, overwrite=overwrite, resume=False)


def _made(
    source: Inputs, out: StrPath, options: dict[str, Any], notify: Notify, *, overwrite: bool, resume: bool
) -> StoredQueries:
    target = Path(os.path.realpath(out))
    folder = target.with_name(target.name + ".unfinished")
    fingerprint = _fingerprint(source, options)
    if resume and _is_done(folder, target, fingerprint):
        _remove_replaced(target)
        shutil.rmtree(folder)
        return open_queries(out)
    _check_target(target, out, overwrite=overwrite)
    try:
        with _working_folder(folder, out):
            _convert(source, folder, fingerprint, options, notify, resume=resume, again=overwrite)
            _put_in_place(folder / SET, target)
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), os.fspath(out)) from None
    shutil.rmtree(folder)
    return open_queries(out)


def _check_options(
    kind: str, for_text: dict[str, Any], for_tables: dict[str, Any], delimiter: str | None
) -> None:
    """A ValueError for an option that files of this kind do not have."""
    if kind == "letor":
        defaults = {"qid": "qid", "label": "label"}
        given = [name for name, value in for_tables.items() if value != defaults.get(name)]
        what = "CSV and Parquet, which have columns"
    else:
        given = [name for name, value in for_text.items() if value is not None and value is not False]
        what = "LETOR text"
    if given:
        raise ValueError(f"{given[0]}= is for {what}, and these files are {_NAMES[kind]}. Leave it out.")
    if delimiter is not None and (kind != "csv" or len(delimiter) != 1 or not delimiter.isascii()):
        raise ValueError(f"delimiter= is the one character between the columns of CSV; got {delimiter!r}.")


def _checked_text(n_features: int | None, null: float | None, zero_based: bool, group: Any) -> dict[str, Any]:
    return {
        "n_features": None if n_features is None else _whole("n_features", n_features, 1),
        "null": None if null is None else null_value(null, np.dtype(np.float32)),
        "zero_based": bool(zero_based),
        "group": group,
    }


def kind_of(name: str) -> str:
    """What a file is by its name: "letor", "csv" or "parquet"."""
    stem = os.path.splitext(name)[0] if compression_by_name(name) else name
    suffix = os.path.splitext(stem)[1].lower()
    return {".parquet": "parquet", ".csv": "csv", ".tsv": "csv"}.get(suffix, "letor")


def _described(group: StrPath | Sequence[int] | NDArray[Any]) -> Any:
    if isinstance(group, str | os.PathLike):
        return os.path.realpath(group)
    return np.asarray(group).tolist()


def _fingerprint(source: Inputs, options: dict[str, Any]) -> dict[str, Any]:
    """What a run must have in common with the one that it goes on with."""
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
    """Whether all that is left of the same work is to clear up, after a kill at its very end."""
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
        raise FileExistsError(17, "A file stands there, and a stored set is a folder", name)
    if is_stored(target):
        if not overwrite:
            raise FileExistsError(17, "A stored set stands there; pass overwrite=True to replace it", name)
    elif any(target.iterdir()):
        raise FileExistsError(17, "A folder stands there that is no stored set, and is not empty", name)


@contextmanager
def _working_folder(folder: Path, out: StrPath) -> Iterator[None]:
    """The folder of unfinished work, with a lock that ends with the process."""
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
        except ImportError:  # Windows: there nothing tells two of them apart
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
) -> None:
    """The folder `set` in the working folder, complete with its manifest."""
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
        if journal is None:
            write_journal(folder, fingerprint, known, done)
        layout = Layout(
            n_features=source.n_features,
            feature_names=source.feature_names,
            qid=source.qid,
            docid=source.docid,
            labeled=options["label"] is not None,
            allow_nan=options["allow_nan"],
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
                    # chunks after a place need not end where those did that went over it
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
    except BaseException as error:
        # What is wrong with the input must be changed there, and then the work cannot go on from here.
        if isinstance(error, ValueError) or not source.paths:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _clear(folder: Path, keep: set[str]) -> None:
    """What a killed process left unfinished, removed."""
    for path in folder.iterdir():
        if path.name not in keep:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _other_work(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs between unfinished work and what was asked for."""
    if [name for name, *_ in old["files"]] != [name for name, *_ in new["files"]]:
        what = "of other files"
    elif old["files"] != new["files"]:
        changed = next(a[0] for a, b in zip(old["files"], new["files"], strict=True) if a != b)
        what = f"of {os.path.basename(changed)} as it was before it changed"
    elif old["options"] != new["options"]:
        name = next(name for name in new["options"] if old["options"].get(name) != new["options"][name])
        what = f"with {name}={old['options'].get(name)!r}, and not {new['options'][name]!r}"
    else:
        what = f"by sinkprop {old['library']}"
    return (
        f"{folder} holds an unfinished conversion {what}. Finish it as it was begun, delete the folder, or "
        "pass overwrite=True to begin again."
    )


def _put_in_place(made: Path, target: Path) -> None:
    """The finished folder under its name; a set that stood there is removed after that."""
    if is_stored(target):
        os.rename(target, _remove_replaced(target))
    os.rename(made, target)
    flush_folder(target.parent)
    _remove_replaced(target)


def _remove_replaced(target: Path) -> Path:
    """Where the set that another one replaces is kept until that is in its place; nothing is there then."""
    old = target.with_name(f"{target.name}.replaced")
    if is_stored(old):
        shutil.rmtree(old)
    return old
