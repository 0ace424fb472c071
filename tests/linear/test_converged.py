"""Linear rankers that are trained on the limit of the Sinkhorn normalization, and their files."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import sinkprop
from sinkprop import Annealing, Converged, SinkPropRanker
from sinkprop.model_files import read_model

QUICK = {"penalty": 1e-2, "annealing": Annealing(1, 0.5), "max_iter": 4, "verbose": False}


def problem(seed=0):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(12), rng.integers(4, 12, 12))
    X = rng.normal(size=(len(qid), 3))
    return X, np.digitize(X @ [2.0, 1.0, 0.0] + rng.normal(size=len(X)), [1.0, 2.5]), qid


@pytest.mark.parametrize("relaxation", ["gaussian", "laplace", "probit"])
def test_the_limit_is_another_objective(relaxation):
    X, y, qid = problem()
    given = {**QUICK, "relaxation": relaxation}
    limit = SinkPropRanker(n_iter="converged", **given).fit(X, y, qid=qid)
    same = SinkPropRanker(n_iter=Converged(), **given).fit(X, y, qid=qid)
    short = SinkPropRanker(n_iter=1, **given).fit(X, y, qid=qid)
    assert_array_equal(limit.coef_, same.coef_)
    assert np.abs(limit.coef_ - short.coef_).max() > 1e-6
    Pi = limit.rank_distribution(X[qid == 3]) if hasattr(limit, "rank_distribution") else None
    if Pi is not None:
        assert Pi.shape[0] == (qid == 3).sum()


@pytest.mark.parametrize(
    ("given", "text"), [("converged", "converged"), (Converged(1e-7), "converged(tol=1e-07)")]
)
@pytest.mark.parametrize("relaxation", ["gaussian", "logit-logistic"])
def test_a_file_has_the_setting(tmp_path, given, text, relaxation):
    X, y, qid = problem()
    ranker = SinkPropRanker(relaxation=relaxation, n_iter=given, **QUICK).fit(X, y, qid=qid)
    ranker.save(tmp_path / "model")
    assert read_model(tmp_path / "model", kind="SinkPropRanker").state["parameters"]["n_iter"] == text
    loaded = sinkprop.load_model(tmp_path / "model")
    assert loaded.n_iter == given
    assert_array_equal(loaded.predict(X), ranker.predict(X))
    assert_array_equal(loaded.rank(X, qid=qid), ranker.rank(X, qid=qid))
    # a loaded ranker can be fitted again, with the same result
    assert_array_equal(loaded.fit(X, y, qid=qid).coef_, ranker.coef_)


def test_other_settings_are_an_error():
    X, y, qid = problem()
    with pytest.raises(ValueError, match="'converged' or a form such as"):
        SinkPropRanker(n_iter="limit", **QUICK).fit(X, y, qid=qid)
