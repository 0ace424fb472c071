"""List of the queries of a stored set, the file queries.arrow, which is checked when it is read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from sinkprop.common.types import Integers
from sinkprop.data.queries import offsets_of
from sinkprop.store.checks import arrow_errors, check_sha256, check_size, missing
from sinkprop.store.format import Manifest, StoreError, sizes_schema
from sinkprop.store.mapped import text_column

__all__ = ["QueryList", "read_queries"]


class QueryList(NamedTuple):
    """Ids and sizes of all queries of a stored set.

    ids      (Q,) query ids, whole numbers or text.
    sizes    (Q,) number of documents of each query.
    offsets  (Q + 1,) index of the first row of each query, followed by the number of rows.
    """

    ids: NDArray[Any]
    sizes: Integers
    offsets: Integers


def read_queries(folder: Path, manifest: Manifest) -> QueryList:
    """Read the list of the queries of a set.

    Raises StoreError if the file is damaged, or if it does not fit the manifest: the sizes must be at least
    1, their sum the number of rows, and every block must begin with the first row of its first query.
    """
    import pyarrow as pa

    name, size, expected = manifest.index
    path = folder / name
    try:
        check_size(path, size, path.stat())
    except FileNotFoundError:
        raise missing(path) from None
    data = path.read_bytes()
    check_sha256(path, hashlib.sha256(data).hexdigest(), expected)
    with arrow_errors(path):
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        if table.schema != sizes_schema(manifest.qid) or len(table) != manifest.queries:
            raise StoreError(
                f"{path}: the file does not have the {manifest.queries:,} queries of the manifest. Convert "
                "the data again."
            )
        table.validate(full=True)
        if any(column.null_count for column in table.columns):
            raise StoreError(f"{path}: the file has nulls. Convert the data again.")
        ids, sizes = (column.combine_chunks() for column in table.columns)
        if isinstance(sizes, pa.ChunkedArray):  # in versions of pyarrow that keep the chunks
            ids, sizes = pa.concat_arrays(ids.chunks), pa.concat_arrays(sizes.chunks)
    found = QueryList(
        ids.to_numpy() if manifest.qid == "int64" else text_column(ids),
        sizes.to_numpy(),
        offsets_of(sizes.to_numpy()),
    )
    _check_sizes(path, manifest, found)
    return found


def _check_sizes(path: Path, manifest: Manifest, found: QueryList) -> None:
    sizes, offsets = found.sizes, found.offsets
    # A size below 2^62 cannot make the sum wrap around before an offset exceeds the number of rows.
    if sizes.min() < 1 or sizes.max() != manifest.longest or offsets.max() > manifest.rows:
        wrong = f"the sizes of the queries are not from 1 to {manifest.longest:,}"
    elif offsets[-1] != manifest.rows:
        wrong = f"the queries have {offsets[-1]:,} documents, but the manifest says {manifest.rows:,}"
    elif any(offsets[block.query] != block.row for part in manifest.parts for block in part.blocks):
        wrong = "the blocks of the manifest do not begin with the first document of a query"
    else:
        return
    raise StoreError(f"{path}: {wrong}. Convert the data again.")
