"""A comparison as tables for a terminal or a pipe."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from sinkprop.common.console import print_columns
from sinkprop.experiment.published import CREDIT, OUTLIERS, published_rows
from sinkprop.experiment.results import Comparison
from sinkprop.metrics.conventions import listed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["print_comparison"]

PUBLISHED_METRICS = ("ndcg@3", "ndcg@5", "ndcg@10", "map")
_MAIN = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "map")  # metrics whose tests and intervals are printed
_PUBLISHED_FOLDS = 5


def print_comparison(
    console: Console,
    comparison: Comparison,
    *,
    per_fold: bool = False,
    published: Sequence[str] | None = None,
) -> None:
    """Print the tables of each data set: means, means by fold, confidence intervals, tests, published means.

    per_fold   Whether to print the means by fold of every metric, not only of the main one.
    published  Names of published methods to print; None prints all, an empty sequence none.
    """
    page = _Page(console)
    for dataset in comparison.datasets:
        _print_data_set(page, comparison, dataset, per_fold=per_fold, published=published)


def main_metric(metrics: Sequence[str]) -> str:
    """Main metric of a comparison: NDCG@10 if there is one, else the last NDCG, else the first metric."""
    ndcg = [metric for metric in metrics if re.fullmatch(r"ndcg(\(.*\))?(@\d+)?", metric)]
    return "ndcg@10" if "ndcg@10" in ndcg else (ndcg[-1] if ndcg else metrics[0])


class _Page:
    """A console, and the symbols for its tables: Unicode if the console's encoding is UTF, else ASCII.

    dash   Symbol for a number that does not exist.
    marks  {`PairedTest.verdict`: symbol after the number}; the keys are 1 (better), -1 (worse) and 0.
    here   Symbol before the name of a method that was run, in the table with published methods.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        unicode = console.encoding.lower().startswith("utf")
        self.dash = "\N{EN DASH}" if unicode else "-"
        self.marks = {1: "▲", -1: "▼", 0: " "} if unicode else {1: "+", -1: "-", 0: " "}
        self.here = "▸ " if unicode else "> "

    def number(self, value: float | None, decimals: int = 4) -> str:
        return self.dash if value is None or math.isnan(value) else f"{value:.{decimals}f}"

    def title(self, text: str) -> None:
        self.console.print(text, style="bold", markup=False, soft_wrap=not self.console.is_terminal)

    def note(self, text: str) -> None:
        self.console.print(text, style="dim", markup=False, soft_wrap=not self.console.is_terminal)


def _print_data_set(
    page: _Page, comparison: Comparison, dataset: str, *, per_fold: bool, published: Sequence[str] | None
) -> None:
    folds = comparison.folds(dataset)
    count = f"{len(folds)} folds" if len(folds) > 1 else "1 fold"
    n = comparison.n_queries(dataset)
    page.title(f"{dataset}: test means, {count}, {n} {'query' if n == 1 else 'queries'}")
    _print_means(page, comparison, dataset)
    page.note(comparison.describe(dataset))
    if len(comparison.methods) > 1:
        page.note(
            f"{page.marks[1]} better, {page.marks[-1]} worse than {comparison.against}: p < .05 by the "
            "randomization test, Holm-corrected. fit s: seconds per fit, averaged over the folds."
        )
    for text in _budgets(comparison, dataset):
        page.note(text)
    page.console.print()
    if len(folds) > 1:
        for metric in comparison.metrics if per_fold else (main_metric(comparison.metrics),):
            _print_folds(page, comparison, dataset, metric)
    shown = [metric for metric in _MAIN if metric in comparison.metrics] or [main_metric(comparison.metrics)]
    _print_intervals(page, comparison, dataset, shown)
    if len(comparison.methods) > 1:
        _print_tests(page, comparison, dataset, shown)
    _print_published(page, comparison, dataset, published)
    _print_warnings(page, comparison, dataset)


def _print_means(page: _Page, comparison: Comparison, dataset: str) -> None:
    from rich.text import Text

    means = comparison.means(dataset)
    verdicts = {(t.method, t.metric): t.verdict for t in comparison.tests(dataset)}
    best = {k: max(round(means[m][k], 4) for m in comparison.methods) for k in comparison.metrics}
    several = len(comparison.methods) > 1
    rows: list[list[str | Text]] = []
    for method in comparison.methods:
        row: list[str | Text] = [method]
        for k in comparison.metrics:
            mean, verdict = means[method][k], verdicts.get((method, k), 0)
            cell = Text(page.number(mean), style="bold" if several and round(mean, 4) == best[k] else "")
            if several:
                cell.append(page.marks[verdict], style={1: "green", -1: "red", 0: ""}[verdict])
            row.append(cell)
        rows.append([*row, page.number(comparison.fit_seconds(dataset, method), 2)])
    heads = [metric + (" " if several else "") for metric in comparison.metrics]
    print_columns(page.console, ["method", *heads, "fit s"], rows)


def _budgets(comparison: Comparison, dataset: str) -> list[str]:
    """Sentences that list the hyperparameter values which methods with trees tried.

    Methods that tried the same values are named together in one sentence.
    """
    alike: dict[str, list[str]] = {}
    for method in comparison.methods:
        summary = comparison.result(dataset, method, comparison.folds(dataset)[0]).summary
        tried = summary.get("tried", {})
        if "trees" in tried:
            values = "; ".join(f"{name} {_spanned(own)}" for name, own in tried.items())
            alike.setdefault(f"{summary['candidates']} candidates: {values}.", []).append(method)
    return [
        f"{listed(methods)} chose{' each' if len(methods) > 1 else ''} from {budget}"
        for budget, methods in alike.items()
    ]


def _spanned(values: Sequence[float]) -> str:
    """Return the values as text. More than three evenly spaced values become "first, second, ..., last"."""
    steps = {b - a for a, b in pairwise(values)}
    if len(values) > 3 and len(steps) == 1:
        return f"{values[0]:g}, {values[1]:g}, ..., {values[-1]:g}"
    return ", ".join(f"{value:g}" for value in values)


def _print_folds(page: _Page, comparison: Comparison, dataset: str, metric: str) -> None:
    page.title(f"{dataset}: {metric} by fold")
    rows = []
    for method in comparison.methods:
        means = comparison.fold_means(dataset, method, metric)
        numbers = [*means.values(), comparison.mean(dataset, method, metric)]
        rows.append([method, *(page.number(value) for value in numbers)])
    print_columns(page.console, ["method", *comparison.folds(dataset), "mean"], rows)


def _print_intervals(page: _Page, comparison: Comparison, dataset: str, metrics: Sequence[str]) -> None:
    intervals = comparison.intervals(dataset)
    page.title(f"{dataset}: 95 % intervals of the means, bootstrap over queries")
    rows = [
        [method, *(f"{low:.4f} {page.dash} {high:.4f}" for low, high in own)]
        for method in comparison.methods
        if (own := [intervals[method][metric] for metric in metrics])
    ]
    print_columns(page.console, ["method", *metrics], rows)


def _print_tests(page: _Page, comparison: Comparison, dataset: str, metrics: Sequence[str]) -> None:
    from rich.text import Text

    tests = {(t.method, t.metric): t for t in comparison.tests(dataset)}
    others = [method for method in comparison.methods if method != comparison.against]
    page.title(f"{dataset}: differences to {comparison.against}, paired over queries")
    rows: list[list[str | Text]] = []
    for method in others:
        for metric in metrics:
            t = tests[method, metric]
            low, high = t.interval
            cell = Text(f"{t.difference:+.4f}").append(
                page.marks[t.verdict], style={1: "green", -1: "red", 0: ""}[t.verdict]
            )
            ps = (_p(page, p) for p in (t.t_test_holm, t.wilcoxon_holm, t.randomization_holm))
            rows.append([f"{method}, {metric}", cell, f"{low:+.4f} to {high:+.4f}", *ps])
    print_columns(
        page.console,
        ["method, metric", "difference ", "95 % interval", "t-test", "Wilcoxon", "random."],
        rows,
    )
    family = f", Holm-corrected for {len(others)} comparisons" if len(others) > 1 else ""
    page.note(
        "Two-sided p-values of the paired t-test, Wilcoxon's signed-rank test, and the randomization test "
        f"with 10,000 samples{family}."
    )
    page.console.print()


def _p(page: _Page, p: float) -> str:
    return page.dash if math.isnan(p) else "< .0001" if p < 0.00005 else f"{p:.4f}"


def _print_published(page: _Page, comparison: Comparison, dataset: str, names: Sequence[str] | None) -> None:
    from rich.text import Text

    known = published_rows(dataset)
    if not known or (names is not None and not names):
        return
    if comparison.convention != "letor":
        page.note(f"Published rows are left out: they use the convention letor, not {comparison.convention}.")
        page.console.print()
        return
    metrics = [metric for metric in PUBLISHED_METRICS if metric in comparison.metrics]
    if not metrics:
        return
    wanted = None if names is None else {name.lower() for name in names}
    by = "ndcg@10" if "ndcg@10" in metrics else metrics[-1]
    lines: list[tuple[float, bool, list[str | Text]]] = []
    for row in known:
        if (wanted is None or row.method.lower() in wanted) and any(
            metric in row.means for metric in metrics
        ):
            values = [row.means.get(metric) for metric in metrics]
            cells: list[str | Text] = [f"  {row.method}", *(page.number(value) for value in values)]
            lines.append((row.means.get(by, -1.0), False, cells))
    means = comparison.means(dataset)
    for method in comparison.methods:
        own = [f"{page.here}{method}", *(page.number(means[method][metric]) for metric in metrics)]
        lines.append((means[method][by], True, [Text(text, style="bold cyan") for text in own]))
    lines.sort(key=lambda line: (-line[0], not line[1]))
    page.title(f"{dataset}: compared with published means, sorted by {by}")
    print_columns(page.console, ["method", *metrics], [cells for _, _, cells in lines])
    shown = {str(cells[0]).strip() for _, ours, cells in lines if not ours}
    notes = [f"{page.here.strip()} computed here. The others were {CREDIT}."]
    outliers = [name for name in OUTLIERS if name in shown]
    if outliers:
        notes.append(f"Nobody has reproduced {listed(outliers)}.")
    if len(comparison.folds(dataset)) != _PUBLISHED_FOLDS:
        notes.append(f"They are means of {_PUBLISHED_FOLDS} folds, not of {len(comparison.folds(dataset))}.")
    page.note(" ".join(notes))
    page.console.print()


def _print_warnings(page: _Page, comparison: Comparison, dataset: str) -> None:
    by_text: dict[tuple[str, str], list[str]] = {}
    for r in comparison.results:
        if r.dataset == dataset:
            for text in r.warnings:
                by_text.setdefault((r.method, text), []).append(r.fold)
    for (method, text), folds in by_text.items():
        page.console.print(
            f"{method} warned on {listed(folds)}: {text}",
            style="yellow",
            markup=False,
            soft_wrap=not page.console.is_terminal,
        )
    if by_text:
        page.console.print()
