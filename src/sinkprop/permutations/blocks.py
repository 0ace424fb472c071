"""The blocks of a matrix: submatrices whose permanents multiply to the permanent of the matrix.

An entry that lies on no positive diagonal (n nonzero entries, one in each row and each column) contributes
nothing to the permanent. Without these entries, the matrix consists of blocks that share no row and no
column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sinkprop.common.types import Floats, Positions
from sinkprop.objective.sinkhorn import nonnegative_square
from sinkprop.objective.sinkhorn_limit import sinkhorn_limit

__all__ = ["Block", "Violator", "blocks_of", "matrix_of", "require_matching", "submatrix"]

_NAMED = 8  # largest number of rows or columns that a message lists


@dataclass(frozen=True, eq=False)
class Block:
    """Rows and columns of a block, in an order in which they are matched."""

    rows: Positions
    columns: Positions

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Violator:
    """Rows whose nonzero entries all lie in fewer columns, so that no perfect matching exists."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def __str__(self) -> str:
        if not self.columns:
            return f"row {self.rows[0]} is all zeros"
        return (
            f"{_named('row', self.rows)} have all their nonzero entries in {_named('column', self.columns)}"
        )


def matrix_of(A: npt.ArrayLike) -> Floats:
    """Return a float64 copy of a matrix; raise a ValueError unless it is finite, nonnegative and square."""
    return nonnegative_square(A, "A")


def blocks_of(B: Floats) -> list[Block] | Violator:
    """Return the blocks of a nonnegative square matrix, or the reason why its permanent is 0."""
    pattern = B > 0
    if pattern.all():
        return [Block(np.arange(len(B)), np.arange(len(B)))]
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

    match = maximum_bipartite_matching(csr_matrix(pattern), perm_type="column").astype(np.intp)
    if np.any(match < 0):
        limit = sinkhorn_limit(B, max_iter=1)
        return Violator(limit.deficient_rows, limit.deficient_columns)
    # With the matched entries on the diagonal, the blocks are the strongly connected components of a graph.
    count, component = connected_components(csr_matrix(pattern[:, match]), connection="strong")
    order = np.argsort(component, kind="stable")
    ends = np.cumsum(np.bincount(component, minlength=count))[:-1]
    return [Block(rows, match[rows]) for rows in np.split(order, ends)]


def require_matching(B: Floats) -> list[Block]:
    """Return the blocks of a matrix; raise a ValueError if it has no perfect matching."""
    blocks = blocks_of(B)
    if isinstance(blocks, Violator):
        raise ValueError(
            "A must have a perfect matching, n nonzero entries with one in each row and column; "
            f"{blocks}, so every product of n such entries is 0."
        )
    return blocks


def submatrix(B: Floats, block: Block) -> Floats:
    """Return the entries of a block; a matching of positive entries is on the diagonal."""
    entries: Floats = B[np.ix_(block.rows, block.columns)]
    return entries


def _named(noun: str, indices: tuple[int, ...]) -> str:
    listed = ", ".join(map(str, indices[:_NAMED]))
    if len(indices) > _NAMED:
        return f"{noun}s {listed}, ... ({len(indices)} in all)"
    return f"{noun}{'s' if len(indices) > 1 else ''} {listed}"
