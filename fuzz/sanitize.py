"""The kernel tests on builds of the native module with sanitizers, for every instruction set.

    python fuzz/sanitize.py                              ASan with UBSan, then TSan
    python fuzz/sanitize.py --sanitizers thread --sets avx2

The builds are made by GCC, whose runtimes a Python that was built without sanitizers can preload. The tests
are those that CI runs on further builds (kernel_tests in .ci/run) and those of the reader. A report of a
sanitizer ends its test with an error, so that the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from native import ROOT, cmake

RUNTIMES = {"address,undefined": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
# The tests that start threads are those that TSan is for; processes and memory limits do not work under it.
_LEFT_OUT = "not memory and not fork and not autograd and not slow and not torch and not million and not 2000"


def kernel_tests() -> list[str]:
    """Return the test files that .ci/run names in kernel_tests, and those of the reader and writer."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    match = re.search(r"^kernel_tests=\((.*?)\)$", text, re.M | re.S)
    if match is None:
        raise ValueError(".ci/run has no kernel_tests")
    expanded = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {' '.join(match[1].split())}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [*expanded.stdout.split(), "tests/data/test_letor.py"]


def package(folder: Path, sanitizer: str, *, only_baseline: bool) -> Path:
    """Build the module with a sanitizer; return a folder that holds the package with this module."""
    build = folder / sanitizer.replace(",", "-")
    cmake(
        build,
        f"-DSINKPROP_SANITIZE={sanitizer}",
        f"-DSINKPROP_BASELINE_ONLY={'ON' if only_baseline else 'OFF'}",  # the other kernels take minutes
        "-DCMAKE_CXX_COMPILER=g++",
        f"-DPython_EXECUTABLE={sys.executable}",
    )
    copy = build / "package" / "sinkprop"
    shutil.rmtree(copy, ignore_errors=True)
    left_out = shutil.ignore_patterns("_native*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "sinkprop", copy, ignore=left_out)
    (module,) = build.glob("_native*.so")
    shutil.copy(module, copy)
    return copy.parent


def runtimes(sanitizer: str) -> str:
    """Return the runtime libraries of GCC's sanitizers, for LD_PRELOAD."""
    asked = [["g++", f"-print-file-name={name}"] for name in (*RUNTIMES[sanitizer], "libstdc++.so")]
    return " ".join(
        subprocess.run(a, capture_output=True, text=True, check=True).stdout.strip() for a in asked
    )


def environment(package: Path, sanitizer: str, isa: str) -> dict[str, str]:
    """Return the environment of a test run: one allocator, and a report ends the process."""
    return {
        **os.environ,
        "LD_PRELOAD": runtimes(sanitizer),
        "PYTHONPATH": str(package),
        "PYTHONMALLOC": "malloc",
        "SINKPROP_ISA": isa,
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:abort_on_error=1",
        # NumPy's and Python's own threads were not compiled with TSan.
        "TSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:ignore_noninstrumented_modules=1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sanitizers", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--sets", nargs="+", help="instruction sets; all that this processor has by default")
    parser.add_argument("--tests", nargs="+", help="test files; the kernel tests by default")
    parser.add_argument("-k", dest="words", default=_LEFT_OUT, help="expression that selects tests")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "sanitize")
    given = parser.parse_args()
    bad = []
    for sanitizer in given.sanitizers:
        built = package(given.folder.resolve(), sanitizer, only_baseline=given.sets == ["baseline"])
        code = "import sinkprop._native as n; print(*n.instruction_sets())"
        listed = subprocess.run(
            [sys.executable, "-c", code], env=environment(built, sanitizer, "baseline"),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        for isa in given.sets or listed.stdout.split():
            print(f"+ {sanitizer}, {isa}", flush=True)
            tests = given.tests or kernel_tests()
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-k",
                given.words,
                *tests,
            ]
            done = subprocess.run(command, check=False, cwd=ROOT, env=environment(built, sanitizer, isa))
            if done.returncode:
                bad.append(f"{sanitizer} {isa}")
    print(f"with a report or a failed test: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
