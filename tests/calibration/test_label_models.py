"""The correction of first documents against SciPy's optimizer, and models of grades and of the best label."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.optimize import minimize

from sinkprop.calibration import label_models
from sinkprop.calibration.label_models import Best, Relevance, fit_best, fit_grades, of_firsts
from sinkprop.calibration.relevance import places
from sinkprop.data.queries import Groups, group_rows


def documents(seed=0, n_queries=60, size=8):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n_queries * size)
    labels = np.digitize(scores + rng.normal(size=len(scores)), [0.7, 2]).astype(float)
    return places(scores, Groups.of_sizes(np.full(n_queries, size)), 1.0), labels


@pytest.mark.parametrize("seed", range(40))
def test_correction_of_first_documents_is_scipys(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    x = np.clip(rng.normal(size=n) * rng.choice([0.1, 1, 20]) + rng.choice([-15, 0, 3]), -20, 20)
    right = rng.random(n) < rng.choice([0, 0.1, 0.5, 1])

    def penalized(line):
        logits = line[0] + line[1] * x
        return np.logaddexp(0, logits).sum() - right @ logits + 0.5 * (line[0] ** 2 + 4 * (line[1] - 1) ** 2)

    least = minimize(penalized, [0, 1], method="L-BFGS-B", bounds=[(None, None), (0, None)]).fun
    line = label_models._first_line(np.append(x, np.nan), np.append(right, True))
    assert line[1] >= 0
    assert penalized(line) <= least + 1e-4 * (1 + least)


def test_no_known_first_document_leaves_the_probabilities_alone():
    assert label_models._first_line(np.full(3, np.nan), np.ones(3, dtype=bool)).tolist() == [0, 1]


def test_values_of_first_documents_are_in_the_order_of_the_queries():
    scores, qid = np.array([0.1, 2.0, 1.0, -1.0]), ["b", "a", "b", "c"]
    assert of_firsts(np.arange(4), places(scores, group_rows(qid, 4), 1.0)).tolist() == [2, 1, 3]


def test_best_corrects_first_documents_only():
    found, labels = documents()
    best = fit_best(found, labels)
    plain, first = best.model(found), found.ranks == 1
    logits = best.model.logits(found)[first]
    assert_array_equal(best(found)[~first], plain[~first])
    np.testing.assert_allclose(best(found)[first], 1 / (1 + np.exp(-best.first[0] - best.first[1] * logits)))


def test_grades_are_the_labels_above_zero():
    found, labels = documents()
    assert [each.grade for each in fit_grades(found, labels)] == [1, 2]
    assert [each.grade for each in fit_grades(found, 10 * labels)] == [10, 20]
    assert fit_grades(found, 0 * labels) == ()


def test_statistics_count_the_queries_with_the_grade():
    found, labels = documents()
    for each in fit_grades(found, labels):
        has = np.maximum.reduceat(labels, found.groups.offsets[:-1]) >= each.grade
        assert each.lists.n_queries == has.sum()
        assert each.answers.answered[-1] == 60
        assert each.answers.right[-1] == (labels[found.ranks == 1] >= each.grade).sum()


def test_round_trips_are_exact():
    found, labels = documents()
    best = fit_best(found, labels)
    assert_array_equal(Best.from_record(best.record())(found), best(found))
    for each in fit_grades(found, labels):
        read = Relevance.from_record(each.record())
        assert read.grade == each.grade
        assert_array_equal(read.model(found), each.model(found))


@pytest.mark.parametrize("grade", [0.0, -1.0, float("nan"), float("inf"), 1, "1", None, 10**400])
def test_grades_that_are_not_valid(grade):
    state = fit_grades(*documents(n_queries=12))[0].record()
    with pytest.raises(ValueError, match="a grade must be a finite float above 0"):
        Relevance.from_record(state | {"grade": grade})
