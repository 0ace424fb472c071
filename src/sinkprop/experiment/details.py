"""What a comparison keeps besides its metrics, for the report: how a ranker was trained, what it weighs, how
wide its distribution over ranks is, and the documents and scores of some test queries.

All of it is plain data, bounded whatever the size of the data set, and numbers are rounded where nobody could
tell: never so that two documents change places or become equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sinkprop.data import Queries
from sinkprop.metrics import evaluate
from sinkprop.ranked import ranking
from sinkprop.relaxations import PartitionedMeasure, SmoothedIndicator

__all__ = ["Budget", "Details", "FoldData", "details_of", "fold_data", "rounded_scores"]

Floats = NDArray[np.float64]

MAX_QUERIES = 200  # of a data set, whose documents are kept
MAX_VALUES = 160_000  # scores, labels and names of a comparison: what a page of a few megabytes holds
LONGEST = 2_000  # documents of a query: a matrix of more is not shown anywhere
_MANY_LABELS = 32
_MAX_STEPS = 1_000  # of one fit's training
_PERMUTED = 400_000  # rows times features that are scored anew for the importances of a network: a second
_TIMES = 5  # that values change places, where there is time for it


@dataclass(frozen=True)
class Budget:
    """How much of a fold's test queries may be kept: queries, and documents of all of them together."""

    queries: int
    documents: int

    @classmethod
    def of(cls, *, n_methods: int, n_folds: int, n_datasets: int) -> Budget:
        """The share of one fold.

        >>> Budget.of(n_methods=2, n_folds=5, n_datasets=1)
        Budget(queries=40, documents=8000)
        """
        documents = MAX_VALUES // ((n_methods + 2) * n_folds * n_datasets)
        return cls(-(-MAX_QUERIES // n_folds), max(1, documents))

    def chosen(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the queries to keep, evenly from all that are not too long; one at least, if one is.

        >>> Budget(3, 100).chosen(np.array([10, 20, 3000, 30, 10, 10])).tolist()
        [0, 3, 5]
        """
        able = np.flatnonzero(lengths <= LONGEST)
        count = min(self.queries, len(able))
        while count:
            taken = able[np.round(np.linspace(0, len(able) - 1, count)).astype(np.int64)]
            if count == 1 or lengths[taken].sum() <= self.documents:
                return taken
            count -= 1
        return able[:0]


@dataclass(frozen=True, eq=False)
class FoldData:
    """A fold's queries at a glance, and the documents of some of its test queries.

    parts          {"train" or "vali" or "test": (queries, documents)}
    n_features     with `feature_names`, or None
    lengths        (Q,) documents of each test query, and
    relevant       (Q,) how many of them are relevant
    labels         {label: (Q,) how many documents of each test query have it}; where there are more than
                   32 different ones, those below the next whole number count as one
    shown          (S,) numbers of the test queries whose documents are kept
    shown_labels   of each of them the labels (n,) of its documents in file order, and
    shown_docids   their names, or None
    """

    parts: Mapping[str, tuple[int, int]]
    n_features: int
    feature_names: tuple[str, ...] | None
    lengths: tuple[int, ...] = field(repr=False)
    relevant: tuple[int, ...] = field(repr=False)
    labels: Mapping[float, tuple[int, ...]] = field(repr=False)
    shown: tuple[int, ...] = field(repr=False)
    shown_labels: tuple[tuple[float, ...], ...] = field(repr=False)
    shown_docids: tuple[tuple[str, ...], ...] | None = field(repr=False)

    def as_record(self) -> dict[str, Any]:
        return {
            "parts": {part: list(sizes) for part, sizes in self.parts.items()},
            "n_features": self.n_features,
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "lengths": list(self.lengths),
            "relevant": list(self.relevant),
            "labels": {str(_whole(label)): list(counts) for label, counts in self.labels.items()},
            "shown": list(self.shown),
            "shown_labels": [[_whole(label) for label in own] for own in self.shown_labels],
            "shown_docids": None if self.shown_docids is None else [list(own) for own in self.shown_docids],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> FoldData:
        names, docids = record["feature_names"], record["shown_docids"]
        return cls(
            {part: (int(queries), int(documents)) for part, (queries, documents) in record["parts"].items()},
            int(record["n_features"]),
            None if names is None else tuple(names),
            tuple(record["lengths"]),
            tuple(record["relevant"]),
            {float(label): tuple(counts) for label, counts in record["labels"].items()},
            tuple(record["shown"]),
            tuple(tuple(map(float, own)) for own in record["shown_labels"]),
            None if docids is None else tuple(map(tuple, docids)),
        )


@dataclass(frozen=True, eq=False)
class Details:
    """What a fitted ranker is, besides its metrics on a fold; each may be absent.

    scores        of the documents of each test query shown; their order is the ranking's
    parameters    the two parameters (n, 2) of each of these documents, for a partitioned measure
    distribution  {"kernel", "sigma", "n_iter", "epsilon"} of a smoothed indicator of the scores, {"family",
                  "n_iter", "epsilon"} of a partitioned measure of the parameters, or {"family":
                  "rank-binomial", "sigma", "balance"}, SoftRank's
    training      criterion, judged_by, status, message, unit and steps, as the report has them
    weights       {"kind": "weight" or "importance", "explanation", "values" (D,)}
    """

    scores: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    parameters: tuple[tuple[tuple[float, float], ...], ...] | None = field(default=None, repr=False)
    distribution: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = field(default=None, repr=False)
    weights: Mapping[str, Any] | None = field(default=None, repr=False)

    def as_record(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "distribution": None if self.distribution is None else dict(self.distribution),
            "weights": None if self.weights is None else dict(self.weights),
            "training": None if self.training is None else _training_columns(self.training),
            "scores": [list(own) for own in self.scores],
        }
        if self.parameters is not None:
            found["parameters"] = [
                [list(column) for column in zip(*own, strict=True)] for own in self.parameters
            ]
        return found

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Details:
        parameters, training = record.get("parameters"), record["training"]
        return cls(
            tuple(tuple(map(float, own)) for own in record["scores"]),
            None if parameters is None else tuple(tuple(zip(*own, strict=True)) for own in parameters),
            record["distribution"],
            None if training is None else _training_steps(training),
            record["weights"],
        )


def _training_columns(training: Mapping[str, Any]) -> dict[str, Any]:
    """Steps as a list a column, which takes a tenth of the lines."""
    steps = training["steps"]
    names = list(dict.fromkeys(name for step in steps for name in step))
    return {**training, "steps": {name: [step.get(name) for step in steps] for name in names}}


def _training_steps(training: Mapping[str, Any]) -> dict[str, Any]:
    columns = training["steps"]
    rows = zip(*columns.values(), strict=True)
    return {**training, "steps": [dict(zip(columns, row, strict=True)) for row in rows]}


def fold_data(
    parts: Mapping[str, Queries | None], *, threshold: float = 1.0, budget: Budget | None = None
) -> FoldData:
    """The data of {"train": ..., "vali": ..., "test": ...}; `threshold` is the least relevant label."""
    test = parts["test"]
    if test is None:
        raise ValueError("parts must hold the test queries.")
    offsets, rows = test.groups.offsets, _sorted_rows(test)
    lengths = np.diff(offsets)
    relevant = np.add.reduceat((test.y[rows] >= threshold).astype(np.int64), offsets[:-1])
    grades = test.y[rows]
    if len(np.unique(grades)) > _MANY_LABELS:
        grades = np.floor(grades)
    counts = {
        float(label): tuple(np.add.reduceat((grades == label).astype(np.int64), offsets[:-1]).tolist())
        for label in np.unique(grades)[:_MANY_LABELS]
    }
    shown = np.arange(0) if budget is None else budget.chosen(lengths)
    places = [rows[offsets[q] : offsets[q + 1]] for q in shown.tolist()]
    docids = None
    if test.docid is not None:
        docids = tuple(tuple(str(name) for name in test.docid[own].tolist()) for own in places)
    return FoldData(
        {name: (part.n_queries, len(part)) for name, part in parts.items() if part is not None},
        test.n_features,
        test.feature_names,
        tuple(lengths.tolist()),
        tuple(relevant.tolist()),
        counts,
        tuple(shown.tolist()),
        tuple(tuple(test.y[own].tolist()) for own in places),
        docids,
    )


def details_of(
    ranker: Any,
    test: Queries,
    data: FoldData,
    *,
    train: Queries | None = None,
    vali: Queries | None = None,
) -> Details:
    """The details of a fitted ranker of any kind, with its scores of the test queries that `data` shows."""
    scores, parameters = _document_scores(ranker, test, data)
    weights = weights_of(
        ranker,
        rows=test if train is None else train,
        judging=test if vali is None else vali,
        held_out=vali is not None,
    )
    return Details(scores, parameters, distribution_of(ranker), training_of(ranker), weights)


def _sorted_rows(queries: Queries) -> NDArray[np.int64]:
    rows = queries.groups.rows
    return np.arange(len(queries)) if rows is None else rows


def _document_scores(
    ranker: Any, test: Queries, data: FoldData
) -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[tuple[float, float], ...], ...] | None]:
    if not data.shown:
        return (), None
    offsets, rows = test.groups.offsets, _sorted_rows(test)
    places = [rows[offsets[q] : offsets[q + 1]] for q in data.shown]
    ends = np.cumsum([len(own) for own in places])[:-1]
    taken = np.concatenate(places)
    X, codes = test.X[taken], np.repeat(np.arange(len(places)), [len(own) for own in places])
    relaxation = getattr(ranker, "relaxation_", None)
    ranks = None
    if callable(getattr(ranker, "rank", None)):
        ranks = np.asarray(ranker.rank(X, qid=codes))
    parameters = None
    if isinstance(relaxation, PartitionedMeasure) and ranks is not None:
        scores = -ranks.astype(np.float64)  # an assignment, which is the order of no score
        theta = _parameters(ranker, X, codes)
        parameters = tuple(
            tuple((_digits(a), _digits(b)) for a, b in own.tolist()) for own in np.split(theta, ends)
        )
    elif ranks is not None and not callable(getattr(ranker, "predict", None)):
        scores = -ranks.astype(np.float64)
    else:
        scores = predicted(ranker, X, codes)
        if ranks is not None and not np.array_equal(ranking(scores, codes).ranks, ranks):
            scores = -ranks.astype(np.float64)
    return tuple(rounded_scores(own) for own in np.split(scores, ends)), parameters


def predicted(ranker: Any, X: NDArray[Any], codes: NDArray[np.int64]) -> Floats:
    """What `predict` gives rows of the queries with these numbers, whatever kind of estimator it is."""
    from sinkprop.estimator import BaseRanker

    more = {"qid": codes} if isinstance(ranker, BaseRanker) else {}
    return np.asarray(ranker.predict(X, **more), dtype=np.float64)


def _parameters(ranker: Any, X: NDArray[Any], codes: NDArray[np.int64]) -> Floats:
    """Two numbers a document, (N, 2), of a ranker with a partitioned measure, linear or neural."""
    from sinkprop.data import group_rows

    groups = group_rows(codes, len(X))
    rows = ranker._by_query(X, groups)
    theta = ranker._theta(rows, groups) if hasattr(ranker, "module_") else ranker._theta(rows)
    return np.asarray(theta, dtype=np.float64)


def rounded_scores(scores: Floats) -> tuple[float, ...]:
    """The scores of one query, to a millionth of their spread or as many digits as keep all different.

    >>> rounded_scores(np.array([0.123456789, 1.0, 1.0 + 1e-12]))
    (0.123456789, 1.0, 1.000000000001)
    >>> rounded_scores(np.array([1 / 3, 2 / 3]))
    (0.3333333, 0.6666667)
    """
    x = np.asarray(scores, dtype=np.float64) + 0.0  # no negative zero
    different = len(np.unique(x))
    spread = float(np.std(x))
    if different > 1 and 0 < spread < math.inf:
        decimals = 6 - math.floor(math.log10(spread))
        for more in (0, 3, 6):
            if decimals + more > 300:
                break
            # rounding keeps the order but for numbers that become equal
            shorter = tuple(round(value, decimals + more) + 0.0 for value in x.tolist())
            if len(set(shorter)) == different:
                return shorter
    return tuple(x.tolist())


def distribution_of(ranker: Any) -> dict[str, Any] | None:
    """The distribution over ranks that the ranker was trained with; None where there is none."""
    relaxation = getattr(ranker, "relaxation_", None)
    settings = {"n_iter": getattr(ranker, "n_iter", None), "epsilon": getattr(ranker, "epsilon", None)}
    if isinstance(relaxation, SmoothedIndicator):
        return {"kernel": relaxation.kernel, "sigma": float(relaxation.sigma), **settings}
    if isinstance(relaxation, PartitionedMeasure):
        return {"family": relaxation.family, **settings}
    from sinkprop.baselines import SoftRankRanker

    if isinstance(ranker, SoftRankRanker):
        return {"family": "rank-binomial", "sigma": float(ranker.sigma_), "balance": ranker.balance}
    return None


def training_of(ranker: Any) -> dict[str, Any] | None:
    """How the ranker was trained, step by step; None where it does not say, or where there was one step."""
    result: Any = getattr(ranker, "fit_result_", None)
    if hasattr(result, "stages"):
        return _of_stages(ranker, result)
    if hasattr(result, "trials"):
        return _of_trials(ranker, result) if len(result.trials) > 1 else None
    if hasattr(result, "n_rounds"):
        return _of_rounds(ranker, result)
    if hasattr(result, "epochs"):
        return _of_epochs(ranker, result)
    return None


def _record(result: Any, unit: str, steps: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "criterion": result.criterion,
        "judged_by": result.judged_by,
        "status": result.status,
        "message": result.message,
        "unit": unit,
        "steps": list(steps),
        **more,
    }


def _step(number: int, label: str | None, path: str | None, **values: float | None) -> dict[str, Any]:
    found = {name: values.get(name) for name in ("sigma", "expected_gain", "training", "validation")}
    return {"path": path, "number": number, "label": label} | {
        name: None if value is None or not math.isfinite(value) else _digits(value)
        for name, value in found.items()
    }


def _of_stages(ranker: Any, result: Any) -> dict[str, Any]:
    steps, paths = [], []
    for stage in result.stages:
        trained = math.isfinite(stage.penalty)
        path = f"penalty {stage.penalty:g}" if trained else None
        paths.append(path)
        sigma = "" if stage.sigma is None else f", sigma {stage.sigma:g}"
        steps.append(
            _step(
                paths.count(path),
                f"{path}{sigma}" if trained else "least squares, where every path starts",
                path,
                sigma=stage.sigma if trained else None,
                expected_gain=stage.expected_gain,
                training=stage.training,
                validation=stage.criterion,
            )
        )
    planned = len(ranker._annealing().sigmas)
    last = {path: i for i, path in enumerate(paths) if path is not None}
    stopped = [i for path, i in last.items() if paths.count(path) < planned]
    if result.status == "interrupted":
        stopped = [i for i in stopped if i != len(steps) - 1]
    chosen = next(i for i, stage in enumerate(result.stages) if stage.chosen)
    return _record(result, "stage", steps, chosen=chosen, stopped=stopped)


def _of_trials(ranker: Any, result: Any) -> dict[str, Any]:
    """Candidates: rounds of boosting, numbers of trees, or penalties."""
    settings = [dict(trial.setting) for trial in result.trials]
    counts = next((name for name in ("round", "trees") if name in settings[0]), None)
    expected = hasattr(ranker, "balance") or getattr(ranker, "objective", "") == "sinkprop"
    steps, paths = [], []
    for trial, setting in zip(result.trials, settings, strict=True):
        sigma = cast("float | None", setting.get("sigma"))
        start = setting.get("penalty") == math.inf
        told = {name: value for name, value in setting.items() if name not in (counts, "sigma")}
        path = _in_words(told) or None if counts or sigma is not None else None
        paths.append(path)
        label = None if counts else "least squares" if start else _in_words(setting)
        steps.append(
            _step(
                int(setting[counts]) if counts else paths.count(path),
                label,
                None if start else path,
                sigma=None if start else sigma,
                expected_gain=trial.value if expected else None,
                training=trial.training,
                validation=trial.criterion,
            )
        )
    chosen = next(i for i, trial in enumerate(result.trials) if trial.chosen)
    return _record(result, "round" if counts else "stage", steps, chosen=chosen, stopped=[])


def _of_rounds(ranker: Any, result: Any) -> dict[str, Any]:
    """Rounds; of many, those with a look at the training queries, the first, the best and the last."""
    known = dict(result.training)
    judged = {number: value for number, value in enumerate(result.values, 1) if math.isfinite(value)}
    numbers: list[int] = list(range(1, result.n_rounds + 1))
    if len(numbers) > 100:
        numbers = sorted({1, *known, result.best, result.n_rounds} & set(numbers))
    numbers = _thinned(numbers, {1, result.best, result.n_rounds})
    alike = getattr(ranker, "criterion", None) is None  # judged by the expected gain itself
    steps = [
        _step(
            number,
            None,
            None,
            expected_gain=known.get(number),
            training=known.get(number) if alike else None,
            validation=judged.get(number),
        )
        for number in numbers
    ]
    stopped = [len(steps) - 1] if result.status == "stopped early" else []
    return _record(result, "round", steps, chosen=numbers.index(result.best), stopped=stopped)


def _of_epochs(ranker: Any, result: Any) -> dict[str, Any]:
    ours = getattr(ranker, "loss", None) == "sinkprop"
    best = next(i for i, epoch in enumerate(result.epochs) if epoch.chosen)
    places = _thinned(list(range(len(result.epochs))), {0, best, len(result.epochs) - 1})
    steps = [
        _step(
            i + 1,
            None,
            None,
            sigma=epoch.sigma,
            expected_gain=-epoch.loss if ours else None,
            training=epoch.training,
            validation=epoch.criterion,
        )
        for i, epoch in ((i, result.epochs[i]) for i in places)
    ]
    stopped = [len(steps) - 1] if result.status == "stopped early" else []
    return _record(result, "epoch", steps, chosen=places.index(best), stopped=stopped)


def _thinned(numbers: list[int], kept: set[int]) -> list[int]:
    every = -(-len(numbers) // _MAX_STEPS)
    return sorted({*numbers[::every], *(kept & set(numbers))})


def _in_words(setting: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} " + (f"{value:g}" if isinstance(value, int | float) else str(value))
        for name, value in setting.items()
    )


def weights_of(
    ranker: Any, *, rows: Queries, judging: Queries, held_out: bool = True
) -> dict[str, Any] | None:
    """What each feature counts, as shares: of the sum of absolute weights, or of all gains; None if unknown.

    rows      whose spread makes weights of features on different scales comparable
    judging   by which the importances of a network are measured; `held_out` if they took no part in testing
    """
    from sinkprop.baselines import FeatureRanker

    n_features = rows.n_features
    booster = getattr(ranker, "booster_", None)
    if booster is not None and (gains := _tree_gains(booster, n_features)) is not None:
        return _shares("importance", gains, "The share of all gains that the trees' splits on it made.")
    if isinstance(ranker, FeatureRanker):
        weights = np.zeros(n_features)
        weights[abs(ranker.feature_) - 1] = np.sign(ranker.feature_)
        return _shares(
            "weight", weights, "The one feature that ranks; negative where its least value is first."
        )
    if hasattr(ranker, "module_"):
        return _permuted(ranker, judging, held_out=held_out)
    coefficients = getattr(ranker, "coef_", None)
    if isinstance(coefficients, np.ndarray) and coefficients.shape in ((n_features,), (2, n_features)):
        if coefficients.ndim == 2:  # how a feature moves the middle of the distribution towards the top
            family = getattr(getattr(ranker, "relaxation_", None), "family", "")
            coefficients = coefficients[1] - coefficients[0] if family == "beta" else -coefficients[0]
        kind = getattr(getattr(ranker, "scaling_", None), "kind", "none")
        if kind == "none":
            coefficients = coefficients * rows.X.std(axis=0, dtype=np.float64)
        pairs = " Potentials of pairs are not in it." if len(getattr(ranker, "strengths_", ())) else ""
        return _shares(
            "weight",
            coefficients,
            f"The weight of {_SCALED[kind]}, as a share of the sum of all absolute weights. Positive: the "
            f"larger the feature, the higher the document.{pairs}",
        )
    importances = getattr(ranker, "feature_importances_", None)
    if isinstance(importances, np.ndarray) and importances.shape == (n_features,):
        return _shares(
            "importance", importances, "The importance that the estimator itself gives, as a share."
        )
    return None


_SCALED = {
    "standard": "the standardized feature",
    "query": "the feature scaled to 0 to 1 within its query",
    "none": "the feature times its standard deviation, as if it were standardized",
}


def _shares(kind: str, values: NDArray[Any], explanation: str) -> dict[str, Any]:
    total = float(np.abs(values).sum())
    shares = values / total if 0 < total < math.inf else np.zeros(len(values))
    return {"kind": kind, "explanation": explanation, "values": [_digits(x) for x in shares]}


def _tree_gains(booster: Any, n_features: int) -> Floats | None:
    if hasattr(booster, "feature_importance"):  # LightGBM
        return np.asarray(booster.feature_importance(importance_type="gain"), dtype=np.float64)
    if hasattr(booster, "get_score"):  # XGBoost, which names columns f0, f1, ... where they have no names
        gains = np.zeros(n_features)
        names = booster.feature_names or [f"f{i}" for i in range(n_features)]
        for name, gain in booster.get_score(importance_type="total_gain").items():
            gains[names.index(name)] = gain
        return gains
    return None


def _permuted(ranker: Any, judging: Queries, *, held_out: bool) -> dict[str, Any] | None:
    """What NDCG@10 loses when a feature's values change places among the documents of each query."""
    rng = np.random.default_rng(0)
    n_queries = max(1, min(judging.n_queries, _PERMUTED * judging.n_queries // judging.X.size))
    taken = np.sort(rng.permutation(judging.n_queries)[:n_queries])
    offsets, rows = judging.groups.offsets, _sorted_rows(judging)
    places = [rows[offsets[q] : offsets[q + 1]] for q in taken.tolist()]
    X, y = judging.X[np.concatenate(places)], judging.y[np.concatenate(places)]
    if X.size > 10 * _PERMUTED:  # a single query of very many documents
        return None
    codes = np.repeat(np.arange(len(places)), [len(own) for own in places])

    def ndcg(X: NDArray[Any]) -> float:
        return evaluate(y, predicted(ranker, X, codes), codes, "ndcg@10")["ndcg@10"]

    whole, losses = ndcg(X), np.zeros(judging.n_features)
    for _ in range(max(1, min(_TIMES, _PERMUTED // X.size))):
        order = np.lexsort((rng.random(len(y)), codes))  # the documents of each query in another order
        for feature in range(judging.n_features):
            other = X.copy()
            other[:, feature] = X[order, feature]
            losses[feature] += whole - ndcg(other)
    losses = losses.clip(0)
    which = "validation" if held_out else "test"
    return _shares(
        "importance",
        losses,
        f"What NDCG@10 of {len(places)} {which} queries loses when the feature's values change places among "
        "the documents of each query, as a share of all losses. Features that say the same share theirs.",
    )


def _digits(x: float) -> float:
    """Seven significant digits: more than any picture or table shows."""
    return float(f"{x:.7g}")


def _whole(x: float) -> float | int:
    return int(x) if x == int(x) else x
