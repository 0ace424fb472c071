"""The command `sinkprop report`: an HTML page about a comparison or saved models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sinkprop.cli.evaluation.options import (
    OrderedCommand,
    System,
    SystemType,
    given_systems,
    input_files,
)
from sinkprop.cli.evaluation.systems import RankedFile
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
    with_features_of,
)
from sinkprop.experiment import DEFAULT_METRICS

if TYPE_CHECKING:
    pass

__all__ = ["report_command", "report_on_comparison", "report_on_systems"]

PAGE = Path("report.html")


@click.command(
    "report", cls=OrderedCommand, short_help="Write an HTML page about a comparison or saved models."
)
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
    type=SystemType("model"),
    multiple=True,
    metavar="[NAME=]FILE",
    help="Saved model to apply to SOURCE, optionally with a name to show. Can be given several times.",
)
@click.option(
    "--scores",
    type=SystemType("scores"),
    multiple=True,
    metavar="[NAME=]FILE|@COLUMN",
    help="Scores of the rows of SOURCE, such as those in production: a file with one number per line or, "
    "with @, a column of SOURCE (in LETOR text, the id of a feature). Can be given several times.",
)
@click.option("--title", metavar="TEXT", help="Heading of the page.")
@metrics_option(DEFAULT_METRICS, default=False)
@convention_option()
@json_option("the data of the page")
@data_options
def report_command(
    source: Path,
    out: Path,
    title: str | None,
    metrics: str | None,
    convention: str | None,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Write an HTML page about a comparison, or about saved models on a file.

    \b
    sinkprop compare OHSUMED --json results.json && sinkprop report results.json
    sinkprop report test.txt --model my.model -o my-model.html
    sinkprop report test.txt --model ours=a.model --model theirs=b.model -o both.html
    sinkprop report test.parquet --scores production=@score --model new=my.model
    sinkprop report results.json --json - | jq .datasets[0].means

    Without --model and --scores, SOURCE is a file written by `sinkprop compare --json`. With them, SOURCE is
    a file or a stored set of labeled queries; the first model or scores are the reference of the tests.
    --metrics, --convention and the options for reading files require --model or --scores.

    The page shows the data, metrics with confidence intervals and significance tests, the course of
    training, wins and losses by query, feature weights, and the ranked documents of up to 200 queries with
    their rank probabilities.
    """  # noqa: D301
    systems = given_systems(options)
    reading = Reading.taken_from(options)
    files = input_files(systems)
    if systems and str(source) == "-" and "-" in map(str, files.values()):
        raise click.UsageError("SOURCE and the scores cannot both be stdin.")
    # "-" is stdin for inputs but stdout for outputs, so these do not conflict
    files = {option: path for option, path in {"SOURCE": source, **files}.items() if str(path) != "-"}
    keep_apart({"--out": out, "--json": json_file}, {"--group": reading.group, **files})
    if systems:
        data = report_on_systems(source, systems, reading, metrics, convention, title)
    else:
        _refuse(metrics=metrics, convention=convention, **vars(reading))
        data = report_on_comparison(source, title)
    with working("writing the report"):
        from sinkprop.report import write_report

        write_report(data, out)
    if json_file is not None:
        text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        write_output(json_file, text + "\n")
    if not is_stdout(json_file):
        say_written(console(), out, json_file)


def _refuse(**given: Any) -> None:
    """Raise a usage error if an option is given that does not apply to a saved comparison."""
    for name, value in given.items():
        if value is not None and value is not False:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(
                f"{option} is for data with --model or --scores; a saved comparison already contains its "
                "results."
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


def report_on_systems(
    source: Path,
    systems: Sequence[System],
    reading: Reading,
    metrics: str | None = None,
    convention: str | None = None,
    title: str | None = None,
) -> dict[str, Any]:
    """The data of the page about saved models, and systems of which only scores are known, on a file."""
    from sinkprop.report import models_report

    ranked = RankedFile.read(source, reading, systems)
    queries = taken = ranked.loaded()
    first: Any = None
    for system, ranker in ranked.rankers.items():
        taken = with_features_of(ranker, queries, model_name=system.value, data_name=ranked.name)
        known = getattr(ranker, "feature_names_in_", None)
        order = None if known is None or queries.feature_names is None else tuple(map(str, known))
        if first is not None and first[1] != order:
            raise ValueError(
                f"{system.value} and {first[0]} have their features in different orders; write one report "
                "per model."
            )
        first = (system.value, order)
    given = {"metrics": metrics, "convention": convention}
    measured: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    shown = {s.name: ranked.rankers[s] if s in ranked.rankers else ranked.scores(s) for s in systems}
    with working(f"ranking {len(queries):,} documents"), notes_on_stderr():
        return models_report(
            shown,
            taken,
            title=title,
            name=source.name if str(source) != "-" else "stdin",
            command=command_line(),
            **measured,
        )
