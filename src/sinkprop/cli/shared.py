"""What the commands share: checks of options before the work, the console, the progress bar."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click
    from rich.console import Console

__all__ = ["check_file", "check_plot", "complain", "console", "installed", "progress"]

_PICTURES = (".png", ".svg", ".pdf")
_PIPED_WIDTH = 240  # wider than any table: what is piped must not wrap


def installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def complain(message: str, status: int) -> int:
    print(f"sinkprop: {' '.join(message.split())}", file=sys.stderr)
    return status


def check_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """The path, if it can be written: better known before a minute of measuring than after."""
    import click

    if path is not None and str(path) != "-":
        folder = path.parent
        if not folder.is_dir():
            raise click.BadParameter(f"there is no folder {str(folder)!r}.", ctx=context, param=option)
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise click.BadParameter(f"{str(path)!r} cannot be written.", ctx=context, param=option)
    return path


def check_plot(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    import click

    if path is not None:
        if path.suffix.lower() not in _PICTURES:
            wanted = ", ".join(_PICTURES[:-1]) + f" or {_PICTURES[-1]}"
            raise click.BadParameter(f"{str(path)!r} must end in {wanted}.", ctx=context, param=option)
        if not installed("matplotlib"):
            raise click.BadParameter(
                'needs matplotlib: pip install "sinkprop[plot]".', ctx=context, param=option
            )
    return check_file(context, option, path)


def console() -> Console:
    """Stdout for results: the terminal's width, or one at which nothing wraps when piped."""
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr, silent unless that is a terminal; drawn between measurements, never during one."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    stderr = Console(stderr=True)
    columns = BarColumn(bar_width=20), TaskProgressColumn(), TextColumn("{task.description}", markup=False)
    disable = not stderr.is_terminal
    with Progress(
        *columns, console=stderr, disable=disable, auto_refresh=False, transient=True, expand=False
    ) as bar:
        task = bar.add_task("", total=None)

        def notify(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what, refresh=True)

        yield notify
