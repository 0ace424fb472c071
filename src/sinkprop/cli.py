"""The program `sinkprop`: reads options, calls the library, prints.

click and rich come with the extra "cli" and are imported when the program runs, so this module can always be
imported. Results go to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import sinkprop

if TYPE_CHECKING:
    import click
    from rich.console import Console


__all__ = ["main", "program"]

_SIZES, _QUICK_SIZES, _LARGEST_SIZE = (10, 100, 1000, 10_000, 100_000), (10, 100, 1000), 10_000_000
_PICTURES = (".png", ".svg", ".pdf")
_PIPED_WIDTH = 240  # wider than any table: what is piped must not wrap


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit: 0 done, 1 failed, 2 wrong use or a missing extra, 130 interrupted."""
    try:
        raise SystemExit(_run(arguments))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _run(arguments: Sequence[str] | None) -> int:
    missing = [name for name in ("click", "rich") if not _installed(name)]
    if missing:
        return _complain(f'the command line needs {" and ".join(missing)}: pip install "sinkprop[cli]"', 2)
    import click

    try:
        status = program().main(arguments, prog_name="sinkprop", standalone_mode=False)
    except click.Abort:
        return 130
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "sinkprop"
        hint = f" See {where} --help." if isinstance(error, click.UsageError) else ""
        return _complain(error.format_message() + hint, error.exit_code)
    except (OSError, ValueError, MemoryError) as error:
        return _complain(str(error) or type(error).__name__, 1)
    return status if isinstance(status, int) else 0


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _complain(message: str, status: int) -> int:
    print(f"sinkprop: {' '.join(message.split())}", file=sys.stderr)
    return status


def program() -> click.Group:
    """The click group with every command."""
    import click

    @click.group(
        "sinkprop",
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    @click.version_option(sinkprop.__version__, prog_name="sinkprop", message="%(prog)s %(version)s")
    @click.pass_context
    def sinkprop_program(context: click.Context) -> None:
        """Learning to rank on the expected value of the metric itself, in linear time.

        \b
        sinkprop bench --quick        how fast it is on this machine, in 20 seconds
        sinkprop bench --help         what else bench measures
        """  # noqa: D301 - click's mark for lines to keep
        if context.invoked_subcommand is None:
            click.echo(context.get_help())

    sinkprop_program.add_command(_bench_command())
    return sinkprop_program


def _bench_command() -> click.Command:
    import click

    @click.command("bench", short_help="Time value and gradient beside other packages.")
    @click.option(
        "--sizes",
        metavar="N,N,...",
        callback=_parse_sizes,
        help="Documents in the query, e.g. 10,100,1000.  [default: 10,100,1000,10000,100000]",
    )
    @click.option("--quick", is_flag=True, help="About 20 seconds: sizes 10,100,1000 and no 10^6 figures.")
    @click.option(
        "--figures/--no-figures",
        default=True,
        help="Measure the figures that the library has set itself.  [default: figures]",
    )
    @click.option(
        "--peers/--no-peers",
        default=True,
        help="Measure torch, allRank and torchsort where installed, or only NumPy.  [default: peers]",
    )
    @click.option(
        "--plot",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        callback=_check_plot,
        help="Write a log-log picture of time against n: .png, .svg or .pdf.",
    )
    @click.option(
        "--json",
        "json_file",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        metavar="FILE",
        callback=_check_file,
        help="Write everything measured as JSON; - writes only that, to stdout.",
    )
    def bench(
        sizes: tuple[int, ...] | None,
        quick: bool,
        figures: bool,
        peers: bool,
        plot: Path | None,
        json_file: Path | None,
    ) -> None:
        """Time the value and gradient of one query, beside what others need for it.

        Everything is measured in this run on one thread, best of several, so the ratios hold on this machine.
        Packages that are not installed are left out and named. This is a report: the exit code is 0 also when
        a figure is short.

        \b
        sinkprop bench --quick                           a first look, about 20 seconds
        sinkprop bench                                   everything, one to two minutes
        sinkprop bench --sizes 10,30,100,300,1000,3000,10000,100000 --plot times.png
        sinkprop bench --no-peers --no-figures           only sinkprop and numpy.argsort
        sinkprop bench --quick --json - | jq .figures    for another program
        """  # noqa: D301
        from sinkprop.bench import FULL, QUICK, as_record, measure
        from sinkprop.bench.tables import print_report

        with _progress() as notify:
            report = measure(
                sizes or (_QUICK_SIZES if quick else _SIZES),
                budget=QUICK if quick else FULL,
                peers=peers,
                figures=figures,
                million=not quick,
                notify=notify,
            )
        text = json.dumps(as_record(report), indent=2, allow_nan=False) + "\n"
        to_stdout = json_file is not None and str(json_file) == "-"
        if json_file is not None and not to_stdout:
            json_file.write_text(text, encoding="utf-8")
        if plot is not None:
            from sinkprop.bench.picture import plot as draw

            draw(report, plot)
        if to_stdout:
            sys.stdout.write(text)
            return
        console = _console()
        print_report(console, report)
        for path in (plot, json_file):
            if path is not None:
                console.print(f"Wrote {path}", highlight=False, soft_wrap=True)

    return bench


def _parse_sizes(
    context: click.Context, option: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    import click

    if value is None:
        return None
    sizes = []
    for part in value.split(","):
        text = part.strip()
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _LARGEST_SIZE):
            raise click.BadParameter(
                f"{text!r} is not a size; give whole numbers from 1 to {_LARGEST_SIZE}, as in 10,100,1000.",
                ctx=context,
                param=option,
            )
        sizes.append(int(text))
    return tuple(sorted(set(sizes)))


def _check_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """The path, if it can be written: better known before a minute of measuring than after."""
    import click

    if path is not None and str(path) != "-":
        folder = path.parent
        if not folder.is_dir():
            raise click.BadParameter(f"there is no folder {str(folder)!r}.", ctx=context, param=option)
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise click.BadParameter(f"{str(path)!r} cannot be written.", ctx=context, param=option)
    return path


def _check_plot(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    import click

    if path is not None:
        if path.suffix.lower() not in _PICTURES:
            wanted = ", ".join(_PICTURES[:-1]) + f" or {_PICTURES[-1]}"
            raise click.BadParameter(f"{str(path)!r} must end in {wanted}.", ctx=context, param=option)
        if not _installed("matplotlib"):
            raise click.BadParameter(
                'needs matplotlib: pip install "sinkprop[plot]".', ctx=context, param=option
            )
    return _check_file(context, option, path)


def _console() -> Console:
    """Stdout for results: the terminal's width, or one at which nothing wraps when piped."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr, silent unless that is a terminal; drawn between measurements, never during one."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    columns = BarColumn(bar_width=20), TaskProgressColumn(), TextColumn("{task.description}", markup=False)
    disable = not console.is_terminal
    with Progress(
        *columns, console=console, disable=disable, auto_refresh=False, transient=True, expand=False
    ) as bar:
        task = bar.add_task("", total=None)

        def notify(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what, refresh=True)

        yield notify
