"""The cost of the loss in a training step: value and gradient of a batch, compared with other losses.

    python benchmarks/torch_losses.py                  times, then memory; about four minutes
    python benchmarks/torch_losses.py --no-memory      times only
    python benchmarks/torch_losses.py --ragged         queries of different lengths, from half to full length
    python benchmarks/torch_losses.py --json FILE      also write everything as JSON

One thread, float32, batches padded to (B, n), labels from 0 to 4. A step is the loss and its `backward` to
the scores, including the overhead of Python. The methods take turns, round by round. A time is the median
over the rounds, a ratio the median of the rounds' ratios. Memory is the peak growth of a new process, after a
small batch that triggers lazy loading. If memory is quadratic, it is first estimated from a smaller list;
nothing above 8 GB is run. Packages that are not installed are skipped; README.md tells how to install them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor

from sinkprop.cli.benchmark.machine import busy_elsewhere, this_machine
from sinkprop.cli.benchmark.methods import _torchvision_stub, one_thread
from sinkprop.cli.benchmark.records import Figure
from sinkprop.torch import SinkPropLoss
from sinkprop.torch.losses.baselines import approx_ndcg_loss, lambda_loss, listnet_loss

Loss = Callable[[Tensor, Tensor], Tensor]

BATCHES = ((16, 200), (4, 1000))
OURS, LAPLACE, DENSE, AUTOGRAD = (
    "SinkPropLoss Gaussian",
    "SinkPropLoss Laplace",
    "SinkPropLoss by torch",
    "torch autograd",
)
NEURAL, APPROX, LAMBDA = "allRank neuralNDCG", "allRank approxNDCGLoss", "allRank lambdaLoss"
ASKED = {NEURAL: 200.0, APPROX: 1.0, LAMBDA: 1.0}  # minimum ratio to sinkprop's time
LONG, SHORT = 20_000, 2_000
MOST_MEMORY = 8e9
ASKED_MEGABYTES = 100.0


@dataclass(frozen=True)
class Method:
    """A loss, and whether its memory is quadratic in the number of documents per query."""

    make: Callable[[], Loss]
    quadratic: bool = True


def autograd() -> Loss:
    """SinkProp's loss by automatic differentiation through five Sinkhorn iterations on (B, n, n) matrices.

    This is the straightforward implementation, without padding.
    """

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        n = scores.shape[1]
        D = 1 / torch.log2(torch.arange(1, n + 1).clamp(min=2))
        G = torch.exp2(labels) - 1
        best = G.sort(1, descending=True).values @ D
        ordered = scores.sort(1, descending=True).values
        A = torch.exp(-((scores[:, :, None] - ordered[:, None, :]) ** 2) / 2) + 1e-6
        for _ in range(5):
            A = A / A.sum(1, keepdim=True)
            A = A / A.sum(2, keepdim=True)
        return -((G * (A @ D)).sum(1) / best).mean()

    return loss


def allrank(name: str) -> Callable[[], Loss]:
    def make() -> Loss:
        with _torchvision_stub(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import uses a deprecated part of setuptools
            losses = importlib.import_module("allrank.models.losses")
        if name == "lambdaLoss":
            return lambda s, y: losses.lambdaLoss(s, y, weighing_scheme="lambdaRank_scheme")
        found: Loss = getattr(losses, name)
        return found

    return make


METHODS = {
    OURS: Method(lambda: SinkPropLoss("ndcg", "gaussian"), quadratic=False),
    LAPLACE: Method(lambda: SinkPropLoss("ndcg", "laplace"), quadratic=False),
    DENSE: Method(lambda: SinkPropLoss("ndcg", "gaussian", backend="torch")),
    AUTOGRAD: Method(autograd),
    NEURAL: Method(allrank("neuralNDCG")),
    APPROX: Method(allrank("approxNDCGLoss")),
    LAMBDA: Method(allrank("lambdaLoss")),
    "listnet_loss": Method(lambda: listnet_loss, quadratic=False),
    "approx_ndcg_loss": Method(lambda: approx_ndcg_loss),
    "lambda_loss": Method(lambda: lambda_loss),
}


def a_batch(n_queries: int, n: int, *, ragged: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(n_queries, n, generator=generator)
    labels = torch.randint(0, 5, (n_queries, n), generator=generator).float()
    if ragged:
        sizes = torch.linspace(n / 2, n, n_queries).round()
        labels[torch.arange(n) >= sizes[:, None]] = -1
    return scores, labels


def a_step(loss: Loss, scores: Tensor, labels: Tensor) -> Callable[[], None]:
    x = scores.clone().requires_grad_()

    def step() -> None:
        x.grad = None
        loss(x, labels).backward()

    return step


@dataclass(frozen=True)
class Time:
    """Milliseconds of a step, and its ratio to sinkprop's; both are medians over the rounds."""

    batch: str
    method: str
    milliseconds: float
    times_ours: float


def take_times(names: list[str], rounds: int, ragged: bool) -> list[Time]:
    found = []
    for n_queries, n in BATCHES:
        scores, labels = a_batch(n_queries, n, ragged=ragged)
        steps = {name: a_step(METHODS[name].make(), scores, labels) for name in names}
        for step in steps.values():
            step()  # first steps are slow: caches, memory pages, lazy imports
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(rounds):
            for name, step in steps.items():
                seconds[name].append(median_time(step))
        for name, taken in seconds.items():
            ratios = [a / b for a, b in zip(taken, seconds[OURS], strict=True)]
            found.append(
                Time(f"{n_queries} x {n:,}", name, 1e3 * statistics.median(taken), statistics.median(ratios))
            )
            print(row(*time_cells(found[-1])), flush=True)
    return found


def median_time(step: Callable[[], None], least: float = 0.05, most: int = 50) -> float:
    """Median seconds of a step, over as many steps as fit in `least` seconds, at least one."""
    taken: list[float] = []
    while sum(taken) < least and len(taken) < most:
        before = time.perf_counter()
        step()
        taken.append(time.perf_counter() - before)
    return statistics.median(taken)


@dataclass(frozen=True)
class Memory:
    """Megabytes by which a process grows in a step at n documents, or an estimate from a smaller n."""

    method: str
    n: int
    megabytes: float | None
    foreseen: bool = False
    note: str = ""


def take_memory(names: list[str]) -> list[Memory]:
    found = []
    for name in names:
        if METHODS[name].quadratic:
            short = growth_of_a_fresh_process(name, SHORT)
            ahead = None if short is None else short * (LONG / SHORT) ** 2
            if ahead is None or ahead * 1e6 > MOST_MEMORY:
                found.append(Memory(name, LONG, ahead, True, f"from n = {SHORT:,}; not tried"))
                print(row(*memory_cells(found[-1])), flush=True)
                continue
        found.append(Memory(name, LONG, growth_of_a_fresh_process(name, LONG)))
        print(row(*memory_cells(found[-1])), flush=True)
    return found


def growth_of_a_fresh_process(name: str, n: int) -> float | None:
    done = subprocess.run(
        [sys.executable, __file__, "--grow", name, str(n)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{name} at n = {n}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return float(done.stdout)


def grow(name: str, n: int) -> float:
    """Megabytes by which the peak memory of a step with one query of n documents exceeds that before it."""
    torch.set_num_threads(1)
    loss = METHODS[name].make()
    a_step(loss, *a_batch(2, 50))()
    step = a_step(loss, *a_batch(1, n))
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():  # not Linux: the peak since the start of the process
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        step()
        unit = 1e-6 if sys.platform == "darwin" else 1e-3
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit
    reset.write_text("5")  # resets the peak to the current memory
    before = kilobytes("VmHWM")
    step()
    return (kilobytes("VmHWM") - before) * 1.024e-3


def kilobytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def figures(times: list[Time], memory: list[Memory]) -> list[Figure]:
    found = [
        Figure(f"{t.method}, {t.batch}", t.times_ours, ASKED[t.method], "at least", "times ours")
        for t in times
        if t.method in ASKED
    ]
    return found + [
        Figure(f"{m.method}, n = {m.n:,}", m.megabytes, ASKED_MEGABYTES, "at most", "MB")
        for m in memory
        if m.method in (OURS, LAPLACE)
    ]


def digits(x: float) -> str:
    return f"{x:.2f}" if x < 10 else f"{x:,.0f}"


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def time_cells(t: Time) -> tuple[str, ...]:
    return t.batch, t.method, digits(t.milliseconds), digits(t.times_ours)


def memory_cells(m: Memory) -> tuple[str, ...]:
    amount = "-" if m.megabytes is None else digits(m.megabytes)
    return m.method, f"{m.n:,}", amount, m.note


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds  [default: 7]")
    parser.add_argument("--ragged", action="store_true", help="use queries of different lengths")
    parser.add_argument("--no-memory", action="store_true", help="measure times only")
    parser.add_argument("--json", type=Path, help="file for the results as JSON")
    parser.add_argument("--grow", nargs=2, metavar=("METHOD", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grow:
        print(grow(options.grow[0], int(options.grow[1])))
        return
    names = [
        name
        for name in METHODS
        if (importlib.util.find_spec("allrank") or not name.startswith("allRank"))
        and not (options.ragged and name == AUTOGRAD)
    ]
    machine, busy = this_machine(peers=True), busy_elsewhere()
    print(
        f"{machine.cpu}, {machine.instruction_set} kernels, torch {torch.__version__}, one thread, float32\n"
    )
    print(row("batch", "loss", "ms a step", "times ours"))
    print("|---|---|---|---|")
    with one_thread():
        times = take_times(names, options.rounds, options.ragged)
    memory: list[Memory] = []
    if not options.no_memory:
        print()
        print(row("loss", "n", "MB", ""))
        print("|---|---|---|---|")
        memory = take_memory(names)
    print()
    print(row("figure", "measured", "asked", "reached"))
    print("|---|---|---|---|")
    reached = figures(times, memory)
    for f in reached:
        measured = "-" if f.measured is None else f"{digits(f.measured)} {f.unit}"
        print(
            row(
                f.name,
                measured,
                f"{f.direction} {f.asked:g}",
                {True: "yes", False: "NO", None: "-"}[f.reached],
            )
        )
    others = busy()
    print(f"\nOther processes used {others:.1f} processors meanwhile." if others is not None else "")
    if options.json:
        record: dict[str, Any] = {
            "machine": asdict(machine),
            "times": [asdict(t) for t in times],
            "memory": [asdict(m) for m in memory],
            "figures": [asdict(f) | {"reached": f.reached} for f in reached],
            "busy": others,
            "ragged": options.ragged,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
