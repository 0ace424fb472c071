#!/usr/bin/env python3
"""The source distribution and the manylinux wheels, without containers.

    build_wheels.py                                              this Python and this processor, into dist/
    build_wheels.py --machine x86_64 aarch64 --python python3.10 python3.11 python3.12

Zig's C++ compiler brings the symbols of old glibc versions and links its own libc++ into the module, so
that a wheel needs nothing but glibc 2.17 of 2012, and it compiles for aarch64 on x86-64. auditwheel checks
each wheel and names it. A wheel of Python 3.12 is built against the stable ABI (cp312-abi3) and serves all
later versions; 3.10 and 3.11 have a wheel each. A Python is needed with its headers, of either processor.

The wheels are built from the unpacked source distribution. The same commit gives the same bytes: the tools'
versions are below, times are that of the commit (or SOURCE_DATE_EPOCH). Prints one line per file, with its
size and SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLIBC = (2, 17)
MACHINES = ("x86_64", "aarch64")
# What each Python builds with, and what is installed once
BACKEND = ("build==1.6.1", "cmake==4.4.4", "nanobind==3.1.0", "ninja==1.13.2", "scikit-build-core==1.1.2")
TOOLS = ("auditwheel==6.8.2", "ziglang==0.17.0")


def run(*command: str | Path, **options: object) -> str:
    """Standard output of a command; if it fails, what it wrote is printed and the program ends."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, command))}: exit status {done.returncode}")
    return str(done.stdout)


def environment(python: str, folder: Path, requirements: tuple[str, ...]) -> Path:
    """A virtual environment with packages; returns its folder of programs."""
    run(python, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements)
    return folder / "bin"


def commit_time() -> str:
    """The time that the files in the archives get, in seconds since 1970."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    return run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()


def compiled(source: Path, bin: Path, zig: str, machine: str, variables: dict[str, str], out: Path) -> Path:
    """The wheel that the build backend makes, compiled for a machine by zig; not yet a manylinux one."""
    target = f"{machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    found = "import sys; print('cpython-%d%d' % sys.version_info[:2])"
    version = run(bin / "python", "-c", found).strip()
    variables = {
        **variables,
        "CXX": f"{zig} c++ -target {target}",
        # Python.h asks for an older POSIX than zig's headers offer by themselves; nanobind uses stderr, which
        # neither Python.h of the stable ABI nor libc++ declares for it.
        "CXXFLAGS": "-Wno-macro-redefined -include stdio.h",
        # The build backend takes the names of the module and of the wheel from these.
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "SETUPTOOLS_EXT_SUFFIX": f".{version}-{machine}-linux-gnu.so",
    }
    settings = [
        f"build-dir={out / 'build'}",
        "install.strip=false",  # the linker does, also for the other machine
        "cmake.define.SINKPROP_WARNINGS_AS_ERRORS=ON",
        # The kernels of AVX2 and AVX-512 are of x86-64 only. CMake knows the machine that it runs on.
        f"cmake.define.SINKPROP_BASELINE_ONLY={'OFF' if machine == 'x86_64' else 'ON'}",
    ]
    options = [word for setting in settings for word in ("-C", setting)]
    python = bin / "python"
    run(python, "-m", "build", "--wheel", "--no-isolation", "-o", out, *options, source, env=variables)
    (wheel,) = out.glob("*.whl")
    return wheel


def audited(wheel: Path, bin: Path, machine: str, variables: dict[str, str], out: Path) -> Path:
    """The wheel under the name that auditwheel finds right for what the module asks of the system."""
    # "auto", because its command line takes no tag of another machine; "none", because no library is copied.
    run(bin / "auditwheel", "repair", "--plat", "auto", "--patcher", "none", "-w", out, wheel, env=variables)
    (named,) = out.glob("*.whl")
    if f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}" not in named.name:
        sys.exit(
            f"auditwheel calls the wheel {named.name}, which asks for more than glibc {GLIBC[0]}.{GLIBC[1]}"
        )
    return named


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--python", nargs="+", default=[sys.executable], metavar="PYTHON")
    parser.add_argument("--machine", nargs="+", choices=MACHINES, default=[platform.machine()])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="DIR")
    options = parser.parse_args()
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)

    made = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        first = environment(options.python[0], work / "first", BACKEND + TOOLS)
        variables = {**os.environ, "SOURCE_DATE_EPOCH": commit_time()}
        run(first / "python", "-m", "build", "--sdist", "--no-isolation", "-o", work, ROOT, env=variables)
        (archive,) = work.glob("*.tar.gz")
        with tarfile.open(archive) as files:
            files.extractall(work / "source", filter="data")
        (source,) = (work / "source").iterdir()
        made.append(Path(shutil.move(archive, output / archive.name)))

        zig = run(first / "python", "-c", "import ziglang; print(ziglang.__path__[0] + '/zig')").strip()
        for number, python in enumerate(options.python):
            bin = environment(python, work / f"python{number}", BACKEND) if number else first
            for machine in options.machine:
                folder = work / f"{number}-{machine}"
                wheel = compiled(source, bin, zig, machine, variables, folder)
                wheel = audited(wheel, first, machine, variables, folder / "audited")
                made.append(Path(shutil.move(wheel, output / wheel.name)))
    for path in made:
        data = path.read_bytes()
        print(f"{path.name}  {len(data) / 1e6:.2f} MB  sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
