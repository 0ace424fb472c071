"""Boosted trees: LambdaMART and its relatives, as LightGBM grows them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags

from sinkprop.baselines.base import TunedRanker
from sinkprop.baselines.pairwise_loss import PairwiseLogistic
from sinkprop.common.arguments import threads, whole
from sinkprop.common.plain_data import plain_data
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.tuning import Candidate
from sinkprop.gbdt.boosters import booster_of, booster_text, lightgbm_module, openmp_threads
from sinkprop.gbdt.growing.validation import check_row_weight, counting
from sinkprop.gbdt.parameters import first_names
from sinkprop.linear.problem import LinearProblem
from sinkprop.metrics.evaluation import evaluate
from sinkprop.objective.gains import NDCG, RankLinear

__all__ = ["LightGBMRanker"]


OBJECTIVES = ("lambdarank", "rank_xendcg", "ranknet", "sinkprop")
_OURS = ("ranknet", "sinkprop")  # whose derivatives LightGBM is given
_LONGEST = 10_000  # documents of a query that LightGBM's lambdarank takes
# what the ranker decides itself: LightGBM's name, and what to set instead
_DECIDED = {
    "objective": "objective=",
    "num_iterations": "n_estimators=",
    "num_leaves": "num_leaves=",
    "learning_rate": "learning_rate=",
    "min_data_in_leaf": "min_child_samples=",
    "num_threads": "n_threads=",
    "seed": "random_state=",
    "verbosity": "verbose=",
    "lambdarank_truncation_level": "truncation_level=",
    "metric": "selection=Selection(criterion=...)",
    "early_stopping_round": "n_estimators= and step=: the candidates choose the number of trees",
    "label_gain": "nothing: the gain of a label r is 2^r - 1",
    "deterministic": "nothing: the model is the same for any number of threads",
    "force_col_wise": "nothing: the model is the same for any number of threads",
    "force_row_wise": "nothing: the model is the same for any number of threads",
    "feature_pre_filter": "nothing: the candidates share the data",
}


class TreeRanker(TunedRanker):
    """A tuned ranker whose model is a booster, and how many of its trees."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _sizes(self) -> list[int]:
        """The numbers of trees that candidates have: every `step`-th, and the last."""
        most, every = whole("n_estimators", self.n_estimators, 1), whole("step", self.step, 1)
        return [*range(every, most, every), most]

    def _model(self) -> Any:
        return self.booster_, self.n_trees_


class LightGBMRanker(TreeRanker):
    """Boosted trees for ranking, grown by LightGBM: `pip install "sinkprop[lightgbm]"`.

    objective          "lambdarank"  LambdaMART: RankNet's gradients, each pair's times what its exchange
                                     changes in NDCG (Burges 2010)
                       "rank_xendcg" a cross-entropy that bounds NDCG (Bruch 2021)
                       "ranknet"     the pairwise logistic loss alone (Burges et al. 2005)
                       "sinkprop"    the expected gain, as `sinkprop.gbdt.BoostedRanker`, here with the same
                                     candidates as the others
    n_estimators       trees that are grown
    num_leaves, learning_rate, min_child_samples
                       as in LightGBM; one value of each, or several, of which every combination is tried
    step               a candidate is every this many trees
    truncation_level   of "lambdarank": pairs count that have a document among so many first ones
    loss               of "sinkprop": fields of `sinkprop.gbdt.TreeLoss`, as {"gain": "ndcg@10"}; None takes
                       its defaults
    params             further parameters of LightGBM, by its names or their aliases: {"lambda_l2": 1.0}
    selection          how one of the candidates is chosen: a `Selection`, or the name of its method
    normalization      "none" or "query" (see `SinkPropRanker`); any other changes nothing for trees
    metric             of `score`, under `convention`
    n_threads          see `expected_gain`. The model is the same whatever their number
    random_state       of splits, and of what "rank_xendcg" and "sinkprop" draw
    verbose            False: no progress line even on a terminal

    All else is LightGBM's default. X may hold NaN, for missing; what is nearer to 0 than 1e-35 is 0 to
    LightGBM. Labels are any numbers not below 0; "rank_xendcg" takes whole ones only. "lambdarank" takes
    queries of up to 10,000 documents.

    A row's weight is its own times its query's; LightGBM multiplies the row's derivatives by it. With
    "ranknet" a pair counts as the product of its rows' weights, times its query's. With "sinkprop" they mean
    what they mean to `expected_gain`.

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
        loss: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
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
        self.loss = loss
        self.params = params
        self.selection = selection
        self.normalization = normalization
        self.metric = metric
        self.convention = convention
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        check_row_weight(data)
        super()._fit(data, validation)

    def _checked(self) -> int:
        lightgbm_module("LightGBMRanker")
        if self.objective not in OBJECTIVES:
            raise ValueError(
                f"objective must be {' or '.join(map(repr, OBJECTIVES))}; got {self.objective!r}."
            )
        check_normalization(self.normalization)
        whole("truncation_level", self.truncation_level, 1)
        if self.loss is not None and self.objective != "sinkprop":
            raise ValueError(
                f"loss is for objective='sinkprop'; got {self.loss!r} with objective={self.objective!r}."
            )
        self._tree_loss(0)
        self._further()
        return len(self._grid()) * len(self._sizes())

    def _grid(self) -> list[dict[str, Any]]:
        """The combinations, few leaves of many documents first."""
        return grid(
            num_leaves=leaves(self.num_leaves),
            min_child_samples=one_or_more(
                "min_child_samples", self.min_child_samples, lambda n: whole("min_child_samples", n, 1)
            )[::-1],
            learning_rate=rates(self.learning_rate),
        )

    def _tree_loss(self, seed: int) -> Any:
        """How scores become derivatives with "sinkprop"; None with the others."""
        if self.objective != "sinkprop":
            return None
        from sinkprop.gbdt import TreeLoss

        given = {} if self.loss is None else self.loss
        known = [field.name for field in dataclasses.fields(TreeLoss)]
        for name in _mapping("loss", given):
            if name not in known:
                raise ValueError(f"loss has {name!r}; TreeLoss has {', '.join(known)}.{_hint(name, known)}")
        return TreeLoss(**{"seed": seed, **given})

    def _further(self) -> dict[str, Any]:
        """What LightGBM is given besides, by its own names."""
        if not self.params:
            return {}
        first = first_names()
        found: dict[str, Any] = {}
        for name, value in _mapping("params", self.params).items():
            own = first.get(name)
            if own is None:
                raise ValueError(
                    f"params has {name!r}, which LightGBM does not know.{_hint(name, list(first))}"
                )
            if own in _DECIDED:
                raise ValueError(f"params has {name!r}, which this ranker sets; set {_DECIDED[own]}.")
            found[own] = value
        return found

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        lightgbm = lightgbm_module("LightGBMRanker")
        data, n_trees = counting(problem.data), self._sizes()
        labels, gains = self._labels(data)
        shared = {
            "objective": "none" if self.objective in _OURS else self.objective,
            "metric": "none",
            "seed": seed % 2**31,
            "num_threads": openmp_threads(self.n_threads, len(data.y)),
            # One thread sums a feature's histogram, so that no rounding depends on their number.
            "deterministic": True,
            "force_col_wise": True,
            "feature_pre_filter": False,  # it depends on min_child_samples, and the grid shares the data
            "verbosity": -1,
            **self._further(),
        }
        if self.objective == "lambdarank":
            shared |= {"label_gain": gains, "lambdarank_truncation_level": self.truncation_level}
        rows = lightgbm.Dataset(
            data.X,
            labels,
            # our own functions know the queries, and have no limit to their length
            group=None if self.objective in _OURS else data.groups.sizes,
            weight=None if self.objective in _OURS else data.row_weight,
            params=shared,
        ).construct()
        # none where all are constant to LightGBM, which fails to change the objective then
        splittable = any(rows.feature_num_bin(feature) for feature in range(data.X.shape[1]))
        derivatives, value = self._functions(data, seed)
        for number, setting in enumerate(self._grid()):
            booster = lightgbm.Booster({**shared, **setting}, rows)
            grown = 0
            for i, size in enumerate(n_trees):
                for _ in range(grown, size if splittable else grown):
                    booster.update(fobj=derivatives)
                grown = size
                scores: list[Floats] = []
                ((_, _, at, _),) = booster.eval_train(_keeping(scores, value))
                # The trees there are: where no leaf can be split any more, fewer than were asked for.
                model = booster, booster.num_trees()
                yield Candidate({**setting, "trees": size}, model, at, (2 * number, i), scores[0])

    def _labels(self, data: TrainingSet) -> tuple[Floats, list[float]]:
        """Labels as LightGBM takes them, and the gain of each label from 0 on."""
        y = data.y
        if self.objective in _OURS:
            return y, []
        NDCG().gains(y)  # refuses labels whose gain is too large a number
        if self.objective == "rank_xendcg":
            odd = np.flatnonzero(y != np.floor(y))
            if len(odd):
                raise ValueError(
                    "labels must be whole numbers for objective='rank_xendcg', which rounds them down; there "
                    f"is {y[odd[0]]}. Take 'lambdarank', 'ranknet' or 'sinkprop'."
                )
            return y, []
        if data.groups.longest > _LONGEST:
            n_docs = data.groups.sizes
            query = data.groups.queries.tolist()[int(n_docs.argmax())]
            raise ValueError(
                f"query {query!r} has {n_docs.max()} documents; LightGBM's lambdarank takes {_LONGEST}. Give "
                "fewer of them, or objective='sinkprop', 'ranknet' or 'rank_xendcg'."
            )
        # LightGBM wants whole labels below 31, and uses of them their order and the gains in a table: the
        # numbers of the distinct labels do as well, with these labels' gains.
        distinct, codes = np.unique(y, return_inverse=True)
        return codes.astype(np.float64), NDCG().gains(distinct).tolist()

    def _functions(
        self, data: TrainingSet, seed: int
    ) -> tuple[Callable[..., tuple[Any, Any]] | None, Callable[..., tuple[str, float, bool]]]:
        """What LightGBM calls for the derivatives, None for its own, and what gives a candidate's value.

        The value is the mean loss of a pair for "ranknet", the mean expected gain for "sinkprop", and NDCG
        for the others, which have no loss.
        """
        if self.objective not in _OURS:

            def ndcg(scores: Floats, _: object) -> tuple[str, float, bool]:
                weight = data.query_weight
                found = evaluate(data.y, scores, data.codes, metrics=["ndcg"], query_weight=weight)
                return "ndcg", found["ndcg"], True

            return None, ndcg
        if self.objective == "sinkprop":
            return self._expected_gain(data, seed)
        loss = PairwiseLogistic(data.y, data.groups.offsets, data.sample_weight, data.query_weight)
        n_threads, n_pairs = threads(self.n_threads, len(data.y)), max(loss.n_pairs, 1)

        def derivatives(scores: Floats, _: object) -> tuple[Floats, Floats]:
            return loss.derivatives(scores, n_threads=n_threads)

        def mean_loss(scores: Floats, _: object) -> tuple[str, float, bool]:
            return "loss", float(loss.values(scores, n_threads=n_threads).sum()) / n_pairs, False

        return derivatives, mean_loss

    def _expected_gain(
        self, data: TrainingSet, seed: int
    ) -> tuple[Callable[..., tuple[Any, Any]], Callable[..., tuple[str, float, bool]]]:
        from sinkprop.gbdt import Derivatives

        of = Derivatives(
            self._tree_loss(seed),
            data.y,
            data.groups,
            sample_weight=data.sample_weight,
            query_weight=data.query_weight,
            n_threads=threads(self.n_threads, len(data.y)),
        )
        return lambda scores, _: of(scores), lambda scores, _: ("gain", of.value(scores), True)

    def _scores_of(self, model: Any, X: NDArray[Any], groups: Groups | None) -> Floats:
        booster, n_trees = model
        scores: Floats = booster.predict(
            X, num_iteration=n_trees, raw_score=True, num_threads=openmp_threads(self.n_threads, len(X))
        )
        return scores

    def _set_model(self, model: Any) -> None:
        booster, n_trees = model
        self._text = booster_text(booster, n_trees)
        # without the training data, and with no more trees than were chosen
        self.booster_ = booster_of(self._text, "LightGBMRanker")
        self.n_trees_ = self.booster_.num_trees()

    def _parameters_to_save(self) -> dict[str, Any]:
        saved = super()._parameters_to_save()
        for name in ("loss", "params"):
            given = getattr(self, name) or {}
            # a gain of the user's own functions is not data; predictions do not need it
            kept = {
                key: plain_data(value) for key, value in given.items() if not isinstance(value, RankLinear)
            }
            saved[name] = None if getattr(self, name) is None else kept
        return saved

    def _model_state(self) -> Any:
        return {"lightgbm": self._text.split("\n")}

    def _model_from(self, state: Any) -> Any:
        booster = booster_of("\n".join(state["lightgbm"]), "LightGBMRanker")
        if booster.num_feature() != self.n_features_in_:
            raise ValueError(f"trees of {booster.num_feature()} features for {self.n_features_in_}")
        return booster, booster.num_trees()


def _keeping(
    scores: list[Floats], value: Callable[..., tuple[str, float, bool]]
) -> Callable[..., tuple[str, float, bool]]:
    """The function, which keeps the scores that LightGBM calls it with."""

    def kept(own: Floats, rows: object) -> tuple[str, float, bool]:
        scores.append(own.copy())
        return value(own, rows)

    return kept


def check_normalization(name: str) -> None:
    """A ValueError for a normalization that does nothing to trees."""
    if name not in ("none", "query"):
        raise ValueError(
            "normalization must be 'none' or 'query': trees split by the order of values, which no other "
            f"changes; got {name!r}."
        )


def grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """Every combination of the values, the last name's changing first."""
    return [
        dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())
    ]


def one_or_more(name: str, given: Any, check: Callable[[Any], Any]) -> list[Any]:
    """The values given, one or several, each checked and once, in their order."""
    found = sorted({check(value) for value in _several(given)})
    if not found:
        raise ValueError(f"{name} must be a number, or several; got none.")
    return found


def leaves(given: Any) -> list[int]:
    return one_or_more("num_leaves", given, lambda n: whole("num_leaves", n, 2))


def rates(given: Any) -> list[float]:
    return one_or_more("learning_rate", given, lambda rate: positive("learning_rate", rate))


def positive(name: str, value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, or several; got {value!r}.")
    return float(value)


def _mapping(name: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must be a mapping from names to values; got {given!r}.")
    return given


def _hint(name: Any, known: Sequence[str]) -> str:
    close = get_close_matches(str(name), known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _several(values: Any) -> list[Any]:
    return (
        list(values)
        if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
        else [values]
    )
