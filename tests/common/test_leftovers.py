"""Folders that killed processes left are removed; those of living processes and of strangers stay."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sinkprop.common import leftovers
from sinkprop.common.atomic import replacing, write_atomically

pytestmark = pytest.mark.skipif(os.name != "posix", reason="without flock, nothing is removed")

WRITE_AND_WAIT = """
import sys
from sinkprop.common.atomic import replacing

with replacing(sys.argv[1]) as temporary:
    temporary.write_bytes(b"half")
    print(flush=True)
    sys.stdin.read()
"""


def folders(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir() if path.name.startswith(".sinkprop-"))


def left_behind(parent: Path, *, host: str | None = None, age: float = 0.0) -> Path:
    """A folder as a killed process leaves it."""
    folder = parent / f".sinkprop-{os.urandom(16).hex()}"
    folder.mkdir(0o700)
    (folder / "model").write_bytes(b"half")
    lock = folder / f"{folder.name[-32:]}-{os.uname().nodename if host is None else host}"
    lock.touch()
    os.utime(lock, (time.time() - age,) * 2)
    return folder


def test_a_folder_stays_while_its_process_lives_and_goes_after_its_death(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT, str(tmp_path / "a")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    (folder,) = folders(tmp_path)
    assert re.fullmatch(r"\.sinkprop-[0-9a-f]{32}", folder)
    write_atomically(tmp_path / "b", b"whole")
    assert folders(tmp_path) == [folder]
    assert (tmp_path / folder / "a").read_bytes() == b"half"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert folders(tmp_path) == [folder]
    write_atomically(tmp_path / "b", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_writers_in_one_process_leave_each_other_alone(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as first, replacing(tmp_path / "b") as second:
        first.write_bytes(b"a")
        second.write_bytes(b"b")
        write_atomically(tmp_path / "c", b"c")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"a", "b": b"b", "c": b"c"}


@pytest.mark.parametrize(
    ("host", "age", "stays"),
    [(None, 0.0, False), ("another", 3600.0, True), ("another", 90_000.0, False)],
)
def test_a_folder_of_another_machine_stays_for_a_day(
    tmp_path: Path, host: str | None, age: float, stays: bool
) -> None:
    folder = left_behind(tmp_path, host=host, age=age)
    write_atomically(tmp_path / "file", b"whole")
    assert folder.exists() == stays


def test_an_empty_folder_is_removed(tmp_path: Path) -> None:
    """A process was killed after it made the folder and before it made the lock."""
    (tmp_path / f".sinkprop-{'0' * 32}").mkdir()
    write_atomically(tmp_path / "file", b"whole")
    assert folders(tmp_path) == []


def test_what_is_not_a_folder_of_ours_stays(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / f"{'0' * 32}-{os.uname().nodename}").touch()
    (tmp_path / f".sinkprop-{'0' * 32}").symlink_to(target)
    (tmp_path / ".sinkprop-settings").mkdir()
    (tmp_path / f".sinkprop-{'1' * 32}").write_bytes(b"a file")
    unlocked = tmp_path / f".sinkprop-{'2' * 32}"
    unlocked.mkdir()
    (unlocked / "model").write_bytes(b"without a lock")
    before = sorted(tmp_path.rglob("*"))
    write_atomically(tmp_path / "file", b"whole")
    (tmp_path / "file").unlink()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_stays(tmp_path: Path) -> None:
    folder = left_behind(tmp_path)
    os.chown(folder, 65534, 65534)
    write_atomically(tmp_path / "file", b"whole")
    assert folder.exists()


@pytest.mark.parametrize("step", ["before the lock is made", "before it is locked"])
def test_a_new_folder_that_another_process_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    opened = os.open

    def interfere(path: str, *options: int) -> int:
        if not re.match("[0-9a-f]{32}-", os.path.basename(path)):
            return opened(path, *options)
        monkeypatch.undo()
        if step == "before the lock is made":
            leftovers._clear(str(tmp_path))
            return opened(path, *options)
        lock = opened(path, *options)
        leftovers._clear(str(tmp_path))
        return lock

    monkeypatch.setattr(leftovers.os, "open", interfere)
    write_atomically(tmp_path / "file", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_writers_and_removals_at_once(tmp_path: Path) -> None:
    stop, failed = threading.Event(), []

    def write(name: str) -> None:
        try:
            for i in range(60):
                write_atomically(tmp_path / name, name * i)
        except BaseException as error:
            failed.append(error)

    def clear() -> None:
        while not stop.is_set():
            leftovers._clear(str(tmp_path))

    writers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    cleaner = threading.Thread(target=clear)
    for thread in (cleaner, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    cleaner.join()
    assert not failed
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {x: x * 59 for x in "abc"}
