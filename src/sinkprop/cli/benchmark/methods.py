"""The timed methods: the objective and its gradient for one query, by sinkprop and other packages."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import sinkprop
from sinkprop import reference
from sinkprop.cli.benchmark.records import (
    APPROX,
    ARGSORT,
    AUTOGRAD,
    EPSILON,
    EXACT,
    GAIN,
    LAMBDA,
    LAPLACE,
    N_ITER,
    NEURAL,
    OURS,
    SIGMA,
    SOFT_RANK,
    Absence,
    Evaluation,
    Method,
    Query,
    one_line,
)
from sinkprop.common.arguments import half_steps
from sinkprop.common.types import Floats
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator


def available_methods(peers: bool) -> tuple[tuple[Method, ...], tuple[Absence, ...], tuple[Absence, ...]]:
    """Return three tuples: methods to measure, methods not installed, and methods whose import failed.

    If `peers` is False, only sinkprop and numpy.argsort are considered.
    """
    methods = [
        Method(OURS, our_evaluation(SmoothedIndicator(SIGMA))),
        Method(EXACT, our_evaluation(SmoothedIndicator(SIGMA, accuracy="exact"))),
        Method(LAPLACE, our_evaluation(SmoothedIndicator(SIGMA, "laplace"))),
        Method(ARGSORT, lambda query: lambda: np.argsort(query.scores)),
    ]
    absent: list[Absence] = []
    failed: list[Absence] = []
    for name, package, load in _PEERS if peers else ():
        missing = [p for p in ("torch", package) if importlib.util.find_spec(p) is None]
        if missing:
            absent.append(Absence(name, f"{' and '.join(dict.fromkeys(missing))} not installed"))
            continue
        try:
            methods.append(load(name))
        except Exception as error:  # an import may raise any error; it is reported
            failed.append(Absence(name, one_line(error)))
    return tuple(methods), tuple(absent), tuple(failed)


def our_evaluation(
    relaxation: Relaxation, *, n_iter: float = N_ITER, epsilon: float = EPSILON
) -> Callable[[Query], Evaluation]:
    """Return a function that takes a query and returns the evaluation to be timed.

    The evaluation computes the expected gain of the query and its gradient with sinkprop on one thread.
    """

    def start(query: Query) -> Evaluation:
        return lambda: sinkprop.expected_gain(
            query.scores,
            query.labels,
            gain=GAIN,
            relaxation=relaxation,
            n_iter=n_iter,
            epsilon=epsilon,
            n_threads=1,
        )

    return start


def torch_sinkprop(
    relaxation: Relaxation,
    scores: Floats,
    labels: Floats,
    *,
    n_iter: float = N_ITER,
    epsilon: float = EPSILON,
) -> Callable[[], tuple[float, Any]]:
    """Return a function that computes the expected gain of a query and its gradient with torch autograd.

    This is the straightforward implementation in float64: build the dense n x n matrix of the relaxation,
    normalize its columns and rows `n_iter` times, and call `backward`. Gains and discounts are computed here,
    not in the returned function, so they are not timed.
    """
    import torch

    D = torch.tensor(GAIN.discounts(len(labels)).copy())
    G = torch.tensor(reference.gain_matrix(labels, GAIN)[:, 0])  # gains at rank 1, whose discount D[0] is 1
    u = torch.arange(1, len(labels), dtype=torch.float64) / len(labels)

    def matrix(x: Any) -> Any:
        if isinstance(relaxation, SmoothedIndicator):
            distance = x[:, None] - torch.sort(x, descending=True)[0][None, :]
            return torch.exp(-(distance**2) / (2 * relaxation.sigma**2))
        mu, s = x[:, :1], torch.exp(x[:, 1:])
        if relaxation == PartitionedMeasure("probit"):
            inner = torch.special.ndtr((torch.special.ndtri(u) - mu) / s)
        else:
            inner = torch.sigmoid((torch.logit(u) - mu) / s)
        ends = torch.zeros_like(mu), torch.ones_like(mu)
        return torch.diff(torch.cat([ends[0], inner, ends[1]], dim=1))

    def evaluate() -> tuple[float, Any]:
        x = torch.tensor(scores, requires_grad=True)
        A = matrix(x) + epsilon if epsilon else matrix(x)
        for t in range(half_steps(n_iter)):
            A = A / A.sum(t % 2, keepdim=True)
        value = G @ A @ D
        value.backward()
        return value.item(), x.grad

    return evaluate


def _autograd(name: str) -> Method:
    importlib.import_module("torch")
    relaxation = SmoothedIndicator(SIGMA)
    return Method(name, lambda q: torch_sinkprop(relaxation, q.scores, q.labels), order=2, pair_bytes=190)


def _allrank(name: str) -> Method:
    import torch

    with _torchvision_stub(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing allRank warns about setuptools
        losses = importlib.import_module("allrank.models.losses")
    loss, pair_bytes = {
        NEURAL: (losses.neuralNDCG, 480),
        APPROX: (losses.approxNDCGLoss, 40),
        LAMBDA: (lambda x, y: losses.lambdaLoss(x, y, weighing_scheme="lambdaRank_scheme"), 80),
    }[name]

    def start(query: Query) -> Evaluation:
        scores, labels = (
            query.scores.astype(np.float32),
            torch.tensor(query.labels, dtype=torch.float32)[None],
        )

        def evaluate() -> object:
            x = torch.tensor(scores[None], requires_grad=True)
            loss(x, labels).backward()
            return x.grad

        return evaluate

    return Method(name, start, order=2, pair_bytes=pair_bytes)


def _torchsort(name: str) -> Method:
    import torch

    torchsort = importlib.import_module("torchsort")

    def start(query: Query) -> Evaluation:
        scores, labels = query.scores[None], torch.tensor(query.labels)[None]

        def evaluate() -> object:
            x = torch.tensor(scores, requires_grad=True)
            (labels * torchsort.soft_rank(x, regularization_strength=SIGMA)).sum().backward()
            return x.grad

        return evaluate

    return Method(name, start)


_PEERS: tuple[tuple[str, str, Callable[[str], Method]], ...] = (
    (AUTOGRAD, "torch", _autograd),
    (NEURAL, "allrank", _allrank),
    (APPROX, "allrank", _allrank),
    (LAMBDA, "allrank", _allrank),
    (SOFT_RANK, "torchsort", _torchsort),
)


@contextlib.contextmanager
def _torchvision_stub() -> Iterator[None]:
    """Provide a stub of torchvision if it is not installed: allRank imports it, but does not need it here."""
    if importlib.util.find_spec("torchvision") is not None:
        yield
        return
    package, transforms = types.ModuleType("torchvision"), types.ModuleType("torchvision.transforms")
    vars(transforms)["Compose"] = list
    vars(package)["transforms"] = transforms
    stubs = {"torchvision": package, "torchvision.transforms": transforms}
    sys.modules.update(stubs)
    try:
        yield
    finally:
        for name in stubs:
            del sys.modules[name]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Context in which torch, if loaded, uses one thread and flushes denormal numbers to 0 for speed."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
