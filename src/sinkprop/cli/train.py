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
    check_options_of,
    check_saved_file,
    comma_separated,
    convention_option,
    data_options,
    data_path,
    json_option,
    keep_apart,
    metrics_option,
    number_option,
    output_option,
    parsed_by,
    selection_option,
)
from sinkprop.cli.output import as_json, complain, is_stdout, notes_on_stderr, working, write_output
from sinkprop.cli.reading import Reading, check_missing, file_name, matched_columns, read_data
from sinkprop.cli.training_report import print_report, training_report
from sinkprop.cluster.errors import ClusterLost
from sinkprop.common.packages import installed
from sinkprop.data.queries import Queries
from sinkprop.gbdt.parameters import DEFAULTS
from sinkprop.metrics.measures import parse_metric
from sinkprop.objective.gains import parse_gain

if TYPE_CHECKING:
    from sinkprop.estimator.base import BaseRanker
    from sinkprop.store import StoredQueries

__all__ = ["new_ranker", "train_command", "train_on_files"]

_RELAXATIONS = ("gaussian", "laplace", "logit-logistic", "probit", "beta")
_METHODS = ("sinkprop", "boosted", "regression")
_OPTIONS_OF = {
    **dict.fromkeys(("relaxation", "penalty", "selection", "resample", "checkpoint"), ("sinkprop",)),
    **dict.fromkeys(("gain", "criterion", "seed", "threads", "cluster"), ("sinkprop", "boosted")),
    **dict.fromkeys(("trees", "leaves", "rate"), ("boosted",)),
    "normalization": ("sinkprop", "regression"),
}
_INTERRUPTED = 130


def _penalty(text: str) -> float:
    if not 0 <= float(text) < math.inf:
        raise ValueError(text)
    return float(text)


def _parse_cluster(context: click.Context, option: click.Parameter, text: str | None) -> str | int | None:
    """An address, or a number of processes."""
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


@click.command("train", short_help="Train a ranker on a file or a stored set and save it.")
@click.argument("train", type=data_path(stored=True))
@output_option("--model", check=check_saved_file, required=True, help="Where to save the model.")
@click.option(
    "--vali",
    type=data_path(stdin=False, stored=True),
    metavar="FILE",
    help="Queries that help to choose the model, or say how many trees are enough.",
)
@click.option(
    "--method",
    type=click.Choice(_METHODS),
    default="sinkprop",
    help="The expected metric of a linear ranker or of boosted trees, or least squares on the labels.  "
    "[default: sinkprop]",
)
@click.option(
    "--gain",
    metavar="GAIN",
    callback=parsed_by(parse_gain),
    help="What is maximized: ndcg, ndcg@10, p@5, rbp@0.8.  [default: ndcg, ndcg(discount=log2) for trees]",
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
    callback=comma_separated(_penalty, "a penalty; give numbers of 0 or more, as in 1e-5,1e-3."),
    help="Penalties to try on the distance to least squares.  [default: 1e-6,1e-5,...,1e-1]",
)
@click.option(
    "--normalization",
    type=click.Choice(["standard", "query", "none"]),
    help="Of features; part of the model.  [default: standard; none for regression]",
)
@selection_option(
    "How penalty and sigma are chosen.  [default: auto, cross-validation up to 500 queries]", default="auto"
)
@metrics_option(
    "--criterion",
    metavar="METRICS",
    help="Metrics whose mean chooses.  [default: ndcg@1-10, or the gain if it is not NDCG]",
)
@number_option(
    "--resample",
    0,
    default=0,
    help="Copies of each query with its documents drawn anew; 20 in the paper.  [default: 0]",
)
@number_option("--trees", help=f"Boosted trees, at most.  [default: {DEFAULTS.n_estimators}]")
@number_option("--leaves", 2, help=f"Leaves of a boosted tree, at most.  [default: {DEFAULTS.num_leaves}]")
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help=f"Learning rate of boosted trees.  [default: {DEFAULTS.learning_rate}]",
)
@click.option(
    "--metric",
    default="ndcg@10",
    metavar="METRIC",
    callback=parsed_by(parse_metric),
    help="What is printed, and the model's own metric.  [default: ndcg@10]",
)
@convention_option("Of the metric: ")
@output_option(
    "--checkpoint",
    check=check_saved_file,
    help="Written after every stage; the same command resumes from it. Removed when done.",
)
@number_option("--seed", 0, 2**31 - 1, default=0, help="Of splits and resampling.  [default: 0]")
@number_option("--threads", help="The model is the same whatever their number.")
@click.option(
    "--cluster",
    metavar="ADDRESS|N",
    callback=_parse_cluster,
    help="Train on a Dask cluster, as tcp://host:8786, or on N worker processes of this machine.",
)
@json_option("Write what came of it, every stage included, as JSON; - writes only that, to stdout.")
@click.option(
    "--vali-group", type=data_path(stdin=False), metavar="FILE", help="As --group, for the file of --vali."
)
@data_options
def train_command(
    train: Path,
    model: Path,
    vali: Path | None,
    method: str,
    checkpoint: Path | None,
    json_file: Path | None,
    vali_group: Path | None,
    **options: Any,
) -> int:
    """Train a ranker on the queries in TRAIN and save it.

    TRAIN is LETOR or SVMlight text, plain or compressed (.gz, .xz, .bz2), or Parquet by its suffix; - is
    stdin; or a stored set, which `sinkprop convert` makes and which may be larger than memory. Training
    starts at least squares on the labels and maximizes the expected metric at ever less
    smoothing, or grows boosted trees on it. Ctrl-C ends it with the best so far, which is saved; the exit
    code is then 130.

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
    sinkprop train train.txt --model m.model --json - | jq .metrics
    """  # noqa: D301
    if vali is None and vali_group is not None:
        raise click.UsageError("--vali-group is for the file of --vali, which is missing.")
    keep_apart(
        {"--model": model, "--checkpoint": checkpoint, "--json": json_file},
        {"TRAIN": train, "--vali": vali, "--group": options["group"], "--vali-group": vali_group},
    )
    reading = Reading.taken_from(options)
    check_options_of("--method", method, _OPTIONS_OF)
    ranker = new_ranker(method, checkpoint=checkpoint, **options)
    try:
        report = train_on_files(ranker, train, model, reading, vali=vali, vali_group=vali_group)
    except ClusterLost as error:
        kept = checkpoint is not None and checkpoint.exists()
        resume = f" Give the same command, with any --cluster, to resume from {checkpoint}." if kept else ""
        return complain(f"{error}{resume}", 1)
    report |= {"model": str(model), "method": method, "status": _status(ranker)}
    if json_file is not None:
        write_output(json_file, as_json(report))
    if not is_stdout(json_file):
        print_report(report, ranker, json_file)
    if report["status"] == "interrupted":
        resume = f" Give the same command to resume from {checkpoint}." if checkpoint else ""
        n, what = len(report["stages"]), "stages finished"
        if method == "boosted":
            n, what = report["boosting"]["n_rounds"], "trees grown"
        return complain(f"interrupted: {model} holds the best of the {n} {what}.{resume}", _INTERRUPTED)
    return 0


def new_ranker(
    method: str,
    *,
    metric: str = "ndcg@10",
    convention: str = "letor",
    normalization: str | None = None,
    **options: Any,
) -> BaseRanker:
    """The ranker of a method with what the options of the command say, not fitted."""
    shared: dict[str, Any] = {"metric": metric, "convention": convention}
    if normalization is not None:
        shared["normalization"] = normalization
    if method == "regression":
        from sinkprop.baselines import RegressionRanker

        return RegressionRanker(**shared)
    of_the_fit = {
        "random_state": options["seed"], "n_threads": options["threads"], "cluster": options["cluster"]
    }  # fmt: skip
    if method == "boosted":
        if not installed("lightgbm"):
            raise click.UsageError('--method boosted needs lightgbm: pip install "sinkprop[lightgbm]".')
        from sinkprop.gbdt.ranker import BoostedRanker

        names = {"gain": "gain", "trees": "n_estimators", "leaves": "num_leaves", "rate": "learning_rate"}
        given = {name: options[option] for option, name in names.items() if options[option] is not None}
        return BoostedRanker(criterion=options["criterion"], **given, **of_the_fit, **shared)
    from sinkprop.estimator.selection import Selection
    from sinkprop.linear.ranker import SinkPropRanker

    given = {} if options["penalty"] is None else {"penalty": options["penalty"]}
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
    """The record of a fit to the queries of a file, after the ranker was fitted and saved."""
    from sinkprop.gbdt.ranker import BoostedRanker

    began = time.perf_counter()
    data = read_data(train, reading)
    check_missing(ranker, data)
    validation = None
    if vali is not None:
        validation = read_data(vali, dataclasses.replace(reading, group=vali_group))
        check_missing(ranker, validation)
        validation = _like(data, validation, file_name(train), file_name(vali))
    read = time.perf_counter()
    if not isinstance(ranker, BoostedRanker):  # trees do not start at least squares
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
    """How the fit ended: "finished" or "interrupted"."""
    return getattr(ranker.fit_result_, "status", "finished")


def _like(
    data: Queries | StoredQueries, other: Queries | StoredQueries, name: str, other_name: str
) -> Queries | StoredQueries:
    """The other queries with the columns of the first."""
    if data.feature_names is not None and other.feature_names is not None:
        columns = matched_columns(data.feature_names, other.feature_names, name, other_name)
        if not isinstance(other, Queries):
            if columns != list(range(len(columns))):
                raise ValueError(
                    f"{other_name} has the features of {name} in another order. Convert it again with the "
                    "same columns."
                )
            return other
        return dataclasses.replace(other, X=other.X[:, columns], feature_names=data.feature_names)
    if other.n_features != data.n_features:
        raise ValueError(
            f"{name} has {data.n_features} features, but {other_name} has {other.n_features}. If lines leave "
            f"out zeros, add --n-features {max(data.n_features, other.n_features)}."
        )
    return other


def _check_memory(data: Queries | StoredQueries, name: str) -> None:
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
