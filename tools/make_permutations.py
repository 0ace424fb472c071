#!/usr/bin/env python3
"""The pictures of docs/learning-permutations.md and docs/belief-matrices.md: regret.png and beliefs.png.

make_permutations.py [DIR]      DIR is docs/images by default
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sinkprop.permutations import BeliefMatrix, LearningRecord, PermutationLearner, PerturbedLeader, play
from sinkprop.plot import hinton, regret_curve

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def figure(panels: int, size: tuple[float, float]) -> tuple[Figure, list]:
    made = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(made)
    return made, made.subplots(1, panels).tolist()


def regret(folder: Path) -> Path:
    """Ten documents, losses of 0 and 1 with their own means: both feedbacks, and both learners."""
    rng = np.random.default_rng(0)
    n, T = 10, 1000
    losses = (rng.random((T, n, n)) < rng.random((n, n))).astype(float)
    made, panels = figure(2, (8.4, 3.4))
    for feedback, ax in zip(("full", "semi-bandit"), panels, strict=True):
        given = {"n_rounds": T, "feedback": feedback, "seed": 0}
        records: dict[str, LearningRecord] = {
            "PermELearn": play(PermutationLearner(n, **given), losses),
            "perturbed leader": play(PerturbedLeader(n, **given), losses),
        }
        drawn = regret_curve(records, ax)
        ax.set_title(f"{feedback} feedback")
        ax.set_ylim(0, 1.3 * max(records["PermELearn"].bound[-1], records["perturbed leader"].regret[-1]))
        drawn.ax.legend(frameon=False, fontsize="small")
        for name, record in records.items():
            print(f"{feedback}, {name}: {record.regret[-1]:.0f}, bound {record.bound[-1]:.0f}")
    path = folder / "regret.png"
    made.savefig(path, dpi=80)
    return path


def beliefs(folder: Path) -> Path:
    """The steps of the example of docs/belief-matrices.md."""
    start = BeliefMatrix(np.eye(4))
    met = start.swap(0, 1, 0.5).swap(1, 2, 0.5)
    seen = met.weigh([0.1, 0.8, 0.1, 0.1], document=0)
    sure = seen.observe(2, rank=3)
    made, panels = figure(4, (9.6, 2.9))
    titles = ("known", "0 meets 1, 1 meets 2", "track 0 looks like B", "track 2 is C")
    for belief, title, ax in zip((start, met, seen, sure), titles, panels, strict=True):
        hinton(belief.matrix, ax, scale=1, sums=False)
        ax.set_title(title, fontsize=10)
        ax.set_xticks(range(4), "ABCD")
        ax.set_yticks(range(4))
        ax.tick_params(length=0)
    path = folder / "beliefs.png"
    made.savefig(path, dpi=80)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES, help="folder for the images")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for path in (regret(folder), beliefs(folder)):
        print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
