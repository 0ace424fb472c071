"""The command `sinkprop evaluate`: metrics of a model, of scores, of a feature or of a TREC run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from click.core import ParameterSource

from sinkprop.cli.evaluation.results import (
    Evaluated,
    calibration_csv,
    evaluation_csv,
    evaluation_record,
    print_evaluation,
)
from sinkprop.cli.evaluation.systems import (
    by_feature,
    by_model,
    by_rows,
    feature_column,
    read_run,
    read_scores,
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
    is_stdout,
    write_output,
)
from sinkprop.cli.reading import (
    Reading,
    check_missing,
    file_name,
    over_blocks,
    read_data,
    read_model_file,
    with_features_of,
)
from sinkprop.data.queries import Queries
from sinkprop.metrics.conventions import CHOICES
from sinkprop.metrics.evaluation import evaluate as evaluate_ranking
from sinkprop.metrics.evaluation import evaluate_blocks
from sinkprop.metrics.measures import parse_metrics

if TYPE_CHECKING:
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
    **options: Any,
) -> None:
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
    """  # noqa: D301
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
    keep_apart({"--json": json_file, "--csv": csv_file, "--plot": plot}, {"DATA": data, **files})
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
        return
    if is_stdout(json_file) and is_stdout(csv_file):
        raise click.UsageError("--json and --csv cannot both be stdout.")
    options["empty"] = int(empty) if empty in ("0", "1") else empty
    found = evaluated(data, reading, by, calibration=calibration, **without_log_options(options))
    report = found.calibration
    if plot is not None and report is not None:
        from sinkprop.plot import reliability_diagrams

        reliability_diagrams(report).figure.savefig(plot)
    if json_file is not None:
        write_output(json_file, as_json(evaluation_record(found, per_query=per_query)))
    if csv_file is not None:
        write_output(csv_file, evaluation_csv(found.result) if report is None else calibration_csv(report))
    if not is_stdout(json_file) and not is_stdout(csv_file):
        print_evaluation(found, per_query=per_query, wrote=[plot, json_file, csv_file])


def evaluated(
    data: Path,
    reading: Reading,
    by: Mapping[str, Any],
    *,
    metrics: str = METRICS,
    convention: str | None = None,
    calibration: bool = False,
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
        what, score = f"the model {model}", by_model(ranker, file_name(model), name)
    elif scores is not None:
        what, score = f"the scores {file_name(scores)}", by_rows(read_scores(scores, len(queries), name))
    elif run is not None:
        known = queries if isinstance(queries, Queries) else queries.without_features()
        what, score = f"the run {file_name(run)}", by_rows(read_run(run, known, name))
    else:
        feature = str(by["feature"])
        what = f"the feature {feature}"
        score = by_feature(
            feature_column(feature, queries, name, zero_based=reading.zero_based), feature, name
        )
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
