"""The process of a command: signals that end it with its workers, closed streams, and full disks."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fold_folders import letor_text, write_data_set
from warm import PROGRAM

from sinkprop import Queries, load_letor
from sinkprop.baselines import RegressionRanker
from sinkprop.experiment import compare, find_data_sets

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and descriptors as POSIX has them")


def living(session: int, seconds: float = 0.0) -> list[str]:
    """Processes of a session that have run for so many seconds of processor time.

    Those that have ended and were not waited for are left out.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may have ended
            state, _, _, number, *more = (folder / "stat").read_text().rpartition(")")[2].split()
            ran = int(more[7]) / os.sysconf("SC_CLK_TCK")
            if int(number) == session and state != "Z" and ran >= seconds:
                found.append((folder / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="lists processes by /proc")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_a_signal_to_compare_leaves_no_process_and_closes_its_pipes(tmp_path, sent):
    folder = write_data_set(tmp_path / "OHSUMED", n_folds=2)
    for fold in (1, 2):  # enough that the fits take far longer than the test
        (folder / f"Fold{fold}" / "train.txt").write_text(letor_text(100, 60, n_documents=200))
    output = tmp_path / "results.json"
    arguments = [folder, "--methods", "sinkprop-beta", "--jobs", 2, "--json", output]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "compare", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    began = time.monotonic()
    while len(living(process.pid)) < 5 and time.monotonic() - began < 60:  # with two workers and two trackers
        time.sleep(0.05)
    assert len(living(process.pid)) == 5
    # The two workers are at work: one that is still starting would print that its parent is gone.
    while (
        sum("popen_loky" in line for line in living(process.pid, 1.0)) < 2 and time.monotonic() - began < 60
    ):
        time.sleep(0.05)
    os.kill(process.pid, sent)
    began = time.monotonic()
    out, error = process.communicate(timeout=60)  # the ends of both pipes
    assert time.monotonic() - began < 20
    if sent == signal.SIGTERM:
        assert (process.returncode, out, error) == (143, "", "sinkprop: terminated (SIGTERM).\n")
    while living(process.pid) and time.monotonic() - began < 20:
        time.sleep(0.05)
    assert living(process.pid) == []
    assert not output.exists()
    assert list(tmp_path.glob(".sinkprop-*")) == []


END_WHILE_WRITING = """
import os, signal, sys
from sinkprop.cli import main, predict

def write(path, texts):
    from sinkprop.common.atomic import replacing
    with replacing(path):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))

predict.write_texts = write
main(sys.argv[2:])
"""


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_command_that_is_terminated_removes_its_temporary_files(files, warm, name, status):
    done = warm.run(END_WHILE_WRITING, name, *predict(files), "--out", files / "scores.txt")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert name in done.stderr
    assert not (files / "scores.txt").exists()
    assert list(files.glob(".sinkprop-*")) == []


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Everything that the commands read."""
    folder = tmp_path_factory.mktemp("files")
    write_data_set(folder / "sets")
    (folder / "data.txt").write_text(letor_text(1, 6))
    queries = load_letor(folder / "data.txt")
    RegressionRanker(penalty=1.0).fit(queries).save(folder / "m.model")
    (data,) = find_data_sets(folder / "sets")
    found = compare({data.name: data.folds}, "regression", n_jobs=1)
    (folder / "results.json").write_text(found.to_json())
    assert isinstance(queries, Queries)
    return folder


def predict(files):
    return ["predict", files / "m.model", files / "data.txt"]


def commands(files, out):
    """A cheap call of every command: its arguments."""
    data, model = files / "data.txt", files / "m.model"
    return {
        "": [],
        "bench": ["bench", "--help"],
        "compare": ["compare", files / "sets", "--methods", "regression", "--jobs", 1],
        "convert": ["convert", data, "--out", out / "data.queries"],
        "demo": ["demo", "--help"],
        "evaluate": ["evaluate", data, "--feature", 1],
        "export": ["export", model, "--to", "solr", "--store", "s", "--out", out / "solr.json"],
        "predict": predict(files),
        "report": ["report", files / "results.json", "--out", out / "page.html"],
        "train": ["train", data, "--model", out / "new.model", "--method", "regression"],
    }


# What Python does at its start if the caller has closed a stream.
CLOSED = f"""
import os, sys
number = int(sys.argv.pop(1))
os.close(number)
setattr(sys, ["stdin", "stdout", "stderr"][number], None)
{PROGRAM}
"""


@pytest.mark.parametrize("stream", [0, 1, 2], ids=["stdin", "stdout", "stderr"])
@pytest.mark.parametrize("command", sorted(commands(Path(), Path())))
def test_a_closed_stream_is_no_defect(files, tmp_path, warm, command, stream):
    done = warm.run(CLOSED, stream, *commands(files, tmp_path)[command])
    if stream == 1:
        assert (done.returncode, done.stderr) == (1, "sinkprop: stdout: It is closed.\n")
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


@pytest.mark.parametrize("arguments", ["evaluate - --feature 1", "report - --out page.html"])
def test_a_closed_stdin_that_is_needed_is_one_line(tmp_path, warm, arguments):
    done = warm.run(CLOSED, 0, *arguments.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "sinkprop: stdin: It is closed.\n")


def test_streams_that_a_shell_closes_or_that_nobody_reads(files):
    arguments = map(str, commands(files, files)["evaluate"])
    program = shlex.join([sys.executable, "-c", PROGRAM, *arguments])
    script = f"{program} <&- >&-; echo $? >&2; {program} | head -1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == "sinkprop: stdout: It is closed.\n1\n"
    assert done.stdout.count("\n") == 1


# No file may have more than 400 bytes. The system says so as it says that a disk is full.
FULL = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400)); {PROGRAM}"


@pytest.mark.parametrize(
    ("command", "option", "name"),
    [
        ("compare", "--json", "results.json"),
        ("compare", "--csv", "results.csv"),
        ("compare", "--report", "page.html"),
        ("compare", "--plot", "figure.png"),
        ("convert", "--out", "data.queries"),
        ("evaluate", "--json", "metrics.json"),
        ("export", "--out", "solr.json"),
        ("predict", "--out", "scores.txt"),
        ("report", "--out", "page.html"),
        ("train", "--model", "new.model"),
    ],
)
def test_a_full_disk_names_the_file(files, tmp_path, warm, command, option, name):
    arguments = [str(argument) for argument in commands(files, tmp_path)[command]]
    at = arguments.index(option) if option in arguments else len(arguments)
    arguments[at : at + 2] = [option, name]
    done = warm.run(FULL, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"sinkprop: {name}: File too large.\n")
    assert {path.name for path in tmp_path.iterdir()} <= {"data.queries.unfinished"}
