"""Files of a fold, and their queries, which are compared with the published counts of the data set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sinkprop.data.queries import Queries
from sinkprop.datasets.known import Check, KnownSet, check_counts, known_set

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["AnyQueries", "DataSet", "FoldFiles", "Parts", "with_counts"]

AnyQueries: TypeAlias = "Queries | StoredQueries"


@dataclass(frozen=True)
class Parts:
    """Training, validation and test queries of one fold.

    Parameters
    ----------
    train : Queries or StoredQueries
        Training queries.
    vali : Queries, StoredQueries or None
        Validation queries; None without a validation set.
    test : Queries or StoredQueries
        Test queries.
    """

    train: AnyQueries
    vali: AnyQueries | None
    test: AnyQueries


@dataclass(frozen=True)
class FoldFiles:
    """Files of one fold.

    Parameters
    ----------
    name : str
        Name of the fold.
    train : Path
        Training queries: a file of LETOR text or a stored set.
    vali : Path or None
        Validation queries; None for data without a validation set, such as Istella.
    test : Path
        Test queries.
    n_features : int, optional
        Number of features. Needed if some file of LETOR text never mentions the last features. None takes
        the largest feature id of each file, which must then be the same in all files.
    known : KnownSet, optional
        Published counts, with which `read` compares the queries.
    check : {"error", "warn", "none"}, default "error"
        What `read` does if the counts differ: raise a ValueError, warn, or nothing.
    """

    name: str
    train: Path
    vali: Path | None
    test: Path
    n_features: int | None = None
    known: KnownSet | None = None
    check: Check = "error"

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the fold's files, in the order training, validation, test."""
        return tuple(path for path in (self.train, self.vali, self.test) if path is not None)

    @property
    def stored(self) -> tuple[Path, ...]:
        """Paths of the files that are stored sets."""
        return tuple(path for path in self.paths if path.is_dir())

    def read(self, *, n_threads: int | None = None) -> Parts:
        """Read the queries of the fold, in which the values NULL and nan are missing values.

        A stored set is opened, but its rows are not read.

        Parameters
        ----------
        n_threads : int, optional
            Number of threads that parse LETOR text.

        Returns
        -------
        Parts
            Queries for training, validation and testing, in the attributes `train`, `vali` and `test`.

        Raises
        ------
        ValueError
            If a file is invalid, the files have different numbers of features, or the counts are not those
            of `known`.
        """
        from sinkprop.data.letor import load_letor
        from sinkprop.store import open_queries

        n_features = self.n_features
        if n_features is None and self.known is not None and self.known.sparse:
            n_features = self.known.features
        read: list[AnyQueries] = [
            open_queries(path)
            if path.is_dir()
            else load_letor(path, n_features=n_features, allow_nan=True, n_threads=n_threads)
            for path in self.paths
        ]
        widths = [queries.n_features for queries in read]
        for path, width in zip(self.paths, widths, strict=True):
            if width != widths[0]:
                raise ValueError(
                    f"{path} has {width} features, but {self.train.name} beside it has {widths[0]}. If files "
                    f"leave out features that are 0, say how many there are: {max(widths)} or more "
                    "(--n-features, n_features=)."
                )
        if self.known is not None:
            names = ("train", "test") if self.vali is None else ("train", "vali", "test")
            where = f"{self.name} of {self.train.parent}"
            check_counts(self.known, dict(zip(names, read, strict=True)), where, check=self.check)
        return Parts(read[0], read[1] if self.vali is not None else None, read[-1])


@dataclass(frozen=True)
class DataSet:
    """Data set found on disk.

    Parameters
    ----------
    name : str
        Name of the data set.
    path : Path
        Folder of the data set.
    folds : tuple of FoldFiles
        Folds of the data set.
    left_out : tuple of Path, default ()
        Folders of other versions of the data set, which are not used.
    """

    name: str
    path: Path
    folds: tuple[FoldFiles, ...]
    left_out: tuple[Path, ...] = ()


def with_counts(data: DataSet, check: Check) -> DataSet:
    """Return the data set with its published counts in every fold; without change if there are none."""
    try:
        known = known_set(data.name)
    except ValueError as error:
        if check == "error":
            raise ValueError(f"{data.path}: {error}") from None
        return data
    return replace(data, folds=tuple(replace(fold, known=known, check=check) for fold in data.folds))
