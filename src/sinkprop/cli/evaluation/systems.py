"""Systems as scores: the queries of a file, and functions that score them by each system."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkprop.cli.evaluation.options import System
from sinkprop.cli.output import complain, counted, notes_on_stderr
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
from sinkprop.common.types import Floats
from sinkprop.data.frames import frame_columns, number_column
from sinkprop.data.queries import Queries
from sinkprop.metrics.conventions import Convention
from sinkprop.metrics.evaluation import Evaluation, evaluate, evaluate_blocks
from sinkprop.metrics.measures import Metric

if TYPE_CHECKING:
    from sinkprop.estimator.base import BaseRanker
    from sinkprop.store import StoredQueries

__all__ = ["RankedFile", "read_scores"]

_Scorer = Callable[[Queries], Floats]


@dataclass(frozen=True, eq=False)
class RankedFile:
    """The queries of a file, and the systems that rank their documents.

    path     The file, "-" for stdin, or a stored set.
    queries  Its queries; those of a stored set stay on disk.
    rankers  The systems that are models, loaded.
    reading  Options with which the file was read.
    """

    path: Path
    queries: Queries | StoredQueries
    rankers: Mapping[System, BaseRanker]
    reading: Reading

    @classmethod
    def read(
        cls, path: Path, reading: Reading, systems: Sequence[System], *, labeled: bool = True
    ) -> RankedFile:
        """Load the models among the systems, then read the queries, which have labels if `labeled`.

        A column of scores of a Parquet file is not a feature, unless a model was trained on it.
        """
        rankers = {s: read_model_file(s.path) for s in systems if s.kind == "model" and s.path is not None}
        known = {name for ranker in rankers.values() for name in _features_of(ranker)}
        columns = {s.column for s in systems if s.column is not None} - known
        queries = read_data(path, reading, labeled=labeled, rankers=rankers.values(), without=columns)
        return cls(path, queries, rankers, reading)

    @property
    def name(self) -> str:
        """Name of the file for messages."""
        return file_name(self.path)

    def loaded(self) -> Queries:
        """The queries in memory."""
        return self.queries if isinstance(self.queries, Queries) else self.queries.load()

    def scorer(self, system: System) -> _Scorer:
        """Return a function that scores the documents of queries of this file.

        It must be called once on all queries, or on all blocks in order.
        """
        if system in self.rankers:
            ranker = self.rankers[system]
            check_missing(ranker, self.queries)
            others = {name for other in self.rankers.values() for name in _features_of(other)}
            return _by_model(ranker, file_name(Path(system.value)), self.name, others)
        if system.kind == "run":
            known = self.queries if isinstance(self.queries, Queries) else self.queries.without_features()
            return _by_rows(_read_run(Path(system.value), known, self.name))
        if system.path is not None:
            return _by_rows(read_scores(system.path, len(self.queries), self.name))
        if system.column is not None and self.path.name.endswith(".parquet") and not self.path.is_dir():
            return _by_rows(_read_column(self.path, system.column, system.option))
        feature = system.column or system.value
        place = _feature_column(
            feature, self.queries, self.name, system.option, zero_based=self.reading.zero_based
        )
        return _by_feature(place, system.option, self.name)

    def scores(self, system: System) -> Floats:
        """Scores (N,) of all documents by a system."""
        return np.concatenate(list(over_blocks(self.queries, "ranking", self.scorer(system))))

    def evaluation(
        self,
        system: System,
        metrics: str | Sequence[Metric],
        convention: str | Convention,
        **options: Any,
    ) -> Evaluation:
        """Metrics of the ranking by a system. `options` are keyword arguments of `sinkprop.evaluate`."""
        queries, score = self.queries, self.scorer(system)
        if isinstance(queries, Queries):
            (ranked,) = over_blocks(queries, "evaluating", score)
            return evaluate(queries.y, ranked, queries.qid, metrics, convention, **options)
        return evaluate_blocks(
            over_blocks(queries, "evaluating", lambda block: (block.y, score(block), block.groups)),
            queries.query_ids,
            queries.largest_label,
            metrics,
            convention,
            **options,
        )


def _features_of(ranker: BaseRanker) -> Collection[str]:
    """Names of the features of a ranker; none if it was trained on features without names."""
    return tuple(map(str, getattr(ranker, "feature_names_in_", ())))


def _by_model(ranker: BaseRanker, model_name: str, data_name: str, others: Collection[str]) -> _Scorer:
    """Return a function that scores the documents of queries with a model.

    If the model does not rank by its scores (see `ranks_by_score`), the function returns negated ranks.
    `others` are features of all models that are compared, which this one need not have.
    """
    said: set[str] = set()

    def score(queries: Queries) -> Floats:
        own = with_features_of(ranker, queries, model_name=model_name, data_name=data_name, others=others)
        with notes_on_stderr(said=said):
            return ranker.predict(own) if ranks_by_score(ranker) else -ranker.rank(own).astype(np.float64)

    return score


def _by_rows(values: Floats) -> _Scorer:
    """Return a function that returns the slice of `values` (N,) for a block of queries.

    It must be called on all blocks in order, since it counts the rows that were passed to it.
    """
    done = 0

    def score(queries: Queries) -> Floats:
        nonlocal done
        done += len(queries)
        return values[done - len(queries) : done]

    return score


def _by_feature(column: int, option: str, data_name: str) -> _Scorer:
    """Return a function that returns a feature of queries, or raises a ValueError if a value is missing.

    `option` is the option that names the feature, for the message.
    """

    def score(queries: Queries) -> Floats:
        values: Floats = queries.X[:, column].astype(np.float64)
        if np.isnan(values).any():
            raise ValueError(
                f"{option}: some documents of {data_name} have no value (NaN) of the feature, "
                "and cannot be ranked by it."
            )
        return values

    return score


def _read_lines(path: Path) -> list[str]:
    return read_bytes(path).decode("utf-8", "surrogateescape").split("\n")


def read_scores(path: Path, n: int, data_name: str) -> Floats:
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
        none = int((np.add.reduceat(~absent[rows], groups.offsets[:-1], dtype=np.int64) == 0).sum())
        ranked_so = "they rank last in their queries."
        if none:
            size = counted(none, "query has no row in it and keeps", "queries have no row in it and keep")
            ranked_so += f" {size} the order of the data."
        complain(
            f"note: {int(absent.sum()):,} of {len(values):,} rows are not in {name}; {ranked_so}",
            0,
        )
        # Replace each score by its index among the distinct sorted scores, so that -1 is below all of them.
        values = np.unique(values, return_inverse=True)[1].astype(np.float64)
        values[absent] = -1
    return values


def _read_column(path: Path, name: str, option: str) -> Floats:
    """Read a column of finite numbers of a Parquet file. `option` names the column in messages."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        if name not in names:
            shown = ", ".join(map(repr, names[:20])) + (" and more" if len(names) > 20 else "")
            meant = _meant(name, names) or f" It has {shown}."
            raise ValueError(f"{option}: {path} has no column {name!r}.{meant}")
        _, column = frame_columns(file.read(columns=[name]))
    try:
        return number_column(column, name, "Scores are numbers.", "Every row needs a score.").astype(
            np.float64
        )
    except ValueError as error:
        raise ValueError(f"{option}: {path}: {error}") from None


def _meant(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _feature_column(
    feature: str, queries: Queries | StoredQueries, data_name: str, option: str, *, zero_based: bool
) -> int:
    """Return the column index of a feature, given its name or its id in the file.

    `option` names the feature in messages.
    """
    if feature in queries.categories:
        raise ValueError(
            f"{option}: the feature has categories in {data_name}, by which documents cannot be ranked."
        )
    if queries.feature_names is not None and feature in queries.feature_names:
        return queries.feature_names.index(feature)
    first = 0 if zero_based else 1
    if feature.isascii() and feature.isdigit() and first <= int(feature) < first + queries.n_features:
        return int(feature) - first
    names = queries.feature_names
    named = "." if names is None else f"; you can also give a column name.{_meant(feature, names)}"
    raise ValueError(
        f"{option}: {data_name} has the features {first} to {queries.n_features - 1 + first}{named}"
    )
