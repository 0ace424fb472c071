"""Columns of a click log, found in its first file and compared with those of the other files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sinkprop.clicks.log_files import LogPart
from sinkprop.data.categories import category_kind
from sinkprop.data.doubtful_data import warn_of_column_names
from sinkprop.data.frames import feature_columns, frame_columns

__all__ = ["ID_ROLES", "LogColumns"]

ID_ROLES = ("query", "doc", "session", "policy")
_OPTIONAL = ("session", "propensity", "policy", "value")  # found by their names, if the caller names none


@dataclass
class LogColumns:
    """Columns of a log, as its first part with rows has them.

    part      This part.
    of_role   {role: column}, such as {"query": "query_id"}.
    features  Feature columns, in order.
    exact     Whether the features are all other columns, so that no part may have more.
    """

    part: LogPart
    of_role: dict[str, str]
    features: list[Any]
    exact: bool

    @classmethod
    def of(
        cls,
        part: LogPart,
        named: dict[str, str | None],
        features: Sequence[str] | None,
        *,
        own_features: bool,
    ) -> LogColumns:
        """Find the columns, given the arguments of `read_clicks`; with `own_features`, also of features.

        Raises a ValueError if one is missing, or if a feature has another role. Warns if columns become
        features that have names of other things.
        """
        names = _places(part)
        of_role = {role: name for role, name in named.items() if name is not None}
        used = {*of_role.values(), *(() if features is None or isinstance(features, str) else features)}
        of_role |= {role: role for role in _OPTIONAL if named[role] is None and role in names.keys() - used}
        for role, name in of_role.items():
            if name not in names:
                hint = " With doc=None, each row is a document of its own." if role == "doc" else ""
                shown = ", ".join(map(repr, list(names)[:20]))
                raise ValueError(
                    f"{_prefix(part)}{role}={name!r} is not a column of the log, which has {shown}. Name the "
                    f"column with {role}=.{hint}"
                )
        columns = cls(part, of_role, [], own_features and features is None)
        if own_features:
            columns.features = columns._chosen(part, features)
        if columns.exact:
            warn_of_column_names(columns.features)
        return columns

    def _chosen(self, part: LogPart, features: Sequence[str] | None) -> list[Any]:
        """Feature columns of a part, given the argument `features`."""
        taken = {name: role for role, name in self.of_role.items()}
        if features is not None and not isinstance(features, str):
            for name in features:
                if name in taken:
                    raise ValueError(f"features must not name {name!r}, the {taken[name]} column of the log.")
            if not len(features):
                return []
        roles: dict[str, Any] = {"qid": self.of_role["query"], "label": None, "docid": None}
        found = feature_columns(part.header, list(_places(part)), **roles, features=features)
        # pandas writes its index to CSV files as a column without a name
        return [name for name in found if name not in taken and (name != "" or features is not None)]

    def check(self, part: LogPart) -> None:
        """Raise a ValueError if another part does not have these columns, or has others."""
        names, first_names, first = _places(part), _places(self.part), self.part
        own = dict.fromkeys([*self.of_role.values(), *self.features])
        for name in own:
            if name not in names:
                raise ValueError(f"{part.name} has no column {name!r}, which {first.name} has.")
        # With features=, other columns may differ, but not those that the first part would have given a role.
        others = names.keys() & {*_OPTIONAL} - first_names.keys()
        for name in self._chosen(part, None) if self.exact else sorted(others):
            if name not in own:
                hint = "" if name in _OPTIONAL else ", or name the features with features=[...]"
                raise ValueError(
                    f"{part.name} has a column {name!r}, which {first.name} does not have. Give all files "
                    f"the same columns{hint}."
                )
        for name in (self.of_role[role] for role in ID_ROLES if role in self.of_role):
            before, here = _kind(first, name), _kind(part, name)
            if here != before:
                raise ValueError(
                    f"column {name!r} holds {here} in {part.name}, but {before} in {first.name}; expected "
                    "ids of one type in all files. Ids of CSV files are read as text."
                )
        for name in self.features:
            before = category_kind(first.header, first_names[name])
            here = category_kind(part.header, names[name])
            if bool(before) != bool(here):
                one, other = (part, first) if here else (first, part)
                raise ValueError(f"column {name!r} is categorical in {one.name}, but not in {other.name}.")


def _places(part: LogPart) -> dict[Any, int]:
    """{column: its number} of a part."""
    try:
        names, _ = frame_columns(part.header)
    except ValueError as error:
        raise ValueError(f"{_prefix(part)}{error}") from None
    return {name: i for i, name in enumerate(names)}


def _prefix(part: LogPart) -> str:
    return f"{part.name}: " if part.name else ""


def _kind(part: LogPart, name: str) -> str:
    """Type of the ids in a column of a file, in words."""
    kind = part.header.schema.field(name).type
    kind = str(kind.value_type if str(kind).startswith("dictionary") else kind)
    if kind in ("string", "large_string", "string_view"):
        return "text"
    return "numbers" if kind.startswith(("int", "uint", "float", "double", "halffloat")) else kind
