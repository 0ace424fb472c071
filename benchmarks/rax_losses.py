"""`sinkprop.jax` beside the losses of Rax: time of a step, and NDCG@10 of a network on held-out queries.

    python benchmarks/rax_losses.py times      value and gradient in a compiled program; under a minute
    python benchmarks/rax_losses.py quality    a network with each loss, five folds, three seeds; ten minutes

Rax 0.4.0 needs an environment of its own, because its losses that approximate a metric need an older JAX:
pip install rax "jax<0.7" "jaxlib<0.7" optax sinkprop. One thread, float32.

Quality is that of the data set that comes with sinkprop: a network with one hidden layer of 32 units, full
batches, Adam at 1e-2, and for each loss the number of steps among 25, 50, 100, 200 and 400 with the highest
NDCG@10 of the validation queries. Differences are paired by fold and seed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SINKPROP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rax

from sinkprop import evaluate
from sinkprop.datasets import load_pydocs
from sinkprop.jax import sinkprop_loss

OURS = "sinkprop_loss"
LOSSES: dict[str, Callable[..., Any]] = {
    OURS: partial(sinkprop_loss, gain="ndcg@10"),
    "sinkprop_loss, Laplace": partial(sinkprop_loss, gain="ndcg@10", relaxation="laplace"),
    "rax.softmax_loss": rax.softmax_loss,
    "rax.approx_t12n(ndcg_metric)": rax.approx_t12n(rax.ndcg_metric),
    "rax.approx_t12n(ndcg_metric), topn=10": partial(rax.approx_t12n(rax.ndcg_metric), topn=10),
    "rax.pairwise_logistic_loss": rax.pairwise_logistic_loss,
}
BATCHES = ((16, 200), (4, 1000), (1, 4000))
STEPS = (25, 50, 100, 200, 400)


def times() -> None:
    print(f"Rax {rax.__version__}, JAX {jax.__version__}; milliseconds for value and gradient")
    print(f"{'loss':40}" + "".join(f"{f'{B} x {n:,}':>12}" for B, n in BATCHES))
    rng = np.random.default_rng(0)
    data = [
        jax.device_put(
            (rng.normal(size=shape).astype(np.float32), rng.integers(0, 5, shape).astype(np.float32))
        )
        for shape in BATCHES
    ]
    for name, loss in LOSSES.items():
        row = []
        for x, y in data:
            program = jax.jit(jax.value_and_grad(loss))
            found = []
            for _ in range(12):
                begin = time.perf_counter()
                jax.block_until_ready(program(x, y))
                found.append(time.perf_counter() - begin)
            row.append(1e3 * statistics.median(found[2:]))
        print(f"{name:40}" + "".join(f"{t:12.2f}" for t in row), flush=True)


def padded(part: Any, center: Any, scale: Any) -> tuple[Any, Any, Any]:
    """Features (Q, n, D), labels and mask (Q, n) of queries."""
    sizes = part.groups.sizes
    where = np.arange(sizes.max()) < sizes[:, None]
    X = np.zeros((*where.shape, part.X.shape[1]), np.float32)
    y = np.zeros(where.shape, np.float32)
    X[where], y[where] = (part.X - center) / scale, part.y
    return X, y, where


def forward(parameters: Any, X: Any) -> Any:
    W, b, v = parameters
    return jax.nn.relu(X @ W + b) @ v


def trained(fold: Any, loss: Callable[..., Any], seed: int) -> float:
    """Test NDCG@10 after the number of steps that is best on the validation queries."""
    center, scale = fold.train.X.mean(0), fold.train.X.std(0).clip(1e-6)
    X, y, where = padded(fold.train, center, scale)
    D, rng = X.shape[-1], np.random.default_rng(seed)
    parameters = (
        jnp.asarray(rng.normal(size=(D, 32)) / np.sqrt(D), jnp.float32),
        jnp.zeros(32),
        jnp.asarray(rng.normal(size=32) / np.sqrt(32), jnp.float32),
    )
    optimizer = optax.adam(1e-2)
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters: Any, state: Any) -> tuple[Any, Any]:
        gradient = jax.grad(lambda p: loss(forward(p, X), y, where=where))(parameters)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state

    def ndcg(part: Any, parameters: Any) -> float:
        scores = forward(parameters, jnp.asarray((part.X - center) / scale, jnp.float32))
        found = evaluate(part.y, np.asarray(scores), part.qid, metrics="ndcg@10", convention="standard")
        return float(found["ndcg@10"])

    best = (-1.0, 0.0)
    for t in range(1, max(STEPS) + 1):
        parameters, state = step(parameters, state)
        if t in STEPS:
            best = max(best, (ndcg(fold.vali, parameters), ndcg(fold.test, parameters)))
    return best[1]


def quality() -> None:
    runs = [(fold, seed) for fold in range(1, 6) for seed in range(3)]
    found: dict[str, list[float]] = {}
    print(f"Rax {rax.__version__}, JAX {jax.__version__}; NDCG@10 on test queries, mean of {len(runs)} runs")
    for name, loss in LOSSES.items():
        found[name] = [trained(load_pydocs(fold=fold), loss, seed) for fold, seed in runs]
        differences = np.array(found[OURS]) - found[name]
        error = 1.96 * differences.std(ddof=1) / np.sqrt(len(runs))
        more = "" if name == OURS else f"   {OURS} is {differences.mean():+.4f} +- {error:.4f}"
        print(f"{name:40}{np.mean(found[name]):8.4f}{more}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("times", "quality"))
    {"times": times, "quality": quality}[parser.parse_args().what]()
