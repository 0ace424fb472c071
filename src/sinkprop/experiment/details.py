"""Details of a comparison that its report shows: training, weights, rank distributions, test queries.

The details are plain data. Their size is limited, however large the data set is: documents are kept for some
test queries only. Numbers are rounded, but never so that two documents swap places or different scores become
equal. The module `trace` describes the training of a ranker, and `weights` the weights of its features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.plain_data import plain_data
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Queries
from sinkprop.experiment.calibration import checked_calibration
from sinkprop.experiment.folds.files import AnyQueries
from sinkprop.experiment.rounding import rounded_scores, significant, whole_number
from sinkprop.experiment.scoring import predicted, ranked, rows_of_queries, taken_queries
from sinkprop.experiment.trace import training_of
from sinkprop.experiment.weights import weights_of
from sinkprop.metrics.ranking import ranking
from sinkprop.objective.relaxations import PartitionedMeasure, SmoothedIndicator

__all__ = ["Budget", "Details", "FoldData", "details_of", "fold_data", "shown_scores"]


MAX_QUERIES = 200  # maximum number of queries per data set whose documents are kept
# maximum number of scores, labels and document names, together, that a comparison keeps: a page of a few MB
MAX_VALUES = 160_000
LONGEST = 2_000  # queries with more documents are not kept: their rank distributions are too large to show
_MANY_LABELS = 32


@dataclass(frozen=True)
class Budget:
    """Limits on how many test queries of a fold are kept with all of their documents, for the report.

    queries    Maximum number of queries.
    documents  Maximum number of documents in all of these queries together.
    """

    queries: int
    documents: int

    @classmethod
    def of(cls, *, n_methods: int, n_folds: int, n_datasets: int) -> Budget:
        """Budget of one fold in a comparison with these numbers of methods, folds and data sets.

        >>> Budget.of(n_methods=2, n_folds=5, n_datasets=1)
        Budget(queries=40, documents=8000)
        """
        documents = MAX_VALUES // ((n_methods + 2) * n_folds * n_datasets)
        return cls(-(-MAX_QUERIES // n_folds), max(1, documents))

    def chosen(self, lengths: Integers) -> Integers:
        """Indices of the queries to keep: evenly spaced, as many as `queries` and `documents` allow.

        `lengths` has the number of documents of each query. Queries with more than 2,000 documents, the
        constant `LONGEST`, are never kept. Of the other queries, at least one is kept, even if it has more
        documents than the limit.

        >>> Budget(3, 100).chosen(np.array([10, 20, 3000, 30, 10, 10])).tolist()
        [0, 3, 5]
        """
        able = np.flatnonzero(lengths <= LONGEST)
        count = min(self.queries, len(able))
        while count:
            taken = able[np.round(np.linspace(0, len(able) - 1, count)).astype(np.int64)]
            if count == 1 or lengths[taken].sum() <= self.documents:
                return taken
            count -= 1
        return able[:0]


@dataclass(frozen=True, eq=False)
class FoldData:
    """Summary of a fold's queries, and the documents of some of its test queries.

    parts          {part: (number of queries, number of documents)}; the parts are "train", "vali", "test".
    n_features     Number of features.
    feature_names  Names of the features, or None.
    lengths        (Q,) number of documents of each test query.
    relevant       (Q,) number of relevant documents of each test query.
    labels         {label: (Q,) number of documents of each test query with that label}. If there are more
                   than 32 different labels, labels are first rounded down to whole numbers, and only the 32
                   smallest of these are counted.
    shown          (S,) indices of the test queries whose documents are kept.
    shown_labels   For each of these S queries, the labels (n,) of its n documents, in file order.
    shown_docids   For each of these S queries, the ids of its documents; None if they have no ids.
    """

    parts: Mapping[str, tuple[int, int]]
    n_features: int
    feature_names: tuple[str, ...] | None
    lengths: tuple[int, ...] = field(repr=False)
    relevant: tuple[int, ...] = field(repr=False)
    labels: Mapping[float, tuple[int, ...]] = field(repr=False)
    shown: tuple[int, ...] = field(repr=False)
    shown_labels: tuple[tuple[float, ...], ...] = field(repr=False)
    shown_docids: tuple[tuple[str, ...], ...] | None = field(repr=False)

    def as_record(self) -> dict[str, Any]:
        """The summary as plain data for JSON."""
        return {
            "parts": {part: list(sizes) for part, sizes in self.parts.items()},
            "n_features": self.n_features,
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "lengths": list(self.lengths),
            "relevant": list(self.relevant),
            "labels": {str(whole_number(label)): list(counts) for label, counts in self.labels.items()},
            "shown": list(self.shown),
            "shown_labels": [[whole_number(label) for label in own] for own in self.shown_labels],
            "shown_docids": None if self.shown_docids is None else [list(own) for own in self.shown_docids],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> FoldData:
        """Make a summary from the plain data that `as_record` returned for it."""
        names, docids = record["feature_names"], record["shown_docids"]
        return cls(
            {part: (int(queries), int(documents)) for part, (queries, documents) in record["parts"].items()},
            int(record["n_features"]),
            None if names is None else tuple(names),
            tuple(record["lengths"]),
            tuple(record["relevant"]),
            {float(label): tuple(counts) for label, counts in record["labels"].items()},
            tuple(record["shown"]),
            tuple(tuple(map(float, own)) for own in record["shown_labels"]),
            None if docids is None else tuple(map(tuple, docids)),
        )


@dataclass(frozen=True, eq=False)
class Details:
    """Details of a fitted ranker on a fold, other than its metrics. Each field may be empty or None.

    scores        For each query in `FoldData.shown`, the scores of its documents. Sorting by them gives the
                  ranker's ranking.
    parameters    For each of these queries, the two parameters per document, (n, 2), of a ranker that was
                  trained with a `PartitionedMeasure` without a shared scale; None for other rankers.
    distribution  Settings of the ranker's rank distributions, as a mapping. Its keys are kernel, sigma,
                  n_iter and epsilon for a `SmoothedIndicator`; family, n_iter, epsilon and, if all documents
                  share one, the scale sigma for a `PartitionedMeasure`; family, sigma and balance for
                  SoftRank, whose family is always "rank-binomial".
    training      Record of the training, as `training_of` returns it.
    weights       Weights of the features, as `weights_of` returns them: "kind" is "weight" or "importance",
                  "explanation" describes them in words, "values" (D,) has one number per feature, and
                  "missing", if it is there, the weights of the indicators of missing values.
    calibration   Calibration of the ranker: "mixture" has the parameters of its rank probabilities, as
                  `RankMixture.record` returns them, and "report" what `CalibrationReport.record` returns for
                  the test queries. None if the ranker has no calibration, or it was not asked for.
    """

    scores: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    parameters: tuple[tuple[tuple[float, float], ...], ...] | None = field(default=None, repr=False)
    distribution: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = field(default=None, repr=False)
    weights: Mapping[str, Any] | None = field(default=None, repr=False)
    calibration: Mapping[str, Any] | None = field(default=None, repr=False)

    def as_record(self) -> dict[str, Any]:
        """The details as plain data for JSON."""
        found: dict[str, Any] = {
            "distribution": None if self.distribution is None else dict(self.distribution),
            "weights": None if self.weights is None else dict(self.weights),
            "training": None if self.training is None else _training_columns(self.training),
            "scores": [list(own) for own in self.scores],
        }
        if self.parameters is not None:
            found["parameters"] = [
                [list(column) for column in zip(*own, strict=True)] for own in self.parameters
            ]
        if self.calibration is not None:
            found["calibration"] = dict(self.calibration)
        return found

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Details:
        """Make details from the plain data that `as_record` returned for them."""
        parameters, training = record.get("parameters"), record["training"]
        return cls(
            tuple(tuple(map(float, own)) for own in record["scores"]),
            None if parameters is None else tuple(tuple(zip(*own, strict=True)) for own in parameters),
            record["distribution"],
            None if training is None else _training_steps(training),
            record["weights"],
            record.get("calibration"),
        )


def _training_columns(training: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the steps of a training record, a list of mappings, to one list per key.

    As JSON, the result has about a tenth of the lines.
    """
    steps = training["steps"]
    names = list(dict.fromkeys(name for step in steps for name in step))
    return {**training, "steps": {name: [step.get(name) for step in steps] for name in names}}


def _training_steps(training: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `_training_columns`: convert the steps of a training record back to one mapping per step."""
    columns = training["steps"]
    rows = zip(*columns.values(), strict=True)
    return {**training, "steps": [dict(zip(columns, row, strict=True)) for row in rows]}


def fold_data(
    parts: Mapping[str, AnyQueries | None], *, threshold: float = 1.0, budget: Budget | None = None
) -> FoldData:
    """Summary of a fold.

    parts      Queries of the fold: {"train": ..., "vali": ..., "test": ...}.
    threshold  Smallest label of a relevant document.
    budget     Limits on the test queries whose documents are kept; None keeps no documents.
    """
    test = parts["test"]
    if test is None:
        raise ValueError("parts must hold the test queries.")
    if isinstance(test, Queries):
        offsets, rows = test.groups.offsets, test.groups.rows
        grades = test.y if rows is None else test.y[rows]
    else:
        offsets, grades = test.offsets, test.labels()
    lengths = np.diff(offsets)
    relevant = np.add.reduceat((grades >= threshold).astype(np.int64), offsets[:-1])
    if len(np.unique(grades)) > _MANY_LABELS:
        grades = np.floor(grades)
    counts = {
        float(label): tuple(np.add.reduceat((grades == label).astype(np.int64), offsets[:-1]).tolist())
        for label in np.unique(grades)[:_MANY_LABELS]
    }
    shown = np.arange(0) if budget is None else budget.chosen(lengths)
    labels: list[NDArray[Any]] = []
    docids = None
    if len(shown):
        kept = taken_queries(test, shown)
        ends = np.cumsum(lengths[shown])[:-1]
        labels = np.split(kept.y, ends)
        if kept.docid is not None:
            docids = tuple(tuple(map(str, own.tolist())) for own in np.split(kept.docid, ends))
    elif isinstance(test, Queries) and test.docid is not None:
        docids = ()
    return FoldData(
        {name: (part.n_queries, len(part)) for name, part in parts.items() if part is not None},
        test.n_features,
        test.feature_names,
        tuple(lengths.tolist()),
        tuple(relevant.tolist()),
        counts,
        tuple(shown.tolist()),
        tuple(tuple(own.tolist()) for own in labels),
        docids,
    )


def details_of(
    ranker: Any,
    test: AnyQueries,
    data: FoldData,
    *,
    train: AnyQueries | None = None,
    vali: AnyQueries | None = None,
    calibration: bool = False,
) -> Details:
    """Details of a fitted ranker of any kind, with its scores on the test queries in `data.shown`.

    test         Test queries of the fold.
    data         Summary of the fold.
    train        Queries that give the standard deviations of the features, for the weights; None uses `test`.
    vali         Queries on which permutation importances are measured; None uses `test`.
    calibration  Whether to check the ranker's calibration on all test queries.
    """
    scores, parameters = _document_scores(ranker, test, data)
    weights = weights_of(
        ranker,
        rows=test if train is None else train,
        measured_on=test if vali is None else vali,
        held_out=vali is not None,
    )
    checked = _calibration_of(ranker, test) if calibration else None
    return Details(scores, parameters, distribution_of(ranker), training_of(ranker), weights, checked)


def _calibration_of(ranker: Any, test: AnyQueries) -> dict[str, Any] | None:
    if getattr(ranker, "calibration_", None) is None:
        return None
    mixture = ranker.calibration_.mixture.record()
    report = checked_calibration(ranker, ranker.predict(test), test)
    return {"mixture": plain_data(mixture), "report": report.record()}


def shown_scores(scores: Floats, test: Queries, data: FoldData) -> tuple[tuple[float, ...], ...]:
    """Scores (N,) of all test documents, for the queries in `data.shown` and rounded as in `Details`."""
    return tuple(rounded_scores(scores[rows]) for rows in rows_of_queries(test, data.shown))


def _document_scores(
    ranker: Any, test: AnyQueries, data: FoldData
) -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[tuple[float, float], ...], ...] | None]:
    if not data.shown:
        return (), None
    lengths = np.array(data.lengths)[list(data.shown)]
    ends = np.cumsum(lengths)[:-1]
    queries = taken_queries(test, data.shown)
    relaxation = getattr(ranker, "relaxation_", None)
    ranks = None
    if callable(getattr(ranker, "rank", None)):
        ranks = ranked(ranker, queries)
    parameters = None
    if relaxation is not None and relaxation.width == 2 and ranks is not None:
        # the ranking comes from an assignment of documents to ranks, not from scores
        scores = -ranks.astype(np.float64)
        theta = np.asarray(ranker.outputs(queries), dtype=np.float64)
        parameters = tuple(
            tuple((significant(a), significant(b)) for a, b in own.tolist()) for own in np.split(theta, ends)
        )
    elif ranks is not None and not callable(getattr(ranker, "predict", None)):
        scores = -ranks.astype(np.float64)
    else:
        scores = predicted(ranker, queries)
        if ranks is not None and not np.array_equal(ranking(scores, queries.qid).ranks, ranks):
            scores = -ranks.astype(np.float64)
    return tuple(rounded_scores(own) for own in np.split(scores, ends)), parameters


def distribution_of(ranker: Any) -> dict[str, Any] | None:
    """Settings of the rank distributions with which a ranker was trained, or None.

    `Details` describes the keys under `distribution`. None means that the ranker has no rank distributions.
    """
    relaxation = getattr(ranker, "relaxation_", None)
    n_iter = getattr(ranker, "n_iter", None)
    settings = {"n_iter": plain_data(n_iter), "epsilon": getattr(ranker, "epsilon", None)}
    if isinstance(relaxation, SmoothedIndicator):
        return {"kernel": relaxation.kernel, "sigma": float(relaxation.sigma), **settings}
    if isinstance(relaxation, PartitionedMeasure):
        scale = {} if relaxation.sigma is None else {"sigma": relaxation.sigma}
        return {"family": relaxation.family, **scale, **settings}
    from sinkprop.baselines import SoftRankRanker

    if isinstance(ranker, SoftRankRanker):
        return {"family": "rank-binomial", "sigma": float(ranker.sigma_), "balance": ranker.balance}
    return None
