"""The report of `sinkprop bench` as tables for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinkprop.cli.benchmark.records import ARGSORT, OURS, SIGMA, SOFT_RANK, Figure, Report
from sinkprop.cli.benchmark.timing import MEMORY
from sinkprop.common.console import print_columns

if TYPE_CHECKING:
    from rich.console import Console

_BUSY = 0.2  # warn if other processes used more processors than this


def print_report(console: Console, report: Report) -> None:
    """Print all tables of a report."""
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
    _print_table(console, "Value and gradient of one query, microseconds", ["n", *heads], times)
    _print_table(console, f"Times slower than {OURS}", ["n", *heads], ratios)
    _print_notes(console, report, dash)
    differences = [
        ["fast against exact", *(_power(a.fast_to_exact, dash) for a in report.accuracy)],
        ["fast against dense", *(_power(a.fast_to_dense, dash) for a in report.accuracy)],
        ["exact against dense", *(_power(a.exact_to_dense, dash) for a in report.accuracy)],
    ]
    title = f"Relative error of the Gaussian gradient, sigma {SIGMA}"
    _print_table(console, title, ["n", *heads], differences)
    console.print("Documented limits: 1e-5 for fast, 1e-9 for exact.\n", style="dim")
    if report.figures:
        _print_figures(console, report.figures, dash)


def _print_machine(console: Console, report: Report) -> None:
    machine = report.machine
    console.print(
        f"{machine.cpu}, {machine.processors} processors, {machine.instruction_set} kernels, {machine.system}"
    )
    console.print(", ".join(f"{name} {version}" for name, version in machine.versions.items()))
    if report.busy is not None and report.busy > _BUSY:
        text = (
            f"Other processes kept {report.busy:.1f} processors busy: times may be too high and ratios wrong."
        )
        console.print(text, style="yellow")
    console.print()


def _print_notes(console: Console, report: Report, dash: str) -> None:
    notes = [f"{ARGSORT} only sorts."]
    if SOFT_RANK in report.methods:
        notes.append(f"{SOFT_RANK} computes soft ranks, not an expected gain.")
    if any(t.seconds is None for t in report.timings):
        notes.append(f"{dash} not measured: too slow, or over {MEMORY / 1e9:.0f} GB of memory.")
    if report.absent:
        by_reason: dict[str, list[str]] = {}
        for a in report.absent:
            by_reason.setdefault(a.reason, []).append(a.name)
        left = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
        notes.append(f"Skipped: {'; '.join(left)}.")
    console.print(" ".join(notes), style="dim", markup=False)
    for a in report.failed:
        console.print(f"{a.name}: {a.reason}", style="red", markup=False)
    console.print()


def _print_table(console: Console, title: str, heads: list[str], rows: list[list[str]]) -> None:
    console.print(title, style="bold")
    print_columns(console, heads, rows)


def _print_figures(console: Console, figures: Sequence[Figure], dash: str) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("target", min_width=20)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("required", justify="right", no_wrap=True)
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
    console.print("Performance targets", style="bold")
    console.print(table)
    console.print()
    by_note: dict[str, list[str]] = {}
    for f in figures:
        if f.note:
            by_note.setdefault(f.note, []).append(f.name)
    for note, names in by_note.items():
        subject, _, reason = note.partition("; ") if note.startswith("not measured; ") else ("", "", note)
        # A note on targets that were not measured does not name them, since the table above marks them.
        text = f"{subject.capitalize() or '; '.join(names)}: {reason}."
        console.print(text, style="dim", markup=False)
    reached, measured_count = (
        sum(f.reached is True for f in figures),
        sum(f.reached is not None for f in figures),
    )
    disturbed = [
        f"{f.name} ({f.busy:.1f} processors)" for f in figures if f.reached is False and (f.busy or 0) > _BUSY
    ]
    if disturbed:
        text = f"Other processes disturbed these targets; measure them again: {'; '.join(disturbed)}."
        console.print(text, style="yellow", markup=False, soft_wrap=not console.is_terminal)
    console.print(
        "a vs b: how many times faster a is than b. a / b: time of a divided by time of b.", style="dim"
    )
    console.print(f"{reached} of {measured_count} measured targets are reached.")


def _number(value: float | None, dash: str, unit: float = 1.0) -> str:
    """Format `value` times `unit` with two or more significant digits, or return `dash` if it is None."""
    if value is None:
        return dash
    x = value * unit
    if x >= 100 or x == 0:
        return f"{x:,.0f}"
    return f"{x:.1f}" if x >= 1 else f"{x:.2f}" if x >= 0.1 else f"{x:.2g}"


def _power(value: float | None, dash: str) -> str:
    return dash if value is None else "0" if value == 0 else f"{value:.0e}"
