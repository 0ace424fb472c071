"""The ranking with the smallest loss: an assignment problem, and the scalings that go with its solution."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sinkprop.common.types import Floats, Positions
from sinkprop.objective.assignment import largest_assignment
from sinkprop.policies.doubly_stochastic import as_numbers

__all__ = ["assigned_potentials", "best_ranking", "smallest"]


def best_ranking(losses: npt.ArrayLike) -> tuple[Positions, float]:
    """Ranking with the smallest total loss in hindsight, and this loss.

    Parameters
    ----------
    losses : array of shape (n, n) or (T, n, n)
        Finite losses of each document (row) at each rank (column), of one round or of T rounds, which are
        added.

    Returns
    -------
    ranking : array of int of shape (n,)
        Documents, best first.
    loss : float
        Sum of losses[..., ranking[k], k].

    Examples
    --------
    >>> ranking, loss = best_ranking([[0.9, 0.1, 0.5], [0.2, 0.8, 0.7], [0.6, 0.4, 0.3]])
    >>> ranking, round(loss, 3)
    (array([1, 0, 2]), 0.6)
    """
    L = as_numbers(losses, "losses")
    if L.ndim not in (2, 3) or L.shape[-1] != L.shape[-2] or L.size == 0:
        raise ValueError(
            f"losses must be a square matrix, or one per round: (n, n) or (T, n, n); got shape {L.shape}."
        )
    if not np.isfinite(L).all():
        where = np.argwhere(~np.isfinite(L))[0].tolist()
        raise ValueError(f"losses must be finite; got losses{where} = {L[tuple(where)]}.")
    return smallest(L if L.ndim == 2 else L.sum(axis=0))


def smallest(total: Floats) -> tuple[Positions, float]:
    """Ranking with the smallest sum of total[ranking[k], k], and this sum; nothing is checked."""
    ranking = largest_assignment(-total.T)
    return ranking, float(total[ranking, np.arange(len(total))].sum())


def assigned_potentials(log_K: Floats) -> Floats:
    """Log scalings of the columns that make the assignment with the largest sum the largest of each row.

    log_v[k] <= log_v[m] + log_K[j, m] - log_K[j, k] for each row j with the assigned column m, by the
    Bellman-Ford algorithm. The entries exp(log_u[:, None] + log_K + log_v) are then at most 1 if log_u makes
    the largest of each row 1, and 1 on the assignment. So they have support even if most others underflow.
    """
    match = np.argsort(smallest(-log_K)[0])  # column of each row
    rows = np.arange(len(log_K))
    length = log_K[rows, match][:, None] - log_K
    log_v = np.zeros(len(log_K))
    for _ in range(len(log_K)):
        shorter = np.minimum(log_v, (log_v[match][:, None] + length).min(axis=0))
        if np.array_equal(shorter, log_v):
            break
        log_v = shorter
    return log_v
