"""Interleaving: one list made of two rankings, whose clicks tell which of them users prefer."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.arguments import number, one_of, whole
from sinkprop.common.types import Floats, Integers

__all__ = [
    "Interleaving",
    "InterleavingDesign",
    "InterleavingTest",
    "interleaving_test",
    "optimized_interleaving",
    "sessions_needed",
    "team_draft",
]

_LONGEST = 12  # positions of an optimized interleaving: there are up to 2^k lists
_EXACT = 20_000  # sessions without ties, up to which the power of the sign test is computed exactly
_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Interleaving:
    """A list made of two rankings, A and B.

    Attributes
    ----------
    documents : tuple of shape (k,)
        The documents, best first.
    credit : array of shape (k,)
        What a click on each document says: above 0 for A, below 0 for B.
    probability : float
        Probability with which this list and these credits are drawn.
    """

    documents: tuple[Hashable, ...]
    credit: Floats
    probability: float

    def score(self, clicked: ArrayLike) -> float:
        """Sum of the credits of the documents that were clicked.

        Parameters
        ----------
        clicked : array of bool of shape (k,)
            Whether each position was clicked.

        Returns
        -------
        float
            The credit of the session, for `interleaving_test`.
        """
        clicks = np.asarray(clicked)
        if clicks.shape != self.credit.shape or not np.isin(clicks, (0, 1)).all():
            raise ValueError(
                f"clicked must have one entry, 0 or 1, per position, {self.credit.shape}; got {clicked!r}."
            )
        return float(self.credit @ clicks)


@dataclass(frozen=True, eq=False)
class InterleavingDesign:
    """A distribution over the lists that can be made of two rankings.

    Attributes
    ----------
    lists : tuple of Interleaving
        The lists of a probability above 0.
    sensitivity : float
        Expected variance of the credit of a click; see `optimized_interleaving`.
    """

    lists: tuple[Interleaving, ...]
    sensitivity: float

    def draw(self, seed: int | np.random.Generator | None = None) -> Interleaving:
        """Draw a list for one session.

        Parameters
        ----------
        seed : int or numpy.random.Generator, optional
            Seed of the draw. By default every call draws anew.

        Returns
        -------
        Interleaving
            One of the lists.
        """
        rng = np.random.default_rng(seed)
        return self.lists[rng.choice(len(self.lists), p=[x.probability for x in self.lists])]


def team_draft(
    ranking_a: Sequence[Hashable],
    ranking_b: Sequence[Hashable],
    k: int | None = None,
    *,
    seed: int | np.random.Generator | None = None,
) -> Interleaving:
    """Interleaving by team draft: in each round, both rankings pick their best document that is left.

    A coin decides who picks first in a round (Radlinski, Kurup and Joachims 2008). A click counts 1 for the
    ranking that picked the document. At every position both rankings are equally likely to have picked it, so
    users who click at random prefer neither.

    Parameters
    ----------
    ranking_a, ranking_b : sequence
        Documents, best first; at least k.
    k : int, optional
        Number of positions. By default the length of the shorter ranking.
    seed : int or numpy.random.Generator, optional
        Seed of the coins. By default every call draws anew.

    Returns
    -------
    Interleaving
        The list, with the credit 1 for documents that A picked and -1 for those of B.

    Examples
    --------
    >>> shown = team_draft(["d1", "d2", "d3"], ["d3", "d1", "d4"], seed=0)
    >>> shown.documents, shown.credit, shown.probability
    (('d3', 'd1', 'd4'), array([-1.,  1., -1.]), 0.25)
    >>> shown.score([0, 1, 0])
    1.0
    """
    rankings = _rankings(ranking_a, ranking_b, k)
    rng = np.random.default_rng(seed)
    shown: list[Hashable] = []
    teams: list[int] = []
    first = 0
    for i in range(len(rankings[0])):
        if i % 2 == 0:
            first = int(rng.integers(2))
        team = first if i % 2 == 0 else 1 - first
        shown.append(_next(rankings[team], shown))
        teams.append(team)
    return Interleaving(tuple(shown), 1.0 - 2 * np.array(teams), 0.5 ** ((len(shown) + 1) // 2))


def optimized_interleaving(
    ranking_a: Sequence[Hashable], ranking_b: Sequence[Hashable], k: int | None = None
) -> InterleavingDesign:
    """The most sensitive distribution over interleavings of which random clicks prefer neither ranking.

    At each position a list has the best remaining document of A or that of B. A click on a document counts
    1 / (its rank in A) - 1 / (its rank in B), where documents below rank k have rank k + 1. The probabilities
    of the lists make the expected credit 0 at every position, so users who click at random have expected
    credit 0, however many positions they click. Of all such distributions, a linear program finds the one
    with the largest sensitivity, after Radlinski and Craswell (2013). Sensitivity here is the variance of the
    credit of one click, at position i with probability proportional to 1 / i, averaged over the lists.

    Parameters
    ----------
    ranking_a, ranking_b : sequence
        Documents, best first; at least k.
    k : int, optional
        Number of positions, at most 12. By default the length of the shorter ranking.

    Returns
    -------
    InterleavingDesign
        The lists and their probabilities. Use `draw` for each session, and `interleaving_test` with
        `by="credit"`.

    Examples
    --------
    >>> design = optimized_interleaving(["d1", "d2", "d3"], ["d2", "d3", "d1"])
    >>> for shown in design.lists:
    ...     print(shown.documents, shown.credit.round(2), round(shown.probability, 2))
    ('d1', 'd2', 'd3') [ 0.67 -0.5  -0.17] 0.43
    ('d2', 'd1', 'd3') [-0.5   0.67 -0.17] 0.37
    ('d2', 'd3', 'd1') [-0.5  -0.17  0.67] 0.2
    """
    a, b = _rankings(ranking_a, ranking_b, k)
    if len(a) > _LONGEST:
        raise ValueError(
            f"k must be at most {_LONGEST}, because there are up to 2^k lists; got {len(a)}. Interleave "
            "fewer positions, or use team_draft."
        )
    lists = _allowed(a, b)
    credits_of = {d: _inverse_rank(a, d) - _inverse_rank(b, d) for d in {*a, *b}}
    credit = np.array([[credits_of[d] for d in shown] for shown in lists])
    sensitivity = _variances(credit)
    p = _most_sensitive(credit, sensitivity)
    kept = np.flatnonzero(p)
    designed = tuple(Interleaving(lists[i], credit[i], float(p[i])) for i in kept)
    return InterleavingDesign(designed, float(p @ sensitivity))


def _rankings(
    ranking_a: Sequence[Hashable], ranking_b: Sequence[Hashable], k: int | None
) -> tuple[list[Hashable], list[Hashable]]:
    """Return the first k documents of both rankings; raise a ValueError for short rankings and duplicates."""
    a, b = list(ranking_a), list(ranking_b)
    shorter = min(len(a), len(b))
    k = shorter if k is None else whole("k", k, 1)
    if not 1 <= k <= shorter:
        raise ValueError(
            f"ranking_a and ranking_b must have at least {max(k, 1)} documents, one per position; got "
            f"{len(a)} and {len(b)}."
        )
    for name, ranking in (("ranking_a", a), ("ranking_b", b)):
        if len(set(ranking)) < len(ranking):
            twice = next(d for i, d in enumerate(ranking) if d in ranking[:i])
            raise ValueError(f"{name} must have each document once; {twice!r} is in it twice.")
    return a[:k], b[:k]


def _next(ranking: list[Hashable], shown: Sequence[Hashable]) -> Hashable:
    return next(d for d in ranking if d not in shown)


def _allowed(a: list[Hashable], b: list[Hashable]) -> list[tuple[Hashable, ...]]:
    """Lists in which every document is the best remaining one of a ranking."""
    lists: list[tuple[Hashable, ...]] = [()]
    for _ in a:
        # A dictionary keeps one of two equal documents, in a reproducible order.
        lists = [(*shown, d) for shown in lists for d in dict.fromkeys((_next(a, shown), _next(b, shown)))]
    return lists


def _inverse_rank(ranking: list[Hashable], document: Hashable) -> float:
    return 1 / (1 + (ranking.index(document) if document in ranking else len(ranking)))


def _variances(credit: Floats) -> Floats:
    """Variance of the credit of one click on each list, at position i with probability prop. to 1 / i."""
    clicks = 1 / np.arange(1, credit.shape[1] + 1)
    clicks /= clicks.sum()
    variances: Floats = credit**2 @ clicks - (credit @ clicks) ** 2
    return variances


def _most_sensitive(credit: Floats, sensitivity: Floats) -> Floats:
    """Probabilities of the lists: expected credit 0 at every position, and the largest sensitivity."""
    from scipy.optimize import linprog

    L, k = credit.shape
    found = linprog(
        -sensitivity,
        A_eq=np.vstack([credit.T, np.ones(L)]),
        b_eq=np.append(np.zeros(k), 1.0),
        method="highs",
    )
    if found.status != 0:
        raise ValueError(
            f"ranking_a, ranking_b: no unbiased distribution over their {L} interleavings was found "
            f"({found.message}); use team_draft."
        )
    p = np.where(found.x > 1e-12, found.x, 0.0)
    probabilities: Floats = p / p.sum()
    return probabilities


@dataclass(frozen=True)
class InterleavingTest:
    """Result of an interleaving experiment: how often users preferred each of the two rankings.

    Attributes
    ----------
    wins : int
        Sessions of which the clicks favored A.
    losses : int
        Sessions of which they favored B.
    ties : int
        Sessions without a click, and those of which the clicks favored neither.
    preference : float
        Above 0 if A is preferred: (wins - losses) / sessions, or the mean credit per session.
    interval : tuple of float
        Confidence interval of the preference.
    p_value : float
        Probability of a preference at least as large, for A or B, if there were none.
    """

    wins: int
    losses: int
    ties: int
    preference: float
    interval: tuple[float, float]
    p_value: float


def interleaving_test(
    credits: ArrayLike, *, by: Literal["sessions", "credit"] = "sessions", level: float = 0.95
) -> InterleavingTest:
    """Test whether users prefer one of two interleaved rankings.

    Parameters
    ----------
    credits : array of shape (S,)
        Credit of each session, above 0 for A: `Interleaving.score` of its clicks.
    by : {"sessions", "credit"}, default "sessions"
        With "sessions", each session is for A, for B, or tied, and the test is the exact sign test of the
        sessions that are not tied. The interval is Clopper and Pearson's, for this number of ties. It suits
        team drafts, of which random clicks favor A and B equally often. With "credit", the mean credit is
        tested, by Student's t. It suits optimized interleaving, where random clicks have mean credit 0.
    level : float, default 0.95
        Confidence level of the interval.

    Returns
    -------
    InterleavingTest
        The preference, its interval and the p-value.

    Examples
    --------
    >>> found = interleaving_test([1] * 60 + [-1] * 40 + [0] * 100)
    >>> found.preference, round(found.p_value, 3)
    (0.1, 0.057)
    >>> [round(end, 3) for end in found.interval]
    [-0.003, 0.197]
    """
    one_of("by", by, ("sessions", "credit"))
    outside = (1 - _share("level", level)) / 2
    x = np.asarray(credits, dtype=np.float64)
    if x.ndim != 1 or len(x) < 2 or not np.isfinite(x).all():
        raise ValueError(
            "credits must have one finite number for each of two sessions or more; got "
            f"{'an entry that is not finite' if x.ndim == 1 and len(x) > 1 else f'shape {x.shape}'}."
        )
    wins, losses = int((x > 0).sum()), int((x < 0).sum())
    tested = _sign_test(wins, losses, len(x), outside) if by == "sessions" else _mean_test(x, outside)
    return InterleavingTest(wins, losses, len(x) - wins - losses, *tested)


def sessions_needed(preference: float, *, ties: float = 0.0, power: float = 0.8, level: float = 0.95) -> int:
    """Number of sessions after which a team draft is likely to show a preference of a given size.

    Parameters
    ----------
    preference : float
        (wins - losses) / sessions of the users, above 0.
    ties : float, default 0.0
        Share of sessions that are tied; those without a click are.
    power : float, default 0.8
        Probability that the test finds the preference, above 0.5.
    level : float, default 0.95
        The test finds it if its p-value is at most 1 - level and the preferred ranking has more wins.

    Returns
    -------
    int
        The smallest number of sessions from which on the exact sign test, as in `interleaving_test`, has the
        power. If more than about 20,000 sessions without ties are needed, a number that is slightly larger,
        by a normal approximation.

    Examples
    --------
    >>> sessions_needed(0.02, ties=0.6)
    7944
    """
    from scipy.special import ndtri

    decided = 1 - number("ties", ties, below=1)
    difference = number("preference", preference, above=True) / decided
    if difference >= 1:
        raise ValueError(
            f"preference must be below {decided:g}, the share of sessions that are not tied; got "
            f"{preference!r}."
        )
    if _share("power", power) <= 0.5:
        raise ValueError(f"power must be above 0.5; got {power!r}.")
    outside = (1 - _share("level", level)) / 2
    z = float(ndtri(power)) * math.sqrt(1 - difference**2) - float(ndtri(outside))
    # Of m sessions without ties, the expected difference of wins and losses must be z sqrt(m), and up to 2
    # more because the numbers are whole.
    m = ((z + math.sqrt(z * z + 8 * difference)) / (2 * difference)) ** 2
    if m > _EXACT:
        return math.ceil(m / decided)
    # Where next to all sessions are tied, the number of the others is Poisson, and only n * decided matters.
    scale = max(1.0, 1e-6 / decided)
    decided *= scale
    missed = partial(_missed, decided=decided, difference=difference, outside=outside)
    enough = math.ceil((m + 50 + 4 / difference) / decided)
    # With many ties, the number of sessions without ties hardly changes from one n to the next.
    return math.ceil(scale * _smallest(missed, 1 - power, enough, step=max(1, int(0.1 / decided))))


def _smallest(missed: Callable[[Integers], Floats], most: float, n: int, *, step: int) -> int:
    """Smallest number from which on the values of `missed` are not above `most`.

    n     A number above it, or else it is doubled.
    step  Difference of the numbers that are tried, between which `missed` decreases.
    """
    while missed(np.array([n], np.int64))[0] > most:
        n *= 2
    # Downward, because the values rise and fall with n where few sessions are tied.
    while True:
        tried = np.maximum(n - step * np.arange(_BLOCK, dtype=np.int64), 0)
        above = missed(tried) > most
        if above.any():
            break
        n = int(tried[-1])
    last = int(tried[np.argmax(above)])
    between = range(last + 1, last + step + 1)
    return between[bisect_left(between, True, key=lambda n: bool(missed(np.array([n], np.int64))[0] <= most))]


def _missed(n: Integers, *, decided: float, difference: float, outside: float) -> Floats:
    """Probability, for each number of sessions, that the sign test does not find the preferred ranking.

    decided     Share of sessions that are not tied, of which 1/2 + difference/2 favor that ranking.
    outside     Largest tail probability that is significant.
    """
    from scipy.special import gammaln, xlogy

    if decided == 1:
        return _missed_without_ties(n, difference, outside)
    mean = n * decided
    reach = 8 * math.sqrt(mean.max() * (1 - decided)) + 30
    m = np.arange(max(0, math.floor(mean.min() - reach)), min(n.max(), math.ceil(mean.max() + reach)) + 1)
    n = n[:, None]
    log_p = gammaln(n + 1.0) - gammaln(m + 1.0) - gammaln(n - m + 1.0)  # infinite for m > n
    log_p += xlogy(m, decided) + (n - m) * math.log1p(-decided)
    missed: Floats = np.exp(log_p) @ _missed_without_ties(m, difference, outside)
    return missed


def _missed_without_ties(m: Integers, difference: float, outside: float) -> Floats:
    """Probability that the sign test of m sessions without ties does not find the preferred ranking."""
    from scipy.special import bdtr, bdtrc, ndtri

    # The largest number of losses that is significant, or -1: by the normal approximation, then exactly.
    losses = np.floor((m - 1 + float(ndtri(outside)) * np.sqrt(m)) / 2)
    losses = np.maximum(losses, -1.0)
    while (more := bdtr(np.minimum(losses + 1, m), m, 0.5) <= outside).any():
        losses[more] += 1
    while (fewer := (losses >= 0) & (bdtr(np.maximum(losses, 0), m, 0.5) > outside)).any():
        losses[fewer] -= 1
    found = losses >= 0
    missed: Floats = np.where(found, bdtrc(np.maximum(losses, 0), m, (1 - difference) / 2), 1.0)
    return missed


def _share(name: str, value: float) -> float:
    return number(name, value, above=True, below=1)


def _sign_test(wins: int, losses: int, n: int, outside: float) -> tuple[float, tuple[float, float], float]:
    """(preference, interval, p-value) of n sessions."""
    from scipy.special import bdtr, betaincinv

    decided = wins + losses
    if decided == 0:
        raise ValueError(
            "credits: every session is tied, so nothing tells which ranking users prefer; log more sessions, "
            "or check that clicks arrive and that the two rankings differ."
        )
    low = betaincinv(wins, losses + 1, outside) if wins else 0.0
    high = betaincinv(wins + 1, losses, 1 - outside) if losses else 1.0
    interval = tuple(float((2 * end - 1) * decided / n) for end in (low, high))
    p_value = min(1.0, 2 * float(bdtr(min(wins, losses), decided, 0.5)))
    return (wins - losses) / n, (interval[0], interval[1]), p_value


def _mean_test(x: Floats, outside: float) -> tuple[float, tuple[float, float], float]:
    """(mean, interval, p-value) of the credits of sessions."""
    from scipy.special import stdtr, stdtrit

    if (x == x[0]).all():
        raise ValueError(
            f"credits: every session has the credit {x[0]:g}, so its variation cannot be estimated; log more "
            'sessions, or use by="sessions".'
        )
    mean, error = float(x.mean()), float(x.std(ddof=1)) / math.sqrt(len(x))
    half = -float(stdtrit(len(x) - 1, outside)) * error
    return mean, (mean - half, mean + half), 2 * float(stdtr(len(x) - 1, -abs(mean) / error))
