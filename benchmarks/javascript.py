"""Exported models in Node and in Chromium: milliseconds per query, and the sizes of the files.

    npm ci --ignore-scripts --prefix tests/browser
    python benchmarks/javascript.py

The models are fitted to pydocs; a query has 50 or 1,000 of its rows. Every call makes a tensor and runs the
graph on one thread. Rounds of Python, Node and Chromium alternate. A time is the median over all rounds.
Needs Node, Chromium on the PATH, playwright and onnxruntime.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from playwright.sync_api import sync_playwright

from sinkprop import SinkPropRanker, datasets
from sinkprop.export import to_onnx
from sinkprop.gbdt import BoostedRanker
from sinkprop.torch import NeuralRanker

HERE = Path(__file__).resolve().parent
PACKAGES = HERE.parent / "tests/browser/node_modules"
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZES = (50, 1000)
ENGINES = ("Python", "Node", "Chromium")
IN_CHROMIUM = """async (rounds) => {
    const ort = await import("./ort.wasm.min.mjs");
    const { times } = await import("./javascript.mjs");
    ort.env.wasm.numThreads = 1;
    const read = async (name) => (await fetch(name)).arrayBuffer();
    return times(ort, await (await fetch("cases.json")).json(), read, rounds);
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Write nothing to stderr."""


def write_models(folder: Path) -> dict[str, Path]:
    """Fit and export the models, and copy the runtime of the browser."""
    fold = datasets.load_pydocs(1)
    linear = SinkPropRanker(penalty=0.01, selection="validation", verbose=False)
    rankers = {
        "linear": (linear, False),
        "linear, probabilities": (linear, True),
        "300 trees of 31 leaves": (BoostedRanker(n_estimators=300, num_leaves=31, verbose=False), False),
        "network": (NeuralRanker(max_epochs=3, verbose=False), False),
    }
    files = {}
    for i, (name, (ranker, probabilities)) in enumerate(rankers.items()):
        if not probabilities:
            chosen = {} if name.endswith("leaves") else {"eval_set": fold.vali}
            ranker.fit(fold.train, **chosen)
        files[name] = folder / f"{i}.onnx"
        to_onnx(ranker, files[name], probabilities=probabilities)
    cases = []
    for n in SIZES:
        np.ascontiguousarray(fold.test.X[:n]).tofile(folder / f"{n}.bin")
        shape = [n, fold.test.X.shape[1]]
        cases += [{"model": path.name, "rows": f"{n}.bin", "shape": shape} for path in files.values()]
    (folder / "cases.json").write_text(json.dumps(cases))
    for name in RUNTIME:
        shutil.copy(PACKAGES / "onnxruntime-web/dist" / name, folder)
    shutil.copy(HERE / "javascript.mjs", folder)
    (folder / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>times</title>')
    return files


def in_python(folder: Path, rounds: int) -> list[float]:
    """The same measurement by onnxruntime in Python."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    calls, found = [], []
    for case in json.loads((folder / "cases.json").read_text()):
        session = onnxruntime.InferenceSession(
            str(folder / case["model"]), options, providers=["CPUExecutionProvider"]
        )
        rows = np.fromfile(folder / case["rows"]).reshape(case["shape"])
        calls.append(partial(session.run, None, {"features": rows}))
        calls[-1]()
        found.append([])
    for _ in range(rounds):
        for call, values in zip(calls, found, strict=True):
            n, start = 0, time.perf_counter()
            while not n or time.perf_counter() - start < 0.02:
                call()
                n += 1
            values.append(1e3 * (time.perf_counter() - start) / n)
    return [statistics.median(values) for values in found]


def in_node(folder: Path, rounds: int) -> list[float]:
    command = ["node", HERE / "javascript.mjs", folder, PACKAGES, str(rounds)]
    return list(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all engines  [default: 5]")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_models(folder)
        found: dict[str, list[list[float]]] = {engine: [] for engine in ENGINES}
        handler = partial(Quiet, directory=name)
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as playwright:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            path = next(path for browser in BROWSERS if (path := shutil.which(browser)))
            page = playwright.chromium.launch(executable_path=path).new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
            for _ in range(rounds):
                found["Python"].append(in_python(folder, 5))
                found["Node"].append(in_node(folder, 5))
                found["Chromium"].append(page.evaluate(IN_CHROMIUM, 5))
            server.shutdown()
        print(f"{'milliseconds per query':<34}" + "".join(f"{engine:>10}" for engine in ENGINES))
        cases = [f"{name}, {n:,} documents" for n in SIZES for name in files]
        for i, case in enumerate(cases):
            medians = [statistics.median(times[i] for times in found[engine]) for engine in ENGINES]
            print(f"{case:<40}" + "".join(f"{value:10.3f}" for value in medians))
        for label, path in [*files.items(), *((name, folder / name) for name in RUNTIME)]:
            content = path.read_bytes()
            sizes = f"{len(content) / 1000:10,.1f} kB, {len(gzip.compress(content)) / 1000:8,.1f} with gzip"
            print(f"{sizes}  {label}")


if __name__ == "__main__":
    main()
