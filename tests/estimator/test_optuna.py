"""Pruning by Optuna in the middle of a fit: the programs of docs/tuning.md, and trials in threads."""

import math
import multiprocessing
import re
import threading

import numpy as np
import pytest
from frontends import front_end
from places import ROOT

from sinkprop import SinkPropRanker
from sinkprop.datasets import make_ranking

optuna, _ = front_end("optuna", "sinkprop")


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:BoostedRanker. the ndcg@10 of the validation queries still rose")
def test_the_programs_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    threads = set(threading.enumerate())
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs/tuning.md").read_text(encoding="utf-8"), re.S | re.M
    )
    assert len(blocks) == 2
    names = {"__name__": "__main__"}
    trees = None
    for code in blocks:
        exec(compile(code, "docs/tuning.md", "exec"), names)
        trees = trees or names["study"]
    assert set(threading.enumerate()) == threads
    assert multiprocessing.active_children() == []
    assert list(tmp_path.iterdir()) == []
    printed = capsys.readouterr().out
    assert re.search(r"linear: .* [1-9]\d* trials pruned", printed)
    assert re.search(r"network: .* [1-9]\d* trials pruned", printed)
    steps = {
        state: [len(trial.intermediate_values) for trial in trees.trials if trial.state.name == state]
        for state in ("COMPLETE", "PRUNED")
    }
    assert len(steps["COMPLETE"]) + len(steps["PRUNED"]) == len(trees.trials)
    assert min(steps["PRUNED"]) < min(steps["COMPLETE"])
    # the criterion of the trials is the metric of `score`, so that their largest report is their value
    best = trees.best_trial
    assert math.isclose(max(best.intermediate_values.values()), best.value, rel_tol=1e-12)


def test_trials_in_threads_give_the_values_of_trials_one_by_one():
    queries = make_ranking(40, sizes=(10, 20))
    train, vali = queries.select(range(1, 31)), queries.select(range(31, 41))

    def objective(trial):
        reports = []
        ranker = SinkPropRanker(
            penalty=[trial.suggest_float("penalty", 1e-4, 1.0, log=True)],
            selection="validation",
            n_threads=1,
            on_stage=lambda stage: reports.append(stage.criterion),
        )
        ranker.fit(train, eval_set=vali)
        for step, value in enumerate(reports):
            trial.report(value, step)
        return ranker.score(vali)

    found = []
    for jobs in (1, 2):
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
        for penalty in np.logspace(-4, 0, 4):
            study.enqueue_trial({"penalty": float(penalty)})
        study.optimize(objective, n_trials=4, n_jobs=jobs)
        found.append({trial.params["penalty"]: trial.value for trial in study.trials})
    assert found[0] == found[1]
    assert len(found[0]) == 4
