"""Well-known data sets, read from a folder by their names."""

from __future__ import annotations

import os
from dataclasses import replace

from sinkprop.common.arguments import whole
from sinkprop.datasets.known import Check, KnownSet, known_set
from sinkprop.experiment.folds.files import Parts
from sinkprop.experiment.folds.layout import UNDIVIDED, find_data_sets
from sinkprop.metrics.conventions import listed

__all__ = ["load_known"]


def load_known(
    name: str | KnownSet,
    folder: str | os.PathLike[str],
    *,
    fold: int = 1,
    check: Check = "error",
    n_threads: int | None = None,
) -> Parts:
    """Read one fold of a well-known data set, and compare it with the published counts.

    The folder is the unpacked archive, or a folder in it. Files are found by the names that they have in the
    archive; they may be compressed, or converted to stored sets. The values NULL and nan are missing values.

    Parameters
    ----------
    name : str or KnownSet
        Name of the data set in `sinkprop.datasets.KNOWN_SETS`, such as "mslr-web10k", "yahoo-set1",
        "istella-s" or "mq2007-agg"; or its counts.
    folder : path
        Folder to search for the files.
    fold : int, default 1
        Number of the fold; 1 for data sets with a single split (Yahoo and Istella).
    check : {"error", "warn", "none"}, default "error"
        What to do if the number of queries, documents or features differs: raise a ValueError, warn (for a
        part of the data set), or nothing.
    n_threads : int, optional
        Number of threads that parse LETOR text.

    Returns
    -------
    Parts
        Queries for training, validation and testing, in the attributes `train`, `vali` and `test`. `vali` is
        None for Istella, which has no validation queries.

    Raises
    ------
    FileNotFoundError
        If the folder does not hold the data set, or a file of the fold is missing.
    ValueError
        If there is no such data set or fold, a file is invalid, or the counts differ.

    Examples
    --------
    >>> import tempfile, sinkprop
    >>> from sinkprop.datasets import Counts, KnownSet, write_pydocs
    >>> from sinkprop.experiment import load_known
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_pydocs(folder)
    ...     parts = load_known(KnownSet("pydocs", Counts(160), features=50), folder, fold=2)
    >>> parts.train.n_queries, parts.vali.n_queries, parts.test.n_queries
    (96, 32, 32)
    """
    known = known_set(name) if isinstance(name, str) else name
    whole("fold", fold, 1)
    if fold > known.n_folds:
        raise ValueError(f"fold must be from 1 to {known.n_folds} for {known.name}; got {fold}.")
    found = find_data_sets(folder)
    if len(found) > 1:
        own = [data for data in found if _is_named(data.name, known)]
        if len(own) != 1:
            names = listed(data.name for data in found)
            raise ValueError(f"{folder}: expected the folder of {known.name}; there are {names}.")
        found = tuple(own)
    wanted = UNDIVIDED if known.n_folds == 1 else f"Fold{fold}"
    for files in found[0].folds:
        if files.name == wanted:
            return replace(files, known=known, check=check).read(n_threads=n_threads)
    there = listed(files.name for files in found[0].folds)
    expected = "train.txt and test.txt" if known.n_folds == 1 else f"a folder {wanted}"
    raise FileNotFoundError(f"{found[0].path}: expected {expected} of {known.name}; there is {there}.")


def _is_named(name: str, known: KnownSet) -> bool:
    try:
        return known_set(name) == known
    except ValueError:
        return False
