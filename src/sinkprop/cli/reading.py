"""Input of the commands: queries from LETOR text, Parquet or stored sets, and saved models."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
import numpy as np

from sinkprop.cli.output import complain, counted, notes_on_stderr, working
from sinkprop.data.frames import feature_columns
from sinkprop.data.queries import Queries

if TYPE_CHECKING:
    from sinkprop.estimator.base import BaseRanker
    from sinkprop.store import StoredQueries

__all__ = [
    "Reading",
    "check_missing",
    "document_names",
    "file_name",
    "matched_columns",
    "option_of",
    "over_blocks",
    "query_names",
    "ranks_by_score",
    "read_bytes",
    "read_data",
    "read_model_file",
    "read_queries",
    "say_features",
    "with_features_of",
    "with_options",
]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Reading:
    """Values of the options for reading files.

    The options n_features, null, zero_based and group apply to LETOR text. The option categorical, and those
    whose names end in column or columns, apply to Parquet and CSV. The option split_queries applies to all
    files.
    """

    n_features: int | None = None
    null: float | None = None
    zero_based: bool = False
    group: Path | None = None
    qid_column: str | None = None
    label_column: str | None = None
    docid_column: str | None = None
    feature_columns: str | None = None
    categorical: str | None = None
    split_queries: str | None = None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Reading:
        """Remove the options for reading files from a command's options and return them."""
        return cls(**{field.name: options.pop(field.name) for field in fields(cls)})

    @property
    def of_files(self) -> dict[str, Any]:
        """Keyword arguments for the readers of all kinds of files."""
        return {} if self.split_queries is None else {"split_queries": self.split_queries}

    @property
    def of_text(self) -> dict[str, Any]:
        """Keyword arguments for the readers of LETOR text."""
        return {
            "n_features": self.n_features,
            "null": self.null,
            "zero_based": self.zero_based or None,
            "group": self.group,
        }

    @property
    def of_columns(self) -> dict[str, Any]:
        """Keyword arguments for the readers of Parquet and CSV."""
        return {
            "qid": self.qid_column,
            "label": self.label_column,
            "docid": self.docid_column,
            "features": _listed(self.feature_columns),
            "categorical": _listed(self.categorical),
        }


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",")]


def option_of(argument: str) -> str:
    """Return the option that sets a reader's argument, such as --qid-column for qid, --null for null."""
    if argument == "features":
        return "--feature-columns"
    return f"--{argument.replace('_', '-')}" + ("-column" if argument in ("qid", "label", "docid") else "")


def read_data(
    path: Path,
    reading: Reading,
    *,
    labeled: bool = True,
    rankers: Collection[BaseRanker] = (),
    without: Collection[str] = (),
) -> Queries | StoredQueries:
    """Read the queries of a file into memory, or open a stored set, whose rows stay on disk.

    `rankers` are the rankers that will use the queries, and `without` names columns that are not features;
    see `read_queries`. Raises a usage error if an option
    for reading files is given for a stored set.
    """
    if not path.is_dir():
        return read_queries(path, reading, labeled=labeled, rankers=rankers, without=without)
    from sinkprop.store import open_queries

    for field, value in vars(reading).items():
        if value is not None and value is not False:
            raise click.UsageError(
                f"--{field.replace('_', '-')} applies only to files, but {str(path)!r} is a stored set; "
                "give the option to `sinkprop convert`."
            )
    try:
        stored = open_queries(path)
    except ImportError as error:
        raise click.UsageError(f"{path}: {error}.") from None
    if labeled:
        stored.require_labels("this command")
    return stored


def check_missing(ranker: BaseRanker, data: Queries | StoredQueries) -> None:
    """Raise a ValueError if a stored set has missing values (NaN) and the ranker does not support them."""
    if not isinstance(data, Queries) and not ranker.__sklearn_tags__().input_tags.allow_nan:
        data.require_finite(type(ranker).__name__)


def over_blocks(
    data: Queries | StoredQueries, what: str, function: Callable[[Queries], Result]
) -> Iterator[Result]:
    """Yield the results of a function on all queries in memory, or on each block of a stored set.

    A progress line is shown while the function runs. It is erased before the result is yielded, so that the
    caller can print the result.
    """
    done = 0
    for block in [data] if isinstance(data, Queries) else data.blocks():
        share = f", {done / len(data):.0%} done" if done else ""
        with working(f"{what} {len(data):,} documents{share}"):
            result = function(block)
        done += len(block)
        yield result


def read_queries(
    path: Path,
    reading: Reading,
    *,
    labeled: bool = True,
    rankers: Collection[BaseRanker] = (),
    without: Collection[str] = (),
) -> Queries:
    """Read queries into memory from a file, from stdin if the path is "-", or from a stored set.

    If `labeled` is False, Parquet may have no column of labels; all labels are then 0. Missing values are
    kept if all `rankers` accept them, and columns in which a ranker has categories are read as categories.
    The columns `without` of Parquet are not features, unless an option names the features. Error messages
    name command-line options instead of Python arguments.
    """
    if path.is_dir():
        data = read_data(path, reading, labeled=labeled)
        with working(f"reading {path}, {len(data):,} documents"):
            return data if isinstance(data, Queries) else data.load()

    from sinkprop.data.letor import load_letor, load_queries

    size = f", {path.stat().st_size / 1e6:,.0f} MB" if path.is_file() else ""
    options = _options(path, reading, rankers, without)
    if not labeled and path.name.endswith(".parquet") and not {"label"} & {*options, *_columns(path)}:
        options["label"] = None
    try:
        with working(f"reading {'stdin' if str(path) == '-' else path}{size}"), notes_on_stderr(with_options):
            if str(path) == "-":
                with reading_stdin() as stdin:
                    return load_letor(stdin, **options)
            return load_queries(path, **options)
    except ImportError as error:
        raise click.UsageError(f"{path}: {error}.") from None
    except ValueError as error:
        raise ValueError(with_options(str(error))) from None
    except MemoryError as error:
        raise MemoryError(f"{path}: not enough memory to read it. {error}") from None


def read_bytes(path: Path) -> bytes:
    """Read a whole file, or stdin if the path is "-"."""
    if str(path) != "-":
        return path.read_bytes()
    with reading_stdin() as stdin:
        return stdin.read()


@contextmanager
def reading_stdin() -> Iterator[IO[bytes]]:
    """Context manager: give stdin as a stream of bytes. An OSError of the system names it as its file."""
    try:
        yield sys.stdin.buffer
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, "stdin") from None


def _options(
    path: Path, reading: Reading, rankers: Collection[BaseRanker], without: Collection[str]
) -> dict[str, Any]:
    """Return the reader's arguments for this file. Raises a usage error for an option of another format."""
    parquet = path.name.endswith(".parquet")
    text, columns = reading.of_text, reading.of_columns
    for name, value in (text if parquet else columns).items():
        if value is not None:
            kind = "LETOR text, but {} is Parquet" if parquet else "Parquet, but {} does not end in .parquet"
            raise click.UsageError(f"{option_of(name)} applies only to {kind.format(repr(str(path)))}.")
    if parquet and reading.docid_column is None and "docid" in _columns(path):
        columns["docid"] = "docid"
    if parquet and without and columns["features"] is None:
        columns["features"] = _features_but(path, columns, without)
    if parquet:
        there = set(_columns(path) if columns["features"] is None else columns["features"])
        known = [name for ranker in rankers for name in _categories_in(ranker) if name in there]
        columns["categorical"] = list(dict.fromkeys([*(columns["categorical"] or ()), *known])) or None
    given = columns if parquet else text
    found = reading.of_files | {name: value for name, value in given.items() if value is not None}
    if "null" not in found and all(ranker.__sklearn_tags__().input_tags.allow_nan for ranker in rankers):
        found["allow_nan"] = True
    return found


def _categories_in(ranker: BaseRanker) -> Collection[str]:
    """Names of the features in which a fitted ranker has categories; none if it is not fitted."""
    return getattr(ranker, "categories_", ()) if hasattr(ranker, "n_features_in_") else ()


def _columns(path: Path) -> Sequence[str]:
    """Return the column names of a Parquet file; () if it is unreadable, which `load_queries` will report."""
    with suppress(ImportError, OSError, ValueError):
        import pyarrow.parquet as pq

        return list(pq.read_schema(path).names)
    return ()


def _features_but(path: Path, columns: dict[str, Any], without: Collection[str]) -> list[str] | None:
    """Return the feature columns of a Parquet file except `without`.

    None if none are left or the file is unreadable, which `load_queries` will report.
    """
    with suppress(ImportError, OSError, ValueError):
        import pyarrow.parquet as pq

        table = pq.read_schema(path).empty_table()
        roles = {"qid": columns["qid"] or "qid", "label": columns["label"] or "label"}
        names = feature_columns(table, table.column_names, **roles, docid=columns["docid"], features=None)
        return [name for name in names if name not in without] or None
    return None


def say_features(names: Sequence[str] | None, reading: Reading) -> None:
    """Say on stderr which columns of a table became features, unless the command names them."""
    if names is not None and reading.feature_columns is None:
        listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
        verb = counted(len(names), "column is a feature", "columns are features")
        complain(f"note: {verb}: {listed}; to choose the features, give --feature-columns.", 0)


_LISTED = 12  # number of features that a note lists
_WORDS = {
    "zero_based=True": "--zero-based",
    "features=[...]": "--feature-columns",
    "categorical=[...]": "--categorical",
    "pass split_queries='join'": "give --split-queries join",
    "raise join_bytes": "give a larger --join-bytes",
    "pass allow_nan=True to keep missing values, for rankers that accept them, such as BoostedRanker": (
        "use a model that accepts missing values, such as one of --method boosted"
    ),
}


def with_options(message: str) -> str:
    """Replace the Python arguments in a reader's message with options, such as null=0 with --null 0."""
    for words, option in _WORDS.items():
        message = message.replace(words, option)
    message = re.sub(r"^(.*\.parquet: )features: (?=')", r"\1--feature-columns ", message)
    message = re.sub(r"\bcategorical: (?=')", "--categorical ", message)
    message = re.sub(
        r"\b(n_features|null|group)=(?=(\w?))",
        lambda found: option_of(found[1]) + (" " if found[2] else ""),
        message,
    )
    return re.sub(r"\b(qid|label|docid)=(?=')", r"--\1-column ", message)


def read_model_file(path: Path) -> BaseRanker:
    from sinkprop.registry import load_model

    try:
        with working(f"reading {path}"):
            return load_model(path)
    except ImportError as error:
        raise click.UsageError(f"{path}: {error}.") from None


def with_features_of(
    model: BaseRanker, queries: Queries, *, model_name: str, data_name: str, others: Collection[str] = ()
) -> Queries:
    """Return the queries with their features in the model's order, matched by name if both have names.

    `others` are features that the queries may have and the model need not have, such as those of another
    model. Raises a ValueError if the names differ or, without names, if the numbers of features differ.
    """
    known = getattr(model, "feature_names_in_", None)
    if known is not None and queries.feature_names is not None:
        there = set(known)
        own = [i for i, name in enumerate(queries.feature_names) if name in there or name not in others]
        names = [queries.feature_names[i] for i in own]
        columns = [own[i] for i in matched_columns(known, names, model_name, data_name)]
        if columns == list(range(queries.n_features)):
            return queries
        return replace(
            queries,
            X=queries.X[:, columns],
            feature_names=tuple(map(str, known)),
            categories={name: kept for name, kept in queries.categories.items() if name in there},
            ordered=tuple(name for name in queries.ordered if name in there),
        )
    if queries.n_features != model.n_features_in_:
        hint = ""
        if queries.n_features < model.n_features_in_:
            hint = f" If lines of {data_name} omit zeros, add --n-features {model.n_features_in_}."
        raise ValueError(
            f"{model_name} was trained on {model.n_features_in_} features, but {data_name} has "
            f"{queries.n_features}; they must be the same.{hint}"
        )
    return queries


def ranks_by_score(model: BaseRanker) -> bool:
    """Whether the model ranks by its scores.

    A model that was trained with a `PartitionedMeasure` does not: it has two outputs per document, from which
    it computes rank probabilities, and these decide which document gets which rank.
    """
    relaxation = getattr(model, "relaxation_", None)
    return relaxation is None or relaxation.width == 1


def matched_columns(
    known: Sequence[str], given: Sequence[str], known_name: str, given_name: str
) -> list[int]:
    """Return the index of each known feature in `given`. Raises a ValueError if the two sets differ."""
    missing, unknown = (
        [name for name in names if name not in others]
        for names, others in ((known, set(given)), (given, set(known)))
    )
    if missing or unknown:
        differences = [
            f"{what} {', '.join(map(repr, names[:3]))}" + (f" and {len(names) - 3} more" if names[3:] else "")
            for what, names in (("missing", missing), ("unexpected", unknown))
            if names
        ]
        hint = "" if missing else " Select features with --feature-columns."
        raise ValueError(
            f"{given_name} does not have the features of {known_name}: {'; '.join(differences)}.{hint}"
        )
    places = {name: i for i, name in enumerate(given)}
    return [places[name] for name in known]


def document_names(queries: Queries, data_name: str) -> list[str]:
    """One name per row for a TREC run: the docid, or the row's position within its query if it has none.

    Raises a ValueError if two rows of a query have the same name, or a name is not a single word.
    """
    n, groups = len(queries), queries.groups
    names = [""] * n if queries.docid is None else [str(name) for name in queries.docid.tolist()]
    rows = np.arange(n) if groups.rows is None else groups.rows
    for q, (first, last) in enumerate(zip(groups.offsets[:-1], groups.offsets[1:], strict=True)):
        seen = set()
        for number, row in enumerate(rows[first:last].tolist(), 1):
            name = names[row] = names[row] or str(number)
            if name in seen or name.split() != [name]:
                what = "occurs twice" if name in seen else "is not a single word"
                raise ValueError(
                    f"{data_name}: the docid {name!r} {what} in query {groups.queries[q]}; a TREC run needs "
                    "a different single word for each document of a query."
                )
            seen.add(name)
    return names


def query_names(queries: Queries, data_name: str) -> list[str]:
    """Query ids as text for a TREC run, in the order of `queries.groups.queries`.

    Raises a ValueError if an id contains white space, which separates the columns of a run.
    """
    names = [str(q) for q in queries.groups.queries.tolist()]
    for name in names:
        if name.split() != [name]:
            raise ValueError(f"{data_name}: the query id {name!r} must be a single word in a TREC run.")
    return names


def file_name(path: Path) -> str:
    return "stdin" if str(path) == "-" else os.fspath(path)
