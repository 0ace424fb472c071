"""Data sets by name or path: built-in sets, folders of folds, and single sets, which are cut into folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from sinkprop.data.queries import Fold, Queries
from sinkprop.experiment.folds.files import FoldFiles
from sinkprop.experiment.folds.layout import data_set_name, find_data_sets

__all__ = ["BUILT_IN", "five_folds", "named_sets"]

_PARTS = 5
_SIMULATED_QUERIES = 500


def _pydocs() -> tuple[Fold, ...]:
    from sinkprop.datasets import pydocs_folds

    return pydocs_folds()


def _simulated(labels: str = "graded", noise: float = 1.0, nonlinearity: float = 0.7) -> tuple[Fold, ...]:
    from sinkprop.datasets import make_ranking

    return five_folds(
        make_ranking(
            _SIMULATED_QUERIES, labels=labels, noise=noise, nonlinearity=nonlinearity, random_state=0
        )
    )


# {name: function that returns the folds}
BUILT_IN: dict[str, Callable[[], tuple[Fold, ...]]] = {
    "pydocs": _pydocs,
    "simulated": _simulated,
    "simulated-binary": lambda: _simulated(labels="binary"),
    "simulated-clicks": lambda: _simulated(labels="clicks"),
    "simulated-linear": lambda: _simulated(nonlinearity=0.0),
    "simulated-clean": lambda: _simulated(noise=0.3),
    "simulated-noisy": lambda: _simulated(noise=2.5),
}


def five_folds(queries: Queries, *, seed: int = 0) -> tuple[Fold, ...]:
    """Cut queries into five folds in LETOR's rotation.

    The queries are divided at random into five parts. Each fold trains on three parts, validates on the
    fourth and tests on the fifth. Every query is tested once.

    Parameters
    ----------
    queries : Queries
        At least five queries.
    seed : int, default 0
        Seed of the division.

    Returns
    -------
    tuple of Fold
        The five folds.

    Raises
    ------
    ValueError
        If there are fewer than five queries.

    Examples
    --------
    >>> import numpy as np, sinkprop
    >>> queries = sinkprop.Queries(np.zeros((10, 1)), np.zeros(10), np.arange(10))
    >>> [fold.train.n_queries for fold in five_folds(queries)]
    [6, 6, 6, 6, 6]
    """
    ids = queries.groups.queries
    if len(ids) < _PARTS:
        raise ValueError(f"five folds need at least 5 queries; got {len(ids)}.")
    parts = np.array_split(ids[np.random.default_rng(seed).permutation(len(ids))], _PARTS)
    folds = []
    for i in range(_PARTS):
        *train, vali, test = (parts[(i + j) % _PARTS] for j in range(_PARTS))
        chosen = (queries.select(own) for own in (np.concatenate(train), vali, test))
        folds.append(Fold(f"Fold{i + 1}", *chosen))
    return tuple(folds)


def named_sets(
    names: Iterable[str | Path], *, folds: Sequence[int] | None = None, n_features: int | None = None
) -> dict[str, tuple[Fold | FoldFiles, ...]]:
    """Find data sets by the names of built-in sets or by paths.

    Parameters
    ----------
    names : iterable of str or path
        Each is a folder of one or several data sets with folds (see `find_data_sets`), a stored set or a file
        of LETOR text, which is cut into five folds, or the name of a set in `BUILT_IN`. A path that exists
        comes before a built-in set of the same name.
    folds : sequence of int, optional
        Numbers of the folds to use; None uses all.
    n_features : int, optional
        Number of features of files of LETOR text.

    Returns
    -------
    dict of str to tuple
        The folds of each data set, by its name. Missing values are kept.

    Raises
    ------
    FileNotFoundError
        If a name is neither a built-in set nor a path, or a folder holds no data set.
    ValueError
        If two sets have the same name, or a fold does not exist.
    """
    found: dict[str, tuple[Fold | FoldFiles, ...]] = {}
    for given in names:
        for name, own in _sets_at(str(given), n_features).items():
            if name in found:
                raise ValueError(f"two data sets have the name {name!r}; rename the folder of one.")
            found[name] = _numbered(name, own, folds)
    return found


def _sets_at(given: str, n_features: int | None) -> dict[str, tuple[Fold | FoldFiles, ...]]:
    from sinkprop.store import is_stored, open_queries

    path = Path(given)
    if not path.exists():
        if given in BUILT_IN:
            return {given: BUILT_IN[given]()}
        raise FileNotFoundError(
            f"{given!r} is neither a file or folder nor a built-in set; built-in sets are "
            f"{', '.join(BUILT_IN)}."
        )
    if path.is_file():
        from sinkprop.data.letor import load_letor

        return {path.name.split(".")[0]: five_folds(load_letor(path, n_features=n_features, allow_nan=True))}
    if is_stored(path):
        return {data_set_name(path.with_suffix("")): five_folds(open_queries(path).load())}
    return {data.name: tuple(data.folds) for data in find_data_sets(path, n_features=n_features)}


def _numbered(
    name: str, own: tuple[Fold | FoldFiles, ...], numbers: Sequence[int] | None
) -> tuple[Fold | FoldFiles, ...]:
    if numbers is None:
        return own
    by_name = {fold.name: fold for fold in own}
    missing = [number for number in numbers if f"Fold{number}" not in by_name]
    if missing:
        raise ValueError(f"{name} has no fold {missing[0]}; its folds are {', '.join(by_name)}.")
    return tuple(by_name[f"Fold{number}"] for number in numbers)
