"""Type aliases of arrays."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Integers", "Mask", "Positions", "Reals", "Singles"]

Floats: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
Reals: TypeAlias = Floats | Singles
Integers: TypeAlias = NDArray[np.int64]
Positions: TypeAlias = NDArray[np.intp]  # the type of indices in NumPy and SciPy
Mask: TypeAlias = NDArray[np.bool_]
