"""Linear rankers on data with missing values, in memory and in stored sets."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sinkprop import Annealing, Queries, SinkPropRanker, load_letor, load_model
from sinkprop.baselines import (
    AdaRankRanker,
    BoltzRankRanker,
    FeatureRanker,
    ListNetRanker,
    RegressionRanker,
    SmoothRankRanker,
    SoftRankRanker,
)
from sinkprop.data.feature_scaling import scale_by_query
from sinkprop.data.missing import learned_from_rows
from sinkprop.model_files import ModelFileError, read_model, write_model

FEW = {"penalty": 1e-3, "annealing": Annealing(2, 1), "max_iter": 3, "verbose": False}
QUICK = {"penalty": 0.1, "verbose": False}
RANKERS = {
    "SinkPropRanker": SinkPropRanker(**FEW),
    "probit": SinkPropRanker("ndcg", "probit", **FEW),
    "SmoothRankRanker": SmoothRankRanker(**FEW),
    "RegressionRanker": RegressionRanker(verbose=False),
    "ListNetRanker": ListNetRanker(**QUICK),
    "AdaRankRanker": AdaRankRanker(n_rounds=3, verbose=False),
    "SoftRankRanker": SoftRankRanker(max_iter=2, **QUICK),
    "BoltzRankRanker": BoltzRankRanker(max_iter=2, **QUICK),
}


def queries(n_queries=20, seed=0, dtype=np.float64, first=0):
    """Queries whose third feature is missing where documents are relevant, and whose second is complete."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 15, n_queries)
    n = sizes.sum()
    X = rng.normal(size=(n, 4)) + 5
    y = np.digitize(X @ [1, 0.5, 0, -1] + rng.normal(size=n), [3, 4]).astype(float)
    X[rng.random(n) < 0.3, 0] = np.nan
    X[rng.random(n) < 0.2 + 0.3 * y, 2] = np.nan
    X[: sizes[0], 3] = np.nan  # a query without any value of a feature
    return Queries(X.astype(dtype), y, np.repeat(np.arange(first, first + n_queries), sizes), allow_nan=True)


TRAIN, VALI = queries(), queries(8, 1, first=100)


def treated(part, missing):
    return Queries(missing(part.X), part.y, part.qid)


@pytest.mark.parametrize("missing", ["indicator", "mean"])
@pytest.mark.parametrize("name", list(RANKERS))
def test_a_fit_is_the_one_to_treated_rows(name, missing, tmp_path):
    ours = clone(RANKERS[name]).set_params(missing=missing).fit(TRAIN, eval_set=VALI)
    treatment = learned_from_rows(missing, TRAIN.X)
    assert_array_equal(ours.missing_.mean, treatment.mean)
    assert_array_equal(ours.missing_.indicators, [0, 2, 3] if missing == "indicator" else [])
    theirs = clone(RANKERS[name]).fit(treated(TRAIN, treatment), eval_set=treated(VALI, treatment))
    assert theirs.missing_ is None
    assert_array_equal(ours.coef_, theirs.coef_)
    assert_array_equal(ours.predict(VALI), theirs.predict(treated(VALI, treatment)))
    ours.save(tmp_path / "a.model")
    loaded = load_model(tmp_path / "a.model")
    assert loaded.missing == missing
    assert_array_equal(loaded.rank(VALI), ours.rank(VALI))
    assert_array_equal(loaded.predict(VALI), ours.predict(VALI))


def test_features_are_scaled_within_queries_before_the_treatment():
    ours = SinkPropRanker(normalization="query", **FEW).fit(TRAIN)
    scaled = scale_by_query(TRAIN.X, TRAIN.groups)
    assert_allclose(np.nanmin(scaled, axis=0), 0)
    assert_allclose(np.nanmax(scaled, axis=0), 1)
    treatment = learned_from_rows("indicator", scaled)
    theirs = SinkPropRanker(normalization="none", **FEW).fit(treatment(scaled), TRAIN.y, qid=TRAIN.qid)
    assert_array_equal(ours.coef_, theirs.coef_)
    assert_array_equal(ours.predict(TRAIN), theirs.predict(treatment(scaled)))
    one = TRAIN.qid == 3
    assert_array_equal(ours.expected_rank(TRAIN)[one], ours.expected_rank(TRAIN.X[one], qid=TRAIN.qid[one]))
    assert ours.rank_distribution(TRAIN.X[one]).shape == (one.sum(), one.sum())


def test_nothing_changes_without_missing_values(tmp_path):
    whole = Queries(np.nan_to_num(TRAIN.X), TRAIN.y, TRAIN.qid)
    files = []
    for missing in ("indicator", "error"):
        ranker = SinkPropRanker(missing=missing, **FEW).fit(whole)
        assert ranker.missing_ is None
        assert ranker.coef_.shape == (4,)
        ranker.save(tmp_path / "a.model")
        files.append(read_model(tmp_path / "a.model").state)
        assert "missing" not in files[-1]
    assert files[1]["parameters"].pop("missing") == "error"
    assert "missing" not in files[0]["parameters"]  # an earlier version can read the file
    # a missing value of a feature that was always known in training gets its mean
    ranker = SinkPropRanker(**FEW).fit(whole)
    mean = np.where(np.isnan(TRAIN.X), ranker.scaling_.shift, TRAIN.X)
    assert_array_equal(ranker.predict(TRAIN), ranker.predict(mean))


def test_missing_values_of_validation_queries_only():
    known = Queries(np.nan_to_num(TRAIN.X, nan=5), TRAIN.y, TRAIN.qid)
    for ranker in (SinkPropRanker(normalization="none", **FEW), RegressionRanker(penalty=(0.1, 1))):
        ranker.fit(known, eval_set=VALI)
        assert ranker.coef_.shape == (4,)
        assert_allclose(ranker.missing_.mean, known.X.mean(axis=0), rtol=1e-6)
        assert np.isfinite(ranker.predict(VALI)).all()


def test_a_feature_that_is_missing_everywhere_has_weight_0():
    X = TRAIN.X.copy()
    X[:, 1] = np.nan
    for normalization in ("standard", "none"):
        ranker = SinkPropRanker(normalization=normalization, **FEW).fit(X, TRAIN.y, qid=TRAIN.qid)
        assert_array_equal(ranker.missing_.indicators, [0, 2, 3])
        assert ranker.coef_[1] == 0
        X[:, 1], scores = 7, ranker.predict(X)
        X[:, 1] = np.nan
        assert_array_equal(ranker.predict(X), scores)


def test_missing_values_can_be_refused():
    for ranker in (
        SinkPropRanker(missing="error", **FEW),
        RegressionRanker(missing="error"),
        FeatureRanker(1),
    ):
        with pytest.raises(ValueError, match=r"row 0, column 2 holds nan.*missing='indicator'"):
            ranker.fit(TRAIN)
    for ranker in (SinkPropRanker(missing="drop"), RegressionRanker(missing="drop")):
        with pytest.raises(ValueError, match="missing must be 'indicator' or 'mean' or 'error'; got 'drop'"):
            ranker.fit(TRAIN)


def test_indicators_find_what_means_hide():
    scores = {m: SinkPropRanker(missing=m, **FEW).fit(TRAIN).score(VALI) for m in ("indicator", "mean")}
    assert scores["indicator"] > scores["mean"] + 0.02


def test_a_file_with_another_treatment_is_an_error(tmp_path):
    SinkPropRanker(**FEW).fit(TRAIN).save(tmp_path / "a.model")
    model = read_model(tmp_path / "a.model")
    for change in ({"indicators": np.array([0])}, {"mean": np.zeros(5)}):
        state = {**model.state, "missing": {**model.state["missing"], **change}}
        write_model(tmp_path / "b.model", model.kind, state)
        with pytest.raises(ModelFileError, match=r"b\.model: the file is complete, but"):
            load_model(tmp_path / "b.model")


def test_files_of_text(tmp_path):
    rows = zip(TRAIN.y, TRAIN.qid, TRAIN.X, strict=True)
    text = [
        f"{y:g} qid:{q} "
        + " ".join(f"{i}:{'NULL' if np.isnan(v) else repr(float(v))}" for i, v in enumerate(x, 1))
        for y, q, x in rows
    ]
    (tmp_path / "train.txt").write_text("\n".join(text) + "\n")
    ours = SinkPropRanker(**FEW).fit([tmp_path / "train.txt"])
    read = load_letor(tmp_path / "train.txt", allow_nan=True)
    assert_array_equal(ours.coef_, SinkPropRanker(**FEW).fit(read).coef_)
    with pytest.raises(ValueError, match="NULL"):
        SinkPropRanker(missing="error", **FEW).fit([tmp_path / "train.txt"])


@pytest.mark.parametrize("normalization", ["standard", "query"])
@pytest.mark.parametrize(("block_bytes", "n_threads"), [(600, 1), (600, 2), (1 << 20, 2)])
def test_a_stored_set_gives_the_same_bits(normalization, block_bytes, n_threads, tmp_path):
    pytest.importorskip("pyarrow", reason="stored sets are Arrow files")
    from sinkprop.store import save_queries

    train, vali = queries(40, 2, np.float32), queries(12, 3, np.float32, first=100)
    stored = save_queries(tmp_path / "train.queries", train, block_bytes=block_bytes)
    assert stored.has_nan
    assert (stored.n_blocks > 3) == (block_bytes == 600)
    settings = {"normalization": normalization, "n_threads": n_threads, **FEW}
    ours = SinkPropRanker(**settings).fit(stored, eval_set=save_queries(tmp_path / "vali.queries", vali))
    theirs = SinkPropRanker(**{**settings, "n_threads": 1}).fit(train, eval_set=vali)
    assert_array_equal(ours.missing_.mean, theirs.missing_.mean)
    assert_array_equal(ours.coef_, theirs.coef_)
    assert ours.coef_.shape == (7,)
    assert_array_equal(ours.predict(stored), theirs.predict(train))
    assert ours.score(stored) == theirs.score(train)
    with pytest.raises(ValueError, match=r"train\.queries: some features .* missing='error' does not accept"):
        SinkPropRanker(missing="error", **FEW).fit(stored)
