"""The native kernels.

Every function checks the type, the layout and the size of its arrays; a `TypeError` names the array that does
not fit. It also checks offsets, rows, classes and other positions, with which it would read or write past the
end of an array; a `ValueError` says what is wrong with them. It does not check other values: callers make
sure that scores and labels are finite.

Scores may be float64 or float32. A gradient of the type `Reals`, or a projection, has the type of the scores.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Reals = NDArray[np.float64] | NDArray[np.float32]
Index = NDArray[np.int64]

# The records of objective/native_terms.py
Settings = tuple[int, float, bool, int, float, float]
Gains = tuple[Floats, bool, NDArray[np.int32] | None, Floats, bool]
Terms = tuple[Floats, Floats, Floats, list[Any]]

LARGEST_LABEL: float

def first_invalid(values: Reals, least: float, most: float) -> int: ...
def is_valid_vector(values: NDArray[Any], least: float, most: float) -> bool: ...
def exact_parts(values: Floats) -> list[float]: ...
def exponential_gains(labels: Floats, gains: Floats) -> None: ...
def runs(ids: Index) -> tuple[Index, bool, int] | None: ...
def sort_descending(scores: Floats, order: Index, sorted: Floats) -> None: ...
def expected_gain(
    scores: Reals,
    offsets: Index,
    rows: Index | None,
    gains: Gains,
    settings: Settings,
    n_threads: int,
    per_query: Floats,
    gradient: Reals,
    factor: float | None = None,
    residual: Floats | None = None,
) -> None: ...
def terms_gain(
    scores: Reals,
    offsets: Index,
    rows: Index | None,
    terms: Terms,
    settings: Settings,
    n_threads: int,
    per_query: Floats,
    gradient: Reals,
    factor: float | None = None,
    residual: Floats | None = None,
) -> None: ...
def assign(cost: Floats, column: Index) -> bool: ...
def row_scores(X: NDArray[Any], V: Floats, out: Floats) -> None: ...
def add_products(X: NDArray[Any], g: Floats, offsets: Index, scale: Floats, words: Index) -> bool: ...
def add_words(values: Floats, scale: Floats, words: Index) -> bool: ...
def project(
    scores: Reals,
    offsets: Index,
    rows: Index | None,
    columns: Floats,
    settings: Settings,
    n_threads: int,
    out: Reals,
    residual: Floats | None = None,
) -> None: ...
def listnet(
    scores: Floats,
    offsets: Index,
    rows: Index | None,
    target: Floats,
    k: int,
    n_threads: int,
    per_query: Floats,
    gradient: Floats,
) -> None: ...
def pairwise_loss(
    scores: Floats,
    offsets: Index,
    rows: Index,
    lower: Index,
    sample_weight: Floats | None,
    query_weight: Floats | None,
    n_threads: int,
    per_query: Floats,
) -> None: ...
def pairwise_derivatives(
    scores: Floats,
    offsets: Index,
    rows: Index,
    lower: Index,
    sample_weight: Floats | None,
    query_weight: Floats | None,
    n_threads: int,
    gradient: Floats,
    hessian: Floats,
) -> None: ...
def tree_derivatives(
    scores: Reals,
    offsets: Index,
    rows: Index | None,
    gains: Gains,
    widths: Floats,
    blend: float,
    noise: float,
    seed: int,
    half_steps: int,
    epsilon: float,
    tol: float,
    query_weight: Floats | None,
    least: float,
    n_threads: int,
    per_query: Floats,
    gradient: NDArray[np.float32],
    hessian: NDArray[np.float32],
    residual: Floats | None = None,
) -> None: ...
def tree_terms(
    scores: Reals,
    offsets: Index,
    rows: Index | None,
    terms: Terms,
    widths: Floats,
    blend: float,
    noise: float,
    seed: int,
    half_steps: int,
    epsilon: float,
    tol: float,
    query_weight: Floats | None,
    least: float,
    n_threads: int,
    per_query: Floats,
    gradient: NDArray[np.float32],
    hessian: NDArray[np.float32],
    residual: Floats | None = None,
) -> None: ...
def xla_handlers() -> tuple[dict[str, object], int]: ...
def use_method(name: str) -> None: ...
def gauss_coefficients(pairs: int) -> list[tuple[complex, complex]]: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> bool: ...

class LetorLayout:
    """Result of a first scan of a text: the size of X, and the division of the text among threads."""

    @property
    def rows(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def largest_id(self) -> int: ...
    @property
    def largest_line(self) -> int: ...
    @property
    def comments(self) -> bool: ...
    @property
    def ids(self) -> int: ...

def letor_scan(data: NDArray[np.uint8], chunk: int, n_threads: int) -> LetorLayout: ...
def letor_count_features(data: NDArray[np.uint8], layout: LetorLayout, n_threads: int) -> int: ...
def letor_read(
    data: NDArray[np.uint8],
    layout: LetorLayout,
    X: NDArray[Any] | None,
    columns: int,
    y: Floats,
    qid: Index | None,
    names: Index | None,
    docids: Index | None,
    zero_based: bool,
    limited: bool,
    null: float | None,
    largest: float,
    n_threads: int,
) -> tuple[int, int, int, int]: ...
def glynn_groups(n: int) -> int: ...
def glynn_sums(A: Floats, first: int, n_threads: int, sums: Floats) -> None: ...
def matching_marginals(A: Floats, marginals: Floats) -> float: ...
def draw_matchings(
    weights: Floats, shrink: Floats, seed: int, first: int, n_threads: int, matchings: NDArray[np.int32]
) -> None: ...
def draw_rankings(p: Floats, seed: int, rankings: Index) -> None: ...
def xxh64(data: NDArray[np.uint8], seed: int) -> int: ...
def letor_words(data: NDArray[np.uint8], words: Index, out: NDArray[np.uint32], n_threads: int) -> bool: ...
def letor_write(
    X: NDArray[Any],
    y: Floats,
    qid: bytes,
    qid_end: Index,
    docid: bytes,
    docid_end: Index | None,
    first: int,
    last: int,
    sparse: bool,
    n_threads: int,
) -> bytes: ...

class Forest:
    def __init__(
        self,
        n_features: int,
        features: NDArray[np.int32],
        cut_ends: Index,
        cuts: Floats,
        column_ends: Index,
        tables: NDArray[np.int8],
        columns: NDArray[np.int32],
        bounds: NDArray[np.int8],
        no: NDArray[np.int32] | None,
        yes: NDArray[np.int32] | None,
        leaf_ends: Index,
        leaves: Floats,
        single: bool,
    ) -> None: ...
    def score(self, X: NDArray[Any], start: float, out: Floats) -> None: ...
