"""The command `sinkprop evaluate`: metrics of a model, of scores, of a feature or of a TREC run."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from click.core import ParameterSource

from sinkprop.cli.drift import (
    DRIFTED,
    check_drift_options,
    drift_options,
    drifted,
    print_drift,
    write_reference,
)
from sinkprop.cli.options import (
    LogCommand,
    LogOption,
    bias_option,
    check_clicks,
    check_plot,
    click_method_option,
    click_options,
    clicks_option,
    clip_option,
    convention_option,
    data_options,
    data_path,
    json_option,
    keep_apart,
    metrics_option,
    output_option,
    without_log_options,
)
from sinkprop.cli.output import (
    as_json,
    complain,
    console,
    counted,
    is_stdout,
    notes_on_stderr,
    say_written,
    write_output,
)
from sinkprop.cli.reading import (
    Reading,
    check_missing,
    document_names,
    file_name,
    over_blocks,
    query_names,
    ranks_by_score,
    read_bytes,
    read_data,
    read_model_file,
    with_features_of,
)
from sinkprop.common.console import print_columns, say
from sinkprop.common.types import Floats
from sinkprop.data.queries import Queries
from sinkprop.metrics.conventions import CHOICES
from sinkprop.metrics.evaluation import Evaluation, evaluate_blocks
from sinkprop.metrics.evaluation import evaluate as evaluate_ranking
from sinkprop.metrics.measures import parse_metrics

if TYPE_CHECKING:
    from rich.console import Console

    from sinkprop.calibration import CalibrationReport
    from sinkprop.estimator.base import BaseRanker
    from sinkprop.store import StoredQueries

__all__ = ["Evaluated", "evaluate_command", "evaluated"]

METRICS = "ndcg@1,ndcg@3,ndcg@5,ndcg@10,map"
# {value of --click-method: argument of `compare_rankers`}
_CLICK_METHODS = {"dr": "doubly robust", "ips": "ips", "snips": "snips"}
_NOT_OF_CLICKS = (
    *("scores", "feature", "run", "convention", "empty", "ties", "threshold", "max_grade", "per_query"),
    *("calibration", "plot", "csv_file"),
)


def _check_metrics(context: click.Context, option: click.Parameter, text: str) -> str | None:
    """Return the metrics, None for the default of click logs; raise click.BadParameter if one is unknown."""
    clicks = context.params.get("clicks")
    if clicks and context.get_parameter_source("metrics") is ParameterSource.DEFAULT:
        return None
    try:
        if clicks:
            from sinkprop.cli.clicks.evaluation import check_click_metrics

            check_click_metrics(text)
        else:
            parse_metrics(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


@click.command(
    "evaluate", cls=LogCommand, short_help="Compute metrics of a model, scores, a feature or a TREC run."
)
@click.argument("data", type=data_path(stored=True))
@click.option(
    "--model", type=data_path(stdin=False), metavar="FILE", help="Rank by the scores of a saved model."
)
@click.option(
    "--scores",
    type=data_path(),
    metavar="FILE",
    help="Rank by scores from a file: one number per line, one line per row of DATA.",
)
@click.option(
    "--feature",
    metavar="ID",
    help="Rank by one feature: its id in LETOR text, or its column name in Parquet.",
)
@click.option("--run", type=data_path(), metavar="FILE", help="Rank by the scores in a TREC run file.")
@metrics_option(
    METRICS,
    check=_check_metrics,
    more="  With --clicks: dcg@k, ctr@k, mrr@k.  [default: dcg@10,ctr@10,mrr@10]",
)
@convention_option()
@click.option(
    "--empty",
    type=click.Choice(["0", "1", "skip"]),
    help="Value of a metric on a query without a relevant document; skip leaves the query out of the mean.  "
    "[default: set by --convention]",
)
@click.option(
    "--ties",
    type=click.Choice(CHOICES["ties"]),
    help="Order of documents with equal scores. file: as in DATA; average: the metric is averaged over all "
    "orders; worst: least relevant first; best: most relevant first.  [default: set by --convention]",
)
@click.option(
    "--threshold",
    type=float,
    metavar="X",
    help="Smallest label that counts as relevant.  [default: set by --convention]",
)
@click.option(
    "--max-grade",
    type=float,
    metavar="X",
    help="Highest possible label, for ERR.  [default: largest label in DATA]",
)
@click.option("--per-query", is_flag=True, help="Show the metrics of every query, not only their means.")
@click.option(
    "--calibration",
    is_flag=True,
    help="With --model: show how far the probabilities of the model are from frequencies in DATA, before and "
    "after its calibration.",
)
@output_option(
    "--plot",
    check=check_plot,
    help="With --calibration: draw reliability diagrams to a .png, .svg or .pdf file.",
)
@json_option("the means, and with --per-query the metrics of every query,")
@output_option(
    "--csv",
    "csv_file",
    stdout=True,
    help="Write one row per query and one column per metric as CSV; with --calibration, its table instead. "
    "With -, write only the CSV, to stdout.",
)
@drift_options
@data_options
@clicks_option("DATA")
@click.option(
    "--baseline",
    cls=LogOption,
    type=data_path(stdin=False),
    metavar="FILE",
    help="Saved model to compare with.  [default: the rankings in the log]",
)
@bias_option()
@click_method_option(
    _CLICK_METHODS,
    "Estimator. dr: doubly robust; ips: inverse propensity, in which documents that were never shown count "
    "as 0; snips: self-normalized ips.  [default: dr]",
)
@clip_option("none")
@click_options
def evaluate_command(
    data: Path,
    clicks: bool,
    model: Path | None,
    scores: Path | None,
    feature: str | None,
    run: Path | None,
    baseline: Path | None,
    bias: Path | None,
    click_method: str | None,
    clip: float | None,
    empty: str | None,
    per_query: bool,
    calibration: bool,
    plot: Path | None,
    json_file: Path | None,
    csv_file: Path | None,
    against: Path | None,
    unlabeled: bool,
    other_model: bool,
    fail_on_drift: bool,
    **options: Any,
) -> int | None:
    """Rank the documents in DATA and compute metrics of the ranking.

    \b
    sinkprop evaluate test.txt --model m.model
    sinkprop evaluate test.txt --scores scores.txt --metrics ndcg@1-10,map,mrr
    sinkprop evaluate test.txt --feature 25 --convention lightgbm
    sinkprop evaluate test.txt --run test.run --convention trec --ties average
    sinkprop evaluate test.txt --model m.model --per-query --csv queries.csv
    sinkprop evaluate test.txt --model m.model --json - | jq .metrics
    sinkprop evaluate test.queries --model m.model
    sinkprop evaluate test.txt --model m.model --calibration --plot curves.png
    sinkprop evaluate --clicks log.parquet --model m.model
    sinkprop evaluate --clicks log.parquet --model m.model --baseline old.model
    sinkprop evaluate test.txt --model m.model --save-reference reference.json
    sinkprop evaluate new.txt --model m.model --against reference.json

    DATA is LETOR or SVMlight text, Parquet, - for stdin, or a stored set made by `sinkprop convert`,
    which is read block by block. Give one of --model, --scores, --feature and --run to rank by.

    Programs that report a metric under the same name often compute different numbers: they differ in
    gain and discount, and in how they treat ties, queries with few documents, and queries without a
    relevant document. --convention selects the definition of one of these programs. The output states
    the definition that was used.

    A document of DATA that is missing from a TREC run ranks below the documents in the run. A document
    of the run that is missing from DATA is an error.

    A model is calibrated on the queries that chose it; DATA should have other queries. The calibration
    error is the mean distance between forecast probabilities and observed frequencies, in ten bins of
    forecasts. The log score of the ranks is in nats per rank; smaller is better.

    With --clicks, DATA is a click log, and the metrics of --model are estimated from clicks, per session,
    beside those of the rankings in the log or of --baseline. DCG is the sum of relevance / log2(rank + 1),
    without position bias; CTR is the number of clicks; and MRR is 1 / rank of the first click. The model
    must not have been trained on this log. See `sinkprop clicks --help`.

    With --against, the metrics, scores, calibration and features of DATA are compared with those in a file
    of --save-reference, and a difference beyond chance is marked. The tests are over queries and corrected
    for their number: without any change, a mark appears in at most 5 % of comparisons.
    """  # noqa: D301
    check_drift_options()
    check_clicks(clicks, _NOT_OF_CLICKS)
    if clicks and model is None:
        raise click.UsageError("--clicks needs --model, the model to evaluate.")
    by = {"model": model, "scores": scores, "feature": feature, "run": run}
    given = [f"--{name}" for name, value in by.items() if value is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        raise click.UsageError(f"give one of --model, --scores, --feature and --run to rank by; got {got}.")
    if calibration and model is None:
        raise click.UsageError("--calibration needs --model, a model that has a calibration.")
    if plot is not None and not calibration:
        raise click.UsageError("--plot needs --calibration.")
    files = {"--model": model, "--scores": scores, "--run": run, "--group": options["group"]}
    files |= {"--baseline": baseline, "--bias": bias, "--documents": options["documents"]}
    files["--against"] = against
    outputs = {"--json": json_file, "--csv": csv_file, "--plot": plot}
    keep_apart({**outputs, "--save-reference": options["save_reference"]}, {"DATA": data, **files})
    if str(data) == "-" and "-" in (str(scores), str(run)):
        raise click.UsageError("DATA and the scores cannot both be stdin.")
    reading = Reading.taken_from(options)
    if clicks and model is not None:
        from sinkprop.cli.clicks.evaluation import evaluated_on_clicks, print_values
        from sinkprop.cli.clicks.logs import ClickReading

        record = evaluated_on_clicks(
            data,
            model,
            ClickReading.taken_from(options),
            options["metrics"],
            feature_columns=reading.feature_columns,
            baseline=baseline,
            bias=bias,
            clip=clip or None,
            method=_CLICK_METHODS[click_method or "dr"],  # type: ignore[arg-type]
        )
        if json_file is not None:
            write_output(json_file, as_json(record))
        if not is_stdout(json_file):
            print_values(record, [json_file])
        return None
    if against is not None:
        name = file_name(data)
        drift = drifted(
            data,
            reading,
            against,
            model,
            lambda n: _read_scores(scores, n, name),  # type: ignore[arg-type]
            unlabeled=unlabeled,
            other_model=other_model,
        )
        if json_file is not None:
            write_output(json_file, as_json(drift.record()))
        if not is_stdout(json_file):
            print_drift(drift, name, against, [json_file])
        return DRIFTED if fail_on_drift and drift.beyond_chance else 0
    if is_stdout(json_file) and is_stdout(csv_file):
        raise click.UsageError("--json and --csv cannot both be stdout.")
    options["empty"] = int(empty) if empty in ("0", "1") else empty
    found = evaluated(data, reading, by, calibration=calibration, **without_log_options(options))
    report = found.calibration
    if plot is not None and report is not None:
        from sinkprop.plot import reliability_diagrams

        reliability_diagrams(report).figure.savefig(plot)
    if json_file is not None:
        write_output(json_file, as_json(_record(found, per_query=per_query)))
    if csv_file is not None:
        write_output(csv_file, _csv(found.result) if report is None else _calibration_csv(report))
    if not is_stdout(json_file) and not is_stdout(csv_file):
        _print(found, per_query=per_query, wrote=[plot, json_file, csv_file, options["save_reference"]])
    return None


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


def evaluated(
    data: Path,
    reading: Reading,
    by: Mapping[str, Any],
    *,
    metrics: str = METRICS,
    convention: str | None = None,
    calibration: bool = False,
    save_reference: Path | None = None,
    **options: Any,
) -> Evaluated:
    """Evaluate a ranking of the documents in a file and, with `calibration`, the model's probabilities.

    `by` says what to rank by. It has one key whose value is not None: "model", "scores" or "run" with the
    path of a file, or "feature" with the id or the name of a feature. `options` are keyword arguments of
    `sinkprop.evaluate`.
    """
    model, scores, run = by.get("model"), by.get("scores"), by.get("run")
    convention = convention or "standard"
    ranker = None if model is None else read_model_file(model)
    if calibration and ranker is not None and ranker.calibration_ is None:
        raise ValueError(
            f"{model} has no calibration. Train it with --vali or --selection cross-validation, on at least "
            "ten queries that choose the model, or call the method calibrate of the model in Python."
        )
    queries = read_data(data, reading, rankers=[] if ranker is None else [ranker])
    name = file_name(data)
    if ranker is not None and model is not None:
        check_missing(ranker, queries)
        what, score = f"the model {model}", _by_model(ranker, file_name(model), name)
    elif scores is not None:
        what, score = f"the scores {file_name(scores)}", _by_rows(_read_scores(scores, len(queries), name))
    elif run is not None:
        known = queries if isinstance(queries, Queries) else queries.without_features()
        what, score = f"the run {file_name(run)}", _by_rows(_read_run(run, known, name))
    else:
        feature = str(by["feature"])
        what = f"the feature {feature}"
        score = _by_feature(_column(feature, queries, name, zero_based=reading.zero_based), feature, name)
    if isinstance(queries, Queries):
        (ranked,) = over_blocks(queries, "evaluating", score)
        result = evaluate_ranking(queries.y, ranked, queries.qid, metrics, convention, **options)
    else:
        result = evaluate_blocks(
            over_blocks(queries, "evaluating", lambda block: (block.y, score(block), block.groups)),
            queries.query_ids,
            queries.largest_label,
            metrics,
            convention,
            **options,
        )
    if save_reference is not None:
        write_reference(
            save_reference,
            ranker,
            None if scores is None else _read_scores(scores, len(queries), name),
            queries,
            ("" if model is None else file_name(model), name),
            metrics=result.metrics,
            convention=result.convention,
        )
    report = None if ranker is None or not calibration else _checked_calibration(ranker, queries, data, model)
    return Evaluated(result, queries, name, what, report)


def _checked_calibration(
    ranker: BaseRanker, queries: Queries | StoredQueries, data: Path, model: Any
) -> CalibrationReport:
    """Compare the probabilities of a calibrated ranker with the labels of queries."""
    from sinkprop.experiment.calibration import checked_calibration

    names = {"model_name": file_name(model), "data_name": file_name(data)}
    parts = over_blocks(
        queries,
        "checking the probabilities of",
        lambda block: ranker.predict(with_features_of(ranker, block, **names)),
    )
    scores = np.concatenate(list(parts))
    return checked_calibration(ranker, scores, queries)


def _by_model(ranker: BaseRanker, model_name: str, data_name: str) -> Callable[[Queries], Floats]:
    """Return a function that scores the documents of queries with a model.

    If the model does not rank by its scores (see `ranks_by_score`), the function returns negated ranks.
    """
    said: set[str] = set()

    def score(queries: Queries) -> Floats:
        own = with_features_of(ranker, queries, model_name=model_name, data_name=data_name)
        with notes_on_stderr(said=said):
            return ranker.predict(own) if ranks_by_score(ranker) else -ranker.rank(own).astype(np.float64)

    return score


def _by_rows(values: Floats) -> Callable[[Queries], Floats]:
    """Return a function that returns the slice of `values` (N,) for a block of queries.

    It must be called on all blocks in order, since it counts the rows that were passed to it.
    """
    done = 0

    def score(queries: Queries) -> Floats:
        nonlocal done
        done += len(queries)
        return values[done - len(queries) : done]

    return score


def _by_feature(column: int, feature: str, data_name: str) -> Callable[[Queries], Floats]:
    """Return a function that returns a feature of queries, or raises a ValueError if a value is missing."""

    def score(queries: Queries) -> Floats:
        values: Floats = queries.X[:, column].astype(np.float64)
        if np.isnan(values).any():
            raise ValueError(
                f"--feature {feature!r}: some documents of {data_name} have no value (NaN) of the feature, "
                "and cannot be ranked by it."
            )
        return values

    return score


def _read_lines(path: Path) -> list[str]:
    return read_bytes(path).decode("utf-8", "surrogateescape").split("\n")


def _read_scores(path: Path, n: int, data_name: str) -> Floats:
    """Read n scores, one finite number per line. Raises a ValueError if the file has anything else."""
    name = file_name(path)
    words = [(number, line.strip()) for number, line in enumerate(_read_lines(path), 1) if line.strip()]
    values = np.empty(len(words))
    for i, (number, word) in enumerate(words):
        values[i] = _number(word, f"{name}, line {number}: expected a score, one finite number per line;")
    if len(values) != n:
        raise ValueError(
            f"{name} has {len(values):,} scores, but {data_name} has {n:,} rows; expected one score per row, "
            "in the same order."
        )
    return values


def _number(word: str, expected: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        shown = word if len(word) <= 40 else word[:40] + "..."
        raise ValueError(f"{expected} got {shown!r}.")
    return value


def _read_run(path: Path, queries: Queries, data_name: str) -> Floats:
    """Read a TREC run and return one score per row of the data.

    If rows are missing from the run, they get the score -1, and the scores of the other rows are replaced by
    integers from 0 on in the same order. Raises a ValueError if a line of the run is invalid or names a
    document that is not in the data.
    """
    name = file_name(path)
    documents, names = document_names(queries, data_name), query_names(queries, data_name)
    groups = queries.groups
    rows = np.arange(len(queries)) if groups.rows is None else groups.rows
    codes = np.repeat(np.arange(len(names)), np.diff(groups.offsets))
    place = {(names[q], documents[row]): row for q, row in zip(codes.tolist(), rows.tolist(), strict=True)}
    values = np.full(len(queries), np.nan)
    for number, line in enumerate(_read_lines(path), 1):
        words = line.split()
        if not words:
            continue
        where = f"{name}, line {number}:"
        if len(words) != 6:
            raise ValueError(
                f"{where} expected six words, `qid Q0 docid rank score name`; got {len(words)}: "
                f"{line.strip()[:60]!r}."
            )
        query, _, document, _, score, _ = words
        at = place.get((query, document))
        if at is None:
            raise ValueError(f"{where} {data_name} has no document {document!r} of query {query!r}.")
        if not np.isnan(values[at]):
            raise ValueError(f"{where} document {document!r} of query {query!r} occurs twice.")
        values[at] = _number(score, f"{where} expected a finite number as the score;")
    absent = np.isnan(values)
    if absent.all():
        raise ValueError(f"{name}: the run is empty; expected lines `qid Q0 docid rank score name`.")
    if absent.any():
        complain(
            f"note: {int(absent.sum()):,} of {len(values):,} rows are not in {name}; they rank last in their "
            "queries.",
            0,
        )
        # Replace each score by its index among the distinct sorted scores, so that -1 is below all of them.
        values = np.unique(values, return_inverse=True)[1].astype(np.float64)
        values[absent] = -1
    return values


def _column(feature: str, queries: Queries | StoredQueries, data_name: str, *, zero_based: bool) -> int:
    """Return the column index of a feature, given its name or its id in the file."""
    if feature in queries.categories:
        raise ValueError(
            f"--feature {feature!r}: the feature has categories in {data_name}, by which documents cannot be "
            "ranked."
        )
    if queries.feature_names is not None and feature in queries.feature_names:
        return queries.feature_names.index(feature)
    first = 0 if zero_based else 1
    if feature.isascii() and feature.isdigit() and first <= int(feature) < first + queries.n_features:
        return int(feature) - first
    named = "" if queries.feature_names is None else "; you can also give a column name"
    raise ValueError(
        f"--feature {feature!r}: {data_name} has the features {first} to {queries.n_features - 1 + first}"
        f"{named}."
    )


def _record(found: Evaluated, *, per_query: bool) -> dict[str, Any]:
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


def _csv(result: Evaluation) -> str:
    """Return CSV with one row per query. A field is empty if the query is left out of the metric's mean."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["query", *result.per_query])
    columns = [values.tolist() for values in result.per_query.values()]
    for query, *values in zip(result.queries.tolist(), *columns, strict=True):
        writer.writerow([query, *("" if np.isnan(value) else repr(value) for value in values)])
    return text.getvalue()


def _calibration_csv(report: CalibrationReport) -> str:
    """Return CSV with the log score of the ranks and the calibration error of each event."""
    scores, text = report.log_scores, io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["measure", "before", "after", "uniform"])
    writer.writerow(["log score", *map(repr, (scores.before, scores.after, scores.uniform))])
    for event, *sides in report.events():
        errors = ("" if side is None else repr(side.error) for side in sides)
        writer.writerow([f"calibration error, {event}", *errors, ""])
    return text.getvalue()


def _print(found: Evaluated, *, per_query: bool, wrote: list[Path | None]) -> None:
    out, result, queries = console(), found.result, found.queries
    size = f"{counted(len(queries), 'row', 'rows')}, {counted(queries.n_queries, 'query', 'queries')}"
    say(out, f"{found.name}, {size}, ranked by {found.by}", "bold")
    out.print()
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
