"""Time of an epoch of NeuralRanker on one thread, on two threads with shards, and on torch's own two threads.

    python benchmarks/neural_threads.py               400 queries of 100 documents, 136 features

The three take turns, and the best of five times counts. Needs two idle processors.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from sinkprop.torch import MLP, Adam, NeuralRanker, sinkprop_loss

QUERIES, SIZE, FEATURES, BATCH = 400, 100, 136, 4096
NETWORKS = ((64, 32), (256, 128), (1024, 512, 256))


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(QUERIES * SIZE, FEATURES)).astype(np.float32)
    y = np.digitize(X[:, 0] + rng.normal(size=len(X)), [0.5, 1.5])
    qid = np.repeat(np.arange(QUERIES), SIZE)

    def sharded(hidden: tuple[int, ...], n_threads: int) -> float:
        ranker = NeuralRanker(
            network=MLP(hidden, dropout=0),
            optimizer=Adam(batch_documents=BATCH),
            max_epochs=2,
            validation_fraction=0,
            n_threads=n_threads,
            verbose=False,
        )
        return ranker.fit(X, y, qid=qid).fit_result_.epochs[-1].seconds

    def by_torch(hidden: tuple[int, ...]) -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        network = MLP(hidden, dropout=0)(FEATURES)
        optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
        queries = BATCH // SIZE
        offsets = torch.arange(queries + 1) * SIZE
        began = time.perf_counter()
        for start in range(0, QUERIES - queries + 1, queries):
            rows = slice(start * SIZE, (start + queries) * SIZE)
            loss = sinkprop_loss(
                network(torch.from_numpy(X[rows])), torch.from_numpy(y[rows]), offsets=offsets, n_threads=2
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - began
        torch.set_num_threads(before)
        return seconds

    print(f"{'hidden':18} {'one thread':>12} {'two by shards':>14} {'two of torch':>13}")
    for hidden in NETWORKS:
        ways: list[Callable[[], float]] = [
            lambda hidden=hidden: sharded(hidden, 1),
            lambda hidden=hidden: sharded(hidden, 2),
            lambda hidden=hidden: by_torch(hidden),
        ]
        times = np.array([[way() for way in ways] for _ in range(5)]).min(axis=0)
        print(f"{hidden!s:18} {times[0]:10.3f} s {times[0] / times[1]:12.2f} x {times[0] / times[2]:11.2f} x")


if __name__ == "__main__":
    main()
