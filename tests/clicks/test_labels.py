"""Labels without position bias: unbiased over all clicks, clips, predictions, and what they refuse."""

import json
from itertools import product

import numpy as np
import pytest

from sinkprop import NDCG, RBP, Precision, Queries
from sinkprop.clicks import (
    CascadeModel,
    ClickLog,
    ClickModel,
    PositionBasedModel,
    Propensities,
    TrustBiasModel,
    click_relevance,
    debias,
    harvest_bias,
    simulate_clicks,
)
from sinkprop.datasets import make_ranking

EXAMINATION = np.array([1.0, 0.5, 0.25])
USERS = PositionBasedModel(EXAMINATION)
DOCUMENTS = Queries([[1.0], [2.0], [3.0], [4.0]], [0, 0, 0, 0], [1, 1, 1, 2])
# three sessions of query 1 by two rankers, and one of query 2
ROWS, OFFSETS = np.array([0, 1, 2, 2, 1, 0, 1, 0, 3]), np.array([0, 3, 6, 8, 9])


def log_of(clicked):
    return ClickLog(DOCUMENTS, ROWS, clicked, OFFSETS)


class Affine(ClickModel):
    """Clicks by trust: slope r + intercept."""

    relevance = None

    def __init__(self, slope, intercept):
        self.slope, self.intercept = slope, intercept

    def examination_curve(self):
        return self.slope / self.slope[0]

    def propensities(self, log):
        at = log.positions - 1
        return Propensities(self.slope[at], self.intercept[at])

    def draw(self, relevance, offsets, rng):
        raise NotImplementedError


@pytest.mark.parametrize("method", ["inverse propensity", "doubly robust"])
@pytest.mark.parametrize("trust", [False, True])
def test_the_mean_estimate_over_all_possible_clicks_is_the_relevance(method, trust):
    r = np.array([0.3, 0.8, 0.1, 0.6])
    model = Affine(EXAMINATION * 0.8, np.array([0.2, 0.1, 0.05])) if trust else USERS
    p = model.propensities(log_of(np.zeros(9)))
    click = p.slope * r[ROWS] + p.intercept
    mean = np.zeros(4)
    prediction = np.array([0.5, 0.4, 0.9, 0.2])
    for clicks in product([0, 1], repeat=9):
        if not any(clicks):
            continue  # refused; its share of the mean is added below
        outcome = np.array(clicks)
        chance = np.prod(np.where(outcome == 1, click, 1 - click))
        found = debias(log_of(outcome), model, method=method, relevance=prediction, clip=0.0)
        mean += chance * found.relevance
    examined = np.bincount(ROWS, p.slope)
    mean += np.prod(1 - click) * (-np.bincount(ROWS, p.intercept) / examined)
    np.testing.assert_allclose(mean, r, atol=1e-12)


def test_estimates_are_the_ratios_of_the_module_documentation():
    log = log_of([1, 0, 0, 1, 1, 0, 0, 1, 1])
    found = debias(log, USERS, method="inverse propensity", clip=0.0)
    # document 0: positions 1, 3, 2; clicks 1, 0, 1
    np.testing.assert_allclose(found.relevance, [2 / 1.75, 1 / 2.0, 1 / 1.25, 1.0])
    np.testing.assert_allclose(found.examinations, [1.75, 2.0, 1.25, 1.0])
    assert found.sessions.tolist() == [3, 1]
    clipped = debias(log, USERS, method="inverse propensity", clip=0.6)
    np.testing.assert_allclose(clipped.relevance, [2 / 1.8, 1 / 2, 1 / 1.8, 1.0])
    m = np.array([0.5, 0.5, 0.5, 0.25])
    robust = debias(log, USERS, relevance=m, clip=0.6)
    np.testing.assert_allclose(robust.relevance[0], 0.5 + (2 - 1.75 * 0.5) / 1.8)
    np.testing.assert_allclose(robust.relevance[2], 0.5 + (1 - 1.25 * 0.5) / 1.8)
    naive = debias(log, method="none")
    np.testing.assert_allclose(naive.relevance, [2 / 3, 1 / 3, 1 / 2, 1.0])
    assert naive.model is None


def test_documents_that_were_never_shown_are_unknown_or_predicted():
    documents = Queries(np.arange(10.0)[:, None], np.zeros(10), np.repeat([0, 1, 2, 3, 4], 2))
    log = ClickLog(documents, [0, 2, 3, 4, 6], [1, 0, 1, 1, 0], [0, 1, 3, 4, 5])
    users = PositionBasedModel(np.array([1.0, 0.5]))
    ips = debias(log, users, method="inverse propensity")
    assert np.flatnonzero(ips.known).tolist() == [0, 2, 3, 4, 6]
    assert len(ips.queries()) == 5
    robust = debias(log, users)
    assert np.flatnonzero(robust.known).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]  # query 4 has no session
    np.testing.assert_allclose(robust.query_weight, [1, 1, 1, 1])
    assert robust.summary()["documents_unknown"] == 2


def test_the_summary_of_an_estimate_is_plain_json():
    queries = make_ranking(40, random_state=3)
    users = PositionBasedModel(1 / np.arange(1.0, 6))
    log = simulate_clicks(queries, queries.X[:, :2].T, 3000, users, k=5, policies=["a", "b"], seed=0)
    bias = harvest_bias(log)
    found = debias(log, bias)
    summary = found.summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary == {
        "sessions": 3000,
        "impressions": 15_000,
        "clicks": log.n_clicks,
        "method": "doubly robust",
        "clip": found.clip,
        "clip_choice": {
            "clips": found.choice.clips.tolist(),
            "errors": found.choice.errors.tolist(),
            "standard_errors": found.choice.standard_errors.tolist(),
        },
        "click_model": "PositionBasedModel",
        "bias_method": "harvest",
        "examination": bias.examination.round(6).tolist(),
        "interval": bias.interval.round(6).tolist(),
        "documents": len(queries),
        "documents_unknown": int((~found.known).sum()),
    }


def test_what_a_summary_does_not_know_is_none():
    log = log_of([1, 0, 0, 1, 1, 0, 0, 1, 1])
    given = debias(log, USERS, clip=0.1).summary()
    assert given["examination"] == EXAMINATION.tolist()
    assert (given["clip_choice"], given["bias_method"], given["interval"]) == (None, None, None)
    naive = debias(log, method="none").summary()
    unknown = ("clip_choice", "click_model", "bias_method", "examination", "interval")
    assert [naive[name] for name in unknown] == [None] * 5
    wide = PositionBasedModel(EXAMINATION, interval=[[1, 0.4, 0], [1, 0.6, np.inf]])
    assert debias(log, wide).summary()["interval"] == [[1.0, 0.4, 0.0], [1.0, 0.6, None]]


def test_the_curve_of_a_cascade_that_was_not_fitted_is_the_average_over_the_log():
    # clicks at the positions 1 and 2 of the first two sessions, none in the third, and one in the fourth
    found = debias(log_of([1, 0, 0, 0, 1, 0, 0, 0, 1]), CascadeModel()).summary()
    assert found["click_model"] == "CascadeModel"
    assert found["examination"] == [4 / 4, round(2 / 3, 6), 0 / 2]


def test_labels_give_the_gain_of_the_estimates_and_none_is_negative():
    model = Affine(np.full(3, 0.5), np.full(3, 0.3))
    found = debias(log_of([1, 0, 0, 1, 0, 0, 0, 1, 1]), model, method="inverse propensity", clip=0.0)
    r = found.relevance
    assert r.min() < 0
    of_query_1 = r[:3] - r[:3].min()
    exponential = found.queries(NDCG(10))
    np.testing.assert_allclose(NDCG(10).gains(exponential.y), [*of_query_1, r[3]])
    np.testing.assert_allclose(found.queries(RBP(0.8)).y, [*of_query_1, r[3]])
    np.testing.assert_allclose(found.queries(NDCG(gain="linear") + RBP(0.5)).y, [*of_query_1, r[3]])
    np.testing.assert_array_equal(found.queries().y, exponential.y)


def test_queries_are_weighted_by_their_sessions_in_the_order_of_the_documents():
    documents = Queries(np.eye(4), np.zeros(4), ["b", "a", "b", "a"])
    log = ClickLog(documents, [1, 3, 1, 1, 0, 2], [1, 0, 0, 1, 1, 0], [0, 2, 3, 4, 6])
    found = debias(log, PositionBasedModel(np.array([1.0, 0.5])), method="inverse propensity")
    assert found.queries().groups.queries.tolist() == ["b", "a"]
    np.testing.assert_allclose(found.query_weight, [0.5, 1.5])


@pytest.mark.parametrize("method", ["inverse propensity", "doubly robust"])
def test_the_chosen_clip_has_an_error_within_one_standard_error_of_the_least(method):
    queries = make_ranking(60, random_state=3)
    users = PositionBasedModel(1 / np.arange(1.0, 121))
    log = simulate_clicks(queries, queries.X[:, 0], 3000, users, relevance=click_relevance(queries.y), seed=0)
    choice = debias(log, users, method=method).choice
    best = choice.errors.argmin()
    within = choice.errors <= choice.errors[best] + choice.standard_errors
    assert choice.clip == choice.clips[within].min()
    assert np.ptp(choice.errors) > 0
    given = debias(log, users, method=method, clip=0.03)
    assert (given.clip, given.choice) == (0.03, None)


def test_the_estimated_error_of_a_clip_is_its_mean_squared_error():
    queries = make_ranking(3, sizes=(4, 4), random_state=4)
    r = np.linspace(0.05, 0.6, 12)
    users = TrustBiasModel(np.array([0.7, 0.3, 0.1, 0.02]), np.array([0.2, 0.1, 0.05, 0.02]))
    m = np.full(12, 0.2)
    clips = (0.0, 0.05, 0.3)
    estimated, actual = [], []
    for seed in range(400):
        log = simulate_clicks(queries, queries.X[:, 0], 60, users, relevance=r, seed=seed)
        estimated.append(debias(log, users, relevance=m, clips=clips).choice.errors)
        N = np.bincount(log.queries, minlength=3)[log.documents.groups.codes]
        found = [debias(log, users, relevance=m, clip=clip) for clip in clips]
        examined = found[0].examinations > 0
        squared = np.array([(labels.relevance - r) ** 2 for labels in found])
        actual.append((squared * N)[:, examined].sum(axis=1) / N[examined].sum())
    apart = np.array(estimated) - actual
    error = apart.std(axis=0, ddof=1) / np.sqrt(len(apart))
    assert np.mean(actual, axis=0)[0] > 3 * np.mean(actual, axis=0)[1]  # that of no clip is mostly variance
    assert (np.abs(apart.mean(axis=0)) < 4 * error).all()
    assert (error < 0.4 * np.mean(actual, axis=0)).all()


def test_debiased_labels_rank_as_the_true_ones_where_click_rates_do_not():
    queries = make_ranking(40, random_state=2)
    r = click_relevance(queries.y)
    users = PositionBasedModel(1 / np.arange(1.0, 121))
    # the production ranker prefers documents that are not relevant
    log = simulate_clicks(queries, -r, 200_000, users, seed=1)
    naive, found = debias(log, method="none"), debias(log, users, method="inverse propensity", clip=0.0)
    assert np.corrcoef(naive.relevance, r)[0, 1] < 0.2
    assert np.corrcoef(found.relevance, r)[0, 1] > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "ips"}, "method must be 'doubly robust' or"),
        ({"clip": 1.5}, "clip must be at most 1; got 1.5"),
        ({"clip": -0.1}, "clip must be a finite number, not below 0"),
        ({"clips": [2.0]}, "clips must be a number from 0 to 1"),
        (
            {"relevance": np.zeros(3)},
            r"relevance must have one finite number per document of the log, \(4,\)",
        ),
        ({"relevance": np.full(4, np.nan)}, "relevance must have one finite number"),
    ],
)
def test_wrong_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        debias(log_of([1, 0, 0, 1, 0, 0, 0, 1, 1]), USERS, **arguments)


@pytest.mark.parametrize("method", ["doubly robust", "inverse propensity", "none"])
def test_what_is_no_log_or_no_model_is_refused(method):
    with pytest.raises(ValueError, match=r"log must be a ClickLog, .* type Queries"):
        debias(DOCUMENTS, USERS, method=method)
    for wrong in ("pbm", PositionBasedModel, EXAMINATION):
        with pytest.raises(
            ValueError, match=r"model must be a ClickModel, .* or None, to estimate one; got "
        ):
            debias(log_of([1, 0, 0, 1, 0, 0, 0, 1, 1]), wrong, method=method)


@pytest.mark.parametrize("clip", [0, 0.5, 1, 1.0])
def test_clip_and_clips_have_the_same_range(clip):
    log = log_of([1, 0, 0, 1, 1, 0, 0, 1, 1])
    given = debias(log, USERS, method="inverse propensity", clip=clip)
    chosen = debias(log, USERS, method="inverse propensity", clips=[clip])
    assert given.clip == chosen.clip == clip
    np.testing.assert_array_equal(given.relevance, chosen.relevance)


def test_a_log_without_clicks_is_refused():
    with pytest.raises(ValueError, match="the log has no clicks, so nothing can be learned"):
        debias(log_of(np.zeros(9)), USERS)


def test_gains_that_count_labels_are_refused():
    found = debias(log_of([1, 0, 0, 1, 0, 0, 0, 1, 1]), USERS)
    with pytest.raises(ValueError, match="the value of p@5 is not linear in them"):
        found.queries(Precision(5))


def test_one_query_with_one_document_is_labeled():
    documents = Queries([[1.0]], [0], [1])
    log = ClickLog(documents, [0, 0, 0, 0], [1, 0, 1, 1], [0, 1, 2, 3, 4])
    assert debias(log, PositionBasedModel(np.ones(1))).relevance.tolist() == [0.75]
