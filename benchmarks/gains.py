"""Time of value and gradient for each gain, relative to NDCG, and of approximate MAP and MRR losses in torch.

    python benchmarks/gains.py                 1,000 documents, and growth up to a million
    python benchmarks/gains.py --kernel laplace

One query, one thread. Labels are 0, 1 and 2; a document has each of five intents with probability 0.1. The
losses in torch have one entry per pair of documents, as those of allRank and Rax: ranks are
1 + sum_j sigmoid((s_j - s_i) / t), and MAP and MRR are computed from these ranks. All times of a row are
measured in turn, and the best of several is taken, because machines are busy.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from sinkprop import SmoothedIndicator, expected_gain

GAINS = (
    "ndcg",
    "map",
    "mrr",
    "err",
    "recall@10",
    "alphandcg@20",
    "alphandcg",
    "erria@20",
    "0.5*ndcg + 0.5*mrr",
)


def approximate_map(s: Any, y: Any, t: float = 1.0) -> Any:
    """Average precision of smooth ranks: the mean precision at the ranks of relevant documents."""
    above = ((s[None, :] - s[:, None]) / t).sigmoid()
    above = above - above.diag().diag()
    ranks = 1 + above.sum(1)
    hits = 1 + (above * y[None, :]).sum(1)
    return -(y * hits / ranks).sum() / y.sum()


def approximate_mrr(s: Any, y: Any, t: float = 1.0) -> Any:
    """Largest of the reciprocals of the smooth ranks of relevant documents, as a smooth maximum."""
    above = ((s[None, :] - s[:, None]) / t).sigmoid()
    ranks = 0.5 + above.sum(1)
    reciprocal = y / ranks
    return -((reciprocal * 10).exp() * reciprocal).sum() / (reciprocal * 10).exp().sum()


def timed(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Best time of each call; the calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", choices=["gaussian", "laplace"], default="gaussian")
    parser.add_argument("--sizes", default="10,100,1000,10000,100000,1000000")
    options = parser.parse_args()
    relaxation = SmoothedIndicator(1.0, kernel=options.kernel)
    rng = np.random.default_rng(0)
    print(f"{'documents':22s}" + "".join(f"{gain:>14s}" for gain in GAINS))
    for n in map(int, options.sizes.split(",")):
        x, y, intents = rng.normal(size=n), rng.integers(0, 3, n) * 1.0, (rng.random((n, 5)) < 0.1) * 1.0

        def call(gain: str, x: Any = x, y: Any = y, intents: Any = intents) -> Callable[[], Any]:
            labels = intents if gain.startswith(("alpha", "erria")) else y
            return lambda: expected_gain(x, labels, gain=gain, relaxation=relaxation, n_threads=1)

        times = timed({gain: call(gain) for gain in GAINS}, max(5, min(2000, 10**6 // n)))
        shown = "".join(f"{times[g] * 1e6:8.0f} us{times[g] / times['ndcg']:5.2f}"[-14:] for g in GAINS)
        print(f"{n:<10d}{'us, / ndcg':12s}" + shown)
        if n == 1000:
            _quadratic(x, y, times)


def _quadratic(x: Any, y: Any, times: dict[str, float]) -> None:
    try:
        import torch
    except ImportError:
        print("torch is not installed: no quadratic losses")
        return
    torch.set_num_threads(1)
    relevant = torch.from_numpy((y > 0) * 1.0)

    def loss(function: Callable[..., Any]) -> Callable[[], None]:
        def run() -> None:
            s = torch.tensor(x, requires_grad=True)
            function(s, relevant).backward()

        return run

    losses = {"approximate map": loss(approximate_map), "approximate mrr": loss(approximate_mrr)}
    for name, seconds in timed(losses, 20).items():
        own = times[name.split()[1]]
        print(
            f"  {name} in torch, with one entry per pair: {seconds * 1e6:.0f} us, {seconds / own:.0f} times"
        )


if __name__ == "__main__":
    main()
