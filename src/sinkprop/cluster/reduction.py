"""Combine the results of all partitions in a fixed order, which does not depend on the workers.

The results of the partitions are the leaves of a binary tree. The node (level, i) covers the 2**level leaves
from i * 2**level on. Its result is always the combination of its left child and its right child, in this
order. So a worker can combine its leaves as far as the tree allows and send a few nodes instead of all
leaves. The final result is the same, bit for bit, however the partitions are divided among the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

__all__ = ["Node", "covered", "reduced", "root"]

P = TypeVar("P")
Node: TypeAlias = tuple[int, int]


def reduced(nodes: Mapping[Node, P], n: int, combine: Callable[[Sequence[P]], P]) -> dict[Node, P]:
    """Combine results in a binary tree of n leaves wherever both children of a node are present.

    `nodes` maps (level, i), node i of a level, to its result; leaves have level 0. Returns the nodes that
    remain, in the same form. In the example, leaf 1 is missing, so leaf 0 stays as it is; leaf 4 has no
    sibling on its level nor on the next, so it moves up twice.

    >>> reduced({(0, 0): "a", (0, 2): "c", (0, 3): "d", (0, 4): "e"}, 5, "".join)
    {(0, 0): 'a', (1, 1): 'cd', (2, 1): 'e'}
    """
    found: dict[Node, P] = {}
    level, last = 0, n - 1  # last: index of the last node of the level
    here = {i: part for (at, i), part in nodes.items() if at == 0}
    while True:
        above: dict[int, P] = {}
        for i in sorted(here):
            if last == 0 or (i % 2 == 0 and i < last and i + 1 not in here):
                found[level, i] = here[i]
            elif i % 2 == 0:
                # on a level with an odd number of nodes, the last one has no sibling and moves up unchanged
                above[i // 2] = here[i] if i == last else combine([here[i], here[i + 1]])
            elif i - 1 not in here:
                found[level, i] = here[i]
        if last == 0:
            return found
        level, last = level + 1, last // 2
        here = above | {i: part for (at, i), part in nodes.items() if at == level}


def root(nodes: Mapping[Node, P], n: int, combine: Callable[[Sequence[P]], P]) -> P:
    """Combine the results of all n leaves of a binary tree into the result of its root.

    `nodes` maps (level, i), node i of a level, to its result. Each leaf must be below exactly one of them.
    """
    (whole,) = reduced(nodes, n, combine).values()
    return whole


def covered(nodes: Iterable[Node], n: int) -> set[int]:
    """Return the indices of the leaves below the given nodes of a binary tree with n leaves.

    The node (level, i) is above the 2**level leaves from i * 2**level on; a leaf is a node of level 0.

    >>> covered([(1, 1), (0, 4)], 5)
    {2, 3, 4}
    """
    return {leaf for level, i in nodes for leaf in range(i << level, min((i + 1) << level, n))}
