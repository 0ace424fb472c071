"""Helpers for LightGBM: its import, models as text, feature names, and the number of threads."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from sinkprop.common.arguments import threads

__all__ = [
    "as_booster",
    "booster_names",
    "booster_of",
    "booster_text",
    "lightgbm_module",
    "openmp_threads",
]

_PROCESS = os.getpid()
# parameters whose values depend on the machines that trained the model, and the values to write instead
_ALONE = {"num_threads": "0", "num_machines": "1", "tree_learner": "serial"}


def lightgbm_module(needed_by: str = "BoostedRanker") -> Any:
    """Import LightGBM; if it is missing, raise an ImportError that says which name needs it."""
    try:
        import lightgbm
    except ImportError as error:
        raise ImportError(f'{needed_by} needs lightgbm: pip install "sinkprop[lightgbm]"') from error
    return lightgbm


def booster_text(booster: Any, n_trees: int = -1) -> str:
    """Write the first n_trees trees of a model as text, in LightGBM's format; -1 writes all trees.

    The text does not depend on the number of threads and processes that trained the model.
    """
    text: str = booster.model_to_string(num_iteration=n_trees)
    trees, parameters, lines = text.rpartition("\nparameters:")
    for name, value in _ALONE.items():
        lines = re.sub(rf"^\[{name}: \w+\]$", f"[{name}: {value}]", lines, flags=re.MULTILINE)
    return trees + parameters + lines


def booster_of(text: str, needed_by: str = "BoostedRanker") -> Any:
    """Make a booster from the text of a model.

    The text must be complete: LightGBM may end the process when it reads a damaged text.
    """
    return lightgbm_module(needed_by).Booster(model_str=text)


def as_booster(model: Any) -> Any:
    """Return the LightGBM booster of the argument `init_model` of `fit`, or None if the argument is None."""
    if model is None:
        return None
    booster = getattr(model, "booster_", model)
    if not isinstance(booster, lightgbm_module().Booster):
        raise ValueError(
            "init_model must be a BoostedRanker, a lightgbm.Booster or a lightgbm.LGBMModel; got "
            f"{type(model).__name__!r}."
        )
    return booster


def booster_names(names: Sequence[str]) -> list[str] | str:
    """Feature names that LightGBM accepts, or "auto" if some would be empty or equal.

    LightGBM accepts neither white space nor the special characters of JSON; both become underscores.

    >>> booster_names(["title: bm25", "length"])
    ['title__bm25', 'length']
    """
    given = [re.sub(r"[\s\",:\[\]{}]", "_", str(name)) for name in names]
    return given if given and all(given) and len(set(given)) == len(given) else "auto"


def openmp_threads(n_threads: int | None, n: int) -> int:
    """Number of threads that LightGBM or XGBoost gets for n documents.

    It is `n_threads`, or a number that depends on n if `n_threads` is None; see `threads`. But it is 1 in a
    forked process: OpenMP's threads exist only in the parent process, and the child would wait for them
    forever. The number of threads does not change the trees.
    """
    wanted = threads(n_threads, n)
    return wanted if os.getpid() == _PROCESS else 1
