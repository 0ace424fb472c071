"""Time and memory of a linear fit to a stored set, compared with reading the disk and a fit in memory.

    python benchmarks/larger_than_memory.py --folder DIR [--gigabytes 8]

Creates a stored set with that many gigabytes of float32 features in the folder (136 features, 120 documents
per query), or uses an existing one. Then runs, each in a new process:

    disk     reads the files from the disk, after removing them from the file cache
    memory   loads the set and fits
    stored   fits to the stored set, starting with a cold file cache

Both fits are the same short one (one penalty, three stages) and must give the same weights. With --limit, the
fit to the stored set has that much memory in all, including the file cache, so it reads the disk in every
pass.

"Rate" is the size of the features read in all passes of the fit, divided by its time. There is one pass per
evaluation, and a few more before the first stage and after each stage. "Above" is the peak resident memory
minus that after importing the library, including mapped pages.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

N_FEATURES, DOCUMENTS = 136, 120


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder of the stored set, which is created if missing"
    )
    parser.add_argument("--gigabytes", type=float, default=8.0, help="size of the features  [default: 8]")
    parser.add_argument(
        "--threads", type=int, default=None, help="number of threads  [default: all processors]"
    )
    parser.add_argument("--stages", type=int, default=3, help="stages of the fit  [default: 3]")
    parser.add_argument(
        "--limit",
        type=float,
        help="memory of the stored fit in gigabytes, by a Linux control group; needs root",
    )
    parser.add_argument("--no-memory", action="store_true", help="skip the fit in memory")
    parser.add_argument("--run", choices=["disk", "memory", "stored"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    path = options.folder / f"simulated-{options.gigabytes:g}.queries"
    if options.run:
        kind = {"disk": disk, "memory": memory, "stored": stored}[options.run]
        if options.run == "stored" and options.limit:
            forget(path)  # pages cached by other processes would not count toward the limit
            confine(int(options.limit * 1e9))
        print(json.dumps(kind(path, options.threads, options.stages)))
        return
    make(path, options.gigabytes)
    kinds = ["disk", "stored"] if options.no_memory else ["disk", "memory", "stored"]
    found = {kind: run(kind, options) for kind in kinds}
    report(found)


def make(path: Path, gigabytes: float) -> None:
    from sinkprop import Queries
    from sinkprop.store import is_stored, save_queries

    if is_stored(path):
        return
    n_queries = int(np.ceil(gigabytes * 1e9 / (4 * N_FEATURES * DOCUMENTS)))
    rng = np.random.default_rng(0)
    w = rng.normal(size=N_FEATURES) / np.sqrt(N_FEATURES)

    def queries():
        for first in range(0, n_queries, 500):
            count = min(500, n_queries - first)
            X = rng.standard_normal((count * DOCUMENTS, N_FEATURES), dtype=np.float32)
            y = np.digitize(X @ w + rng.normal(size=len(X)), [1.0, 2.0, 3.0])
            yield Queries(X, y, np.repeat(np.arange(first, first + count), DOCUMENTS))

    began = time.perf_counter()
    made = save_queries(path, queries())
    print(f"made {made} in {time.perf_counter() - began:.0f} s", flush=True)


def run(kind: str, options: argparse.Namespace) -> dict:
    command = [sys.executable, __file__, "--run", kind, "--folder", str(options.folder)]
    command += ["--gigabytes", f"{options.gigabytes:g}"]
    command += ["--stages", str(options.stages)]
    if options.threads:
        command += ["--threads", str(options.threads)]
    if options.limit:
        command += ["--limit", str(options.limit)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def forget(path: Path) -> None:
    """Remove the files from the system's file cache."""
    for file in path.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def confine(limit: int) -> None:
    """Limit the memory of this process, including its part of the file cache, to so many bytes."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")  # versions 1 and 2 of control groups
    first = (old / "memory.limit_in_bytes").exists()
    group = (old if first else new) / f"sinkprop-{os.getpid()}"
    group.mkdir()
    (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def disk(path: Path, *_: int | None) -> dict:
    forget(path)
    buffer, total, began = bytearray(8 << 20), 0, time.perf_counter()
    for file in sorted(path.glob("part-*.arrow")):
        with open(file, "rb", buffering=0) as handle:
            while count := handle.readinto(buffer):
                total += count
    seconds = time.perf_counter() - began
    return {"bytes": total, "seconds": seconds, "rate": total / seconds}


def memory(path: Path, n_threads: int | None, stages: int) -> dict:
    from sinkprop import open_queries

    before = resident()
    began = time.perf_counter()
    q = open_queries(path).load()
    loaded = time.perf_counter() - began
    return fitted(q.X.nbytes, before, n_threads, stages, q.X, q.y, qid=q.qid) | {"load": loaded}


def stored(path: Path, n_threads: int | None, stages: int) -> dict:
    from sinkprop import open_queries

    forget(path)
    before = resident()
    queries = open_queries(path)
    return fitted(queries.n_rows * queries.n_features * 4, before, n_threads, stages, queries)


def fitted(size: int, before: int, n_threads: int | None, stages: int, *data, **options) -> dict:
    import sinkprop.data.blocks
    from sinkprop import Annealing, SinkPropRanker

    passes = []
    for kind in (sinkprop.data.blocks.ArraySource, sinkprop.data.blocks.StoredSource):
        kind.run = counting(kind.run, passes)
    ranker = SinkPropRanker(
        penalty=1e-3,
        annealing=Annealing(4, 4 / 2 ** (stages - 1)),
        max_iter=4,
        n_threads=n_threads,
        verbose=False,
    )
    began = time.perf_counter()
    ranker.fit(*data, **options)
    seconds = time.perf_counter() - began
    return {
        "bytes": size,
        "seconds": seconds,
        "passes": len(passes),
        "evaluations": ranker.fit_result_.evaluations,
        "rate": len(passes) * size / seconds,
        "above": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before,
        "weights": ranker.coef_.tolist(),
    }


def counting(method, passes):
    def run(self, task):
        passes.append(type(task).__name__)
        return method(self, task)

    return run


def resident() -> int:
    """Resident memory of this process after importing the library and the modules that a fit uses."""
    import scipy.optimize  # noqa: F401

    import sinkprop.linear.ranker
    import sinkprop.store  # noqa: F401

    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmRSS")


def report(found: dict[str, dict]) -> None:
    print(f"{found['stored']['bytes'] / 1e9:.2f} GB of features")
    for kind, result in found.items():
        line = f"{kind:8s}{result['seconds']:8.1f} s{result['rate'] / 1e9:8.2f} GB/s"
        if "passes" in result:
            line += f"{result['passes']:5d} passes, {result['evaluations']} evaluations, "
            line += f"{result['above'] / 1e9:.2f} GB above the library's own"
        print(line)
    slower = min(found[kind]["rate"] for kind in found if kind != "stored")
    print(f"stored against the slower of the others: {found['stored']['rate'] / slower:.2f}")
    if "memory" in found:
        same = found["memory"]["weights"] == found["stored"]["weights"]
        print(f"weights of both fits: {'the same to the last bit' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
