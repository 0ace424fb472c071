"""Click logs: sessions, counts, selections, and what they refuse."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkprop import Queries
from sinkprop.clicks import ClickLog, PositionBasedModel, simulate_clicks

DOCUMENTS = Queries(np.arange(10.0).reshape(5, 2), np.zeros(5), ["a", "a", "b", "a", "b"])
LOG = {"rows": [3, 0, 2, 1, 0, 3], "clicked": [0, 1, 1, 0, 0, 1], "offsets": [0, 2, 3, 6]}


def test_positions_sessions_and_queries_of_a_small_log():
    log = ClickLog(DOCUMENTS, **LOG)
    assert log.positions.tolist() == [1, 2, 1, 1, 2, 3]
    assert log.sessions.tolist() == [0, 0, 1, 2, 2, 2]
    assert log.queries.tolist() == [0, 1, 0]
    assert (log.n_sessions, len(log), log.n_clicks, log.longest) == (3, 6, 3, 3)
    assert repr(log) == (
        "<ClickLog: 3 sessions of 2 queries, 6 impressions of 5 documents, 3 clicks, positions 1 to 3>"
    )


def test_counts_of_a_small_log_are_those_counted_by_hand():
    log = ClickLog(DOCUMENTS, **LOG)
    counts = log.counts
    found = zip(counts.rows, counts.positions, counts.impressions, counts.clicks, strict=True)
    assert sorted(found) == [(0, 2, 2, 1), (1, 1, 1, 0), (2, 1, 1, 1), (3, 1, 1, 0), (3, 3, 1, 1)]
    doubled = log.counted(np.array([2.0, 0.0, 0.5]))
    assert doubled.impressions.tolist() == [2.5, 0.5, 0.0, 2.0, 0.5]
    assert doubled.clicks.tolist() == [2.0, 0.0, 0.0, 0.0, 0.5]


@st.composite
def logs(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    n = draw(st.integers(max(sizes), 6))
    rows = np.concatenate([draw(st.permutations(range(n)))[:size] for size in sizes])
    clicked = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    documents = Queries(np.zeros((n, 1)), np.zeros(n), np.zeros(n, dtype=int))
    return ClickLog(documents, rows, clicked, np.r_[0, np.cumsum(sizes)])


@given(logs())
def test_counts_equal_a_count_over_impressions(log):
    shown, clicks = Counter(), Counter()
    for s in range(log.n_sessions):
        for k, i in enumerate(range(log.offsets[s], log.offsets[s + 1])):
            shown[log.rows[i], k + 1] += 1
            clicks[log.rows[i], k + 1] += log.clicked[i]
    counts = log.counts
    cells = list(zip(counts.rows.tolist(), counts.positions.tolist(), strict=True))
    assert dict(zip(cells, counts.impressions, strict=True)) == shown
    assert dict(zip(cells, counts.clicks, strict=True)) == {cell: clicks[cell] for cell in cells}


@given(logs(), st.integers(1, 5))
def test_a_selection_has_the_sessions_in_the_order_asked_for(log, k):
    order = np.arange(log.n_sessions)[::-1]
    turned = log.select(order)
    lists = [log.rows[a:b].tolist() for a, b in zip(log.offsets[:-1], log.offsets[1:], strict=True)]
    back = [turned.rows[a:b].tolist() for a, b in zip(turned.offsets[:-1], turned.offsets[1:], strict=True)]
    assert back == lists[::-1]
    top = log.first(k)
    cut = [top.rows[a:b].tolist() for a, b in zip(top.offsets[:-1], top.offsets[1:], strict=True)]
    assert cut == [rows[:k] for rows in lists]


def test_selection_by_a_mask_keeps_what_belongs_to_the_sessions():
    log = ClickLog(
        DOCUMENTS,
        **LOG,
        propensity=np.linspace(0.1, 0.6, 6),
        policy=[1, 0, 1],
        policies=("old", "new"),
        value=np.arange(6.0),
    )
    part = log.select(np.array([False, True, True]))
    assert part.rows.tolist() == [2, 1, 0, 3]
    assert part.policy.tolist() == [0, 1]
    assert part.value.tolist() == [2, 3, 4, 5]
    np.testing.assert_allclose(part.propensity, [0.3, 0.4, 0.5, 0.6])
    assert part.first(1).value.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": [3, 0, 9, 1, 0, 3]}, "rows must be rows of documents, 0 to 4"),
        ({"rows": [3.5, 0, 2, 1, 0, 3]}, "rows must be a 1-d array of whole numbers"),
        ({"rows": []}, "rows must be a 1-d array of whole numbers; got float64"),
        ({"rows": np.zeros(0, int), "clicked": [], "offsets": [0]}, "the log has no impressions"),
        ({"offsets": [0, 2, 2, 6]}, "offsets must increase from 0 to the number of impressions, 6"),
        ({"offsets": [0, 2, 5]}, "offsets must increase"),
        ({"offsets": np.array([0, 3, 2, 6], np.uint64)}, "offsets must increase"),
        ({"clicked": [0, 2, 1, 0, 0, 1]}, "clicked must be 0 or 1, or False or True; impression 1 has 2"),
        ({"clicked": [0, 1]}, "clicked must have one entry per impression"),
        ({"rows": [3, 2, 2, 1, 0, 3]}, "session 0 shows documents of several queries"),
        ({"rows": [3, 0, 2, 1, 0, 1]}, "session 2 shows the document in row 1 of documents at two positions"),
        (
            {"propensity": [0.5, 0, 1, 1, 1, 1]},
            "propensity must be above 0 and at most 1; impression 1 has 0",
        ),
        ({"propensity": [0.5, np.nan, 1, 1, 1, 1]}, "impression 1 has nan"),
        ({"value": [0, 0, -1, 0, 0, 0]}, "value must be finite and not below 0; impression 2 has -1"),
        ({"policy": [0, 1, 2], "policies": ("x", "y")}, "policy must have one index of policies"),
    ],
)
def test_a_log_that_cannot_be_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        ClickLog(DOCUMENTS, **{**LOG, **changed})


def test_an_empty_selection_is_refused():
    for nothing in (np.zeros(3, dtype=bool), [], np.zeros(0, int)):
        with pytest.raises(ValueError, match="no session is selected"):
            ClickLog(DOCUMENTS, **LOG).select(nothing)
    with pytest.raises(ValueError, match="a mask of sessions needs 3 entries; got 2"):
        ClickLog(DOCUMENTS, **LOG).select(np.ones(2, dtype=bool))


@pytest.mark.parametrize(
    ("sessions", "message"),
    [
        ([-2], "sessions must be indices of sessions, 0 to 2; got -2"),
        ([0, -1], "sessions must be indices of sessions, 0 to 2; got -1"),
        ([1, 3, 4], "sessions must be indices of sessions, 0 to 2; got 3"),
        (np.array([2**63], np.uint64), "0 to 2; got 9223372036854775808"),
        ([0.0, 1.0], r"a 1-d array of whole numbers or a mask of sessions; got float64 of shape \(2,\)"),
        (1, r"a 1-d array of whole numbers or a mask of sessions; got int64 of shape \(\)"),
        (True, r"got bool of shape \(\)"),
        ([[0, 1]], r"got int64 of shape \(1, 2\)"),
        (np.ones((3, 1), bool), r"got bool of shape \(3, 1\)"),
        (["0"], r"got <U1 of shape \(1,\)"),
    ],
)
def test_a_selection_of_what_is_no_session_is_refused(sessions, message):
    with pytest.raises(ValueError, match=message):
        ClickLog(DOCUMENTS, **LOG).select(sessions)


def test_a_selection_by_unsigned_indices_and_with_repetitions():
    log = ClickLog(DOCUMENTS, **LOG, policy=[0, 1, 0], policies=("x", "y"))
    part = log.select(np.array([2, 0, 2], np.uint8))
    assert part.rows.tolist() == [1, 0, 3, 3, 0, 1, 0, 3]
    assert part.policy.tolist() == [0, 0, 0]
    assert log.select([1]).policy.tolist() == [1]


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (0, "k must be at least 1; got 0"),
        (-1, "k must be at least 1; got -1"),
        (1.5, "k must be a whole number, at least 1; got 1.5"),
        ("2", "k must be a whole number, at least 1; got '2'"),
        (True, "k must be a whole number, at least 1; got True"),
    ],
)
def test_a_number_of_positions_that_cannot_be_is_refused(k, message):
    with pytest.raises(ValueError, match=message):
        ClickLog(DOCUMENTS, **LOG).first(k)


def test_the_number_of_one_thing_is_singular():
    one = ClickLog(Queries([[1.0]], [0], ["q"]), [0], [1], [0, 1])
    assert repr(one) == "<ClickLog: 1 session of 1 query, 1 impression of 1 document, 1 click, position 1>"
    two = ClickLog(Queries([[1.0], [2.0]], [0, 0], ["q", "q"]), [0, 1], [0, 0], [0, 2])
    assert repr(two) == (
        "<ClickLog: 1 session of 1 query, 2 impressions of 2 documents, 0 clicks, positions 1 to 2>"
    )


def test_counts_of_more_cells_than_32_bits_can_number():
    n = 2**16
    documents = Queries(np.zeros((n, 1)), np.zeros(n), np.zeros(n, int))
    rows = np.arange(n)[::-1]
    log = ClickLog(documents, rows, rows == 7, [0, n])
    counts = log.counts
    assert counts.rows.tolist() == list(range(n))
    assert counts.positions.tolist() == list(range(n, 0, -1))
    assert np.flatnonzero(counts.clicks).tolist() == [7]


def test_a_million_impressions_of_one_query_and_one_document():
    n = 10**6
    documents = Queries([[1.0]], [0], ["q"])
    log = ClickLog(documents, np.zeros(n, int), np.arange(n) % 4 == 0, np.arange(n + 1))
    assert log.counts.impressions.tolist() == [n]
    assert log.counts.clicks.tolist() == [n / 4]


def test_simulated_click_rates_are_examination_times_relevance():
    queries = Queries(np.eye(6), [0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])
    relevance = np.array([0.2, 0.5, 0.9, 0.1, 0.6, 0.8])
    users = PositionBasedModel(np.array([1.0, 0.5, 0.2]))
    log = simulate_clicks(queries, -np.arange(6.0), 60_000, users, relevance=relevance, seed=3)
    counts = log.counts
    expected = users.examination[counts.positions - 1] * relevance[counts.rows]
    error = np.sqrt(expected * (1 - expected) / counts.impressions)
    assert (np.abs(counts.clicks / counts.impressions - expected) < 4 * error).all()


def test_simulated_swaps_exchange_the_first_position_with_every_other_one_equally_often():
    queries = Queries(np.eye(4), np.zeros(4), [0, 0, 0, 0])
    users = PositionBasedModel(np.ones(4))
    log = simulate_clicks(queries, [4, 3, 2, 1], 40_000, users, swaps="pairs", seed=0)
    first = np.bincount(log.rows[log.offsets[:-1]], minlength=4)
    np.testing.assert_allclose(first / 40_000, 0.25, atol=0.01)
    # where document 3 is first, document 0 has its place, and the others have their own
    sessions = log.rows.reshape(-1, 4)
    assert (sessions[sessions[:, 0] == 3] == [3, 1, 2, 0]).all()


def test_a_click_counts_only_with_enough_value():
    log = ClickLog(DOCUMENTS, **LOG, value=[90, 30, 29.5, 0, 0, 31])
    satisfied = log.satisfied(30)
    assert satisfied.clicked.tolist() == [False, True, False, False, False, True]
    assert (satisfied.rows == log.rows).all()
    assert satisfied.n_clicks == 2
    with pytest.raises(ValueError, match="the log has no values"):
        ClickLog(DOCUMENTS, **LOG).satisfied(30)
    with pytest.raises(ValueError, match="least must be a finite number"):
        log.satisfied(np.nan)
