"""benchmarks/kills.py: a short run over all writers, and proofs that it notices writers that lose files."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
from places import ROOT

SCRIPT = ROOT / "benchmarks" / "kills.py"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module")
def kills():
    spec = importlib.util.spec_from_file_location("benchmark_kills", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_a_kill_of_any_writer_loses_nothing(kills):
    """In a process of its own, which has no threads that a fork would lose."""
    for package in ("torch", "lightgbm", "pyarrow", "matplotlib"):
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, SCRIPT, "--kills", "20"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    head, *rows, total = (line.split() for line in done.stdout.splitlines())
    assert head == ["writer", "kills", "within", "violations"]
    assert [row[0] for row in rows] == list(kills.WRITERS)
    assert total[:2] == ["all", "20"]
    assert int(total[2]) > 0  # kills that hit a writer within a write


def test_a_writer_in_place_is_found_out(kills, tmp_path, capsys):
    def write(content, path):
        with open(path, "wb", buffering=0) as file:
            for first in range(0, len(content), 1_000):
                file.write(content[first : first + 1_000])

    writer = kills.bytes_writer("in place", write, "target")
    tally = kills.kill_whole(writer, tmp_path, 20, np.random.default_rng(0))
    assert tally.kills == 20
    assert tally.violations > 0
    assert "VIOLATION: in place: target is neither content" in capsys.readouterr().out


def test_work_that_resumes_wrongly_is_found_out(kills, tmp_path, capsys):
    def run(folder, out):
        """Count to 40, and begin again where it was killed: from the middle of a number, so to say."""
        unfinished = out.with_name(out.name + ".unfinished")
        with open(unfinished, "ab", buffering=0) as file:
            for number in range(40):
                file.write(b"%d\n" % number)
                kills.time.sleep(0.001)
        os.replace(unfinished, out)

    tally = kills.kill_resumed(
        kills.Resumed("appended", lambda folder: None, run), tmp_path, 8, np.random.default_rng(0)
    )
    assert tally.kills == 8
    assert tally.violations > 0
    assert "VIOLATION: appended: resumed to other bytes" in capsys.readouterr().out


def test_a_folder_that_is_left_is_found_out(kills, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sinkprop.common.leftovers._clear", lambda parent: None)
    writer = kills.bytes_writer("untidy", lambda data, path: kills.write_atomically(path, data), "target")
    tally = kills.kill_whole(writer, tmp_path, 20, np.random.default_rng(0))
    assert tally.within > 0
    assert tally.violations > 0
    assert "VIOLATION: untidy: a temporary folder was left" in capsys.readouterr().out
