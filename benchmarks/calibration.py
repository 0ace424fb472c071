"""Calibration of rank probabilities and of relevance, and coverage of statements, on test queries.

    python benchmarks/calibration.py                 the data set of the package, and simulated queries
    python benchmarks/calibration.py DIR DIR ...     LETOR data sets with folds, too

For each fold, `SinkPropRanker` is fitted to the training queries with the validation queries as eval_set, and
its calibration, made by `fit`, is tested on the test queries. Numbers are over the test queries of all folds.
Simulated sets have 3,000 queries for the fit and 2,000 test queries.

"before" is the smoothed indicator with the sigma of the training, "after" the calibration. ECE is the
expected calibration error with ten bins of equal width. "floor" is the mean ECE of forecasts that are
perfectly calibrated: outcomes are drawn from the forecasts themselves. It is not 0 with few queries.

"log score" is the mean of -ln of the probability that was given to the ideal ranks, over the first ten ranks;
documents with equal labels share their ranks. Plackett-Luce has one temperature per fold, fitted to the same
held-out scores. Its probabilities of ranks come from 1,000 drawn rankings, each of which contributes exact
conditional probabilities. Differences are followed by their standard error over the queries; a positive
difference means that the calibration is better. Logistic and isotonic regression take the score alone.

"fixed k" is the shortest prefix, of the same length for all queries, that has the coverage that
`shortest_list` had on the test queries; between two lengths it is a mixture of both.
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from sinkprop import SinkPropRanker
from sinkprop.calibration.ideal import ideal_ranks
from sinkprop.calibration.reliability import reliability
from sinkprop.calibration.widths import RANKS, log_score
from sinkprop.data.queries import Groups
from sinkprop.datasets import make_ranking, pydocs_folds
from sinkprop.experiment.folds.layout import find_data_sets
from sinkprop.metrics.ranking import ranks_of

TOPS = (1, 3, 5, 10)
DRAWS = 1000


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DIR", nargs="*", help="folder of a LETOR data set with folds")
    parser.add_argument("--simulated", type=int, default=2, help="number of simulated sets  [default: 2]")
    options = parser.parse_args()
    report("pydocs", [(fold.train, fold.vali, fold.test) for fold in pydocs_folds()])
    for found in find_data_sets(*options.data) if options.data else ():
        parts = (fold.read() for fold in found.folds)
        report(found.name, [(part.train, part.vali, part.test) for part in parts])
    for seed in range(options.simulated):
        queries = make_ranking(5000, random_state=seed)
        parts = [some(queries, *bounds) for bounds in ((0, 2000), (2000, 3000), (3000, 5000))]
        report(f"simulated, seed {seed}", [parts])


def some(queries, first, last):
    return queries.select(queries.groups.queries[first:last])


def report(name, folds):
    """Print the figures of one data set."""
    tests = [Test(*fold) for fold in folds]
    n = sum(len(test.sizes) for test in tests)
    print(f"\n{name}: {n} test queries, calibrated on about {tests[0].calibration.n_queries} per fold in")
    print(f"{np.mean([test.seconds for test in tests]):.2f} s\n")
    print(f"{'event':<18}{'ECE before':>12}{'after':>8}{'floor':>8}{'forecast':>10}{'observed':>10}")
    events = [f"top {k}" for k in TOPS] + ["first is best"]
    events += sorted({event for test in tests for event in test.events} - set(events))
    for event in events:
        before, after, outcome = joined(test.events[event] for test in tests if event in test.events)
        unknown = np.isnan(before).any()
        text = "" if unknown else f"{reliability(before, outcome).error:.4f}"
        print(f"{event:<18}{text:>12}{reliability(after, outcome).error:8.4f}{floor(after):8.4f}", end="")
        print(f"{after.mean():10.4f}{outcome.mean():10.4f}")
    ours, uniform, luce = joined(test.ranks for test in tests)
    print(f"\nlog score of ranks {ours.mean():.4f}, uniform {uniform.mean():.4f}, Plackett-Luce", end=" ")
    print(f"{luce.mean():.4f}: {difference(luce, ours)}")
    for threshold in sorted({each for test in tests for each in test.relevance}):
        ours, logistic, isotonic = joined(t.relevance[threshold] for t in tests if threshold in t.relevance)
        print(
            f"log score of label >= {threshold:g} {ours.mean():.4f}, logistic {difference(logistic, ours)},"
        )
        print(f"    isotonic {difference(isotonic, ours)}")
    hit, size = joined(test.best for test in tests)
    print(f"best_set(coverage=.9): covers {hit.mean():.3f} with {size.mean():.1f} documents")
    inside, width = joined(test.intervals for test in tests)
    print(f"rank_interval(coverage=.9): covers {inside.mean():.3f} with {width.mean():.1f} ranks")
    for coverage in (0.8, 0.9, 0.95):
        shown = [test.lists[coverage] for test in tests if coverage in test.lists]
        if shown:
            length, found, first, size = joined(shown)
            fixed = fixed_length(found.mean(), first, size)
            print(
                f"shortest_list(coverage={coverage:g}): covers {found.mean():.3f} with {length.mean():.2f} ",
                end="",
            )
            print(f"documents, fixed k {fixed:.2f}: {length.mean() / fixed - 1:+.0%}")


class Test:
    """What a calibrated ranker says of test queries, and what is true."""

    def __init__(self, train, vali, test):
        ranker = SinkPropRanker(verbose=False).fit(train, eval_set=vali)
        held = ranker._calibrating
        began = time.process_time()
        self.calibration = calibration = ranker.calibration_
        self.seconds = time.process_time() - began
        order = np.argsort(test.groups.codes, kind="stable")
        y, scores, self.sizes = test.y[order], ranker.predict(test)[order], test.groups.sizes
        groups = Groups.of_sizes(self.sizes)
        codes, ideal, ranks = groups.codes, ideal_ranks(y, groups), ranks_of(scores, groups)
        first = ranks == 1
        self.events = {}
        for k in TOPS:
            before = ranker.top_k_probability(test, k, sigma=ranker.sigma_)[order]
            after = calibration.top_k_probability(scores, k, codes)
            self.events[f"top {k}"] = before, after, ideal.within(1, k)
        top = ranker.top_k_probability(test, 1, sigma=ranker.sigma_)[order]
        self.events["first is best"] = (
            top[first],
            calibration.confidence(scores, codes),
            ideal.first[first] == 1,
        )

        Pi = calibration.mixture.project(scores, groups, np.eye(min(RANKS, groups.longest), groups.longest))
        temperature = fitted_temperature(held.scores, held.labels, Groups.of_sizes(held.sizes))
        luce = plackett_luce(scores, y, groups, temperature)
        self.ranks = log_score(Pi, y, groups), np.log(self.sizes), luce

        self.relevance = {}
        for grade in calibration.grades.tolist():
            p = calibration.relevance_probability(scores, codes, threshold=grade)
            wanted, known = y >= grade, held.labels >= grade
            logistic = LogisticRegression(C=1e6).fit(held.scores[:, None], known)
            isotonic = IsotonicRegression(y_min=1e-4, y_max=1 - 1e-4, out_of_bounds="clip")
            isotonic.fit(held.scores, known)
            forecasts = p, logistic.predict_proba(scores[:, None])[:, 1], isotonic.predict(scores)
            self.relevance[grade] = tuple(of_queries(binary(q, wanted), groups) for q in forecasts)
            self.events[f"label >= {grade:g}"] = np.full(len(p), np.nan), p, wanted

        chosen = calibration.best_set(scores, codes, coverage=0.9)
        self.best = (
            of_queries(chosen & (ideal.first == 1), groups, np.maximum),
            of_queries(chosen, groups, np.add),
        )
        low, high = calibration.rank_interval(scores, codes, coverage=0.9).T
        self.intervals = of_queries(ideal.within(low, high), groups), of_queries(high - low + 1.0, groups)
        relevant = np.flatnonzero(of_queries(y >= 1, groups, np.maximum))
        firsts = of_queries(np.where(y >= 1, ranks, len(y)), groups, np.minimum)
        self.lists = {}
        for coverage in (0.8, 0.9, 0.95):
            if calibration.relevance[0].lists.n_queries >= coverage / (1 - coverage):
                shown = calibration.shortest_list(scores, codes, coverage=coverage)
                found = of_queries(shown & (y >= 1), groups, np.maximum)
                lengths = of_queries(shown, groups, np.add)
                self.lists[coverage] = tuple(
                    each[relevant].astype(float) for each in (lengths, found, firsts, self.sizes)
                )


def joined(parts):
    return tuple(np.concatenate(each).astype(float) for each in zip(*parts, strict=True))


def of_queries(values, groups, ufunc=None):
    """Mean of a value over the documents of each query, or the result of a ufunc."""
    if ufunc is None:
        return np.add.reduceat(values, groups.offsets[:-1]) / groups.sizes
    return ufunc.reduceat(np.asarray(values).astype(int), groups.offsets[:-1])


def difference(others, ours):
    away = others - ours
    return f"{away.mean():+.4f} ({away.std(ddof=1) / np.sqrt(len(away)):.4f})"


def floor(forecasts, draws=100):
    rng = np.random.default_rng(0)
    return np.mean(
        [reliability(forecasts, rng.random(len(forecasts)) < forecasts).error for _ in range(draws)]
    )


def binary(p, outcome):
    return -np.log(np.clip(np.where(outcome, p, 1 - p), 1e-12, 1))


def fixed_length(coverage, first, sizes):
    """Mean length of the prefixes of a fixed k whose coverage is the given one."""
    lengths = np.arange(0, int(first.max()) + 1)
    covers = np.array([(first <= k).mean() for k in lengths])
    means = np.array([np.minimum(sizes, k).mean() for k in lengths])
    rises = np.flatnonzero(np.diff(covers, prepend=-1.0) > 0)
    return float(np.interp(coverage, covers[rises], means[rises]))


def fitted_temperature(scores, labels, groups):
    """Temperature of the Plackett-Luce model with the least log score on some of the held-out queries."""
    taken = np.arange(len(groups.sizes)) % max(1, len(scores) // 15_000) == 0
    rows = np.repeat(taken, groups.sizes)
    x, y, part = scores[rows], labels[rows], Groups.of_sizes(groups.sizes[taken])
    found = minimize_scalar(
        lambda log: plackett_luce(x, y, part, np.exp(log), draws=200).mean(),
        bounds=(-4, 3),
        method="bounded",
        options={"xatol": 0.05},
    )
    return float(np.exp(found.x))


def plackett_luce(scores, labels, groups, temperature, draws=DRAWS):
    """Log score of each query: -sum_j T[j, k] ln P[j, k], averaged over the first ranks k."""
    rng, values = np.random.default_rng(0), []
    ideal = ideal_ranks(labels, groups)
    for a, b in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        n, K = b - a, min(RANKS, b - a)
        weights = np.exp((scores[a:b] - scores[a:b].max()) / temperature)
        drawn = np.argsort(-(np.log(weights + 1e-300) + rng.gumbel(size=(draws, n))), axis=1)[:, :K]
        left, P = np.tile(weights, (draws, 1)), np.empty((n, K))
        for k in range(K):
            P[:, k] = (left / np.maximum(left.sum(axis=1, keepdims=True), 1e-300)).mean(axis=0)
            left[np.arange(draws), drawn[:, k]] = 0
        ranks = np.arange(1, K + 1)
        share = (ideal.first[a:b, None] <= ranks) & (ranks <= ideal.last[a:b, None])
        T = share / (ideal.last - ideal.first + 1)[a:b, None]
        # every document gets a small share, as it does in the calibration
        values.append(-(T * np.log((1 - 1e-3) * P + 1e-3 / n)).sum() / K)
    return np.array(values)


if __name__ == "__main__":
    main()
