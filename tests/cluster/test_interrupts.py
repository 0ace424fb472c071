"""Ctrl-C while local workers start and while they fit: no traceback of Dask, and no process left."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from sinkprop import Queries, save_letor
from sinkprop.common.interrupts import interrupts_held

pytest.importorskip("distributed", reason="needs the extra dask")
pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("click", reason="needs the extra cli")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

# says on stdout when the client has seen the first trees
CLI = """
from sinkprop.cli import main
from sinkprop.gbdt.cluster.driver import _Driver

look = _Driver._look

def told(self, name, worker, notify):
    look(self, name, worker, lambda number, total, text: print("trees", flush=True))

_Driver._look = told
if __name__ == "__main__":
    main()
"""
SCRIPT = """
import sys

from sinkprop.gbdt import BoostedRanker

if __name__ == "__main__":
    BoostedRanker(n_estimators=10**6, cluster=2, verbose=False).fit(sys.argv[2])
"""


@pytest.fixture
def start(tmp_path):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(600, 3)), np.repeat(np.arange(30), 20)
    save_letor(tmp_path / "train.txt", Queries(X, (X[:, 0] > 0.5).astype(float), qid))
    options = ["--model", tmp_path / "m.model", "--method", "boosted", "--trees", "1000000", "--cluster", "2"]
    started = []

    def start(code):
        (tmp_path / "script.py").write_text(code)
        command = [sys.executable, tmp_path / "script.py", "train", tmp_path / "train.txt", *options]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def interrupted(process, times):
    """What a process, to whose terminal Ctrl-C was sent, says until its end; its workers end too."""
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    for _ in range(times):
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
        time.sleep(0.2)
    out, error = process.communicate(timeout=120)
    assert psutil.wait_procs(workers, timeout=10)[1] == []
    return out, error


@pytest.mark.parametrize(
    "code", [CLI, pytest.param(SCRIPT, marks=pytest.mark.slow)], ids=["program", "script"]
)
def test_while_the_workers_start(start, code):
    process = start(code)
    while len(psutil.Process(process.pid).children(recursive=True)) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    _, error = interrupted(process, 2)
    if code is CLI:
        assert process.returncode == 130
        assert error.strip() == ""
    else:  # Python's own traceback of the interrupt, and nothing else
        assert error.count("Traceback") == 1
        assert error.endswith("KeyboardInterrupt\n")
        assert "distributed/" not in error


@pytest.mark.slow
def test_while_the_workers_fit(start):
    process = start(CLI)
    assert process.stdout.readline() == "trees\n"
    out, error = interrupted(process, 1)
    assert process.returncode == 130
    assert error.startswith("sinkprop: interrupted: ")
    assert error.count("\n") == 1
    assert "Wrote " in out


def test_an_interrupt_is_put_off_to_the_end_of_a_block():
    done = []

    def block(error=None):
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.01)
            done.append("the rest")
            if error is not None:
                raise error

    with pytest.raises(KeyboardInterrupt):
        block()
    with pytest.raises(ValueError, match="another"):
        block(ValueError("another"))
    assert done == ["the rest"] * 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
