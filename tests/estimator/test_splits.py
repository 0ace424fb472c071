"""The one split of queries: its laws, and that queries in memory are divided by it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear_problems import training_set

from sinkprop import Selection
from sinkprop.estimator.splits import NO_PATH, divide, split_queries

METHODS = st.sampled_from(["auto", "cross-validation", "validation"])


@given(
    st.integers(1, 700),
    st.integers(0, 40),
    METHODS,
    st.integers(2, 9),
    st.floats(0.01, 0.99),
    st.integers(0, 99),
)
def test_every_query_is_left_out_of_what_it_chooses_among(n, n_validation, method, n_splits, fraction, seed):
    selection = Selection(method, n_splits=n_splits, fraction=fraction)
    split = split_queries(n, n_validation, selection, np.random.default_rng(seed))
    total, codes = n + n_validation, split.codes
    if total == 1:
        assert codes is None
        assert (split.n_folds, split.in_words) == (0, "the one training query itself")
        return
    assert codes.shape == (total,)
    counts = np.bincount(codes[codes != NO_PATH], minlength=split.n_folds + 1)
    if selection.cross_validates(total):
        k = min(n_splits, total)
        assert split.n_folds == k
        assert list(split.paths) == list(range(k + 1))
        assert split.in_words == f"{k}-fold cross-validation over {total} queries"
        assert counts[0] == 0  # the model's own path trains on all
        assert counts.sum() == total
        assert counts[1:].max() - counts[1:].min() <= 1
        assert list(split.choosing) == list(range(1, k + 1))
    elif n_validation:
        assert split.in_words == f"{n_validation} validation queries"
        assert (codes[:n] == NO_PATH).all()
        assert (codes[n:] == 0).all()
    else:
        held = max(1, min(n - 1, round(fraction * n)))
        assert split.in_words == f"{held} queries held out"
        assert counts.tolist() == [held]
        assert list(split.choosing) == [0]


def test_the_draw_is_that_of_the_generator():
    # written out: every n_splits-th of a permutation is a part
    order = np.random.default_rng([7, 0]).permutation(10)
    split = split_queries(8, 2, Selection("cross-validation", n_splits=3), np.random.default_rng([7, 0]))
    for k in range(3):
        assert set(np.flatnonzero(split.codes == k + 1)) == set(order[k::3])
    held = split_queries(10, 0, Selection("validation", fraction=0.3), np.random.default_rng([7, 0]))
    assert set(np.flatnonzero(held.codes == 0)) == set(order[:3])


@pytest.mark.parametrize("with_validation", [False, True])
@pytest.mark.parametrize("method", ["cross-validation", "validation"])
def test_queries_in_memory_are_divided_by_it(method, with_validation):
    data, validation = training_set(9), training_set(4, seed=1) if with_validation else None
    selection, seed = Selection(method, n_splits=3, fraction=0.4), [3, 0]
    split = split_queries(9, 4 * with_validation, selection, np.random.default_rng(seed))
    division = divide(data, validation, selection, np.random.default_rng(seed))
    assert division.validated_on == split.in_words
    labels = [part.y for part in [data, *([validation] if with_validation else [])]]
    groups = np.concatenate([data.groups.sizes, validation.groups.sizes if with_validation else []]).astype(
        int
    )
    by_query = np.split(np.concatenate(labels), np.cumsum(groups)[:-1])
    assert [number for number, _ in division.validation] == list(split.choosing)
    for number, part in division.validation:
        chosen = np.flatnonzero(split.codes == number)
        np.testing.assert_array_equal(part.y, np.concatenate([by_query[q] for q in chosen]))
        rest = np.flatnonzero(split.codes != number)
        if method == "validation":
            rest = rest[rest < 9]
        trained = division.parts[number if method == "cross-validation" else 0]
        np.testing.assert_array_equal(trained.y, np.concatenate([by_query[q] for q in rest]))


@pytest.mark.parametrize(
    ("n", "n_validation", "folds"),
    [(1, 1, 2), (90, 30, 10), (600, 400, 10), (3000, 1000, 3), (9000, 1000, 1)],
)
def test_averaged_folds_validate_until_enough_queries_have(n, n_validation, folds):
    split = split_queries(n, n_validation, Selection(), np.random.default_rng(0), averaged=True)
    total = n + n_validation
    if folds == 1:
        assert split.in_words == f"{n_validation} validation queries"
        assert list(split.paths) == [0]
        return
    assert list(split.paths) == list(split.choosing) == list(range(1, folds + 1))
    validated = np.bincount(split.codes[split.codes != NO_PATH], minlength=folds + 1)[1:]
    assert validated.max() - validated.min() <= 1
    whole = min(10, total)
    assert validated.sum() == pytest.approx(total * folds / whole, abs=folds)
    assert split.in_words.startswith(f"{whole}-fold cross-validation over {total} queries")
    assert split.in_words.endswith("of the folds") == (folds < whole)


def test_an_average_of_candidates_is_for_linear_rankers():
    data = training_set(5)
    with pytest.raises(ValueError, match="the rule 'average' is for SinkPropRanker"):
        divide(data, None, Selection(rule="average"), np.random.default_rng(0))
