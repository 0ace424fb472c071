"""The fuzz targets of the native code: builds them with sanitizers and runs them.

    python fuzz/native.py                                10^8 runs of the reader, 10^6 of each other target
    python fuzz/native.py --runs 100000 --targets letor words
    python fuzz/native.py --runs 20000 --targets letor --compiler g++

With Clang, the targets are libFuzzer programs: coverage guides the mutations, and the inputs that are kept
grow in the build folder. With GCC, which has no libFuzzer, a driver mutates the seeds of fuzz/seeds at
random. A crash or a report of a sanitizer writes its input to the build folder, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Targets and the number of their runs. The reader gets the most: it reads files of strangers.
TARGETS = {
    "letor": 10**8,
    "letor_threads": 10**6,
    "decimal": 10**6,
    "words": 10**6,
    "writer": 10**6,
    "sorting": 10**6,
    "row_sums": 10**6,
    "pairs": 10**6,
    "batch": 10**6,
    "trees": 10**6,
}


def cmake(folder: Path, *options: str, targets: list[str] | None = None) -> None:
    """Configure and build a folder; the tools are those on the path."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, *generator, *options], check=True, stdout=sys.stderr)
    chosen = ["--target", *targets] if targets else []
    subprocess.run(["cmake", "--build", folder, *chosen], check=True, stdout=sys.stderr)


def build(folder: Path, compiler: str, targets: list[str]) -> None:
    """Build the fuzz targets under ASan and UBSan."""
    options = (
        "-DSINKPROP_FUZZ=ON",
        "-DSINKPROP_SANITIZE=address,undefined",
        f"-DCMAKE_CXX_COMPILER={compiler}",
    )
    cmake(folder, *options, targets=[f"fuzz_{name}" for name in targets])


def run(folder: Path, name: str, runs: int, seed: int, *, libfuzzer: bool) -> bool:
    """Run a target; return whether it ended without a report."""
    inputs = [
        str(path) for path in (ROOT / "fuzz" / "seeds" / name.removesuffix("_threads"),) if path.is_dir()
    ]
    options = [f"-runs={runs}", f"-seed={seed}"]
    if libfuzzer:
        corpus = folder / "corpus" / name
        corpus.mkdir(parents=True, exist_ok=True)
        inputs.insert(0, str(corpus))
        options += ["-max_len=400", "-reload=0", "-print_final_stats=1", "-verbosity=0", "-timeout=60"]
        words = ROOT / "fuzz" / "seeds" / f"{name.removesuffix('_threads')}.dict"
        options += [f"-dict={words}"] if words.exists() else []
    print(f"+ fuzz_{name}: {runs:,} runs", flush=True)
    # Without the small quarantine, memory is never used again while it is in the cache: half as many runs.
    environment = {"ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=1", **os.environ}
    done = subprocess.run(
        [folder / f"fuzz_{name}", *options, *inputs], check=False, cwd=folder, env=environment
    )
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="NAME")
    parser.add_argument("--runs", type=int, help="runs of each target, instead of the long run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compiler", default="clang++" if shutil.which("clang++") else "g++")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz")
    given = parser.parse_args()
    libfuzzer = "clang" in given.compiler
    folder = given.folder.resolve() / ("clang" if libfuzzer else "gcc")
    build(folder, given.compiler, given.targets)
    bad = [
        name
        for name in given.targets
        if not run(folder, name, given.runs or TARGETS[name], given.seed, libfuzzer=libfuzzer)
    ]
    print(f"{len(given.targets)} targets, {len(bad)} with a report{': ' + ', '.join(bad) if bad else ''}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
