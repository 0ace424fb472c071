"""The numbers per query that a reference keeps: metrics, labels, calibration, scores and features.

The documents of a query depend on one another, and scores are comparable only within a query. So every
quantity has one value per query, and a test compares the values of many queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.calibration import RankCalibration, reliability
from sinkprop.calibration.guarantees import least_queries
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups, Queries
from sinkprop.metrics.conventions import Convention
from sinkprop.metrics.evaluation import values_by_query
from sinkprop.metrics.measures import Metric

__all__ = [
    "FEATURES",
    "GROUPS",
    "LEVELS",
    "MOST_CATEGORIES",
    "QUALITY",
    "SCORES",
    "Description",
    "Key",
    "Plan",
    "described",
]

QUALITY, SCORES, FEATURES = GROUPS = ("quality", "scores", "features")
COVERAGE = 0.9  # of the sets that should hold a best document
MOST_QUERIES = 10_000  # more queries add little to what the tests of features can see
MOST_CATEGORIES = 30  # per feature; the others count together
_MOST_ROWS = 100_000  # rows whose scores are kept for quantiles and reliability
_DIGITS = 10  # significant digits: sums in another order must not make another value
_NOTHING = 1e-10  # share of the size of the values below which a mean or a deviation is rounding
LEVELS = np.linspace(0, 1, 21)

Key = tuple[str, str]


@dataclass(frozen=True)
class Plan:
    """The contents of a description, and its sizes.

    metrics      Metrics of the rankings.
    convention   Their convention; `max_grade` is set if a metric needs it.
    labeled      Whether the queries have labels.
    categories   Categories of each categorical feature, as text, whose shares are described.
    n_queries    Number of queries of all blocks.
    n_documents  Number of documents of all blocks.
    """

    metrics: tuple[Metric, ...]
    convention: Convention
    labeled: bool
    categories: Mapping[str, Sequence[str]]
    n_queries: int
    n_documents: int


@dataclass(frozen=True, eq=False)
class Description:
    """Numbers per query, and summaries of all documents.

    values         Values per query of each quantity, by its group and its name; NaN where it is undefined.
    distributions  Quantiles of the scores of a sample of the documents at 0, 5, ..., 100 %.
    labels         Share of the documents with each label; empty without labels.
    reliability    Forecast and observed relevance in ten bins; None without labels or calibration.
    """

    values: dict[Key, Floats]
    distributions: dict[str, Floats]
    labels: dict[str, float]
    reliability: dict[str, Any] | None


def described(
    blocks: Iterable[tuple[Queries, Floats]],
    plan: Plan,
    *,
    calibration: RankCalibration | None = None,
    names: Sequence[str] | None = None,
) -> Description:
    """Describe queries, which arrive in blocks of whole queries with the scores of their documents.

    calibration  Calibration of the scores, for probabilities.
    names        Names of the features of every block; None leaves features out.
    """
    found: dict[Key, list[Floats]] = {}
    raw, centered, forecasts, outcomes = [], [], [], []
    labels: dict[float, int] = {}
    step, every = -(-plan.n_documents // _MOST_ROWS), -(-plan.n_queries // MOST_QUERIES)
    done = 0
    for queries, scores in blocks:
        order = slice(None) if queries.groups.rows is None else queries.groups.rows
        groups, x, y = queries.groups.sorted, scores[order], queries.y[order]
        quantities = dict(_of_scores(x, groups))
        if plan.labeled:
            quantities |= _of_labels(x, y, groups, plan)
            for label, n in zip(*np.unique(y, return_counts=True), strict=True):
                labels[float(label)] = labels.get(float(label), 0) + int(n)
        if calibration is not None:
            quantities |= _of_probabilities(calibration, x, y, groups, labeled=plan.labeled)
        if names is not None:
            taken = np.flatnonzero((done + np.arange(len(groups.sizes))) % every == 0)
            if len(taken):
                quantities |= _of_features(queries, order, taken, names, plan.categories)
        for key, values in quantities.items():
            found.setdefault(key, []).append(values)
        raw.append(x[::step])
        centered.append((x - np.repeat(_means(x, groups), groups.sizes))[::step])
        if plan.labeled and calibration is not None and calibration.relevance:
            forecasts.append(calibration.relevance_probability(x, groups.codes)[::step])
            outcomes.append((y >= 1)[::step].astype(np.float64))
        done += len(groups.sizes)
    total = sum(labels.values())
    return Description(
        {key: _rounded(np.concatenate(values)) for key, values in found.items()},
        {
            "score": np.quantile(np.concatenate(raw), LEVELS),
            "score minus the query's mean": np.quantile(np.concatenate(centered), LEVELS),
        },
        {f"{label:g}": labels[label] / total for label in sorted(labels)},
        reliability(np.concatenate(forecasts), np.concatenate(outcomes)).record() if forecasts else None,
    )


def _rounded(values: Floats) -> Floats:
    """Round to significant digits, so that sums in another order give the same values."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        digits = _DIGITS - 1 - np.floor(np.log10(np.abs(values)))
        factor = 10.0 ** np.clip(digits, -300, 300)
        rounded = np.round(values * factor) / factor
    return np.where(np.isfinite(rounded), rounded, values)


def _sums(values: NDArray[Any], groups: Groups) -> Floats:
    sums: Floats = np.add.reduceat(values, groups.offsets[:-1], axis=0, dtype=np.float64)
    return sums


def _means(values: NDArray[Any], groups: Groups) -> Floats:
    return _sums(values, groups) / groups.sizes


def _moments(values: Floats, groups: Groups) -> tuple[Floats, Floats, Floats]:
    """Number of present values per query, their mean and their standard deviation; NaN if there are none.

    A mean or a deviation that is no more than rounding is 0, so that it is the same in every order of sums.
    """
    present = ~np.isnan(values)
    count = _sums(present, groups)
    some = np.where(count > 0, count, np.nan)
    known = np.where(present, values, 0.0)
    size = _sums(np.abs(known), groups) / some
    mean = _sums(known, groups) / some
    mean[np.abs(mean) < _NOTHING * size] = 0.0
    away = np.where(present, values - np.repeat(mean, groups.sizes), 0.0)
    spread = np.sqrt(_sums(np.square(away), groups) / some)
    spread[spread < _NOTHING * size] = 0.0
    return count, mean, np.where(count > 1, spread, np.nan)


def _of_scores(x: Floats, groups: Groups) -> Iterator[tuple[Key, Floats]]:
    _, means, spread = _moments(x, groups)
    order = np.lexsort((x, groups.codes))
    again = np.zeros(len(x))
    again[1:] = (np.diff(x[order]) == 0) & (np.diff(groups.codes[order]) == 0)
    yield (SCORES, "mean score"), means
    yield (SCORES, "spread of the scores"), spread
    yield (SCORES, "share of tied scores"), _means(again, groups)
    yield (SCORES, "documents per query"), groups.sizes.astype(np.float64)


def _of_probabilities(
    calibration: RankCalibration, x: Floats, y: Floats, groups: Groups, *, labeled: bool
) -> dict[Key, Floats]:
    found: dict[Key, Floats] = {}
    codes = groups.codes
    if calibration.best is not None:
        found[SCORES, "confidence in the first document"] = calibration.confidence(x, codes)
    if calibration.relevance:
        p = calibration.relevance_probability(x, codes)
        found[SCORES, "expected share of relevant documents"] = _means(p, groups)
        if labeled:
            relevant = y >= 1
            found[QUALITY, "calibration: observed - expected relevance"] = _means(relevant - p, groups)
            score = -np.log(np.clip(np.where(relevant, p, 1 - p), 1e-12, None))
            found[QUALITY, "calibration: log score of relevance"] = _means(score, groups)
    if labeled and calibration.best is not None:
        low, high = np.minimum, np.maximum
        if calibration.best.sets.n_queries >= least_queries(COVERAGE):
            best = y == np.repeat(high.reduceat(y, groups.offsets[:-1]), groups.sizes)
            held = _sums(calibration.best_set(x, codes, coverage=COVERAGE) & best, groups) > 0
            differ = low.reduceat(y, groups.offsets[:-1]) < high.reduceat(y, groups.offsets[:-1])
            name = f"calibration: {COVERAGE:.0%} set holds a best document"
            found[QUALITY, name] = np.where(differ, held, np.nan)
    return found


def _of_labels(x: Floats, y: Floats, groups: Groups, plan: Plan) -> dict[Key, Floats]:
    values = values_by_query(y, x, groups, plan.metrics, plan.convention)
    found = {(QUALITY, name): own for name, own in values.items()}
    found[QUALITY, "mean label"] = _means(y, groups)
    found[QUALITY, "share of labels >= 1"] = _means(y >= 1, groups)
    return found


def _of_features(
    queries: Queries,
    order: Any,
    taken: NDArray[Any],
    names: Sequence[str],
    categories: Mapping[str, Sequence[str]],
) -> dict[Key, Floats]:
    """Mean, spread and share of missing values per query of each feature, or the shares of its categories."""
    groups = queries.groups.sorted
    sizes = groups.sizes[taken]
    own = Groups.of_sizes(sizes)
    within = np.arange(int(own.offsets[-1])) - np.repeat(own.offsets[:-1], sizes)
    rows = np.repeat(groups.offsets[:-1][taken], sizes) + within
    if not isinstance(order, slice):
        rows = order[rows]
    found: dict[Key, Floats] = {}
    for column, name in enumerate(names):
        values = queries.X[rows, column].astype(np.float64)
        count, mean, spread = _moments(values, own)
        found[FEATURES, f"{name}: share missing"] = 1 - count / sizes
        if name in categories:
            some = np.where(count > 0, count, np.nan)
            found |= _of_categories(queries, name, values, categories[name], own, some)
        else:
            found[FEATURES, f"{name}: mean"] = mean
            found[FEATURES, f"{name}: spread"] = spread
    return found


def _of_categories(
    queries: Queries, name: str, codes: Floats, known: Sequence[str], own: Groups, some: Floats
) -> dict[Key, Floats]:
    texts = [str(value) for value in queries.categories.get(name, ())]
    shares, rest = {}, np.ones(len(some))
    for category in known:
        code = texts.index(category) if category in texts else -1
        share = _sums(codes == code, own) / some
        shares[FEATURES, f"{name}: share of {category}"] = share
        rest = rest - share
    shares[FEATURES, f"{name}: share of other categories"] = np.where(rest < 1e-9, 0 * some, rest)
    return shares
