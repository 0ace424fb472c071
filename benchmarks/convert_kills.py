"""Conversions that are killed at random moments and resumed: do they produce the same bytes?

    python benchmarks/convert_kills.py                  300 MB of LETOR text, ten kills; about three minutes
    python benchmarks/convert_kills.py --megabytes 50 --kills 3 --kind parquet

Creates a file and converts it once without a kill. Then each further conversion runs in a new process, which
gets SIGKILL at a random moment, uniform over the time of a whole conversion. The same call is repeated until
the stored set is complete; in three cases of ten it is killed once more. The SHA-256 of every file of the
set, including the manifest, is compared with that of the first conversion.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sinkprop

N_FEATURES, DOCUMENTS = 136, 100
PART_BYTES = 8 << 20  # small, so that kills hit both within and between parts


def make_file(path: Path, megabytes: int, kind: str) -> None:
    """Queries of 100 documents with 136 features, a fifth of them 0."""
    rng = np.random.default_rng(0)
    number = 0
    with open(path, "wb") as file:
        while file.tell() < megabytes * 10**6:
            X = np.where(rng.random((5_000, N_FEATURES)) < 0.2, 0, rng.random((5_000, N_FEATURES))).round(6)
            qid = np.repeat(np.arange(number, number + 5_000 // DOCUMENTS), DOCUMENTS)
            number += 5_000 // DOCUMENTS
            labels = np.floor(5 * X[:, 0])
            if kind == "csv":
                if file.tell() == 0:
                    file.write(f"qid,label,{','.join(f'f{j}' for j in range(N_FEATURES))}\n".encode())
                np.savetxt(file, np.column_stack([qid, labels, X]), fmt="%.10g", delimiter=",")
            else:
                with tempfile.TemporaryDirectory() as folder:
                    part = Path(folder, "part.txt")
                    sinkprop.save_letor(part, sinkprop.Queries(X, labels, qid))
                    file.write(part.read_bytes())
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        queries = sinkprop.load_letor(path)
        columns = {f"f{j}": queries.X[:, j] for j in range(N_FEATURES)}
        pq.write_table(
            pa.table({"qid": queries.qid, "label": queries.y, **columns}), path, row_group_size=9_999
        )


def start(path: Path, out: Path, kind: str) -> subprocess.Popen[bytes]:
    """A process that has started to convert."""
    code = (
        "import sys, pyarrow.csv, pyarrow.parquet; from sinkprop.store import convert; print(flush=True); "
        f"convert(sys.argv[1], sys.argv[2], kind={kind!r}, part_bytes={PART_BYTES})"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path), str(out)], stdout=subprocess.PIPE)
    if process.stdout is not None:
        process.stdout.readline()
    return process


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def parts_in(folder: Path) -> int:
    return len(list(folder.glob("part-*.arrow")))


def killed(path: Path, out: Path, kind: str, after: float) -> bool:
    """Start a conversion and kill it `after` seconds. Returns whether it was still running."""
    process = start(path, out, kind)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait() == -signal.SIGKILL


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=300, help="size of the file  [default: 300]")
    parser.add_argument(
        "--kills", type=int, default=10, help="number of conversions that are killed  [default: 10]"
    )
    parser.add_argument(
        "--kind", choices=["letor", "csv", "parquet"], default="letor", help="file format  [default: letor]"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of the kills  [default: 0]")
    parser.add_argument(
        "--folder", type=Path, help="working folder  [default: the system's temporary folder]"
    )
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path, out = Path(folder, "file"), Path(folder, "set.queries")
        make_file(path, given.megabytes, given.kind)
        process, began = start(path, out, given.kind), time.perf_counter()
        if process.wait():
            raise SystemExit("the conversion failed")
        seconds = time.perf_counter() - began
        expected, n_parts = digests(out), parts_in(out)
        size = sum(file.stat().st_size for file in out.iterdir())
        print(
            f"{path.stat().st_size / 1e6:,.0f} MB of {given.kind} to {size / 1e6:,.0f} MB in {n_parts} "
            f"parts: {seconds:.1f} s without a kill"
        )
        shutil.rmtree(out)
        work, wrong, done = Path(f"{out}.unfinished", "set"), 0, 0
        while done < given.kills:
            moment = float(rng.uniform(0, seconds))
            if not killed(path, out, given.kind, moment):
                shutil.rmtree(out)  # it finished before the kill
                continue
            done += 1
            found = parts_in(work) if work.exists() else 0
            twice, later = rng.random() < 0.3 and not out.exists(), float(rng.uniform(0, seconds))
            again = twice and killed(path, out, given.kind, later)
            unfinished = work.parent.exists() or not out.exists()
            if unfinished and start(path, out, given.kind).wait():
                raise SystemExit("the conversion could not be resumed")
            same = digests(out) == expected and not work.parent.exists()
            wrong += not same
            print(
                f"kill {done:2d} after {moment:5.2f} s, {found:3d} of {n_parts} parts on the disk: "
                f"{'the same bytes' if same else 'OTHER BYTES'}{', killed twice' if again else ''}",
                flush=True,
            )
            shutil.rmtree(out)
    print(f"{given.kills - wrong} of {given.kills} made the same bytes")
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
