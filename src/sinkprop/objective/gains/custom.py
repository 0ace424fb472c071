"""Gains with a function of the user's: `ColumnGain` of what stands at each rank, `RowGain` of exposures.

The derivatives of the function are the user's or are computed, and the user's are checked once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.arguments import one_of
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.objective.gains.base import Bound, Gain, Term, label_column, not_bound
from sinkprop.objective.gains.rows import Exposure, checked_exposure, exposure_weights

__all__ = ["ColumnGain", "RowGain", "UnsavedGain"]

Differentiation = Literal["auto", "torch", "jax", "complex-step"]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ColumnGain(Gain):
    """A custom gain F(R) of what is expected at each rank, R[k] = sum_j Pi[j, k] a[j].

    For a ranking, R is the sequence of the attributes a in rank order, and F(R) should be the metric. F must
    be smooth. It is called once per query.

    Parameters
    ----------
    attributes : callable, or array of shape (N,) or (N, C)
        Attributes of the documents: a function from labels, of shape (N,) or (N, L), to an array of
        attributes, of shape (N,) or (N, C); or the attributes themselves. An array only fits the documents of
        one call, or of a fit without `eval_set`.
    function : callable
        F, a function of R that returns a number. R has the shape (n,) if there is one attribute per document,
        and (n, C) otherwise, for a query of n documents; row k - 1 is for rank k.
    gradient : callable, optional
        Function of R that returns the derivative of F with respect to R, in the shape of R. It is compared
        with a numerical derivative once. By default the derivative is computed; see `differentiate`.
    differentiate : {"auto", "torch", "jax", "complex-step"}, default "auto"
        How the derivative is computed if there is no `gradient`. "torch" and "jax" call the function with
        tensors or arrays of these packages. "complex-step" calls it with a complex array once per entry of R,
        which is exact for functions of NumPy operations that keep the imaginary part (abs, max, var and
        comparisons do not), but slow for long queries. "auto" takes the first of torch and jax that is
        imported already and can run the function, and "complex-step" otherwise. The derivative is compared
        with differences of the function once.

    Examples
    --------
    A reader who sees two relevant documents is satisfied: the probability that at least two of the first ten
    ranks are relevant, if ranks are independent.

    >>> import numpy as np
    >>> from sinkprop import expected_gain
    >>> def at_least_two(R):
    ...     none = np.prod(1 - R[:10])
    ...     return 1 - none - none * np.sum(R[:10] / (1 - R[:10] + 1e-9))
    >>> gain = ColumnGain(attributes=lambda labels: 0.9 * (labels > 0), function=at_least_two)
    >>> round(expected_gain([3, 2, 1], [1, 0, 1], gain=gain).value, 4)
    0.6486
    """

    attributes: Callable[[Floats], ArrayLike] | Any
    function: Callable[[Any], Any]
    gradient: Callable[[Floats], ArrayLike] | None = None
    differentiate: Differentiation = "auto"

    def __post_init__(self) -> None:
        _check_functions("ColumnGain", self.function, self.gradient, self.differentiate)
        if not callable(self.attributes) and not isinstance(self.attributes, Bound | _Columns):
            object.__setattr__(self, "attributes", _as_attributes(self.attributes))

    @property
    def text(self) -> str | None:
        return None

    def __str__(self) -> str:
        return f"ColumnGain({_called(self.function)})"

    def with_columns(self, column: Callable[[Bound], tuple[int, ...]]) -> Gain:
        if not isinstance(self.attributes, Bound):
            return self
        return replace(self, attributes=_Columns(column(self.attributes)))

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        a = self._attributes(labels)
        function = _native_function(self, self.function, self.gradient, self.differentiate, flat=a.ndim == 1)
        planes = np.ascontiguousarray(np.atleast_2d(a.T))
        planes = planes if weights is None else planes * weights
        return [Term("column", planes, np.zeros((1, groups.longest)), function=function)]

    def _attributes(self, labels: Floats) -> Floats:
        if isinstance(self.attributes, Bound):
            not_bound(self)
        if isinstance(self.attributes, _Columns):
            columns = [label_column(self, labels, column) for column in self.attributes]
            return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        a = np.array(self.attributes(labels), dtype=np.float64)
        if a.shape[:1] != labels.shape[:1] or a.ndim not in (1, 2):
            raise ValueError(
                f"ColumnGain: attributes(labels) must return an array of shape ({len(labels)},) or "
                f"({len(labels)}, C); got shape {a.shape}."
            )
        _check_finite("attributes(labels)", a)
        return a


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class RowGain(Gain):
    """A custom gain H(E) of the exposures E[j] = sum_k Pi[j, k] e(k) of a query's documents.

    H must be smooth. It is called once per query, with the documents in an order of its own: the value must
    not depend on it.

    Parameters
    ----------
    function : callable
        H, a function of E (n,) and of the labels of the same documents, (n,) or (n, L), that returns a
        number. Larger is better; return the negative of a penalty, or subtract the gain.
    gradient : callable, optional
        Function of E and of the labels that returns the derivative of H with respect to E, shape (n,). It is
        compared with a numerical derivative once. By default the derivative is computed.
    exposure : {"log2", "reciprocal"} or callable, default "log2"
        Attention e(k) that rank k gets: 1/log2(k + 1), 1/k, or a function of the ranks 1.0, ..., n.
    k : int, optional
        Number of ranks that get attention. By default all ranks do.
    differentiate : {"auto", "torch", "jax", "complex-step"}, default "auto"
        How the derivative is computed if there is no `gradient`; see `ColumnGain`.

    Examples
    --------
    No document should get more than half of the attention of the first rank:

    >>> from sinkprop import NDCG, expected_gain
    >>> cap = RowGain(function=lambda E, labels: -(((E > 0.5) * (E - 0.5)) ** 2).sum())
    >>> round(expected_gain([300, 200, 100], [2, 1, 0], gain=NDCG() + cap).value, 4)
    0.7329
    """

    function: Callable[[Any, Floats], Any]
    gradient: Callable[[Floats, Floats], ArrayLike] | None = None
    exposure: Exposure = "log2"
    k: int | None = None
    differentiate: Differentiation = "auto"

    def __post_init__(self) -> None:
        _check_functions("RowGain", self.function, self.gradient, self.differentiate)
        object.__setattr__(self, "k", checked_exposure("RowGain", self.exposure, self.k))

    @property
    def text(self) -> str | None:
        return None

    def __str__(self) -> str:
        return f"RowGain({_called(self.function)})"

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        if weights is not None:
            raise ValueError("sample_weight: a RowGain has no row weights; pass them as a label column.")
        function = _native_function(self, self.function, self.gradient, self.differentiate, flat=True)
        planes = np.ascontiguousarray(np.atleast_2d(labels.T))
        e = exposure_weights(self.exposure, self.k, groups.longest)
        return [Term("row", planes, e, function=function)]


@dataclass(eq=False)
class _NativeFunction:
    """A user's function as native code calls it: with planes of statistics, and an output for derivatives."""

    owner: str
    function: Callable[..., Any]
    gradient: Callable[..., ArrayLike] | None
    differentiate: Differentiation
    flat: bool  # whether the function takes the statistics as (n,)
    rows: bool
    checked: bool = field(default=False, init=False)

    def __call__(self, statistics: Floats, attributes: Floats, derivatives: Floats) -> float:
        S = statistics[0].copy() if self.flat else statistics.T.copy()
        more = ((attributes[0] if len(attributes) == 1 else attributes.T).copy(),) if self.rows else ()
        value, D = self._derived(S, more)
        derivatives[:] = D if self.flat else D.T
        return value

    def _derived(self, S: Floats, more: tuple[Floats, ...]) -> tuple[float, Floats]:
        if self.gradient is None:
            return self._differentiated(S, more)
        value = self._value(self.function(S.copy(), *more))
        D = np.asarray(self.gradient(S.copy(), *more), dtype=np.float64)
        if D.shape != S.shape:
            raise ValueError(
                f"{self.owner}: gradient must return an array of shape {S.shape}; got shape {D.shape}."
            )
        if not np.isfinite(D).all():
            place = tuple(np.argwhere(~np.isfinite(D))[0].tolist())
            raise ValueError(f"{self.owner}: gradient must be finite; entry {_at(place)} is {D[place]}.")
        if not self.checked:
            self._compare(S, more, D, "gradient")
            self.checked = True
        return value, D

    def _value(self, value: Any) -> float:
        array = np.asarray(value)
        if array.size != 1:
            raise ValueError(
                f"{self.owner}: function must return one number per query; got shape {array.shape}."
            )
        number = float(array.reshape(-1)[0].real)
        if not np.isfinite(number):
            raise ValueError(f"{self.owner}: function must return a finite number; got {number}.")
        return number

    def _differentiated(self, S: Floats, more: tuple[Floats, ...]) -> tuple[float, Floats]:
        """Value and derivative, by the first way that can run the function; later calls use the same way."""
        ways = {"torch": self._by_torch, "jax": self._by_jax, "complex-step": self._by_complex_step}
        if self.differentiate != "auto":
            value, D = ways[self.differentiate](S, more)
            if not self.checked:
                self._compare(S, more, D, self.differentiate)
                self.checked = True
            return value, D
        names: tuple[Differentiation, ...] = ("torch", "jax")
        for name in names:
            if name in sys.modules:
                try:
                    found = ways[name](S, more)
                    self._compare(S, more, found[1], name)
                except Exception:
                    continue  # a function of NumPy operations, or an error that the complex step raises again
                self.differentiate = name
                return found
        self.differentiate = "complex-step"
        return self._differentiated(S, more)

    def _by_torch(self, S: Floats, more: tuple[Floats, ...]) -> tuple[float, Floats]:
        import torch

        with torch.enable_grad():
            x = torch.from_numpy(S).requires_grad_()
            value = self.function(x, *map(torch.from_numpy, more))
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"{self.owner}: function must return a tensor; got {type(value).__name__}.")
            number = self._value(value.detach().numpy())
            if not value.requires_grad:  # a constant
                return number, np.zeros_like(S)
            (D,) = torch.autograd.grad(value.reshape(()), x)
        return number, self._finite(D.numpy())

    def _by_jax(self, S: Floats, more: tuple[Floats, ...]) -> tuple[float, Floats]:
        import jax  # type: ignore[import-not-found,unused-ignore]

        with _in_double_precision():
            value, D = jax.value_and_grad(lambda x: self.function(x, *more))(S)
            return self._value(value), self._finite(np.asarray(D, dtype=np.float64))

    def _by_complex_step(self, S: Floats, more: tuple[Floats, ...]) -> tuple[float, Floats]:
        value = self._value(self.function(S.copy(), *more))
        D = np.array([self._complex_step(S, more, i) for i in range(S.size)]).reshape(S.shape)
        return value, self._finite(D)

    def _complex_step(self, S: Floats, more: tuple[Floats, ...], i: int) -> float:
        z = S.astype(np.complex128)
        z.reshape(-1)[i] += 1e-30j
        return float(np.asarray(self.function(z, *more)).reshape(-1)[0].imag) / 1e-30

    def _difference(self, S: Floats, more: tuple[Floats, ...], i: int, way: str) -> tuple[float, float]:
        """Derivative with respect to entry i of S by a central difference, and a bound of its error."""
        values = []
        for step in (1e-5, -1e-5):
            moved = S.copy()
            moved.reshape(-1)[i] += step
            values.append(float(np.asarray(self._called(moved, more, way)).reshape(-1)[0].real))
        size = 1 + max(map(abs, values))
        return (values[0] - values[1]) / 2e-5, 1e-5 * size

    def _called(self, S: Floats, more: tuple[Floats, ...], way: str) -> Any:
        """Value of the function, called in the way in which it is differentiated."""
        if way == "torch":
            import torch

            return self.function(torch.from_numpy(S), *map(torch.from_numpy, more)).detach().numpy()
        with _in_double_precision() if way == "jax" else nullcontext():
            return self.function(S, *more)

    def _finite(self, D: Floats) -> Floats:
        if not np.isfinite(D).all():
            place = tuple(np.argwhere(~np.isfinite(D))[0].tolist())
            raise ValueError(
                f"{self.owner}: the derivative of function must be finite; entry {_at(place)} is {D[place]}. "
                "Give a gradient= that is finite there."
            )
        return D

    def _compare(self, S: Floats, more: tuple[Floats, ...], D: Floats, way: str) -> None:
        """Raise a ValueError if one of the first 200 entries of D is not the derivative of the function.

        `way` says where D is from: "gradient", or a way of differentiation.
        """
        for i in range(min(S.size, 200)):
            expected, error = self._difference(S, more, i, way)
            given = float(D.reshape(-1)[i])
            # A difference that is not finite says nothing: the function may end at this entry's value.
            if abs(given - expected) > error + 1e-4 * abs(expected):
                place = _at(tuple(int(p) for p in np.unravel_index(i, S.shape)))
                called = "gradient" if way == "gradient" else f"the derivative by {way}"
                advice = "" if way == "gradient" else " Give gradient=, or another differentiate=."
                raise ValueError(
                    f"{self.owner}: {called} differs from the derivative of function at entry {place}: it is "
                    f"{given:.6g}, and a difference of function gives {expected:.6g}.{advice}"
                )


@final
@dataclass(frozen=True)
class UnsavedGain(Gain):
    """A gain with a function or an array, in a loaded ranker: its file does not hold the gain itself.

    Predictions do not need the gain. A fit raises a ValueError, as it would maximize another gain.

    name  Name of the gain's class.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"name must be the name of a class; got {self.name!r}.")

    def __str__(self) -> str:
        return f"a {self.name} with a function or an array, which the model file does not hold"

    @property
    def text(self) -> None:
        return None

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        raise ValueError(f"gain was {self}; set it before the next fit: set_params(gain=...).")


# One object per gain, which remembers that the gradient was checked and how the function is differentiated
_FUNCTIONS: WeakKeyDictionary[Gain, dict[bool, _NativeFunction]] = WeakKeyDictionary()


def _native_function(
    gain: Gain, function: Any, gradient: Any, differentiate: Differentiation, *, flat: bool
) -> _NativeFunction:
    known = _FUNCTIONS.setdefault(gain, {})
    if flat not in known:
        rows = isinstance(gain, RowGain)
        known[flat] = _NativeFunction(type(gain).__name__, function, gradient, differentiate, flat, rows)
    return known[flat]


def _in_double_precision() -> AbstractContextManager[Any]:
    """Context in which JAX computes with 64-bit numbers."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)  # type: ignore[no-any-return,unused-ignore]
    # in earlier versions
    from jax.experimental import enable_x64  # type: ignore[import-not-found,unused-ignore]

    return enable_x64()  # type: ignore[no-any-return,unused-ignore]


def _check_functions(owner: str, function: Any, gradient: Any, differentiate: str) -> None:
    for name, value in {"function": function, "gradient": gradient}.items():
        if not callable(value) and not (name == "gradient" and value is None):
            raise TypeError(f"{owner}: {name} must be a function of arrays; got {value!r}.")
    one_of(f"{owner}: differentiate", differentiate, ("auto", "torch", "jax", "complex-step"))


class _Columns(tuple[int, ...]):
    """Numbers of the label columns that hold the attributes."""


def _as_attributes(values: Any) -> Bound:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or array.ndim not in (1, 2):
        raise TypeError(
            "ColumnGain: attributes must be a function or an array of numbers, of shape (N,) or (N, C); got "
            f"{values!r}."
        )
    array = np.ascontiguousarray(array, dtype=np.float64)
    _check_finite("attributes", array)
    return Bound("ColumnGain: attributes", array)


def _check_finite(called: str, a: Floats) -> None:
    if not np.isfinite(a).all():
        row = int(np.argwhere(~np.isfinite(a))[0, 0])
        raise ValueError(f"ColumnGain: {called} must be finite; row {row} is {a[row].tolist()}.")


def _called(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _at(place: tuple[int, ...]) -> str:
    return str(place[0]) if len(place) == 1 else str(place)
