"""The library's networks in NumPy: perceptrons, networks with attention, and ensembles of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers
from sinkprop.data.feature_scaling import scale_by_query, transformed
from sinkprop.data.missing import DEFAULT, filled
from sinkprop.data.queries import Groups
from sinkprop.serving.models import SavedModel, Workings
from sinkprop.serving.network_files import Block
from sinkprop.serving.records import SavedInputs

__all__ = ["NetworkModel", "network_model"]

_TYPES = {"F64": "<f8", "F32": "<f4"}
_EPSILON = 1e-5  # added to variances by batch and layer normalization

Layer = Callable[[Floats], Floats]
Forward = Callable[[Floats, Integers], Floats]


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkModel(SavedModel):
    """A network of the library: its features are prepared in single precision, and it runs in double.

    Its outputs are rounded to single precision, as those of `NeuralRanker` are. So they are equal to them,
    unless a sum in another order, or a logarithm of another library, falls on the other side of the middle
    between two numbers.

    transform  Transform of the features, "log1p" or "none".
    dtype      Precision of the prepared features, "float32" or "float64".
    forward    Function from prepared rows (N, D + I), sorted by query, and offsets (Q + 1,) to the outputs.
    listwise   Whether it looks at the documents of a query together.
    """

    transform: str
    dtype: str
    forward: Forward
    listwise: bool

    def prepared(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        if self.inputs.scaling.kind != "query":
            return X  # everything else is done by `outputs`, in double precision
        assert groups is not None
        return scale_by_query(transformed(X, self.transform), groups)

    def outputs(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        rows = self._ready(X)
        if not self.listwise or groups is None or groups.rows is None:
            offsets = np.array([0, len(X)]) if groups is None else groups.offsets
            return self._checked(self.forward(rows, offsets))
        sorted_outputs = self._checked(self.forward(rows[groups.rows], groups.offsets))
        found = np.empty_like(sorted_outputs)
        found[groups.rows] = sorted_outputs
        return found

    def _ready(self, X: NDArray[Any]) -> Floats:
        """Rows (N, D) prepared for the network, (N, D + I)."""
        scaling = self.inputs.scaling
        rows: NDArray[Any] = X.astype(np.float64)
        if scaling.kind != "query":
            rows = transformed(rows, self.transform)
        rows = filled(rows, self.inputs.missing, scaling)
        if scaling.kind == "standard":
            rows = (rows - scaling.shift) * scaling.factor
        with np.errstate(over="ignore"):
            single = rows.astype(self.dtype)
        if not np.isfinite(single).all():
            row, column = np.argwhere(~np.isfinite(single))[0].tolist()
            raise ValueError(
                f"X holds {X[row, column]!r} in row {row}, column {column}, which is too large for the "
                f"{self.dtype} of the network."
            )
        return single.astype(np.float64)

    def _checked(self, theta: Floats) -> Floats:
        with np.errstate(over="ignore"):
            out: Floats = theta.astype(np.float32).astype(np.float64)
        out = out[:, 0] if out.shape[1] == 1 else out
        if not np.isfinite(out).all():
            row = int(np.argmin(np.isfinite(out if out.ndim == 1 else out.sum(axis=1))))
            raise ArithmeticError(
                f"the score of row {row} is {out[row]}: the network or its features have overflowed."
            )
        return out


def network_model(state: dict[str, Any], blocks: Mapping[str, Block]) -> NetworkModel:
    """Return the model of a `NeuralRanker` from its state and tensors; raises an error if it is not valid."""
    inputs, parameters, fitted = SavedInputs.of(state), state["parameters"], state["fitted"]
    # earlier files have the settings among the parameters only
    settings = fitted.get("network", parameters["network"])
    if not isinstance(settings, dict):
        raise ValueError(
            f"it holds the weights of a custom network, {settings}, but not its code, which only "
            "NeuralRanker.load(path, network=...) can use"
        )
    if parameters["input_transform"] not in ("log1p", "none") or parameters["dtype"] not in (
        "float32", "float64"
    ):  # fmt: skip
        raise ValueError("input_transform or dtype is not known")
    workings = Workings.of(fitted["relaxation"], parameters)
    listwise = settings.get("type", "MLP") == "ListTransformer"
    tensors = _Tensors({name: _array(name, block) for name, block in blocks.items()})
    made = _attention if listwise else _perceptron

    def network(prefix: str) -> Forward:
        return made(tensors.under(prefix), settings, inputs.n_columns, workings.n_outputs)

    count = len(fitted.get("members", ()))
    if count:
        forward = _mean([network(f"networks.{i}.") for i in range(count)], tensors.of("weights", (count,)))
    else:
        forward = network("")
    tensors.all_used()
    return NetworkModel(
        inputs=inputs,
        takes_nan=parameters.get("missing", DEFAULT) != "error",
        workings=workings,
        transform=parameters["input_transform"],
        dtype=parameters["dtype"],
        forward=forward,
        listwise=listwise,
    )


class _Tensors:
    """Tensors of a network, by name, as arrays in double precision."""

    def __init__(self, arrays: dict[str, Floats], prefix: str = "", used: set[str] | None = None) -> None:
        self._arrays, self._prefix = arrays, prefix
        self._used: set[str] = set() if used is None else used

    def under(self, prefix: str) -> _Tensors:
        return _Tensors(self._arrays, self._prefix + prefix, self._used)

    def of(self, name: str, shape: tuple[int, ...]) -> Floats:
        found = self._arrays[self._prefix + name]
        if found.shape != shape:
            raise ValueError(f"the tensor {self._prefix + name!r} has the shape {found.shape}, not {shape}")
        self._used.add(self._prefix + name)
        return found

    def linear(self, name: str, n_in: int, n_out: int) -> Layer:
        W, b = (
            np.ascontiguousarray(self.of(f"{name}.weight", (n_out, n_in)).T),
            self.of(f"{name}.bias", (n_out,)),
        )
        return lambda x: x @ W + b

    def layer_norm(self, name: str, n: int) -> Layer:
        w, b = self.of(f"{name}.weight", (n,)), self.of(f"{name}.bias", (n,))

        def normalize(x: Floats) -> Floats:
            away = x - x.mean(axis=1, keepdims=True)
            variance = np.square(away).mean(axis=1, keepdims=True)
            found: Floats = away / np.sqrt(variance + _EPSILON) * w + b
            return found

        return normalize

    def batch_norm(self, name: str, n: int) -> Layer:
        mean, variance, w, b = (
            self.of(f"{name}.{part}", (n,)) for part in ("running_mean", "running_var", "weight", "bias")
        )
        self._used.add(f"{self._prefix}{name}.num_batches_tracked")
        factor = w / np.sqrt(variance + _EPSILON)
        shift = b - mean * factor
        return lambda x: x * factor + shift

    def all_used(self) -> None:
        more = sorted(set(self._arrays) - self._used)
        if more:
            raise ValueError(f"the tensor {more[0]!r} is not one of this network")


def _array(name: str, block: Block) -> Floats:
    if block.dtype not in _TYPES:
        if name.endswith("num_batches_tracked"):
            return np.zeros(0)
        raise ValueError(f"the tensor {name!r} has the type {block.dtype}; expected F32 or F64")
    return np.frombuffer(block.data, _TYPES[block.dtype]).reshape(block.shape).astype(np.float64)


def _perceptron(tensors: _Tensors, settings: Mapping[str, Any], n: int, n_outputs: int) -> Forward:
    widths, layers, at = list(settings["hidden"]), [], 0
    activation = _ACTIVATIONS[settings["activation"]]
    normalization = settings["layer_normalization"]
    for before, after in zip([n, *widths], widths, strict=False):
        layers.append(tensors.linear(f"layers.{at}", before, after))
        at += 1
        if normalization is not None:
            norm = {"batch": tensors.batch_norm, "layer": tensors.layer_norm}[normalization]
            layers.append(norm(f"layers.{at}", after))
            at += 1
        layers.append(activation)
        at += 1 + (settings["dropout"] > 0)
    if widths:
        layers.append(tensors.linear(f"layers.{at}", widths[-1], n_outputs))
    linear = tensors.linear("linear", n, n_outputs) if settings["linear"] or not widths else None

    def forward(rows: Floats, offsets: Integers) -> Floats:
        if not layers:
            assert linear is not None
            return linear(rows)
        x = rows
        for layer in layers:
            x = layer(x)
        return x if linear is None else x + linear(rows)

    return forward


def _attention(tensors: _Tensors, settings: Mapping[str, Any], n: int, n_outputs: int) -> Forward:
    width, heads, relative = settings["width"], settings["heads"], settings["relative"]
    embed = tensors.linear("embed", (1 + relative) * n, width)
    blocks = [
        _block(tensors.under(f"blocks.{i}."), width, heads, _ACTIVATIONS[settings["activation"]])
        for i in range(settings["blocks"])
    ]
    normalize, head = tensors.layer_norm("normalize", width), tensors.linear("head", width, n_outputs)
    linear = tensors.linear("linear", n, n_outputs) if settings["linear"] else None

    def of_one_query(rows: Floats) -> Floats:
        x = embed(np.concatenate([rows, rows - rows.mean(axis=0)], axis=1) if relative else rows)
        for block in blocks:
            x = block(x)
        out = head(normalize(x))
        return out if linear is None else out + linear(rows)

    def forward(rows: Floats, offsets: Integers) -> Floats:
        ends = offsets.tolist()
        return np.concatenate([of_one_query(rows[a:b]) for a, b in pairwise(ends)])

    return forward


def _block(tensors: _Tensors, width: int, heads: int, activation: Layer) -> Layer:
    """Attention and a layer on each document of a query, each after layer normalization and added."""
    before_attention = tensors.layer_norm("before_attention", width)
    before_layers = tensors.layer_norm("before_layers", width)
    project = tensors.linear("attention.project", width, 3 * width)
    out = tensors.linear("attention.out", width, width)
    wider = tensors.linear("layers.0", width, 2 * width)
    narrower = tensors.linear("layers.3", 2 * width, width)
    scale = 1 / math.sqrt(width // heads)

    def attend(x: Floats) -> Floats:
        q, k, v = project(x).reshape(len(x), 3, heads, -1).transpose(1, 2, 0, 3)
        A = (q @ k.transpose(0, 2, 1)) * scale
        A = np.exp(A - A.max(axis=2, keepdims=True))
        mixed = (A / A.sum(axis=2, keepdims=True)) @ v
        return out(mixed.transpose(1, 0, 2).reshape(len(x), -1))

    def block(x: Floats) -> Floats:
        x = x + attend(before_attention(x))
        return x + narrower(activation(wider(before_layers(x))))

    return block


def _mean(networks: list[Forward], weights: Floats) -> Forward:
    """Weighted sum of the outputs of several networks."""

    def forward(rows: Floats, offsets: Integers) -> Floats:
        together = np.stack([network(rows, offsets) for network in networks], axis=-1)
        total: Floats = (together * weights).sum(axis=-1)
        return total

    return forward


_erf = np.frompyfunc(math.erf, 1, 1)


def _gelu(x: Floats) -> Floats:
    found: Floats = x * 0.5 * (1 + np.asarray(_erf(x * math.sqrt(0.5)), dtype=np.float64))
    return found


def _silu(x: Floats) -> Floats:
    with np.errstate(over="ignore"):
        found: Floats = x / (1 + np.exp(-x))
    return found


_ACTIVATIONS: dict[str, Layer] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": _gelu,
    "silu": _silu,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "tanh": np.tanh,
}
