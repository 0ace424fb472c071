"""The picture of `sinkprop bench`: time against the number of documents."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sinkprop.cli.benchmark.records import ARGSORT, EXACT, LAPLACE, OURS, Report
from sinkprop.common.atomic import replacing

_BLUE, _PURPLE, _GREEN, _BLACK = "#0072B2", "#5E3C99", "#00825E", "#000000"
_OTHERS = ("#C24E00", "#C2508F", "#99224F", "#8F6A00", "#666666")


@dataclass(frozen=True)
class _Line:
    """A line of the plot: increasing numbers n of documents, and times t in microseconds."""

    name: str
    color: str
    n: tuple[int, ...]
    t: tuple[float, ...]


def plot(report: Report, path: Path) -> None:
    """Draw time against the number n of documents on log scales, each line labeled at its end."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    ours = {OURS: _BLUE, EXACT: _PURPLE, LAPLACE: _GREEN}
    others = itertools.cycle(_OTHERS)
    lines = []
    for name in report.methods:
        points = [(n, t * 1e6) for n in report.sizes if (t := report.seconds(name, n)) is not None]
        if points:
            color = ours.get(name) or (_BLACK if name == ARGSORT else next(others))
            lines.append(_Line(name, color, *zip(*points, strict=True)))
    with matplotlib.rc_context({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "sinkprop"}):
        figure = Canvas(figsize=(9, 5.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot(xscale="log", yscale="log")
        axes.set_xlabel("documents in the query, n")
        axes.set_ylabel("microseconds")
        axes.set_title("Value and gradient of one query, one thread", loc="left", fontsize=12)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, which="major", color="#E6E6E6", linewidth=0.6)
        axes.tick_params(which="minor", length=2, color="#999999")
        for line in lines:
            axes.plot(
                line.n,
                line.t,
                "--" if line.name == ARGSORT else "-",
                color=line.color,
                linewidth=2.4 if line.name in ours else 1.4,
                marker="o",
                markersize=4,
            )
        _draw_guides(axes, lines)
        axes.set_xlim(min(line.n[0] for line in lines) / 1.3, max(line.n[-1] for line in lines) * 1.3)
        _label_ends(axes, lines)
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=160)


def _draw_guides(axes: Any, lines: list[_Line]) -> None:
    """Draw two guide lines that show how time grows with n: slope 1 is linear, slope 2 is quadratic.

    The guide of slope 1 is drawn above the right end of ``lines[0]``. The guide of slope 2 is drawn above the
    right end of the line whose time per document is longest there.
    """
    slowest = max(lines, key=lambda line: line.t[-1] / line.n[-1])
    for slope, line in ((1, lines[0]), (2, slowest)):
        if len(line.n) < 2:
            continue
        n, t = line.n[-1], 4 * line.t[-1]
        start = n / 4
        axes.plot([start, n], [t * (start / n) ** slope, t], color="#999999", linewidth=0.8, zorder=1)
        axes.annotate(
            f"slope {slope}",
            (start, t * (start / n) ** slope),
            (-4, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
            color="#777777",
        )


def _label_ends(axes: Any, lines: list[_Line]) -> None:
    """Write names beside the ends of the lines, moved apart if they would overlap."""
    low, high = (math.log(t) for t in axes.get_ylim())
    apart = 0.042 * (high - low)
    for end in {line.n[-1] for line in lines}:
        here = sorted((line for line in lines if line.n[-1] == end), key=lambda line: line.t[-1])
        for line, height in zip(here, _spread([math.log(x.t[-1]) for x in here], apart), strict=True):
            axes.annotate(
                line.name,
                (end, math.exp(height)),
                (8, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=line.color,
                annotation_clip=False,
            )


def _spread(heights: list[float], apart: float) -> list[float]:
    """Move the heights of labels, given in increasing order, until neighbors differ by at least `apart`.

    Labels that would overlap are spaced evenly around the mean of their heights.

    >>> _spread([0.0, 0.0, 5.0], 1.0)
    [-0.5, 0.5, 5.0]
    """
    runs: list[list[float]] = []
    for height in heights:
        runs.append([height])
        while len(runs) > 1 and _top(runs[-2], apart) + apart > _bottom(runs[-1], apart):
            runs[-2:] = [runs[-2] + runs[-1]]
    return [_bottom(run, apart) + i * apart for run in runs for i in range(len(run))]


def _bottom(run: list[float], apart: float) -> float:
    return sum(run) / len(run) - (len(run) - 1) / 2 * apart


def _top(run: list[float], apart: float) -> float:
    return sum(run) / len(run) + (len(run) - 1) / 2 * apart
