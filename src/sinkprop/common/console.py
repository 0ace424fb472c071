"""Text and tables that the commands print, on a terminal or in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["plain", "print_columns", "say"]

_GAP = 3  # characters between two columns of a table


def plain(out: Console, text: str, style: str = "") -> Text:
    """Return a rich `Text` in which markup is not interpreted.

    Characters that the console's encoding lacks are escaped.
    """
    from rich.text import Text

    return Text(text.encode(out.encoding, "backslashreplace").decode(out.encoding), style)


def say(out: Console, text: str, style: str = "") -> None:
    """Print a line or paragraph: wrapped at words on a terminal, not wrapped in a pipe."""
    out.print(plain(out, text, style), soft_wrap=not out.is_terminal)


def print_columns(
    out: Console, heads: Sequence[str], rows: Sequence[Sequence[str | Text]], *, last_style: str = ""
) -> None:
    """Print a table; on a narrow terminal, as several tables that repeat the first column."""
    from rich import box
    from rich.table import Table

    widths = [max(len(row[i]) for row in [heads, *rows]) + _GAP for i in range(len(heads))]
    room = out.width - (widths[0] - _GAP)
    start = 1
    while start < len(heads):
        stop, used = start + 1, widths[start]
        while stop < len(heads) and used + widths[stop] <= room:
            used += widths[stop]
            stop += 1
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column(heads[0], no_wrap=True)
        for head in heads[start:stop]:
            table.add_column(head, justify="right", no_wrap=True)
        for i, row in enumerate(rows, 1):
            cells = (
                plain(out, cell) if isinstance(cell, str) else cell for cell in (row[0], *row[start:stop])
            )
            table.add_row(*cells, style=last_style if i == len(rows) else "")
        out.print(table)
        out.print()
        start = stop
