"""Output of the commands: console, progress, JSON and files."""

from __future__ import annotations

import json
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sinkprop.common.console import plain, say
from sinkprop.common.plain_data import plain_data

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "as_json",
    "command_line",
    "complain",
    "console",
    "counted",
    "is_stdout",
    "notes_on_stderr",
    "print_facts",
    "program_name",
    "progress",
    "say_written",
    "working",
    "write_files",
    "write_output",
    "write_texts",
]


_PIPED_WIDTH = 240  # wider than any table, so that piped output does not wrap


def complain(message: str, status: int) -> int:
    """Print a message to stderr as one line, with unprintable characters escaped, and return `status`."""
    line = f"sinkprop: {' '.join(message.split())}"
    with suppress(OSError):  # if nobody reads stderr any more, the exit code has to say it all
        print("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line), file=sys.stderr)
    return status


def is_stdout(path: Path | None) -> bool:
    return path is not None and str(path) == "-"


def command_line() -> str | None:
    """The command line of the running command, to show with its results; None if no command is running."""
    import shlex

    import click

    context = click.get_current_context(silent=True)
    given = None if context is None else context.find_root().obj
    return None if given is None else shlex.join(["sinkprop", *given])


def program_name() -> str:
    """The word that starts this program in a shell: its name, or its path if the name is not on the PATH."""
    import shlex
    import shutil

    started = sys.argv[0]
    if os.path.basename(started) != "sinkprop" or not os.path.isfile(started):
        return "sinkprop"
    found = shutil.which("sinkprop")
    known = found is not None and os.path.samefile(found, started)
    return "sinkprop" if known else shlex.quote(started)


def write_output(path: Path | None, data: bytes | str) -> None:
    """Write data to stdout if the path is None or "-", else to a device, a pipe or a file.

    A file is replaced only when the new content is complete.
    """
    from sinkprop.common.atomic import naming, write_atomically

    content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    if path is None or is_stdout(path):
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    elif is_special(path):
        with naming(path), open(path, "wb") as handle:
            handle.write(content)
    else:
        write_atomically(path, content)


def write_texts(path: Path | None, texts: Iterable[str]) -> None:
    """Write texts one by one to stdout if the path is None or "-", else to a device, a pipe or a file.

    A file is written beside its destination and moved there when complete.
    """
    from sinkprop.common.atomic import naming, replacing

    with ExitStack() as stack:
        if path is None or is_stdout(path):
            sys.stdout.flush()
            stream: IO[bytes] = sys.stdout.buffer
        elif is_special(path):
            stack.enter_context(naming(path))
            stream = stack.enter_context(open(path, "wb"))
        else:
            stream = stack.enter_context(open(stack.enter_context(replacing(path)), "wb"))
        for text in texts:
            stream.write(text.encode("utf-8", "surrogateescape"))
        stream.flush()


def write_files(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Write every file beside its destination, then move all of them to their destinations."""
    from sinkprop.common.atomic import replacing

    with ExitStack() as stack:
        for path, write in writers.items():
            write(stack.enter_context(replacing(path)))


def is_special(path: Path) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def as_json(record: Any) -> str:
    """Convert plain data and NumPy numbers to JSON, with null for numbers that are not finite."""
    return json.dumps(plain_data(record, finite=True), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def console() -> Console:
    """Return a console on stdout. If stdout is not a terminal, it is so wide that no line wraps."""
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


def say_written(out: Console, *paths: object) -> None:
    """Print one line per file that was written."""
    for path in paths:
        if path is not None:
            say(out, f"Wrote {path}")


def print_facts(out: Console, facts: Mapping[str, str | None]) -> None:
    """Print labels and texts in two columns, without the facts that are None.

    On a terminal, long texts wrap within their column. In a pipe, no line wraps or ends in spaces.
    """
    from rich.table import Table

    given = {label: text for label, text in facts.items() if text is not None}
    if not out.is_terminal:
        width = max(map(len, given))
        for label, text in given.items():
            say(out, f"{label:<{width}}  {text}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in given.items():
        table.add_row(label, plain(out, text))
    out.print(table)


def counted(n: int, one: str, several: str) -> str:
    """A number with its noun in the singular or the plural, such as "1 row" or "1,200 rows"."""
    return f"{n:,} {one if n == 1 else several}"


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None]]:
    """Context manager: provide a function notify(done, total, what) that draws a progress bar on stderr.

    The bar is drawn only when the function is called, so it does not disturb measurements in between. Nothing
    is drawn if stderr is not a terminal.
    """
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


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` and the elapsed time on stderr during a `with` block, if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    stderr = Console(stderr=True)
    columns = SpinnerColumn("line"), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=stderr, disable=not stderr.is_terminal, transient=True) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def notes_on_stderr(
    worded: Callable[[str], str] = str, *, ignore: str = "", said: set[str] | None = None
) -> Iterator[None]:
    """Print the warnings of a `with` block to stderr at its end, without duplicates.

    The function `worded` changes the text of a warning before it is printed. Warnings whose text matches the
    regular expression `ignore`, or is in `said`, are not printed. The texts of printed warnings are added to
    `said`.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if ignore:
            warnings.filterwarnings("ignore", message=ignore)
        yield
    said = set() if said is None else said
    for text in dict.fromkeys(worded(str(warning.message)) for warning in caught):
        if text not in said:
            said.add(text)
            complain(f"note: {text}", 0)
