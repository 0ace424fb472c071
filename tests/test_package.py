"""What `import sinkprop` costs and offers; the examples in the docstrings."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys

import pytest
from frontends import front_end

import sinkprop

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(sinkprop.__path__, "sinkprop.") if "._" not in module.name
)


def modules_after(statement: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after a statement."""
    program = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


def loaded_after(statement: str) -> set[str]:
    """The top-level ones of them."""
    return {name.partition(".")[0] for name in modules_after(statement)}


def test_import_loads_no_other_package() -> None:
    modules = modules_after("import sinkprop")
    assert {name for name in modules if name.startswith("sinkprop")} == {
        "sinkprop",
        "sinkprop.common",
        "sinkprop.common.lazy",
    }
    loaded = {name.partition(".")[0] for name in modules}
    unasked = {
        "catboost",
        "click",
        "lightgbm",
        "matplotlib",
        "numpy",
        "pandas",
        "rich",
        "scipy",
        "sklearn",
        "torch",
        "xgboost",
    }
    assert loaded & unasked == set()


def test_the_expected_gain_loads_numpy_only() -> None:
    call = "import sinkprop; sinkprop.expected_gain([1.0, 2.0, 3.0], [0, 1, 2], ['a', 'b', 'a'])"
    assert loaded_after(call) & {"scipy", "sklearn", "torch", "matplotlib", "click", "rich"} == set()


def test_dir_lists_public_names_only() -> None:
    listed = dir(sinkprop)
    packages = [
        "auto",
        "calibration",
        "clicks",
        "cluster",
        "experiment",
        "explain",
        "export",
        "gbdt",
        "metrics",
        "model_files",
        "permutations",
        "plot",
        "policies",
        "reference",
        "report",
        "serving",
        "store",
        "torch",
    ]
    assert listed == sorted({*sinkprop.__all__, *packages})
    assert all(getattr(sinkprop, name) is not None for name in listed)
    assert not any(
        name.startswith("_") for package in (sinkprop.gbdt, sinkprop.report) for name in dir(package)
    )


@pytest.mark.parametrize(
    ("package", "name", "hint"),
    [
        ("sinkprop", "NDGC", ". Did you mean 'NDCG'?"),
        ("sinkprop", "load_modell", ". Did you mean 'load_model'?"),
        ("sinkprop.gbdt", "BostedRanker", ". Did you mean 'BoostedRanker'?"),
        ("sinkprop", "qqqq", ""),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(package: str, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(importlib.import_module(package), name)
    assert str(error.value) == f"module {package!r} has no attribute {name!r}{hint}"


def test_public_names_are_unique() -> None:
    assert len(set(sinkprop.__all__)) == len(sinkprop.__all__)


@pytest.mark.parametrize("name", sinkprop.__all__)
def test_a_public_name_exists_and_is_documented(name: str) -> None:
    thing = getattr(sinkprop, name)
    # A class without a docstring of its own would show its parent's, a dataclass its signature.
    doc = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert doc
    assert doc.strip()
    assert not doc.startswith(f"{name}(")


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert sinkprop.__version__ == version("sinkprop")


def test_the_core_modules_are_found() -> None:
    core = (
        "data.queries",
        "objective.expected_gain",
        "objective.sinkhorn",
        "reference",
        "linear.recipe",
        "torch.ranker",
    )
    assert {f"sinkprop.{name}" for name in core} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    for prefix, package in (
        ("sinkprop.jax", "jax"),
        ("sinkprop.mlflow", "mlflow"),
        ("sinkprop.rerank", "sentence_transformers"),
    ):
        if name.startswith(prefix):
            front_end(package, "sinkprop")
    module = importlib.import_module(name)
    failed, attempted = doctest.testmod(module, report=True)
    assert failed == 0
    assert attempted > 0 or ">>>" not in inspect.getsource(module)
