"""Queries: which rows belong together, and the checks that every array of a user passes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native

__all__ = ["Fold", "Groups", "Queries", "group_rows"]

Floats = NDArray[np.float64]

_MISSING = (
    " Fill in what is missing, as sklearn.impute.SimpleImputer does, or take boosted trees, BoostedRanker, "
    "for which NaN is a value."
)
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Groups:
    """The rows of each query. Query q has rows[offsets[q]:offsets[q + 1]], in the order in which they came.

    `rows` is None where every query's rows stand together already: then they are offsets[q]:offsets[q + 1].
    `queries` holds the ids in the order of their first appearance, `longest` the size of the largest query.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.int64] | None
    queries: NDArray[Any]
    longest: int


@dataclass(frozen=True, eq=False, repr=False)
class Queries:
    """The documents of several queries: what every reader returns and every trainer takes.

    X              (N, D) features, float64 or float32
    y              (N,) labels, not below 0
    qid            (N,) the query of each row, in any order
    docid          (N,) names of the documents, or None
    feature_names  D names, or None

    Arrays of the caller are kept, not copied, where they have these types already.

    >>> q = Queries([[0.5], [0.1], [0.9]], [1, 0, 2], qid=[7, 7, 8])
    >>> len(q), q.n_queries, q.select([8]).y
    (3, 2, array([2.]))
    """

    X: NDArray[Any]
    y: Floats
    qid: NDArray[Any]
    docid: NDArray[Any] | None = None
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        X = as_features(self.X)
        n, n_features = X.shape
        put = object.__setattr__
        put(self, "X", X)
        put(self, "y", as_labels(self.y, n, rows_of="X"))
        ids = self.qid if isinstance(self.qid, np.ndarray) else _id_array(self.qid)
        put(self, "qid", ids)
        put(self, "groups", group_rows(ids, n))
        if self.docid is not None:
            put(self, "docid", np.asarray(self.docid))
            if self.docid.shape != (n,):
                raise ValueError(f"docid must have one name a row, ({n},); got {self.docid.shape}.")
        if self.feature_names is not None:
            put(self, "feature_names", tuple(self.feature_names))
            if len(self.feature_names) != n_features:
                raise ValueError(
                    f"feature_names must name X's {n_features} columns; got {len(self.feature_names)} names."
                )

    groups: Groups = field(init=False, repr=False)

    def __repr__(self) -> str:
        """Sizes, since the arrays would fill a screen each.

        >>> Queries([[0.5], [0.1], [0.9]], [1, 0, 2], qid=[7, 7, 8])
        <Queries: 3 documents of 2 queries, 1 feature, labels 0 to 2>
        """
        n, features = len(self), self.n_features
        return (
            f"<Queries: {n:,} {'document' if n == 1 else 'documents'} of {self.n_queries:,} "
            f"{'query' if self.n_queries == 1 else 'queries'}, {features:,} "
            f"{'feature' if features == 1 else 'features'}, labels {self.y.min():g} to {self.y.max():g}>"
        )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_queries(self) -> int:
        return len(self.groups.queries)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    def take(self, rows: NDArray[Any]) -> Queries:
        """The rows given, by index or mask, in that order."""
        docid = None if self.docid is None else self.docid[rows]
        return Queries(self.X[rows], self.y[rows], self.qid[rows], docid, self.feature_names)

    def select(self, queries: Sequence[Hashable] | NDArray[Any]) -> Queries:
        """The rows of the queries given, in their own order."""
        wanted = set(queries.tolist() if isinstance(queries, np.ndarray) else queries)
        return self.take(np.array([q in wanted for q in self.qid.tolist()], dtype=bool))


@dataclass(frozen=True)
class Fold:
    """One division of a data set: queries to train on, to choose by, and to test on."""

    name: str
    train: Queries
    vali: Queries
    test: Queries


def group_rows(qid: ArrayLike | Sequence[Hashable] | None, n: int) -> Groups:
    """The groups of n rows with the query ids `qid`: one id a row, of any hashable kind, in any order.

    None makes one query of all rows.

    >>> groups = group_rows(["b", "a", "b"], 3)
    >>> groups.queries.tolist(), groups.rows.tolist(), groups.offsets.tolist()
    (['b', 'a'], [0, 2, 1], [0, 2, 3])
    """
    if qid is None:
        return Groups(np.array([0, n], np.int64), None, np.zeros(1, np.int64), n)
    ids = qid if isinstance(qid, np.ndarray) else _id_array(qid)
    if ids.ndim != 1:
        raise ValueError(f"qid must be one id a row, of shape ({n},); got an array of shape {ids.shape}.")
    if len(ids) != n:
        raise ValueError(f"qid must have one id a row: {n} rows, but {len(ids)} ids.")
    if ids.dtype.kind == "f" and np.isnan(ids).any():
        raise ValueError(f"qid must not hold NaN; row {int(np.flatnonzero(np.isnan(ids))[0])} is NaN.")
    codes = ids if ids.dtype.kind in "iub" else _codes(ids)
    starts, rising, longest = _native.runs(np.ascontiguousarray(codes, dtype=np.int64))
    first = starts[:-1]
    if rising or len(np.unique(codes[first])) == len(first):
        return Groups(starts, None, ids[first], longest)
    _, first, inverse, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    by_appearance = np.argsort(first, kind="stable")
    position = np.empty_like(by_appearance)
    position[by_appearance] = np.arange(len(first))
    offsets = np.concatenate([[0], np.cumsum(counts[by_appearance])]).astype(np.int64)
    rows = np.argsort(position[inverse], kind="stable").astype(np.int64)
    return Groups(offsets, rows, ids[first[by_appearance]], int(counts.max()))


def _id_array(qid: Any) -> NDArray[Any]:
    """Ids as an array that keeps each of them whole: NumPy makes tuples a second axis, and 2**63 a float."""
    if hasattr(qid, "__array__"):
        return np.asarray(qid)
    try:
        items = list(qid)
    except TypeError:
        raise ValueError(f"qid must be a sequence of ids, one a row; got {qid!r}.") from None
    if items and all(isinstance(q, int | np.integer) for q in items):
        ids = np.asarray(items)
        if ids.dtype.kind in "iub":
            return ids
    ids = np.empty(len(items), dtype=object)
    ids[:] = items
    return ids


def _codes(ids: NDArray[Any]) -> NDArray[np.int64]:
    """A whole number for each id, equal where the ids are equal."""
    if ids.dtype.kind == "f":
        return np.unique(ids, return_inverse=True)[1].astype(np.int64)
    numbers: dict[Hashable, int] = {}
    codes = np.empty(len(ids), dtype=np.int64)
    for row, q in enumerate(ids.tolist()):
        if isinstance(q, float) and isnan(q):
            raise ValueError(f"qid must not hold NaN; row {row} is NaN.")
        try:
            codes[row] = numbers.setdefault(q, len(numbers))
        except TypeError:
            raise ValueError(f"qid must hold hashable ids; row {row} holds a {type(q).__name__!r}.") from None
    return codes


def as_scores(scores: ArrayLike, width: int) -> Floats:
    """Scores as float64, (N,) for width 1 and (N, width) otherwise; every value finite."""
    array = _as_floats("scores", scores)
    expected = "(N,)" if width == 1 else f"(N, {width})"
    if array.ndim != (1 if width == 1 else 2) or (width > 1 and array.shape[1] != width):
        raise ValueError(
            f"scores must have the shape {expected} for this relaxation, which takes {width} "
            f"{'number' if width == 1 else 'numbers'} a document; got {array.shape}."
        )
    if not len(array):
        raise ValueError("scores must hold at least one document; got none.")
    bad = _native.first_invalid(array, -_LARGEST, _LARGEST)
    if bad >= 0:
        row, value = bad // width, array.reshape(-1)[bad]
        raise ValueError(f"scores must be finite; row {row} holds {value}.")
    return array


def as_features(
    X: ArrayLike, *, name: str = "X", allow_nan: bool = False, columns: Sequence[str] | None = None
) -> NDArray[Any]:
    """Features as a C-ordered (N, D) array of float64, or of float32 where they are; every value finite.

    With `allow_nan` a value may be NaN, for missing, but not infinite. `columns` are their names, if any.
    """
    try:
        array = np.asarray(X)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"an array of {array.dtype}")
        kind = np.float32 if array.dtype == np.float32 else np.float64
        array = np.ascontiguousarray(array, dtype=kind)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers; got {error}.") from None
    if array.ndim != 2:
        raise ValueError(f"{name} must have the shape (N, D), a row a document; got {array.shape}.")
    if not array.shape[0] or not array.shape[1]:
        raise ValueError(f"{name} must hold at least one document and one feature; got {array.shape}.")
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # a sum is finite unless an entry, or very rarely the sum, is not
        if not np.isfinite(array.sum()):
            bad = np.argwhere(np.isinf(array) if allow_nan else ~np.isfinite(array))
            if len(bad):
                row, column = bad[0]
                expected = "finite, or NaN for missing" if allow_nan else "finite, without NaN or inf"
                called = "" if columns is None else f" ({str(columns[column])!r})"
                advice = _MISSING if np.isnan(array[row, column]) else ""
                raise ValueError(
                    f"{name} must be {expected}; row {row}, column {column}{called} holds "
                    f"{array[row, column]}.{advice}"
                )
    return array


def as_labels(labels: ArrayLike, n: int, *, rows_of: str = "scores") -> Floats:
    """Labels as float64 (n,), finite and not below 0."""
    array = _as_floats("labels", labels)
    if array.ndim != 1:
        raise ValueError(f"labels must have the shape ({n},); got {array.shape}.")
    if len(array) != n:
        raise ValueError(f"labels must have one value a row of {rows_of}: {n} rows, but {len(array)} labels.")
    bad = _native.first_invalid(array, 0.0, _LARGEST)
    if bad >= 0:
        raise ValueError(f"labels must be finite and not below 0; row {bad} holds {array[bad]}.")
    return array


def as_sample_weight(weight: ArrayLike, n: int) -> Floats:
    """Row weights as float64 (n,), finite and not below 0."""
    array = _as_floats("sample_weight", weight)
    if array.shape != (n,):
        raise ValueError(f"sample_weight must have one weight a row, ({n},); got {array.shape}.")
    bad = _native.first_invalid(array, 0.0, _LARGEST)
    if bad >= 0:
        raise ValueError(f"sample_weight must be finite and not below 0; row {bad} holds {array[bad]}.")
    return array


def as_query_weight(weight: ArrayLike | Mapping[Hashable, float], groups: Groups, n: int) -> Floats:
    """Query weights (Q,) in the order of `groups.queries`, finite, not below 0, with a sum above 0.

    Given as one weight a query in order of first appearance, as one a row (equal within each query), or as a
    mapping from query id to weight.
    """
    Q = len(groups.queries)
    if isinstance(weight, Mapping):
        missing = [q for q in groups.queries.tolist() if q not in weight]
        if missing:
            raise ValueError(
                f"query_weight must have a weight for every query; there is none for {missing[0]!r}."
            )
        weight = [weight[q] for q in groups.queries.tolist()]
    array = _as_floats("query_weight", weight)
    if array.shape not in {(Q,), (n,)}:
        raise ValueError(
            f"query_weight must have one weight a query, ({Q},), or one a row, ({n},); got {array.shape}."
        )
    if len(array) != Q:
        rows = array if groups.rows is None else array[groups.rows]
        least = np.minimum.reduceat(rows, groups.offsets[:-1])
        most = np.maximum.reduceat(rows, groups.offsets[:-1])
        if not np.array_equal(least, most):  # NaN differs from itself: reported here too
            q = groups.queries[int(np.argmin(least == most))]
            raise ValueError(
                f"query_weight given by row must be one finite number within a query; not so in {q!r}."
            )
        array = least
    bad = _native.first_invalid(array, 0.0, _LARGEST)
    if bad >= 0:
        q = groups.queries[bad]
        raise ValueError(f"query_weight must be finite and not below 0; query {q!r} has {array[bad]}.")
    if not 0 < array.sum() < np.inf:
        raise ValueError(f"query_weight must have a finite sum above 0; got {array.sum()}.")
    return array


def _as_floats(name: str, values: ArrayLike) -> Floats:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"an array of {array.dtype}")
        if not array.ndim:  # ascontiguousarray would make it (1,)
            raise TypeError("a single number")
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers; got {error}.") from None
