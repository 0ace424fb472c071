"""Processes that are killed while they write: is a file lost, and does the work resume to the same bytes?

    python benchmarks/kills.py                                 1,000 kills over all writers; some minutes
    python benchmarks/kills.py --kills 50 --writers model,conversion-csv

A writer runs in a new process, which gets SIGKILL at a random moment. There are two kinds of writers:

A writer of whole files replaces its files again and again, in turn by two contents. After the kill, each file
must hold one of the two contents, byte for byte.

A writer that resumes, such as a fit with a checkpoint, is killed at a moment that is uniform over the time of
an undisturbed run. In half of the cases it is started again and killed again. At the end, the same call must
finish with the same bytes as the undisturbed run, and leave no checkpoint and no unfinished work.

After each kill, the next write to the folder must remove the temporary folder that the killed process left.
The exit code is 1 if anything was lost, differs or was left. The column "within" counts the kills that hit
the writer between the beginning and the end of a write, or before its work was complete.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import sinkprop
from sinkprop.common.atomic import write_atomically

Save = Callable[[Path, int], object]
CONTENTS = ("first", "second")
# Imported before the processes are forked, which then have no need to. None of them starts a thread.
IMPORTS = (
    "lightgbm", "matplotlib.figure", "pyarrow.csv", "pyarrow.parquet", "scipy.optimize",
    "sinkprop.cli.output", "sinkprop.experiment.figure", "sinkprop.export.write", "sinkprop.gbdt.ranker",
    "sinkprop.linear.ranker", "sinkprop.report.page", "sinkprop.store.convert", "sinkprop.torch.ranker",
)  # fmt: skip


@dataclass(frozen=True)
class Whole:
    """A writer of whole files.

    name     Name of the writer, for the table and the option --writers.
    prepare  Called once with a folder: writes the two contents to its files `CONTENTS`.
    open     Called with the folder in each process. Returns a function (path, number) that writes content
             number 0 or 1 to a path.
    targets  Names of the files that it replaces.
    """

    name: str
    prepare: Callable[[Path], object]
    open: Callable[[Path], Save]
    targets: tuple[str, ...] = ("target",)


@dataclass(frozen=True)
class Resumed:
    """A writer that resumes its unfinished work.

    name     Name of the writer.
    prepare  Called once with a folder, to make the input.
    run      Called with (folder, out): does the work, and writes the result to the file or folder `out`. Its
             unfinished work is in files whose names begin with the name of `out`.
    """

    name: str
    prepare: Callable[[Path], object]
    run: Callable[[Path, Path], object]


@dataclass
class Tally:
    """Counts of one writer: kills, kills within a write, violations."""

    kills: int = 0
    within: int = 0
    violations: int = 0

    def check(self, right: bool, what: str) -> None:
        """Count and print a violation unless `right`."""
        if not right:
            self.violations += 1
            print(f"VIOLATION: {what}", flush=True)


def forked(work: Callable[[], object]) -> int:
    """Start a process that does the work, and return its number."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def undisturbed(work: Callable[[], object]) -> float:
    """Do the work in another process, so that this one starts no threads, and return the seconds it took."""
    began = time.perf_counter()
    _, status = os.waitpid(forked(work), 0)
    if status:
        raise SystemExit("a writer failed without a kill; see the traceback above")
    return time.perf_counter() - began


def killed(work: Callable[[Callable[[], object]], object], moment: float) -> bool:
    """Kill a process `moment` seconds after its work calls its argument. Returns whether it still ran."""
    reading, writing = os.pipe()
    pid = forked(lambda: work(lambda: os.write(writing, b".")))
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    time.sleep(moment)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a writer failed before its kill; see the traceback above")
    return os.WIFSIGNALED(status)


def left_in(folder: Path) -> list[Path]:
    return list(folder.glob(".sinkprop-*"))


def check_leftovers(folder: Path, tally: Tally, name: str) -> None:
    """Count a temporary folder that was left, and check that the next write removes it."""
    tally.within += bool(left_in(folder))
    write_atomically(folder / "next", b"")
    tally.check(not left_in(folder), f"{name}: a temporary folder was left")


def kill_whole(writer: Whole, folder: Path, kills: int, rng: np.random.Generator) -> Tally:
    """Kill a writer of whole files so many times."""
    undisturbed(lambda: writer.prepare(folder))
    contents = [(folder / name).read_bytes() for name in CONTENTS]
    targets = [folder / name for name in writer.targets]

    def loop(ready: Callable[[], object], most: int | None = None) -> None:
        save, number = writer.open(folder), 0
        ready()
        while number != most:
            number += 1
            for target in targets:
                save(target, number % 2)

    both = undisturbed(lambda: loop(lambda: None, 4)) - undisturbed(lambda: loop(lambda: None, 0))
    longest, tally = max(both, 0.01), Tally()
    for _ in range(kills):
        tally.kills += killed(loop, float(rng.uniform(0, longest)))
        for target in targets:
            tally.check(target.read_bytes() in contents, f"{writer.name}: {target.name} is neither content")
        check_leftovers(folder, tally, writer.name)
    return tally


def kill_resumed(writer: Resumed, folder: Path, kills: int, rng: np.random.Generator) -> Tally:
    """Kill a writer that resumes so many times."""
    undisturbed(lambda: writer.prepare(folder))
    seconds = undisturbed(lambda: writer.run(folder, folder / "whole"))
    expected, out, tally = digest(folder / "whole"), folder / "out", Tally()

    def begin(ready: Callable[[], object]) -> None:
        ready()
        writer.run(folder, out)

    def complete() -> bool:
        return out.exists() and not unfinished(out)

    while tally.kills < kills:
        running = killed(begin, float(rng.uniform(0, seconds)))
        tally.kills += running
        tally.within += running and not complete()
        if not complete():
            if tally.kills < kills and rng.random() < 0.5:
                continue
            undisturbed(lambda: writer.run(folder, out))
        tally.check(digest(out) == expected, f"{writer.name}: resumed to other bytes")
        tally.check(not unfinished(out), f"{writer.name}: unfinished work was left")
        write_atomically(folder / "next", b"")
        tally.check(not left_in(folder), f"{writer.name}: a temporary folder was left")
        remove(out)
    return tally


def unfinished(out: Path) -> list[Path]:
    """Files and folders that a writer has made beside its result."""
    return [path for path in out.parent.glob(f"{out.name}*") if path != out]


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def digest(path: Path) -> dict[str, str]:
    """SHA-256 of a file, or of each file of a folder."""
    files: Iterable[Path] = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file()
    }


# ---- the writers ----------------------------------------------------------------------------------------


def data(seed: int = 0, n_queries: int = 12) -> sinkprop.Queries:
    """Queries of 20 documents with 8 features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20 * n_queries, 8)).round(6)
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=len(X)), [0.5, 1.5])
    names = tuple(f"f{i}" for i in range(8))
    return sinkprop.Queries(X, y, np.repeat(np.arange(1, n_queries + 1), 20), feature_names=names)


def model_writer(name: str, make: Callable[[], Any]) -> Whole:
    def prepare(folder: Path) -> None:
        for seed, content in enumerate(CONTENTS):
            make().fit(data(seed)).save(folder / content)

    def load(folder: Path) -> Save:
        rankers = [sinkprop.load_model(folder / content) for content in CONTENTS]
        return lambda path, number: rankers[number].save(path)

    return Whole(name, prepare, load)


def made_from(name: str, write: Callable[[Any, Path], object], source: Callable[[int], Any]) -> Whole:
    """A writer whose contents are made from objects: write(source(number), path)."""

    def prepare(folder: Path) -> None:
        objects = [source(number) for number in range(len(CONTENTS))]
        (folder / "objects").write_bytes(pickle.dumps(objects))
        for content, made in zip(CONTENTS, objects, strict=True):
            write(made, folder / content)

    def load(folder: Path) -> Save:
        objects = pickle.loads((folder / "objects").read_bytes())
        return lambda path, number: write(objects[number], path)

    return Whole(name, prepare, load)


def bytes_writer(name: str, write: Callable[[bytes, Path], object], *targets: str) -> Whole:
    """A writer of given bytes: 200 KB each, so that a write takes several calls of the system."""
    contents = [bytes([65 + number]) * 200_000 for number in range(len(CONTENTS))]

    def prepare(folder: Path) -> None:
        for content, data in zip(CONTENTS, contents, strict=True):
            (folder / content).write_bytes(data)

    return Whole(name, prepare, lambda folder: lambda path, number: write(contents[number], path), targets)


def comparison(number: int) -> Any:
    from sinkprop.experiment import compare

    fold = sinkprop.Fold("Fold1", data(0), data(1), data(2 + number))
    found = compare([fold], "regression,feature:1", metrics="ndcg@1-5", n_jobs=1)
    for result in found.results:  # times would make each content different
        object.__setattr__(result, "fit_seconds", 1.0)
        object.__setattr__(result, "predict_seconds", 1.0)
    return found


def write_page(found: Any, path: Path) -> None:
    from sinkprop.report import comparison_report, write_report

    write_report(comparison_report(found), path)


def write_results(content: bytes, path: Path) -> None:
    from sinkprop.cli.output import write_files

    write_files(dict.fromkeys((path, path.with_name("csv")), lambda p: p.write_bytes(content)))


def write_scores(content: bytes, path: Path) -> None:
    from sinkprop.cli.output import write_texts

    write_texts(path, (content[i : i + 10_000].decode() for i in range(0, len(content), 10_000)))


def write_figure(found: Any, path: Path) -> None:
    from sinkprop.common.atomic import replacing
    from sinkprop.experiment.figure import plot

    with replacing(path) as temporary:  # `plot` goes by the suffix of a file
        plot(found, temporary.with_suffix(".png"))
        os.replace(temporary.with_suffix(".png"), temporary)


def regression(number: int) -> Any:
    from sinkprop.baselines import RegressionRanker

    return RegressionRanker(penalty=1.0).fit(data(number))


def write_solr(ranker: Any, path: Path) -> None:
    from sinkprop.export import write_export

    write_export(ranker, path, format="solr", name="m", store="s")


def linear() -> Any:
    annealing = sinkprop.Annealing(1.0, 0.25)
    return sinkprop.SinkPropRanker(penalty=(1e-3, 1e-2), annealing=annealing, n_threads=1, verbose=False)


def boosted() -> Any:
    from sinkprop.gbdt import BoostedRanker

    return BoostedRanker(n_estimators=20, min_child_samples=5, n_threads=1, verbose=False)


def network() -> Any:
    from sinkprop.torch import NeuralRanker

    return NeuralRanker(max_epochs=12, patience=12, n_threads=1, verbose=False)


def checkpointed(name: str, make: Callable[[], Any]) -> Resumed:
    def run(folder: Path, out: Path) -> None:
        ranker = make().set_params(checkpoint=f"{out}.checkpoint")
        ranker.fit(data()).save(out)

    return Resumed(name, lambda folder: None, run)


def conversion(kind: str) -> Resumed:
    """Conversion of 2,000 rows in small parts, so that kills hit both within and between parts."""

    def prepare(folder: Path) -> None:
        queries = data(n_queries=100)
        columns = {"qid": queries.qid, "label": queries.y}
        columns |= {f"f{i}": x for i, x in enumerate(queries.X.T)}
        if kind == "letor":
            sinkprop.save_letor(folder / "input", queries)
        elif kind == "csv":
            head, rows = ",".join(columns), np.column_stack(list(columns.values()))
            np.savetxt(folder / "input", rows, fmt="%.10g", delimiter=",", header=head, comments="")
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table(columns), folder / "input", row_group_size=333)

    def run(folder: Path, out: Path) -> None:
        from sinkprop.store import convert

        convert(folder / "input", out, kind=kind, block_bytes=2_000, part_bytes=8_000)

    return Resumed(f"conversion-{kind}", prepare, run)


WRITERS: dict[str, Whole | Resumed] = {
    writer.name: writer
    for writer in (
        model_writer("model", linear),
        model_writer("boosted-model", boosted),
        model_writer("network", network),
        checkpointed("checkpoint", linear),
        checkpointed("network-checkpoint", network),
        conversion("letor"),
        conversion("csv"),
        conversion("parquet"),
        made_from("report", write_page, comparison),
        made_from("figure", write_figure, comparison),
        made_from("export", write_solr, regression),
        made_from("letor-text", lambda queries, path: sinkprop.save_letor(path, queries), data),
        bytes_writer("results", write_results, "target", "csv"),
        bytes_writer("scores", write_scores, "target"),
    )
}


def run(names: Iterable[str], kills: int, seed: int, folder: Path | None = None) -> int:
    """Kill the writers, print the table, and return the number of violations."""
    for module in IMPORTS:
        import_module(module)
    chosen = [WRITERS[name] for name in names]
    total = Tally()
    print(f"{'writer':20}{'kills':>7}{'within':>8}{'violations':>12}", flush=True)
    for number, writer in enumerate(chosen):
        share = kills * (number + 1) // len(chosen) - kills * number // len(chosen)
        rng = np.random.default_rng([seed, number])
        with tempfile.TemporaryDirectory(dir=folder) as place:
            kill = kill_whole if isinstance(writer, Whole) else kill_resumed
            tally = kill(writer, Path(place), share, rng)  # type: ignore[arg-type]
        print(f"{writer.name:20}{tally.kills:7}{tally.within:8}{tally.violations:12}", flush=True)
        for name in ("kills", "within", "violations"):
            setattr(total, name, getattr(total, name) + getattr(tally, name))
    print(f"{'all':20}{total.kills:7}{total.within:8}{total.violations:12}")
    return total.violations


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1_000, help="kills over all writers  [default: 1000]")
    parser.add_argument("--writers", default=",".join(WRITERS), help=f"[default: {','.join(WRITERS)}]")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the kills  [default: 0]")
    parser.add_argument(
        "--folder", type=Path, help="working folder  [default: the system's temporary folder]"
    )
    given = parser.parse_args()
    names = given.writers.split(",")
    unknown = [name for name in names if name not in WRITERS]
    if unknown:
        parser.error(f"no writer {unknown[0]!r}; the writers are {', '.join(WRITERS)}")
    raise SystemExit(bool(run(names, given.kills, given.seed, given.folder)))


if __name__ == "__main__":
    main()
