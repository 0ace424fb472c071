"""BoostedRanker on real worker processes: the trees of one process, whatever becomes of the workers."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from tree_problems import ranking_data

import sinkprop
from sinkprop import Queries
from sinkprop.gbdt import BoostedRanker
from sinkprop.gbdt.boosters import booster_text
from sinkprop.gbdt.cluster.mesh import on_a_grid
from sinkprop.gbdt.growing.bins import sample_rows

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
distributed = pytest.importorskip("distributed", reason="Dask is not installed")
dask = pytest.importorskip("dask", reason="Dask is not installed")

# some fits end while their criterion still rises, so that workers can be lost during them
pytestmark = pytest.mark.filterwarnings("ignore:.*still rose when the .* trees were grown")

SMALL = {"n_estimators": 25, "learning_rate": 0.2, "n_threads": 1, "verbose": False}
# LightGBM counts the documents of a leaf in one process, and estimates them from their curvature in several:
# a least number of documents might end trees differently, a least curvature does not.
ALIKE = {"min_child_samples": 0, "min_child_weight": 10}


def single(n_queries, seed, n_features=6):
    X, y, qid = ranking_data(n_queries, seed, n_features)
    return X.astype(np.float32), y, qid


TRAIN, VALI = single(60, 0), single(20, 5)
EVALUATION = {"eval_set": [VALI[:2]], "eval_qid": [VALI[2]]}


def fitted(cluster=None, data=TRAIN, *, options=None, **settings):
    ranker = BoostedRanker(**{**SMALL, **settings}, cluster=cluster)
    return ranker.fit(data[0], data[1], qid=data[2], **(options or {}))


def text(ranker):
    return booster_text(ranker.booster_)


@pytest.fixture
def kept(monkeypatch):
    """What each fit keeps for the calibration."""
    found = []
    monkeypatch.setattr(BoostedRanker, "_keep_held_out", lambda self, held: found.append(held))
    return found


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=100, memory_limit=0
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def two(client):
    """The client, with both workers there whatever an earlier test did to one."""
    client.wait_for_workers(2)
    return client


def assert_alike(there, here):
    """The same splits, and the same values but for rounding."""
    a, b = (ranker.booster_.dump_model()["tree_info"] for ranker in (there, here))
    assert [splits(tree["tree_structure"]) for tree in a] == [splits(tree["tree_structure"]) for tree in b]
    np.testing.assert_allclose(there.predict(VALI[0]), here.predict(VALI[0]), rtol=1e-9)
    assert there.fit_result_.values == pytest.approx(here.fit_result_.values, rel=1e-9)
    assert (there.fit_result_.status, there.best_iteration_) == (
        here.fit_result_.status,
        here.best_iteration_,
    )
    assert there.fit_result_.validated_on == here.fit_result_.validated_on
    assert dict(there.fit_result_.training) == pytest.approx(dict(here.fit_result_.training), rel=1e-9)


def splits(node):
    if "split_feature" not in node:
        return ()
    own = (node["split_feature"], node["threshold"])
    return (own, splits(node["left_child"]), splits(node["right_child"]))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"criterion": "ndcg@5,map", "early_stopping_rounds": 3},
        {"subsample": 0.6, "subsample_freq": 2},
        {"colsample_bytree": 0.5, "max_bin": 15},
        {"bin_construct_sample_cnt": 200},
        {"boosting": "dart"},
    ],
    ids=str,
)
def test_two_workers_grow_the_trees_of_one_process(two, settings):
    # noise is drawn anew where a bit of a score differs
    settings = {"noise": 0, "n_estimators": 12, **ALIKE, **settings}
    here, there = (fitted(where, options=EVALUATION, **settings) for where in (None, two))
    assert_alike(there, here)
    assert there.cluster_record_.workers == 2
    assert (there.n_rows_, there.n_queries_) == (len(TRAIN[1]), 60)


@pytest.mark.parametrize("settings", [{}, {"validation_fraction": 0.3}], ids=str)
def test_the_scores_of_validation_queries_come_back(two, kept, settings):
    sets = [tuple(each[rows] for each in VALI) for rows in (VALI[2] < 7, VALI[2] >= 7)]
    several = {"eval_set": [part[:2] for part in sets], "eval_qid": [part[2] for part in sets]}
    settings = {"noise": 0, "n_estimators": 12, **ALIKE, **settings}
    for where in (None, two):
        fitted(where, options={} if "validation_fraction" in settings else several, **settings)
    here, there = kept
    np.testing.assert_allclose(there.scores, here.scores, rtol=1e-9)
    np.testing.assert_array_equal(there.labels, here.labels)
    np.testing.assert_array_equal(there.sizes, here.sizes)


def test_a_fit_without_validation_queries_keeps_none(two, kept):
    fitted(two, n_estimators=2)
    assert kept == [None]


def test_noise_is_that_of_one_process(two):
    first = fitted(n_estimators=5)
    settings = {"n_estimators": 1, **ALIKE}  # one tree: its scores are the same to the last bit
    here, there = (fitted(where, options={"init_model": first}, **settings) for where in (None, two))
    other = fitted(options={"init_model": first}, noise=0, **settings)
    assert_alike(there, here)
    assert np.abs(other.predict(VALI[0]) - here.predict(VALI[0])).max() > 1e-3


def test_three_processes_grow_the_trees_of_two(two, kept, monkeypatch):
    """A third process, in the first worker, takes a part of its queries."""
    from sinkprop.gbdt.cluster import driver as boosted

    expected = fitted(two, options=EVALUATION)
    assigned = boosted._Driver._assigned

    def three(self):
        (worker, own), *others = assigned(self)
        return [*((worker, half) for half in boosted._halves(own)), *others]

    monkeypatch.setattr(boosted._Driver, "_assigned", three)
    found = fitted(two, options=EVALUATION)
    assert found.cluster_record_.workers == 3
    assert text(found) == text(expected)
    np.testing.assert_array_equal(kept[1].scores, kept[0].scores)
    assert found.fit_result_ == expected.fit_result_


def test_quality_is_that_of_one_process(two):
    data, test = single(200, 1), single(100, 2)
    settings = {"n_estimators": 60, "learning_rate": 0.1}
    scores = [fitted(where, data, **settings).score(test[0], test[1], qid=test[2]) for where in (None, two)]
    fewer = fitted(None, single(100, 1), **settings).score(test[0], test[1], qid=test[2])
    assert scores[1] == pytest.approx(scores[0], abs=0.015)
    assert min(scores) > fewer  # a worker alone, with half of the queries, knows less


def test_one_worker_grows_the_trees_of_one_process(two):
    data = (TRAIN[0].copy(), *TRAIN[1:])
    options = {**EVALUATION, "query_weight": np.arange(60) % 3, "categorical_feature": [3]}
    data[0][:, 3] = np.abs(data[0][:, 3]).astype(int)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=100
    ) as one:
        there = fitted(one, data, options=options)
    here = fitted(None, data, options=options)
    assert text(there) == text(here)
    assert there.fit_result_ == here.fit_result_


def test_weights_categories_and_queries_held_out(two):
    options = {"query_weight": np.arange(60) % 3, "categorical_feature": [3]}
    data = (np.column_stack([TRAIN[0][:, :3], np.abs(TRAIN[0][:, 3:]).astype(int)]), *TRAIN[1:])
    data[0][::9, 1] = np.nan
    settings = {"validation_fraction": 0.3, "n_estimators": 12, "noise": 0, **ALIKE}
    here = fitted(None, data, options=options, **settings)
    there = fitted(two, data, options=options, **settings)
    assert here.fit_result_.validated_on == "12 queries held out"  # of the 40 that count
    assert_alike(there, here)
    rows = {"sample_weight": np.random.default_rng(0).random(len(data[1]))}
    here, there = fitted(None, data, options=rows, **settings), fitted(two, data, options=rows, **settings)
    assert_alike(there, here)


def test_fits_follow_one_another_and_go_on_from_trees(two):
    settings = {"n_estimators": 8, "noise": 0, **ALIKE}
    first = fitted(None, **settings)
    here, there = (fitted(where, options={"init_model": first}, **settings) for where in (None, two))
    assert there.n_trees_ == 16
    assert_alike(there, here)
    again = fitted(two, options={"init_model": first}, **settings)
    assert text(again) == text(there)


def write_letor(path, X, y, qid):
    lines = (
        f"{label:g} qid:{query} " + " ".join(f"{i}:{value!r}" for i, value in enumerate(row.tolist(), 1))
        for row, label, query in zip(X, y, qid, strict=True)
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def halves(X, y, qid):
    early = qid < 30
    return [(X[part], y[part], qid[part]) for part in (early, ~early)]


def test_stored_sets_files_and_frames_are_the_same_queries(two, tmp_path):
    import dask.dataframe
    import pandas as pd

    from sinkprop.store import save_queries

    expected = fitted(two, options=EVALUATION)
    stored = save_queries(tmp_path / "train.queries", Queries(*TRAIN))
    vali = save_queries(tmp_path / "vali.queries", Queries(*VALI))
    settings = {**SMALL, "cluster": two}
    assert text(BoostedRanker(**settings).fit(stored, eval_set=[vali])) == text(expected)
    by_path = BoostedRanker(**settings).fit(tmp_path / "train.queries", eval_set=[tmp_path / "vali.queries"])
    assert text(by_path) == text(expected)

    files = [write_letor(tmp_path / f"{i}.txt", *part) for i, part in enumerate(halves(*TRAIN))]
    one = write_letor(tmp_path / "vali.txt", *VALI)
    from_files = BoostedRanker(**settings).fit(files, eval_set=[[one]])
    assert text(from_files) == text(expected)

    def frame(X, y, qid):
        return pd.DataFrame(X, columns=list("abcdef")).assign(grade=y, query=qid)

    parts = [frame(*part) for part in halves(*TRAIN)]
    made = dask.dataframe.from_delayed([dask.delayed(part) for part in parts], meta=parts[0].iloc[:0])
    vali = dask.dataframe.from_pandas(frame(*VALI), npartitions=1)
    from_frame = BoostedRanker(**settings).fit(
        made, "grade", qid="query", eval_set=[(vali, "grade")], eval_qid=["query"]
    )
    assert from_frame.feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_array_equal(from_frame.booster_.predict(VALI[0]), expected.booster_.predict(VALI[0]))
    turned = vali[[*"fbcdea", "grade", "query"]]
    with pytest.raises(ValueError, match="eval_set has other features: its column 0 is 'f'"):
        BoostedRanker(**settings).fit(
            made, "grade", qid="query", eval_set=[(turned, "grade")], eval_qid=["query"]
        )
    split = dask.dataframe.from_pandas(frame(*TRAIN), chunksize=500, sort=False)
    with pytest.raises(ValueError, match="a query must be whole"):
        BoostedRanker(**settings).fit(split, "grade", qid="query")


LONG = {"n_estimators": 150, "learning_rate": 0.05, "early_stopping_rounds": None, "subsample": 0.7}


def test_queries_in_place_of_arrays(two):
    train, vali = Queries(*TRAIN), Queries(*VALI)
    arrays = fitted(two, options=EVALUATION, n_estimators=3)
    found = BoostedRanker(**{**SMALL, "n_estimators": 3}, cluster=two).fit(train, eval_set=vali)
    np.testing.assert_array_equal(found.predict(vali), arrays.predict(VALI[0]))


def when_kept(client, trees, then):
    """Call a function once a fit has kept as many trees."""

    def kept():
        from sinkprop.gbdt.cluster.worker import _FITS

        return max((len(fit.kept.trees) for fit in _FITS.values() if fit.kept is not None), default=0)

    def watch():
        deadline = time.monotonic() + 60
        while max(client.run(kept).values()) < trees and time.monotonic() < deadline:
            time.sleep(0.02)
        then()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def often():
    """Trees are kept after each round or so."""
    with dask.config.set({"sinkprop.keep-trees": "10ms"}):
        yield


@pytest.fixture(scope="module")
def expected(client):
    """A fit that nothing disturbs."""
    client.wait_for_workers(2)
    return fitted(client, options=EVALUATION, **LONG)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_changes_nothing(two, expected, kept, rank):
    pids = two.run(os.getpid)
    thread = when_kept(two, 10, lambda: os.kill(pids[sorted(pids)[rank]], signal.SIGKILL))
    found = fitted(two, options=EVALUATION, **LONG)
    thread.join(10)
    assert found.cluster_record_.losses == 1
    assert text(found) == text(expected)
    assert found.fit_result_ == expected.fit_result_
    np.testing.assert_allclose(kept[-1].scores, found.predict(VALI[0]), rtol=1e-9)


def test_one_worker_goes_on_for_two(two, monkeypatch):
    """Where no other worker comes, the one that is left grows the same trees, as two processes in it."""
    from sinkprop.cluster import placement
    from sinkprop.gbdt.cluster import driver as boosted

    expected = fitted(two)
    attempt = boosted._Driver._attempt
    here = sorted(two.nthreads())[:1]

    lost = []

    def first_lost(self, notify):
        if not lost:
            lost.append(attempt(self, notify))
            monkeypatch.setattr(placement.Placement, "_fit_workers", lambda self: dict.fromkeys(here, 1))
            raise boosted._Lost("a worker is gone")
        return attempt(self, notify)

    monkeypatch.setattr(boosted._Driver, "_attempt", first_lost)
    found = fitted(two)
    assert found.cluster_record_.losses == 1
    assert found.cluster_record_.workers == 2
    assert text(found) == text(expected)


def held(client):
    """How many fits the workers hold."""

    def held_here():
        from sinkprop.gbdt.cluster.worker import _FITS

        return len(_FITS)

    return sum(client.run(held_here).values())


def test_workers_forget_a_fit_of_which_one_was_lost_before_it_began(two, monkeypatch):
    from sinkprop.gbdt.cluster import driver as boosted

    ask, lost = boosted._Driver._ask, []

    def one_lost(self, function, name, workers):
        answers = ask(self, function, name, workers)
        if function is boosted.listen and not lost:
            lost.append(max(answers))
            answers[lost[0]] = None
        return answers

    monkeypatch.setattr(boosted._Driver, "_ask", one_lost)
    assert fitted(two, n_estimators=2).cluster_record_.losses == 1
    assert held(two) == 0


def test_workers_forget_a_fit_whose_end_the_client_cannot_tell_them(two, monkeypatch):
    from sinkprop.gbdt.cluster import driver as boosted

    monkeypatch.setattr(boosted._Driver, "_end", lambda self, *arguments: None)
    fitted(two, n_estimators=2)
    assert held(two) == 0


@pytest.mark.usefixtures("often")
def test_an_interrupt_keeps_the_best_trees(two):
    thread = when_kept(two, 10, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.warns(RuntimeWarning, match="interrupted"):
        ranker = fitted(two, options=EVALUATION, **{**LONG, "n_estimators": 100_000})
    thread.join(10)
    assert ranker.fit_result_.status == "interrupted"
    assert 0 < ranker.n_trees_ < 100_000
    whole = fitted(two, options=EVALUATION, **{**LONG, "n_estimators": ranker.n_trees_})
    assert whole.fit_result_.values == ranker.fit_result_.values
    assert np.array_equal(whole.predict(VALI[0]), ranker.predict(VALI[0]))


def test_an_error_of_a_worker_is_said_here(two):
    with pytest.raises(ValueError, match=r"overflowed\. Lower learning_rate"):
        fitted(two, learning_rate=1e308)
    assert fitted(two).n_trees_ == 25  # and the workers are free again


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        ({}, {"callbacks": [print]}, "callbacks cannot be given with cluster="),
        ({"linear_tree": True}, {}, "linear_tree cannot be given with cluster="),
        ({"forcedsplits_filename": "/none"}, {"eval_set": [(TRAIN[0][:, :2], TRAIN[1])]}, "2 features"),
        ({"monotone_constraints": [1]}, {}, "LightGBM refuses this"),
    ],
)
def test_what_cannot_be_done_is_named(two, settings, options, words):
    if "eval_set" in options:
        options = {**options, "eval_qid": [TRAIN[2]]}
    with pytest.raises(ValueError, match=words):
        fitted(two, options=options, **settings)


def test_the_cluster_is_no_part_of_a_model(two, tmp_path):
    fitted(two).save(tmp_path / "trees.model")
    fitted(None).save(tmp_path / "other.model")
    loaded = BoostedRanker.load(tmp_path / "trees.model")
    assert loaded.cluster is None
    assert "tcp://" not in (tmp_path / "trees.model").read_text()


def test_another_version_on_a_worker_is_named(two, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sinkprop, "__version__", "0.0.1")
        with pytest.raises(ValueError, match=r"the worker tcp://.* this process has sinkprop 0\.0\.1"):
            fitted(two)


def test_another_lightgbm_on_a_worker_is_named(two, monkeypatch):
    import lightgbm

    monkeypatch.setattr(lightgbm, "__version__", "0.1")
    with pytest.raises(ValueError, match=r"the worker tcp://.* has LightGBM \d.*; this process has 0\.1"):
        fitted(two)


@pytest.mark.usefixtures("often")
def test_a_fit_that_nobody_waits_for_ends(two):
    address = two.scheduler.address
    code = f"""
import numpy as np
from sinkprop.gbdt import BoostedRanker
rng = np.random.default_rng(0)
X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
BoostedRanker(n_estimators=10**6, cluster={address!r}, verbose=False).fit(X, X[:, 0] > 0.5, qid=qid)
"""
    other = subprocess.Popen([sys.executable, "-c", code])
    when_running(two, expected=2)
    other.kill()
    other.wait()
    when_running(two, expected=0)


def when_running(client, expected):
    """Wait until as many workers have a fit."""

    def running():
        from sinkprop.gbdt.cluster.worker import _FITS

        return any(fit.progress[0] or fit.running for fit in _FITS.values() if fit.running)

    deadline = time.monotonic() + 60
    while sum(client.run(running).values()) != expected:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_sample_of_more_rows_than_lightgbm_can_count():
    numbers = sample_rows({"bin_construct_sample_cnt": 1000}, 5 * 10**9)
    assert 990 < len(numbers) <= 1000
    assert (np.diff(numbers) > 0).all()
    assert 4.9e9 < numbers[-1] < 5e9


def test_sums_on_the_grid_are_exact():
    rng = np.random.default_rng(0)
    values = (rng.normal(size=5000) * 10.0 ** rng.integers(-12, 1, 5000)).astype(np.float32)
    largest = float(np.abs(values).max())
    rounded = on_a_grid(values, largest, len(values))
    orders = [np.arange(5000), np.argsort(rounded), rng.permutation(5000)]
    sums = {np.cumsum(rounded[order].astype(np.float64))[-1] for order in orders}
    assert len(sums) == 1
    plain = {np.cumsum(values[order].astype(np.float64))[-1] for order in orders}
    assert len(plain) > 1  # as they were, the order matters
    near = np.abs(values) > 2.0**-15 * largest
    assert np.array_equal(rounded[near], values[near])
    assert np.abs(rounded - values).max() <= largest * 2.0**-38
    assert np.array_equal(on_a_grid(np.zeros(3, np.float32), 0.0, 3), np.zeros(3))


def test_stored_sets_with_categories(two, tmp_path):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from category_frames import SITES, features, frame

    from sinkprop.data.frames import load_frame
    from sinkprop.store import save_queries

    rows, vali = frame(pd), frame(pd, 10, seed=1)
    stored = save_queries(tmp_path / "a.queries", load_frame(rows, allow_nan=True))
    other = save_queries(tmp_path / "b.queries", load_frame(vali, allow_nan=True))
    settings = {**SMALL, **ALIKE, "n_estimators": 5, "num_leaves": 6, "min_data_per_group": 1}
    there = BoostedRanker(**settings, cluster=two).fit(stored, eval_set=other)
    here = BoostedRanker(**settings).fit(stored, eval_set=other)
    np.testing.assert_allclose(there.predict(stored), here.predict(features(rows)), rtol=1e-9)
    assert there.categories_ == here.categories_
    turned = vali.assign(site=vali["site"].cat.reorder_categories(SITES[::-1]))
    wrong = save_queries(tmp_path / "c.queries", load_frame(turned, allow_nan=True))
    with pytest.raises(ValueError, match=r"the categories of .*c\.queries.* must be those of X"):
        BoostedRanker(**settings, cluster=two).fit(stored, eval_set=wrong)
    dd = pytest.importorskip("dask.dataframe", reason="Dask's data frames are not installed")
    partitions = dd.from_pandas(rows.dropna(), npartitions=2)
    with pytest.raises(ValueError, match="column 'site' holds categories, whose codes may differ"):
        BoostedRanker(**settings, cluster=two).fit(partitions, y="label", qid="qid")
