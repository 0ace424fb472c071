"""Boosted trees grown by LightGBM: LambdaMART and related objectives."""

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

from sinkprop.baselines.base import TunedRanker
from sinkprop.baselines.pairwise_loss import PairwiseLogistic
from sinkprop.common.arguments import one_of, threads, whole
from sinkprop.common.plain_data import plain_data
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.categorical_inputs import CategoricalInputs
from sinkprop.estimator.criteria import gain_under
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.tuning import Candidate
from sinkprop.gbdt.boosters import booster_of, booster_text, checked_booster, lightgbm_module
from sinkprop.gbdt.growing.validation import check_row_weight, counting
from sinkprop.gbdt.parameters import check_no_files, first_names, names_a_file, one_order_of_sums
from sinkprop.gbdt.threads import adapting_threads, most_threads, openmp_threads
from sinkprop.linear.problem import LinearProblem
from sinkprop.metrics.evaluation import evaluate
from sinkprop.objective.gains import NDCG, Gain

__all__ = ["LightGBMRanker"]


OBJECTIVES = ("lambdarank", "rank_xendcg", "ranknet", "sinkprop")
_OURS = ("ranknet", "sinkprop")  # objectives whose derivatives sinkprop computes for LightGBM
_LONGEST = 10_000  # largest number of documents per query that LightGBM's lambdarank takes
# Parameters of LightGBM that the ranker sets itself, and which parameter of the ranker to set instead.
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


class TreeRanker(CategoricalInputs, TunedRanker):
    """A `TunedRanker` whose model is a booster (a sequence of trees) and the number of its trees to use."""

    def _sizes(self) -> list[int]:
        """Numbers of trees of the candidates: the multiples of `step`, and `n_estimators`."""
        most, every = whole("n_estimators", self.n_estimators, 1), whole("step", self.step, 1)
        return [*range(every, most, every), most]

    def _grid(self) -> list[dict[str, Any]]:
        """Combinations of hyperparameters, simplest trees first."""
        raise NotImplementedError

    @property
    def explainable(self) -> bool:
        """Whether `explain` works, and `predict` with `pred_contrib=True`."""
        return True

    def _checked(self) -> int:
        if self.normalization not in ("none", "query"):
            raise ValueError(
                "normalization must be 'none' or 'query': trees split by the order of values, which others "
                f"do not change; got {self.normalization!r}."
            )
        return len(self._grid()) * len(self._sizes())

    def _candidate(
        self, setting: dict[str, Any], model: Any, data: TrainingSet, position: tuple[int, int]
    ) -> Candidate:
        """The candidate of a model, whose value is the NDCG of the training queries."""
        scores = self._scores_of(model, data.X, None)
        at = evaluate(data.y, scores, data.codes, metrics=["ndcg"], query_weight=data.query_weight)
        return Candidate(setting, model, at["ndcg"], position, scores)

    def _model(self) -> Any:
        return self.booster_, self.n_trees_

    def _booster_of(self, text: str) -> Any:
        """Make a booster from the text of its trees, which the library wrote in this process."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        # the text of the trees is enough: a pickled booster would not guard against forks
        return {name: value for name, value in super().__getstate__().items() if name != "booster_"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_text" in state:
            self.booster_ = self._booster_of(self._text)

    def _fitted_state(self) -> dict[str, Any]:
        return {**super()._fitted_state(), **(self._category_state() if self._categories.values else {})}

    def _restore(self, state: dict[str, Any]) -> None:
        if "categories" in state:  # optional: a ranker without categorical features writes none
            self._restore_categories(state)
        super()._restore(state)


class LightGBMRanker(TreeRanker):
    """Boosted trees for ranking, grown by LightGBM.

    It needs LightGBM: `pip install "sinkprop[lightgbm]"`. Every combination of `num_leaves`, `learning_rate`
    and `min_child_samples` is tried, at several numbers of trees, and validation queries select one of these
    candidates.

    Parameters
    ----------
    objective : {"lambdarank", "rank_xendcg", "ranknet", "sinkprop"}, default "lambdarank"
        Training objective. "lambdarank" is LambdaMART: RankNet's gradients, with each pair weighted by the
        change in NDCG if the two documents swap places (Burges 2010). "rank_xendcg" is a cross-entropy that
        bounds NDCG (Bruch 2021). "ranknet" is the pairwise logistic loss alone (Burges et al. 2005).
        "sinkprop" is the expected gain, as in `sinkprop.gbdt.BoostedRanker`, with the same candidates as the
        other objectives.
    n_estimators : int, default 300
        Number of trees to grow.
    num_leaves : int or sequence of int, default (4, 10, 31)
        Maximum number of leaves per tree; one value, or several to try.
    learning_rate : float or sequence of float, default 0.05
        Learning rate; one value, or several to try.
    min_child_samples : int or sequence of int, default (100, 20)
        Minimum number of documents per leaf; one value, or several to try.
    step : int, default 10
        Number of trees between candidates.
    truncation_level : int, default 30
        For "lambdarank": only pairs with a document among this many first ranks count.
    loss : mapping, optional
        For "sinkprop": fields of `sinkprop.gbdt.TreeLoss`, such as {"gain": "ndcg@10"}. None uses its
        defaults.
    params : mapping, optional
        Further parameters of LightGBM, by their names or aliases, such as {"lambda_l2": 1.0}. All others have
        LightGBM's defaults.
    selection : str or Selection, default "validation"
        How the candidate is chosen: a `Selection`, or the name of its method.
    normalization : {"none", "query"}, default "none"
        Feature scaling; see `SinkPropRanker`. Other scalings would not change the trees.
    metric : str, default "ndcg@10"
        Metric that `score` computes.
    convention : str, default "standard"
        Convention of the metrics, and discount of NDCG in `loss` unless its gain states one; see `evaluate`.
    n_threads : int, optional
        Number of threads. None uses all available CPU cores, or the number in `SINKPROP_NUM_THREADS`. Does
        not change the model.
    random_state : int, optional, default 0
        Seed of splits and of the random draws of "rank_xendcg" and "sinkprop".
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    booster_ : lightgbm.Booster
        The chosen trees.
    n_trees_ : int
        Number of chosen trees.
    categories_ : dict
        Categories of each categorical feature, {name: categories}. The code of a category is its position.
    fit_result_ : TuningResult
        Record of every candidate.
    scaling_ : Scaling
        Feature scaling of the model.

    Notes
    -----
    X may hold NaN for missing values. Columns of a data frame with a categorical type, and features of
    `Queries` and stored sets that have categories, are categorical features. LightGBM treats values between
    -1e-35 and 1e-35 as 0. Labels may be any numbers, 0 or more; "rank_xendcg" takes whole numbers only.
    "lambdarank" takes queries of up to 10,000 documents.

    The weight of a row is its `sample_weight` times the weight of its query, and LightGBM multiplies the
    row's derivatives by it. With "ranknet", the weight of a pair is the product of the `sample_weight` of its
    rows, times the weight of their query. With "sinkprop", weights have the same meaning as for
    `expected_gain`.
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
        convention: str = "standard",
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
        one_of("objective", self.objective, OBJECTIVES)
        whole("truncation_level", self.truncation_level, 1)
        if self.loss is not None and self.objective != "sinkprop":
            raise ValueError(
                f"loss is for objective='sinkprop'; got {self.loss!r} with objective={self.objective!r}."
            )
        self._tree_loss(0)
        self._further()
        return super()._checked()

    def _grid(self) -> list[dict[str, Any]]:
        """Combinations of hyperparameters, simplest trees first: few leaves, with many documents per leaf."""
        return grid(
            num_leaves=leaves(self.num_leaves),
            min_child_samples=one_or_more(
                "min_child_samples", self.min_child_samples, lambda n: whole("min_child_samples", n, 1)
            )[::-1],
            learning_rate=rates(self.learning_rate),
        )

    def _tree_loss(self, seed: int) -> Any:
        """The `TreeLoss` of the objective "sinkprop"; None for the other objectives."""
        if self.objective != "sinkprop":
            return None
        from sinkprop.gbdt import TreeLoss

        given = {} if self.loss is None else self.loss
        known = [field.name for field in dataclasses.fields(TreeLoss)]
        for name in _mapping("loss", given):
            if name not in known:
                raise ValueError(f"loss has {name!r}; TreeLoss has {', '.join(known)}.{_hint(name, known)}")
        gain = gain_under(given.get("gain", TreeLoss.gain), self.convention)
        return TreeLoss(**{"seed": seed, **given, "gain": gain})

    def _further(self) -> dict[str, Any]:
        """The user's further parameters of LightGBM, with aliases replaced by LightGBM's main names.

        Raises a ValueError for a parameter that LightGBM does not know or that this ranker sets itself.
        """
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
        most = most_threads(self.n_threads, len(data.y))
        shared = {
            "objective": "none" if self.objective in _OURS else self.objective,
            "metric": "none",
            "seed": seed % 2**31,
            "num_threads": most,
            # One thread sums each feature's histogram, so rounding does not depend on the number of threads.
            "deterministic": True,
            "force_col_wise": True,
            **one_order_of_sums(most),
            # The filter would drop features that no tree can use at one value of min_child_samples. The data
            # are prepared once, for all values to try.
            "feature_pre_filter": False,
            "verbosity": -1,
            **self._further(),
        }
        if self.objective == "lambdarank":
            shared |= {"label_gain": gains, "lambdarank_truncation_level": self.truncation_level}
        rows = lightgbm.Dataset(
            data.X,
            labels,
            # With sinkprop's own objectives, LightGBM needs neither queries nor weights: sinkprop uses them
            # to compute the derivatives, and does not limit the size of queries.
            group=None if self.objective in _OURS else data.groups.sizes,
            weight=None if self.objective in _OURS else data.row_weight,
            categorical_feature=list(self._categories.unordered),
            params=shared,
        ).construct()
        # False if LightGBM treats all features as constant. Then no tree is grown, because LightGBM would
        # raise an error when it is given the derivatives.
        splittable = any(rows.feature_num_bin(feature) for feature in range(data.X.shape[1]))
        derivatives, value = self._functions(data, seed)
        with adapting_threads(self.n_threads, most) as adapt:
            for number, setting in enumerate(self._grid()):
                booster = lightgbm.Booster({**shared, **setting}, rows)
                grown = 0
                for i, size in enumerate(n_trees):
                    for _ in range(grown, size if splittable else grown):
                        adapt()
                        booster.update(fobj=derivatives)
                    grown = size
                    scores: list[Floats] = []
                    ((_, _, at, _),) = booster.eval_train(_keeping(scores, value))
                    # There are fewer trees than asked for if no leaf could be split further.
                    model = booster, booster.num_trees()
                    yield Candidate({**setting, "trees": size}, model, at, (2 * number, i), scores[0])

    def _labels(self, data: TrainingSet) -> tuple[Floats, list[float]]:
        """Return the labels to give to LightGBM, and a table of their gains.

        For "lambdarank", the labels are replaced by whole numbers 0, 1, ..., and entry i of the table is the
        gain of number i. For the other objectives, the labels stay as they are, and the table is empty.
        """
        y = data.y
        if self.objective in _OURS:
            return y, []
        NDCG().gains(y)  # raises an error if the gain of a label is too large
        if self.objective == "rank_xendcg":
            odd = np.flatnonzero(y != np.floor(y))
            if len(odd):
                raise ValueError(
                    "labels must be whole numbers for objective='rank_xendcg', which rounds them down; got "
                    f"{y[odd[0]]}. Use 'lambdarank', 'ranknet' or 'sinkprop'."
                )
            return y, []
        if data.groups.longest > _LONGEST:
            n_docs = data.groups.sizes
            query = data.groups.queries.tolist()[int(n_docs.argmax())]
            raise ValueError(
                f"query {query!r} has {n_docs.max()} documents; LightGBM's lambdarank takes at most "
                f"{_LONGEST}. Give fewer of them, or objective='sinkprop', 'ranknet' or 'rank_xendcg'."
            )
        # LightGBM needs whole labels below 31, and uses only their order and a table of gains. So it gets
        # indices of the sorted distinct labels in place of the labels, and a table of these labels' gains.
        distinct, codes = np.unique(y, return_inverse=True)
        return codes.astype(np.float64), NDCG().gains(distinct).tolist()

    def _functions(
        self, data: TrainingSet, seed: int
    ) -> tuple[Callable[..., tuple[Any, Any]] | None, Callable[..., tuple[str, float, bool]]]:
        """Return two functions for LightGBM to call during training.

        The first computes the derivatives of the objective; it is None for LightGBM's own objectives. The
        second computes a candidate's value on the training queries: the mean loss per pair for "ranknet", the
        mean expected gain for "sinkprop", and NDCG for the other objectives.
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

    def _contributions(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        n_threads = openmp_threads(self.n_threads, len(X))
        found = self.booster_.predict(X, pred_contrib=True, num_threads=n_threads)
        return np.asarray(found, dtype=np.float64)

    def _set_model(self, model: Any) -> None:
        booster, n_trees = model
        self._text = booster_text(booster, n_trees)
        # a copy without the training data, with only the chosen trees
        self.booster_ = self._booster_of(self._text)
        self.n_trees_ = self.booster_.num_trees()

    def _booster_of(self, text: str) -> Any:
        return booster_of(text, "LightGBMRanker")

    def _saved_params(self) -> dict[str, Any]:
        saved = super()._saved_params()
        if self.params is not None:
            saved["params"] = {name: value for name, value in self.params.items() if not names_a_file(name)}
        return saved

    def _parameters_to_save(self) -> dict[str, Any]:
        saved = super()._parameters_to_save()
        if self.loss is not None:
            # a user-defined gain cannot be saved; predictions do not need it
            own = {k: v for k, v in self.loss.items() if not (isinstance(v, Gain) and v.text is None)}
            saved["loss"] = plain_data(own)
        return saved

    @classmethod
    def _check_saved(cls, parameters: dict[str, Any]) -> None:
        check_no_files(parameters.get("params") or {})

    def _model_state(self) -> Any:
        return {"lightgbm": self._text.split("\n")}

    def _model_from(self, state: Any) -> Any:
        booster = checked_booster("\n".join(state["lightgbm"]), self.n_features_in_, "LightGBMRanker")
        return booster, booster.num_trees()


def _keeping(
    scores: list[Floats], value: Callable[..., tuple[str, float, bool]]
) -> Callable[..., tuple[str, float, bool]]:
    """Wrap `value` so that each call also appends to `scores` a copy of the scores that LightGBM passes."""

    def kept(own: Floats, rows: object) -> tuple[str, float, bool]:
        scores.append(own.copy())
        return value(own, rows)

    return kept


def grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """Every combination of the values, as {name: value}. The values of the last name change fastest."""
    return [
        dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())
    ]


def one_or_more(name: str, given: Any, check: Callable[[Any], Any]) -> list[Any]:
    """Return the given value or values as a list without duplicates, in increasing order.

    `check` checks and returns a single value. Raises a ValueError if there are no values.
    """
    found = sorted({check(value) for value in several(given)})
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


def several(values: Any) -> list[Any]:
    """Return the value or values of a parameter as a list."""
    return (
        list(values)
        if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
        else [values]
    )
