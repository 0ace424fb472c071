"""A binary tree as arrays, whichever library grew it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["Tree", "one_leaf"]


@dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree with K inner nodes, in which a value goes left if it is not above the threshold.

    feature, threshold  (K,) feature index and threshold of each inner node; node 0 is the root.
    left, right         (K,) left and right child of each inner node: the index i of an inner node, or
                        -1 - i for leaf i.
    missing_left        (K,) whether NaN goes left.
    leaves              (K + 1,) contribution of each leaf to the score.
    members             {inner node: codes of categories}. At such a node, these codes go left and all other
                        values go right; its threshold has no meaning.
    zero_missing        Inner nodes at which 0 goes where NaN goes, although its value would go the other way.
    """

    feature: Integers
    threshold: Floats
    left: Integers
    right: Integers
    missing_left: Mask
    leaves: Floats
    members: Mapping[int, Integers] = field(default_factory=dict)
    zero_missing: tuple[int, ...] = ()

    @property
    def zero_left(self) -> Mask:
        """Whether 0 goes left at each inner node, (K,)."""
        left: Mask = self.threshold >= 0
        for node, codes in self.members.items():
            left[node] = 0 in codes
        for node in self.zero_missing:
            left[node] = self.missing_left[node]
        return left


def one_leaf(value: float) -> Tree:
    """Return a tree that has the same value for all documents."""
    none, no = np.zeros(0, np.int64), np.zeros(0, bool)
    return Tree(none, np.zeros(0), none, none, no, np.array([value]))
