"""Permutations learned by exponential weights: PermELearn of Helmbold and Warmuth, with its regret bounds."""

from __future__ import annotations

import math
from typing import Any, ClassVar, final

import numpy as np

from sinkprop.common.arguments import number, whole
from sinkprop.common.types import Floats, Positions
from sinkprop.permutations.online import OnlineLearner
from sinkprop.permutations.projection import projected
from sinkprop.policies.sampling import sample_rankings

__all__ = ["PermutationLearner"]


@final
class PermutationLearner(OnlineLearner):
    r"""PermELearn: rankings drawn from a doubly-stochastic matrix that learns by exponential weights.

    The matrix W starts with equal entries. Each round multiplies W[j, k] by exp(-eta loss[j, k]) and projects
    the result by Sinkhorn normalization to the closest doubly-stochastic matrix in relative entropy, as
    Helmbold and Warmuth (2009) do. A ranking is drawn such that document j is at rank k with probability
    W[j, k], so its expected loss is the sum of W * loss.

    The expected regret after T rounds is the sum of the expected losses less the loss of the best ranking in
    hindsight, L. For every sequence of losses, its bound is, with a constant learning rate eta,

    - full information: n ln(n) / eta + eta n T / 8, and (n ln(n) + eta L) / (1 - exp(-eta)) - L, the bound
      of Helmbold and Warmuth;
    - semi-bandit feedback: n ln(n) / eta + (eta / 2 + exploration) n^2 T. Only the losses of the drawn
      ranking are known. They are divided by W[j, k] + exploration, and all other losses count as 0. The bound
      is for the expectation over the draws and for a ranking that is fixed in advance.

    By default, eta is tuned to these bounds:

    ==============  ===========  ===============================  ==================================
    given           feedback     eta                              bound
    ==============  ===========  ===============================  ==================================
    n_rounds T      full         sqrt(8 ln(n) / T)                n sqrt(T ln(n) / 2)
    n_rounds T      semi-bandit  sqrt(2 ln(n) / (n T))            n sqrt(2 n T ln(n))
    loss_bound B    full         ln(1 + sqrt(2 n ln(n) / B))      sqrt(2 B n ln(n)) + n ln(n), if L <= B
    neither         full         2 sqrt(ln(n) / t) in round t     n sqrt(T ln(n))
    neither         semi-bandit  sqrt(ln(n) / (n t)) in round t   2 n sqrt(n T ln(n))
    ==============  ===========  ===============================  ==================================

    The term eta n T / 8 is that of Hoeffding's lemma for each of the n rows, which are distributions over
    ranks; it makes the bound for a known T less than half that of Helmbold and Warmuth for L = n T. The
    semi-bandit bound has the constant of Audibert, Bubeck and Lugosi (2014). If the learning rate decreases,
    round t uses the projection of exp(-eta_t times the sum of all losses), which is the same as the update
    above if eta is constant.

    Parameters
    ----------
    n : int
        Number of documents and of ranks.
    feedback : {"full", "semi-bandit"}, default "full"
        Whether `update` gets the losses of all documents at all ranks, or only those of the drawn ranking.
    n_rounds : int, optional
        Number of rounds to tune the learning rate for.
    loss_bound : float, optional
        Bound of the loss of the best ranking in hindsight to tune the learning rate for; full information
        only. Much better than `n_rounds` if some ranking has nearly no loss.
    learning_rate : float, optional
        Rate eta to use instead of a tuned one.
    exploration : float, default 0.0
        Implicit exploration (Neu 2015), for semi-bandit feedback: it limits the estimate of a loss to
        1 / exploration. Regrets then vary less, at the cost of the term above.
    seed : int or numpy.random.Generator, optional
        Seed of the draws. By default every learner draws others.

    Attributes
    ----------
    weights : array of shape (n, n)
        The matrix W of this round: probability of each document (row) at each rank (column).
    rounds : int
        Number of rounds so far.
    loss : float
        Total loss of the rankings drawn so far.
    expected_loss : float
        Total expected loss, the sum of W * loss over the rounds; with semi-bandit feedback it is not known,
        and NaN.

    Examples
    --------
    Document 2 has no loss at rank 1, where the others have a loss of 1:

    >>> learner = PermutationLearner(3, n_rounds=50, seed=0)
    >>> for _ in range(50):
    ...     ranking = learner.draw()
    ...     learner.update([[1, 0, 0], [1, 0, 0], [0, 0, 0]])
    >>> learner.weights.round(3) + 0.0
    array([[0. , 0.5, 0.5],
           [0. , 0.5, 0.5],
           [1. , 0. , 0. ]])
    >>> learner.expected_loss < learner.regret_bound()
    True
    """

    kind: ClassVar[str] = "PermutationLearner"
    _NUMBERS: ClassVar[tuple[str, ...]] = (*OnlineLearner._NUMBERS, "expected_loss")
    _ARRAYS: ClassVar[tuple[str, ...]] = (*OnlineLearner._ARRAYS, "_weights", "_log_v")

    def __init__(
        self,
        n: int,
        *,
        feedback: str = "full",
        n_rounds: int | None = None,
        loss_bound: float | None = None,
        learning_rate: float | None = None,
        exploration: float = 0.0,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(n, feedback, n_rounds, seed)
        given = [
            name
            for name, value in (
                ("n_rounds", n_rounds),
                ("loss_bound", loss_bound),
                ("learning_rate", learning_rate),
            )
            if value is not None
        ]
        if len(given) > 1:
            raise ValueError(
                f"give at most one of n_rounds, loss_bound and learning_rate; got {' and '.join(given)}."
            )
        self.loss_bound = None if loss_bound is None else number("loss_bound", loss_bound, above=True)
        self.exploration = number("exploration", exploration)
        if feedback == "full" and self.exploration:
            raise ValueError(
                f"exploration is for semi-bandit feedback; got {exploration!r} with feedback='full'. Leave "
                "it out."
            )
        if feedback != "full" and loss_bound is not None:
            raise ValueError(
                "loss_bound tunes the learning rate for full information only; give n_rounds for "
                "semi-bandit feedback."
            )
        self.learning_rate = (
            None if learning_rate is None else number("learning_rate", learning_rate, above=True)
        )
        self.expected_loss = 0.0 if feedback == "full" else math.nan
        self._weights = np.full((self.n, self.n), 1 / self.n)
        self._log_v = np.zeros(self.n)

    @property
    def weights(self) -> Floats:
        """The matrix W of this round, (n, n): probability of each document at each rank."""
        return self._weights.copy()

    def rate(self, t: int | None = None) -> float:
        """Learning rate eta of a round.

        Parameters
        ----------
        t : int, optional
            Number of the round, from 1. By default the current round.

        Returns
        -------
        float
            The learning rate, the same in all rounds except if it is tuned to no number of rounds.
        """
        log_n, full = math.log(self.n), self.feedback == "full"
        if self.learning_rate is not None:
            return self.learning_rate
        if self.loss_bound is not None:
            return math.log1p(math.sqrt(2 * self.n * log_n / self.loss_bound))
        if self.n_rounds is not None:
            return math.sqrt((8 if full else 2 / self.n) * log_n / self.n_rounds)
        round_number = self.rounds + 1 if t is None else whole("t", t, 1)
        return math.sqrt((4 if full else 1 / self.n) * log_n / round_number)

    def regret_bound(self, n_rounds: int | None = None, *, best_loss: float | None = None) -> float:
        """Bound of the expected regret after some rounds, for every sequence of losses.

        Parameters
        ----------
        n_rounds : int, optional
            Number of rounds. By default the number of rounds so far.
        best_loss : float, optional
            Loss of the best ranking in hindsight, or a bound of it, if it is known. By default `loss_bound`,
            if that was given.

        Returns
        -------
        float
            The smallest of the bounds that hold; see the class.
        """
        T = self._horizon(n_rounds)
        if best_loss is None:
            best_loss = self.loss_bound
        else:
            best_loss = number("best_loss", best_loss)
            if self.feedback != "full":
                raise ValueError("best_loss: the bound for semi-bandit feedback does not depend on it.")
        n, log_n, full = self.n, math.log(self.n), self.feedback == "full"
        if n == 1 or T == 0:
            return self.exploration * n**2 * T
        if self.learning_rate is None and self.loss_bound is None and self.n_rounds is None:
            decreasing = n * math.sqrt(T * log_n) if full else 2 * n * math.sqrt(n * T * log_n)
            return decreasing + self.exploration * n**2 * T
        eta = self.rate()
        if not full:
            return n * log_n / eta + (eta / 2 + self.exploration) * n**2 * T
        bound = n * log_n / eta + eta * n * T / 8
        if best_loss is not None:
            bound = min(bound, (n * log_n + eta * best_loss) / -math.expm1(-eta) - best_loss)
        return bound

    def _draw(self) -> Positions:
        drawn: Positions = sample_rankings(self._weights, seed=self._rng).rankings[0].astype(np.intp)
        return drawn

    def _estimate(self, played: Positions, losses: Floats) -> Floats:
        estimate = np.zeros((self.n, self.n))
        ranks = np.arange(self.n)
        estimate[played, ranks] = losses / (self._weights[played, ranks] + self.exploration)
        return estimate

    def _learn(self, loss: Floats) -> None:
        if self.feedback == "full":
            self.expected_loss += float((self._weights * loss).sum())
        self._weights, self._log_v = projected(-self.rate() * self._total, self._log_v)

    def _settings(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "feedback": self.feedback,
            "n_rounds": self.n_rounds,
            "loss_bound": self.loss_bound,
            "learning_rate": self.learning_rate,
            "exploration": self.exploration,
        }
