"""Training and validation queries of each path of a linear fit, without copies of their rows.

A path is the training of all candidates (every penalty and stage) on one set of training queries. With
cross-validation there is one path per fold and, unless the models of the folds are averaged, a path 0 that
trains the final model. The code of a query is the index of the path that uses it for validation and does not
train on it. See `estimator.splits.Split`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.blocks import Source
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.splits import split_queries
from sinkprop.linear.ascent import Path

__all__ = ["Arrangement", "arrange"]

_EVERY = -2  # index of a path that trains on every query: no query has this code


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Training and validation queries of each path of a fit.

    A path is the training of all candidates on one set of training queries. A source gives access to queries
    in memory, on disk or on a cluster.

    paths         Training queries of each path. The final model is that of the first path or, if `averaged`,
                  the mean over all paths.
    every         All queries that train on some path.
    averaged      Whether the models of the paths are averaged.
    validation    Pairs of a source and the indices of the paths that have validation queries in this source.
                  There are no indices for a source of training queries only. Each source is read once for all
                  of its paths.
    n_validation  Number of validation queries over all paths.
    validated_on  Description, such as "5-fold cross-validation over 84 queries".
    resubstituted
                  Whether there is only one query, which serves for both training and validation.
    weight        (Q,) weights of the validation queries: path by path, and within a path in the order of the
                  sources. None if all count the same.
    """

    paths: tuple[Path, ...]
    every: Path
    averaged: bool
    validation: tuple[tuple[Source, tuple[int, ...]], ...]
    n_validation: int
    validated_on: str
    weight: Floats | None
    resubstituted: bool = False


def arrange(
    data: Source, validation: Source | None, selection: Selection, rng: np.random.Generator, *, averaged: bool
) -> Arrangement:
    """Return the queries that each path of a fit trains on, and those that validate it.

    A path is the training of all candidates on one set of training queries. `selection` decides between
    cross-validation, the validation set, and queries held out at random.

    averaged  Whether the models of the folds of cross-validation are averaged, so that no path is needed to
              train the final model.
    """
    sources = [data] if validation is None else [data, validation]
    n_validation = sum(s.n_queries for s in sources[1:])
    split = split_queries(data.n_queries, n_validation, selection, rng, averaged=averaged)
    validated: tuple[tuple[Source, tuple[int, ...]], ...]
    if split.codes is None:
        only = _path(0, [(data, None)])
        validated = ((data, (0,)),)
        return Arrangement(
            (only,), only, averaged, validated, 1, split.in_words, _weights([data]), resubstituted=True
        )
    own = np.split(split.codes, [data.n_queries])
    if not split.n_folds and validation is not None:
        validated = ((data, ()), (validation, (0,)))
        only = _path(0, [(data, None)])
        weight = _weights([validation])
        return Arrangement((only,), only, averaged, validated, n_validation, split.in_words, weight)
    parts = [(source.with_codes(codes), codes) for source, codes in zip(sources, own, strict=False)]
    # path 0, which trains the final model, does not train on the validation set
    paths = tuple(_path(number, parts if number else parts[:1]) for number in split.paths)
    every = _path(_EVERY, parts) if split.averaged else paths[0]
    weight = _weights(sources)
    if weight is not None:
        weight = np.concatenate([weight[split.codes == number] for number in split.choosing])
        weight = weight if weight.sum() > 0 else None
    validated = tuple((source, tuple(split.choosing)) for source, _ in parts)
    n_validation = int(np.isin(split.codes, split.choosing).sum())
    return Arrangement(paths, every, averaged, validated, n_validation, split.in_words, weight)


def _weights(sources: list[Source]) -> Floats | None:
    """(Q,) weights of the queries of all sources, one source after another.

    A source gives access to a set of queries. If it has no weights, its queries have weight 1. The result is
    None if no source has weights or all weights are 0.
    """
    if all(source.query_weight is None for source in sources):
        return None
    together = np.concatenate([_weight(source) for source in sources])
    return together if together.sum() > 0 else None


def _weight(source: Source) -> Floats:
    return np.ones(source.n_queries) if source.query_weight is None else source.query_weight


def _path(number: int, parts: Sequence[tuple[Source, NDArray[np.int16] | None]]) -> Path:
    sources = [source for source, _ in parts]
    chosen = [np.ones(s.n_queries, dtype=bool) if codes is None else codes != number for s, codes in parts]
    sizes = np.concatenate([s.sizes[own] for s, own in zip(sources, chosen, strict=True)])
    weighted = any(source.query_weight is not None for source in sources)
    weight = np.ones(len(sizes))
    if weighted:
        weight = np.concatenate([_weight(s)[own] for s, own in zip(sources, chosen, strict=True)])
        if not 0 < weight.sum() < math.inf:
            raise ValueError(
                f"query_weight must have a finite sum above 0 over the {len(weight)} queries trained on; "
                f"got {weight.sum()}."
            )
    return Path(
        number,
        tuple(sources),
        int(sizes.sum()),
        len(sizes),
        math.fsum(weight) if weighted else None,
        float(weight.max()),
        math.fsum(weight * sizes),
    )
