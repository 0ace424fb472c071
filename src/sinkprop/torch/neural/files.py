"""Files of networks: tensors in the safetensors format, with a sinkprop model file as text in the header.

The layout of a file is::

    8 bytes    the length of the header, little endian
    header     {"__metadata__":{"sha256":"<64 hexadecimal digits, lower case>","format":"sinkprop-network",
               "version":"1","model":"<a model file, see model_files>"},"<name>":{"dtype":"F32",...},...}
    data       the tensors, one after the other

Any reader of safetensors can read the tensors. The checksum is the SHA-256 of all bytes of the file except
its own 64 digits, which are always at the same place. So `read_network` raises an error for any file in which
a byte was changed, added or lost. Nothing in a file is ever executed.

The same network gives the same bytes: no time, host or path is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from sinkprop.common.atomic import StrPath, replacing
from sinkprop.model_files import (
    NETWORK_OPENING,
    START,
    Model,
    ModelFileError,
    is_network,
    model_bytes,
    parse_model,
)

__all__ = ["network_from", "read_network", "write_network"]

FORMAT_VERSION = 1
_MAX_HEADER = 100_000_000  # largest header in bytes that the safetensors format allows

_DIGEST = slice(8 + len(NETWORK_OPENING), 8 + len(NETWORK_OPENING) + 64)
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_BY_NAME = {name: dtype for dtype, name in _DTYPES.items()}


def write_network(
    path: StrPath,
    kind: str,
    state: dict[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    about: dict[str, Any] | None = None,
) -> None:
    """Write tensors and a model's kind, state and description to a file, atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "network.safetensors")
    ...     write_network(path, "Network", {"widths": [3]}, {"weight": torch.tensor([0.5, 1.0])})
    ...     model, tensors = read_network(path, kind="Network")
    >>> model.state, tensors
    ({'widths': [3]}, {'weight': tensor([0.5000, 1.0000])})
    """
    entries: dict[str, Any] = {}
    blocks, end = [], 0
    for name, tensor in tensors.items():
        if name == "__metadata__" or tensor.dtype not in _DTYPES:
            raise ValueError(f"tensor {name!r} of {tensor.dtype} cannot be written to a safetensors file.")
        block = _bytes_of(tensor)
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + block.nbytes],
        }
        end += block.nbytes
        blocks.append(block)
    text = model_bytes(kind, state, {} if about is None else about).decode("utf-8")
    metadata = {
        "sha256": "0" * 64, "format": "sinkprop-network", "version": str(FORMAT_VERSION), "model": text
    }  # fmt: skip
    header = json.dumps({"__metadata__": metadata} | entries, separators=(",", ":")).encode("ascii")
    header += b" " * (-len(header) % 8)  # pad, so that the tensors begin at a multiple of 8 bytes
    if len(header) > _MAX_HEADER:
        raise ValueError(f"state makes a header of {len(header)} bytes; a file may have {_MAX_HEADER}.")
    start = len(header).to_bytes(8, "little") + header
    digest = hashlib.sha256(start[: _DIGEST.start])
    digest.update(start[_DIGEST.stop :])
    for block in blocks:
        digest.update(block)
    with replacing(path) as temporary, open(temporary, "wb") as handle:
        handle.write(start[: _DIGEST.start] + digest.hexdigest().encode("ascii") + start[_DIGEST.stop :])
        for block in blocks:
            handle.write(block)


def read_network(path: StrPath, *, kind: str | None = None) -> tuple[Model, dict[str, Tensor]]:
    """Read the model and the tensors that `write_network` wrote.

    Raises a ModelFileError if the file is not a network file, is of another kind, has a newer format, or was
    changed after it was written. The message names the file and fits on one line.
    """
    with open(path, "rb") as handle:
        return network_from(handle, handle.read(START), path, kind=kind)


def network_from(
    handle: IO[bytes], start: bytes, path: StrPath, *, kind: str | None = None
) -> tuple[Model, dict[str, Tensor]]:
    """Read a network from an open file whose first `START` bytes have been read. See `read_network`."""
    name = os.fsdecode(path)
    try:
        model, tensors = _parse_file(handle, start)
    except ModelFileError as error:
        raise ModelFileError(f"{name!r} {error}") from None
    if kind is not None and model.kind != kind:
        raise ModelFileError(f"{name!r} is of the kind {model.kind}, but {kind} was asked for.")
    return model, tensors


def _bytes_of(tensor: Tensor) -> Any:
    """The bytes of a tensor, in C order, without a copy if it is contiguous."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")


def _parse_file(handle: IO[bytes], start: bytes) -> tuple[Model, dict[str, Tensor]]:
    found = os.fstat(handle.fileno())
    if not start:
        raise ModelFileError("is empty: it is not a network of sinkprop.")
    if not is_network(start):
        raise ModelFileError(f"is not a network of sinkprop, or its first bytes are damaged: {start[:24]!r}.")
    length = int.from_bytes(start[:8], "little")
    if length > _MAX_HEADER or (stat.S_ISREG(found.st_mode) and 8 + length > found.st_size):
        raise ModelFileError("is damaged: it is cut off in its header, or the header's length was changed.")
    header = start[8:] + handle.read(length - len(NETWORK_OPENING))
    # Read the rest of the file, not only as many bytes as the header lists: if bytes were added at the end,
    # the checksum fails.
    body = handle.read()
    digest = hashlib.sha256(start[:8] + header[: len(NETWORK_OPENING)])
    digest.update(header[len(NETWORK_OPENING) + 64 :])
    digest.update(body)
    if digest.hexdigest().encode("ascii") != header[len(NETWORK_OPENING) : len(NETWORK_OPENING) + 64]:
        raise ModelFileError("is damaged: its bytes do not agree with its checksum. Save the model again.")
    try:
        return _contents(json.loads(header), body)
    except ModelFileError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(
            f"has a valid checksum but is not a network of sinkprop: {type(error).__name__}: {reason}."
        ) from None


def _contents(fields: dict[str, Any], body: bytes) -> tuple[Model, dict[str, Tensor]]:
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
    tensors, end = {}, 0
    for name, entry in fields.items():
        first, last = entry["data_offsets"]
        dtype, shape = _BY_NAME[entry["dtype"]], [int(n) for n in entry["shape"]]
        count = int(np.prod(shape, dtype=object)) if shape else 1
        size = count * dtype.itemsize
        if first != end or min(shape, default=0) < 0 or last != end + size or last > len(body):
            raise ValueError(
                f"the tensor {name!r} of {size} bytes has the offsets {first} and {last} of {len(body)}"
            )
        # a copy, so that the memory is writable and aligned for its dtype
        tensors[name] = (
            torch.frombuffer(bytearray(body[first:last]), dtype=dtype).reshape(shape)
            if count
            else (torch.empty(shape, dtype=dtype))
        )
        end = last
    if end != len(body):
        raise ValueError(f"{len(body)} bytes of tensors where the header has {end}")
    return parse_model(metadata["model"].encode("utf-8")), tensors
