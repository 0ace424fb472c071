"""`sinkprop evaluate --save-reference` and `--against`: a model on new queries beside its reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from sinkprop.cli.evaluation.options import System
from sinkprop.cli.evaluation.systems import RankedFile
from sinkprop.cli.options import data_path, output_option
from sinkprop.cli.output import console, counted, notes_on_stderr, say_written
from sinkprop.cli.reading import Reading, check_missing, file_name, over_blocks, with_features_of
from sinkprop.common.console import print_columns, say
from sinkprop.drift.quantities import FEATURES, GROUPS, QUALITY, SCORES

if TYPE_CHECKING:
    from rich.console import Console

    from sinkprop.drift import Change, Drift
    from sinkprop.metrics.evaluation import Evaluation

__all__ = ["DRIFTED", "check_drift_options", "drift_options", "drifted", "print_drift", "write_reference"]

F = TypeVar("F", bound=Callable[..., Any])

DRIFTED = 3  # exit status with --fail-on-drift, if a difference is beyond chance
_NEEDS_AGAINST = ("unlabeled", "other_model", "fail_on_drift")
_NOT_AGAINST = (
    *("save_reference", "feature", "run", "metrics", "convention", "empty", "ties", "threshold", "max_grade"),
    *("per_query", "calibration", "plot", "csv_file"),
)
_MOST_FEATURES = 20  # changed features that are printed


def drift_options(command: F) -> F:
    """Add the options of drift to a command, which receives them as keyword arguments."""
    options = (
        output_option(
            "--save-reference",
            help="With --model or --scores: write the metrics, scores, calibration and features of DATA to a "
            "JSON file, for --against.",
        ),
        click.option(
            "--against",
            type=data_path(stdin=False),
            metavar="FILE",
            help="Compare with the reference in a file of --save-reference, and mark differences beyond "
            "chance. The metrics and their convention are those of the reference.",
        ),
        click.option(
            "--unlabeled",
            is_flag=True,
            help="With --against: DATA has no labels; compare scores and features only.",
        ),
        click.option(
            "--other-model",
            is_flag=True,
            help="With --against: accept a reference that another model made.",
        ),
        click.option(
            "--fail-on-drift",
            is_flag=True,
            help=f"With --against: exit with status {DRIFTED} if a difference is beyond chance.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def check_drift_options() -> None:
    """Raise a usage error if options of the running command do not go together."""
    context = click.get_current_context()
    given = {
        name
        for name in context.params
        if context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
    }
    against, saved = "against" in given, "save_reference" in given
    if "clicks" in given and (against or saved):
        raise click.UsageError("--against and --save-reference do not apply to --clicks.")
    for name in (*_NEEDS_AGAINST, *_NOT_AGAINST):
        option = "--csv" if name == "csv_file" else f"--{name.replace('_', '-')}"
        if name in given and name in _NEEDS_AGAINST and not against:
            raise click.UsageError(f"{option} needs --against.")
        if name in given and name in _NOT_AGAINST and against:
            raise click.UsageError(f"{option} does not apply with --against.")
    if saved and not given & {"model", "scores"}:
        raise click.UsageError("--save-reference needs --model or --scores.")


def write_reference(path: Path, ranked: RankedFile, system: System, evaluation: Evaluation) -> None:
    """Write the reference of a model, or of scores, to a file.

    evaluation  Metrics of the ranking of the file by the system.
    """
    from sinkprop.drift.reference import reference_of

    scorer, blocks = _scorer(ranked, system)
    with notes_on_stderr():
        found = reference_of(
            scorer,
            ranked.queries,
            blocks=blocks,
            metrics=evaluation.metrics,
            convention=evaluation.convention,
        )
    found.save(path)


def drifted(
    data: Path, reading: Reading, against: Path, system: System, *, unlabeled: bool, other_model: bool
) -> Drift:
    """Compare a model, or scores, on the queries of a file with the reference in the file `against`."""
    from sinkprop.drift import Reference, compare

    reference = Reference.load(against)
    ranked = RankedFile.read(data, reading, [system], labeled=not unlabeled)
    scorer, blocks = _scorer(ranked, system)
    try:
        with notes_on_stderr():
            return compare(
                reference,
                scorer,
                ranked.queries,
                labeled=not unlabeled,
                other_model=other_model,
                blocks=blocks,
            )
    except ValueError as error:
        raise ValueError(f"{against}: {_with_options(str(error))}") from None


def _with_options(message: str) -> str:
    for words, option in {
        "pass other_model=True": "give --other-model",
        "make a new reference": "make one with --save-reference",
    }.items():
        message = message.replace(words, option)
    return message


def _scorer(ranked: RankedFile, system: System) -> tuple[Any, Any]:
    """Return a model or the scores of all documents, and a function that applies another one to all blocks.

    The blocks have the features of the model.
    """
    ranker = ranked.rankers.get(system)
    if ranker is None:
        return ranked.scores(system), lambda function: over_blocks(ranked.queries, "scoring", function)
    check_missing(ranker, ranked.queries)
    names = {"model_name": file_name(Path(system.value)), "data_name": ranked.name}
    return ranker, lambda function: over_blocks(
        ranked.queries, "scoring", lambda block: function(with_features_of(ranker, block, **names))
    )


def print_drift(found: Drift, name: str, against: Path, wrote: list[Path | None]) -> None:
    """Print the changes: every metric, calibration and score, and the features beyond chance."""
    out, then = console(), found.reference
    sides = [
        f"{counted(documents, 'row', 'rows')} of {counted(queries, 'query', 'queries')}"
        for queries, documents in ((then.n_queries, then.n_documents), (found.n_queries, found.n_documents))
    ]
    say(out, f"{name}, {sides[1]}, against {against}, {sides[0]}", "bold")
    if not found.same_model:
        say(out, "The reference was made by another model.")
    if not found.labeled:
        say(out, "Without labels: no metrics and no calibration.")
    out.print()
    groups = {group: [c for c in found.changes if c.group == group] for group in GROUPS}
    features = groups[FEATURES]
    marked = sorted((c for c in features if c.beyond_chance), key=lambda change: change.adjusted)
    _print_changes(out, groups[QUALITY], "mean over queries")
    _print_changes(out, groups[SCORES], "scores")
    _print_changes(out, marked[:_MOST_FEATURES], "features beyond chance")
    if len(marked) > _MOST_FEATURES:
        say(out, f"{len(marked) - _MOST_FEATURES} more are in the output of --json.")
    n_tested = sum(not math.isnan(change.p_value) for change in features)
    if features:
        say(out, f"{len(marked)} of {counted(n_tested, 'number', 'numbers')} of the features are marked.")
    n = len(found.beyond_chance)
    marks = counted(n, "difference is", "differences are") if n else "No difference is"
    least = f"{found.level:.0%}"
    say(out, f"{marks} beyond chance (*). Without any change, at most {least} of comparisons have a mark.")
    title = f"{then.convention.title()}. " if found.labeled else ""
    say(
        out,
        f"{title}Tests over queries: the t-test for metrics, labels and calibration, the rank-sum test "
        "for scores and features; p is corrected for the number of tests by Holm's method. An interval is "
        "for one difference alone.",
        "dim",
    )
    say_written(out, *wrote)


def _print_changes(out: Console, changes: list[Change], title: str) -> None:
    if not changes:
        return
    rows = [
        [
            change.name,
            *(_short(value) for value in (change.then, change.now, change.difference)),
            f"{_short(change.low)} to {_short(change.high)}",
            _p_value(change.adjusted),
            "*" if change.beyond_chance else "",
        ]
        for change in changes
    ]
    print_columns(out, [title, "then", "now", "difference", "95 % interval", "p", ""], rows)


def _short(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.3g}"


def _p_value(p: float) -> str:
    if math.isnan(p):
        return "-"
    return f"{p:.3f}" if p >= 0.001 else "<0.001"
