"""Helpers for LightGBM: its import, models as text, and feature names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sinkprop.common.forks import guard_forked_process, guarded_import
from sinkprop.serving.tree_files.lightgbm_text import check_model_text

__all__ = [
    "as_booster",
    "booster_names",
    "booster_of",
    "booster_text",
    "checked_booster",
    "lightgbm_module",
]

# parameters whose values depend on the machines that trained the model, and the values to write instead
_ALONE = {"num_threads": "0", "num_machines": "1", "tree_learner": "serial", "is_enable_sparse": "1"}


def lightgbm_module(needed_by: str = "BoostedRanker") -> Any:
    """Import LightGBM, see `guarded_import`."""
    return guarded_import("lightgbm", needed_by)


def booster_text(booster: Any, n_trees: int = -1) -> str:
    """Write the first n_trees trees of a model as text, in LightGBM's format; -1 writes all trees.

    The text does not depend on the number of threads and processes that trained the model.
    """
    guard_forked_process()
    text: str = booster.model_to_string(num_iteration=n_trees)
    trees, parameters, lines = text.rpartition("\nparameters:")
    for name, value in _ALONE.items():
        lines = re.sub(rf"^\[{name}: \w+\]$", f"[{name}: {value}]", lines, flags=re.MULTILINE)
    return trees + parameters + lines


def booster_of(text: str, needed_by: str = "BoostedRanker") -> Any:
    """Make a booster from the text of a model, which LightGBM must have written in this process.

    LightGBM may end the process when it reads any other text; see `checked_booster`.
    """
    return lightgbm_module(needed_by).Booster(model_str=text)


def checked_booster(text: str, n_features: int, needed_by: str = "BoostedRanker") -> Any:
    """Make a booster from the text of a model that anyone may have written.

    Raises a ValueError unless it is a model of `n_features` features that is safe to use.
    """
    check_model_text(text, n_features)
    lightgbm = lightgbm_module(needed_by)
    try:
        return lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise ValueError(f"LightGBM cannot read the trees: {error}") from None


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
