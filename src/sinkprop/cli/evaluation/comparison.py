"""Several systems of `sinkprop evaluate`, compared with the first: tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkprop.cli.evaluation.options import System
from sinkprop.cli.evaluation.results import print_heading
from sinkprop.cli.evaluation.systems import RankedFile
from sinkprop.cli.output import console, print_facts, say_written
from sinkprop.common.console import print_columns, say

if TYPE_CHECKING:
    from rich.console import Console

    from sinkprop.experiment.systems import QueryDifference, ScoreComparison

__all__ = ["compared", "comparison_csv", "comparison_record", "print_comparison"]

_SHOWN = 3  # number of queries won and lost that are printed


def compared(
    ranked: RankedFile,
    systems: Sequence[System],
    *,
    metrics: str,
    convention: str | None = None,
    **options: Any,
) -> ScoreComparison:
    """Compare systems on a file with the first of them. `options` are arguments of `sinkprop.evaluate`."""
    from sinkprop.experiment.systems import ScoreComparison

    convention = convention or "standard"
    found = {s.name: ranked.evaluation(s, metrics, convention, **options) for s in systems}
    return ScoreComparison(found, systems[0].name)


def comparison_record(
    ranked: RankedFile, systems: Sequence[System], found: ScoreComparison, *, per_query: bool
) -> dict[str, Any]:
    """The comparison as plain data for JSON."""
    record = found.record(per_query=per_query)
    for own, system in zip(record["systems"], systems, strict=True):
        own["ranked_by"] = system.words
    return {"data": ranked.name, **record}


def comparison_csv(found: ScoreComparison) -> str:
    """CSV with one row per query and system. A field is empty if the query is left out of the mean."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["query", "system", *found.metrics])
    columns = {name: [values.tolist() for values in own.values()] for name, own in found.per_query.items()}
    for i, query in enumerate(found.evaluations[found.baseline].queries.tolist()):
        for name, own in columns.items():
            writer.writerow([query, name, *("" if np.isnan(v[i]) else repr(v[i]) for v in own)])
    return text.getvalue()


def print_comparison(
    ranked: RankedFile,
    systems: Sequence[System],
    found: ScoreComparison,
    *,
    per_query: bool,
    wrote: Sequence[Path | None],
) -> None:
    """Print one table per metric, the queries that are won and lost by most, and what the tables mean."""
    from sinkprop.experiment.tables import main_metric

    out = console()
    unicode = out.encoding.lower().startswith("utf")
    print_heading(out, ranked.name, ranked.queries)
    print_facts(out, {system.name: system.words for system in systems})
    out.print()
    for metric in found.metrics:
        heads, *rows = found.rows(metric, unicode=unicode)
        print_columns(out, heads, rows)
        if per_query:
            _print_queries(out, found, metric)
    main = main_metric(found.metrics)
    for name in found.others:
        for word, queries in (("wins", found.largest_wins), ("losses", found.largest_losses)):
            shown = _named(queries(name, main, _SHOWN))
            say(out, f"Largest {word} of {name} in {main}: {shown}.")
    for text in found.notes(unicode=unicode):
        say(out, text, "dim")
    say_written(out, *wrote)


def _named(queries: Sequence[QueryDifference]) -> str:
    return ", ".join(f"{q.query} ({q.difference:+.4f})" for q in queries) or "none"


def _print_queries(out: Console, found: ScoreComparison, metric: str) -> None:
    columns = [own[metric].tolist() for own in found.per_query.values()]
    rows = [
        [str(query), *("" if np.isnan(value) else f"{value:.4f}" for value in values)]
        for query, *values in zip(found.evaluations[found.baseline].queries.tolist(), *columns, strict=True)
    ]
    print_columns(out, [f"query, {metric}", *found.systems], rows)
