"""`sinkprop compare`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sinkprop.cli.options import check_file, check_page, check_plot, keep_apart
from sinkprop.cli.output import command_line, console, is_stdout, progress, write_files

if TYPE_CHECKING:
    import click

__all__ = ["compare_command"]


def compare_command() -> click.Command:
    import click

    from sinkprop.experiment import DEFAULT_METHODS, DEFAULT_METRICS
    from sinkprop.experiment.methods import described
    from sinkprop.metrics.conventions import CONVENTIONS

    names = described()
    width = max(map(len, names))
    methods_help = "\b\nMethods:\n" + "\n".join(f"  {name:{width}}  {text}" for name, text in names.items())
    output = click.Path(dir_okay=False, path_type=Path)

    @click.command("compare", short_help="Compare methods on the folds of LETOR data.", epilog=methods_help)
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
        help="What to compare; the names are below.",
    )
    @click.option(
        "--metrics",
        default=DEFAULT_METRICS,
        metavar="NAME,...",
        show_default=True,
        help="What to report; also recall@k, hit@k, mrr, err@k, rbp@p, dcg@k.",
    )
    @click.option(
        "--convention",
        type=click.Choice(list(CONVENTIONS), case_sensitive=False),
        default="letor",
        show_default=True,
        help="How the metrics are counted; each table says it in words.",
    )
    @click.option(
        "--against",
        metavar="NAME",
        help="The method that the others are tested against.  [default: regression, or the first]",
    )
    @click.option(
        "--selection",
        type=click.Choice(["auto", "cross-validation", "validation"]),
        help="How all methods choose their settings, in place of each one's own way.",
    )
    @click.option("--folds", metavar="N,...", callback=_parse_folds, help="Only these folds, such as 1,2.")
    @click.option("--name", metavar="TEXT", help="The data set's name, in place of the one its path tells.")
    @click.option(
        "--features",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of features, for files that leave the last ones out where they are 0.",
    )
    @click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Processors to use; the results are the same for any number.  [default: all]",
    )
    @click.option("--per-fold", is_flag=True, help="Print every metric by fold, not NDCG@10 alone.")
    @click.option(
        "--published",
        metavar="NAME,...",
        help="Published rows to show beside ours: names, all or none.  [default: all; two in the picture]",
    )
    @click.option(
        "--plot",
        type=output,
        metavar="FILE",
        callback=check_plot,
        help="Draw test NDCG against the truncation level, a panel a data set: .png, .svg or .pdf.",
    )
    @click.option(
        "--report",
        type=output,
        metavar="FILE",
        callback=check_page,
        help="Write a page for the browser, with every table, curve and query: .html.",
    )
    @click.option(
        "--json",
        "json_file",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        metavar="FILE",
        callback=check_file,
        help="Write everything, each query's values included, as JSON; - writes only that, to stdout.",
    )
    @click.option(
        "--csv",
        "csv_file",
        type=output,
        metavar="FILE",
        callback=check_file,
        help="Write lines of dataset, fold, method, metric, value.",
    )
    @click.option(
        "--per-query",
        "query_file",
        type=output,
        metavar="FILE",
        callback=check_file,
        help="Write lines of dataset, fold, method, query, metric, value.",
    )
    def compare(
        folders: tuple[Path, ...],
        methods: str,
        metrics: str,
        convention: str,
        against: str | None,
        selection: str | None,
        folds: tuple[int, ...] | None,
        name: str | None,
        features: int | None,
        jobs: int | None,
        per_fold: bool,
        published: str | None,
        plot: Path | None,
        report: Path | None,
        json_file: Path | None,
        csv_file: Path | None,
        query_file: Path | None,
    ) -> None:
        """Compare methods on the folds of LETOR data: fit, choose by validation, rank the test queries.

        DIR is a data set, with folders Fold1 to Fold5 of train.txt, vali.txt and test.txt (or
        trainingset.txt, validationset.txt and testset.txt; .gz, .xz and .bz2 are read too), a single division
        of these files, or a folder of data sets, such as LETOR 3.0's Gov/QueryLevelNorm. Means are over the
        queries of each fold, then over folds; differences are tested over queries; what others published on a
        data set stands beside it.

        \b
        sinkprop compare OHSUMED
        sinkprop compare Gov/QueryLevelNorm OHSUMED --plot figure2.png
        sinkprop compare MQ2008 --convention letor4 --methods regression,sinkprop,sinkprop-laplace
        sinkprop compare OHSUMED --folds 1 --methods best-feature,feature:11 --against feature:11
        sinkprop compare OHSUMED --report ohsumed.html
        sinkprop compare OHSUMED --json results.json --csv results.csv --per-query queries.csv
        sinkprop compare OHSUMED --json - | jq '.datasets[].methods[] | {method, means}'
        """  # noqa: D301
        from sinkprop.experiment import compare as run
        from sinkprop.experiment import find_data_sets, parse_methods
        from sinkprop.experiment.tables import print_comparison
        from sinkprop.metrics.measures import parse_metrics

        try:
            chosen, wanted = parse_methods(methods), parse_metrics(metrics)
        except (ImportError, ValueError) as error:
            raise click.UsageError(str(error)) from None
        if against is not None and against not in chosen:
            raise click.UsageError(f"--against must be one of {', '.join(chosen)}; got {against!r}.")
        rows = _published_names(published)
        if plot is not None:
            _check_levels([str(metric) for metric in wanted])
        data_sets = find_data_sets(*folders, folds=folds, name=name, n_features=features)
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
            found = run(
                {data.name: data.folds for data in data_sets},
                list(chosen),
                metrics=wanted,
                convention=convention,
                against=against,
                selection=selection,
                n_jobs=jobs,
                notify=notify,
            )
        to_stdout = is_stdout(json_file)
        writers: dict[Path, Callable[[Path], object]] = {}
        if plot is not None:
            from sinkprop.experiment.figure import plot as draw

            writers[plot] = lambda path: draw(found, path, published=rows)
        if report is not None:
            from sinkprop.report import comparison_report, write_report

            page = comparison_report(found, command=command_line())
            writers[report] = lambda path: write_report(page, path)
        if json_file is not None and not to_stdout:
            writers[json_file] = lambda path: path.write_bytes(found.to_json().encode())
        if csv_file is not None:
            writers[csv_file] = lambda path: path.write_bytes(found.to_csv().encode())
        if query_file is not None:
            writers[query_file] = lambda path: path.write_bytes(found.per_query_csv().encode())
        write_files(writers)
        if to_stdout:
            sys.stdout.write(found.to_json())
            return
        out = console()
        print_comparison(out, found, per_fold=per_fold, published=rows)
        for data in data_sets:
            if data.left_out:
                versions = ", ".join(path.name for path in data.left_out)
                text = f"{data.name}: {data.path.name} was taken; name the folder to compare on {versions}."
                out.print(text, style="dim", markup=False, soft_wrap=True)
        for path in writers:
            out.print(f"Wrote {path}", markup=False, soft_wrap=True)

    return compare


def _parse_folds(
    context: click.Context, option: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    import click

    if value is None:
        return None
    numbers = []
    for part in value.split(","):
        text = part.strip()
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise click.BadParameter(
                f"{text!r} is not the number of a fold; give whole numbers, as in 1,2.",
                ctx=context,
                param=option,
            )
        numbers.append(int(text))
    return tuple(numbers)


def _published_names(text: str | None) -> tuple[str, ...] | None:
    """The names of published rows: None for what is usual, () for none."""
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
        import click

        raise click.UsageError(
            f"--published: no row is called {unknown[0]!r}. There are all, none, {', '.join(known)}."
        )
    return names


def _check_levels(metrics: list[str]) -> None:
    import click

    from sinkprop.experiment.figure import levels

    if len(levels(metrics)) < 2:
        raise click.UsageError("--plot draws NDCG at several levels, such as --metrics ndcg@1-10.")
