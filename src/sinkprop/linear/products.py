"""Products X w and X' g of tall matrices on threads, with the same bits for any number of threads.

The rows are divided into chunks of a fixed size. One BLAS thread multiplies each chunk, and the sums over
rows are added in the order of the chunks. BLAS itself would divide the rows differently for each number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.arguments import threads
from sinkprop.common.types import Floats

__all__ = ["Products"]

T = TypeVar("T")

_CHUNK_BYTES = 1 << 24


class Products:
    """Matrix products X V and X' g, computed on a pool of threads or in the calling thread without a pool."""

    def __init__(self, pool: ThreadPoolExecutor | None = None) -> None:
        self._pool = pool

    def forward(self, X: NDArray[Any], V: Floats) -> Floats:
        """Return the product X V in float64, (N,) or (N, 2), for X (N, D) and V (D,) or (D, 2)."""
        V = np.ascontiguousarray(V, dtype=X.dtype)
        out = np.empty((len(X), *V.shape[1:]))

        def multiply(rows: slice) -> None:
            out[rows] = X[rows] @ V

        self._each(X, multiply)
        return out

    def backward(self, X: NDArray[Any], g: Floats) -> Floats:
        """Return the product X' g in float64, (D,) or (D, 2), for X (N, D) and g (N,) or (N, 2)."""
        parts = self._each(X, lambda rows: X[rows].T @ g[rows].astype(X.dtype, copy=False))
        total: Floats = parts[0].astype(np.float64)
        for part in parts[1:]:
            total += part
        return total

    def _each(self, X: NDArray[Any], work: Callable[[slice], T]) -> list[T]:
        size = max(1, _CHUNK_BYTES // max(1, X.shape[1] * X.itemsize))
        chunks = [slice(i, min(i + size, len(X))) for i in range(0, len(X), size)]
        if self._pool is None or len(chunks) == 1:
            return [work(rows) for rows in chunks]
        return list(self._pool.map(work, chunks))


@contextmanager
def products(n_threads: int | None, rows: int) -> Iterator[Products]:
    """Context manager that gives a `Products`, which multiplies matrices on threads.

    Within the context, BLAS itself uses one thread.

    n_threads  Number of threads; None to choose it as `threads` in `common/arguments.py` does.
    rows       Number of rows of the matrices.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        count = threads(n_threads, rows)
        if count == 1:
            yield Products()
            return
        with ThreadPoolExecutor(count, thread_name_prefix="sinkprop") as pool:
            yield Products(pool)
