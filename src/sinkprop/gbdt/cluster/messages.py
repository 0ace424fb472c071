"""Messages to the processes that grow trees together: the fit, and each process's part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sinkprop.cluster.partitions import FitPartition
from sinkprop.common.types import Floats, Integers
from sinkprop.estimator.held_out import HeldOut
from sinkprop.gbdt.derivatives import TreeLoss
from sinkprop.gbdt.growing.loop import Boosting, Grown

__all__ = [
    "TRAINING",
    "VALIDATION",
    "ClusterRecord",
    "Fit",
    "HeldOutPart",
    "Rank",
    "Settings",
    "TreePartition",
    "joined_parts",
]


# Uses of a query. Their sum means both uses; 0 means that the query is not used, because its weight is 0.
TRAINING, VALIDATION = 1, 2


@dataclass(frozen=True)
class ClusterRecord:
    """Workers, time and traffic of a fit on a cluster.

    workers  Number of processes that grew the last trees.
    losses   Number of times that a worker was lost and the fit resumed.
    rounds   Number of rounds since the last loss of a worker, without the first of these rounds, which
             includes preparations.
    seconds  Wall-clock time of these rounds.
    cpu      CPU time of the first process in these rounds, in seconds.
    sent     Bytes that a process sent to the others in these rounds: the maximum over the workers.
    """

    workers: int
    losses: int
    rounds: int
    seconds: float
    cpu: float
    sent: int


@dataclass(frozen=True, eq=False)
class Settings:
    """Settings of a fit on a cluster.

    loss          Settings of the loss.
    plan          Settings of the boosting loop; its `init_model` is None.
    first         Text of the user's `init_model`, whose trees come first, or None.
    drawing       Arguments of `QueryBagging`, or None without bagging by query.
    criterion     Metrics whose mean is the criterion; None if the criterion is the expected gain.
    convention    Convention of these metrics.
    validated_on  Validation queries in words, such as "21 validation queries"; "" if there are none.
    n_threads     Number of threads per process; None divides the worker's Dask threads among its processes.
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
    """Description of a fit that all workers receive.

    name               Identifier of this attempt to run the fit.
    settings           Settings of the fit.
    resumed            State from which to resume after the loss of a worker, or None.
    n_queries, n_rows  Number of training queries and number of their documents, respectively.
    n_features         Number of features.
    whole              Sum of the training queries' weights, and their weighted mean number of documents.
    validation_weight  Weights (n_validation,) of the validation queries, or None.
    n_validation       Number of validation queries.
    several            Whether several processes grow the trees.
    weighted           Whether queries have weights.
    keep               Minimum time between two copies of the trees, in seconds. The fit resumes from the
                       last copy if a worker is lost.
    secret             Secret with which the processes prove to each other that they belong to the fit.
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
    secret: bytes = field(repr=False)


@dataclass(frozen=True, eq=False)
class TreePartition:
    """A partition and the positions of its queries among those of the fit.

    entry       Index of the partition, the weights of its queries, and one code per query for its use:
                `TRAINING`, `VALIDATION`, their sum (both) or 0 (neither).
    query       Index of its first training query among all training queries of the fit.
    row         Index of its first training document among all training documents of the fit.
    validation  Index of its first validation query among all validation queries of the fit.
    """

    entry: FitPartition
    query: int
    row: int
    validation: int


@dataclass(frozen=True, eq=False)
class Rank:
    """One of the processes that grow the trees: a worker, or one of two threads of the only worker left.

    rank        Number of the process, from 0.
    addresses   Host and port of every process.
    assigned    Partitions of this process.
    partitions  Positions of the data of these partitions in the argument `partitions` of `train`.
    """

    rank: int
    addresses: tuple[tuple[str, int], ...]
    assigned: tuple[TreePartition, ...]
    partitions: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class HeldOutPart:
    """Validation queries of one process, with their scores.

    numbers  Indices (Q,) of these queries among all validation queries of the fit.
    queries  The queries.
    """

    numbers: Integers
    queries: HeldOut


def joined_parts(parts: Sequence[HeldOutPart]) -> HeldOut | None:
    """Validation queries of all processes, in the order of their numbers; None if there are none."""
    held = HeldOut.joined(part.queries for part in parts)
    if held is None:
        return None
    numbers = np.concatenate([part.numbers for part in parts])
    rows = np.argsort(np.repeat(numbers, held.sizes), kind="stable")
    return HeldOut(held.scores[rows], held.labels[rows], held.sizes[np.argsort(numbers)])
