"""Boosted trees grown by XGBoost, with the same kind of candidates as `LightGBMRanker`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.baselines.trees import TreeRanker, grid, leaves, one_or_more, positive, rates
from sinkprop.common.forks import guard_forked_process, guarded_import
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.tuning import Candidate
from sinkprop.gbdt.growing.validation import counting
from sinkprop.gbdt.threads import openmp_threads
from sinkprop.linear.problem import LinearProblem
from sinkprop.objective.gains import NDCG
from sinkprop.serving.tree_files.xgboost_json import checked_json

__all__ = ["XGBoostRanker", "learner_of"]


_OBJECTIVE = "rank:ndcg"
_LARGEST_LABEL = 31  # largest label that XGBoost accepts with gains 2^r - 1


class XGBoostRanker(TreeRanker):
    """Boosted trees for ranking, grown by XGBoost's LambdaMART, "rank:ndcg".

    It needs XGBoost: `pip install "sinkprop[xgboost]"`. Every combination of `num_leaves`, `learning_rate`
    and `min_child_weight` is tried, at several numbers of trees, and validation queries select one of these
    candidates. All other parameters have XGBoost's defaults.

    Parameters
    ----------
    n_estimators : int, default 300
        Number of trees to grow.
    num_leaves : int or sequence of int, default (4, 10, 31)
        Maximum number of leaves per tree, XGBoost's max_leaves; one value, or several to try. Trees grow by
        splitting the leaf with the largest gain, as in LightGBM.
    learning_rate : float or sequence of float, default 0.05
        Learning rate, XGBoost's eta; one value, or several to try.
    min_child_weight : float or sequence of float, default (5.0, 1.0)
        Minimum sum of second derivatives per leaf; one value, or several to try. XGBoost has no minimum
        number of documents. Its default, 1, corresponds to LightGBM's default of 20 documents, and so 5
        corresponds to 100 documents.
    step : int, default 10
        Number of trees between candidates.
    selection : str or Selection, default "validation"
        How the candidate is chosen: a `Selection`, or the name of its method.
    normalization : {"none", "query"}, default "none"
        Feature scaling; see `SinkPropRanker`. Other scalings would not change the trees.
    metric : str, default "ndcg@10"
        Metric that `score` computes.
    convention : str, default "standard"
        Convention of the metrics; see `evaluate`.
    n_threads : int, optional
        Number of threads. None uses all available CPU cores, or the number in `SINKPROP_NUM_THREADS`.
        XGBoost's rounding may depend on it.
    random_state : int, optional, default 0
        Seed of splits, also passed to XGBoost.
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    booster_ : xgboost.Booster
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
    `Queries` and stored sets that have categories, are categorical features. Labels may be any numbers, 0 or
    more. XGBoost takes whole numbers up to 31; if some label r is not one of them, XGBoost gets gains
    proportional to 2^r - 1 in place of all labels. XGBoost weights queries, not rows: row weights that are
    not all equal are an error.
    """

    no_row_weights = "XGBoost weighs queries, not documents"

    def __init__(
        self,
        *,
        n_estimators: int = 300,
        num_leaves: int | Sequence[int] = (4, 10, 31),
        learning_rate: float | Sequence[float] = 0.05,
        min_child_weight: float | Sequence[float] = (5.0, 1.0),
        step: int = 10,
        selection: str | Selection = "validation",
        normalization: str = "none",
        metric: str = "ndcg@10",
        convention: str = "standard",
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.n_estimators = n_estimators
        self.num_leaves = num_leaves
        self.learning_rate = learning_rate
        self.min_child_weight = min_child_weight
        self.step = step
        self.selection = selection
        self.normalization = normalization
        self.metric = metric
        self.convention = convention
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _checked(self) -> int:
        _xgboost()
        return super()._checked()

    def _grid(self) -> list[dict[str, Any]]:
        """Combinations of hyperparameters, from few to many leaves, then by decreasing `min_child_weight`."""
        return grid(
            num_leaves=leaves(self.num_leaves),
            min_child_weight=one_or_more(
                "min_child_weight", self.min_child_weight, lambda x: positive("min_child_weight", x)
            )[::-1],
            learning_rate=rates(self.learning_rate),
        )

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        xgboost = _xgboost()
        data = counting(problem.data)
        labels, exponential = _labels(data)
        n_threads = openmp_threads(self.n_threads, len(data.y))
        shared = {
            "objective": _OBJECTIVE,
            "ndcg_exp_gain": exponential,
            "disable_default_eval_metric": True,
            "tree_method": "hist",
            "grow_policy": "lossguide",
            "max_depth": 0,
            "seed": seed % 2**31,
            "nthread": n_threads,
            "verbosity": 0,
        }
        rows = xgboost.DMatrix(
            data.X,
            labels,
            group=data.groups.sizes,
            weight=data.query_weight,
            nthread=n_threads,
            **self._feature_types(),
        )
        for number, setting in enumerate(self._grid()):
            own = {
                "max_leaves": setting["num_leaves"],
                "min_child_weight": setting["min_child_weight"],
                "eta": setting["learning_rate"],
            }
            booster = xgboost.Booster({**shared, **own}, [rows])
            grown = 0
            for i, size in enumerate(self._sizes()):
                booster.set_param({"nthread": openmp_threads(self.n_threads, len(data.y))})
                for tree in range(grown, size):
                    booster.update(rows, tree)
                grown = size
                yield self._candidate({**setting, "trees": size}, (booster, size), data, (2 * number, i))

    def _scores_of(self, model: Any, X: NDArray[Any], groups: Groups | None) -> Floats:
        booster, n_trees = model
        n_threads = openmp_threads(self.n_threads, len(X))
        rows = _xgboost().DMatrix(X, nthread=n_threads, **self._feature_types())
        found = booster.predict(rows, output_margin=True, iteration_range=(0, n_trees))
        return np.asarray(found, dtype=np.float64)

    def _feature_types(self) -> dict[str, Any]:
        """Arguments of XGBoost's DMatrix that name the categorical features."""
        columns = self._categories.unordered
        if not columns:
            return {}
        types = ["c" if i in columns else "q" for i in range(self.n_features_in_)]
        return {"feature_types": types, "enable_categorical": True}

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        # without this, a booster that was loaded from a file would use all threads
        self.booster_.set_param({"nthread": openmp_threads(self.n_threads, len(X))})
        return super()._score_rows(X, groups)

    def _contributions(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        n_threads = openmp_threads(self.n_threads, len(X))
        self.booster_.set_param({"nthread": n_threads})
        rows = _xgboost().DMatrix(X, nthread=n_threads, **self._feature_types())
        return np.asarray(self.booster_.predict(rows, pred_contribs=True), dtype=np.float64)

    def _set_model(self, model: Any) -> None:
        booster, n_trees = model
        # a copy without the training data, with only the chosen trees
        self._text = bytes(booster[:n_trees].save_raw("json")).decode("utf-8")
        self.booster_ = self._booster_of(self._text)
        self.n_trees_ = int(self.booster_.num_boosted_rounds())

    def _booster_of(self, text: str) -> Any:
        return _booster(text)

    def _model_state(self) -> Any:
        return {"xgboost": self._text}

    def _model_from(self, state: Any) -> Any:
        booster = _booster(checked_json(state["xgboost"], self.n_features_in_))
        return booster, int(booster.num_boosted_rounds())


def learner_of(booster: Any) -> Any:
    """Return the trees of a booster and their parameters, as XGBoost writes them to JSON."""
    guard_forked_process()
    booster.set_param({"nthread": 1})
    return json.loads(bytes(booster.save_raw("json")))["learner"]


def _labels(data: TrainingSet) -> tuple[Floats, bool]:
    """Return the labels to give to XGBoost, and whether XGBoost is to turn them into gains 2^r - 1.

    The result is (labels, True) if XGBoost accepts all labels r, and otherwise (gains, False).
    """
    gains = NDCG().gains(data.y)
    if data.y.max() <= _LARGEST_LABEL and np.array_equal(data.y, np.floor(data.y)):
        return data.y, True
    # XGBoost stores gains in single precision, in which large ones would overflow. Dividing all of them by
    # one number does not change NDCG.
    return gains / gains.max(), False


def _booster(text: str) -> Any:
    xgboost = _xgboost()
    booster = xgboost.Booster({"nthread": 1})
    try:
        booster.load_model(bytearray(text.encode("utf-8")))
    except xgboost.core.XGBoostError as error:
        raise ValueError(f"XGBoost cannot read the trees: {str(error).splitlines()[0]}") from None
    return booster


def _xgboost() -> Any:
    return guarded_import("xgboost", "XGBoostRanker")
