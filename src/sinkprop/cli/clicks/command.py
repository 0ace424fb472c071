"""The commands `sinkprop clicks`: `bias` estimates position bias from a click log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from sinkprop.cli.clicks.bias_files import (
    FEATURES,
    KINDS,
    METHODS,
    Fit,
    bias_record,
    estimated_by,
    fit_of,
    kind_of,
)
from sinkprop.cli.clicks.logs import (
    ClickReading,
    chosen_sessions,
    log_size,
    read_log,
    reworded,
    say_without,
    sizes,
)
from sinkprop.cli.options import (
    LogCommand,
    check_plot,
    check_saved_file,
    click_options,
    data_path,
    json_option,
    keep_apart,
    output_option,
)
from sinkprop.cli.output import (
    as_json,
    console,
    counted,
    is_stdout,
    print_facts,
    say_written,
    working,
    write_output,
)
from sinkprop.cli.reading import Reading, file_name, say_features
from sinkprop.common.console import print_columns, say

if TYPE_CHECKING:
    from sinkprop.clicks import ClickLog, ClickModel
    from sinkprop.common.types import Floats

__all__ = ["clicks_command"]


@click.group("clicks", invoke_without_command=True, short_help="Estimate position bias from a click log.")
@click.pass_context
def clicks_command(context: click.Context) -> None:
    """Learn from a click log: which documents were shown where, and which of them were clicked.

    \b
    sinkprop clicks bias log.parquet -o bias.json
        estimate how the position of a document changes its clicks
    sinkprop train --clicks log.parquet --bias bias.json --model m.model
        train a ranker on the clicks, without this position bias
    sinkprop evaluate --clicks later.parquet --bias bias.json --model m.model
        estimate what the ranker would have earned

    A click log is a Parquet or CSV file, or a folder of Parquet files, with one row per document shown,
    clicked or not. Its columns are query, doc, position (1 for the top), clicked (0 or 1), and the features
    of the documents. A column session has an id for every ranking shown, and a column policy the name of the
    ranker that made it. If the columns have other names, give these with --query-column and so on.
    """  # noqa: D301
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@clicks_command.command(
    "bias", cls=LogCommand, short_help="Estimate how the position of a document changes its clicks."
)
@click.argument("log", type=data_path(folder=True))
@click.option(
    "--model-type",
    type=click.Choice(list(KINDS)),
    default="position",
    help="What users do. position: they click relevant documents at positions that they examine; trust: near "
    "the top they also click documents that are not relevant; cascade: they read from the top and leave with "
    "the first click; dependent: they read from the top and may leave after a click.  [default: position]",
)
@click.option(
    "--method",
    type=click.Choice(["auto", *METHODS]),
    default="auto",
    help="How to tell position from relevance. harvest: by documents that several rankers show at different "
    "positions; swaps: by documents that exchanged places with the one at position 1; documents: by "
    "documents shown at several positions for other reasons; linear, trees: by a prediction of the relevance "
    "from features, as well; auto: harvest if the log names several rankers, documents if it has "
    "propensities or no features, otherwise linear.  [default: auto]",
)
@click.option(
    "--bootstrap",
    type=click.IntRange(20),
    metavar="N",
    help="Estimate the intervals from N resampled logs instead of the likelihood; takes N times as long.",
)
@click.option(
    "--feature-columns",
    metavar="NAME,NAME,...",
    help="Columns with features; none reads no features.  [default: all other columns]",
)
@output_option(
    "-o",
    "--bias-file",
    check=check_saved_file,
    help="Write position bias as JSON, for --bias of `sinkprop train` and `sinkprop evaluate`.",
)
@output_option(
    "--plot", check=check_plot, help="Draw the examination of each position to a .png, .svg or .pdf file."
)
@json_option("the table and the model")
@click_options
def bias_command(
    log: Path,
    model_type: str,
    method: str,
    bootstrap: int | None,
    feature_columns: str | None,
    bias_file: Path | None,
    plot: Path | None,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Estimate how position changes the probability of a click.

    \b
    sinkprop clicks bias log.parquet
    sinkprop clicks bias log.parquet --plot bias.png -o bias.json
    sinkprop clicks bias log.csv --method documents --feature-columns none
    sinkprop clicks bias log.parquet --model-type trust --bootstrap 200
    sinkprop clicks bias log.parquet --json - | jq .examination

    LOG is a Parquet or CSV file with one row per document shown, or a folder of Parquet files. See
    `sinkprop clicks --help`.

    Users look at the top of a list more than at its end, so clicks depend on the position of a document as
    well as on its relevance. Examination is the probability that users look at a position, relative to
    position 1. To estimate it, the log must show documents at several positions, for reasons that have
    nothing to do with the user, or have features that tell how relevant they are. The output states what the
    estimate assumes.
    """  # noqa: D301
    _check_method(model_type, method)
    keep_apart(
        {"--bias-file": bias_file, "--plot": plot, "--json": json_file},
        {"LOG": log, "--documents": options["documents"]},
    )
    reading = ClickReading.taken_from(options)
    clicks = read_log(log, reading, feature_columns)
    clicks, without = chosen_sessions(clicks, reading)
    model, interval = _estimated(clicks, model_type, method, bootstrap)
    if estimated_by(model) in FEATURES and reading.documents is None:
        say_features(clicks.documents.feature_names, Reading(feature_columns=feature_columns))
    record = bias_record(model, clicks, interval)
    record |= {"log": file_name(log), **sizes(clicks), **without}
    record["cautions"] = _cautions(clicks, record)
    if plot is not None:
        from sinkprop.plot import examination_curve

        examination_curve(model, interval=interval).figure.savefig(plot)
    for path in (bias_file, json_file):
        if path is not None:
            write_output(path, as_json(record))
    if not is_stdout(json_file):
        _print(record, [bias_file, plot, json_file])


def _check_method(model_type: str, method: str) -> None:
    """Raise a usage error if the method is not one for the kind of model."""
    if method != "auto" and model_type != "position":
        raise click.UsageError(f"--method {method} does not apply to --model-type {model_type}.")


def _estimated(
    log: ClickLog, kind: str, method: str, bootstrap: int | None
) -> tuple[ClickModel, Floats | None]:
    """(the model, the interval of its examination, (2, K) or None)."""
    fit = fit_of(kind, method)
    with working("estimating position bias"), reworded():
        model = fit(log)
    interval = model.interval
    if bootstrap is not None:
        interval = _resampled(log, model, fit, bootstrap)
    return model, interval


def _resampled(log: ClickLog, model: ClickModel, fit: Fit, n: int) -> Floats:
    """Interval of the examination from n resampled logs, by the method of the model."""
    from sinkprop.clicks.bootstrap import examination_interval

    method = estimated_by(model)
    if method is not None:
        fit = fit_of(kind_of(model), method)
    with working(f"resampling the log {n} times"), reworded():
        by: Any = "queries" if method in FEATURES else "sessions"
        return examination_interval(fit, log, n=n, by=by, seed=0)


_ASSUMES = {
    "harvest": "sessions were divided between the rankers at random, as in an A/B test",
    "swaps": "documents were exchanged at random",
    "documents": "documents changed their positions for reasons that have nothing to do with the user",
    "linear": "the features tell as much about the relevance as the rankers of the log knew",
    "trees": "the features tell as much about the relevance as the rankers of the log knew",
    "trust": "documents changed their positions for reasons that have nothing to do with the user",
    "cascade": "users read from the top and leave with their first click",
    "dependent": "users read from the top and leave only after a click",
}

_MANY, _WIDE = 200, 0.5


def _cautions(log: ClickLog, record: dict[str, Any]) -> list[str]:
    """Reasons to distrust an estimate that can be seen in the log."""
    found = []
    kind, method = record["model"], record["method"]
    if record["without_clicks"] == "drop" or not record["sessions_without_clicks"]:
        found.append(
            "There are no sessions without a click. This makes all click rates too high, and those of some "
            "positions more than others."
        )
    most = np.add.reduceat(log.clicked, log.offsets[:-1], dtype=np.int64).max()
    if most == 1 and kind != "cascade" and log.n_clicks >= _MANY:
        found.append(
            "No session has two clicks. If users leave with their first click, or the log keeps only this "
            "one, use --model-type cascade."
        )
    if method in FEATURES:
        found.append(_of_features(log))
    if record["interval"] is None:
        found.append("The estimate has no interval. Give --bootstrap 200 to estimate one.")
        return found
    low, high = np.asarray(record["interval"])
    wide = np.flatnonzero(high - low > _WIDE * np.asarray(record["examination"])) + 1
    if len(wide):
        which = (
            f"position {wide[0]}" if len(wide) == 1 else f"{len(wide)} positions, from position {wide[0]},"
        )
        found.append(f"The interval of {which} is wider than half the estimate. Log more sessions.")
    return found


def _of_features(log: ClickLog) -> str:
    counts = log.counts
    clicked = np.bincount(counts.rows, counts.clicks) > 0
    several = (np.bincount(counts.rows) > 1) & clicked
    n = int(clicked.sum())
    return (
        f"{several.sum():,} of {counted(n, 'clicked document', 'clicked documents')} were shown at several "
        "positions. The fewer these are, the more the estimate depends on the features, and the interval "
        "does not include the error that this causes."
    )


_LEGEND = {
    "examination": "Examination: probability that users look at a position, relative to position 1.",
    "intercept": (
        "P(click) = examination * relevance + intercept, where the relevance of a document is the "
        "probability of a click on it at position 1."
    ),
}


def _print(record: dict[str, Any], wrote: list[Path | None]) -> None:
    out = console()
    say(out, f"{record['log']}, {log_size(record)}", "bold")
    out.print()
    print_facts(
        out,
        {
            "Model": record["description"],
            "Assumption": _ASSUMES[record["method"] or record["model"]],
            "Sessions": say_without(record),
        },
    )
    out.print()
    positions = range(1, len(record["examination"]) + 1)
    heads = ["position", "impressions", "click rate", "examination"]
    columns = [
        [f"{k}" for k in positions],
        [f"{n:,}" for n in record["shown"]],
        [f"{rate:.4f}" for rate in record["click_rate"]],
        [f"{value:.3f}" for value in record["examination"]],
    ]
    if record["interval"] is not None:
        heads.append("95% interval")
        bounds = [f"{low:.3f} to {high:.3f}" for low, high in zip(*record["interval"], strict=True)]
        columns.append(["", *bounds[1:]])  # examination is relative to position 1
    if "intercept" in record:
        heads.append("intercept")
        columns.append([f"{value:.4f}" for value in record["intercept"]])
    print_columns(out, heads, list(zip(*columns, strict=True)))
    say(out, _LEGEND["intercept" if "intercept" in record else "examination"], "dim")
    for caution in record["cautions"]:
        say(out, f"Caution: {caution}")
    say_written(out, *wrote)
