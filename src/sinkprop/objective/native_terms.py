"""Gains and relaxations as named arguments of the native functions."""

from __future__ import annotations

import math
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.arguments import half_steps
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.objective.gains import Gain
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator

__all__ = ["NativeGains", "NativeSettings", "native_gains", "native_settings"]

_CODES = {"gaussian": 0, "laplace": 1, "logit-logistic": 2, "probit": 3, "beta": 4}


class NativeSettings(NamedTuple):
    """A relaxation and its normalization, in the order of the native arguments: `*settings` or by name.

    relaxation  its number, as in native/kernels/kernels.hpp
    exact       the accurate setting of the Gaussian sums
    half_steps  normalizations of columns or rows
    """

    relaxation: int
    sigma: float
    exact: bool
    half_steps: int
    epsilon: float


class NativeGains(NamedTuple):
    """A gain of the documents at hand, in the order of the native arguments: `*gains` or by name.

    gains        (N,) gains, or labels of gain 2^r - 1 where `exponential` is set
    classes      (N,) the row of `discounts` that each document has; None where there is one
    discounts    (classes, longest)
    normalize    whether values are divided by that of the best ranking
    """

    gains: Floats
    exponential: bool
    classes: NDArray[np.int32] | None
    discounts: Floats
    normalize: bool


def native_settings(relaxation: Relaxation, n_iter: float, epsilon: float) -> NativeSettings:
    """The relaxation and the normalization, checked."""
    if isinstance(relaxation, SmoothedIndicator):
        code, sigma, exact = _CODES[relaxation.kernel], relaxation.sigma, relaxation.accuracy == "exact"
    elif isinstance(relaxation, PartitionedMeasure):
        code, sigma, exact = _CODES[relaxation.family], 1.0, True
    else:
        raise TypeError(
            f"relaxation must be a SmoothedIndicator or a PartitionedMeasure; got {relaxation!r}."
        )
    if not isinstance(epsilon, Real) or isinstance(epsilon, bool) or not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be a finite number, not below 0; got {epsilon!r}.")
    if epsilon > 1e100:  # entries of A are at most 1: sums of this would overflow for nothing
        raise ValueError(f"epsilon must be at most 1e100; got {epsilon!r}.")
    return NativeSettings(code, sigma, exact, half_steps(n_iter), float(epsilon))


def native_gains(gain: Gain, y: Floats, groups: Groups, row_weights: Floats | None) -> NativeGains:
    """The gain of labels y (N,), each document's multiplied by its weight."""
    longest = groups.longest
    if gain.separable:
        weights, exponential = gain.native_gains(y)
        classes, discounts = None, gain.discounts(longest).reshape(1, longest)
    else:
        classes, discounts = gain.class_discounts(y, longest)
        weights, exponential = np.ones(len(y)), False
    if row_weights is not None:
        weights, exponential = (gain.gains(y) if gain.separable else 1.0) * row_weights, False
    return NativeGains(weights, exponential, classes, discounts, gain.normalized)
