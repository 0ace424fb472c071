"""The figure of the demonstration: training on one fold beside test results on all folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

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
    import matplotlib

    penalties, sigmas = shown.penalties, shown.sigmas
    colors = matplotlib.colormaps["viridis"](np.linspace(0.05, 0.88, len(penalties)))
    start = shown.stages[0].criterion  # validation NDCG of least squares
    axes.axhline(start, color=_VERMILION, linestyle="--", linewidth=1.4)
    axes.annotate(
        LEAST_SQUARES,
        (sigmas[0], start),
        (0, -4),
        textcoords="offset points",
        color=_VERMILION,
        va="top",
        fontsize=9,
    )
    for penalty, color in zip(penalties, colors, strict=True):
        points = [s for s in shown.stages if s.penalty == penalty]
        x, y = [s.sigma for s in points], [s.criterion for s in points]
        axes.plot(x, y, "-o", color=color, linewidth=1.6, markersize=4, label=f"{penalty:g}")
        for s in points:
            if s.chosen:
                axes.plot(s.sigma, s.criterion, "o", color="black", markersize=9, fillstyle="none")
    axes.plot([], [], "o", color="black", markersize=9, fillstyle="none", label="chosen model")
    axes.set_xscale("log", base=2)
    axes.set_xlim(sigmas[0] * 1.25, sigmas[-1] / 1.25)
    axes.set_xticks(sigmas, [f"{sigma:g}" for sigma in sigmas])
    axes.set_xlabel("sigma, from smooth to sharp")
    axes.set_ylabel("validation NDCG, mean of @1 to @10")
    axes.set_title(f"Training, {shown.fold.name}", loc="left", fontsize=12)
    axes.legend(title="penalty", frameon=False, fontsize=9, loc="lower center", ncols=4)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.3 * (high - low), high)  # room for the legend


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
