"""Scores in float32: native code gives the results of the same scores in float64, rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sinkprop import ColumnGain, ExposureGap, PartitionedMeasure, RankLinear, SmoothedIndicator, _native
from sinkprop.data import group_rows
from sinkprop.data.checks import as_real_scores, as_scores
from sinkprop.objective.expected_gain import grouped_gain
from sinkprop.objective.gains import as_gain
from sinkprop.objective.native_terms import native_settings
from sinkprop.objective.normalization import Converged

# lists of every width of a group, one list more than a group, and queries that are processed one at a time
SIZES = {"lists": [1, 2, 3, 8, 8, 8, 8, 9, 16, 30, 100], "long": [3000, 150, 1], "one": [700]}
RELAXATIONS = {
    "gaussian": SmoothedIndicator(0.3),
    "exact": SmoothedIndicator(0.3, accuracy="exact"),
    "laplace": SmoothedIndicator(0.3, "laplace"),
    "logit-logistic": PartitionedMeasure("logit-logistic"),
    "probit": PartitionedMeasure("probit"),
    "beta": PartitionedMeasure("beta"),
    "one scale": PartitionedMeasure("logit-logistic", sigma=0.3),
}
GAINS = {
    "ndcg": "ndcg",
    "p@3": "p@3",
    "table": RankLinear(table=lambda r, k: (r > 1) * (k % 2) + r / k),
    "map": "map",
    "err": "err",
    "exposures": ExposureGap(groups=0),
    "function": ColumnGain(
        attributes=lambda y: y / 4, function=lambda R: (R**2).sum(), gradient=lambda R: 2 * R
    ),
}


class Batch:
    """Queries of the given sizes, with scores (N,) or (N, 2) in float32, a third of which are rounded."""

    def __init__(self, sizes, width=1, *, sort=True, covered=True):
        rng = np.random.default_rng(len(sizes))
        n = sum(sizes)
        shape = (n,) if width == 1 else (n, width)
        self.scores = rng.normal(size=shape).astype(np.float32)
        self.scores[::3] = self.scores[::3].round(1)
        self.labels = rng.integers(0, 5, n).astype(np.float64)
        qid = np.repeat(np.arange(len(sizes)), sizes)
        self.groups = group_rows(qid if sort else rng.permutation(qid), n)
        if not covered:  # the last rows belong to no query, as padding does
            more = np.zeros((7, *shape[1:]), np.float32)
            self.scores, self.labels = np.concatenate([self.scores, more]), np.pad(self.labels, (0, 7))

    def gain(self, dtype, gain, relaxation, n_iter=5, **settings):
        return grouped_gain(
            self.scores.astype(dtype),
            self.labels,
            self.groups,
            as_gain(gain),
            native_settings(relaxation, n_iter, 1e-6),
            None,
            **{"n_threads": 1, **settings},
        )

    def assert_rounded(self, *given, **settings):
        single, double = (self.gain(dtype, *given, **settings) for dtype in (np.float32, np.float64))
        assert_array_equal(single[0], double[0])
        assert single[1].dtype == np.float32
        assert double[1].dtype == np.float64
        assert_array_equal(single[1], double[1].astype(np.float32))
        assert single[1].any()


@pytest.mark.parametrize("relaxation", RELAXATIONS.values(), ids=RELAXATIONS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_a_gradient_in_float32_is_the_one_in_float64_rounded(sizes, relaxation):
    sizes = sizes if relaxation.width == 1 else [min(n, 200) for n in sizes]
    for sort in (True, False):
        Batch(sizes, relaxation.width, sort=sort).assert_rounded("ndcg", relaxation)


@pytest.mark.parametrize("gain", GAINS.values(), ids=GAINS)
@pytest.mark.parametrize("relaxation", ["gaussian", "logit-logistic"])
def test_every_form_of_gain_rounds_its_gradient(gain, relaxation):
    found = RELAXATIONS[relaxation]
    Batch([1, 2, 7, 40, 150], found.width, sort=False).assert_rounded(gain, found)


@pytest.mark.parametrize("relaxation", ["laplace", "probit"])
def test_the_limit_and_several_threads_round_the_gradient(relaxation):
    found = RELAXATIONS[relaxation]
    Batch([5, 60, 90], found.width).assert_rounded("ndcg", found, Converged())
    Batch([5, 60] * 90, found.width, sort=False).assert_rounded("ndcg", found, n_threads=3)


@pytest.mark.parametrize("width", [1, 2])
def test_rows_outside_of_the_queries_and_queries_without_gain_have_gradient_0(width):
    relaxation = RELAXATIONS["gaussian" if width == 1 else "probit"]
    for sizes in ([4, 9, 9], [300, 200, 50]):
        batch = Batch(sizes, width, covered=False)
        batch.labels[: sizes[0]] = 0
        batch.assert_rounded("ndcg", relaxation)
        gradient = batch.gain(np.float32, "ndcg", relaxation)[1]
        assert not gradient[: sizes[0]].any()
        assert not gradient[-7:].any()


@pytest.mark.parametrize("relaxation", RELAXATIONS.values(), ids=RELAXATIONS)
@pytest.mark.parametrize("sizes", [[3, 8, 8], [150, 40]], ids=["short", "long"])
def test_projections_are_rounded_once(sizes, relaxation):
    batch, settings = Batch(sizes, relaxation.width, sort=False), native_settings(relaxation, 5, 1e-6)
    columns = np.random.default_rng(0).normal(size=(3, batch.groups.longest))
    found = {}
    for dtype in (np.float32, np.float64):
        found[dtype] = np.full((len(batch.scores), 3), np.nan, dtype)
        scores = batch.scores.astype(dtype)
        _native.project(scores, batch.groups.offsets, batch.groups.rows, columns, settings, 1, found[dtype])
    assert_array_equal(found[np.float32], found[np.float64].astype(np.float32))


def test_checked_scores_in_float32_are_the_given_array():
    x = np.linspace(0, 1, 6, dtype=np.float32)
    assert as_real_scores(x, 1) is x
    for other in (x[::2], x.astype(">f4"), x.astype(np.float16), x.tolist(), np.arange(3), np.ma.array(x)):
        assert as_real_scores(other, 1).dtype == np.float64
        assert_array_equal(as_real_scores(other, 1), as_scores(other, 1))
    x[3] = -np.inf
    for wrong, message in [
        (x, "scores must be finite; row 3 holds -inf"),
        (x[:0], "at least one document"),
        (x[:2].reshape(1, 2), "must have the shape"),
        (np.float32(2), "must be an array"),
    ]:
        with pytest.raises(ValueError, match=message):
            as_real_scores(wrong, 1)
