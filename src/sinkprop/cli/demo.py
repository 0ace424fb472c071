"""The command `sinkprop demo`: training on the bundled data set, with its results printed and drawn."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sinkprop.cli.options import json_option, number_option
from sinkprop.cli.output import as_json, console, is_stdout, program_name, progress, working, write_output
from sinkprop.common.console import print_columns, say
from sinkprop.common.packages import installed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from sinkprop.cli.demonstration import Example, Results, Trained
    from sinkprop.data.queries import Fold
    from sinkprop.linear.records import Stage

__all__ = ["demo_command", "save_results", "train_folds"]

MODEL, FIGURE, REPORT = "sinkprop-demo.model", "sinkprop-demo.png", "sinkprop-demo.html"
_N_FOLDS = 5
_SHOWN = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "map")


def _check_folder(context: click.Context, option: click.Parameter, path: Path) -> Path:
    there = path if path.exists() else path.absolute().parent
    if not there.is_dir():
        raise click.BadParameter(f"there is no folder {str(there)!r}.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise click.BadParameter(f"the folder {str(there)!r} cannot be written.")
    return path


@click.command("demo", short_help="Train on a bundled data set and show the results.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    callback=_check_folder,
    help=f"Folder for {MODEL}, {FIGURE} and {REPORT}.  [default: current folder]",
)
@number_option(
    "--fold",
    most=_N_FOLDS,
    help="Use one fold, 1 to 5, instead of all: faster, with a fifth of the test queries.  [default: all]",
)
@click.option(
    "--figure/--no-figure", default=True, help="Draw the figure, which needs matplotlib.  [default: figure]"
)
@json_option("all results")
def demo_command(out: Path, fold: int | None, figure: bool, json_file: Path | None) -> None:
    """Train on a data set that comes with sinkprop and show the results, in under a minute.

    \b
    sinkprop demo                     all five folds
    sinkprop demo --fold 1            a quick look, about ten seconds
    sinkprop demo --out results       write all files to the folder results
    sinkprop demo --json - | jq .means

    The queries, such as "delete a directory tree", search the documentation of Python's standard
    library. The command ranks the documents of test queries by BM25, least squares and SinkProp. It
    prints NDCG and MAP, paired significance tests, and the rankings of three queries before and after
    training. It saves a model, a figure, and an HTML report in which you can look at every query.
    """  # noqa: D301
    began = time.perf_counter()
    with working("loading"):
        from sinkprop.cli import demonstration as library
        from sinkprop.datasets import load_pydocs, pydocs_folds, pydocs_queries

        folds = pydocs_folds() if fold is None else (load_pydocs(fold),)
        texts = pydocs_queries()
    only_json = is_stdout(json_file)
    screen = console()
    if not only_json:
        _print_start(screen, folds[0], len(folds))
    tested = train_folds(folds, screen, silent=only_json)
    results = library.compare(tested)
    saved = save_results(tested, results, texts, out, figure=figure)
    if json_file is not None:
        write_output(json_file, as_json(_record(results, tested, texts, saved)))
    if only_json:
        return
    _print_results(screen, results, tested)
    for example in results.examples:
        _print_example(screen, example, texts)
    say(screen, "Labels: ** the entry answers the query, * it helps.\n", "dim")
    _print_end(screen, tested[0], saved, figure=figure, seconds=time.perf_counter() - began)


def train_folds(folds: Sequence[Fold], screen: Console, *, silent: bool = False) -> list[Trained]:
    """Train and return the models of every fold, showing the progress unless `silent`."""
    from sinkprop.cli import demonstration as library

    tested: list[Trained] = []
    with _Training.on(screen, len(folds), silent=silent) as training:
        for fold in folds:
            tested.append(library.run_fold(fold, training.begin(fold.name)))
            training.end(tested[-1])
    return tested


def save_results(
    tested: Sequence[Trained], results: Results, texts: dict[Any, str], out: Path, *, figure: bool = True
) -> dict[str, Path | None]:
    """Write the model of the first fold, the figure and the report to a folder, and return their paths."""
    from sinkprop.cli import demonstration as library
    from sinkprop.common.atomic import replacing
    from sinkprop.report import write_report

    out.mkdir(exist_ok=True)
    tested[0].ranker.save(out / MODEL)
    picture = out / FIGURE if figure and installed("matplotlib") else None
    if picture is not None:
        from sinkprop.cli.demonstration_figure import draw_demonstration

        with working("drawing"), _quiet_matplotlib(), replacing(picture) as temporary:
            draw_demonstration(tested[0], results, temporary, tested_on=_queries_of(results, tested))
    with working("writing the report"):
        write_report(library.report(tested, texts), out / REPORT)
    return {"model": out / MODEL, "figure": picture, "report": out / REPORT}


@contextmanager
def _quiet_matplotlib() -> Iterator[None]:
    """Silence Matplotlib's messages about its font cache, which it logs as warnings."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Training:
    """Display of training progress: one line per finished fold.

    A terminal also shows a table of the current fold, see `_table`, which is erased at the end.
    """

    def __init__(self, screen: Console, n_folds: int, *, silent: bool) -> None:
        self.screen, self.n_folds, self.silent = screen, n_folds, silent
        self.done, self.name = 0, ""
        self.stages: list[Stage] = []
        self.live: Any = None
        self.notify: Callable[[int, int, str], None] = lambda done, total, what: None

    @classmethod
    @contextmanager
    def on(cls, screen: Console, n_folds: int, *, silent: bool) -> Iterator[_Training]:
        from rich.live import Live

        training = cls(screen, n_folds, silent=silent)
        if silent or not screen.is_terminal:
            with progress() as training.notify:  # a progress bar on stderr
                yield training
            return
        with Live(console=screen, transient=True, auto_refresh=False) as training.live:
            yield training

    def begin(self, name: str) -> Callable[[Stage], None]:
        self.name, self.stages = name, []
        return self.seen

    def seen(self, stage: Stage) -> None:
        from sinkprop.linear.annealed import PATH

        self.stages.append(stage)
        per_fold = 1 + len(PATH)
        done = self.done * per_fold + len(self.stages)
        text = f"Training {self.name}: {_stage_name(stage)}, expected NDCG {stage.expected_gain:.4f}"
        self.notify(done, self.n_folds * per_fold, text)
        if self.live is not None:
            self.live.update(self._view(text, done / (self.n_folds * per_fold)), refresh=True)

    def end(self, trained: Trained) -> None:
        from sinkprop.cli.demonstration import MAIN, METHODS
        from sinkprop.metrics.evaluation import evaluate

        self.done += 1
        test = trained.fold.test
        values = [f"{evaluate(test, trained.scores[m], metrics=MAIN)[MAIN]:.4f}" for m in METHODS]
        if self.silent:
            return
        if self.done == 1:
            say(self.screen, _fold_line("", METHODS, "seconds"), "dim")
        say(self.screen, _fold_line(trained.fold.name, values, f"{trained.seconds:.1f}"))
        self.screen.file.flush()

    def _view(self, text: str, share: float) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        return Group(
            Text(f"\n{text}"),
            _table(self.stages),
            ProgressBar(total=1.0, completed=share, width=min(56, self.screen.width)),
        )


def _fold_line(name: str, values: Sequence[str], seconds: str) -> str:
    bm25, regression, ours = values
    return f"{name:7}{bm25:>8}{regression:>16}{ours:>11}{seconds:>10}"


def _table(stages: Sequence[Stage]) -> RenderableType:
    """Return a table of the stages: validation NDCG, and the share of each stage in the model.

    The best value is marked. During the fit the shares are not known.
    """
    from rich.table import Table

    best = max(stages, key=lambda stage: stage.criterion)
    shared = any(stage.share > 0 for stage in stages)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row("", "NDCG", "share of the model" if shared else "", style="dim")
    for stage in stages:
        share = f"{stage.share:.0%}" if shared else ""
        style = "bold green" if stage is best else "dim" if share == "0%" else ""
        table.add_row(_stage_name(stage), f"{stage.criterion:.3f}", share, style=style)
    return table


def _stage_name(stage: Stage) -> str:
    return f"penalty {stage.penalty:.1g}" if math.isfinite(stage.penalty) else "ridge regression"


def _queries_of(results: Results, tested: Sequence[Trained]) -> str:
    if len(tested) == 1:
        return f"{results.n_queries} queries of {tested[0].fold.name}"
    return f"{results.n_queries} queries of {len(tested)} folds"


def _print_start(screen: Console, fold: Any, n_folds: int) -> None:
    n_queries = sum(part.n_queries for part in (fold.train, fold.vali, fold.test))
    n_rows = sum(len(part) for part in (fold.train, fold.vali, fold.test))
    say(screen, "Search over the documentation of Python's standard library", "bold")
    folds = f"Each of {n_folds} folds" if n_folds > 1 else fold.name
    say(
        screen,
        f"{n_queries} queries, {n_rows:,} documents, {fold.train.n_features} features. {folds} uses "
        f"{fold.train.n_queries} queries for training, {fold.vali.n_queries} for validation and "
        f"{fold.test.n_queries} for testing.",
    )
    say(screen, "\nNDCG@10 of the test queries", "bold")


def _print_results(screen: Console, results: Results, tested: Sequence[Trained]) -> None:
    shown = tested[0]
    say(screen, f"\nTraining on {shown.fold.name}", "bold")
    say(
        screen,
        "Validation NDCG, the mean of NDCG@1 to NDCG@10. The fit starts from ridge regression and lowers the "
        "penalty from stage to stage. The model is an average of the stages.",
    )
    screen.print(_table(shown.stages))
    say(screen, f"\nTest results: means over {_queries_of(results, tested)}", "bold")
    rows = [[method, *(f"{x[name]:.4f}" for name in _SHOWN)] for method, x in results.means.items()]
    print_columns(screen, ["", *(name.upper() for name in _SHOWN)], rows, last_style="bold green")
    rows = [
        [
            d.below,
            f"{d.mean:+.3f}",
            f"{d.low:+.3f} to {d.high:+.3f}",
            "" if math.isnan(d.p) else f"p = {d.p:.2g}" if d.p >= 1e-4 else "p < 0.0001",
        ]
        for d in results.differences
    ]
    above = results.differences[0].above
    print_columns(screen, [f"{above} minus", "NDCG@10", "95 % interval", "paired t-test"], rows)
    say(screen, f"Convention {results.convention}", "dim")


def _print_example(screen: Console, example: Example, texts: dict[Any, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from sinkprop.cli.demonstration import BEFORE, SINKPROP

    utf = screen.encoding.lower().startswith("utf")
    say(screen, f'\n"{texts.get(example.query, example.query)}"', "bold")
    say(
        screen,
        f"{example.why}: NDCG@10 {example.value_before:.3f} before, {example.value_after:.3f} after.",
        "dim",
    )
    longest = max(len(name) for side in (example.before, example.after) for name, _ in side)
    room = min(longest, (min(screen.width, 100) - 12) // 2)
    table = Table.grid(padding=(0, 1))
    for width in (1, 2, room, 2, room):
        table.add_column(no_wrap=True, min_width=width)
    heads = (Text(f"{when}: {method}", "dim") for when, method in (("before", BEFORE), ("after", SINKPROP)))
    table.add_row("", "", next(heads), "", next(heads))
    for rank, sides in enumerate(zip(example.before, example.after, strict=True), 1):
        cells = []
        for name, label in sides:
            style = "green" if label >= 2 else "yellow" if label >= 1 else ""
            cells += [Text("*" * int(min(label, 2)), style), Text(_short(name, room, utf), style)]
        table.add_row(str(rank), *cells)
    screen.print(table)


def _short(name: str, room: int, utf: bool) -> str:
    """Shorten a dotted name to at most `room` characters, by an ellipsis in place of its start.

    The end of the name is kept, since it says more than the start. `utf` allows the character for an
    ellipsis; without it, the ellipsis is three dots.
    """
    if len(name) <= room:
        return name
    mark = "\N{HORIZONTAL ELLIPSIS}" if utf else "..."
    return mark + name[-(room - len(mark)) :]


def _print_end(
    screen: Console, shown: Trained, saved: dict[str, Path | None], *, figure: bool, seconds: float
) -> None:
    say(screen, f"Saved {saved['model']}, the model of {shown.fold.name}")
    if saved["figure"] is not None:
        say(screen, f"Saved {saved['figure']}")
    elif figure:
        say(screen, 'No figure, because matplotlib is not installed: pip install "sinkprop[plot]"')
    say(screen, f"Saved {saved['report']}: open it in a browser to look at every query")
    say(screen, f"Finished in {seconds:.0f} seconds")
    say(screen, "\nNext steps", "bold")
    say(screen, "In Python, load the model and write the data to files:")
    for line in (
        "import sinkprop",
        f"ranker = sinkprop.load_model({str(saved['model'])!r})",
        "sinkprop.datasets.write_pydocs('pydocs')",
    ):
        say(screen, f"  {line}")
    say(screen, "In a shell, train, evaluate, report and compare on these files or your own:")
    files, program = f"pydocs/{shown.fold.name}", program_name()
    for line in (
        f"{program} train {files}/train.txt --vali {files}/vali.txt --model my.model",
        f"{program} evaluate {files}/test.txt --model my.model",
        f"{program} report {files}/test.txt --model my.model -o my-model.html",
        f"{program} compare pydocs",
        f"{program} train {files}/train.txt --model best.model --method auto --time-budget 60",
    ):
        say(screen, f"  {line}")


def _record(
    results: Results, tested: Sequence[Trained], texts: dict[Any, str], saved: dict[str, Path | None]
) -> dict[str, Any]:
    return {
        "queries": results.n_queries,
        "means": results.means,
        "convention": results.convention,
        "differences": [dataclasses.asdict(d) for d in results.differences],
        "examples": [{"text": texts.get(e.query, ""), **dataclasses.asdict(e)} for e in results.examples],
        "folds": [
            {
                "name": one.fold.name,
                "seconds": one.seconds,
                "stages": [dataclasses.asdict(stage) for stage in one.stages],
            }
            for one in tested
        ],
        **saved,
    }
