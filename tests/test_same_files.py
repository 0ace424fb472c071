"""The same fit gives the same file, byte for byte, in every process and for every ranker."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sinkprop
from sinkprop.model_files import read_model, write_model
from sinkprop.registry import RANKERS

for package in ("torch", "lightgbm", "xgboost", "catboost"):
    pytest.importorskip(package)

from export_rankers import fitted  # noqa: E402 - it imports these packages

LINEAR = ("sinkprop", "probit", "regression", "listnet", "adarank", "smoothrank", "softrank", "boltzrank")
NAMES = (*LINEAR, "feature", "boosted", "lightgbm", "xgboost", "catboost", "network", "auto")

SAVE_ALL = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from export_rankers import fitted

for name in sys.argv[3:]:
    fitted(name).save(Path(sys.argv[1], name))
"""


def test_every_ranker_fitted_in_two_processes_gives_the_same_file(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    first.mkdir()
    command = [sys.executable, "-c", SAVE_ALL, str(second), str(Path(__file__).parent / "helpers"), *NAMES]
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        for name in NAMES:
            fitted(name).save(first / name)
    assert process.returncode == 0
    assert {type(fitted(name)).__name__ for name in NAMES} == set(RANKERS)
    assert [n for n in NAMES if (first / n).read_bytes() != (second / n).read_bytes()] == []


@pytest.mark.parametrize("name", ["sinkprop", "network"])
def test_times_are_in_memory_but_not_in_the_file(tmp_path, name):
    ranker = fitted(name)
    ranker.save(tmp_path / "model")
    assert b"seconds" not in (tmp_path / "model").read_bytes()
    for found, known in ((ranker, True), (sinkprop.load_model(tmp_path / "model"), False)):
        steps = found.fit_result_.epochs if name == "network" else found.fit_result_.stages
        assert all(math.isfinite(step.seconds) == known for step in steps)


def test_a_file_with_times_still_loads(tmp_path):
    ranker = fitted("sinkprop")
    ranker.save(tmp_path / "model")
    state = read_model(tmp_path / "model").state
    for stage in state["fitted"]["stages"]:
        stage["seconds"] = 1.5
    write_model(tmp_path / "old", "SinkPropRanker", state)
    assert all(stage.seconds == 1.5 for stage in sinkprop.load_model(tmp_path / "old").fit_result_.stages)


@pytest.mark.parametrize("name", [*NAMES, "network, three layers, batch", "network, beta", "softrank"])
def test_a_loaded_ranker_has_the_parameters_of_the_saved_one_and_gives_the_same_file(name, tmp_path):
    ranker = fitted(name)
    ranker.save(tmp_path / "first")
    loaded = sinkprop.load_model(tmp_path / "first")
    assert loaded.get_params(deep=False) == ranker.get_params(deep=False)
    loaded.save(tmp_path / "second")
    assert (tmp_path / "second").read_bytes() == (tmp_path / "first").read_bytes()
