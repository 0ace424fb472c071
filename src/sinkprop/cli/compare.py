"""The command `sinkprop compare`: a comparison of ranking methods on the folds of LETOR data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sinkprop.cli.options import (
    check_file,
    check_page,
    check_plot,
    comma_separated,
    convention_option,
    json_option,
    keep_apart,
    metrics_option,
    n_features_option,
    number_option,
    output_option,
    selection_option,
    whole_number,
)
from sinkprop.cli.output import command_line, console, is_stdout, progress, write_files
from sinkprop.experiment import DEFAULT_METHODS, DEFAULT_METRICS, find_data_sets, parse_methods
from sinkprop.experiment import compare as compare_methods
from sinkprop.experiment.methods import described
from sinkprop.metrics.measures import parse_metrics

if TYPE_CHECKING:
    from sinkprop.experiment import Comparison

__all__ = ["compare_command"]

_WIDTH = max(map(len, described()))
_METHODS = "\n".join(f"  {name:{_WIDTH}}  {text}" for name, text in described().items())


@click.command(
    "compare",
    short_help="Compare ranking methods on the folds of LETOR data.",
    epilog=f"\b\nMethods:\n{_METHODS}",
)
@click.argument(
    "folders",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--methods",
    default=DEFAULT_METHODS,
    metavar="NAME,...",
    show_default=True,
    help="Methods to compare; their names are listed below.",
)
@metrics_option(DEFAULT_METRICS)
@convention_option()
@click.option(
    "--against",
    metavar="NAME",
    help="Method with which significance tests compare the others.  [default: regression if it is among the "
    "methods, else the first method]",
)
@selection_option(
    "How every method chooses its hyperparameters; auto uses cross-validation for up to 500 queries and "
    "validation for more.  [default: depends on the method]"
)
@click.option(
    "--folds",
    metavar="N,...",
    callback=comma_separated(whole_number, "the number of a fold; give whole numbers, such as 1,2."),
    help="Numbers of the folds to use, such as 1,2.  [default: all]",
)
@click.option(
    "--name",
    metavar="TEXT",
    help="Name of the data set, if there is only one.  [default: taken from its path]",
)
@n_features_option()
@number_option("--jobs", help="Number of processes. Does not change the results.  [default: all processors]")
@click.option("--per-fold", is_flag=True, help="Print every metric of every fold, not only NDCG@10.")
@click.option(
    "--published",
    metavar="NAME,...",
    help="Published results to show: names of published methods, or all, or none.  [default: all in tables, "
    "two in the plot]",
)
@output_option(
    "--plot",
    check=check_plot,
    help="Plot test NDCG@k against k, one panel per data set, to a .png, .svg or .pdf file.",
)
@output_option(
    "--report",
    check=check_page,
    help="Write an HTML page with the tables, the training curves and the queries.",
)
@json_option(
    "all results, including the metrics of each query,",
    check=check_file,
)
@output_option(
    "--csv",
    "csv_file",
    check=check_file,
    help="Write CSV with one row per data set, fold, method and metric.",
)
@output_option(
    "--per-query",
    "query_file",
    check=check_file,
    help="Write CSV with one row per data set, fold, method, query and metric.",
)
def compare_command(
    folders: tuple[Path, ...],
    methods: str,
    metrics: str,
    against: str | None,
    folds: tuple[int, ...] | None,
    name: str | None,
    n_features: int | None,
    jobs: int | None,
    per_fold: bool,
    published: str | None,
    plot: Path | None,
    report: Path | None,
    json_file: Path | None,
    csv_file: Path | None,
    query_file: Path | None,
    **options: Any,
) -> None:
    """Compare ranking methods on the folds of LETOR data.

    \b
    sinkprop compare OHSUMED
    sinkprop compare Gov/QueryLevelNorm OHSUMED --plot figure2.png
    sinkprop compare MQ2008 --convention letor4 --methods regression,sinkprop,sinkprop-laplace
    sinkprop compare OHSUMED --folds 1 --methods best-feature,feature:11 --against feature:11
    sinkprop compare OHSUMED --report ohsumed.html
    sinkprop compare OHSUMED --json results.json --csv results.csv --per-query queries.csv
    sinkprop compare OHSUMED --json - | jq '.datasets[].methods[] | {method, means}'

    On each fold, every method is fitted to the training queries, chooses its hyperparameters on the
    validation queries or by cross-validation (see --selection), and ranks the documents of the test
    queries. Metrics are averaged over the queries of each fold, then over folds. Paired tests over
    queries show which differences from the method of --against are statistically significant. Published
    results on the same data set are shown next to the new ones.

    DIR is the folder of a data set. It has folders Fold1 to Fold5 with train.txt, vali.txt and test.txt
    (or trainingset.txt, validationset.txt and testset.txt), plain or compressed (.gz, .xz, .bz2). DIR may
    also contain such files itself, or several data sets, as LETOR 3.0's Gov/QueryLevelNorm does.
    """  # noqa: D301
    from sinkprop.experiment.tables import print_comparison

    try:
        chosen, wanted = parse_methods(methods), parse_metrics(metrics)
    except (ImportError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if against is not None and against not in chosen:
        raise click.UsageError(f"--against must be one of {', '.join(chosen)}; got {against!r}.")
    rows = _published_names(published)
    if plot is not None:
        _check_levels([str(metric) for metric in wanted])
    data_sets = find_data_sets(*folders, folds=folds, name=name, n_features=n_features)
    outputs = {
        "--plot": plot,
        "--report": report,
        "--json": json_file,
        "--csv": csv_file,
        "--per-query": query_file,
    }
    paths = (path for data in data_sets for fold in data.folds for path in fold.paths)
    keep_apart(outputs, {str(path): path for path in paths})
    with progress() as notify:
        found = compare_methods(
            {data.name: data.folds for data in data_sets},
            list(chosen),
            metrics=wanted,
            against=against,
            n_jobs=jobs,
            notify=notify,
            **options,
        )
    to_stdout = is_stdout(json_file)
    writers = _writers(found, {**outputs, "--json": None if to_stdout else json_file}, rows)
    write_files(writers)
    if to_stdout:
        sys.stdout.write(found.to_json())
        return
    out = console()
    print_comparison(out, found, per_fold=per_fold, published=rows)
    for data in data_sets:
        if data.left_out:
            versions = ", ".join(path.name for path in data.left_out)
            text = f"{data.name}: used {data.path.name}; to use {versions}, give its folder as DIR."
            out.print(text, style="dim", markup=False, soft_wrap=True)
    for path in writers:
        out.print(f"Wrote {path}", markup=False, soft_wrap=True)


def _writers(
    found: Comparison, outputs: Mapping[str, Path | None], published: Sequence[str] | None
) -> dict[Path, Callable[[Path], object]]:
    """Return {path: function that writes this file} for the output options that are given."""

    def draw(path: Path) -> None:
        from sinkprop.experiment.figure import plot

        plot(found, path, published=published)

    def write_page(path: Path) -> None:
        from sinkprop.report import comparison_report, write_report

        write_report(comparison_report(found, command=command_line()), path)

    writers: dict[str, Callable[[Path], object]] = {
        "--plot": draw,
        "--report": write_page,
        "--json": lambda path: path.write_bytes(found.to_json().encode()),
        "--csv": lambda path: path.write_bytes(found.to_csv().encode()),
        "--per-query": lambda path: path.write_bytes(found.per_query_csv().encode()),
    }
    return {path: writers[option] for option, path in outputs.items() if path is not None}


def _published_names(text: str | None) -> tuple[str, ...] | None:
    """Parse the value of --published into names of published methods.

    Returns None, which means the default, if the option is not given, and () for "none". Raises a usage error
    for an unknown name.
    """
    if text is None:
        return None
    from sinkprop.experiment.published import published_methods

    if text.strip().lower() == "none":
        return ()
    known = published_methods()
    if text.strip().lower() == "all":
        return known
    names = tuple(part.strip() for part in text.split(","))
    unknown = [name for name in names if name.lower() not in {row.lower() for row in known}]
    if unknown:
        raise click.UsageError(
            f"--published: there is no result {unknown[0]!r}. Choose from all, none, {', '.join(known)}."
        )
    return names


def _check_levels(metrics: list[str]) -> None:
    from sinkprop.experiment.figure import levels

    if len(levels(metrics)) < 2:
        raise click.UsageError("--plot needs NDCG at two or more cutoffs, such as --metrics ndcg@1-10.")
