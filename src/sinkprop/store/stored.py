"""Stored sets in Python: queries on the disk, read a block at a time."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.arguments import threads as _threads
from sinkprop.common.compressed import StrPath
from sinkprop.common.progress import Notify, silent
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups, Queries, columns_of, offsets_of
from sinkprop.store.format import Manifest, StoreError, need_pyarrow, read_manifest, sizes_schema
from sinkprop.store.mapped import MappedPart, text_column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StoredQueries", "open_queries"]


_OPEN_PARTS = 16  # a mapped file takes a descriptor, of which a process has some thousand
_HASHED = 1 << 20


def open_queries(path: StrPath, *, verify: bool = False) -> StoredQueries:
    """The stored set in a folder that `convert` made.

    The manifest, the sizes of all files and their columns are checked; with `verify` also every byte, against
    the SHA-256 that the manifest has of it. What is wrong is a StoreError of one line.
    """
    need_pyarrow("open_queries")
    folder = Path(path)
    manifest = read_manifest(folder)
    stored = StoredQueries(folder, manifest)
    for name, size, _ in manifest.files:
        try:
            found = os.stat(folder / name).st_size
        except FileNotFoundError:
            raise StoreError(
                f"{folder / name}: the file is missing from the set. Convert the data again."
            ) from None
        if found != size:
            raise StoreError(
                f"{folder / name}: the file has {found:,} bytes, and the manifest says {size:,}: it is "
                f"{'cut off' if found < size else 'not the one that was written'}. Convert the data again."
            )
    for number in range(len(manifest.parts)):
        stored._part(number)
    if verify:
        stored.verify()
    return stored


@dataclass(frozen=True, eq=False, repr=False)
class StoredQueries:
    """Queries in a folder on the disk, in their order: the rows are read when they are asked for.

    `open_queries` and `convert` give one. It is small, and is pickled by its path. Rows of a query stand
    together. X is float32, as the file has it; labels are float64.

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
        """Documents of all queries."""
        return self.manifest.rows

    @property
    def n_queries(self) -> int:
        return self.manifest.queries

    @property
    def n_features(self) -> int:
        return self.manifest.n_features

    @property
    def longest(self) -> int:
        """Documents of the largest query."""
        return self.manifest.longest

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.manifest.feature_names

    @property
    def has_nan(self) -> bool:
        """Whether a feature is NaN, for missing."""
        return self.manifest.has_nan

    @property
    def labeled(self) -> bool:
        """Whether the documents are judged; where not, all labels are 0."""
        return self.manifest.label != "none"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the checksums of all rows: equal for sets of equal rows that are stored alike."""
        shapes = [str(self.n_features), repr(self.feature_names)]
        sums = [digest for _, _, digest in self.manifest.files]
        return hashlib.sha256("\n".join(shapes + sums).encode()).hexdigest()

    @cached_property
    def _index(self) -> pa.Table:
        import pyarrow as pa

        name, _, _ = self.manifest.index
        path = self.path / name
        try:
            with pa.OSFile(str(path)) as file:
                table = pa.ipc.open_file(file).read_all()
        except pa.ArrowInvalid as error:
            raise StoreError(f"{path}: not an Arrow file: {error}. Convert the data again.") from None
        if table.schema != sizes_schema(self.manifest.qid) or len(table) != self.n_queries:
            raise StoreError(
                f"{path}: the file does not have the {self.n_queries:,} queries of the manifest. Convert the "
                "data again."
            )
        return table

    @cached_property
    def sizes(self) -> Integers:
        """(Q,) documents of each query."""
        sizes: Integers = self._index.column("documents").to_numpy()
        return sizes

    @cached_property
    def offsets(self) -> Integers:
        """(Q + 1,) the first row of each query, and the number of rows."""
        return offsets_of(self.sizes)

    @property
    def groups(self) -> Groups:
        """The rows of each query."""
        return Groups(self.offsets, None, self.query_ids, self.longest)

    @cached_property
    def query_ids(self) -> NDArray[Any]:
        """(Q,) the ids, whole numbers or text."""
        column = self._index.column("id")
        return column.to_numpy() if self.manifest.qid == "int64" else text_column(column.combine_chunks())

    @cached_property
    def block_queries(self) -> Integers:
        """(B + 1,) the first query of each block, and the number of queries."""
        starts = [query for part in self.manifest.parts for query, _ in part.blocks]
        return np.array([*starts, self.n_queries], np.int64)

    @cached_property
    def block_rows(self) -> Integers:
        """(B + 1,) the first row of each block, and the number of rows."""
        starts = [row for part in self.manifest.parts for _, row in part.blocks]
        return np.array([*starts, self.n_rows], np.int64)

    @property
    def n_blocks(self) -> int:
        return len(self.block_queries) - 1

    @cached_property
    def _part_blocks(self) -> Integers:
        """(P + 1,) the first block of each part, and the number of blocks."""
        counts = [len(part.blocks) for part in self.manifest.parts]
        return offsets_of(counts)

    def _part(self, number: int) -> MappedPart:
        """A part, mapped; of those used last some are kept."""
        with self._lock:
            found = self._parts.get(number)
            if found is None:
                found = MappedPart(self.path, self.manifest, number)
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
        """The queries of block b. X and y are views of the file, which is not read until they are used."""
        if not 0 <= b < self.n_blocks:
            raise IndexError(f"b must be a block, from 0 to {self.n_blocks - 1}; got {b}.")
        part, local = self._place(b)
        return self._queries(b, part, local)

    def _queries(self, b: int, part: MappedPart, local: int, *, read: bool = False) -> Queries:
        X, y, docid = part.rows(local, read=read)
        first, last = self.block_queries[b], self.block_queries[b + 1]
        return self._trusted(X, y, self.query_ids[first:last], self.sizes[first:last], docid)

    def _trusted(
        self, X: NDArray[Any], y: NDArray[Any], ids: NDArray[Any], sizes: Integers, docid: NDArray[Any] | None
    ) -> Queries:
        """Queries without a pass over the values, which `convert` has checked."""
        groups = Groups.of_sizes(sizes, ids)
        return Queries.trusted(X, y, groups, docid, self.feature_names, allow_nan=self.has_nan)

    def blocks(self, start: int = 0, stop: int | None = None, *, ahead: int = 2) -> Iterator[Queries]:
        """Blocks [start, stop) in order, of which a thread reads the next `ahead` while this one is used.

        What the system has in its file cache is not read ahead.

        The memory of a block is given back when nothing refers to its arrays any more: whatever the size of
        the set, little more than `ahead` + 1 blocks are in memory.
        """
        last = self.n_blocks if stop is None else stop
        if not 0 <= start <= last <= self.n_blocks:
            raise IndexError(f"blocks must be of 0 to {self.n_blocks}; got {start} to {last}.")
        return self._read_ahead(start, last, ahead)

    def _read_ahead(self, start: int, stop: int, ahead: int) -> Iterator[Queries]:
        waiting: deque[Future[Queries] | None] = deque()  # None: no need to wait
        with ThreadPoolExecutor(1, thread_name_prefix="sinkprop-read") as reader:
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
        """A block on its way from the disk; None where the file cache has it, and no thread is needed."""
        part, local = self._place(b)
        if part.is_cached(local):
            return None
        return reader.submit(self._queries, b, part, local, read=True)

    def labels(self) -> Floats:
        """(N,) all labels, read without the features."""
        labels = np.empty(self.n_rows)
        rows = self.block_rows
        for b in range(self.n_blocks):
            part, local = self._place(b)
            labels[rows[b] : rows[b + 1]] = part.labels(local)
        return labels

    def labels_by_block(self) -> Iterator[tuple[Floats, Groups]]:
        """The labels of each block and which rows are of which query, read without the features."""
        for b in range(self.n_blocks):
            part, local = self._place(b)
            first, last = self.block_queries[b : b + 2]
            yield part.labels(local), Groups.of_sizes(self.sizes[first:last], self.query_ids[first:last])

    @cached_property
    def largest_label(self) -> float:
        places = (self._place(b) for b in range(self.n_blocks))
        return max(float(part.labels(local).max()) for part, local in places)

    def require_finite(self, who: str) -> None:
        """A ValueError where a feature is NaN, for those who do not take that."""
        if self.has_nan:
            raise ValueError(
                f"{self.path}: features of the set are NaN, for missing, which {who} does not take. Fill "
                "them in before converting, or take boosted trees, BoostedRanker, for which NaN is a value."
            )

    def require_labels(self, what: str) -> None:
        """A ValueError where the documents are not judged."""
        if not self.labeled:
            raise ValueError(f"{self.path}: the set was converted without labels, which {what} needs.")

    def columns_of(self, names: Sequence[str] | NDArray[Any] | None) -> list[int] | None:
        """Where the features of these names stand; None where they stand so already, or have no names.

        A ValueError where both have names, and not the same ones.
        """
        return columns_of(self.feature_names, names, str(self.path))

    def take(self, numbers: Sequence[int] | NDArray[Any]) -> Queries:
        """The whole queries of these numbers, from 0, in that order, copied into memory."""
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
        """All labels, ids and names of documents in memory, with an X of no columns."""
        names: list[Any] = []
        if self.manifest.docid:
            for b in range(self.n_blocks):
                part, local = self._place(b)
                names.append(part.names(local))
        X = np.empty((self.n_rows, 0), np.float32)
        docid = np.concatenate(names) if names else None
        return self._trusted(X, self.labels(), self.query_ids, self.sizes, docid)

    def load(self) -> Queries:
        """All of the set in memory."""
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
        """A StoreError for the first file whose bytes are not those that were written."""
        notify = silent if progress is None else progress
        files = self.manifest.files
        total, done = sum(size for _, size, _ in files), 0
        with ThreadPoolExecutor(min(len(files), _threads(n_threads, self.n_rows))) as pool:
            sums = pool.map(self._sha256, [name for name, _, _ in files])
            for (name, size, expected), found in zip(files, sums, strict=True):
                if found != expected:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise StoreError(
                        f"{self.path / name}: the file is damaged: its SHA-256 is {found[:12]}..., and the "
                        f"manifest says {expected[:12]}.... Convert the data again."
                    )
                done += size
                notify(done, total, f"checking {self.path.name}")

    def _sha256(self, name: str) -> str:
        digest, buffer = hashlib.sha256(), bytearray(_HASHED)
        with open(self.path / name, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(memoryview(buffer)[:count])
        return digest.hexdigest()


def _reopened(path: str, digest: str) -> StoredQueries:
    """The set that was pickled, if it is the same still."""
    stored = open_queries(path)
    if stored.digest != digest:
        raise StoreError(f"{path}: the set is not the one that it was; it has been converted again since.")
    return stored
