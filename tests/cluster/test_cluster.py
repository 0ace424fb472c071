"""Queries on the worker processes of a Dask cluster: what they hold, how it is combined, what goes wrong."""

import logging
import os
import pickle
import signal
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cluster_tasks import (
    Dying,
    Order,
    Parts,
    Seen,
    Total,
    Wrong,
    blind,
    compute_with,
    pretend,
    queries,
)
from hypothesis import given
from hypothesis import strategies as st

import sinkprop
from sinkprop import Queries, load_letor, save_letor
from sinkprop.cluster.reduction import covered, reduced, root

distributed = pytest.importorskip("distributed", reason="needs the extra dask")
pytest.importorskip("pyarrow", reason="needs the extra dask")

import dask  # noqa: E402
import pandas as pd  # noqa: E402
from dask import dataframe as dd  # noqa: E402

from sinkprop.cluster import ClusterLost, check_workers, cluster_source, connected  # noqa: E402
from sinkprop.cluster.partitions import FitPartition, Held, evaluate, queries_of, share, sorted_rows  # noqa: E402
from sinkprop.data.blocks import StoredSource  # noqa: E402
from sinkprop.data.feature_scaling import scale_by_query  # noqa: E402
from sinkprop.store import StoredQueries, convert  # noqa: E402

Q = queries()


def short_of_patience() -> Any:
    return dask.config.set({"sinkprop.patience": "0.5s", "distributed.comm.timeouts.connect": "300ms"})


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredQueries:
    folder = tmp_path_factory.mktemp("stored")
    save_letor(folder / "q.txt", Q)
    return convert(folder / "q.txt", folder / "q.queries", block_bytes=900, part_bytes=4000)


def refused(client, message: str, X: Any, y: Any = None, qid: Any = None, **options: Any) -> None:
    """The data are an error of one line, before there is a source."""
    with pytest.raises(ValueError, match=message) as caught, cluster_source(client, X, y, qid, **options):
        pass
    assert "\n" not in str(caught.value)


def files(folder: Path, parts: list[Queries]) -> list[Path]:
    paths = [folder / f"part-{i}.txt" for i in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        save_letor(path, part)
    return paths


def thirds(q: Queries = Q) -> list[Queries]:
    ids = q.groups.queries
    return [q.select(ids[i : i + len(ids) // 3]) for i in range(0, len(ids), len(ids) // 3)]


def as_frame(q: Queries) -> pd.DataFrame:
    frame = pd.DataFrame(q.X, columns=[f"f{i}" for i in range(q.n_features)])
    return frame.assign(label=q.y, query=q.qid)


def dask_frame(parts: list[Queries]) -> dd.DataFrame:
    return dd.concat([dd.from_pandas(as_frame(part), npartitions=1) for part in parts])


def check_seen(source, q: Queries = Q) -> None:
    """Every query, whole and once, in order."""
    seen = source.run(Seen())
    assert np.array_equal(seen["X"].astype(np.float32), q.X)
    assert np.array_equal(seen["y"], q.y)
    assert np.array_equal(seen["sizes"], source.sizes)
    assert np.array_equal(seen["ids"], q.groups.queries)
    assert np.array_equal(seen["numbers"], np.arange(q.n_queries))
    assert np.array_equal(source.query_ids, q.groups.queries)
    assert (source.n_rows, source.n_queries, source.n_features) == (len(q), q.n_queries, q.n_features)
    assert source.longest == q.groups.longest


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_a_reduction_does_not_depend_on_who_had_what(workers):
    n = len(workers)
    joined = "({} {})".format
    whole = root({(0, i): str(i) for i in range(n)}, n, lambda parts: joined(*parts))
    nodes = {}
    for worker in set(workers):
        own = {(0, i): str(i) for i in range(n) if workers[i] == worker}
        sent = reduced(own, n, lambda parts: joined(*parts))
        assert covered(sent, n) == {i for _, i in own}
        assert len(sent) <= len(own)
        nodes |= sent
    assert root(nodes, n, lambda parts: joined(*parts)) == whole
    assert whole.replace("(", "").replace(")", "") == " ".join(map(str, range(n)))


def test_a_worker_with_consecutive_leaves_sends_few_nodes():
    assert len(reduced({(0, i): i for i in range(3, 1000)}, 1000, sum)) <= 20
    assert root(reduced({(0, i): i for i in range(1000)}, 1000, sum), 1000, sum) == 999 * 500


def test_arrays_are_cut_into_whole_queries(client):
    weight, codes = np.arange(1.0, 91), np.arange(90) % 5
    with cluster_source(client, Q, query_weight=weight) as source:
        check_seen(source)
        coded = source.with_codes(codes.astype(np.int16))
        check_seen(coded)
        seen = coded.run(Seen())
        assert np.array_equal(seen["weight"], weight)
        assert np.array_equal(seen["codes"], codes)
        assert np.all(source.run(Seen())["codes"] == -1)  # as it was
        with pytest.raises(ValueError, match=r"codes must have one value per query, \(90,\)"):
            source.with_codes(codes[1:])


def test_arrays_in_any_order_with_weights_by_id(client):
    order = np.random.default_rng(3).permutation(len(Q))
    shuffled = Q.take(order)
    weight = {q: float(1 + q % 7) for q in Q.groups.queries.tolist()}
    with cluster_source(client, shuffled.X, shuffled.y, shuffled.qid, query_weight=weight) as source:
        seen = source.run(Seen())
        assert np.array_equal(seen["ids"], shuffled.groups.queries)
        assert np.array_equal(seen["X"], shuffled.X[shuffled.groups.rows])
        assert seen["weight"].tolist() == [weight[q] for q in seen["ids"].tolist()]


def test_one_query_of_one_document(client):
    with cluster_source(client, np.ones((1, 2)), [1.0], ["only"]) as source:
        assert source.run(Total(np.array([2.0, 3.0]))) == 5.0
        assert source.query_ids.tolist() == ["only"]


def test_a_stored_set_is_read_where_the_workers_are(client, stored):
    assert len(stored.block_queries) > 10
    weight = np.arange(1.0, 91)
    with cluster_source(client, stored, query_weight=weight) as source:
        check_seen(source)
        assert np.array_equal(source.run(Seen())["weight"], weight)
        assert source.digest == StoredSource(stored).digest
    with cluster_source(client, os.path.relpath(stored.path), by_query=True) as source:
        assert np.array_equal(source.run(Seen())["X"], scale_by_query(Q.X, Q.groups))


def test_letor_files_are_partitions_in_their_order(client, tmp_path):
    with cluster_source(client, files(tmp_path, thirds())) as source:
        check_seen(source)
        digest = source.digest
    with cluster_source(client, files(tmp_path, thirds()[::-1])) as source:
        assert source.query_ids[0] == thirds()[2].qid[0]
        assert source.digest != digest
    X = np.concatenate([load_letor(path).X for path in files(tmp_path, thirds())])
    with cluster_source(client, files(tmp_path, thirds()), by_query=True, n_features=4) as source:
        assert np.array_equal(source.run(Seen())["X"], scale_by_query(X, Q.groups))


def test_dask_frames_by_the_names_of_their_columns_or_by_series(client):
    frame = dask_frame(thirds())
    assert frame.npartitions == 3
    with cluster_source(client, frame, "label", "query") as source:
        check_seen(source)
        assert source.feature_names == ("f0", "f1", "f2", "f3")
        assert source.run(Seen())["X"].dtype == np.float32
    features = frame[["f0", "f1", "f2", "f3"]]
    with cluster_source(client, features, frame["label"], frame["query"]) as source:
        check_seen(source)


def test_frames_with_an_empty_partition_and_rows_in_any_order(client):
    q = Q.take(np.random.default_rng(1).permutation(len(Q)))
    frame = dd.from_pandas(as_frame(q), npartitions=1)
    empty = frame[frame["query"] < 0]
    with cluster_source(client, dd.concat([empty, frame]), "label", "query") as source:
        seen = source.run(Seen())
        assert np.array_equal(seen["ids"], q.groups.queries)
        assert np.array_equal(seen["X"], q.X[q.groups.rows])


def test_set_index_mends_a_frame_whose_queries_are_split(client):
    frame = dd.from_pandas(as_frame(Q), npartitions=4)  # cut anywhere
    message = (
        r"^the query \d+ is in X, partition 0 and in X, partition 1; a query must be whole\. Put the rows of "
        r"each query into one partition, for example with X\.set_index\('query'\)\.$"
    )
    refused(client, message, frame, "label", "query")
    with cluster_source(client, frame.set_index("query"), "label", "query") as source:
        seen = source.run(Seen())
        assert np.array_equal(seen["ids"], Q.groups.queries)
        assert np.array_equal(seen["sizes"], np.diff(Q.groups.offsets))
        rows = [sorted(map(tuple, X.tolist())) for X in np.split(seen["X"], Q.groups.offsets[1:-1])]
        assert rows == [sorted(map(tuple, X.tolist())) for X in np.split(Q.X, Q.groups.offsets[1:-1])]


def test_the_order_of_combination_is_that_of_the_partitions_alone(client, stored):
    with cluster_source(client, stored) as two:
        by_two = two.run(Order())
        total = two.run(Total(np.ones(4)))
    with connected(1) as alone, cluster_source(alone, stored) as one:
        assert one.run(Order()) == by_two
        assert len(one._placement.workers) == 1
        assert one.run(Total(np.ones(4))) == total  # to the bit, of a sum in floating point


def test_nothing_moves_between_workers(client, stored, tmp_path):
    def incoming(dask_worker):
        return len(dask_worker.transfer_incoming_log)

    before = client.run(incoming)
    for data in (Q, stored, files(tmp_path, thirds())):
        with cluster_source(client, data) as source:
            for _ in range(5):
                source.run(Total(np.ones(4), seconds=0.001))
            assert len(source._shares) == 2  # one task a worker for all its partitions
    assert client.run(incoming) == before


def test_what_a_task_raises_is_raised(client):
    with cluster_source(client, Q) as source:
        with pytest.raises(ValueError, match="no good: True"):
            source.run(Wrong())
        check_seen(source)


def test_workers_forget_when_the_source_is_closed(client, tmp_path):
    with cluster_source(client, files(tmp_path, thirds())) as source:
        coded = source.with_codes(np.zeros(90, np.int16))
        coded.run(Order())
        assert all(client.has_what().values())
    assert not left(client)


@pytest.mark.parametrize("kind", ["frame", "files", "weights"])
def test_workers_forget_what_was_refused_while_its_traceback_is_kept(client, tmp_path, kind):
    data = {
        "frame": (dd.from_pandas(as_frame(Q), npartitions=4), "label", "query"),
        "files": (files(tmp_path, [*thirds(), thirds()[0]]),),
        "weights": (files(tmp_path, thirds()),),
    }[kind]
    weight = [1.0] if kind == "weights" else None
    with pytest.raises(ValueError, match="query") as error:  # which has the traceback
        cluster_source(client, *data, query_weight=weight).__enter__()
    assert error.tb is not None
    assert not left(client)


def left(client) -> bool:
    """Whether workers hold anything, after a while."""
    for _ in range(100):
        if not any(client.has_what().values()):
            return False
        client.sync(_pause)
    return True


def test_a_worker_holds_few_of_the_parts_that_it_combines(monkeypatch):
    """The results of 700 partitions are combined as they come, along the tree."""
    worker = SimpleNamespace(state=SimpleNamespace(nthreads=1))
    monkeypatch.setattr("distributed.get_worker", lambda: worker)
    data = sorted_rows(queries(n=700), by_query=False)
    entries = [FitPartition(i, i, None, None) for i in range(700)]
    own = share(entries, *(Held(queries_of(data, i, i + 1, None)) for i in range(700)))
    Parts.most = 0
    found = evaluate(own, pickle.dumps(Parts()), 700)
    assert {node: part.text for node, part in found.items()} == reduced(
        {(0, i): str(i) for i in range(700)}, 700, Order().combine
    )
    assert Parts.most < 40


async def _pause() -> None:
    import asyncio

    await asyncio.sleep(0.05)


def test_a_query_in_two_files_is_named_with_both(client, tmp_path):
    parts = thirds()
    twice = Q.select(parts[0].groups.queries[3:4])
    parts[2] = Queries(
        np.concatenate([parts[2].X, twice.X]),
        np.concatenate([parts[2].y, twice.y]),
        np.concatenate([parts[2].qid, twice.qid]),
    )
    message = (
        r"^the query 9 is in \S*part-0.txt and in \S*part-2.txt; a query must be whole\. Put its documents"
    )
    refused(client, message, files(tmp_path, parts))
    names = [Queries(part.X, part.y, np.char.add("q", part.qid.astype(str))) for part in parts]
    refused(client, r"^the query 'q9' is in \S*part-0.txt and in \S*part-2.txt", files(tmp_path, names))


def test_other_features_are_named_with_both_partitions(client, tmp_path):
    parts = thirds()
    fewer = Queries(parts[1].X[:, :3], parts[1].y, parts[1].qid)
    message = r"^\S*part-1.txt has 3 features, but \S*part-0.txt has 4\. If lines leave out zeros"
    refused(client, message, files(tmp_path, [parts[0], fewer]))
    with cluster_source(client, files(tmp_path, [parts[0], fewer]), n_features=4) as source:
        assert source.n_features == 4
    one, other = (dd.from_pandas(as_frame(part), npartitions=1).to_delayed()[0] for part in parts[:2])
    renamed = other.rename(columns={"f2": "g2"})
    frame = dd.from_delayed([one, renamed], meta=as_frame(parts[0]), verify_meta=False)
    message = "^X, partition 1 has other features than X, partition 0: column 2 is 'g2' instead of 'f2'"
    refused(client, message, frame, "label", "query")


def test_a_damaged_set_is_named_before_the_fit(client, tmp_path):
    save_letor(tmp_path / "q.txt", Q)
    damaged = convert(tmp_path / "q.txt", tmp_path / "q.queries", block_bytes=900, part_bytes=4000)
    part = sorted(damaged.path.glob("part-*.arrow"))[1]
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    refused(client, rf"^\S*{part.name}: the file is damaged: its SHA-256", damaged)


def test_paths_that_one_worker_does_not_see(client, stored, tmp_path):
    other = max(client.nthreads())
    paths = files(tmp_path, thirds())
    try:
        client.run(blind, str(paths[1]), workers=[other])
        refused(
            client, rf"^the worker {other} does not find {paths[1]}\. Give paths that every worker can", paths
        )
        client.run(blind, str(stored.path), workers=[other])
        message = rf"^the worker {other} cannot use {stored.path}: .* Give a path that every worker can read"
        refused(client, message, stored)
    finally:
        client.run(blind, None, workers=[other])


def test_files_that_are_not_there_or_there_twice(client, tmp_path):
    for missing in ([tmp_path / "none.txt"], tmp_path / "none.queries"):
        with pytest.raises(FileNotFoundError), cluster_source(client, missing):
            pass
    (path,) = files(tmp_path, [Q])
    refused(client, "is in the list of files twice", [path, path])


@pytest.mark.parametrize(
    ("X", "y", "qid", "message"),
    [
        (Q.X, None, None, "^X is an array: give y and qid with it"),
        (Q.X, Q.y[1:], Q.qid, "labels must have one value per row of X"),
        (np.full((3, 2), np.nan), [0, 1, 2], [1, 1, 1], "X must be finite"),
        (
            dask_frame(thirds()),
            "label",
            None,
            "^qid must be the name of a column of X, or a Dask Series .*None",
        ),
        (dask_frame(thirds()), "labels", "query", "^y='labels' is not a column of X; it has f0"),
        (
            dask_frame(thirds()),
            "label",
            dask_frame([Q])["query"],
            "^qid must have the 3 partitions of X; it has 1",
        ),
    ],
)
def test_what_is_no_data(client, X, y, qid, message):
    refused(client, message, X, y, qid)


def test_what_is_wrong_in_a_partition_is_named_with_it(client):
    part = as_frame(thirds()[1])
    part.loc[part.index[2], "f1"] = np.nan
    frame = dd.concat([dask_frame(thirds()[:1]), dd.from_pandas(part, npartitions=1)])
    refused(client, r"^X, partition 1: column 'f1' .* in row 2", frame, "label", "query")


def kills(folder: Path, n: int) -> str:
    folder.mkdir()
    for i in range(n):
        (folder / str(i)).touch()
    return str(folder)


@pytest.mark.parametrize("kind", ["arrays", "stored", "files", "frame"])
def test_killed_workers_are_replaced_and_nothing_changes(client, stored, tmp_path, kind, caplog):
    data = {"arrays": (Q,), "stored": (stored,), "files": (files(tmp_path, thirds()),)}
    data["frame"] = (dask_frame(thirds()), "label", "query")
    with cluster_source(client, *data[kind]) as source:
        before = source.run(Order()), source.run(Total(np.ones(4)))
        with caplog.at_level(logging.WARNING, "sinkprop.cluster"):
            assert source.run(Dying(kills(tmp_path / "kills", 1))) == len(Q)
        assert not list((tmp_path / "kills").iterdir())
        assert kind == "frame" or " gone: " in caplog.text
        assert (source.run(Order()), source.run(Total(np.ones(4)))) == before
        check_seen(source)


@pytest.mark.slow
def test_more_kills_than_dask_allows_a_task(client, stored, tmp_path):
    with cluster_source(client, stored) as source:
        assert source.run(Dying(kills(tmp_path / "kills", 4))) == len(Q)


def test_a_worker_that_comes_back_gets_its_share(client, tmp_path):
    with cluster_source(client, Q) as source:
        source.run(Order())
        before = set(source._placement.workers)
        victim = client.run(os.getpid)[min(before)]
        os.kill(victim, signal.SIGKILL)
        for _ in range(200):
            if len(set(client.nthreads()) - before) == 1:
                break
            client.sync(_pause)
        source._placement._looked = -np.inf  # as after a few seconds
        check_seen(source)
        rows = dict.fromkeys(client.nthreads(), 0)
        for worker, n in zip(source._placement.where, source._plan.rows, strict=True):
            rows[worker] += n
        assert min(rows.values()) > 0.4 * len(Q)


def test_no_worker_or_no_scheduler_left_is_one_line(stored):
    with short_of_patience(), ExitStack() as stack:
        cluster = stack.enter_context(
            distributed.LocalCluster(
                1, threads_per_worker=1, scheduler_kwargs={"dashboard": False, "dashboard_address": ":0"}
            )
        )
        client = stack.enter_context(connected(cluster.scheduler_address))
        source = stack.enter_context(cluster_source(client, stored))
        check_seen(source)
        cluster.scale(0)
        while client.nthreads():
            client.sync(_pause)
        source._placement._looked = -np.inf
        with pytest.raises(
            ClusterLost, match=r"^the scheduler at tcp://\S+ has no worker, and none came in 0\.5 s\.$"
        ):
            source.run(Order())
        cluster.close()
        with pytest.raises(ClusterLost, match=r"^the scheduler at tcp://\S+ is gone \(.*\)\.$"):
            source.run(Order())


def test_all_that_names_a_cluster(client):
    with connected(client) as same:
        assert same is client
    with connected(client.scheduler.address) as other:
        assert other is not client
        assert set(other.nthreads()) == set(client.nthreads())
    assert other.status == "closed"
    assert client.status == "running"
    assert len(check_workers(client)) == 2


@pytest.mark.parametrize("cluster", [0, -1, True, 2.5, [], distributed.Client])
def test_what_is_no_cluster(cluster):
    with pytest.raises(ValueError, match=r"^cluster"), connected(cluster):
        pass


def test_addresses_without_a_scheduler():
    for address in ("tcp://127.0.0.1:9", "nonsense://x", "no address"):
        with (
            short_of_patience(),
            pytest.raises(ClusterLost, match=f"^there is no scheduler at '{address}': "),
            connected(address),
        ):
            pass


@pytest.mark.parametrize(
    ("version", "message"), [("0.0.1", "has sinkprop 0.0.1 with Python 3"), (None, "lacks a package")]
)
def test_a_worker_with_another_version_or_none(client, version, message):
    other = max(client.nthreads())
    client.run(pretend, version, workers=[other])
    try:
        with pytest.raises(ValueError, match=f"^the worker {other} {message}.*; this process has") as error:
            check_workers(client)
    finally:
        client.run(pretend, "", workers=[other])
    assert f"sinkprop {sinkprop.__version__} with Python" in str(error.value)
    assert "\n" not in str(error.value)
    assert len(check_workers(client)) == 2


def test_workers_of_different_instructions_are_noted(client, caplog):
    from sinkprop import _native

    own = _native.instruction_set()
    others = [name for name in _native.instruction_sets() if name != own]
    if not others:
        pytest.skip("the processor has one instruction set only")
    odd = max(client.nthreads())
    with caplog.at_level(logging.WARNING, "sinkprop.cluster"):
        check_workers(client)
        assert not caplog.records
        client.run(compute_with, others[0], workers=[odd])
        try:
            check_workers(client)
        finally:
            client.run(compute_with, own, workers=[odd])
    (record,) = caplog.records
    assert record.getMessage().startswith("the workers use different instruction sets (")


def test_processes_started_here_are_ended_whatever_happens():
    import psutil

    pids = []

    def interrupted() -> None:
        with connected(1) as client:
            pids.extend(client.run(os.getpid).values())
            assert all(map(psutil.pid_exists, pids))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert pids
    assert not any(map(psutil.pid_exists, pids))
