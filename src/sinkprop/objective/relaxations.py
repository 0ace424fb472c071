"""Relaxations: the maps from scores to the pre-Sinkhorn matrix A.

A[j, k] >= 0 says how well document j fits at rank k. Sinkhorn normalization turns A into Pi[j, k], the
probability that document j is at rank k. A relaxation only names a map and holds its settings;
`reference.py` defines the computation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from math import inf, log
from numbers import Real
from typing import Any, Literal, final

from sinkprop.common.arguments import number, one_of

__all__ = [
    "RELAXATIONS",
    "SHARED_SCALE",
    "PartitionedMeasure",
    "Relaxation",
    "SmoothedIndicator",
    "as_relaxation",
    "relaxation_from",
    "relaxation_record",
    "score_weights",
]

# Scale of a partitioned measure in rankers, whose scores have a standard deviation of 1 within queries at the
# start of a fit. With larger scales, few iterations leave several documents at rank 1.
SHARED_SCALE = 0.5


class Relaxation(ABC):
    """A map from the scores of one query to its matrix A (n, n), with rows = documents and columns = ranks.

    Base class of `SmoothedIndicator` and `PartitionedMeasure`.
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of scores per document: 1 for scores of shape (N,), 2 for (N, 2)."""


@final
@dataclass(frozen=True)
class SmoothedIndicator(Relaxation):
    """Smoothed indicator of "document j is at rank k", from one score phi_j per document, in linear time.

    It makes a matrix A, which Sinkhorn normalization turns into Pi[j, k], the probability that document j is
    at rank k. With s the documents in order of decreasing score::

        kernel "gaussian":  A[j, k] = exp(-(phi_j - phi_s[k])^2 / (2 sigma^2))
        kernel "laplace":   A[j, k] = exp(-|phi_j - phi_s[k]| / sigma)

    Scores closer than about `sigma` share their ranks. As sigma goes to 0, Pi becomes the permutation matrix
    of the sort, and the expected gain becomes the metric itself. As sigma grows, every ranking becomes
    equally likely. Gradients flow through both phi_j and phi_s[k]; the order is held fixed.

    Parameters
    ----------
    sigma : float, default 1.0
        Smoothing width, from 1e-300 to 1e300. Start near the spread of the scores.
    kernel : {"gaussian", "laplace"}, default "gaussian"
        Use "gaussian", the paper's kernel, with smooth scorers (linear, neural). At a tie its derivative is
        0, so documents with equal scores get no gradient that separates them. Use "laplace" where ties are
        common, as with boosted trees and scorers that start at 0. Its derivative at a tie is one-sided: of
        two tied documents, the earlier in the order counts as above. "laplace" is also several times faster.
    accuracy : {"fast", "exact"}, default "fast"
        Accuracy of the "gaussian" kernel, which is evaluated in linear time by local expansions and sums of
        exponentials. With "exact", the error of a gradient is at most 1e-9 times its largest entry. With
        "fast", it is at most 1e-5 times its largest entry, or 1e-6 / sigma if that is more, for example if
        a whole query has almost no gradient. The kernel "laplace" is exact with either setting.

    Examples
    --------
    >>> SmoothedIndicator(0.5, "laplace")
    SmoothedIndicator(sigma=0.5, kernel='laplace', accuracy='fast')
    """

    sigma: float = 1.0
    kernel: Literal["gaussian", "laplace"] = "gaussian"
    accuracy: Literal["fast", "exact"] = field(default="fast", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.sigma, Real) or isinstance(self.sigma, bool):
            raise TypeError(f"SmoothedIndicator: sigma must be a number above 0; got {self.sigma!r}.")
        if not 0 < self.sigma < inf:
            raise ValueError(
                f"SmoothedIndicator: sigma must be finite and above 0; got {float(self.sigma)!r}. Start near "
                "the spread of the scores."
            )
        if not 1e-300 <= self.sigma <= 1e300:  # outside this range, a gradient would overflow
            raise ValueError(
                f"SmoothedIndicator: sigma must be from 1e-300 to 1e300; got {float(self.sigma)!r}. Rescale "
                "the scores."
            )
        object.__setattr__(self, "sigma", float(self.sigma))
        one_of("SmoothedIndicator: kernel", self.kernel, ("gaussian", "laplace"))
        one_of("SmoothedIndicator: accuracy", self.accuracy, ("fast", "exact"))

    @property
    def width(self) -> int:
        return 1


@final
@dataclass(frozen=True)
class PartitionedMeasure(Relaxation):
    """Partitioned measure: one distribution on (0, 1) per document, cut into n equal bins.

    With a scale `sigma`, which all documents share, a document has one score phi_j, larger is better. Without
    it, a document has two parameters theta_j, and its own scale. With F the distribution function of the
    family::

        A[j, k] = F(k/n; theta_j) - F((k-1)/n; theta_j)

        family "logit-logistic":  F(u) = sigmoid((logit(u) - mu) / s)       theta = (mu, log s)
        family "probit":          F(u) = Phi((Phi^-1(u) - mu) / s)          theta = (mu, log s)
        family "beta":            F(u) = I_u(a, b)                          theta = (log a, log b)

    and with a shared scale, where x_j is phi_j less the mean of the query::

        "logit-logistic", "probit":  mu = -x_j, s = sigma
        "beta":                      a = 4 m / sigma^2, b = 4 (1 - m) / sigma^2, m = sigmoid(-x_j)

    Phi is the standard normal distribution function and I_u(a, b) the regularized incomplete beta function.
    Mass near 0 means near the top, so a lower mu, or a lower a for a given b, ranks a document higher.
    Without a shared scale, scores have the shape (N, 2) and hold theta. They may be any real numbers; those
    beyond `limits` are clipped. The second parameter says how certain the rank of each document is.

    Computations take quadratic time; with a shared scale, the families "logit-logistic" and "probit" take
    linear time for rank-linear gains and a number of iterations.

    Parameters
    ----------
    family : {"logit-logistic", "probit", "beta"}, default "logit-logistic"
        Family of distributions. "logit-logistic", used by the paper, is the cheapest and has the heaviest
        tails; "probit" has Gaussian tails; "beta" can put a document's mass at both ends.
    sigma : float, optional
        Scale that all documents share. None means that every document has its own, and two parameters.

    Examples
    --------
    >>> PartitionedMeasure("probit").width, PartitionedMeasure("probit", sigma=1.0).width
    (2, 1)
    """

    family: Literal["logit-logistic", "probit", "beta"] = "logit-logistic"
    sigma: float | None = None

    @property
    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Least values of the two parameters, and their largest values.

        A parameter beyond its limits is clipped and gets no gradient.

        Examples
        --------
        >>> PartitionedMeasure("probit").limits  # of mu and log s
        ((-1e+30, -50.0), (1e+30, 50.0))
        """
        if self.family == "beta":
            return (log(1e-4), log(1e-4)), (log(1e5), log(1e5))
        return (-1e30, -50.0), (1e30, 50.0)

    def __post_init__(self) -> None:
        one_of("PartitionedMeasure: family", self.family, ("logit-logistic", "probit", "beta"))
        if self.sigma is not None:
            object.__setattr__(self, "sigma", number("PartitionedMeasure: sigma", self.sigma, above=True))

    @property
    def width(self) -> int:
        return 2 if self.sigma is None else 1


def score_weights(relaxation: Relaxation) -> tuple[float, ...]:
    """Weights with which a document's scores are summed to a single score, larger for a higher rank.

    For a partitioned measure, the single score is larger the closer the middle of the document's distribution
    on (0, 1) is to 0, the top.

    >>> score_weights(PartitionedMeasure("probit")), score_weights(PartitionedMeasure("beta"))
    ((-1.0, 0.0), (-1.0, 1.0))
    """
    if relaxation.width == 2 and isinstance(relaxation, PartitionedMeasure):
        return (-1.0, 1.0) if relaxation.family == "beta" else (-1.0, 0.0)
    return (1.0,)


RELAXATIONS: dict[str, Relaxation] = {
    "gaussian": SmoothedIndicator(kernel="gaussian"),
    "laplace": SmoothedIndicator(kernel="laplace"),
    "logit-logistic": PartitionedMeasure("logit-logistic"),
    "probit": PartitionedMeasure("probit"),
    "beta": PartitionedMeasure("beta"),
}


def as_relaxation(value: str | Relaxation, scale: float | None = None) -> Relaxation:
    """Look up a relaxation with default settings by its name; return a `Relaxation` unchanged.

    scale  Scale that the documents of a partitioned measure share, if it is given by name.

    >>> as_relaxation("laplace")
    SmoothedIndicator(sigma=1.0, kernel='laplace', accuracy='fast')
    """
    if isinstance(value, str):
        if value not in RELAXATIONS:
            raise ValueError(
                f"relaxation must be one of {', '.join(map(repr, RELAXATIONS))} or a Relaxation; "
                f"got {value!r}."
            )
        found = RELAXATIONS[value]
        return replace(found, sigma=scale) if isinstance(found, PartitionedMeasure) else found
    if not isinstance(value, Relaxation):
        raise ValueError(f"relaxation must be a name or a Relaxation; got {value!r}.")
    return value


def relaxation_record(relaxation: Relaxation) -> dict[str, Any]:
    """Convert a relaxation to a dictionary of plain data, which `relaxation_from` reads.

    >>> relaxation_record(PartitionedMeasure("beta"))
    {'type': 'PartitionedMeasure', 'family': 'beta', 'sigma': None}
    """
    return {"type": type(relaxation).__name__, **asdict(relaxation)}  # type: ignore[call-overload]


def relaxation_from(record: dict[str, Any]) -> Relaxation:
    """Convert plain data from `relaxation_record` back to a relaxation.

    Raises a KeyError, TypeError or ValueError if the data are invalid.
    """
    kinds = {"SmoothedIndicator": SmoothedIndicator, "PartitionedMeasure": PartitionedMeasure}
    kind = kinds[record["type"]]
    made: Relaxation = kind(**{name: value for name, value in record.items() if name != "type"})
    return made
