"""The command `sinkprop report`: an HTML page about a comparison or saved models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sinkprop.cli.options import (
    check_page,
    convention_option,
    data_options,
    data_path,
    json_option,
    keep_apart,
    metrics_option,
    output_option,
)
from sinkprop.cli.output import (
    command_line,
    console,
    is_stdout,
    notes_on_stderr,
    say_written,
    working,
    write_output,
)
from sinkprop.cli.reading import (
    Reading,
    file_name,
    read_bytes,
    read_model_file,
    read_queries,
    with_features_of,
)
from sinkprop.experiment import DEFAULT_METRICS

if TYPE_CHECKING:
    from sinkprop.estimator.base import BaseRanker

__all__ = ["report_command", "report_on_comparison", "report_on_models"]

PAGE = Path("report.html")


@click.command("report", short_help="Write an HTML page about a comparison or saved models.")
@click.argument("source", type=data_path(stored=True))
@output_option(
    "-o",
    "--out",
    check=check_page,
    default=PAGE,
    help=f"Output file, one HTML page that works offline.  [default: {PAGE}]",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Saved model to apply to SOURCE, optionally with a name to show. Can be given several times.",
)
@click.option("--title", metavar="TEXT", help="Heading of the page.")
@metrics_option(DEFAULT_METRICS, default=False)
@convention_option()
@json_option("the data of the page")
@data_options
def report_command(
    source: Path,
    out: Path,
    models: tuple[str, ...],
    title: str | None,
    metrics: str | None,
    convention: str | None,
    json_file: Path | None,
    **reading: Any,
) -> None:
    """Write an HTML page about a comparison, or about saved models on a file.

    \b
    sinkprop compare OHSUMED --json results.json && sinkprop report results.json
    sinkprop report test.txt --model my.model -o my-model.html
    sinkprop report test.txt --model ours=a.model --model theirs=b.model -o both.html
    sinkprop report results.json --json - | jq .datasets[0].means

    Without --model, SOURCE is a file written by `sinkprop compare --json`. With --model, SOURCE is a file
    or a stored set of labeled queries. --metrics, --convention and the options for reading files require
    --model.

    The page shows the data, metrics with confidence intervals and significance tests, the course of
    training, wins and losses by query, feature weights, and the ranked documents of up to 200 queries with
    their rank probabilities.
    """  # noqa: D301
    named = _named(models)
    files: dict[str, Path | None] = {f"--model {path}": path for path in named.values()}
    if str(source) != "-":  # "-" is stdin for SOURCE but stdout for outputs, so these do not conflict
        files["SOURCE"] = source
    keep_apart({"--out": out, "--json": json_file}, {"--group": reading["group"], **files})
    if named:
        data = report_on_models(source, named, Reading(**reading), metrics, convention, title)
    else:
        _refuse(metrics=metrics, convention=convention, **reading)
        data = report_on_comparison(source, title)
    with working("writing the report"):
        from sinkprop.report import write_report

        write_report(data, out)
    if json_file is not None:
        text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        write_output(json_file, text + "\n")
    if not is_stdout(json_file):
        say_written(console(), out, json_file)


def _named(models: Sequence[str]) -> dict[str, Path]:
    """Return {name: file} for the values of --model, which have the form [NAME=]FILE.

    The default name is the file name without its suffix. Raises a usage error if a file does not exist or two
    models have the same name.
    """
    found: dict[str, Path] = {}
    for text in models:
        name, equals, rest = text.partition("=")
        path = Path(text)
        if equals and not path.exists():
            path = Path(rest)
        else:
            name = path.stem
        if not path.is_file():
            raise click.UsageError(f"--model: there is no file {str(path)!r}.")
        if not name.strip():
            raise click.UsageError(f"--model {text!r}: expected NAME=FILE; the name is empty.")
        if name in found:
            raise click.UsageError(
                f"--model: two models are called {name!r}; name them, such as --model other={path}."
            )
        found[name] = path
    return found


def _refuse(**given: Any) -> None:
    """Raise a usage error if an option is given that does not apply to a saved comparison."""
    for name, value in given.items():
        if value is not None and value is not False:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(
                f"{option} is for data with --model; a saved comparison already contains its results."
            )


def report_on_comparison(source: Path, title: str | None = None) -> dict[str, Any]:
    """The data of the page about a comparison that was saved as JSON."""
    from sinkprop.experiment import Comparison
    from sinkprop.report import comparison_report

    name = file_name(source)
    if source.is_dir():
        raise ValueError(f"{name} is a stored set. To report on data, give a saved model: --model FILE.")
    with working(f"reading {name}"):
        text = _text(source, name)
        try:
            found = Comparison.from_json(text)
        except ValueError as error:
            raise ValueError(
                f"{name}: {error} To report on data, give a saved model: --model FILE."
            ) from None
        return comparison_report(found, title=title, command=command_line())


def _text(source: Path, name: str) -> str:
    try:
        return read_bytes(source).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(
            f"{name}: not a comparison written by `sinkprop compare --json`. To report on data, give a "
            "saved model: --model FILE."
        ) from None


def report_on_models(
    source: Path,
    named: dict[str, Path],
    reading: Reading,
    metrics: str | None = None,
    convention: str | None = None,
    title: str | None = None,
) -> dict[str, Any]:
    """The data of the page about saved models on the queries of a file. `named` is {name: model file}."""
    from sinkprop.report import models_report

    rankers: dict[str, BaseRanker] = {name: read_model_file(path) for name, path in named.items()}
    queries = read_queries(source, reading, rankers=rankers.values())
    name = file_name(source)
    first: Any = None
    for method, ranker in rankers.items():
        taken = with_features_of(ranker, queries, model_name=file_name(named[method]), data_name=name)
        known = getattr(ranker, "feature_names_in_", None)
        order = None if known is None or queries.feature_names is None else tuple(map(str, known))
        if first is not None and first[1] != order:
            raise ValueError(
                f"{file_name(named[method])} and {first[0]} have their features in different orders; write "
                "one report per model."
            )
        first = (file_name(named[method]), order)
    given = {"metrics": metrics, "convention": convention}
    measured: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    with working(f"ranking {len(queries):,} documents"), notes_on_stderr():
        return models_report(
            rankers,
            taken,
            title=title,
            name=source.name if str(source) != "-" else "stdin",
            command=command_line(),
            **measured,
        )
