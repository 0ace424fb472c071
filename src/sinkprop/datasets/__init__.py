"""Data sets: queries that come with the package, and simulated queries.

`make_ranking` simulates any number of queries. `KNOWN_SETS` has the published counts of other data sets, with
which `sinkprop.experiment.load_known` compares what it reads. Pydocs is search over the documentation of
Python's standard library: 160 queries, 50 to 198 documents each, 50 features, grades 0 to 2, five folds.
`datasets/pydocs/README.md` is its data card: the origin of the documents, queries and grades, and the results
of simple rankers on it.

>>> fold = load_pydocs(fold=1)
>>> fold.train.n_queries, fold.vali.n_queries, fold.test.n_queries
(96, 32, 32)
>>> best = fold.test.y.argmax()
>>> print(pydocs_queries()[fold.test.qid[best]], "->", fold.test.docid[best])
parse command line arguments -> getopt.gnu_getopt
"""

from __future__ import annotations

import lzma
import operator
import os
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import SupportsIndex

import numpy as np

from sinkprop.data.queries import Fold, Queries
from sinkprop.datasets.known import KNOWN_SETS, Counts, KnownSet, check_counts, known_set
from sinkprop.datasets.simulated import make_ranking

__all__ = [
    "KNOWN_SETS",
    "Counts",
    "KnownSet",
    "check_counts",
    "known_set",
    "load_pydocs",
    "make_ranking",
    "pydocs_folds",
    "pydocs_queries",
    "write_pydocs",
]

_N_PARTS = 5
_FOLDER = files(__name__) / "pydocs"
_TABLES = ("README.md", "PSF-LICENSE.txt", "queries.tsv", "features.tsv")


def load_pydocs(fold: SupportsIndex = 1) -> Fold:
    """Load one fold of Pydocs: 96 training, 32 validation and 32 test queries.

    The data are divided into five parts, as in LETOR. Fold f trains on the parts f, f + 1 and f + 2,
    validates on part f + 3 and tests on part f + 4, where part 1 follows part 5. The features have names.

    Parameters
    ----------
    fold : int, default 1
        Number of the fold, from 1 to 5.

    Returns
    -------
    Fold
        The queries. The `docid` of a row is the qualified name of the document.
    """
    number = _fold_number(fold)
    return _fold(number, _parts())


def pydocs_folds() -> tuple[Fold, ...]:
    """Load all five folds of Pydocs; each query is a test query of one fold.

    Returns
    -------
    tuple of Fold
        The folds 1 to 5, as `load_pydocs` returns them.
    """
    parts = _parts()
    return tuple(_fold(number, parts) for number in range(1, _N_PARTS + 1))


def pydocs_queries() -> dict[int, str]:
    """Text of each query of Pydocs.

    Returns
    -------
    dict of int to str
        Text by query id.

    Examples
    --------
    >>> len(pydocs_queries())
    160
    """
    return {int(qid): text for qid, _, text in _table("queries.tsv")}


def write_pydocs(directory: str | os.PathLike[str]) -> Path:
    """Write Pydocs in LETOR's layout: folders Fold1 to Fold5 with train.txt, vali.txt and test.txt.

    The data card, the license, the table of queries and the table of features are written beside them.
    Missing folders are created, and existing files of these names are replaced.

    Parameters
    ----------
    directory : path
        Folder to write to.

    Returns
    -------
    pathlib.Path
        The folder.
    """
    root = Path(directory)
    texts = [lzma.decompress((_FOLDER / name).read_bytes()) for name in _part_names()]
    for number in range(1, _N_PARTS + 1):
        *train, vali, test = (texts[i] for i in _rotation(number))
        folder = root / f"Fold{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.txt").write_bytes(b"".join(train))
        (folder / "vali.txt").write_bytes(vali)
        (folder / "test.txt").write_bytes(test)
    for name in _TABLES:
        (root / name).write_bytes((_FOLDER / name).read_bytes())
    return root


def _fold_number(fold: SupportsIndex) -> int:
    try:
        number = operator.index(fold)
    except TypeError:
        number = 0
    if not 1 <= number <= _N_PARTS:
        raise ValueError(f"fold must be a whole number from 1 to {_N_PARTS}; got {fold!r}.")
    return number


def _fold(number: int, parts: Sequence[Queries]) -> Fold:
    *train, vali, test = (parts[i] for i in _rotation(number))
    return Fold(f"Fold{number}", _concatenate(train), vali, test)


def _rotation(number: int) -> list[int]:
    """Return the order in which a fold uses the five parts: three to train, one to validate, one to test."""
    return [(number - 1 + i) % _N_PARTS for i in range(_N_PARTS)]


def _parts() -> list[Queries]:
    from sinkprop.data.letor import load_letor

    names = tuple(name for _, name, *_ in _table("features.tsv"))
    parts = []
    for part_name in _part_names():
        with as_file(_FOLDER / part_name) as path:
            part = load_letor(path)
        parts.append(Queries(part.X, part.y, part.qid, part.docid, names))
    return parts


def _concatenate(parts: Sequence[Queries]) -> Queries:
    docids = [part.docid for part in parts if part.docid is not None]
    return Queries(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.qid for part in parts]),
        np.concatenate(docids),
        parts[0].feature_names,
    )


def _part_names() -> list[str]:
    return [f"S{i}.txt.xz" for i in range(1, _N_PARTS + 1)]


def _table(name: str) -> list[list[str]]:
    """Read the rows of a tab-separated table of Pydocs, without its header."""
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]
