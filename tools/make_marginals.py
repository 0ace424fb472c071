#!/usr/bin/env python3
"""The picture and the table of docs/permanents.md: Sinkhorn's limit against the marginals of matchings.

make_marginals.py [DIR]      DIR is docs/images by default
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sinkprop import sinkhorn, sinkhorn_limit
from sinkprop.permutations import matching_marginals

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
Matrix = npt.NDArray[np.float64]
SIZES = (5, 10, 20)
DRAWS = 20


def scores(n: int, seed: int) -> Matrix:
    return -np.sort(-np.random.default_rng([n, seed]).normal(size=n))


def kernel(x: Matrix, sigma: float) -> Matrix:
    """The smoothed indicator, with the constant that the library adds."""
    A: Matrix = np.exp(-((x[:, None] - x) ** 2) / (2 * sigma**2)) + 1e-6
    return A


def matrix(kind: str, n: int, seed: int) -> Matrix:
    rng = np.random.default_rng([n, seed])
    if kind.startswith("sigma = "):
        return kernel(scores(n, seed), float(kind.rsplit(maxsplit=1)[-1]))
    if kind == "uniform":
        return rng.random((n, n))
    if kind == "zeros and ones":
        return (rng.random((n, n)) < 0.5) + np.eye(n)
    return np.exp(float(kind.rsplit(maxsplit=1)[-1]) * rng.normal(size=(n, n)))


def distance(P: Matrix, truth: Matrix) -> float:
    """Total variation distance of the rank distributions, averaged over the documents."""
    return float(np.abs(P - truth).sum(axis=1).mean() / 2)


def table(kinds: list[str]) -> None:
    print("| matrix | n = 5 | n = 10 | n = 20 | n = 20, five iterations | n = 20, entries to the power 1.2 |")
    print("|---|---|---|---|---|---|")
    for kind in kinds:
        cells = []
        for n in SIZES:
            found = []
            for seed in range(DRAWS):
                A = matrix(kind, n, seed)
                truth = matching_marginals(A).matrix
                others = (sinkhorn_limit(A).matrix, sinkhorn(A, 5), sinkhorn_limit(A**1.2).matrix)
                found.append([distance(P, truth) for P in others])
            cells.append(np.mean(found, axis=0))
        row = [cells[0][0], cells[1][0], *cells[2]]
        print(f"| {kind} | " + " | ".join(f"{x:.4f}"[1:] for x in row) + " |")


def picture(path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    widths = np.geomspace(0.02, 5, 21)
    for n, color in zip(SIZES, ("#9ecae1", "#4292c6", "#08306b"), strict=True):
        means = []
        for sigma in widths:
            found = []
            for seed in range(8):
                A = kernel(scores(n, seed), sigma)
                found.append(distance(sinkhorn_limit(A).matrix, matching_marginals(A).matrix))
            means.append(np.mean(found))
        left.plot(widths, means, marker="o", markersize=3, color=color, label=f"{n} documents")
    left.set(xscale="log", ylim=(0, None), xlabel="width sigma (scores are standard normal)")
    left.set_ylabel("distance of the limit from the marginals")
    left.legend(frameon=False)

    A = kernel(scores(20, 0), 0.3)
    ranks, document = np.arange(1, 21), 9
    right.bar(ranks, matching_marginals(A).matrix[document], color="#c6c6c6", label="marginals, exact")
    right.plot(ranks, sinkhorn_limit(A).matrix[document], "o-", color="#08306b", label="Sinkhorn's limit")
    right.plot(ranks, sinkhorn(A, 5)[document], "x", color="#d94801", label="five iterations")
    right.set(xticks=[1, 5, 10, 15, 20], xlabel="rank of the tenth of 20 documents, sigma = 0.3")
    right.set_ylabel("probability")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES, help="folder for the image")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    table(
        [f"sigma = {sigma}" for sigma in (0.03, 0.1, 0.3, 1, 3)]
        + ["uniform", "lognormal, 1", "lognormal, 3", "zeros and ones"]
    )
    path = folder / "marginals.png"
    picture(path)
    print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
