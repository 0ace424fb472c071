"""The program `sinkprop`: reads options, calls the library, prints.

click and rich come with the extra "cli" and are imported when the program runs, so this package can always be
imported. Results go to stdout, progress and errors to stderr. Each command has a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import sinkprop
from sinkprop.cli.bench import bench_command
from sinkprop.cli.compare import compare_command
from sinkprop.cli.shared import complain, installed

if TYPE_CHECKING:
    import click

__all__ = ["main", "program"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit: 0 done, 1 failed, 2 wrong use or a missing extra, 130 interrupted."""
    try:
        raise SystemExit(_run(arguments))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _run(arguments: Sequence[str] | None) -> int:
    missing = [name for name in ("click", "rich") if not installed(name)]
    if missing:
        return complain(f'the command line needs {" and ".join(missing)}: pip install "sinkprop[cli]"', 2)
    import click

    try:
        status = program().main(arguments, prog_name="sinkprop", standalone_mode=False)
    except click.Abort:
        return 130
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "sinkprop"
        hint = f" See {where} --help." if isinstance(error, click.UsageError) else ""
        return complain(error.format_message() + hint, error.exit_code)
    except (OSError, ValueError, MemoryError) as error:
        return complain(str(error) or type(error).__name__, 1)
    return status if isinstance(status, int) else 0


def program() -> click.Group:
    """The click group with every command."""
    import click

    @click.group(
        "sinkprop",
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    @click.version_option(sinkprop.__version__, prog_name="sinkprop", message="%(prog)s %(version)s")
    @click.pass_context
    def sinkprop_program(context: click.Context) -> None:
        """Learning to rank on the expected value of the metric itself, in linear time.

        \b
        sinkprop bench --quick        how fast it is on this machine, in 20 seconds
        sinkprop bench --help         what else bench measures
        sinkprop compare OHSUMED      methods on the five folds of LETOR data, side by side
        """  # noqa: D301 - click's mark for lines to keep
        if context.invoked_subcommand is None:
            click.echo(context.get_help())

    sinkprop_program.add_command(bench_command())
    sinkprop_program.add_command(compare_command())
    return sinkprop_program
