"""The docstrings of the public names: numpydoc's form, every parameter described."""

import dataclasses
import importlib
import inspect

import pytest

from sinkprop.common.packages import installed

validate = pytest.importorskip("numpydoc.validate", reason="numpydoc, which checks the form").validate

NEEDS = {"gbdt": "lightgbm", "torch": "torch", "cluster": "distributed", "plot": "matplotlib"}
MODULES = ["sinkprop"] + [
    f"sinkprop.{name}"
    for name in (
        "baselines",
        "cluster",
        "datasets",
        "experiment",
        "export",
        "gbdt",
        "metrics",
        "plot",
        "reference",
        "report",
        "store",
        "torch",
    )
    if installed(NEEDS.get(name, "numpy"))
]
# numpydoc's codes: sections (GL), summaries (SS), parameters (PR), returns (RT), yields (YD)
CODES = {
    *("GL03", "GL05", "GL06", "GL07", "GL08"),
    *("SS01", "SS03", "SS04", "SS06"),
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR07", "PR08", "PR09", "PR10"),
    *("RT01", "RT03", "RT04", "RT05", "YD01"),
}


def documented(module_name):
    """Full names of the module's public functions and classes, and of the methods and properties of these."""
    module, seen = importlib.import_module(module_name), set()
    for public in module.__all__:
        thing = getattr(module, public)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            yield f"{module_name}.{public}"
        for name in dir(thing) if inspect.isclass(thing) else ():
            owner = next((base for base in thing.__mro__ if name in vars(base)), None)
            member = vars(owner).get(name) if owner else None
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if (
                not name.startswith("_")
                and inspect.isfunction(function)
                and function.__name__ == name
                and function.__module__.startswith("sinkprop")
                and function not in seen
                and not _inherits_words(owner, name, function)
            ):
                seen.add(function)
                yield f"{module_name}.{public}.{name}"


def _inherits_words(owner, name, function):
    """Whether a method without a docstring has that of a base class."""
    return not function.__doc__ and any(
        getattr(vars(base).get(name), "__doc__", None) for base in owner.__mro__[1:]
    )


def faults(full):
    """What numpydoc finds in the docstring of a name, as (code, words)."""
    result = validate(full)
    found = [(code, words) for code, words in result["errors"] if code in CODES]
    module, _, name = full.rpartition(".")
    try:
        thing = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:  # a method or property
        return found
    if dataclasses.is_dataclass(thing) or (
        inspect.isclass(thing) and "\nAttributes\n---" in inspect.getdoc(thing)
    ):
        # the fields of a record may be in either section
        text = inspect.getdoc(thing)
        missing = [f for f in inspect.signature(thing).parameters if f"\n{f} : " not in text]
        found = [(code, words) for code, words in found if code not in ("PR01", "PR02", "PR03")]
        found += [("PR01", f"{name} is not described")] if (name := ", ".join(missing)) else []
    return found


@pytest.mark.parametrize("module", MODULES)
def test_public_docstrings_are_complete(module):
    found = {full: errors for full in documented(module) if (errors := faults(full))}
    lines = [f"{full}: {code} {words}" for full, errors in found.items() for code, words in errors]
    assert not lines, "\n".join(lines)
