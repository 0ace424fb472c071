"""The command `sinkprop compare`: a comparison of ranking methods on the folds of LETOR data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sinkprop.cli.options import (
    check_file,
    check_page,
    check_plot,
    check_saved_file,
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
from sinkprop.experiment.referee import BUILT_IN, named_sets, referee
from sinkprop.experiment.referee import METRICS as REFEREE_METRICS
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
    type=click.Path(path_type=Path),
)
@click.option(
    "--sets",
    multiple=True,
    metavar="SET...",
    help="Run every method on all these data sets, go on after failures, and print one table. A set is a "
    "folder DIR, a stored set or a file (both are cut into five folds), or the name of a built-in set: "
    f"{', '.join(BUILT_IN)}.",
)
@click.option(
    "--methods",
    default=DEFAULT_METHODS,
    metavar="NAME,...",
    show_default=True,
    help="Methods to compare; their names are listed below.",
)
@metrics_option(DEFAULT_METRICS)
@convention_option(
    default="letor for the data sets of LETOR 3.0, whose published results use it, else standard"
)
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
@click.option(
    "--check-counts",
    is_flag=True,
    help="Compare the queries, documents and features of the data sets with published counts, and stop if "
    "they differ. For OHSUMED, MQ2007, MSLR-WEB10K, Yahoo, Istella and others; --name says which one it is.",
)
@number_option("--jobs", help="Number of processes. Does not change the results.  [default: all processors]")
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="With --sets: time of each fit, for methods that can be given one.",
)
@output_option("--table", check=check_saved_file, help="With --sets: write the table as Markdown.")
@output_option(
    "--keep",
    check=check_saved_file,
    help="With --sets: keep each fit in this file, from which the next run resumes.  [default: the file of "
    "--table with .fits after its name]",
)
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
@click.pass_context
def compare_command(
    context: click.Context,
    /,
    folders: tuple[Path, ...],
    sets: tuple[str, ...],
    budget: float | None,
    table: Path | None,
    keep: Path | None,
    methods: str,
    metrics: str,
    against: str | None,
    folds: tuple[int, ...] | None,
    name: str | None,
    n_features: int | None,
    check_counts: bool,
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
    sinkprop compare --methods everything --sets OHSUMED MQ2007 pydocs --table table.md

    On each fold, every method is fitted to the training queries, chooses its hyperparameters on the
    validation queries or by cross-validation (see --selection), and ranks the documents of the test
    queries. Metrics are averaged over the queries of each fold, then over folds. Paired tests over
    queries show which differences from the method of --against are statistically significant. Published
    results on the same data set are shown next to the new ones.

    DIR is the folder of a data set. It has folders Fold1 to Fold5 with train.txt, vali.txt and test.txt
    (or trainingset.txt, validationset.txt and testset.txt), plain or compressed (.gz, .xz, .bz2). DIR may
    also contain such files itself, or several data sets, as LETOR 3.0's Gov/QueryLevelNorm does.

    With --sets, every method runs on every set, on one thread per fit. The table has the mean of the metrics
    (NDCG@1, 3, 5 and 10 by default) of each method on each set, the 95 % interval of its difference from the
    best method of the set, its average rank and its processor time. A method that fails is in the table
    with its reason. If the run is interrupted, the same command resumes it.
    """  # noqa: D301
    from sinkprop.experiment.tables import print_comparison

    if sets:
        _check_for_sets(context)
        by_default = context.get_parameter_source("metrics") is ParameterSource.DEFAULT
        _run_on_sets(
            [*sets, *map(str, folders)],
            methods,
            REFEREE_METRICS if by_default else metrics,
            folds=folds,
            n_features=n_features,
            budget=budget,
            table=table,
            keep=keep,
            json_file=json_file,
            jobs=jobs,
            **options,
        )
        return
    _check_folders(context, folders)
    try:
        chosen, wanted = parse_methods(methods), parse_metrics(metrics)
    except (ImportError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if against is not None and against not in chosen:
        raise click.UsageError(f"--against must be one of {', '.join(chosen)}; got {against!r}.")
    rows = _published_names(published)
    if plot is not None:
        _check_levels([str(metric) for metric in wanted])
    check: Any = "error" if check_counts else "none"
    data_sets = find_data_sets(*folders, folds=folds, name=name, n_features=n_features, check=check)
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


def _check_for_sets(context: click.Context) -> None:
    """Raise a usage error if an option is given that does not go with --sets."""
    for name in ("against", "name", "per_fold", "published", "plot", "report", "csv_file", "query_file"):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = next(p.opts[0] for p in context.command.params if p.name == name)
            raise click.UsageError(f"{option} does not go with --sets; give the data sets as DIR.")


def _check_folders(context: click.Context, folders: Sequence[Path]) -> None:
    """Raise a usage error unless all arguments are folders, and if an option is given that needs --sets."""
    argument = next(p for p in context.command.params if p.name == "folders")
    if not folders:
        raise click.MissingParameter(ctx=context, param=argument)
    for folder in folders:
        click.Path(exists=True, file_okay=False).convert(str(folder), argument, context)
    for name in ("budget", "table", "keep"):
        if context.params[name] is not None:
            raise click.UsageError(f"--{name} needs --sets.")


def _run_on_sets(
    names: Sequence[str],
    methods: str,
    metrics: str,
    *,
    folds: Sequence[int] | None,
    n_features: int | None,
    budget: float | None,
    table: Path | None,
    keep: Path | None,
    json_file: Path | None,
    jobs: int | None,
    convention: str | None,
    selection: str | None,
) -> None:
    try:
        chosen = parse_methods(methods)
        parse_metrics(metrics)
        sets = named_sets(names, folds=folds, n_features=n_features)
    except (ImportError, ValueError, FileNotFoundError) as error:
        raise click.UsageError(str(error)) from None
    if keep is None and table is not None:
        keep = table.with_name(f"{table.name}.fits")
    keep_apart({"--table": table, "--keep": keep, "--json": json_file}, {})
    with progress() as notify:
        found = referee(
            sets,
            list(chosen),
            metrics=metrics,
            convention=convention or "standard",
            selection=selection,
            budget=budget,
            keep=keep,
            n_jobs=jobs or 1,
            notify=notify,
        )
    text, record = found.to_markdown(), found.to_json()
    writers: dict[Path, Callable[[Path], object]] = {}
    if table is not None:
        writers[table] = lambda path: path.write_bytes(text.encode())
    if json_file is not None and not is_stdout(json_file):
        writers[json_file] = lambda path: path.write_bytes(record.encode())
    write_files(writers)
    if is_stdout(json_file):
        sys.stdout.write(record)
        return
    out = console()
    out.print(text, markup=False, highlight=False, soft_wrap=True, end="")
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
