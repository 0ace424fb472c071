"""The setting `n_iter` of the Sinkhorn normalization: a number of iterations, or their limit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from numbers import Real

import numpy as np

from sinkprop.common.arguments import half_steps, number, whole
from sinkprop.common.text_forms import FORM, digits, only, options_of, read_number
from sinkprop.common.types import Floats

__all__ = ["Converged", "Iterations", "as_iterations", "rows_sum_to_one", "warn_unconverged"]


@dataclass(frozen=True)
class Converged:
    """The limit of the Sinkhorn iterations, for the parameter `n_iter`; its text form is "converged".

    In the limit, all rows and columns of Pi sum to 1. The gradient is that of the limit, computed from a
    linear system instead of from the iterations. For a `SmoothedIndicator`, about 15 products of the matrix A
    with a vector give the limit, for any width sigma and any number of documents.

    Parameters
    ----------
    tol : float, default 1e-9
        Largest deviation of a row or column sum of Pi from 1, above 0.
    max_iter : int, default 1000
        Largest number of products with the matrix A, or iterations. If it does not suffice, a warning states
        the deviation that remains.

    Examples
    --------
    >>> str(Converged()), str(Converged(tol=1e-12))
    ('converged', 'converged(tol=1e-12)')
    """

    tol: float = 1e-9
    max_iter: int = 1000

    def __post_init__(self) -> None:
        object.__setattr__(self, "tol", number("Converged: tol", self.tol, above=True))
        object.__setattr__(self, "max_iter", whole("Converged: max_iter", self.max_iter, 1))

    def __str__(self) -> str:
        options = [
            f"{field.name}={digits(getattr(self, field.name))}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"converged({','.join(options)})" if options else "converged"


Iterations = float | str | Converged  # values of the parameter n_iter


def as_iterations(n_iter: Iterations) -> float | Converged:
    """Return a number of iterations as float, and the limit, or its text form, as `Converged`.

    >>> as_iterations(5), as_iterations("converged(max_iter=50)")
    (5.0, Converged(tol=1e-09, max_iter=50))
    """
    if isinstance(n_iter, Converged):
        return n_iter
    if isinstance(n_iter, str):
        return _parsed(n_iter)
    if isinstance(n_iter, Real) or n_iter is None:
        return half_steps(n_iter) / 2
    raise ValueError(f"n_iter must be a number of iterations, 'converged' or a Converged; got {n_iter!r}.")


def rows_sum_to_one(n_iter: Iterations) -> bool:
    """Whether the rows of Pi sum to 1: after whole iterations, and in the limit."""
    n_iter = as_iterations(n_iter)
    return isinstance(n_iter, Converged) or (n_iter > 0 and n_iter == int(n_iter))


def warn_unconverged(residual: Floats, tol: float, *, stacklevel: int = 2) -> None:
    """Warn if a row or column sum of any query is farther than `tol` from 1.

    `residual` has the largest deviation of each query. `stacklevel` is that of `warnings.warn`, counted from
    the calling function.
    """
    failed = ~(residual <= tol)
    if failed.any():
        worst = residual[failed].max() if np.isfinite(residual[failed]).all() else np.nan
        warnings.warn(
            f"The Sinkhorn normalization did not converge for {failed.sum()} of {failed.size} queries: a row "
            f"or column sum is {worst:.1e} from 1, more than tol={tol:g}. Raise max_iter, tol, epsilon or "
            "the width of the relaxation.",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


def _parsed(text: str) -> Converged:
    form = FORM.fullmatch(text)
    if form is None or form["name"] != "converged" or form["cutoff"]:
        raise ValueError(
            "n_iter must be a number of iterations, 'converged' or a form such as 'converged(tol=1e-12)'; "
            f"got {text!r}."
        )
    options = options_of(form["options"])
    only(options, tuple(field.name for field in fields(Converged)))
    kinds = {"tol": float, "max_iter": int}
    return Converged(**{name: read_number(kinds[name], name, value) for name, value in options.items()})
