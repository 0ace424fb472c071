"""The native kernels. Callers validate: nothing here checks a shape or a value."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Index = NDArray[np.int64]

def first_invalid(values: Floats, least: float, most: float) -> int: ...
def exponential_gains(labels: Floats, gains: Floats) -> None: ...
def runs(ids: Index) -> tuple[Index, bool, int]: ...
def sort_descending(scores: Floats, order: Index, sorted: Floats) -> None: ...
def expected_gain(
    scores: Floats,
    offsets: Index,
    rows: Index | None,
    gains: Floats,
    exponential: bool,
    classes: NDArray[np.int32] | None,
    discounts: Floats,
    normalize: bool,
    relaxation: int,
    sigma: float,
    exact: bool,
    half_steps: int,
    epsilon: float,
    n_threads: int,
    per_query: Floats,
    gradient: Floats,
) -> None: ...
def project(
    scores: Floats,
    offsets: Index,
    rows: Index | None,
    columns: Floats,
    relaxation: int,
    sigma: float,
    exact: bool,
    half_steps: int,
    epsilon: float,
    n_threads: int,
    out: Floats,
) -> None: ...
def use_method(name: str) -> None: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> bool: ...
