"""Division into training and validation queries, and the criterion that decides when trees stop growing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkprop.common.arguments import number
from sinkprop.common.types import Floats, Integers
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.criteria import Criterion, metric_criterion
from sinkprop.estimator.held_out import HeldOut
from sinkprop.estimator.selection import Selection, mean_over_queries
from sinkprop.estimator.splits import divide
from sinkprop.gbdt.derivatives import Derivatives, TreeLoss
from sinkprop.objective.gains import as_gain

__all__ = [
    "Validation",
    "check_row_weight",
    "checked_criterion",
    "counting",
    "cross_validation",
    "divided",
    "expected_name",
]


@dataclass(frozen=True, eq=False)
class Validation:
    """Validation queries of a fit and its criterion.

    X             Features of the validation rows.
    mean          Function from their scores to the mean criterion over the validation queries.
    criterion     Name of the criterion.
    validated_on  Validation queries in words, such as "21 validation queries".
    y             Labels of the validation rows.
    sizes         Number of rows of each validation query.
    """

    X: Any
    mean: Callable[[Floats], float]
    criterion: str
    validated_on: str
    y: Floats
    sizes: Integers

    def held_out(self, scores: Floats) -> HeldOut:
        """The validation queries with their scores, for the calibration of the ranker."""
        return HeldOut(scores, self.y, self.sizes)


def counting(data: TrainingSet) -> TrainingSet:
    """Select the queries with a weight above 0; all queries if every weight is 0.

    LightGBM would count the documents of queries with weight 0 when it computes bins and the sizes of leaves.
    """
    if data.query_weight is None or data.query_weight.all() or not data.query_weight.any():
        return data
    return data.select(np.flatnonzero(data.query_weight))


def check_row_weight(data: TrainingSet) -> None:
    """Raise a ValueError if all row weights are 0: there would be nothing to grow trees on."""
    if data.row_weight is not None and not data.row_weight.sum() > 0:
        raise ValueError("sample_weight must have a sum above 0; every weight is zero.")


def checked_criterion(
    criterion: str | Sequence[str] | None, convention: str, fraction: float | None
) -> tuple[Criterion, str] | None:
    """Check the criterion and the validation fraction.

    Returns None if the criterion is the expected gain. Otherwise returns two values: the function that
    computes the criterion of each query, and the criterion's name.
    """
    if fraction is not None:
        number("validation_fraction", fraction, below=1)
    if criterion is None:
        return None
    return metric_criterion(criterion if isinstance(criterion, str) else tuple(criterion), convention)


def expected_name(loss: TreeLoss) -> str:
    """Return the name of the expected gain as a criterion, such as "expected ndcg(discount=log2)"."""
    return f"expected {as_gain(loss.gain).text or 'gain'}"


def divided(
    data: TrainingSet,
    validation: TrainingSet | None,
    *,
    loss: TreeLoss,
    criterion: str | Sequence[str] | None,
    convention: str,
    fraction: float | None,
    seed: int,
    n_threads: int | None,
) -> tuple[TrainingSet, Validation | None]:
    """Divide the data into training queries and a `Validation`: validation queries with their criterion.

    The validation queries are the set `validation`. If it is None, they are a held-out fraction of `data`. If
    `fraction` is None or 0 as well, the `Validation` is None.
    """
    named = checked_criterion(criterion, convention, fraction)
    if validation is None and not fraction:
        return data, None
    selection = Selection("validation", fraction=fraction or 0.5)
    division = divide(data, validation, selection, np.random.default_rng([seed, 0]))
    ((_, held_out),), weight = division.validation, division.weight
    mean, name = _mean_criterion(held_out, weight, named, loss=loss, n_threads=n_threads)
    words, sizes = division.validated_on, held_out.groups.sizes
    return division.parts[0], Validation(held_out.X, mean, name, words, held_out.y, sizes)


def cross_validation(
    data: TrainingSet,
    n_splits: int,
    *,
    loss: TreeLoss,
    criterion: str | Sequence[str] | None,
    convention: str,
    n_threads: int | None,
) -> Validation:
    """Make the `Validation` whose scores are those of boosters that did not train on the document's query."""
    named = checked_criterion(criterion, convention, None)
    mean, name = _mean_criterion(data, data.query_weight, named, loss=loss, n_threads=n_threads)
    words = f"{n_splits}-fold cross-validation over {data.n_queries} queries"
    return Validation(data.X, mean, name, words, data.y, data.groups.sizes)


def _mean_criterion(
    data: TrainingSet,
    weight: Floats | None,
    named: tuple[Criterion, str] | None,
    *,
    loss: TreeLoss,
    n_threads: int | None,
) -> tuple[Callable[[Floats], float], str]:
    """Return the function from scores to the mean criterion over the queries of `data`, and its name.

    weight  Weights (Q,) of the queries, or None.
    named   Criterion and its name, see `checked_criterion`; None for the expected gain.
    """
    if named is None:
        expected = Derivatives(
            loss,
            data.labels,
            data.groups,
            sample_weight=data.sample_weight,
            query_weight=weight,
            n_threads=n_threads,
        )
        return expected.value, expected_name(loss)
    criterion_of, name = named

    def mean(scores: Floats) -> float:
        return float(mean_over_queries(criterion_of(data, scores), weight))

    return mean, name
