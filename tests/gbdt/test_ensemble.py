"""Means of several boosters: against boosters that LightGBM grows by hand, one by one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tree_problems import evaluation, ranking_data

import sinkprop
from sinkprop import evaluate
from sinkprop.data import group_rows
from sinkprop.gbdt import Derivatives, TreeLoss

lightgbm = pytest.importorskip(
    "lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm"
)

from sinkprop.gbdt import BoostedRanker  # noqa: E402
from sinkprop.gbdt.growing.ensemble import queries_left_out, query_parts  # noqa: E402
from sinkprop.serving.tree_files.lightgbm_text import check_model_text, mean_of_models, tree_fields  # noqa: E402

SMALL = {"n_estimators": 12, "num_leaves": 5, "learning_rate": 0.1, "min_child_samples": 5, "n_threads": 1}


@pytest.fixture(scope="module")
def data():
    return ranking_data()


def boosters_by_hand(X, y, qid, n_boosters, *, rounds, seed=0, out=None):
    """Boosters that LightGBM grows, each without the queries of one part; and the part of each row.

    out  Queries that each booster does not train on, in place of parts.
    """
    groups = group_rows(qid, len(y))
    parts = np.repeat(query_parts(len(groups.sizes), n_boosters, seed), groups.sizes)
    made = []
    for number in range(n_boosters):
        given = {
            "num_leaves": 5, "learning_rate": 0.1, "min_data_in_leaf": 5, "objective": "none",
            "deterministic": True, "force_col_wise": True, "seed": seed + number, "num_threads": 1,
            "verbosity": -1,
        }  # fmt: skip
        derivatives = Derivatives(TreeLoss(seed=seed + number), y, groups)
        counts = parts != number if out is None else ~np.repeat(out[number], groups.sizes)
        booster = lightgbm.Booster(given, lightgbm.Dataset(X, np.zeros(len(y)), params=given))
        for _ in range(rounds):
            booster.update(
                fobj=lambda scores, _, f=derivatives, c=counts: tuple(c * part for part in f(scores))
            )
        made.append(booster)
    return made, parts


def mean_of(boosters, X, rounds):
    return np.mean([booster.predict(X, num_iteration=rounds) for booster in boosters], axis=0)


class TestMeanOfModels:
    @pytest.mark.parametrize("categorical", [[], [0]], ids=["numbers", "categories"])
    @pytest.mark.parametrize("more", [{}, {"linear_tree": True}], ids=str)
    def test_scores_are_the_mean(self, data, more, categorical):
        X, y, _ = data
        X = np.column_stack([np.arange(len(y)) % 7, X])
        boosters = [
            lightgbm.train(
                {"num_leaves": 5, "seed": seed, "feature_fraction": 0.5, "verbosity": -1, **more},
                lightgbm.Dataset(X, y, categorical_feature=categorical, free_raw_data=False),
                num_boost_round=4 + seed,
            )
            for seed in range(3)
        ]
        text = mean_of_models([booster.model_to_string() for booster in boosters])
        check_model_text(text, X.shape[1])
        merged = lightgbm.Booster(model_str=text)
        assert merged.num_trees() == 4 + 5 + 6
        assert_allclose(merged.predict(X), mean_of(boosters, X, None), rtol=1e-12, atol=1e-14)
        assert_array_equal(
            merged.feature_importance(),
            np.sum([booster.feature_importance() for booster in boosters], axis=0),
        )

    def test_explains_scores_by_the_mean_contributions(self, data):
        X, y, _ = data
        boosters = [
            lightgbm.train({"seed": seed, "verbosity": -1}, lightgbm.Dataset(X, y), num_boost_round=3)
            for seed in range(2)
        ]
        merged = lightgbm.Booster(model_str=mean_of_models([b.model_to_string() for b in boosters]))
        expected = np.mean([booster.predict(X, pred_contrib=True) for booster in boosters], axis=0)
        assert_allclose(merged.predict(X, pred_contrib=True), expected, rtol=1e-9, atol=1e-12)

    def test_trees_alternate(self, data):
        X, y, _ = data
        texts = [
            lightgbm.train(
                {"num_leaves": leaves, "verbosity": -1}, lightgbm.Dataset(X, y), num_boost_round=2
            ).model_to_string()
            for leaves in (2, 3)
        ]
        leaves = [fields["num_leaves"] for fields in tree_fields(mean_of_models(texts))]
        assert leaves == ["2", "3", "2", "3"]


class TestCrossValidation:
    def test_is_boosters_by_hand(self, data):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, n_boosters=3, early_stopping_rounds=4).fit(X, y, qid=qid)
        boosters, parts = boosters_by_hand(X, y, qid, 3, rounds=12)
        value = Derivatives(TreeLoss(), y, group_rows(qid, len(y))).value
        values = []
        for rounds in range(1, 13):
            each = [booster.predict(X, num_iteration=rounds) for booster in boosters]
            values.append(value(np.choose(parts, each)))
        result = ranker.fit_result_
        assert_allclose(result.values, values[: result.n_rounds], rtol=1e-12)
        assert result.best == np.argmax(result.values) + 1 == ranker.best_iteration_
        assert result.validated_on == "3-fold cross-validation over 20 queries"
        assert (ranker.n_boosters_, ranker.n_trees_) == (3, 3 * result.best)
        assert_allclose(ranker.predict(X), mean_of(boosters, X, result.best), rtol=1e-12, atol=1e-14)

    def test_selects_by_a_metric(self, data):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, n_boosters=4, criterion="ndcg@3").fit(X, y, qid=qid)
        boosters, parts = boosters_by_hand(X, y, qid, 4, rounds=1)
        first = np.choose(parts, [booster.predict(X) for booster in boosters])
        expected = evaluate(y, first, qid, metrics=["ndcg@3"], convention="standard")["ndcg@3"]
        assert ranker.history_["ndcg@3"][0] == pytest.approx(expected, abs=1e-12)

    def test_rows_of_a_query_may_be_apart(self, data):
        X, y, qid = data
        mixed = np.argsort(np.arange(len(y)) % 7, kind="stable")
        X, y, qid = X[mixed], y[mixed], qid[mixed]
        together = np.argsort(group_rows(qid, len(y)).codes, kind="stable")
        one = BoostedRanker(**SMALL, n_boosters=3).fit(X, y, qid=qid)
        two = BoostedRanker(**SMALL, n_boosters=3).fit(X[together], y[together], qid=qid[together])
        assert_array_equal(one.predict(X), two.predict(X))

    def test_queries_of_weight_zero_do_not_count(self, data):
        X, y, qid = data
        kept = np.isin(qid, np.unique(qid)[4:])
        weight = {q: float(q in np.unique(qid)[4:]) for q in np.unique(qid)}
        one = BoostedRanker(**SMALL, n_boosters=3).fit(X, y, qid=qid, query_weight=weight)
        two = BoostedRanker(**SMALL, n_boosters=3).fit(X[kept], y[kept], qid=qid[kept])
        assert_array_equal(one.predict(X), two.predict(X))


class TestWithValidationQueries:
    def test_the_criterion_is_that_of_the_mean(self, data):
        X, y, qid = data
        Xv, yv, qv = ranking_data(15, 1)
        ranker = BoostedRanker(**SMALL, n_boosters=3, early_stopping_rounds=None)
        ranker.fit(X, y, qid=qid, **evaluation((Xv, yv, qv)))
        out = queries_left_out(20, 3, 0)
        assert out.sum(axis=1).tolist() == [6, 6, 6]
        boosters, _ = boosters_by_hand(X, y, qid, 3, rounds=12, out=out)
        value = Derivatives(TreeLoss(), yv, group_rows(qv, len(yv))).value
        expected = [value(mean_of(boosters, Xv, rounds)) for rounds in range(1, 13)]
        assert_allclose(ranker.fit_result_.values, expected, rtol=1e-12)
        assert_allclose(ranker.predict(Xv), mean_of(boosters, Xv, 12), rtol=1e-12, atol=1e-14)
        training = Derivatives(TreeLoss(), y, group_rows(qid, len(y))).value(mean_of(boosters, X, 10))
        assert ranker.fit_result_.training == ((10, pytest.approx(training, rel=1e-12)),)


class TestEffort:
    @pytest.mark.parametrize(
        ("given", "validated", "n_boosters"),
        [
            ({}, False, 5),
            ({}, True, 5),
            ({"effort": "fast"}, False, 1),
            ({"effort": "best"}, True, 10),
            ({"n_estimators": 3}, False, 1),
            ({"effort": "best", "n_estimators": 3}, False, 10),
            ({"n_boosters": 2}, True, 2),
            ({"validation_fraction": 0.3}, False, 5),
            ({"boosting_type": "dart"}, False, 1),
        ],
        ids=str,
    )
    def test_number_of_boosters(self, data, given, validated, n_boosters):
        X, y, qid = data
        more = evaluation(ranking_data(8, 1)) if validated else {}
        # an early end: no round is better than the first by so much
        rounds = {} if "n_estimators" in given or given.get("effort") == "fast" else {"min_split_gain": 1e9}
        ranker = BoostedRanker(**given, **rounds, n_threads=1).fit(X, y, qid=qid, **more)
        assert ranker.n_boosters_ == n_boosters

    def test_given_parameters_take_precedence(self, data):
        X, y, qid = data
        given = {"n_estimators": 2, "learning_rate": 0.05, "n_boosters": 1, "early_stopping_rounds": 50}
        best = BoostedRanker(effort="best", **given, n_threads=1).fit(X, y, qid=qid)
        plain = BoostedRanker(effort="fast", **given, n_threads=1).fit(X, y, qid=qid)
        assert_array_equal(best.predict(X), plain.predict(X))
        slower = BoostedRanker(effort="best", n_estimators=2, n_boosters=1, n_threads=1).fit(X, y, qid=qid)
        assert not np.array_equal(slower.predict(X), plain.predict(X))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"effort": "most"}, "effort must be one of 'fast', 'default', 'best'; got 'most'"),
            ({"n_boosters": 0}, "n_boosters must be at least 1"),
            ({"n_boosters": 2, "boosting_type": "dart"}, "n_boosters must be 1 with boosting_type='dart'"),
            ({"n_boosters": 2, "cluster": 1}, "n_boosters must be 1 with cluster"),
            ({"early_stopping_rounds": "soon"}, "early_stopping_rounds must be"),
        ],
        ids=str,
    )
    def test_refuses(self, data, given, message):
        X, y, qid = data
        with pytest.raises(ValueError, match=message):
            BoostedRanker(**given).fit(X, y, qid=qid)

    def test_one_booster_continues(self, data):
        X, y, qid = data
        first = BoostedRanker(**SMALL).fit(X, y, qid=qid)
        with pytest.raises(ValueError, match="n_boosters must be 1 with init_model"):
            BoostedRanker(n_boosters=2).fit(X, y, qid=qid, init_model=first)
        with pytest.raises(ValueError, match="n_boosters must be 1 with callbacks"):
            BoostedRanker(n_boosters=2).fit(X, y, qid=qid, callbacks=[lightgbm.log_evaluation(0)])


class TestAwkwardData:
    def test_one_query(self, data):
        X, y, qid = data
        one = qid == qid[0]
        ranker = BoostedRanker(effort="best", **SMALL).fit(X[one], y[one], qid=qid[one])
        assert ranker.n_boosters_ == 1
        assert ranker.n_trees_ == 12

    def test_two_queries(self, data):
        X, y, qid = data
        two = np.isin(qid, np.unique(qid)[:2])
        ranker = BoostedRanker(effort="best", **SMALL).fit(X[two], y[two], qid=qid[two])
        assert ranker.n_boosters_ == 2
        assert np.isfinite(ranker.predict(X)).all()

    @pytest.mark.parametrize("what", ["one document per query", "constant features"])
    def test_nothing_to_learn_scores_alike(self, data, what):
        X, y, qid = data
        if what == "one document per query":
            qid = np.arange(len(y))
        else:
            X = np.ones_like(X)
        ranker = BoostedRanker(**SMALL, n_boosters=3).fit(X, y, qid=qid)
        assert len(np.unique(ranker.predict(X))) == 1

    def test_missing_values(self, data):
        X, y, qid = data
        X = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
        ranker = BoostedRanker(**SMALL, n_boosters=3).fit(X, y, qid=qid)
        assert np.isfinite(ranker.predict(X)).all()

    def test_no_relevant_document(self, data):
        X, y, qid = data
        with pytest.warns(UserWarning, match="labels"):
            ranker = BoostedRanker(**SMALL, n_boosters=3).fit(X, np.zeros_like(y), qid=qid)
        assert len(np.unique(ranker.predict(X))) == 1

    def test_an_interrupt_keeps_the_best_trees(self, data, monkeypatch):
        X, y, qid = data
        calls, derivatives = [], Derivatives.__call__

        def interrupted(self, scores):
            calls.append(1)
            if len(calls) == 14:  # in the fifth round of three boosters
                raise KeyboardInterrupt
            return derivatives(self, scores)

        monkeypatch.setattr(Derivatives, "__call__", interrupted)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            ranker = BoostedRanker(**SMALL, n_boosters=3).fit(X, y, qid=qid)
        assert ranker.fit_result_.n_rounds == 4
        assert ranker.n_trees_ == 3 * ranker.best_iteration_

    def test_an_interrupt_of_the_first_round_is_raised(self, data, monkeypatch):
        X, y, qid = data

        def interrupted(self, scores):
            raise KeyboardInterrupt

        monkeypatch.setattr(Derivatives, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            BoostedRanker(**SMALL, n_boosters=3).fit(X, y, qid=qid)


def test_saved_and_loaded(data, tmp_path):
    X, y, qid = data
    ranker = BoostedRanker(**SMALL, n_boosters=3).fit(X, y, qid=qid)
    ranker.save(tmp_path / "trees.model")
    same = sinkprop.load_model(tmp_path / "trees.model")
    assert_array_equal(same.predict(X), ranker.predict(X))
    assert same.n_boosters_ == 3
    assert_array_equal(same.feature_importances_, ranker.feature_importances_)
    assert not np.array_equal(same.predict(X, num_iteration=3), same.predict(X))
