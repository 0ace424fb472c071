"""The exact sum of an array, which does not depend on how the sum is split."""

from __future__ import annotations

import math

from sinkprop import _native
from sinkprop.common.types import Floats

__all__ = ["exact_sum"]


def exact_sum(values: Floats) -> float:
    """Sum of an array (n,), rounded once: the value of `math.fsum`, in a fraction of its time.

    >>> import numpy as np
    >>> exact_sum(np.array([1e16, 1.0, -1e16]))
    1.0
    """
    if len(values) == 1:
        return values.item() + 0.0  # 0.0 for -0.0, like the sum of several
    return math.fsum(_native.exact_parts(values))
