"""Arrays that callers pass: masked entries, missing query ids and too large labels."""

from __future__ import annotations

import numpy as np
import pytest

import sinkprop
from sinkprop import Queries, SinkPropRanker, evaluate, expected_gain, ranking
from sinkprop.data.checks import as_features, as_labels, nan_for_masked
from sinkprop.gbdt import BoostedRanker

N = 12
RNG = np.random.default_rng(0)
X, Y, QID = RNG.normal(size=(N, 2)), np.arange(N) % 3, np.arange(N) // 4
SCORES = X[:, 0]


def masked(values: np.ndarray, *, entry: int | None = 1) -> np.ma.MaskedArray:
    """The values with one masked entry, or with a mask that masks none."""
    mask = np.zeros(values.shape, dtype=bool)
    if entry is not None:
        mask.flat[entry] = True
    return np.ma.array(values, mask=mask)


def ranker(**options: str) -> SinkPropRanker:
    return SinkPropRanker(max_iter=2, **options)


TAKERS = {  # what takes an array, and how the message calls the array
    "Queries y": (lambda a: Queries(X, a, QID), Y, "labels"),
    "Queries qid": (lambda a: Queries(X, Y, a), QID, "qid"),
    "Queries docid": (lambda a: Queries(X, Y, QID, a), QID.astype(str), "docid"),
    "fit y": (lambda a: ranker().fit(X, a, qid=QID), Y, "y"),
    "fit qid": (lambda a: ranker().fit(X, Y, qid=a), QID, "qid"),
    "fit group": (lambda a: ranker().fit(X, Y, group=a), np.array([4, 4, 4]), "group"),
    "fit query_weight": (lambda a: ranker().fit(X, Y, qid=QID, query_weight=a), np.ones(3), "query_weight"),
    "fit sample_weight": (
        lambda a: ranker().fit(X, Y, qid=QID, sample_weight=a),
        np.ones(N),
        "sample_weight",
    ),
    "evaluate labels": (lambda a: evaluate(a, SCORES, QID), Y, "labels"),
    "evaluate scores": (lambda a: evaluate(Y, a, QID), SCORES, "scores"),
    "evaluate qid": (lambda a: evaluate(Y, SCORES, a), QID, "qid"),
    "evaluate query_weight": (
        lambda a: evaluate(Y, SCORES, QID, query_weight=a),
        np.ones(3),
        "query_weight",
    ),
    "expected_gain scores": (lambda a: expected_gain(a, Y, QID), SCORES, "scores"),
    "expected_gain labels": (lambda a: expected_gain(SCORES, a, QID), Y, "labels"),
    "expected_gain qid": (lambda a: expected_gain(SCORES, Y, a), QID, "qid"),
    "ranking scores": (lambda a: ranking(a, QID), SCORES, "scores"),
}


@pytest.mark.parametrize("name", TAKERS)
def test_masked_entries_are_refused_and_empty_masks_are_not(name: str) -> None:
    take, values, called = TAKERS[name]
    with pytest.raises(ValueError, match=rf"{called} must not have masked entries; row 1 is masked\."):
        take(masked(values))
    take(masked(values, entry=None))


def test_a_masked_feature_is_a_missing_value() -> None:
    for values in (X, X.astype(np.float32)):
        found = nan_for_masked(masked(values, entry=3))
        assert found.dtype == values.dtype
        assert np.argwhere(np.isnan(found)).tolist() == [[1, 1]]
    assert np.isnan(nan_for_masked(masked(np.arange(4).reshape(2, 2), entry=3))[1, 1])
    for take in (
        as_features,
        lambda a: Queries(a, Y, QID),
        lambda a: ranker(missing="error").fit(a, Y, qid=QID),
    ):
        with pytest.raises(ValueError, match=r"row 1, column 1 holds nan"):
            take(masked(X, entry=3))
    assert np.isnan(Queries(masked(X, entry=3), Y, QID, allow_nan=True).X[1, 1])
    as_nan = X.copy()
    as_nan[1, 1] = np.nan
    fitted = BoostedRanker(n_estimators=3, min_child_samples=1, n_jobs=1).fit(masked(X, entry=3), Y, qid=QID)
    again = BoostedRanker(n_estimators=3, min_child_samples=1, n_jobs=1).fit(as_nan, Y, qid=QID)
    np.testing.assert_array_equal(fitted.predict(masked(X, entry=3)), again.predict(as_nan))


def test_masked_labels_of_a_torch_loss_are_refused() -> None:
    torch = pytest.importorskip("torch")
    from sinkprop.torch import listnet_loss, sinkprop_loss

    scores = torch.tensor(SCORES)
    for loss in (listnet_loss, sinkprop_loss):
        with pytest.raises(ValueError, match="labels must not have masked entries; row 1 is masked"):
            loss(scores, masked(Y.astype(float)), qid=torch.tensor(QID))
        with pytest.raises(ValueError, match="qid must not have masked entries; row 1 is masked"):
            loss(scores, torch.tensor(Y), qid=masked(QID))


@pytest.mark.parametrize("missing", ["None", "NaN", "<NA>", "NaT"])
def test_a_missing_query_id_is_refused_with_its_row(missing: str) -> None:
    pandas = pytest.importorskip("pandas")
    value = {"None": None, "NaN": float("nan"), "<NA>": pandas.NA, "NaT": pandas.NaT}[missing]
    for ids, row in (([value] * N, 0), (["a"] * 5 + [value] * (N - 5), 5)):
        for take in (lambda q: evaluate(Y, SCORES, q), lambda q: ranker().fit(X, Y, qid=q)):
            with pytest.raises(ValueError, match=rf"qid must not hold {missing}; row {row} is {missing}\."):
                take(ids)


def test_the_largest_label_is_a_whole_number_that_float64_holds() -> None:
    assert as_labels([2.0**53, 0.5], 2).tolist() == [2.0**53, 0.5]
    for label in (2.0**53 + 2, 99999999999999999999.0, 1e300):
        with pytest.raises(ValueError, match=r"labels must be finite and not above 2\^53; row 1 holds"):
            as_labels([0, label], 2)
    with pytest.raises(ValueError, match="below 960"):  # the gain 2^label has a limit of its own
        sinkprop.evaluate([0, 1000], [0.5, 1], [1, 1], "ndcg@10")
