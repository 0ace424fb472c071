"""Fits of the methods as plain records, each with its key, and the file that keeps them between runs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sinkprop.common.plain_data import plain_data
from sinkprop.data.queries import Fold, Queries
from sinkprop.experiment.folds.files import FoldFiles
from sinkprop.experiment.methods import METHODS, parse_methods
from sinkprop.experiment.results import plain_id
from sinkprop.experiment.run import MethodError, compare

__all__ = ["BUDGET", "Fit", "FitJob", "KeptFits", "key_of", "run_fit", "takes_budget"]

BUDGET = "time_budget"  # parameter of the rankers that can be told how many seconds a fit may take


@dataclass(frozen=True)
class Fit:
    """Record of one method on one fold.

    Parameters
    ----------
    key : str
        Hash of everything that determines the result.
    dataset : str
        Name of the data set.
    fold : str
        Name of the fold.
    method : str
        Name of the method.
    queries : tuple of int or str
        Ids of the test queries; () if the method failed.
    per_query : mapping
        {metric: values of the queries}; None in place of NaN.
    seconds : float or None
        Wall-clock time of the fit.
    processor_seconds : float or None
        Processor time of the fit, of this process and of the processes that it started.
    failure : str or None
        Reason why the method failed; None if it did not.
    """

    key: str
    dataset: str
    fold: str
    method: str
    queries: tuple[int | str, ...]
    per_query: Mapping[str, tuple[float | None, ...]]
    seconds: float | None
    processor_seconds: float | None
    failure: str | None


@dataclass(frozen=True, eq=False)
class FitJob:
    """One fit to make.

    budget  Seconds that the fit may take; None for no limit. Only some rankers have this parameter.
    """

    dataset: str
    fold: Fold | FoldFiles
    method: str
    metrics: tuple[str, ...]
    convention: str
    selection: str | None = None
    budget: float | None = None

    def __str__(self) -> str:
        return f"{self.dataset} {self.fold.name}, {self.method}"


def takes_budget(method: str) -> bool:
    """Whether the ranker of a method can be told how many seconds a fit may take."""
    return BUDGET in getattr(_estimator(method), "get_params", dict)()


def _estimator(method: str) -> Any:
    return parse_methods(method)[method].make()


def run_fit(job: FitJob) -> Fit:
    """Make a fit. A method that fails gives a record with the reason."""
    methods: Any = [job.method]
    if job.budget is not None and takes_budget(job.method):
        estimator = _estimator(job.method)
        known = estimator.get_params()
        given = {BUDGET: job.budget, "convention": job.convention}
        methods = {job.method: estimator.set_params(**{k: v for k, v in given.items() if k in known})}
    where = job.dataset, job.fold.name, job.method
    try:
        found = compare(
            {job.dataset: [job.fold]},
            methods,
            metrics=list(job.metrics),
            convention=job.convention,
            selection=job.selection,
            n_jobs=1,
        )
    except (MethodError, MemoryError) as error:
        reason = str(error).removeprefix(f"{job.method} failed on {job.dataset}, {job.fold.name}: ")
        return Fit(key_of(job), *where, (), {}, None, None, reason)
    (result,) = found.results
    return Fit(
        key_of(job),
        *where,
        tuple(plain_id(query) for query in result.queries),
        {name: tuple(plain_data(values, finite=True)) for name, values in result.per_query.items()},
        round(result.fit_seconds, 4),
        round(result.processor_seconds, 4),
        None,
    )


def key_of(job: FitJob) -> str:
    """Hash of everything that determines the result of a fit, including the source code of sinkprop."""
    needs = METHODS[job.method].needs if job.method in METHODS else None
    told = [
        _fingerprint(job.fold),
        job.method,
        repr(getattr(_estimator(job.method), "get_params", dict)()),
        list(job.metrics),
        job.convention,
        job.selection,
        job.budget if job.budget is not None and takes_budget(job.method) else None,
        _source_code(),
        _version(needs) if needs else "",
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _fingerprint(fold: Fold | FoldFiles) -> str:
    found = hashlib.sha256()
    if isinstance(fold, FoldFiles):
        for path in fold.paths:
            about = path.stat()
            found.update(_file_hash(path, about.st_mtime_ns).encode())
        found.update(repr(fold.n_features).encode())
        return found.hexdigest()
    for part in (fold.train, fold.vali, fold.test):
        found.update(_part_hash(part))
    return found.hexdigest()


def _part_hash(part: Any) -> bytes:
    if not isinstance(part, Queries):  # a stored set
        return _file_hash(Path(part.path), 0).encode()
    found = hashlib.sha256()
    for array in (part.X, part.y, part.groups.codes):
        found.update(np.ascontiguousarray(array).tobytes())
    found.update(repr((part.feature_names, sorted(part.categories))).encode())
    return found.digest()


@cache
def _file_hash(path: Path, changed: int) -> str:
    """Hash of a file, or of the names, sizes and descriptions of the files of a stored set.

    changed  Time of the last change, which only tells versions of one file apart in this process.
    """
    found = hashlib.sha256(str(path.is_dir()).encode())
    if path.is_dir():
        # a stored set describes its files, with their checksums, in JSON
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            found.update(f"{file.relative_to(path)} {file.stat().st_size}".encode())
            if file.suffix == ".json":
                found.update(file.read_bytes())
        return found.hexdigest()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            found.update(block)
    return found.hexdigest()


@cache
def _source_code() -> str:
    package = Path(__file__).parents[2]
    found = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.glob("_native*")]):
        found.update(str(path.relative_to(package)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()


@cache
def _version(package: str) -> str:
    names = importlib.metadata.packages_distributions().get(package, [package])
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))


class KeptFits:
    """Fits in a file, one per line, which is written after each fit; in memory only if the path is None.

    Parameters
    ----------
    path : path, optional
        The file. A last line that is not complete, because the program was killed while it wrote, is ignored.

    Raises
    ------
    ValueError
        If the file holds anything else; the message names the line.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.found: dict[str, Fit] = {}
        if path is None or not path.exists():
            return
        lines = path.read_bytes().split(b"\n")
        if lines[-1]:  # a fit that was not written completely; the next one begins on a line of its own
            with path.open("r+b") as file:
                file.truncate(sum(len(line) + 1 for line in lines[:-1]))
        for number, line in enumerate(lines[:-1], start=1):
            fit = _fit_from(line)
            if fit is None:
                raise ValueError(f"{path}, line {number}: not a fit that `sinkprop compare` kept.")
            self.found[fit.key] = fit

    def put(self, fit: Fit) -> None:
        """Keep a fit.

        Parameters
        ----------
        fit : Fit
            The fit.
        """
        self.found[fit.key] = fit
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(fit)) + "\n")


def _fit_from(line: bytes) -> Fit | None:
    """Read a line of the file; None if it is not a complete record."""
    try:
        record = json.loads(line)
        texts = all(isinstance(record[name], str) for name in ("key", "dataset", "fold", "method"))
        if not texts or set(record) != {field.name for field in fields(Fit)}:
            return None
        values = {str(name): tuple(map(_number, own)) for name, own in record["per_query"].items()}
        queries = tuple(q if isinstance(q, int) else str(q) for q in record["queries"])
        failure = None if record["failure"] is None else str(record["failure"])
        if any(len(own) != len(queries) for own in values.values()) or bool(values) == bool(failure):
            return None
        times = {name: _number(record[name]) for name in ("seconds", "processor_seconds")}
        return Fit(**{**record, **times, "per_query": values, "queries": queries, "failure": failure})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("not a finite number")
    return float(value)
