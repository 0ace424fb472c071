"""The docstrings of the public names: numpydoc's form, every parameter described."""

import importlib
import inspect
import sys
from enum import Enum

import pytest

from sinkprop.common.packages import installed

validate = pytest.importorskip("numpydoc.validate", reason="numpydoc, which checks the form").validate

NEEDS = {
    "gbdt": "lightgbm",
    "torch": "torch",
    "jax": "jax",
    "cluster": "distributed",
    "plot": "matplotlib",
    "rerank": "sentence_transformers",
    "mlflow": "mlflow",
}
MODULES = ["sinkprop"] + [
    f"sinkprop.{name}"
    for name in (
        "baselines",
        "calibration",
        "cluster",
        "datasets",
        "experiment",
        "export",
        "gbdt",
        "metrics",
        "mlflow",
        "permutations",
        "plot",
        "policies",
        "reference",
        "report",
        "rerank",
        "store",
        "torch",
        "jax",
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
    """The module's public functions and classes, and the methods and properties of these classes, by name."""
    module, found = importlib.import_module(module_name), {}
    for public in module.__all__:
        thing = getattr(module, public)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            found[f"{module_name}.{public}"] = thing
        for name in dir(thing) if inspect.isclass(thing) else ():
            owner = next((base for base in thing.__mro__ if name in vars(base)), None)
            member = vars(owner).get(name) if owner else None
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if (
                not name.startswith("_")
                and inspect.isfunction(function)
                and function.__name__ == name
                and function.__module__.startswith("sinkprop")
                and function not in found.values()
                and not _inherits_words(owner, name, function)
            ):
                found[f"{module_name}.{public}.{name}"] = function
    return found


def _inherits_words(owner, name, function):
    """Whether a method without a docstring has that of a base class."""
    return not function.__doc__ and any(
        getattr(vars(base).get(name), "__doc__", None) for base in owner.__mro__[1:]
    )


def faults(thing):
    """Faults in the docstring of a function or class, in numpydoc's words."""
    # by the name of the definition: `sinkprop.store.convert` is also a module
    found = {
        code: words
        for code, words in validate(f"{thing.__module__}.{thing.__qualname__}")["errors"]
        if code in CODES
    }
    text = inspect.getdoc(thing) or ""
    if inspect.isclass(thing) and issubclass(thing, Enum):
        found.pop("PR01", None)  # its parameters are those of enum.Enum
    elif inspect.isclass(thing) and "\nAttributes\n---" in text:
        # the fields of a record are attributes for those who get one, and need no second description
        for code in ("PR01", "PR02", "PR03"):
            found.pop(code, None)
        missing = [name for name in inspect.signature(thing).parameters if f"\n{name} : " not in text]
        found |= {"PR01": f"{', '.join(missing)} not described"} if missing else {}
    return [f"{code} {words}" for code, words in found.items()]


@pytest.mark.parametrize("module", MODULES)
def test_public_docstrings_are_complete(module):
    lines = [f"{name}: {fault}" for name, thing in documented(module).items() for fault in faults(thing)]
    assert not lines, "\n".join(lines)


def test_faults_are_found():
    def summed(a, b):  # noqa: D417 - b is missing on purpose
        """Sum of two numbers

        Parameters
        ----------
        a : int
            the first
        """
        return a + b

    summed.__module__, summed.__qualname__ = __name__, "summed"
    sys.modules[__name__].summed = summed
    found = {fault.partition(" ")[0] for fault in faults(summed)}
    assert found == {"SS03", "PR01", "PR08", "PR09", "RT01"}
