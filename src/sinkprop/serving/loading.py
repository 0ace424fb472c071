"""The reading of model files into scorers, for every kind of ranker."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.categories import NO_CATEGORIES, Categories
from sinkprop.data.queries import Groups
from sinkprop.model_files import (
    START,
    Model,
    ModelFileError,
    is_network,
    model_from,
    parse_model,
)
from sinkprop.serving.models import (
    LINEAR,
    TREES,
    FeatureModel,
    SavedModel,
    TreesModel,
    linear_model,
)
from sinkprop.serving.records import INVALID, SavedInputs, unreadable
from sinkprop.serving.scorer import Scorer

__all__ = ["KINDS", "MEMBERS", "load", "loads"]

# Class of each member of an AutoRanker, by the name under which a model file holds it.
MEMBERS = {
    "ridge": "RegressionRanker",
    "linear": "SinkPropRanker",
    "trees": "BoostedRanker",
    "networks": "NeuralRanker",
}


def load(path: str | os.PathLike[str]) -> Scorer:
    """Load a saved ranker of any class for scoring, with NumPy alone.

    Parameters
    ----------
    path : str or path
        File that the `save` method of a ranker wrote.

    Returns
    -------
    Scorer
        The model, whose `predict`, `rank` and probabilities are those of the ranker. Neither scikit-learn and
        SciPy nor the library that trained the model is imported, now or later.

    Raises
    ------
    ModelFileError
        If the file is damaged, is in a newer format, or holds a class that this version does not know, or a
        network of the user's own code.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from sinkprop.baselines import RegressionRanker
    >>> from sinkprop.serving import load
    >>> X, y, qid = np.arange(8.0)[:, None], [0, 0, 1, 2] * 2, [1] * 4 + [2] * 4
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     RegressionRanker().fit(X, y, qid=qid).save(f"{folder}/rank.model")
    ...     scorer = load(f"{folder}/rank.model")
    >>> scorer
    <Scorer: RegressionRanker, 1 feature, not calibrated>
    >>> scorer.rank([[0.1], [0.7], [0.3]])
    array([3, 1, 2])
    """
    # The file is opened and read once: it may be a pipe, or be replaced in the meantime.
    with open(path, "rb") as handle:
        start = handle.read(START)
        if is_network(start):
            from sinkprop.serving.network_files import read_blocks

            model, blocks = read_blocks(handle, start, path)
        else:
            model, blocks = model_from(handle, start, path), {}
    return _scorer(model, blocks, os.fspath(path))


def loads(data: bytes) -> Scorer:
    """Load a saved ranker from the bytes of its file, for example from an object store.

    Parameters
    ----------
    data : bytes
        Contents of a file that the `save` method of a ranker wrote.

    Returns
    -------
    Scorer
        The model; see `load`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from sinkprop.baselines import FeatureRanker
    >>> from sinkprop.serving import loads
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "bm25.model")
    ...     FeatureRanker(1).fit([[1.0], [2.0]], [0, 1], qid=[1, 1]).save(path)
    ...     data = path.read_bytes()
    >>> loads(data).predict([[3.0]])
    array([3.])
    """
    try:
        if is_network(data[:START]):
            from sinkprop.serving.network_files import parse_network

            model, blocks = parse_network(data)
        else:
            model, blocks = parse_model(data), {}
    except ModelFileError as error:
        raise ModelFileError(f"the model {error}") from None
    return _scorer(model, blocks, "the model")


def _scorer(model: Model, blocks: Mapping[str, Any], what: str) -> Scorer:
    if model.kind not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise ModelFileError(f"{what}: holds a {model.kind!r}; this sinkprop knows {known}.")
    try:
        found = KINDS[model.kind](model.kind, model.state, blocks)
        categories = _categories(model.kind, model.state["fitted"])
        return Scorer(model.kind, found, categories, model.state.get("calibration"))
    except INVALID as error:
        raise ModelFileError(unreadable(what, model.kind, error)) from None


def _categories(kind: str, fitted: Mapping[str, Any]) -> Categories:
    takes = kind in (*TREES, "AutoRanker") and "categories" in fitted
    return Categories.from_record(fitted) if takes else NO_CATEGORIES


def _linear(kind: str, state: dict[str, Any], blocks: Mapping[str, Any]) -> SavedModel:
    return linear_model(kind, state)


def _feature(kind: str, state: dict[str, Any], blocks: Mapping[str, Any]) -> SavedModel:
    inputs, feature = SavedInputs.of(state), state["fitted"]["feature"]
    if type(feature) is not int or not 1 <= abs(feature) <= inputs.n_features:
        raise ValueError(f"feature {feature!r} of {inputs.n_features} features")
    return FeatureModel(inputs=inputs, feature=feature)


def _trees(kind: str, state: dict[str, Any], blocks: Mapping[str, Any]) -> SavedModel:
    from sinkprop.serving.trees import trees_of

    return TreesModel(inputs=SavedInputs.of(state), takes_nan=True, tree_scores=trees_of(kind, state).scores)


def _network(kind: str, state: dict[str, Any], blocks: Mapping[str, Any]) -> SavedModel:
    from sinkprop.serving.networks import network_model

    return network_model(state, blocks)


@dataclass(frozen=True, eq=False, kw_only=True)
class CombinedModel(SavedModel):
    """The weighted sum of the scores of several models.

    members  (weight, models, scales) of each member; its weight is divided by the number of its models, and
             by the scale of each.
    """

    members: tuple[tuple[float, tuple[SavedModel, ...], tuple[float, ...]], ...]

    def outputs(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        total = np.zeros(len(X))
        for weight, models, scales in self.members:
            for model, scale in zip(models, scales, strict=True):
                scores = model.scores(model.prepared(X, groups), groups)
                total += (weight / len(models) / scale) * scores
        return total


def _combined(kind: str, state: dict[str, Any], blocks: Mapping[str, Any]) -> SavedModel:
    inputs, members = SavedInputs.of(state), []
    for name, saved in state["fitted"]["models"].items():
        weight, scales = float(saved["weight"]), tuple(float(scale) for scale in saved["scales"])
        models = tuple(_member(name, ranker) for ranker in saved["rankers"])
        if len(models) != len(scales) or not models:
            raise ValueError(f"the member {name} must have one scale per ranker")
        if not all(np.isfinite([weight, *scales])) or min(weight, *scales) <= 0:
            raise ValueError(f"the weight and the scales of {name} must be numbers above 0")
        if any(model.inputs.n_features != inputs.n_features for model in models):
            raise ValueError(f"the member {name} must have {inputs.n_features} features")
        members.append((weight, models, scales))
    if not members:
        raise ValueError("the model has no members")
    return CombinedModel(inputs=inputs, takes_nan=True, members=tuple(members))


def _member(name: str, saved: Mapping[str, Any]) -> SavedModel:
    if name not in MEMBERS:
        raise ValueError(f"the member {str(name)!r} is not one of {', '.join(MEMBERS)}")
    kind = MEMBERS[name]
    if kind != "NeuralRanker":
        return KINDS[kind](kind, saved["state"], {})
    from sinkprop.serving.network_files import parse_network

    model, blocks = parse_network(base64.b64decode("".join(saved["safetensors"]), validate=True))
    return _network(kind, model.state, blocks)


KINDS: dict[str, Callable[[str, dict[str, Any], Mapping[str, Any]], SavedModel]] = {
    **dict.fromkeys(LINEAR, _linear),
    **dict.fromkeys(TREES, _trees),
    "FeatureRanker": _feature,
    "NeuralRanker": _network,
    "AutoRanker": _combined,
}
