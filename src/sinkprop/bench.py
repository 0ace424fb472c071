"""Times of value and gradient, beside what users have today: the measuring behind `sinkprop bench`.

Every time is the best of several on one thread, and every ratio is of two times measured in one run: absolute
times mean little on a shared machine. Nothing is printed here, and no other package is imported until its
method is asked for. A method that is not installed, fails, or would take too long says so in the report.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import sinkprop
from sinkprop import _native, reference
from sinkprop.gains import NDCG, Floats
from sinkprop.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator

__all__ = [
    "FULL",
    "OURS",
    "QUICK",
    "Absence",
    "Accuracy",
    "Budget",
    "Figure",
    "Machine",
    "Method",
    "Query",
    "Report",
    "Timing",
    "as_record",
    "available_methods",
    "best_time",
    "measure",
    "random_query",
]

SIGMA, N_ITER, EPSILON = 0.3, 5, 1e-6
GAIN = NDCG()
MEMORY = 2e9  # bytes above which an evaluation is not tried
DENSE_UP_TO = 2000  # documents up to which gradients are compared with the dense reference

OURS = "sinkprop Gaussian"
EXACT = "sinkprop Gaussian exact"
LAPLACE = "sinkprop Laplace"
ARGSORT = "numpy.argsort"
AUTOGRAD = "torch autograd, dense"
NEURAL = "allRank NeuralNDCG"
APPROX = "allRank ApproxNDCG"
LAMBDA = "allRank lambdaLoss"
SOFT_RANK = "torchsort soft_rank"

Evaluation = Callable[[], object]
Notify = Callable[[int, int, str], None]  # steps done, steps in all, what comes now


@dataclass(frozen=True)
class Budget:
    """What one measurement may take.

    seconds   spent on repetitions, of which the best counts
    most      repetitions
    patience  seconds above which a single evaluation is not tried
    """

    seconds: float
    most: int
    patience: float


FULL = Budget(seconds=0.3, most=2000, patience=3.0)
QUICK = Budget(seconds=0.06, most=400, patience=1.0)
_ONCE = Budget(seconds=0.0, most=1, patience=math.inf)


@dataclass(frozen=True)
class Query:
    """One query: scores (n,) with a spread of 1, labels (n,) from 0 to 4."""

    scores: Floats
    labels: Floats

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class Method:
    """A way to the value and gradient of one query.

    start       a query to the evaluation that is timed: its arrays are ready, nothing else is
    order       its time grows like n^order at most
    pair_bytes  memory that it holds at once, in bytes for each of the n^2 pairs
    """

    name: str
    start: Callable[[Query], Evaluation]
    order: int = 1
    pair_bytes: float = 0.0


@dataclass(frozen=True)
class Absence:
    """A method, or a part of one, that was not measured, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Timing:
    """Seconds of one evaluation, or None where it was not tried, which `reason` explains."""

    method: str
    n: int
    seconds: float | None
    reason: str = ""


@dataclass(frozen=True)
class Accuracy:
    """Largest difference of two gradients, relative to the largest entry; None where dense takes too long."""

    n: int
    fast_to_exact: float
    fast_to_dense: float | None
    exact_to_dense: float | None


@dataclass(frozen=True)
class Figure:
    """A figure that the library must reach; `measured` is None where it could not be taken (see `note`).

    `busy` is the number of processors that other processes used meanwhile, None where unknown.
    """

    name: str
    measured: float | None
    asked: float
    direction: Literal["at least", "at most"]
    unit: str
    note: str = ""
    busy: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the figure is reached; None where it was not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.asked if self.direction == "at least" else self.measured <= self.asked


@dataclass(frozen=True)
class Machine:
    """Where the times were taken."""

    cpu: str
    processors: int
    instruction_set: str
    system: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Report:
    """Everything one run measured. `busy` is the number of processors that other processes used meanwhile."""

    machine: Machine
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    timings: tuple[Timing, ...]
    accuracy: tuple[Accuracy, ...]
    figures: tuple[Figure, ...]
    absent: tuple[Absence, ...]
    failed: tuple[Absence, ...]
    busy: float | None

    def seconds(self, method: str, n: int) -> float | None:
        """The time of a method at a size, None where it was not measured."""
        return next((t.seconds for t in self.timings if (t.method, t.n) == (method, n)), None)

    def slowdown(self, method: str, n: int) -> float | None:
        """The time of a method in units of ours, Gaussian and fast, at the same size."""
        theirs, ours = self.seconds(method, n), self.seconds(OURS, n)
        return None if theirs is None or ours is None else theirs / ours


def as_record(report: Report) -> dict[str, Any]:
    """The report as plain data for JSON, with whether each figure is reached and each time's slowdown."""
    record = asdict(report)
    record["figures"] = [asdict(f) | {"reached": f.reached} for f in report.figures]
    record["timings"] = [asdict(t) | {"slowdown": report.slowdown(t.method, t.n)} for t in report.timings]
    return record


def measure(
    sizes: tuple[int, ...],
    *,
    budget: Budget = FULL,
    peers: bool = True,
    figures: bool = True,
    million: bool = True,
    notify: Notify = lambda done, total, what: None,
) -> Report:
    """Times and accuracy at the given sizes, and with `figures` the figures, those at n = 10^6 if `million`.

    Without `peers` nothing but NumPy is measured beside ours. `notify` is told of each step before it begins.
    """
    sizes = tuple(sorted(set(sizes)))
    goals = _goals(million) if figures else ()
    notify(0, 1, "loading what is installed" if peers else "starting")
    machine = this_machine(peers)
    methods, absent, failed = available_methods(peers)
    busy = _busy_elsewhere()
    total = len(sizes) * (len(methods) + 1) + len(goals)
    done = 0

    def step(what: str) -> None:
        nonlocal done
        notify(done, total, what)
        done += 1

    timings: list[Timing] = []
    accuracy, taken = [], []
    with _one_thread():
        for n in sizes:
            here = []
            for method in methods:
                step(f"{method.name}, n = {n:,}")
                here.append(_timing(method, n, [t for t in timings if t.method == method.name], budget))
            timings += [_second_look(m, t, budget) for m, t in zip(methods, here, strict=True)]
        wrong = {t.method: t.reason for t in reversed(timings) if t.reason.startswith("failed")}
        failed += tuple(Absence(name, reason) for name, reason in wrong.items())
        for n in sizes:
            step(f"accuracy, n = {n:,}")
            accuracy.append(_accuracy(n, budget))
        bench = _Bench({m.name: m for m in methods}, {a.name: a.reason for a in absent + failed}, budget)
        for goal in goals:
            step(goal.name)
            taken.append(_figure(goal, bench))
    notify(total, total, "done")
    return Report(
        machine,
        tuple(m.name for m in methods),
        sizes,
        tuple(timings),
        tuple(accuracy),
        tuple(taken),
        absent,
        failed,
        busy(),
    )


def best_time(evaluate: Evaluation, budget: Budget) -> float:
    """Seconds of the fastest of several evaluations: at least three, unless they take more than a second."""
    best, start = math.inf, time.perf_counter()
    for done in range(1, budget.most + 1):
        before = time.perf_counter()
        evaluate()
        after = time.perf_counter()
        best = min(best, after - before)
        if after - start > (budget.seconds if done >= 3 else 1.0):
            break
    return best


def time_ratio(above: Evaluation, below: Evaluation, budget: Budget, rounds: int = 3) -> float:
    """Time of `above` over time of `below`, in alternating rounds: a drift of the machine meets both."""
    above()  # the first evaluation of anything is slow: caches, pages, lazy imports
    below()
    times = [(best_time(above, budget), best_time(below, budget)) for _ in range(rounds)]
    return min(t for t, _ in times) / min(t for _, t in times)


def random_query(n: int, seed: int = 0) -> Query:
    """A query of n documents with normal scores and labels from 0 to 4, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return Query(rng.normal(size=n), rng.integers(0, 5, n).astype(np.float64))


def available_methods(peers: bool) -> tuple[tuple[Method, ...], tuple[Absence, ...], tuple[Absence, ...]]:
    """The methods that can be measured here, those not installed, and those whose import failed."""
    methods = [
        Method(OURS, _ours(SmoothedIndicator(SIGMA))),
        Method(EXACT, _ours(SmoothedIndicator(SIGMA, accuracy="exact"))),
        Method(LAPLACE, _ours(SmoothedIndicator(SIGMA, "laplace"))),
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
        except Exception as error:  # another's package may fail to import in any way; it is reported
            failed.append(Absence(name, _one_line(error)))
    return tuple(methods), tuple(absent), tuple(failed)


def _ours(relaxation: Relaxation) -> Callable[[Query], Evaluation]:
    def start(query: Query) -> Evaluation:
        return lambda: sinkprop.expected_gain(
            query.scores,
            query.labels,
            gain=GAIN,
            relaxation=relaxation,
            n_iter=N_ITER,
            epsilon=EPSILON,
            n_threads=1,
        )

    return start


def torch_sinkprop(relaxation: Relaxation, scores: Floats, labels: Floats) -> Callable[[], tuple[float, Any]]:
    """The same value and gradient by torch's automatic differentiation through the dense matrices, float64.

    What one writes in an afternoon: the matrix, `N_ITER` times divided by its sums, and `backward`. Gains and
    discounts are ready beforehand.
    """
    import torch

    D = torch.tensor(GAIN.discounts(len(labels)).copy())
    G = torch.tensor(reference.gain_matrix(labels, GAIN)[:, 0])  # G D(1), and D(1) = 1
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
        A = matrix(x) + EPSILON
        for _ in range(N_ITER):
            A = A / A.sum(0, keepdim=True)
            A = A / A.sum(1, keepdim=True)
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
        warnings.simplefilter("ignore")  # its import uses what setuptools has deprecated
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
    """A stand-in for the one name of torchvision that allRank imports and its losses never use."""
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
def _one_thread() -> Iterator[None]:
    """Torch, where it is loaded, on one thread and with denormal numbers flushed to 0, which favors it."""
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


def _timing(method: Method, n: int, before: list[Timing], budget: Budget) -> Timing:
    """The time at n, unless it would take too much memory or, by the times at smaller sizes, too long."""
    if method.pair_bytes * n * n > MEMORY:
        return Timing(method.name, n, None, f"over {MEMORY / 1e9:.0f} GB of memory")
    known = [(t.n, t.seconds) for t in before if t.seconds is not None]
    if before and not known:
        return Timing(method.name, n, None, "not tried")
    try:
        if not _within(method, n, known, budget.patience):
            return Timing(method.name, n, None, f"over {budget.patience:g} s")
        return Timing(method.name, n, _time_at(method, n, budget))
    except Exception as error:  # a peer may fail in any way; it is reported
        return Timing(method.name, n, None, f"failed at n = {n}: {_one_line(error)}")


def _second_look(method: Method, timing: Timing, budget: Budget) -> Timing:
    """The better of the timing and a second, later one: another process may have disturbed the first."""
    if timing.seconds is None or timing.seconds > max(budget.seconds, 0.2):
        return timing
    return replace(timing, seconds=min(timing.seconds, _time_at(method, timing.n, budget)))


def _within(method: Method, n: int, known: list[tuple[int, float]], patience: float) -> bool:
    """Whether an evaluation at n takes at most `patience` seconds, going by the last known size.

    A short evaluation is mostly overhead and says little, so sizes between are tried as patience allows.
    """
    m, seconds = known[-1] if known else (50, 0.0)
    if not known and n > m and method.order > 1:
        seconds = _time_at(method, m, _ONCE)
    while m < n and seconds * (n / m) ** method.order > patience:
        m, last = min(4 * m, n // 2), m
        if m <= last or seconds * (m / last) ** method.order > patience:
            return False
        seconds = _time_at(method, m, _ONCE)
    return True


def _time_at(method: Method, n: int, budget: Budget) -> float:
    evaluate = method.start(random_query(n))
    evaluate()  # not counted, as in `time_ratio`
    return best_time(evaluate, budget)


def _accuracy(n: int, budget: Budget) -> Accuracy:
    query = random_query(n)
    fast, exact = SmoothedIndicator(SIGMA), SmoothedIndicator(SIGMA, accuracy="exact")
    g_fast, g_exact = (
        sinkprop.expected_gain(
            query.scores, query.labels, gain=GAIN, relaxation=r, n_iter=N_ITER, epsilon=EPSILON
        ).gradient
        for r in (fast, exact)
    )
    dense_seconds = 4e-7 * n * n  # of the reference, roughly
    if n > DENSE_UP_TO or dense_seconds > budget.patience:
        return Accuracy(n, _difference(g_fast, g_exact), None, None)
    _, dense = reference.expected_gain(
        query.scores, query.labels, GAIN, exact, n_iter=N_ITER, epsilon=EPSILON
    )
    return Accuracy(n, _difference(g_fast, g_exact), _difference(g_fast, dense), _difference(g_exact, dense))


def _difference(a: Floats, b: Floats) -> float:
    scale = float(np.abs(b).max())
    return float(np.abs(a - b).max()) / scale if scale > 0 else 0.0


class NotMeasuredError(Exception):
    """A figure that cannot be taken here; the message says why."""


@dataclass(frozen=True)
class _Bench:
    """What a figure is measured with."""

    methods: Mapping[str, Method]
    missing: Mapping[str, str]
    budget: Budget

    def ratio(self, above: str, below: str, n: int, *, n_below: int | None = None) -> float:
        """Time of one method at n over that of another, at the same n or at `n_below`."""
        for name in (above, below):
            if name not in self.methods or name in self.missing:
                raise NotMeasuredError(self.missing.get(name, _WITHOUT_PEERS))
        first, second = random_query(n), random_query(n if n_below is None else n_below)
        return time_ratio(self.methods[above].start(first), self.methods[below].start(second), self.budget)


@dataclass(frozen=True)
class _Goal:
    name: str
    asked: float
    direction: Literal["at least", "at most"]
    unit: str
    measure: Callable[[_Bench], float]
    note: str = ""


_MEMORY_NOTE = "growth in a fresh process, the query itself included"
_WITHOUT_PEERS = "other packages are left out"
_SHORT_SAMPLE = 300
_ROUNDS_OF_IMPORT = 5


def _goals(million: bool) -> tuple[_Goal, ...]:
    """The figures of the design, in its order."""
    n = 1000
    goals = [
        _Goal(
            "Gaussian vs torch autograd, n = 1000",
            500,
            "at least",
            "x",
            lambda b: b.ratio(AUTOGRAD, OURS, n),
        ),
        _Goal(
            "Gaussian vs allRank NeuralNDCG, n = 1000",
            2000,
            "at least",
            "x",
            lambda b: b.ratio(NEURAL, OURS, n),
        ),
        _Goal(
            "Gaussian vs allRank ApproxNDCG, n = 1000",
            50,
            "at least",
            "x",
            lambda b: b.ratio(APPROX, OURS, n),
        ),
        _Goal(
            "Gaussian / numpy.argsort, n = 1000",
            10,
            "at most",
            "x",
            lambda b: b.ratio(OURS, ARGSORT, n),
        ),
        _Goal(
            "Laplace / numpy.argsort, n = 1000",
            4,
            "at most",
            "x",
            lambda b: b.ratio(LAPLACE, ARGSORT, n),
        ),
    ]
    if million:
        goals += [
            _Goal(
                "Gaussian, n = 10^6 / n = 10^4",
                130,
                "at most",
                "x",
                lambda b: b.ratio(OURS, OURS, 10**6, n_below=10**4),
            ),
            _Goal("Peak memory, n = 10^6", 1, "at most", "GB", _memory, _MEMORY_NOTE),
        ]
    return (
        *goals,
        _Goal("10,000 queries of 120, 2 threads vs 1", 1.7, "at least", "x", _two_threads),
        *(
            _Goal(
                f"{family} vs torch autograd, n = 500",
                8,
                "at least",
                "x",
                _partitioned(PartitionedMeasure(family)),
            )
            for family in ("logit-logistic", "probit")
        ),
        _Goal(
            "10,000 queries of 10 vs a torch loop",
            300,
            "at least",
            "x",
            _short_queries,
            f"the loop is timed on {_SHORT_SAMPLE} queries and scaled",
        ),
        _Goal("Packages imported beyond NumPy", 0, "at most", "", _foreign_packages),
        _Goal("import sinkprop, beyond NumPy's time", 0.15, "at most", "s", _import_seconds),
    )


def _figure(goal: _Goal, bench: _Bench) -> Figure:
    busy = _busy_elsewhere()
    try:
        measured, note = goal.measure(bench), goal.note
    except NotMeasuredError as reason:
        measured, note = None, f"not measured; {reason}"
    except Exception as error:  # a peer may fail in any way; it is reported
        measured, note = None, f"failed: {_one_line(error)}"
    return Figure(goal.name, measured, goal.asked, goal.direction, goal.unit, note, busy())


def _batch(n_queries: int, n: int, n_threads: int) -> Evaluation:
    rows, qid = random_query(n_queries * n), np.repeat(np.arange(n_queries), n)
    relaxation = SmoothedIndicator(SIGMA)
    return lambda: sinkprop.expected_gain(
        rows.scores, rows.labels, qid, gain=GAIN, relaxation=relaxation, n_threads=n_threads
    )


def _two_threads(bench: _Bench) -> float:
    if _processors() < 2:
        raise NotMeasuredError("this needs two processors")
    # More rounds than elsewhere: whatever else runs takes the second processor first.
    return time_ratio(_batch(10_000, 120, 1), _batch(10_000, 120, 2), bench.budget, rounds=4)


def _partitioned(relaxation: PartitionedMeasure) -> Callable[[_Bench], float]:
    def ratio(bench: _Bench) -> float:
        _require_torch(bench)
        query = random_query(500)
        theta = np.column_stack([query.scores, 0.3 * random_query(500, seed=1).scores])
        ours = _ours(relaxation)(Query(theta, query.labels))
        return time_ratio(torch_sinkprop(relaxation, theta, query.labels), ours, bench.budget)

    return ratio


def _short_queries(bench: _Bench) -> float:
    _require_torch(bench)
    relaxation = SmoothedIndicator(SIGMA)
    sample = [random_query(10, seed) for seed in range(_SHORT_SAMPLE)]
    losses = [torch_sinkprop(relaxation, q.scores, q.labels) for q in sample]

    def loop() -> None:
        for loss in losses:
            loss()

    return time_ratio(loop, _batch(10_000, 10, 1), bench.budget) * 10_000 / _SHORT_SAMPLE


def _require_torch(bench: _Bench) -> None:
    if AUTOGRAD not in bench.methods or AUTOGRAD in bench.missing:
        raise NotMeasuredError(bench.missing.get(AUTOGRAD, _WITHOUT_PEERS))


def _memory(bench: _Bench) -> float:
    code = "from sinkprop.bench import peak_growth; print(peak_growth(10**6))"
    return float(_in_fresh_python(code)) / 1e9


def peak_growth(n: int) -> int:
    """Bytes by which one evaluation at n, its input included, raises the peak memory of this process."""
    before = _peak_memory()
    _ours(SmoothedIndicator(SIGMA))(random_query(n))()
    return _peak_memory() - before


def _peak_memory() -> int:
    """Peak resident bytes. On Linux getrusage's includes the parent of a process, so /proc goes first."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(x.split()[1]) * 1024 for x in status.read_text().splitlines() if "VmHWM" in x)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


_IMPORT = """
import sys, time, numpy
before, start = set(sys.modules), time.perf_counter()
import sinkprop
seconds = time.perf_counter() - start
new = {m.partition(".")[0] for m in set(sys.modules) - before if getattr(sys.modules[m], "__spec__", None)}
print(seconds, *sorted(new - {"numpy", "sinkprop"} - set(sys.stdlib_module_names)))
"""


def _import_seconds(bench: _Bench) -> float:
    return statistics.median(float(_in_fresh_python(_IMPORT).split()[0]) for _ in range(_ROUNDS_OF_IMPORT))


def _foreign_packages(bench: _Bench) -> float:
    return len(_in_fresh_python(_IMPORT).split()[1:])


def _in_fresh_python(code: str) -> str:
    """What the code prints in a new interpreter that does not look for modules in the working directory."""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise NotMeasuredError((run.stderr.strip().splitlines() or ["the process ended early"])[-1])
    return run.stdout


def this_machine(peers: bool) -> Machine:
    """The processor, the kernels chosen for it, and the versions of what is measured."""
    packages = ("numpy", *(("torch", "allRank", "torchsort") if peers else ()))
    versions = {"sinkprop": sinkprop.__version__, "python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    system = f"{platform.system()} {platform.machine()}"
    return Machine(_cpu(), _processors(), _native.instruction_set(), system, versions)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    if sys.platform == "darwin":
        ask = ["sysctl", "-n", "machdep.cpu.brand_string"]
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    return platform.processor() or platform.machine()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _busy_elsewhere() -> Callable[[], float | None]:
    """A clock: the number of processors that other processes use from now to its call, None where unknown."""

    def others() -> float:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
        ticks = user + nice + system + irq + softirq + steal
        return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])

    stat = Path("/proc/stat")
    if not stat.exists():
        return lambda: None
    start, used = time.perf_counter(), others()
    return lambda: max(0.0, (others() - used) / max(time.perf_counter() - start, 0.05))


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
