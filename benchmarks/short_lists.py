"""Short lists on one thread, in batches and alone: the value and gradient next to `numpy.argsort`.

    python benchmarks/short_lists.py               less than a minute
    python benchmarks/short_lists.py --sizes 5,10

Each batch has 200,000 documents in lists of one size, with labels from 0 to 4 and sigma = 0.3. The first
table has nanoseconds per document, the least of several repetitions that alternate, and the ratio to argsort
of the same rows. The others have microseconds per call: `expected_gain` of one list with and without query
ids, and, if PyTorch is installed, the forward and backward pass of `SinkPropLoss` in single precision.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

import sinkprop
from sinkprop import _native

DOCUMENTS = 200_000
KERNELS = ("laplace", "gaussian")


Calls = dict[str, Callable[[], object]]


def batch_calls(n: int) -> Calls:
    """Functions to time, on a batch of lists of n documents."""
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(DOCUMENTS // n, n))
    labels = rng.integers(0, 5, rows.size).astype(np.float64)
    qid = np.repeat(np.arange(len(rows)), n)

    def gain(kernel: str) -> Callable[[], object]:
        relaxation = sinkprop.SmoothedIndicator(0.3, kernel=kernel)
        return lambda: sinkprop.expected_gain(rows.ravel(), labels, qid, relaxation=relaxation, n_threads=1)

    return {"argsort": lambda: np.argsort(rows, axis=1), **{kernel: gain(kernel) for kernel in KERNELS}}


def single_calls(n: int) -> Calls:
    """Functions to time, on one list of n documents."""
    rng = np.random.default_rng(n)
    scores, labels, qid = rng.normal(size=n), rng.integers(0, 5, n).astype(np.float64), np.zeros(n, np.int64)

    def gain(kernel: str, qid: np.ndarray | None) -> Callable[[], object]:
        relaxation = sinkprop.SmoothedIndicator(0.3, kernel=kernel)
        return lambda: sinkprop.expected_gain(scores, labels, qid, relaxation=relaxation)

    calls: Calls = {"argsort": lambda: np.argsort(scores)}
    return calls | {
        f"{kernel} {ids is not None}": gain(kernel, ids) for kernel in KERNELS for ids in (None, qid)
    }


def loss_calls(shape: tuple[int, int]) -> Calls:
    """Functions to time, on a batch of padded lists: the loss by relaxation, and a mean of squares."""
    import torch

    from sinkprop.torch import SinkPropLoss

    torch.set_num_threads(1)
    torch.manual_seed(0)
    scores, labels = torch.randn(shape).requires_grad_(), torch.randint(0, 5, shape)

    def step(loss: Callable[..., torch.Tensor]) -> Callable[[], object]:
        def call() -> None:
            scores.grad = None
            loss(scores, labels).backward()

        return call

    losses = {name: SinkPropLoss(relaxation=name) for name in (*KERNELS, None)}
    return {"squares": step(lambda x, _: x.square().mean())} | {
        str(k): step(loss) for k, loss in losses.items()
    }


def measure(calls: Calls, repeats: int, number: int = 1) -> dict[str, float]:
    """Seconds per call of functions that alternate: the least mean of `number` calls over the repetitions."""
    best = dict.fromkeys(calls, np.inf)
    for _ in range(repeats):
        for name, call in calls.items():
            best[name] = min(best[name], timeit.timeit(call, number=number) / number)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--sizes", default="5,10,20,30,60,120", help="documents per list")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    print(f"{_native.instruction_set()} kernels, one thread\n")
    print("| documents per list | argsort, ns per document | Laplace | ratio | Gaussian | ratio |")
    print("|--:|--:|--:|--:|--:|--:|")
    for n in map(int, given.sizes.split(",")):
        found, per_document = measure(batch_calls(n), given.repeats), 1e9 / (DOCUMENTS // n * n)
        cells = [f"{found[k] * per_document:.0f} | {found[k] / found['argsort']:.1f}" for k in KERNELS]
        print(f"| {n} | {found['argsort'] * per_document:.1f} | {' | '.join(cells)} |")

    print("\n| documents of one list | argsort, us | Laplace | with qid | Gaussian | with qid |")
    print("|--:|--:|--:|--:|--:|--:|")
    for n in (10, 50, 120, 1000):
        cells = [f"{x * 1e6:.1f}" for x in measure(single_calls(n), given.repeats, 2000).values()]
        print(f"| {n} | {' | '.join(cells)} |")

    if find_spec("torch") is None:
        return
    print("\n| padded batch | mean of squares, us | Laplace | Gaussian | default |\n|--:|--:|--:|--:|--:|")
    for shape in ((1, 10), (16, 50)):
        cells = [f"{x * 1e6:.0f}" for x in measure(loss_calls(shape), given.repeats, 300).values()]
        print(f"| {shape[0]} x {shape[1]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
