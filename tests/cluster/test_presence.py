"""Workers that are stopped count as lost after a time, and no request waits for them."""

import asyncio
import os
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from cluster_tasks import Total, both_there, queries

distributed = pytest.importorskip("distributed", reason="needs the extra dask")

import dask  # noqa: E402

from sinkprop.cluster import ClusterLost, cluster_source  # noqa: E402
from sinkprop.cluster.connecting import ask, ask_each, workers_of  # noqa: E402
from sinkprop.cluster.presence import WorkerLost  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system does not stop processes")


@contextmanager
def one_stopped(client):
    """One worker stopped; yields its address. A worker counts as lost after two seconds."""
    pids = ask(both_there(client), os.getpid)
    stopped = min(pids)
    with dask.config.set({"sinkprop.silence": "2s"}):
        os.kill(pids[stopped], signal.SIGSTOP)
        try:
            yield stopped
        finally:
            os.kill(pids[stopped], signal.SIGCONT)


def soon(function, *arguments):
    """What a function returns, or raises, within 30 seconds."""
    found = []

    def work():
        try:
            found.append(function(*arguments))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    return found[0]


def test_a_stopped_worker_is_left_out_until_it_continues(client):
    with one_stopped(client) as stopped:
        assert set(soon(ask, client, os.getpid)) == set(client.nthreads()) - {stopped}
        assert stopped not in workers_of(client)
        answers = soon(ask_each, client, os.getpid, {stopped: ()})
        assert isinstance(answers[stopped], WorkerLost)
        assert str(answers[stopped]) == f"the worker {stopped} is gone"
    with dask.config.set({"sinkprop.silence": "2s"}):
        deadline = time.monotonic() + 30
        while stopped not in workers_of(client):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_worker_stopped_between_evaluations_changes_nothing(client):
    data = queries()
    task = Total(np.arange(1.0, 5.0))
    with cluster_source(both_there(client), data) as source:
        expected = source.run(task)
        with one_stopped(client):
            assert soon(source.run, task) == expected


def test_a_scheduler_that_does_not_answer_is_named(client, monkeypatch):
    async def never(*arguments, **options):
        await asyncio.sleep(60)

    monkeypatch.setattr(client.scheduler, "identity", never, raising=False)
    with dask.config.set({"sinkprop.patience": "300ms", "sinkprop.silence": "0s"}):
        error = soon(workers_of, client)
    assert isinstance(error, ClusterLost)
    assert str(error).startswith(f"the scheduler at {client.scheduler.address} is gone (TimeoutError")
