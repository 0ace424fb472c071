"""Exposure policies: distance to the optimum, time, and NDCG at the exposure gap of DELTR.

    python benchmarks/exposure_policy.py optimum        the linear program at 100 documents; about a minute
    python benchmarks/exposure_policy.py times          1,000 and 100,000 documents; about a minute
    python benchmarks/exposure_policy.py deltr FOLDER   the TREC W3C expert data; a few minutes

`optimum` compares `exposure_policy` with the linear program over all doubly-stochastic matrices, which HiGHS
solves, for several kinds of constraints. Differences are in expected NDCG.

`times` measures `exposure_policy` alone, in seconds: the median of three calls.

`deltr` needs the files foldN-train.csv.xz, foldN-test.csv.xz and foldN-gamma-*.pred.xz of DELTR's experiments
(Zehlike and Castillo 2020). A linear ranker is trained on each fold. Isotonic or logistic regression on the
held-out scores of the training queries makes relevance of its scores. The gain, the regression, and whether
the ranker sees the protected column are chosen by cross-validation over the training queries, by the NDCG@10
of the relevance without constraints.
The policy of a test query then has the constraint that its gap is not larger than that of DELTR's published
predictions for the same query. The gap is defined in two ways:

    signed     X_0 - X_1: the protected group 1 has at least the exposure that DELTR gives it
    absolute   |X_0 - X_1|

X_g is the mean exposure of group g, and rank k has the exposure 1/log2(k + 1), at all ranks or at the first
ten only. NDCG@10 has linear gains and the discount 1/log2(k + 1), and is the expected one.

Most of DELTR's scores are tied, and the rows of the test files are in the order of the labels. Ties are
therefore resolved at random, for both methods, by averages over all their orders. Columns "file order" show
what the order of the rows, in which the predictions were published, makes of the ties, again for both.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from sinkprop import SinkPropRanker
from sinkprop.policies.exposure import (
    ExposureGapAtMost,
    MaxExposure,
    MinExposure,
    ProportionalExposure,
    exposure_policy,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
GAINS = ("ndcg(gain=linear)", "ndcg(gain=linear)@10")


def simulated(n: int, n_groups: int, seed: int, *, decimals: int | None = None) -> tuple[Floats, Integers]:
    """Relevance and groups of one query; groups with larger numbers have less relevance."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.arange(n) % n_groups)
    relevance = rng.beta(1, 3, size=n) * (1 - 0.4 * groups / n_groups)
    return (relevance if decimals is None else relevance.round(decimals)), groups


def rows(constraint: object, groups: Integers, relevance: Floats) -> list[tuple[Floats, float]]:
    """Inequalities a . E <= b for a constraint, with a of shape (N,); E has the sum 1."""
    member = np.array([groups == g for g in range(groups.max() + 1)], dtype=np.float64)
    if isinstance(constraint, MaxExposure):
        return [(member[g], s) for g, s in enumerate(np.broadcast_to(constraint.shares, len(member)))]
    if isinstance(constraint, MinExposure):
        return [(-member[g], -s) for g, s in enumerate(np.broadcast_to(constraint.shares, len(member)))]
    pairs = [(g, h) for g in range(len(member)) for h in range(len(member)) if g != h]
    if isinstance(constraint, ExposureGapAtMost):
        total = (1 / np.log2(np.arange(len(groups)) + 2.0)).sum()
        means = member / member.sum(axis=1, keepdims=True)
        return [(means[g] - means[h], constraint.gap / total) for g, h in pairs]
    per_merit = member / (member @ relevance)[:, None]
    return [(per_merit[g] - (1 + constraint.tolerance) * per_merit[h], 0.0) for g, h in pairs]


def linear_program(relevance: Floats, groups: Integers, constraints: Sequence[object]) -> float:
    """The largest expected NDCG of a doubly-stochastic matrix, by HiGHS."""
    n = len(relevance)
    e = 1 / np.log2(np.arange(n) + 2.0)
    limits = [row for constraint in constraints for row in rows(constraint, groups, relevance)]
    eye, ones = sparse.eye_array(n), np.ones((1, n))
    found = linprog(
        -np.outer(relevance, e).ravel(),
        A_ub=np.stack([np.outer(a, e / e.sum()).ravel() for a, _ in limits]),
        b_ub=[b for _, b in limits],
        A_eq=sparse.vstack([sparse.kron(eye, ones), sparse.kron(ones, eye)]),
        b_eq=np.ones(2 * n),
    )
    return float(-found.fun / (np.sort(relevance)[::-1] @ e))


def optimum(seeds: int) -> None:
    """Print the largest differences from the linear program."""
    kinds: dict[str, tuple[int, list[object]]] = {
        "gap at most 0, 2 groups": (2, [ExposureGapAtMost(0)]),
        "gap at most .02, 5 groups": (5, [ExposureGapAtMost(0.02)]),
        "proportional within .1, 2 groups": (2, [ProportionalExposure(0.1)]),
        "at least .19, 5 groups": (5, [MinExposure(0.19)]),
        "at most .055, 20 suppliers": (20, [MaxExposure(0.055)]),
        "gap, minimum and maximum, 4 groups": (
            4,
            [ExposureGapAtMost(0.05), MinExposure(0.24), MaxExposure(0.26)],
        ),
    }
    print("| constraints | NDCG | largest difference | bound less value | seconds | linear program |")
    print("|---|---|---|---|---|---|")
    for name, (n_groups, constraints) in kinds.items():
        found = []
        for seed in range(seeds):
            relevance, groups = simulated(100, n_groups, seed, decimals=1 if seed % 2 else None)
            began = time.perf_counter()
            policy = exposure_policy(relevance, groups, constraints)  # type: ignore[arg-type]
            ours = time.perf_counter()
            best = linear_program(relevance, groups, constraints)
            solved = time.perf_counter() - ours
            found.append(
                (policy.value, abs(policy.value - best), policy.bound - policy.value, ours - began, solved)
            )
        mean, (_, apart, gap, _, _) = np.mean(found, axis=0), np.max(found, axis=0)
        print(
            f"| {name} | {mean[0]:.4f} | {apart:.1e} | {gap:.1e} | {mean[3]:.3f} | {mean[4]:.3f} |",
            flush=True,
        )


def times() -> None:
    """Print the seconds that a policy takes."""
    cases = [
        (1000, 2, ExposureGapAtMost(0.001)),
        (1000, 2, ProportionalExposure(0.1)),
        (1000, 100, MaxExposure(0.0102)),
        (1000, 100, MinExposure(0.0098)),
        (1000, 100, ExposureGapAtMost(0.02)),
        (100_000, 2, ExposureGapAtMost(0.0001)),
        (100_000, 100, MaxExposure(0.01002)),
    ]
    exposure_policy([2, 1, 1, 0], [0, 0, 1, 1], ExposureGapAtMost(0))  # imports
    exposure_policy(*simulated(100, 20, 0), MaxExposure(0.055))
    print("| documents | groups | constraint | relevance | NDCG | rankings | seconds |")
    print("|---|---|---|---|---|---|---|")
    for n, n_groups, constraint in cases:
        for decimals in (None, 1):
            relevance, groups = simulated(n, n_groups, 0, decimals=decimals)
            seconds = []
            for _ in range(3):
                began = time.perf_counter()
                policy = exposure_policy(relevance, groups, constraint)
                seconds.append(time.perf_counter() - began)
            shown = "distinct" if decimals is None else "tied, 0.0 to 1.0"
            print(
                f"| {n} | {n_groups} | {constraint} | {shown} | {policy.value:.4f} | "
                f"{len(policy.mixture.weights)} | {np.median(seconds):.2f} |",
                flush=True,
            )


@dataclass(frozen=True)
class Fold:
    """Rows of one part of a fold: query, features with the protected column first, label."""

    qid: Floats
    X: Floats
    y: Floats

    @classmethod
    def read(cls, path: Path) -> Fold:
        table = read(path)
        return cls(table[:, 0], table[:, 1:-1], table[:, -1])

    def queries(self) -> list[Integers]:
        return [np.flatnonzero(self.qid == q) for q in dict.fromkeys(self.qid)]


def read(path: Path) -> Floats:
    with lzma.open(path, "rt") as file:
        return np.array([[float(x) for x in line.split(",")] for line in file])


def fitted(train: Fold, kept: Integers, gain: str, columns: slice, X: Floats) -> Floats:
    """Scores of the rows of X by a ranker that is trained on the rows `kept`."""
    shuffled = np.random.default_rng(0).permutation(kept)  # rows are in the order of the labels
    rows = shuffled[np.argsort(train.qid[shuffled], kind="stable")]
    ranker = SinkPropRanker(gain, verbose=False)
    ranker.fit(train.X[rows][:, columns], train.y[rows], qid=train.qid[rows])
    scores: Floats = ranker.predict(X[:, columns])
    return scores


def held_out(train: Fold, gain: str, columns: slice, parts: int = 5) -> Floats:
    """Scores of the training rows by rankers that are trained on other queries."""
    ids = np.unique(train.qid)
    part = dict(zip(ids, np.random.default_rng(0).permutation(len(ids)) % parts, strict=True))
    of_row, scores = np.array([part[q] for q in train.qid]), np.empty(len(train.y))
    for p in range(parts):
        rest = np.flatnonzero(of_row != p)
        scores[of_row == p] = fitted(train, rest, gain, columns, train.X[of_row == p])
    return scores


def logistic(scores: Floats, y: Floats) -> Callable[[Floats], Floats]:
    """A fitted function from scores to relevance; labels between 0 and 1 count as probabilities."""
    model = LogisticRegression(C=1e6)
    both, weight = np.tile(scores, 2)[:, None], np.concatenate([y, 1 - y])
    model.fit(both, np.repeat([1, 0], len(y)), sample_weight=weight)
    return lambda s: model.predict_proba(s[:, None])[:, 1]


def isotonic(scores: Floats, y: Floats) -> Callable[[Floats], Floats]:
    """A fitted function from scores to relevance, with plateaus."""
    model = IsotonicRegression(y_min=0, out_of_bounds="clip").fit(scores, y)
    return model.predict


def predicted(train: Fold, test: Fold) -> tuple[Floats, str]:
    """Relevance of the test rows, and the settings that the training queries choose."""
    found = []
    for gain, columns in itertools.product(GAINS, (slice(0, None), slice(1, None))):
        scores = held_out(train, gain, columns)
        for transform in (isotonic, logistic):
            of_scores = transform(scores, train.y)
            r = of_scores(scores)
            ndcg = np.mean([value(sorted_by(r[i])[0], train.y[i]) for i in train.queries()])
            found.append((ndcg, gain, columns, transform.__name__, of_scores))
    _, gain, columns, name, of_scores = max(found, key=lambda setting: setting[0])
    relevance = of_scores(fitted(train, np.arange(len(train.y)), gain, columns, test.X))
    return relevance, f"{gain}, {name}, {'with' if columns.start == 0 else 'without'} the protected column"


def at_ranks(n: int, k: int | None = None) -> Floats:
    """Exposures of the n ranks."""
    e: Floats = np.where(np.arange(n) < (k or n), 1 / np.log2(np.arange(n) + 2.0), 0.0)
    return e


def sorted_by(scores: Floats, k: int | None = 10) -> tuple[Floats, Floats]:
    """Exposures in the ranking by scores: ties resolved at random, and in the order of the rows."""
    exposures = np.empty(len(scores))
    exposures[np.argsort(-scores, kind="stable")] = at_ranks(len(scores), k)
    return shared(exposures, scores[:, None]), exposures


def shared(exposures: Floats, kinds: Floats) -> Floats:
    """Exposures averaged over equal rows of `kinds`."""
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    kind = kind.ravel()
    means: Floats = (np.bincount(kind, exposures) / np.bincount(kind))[kind]
    return means


def in_file_order(exposures: Floats, kinds: Floats) -> Floats:
    """Exposures of one ranking in which equal rows of `kinds` keep the order of the rows."""
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    kind, ordered = kind.ravel(), np.empty(len(exposures))
    ordered[np.argsort(kind, kind="stable")] = exposures[np.lexsort((-exposures, kind))]
    return ordered


def value(exposures: Floats, y: Floats) -> float:
    """Expected NDCG@10 of exposures at the first ten ranks."""
    return float(exposures @ y / (np.sort(y)[::-1] @ at_ranks(len(y), 10)))


def gap_of(exposures: Floats, group: Floats) -> float:
    """X_0 - X_1."""
    return float(exposures[group == 0].mean() - exposures[group == 1].mean())


def served(
    relevance: Floats, group: Floats, deltr: Floats, kind: str, k: int | None
) -> tuple[Floats, Floats, float]:
    """Exposures at the first ten ranks, ties at random and in file order, and the gap of our policy.

    `deltr` are the exposures that DELTR gives.
    """
    if kind == "signed":
        share = deltr[group == 1].sum() / deltr.sum()
        constraint: MinExposure | ExposureGapAtMost = MinExposure({1.0: max(share - 1e-12, 0.0)})
    else:
        constraint = ExposureGapAtMost(abs(gap_of(deltr, group)))
    shuffle = np.random.default_rng(0).permutation(len(group))
    policy = exposure_policy(relevance[shuffle], group[shuffle], constraint, k=k)
    kinds = np.stack([relevance, group], axis=1)
    first, ordered = np.zeros(len(group)), np.zeros(len(group))
    for weight, ranking in zip(policy.mixture.weights, policy.mixture.rankings, strict=True):
        exposures = np.zeros(len(group))
        exposures[shuffle[ranking[:10]]] = at_ranks(10)
        first += weight * exposures
        ordered += weight * in_file_order(exposures, kinds)
    return shared(first, kinds), ordered, gap_of(policy.exposure[np.argsort(shuffle)], group)


def deltr(folder: Path) -> None:
    """Print NDCG@10 of DELTR and of policies that have at most its gap."""
    found: dict[tuple[str, str, int | None], list[Floats]] = {}
    columns = "gap | NDCG@10 | file order"
    print(f"| fold | DELTR | constraint | ranks | DELTR: {columns} | policy: {columns} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for fold in range(1, 7):
        train, test = (Fold.read(folder / f"fold{fold}-{part}.csv.xz") for part in ("train", "test"))
        relevance, chosen = predicted(train, test)
        for gamma in ("small", "large"):
            table = read(folder / f"fold{fold}-gamma-{gamma}.pred.xz")
            scores = np.empty(len(test.y))
            scores[table[:, 1].astype(np.int64) - 1] = table[:, 2]  # documents are numbered as the rows
            for kind in ("signed", "absolute"):
                for k in (None, 10):
                    each = [
                        compared(relevance[i], test.X[i, 0], test.y[i], scores[i], kind, k)
                        for i in test.queries()
                    ]
                    means = np.mean(each, axis=0)
                    found.setdefault((gamma, kind, k), []).append(means)
                    print_row(str(fold), gamma, kind, k, means)
        print(f"fold {fold}: {chosen}", flush=True)
    for (gamma, kind, k), means in found.items():
        print_row("mean", gamma, kind, k, np.mean(means, axis=0))


def compared(
    relevance: Floats, group: Floats, y: Floats, scores: Floats, kind: str, k: int | None
) -> list[float]:
    """Gap, NDCG@10 and NDCG@10 in file order, of DELTR and of ours, for one query."""
    exposures = sorted_by(scores, k)[0]
    first, ordered = sorted_by(scores)
    ours, ours_ordered, gap = served(relevance, group, exposures, kind, k)
    gaps = [gap_of(exposures, group), gap]
    if kind == "absolute":
        gaps = [abs(gap) for gap in gaps]
    return [gaps[0], value(first, y), value(ordered, y), gaps[1], value(ours, y), value(ours_ordered, y)]


def print_row(fold: str, gamma: str, kind: str, k: int | None, means: Floats) -> None:
    cells = [f"{x:+.4f}" if i % 3 == 0 else f"{x:.4f}" for i, x in enumerate(means)]
    print(f"| {fold} | gamma {gamma} | {kind} | {k or 'all'} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("optimum", "times", "deltr"))
    parser.add_argument("folder", nargs="?", type=Path, help="folder of the expert data, for deltr")
    parser.add_argument("--seeds", type=int, default=6, help="problems of each kind  [default: 6]")
    given = parser.parse_args()
    if given.what == "optimum":
        optimum(given.seeds)
    elif given.what == "times":
        times()
    elif given.folder is None:
        parser.error("deltr needs the folder of the expert data")
    else:
        deltr(given.folder)


if __name__ == "__main__":
    main()
