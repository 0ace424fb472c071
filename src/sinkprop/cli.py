"""The program `sinkprop`: reads options, calls the library, prints.

click and rich come with the extra "cli" and are imported when the program runs, so this module can always be
imported. Results go to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import sinkprop

if TYPE_CHECKING:
    import click
    from rich.console import Console

    from sinkprop.bench import Figure, Report

__all__ = ["main", "program"]

_SIZES, _QUICK_SIZES, _LARGEST_SIZE = (10, 100, 1000, 10_000, 100_000), (10, 100, 1000), 10_000_000
_PICTURES = (".png", ".svg", ".pdf")
_BUSY = 0.2  # processors in use by others from which results are worth a warning
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
            _plot(report, plot)
        if to_stdout:
            sys.stdout.write(text)
            return
        console = _console()
        _print_report(console, report)
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


def _print_report(console: Console, report: Report) -> None:
    from sinkprop.bench import OURS, SIGMA

    dash = "\N{EN DASH}" if console.encoding.lower().startswith("utf") else "-"
    sizes = report.sizes
    _print_machine(console, report)
    heads = [f"{n:,}" for n in sizes]
    times = [[name, *(_number(report.seconds(name, n), dash, 1e6) for n in sizes)] for name in report.methods]
    ratios = [
        [name, *(_number(report.slowdown(name, n), dash) for n in sizes)]
        for name in report.methods
        if name != OURS
    ]
    _print_columns(console, "Value and gradient of one query, microseconds", ["n", *heads], times)
    _print_columns(console, f"Times slower than {OURS}", ["n", *heads], ratios)
    _print_notes(console, report, dash)
    differences = [
        ["fast against exact", *(_power(a.fast_to_exact, dash) for a in report.accuracy)],
        ["fast against dense", *(_power(a.fast_to_dense, dash) for a in report.accuracy)],
        ["exact against dense", *(_power(a.exact_to_dense, dash) for a in report.accuracy)],
    ]
    title = f"Relative error of the Gaussian gradient, sigma {SIGMA}"
    _print_columns(console, title, ["n", *heads], differences)
    console.print("Stated: 1e-5 for fast, 1e-9 for exact.\n", style="dim")
    if report.figures:
        _print_figures(console, report.figures, dash)


def _print_machine(console: Console, report: Report) -> None:
    machine = report.machine
    console.print(
        f"{machine.cpu}, {machine.processors} processors, {machine.instruction_set} kernels, {machine.system}"
    )
    console.print(", ".join(f"{name} {version}" for name, version in machine.versions.items()))
    if report.busy is not None and report.busy > _BUSY:
        text = f"Other processes kept {report.busy:.1f} processors busy: times may be high and ratios off."
        console.print(text, style="yellow")
    console.print()


def _print_notes(console: Console, report: Report, dash: str) -> None:
    from sinkprop.bench import ARGSORT, MEMORY, SOFT_RANK

    notes = [f"{ARGSORT} only sorts."]
    if SOFT_RANK in report.methods:
        notes.append(f"{SOFT_RANK} gives soft ranks, not an expected gain.")
    if any(t.seconds is None for t in report.timings):
        notes.append(f"{dash} not tried: too long, or over {MEMORY / 1e9:.0f} GB.")
    if report.absent:
        by_reason: dict[str, list[str]] = {}
        for a in report.absent:
            by_reason.setdefault(a.reason, []).append(a.name)
        left = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
        notes.append(f"Left out: {'; '.join(left)}.")
    console.print(" ".join(notes), style="dim", markup=False)
    for a in report.failed:
        console.print(f"{a.name}: {a.reason}", style="red", markup=False)
    console.print()


def _print_columns(console: Console, title: str, heads: list[str], rows: list[list[str]]) -> None:
    """A table whose columns, after the first, are spread over several tables where the terminal is narrow."""
    from rich import box
    from rich.table import Table

    widths = [max(len(row[i]) for row in [heads, *rows]) + 2 for i in range(len(heads))]
    room = console.width - widths[0] - 2
    console.print(title, style="bold")
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
        for row in rows:
            table.add_row(row[0], *row[start:stop])
        console.print(table)
        console.print()
        start = stop


def _print_figures(console: Console, figures: Sequence[Figure], dash: str) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("Figure", min_width=20)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("asked", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for f in figures:
        mark, style = {
            True: ("reached", "green"),
            False: ("not reached", "bold red"),
            None: ("not measured", "dim"),
        }[f.reached]
        unit = f.unit if f.unit in ("", "x") else f" {f.unit}"
        measured = _number(f.measured, dash) + (unit if f.measured is not None else "")
        sign = ">=" if f.direction == "at least" else "<="
        table.add_row(f.name, measured, f"{sign} {f.asked:,g}{unit}", f"[{style}]{mark}[/]")
    console.print("Figures", style="bold")
    console.print(table)
    console.print()
    by_note: dict[str, list[str]] = {}
    for f in figures:
        if f.note:
            by_note.setdefault(f.note, []).append(f.name)
    for note, names in by_note.items():
        subject, _, reason = note.partition("; ") if note.startswith("not measured; ") else ("", "", note)
        text = f"{subject.capitalize() or '; '.join(names)}: {reason}."  # the table shows which were not
        console.print(text, style="dim", markup=False)
    reached, measured_count = (
        sum(f.reached is True for f in figures),
        sum(f.reached is not None for f in figures),
    )
    disturbed = [f"{f.name} ({f.busy:.1f})" for f in figures if f.reached is False and (f.busy or 0) > _BUSY]
    if disturbed:
        text = f"Measure again: other processes kept processors busy during {'; '.join(disturbed)}."
        console.print(text, style="yellow", markup=False, soft_wrap=not console.is_terminal)
    console.print("a vs b: how many times faster a is. a / b: the ratio of their times.", style="dim")
    console.print(f"{reached} of {measured_count} figures measured are reached.")


def _number(value: float | None, dash: str, unit: float = 1.0) -> str:
    """Three digits or so, with thousands set apart."""
    if value is None:
        return dash
    x = value * unit
    if x >= 100 or x == 0:
        return f"{x:,.0f}"
    return f"{x:.1f}" if x >= 1 else f"{x:.2f}" if x >= 0.1 else f"{x:.2g}"


def _power(value: float | None, dash: str) -> str:
    return dash if value is None else "0" if value == 0 else f"{value:.0e}"


_BLUE, _PURPLE, _GREEN, _BLACK = "#0072B2", "#5E3C99", "#00825E", "#000000"
_OTHERS = ("#C24E00", "#C2508F", "#99224F", "#8F6A00", "#666666")


@dataclass(frozen=True)
class _Line:
    """A line of the picture: sizes and microseconds, by rising size."""

    name: str
    color: str
    n: tuple[int, ...]
    t: tuple[float, ...]


def _plot(report: Report, path: Path) -> None:
    """A log-log picture of time against n, each line labelled at its end."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    from sinkprop.bench import ARGSORT, EXACT, LAPLACE, OURS

    ours = {OURS: _BLUE, EXACT: _PURPLE, LAPLACE: _GREEN}
    others = itertools.cycle(_OTHERS)
    lines = []
    for name in report.methods:
        points = [(n, t * 1e6) for n in report.sizes if (t := report.seconds(name, n)) is not None]
        if points:
            color = ours.get(name) or (_BLACK if name == ARGSORT else next(others))
            lines.append(_Line(name, color, *zip(*points, strict=True)))
    with matplotlib.rc_context({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "sinkprop"}):
        figure = Canvas(figsize=(9, 5.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot(xscale="log", yscale="log")
        axes.set_xlabel("documents in the query, n")
        axes.set_ylabel("microseconds")
        axes.set_title("Value and gradient of one query, one thread", loc="left", fontsize=12)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, which="major", color="#E6E6E6", linewidth=0.6)
        axes.tick_params(which="minor", length=2, color="#999999")
        for line in lines:
            axes.plot(
                line.n,
                line.t,
                "--" if line.name == ARGSORT else "-",
                color=line.color,
                linewidth=2.4 if line.name in ours else 1.4,
                marker="o",
                markersize=4,
            )
        _draw_guides(axes, lines)
        axes.set_xlim(min(line.n[0] for line in lines) / 1.3, max(line.n[-1] for line in lines) * 1.3)
        _label_ends(axes, lines)
        figure.savefig(path, dpi=160)


def _draw_guides(axes: Any, lines: list[_Line]) -> None:
    """Thin lines of slope 1 above the end of ours, the first, and of slope 2 above that of the slowest."""
    slowest = max(lines, key=lambda line: line.t[-1] / line.n[-1])
    for slope, line in ((1, lines[0]), (2, slowest)):
        if len(line.n) < 2:
            continue
        n, t = line.n[-1], 4 * line.t[-1]
        start = n / 4
        axes.plot([start, n], [t * (start / n) ** slope, t], color="#999999", linewidth=0.8, zorder=1)
        axes.annotate(
            f"slope {slope}",
            (start, t * (start / n) ** slope),
            (-4, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
            color="#777777",
        )


def _label_ends(axes: Any, lines: list[_Line]) -> None:
    """Names beside the ends of the lines, pushed apart where they would overlap."""
    low, high = (math.log(t) for t in axes.get_ylim())
    apart = 0.042 * (high - low)
    for end in {line.n[-1] for line in lines}:
        here = sorted((line for line in lines if line.n[-1] == end), key=lambda line: line.t[-1])
        for line, height in zip(here, _spread([math.log(x.t[-1]) for x in here], apart), strict=True):
            axes.annotate(
                line.name,
                (end, math.exp(height)),
                (8, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=line.color,
                annotation_clip=False,
            )


def _spread(heights: list[float], apart: float) -> list[float]:
    """Rising heights moved as little as needed to stand `apart`: runs that would overlap share their middle.

    >>> _spread([0.0, 0.0, 5.0], 1.0)
    [-0.5, 0.5, 5.0]
    """
    runs: list[list[float]] = []
    for height in heights:
        runs.append([height])
        while len(runs) > 1 and _top(runs[-2], apart) + apart > _bottom(runs[-1], apart):
            runs[-2:] = [runs[-2] + runs[-1]]
    return [_bottom(run, apart) + i * apart for run in runs for i in range(len(run))]


def _bottom(run: list[float], apart: float) -> float:
    return sum(run) / len(run) - (len(run) - 1) / 2 * apart


def _top(run: list[float], apart: float) -> float:
    return sum(run) / len(run) + (len(run) - 1) / 2 * apart
