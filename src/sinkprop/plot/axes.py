"""Axes and figures that all plots share, without pyplot."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BOX", "MANY", "NEGATIVE", "POSITIVE", "new_axes", "new_figure", "png", "root_figure"]

POSITIVE, NEGATIVE, BOX = "#0072B2", "#D55E00", "#F0F0F0"
MANY = 60  # maximum number of documents whose names, or of positions whose markers, are shown


def new_axes(ax: Axes | None, size: tuple[float, float] = (4.8, 4.8)) -> Axes:
    return new_figure(size).subplots() if ax is None else ax


def root_figure(ax: Axes) -> Figure:
    """The figure that contains the axes, even if the axes are in a subfigure."""
    figure: Any = ax.figure
    while figure.figure is not figure:
        figure = figure.figure
    root: Figure = figure
    return root


def png(figure: Figure) -> bytes | None:
    """PNG image to show in a notebook; None for a pyplot figure, which the notebook shows by itself."""
    if getattr(figure, "number", None) is not None:
        return None
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def new_figure(size: tuple[float, float]) -> Figure:
    """A figure that is not registered with pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure
