"""`sinkprop convert`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkprop.cli.output import complain, console, counted, progress
from sinkprop.cli.reading import Reading, data_path, file_name, with_options
from sinkprop.common.console import say

if TYPE_CHECKING:
    import click

    from sinkprop.store import StoredQueries

__all__ = ["convert_command"]

_KINDS = {"letor": "letor", "csv": "csv", "parquet": "parquet"}


def convert_command() -> click.Command:
    import click

    from sinkprop.cli.reading import data_options

    @click.command("convert", short_help="Convert LETOR text, CSV or Parquet to a stored set.")
    @click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, type=data_path(stdin=False))
    @click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path),
        required=True,
        metavar="DIR",
        help="The folder of the stored set, such as train.queries.",
    )
    @click.option(
        "--from",
        "kind",
        type=click.Choice(list(_KINDS)),
        help="What the files are.  [default: by their names: .csv, .tsv, .parquet, and LETOR text]",
    )
    @click.option("--delimiter", metavar="C", help="CSV: between columns.  [default: a comma; a tab in .tsv]")
    @click.option("--unlabeled", is_flag=True, help="CSV, Parquet: documents not judged, without labels.")
    @click.option(
        "--allow-nan",
        is_flag=True,
        help="Keep missing values as NaN, for boosted trees, instead of an error.",
    )
    @click.option(
        "--force",
        is_flag=True,
        help="Replace a set that stands there, and begin again where other work was left unfinished.",
    )
    @click.option(
        "--threads", type=click.IntRange(1), metavar="N", help="For LETOR text.  [default: all processors]"
    )
    @data_options
    def convert(
        inputs: tuple[Path, ...],
        out: Path,
        kind: str | None,
        delimiter: str | None,
        unlabeled: bool,
        allow_nan: bool,
        force: bool,
        threads: int | None,
        **reading: Any,
    ) -> int:
        """Convert files to a stored set, a folder that every command takes in place of a file.

        INPUT is one file or several: LETOR text, CSV with a line of names, or Parquet, of any size. They are
        read a little at a time, and so is the set afterwards: what does not fit in memory can be trained on
        and ranked. Features become float32. The rows of a query must stand together, in one file.

        A conversion that is killed goes on where it was when the same command is given again, and makes the
        same bytes. Until it is complete, its work is in DIR.unfinished.

        \b
        sinkprop convert train.txt -o train.queries
        sinkprop convert part-*.txt.gz -o logs.queries --n-features 700
        sinkprop convert clicks.parquet -o clicks.queries --qid-column session --label-column clicked
        sinkprop convert features.csv -o features.queries --feature-columns bm25,age,length
        sinkprop train train.queries --model m.model && sinkprop evaluate test.queries --model m.model
        """  # noqa: D301
        from sinkprop.store import convert as run

        options = _options(inputs, Reading(**reading), kind, delimiter, unlabeled)
        began = time.perf_counter()
        try:
            with progress() as notify:
                stored = run(
                    inputs,
                    out,
                    kind=kind,
                    allow_nan=allow_nan,
                    overwrite=force,
                    n_threads=threads,
                    progress=notify,
                    **options,
                )
        except ImportError as error:
            raise click.UsageError(f"{error}.", ctx=click.get_current_context(silent=True)) from None
        except ValueError as error:
            raise ValueError(_for_the_shell(str(error))) from None
        except FileExistsError as error:
            raise FileExistsError(error.errno, _for_the_shell(str(error.strerror)), error.filename) from None
        except KeyboardInterrupt:
            return complain(f"interrupted: give the same command to go on with {out}.", 130)
        _print(stored, inputs, time.perf_counter() - began)
        return 0

    return convert


def _options(
    inputs: tuple[Path, ...], reading: Reading, kind: str | None, delimiter: str | None, unlabeled: bool
) -> dict[str, Any]:
    """The arguments of `sinkprop.store.convert`; a usage error for an option of another kind of file."""
    import click

    from sinkprop.store.convert import kind_of

    context = click.get_current_context(silent=True)
    kinds = {kind or kind_of(os.fspath(path)) for path in inputs}
    if len(kinds) > 1:
        raise click.UsageError(
            f"the files of a set are of one kind; got {' and '.join(sorted(kinds))}. --from tells what they "
            "are, where their names do not.",
            ctx=context,
        )
    text = "letor" in kinds
    listed = reading.feature_columns
    given: dict[str, Any] = {
        "n_features": reading.n_features,
        "null": reading.null,
        "zero_based": reading.zero_based or None,
        "group": reading.group,
        "qid": reading.qid_column,
        "label": reading.label_column,
        "docid": reading.docid_column,
        "features": None if listed is None else [name.strip() for name in listed.split(",")],
        "delimiter": {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
    }
    names = {name: f"--{name}-column" for name in ("qid", "label", "docid")} | {
        "features": "--feature-columns"
    }
    for_text = ("n_features", "null", "zero_based", "group")
    wrong = [name for name, value in given.items() if value is not None and (name in for_text) != text]
    if wrong:
        option = names.get(wrong[0], f"--{wrong[0].replace('_', '-')}")
        what = "CSV and Parquet" if text else "LETOR text"
        raise click.UsageError(
            f"{option} is for {what}, and {file_name(inputs[0])!r} is taken for "
            f"{'LETOR text' if text else kinds.pop()}; --from says otherwise.",
            ctx=context,
        )
    if unlabeled and (text or reading.label_column is not None):
        raise click.UsageError("--unlabeled is for CSV and Parquet without a column of labels.", ctx=context)
    found = {name: value for name, value in given.items() if value is not None}
    if unlabeled:
        found["label"] = None
    if not text and "docid" not in found:
        from sinkprop.store.from_tables import column_names

        if "docid" in column_names(os.fspath(inputs[0]), kinds.pop(), found.get("delimiter")):
            found["docid"] = "docid"
    return found


def _for_the_shell(message: str) -> str:
    """A message with the arguments in Python written as options."""
    message = message.replace("pass overwrite=True", "give --force").replace("allow_nan=True", "--allow-nan")
    return with_options(message)


def _print(stored: StoredQueries, inputs: tuple[Path, ...], seconds: float) -> None:
    out = console()
    size = sum(size for _, size, _ in stored.manifest.files)
    files = counted(len(inputs), "file", "files")
    say(out, f"{stored.path}, {size / 1e6:,.1f} MB, of {files}, in {seconds:.1f} seconds", "bold")
    say(
        out,
        f"{counted(stored.n_rows, 'document', 'documents')} of "
        f"{counted(stored.n_queries, 'query', 'queries')}, "
        f"{counted(stored.n_features, 'feature', 'features')}, "
        f"at most {counted(stored.longest, 'document', 'documents')} a query",
    )
    parts = len(stored.manifest.parts)
    say(out, f"{counted(parts, 'part', 'parts')}, {counted(stored.n_blocks, 'block', 'blocks')}", "dim")
    if stored.has_nan:
        say(out, "Missing values are kept as NaN, which boosted trees take and other rankers refuse.")
