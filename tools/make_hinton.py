#!/usr/bin/env python3
"""The pictures of docs/hinton.md: hinton.png, sinkhorn.gif and rank-distribution.png.

make_hinton.py [DIR]      DIR is docs/images by default
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np

import sinkprop
from sinkprop.plot import rank_distribution, sinkhorn_animation, sinkhorn_hinton

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def example() -> np.ndarray:
    """A matrix that converges slowly: after one iteration, the sum of a column is still off by 0.5."""
    return np.random.default_rng(58).gamma(0.4, size=(6, 6)).round(2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES, help="folder for the images")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"font.size": 11}):
        sinkhorn_hinton(example()).figure.savefig(folder / "hinton.png", dpi=110)
        animation = sinkhorn_animation(example())
        animation.save(folder / "sinkhorn.gif", writer="pillow", dpi=90)
        scores = np.array([2.0, 1.9, 1.2, 1.0, 0.9, 0.1, -0.4, -0.5])
        Pi = sinkprop.doubly_stochastic(scores, relaxation=sinkprop.SmoothedIndicator(sigma=0.3))
        rank_distribution(Pi, docids="abcdefgh").figure.savefig(folder / "rank-distribution.png", dpi=90)
    for name in ("hinton.png", "sinkhorn.gif", "rank-distribution.png"):
        print(f"{folder / name}: {(folder / name).stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
