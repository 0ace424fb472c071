"""The paper's second figure: test NDCG by truncation level, one panel per data set, one line per method."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sinkprop.experiment.published import OUTLIERS, PublishedRow, published_rows
from sinkprop.experiment.results import Comparison

__all__ = ["levels", "plot"]

# Colors for readers with color vision deficiency, after Okabe and Ito, most of them darkened for a white
# background.
_COLORS = ("#0072B2", "#C24E00", "#00825E", "#99224F", "#5E3C99", "#8F6A00", "#2B7CB8", "#666666")
_STYLES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_PUBLISHED_MARKERS = ("o", "s", "^", "D", "v", "p")
_GRAY = "#777777"
_PAPER = ("HP2003", "NP2003", "TD2003", "OHSUMED", "HP2004", "NP2004", "TD2004")
_COLUMNS = 4
_USUAL = "SmoothRank"  # the strongest baseline in the paper's figure


def levels(metrics: Sequence[str]) -> dict[int, str]:
    """Return {k: name} for the metrics that are named ndcg@k and have no options, in order of k.

    >>> levels(["ndcg@10", "map", "ndcg@5", "ndcg(discount=log2)@3"])
    {5: 'ndcg@5', 10: 'ndcg@10'}
    """
    matches = (re.fullmatch(r"ndcg@(\d+)", metric) for metric in metrics)
    return dict(sorted((int(m[1]), m[0]) for m in matches if m))


def plot(
    comparison: Comparison, path: str | os.PathLike[str], *, published: Sequence[str] | None = None
) -> None:
    """Write the figure to a .png, .svg or .pdf file.

    An existing file is replaced only when the new one is complete. Raises ValueError if the comparison has
    NDCG at fewer than two truncation levels.

    published  Names of published methods whose results are marked in the figure. None marks SmoothRank and
               the published method with the highest NDCG@10, leaving out the irreproducible ones in
               `OUTLIERS`. An empty sequence marks no method.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from sinkprop.common.atomic import replacing

    if len(levels(comparison.metrics)) < 2:
        raise ValueError("a plot needs NDCG at two levels or more, such as the metrics ndcg@1-10.")
    datasets = list(comparison.datasets)
    if set(datasets) <= set(_PAPER):
        datasets.sort(key=_PAPER.index)
    n = len(datasets)
    columns = n if n <= 3 else _COLUMNS
    rows = -(-n // columns)
    settings = {"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "sinkprop", "pdf.fonttype": 42}
    with matplotlib.rc_context(settings):
        # if a single panel has many methods, the legend is a column beside it
        many = n == 1 and len(comparison.methods) > len(_COLORS)
        size = (8.6, 6.2) if many else (6.4, 4.8) if n == 1 else (3.3 * columns, 3.0 * rows + 0.5)
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        lines: dict[str, Any] = {}
        for i, (axes, dataset) in enumerate(zip(grid, datasets, strict=False)):
            rows_shown = _chosen(comparison, dataset, published)
            _draw(axes, comparison, dataset, rows_shown, lines, first=i % columns == 0, last=i + columns >= n)
        for axes in grid[n:]:
            axes.set_axis_off()
        names = list(lines)
        if many:  # sort the legend like the right ends of the lines, so that each line is easy to find
            names.sort(key=lambda name: -float(lines[name].get_ydata()[-1]))
        handles = [lines[name] for name in names]
        if n < len(grid):  # the legend takes the place of an empty panel, as in the paper
            grid[-1].legend(handles, names, loc="center", frameon=False)
        elif many:
            figure.legend(handles, names, loc="outside right center", frameon=False)
        else:
            wide = max(1, min(len(names), round(size[0] / 2)))
            figure.legend(handles, names, loc="outside lower center", ncols=wide, frameon=False)
        with replacing(path) as temporary:
            metadata = {"Date": None} if Path(path).suffix.lower() == ".svg" else None
            figure.savefig(temporary, dpi=160, metadata=metadata)


def _chosen(comparison: Comparison, dataset: str, names: Sequence[str] | None) -> list[PublishedRow]:
    """Published results to mark in the figure: those of `names`, or the default if `names` is None.

    The default is SmoothRank and the best published method that is not in `OUTLIERS`. The result is empty
    unless the comparison uses the convention letor, as the published results do.
    """
    if comparison.convention != "letor":
        return []
    shown = set(levels(comparison.metrics).values())
    known = [row for row in published_rows(dataset) if len(shown & set(row.means)) >= 2]
    if names is not None:
        wanted = {name.lower() for name in names}
        return [row for row in known if row.method.lower() in wanted]
    best = next((row for row in known if row.method not in OUTLIERS), None)
    usual = next((row for row in known if row.method == _USUAL), None)
    return [row for row in known if row is best or row is usual]


def _draw(
    axes: Any,
    comparison: Comparison,
    dataset: str,
    published: Sequence[PublishedRow],
    lines: dict[str, Any],
    *,
    first: bool,
    last: bool,
) -> None:
    at = levels(comparison.metrics)
    axes.set_title(dataset, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    for i, method in enumerate(comparison.methods):
        values = [comparison.mean(dataset, method, metric) for metric in at.values()]
        (line,) = axes.plot(
            list(at),
            values,
            color=_COLORS[i % len(_COLORS)],
            marker=_MARKERS[i % len(_MARKERS)],
            linestyle=_STYLES[i // len(_COLORS) % len(_STYLES)],
            markersize=4.5,
            linewidth=1.8,
            clip_on=False,
        )
        lines.setdefault(method, line)
    for row in published:
        name = f"{row.method} (published)"
        known = [key for key in lines if key.endswith(" (published)")]
        number = known.index(name) if name in known else len(known)
        points = [(k, row.means[metric]) for k, metric in at.items() if metric in row.means]
        (marks,) = axes.plot(
            [k for k, _ in points],
            [value for _, value in points],
            linestyle="none",
            marker=_PUBLISHED_MARKERS[number % len(_PUBLISHED_MARKERS)],
            markersize=7,
            markerfacecolor="none",
            markeredgecolor=_GRAY,
            markeredgewidth=1.3,
            zorder=1.5,
        )
        lines.setdefault(name, marks)
    if max(at) <= 20:
        axes.set_xticks(list(at))
    if last:
        axes.set_xlabel("truncation level k")
    if first:
        axes.set_ylabel("test NDCG@k")
