"""Plans: what a program is compiled for, apart from the shapes of its arrays, as plain hashable values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from sinkprop.common.arguments import threads
from sinkprop.common.types import Floats
from sinkprop.objective.gains import Term
from sinkprop.objective.native_terms import NativeSettings, native_settings, term_table
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.relaxations import Relaxation, as_relaxation

__all__ = ["Backend", "Normalization", "Plan", "gain_plan", "normalization"]

Backend = Literal["auto", "native", "jax"]

_MANY = 4000  # documents, for which native code may take several threads; it takes one for fewer


@dataclass(frozen=True)
class Normalization:
    """Relaxation, iterations and backend, which have been checked.

    settings  Relaxation and iterations, as native code takes them.
    """

    relaxation: Relaxation
    settings: NativeSettings
    backend: Backend


def normalization(
    relaxation: str | Relaxation, n_iter: Iterations, epsilon: float, backend: Backend
) -> Normalization:
    """Return the settings; raise an error that names the argument that is invalid."""
    if backend not in get_args(Backend):
        raise ValueError(f"backend must be 'auto', 'native' or 'jax'; got {backend!r}.")
    relaxation = as_relaxation(relaxation)
    return Normalization(relaxation, native_settings(relaxation, n_iter, epsilon), backend)


@dataclass(frozen=True)
class Plan:
    """An expected gain, or the weights of the ranks of a projection.

    table        One row of 10 numbers per term of the gain, as native code takes them.
    discounts    Discounts of the ranks in float64, one row after the other; ranks after the last have 0.
    n_discounts  Number of these rows.
    segmented    Whether a row may hold several lists.
    n_threads    Largest number of threads of native code.
    """

    normalization: Normalization
    table: tuple[tuple[float, ...], ...]
    discounts: bytes
    n_discounts: int
    segmented: bool
    n_threads: int

    @property
    def settings(self) -> NativeSettings:
        return self.normalization.settings

    @property
    def rows(self) -> Floats:
        """(n_discounts, ranks) discounts."""
        return np.frombuffer(self.discounts).reshape(self.n_discounts, -1)


def gain_plan(
    normalization: Normalization, terms: Sequence[Term], counts: Sequence[int], *, segmented: bool
) -> Plan:
    """Return the plan of a sum of terms; `counts` has the number of attributes of each."""
    D = np.concatenate([term.discounts for term in terms])
    used = int(np.flatnonzero(D.any(axis=0)).max(initial=0)) + 1
    table = tuple(map(tuple, term_table(terms, counts).tolist()))
    return Plan(normalization, table, D[:, :used].tobytes(), len(D), segmented, threads(None, _MANY))
