"""Reliability diagrams: forecast probabilities beside observed frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkprop.common.types import Integers
from sinkprop.plot.axes import NEGATIVE, POSITIVE, new_axes, new_figure, png, root_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer, ErrorbarContainer
    from matplotlib.figure import Figure

    from sinkprop.calibration import CalibrationReport, Reliability

__all__ = ["ReliabilityDiagram", "ReliabilityDiagrams", "reliability_diagram", "reliability_diagrams"]


@dataclass(frozen=True, eq=False)
class ReliabilityDiagram:
    """A reliability diagram: its axes and artists, as `reliability_diagram` returns them.

    Parameters
    ----------
    ax : matplotlib Axes
        The axes of the diagram.
    counts_ax : matplotlib Axes
        The axes of the counts, above the diagram.
    points : tuple of matplotlib ErrorbarContainer
        Frequencies with their intervals, before and after calibration, or of the one forecast.
    bars : tuple of matplotlib BarContainer
        Counts, in the same order.
    """

    ax: Axes
    counts_ax: Axes
    points: tuple[ErrorbarContainer, ...]
    bars: tuple[BarContainer, ...]

    @property
    def figure(self) -> Figure:
        """The figure that the axes belong to."""
        return root_figure(self.ax)

    def _repr_png_(self) -> bytes | None:
        return png(self.figure)


def reliability_diagram(
    found: Reliability, before: Reliability | None = None, ax: Axes | None = None
) -> ReliabilityDiagram:
    """Draw observed frequencies against forecast probabilities, with the number of forecasts above.

    A point is a bin of forecasts, with a 95% interval of its frequency. On the diagonal, what was forecast
    with probability 0.7 happened in seven cases of ten. Points below it are overconfident forecasts.

    Parameters
    ----------
    found : Reliability
        Bins of the forecasts, from `sinkprop.calibration.reliability`, or after calibration.
    before : Reliability, optional
        Bins of the forecasts before calibration, which are drawn too.
    ax : matplotlib Axes, optional
        Axes to draw on; the counts have axes of their own in their upper part. By default a new figure is
        made.

    Returns
    -------
    ReliabilityDiagram
        The axes and artists.

    Examples
    --------
    >>> from sinkprop.calibration import reliability
    >>> found = reliability([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 0], n_bins=2)
    >>> drawn = reliability_diagram(found)
    >>> drawn.ax.get_legend().get_texts()[0].get_text()
    'calibration error 0.250'
    """
    axes = new_axes(ax, (4.6, 5.6))
    counts_ax = axes.inset_axes((0, 0.84, 1, 0.16), sharex=axes)
    axes.plot([0, 1], [0, 1], color="#808080", linewidth=1, zorder=1)
    shown = [("", found, POSITIVE, "o")]
    if before is not None:
        shown = [("before: ", before, NEGATIVE, "s"), ("after: ", found, POSITIVE, "o")]
    points, bars = [], []
    for i, (when, own, color, marker) in enumerate(shown):
        label = f"{when}calibration error {own.error:.3f}"
        points.append(_frequencies(axes, own, label=label, color=color, marker=marker))
        bars.append(_bars(counts_ax, own.counts, i, len(shown), color))
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.28), yticks=np.linspace(0, 1, 6))
    axes.set(xlabel="forecast probability", ylabel="observed frequency")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False, fontsize="small")
    counts_ax.set(
        yscale="log", ylim=(0.7, 2 * max(own.counts.max() for _, own, _, _ in shown)), ylabel="count"
    )
    counts_ax.tick_params(labelbottom=False)
    for one in (axes, counts_ax):
        one.spines[["top", "right"]].set_visible(False)
    axes.spines["left"].set_bounds(-0.02, 1.02)
    axes.yaxis.set_label_coords(-0.13, 1.04 / 2.6)
    counts_ax.yaxis.set_label_coords(-0.13, 0.5)
    return ReliabilityDiagram(axes, counts_ax, tuple(points), tuple(bars))


def _frequencies(axes: Axes, own: Reliability, **style: Any) -> ErrorbarContainer:
    some = own.counts > 0
    observed = own.observed[some]
    reach = [observed - own.low[some], own.high[some] - observed]
    return axes.errorbar(own.forecast[some], observed, yerr=reach, markersize=5, linewidth=1, **style)


def _bars(axes: Axes, counts: Integers, i: int, n: int, color: str) -> BarContainer:
    """Bars of the counts (B,) of bins of equal width; of n bars side by side in each bin, the bar i."""
    width = 1 / len(counts)
    left = width * (np.arange(len(counts)) + 0.08 + 0.84 * i / n)
    return axes.bar(left, counts, 0.84 * width / n, align="edge", color=color, linewidth=0)


@dataclass(frozen=True, eq=False)
class ReliabilityDiagrams:
    """Reliability diagrams of several events, in one figure.

    Parameters
    ----------
    figure : matplotlib Figure
        The figure of the diagrams.
    diagrams : dict
        `ReliabilityDiagram` of each event.
    """

    figure: Figure
    diagrams: dict[str, ReliabilityDiagram]

    def _repr_png_(self) -> bytes | None:
        return png(self.figure)


def reliability_diagrams(
    report: CalibrationReport, events: Sequence[str] | None = None
) -> ReliabilityDiagrams:
    """Draw reliability diagrams of a calibration, before and after, side by side.

    Parameters
    ----------
    report : CalibrationReport
        Forecasts on labeled queries, from `sinkprop.calibration.calibration_report`.
    events : sequence of str, optional
        Events to show. By default "top 1", "top 5", "first is best" and the first "label >= g".

    Returns
    -------
    ReliabilityDiagrams
        The figure, with a diagram per event.

    Examples
    --------
    >>> from sinkprop.calibration import RankCalibration, calibration_report
    >>> rng = np.random.default_rng(0)
    >>> qid, scores = np.repeat(np.arange(100), 9), rng.normal(size=900)
    >>> y = (scores + rng.normal(size=900) > 1).astype(float)
    >>> report = calibration_report(RankCalibration.fit(scores, y, qid), scores, y, qid)
    >>> list(reliability_diagrams(report).diagrams)
    ['top 1', 'top 5', 'first is best', 'label >= 1']
    """
    if events is None:
        relevant = [event for event in report.after if event.startswith("label")]
        events = ["top 1", "top 5", "first is best", *relevant[:1]]
    for event in events:
        if event not in report.after:
            raise ValueError(f"events must be some of {', '.join(report.after)}; got {event!r}.")
    columns = math.ceil(len(events) / 2) if len(events) > 3 else len(events)
    rows = math.ceil(len(events) / columns)
    figure = new_figure((3.6 * columns, 4.6 * rows))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in panels[len(events) :]:
        ax.remove()
    diagrams = {}
    for event, ax in zip(events, panels, strict=False):
        diagrams[event] = reliability_diagram(report.after[event], report.before.get(event), ax)
        ax.set_title(event)
    return ReliabilityDiagrams(figure, diagrams)
