"""Files that are replaced whole: a reader sees the old file or the new one, never a part of either.

What is new is written under the file's own name in a hidden folder beside it, flushed to the disk, and then
renamed into place, which a file system does in one step. An exception, a full disk or an interrupt before
that step leaves the old file as it was and removes the folder. A process that is killed may leave a folder
`.sinkprop-...` behind, which nothing reads and which may be deleted.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["replacing", "write_atomically"]

StrPath = str | os.PathLike[str]


def write_atomically(path: StrPath, data: bytes | str) -> None:
    r"""A file written in one step: text as UTF-8, with its line ends as they are. See `replacing`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "figures.csv")
    ...     write_atomically(path, "n,time\n")
    ...     path.read_bytes()
    b'n,time\n'
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    with replacing(path) as temporary, open(temporary, "wb") as handle:
        handle.write(content)


@contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """A path to write to, for the length of a block; when the block ends well, its file becomes `path`.

    The temporary path has the name of `path`, so that writers which go by the suffix do as usual. Nothing
    stands there until the block makes a regular file, and only this user can reach it. If the block raises
    anything, or anything fails before the rename, `path` is as it was.

    A new file has the permissions that the writer and the umask give it. One that takes the place of another
    has the other's permissions, and its owner and group where the process may give them; where it may not,
    the new group is allowed no more than everyone is. A symbolic link stays one: what it points to is
    replaced. Other hard links keep the old content. A directory, a device or a pipe, or a file that may not
    be written, is refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "scores.txt")
    ...     with replacing(path) as temporary:
    ...         _ = temporary.write_text("0.5")
    ...         path.exists(), temporary.name
    ...     path.read_text(), [p.name for p in Path(folder).iterdir()]
    (False, 'scores.txt')
    ('0.5', ['scores.txt'])
    """
    target = os.path.realpath(path)  # absolute, so that a block may change the working directory
    _replaceable(target, path)
    parent, name = os.path.split(target)
    # Named before it is made, so that no interrupt falls between the making and the removal.
    folder = os.path.join(parent, f".sinkprop-{secrets.token_hex(16)}")
    try:
        try:
            os.mkdir(folder, 0o700)
            made = stat.S_IMODE(os.stat(folder).st_mode)
            if made & 0o700 != 0o700:  # a umask that takes rights from the user as well
                os.chmod(folder, made | 0o700)
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        temporary = os.path.join(folder, name)
        yield Path(temporary)
        _finish(temporary, _replaceable(target, path))
        os.replace(temporary, target)
        # By now the new file stands, and the worst that a power cut can do is to bring the old one back,
        # whole. So a file system that cannot flush a folder is no failure to report.
        with suppress(OSError):
            _flush(parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _replaceable(target: str, path: StrPath) -> os.stat_result | None:
    """What stands at the target, or None; OSError where it is not a file that may be written."""
    if os.path.islink(target):  # the real path of a circle of links is one of them
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file, so it cannot be replaced", os.fspath(path))
    # A rename asks for rights to the folder only; a file that is protected from writing is meant to stay.
    if not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    return old


def _finish(temporary: str, old: os.stat_result | None) -> None:
    """The temporary file complete, with the permissions of the file it replaces, and on the disk."""
    try:
        new = os.lstat(temporary)
    except FileNotFoundError:
        new = None
    if new is None or not stat.S_ISREG(new.st_mode):
        raise FileNotFoundError(
            errno.ENOENT, "The block wrote no regular file to the temporary path", temporary
        )
    if old is not None:
        permissions = stat.S_IMODE(old.st_mode) & 0o777
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) and not _give(temporary, old):
            permissions &= 0o707 | (permissions & 0o007) << 3
        os.chmod(temporary, permissions)
    _flush(temporary)


def _give(temporary: str, old: os.stat_result) -> bool:
    """Whether the file now has the old one's group; its owner too where that is allowed."""
    for owner in (old.st_uid, -1):
        with suppress(OSError):
            os.chown(temporary, owner, old.st_gid)
            return True
    return False


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
