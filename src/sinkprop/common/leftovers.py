"""Hidden folders for files that are being written, and the removal of those that killed processes left.

A folder `.sinkprop-` plus 32 hexadecimal digits holds the new content of one file, and beside it an empty
file, the lock, whose name is these digits and the name of the machine. The process that writes holds `flock`
on the lock as long as it lives. The kernel releases a flock when the process ends, also after a kill, and it
knows of the lock in every container and pid namespace of the machine, where a process id would mislead. A
folder is removed only by a process that has obtained its lock, and only if the folder belongs to the same
user. A file system that is shared between machines may keep locks on each machine alone. So a folder of
another machine is removed only after a day. Where the system or the file system has no flock, nothing is
removed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["working_folder"]

_NAME = re.compile(r"\.sinkprop-([0-9a-f]{32})")
_DAY = 86_400.0  # seconds


@contextmanager
def working_folder(parent: str) -> Iterator[str]:
    """Context manager: give a new, locked folder in `parent` that only this user can reach; then remove it.

    First removes the folders in `parent` that killed processes have left.
    """
    if fcntl is not None:
        _clear(parent)
    # The name is chosen before the `try`, so that an interrupt right after mkdir still removes the folder.
    folder = os.path.join(parent, f".sinkprop-{secrets.token_hex(16)}")
    lock = None
    try:
        lock = _made(folder)
        yield folder
    finally:
        if lock is not None:
            os.close(lock)
        with suppress(OSError):
            _remove(folder)


def _made(folder: str) -> int | None:
    """Make the folder and its lock, and return the descriptor that holds the lock; None without flock."""
    while True:
        os.mkdir(folder, 0o700)
        # Before it is locked, the new folder looks like one that was left behind, and another process may
        # remove it. Then it is made again.
        try:
            made = stat.S_IMODE(os.stat(folder).st_mode)
            if made & 0o700 != 0o700:  # an unusual umask took permissions from the user: give them back
                os.chmod(folder, made | 0o700)
            if fcntl is None:
                return None
            lock = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileNotFoundError:
            continue
        try:
            with suppress(OSError):  # a file system without flock: then no process removes this folder
                fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _clear(parent: str) -> None:
    """Remove the folders in `parent` whose processes are dead."""
    with suppress(OSError):  # a folder that may not be listed
        with os.scandir(parent) as entries:
            found = [entry.path for entry in entries if _NAME.fullmatch(entry.name)]
        for folder in found:
            with suppress(OSError):  # in use, of another user, or removed in the meantime
                _remove_if_left(folder)


def _remove_if_left(folder: str) -> None:
    """Remove a folder if its process is dead. Raises an OSError if the lock cannot be obtained."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    names = os.listdir(folder)
    if not names:  # killed before it made the lock; a living process makes the folder again
        os.rmdir(folder)
    locks = [name for name in names if name.startswith(_digits(folder))]
    if not locks:
        return
    lock = os.open(os.path.join(folder, locks[0]), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if locks[0] == os.path.basename(_lock_of(folder)) or time.time() - os.fstat(lock).st_mtime > _DAY:
            _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: str) -> None:
    """Remove a folder, the lock last: without a lock, the rest would stay if this process is killed here."""
    with os.scandir(folder) as entries:
        rest = [entry for entry in entries if not entry.name.startswith(_digits(folder))]
    for entry in rest:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)
    shutil.rmtree(folder, ignore_errors=True)


def _digits(folder: str) -> str:
    return folder[-32:]


def _lock_of(folder: str) -> str:
    """Path of the lock that a process of this machine makes in a folder."""
    machine = os.uname().nodename.replace("/", "_")[:64]
    return os.path.join(folder, f"{_digits(folder)}-{machine}")
