"""The trade-off between NDCG and the exposure of two groups of documents: sinkprop, the optimum, re-ranking.

    python benchmarks/exposure.py                                    one to two minutes
    python benchmarks/exposure.py --queries 100 --starts 6           several minutes
    python benchmarks/exposure.py --picture docs/images/exposure.png

Simulated queries have 25 documents with grades from 0 to 4. The documents of one group, 40 % of all, have
lower grades. The gap of a query is |X_0 - X_1|, where X_g is the mean exposure of the documents of group g,
and rank k has the exposure 1/log2(k + 1). A policy is a doubly-stochastic matrix Pi of rank probabilities.

`sinkprop` maximizes NDCG - w * ExposureGap, which is NDCG less w times the square of the gap, over one score
per document of each query, with one weight w for all queries. The scores give Pi by a Gaussian smoothed
indicator with sigma = 1, so that their spread determines how sharp Pi is. L-BFGS starts from normal random
scores, from the ranks of documents in re-rankings, and from the scores that were found for the next smaller
and the next larger w; the best value counts. NDCG and gap are those of the limit of the normalization.

`optimum` is a linear program over doubly-stochastic matrices. It has either the gap of sinkprop in every
query ("same gaps") or only the same mean of the gaps over the queries ("same mean gap"). Shortfalls are in
percent of its NDCG; "largest" is the largest of a query.

`re-ranking` is one ranking per query, built greedily from the top such that the first k ranks always have
at least floor(p k) documents of the protected group, as in FA*IR without its statistical test; among equal
grades the protected group is first. It is compared with sinkprop at the same gap, between two weights by a
mixture of the two policies. A query is "better" if sinkprop's NDCG is more than .001 above.

The last tables are for a linear ranker of new queries, with eight features, one of which reveals the group.
It is trained on the same gain with NDCG@10. `sort` is the ranking by its scores, and `Pi` the policy that its
scores give. The ranker with w = 0 is also re-ranked. "bias" is the mean of X_0 - X_1 over the queries, whose
gaps may have either sign.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog, minimize

from sinkprop import NDCG, ExposureGap, SmoothedIndicator, expected_gain, reference, sinkhorn_limit

Floats = NDArray[np.float64]

N = 25
EXPOSURE = 1 / np.log2(np.arange(N) + 2.0)
WEIGHTS = (0.1, 0.3, 1.0, 3.0, 5.0, 10.0, 20.0, 40.0, 100.0, 300.0, 2000.0)
SHARES = (0.0, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6)
STARTS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6)  # shares p of the re-rankings that are starts
KERNEL = SmoothedIndicator(1.0, accuracy="exact")


class Query:
    """Grades and groups of the documents of one query, and what policies are worth."""

    def __init__(self, rng: np.random.Generator, gain: NDCG) -> None:
        self.group = np.concatenate([[0, 1], rng.random(N - 2) < 0.4]).astype(np.int64)
        self.grades = np.digitize(rng.normal(size=N) - self.group, [-0.3, 0.4, 1.0, 1.6])
        self.labels = np.stack([self.grades, self.group], axis=1)
        self.gain = gain
        self.value = reference.gain_matrix(self.grades, gain)  # of each document at each rank
        self.sides = sides(self.group)

    def measured(self, Pi: Floats) -> tuple[float, float]:
        """NDCG and gap of a policy."""
        return float((Pi * self.value).sum()), float(abs(self.sides @ Pi @ EXPOSURE))

    def fitted(self, weight: float, start: Floats, n_iter: float) -> tuple[float, Floats, Floats]:
        """Value, scores and policy after L-BFGS on NDCG - weight * ExposureGap."""
        gain = self.gain - weight * ExposureGap(groups=1)

        def loss(scores: Floats) -> tuple[float, Floats]:
            found = expected_gain(
                scores, self.labels, gain=gain, relaxation=KERNEL, n_iter=n_iter, n_threads=1
            )
            return -found.value, -found.gradient

        options = {"maxiter": 1000, "maxcor": 20}
        scores = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
        Pi = policy(scores)
        ndcg, gap = self.measured(Pi)
        return ndcg - weight * gap**2, scores, Pi

    def curve(self, starts: int, n_iter: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """NDCG and gap (W, 2) for every weight, from the first random start alone and from the best start."""
        places = [np.argsort(reranked(self.grades.astype(np.float64), self.group, p)) for p in STARTS]
        sorts = [0.05 * (N / 2 - place) for place in places]
        fresh = [
            [self.fitted(w, start, n_iter) for start in (*0.3 * rng.normal(size=(starts, N)), *sorts)]
            for w in WEIGHTS
        ]
        best = [max(found, key=lambda fit: fit[0]) for found in fresh]
        upwards = [(i, i - 1) for i in range(1, len(WEIGHTS))]
        for here, there in upwards + [(j, i) for i, j in reversed(upwards)]:
            again = self.fitted(WEIGHTS[here], best[there][1], n_iter)
            best[here] = max(best[here], again, key=lambda fit: fit[0])
        first = np.array([self.measured(found[0][2]) for found in fresh])
        return first, np.array([self.measured(fit[2]) for fit in best])

    def reranked(self, share: float) -> tuple[float, float]:
        """NDCG and gap of the greedy re-ranking."""
        Pi = np.zeros((N, N))
        Pi[reranked(self.grades.astype(np.float64), self.group, share), np.arange(N)] = 1
        return self.measured(Pi)


def sides(group: NDArray[np.int64]) -> Floats:
    """Weights whose product with the exposures is X_0 - X_1."""
    weights: Floats = np.where(group == 0, 1 / (group == 0).sum(), -1 / (group == 1).sum())
    return weights


def policy(scores: Floats) -> Floats:
    """The doubly-stochastic limit of the normalization."""
    limit = sinkhorn_limit(reference.pre_sinkhorn(scores, KERNEL) + 1e-6)
    assert limit.converged
    return limit.matrix


def reranked(scores: Floats, group: NDArray[np.int64], share: float) -> list[int]:
    """Documents by decreasing score, but at least floor(share * k) of group 1 in every prefix of k."""
    left = list(np.lexsort((1 - group, -scores)))
    order: list[int] = []
    for k in range(1, len(scores) + 1):
        behind = group[order].sum() < np.floor(share * k + 1e-9)
        order.append(next((j for j in left if group[j] == 1), left[0]) if behind else left[0])
        left.remove(order[-1])
    return order


def optimum(queries: list[Query], bounds: Floats | float = 1.0, mean: float = 1.0) -> Floats:
    """NDCG (Q,) of the best doubly-stochastic matrices whose gaps, or their mean, are at most a bound."""
    Q = len(queries)
    ones, eye = np.ones((1, N)), sparse.eye_array(N)
    sums = sparse.vstack([sparse.kron(eye, ones), sparse.kron(ones, eye)])  # of the rows and columns
    gaps = sparse.block_diag([np.outer(q.sides, EXPOSURE).reshape(1, -1) for q in queries])
    # the last Q variables are upper bounds of the gaps
    sums = sparse.hstack([sparse.block_diag([sums] * Q), sparse.csr_array((2 * N * Q, Q))], format="csr")
    above = sparse.vstack([sparse.hstack([s * gaps, -sparse.eye_array(Q)]) for s in (1, -1)])
    average = sparse.hstack([sparse.csr_array((1, Q * N * N)), np.full((1, Q), 1 / Q)])
    limits = [(0, 1)] * (Q * N * N) + [(0, bound) for bound in np.broadcast_to(bounds, Q)]
    found = linprog(
        np.concatenate([*(-q.value.ravel() for q in queries), np.zeros(Q)]),
        A_ub=sparse.vstack([above, average], format="csr"),
        b_ub=np.append(np.zeros(2 * Q), mean),
        A_eq=sums,
        b_eq=np.ones(2 * N * Q),
        bounds=limits,
    )
    matrices = found.x[: Q * N * N].reshape(Q, N, N)
    return np.array([(Pi * q.value).sum() for q, Pi in zip(queries, matrices, strict=True)])


def policies(gain: NDCG, given: argparse.Namespace) -> dict[str, Floats]:
    """Print the comparison for one gain; return the mean NDCG and gap of each method, (points, 2)."""
    began, rng = time.perf_counter(), np.random.default_rng(given.seed)
    queries = [Query(rng, gain) for _ in range(given.queries)]
    found = [query.curve(given.starts, given.iterations, rng) for query in queries]
    first, ours = (np.array(curves) for curves in zip(*found, strict=True))  # (Q, W, 2)
    means = ours.mean(axis=0)
    best, best_of_first = (
        np.stack([optimum(queries, bounds=gaps) for gaps in curves[..., 1].T], axis=1)
        for curves in (ours, first)
    )
    best_of_mean = np.array([optimum(queries, mean=gap).mean() for _, gap in means])
    shortfall = 100 * (1 - ours[..., 0] / best)
    one_start = 100 * (1 - first[..., 0] / best_of_first)
    print(f"\n{gain}, {given.queries} queries, {given.starts} random starts")
    print("| w | gap | NDCG | same gaps | largest | same mean gap | one random start: same gaps | largest |")
    print("|---|---|---|---|---|---|---|---|")
    for i, weight in enumerate(WEIGHTS):
        ndcg, gap = means[i]
        cells = [f"{weight:g}", f"{gap:.4f}", f"{ndcg:.4f}"]
        cells += [f"{100 * (1 - ndcg / best[:, i].mean()):.3f}", f"{shortfall[:, i].max():.2f}"]
        cells += [f"{100 * (1 - ndcg / best_of_mean[i]):.3f}"]
        cells += [f"{one_start[:, i].mean():.2f}", f"{one_start[:, i].max():.2f}"]
        print(f"| {' | '.join(cells)} |")
    share = (shortfall < 1).mean()
    print(f"Largest shortfall {shortfall.max():.2f} %; below 1 % in {share:.1%} of queries and weights.")

    greedy = np.array([[query.reranked(p) for p in SHARES] for query in queries])
    print("| p | re-ranking: gap | NDCG | sinkprop at the same gap | queries: better, equal, worse |")
    print("|---|---|---|---|---|")
    for i, p in enumerate(SHARES):
        ndcg, gap = greedy[:, i].mean(axis=0)
        apart = np.array([at(curve, x[1]) - x[0] for curve, x in zip(ours, greedy[:, i], strict=True)])
        counts = f"{(apart > 1e-3).sum()}, {(abs(apart) <= 1e-3).sum()}, {(apart < -1e-3).sum()}"
        print(f"| {p:g} | {gap:.4f} | {ndcg:.4f} | {at(means, gap):.4f} | {counts} |")
    print(f"{time.perf_counter() - began:.0f} seconds", flush=True)
    gaps = np.linspace(0, means[:, 1].max(), 9)
    bounded = np.array([(optimum(queries, mean=gap).mean(), gap) for gap in gaps])
    return {"sinkprop": means, "optimum": bounded, "re-ranking": greedy.mean(axis=0)}


def at(curve: Floats, gap: float) -> float:
    """NDCG at a gap, between the points of a curve (a mixture of two policies) or beyond its ends."""
    by_gap = curve[np.argsort(curve[:, 1])]
    return float(np.interp(gap, by_gap[:, 1], by_gap[:, 0]))


def ranker(seed: int, n_queries: int = 500) -> None:
    """Print test NDCG@10 and gaps of a linear ranker, trained with several weights."""
    rng = np.random.default_rng(seed)
    gain = NDCG(10, discount="log2")
    qid = np.repeat(np.arange(2 * n_queries), N)
    group = (rng.random(len(qid)) < 0.4).astype(np.int64)
    group[::N], group[1::N] = 0, 1
    X = rng.normal(size=(len(qid), 8))
    X[:, 0] += 2 * group  # reveals the group
    latent = X[:, 1:] @ rng.normal(size=7) / np.sqrt(7) - group
    grades = np.digitize(latent + 0.5 * rng.normal(size=len(qid)), [-0.3, 0.4, 1.0, 1.6])
    labels = np.stack([grades, group], axis=1)
    train, test = qid < n_queries, [np.flatnonzero(qid == q) for q in range(n_queries, 2 * n_queries)]
    values = [reference.gain_matrix(grades[rows], gain) for rows in test]

    def trained(weight: float) -> Floats:
        def loss(w: Floats) -> tuple[float, Floats]:
            total = gain - weight * ExposureGap(groups=1)
            found = expected_gain(X[train] @ w, labels[train], qid[train], gain=total, relaxation=KERNEL)
            return -found.value, -X[train].T @ found.gradient

        least_squares = np.linalg.lstsq(X[train], grades[train], rcond=None)[0]
        scores: Floats = X @ minimize(loss, least_squares, jac=True, method="L-BFGS-B").x
        return scores

    def measured(policies: list[Floats]) -> str:
        ndcg = [(Pi * value).sum() for Pi, value in zip(policies, values, strict=True)]
        gaps = np.array([sides(group[rows]) @ Pi @ EXPOSURE for Pi, rows in zip(policies, test, strict=True)])
        return f"{np.mean(ndcg):.4f} | {abs(gaps).mean():.4f} | {gaps.mean():+.4f}"

    def rankings(scores: Floats, share: float) -> list[Floats]:
        return [np.eye(N)[np.argsort(reranked(scores[rows], group[rows], share))] for rows in test]

    print(f"\nlinear ranker, {n_queries} training and {n_queries} test queries")
    print("| w | sort: NDCG@10 | gap | bias | Pi: NDCG@10 | gap | bias |\n|---|---|---|---|---|---|---|")
    scores = {weight: trained(weight) for weight in (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)}
    for weight, s in scores.items():
        print(f"| {weight:g} | {measured(rankings(s, 0))} | {measured([policy(s[rows]) for rows in test])} |")
    print("| p | re-ranking of w = 0: NDCG@10 | gap | bias |\n|---|---|---|---|")
    for p in SHARES:
        print(f"| {p:g} | {measured(rankings(scores[0.0], p))} |", flush=True)


def draw(curves: dict[str, dict[str, Floats]], path: Path) -> None:
    """Plot the mean curves, one panel per gain."""
    from matplotlib.figure import Figure

    styles = {
        "optimum": ("-", "0.6", "optimum: linear program"),
        "sinkprop": ("o", "C0", "sinkprop, one point per weight"),
        "re-ranking": ("s--", "C3", "greedy re-ranking, one point per share"),
    }
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    panels = figure.subplots(1, len(curves))
    for ax, (name, found) in zip(panels, curves.items(), strict=True):
        for method, (marks, color, text) in styles.items():
            ax.plot(found[method][:, 1], found[method][:, 0], marks, color=color, label=text, markersize=4.5)
        ax.set(xlabel="gap in mean exposure between the groups", ylabel=f"mean {name}", xlim=(-0.002, None))
        ax.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=24, help="number of simulated queries  [default: 24]")
    parser.add_argument("--starts", type=int, default=4, help="number of random starts  [default: 4]")
    parser.add_argument("--iterations", type=float, default=50, help="Sinkhorn iterations  [default: 50]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation  [default: 0]")
    parser.add_argument("--picture", type=Path, help="file for a plot of the curves")
    given = parser.parse_args()
    gains = {"NDCG": NDCG(discount="log2"), "NDCG@10": NDCG(10, discount="log2")}
    curves = {name: policies(gain, given) for name, gain in gains.items()}
    ranker(given.seed)
    if given.picture is not None:
        draw(curves, given.picture)


if __name__ == "__main__":
    main()
