"""Scorer: a saved model that scores and ranks documents, with the probabilities of its ranker."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from sinkprop.common.types import Floats, Integers
from sinkprop.data.categories import Categories
from sinkprop.data.queries import Groups, Ids, Queries, group_rows, ids_of_sizes
from sinkprop.serving.features import Features
from sinkprop.serving.models import SavedModel
from sinkprop.serving.probabilities import Probabilities

if TYPE_CHECKING:
    from sinkprop.calibration import RankCalibration

__all__ = ["Scorer"]


class Scorer(Probabilities):
    """A saved model that scores and ranks documents with NumPy alone; `load` makes it.

    The documents of a call are one query, unless `qid` or `group` is given. A scorer does not change after it
    was loaded, and several threads may call it at once.

    The documents X are an array (N, D) with the features in the order of the fit; a pandas or polars
    DataFrame or a pyarrow Table with the columns of the fit; a mapping from feature names to columns, or a
    list of such mappings, one per document, which may hold more than the features; or `Queries`. A missing
    value is NaN or None. A category that the training data did not have counts as missing, with a warning.

    Attributes
    ----------
    kind : str
        Name of the class of the ranker, such as "SinkPropRanker".
    n_features : int
        Number of features, D.
    feature_names : list of str or None
        Their names, if the ranker was fitted to a frame or to queries with feature names.
    categories : dict
        Categories of each categorical feature, by its name, or by its number if it has none.
    calibration_ : RankCalibration or None
        Calibration of the scores, on which the probabilities are based; None if the ranker had none.

    See Also
    --------
    load : Load a saved ranker.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from sinkprop import datasets
    >>> from sinkprop.baselines import RegressionRanker
    >>> from sinkprop.serving import load
    >>> fold = datasets.load_pydocs(1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     RegressionRanker().fit(fold.train, eval_set=fold.vali).save(f"{folder}/rank.model")
    ...     scorer = load(f"{folder}/rank.model")
    >>> documents = fold.test.X[fold.test.qid == fold.test.qid[0]]
    >>> scorer.rank(documents)[:5].shape
    (5,)
    >>> bool(scorer.predict_proba(documents).max() < 1)
    True
    """

    def __init__(
        self, kind: str, model: SavedModel, categories: Categories, calibration: dict[str, Any] | None
    ) -> None:
        inputs = model.inputs
        self.kind, self.n_features, self.feature_names = kind, inputs.n_features, inputs.feature_names
        self._model, self._saved_calibration = model, calibration
        self._features = Features(
            inputs.n_features, inputs.feature_names, categories, takes_nan=model.takes_nan, kind=kind
        )

    def __repr__(self) -> str:
        D = self.n_features
        calibrated = "not calibrated" if self._saved_calibration is None else "calibrated"
        return f"<Scorer: {self.kind}, {D:,} {'feature' if D == 1 else 'features'}, {calibrated}>"

    @property
    def categories(self) -> dict[str, tuple[Any, ...]]:
        """Categories of each categorical feature; the code of a category is its position, from 0."""
        names = range(self.n_features) if self.feature_names is None else self.feature_names
        return {str(names[i]): tuple(v) for i, v in self._features.categories.values.items()}

    @cached_property
    def calibration_(self) -> RankCalibration | None:
        """Calibration of the scores; None if the ranker had none."""
        if self._saved_calibration is None:
            return None
        from sinkprop.calibration.rank_calibration import RankCalibration

        return RankCalibration.from_record(self._saved_calibration)

    def predict(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Floats:
        """Score documents.

        Scores are comparable only between documents of the same query.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, mapping, list of mappings or Queries
            Documents.
        qid : array of shape (N,), optional
            Query id of each row: any hashable ids, in any order; by default all rows are one query. It
            changes the scores only if features are normalized per query or if a document's score depends on
            the other documents of its query.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.

        Returns
        -------
        array of shape (N,)
            Scores; larger ranks higher.
        """
        rows, groups = self._rows(X, qid, group)
        return self._model.scores(self._model.prepared(rows, groups), groups)

    def rank(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Integers:
        """Rank documents within their queries.

        Of two documents with equal scores, the earlier row ranks higher.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, mapping, list of mappings or Queries
            Documents.
        qid : array of shape (N,), optional
            Query id of each row; by default all rows are one query.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.

        Returns
        -------
        array of shape (N,)
            Rank of each row in its query; 1 is the top.
        """
        rows, groups = self._rows(X, qid, group)
        return self._model.ranks(self._model.prepared(rows, groups), groups)

    def _rows(self, X: Any, qid: Ids | None, group: ArrayLike | None) -> tuple[NDArray[Any], Groups]:
        """Return the checked features of the rows X, and their queries."""
        if isinstance(X, Queries):
            for name, value in (("qid", qid), ("group", group)):
                if value is not None:
                    raise ValueError(f"{name} must not be given with Queries, which have their own.")
            return self._features(X), X.groups
        rows = self._features(X)
        if group is not None:
            if qid is not None:
                raise ValueError("give qid or group, not both.")
            qid = ids_of_sizes(group, len(rows))
        return rows, group_rows(qid, len(rows))

    def _rows_in_queries(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, what: str, **given: Any
    ) -> tuple[NDArray[Any], Groups]:
        return self._rows(X, qid, group)

    def _rows_of_one_query(self, X: Any, qid: Ids | None, what: str) -> tuple[NDArray[Any], Groups]:
        rows, groups = self._rows(X, qid, None)
        if len(groups.queries) > 1:
            first = groups.queries.tolist()[0]
            raise ValueError(
                f"{what} takes one query, but qid has {len(groups.queries)}. Give the rows of one query, for "
                f"example X[qid == {first!r}]."
            )
        one = group_rows(None, len(rows))
        return self._prepared(rows, one), one

    def _scored(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, method: str, **given: Any
    ) -> tuple[Floats, Groups]:
        rows, groups = self._rows(X, qid, group)
        return self._score_rows(self._prepared(rows, groups), groups), groups

    def _prepared(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        return self._model.prepared(X, groups)

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        return self._model.scores(X, groups)

    def _theta(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        return self._model.outputs(X, groups)

    def _relaxed(self) -> tuple[Any, dict[str, Any]]:
        return self._model.workings.relaxation, self._model.workings.settings

    def _plain_distribution(
        self, X: NDArray[Any], groups: Groups, ranks: ArrayLike | None, sigma: float | None
    ) -> Floats:
        P = self._model.plain_distribution(self._score_rows(X, groups), sigma)
        if P is None:
            return super()._plain_distribution(X, groups, ranks, sigma)
        from sinkprop.objective.rank_distribution import chosen_ranks

        return P if ranks is None else P[:, chosen_ranks(ranks, len(P)) - 1]

    def _check_fitted(self) -> None:
        """Do nothing: a saved model is fitted."""

    def _not_calibrated(self) -> str:
        return (
            f"the {self.kind} was saved without a calibration. Call calibrate() of the ranker with held-out "
            "queries, and save it again."
        )
