"""Files replaced whole: permissions, links, and what is left when a write fails or is killed."""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sinkprop.common import atomic
from sinkprop.common.atomic import replacing, write_atomically

posix = pytest.mark.skipif(os.name != "posix", reason="permissions, signals and links as POSIX has them")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file to replace, alone in its folder."""
    path = tmp_path / "model.json"
    path.write_bytes(b"old")
    return path


def assert_untouched(path: Path) -> None:
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"", b""),
        (b"\x00\r\n\xff", b"\x00\r\n\xff"),
        ("", b""),
        ("Gr\u00f6\u00dfe\n\r\n", b"Gr\xc3\xb6\xc3\x9fe\n\r\n"),
        (b"x" * 3_000_000, b"x" * 3_000_000),
    ],
    ids=["no bytes", "bytes", "no text", "text", "3 MB"],
)
@pytest.mark.parametrize("exists", [False, True], ids=["new", "replaced"])
def test_content_is_written_as_it_is(tmp_path: Path, data: bytes | str, content: bytes, exists: bool) -> None:
    path = tmp_path / "file"
    if exists:
        path.write_bytes(b"something longer than nothing")
    assert write_atomically(path, data) is None
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_may_be_text_and_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically("file", b"1")
    assert Path("file").read_bytes() == b"1"
    (tmp_path / "elsewhere").mkdir()
    with replacing("file") as temporary:
        temporary.write_bytes(b"2")
        os.chdir("elsewhere")
    assert (tmp_path / "file").read_bytes() == b"2"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_writer_sees_the_name_and_suffix_and_others_see_the_old_file(old: Path) -> None:
    with replacing(old) as temporary:
        assert temporary.name == old.name
        assert not temporary.exists()
        temporary.write_bytes(b"half")
        assert old.read_bytes() == b"old"
    assert old.read_bytes() == b"half"
    assert list(old.parent.iterdir()) == [old]


def test_a_writer_that_goes_by_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    with replacing(path) as temporary:
        np.savez(temporary, a=np.arange(3))
    with np.load(path) as arrays:
        np.testing.assert_array_equal(arrays["a"], [0, 1, 2])


def test_the_longest_name_that_a_file_can_have(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".json")
    write_atomically(path, b"1")
    assert path.read_bytes() == b"1"


class Odd(BaseException):
    """Neither an Exception nor one of Python's own."""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, MemoryError, Odd])
def test_an_exception_in_the_block_leaves_the_old_file(old: Path, error: type[BaseException]) -> None:
    def write_half() -> None:
        with replacing(old) as temporary:
            temporary.write_bytes(b"half of the n")
            raise error

    with pytest.raises(error):
        write_half()
    assert_untouched(old)


@pytest.mark.parametrize("call", ["mkdir", "chmod", "open", "fsync", "replace"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr
)
def test_a_failure_at_any_step_leaves_the_old_file(
    old: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    def fail_once(*arguments: object, **options: object) -> None:
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(atomic.os, call, fail_once)
    with pytest.raises(type(error)) as caught:
        write_atomically(old, b"new")
    assert_untouched(old)
    if isinstance(error, OSError):
        assert caught.value.filename == str(old)


def test_a_failure_leaves_nothing_where_nothing_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(atomic.os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_atomically(tmp_path / "new", b"new")
    assert not list(tmp_path.iterdir())


@posix
def test_a_write_that_the_system_cuts_short(old: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits the size of files")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match=f"File too large: '{re.escape(str(old))}'"):
            write_atomically(old, b"n" * 300_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_untouched(old)


def test_the_file_is_flushed_before_the_rename_and_the_folder_after_it(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    fsync, replace = os.fsync, os.replace

    def watch_fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        steps.append("folder" if stat.S_ISDIR(found.st_mode) else f"file of {found.st_size}")
        fsync(descriptor)

    def watch_replace(*paths: str) -> None:
        steps.append("rename")
        replace(*paths)

    monkeypatch.setattr(atomic.os, "fsync", watch_fsync)
    monkeypatch.setattr(atomic.os, "replace", watch_replace)
    write_atomically(old, b"12345")
    assert steps == ["file of 5", "rename", "folder"]


def test_a_folder_that_cannot_be_flushed_is_no_failure(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(atomic.os, "fsync", files_only)
    write_atomically(old, b"new")
    assert old.read_bytes() == b"new"


@pytest.mark.parametrize(
    "leave",
    [
        lambda temporary: None,
        lambda temporary: temporary.mkdir(),
        lambda temporary: temporary.symlink_to(__file__),
        lambda temporary: temporary.with_suffix(".npz").write_bytes(b"new"),
    ],
    ids=["nothing", "a folder", "a link", "another name"],
)
def test_a_block_that_makes_no_file_is_an_error(old: Path, leave: Callable[[Path], object]) -> None:
    with pytest.raises(FileNotFoundError, match="wrote no regular file"), replacing(old) as temporary:
        leave(temporary)
    assert_untouched(old)


def test_a_missing_folder_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "model.json"
    with pytest.raises(FileNotFoundError, match=re.escape(str(path))):
        write_atomically(path, b"")


def test_a_folder_that_is_a_file(old: Path) -> None:
    with pytest.raises(NotADirectoryError):
        write_atomically(old / "model.json", b"")
    assert_untouched(old)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        write_atomically(tmp_path, b"")
    assert not list(tmp_path.iterdir())


@posix
def test_a_pipe_and_a_device_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(OSError, match="Not a regular file"):
            write_atomically(path, b"")
        assert not stat.S_ISREG(path.stat().st_mode)


def test_data_of_another_type(old: Path) -> None:
    with pytest.raises(TypeError):
        write_atomically(old, 3)  # type: ignore[arg-type]
    assert_untouched(old)


@posix
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o027, 0o077, 0o222])
def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        write_atomically(tmp_path / "ours", b"")
        (tmp_path / "plain").touch()
    assert mode(tmp_path / "ours") == mode(tmp_path / "plain") == 0o666 & ~mask


@posix
@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o664, 0o666, 0o755])
@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_a_replaced_file_keeps_its_permissions(old: Path, permissions: int, mask: int) -> None:
    old.chmod(permissions)
    with umask(mask):
        write_atomically(old, b"new")
    assert mode(old) == permissions
    assert old.read_bytes() == b"new"


@posix
def test_nobody_else_can_read_what_is_being_written(old: Path) -> None:
    with umask(0o000), replacing(old) as temporary:
        temporary.write_bytes(b"new")
        assert mode(temporary.parent) == 0o700


@posix
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link, chain = tmp_path / "there" / "model-3.json", tmp_path / "latest.json", tmp_path / "chain"
    target.write_bytes(b"old")
    link.symlink_to("there/model-3.json")
    chain.symlink_to(link)
    for path, content in ((link, b"1"), (chain, b"2")):
        write_atomically(path, content)
        assert target.read_bytes() == content
        assert not target.is_symlink()
    assert os.readlink(link) == "there/model-3.json"
    assert os.readlink(chain) == str(link)
    assert list(target.parent.iterdir()) == [target]


@posix
def test_a_link_to_nothing_makes_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("target")
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


@posix
def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=re.escape(os.strerror(errno.ELOOP))):
        write_atomically(tmp_path / "a", b"")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@posix
def test_another_hard_link_keeps_the_old_content(old: Path) -> None:
    other = old.with_name("other")
    os.link(old, other)
    write_atomically(old, b"new")
    assert (old.read_bytes(), other.read_bytes()) == (b"new", b"old")


NOBODY = 65534

WRITE_AS_ORDINARY_USER = f"""
import os, sys
from sinkprop.common.atomic import write_atomically

if os.geteuid() == 0:  # after the imports, which an ordinary user may not be able to read
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
write_atomically(sys.argv[1], b"new")
"""


@pytest.fixture
def users_folder() -> Iterator[Path]:
    """An empty folder of a user without root's rights."""
    if os.name != "posix":
        pytest.skip("permissions as POSIX has them")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


def write_as_user(path: Path) -> str:
    """What a user without root's rights is told who writes "new" to the path: nothing, or the error."""
    command = [sys.executable, "-c", WRITE_AS_ORDINARY_USER, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stderr.splitlines()[-1] if run.returncode else ""


def test_a_file_protected_from_writing_is_refused(users_folder: Path) -> None:
    path = users_folder / "model.json"
    assert write_as_user(path) == ""
    path.write_bytes(b"old")
    path.chmod(0o444)
    assert write_as_user(path) == f"PermissionError: [Errno 13] Permission denied: {str(path)!r}"
    assert_untouched(path)
    assert mode(path) == 0o444


def test_a_folder_protected_from_writing_is_refused(users_folder: Path) -> None:
    path = users_folder / "model.json"
    path.write_bytes(b"old")
    path.chmod(0o666)
    path.parent.chmod(0o555)
    try:
        assert write_as_user(path) == f"PermissionError: [Errno 13] Permission denied: {str(path)!r}"
        assert_untouched(path)
    finally:
        path.parent.chmod(0o755)


def test_a_folder_that_may_not_be_listed(users_folder: Path) -> None:
    path = users_folder / "model.json"
    path.parent.chmod(0o333)
    try:
        assert write_as_user(path) == ""
    finally:
        path.parent.chmod(0o755)
    assert path.read_bytes() == b"new"


needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)


@needs_root
def test_root_keeps_the_owner_of_a_file(old: Path) -> None:
    os.chown(old, NOBODY, 1)
    old.chmod(0o640)
    write_atomically(old, b"new")
    found = old.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (NOBODY, 1, 0o640)


@needs_root
@pytest.mark.parametrize(
    ("before", "after"), [(0o664, 0o644), (0o660, 0o600), (0o646, 0o646), (0o777, 0o777)]
)
def test_a_group_that_cannot_be_kept_gives_its_rights_to_nobody(
    users_folder: Path, before: int, after: int
) -> None:
    path = users_folder / "model.json"
    path.write_bytes(b"old")
    os.chown(path, NOBODY, 0)
    path.chmod(before)
    assert write_as_user(path) == ""
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (NOBODY, NOBODY, after)


DIE_AT = """
import os, shutil, signal, sys
from sinkprop.common import atomic

def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)

path, step = sys.argv[1:]
with atomic.replacing(path) as temporary:
    if step == "before the write":
        die()
    with open(temporary, "wb") as handle:
        handle.write(b"n" * 50_000)
        handle.flush()
        if step == "half way":
            die()
        handle.write(b"n" * 50_000)
    if step == "before the flush":
        atomic.os.fsync = die
    elif step == "before the rename":
        atomic.os.replace = die
    elif step == "after the rename":
        atomic._flush = lambda path, flush=atomic._flush: die() if os.path.isdir(path) else flush(path)
    else:
        shutil.rmtree = die
"""


@posix
@pytest.mark.parametrize(
    ("step", "replaced"),
    [
        ("before the write", False),
        ("half way", False),
        ("before the flush", False),
        ("before the rename", False),
        ("after the rename", True),
        ("at the end", True),
    ],
)
def test_a_kill_at_each_step_leaves_the_old_file_or_the_new(old: Path, step: str, replaced: bool) -> None:
    run = subprocess.run([sys.executable, "-c", DIE_AT, str(old), step], check=False)
    assert run.returncode == -signal.SIGKILL
    assert old.read_bytes() == (b"n" * 100_000 if replaced else b"old")
    left = {p.name for p in old.parent.iterdir()} - {old.name}
    assert all(re.fullmatch(r"\.sinkprop-[0-9a-f]{32}", name) for name in left)
    write_atomically(old, b"and then")
    assert old.read_bytes() == b"and then"
    assert list(old.parent.iterdir()) == [old]


def test_threads_that_write_and_read_one_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = {bytes([65 + i]) * (1000 + 5000 * i) for i in range(4)}
    write_atomically(path, min(contents))
    stop, seen, failed = threading.Event(), set(), []

    def write(content: bytes) -> None:
        try:
            for _ in range(25):
                write_atomically(path, content)
        except BaseException as error:
            failed.append(error)

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    writers = [
        threading.Thread(target=write, args=(content,)) for content in random.sample(sorted(contents), 4)
    ]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert not failed
    assert seen <= contents
    assert list(tmp_path.iterdir()) == [path]
