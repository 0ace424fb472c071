"""The figure of the demonstration: training on one fold beside test results on all folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sinkprop.cli.demonstration import BM25, LEAST_SQUARES, METHODS, SINKPROP, Results, Trained

__all__ = ["draw_demonstration"]

_BLUE, _VERMILION, _GRAY = "#0072B2", "#D55E00", "#6E6E6E"
_COLORS = {SINKPROP: _BLUE, LEAST_SQUARES: _VERMILION, BM25: _GRAY}


def draw_demonstration(shown: Trained, results: Results, path: Path, *, tested_on: str) -> None:
    """Draw the training of one fold beside the test NDCG@1 to NDCG@10 of the three methods."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context({"font.size": 10}):
        figure = Figure(figsize=(11, 4.6), layout=ConstrainedLayoutEngine(wspace=0.06))
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(True, color="#E6E6E6", linewidth=0.6)
            axes.set_axisbelow(True)
        _draw_training(left, shown)
        _draw_test(right, results, tested_on)
        figure.savefig(path, dpi=160)


def _draw_training(axes: Any, shown: Trained) -> None:
    first, *stages = shown.stages
    x, y = [s.penalty for s in stages], [s.criterion for s in stages]
    axes.axhline(first.criterion, color=_VERMILION, linestyle="--", linewidth=1.4)
    axes.annotate(
        "ridge regression",
        (x[0], first.criterion),
        (0, 4),
        textcoords="offset points",
        color=_VERMILION,
        va="bottom",
        fontsize=9,
    )
    axes.plot(x, y, "-", color=_BLUE, linewidth=1.6)
    sizes = [12 + 400 * stage.share for stage in stages]
    axes.scatter(x, y, s=sizes, color=_BLUE, edgecolor="white", zorder=3)
    axes.set_xscale("log")
    axes.set_xlim(x[0] * 1.6, x[-1] / 1.6)
    axes.set_xlabel("penalty, decreasing; area: share of the stage in the model")
    axes.set_ylabel("validation NDCG, mean of @1 to @10")
    axes.set_title(f"Training, {shown.fold.name}", loc="left", fontsize=12)


def _draw_test(axes: Any, results: Results, tested_on: str) -> None:
    cutoffs = range(1, 11)
    for method in METHODS:
        values = [results.means[method][f"ndcg@{k}"] for k in cutoffs]
        axes.plot(
            cutoffs,
            values,
            "-o",
            color=_COLORS[method],
            linewidth=2.4 if method == SINKPROP else 1.6,
            markersize=4,
        )
        axes.annotate(
            method,
            (10, values[-1]),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=_COLORS[method],
            annotation_clip=False,
        )
    axes.set_xticks(list(cutoffs))
    axes.set_xlabel("k, the number of top documents that count")
    axes.set_ylabel("NDCG@k")
    axes.set_title(f"Test, {tested_on}", loc="left", fontsize=12)
