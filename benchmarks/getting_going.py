"""How fast networks get going: NDCG@10 by epoch with the default loss, with a fixed width and with ListNet.

    python benchmarks/getting_going.py                       the sets the default was chosen on
    python benchmarks/getting_going.py wide few OHSUMED      sets by name; OHSUMED has Fold1 to Fold5
    python benchmarks/getting_going.py --losses sigma=1 laplace scaled annealed width entropy
    python benchmarks/getting_going.py towers --cache FILE   the same, keeping each fit: a second run resumes
    python benchmarks/getting_going.py towers --gradients    also norms of gradients, spreads of scores

Every fit is plain PyTorch: Adam with its defaults, batches of 32 queries, float32, one thread, NDCG@10. The
simulated sets have features of queries and of documents, and a relevance that depends on both by a hidden
function. Two towers embed them, and the score is the dot product of the embeddings, or their cosine times a
number. On sets with one vector of features per document (pydocs, make_ranking, folders) the network is a
perceptron. A row has the mean NDCG@10 of held-out queries after 1, 2, 6, 12 and 20 epochs, after the last of
40 (30 for short lists) and at the best epoch, with standard errors over the seeds. A second table has means
over the sets, and paired differences to the last loss. Seed s takes fold s.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor, nn

import sinkprop
from sinkprop import SmoothedIndicator
from sinkprop.torch import SinkPropLoss, listnet_loss
from sinkprop.torch.losses.batches import Layout
from sinkprop.torch.losses.start import SMOOTHING, relative_scores, start_gradient

GAIN = "ndcg@10"
AT = (1, 2, 6, 12, 20)
BATCH = 32  # queries


@dataclass(frozen=True)
class Simulation:
    """Two-tower data and its network.

    noise      standard deviation of the noise in the relevance, whose own is 1
    hidden     dimensions of the vectors on which the relevance depends
    quantiles  of the relevance, which bound the labels
    cosine     factor of the cosine; 0 for a dot product
    weights    factor of the initial weights of the last layers
    """

    queries: int
    sizes: tuple[int, int]
    noise: float
    hidden: int = 8
    features: int = 24
    embedding: int = 32
    quantiles: tuple[float, ...] = (0.6, 0.8, 0.92, 0.98)
    cosine: float = 0.0
    weights: float = 1.0
    epochs: int = 40


SIMULATIONS = {
    "towers": Simulation(400, (20, 60), 0.05),
    "long": Simulation(120, (150, 250), 0.4),
    "short": Simulation(1500, (5, 15), 0.3, epochs=30),
    "tiny": Simulation(1000, (2, 10), 0.2, epochs=30),
    "pairs": Simulation(2000, (2, 3), 0.2, epochs=30),
    "exact": Simulation(1000, (20, 40), 0.0, hidden=4),
    "cosine": Simulation(400, (20, 60), 0.1, cosine=10.0),
    "loud": Simulation(400, (20, 60), 0.1, embedding=64, weights=4.0),
    # not used while the default was chosen
    "wide": Simulation(400, (30, 80), 0.3, embedding=64, weights=3.0),
    "one-relevant": Simulation(800, (20, 20), 0.1, quantiles=(0.95,), epochs=30),
    "few": Simulation(100, (10, 100), 0.5, hidden=4),
    "cosine-cold": Simulation(600, (10, 50), 0.4, cosine=1.0),
}
CHOSEN_ON = ("towers", "long", "short", "tiny", "pairs", "exact", "cosine", "loud", "pydocs", "make_ranking")


class Towers(nn.Module):
    def __init__(self, s: Simulation) -> None:
        super().__init__()
        self.query, self.document = (
            nn.Sequential(nn.Linear(s.features, 64), nn.ReLU(), nn.Linear(64, s.embedding)) for _ in range(2)
        )
        self.cosine = s.cosine
        with torch.no_grad():
            for tower in (self.query, self.document):
                tower[-1].weight *= s.weights

    def forward(self, Q: Tensor, X: Tensor, of: Tensor) -> Tensor:
        q, d = self.query(Q), self.document(X)
        if self.cosine:
            q, d = nn.functional.normalize(q, dim=1), self.cosine * nn.functional.normalize(d, dim=1)
        return (q[of] * d).sum(1)


class Perceptron(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, Q: Tensor, X: Tensor, of: Tensor) -> Tensor:
        return self.net(X).squeeze(1)


@dataclass(frozen=True)
class Part:
    """Queries one after the other: Q (queries, features), X (N, features), y (N,), offsets (queries + 1,)."""

    Q: Tensor
    X: Tensor
    y: Tensor
    offsets: Tensor

    def take(self, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        sizes = self.offsets.diff()[queries]
        ends = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
        of = torch.repeat_interleave(torch.arange(len(queries)), sizes)
        rows = self.offsets[queries][of] + torch.arange(len(of)) - ends[of]
        return self.Q[queries], self.X[rows], of, self.y[rows], ends


def offsets_of(sizes: Any) -> Tensor:
    return torch.tensor(np.concatenate([[0], np.cumsum(sizes)]))


def simulated(s: Simulation, seed: int) -> tuple[Part, Part]:
    """Training queries and 300 test queries."""
    rng = np.random.default_rng(1000 + seed)
    shape = (s.features, s.hidden)
    mix_q, mix_d = rng.normal(size=shape), rng.normal(size=shape)
    warp_q, warp_d = rng.normal(size=(s.hidden, s.hidden)), rng.normal(size=(s.hidden, s.hidden))

    def part(n: int) -> Part:
        sizes = rng.integers(s.sizes[0], s.sizes[1], n, endpoint=True)
        of = np.repeat(np.arange(n), sizes)
        z, w = rng.normal(size=(n, s.hidden)), rng.normal(size=(len(of), s.hidden))
        hidden_q, hidden_d = np.tanh(z @ warp_q), np.tanh(w @ warp_d)
        relevance = (hidden_q[of] * hidden_d).sum(1)
        relevance = relevance / relevance.std() + s.noise * rng.normal(size=len(of))
        y = np.searchsorted(np.quantile(relevance, s.quantiles), relevance)
        Q, X = z @ mix_q.T / s.hidden**0.5, w @ mix_d.T / s.hidden**0.5
        return Part(*(torch.tensor(x, dtype=torch.float32) for x in (Q, X, y)), offsets_of(sizes))

    return part(s.queries), part(300)


def of_features(train: Any, test: Any) -> tuple[Part, Part]:
    """Parts without features of queries; features have mean 0 and deviation 1 over the training documents."""
    mean = np.nanmean(train.X, axis=0)
    deviation = np.nanstd(train.X, axis=0)
    deviation[~(deviation > 0)] = 1

    def part(queries: Any) -> Part:
        X = np.nan_to_num((np.asarray(queries.X) - mean) / deviation)
        _, qid = np.unique(queries.qid, return_inverse=True)
        order = np.argsort(qid, kind="stable")
        sizes = np.bincount(qid)
        X, y = (torch.tensor(np.asarray(x)[order], dtype=torch.float32) for x in (X, queries.y))
        return Part(torch.zeros(len(sizes), 0), X, y, offsets_of(sizes))

    return part(train), part(test)


@lru_cache(maxsize=2)
def parts(name: str, seed: int) -> tuple[Part, Part]:
    from sinkprop import load_letor, load_query_sizes
    from sinkprop.datasets import load_pydocs, make_ranking

    if name in SIMULATIONS:
        return simulated(SIMULATIONS[name], seed)
    if name == "pydocs":
        fold = load_pydocs(seed % 5 + 1)
        return of_features(fold.train, fold.test)
    if name in ("make_ranking", "interactions"):
        more: dict[str, Any] = {"interactions": 0.8, "noise": 0.5} if name == "interactions" else {}
        queries = make_ranking(700, random_state=200 + seed, sizes=(5, 40), **more)
        first = np.isin(queries.qid, np.unique(queries.qid)[:400])
        return of_features(queries.take(np.flatnonzero(first)), queries.take(np.flatnonzero(~first)))
    folder = Path(name)
    if (folder / "rank.train").exists():
        return of_features(
            *(
                load_letor(folder / part, group=load_query_sizes(folder / f"{part}.query"))
                for part in ("rank.train", "rank.test")
            )
        )
    where = folder / f"Fold{seed % 5 + 1}"
    return of_features(*(load_letor(where / f"{part}.txt", allow_nan=True) for part in ("train", "test")))


# A function of scores, labels and offsets
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def with_relaxation(relaxation: Any, factor: float = 1.0) -> Loss:
    loss = SinkPropLoss(GAIN, relaxation, n_threads=1)
    return lambda s, y, offsets: factor * loss(s, y, offsets=offsets)


def annealed() -> Loss:
    """A width that starts at 4 and goes to 1 over the first hundred batches."""
    loss, calls = SinkPropLoss(GAIN, n_threads=1), iter(range(10**9))

    def call(s: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
        loss.relaxation = SmoothedIndicator(1 + 3 * math.exp(-next(calls) / 100))
        return loss(s, y, offsets=offsets)

    return call


def width_alone() -> Loss:
    loss = SinkPropLoss(GAIN, SMOOTHING, n_threads=1)

    def call(s: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
        return loss(relative_scores(s, Layout((len(s),), None, offsets))[0], y, offsets=offsets)

    return call


def entropy_alone() -> Loss:
    loss = SinkPropLoss(GAIN, SmoothedIndicator(1.0), n_threads=1)

    def call(s: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
        layout = Layout((len(s),), None, offsets)
        start = start_gradient(s, y, relative_scores(s, layout)[1], layout, loss.gain, None)
        assert start is not None
        return loss(s, y, offsets=offsets) + start.mean()

    return call


LOSSES: dict[str, Callable[[], Loss]] = {
    "listnet": lambda: lambda s, y, offsets: listnet_loss(s, y, offsets=offsets),
    "sigma=1": lambda: with_relaxation(SmoothedIndicator(1.0)),
    "default": lambda: with_relaxation(None),
    "laplace": lambda: with_relaxation(SmoothedIndicator(1.0, "laplace")),
    "scaled": lambda: with_relaxation(SmoothedIndicator(1.0), 100.0),
    "annealed": annealed,
    "width": width_alone,
    "entropy": entropy_alone,
}


def fit(name: str, method: str, rate: float, seed: int, gradients: bool) -> dict[str, Any]:
    train, test = parts(name, seed)
    torch.manual_seed(seed)
    simulation = SIMULATIONS.get(name)
    net = Towers(simulation) if simulation else Perceptron(train.X.shape[1])
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    loss, shuffled = LOSSES[method](), torch.Generator().manual_seed(seed)
    n, curve, norms, spreads = len(train.offsets) - 1, [], [], []
    Q, X, of, y, offsets = test.take(torch.arange(len(test.offsets) - 1))
    layout = Layout((len(y),), None, offsets)
    before = time.process_time()
    for _ in range(simulation.epochs if simulation else 40):
        norm = 0.0
        batches = torch.randperm(n, generator=shuffled).split(BATCH)
        for queries in batches:
            *inputs, labels, ends = train.take(queries)
            value = loss(net(*inputs), labels, ends)
            optimizer.zero_grad()
            value.backward()
            if gradients:
                norm += sum(float(p.grad.square().sum()) for p in net.parameters()) ** 0.5
            optimizer.step()
        with torch.no_grad():
            scores = net(Q, X, of)
        found = sinkprop.evaluate(
            y.numpy(), scores.double().numpy(), of.numpy(), metrics=("ndcg@10",), convention="standard"
        )
        curve.append(round(float(found["ndcg@10"]), 5))
        norms.append(round(norm / len(batches), 6))
        spreads.append(round(float(relative_scores(scores, layout)[1].mean()), 4))
    seconds = round(time.process_time() - before, 2)
    job = {"set": Path(name).name, "method": method, "rate": rate, "seed": seed}
    return job | {"seconds": seconds, "curve": curve, "norms": norms, "spreads": spreads}


def cells(fits: list[dict[str, Any]]) -> list[str]:
    """Mean after each epoch of `AT`, after the last one and at the best one, with standard errors."""
    curves = np.array([f["curve"] for f in fits])
    columns = [curves[:, e - 1] for e in AT] + [curves[:, -1], curves.max(axis=1)]
    errors = [x.std(ddof=1) / len(x) ** 0.5 if len(x) > 1 else 0.0 for x in columns]
    return [f"{x.mean():.3f} ({e:.3f})".replace("0.", ".") for x, e in zip(columns, errors, strict=True)]


def summary(fits: dict[tuple[str, float], list[list[dict[str, Any]]]]) -> list[str]:
    """Rows with the mean over the sets, and the differences to the last loss.

    fits  For each loss and learning rate: for each set, the fits of all seeds. Differences are paired by
          seed, and their standard error is that of a mean over these sets.
    """

    def points(of: list[list[dict[str, Any]]]) -> Any:
        """After 6 epochs, the last, the best: (3, sets, seeds)."""
        curves = [[fit["curve"] for fit in of_set] for of_set in of]
        return np.array([[[c[5], c[-1], max(c)] for c in of_set] for of_set in curves]).transpose(2, 0, 1)

    rows = ["| rate | loss | epoch 6 | last | best |", "|---|---|---|---|---|"]
    for rate in dict.fromkeys(rate for _, rate in fits):
        losses = [loss for loss, other in fits if other == rate]
        last = points(fits[losses[-1], rate])
        for loss in losses:
            own = points(fits[loss, rate])
            row = [f"{x.mean():.4f}".replace("0.", ".") for x in own]
            if loss != losses[-1]:
                errors = np.sqrt(((last - own).var(axis=2, ddof=1) / own.shape[2]).sum(axis=1)) / own.shape[1]
                gaps = (last - own).mean(axis=(1, 2))
                row = [f"{x} ({d:+.4f}, {e:.4f})" for x, d, e in zip(row, gaps, errors, strict=True)]
            rows.append(f"| {' | '.join([f'{rate:g}', loss, *row])} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sets = f"{', '.join(SIMULATIONS)}, pydocs, make_ranking, interactions, or a folder"
    parser.add_argument("sets", nargs="*", default=CHOSEN_ON, help=sets)
    parser.add_argument(
        "--losses", nargs="+", default=["listnet", "sigma=1", "default"], choices=list(LOSSES)
    )
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-3, 5e-3], help="learning rates")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds  [default: 5]")
    parser.add_argument("--gradients", action="store_true", help="also the gradient's norm and the spread")
    parser.add_argument("--cache", type=Path, help="file that keeps every fit")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = {}
    if options.cache and options.cache.exists():
        for line in options.cache.read_text(encoding="utf-8").splitlines():
            old = json.loads(line)
            kept[old["set"], old["method"], old["rate"], old["seed"]] = old

    def one(name: str, method: str, rate: float, seed: int) -> dict[str, Any]:
        key = (Path(name).name, method, rate, seed)
        if key not in kept:
            kept[key] = fit(name, method, rate, seed, options.gradients)
            if options.cache:
                with options.cache.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(kept[key]) + "\n")
        return kept[key]

    print(f"| set | rate | loss | {' | '.join(f'epoch {e}' for e in AT)} | last | best | seconds |")
    print(f"|{'---|' * (len(AT) + 6)}")
    found: dict[tuple[str, float], list[list[dict[str, Any]]]] = {}
    for name in options.sets:
        for rate in options.rates:
            for method in options.losses:
                fits = [one(name, method, rate, seed) for seed in range(options.seeds)]
                found.setdefault((method, rate), []).append(fits)
                seconds = f"{np.mean([f['seconds'] for f in fits]):.1f}"
                print(
                    f"| {' | '.join([Path(name).name, f'{rate:g}', method, *cells(fits), seconds])} |",
                    flush=True,
                )
                for what in ("norms", "spreads") if options.gradients else ():
                    mean = np.mean([f[what] for f in fits], axis=0)
                    print(f"    {what}:", *(f"{mean[e - 1]:.3g}" for e in (*AT, len(mean))), flush=True)
    if options.seeds > 1:
        print("\nMeans over the sets; in parentheses what the last loss has more, and its standard error")
        print("\n".join(summary(found)))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
