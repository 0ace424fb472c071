"""Options that several commands have, and the checks of what they are given, made before any work."""

from __future__ import annotations

import importlib.util
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sinkprop.cli.output import is_special

if TYPE_CHECKING:
    import click

__all__ = [
    "check_file",
    "check_metrics",
    "check_new_file",
    "check_page",
    "check_plot",
    "check_saved_file",
    "installed",
    "keep_apart",
]

_PICTURES = (".png", ".svg", ".pdf")


def installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def check_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """The path, if it can be written: better known before a minute of measuring than after."""
    import click

    if path is not None and str(path) != "-":
        folder = path.parent
        if not folder.is_dir():
            raise click.BadParameter(f"there is no folder {str(folder)!r}.", ctx=context, param=option)
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise click.BadParameter(f"{str(path)!r} cannot be written.", ctx=context, param=option)
    return path


def check_new_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """The path, if a file can be put there in one step, which takes a folder that can be written."""
    import click

    check_file(context, option, path)
    if path is not None and str(path) != "-" and not is_special(path):
        folder = Path(os.path.realpath(path)).parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise click.BadParameter(
                f"the folder {str(folder)!r} cannot be written.", ctx=context, param=option
            )
    return path


def check_saved_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """The path, if a file can be put there that is read again: not stdout, and no device."""
    import click

    if path is not None and (str(path) == "-" or is_special(path)):
        raise click.BadParameter(f"{str(path)!r} must be a file.", ctx=context, param=option)
    return check_new_file(context, option, path)


def check_plot(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    import click

    if path is not None:
        if path.suffix.lower() not in _PICTURES:
            wanted = ", ".join(_PICTURES[:-1]) + f" or {_PICTURES[-1]}"
            raise click.BadParameter(f"{str(path)!r} must end in {wanted}.", ctx=context, param=option)
        if not installed("matplotlib"):
            raise click.BadParameter(
                'needs matplotlib: pip install "sinkprop[plot]".', ctx=context, param=option
            )
    return check_file(context, option, path)


def check_page(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """The path, if a page can be put there: a file that a browser takes for one."""
    import click

    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise click.BadParameter(f"{str(path)!r} must end in .html.", ctx=context, param=option)
    return check_saved_file(context, option, path)


def check_metrics(context: click.Context, option: click.Parameter, names: str | None) -> str | None:
    """Names of metrics, as they were given, if they are known."""
    import click

    from sinkprop.metrics.measures import parse_metrics

    if names is not None:
        try:
            parse_metrics(names)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx=context, param=option) from None
    return names


def keep_apart(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """A usage error where a file that would be written is one that is read, or is written twice."""
    import click

    seen = {name: _identity(path) for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        here = _identity(path)
        for other, there in seen.items():
            if here is not None and here == there:
                raise click.UsageError(
                    f"{name} and {other} are the same file, {str(path)!r}; give another for {name}.",
                    ctx=click.get_current_context(silent=True),
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
