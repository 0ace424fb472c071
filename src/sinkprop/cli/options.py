"""Options that several commands share, and checks of their values before any work begins."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
from click.core import ParameterSource

from sinkprop.cli.output import is_special
from sinkprop.common.packages import installed
from sinkprop.metrics.conventions import CONVENTIONS
from sinkprop.metrics.measures import parse_metrics

__all__ = [
    "LogCommand",
    "LogOption",
    "bias_option",
    "check_clicks",
    "check_file",
    "check_new_file",
    "check_options_of",
    "check_page",
    "check_plot",
    "check_saved_file",
    "click_method_option",
    "click_options",
    "clicks_option",
    "clip_option",
    "comma_separated",
    "convention_option",
    "data_options",
    "data_path",
    "json_option",
    "keep_apart",
    "metrics_option",
    "n_features_option",
    "number_option",
    "output_option",
    "parsed_by",
    "selection_option",
    "whole_number",
    "without_log_options",
]

F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[click.Context, click.Parameter, Any], Any]  # callback of a click option


class Decorator(Protocol):
    """A function that adds an option to a command."""

    def __call__(self, command: F, /) -> F: ...


_PICTURES = (".png", ".svg", ".pdf")


def check_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Return the path if a file can be written there, and raise click.BadParameter otherwise."""
    if path is not None and str(path) != "-":
        folder = path.parent
        if not folder.is_dir():
            raise click.BadParameter(f"there is no folder {str(folder)!r}.")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise click.BadParameter(f"{str(path)!r} cannot be written.")
    return path


def check_new_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Like `check_file`, but also require that the folder is writable.

    The file is first written beside its destination, and then moved there.
    """
    check_file(context, option, path)
    if path is not None and str(path) != "-" and not is_special(path):
        folder = Path(os.path.realpath(path)).parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise click.BadParameter(f"the folder {str(folder)!r} cannot be written.")
    return path


def check_saved_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Like `check_new_file`, but refuse stdout and devices, which cannot be read again later."""
    if path is not None and (str(path) == "-" or is_special(path)):
        raise click.BadParameter(f"{str(path)!r} must be a file.")
    return check_new_file(context, option, path)


def check_plot(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        if path.suffix.lower() not in _PICTURES:
            wanted = ", ".join(_PICTURES[:-1]) + f" or {_PICTURES[-1]}"
            raise click.BadParameter(f"{str(path)!r} must end in {wanted}.")
        if not installed("matplotlib"):
            raise click.BadParameter('needs matplotlib: pip install "sinkprop[plot]".')
    return check_file(context, option, path)


def check_page(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Like `check_saved_file`, but also require a name that ends in .html or .htm."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise click.BadParameter(f"{str(path)!r} must end in .html.")
    return check_saved_file(context, option, path)


def parsed_by(parse: Callable[[str], object]) -> Check:
    """Return a check that returns the text unchanged, and raises click.BadParameter if `parse` rejects it."""

    def check(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
        try:
            if text is not None:
                parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        return text

    return check


def comma_separated(parse: Callable[[str], object], what: str) -> Check:
    """Return a check that splits a text at commas and returns a tuple of the parts, each parsed by `parse`.

    If `parse` rejects a part, the check raises click.BadParameter with the message "'part' is not `what`".
    """

    def one(part: str) -> object:
        try:
            return parse(part)
        except ValueError:
            raise click.BadParameter(f"{part!r} is not {what}") from None

    def check(context: click.Context, option: click.Parameter, text: str | None) -> Any:
        return None if text is None else tuple(one(part.strip()) for part in text.split(","))

    return check


def whole_number(text: str) -> int:
    """Return the positive integer that a text of digits contains. Raises a ValueError for other texts."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(text)
    return int(text)


def output_option(*names: str, check: Check = check_new_file, stdout: bool = False, **more: Any) -> Decorator:
    """An option for an output file; with `stdout`, the file may be "-" for stdout."""
    kind = click.Path(dir_okay=False, allow_dash=stdout, path_type=Path)
    return click.option(*names, type=kind, metavar="FILE", callback=check, **more)


def json_option(what: str, *, check: Check = check_new_file) -> Decorator:
    """The option --json of a command. `what` completes the help text "Write ... as JSON"."""
    words = f"Write {what} as JSON. With -, write only the JSON, to stdout."
    return output_option("--json", "json_file", check=check, stdout=True, help=words)


def number_option(name: str, least: int = 1, most: int | None = None, **more: Any) -> Decorator:
    return click.option(name, type=click.IntRange(least, most), metavar="N", **more)


def convention_option(*, default: str = "standard") -> Decorator:
    """The option --convention; the command receives None if it is not given. `default` is for the help."""
    return click.option(
        "--convention",
        type=click.Choice(list(CONVENTIONS), case_sensitive=False),
        metavar="NAME",
        help=f"Definition of the metrics: {', '.join(CONVENTIONS)}.  [default: {default}]",
    )


def metrics_option(
    metrics: str, *, default: bool = True, check: Check | None = None, more: str = ""
) -> Decorator:
    """Return the option --metrics, whose help text names `metrics` as the default.

    If the option is not given, the command receives `metrics`, or None if `default` is False. `check` is a
    callback to use instead of the one that parses metrics of labels, and `more` ends the help text.
    """
    return click.option(
        "--metrics",
        metavar="NAME,...",
        default=metrics if default else None,
        callback=check or parsed_by(parse_metrics),
        help=f"Metrics to report: ndcg@k, p@k, map, mrr, err@k, rbp@p, recall@k, hit@k, dcg@k.  "
        f"[default: {metrics}]{more}",
    )


def n_features_option() -> Decorator:
    return number_option(
        "--n-features",
        help="LETOR text: number of features; needed if the features with the largest ids occur in no line.",
    )


def selection_option(words: str, *, default: str | None = None) -> Decorator:
    kinds = click.Choice(["auto", "cross-validation", "validation"])
    return click.option("--selection", type=kinds, default=default, help=words)


class _DataPath(click.Path):
    """Type of a click argument: a file, or the folder of a stored set. Other folders are usage errors.

    With the flag --clicks, which is parsed before, a folder may also hold the files of a click log.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.is_dir() and not (ctx is not None and ctx.params.get("clicks")):
            from sinkprop.store import is_stored

            if not is_stored(path):
                words = f"{str(value)!r} is a folder but not a stored set, as made by `sinkprop convert`."
                self.fail(words, param, ctx)
        return path


def data_path(*, stdin: bool = True, stored: bool = False, folder: bool = False) -> click.Path:
    """Return the click type of an input file that must be readable.

    With `stdin`, "-" is accepted too; with `stored`, the folder of a stored set; with `folder`, all folders.
    """
    kind = _DataPath if stored else click.Path
    return kind(exists=True, dir_okay=stored or folder, readable=True, allow_dash=stdin, path_type=Path)


def data_options(command: F, *, tables: str = "Parquet") -> F:
    """Add the options of `Reading` to a command, which receives them as keyword arguments.

    `tables` names the table formats that the command reads, for the help texts.
    """
    options: tuple[Decorator, ...] = (
        click.option(
            "--group",
            type=data_path(stdin=False),
            metavar="FILE",
            help="LETOR text without qid: file with the number of rows per query, one number per line.  "
            "[default: name of the data file with .query appended]",
        ),
        n_features_option(),
        click.option(
            "--null",
            type=float,
            metavar="X",
            help="LETOR text: number to use in place of the feature values NULL and nan, such as 0.",
        ),
        click.option("--zero-based", is_flag=True, help="LETOR text: feature ids start at 0 instead of 1."),
        *(
            click.option(f"--{name}-column", metavar="NAME", help=f"{tables}: {what}.  [default: {name}]")
            for name, what in (
                ("qid", "column with query ids"),
                ("label", "column with labels"),
                ("docid", "column with document ids"),
            )
        ),
        click.option(
            "--feature-columns",
            metavar="NAME,NAME,...",
            help=f"{tables}: columns with features.  [default: all other columns]",
        ),
        click.option(
            "--split-queries",
            type=click.Choice(["error", "join"]),
            help="What to do if the rows of a query are not consecutive: stop with an error that names both "
            "places, or read all rows with the same id as one query.  [default: error]",
        ),
        click.option(
            "--categorical",
            metavar="NAME,NAME,...",
            help=f"{tables}: feature columns of text or numbers to read as categories, for boosted trees.  "
            "[default: dictionary columns of Parquet, and the categorical features of the model]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


class LogOption(click.Option):
    """An option that applies only to click logs."""


class LogCommand(click.Command):
    """A command whose help lists the options for click logs under a heading of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed: dict[str, list[tuple[str, str]]] = {"Options": [], "Options for click logs": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                listed[list(listed)[isinstance(parameter, LogOption)]].append(record)
        for heading, records in listed.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def clicks_option(*arguments: str) -> Decorator:
    """The flag --clicks of a command whose `arguments` are click logs if it is given."""
    what = f"{' and '.join(arguments)} {'are click logs' if arguments[1:] else 'is a click log'}"
    words = f"{what}. The options below apply only with this option."
    return click.option("--clicks", cls=LogOption, is_flag=True, is_eager=True, help=words)


def bias_option() -> Decorator:
    return click.option(
        "--bias",
        cls=LogOption,
        type=data_path(stdin=False),
        metavar="FILE",
        help="Position bias: a file written by `sinkprop clicks bias -o`.  [default: estimated from the log]",
    )


def click_method_option(methods: Mapping[str, str], words: str) -> Decorator:
    """The option --click-method of a command, with one of the keys of `methods` as its value."""
    return click.option("--click-method", cls=LogOption, type=click.Choice(list(methods)), help=words)


def clip_option(default: str) -> Decorator:
    return click.option(
        "--clip",
        cls=LogOption,
        type=click.FloatRange(0, 1),
        metavar="X",
        help=f"Raise smaller probabilities of examination to X.  [default: {default}]",
    )


def click_options(command: F) -> F:
    """Add the options of `ClickReading` to a command, which receives them as keyword arguments."""
    options: tuple[Decorator, ...] = (
        *(
            click.option(f"--{name}-column", cls=LogOption, metavar="NAME", help=words)
            for name, words in (
                ("query", "Column of the log with query ids.  [default: query]"),
                (
                    "document",
                    "Column of the log with document ids; none if every row is another document.  "
                    "[default: doc]",
                ),
                ("position", "Column of the log with positions, 1 for the top.  [default: position]"),
                ("clicked", "Column of the log with clicks, 0 or 1.  [default: clicked]"),
                (
                    "session",
                    "Column of the log with session ids; a session is one ranking, shown once.  [default: "
                    "session, if there is one; otherwise a session begins where the query changes or the "
                    "position does not increase]",
                ),
                (
                    "propensity",
                    "Column of the log with the probability that the ranker shows this document at this "
                    "position.  [default: propensity, if there is one]",
                ),
                (
                    "policy",
                    "Column of the log with the name of the ranker.  [default: policy, if there is one]",
                ),
                (
                    "value",
                    "Column of the log with values such as dwell times, which are not features.  [default: "
                    "value, if there is one]",
                ),
            )
        ),
        click.option(
            "--without-clicks",
            cls=LogOption,
            type=click.Choice(["keep", "drop"]),
            help="Keep or drop the sessions without a click. Dropping them raises all click rates.  "
            "[default: keep]",
        ),
        number_option(
            "--top", cls=LogOption, help="Use only the first N positions of every session.  [default: all]"
        ),
        click.option(
            "--documents",
            cls=LogOption,
            type=data_path(stdin=False),
            metavar="FILE",
            help="Parquet file with the features of all documents, one row per document of a query, shown or "
            "not. The feature columns of the log are then ignored.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def without_log_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the running command, except those for click logs."""
    params = click.get_current_context().command.params
    of_logs = {option.name for option in params if isinstance(option, LogOption)}
    return {name: value for name, value in options.items() if name not in of_logs}


_INSTEAD = {
    "qid_column": "--query-column",
    "docid_column": "--document-column",
    "label_column": "--clicked-column",
}


def check_clicks(clicks: bool, others: Sequence[str]) -> None:
    """Raise a usage error if an option is given that does not apply with or without --clicks.

    `others` are names of options that do not apply to click logs, besides those of `Reading`.
    """
    from sinkprop.cli.reading import Reading

    context = click.get_current_context()
    of_files = [field.name for field in fields(Reading) if field.name != "feature_columns"]
    for option in context.command.params:
        name = option.name or ""
        if context.get_parameter_source(name) in (ParameterSource.DEFAULT, None):
            continue
        if isinstance(option, LogOption) and not clicks:
            raise click.UsageError(f"{option.opts[0]} applies only to click logs; add --clicks.")
        if clicks and name in (*others, *of_files):
            instead = f"; give {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise click.UsageError(f"{option.opts[0]} does not apply to click logs{instead}.")


def check_options_of(option: str, chosen: str, owners: Mapping[str, Sequence[str]]) -> None:
    """Raise a usage error if an option is given that does not apply to the chosen value of `option`.

    `owners` maps names of options to the values of `option` to which they apply.
    """
    context = click.get_current_context()
    for name, values in owners.items():
        given = context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
        if given and chosen not in values:
            raise click.UsageError(
                f"--{name.replace('_', '-')} applies only to {option} {' or '.join(values)}."
            )


def keep_apart(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Raise a usage error if an output file is also an input file, or if two outputs are the same file.

    `outputs` and `inputs` map names of options to their paths.
    """
    seen = {name: _identity(path) for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        here = _identity(path)
        for other, there in seen.items():
            if here is not None and here == there:
                raise click.UsageError(
                    f"{name} and {other} are the same file, {str(path)!r}; give another file for {name}."
                )
        seen[name] = here


def _identity(path: Path) -> tuple[object, ...] | None:
    """Return a key that is equal for two paths to the same file.

    Returns None for existing paths that are not regular files, such as devices, which may be written twice.
    """
    if str(path) == "-":
        return ("-",)
    try:
        found = os.stat(path)
    except OSError:
        return ("path", os.path.realpath(path))
    return ("file", found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
