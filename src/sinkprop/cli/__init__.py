"""The program `sinkprop`: reads options, calls the library and prints the results.

click and rich come with the extra "cli" and are imported when the program runs, so this package can always be
imported. Results go to stdout, progress and errors to stderr. Each command has its own module, which is
imported when the command is called.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import sinkprop
from sinkprop.cli.output import complain
from sinkprop.common.packages import installed
from sinkprop.common.process import Terminated, abandon_stdout, closed_streams_opened, orderly_end

if TYPE_CHECKING:
    import click

__all__ = ["main", "program"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit with code 0 if it succeeds.

    The other exit codes are 1 for a failure, 2 for wrong usage or a missing extra, 130 if interrupted, and
    143 if terminated by SIGTERM.
    """
    closed_streams_opened()
    try:
        with orderly_end():
            raise SystemExit(_run(arguments))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Terminated as end:
        abandon_stdout()
        raise SystemExit(complain(end.reason, end.status)) from None


def _run(arguments: Sequence[str] | None) -> int:
    missing = [name for name in ("click", "rich") if not installed(name)]
    if missing:
        return complain(f'the command line needs {" and ".join(missing)}: pip install "sinkprop[cli]"', 2)
    import click

    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        status = program().main(given, prog_name="sinkprop", standalone_mode=False, obj=given)
        sys.stdout.flush()  # flush here, so that a full disk is reported now and not at the exit of Python
    except click.Abort:
        return 130
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "sinkprop"
        hint = f" See {where} --help." if isinstance(error, click.UsageError) else ""
        return complain(error.format_message() + hint, error.exit_code)
    except OSError as error:
        return _failed(error)
    except (ValueError, MemoryError) as error:
        return complain(str(error) or type(error).__name__, 1)
    except Exception as error:
        if os.environ.get("SINKPROP_TRACEBACK"):
            raise
        return complain(
            f"this is a bug in sinkprop {sinkprop.__version__}; please report it: {type(error).__name__}: "
            f"{error}. Set SINKPROP_TRACEBACK=1 and run the same command to see the traceback.",
            1,
        )
    return status if isinstance(status, int) else 0


def _failed(error: OSError) -> int:
    """Print an error of the system, with the file that it concerns, and return the exit code."""
    to_stdout = abandon_stdout()
    if isinstance(error, BrokenPipeError):  # the reader has closed the pipe, as `head` does
        return 1
    # Errors of reading stdin and of writing files name these, so what is left was meant for stdout.
    to_stdout |= error.errno in (errno.EBADF, errno.ENOSPC, errno.EFBIG, errno.EIO)
    name = error.filename if error.filename is not None else "stdout" if to_stdout else None
    closed = error.errno == errno.EBADF and name in ("stdin", "stdout")
    what = "It is closed" if closed else error.strerror or str(error) or type(error).__name__
    return complain(what if name is None else f"{os.fsdecode(name)}: {what}.", 1)


def program() -> click.Group:
    """The click group with every command."""
    from sinkprop.cli.commands import sinkprop_program

    return sinkprop_program
