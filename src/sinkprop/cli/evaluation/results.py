"""Results of an evaluation as tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkprop.cli.output import console, counted, say_written
from sinkprop.common.console import print_columns, say
from sinkprop.data.queries import Queries
from sinkprop.metrics.evaluation import Evaluation

if TYPE_CHECKING:
    from rich.console import Console

    from sinkprop.calibration import CalibrationReport
    from sinkprop.store import StoredQueries

__all__ = [
    "Evaluated",
    "calibration_csv",
    "evaluation_csv",
    "evaluation_record",
    "print_evaluation",
    "print_heading",
]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The metrics of a ranking of a file's documents.

    result   Metrics of each query and their means.
    queries  Queries of the file.
    name     Name of the file.
    by       What the documents are ranked by, such as "the model m.model".
    calibration  Check of the model's probabilities, if it was asked for.
    """

    result: Evaluation
    queries: Queries | StoredQueries
    name: str
    by: str
    calibration: CalibrationReport | None = None


def evaluation_record(found: Evaluated, *, per_query: bool) -> dict[str, Any]:
    result = found.result
    record: dict[str, Any] = {
        "data": found.name,
        "ranked_by": found.by,
        "convention": result.convention.name,
        "description": result.definition(),
        "queries": result.n_queries,
        "metrics": dict(result),
    }
    if found.calibration is not None:
        record["calibration"] = found.calibration.record()
    if per_query:
        record["per_query"] = [
            {"query": query, **{name: values[i] for name, values in result.per_query.items()}}
            for i, query in enumerate(result.queries.tolist())
        ]
    return record


def evaluation_csv(result: Evaluation) -> str:
    """Return CSV with one row per query. A field is empty if the query is left out of the metric's mean."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["query", *result.per_query])
    columns = [values.tolist() for values in result.per_query.values()]
    for query, *values in zip(result.queries.tolist(), *columns, strict=True):
        writer.writerow([query, *("" if np.isnan(value) else repr(value) for value in values)])
    return text.getvalue()


def calibration_csv(report: CalibrationReport) -> str:
    """Return CSV with the log score of the ranks and the calibration error of each event."""
    scores, text = report.log_scores, io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["measure", "before", "after", "uniform"])
    writer.writerow(["log score", *map(repr, (scores.before, scores.after, scores.uniform))])
    for event, *sides in report.events():
        errors = ("" if side is None else repr(side.error) for side in sides)
        writer.writerow([f"calibration error, {event}", *errors, ""])
    return text.getvalue()


def print_evaluation(found: Evaluated, *, per_query: bool, wrote: list[Path | None]) -> None:
    out, result, queries = console(), found.result, found.queries
    print_heading(out, found.name, queries, f", ranked by {found.by}")
    if per_query:
        rows = [
            [str(query), *("" if np.isnan(v[i]) else f"{v[i]:.4f}" for v in result.per_query.values())]
            for i, query in enumerate(result.queries.tolist())
        ]
        rows.append(["mean", *(f"{mean:.4f}" for mean in result.values())])
        print_columns(out, ["query", *result], rows, last_style="bold")
    else:
        print_columns(out, ["metric", "mean"], [[name, f"{mean:.4f}"] for name, mean in result.items()])
    say(out, result.definition(), "dim")
    if found.calibration is not None:
        _print_calibration(out, found.calibration)
    say_written(out, *wrote)


def print_heading(out: Console, name: str, queries: Queries | StoredQueries, more: str = "") -> None:
    """Print the name and the size of a file, and an empty line."""
    size = f"{counted(len(queries), 'row', 'rows')}, {counted(queries.n_queries, 'query', 'queries')}"
    say(out, f"{name}, {size}{more}", "bold")
    out.print()


def _print_calibration(out: Console, report: CalibrationReport) -> None:
    out.print()
    on = f"{counted(report.n_calibrating, 'query', 'queries')}"
    say(out, f"Probabilities, before and after calibration on {on}", "bold")
    out.print()
    rows = [
        [event, *("" if side is None else f"{side.error:.4f}" for side in sides)]
        for event, *sides in report.events()
    ]
    print_columns(out, ["calibration error", "before", "after"], rows)
    scores = report.log_scores
    values = [f"{value:.4f}" for value in (scores.before, scores.after, scores.uniform)]
    print_columns(out, ["log score", "before", "after", "uniform"], [["ranks", *values]])
