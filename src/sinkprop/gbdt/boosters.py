"""LightGBM's boosters: their text, their feature names, and the threads of a tree library."""

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
# what a model's text has of the machines that it was trained on
_ALONE = {"num_threads": "0", "num_machines": "1", "tree_learner": "serial"}


def lightgbm_module(needed_by: str = "BoostedRanker") -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise ImportError(f'{needed_by} needs lightgbm: pip install "sinkprop[lightgbm]"') from error
    return lightgbm


def booster_text(booster: Any, n_trees: int = -1) -> str:
    """The model as LightGBM writes it, with the same bytes for any number of threads and of processes."""
    text: str = booster.model_to_string(num_iteration=n_trees)
    trees, parameters, lines = text.rpartition("\nparameters:")
    for name, value in _ALONE.items():
        lines = re.sub(rf"^\[{name}: \w+\]$", f"[{name}: {value}]", lines, flags=re.MULTILINE)
    return trees + parameters + lines


def booster_of(text: str, needed_by: str = "BoostedRanker") -> Any:
    """The booster of a text that is known to be whole: LightGBM may end the process at any other."""
    return lightgbm_module(needed_by).Booster(model_str=text)


def as_booster(model: Any) -> Any:
    """The booster of what fit takes as init_model."""
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
    """Names of features as LightGBM takes them: different ones, without blanks and the signs of JSON.

    >>> booster_names(["title: bm25", "length"])
    ['title__bm25', 'length']
    """
    given = [re.sub(r"[\s\",:\[\]{}]", "_", str(name)) for name in names]
    return given if given and all(given) and len(set(given)) == len(given) else "auto"


def openmp_threads(n_threads: int | None, n: int) -> int:
    """How many threads LightGBM or XGBoost gets for n documents.

    One in a process that was forked: OpenMP's threads stayed with the parent, and the child would wait for
    them for ever. The trees are the same.
    """
    wanted = threads(n_threads, n)
    return wanted if os.getpid() == _PROCESS else 1
