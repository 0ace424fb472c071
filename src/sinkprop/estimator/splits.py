"""Split of the queries of a fit into training and validation queries.

Every ranker uses the same rule, `split_queries`. It needs only the number of training queries and the number
of validation queries. So it works for queries in memory (`divide`), in a file or on a cluster
(`linear/paths.py`, `gbdt/cluster/driver.py`), and for several processes (`torch/neural/split.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.training_set import TrainingSet, joined
from sinkprop.estimator.selection import Selection

__all__ = ["NO_PATH", "Division", "Split", "divide", "split_queries"]

NO_PATH = np.int16(-1)  # code of a query that no path uses for validation; see `Split`


@dataclass(frozen=True, eq=False)
class Split:
    """Assignment of the validation queries to the paths of a fit.

    A fit trains a sequence of candidates: models with different hyperparameters, such as penalties, stages or
    numbers of trees. A path is the training of this whole sequence on one set of training queries. The paths
    of a fit advance together, candidate by candidate, and path 0 trains the final model. Without
    cross-validation, path 0 is the only path, and it has the validation queries. With cross-validation, path
    0 trains on all training queries and has no validation queries, and there is one more path per fold: path
    k > 0 trains on all queries except those of fold k, which are its validation queries. If the models of the
    folds are averaged, there is no path 0.

    codes     (Q,) code of each query: the index of the path that uses it for validation and does not train on
              it, or `NO_PATH`. Training queries come first, then those of a validation set. None if there is
              only one query, which serves for both training and validation.
    n_folds   Number of folds of cross-validation; 0 without cross-validation.
    in_words  Description, such as "5-fold cross-validation over 84 queries".
    averaged  Whether the models of the folds are averaged.
    """

    codes: NDArray[np.int16] | None
    n_folds: int
    in_words: str
    averaged: bool = False

    @property
    def choosing(self) -> range:
        """Indices of the paths that have validation queries."""
        return range(1, self.n_folds + 1) if self.n_folds else range(1)

    @property
    def paths(self) -> range:
        """Indices of all paths."""
        return self.choosing if self.averaged else range(self.n_folds + 1)


def split_queries(
    n_queries: int,
    n_validation: int,
    selection: Selection,
    rng: np.random.Generator,
    *,
    averaged: bool = False,
) -> Split:
    """Decide which queries train and which validate, and return this as a `Split`.

    The method of `selection` decides: cross-validation, the validation set, or queries held out at random.

    n_queries     Number of training queries.
    n_validation  Number of queries of the validation set; 0 if there is none.
    averaged      Whether the models of the folds of cross-validation are averaged.
    """
    total = n_queries + n_validation
    if total < 2:
        return Split(None, 0, "the one training query itself")
    codes = np.full(total, NO_PATH, dtype=np.int16)
    n_splits = min(selection.folds(average=averaged), total)
    n_folds = selection.validating_folds(total) if averaged else n_splits * selection.cross_validates(total)
    if n_folds > 1:
        order = rng.permutation(total)
        for k in range(n_folds):
            codes[order[k::n_splits]] = k + 1
        in_words = f"{n_splits}-fold cross-validation over {total} queries"
        if n_folds < n_splits:
            in_words += f", {n_folds} of the folds"
        return Split(codes, n_folds, in_words, averaged)
    if n_validation:
        codes[n_queries:] = 0
        return Split(codes, 0, f"{n_validation} validation queries")
    held_out = max(1, min(n_queries - 1, round(selection.fraction * n_queries)))
    codes[rng.permutation(n_queries)[:held_out]] = 0
    return Split(codes, 0, f"{held_out} queries held out")


@dataclass(frozen=True, eq=False)
class Division:
    """Training and validation queries of each path of a fit, in memory.

    A path is the training of all candidates on one set of training queries: one path for the final model,
    and one per fold of cross-validation; see `Split`.

    parts         Training queries of each path.
    validation    For each path that has validation queries, the index of the path and these queries.
    validated_on  Description, such as "5-fold cross-validation over 84 queries".
    resubstituted
                  Whether there is only one query, which serves for both training and validation.
    """

    parts: tuple[TrainingSet, ...]
    validation: tuple[tuple[int, TrainingSet], ...]
    validated_on: str
    resubstituted: bool = False

    @property
    def weight(self) -> Floats | None:
        """(Q,) weights of the validation queries, in the order of `validation`.

        None if no query has a weight or all weights are 0; then all queries count the same.
        """
        if all(part.query_weight is None for _, part in self.validation):
            return None
        weight = np.concatenate(
            [
                np.ones(part.n_queries) if part.query_weight is None else part.query_weight
                for _, part in self.validation
            ]
        )
        return weight if weight.sum() > 0 else None


def divide(
    data: TrainingSet, validation: TrainingSet | None, selection: Selection, rng: np.random.Generator
) -> Division:
    """Return the queries that train and the queries that validate, taken from `data` and `validation`.

    The method of `selection` decides: cross-validation, the validation set, or queries held out at random.
    """
    if selection.rule == "average":
        raise ValueError("Selection: the rule 'average' is for SinkPropRanker and SmoothRankRanker only.")
    n_validation = 0 if validation is None else validation.n_queries
    split = split_queries(data.n_queries, n_validation, selection, rng)
    codes = split.codes
    if codes is None:
        return Division((data,), ((0, data),), split.in_words, resubstituted=True)
    if not split.n_folds:
        if validation is not None:
            return Division((data,), ((0, validation),), split.in_words)
        held_out = data.select(np.flatnonzero(codes == 0))
        return Division((data.select(np.flatnonzero(codes != 0)),), ((0, held_out),), split.in_words)
    pool = data if validation is None else joined(data, validation)
    rest = [pool.select(np.flatnonzero(codes != k)) for k in split.choosing]
    held = [(k, pool.select(np.flatnonzero(codes == k))) for k in split.choosing]
    return Division((data, *rest), tuple(held), split.in_words)
