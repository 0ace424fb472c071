"""Files of networks: tensors in the safetensors format, with a sinkprop model file as text in the header.

The layout of a file is::

    8 bytes    the length of the header, little endian
    header     {"__metadata__":{"sha256":"<64 hexadecimal digits, lower case>","format":"sinkprop-network",
               "version":"1","model":"<a model file, see model_files>"},"<name>":{"dtype":"F32",...},...}
    data       the tensors, one after the other

Any reader of safetensors can read the tensors. The checksum is the SHA-256 of all bytes of the file except
its own 64 digits, which are always at the same place. So a file in which a byte was changed, added or lost is
refused. Nothing in a file is ever executed.

The same network gives the same bytes: no time, host or path is written.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from math import prod
from typing import IO, TYPE_CHECKING, Any

from sinkprop.model_files import NETWORK_OPENING, Model, ModelFileError, is_network, parse_model

if TYPE_CHECKING:
    from sinkprop.common.atomic import StrPath

__all__ = ["DIGEST", "FORMAT_VERSION", "MAX_HEADER", "Block", "parse_network", "read_blocks"]

FORMAT_VERSION = 1
MAX_HEADER = 100_000_000  # largest header in bytes that the safetensors format allows
DIGEST = slice(8 + len(NETWORK_OPENING), 8 + len(NETWORK_OPENING) + 64)  # the digits of the checksum

_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True, eq=False)
class Block:
    """A tensor in a file: the name of its type, such as "F32", its shape, and its bytes in C order."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def read_blocks(handle: IO[bytes], start: bytes, path: StrPath) -> tuple[Model, dict[str, Block]]:
    """Read a network from the open file `path`, whose first bytes, `start`, have been read.

    Raises a ModelFileError if the file is not a network file, has a newer format, or was changed after it was
    written. The message names the file and fits on one line.
    """
    try:
        # the rest of the file is read only if it begins like a network
        return parse_network(start + handle.read() if is_network(start) else start)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fsdecode(path)!r} {error}") from None


def parse_network(data: bytes) -> tuple[Model, dict[str, Block]]:
    """Return the model and the tensors in the bytes of a file.

    Raises a ModelFileError whose message begins with a verb, such as "is damaged"; the caller puts the name
    of the file before it.
    """
    if not data:
        raise ModelFileError("is empty: it is not a network of sinkprop.")
    if not is_network(data[: DIGEST.start]):
        raise ModelFileError(f"is not a network of sinkprop, or its first bytes are damaged: {data[:24]!r}.")
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER or 8 + length > len(data):
        raise ModelFileError("is damaged: it is cut off in its header, or the header's length was changed.")
    view = memoryview(data)
    digest = hashlib.sha256(view[: DIGEST.start])
    digest.update(view[DIGEST.stop :])
    if digest.hexdigest().encode("ascii") != data[DIGEST]:
        raise ModelFileError("is damaged: its bytes do not agree with its checksum. Save the model again.")
    try:
        return _contents(json.loads(data[8 : 8 + length]), view[8 + length :])
    except ModelFileError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(
            f"has a valid checksum but is not a network of sinkprop: {type(error).__name__}: {reason}."
        ) from None


def _contents(fields: dict[str, Any], body: memoryview) -> tuple[Model, dict[str, Block]]:
    from sinkprop import __version__

    metadata = fields.pop("__metadata__")
    version = int(metadata["version"])
    if metadata["format"] != "sinkprop-network" or version < 1:
        raise ValueError(f"its format is {metadata['format']!r}, version {version}")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"was written in the newer format {version}; sinkprop {__version__} reads formats up to "
            f"{FORMAT_VERSION}: upgrade sinkprop."
        )
    blocks, end = {}, 0
    for name, entry in fields.items():
        first, last = entry["data_offsets"]
        dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
        size = prod(shape) * _SIZES[dtype]
        if first != end or min(shape, default=0) < 0 or last != end + size or last > len(body):
            raise ValueError(
                f"the tensor {name!r} of {size} bytes has the offsets {first} and {last} of {len(body)}"
            )
        blocks[name] = Block(dtype, shape, body[first:last])
        end = last
    if end != len(body):
        raise ValueError(f"{len(body)} bytes of tensors where the header has {end}")
    return parse_model(metadata["model"].encode("utf-8")), blocks
