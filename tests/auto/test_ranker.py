"""AutoRanker: its choice against the same computation by hand, awkward data, files and pickles."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sinkprop import AutoRanker, Queries, Selection, evaluate, load_model
from sinkprop.auto import members
from sinkprop.auto import ranker as module
from sinkprop.baselines import RegressionRanker
from sinkprop.model_files import ModelFileError, read_model, write_model

QUICK = {"n_threads": 1, "verbose": False}


def problem(n_queries=24, size=10, seed=0, features=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries * size, features))
    y = np.digitize(X[:, 0] + np.abs(X[:, 1]) + 0.5 * rng.normal(size=len(X)), [1, 2])
    return X, y, np.repeat(np.arange(n_queries), size)


@pytest.fixture(scope="module")
def fitted():
    """An AutoRanker with ridge and trees, and its data."""
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    data = problem()
    X, y, qid = data
    return AutoRanker(methods="ridge,trees", **QUICK).fit(X, y, qid=qid), data


def test_the_held_out_criterion_of_ridge_is_that_of_cross_validation_by_hand():
    X, y, qid = problem()
    ranker = AutoRanker(methods="ridge", **QUICK).fit(X, y, qid=qid)
    order = np.random.default_rng([0, 0]).permutation(24)
    values = []
    for k in range(5):
        held = np.isin(qid, order[k::5])
        other = RegressionRanker(penalty="auto", normalization="standard", selection="cross-validation")
        other.fit(X[~held], y[~held], qid=qid[~held])
        means = evaluate(y[held], other.predict(X[held]), qid[held], metrics="ndcg@1-10")
        values += [np.mean(list(means.values()))] * len(order[k::5])
    (member,) = ranker.fit_result_.members
    assert_allclose(member.criterion, np.mean(values))
    assert (member.n_fits, member.weight, member.difference) == (5, 1, 0)
    assert ranker.fit_result_.status == "finished"
    assert ranker.fit_result_.validated_on == "5-fold cross-validation over 24 queries"


def test_scores_are_the_weighted_mean_of_the_scaled_scores_of_the_members(fitted):
    ranker, (X, _, qid) = fitted
    by_hand = sum(
        ranker.weights_[name]
        * np.mean([r.predict(X) / s for r, s in zip(rankers, scales, strict=True)], axis=0)
        for (name, rankers), scales in zip(ranker.members_.items(), ranker.scales_.values(), strict=True)
    )
    assert_allclose(ranker.predict(X), by_hand)
    assert_array_equal(ranker.predict(X), ranker.predict(X, qid=qid))
    assert_allclose(sum(ranker.weights_.values()), 1)
    assert set(ranker.weights_) == set(ranker.fit_result_.weights) == {"ridge", "trees"}


def test_the_record_says_what_was_tried_and_chosen(fitted):
    ranker, _ = fitted
    text = str(ranker.fit_result_)
    assert "AutoFit: Every member was fitted." in text
    assert "ridge + " in text
    assert "5-fold cross-validation over 24 queries" in text
    assert "member" in text.splitlines()[4]
    best = ranker.fit_result_.best
    assert best.difference == 0
    (other,) = (member for member in ranker.fit_result_.members if member.name != best.name)
    assert other.difference < 0 < other.standard_error
    assert_allclose(other.criterion - best.criterion, other.difference)
    assert 0 < ranker.fit_result_.seconds < ranker.fit_result_.time_budget == 60


def test_a_saved_model_gives_the_same_scores_and_the_same_bytes(fitted, tmp_path):
    ranker, (X, y, qid) = fitted
    ranker.save(tmp_path / "a")
    loaded = load_model(tmp_path / "a")
    assert type(loaded) is AutoRanker
    assert_array_equal(loaded.predict(X), ranker.predict(X))
    assert loaded.score(X, y, qid=qid) == ranker.score(X, y, qid=qid)
    assert loaded.fit_result_.weights == ranker.fit_result_.weights
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    copy = pickle.loads(pickle.dumps(ranker))
    assert_array_equal(copy.predict(X), ranker.predict(X))


def test_a_network_is_saved_inside_the_file(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    X, y, qid = problem(12)
    ranker = AutoRanker(methods="networks", selection=Selection(n_splits=2), **QUICK).fit(X, y, qid=qid)
    ranker.save(tmp_path / "a")
    loaded = load_model(tmp_path / "a")
    assert_array_equal(loaded.predict(X, qid=qid), ranker.predict(X, qid=qid))
    assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(X, qid=qid), ranker.predict(X, qid=qid))
    state = read_model(tmp_path / "a").state
    rankers = state["fitted"]["models"]["networks"]["rankers"]
    rankers[0]["safetensors"][-1] = "AAAA"
    write_model(tmp_path / "b", "AutoRanker", state)
    with pytest.raises(ModelFileError, match="is damaged"):
        load_model(tmp_path / "b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda models: models.clear(), "the model has no members"),
        (lambda models: models.update(forest=models.pop("ridge")), "the member 'forest' is not one of"),
        (lambda models: models["ridge"].update(weight=-1.0), "must be numbers above 0"),
        (lambda models: models["ridge"].update(weight=float("nan")), "must be numbers above 0"),
        (lambda models: models["ridge"].update(scales=[1.0]), "one scale per ranker"),
        (lambda models: models["ridge"]["rankers"][0]["state"].update(n_features=7), "RegressionRanker"),
        (lambda models: models["ridge"]["rankers"].__setitem__(0, {}), "KeyError"),
        (
            lambda models: models["ridge"]["rankers"][0]["state"]["parameters"].update(n_threads=9),
            "n_threads",
        ),
    ],
)
def test_a_changed_file_is_refused_in_one_line(change, message, tmp_path):
    X, y, qid = problem()
    AutoRanker(methods="ridge", **QUICK).fit(X, y, qid=qid).save(tmp_path / "a")
    state = read_model(tmp_path / "a").state
    change(state["fitted"]["models"])
    write_model(tmp_path / "a", "AutoRanker", state)
    with pytest.raises(ModelFileError, match=message) as error:
        load_model(tmp_path / "a")
    assert "\n" not in str(error.value)


def test_a_clone_and_the_same_seed_give_the_same_model(fitted):
    ranker, (X, y, qid) = fitted
    again = clone(ranker)
    assert again.get_params() == ranker.get_params()
    assert_array_equal(again.fit(X, y, qid=qid).predict(X), ranker.predict(X))


def test_the_order_of_the_rows_within_the_file_does_not_matter():
    X, y, qid = problem()
    rows = np.argsort(
        np.random.default_rng(0).normal(size=24)[qid], kind="stable"
    )  # queries in another order
    shuffled = np.random.default_rng(1).permutation(len(X))
    ranker = AutoRanker(methods="ridge", **QUICK).fit(X[shuffled], y[shuffled], qid=qid[shuffled])
    queries = Queries(X[rows], y[rows], qid[rows])
    assert ranker.predict(queries).shape == (240,)
    assert_allclose(ranker.score(queries), ranker.score(X, y, qid=qid))
    assert sorted(ranker.rank(X[:10], qid=np.zeros(10)).tolist()) == list(range(1, 11))


def test_the_validation_set_of_few_queries_is_trained_on_and_that_of_selection_validation_is_not():
    X, y, qid = problem(30)
    train, vali = qid < 20, qid >= 20
    given = {"eval_set": [(X[vali], y[vali])], "eval_qid": [qid[vali]]}
    ranker = AutoRanker(methods="ridge", **QUICK).fit(X[train], y[train], qid=qid[train], **given)
    assert ranker.fit_result_.validated_on == "5-fold cross-validation over 30 queries"
    ranker = AutoRanker(methods="ridge", selection="validation", **QUICK)
    ranker.fit(X[train], y[train], qid=qid[train], **given)
    assert ranker.fit_result_.validated_on == "10 validation queries"
    (only,) = ranker.members_["ridge"]
    assert only.n_queries_ == 20


def test_weights_and_missing_values_reach_the_members(monkeypatch):
    X, y, qid = problem()
    X[::7, 1] = np.nan
    seen = []
    real = members.fitted_member

    def recorded(name, settings, data, validation, clock):
        seen.append((data.sample_weight, data.query_weight))
        return real(name, settings, data, validation, clock)

    monkeypatch.setattr("sinkprop.auto.crossfit.fitted_member", recorded)
    weight = np.linspace(1, 2, 24)
    ranker = AutoRanker(methods="ridge", **QUICK).fit(
        X, y, qid=qid, query_weight=weight, sample_weight=np.ones(240)
    )
    assert np.isfinite(ranker.predict(X)).all()
    assert all(set(own.tolist()) <= set(weight.tolist()) and rows is not None for rows, own in seen)
    assert len(seen) == 5
    assert ranker.fit_result_.criterion == "ndcg"  # metrics have no row weights, gains have


def test_categories_are_for_trees():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    X, y, qid = problem()
    kinds = np.array(["a", "b", "c"])[np.digitize(X[:, 2], [-0.5, 0.5])]
    frame = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "kind": pd.Categorical(kinds)})
    ranker = AutoRanker(selection=Selection(n_splits=2), **QUICK).fit(frame, y, qid=qid)
    notes = {member.name: member.note for member in ranker.fit_result_.members}
    assert notes == {
        **dict.fromkeys(("ridge", "linear", "networks"), "does not accept categorical features"), "trees": ""
    }  # fmt: skip
    assert ranker.categories_ == {"kind": ("a", "b", "c")}
    other = frame.assign(
        kind=pd.Categorical(kinds, categories=["c", "b", "a"])
    )  # the same values, other codes
    assert_array_equal(ranker.predict(other), ranker.predict(frame))
    with pytest.raises(ValueError, match="no member for these data: ridge does not accept categorical"):
        AutoRanker(methods="ridge", **QUICK).fit(frame, y, qid=qid)


def test_packages_that_are_missing_are_named(monkeypatch):
    X, y, qid = problem()
    for place in (members, module):
        monkeypatch.setattr(place, "installed", lambda name: False)
    ranker = AutoRanker(methods=None, **QUICK)
    monkeypatch.setitem(members.KINDS, "linear", members.KINDS["ridge"])  # quick
    ranker.fit(X, y, qid=qid)
    notes = {member.name: member.note for member in ranker.fit_result_.members if member.note}
    assert notes == {
        "trees": 'needs lightgbm: pip install "sinkprop[lightgbm]"',
        "networks": 'needs torch: pip install "sinkprop[torch]"',
    }
    with pytest.raises(ImportError, match=r'trees needs lightgbm: pip install "sinkprop\[lightgbm\]"'):
        AutoRanker(methods="trees", **QUICK).fit(X, y, qid=qid)


def test_a_file_with_a_member_whose_package_is_missing_says_so(fitted, tmp_path, monkeypatch):
    ranker, _ = fitted
    ranker.save(tmp_path / "a")
    monkeypatch.setattr("sinkprop.auto.member_files.installed", lambda name: False)
    with pytest.raises(ImportError, match=r"trees as a member, which needs lightgbm: pip install"):
        load_model(tmp_path / "a")


@pytest.mark.parametrize("budget", [1e-3, 1e-9])
def test_a_time_budget_that_is_too_small_gives_ridge_and_a_warning(budget):
    X, y, qid = problem()
    with pytest.warns(UserWarning, match="too small to compare the members. The model is ridge regression"):
        ranker = AutoRanker(time_budget=budget, **QUICK).fit(X, y, qid=qid)
    alone = RegressionRanker(penalty="auto", normalization="standard", selection="cross-validation")
    assert_array_equal(ranker.predict(X), alone.fit(X, y, qid=qid).predict(X))
    assert ranker.fit_result_.status == "floor"
    assert ranker.weights_ == {"ridge": 1.0}
    assert "too small" in str(ranker.fit_result_)


@pytest.mark.parametrize("budget", [0, -1, float("nan"), "60", None])
def test_a_time_budget_that_is_no_time_is_an_error(budget):
    X, y, qid = problem()
    with pytest.raises(ValueError, match="time_budget must be"):
        AutoRanker(time_budget=budget, **QUICK).fit(X, y, qid=qid)


def test_one_query_gives_ridge_and_a_warning():
    X, y, _ = problem(1, size=30)
    with pytest.warns(UserWarning, match="only one query, so none can be held out") as caught:
        ranker = AutoRanker(**QUICK).fit(X, y, qid=np.zeros(30))
    assert caught[0].filename == __file__  # the line that called fit
    assert ranker.weights_ == {"ridge": 1.0}


@pytest.mark.parametrize("methods", ["ridge,trees", "ridge,networks", "linear"])
@pytest.mark.parametrize("kind", ["two queries", "one document each", "no relevant document"])
def test_awkward_queries_give_a_model(methods, kind):
    pytest.importorskip("torch" if "networks" in methods else "lightgbm")
    rng = np.random.default_rng(0)
    X, y, qid = {
        "two queries": (rng.normal(size=(8, 2)), np.array([0, 1, 0, 1, 0, 1, 0, 1]), np.repeat([1, 2], 4)),
        "one document each": (rng.normal(size=(8, 2)), np.array([0, 1, 0, 1, 0, 1, 0, 1]), np.arange(8)),
        "no relevant document": (rng.normal(size=(24, 2)), np.zeros(24), np.repeat(np.arange(6), 4)),
    }[kind]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fit. all labels of")
        ranker = AutoRanker(methods=methods, selection=Selection(n_splits=2), **QUICK).fit(X, y, qid=qid)
    assert ranker.fit_result_.status == "finished"
    assert np.isfinite(ranker.predict(X, qid=qid)).all()
    assert ranker.rank(X, qid=qid).max() == np.bincount(np.unique(qid, return_inverse=True)[1]).max()


def test_keywords_of_other_libraries_are_answered():
    with pytest.raises(TypeError, match=r"'time_limit' .set time_budget= in the constructor, in seconds"):
        AutoRanker(time_limit=60)
    with pytest.raises(TypeError, match=r"'time_limit' .this ranker has no time limit; sinkprop.AutoRanker"):
        RegressionRanker(time_limit=60)
    X, y, qid = problem()
    with pytest.raises(TypeError, match=r"'estimator_list' .set methods= in the constructor"):
        AutoRanker().fit(X, y, qid=qid, estimator_list=["trees"])


def test_the_linear_member_is_a_sinkprop_ranker_that_does_not_hold_the_clock():
    X, y, qid = problem(8)
    ranker = AutoRanker(methods="linear", gain="ndcg@5", selection=Selection(n_splits=2), **QUICK)
    ranker.fit(X, y, qid=qid)
    assert [type(r).__name__ for r in ranker.members_["linear"]] == ["SinkPropRanker"] * 2
    assert all(r.on_stage is None and str(r.gain) == "ndcg@5" for r in ranker.members_["linear"])
