"""NeuralRanker on data with missing values, in memory and in stored sets."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop import Queries, load_model
from sinkprop.data.feature_scaling import transformed
from sinkprop.data.missing import learned_from_rows
from sinkprop.torch import MLP, NeuralRanker
from sinkprop.torch.neural import feeds

QUICK = {"network": MLP((8,), dropout=0.2), "max_epochs": 2, "verbose": False}


def queries(n_queries=20, seed=0, first=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 15, n_queries)
    n = sizes.sum()
    X = (rng.normal(size=(n, 3)) + 3).astype(np.float32)
    y = np.digitize(X @ [1, 0.5, -1] + rng.normal(size=n), [1, 3]).astype(float)
    X[rng.random(n) < 0.3, 0] = np.nan
    X[rng.random(n) < 0.2 + 0.3 * y, 2] = np.nan
    return Queries(X, y, np.repeat(np.arange(first, first + n_queries), sizes), allow_nan=True)


TRAIN, VALI = queries(), queries(8, 1, first=100)


def weights(ranker):
    return np.concatenate([p.numpy(force=True).ravel() for p in ranker.module_.parameters()])


@pytest.mark.parametrize("normalization", ["standard", "none"])
@pytest.mark.parametrize("missing", ["indicator", "mean"])
def test_a_fit_is_the_one_to_treated_rows(normalization, missing, tmp_path):
    ours = NeuralRanker(normalization=normalization, missing=missing, **QUICK).fit(TRAIN, eval_set=VALI)
    treatment = learned_from_rows(missing, transformed(TRAIN.X.astype(np.float64), "log1p"))
    assert_allclose(ours.missing_.mean, treatment.mean, rtol=1e-6)
    assert_array_equal(ours.missing_.indicators, [0, 2] if missing == "indicator" else [])
    rows = [
        Queries(ours.missing_(transformed(part.X.astype(np.float64), "log1p")), part.y, part.qid)
        for part in (TRAIN, VALI)
    ]
    theirs = NeuralRanker(normalization=normalization, input_transform="none", **QUICK)
    theirs.fit(rows[0], eval_set=rows[1])
    assert_allclose(weights(ours), weights(theirs), atol=1e-5)
    ours.save(tmp_path / "a.model")
    loaded = load_model(tmp_path / "a.model")
    assert loaded.missing == missing
    assert_array_equal(loaded.predict(VALI), ours.predict(VALI))


def test_features_that_are_scaled_within_queries():
    ranker = NeuralRanker(normalization="query", **QUICK).fit(TRAIN)
    assert ((ranker.missing_.mean > 0) & (ranker.missing_.mean < 1)).all()
    assert np.isfinite(ranker.predict(VALI)).all()
    known = Queries(np.nan_to_num(TRAIN.X), TRAIN.y, TRAIN.qid)
    with pytest.raises(ValueError, match=r"missing values \(NaN\) in column 0.*normalization='query'"):
        NeuralRanker(normalization="query", **QUICK).fit(known).predict(VALI)


def test_missing_values_after_a_fit_without_them():
    known = Queries(np.nan_to_num(TRAIN.X), TRAIN.y, TRAIN.qid)
    ranker = NeuralRanker(**QUICK).fit(known)
    assert ranker.missing_ is None
    gone = VALI.X.copy()
    gone[:, 1] = np.nan
    prepared = ranker._preparation(gone)
    assert_array_equal(prepared[:, 1], torch.zeros(len(gone)))
    assert np.isfinite(ranker.predict(gone)).all()


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_stored_set_gives_the_same_bits(n_threads, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="stored sets are Arrow files")
    from sinkprop.store import save_queries

    monkeypatch.setattr(feeds, "HELD_BYTES", 0)
    monkeypatch.setattr(feeds, "MOMENT_ROWS", 32)
    stored = save_queries(tmp_path / "train.queries", TRAIN, block_bytes=600)
    vali = save_queries(tmp_path / "vali.queries", VALI, block_bytes=600)
    ours = NeuralRanker(n_threads=n_threads, **QUICK).fit(stored, eval_set=[vali])
    theirs = NeuralRanker(n_threads=1, **QUICK).fit(TRAIN, eval_set=VALI)
    assert_array_equal(ours.missing_.mean, theirs.missing_.mean)
    assert_array_equal(weights(ours), weights(theirs))
    assert_array_equal(ours.predict(stored), theirs.predict(TRAIN))


def test_a_network_of_ones_own_takes_the_indicators():
    ranker = NeuralRanker(**{**QUICK, "network": lambda n: torch.nn.Linear(n, 1)}).fit(TRAIN)
    assert ranker.module_.in_features == 5
    with pytest.raises(ValueError, match=r"network must take rows \(N, 5\)"):
        NeuralRanker(**{**QUICK, "network": torch.nn.Linear(3, 1)}).fit(TRAIN)
    fixed = NeuralRanker(missing="mean", **{**QUICK, "network": torch.nn.Linear(3, 1)}).fit(TRAIN)
    assert np.isfinite(fixed.predict(VALI)).all()


def test_missing_values_can_be_refused():
    with pytest.raises(ValueError, match=r"holds nan.*missing='indicator'"):
        NeuralRanker(missing="error", **QUICK).fit(TRAIN)
    with pytest.raises(ValueError, match="missing must be 'indicator' or 'mean' or 'error'; got 'drop'"):
        NeuralRanker(missing="drop", **QUICK).fit(TRAIN)
