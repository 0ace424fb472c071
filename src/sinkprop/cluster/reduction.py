"""A reduction in the order of the partitions, independent of which worker computed them, and when.

Partitions are the leaves of a binary tree. The node (level, i) covers 2**level of them, from i * 2**level on.
A node is always the combination of its two halves, left then right. So a worker can combine its leaves as far
as the tree allows and send a few nodes instead of all leaves, and no bit of the result depends on which
leaves it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

__all__ = ["Node", "covered", "reduced", "root"]

P = TypeVar("P")
Node: TypeAlias = tuple[int, int]


def reduced(nodes: Mapping[Node, P], n: int, combine: Callable[[Sequence[P]], P]) -> dict[Node, P]:
    """Nodes of a tree of n leaves, after combining all pairs of halves that are both present.

    >>> reduced({(0, 0): "a", (0, 2): "c", (0, 3): "d", (0, 4): "e"}, 5, "".join)
    {(0, 0): 'a', (1, 1): 'cd', (2, 1): 'e'}
    """
    found: dict[Node, P] = {}
    level, last = 0, n - 1  # last: number of the last node of the level
    here = {i: part for (at, i), part in nodes.items() if at == 0}
    while True:
        above: dict[int, P] = {}
        for i in sorted(here):
            if last == 0 or (i % 2 == 0 and i < last and i + 1 not in here):
                found[level, i] = here[i]
            elif i % 2 == 0:
                # the last node of an odd number has no sibling, and moves up unchanged
                above[i // 2] = here[i] if i == last else combine([here[i], here[i + 1]])
            elif i - 1 not in here:
                found[level, i] = here[i]
        if last == 0:
            return found
        level, last = level + 1, last // 2
        here = above | {i: part for (at, i), part in nodes.items() if at == level}


def root(nodes: Mapping[Node, P], n: int, combine: Callable[[Sequence[P]], P]) -> P:
    """Combination of all n leaves, from nodes that cover each leaf once."""
    (whole,) = reduced(nodes, n, combine).values()
    return whole


def covered(nodes: Iterable[Node], n: int) -> set[int]:
    """Leaves that some nodes cover.

    >>> covered([(1, 1), (0, 4)], 5)
    {2, 3, 4}
    """
    return {leaf for level, i in nodes for leaf in range(i << level, min((i + 1) << level, n))}
