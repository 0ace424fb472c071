"""Follow the perturbed leader: the ranking that is best on past losses to which random numbers are added."""

from __future__ import annotations

import math
from typing import Any, ClassVar, final

import numpy as np

from sinkprop.common.arguments import number, one_of, whole
from sinkprop.common.types import Floats, Positions
from sinkprop.permutations.assignment import smallest
from sinkprop.permutations.online import OnlineLearner

__all__ = ["PerturbedLeader"]


@final
class PerturbedLeader(OnlineLearner):
    """Follow the perturbed leader: the best ranking on past losses to which random numbers are added.

    Each round has new random numbers, one per document and rank, and solves one assignment problem. Kalai and
    Vempala (2005) add uniform numbers. Subtracting exponential ones (Neu and Bartok 2016) has a better bound,
    and is the default. The bounds of the expected regret after T rounds, for a
    constant learning rate eta, are

    - "exponential", full information: n ln(n) / eta + eta n^2 T;
    - "uniform" on [0, 1 / eta], full information: n / (2 eta) + eta n^3 T;
    - "exponential", semi-bandit feedback: n ln(n) / eta + 2 eta n^3 T + n^2 T / (e M). The inverse of the
      probability of a drawn entry is estimated by geometric resampling: the number of further draws until the
      entry occurs again, at most M.

    `n_rounds` chooses the learning rate that makes the bound smallest: 2 n sqrt(n T ln(n)) and
    n^2 sqrt(2 T) with full information, and 2 n^2 sqrt(2 T ln(n)) + n^2 T / (e M) with semi-bandit feedback.

    Parameters
    ----------
    n : int
        Number of documents and of ranks.
    feedback : {"full", "semi-bandit"}, default "full"
        Whether `update` gets the losses of all documents at all ranks, or only those of the drawn ranking.
    n_rounds : int, optional
        Number of rounds to tune the learning rate for. Either this or `learning_rate` must be given.
    learning_rate : float, optional
        Rate eta to use instead of a tuned one: one over the scale of the random numbers.
    perturbation : {"exponential", "uniform"}, default "exponential"
        Distribution of the random numbers; semi-bandit feedback needs the exponential one.
    max_draws : int, optional
        Largest number M of draws per round with semi-bandit feedback. By default sqrt(T) for `n_rounds`
        T, and 100 for a given learning rate.
    seed : int or numpy.random.Generator, optional
        Seed of the draws. By default every learner draws others.

    Attributes
    ----------
    rounds : int
        Number of rounds so far.
    loss : float
        Total loss of the rankings drawn so far.

    Examples
    --------
    >>> leader = PerturbedLeader(3, n_rounds=50, seed=0)
    >>> for _ in range(50):
    ...     ranking = leader.draw()
    ...     leader.update([[1, 0, 0], [1, 0, 0], [0, 0, 0]])
    >>> int(leader.predict()[0]), leader.regret() < leader.regret_bound()
    (2, True)
    """

    kind: ClassVar[str] = "PerturbedLeader"

    def __init__(
        self,
        n: int,
        *,
        feedback: str = "full",
        n_rounds: int | None = None,
        learning_rate: float | None = None,
        perturbation: str = "exponential",
        max_draws: int | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(n, feedback, n_rounds, seed)
        one_of("perturbation", perturbation, ("exponential", "uniform"))
        if feedback != "full" and perturbation != "exponential":
            raise ValueError(
                "perturbation must be 'exponential' for semi-bandit feedback; got 'uniform'. Leave it out."
            )
        if (n_rounds is None) == (learning_rate is None):
            got = "neither" if n_rounds is None else "both"
            raise ValueError(f"give either n_rounds or learning_rate; got {got}.")
        if max_draws is not None and feedback == "full":
            raise ValueError("max_draws is for semi-bandit feedback. Leave it out.")
        self.perturbation = perturbation
        if self.n_rounds is not None:
            self.learning_rate, draws = self._tuned(self.n_rounds), math.ceil(math.sqrt(self.n_rounds))
        else:
            self.learning_rate, draws = number("learning_rate", learning_rate or 0, above=True), 100
        self.max_draws = draws if max_draws is None else whole("max_draws", max_draws, 1)

    def _tuned(self, T: int) -> float:
        n, log_n = self.n, math.log(self.n)
        if self.perturbation == "uniform":
            return 1 / (n * math.sqrt(2 * T))
        return math.sqrt(log_n / (n * T)) if self.feedback == "full" else math.sqrt(log_n / (2 * T)) / n

    def regret_bound(self, n_rounds: int | None = None) -> float:
        """Bound of the expected regret after some rounds, for every sequence of losses.

        Parameters
        ----------
        n_rounds : int, optional
            Number of rounds. By default the number of rounds so far.

        Returns
        -------
        float
            The bound; see the class.
        """
        T, n, eta = self._horizon(n_rounds), self.n, self.learning_rate
        if n == 1 or T == 0:
            return 0.0
        if self.perturbation == "uniform":
            return n / (2 * eta) + eta * n**3 * T
        start = n * math.log(n) / eta
        if self.feedback == "full":
            return start + eta * n**2 * T
        return start + 2 * eta * n**3 * T + n**2 * T / (math.e * self.max_draws)

    def _draw(self) -> Positions:
        shape = (self.n, self.n)
        if self.perturbation == "uniform":
            return smallest(self.learning_rate * self._total + self._rng.random(shape))[0]
        return smallest(self.learning_rate * self._total - self._rng.exponential(size=shape))[0]

    def _estimate(self, played: Positions, losses: Floats) -> Floats:
        draws = np.full(self.n, self.max_draws)
        waiting = losses > 0  # the others are estimated as 0, however many draws there are
        for i in range(1, self.max_draws):
            if not waiting.any():
                break
            again = waiting & (self._draw() == played)
            draws[again] = i
            waiting &= ~again
        estimate = np.zeros((self.n, self.n))
        estimate[played, np.arange(self.n)] = losses * draws
        return estimate

    def _settings(self) -> dict[str, Any]:
        full = self.feedback == "full"
        return {
            "n": self.n,
            "feedback": self.feedback,
            "n_rounds": self.n_rounds,
            "learning_rate": None if self.n_rounds is not None else self.learning_rate,
            "perturbation": self.perturbation,
            "max_draws": None if full else self.max_draws,
        }
