"""Runs of MLflow in a local database: steps, parameters, metrics, report and model; the page's programs."""

import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from frontends import front_end
from places import ROOT
from sklearn.linear_model import LinearRegression

import sinkprop
from sinkprop import SinkPropRanker, evaluate
from sinkprop.baselines import FeatureRanker, ListNetRanker
from sinkprop.datasets import make_ranking
from sinkprop.gbdt import BoostedRanker
from sinkprop.torch import MLP, NeuralRanker

mlflow, tracking = front_end("mlflow", "sinkprop.mlflow")
front_end("alembic", "sinkprop")  # for the local database

log_ranker, log_steps = tracking.log_ranker, tracking.log_steps

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(mlflow|alembic|sqlalchemy|pydantic)"),
    pytest.mark.filterwarnings("ignore:.*noload.* loader strategy"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A database of MLflow, whose tables take seconds to make."""
    folder = tmp_path_factory.mktemp("mlflow")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    # "pydocs" is that of the page; artifacts would go to the folder in which the database was opened
    for name in ("tests", "pydocs"):
        mlflow.create_experiment(name, artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment("tests")
    return mlflow.MlflowClient()


@pytest.fixture(scope="module")
def data():
    queries = make_ranking(40, sizes=(10, 20))
    return [queries.select(ids) for ids in (range(1, 21), range(21, 31), range(31, 41))]


def history(client, run, name):
    """{step: value} of a metric; fails if a step occurs twice."""
    points = client.get_metric_history(run.info.run_id, name)
    found = {point.step: point.value for point in points}
    assert len(found) == len(points)
    return found


RANKERS = {
    "linear": (
        SinkPropRanker,
        {"selection": "validation", "penalty": [1.0, 0.1]},
        "on_stage",
        lambda result: [stage.criterion for stage in result.stages],
    ),
    "trees": (BoostedRanker, {"n_estimators": 6}, "on_round", lambda result: result.values),
    "network": (
        NeuralRanker,
        {"max_epochs": 3, "network": MLP((4,))},
        "on_epoch",
        lambda result: [epoch.criterion for epoch in result.epochs],
    ),
}


@pytest.mark.parametrize("live", [True, False], ids=["during", "after"])
@pytest.mark.parametrize("kind", RANKERS)
def test_every_step_is_logged_once(kind, live, data, store):
    make, settings, name, values = RANKERS[kind]
    with mlflow.start_run() as run:
        ranker = make(**settings, **({name: log_steps()} if live else {})).fit(data[0], eval_set=data[1])
        log_ranker(ranker)
    expected = values(ranker.fit_result_)
    found = history(store, run, "validation/criterion")
    assert list(found) == list(range(1, len(expected) + 1))
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-12)
    if kind == "linear":
        gains = history(store, run, "training/expected_gain")
        assert list(gains.values()) == [stage.expected_gain for stage in ranker.fit_result_.stages]
    if kind == "network":
        losses = history(store, run, "training/loss")
        assert list(losses.values()) == [epoch.loss for epoch in ranker.fit_result_.epochs]
        assert list(history(store, run, "training/criterion")) == [1]  # recorded in the first epoch


def test_steps_are_sent_during_the_fit(data, store):
    seen = []
    with mlflow.start_run() as run:
        log = log_steps()

        def function(record):
            log(record)
            seen.append(len(store.get_metric_history(run.info.run_id, "validation/criterion")))

        BoostedRanker(n_estimators=3, on_round=function).fit(data[0], eval_set=data[1])
    assert seen == [1, 1, 1]  # the next call of the store is a second later


def test_a_second_fit_in_another_run_starts_at_step_1(data, store):
    log = log_steps()
    ranker = BoostedRanker(n_estimators=3, on_round=log)
    for _ in range(2):
        with mlflow.start_run() as run:
            log_ranker(ranker.fit(data[0], eval_set=data[1]))
        assert list(history(store, run, "validation/criterion")) == [1, 2, 3]


def test_parameters_metrics_tags_and_report(data, store):
    train, vali, test = data
    ranker = BoostedRanker(n_estimators=3, num_leaves=5, convention="trec", n_threads=1, max_bin=63)
    ranker.fit(train, eval_set=vali)
    with mlflow.start_run() as run:
        log_ranker(ranker, test, metrics="ndcg@1-2,map,ndcg(discount=letor)@5")
    logged = store.get_run(run.info.run_id).data
    assert logged.params["num_leaves"] == "5"
    assert logged.params["max_bin"] == "63"
    assert logged.params["gain"] == str(ranker.gain)
    assert not {"n_threads", "on_round", "cluster", "verbose"} & set(logged.params)
    expected = evaluate(
        test, ranker.predict(test), metrics="ndcg@1-2,map,ndcg(discount=letor)@5", convention="trec"
    )
    tested = {name: value for name, value in logged.metrics.items() if name.startswith("test/")}
    assert tested == {
        "test/ndcg_at_1": expected["ndcg@1"],
        "test/ndcg_at_2": expected["ndcg@2"],
        "test/map": expected["map"],
        "test/ndcg_discount_letor_at_5": expected["ndcg(discount=letor)@5"],
    }
    assert logged.tags["ranker"] == "BoostedRanker"
    assert logged.tags["validated_on"] == "10 validation queries"
    assert [file.path for file in store.list_artifacts(run.info.run_id)] == ["report.html"]
    page = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/report.html")
    assert page.startswith("<!doctype html>")
    assert "BoostedRanker" in page


@pytest.mark.parametrize(
    "kind", ["linear", "trees", "network", "by-query", "categories", "no-names", "baseline"]
)
def test_the_model_gives_the_scores_of_the_ranker(kind, data, store):
    import pandas as pd

    train, vali, test = data
    frame = pd.DataFrame(test.X, columns=test.feature_names)
    if kind in RANKERS:
        make, settings, *_ = RANKERS[kind]
        ranker = make(**settings).fit(train, eval_set=vali)
    elif kind == "by-query":
        ranker = SinkPropRanker(normalization="query", selection="validation", penalty=0.1).fit(train)
        frame = frame.assign(qid=[f"q{i}" for i in test.qid])
    elif kind == "categories":
        site, noise = np.array(["blog", "docs", "news"]), np.random.default_rng(0)
        columns = pd.DataFrame(train.X, columns=train.feature_names)
        columns["site"] = pd.Categorical(
            site[np.maximum(train.y.astype(int), noise.integers(0, 3, len(train))) % 3]
        )
        columns["year"] = pd.Categorical(2000 + noise.integers(0, 4, len(train)))
        ranker = BoostedRanker(n_estimators=4, min_child_samples=2).fit(columns, train.y, qid=train.qid)
        frame["site"] = pd.Categorical(
            site[np.maximum(test.y.astype(int), noise.integers(0, 3, len(test))) % 3]
        )
        frame["year"] = pd.Categorical(2000 + noise.integers(0, 4, len(test)))
    elif kind == "no-names":
        ranker = SinkPropRanker(selection="validation", penalty=0.1).fit(train.X, train.y, qid=train.qid)
        frame = test.X
    else:
        ranker = ListNetRanker(penalty=0.1).fit(train)
    with mlflow.start_run():
        info = log_ranker(ranker)
    model = mlflow.pyfunc.load_model(info.model_uri)
    own = frame.drop(columns="qid") if kind == "by-query" else frame
    expected = ranker.predict(own, qid=test.qid) if kind == "by-query" else ranker.predict(own)
    assert len(np.unique(expected)) > 5
    np.testing.assert_array_equal(model.predict(frame), expected)
    assert type(model.get_raw_model()) is type(ranker)
    if kind == "linear":  # in another order, with whole numbers, a column too many
        whole = frame.columns[(frame % 1 == 0).all()]
        other = frame.astype(dict.fromkeys(whole, int))[frame.columns[::-1]].assign(more=1)
        np.testing.assert_array_equal(model.predict(other), expected)
        with pytest.raises(mlflow.exceptions.MlflowException, match="missing inputs"):
            model.predict(frame.drop(columns=frame.columns[3]))
    if kind == "by-query":
        with pytest.raises(ValueError, match="qid"):
            model.predict(own)


def test_the_requirement_names_the_extra(data, store):
    ranker = BoostedRanker(n_estimators=2).fit(data[0])
    with mlflow.start_run():
        info = log_ranker(ranker)
    path = Path(mlflow.artifacts.download_artifacts(info.model_uri)) / "requirements.txt"
    assert f"sinkprop[lightgbm]=={sinkprop.__version__}" in path.read_text(encoding="utf-8").split()


def test_a_ranker_without_a_history_is_logged(data, store):
    ranker = FeatureRanker(1).fit(data[0])
    with mlflow.start_run() as run:
        log_ranker(ranker, data[2], report=False)
    logged = store.get_run(run.info.run_id).data
    assert "test/ndcg_at_10" in logged.metrics
    assert "validation/criterion" not in logged.metrics


class TestErrors:
    def test_nothing_is_logged_on_an_error(self, data, store):
        ranker = SinkPropRanker(selection="validation", penalty=0.1).fit(data[0])
        with mlflow.start_run() as run:
            with pytest.raises(ValueError, match="ndgc"):
                log_ranker(ranker, data[2], metrics="ndgc@10")
            with pytest.raises(ValueError, match="features"):
                log_ranker(ranker, make_ranking(5, n_noise_features=2))
        logged = store.get_run(run.info.run_id).data
        assert logged.metrics == {}
        assert logged.params == {}
        assert store.list_artifacts(run.info.run_id) == []

    def test_no_run(self, data, store):
        assert mlflow.active_run() is None
        ranker = BoostedRanker(n_estimators=2, on_round=log_steps())
        with pytest.raises(ValueError, match="no active run in this thread; call this inside"):
            ranker.fit(data[0], eval_set=data[1])
        ranker.set_params(on_round=None).fit(data[0])
        with pytest.raises(ValueError, match="no active run"):
            log_ranker(ranker)
        assert mlflow.active_run() is None

    def test_not_fitted_or_no_ranker(self, store):
        with mlflow.start_run():
            with pytest.raises(ValueError, match="SinkPropRanker instance is not fitted"):
                log_ranker(SinkPropRanker())
            with pytest.raises(
                TypeError, match="ranker must be a fitted ranker of sinkprop; got LinearRegression"
            ):
                log_ranker(LinearRegression())

    def test_an_exception_of_a_step_leaves_the_run_to_mlflow(self, data, store):
        log = log_steps()

        def function(record):
            log(record)
            raise RuntimeError("pruned")

        with pytest.raises(RuntimeError, match="pruned"), mlflow.start_run() as run:
            BoostedRanker(n_estimators=2, on_round=function).fit(data[0], eval_set=data[1])
        assert store.get_run(run.info.run_id).info.status == "FAILED"
        assert list(history(store, run, "validation/criterion")) == [1]


@pytest.mark.slow
def test_the_programs_of_the_page_run(tmp_path, monkeypatch, capsys, store):
    before = mlflow.get_tracking_uri()
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/tracking.md").read_text(encoding="utf-8")
    # the database of the tests, since the tables of a new one take seconds
    page = page.replace("sqlite:///mlflow.db", before)
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M)
    assert len(blocks) == 2
    for code in blocks:
        exec(compile(code, "docs/tracking.md", "exec"), {"__name__": "__main__"})
    logged, scored, same, again = capsys.readouterr().out.split()
    assert logged == scored
    assert same == "True"
    assert 0.5 < float(again) < 1


@pytest.mark.parametrize("missing", ["mlflow", "pandas"])
def test_the_error_without_the_extra_names_it(missing):
    code = f"""
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {missing!r} else found(name, *rest)
import sinkprop.mlflow
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'pip install "sinkprop[mlflow]"' in done.stderr.splitlines()[-1]
