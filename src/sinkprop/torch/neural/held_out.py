"""Scores of the validation queries by the final network, to which its calibration is fitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import nn

from sinkprop.common.types import Floats
from sinkprop.data.queries import offsets_of
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.held_out import HeldOut, taken_queries
from sinkprop.torch.neural.processes import OneProcess
from sinkprop.torch.neural.scoring import Scoring
from sinkprop.torch.neural.stored import Data, sizes_of

__all__ = ["held_out_scores"]


def held_out_scores(
    module: nn.Module, sets: Sequence[Data], scoring: Scoring, processes: OneProcess
) -> HeldOut | None:
    """Return the scores that `predict` gives to the validation queries; None if there are none.

    If there are many documents, only some of the queries are read and scored. The result is the same in
    every process. If each process has its own queries, it has those of all processes, in order of rank.

    sets  Validation queries of this process.
    """
    with processes.together():
        parts = [_scored(module, part, scoring) for part in _some_queries(sets)]
        held = HeldOut.joined(parts)
    return _of_all(held, processes) if processes.own else held


def _some_queries(sets: Sequence[Data]) -> list[Data]:
    """Select queries that are spread evenly over all sets, see `taken_queries`."""
    sizes = [sizes_of(part) for part in sets]
    taken = taken_queries(np.concatenate([np.empty(0, np.int64), *sizes]))
    chosen = np.split(taken, offsets_of([len(part) for part in sizes])[1:-1]) if sizes else []
    return [
        part if own.all() else part.select(np.flatnonzero(own))
        for part, own in zip(sets, chosen, strict=True)
        if own.any()
    ]


def _scored(module: nn.Module, part: Data, scoring: Scoring) -> HeldOut:
    rows = part if isinstance(part, TrainingSet) else part.load()
    return HeldOut(scoring.scores(module, rows.X, rows.groups), rows.y, rows.groups.sizes)


def _of_all(held: HeldOut | None, processes: OneProcess) -> HeldOut | None:
    """Join what each process has."""
    nothing = np.empty(0)
    mine = (nothing,) * 3 if held is None else (held.scores, held.labels, held.sizes.astype(np.float64))
    scores, labels, sizes = (_joined(values, processes) for values in mine)
    return HeldOut(scores, labels, sizes.astype(np.int64)) if len(sizes) else None


def _joined(values: Floats, processes: OneProcess) -> Floats:
    """Join the vectors of all processes, whose lengths may differ."""
    lengths = processes.gather(np.array([float(len(values))]))[:, 0].astype(int)
    room = np.zeros(max(1, lengths.max()))
    room[: len(values)] = values
    found = processes.gather(room)
    return np.concatenate([own[:n] for own, n in zip(found, lengths, strict=True)])
