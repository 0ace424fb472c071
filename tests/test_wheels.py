"""The wheels and the source distribution of a release, as `tools/build_wheels.py` makes them.

SINKPROP_WHEELS names their folder. Without it the tests are skipped with a reason, as are those that need
qemu where it is absent; where SINKPROP_REQUIRE_WHEELS=1 both are errors. The wheel of this Python is
installed in a bare environment: nothing on the path but the environment's programs, so no compiler.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

import sinkprop

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sinkprop"
FOLDER = os.environ.get("SINKPROP_WHEELS")
WHEELS = sorted(Path(FOLDER).glob("*.whl")) if FOLDER else []
# What the ELF header says of the machine
ELF = {"x86_64": 62, "aarch64": 183}
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"}
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}

# A fit, and one query of each way in which the kernels multiply by A: on few documents, many, and ties.
PROGRAM = """
import json

import numpy as np

import sinkprop
from sinkprop import _native

random = np.random.default_rng(7)
values = []
for n in (1, 5, 60, 700):
    for scores in (random.normal(size=n), random.integers(0, 4, n).astype(float)):
        for relaxation in ("gaussian", "laplace"):
            labels = random.integers(0, 3, n)
            found = sinkprop.expected_gain(scores, labels, np.zeros(n), relaxation=relaxation)
            values += [found.value, *found.gradient[:20]]
X = random.normal(size=(160, 4))
qid = np.repeat(np.arange(16), 10)
y = np.clip(np.round(X @ [1.0, 0.5, 0.0, 0.0] + random.normal(size=160)), 0, 3)
ranker = sinkprop.SinkPropRanker().fit(X, y, qid=qid)
scores = ranker.predict(X).tolist()
print(json.dumps({"sets": _native.instruction_sets(), "values": values, "scores": scores}))
"""

# The module alone, without NumPy, which itself needs a later processor
ALONE = """
import array
import importlib.util
import sys

spec = importlib.util.spec_from_file_location("sinkprop._native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
scores, order, ordered = array.array("d", [1, 3, 2]), array.array("q", [9] * 3), array.array("d", [9] * 3)
native.sort_descending(scores, order, ordered)
print(native.instruction_sets(), list(order), list(ordered))
"""


def missing(reason: str) -> NoReturn:
    if os.environ.get("SINKPROP_REQUIRE_WHEELS") == "1":
        pytest.fail(f"{reason}, and SINKPROP_REQUIRE_WHEELS=1")
    pytest.skip(reason)


def emulated(processor: str) -> list[str]:
    """The words before a command that run it on an older processor than this."""
    if platform.machine() != "x86_64":
        pytest.skip("the older processors are x86-64 ones, as this Python would have to be")
    program = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    return [program or missing("no qemu-x86_64 on the path"), "-cpu", processor]


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    if not WHEELS:
        missing("no wheels: python tools/build_wheels.py --output DIR, then SINKPROP_WHEELS=DIR")


@pytest.fixture(params=WHEELS, ids=lambda path: path.name)
def wheel(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as files:
        return {name: files.read(name) for name in files.namelist() if not name.endswith("/")}


def the_module(members: dict[str, bytes]) -> tuple[str, bytes]:
    ((name, data),) = [(name, data) for name, data in members.items() if name.endswith(".so")]
    return name, data


def machine_of(wheel: Path) -> str:
    (machine,) = {tag.platform.split("_", 3 if "linux_" in tag.platform else 1)[-1] for tag in tags_of(wheel)}
    return machine


def tags_of(wheel: Path) -> Sequence:
    return sorted(parse_wheel_filename(wheel.name)[3], key=str)


def test_size_of_a_wheel(wheel: Path) -> None:
    assert wheel.stat().st_size < 4_000_000


def test_tags_of_a_wheel(wheel: Path) -> None:
    name, version, build, _ = parse_wheel_filename(wheel.name)
    assert (name, str(version), build) == ("sinkprop", sinkprop.__version__, ())
    for tag in tags_of(wheel):
        assert (tag.interpreter, tag.abi) in {("cp310",) * 2, ("cp311",) * 2, ("cp312", "abi3")}
        assert re.fullmatch(r"(manylinux_2_17|manylinux2014)_(x86_64|aarch64)", tag.platform)


def test_a_wheel_has_the_package_and_the_licenses(members: dict[str, bytes]) -> None:
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "src/sinkprop"], capture_output=True, text=True, check=True
    )
    expected = {name.removeprefix("src/") for name in tracked.stdout.split("\0") if name}
    module, _ = the_module(members)
    dist_info = f"sinkprop-{sinkprop.__version__}.dist-info/"
    assert {name for name in members if not name.startswith(dist_info)} == expected | {module}
    assert {"sinkprop/py.typed", "sinkprop/_native.pyi"} < expected
    licenses = {name.removeprefix(f"{dist_info}licenses/") for name in members if "/licenses/" in name}
    third = {str(path.relative_to(ROOT)) for path in ROOT.glob("native/third_party/*/LICENSE")}
    assert licenses == third | {"LICENSE", "src/sinkprop/report/assets/plotly-LICENSE"}
    for name in licenses:
        assert members[f"{dist_info}licenses/{name}"] == (ROOT / name).read_bytes()


def test_the_module_needs_old_glibc_alone(wheel: Path, members: dict[str, bytes]) -> None:
    name, data = the_module(members)
    machine = machine_of(wheel)
    assert data[:6] == b"\x7fELF\x02\x01"
    assert struct.unpack_from("<H", data, 18) == (ELF[machine],)
    abi3 = "cp312" in wheel.name
    cpython = re.search(r"-cp(\d+)-", wheel.name)
    assert name == f"sinkprop/_native.{'abi3' if abi3 else f'cpython-{cpython[1]}-{machine}-linux-gnu'}.so"
    versions = {tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", data)}
    assert versions
    assert max(versions) <= (2, 17)
    libraries = {found.decode() for found in re.findall(rb"\0([\w+-]+\.so\.\d+)(?=\0)", data)}
    assert "libc.so.6" in libraries
    assert libraries <= GLIBC | {LOADERS[machine]}


def test_the_module_is_stripped_and_names_no_folder(members: dict[str, bytes]) -> None:
    _, data = the_module(members)
    assert b".dynsym\0" in data
    assert b".symtab\0" not in data
    assert b".debug_" not in data
    assert (
        re.findall(rb"[\w./-]*(?:/tmp/|/home/|/root/|native/|site-packages|\.[ch]pp\b)[\w./-]*", data) == []
    )


def test_times_in_a_wheel_are_those_of_the_commit(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        assert len({info.date_time for info in files.infolist()}) == 1


def test_the_source_distribution_is_the_code_of_the_repository() -> None:
    (archive,) = Path(str(FOLDER)).glob("*.tar.gz")
    assert archive.name == f"sinkprop-{sinkprop.__version__}.tar.gz"
    assert archive.stat().st_size < 4_000_000
    with tarfile.open(archive) as files:
        names = {member.name.split("/", 1)[1] for member in files if member.isfile()}
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    assert names - {"PKG-INFO"} <= set(tracked)
    assert {name for name in tracked if name.startswith(("src/", "native/"))} <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "CMakeLists.txt"} <= names


@pytest.fixture(scope="module")
def own_wheel(_built: None) -> Path:
    """The wheel that pip would choose for this Python."""
    supported = set(sys_tags())
    found = [path for path in WHEELS if supported & set(tags_of(path))]
    return found[0] if found else missing(f"no wheel for this Python in {FOLDER}")


@pytest.fixture(scope="module")
def bare(own_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A Python with the wheel and nothing else but its dependencies, and the variables to run it with."""
    folder = tmp_path_factory.mktemp("bare")
    # without a pip of its own, and compiled where it is imported: both would take longer than the tests
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    programs = folder / "venv" / "bin"
    variables = {"PATH": str(programs), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    install = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
    done = subprocess.run(
        [*install, "--no-compile", "--only-binary", ":all:", f"{own_wheel}[cli]"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return programs / "python", variables


def output(command: Sequence[str | Path], variables: dict[str, str], timeout: float = 600) -> str:
    done = subprocess.run(
        command,
        env=variables,
        cwd=variables["HOME"],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_demo_runs_where_no_compiler_is(bare: tuple[Path, dict[str, str]]) -> None:
    python, variables = bare
    assert not any(
        shutil.which(name, path=variables["PATH"]) for name in ("cc", "gcc", "g++", "c++", "clang", "cmake")
    )
    record = json.loads(output([python.parent / "sinkprop", "demo", "--no-figure", "--json", "-"], variables))
    means = record["means"]
    assert record["queries"] == 160
    assert means["SinkProp"]["ndcg@10"] > means["BM25"]["ndcg@10"]
    folder = Path(variables["HOME"])
    assert (folder / "sinkprop-demo.html").stat().st_size > 1_000_000
    # The package under test reads the wheel's model, and finds BM25 as good as the wheel did.
    folds = list(sinkprop.datasets.pydocs_folds())
    column = folds[0].test.feature_names.index("whole_bm25")
    bm25 = [sinkprop.evaluate(fold.test, fold.test.X[:, column], metrics="map")["map"] for fold in folds]
    assert means["BM25"]["map"] == pytest.approx(np.mean(bm25), abs=1e-12)
    ranker = sinkprop.load_model(folder / "sinkprop-demo.model")
    assert sinkprop.evaluate(folds[0].test, ranker.predict(folds[0].test), metrics="map")["map"] > bm25[0]


@pytest.fixture(scope="module")
def computed() -> dict[str, list[float]]:
    """What the package under test computes, on this processor."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    result: dict[str, list[float]] = json.loads(run.stdout)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("processor", [None, "Nehalem", "Haswell"])
def test_the_wheel_computes_the_same_on_old_processors(
    bare: tuple[Path, dict[str, str]], computed: dict[str, list[float]], processor: str | None
) -> None:
    python, variables = bare
    words = emulated(processor) if processor else []
    found = json.loads(output([*words, python, "-W", "ignore", "-c", PROGRAM], variables))
    if processor:
        assert found["sets"] == (["baseline", "avx2"] if processor == "Haswell" else ["baseline"])
    np.testing.assert_allclose(found["values"], computed["values"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["scores"], computed["scores"], rtol=0, atol=1e-6)


def test_the_module_loads_on_the_oldest_processor(bare: tuple[Path, dict[str, str]]) -> None:
    python, variables = bare
    (module,) = python.parent.parent.glob("lib/*/site-packages/sinkprop/_native.*.so")
    said = output([*emulated("qemu64"), python, "-c", ALONE, module], variables)
    assert said == "['baseline'] [1, 2, 0] [3.0, 2.0, 1.0]\n"
