"""Files that are replaced whole: a reader sees the old file or the new one, never a part of either.

The new content is written under the file's name in a hidden folder beside it, flushed to the disk, and then
renamed into place, which a file system does in one step. An exception, a full disk or an interrupt before
that step leaves the old file unchanged and removes the folder. A process that is killed may leave a folder
`.sinkprop-...` behind. Nothing reads such a folder, and the next write beside it removes it (`leftovers`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sinkprop.common.leftovers import working_folder

__all__ = ["naming", "replacing", "write_atomically"]

StrPath = str | os.PathLike[str]

# A full disk, a user's quota, the largest size of a file, and a failing device.
_NOT_WRITTEN = {errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)}


def write_atomically(path: StrPath, data: bytes | str) -> None:
    r"""Write a file in one step: text as UTF-8, with its line ends unchanged. See `replacing`.

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
    """Context manager: give a temporary path to write to; if the block succeeds, rename that file to `path`.

    The temporary path has the file name of `path`, so that writers that choose a format by the suffix work
    as usual. No file exists there until the block creates a regular file, and only this user can reach it. If
    the block raises anything, or anything fails before the rename, `path` is unchanged.

    A new file has the permissions that the writer and the umask give it. A file that replaces another takes
    over its permissions, and its owner and group if the process may set them. If it may not set the group,
    the group of the new file gets only permissions that all users have. A symbolic link is kept: the file
    that it points to is replaced. Other hard links keep the old content. Raises an OSError if `path` is a
    directory, a device, a pipe or a file that may not be written.

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
    target = os.path.realpath(path)  # absolute, so that the `with` block may change the working directory
    _replaceable(target, path)
    parent, name = os.path.split(target)
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(working_folder(parent))
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        stack.enter_context(naming(path, folder))
        temporary = os.path.join(folder, name)
        yield Path(temporary)
        _finish(temporary, _replaceable(target, path))
        os.replace(temporary, target)
        # The new file is in place, and the worst that a power cut can do is to bring the whole old file
        # back. So a file system that cannot flush a folder is not reported as a failure.
        with suppress(OSError):
            _flush(parent)


@contextmanager
def naming(path: StrPath, folder: StrPath | None = None) -> Iterator[None]:
    """Context manager: name the file `path` in the error if the disk cannot take what the block writes.

    Applies to an OSError of a full disk, a quota, a file that is too large or a device that fails, if the
    error names no file or names a temporary file somewhere in `folder`.

    >>> with naming("my.model"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: 'my.model'
    """
    try:
        yield
    except OSError as error:
        named, place = error.filename, None if folder is None else os.path.join(folder, "")
        temporary = place is not None and isinstance(named, str) and named.startswith(place)
        if error.errno not in _NOT_WRITTEN or not (named is None or temporary):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _replaceable(target: str, path: StrPath) -> os.stat_result | None:
    """Return the status of the file at `target`, or None if there is no file.

    Raises an OSError, which names `path`, if the file may not be replaced.
    """
    if os.path.islink(target):  # still a link after realpath: the links form a cycle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file, so it cannot be replaced", os.fspath(path))
    # A rename needs rights to the folder only, but a write-protected file must not be replaced.
    if not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    return old


def _finish(temporary: str, old: os.stat_result | None) -> None:
    """Check that the temporary file exists, give it the permissions of the old one, and flush it to disk."""
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
    """Give the new file the group of the old file and, if allowed, its owner.

    Returns whether the group could be set.
    """
    for owner in (old.st_uid, -1):
        with suppress(OSError):
            os.chown(temporary, owner, old.st_gid)
            return True
    return False


def _flush(path: str) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
