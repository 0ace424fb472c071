"""The layout of data sets on disk: folders and file names of the folds of LETOR and similar data sets.

The layouts of the unpacked archives:

    LETOR 2.0      TREC/TD2003/Data/Fold1/trainingset.txt, validationset.txt, testset.txt
    LETOR 3.0      Gov/QueryLevelNorm/2003_hp_dataset/Fold1/train.txt, vali.txt, test.txt
                   OHSUMED/QueryLevelNorm/Fold1/train.txt, ...; OHSUMED/Feature-min/Fold1/trainingset.txt, ...
    LETOR 4.0      MQ2007/Fold1/train.txt, vali.txt, test.txt
    MSLR           MSLR-WEB10K/Fold1/train.txt, vali.txt, test.txt
    Istella        istella-letor/full/train.txt, test.txt; Istella-S has sample/vali.txt too
    Yahoo          ltrc_yahoo/set1.train.txt, set1.valid.txt, set1.test.txt

Each file may be compressed with gzip, xz or bzip2, and then has .gz, .xz or .bz2 after its name. A stored set
may replace it, such as `train.queries` for `train.txt`; if both exist, the stored set is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from sinkprop.common.arguments import one_of
from sinkprop.datasets.known import Check
from sinkprop.experiment.folds.files import DataSet, FoldFiles, with_counts
from sinkprop.metrics.conventions import listed

__all__ = ["UNDIVIDED", "data_set_name", "find_data_sets"]

StrPath = str | os.PathLike[str]

_STEMS = {
    "train": ("train", "trainingset"),
    "vali": ("vali", "validationset", "valid"),
    "test": ("test", "testset"),
}
_PACKED = ("", ".gz", ".xz", ".bz2")
_FOLD = re.compile(r"fold[-_ ]?(\d+)", re.IGNORECASE)
_PREFIXED = re.compile(r"(set\d+)\.train\.(txt(\.gz|\.xz|\.bz2)?|queries)", re.IGNORECASE)
UNDIVIDED = "all"  # name of the single fold of data without folds
_DEEPEST = 6  # how many levels of subfolders to search; the archives of the data sets have three

# Names of folders that tell the version of a data set and not its name.
_VERSIONS = re.compile(
    r"data|folds?|original|full|sample|min|null|query_?level_?norm|feature_?(min|null)?",
    re.IGNORECASE,
)
_NORMALIZED = "querylevelnorm"  # the version that published results use

_GOV = re.compile(r"(2003|2004)_?(hp|np|td)(_dataset)?", re.IGNORECASE)
_KNOWN = {
    name.lower(): name
    for name in (
        "HP2003", "NP2003", "TD2003", "OHSUMED", "HP2004", "NP2004", "TD2004",
        "MQ2007", "MQ2008", "MQ2007-semi", "MQ2008-semi", "MQ2007-list", "MQ2008-list",
        "MSLR-WEB10K", "MSLR-WEB30K",
    )
}  # fmt: skip


def find_data_sets(
    *paths: StrPath,
    folds: Sequence[int] | None = None,
    name: str | None = None,
    n_features: int | None = None,
    check: Check = "none",
) -> tuple[DataSet, ...]:
    """Find the data sets in folders. A folder may be a data set itself or contain data sets.

    If LETOR's version QueryLevelNorm of a data set is next to other versions, only QueryLevelNorm is used.

    Parameters
    ----------
    *paths : str or path
        Folders to search.
    folds : sequence of int, optional
        Numbers of the folds to use; None uses all.
    name : str, optional
        Name of the data set, in place of the one derived from its path. Allowed for a single data set only.
    n_features : int, optional
        Number of features of every file. Needed if some file of LETOR text never mentions the last features.
    check : {"error", "warn", "none"}, default "none"
        Whether the queries are compared with published counts when they are read, and what happens if they
        differ: a ValueError, a warning, or nothing. With "error", every data set must be in `KNOWN_SETS`, by
        its name or by `name`; with "warn", others are not compared.

    Returns
    -------
    tuple of DataSet
        The data sets.

    Raises
    ------
    FileNotFoundError
        If a folder holds no data set, or a file of a fold is missing; the message names the folder or
        file.
    """
    found: dict[tuple[Path, str], _Found] = {}
    for path in paths:
        root = Path(os.path.abspath(path))
        if not root.is_dir():
            raise FileNotFoundError(f"{path}: there is no such folder.")
        here = _search(root, 0)
        if not here:
            raise FileNotFoundError(
                f"{path}: no data set is here. Expected folders Fold1, Fold2, ... with train.txt, vali.txt "
                "and test.txt (or trainingset.txt, validationset.txt and testset.txt, also compressed), "
                "those files themselves, or a folder of such data sets."
            )
        for data in here:
            key = data.path, data.name
            found[key] = replace(data, folds={**(found[key].folds if key in found else {}), **data.folds})
    sets = [_read_names(data, folds, n_features) for data in found.values()]
    if name is not None:
        if len(sets) > 1:
            names = listed(data.name for data in sets)
            raise ValueError(f"a name is for a single data set; there are {len(sets)}: {names}.")
        sets = [replace(sets[0], name=name)]
    one_of("check", check, get_args(Check))
    if check != "none":
        sets = [with_counts(data, check) for data in sets]
    return tuple(sets if name is not None else _told_apart(sets))


def data_set_name(path: StrPath) -> str:
    """Name of the data set in a folder, derived from its path.

    Parameters
    ----------
    path : str or path
        Folder of the data set.

    Returns
    -------
    str
        The name.

    Examples
    --------
    >>> data_set_name("letor/Gov/QueryLevelNorm/2003_hp_dataset"), data_set_name("ohsumed/QueryLevelNorm")
    ('HP2003', 'OHSUMED')
    >>> data_set_name("TREC/TD2004/Data"), data_set_name("NP2004-part")
    ('TD2004', 'NP2004-part')
    """
    return _named(Path(os.path.abspath(path)))[0]


def _named(path: Path) -> tuple[str, str]:
    """Name and version of the data set in a folder.

    The version is the path from the folder that names the data set to `path`, such as "QueryLevelNorm".
    """
    parts = [part for part in path.parts if part != path.anchor]
    below: list[str] = []
    for part in reversed(parts):
        if not _VERSIONS.fullmatch(part.replace("-", "_")):
            gov = _GOV.fullmatch(part)
            name = f"{gov[2].upper()}{gov[1]}" if gov else _KNOWN.get(part.lower(), part)
            return name, "/".join(reversed(below))
        below.append(part)
    return (parts[-1] if parts else "data"), ""


@dataclass(frozen=True)
class _Found:
    """Data set whose folders are known, but whose files have not been looked up yet.

    name        Name of the data set.
    path        Folder of the data set.
    folds       {name of a fold: folder of the fold}.
    prefix      Prefix of the names of its files, such as "set1."; may be empty.
    needs_vali  Whether a fold must have a validation set.
    left_out    Folders of other versions of the data set.
    """

    name: str
    path: Path
    folds: Mapping[str, Path]
    prefix: str = ""
    needs_vali: bool = True
    left_out: tuple[Path, ...] = ()


def _search(folder: Path, depth: int) -> list[_Found]:
    """Find the data sets in a folder and its subfolders.

    `depth` is the number of levels from the folder that the user gave, which has depth 0, down to `folder`.
    """
    match = _FOLD.fullmatch(folder.name)
    if depth == 0 and match and _holds_data(folder):
        parent = folder.parent
        return [_Found(_named(parent)[0], parent, {f"Fold{int(match[1])}": folder})]
    folders = sorted(
        (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith((".", "__"))),
        key=lambda child: child.name.lower(),
    )
    name = _named(folder)[0]
    numbered = [(int(m[1]), child) for child in folders if (m := _FOLD.fullmatch(child.name))]
    if numbered:
        folds = {f"Fold{number}": child for number, child in numbered}
        if len(folds) < len(numbered):
            names = listed(child.name for _, child in numbered)
            raise ValueError(f"{folder}: two folders are for one fold; there are {names}.")
        return [_Found(name, folder, folds)]
    if _file(folder, "train") is not None or (depth == 0 and _holds_data(folder)):
        return [_Found(name, folder, {UNDIVIDED: folder}, needs_vali=False)]
    prefixes = sorted({m[1].lower() for child in folder.iterdir() if (m := _PREFIXED.fullmatch(child.name))})
    if prefixes:
        one = {UNDIVIDED: folder}
        return [_Found(f"{name}/{p}", folder, one, prefix=f"{p}.", needs_vali=False) for p in prefixes]
    if depth == _DEEPEST:
        return []
    below = {child: _search(child, depth + 1) for child in folders}
    below = {child: sets for child, sets in below.items() if sets}
    chosen = next((child for child in below if child.name.lower() == _NORMALIZED), None)
    if chosen is not None:
        versions = tuple(
            child for child in below if child != chosen and _VERSIONS.fullmatch(child.name.replace("-", "_"))
        )
        below = {child: sets for child, sets in below.items() if child not in versions}
        below[chosen] = [replace(data, left_out=versions) for data in below[chosen]]
    return [data for sets in below.values() for data in sets]


def _read_names(data: _Found, numbers: Sequence[int] | None, n_features: int | None) -> DataSet:
    """Look up the files of a data set by their names, and return the data set with its files.

    It has the folds whose numbers are in `numbers`, or all folds if `numbers` is None. Raises ValueError if
    one of these folds does not exist, and FileNotFoundError if a file is missing.
    """
    wanted = sorted(data.folds, key=_fold_number)
    if numbers is not None:
        wanted = list(dict.fromkeys(f"Fold{number}" for number in numbers))
        missing = [name for name in wanted if name not in data.folds]
        if missing:
            there = sorted(data.folds, key=_fold_number)
            only = "a single split" if there == [UNDIVIDED] else f"only {listed(there)}"
            raise ValueError(f"{data.name} has no {missing[0]}; there is {only}.")
    folds = tuple(
        replace(
            _fold(data.folds[name], name, prefix=data.prefix, needs_vali=data.needs_vali),
            n_features=n_features,
        )
        for name in wanted
    )
    return DataSet(data.name, data.path, folds, data.left_out)


def _fold_number(name: str) -> int:
    match = _FOLD.fullmatch(name)
    return int(match[1]) if match else 0


def _holds_data(folder: Path) -> bool:
    return any(_file(folder, part) is not None for part in _STEMS)


def _fold(folder: Path, name: str, *, prefix: str, needs_vali: bool) -> FoldFiles:
    files = {part: _file(folder, part, prefix) for part in _STEMS}
    needed = ("train", "vali", "test") if needs_vali else ("train", "test")
    missing = [part for part in needed if files[part] is None]
    if missing:
        there = [path.name for path in files.values() if path is not None]
        older = any(name.lower().split(".")[0].endswith("set") for name in there)
        expected = [f"{prefix}{_STEMS[part][older and len(_STEMS[part]) > 1]}.txt" for part in missing]
        raise FileNotFoundError(
            f"{folder}: {listed(expected)} {'is' if len(expected) == 1 else 'are'} missing; "
            + (f"there is only {listed(there)}." if there else "there is no data file in it.")
        )
    train, test = files["train"], files["test"]
    if train is None or test is None:  # the check above excludes this; type checkers do not see it
        raise FileNotFoundError(str(folder))
    return FoldFiles(name, train, files["vali"], test)


def _file(folder: Path, part: str, prefix: str = "") -> Path | None:
    """Find the file with the part "train", "vali" or "test" of a fold; return None if there is none.

    The file may have any of the usual names in `_STEMS`. A stored set is preferred to text, and plain text to
    compressed text. Raises ValueError if text files exist under two of the names.
    """
    from sinkprop.store import is_stored

    names = {child.name.lower(): child for child in folder.iterdir()}
    found = []
    for stem in _STEMS[part]:
        for packed in _PACKED:
            child = names.get(f"{prefix}{stem}.txt{packed}")
            if child is not None and child.is_file():
                found.append(child)
                break
        stored = names.get(f"{prefix}{stem}.queries")
        if stored is not None and is_stored(stored):
            return stored
    if len(found) > 1:
        both = listed(path.name for path in found)
        raise ValueError(f"{folder}: there are both {both}; expected one of them.")
    return found[0] if found else None


def _told_apart(sets: Iterable[DataSet]) -> list[DataSet]:
    """Return the data sets with distinct names.

    If several data sets have the same name, each one's version is appended to its name. If names are still
    equal, the path of the parent folder is appended as well.
    """
    sets = list(sets)
    names = [data.name for data in sets]
    longer = []
    for data in sets:
        version = _named(data.path)[1]
        twice = names.count(data.name) > 1
        longer.append(replace(data, name=f"{data.name}/{version}") if twice and version else data)
    names = [data.name for data in longer]
    return [replace(d, name=f"{d.name} in {d.path.parent}") if names.count(d.name) > 1 else d for d in longer]
