"""Fitted boosted trees: scores, feature importances, and the model as plain data."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from sinkprop.common.arguments import whole
from sinkprop.common.types import Floats
from sinkprop.data.categories import NO_CATEGORIES
from sinkprop.data.queries import Groups, Ids
from sinkprop.estimator.base import BaseRanker
from sinkprop.estimator.categorical_inputs import CategoricalInputs
from sinkprop.estimator.cluster_parameter import portable
from sinkprop.gbdt.boosters import booster_of, booster_text, checked_booster
from sinkprop.gbdt.growing.loop import BoostingFit
from sinkprop.gbdt.growing.rows import SparseRows, plain_rows
from sinkprop.gbdt.threads import openmp_threads

__all__ = ["FittedTrees"]


class FittedTrees(CategoricalInputs, BaseRanker):
    """Base class of `BoostedRanker`, with the methods that need only its fitted trees."""

    @abstractmethod
    def _resolved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the ranker's own parameters and all other LightGBM parameters, see `resolved`."""

    def __getstate__(self) -> dict[str, Any]:
        state = dict(portable(super().__getstate__()))
        if "booster_" in state:  # as text: a pickled booster would not guard against forks
            state["booster_"] = booster_text(self.booster_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "booster_"):
            self._set_booster(booster_of(state["booster_"]))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _features(self, X: Any, *, reset: bool = False, name: str = "X") -> Any:
        if not hasattr(X, "tocsr"):
            return super()._features(X, reset=reset, name=name)
        if reset:
            self._categories = NO_CATEGORIES
        else:
            check_is_fitted(self, "n_features_in_")
        from scipy.sparse import csr_matrix

        matrix = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
        )
        rows = SparseRows(csr_matrix(matrix))  # LightGBM accepts sparse matrices, not sparse arrays
        rows.check_finite(name)
        return rows

    def predict(
        self,
        X: Any,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        num_iteration: int | None = None,
        pred_contrib: bool = False,
    ) -> Floats:
        """Score documents, or explain their scores.

        Scores are comparable only between documents of the same query.

        Parameters
        ----------
        X : array of shape (N, D), sparse matrix, DataFrame, Queries, StoredQueries or path
            Documents. A stored set is read one block at a time.
        qid : array of shape (N,), optional
            Query id of each row. Has no effect on the scores. Not allowed with `Queries` or a stored set.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        num_iteration : int, optional
            Use only this many trees, from the first. By default all trees of the model.
        pred_contrib : bool, default False
            Whether to return the contribution of each feature to the score (its SHAP value) in place of the
            score.

        Returns
        -------
        array of shape (N,) or (N, D + 1)
            Scores; larger ranks higher. With `pred_contrib`, one column for each feature, and a last column
            with the mean score of the training documents; the sum of a row is the score.

        Examples
        --------
        >>> from sinkprop.gbdt import BoostedRanker
        >>> import numpy as np
        >>> X, y, qid = np.arange(40.0)[:, None], np.arange(40) % 20 // 10, np.repeat([1, 2], 20)
        >>> ranker = BoostedRanker(n_estimators=5, min_child_samples=5).fit(X, y, qid=qid)
        >>> ranker.predict(X, num_iteration=2).shape
        (40,)
        >>> parts = ranker.predict(X, pred_contrib=True)
        >>> parts.shape, np.allclose(parts.sum(axis=1), ranker.predict(X))
        ((40, 2), True)
        """
        if num_iteration is None and not pred_contrib:
            return super().predict(X, qid=qid, group=group)
        options: dict[str, Any] = {"pred_contrib": bool(pred_contrib)}
        if num_iteration is not None:
            options["num_iteration"] = min(whole("num_iteration", num_iteration, 1), self.n_trees_)
        stored = self._given_stored(X, qid=qid, group=group)
        if stored is None:
            rows, _ = self._rows(X, qid, group)
            return self._booster_output(rows, **options)
        width = (self.n_features_in_ + 1,) if pred_contrib else ()
        out = np.empty((len(stored), *width))
        self._fill(out, stored, lambda rows, _: self._booster_output(rows, **options))
        return out

    @property
    def explainable(self) -> bool:
        """Whether `explain` works, and `predict` with `pred_contrib=True`."""
        check_is_fitted(self, "booster_")
        return True

    def _score_rows(self, X: Any, groups: Groups | None) -> Floats:
        return self._booster_output(X)

    def _booster_output(self, X: Any, **options: Any) -> Floats:
        check_is_fitted(self, "booster_")
        own, _ = self._resolved()
        found = self.booster_.predict(
            plain_rows(X),
            raw_score=not options.get("pred_contrib"),
            num_threads=openmp_threads(own["n_threads"], len(X)),
            **options,
        )
        # LightGBM explains sparse rows by a sparse matrix
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=np.float64)

    @property
    def history_(self) -> dict[str, list[float]]:
        """Dictionary {criterion: list of its values after each round}; empty without validation queries."""
        check_is_fitted(self, "booster_")
        record = self.fit_result_
        return {record.criterion: list(record.values)} if record.values else {}

    @property
    def evals_result_(self) -> dict[str, dict[str, list[float]]]:
        """Dictionary {"validation": `history_`}, as LightGBM's estimators have it.

        Empty without validation queries.
        """
        return {"validation": self.history_} if self.history_ else {}

    @property
    def feature_importances_(self) -> NDArray[Any]:
        """Importance of each feature, shape (D,): see `importance_type`."""
        check_is_fitted(self, "booster_")
        if self.importance_type not in ("split", "gain"):
            raise ValueError(f"importance_type must be 'split' or 'gain'; got {self.importance_type!r}.")
        found: NDArray[Any] = self.booster_.feature_importance(importance_type=self.importance_type)
        return found

    def _set_fitted(self, booster: Any, result: BoostingFit, n_boosters: int) -> None:
        self._set_booster(booster)
        self.n_boosters_ = n_boosters
        self.fit_result_ = result
        self.n_trees_, self.best_iteration_ = self.booster_.num_trees(), result.best

    def _set_booster(self, booster: Any) -> None:
        self.booster_ = booster
        if self._categories.values:
            # with its categories set, the booster's own `predict` accepts data frames, too
            self.booster_.pandas_categorical = list(self._categories.values.values())

    def _fitted_state(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self.fit_result_),
            **self._category_state(),
            "n_boosters": self.n_boosters_,
            "lightgbm": booster_text(self.booster_).split("\n"),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        fields = {field.name: state[field.name] for field in dataclasses.fields(BoostingFit)[:-1]}
        # optional: a model file may lack the expected gains of the training queries
        fields["training"] = tuple((int(number), float(x)) for number, x in state.get("training", ()))
        self._restore_categories(state)
        booster = checked_booster("\n".join(state["lightgbm"]), self.n_features_in_)
        n_boosters = whole("n_boosters", state.get("n_boosters", 1), 1)
        self._set_fitted(booster, BoostingFit(**fields), n_boosters)
