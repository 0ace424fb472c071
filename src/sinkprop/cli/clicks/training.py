"""`sinkprop train --clicks`: a fit to labels without position bias, and the facts of its report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sinkprop.cli.clicks.bias_files import OF_THE_LOG, bias_of, fit_of, kind_of
from sinkprop.cli.clicks.logs import (
    ClickReading,
    chosen_sessions,
    for_the_shell,
    log_size,
    read_log,
    reworded,
    say_without,
    sizes,
)
from sinkprop.cli.output import counted, notes_on_stderr, working
from sinkprop.cli.reading import Reading, file_name, say_features
from sinkprop.cli.training_report import training_report

if TYPE_CHECKING:
    from sinkprop.clicks import ClickLog, DebiasedClicks
    from sinkprop.estimator.base import BaseRanker

__all__ = ["click_facts", "train_on_clicks"]

Method = Literal["doubly robust", "inverse propensity", "none"]


def train_on_clicks(
    ranker: BaseRanker,
    train: Path,
    model: Path,
    reading: ClickReading,
    *,
    feature_columns: str | None = None,
    vali: Path | None = None,
    bias: Path | None = None,
    clip: float | None = None,
    method: Method = "doubly robust",
) -> dict[str, Any]:
    """Fit a ranker to a click log, save it, and return the record of `training_report`.

    `bias` is a file of position bias, which is otherwise estimated, and `clip` and `method` are arguments of
    `sinkprop.clicks.debias`.
    """
    from sinkprop.clicks.reading import NO_FEATURES

    began = time.perf_counter()
    log = read_log(train, reading, feature_columns)
    names = log.documents.feature_names
    if names == (NO_FEATURES,):
        raise ValueError(
            f"{train}: the log has no feature columns, from which a ranker could learn. Give the features of "
            "the documents with --documents."
        )
    validation = None
    if vali is not None:
        validation = read_log(vali, reading, feature_columns, known=names, known_name=file_name(train))
        validation, _ = chosen_sessions(validation, reading)
    log, without = chosen_sessions(log, reading)
    read = time.perf_counter()
    labels, described = _labels(log, bias, clip, method)
    held_out = None
    if vali is not None and validation is not None:
        held_out = _like(labels, validation, file_name(vali))
    if reading.documents is None:
        say_features(names, Reading(feature_columns=feature_columns))
    with notes_on_stderr(for_the_shell, ignore=".*The fit was interrupted"):
        _fit(ranker, labels, held_out)
    fitted = time.perf_counter()
    ranker.save(model)
    documents = None if validation is None else validation.documents
    files = {"train": file_name(train), "vali": None if vali is None else file_name(vali)}
    seconds = {"reading": read - began, "training": fitted - read}
    clicks = {
        **labels.summary(),
        **sizes(log),
        **without,
        "bias": described,
        "bias_file": None if bias is None else str(bias),
        "documents_file": None if reading.documents is None else str(reading.documents),
        "validation": None if validation is None else sizes(validation),
    }
    return training_report(ranker, log.documents, documents, files, seconds=seconds, clicks=clicks)


def _labels(
    log: ClickLog, bias: Path | None, clip: float | None, method: Method
) -> tuple[DebiasedClicks, str | None]:
    """(labels, the position bias in words)."""
    from sinkprop.clicks import debias

    model, words = (None, None) if method == "none" else bias_of(log, bias)
    with working("estimating relevance"), reworded():
        return debias(log, model, method=method, clip=clip), words


def _like(labels: DebiasedClicks, log: ClickLog, name: str) -> DebiasedClicks:
    """Labels of the validation log by the same click model, method and clip."""
    from sinkprop.clicks import debias

    model = labels.model
    if model is not None and kind_of(model) not in OF_THE_LOG:
        there = len(model.examination_curve())
        if log.longest > there:
            raise ValueError(
                f"{name} has {log.longest} positions, but position bias is known for {there}; give --top "
                f"{there}."
            )
    with (
        working("estimating relevance of the validation log"),
        reworded(lambda message: f"{name}: {for_the_shell(message)}"),
    ):
        if model is not None and kind_of(model) == "dependent":  # which holds the relevance of documents
            model = fit_of("dependent", "auto")(log)
        return debias(log, model, method=labels.method, clip=labels.clip)


def _fit(ranker: BaseRanker, labels: DebiasedClicks, held_out: DebiasedClicks | None) -> None:
    try:
        ranker.fit(labels, eval_set=held_out)
    except ValueError as error:
        raise ValueError(for_the_shell(str(error))) from None


def click_facts(report: dict[str, Any]) -> dict[str, str]:
    """Facts {label: text} about the clicks and the documents, from the record of a training."""
    clicks, data = report["clicks"], report["data"]
    size, file = data["train"], clicks["documents_file"] or data["train"]["file"]
    candidates = counted(size["rows"], "document", "documents"), counted(size["queries"], "query", "queries")
    facts = {
        "Click log": f"{log_size(clicks)}  ({size['file']})",
        "Sessions": say_without(clicks),
        "Documents": (
            f"{' of '.join(candidates)}, {counted(size['features'], 'feature', 'features')}  ({file})"
        ),
    }
    if clicks["validation"] is not None:
        facts["Validation"] = f"{log_size(clicks['validation'])}  ({data['vali']['file']})"
    if clicks["bias"] is None:
        return facts | {"Labels": "click rates, with position bias"}
    where = "" if clicks["bias_file"] is None else f"  ({clicks['bias_file']})"
    curve = clicks["examination"]
    unknown = clicks["documents_unknown"]
    left = f"; {counted(unknown, 'document', 'documents')} left out, of unknown relevance" if unknown else ""
    return facts | {
        "Position bias": f"{clicks['bias']}{where}",
        "Examination": f"1 at position 1, {curve[-1] / curve[0]:.3f} at position {len(curve)}",
        "Labels": f"relevance, estimated from clicks without position bias ({clicks['method']}){left}",
        "Clip": _clip(clicks["clip"], clicks["clip_choice"]),
    }


def _clip(clip: float, choice: dict[str, Any] | None) -> str:
    what = f"examination raised to at least {clip:g}" if clip else "none"
    return what if choice is None else f"{what}, chosen from {len(choice['clips'])} by its estimated error"
