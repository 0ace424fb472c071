"""Whole files, read into memory and decompressed according to their first bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Source",
    "compression_by_content",
    "compression_by_name",
    "damage",
    "damaged",
    "opened",
    "read_source",
]

StrPath: TypeAlias = str | os.PathLike[str]
Bytes: TypeAlias = NDArray[np.uint8]


@dataclass(frozen=True)
class Source:
    """A file in memory.

    name  Name of the file in messages.
    data  Its bytes, decompressed.
    path  Its path, or None for an open file object.
    """

    name: str
    data: Bytes
    path: str | None


_MAGICS = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}
_SUFFIXES = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2"}


def compression_by_name(name: str) -> str | None:
    """Compression according to a file's suffix: "gzip", "xz", "bzip2", or None."""
    return _SUFFIXES.get(os.path.splitext(name)[1].lower())


def compression_by_content(start: bytes) -> str | None:
    """Compression according to a file's first six bytes: "gzip", "xz", "bzip2", or None."""
    return next((kind for magic, kind in _MAGICS.items() if start.startswith(magic)), None)


def read_source(path: StrPath | IO[bytes] | IO[str]) -> Source:
    """Return the content of a file, decompressed if necessary.

    A path is read whole. An open file is read from its current position to its end, and stays open.
    """
    read = getattr(path, "read", None)
    if read is not None:
        name = getattr(path, "name", None)
        name = name if isinstance(name, str) else f"<{type(path).__name__}>"
        return Source(name, _decompressed(_read_stream(read, name), name), None)
    name = os.fsdecode(cast("StrPath", path))
    return Source(name, _decompressed(_read_file(name), name), name)


def _read_file(name: str) -> Bytes:
    # Not a memory map: if another process truncated the file, this one would be killed.
    with open(name, "rb", buffering=0) as file:
        data = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        filled = 0
        while filled < len(data):
            count = file.readinto(data[filled:].data)
            if not count:
                break
            filled += count
        rest = file.readall()  # bytes appended since fstat; all bytes of a pipe, for which fstat gives size 0
    if not rest:
        return data[:filled]
    added = _array(rest)
    return np.concatenate([data[:filled], added]) if filled else added


def _read_stream(read: Callable[[int], Any], name: str) -> Bytes:
    data = bytearray()
    while True:
        block = read(1 << 24)
        if isinstance(block, str):
            block = block.encode("utf-8", "surrogateescape")
        elif not isinstance(block, bytes | bytearray | memoryview):
            raise TypeError(f"{name}: read() must return bytes or text; got {block!r}.")
        if not block:
            return _array(data)
        data += block


def _array(data: bytes | bytearray) -> Bytes:
    return np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def _decompressed(data: Bytes, name: str) -> Bytes:
    compression = compression_by_content(data[:6].tobytes())
    if compression is None:
        return data
    text = bytearray()
    try:
        with opened(compression, io.BytesIO(data.tobytes()), "rb") as stream:
            while block := stream.read(1 << 22):
                text += block
    except damage() as error:
        raise damaged(name, compression, len(text), error) from error
    return _array(text)


def damage() -> tuple[type[Exception], ...]:
    """Return the exception types that are raised when a damaged or truncated compressed file is read."""
    import zlib
    from lzma import LZMAError

    return (EOFError, OSError, zlib.error, LZMAError)


def damaged(name: str, compression: str, done: int, error: Exception) -> ValueError:
    """Return the ValueError for a compressed file that is damaged after `done` decompressed bytes."""
    return ValueError(
        f"{name}: the compressed stream ({compression}) is damaged or cut off, after {done} bytes of text: "
        f"{error}. Get the file again."
    )


def opened(compression: str, file: IO[bytes], mode: str) -> IO[bytes]:
    """Wrap an open file: decompress while reading (mode "rb") or compress while writing (mode "wb")."""
    if compression == "gzip":
        from gzip import GzipFile

        # The time stamp is fixed to 0, so that equal data give equal bytes.
        return cast("IO[bytes]", GzipFile("", mode, 6, file, 0))
    if compression == "xz":
        from lzma import LZMADecompressor, LZMAFile

        return LZMAFile(file, "wb") if mode == "wb" else _reader(file, LZMADecompressor)
    from bz2 import BZ2Decompressor, BZ2File

    return cast("IO[bytes]", BZ2File(file, "wb")) if mode == "wb" else _reader(file, BZ2Decompressor)


def _reader(file: IO[bytes], new: Callable[[], Any]) -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(_Streams(file, new), 1 << 16))


class _Streams(io.RawIOBase):
    """Decompressed bytes of one or several xz or bzip2 streams in a file.

    The readers in Python's library ignore bytes after a stream that do not begin another one, so that data
    after a damaged place would be lost. Here they raise the decompressor's error. Zero bytes are allowed.

    file  File with the compressed bytes.
    new   Function that returns a new decompressor.
    """

    def __init__(self, file: IO[bytes], new: Callable[[], Any]) -> None:
        self._file, self._new, self._stream = file, new, new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            given = b""
            if self._stream.eof:
                given = self._stream.unused_data.lstrip(b"\0")
                while not given:
                    block = self._file.read(1 << 16)
                    if not block:
                        return 0
                    given = block.lstrip(b"\0")
                self._stream = self._new()
            elif self._stream.needs_input:
                given = self._file.read(1 << 16)
                if not given:
                    raise EOFError("the file ends before the end of the stream")
            data = self._stream.decompress(given, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
