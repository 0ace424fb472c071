"""`sinkprop train`."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkprop.cli.inputs import (
    Reading,
    Scorer,
    data_options,
    data_path,
    file_name,
    matched_columns,
    read_queries,
)
from sinkprop.cli.shared import (
    as_json,
    check_metrics,
    check_new_file,
    check_saved_file,
    complain,
    console,
    counted,
    is_stdout,
    keep_apart,
    notes_on_stderr,
    working,
    write_output,
)
from sinkprop.console import plain, print_columns, say
from sinkprop.conventions import CONVENTIONS

if TYPE_CHECKING:
    import click

    from sinkprop.data import Queries
    from sinkprop.estimator import BaseRanker
    from sinkprop.training import FitResult, Stage

__all__ = ["train_command"]

_RELAXATIONS = ("gaussian", "laplace", "logit-logistic", "probit", "beta")
_SINKPROP_ONLY = (
    "gain", "relaxation", "penalty", "selection", "criterion", "resample", "checkpoint", "seed", "threads"
)  # fmt: skip
_FEATURES = {
    "standard": "standardized features",
    "query": "features scaled within queries",
    "none": "features as they are",
}
_INTERRUPTED = 130


def train_command() -> click.Command:
    import click

    @click.command("train", short_help="Train a ranker on a LETOR or Parquet file and save it.")
    @click.argument("train", type=data_path())
    @click.option(
        "--model",
        type=click.Path(dir_okay=False, path_type=Path),
        required=True,
        metavar="FILE",
        callback=check_saved_file,
        help="Where to save the model.",
    )
    @click.option(
        "--vali", type=data_path(stdin=False), metavar="FILE", help="Queries that help to choose the model."
    )
    @click.option(
        "--method",
        type=click.Choice(["sinkprop", "regression"]),
        default="sinkprop",
        help="The expected metric, or least squares on the labels.  [default: sinkprop]",
    )
    @click.option(
        "--gain",
        default="ndcg",
        metavar="GAIN",
        callback=_check_gain,
        help="What is maximized: ndcg, ndcg@10, p@5, rbp@0.8.  [default: ndcg]",
    )
    @click.option(
        "--relaxation",
        type=click.Choice(_RELAXATIONS),
        default="gaussian",
        help="How scores become probabilities of ranks.  [default: gaussian]",
    )
    @click.option(
        "--penalty",
        metavar="X,X,...",
        callback=_parse_penalties,
        help="Penalties to try on the distance to least squares.  [default: 1e-6,1e-5,...,1e-1]",
    )
    @click.option(
        "--normalization",
        type=click.Choice(["standard", "query", "none"]),
        help="Of features; part of the model.  [default: standard; none for regression]",
    )
    @click.option(
        "--selection",
        type=click.Choice(["auto", "cross-validation", "validation"]),
        default="auto",
        help="How penalty and sigma are chosen.  [default: auto, cross-validation up to 500 queries]",
    )
    @click.option(
        "--criterion",
        metavar="METRICS",
        callback=check_metrics,
        help="Metrics whose mean chooses.  [default: ndcg@1-10, or the gain if it is not NDCG]",
    )
    @click.option(
        "--resample",
        type=click.IntRange(0),
        default=0,
        metavar="N",
        help="Copies of each query with its documents drawn anew; 20 in the paper.  [default: 0]",
    )
    @click.option(
        "--metric",
        default="ndcg@10",
        metavar="METRIC",
        callback=_check_metric,
        help="What is printed, and the model's own metric.  [default: ndcg@10]",
    )
    @click.option(
        "--convention",
        type=click.Choice(list(CONVENTIONS)),
        default="letor",
        metavar="NAME",
        help=f"Of the metric: {', '.join(CONVENTIONS)}.  [default: letor]",
    )
    @click.option(
        "--checkpoint",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        callback=check_saved_file,
        help="Written after every stage; the same command resumes from it. Removed when done.",
    )
    @click.option(
        "--seed",
        type=click.IntRange(0, 2**31 - 1),
        default=0,
        metavar="N",
        help="Of splits and resampling.  [default: 0]",
    )
    @click.option(
        "--threads", type=click.IntRange(1), metavar="N", help="The model is the same whatever their number."
    )
    @click.option(
        "--json",
        "json_file",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        metavar="FILE",
        callback=check_new_file,
        help="Write what came of it, every stage included, as JSON; - writes only that, to stdout.",
    )
    @click.option(
        "--vali-group",
        type=data_path(stdin=False),
        metavar="FILE",
        help="As --group, for the file of --vali.",
    )
    @data_options
    @click.pass_context
    def train(
        context: click.Context,
        /,
        train: Path,
        model: Path,
        vali: Path | None,
        method: str,
        metric: str,
        convention: str,
        normalization: str | None,
        checkpoint: Path | None,
        json_file: Path | None,
        vali_group: Path | None,
        **options: Any,
    ) -> int:
        """Train a ranker on the queries in TRAIN and save it.

        TRAIN is LETOR or SVMlight text, plain or compressed (.gz, .xz, .bz2), or Parquet by its suffix; - is
        stdin. Training starts at least squares on the labels and maximizes the expected metric at ever less
        smoothing. Ctrl-C ends it with the best so far, which is saved; the exit code is then 130.

        \b
        sinkprop train train.txt --model m.model
        sinkprop train train.txt.gz --vali vali.txt.gz --model m.model
        sinkprop train train.parquet --model m.model --docid-column doc
        sinkprop train rank.train --model m.model      with rank.train.query beside it
        sinkprop train train.txt --model p5.model --gain p@5 --metric p@5
        sinkprop train big.txt --model m.model --checkpoint m.check
        sinkprop train train.txt --model ls.model --method regression
        sinkprop train train.txt --model m.model --json - | jq .metrics
        """  # noqa: D301
        if vali is None and vali_group is not None:
            raise click.UsageError("--vali-group is for the file of --vali, which is missing.", ctx=context)
        keep_apart(
            {"--model": model, "--checkpoint": checkpoint, "--json": json_file},
            {
                "TRAIN": train,
                "--vali": vali,
                "--group": options["group"],
                "--vali-group": vali_group,
            },
        )
        reading = Reading(**{field.name: options.pop(field.name) for field in dataclasses.fields(Reading)})
        shared = {"metric": metric, "convention": convention}
        if normalization is not None:
            shared["normalization"] = normalization
        ranker = _ranker(context, method, options | {"checkpoint": checkpoint}, shared)
        began = time.perf_counter()
        data = read_queries(train, reading)
        validation = None
        if vali is not None:
            validation = read_queries(vali, dataclasses.replace(reading, group=vali_group))
            validation = _like(data, validation, file_name(train), file_name(vali))
        read = time.perf_counter()
        _check_memory(data, file_name(train))
        status = _fit(ranker, data, validation)
        fitted = time.perf_counter()
        ranker.save(model)
        with working("evaluating"), notes_on_stderr():
            report = _report(
                ranker,
                data,
                validation,
                {"train": file_name(train), "vali": None if vali is None else file_name(vali)},
                seconds={"reading": read - began, "training": fitted - read},
            )
        report |= {"model": str(model), "method": method, "status": status}
        if json_file is not None:
            write_output(json_file, as_json(report))
        if not is_stdout(json_file):
            _print(report, _result(ranker), json_file)
        if status == "interrupted":
            resume = f" Give the same command to resume from {checkpoint}." if checkpoint else ""
            return complain(
                f"interrupted: {model} holds the best of the {len(report['stages'])} stages finished."
                + resume,
                _INTERRUPTED,
            )
        return 0

    return train


def _ranker(
    context: click.Context, method: str, options: dict[str, Any], shared: dict[str, Any]
) -> BaseRanker:
    import click
    from click.core import ParameterSource

    if method == "regression":
        for name in _SINKPROP_ONLY:
            if context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None):
                raise click.UsageError(f"--{name} is an option of --method sinkprop.", ctx=context)
        from sinkprop.baselines import RegressionRanker

        return RegressionRanker(**shared)
    from sinkprop.ranker import SinkPropRanker
    from sinkprop.selection import Selection

    given = {} if options["penalty"] is None else {"penalty": options["penalty"]}
    return SinkPropRanker(
        options["gain"],
        options["relaxation"],
        selection=Selection(options["selection"], criterion=options["criterion"]),
        resample=options["resample"],
        checkpoint=options["checkpoint"],
        random_state=options["seed"],
        n_threads=options["threads"],
        **given,
        **shared,
    )


def _fit(ranker: BaseRanker, data: Queries, validation: Queries | None) -> str:
    """The ranker fitted, with the names of its features; "finished" or "interrupted"."""
    given: dict[str, Any] = {}
    if validation is not None:
        given = {"eval_set": [(validation.X, validation.y)], "eval_qid": [validation.qid]}
    with notes_on_stderr(ignore=".*The fit was interrupted"):
        ranker.fit(data.X, data.y, qid=data.qid, **given)
    if data.feature_names is not None:
        import numpy as np

        ranker.feature_names_in_ = np.array(data.feature_names, dtype=object)
    result = _result(ranker)
    return "finished" if result is None else result.status


def _result(ranker: BaseRanker) -> FitResult | None:
    """The record of the stages; the regression has none."""
    from sinkprop.training import FitResult

    result = ranker.fit_result_
    return result if isinstance(result, FitResult) else None


def _like(data: Queries, other: Queries, name: str, other_name: str) -> Queries:
    """The other queries with the columns of the first."""
    if data.feature_names is not None and other.feature_names is not None:
        columns = matched_columns(data.feature_names, other.feature_names, name, other_name)
        return dataclasses.replace(other, X=other.X[:, columns], feature_names=data.feature_names)
    if other.n_features != data.n_features:
        raise ValueError(
            f"{name} has {data.n_features} features, but {other_name} has {other.n_features}. If lines leave "
            f"out zeros, add --n-features {max(data.n_features, other.n_features)}."
        )
    return other


def _check_memory(data: Queries, name: str) -> None:
    """Least squares holds a triangle of D x D; better refused than ended by the system."""
    needed = 3 * 8 * data.n_features**2
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return
    if needed > there:
        raise ValueError(
            f"{name} has {data.n_features:,} features: least squares, where training starts, would take "
            f"{needed / 1e9:,.0f} GB of memory, and there are {there / 1e9:,.0f}. Leave out features, or map "
            "them to fewer."
        )


def _report(
    ranker: BaseRanker,
    data: Queries,
    validation: Queries | None,
    names: dict[str, str | None],
    *,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """Everything that the table and the JSON say."""
    from sinkprop.baselines import RegressionRanker

    start = ranker
    if not isinstance(ranker, RegressionRanker):
        start = RegressionRanker(
            normalization=ranker.normalization, metric=ranker.metric, convention=ranker.convention
        )
        start.fit(data.X, data.y, qid=data.qid)
    metrics: dict[str, dict[str, float]] = {}
    for part, queries in (("training", data), ("validation", validation)):
        if queries is not None:
            metrics[part] = {
                label: Scorer(one, queries.X, queries.qid).metric(queries.y)
                for label, one in (("regression", start), ("model", ranker))
            }
    result = _result(ranker)
    stages = () if result is None else result.stages
    return {
        "data": {
            part: None
            if queries is None
            else {
                "file": names[part],
                "rows": len(queries),
                "queries": queries.n_queries,
                "features": queries.n_features,
            }
            for part, queries in (("train", data), ("vali", validation))
        },
        "parameters": {
            name: vars(value) if dataclasses.is_dataclass(value) else value
            for name, value in ranker.get_params(deep=False).items()
            if name not in ("checkpoint", "verbose")
        },
        "metric": str(ranker.metric),
        "convention": str(ranker.convention),
        "metrics": metrics,
        "criterion": None if result is None else result.criterion,
        "judged_by": None if result is None else result.judged_by,
        "stages": [dataclasses.asdict(stage) for stage in stages],
        "seconds": seconds,
    }


def _print(report: dict[str, Any], result: FitResult | None, json_file: Path | None) -> None:
    from rich.table import Table

    out = console()
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")

    def add(label: str, text: str) -> None:
        facts.add_row(label, plain(out, text))

    for label, part in (("Data", "train"), ("Validation", "vali")):
        if (size := report["data"][part]) is not None:
            numbers = (
                counted(size[what], one, what)
                for what, one in (("rows", "row"), ("queries", "query"), ("features", "feature"))
            )
            add(label, f"{', '.join(numbers)}  ({size['file']})")
    parameters = report["parameters"]
    features = _FEATURES[parameters["normalization"]]
    if result is None:
        add("Model", f"least squares on the labels, {features}")
    else:
        add("Model", f"expected {parameters['gain']}, {parameters['relaxation']}, {features}")
        add("Chosen", _chosen(result.stages))
        add("by", f"{result.criterion}, {result.judged_by}")
        first, best = result.stages[0].criterion, max(s.criterion for s in result.stages)
        add("Criterion", f"{first:.4f} of the regression, {best:.4f} of the best stage")
    seconds = report["seconds"]
    add("Seconds", f"{seconds['reading']:.1f} reading, {seconds['training']:.1f} training")
    out.print(facts)
    out.print()
    rows = [["least squares", *(f"{values['regression']:.4f}" for values in report["metrics"].values())]]
    if result is not None:
        rows.append(["sinkprop", *(f"{values['model']:.4f}" for values in report["metrics"].values())])
    print_columns(out, [f"{report['metric']}, {report['convention']}", *report["metrics"]], rows)
    for path in (report["model"], json_file):
        if path is not None:
            say(out, f"Wrote {path}")


def _chosen(stages: tuple[Stage, ...]) -> str:
    """The stage that is the model, in words."""
    stage = next(stage for stage in stages if stage.chosen)
    if not math.isfinite(stage.penalty):
        return "the regression itself: no stage was better"
    sigma = "" if stage.sigma is None else f", sigma {stage.sigma:g}"
    return f"penalty {stage.penalty:g}{sigma}, 1 of {len(stages)} stages"


def _check_gain(context: click.Context, option: click.Parameter, text: str) -> str:
    import click

    from sinkprop.gains import parse_gain

    try:
        parse_gain(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=context, param=option) from None
    return text


def _check_metric(context: click.Context, option: click.Parameter, text: str) -> str:
    import click

    from sinkprop.metrics import parse_metric

    try:
        parse_metric(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=context, param=option) from None
    return text


def _parse_penalties(
    context: click.Context, option: click.Parameter, value: str | None
) -> tuple[float, ...] | None:
    import click

    if value is None:
        return None
    penalties = []
    for part in value.split(","):
        try:
            penalty = float(part)
        except ValueError:
            penalty = math.nan
        if not 0 <= penalty < math.inf:
            raise click.BadParameter(
                f"{part.strip()!r} is not a penalty; give numbers of 0 or more, as in 1e-5,1e-3.",
                ctx=context,
                param=option,
            )
        penalties.append(penalty)
    return tuple(penalties)
