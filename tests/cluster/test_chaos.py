"""A short run of benchmarks/cluster_chaos.py: faults on a cluster, and a table of how the fits ended."""

import re
import runpy
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from sinkprop.cluster import ClusterLost

pytest.importorskip("distributed", reason="needs the extra dask")
pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cluster_chaos.py"


def chaos(*options):
    return subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False, timeout=500
    )


def test_three_faults():
    done = chaos("--faults", "3", "--seed", "3", "--kinds", "kill,pause,garbage", "--trees", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    same, named, violated = map(int, re.search(r"^all +(\d+) +(\d+) +(\d+)", done.stdout, re.M).groups())
    assert (same + named, violated) == (3, 0)
    assert same > 0
    assert done.stdout.endswith("processes left: none\n")


class Fake:
    """Fits that do as they are told: return a model, raise an error or take too long."""

    expected = {"linear": "model"}  # noqa: RUF012

    def __init__(self, end):
        self._end = end

    def fitted(self, kind, data):
        time.sleep(0.1)
        if isinstance(self._end, Exception):
            raise self._end
        if self._end is None:
            time.sleep(2)
        return self._end


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("model", "same model"),
        (ClusterLost("the scheduler is gone"), "named error"),
        (ValueError("the worker x does not answer"), "named error"),
        ("another", "violation"),
        (KeyError("x"), "violation"),
        (None, "violation"),
    ],
    ids=str,
)
def test_how_a_fit_may_end(end, expected):
    module = runpy.run_path(str(SCRIPT))
    fault = SimpleNamespace(began=0.0, heal=lambda: None)
    fault.begin = lambda: setattr(fault, "began", time.monotonic())
    what, _, _ = module["outcome"](Fake(end), "linear", "arrays", fault, 0.0, 0.5)
    assert what == expected
    counts = Counter({("kill", "linear", what): 1})
    assert module["summary"](counts, {("kill", "linear"): 1.0}, [], 1.0) == (expected == "violation")
    assert module["summary"](counts, {("kill", "linear"): 1.0}, [17], 1.0) == 1
