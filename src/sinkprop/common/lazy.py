"""Names of a package that are imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return functions `__getattr__` and `__dir__` for a package that imports some names on first use.

    `modules` maps each of these names to the full name of the module that defines it, or, for a submodule
    of the package, to the full name of the submodule itself: {"plot": "sinkprop.plot"}. `__dir__` lists these
    names and the names in the package's `__all__`.
    """

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(_unknown(package, name, listed()))
        value: Any = import_module(modules[name])
        if modules[name] != f"{package}.{name}":
            value = getattr(value, name)
        setattr(sys.modules[package], name, value)  # Python finds it there from now on
        return value

    def listed() -> list[str]:
        return sorted({*sys.modules[package].__all__, *modules})

    return attribute, listed


def _unknown(package: str, name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    hint = f". Did you mean {close[0]!r}?" if close else ""
    return f"module {package!r} has no attribute {name!r}{hint}"
