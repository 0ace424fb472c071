"""The harnesses of fuzz/: short runs of them, and what they must see."""

import importlib
import json
import random
import subprocess
import sys
from pathlib import Path

import fuzz_outcomes
import pytest

ROOT = Path(__file__).parents[1]
FUZZ = ROOT / "fuzz"
# Formats without LightGBM, XGBoost and torch, whose import takes longer than the run
QUICK = ("SinkPropRanker", "FeatureRanker", "linear-checkpoint", "comparison")


@pytest.fixture(scope="module")
def mutate():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FUZZ)
        yield importlib.import_module("mutate")


def started(script, *options):
    return subprocess.run(
        [sys.executable, FUZZ / script, *options], capture_output=True, text=True, timeout=300, check=False
    )


def test_mutated_files_are_refused_or_read():
    done = started("mutate.py", "--count", "60", "--seed", "11", "--jobs", "1", "--formats", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 mutated files, 0 violations" in done.stdout


@pytest.mark.parametrize(
    ("use", "kinds"),
    [
        (fuzz_outcomes.crash, ["crash", "crash"]),
        (fuzz_outcomes.hang, ["hang", "hang"]),
        (fuzz_outcomes.others, ["wrong", "different"]),  # the checksum of the second is redone
    ],
    ids=["crash", "hang", "wrong"],
)
def test_violations_are_seen(mutate, tmp_path, use, kinds):
    run = mutate.Run("FeatureRanker", tmp_path, seed=0, seconds=2, jobs=1, use=use)
    assert [kind for _, kind, _ in run.outcomes(range(2))] == kinds


@pytest.mark.parametrize("error", [KeyError("fitted"), ValueError("two\nlines")], ids=["class", "lines"])
def test_an_undocumented_error_is_seen(mutate, monkeypatch, tmp_path, error):
    def use(path):
        raise error

    format = mutate.FORMATS["FeatureRanker"]
    monkeypatch.setitem(mutate.FORMATS, "FeatureRanker", type(format)(format.make, use, format.redo))
    assert mutate.outcome("FeatureRanker", tmp_path)[0] == "undocumented"


@pytest.mark.parametrize("name", ["FeatureRanker", "NeuralRanker", "stored-docids"])
def test_a_redone_checksum_is_the_one_that_is_written(mutate, tmp_path, name):
    format = mutate.FORMATS[name]
    format.make(tmp_path / "valid")
    content = mutate.read_content(tmp_path / "valid")
    damaged = {file: data.replace(b"0", b"0") for file, data in content.items()}
    mutate.write_content(tmp_path / "again", format.redo(damaged))
    first, second = (mutate.outcome(name, tmp_path / file) for file in ("valid", "again"))
    assert first == second
    assert first[0] == "read"


def test_mutations_depend_on_the_seed_alone(mutate, tmp_path):
    content = {"": json.dumps({"format": "x", "version": 1, "a": [1, 2.5, "text"], "sha256": ""}).encode()}
    made = [[mutate.mutated(content, random.Random(i)) for i in range(200)] for _ in range(2)]
    assert made[0] == made[1]
    assert len({tuple(changed.items()) for changed, _ in made[0]}) > 150


def test_a_forked_child_does_what_its_parent_did():
    done = started("forks.py", "--rankers", "FeatureRanker", "--parent", "predict", "--child", "load", "save")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 pairs, 0 faults" in done.stdout


def test_the_kernel_tests_of_ci_are_found():
    code = "import sanitize; print(*sanitize.kernel_tests())"
    done = subprocess.run([sys.executable, "-c", code], cwd=FUZZ, capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) > 5
    assert all((ROOT / file).is_file() for file in done.stdout.split())
