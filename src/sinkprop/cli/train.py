"""The command `sinkprop train`: a ranker fitted to a file or a stored set, and saved."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sinkprop.cli.options import (
    LogCommand,
    bias_option,
    check_clicks,
    check_options_of,
    check_saved_file,
    click_method_option,
    click_options,
    clicks_option,
    clip_option,
    comma_separated,
    convention_option,
    data_options,
    data_path,
    json_option,
    keep_apart,
    number_option,
    output_option,
    parsed_by,
    selection_option,
)
from sinkprop.cli.output import as_json, complain, is_stdout, notes_on_stderr, working, write_output
from sinkprop.cli.reading import Reading, check_missing, file_name, matched_columns, read_data, say_features
from sinkprop.cli.training_report import print_report, training_report
from sinkprop.cluster.errors import ClusterLost
from sinkprop.common.packages import installed
from sinkprop.data.missing import MISSING
from sinkprop.data.queries import Queries
from sinkprop.gbdt.parameters import DEFAULTS, EFFORTS
from sinkprop.metrics.measures import parse_metric, parse_metrics
from sinkprop.objective.gains import parse_gain
from sinkprop.objective.normalization import as_iterations

if TYPE_CHECKING:
    from sinkprop.estimator.base import BaseRanker
    from sinkprop.store import StoredQueries

__all__ = ["new_ranker", "train_command", "train_on_files"]

_RELAXATIONS = ("gaussian", "laplace", "logit-logistic", "probit", "beta")
_METHODS = ("sinkprop", "boosted", "regression", "auto")
_OPTIONS_OF = {
    **dict.fromkeys(("relaxation", "penalty", "resample", "checkpoint"), ("sinkprop",)),
    **dict.fromkeys(("gain", "criterion", "seed", "threads"), ("sinkprop", "boosted", "auto")),
    "selection": ("sinkprop", "auto"),
    **dict.fromkeys(("cluster", "n_iter"), ("sinkprop", "boosted")),
    "time_budget": ("auto",),
    **dict.fromkeys(("trees", "leaves", "rate", "effort"), ("boosted",)),
    **dict.fromkeys(("normalization", "missing"), ("sinkprop", "regression")),
}
_INTERRUPTED = 130
# {value of --click-method: argument of `debias`}
_CLICK_METHODS = {"dr": "doubly robust", "ips": "inverse propensity", "none": "none"}


def _penalty(text: str) -> float:
    if not 0 <= float(text) < math.inf:
        raise ValueError(text)
    return float(text)


def _parse_iterations(
    context: click.Context, option: click.Parameter, text: str | None
) -> float | str | None:
    """Return the value of --n-iter: a number of iterations, or the text form of their limit."""
    if text is None:
        return None
    try:
        n_iter: float | str = float(text)
    except ValueError:
        n_iter = text
    try:
        as_iterations(n_iter)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return n_iter


def _parse_cluster(context: click.Context, option: click.Parameter, text: str | None) -> str | int | None:
    """Return the value of --cluster: an int, the number of worker processes, or the address of a cluster."""
    if text is None:
        return None
    if not installed("distributed"):
        raise click.BadParameter('needs Dask: pip install "sinkprop[dask]".')
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if "://" not in text and ":" not in text:
        raise click.BadParameter(
            f"{text!r} is neither an address, such as tcp://host:8786, nor a number of processes."
        )
    return text


@click.command("train", cls=LogCommand, short_help="Train a ranker on a file or a stored set and save it.")
@click.argument("train", type=data_path(stored=True))
@output_option("--model", check=check_saved_file, required=True, help="Output file for the trained model.")
@click.option(
    "--vali",
    type=data_path(stdin=False, stored=True),
    metavar="FILE",
    help="File of validation queries, used to choose hyperparameters or the number of trees.",
)
@click.option(
    "--method",
    type=click.Choice(_METHODS),
    default="sinkprop",
    help="sinkprop: linear ranker that maximizes the expected metric; boosted: boosted trees that maximize "
    "the expected metric; regression: least squares on the labels; auto: linear rankers, trees and networks, "
    "tried within --time-budget and combined.  [default: sinkprop]",
)
@click.option(
    "--time-budget",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    metavar="SECONDS",
    help="Time for --method auto.  [default: 60]",
)
@click.option(
    "--gain",
    metavar="GAIN",
    callback=parsed_by(parse_gain),
    help="Metric to maximize, such as ndcg, ndcg@10, map, mrr@10, err@20, recall@10 or p@5, or a sum such as "
    "'0.8*ndcg@10 + 0.2*mrr'.  Unless it states its discount, such as ndcg(discount=log2), the discount is "
    "that of --convention.  [default: ndcg]",
)
@click.option(
    "--relaxation",
    type=click.Choice(_RELAXATIONS),
    default="gaussian",
    help="How scores become rank probabilities. gaussian and laplace are kernels that smooth one score per "
    "document. The others are distributions of a document's rank, with two scores per document as their "
    "parameters.  [default: gaussian]",
)
@click.option(
    "--n-iter",
    metavar="N",
    callback=_parse_iterations,
    help="Number of Sinkhorn iterations, or 'converged' for their limit, in which the probabilities of every "
    "document and of every rank sum to 1.  [default: 5, or 2 for boosted]",
)
@click.option(
    "--penalty",
    metavar="X,X,...",
    callback=comma_separated(_penalty, "a penalty; give numbers of 0 or more, such as 1e-5,1e-3."),
    help="Regularization strengths to try; each penalizes the distance from a ridge regression's weights.  "
    "[default: nine from 3 down to 0.0003]",
)
@click.option(
    "--normalization",
    type=click.Choice(["standard", "query", "none"]),
    help="Feature scaling: over all rows, within each query, or none. Saved with the model.  "
    "[default: standard, or none for regression]",
)
@click.option(
    "--missing",
    type=click.Choice(MISSING),
    help="Missing values: put the mean of the feature in their place and add an indicator column "
    "(indicator), only put the mean there (mean), or refuse them (error).  [default: indicator]",
)
@selection_option(
    "How to weigh the penalties; auto uses cross-validation, and from 10,000 queries the validation queries "
    "only.  [default: auto]",
    default="auto",
)
@click.option(
    "--criterion",
    metavar="METRICS",
    callback=parsed_by(parse_metrics),
    help="Metrics whose mean on validation queries chooses the model.  [default: ndcg@1-10, or the metric of "
    "--gain if that is not NDCG; for boosted, the expected gain]",
)
@number_option(
    "--resample",
    0,
    default=0,
    help="Train on N copies of each query instead of the query itself; the documents of a copy are drawn "
    "from the query with replacement. 0 trains on the queries themselves. The paper uses 20.  [default: 0]",
)
@number_option(
    "--trees", help=f"Maximum number of boosted trees per booster.  [default: {DEFAULTS.n_estimators}]"
)
@number_option("--leaves", 2, help=f"Maximum number of leaves per tree.  [default: {DEFAULTS.num_leaves}]")
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help=f"Learning rate of boosted trees.  [default: {DEFAULTS.learning_rate}]",
)
@click.option(
    "--effort",
    type=click.Choice(list(EFFORTS)),
    help="Time to spend on boosted trees; best takes four times as long as default.  [default: default]",
)
@click.option(
    "--metric",
    default="ndcg@10",
    metavar="METRIC",
    callback=parsed_by(parse_metric),
    help="Metric to print, which the saved model's score method also computes.  [default: ndcg@10]",
)
@convention_option()
@output_option(
    "--checkpoint",
    check=check_saved_file,
    help="File to save progress to after every stage. The same command resumes from this file, which is "
    "removed when training is complete.",
)
@number_option("--seed", 0, 2**31 - 1, default=0, help="Seed for random splits and resampling.  [default: 0]")
@number_option("--threads", help="Number of threads. Does not change the model.  [default: all processors]")
@click.option(
    "--cluster",
    metavar="ADDRESS|N",
    callback=_parse_cluster,
    help="Train on the Dask cluster at an address such as tcp://host:8786, or on N worker processes of "
    "this machine.",
)
@json_option("the metrics and every stage of the training")
@click.option(
    "--vali-group", type=data_path(stdin=False), metavar="FILE", help="Like --group, for the file of --vali."
)
@data_options
@clicks_option("TRAIN", "--vali")
@bias_option()
@click_method_option(
    _CLICK_METHODS,
    "How to estimate relevance from clicks. dr (doubly robust): clicks, divided by the probability of "
    "examination, correct a prediction from features; ips (inverse propensity): the clicks alone; none: "
    "click rates, with position bias.  [default: dr]",
)
@clip_option("chosen by its estimated error")
@click_options
def train_command(
    train: Path,
    model: Path,
    clicks: bool,
    vali: Path | None,
    method: str,
    bias: Path | None,
    click_method: str | None,
    clip: float | None,
    checkpoint: Path | None,
    json_file: Path | None,
    vali_group: Path | None,
    **options: Any,
) -> int:
    """Train a ranker on the queries in TRAIN and save it.

    \b
    sinkprop train train.txt --model m.model
    sinkprop train train.txt.gz --vali vali.txt.gz --model m.model
    sinkprop train train.parquet --model m.model --docid-column doc
    sinkprop train rank.train --model m.model      with rank.train.query beside it
    sinkprop train train.txt --model p5.model --gain p@5 --metric p@5
    sinkprop train big.txt --model m.model --checkpoint m.check
    sinkprop train logs.queries --model m.model --cluster tcp://host:8786
    sinkprop train train.txt --model ls.model --method regression
    sinkprop train train.txt --vali vali.txt.gz --model t.model --method boosted
    sinkprop train train.txt --model a.model --method auto --time-budget 60
    sinkprop train train.txt --model m.model --json - | jq .metrics
    sinkprop train --clicks log.parquet --model m.model
    sinkprop train --clicks log.parquet --bias bias.json --model m.model

    TRAIN is LETOR or SVMlight text, plain or compressed (.gz, .xz, .bz2); Parquet, if its name ends in
    .parquet; - for stdin; or a stored set made by `sinkprop convert`, which may be larger than memory.

    The linear ranker starts from ridge regression on the labels. It then maximizes the expected metric, a
    smooth function of the scores, in stages of decreasing penalty, and averages the stages. Boosted trees
    are grown to maximize the expected metric. With --method auto, linear rankers, trees and networks are
    compared on queries that they were not trained on, and combined. Ctrl-C stops the training, saves the
    best model so far, and exits with code 130.

    With --clicks, TRAIN is a click log: Parquet, CSV or a folder of Parquet files, with one row per document
    shown, clicked or not. Position bias is estimated from the log or read from a file. The ranker is trained
    on the relevance of the documents, estimated from the clicks without this bias. See `sinkprop clicks
    --help`.
    """  # noqa: D301
    if vali is None and vali_group is not None:
        raise click.UsageError("--vali-group requires --vali.")
    check_clicks(clicks, ("vali_group",))
    keep_apart(
        {"--model": model, "--checkpoint": checkpoint, "--json": json_file},
        {
            "TRAIN": train,
            "--vali": vali,
            "--group": options["group"],
            "--vali-group": vali_group,
            "--bias": bias,
            "--documents": options["documents"],
        },
    )
    _check_bias(bias, clip, click_method)
    reading = Reading.taken_from(options)
    check_options_of("--method", method, _OPTIONS_OF)
    ranker = new_ranker(method, checkpoint=checkpoint, **options)
    try:
        if clicks:
            from sinkprop.cli.clicks.logs import ClickReading
            from sinkprop.cli.clicks.training import train_on_clicks

            report = train_on_clicks(
                ranker,
                train,
                model,
                ClickReading.taken_from(options),
                feature_columns=reading.feature_columns,
                vali=vali,
                bias=bias,
                clip=clip,
                method=_CLICK_METHODS[click_method or "dr"],  # type: ignore[arg-type]
            )
        else:
            report = train_on_files(ranker, train, model, reading, vali=vali, vali_group=vali_group)
    except ClusterLost as error:
        kept = checkpoint is not None and checkpoint.exists()
        resume = f" Run the same command, with any --cluster, to resume from {checkpoint}." if kept else ""
        return complain(f"{error}{resume}", 1)
    report |= {"model": str(model), "method": method, "status": _status(ranker)}
    if json_file is not None:
        write_output(json_file, as_json(report))
    if not is_stdout(json_file):
        print_report(report, ranker, json_file)
    if report["status"] == "interrupted":
        resume = f" Run the same command to resume from {checkpoint}." if checkpoint else ""
        n, what = len(report["stages"]), "finished stages"
        if method == "boosted":
            n, what = report["boosting"]["n_rounds"], "finished rounds"
        elif method == "auto":
            n, what = sum(member["n_fits"] for member in report["auto"]["members"]), "finished fits"
        return complain(f"interrupted: {model} is the best model of {n} {what}.{resume}", _INTERRUPTED)
    return 0


def _check_bias(bias: Path | None, clip: float | None, method: str | None) -> None:
    """Raise a usage error if an option about position bias is given with the method that ignores it."""
    for option, value in (("--bias", bias), ("--clip", clip)):
        if method == "none" and value is not None:
            raise click.UsageError(
                f"{option} does not apply to --click-method none, which ignores position bias."
            )


def new_ranker(
    method: str,
    *,
    metric: str = "ndcg@10",
    convention: str | None = None,
    normalization: str | None = None,
    missing: str | None = None,
    **options: Any,
) -> BaseRanker:
    """Return an unfitted ranker for a value of --method, with the parameters from the command's options."""
    common = {"metric": metric, "convention": convention, "normalization": normalization, "missing": missing}
    shared: dict[str, Any] = {name: value for name, value in common.items() if value is not None}
    if method == "regression":
        from sinkprop.baselines import RegressionRanker

        return RegressionRanker(**shared)
    of_the_fit = {
        "random_state": options["seed"], "n_threads": options["threads"], "cluster": options["cluster"]
    }  # fmt: skip
    if method == "auto":
        from sinkprop.auto import AutoRanker
        from sinkprop.estimator.selection import Selection

        del of_the_fit["cluster"]
        return AutoRanker(
            time_budget=options["time_budget"],
            gain=options["gain"],
            selection=Selection(options["selection"], criterion=options["criterion"]),
            **of_the_fit,
            **shared,
        )
    if method == "boosted":
        if not installed("lightgbm"):
            raise click.UsageError('--method boosted needs lightgbm: pip install "sinkprop[lightgbm]".')
        from sinkprop.gbdt.ranker import BoostedRanker

        names = {
            "gain": "gain", "trees": "n_estimators", "leaves": "num_leaves", "rate": "learning_rate",
            "effort": "effort", "n_iter": "n_iter",
        }  # fmt: skip
        given = {name: options[option] for option, name in names.items() if options.get(option) is not None}
        return BoostedRanker(criterion=options["criterion"], **given, **of_the_fit, **shared)
    from sinkprop.estimator.selection import Selection
    from sinkprop.linear.ranker import SinkPropRanker

    given = {name: options[name] for name in ("penalty", "n_iter") if options.get(name) is not None}
    return SinkPropRanker(
        options["gain"] or "ndcg",
        options["relaxation"],
        selection=Selection(options["selection"], criterion=options["criterion"]),
        resample=options["resample"],
        checkpoint=options["checkpoint"],
        **given,
        **of_the_fit,
        **shared,
    )


def train_on_files(
    ranker: BaseRanker,
    train: Path,
    model: Path,
    reading: Reading,
    *,
    vali: Path | None = None,
    vali_group: Path | None = None,
) -> dict[str, Any]:
    """Fit a ranker to the queries of a file, save it, and return the record of `training_report`."""
    from sinkprop.gbdt.ranker import BoostedRanker

    began = time.perf_counter()
    data = read_data(train, reading, rankers=[ranker])
    if isinstance(data, Queries):
        say_features(data.feature_names, reading)
    check_missing(ranker, data)
    validation = None
    if vali is not None:
        validation = read_data(vali, dataclasses.replace(reading, group=vali_group), rankers=[ranker])
        check_missing(ranker, validation)
        validation = _like(data, validation, file_name(train), file_name(vali))
    read = time.perf_counter()
    if not isinstance(ranker, BoostedRanker):  # all rankers except boosted trees use least squares
        _check_memory(data, file_name(train))
    _fit(ranker, data, validation)
    fitted = time.perf_counter()
    ranker.save(model)
    with working("evaluating"), notes_on_stderr():
        return training_report(
            ranker,
            data,
            validation,
            {"train": file_name(train), "vali": None if vali is None else file_name(vali)},
            seconds={"reading": read - began, "training": fitted - read},
        )


def _fit(
    ranker: BaseRanker, data: Queries | StoredQueries, validation: Queries | StoredQueries | None
) -> None:
    with notes_on_stderr(ignore=".*The fit was interrupted"):
        ranker.fit(data, eval_set=validation)


def _status(ranker: BaseRanker) -> str:
    """The status of the fit: "finished" or "interrupted"."""
    return getattr(ranker.fit_result_, "status", "finished")


def _like(
    data: Queries | StoredQueries, other: Queries | StoredQueries, name: str, other_name: str
) -> Queries | StoredQueries:
    """Return the validation queries `other` with their features in the order of the training data.

    Raises a ValueError if the features of the two differ, or if those of a stored set are in another order.
    """
    if data.feature_names is not None and other.feature_names is not None:
        columns = matched_columns(data.feature_names, other.feature_names, name, other_name)
        if not isinstance(other, Queries):
            if columns != list(range(len(columns))):
                raise ValueError(
                    f"{other_name} has its features in a different order from {name}. Convert it again with "
                    "the same --feature-columns."
                )
            return other
        return dataclasses.replace(other, X=other.X[:, columns], feature_names=data.feature_names)
    if other.n_features != data.n_features:
        raise ValueError(
            f"{name} has {data.n_features} features, but {other_name} has {other.n_features}. If lines omit "
            f"zeros, add --n-features {max(data.n_features, other.n_features)}."
        )
    return other


def _check_memory(data: Queries | StoredQueries, name: str) -> None:
    """Raise a ValueError if the D x D matrices of least squares on D features do not fit in memory."""
    needed = 3 * 8 * data.n_features**2
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return
    if needed > there:
        raise ValueError(
            f"{name} has {data.n_features:,} features. Training starts from least squares, which would need "
            f"{needed / 1e9:,.0f} GB of memory, but this machine has {there / 1e9:,.0f} GB. Use fewer "
            "features."
        )
