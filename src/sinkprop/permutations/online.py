"""Learners of permutations: rounds of a draw and a loss, and what all such learners share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from sinkprop.common.arguments import one_of, whole
from sinkprop.common.types import Floats, Positions
from sinkprop.permutations.assignment import smallest
from sinkprop.policies.doubly_stochastic import as_numbers

__all__ = ["OnlineLearner"]

Learner = TypeVar("Learner", bound="OnlineLearner")


class OnlineLearner(ABC):
    """A learner that draws a ranking in each round, and then gets the losses of that round.

    Parameters
    ----------
    n : int
        Number of documents and of ranks.
    feedback : {"full", "semi-bandit"}
        Whether `update` gets the losses of all documents at all ranks, or only those of the drawn ranking.
    n_rounds : int or None
        Number of rounds that the learning rate is tuned for.
    seed : int, numpy.random.Generator or None
        Seed of the draws.

    Attributes
    ----------
    rounds : int
        Number of rounds so far.
    loss : float
        Total loss of the rankings drawn so far.
    """

    kind: ClassVar[str]
    _NUMBERS: ClassVar[tuple[str, ...]] = ("rounds", "loss")  # attributes that change, in the state
    _ARRAYS: ClassVar[tuple[str, ...]] = ("_total",)

    def __init__(
        self, n: int, feedback: str, n_rounds: int | None, seed: int | np.random.Generator | None
    ) -> None:
        self.n = whole("n", n, 1)
        one_of("feedback", feedback, ("full", "semi-bandit"))
        self.feedback = feedback
        self.n_rounds = None if n_rounds is None else whole("n_rounds", n_rounds, 1)
        if isinstance(seed, np.random.Generator):
            seed = int(seed.integers(2**63))
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self.rounds = 0
        self.loss = 0.0
        self._total = np.zeros((self.n, self.n))  # losses so far, or their estimates
        self._drawn: Positions | None = None

    @abstractmethod
    def regret_bound(self, n_rounds: int | None = None) -> float:
        """Bound of the expected regret.

        Parameters
        ----------
        n_rounds : int, optional
            Number of rounds. By default the number of rounds so far.

        Returns
        -------
        float
            The bound.
        """

    @abstractmethod
    def _draw(self) -> Positions:
        """Draw a ranking from the distribution of this round."""

    @abstractmethod
    def _estimate(self, played: Positions, losses: Floats) -> Floats:
        """Estimate the losses of a ranking's entries such that they are unbiased for every entry."""

    def _learn(self, loss: Floats) -> None:  # noqa: B027 - only some learners have more to do
        """Use the losses of a round, or their estimate, which `_total` includes already."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return the arguments that make an equal learner, other than the seed."""

    def draw(self) -> Positions:
        """Ranking drawn from the distribution of this round; it counts as played.

        Returns
        -------
        array of int of shape (n,)
            Documents, best first. Of several draws in one round, only the last one counts.
        """
        self._drawn = self._draw()
        return self._drawn.copy()

    def predict(self) -> Positions:
        """Ranking with the smallest total loss so far.

        Nothing is drawn. With semi-bandit feedback, the losses are estimates.

        Returns
        -------
        array of int of shape (n,)
            Documents, best first.
        """
        return smallest(self._total)[0]

    def update(self, loss: npt.ArrayLike) -> None:
        """Learn from the losses of this round, and begin the next one.

        With full information, a ranking is drawn first if none was drawn in this round, because its loss
        counts.

        Parameters
        ----------
        loss : array of shape (n, n) or (n,)
            Losses from 0 to 1. With full information, loss[j, k - 1] is that of document j at rank k, and
            the loss of a ranking is the sum over its documents. With semi-bandit feedback, loss[k - 1] is the
            loss of the document that was drawn for rank k.
        """
        full = self.feedback == "full"
        L = self._checked(loss, (self.n, self.n) if full else (self.n,))
        if self._drawn is None:
            if not full:
                raise ValueError(
                    "update: no ranking was drawn in this round, and semi-bandit losses are those of a drawn "
                    "ranking; call draw() first."
                )
            self._drawn = self._draw()
        played = self._drawn
        self.loss += float((L[played, np.arange(self.n)] if full else L).sum())
        estimate = L if full else self._estimate(played, L)
        self._total += estimate
        self.rounds += 1
        self._drawn = None
        self._learn(L)

    def regret(self) -> float:
        """Total loss of the drawn rankings less that of the best ranking in hindsight.

        Returns
        -------
        float
            The regret so far, which can be negative. Only full information permits to compute it.
        """
        return self.loss - self.best_loss()

    def best_loss(self) -> float:
        """Total loss of the best ranking in hindsight, which `predict` returns.

        Returns
        -------
        float
            The smallest total loss of a ranking, of the rounds so far. It needs full information.
        """
        if self.feedback != "full":
            raise ValueError(
                "the best ranking in hindsight depends on losses that semi-bandit feedback does not show; "
                "pass the complete losses to best_ranking."
            )
        return smallest(self._total)[1]

    def state(self) -> dict[str, Any]:
        """Everything that the learner knows, as numbers, texts and lists.

        Returns
        -------
        dict
            State for `from_state`. `json.dumps` can write it, and loses no bit.
        """
        drawn = None if self._drawn is None else self._drawn.tolist()
        return {
            "kind": self.kind,
            "settings": self._settings(),
            "random": self._rng.bit_generator.state,
            "drawn": drawn,
            **{name: _plain(getattr(self, name)) for name in self._NUMBERS},
            **{name.strip("_"): getattr(self, name).tolist() for name in self._ARRAYS},
        }

    @classmethod
    def from_state(cls: type[Learner], state: dict[str, Any]) -> Learner:
        """Learner that continues exactly where another one was.

        Parameters
        ----------
        state : dict
            The result of `state`, of a learner of the same class.

        Returns
        -------
        OnlineLearner
            A learner whose draws and numbers are those that the other one would have had.
        """
        if not isinstance(state, dict) or state.get("kind") != cls.kind:
            got = state.get("kind") if isinstance(state, dict) else type(state).__name__
            raise ValueError(f"state must be that of a {cls.kind}; got {got!r}.")
        made = cls(**state["settings"])
        made._rng.bit_generator.state = state["random"]
        made._drawn = None if state["drawn"] is None else np.array(state["drawn"], dtype=np.intp)
        for name in cls._NUMBERS:
            setattr(made, name, math.nan if state[name] is None else state[name])
        for name in cls._ARRAYS:
            setattr(made, name, np.array(state[name.strip("_")], dtype=np.float64))
        return made

    def _checked(self, loss: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
        L = as_numbers(loss, "loss")
        if L.shape != shape:
            meaning = (
                "one row per document and one column per rank"
                if len(shape) == 2
                else "the loss of the drawn document at each rank, because feedback is semi-bandit"
            )
            raise ValueError(f"loss must have {meaning}, {shape}; got shape {L.shape}.")
        valid = (L >= 0) & (L <= 1)
        if not valid.all():
            where = np.argwhere(~valid)[0].tolist()
            raise ValueError(
                f"loss must have entries from 0 to 1; got loss{where} = {L[tuple(where)]}. Divide losses by "
                "the largest possible one."
            )
        return L

    def _horizon(self, n_rounds: int | None) -> int:
        return self.rounds if n_rounds is None else whole("n_rounds", n_rounds, 0)


def _plain(value: float) -> float | None:
    """Number that JSON can write: None for NaN."""
    return None if math.isnan(value) else value
