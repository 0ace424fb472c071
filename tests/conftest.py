"""Settings of all tests."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

# OpenMP's threads, LightGBM's among them, keep a processor busy while they wait for each other, which takes
# ten times as long where other tests run beside. Read when a library is loaded, here and in processes begun.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
from hypothesis import HealthCheck, settings

from sinkprop import _native

# In the background of a shell interrupts are ignored, and under nohup the end of the terminal. So they would
# be by what is tested here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A machine may be busy with other work, or stop for seconds: time says nothing about an example. In CI the
# examples are the same in every run, elsewhere they are drawn anew.
settings.register_profile(
    "shared machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("shared machine")


@pytest.fixture(params=_native.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each of the sets that this processor runs, in use; afterwards the default again."""
    default = _native.instruction_set()
    assert _native.use_instruction_set(request.param)
    yield request.param
    assert _native.use_instruction_set(default)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests with the garbage collector off, and keep it from scanning them afterwards.

    There are nearly 20,000 tests, none of which is garbage; scanning them again and again takes longer than
    collecting them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def run(capfd: Any) -> Any:
    """Function that runs the program in this process, and returns its status, output and errors."""
    from sinkprop import cli

    def call(*arguments: Any) -> tuple[Any, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main([str(a) for a in arguments])
        return exit_.value.code, *capfd.readouterr()

    return call


@pytest.fixture(scope="session")
def warm() -> Iterator[Any]:
    """Processes that have loaded scikit-learn and the program; see warm.py."""
    from warm import Warm

    commands = ("train", "predict", "evaluate", "compare", "demo", "bench", "convert", "report")
    with Warm(*(f"sinkprop.cli.{name}" for name in commands), "sinkprop.registry", "sinkprop.linear") as warm:
        yield warm


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Any]:
    """A Dask client of two worker processes, for the tests of a module."""
    from sinkprop.cluster import connected

    with connected(2) as client:
        yield client


@pytest.fixture
def client(two_workers: Any) -> Any:
    """The same, with both workers there: the test before may have killed one."""
    from cluster_tasks import both_there

    return both_there(two_workers)
