"""The click group and the table of its commands, each imported when it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

import click

import sinkprop

__all__ = ["COMMANDS", "sinkprop_program"]

# {name: short help}. The command `train` is `train_command` in the module `sinkprop.cli.train`, and so on.
COMMANDS = {
    "bench": "Measure the speed of the objective and of other packages.",
    "clicks": "Estimate position bias from a click log.",
    "compare": "Compare ranking methods on the folds of LETOR data.",
    "convert": "Convert LETOR text, CSV or Parquet to a stored set.",
    "demo": "Train on a bundled data set and show the results.",
    "evaluate": "Compute metrics of a model, scores, a feature or a TREC run.",
    "export": "Export a model to ONNX, Elasticsearch, OpenSearch or Solr.",
    "predict": "Score or rank the documents in a file, or write a TREC run.",
    "report": "Write an HTML page about a comparison or saved models.",
    "train": "Train a ranker on a file or a stored set and save it.",
}


class _WhenAsked(Mapping[str, click.Command]):
    """A mapping from names to commands that imports a command when it is looked up."""

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
    """Learning to rank on the expected value of the ranking metric, in linear time.

    \b
    sinkprop demo                                    see it work, in under a minute
    sinkprop train train.txt --model m.model         train on LETOR text or Parquet
    sinkprop evaluate test.txt --model m.model       NDCG and other metrics
    sinkprop predict m.model test.txt > scores.txt   scores, ranks or a TREC run
    sinkprop clicks bias log.parquet                 position bias in a log of clicks
    sinkprop compare OHSUMED                         methods on the folds of LETOR data
    sinkprop report results.json -o report.html      an HTML page to explore queries
    sinkprop convert logs.parquet -o logs.queries    a stored set, for data larger than memory
    sinkprop export m.model --to onnx -o m.onnx      for ONNX, Elasticsearch, OpenSearch, Solr
    sinkprop bench --quick                           how fast it is on this machine

    Run `sinkprop COMMAND --help` for examples and options. Results go to stdout, progress and errors to
    stderr; with --json -, only JSON goes to stdout. Exit codes: 0 success, 1 failure, 2 wrong usage,
    130 interrupted, 143 terminated.
    """  # noqa: D301
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
