"""Partitioned measures: ranking quality, and whether a width per document forecasts ranks better than one.

    python benchmarks/partitioned.py quality DIRS    NDCG@10 of linear rankers, by measure, scale and iterations
    python benchmarks/partitioned.py widths DIRS     log score of ranks, with one width and with own widths

DIRS are folders of LETOR data sets with folds. Pydocs comes first, unless `--no-pydocs` is given.

"quality": `SinkPropRanker("ndcg@10", relaxation)`, with the training and validation queries of each fold. One
row per measure and scale, one column per number of iterations. A cell has the mean test NDCG@10 over the
queries of all folds, its difference from the smoothed indicator's with the standard error over the queries, the
criterion of the chosen stage on held-out queries (NDCG@1 to 10 by cross-validation over training and
validation queries), and the seconds of processor time per fit. `--families`, `--sigmas` and `--iterations`
choose cells; the sigma "own" means a scale per document. Everything takes hours, a cell of pydocs a minute.

"widths": forecasts of ranks from the scores x of a fitted linear ranker, standardized and centered within the
query. All models are fitted by maximum likelihood to the training queries of a fold: they minimize the log
score, -(1/n) sum_jk T[j, k] ln Pi[j, k], with the ideal matrix T, in which documents with equal labels share
their ranks. Scores of training and validation queries come from rankers that were fitted to the other
parts of these queries, in five parts. Pi has the columns normalized last, so that it is a distribution
over documents for each rank.

    indicator      smoothed indicator of b x; one parameter
    shared         partitioned measure at b x, with one sigma
    by score       the same, with log s_j = c + w_1 x_j + w_2 x_j^2
    own            the same, with log s_j = c + w'z_j + v_1 x_j + v_2 x_j^2, and z the standardized features
    location       shared, with w'z_j + v_1 x_j + v_2 x_j^2 added to b x_j instead: the features move the document
    both           the features in both places
    mixture        `ranker.calibration_`, fitted to the first ten ranks of training and validation queries

The weights have a ridge penalty, chosen on the validation queries; an infinite penalty, which is "shared", is
one of the choices. Differences are over the test queries of all folds, with standard errors; below 0 is better.
They are shown for the chosen and for every penalty, for all ranks, which are fitted, and for the first ten.
"spread" is the standard deviation of log s over the test documents. Queries with more than `--longest`
documents are left out of the fit and of the choice, not of the test.
"""

from __future__ import annotations

import argparse
import math
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.optimize import minimize

from sinkprop import PartitionedMeasure, SinkPropRanker, SmoothedIndicator, evaluate
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
KINDS = ("by score", "own", "location", "both")
N_ITER = 5.5  # of the forecasts
FIRST = 10  # ranks of the second log score
CELLS = 150_000  # largest number of matrix entries of one batch of queries


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("quality", "widths"))
    parser.add_argument("data", metavar="DIRS", nargs="*", help="folders of LETOR data sets with folds")
    parser.add_argument("--no-pydocs", action="store_true", help="leave out the data set of the package")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=None)
    parser.add_argument("--sigmas", nargs="+", type=number_or("own"), default=SIGMAS, help="scales, and own")
    parser.add_argument("--iterations", nargs="+", type=number_or("converged"), default=ITERATIONS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--longest", type=int, default=150, help="documents of a query of the fit, at most")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, folds in data_sets(given):
        if given.part == "quality":
            quality(name, folds, given.families or FAMILIES, given.sigmas, given.iterations)
        else:
            widths(name, folds, given.families or FAMILIES[:2], given.kinds, given.longest)


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


class Forecasts:
    """Scores, features and ideal ranks of some queries, in batches of queries of similar length.

    x, Z, labels have the rows of a query one after another, and groups says which.
    """

    def __init__(self, x, Z, labels, sizes):
        self.Z = np.column_stack([Z, x, x * x])
        self.x, self.labels, self.groups = x, labels, Groups.of_sizes(sizes)
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
            documents, ranks, shares = ideal.cells(n)
            T[i, documents, ranks] = shares / n
        mask = np.arange(longest) < sizes[taken][:, None]
        return taken, *map(torch.from_numpy, (rows, mask, T))

    def select(self, wanted):
        """Forecasts of some of the queries (Q,)."""
        rows = wanted[self.groups.codes]
        Z, sizes = self.Z[:, :-2], self.groups.sizes
        return Forecasts(self.x[rows], Z[rows], self.labels[rows], sizes[wanted])


def terms(kind, p, x, Z):
    """Terms b x + w'z (N,) of the documents, and log s (N,)."""
    place, log_s, d = p[0].exp() * x, p[1].expand(len(x)), Z.shape[1]
    if kind == "by score":
        log_s = log_s + Z[:, -2:] @ p[2:]
    if kind in ("own", "both"):
        log_s = log_s + Z @ p[2 : 2 + d]
    if kind in ("location", "both"):
        place = place + Z @ p[-d:]
    return place, log_s


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
        self.parameters = np.zeros(2) if found is None else found

    def matrices(self, p, data):
        """Batches of queries with their Pi."""
        x, log_s = terms(self.kind, p, torch.from_numpy(data.x), torch.from_numpy(data.Z))
        theta = parameters(self.kind, self.family, x, log_s)
        for taken, rows, mask, T in data.batches:
            yield (
                taken,
                T,
                mask,
                doubly_stochastic(
                    theta[rows], mask=mask, relaxation=self.relaxation, n_iter=N_ITER, epsilon=1e-6
                ),
            )

    def score(self, data):
        """Log scores (Q,) over all ranks and over the first ten, and log s of the documents."""
        with torch.no_grad():
            p = torch.from_numpy(self.parameters)
            all_ranks = np.empty(len(data.groups.sizes))
            Pi10 = np.zeros((len(data.x), FIRST))
            offsets = data.groups.offsets
            for taken, T, mask, Pi in self.matrices(p, data):
                all_ranks[taken] = cross_entropy(T, Pi).sum((1, 2)).numpy()
                for i, query in enumerate(taken):
                    n = int(mask[i].sum())
                    Pi10[offsets[query] : offsets[query + 1]] = Pi[i, :n, :FIRST].numpy()
            log_s = terms(self.kind, p, torch.from_numpy(data.x), torch.from_numpy(data.Z))[1].numpy()
        return all_ranks, log_score(Pi10, data.labels, data.groups), log_s

    def fit(self, data, penalty, start, max_iter=40):
        """Fit the parameters; weights have the penalty, in units of the mean log score."""
        n = len(data.groups.sizes)

        def objective(values):
            p = torch.from_numpy(values).requires_grad_()
            total = 0.0
            gradient = np.zeros(len(values))
            for _, T, _, Pi in self.matrices(p, data):
                loss = cross_entropy(T, Pi).sum() / n
                gradient += torch.autograd.grad(loss, p, retain_graph=True)[0].numpy()
                total += loss.item()
            total += 0.5 * penalty * (values[2:] ** 2).sum()
            gradient[2:] += penalty * values[2:]
            return total, gradient

        found = minimize(
            objective, start, jac=True, method="L-BFGS-B",
            bounds=[(-4, 4), (-4, 4)] + [(-3, 3)] * (len(start) - 2),
            options={"maxiter": max_iter, "ftol": 1e-7},
        )  # fmt: skip
        self.parameters = found.x
        return self


def cross_entropy(T, Pi):
    return -T * torch.where(T > 0, Pi, 1.0).clamp(min=1e-300).log()


def widths(name, folds, families, kinds, longest):
    """Print the table of one data set."""
    began = time.process_time()
    tests = [Fold(*fold, longest) for fold in folds]
    n = sum(len(test.test.groups.sizes) for test in tests)
    used, of = (sum(test.counts[i] for test in tests) for i in (0, 1))
    print(f"\n{name}: {n} test queries; {used} of {of} queries of the fits have at most {longest} documents")
    indicator = [test.fitted("indicator", "", [math.inf], 0) for test in tests]
    yardsticks = {"uniform": [t.uniform() for t in tests], "mixture": [t.mixture() for t in tests]}
    yardsticks["indicator"] = [
        each[math.inf].score(t.test)[:2] for each, t in zip(indicator, tests, strict=True)
    ]
    for which, values in yardsticks.items():
        everything, first = (np.concatenate(each) for each in zip(*values, strict=True))
        print(
            f"  {which:24} log score, all ranks {everything.mean():.4f}, first ten {first.mean():.4f}",
            flush=True,
        )
    for family in families:
        family_rows(family, kinds, tests, yardsticks)
    print(f"  {time.process_time() - began:.0f} seconds of processor time")


def family_rows(family, kinds, tests, yardsticks):
    shared = [test.fitted("shared", family, [math.inf], 0)[math.inf] for test in tests]
    base = [model.score(test.test)[:2] for model, test in zip(shared, tests, strict=True)]
    everything, first = (np.concatenate(each) for each in zip(*base, strict=True))
    at = [f"{np.exp(m.parameters[0]):.2f}/{np.exp(m.parameters[1]):.2f}" for m in shared]
    print(f"  {family} shared: all ranks {everything.mean():.4f}, first ten {first.mean():.4f}; b/sigma", *at)
    for which, values in yardsticks.items():
        compare(f"{which} - shared", values, everything, first)
    for kind in kinds:
        found = [
            t.fitted(kind, family, PENALTIES, t.width(kind), m) for t, m in zip(tests, shared, strict=True)
        ]
        chosen = [t.choose(models) for t, models in zip(tests, found, strict=True)]
        models = [each[c] for each, c in zip(found, chosen, strict=True)]
        own_row(f"{kind} - shared", models, shared, tests, everything, first)
        print(f"      penalties chosen {chosen}")
        for penalty in PENALTIES:
            own_row(
                f"  penalty {penalty:g}", [each[penalty] for each in found], shared, tests, everything, first
            )


def own_row(label, models, shared, tests, everything, first):
    """Print the row of one model per fold."""
    scores = [model.score(t.test) for model, t in zip(models, tests, strict=True)]
    compare(label, [each[:2] for each in scores], everything, first, end=", ")
    log_s = np.concatenate([each[2] - each[2].mean() for each in scores])
    pairs = zip(models, shared, tests, strict=True)
    inside = [model.score(t.train)[0].mean() - base.score(t.train)[0].mean() for model, base, t in pairs]
    print(f"spread {log_s.std():.3f}, training {np.mean(inside):+.4f}", flush=True)


def compare(label, values, everything, first, end="\n"):
    """Print differences from the log scores of the shared width."""
    ours = [np.concatenate(each) for each in zip(*values, strict=True)]
    print(f"    {label:22} all ranks {with_error(ours[0] - everything)},", end=" ")
    print(f"first ten {with_error(ours[1] - first)}", end=end, flush=True)


class Fold:
    """Standardized scores and features of the queries of one fold, none of which the scores were trained on."""

    def __init__(self, train, vali, test, longest):
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
            parts.append(Forecasts(x, ((X - mean) / spread).clip(-4, 4), labels, sizes))
        train, vali, self.test = parts
        self.counts = sum((p.groups.sizes <= longest).sum() for p in (train, vali)), train_count(train, vali)
        self.train, self.vali = (p.select(p.groups.sizes <= longest) for p in (train, vali))

    def width(self, kind):
        """Number of weights of features."""
        return 2 if kind == "by score" else self.test.Z.shape[1] * (1 + (kind == "both"))

    def fitted(self, kind, family, penalties, width, shared=None):
        """Models by penalty, each started from the one before."""
        start = np.zeros(2 + width)
        found = {}
        if shared is not None:
            start[:2] = shared.parameters
            found[math.inf] = Model(kind, family, start.copy())
        for penalty in penalties:
            finite = 0.0 if math.isinf(penalty) else penalty
            found[penalty] = Model(kind, family).fit(self.train, finite, start)
            start = found[penalty].parameters.copy()
        return found

    def choose(self, models):
        """Penalty with the least log score on the validation queries."""
        return min(models, key=lambda penalty: models[penalty].score(self.vali)[0].mean())

    def uniform(self):
        score = np.log(self.test.groups.sizes)
        return score, score

    def mixture(self):
        """Log scores of the calibration of the ranker, over all ranks and the first ten."""
        _, scores, labels, sizes = self.raw
        offsets = np.append(0, np.cumsum(sizes))
        values = []
        for a, b in zip(offsets[:-1], offsets[1:], strict=True):
            Pi = self.calibration.rank_distribution(scores[a:b])
            group = Groups.of_sizes(np.array([b - a]))
            values.append([log_score(Pi[:, :k], labels[a:b], group)[0] for k in (b - a, FIRST)])
        return tuple(np.array(values).T)


def train_count(*parts):
    return sum(len(part.groups.sizes) for part in parts)


def sorted_parts(queries, scores):
    """Features, scores, labels and sizes, with the rows of a query one after another."""
    order = np.argsort(queries.groups.codes, kind="stable")
    return queries.X[order], scores[order], queries.y[order], queries.groups.sizes


def held_out_scores(parts, n_parts=5):
    """Features, scores, labels and sizes of parts, with scores from rankers fitted to other queries of them."""
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
