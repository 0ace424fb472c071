"""Files of rows to a stored set: streaming, and resumable after a kill."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkprop
from sinkprop.arguments import whole as _whole
from sinkprop.files import StrPath, compression_by_name
from sinkprop.progress import Notify, silent
from sinkprop.store.chunks import Inputs
from sinkprop.store.format import FORMAT_VERSION, MANIFEST, StoreError, is_stored, need_pyarrow
from sinkprop.store.letor import LetorInputs
from sinkprop.store.stored import StoredQueries, open_queries
from sinkprop.store.writer import (
    SET,
    Layout,
    Progress,
    SetWriter,
    flush_folder,
    read_journal,
    write_journal,
)

__all__ = ["convert"]

_KINDS = ("letor", "csv", "parquet")


def convert(
    inputs: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    kind: str | None = None,
    n_features: int | None = None,
    null: float | None = None,
    zero_based: bool = False,
    group: StrPath | Sequence[int] | NDArray[Any] | None = None,
    allow_nan: bool = False,
    block_bytes: int = 8 << 20,
    part_bytes: int = 256 << 20,
    n_threads: int | None = None,
    overwrite: bool = False,
    resume: bool = True,
    progress: Notify | None = None,
) -> StoredQueries:
    """A stored set in the folder `out` of the rows of one or several files, made with little memory."""
    need_pyarrow("convert")
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    if not paths:
        raise ValueError("inputs must name at least one file; got none.")
    names = [os.fsdecode(path) for path in paths]
    kinds = {_kind_of(name) if kind is None else kind for name in names}
    if kind is not None and kind not in _KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, _KINDS))}; got {kind!r}.")
    if len(kinds) > 1:
        raise ValueError(f"the files of a set must be of one kind; got {' and '.join(sorted(kinds))}.")
    for name in names:
        with open(name, "rb"):  # what cannot be opened is Python's own error, before anything is made
            pass
    if n_features is not None:
        n_features = _whole("n_features", n_features, 1)
    options = {"kind": kinds.pop(), "n_features": n_features, "null": null, "zero_based": bool(zero_based)}
    options |= {"group": None if group is None else _described(group), "allow_nan": bool(allow_nan)}
    options |= {"block_bytes": _whole("block_bytes", block_bytes, 1)}
    options |= {"part_bytes": _whole("part_bytes", part_bytes, 1)}
    source: Inputs = LetorInputs(
        names,
        n_features=n_features,
        null=null,
        zero_based=zero_based,
        group=group,
        allow_nan=allow_nan,
        n_threads=n_threads,
    )
    target = Path(os.path.realpath(out))
    _check_target(target, out, overwrite=overwrite)
    notify = silent if progress is None else progress
    folder = target.with_name(target.name + ".unfinished")
    with _working_folder(folder, out):
        _convert(
            source, folder, _fingerprint(source, options), options, notify, resume=resume, again=overwrite
        )
        _put_in_place(folder / SET, target)
    shutil.rmtree(folder)
    return open_queries(out)


def _kind_of(name: str) -> str:
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
    if journal is not None and done.complete and (folder / SET / MANIFEST).exists():
        return
    keep = {part.file for part in done.parts} | {f"queries-{i:05d}.arrow" for i in range(len(done.parts))}
    for path in [*(folder / SET).iterdir(), *folder.iterdir()]:
        if path.is_file() and path.name not in keep | {"lock", "journal.json"}:
            path.unlink()
    try:
        known = source.prepare(notify, None if journal is None else journal["known"])
        if journal is None:
            write_journal(folder, fingerprint, known, done)
        layout = Layout(
            n_features=source.n_features,
            feature_names=source.feature_names,
            qid=source.qid,
            docid=source.docid,
            labeled=True,
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
                    writer.add(chunk, skipped)
                    skipped = 0
                    notify(
                        chunk.done, total, f"converting {os.path.basename(source.paths[chunk.place.file])}"
                    )
            writer.finish([(os.path.basename(path), size) for path, size, _ in fingerprint["files"]])
        finally:
            writer.abandon()
    except ValueError:
        # What is wrong with the input must be changed there, and then the work cannot go on from here.
        shutil.rmtree(folder, ignore_errors=True)
        raise


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
    old = None
    if target.exists():
        old = target.with_name(f"{target.name}.replaced")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(target, old)
    os.rename(made, target)
    flush_folder(target.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
