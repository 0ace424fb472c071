"""Stored sets in Python: queries on disk, read block by block."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.arguments import threads as _threads
from sinkprop.common.compressed import StrPath
from sinkprop.common.progress import Notify, silent
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups, Queries, columns_of, offsets_of
from sinkprop.store.checks import check_sha256, sha256_of
from sinkprop.store.format import Manifest, StoreError, need_pyarrow, read_manifest
from sinkprop.store.index import QueryList, read_queries
from sinkprop.store.mapped import VERIFIED, MappedPart

__all__ = ["StoredQueries", "open_queries"]


# Largest number of parts (files) that stay open. Each uses a file descriptor, and the system allows a process
# only about 1000 of them.
_OPEN_PARTS = 16


def open_queries(path: StrPath, *, verify: bool = False) -> StoredQueries:
    """Open a stored set.

    The structure of all files is checked: the manifest, the list of queries, the columns, and where each
    block is. The checksums of a block are compared before its first use.

    Parameters
    ----------
    path : path
        Folder that `sinkprop.store.convert` or `sinkprop.store.save_queries` made.
    verify : bool, default False
        Whether to read all files at once and compare them with the SHA-256 checksums of the manifest.

    Returns
    -------
    StoredQueries
        The queries, which are read when they are used.

    Raises
    ------
    StoreError
        If the folder is not a complete stored set, or if it is damaged.
    FileNotFoundError
        If there is no such folder.
    """
    need_pyarrow("open_queries")
    folder = Path(path)
    manifest = read_manifest(folder)
    stored = StoredQueries(folder, manifest)
    stored._index  # noqa: B018 - reads and checks the list of queries
    for number in range(len(manifest.parts)):
        stored._part(number)
    if verify:
        stored.verify()
    return stored


@dataclass(frozen=True, eq=False, repr=False)
class StoredQueries:
    """Queries in a folder on disk, whose rows are read when they are used.

    Create one with `open_queries`, `sinkprop.store.convert` or `sinkprop.store.save_queries`. The rows are
    divided into blocks of one or several whole queries. The rows of a query are consecutive. Features are
    float32, labels are float64. A pickled object holds the path of the folder and a checksum, not the rows;
    unpickling opens the folder again.

    Parameters
    ----------
    path : pathlib.Path
        Folder of the set.
    manifest : Manifest
        Description of the set.

    Examples
    --------
    >>> import tempfile
    >>> from sinkprop.store import save_queries
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = Queries([[0.5], [1.0], [2.0]], [1, 0, 2], qid=[7, 7, 9])
    ...     stored = save_queries(Path(folder, "two.queries"), rows)
    ...     [block.X.shape for block in stored.blocks()], stored.sizes, stored.query_ids, stored.labels()
    ([(3, 1)], array([2, 1]), array([7, 9]), array([1., 0., 2.]))
    """

    path: Path
    manifest: Manifest
    _parts: OrderedDict[int, MappedPart] = field(default_factory=OrderedDict, init=False)
    # for each part that was opened, what was checked in it
    _checked: defaultdict[int, set[Hashable]] = field(default_factory=lambda: defaultdict(set), init=False)
    _lock: Any = field(default_factory=threading.Lock, init=False)

    def __repr__(self) -> str:
        return (
            f"<StoredQueries: {self.n_rows:,} {'document' if self.n_rows == 1 else 'documents'} of "
            f"{self.n_queries:,} {'query' if self.n_queries == 1 else 'queries'}, {self.n_features:,} "
            f"{'feature' if self.n_features == 1 else 'features'}, in {str(self.path)!r}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (os.path.abspath(self.path), self.digest)

    def __len__(self) -> int:
        return self.manifest.rows

    @property
    def n_rows(self) -> int:
        """Number of documents of all queries, N."""
        return self.manifest.rows

    @property
    def n_queries(self) -> int:
        """Number of queries, Q."""
        return self.manifest.queries

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return self.manifest.n_features

    @property
    def longest(self) -> int:
        """Number of documents of the largest query."""
        return self.manifest.longest

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, or None."""
        return self.manifest.feature_names

    @property
    def has_nan(self) -> bool:
        """Whether any feature value is NaN, that is, missing."""
        return self.manifest.has_nan

    @property
    def categories(self) -> dict[str, tuple[Any, ...]]:
        """Categories of each categorical feature, {name: categories}; X holds positions in them."""
        return self.manifest.categories

    @property
    def ordered(self) -> tuple[str, ...]:
        """Names of the categorical features whose categories have an order."""
        return self.manifest.ordered

    @property
    def labeled(self) -> bool:
        """Whether the documents have labels; if not, all labels are 0."""
        return self.manifest.label != "none"

    @cached_property
    def digest(self) -> str:
        """Checksum (SHA-256) of the set: of the number, names and categories of features and of all files.

        Two sets with the same feature names, categories and rows, divided into the same blocks and files,
        have the same digest.
        """
        shapes = [str(self.n_features), repr(self.feature_names)]
        if self.categories:
            shapes.append(repr((self.categories, self.ordered)))
        sums = [digest for _, _, digest in self.manifest.files]
        return hashlib.sha256("\n".join(shapes + sums).encode()).hexdigest()

    @cached_property
    def _index(self) -> QueryList:
        return read_queries(self.path, self.manifest)

    @property
    def sizes(self) -> Integers:
        """Number of documents of each query, of shape (Q,)."""
        return self._index.sizes

    @property
    def offsets(self) -> Integers:
        """Index of the first row of each query, followed by the number of rows N: shape (Q + 1,)."""
        return self._index.offsets

    @property
    def groups(self) -> Groups:
        """Rows of each query, as a `Groups` object."""
        return Groups(self.offsets, None, self.query_ids, self.longest)

    @property
    def query_ids(self) -> NDArray[Any]:
        """Query ids, whole numbers or text, of shape (Q,)."""
        return self._index.ids

    @cached_property
    def block_queries(self) -> Integers:
        """Index of the first query of each of B blocks, followed by the number of queries: shape (B + 1,)."""
        starts = [block.query for part in self.manifest.parts for block in part.blocks]
        return np.array([*starts, self.n_queries], np.int64)

    @cached_property
    def block_rows(self) -> Integers:
        """Index of the first row of each of B blocks, followed by the number of rows: shape (B + 1,)."""
        starts = [block.row for part in self.manifest.parts for block in part.blocks]
        return np.array([*starts, self.n_rows], np.int64)

    @property
    def n_blocks(self) -> int:
        """Number of blocks, B."""
        return len(self.block_queries) - 1

    @cached_property
    def _part_blocks(self) -> Integers:
        """Index of the first block of each of P parts (files), followed by the number of blocks: (P + 1,)."""
        counts = [len(part.blocks) for part in self.manifest.parts]
        return offsets_of(counts)

    def _part(self, number: int) -> MappedPart:
        """Return the memory-mapped part (file) with this index. The parts used most recently stay open."""
        with self._lock:
            found = self._parts.get(number)
            if found is None:
                found = MappedPart(self.path, self.manifest, number, self._checked[number])
                self._parts[number] = found
                while len(self._parts) > _OPEN_PARTS:
                    self._parts.popitem(last=False)
            else:
                self._parts.move_to_end(number)
            return found

    def _place(self, block: int) -> tuple[MappedPart, int]:
        number = int(np.searchsorted(self._part_blocks, block, side="right")) - 1
        return self._part(number), block - int(self._part_blocks[number])

    def block(self, b: int) -> Queries:
        """Queries of one block.

        X and y are views of the file. The first use of a block reads all of it, to compare its checksums;
        later uses read nothing until X or y are used.

        Parameters
        ----------
        b : int
            Index of the block, from 0 to `n_blocks` - 1.

        Returns
        -------
        Queries
            The queries of the block.
        """
        if not 0 <= b < self.n_blocks:
            raise IndexError(f"b must be the number of a block, from 0 to {self.n_blocks - 1}; got {b}.")
        part, local = self._place(b)
        return self._queries(b, part, local)

    def _queries(self, b: int, part: MappedPart, local: int, *, read: bool = False) -> Queries:
        X, y, docid = part.rows(local, read=read)
        first, last = self.block_queries[b], self.block_queries[b + 1]
        return self._trusted(X, y, self.query_ids[first:last], self.sizes[first:last], docid)

    def _trusted(
        self, X: NDArray[Any], y: NDArray[Any], ids: NDArray[Any], sizes: Integers, docid: NDArray[Any] | None
    ) -> Queries:
        """Build `Queries` without checking the values, because `convert` has checked them."""
        groups = Groups.of_sizes(sizes, ids)
        return Queries.trusted(
            X,
            y,
            groups,
            docid,
            self.feature_names,
            allow_nan=self.has_nan,
            categories=self.categories,
            ordered=self.ordered,
        )

    def blocks(self, start: int = 0, stop: int | None = None, *, ahead: int = 2) -> Iterator[Queries]:
        """Iterate over the blocks [start, stop) in order, reading ahead.

        Threads read the next `ahead` blocks, and compare their checksums, while the current one is used. A
        block that was checked before and is in the system's file cache needs no thread. The memory of a block
        is released when its arrays are no longer referenced. So little more than `ahead` + 1 blocks are in
        memory, for any size of the set.

        Parameters
        ----------
        start : int, default 0
            Index of the first block.
        stop : int, optional
            Index after the last block. The default is the number of blocks.
        ahead : int, default 2
            Number of blocks to read ahead.

        Returns
        -------
        iterator of Queries
            The queries of each block.
        """
        last = self.n_blocks if stop is None else stop
        if not 0 <= start <= last <= self.n_blocks:
            raise IndexError(f"start and stop must be from 0 to {self.n_blocks}; got {start} to {last}.")
        return self._read_ahead(start, last, ahead)

    def _read_ahead(self, start: int, stop: int, ahead: int) -> Iterator[Queries]:
        # the next blocks: a future for each block that is read ahead, None for one that `_asked_for` leaves
        waiting: deque[Future[Queries] | None] = deque()
        # two threads, so that one reads from the disk while the other compares checksums
        with ThreadPoolExecutor(2, thread_name_prefix="sinkprop-read") as reader:
            try:
                for b in range(start, stop):
                    while len(waiting) <= ahead and b + len(waiting) < stop:
                        waiting.append(self._asked_for(b + len(waiting), reader))
                    future = waiting.popleft()
                    yield self.block(b) if future is None else future.result()
            finally:
                for future in waiting:
                    if future is not None:
                        future.cancel()

    def _asked_for(self, b: int, reader: ThreadPoolExecutor) -> Future[Queries] | None:
        """Let the thread of `reader` read block b, and return the future of its queries.

        Returns None, and reads nothing, if the block was checked before and is in the operating system's file
        cache.
        """
        part, local = self._place(b)
        if part.is_checked(local) and part.is_cached(local):
            return None
        return reader.submit(self._queries, b, part, local, read=True)

    def labels(self) -> Floats:
        """Read all labels, without the features.

        Returns
        -------
        array of shape (N,)
            Labels.
        """
        labels = np.empty(self.n_rows)
        rows = self.block_rows
        for b in range(self.n_blocks):
            part, local = self._place(b)
            labels[rows[b] : rows[b + 1]] = part.labels(local)
        return labels

    def labels_by_block(self) -> Iterator[tuple[Floats, Groups]]:
        """Read the labels of each block, without the features.

        Yields
        ------
        labels : array of shape (n,)
            Labels of the block.
        groups : Groups
            The rows of each query of the block.
        """
        for b in range(self.n_blocks):
            part, local = self._place(b)
            first, last = self.block_queries[b : b + 2]
            yield part.labels(local), Groups.of_sizes(self.sizes[first:last], self.query_ids[first:last])

    @cached_property
    def largest_label(self) -> float:
        """Largest label."""
        places = (self._place(b) for b in range(self.n_blocks))
        return max(float(part.labels(local).max()) for part, local in places)

    def require_finite(self, who: str) -> None:
        """Raise a ValueError if a feature is NaN.

        Parameters
        ----------
        who : str
            Name, for the message, of the ranker that does not accept NaN.
        """
        if self.has_nan:
            raise ValueError(
                f"{self.path}: some features of the set are NaN (missing), which {who} does not accept. Fill "
                "them in before converting, or use a ranker that takes them: a linear or neural one with "
                "missing='indicator', or trees, such as BoostedRanker."
            )

    def require_labels(self, what: str) -> None:
        """Raise a ValueError if the documents have no labels.

        Parameters
        ----------
        what : str
            Name, for the message, of the operation that needs labels.
        """
        if not self.labeled:
            raise ValueError(f"{self.path}: the set was converted without labels, which {what} needs.")

    def columns_of(self, names: Sequence[str] | NDArray[Any] | None) -> list[int] | None:
        """Find the columns of X that have the given feature names.

        Parameters
        ----------
        names : sequence of str, optional
            Feature names of a model, in its order. None if the model has no feature names.

        Returns
        -------
        list of int or None
            Index of the column for each name. None if the columns are in the model's order already, or if the
            set or the model has no feature names.

        Raises
        ------
        ValueError
            If a feature name occurs only in the set or only in the model, and both have feature names.
        """
        return columns_of(self.feature_names, names, str(self.path))

    def take(self, numbers: Sequence[int] | NDArray[Any]) -> Queries:
        """Copy selected queries into memory.

        Parameters
        ----------
        numbers : sequence of int
            Indices of the queries, from 0, in the order in which they are wanted.

        Returns
        -------
        Queries
            All rows of these queries.
        """
        wanted = np.asarray(numbers, dtype=np.int64)
        if wanted.ndim != 1 or not len(wanted):
            raise ValueError("numbers must be a sequence of one or more query numbers.")
        if wanted.min() < 0 or wanted.max() >= self.n_queries:
            raise IndexError(
                f"numbers must be from 0 to {self.n_queries - 1}; got {wanted.min()} to {wanted.max()}."
            )
        sizes = self.sizes[wanted]
        ends = np.cumsum(sizes)
        X = np.empty((int(ends[-1]), self.n_features), np.float32)
        y = np.empty(int(ends[-1]))
        names: list[Any] = [None] * len(wanted)
        home = np.searchsorted(self.block_queries, wanted, side="right") - 1
        for b in np.unique(home):
            part, local = self._place(int(b))
            rows, labels, docid = part.rows(local)
            for i in np.flatnonzero(home == b):
                first = int(self.offsets[wanted[i]] - self.block_rows[b])
                last, to = first + int(sizes[i]), int(ends[i])
                X[to - int(sizes[i]) : to] = rows[first:last]
                y[to - int(sizes[i]) : to] = labels[first:last]
                names[i] = None if docid is None else docid[first:last]
        docids = np.concatenate(names) if self.manifest.docid else None
        return self._trusted(X, y, self.query_ids[wanted], sizes, docids)

    def without_features(self) -> Queries:
        """Read all labels, query ids and document names into memory, but not the features.

        Returns
        -------
        Queries
            All documents, with an X of shape (N, 0).
        """
        names: list[Any] = []
        if self.manifest.docid:
            for b in range(self.n_blocks):
                part, local = self._place(b)
                names.append(part.names(local))
        X = np.empty((self.n_rows, 0), np.float32)
        docid = np.concatenate(names) if names else None
        return self._trusted(X, self.labels(), self.query_ids, self.sizes, docid)

    def load(self) -> Queries:
        """Read the whole set into memory.

        Returns
        -------
        Queries
            All documents.
        """
        X = np.empty((self.n_rows, self.n_features), np.float32)
        y = np.empty(self.n_rows)
        names = []
        rows = self.block_rows
        for b, block in enumerate(self.blocks()):
            X[rows[b] : rows[b + 1]] = block.X
            y[rows[b] : rows[b + 1]] = block.y
            names.append(block.docid)
        docid = np.concatenate([name for name in names if name is not None]) if self.manifest.docid else None
        return self._trusted(X, y, self.query_ids, self.sizes, docid)

    def verify(self, *, progress: Notify | None = None, n_threads: int | None = None) -> None:
        """Compare all files with their SHA-256 checksums.

        Parameters
        ----------
        progress : callable, optional
            Function called during the check as progress(bytes checked so far, total bytes, text), where the
            text names the set.
        n_threads : int, optional
            Number of threads, at most one per file. The default is SINKPROP_NUM_THREADS if set, or the number
            of CPU cores; but 1 for a set of fewer than 4,000 documents.

        Raises
        ------
        StoreError
            If a file has changed since it was written; the message names the first such file.
        """
        notify = silent if progress is None else progress
        files = self.manifest.files
        total, done = sum(size for _, size, _ in files), 0
        with ThreadPoolExecutor(min(len(files), _threads(n_threads, self.n_rows))) as pool:
            sums = pool.map(sha256_of, [self.path / name for name, _, _ in files])
            for (name, size, expected), found in zip(files, sums, strict=True):
                if found != expected:
                    pool.shutdown(wait=False, cancel_futures=True)
                check_sha256(self.path / name, found, expected)
                done += size
                notify(done, total, f"checking {self.path.name}")
        for number in range(len(self.manifest.parts)):
            self._checked[number].add(VERIFIED)


def _reopened(path: str, digest: str) -> StoredQueries:
    """Open the set of a pickled `StoredQueries`.

    Raises StoreError if the set's checksum is not `digest`, that is, if the set was replaced after pickling.
    """
    stored = open_queries(path)
    if stored.digest != digest:
        raise StoreError(f"{path}: the set has changed since it was pickled; it was converted again.")
    return stored
