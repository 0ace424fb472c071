"""Click logs on the command line: their reading, their size in words, and messages about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from sinkprop.cli.output import counted, notes_on_stderr, working
from sinkprop.cli.reading import Reading, read_queries, with_options

if TYPE_CHECKING:
    from sinkprop.clicks import ClickLog

__all__ = [
    "ClickReading",
    "chosen_sessions",
    "for_the_shell",
    "log_size",
    "read_log",
    "reworded",
    "say_without",
    "sizes",
]


@dataclass(frozen=True)
class ClickReading:
    """Values of the options for reading click logs."""

    query_column: str | None = None
    document_column: str | None = None
    position_column: str | None = None
    clicked_column: str | None = None
    session_column: str | None = None
    propensity_column: str | None = None
    policy_column: str | None = None
    value_column: str | None = None
    without_clicks: str | None = None
    top: int | None = None
    documents: Path | None = None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> ClickReading:
        """Remove the options for reading click logs from a command's options and return them."""
        return cls(**{field.name: options.pop(field.name) for field in fields(cls)})

    @property
    def columns(self) -> dict[str, Any]:
        """Keyword arguments for `read_clicks` that name columns."""
        given = {argument: getattr(self, f"{name}_column") for argument, name in _COLUMNS.items()}
        found = {argument: column for argument, column in given.items() if column is not None}
        return found | ({"doc": None} if found.get("doc") == "none" else {})


# {argument of read_clicks: first word of the option}
_COLUMNS = {
    "query": "query",
    "doc": "document",
    "position": "position",
    "clicked": "clicked",
    "session": "session",
    "propensity": "propensity",
    "policy": "policy",
    "value": "value",
}


def read_log(
    path: Path,
    reading: ClickReading,
    feature_columns: str | None = None,
    *,
    known: Sequence[str] | None = None,
    known_name: str = "the training log",
) -> ClickLog:
    """Read a click log from a file or a folder of Parquet files.

    `feature_columns` is the value of the option, and `known` are the features of `known_name`, to read if it
    is not given. Error messages name command-line options instead of Python arguments.
    """
    from sinkprop.clicks import read_clicks

    if str(path) == "-":
        raise click.UsageError("a click log is read from a Parquet or CSV file, not from stdin.")
    features = None if known is None else list(known)
    if feature_columns is not None:
        listed = [name.strip() for name in feature_columns.split(",")]
        features = [] if listed == ["none"] else listed
    elif known is not None:
        _require_features(path, reading.documents, known, known_name)
    size = f", {path.stat().st_size / 1e6:,.0f} MB" if path.is_file() else ""
    given: dict[str, Any] = dict(reading.columns)
    if reading.documents is not None:
        given["documents"] = _documents(reading.documents, reading, features)
    else:
        given["features"] = features
    try:
        with working(f"reading {path}{size}"), reworded():
            log = read_clicks(path, **given)
            if reading.top is not None:
                log = log.first(reading.top)
    except ImportError as error:
        raise click.UsageError(f"{path}: {error}.") from None
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
    if not log.n_clicks:
        raise ValueError(
            f"{path}: no document of the log was clicked, so nothing can be learned from it. Check "
            "--clicked-column, or log more sessions."
        )
    return log


def _require_features(path: Path, documents: Path | None, known: Sequence[str], known_name: str) -> None:
    """Raise a ValueError if the log or the table of documents lacks features of `known_name`."""
    there = _names(documents or path)
    missing = [name for name in known if name not in there]
    if there and missing:
        more = f" and {len(missing) - 3} more" if missing[3:] else ""
        hint = "" if documents else " If they are in another file, give it as --documents."
        raise ValueError(
            f"{documents or path} does not have the features of {known_name}: missing "
            f"{', '.join(map(repr, missing[:3]))}{more}.{hint}"
        )


def _names(path: Path) -> Sequence[str]:
    """Column names of a log; () if they cannot be read, which `read_clicks` will report."""
    with suppress(ImportError, OSError, ValueError, StopIteration):
        import pyarrow.csv
        import pyarrow.parquet as pq

        first = min(path.glob("*.parquet")) if path.is_dir() else path
        name = first.name.lower()
        if not re.search(r"\.[ct]sv(\.\w+)?$", name):
            return list(pq.read_schema(first).names)
        parse = pyarrow.csv.ParseOptions(delimiter="\t" if ".tsv" in name else ",")
        with pyarrow.csv.open_csv(first, parse_options=parse) as file:
            return list(file.schema.names)
    return ()


def _documents(path: Path, reading: ClickReading, features: Sequence[str] | None) -> Any:
    """The table of documents of --documents, whose columns of ids are called as in the log."""
    columns = reading.columns
    if "doc" in columns and columns["doc"] is None:
        raise click.UsageError("--documents needs document ids in the log; got --document-column none.")
    if not path.name.endswith(".parquet"):
        raise click.UsageError(f"--documents must be a Parquet file; got {str(path)!r}.")
    of_table = Reading(
        qid_column=columns.get("query", "query"),
        docid_column=columns.get("doc", "doc"),
        feature_columns=None if features is None else ",".join(features),
        split_queries="join",
    )

    def worded(message: str) -> str:
        message = for_the_shell(message).replace("--qid-column", "--query-column")
        return message.replace("--docid-column", "--document-column")

    with reworded(worded):
        return read_queries(path, of_table, labeled=False)


def chosen_sessions(log: ClickLog, reading: ClickReading) -> tuple[ClickLog, dict[str, Any]]:
    """The log as --without-clicks wants it, and the number of its sessions without a click, in a record."""
    kept = reading.without_clicks or "keep"
    clicked = np.logical_or.reduceat(log.clicked, log.offsets[:-1])
    n = int(log.n_sessions - clicked.sum())
    record = {"sessions_without_clicks": n, "without_clicks": kept}
    return (log.select(clicked) if kept == "drop" and n else log), record


def sizes(log: ClickLog) -> dict[str, int]:
    """Numbers of sessions, queries, impressions, documents and clicks of a log.

    Queries and documents of the table of documents that no session shows are not counted.
    """
    return {
        "sessions": log.n_sessions,
        "queries": len(np.unique(log.queries)),
        "impressions": len(log),
        "documents": int((np.bincount(log.rows) > 0).sum()),
        "clicks": log.n_clicks,
    }


def log_size(record: Mapping[str, Any]) -> str:
    """Sessions, queries, impressions, documents and clicks in words, from their numbers."""
    ones = {"sessions": "session", "queries": "query", "impressions": "impression"}
    ones |= {"documents": "document", "clicks": "click"}
    a, b, c, d, e = (counted(record[name], one, name) for name, one in ones.items())
    return f"{a} of {b}, {c} of {d}, {e}"


def say_without(record: Mapping[str, Any]) -> str:
    """A sentence about the sessions without a click, from their number."""
    n = record["sessions_without_clicks"]
    if not n:
        return "every session has a click"
    if record["without_clicks"] == "drop":
        return f"{counted(n, 'session without a click was', 'sessions without a click were')} dropped"
    return f"{n:,} of {record['sessions']:,} have no click"


_OPTIONS = {argument: f"--{name}-column" for argument, name in _COLUMNS.items()}
_WORDS = {
    "With doc=None, each": "With --document-column none, each",
    "Pass model=, an estimate of position bias,": "Give --bias, an estimate of position bias,",
    "pass clip=": "give --clip",
    "; the interval is NaN": "",
    "Their value is taken from `relevance`, and is": "Their value is assumed, not observed, and is",
    "PositionBasedModel.fit(log, relevance='documents')": "--method documents",
    "Use DependentClickModel": "Use the dependent click model, --model-type dependent",
    "in CascadeModel,": "in the cascade model,",
    "in DependentClickModel,": "in the dependent click model,",
    "or a PositionBasedModel": "or a bias file of the position-based model",
    "relevance='documents'": "--method documents",
    "give relevance='linear'": "give --method linear",
    "relevance='linear'": "--method linear",
    "(see swap_bias)": "(see --method swaps)",
    "harvest_bias, which compares": "--method documents, which compares",
    "harvest_bias": "--method harvest",
    "swap_bias": "--method swaps",
    "named by `policy`; got no `policy`": "named by --policy-column; got no such column",
    "`policy`": "--policy-column",
    "`propensity`": "--propensity-column",
    "`clicked`": "--clicked-column",
    "documents has no docid": "--documents has no document ids",
    "which documents does not have": "which --documents does not have",
    "a column of the frame. It": "a column of the log, which",
    ", encode it as numbers, or read it as categories with categorical=[...], for boosted trees": (
        ", or encode it as numbers"
    ),
    "need a log in one data frame; got files read in batches": (
        "cannot be read from a click log; give the features with --documents"
    ),
}


def for_the_shell(message: str) -> str:
    """Replace the Python names in a message about click logs with options."""
    for words, option in _WORDS.items():
        message = message.replace(words, option)
    message = re.sub(r"^log: ", "", message)
    message = re.sub(r"^features: (?=')", "--feature-columns ", message)
    message = re.sub(r"^gain: ", "--gain: ", message)
    if "a column of the log" in message or "must hold numbers" in message:  # in which no row matters
        message = re.sub(r" Rows are counted among .*", "", message)
    message = re.sub(r"the document in row \d+ of documents", "a document", message)
    message = re.sub(r"\buse (?=log\.first\()", "give ", message)
    message = re.sub(r"\blog\.first\((\w+)\)", lambda found: f"--top {found[1].replace('k', 'N')}", message)
    names = "|".join(_OPTIONS)
    message = re.sub(rf"\b({names})=(?=')", lambda found: f"{_OPTIONS[found[1]]} ", message)
    message = re.sub(rf"\b({names})=(?!\w)", lambda found: _OPTIONS[found[1]], message)
    return with_options(message)


@contextmanager
def reworded(words: Callable[[str], str] = for_the_shell) -> Iterator[None]:
    """Reword the message of a ValueError in a `with` block, and print its warnings, reworded, to stderr."""
    with notes_on_stderr(words):
        try:
            yield
        except ValueError as error:
            raise ValueError(words(str(error))) from None
