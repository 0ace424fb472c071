"""Messages to the processes that grow trees together: the fit, and each process's part in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sinkprop.cluster.partitions import FitPartition
from sinkprop.common.types import Floats
from sinkprop.gbdt.derivatives import TreeLoss
from sinkprop.gbdt.growing.loop import Boosting, Grown

__all__ = ["TRAINING", "VALIDATION", "ClusterRecord", "Fit", "Rank", "Settings", "TreePartition"]


TRAINING, VALIDATION = 1, 2  # what a query is for, the sum for both; 0 for one that does not count


@dataclass(frozen=True)
class ClusterRecord:
    """What a fit on a cluster took.

    workers  processes that grew the trees in the end
    losses   of workers, after each of which the fit went on
    rounds   since the last of them, and the
    seconds  that they took, and the
    cpu      seconds of a processor that the first process used for them, and the
    sent     bytes that the process that sent most of them gave to the others
    """

    workers: int
    losses: int
    rounds: int
    seconds: float
    cpu: float
    sent: int


@dataclass(frozen=True, eq=False)
class Settings:
    """What a fit needs to know besides its queries.

    plan        as of one process, without its `init_model`
    first       the text of trees that come first, or None
    drawing     how queries are drawn: see `query_bagging`
    criterion   metrics that judge under `convention`; None for the expected gain
    validated_on   in words; empty where nothing judges
    n_threads   of each worker; None for as many as Dask has given it
    """

    loss: TreeLoss
    plan: Boosting
    first: str | None
    drawing: dict[str, Any] | None
    criterion: str | tuple[str, ...] | None
    convention: str
    validated_on: str
    n_threads: int | None


@dataclass(frozen=True, eq=False)
class Fit:
    """What all workers are told.

    n_queries, n_rows  that are trained on
    whole              of them: see `whole_of`
    validation_weight  weights (Q,) of the queries that judge, or None; their number
    several            whether the trees are grown by several processes
    """

    name: str
    settings: Settings
    resumed: Grown | None
    n_queries: int
    n_rows: int
    n_features: int
    whole: tuple[float, float]
    validation_weight: Floats | None
    n_validation: int
    several: bool
    weighted: bool
    keep: float
    token: bytes


@dataclass(frozen=True, eq=False)
class TreePartition:
    """A partition as part of a fit.

    query, row  numbers of its first query, and of its first document, of all that are trained on
    validation  number of its first query of all that judge
    """

    piece: FitPartition
    query: int
    row: int
    validation: int


@dataclass(frozen=True, eq=False)
class Rank:
    """One of the processes that grow the trees: its number, the addresses of all, and what it is to take."""

    rank: int
    addresses: tuple[tuple[str, int], ...]
    assigned: tuple[TreePartition, ...]
    partitions: tuple[int, ...]  # places of theirs among what the worker is given
