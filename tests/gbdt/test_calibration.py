"""Scores that trees keep for their calibration: those of the model, by boosters not trained on the query."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tree_problems import evaluation, ranking_data

import sinkprop
from sinkprop import Queries
from sinkprop.data import group_rows
from sinkprop.data.training_set import TrainingSet
from sinkprop.gbdt import Derivatives, TreeLoss

lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")

from sinkprop.gbdt import BoostedRanker  # noqa: E402
from sinkprop.gbdt.growing.ensemble import query_parts  # noqa: E402
from sinkprop.gbdt.growing.loop import Boosting, grow  # noqa: E402
from sinkprop.gbdt.growing.rows import StreamedRows  # noqa: E402
from sinkprop.gbdt.growing.validation import divided  # noqa: E402

# some fits end while their criterion still rises
pytestmark = pytest.mark.filterwarnings("ignore:.*still rose when the .* trees were grown")

SMALL = {"n_estimators": 12, "num_leaves": 5, "learning_rate": 0.1, "min_child_samples": 5, "n_threads": 1}
CLOSE = {"rtol": 1e-12, "atol": 1e-14}  # LightGBM adds the trees up in another order


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def validation():
    return ranking_data(15, 1)


@pytest.fixture
def kept(monkeypatch):
    """What each fit keeps for the calibration."""
    found, keep = [], BoostedRanker._keep_held_out

    def keep_and_note(self, held):
        found.append(held)
        keep(self, held)

    monkeypatch.setattr(BoostedRanker, "_keep_held_out", keep_and_note)
    return found


def assert_kept(held, ranker, X, y, qid):
    """The held-out queries are these, whose rows are consecutive, with the scores of the ranker."""
    # LightGBM fits linear trees to features in single precision
    close = {"rtol": 1e-5} if "linear_tree" in ranker.get_params() else CLOSE
    assert_allclose(held.scores, ranker.predict(X), **close)
    assert np.ptp(held.scores) > 0
    assert_array_equal(held.labels, y)
    assert_array_equal(held.sizes, np.unique(qid, return_counts=True)[1])


class TestValidationQueries:
    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"n_boosters": 3},
            {"early_stopping_rounds": None},
            {"n_boosters": 3, "early_stopping_rounds": None},
            {"n_estimators": 60, "learning_rate": 0.4, "early_stopping_rounds": 3},
            {"n_estimators": 60, "learning_rate": 0.4, "early_stopping_rounds": 3, "n_boosters": 3},
            {"boosting_type": "dart", "drop_rate": 0.5},
            {"boosting_type": "goss", "subsample": 0.6},
            {"linear_tree": True},
            {"criterion": "ndcg@3"},
        ],
        ids=str,
    )
    def test_scores_are_those_of_the_model(self, data, validation, kept, given):
        X, y, qid = data
        ranker = BoostedRanker(**{**SMALL, **given}).fit(X, y, qid=qid, **evaluation(validation))
        if "learning_rate" in given:
            assert ranker.best_iteration_ < ranker.fit_result_.n_rounds
        assert_kept(kept[-1], ranker, *validation)

    @pytest.mark.parametrize("n_boosters", [1, 3])
    def test_the_first_round_may_be_the_best(self, data, validation, kept, n_boosters):
        X, y, qid = data
        Xv, yv, qv = validation
        worst = yv.max() - yv
        ranker = BoostedRanker(**SMALL, n_boosters=n_boosters, early_stopping_rounds=4)
        ranker.fit(X, y, qid=qid, **evaluation((Xv, worst, qv)))
        assert ranker.best_iteration_ == 1
        assert_kept(kept[-1], ranker, Xv, worst, qv)

    def test_rows_of_a_query_may_be_apart(self, data, validation, kept):
        X, y, qid = data
        mixed = np.argsort(np.arange(len(validation[1])) % 7, kind="stable")
        apart = tuple(each[mixed] for each in validation)
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid, **evaluation(apart))
        together = np.argsort(apart[2], kind="stable")
        assert_kept(kept[-1], ranker, *(each[together] for each in apart))

    @pytest.mark.parametrize("n_boosters", [1, 3])
    def test_queries_held_out_by_the_fit(self, data, kept, n_boosters):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, validation_fraction=0.25, n_boosters=n_boosters).fit(X, y, qid=qid)
        out = np.isin(qid, np.random.default_rng([0, 0]).permutation(20)[:5])
        assert_kept(kept[-1], ranker, X[out], y[out], qid[out])

    def test_several_sets(self, data, validation, kept):
        X, y, qid = data
        other = ranking_data(4, 2)
        ranker = BoostedRanker(**SMALL).fit(
            X, y, qid=qid, eval_set=[validation[:2], other[:2]], eval_qid=[validation[2], other[2]]
        )
        both = [np.concatenate(pair) for pair in zip(validation[:2], other[:2], strict=True)]
        assert_kept(kept[-1], ranker, *both, np.concatenate([validation[2], 100 + other[2]]))

    def test_scores_include_the_trees_that_come_first(self, data, validation, kept):
        X, y, qid = data
        first = BoostedRanker(**SMALL).fit(X, y, qid=qid)
        assert kept == [None]
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid, init_model=first, **evaluation(validation))
        assert ranker.n_trees_ > first.n_trees_
        assert_kept(kept[-1], ranker, *validation)
        flat = np.zeros_like(X)  # no tree can be grown on it
        ranker = BoostedRanker(**SMALL).fit(flat, y, qid=qid, init_model=first, **evaluation(validation))
        assert ranker.n_trees_ == first.n_trees_
        assert_kept(kept[-1], ranker, *validation)

    @pytest.mark.parametrize("own", [None, 50])
    def test_a_callback_chooses_the_round(self, data, validation, kept, own):
        X, y, qid = data

        class Fourth:
            def __call__(self, env):
                if env.iteration == 6:
                    raise lightgbm.callback.EarlyStopException(3, [])

        ranker = BoostedRanker(**SMALL, early_stopping_rounds=own)
        ranker.fit(X, y, qid=qid, callbacks=[Fourth()], **evaluation(validation))
        assert (ranker.best_iteration_, ranker.fit_result_.n_rounds) == (4, 7)
        assert_kept(kept[-1], ranker, *validation)

    def test_a_fit_resumed_after_its_best_round(self, data, validation):
        X, y, qid = data
        Xv, yv, qv = validation
        loss, groups = TreeLoss(), group_rows(qid, len(y))
        part = TrainingSet(Xv, yv, group_rows(qv, len(yv)))
        _, chosen = divided(
            TrainingSet(X, y, groups), part, loss=loss, criterion=None, convention="standard",
            fraction=None, seed=0, n_threads=1,
        )  # fmt: skip
        parameters = {"objective": "none", "num_leaves": 5, "learning_rate": 0.5, "verbosity": -1, "seed": 0}
        plan = Boosting({**parameters, "num_threads": 1}, n_rounds=60, patience=3)
        states = []
        whole = grow(
            X, Derivatives(loss, y, groups), plan, chosen, watch=lambda at: states.append(at.grown())
        )
        assert whole.result.status == "stopped early"
        for state in states[-2:]:
            assert state.best + 1 < len(state.trees)
            model = grow(X, Derivatives(loss, y, groups), plan, chosen, resumed=state)
            assert model.result.best == whole.result.best
            assert_allclose(model.held_out.scores, whole.held_out.scores, **CLOSE)
        elsewhere = replace(
            chosen, X=StreamedRows(lambda: iter(()), (0, 4)), y=np.empty(0), sizes=np.empty(0, int)
        )
        model = grow(X, Derivatives(loss, y, groups), plan, elsewhere, resumed=states[-1])
        assert len(model.held_out.scores) == len(model.held_out.sizes) == 0

    @pytest.mark.parametrize("n_boosters", [1, 3])
    def test_an_interrupt(self, data, validation, kept, monkeypatch, n_boosters):
        X, y, qid = data
        calls, derivatives = [], Derivatives.__call__

        def interrupted(self, scores):
            calls.append(1)
            if len(calls) == 8:
                raise KeyboardInterrupt
            return derivatives(self, scores)

        monkeypatch.setattr(Derivatives, "__call__", interrupted)
        ranker = BoostedRanker(**SMALL, n_boosters=n_boosters)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            ranker.fit(X, y, qid=qid, **evaluation(validation))
        assert_kept(kept[-1], ranker, *validation)


class TestCrossValidation:
    @pytest.mark.parametrize("given", [{}, {"early_stopping_rounds": 2, "learning_rate": 0.5}], ids=str)
    def test_each_query_is_scored_by_the_booster_without_it(self, data, kept, given):
        X, y, qid = data
        ranker = BoostedRanker(**{**SMALL, **given}, n_boosters=3).fit(X, y, qid=qid)
        parts = query_parts(20, 3, 0)[qid]
        # the model is the mean of the boosters, whose trees take turns
        trees = [
            ranker.booster_.predict(X, start_iteration=i, num_iteration=1) for i in range(ranker.n_trees_)
        ]
        alone = [3 * np.sum(trees[number::3], axis=0) for number in range(3)]
        assert_allclose(kept[-1].scores, np.choose(parts, alone), rtol=1e-9, atol=1e-12)
        assert_array_equal(kept[-1].labels, y)
        assert_array_equal(kept[-1].sizes, np.bincount(qid))

    def test_the_labels_of_a_query_do_not_reach_its_scores(self, data, kept):
        X, y, qid = data
        part = query_parts(20, 4, 0)[qid] == 1
        other = np.where(part, np.random.default_rng(0).permutation(y), y)
        for labels in (y, other):
            BoostedRanker(**SMALL, n_boosters=4, early_stopping_rounds=None).fit(X, labels, qid=qid)
        before, after = kept
        assert_array_equal(after.scores[part], before.scores[part])
        assert (after.scores[~part] != before.scores[~part]).any()

    def test_queries_of_weight_zero_are_left_out(self, data, kept):
        X, y, qid = data
        weight = (np.arange(20) % 4 > 0).astype(float)
        BoostedRanker(**SMALL, n_boosters=3).fit(X, y, qid=qid, query_weight=weight)
        counts = weight[qid] > 0
        assert_array_equal(kept[-1].labels, y[counts])
        assert_array_equal(kept[-1].sizes, np.bincount(qid)[weight > 0])

    def test_an_interrupt(self, data, kept, monkeypatch):
        X, y, qid = data
        calls, derivatives = [], Derivatives.__call__

        def interrupted(self, scores):
            calls.append(1)
            if len(calls) == 14:  # in the fifth round of three boosters
                raise KeyboardInterrupt
            return derivatives(self, scores)

        given = {**SMALL, "n_boosters": 3, "early_stopping_rounds": None}
        BoostedRanker(**{**given, "n_estimators": 4}).fit(X, y, qid=qid)
        monkeypatch.setattr(Derivatives, "__call__", interrupted)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            BoostedRanker(**given).fit(X, y, qid=qid)
        assert_array_equal(kept[1].scores, kept[0].scores)


class TestCalibration:
    def test_without_validation_queries_there_is_none(self, data, validation, kept):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid)
        assert kept == [None]
        assert ranker.calibration_ is None
        assert not hasattr(ranker, "predict_proba")
        with pytest.raises(ValueError, match="BoostedRanker is not calibrated"):
            ranker.confidence(validation[0], qid=validation[2])

    def test_a_new_fit_forgets_the_old_calibration(self, data, validation):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid, **evaluation(validation))
        first = ranker.calibration_
        assert first.n_queries == 15
        ranker.fit(X, y, qid=qid, **evaluation(ranking_data(30, 3)))
        assert ranker.calibration_.n_queries == 30
        assert ranker.fit(X, y, qid=qid).calibration_ is None

    def test_too_few_validation_queries(self, data):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid, **evaluation(ranking_data(5, 1)))
        assert ranker.calibration_ is None

    def test_nothing_to_learn_gives_no_preference(self, data):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, n_boosters=3).fit(np.ones_like(X), y, qid=qid)
        assert_allclose(ranker.top_k_probability(np.ones((8, 4)), 2, qid=[0] * 8), 2 / 8)

    @pytest.mark.parametrize("n_boosters", [1, 3])
    def test_a_model_file_keeps_it(self, data, validation, tmp_path, n_boosters):
        X, y, qid = data
        Xv, _, qv = validation
        more = evaluation(validation) if n_boosters == 1 else {}
        ranker = BoostedRanker(**SMALL, n_boosters=n_boosters).fit(X, y, qid=qid, **more)
        ranker.save(tmp_path / "trees.model")
        same = sinkprop.load_model(tmp_path / "trees.model")
        for each in (
            lambda model: model.predict_proba(Xv, qid=qv),
            lambda model: model.expected_rank(Xv, qid=qv),
            lambda model: model.rank_interval(Xv, qid=qv),
            lambda model: model.confidence(Xv, qid=qv),
        ):
            assert_array_equal(each(same), each(ranker))
        again = tmp_path / "again.model"
        same.save(again)
        assert again.read_bytes() == (tmp_path / "trees.model").read_bytes()

    def test_it_is_that_of_the_scores(self, data, validation):
        X, y, qid = data
        Xv, yv, qv = validation
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid, **evaluation(validation))
        expected = sinkprop.calibration.RankCalibration.fit(ranker.predict(Xv), yv, qv)
        scores = ranker.predict(X)
        assert_allclose(
            ranker.predict_proba(X, qid=qid), expected.relevance_probability(scores, qid), rtol=1e-6
        )


@pytest.mark.parametrize("n_boosters", [1, 3])
@pytest.mark.parametrize("validated", [True, False])
def test_stored_sets(data, validation, kept, tmp_path, n_boosters, validated):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from sinkprop.store import save_queries

    def queries(X, y, qid):
        return Queries(X.astype(np.float32), y, qid)

    train, vali = queries(*data), queries(*validation)
    stored = [
        save_queries(tmp_path / f"{name}.queries", part, block_bytes=2000)
        for name, part in (("train", train), ("vali", vali))
    ]
    given = {**SMALL, "n_boosters": n_boosters, "validation_fraction": None if validated else 0.25}
    for X, other in ((train, vali), stored):
        BoostedRanker(**given).fit(X, **({"eval_set": [other]} if validated else {}))
    here, there = kept
    assert len(here.sizes) == (15 if validated else 5)
    for name in ("scores", "labels", "sizes"):
        assert_array_equal(getattr(there, name), getattr(here, name))
