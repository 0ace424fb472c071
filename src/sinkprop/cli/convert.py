"""The command `sinkprop convert`: conversion of LETOR text, CSV or Parquet to a stored set."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sinkprop.cli.options import data_options, data_path, number_option
from sinkprop.cli.output import complain, console, counted, notes_on_stderr, progress
from sinkprop.cli.reading import Reading, file_name, option_of, say_features, with_options
from sinkprop.common.console import say

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["convert_command", "converted"]


@click.command("convert", short_help="Convert LETOR text, CSV or Parquet to a stored set.")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, type=data_path(stdin=False))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder to create for the stored set, such as train.queries.",
)
@click.option(
    "--from",
    "kind",
    type=click.Choice(["letor", "csv", "parquet"]),
    help="File format.  [default: by file name: .csv, .tsv, .parquet, and LETOR text for all others]",
)
@click.option(
    "--delimiter", metavar="C", help="CSV: character between columns.  [default: comma, or tab for .tsv]"
)
@click.option("--unlabeled", is_flag=True, help="CSV, Parquet: the documents have no labels.")
@click.option(
    "--allow-nan",
    is_flag=True,
    help="Keep missing values as NaN. Without this option, a missing value is an error.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace an existing stored set, and discard an unfinished conversion of other files or with other "
    "options.",
)
@number_option(
    "--join-bytes",
    help="Largest size of the rows that --split-queries join sorts in memory, at 4 bytes per feature and 16 "
    "per row.  [default: 2147483648]",
)
@number_option(
    "--threads", help="LETOR text: number of threads. Does not change the result.  [default: all processors]"
)
@partial(data_options, tables="CSV, Parquet")
def convert_command(
    inputs: tuple[Path, ...],
    out: Path,
    kind: str | None,
    delimiter: str | None,
    unlabeled: bool,
    allow_nan: bool,
    force: bool,
    join_bytes: int | None,
    threads: int | None,
    **reading: Any,
) -> int:
    """Convert files to a stored set, a folder that commands accept in place of a file of queries.

    \b
    sinkprop convert train.txt -o train.queries
    sinkprop convert part-*.txt.gz -o logs.queries --n-features 700
    sinkprop convert clicks.parquet -o clicks.queries --qid-column session --label-column clicked
    sinkprop convert features.csv -o features.queries --feature-columns bm25,age,length
    sinkprop train train.queries --model m.model && sinkprop evaluate test.queries --model m.model

    INPUT is one or more files of any size: LETOR text, CSV with a header line, or Parquet. Commands read
    a stored set block by block, so you can train on and rank data larger than memory. Features are
    stored as float32. The rows of a query must be consecutive and in one file, or be put together with
    --split-queries join.

    If a conversion is killed, run the same command again: it resumes the conversion, and the stored set
    is the same as without the interruption. Unfinished work is in the folder DIR.unfinished.
    """  # noqa: D301
    given = Reading(**reading)
    options = _options(inputs, given, kind, delimiter, unlabeled)
    if join_bytes is not None:
        options["join_bytes"] = join_bytes
    began = time.perf_counter()
    try:
        stored = converted(
            inputs, out, kind=kind, allow_nan=allow_nan, overwrite=force, n_threads=threads, **options
        )
    except KeyboardInterrupt:
        return complain(f"interrupted: run the same command again to resume the conversion to {out}.", 130)
    say_features(stored.feature_names, given)
    _print(stored, inputs, time.perf_counter() - began)
    return 0


def converted(inputs: tuple[Path, ...], out: Path, **options: Any) -> StoredQueries:
    """Run `sinkprop.store.convert`. Error messages name command-line options instead of Python arguments."""
    from sinkprop.store import convert

    try:
        with progress() as notify, notes_on_stderr(_for_the_shell):
            return convert(inputs, out, progress=notify, **options)
    except ImportError as error:
        raise click.UsageError(f"{error}.") from None
    except ValueError as error:
        raise ValueError(_for_the_shell(str(error))) from None
    except FileExistsError as error:
        raise FileExistsError(error.errno, _for_the_shell(str(error.strerror)), error.filename) from None


def _options(
    inputs: tuple[Path, ...], reading: Reading, kind: str | None, delimiter: str | None, unlabeled: bool
) -> dict[str, Any]:
    """Return keyword arguments for `sinkprop.store.convert`.

    Raises a usage error if the files differ in format, or if an option does not apply to their format.
    """
    from sinkprop.store.convert import kind_of

    kinds = {kind or kind_of(os.fspath(path)) for path in inputs}
    if len(kinds) > 1:
        raise click.UsageError(
            f"all files must have the same format; got {' and '.join(sorted(kinds))}. If the file names are "
            "misleading, give the format with --from."
        )
    text = "letor" in kinds
    of_tables = {
        **reading.of_columns,
        "delimiter": {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
    }
    for name, value in (of_tables if text else reading.of_text).items():
        if value is not None:
            raise click.UsageError(
                f"{option_of(name)} applies only to {'CSV and Parquet' if text else 'LETOR text'}, but "
                f"{file_name(inputs[0])!r} is read as {'LETOR text' if text else kinds.pop()}; to change "
                "this, give the format with --from."
            )
    if unlabeled and (text or reading.label_column is not None):
        raise click.UsageError("--unlabeled applies only to CSV and Parquet without a column of labels.")
    given = reading.of_text if text else of_tables
    found = reading.of_files | {name: value for name, value in given.items() if value is not None}
    if unlabeled:
        found["label"] = None
    if not text and "docid" not in found:
        from sinkprop.store.from_tables import column_names

        if "docid" in column_names(os.fspath(inputs[0]), kinds.pop(), found.get("delimiter")):
            found["docid"] = "docid"
    return found


def _for_the_shell(message: str) -> str:
    """Replace the Python arguments in an error message with command-line options."""
    message = message.replace("pass overwrite=True", "give --force").replace("allow_nan=True", "--allow-nan")
    return with_options(message)


def _print(stored: StoredQueries, inputs: tuple[Path, ...], seconds: float) -> None:
    out = console()
    size = sum(size for _, size, _ in stored.manifest.files)
    files = counted(len(inputs), "file", "files")
    say(out, f"Wrote {stored.path}, {size / 1e6:,.1f} MB, from {files} in {seconds:.1f} seconds", "bold")
    say(
        out,
        f"{counted(stored.n_rows, 'document', 'documents')} in "
        f"{counted(stored.n_queries, 'query', 'queries')}, "
        f"{counted(stored.n_features, 'feature', 'features')}, "
        f"at most {counted(stored.longest, 'document', 'documents')} per query",
    )
    parts = len(stored.manifest.parts)
    say(out, f"{counted(parts, 'part', 'parts')}, {counted(stored.n_blocks, 'block', 'blocks')}", "dim")
    if stored.has_nan:
        say(out, "Missing values are kept as NaN.")
    if stored.categories:
        names = counted(len(stored.categories), "feature has", "features have")
        say(out, f"{names} categories. Boosted trees accept them, other rankers do not.")
