"""Options that several commands share, and checks of their values before any work begins."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
from click.core import ParameterSource

from sinkprop.cli.output import is_special
from sinkprop.common.packages import installed
from sinkprop.metrics.conventions import CONVENTIONS
from sinkprop.metrics.measures import parse_metrics

__all__ = [
    "check_file",
    "check_new_file",
    "check_options_of",
    "check_page",
    "check_plot",
    "check_saved_file",
    "comma_separated",
    "convention_option",
    "data_options",
    "data_path",
    "json_option",
    "keep_apart",
    "metrics_option",
    "number_option",
    "output_option",
    "parsed_by",
    "selection_option",
    "whole_number",
]

F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[click.Context, click.Parameter, Any], Any]  # click's callback of an option


class Decorator(Protocol):
    """What adds an option to a command."""

    def __call__(self, command: F, /) -> F: ...


_PICTURES = (".png", ".svg", ".pdf")


def check_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """The path, if it can be written: better known before a minute of measuring than after."""
    if path is not None and str(path) != "-":
        folder = path.parent
        if not folder.is_dir():
            raise click.BadParameter(f"there is no folder {str(folder)!r}.")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise click.BadParameter(f"{str(path)!r} cannot be written.")
    return path


def check_new_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """The path, if a file can be put there in one step, which takes a folder that can be written."""
    check_file(context, option, path)
    if path is not None and str(path) != "-" and not is_special(path):
        folder = Path(os.path.realpath(path)).parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise click.BadParameter(f"the folder {str(folder)!r} cannot be written.")
    return path


def check_saved_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """The path, if a file can be put there that is read again: not stdout, and no device."""
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
    """The path, if a page can be put there: a file that a browser takes for one."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise click.BadParameter(f"{str(path)!r} must end in .html.")
    return check_saved_file(context, option, path)


def parsed_by(parse: Callable[[str], object]) -> Check:
    """A check that gives the text as it was given, if `parse` takes it."""

    def check(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
        try:
            if text is not None:
                parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        return text

    return check


def comma_separated(parse: Callable[[str], object], what: str) -> Check:
    """A check that gives what `parse` makes of the parts between commas, each of which must be `what`."""

    def one(part: str) -> object:
        try:
            return parse(part)
        except ValueError:
            raise click.BadParameter(f"{part!r} is not {what}") from None

    def check(context: click.Context, option: click.Parameter, text: str | None) -> Any:
        return None if text is None else tuple(one(part.strip()) for part in text.split(","))

    return check


def whole_number(text: str) -> int:
    """The number above 0 that a text of digits is."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(text)
    return int(text)


def output_option(*names: str, check: Check = check_new_file, stdout: bool = False, **more: Any) -> Decorator:
    """A file to write; with `stdout`, - may be given for it."""
    kind = click.Path(dir_okay=False, allow_dash=stdout, path_type=Path)
    return click.option(*names, type=kind, metavar="FILE", callback=check, **more)


def json_option(words: str, *, check: Check = check_new_file) -> Decorator:
    return output_option("--json", "json_file", check=check, stdout=True, help=words)


def number_option(name: str, least: int = 1, most: int | None = None, **more: Any) -> Decorator:
    return click.option(name, type=click.IntRange(least, most), metavar="N", **more)


def convention_option(words: str = "", *, default: str | None = "letor") -> Decorator:
    return click.option(
        "--convention",
        type=click.Choice(list(CONVENTIONS)),
        default=default,
        metavar="NAME",
        help=f"{words}{', '.join(CONVENTIONS)}.  [default: letor]",
    )


def metrics_option(name: str = "--metrics", *, metavar: str = "NAMES", **more: Any) -> Decorator:
    return click.option(name, metavar=metavar, callback=parsed_by(parse_metrics), **more)


def selection_option(words: str, *, default: str | None = None) -> Decorator:
    kinds = click.Choice(["auto", "cross-validation", "validation"])
    return click.option("--selection", type=kinds, default=default, help=words)


class _DataPath(click.Path):
    """A file, or the folder of a stored set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.is_dir():
            from sinkprop.store import is_stored

            if not is_stored(path):
                words = f"{str(value)!r} is a folder, and not a stored set, which `sinkprop convert` makes."
                self.fail(words, param, ctx)
        return path


def data_path(*, stdin: bool = True, stored: bool = False) -> click.Path:
    """A file that can be read; with `stored`, also the folder of a stored set."""
    kind = _DataPath if stored else click.Path
    return kind(exists=True, dir_okay=stored, readable=True, allow_dash=stdin, path_type=Path)


def data_options(command: F) -> F:
    """The options of `Reading`, for a command that takes them as **reading."""
    options: tuple[Decorator, ...] = (
        click.option(
            "--group",
            type=data_path(stdin=False),
            metavar="FILE",
            help="For text without qid: the sizes of its queries, one a line.  [default: DATA.query]",
        ),
        number_option(
            "--n-features",
            help="The number of features, for sparse text whose lines may leave out the last ones.",
        ),
        click.option("--null", type=float, metavar="X", help="The number that NULL stands for, as 0."),
        click.option("--zero-based", is_flag=True, help="Feature ids count from 0, not 1."),
        *(
            click.option(f"--{name}-column", metavar="NAME", help=f"Parquet: {what}.  [default: {name}]")
            for name, what in (
                ("qid", "the column with query ids"),
                ("label", "the column with labels"),
                ("docid", "the column with document ids"),
            )
        ),
        click.option(
            "--feature-columns",
            metavar="NAME,NAME,...",
            help="Parquet: the columns with features.  [default: all others]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def check_options_of(option: str, chosen: str, owners: Mapping[str, Sequence[str]]) -> None:
    """A usage error where the command was given an option that is not one of the chosen value of `option`."""
    context = click.get_current_context()
    for name, values in owners.items():
        given = context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
        if given and chosen not in values:
            raise click.UsageError(f"--{name} is an option of {option} {' or '.join(values)}.")


def keep_apart(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """A usage error where a file that would be written is one that is read, or is written twice."""
    seen = {name: _identity(path) for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        here = _identity(path)
        for other, there in seen.items():
            if here is not None and here == there:
                raise click.UsageError(
                    f"{name} and {other} are the same file, {str(path)!r}; give another for {name}."
                )
        seen[name] = here


def _identity(path: Path) -> tuple[object, ...] | None:
    """Equal for two names of one file; None for what may be written twice, such as a device."""
    if str(path) == "-":
        return ("-",)
    try:
        found = os.stat(path)
    except OSError:
        return ("path", os.path.realpath(path))
    return ("file", found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
