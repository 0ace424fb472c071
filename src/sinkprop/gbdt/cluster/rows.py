"""The queries of one process that grows trees with others: rows, bins and validation queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.cluster.partitions import blocks, share
from sinkprop.common.types import Floats, Integers
from sinkprop.data.blocks import Block
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.criteria import metric_criterion
from sinkprop.estimator.selection import mean_over_queries
from sinkprop.gbdt.cluster.mesh import Mesh, PeerLost
from sinkprop.gbdt.cluster.messages import TRAINING, VALIDATION, Fit, Rank
from sinkprop.gbdt.derivatives import Derivatives
from sinkprop.gbdt.growing.bins import Bins, dataset, sample_rows
from sinkprop.gbdt.growing.rows import StreamedRows
from sinkprop.gbdt.growing.validation import Validation, expected_name

__all__ = ["OwnQueries", "shared_bins", "validation_of"]


# LightGBM's random order of the features depends on the number of rows for which it computes bin bounds. If
# all processes together have at most this many values (documents times features), the bounds are computed for
# all documents, so that the order is the same as in a fit in one process. Otherwise they are computed for
# fewer rows, because LightGBM allocates memory for the rows.
_ALIKE = 1 << 28
_BOUNDS = 2**31 - 1  # maximum size in bytes of the serialized bounds of all bins, in LightGBM itself


class OwnQueries:
    """Queries of one process of a fit.

    y             Labels of this process's training documents.
    groups        Training queries of the whole fit; those of other processes are empty here.
    query_weight  Weights of the queries in `groups`, which are 1 for queries of other processes; or None.
    validation    Validation queries of this process, without their features.
    numbers       Indices of these validation queries among all validation queries of the fit.
    sample        Bins are computed from a sample of all processes' rows. This is the part of it that this
                  process holds: positions in the sample, and features. None if there is only one process.
    """

    def __init__(self, fit: Fit, rank: Rank, partitions: Sequence[Any]) -> None:
        self._assigned = rank.assigned
        self._partitions = partitions
        self.n_features = fit.n_features
        sizes = np.zeros(fit.n_queries, dtype=np.int64)
        weights = np.ones(fit.n_queries)
        labels: list[Floats] = []
        row_weights: list[Floats | None] = []
        validation: list[TrainingSet] = []
        numbers: list[Integers] = []
        wanted = sample_rows(fit.settings.plan.parameters, fit.n_rows) if fit.several else None
        places: list[Integers] = []
        sampled: list[NDArray[Any]] = []
        n_rows = 0
        for counted, block in self._blocks():
            data, codes = block.data, np.asarray(block.codes)
            counts = data.groups.sizes
            used = (codes & TRAINING) > 0
            own = np.repeat(used, counts)
            n = int(used.sum())
            if n:
                sizes[counted.query : counted.query + n] = counts[used]
                if data.query_weight is not None:
                    weights[counted.query : counted.query + n] = data.query_weight[used]
                labels.append(data.labels[own])
                row_weights.append(None if data.sample_weight is None else data.sample_weight[own])
                rows = int(own.sum())
                if wanted is not None:
                    among = slice(*np.searchsorted(wanted, [counted.row, counted.row + rows]).tolist())
                    places.append(np.arange(among.start, among.stop))
                    sampled.append(np.flatnonzero(own)[wanted[among] - counted.row])
                    sampled[-1] = data.X[sampled[-1]]
                n_rows += rows
                counted.query += n
                counted.row += rows
            held = np.flatnonzero(codes & VALIDATION)
            if len(held):
                validation.append(replace(data, X=np.empty((len(data.y), 0))).select(held))
                numbers.append(counted.validation + np.arange(len(held)))
                counted.validation += len(held)
        self.y = np.concatenate(labels)
        self.shape = (n_rows, fit.n_features)
        self.groups = Groups.of_sizes(sizes)
        self.query_weight = weights if fit.weighted else None
        weighted = [each for each in row_weights if each is not None]
        self.sample_weight = np.concatenate(weighted) if len(weighted) == len(labels) else None
        self.validation = validation
        self.numbers = np.concatenate(numbers) if numbers else np.empty(0, np.int64)
        self.sample = (np.concatenate(places), np.concatenate(sampled)) if wanted is not None else None

    def _blocks(self) -> Iterator[tuple[_Counted, Block]]:
        """Iterate over pairs (counter, block) for the blocks (groups of whole queries) of this process.

        The counter holds the positions in the whole fit at which the queries of the block start. All blocks
        of a partition share one counter, which the caller must increase after each block.
        """
        counted = [_Counted(part.query, part.row, part.validation) for part in self._assigned]
        for at, block in self._numbered():
            yield counted[at], block

    def _numbered(self) -> Iterator[tuple[int, Block]]:
        """Iterate over pairs (index, block) for the blocks (groups of whole queries) of this process.

        The index is that of the block's partition in the list of this process's partitions, `_assigned`.
        """
        entries = [replace(part.entry, number=at) for at, part in enumerate(self._assigned)]
        yield from blocks(share(entries, *self._partitions))

    def rows(self, role: int) -> StreamedRows:
        """Features of this process's training documents or validation documents.

        role  `TRAINING` or `VALIDATION`.
        """
        n = self.shape[0] if role == TRAINING else sum(len(part.y) for part in self.validation)
        return StreamedRows(lambda: self._row_blocks(role), (n, self.n_features))

    def _row_blocks(self, role: int) -> Iterator[NDArray[Any]]:
        for _, block in self._numbered():
            own = np.repeat((np.asarray(block.codes) & role) > 0, block.data.groups.sizes)
            if own.any():
                yield block.data.X if own.all() else block.data.X[own]


@dataclass(eq=False)
class _Counted:
    """Counter for reading a partition block by block: positions in the whole fit where the next block starts.

    query       Index of the next training query among all training queries of the fit.
    row         Index of the next training document among all training documents of the fit.
    validation  Index of the next validation query among all validation queries of the fit.

    The first values are those in `TreePartition`; the caller increases them after each block.
    """

    query: int
    row: int
    validation: int


def shared_bins(fit: Fit, own: OwnQueries, mesh: Mesh) -> Callable[..., Any]:
    """Make a function that makes a LightGBM Dataset of rows, with the same bins in all processes.

    The function takes the arguments of `sinkprop.gbdt.growing.bins.dataset`. It computes the bins from a
    sample of the documents of all processes.
    """

    def make(
        X: Any,
        *,
        parameters: dict[str, Any],
        names: Any = "auto",
        categorical: Sequence[int] = (),
        reference: Any = None,
        init_score: Floats | None = None,
    ) -> Any:
        if reference is not None:
            return dataset(X, parameters=parameters, reference=reference, init_score=init_score)
        mesh.gather(b"", 0)  # waits until all processes have reached this line
        places, rows = own.sample or (np.empty(0, np.int64), np.empty((0, fit.n_features)))
        if mesh.rank == 0:
            n = len(sample_rows(parameters, fit.n_rows))
            sample = np.empty((fit.n_features, n))
            sample[:, places] = rows.T
            for peer in range(1, mesh.size):
                places, rows = _received_sample(mesh, peer, (n, fit.n_features))
                sample[:, places] = rows.T
            n = fit.n_rows if fit.n_rows * fit.n_features <= _ALIKE else 1 << 16
            bounds = Bins(parameters, categorical).find(sample, n, fit.n_rows).serialized()
            for peer in range(1, mesh.size):
                mesh.send(peer, bounds)
        else:
            mesh.send_array(0, places.astype("<i8"))
            mesh.send_array(0, rows.astype("<f4" if rows.dtype == np.float32 else "<f8"))
            bounds = bytes(mesh.receive(0, _BOUNDS))
        own.sample = None
        made = Bins(parameters, categorical).load(bounds, len(X)).dataset(X, names)
        made.set_label(np.zeros(len(X), np.float32))
        if init_score is not None:
            made.set_init_score(init_score)
        return made

    return make


def _received_sample(mesh: Mesh, peer: int, shape: tuple[int, int]) -> tuple[Integers, NDArray[Any]]:
    """Receive the part of the sample that a process holds: positions in the sample, and features.

    shape  Shape of the whole sample.
    """
    places = mesh.receive_array(peer, ("<i8",), shape[:1])
    rows = mesh.receive_array(peer, ("<f4", "<f8"), shape)
    inside = not len(places) or (places.min() >= 0 and places.max() < shape[0])
    if not inside or rows.shape != (len(places), shape[1]):
        raise PeerLost(f"process {peer} of the fit sent rows that are not of the sample")
    return places, rows


def validation_of(fit: Fit, own: OwnQueries, mesh: Mesh | None, n_threads: int) -> Validation | None:
    """Return the validation queries of this process; None if the fit has no validation queries.

    The function `mean` of the result computes the mean criterion over the validation queries of all
    processes. All processes get the same mean.
    """
    settings = fit.settings
    if not fit.n_validation:
        return None
    part = _joined(own.validation) if own.validation else None
    y, sizes = (np.empty(0), np.empty(0, np.int64)) if part is None else (part.y, part.groups.sizes)

    def gather(values: Floats) -> list[Floats]:
        return [values] if mesh is None else mesh.gather_arrays(values, fit.n_validation)

    order = np.concatenate(gather(own.numbers.astype(np.float64))).astype(np.int64)
    weight = fit.validation_weight
    if settings.criterion is None:
        total = math.fsum(np.ones(fit.n_validation) if weight is None else weight)
        expected = None
        if part is not None:
            expected = Derivatives(
                settings.loss,
                part.labels,
                part.groups,
                sample_weight=part.sample_weight,
                query_weight=None if weight is None else weight[own.numbers],
                n_threads=n_threads,
                whole=(total, 1.0),
            )

        def mean(scores: Floats) -> float:
            values = np.empty(0) if expected is None else expected.values(scores)
            return math.fsum(np.concatenate(gather(values)))

        return Validation(
            own.rows(VALIDATION), mean, expected_name(settings.loss), settings.validated_on, y, sizes
        )
    criterion_of, name = metric_criterion(settings.criterion, settings.convention)

    def mean_metric(scores: Floats) -> float:
        values = np.empty(0) if part is None else criterion_of(part, scores)
        found = np.empty(fit.n_validation)
        found[order] = np.concatenate(gather(values))
        return float(mean_over_queries(found, weight))

    return Validation(own.rows(VALIDATION), mean_metric, name, settings.validated_on, y, sizes)


def _joined(parts: Sequence[TrainingSet]) -> TrainingSet:
    """Join sets of queries into one set, without features."""
    sizes = np.concatenate([part.groups.sizes for part in parts])
    weights = [part.sample_weight for part in parts if part.sample_weight is not None]
    y = np.concatenate([part.y for part in parts])
    columns = [part.columns for part in parts if part.columns is not None]
    return TrainingSet(
        np.empty((len(y), 0)),
        y,
        Groups.of_sizes(sizes),
        np.concatenate(weights) if len(weights) == len(parts) else None,
        columns=np.concatenate(columns) if columns else None,
    )
