"""The loss in torch's operations, as it runs on devices other than the CPU: sweeps next to matrices.

    python benchmarks/device.py                  the figure, then the crossover; about five minutes
    python benchmarks/device.py figure           64 queries of 4,000 documents: time, memory, agreement
    python benchmarks/device.py crossover        time of both ways, by the number of documents per query
    python benchmarks/device.py --device cuda    on another device

A step is the loss and its `backward` to the scores. Both ways run on one thread of the CPU, unless --device
names another device, and take turns; a time is the median over the rounds. Memory is the peak growth of a
new process (Linux, CPU). Matrices take 8 queries of the figure at a time, because those of all 64 would not
fit into 24 GB; the table has the memory of 8. Agreement is the largest difference of a gradient from that of
the native code with accuracy="exact", relative to its largest entry.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor

from sinkprop import SmoothedIndicator
from sinkprop.torch import SinkPropLoss
from sinkprop.torch.losses import expectations

SWEEPS, MATRICES = "sweeps", "matrices"
FROM = {SWEEPS: 1, MATRICES: 10**9}  # number of documents from which sweeps are used
KERNELS = ("gaussian", "laplace")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
SIZES = (25, 50, 100, 150, 200, 300, 500, 1000)
QUERIES, LONG = 64, 4000
AT_ONCE = {SWEEPS: 64, MATRICES: 8}


def batch(n_queries: int, n: int, dtype: str, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(n_queries, n, generator=generator, dtype=torch.float64).to(DTYPES[dtype])
    return scores.to(device), torch.randint(0, 5, (n_queries, n), generator=generator).to(device)


def step(way: str, kernel: str, scores: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    loss = SinkPropLoss("ndcg", SmoothedIndicator(1.0, kernel, accuracy="exact"), backend="torch")

    def run() -> Tensor:
        expectations._FROM = FROM[way]
        x = scores.detach().clone().requires_grad_()
        at_once = AT_ONCE[way] if scores.shape[1] == LONG else len(x)
        for part, of_part in zip(x.split(at_once), labels.split(at_once), strict=True):
            (loss(part, of_part) * len(part) / len(x)).backward()
        if x.device.type == "cuda":
            torch.cuda.synchronize()
        return x.grad

    return run


def seconds(run: Callable[[], Tensor]) -> float:
    before = time.perf_counter()
    run()
    return time.perf_counter() - before


def grown(way: str, kernel: str, dtype: str) -> float:
    """Megabytes by which the peak memory of a step exceeds the memory before it, in this process."""
    step(way, kernel, *batch(2, 50, dtype, "cpu"))()
    run = step(way, kernel, *batch(AT_ONCE[way], LONG, dtype, "cpu"))
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current memory
    before = kilobytes()
    run()
    return (kilobytes() - before) * 1.024e-3


def kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def megabytes(way: str, kernel: str, dtype: str) -> str:
    command = [sys.executable, __file__, "--grow", way, kernel, dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{float(done.stdout):,.0f}" if done.returncode == 0 else "failed"


def figure(device: str, rounds: int) -> None:
    print(f"{QUERIES} queries of {LONG:,} documents, {device}\n")
    print(
        "| kernel | dtype | sweeps s | matrices s | ratio | sweeps MB | matrices MB, 8 queries | agreement |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kernel in KERNELS:
        for dtype in DTYPES:
            scores, labels = batch(QUERIES, LONG, dtype, device)
            ways = {way: step(way, kernel, scores, labels) for way in FROM}
            taken = {way: [seconds(run)] for way, run in ways.items()}
            for _ in range(rounds):
                for way, run in ways.items():
                    taken[way].append(seconds(run))
            sweeps, matrices = (statistics.median(taken[way][1:]) for way in (SWEEPS, MATRICES))
            ratio = statistics.median(b / a for a, b in zip(taken[SWEEPS], taken[MATRICES], strict=True))
            memory = [megabytes(way, kernel, dtype) if device == "cpu" else "-" for way in FROM]
            x = scores.detach().double().cpu().clone().requires_grad_()
            exact = SmoothedIndicator(1.0, kernel, accuracy="exact")
            SinkPropLoss("ndcg", exact, backend="native")(x, labels.cpu()).backward()
            error = (ways[SWEEPS]().double().cpu() - x.grad).abs().max() / x.grad.abs().max()
            cells = f"{sweeps:.2f} | {matrices:.2f} | {ratio:.1f} | {memory[0]} | {memory[1]} | {error:.1e}"
            print(f"| {kernel} | {dtype} | {cells} |", flush=True)


def crossover(device: str, rounds: int, documents: int = 20_000) -> None:
    print(f"\nMilliseconds of a step, {documents:,} documents in queries of n, {device}\n")
    print("| kernel | dtype | " + " | ".join(f"n = {n:,}" for n in SIZES) + " |")
    print("|---|---|" + "---|" * len(SIZES))
    for kernel in KERNELS:
        for dtype in DTYPES:
            cells = []
            for n in SIZES:
                scores, labels = batch(documents // n, n, dtype, device)
                ways = {way: step(way, kernel, scores, labels) for way in FROM}
                taken = {way: [seconds(run) for _ in range(2)][1:] for way, run in ways.items()}
                for _ in range(rounds):
                    for way, run in ways.items():
                        taken[way].append(seconds(run))
                cells.append(" / ".join(f"{1e3 * statistics.median(taken[way]):.0f}" for way in FROM))
            print(f"| {kernel} | {dtype}, sweeps / matrices | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["figure", "crossover", "all"], default="all")
    parser.add_argument("--device", default="cpu", help="device of the tensors  [default: cpu]")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds  [default: 3]")
    parser.add_argument("--grow", nargs=3, metavar=("WAY", "KERNEL", "DTYPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.grow:
        print(grown(*options.grow))
        return
    if options.what != "crossover":
        figure(options.device, options.rounds)
    if options.what != "figure":
        crossover(options.device, options.rounds)


if __name__ == "__main__":
    main()
