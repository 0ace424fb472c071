"""Sinkhorn iterations as a row of Hinton diagrams, or as an animation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from sinkprop.common.arguments import half_steps, whole
from sinkprop.common.types import Floats
from sinkprop.objective.sinkhorn import sinkhorn
from sinkprop.plot.axes import BOX, NEGATIVE, POSITIVE, new_axes, new_figure, png, root_figure
from sinkprop.plot.hinton import Hinton, draw_matrix

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SinkhornHinton", "sinkhorn_animation", "sinkhorn_hinton"]


@dataclass(frozen=True, eq=False)
class SinkhornHinton:
    """Hinton diagrams of a matrix after 0, 1, 2, ... Sinkhorn iterations, from left to right, in one figure.

    Parameters
    ----------
    figure : matplotlib Figure
        The figure of the diagrams.
    diagrams : tuple of Hinton
        One diagram per panel.
    """

    figure: Figure
    diagrams: tuple[Hinton, ...]

    def _repr_png_(self) -> bytes | None:
        return png(self.figure)


def sinkhorn_hinton(
    A: ArrayLike,
    n_iter: int = 3,
    *,
    epsilon: float = 0.0,
    colors: tuple[Any, Any] = (POSITIVE, NEGATIVE),
    background: Any = BOX,
) -> SinkhornHinton:
    """Draw Hinton diagrams of a matrix before and after one, two, ... Sinkhorn iterations.

    This is the first figure of Adams and Zemel. Panel i shows ``sinkhorn(A, i, epsilon=epsilon)``. All panels
    but the first have the same scale. The first panel shows A as if its entries were multiplied by a constant
    that makes their sum n, which is the sum of a doubly-stochastic matrix. Such a constant does not change
    the other panels.

    Parameters
    ----------
    A : array of shape (n, n)
        Matrix of finite, nonnegative numbers; see `sinkprop.sinkhorn`.
    n_iter : int, default 3
        Number of iterations, which is the number of panels after the first.
    epsilon : float, default 0.0
        Number that is added to every entry of `A` before the first iteration.
    colors : (color, color)
        Color of nonnegative values and color of negative values. By default blue and orange.
    background : color
        Color of the boxes. By default light gray.

    Returns
    -------
    SinkhornHinton
        The figure and its diagrams.

    Examples
    --------
    >>> figure = sinkhorn_hinton([[3, 1], [1, 1]])
    >>> [drawn.ax.get_title() for drawn in figure.diagrams]
    ['Initial matrix', 'First iteration', 'Second iteration', 'Third iteration']
    """
    count = whole("n_iter", n_iter, 1)
    steps = [sinkhorn(A, i, epsilon=epsilon) for i in range(count + 1)]
    n = len(steps[0])
    factor = steps[0].sum() / n
    scale, sum_scale = _common_scales([steps[0] / factor, *steps[1:]])
    figure = new_figure((2.4 * (count + 1), 2.7))
    diagrams = []
    for i, (Z, ax) in enumerate(zip(steps, figure.subplots(1, count + 1), strict=True)):
        by = 1.0 if i else factor
        diagrams.append(draw_matrix(Z, ax, True, scale * by, sum_scale * by, colors, background))
        ax.set_title(_title(i), fontsize="medium")
    return SinkhornHinton(figure, tuple(diagrams))


def sinkhorn_animation(
    A: ArrayLike,
    n_iter: float = 3,
    *,
    ax: Axes | None = None,
    epsilon: float = 0.0,
    frames_per_step: int = 12,
    interval: int = 70,
    colors: tuple[Any, Any] = (POSITIVE, NEGATIVE),
    background: Any = BOX,
) -> FuncAnimation:
    """Animate Sinkhorn normalization as a Hinton diagram: columns are divided by their sums, then rows.

    Keep a reference to the result for as long as it plays. `animation.save("file.gif", writer="pillow")`
    writes a file, and `animation.to_jshtml()` makes a player for a notebook.

    Parameters
    ----------
    A : array of shape (n, n)
        Matrix of finite, nonnegative numbers; see `sinkprop.sinkhorn`.
    n_iter : float, default 3
        Number of iterations. The last frames show ``sinkhorn(A, n_iter, epsilon=epsilon)``.
    ax : matplotlib Axes, optional
        Axes to draw on; their title names the current step. By default a new figure is made.
    epsilon : float, default 0.0
        Number that is added to every entry of `A` before the first iteration.
    frames_per_step : int, default 12
        Number of frames of the transition from one matrix to the next. Before each transition, the diagram
        stands still for the same number of frames.
    interval : int, default 70
        Milliseconds per frame.
    colors : (color, color)
        Color of nonnegative values and color of negative values. By default blue and orange.
    background : color
        Color of the box. By default light gray.

    Returns
    -------
    matplotlib FuncAnimation
        The animation.
    """
    from matplotlib.animation import FuncAnimation

    halves = half_steps(n_iter)
    moving = whole("frames_per_step", frames_per_step, 1)
    interval = whole("interval", interval, 1)
    steps = [sinkhorn(A, t / 2, epsilon=epsilon) for t in range(halves + 1)]
    steps[0] /= steps[0].sum() / len(steps[0])  # a constant factor does not change the normalized matrices
    scale, sum_scale = _common_scales(steps)
    axes = new_axes(ax)
    drawn = draw_matrix(steps[0], axes, True, scale, sum_scale, colors, background)
    title = axes.set_title(_step_title(0))

    def show(frame: int) -> tuple[Any, ...]:
        t, place = divmod(frame, 2 * moving)
        # the part of the transition that is done: 0 for the first `moving` frames, then rising to 1
        share = max(0, place - moving + 1) / moving
        share = share * share * (3 - 2 * share)
        after = steps[min(t + 1, halves)]
        drawn.update((1 - share) * steps[t] + share * after)
        title.set_text(_step_title(t + 1 if share > 0 and t < halves else t))
        return drawn.entries, drawn.row_sums, drawn.column_sums, title

    count = 2 * moving * halves + 2 * moving  # the last matrix is shown for 2 * moving frames
    return FuncAnimation(root_figure(axes), show, frames=count, interval=interval, cache_frame_data=False)


def _common_scales(matrices: Sequence[Floats]) -> tuple[float, float]:
    scale = max(float(M.max()) for M in matrices)
    sum_scale = max(float(M.sum(axis=axis).max()) for M in matrices for axis in (0, 1))
    return scale, sum_scale


_ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")


def _title(i: int) -> str:
    if i == 0:
        return "Initial matrix"
    return f"{_ORDINALS[i - 1]} iteration" if i <= len(_ORDINALS) else f"Iteration {i}"


def _step_title(t: int) -> str:
    if t == 0:
        return "Initial matrix"
    return f"Iteration {(t + 1) // 2}: {'columns' if t % 2 else 'rows'} divided by their sums"
