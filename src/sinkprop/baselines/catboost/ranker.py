"""Boosted trees grown by CatBoost, with as many candidates as `LightGBMRanker`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.baselines.catboost.oblivious import booster_of, trees_of
from sinkprop.baselines.trees import TreeRanker, grid, one_or_more, positive, several
from sinkprop.common.arguments import one_of, whole
from sinkprop.common.forks import guard_forked_process, guarded_import
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import seed_of
from sinkprop.estimator.criteria import mean_criterion, metric_criterion
from sinkprop.estimator.held_out import HeldOut
from sinkprop.estimator.selection import Selection, as_selection
from sinkprop.estimator.splits import divide
from sinkprop.estimator.tuning import Candidate
from sinkprop.gbdt.growing.validation import counting
from sinkprop.gbdt.threads import openmp_threads
from sinkprop.linear.problem import LinearProblem
from sinkprop.serving.tree_files.catboost_trees import Trees, checked_trees, text_of

__all__ = ["CatBoostRanker"]


OBJECTIVES = {
    "yetirank": "YetiRank",
    "yetirank-ndcg": "YetiRank:mode=NDCG",
    "queryrmse": "QueryRMSE",
    "stochasticrank": "StochasticRank:metric=NDCG",
}
_LARGEST = float(np.finfo(np.float32).max)
_DEEPEST = 16
# CatBoost samples documents by their gradients, and raises an error with these words if all of them are 0.
_NO_GRADIENT = "Too few sampling units"


class CatBoostRanker(TreeRanker):
    """Boosted trees for ranking, grown by CatBoost.

    It needs CatBoost: `pip install "sinkprop[catboost]"`. Every combination of `depth`, `l2_leaf_reg` and
    `learning_rate` is tried, at several numbers of trees, and validation queries select one of these
    candidates. All other parameters have CatBoost's defaults.

    Parameters
    ----------
    objective : {"yetirank", "yetirank-ndcg", "queryrmse", "stochasticrank"}, default "yetirank"
        Training objective: CatBoost's YetiRank, YetiRank:mode=NDCG, QueryRMSE or StochasticRank:metric=NDCG.
    n_estimators : int, default 300
        Number of trees to grow.
    depth : int or sequence of int, default (4, 6, 8)
        Depth of the trees, at most 16; one value, or several to try. CatBoost's default is 6.
    l2_leaf_reg : float, None or sequence of these, default (10.0, None)
        L2 penalty on the values of leaves; one value, or several to try. None is CatBoost's default, which
        depends on the objective.
    learning_rate : float, None or sequence of these, default 0.05
        Learning rate; one value, or several to try. None is CatBoost's default, 0.03 for these objectives.
    step : int, optional, default 10
        Number of trees between candidates. None leaves the number of trees to CatBoost, which takes the
        number at which its own metric is best on the validation queries (use_best_model). There can be only
        one combination of the other parameters then.
    selection : str or Selection, default "validation"
        How the candidate is chosen: a `Selection`, or the name of its method. With `step=None`, it only says
        how many queries to hold out if there is no `eval_set`.
    normalization : {"none", "query"}, default "none"
        Feature scaling; see `SinkPropRanker`. Other scalings would not change the trees.
    metric : str, default "ndcg@10"
        Metric that `score` computes.
    convention : str, default "standard"
        Convention of the metrics; see `evaluate`.
    n_threads : int, optional
        Number of threads. None uses all available CPU cores, or the number in `SINKPROP_NUM_THREADS`. Does
        not change the model.
    random_state : int, optional, default 0
        Seed of splits, also passed to CatBoost.
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    booster_ : catboost.CatBoost
        The chosen trees. Each category of a categorical feature has a column of its own.
    n_trees_ : int
        Number of chosen trees; 0 if there was nothing to learn, because no feature varies or no query has
        documents with different labels.
    trees_ : Trees
        The chosen trees as plain numbers.
    columns_ : list of tuple
        The feature of each column of `trees_`, by its index, and its category, by its code: (feature, code).
        The code is None if the feature is not categorical.
    feature_importances_ : array of shape (D,)
        CatBoost's importance of each feature, PredictionValuesChange; they sum to 100.
    categories_ : dict
        Categories of each categorical feature, {name: categories}. The code of a category is its position.
    fit_result_ : TuningResult
        Record of every candidate.
    scaling_ : Scaling
        Feature scaling of the model.

    Notes
    -----
    X may hold NaN for missing values, which CatBoost takes as smaller than all others. CatBoost computes in
    single precision; values beyond its range are replaced by its largest numbers. Columns of a data frame
    with a categorical type, and features of `Queries` and stored sets that have categories, are categorical
    features. A tree asks for one category at a time (one-hot encoding). CatBoost's own statistics of the
    labels of a category are not used, because they cannot be checked in a model file. Labels may be any
    numbers from 0 to below 960. "stochasticrank" takes time that is quadratic in the length of a query, half
    a minute per tree for 10,000 documents; the other objectives take linear time. CatBoost weights queries,
    not rows: row weights that are not all equal are an error.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkprop.baselines import CatBoostRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(200, 3)), np.repeat(np.arange(20), 10)
    >>> y = (X[:, 0] * X[:, 1] > 0.3).astype(float)
    >>> ranker = CatBoostRanker(n_estimators=40, depth=3, l2_leaf_reg=None, step=20, verbose=False)
    >>> bool(ranker.fit(X, y, qid=qid).score(X, y, qid=qid) > 0.8)
    True
    """

    no_row_weights = "CatBoost weighs queries, not documents"

    def __init__(
        self,
        objective: str = "yetirank",
        *,
        n_estimators: int = 300,
        depth: int | Sequence[int] = (4, 6, 8),
        l2_leaf_reg: float | Sequence[float | None] | None = (10.0, None),
        learning_rate: float | Sequence[float | None] | None = 0.05,
        step: int | None = 10,
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
        self.depth = depth
        self.l2_leaf_reg = l2_leaf_reg
        self.learning_rate = learning_rate
        self.step = step
        self.selection = selection
        self.normalization = normalization
        self.metric = metric
        self.convention = convention
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _checked(self) -> int:
        _catboost()
        one_of("objective", self.objective, tuple(OBJECTIVES))
        n_settings = len(self._grid())
        if self.step is None and n_settings > 1:
            raise ValueError(
                f"step=None takes one combination of depth, l2_leaf_reg and learning_rate; got {n_settings}. "
                "Give one value of each, or a step."
            )
        return super()._checked()

    def _sizes(self) -> list[int]:
        return [whole("n_estimators", self.n_estimators, 1)] if self.step is None else super()._sizes()

    def _grid(self) -> list[dict[str, Any]]:
        """Combinations of hyperparameters, simplest trees first: shallow, with a large penalty."""
        return grid(
            depth=one_or_more("depth", self.depth, _depth),
            l2_leaf_reg=_some("l2_leaf_reg", self.l2_leaf_reg)[::-1],
            learning_rate=_some("learning_rate", self.learning_rate),
        )

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        self._held_out: TrainingSet | None = None
        if self.step is not None:
            super()._fit(data, validation)
            return
        self._checked()
        selection = dataclasses.replace(as_selection(self.selection), method="validation")
        division = divide(data, validation, selection, np.random.default_rng([seed_of(self.random_state), 0]))
        ((_, self._held_out),) = division.validation
        try:
            super()._fit(division.parts[0], None)
            criterion_of, name = metric_criterion(selection.criterion or self._criterion(), self.convention)
            scores = self._score_rows(self._held_out.X, self._held_out.groups)
            value = mean_criterion(criterion_of, self._held_out, scores)
            self._keep_held_out(HeldOut(scores, self._held_out.y, self._held_out.groups.sizes))
            (trial,) = self.fit_result_.trials
            self.fit_result_ = dataclasses.replace(
                self.fit_result_,
                criterion=name,
                validated_on=division.validated_on,
                trials=(dataclasses.replace(trial, criterion=value),),
            )
        finally:
            self._held_out = None

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        data = counting(problem.data)
        for number, setting in enumerate(self._grid()):
            booster = self._grown(data, setting, seed)
            for i, size in enumerate(self._sizes()):
                grown = 0 if booster is None else min(size, int(booster.tree_count_))
                named = {name: "default" if value is None else value for name, value in setting.items()}
                named["trees"] = size if self.step is not None else grown
                yield self._candidate(named, (booster, grown), data, (2 * number, i))

    def _grown(self, data: TrainingSet, setting: dict[str, Any], seed: int) -> Any:
        """Return a fitted `catboost.CatBoost`, or None if there is nothing to learn."""
        columns = self._columns(data.X)
        if not _can_learn(columns, data):
            return None
        catboost = _catboost()
        parameters = {
            "loss_function": OBJECTIVES[self.objective],
            "iterations": self.n_estimators,
            "random_seed": seed % 2**31,
            "thread_count": openmp_threads(self.n_threads, len(data.y)),
            "allow_writing_files": False,
            "logging_level": "Silent",
            **{name: value for name, value in setting.items() if value is not None},
        }
        rows = _pool(catboost, columns, data)
        held = None
        if self._held_out is not None:
            part = counting(self._held_out)
            # CatBoost's metrics are not defined if all labels are equal
            held = _pool(catboost, self._columns(part.X), part) if np.ptp(part.y) > 0 else None
        booster = catboost.CatBoost(parameters)
        try:
            booster.fit(rows, eval_set=held)
        except catboost.CatBoostError as error:
            if _NO_GRADIENT not in str(error):
                raise
            booster = catboost.CatBoost({**parameters, "bootstrap_type": "No"})
            booster.fit(rows, eval_set=held)
        return booster

    def _columns(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Columns for CatBoost: a numeric feature itself, and one column of 0 and 1 for each category."""
        with np.errstate(over="ignore"):
            numbers = np.clip(X, -_LARGEST, _LARGEST).astype(np.float32)
        found = []
        for feature in range(X.shape[1]):
            if feature in self._categories.unordered:
                codes = np.arange(len(self._categories.values[feature]))
                found.append((X[:, [feature]] == codes).astype(np.float32))
            else:
                found.append(numbers[:, [feature]])
        return np.ascontiguousarray(np.concatenate(found, axis=1)) if self._categories.unordered else numbers

    @property
    def columns_(self) -> list[tuple[int, int | None]]:
        """The (feature, category) of each column of `trees_`; the category is None for a numeric feature."""
        found: list[tuple[int, int | None]] = []
        for feature in range(self.n_features_in_):
            if feature in self._categories.unordered:
                found += [(feature, code) for code in range(len(self._categories.values[feature]))]
            else:
                found.append((feature, None))
        return found

    def _scores_of(self, model: Any, X: NDArray[Any], groups: Groups | None) -> Floats:
        booster, n_trees = model
        if booster is None or n_trees == 0:
            return np.zeros(len(X))
        guard_forked_process()
        found = booster.predict(
            self._columns(X), ntree_end=n_trees, thread_count=openmp_threads(self.n_threads, len(X))
        )
        return np.asarray(found, dtype=np.float64)

    def _contributions(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        found = np.zeros((len(X), self.n_features_in_ + 1))
        if self.n_trees_ == 0:
            found[:, -1] = self.trees_.constant
            return found
        guard_forked_process()
        own = self.booster_.get_feature_importance(
            _catboost().Pool(self._columns(X)),
            type="ShapValues",
            thread_count=openmp_threads(self.n_threads, len(X)),
        )
        for column, (feature, _) in enumerate(self.columns_):
            found[:, feature] += own[:, column]
        found[:, -1] = own[:, -1]
        return found

    def _set_model(self, model: Any) -> None:
        booster, n_trees = model
        if isinstance(booster, Trees):  # from a file
            trees = booster
        elif booster is None:
            trees = Trees(len(self.columns_), (), 0.0, ())
        else:
            trees = trees_of(booster, n_trees)
        self._text = text_of(trees)
        self.trees_, self.n_trees_ = trees, len(trees.trees)
        self.booster_ = booster_of(trees, _catboost())

    def _booster_of(self, text: str) -> Any:
        return booster_of(checked_trees(text, len(self.columns_)), _catboost())

    @property
    def feature_importances_(self) -> Floats:
        """CatBoost's importance of each feature, (D,); all 0 if there are no trees."""
        found = np.zeros(self.n_features_in_)
        if self.n_trees_:
            own = self.booster_.get_feature_importance(type="PredictionValuesChange", thread_count=1)
            np.add.at(found, [feature for feature, _ in self.columns_], own)
        return found

    def _model_state(self) -> Any:
        return {"catboost": self._text}

    def _model_from(self, state: Any) -> Any:
        trees = checked_trees(state["catboost"], len(self.columns_))
        return trees, len(trees.trees)


def _can_learn(columns: NDArray[np.float32], data: TrainingSet) -> bool:
    """Whether some column varies, and some query has documents with different labels."""
    same = (columns == columns[0]) | (np.isnan(columns) & np.isnan(columns[0]))
    starts = data.groups.offsets[:-1]
    differ = np.maximum.reduceat(data.y, starts) > np.minimum.reduceat(data.y, starts)
    return not same.all() and bool(differ.any())


def _pool(catboost: Any, columns: NDArray[np.float32], data: TrainingSet) -> Any:
    weight = None if data.query_weight is None else data.query_weight[data.codes]
    return catboost.Pool(columns, data.y, group_id=data.codes, group_weight=weight)


def _depth(value: Any) -> int:
    if whole("depth", value, 1) > _DEEPEST:
        raise ValueError(f"depth must be at most {_DEEPEST}; got {value!r}.")
    return int(value)


def _some(name: str, given: Any) -> list[float | None]:
    """Return the given value or values, CatBoost's own default (None) first and then in increasing order."""
    values = several(given)
    numbers = [value for value in values if value is not None]
    if values and not numbers:
        return [None]
    found = one_or_more(name, numbers, lambda value: positive(name, value))
    return [None, *found] if len(numbers) < len(values) else found


def _catboost() -> Any:
    return guarded_import("catboost", "CatBoostRanker")
