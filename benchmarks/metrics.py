"""Times of `sinkprop.evaluate` on a million documents, compared with other packages for ranking metrics.

    python benchmarks/metrics.py                        everything, about two minutes
    python benchmarks/metrics.py --documents 100000     smaller, about 15 seconds

The first table is for sinkprop alone: NDCG@1 to NDCG@10, MAP, MRR and ERR in one call, for queries of several
sizes. The second table is for 1,000 queries of 100 documents, with the metrics that each package supports.
The time to convert NumPy arrays to a package's data format is shown separately. Times are the best of several
runs in one process. Packages that are not installed are skipped. The means of every package must equal
sinkprop's.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkprop
from sinkprop.data import group_rows

ASKED = "ndcg@1-10,map,mrr,err"
COMMON = ("ndcg@10", "map", "mrr", "p@5")
AGREEMENT = 1e-9


@dataclass(frozen=True)
class Problem:
    """Labels from 0 to 4, mostly 0, and normal scores, which are rounded to produce ties if requested."""

    name: str
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    qid: NDArray[np.int64]
    ties: str = "file"


@dataclass(frozen=True)
class Peer:
    """A package: `convert` makes its data format, `compute` the means of the metrics that it supports."""

    package: str
    convert: Callable[[Problem], Any]
    compute: Callable[[Any], dict[str, float]]


def problem(name: str, qid: NDArray[np.int64], *, ties: str = "file") -> Problem:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=len(qid))
    labels = rng.choice(5, len(qid), p=[0.5, 0.3, 0.1, 0.07, 0.03])
    return Problem(name, labels, scores if ties == "file" else scores.round(1), qid, ties)


def shapes(n: int) -> list[Problem]:
    rng = np.random.default_rng(1)
    equal = np.repeat(np.arange(n // 100), 100)
    sizes = np.minimum(rng.zipf(1.5, n), 20_000)
    uneven = np.repeat(np.arange(n), sizes)[:n]
    return [
        problem("queries of 100", equal),
        problem("one query", np.zeros(n, np.int64)),
        problem("queries of one document", np.arange(n)),
        problem("queries of 5", np.repeat(np.arange(n // 5), 5)),
        problem("queries of 1 to 20,000, most of them short", uneven),
        problem("queries of 100, mixed up", rng.permutation(equal)),
        problem("queries of 100, averaged ties", equal, ties="average"),
    ]


def best(call: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest of at most 50 runs, started within so many seconds; at least one run."""
    times: list[float] = []
    while not times or (sum(times) < seconds and len(times) < 50):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def dictionaries(p: Problem) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Labels 2^r - 1, for packages whose gain is the label, and scores, as {query: {document: value}}."""
    labels: dict[str, dict[str, int]] = {}
    scored: dict[str, dict[str, float]] = {}
    gains = (2**p.labels - 1).tolist()
    for i, (q, g, x) in enumerate(zip(p.qid.tolist(), gains, p.scores.tolist(), strict=True)):
        labels.setdefault(str(q), {})[f"d{i}"] = g
        scored.setdefault(str(q), {})[f"d{i}"] = x
    return labels, scored


def sklearn_peer() -> Peer:
    from sklearn.metrics import ndcg_score

    def convert(p: Problem) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        ends = np.flatnonzero(np.diff(p.qid)) + 1
        gains = 2.0**p.labels - 1
        return list(zip(np.split(gains, ends), np.split(p.scores, ends), strict=True))

    def compute(queries: list[tuple[NDArray[Any], NDArray[Any]]]) -> dict[str, float]:
        return {"ndcg@10": float(np.mean([ndcg_score([y], [x], k=10) for y, x in queries]))}

    return Peer("sklearn", convert, compute)


def pytrec_eval_peer() -> Peer:
    import pytrec_eval

    def compute(form: Any) -> dict[str, float]:
        names = {"ndcg_cut.10": "ndcg_cut_10", "map": "map", "recip_rank": "recip_rank", "P.5": "P_5"}
        found = pytrec_eval.RelevanceEvaluator(form[0], set(names)).evaluate(form[1])
        means = (np.mean([q[name] for q in found.values()]) for name in names.values())
        return dict(zip(COMMON, map(float, means), strict=True))

    return Peer("pytrec_eval", dictionaries, compute)


def ir_measures_peer() -> Peer:
    import ir_measures

    measures = [ir_measures.parse_measure(text) for text in ("nDCG@10", "AP", "RR", "P@5")]

    def compute(form: Any) -> dict[str, float]:
        found = ir_measures.calc_aggregate(measures, *form)
        return dict(zip(COMMON, (found[measure] for measure in measures), strict=True))

    return Peer("ir_measures", dictionaries, compute)


def ranx_peer() -> Peer:
    import ranx

    def convert(p: Problem) -> tuple[Any, Any]:
        labels, scored = dictionaries(p)
        return ranx.Qrels(labels), ranx.Run(scored)

    def compute(form: Any) -> dict[str, float]:
        names = ["ndcg@10", "map", "mrr", "precision@5"]
        found = ranx.evaluate(*form, names)
        return dict(zip(COMMON, (float(found[name]) for name in names), strict=True))

    return Peer("ranx", convert, compute)


PEERS = {
    "sklearn": sklearn_peer,
    "pytrec_eval": pytrec_eval_peer,
    "ir_measures": ir_measures_peer,
    "ranx": ranx_peer,
}


def print_shapes(n: int, seconds: float) -> None:
    print(f"{ASKED} of {n:,} documents, milliseconds\n")
    for p in shapes(n):
        grouping = best(partial(group_rows, p.qid, len(p.qid)), seconds / 3)
        whole = best(partial(sinkprop.evaluate, p.labels, p.scores, p.qid, ASKED, ties=p.ties), seconds)
        print(f"{p.name:<46}{1e3 * whole:>8.1f}   of it grouping the rows{1e3 * grouping:>7.1f}")


def print_peers(seconds: float) -> None:
    p = problem("1,000 queries of 100", np.repeat(np.arange(1000), 100))
    print(f"\n{p.name}, milliseconds; both together in times ours\n")
    print(f"{'package':<14}{'metrics':<28}{'convert':>10}{'compute':>10}")
    for package, make in PEERS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package:<14}not installed")
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of the other packages
            peer = make()
            form = peer.convert(p)
            theirs = peer.compute(form)  # the first call also compiles, in some packages
            convert, compute = (
                best(partial(peer.convert, p), seconds),
                best(partial(peer.compute, form), seconds),
            )
        evaluate = partial(sinkprop.evaluate, p.labels, p.scores, p.qid, tuple(theirs), "standard")
        for name, value in evaluate().items():
            if abs(theirs[name] - value) > AGREEMENT:
                sys.exit(f"{package} has {name} {theirs[name]}, and sinkprop {value}")
        ours = best(evaluate, seconds)
        names = ", ".join(theirs)
        print(f"{'sinkprop':<14}{names:<28}{'':>10}{1e3 * ours:>10.1f}")
        ratio = f"{(convert + compute) / ours:>8.0f} times"
        print(f"{package:<14}{names:<28}{1e3 * convert:>10.1f}{1e3 * compute:>10.1f}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=10**6, help="number of documents in the first table")
    parser.add_argument("--seconds", type=float, default=1.5, help="time for each number")
    parser.add_argument("--no-peers", action="store_true", help="print the first table only")
    options = parser.parse_args()
    if options.documents < 1000 or options.documents % 100:
        parser.error("--documents must be a multiple of 100, at least 1000")
    print_shapes(options.documents, options.seconds)
    if not options.no_peers:
        print_peers(options.seconds)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
