"""Comparison of systems as text: cells of a table, aligned columns, and Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sinkprop.experiment.systems.comparison import ScoreComparison

__all__ = ["as_markdown", "as_text", "notes", "rows_of"]

# {verdict: mark after a mean}, in ASCII and in Unicode
_ASCII = {1: "+", -1: "-", 0: " "}
_UNICODE = {1: "\N{BLACK UP-POINTING TRIANGLE}", -1: "\N{BLACK DOWN-POINTING TRIANGLE}", 0: " "}
_HEADS = ("mean ", "95 % interval", "difference", "95 % interval", "p", "won/tied/lost")


def rows_of(found: ScoreComparison, metric: str, *, unicode: bool = False) -> list[list[str]]:
    """Cells of the table of one metric: a row of headings, and one row per system."""
    marks = _UNICODE if unicode else _ASCII
    by_system = {d.system: d for d in found.differences if d.metric == metric}
    rows = [[metric, *_HEADS]]
    for name, evaluation in found.evaluations.items():
        d = by_system.get(name)
        row = [name, f"{evaluation[metric]:.4f}{marks[d.verdict if d else 0]}"]
        row.append(_range(found.intervals[name][metric]))
        if d is None:
            row += [""] * (len(_HEADS) - 2)
        else:
            row += [f"{d.difference:+.4f}", _range(d.interval, "+"), _p(d.randomization_holm)]
            row.append(f"{d.wins:,}/{d.ties:,}/{d.losses:,}")
        rows.append(row)
    return rows


def notes(found: ScoreComparison, *, unicode: bool = False) -> tuple[str, ...]:
    """Sentences that explain the tables."""
    marks = _UNICODE if unicode else _ASCII
    n = len(found.others)
    family = f", Holm-corrected for {n} systems" if n > 1 else ""
    return (
        f"{marks[1]} better, {marks[-1]} worse than {found.baseline}: p < .05 by the paired randomization "
        f"test, two-sided{family}. Intervals: bootstrap over queries. Won, tied, lost: queries.",
        found.definition(),
    )


def as_text(found: ScoreComparison, metric: str | None = None) -> str:
    """The table of one metric, or all tables and the sentences that explain them, for a fixed-width font."""
    if metric is not None:
        return _aligned(rows_of(found, metric))
    return "\n\n".join([*(_aligned(rows_of(found, name)) for name in found.metrics), "\n".join(notes(found))])


def as_markdown(found: ScoreComparison) -> str:
    """The tables in Markdown, and the sentences that explain them."""
    blocks = []
    for metric in found.metrics:
        heads, *rows = (
            ["\\|".join(cell.strip().split("|")) for cell in row] for row in rows_of(found, metric)
        )
        rule = ["---", *["---:"] * (len(heads) - 1)]
        blocks.append("\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)))
    return "\n\n".join([*blocks, *notes(found)]) + "\n"


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )
    return "\n".join(lines)


def _range(interval: tuple[float, float], sign: str = "") -> str:
    low, high = interval
    return f"{low:{sign}.4f} to {high:{sign}.4f}"


def _p(p: float) -> str:
    return "-" if math.isnan(p) else "< .0001" if p < 0.00005 else f"{p:.4f}"
