"""Boosted trees on SinkProp's derivatives against LightGBM, XGBoost and CatBoost, with equal budgets.

    python benchmarks/boosting.py DATA                      all data sets in DATA, 1 trial and the best of 6
    python benchmarks/boosting.py DATA --cache fits.jsonl   the same, keeping each fit: a second run resumes
    python benchmarks/boosting.py --sets simulated,pydocs   data that needs no files
    python benchmarks/boosting.py --sets '' --letor MQ2008  another data set, in one of LETOR's layouts
    python benchmarks/boosting.py DATA --methods boosted,lambdarank --trials 1 --json table.json
    python benchmarks/boosting.py DATA --budget 10          also the best that 10 s of processor time buy

DATA is a folder with any of the following; the default is the environment variable SINKPROP_DATA.

    OHSUMED/Fold1 to Fold5, or ohsumed/S1.txt.xz to S5.txt.xz  LETOR 3.0, its own five folds
    NP2004-part or np2004-part: files of LETOR text            pooled, then split into five folds by query
    lightgbm-example: rank.train, rank.test and their .query   LightGBM's example, pooled and split likewise

Pooled data are split at random into five parts: three for training, one for validation and one for testing,
in rotation. `--splits` repeats this with other seeds. There are five simulated sets, of five seeds, with
2,000 queries each: three fifths for training, one fifth for validation and one fifth for testing. Pydocs has
its own folds.

The methods:

    boosted        BoostedRanker(effort="fast"), not tuned
    boosted-tuned  BoostedRanker, tuned; the first trial is `boosted`
    lambdarank     LightGBM's objective, tuned; the first trial is LightGBM's defaults
    rank_xendcg    LightGBM's objective, likewise
    xgboost-ndcg   XGBoost's rank:ndcg, likewise
    catboost-yetirank, catboost-ndcg, catboost-queryrmse, catboost-stochasticrank
                   CatBoost's YetiRank, YetiRank:mode=NDCG, QueryRMSE and StochasticRank:metric=NDCG, likewise
    catboost-default
                   CatBoost's YetiRank with its defaults, not tuned: 1,000 rounds, and the round that is
                   best by its own metric on the validation queries

From the second trial on, all methods use the same settings. Leaves, minimum documents per leaf and learning
rate are drawn at random from one grid. XGBoost has no minimum number of documents; it gets a twentieth of
that number as the minimum sum of curvatures (1, its default, for 20, LightGBM's default). CatBoost's trees
are symmetric: they get the depth of so many leaves, and an L2 penalty in place of the minimum (3, its default
for QueryRMSE, for 20). All methods have the same number of rounds and the same early stopping, except
`boosted`, the first trial of `boosted-tuned`, and `catboost-default`. The round and the trial are chosen on
the validation queries, by the mean of NDCG@1, 3, 5 and 10. Nothing is chosen on the test queries. With
`--budget`, each method also has a row for the best of as many of its trials as take so many seconds of
processor time, and at least one.

Differences are tested per query: the mean of the four metrics for `boosted`, minus that for each other row.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import sinkprop
from sinkprop import Fold, Queries, load_letor
from sinkprop.datasets import make_ranking, pydocs_folds
from sinkprop.experiment import find_data_sets
from sinkprop.experiment.results import Comparison, Result
from sinkprop.metrics import evaluate
from sinkprop.metrics.conventions import CONVENTIONS

METRICS = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10")
MEAN = "mean"
OURS = "boosted"
TUNED = "boosted-tuned"
CATBOOST = {
    "catboost-yetirank": "YetiRank",
    "catboost-ndcg": "YetiRank:mode=NDCG",
    "catboost-queryrmse": "QueryRMSE",
    "catboost-stochasticrank": "StochasticRank:metric=NDCG",
}
THEIRS = "catboost-default"
METHODS = (OURS, TUNED, "lambdarank", "rank_xendcg", "xgboost-ndcg", *CATBOOST, THEIRS)
NOT_TUNED = (OURS, THEIRS)
EMPTY = "skip"
LEAVES = (4, 8, 15, 31, 63)
LEAST = (5, 20, 50, 100)  # minimum documents per leaf
# XGBoost has a minimum sum of curvatures instead: its default is 1, where LightGBM's is 20 documents
CURVATURE_OF_A_DOCUMENT = 1 / 20
# CatBoost's symmetric trees have an L2 penalty instead: its default is 3
PENALTY_OF_A_DOCUMENT = 3 / 20
RATES = (0.02, 0.05, 0.1, 0.2)
GRID_SEED = 2026
SIMULATED: dict[str, dict[str, Any]] = {
    "simulated": {},
    "simulated-binary": {"labels": "binary"},
    "simulated-clicks": {"labels": "clicks"},
    "simulated-linear": {"nonlinearity": 0.0},
    "simulated-clean": {"noise": 0.3},
    "simulated-noisy": {"noise": 2.5},
}
FILES = ("ohsumed", "np2004", "lightgbm")
SETS = (*FILES, "simulated", "pydocs")
SIMULATION_SEEDS = 5


@dataclass(frozen=True)
class Source:
    """A data set: its name, its kind (a name in `SETS` or `SIMULATED`, or "letor") and its path."""

    name: str
    kind: str
    path: str = ""
    n_splits: int = 1
    n_queries: int = 2000


@dataclass(frozen=True)
class Job:
    """One fit. Trial 0 uses the method's defaults."""

    source: Source
    fold: str
    method: str
    trial: int
    rounds: int
    patience: int


def setting(trial: int) -> dict[str, Any]:
    """The settings of a trial, which are the same for every method; {} for the first trial, the defaults."""
    if trial == 0:
        return {}
    combinations = list(itertools.product(LEAVES, LEAST, RATES))
    order = np.random.default_rng(GRID_SEED).permutation(len(combinations))
    leaves, least, rate = combinations[order[(trial - 1) % len(order)]]
    return {"num_leaves": leaves, "min_child_samples": least, "learning_rate": rate}


def renumbered(parts: Sequence[Queries]) -> Queries:
    """The queries of all parts together, numbered from 1, with the features of the widest part."""
    width = max(part.n_features for part in parts)
    X = [np.pad(part.X, ((0, 0), (0, width - part.n_features))) for part in parts]
    first, qids = 1, []
    for part in parts:
        codes = np.unique(part.qid, return_inverse=True)[1]
        qids.append(codes + first)
        first += int(codes.max()) + 1
    return Queries(np.concatenate(X), np.concatenate([p.y for p in parts]), np.concatenate(qids))


def in_five(queries: Queries, seed: int, prefix: str = "") -> list[Fold]:
    """Five folds in LETOR's rotation: 3/5 of the queries for training, 1/5 for validation, 1/5 for test."""
    ids = queries.groups.queries
    parts = np.array_split(ids[np.random.default_rng(seed).permutation(len(ids))], 5)
    folds = []
    for i in range(5):
        *train, vali, test = (parts[(i + j) % 5] for j in range(5))
        chosen = (queries.select(own) for own in (np.concatenate(train), vali, test))
        folds.append(Fold(f"{prefix}Fold{i + 1}", *chosen))
    return folds


def read(path: Path) -> Queries:
    """Read LETOR text. LightGBM's file of query sizes is found beside it, even if the text is compressed."""
    sizes = path.with_name(path.name.removesuffix(".xz") + ".query")
    if sizes.exists():
        return load_letor(path, group=sinkprop.data.letor.load_query_sizes(sizes))
    return load_letor(path)


@lru_cache(maxsize=2)
def folds_of(source: Source) -> tuple[Fold, ...]:
    if source.kind == "pydocs":
        return pydocs_folds()
    if source.kind in SIMULATED:
        folds = []
        for seed in range(SIMULATION_SEEDS):
            queries = make_ranking(source.n_queries, random_state=seed, **SIMULATED[source.kind])
            fold = in_five(queries, seed)[0]
            folds.append(Fold(f"seed {seed}", fold.train, fold.vali, fold.test))
        return tuple(folds)
    folder = Path(source.path)
    if source.kind == "ohsumed" and not any(folder.glob("Fold*")):
        parts = [read(path) for path in sorted(folder.glob("S?.txt*"))]
        made = []
        for i in range(5):
            *train, vali, test = (parts[(i + j) % 5] for j in range(5))
            X, y, qid = (np.concatenate([getattr(p, name) for p in train]) for name in ("X", "y", "qid"))
            made.append(Fold(f"Fold{i + 1}", Queries(X, y, qid), vali, test))
        return tuple(made)
    if source.kind in ("np2004", "lightgbm"):
        pattern = "rank.*" if source.kind == "lightgbm" else "**/*.txt*"
        pooled = renumbered([read(path) for path in sorted(folder.glob(pattern)) if path.suffix != ".query"])
        splits = range(source.n_splits)
        return tuple(
            fold for seed in splits for fold in in_five(pooled, seed, f"{seed}:" if len(splits) > 1 else "")
        )
    data = next(
        data for data in find_data_sets(folder) if source.kind == "ohsumed" or data.name == source.name
    )
    found = []
    for files in data.folds:
        own = files.read()
        if own.vali is None:
            raise ValueError(f"{folder}, {files.name}: there is no validation file to choose by.")
        found.append(Fold(files.name, own.train, own.vali, own.test))
    return tuple(found)


@lru_cache(maxsize=32)
def fingerprint(source: Source, fold: str) -> str:
    """A hash of the data of a fold, so that the cache detects different data with the same name."""
    found = hashlib.sha256()
    own = the_fold(source, fold)
    for part in (own.train, own.vali, own.test):
        for array in (part.X, part.y, np.diff(part.groups.offsets)):
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def the_fold(source: Source, name: str) -> Fold:
    return next(fold for fold in folds_of(source) if fold.name == name)


@lru_cache(maxsize=1)
def own_code() -> str:
    """A hash of the source code that sinkprop's fits depend on; they are repeated when it changes."""
    package = Path(sinkprop.__file__).parent
    found = hashlib.sha256()
    for path in sorted(
        p for kind in ("gbdt/**/*.py", "objective/*.py", "_native*") for p in package.glob(kind)
    ):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def version(method: str) -> str:
    """The version of the library that makes the fit."""
    import importlib.metadata

    package = next((name for name in ("xgboost", "catboost") if method.startswith(name)), "lightgbm")
    try:
        number = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # the distribution may be named xgboost-cpu
        number = importlib.import_module(package).__version__
    return f"{package} {number}" + (f", sinkprop {own_code()}" if method in (OURS, TUNED) else "")


def key_of(job: Job) -> str:
    """The key of a fit in the cache: everything that determines its result."""
    own = job.method if job.method != TUNED or job.trial else OURS  # the first trial is `boosted`
    budget = [] if own in NOT_TUNED else [job.rounds, job.patience]
    told = [fingerprint(job.source, job.fold), own, setting(job.trial), *budget, METRICS, EMPTY]
    return hashlib.sha256(json.dumps([*told, version(job.method)], sort_keys=True).encode()).hexdigest()[:24]


def criterion(y: Any, scores: Any, qid: Any) -> float:
    """The mean of NDCG@1, 3, 5 and 10 over the queries with a relevant document."""
    found = evaluate(y, scores, qid, metrics=METRICS, convention="standard", empty=EMPTY)
    return float(np.mean([found[metric] for metric in METRICS]))


def fit(job: Job) -> tuple[Any, int]:
    """A function from features to scores, and the chosen number of rounds."""
    fold = the_fold(job.source, job.fold)
    train, vali = (by_query(part) for part in (fold.train, fold.vali))
    if job.method in (OURS, TUNED):
        return fit_ours(job, train, vali)
    if job.method == "xgboost-ndcg":
        return fit_xgboost(job, train, vali)
    if job.method in CATBOOST or job.method == THEIRS:
        return fit_catboost(job, train, vali)
    return fit_lightgbm(job, train, vali)


def by_query(queries: Queries) -> Queries:
    return queries if queries.groups.rows is None else queries.take(queries.groups.rows)


def sizes(queries: Queries) -> Any:
    return np.diff(queries.groups.offsets)


def fit_ours(job: Job, train: Queries, vali: Queries) -> tuple[Any, int]:
    from sinkprop.gbdt import BoostedRanker

    given = setting(job.trial)
    if given:
        given |= {"n_estimators": job.rounds, "early_stopping_rounds": job.patience}
        given |= {"criterion": METRICS, "convention": "standard"}
    ranker = BoostedRanker(effort="fast", n_threads=1, verbose=False, **given)
    ranker.fit(train.X, train.y, qid=train.qid, eval_set=[(vali.X, vali.y)], eval_qid=[vali.qid])
    return ranker.predict, int(ranker.booster_.num_trees())


def fit_lightgbm(job: Job, train: Queries, vali: Queries) -> tuple[Any, int]:
    import lightgbm

    given = {
        "objective": job.method,
        "metric": "none",
        "num_threads": 1,
        "seed": 0,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
        **setting(job.trial),
    }
    rows = lightgbm.Dataset(train.X, train.y, group=sizes(train))
    validation = lightgbm.Dataset(vali.X, vali.y, group=sizes(vali), reference=rows)
    booster = lightgbm.train(
        given,
        rows,
        num_boost_round=job.rounds,
        valid_sets=[validation],
        feval=lambda scores, _: ("criterion", criterion(vali.y, scores, vali.qid), True),
        callbacks=[lightgbm.early_stopping(job.patience, verbose=False)],
    )
    best = booster.best_iteration or booster.num_trees()
    return lambda X: booster.predict(X, num_iteration=best, num_threads=1), best


def fit_xgboost(job: Job, train: Queries, vali: Queries) -> tuple[Any, int]:
    import xgboost

    given: dict[str, Any] = {
        "objective": "rank:ndcg",
        "tree_method": "hist",
        "disable_default_eval_metric": True,
        "nthread": 1,
        "seed": 0,
        "verbosity": 0,
    }
    if tried := setting(job.trial):
        given |= {
            "grow_policy": "lossguide",
            "max_depth": 0,
            "max_leaves": tried["num_leaves"],
            "min_child_weight": tried["min_child_samples"] * CURVATURE_OF_A_DOCUMENT,
            "eta": tried["learning_rate"],
        }

    def rows(queries: Queries) -> Any:
        return xgboost.DMatrix(queries.X, queries.y, group=sizes(queries), nthread=1)

    booster = xgboost.train(
        given,
        rows(train),
        num_boost_round=job.rounds,
        evals=[(rows(vali), "vali")],
        custom_metric=lambda scores, _: ("criterion", criterion(vali.y, scores, vali.qid)),
        maximize=True,
        early_stopping_rounds=job.patience,
        verbose_eval=False,
    )
    best = int(booster.best_iteration) + 1
    return lambda X: booster.predict(xgboost.DMatrix(X, nthread=1), iteration_range=(0, best)), best


class CriterionForCatBoost:
    """The criterion on the validation queries, as a metric that CatBoost calls after every round."""

    def __init__(self, vali: Queries) -> None:
        self.vali = vali

    def is_max_optimal(self) -> bool:
        return True

    def get_final_error(self, error: float, weight: float) -> float:
        return error / weight

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        y = np.array(target)
        if not np.array_equal(y, self.vali.y.astype(np.float32)):
            return 0.0, 1.0  # CatBoost asks for the training queries, too
        return criterion(self.vali.y, np.array(approxes[0]), self.vali.qid), 1.0


def fit_catboost(job: Job, train: Queries, vali: Queries) -> tuple[Any, int]:
    import warnings

    import catboost

    given: dict[str, Any] = {
        "loss_function": CATBOOST.get(job.method, "YetiRank"),
        "thread_count": 1,
        "random_seed": 0,
        "allow_writing_files": False,
        "logging_level": "Silent",
    }
    if job.method != THEIRS:
        given |= {
            "iterations": job.rounds,
            "early_stopping_rounds": job.patience,
            "eval_metric": CriterionForCatBoost(vali),
        }
    if tried := setting(job.trial):
        given |= {
            "depth": round(np.log2(tried["num_leaves"] + 1)),
            "l2_leaf_reg": tried["min_child_samples"] * PENALTY_OF_A_DOCUMENT,
            "learning_rate": tried["learning_rate"],
        }

    def rows(queries: Queries) -> Any:
        return catboost.Pool(
            queries.X, queries.y, group_id=np.repeat(np.arange(queries.n_queries), sizes(queries))
        )

    booster = catboost.CatBoost(given)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to import numba")
        booster.fit(rows(train), eval_set=rows(vali), use_best_model=True)
    return lambda X: booster.predict(X, thread_count=1), int(booster.tree_count_)


def run(job: Job) -> dict[str, Any]:
    """The record of a fit: the criterion on the validation queries and the metrics of the test queries."""
    began = time.process_time()
    scores_of, rounds = fit(job)
    seconds = time.process_time() - began
    fold = the_fold(job.source, job.fold)
    vali, test = fold.vali, fold.test
    found = evaluate(test.y, scores_of(test.X), test.qid, metrics=METRICS, convention="standard", empty=EMPTY)
    return {
        "key": key_of(job),
        "data": job.source.name,
        "fold": job.fold,
        "method": job.method,
        "trial": job.trial,
        "setting": setting(job.trial),
        "version": version(job.method),
        "rounds": rounds,
        "seconds": round(seconds, 3),
        "criterion": criterion(vali.y, scores_of(vali.X), vali.qid),
        "queries": [str(q) for q in found.queries.tolist()],
        "per_query": {
            name: [None if np.isnan(x) else round(float(x), 6) for x in values]
            for name, values in found.per_query.items()
        },
    }


class Cache:
    """Fits kept in a file, one per line, or in memory if the path is None. An incomplete line is ignored."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                self.found[record["key"]] = record

    def put(self, record: dict[str, Any]) -> None:
        self.found[record["key"]] = record
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(record) + "\n"
            if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
                text = "\n" + text
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)


def sources(options: argparse.Namespace) -> Iterator[Source]:
    """The requested data sets, or by default those that are found."""
    wanted = None if options.sets is None else [name for name in options.sets.split(",") if name]
    where = {"ohsumed": ("OHSUMED", "ohsumed"), "np2004": ("NP2004-part", "np2004-part")}
    where["lightgbm"] = ("lightgbm-example",)
    for name in SETS if wanted is None else wanted:
        if name in where:
            here = [Path(options.data or "") / folder for folder in where[name]]
            there = [path for path in here if options.data and path.is_dir()]
            if there:
                yield Source(name, name, str(there[0]), options.splits)
            elif wanted is not None:
                sys.exit(f"{name}: there is no folder {' or '.join(where[name])} in {options.data!r}.")
            else:
                print(f"{name} is not there, and left out.", file=sys.stderr)
        elif name in SIMULATED:
            yield Source(name, name, n_queries=options.queries)
        elif name == "pydocs":
            yield Source(name, name)
        else:
            sys.exit(f"--sets: {name!r} is none of {', '.join((*FILES, *SIMULATED, 'pydocs'))}.")
    for data in find_data_sets(*options.letor) if options.letor else ():
        yield Source(data.name, "letor", str(data.path))


def jobs_of(
    source: Source, methods: Iterable[str], n_trials: int, rounds: int, patience: int
) -> Iterator[Job]:
    names = [fold.name for fold in folds_of(source)]
    for trial, method, fold in itertools.product(range(n_trials), methods, names):
        if trial == 0 or method not in NOT_TUNED:
            yield Job(source, fold, method, trial, rounds, patience)


@dataclass(frozen=True)
class Row:
    """A row of the table: the best of a method's first trials.

    n_trials  Largest number of trials.
    seconds   Processor time of the trials together; the first trial counts even if it takes longer.
    """

    name: str
    method: str
    n_trials: int
    seconds: float = np.inf

    def first(self, tried: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """The trials that the row may use."""
        spent = np.cumsum([record["seconds"] for record in tried])
        return tried[: max(1, int((spent <= self.seconds).sum()))]


def rows_of(methods: Sequence[str], trials: Sequence[int], budget: float | None = None) -> list[Row]:
    """The rows of the table. One trial of the tuned method would repeat `boosted`."""
    rows = [Row(OURS, OURS, 1)] if OURS in methods else []
    for method in methods:
        if method == THEIRS:
            rows.append(Row(method, method, 1))
        if method in NOT_TUNED:
            continue
        rows += [
            Row(f"{method}, {'1 trial' if n == 1 else f'best of {n}'}", method, n)
            for n in trials
            if not (method == TUNED and n == 1 and OURS in methods)
        ]
        if budget is not None:
            rows.append(Row(f"{method}, {budget:g} s", method, max(trials), budget))
    return rows


def comparison(
    source: Source, rows: Sequence[Row], cache: Cache, rounds: int, patience: int
) -> tuple[Comparison, dict[str, list[dict[str, Any]]]]:
    """The results of each row, and the fits that were chosen for it."""
    results: list[Result] = []
    chosen: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        chosen[row.name] = []
        for fold in folds_of(source):
            jobs = [Job(source, fold.name, row.method, t, rounds, patience) for t in range(row.n_trials)]
            tried = row.first([cache.found[key_of(job)] for job in jobs])
            best = max(tried, key=lambda record: record["criterion"])  # the first of equals
            chosen[row.name].append(best)
            per_query = {k: np.array(v, dtype=np.float64) for k, v in best["per_query"].items()}
            per_query[MEAN] = np.mean([per_query[k] for k in METRICS], axis=0)
            # other seeds have other queries; other splits have the same queries
            prefix = f"{fold.name}/" if source.kind in SIMULATED else ""
            results.append(
                Result(
                    source.name,
                    fold.name,
                    row.name,
                    tuple(f"{prefix}{q}" for q in best["queries"]),
                    per_query,
                    {k: float(np.nanmean(v)) for k, v in per_query.items()},
                    sum(record["seconds"] for record in tried),
                    0.0,
                    {"trial": best["trial"], "setting": best["setting"], "rounds": best["rounds"]},
                )
            )
    names = tuple(row.name for row in rows)
    statement = CONVENTIONS["standard"].describe().replace("counts 0", "is left out")
    made = Comparison(
        (source.name,),
        names,
        (*METRICS, MEAN),
        names[0],
        "standard",
        tuple(results),
        {source.name: statement},
    )
    return made, chosen


def as_text(found: Comparison, chosen: dict[str, list[dict[str, Any]]]) -> str:
    (name,) = found.datasets
    tests = {t.method: t for t in found.tests(name) if t.metric == MEAN}
    folds = len(found.folds(name))
    n_queries = len({q for r in found.results for q in r.queries})
    versus = found.against
    heads = ["", *(m.upper() for m in METRICS), "mean", f"{versus} leads by", "95 %", "p: t", "p: random.",
             "rounds", "s"]  # fmt: skip
    lines = [
        f"{name}: {folds} folds, {n_queries} queries",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for method in found.methods:
        cells = [f"`{method}`"]
        cells += [f"{found.mean(name, method, m):.4f}" for m in (*METRICS, MEAN)]
        if method in tests:
            t = tests[method]
            low, high = sorted(-x for x in t.interval)
            cells += [f"{-t.difference:+.4f}", f"{low:+.4f} to {high:+.4f}"]
            cells += [p_value(t.t_test), p_value(t.randomization)]
        else:
            cells += [""] * 4
        cells.append(f"{np.mean([record['rounds'] for record in chosen[method]]):.0f}")
        cells.append(f"{found.fit_seconds(name, method):.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def p_value(p: float) -> str:
    return "" if np.isnan(p) else "< .0001" if p < 0.00005 else f"{p:.4f}"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data",
        nargs="?",
        default=os.environ.get("SINKPROP_DATA"),
        help="folder with the data sets  [default: SINKPROP_DATA]",
    )
    parser.add_argument("--sets", help=f"data sets, from {', '.join((*FILES, *SIMULATED, 'pydocs'))}")
    parser.add_argument("--letor", nargs="*", default=[], metavar="DIR", help="folders of more data sets")
    parser.add_argument(
        "--methods", default=",".join(METHODS), help="comma-separated methods  [default: all]"
    )
    parser.add_argument(
        "--trials", type=int, nargs="+", default=[1, 6], help="numbers of trials, one row for each"
    )
    parser.add_argument(
        "--budget", type=float, help="seconds of processor time per fold, for one more row of each method"
    )
    parser.add_argument("--rounds", type=int, default=500, help="maximum number of rounds  [default: 500]")
    parser.add_argument(
        "--patience", type=int, default=50, help="rounds without improvement before early stopping"
    )
    parser.add_argument("--splits", type=int, default=1, help="random splits of each pooled data set")
    parser.add_argument("--queries", type=int, default=2000, help="queries per simulated set")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes, of one thread each")
    parser.add_argument("--cache", type=Path, help="file that keeps every fit")
    parser.add_argument("--json", type=Path, help="file for the results as JSON")
    options = parser.parse_args()
    options.methods = [name.strip() for name in options.methods.split(",")]
    for name in options.methods:
        if name not in METHODS:
            parser.error(f"--methods: {name!r} is none of {', '.join(METHODS)}.")
    if min(options.trials) < 1:
        parser.error("--trials must be at least 1.")
    return options


def main() -> None:
    options = parsed()
    cache = Cache(options.cache)
    data_sets = list(sources(options))
    if not data_sets:
        sys.exit("there is no data set; name some with --sets, or the folder of the files.")
    budget = options.rounds, options.patience
    most = max(options.trials)
    todo: dict[str, Job] = {}
    for source in data_sets:
        for job in jobs_of(source, options.methods, most, *budget):
            if key_of(job) not in cache.found:
                todo.setdefault(key_of(job), job)
    began = time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(run, job): job for job in todo.values()}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                cache.put(future.result())
                job, seconds = futures[future], time.perf_counter() - began
                what = f"{job.source.name} {job.fold}, {job.method}, trial {job.trial + 1}"
                if done % 10 == 0 or done == len(futures):
                    print(f"{done} of {len(futures)} fits, {seconds:.0f} s; {what}", file=sys.stderr)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    rows = rows_of(options.methods, sorted(set(options.trials)), options.budget)
    records = []
    for source in data_sets:
        found, chosen = comparison(source, rows, cache, *budget)
        print(as_text(found, chosen), end="\n\n")
        records.append(found.as_record()["datasets"][0])
    print(found.describe(data_sets[-1].name))
    print(f"At most {options.rounds} rounds; early stopping after {options.patience} that are not better.")
    if options.json:
        record = {
            "metrics": [*METRICS, MEAN],
            "rounds": options.rounds,
            "patience": options.patience,
            "trials": sorted(set(options.trials)),
            "settings": [setting(trial) for trial in range(most)],
            "datasets": records,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
