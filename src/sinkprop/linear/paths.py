"""Which queries train and which judge, where the queries are in sources and are not moved for it.

`judging.divide` cuts arrays into parts. Here every query gets a code instead: the number of the path, one fit
of those that run beside each other, that it judges and takes no part in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.blocks import Source
from sinkprop.estimator.selection import Selection
from sinkprop.linear.ascent import Path

__all__ = ["Arrangement", "arrange"]


_NONE = np.int16(-1)


@dataclass(frozen=True, eq=False)
class Arrangement:
    """The paths of a fit, and who judges them.

    paths      the first is the model's own
    judges     every source with the paths that some of its queries judge: it has to be read once for all
    judged_by  in words: "cross-validation over 84 queries in 5 parts"
    weight     (Q,) of the judging queries: path by path, and within a path in the order of the sources
    """

    paths: tuple[Path, ...]
    judges: tuple[tuple[Source, tuple[int, ...]], ...]
    judged_by: str
    weight: Floats | None


def arrange(
    data: Source, validation: Source | None, selection: Selection, rng: np.random.Generator
) -> Arrangement:
    """The arrangement that the selection asks for."""
    n_queries = data.n_queries + (0 if validation is None else validation.n_queries)
    if n_queries < 2:
        return _arranged([(data, None)], 1, [(data, (0,))], "the one training query itself")
    if selection.cross_validates(n_queries):
        n_splits = min(selection.n_splits, n_queries)
        order = rng.permutation(n_queries)
        codes = np.empty(n_queries, dtype=np.int16)
        for k in range(n_splits):
            codes[order[k::n_splits]] = k + 1
        pool: list[tuple[Source, NDArray[np.int16] | None]] = [(data, codes[: data.n_queries])]
        if validation is not None:
            pool.append((validation, codes[data.n_queries :]))
        by_code = f"cross-validation over {n_queries} queries in {n_splits} parts"
        return _arranged(pool, n_splits + 1, None, by_code)
    if validation is None:
        order = rng.permutation(data.n_queries)
        n = max(1, min(data.n_queries - 1, round(selection.fraction * data.n_queries)))
        codes = np.full(data.n_queries, _NONE, dtype=np.int16)
        codes[order[:n]] = 0
        return _arranged([(data, codes)], 1, None, f"{n} queries held out")
    judges: list[Any] = [(data, ()), (validation, (0,))]
    return _arranged([(data, None)], 1, judges, f"{validation.n_queries} validation queries")


def _arranged(
    pool: list[tuple[Source, NDArray[np.int16] | None]],
    n_paths: int,
    judges: list[tuple[Source, tuple[int, ...]]] | None,
    judged_by: str,
) -> Arrangement:
    coded = [source if codes is None else source.with_codes(codes) for source, codes in pool]
    parts = [(source, codes) for source, (_, codes) in zip(coded, pool, strict=True)]
    # the model's own path has no use for queries that were given to choose by
    paths = tuple(_path(number, parts if number else parts[:1]) for number in range(n_paths))
    if judges is not None:
        weight = _weights([source for source, judged in judges if judged])
        return Arrangement(paths, tuple(judges), judged_by, weight)
    numbers = range(1, n_paths) if n_paths > 1 else range(1)
    every = tuple((source, tuple(numbers)) for source in coded)
    weight = _weights(coded)
    if weight is not None:
        codes = np.concatenate([codes for _, codes in parts if codes is not None])
        weight = np.concatenate([weight[codes == number] for number in numbers])
    return Arrangement(paths, every, judged_by, weight if weight is None or weight.sum() > 0 else None)


def _weights(sources: list[Source]) -> Floats | None:
    """(Q,) of all the sources' queries, 1 where none are given; None where none count differently."""
    if all(source.query_weight is None for source in sources):
        return None
    together = np.concatenate([_weight(source) for source in sources])
    return together if together.sum() > 0 else None


def _weight(source: Source) -> Floats:
    return np.ones(source.n_queries) if source.query_weight is None else source.query_weight


def _path(number: int, parts: list[tuple[Source, NDArray[np.int16] | None]]) -> Path:
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
