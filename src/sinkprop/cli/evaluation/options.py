"""Options that name systems: models, scores of a file or a column, features and TREC runs, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sinkprop.cli.options import data_path
from sinkprop.cli.reading import file_name

__all__ = ["OrderedCommand", "System", "SystemType", "given_systems", "input_files"]

_KINDS = ("model", "scores", "run", "feature")
_ORDER = "sinkprop.cli.evaluation.order"


@dataclass(frozen=True)
class System:
    """A value of --model, --scores, --run or --feature: what to rank documents by.

    kind    Name of the option: "model", "scores", "run" or "feature".
    value   Path of a file, "@" and a column of the data, or the id or name of a feature.
    given   Name of the system on the command line; None for a name that is made from the value.
    """

    kind: str
    value: str
    given: str | None = None

    @property
    def column(self) -> str | None:
        """Column of the data that holds the scores, or None."""
        return self.value[1:] if self.kind == "scores" and self.value.startswith("@") else None

    @property
    def path(self) -> Path | None:
        """File that the system is read from, or None."""
        return None if self.kind == "feature" or self.column is not None else Path(self.value)

    @property
    def name(self) -> str:
        """Name of the system; by default that of the file without its suffix, or of the column."""
        if self.given is not None:
            return self.given
        if self.path is not None:
            return "stdin" if self.value == "-" else self.path.stem
        return f"feature:{self.value}" if self.column is None else self.column

    @property
    def words(self) -> str:
        """Description, such as "the model m.model"."""
        if self.path is not None:
            return f"the {self.kind} {file_name(self.path)}"
        return f"the feature {self.value}" if self.column is None else f"the column {self.column}"

    @property
    def option(self) -> str:
        """The option with its value, for messages."""
        return f"--{self.kind} {self.value!r}"


class SystemType(click.ParamType):  # type: ignore[type-arg]
    """Type of the options --model, --scores, --run and --feature: the text is converted to a `System`.

    The text of a file has the form [NAME=]FILE, that of scores also [NAME=]@COLUMN. If the whole text is the
    path of a file, its "=" does not separate a name.
    """

    name = "system"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> System:
        if isinstance(value, System):
            return value
        if self.kind == "feature":
            return System(self.kind, value)
        name, equals, rest = value.partition("=")
        named = bool(equals) and not value.startswith("@") and not Path(value).exists()
        found = System(self.kind, rest, name) if named else System(self.kind, value)
        if named and not name.strip():
            self.fail(f"{value!r}: expected NAME=FILE; the name is empty.", param, ctx)
        if found.column == "":
            self.fail(f"{value!r}: expected @ and the name of a column.", param, ctx)
        if found.path is not None:
            data_path(stdin=self.kind != "model").convert(found.value, param, ctx)
        return found


class OrderedCommand(click.Command):
    """A command that knows the order of its options on the command line, for `given_systems`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[_ORDER] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


def given_systems(options: dict[str, Any]) -> list[System]:
    """Remove the systems from the options of the running command, and return them in the order typed.

    Raises a usage error if two systems have the same name.
    """
    values = {kind: iter(options.pop(kind)) for kind in _KINDS if kind in options}
    order = click.get_current_context().meta[_ORDER]
    systems = [next(values[name]) for name in order if name in values]
    _check_names(systems)
    return systems


def _check_names(systems: Sequence[System]) -> None:
    """Raise a usage error if two systems have the same name."""
    seen = set()
    for system in systems:
        if system.name in seen:
            raise click.UsageError(
                f"two systems are called {system.name!r}; name them, such as --{system.kind} "
                f"other={system.value}."
                if system.kind != "feature"
                else f"{system.option} is given twice."
            )
        seen.add(system.name)


def input_files(systems: Sequence[System]) -> dict[str, Path | None]:
    """Files of the systems, by the options that name them. Raises a usage error if two of them are stdin."""
    if sum(system.value == "-" for system in systems if system.path is not None) > 1:
        raise click.UsageError("only one system can be stdin.")
    kinds = [system.kind for system in systems]
    return {f"--{s.kind}" if kinds.count(s.kind) == 1 else f"--{s.kind} {s.value}": s.path for s in systems}
