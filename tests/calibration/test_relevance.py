"""The model of relevance: its columns by loops, its monotony, and what cross-validation may see."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop.calibration import relevance
from sinkprop.calibration.relevance import DocumentModel, fit_document_model, places
from sinkprop.calibration.ridge import log_losses
from sinkprop.data.queries import Groups, group_rows
from sinkprop.metrics.ranking import sorted_order


def data(n_queries=60, size=12, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n_queries * size)
    return (
        scores,
        scores + noise * rng.normal(size=len(scores)) > 1,
        Groups.of_sizes(np.full(n_queries, size)),
    )


def features_by_loop(scores, scale):
    """Columns of places of the documents of one query with different scores."""
    s, n = [x / scale for x in scores], len(scores)
    mean = sum(s) / n
    spread = math.sqrt(sum((x - mean) ** 2 for x in s) / n)
    ordered = sorted(s, reverse=True)
    level = sum(ordered[:10]) / min(n, 10)
    rows = []
    for x in s:
        rank = ordered.index(x) + 1
        place = [(x - mean) / (spread + 0.25), -math.log(rank), rank <= 1, rank <= 3, rank <= 10]
        rows.append([*place, math.log(n), spread, level, ordered[0] - level])
    return rows


@pytest.mark.parametrize("size", [1, 2, 9, 10, 11, 25])
def test_places_are_those_of_a_loop(size):
    rng = np.random.default_rng(size)
    qid = rng.permutation(np.repeat([0, 1, 2], size))
    scores = rng.normal(size=len(qid))
    found = places(scores, group_rows(qid, len(qid)), 2.5)
    assert_array_equal(found.scores, scores / 2.5)
    for q in range(3):
        own = qid == q
        assert_allclose(found.columns[own], features_by_loop(scores[own], 2.5), atol=1e-12)


class TestModel:
    model = DocumentModel(np.array([-1.0, 0.5, 2.0]), np.arange(1.0, 14.0))

    def test_logits_are_sums_of_columns(self):
        scores, qid = np.array([0.3, -2.0, 3.0, 1.0]), [0, 0, 0, 1]
        found = self.model.logits(places(scores, group_rows(qid, 4), 1.0))
        for q, rows in ((0, [0, 1, 2]), (1, [3])):
            features = features_by_loop(scores[rows], 1.0)
            for j, place in zip(rows, features, strict=True):
                s = scores[j]
                pieces = [min(max((s + 1) / 1.5, 0), 1), min(max((s - 0.5) / 1.5, 0), 1)]
                values = [s, *pieces, *place, 1.0]
                assert found[j] == pytest.approx(
                    sum(c * v for c, v in zip(range(1, 14), values, strict=True))
                ), q

    @given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
    def test_probabilities_never_increase_down_the_ranking(self, scores, seed):
        rng = np.random.default_rng(seed)
        coefficients = rng.exponential(size=13) * rng.choice([0, 1, 1e-9, 30], 13)
        coefficients[8:] -= 1  # those of the query and the constant may be below 0
        model = DocumentModel(np.sort(rng.normal(size=3)), coefficients)
        x = np.array(scores)
        groups = group_rows(None, len(x))
        logits = model.logits(places(x, groups, 1.0))[sorted_order(x, groups)]
        assert (np.diff(logits) <= 0).all()

    def test_other_queries_change_no_bit(self):
        model = fit_document_model(places(*data()[::2], 1.0), data()[1])[0]
        scores, _, groups = data(seed=5)
        together = model.logits(places(scores, groups, 1.0))
        for a, b in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
            assert_array_equal(model.logits(places(scores[a:b], group_rows(None, b - a), 1.0)), together[a:b])

    def test_round_trip_is_exact(self):
        model = DocumentModel.from_record(self.model.record())
        assert_array_equal(model.knots, self.model.knots)
        assert_array_equal(model.coefficients, self.model.coefficients)

    @pytest.mark.parametrize(
        "change",
        [
            {"knots": np.array([0.5, 0.5, 2.0])}, {"knots": np.array([])}, {"knots": None}, {"knots": 3},
            {"knots": np.array([1e308, -1e308, 2.0])}, {"coefficients": np.arange(12.0)},
            {"coefficients": np.full(13, np.inf)}, {"coefficients": "0" * 13},
        ],
    )  # fmt: skip
    def test_what_is_not_valid(self, change):
        with pytest.raises((LookupError, TypeError, ValueError)):
            DocumentModel.from_record(self.model.record() | change)


class TestFit:
    def test_probabilities_are_close_to_the_true_ones(self):
        from scipy.stats import norm

        scores, outcome, groups = data(n_queries=800)
        model, held_out = fit_document_model(places(scores, groups, 1.0), outcome)
        new, _, others = data(n_queries=200, seed=1)
        p = model(places(new, others, 1.0))
        assert np.abs(p - norm.sf(1 - new)).mean() < 0.01
        assert (
            log_losses(held_out, outcome * 1.0).mean()
            < log_losses(np.full(9600, -1.0), outcome * 1.0).mean() - 0.1
        )

    def test_coefficients_of_increasing_functions_are_not_negative(self):
        scores, outcome, groups = data(noise=20.0)
        model = fit_document_model(places(-scores, groups, 1.0), outcome)[0]
        assert (model.coefficients[: len(model.knots) + 5] >= 0).all()

    def test_held_out_logits_do_not_see_the_outcomes_of_their_query(self):
        scores, outcome, groups = data()
        documents = places(scores, groups, 1.0)
        once = fit_document_model(documents, outcome)[1]
        changed = outcome.copy()
        own = groups.codes == 7
        changed[own] = ~changed[own]
        twice = fit_document_model(documents, changed)[1]
        # the shares of the penalties are those of all queries; the models of the fold are the same
        same = np.abs(twice - once)
        assert same[own].max() < 0.2 * same[~own].max()

    def test_fold_models_are_those_of_a_fit_without_the_fold(self):
        scores, outcome, groups = data(n_queries=80)
        t, folds = outcome * 1.0, groups.codes % 5
        rng = np.random.default_rng(0)
        Z = np.column_stack([scores, rng.normal(size=len(scores)), np.ones(len(scores))])
        bounded, penalties = np.array([True, True, False]), np.outer([3.0, 100.0], [0.0, 1.0, 0.0])
        paths = relevance._ridge_path(Z, t, penalties, bounded)
        models = relevance._fold_models(Z, t, folds, paths, penalties, bounded)
        for k in range(5):
            others = folds != k
            assert_allclose(
                models[k], relevance._ridge_path(Z[others], t[others], penalties, bounded), atol=5e-3
            )

    @pytest.mark.parametrize("level", [0.0, 1e6])
    def test_columns_of_equal_values_have_no_coefficient(self, level):
        scores, outcome, groups = data()  # all queries have the same size
        model = fit_document_model(places(scores + level, groups, 1.0), outcome)[0]
        assert model.coefficients[-5] == 0
        shorter = model(places(scores[:5] + level, group_rows(None, 5), 1.0))
        assert ((shorter > 1e-4) & (shorter < 1 - 1e-4)).all()

    def test_equal_scores_give_the_frequency(self):
        _, outcome, groups = data()
        model = fit_document_model(
            places(np.zeros(720), groups, 1.0), np.random.default_rng(0).permutation(outcome)
        )[0]
        p = model(places(np.zeros(720), groups, 1.0))
        assert p.mean() == pytest.approx(outcome.mean(), abs=1e-3)
        assert np.ptp(p) < 0.1

    def test_separable_outcomes(self):
        scores, _, groups = data()
        model, held_out = fit_document_model(places(scores, groups, 1.0), scores > 0.7)
        p = model(places(scores, groups, 1.0))
        assert np.isfinite(held_out).all()
        assert p[scores > 0.8].min() > 0.9
        assert p[scores < 0.6].max() < 0.1

    def test_outcomes_that_are_all_true(self):
        scores, _, groups = data()
        model, held_out = fit_document_model(places(scores, groups, 1.0), np.ones(720, dtype=bool))
        assert (model(places(scores, groups, 1.0)) > 0.999).all()
        assert (held_out > 5).all()

    def test_an_outcome_of_one_query_is_not_known_for_it(self):
        scores, _, groups = data()
        outcome = np.zeros(720, dtype=bool)
        outcome[12:15] = True
        held_out = fit_document_model(places(scores, groups, 1.0), outcome)[1]
        assert np.isnan(held_out[12:24]).all()
        assert 0 < np.isnan(held_out).sum() <= 720 / 5

    def test_more_documents_than_a_fit_takes(self, monkeypatch):
        scores, outcome, groups = data(n_queries=300)
        documents = places(scores, groups, 1.0)
        whole = fit_document_model(documents, outcome)[0]
        monkeypatch.setattr(relevance, "_FIT_ROWS", 2400)
        monkeypatch.setattr(relevance, "_CV_ROWS", 1200)
        some, held_out = fit_document_model(documents, outcome)
        assert np.isfinite(held_out).all()  # of all queries, though few documents were fitted
        assert np.abs(some(documents) - whole(documents)).mean() < 0.03

    def test_tied_knots(self):
        scores, outcome, groups = data()
        model = fit_document_model(places((scores > 1) * 1.0, groups, 1.0), outcome)[0]
        assert (np.diff(model.knots) > 0).all()
        assert np.isfinite(model.coefficients).all()
