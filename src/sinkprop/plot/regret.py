"""Regret of learners of permutations, beside its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkprop.plot.axes import new_axes, png, root_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from sinkprop.permutations import LearningRecord

__all__ = ["RegretCurve", "regret_curve"]


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
        return root_figure(self.ax)

    def _repr_png_(self) -> bytes | None:
        return png(self.figure)


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
    axes = new_axes(ax, (4.8, 3.6))
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
