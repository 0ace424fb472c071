"""Cross-fitting: the order of fits, the time budget, and scores of queries that were not trained on."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sinkprop.auto import crossfit
from sinkprop.auto.clock import Clock, OutOfTimeError
from sinkprop.auto.crossfit import cross_fit, planned, spread
from sinkprop.auto.members import KINDS, Settings, fitted_member, named_methods
from sinkprop.common.progress import silent
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.selection import Selection

SETTINGS = Settings(None, None, "ndcg@10", "standard", 1, 0)


def queries(n, size=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n * size, 2))
    return TrainingSet(X, rng.integers(0, 2, n * size).astype(float), Groups.of_sizes(np.full(n, size)))


class Recorder:
    """Stands in for `fitted_member`: records the fits, and takes a given number of seconds for each."""

    def __init__(self, clock, seconds, errors=()):
        self.clock, self.seconds, self.errors, self.fits = clock, seconds, dict(errors), []

    def __call__(self, name, settings, data, validation, clock):
        self.fits.append((name, data, validation))
        if name in self.errors:
            raise self.errors[name]
        self.clock.now += self.seconds[name]
        clock.check()
        return self

    fit_result_ = None

    def predict(self, X, qid):
        return X[:, 0]


class SteppedClock(Clock):
    """A clock that moves only when it is told to."""

    def __init__(self, budget):
        super().__init__(budget)
        self.now = 0.0

    @property
    def seconds(self):
        return self.now


def crossed(monkeypatch, budget, seconds, n=20, selection="cross-validation", errors=()):
    clock = SteppedClock(budget)
    recorder = Recorder(clock, seconds, errors)
    monkeypatch.setattr(crossfit, "fitted_member", recorder)
    division = planned(queries(n), None, Selection(selection), np.random.default_rng(0))
    found = cross_fit(list(seconds), division, SETTINGS, clock, silent)
    return found, recorder, division


def test_spread_is_the_standard_deviation_within_queries():
    rng = np.random.default_rng(0)
    sizes = np.array([1, 5, 3])
    scores = rng.normal(size=9)
    parts = np.split(scores, [1, 6])
    by_hand = np.sqrt(sum(np.square(part - part.mean()).sum() for part in parts) / 9)
    assert_allclose(spread(scores, Groups.of_sizes(sizes)), by_hand)
    assert spread(np.ones(9), Groups.of_sizes(sizes)) == 1


@pytest.mark.parametrize(
    ("n", "n_validation", "method", "n_fits"),
    [
        (20, 0, "auto", 5),
        (20, 8, "auto", 5),
        (3, 0, "auto", 3),
        (600, 0, "auto", 5),
        (600, 8, "auto", 1),
        (2100, 0, "auto", 1),
        (20, 0, "validation", 1),
        (20, 8, "validation", 1),
        (2100, 0, "cross-validation", 5),
    ],
)
def test_the_number_of_queries_decides_how_they_are_held_out(n, n_validation, method, n_fits):
    validation = queries(n_validation, seed=1) if n_validation else None
    division = planned(queries(n), validation, Selection(method), np.random.default_rng(0))
    assert len(division.validation) == n_fits


def test_no_ranker_sees_the_queries_it_is_compared_on(monkeypatch):
    found, recorder, division = crossed(monkeypatch, 100, {"ridge": 1, "linear": 2})
    assert [name for name, _, _ in recorder.fits] == ["ridge", "linear"] * 5
    seen = []
    for k, held in division.validation:
        rows = {tuple(row) for row in held.X.tolist()}
        for name, data, validation in recorder.fits[2 * (k - 1) : 2 * k]:
            assert validation is None
            assert rows.isdisjoint(map(tuple, data.X.tolist())), name
            assert len(rows) + len(data.X) == 80
        seen += held.X.tolist()
    assert len(seen) == 80
    assert not found.stopped
    assert [len(fit.models) for fit in found.fits] == [5, 5]


def test_a_validation_set_also_chooses_inside_the_members(monkeypatch):
    _, recorder, division = crossed(monkeypatch, 100, {"ridge": 1}, selection="validation")
    ((_, held),) = division.validation
    assert recorder.fits[0][2] is held


def test_all_members_are_compared_on_the_same_queries_when_the_time_ends(monkeypatch):
    found, recorder, _ = crossed(monkeypatch, 50, {"ridge": 1, "linear": 10, "trees": 5})
    # one round takes 16 seconds: three rounds, then what still fits
    assert [name for name, _, _ in recorder.fits[:9]] == ["ridge", "linear", "trees"] * 3
    assert {fit.name: len(fit.models) for fit in found.fits} == {"ridge": 4, "linear": 3, "trees": 3}
    assert recorder.clock.now <= 50
    assert all(fit.out_of_time and "one more fit would take" in fit.ended for fit in found.fits)


def test_a_slow_member_does_not_take_the_time_of_the_others(monkeypatch):
    found, _, _ = crossed(monkeypatch, 60, {"ridge": 1, "linear": 45, "trees": 1, "networks": 1})
    fits = {fit.name: fit for fit in found.fits}
    assert len(fits["linear"].models) == 0
    assert fits["linear"].lost == 45
    assert "its share of the time budget" in fits["linear"].ended
    assert len(fits["trees"].models) >= 2


def test_what_cannot_finish_is_not_started(monkeypatch):
    found, recorder, _ = crossed(monkeypatch, 0.01, {"ridge": 1, "linear": 1})
    assert recorder.fits == []
    assert all(fit.out_of_time for fit in found.fits)


def test_a_member_that_fails_is_reported_and_the_others_go_on(monkeypatch):
    with pytest.warns(RuntimeWarning, match="trees failed: ValueError: no good"):
        found, _, _ = crossed(
            monkeypatch, 100, {"ridge": 1, "trees": 1}, errors={"trees": ValueError("no\ngood")}
        )
    ridge, trees = found.fits
    assert (len(ridge.models), len(trees.models)) == (5, 0)
    assert trees.ended == "failed: ValueError: no good"
    assert not trees.out_of_time


def test_an_interrupt_keeps_the_finished_fits_or_goes_on_if_there_are_none(monkeypatch):
    found, _, _ = crossed(monkeypatch, 100, {"ridge": 1, "linear": 1}, errors={"linear": KeyboardInterrupt()})
    assert found.stopped
    assert [len(fit.models) for fit in found.fits] == [1, 0]
    with pytest.raises(KeyboardInterrupt):
        crossed(monkeypatch, 100, {"linear": 1}, errors={"linear": KeyboardInterrupt()})


class TickingClock(Clock):
    """A clock that moves by one second whenever it is read."""

    ticks = 0

    @property
    def seconds(self):
        self.ticks += 1
        return float(self.ticks)


def test_trees_that_run_out_of_time_keep_what_has_grown():
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    data = queries(20, size=20)
    clock = TickingClock(30)
    ranker = fitted_member("trees", SETTINGS, data, None, clock)
    assert clock.n_cut == 1
    assert 1 <= ranker.n_trees_ <= 30
    assert np.isfinite(ranker.predict(data.X)).all()


def test_a_linear_ranker_that_runs_out_of_time_raises():
    with pytest.raises(OutOfTimeError):
        fitted_member("linear", SETTINGS, queries(6), None, TickingClock(4))


def test_a_fit_that_was_cut_short_is_the_last_of_its_member(monkeypatch):
    clock = SteppedClock(100)
    recorder = Recorder(clock, {"ridge": 1, "trees": 1})

    def cutting(name, settings, data, validation, clock):
        clock.n_cut += name == "trees"
        return recorder(name, settings, data, validation, clock)

    monkeypatch.setattr(crossfit, "fitted_member", cutting)
    division = planned(queries(20), None, Selection("cross-validation"), np.random.default_rng(0))
    ridge, trees = cross_fit(["ridge", "trees"], division, SETTINGS, clock, silent).fits
    assert (len(ridge.models), len(trees.models)) == (5, 1)
    assert trees.out_of_time
    assert "cut short" in trees.ended


def test_time_is_not_kept_for_members_that_cannot_start(monkeypatch):
    # networks are expected to take more than half of the budget, so trees may use all of it
    monkeypatch.setitem(crossfit.KINDS, "networks", replace(KINDS["networks"], seconds=lambda *_: 40.0))
    found, _, _ = crossed(monkeypatch, 60, {"ridge": 1, "trees": 50, "networks": 1})
    assert [len(fit.models) for fit in found.fits] == [5, 1, 0]


def test_the_clock_keeps_a_reserve():
    clock = SteppedClock(10)
    clock.reserve = 2
    clock.now = 7.5
    clock.check()
    assert clock.left == 0.5
    clock.now = 8.5
    with pytest.raises(OutOfTimeError, match="time budget of 10 seconds"):
        clock.check()


def test_methods_are_named_in_several_ways():
    assert named_methods(None) == ["ridge", "linear", "trees", "networks"]
    assert named_methods("linear, ridge") == ["ridge", "linear"]
    assert named_methods(("trees",)) == ["trees"]
    for wrong in ("forest", ["ridge", 3]):
        with pytest.raises(ValueError, match="methods must name some of ridge, linear, trees, networks"):
            named_methods(wrong)
    with pytest.raises(ValueError, match="at least one"):
        named_methods([])
