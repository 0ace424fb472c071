"""SinkPropRanker on the worker processes of a Dask cluster: the model of one process, to the last bit."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_tasks import queries

from sinkprop import Annealing, PartitionedMeasure, Selection, SinkPropRanker, save_letor
from sinkprop.cli import main
from sinkprop.registry import load_model

distributed = pytest.importorskip("distributed", reason="needs the extra dask")
pytest.importorskip("pyarrow", reason="needs the extra dask")

import dask  # noqa: E402
import pandas as pd  # noqa: E402
from dask import dataframe as dd  # noqa: E402

from sinkprop.cluster import ClusterLost  # noqa: E402
from sinkprop.store import StoredQueries, convert, save_queries  # noqa: E402

Q, VALI = queries(1), queries(2, 40)
SHORT: dict[str, Any] = {
    "penalty": 1e-3, "annealing": Annealing(2, 1), "max_iter": 2, "n_threads": 1, "selection": "validation"
}  # fmt: skip
LONGER = {**SHORT, "max_iter": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("queries")
    save_letor(folder / "train.txt", Q)
    save_letor(folder / "vali.txt", VALI)
    half = Q.groups.queries[:40]
    save_letor(folder / "a.txt", Q.select(half))
    save_letor(folder / "b.txt", Q.select(Q.groups.queries[40:]))
    return folder


@pytest.fixture(scope="module")
def stored(folder: Path) -> StoredQueries:
    return convert(folder / "train.txt", folder / "train.queries", block_bytes=900)


def same(one: SinkPropRanker, other: SinkPropRanker) -> None:
    """The same model, and the same way to it."""
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.scaling_.shift, other.scaling_.shift)
    assert np.array_equal(one.scaling_.factor, other.scaling_.factor)
    assert one.sigma_ == other.sigma_
    for a, b in zip(one.fit_result_.stages, other.fit_result_.stages, strict=True):
        assert (a.expected_gain, a.criterion, a.evaluations) == (b.expected_gain, b.criterion, b.evaluations)
    assert (one.n_rows_, one.n_queries_) == (other.n_rows_, other.n_queries_)
    held, expected = one._calibrating, other._calibrating
    if held is not None and expected is not None:  # a model from a file does not have them
        assert np.array_equal(held.scores, expected.scores)
        assert np.array_equal(held.labels, expected.labels)
        assert np.array_equal(held.sizes, expected.sizes)


@pytest.mark.parametrize("normalization", ["standard", "query"])
def test_arrays(client, normalization):
    weight = np.random.default_rng(0).uniform(0.5, 2, Q.n_queries)
    rows = np.random.default_rng(1).uniform(0.5, 2, len(Q))
    given: dict[str, Any] = {
        "eval_set": [(VALI.X, VALI.y)], "eval_qid": [VALI.qid], "query_weight": weight, "sample_weight": rows
    }  # fmt: skip
    ranker = SinkPropRanker(normalization=normalization, **SHORT)
    alone = ranker.fit(Q.X, Q.y, qid=Q.qid, **given)
    spread = SinkPropRanker(normalization=normalization, cluster=client, **SHORT)
    same(spread.fit(Q.X, Q.y, qid=Q.qid, **given), alone)
    assert spread._calibrating is not None


def test_queries_in_place_of_arrays(client):
    alone = SinkPropRanker(**SHORT).fit(Q, eval_set=VALI)
    same(SinkPropRanker(cluster=client, **SHORT).fit(Q, eval_set=VALI), alone)


def test_validation_rows_are_rounded_as_those_to_train_on(client):
    assert Q.X.dtype == np.float32
    tied = VALI.X.copy()
    tied[1::2] = tied[: len(tied) - 1 : 2]
    finer = tied * (1 + 1e-9 * VALI.y[:, None])  # parts documents that are tied when rounded to float32
    np.testing.assert_array_equal(finer.astype(np.float32), tied)
    arrays = {"y": Q.y, "qid": Q.qid, "eval_qid": [VALI.qid]}
    expected = SinkPropRanker(**SHORT).fit(Q.X, eval_set=[(tied, VALI.y)], **arrays)
    for cluster in (None, client):
        ranker = SinkPropRanker(cluster=cluster, **SHORT)
        same(ranker.fit(Q.X, eval_set=[(finer, VALI.y)], **arrays), expected)


def test_cross_validation_with_resampling_and_two_outputs(client):
    options = {**SHORT, "selection": Selection("cross-validation", n_splits=2), "annealing": Annealing(1, 1)}
    for more in ({"resample": 2}, {"relaxation": PartitionedMeasure("probit")}):
        alone = SinkPropRanker(**options, **more).fit(Q.X, Q.y, qid=Q.qid)
        same(SinkPropRanker(cluster=client, **options, **more).fit(Q.X, Q.y, qid=Q.qid), alone)


def test_stored_sets(client, stored, folder):
    vali = convert(folder / "vali.txt", folder / "vali.queries", overwrite=True)
    alone = SinkPropRanker(**SHORT).fit(stored, eval_set=[vali])
    same(SinkPropRanker(cluster=client, **SHORT).fit(str(stored.path), eval_set=[vali]), alone)
    loaded = stored.load()
    given: dict[str, Any] = {"eval_set": [(VALI.X, VALI.y)], "eval_qid": [VALI.qid]}
    same(SinkPropRanker(cluster=client, **SHORT).fit(loaded.X, loaded.y, qid=loaded.qid, **given), alone)


def test_letor_files_and_weights_by_id(client, folder):
    files = [folder / "a.txt", folder / "b.txt"]
    weight = {q: 1.0 + q % 5 for q in Q.groups.queries.tolist()}
    options = {**SHORT, "selection": "cross-validation", "annealing": Annealing(1, 1)}
    alone = SinkPropRanker(**options).fit(files, query_weight=weight)
    same(SinkPropRanker(cluster=client, **options).fit(files, query_weight=weight), alone)


def test_dask_frames(client, tmp_path):
    frame = pd.DataFrame(Q.X, columns=["a", "b", "c", "d"]).assign(label=Q.y, query=Q.qid)
    names = ["a", "b", "c", "d"]
    given: dict[str, Any] = {
        "eval_set": [(pd.DataFrame(VALI.X, columns=names), VALI.y)],
        "eval_qid": [VALI.qid],
    }
    alone = SinkPropRanker(**SHORT).fit(frame[names], Q.y, qid=Q.qid, **given)
    cut = Q.groups.offsets[30]
    parts = dd.concat([dd.from_pandas(part, npartitions=1) for part in (frame[:cut], frame[cut:])])
    ranker = SinkPropRanker(cluster=client, **SHORT).fit(parts, "label", qid="query", **given)
    same(ranker, alone)
    assert ranker.feature_names_in_.tolist() == names
    ranker.save(tmp_path / "m.model")
    assert load_model(tmp_path / "m.model").cluster is None
    with pytest.raises(ValueError, match="X is a Dask DataFrame: give cluster="):
        SinkPropRanker().fit(parts, "label", qid="query")


def kill_in(client: distributed.Client, seconds: float) -> threading.Timer:
    """The end of a worker in a while, in the middle of whatever it does."""
    victim = sorted(client.run(os.getpid).values())[0]
    timer = threading.Timer(seconds, os.kill, (victim, signal.SIGKILL))
    timer.start()
    return timer


@pytest.mark.parametrize("seconds", [0.05, 0.4])
def test_a_fit_survives_a_kill_with_the_same_model(client, stored, seconds):
    ranker = SinkPropRanker(cluster=client, **LONGER)
    alone = SinkPropRanker(**LONGER).fit(stored)
    timer = kill_in(client, seconds)
    same(ranker.fit(stored), alone)
    timer.join()


def test_a_lost_cluster_leaves_a_checkpoint_from_which_any_other_resumes(client, stored, tmp_path):
    alone = SinkPropRanker(**SHORT).fit(stored)
    file = tmp_path / "fit.check"
    with dask.config.set({"sinkprop.patience": "0.5s", "distributed.comm.timeouts.connect": "300ms"}):
        doomed = distributed.LocalCluster(
            1, threads_per_worker=1, scheduler_kwargs={"dashboard": False, "dashboard_address": ":0"}
        )
        stages = []

        def end(stage) -> None:
            stages.append(stage)
            if len(stages) == 2:
                doomed.close()

        with pytest.raises(ClusterLost, match=r"^the scheduler at tcp://\S+ is gone") as lost:
            SinkPropRanker(cluster=doomed.scheduler_address, checkpoint=file, on_stage=end, **SHORT).fit(
                stored
            )
    assert "\n" not in str(lost.value)
    assert file.exists()
    content = file.read_bytes()
    for cluster in (None, client):
        file.write_bytes(content)
        rest: list[Any] = []
        ranker = SinkPropRanker(cluster=cluster, checkpoint=file, on_stage=rest.append, **SHORT).fit(stored)
        same(ranker, alone)
        assert len(rest) == len(alone.fit_result_.stages) - 2
        assert not file.exists()


SCRIPT = """
import sys
from sinkprop import Annealing, SinkPropRanker

def tell(stage):
    print("stage", flush=True)

if __name__ == "__main__":
    ranker = SinkPropRanker(
        cluster=2, selection="validation", max_iter=40, tol=0, on_stage=tell
    )
    ranker.fit(sys.argv[1])
    print(ranker.fit_result_.status, flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_from_the_keyboard_ends_a_script_with_the_best_so_far(stored, tmp_path):
    import psutil

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "-W", "error::ResourceWarning", script, stored.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "stage\n"
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = process.communicate(timeout=60)
    assert out.endswith("interrupted\n"), err
    assert "Traceback" not in err
    gone, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive
    assert process.returncode == 0
    assert len(gone) == len(workers)


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return end.value.code or 0, captured.out, captured.err


def test_the_command_line(client, stored, folder, tmp_path, capsys):
    pytest.importorskip("click", reason="needs the extra cli")
    given = [
        "train",
        stored.path,
        "--vali",
        folder / "vali.txt",
        "--penalty",
        "100",
        "--selection",
        "validation",
    ]
    models = [tmp_path / "one.model", tmp_path / "cluster.model"]
    for model, more in zip(models, ([], ["--cluster", client.scheduler.address]), strict=True):
        code, out, err = run(capsys, *given, "--model", model, *more)
        assert (code, err) == (0, "")
        assert f"Wrote {model}" in out
    same(*map(load_model, models))
    code, out, err = run(
        capsys, "train", stored.path, "--model", models[0], "--method", "regression", "--cluster", 2
    )
    assert (code, out) == (2, "")
    assert "--cluster applies only to --method sinkprop or boosted" in err
    code, _, err = run(capsys, "train", stored.path, "--model", models[0], "--cluster", "two")
    assert code == 2
    assert "'two' is neither an address" in err


def test_the_command_line_without_a_scheduler(stored, tmp_path, capsys):
    pytest.importorskip("click", reason="needs the extra cli")
    check = tmp_path / "fit.check"
    check.write_text("of an earlier fit")
    with dask.config.set({"distributed.comm.timeouts.connect": "300ms"}):
        code, out, err = run(
            capsys, "train", stored.path, "--model", tmp_path / "m", "--cluster", "tcp://127.0.0.1:9",
            "--checkpoint", check,
        )  # fmt: skip
    assert (code, out) == (1, "")
    assert err.startswith("sinkprop: there is no scheduler at 'tcp://127.0.0.1:9'")
    assert f"resume from {check}" in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["fit.check"]


@pytest.mark.parametrize("normalization", ["standard", "query"])
def test_missing_values(client, folder, normalization):
    rng = np.random.default_rng(3)
    train, vali = (
        dataclasses.replace(
            part,
            X=np.where(rng.random(part.X.shape) < 0.3, np.nan, part.X).astype(np.float32),
            allow_nan=True,
        )
        for part in (Q, VALI)
    )
    stored = save_queries(folder / f"missing-{normalization}.queries", train, block_bytes=900)
    frame = pd.DataFrame(train.X, columns=[f"x{i}" for i in range(train.n_features)])
    frame = frame.assign(label=train.y, qid=train.qid)
    alone = SinkPropRanker(normalization=normalization, **SHORT).fit(train, eval_set=vali)
    assert alone.coef_.shape == (2 * train.n_features,)
    spread = SinkPropRanker(normalization=normalization, cluster=client, **SHORT)
    for X, y, qid in ((train, None, None), (stored, None, None), (dd.from_pandas(frame, 1), "label", "qid")):
        spread.fit(X, y, qid=qid, eval_set=vali)
        same(spread, alone)
        assert np.array_equal(spread.missing_.mean, alone.missing_.mean)
    with pytest.raises(ValueError, match=r"has no value|NaN"):
        spread.set_params(missing="error").fit(dd.from_pandas(frame, 1), "label", qid="qid")
