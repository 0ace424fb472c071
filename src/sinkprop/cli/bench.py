"""The command `sinkprop bench`: times of the objective and its gradient, compared with other packages."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sinkprop.cli.options import (
    check_file,
    check_plot,
    comma_separated,
    json_option,
    output_option,
    whole_number,
)
from sinkprop.cli.output import console, is_stdout, progress, write_output

__all__ = ["bench_command"]

_SIZES, _QUICK_SIZES, _LARGEST_SIZE = (10, 100, 1000, 10_000, 100_000), (10, 100, 1000), 10_000_000


def _size(text: str) -> int:
    if whole_number(text) > _LARGEST_SIZE:
        raise ValueError(text)
    return int(text)


@click.command("bench", short_help="Measure the speed of the objective and of other packages.")
@click.option(
    "--sizes",
    metavar="N,N,...",
    callback=comma_separated(
        _size, f"a size; give whole numbers from 1 to {_LARGEST_SIZE}, such as 10,100,1000."
    ),
    help="Numbers of documents per query, such as 10,100,1000.  [default: 10,100,1000,10000,100000]",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Finish in about 20 seconds: sizes 10, 100 and 1,000, fewer repetitions, and no performance targets "
    "for queries of 10^6 documents.",
)
@click.option(
    "--figures/--no-figures",
    default=True,
    help="Check sinkprop's performance targets, such as a limit on peak memory.  [default: figures]",
)
@click.option(
    "--peers/--no-peers",
    default=True,
    help="Measure torch, allRank and torchsort too, if installed.  [default: peers]",
)
@output_option(
    "--plot",
    check=check_plot,
    help="Plot time against the number of documents, on log scales, to a .png, .svg or .pdf file.",
)
@json_option("all measurements", check=check_file)
def bench_command(
    sizes: tuple[int, ...] | None,
    quick: bool,
    figures: bool,
    peers: bool,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    """Time a ranking objective and its gradient for one query, in sinkprop and in other packages.

    \b
    sinkprop bench --quick                           a first look, about 20 seconds
    sinkprop bench                                   everything, one to two minutes
    sinkprop bench --sizes 10,30,100,300,1000,3000,10000,100000 --plot times.png
    sinkprop bench --no-peers --no-figures           only sinkprop and numpy.argsort
    sinkprop bench --quick --json - | jq .figures    JSON for another program

    Each time is the shortest of several repetitions on one thread. Times depend on the machine, so
    compare ratios of times instead. Packages that are not installed are skipped, and the output names
    them. The exit code is 0 even if a performance target is missed.
    """  # noqa: D301
    from sinkprop.cli.benchmark import measure
    from sinkprop.cli.benchmark.records import FULL, QUICK, as_record
    from sinkprop.cli.benchmark.tables import print_report

    with progress() as notify:
        report = measure(
            sizes or (_QUICK_SIZES if quick else _SIZES),
            budget=QUICK if quick else FULL,
            peers=peers,
            figures=figures,
            million=not quick,
            notify=notify,
        )
    text = json.dumps(as_record(report), indent=2, allow_nan=False) + "\n"
    if json_file is not None:
        write_output(json_file, text)
    if plot is not None:
        from sinkprop.cli.benchmark.picture import plot as draw

        draw(report, plot)
    if is_stdout(json_file):
        return
    out = console()
    print_report(out, report)
    for path in (plot, json_file):
        if path is not None:
            out.print(f"Wrote {path}", highlight=False, soft_wrap=True)
