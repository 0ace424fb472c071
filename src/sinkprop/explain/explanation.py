"""RankingExplanation: contributions of the features to scores, expected ranks and metrics of queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups

__all__ = ["RankingExplanation"]


@dataclass(frozen=True, eq=False, repr=False)
class RankingExplanation:
    """Contributions of D features to the rankings of Q queries with N documents, from `explain_ranking`.

    Attributes
    ----------
    feature_names : tuple of str
        Names of the D features.
    scores : array of shape (N, D)
        Contribution of each feature to the score of each document, as given.
    ranks : array of shape (N, D)
        Contribution of each feature to the expected rank of each document, in ranks. Negative numbers move
        the document up. A row sums to the expected rank less that of a random order, (n + 1) / 2. NaN for
        documents that were not asked for.
    expected_ranks : array of shape (N,)
        Expected rank of each document.
    metric : array of shape (Q, D), or None
        Contribution of each feature to the expected metric of each query. A row sums to the expected metric
        less that of a random order. None if there are neither labels nor probabilities of relevance.
    expected_metric : array of shape (Q,), or None
        Expected metric of each query.
    random_metric : array of shape (Q,), or None
        Expected metric of a random order of each query.
    metric_name : str
        The metric, such as "ndcg@10".
    queries : array of shape (Q,)
        Query ids in order of first appearance.
    rank_error : array of shape (Q,)
        Largest distance, over the documents of each query, of the sum of a row of `ranks` from what it should
        be, in ranks. It is the error of a numerical integral.
    metric_error : array of shape (Q,)
        The same for `metric`.

    Examples
    --------
    >>> from sinkprop.explain import explain_ranking
    >>> parts = [[1.5, 0.2, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]]  # two features, and the base value
    >>> found = explain_ranking(parts, labels=[0, 1, 0], feature_names=["title", "body"])
    >>> found
    RankingExplanation(1 query, 3 documents, 2 features)
    >>> found.expected_ranks.round(2)
    array([1.56, 1.64, 2.81])
    """

    feature_names: tuple[str, ...]
    scores: Floats
    ranks: Floats
    expected_ranks: Floats
    metric: Floats | None
    expected_metric: Floats | None
    random_metric: Floats | None
    metric_name: str
    rank_error: Floats
    metric_error: Floats
    groups: Groups = field(repr=False)

    @property
    def queries(self) -> NDArray[Any]:
        """Query ids in order of first appearance."""
        return self.groups.queries

    def __repr__(self) -> str:
        n_queries, n = len(self.groups.queries), len(self.scores)
        counts = ((n_queries, "query", "queries"), (n, "document", "documents"))
        words = [f"{count:,} {one if count == 1 else several}" for count, one, several in counts]
        n_features = len(self.feature_names)
        return (
            f"RankingExplanation({', '.join(words)}, {n_features:,} feature{'' if n_features == 1 else 's'})"
        )

    def of_document(self, row: int, *, top: int = 5) -> list[tuple[str, float]]:
        """Features that move a document most, with the number of ranks.

        Parameters
        ----------
        row : int
            Row of the document.
        top : int, default 5
            Number of features.

        Returns
        -------
        list of (str, float)
            Name and contribution to the expected rank, negative if the feature moves the document up; the
            largest first. Features without effect are left out.
        """
        return self._largest(self.ranks[self._row(row)], top)

    def of_pair(self, row: int, other: int, *, top: int = 5) -> list[tuple[str, float]]:
        """Features that put one document above another of its query.

        Parameters
        ----------
        row, other : int
            Rows of the documents.
        top : int, default 5
            Number of features.

        Returns
        -------
        list of (str, float)
            Name and number of ranks by which the feature moves the first document up relative to the second,
            negative if it moves it down; the largest first. Over all features, the numbers sum to the
            difference of the expected ranks.
        """
        codes = self.groups.codes
        if codes[self._row(row)] != codes[self._row(other)]:
            raise ValueError(
                f"of_pair: rows {row} and {other} are documents of different queries; ranks can only be "
                "compared within a query."
            )
        return self._largest(self.ranks[other] - self.ranks[row], top)

    def of_query(self, query: Any, *, top: int = 5) -> list[tuple[str, float]]:
        """Features that change the expected metric of a query most.

        Parameters
        ----------
        query : object
            Query id.
        top : int, default 5
            Number of features.

        Returns
        -------
        list of (str, float)
            Name and contribution to the expected metric, negative if the feature makes the ranking worse; the
            largest first.
        """
        if self.metric is None:
            raise ValueError(
                "of_query: there is no metric to explain. Give labels, or a calibration with probabilities "
                "of relevance."
            )
        found = [i for i, own in enumerate(self.groups.queries.tolist()) if own == query]
        if not found:
            raise ValueError(f"of_query: there is no query {query!r} among the {len(self.queries)} queries.")
        return self._largest(self.metric[found[0]], top)

    def importances(self) -> Floats:
        """Mean, over the explained documents, of the number of ranks by which each feature moves a document.

        Returns
        -------
        array of shape (D,)
            Means of the absolute contributions. Every query counts the same.
        """
        known = ~np.isnan(self.ranks[:, 0])
        if not known.any():
            raise ValueError("importances: no document was explained (top=0).")
        codes = self.groups.codes[known]
        counts = np.bincount(codes, minlength=len(self.queries))
        share = 1.0 / (counts[codes] * np.count_nonzero(counts))
        found: Floats = share @ np.abs(self.ranks[known])
        return found

    def _largest(self, values: Floats, top: int) -> list[tuple[str, float]]:
        order = np.argsort(-np.abs(values), kind="stable")[: max(0, top)]
        return [(self.feature_names[i], float(values[i])) for i in order.tolist() if values[i] != 0]

    def _row(self, row: int) -> int:
        n = len(self.ranks)
        if not -n <= row < n:
            raise IndexError(f"row must be from 0 to {n - 1}; got {row}.")
        if np.isnan(self.ranks[row, 0]):
            raise ValueError(f"row {row} was not explained: it is not among the first documents (top=).")
        return row
