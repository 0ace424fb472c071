"""Simulated search data of any size, with the same bits for the same arguments on every machine.

This module uses only the raw bits of a generator and the operations that IEEE 754 rounds exactly (+, -, *,
/, the square root, comparisons). It does not use logarithms, exponentials, matrix products and NumPy's
distributions, because these may differ in the last bit from one machine or version to the next.
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any, SupportsIndex

import numpy as np

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Queries

__all__ = ["make_ranking"]


_KINDS = ("graded", "binary", "clicks")
_SHARES = (0.60, 0.22, 0.11, 0.05, 0.02)  # shares of the grades 0 to 4 among all documents
_FIELDS = ("title", "body", "anchor", "url")


def make_ranking(
    n_queries: SupportsIndex = 2000,
    *,
    labels: str = "graded",
    noise: float = 1.0,
    nonlinearity: float = 0.7,
    interactions: float = 0.0,
    sizes: tuple[SupportsIndex, SupportsIndex] = (5, 120),
    n_noise_features: SupportsIndex = 10,
    random_state: SupportsIndex = 0,
) -> Queries:
    """Simulate queries with features like those of search engines, and labels that depend on some of them.

    The labels are computed from the relevance of each document. The relevance is a number that is not part of
    the result: a function of some features, to which noise is added.

    Parameters
    ----------
    n_queries : int, default 2000
        Number of queries.
    labels : {"graded", "binary", "clicks"}, default "graded"
        Kind of labels. "graded": 0 to 4, given to .60, .22, .11, .05 and .02 of all documents, so that some
        queries have many relevant documents and some have none. "binary": 1 for the best one to three
        documents of each query, else 0. "clicks": 1 for documents that a user clicked in a list shown by an
        older ranker, else 0; documents further down are examined less often.
    noise : float, default 1.0
        Standard deviation of the noise, from 0 to 1e6. The unit is the spread, over all documents, of the
        relevance without noise.
    nonlinearity : float, default 0.7
        Weight, from 0 to 1, of a nonlinear relevance in its mixture with a linear one. At 0 the relevance is
        a weighted sum of features. At 1 it has saturation, thresholds, a best length, and features whose
        weight depends on the query or on each other.
    interactions : float, default 0.0
        Weight, from 0 to 1, of a relevance that depends on the other documents of the query. Above 0, there
        is one more feature, a price. Its level differs from query to query, and documents near the median
        price of their query are more relevant, so that no score of single documents can rank by it.
    sizes : (int, int), default (5, 120)
        Least and largest number of documents per query. Most queries are short: the mean number is about
        least + 0.3 (largest - least), which is about 39 for (5, 120).
    n_noise_features : int, default 10
        Number of features that are unrelated to the labels.
    random_state : int, default 0
        Seed of the data and of the features' weights in the relevance. Each seed gives a different task, so
        split the queries of one call into training and test queries.

    Returns
    -------
    Queries
        The documents, with feature names. Rows of a query are consecutive, and their order says nothing about
        their relevance; query ids count from 1.

    Notes
    -----
    The features are: four kinds of match scores for each of four document fields, all correlated; counts with
    heavy tails; features of the query alone; binary features; and noise. If a document lacks a field, each
    match score of the field is 0 or the lower limit of that score.

    Examples
    --------
    >>> queries = make_ranking(100, random_state=7)
    >>> queries.n_queries, queries.n_features, len(queries)
    (100, 44, 3851)
    >>> [int((queries.y == grade).sum()) for grade in range(5)]
    [2311, 847, 423, 193, 77]
    """
    count = _whole("n_queries", n_queries, 1)
    n_irrelevant = _whole("n_noise_features", n_noise_features, 0)
    seed = _whole("random_state", random_state, 0)
    try:
        least, largest = sizes
    except (TypeError, ValueError):
        raise ValueError(
            f"sizes must be the least and the largest size of a query, such as (5, 120); got {sizes!r}."
        ) from None
    least = _whole("sizes[0]", least, 1)
    largest = _whole("sizes[1]", largest, least)
    if labels not in _KINDS:
        raise ValueError(f"labels must be {', '.join(map(repr, _KINDS[:-1]))} or 'clicks'; got {labels!r}.")
    amount = _number("noise", noise, None)
    bend = _number("nonlinearity", nonlinearity, 1.0)
    among = _number("interactions", interactions, 1.0)

    draw = _Draws(seed)
    weights = 0.5 + draw.uniform(12)
    u = draw.uniform(count)
    n_docs = least + np.floor((largest - least + 1) * (u * u * (0.6 + 0.4 * u))).astype(np.int64)
    of = np.repeat(np.arange(count), n_docs)
    columns, parts = _features(draw, of, count)
    utility = (1 - bend) * _linear(parts, weights) + bend * _nonlinear(parts, weights)
    spread = _spread(utility)
    if among:
        # another stream of random numbers, so that the other features stay as they are
        columns["price"], typical = _prices(_Draws(seed + 2**32), of, n_docs)
        utility = (1 - among) * utility + among * (spread / _spread(typical)) * typical
        spread = _spread(utility)
    noisy = utility + amount * spread * draw.normal(len(of))
    if labels == "graded":
        y = _grades(noisy + 0.6 * spread * draw.normal(count)[of])
    elif labels == "binary":
        y = _best(noisy, of, n_docs, draw.uniform(count))
    else:
        y = _clicks(noisy, parts["old"], of, n_docs, draw)
    for i in range(n_irrelevant):
        columns[f"noise{i + 1}"] = _irrelevant(draw, i, of, count)
    X = np.stack(list(columns.values()), axis=1)
    return Queries(X, y, of + 1, feature_names=tuple(columns))


class _Draws:
    """Random numbers from a generator's raw bits, which are the same in every version of NumPy."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def uniform(self, n: int) -> Floats:
        """Uniform numbers in [0, 1), multiples of 2^-53."""
        raw = self._bits.random_raw(n)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, n: int) -> Floats:
        """Nearly normal numbers of mean 0 and variance 1: scaled sums of six uniform numbers.

        Their distribution function differs from that of the normal distribution by less than 0.005.
        """
        total = self.uniform(n)
        for _ in range(5):
            total = total + self.uniform(n)
        normal: Floats = np.sqrt(2.0) * (total - 3.0)
        return normal

    def heavy(self, n: int) -> Floats:
        """Heavy-tailed numbers 1 / sqrt(u) - 1, u uniform: half are below .42, one in 10,000 above 99."""
        return 1.0 / np.sqrt(1.0 - self.uniform(n)) - 1.0


def _squash(x: Floats) -> Floats:
    return x / (1.0 + np.abs(x))


def _features(draw: _Draws, of: Integers, count: int) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return two dicts {name: (N,)}: the features, and the quantities from which labels are computed.

    The quantities are functions of the features.

    of     Index of each row's query.
    count  Number of queries.
    """
    n = len(of)
    # properties of the query
    n_words = 1.0 + np.floor(6.0 * draw.uniform(count) * draw.uniform(count))
    rarity = 0.5 + draw.uniform(count)
    frequency = np.floor(20.0 * draw.heavy(count))
    navigational, news = draw.uniform(count), draw.uniform(count)
    news = news * news
    words, rare, home_wanted, fresh_wanted = n_words[of], rarity[of], navigational[of], news[of]
    # hidden properties of the document, which its features reflect
    topic, quality = draw.normal(n), draw.uniform(n)
    standing = np.sqrt(12.0) * (quality - 0.5)

    columns: dict[str, Floats] = {}
    match: dict[str, Floats] = {}
    covered: dict[str, Floats] = {}
    there = {
        "title": draw.uniform(n) < 0.95,
        "body": np.ones(n, dtype=bool),
        "anchor": draw.uniform(n) < 0.2 + 0.6 * quality,
        "url": draw.uniform(n) < 0.6,
    }
    shared = {"title": 0.7, "body": 0.8, "anchor": 0.5, "url": 0.4}
    for field in _FIELDS:
        own = shared[field] * topic + np.sqrt(1.0 - shared[field] * shared[field]) * draw.normal(n)
        has = there[field]
        match[field] = np.where(has, np.maximum(0.0, own + 1.2), 0.0) * rare
        part = np.floor(np.clip(0.5 + 0.3 * own + 0.2 * draw.normal(n), 0.0, 1.0) * words + 0.5) / words
        covered[field] = np.where(has, part, 0.0)
        columns[f"{field}_bm25"] = 8.0 * match[field]
        columns[f"{field}_lm"] = np.where(has, 6.0 * _squash(own + 0.3 * draw.normal(n)) - 10.0, -16.0)
        columns[f"{field}_covered"] = covered[field]
        columns[f"{field}_count"] = np.floor(covered[field] * words * (1.0 + 2.0 * draw.heavy(n)))

    length = np.floor(120.0 * (1.0 + draw.heavy(n)) * (0.5 + draw.uniform(n)))
    age = np.floor(40.0 * draw.heavy(n) / (1.0 - 0.9 * draw.uniform(n)))
    columns["authority"] = standing + 0.2 * draw.normal(n)
    columns["links"] = np.floor(4.0 * quality / (1.0001 - quality) * (0.5 + draw.uniform(n)))
    columns["visits"] = np.floor((2.0 + topic + standing) * (2.0 + topic + standing) * draw.heavy(n))
    columns["length"] = length
    columns["age"] = age
    exact = (covered["title"] == 1.0) & (draw.uniform(n) < 0.6)
    home = draw.uniform(n) < 0.02 + 0.1 * quality
    spam = draw.uniform(n) < 0.15 * (1.0 - quality)
    known_language = draw.uniform(n) < 0.9
    for name, flag in {"exact": exact, "home": home, "spam": spam, "language": known_language}.items():
        columns[name] = flag.astype(np.float64)
    columns["dwell"] = np.where(columns["visits"] > 0, 30.0 * (1.0 + _squash(topic)) * draw.uniform(n), 0.0)
    columns["depth"] = np.where(home, 0.0, 1.0 + np.floor(5.0 * draw.uniform(n) * draw.uniform(n)))
    columns["words"] = words
    columns["rarity"] = rare
    columns["frequency"] = frequency[of]
    columns["navigational"] = home_wanted
    columns["news"] = fresh_wanted
    columns["rare_body_match"] = columns["body_bm25"] * rare  # a function of two other columns
    columns["anchor_there"] = there["anchor"].astype(np.float64)

    parts = {f"match_{field}": match[field] for field in _FIELDS}
    parts |= {f"covered_{field}": covered[field] for field in _FIELDS}
    parts |= {name: columns[name] for name in ("authority", "exact", "home", "spam", "language", "depth")}
    parts |= {"words": words, "navigational": home_wanted, "news": fresh_wanted}
    parts["visited"] = columns["visits"] / (columns["visits"] + 5.0)
    parts["fresh"] = 30.0 / (30.0 + age)
    parts["off_length"] = 3.0 * _squash((length - 200.0) / 200.0)
    parts["old"] = match["body"] + 0.5 * match["title"] + 0.3 * columns["authority"]
    return columns, parts


def _linear(p: dict[str, Floats], w: Floats) -> Floats:
    total: Floats = (
        w[0] * p["match_body"]
        + w[1] * p["match_title"]
        + 0.6 * w[2] * p["match_anchor"]
        + 0.4 * w[3] * p["match_url"]
        + 0.5 * w[4] * p["authority"]
        + w[5] * p["covered_body"]
        + w[6] * p["visited"]
        + 0.7 * w[7] * p["exact"]
        - w[8] * p["spam"]
        + 0.7 * w[9] * p["fresh"]
        - 0.2 * w[10] * p["depth"]
        + w[11] * p["language"]
    )
    return total


def _nonlinear(p: dict[str, Floats], w: Floats) -> Floats:
    short = p["words"] <= 2.0
    bend = p["off_length"] * p["off_length"]
    match = (
        3.0 * w[0] * _squash(p["match_body"])
        + w[1] * p["match_title"] * np.where(short, 1.5, 0.5)
        + 1.2 * w[2] * np.minimum(p["match_anchor"], p["match_body"])
        + 1.5 * w[5] * p["covered_body"] * p["covered_title"]
        + 0.8 * w[3] * ((p["match_url"] > 1.0) & short)
    )
    kind = (
        w[4] * p["authority"] * (2.0 * p["navigational"])
        + 2.0 * w[7] * (p["home"] * p["navigational"])
        + 1.5 * w[7] * ((p["exact"] > 0) & (p["navigational"] > 0.5))
        + 3.0 * w[9] * p["fresh"] * p["news"]
        + 1.5 * w[6] * p["visited"] * (p["match_body"] > 0.8)
        - 1.5 * w[10] * bend / (1.0 + bend)
    )
    # a page in another language, or spam, has little value even if it matches well
    bad = 2.5 * w[8] * p["spam"] * (p["authority"] < 0.0)
    total: Floats = (match + kind) * (0.4 + 0.6 * p["language"]) - bad
    return total


def _prices(draw: _Draws, of: Integers, n_docs: Integers) -> tuple[Floats, Floats]:
    """Return the price of each document, and how near it is to the median of its query: 0 at the median.

    of      Index of each row's query.
    n_docs  Number of documents of each query.
    """
    n = len(of)
    level = 1.0 / (0.01 + draw.uniform(len(n_docs)))
    price = level[of] * (0.25 + draw.uniform(n)) / (0.25 + draw.uniform(n))
    order = np.lexsort((price, of))
    median = price[order[np.cumsum(n_docs) - n_docs + (n_docs - 1) // 2]][of]
    return price, -_squash(2.0 * np.abs(price - median) / np.minimum(price, median))


def _spread(x: Floats) -> float:
    """Return half the distance between the quantiles .16 and .84 of x, or 1 if it is 0.

    For normally distributed numbers, this is the standard deviation.
    """
    ordered = np.sort(x)
    last = len(x) - 1
    spread = 0.5 * float(ordered[(84 * last) // 100] - ordered[(16 * last) // 100])
    return spread if spread > 0 else 1.0


def _grades(relevance: Floats) -> Floats:
    """Convert relevance to grades 0 to 4, so that grade i has the share _SHARES[i] of all documents."""
    ordered = np.sort(relevance)
    y = np.zeros(len(relevance))
    share = 0.0
    for below in _SHARES[:-1]:
        share += below
        y += relevance > ordered[int(np.floor(share * (len(ordered) - 1)))]
    return y


def _places(scores: Floats, of: Integers, n_docs: Integers) -> Integers:
    """Position of each document in its query by decreasing score, 0 for the highest score: (N,).

    of      Index of each row's query.
    n_docs  Number of documents of each query.
    """
    order = np.lexsort((-scores, of))
    places = np.empty(len(of), dtype=np.int64)
    places[order] = np.arange(len(of)) - np.repeat(np.cumsum(n_docs) - n_docs, n_docs)
    return places


def _best(relevance: Floats, of: Integers, n_docs: Integers, u: Floats) -> Floats:
    """Return the label 1 for the most relevant documents of each query, and 0 for all others.

    The number of documents with label 1 is one with probability 0.7, two with probability 0.2, and three with
    probability 0.1. The uniform random numbers `u`, one per query, determine it.
    """
    how_many = 1 + (u < 0.3).astype(np.int64) + (u < 0.1)
    return (_places(relevance, of, n_docs) < how_many[of]).astype(np.float64)


def _clicks(relevance: Floats, old: Floats, of: Integers, n_docs: Integers, draw: _Draws) -> Floats:
    """Return the label 1 for documents that a user examined and clicked, and 0 for all others.

    Documents are shown in the order of the older ranker's scores `old`, with noise. Those further down are
    examined less often.
    """
    n = len(of)
    shown = _places(old + 0.5 * draw.normal(n), of, n_docs)
    looked_at = draw.uniform(n) < 1.0 / (1.0 + 0.3 * shown)
    excess = (relevance - np.sort(relevance)[(7 * (n - 1)) // 10]) / _spread(relevance)
    attractive = draw.uniform(n) < np.maximum(0.03, _squash(np.maximum(excess, 0.0)) * 1.6)
    return (looked_at & attractive).astype(np.float64)


def _irrelevant(draw: _Draws, i: int, of: Integers, count: int) -> Floats:
    """Return the values (N,) of noise feature number i. There are five kinds; it has kind i modulo 5.

    of     Index of each row's query.
    count  Number of queries.
    """
    kind, n = i % 5, len(of)
    if kind == 0:
        return draw.normal(n)
    if kind == 1:
        return np.floor(10.0 * draw.heavy(n))
    if kind == 2:
        return draw.uniform(count)[of]
    if kind == 3:
        return (draw.uniform(n) < 0.2).astype(np.float64)
    return np.where(draw.uniform(n) < 0.3, draw.uniform(n), 0.0)


def _whole(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number; got {value!r}.") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}; got {number}.")
    return number


def _number(name: str, value: Any, most: float | None) -> float:
    expected = "a finite number from 0" if most is None else f"a number from 0 to {most:g}"
    if not isinstance(value, Real) or not 0 <= float(value) <= (1e6 if most is None else most):
        raise ValueError(f"{name} must be {expected}{' to 1e6' if most is None else ''}; got {value!r}.")
    return float(value)
