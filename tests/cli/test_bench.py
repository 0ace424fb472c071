"""The program: what it prints, where, and how it fails. Nothing here asserts a speed."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner
from places import ROOT
from warm import PROGRAM

import sinkprop
from sinkprop import cli
from sinkprop.cli import benchmark as bench
from sinkprop.cli.benchmark.methods import torch_sinkprop
from sinkprop.cli.benchmark.records import AUTOGRAD, GAIN, NEURAL, SIGMA
from sinkprop.cli.benchmark.tables import print_report
from sinkprop.cli.benchmark.timing import time_method
from sinkprop.cli.output import program_name

TINY = ["bench", "--quick", "--no-peers", "--no-figures", "--sizes", "4,30"]


def run(*arguments, **environment):
    """The program as a user's shell runs it, with both outputs piped."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_python_m_is_the_program():
    for arguments, status in ((["--version"], 0), (["demp"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "sinkprop", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == status
        assert (done.stdout + done.stderr).startswith("sinkprop")


def test_the_program_is_named_as_the_shell_finds_it(tmp_path, monkeypatch):
    for folder in ("bin", "other bin"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "sinkprop").touch(mode=0o755)
    for started, path, name in (
        (tmp_path / "bin" / "sinkprop", tmp_path / "bin", "sinkprop"),
        (tmp_path / "bin" / "sinkprop", tmp_path, str(tmp_path / "bin" / "sinkprop")),
        (tmp_path / "bin" / "sinkprop", tmp_path / "other bin", str(tmp_path / "bin" / "sinkprop")),
        (tmp_path / "other bin" / "sinkprop", tmp_path, f"'{tmp_path / 'other bin' / 'sinkprop'}'"),
        (tmp_path / "bin" / "__main__.py", tmp_path, "sinkprop"),
        ("-c", tmp_path, "sinkprop"),
    ):
        monkeypatch.setenv("PATH", str(path))
        monkeypatch.setattr(sys, "argv", [str(started), "demo"])
        assert program_name() == name


def test_help_names_the_commands_and_teaches_by_example():
    for arguments in ([], ["--help"], ["-h"]):
        result = CliRunner().invoke(cli.program(), arguments)
        assert result.exit_code == 0
        assert "sinkprop bench --quick" in result.output
    result = CliRunner().invoke(cli.program(), ["bench", "--help"])
    assert result.exit_code == 0
    for option in ("--sizes", "--quick", "--no-figures", "--no-peers", "--plot", "--json"):
        assert option in result.output
    assert "--plot times.png" in result.output


def test_version():
    result = run("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"sinkprop {sinkprop.__version__}\n", "")


def test_bench_prints_times_ratios_accuracy_and_machine():
    result = CliRunner().invoke(cli.program(), TINY)
    assert result.exit_code == 0, result.output
    for line in (
        "Value and gradient of one query, microseconds",
        "Times slower than sinkprop Gaussian",
        "Relative error of the Gaussian gradient",
        f"{sinkprop._native.instruction_set()} kernels",
        f"numpy {np.__version__}",
    ):
        assert line in result.output
    assert "Performance targets" not in result.output
    rows = [line.split() for line in result.output.splitlines() if line.startswith("numpy.argsort ")]
    assert [len(row) for row in rows[:2]] == [3, 3]  # the name and two sizes, in both tables


def test_piped_output_is_plain_whole_and_leaves_stderr_alone(warm):
    sizes = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18"
    terminal = {"COLUMNS": "60", "TERM": "xterm-256color"}
    result = warm.run(PROGRAM, *TINY[:-1], sizes, env=terminal)
    assert result.returncode == 0
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert "…" not in result.stdout
    heads = [line.split() for line in result.stdout.splitlines() if line.startswith("n ")]
    assert heads == [["n", *sizes.split(",")]] * 3


def test_narrow_terminals_get_the_sizes_in_several_tables(monkeypatch):
    from rich.console import Console

    report = bench.measure((4, 1000, 2000, 30), budget=bench.QUICK, peers=False, figures=False)
    console = Console(width=44, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    with console.file:
        print_report(console, report)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 44
    assert "…" not in "".join(lines)
    heads = [line.split()[1:] for line in lines if line.startswith("n ")]
    assert list(itertools.chain(*heads)) == ["4", "30", "1,000", "2,000"] * 3
    assert len(heads) > 3


def test_output_without_unicode():
    result = run(*TINY, PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert result.stdout.isascii()


def test_json_holds_every_record():
    result = CliRunner().invoke(
        cli.program(), ["bench", "--quick", "--no-peers", "--sizes", "8", "--json", "-"]
    )
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert set(record) == {
        "machine",
        "methods",
        "sizes",
        "timings",
        "accuracy",
        "figures",
        "absent",
        "failed",
        "busy",
    }
    assert record["sizes"] == [8]
    assert record["failed"] == []
    assert {t["method"] for t in record["timings"]} == set(record["methods"])
    assert all(t["seconds"] > 0 and t["slowdown"] > 0 for t in record["timings"])
    assert record["accuracy"][0]["exact_to_dense"] < 1e-9
    figures = {f["name"]: f for f in record["figures"]}
    assert len(figures) == 12
    for f in figures.values():
        assert f["direction"] in ("at least", "at most")
        if f["measured"] is None:
            assert f["reached"] is None
            assert f["note"].startswith("not measured")
        else:
            within = (
                f["measured"] >= f["asked"] if f["direction"] == "at least" else f["measured"] <= f["asked"]
            )
            assert f["reached"] is within
    assert figures["Packages imported beyond NumPy"]["measured"] == 0
    assert figures["Gaussian vs torch autograd, n = 1000"]["measured"] is None


def test_json_and_plot_files(tmp_path, warm):
    picture, data = tmp_path / "times.png", tmp_path / "times.json"
    result = warm.run(PROGRAM, *TINY, "--plot", picture, "--json", data)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"Wrote {picture}\nWrote {data}\n" in result.stdout
    assert json.loads(data.read_text("utf-8"))["sizes"] == [4, 30]
    import matplotlib.image

    pixels = matplotlib.image.imread(picture)  # decodes the whole file
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert pixels.shape[0] > 500
    assert pixels.shape[1] > 800
    assert pixels[..., :3].std() > 0.01


def test_plot_of_one_size_as_svg(tmp_path):
    picture = tmp_path / "times.svg"
    result = CliRunner().invoke(cli.program(), [*TINY[:-1], "7", "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    text = picture.read_text("utf-8")
    assert text.rstrip().endswith("</svg>")
    assert ">numpy.argsort<" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bench", "--sizes", "10,x"], "'x' is not a size"),
        (["bench", "--sizes", "0"], "'0' is not a size"),
        (["bench", "--sizes", "-3"], "'-3' is not a size"),
        (["bench", "--sizes", "10,,20"], "'' is not a size"),
        (["bench", "--sizes", "1e3"], "'1e3' is not a size"),
        (["bench", "--sizes", "10000001"], "'10000001' is not a size"),
        (["bench", "--plot", "times.gif"], "'times.gif' must end in .png, .svg or .pdf"),
        (["bench", "--json", "/no/such/folder/times.json"], "there is no folder '/no/such/folder'"),
        (["bench", "--fast"], "--fast"),
        (["bench", "7"], "7"),
        (["launch"], "launch"),
    ],
)
def test_wrong_use_is_one_line_and_2(arguments, said, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    out, error = capsys.readouterr()
    assert (exit_.value.code, out) == (2, "")
    assert error.startswith("sinkprop: ")
    assert said in error
    assert error.count("\n") == 1
    assert "--help" in error


def test_wrong_use_from_a_shell():
    result = run("bench", "--sizes", "ten")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("module", ["click", "rich"])
def test_missing_extra_is_one_line_and_2(module):
    code = f"import sys; sys.modules[{module!r}] = None; from sinkprop.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code, "bench"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f'sinkprop: the command line needs {module}: pip install "sinkprop[cli]"\n'


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_is_130_without_a_traceback():
    code = "from sinkprop import cli; print('ready', flush=True); cli.main()"
    arguments = ["bench", "--no-peers", "--no-figures", "--sizes", "2000000,4000000,8000000"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1)  # long enough to be measuring, far shorter than the whole
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error


def test_sizes_are_sorted_and_counted_once():
    result = CliRunner().invoke(cli.program(), [*TINY[:-1], "9,3,9", "--json", "-"])
    assert json.loads(result.stdout)["sizes"] == [3, 9]


def test_a_method_that_fails_is_named_with_its_error():
    def start(query):
        def evaluate():
            raise RuntimeError("no\nsuch operator")

        return evaluate

    timing = time_method(bench.Method("theirs", start), 5, [], bench.QUICK)
    assert timing.seconds is None
    assert timing.reason == "failed at n = 5: RuntimeError: no such operator"
    later = time_method(bench.Method("theirs", start), 50, [timing], bench.QUICK)
    assert (later.seconds, later.reason) == (None, "not tried")


def test_a_method_that_would_take_too_long_or_too_much_memory_is_not_tried():
    tried = []

    def start(query):
        tried.append(len(query))
        return lambda: None

    budget = bench.Budget(seconds=0.0, most=1, patience=1.0)
    quadratic = bench.Method("quadratic", start, order=2)
    long = bench.Timing("quadratic", 100, seconds=0.5)
    assert time_method(quadratic, 5000, [long], budget).reason == "over 1 s"
    large = bench.Method("large", start, order=2, pair_bytes=100)
    assert time_method(large, 5000, [], budget).reason == "over 2 GB of memory"
    assert tried == []
    # 0.05 s at 100 may be 125 s at 5000, or all overhead: a size between tells.
    overhead = bench.Timing("quadratic", 100, seconds=0.05)
    assert time_method(quadratic, 5000, [overhead], budget).seconds is not None
    assert tried == [400, 5000]


def test_peers_that_are_not_installed_are_left_out_by_name(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("torch", "allrank") else find(name)
    )
    methods, absent, failed = bench.available_methods(peers=True)
    assert {a.name: a.reason for a in absent}[NEURAL] == "torch and allrank not installed"
    assert AUTOGRAD not in [m.name for m in methods]
    assert failed == ()


@pytest.mark.parametrize(
    "relaxation",
    [
        sinkprop.SmoothedIndicator(SIGMA, accuracy="exact"),
        sinkprop.PartitionedMeasure("logit-logistic"),
        sinkprop.PartitionedMeasure("probit"),
    ],
    ids=str,
)
def test_torch_computes_the_same_as_ours(relaxation):
    """The ratios compare like with like."""
    pytest.importorskip("torch")
    query = bench.random_query(40)
    scores = np.column_stack([query.scores, 0.3 * query.scores[::-1]])[:, : relaxation.width]
    scores = np.ascontiguousarray(scores[:, 0] if relaxation.width == 1 else scores)
    ours = sinkprop.expected_gain(scores, query.labels, gain=GAIN, relaxation=relaxation)
    value, gradient = torch_sinkprop(relaxation, scores, query.labels)()
    assert value == pytest.approx(ours.value, rel=1e-9)
    np.testing.assert_allclose(
        gradient.numpy(), ours.gradient, rtol=0, atol=1e-9 * np.abs(ours.gradient).max()
    )


def test_the_scripts_of_the_folder_say_what_they_need():
    script = ROOT / "benchmarks" / "crossover.py"
    result = subprocess.run(
        [sys.executable, str(script), "--help"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0
    assert "--sigmas" in result.stdout
