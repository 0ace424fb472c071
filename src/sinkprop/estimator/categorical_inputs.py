"""Inputs of rankers that accept missing values and categorical features: boosted trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from sinkprop.data.categories import NO_CATEGORIES, Categories, Recoding, categories_of, encoded
from sinkprop.data.queries import Groups, Queries
from sinkprop.estimator.inputs import RankerInputs

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["CategoricalInputs"]


class CategoricalInputs(RankerInputs):
    """Base class of rankers that accept missing values and categorical features.

    A ranker remembers the categories of the training data, and matches those of other data by value. A
    category that it does not know counts as missing.
    """

    _categories = NO_CATEGORIES

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    @property
    def categories_(self) -> dict[str, tuple[Any, ...]]:
        """Categories of each categorical feature; the code of a category is its position, from 0."""
        check_is_fitted(self, "n_features_in_")
        names: Sequence[Any] = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return {str(names[i]): tuple(values) for i, values in self._categories.values.items()}

    def _know_features(self, n_features: int, names: Sequence[str] | None) -> None:
        super()._know_features(n_features, names)
        self._categories = NO_CATEGORIES

    def _coding(
        self, data: Queries | StoredQueries, name: str = "X", *, reset: bool = False
    ) -> Callable[[Any], NDArray[Any]]:
        if reset:
            return lambda X: X
        return Recoding(data, self._categories, getattr(self, "feature_names_in_", None), name)

    def _features_of(self, queries: Queries, *, reset: bool = False, name: str = "X") -> NDArray[Any]:
        features = super()._features_of(queries, reset=reset, name=name)
        if reset:
            self._categories = Categories.of(queries)
        return features

    def _features(self, X: Any, *, reset: bool = False, name: str = "X") -> NDArray[Any]:
        if reset:
            self._categories = categories_of(X)
        else:
            check_is_fitted(self, "n_features_in_")
        names = None if reset else getattr(self, "feature_names_in_", None)
        return super()._features(encoded(X, self._categories, name, names=names), reset=reset, name=name)

    def _by_query(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        if self._categories.values and getattr(self, "normalization", "none") == "query":
            raise ValueError(
                f"normalization='query' would scale the codes of the categories of "
                f"{', '.join(map(repr, self.categories_))} within each query. Use normalization='none'."
            )
        return super()._by_query(X, groups)

    def _category_state(self) -> dict[str, Any]:
        """The categories as a dict of values that a model file can hold."""
        return self._categories.record()

    def _restore_categories(self, state: Mapping[str, Any]) -> None:
        """Set the categories of a ranker from what `_category_state` returned for it."""
        self._categories = Categories.from_record(state)
