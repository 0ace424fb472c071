"""The query ids that a set has so far, in eight bytes each, to find one that comes again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SeenIds"]

_LEAST = 1 << 16


class SeenIds:
    """Ids seen so far: whole numbers as they are, text by a hash of 64 bits.

    >>> import pyarrow as pa
    >>> seen = SeenIds("string")
    >>> seen.repeated(pa.array(["a", "b"])), seen.repeated(pa.array(["c", "a"]))
    ([], ['a'])
    """

    def __init__(self, kind: str) -> None:
        self._numbers = kind == "int64"
        self._old: NDArray[np.int64] = np.empty(0, np.int64)  # sorted
        self._new: list[NDArray[np.int64]] = []
        self._n_new = 0
        self._recent: set[int] = set()

    def add(self, ids: pa.Array | pa.ChunkedArray) -> None:
        self._put(self._codes(ids))

    def repeated(self, ids: pa.Array) -> list[Any]:
        """Those ids that were seen before, or stand there twice; all of them are seen then.

        Of text, two ids in 10^7 have the same hash once in some 10^5 sets: the caller compares the ids.
        """
        codes = self._codes(ids)
        found = np.searchsorted(self._old, codes)
        found[found == len(self._old)] = 0
        again = self._old[found] == codes if len(self._old) else np.zeros(len(codes), bool)
        values, first = np.unique(codes, return_index=True)
        if len(values) < len(codes):
            twice = np.ones(len(codes), bool)
            twice[first] = False
            again |= twice
        if self._recent:
            again |= np.fromiter(map(self._recent.__contains__, codes.tolist()), bool, len(codes))
        self._put(codes)
        return [ids[int(i)].as_py() for i in np.flatnonzero(again)]

    def _codes(self, ids: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
        if self._numbers:
            return np.asarray(ids.to_numpy(), np.int64)
        return np.frombuffer(
            b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in ids.to_pylist()),
            np.int64,
        )

    def _put(self, codes: NDArray[np.int64]) -> None:
        self._new.append(codes)
        self._n_new += len(codes)
        self._recent.update(codes.tolist())
        if self._n_new > max(_LEAST, len(self._old) // 16):
            self._old = np.sort(np.concatenate([self._old, *self._new]))
            self._new, self._n_new, self._recent = [], 0, set()
