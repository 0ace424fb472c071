"""The choice among candidates, by criteria whose values are known."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop import evaluate
from sinkprop.data import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.criteria import metric_criterion
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.splits import divide
from sinkprop.estimator.tuning import Candidate, tune

VALIDATION = Selection("validation")


def queries(numbers, query_weight=None):
    """Two documents a query, of which the first is relevant; the feature is the query's number."""
    numbers = np.asarray(numbers, dtype=float)
    offsets = 2 * np.arange(len(numbers) + 1)
    X = np.stack([np.repeat(numbers, 2), np.tile([1.0, -1.0], len(numbers))], axis=1)
    y = np.tile([1.0, 0.0], len(numbers))
    return TrainingSet(X, y, Groups(offsets, None, np.arange(len(numbers)), 2), query_weight=query_weight)


def right_up_to(model, part):
    """Scores of a model that ranks the queries with numbers below `model` rightly, the others wrongly."""
    return np.where(part.X[:, 0] < model, part.X[:, 1], -part.X[:, 1])


def ladder(*models):
    def candidates(part):
        for i, model in enumerate(models):
            yield Candidate({"model": model}, model, float(len(part.y)), (0, i))

    return candidates


def run(data, validation, candidates, n_candidates, **options):
    criterion_of, criterion = metric_criterion("p@1", "letor")
    settings = {"selection": VALIDATION, "criterion_of": criterion_of, "criterion": criterion, **options}
    model, result, _ = tune(data, validation, candidates, right_up_to, n_candidates=n_candidates, **settings)
    return model, result


def test_the_best_on_the_validation_queries_is_taken():
    model, result = run(queries([1, 2]), queries([1, 2, 3, 4]), ladder(0, 3, 5, 2), 4)
    assert model == 5
    assert [trial.criterion for trial in result.trials] == [0, 0.5, 1, 0.25]
    assert [trial.chosen for trial in result.trials] == [False, False, True, False]
    assert result.chosen.setting == {"model": 5}
    assert [trial.value for trial in result.trials] == [4.0] * 4
    assert (result.status, result.criterion, result.validated_on) == (
        "finished",
        "p@1",
        "4 validation queries",
    )


def test_of_equals_the_first_is_taken():
    assert run(queries([1]), queries([1, 2]), ladder(0, 7, 9), 3)[0] == 7


def test_weights_of_the_validation_queries_count():
    validation = queries([1, 9], np.array([1.0, 3.0]))
    _, result = run(queries([1]), validation, ladder(0, 5), 2)
    assert [trial.criterion for trial in result.trials] == [0, 0.25]


def test_a_single_candidate_is_trained_on_everything_and_validated_on_nothing():
    model, result = run(queries([1, 2, 3]), None, ladder(2), 1)
    assert model == 2
    assert result.trials[0].value == 6.0  # all rows
    assert result.chosen.setting == {"model": 2}
    assert result.validated_on == ""


def test_the_record_has_the_criterion_of_the_training_queries():
    def known(part):
        for i in range(2):
            yield Candidate({"model": i}, i, 0.0, (0, i), training=0.25)

    data = queries([1, 9], np.array([1.0, 3.0]))
    _, result = run(data, queries([1]), ladder(0, 5, 20), 3)
    assert [trial.training for trial in result.trials] == [0, 0.25, 1]
    assert [trial.training for trial in run(data, queries([1]), known, 2)[1].trials] == [0.25, 0.25]


def test_without_validation_queries_some_are_held_out():
    _, result = run(queries(range(10)), None, ladder(0, 20), 2)
    assert result.validated_on == "2 queries held out"
    assert [trial.value for trial in result.trials] == [16.0, 16.0]  # rows that were left


def test_cross_validation_scores_every_query_by_a_fit_without_it():
    data, validation = queries(range(7)), queries(range(7, 12))
    seen = []

    def candidates(part):
        for i in range(2):
            # the model is the set of queries it was trained on
            yield Candidate({"round": i}, frozenset(part.X[::2, 0].tolist()), 0.0, (0, i), training=0.0)

    def scores(model, part):
        assert not model & set(part.X[:, 0].tolist())
        seen.append(part.X[::2, 0])
        return part.X[:, 1]

    criterion_of, criterion = metric_criterion("p@1", "letor")
    model, result, _ = tune(
        data, validation, candidates, scores, n_candidates=2, selection=Selection("cross-validation"),
        criterion_of=criterion_of, criterion=criterion,
    )  # fmt: skip
    assert model == frozenset(range(7))  # trained on the training queries
    assert_array_equal(np.sort(np.concatenate(seen)), np.repeat(np.arange(12.0), 2))
    assert result.validated_on == "5-fold cross-validation over 12 queries"


def test_the_smoothest_is_the_first_that_cannot_be_told_from_the_best():
    rule = Selection("validation", rule="smoothest")
    apart = [Candidate({"i": i}, model, 0.0, (5 * i, 0)) for i, model in enumerate([8, 9, 0])]
    model, _ = run(queries([1]), queries(range(20)), lambda part: iter(apart), 3, selection=rule)
    assert model == 9
    near = [Candidate({"i": i}, model, 0.0, (5 * i, 0)) for i, model in enumerate([19, 20, 0])]
    model, result = run(queries([1]), queries(range(20)), lambda part: iter(near), 3, selection=rule)
    # one query in twenty: a standard error of .05, and half of it is not enough
    assert_allclose(result.trials[0].standard_error, 0.05)
    assert model == 20


def test_an_interrupt_keeps_the_best_so_far():
    def candidates(part):
        yield from ladder(3, 5)(part)
        raise KeyboardInterrupt

    model, result = run(queries([1]), queries([1, 2, 3, 4]), candidates, 9)
    assert model == 5
    assert result.status == "interrupted"
    assert "interrupted" in result.message
    assert len(result.trials) == 2

    def at_once(part):
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        run(queries([1]), queries([2]), at_once, 9)


def test_paths_of_different_length_are_an_error():
    def candidates(part):
        return ladder(*range(len(part.y)))(part)

    with pytest.raises(ValueError, match="zip"):
        run(queries(range(11)), None, candidates, 22, selection=Selection("cross-validation"))


def test_one_query_validates_itself():
    assert run(queries([1]), None, ladder(0, 2), 2)[1].validated_on == "the one training query itself"


def test_progress_is_reported():
    seen = []
    run(queries([1]), queries([1, 2]), ladder(0, 2), 2, notify=lambda *report: seen.append(report))
    assert seen == [(1, 2, "model 0, best p@1 0.0000"), (2, 2, "model 2, best p@1 0.5000")]


def test_the_criterion_is_the_mean_of_its_metrics():
    data = queries([1, 2, 3])
    scores = right_up_to(3, data)
    criterion_of, name = metric_criterion(("ndcg@1", "map"), "letor")
    found = evaluate(data.y, scores, data.codes, ["ndcg@1", "map"], convention="letor")
    assert_allclose(criterion_of(data, scores), (found.per_query["ndcg@1"] + found.per_query["map"]) / 2)
    assert name == "ndcg@1,map"


def test_a_division_holds_every_query_once():
    data = queries(range(11))
    division = divide(data, None, Selection("cross-validation", n_splits=3), np.random.default_rng(0))
    held = [part.X[::2, 0] for _, part in division.validation]
    assert_array_equal(np.sort(np.concatenate(held)), np.arange(11))
    for (number, part), rest in zip(division.validation, division.parts[1:], strict=True):
        assert division.parts[number] is rest
        assert_array_equal(np.sort(np.concatenate([part.X[::2, 0], rest.X[::2, 0]])), np.arange(11))
    assert division.parts[0] is data
