"""The report of `sinkprop train` about a fit, as a table and as JSON."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkprop.cli.output import console, counted, print_facts, say_written
from sinkprop.common.console import print_columns, say
from sinkprop.data.queries import Queries
from sinkprop.estimator.criteria import gain_under
from sinkprop.metrics.conventions import as_convention
from sinkprop.metrics.evaluation import short_queries
from sinkprop.metrics.measures import parse_metrics

if TYPE_CHECKING:
    from sinkprop.auto.record import AutoFit
    from sinkprop.estimator.base import BaseRanker
    from sinkprop.gbdt.growing.loop import BoostingFit
    from sinkprop.linear.records import FitResult
    from sinkprop.store import StoredQueries

__all__ = ["print_report", "training_report"]

_FEATURES = {
    "standard": "standardized features",
    "query": "features scaled within queries",
    "none": "unscaled features",
}


def training_report(
    ranker: BaseRanker,
    data: Queries | StoredQueries,
    validation: Queries | StoredQueries | None,
    names: dict[str, str | None],
    *,
    seconds: dict[str, float],
    clicks: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the record of a fit (data, parameters, metrics, stages, times), to print or to write as JSON.

    `clicks` describes the clicks from which labels were estimated. The record then has no metrics, since
    `data` and `validation` are documents without labels.
    """
    from sinkprop.linear.annealed import AnnealedRanker, least_squares_of

    result, boosting, auto = _result(ranker), _boosting(ranker), _auto(ranker)
    start = least_squares_of(ranker) if isinstance(ranker, AnnealedRanker) else ranker
    # Only linear rankers start from least squares; the reports of others have no row for it.
    alone = boosting is not None or auto is not None
    rankers = {"model": ranker} if alone else {"regression": start, "model": ranker}
    labeled = [("training", data), ("validation", validation)] if clicks is None else []
    metrics = {
        part: {label: one.score(queries) for label, one in rankers.items()}
        for part, queries in labeled
        if queries is not None
    }
    rules = as_convention(ranker.convention)
    short = {
        part: short_queries(parse_metrics([ranker.metric]), queries.groups.sizes, rules)
        for part, queries in labeled
        if queries is not None
    }
    stages = () if result is None else result.stages
    record: Any = result or boosting or auto
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
            for name, value in _parameters(ranker).items()
            if name not in ("checkpoint", "verbose")
        },
        "metric": str(ranker.metric),
        "convention": str(ranker.convention),
        "metrics": metrics,
        "short_queries": {part: text for part, text in short.items() if text},
        "criterion": (record.criterion or None) if record else None,
        "validated_on": (record.validated_on or None) if record else None,
        "stages": [dataclasses.asdict(stage) for stage in stages],
        "boosting": None if boosting is None else {**dataclasses.asdict(boosting), "trees": ranker.n_trees_},
        "auto": None if auto is None else dataclasses.asdict(auto),
        "clicks": clicks,
        "seconds": seconds,
    }


def _parameters(ranker: BaseRanker) -> dict[str, Any]:
    """Parameters of the ranker; a gain is in the form that it was trained with, which states its discount."""
    given: dict[str, Any] = ranker.get_params(deep=False)
    if isinstance(given.get("gain"), str):
        given["gain"] = str(gain_under(given["gain"], ranker.convention))
    return given


def print_report(report: dict[str, Any], ranker: BaseRanker, json_file: Path | None) -> None:
    """Print the record of `training_report` as tables."""
    out, result, auto = console(), _result(ranker), _auto(ranker)
    facts: dict[str, str] = {}
    if report["clicks"] is not None:
        from sinkprop.cli.clicks.training import click_facts

        facts |= click_facts(report)
    else:
        for label, part in (("Data", "train"), ("Validation", "vali")):
            if (size := report["data"][part]) is not None:
                numbers = (
                    counted(size[what], one, what)
                    for what, one in (("rows", "row"), ("queries", "query"), ("features", "feature"))
                )
                facts[label] = f"{', '.join(numbers)}  ({size['file']})"
    parameters, boosting = report["parameters"], report["boosting"]
    features = _FEATURES[parameters.get("normalization", "none")]
    if boosting is not None:
        facts["Model"] = f"expected {parameters['gain']}, {counted(boosting['trees'], 'tree', 'trees')}"
        if boosting["values"]:
            best = boosting["values"][boosting["best"] - 1]
            facts["Chosen"] = f"round {boosting['best']} of {boosting['n_rounds']}"
            facts["Chosen by"] = f"{boosting['criterion']}, {boosting['validated_on']}"
            facts["Criterion"] = (
                f"{boosting['values'][0]:.4f} after the first round, {best:.4f} after the best"
            )
    elif auto is not None:
        chosen = " + ".join(f"{weight:.2f} {name}" for name, weight in auto.weights.items())
        facts["Model"] = chosen if len(auto.weights) > 1 else next(iter(auto.weights))
        facts["Outcome"] = auto.message
        if auto.validated_on:
            facts["Chosen by"] = f"{auto.criterion}, {auto.validated_on}"
        if len(auto.weights) > 1:
            facts["Combination"] = f"{auto.gain:+.4f} +- {auto.standard_error:.4f} to the best member"
        facts["Time budget"] = f"{auto.seconds:.1f} of {auto.time_budget:g} seconds used"
    elif result is None:
        facts["Model"] = f"least squares on the labels, {features}"
    else:
        facts["Model"] = f"expected {parameters['gain']}, {parameters['relaxation']}, {features}"
        facts["Chosen"] = result.choice
        facts["Chosen by"] = f"{result.criterion}, {result.validated_on}"
        first, best = result.stages[0].criterion, max(s.criterion for s in result.stages)
        facts["Criterion"] = f"{first:.4f} for the regression at the start, {best:.4f} for the best stage"
    seconds = report["seconds"]
    facts["Seconds"] = f"{seconds['reading']:.1f} reading, {seconds['training']:.1f} training"
    print_facts(out, facts)
    out.print()
    if auto is not None:
        table = auto.rows()
        print_columns(out, list(table[0])[:-1], [list(row.values())[:-1] for row in table])
        for row in table:
            if row["note"]:
                say(out, f"{row['member']}: {row['note']}", "dim")
    rows = []
    if all("regression" in values for values in report["metrics"].values()):
        rows.append(
            ["least squares", *(f"{values['regression']:.4f}" for values in report["metrics"].values())]
        )
    if result is not None or boosting is not None or auto is not None:
        rows.append([report["method"], *(f"{values['model']:.4f}" for values in report["metrics"].values())])
    if report["clicks"] is None:
        print_columns(out, [f"{report['metric']}, {report['convention']}", *report["metrics"]], rows)
    else:
        say(
            out,
            "There are no metrics, because the labels are estimates. To estimate what the model would earn, "
            "run `sinkprop evaluate --clicks` on a log that it was not trained on.",
            "dim",
        )
    for part, text in report["short_queries"].items():
        say(out, f"{part}: {text}", "dim")
    if (
        result is not None
        and "cross-validation" in result.validated_on
        and report["data"]["vali"] is not None
    ):
        # the models of the folds, each trained on most of these queries, are averaged
        say(out, "The model is trained on the validation queries, too; the criterion is of others.", "dim")
    say_written(out, report["model"], json_file)


def _result(ranker: BaseRanker) -> FitResult | None:
    """The record of a fit in stages, each with one penalty and one smoothing width.

    None for least squares and boosted trees, which are not fitted in stages.
    """
    from sinkprop.linear.records import FitResult

    result = ranker.fit_result_
    return result if isinstance(result, FitResult) else None


def _boosting(ranker: BaseRanker) -> BoostingFit | None:
    """The record of the boosting rounds; None if the ranker does not consist of boosted trees."""
    from sinkprop.gbdt.growing.loop import BoostingFit

    result = ranker.fit_result_
    return result if isinstance(result, BoostingFit) else None


def _auto(ranker: BaseRanker) -> AutoFit | None:
    """The record of an AutoRanker's fit; None for other rankers."""
    from sinkprop.auto.record import AutoFit

    result = ranker.fit_result_
    return result if isinstance(result, AutoFit) else None
