"""The progress line on a terminal: shown while a command works, gone before its results are printed."""

import os

import numpy as np
import pytest
from terminal import shown
from warm import PROGRAM

from sinkprop import Queries
from sinkprop.baselines import RegressionRanker
from sinkprop.data.letor import save_letor
from sinkprop.store import save_queries

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and the same queries as LETOR text and as a stored set of several blocks."""
    folder = tmp_path_factory.mktemp("terminal")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3)).round(3)
    queries = Queries(X, (X[:, 0] > 0.5).astype(float), np.repeat(np.arange(10), 9))
    save_letor(folder / "test.txt", queries)
    save_queries(folder / "test.queries", queries)
    RegressionRanker().fit(queries).save(folder / "m.model")
    return folder


@pytest.mark.parametrize("data", ["test.txt", "test.queries"])
@pytest.mark.parametrize("command", ["predict", "evaluate"])
@pytest.mark.parametrize("columns", [40, 100])
def test_results_begin_on_a_line_by_themselves(warm, folder, command, data, columns):
    arguments = ("m.model", data) if command == "predict" else (data, "--model", "m.model")
    piped = warm.run(PROGRAM, command, *arguments, cwd=folder)
    assert (piped.returncode, piped.stderr) == (0, "")
    on_screen = shown(warm, command, *arguments, columns=columns, cwd=folder)
    assert on_screen.status == 0
    assert b"ranking 90" in on_screen.data or b"evaluating 90" in on_screen.data  # the line was drawn
    assert not any("90 documents" in line or "reading" in line for line in on_screen.lines)
    if command == "predict":
        assert on_screen.lines == piped.stdout.splitlines()
    else:
        assert on_screen.lines[0].startswith(f"{data}, 90 rows")
        expected = piped.stdout.splitlines()
        for line in expected[1:-1]:
            assert line.rstrip() in on_screen.lines or len(line) > columns
