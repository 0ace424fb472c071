"""Position bias: curves of the examination of each position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.plot.axes import MANY, new_axes, png, root_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from sinkprop.clicks import ClickModel

__all__ = ["ExaminationCurve", "examination_curve"]

_FEW = 12  # maximum number of positions that each have a tick
_MARKERS = "os^Dv"


@dataclass(frozen=True, eq=False)
class ExaminationCurve:
    """Curves of position bias, one per model, as `examination_curve` draws them on matplotlib axes.

    Parameters
    ----------
    ax : matplotlib Axes
        Axes of the curves.
    lines : tuple of matplotlib Line2D
        Line of each model, with a point per position.
    bands : tuple of matplotlib PolyCollection or None
        Interval of each model at each position; None for a model without one.
    """

    ax: Axes
    lines: tuple[Line2D, ...]
    bands: tuple[PolyCollection | None, ...]

    @property
    def line(self) -> Line2D:
        """Line of the first model."""
        return self.lines[0]

    @property
    def band(self) -> PolyCollection | None:
        """Interval of the first model; None if it has none."""
        return self.bands[0]

    @property
    def figure(self) -> Figure:
        """Figure of the axes."""
        return root_figure(self.ax)

    def _repr_png_(self) -> bytes | None:
        return png(self.figure)


def examination_curve(
    model: ClickModel | Mapping[str, ClickModel],
    ax: Axes | None = None,
    *,
    interval: ArrayLike | None = None,
    label: str | None = None,
) -> ExaminationCurve:
    """Draw the examination of each position, relative to the first, with its interval.

    To compare models, give a mapping, or draw each on the axes of the first.

    Parameters
    ----------
    model : ClickModel or mapping from str to ClickModel
        Click model, such as one estimated by `sinkprop.clicks.estimate_position_bias`. The models of a
        mapping are drawn on the same axes, with its keys in a legend.
    ax : matplotlib Axes, optional
        Axes to draw on. By default a new figure is made.
    interval : array of shape (2, K), optional
        Lower and upper bounds, for one model. By default those of each model, if it has any.
    label : str, optional
        Name of one model in a legend.

    Returns
    -------
    ExaminationCurve
        The axes and artists, with one line and one band per model in the order of the mapping.

    Examples
    --------
    >>> from sinkprop.clicks import PositionBasedModel
    >>> model = PositionBasedModel([1, 0.5, 0.25], interval=[[1, 0.4, 0.1], [1, 0.6, 0.4]])
    >>> drawn = examination_curve(model, label="estimate")
    >>> drawn.line.get_xdata().tolist(), drawn.line.get_ydata().tolist()
    ([1, 2, 3], [1.0, 0.5, 0.25])
    >>> both = examination_curve({"estimate": model, "truth": PositionBasedModel([1, 0.6, 0.3])})
    >>> [line.get_label() for line in both.lines], [band is None for band in both.bands]
    (['estimate', 'truth'], [False, True])
    """
    from matplotlib.ticker import FixedLocator, MaxNLocator

    models = _labeled(model, interval, label)
    curves = [one.examination_curve() for _, one in models]
    K, axes = max(map(len, curves)), new_axes(ax, (4.8, 3.6))
    lines, bands = [], []
    for i, ((name, one), curve) in enumerate(zip(models, curves, strict=True)):
        marker = _MARKERS[i % len(_MARKERS)] if K <= MANY else ""
        (line,) = axes.plot(np.arange(1, len(curve) + 1), curve, marker=marker, markersize=4, label=name)
        lines.append(line)
        bands.append(_band(axes, line, one.interval if interval is None else interval))
    axes.set(xlabel="position", ylabel="examination, relative to position 1")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(FixedLocator(range(1, K + 1)) if K <= _FEW else MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    if any(name is not None for name, _ in models):
        axes.legend(frameon=False)
    return ExaminationCurve(axes, tuple(lines), tuple(bands))


def _labeled(
    model: ClickModel | Mapping[str, ClickModel], interval: ArrayLike | None, label: str | None
) -> list[tuple[str | None, ClickModel]]:
    """Names and models to draw; raises a ValueError for arguments that are not valid."""
    from sinkprop.clicks import ClickModel

    models: list[tuple[str | None, ClickModel]]
    if isinstance(model, Mapping):
        if interval is not None or label is not None:
            given = "interval" if interval is not None else "label"
            raise ValueError(
                f"{given} is for one model. To give it with several, draw each model on the axes of the "
                "first."
            )
        models = [(str(name), one) for name, one in model.items()]
    else:
        models = [(label, model)]
    wrong = [one for _, one in models if not isinstance(one, ClickModel)]
    if wrong or not models:
        got = f"an object of type {type(wrong[0]).__name__}" if wrong else "an empty mapping"
        raise ValueError(f"model must be a ClickModel, or a mapping from names to click models; got {got}.")
    return models


def _band(axes: Axes, line: Line2D, interval: ArrayLike | None) -> PolyCollection | None:
    """Interval of a curve, in the color of its line."""
    if interval is None:
        return None
    bounds = np.asarray(interval, dtype=np.float64)
    positions = np.asarray(line.get_xdata())
    if bounds.shape != (2, len(positions)):
        raise ValueError(
            f"interval must have a lower and an upper bound per position, (2, {len(positions)}); got "
            f"{bounds.shape}."
        )
    low, high = bounds
    return axes.fill_between(positions, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
