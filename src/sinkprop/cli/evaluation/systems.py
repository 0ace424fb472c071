"""Systems: what documents are ranked by, which is a model, scores of a file, a feature or a TREC run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sinkprop.cli.output import complain, notes_on_stderr
from sinkprop.cli.reading import (
    document_names,
    file_name,
    query_names,
    ranks_by_score,
    read_bytes,
    with_features_of,
)
from sinkprop.common.types import Floats
from sinkprop.data.queries import Queries

if TYPE_CHECKING:
    from sinkprop.estimator.base import BaseRanker
    from sinkprop.store import StoredQueries

__all__ = ["by_feature", "by_model", "by_rows", "feature_column", "read_run", "read_scores"]


def by_model(ranker: BaseRanker, model_name: str, data_name: str) -> Callable[[Queries], Floats]:
    """Return a function that scores the documents of queries with a model.

    If the model does not rank by its scores (see `ranks_by_score`), the function returns negated ranks.
    """
    said: set[str] = set()

    def score(queries: Queries) -> Floats:
        own = with_features_of(ranker, queries, model_name=model_name, data_name=data_name)
        with notes_on_stderr(said=said):
            return ranker.predict(own) if ranks_by_score(ranker) else -ranker.rank(own).astype(np.float64)

    return score


def by_rows(values: Floats) -> Callable[[Queries], Floats]:
    """Return a function that returns the slice of `values` (N,) for a block of queries.

    It must be called on all blocks in order, since it counts the rows that were passed to it.
    """
    done = 0

    def score(queries: Queries) -> Floats:
        nonlocal done
        done += len(queries)
        return values[done - len(queries) : done]

    return score


def by_feature(column: int, feature: str, data_name: str) -> Callable[[Queries], Floats]:
    """Return a function that returns a feature of queries, or raises a ValueError if a value is missing."""

    def score(queries: Queries) -> Floats:
        values: Floats = queries.X[:, column].astype(np.float64)
        if np.isnan(values).any():
            raise ValueError(
                f"--feature {feature!r}: some documents of {data_name} have no value (NaN) of the feature, "
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


def read_run(path: Path, queries: Queries, data_name: str) -> Floats:
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
        complain(
            f"note: {int(absent.sum()):,} of {len(values):,} rows are not in {name}; they rank last in their "
            "queries.",
            0,
        )
        # Replace each score by its index among the distinct sorted scores, so that -1 is below all of them.
        values = np.unique(values, return_inverse=True)[1].astype(np.float64)
        values[absent] = -1
    return values


def feature_column(
    feature: str, queries: Queries | StoredQueries, data_name: str, *, zero_based: bool
) -> int:
    """Return the column index of a feature, given its name or its id in the file."""
    if feature in queries.categories:
        raise ValueError(
            f"--feature {feature!r}: the feature has categories in {data_name}, by which documents cannot be "
            "ranked."
        )
    if queries.feature_names is not None and feature in queries.feature_names:
        return queries.feature_names.index(feature)
    first = 0 if zero_based else 1
    if feature.isascii() and feature.isdigit() and first <= int(feature) < first + queries.n_features:
        return int(feature) - first
    named = "" if queries.feature_names is None else "; you can also give a column name"
    raise ValueError(
        f"--feature {feature!r}: {data_name} has the features {first} to {queries.n_features - 1 + first}"
        f"{named}."
    )
