"""Plots: Hinton diagrams, Sinkhorn iterations, rank distributions, reliability, position bias and regret.

Every function draws on ordinary matplotlib axes, the caller's or new ones, and returns a record of the
artists, which you can restyle with matplotlib. pyplot is not used, so its current figure does not change.
A record made without `ax` shows itself in a notebook; elsewhere, call `record.figure.savefig("file.png")`.

Needs matplotlib: pip install "sinkprop[plot]".
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.common.arguments import half_steps, whole
from sinkprop.common.types import Floats, Integers
from sinkprop.objective.sinkhorn import nonnegative_square, sinkhorn

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.container import BarContainer, ErrorbarContainer
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    from sinkprop.calibration import CalibrationReport, Reliability
    from sinkprop.clicks import ClickModel
    from sinkprop.permutations import LearningRecord

__all__ = [
    "ExaminationCurve",
    "Hinton",
    "RankDistribution",
    "RegretCurve",
    "ReliabilityDiagram",
    "ReliabilityDiagrams",
    "SinkhornHinton",
    "examination_curve",
    "hinton",
    "rank_distribution",
    "regret_curve",
    "reliability_diagram",
    "reliability_diagrams",
    "sinkhorn_animation",
    "sinkhorn_hinton",
]


POSITIVE, NEGATIVE, BOX = "#0072B2", "#D55E00", "#F0F0F0"
_LARGEST = 0.92  # side of the square for an entry of size `scale`, in cells; leaves a gap between neighbors
_GAP = 0.3  # gap between the box and the sums, in cells
_MARGIN = 0.15
_FEW = 12  # maximum number of positions that each have a tick
_MANY = 60  # maximum number of documents whose names are shown on the axis
_MARKERS = "os^Dv"


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
        return _root(self.ax)

    def _repr_png_(self) -> bytes | None:
        return _png(self.figure)

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
    return _draw(M, _axes(ax), sums, scale, sum_scale, tuple(colors), background)


def _draw(
    M: Floats, ax: Axes, sums: bool, scale: float, sum_scale: float, colors: tuple[Any, Any], background: Any
) -> Hinton:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Rectangle

    def squares(n: int, **style: Any) -> PolyCollection:
        collection = PolyCollection([np.zeros((4, 2))] * n, linewidths=0, zorder=2, **style)
        ax.add_collection(collection, autolim=False)
        return collection

    rows, columns = M.shape
    box = Rectangle((-0.5, -0.5), columns, rows, facecolor=background, edgecolor="#B0B0B0", linewidth=0.8)
    box.set_zorder(0.5)
    ax.add_patch(box)
    entries = squares(M.size)
    row_sums, column_sums = (
        squares(rows if sums else 0, alpha=0.6),
        squares(columns if sums else 0, alpha=0.6),
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
        return _png(self.figure)


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
    figure = _figure((2.4 * (count + 1), 2.7))
    diagrams = []
    for i, (Z, ax) in enumerate(zip(steps, figure.subplots(1, count + 1), strict=True)):
        by = 1.0 if i else factor
        diagrams.append(_draw(Z, ax, True, scale * by, sum_scale * by, colors, background))
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
    axes = _axes(ax)
    drawn = _draw(steps[0], axes, True, scale, sum_scale, colors, background)
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
    return FuncAnimation(_root(axes), show, frames=count, interval=interval, cache_frame_data=False)


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


@dataclass(frozen=True, eq=False)
class RankDistribution:
    """A heat map of rank distributions: its axes and image, as `rank_distribution` returns them.

    Parameters
    ----------
    ax : matplotlib Axes
        The axes of the heat map.
    image : matplotlib AxesImage
        The heat map.
    order : array of shape (n,)
        Documents from the top row down, as row indices of Pi.
    """

    ax: Axes
    image: AxesImage
    order: NDArray[np.intp]

    @property
    def figure(self) -> Figure:
        """The figure that the axes belong to."""
        return _root(self.ax)

    def _repr_png_(self) -> bytes | None:
        return _png(self.figure)


def rank_distribution(
    Pi: ArrayLike,
    labels: ArrayLike | None = None,
    docids: Sequence[Hashable] | NDArray[Any] | None = None,
    ax: Axes | None = None,
    *,
    order: ArrayLike | None = None,
    top: int | None = None,
    cmap: Any = "Blues",
    colorbar: bool = True,
) -> RankDistribution:
    """Draw a heat map of rank probabilities Pi, with one row per document and one column per rank.

    Parameters
    ----------
    Pi : array of shape (n, n)
        ``Pi[j, k - 1]`` is the probability that document j is at rank k, as `doubly_stochastic` returns it.
    labels : array of shape (n,), optional
        Relevance, shown next to each document.
    docids : sequence of length n, optional
        Names of the documents. By default their row indices in `Pi`.
    ax : matplotlib Axes, optional
        Axes to draw on. By default a new figure is made.
    order : array of shape (n,), optional
        Documents from the top row down, as row indices of `Pi`. By default documents are sorted by expected
        rank, the sum of ``k * Pi[j, k - 1]`` over the ranks k.
    top : int, optional
        Number of documents and ranks to show. By default all.
    cmap : matplotlib colormap, default "Blues"
        Colors from probability 0 to the largest one shown.
    colorbar : bool, default True
        Whether to draw the color scale next to the axes.

    Returns
    -------
    RankDistribution
        The axes, the image and the order of the documents.

    Examples
    --------
    >>> from sinkprop import SmoothedIndicator, doubly_stochastic
    >>> Pi = doubly_stochastic([0.2, 1.5, 0.3], relaxation=SmoothedIndicator(sigma=0.5))
    >>> drawn = rank_distribution(Pi, labels=[2, 0, 1], docids=["a", "b", "c"])
    >>> drawn.order
    array([1, 2, 0])
    >>> [text.get_text() for text in drawn.ax.get_yticklabels()]
    ['b  (0)', 'c  (1)', 'a  (2)']
    """
    P = nonnegative_square(Pi, "Pi")
    n = len(P)
    names = _per_document("docids", docids, n)
    grades = _per_document("labels", labels, n)
    rows = _order(order, P)
    shown = n if top is None else min(whole("top", top, 1), n)
    axes = _axes(ax, (6.4, 5.4))
    image = axes.imshow(
        P[rows[:shown], :shown],
        cmap=cmap,
        vmin=0,
        interpolation="nearest",
        aspect="auto",
        extent=(0.5, shown + 0.5, shown - 0.5, -0.5),
    )
    axes.set_xlabel("rank")
    axes.set_ylabel("document (label)" if grades is not None else "document")
    if shown <= _MANY:
        texts = [_text(j, names, grades) for j in rows[:shown].tolist()]
        axes.set_yticks(range(shown), texts, fontsize="medium" if shown <= 20 else "x-small")
    else:  # too many documents to name each
        axes.set_yticks([])
    every = next(m * 10**e for e in itertools.count() for m in (1, 2, 5) if shown <= 15 * m * 10**e)
    axes.set_xticks([1, *range(every, shown + 1, every)] if every > 1 else range(1, shown + 1))
    if colorbar:
        axes.figure.colorbar(image, ax=axes, label="probability")
    return RankDistribution(axes, image, rows)


def _text(j: int, names: Sequence[Any] | None, grades: Sequence[Any] | None) -> str:
    name = str(j if names is None else names[j])
    if grades is None:
        return name
    grade = grades[j]
    return f"{name}  ({grade:g})" if isinstance(grade, (int, float)) else f"{name}  ({grade})"


def _per_document(what: str, values: Any, n: int) -> list[Any] | None:
    if values is None:
        return None
    found = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(found) != n:
        raise ValueError(f"{what} must have one value per document, {n}; got {len(found)}.")
    return found


def _order(order: ArrayLike | None, P: Floats) -> NDArray[np.intp]:
    from sinkprop.objective.permutation import choose_permutation

    if order is None:
        return choose_permutation(P, "sort")
    found = np.asarray(order)
    if found.shape != (len(P),) or found.dtype.kind not in "iu" or set(found.tolist()) != set(range(len(P))):
        raise ValueError(
            f"order must list every document number from 0 to {len(P) - 1} once, best first; got {order!r}."
        )
    return found.astype(np.intp)


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
        return _root(self.ax)

    def _repr_png_(self) -> bytes | None:
        return _png(self.figure)


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
    axes = _axes(ax, (4.6, 5.6))
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
        return _png(self.figure)


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
    figure = _figure((3.6 * columns, 4.6 * rows))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in panels[len(events) :]:
        ax.remove()
    diagrams = {}
    for event, ax in zip(events, panels, strict=False):
        diagrams[event] = reliability_diagram(report.after[event], report.before.get(event), ax)
        ax.set_title(event)
    return ReliabilityDiagrams(figure, diagrams)


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
        return _root(self.ax)

    def _repr_png_(self) -> bytes | None:
        return _png(self.figure)


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
    K, axes = max(map(len, curves)), _axes(ax, (4.8, 3.6))
    lines, bands = [], []
    for i, ((name, one), curve) in enumerate(zip(models, curves, strict=True)):
        marker = _MARKERS[i % len(_MARKERS)] if K <= _MANY else ""
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


@dataclass(frozen=True, eq=False)
class RegretCurve:
    """Curves of regret, one per learner, as `regret_curve` draws them on matplotlib axes.

    Parameters
    ----------
    ax : matplotlib Axes
        Axes of the curves.
    lines : tuple of matplotlib Line2D
        Regret of each learner after each round.
    bounds : tuple of matplotlib Line2D
        Bound of each learner, dashed and in the color of its regret; empty if drawn without bounds.
    """

    ax: Axes
    lines: tuple[Line2D, ...]
    bounds: tuple[Line2D, ...]

    @property
    def figure(self) -> Figure:
        """Figure of the axes."""
        return _root(self.ax)

    def _repr_png_(self) -> bytes | None:
        return _png(self.figure)


def regret_curve(
    record: LearningRecord | Mapping[str, LearningRecord], ax: Axes | None = None, *, bounds: bool = True
) -> RegretCurve:
    """Draw the regret of learners of permutations after each round, beside its bound.

    Parameters
    ----------
    record : LearningRecord or mapping from str to LearningRecord
        Result of `sinkprop.permutations.play`. The records of a mapping are drawn on the same axes, with its
        keys in a legend.
    ax : matplotlib Axes, optional
        Axes to draw on. By default a new figure is made.
    bounds : bool, default True
        Whether to draw the bounds.

    Returns
    -------
    RegretCurve
        The axes and artists, in the order of the mapping.

    Examples
    --------
    >>> from sinkprop.permutations import PermutationLearner, play
    >>> losses = np.random.default_rng(0).random((50, 3, 3))
    >>> drawn = regret_curve(play(PermutationLearner(3, n_rounds=50, seed=0), losses))
    >>> bool(np.all(drawn.lines[0].get_ydata() < drawn.bounds[0].get_ydata()))
    True
    """
    from sinkprop.permutations import LearningRecord

    records = record if isinstance(record, Mapping) else {"regret": record}
    wrong = [one for one in records.values() if not isinstance(one, LearningRecord)]
    if wrong or not records:
        got = f"an object of type {type(wrong[0]).__name__}" if wrong else "an empty mapping"
        raise ValueError(f"record must be a LearningRecord, or a mapping from names to records; got {got}.")
    axes = _axes(ax, (4.8, 3.6))
    lines, dashed = [], []
    for name, one in records.items():
        (line,) = axes.plot(np.arange(1, len(one.regret) + 1), one.regret, label=str(name))
        lines.append(line)
        if bounds:
            label = f"bound of {name}" if isinstance(record, Mapping) else "bound"
            style: dict[str, Any] = {"color": line.get_color(), "linestyle": "--", "linewidth": 1}
            dashed += axes.plot(line.get_xdata(), one.bound, label=label, **style)
    axes.set(xlabel="round", ylabel="regret")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return RegretCurve(axes, tuple(lines), tuple(dashed))


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


def _axes(ax: Axes | None, size: tuple[float, float] = (4.8, 4.8)) -> Axes:
    return _figure(size).subplots() if ax is None else ax


def _root(ax: Axes) -> Figure:
    """The figure that contains the axes, even if the axes are in a subfigure."""
    figure: Any = ax.figure
    while figure.figure is not figure:
        figure = figure.figure
    root: Figure = figure
    return root


def _png(figure: Figure) -> bytes | None:
    """PNG image to show in a notebook; None for a pyplot figure, which the notebook shows by itself."""
    if getattr(figure, "number", None) is not None:
        return None
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _figure(size: tuple[float, float]) -> Figure:
    """A figure that is not registered with pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure
