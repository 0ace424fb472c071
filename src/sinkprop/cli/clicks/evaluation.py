"""`sinkprop evaluate --clicks`: metrics that a model would have had, estimated from a click log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import numpy as np

from sinkprop.cli.clicks.bias_files import OF_THE_LOG, bias_of, kind_of
from sinkprop.cli.clicks.logs import (
    ClickReading,
    chosen_sessions,
    for_the_shell,
    log_size,
    read_log,
    say_without,
    sizes,
)
from sinkprop.cli.output import (
    complain,
    console,
    counted,
    notes_on_stderr,
    print_facts,
    say_written,
    working,
)
from sinkprop.cli.reading import file_name, ranks_by_score, read_model_file, with_features_of
from sinkprop.common.console import print_columns, say
from sinkprop.data.queries import Queries

if TYPE_CHECKING:
    from sinkprop.clicks import ClickLog, ClickModel, CounterfactualValue, RankerComparison
    from sinkprop.common.types import Floats
    from sinkprop.estimator.base import BaseRanker

__all__ = ["check_click_metrics", "evaluated_on_clicks", "print_values"]

Method = Literal["doubly robust", "ips", "snips"]

_METRIC = re.compile(r"(dcg|ctr|mrr)(@[1-9]\d*)?")
_K = 10  # rank at which the default metrics stop
_METHODS = {"doubly robust": "doubly robust", "ips": "inverse propensity", "snips": "self-normalized ips"}


def check_click_metrics(text: str) -> list[str]:
    """Return the names in a list such as "dcg@10,ctr@5". Raises a ValueError for other metrics."""
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if not _METRIC.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be estimated from clicks; give dcg@k, ctr@k or mrr@k, such as dcg@10,ctr@5."
            )
    return names


def evaluated_on_clicks(
    data: Path,
    model: Path,
    reading: ClickReading,
    metrics: str | None = None,
    *,
    feature_columns: str | None = None,
    baseline: Path | None = None,
    bias: Path | None = None,
    clip: float | None = None,
    method: Method = "doubly robust",
) -> dict[str, Any]:
    """Estimate metrics of a model and of a baseline from a click log, and return what is printed.

    Without a baseline, the model is compared with the rankings in the log. `clip` and `method` are arguments
    of `sinkprop.clicks.compare_rankers`.
    """
    chosen = None if metrics is None else check_click_metrics(metrics)
    if method == "snips" and any(name.startswith("mrr") for name in chosen or ()):
        raise click.UsageError("--click-method snips cannot estimate MRR; give --metrics dcg@10,ctr@10.")
    files = [model] if baseline is None else [model, baseline]
    names = [file_name(path) for path in files]
    rankers = [read_model_file(path) for path in files]
    known = _features(rankers)
    log = read_log(data, reading, feature_columns, known=known, known_name=" and ".join(names))
    log, without = chosen_sessions(log, reading)
    scores = [
        _scores(ranker, log.documents, name, file_name(reading.documents or data))
        for name, ranker in zip(names, rankers, strict=True)
    ]
    if baseline is None:
        names, scores = [*names, "the rankings in the log"], [*scores, _prominence(log)]
    users, described = bias_of(log, bias)
    chosen = _default_metrics(log, users, method) if chosen is None else chosen
    _check_positions(log, users, chosen)
    for name, ranker in zip(names, rankers, strict=False):  # `names` may have the rankings in the log as well
        _warn_of_training(ranker, name, log)
    options = {"method": method, "clip": clip}
    said: set[str] = set()
    return {
        "data": file_name(data),
        **sizes(log),
        **without,
        "model": names[0],
        "baseline": None if baseline is None else names[1],
        "queries_with_several_rankings": _several_rankings(log),
        "bias": described,
        "bias_file": None if bias is None else str(bias),
        "candidates": len(log.documents),
        "documents_file": None if reading.documents is None else str(reading.documents),
        **options,
        "metrics": {name: _compared(log, names, scores, users, name, options, said) for name in chosen},
    }


def _features(rankers: list[BaseRanker]) -> list[str] | None:
    """Names of the features that the rankers know; None if one of them has no names."""
    known = [getattr(ranker, "feature_names_in_", None) for ranker in rankers]
    if any(names is None for names in known):
        return None
    return list(dict.fromkeys(str(name) for names in known for name in names))  # type: ignore[union-attr]


def _scores(ranker: BaseRanker, documents: Queries, model_name: str, data_name: str) -> Floats:
    """Scores (N,) of the documents, of which a model may use some of the features."""
    known, there = getattr(ranker, "feature_names_in_", None), documents.feature_names
    if known is not None and there is not None and set(known) < set(there):
        columns = [there.index(str(name)) for name in known]
        documents = replace(documents, X=documents.X[:, columns], feature_names=tuple(map(str, known)))
    with working(f"ranking {len(documents):,} documents"), notes_on_stderr():
        own = with_features_of(ranker, documents, model_name=model_name, data_name=data_name)
        if ranks_by_score(ranker):
            return ranker.predict(own)
        ranks: Floats = ranker.rank(own).astype(np.float64)
        return -ranks


def _prominence(log: ClickLog) -> Floats:
    """Scores (N,) that order documents as the log shows them: the sum of 1 / position over its sessions.

    If every query has one ranking, this is its order. Documents that were never shown come last.
    """
    return np.bincount(log.rows, 1 / log.positions, len(log.documents)).astype(np.float64)


def _several_rankings(log: ClickLog) -> int:
    """Number of queries of which the log shows several documents at one position."""
    queries, counts = log.documents.groups.codes[log.counts.rows], log.counts
    places, n = np.unique(np.column_stack([queries, counts.positions]), axis=0, return_counts=True)
    return len(np.unique(places[n > 1, 0]))


def _warn_of_training(ranker: BaseRanker, name: str, log: ClickLog) -> None:
    """Say on stderr if a model seems to have been trained on this log."""
    clicks, mine = ranker.clicks_, sizes(log)
    if clicks is not None and all(clicks[n] == mine[n] for n in ("sessions", "impressions", "clicks")):
        complain(
            f"note: {name} seems to have been trained on this log, for which the estimate is too high. "
            "Evaluate the model on later sessions.",
            0,
        )


def _default_metrics(log: ClickLog, users: ClickModel, method: Method) -> list[str]:
    """Metrics that can be estimated with a click model, of ten documents or as many as the log shows."""
    k = min(_K, log.longest)
    kinds = ["dcg"] if kind_of(users) in OF_THE_LOG else ["dcg", "ctr", "mrr"]
    return [f"{kind}@{k}" for kind in kinds if (kind, method) != ("mrr", "snips")]


def _check_positions(log: ClickLog, users: ClickModel, metrics: list[str]) -> None:
    """Raise a ValueError if a metric needs the examination of positions that the log does not have."""
    there, longest = len(users.examination_curve()), int(log.documents.groups.longest)
    for name in metrics:
        kind, _, k = name.partition("@")
        needed = min(int(k or longest), longest)
        if kind != "dcg" and needed > there:
            raise ValueError(
                f"--metrics {name} needs the position bias of {needed} positions, but it is known for "
                f"{there}; give {kind}@{there}."
            )


def _compared(
    log: ClickLog,
    names: list[str],
    scores: list[Floats],
    users: ClickModel,
    metric: str,
    options: dict[str, Any],
    said: set[str],
) -> dict[str, Any]:
    """The record of a comparison of the two rankings by one metric.

    `said` has the rankings, "first" or "second", for which a note says what the log does not show. The
    numbers of this note are different for every metric, but one note is enough.
    """
    from sinkprop.clicks import compare_rankers

    ignored = "|".join(f"{which}: the log never shows" for which in sorted(said))
    worded = _with_names(names, said)
    first, second = scores
    try:
        with working(f"estimating {metric}"), notes_on_stderr(worded, ignore=ignored):
            found = compare_rankers(log, first, second, users, metric=metric, **options)
    except ValueError as error:
        raise ValueError(worded(str(error))) from None
    return _record(found) | {"observed": _observed(log, metric)}


def _with_names(names: list[str], said: set[str]) -> Callable[[str], str]:
    """Function that names the rankings in messages, and adds the uncovered ones to `said`."""

    def worded(message: str) -> str:
        which, _, text = message.partition(": ")
        if which not in ("first", "second"):
            return for_the_shell(message)
        if text.startswith("the log never shows"):
            said.add(which)
        text = re.sub(r" \(rows [^)]*\)", "", text)
        return f"{names[which == 'second']}: {for_the_shell(text)}"

    return worded


def _record(found: RankerComparison) -> dict[str, Any]:
    return {
        "model": _value(found.first),
        "baseline": _value(found.second),
        "difference": {
            "value": found.difference,
            "interval": found.interval,
            "standard_error": found.standard_error,
            "p_value": found.p_value,
        },
    }


def _value(found: CounterfactualValue) -> dict[str, Any]:
    return {
        "value": found.value,
        "interval": found.interval,
        "standard_error": found.standard_error,
        "effective_sample_size": found.effective_sample_size,
        "overlap": found.overlap,
        "documents_uncovered": len(found.uncovered),
    }


def _observed(log: ClickLog, metric: str) -> float | None:
    """Clicks per session at the first k positions of the log; None for metrics other than CTR."""
    kind, _, k = metric.partition("@")
    if kind != "ctr":
        return None
    return float(log.clicked[log.positions <= (int(k) if k else log.longest)].sum() / log.n_sessions)


def print_values(record: dict[str, Any], wrote: list[Path | None]) -> None:
    """Print the record of `evaluated_on_clicks`, one table per metric."""
    out = console()
    say(out, f"{record['data']}, {log_size(record)}", "bold")
    out.print()
    where = "" if record["bias_file"] is None else f"  ({record['bias_file']})"
    candidates = counted(record["candidates"], "document", "documents")
    clip = "" if record["clip"] is None else f", examination raised to at least {record['clip']:g}"
    print_facts(
        out,
        {
            "Model": record["model"],
            "Baseline": record["baseline"] or "the rankings in the log",
            "Ranked": f"{candidates} of {record['documents_file'] or 'the log'}",
            "Sessions": say_without(record),
            "Position bias": f"{record['bias']}{where}",
            "Estimator": f"{_METHODS[record['method']]}{clip}",
        },
    )
    out.print()
    for metric, found in record["metrics"].items():
        rows = [[who, *_cells(found[who]), ""] for who in ("model", "baseline")]
        change = found["difference"]
        rows.append(
            ["difference", f"{change['value']:+.4f}", _range(change["interval"], "+"), "", "", _p(change)]
        )
        print_columns(out, [metric, "per session", "95% interval", "effective", "overlap", "p-value"], rows)
        if found["observed"] is not None:
            say(out, f"Observed in the log: {found['observed']:.4f} clicks per session.", "dim")
            out.print()
    for text in _notes(record):
        say(out, text, "dim")
    say_written(out, *wrote)


def _cells(found: dict[str, Any]) -> list[str]:
    effective = f"{found['effective_sample_size']:,.0f}"
    return [f"{found['value']:.4f}", _range(found["interval"]), effective, f"{found['overlap']:.1%}"]


def _range(interval: tuple[float, float], sign: str = "") -> str:
    low, high = interval
    return "unknown" if np.isnan(low) else f"{low:{sign}.4f} to {high:{sign}.4f}"


def _p(change: dict[str, Any]) -> str:
    p = change["p_value"]
    return "" if np.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.4f}"


def _notes(record: dict[str, Any]) -> list[str]:
    """Explanations of the columns, and of what the numbers do not say."""
    notes = [
        "Effective: number of sessions that would be as informative if users examined every document that "
        "counts. Overlap: share of the ranking, by weight, that was examined in the log. The intervals do "
        "not include the error of the position bias."
    ]
    several = record["queries_with_several_rankings"]
    if record["baseline"] is None and several:
        notes.append(
            f"The log has several rankings of {counted(several, 'query', 'queries')}. The baseline combines "
            "them by the sum of 1 / position, and may be better than each of them."
        )
    if record["documents_file"] is None:
        notes.append("Only documents of the log are ranked. To rank all candidates, give --documents.")
    return notes
