"""The command `sinkprop evaluate`: metrics of models, scores, features and TREC runs, alone or compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from click.core import ParameterSource

from sinkprop.cli.evaluation.comparison import (
    compared,
    comparison_csv,
    comparison_record,
    print_comparison,
)
from sinkprop.cli.evaluation.drift import (
    DRIFTED,
    check_drift_options,
    drift_options,
    drifted,
    print_drift,
    write_reference,
)
from sinkprop.cli.evaluation.options import OrderedCommand, System, SystemType, given_systems, input_files
from sinkprop.cli.evaluation.results import (
    Evaluated,
    calibration_csv,
    evaluation_csv,
    evaluation_record,
    print_evaluation,
)
from sinkprop.cli.evaluation.systems import RankedFile
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
from sinkprop.cli.reading import Reading, file_name, over_blocks, with_features_of
from sinkprop.metrics.conventions import CHOICES
from sinkprop.metrics.measures import parse_metrics

if TYPE_CHECKING:
    from sinkprop.calibration import CalibrationReport
    from sinkprop.estimator.base import BaseRanker

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


class _EvaluateCommand(OrderedCommand, LogCommand):
    """The command, which knows the order of its systems and lists options for click logs apart."""


@click.command(
    "evaluate",
    cls=_EvaluateCommand,
    short_help="Compute metrics of a model, scores, a feature or a TREC run.",
)
@click.argument("data", type=data_path(stored=True))
@click.option(
    "--model",
    type=SystemType("model"),
    multiple=True,
    metavar="[NAME=]FILE",
    help="Rank by the scores of a saved model. Like the next three options, it can be given several times.",
)
@click.option(
    "--scores",
    type=SystemType("scores"),
    multiple=True,
    metavar="[NAME=]FILE|@COLUMN",
    help="Rank by scores from a file: one number per line, one line per row of DATA. With @, from a column "
    "of DATA: its name in Parquet, the id of a feature in LETOR text.",
)
@click.option(
    "--feature",
    type=SystemType("feature"),
    multiple=True,
    metavar="ID",
    help="Rank by one feature: its id in LETOR text, or its column name in Parquet.",
)
@click.option(
    "--run",
    type=SystemType("run"),
    multiple=True,
    metavar="[NAME=]FILE",
    help="Rank by the scores in a TREC run file.",
)
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
    save_reference: Path | None,
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
    sinkprop evaluate test.parquet --scores production=@score --model new=m.model
    sinkprop evaluate test.txt --model m.model --per-query --csv queries.csv
    sinkprop evaluate test.txt --model m.model --json - | jq .metrics
    sinkprop evaluate test.queries --model m.model
    sinkprop evaluate test.txt --model m.model --calibration --plot curves.png
    sinkprop evaluate --clicks log.parquet --model m.model
    sinkprop evaluate --clicks log.parquet --model m.model --baseline old.model
    sinkprop evaluate test.txt --model m.model --save-reference reference.json
    sinkprop evaluate new.txt --model m.model --against reference.json

    DATA is LETOR or SVMlight text, Parquet, - for stdin, or a stored set made by `sinkprop convert`,
    which is read block by block. Give one or several of --model, --scores, --feature and --run to rank by.
    Several are compared with the first: means with 95 % confidence intervals, and differences with intervals,
    p-values of the randomization test, and the number of queries that each wins and loses.

    Programs that report a metric under the same name often compute different numbers: they differ in
    gain and discount, and in how they treat ties, queries with few documents, and queries without a
    relevant document. --convention selects the definition of one of these programs. The output states
    the definition that was used.

    A document of DATA that is missing from a TREC run ranks below the documents in the run. A document
    of the run that is missing from DATA is an error. The documents of a query of DATA that has none in the
    run stay in the order of DATA.

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
    systems = given_systems(options)
    _check_systems(systems, clicks=clicks, calibration=calibration)
    if len(systems) > 1 and (against is not None or save_reference is not None):
        option = "--against" if save_reference is None else "--save-reference"
        raise click.UsageError(f"{option} takes one --model or --scores; got {len(systems)} systems.")
    if plot is not None and not calibration:
        raise click.UsageError("--plot needs --calibration.")
    inputs = input_files(systems)
    files = {"DATA": data, **inputs, "--group": options["group"]}
    files |= {
        "--baseline": baseline,
        "--bias": bias,
        "--documents": options["documents"],
        "--against": against,
    }
    files = {name: path for name, path in files.items() if str(path) != "-"}  # stdin is not stdout
    outputs = {"--json": json_file, "--csv": csv_file, "--plot": plot, "--save-reference": save_reference}
    keep_apart(outputs, files)
    if str(data) == "-" and "-" in map(str, inputs.values()):
        raise click.UsageError("DATA and the scores cannot both be stdin.")
    reading = Reading.taken_from(options)
    if clicks:
        from sinkprop.cli.clicks.evaluation import evaluated_on_clicks, print_values
        from sinkprop.cli.clicks.logs import ClickReading

        record = evaluated_on_clicks(
            data,
            next(Path(s.value) for s in systems),
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
        drift = drifted(data, reading, against, systems[0], unlabeled=unlabeled, other_model=other_model)
        if json_file is not None:
            write_output(json_file, as_json(drift.record()))
        if not is_stdout(json_file):
            print_drift(drift, file_name(data), against, [json_file])
        return DRIFTED if fail_on_drift and drift.beyond_chance else 0
    if is_stdout(json_file) and is_stdout(csv_file):
        raise click.UsageError("--json and --csv cannot both be stdout.")
    options["empty"] = int(empty) if empty in ("0", "1") else empty
    options = without_log_options(options)
    if len(systems) > 1:
        ranked = RankedFile.read(data, reading, systems)
        several = compared(ranked, systems, **options)
        if json_file is not None:
            write_output(json_file, as_json(comparison_record(ranked, systems, several, per_query=per_query)))
        if csv_file is not None:
            write_output(csv_file, comparison_csv(several))
        if not is_stdout(json_file) and not is_stdout(csv_file):
            print_comparison(ranked, systems, several, per_query=per_query, wrote=[json_file, csv_file])
        return None
    found = evaluated(
        data, reading, systems[0], calibration=calibration, save_reference=save_reference, **options
    )
    report = found.calibration
    if plot is not None and report is not None:
        from sinkprop.plot import reliability_diagrams

        reliability_diagrams(report).figure.savefig(plot)
    if json_file is not None:
        write_output(json_file, as_json(evaluation_record(found, per_query=per_query)))
    if csv_file is not None:
        write_output(csv_file, evaluation_csv(found.result) if report is None else calibration_csv(report))
    if not is_stdout(json_file) and not is_stdout(csv_file):
        print_evaluation(found, per_query=per_query, wrote=[plot, json_file, csv_file, save_reference])
    return None


def _check_systems(systems: Sequence[System], *, clicks: bool, calibration: bool) -> None:
    """Raise a usage error unless there is a system, and a single model where an option needs one."""
    models = [system for system in systems if system.kind == "model"]
    if clicks and not models:
        raise click.UsageError("--clicks needs --model, the model to evaluate.")
    if clicks and len(models) > 1:
        raise click.UsageError("--clicks takes one --model; give the other as --baseline.")
    if not systems:
        raise click.UsageError(
            "give one or several of --model, --scores, --feature and --run to rank by; got none of them."
        )
    if calibration and not models:
        raise click.UsageError("--calibration needs --model, a model that has a calibration.")
    if calibration and len(systems) > 1:
        raise click.UsageError(
            f"--calibration takes one --model and nothing else; got {len(systems)} systems."
        )


def evaluated(
    data: Path,
    reading: Reading,
    system: System,
    *,
    metrics: str = METRICS,
    convention: str | None = None,
    calibration: bool = False,
    save_reference: Path | None = None,
    **options: Any,
) -> Evaluated:
    """Evaluate the ranking of the documents in a file by a system.

    With `calibration`, also check the model's probabilities. With `save_reference`, write the reference to
    this file with which `drifted` compares. `options` are keyword arguments of
    `sinkprop.evaluate`.
    """
    ranked = RankedFile.read(data, reading, [system])
    ranker = ranked.rankers.get(system)
    if calibration and ranker is not None and ranker.calibration_ is None:
        raise ValueError(
            f"{system.path} has no calibration. Train it with --vali or --selection cross-validation, on at "
            "least ten queries that choose the model, or call the method calibrate of the model in Python."
        )
    result = ranked.evaluation(system, metrics, convention or "standard", **options)
    if save_reference is not None:
        write_reference(save_reference, ranked, system, result)
    report = None if ranker is None or not calibration else _checked_calibration(ranker, ranked, system)
    return Evaluated(result, ranked.queries, ranked.name, system.words, report)


def _checked_calibration(ranker: BaseRanker, ranked: RankedFile, system: System) -> CalibrationReport:
    """Compare the probabilities of a calibrated ranker with the labels of queries."""
    from sinkprop.experiment.calibration import checked_calibration

    names = {"model_name": system.value, "data_name": ranked.name}
    parts = over_blocks(
        ranked.queries,
        "checking the probabilities of",
        lambda block: ranker.predict(with_features_of(ranker, block, **names)),
    )
    return checked_calibration(ranker, np.concatenate(list(parts)), ranked.queries)
