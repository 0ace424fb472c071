"""A heat map of the probability of each document at each rank."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.common.arguments import whole
from sinkprop.common.types import Floats
from sinkprop.objective.sinkhorn import nonnegative_square
from sinkprop.plot.axes import MANY, new_axes, png, root_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

__all__ = ["RankDistribution", "rank_distribution"]


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
        return root_figure(self.ax)

    def _repr_png_(self) -> bytes | None:
        return png(self.figure)


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
    axes = new_axes(ax, (6.4, 5.4))
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
    if shown <= MANY:
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
