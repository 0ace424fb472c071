"""Latency, start and memory of saved models in a service: sinkprop.serving next to other ways to score.

    python benchmarks/serving.py                     both tables; about three minutes
    python benchmarks/serving.py latency --rounds 500
    python benchmarks/serving.py start --repeats 9

`latency` times one query of 50 and of 1,000 documents with 46 features on one thread. In each round every
method scores once, in a new random order, so that a busy machine slows all of them; the table has the median
and the 99th percentile of the thread's processor time over the rounds, and the median by the clock, in
microseconds. `start` imports a library, loads a model and scores 50 documents in a fresh process: processor
seconds, wall-clock seconds and peak memory beyond those of a bare interpreter, the least of several repeats,
with OpenBLAS's threads and without.

The peers are rankers (`load_model` and `predict`), LightGBM's own Booster on an array, ONNX Runtime on the
graphs of `to_onnx`, and treelite's two engines: GTIL interprets trees, and TL2cgen compiles them with gcc.
Those that are not installed are listed as such: pip install onnxruntime lightgbm treelite tl2cgen.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

SIZES = (50, 1000)
FEATURES = 46


def fitted() -> tuple[dict[str, Any], Any]:
    """A linear ranker, trees and a network, fitted to simulated queries, and features of documents."""
    from sinkprop import Queries, SinkPropRanker
    from sinkprop.gbdt import BoostedRanker
    from sinkprop.torch import NeuralRanker

    rng = np.random.default_rng(0)
    n = 300 * 40
    X = np.abs(rng.normal(size=(n, FEATURES))) ** 1.5
    worth = X[:, 0] + X[:, 1] * (X[:, 2] > 1) - 0.5 * X[:, 3] + rng.normal(size=n)
    qid, y = np.repeat(np.arange(300), 40), np.digitize(worth, np.quantile(worth, [0.7, 0.9, 0.97]))
    train = Queries(X[:9600], y[:9600], qid[:9600])
    vali = Queries(X[9600:], y[9600:], qid[9600:])
    options: dict[str, Any] = {"verbose": False}
    return {
        "linear": SinkPropRanker(**options).fit(train, eval_set=vali),
        "trees": BoostedRanker(
            n_estimators=200, num_leaves=31, learning_rate=0.1, n_boosters=1, **options
        ).fit(train, eval_set=vali),
        "network": NeuralRanker(max_epochs=3, **options).fit(train, eval_set=vali),
    }, np.abs(rng.normal(size=(max(SIZES), FEATURES))) ** 1.5


class Methods:
    """Functions that score one query, by name, and the peers that are not installed."""

    def __init__(self, rankers: dict[str, Any], folder: Path, X: Any) -> None:
        self.missing: list[str] = []
        self.found: dict[tuple[str, str], Callable[[Any], Any]] = {}
        from sinkprop import serving
        from sinkprop.common.packages import installed

        for kind, ranker in rankers.items():
            ranker.save(folder / f"{kind}.model")
            self._add(kind, "sinkprop.serving", serving.load(folder / f"{kind}.model").predict)
            self._add(kind, "ranker.predict", ranker.predict)
        booster = rankers["trees"].booster_
        booster.save_model(folder / "booster.txt")
        self._add("trees", "LightGBM Booster.predict", lambda X: booster.predict(X, num_threads=1))
        for peer, add in (
            ("onnxruntime", lambda: self._onnx(rankers, folder)),
            ("treelite", lambda: self._gtil(folder)),
            ("tl2cgen", lambda: self._compiled(folder)),
        ):
            if installed(peer):
                add()
            else:
                self.missing.append(peer)
        for (kind, name), score in self.found.items():
            expected = rankers[kind].predict(X[:50])
            np.testing.assert_allclose(np.ravel(score(X[:50])), expected, rtol=1e-4, atol=1e-4, err_msg=name)

    def _add(self, kind: str, name: str, score: Callable[[Any], Any]) -> None:
        self.found[kind, name] = score

    def _onnx(self, rankers: dict[str, Any], folder: Path) -> None:
        import onnxruntime

        from sinkprop.export import to_onnx

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        for kind, ranker in rankers.items():
            to_onnx(ranker, folder / f"{kind}.onnx")
            session = onnxruntime.InferenceSession(folder / f"{kind}.onnx", options)
            self._add(kind, "ONNX Runtime", lambda X, session=session: session.run(None, {"features": X})[0])

    def _gtil(self, folder: Path) -> None:
        import treelite

        model = treelite.frontend.load_lightgbm_model(folder / "booster.txt")
        model.serialize(folder / "treelite.bin")
        self._add(
            "trees", "treelite GTIL", lambda X: treelite.gtil.predict(model, X, nthread=1, pred_margin=True)
        )

    def _compiled(self, folder: Path) -> None:
        import tl2cgen
        import treelite

        model = treelite.frontend.load_lightgbm_model(folder / "booster.txt")
        tl2cgen.export_lib(model, toolchain="gcc", libpath=folder / "trees.so", params={"parallel_comp": 8})
        predictor = tl2cgen.Predictor(folder / "trees.so", nthread=1)
        self._add(
            "trees", "treelite TL2cgen", lambda X: predictor.predict(tl2cgen.DMatrix(X), pred_margin=True)
        )


def latency(methods: Methods, X: Any, rounds: int) -> None:
    rng = np.random.default_rng(0)
    queries = {n: np.ascontiguousarray(X[:n]) for n in SIZES}
    cases = [(key, n) for key in methods.found for n in SIZES]
    times: dict[Any, list[tuple[float, float]]] = {case: [] for case in cases}
    for number in range(rounds + 20):
        for i in rng.permutation(len(cases)).tolist():
            key, n = cases[i]
            begin, processor = time.perf_counter(), time.thread_time()
            methods.found[key](queries[n])
            spent = time.thread_time() - processor, time.perf_counter() - begin
            if number >= 20:  # the first rounds warm up
                times[cases[i]].append(spent)
    print(f"\nMicroseconds for one query, {FEATURES} features, one thread, {rounds} interleaved rounds\n")
    heads = [f"{n:,} documents: {what}" for n in SIZES for what in ("p50", "p99", "p50 by the clock")]
    print("| model | scored by | " + " | ".join(heads) + " |\n|---|---|" + "--:|" * len(heads))
    for kind, name in methods.found:
        cells = []
        for n in SIZES:
            processor_times, wall = np.array(times[(kind, name), n]).T * 1e6
            values = [*np.percentile(processor_times, (50, 99)), np.median(wall)]
            cells += [f"{value:,.0f}" for value in values]
        print(f"| {kind} | {name} | " + " | ".join(cells) + " |")
    for name in methods.missing:
        print(f"| | {name} | not installed" + " | " * (len(heads)) + "|")


PROBE = """
import resource, sys
exec(sys.argv[1])
used = resource.getrusage(resource.RUSAGE_SELF)
with open("/proc/self/status") as status:  # the peak of ru_maxrss includes the parent's memory before exec
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(used.ru_utime + used.ru_stime, int(peak) / 1024)
"""


def probe(program: str, repeats: int, blas_threads: str) -> tuple[float, float, float] | None:
    """Least processor seconds, wall-clock seconds and peak megabytes of a program; None if it fails."""
    runs = []
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    if blas_threads:
        environment["OPENBLAS_NUM_THREADS"] = blas_threads
    for _ in range(repeats):
        begin = time.perf_counter()
        run = subprocess.run(
            [sys.executable, "-c", PROBE, program],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        wall = time.perf_counter() - begin
        if run.returncode:
            return None
        processor, memory = map(float, run.stdout.split()[-2:])
        runs.append((processor, wall, memory))
    return tuple(min(column) for column in zip(*runs, strict=True))  # type: ignore[return-value]


def start(folder: Path, repeats: int) -> None:
    query = f"import numpy; X = numpy.ones((50, {FEATURES})); "
    onnx = "import onnxruntime; s = onnxruntime.InferenceSession({!r}); s.run(None, {{'features': X}})"
    programs = {("NumPy alone", ""): query}
    for kind in ("linear", "trees", "network"):
        model = str(folder / f"{kind}.model")
        programs["sinkprop.serving", kind] = (
            f"{query}from sinkprop.serving import load; load({model!r}).predict(X)"
        )
        programs["sinkprop.load_model", kind] = (
            f"{query}import sinkprop; sinkprop.load_model({model!r}).predict(X)"
        )
        programs["ONNX Runtime", kind] = query + onnx.format(str(folder / f"{kind}.onnx"))
    text = str(folder / "booster.txt")
    programs["LightGBM", "trees"] = (
        f"{query}import lightgbm; lightgbm.Booster(model_file={text!r}).predict(X)"
    )
    binary = str(folder / "treelite.bin")
    programs["treelite GTIL", "trees"] = (
        f"{query}import treelite; treelite.gtil.predict(treelite.Model.deserialize({binary!r}), X)"
    )
    library = str(folder / "trees.so")
    programs["treelite TL2cgen", "trees"] = (
        f"{query}import tl2cgen; tl2cgen.Predictor({library!r}).predict(tl2cgen.DMatrix(X))"
    )
    print("\nImport, load and first query of 50 documents in a fresh process, beyond a bare interpreter\n")
    heads = "processor s | wall s | processor s, 1 BLAS thread | wall s, 1 BLAS thread | peak MB"
    print(f"| library | model | {heads} |\n|---|---|--:|--:|--:|--:|--:|")
    bare = {threads: probe("pass", repeats, threads) for threads in ("", "1")}
    for (name, kind), program in programs.items():
        cells: list[str] = []
        for threads in ("", "1"):
            found, least = probe(program, repeats, threads), bare[threads]
            if found is None or least is None:
                cells = ["not installed"] + [""] * 4
                break
            cells += [f"{found[0] - least[0]:.3f}", f"{found[1] - least[1]:.3f}"]
            memory = found[2] - least[2]
        else:
            cells.append(f"{memory:.0f}")
        print(f"| {name} | {kind} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("latency", "start", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        rankers, X = fitted()
        sizes = f"{rankers['trees'].booster_.num_trees()} trees"
        leaves = statistics.mean(
            tree["num_leaves"] for tree in rankers["trees"].booster_.dump_model()["tree_info"]
        )
        print(f"trees: {sizes} of {leaves:.0f} leaves on average; network: 46-64-32-1 plus a linear function")
        methods = Methods(rankers, Path(name), X)
        if options.what != "start":
            latency(methods, X, options.rounds)
        if options.what != "latency":
            start(Path(name), options.repeats)


if __name__ == "__main__":
    main()
