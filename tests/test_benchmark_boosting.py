"""The rules of benchmarks/boosting.py: equal settings, folds by query, fits that are kept."""

from __future__ import annotations

import importlib.util
import json
import sys

import numpy as np
import pytest
from places import ROOT

from sinkprop.datasets import make_ranking

SCRIPT = ROOT / "benchmarks" / "boosting.py"


@pytest.fixture(scope="module")
def boosting():
    spec = importlib.util.spec_from_file_location("benchmark_boosting", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_trials_are_distinct_settings_of_the_grid_and_the_first_are_those_of_fewer(boosting):
    settings = [boosting.setting(trial) for trial in range(81)]
    assert settings[0] == {}
    assert len({json.dumps(setting) for setting in settings}) == 81
    for setting in settings[1:]:
        assert setting["num_leaves"] in boosting.LEAVES
        assert setting["min_child_samples"] in boosting.LEAST
        assert setting["learning_rate"] in boosting.RATES
    assert settings[1] == {
        "num_leaves": 15,
        "min_child_samples": 100,
        "learning_rate": 0.2,
    }


def test_five_folds_test_each_query_once_and_share_none(boosting):
    queries = make_ranking(23, sizes=(2, 4))
    folds = boosting.in_five(queries, 0)
    tested = np.concatenate([fold.test.groups.queries for fold in folds])
    assert sorted(tested.tolist()) == list(range(1, 24))
    for fold in folds:
        parts = [set(part.groups.queries.tolist()) for part in (fold.train, fold.vali, fold.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 23
        assert len(fold.train) + len(fold.vali) + len(fold.test) == len(queries)
    again = [fold.test.groups.queries.tolist() for fold in boosting.in_five(queries, 0)]
    assert again == [fold.test.groups.queries.tolist() for fold in folds]
    other = [fold.test.groups.queries.tolist() for fold in boosting.in_five(queries, 1)]
    assert again != other


def test_pooled_files_keep_their_queries_apart(boosting):
    a, b = make_ranking(3, sizes=(2, 4)), make_ranking(2, sizes=(2, 4), n_noise_features=0, random_state=1)
    both = boosting.renumbered([a, b])
    assert both.n_queries == 5
    assert both.n_features == a.n_features
    np.testing.assert_array_equal(both.y, np.concatenate([a.y, b.y]))
    np.testing.assert_array_equal(both.X[len(a) :, : b.n_features], b.X)
    assert not both.X[len(a) :, b.n_features :].any()


def test_every_row_but_ours_has_as_many_trials(boosting):
    rows = boosting.rows_of(boosting.METHODS, [1, 6])
    assert rows[0] == boosting.Row("boosted", "boosted", 1)
    assert boosting.Row("boosted-tuned, best of 6", "boosted-tuned", 6) in rows
    for method in ("lambdarank", "rank_xendcg", "xgboost-ndcg", *boosting.CATBOOST):
        assert [row.n_trials for row in rows if row.method == method] == [1, 6]
    assert [row.n_trials for row in rows if row.method == "catboost-default"] == [1]


def test_a_budget_of_time_takes_the_first_trials_that_fit(boosting):
    (*_, row) = boosting.rows_of(["lambdarank"], [1, 3], budget=2.5)
    assert row == boosting.Row("lambdarank, 2.5 s", "lambdarank", 3, 2.5)
    tried = [{"seconds": 1.0}, {"seconds": 1.4}, {"seconds": 0.2}]
    assert row.first(tried) == tried[:2]
    assert row.first([{"seconds": 9.0}, *tried]) == [{"seconds": 9.0}]  # the first trial always counts
    assert boosting.Row("a", "a", 3).first(tried) == tried


def test_catboost_chooses_the_round_by_the_criterion_and_by_default_by_its_own_metric(boosting):
    pytest.importorskip("catboost", reason="catboost is not installed: it is in the extra catboost")
    source = boosting.Source("simulated", "simulated", n_queries=40)
    fold = boosting.folds_of(source)[0]
    job = boosting.Job(source, fold.name, "catboost-queryrmse", 1, 12, 12)
    scores_of, rounds = boosting.fit(job)
    import catboost

    vali = boosting.by_query(fold.vali)
    assert boosting.setting(1) == {"num_leaves": 15, "min_child_samples": 100, "learning_rate": 0.2}
    plain = catboost.CatBoost(
        {"loss_function": "QueryRMSE", "iterations": 12, "depth": 4, "l2_leaf_reg": 15.0,
         "learning_rate": 0.2, "random_seed": 0, "thread_count": 1, "allow_writing_files": False,
         "verbose": False}
    ).fit(catboost.Pool(fold.train.X, fold.train.y, group_id=fold.train.groups.codes))  # fmt: skip
    values = [boosting.criterion(vali.y, scores, vali.qid) for scores in plain.staged_predict(vali.X)]
    assert rounds == int(np.argmax(values)) + 1
    np.testing.assert_allclose(scores_of(vali.X), plain.predict(vali.X, ntree_end=rounds))
    own = boosting.Job(source, fold.name, "catboost-default", 0, 12, 12)
    assert boosting.key_of(own) == boosting.key_of(
        boosting.Job(source, fold.name, "catboost-default", 0, 500, 50)
    )


def test_the_first_trial_of_the_tuned_trees_is_the_fit_without_trials(boosting):
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm")
    source = boosting.Source("pydocs", "pydocs")

    def key(method, trial, rounds=500):
        return boosting.key_of(boosting.Job(source, "Fold1", method, trial, rounds, 50))

    assert key("boosted", 0) == key("boosted-tuned", 0) == key("boosted", 0, rounds=100)
    assert len({key("boosted-tuned", 1), key("boosted-tuned", 1, rounds=100), key("lambdarank", 1)}) == 3


def test_a_kept_fit_is_found_again_and_a_line_cut_off_is_not(boosting, tmp_path):
    path = tmp_path / "new" / "fits.jsonl"
    cache = boosting.Cache(path)
    cache.put({"key": "a", "criterion": 0.5})
    with path.open("a") as file:
        file.write('{"key": "b", "crit')  # killed while writing
    again = boosting.Cache(path)
    assert again.found == {"a": {"key": "a", "criterion": 0.5}}
    again.put({"key": "c", "criterion": 0.25})
    assert set(boosting.Cache(path).found) == {"a", "c"}


def test_the_table_of_a_small_run(boosting, monkeypatch, capsys, tmp_path):
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm")
    arguments = ["--sets", "simulated-binary", "--queries", "30", "--methods", "lambdarank,rank_xendcg"]
    more = ["--trials", "1", "2", "--rounds", "3", "--jobs", "1", "--cache", str(tmp_path / "fits")]
    out = tmp_path / "table.json"
    monkeypatch.setattr(sys, "argv", ["boosting.py", *arguments, *more, "--json", str(out)])
    # in this process: a forked one must not train where this one has
    monkeypatch.setattr(boosting, "ProcessPoolExecutor", InThisProcess)
    boosting.main()
    table = capsys.readouterr().out
    assert len((tmp_path / "fits").read_text().splitlines()) == 2 * 2 * 5
    record = json.loads(out.read_text())
    (data,) = record["datasets"]
    assert data["n_queries"] == 30
    for row in data["methods"]:
        kept = [row["means"][f"ndcg@{k}"] for k in (1, 3, 5, 10)]
        assert row["means"]["mean"] == pytest.approx(np.mean(kept), abs=1e-12)
        assert f"| `{row['method']}` | " + " | ".join(f"{x:.4f}" for x in kept) in table
    (test,) = (t for t in data["tests"] if (t["method"], t["metric"]) == ("rank_xendcg, 1 trial", "mean"))
    assert f"{-test['difference']:+.4f}" in table
    boosting.main()
    assert capsys.readouterr().out == table  # from the fits that were kept
    assert len((tmp_path / "fits").read_text().splitlines()) == 2 * 2 * 5


class InThisProcess:
    def __init__(self, jobs):
        from concurrent.futures import ThreadPoolExecutor

        self.pool = ThreadPoolExecutor(1)

    def __enter__(self):
        return self.pool

    def __exit__(self, *what):
        self.pool.shutdown()
