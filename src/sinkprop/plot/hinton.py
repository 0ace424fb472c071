"""Hinton diagrams: one square per entry of a matrix, with an area in proportion to the entry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.types import Floats
from sinkprop.plot.axes import BOX, NEGATIVE, POSITIVE, new_axes, png, root_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

__all__ = ["Hinton", "draw_matrix", "hinton"]

_LARGEST = 0.92  # side of the square for an entry of size `scale`, in cells; leaves a gap between neighbors
_GAP = 0.3  # gap between the box and the sums, in cells
_MARGIN = 0.15


@dataclass(frozen=True, eq=False)
class Hinton:
    """A Hinton diagram: its axes and artists, as `hinton` returns them.

    Parameters
    ----------
    ax : matplotlib Axes
        The axes of the diagram.
    entries : matplotlib PolyCollection
        Squares of the entries, row by row.
    row_sums : matplotlib PolyCollection
        Squares of the row sums, to the right of the box, from top to bottom. Empty if drawn without sums.
    column_sums : matplotlib PolyCollection
        Squares of the column sums, below the box, from left to right. Empty if drawn without sums.
    box : matplotlib Rectangle
        The colored rectangle behind the squares of the entries.
    shape : (int, int)
        Numbers of rows and columns of the matrix.
    scale : float
        Absolute value of an entry whose square fills a cell.
    sum_scale : float
        Absolute value of a sum whose square fills a cell.
    colors : (color, color)
        Color of nonnegative values and color of negative values.
    """

    ax: Axes
    entries: PolyCollection
    row_sums: PolyCollection
    column_sums: PolyCollection
    box: Rectangle
    shape: tuple[int, int]
    scale: float
    sum_scale: float
    colors: tuple[Any, Any]

    @property
    def figure(self) -> Figure:
        """The figure that the axes belong to."""
        return root_figure(self.ax)

    def _repr_png_(self) -> bytes | None:
        return png(self.figure)

    def update(self, matrix: ArrayLike) -> None:
        """Show another matrix of the same shape, at the same scale.

        Parameters
        ----------
        matrix : array of shape (rows, columns)
            Finite real numbers.
        """
        M = _matrix(matrix, "matrix")
        if M.shape != self.shape:
            raise ValueError(
                f"matrix must have the shape of the one that was drawn, {self.shape}; got {M.shape}. Draw a "
                "new diagram."
            )
        rows, columns = M.shape
        y, x = np.indices(M.shape)
        self._put(self.entries, x.ravel(), y.ravel(), M.ravel(), self.scale)
        if len(self.row_sums.get_paths()):
            self._put(self.row_sums, np.full(rows, columns + _GAP), np.arange(rows), M.sum(1), self.sum_scale)
            self._put(
                self.column_sums, np.arange(columns), np.full(columns, rows + _GAP), M.sum(0), self.sum_scale
            )

    def _put(self, squares: PolyCollection, x: Any, y: Any, values: Floats, scale: float) -> None:
        squares.set_verts(list(_squares(x, y, values, scale)))
        squares.set_facecolor([self.colors[int(value < 0)] for value in values])


def hinton(
    matrix: ArrayLike,
    ax: Axes | None = None,
    *,
    sums: bool = True,
    scale: float | None = None,
    sum_scale: float | None = None,
    colors: tuple[Any, Any] = (POSITIVE, NEGATIVE),
    background: Any = BOX,
) -> Hinton:
    """Draw a Hinton diagram of a matrix: squares with areas proportional to the absolute values of entries.

    The square of row i, column j has its center at x = j, y = i, with the first row at the top. A box, which
    is a colored rectangle, lies behind the entries. Row sums appear to the right of the box and column sums
    below it, as in the first figure of Adams and Zemel.

    Parameters
    ----------
    matrix : array of shape (rows, columns)
        Finite real numbers. Color shows the sign.
    ax : matplotlib Axes, optional
        Axes to draw on; their limits, aspect, ticks and spines are set. By default a new figure is made.
    sums : bool, default True
        Whether to draw the sums of rows and columns.
    scale : float, optional
        Absolute value whose square fills a cell. Larger entries extend beyond their cells; nothing is
        clipped. Use the same scale for diagrams that you compare. By default the largest absolute entry.
    sum_scale : float, optional
        Absolute value of a row or column sum whose square fills a cell. By default the largest absolute sum.
    colors : (color, color)
        Color of nonnegative values and color of negative values, in any form that matplotlib accepts. By
        default blue and orange.
    background : color
        Color of the box. By default light gray.

    Returns
    -------
    Hinton
        The axes and artists.

    Examples
    --------
    >>> drawn = hinton([[0.7, 0.3], [0.3, 0.7]])
    >>> drawn.ax.set_title("Two documents").get_text()
    'Two documents'
    >>> drawn.entries.set_edgecolor("black")
    """
    M = _matrix(matrix, "matrix")
    scale = _scale("scale", scale, M)
    sum_scale = _scale("sum_scale", sum_scale, np.concatenate([M.sum(axis=0), M.sum(axis=1)]))
    if len(colors) != 2 or isinstance(colors, str):
        raise ValueError(f"colors must be two colors, for positive and for negative entries; got {colors!r}.")
    return draw_matrix(M, new_axes(ax), sums, scale, sum_scale, tuple(colors), background)


def draw_matrix(
    M: Floats, ax: Axes, sums: bool, scale: float, sum_scale: float, colors: tuple[Any, Any], background: Any
) -> Hinton:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Rectangle

    def _squares(n: int, **style: Any) -> PolyCollection:
        collection = PolyCollection([np.zeros((4, 2))] * n, linewidths=0, zorder=2, **style)
        ax.add_collection(collection, autolim=False)
        return collection

    rows, columns = M.shape
    box = Rectangle((-0.5, -0.5), columns, rows, facecolor=background, edgecolor="#B0B0B0", linewidth=0.8)
    box.set_zorder(0.5)
    ax.add_patch(box)
    entries = _squares(M.size)
    row_sums, column_sums = (
        _squares(rows if sums else 0, alpha=0.6),
        _squares(columns if sums else 0, alpha=0.6),
    )
    drawn = Hinton(ax, entries, row_sums, column_sums, box, (rows, columns), scale, sum_scale, colors)
    drawn.update(M)
    beyond = _GAP + 0.5 if sums else -0.5
    ax.set_aspect("equal")
    ax.set_xlim(-0.5 - _MARGIN, columns + beyond + _MARGIN)
    ax.set_ylim(rows + beyond + _MARGIN, -0.5 - _MARGIN)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    return drawn


def _squares(x: Any, y: Any, values: Floats, scale: float) -> Floats:
    """Corners (N, 4, 2) of N squares with centers (x, y) and areas proportional to |values|.

    A value of size `scale` gets a square that fills a cell, up to a gap.
    """
    half = _LARGEST / 2 * np.sqrt(np.abs(values) / scale)
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    vertices: Floats = np.stack([x, y], axis=1)[:, None, :] + half[:, None, None] * corners
    return vertices


def _matrix(values: ArrayLike, name: str) -> Floats:
    """A float64 copy of a finite, nonempty matrix of real numbers."""
    try:
        raw = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be a matrix; got rows of different lengths or kinds.") from error
    if raw.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers; got dtype {raw.dtype}. Convert it to float first.")
    if raw.ndim != 2 or raw.size == 0:
        raise ValueError(f"{name} must have two dimensions and at least one entry; got shape {raw.shape}.")
    M = raw.astype(np.float64)
    if not np.isfinite(M).all():
        i, j = np.argwhere(~np.isfinite(M))[0]
        raise ValueError(
            f"{name} must have finite entries; got {name}[{i}, {j}] = {M[i, j]}. Replace such entries first."
        )
    return M


def _scale(name: str, scale: float | None, values: Floats) -> float:
    if scale is None:
        return float(np.abs(values).max()) or 1.0
    if isinstance(scale, bool) or not isinstance(scale, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number or None; got {scale!r}.")
    if not 0 < scale < math.inf:
        raise ValueError(f"{name} must be a finite number above 0; got {scale!r}.")
    return float(scale)
