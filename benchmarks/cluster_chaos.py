"""Fits on a Dask cluster of three workers during faults: the same model, or a named error within a minute?

    python benchmarks/cluster_chaos.py                                  200 faults; an hour or more
    python benchmarks/cluster_chaos.py --faults 6 --kinds kill,garbage  a few of some kinds

A first fit of each kind (boosted trees, linear model) without a fault gives the expected model. During each
further fit, one fault happens at a random moment:

    kill     a worker process is killed (SIGKILL), and Dask starts another
    pause    a worker process is stopped (SIGSTOP) and continued before it counts as lost
    stop     a worker process is stopped until the fit has ended
    blink    a worker's network is cut for a shorter time than the one after which it counts as lost
    cut      a worker's network is cut until the fit has ended
    garbage  strangers send random bytes, or nothing, to every open port of all processes of the cluster

The fit must end within --limit seconds, with the same model to the last bit or with one of sinkprop's own
errors. Afterwards the workers must be there and must hold nothing of the fit, and at the end no process may
be left. The output has a line per fault and a table of the outcomes. The exit code is 1 if any of this is
violated. `blink` and `cut` give each worker a network namespace, which needs root and the program `ip`
(Linux); without them these two kinds are left out. Faults depend only on the seed, and their moments also on
the time that a fit takes.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

KINDS = ("kill", "pause", "stop", "blink", "cut", "garbage")
CUTS = ("blink", "cut")
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "stop": signal.SIGSTOP}
MARK = "SINKPROP_CHAOS"
# as for the clusters that sinkprop starts: no samples of the stacks, and few of the clocks of the event loops
QUIET = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
}
N_WORKERS = 3
RETURN = 120.0  # seconds in which all workers must be there again after a fault


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=200, help="number of faults  [default: 200]")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the faults  [default: 0]")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of faults, separated by commas")
    parser.add_argument("--limit", type=float, default=60, help="seconds until a fit must have ended")
    parser.add_argument(
        "--silence", type=float, default=5, help="seconds after which a silent worker is lost  [default: 5]"
    )
    parser.add_argument("--trees", type=int, default=60, help="trees of a boosted fit  [default: 60]")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if wrong := set(kinds) - set(KINDS):
        parser.error(f"unknown kinds: {', '.join(sorted(wrong))}")
    if (missing := no_namespaces()) and set(kinds) & set(CUTS):
        print(f"blink and cut are left out: {missing}", flush=True)
        kinds = [kind for kind in kinds if kind not in CUTS]
    logging.getLogger("sinkprop.cluster").setLevel(logging.ERROR)
    sys.exit(run(kinds, options))


def no_namespaces() -> str:
    """The reason why network namespaces cannot be made here; "" if they can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the program `ip` is not installed"
    name = f"chaos{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this system makes no network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


# ---- the cluster


class Cluster:
    """A scheduler and three workers with their nannies, each in processes of its own.

    With `cut_off`, each worker is in its own network namespace, connected by a bridge.
    """

    def __init__(self, folder: Path, *, cut_off: bool) -> None:
        self.id, self.folder = uuid4().hex, folder
        self.stack = ExitStack()
        self.cut_off = cut_off
        self.base = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.hosts = ["127.0.0.1"] * N_WORKERS
        self.processes: list[subprocess.Popen[bytes]] = []
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.bridge = f"chaos{os.getpid()}"
        if cut_off:
            self._namespaces()
        with socket.create_server((self.host, 0)) as free:
            port = free.getsockname()[1]
        self.address = f"tcp://{self.host}:{port}"
        self._start("dask_scheduler", "--host", self.host, "--port", str(port))
        for i in range(N_WORKERS):
            self._start_worker(i)

    @property
    def host(self) -> str:
        """Address of the scheduler."""
        return f"{self.base}.1" if self.cut_off else "127.0.0.1"

    def _namespaces(self) -> None:
        ip("link", "add", self.bridge, "type", "bridge")
        self.stack.callback(ip, "link", "del", self.bridge)
        ip("addr", "add", f"{self.host}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for i in range(N_WORKERS):
            name = f"{self.bridge}-{i}"
            self.hosts[i] = f"{self.base}.{10 + i}"
            ip("netns", "add", name)
            self.stack.callback(ip, "netns", "del", name)
            ip("link", "add", f"{self.bridge}v{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{self.bridge}v{i}", "master", self.bridge, "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{self.hosts[i]}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def _start(self, program: str, *arguments: str, within: str = "") -> subprocess.Popen[bytes]:
        prefix = ["ip", "netns", "exec", within] if within else []
        command = [*prefix, sys.executable, "-m", f"distributed.cli.{program}", *arguments, "--no-dashboard"]
        with open(self.folder / f"{program}-{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **QUIET, MARK: self.id},
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
            )
        self.processes.append(process)
        return process

    def _start_worker(self, i: int) -> None:
        options = ["--nthreads", "1", "--memory-limit", "0", "--host", self.hosts[i], "--name", str(i)]
        # imports in the middle of a fit would take long, and a worker is silent meanwhile
        options += ["--preload", "sinkprop.gbdt.cluster.worker", "--preload", "lightgbm"]
        within = f"{self.bridge}-{i}" if self.cut_off else ""
        self.workers[i] = self._start("dask_worker", self.address, *options, within=within)

    def revive(self) -> None:
        """Start workers again that have ended with their nannies, as those do that were cut off for long."""
        for i, process in list(self.workers.items()):
            if process.poll() is not None:
                self._start_worker(i)

    def wired(self, i: int, *, up: bool) -> None:
        """Connect a worker's network, or cut it."""
        ip("link", "set", f"{self.bridge}v{i}", "up" if up else "down")

    def pids(self) -> list[int]:
        """All processes of the cluster."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self.id}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return sorted(found)

    def ports(self) -> set[tuple[str, int]]:
        """Addresses at which the processes of the cluster listen."""
        return {address for pid in self.pids() for address in listening(pid, self.hosts[0], self.base)}

    def end(self) -> list[int]:
        """End all processes, the workers first; returns those that did not end."""
        scheduler, *workers = self.processes
        for process in workers:
            process.terminate()
        # The scheduler only after them: a worker whose scheduler ends meanwhile does not end before its
        # nanny kills it, and a nanny tries for half a minute to tell the scheduler of it.
        deadline = time.monotonic() + 30
        for process in workers:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        scheduler.terminate()
        deadline = time.monotonic() + 30
        while (left := self.pids()) and time.monotonic() < deadline:
            for process in self.processes:
                process.poll()
            time.sleep(0.1)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.stack.close()
        return left


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def listening(pid: int, default: str, base: str) -> set[tuple[str, int]]:
    """Hosts and ports at which a process listens, from /proc."""
    found: set[tuple[str, int]] = set()
    with suppress(OSError):
        own = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[k] for k in (1, 3, 9))
            if state == "0A" and f"socket:[{inode}]" in own:
                number, port = local.split(":")
                host = socket.inet_ntoa(int(number, 16).to_bytes(4, "little"))
                # an address of all interfaces is tried at the one that this process can reach
                found.add((host if host.startswith((base, "127.")) else default, int(port, 16)))
    return found


# ---- faults


class Fault:
    """One fault: `begin` makes it happen, and `heal` ends it."""

    def __init__(self, kind: str, cluster: Cluster, pids: dict[int, int], rng: Any, silence: float) -> None:
        self.kind, self.cluster = kind, cluster
        self.worker = int(rng.integers(N_WORKERS))
        self.pid = pids[self.worker]
        self.short = float(rng.uniform(0.1, 0.5)) * silence
        self.seed = int(rng.integers(1 << 31))
        self.began = 0.0
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        with self._lock:
            if self._over.is_set():  # the fit was faster
                return
            self.began = time.monotonic()
            if self.kind in SIGNALS:
                os.kill(self.pid, SIGNALS[self.kind])
            elif self.kind in CUTS:
                self.cluster.wired(self.worker, up=False)
            else:
                self._thread = threading.Thread(target=self._pester)
                self._thread.start()
        if self.kind in ("pause", "blink"):
            self._over.wait(self.short)
            self._mend()

    def heal(self) -> None:
        """End the fault, once the fit has ended."""
        with self._lock:
            self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self.began:
            self._mend()

    def _mend(self) -> None:
        if self.kind in ("pause", "stop"):
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
        elif self.kind in CUTS:
            self.cluster.wired(self.worker, up=True)

    def _pester(self) -> None:
        """Connect to all ports again and again; send random bytes, a huge length, or nothing."""
        rng = np.random.default_rng(self.seed)
        with ExitStack() as stack:
            for _ in range(20):
                for address in sorted(self.cluster.ports()):
                    with suppress(OSError):
                        link = stack.enter_context(socket.create_connection(address, timeout=1))
                        link.setblocking(False)
                        first = [b"", rng.bytes(8), b"\xff" * 7 + b"\x3f", b"GET / HTTP/1.1\r\n"]
                        link.send(first[rng.integers(len(first))] + rng.bytes(int(rng.integers(2000))))
                if self._over.wait(0.1):
                    return


# ---- fits


class Fits:
    """Short fits of both kinds on a cluster, to data in memory and in a stored set."""

    def __init__(self, client: Any, folder: Path, trees: int) -> None:
        from sinkprop import Queries
        from sinkprop.store import save_queries

        rng = np.random.default_rng(0)
        qid = np.repeat(np.arange(150), rng.integers(10, 30, 150))
        X = rng.normal(size=(len(qid), 6)).astype(np.float32)
        y = np.digitize(2 * X[:, 0] * X[:, 1] + rng.normal(size=len(qid)), [0.5, 2.0]).astype(float)
        queries = Queries(X, y, qid)
        self.client, self.trees = client, trees
        self.data = {"arrays": queries, "stored": save_queries(folder / "chaos.queries", queries)}
        self.expected: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}

    def prepare(self) -> None:
        """Fit both kinds without a fault, twice: the first fit has imports and file caches to fill."""
        for kind in ("boosted", "linear"):
            self.fitted(kind, "stored")
            began = time.monotonic()
            self.expected[kind] = self.fitted(kind, "stored")
            self.seconds[kind] = time.monotonic() - began

    def fitted(self, kind: str, data: str) -> Any:
        """All numbers of a model, for comparison."""
        from sinkprop import Annealing, SinkPropRanker
        from sinkprop.gbdt import BoostedRanker
        from sinkprop.gbdt.boosters import booster_text

        if kind == "boosted":
            trees = BoostedRanker(
                n_estimators=self.trees,
                early_stopping_rounds=None,
                n_threads=1,
                cluster=self.client,
                verbose=False,
            ).fit(self.data[data])
            return booster_text(trees.booster_)
        ranker = SinkPropRanker(
            penalty=1e-3, annealing=Annealing(4, 2), max_iter=4, cluster=self.client, verbose=False
        ).fit(self.data[data])
        stages = [(stage.expected_gain, stage.evaluations) for stage in ranker.fit_result_.stages]
        return ranker.coef_.tolist(), ranker.scaling_.shift.tolist(), ranker.sigma_, stages


def outcome(
    fits: Fits, fit: str, data: str, fault: Fault, moment: float, limit: float
) -> tuple[str, str, float]:
    """Fit during a fault; returns the outcome, its words, and the seconds since the fault."""
    from sinkprop.cluster import ClusterLost

    found: list[Any] = []

    def work() -> None:
        try:
            found.append(fits.fitted(fit, data))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    timer = threading.Timer(moment, fault.begin)
    began = time.monotonic()
    thread.start()
    timer.start()
    thread.join(moment + limit)
    late = thread.is_alive()
    if late:
        for line in traceback.format_stack(sys._current_frames()[thread.ident]):
            print(line, end="", flush=True)
    seconds = time.monotonic() - (fault.began or began)
    fault.heal()
    timer.join()
    if late:
        thread.join(limit)
        return (
            "violation",
            f"no end after {limit:g} s" + (", nor after the fault" if not found else ""),
            seconds,
        )
    (result,) = found
    if not fault.began:
        return "too late", "", seconds
    if isinstance(result, ClusterLost) or (isinstance(result, ValueError) and "the worker" in str(result)):
        return "named error", f"{type(result).__name__}: {result}", seconds
    if isinstance(result, BaseException):
        text = "".join(traceback.format_exception(result))
        return "violation", f"{type(result).__name__}: {result}\n{text}", seconds
    return (
        ("same model", "", seconds)
        if result == fits.expected[fit]
        else ("violation", "ANOTHER model", seconds)
    )


def settled(client: Any, cluster: Cluster) -> tuple[dict[int, int], str]:
    """Wait until all workers are there and hold nothing of a fit.

    Returns their process ids and "", or nothing and what is wrong.
    """
    from sinkprop.cluster.connecting import ask

    deadline, wrong = time.monotonic() + RETURN, ""
    while time.monotonic() < deadline:
        cluster.revive()
        found = [answer for answer in ask(client, state).values() if isinstance(answer, tuple)]
        if len(found) == N_WORKERS and not any(fits for _, _, fits in found):
            return {int(name): pid for name, pid, _ in found}, ""
        wrong = f"{len(found)} workers after {RETURN:g} s, {sum(fits for _, _, fits in found)} hold a fit"
        time.sleep(0.2)
    return {}, wrong


def state(dask_worker: Any = None) -> tuple[str, int, int]:
    """Name and process of a worker, and the number of fits that it holds.

    A port that was opened for a task which never came is not counted: it is closed after some minutes.
    """
    from sinkprop.gbdt.cluster.worker import _FITS

    held = sum(bool(fit.running or fit.meshes) for fit in list(_FITS.values()))
    return str(dask_worker.name), os.getpid(), held


def run(kinds: list[str], options: argparse.Namespace) -> int:
    import dask
    from distributed import Client

    rng = np.random.default_rng(options.seed)
    counts: Counter[tuple[str, str, str]] = Counter()
    slowest: dict[tuple[str, str], float] = {}
    settings = {"sinkprop.silence": f"{options.silence}s", "sinkprop.keep-trees": "200ms"}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, dask.config.set(settings):
        cluster = Cluster(Path(name), cut_off=bool(set(kinds) & set(CUTS)))
        try:
            with Client(cluster.address, set_as_default=False, timeout=60) as client:
                client.wait_for_workers(N_WORKERS, timeout=120)
                fits = Fits(client, Path(name), options.trees)
                fits.prepare()
                done = 0
                pids, wrong = settled(client, cluster)
                while not wrong and done < options.faults:
                    kind, fit = str(rng.choice(kinds)), str(rng.choice(["boosted", "linear"]))
                    data = str(rng.choice(["arrays", "stored"]))
                    fault = Fault(kind, cluster, pids, rng, options.silence)
                    moment = float(rng.uniform(0, fits.seconds[fit]))
                    what, words, seconds = outcome(fits, fit, data, fault, moment, options.limit)
                    if what == "too late":  # the fit had ended before the fault, which does not count
                        continue
                    done += 1
                    counts[kind, fit, what] += 1
                    slowest[kind, fit] = max(seconds, slowest.get((kind, fit), 0.0))
                    print(
                        f"{done:4d} {kind:8}{fit:8}{data:7} at {moment:5.2f} s, end {seconds:5.1f} s later: "
                        f"{what} {words}",
                        flush=True,
                    )
                    pids, wrong = settled(client, cluster)
                if wrong:
                    print(f"VIOLATION: {wrong}", flush=True)
                    counts["", "", "violation"] += 1
        finally:
            left = cluster.end()
            if any(what == "violation" for *_, what in counts):
                for log in sorted(Path(name).glob("*.log")):
                    print(f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
    return summary(counts, slowest, left, time.monotonic() - began)


def summary(
    counts: Counter[Any], slowest: dict[tuple[str, str], float], left: list[int], seconds: float
) -> int:
    """Print the table; returns the exit code."""
    outcomes = ("same model", "named error", "violation")
    print(f"\n{'fault':10}{'fit':10}{'same model':>12}{'named error':>13}{'violation':>11}{'slowest':>11}")
    for kind, fit in sorted(slowest):
        same, named, violated = (counts[kind, fit, what] for what in outcomes)
        print(f"{kind:10}{fit:10}{same:12}{named:13}{violated:11}{slowest[kind, fit]:9.1f} s")
    same, named, violated = (sum(n for (*_, what), n in counts.items() if what == each) for each in outcomes)
    print(f"{'all':20}{same:12}{named:13}{violated:11}   in {seconds:.0f} s")
    print(f"processes left: {', '.join(map(str, left)) if left else 'none'}")
    return 1 if violated or left else 0


if __name__ == "__main__":
    main()
