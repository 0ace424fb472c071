"""A reduction in the order of the partitions, whichever worker computed them and whenever they came.

Partitions are the leaves of a binary tree; the node (level, i) stands for 2**level of them, those from
i * 2**level on. A node is the combination of its two halves, left then right, and of nothing else. So a
worker may combine what it has as far as the tree goes, and send a few nodes in place of all its leaves: no
bit of the result depends on which leaves it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

__all__ = ["Node", "covered", "reduced", "root"]

P = TypeVar("P")
Node: TypeAlias = tuple[int, int]


def reduced(nodes: Mapping[Node, P], n: int, combine: Callable[[Sequence[P]], P]) -> dict[Node, P]:
    """The nodes of a tree of n leaves, with every two halves that are there combined.

    >>> reduced({(0, 0): "a", (0, 2): "c", (0, 3): "d", (0, 4): "e"}, 5, "".join)
    {(0, 0): 'a', (1, 1): 'cd', (2, 1): 'e'}
    """
    found: dict[Node, P] = {}
    level, last = 0, n - 1  # last: the number of the last node of a level
    here = {i: part for (at, i), part in nodes.items() if at == 0}
    while True:
        above: dict[int, P] = {}
        for i in sorted(here):
            if last == 0 or (i % 2 == 0 and i < last and i + 1 not in here):
                found[level, i] = here[i]
            elif i % 2 == 0:
                # the last of an odd number goes up as it is
                above[i // 2] = here[i] if i == last else combine([here[i], here[i + 1]])
            elif i - 1 not in here:
                found[level, i] = here[i]
        if last == 0:
            return found
        level, last = level + 1, last // 2
        here = above | {i: part for (at, i), part in nodes.items() if at == level}


def root(nodes: Mapping[Node, P], n: int, combine: Callable[[Sequence[P]], P]) -> P:
    """What all n leaves come to, given as nodes that cover each of them once."""
    (whole,) = reduced(nodes, n, combine).values()
    return whole


def covered(nodes: Iterable[Node], n: int) -> set[int]:
    """The leaves under some nodes.

    >>> covered([(1, 1), (0, 4)], 5)
    {2, 3, 4}
    """
    return {leaf for level, i in nodes for leaf in range(i << level, min((i + 1) << level, n))}
