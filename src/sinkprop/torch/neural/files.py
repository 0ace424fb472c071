"""Files of networks: their tensors as those of PyTorch, in the format of `serving/network_files.py`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import IO, Any

import torch
from torch import Tensor

from sinkprop.common.atomic import StrPath, replacing
from sinkprop.model_files import START, Model, ModelFileError, model_bytes
from sinkprop.serving.network_files import DIGEST, FORMAT_VERSION, MAX_HEADER, read_blocks

__all__ = ["network_from", "read_network", "write_network"]

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
    if len(header) > MAX_HEADER:
        raise ValueError(f"state makes a header of {len(header)} bytes; a file may have {MAX_HEADER}.")
    start = len(header).to_bytes(8, "little") + header
    digest = hashlib.sha256(start[: DIGEST.start])
    digest.update(start[DIGEST.stop :])
    for block in blocks:
        digest.update(block)
    with replacing(path) as temporary, open(temporary, "wb") as handle:
        handle.write(start[: DIGEST.start] + digest.hexdigest().encode("ascii") + start[DIGEST.stop :])
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
    model, blocks = read_blocks(handle, start, path)
    if kind is not None and model.kind != kind:
        raise ModelFileError(f"{name!r} is of the kind {model.kind}, but {kind} was asked for.")
    # a copy, so that the memory is writable and aligned for its dtype
    return model, {
        name: torch.frombuffer(bytearray(block.data), dtype=_BY_NAME[block.dtype]).reshape(block.shape)
        if block.data.nbytes
        else torch.empty(block.shape, dtype=_BY_NAME[block.dtype])
        for name, block in blocks.items()
    }


def _bytes_of(tensor: Tensor) -> Any:
    """The bytes of a tensor, in C order, without a copy if it is contiguous."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")
