"""The types `Queries`, rows with labels and query ids, `Groups`, the rows of each query, and `Fold`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native
from sinkprop.common.types import Floats, Integers
from sinkprop.data.categories import checked_categories
from sinkprop.data.checks import as_features, as_labels, unmasked

__all__ = ["Fold", "Groups", "Ids", "Queries", "columns_of", "group_rows", "ids_of_sizes", "offsets_of"]

Ids = ArrayLike | Sequence[Hashable]  # one query id per row

_KEEP_MISSING = " Pass allow_nan=True to keep missing values, which most rankers accept, or fill them in."


@dataclass(frozen=True)
class Groups:
    """The rows of each query: query q has rows[offsets[q]:offsets[q + 1]], in input order.

    offsets  (Q + 1,) start of each query, and the end of the last.
    rows     (N,) row indices, query after query; None if the rows of every query are consecutive already, so
             that query q has the rows offsets[q]:offsets[q + 1].
    queries  (Q,) query ids in order of first appearance.
    longest  Size of the largest query.
    """

    offsets: Integers
    rows: Integers | None
    queries: NDArray[Any]
    longest: int

    def __init__(self, offsets: Integers, rows: Integers | None, queries: NDArray[Any], longest: int) -> None:
        # in half the time of the __init__ of a frozen dataclass, which calls object.__setattr__ per field
        fields = self.__dict__
        fields["offsets"], fields["rows"], fields["queries"], fields["longest"] = (
            offsets,
            rows,
            queries,
            longest,
        )

    @classmethod
    def of_sizes(
        cls, sizes: Integers, queries: NDArray[Any] | None = None, rows: Integers | None = None
    ) -> Groups:
        """Build groups from the sizes of the queries.

        `queries` are the query ids, by default 0, 1, and so on. `rows` are the row indices, query after
        query; None if the rows of every query are consecutive already.

        >>> Groups.of_sizes(np.array([2, 1])).offsets
        array([0, 2, 3])
        """
        ids = np.arange(len(sizes)) if queries is None else queries
        return cls(offsets_of(sizes), rows, ids, int(sizes.max(initial=0)))

    @property
    def sizes(self) -> Integers:
        """(Q,) number of documents of each query."""
        return np.diff(self.offsets)

    @property
    def codes(self) -> Integers:
        """(N,) index of each row's query, in the caller's order of rows."""
        codes = np.repeat(np.arange(len(self.queries)), self.sizes)
        if self.rows is None:
            return codes
        unsorted = np.empty_like(codes)
        unsorted[self.rows] = codes
        return unsorted

    @property
    def sorted(self) -> Groups:
        """The same queries, with the row numbers that they have after the rows are sorted by query."""
        return self if self.rows is None else replace(self, rows=None)


@dataclass(frozen=True, eq=False, repr=False)
class Queries:
    """The documents of several queries in memory, one row per document.

    Every reader of data returns this type, and every ranker fits and scores it. Arrays that already have the
    right type are kept, not copied.

    Parameters
    ----------
    X : array of shape (N, D)
        Features, float64 or float32; other numbers are converted to float64. All values are finite.
    y : array of shape (N,)
        Labels: finite, at least 0, larger for more relevant documents.
    qid : array of shape (N,)
        Query id of each row: any hashable ids, in any order.
    docid : array of shape (N,), optional
        Names of the documents.
    feature_names : sequence of str, optional
        Names of the D features.
    allow_nan : bool, default False
        Whether a feature may be NaN, which means that it is missing. Most rankers accept such queries.
    categories : mapping, optional
        Categories of the categorical features: from the name of a feature to its categories, text or numbers.
        X holds the position of a document's category in this sequence. Boosted trees accept such queries, and
        match categories by value.
    ordered : sequence of str, optional
        Names of the categorical features whose categories have an order. Trees split them like numbers.

    Attributes
    ----------
    groups : Groups
        The rows of each query.

    Examples
    --------
    >>> q = Queries([[0.5], [0.1], [0.9]], [1, 0, 2], qid=[7, 7, 8])
    >>> len(q), q.n_queries, q.select([8]).y
    (3, 2, array([2.]))
    """

    X: NDArray[Any]
    y: Floats
    qid: NDArray[Any]
    docid: NDArray[Any] | None = None
    feature_names: tuple[str, ...] | None = None
    allow_nan: bool = field(default=False, kw_only=True)
    categories: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, kw_only=True)
    ordered: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        X = as_features(self.X, allow_nan=self.allow_nan, missing=_KEEP_MISSING)
        n, n_features = X.shape
        put = object.__setattr__
        put(self, "X", X)
        put(self, "y", as_labels(self.y, n, rows_of="X"))
        ids = _id_array(self.qid)
        put(self, "qid", ids)
        put(self, "groups", group_rows(ids, n))
        if self.docid is not None:
            put(self, "docid", np.asarray(unmasked("docid", self.docid)))
            if self.docid.shape != (n,):
                raise ValueError(f"docid must have one name per row, ({n},); got {self.docid.shape}.")
        if self.feature_names is not None:
            put(self, "feature_names", tuple(self.feature_names))
            if len(self.feature_names) != n_features:
                raise ValueError(
                    f"feature_names must name X's {n_features} columns; got {len(self.feature_names)} names."
                )
        if self.categories or self.ordered:
            categories, ordered = checked_categories(self.categories, self.ordered, self.feature_names, X)
            put(self, "categories", categories)
            put(self, "ordered", ordered)

    groups: Groups = field(init=False, repr=False)

    def __repr__(self) -> str:
        """Describe the queries by their sizes instead of printing the arrays.

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
        """Number of queries, Q."""
        return len(self.groups.queries)

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return int(self.X.shape[1])

    def take(self, rows: NDArray[Any]) -> Queries:
        """Select rows.

        Parameters
        ----------
        rows : array of int, or array of bool of shape (N,)
            Row indices, in the order in which the rows are wanted, or a mask of rows.

        Returns
        -------
        Queries
            The selected rows.
        """
        docid = None if self.docid is None else self.docid[rows]
        X, y, qid = self.X[rows], self.y[rows], self.qid[rows]
        return replace(self, X=X, y=y, qid=qid, docid=docid)

    def select(self, queries: Sequence[Hashable] | NDArray[Any]) -> Queries:
        """Select queries by their ids.

        Parameters
        ----------
        queries : sequence or array of ids
            Ids of the queries to keep. Unknown ids are ignored.

        Returns
        -------
        Queries
            All rows of the queries with these ids; the order of the rows is kept.
        """
        wanted = set(queries.tolist() if isinstance(queries, np.ndarray) else queries)
        return self.take(np.array([q in wanted for q in self.qid.tolist()], dtype=bool))

    def columns_of(self, names: Sequence[str] | NDArray[Any] | None) -> list[int] | None:
        """Find the columns that have the given feature names.

        Parameters
        ----------
        names : sequence of str, optional
            Feature names in the order in which a model needs them.

        Returns
        -------
        list of int or None
            Column of each name. None if the columns are in this order already, or if these queries or the
            model have no feature names.

        Raises
        ------
        ValueError
            If these queries and the model both have feature names, but not the same set of names.
        """
        return columns_of(self.feature_names, names, "the queries")

    @classmethod
    def trusted(
        cls,
        X: NDArray[Any],
        y: Floats,
        groups: Groups,
        docid: NDArray[Any] | None = None,
        feature_names: tuple[str, ...] | None = None,
        *,
        allow_nan: bool = False,
        categories: Mapping[str, tuple[Any, ...]] | None = None,
        ordered: tuple[str, ...] = (),
    ) -> Queries:
        """Build queries from arrays that have been checked already, without another pass over the values.

        Parameters
        ----------
        X : array of shape (N, D)
            Features.
        y : array of shape (N,)
            Labels.
        groups : Groups
            The rows of each query, which must be consecutive.
        docid : array of shape (N,), optional
            Names of the documents.
        feature_names : tuple of str, optional
            Names of the D features.
        allow_nan : bool, default False
            Whether a feature may be NaN.
        categories : mapping, optional
            Categories of the categorical features.
        ordered : tuple of str, optional
            Names of the categorical features whose categories have an order.

        Returns
        -------
        Queries
            The queries, with the ids of `groups`.
        """
        queries = object.__new__(cls)
        fields = {"X": X, "y": y, "qid": np.repeat(groups.queries, groups.sizes), "docid": docid}
        names = {"feature_names": feature_names, "categories": dict(categories or {}), "ordered": ordered}
        for name, value in {**fields, **names, "allow_nan": allow_nan, "groups": groups}.items():
            object.__setattr__(queries, name, value)
        return queries


@dataclass(frozen=True)
class Fold:
    """One split of a data set into training, validation and test queries.

    Parameters
    ----------
    name : str
        Name of the fold, such as "Fold1".
    train : Queries
        Training queries.
    vali : Queries
        Validation queries.
    test : Queries
        Test queries.
    """

    name: str
    train: Queries
    vali: Queries
    test: Queries


def columns_of(
    own: tuple[str, ...] | None, names: Sequence[str] | NDArray[Any] | None, whose: str
) -> list[int] | None:
    """Return the index in `own` of each of `names`; None if both are equal, or if either is None.

    Raises a ValueError if the two have different sets of names. Its message begins with `whose`, a word for
    the owner of the names `own`.

    >>> columns_of(("a", "b"), ["b", "a"], "the queries")
    [1, 0]
    """
    if names is None or own is None or own == tuple(names):
        return None
    places = {name: i for i, name in enumerate(own)}
    lacking = [name for name in names if name not in places]
    if lacking or len(own) != len(names):
        first = lacking[0] if lacking else next(name for name in own if name not in set(names))
        raise ValueError(
            f"{whose}: the features are not those of the model; only one of them has {str(first)!r}."
        )
    return [places[name] for name in names]


def offsets_of(sizes: Any) -> Integers:
    """Return the offsets (Q + 1,) of Q consecutive runs with these sizes: each start, and the last end.

    >>> offsets_of([2, 1])
    array([0, 2, 3])
    """
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def group_rows(qid: ArrayLike | Sequence[Hashable] | None, n: int) -> Groups:
    """Group n rows by their query ids `qid`: one hashable id per row, in any order.

    If `qid` is None, all rows form one query.

    >>> groups = group_rows(["b", "a", "b"], 3)
    >>> groups.queries.tolist(), groups.rows.tolist(), groups.offsets.tolist()
    (['b', 'a'], [0, 2, 1], [0, 2, 3])
    """
    if qid is None:
        return _one_query(n)
    ids = qid if type(qid) is np.ndarray else _id_array(qid)
    kind = ids.dtype.kind
    if ids.ndim != 1:
        raise ValueError(f"qid must be one id per row, of shape ({n},); got an array of shape {ids.shape}.")
    if len(ids) != n:
        raise ValueError(f"qid must have one id per row: {n} rows, but {len(ids)} ids.")
    if kind == "f" and np.isnan(ids).any():
        raise ValueError(f"qid must not hold NaN; row {int(np.flatnonzero(np.isnan(ids))[0])} is NaN.")
    codes = ids if kind in "iub" else _codes(ids)
    runs = _native.runs(np.ascontiguousarray(codes, dtype=np.int64))
    if runs is None:
        return Groups(_one_query(n).offsets, None, np.array(ids[:1]), n)
    starts, rising, longest = runs
    first = starts[:-1]
    if rising or len(np.unique(codes[first])) == len(first):
        return Groups(starts, None, ids[first], longest)
    _, first, inverse, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    by_appearance = np.argsort(first, kind="stable")
    position = np.empty_like(by_appearance)
    position[by_appearance] = np.arange(len(first))
    rows = np.argsort(position[inverse], kind="stable").astype(np.int64)
    return Groups.of_sizes(counts[by_appearance], ids[first[by_appearance]], rows)


@lru_cache(maxsize=64)
def _one_query(n: int) -> Groups:
    offsets, queries = np.array([0, n], np.int64), np.zeros(1, np.int64)
    for shared in (offsets, queries):
        shared.flags.writeable = False
    return Groups(offsets, None, queries, n)


def ids_of_sizes(sizes: ArrayLike, n: int) -> Integers:
    """Index of the query of each of n rows, from the sizes of consecutive queries.

    Raises a ValueError if the sizes are not whole numbers of at least 1 that sum to n.
    """
    array = np.asarray(unmasked("group", sizes))
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not np.all(array == np.floor(array)):
        raise ValueError("group must be a sequence of whole numbers: the sizes of consecutive queries.")
    if len(array) == 0 or array.min() < 1:
        raise ValueError("group must hold sizes of at least 1.")
    if array.sum() != n:
        raise ValueError(f"group must sum to the number of rows, {n}; its sum is {array.sum():g}.")
    return np.repeat(np.arange(len(array)), array.astype(np.int64))


def _id_array(qid: Any) -> NDArray[Any]:
    """Convert ids to an array with one entry per id. Raises a ValueError if an id is masked.

    np.asarray alone would turn tuples into a second axis, and [1, 2**63] into floats.
    """
    if isinstance(qid, np.ndarray):
        ids: NDArray[Any] = unmasked("qid", qid)
        return ids
    if hasattr(qid, "__array__"):
        return np.asarray(qid)
    try:
        items = list(qid)
    except TypeError:
        raise ValueError(f"qid must be a sequence of ids, one per row; got {qid!r}.") from None
    if items and all(isinstance(q, int | np.integer) for q in items):
        ids = np.asarray(items)
        if ids.dtype.kind in "iub":
            return ids
    ids = np.empty(len(items), dtype=object)
    ids[:] = items
    return ids


def _codes(ids: NDArray[Any]) -> Integers:
    """Return one whole number per id: equal ids get equal numbers. Raises a ValueError for a missing id."""
    if ids.dtype.kind == "f":
        return np.unique(ids, return_inverse=True)[1].astype(np.int64)
    numbers: dict[Hashable, int] = {}
    codes = np.empty(len(ids), dtype=np.int64)
    for row, q in enumerate(ids.tolist()):
        if _is_missing(q):
            word = "NaN" if isinstance(q, float) else str(q)
            raise ValueError(f"qid must not hold {word}; row {row} is {word}. Every row needs a query id.")
        try:
            codes[row] = numbers.setdefault(q, len(numbers))
        except TypeError:
            raise ValueError(f"qid must hold hashable ids; row {row} holds a {type(q).__name__!r}.") from None
    return codes


def _is_missing(q: Any) -> bool:
    """Whether an id stands for a missing value: None, NaN, or pandas' NA and NaT."""
    return q is None or (isinstance(q, float) and isnan(q)) or type(q).__name__ in ("NAType", "NaTType")
