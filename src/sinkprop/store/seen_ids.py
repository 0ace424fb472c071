"""Query ids that occurred so far in a conversion, as 64-bit numbers or hashes, to find repeated ones."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkprop.common.types import Integers

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SeenIds"]


class SeenIds:
    """Set of the query ids seen so far. It holds whole numbers themselves, and a 64-bit hash of each text id.

    >>> import pyarrow as pa
    >>> seen = SeenIds("string")
    >>> seen.repeated(pa.array(["a", "b"])), seen.repeated(pa.array(["c", "a"]))
    ([], ['a'])
    """

    def __init__(self, kind: str) -> None:
        self._numbers = kind == "int64"
        # numbers or hashes of the ids seen so far, in sorted arrays; each is over twice as long as the next
        self._levels: list[Integers] = []

    def add(self, ids: pa.Array | pa.ChunkedArray) -> None:
        """Record ids as seen."""
        self._put(self._codes(ids))

    def repeated(self, ids: pa.Array) -> list[Any]:
        """Return the ids that were seen before or occur earlier in `ids`, and record all of `ids` as seen.

        Text ids are compared by their hashes, so the result can contain an id that is new. The probability
        that 10^7 different ids include two with the same hash is about 3 in 10^6. The caller must therefore
        compare each returned id with the earlier ids themselves, not with their hashes.
        """
        codes = self._codes(ids)
        again = np.ones(len(codes), bool)
        again[np.unique(codes, return_index=True)[1]] = False
        for level in self._levels:
            at = np.searchsorted(level, codes)
            at[at == len(level)] = 0
            again |= level[at] == codes
        self._put(codes)
        return [ids[int(i)].as_py() for i in np.flatnonzero(again)]

    def _codes(self, ids: pa.Array | pa.ChunkedArray) -> Integers:
        if self._numbers:
            return np.asarray(ids.to_numpy(), np.int64)
        return np.frombuffer(
            b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in ids.to_pylist()),
            np.int64,
        )

    def _put(self, codes: Integers) -> None:
        level = np.sort(codes)
        while self._levels and len(self._levels[-1]) <= 2 * len(level):
            # "stable" is the algorithm that is fast for two sorted arrays: it merges them
            level = np.sort(np.concatenate([self._levels.pop(), level]), kind="stable")
        self._levels.append(level)
