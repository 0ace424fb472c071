"""SoftRank, a baseline: its cost, and the effect of its settings.

    python benchmarks/softrank.py softrank-cost               value and gradient, against torch; a minute
    python benchmarks/softrank.py softrank-settings OHSUMED   five-fold test means with other settings

There is one function per section; its name is the command.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def softrank_cost(options: argparse.Namespace) -> None:
    """Print milliseconds for the value and gradient of one query on one thread, with all documents relevant.

    `exponent` is the growth of the time with n, relative to the previous size. Times are CPU times, the best
    of several. torch computes the same recursion on whole matrices.
    """
    from sinkprop import _native
    from sinkprop.objective.rank_binomial import soft_gain

    print(f"{_native.instruction_set()} kernels, normal scores, sigma in units of their spread")
    heads = "".join(f"{name:>14}" for name in ("sigma 0.1", "sigma 0.3", "sigma 1", "torch", "ratio"))
    print(f"{'gain':<9}{'n':>6}{heads}   exponent at sigma 0.3")
    for gain in ("ndcg", "ndcg@10"):
        before = math.nan
        for i, n in enumerate(options.sizes):
            rng = np.random.default_rng(n)
            scores, labels = rng.normal(size=n), rng.integers(1, 5, n).astype(np.float64)
            times = [
                best_time(partial(soft_gain, scores, labels, gain=gain, sigma=sigma, n_threads=1))
                for sigma in (0.1, 0.3, 1.0)
            ]
            peer = math.nan
            if n <= 100:
                peer = best_time(through_torch(scores, labels, gain, 0.3), most=5)
            exponent = math.log(times[1] / before) / math.log(n / options.sizes[i - 1]) if i else math.nan
            before = times[1]
            cells = "".join(f"{1e3 * t:>14.3f}" for t in (*times, peer))
            print(f"{gain:<9}{n:>6}{cells}{peer / times[1]:>14.0f}   {exponent:.2f}", flush=True)


def through_torch(scores: Floats, labels: Floats, gain: str, sigma: float) -> Callable[[], Any]:
    """Value and gradient by automatic differentiation through the recursion on (n, n) matrices."""
    import torch

    from sinkprop.reference import gain_matrix

    torch.set_num_threads(1)
    n = len(scores)
    worth, others = torch.tensor(gain_matrix(labels, gain)), ~torch.eye(n, dtype=torch.bool)

    def evaluate() -> tuple[float, Any]:
        f = torch.tensor(scores, requires_grad=True)
        pi = torch.special.ndtr((f[:, None] - f[None, :]) / (math.sqrt(2) * sigma)) * others
        P = torch.zeros((n, n), dtype=torch.float64)
        P[:, 0] = 1
        for i in range(n):
            up = torch.nn.functional.pad(P[:, :-1], (1, 0))
            P = P + pi[i][:, None] * (up - P)
        value = (worth * P).sum()
        value.backward()
        return value.item(), f.grad

    return evaluate


def softrank_settings(options: argparse.Namespace) -> None:
    """Print five-fold test means of SoftRank with other settings than the default.

    The test queries are used for every setting: this explains a difference, and is not for choosing a
    setting.
    """
    from concurrent.futures import ProcessPoolExecutor

    names = [name for name in SETTINGS if options.only in name]
    jobs = [(options.folder, fold, name) for name in names for fold in range(1, 6)]
    print(f"{'setting':<58}" + "".join(f"{name:>10}" for name in METRICS))
    with ProcessPoolExecutor(options.processes) as pool:
        found = pool.map(one_fold, jobs)
        for name in names:
            means = np.mean([next(found) for _ in range(5)], axis=0)
            print(f"{name:<58}" + "".join(f"{mean:>10.4f}" for mean in means), flush=True)


METRICS = ("ndcg@3", "ndcg@5", "ndcg@10")
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "chosen by ndcg@3": {"criterion": "ndcg@3"},
    "chosen by ndcg@5": {"criterion": "ndcg@5"},
    "chosen by ndcg@10": {"criterion": "ndcg@10"},
    "chosen by map": {"criterion": "map"},
    "trained on ndcg@10": {"gain": "ndcg@10"},
    "features as they are": {"normalization": "none"},
    "no penalty, one sigma a run, early stopping": {"fixed": "regression"},
    "the same, from random weights": {"fixed": "random"},
    **{
        f"the same, from random weights, seed {seed}, by ndcg@10": {
            "fixed": "random",
            "criterion": "ndcg@10",
            "random_state": seed,
        }
        for seed in (0, 1, 2)
    },
}


def one_fold(job: tuple[str, int, str]) -> list[float]:
    from sinkprop import Selection, evaluate, load_letor
    from sinkprop.baselines import SoftRankRanker

    folder, fold, name = job
    train, vali, test = (load_letor(f"{folder}/Fold{fold}/{part}.txt") for part in ("train", "vali", "test"))
    given = dict(SETTINGS[name])
    selection = Selection("validation", criterion=given.pop("criterion", None))
    start = given.pop("fixed", None)
    kind = SoftRankRanker if start is None else fixed_sigma(start)
    ranker = kind(selection=selection, n_threads=1, verbose=False, convention="letor", **given)
    ranker.fit(train.X, train.y, qid=train.qid, eval_set=[(vali.X, vali.y)], eval_qid=[vali.qid])
    found = evaluate(test.y, ranker.predict(test.X), test.qid, metrics=METRICS, convention="letor")
    return list(found.values())


def fixed_sigma(start: str, rounds: int = 8) -> type:
    """SoftRank closer to its paper: each sigma alone, no penalty, early stopping every five iterations."""
    from sinkprop.baselines.softrank import Model, SoftRankRanker
    from sinkprop.common.lbfgs import descend
    from sinkprop.estimator.tuning import Candidate
    from sinkprop.linear.problem import LinearProblem, spread
    from sinkprop.objective.rank_binomial import soft_gain

    class FixedSigma(SoftRankRanker):  # type: ignore[misc]
        def _checked(self) -> int:
            return rounds * len(self._grid()[0])

        def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
            data, w0 = problem.data, problem.start
            if start == "random":
                w0 = np.random.default_rng(seed).normal(size=len(w0))
                w0 = w0 / spread(problem.scores(w0), data)
            for i, sigma in enumerate(self._grid()[0]):

                def loss(w: Floats, sigma: float = sigma) -> tuple[float, Floats]:
                    r = soft_gain(problem.scores(w), data.y, data.codes, sigma=sigma, n_threads=1)
                    return -r.value, -problem.gradient(r.gradient)

                w = w0
                for k in range(rounds):
                    w = descend(loss, w, max_iter=5, tol=1e-9)
                    setting = {"sigma": sigma, "iterations": 5 * (k + 1)}
                    yield Candidate(setting, Model(w, sigma), math.nan, (i, k))

    return FixedSigma


def best_time(call: Callable[[], Any], seconds: float = 0.3, most: int = 1000) -> float:
    """CPU seconds of the fastest of several calls, after one that does not count."""
    call()
    best, until = math.inf, time.perf_counter() + seconds
    for _ in range(most):
        before = time.thread_time()
        call()
        best = min(best, time.thread_time() - before)
        if time.perf_counter() > until:
            break
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sections = parser.add_subparsers(required=True)
    cost = sections.add_parser("softrank-cost")
    cost.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[30, 100, 300, 1000],
        help="documents per query  [default: 30 100 300 1000]",
    )
    cost.set_defaults(section=softrank_cost)
    settings = sections.add_parser("softrank-settings")
    settings.add_argument("folder", help="folder with Fold1 to Fold5")
    settings.add_argument("--only", default="", help="only settings whose names contain this text")
    settings.add_argument("--processes", type=int, default=2, help="number of processes  [default: 2]")
    settings.set_defaults(section=softrank_settings)
    options = parser.parse_args()
    options.section(options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
