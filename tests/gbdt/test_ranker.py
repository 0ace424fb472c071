"""BoostedRanker, against LightGBM driven by hand and metrics computed by hand."""

import copy
import multiprocessing
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from forking import ALL_STEPS, steps_of_a_fork
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator
from tree_problems import evaluation, ranking_data

from sinkprop import RBP, RankLinear, SmoothedIndicator, evaluate, expected_gain
from sinkprop.data import group_rows
from sinkprop.gbdt import Derivatives, TreeLoss

lightgbm = pytest.importorskip(
    "lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm"
)

from sinkprop.gbdt import BoostedRanker  # noqa: E402
from sinkprop.gbdt.growing.bagging import QueryBagging  # noqa: E402
from sinkprop.gbdt.parameters import DEFAULTS  # noqa: E402

OWN = RankLinear(gain=lambda r: r, discount=lambda k: 1 / k)
SMALL = {"n_estimators": 12, "num_leaves": 5, "learning_rate": 0.1, "min_child_samples": 5}


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def validation():
    return ranking_data(15, 1)


@pytest.fixture(scope="module")
def fitted(data):
    X, y, qid = data
    return BoostedRanker(**SMALL).fit(X, y, qid=qid)


def by_hand(X, y, qid, *, rounds=12, loss=None, rows=None, queries=None, **parameters):
    """The booster that LightGBM grows on the derivatives, without the ranker."""
    derivatives = Derivatives(
        loss or TreeLoss(), y, group_rows(qid, len(y)), sample_weight=rows, query_weight=queries
    )
    given = {
        "num_leaves": 5,
        "learning_rate": 0.1,
        "min_data_in_leaf": 5,
        "objective": "none",
        "deterministic": True,
        "force_col_wise": True,
        "seed": 0,
        "num_threads": 1,
        "verbosity": -1,
        **parameters,
    }
    booster = lightgbm.Booster(given, lightgbm.Dataset(X, np.zeros(len(y)), params=given))
    for _ in range(rounds):
        booster.update(fobj=lambda scores, _: derivatives(scores))
    return booster


def trees(booster):
    """The trees alone: the text around them has names and settings."""
    text = booster.model_to_string()
    return text[text.index("Tree=0") : text.index("end of trees")]


class TestItIsLightGBM:
    @pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_with_the_derivatives_of_the_expected_gain(self, data, weighted, dtype):
        X, y, qid = data
        X = X.astype(dtype)
        rng = np.random.default_rng(3)
        rows, queries = (rng.uniform(0.5, 2, len(y)), rng.uniform(0.5, 2, 20)) if weighted else (None, None)
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid, sample_weight=rows, query_weight=queries)
        expected = by_hand(X, y, qid, rows=rows, queries=queries)
        assert trees(ranker.booster_) == trees(expected)
        assert_array_equal(ranker.predict(X), expected.predict(X))
        assert ranker.n_trees_ == ranker.best_iteration_ == 12

    @pytest.mark.parametrize("gain", ["ndcg@5", "p@3", RBP(0.8), RankLinear(table=lambda r, k: r / k)])
    def test_for_any_gain(self, data, gain):
        X, y, qid = data
        ranker = BoostedRanker(gain, widths=0.5, n_iter=2, **SMALL).fit(X, y, qid=qid)
        assert trees(ranker.booster_) == trees(by_hand(X, y, qid, loss=TreeLoss(gain, widths=0.5, n_iter=2)))

    @pytest.mark.parametrize(
        "given",
        [
            {"reg_lambda": 0.5, "colsample_bytree": 0.5, "max_depth": 3},
            {"lambda": 0.5, "sub_feature": 0.5, "max_depth": 3},
            {"l2_regularization": 0.5, "feature_fraction": 0.5, "max_depth": 3},
        ],
    )
    def test_by_all_names_of_its_parameters(self, data, given):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, **given).fit(X, y, qid=qid)
        expected = by_hand(X, y, qid, lambda_l2=0.5, feature_fraction=0.5, max_depth=3)
        assert trees(ranker.booster_) == trees(expected)

    @pytest.mark.parametrize(
        "given",
        [
            {"data_sample_strategy": "goss", "learning_rate": 0.5},
            {"extra_trees": True},
            {"linear_tree": True},
            {"use_quantized_grad": True},
            {"monotone_constraints": [1, 0, -1, 0]},
            {"force_row_wise": True},
            {"max_bin": 15, "min_child_weight": 0.1, "path_smooth": 1.0},
        ],
        ids=lambda given: next(iter(given)),
    )
    def test_with_what_else_it_can(self, data, given):
        X, y, qid = data
        ranker = BoostedRanker(**{**SMALL, **given}).fit(X, y, qid=qid)
        expected = by_hand(X, y, qid, **{"force_col_wise": "force_row_wise" not in given, **given})
        assert trees(ranker.booster_) == trees(expected)
        assert trees(ranker.booster_) != trees(by_hand(X, y, qid)) or "force_row_wise" in given

    def test_dart_draws_the_same_whatever_was_in_memory(self, data):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, boosting_type="dart", drop_rate=0.5).fit(X, y, qid=qid)
        derivatives = Derivatives(TreeLoss(), y, group_rows(qid, len(y)))
        given = {
            "objective": "none", "boosting": "dart", "drop_rate": 0.5, "drop_seed": 0, "num_leaves": 5,
            "learning_rate": 0.1, "min_data_in_leaf": 5, "deterministic": True, "force_col_wise": True,
            "seed": 0, "num_threads": 1, "verbosity": -1,
        }  # fmt: skip
        booster = lightgbm.Booster(given, lightgbm.Dataset(X, np.zeros(len(y)), params=given))

        def objective(scores, _):
            if booster.current_iteration() == 0:
                booster.reset_parameter({"drop_seed": 0})
            return derivatives(scores)

        for _ in range(12):
            booster.update(fobj=objective)
        shrinkage = [tree["shrinkage"] for tree in booster.dump_model()["tree_info"]]
        assert len(set(shrinkage)) > 1, "no tree was dropped"
        assert trees(ranker.booster_) == trees(booster)
        assert_array_equal(ranker.predict(X), booster.predict(X))

    def test_every_setting_of_the_loss_is_a_parameter(self):
        import dataclasses

        own = BoostedRanker().get_params()
        for field in dataclasses.fields(TreeLoss):
            if field.name == "seed":  # is random_state
                continue
            assert own[field.name] == field.default, field.name

    def test_a_parameter_of_lgbmranker_that_stays_has_its_meaning(self, data):
        X, y, qid = data
        given = lightgbm.LGBMRanker(n_estimators=7, num_leaves=4, reg_lambda=1, random_state=0).get_params()
        ranker = BoostedRanker(**given).fit(X, y, qid=qid)
        expected = by_hand(X, y, qid, rounds=7, num_leaves=4, lambda_l2=1, min_data_in_leaf=20)
        assert trees(ranker.booster_) == trees(expected)


class TestParameters:
    def test_aliases_take_the_place_of_defaults(self, data):
        X, y, qid = data
        given = {"num_boost_round": 12, "max_leaves": 5, "eta": 0.1, "min_data": 5, "seed": 0, "n_jobs": 1}
        ranker = BoostedRanker(**given).fit(X, y, qid=qid)
        assert trees(ranker.booster_) == trees(by_hand(X, y, qid))
        assert ranker.get_params()["eta"] == ranker.eta == 0.1

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"learning_rate": 0.2, "eta": 0.1}, "learning_rate and eta are names of the same"),
            ({"reg_lambda": 0.2, "lambda_l2": 0.1}, "reg_lambda and lambda_l2 are names of the same"),
            ({"objective": "lambdarank"}, "does not take objective: .* set gain="),
            ({"application": "binary"}, "does not take application: .* set gain="),
            ({"metrics": "ndcg"}, "does not take metrics: .* set criterion="),
            ({"eval_at": [5]}, "does not take eval_at: .* set criterion="),
            ({"label_gain": [0, 1]}, "does not take label_gain: .*gain=linear"),
            ({"lambdarank_truncation_level": 20}, "another objective"),
            ({"class_weight": "balanced"}, "does not take class_weight: .*sample_weight"),
            ({"categorical_feature": [0]}, "give it to fit"),
            ({"boosting": "rf"}, "only with its own objectives"),
            ({"tree_learner": "data"}, "one process"),
            ({"machines": "a:1"}, "one process"),
            ({"raw_score": True}, "booster_.predict"),
            ({"valid": "x.txt"}, "command line"),
            ({"n_estimators": 0}, "n_estimators must be at least 1"),
            ({"num_trees": 2.5}, "n_estimators must be a whole number"),
            ({"num_leaves": 1}, "num_leaves must be at least 2"),
            ({"learning_rate": 0}, "learning_rate must be a finite number, above 0"),
            ({"early_stopping_rounds": -1}, "early_stopping_rounds must be at least 1"),
            ({"reg_lambda": "much"}, "LightGBM refuses this: .*much"),
            ({"max_bin": 1}, "LightGBM refuses this: .*max_bin"),
            ({"subsample": 0}, "bagging_fraction must be"),
            ({"gain": "nope"}, "nope"),
            ({"blend": 1.5}, "blend must be"),
            ({"metric": "nope"}, "nope"),
            ({"criterion": "nope"}, "nope"),
            ({"validation_fraction": 1.0}, "validation_fraction must be below 1"),
            ({"n_threads": 0}, "n_threads must be at least 1"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_what_cannot_be(self, data, given, message):
        X, y, qid = data
        with pytest.raises(ValueError, match=message):
            BoostedRanker(**given).fit(X, y, qid=qid)

    def test_a_name_that_nobody_knows(self):
        with pytest.raises(TypeError, match=r"'num_leafs': neither .* Did you mean 'num_leaves'\?"):
            BoostedRanker(num_leafs=3)
        ranker = BoostedRanker(reg_lambda=1)
        with pytest.raises(ValueError, match=r"Invalid parameter .*'reg_lamda'"):
            ranker.set_params(num_leaves=3, reg_lamda=2)
        assert ranker.num_leaves == DEFAULTS.num_leaves

    def test_setting_and_cloning(self):
        ranker = BoostedRanker("p@5", reg_lambda=1, subsample=0.5).set_params(
            num_leaves=3, eta=0.2, reg_lambda=2
        )
        again = clone(ranker)
        assert again.get_params() == ranker.get_params()
        assert (again.reg_lambda, again.eta, again.num_leaves, again.gain) == (2, 0.2, 3, "p@5")
        assert "reg_lambda=2" in repr(again)
        ranker.reg_lambda = 5
        assert ranker.get_params()["reg_lambda"] == 5

    def test_n_jobs_as_scikit_learn_counts_them(self, data):
        X, y, qid = data
        for n_jobs in (-1, 0, 1, 2, None):
            ranker = BoostedRanker(**SMALL, n_jobs=n_jobs).fit(X, y, qid=qid)
            assert trees(ranker.booster_) == trees(by_hand(X, y, qid))


class TestEarlyStopping:
    @pytest.mark.parametrize(
        ("gain", "criterion", "convention", "metrics", "under"),
        [
            ("ndcg", "ndcg@1-10", "letor", "ndcg@1-10", "letor"),
            ("ndcg(discount=log2)@5", "ndcg@5", "standard", "ndcg@5", "standard"),
            ("ndcg", "map", "standard", "map", "standard"),
            ("p@5", "ndcg@10", "letor", "ndcg@10", "letor"),
        ],
    )
    def test_by_a_metric(self, data, validation, gain, criterion, convention, metrics, under):
        X, y, qid = data
        given = {**SMALL, "n_estimators": 60, "early_stopping_rounds": 6}
        ranker = BoostedRanker(gain, criterion=criterion, convention=convention, **given)
        ranker.fit(X, y, qid=qid, **evaluation(validation))
        stated = gain.replace("ndcg", "ndcg(discount=letor)") if convention == "letor" else gain
        whole = by_hand(X, y, qid, rounds=60, loss=TreeLoss(stated))
        values, best = [], 0
        for n in range(1, 61):
            scores = whole.predict(validation[0], num_iteration=n)
            result = evaluate(validation[1], scores, validation[2], metrics=metrics, convention=under)
            values.append(np.mean(list(result.values())))
            if values[-1] > values[best]:
                best = n - 1
            if n - 1 - best >= 6:
                break
        assert len(values) < 60, "the example must stop early"
        assert ranker.best_iteration_ == ranker.n_trees_ == ranker.booster_.num_trees() == best + 1
        (history,) = ranker.history_.values()
        assert_allclose(history, values, rtol=1e-12)
        assert ranker.fit_result_.status == "stopped early"
        assert ranker.fit_result_.validated_on == "15 validation queries"
        assert_array_equal(
            ranker.predict(validation[0]), whole.predict(validation[0], num_iteration=best + 1)
        )

    @pytest.mark.parametrize("gain", ["ndcg(discount=letor)", "p@5", OWN], ids=["ndcg", "p", "own"])
    def test_by_the_expected_gain(self, data, validation, gain):
        X, y, qid = data
        given = {**SMALL, "n_estimators": 30, "early_stopping_rounds": 5, "learning_rate": 0.5}
        ranker = BoostedRanker(gain, widths=(0.2, 0.5), **given)
        ranker.fit(X, y, qid=qid, **evaluation(validation))
        whole = by_hand(X, y, qid, rounds=30, loss=TreeLoss(gain, widths=(0.2, 0.5)), learning_rate=0.5)
        values = [
            np.mean(
                [
                    expected_gain(
                        whole.predict(validation[0], num_iteration=n),
                        validation[1],
                        validation[2],
                        gain=gain,
                        relaxation=SmoothedIndicator(width, kernel="laplace"),
                        n_iter=TreeLoss.n_iter,
                    ).value
                    for width in (0.2, 0.5)
                ]
            )
            for n in range(1, 31)
        ]
        (name,) = ranker.history_
        assert name == ("expected gain" if isinstance(gain, RankLinear) else f"expected {gain}")
        assert_allclose(ranker.history_[name], values[: len(ranker.history_[name])], rtol=1e-12)
        assert len(ranker.history_[name]) < 30, "the example must stop early"
        assert ranker.best_iteration_ == np.argmax(ranker.history_[name]) + 1

    def test_without_patience_all_trees_are_kept(self, data, validation):
        X, y, qid = data
        for none in (None, 0):
            ranker = BoostedRanker(
                **SMALL | {"n_estimators": 40, "learning_rate": 1}, early_stopping_rounds=none
            )
            ranker.fit(X, y, qid=qid, **evaluation(validation))
            assert ranker.n_trees_ == 40
            assert len(ranker.history_["expected ndcg(discount=log2)"]) == 40
            assert np.argmax(ranker.history_["expected ndcg(discount=log2)"]) < 39, "the last is not the best"

    def test_dart_keeps_all_trees(self, data, validation):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, boosting="dart", early_stopping_rounds=2)
        ranker.fit(X, y, qid=qid, **evaluation(validation))
        assert ranker.n_trees_ == len(ranker.history_["expected ndcg(discount=log2)"]) == 12

    def test_a_least_improvement(self, data, validation):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, early_stopping_rounds=3, early_stopping_min_delta=1.0)
        ranker.fit(X, y, qid=qid, **evaluation(validation))
        assert ranker.best_iteration_ == 1
        assert ranker.fit_result_.n_rounds == 4

    def test_a_share_of_the_queries_is_held_out(self, data):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, validation_fraction=0.25, early_stopping_rounds=5)
        ranker.fit(X, y, qid=qid)
        assert ranker.fit_result_.validated_on == "5 queries held out"
        order = np.random.default_rng([0, 0]).permutation(20)
        kept = np.isin(qid, order[5:])
        assert trees(ranker.booster_) == trees(
            by_hand(X[kept], y[kept], qid[kept], rounds=ranker.best_iteration_)
        )
        assert BoostedRanker(**SMALL).fit(X, y, qid=qid).history_ == {}
        assert BoostedRanker(**SMALL).fit(X, y, qid=qid).evals_result_ == {}

    def test_several_evaluation_sets_validate_together(self, data, validation):
        X, y, qid = data
        Xv, yv, qv = validation
        half = qv < 7
        parts = [(Xv[half], yv[half]), (sparse.csr_matrix(Xv[~half]), yv[~half])]
        one = BoostedRanker(**SMALL).fit(X, y, qid=qid, **evaluation(validation))
        two = BoostedRanker(**SMALL).fit(X, y, qid=qid, eval_set=parts, eval_qid=[qv[half], qv[~half]])
        groups = [np.bincount(qv[half]), np.bincount(qv[~half] - 7)]
        again = BoostedRanker(**SMALL).fit(X, y, qid=qid, eval_set=parts, eval_group=groups)
        assert two.fit_result_ == one.fit_result_ == again.fit_result_

    def test_an_interrupt_keeps_the_best_so_far(self, data, validation, monkeypatch):
        X, y, qid = data
        whole = BoostedRanker(**SMALL, early_stopping_rounds=None).fit(X, y, qid=qid)
        plain, calls = Derivatives.__call__, []

        def interrupted(self, scores):
            calls.append(1)
            if len(calls) == 8:
                raise KeyboardInterrupt
            return plain(self, scores)

        monkeypatch.setattr(Derivatives, "__call__", interrupted)
        ranker = BoostedRanker(**SMALL)
        with pytest.warns(RuntimeWarning, match="BoostedRanker: The fit was interrupted") as caught:
            ranker.fit(X, y, qid=qid, **evaluation(validation))
        assert caught[0].filename == __file__
        record = ranker.fit_result_
        assert record.status == "interrupted"
        assert record.n_rounds == len(record.values) == 7
        assert ranker.n_trees_ == record.best == 1 + int(np.argmax(record.values))
        assert_array_equal(ranker.predict(X), whole.booster_.predict(X, num_iteration=record.best))
        calls[:] = [1] * 7
        with pytest.raises(KeyboardInterrupt):
            BoostedRanker(**SMALL).fit(X, y, qid=qid)

    def test_lightgbms_callbacks(self, data, validation):
        X, y, qid = data
        seen = {}
        rates = [0.3] * 3 + [0.05] * 9
        ranker = BoostedRanker(**SMALL, early_stopping_rounds=None).fit(
            X,
            y,
            qid=qid,
            **evaluation(validation),
            callbacks=[
                lightgbm.record_evaluation(seen),
                lightgbm.early_stopping(2, verbose=False),
                lightgbm.reset_parameter(learning_rate=rates),
            ],
        )
        assert seen == ranker.evals_result_
        assert seen["validation"] == ranker.history_
        best = int(np.argmax(ranker.history_["expected ndcg(discount=log2)"]))
        assert ranker.best_iteration_ == ranker.n_trees_ == best + 1
        shrinkage = [tree["shrinkage"] for tree in ranker.booster_.dump_model()["tree_info"]]
        assert shrinkage == rates[: best + 1]


class TestData:
    def test_rows_in_any_order(self, data, validation):
        X, y, qid = data
        order = np.random.default_rng(5).permutation(len(y))
        # stably grouped, the rows of a query are these, and the queries come as they first appear
        sorted_rows = np.concatenate([order[qid[order] == q] for q in dict.fromkeys(qid[order].tolist())])
        ranker = BoostedRanker(**SMALL).fit(X[order], y[order], qid=qid[order], **evaluation(validation))
        names = np.array([f"query {q}" for q in qid])
        again = BoostedRanker(**SMALL).fit(
            X[sorted_rows],
            y[sorted_rows],
            group=[np.sum(qid == q) for q in dict.fromkeys(qid[order].tolist())],
            **evaluation(validation),
        )
        assert trees(ranker.booster_) == trees(again.booster_)
        assert_array_equal(ranker.predict(X)[order], ranker.predict(X[order]))
        third = BoostedRanker(**SMALL).fit(X[order], y[order], qid=names[order], **evaluation(validation))
        assert trees(third.booster_) == trees(ranker.booster_)

    @given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 2**32 - 1))
    def test_the_law_of_grouping(self, queries, seed):
        """Rows in any order make the trees of the rows grouped stably, queries as they first appear."""
        rng = np.random.default_rng(seed)
        qid = np.array(queries)
        X = rng.integers(0, 5, size=(len(qid), 2)).astype(float)
        y = rng.integers(0, 3, len(qid)).astype(float)
        grouped = np.concatenate([np.flatnonzero(qid == q) for q in dict.fromkeys(queries)])
        given_ = {"n_estimators": 3, "num_leaves": 4, "min_child_samples": 1, "min_data_in_bin": 1}
        ranker = BoostedRanker(**given_).fit(X, y, qid=qid)
        again = BoostedRanker(**given_).fit(X[grouped], y[grouped], qid=qid[grouped])
        assert ranker.booster_.model_to_string() == again.booster_.model_to_string()
        assert_array_equal(ranker.predict(X), ranker.booster_.predict(X))
        ranks = ranker.rank(X, qid=qid)
        for q in set(queries):
            assert sorted(ranks[qid == q]) == list(range(1, queries.count(q) + 1))

    @pytest.mark.parametrize(
        "kind", [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array, sparse.csr_array]
    )
    def test_sparse_rows(self, data, kind):
        X, y, qid = data
        X = np.where(np.abs(X) < 0.5, 0, X)
        order = np.random.default_rng(5).permutation(len(y))
        dense = BoostedRanker(**SMALL, validation_fraction=0.3).fit(X[order], y[order], qid=qid[order])
        ranker = BoostedRanker(**SMALL, validation_fraction=0.3).fit(kind(X[order]), y[order], qid=qid[order])
        assert trees(ranker.booster_) == trees(dense.booster_)
        assert_array_equal(ranker.predict(kind(X)), dense.predict(X))
        assert_array_equal(ranker.rank(kind(X), qid=qid), dense.rank(X, qid=qid))
        assert ranker.score(kind(X), y, qid=qid) == dense.score(X, y, qid=qid)
        assert ranker.n_features_in_ == 4
        bad = sparse.csr_matrix(X)
        bad[3, 2] = -np.inf
        with pytest.raises(ValueError, match=r"X must be finite.* row 3, column 2 holds -inf"):
            ranker.predict(bad)
        with pytest.raises(ValueError, match="3 features"):
            ranker.predict(kind(X[:, :3]))

    def test_missing_values_are_lightgbms(self, data):
        X, y, qid = data
        X = np.where(np.random.default_rng(2).random(X.shape) < 0.2, np.nan, X)
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid)
        assert trees(ranker.booster_) == trees(by_hand(X, y, qid))
        assert_array_equal(ranker.predict(X), by_hand(X, y, qid).predict(X))
        as_sparse = sparse.csr_matrix(X)
        assert_array_equal(ranker.predict(as_sparse), ranker.predict(X))

    def test_categories_by_number(self, data):
        X, y, qid = data
        X = X.copy()
        X[:, 2] = np.random.default_rng(4).integers(0, 6, len(y))
        y = (np.isin(X[:, 2], [1, 4]) + (X[:, 0] > 0)).astype(float)
        given = {"cat_smooth": 1, "min_data_per_group": 5, "cat_l2": 0.1}
        ranker = BoostedRanker(**SMALL, **given).fit(X, y, qid=qid, categorical_feature=[2])
        groups = group_rows(qid, len(y))
        derivatives = Derivatives(TreeLoss(), y, groups)
        parameters = {
            **given, "objective": "none", "num_leaves": 5, "learning_rate": 0.1, "min_data_in_leaf": 5,
            "deterministic": True, "force_col_wise": True, "seed": 0, "num_threads": 1, "verbosity": -1,
        }  # fmt: skip
        booster = lightgbm.Booster(
            parameters,
            lightgbm.Dataset(X, np.zeros(len(y)), categorical_feature=[2], params=parameters),
        )
        for _ in range(12):
            booster.update(fobj=lambda scores, _: derivatives(scores))
        assert trees(ranker.booster_) == trees(booster)
        assert "num_cat=1" in trees(ranker.booster_)
        for wrong, message in (
            ([4], "no feature 4; X has 4"),
            (["a"], "'a' is not the name"),
            ("a", r"Use \['a'\]"),
            ([-1], "at least 0"),
        ):
            with pytest.raises(ValueError, match=f"categorical_feature.*{message}"):
                BoostedRanker(**SMALL).fit(X, y, qid=qid, categorical_feature=wrong)

    @pytest.mark.parametrize("labels", ["none relevant", "all equal", "one relevant", "huge", "fractions"])
    def test_labels_of_all_kinds(self, data, labels):
        X, y, qid = data
        y = {
            "none relevant": np.zeros(len(y)),
            "all equal": np.full(len(y), 2.0),
            "one relevant": (np.arange(len(y)) == 3).astype(float),
            "huge": 40 + 100 * y,
            "fractions": y / 3,
        }[labels]
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid)
        scores = ranker.predict(X)
        assert np.isfinite(scores).all()
        assert (scores == 0).all() == (labels in ("none relevant", "all equal"))
        if scores.any():
            assert trees(ranker.booster_) == trees(by_hand(X, y, qid))

    def test_a_query_longer_than_lightgbm_takes(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(12_500, 2))
        y, qid = (X[:, 0] > 1).astype(float), np.repeat([0, 1], [12_000, 500])
        ranker = BoostedRanker(n_estimators=3, n_threads=1).fit(X, y, qid=qid)
        assert ranker.score(X, y, qid=qid) == 1
        with pytest.raises(lightgbm.basic.LightGBMError, match="10000"):
            lightgbm.LGBMRanker(n_estimators=1, verbose=-1).fit(X, y, group=[12_000, 500])

    @pytest.mark.parametrize(
        ("X", "y", "qid"),
        [
            ([[1.0, 2.0]], [1], [0]),
            ([[1.0], [1.0], [1.0]], [0, 1, 0], [0, 0, 0]),
            (np.full((50, 2), np.nan), np.arange(50) % 3, np.repeat(range(5), 10)),
            (np.zeros((50, 1)), np.arange(50) % 3, np.repeat(range(5), 10)),
        ],
        ids=["one document", "constant", "all missing", "zero"],
    )
    @pytest.mark.parametrize("share", [None, 0.5])
    def test_what_cannot_be_split(self, X, y, qid, share):
        ranker = BoostedRanker(n_estimators=5, validation_fraction=share).fit(X, y, qid=qid)
        assert_array_equal(ranker.predict(X), np.zeros(len(y)))
        assert_array_equal(ranker.feature_importances_, np.zeros(np.shape(X)[1]))
        assert ranker.rank(X, qid=qid)[0] == 1

    def test_documents_alone_in_their_queries_teach_nothing(self, data):
        X, y, _ = data
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=np.arange(len(y)))
        assert_array_equal(ranker.predict(X), np.zeros(len(y)))

    def test_queries_of_no_weight_do_not_count(self, data):
        X, y, qid = data
        weight = (np.arange(20) % 3 > 0).astype(float)
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid, query_weight=weight)
        kept = weight[qid] > 0
        assert trees(ranker.booster_) == trees(by_hand(X[kept], y[kept], qid[kept]))
        only = (np.arange(20) == 4).astype(float)
        held = BoostedRanker(**SMALL, validation_fraction=0.5).fit(X, y, qid=qid, query_weight=only)
        assert held.fit_result_.validated_on == "the one training query itself"
        for zero in ({"query_weight": np.zeros(20)}, {"sample_weight": np.zeros(len(y))}):
            with pytest.raises(ValueError, match="sum above 0"):
                BoostedRanker(**SMALL).fit(X, y, qid=qid, **zero)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda X, y, q: (X[:, 0], y, q), "2D array"),
            (lambda X, y, q: (X, y[:-1], q), "labels must have one value per row of X"),
            (lambda X, y, q: (X, y, q[:-1]), "qid must have one id per row"),
            (lambda X, y, q: (X, np.where(y == 1, np.nan, y), q), "labels must be finite"),
            (lambda X, y, q: (X, -y, q), "not below 0"),
            (lambda X, y, q: (np.where(X > 2, np.inf, X), y, q), "X must be finite, or NaN for missing"),
            (lambda X, y, q: ([["a"] * 4] * len(y), y, q), "could not convert|real numbers|numeric"),
            (lambda X, y, q: (X, None, q), "requires y"),
            (lambda X, y, q: (X[:0], y[:0], q[:0]), "0 sample|minimum of 1"),
        ],
    )
    def test_what_is_not_data(self, data, change, message):
        X, y, qid = change(*data)
        with pytest.raises(ValueError, match=message):
            BoostedRanker(**SMALL).fit(X, y, qid=qid)

    def test_lists_are_arrays(self, data, fitted):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL).fit(X.tolist(), y.tolist(), qid=qid.tolist())
        assert_array_equal(ranker.predict(X.tolist()), fitted.predict(X))

    def test_scores_that_overflow(self, data):
        X, y, qid = data
        with pytest.raises(ValueError, match=r"overflowed\. Lower learning_rate"):
            BoostedRanker(n_estimators=5, learning_rate=1e308).fit(X, y, qid=qid)


class TestBagging:
    def test_queries_are_drawn_whole(self, data):
        _, y, qid = data
        groups = group_rows(qid, len(y))
        plain = Derivatives(TreeLoss(), y, groups)
        bagging = QueryBagging(plain, groups, fraction=0.3, every=2, seed=1)
        gradient, hessian = plain(np.zeros(len(y)))
        drawn = []
        for _ in range(6):
            g, h = bagging(np.zeros(len(y)))
            inside = np.unique(qid[h > 0])
            kept = np.isin(qid, inside)
            assert len(inside) == 6
            assert_array_equal(g, np.where(kept, gradient, 0))
            assert_array_equal(h, np.where(kept, hessian, 0))
            drawn.append(tuple(inside))
        assert drawn[0] == drawn[1] != drawn[2] == drawn[3] != drawn[4] == drawn[5]

    def test_a_subsample_needs_no_frequency(self, data, fitted):
        X, y, qid = data
        half = BoostedRanker(**SMALL, subsample=0.5).fit(X, y, qid=qid)
        assert trees(half.booster_) != trees(fitted.booster_)
        same = BoostedRanker(**SMALL, bagging_fraction=0.5, bagging_freq=1).fit(X, y, qid=qid)
        assert trees(half.booster_) == trees(same.booster_)
        never = BoostedRanker(**SMALL, subsample=0.5, subsample_freq=0).fit(X, y, qid=qid)
        assert trees(never.booster_) == trees(fitted.booster_)
        other = BoostedRanker(**SMALL, subsample=0.5, bagging_seed=7).fit(X, y, qid=qid)
        assert trees(other.booster_) != trees(half.booster_)

    def test_rows_are_drawn_by_lightgbm(self, data):
        X, y, qid = data
        ranker = BoostedRanker(**SMALL, subsample=0.5, bagging_by_query=False).fit(X, y, qid=qid)
        assert trees(ranker.booster_) == trees(by_hand(X, y, qid, bagging_fraction=0.5, bagging_freq=1))

    def test_lightgbms_own_bagging_by_query_grows_stunted_trees(self, data):
        """The reason why queries are drawn here: if this fails, LightGBM may have learned it."""
        X, y, qid = data
        derivatives = Derivatives(TreeLoss(), y, group_rows(qid, len(y)))
        given = {
            "objective": "none", "bagging_fraction": 0.5, "bagging_freq": 1, "bagging_by_query": True,
            "min_data_in_leaf": 5, "verbosity": -1, "num_threads": 1,
        }  # fmt: skip
        rows = lightgbm.Dataset(X, np.zeros(len(y)), group=np.bincount(qid), params=given)
        booster = lightgbm.Booster(given, rows)
        booster.update(fobj=lambda scores, _: derivatives(scores))
        own = BoostedRanker(n_estimators=1, num_leaves=31, min_child_samples=5, subsample=0.5)
        own.fit(X, y, qid=qid)
        leaves = [b.dump_model()["tree_info"][0]["num_leaves"] for b in (booster, own.booster_)]
        assert leaves[0] < leaves[1] / 2


class TestRepeating:
    @pytest.mark.parametrize(
        "given", [{}, {"subsample": 0.5, "colsample_bytree": 0.5}, {"subsample": 0.5, "bagging_by_query": 0}]
    )
    def test_the_same_trees_with_any_number_of_threads(self, given):
        X, y, qid = ranking_data(260, 7)
        assert len(y) > 4000
        texts = {
            BoostedRanker(**{**SMALL, "n_estimators": 4}, **given, n_threads=n)
            .fit(X, y, qid=qid)
            .booster_.model_to_string()
            for n in (1, 2, 3)
        }
        assert len(texts) == 1

    def test_the_seed(self, data):
        X, y, qid = data
        first, second, other = (
            BoostedRanker(**SMALL, colsample_bytree=0.5, random_state=seed).fit(X, y, qid=qid)
            for seed in (1, 1, 2)
        )
        assert trees(first.booster_) == trees(second.booster_) != trees(other.booster_)
        BoostedRanker(**SMALL, random_state=None).fit(X, y, qid=qid)

    @pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
    def test_it_survives_a_fork(self):
        assert steps_of_a_fork(BoostedRanker, n_estimators=5) == ALL_STEPS

    def test_pickles_and_copies(self, data, fitted):
        X, _, _ = data
        for again in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
            assert_array_equal(again.predict(X), fitted.predict(X))
            assert again.fit_result_ == fitted.fit_result_


class TestFitted:
    def test_importances(self, data, fitted):
        splits = fitted.feature_importances_
        assert splits.sum() == sum(
            tree["num_leaves"] - 1 for tree in fitted.booster_.dump_model()["tree_info"]
        )
        ranker = copy.deepcopy(fitted).set_params(importance_type="gain")
        assert_array_equal(ranker.feature_importances_, fitted.booster_.feature_importance("gain"))
        assert set(np.argsort(ranker.feature_importances_)[-2:]) == {0, 1}
        with pytest.raises(ValueError, match="importance_type must be"):
            ranker.set_params(importance_type="cover").feature_importances_  # noqa: B018

    def test_contributions_sum_to_the_scores(self, data, fitted):
        X, _, _ = data
        contributions = fitted.booster_.predict(X, pred_contrib=True)
        assert_allclose(contributions.sum(axis=1), fitted.predict(X), rtol=1e-9, atol=1e-12)

    def test_not_fitted(self, data):
        ranker = BoostedRanker()
        for ask in (
            lambda: ranker.predict(data[0]),
            lambda: ranker.history_,
            lambda: ranker.feature_importances_,
        ):
            with pytest.raises(NotFittedError):
                ask()

    def test_trees_that_come_first(self, data, validation):
        X, y, qid = data
        first = BoostedRanker(**SMALL).fit(X, y, qid=qid)
        for model in (first, first.booster_):
            ranker = BoostedRanker(**{**SMALL, "n_estimators": 8}, early_stopping_rounds=3)
            ranker.fit(X, y, qid=qid, init_model=model, **evaluation(validation))
            whole = by_hand(X, y, qid, rounds=20)
            kept = 12 + ranker.best_iteration_
            assert ranker.n_trees_ == kept
            assert_allclose(ranker.predict(X), whole.predict(X, num_iteration=kept), rtol=1e-6)
            expected = [
                Derivatives(TreeLoss(), validation[1], group_rows(validation[2], len(validation[1]))).value(
                    whole.predict(validation[0], num_iteration=13 + i)
                )
                for i in range(ranker.fit_result_.n_rounds)
            ]
            assert_allclose(ranker.history_["expected ndcg(discount=log2)"], expected, rtol=1e-6)
        warm = lightgbm.LGBMRanker(n_estimators=5, verbose=-1, num_threads=1).fit(
            X, y, group=np.bincount(qid)
        )
        both = BoostedRanker(**SMALL).fit(X, y, qid=qid, init_model=warm)
        assert both.n_trees_ == 17
        assert_allclose(both.booster_.predict(X, num_iteration=5), warm.booster_.predict(X))
        flat = BoostedRanker(**SMALL).fit(
            np.zeros_like(X), y, qid=qid, init_model=warm, **evaluation(validation)
        )
        assert flat.n_trees_ == 5
        assert_allclose(flat.predict(X), warm.booster_.predict(X))
        with pytest.raises(ValueError, match="init_model must be a BoostedRanker"):
            BoostedRanker().fit(X, y, qid=qid, init_model="model.txt")
        with pytest.raises(ValueError, match="LightGBM refuses this"):
            BoostedRanker().fit(X[:, :2], y, qid=qid, init_model=warm)

    def test_progress_goes_to_terminals_only(self, data, capsys):
        X, y, qid = data
        BoostedRanker(**SMALL, verbose=True).fit(X, y, qid=qid)
        BoostedRanker(**SMALL, verbose=-1).fit(X, y, qid=qid)
        out = capsys.readouterr()
        assert out.out == out.err == ""


# What scikit-learn's checks ask and this ranker must not give.
EXPECTED = {
    "check_fit_score_takes_y": "score without qid is an error: it would take all rows for one query",
    "check_pipeline_consistency": "calls score without qid",
    "check_do_not_raise_errors_in_init_or_set_params": "a keyword that nobody knows is a TypeError",
}


class TestScikitLearn:
    @pytest.mark.filterwarnings("ignore:fit. no qid was given:UserWarning")
    def test_its_checks(self):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            results = check_estimator(BoostedRanker(n_estimators=5), on_fail=None, on_skip=None)
        failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
        assert failed.keys() == EXPECTED.keys(), failed
        assert sum(r["status"] == "passed" for r in results) >= 45

    def test_grid_search_scores_by_query(self, data):
        from sklearn import config_context
        from sklearn.model_selection import GridSearchCV, GroupKFold

        X, y, qid = data
        grid = {"reg_lambda": [0.0, 100.0], "num_leaves": [2, 5]}
        with config_context(enable_metadata_routing=True):
            search = GridSearchCV(
                BoostedRanker(n_estimators=5, min_child_samples=5, reg_lambda=1),
                grid,
                cv=GroupKFold(3),
                error_score="raise",
            ).fit(X, y, qid=qid, groups=qid)
        assert len(search.cv_results_["params"]) == 4
        train, test = next(GroupKFold(3).split(X, y, groups=qid))
        first = BoostedRanker(n_estimators=5, min_child_samples=5, reg_lambda=0.0, num_leaves=2)
        first.fit(X[train], y[train], qid=qid[train])
        assert search.cv_results_["split0_test_score"][0] == first.score(X[test], y[test], qid=qid[test])
        assert search.best_estimator_.get_params()["reg_lambda"] == search.best_params_["reg_lambda"]

    def test_nothing_is_imported_before_it_is_used(self):
        code = "import sys, sinkprop.gbdt; print([m for m in ('lightgbm', 'sklearn') if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_without_lightgbm(self, data, monkeypatch):
        X, y, qid = data
        monkeypatch.setitem(sys.modules, "lightgbm", None)
        with pytest.raises(ImportError, match=r'pip install "sinkprop\[lightgbm\]"'):
            BoostedRanker().fit(X, y, qid=qid)
