"""Matching the points of two clouds, by a network that learns through Sinkhorn normalization.

    python examples/match_points.py            all methods with three seeds, and a figure; about 3 minutes
    python examples/match_points.py --quick    two methods with one seed, in seconds

A cloud of 24 points on a random closed curve has a copy. The copy is rotated and reordered, noise is added to
every point, and 3 points are replaced by random ones. The task is to find each point of the cloud in the
copy. A small network turns the distances within each cloud, which no rotation changes, into one vector per
point. The affinity of point i and point j of the copy is A[i, j] = exp(scale * (cosine of their vectors -
1)), and

    Pi = Z^n_iter(A + epsilon),    loss = -mean of ln Pi[i, true j],

is SinkProp for "matching problems and image correspondence tasks", the future work of Adams and Zemel (2011):
the gradient passes through exactly the iterations that were run. As in the paper, a constant is added to A.
Here it lets a point without a copy be matched to any point.

The methods have the same network, the same clouds and the same number of steps. They compute Pi by
normalizing the rows only (a softmax for each point), by 1, 5 and 20 iterations, and by 20 iterations with
Gumbel noise in training. A baseline without learning uses the sorted distances as a point's vector. The test
is on unseen clouds, at several levels of noise.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import sinkprop
from sinkprop.torch import gumbel_sinkhorn, sinkhorn

N_POINTS = 24
MOST_NOISE = 0.15  # in training; the root mean square radius of a cloud is 1
EPSILON = 1e-3
ROWS_ONLY = "row softmax"
SINKPROP = {"SinkProp, 1 iteration": 1, "SinkProp, 5 iterations": 5, "SinkProp, 20 iterations": 20}
GUMBEL = "Gumbel-Sinkhorn, 20"
RAW = "sorted distances"
AT_TEST = "row softmax, 5 iterations at test"


@dataclass(frozen=True)
class Pairs:
    """Clouds X and their copies Y, (B, n, 2). Y[b, match[b, i]] is the copy of X[b, i] if it has one."""

    X: Tensor
    Y: Tensor
    match: Tensor  # (B, n)
    has_copy: Tensor  # (B, n) bool

    def share_found(self, answer: Tensor) -> float:
        """Share of the points with a copy whose match in ``answer`` (B, n) is correct."""
        return float((answer == self.match)[self.has_copy].double().mean())


def draw_pairs(n_pairs: int, noise: Tensor, generator: torch.Generator, n_outliers: int) -> Pairs:
    """Points on random closed curves, which are sums of five harmonics, and copies with noise (n_pairs,)."""
    shape = (n_pairs, N_POINTS)
    harmonic = torch.arange(1.0, 6.0)
    coefficients = torch.randn(n_pairs, 10, 2, generator=generator) / harmonic.repeat(2)[:, None] ** 1.2
    t = 2 * torch.pi * (torch.arange(N_POINTS) + 0.8 * torch.rand(shape, generator=generator)) / N_POINTS
    waves = t[:, :, None] * harmonic
    X = torch.cat([waves.cos(), waves.sin()], dim=2) @ coefficients
    X = X - X.mean(dim=1, keepdim=True)
    X = X / X.square().sum(dim=2, keepdim=True).mean(dim=1, keepdim=True).sqrt()

    angle = 2 * torch.pi * torch.rand(n_pairs, generator=generator)
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=1).reshape(-1, 2, 2)
    copies = X @ rotation + noise[:, None, None] * torch.randn(X.shape, generator=generator)
    has_copy = torch.rand(shape, generator=generator).argsort(dim=1) >= n_outliers
    copies = torch.where(has_copy[:, :, None], copies, torch.randn(X.shape, generator=generator))
    match = torch.rand(shape, generator=generator).argsort(dim=1)
    Y = torch.empty_like(copies).scatter_(1, match[:, :, None].expand_as(copies), copies)
    return Pairs(X, Y, match, has_copy)


class Matcher(nn.Module):
    """Log affinities (B, n, n), which are at most 0, of the points of two clouds (B, n, 2).

    A point's vector is updated three times from those of the others, which are summed with Gaussian weights
    around each of ten distances. Rotating a cloud changes nothing; reordering it only reorders the vectors.
    """

    def __init__(self, width: int = 32, n_rounds: int = 3, n_distances: int = 10) -> None:
        super().__init__()
        self.register_buffer("distances", torch.linspace(0.0, 3.0, n_distances)[:, None, None])
        self.start = nn.Linear(n_distances, width)
        self.rounds = nn.ModuleList(
            nn.Sequential(
                nn.Linear((n_distances + 1) * width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
            )
            for _ in range(n_rounds)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(n_rounds))
        self.end = nn.Linear(width, width)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def forward(self, X: Tensor, Y: Tensor) -> Tensor:
        x, y = self.vectors(torch.cat([X, Y])).chunk(2)
        return self.log_scale.exp() * (x @ y.mT - 1)

    def vectors(self, X: Tensor) -> Tensor:
        """Unit vectors (B, n, width) of the points."""
        apart = (torch.cdist(X, X)[:, None] - self.distances) / 0.3
        K = torch.exp(-0.5 * apart**2)  # (B, n_distances, n, n)
        h = self.start(K.sum(dim=3).mT.sqrt())
        for update, norm in zip(self.rounds, self.norms, strict=True):
            messages = (K @ h[:, None]).permute(0, 2, 1, 3).flatten(2) / N_POINTS**0.5
            h = norm(h + update(torch.cat([h, messages], dim=2)))
        return nn.functional.normalize(self.end(h), dim=2)


def sorted_distances(X: Tensor, Y: Tensor) -> Tensor:
    """Affinity without learning: minus the distance between the points' sorted distances in their clouds."""
    x, y = (torch.cdist(cloud, cloud).sort(dim=2).values for cloud in (X, Y))
    return -torch.cdist(x, y)


def normalized(log_A: Tensor, method: str, noise: torch.Generator | None = None) -> Tensor:
    """Pi (B, n, n), whose rows sum to 1, with Gumbel noise in training if the method uses it."""
    A = log_A.exp()
    if method in SINKPROP:
        return sinkhorn(A, SINKPROP[method], epsilon=EPSILON)
    A = A + EPSILON
    if method == GUMBEL:
        strength = 0.0 if noise is None else 0.3
        return gumbel_sinkhorn(A.log(), noise=strength, n_iter=20, generator=noise)
    return A / A.sum(dim=2, keepdim=True)


def train(method: str, n_steps: int, seed: int, n_outliers: int) -> Matcher:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    gumbel = torch.Generator().manual_seed(
        seed
    )  # a separate generator, so that all methods see the same clouds
    model = Matcher()
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=n_steps)
    for _ in range(n_steps):
        pairs = draw_pairs(32, MOST_NOISE * torch.rand(32, generator=generator), generator, n_outliers)
        Pi = normalized(model(pairs.X, pairs.Y), method, gumbel)
        loss = -Pi.gather(2, pairs.match[:, :, None])[..., 0][pairs.has_copy].log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


def assign(Pi: Tensor) -> Tensor:
    """The most likely one-to-one matching of each pair of clouds, (B, n)."""
    # choose_permutation returns the row for each column; for the transpose, this is the column for each row.
    chosen = [sinkprop.choose_permutation(P.T.numpy(), method="hungarian") for P in Pi.double()]
    return torch.from_numpy(np.stack(chosen))


@dataclass(frozen=True)
class Found:
    """Shares of copies found at each level of noise, by assignment and by the largest entry of each row."""

    assigned: list[float]
    largest: list[float]


@torch.no_grad()
def test(tests: list[Pairs], method: str, model: Any) -> Found:
    assigned, largest = [], []
    for pairs in tests:
        log_A = model(pairs.X, pairs.Y)
        Pi = normalized(log_A, method) if method != RAW else log_A.softmax(dim=2)
        assigned.append(pairs.share_found(assign(Pi)))
        largest.append(pairs.share_found(Pi.argmax(dim=2)))
    return Found(assigned, largest)


def table(noise: list[float], results: dict[str, list[Found]]) -> str:
    """Mean over seeds in percent and, for several seeds, the standard deviation."""
    lines = []
    for how, title in (("assigned", "one-to-one assignment"), ("largest", "largest entry of each row")):
        lines += ["", f"{title:34}" + "".join(f"{f'noise {s:g}':>13}" for s in noise)]
        for method, runs in results.items():
            shares = 100 * np.array([getattr(run, how) for run in runs])
            spread = [f" ± {s:.1f}" if len(runs) > 1 else "" for s in shares.std(axis=0)]
            cells = (f"{m:.1f}{s}" for m, s in zip(shares.mean(axis=0), spread, strict=True))
            lines.append(f"{method:34}" + "".join(f"{cell:>13}" for cell in cells))
    return "\n".join(lines)


GRAY, BLUE, ORANGE = "#8A8A8A", "#0072B2", "#C24E00"


@torch.no_grad()
def draw(
    path: Path, pairs: Pairs, model: Matcher, method: str, noise: list[float], results: dict[str, list[Found]]
) -> None:
    """Draw one matched pair of clouds, its Pi, and the shares of copies found against noise."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3, width_ratios=(2.0, 1.0, 1.2))

    Pi = normalized(model(pairs.X, pairs.Y), method)
    X, Y, match, has_copy = (
        pairs.X[0],
        pairs.Y[0] + torch.tensor([3.7, 0.0]),
        pairs.match[0],
        pairs.has_copy[0],
    )
    answer = assign(Pi)[0]
    is_right = (answer == match) & has_copy
    for i in torch.argsort(is_right.int(), descending=True, stable=True).tolist():
        if has_copy[i]:
            (x0, y0), (x1, y1) = X[i].tolist(), Y[answer[i]].tolist()
            style = {"color": BLUE, "linewidth": 0.8, "alpha": 0.6} if is_right[i] else {"color": ORANGE}
            left.plot([x0, x1], [y0, y1], zorder=1, **style)
    filled = torch.zeros(N_POINTS, dtype=torch.bool).scatter_(0, match, has_copy)
    curves = X, Y[match[has_copy]]  # the curve of a cloud connects its points in order
    for curve in curves:
        left.plot(*torch.cat([curve, curve[:1]]).T.numpy(), color="#D0D0D0", linewidth=4, zorder=0)
    for cloud, full in ((X, has_copy), (Y, filled)):
        left.scatter(*cloud[full].T.numpy(), s=26, color="black", zorder=2)
        left.scatter(*cloud[~full].T.numpy(), s=26, facecolor="white", edgecolor="black", zorder=2)
    n_right, n_copies = int(is_right.sum()), int(has_copy.sum())
    left.set_title(f"{n_right} of {n_copies} copies found; orange is wrong, hollow has no copy", fontsize=11)
    left.set_aspect("equal", adjustable="datalim")
    left.set_axis_off()

    middle.imshow(Pi[0][:, match].numpy(), cmap="Blues", vmin=0, vmax=1)
    middle.set_title("$\\Pi$, with the copies on the diagonal", fontsize=11)
    middle.set(xlabel="point of the copy", ylabel="point", xticks=[], yticks=[])

    for name, how, color, style, marker, label in (
        (method, "largest", BLUE, "-", "o", "SinkProp, largest entries"),
        (method, "assigned", BLUE, "--", "s", "SinkProp, assignment"),
        (ROWS_ONLY, "largest", ORANGE, "-", "v", "row softmax, largest entries"),
        (ROWS_ONLY, "assigned", ORANGE, "--", "^", "row softmax, assignment"),
        (RAW, "assigned", GRAY, "--", "D", "sorted distances, assignment"),
    ):
        shares = 100 * np.mean([getattr(run, how) for run in results[name]], axis=0)
        right.plot(noise, shares, style, color=color, marker=marker, markersize=5, label=label)
    right.set(xlabel="noise / radius of the cloud", ylabel="copies found, %", ylim=(20, 102))
    right.xaxis.get_major_locator().set_params(nbins=4)
    right.grid(True, color="#E6E6E6", linewidth=0.6)
    right.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize=9, loc="lower left")
    figure.savefig(path, dpi=100)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Point matching, learned through Sinkhorn normalization.")
    parser.add_argument("--quick", action="store_true", help="run two methods with one seed, in seconds")
    parser.add_argument("--seed", type=int, default=0, help="first random seed (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("match-points.png"), help="file for the figure")
    parser.add_argument(
        "--outliers", type=int, default=3, help="number of points without a copy (default: 3)"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the matrices are small: threads would only wait for each other

    shown = "SinkProp, 5 iterations"
    methods = [ROWS_ONLY, shown] if options.quick else [ROWS_ONLY, *SINKPROP, GUMBEL]
    n_seeds, n_steps, n_tests = (1, 60, 40) if options.quick else (3, 300, 200)
    noise = [0.0, 0.05, 0.1] if options.quick else [0.0, 0.025, 0.05, 0.075, 0.1, 0.15]
    unseen = torch.Generator().manual_seed(options.seed + 1_000_000)
    tests = [draw_pairs(n_tests, torch.full((n_tests,), s), unseen, options.outliers) for s in noise]

    results = {RAW: [test(tests, RAW, sorted_distances)]}
    models = {}
    start = time.process_time()
    for method in methods:
        models[method] = [train(method, n_steps, options.seed + i, options.outliers) for i in range(n_seeds)]
        results[method] = [test(tests, method, model) for model in models[method]]
    results[AT_TEST] = [test(tests, shown, model) for model in models[ROWS_ONLY]]
    print(f"copies found, %; {n_tests} unseen clouds a level of noise, {n_steps} steps, {n_seeds} seed(s)")
    print(table(noise, results))
    print(f"\n{time.process_time() - start:.0f} seconds of one core")

    example = draw_pairs(1, torch.tensor([0.05]), unseen, options.outliers)
    draw(options.out, example, models[shown][0], shown, noise, results)
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
