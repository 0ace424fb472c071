"""The function explain_ranking: from contributions to scores to those to expected ranks and metrics."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.calibration import RankCalibration
from sinkprop.calibration.widths import typical_spread
from sinkprop.common.arguments import number, whole
from sinkprop.common.types import Floats
from sinkprop.data.blocks import one_blas_thread
from sinkprop.data.checks import as_label_columns
from sinkprop.data.queries import Groups, group_rows
from sinkprop.explain.contributions import checked_contributions
from sinkprop.explain.explanation import RankingExplanation
from sinkprop.explain.path import Path, RankModel, Shares, metric_shares, rank_shares
from sinkprop.objective.gains import Gain, RankLinearGain, as_gain
from sinkprop.objective.gains.base import with_bound_arrays
from sinkprop.objective.native_terms import NativeGains, NativeTerms, native_gains
from sinkprop.objective.relaxations import Relaxation, SmoothedIndicator, as_relaxation

if TYPE_CHECKING:
    from sinkprop.objective.normalization import Iterations

__all__ = ["LONGEST", "explain_ranking"]

LONGEST = 1_000  # documents of a query of which all ranks are explained, which takes quadratic time
_OF_METRIC = 500  # ratio of the errors of a rank and of the metric
_LEAST_TOL = 1e-4  # expected ranks themselves have rounding errors of about a tenth of this
_ALL_AT_ONCE = 300  # in longer queries, the ranks of documents are explained one by one


def explain_ranking(
    contributions: Any,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    labels: ArrayLike | None = None,
    *,
    calibration: RankCalibration | None = None,
    relaxation: str | Relaxation | None = None,
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    metric: str | Gain = "ndcg@10",
    top: int | None = None,
    base: bool = True,
    feature_names: Sequence[str] | None = None,
    tol: float = 0.05,
) -> RankingExplanation:
    """Contribution of each feature to the expected ranks of documents, and to the metric of their query.

    The model may be any whose score is a sum of contributions of the features, such as SHAP values. Rankers
    of this library have a method `explain`. The contributions c_d of the features d to the scores s of a
    query are followed along ``s(t) = t sum_d c_d``, from tied documents at t = 0 to the scores at t = 1.
    Feature d gets the share ``int_0^1 grad f(s(t)) . c_d dt`` of a function f, an expected rank or the
    expected metric: the value of Aumann and Shapley. The shares sum to the change of f from a random order to
    the ranking. A feature that adds the same number to all documents of a query gets 0.

    Parameters
    ----------
    contributions : array of shape (N, D + 1), or explanation of shap
        Contribution of each feature to the score of each document, and in the last column the base value, as
        `predict(X, pred_contrib=True)` of LightGBM and of the rankers of this library returns them. Or a
        `shap.Explanation` with one row per document.
    qid : array of shape (N,), optional
        Query id of each row: any hashable ids, in any order. By default all rows form one query.
    labels : array of shape (N,) or (N, L), optional
        Relevance of each document, at least 0. Without labels, the metric is that of the gains which the
        calibration expects, if there is one.
    calibration : RankCalibration, optional
        Calibration of the scores, whose expected ranks are explained.
    relaxation : str or Relaxation, optional
        Smoothed indicator whose expected ranks are explained if there is no calibration. By default a
        Gaussian one, as wide as the typical spread of the scores of a query.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations; only without calibration.
    epsilon : float, default 1e-6
        Constant added to every entry of the matrix before Sinkhorn normalization; only without calibration.
    metric : str or Gain, default "ndcg@10"
        Metric to explain, as in `expected_gain`; the discount of NDCG is log2(rank + 1) unless it says
        otherwise. Under a calibration, the expected value of a metric that is not rank-linear, such as "map",
        is the mean over the components of the mixture.
    top : int, optional
        Explain the ranks of the first `top` documents of each query only, in linear time. None explains all
        documents of queries with up to 1,000, in quadratic time; 0 explains the metric only.
    base : bool, default True
        Whether the last column of an array is the base value.
    feature_names : sequence of str, optional
        Names of the D features.
    tol : float, default 0.05
        Largest error of the integral, in ranks, from 1e-4; for the metric, 1/500 of it.

    Returns
    -------
    RankingExplanation
        Contributions of the features.

    Notes
    -----
    The derivative at tied documents is the mean over their orders. With the kernel "laplace", whose
    derivative at ties is one-sided, the contributions to the metric then depend on the order of the rows.

    Examples
    --------
    >>> parts = [[1.5, 0.2, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]]  # two features, and the base value
    >>> found = explain_ranking(parts, labels=[0, 1, 0], feature_names=["title", "body"])
    >>> [(name, round(ranks, 2)) for name, ranks in found.of_document(0)]
    [('title', -0.47), ('body', 0.04)]
    >>> [(name, round(gain, 2)) for name, gain in found.of_query(0)]
    [('body', 0.05), ('title', 0.02)]
    """
    parts, bases, names = checked_contributions(contributions, base=base, feature_names=feature_names)
    groups = group_rows(qid, len(parts))
    scores = parts.sum(axis=1)
    if bases is not None:
        _check_bases(bases, scores, groups)
        scores = scores + bases
    top = None if top is None else whole("top", top, 0)
    tol = number("tol", tol, above=True)
    if tol < _LEAST_TOL:
        raise ValueError(f"tol must be at least {_LEAST_TOL:g} ranks; got {tol!r}.")
    _check_lengths(groups, top)
    gain = as_gain(metric, "log2")
    gains = None
    if labels is not None:
        gain, y = with_bound_arrays(gain, as_label_columns(labels, len(parts), rows_of="contributions"))
        gains = y if y.ndim == 2 else y[:, None]
    elif calibration is not None and calibration.relevance and _separable(gain):
        gains = _expected_gains(calibration, scores, groups, gain)[:, None]
    model = _models(calibration, relaxation, scores, groups, n_iter, epsilon)

    with one_blas_thread():  # the same bits on every number of threads
        found = _explained(parts, groups, model, gain, gains, labels is not None, top, tol)
    _warn_of_errors(found.rank_error, found.metric_error, tol, groups)
    return replace(found, feature_names=names, metric_name=str(metric))


def _explained(
    parts: Floats,
    groups: Groups,
    model: Callable[[int], RankModel],
    gain: Gain,
    gains: Floats | None,
    labeled: bool,
    top: int | None,
    tol: float,
) -> RankingExplanation:
    """The explanation, without the names of the features and of the metric.

    parts  (N, D) contributions to the scores.
    gains  (N, L) labels if `labeled`, else (N, 1) expected gains; None without a metric.
    """
    n, n_features, n_queries = *parts.shape, len(groups.queries)
    ranks, expected = np.full((n, n_features), np.nan), np.empty(n)
    values = np.zeros((n_queries, n_features)), np.zeros(n_queries), np.zeros(n_queries)
    rank_error, metric_error = np.zeros(n_queries), np.zeros(n_queries)
    offsets = groups.offsets.tolist()
    for q in range(n_queries):
        rows = np.arange(offsets[q], offsets[q + 1])
        rows = rows if groups.rows is None else groups.rows[rows]
        own = model(len(rows))
        path = Path.of(parts[rows], own.scale)
        placed = rows[path.order]
        expected[placed] = own.expected_ranks(path)
        wanted = len(rows) if top is None else min(top, len(rows))
        found = _ranks_of(path, own, wanted, tol)
        ranks[placed[:wanted]] = found.shares[:wanted]
        rank_error[q] = found.error
        if gains is not None:
            given = _as_gains(gain, gains[placed], labeled=labeled)
            of_metric, start = metric_shares(path, own, [given], tol / _OF_METRIC)
            values[0][q], values[1][q] = of_metric.shares[0], start[0] + of_metric.change[0]
            values[2][q], metric_error[q] = start[0], of_metric.error
    known = gains is not None
    return RankingExplanation(
        feature_names=(),
        scores=parts,
        ranks=ranks,
        expected_ranks=expected,
        metric=values[0] if known else None,
        expected_metric=values[1] if known else None,
        random_metric=values[2] if known else None,
        metric_name="",
        rank_error=rank_error,
        metric_error=metric_error,
        groups=groups,
    )


def _ranks_of(path: Path, model: RankModel, wanted: int, tol: float) -> Shares:
    """Shares in the expected ranks of the first `wanted` documents of the path."""
    n = len(path.z)
    if not wanted:
        return Shares(path.rates[:0], path.z[:0], 0.0)
    if n <= _ALL_AT_ONCE:
        return rank_shares(path, model, tol)
    places = np.arange(1.0, n + 1)[None]
    units: list[NativeGains | NativeTerms] = [
        NativeGains((np.arange(n) == i).astype(np.float64), False, None, places, False) for i in range(wanted)
    ]
    return metric_shares(path, model, units, tol)[0]


def _as_gains(gain: Gain, y: Floats, *, labeled: bool) -> NativeGains | NativeTerms:
    """Gain of the documents of one query, by their labels or by their expected gains y (n, L)."""
    one = Groups.of_sizes(np.array([len(y)]))
    column = y[:, 0] if y.shape[1] == 1 else y
    if labeled:
        return native_gains(gain, column, one, None)
    assert isinstance(gain, RankLinearGain)
    return NativeGains(column, False, None, gain.discounts(len(y)).reshape(1, -1), gain.normalized)


def _separable(gain: Gain) -> bool:
    return isinstance(gain, RankLinearGain) and gain.separable


def _expected_gains(calibration: RankCalibration, scores: Floats, groups: Groups, gain: Gain) -> Floats:
    """Gain that the calibration expects of each document, (N,).

    It is the sum over the grades of P(label >= grade) times what the grade's gain is above the one before.
    """
    assert isinstance(gain, RankLinearGain)
    grades = np.append(0.0, calibration.grades)
    steps = np.diff(gain.gains(grades))
    total = np.full(len(scores), float(gain.gains(grades)[0]))
    for grade, step in zip(grades[1:].tolist(), steps.tolist(), strict=True):
        total += step * calibration.relevance_probability(scores, groups.codes, threshold=grade)
    return total


def _models(
    calibration: RankCalibration | None,
    relaxation: str | Relaxation | None,
    scores: Floats,
    groups: Groups,
    n_iter: Iterations,
    epsilon: float,
) -> Callable[[int], RankModel]:
    """Function from the number of documents of a query to the model of its ranks."""
    if calibration is not None:
        if relaxation is not None:
            raise ValueError("give calibration or relaxation, not both.")
        return lambda n: RankModel.calibrated(calibration.mixture, n)
    chosen = (
        SmoothedIndicator(typical_spread(scores, groups)) if relaxation is None else as_relaxation(relaxation)
    )
    if not isinstance(chosen, SmoothedIndicator):
        raise ValueError(
            "relaxation must be a SmoothedIndicator to explain ranks; a partitioned measure is not "
            "supported. Give a calibration, or a SmoothedIndicator."
        )
    fixed = RankModel.of_relaxation(chosen, n_iter, epsilon)
    fixed.smoothing(fixed.components[0][1])  # checks n_iter and epsilon
    return lambda n: fixed


def _check_bases(bases: Floats, scores: Floats, groups: Groups) -> None:
    order = np.arange(len(bases)) if groups.rows is None else groups.rows
    starts = groups.offsets[:-1]
    spread = np.maximum.reduceat(bases[order], starts) - np.minimum.reduceat(bases[order], starts)
    limit = 1e-6 * max(float(np.abs(bases).max()), float(np.abs(scores).max()), 1e-300)
    if (spread > limit).any():
        query = groups.queries.tolist()[int(np.argmax(spread))]
        raise ValueError(
            "contributions: the last column must be the base value, the same for all documents of a query, "
            f"but it varies by {spread.max():.3g} in query {query!r}. Give base=False if it is a feature."
        )


def _check_lengths(groups: Groups, top: int | None) -> None:
    if top is None and groups.longest > LONGEST:
        query = groups.queries.tolist()[int(np.argmax(groups.sizes))]
        raise ValueError(
            f"query {query!r} has {groups.longest:,} documents. The ranks of all documents are explained in "
            f"queries of at most {LONGEST:,}; give top=, the number of documents at the top to explain."
        )


def _warn_of_errors(rank_error: Floats, metric_error: Floats, tol: float, groups: Groups) -> None:
    bad = (rank_error > tol) | (metric_error > tol / _OF_METRIC)
    if bad.any():
        first = groups.queries.tolist()[int(np.argmax(bad))]
        warnings.warn(
            f"explain_ranking: the contributions of {int(bad.sum())} of {len(bad)} queries, first {first!r}, "
            "do not sum to what they should within tol; see rank_error and metric_error. A larger sigma "
            "makes the integral easier.",
            UserWarning,
            stacklevel=3,
        )
