"""Checks of the files of a stored set: their sizes, their checksums, and what Arrow says about them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sinkprop import _native
from sinkprop.store.format import StoreError, Sums

__all__ = ["arrow_errors", "block_sums", "check_sha256", "check_size", "missing", "sha256_of", "xxh64"]

_HASHED = 1 << 20


def check_size(path: Path, size: int, found: os.stat_result) -> None:
    """Raise a StoreError if a file does not have the size that the manifest says.

    found  Result of `os.stat` or `os.fstat` for the file.
    """
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path}: not a regular file. Convert the data again.")
    if found.st_size != size:
        wrong = "cut off" if found.st_size < size else "not the one that was written"
        raise StoreError(
            f"{path}: the file has {found.st_size:,} bytes, but the manifest says {size:,}: it is {wrong}. "
            "Convert the data again."
        )


def missing(path: Path) -> StoreError:
    """Return the error for a file that is not there."""
    return StoreError(f"{path}: the file is missing from the set. Convert the data again.")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest, buffer = hashlib.sha256(), bytearray(_HASHED)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


def check_sha256(path: Path, found: str, expected: str) -> None:
    """Raise a StoreError unless the SHA-256 that was found for a file is the one of the manifest."""
    if found != expected:
        raise StoreError(
            f"{path}: the file is damaged: its SHA-256 is {found[:12]}..., but the manifest says "
            f"{expected[:12]}.... Convert the data again."
        )


def xxh64(*pieces: Any) -> str:
    """Checksum of pieces of bytes, in hexadecimal.

    It is the XXH64 of the last piece. The seed is the XXH64 of the piece before it, and 0 for the first one.

    >>> xxh64(b"abc"), xxh64(b"", b"abc") == xxh64(b"abc")
    ('44bc2cf5ad770999', False)
    """
    found = 0
    for piece in pieces:
        found = _native.xxh64(np.frombuffer(piece, np.uint8) if len(piece) else np.empty(0, np.uint8), found)
    return f"{found:016x}"


def block_sums(path: Path, ends: list[int]) -> tuple[list[Sums], str]:
    """Return the places and checksums of the blocks of a part, and the checksum of the bytes after them.

    ends  Offset in the file after each block.
    """
    import pyarrow as pa

    sums, start = [], 0
    with pa.memory_map(str(path)) as file:
        whole = file.read_buffer()
        reader, view = pa.ipc.open_file(pa.BufferReader(whole)), memoryview(whole)
        for local, end in enumerate(ends):
            features = reader.get_batch(local).column(0).buffers()[2]
            first = features.address - whole.address
            after = first + features.size
            sums.append(Sums(end, first, xxh64(view[first:after]), xxh64(view[start:first], view[after:end])))
            start = end
        return sums, xxh64(view[start:])


@contextmanager
def arrow_errors(path: Path) -> Iterator[None]:
    """Turn an error of pyarrow about the bytes of a file into a StoreError of one line."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(". ")
        raise StoreError(
            f"{path}: not an Arrow file of a stored set: {reason}. Convert the data again."
        ) from None
