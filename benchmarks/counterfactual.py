"""Counterfactual values of a better ranker, and of the difference between two, next to the exact values.

    python benchmarks/counterfactual.py            200 logs of each kind; twelve minutes on one core
    python benchmarks/counterfactual.py drawn few  some kinds only
    python benchmarks/counterfactual.py --large    10 million impressions: time and memory

Clicks follow the position-based model with examination 1 / position, which is known to the estimators, and
`click_relevance` of the labels. Production rankers are ridge regressions on 3 labeled queries each, and the
rankers that are evaluated, called the better and the other one, are ridge regressions on 60 and on 12. The
queries of the logs are not among these. The logs are of eight kinds:

    simulated   100 queries of `make_ranking` with 10 to 30 documents; three production rankers in turn, all
                documents shown; 5,000 sessions
    pydocs      the 32 test queries of Pydocs, 50 to 198 documents, otherwise the same; 20,000 sessions
    first five  as "simulated", but only five documents are shown, so that some of the ten documents
                that count have never been shown
    drawn       rankings of the simulated queries drawn with Gumbel noise, 10 documents shown, with known
                exposure; 2,000 sessions
    few         the same with exposure estimated from the log, and 500 sessions, five per query
    propensity  rankings drawn for 100 queries with 5 to 9 documents, 5 shown, with propensities and without
                a click model; 5,000 sessions
    mixed       the same, but four fifths of the sessions are of a deterministic ranker, with the propensity
                1; both rankers are named by `policy`
    unnamed     the same with a ranker that explores little instead of the deterministic one, and no names

For each metric and estimator, the table has the exact value; the mean of the estimates less the exact value,
divided by the standard deviation of one estimate ("bias in errors") and by that of the mean over the logs
("z"); the mean standard error divided by the standard deviation of the estimates; and the share of 95 %
intervals that contain the exact value, all for the better ranker and for the difference of both.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from sinkprop import Queries
from sinkprop.clicks import ClickLog, PositionBasedModel, click_relevance, simulate_clicks
from sinkprop.clicks.evaluation import compare_rankers, counterfactual_value
from sinkprop.datasets import load_pydocs, make_ranking
from sinkprop.metrics import ranking

Floats = NDArray[np.float64]
METHODS = ("ips", "snips", "doubly robust")
WITHOUT_MODEL = ("propensity", "mixed", "unnamed")
USERS = PositionBasedModel(1 / np.arange(1.0, 201))


@dataclass(frozen=True)
class Kind:
    """A kind of logs. `rankers` are scores (P, N); each session shows the first `shown` of one of them.

    Four fifths of the sessions use one of `main` (P', N) instead, if there is one.
    """

    name: str
    queries: Queries
    rankers: Floats
    better: Floats
    other: Floats
    n_sessions: int
    shown: int | None
    metrics: tuple[str, ...]
    main: Floats | None = None

    def log(self, seed: int) -> ClickLog:
        """Draw a log, with propensities if the estimators are to use them."""
        rng = np.random.default_rng([9, seed])
        if self.main is None:
            return self.sessions(self.rankers, self.n_sessions, rng)
        n = self.n_sessions // 5
        parts = self.sessions(self.rankers, n, rng), self.sessions(self.main, 4 * n, rng)
        rows, clicked, propensity = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("rows", "clicked", "propensity")
        )
        offsets = np.r_[parts[0].offsets, parts[0].offsets[-1] + parts[1].offsets[1:]]
        log = ClickLog(self.queries, rows, clicked, offsets, propensity)
        if self.name == "unnamed":
            return log
        return replace(log, policy=np.repeat([0, 1], [n, 4 * n]), policies=("explore", "main"))

    def sessions(self, rankers: Floats, n_sessions: int, rng: np.random.Generator) -> ClickLog:
        """Draw sessions that use one of the rankers each."""
        log = simulate_clicks(self.queries, rankers, n_sessions, USERS, k=self.shown, seed=rng)
        if self.name not in WITHOUT_MODEL:
            return log
        propensity = self.probabilities(rankers)[log.rows, log.positions - 1]
        return replace(log, propensity=propensity, policy=None, policies=())

    def ranks(self, scores: Floats) -> NDArray[np.int64]:
        """Rank (N,) of each document by these scores."""
        return ranking(scores, self.queries.qid).ranks

    def probabilities(self, rankers: Floats) -> Floats:
        """Probability (N, shown) of each document at each position, if each ranker is as probable."""
        ranks = np.stack([self.ranks(scores) for scores in rankers])
        return np.stack([(ranks == k + 1).mean(axis=0) for k in range(self.shown or 0)], axis=1)

    def options(self) -> dict[str, object]:
        """Arguments of the estimators besides the rankers, the metric and the method."""
        if self.name in WITHOUT_MODEL:
            return {"model": None}
        if self.name == "drawn":
            return {
                "model": USERS,
                "exposure": self.probabilities(self.rankers) @ USERS.examination[: self.shown],
            }
        return {"model": USERS}

    def truth(self, scores: Floats, metric: str) -> float:
        """The exact value, by the definition of the metric."""
        name, k = metric.split("@")
        r, ranks = click_relevance(self.queries.y), self.ranks(scores)
        total = 0.0
        for query in self.queries.groups.queries:
            mine = (self.queries.qid == query) & (ranks <= int(k))
            order = np.argsort(ranks[mine])
            at = ranks[mine][order]
            clicks = r[mine][order] * (1 / np.log2(at + 1) if name == "dcg" else 1 / at)
            none = np.append(1.0, np.cumprod(1 - clicks)[:-1]) / at if name == "mrr" else 1.0
            total += float((clicks * none).sum())
        return total / self.queries.n_queries


def fitted(train: Queries, n_queries: int, queries: Queries, seed: int, penalty: float = 10.0) -> Floats:
    """Scores (N,) of `queries` by a ridge regression on some queries of `train`."""
    ids = np.random.default_rng([3, seed]).permutation(train.groups.queries)[:n_queries]
    some = train.select(ids)
    scale = train.X.std(axis=0) + 1e-9
    scores: Floats = Ridge(penalty).fit(some.X / scale, some.y).predict(queries.X / scale)
    standardized: Floats = (scores - scores.mean()) / scores.std()
    return standardized


def kind(
    name: str, train: Queries, queries: Queries, n_sessions: int, shown: int | None, metrics: tuple[str, ...]
) -> Kind:
    """Build the rankers of a kind."""
    rankers = np.stack([fitted(train, 3, queries, seed) for seed in range(3)])
    main = None
    if name in ("drawn", "few", *WITHOUT_MODEL):
        noise = np.random.default_rng(5).gumbel(size=(400, len(queries)))
        main = {"mixed": rankers[:1], "unnamed": rankers[0] + 0.3 * noise}.get(name)
        rankers = rankers[0] + 1.5 * noise
    better, other = (fitted(train, n, queries, 9, 1000.0) for n in (60, 12))
    return Kind(name, queries, rankers, better, other, n_sessions, shown, metrics, main)


def kinds() -> Iterator[Kind]:
    """All kinds of logs."""
    simulated, short = (make_ranking(200, random_state=11, sizes=sizes) for sizes in ((10, 30), (5, 9)))
    fold = load_pydocs(1)
    halves = [
        (q.select(q.groups.queries[:100]), q.select(q.groups.queries[100:])) for q in (simulated, short)
    ]
    yield kind("simulated", *halves[0], 5000, None, ("dcg@10", "ctr@10", "mrr@10"))
    yield kind("pydocs", fold.train, fold.test, 20_000, None, ("dcg@10", "ctr@10", "mrr@10"))
    yield kind("first five", *halves[0], 5000, 5, ("dcg@10", "ctr@10"))
    yield kind("drawn", *halves[0], 2000, 10, ("dcg@10", "ctr@10"))
    yield kind("few", *halves[0], 500, 10, ("dcg@10", "ctr@10"))
    for name in WITHOUT_MODEL:
        yield kind(name, *halves[1], 5000, 5, ("ctr@5",))


def measured(given: Kind, n_logs: int) -> None:
    """Print a row per metric and method."""
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for seed in range(n_logs):
        log = given.log(seed)
        for metric in given.metrics:
            for method in METHODS:
                if (metric[:3], method) == ("mrr", "snips"):
                    continue
                x = compare_rankers(
                    log,
                    given.better,
                    given.other,
                    metric=metric,
                    method=method,  # type: ignore[arg-type]
                    **given.options(),  # type: ignore[arg-type]
                )
                y = x.first
                row = (y.value, y.standard_error, *y.interval, x.difference, x.standard_error, *x.interval)
                found.setdefault((metric, method), []).append((*row, y.overlap, y.effective_sample_size))
    for (metric, method), rows in found.items():
        exact = given.truth(given.better, metric)
        table, apart = np.array(rows), exact - given.truth(given.other, metric)
        print(
            f"| {given.name} | {metric} | {method} | {table[:, 8].mean():.3f} | {table[:, 9].mean():.0f} | "
            f"{compared(table[:, :4], exact)} | {compared(table[:, 4:8], apart)} |",
            flush=True,
        )


def compared(table: Floats, exact: float) -> str:
    """Cells of one estimate: value, bias in errors, z, ratio of errors, coverage."""
    value, error, low, high = table.T
    spread = float(value.std(ddof=1))
    bias = (float(value.mean()) - exact) / spread
    inside = np.mean((low <= exact) & (exact <= high))
    return (
        f"{exact:.4f} | {bias:+.2f} | {bias * len(value) ** 0.5:+.1f} | {error.mean() / spread:.2f} | "
        f"{100 * inside:.1f}"
    )


def large() -> None:
    """Print the time and the memory of 10 million impressions."""
    queries = make_ranking(5000, random_state=11)
    rng = np.random.default_rng(0)
    rankers = rng.normal(size=(3, len(queries)))
    log = simulate_clicks(queries, rankers, 1_100_000, USERS, k=10, seed=1)
    for name in ("positions", "queries"):
        getattr(log, name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for method in METHODS:
        began = time.perf_counter()
        counterfactual_value(log, queries.y, USERS, method=method)  # type: ignore[arg-type]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{method}: {len(log):,} impressions, {time.perf_counter() - began:.1f} seconds, peak "
            f"{peak:.2f} GB ({before:.2f} GB before)"
        )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", help="kinds of logs, by default all")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    if given.large:
        large()
        return
    columns = "exact | bias in errors | z | error ratio | coverage, %"
    print(f"| log | metric | method | overlap | effective sessions | {columns} | difference: {columns} |")
    print("|---" * 15 + "|")
    for one in kinds():
        if not given.kinds or one.name in given.kinds:
            measured(one, given.logs)


if __name__ == "__main__":
    main()
