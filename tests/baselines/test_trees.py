"""LightGBMRanker, against LightGBM itself; the loss of pairs has its own tests."""

import io
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from rich.console import Console
from sklearn.base import clone
from tree_problems import AWKWARD, evaluation, ranking_data

import sinkprop
from sinkprop import evaluate
from sinkprop.baselines import LightGBMRanker, XGBoostRanker
from sinkprop.baselines.pairwise_loss import PairwiseLogistic
from sinkprop.data import group_rows
from sinkprop.experiment import METHODS, compare
from sinkprop.experiment.tables import print_comparison
from sinkprop.gbdt import BoostedRanker, Derivatives, TreeLoss
from sinkprop.objective.gains.custom import UnsavedGain

lightgbm = pytest.importorskip(
    "lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm"
)

OBJECTIVES = ["lambdarank", "rank_xendcg", "ranknet", "sinkprop"]
ONE = {"num_leaves": 5, "min_child_samples": 10, "learning_rate": 0.1, "n_estimators": 15, "step": 15}
FEW = {"num_leaves": (3, 6), "min_child_samples": (30, 10), "n_estimators": 12, "step": 5}


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def validation():
    return ranking_data(15, 1)


def direct(X, y, qid, objective, *, weight=None, rounds=15, **parameters):
    """The scores of LightGBM without sinkprop, and the booster."""
    given = {
        "objective": objective,
        "num_leaves": 5,
        "min_data_in_leaf": 10,
        "learning_rate": 0.1,
        "deterministic": True,
        "force_col_wise": True,
        "seed": 0,
        "num_threads": 1,
        "verbosity": -1,
        **parameters,
    }
    rows = lightgbm.Dataset(X, y, group=np.bincount(qid), weight=weight)
    booster = lightgbm.train(given, rows, num_boost_round=rounds)
    return booster.predict(X, raw_score=True, num_threads=1), booster


@pytest.mark.parametrize("objective", ["lambdarank", "rank_xendcg"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_it_is_lightgbm(data, objective, weighted, dtype):
    X, y, qid = data
    X = X.astype(dtype)
    rng = np.random.default_rng(3)
    rows, queries = rng.uniform(0.5, 2, len(y)), rng.uniform(0.5, 2, 20)
    given = {"sample_weight": rows, "query_weight": queries} if weighted else {}
    model = LightGBMRanker(objective, **ONE).fit(X, y, qid=qid, **given)
    expected, booster = direct(X, y, qid, objective, weight=rows * queries[qid] if weighted else None)
    assert_array_equal(model.predict(X), expected)
    assert model.booster_.num_trees() == model.n_trees_ == 15
    trees = [one.model_to_string().split("\nparameters:")[0] for one in (model.booster_, booster)]
    assert trees[0] == trees[1]


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_ranknet_is_lightgbm_with_the_derivatives_of_the_pairs(data, weighted):
    X, y, qid = data
    rng = np.random.default_rng(3)
    rows, queries = (rng.uniform(0.5, 2, len(y)), rng.uniform(0.5, 2, 20)) if weighted else (None, None)

    def by_hand(scores, _):
        gradient, hessian = np.zeros_like(scores), np.zeros_like(scores)
        for q in np.unique(qid):
            of = np.flatnonzero(qid == q)
            larger = y[of][:, None] > y[of]
            p = larger / (1 + np.exp(scores[of][:, None] - scores[of]))
            if weighted:
                p = p * np.outer(rows[of], rows[of]) * queries[q]
            p_one = larger / (1 + np.exp(scores[of][:, None] - scores[of]))
            curvature = p * (1 - p_one)
            gradient[of] = p.sum(axis=0) - p.sum(axis=1)
            hessian[of] = curvature.sum(axis=0) + curvature.sum(axis=1)
        return gradient, hessian

    model = LightGBMRanker("ranknet", **ONE).fit(X, y, qid=qid, sample_weight=rows, query_weight=queries)
    assert_allclose(model.predict(X), direct(X, y, qid, by_hand)[0], rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("loss", [None, {"gain": "p@3", "n_iter": 3}], ids=["default", "other"])
def test_sinkprop_is_lightgbm_with_the_derivatives_of_the_expected_gain(data, weighted, loss):
    X, y, qid = data
    rng = np.random.default_rng(3)
    rows, queries = (rng.uniform(0.5, 2, len(y)), rng.uniform(0.5, 2, 20)) if weighted else (None, None)
    of = Derivatives(
        TreeLoss(**(loss or {})), y, group_rows(qid, len(y)), sample_weight=rows, query_weight=queries
    )
    model = LightGBMRanker("sinkprop", **ONE, loss=loss).fit(
        X, y, qid=qid, sample_weight=rows, query_weight=queries
    )
    expected, _ = direct(X, y, qid, lambda scores, _: of(scores))
    assert_array_equal(model.predict(X), expected)
    assert model.fit_result_.chosen.value == of.value(model.predict(X))


def test_the_noise_of_sinkprop_is_drawn_by_the_seed(data):
    X, y, qid = data
    first, again, other = (
        LightGBMRanker("sinkprop", **ONE, random_state=seed).fit(X, y, qid=qid).predict(X)
        for seed in (1, 1, 2)
    )
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    own = LightGBMRanker("sinkprop", **ONE, random_state=2, loss={"seed": 1}).fit(X, y, qid=qid)
    assert_array_equal(own.predict(X), first)  # nothing else of these trees is drawn


def test_further_parameters_are_lightgbms(data, tmp_path):
    X, y, qid = data
    further = {"reg_lambda": 5.0, "max_depth": 2}
    model = LightGBMRanker(**ONE, params=further).fit(X, y, qid=qid)
    expected, _ = direct(X, y, qid, "lambdarank", lambda_l2=5.0, max_depth=2)
    assert_array_equal(model.predict(X), expected)
    assert not np.array_equal(expected, LightGBMRanker(**ONE).fit(X, y, qid=qid).predict(X))
    model.save(tmp_path / "m.model")
    loaded = LightGBMRanker.load(tmp_path / "m.model")
    assert loaded.params == further
    assert_array_equal(clone(loaded).fit(X, y, qid=qid).predict(X), expected)


def test_a_saved_loss(data, tmp_path):
    X, y, qid = data
    path = tmp_path / "m.model"
    own = sinkprop.RankLinear(gain=np.sqrt, discount=lambda ranks: 1 / ranks)
    for gain, kept in (
        ("ndcg@5", "ndcg@5"),
        (sinkprop.NDCG(3), sinkprop.NDCG(3)),
        (own, UnsavedGain("RankLinear")),
    ):
        model = LightGBMRanker("sinkprop", **ONE, loss={"gain": gain, "n_iter": np.int64(3)})
        model.fit(X, y, qid=qid).save(path)
        assert LightGBMRanker.load(path).loss == {"gain": kept, "n_iter": 3}
        assert_array_equal(LightGBMRanker.load(path).predict(X), model.predict(X))


def test_the_record_says_what_was_minimized(data):
    X, y, qid = data
    model = LightGBMRanker("ranknet", **{**ONE, "step": 5}).fit(
        X, y, qid=qid, eval_set=[(X, y)], eval_qid=[qid]
    )
    losses = [trial.value for trial in model.fit_result_.trials]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] < np.log(2)
    whole = LightGBMRanker("ranknet", **ONE).fit(X, y, qid=qid)
    loss = PairwiseLogistic(y, np.append(0, np.cumsum(np.bincount(qid))))
    mean = loss.values(whole.predict(X)).sum() / loss.n_pairs
    assert losses[-1] == pytest.approx(mean, rel=1e-12)
    by_rank = LightGBMRanker(**ONE).fit(X, y, qid=qid)
    assert by_rank.fit_result_.chosen.value == evaluate(y, by_rank.predict(X), qid, metrics=["ndcg"])["ndcg"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_best_candidate_on_the_validation_queries_is_taken(data, validation, objective):
    X, y, qid = data
    model = LightGBMRanker(objective, **FEW).fit(X, y, qid=qid, **evaluation(validation))
    result = model.fit_result_
    assert result.validated_on == "15 validation queries"
    assert [t.setting["trees"] for t in result.trials] == [5, 10, 12] * 4
    assert [(t.setting["num_leaves"], t.setting["min_child_samples"]) for t in result.trials[::3]] == [
        (3, 30), (3, 10), (6, 30), (6, 10)
    ]  # fmt: skip
    names = [f"ndcg@{k}" for k in range(1, 11)]
    for trial in result.trials:
        setting = dict(trial.setting)
        trees = setting.pop("trees")
        alone = LightGBMRanker(objective, **setting, n_estimators=trees, step=trees).fit(X, y, qid=qid)
        values = evaluate(validation[1], alone.predict(validation[0]), validation[2], metrics=names)
        assert trial.criterion == pytest.approx(np.mean(list(values.values())), abs=1e-12)
        if trial.chosen:
            assert_array_equal(alone.predict(X), model.predict(X))
            assert model.n_trees_ == trees
    assert result.chosen.criterion == max(t.criterion for t in result.trials)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_learns_what_no_linear_ranker_can(objective):
    train, test = ranking_data(60, 5), ranking_data(100, 6)
    linear = sinkprop.baselines.RegressionRanker().fit(*train[:2], qid=train[2])
    trees = LightGBMRanker(objective, **{**ONE, "n_estimators": 60, "step": 60}).fit(*train[:2], qid=train[2])
    assert trees.score(*test[:2], qid=test[2]) > linear.score(*test[:2], qid=test[2]) + 0.2


def test_the_seed_is_that_of_what_is_drawn(data):
    X, y, qid = data
    a, b, c = (
        LightGBMRanker("rank_xendcg", **ONE, random_state=seed).fit(X, y, qid=qid) for seed in (0, 0, 1)
    )
    assert_array_equal(a.predict(X), b.predict(X))
    assert not np.array_equal(a.predict(X), c.predict(X))
    LightGBMRanker("rank_xendcg", **ONE, random_state=np.random.RandomState(0)).fit(X, y, qid=qid)


def test_labels_of_any_size_are_those_of_a_table_of_gains(data):
    X, y, qid = data
    high = np.array([0.0, 33.0, 40.0])[y.astype(int)]
    model = LightGBMRanker(**ONE).fit(X, high, qid=qid)
    gains = [2.0**label - 1 for label in range(41)]
    expected, _ = direct(X, high, qid, "lambdarank", label_gain=gains)
    assert_array_equal(model.predict(X), expected)
    with pytest.raises(ValueError, match="below 960"):
        LightGBMRanker(**ONE).fit(X, y * 500, qid=qid)
    # of pairs only the order counts
    pairs, far = (LightGBMRanker("ranknet", **ONE).fit(X, labels, qid=qid) for labels in (y, y**3 * 1e6))
    assert_array_equal(pairs.predict(X), far.predict(X))


def test_labels_between_whole_numbers(data):
    X, y, qid = data
    half = LightGBMRanker(**ONE).fit(X, y / 2, qid=qid)
    expected, _ = direct(X, y, qid, "lambdarank", label_gain=[0.0, 2**0.5 - 1, 1.0])
    assert_array_equal(half.predict(X), expected)
    pairs = [LightGBMRanker("ranknet", **ONE).fit(X, labels, qid=qid).predict(X) for labels in (y, y / 2)]
    assert_array_equal(*pairs)
    with pytest.raises(
        ValueError, match=r"labels must be whole numbers for objective='rank_xendcg'.* got 0\.5"
    ):
        LightGBMRanker("rank_xendcg", **ONE).fit(X, y / 2, qid=qid)
    continuous = y + np.random.default_rng(0).uniform(size=len(y))
    assert LightGBMRanker(**ONE).fit(X, continuous, qid=qid).score(X, y, qid=qid) > 0.5


def test_queries_longer_than_lightgbm_takes(capfd):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(10_011, 1)), np.array(["long"] * 10_001 + ["short"] * 10)
    y = (X[:, 0] > 1).astype(float)
    with pytest.raises(
        ValueError, match="query 'long' has 10001 documents; LightGBM's lambdarank takes at most 10000"
    ):
        LightGBMRanker(**ONE).fit(X, y, qid=qid)
    assert capfd.readouterr() == ("", "")
    for objective in ("ranknet", "rank_xendcg", "sinkprop"):
        model = LightGBMRanker(objective, **{**ONE, "n_estimators": 2, "step": 2}).fit(X, y, qid=qid)
        assert model.score(X, y, qid=qid) > 0.9
    validated = LightGBMRanker(**FEW).fit(X[-10:], y[-10:], qid=qid[-10:], eval_set=[(X, y)], eval_qid=[qid])
    assert validated.fit_result_.validated_on == "2 validation queries"


def test_missing_values_are_taken_and_infinite_ones_are_not(data, tmp_path):
    X, y, qid = data
    holes = X.copy()
    holes[np.random.default_rng(0).uniform(size=X.shape) < 0.3] = np.nan
    model = LightGBMRanker(**ONE).fit(holes, y, qid=qid)
    assert_array_equal(model.predict(holes), direct(holes, y, qid, "lambdarank")[0])
    assert np.isfinite(model.predict(holes)).all()
    model.save(tmp_path / "m.model")
    assert_array_equal(LightGBMRanker.load(tmp_path / "m.model").predict(holes), model.predict(holes))
    holes[7, 2] = np.inf
    for call in (lambda: model.predict(holes), lambda: LightGBMRanker().fit(holes, y, qid=qid)):
        with pytest.raises(
            ValueError, match="X must be finite, or NaN for missing; row 7, column 2 holds inf"
        ):
            call()
    with pytest.raises(ValueError, match="labels must be finite"):
        LightGBMRanker().fit(X, np.where(y > 1, np.nan, y), qid=qid)


def test_normalization_by_query(data):
    X, y, qid = data
    model = LightGBMRanker(**ONE, normalization="query").fit(X, y, qid=qid)
    moved = X * np.arange(1, 21)[qid][:, None] + qid[:, None]
    assert_allclose(model.predict(moved, qid=qid), model.predict(X, qid=qid))
    with pytest.raises(ValueError, match="predict needs qid="):
        model.predict(X)
    holes = X.copy()
    holes[::3, 0] = np.nan
    assert np.isfinite(
        LightGBMRanker(**ONE, normalization="query").fit(holes, y, qid=qid).booster_.predict(holes)
    ).all()


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("weights", ["plain", "weights of zero"])
def test_awkward_data_gives_a_finite_model(capfd, name, objective, weights):
    X, y, qid = AWKWARD[name]
    weight = {} if weights == "plain" else {"sample_weight": np.arange(1, len(y) + 1) % 2}
    model = LightGBMRanker(objective, **{**FEW, "min_child_samples": 1}).fit(X, y, qid=qid, **weight)
    assert np.isfinite(model.predict(X)).all()
    assert 0 <= model.score(X, y, qid=qid) <= 1
    assert len(model.fit_result_.trials) == 6
    assert capfd.readouterr() == ("", "")


def test_the_trees_before_saving_are_those_that_were_trained(data):
    X, y, qid = data
    model = LightGBMRanker(**ONE)
    found = []
    real = model._set_model

    def kept(chosen):
        found.append(chosen[0].predict(X, num_iteration=chosen[1], raw_score=True))
        real(chosen)

    model._set_model = kept
    model.fit(X, y, qid=qid)
    assert_array_equal(model.predict(X), found[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"objective": "lambdamart"},
            "objective must be 'lambdarank' or 'rank_xendcg' or 'ranknet' or 'sinkprop'; got 'lambdamart'",
        ),
        ({"num_leaves": 1}, "num_leaves must be at least 2"),
        ({"num_leaves": (4, 2.5)}, "num_leaves must be a whole number"),
        ({"num_leaves": ()}, "num_leaves must be a number, or several; got none"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0"),
        ({"learning_rate": "fast"}, "learning_rate must be a finite number above 0"),
        ({"learning_rate": [0.1, np.nan]}, "learning_rate must be a finite number above 0"),
        ({"min_child_samples": 0}, "min_child_samples must be at least 1"),
        ({"n_estimators": 0}, "n_estimators must be at least 1"),
        ({"step": 0}, "step must be at least 1"),
        ({"truncation_level": 0}, "truncation_level must be at least 1"),
        ({"normalization": "standard"}, "normalization must be 'none' or 'query'"),
        ({"metric": "ndcg@"}, "ndcg@"),
        ({"selection": "loo"}, "method must be"),
        ({"loss": {"widths": 2}}, "loss is for objective='sinkprop'; got .* with objective='lambdarank'"),
        ({"objective": "sinkprop", "loss": "ndcg"}, "loss must be a mapping from names to values"),
        ({"objective": "sinkprop", "loss": {"widht": 2}}, "loss has 'widht'.* Did you mean 'widths'"),
        ({"objective": "sinkprop", "loss": {"gain": "f1"}}, "f1"),
        ({"params": [1]}, "params must be a mapping"),
        (
            {"params": {"lambda_l3": 1}},
            "params has 'lambda_l3', which LightGBM does not know.*'lambda_l",
        ),
        ({"params": {"n_jobs": 1}}, "params has 'n_jobs', which this ranker sets; set n_threads="),
        ({"params": {"eta": 1}}, "params has 'eta', which this ranker sets; set learning_rate="),
    ],
)
def test_wrong_parameters_are_errors(data, parameters, message):
    X, y, qid = data
    with pytest.raises(ValueError, match=message):
        LightGBMRanker(**parameters).fit(X, y, qid=qid)


def test_the_truncation_level_is_lightgbms(data):
    X, y, qid = data
    model = LightGBMRanker(**ONE, truncation_level=3).fit(X, y, qid=qid)
    expected, _ = direct(X, y, qid, "lambdarank", lambdarank_truncation_level=3)
    assert_array_equal(model.predict(X), expected)
    assert not np.array_equal(model.predict(X), LightGBMRanker(**ONE).fit(X, y, qid=qid).predict(X))


def test_an_interrupt_keeps_the_best_model_so_far(monkeypatch, data, validation):
    X, y, qid = data
    calls = 0
    real = lightgbm.Booster.update

    def counted(self, *args, **options):
        nonlocal calls
        calls += 1
        if calls == 18:
            raise KeyboardInterrupt
        return real(self, *args, **options)

    monkeypatch.setattr(lightgbm.Booster, "update", counted)
    with pytest.warns(RuntimeWarning, match="LightGBMRanker: The fit was interrupted"):
        model = LightGBMRanker(**FEW).fit(X, y, qid=qid, **evaluation(validation))
    assert len(model.fit_result_.trials) == 4
    assert np.isfinite(model.predict(X)).all()


NAMES = {
    "boosted": "sinkprop",
    "lambdamart": "lambdarank",
    "ranknet-trees": "ranknet",
    "xendcg-trees": "rank_xendcg",
}


def test_the_methods_of_compare():
    def queries(seed):
        return sinkprop.Queries(*ranking_data(8, seed))

    fold = sinkprop.Fold("f", queries(1), queries(2), queries(3))
    methods = {name: METHODS[name].make().set_params(**FEW) for name in NAMES}
    default = METHODS["boosted-default"].make()
    assert default.get_params() == BoostedRanker().get_params()
    methods["boosted-default"] = default.set_params(n_estimators=5)
    found = compare([fold], methods, metrics="ndcg@5", n_jobs=1)
    assert found.result("data", "boosted-default", "f").summary["validated_on"] == "8 validation queries"
    assert 1 <= found.result("data", "boosted-default", "f").summary["trees"] <= 5
    for name, objective in NAMES.items():
        assert methods[name].objective == objective
        assert 0 < found.mean("data", name, "ndcg@5") <= 1
        summary = found.result("data", name, "f").summary
        assert summary["candidates"] == 12
        assert summary["trees"] == summary["setting"]["trees"]
        assert summary["tried"] == {
            "num_leaves": [3, 6],
            "min_child_samples": [30, 10],
            "learning_rate": [0.05],
            "trees": [5, 10, 12],
        }
    printed = Console(file=io.StringIO(), width=200)
    print_comparison(printed, found)
    assert (
        "boosted, lambdamart, ranknet-trees and xendcg-trees chose each from 12 candidates: num_leaves 3, 6; "
        "min_child_samples 30, 10; learning_rate 0.05; trees 5, 10, 12."
    ) in " ".join(printed.file.getvalue().split())


def test_every_method_of_compare_has_the_same_budget():
    rankers = {name: METHODS[name].make() for name in NAMES}
    ours = rankers["boosted"]
    for name, ranker in rankers.items():
        assert ranker.get_params() == {**ours.get_params(), "objective": NAMES[name]}, name
        assert (ranker._grid(), ranker._sizes()) == (ours._grid(), ours._sizes()), name
        assert METHODS[name].make().params is None
    xgboost = METHODS["xgboost-ndcg"].make()
    assert type(xgboost) is XGBoostRanker
    assert xgboost._sizes() == ours._sizes()
    # XGBoost's least weight of a leaf has its default, 1, where LightGBM's least number of documents has 20
    assert xgboost._grid() == [
        {
            "num_leaves": setting["num_leaves"],
            "min_child_weight": setting["min_child_samples"] / 20,
            "learning_rate": setting["learning_rate"],
        }
        for setting in ours._grid()
    ]
    assert ours._checked() == rankers["lambdamart"]._checked() == 180


def test_the_command_line_where_lightgbm_is_missing(tmp_path):
    code = (
        "import sys, sinkprop.baselines\n"
        "assert 'lightgbm' not in sys.modules\n"
        "sys.modules['lightgbm'] = None\n"
        "from sinkprop.cli import main\n"
        f"main(['compare', {str(tmp_path)!r}, '--methods', 'regression,lambdamart'])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert "method 'lambdamart' needs lightgbm: pip install \"sinkprop[lightgbm]\"" in run.stderr
