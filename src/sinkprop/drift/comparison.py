"""Comparison of new queries with a reference: differences, intervals and tests over queries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkprop.common.plain_data import plain_data
from sinkprop.data.queries import Queries
from sinkprop.drift.quantities import GROUPS, QUALITY, Key, Plan
from sinkprop.drift.reference import Blocks, Reference, Scorer, Summary, described_by, fingerprint
from sinkprop.experiment.significance import holm
from sinkprop.metrics.measures import parse_metrics

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["Change", "Drift", "compare"]

_FEW = 20  # expected number, in the smaller set, of values that differ from the most frequent one


@dataclass(frozen=True)
class Change:
    """Change of one quantity: its mean over the queries then and now, and whether chance explains it.

    Parameters
    ----------
    group : {"quality", "scores", "features"}
        Group of the quantity.
    name : str
        Name of the quantity, such as "ndcg@10" or "bm25: share missing".
    then, now : float
        Mean over the queries of the reference, and over the new ones.
    low, high : float
        Interval of 95 % for the difference ``now - then``, by Welch's method. It is for this quantity alone.
    p_value : float
        Two-sided p-value of the t-test of the means, or of the rank-sum test for scores and features, whose
        distributions may be skewed; NaN if there is nothing to test.
    adjusted : float
        The p-value corrected for the number of tests in the comparison.
    beyond_chance : bool
        Whether the corrected p-value is at most the level of the comparison.
    """

    group: str
    name: str
    then: float
    now: float
    low: float
    high: float
    p_value: float
    adjusted: float
    beyond_chance: bool

    @property
    def difference(self) -> float:
        """Change of the mean, ``now - then``."""
        return self.now - self.then


@dataclass(frozen=True, eq=False)
class Drift:
    """Result of `compare`.

    Parameters
    ----------
    changes : tuple of Change
        Every quantity, in the order of the reference.
    level : float
        Largest probability that any quantity is marked although nothing has changed.
    labeled : bool
        Whether the new queries have labels. Without, there is no group "quality".
    same_model : bool
        Whether the reference was made by the same model.
    n_queries : int
        Number of new queries.
    n_documents : int
        Number of new documents.
    reference : Reference
        The reference.
    distributions : dict
        Quantiles of the new scores at 0, 5, ..., 100 %.
    labels : dict
        Share of the new documents with each label; empty without labels.
    reliability : dict or None
        Forecast and observed relevance of the new documents in ten bins.
    """

    changes: tuple[Change, ...]
    level: float
    labeled: bool
    same_model: bool
    n_queries: int
    n_documents: int
    reference: Reference
    distributions: dict[str, Any]
    labels: dict[str, float]
    reliability: dict[str, Any] | None

    @property
    def beyond_chance(self) -> tuple[Change, ...]:
        """The changes beyond chance; the smallest corrected p-value comes first."""
        return tuple(sorted((c for c in self.changes if c.beyond_chance), key=lambda c: c.adjusted))

    def record(self) -> dict[str, Any]:
        """Convert the result to plain data for JSON; None stands for NaN.

        Returns
        -------
        dict
            All changes, and both descriptions of scores, labels and reliability.
        """
        then = self.reference
        sides = {
            "then": (then.n_queries, then.n_documents, then.distributions, then.labels, then.reliability),
            "now": (self.n_queries, self.n_documents, self.distributions, self.labels, self.reliability),
        }
        names = ("queries", "documents", "score_quantiles", "labels", "reliability")
        changes = [{**asdict(change), "difference": change.difference} for change in self.changes]
        record = {
            "level": self.level,
            "labeled": self.labeled,
            "same_model": self.same_model,
            "beyond_chance": len(self.beyond_chance),
            "convention": then.convention.name,
            "changes": changes,
            **{side: dict(zip(names, values, strict=True)) for side, values in sides.items()},
        }
        plain: dict[str, Any] = plain_data(record, finite=True)
        return plain


def compare(
    reference: Reference,
    scorer: Scorer,
    queries: Queries | StoredQueries,
    *,
    labeled: bool = True,
    level: float = 0.05,
    other_model: bool = False,
    blocks: Blocks | None = None,
) -> Drift:
    """Compare a model on new queries with its reference.

    The tests take a query as the unit, since its documents depend on one another. Metrics, labels and
    calibration are tested by the t-test of their means over queries, and scores and features by the rank-sum
    test of their values per query. Within each of these groups, p-values are corrected by Holm's
    method, and then multiplied by the number of groups. So if nothing has changed, the probability that any
    quantity is marked is at most `level`.

    Parameters
    ----------
    reference : Reference
        Description of the model on earlier queries.
    scorer : fitted ranker, or array of shape (N,)
        The same model, or new scores if the reference was made from scores.
    queries : Queries or StoredQueries
        New queries, at least ten. Queries that are in both sets count as different ones.
    labeled : bool, default True
        Whether the queries have labels. Without, only scores and features are compared.
    level : float, default 0.05
        Level of all tests together.
    other_model : bool, default False
        Whether to accept a reference that another model made.
    blocks : callable, optional
        Function that applies a function to every block of the queries, to show progress.

    Returns
    -------
    Drift
        The changes, marked if they are beyond chance.

    Examples
    --------
    >>> from sinkprop import datasets
    >>> from sinkprop.baselines import RegressionRanker
    >>> from sinkprop.drift import reference
    >>> fold = datasets.load_pydocs(1)
    >>> ranker = RegressionRanker(penalty=0.1, normalization="standard").fit(fold.train)
    >>> found = compare(reference(ranker, fold.vali), ranker, fold.test)
    >>> [change.name for change in found.beyond_chance]
    []
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1; got {level!r}.")
    model = fingerprint(scorer)
    if (model is None) != (reference.model is None):
        made = "scores" if reference.model is None else f"a {reference.model['kind']}"
        raise ValueError(f"the reference was made from {made}; give the same, or make a new reference.")
    same_model = model == reference.model
    if not same_model and not other_model:
        raise ValueError(
            f"the reference was made by another model, a {(reference.model or {})['kind']}; make a new "
            "reference with this model, or pass other_model=True to compare two models."
        )
    if labeled and not isinstance(queries, Queries):
        queries.require_labels("a comparison of metrics")
    plan = Plan(
        parse_metrics(reference.metrics),
        reference.convention,
        labeled,
        reference.categories,
        queries.n_queries,
        len(queries),
    )
    found, names = described_by(scorer, queries, plan, blocks=blocks)
    if names is not None and names != reference.features:
        raise ValueError(_other_features(names, reference.features or ()))
    return Drift(
        _changes(reference.quantities, found.values, level),
        level,
        labeled,
        same_model,
        queries.n_queries,
        len(queries),
        reference,
        found.distributions,
        found.labels,
        found.reliability,
    )


def _other_features(names: tuple[str, ...], known: tuple[str, ...]) -> str:
    missing = [name for name in known if name not in names]
    more = [name for name in names if name not in known]
    differences = (("lacks", missing), ("adds", more))
    parts = [f"{word} {', '.join(map(repr, own[:3]))}" for word, own in differences if own]
    what = " and ".join(parts) or "has them in another order"
    return f"the reference was made with other features: this model {what}; make a new reference."


def _changes(then: Mapping[Key, Summary], now: Mapping[Key, Any], level: float) -> tuple[Change, ...]:
    keys = [key for key in then if key in now]
    pairs = {key: (then[key], Summary.of(now[key], then[key].edges)) for key in keys}
    p = {key: (_t_test if key[0] == QUALITY else _rank_sum)(*pair) for key, pair in pairs.items()}
    tested = [group for group in GROUPS if any(key[0] == group and not math.isnan(p[key]) for key in keys)]
    adjusted: dict[Key, float] = {}
    for group in GROUPS:
        own = [key for key in keys if key[0] == group]
        values = np.minimum(holm([p[key] for key in own]) * max(len(tested), 1), 1.0)
        adjusted.update(zip(own, values.tolist(), strict=True))
    return tuple(
        Change(*key, a.mean, b.mean, *_interval(a, b), p[key], adjusted[key], bool(adjusted[key] <= level))
        for key, (a, b) in pairs.items()
    )


def _error(a: Summary, b: Summary) -> tuple[float, float]:
    """Standard error of the difference of two means, and its degrees of freedom; NaN if it is unknown."""
    if min(a.n, b.n) < 2:
        return math.nan, math.nan
    u, v = a.sd**2 / a.n, b.sd**2 / b.n
    if u + v == 0:
        return 0.0, math.nan
    return math.sqrt(u + v), (u + v) ** 2 / (u**2 / (a.n - 1) + v**2 / (b.n - 1))


def _interval(a: Summary, b: Summary) -> tuple[float, float]:
    from scipy.special import stdtrit

    error, freedom = _error(a, b)
    half = error * float(stdtrit(freedom, 0.975)) if error else error
    return b.mean - a.mean - half, b.mean - a.mean + half


def _t_test(a: Summary, b: Summary) -> float:
    """Two-sided p-value of the t-test; NaN if all values are equal, or too few are known.

    The larger one of Welch's, which allows for different variances, and of Student's, which does not trust
    the variance of a few values that happen to be alike.
    """
    from scipy.special import stdtr

    error, freedom = _error(a, b)
    away = abs(b.mean - a.mean)
    if math.isnan(error) or (error == 0 and away == 0):
        return math.nan
    if error == 0:
        return 0.0
    pooled = ((a.n - 1) * a.sd**2 + (b.n - 1) * b.sd**2) / (a.n + b.n - 2)
    student = math.sqrt(pooled * (1 / a.n + 1 / b.n))
    return float(2 * max(stdtr(freedom, -away / error), stdtr(a.n + b.n - 2, -away / student)))


def _rank_sum(a: Summary, b: Summary) -> float:
    """Two-sided p-value of the rank-sum test; values between the same quantiles of the reference are ties.

    If almost all queries share one value, it is that of Fisher's exact test of the share of this value.

    NaN if all values are ties, or too few are known.
    """
    from scipy.special import ndtr
    from scipy.stats import fisher_exact

    n, m = a.n, b.n
    both = a.counts + b.counts
    total = n + m
    ties = float((both.astype(np.float64) ** 3 - both).sum())
    if min(n, m) < 2 or both.max() == total:
        return math.nan
    largest = int(both.argmax())
    rest = total - int(both[largest])
    if rest < total / 2 and rest * min(n, m) / total < _FEW:
        # Few values differ from the one that most queries share. The normal approximation is then too sure,
        # so the shares of that value are compared exactly.
        shared = [[int(own.counts[largest]), own.n - int(own.counts[largest])] for own in (a, b)]
        return float(fisher_exact(shared)[1])
    ranks = np.cumsum(both) - (both - 1) / 2
    away = float(b.counts @ ranks) - m * (total + 1) / 2
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    return float(2 * ndtr(-max(abs(away) - 0.5, 0) / math.sqrt(variance)))
