"""A learner of permutations on a sequence of losses, with its regret in every round."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sinkprop.common.types import Floats
from sinkprop.permutations.assignment import smallest
from sinkprop.permutations.online import OnlineLearner
from sinkprop.policies.doubly_stochastic import as_numbers

__all__ = ["LearningRecord", "play"]


@dataclass(frozen=True, eq=False)
class LearningRecord:
    """Losses of a learner round by round, as `play` returns them: T rounds, all of them running totals.

    Attributes
    ----------
    loss : array of shape (T,)
        Loss of the drawn rankings.
    expected_loss : array of shape (T,)
        Expected loss before the draw of each round; NaN for a learner that does not compute it.
    best_loss : array of shape (T,)
        Loss of the ranking that is best in hindsight on the rounds so far.
    bound : array of shape (T,)
        The learner's bound of the expected regret.
    """

    loss: Floats
    expected_loss: Floats
    best_loss: Floats
    bound: Floats

    @property
    def regret(self) -> Floats:
        """Expected loss, or the loss of the drawn rankings if that is not known, less the best loss, (T,)."""
        return np.where(np.isnan(self.expected_loss), self.loss, self.expected_loss) - self.best_loss


def play(
    learner: OnlineLearner,
    losses: npt.ArrayLike | Iterable[npt.ArrayLike] | Callable[[Any], npt.ArrayLike],
    n_rounds: int | None = None,
) -> LearningRecord:
    """Let a learner draw a ranking and update, round by round.

    Parameters
    ----------
    learner : OnlineLearner
        Learner, which is updated. With semi-bandit feedback it gets only the losses of what it draws.
    losses : array of shape (T, n, n), iterable of arrays, or function
        Losses of each round; or an adversary, a function that gets the learner before its draw and returns
        the losses (n, n) of that round.
    n_rounds : int, optional
        Number of rounds; needed with a function.

    Returns
    -------
    LearningRecord
        Losses, best losses and bounds after each round, counted from the first of these rounds.

    Examples
    --------
    >>> from sinkprop.permutations import PermutationLearner
    >>> losses = np.random.default_rng(0).random((200, 4, 4)) * [[0.2], [1], [1], [1]]
    >>> record = play(PermutationLearner(4, n_rounds=200, seed=0), losses)
    >>> bool(np.all(record.regret <= record.bound))
    True
    """
    if callable(losses):
        if n_rounds is None:
            raise ValueError("n_rounds must be given if losses are a function.")
        rounds: Iterable[Any] = (losses(learner) for _ in range(n_rounds))
    else:
        rounds = losses if isinstance(losses, Iterable) else np.asarray(losses)
    total, already, rows = np.zeros((learner.n, learner.n)), learner.rounds, []
    loss, expected = 0.0, 0.0
    for t, given in enumerate(rounds):
        if n_rounds is not None and t >= n_rounds:
            break
        L = as_numbers(given, "losses")
        if L.shape != total.shape:
            raise ValueError(f"losses must have one matrix {total.shape} per round; got shape {L.shape}.")
        weights = getattr(learner, "weights", None)
        ranking = learner.draw()
        drawn = L[ranking, np.arange(learner.n)]
        learner.update(L if learner.feedback == "full" else drawn)
        loss += float(drawn.sum())
        expected += np.nan if weights is None else float((weights * L).sum())
        total += L
        rows.append((loss, expected, smallest(total)[1], learner.regret_bound(already + t + 1)))
    return LearningRecord(*np.array(rows, dtype=np.float64).reshape(-1, 4).T.copy())
