"""The click group and the table of its commands, each imported when it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

import click

import sinkprop

__all__ = ["COMMANDS", "sinkprop_program"]

# name and short help; `train` is `train_command` of the module `sinkprop.cli.train`, and so on
COMMANDS = {
    "bench": "Time value and gradient beside other packages.",
    "compare": "Compare methods on the folds of LETOR data.",
    "convert": "Convert LETOR text, CSV or Parquet to a stored set.",
    "demo": "Train on the embedded data set and show what it does.",
    "evaluate": "Evaluate a model, scores, a feature or a TREC run.",
    "export": "Write a model for ONNX, Elasticsearch, OpenSearch or Solr.",
    "predict": "Score or rank the documents of a file, or write a TREC run.",
    "report": "A page for the browser: of a comparison, or of saved models.",
    "train": "Train a ranker on a file or a stored set and save it.",
}


class _WhenAsked(Mapping[str, click.Command]):
    """The commands by name, imported one by one."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in COMMANDS:
            raise KeyError(name)
        command: click.Command = getattr(import_module(f"sinkprop.cli.{name}"), f"{name}_command")
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Program(click.Group):
    """A group that lists its commands without importing them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    "sinkprop",
    cls=_Program,
    commands=_WhenAsked(),
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
