"""Rules for choosing among the stages of a fit with few validation queries, compared on unseen queries.

    python benchmarks/selection.py               simulated data, 4 sets of 100 queries with five folds each,
                                                 and the training and validation queries of pydocs' folds
    python benchmarks/selection.py --letor DIR   also those of a LETOR data set; its test queries are not read

Each problem has three fifths of its queries for training, one fifth for validation, and one fifth, which no
rule sees, for comparing the rules. All rules choose among the same stages of the same fit. A rule that names
no metric selects by the mean of NDCG@1 to NDCG@10; "neighbors" averages it over a stage and the adjacent
ones. The output has, for each rule, the mean NDCG@10 and the mean of NDCG@1 to NDCG@10 on the unseen queries,
and the difference of the latter from the usual rule (the best stage by validation NDCG@10) with its standard
error over the problems.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from sinkprop import Queries, evaluate, load_letor
from sinkprop.data import group_rows
from sinkprop.data.blocks import ArraySource
from sinkprop.data.training_set import TrainingSet
from sinkprop.datasets import pydocs_folds
from sinkprop.estimator.selection import Selection
from sinkprop.linear.problem import linear_scores, spread
from sinkprop.linear.ranker import SinkPropRanker
from sinkprop.linear.recipe import train

NAMES = [f"ndcg@{k}" for k in range(1, 11)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--letor", type=Path, metavar="DIR", help="folder with Fold1 to Fold5")
    parser.add_argument("--sets", type=int, default=4, help="number of simulated data sets  [default: 4]")
    parser.add_argument(
        "--seed", type=int, default=0, help="random seed of the splits of the real data  [default: 0]"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of processes  [default: 2]")
    options = parser.parse_args()
    sources = {"simulated": [p for seed in range(options.sets) for p in rotations(simulated(seed), seed)]}
    folds = {"pydocs": [(fold.train, fold.vali) for fold in pydocs_folds()]}
    if options.letor:
        folders = [options.letor / f"Fold{i}" for i in range(1, 6)]
        files = [(folder / "train.txt", folder / "vali.txt") for folder in folders]
        folds[options.letor.name] = [(load_letor(a), load_letor(b)) for a, b in files]
    for name, pairs in folds.items():
        numbered = enumerate(pairs, 1000 * options.seed + 1)
        sources[name] = [problem for i, pair in numbered for problem in within(*pair, seed=i)]
    results = {}
    for source, problems in sources.items():
        found = Parallel(options.jobs)(delayed(compared)(*p, seed=i) for i, p in enumerate(problems))
        results[source] = {rule: np.array([one[rule] for one in found]) for rule in found[0]}
    report(results)


def report(results):
    usual = "validation: best by ndcg@10"
    print(f"{'rule':44s}" + "".join(f"{source:>38s}" for source in results))
    print(" " * 44 + "".join(f"{'@10':>10s}{'@1-10':>10s}{'difference':>18s}" for _ in results))
    for rule in next(iter(results.values())):
        line = f"{rule:44s}"
        for by_rule in results.values():
            values, d = by_rule[rule], by_rule[rule].mean(axis=1) - by_rule[usual].mean(axis=1)
            error = d.std(ddof=1) / np.sqrt(len(d))
            line += f"{values[:, 9].mean():10.4f}{values.mean():10.4f}{d.mean():+11.4f} ({error:.4f})"
        print(line)


def simulated(seed, n_queries=100, n_features=40):
    """Labels 0 to 2 from a sparse linear score; weights, noise and level of relevance vary by query."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(40, 200, n_queries)
    qid = np.repeat(np.arange(n_queries), sizes)
    n = len(qid)
    # features are correlated in groups of ten, like those of one field of a document
    X = rng.normal(size=(n, 10)) @ rng.normal(size=(10, n_features)) + rng.normal(size=(n, n_features))

    def standardized(score):
        means = np.bincount(qid, score) / sizes
        return (score - means[qid]) / np.sqrt(np.mean((score - means[qid]) ** 2))

    common = standardized(X @ (rng.normal(0.5, 1, n_features) * (rng.random(n_features) < 0.5)))
    own = standardized(np.einsum("ij,ij->i", X, rng.normal(size=(n_queries, n_features))[qid]))
    slope, level = np.exp(rng.normal(0, 0.5, n_queries)), rng.normal(0, 1, n_queries)
    latent = slope[qid] * (0.5 * common + 0.35 * own) + 0.9 * rng.standard_t(4, n) + level[qid]
    return Queries(X, np.digitize(latent, np.quantile(latent, [0.75, 0.9])), qid)


def rotations(queries, seed):
    """Five triples (train, validation, unseen); each query is unseen once."""
    ids = np.random.default_rng(seed).permutation(queries.groups.queries)
    parts = [ids[i::5] for i in range(5)]
    for r in range(5):
        turned = [parts[(r + i) % 5] for i in range(5)]
        yield (
            queries.select(np.concatenate(turned[:3])), queries.select(turned[3]), queries.select(turned[4])
        )  # fmt: skip


def within(train, vali, seed):
    """Rotations of the training and validation queries of one fold."""
    both = [np.concatenate([getattr(part, name) for part in (train, vali)]) for name in ("X", "y", "qid")]
    return rotations(Queries(*both), seed)


def compared(training, validation, unseen, seed):
    """NDCG@1 to NDCG@10 of each rule's choice on the unseen queries, {rule: (10,)}."""
    parts = [TrainingSet(q.X, q.y, group_rows(q.qid, len(q))) for q in (training, validation, unseen)]
    data, vali, test = parts
    selection = Selection("cross-validation", patience=99)
    ranker = SinkPropRanker(selection=selection, n_threads=1, random_state=seed)
    # the criterion of each stage, kept as ten numbers per query instead of their mean
    recipe = replace(
        ranker._recipe(weighted=False), criterion_of=lambda part, scores: ndcgs(part, scores).ravel()
    )
    finished = []
    sources = [ArraySource(part, 1) for part in (data, vali)]
    _, scaling = train(*sources, recipe, checkpoint=lambda stages: finished.append(stages[-1]))
    # least squares first, then smoother before sharper
    stages = sorted(finished, key=lambda f: (f.penalty >= 0, f.stage, -f.penalty))
    positions = np.array([(f.penalty, f.stage) if f.penalty >= 0 else (-9, -9) for f in stages])
    crossed = np.stack([f.validation.reshape(-1, 10) for f in stages])  # (C, Q, 10)
    held = np.stack([ndcgs(vali, linear_scores(vali.X, f.weights[0], scaling)) for f in stages])
    weights = np.stack([f.weights[0] for f in stages])
    weights /= [[spread(linear_scores(data.X, w, scaling), data)] for w in weights]

    def tested(chosen):
        return ndcgs(test, linear_scores(test.X, weights[chosen].mean(axis=0), scaling)).mean(axis=0)

    out = {"least squares": tested(np.array([0]))}
    for name, found in (("validation", held), ("cross-validation", crossed)):
        for criterion, values in (("ndcg@10", found[..., 9]), ("ndcg@1-10", found.mean(axis=2))):
            out[f"{name}: best by {criterion}"] = tested(within_errors(values, 0))
        neighbors = smoothed(values, positions)
        out[f"{name}: smoothest within 1/2 error"] = tested(within_errors(values, 0.5)[:1])
        out[f"{name}: smoothest within 1 error"] = tested(within_errors(values, 1)[:1])
        out[f"{name}: mean within 1/2 error"] = tested(within_errors(values, 0.5))
        out[f"{name}: mean within 1 error"] = tested(within_errors(values, 1))
        out[f"{name}: neighbors, best"] = tested(within_errors(neighbors, 0))
        out[f"{name}: neighbors, smoothest within 1/2"] = tested(within_errors(neighbors, 0.5)[:1])
        out[f"{name}: neighbors, smoothest within 1"] = tested(within_errors(neighbors, 1)[:1])
        out[f"{name}: neighbors, mean within 1/2"] = tested(within_errors(neighbors, 0.5))
        out[f"{name}: neighbors, mean within 1"] = tested(within_errors(neighbors, 1))
    return out


def ndcgs(part, scores):
    """NDCG@1 to NDCG@10 of each query, (Q, 10)."""
    return np.stack(list(evaluate(part.y, scores, part.codes, NAMES).per_query.values()), axis=1)


def smoothed(values, positions):
    close = np.prod((2 - np.abs(positions[:, None] - positions[None])).clip(0), axis=2)
    return close @ values / close.sum(axis=1, keepdims=True)


def within_errors(values, errors):
    """The candidates whose mean is within so many standard errors of the best; for 0, only the best."""
    means = values.mean(axis=1)
    best = np.argmax(means)
    error = (values - values[best]).std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    return np.flatnonzero(means >= means[best] - errors * error) if errors else np.array([best])


if __name__ == "__main__":
    main()
