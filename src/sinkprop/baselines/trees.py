"""Boosted trees: LambdaMART and its relatives, as LightGBM grows them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags

from sinkprop.arguments import threads, whole
from sinkprop.baselines.base import TunedRanker
from sinkprop.data import Groups
from sinkprop.gains import NDCG
from sinkprop.linear import LinearProblem, TrainingSet
from sinkprop.metrics import evaluate
from sinkprop.pairwise import PairwiseLogistic
from sinkprop.selection import Selection
from sinkprop.tuning import Candidate

__all__ = ["LightGBMRanker"]

Floats = NDArray[np.float64]

OBJECTIVES = ("lambdarank", "rank_xendcg", "ranknet")
_LONGEST = 10_000  # documents of a query that LightGBM's lambdarank takes


class LightGBMRanker(TunedRanker):
    """Boosted trees for ranking, grown by LightGBM: `pip install "sinkprop[lightgbm]"`.

    objective          "lambdarank"  LambdaMART: RankNet's gradients, each pair's times what its exchange
                                     changes in NDCG (Burges 2010)
                       "rank_xendcg" a cross-entropy that bounds NDCG (Bruch 2021)
                       "ranknet"     the pairwise logistic loss alone (Burges et al. 2005)
    n_estimators       trees that are grown
    num_leaves, learning_rate, min_child_samples
                       as in LightGBM; one value of each, or several, of which every combination is tried
    step               a candidate is every this many trees
    truncation_level   of "lambdarank": pairs count that have a document among so many first ones
    selection          how one of the candidates is chosen: a `Selection`, or the name of its method
    normalization      "none" or "query" (see `SinkPropRanker`); any other changes nothing for trees
    metric             of `score`, under `convention`
    n_threads          see `expected_gain`. The model is the same whatever their number
    random_state       of splits, and of what "rank_xendcg" draws
    verbose            False: no progress line even on a terminal

    All else is LightGBM's default. X may hold NaN, for missing; what is nearer to 0 than 1e-35 is 0 to
    LightGBM. Labels are any numbers not below 0; "rank_xendcg" takes whole ones only. "lambdarank" takes
    queries of up to 10,000 documents.

    A row's weight is its own times its query's; LightGBM multiplies the row's derivatives by it. With
    "ranknet" a pair counts as the product of its rows' weights, times its query's.

    After `fit`: `booster_`, the `lightgbm.Booster` with the trees that were chosen, `n_trees_`, how many they
    are, and `fit_result_`, the record of the choice.
    """

    def __init__(
        self,
        objective: str = "lambdarank",
        *,
        n_estimators: int = 300,
        num_leaves: int | Sequence[int] = (4, 10, 31),
        learning_rate: float | Sequence[float] = 0.05,
        min_child_samples: int | Sequence[int] = (100, 20),
        step: int = 10,
        truncation_level: int = 30,
        selection: str | Selection = "validation",
        normalization: str = "none",
        metric: str = "ndcg@10",
        convention: str = "letor",
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.objective = objective
        self.n_estimators = n_estimators
        self.num_leaves = num_leaves
        self.learning_rate = learning_rate
        self.min_child_samples = min_child_samples
        self.step = step
        self.truncation_level = truncation_level
        self.selection = selection
        self.normalization = normalization
        self.metric = metric
        self.convention = convention
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        if data.row_weight is not None and not data.row_weight.sum() > 0:
            raise ValueError("sample_weight must have a sum above 0; every weight is zero.")
        super()._fit(data, validation)

    def _checked(self) -> int:
        _lightgbm()
        if self.objective not in OBJECTIVES:
            raise ValueError(
                f"objective must be {' or '.join(map(repr, OBJECTIVES))}; got {self.objective!r}."
            )
        if self.normalization not in ("none", "query"):
            raise ValueError(
                "normalization must be 'none' or 'query': trees split by the order of values, which no other "
                f"changes; got {self.normalization!r}."
            )
        whole("truncation_level", self.truncation_level, 1)
        return len(self._grid()) * len(self._sizes())

    def _grid(self) -> list[dict[str, Any]]:
        """The combinations, few leaves of many documents first."""
        leaves = sorted({whole("num_leaves", n, 2) for n in _several(self.num_leaves)})
        rates = sorted({_rate(rate) for rate in _several(self.learning_rate)})
        least = sorted({whole("min_child_samples", n, 1) for n in _several(self.min_child_samples)})
        for name, values in (("num_leaves", leaves), ("learning_rate", rates), ("min_child_samples", least)):
            if not values:
                raise ValueError(f"{name} must be a number, or several; got none.")
        return [
            {"num_leaves": n, "min_child_samples": m, "learning_rate": rate}
            for n, m, rate in itertools.product(leaves, least[::-1], rates)
        ]

    def _sizes(self) -> list[int]:
        """The numbers of trees that candidates have."""
        most, step = whole("n_estimators", self.n_estimators, 1), whole("step", self.step, 1)
        return [*range(step, most, step), most]

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        lightgbm = _lightgbm()
        data, sizes = _counting(problem.data), self._sizes()
        labels, gains = self._labels(data)
        shared = {
            "objective": "none" if self.objective == "ranknet" else self.objective,
            "metric": "none",
            "seed": seed % 2**31,
            "num_threads": threads(self.n_threads, len(data.y)),
            # One thread sums a feature's histogram, so that no rounding depends on their number.
            "deterministic": True,
            "force_col_wise": True,
            "feature_pre_filter": False,  # it depends on min_child_samples, and the grid shares the data
            "verbosity": -1,
        }
        if self.objective == "lambdarank":
            shared |= {"label_gain": gains, "lambdarank_truncation_level": self.truncation_level}
        rows = lightgbm.Dataset(
            data.X,
            labels,
            # the pairs' own function knows the queries, and has no limit to their length
            group=None if self.objective == "ranknet" else np.diff(data.groups.offsets),
            weight=None if self.objective == "ranknet" else data.row_weight,
            params=shared,
        ).construct()
        # none where all are constant to LightGBM, which fails to change the objective then
        splittable = any(rows.feature_num_bin(feature) for feature in range(data.X.shape[1]))
        derivatives, value = self._functions(data)
        for number, setting in enumerate(self._grid()):
            booster = lightgbm.Booster({**shared, **setting}, rows)
            grown = 0
            for i, size in enumerate(sizes):
                for _ in range(grown, size if splittable else grown):
                    booster.update(fobj=derivatives)
                grown = size
                ((_, _, at, _),) = booster.eval_train(value)
                # The trees there are: where no leaf can be split any more, fewer than were asked for.
                model = booster, booster.num_trees()
                yield Candidate({**setting, "trees": size}, model, at, (2 * number, i))

    def _labels(self, data: TrainingSet) -> tuple[Floats, list[float]]:
        """Labels as LightGBM takes them, and the gain of each label from 0 on."""
        y = data.y
        if self.objective == "ranknet":
            return y, []
        NDCG().gains(y)  # refuses labels whose gain is too large a number
        if self.objective == "rank_xendcg":
            odd = np.flatnonzero(y != np.floor(y))
            if len(odd):
                raise ValueError(
                    "labels must be whole numbers for objective='rank_xendcg', which rounds them down; there "
                    f"is {y[odd[0]]}. Take 'lambdarank' or 'ranknet'."
                )
            return y, []
        if data.groups.longest > _LONGEST:
            sizes = np.diff(data.groups.offsets)
            query = data.groups.queries.tolist()[int(sizes.argmax())]
            raise ValueError(
                f"query {query!r} has {sizes.max()} documents; LightGBM's lambdarank takes {_LONGEST}. Give "
                "fewer of them, or objective='ranknet' or 'rank_xendcg'."
            )
        # LightGBM wants whole labels below 31, and uses of them their order and the gains in a table: the
        # numbers of the distinct labels do as well, with these labels' gains.
        distinct, codes = np.unique(y, return_inverse=True)
        return codes.astype(np.float64), NDCG().gains(distinct).tolist()

    def _functions(
        self, data: TrainingSet
    ) -> tuple[Callable[..., tuple[Floats, Floats]] | None, Callable[..., tuple[str, float, bool]]]:
        """What LightGBM calls for the derivatives, None for its own, and what gives a candidate's value.

        The value is the mean loss of a pair for "ranknet", and NDCG for the others, which have no loss.
        """
        if self.objective != "ranknet":

            def ndcg(scores: Floats, _: object) -> tuple[str, float, bool]:
                weight = data.query_weight
                found = evaluate(data.y, scores, data.codes, metrics=["ndcg"], query_weight=weight)
                return "ndcg", found["ndcg"], True

            return None, ndcg
        loss = PairwiseLogistic(data.y, data.groups.offsets, data.sample_weight, data.query_weight)
        n_threads, n_pairs = threads(self.n_threads, len(data.y)), max(loss.n_pairs, 1)

        def derivatives(scores: Floats, _: object) -> tuple[Floats, Floats]:
            return loss.derivatives(scores, n_threads=n_threads)

        def mean_loss(scores: Floats, _: object) -> tuple[str, float, bool]:
            return "loss", float(loss.values(scores, n_threads=n_threads).sum()) / n_pairs, False

        return derivatives, mean_loss

    def _scores_of(self, model: Any, X: NDArray[Any], groups: Groups | None) -> Floats:
        booster, n_trees = model
        scores: Floats = booster.predict(
            X, num_iteration=n_trees, raw_score=True, num_threads=threads(self.n_threads, len(X))
        )
        return scores

    def _set_model(self, model: Any) -> None:
        booster, n_trees = model
        self._text = _text(booster, n_trees)
        # without the training data, and with no more trees than were chosen
        self.booster_ = _booster(self._text)
        self.n_trees_ = self.booster_.num_trees()

    def _model(self) -> Any:
        return self.booster_, self.n_trees_

    def _model_state(self) -> Any:
        return {"lightgbm": self._text.split("\n")}

    def _model_from(self, state: Any) -> Any:
        booster = _booster("\n".join(state["lightgbm"]))
        if booster.num_feature() != self.n_features_in_:
            raise ValueError(f"trees of {booster.num_feature()} features for {self.n_features_in_}")
        return booster, booster.num_trees()


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise ImportError('LightGBMRanker needs lightgbm: pip install "sinkprop[lightgbm]"') from error
    return lightgbm


def _counting(data: TrainingSet) -> TrainingSet:
    """The queries of some weight: documents of others would count in leaves, and where features are cut."""
    if data.query_weight is None or data.query_weight.all() or not data.query_weight.any():
        return data
    return data.select(np.flatnonzero(data.query_weight))


def _text(booster: Any, n_trees: int) -> str:
    """The model as LightGBM writes it, with the same bytes for any number of threads."""
    text: str = booster.model_to_string(num_iteration=n_trees)
    return re.sub(r"^\[num_threads: \d+\]$", "[num_threads: 0]", text, flags=re.MULTILINE)


def _booster(text: str) -> Any:
    return _lightgbm().Booster(model_str=text)


def _several(values: Any) -> list[Any]:
    return (
        list(values)
        if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
        else [values]
    )


def _rate(rate: Any) -> float:
    if not isinstance(rate, Real) or isinstance(rate, bool) or not 0 < float(rate) < math.inf:
        raise ValueError(f"learning_rate must be a finite number above 0, or several; got {rate!r}.")
    return float(rate)
