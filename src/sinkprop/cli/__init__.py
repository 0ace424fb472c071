"""The program `sinkprop`: reads options, calls the library, prints.

click and rich come with the extra "cli" and are imported when the program runs, so this package can always be
imported. Results go to stdout, progress and errors to stderr. Each command has a module of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import sinkprop
from sinkprop.cli.bench import bench_command
from sinkprop.cli.compare import compare_command
from sinkprop.cli.convert import convert_command
from sinkprop.cli.demo import demo_command
from sinkprop.cli.evaluate import evaluate_command
from sinkprop.cli.export import export_command
from sinkprop.cli.options import installed
from sinkprop.cli.output import complain
from sinkprop.cli.predict import predict_command
from sinkprop.cli.report import report_command
from sinkprop.cli.train import train_command

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
        given = sys.argv[1:] if arguments is None else list(arguments)
        status = program().main(given, prog_name="sinkprop", standalone_mode=False, obj=given)
        sys.stdout.flush()  # so that a full disk is an error here, and not at the end of the interpreter
    except click.Abort:
        return 130
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "sinkprop"
        hint = f" See {where} --help." if isinstance(error, click.UsageError) else ""
        return complain(error.format_message() + hint, error.exit_code)
    except OSError as error:
        _abandon_stdout()
        if isinstance(error, BrokenPipeError):  # whoever read has enough, as `head` does
            return 1
        what = error.strerror or str(error) or type(error).__name__
        return complain(what if error.filename is None else f"{os.fsdecode(error.filename)}: {what}.", 1)
    except (ValueError, MemoryError) as error:
        return complain(str(error) or type(error).__name__, 1)
    except Exception as error:
        if os.environ.get("SINKPROP_TRACEBACK"):
            raise
        return complain(
            f"this is a defect in sinkprop {sinkprop.__version__}, please report it: {type(error).__name__}: "
            f"{error}. With SINKPROP_TRACEBACK=1 set, the same command shows where.",
            1,
        )
    return status if isinstance(status, int) else 0


def _abandon_stdout() -> None:
    """Nothing more to write at the end of the interpreter, if what is written does not arrive."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError), open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


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
        sinkprop demo                                    see it work, under a minute
        sinkprop train train.txt --model m.model         train on LETOR text or Parquet
        sinkprop evaluate test.txt --model m.model       NDCG and others, convention stated
        sinkprop predict m.model test.txt > scores.txt   scores, ranks or a TREC run
        sinkprop compare OHSUMED                         methods on the folds of LETOR data
        sinkprop report results.json -o report.html      a page for the browser, with every query
        sinkprop convert logs.parquet -o logs.queries    data larger than memory, for every command
        sinkprop export m.model --to onnx -o m.onnx      for ONNX, Elasticsearch, OpenSearch, Solr
        sinkprop bench --quick                           how fast it is on this machine

        Every command explains itself by examples: sinkprop train --help. Results go to stdout, progress and
        errors to stderr; --json - is for machines. Exit codes: 0 done, 1 failed, 2 wrong use, 130
        interrupted.
        """  # noqa: D301 - click's mark for lines to keep
        if context.invoked_subcommand is None:
            click.echo(context.get_help())

    for command in (
        demo_command,
        train_command,
        predict_command,
        evaluate_command,
        compare_command,
        report_command,
        convert_command,
        export_command,
        bench_command,
    ):
        sinkprop_program.add_command(command())
    return sinkprop_program
