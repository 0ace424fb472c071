"""Partitioned measures: ranking quality, and whether a width per document forecasts ranks better than one.

    python benchmarks/partitioned.py quality DIRS    NDCG@10 of rankers, by measure, scale and iterations
    python benchmarks/partitioned.py widths DIRS     log score of ranks, with one width and with own widths
    python benchmarks/partitioned.py sharpness       how sure of a ranking a measure can be, by its scale
    python benchmarks/partitioned.py times           value and gradient with a shared scale, in milliseconds

DIRS are folders of LETOR data sets with folds. Pydocs comes first, unless `--no-pydocs` is given.

"quality": `SinkPropRanker("ndcg@10", relaxation)`, with training and validation queries of each fold. A
line per measure, scale and number of iterations: the mean test NDCG@10 over the queries of all folds, its
difference from the smoothed indicator's with the standard error over the queries, the criterion of the
chosen stage on held-out queries (NDCG@1 to 10 by cross-validation over training and validation queries), and
the seconds of processor time per fit. `--families`, `--sigmas` and `--iterations` choose lines; the sigma
"own" means a scale per document. A line takes half a minute for pydocs.

"widths": forecasts of ranks from the scores x of a fitted linear ranker, standardized and centered within the
query. All models are fitted by maximum likelihood to the training queries of a fold: they minimize the log
score, -(1/n) sum_jk T[j, k] ln Pi[j, k], with the ideal matrix T, in which documents with equal labels share
their ranks. Scores of training and validation queries come from rankers that were fitted to the other
parts of these queries, in five parts. Pi has the columns normalized last, so that it is a distribution
over documents for each rank.

    indicator            smoothed indicator of b x; one parameter
    shared               partitioned measure at b x, with one sigma
    width by score       the same, with log s_j = c + v_1 x_j + v_2 x_j^2
    own width            width by score, with w'z_j added to log s_j, and z the standardized features
    location by score    shared, at b x_j + v x_j^2, with powers up to `--powers`
    both by score        width by score and location by score
    own location         both by score, with w'z_j added to b x_j + v x_j^2
    both                 own location, with features in log s_j, too
    mixture              `ranker.calibration_`, fitted to the first ten ranks of the same queries

The weights of features have a ridge penalty, chosen on the validation queries; an infinite one is among
the choices. Differences are over the test queries of all folds, with standard errors; below 0 is better. They
are shown for the chosen and for every penalty, for the ranks that are fitted (all, or the first ones with
`--ranks`) and for the first ten. "spread" is the standard deviation of log s over the test documents of a
fold, and "training" the difference from shared on training queries. Queries with more than `--longest`
documents are left out of the fit and of the choice, not of the test. About five minutes per family and set.

"sharpness": standard normal scores of 100 documents, times the factor for which the documents with the ten
highest scores are most probably among the first ten ranks: this probability, the factor, and the largest
deviation of a column sum from 1.

"times": expected NDCG@10 of one list and its gradient on one thread, with the scale .5: in linear time, with
the matrix, and with the smoothed indicator of the width 1. The smallest of several runs.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from itertools import pairwise

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.optimize import minimize

from sinkprop import PartitionedMeasure, SinkPropRanker, SmoothedIndicator, _native, evaluate, expected_gain
from sinkprop import doubly_stochastic as rank_probabilities
from sinkprop.calibration.ideal import ideal_ranks
from sinkprop.calibration.widths import log_score, query_means, typical_spread
from sinkprop.data.queries import Groups
from sinkprop.datasets import pydocs_folds
from sinkprop.experiment.folds.layout import find_data_sets
from sinkprop.torch import doubly_stochastic

FAMILIES = ("probit", "logit-logistic", "beta")
SIGMAS = (0.25, 0.5, 1.0, 2.0, "own")
ITERATIONS = (5, 5.5, "converged")
PENALTIES = (1.0, 0.1, 0.01)  # of the weights of features, from strong to weak
KINDS = {  # and the model that each contains
    "width by score": "shared",
    "own width": "width by score",
    "location by score": "shared",
    "both by score": "location by score",
    "own location": "both by score",
    "both": "own location",
}
N_ITER = 5.5  # of the forecasts
FIRST = 10  # ranks of the second log score
CELLS = 150_000  # largest number of matrix entries of one batch of queries


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("quality", "widths", "sharpness", "times"))
    parser.add_argument("data", metavar="DIRS", nargs="*", help="folders of LETOR data sets with folds")
    parser.add_argument("--no-pydocs", action="store_true", help="leave out the data set of the package")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=None)
    parser.add_argument("--sigmas", nargs="+", type=number_or("own"), default=SIGMAS, help="scales, and own")
    parser.add_argument("--iterations", nargs="+", type=number_or("converged"), default=ITERATIONS)
    parser.add_argument("--ranks", type=int, help="first ranks, which are fitted  [default: all]")
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--powers", type=int, default=2, help="powers of the score in locations")
    parser.add_argument("--longest", type=int, default=150, help="documents of a query of the fit, at most")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.part == "times":
        times()
        return
    if given.part == "sharpness":
        sharpness(given.families or FAMILIES, [s for s in given.sigmas if s != "own"], given.iterations)
        return
    for name, folds in data_sets(given):
        if given.part == "quality":
            quality(name, folds, given.families or FAMILIES, given.sigmas, given.iterations)
        else:
            widths(
                name,
                folds,
                given.families or FAMILIES[:2],
                given.kinds,
                given.longest,
                given.ranks,
                given.powers,
            )


def number_or(word):
    """Type of an argument that is a number or a word."""

    def read(text):
        return word if text == word else float(text) if "." in text else int(text)

    return read


def data_sets(given):
    if not given.no_pydocs:
        yield "pydocs", [(fold.train, fold.vali, fold.test) for fold in pydocs_folds()]
    for found in find_data_sets(*given.data) if given.data else ():
        parts = [fold.read() for fold in found.folds]
        yield found.name, [(part.train, part.vali, part.test) for part in parts]


def with_error(values):
    """Mean and standard error of values, one per query."""
    return f"{values.mean():+.4f} ({values.std(ddof=1) / math.sqrt(len(values)):.4f})"


def quality(name, folds, families, sigmas, iterations):
    """Print the table of one data set."""
    print(f"\n{name}: test NDCG@10, difference (standard error), held-out criterion, seconds per fit")
    base, text = cell(folds, SmoothedIndicator(), 5, None)
    print(f"  {'smoothed indicator':24}{5!s:>10}:  {text}", flush=True)
    for family in families:
        for sigma in sigmas:
            measure = PartitionedMeasure(family, sigma=None if sigma == "own" else sigma)
            for n_iter in iterations:
                text = cell(folds, measure, n_iter, base)[1]
                print(f"  {f'{family} {sigma}':24}{n_iter!s:>10}:  {text}", flush=True)


def cell(folds, relaxation, n_iter, base):
    """Test NDCG@10 (Q,) of the queries of all folds, and the text of a cell of the table."""
    values, held, seconds = [], [], []
    for train, vali, test in folds:
        began = time.process_time()
        ranker = SinkPropRanker("ndcg@10", relaxation, n_iter=n_iter, n_threads=1, verbose=False)
        ranker.fit(train, eval_set=vali)
        seconds.append(time.process_time() - began)
        held.append(next(stage.criterion for stage in ranker.fit_result_.stages if stage.chosen))
        result = evaluate(test.y, ranker.predict(test), test.qid, metrics=("ndcg@10",))
        values.append(result.per_query["ndcg@10"])
    found = np.concatenate(values)
    away = " " * 16 if base is None else with_error(found - base)
    return found, f"{found.mean():.4f}  {away}  {np.mean(held):.4f}  {np.mean(seconds):6.1f}"


def times():
    columns = ("linear time", "matrix")
    print(
        "| documents | " + " | ".join(f"{f}, {c}" for f in FAMILIES[:2] for c in columns) + " | indicator |"
    )
    print("|---" * 6 + "|")
    for n in (100, 300, 1000, 2000, 10_000, 100_000, 1_000_000):
        rng = np.random.default_rng(0)
        scores, labels = rng.normal(size=n), rng.integers(0, 4, n)
        row = []
        for family in FAMILIES[:2]:
            for method in ("sums", "direct"):
                if method == "direct" and n > 2000:
                    row.append(math.nan)
                    continue
                _native.use_method(method)
                row.append(milliseconds(scores, labels, PartitionedMeasure(family, sigma=0.5)))
        _native.use_method("auto")
        row.append(milliseconds(scores, labels, SmoothedIndicator(1.0)))
        print(f"| {n:,} | " + " | ".join("" if math.isnan(x) else f"{x:.2f}" for x in row) + " |", flush=True)


def milliseconds(scores, labels, relaxation):
    runs = []
    for _ in range(2 if len(scores) > 10_000 else 6):
        began = time.perf_counter()
        expected_gain(scores, labels, gain="ndcg@10", relaxation=relaxation, n_threads=1)
        runs.append(time.perf_counter() - began)
    return 1000 * min(runs)


def sharpness(families, sigmas, iterations):
    """Print how probable the best ranking can be made, for each measure and scale."""
    x = np.sort(np.random.default_rng(0).normal(size=100))[::-1]
    for family in families:
        for sigma in sigmas:
            print(f"  {f'{family} {sigma}':24}", end="")
            for n_iter in iterations:
                measure, found = PartitionedMeasure(family, sigma=sigma), []
                for factor in 2 ** np.arange(-1, 4.1, 0.5):
                    Pi = rank_probabilities(factor * x, relaxation=measure, n_iter=n_iter)
                    found.append((Pi[:10, :10].sum() / 10, factor, abs(Pi.sum(axis=0) - 1).max()))
                print("  {}: {:.2f} at {:5.2f}, {:.2f}".format(n_iter, *max(found)), end="")
            print(flush=True)


class Forecasts:
    """Scores, features and ideal ranks of some queries, in batches of queries of similar length.

    x, Z, labels have the rows of a query one after another, and groups says which.
    """

    def __init__(self, x, Z, labels, sizes, n_ranks=None, powers=2):
        self.Z = np.column_stack([Z, *(x * (x / 2) ** p for p in range(powers - 1, -1, -1))])
        self.features, self.powers = Z.shape[1], powers
        self.x, self.labels, self.groups, self.n_ranks = x, labels, Groups.of_sizes(sizes), n_ranks
        offsets, self.batches = self.groups.offsets, []
        order = np.argsort(sizes, kind="stable")
        while len(order):
            count = 1
            while count < len(order) and (count + 1) * sizes[order[count]] ** 2 <= CELLS:
                count += 1
            taken, order = order[:count], order[count:]
            self.batches.append(self._batch(taken, sizes, offsets))

    def _batch(self, taken, sizes, offsets):
        """Padded tensors of some queries: their rows, the mask, and T over the length of the query."""
        longest = sizes[taken].max()
        rows = np.zeros((len(taken), longest), dtype=np.int64)
        T = np.zeros((len(taken), longest, longest))
        for i, query in enumerate(taken):
            n, part = sizes[query], slice(offsets[query], offsets[query + 1])
            rows[i, :n] = np.arange(part.start, part.stop)
            ideal = ideal_ranks(self.labels[part], Groups.of_sizes(np.array([n])))
            fitted = n if self.n_ranks is None else min(self.n_ranks, n)
            documents, ranks, shares = ideal.cells(fitted)
            T[i, documents, ranks] = shares / fitted
        mask = np.arange(longest) < sizes[taken][:, None]
        return taken, *map(torch.from_numpy, (rows, mask, T))

    def select(self, wanted):
        """Forecasts of some of the queries (Q,)."""
        rows = wanted[self.groups.codes]
        Z, sizes = self.Z[:, : self.features], self.groups.sizes
        return Forecasts(self.x[rows], Z[rows], self.labels[rows], sizes[wanted], self.n_ranks, self.powers)


def terms(kind, p, data):
    """Terms of the location (N,) of the documents, and log s (N,)."""
    x, Z = torch.from_numpy(data.x), torch.from_numpy(data.Z)
    place, log_s = p[0].exp() * x, p[1].expand(len(x))
    wide, moved = columns_of(kind, data)
    weights = p[2:]
    if wide is not None:
        log_s = log_s + Z[:, wide] @ weights[: len(wide)]
        weights = weights[len(wide) :]
    if moved is not None:
        place = place + Z[:, moved] @ weights
    return place, log_s


def columns_of(kind, data):
    """Columns of Z (N, d) that enter log s, and those that enter the location. The last are powers of x."""
    features, d = range(data.features), data.Z.shape[1]
    score, powers = range(d - 2, d), range(data.features, d - 1)
    wide = {"width by score": score, "both by score": score, "own location": score}
    wide |= {kind: [*features, *score] for kind in ("own width", "both")}
    moved = dict.fromkeys(("location by score", "both by score"), powers)
    moved |= {kind: [*features, *powers] for kind in ("own location", "both")}
    return tuple(list(each[kind]) if kind in each else None for each in (wide, moved))


def penalized(kind, data):
    """Mask of the parameters with a penalty: the weights of features."""
    columns = [c for each in columns_of(kind, data) for c in each or ()]
    return np.array([False, False, *(c < data.features for c in columns)])


def parameters(kind, family, x, log_s):
    """Scores of documents, or parameters theta."""
    if kind == "indicator":
        return x
    if family == "beta":
        total = math.log(4) - 2 * log_s
        logsigmoid = torch.nn.functional.logsigmoid
        return torch.stack([total + logsigmoid(-x), total + logsigmoid(x)], dim=-1)
    return torch.stack([-x, log_s], dim=-1)


class Model:
    """A forecast of ranks with parameters log b, c and the weights of log s."""

    def __init__(self, kind, family, found=None):
        self.kind, self.family = kind, family
        self.relaxation = SmoothedIndicator() if kind == "indicator" else PartitionedMeasure(family)
        self.parameters = found

    def matrices(self, p, data):
        """Batches of queries with their Pi."""
        x, log_s = terms(self.kind, p, data)
        theta = parameters(self.kind, self.family, x, log_s)
        for taken, rows, mask, T in data.batches:
            settings = {"relaxation": self.relaxation, "n_iter": N_ITER, "epsilon": 1e-6}
            yield taken, T, mask, doubly_stochastic(theta[rows], mask=mask, **settings)

    def score(self, data):
        """Log scores (Q,) over the fitted ranks and the first ten, and log s of the documents."""
        with torch.no_grad():
            p = torch.from_numpy(self.parameters)
            fitted_ranks = np.empty(len(data.groups.sizes))
            Pi10 = np.zeros((len(data.x), FIRST))
            offsets = data.groups.offsets
            for taken, T, mask, Pi in self.matrices(p, data):
                fitted_ranks[taken] = cross_entropy(T, Pi).sum((1, 2)).numpy()
                for i, query in enumerate(taken):
                    n = int(mask[i].sum())
                    Pi10[offsets[query] : offsets[query + 1]] = Pi[i, :n, :FIRST].numpy()
            log_s = terms(self.kind, p, data)[1].numpy()
        return fitted_ranks, log_score(Pi10, data.labels, data.groups), log_s

    def fit(self, data, penalty, start, held=None, max_iter=100):
        """Fit the parameters; weights have the penalty, in units of the mean log score."""
        n, costly = len(data.groups.sizes), penalized(self.kind, data)

        def objective(values):
            p = torch.from_numpy(values).requires_grad_()
            total = 0.0
            gradient = np.zeros(len(values))
            for _, T, _, Pi in self.matrices(p, data):
                loss = cross_entropy(T, Pi).sum() / n
                gradient += torch.autograd.grad(loss, p, retain_graph=True)[0].numpy()
                total += loss.item()
            total += 0.5 * penalty * (values[costly] ** 2).sum()
            gradient[costly] += penalty * values[costly]
            return total, gradient

        limits = np.tile([-4.0, 4.0], (len(start), 1))
        if held is not None:
            limits[held] = 0
        found = minimize(
            objective, start, jac=True, method="L-BFGS-B",
            bounds=limits,
            options={"maxiter": max_iter, "ftol": 1e-10, "gtol": 1e-7, "maxcor": 30},
        )  # fmt: skip
        self.parameters = found.x
        return self


def cross_entropy(T, Pi):
    return -T * torch.where(T > 0, Pi, 1.0).clamp(min=1e-300).log()


def widths(name, folds, families, kinds, longest, ranks, powers):
    """Print the table of one data set."""
    began = time.process_time()
    tests = [Fold(*fold, longest, ranks, powers) for fold in folds]
    n = sum(len(test.test.groups.sizes) for test in tests)
    used, of = (sum(test.counts[i] for test in tests) for i in (0, 1))
    print(f"\n{name}: {n} test queries; {used} of {of} queries of the fits have at most {longest} documents")
    indicator = [test.fitted("indicator", "") for test in tests]
    yardsticks = {"uniform": [t.uniform() for t in tests], "mixture": [t.mixture() for t in tests]}
    yardsticks["indicator"] = [each.score(t.test)[:2] for each, t in zip(indicator, tests, strict=True)]
    for which, values in yardsticks.items():
        everything, first = (np.concatenate(each) for each in zip(*values, strict=True))
        print(
            f"  {which:24} log score, fitted ranks {everything.mean():.4f}, first ten {first.mean():.4f}",
            flush=True,
        )
    for family in families:
        family_rows(family, kinds, tests, yardsticks)
    print(f"  {time.process_time() - began:.0f} seconds of processor time")


def family_rows(family, kinds, tests, yardsticks):
    shared = [test.fitted("shared", family) for test in tests]
    base = [model.score(test.test)[:2] for model, test in zip(shared, tests, strict=True)]
    everything, first = (np.concatenate(each) for each in zip(*base, strict=True))
    at = [f"{np.exp(m.parameters[0]):.2f}/{np.exp(m.parameters[1]):.2f}" for m in shared]
    print(
        f"  {family} shared: fitted ranks {everything.mean():.4f}, first ten {first.mean():.4f}; b/sigma", *at
    )
    for which, others in yardsticks.items():
        compare(f"{which} - shared", others, base)
    models = {"shared": shared}
    values = {"shared": base}
    for kind in kinds:
        found = [t.path(kind, family, m) for t, m in zip(tests, shared, strict=True)]
        chosen = [t.choose(each) for t, each in zip(tests, found, strict=True)]
        models[kind] = [each[c] for each, c in zip(found, chosen, strict=True)]
        values[kind] = own_row(f"{kind} - shared", models[kind], shared, tests, base)
        if KINDS[kind] in values and KINDS[kind] != "shared":
            compare(f"{kind} - {KINDS[kind]}", values[kind], values[KINDS[kind]])
        if len(found[0]) > 1:
            print("      penalties chosen", *(f"{c:g}" for c in chosen))
            for penalty in PENALTIES:
                fixed = [each[penalty] for each in found]
                own_row(f"  penalty {penalty:g}", fixed, shared, tests, base)


def own_row(label, models, shared, tests, base):
    """Print the row of one model per fold, and return its log scores."""
    scores = [model.score(t.test) for model, t in zip(models, tests, strict=True)]
    compare(label, [each[:2] for each in scores], base, end=", ")
    log_s = np.concatenate([each[2] - each[2].mean() for each in scores])
    pairs = zip(models, shared, tests, strict=True)
    inside = [model.score(t.train)[0].mean() - one.score(t.train)[0].mean() for model, one, t in pairs]
    print(f"spread {log_s.std():.3f}, training {np.mean(inside):+.4f}", flush=True)
    return [each[:2] for each in scores]


def compare(label, values, base, end="\n"):
    """Print differences of log scores, which are lists of the folds' fitted and first ranks."""
    ours, others = ([np.concatenate(each) for each in zip(*v, strict=True)] for v in (values, base))
    print(f"    {label:34} fitted ranks {with_error(ours[0] - others[0])},", end=" ")
    print(f"first ten {with_error(ours[1] - others[1])}", end=end, flush=True)


class Fold:
    """Standardized scores and features of one fold; no query is one that its scores were trained on."""

    def __init__(self, train, vali, test, longest, ranks, powers):
        ranker = SinkPropRanker("ndcg@10", n_threads=1, verbose=False).fit(train, eval_set=vali)
        self.calibration, self.raw = ranker.calibration_, sorted_parts(test, ranker.predict(test))
        learned = held_out_scores((train, vali))
        scale = typical_spread(learned[0][1], Groups.of_sizes(learned[0][3]))
        mean, spread = train.X.mean(axis=0), train.X.std(axis=0)
        spread[spread == 0] = 1
        parts = []
        for X, scores, labels, sizes in (*learned, self.raw):
            groups = Groups.of_sizes(sizes)
            x = (scores - query_means(scores, groups)[groups.codes]) / scale
            parts.append(Forecasts(x, ((X - mean) / spread).clip(-4, 4), labels, sizes, ranks, powers))
        train, vali, self.test = parts
        self.counts = sum((p.groups.sizes <= longest).sum() for p in (train, vali)), train_count(train, vali)
        self.train, self.vali = (p.select(p.groups.sizes <= longest) for p in (train, vali))

    def fitted(self, kind, family):
        """Model without weights of features."""
        return Model(kind, family).fit(self.train, 0, np.zeros(2))

    def path(self, kind, family, shared):
        """Models by penalty, each started from the one before."""
        costly = penalized(kind, self.test)
        values = np.append(shared.parameters, np.zeros(len(costly) - 2))
        model = Model(kind, family).fit(self.train, 0, values, held=costly)
        found = {math.inf: model}
        for penalty in PENALTIES if costly.any() else ():
            found[penalty] = Model(kind, family).fit(self.train, penalty, model.parameters)
            model = found[penalty]
        return found

    def choose(self, models):
        """Penalty with the least log score on the validation queries."""
        return min(models, key=lambda penalty: models[penalty].score(self.vali)[0].mean())

    def uniform(self):
        score = np.log(self.test.groups.sizes)
        return score, score

    def mixture(self):
        """Log scores of the calibration of the ranker, over the fitted ranks and the first ten."""
        _, scores, labels, sizes = self.raw
        offsets = np.append(0, np.cumsum(sizes))
        values = []
        for a, b in pairwise(offsets):
            Pi = self.calibration.rank_distribution(scores[a:b])
            group = Groups.of_sizes(np.array([b - a]))
            values.append(
                [log_score(Pi[:, :k], labels[a:b], group)[0] for k in (self.test.n_ranks or b - a, FIRST)]
            )
        return tuple(np.array(values).T)


def train_count(*parts):
    return sum(len(part.groups.sizes) for part in parts)


def sorted_parts(queries, scores):
    """Features, scores, labels and sizes, with the rows of a query one after another."""
    order = np.argsort(queries.groups.codes, kind="stable")
    return queries.X[order], scores[order], queries.y[order], queries.groups.sizes


def held_out_scores(parts, n_parts=5):
    """Features, scores, labels and sizes of parts, with scores from rankers fitted to the others."""
    scores = [np.empty(len(part.y)) for part in parts]
    for k in range(n_parts):
        rest = [p.select(p.groups.queries[np.arange(p.n_queries) % n_parts != k]) for p in parts]
        ranker = SinkPropRanker("ndcg@10", n_threads=1, verbose=False).fit(rest[0], eval_set=rest[1])
        for part, found in zip(parts, scores, strict=True):
            rows = part.groups.codes % n_parts == k
            found[rows] = ranker.predict(part)[rows]
    return [sorted_parts(part, found) for part, found in zip(parts, scores, strict=True)]


if __name__ == "__main__":
    main()
