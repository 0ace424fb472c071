"""The command `sinkprop predict`: scores, ranks or a TREC run for the documents of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from sinkprop.cli.options import data_options, data_path, keep_apart, output_option, parsed_by
from sinkprop.cli.output import notes_on_stderr, write_texts
from sinkprop.cli.reading import (
    Reading,
    check_missing,
    document_names,
    file_name,
    over_blocks,
    query_names,
    read_data,
    read_model_file,
    with_features_of,
)
from sinkprop.common.types import Floats, Integers, Singles

if TYPE_CHECKING:
    from sinkprop.data.queries import Groups, Queries
    from sinkprop.estimator.base import BaseRanker

__all__ = ["predict_command", "predictions"]

# Limits of the absolute values of scores in a TREC run. Larger scores are clipped to `_LARGEST`, which leaves
# room for lowering scores to break ties. Scores up to `_SMALLEST` become 0, since some programs that read
# runs do not support denormal numbers.
_LARGEST, _SMALLEST = np.float32(1e38), np.float32(1e-30)


def _check_word(name: str) -> None:
    if name.split() != [name]:
        raise ValueError(f"{name!r} is not a single word.")


@click.command("predict", short_help="Score or rank the documents in a file, or write a TREC run.")
@click.argument("model", type=data_path(stdin=False))
@click.argument("data", type=data_path(stored=True))
@output_option("--out", stdout=True, help="Output file, replaced only when complete.  [default: stdout]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["scores", "trec", "ranks", "contributions"]),
    default="scores",
    help="scores: one score per line; trec: a TREC run; ranks: one rank per line; contributions: those of "
    "the features to the score, separated by tabs.  [default: scores]",
)
@click.option(
    "--run-name",
    default="sinkprop",
    metavar="NAME",
    callback=parsed_by(_check_word),
    help="Run name, the last column of a TREC run.  [default: sinkprop]",
)
@data_options
def predict_command(
    model: Path, data: Path, out: Path | None, form: str, run_name: str, **reading: Any
) -> None:
    """Score or rank the documents in DATA with a saved model.

    \b
    sinkprop predict m.model test.txt > scores.txt
    sinkprop predict m.model test.txt --format trec --out test.run
    sinkprop predict m.model test.txt --format ranks --out ranks.txt
    zcat test.txt.gz | sinkprop predict m.model - | paste - docids.txt
    sinkprop predict m.model sparse.txt --n-features 700
    sinkprop predict m.model logs.queries --out scores.txt

    MODEL is a file written by `sinkprop train` or by a ranker's save method. DATA is LETOR or SVMlight
    text, Parquet, - for stdin, or a stored set made by `sinkprop convert`, which is read and scored
    block by block. Labels in DATA are ignored, and Parquet may omit them.

    The contributions of the features to the score of a document, in the order of the features, and last
    the base value, sum to the score. Linear models and trees have them.

    Scores and ranks are in the order of the rows of DATA. Larger scores rank higher; rank 1 is the top.
    Scores are printed with all the digits needed to read them back exactly.

    A TREC run lists the documents of each query by rank, with one line `qid Q0 docid rank score name` per
    document. A row without a docid is named by its position within its query. Most evaluation programs
    sort a run by its scores in single precision. The scores of a run are therefore rounded to single
    precision, and tied scores are lowered until all scores of a query differ, so that sorting by score
    keeps the order of the ranks.
    """  # noqa: D301
    keep_apart({"--out": out}, {"MODEL": model, "DATA": data, "--group": reading["group"]})
    write_texts(out, predictions(model, data, Reading(**reading), form=form, run_name=run_name))


def predictions(
    model: Path, data: Path, reading: Reading, *, form: str = "scores", run_name: str = "sinkprop"
) -> Iterator[str]:
    """Return an iterator over the text of the predictions, one piece per block of queries.

    The model is read, and the file is read or the stored set is opened, before this function returns.
    """
    ranker = _model_before_data(model, data)
    queries = read_data(data, reading, labeled=False, rankers=[ranker])
    check_missing(ranker, queries)
    if form == "contributions" and not ranker.explainable:
        raise click.UsageError(
            f"--format contributions: {file_name(model)} is a {type(ranker).__name__}, which has no "
            "contributions of features; linear models and trees have."
        )
    names = {"model_name": file_name(model), "data_name": file_name(data)}
    said: set[str] = set()

    def text(block: Queries) -> str:
        own = with_features_of(ranker, block, **names)
        with notes_on_stderr(said=said):
            if form == "scores":
                lines = [repr(score) for score in ranker.predict(own).tolist()]
            elif form == "contributions":
                parts = ranker.predict(own, pred_contrib=True)
                lines = ["\t".join(map(repr, row)) for row in parts.tolist()]
            elif form == "ranks":
                lines = [str(rank) for rank in ranker.rank(own).tolist()]
            else:
                ranks, scores = ranker.rank(own), ranker.predict(own)
                lines = run_lines(block, ranks, scores, run_name, data_name=names["data_name"])
        return "\n".join(lines) + "\n"

    return over_blocks(queries, "ranking", text)


def _model_before_data(model: Path, data: Path) -> BaseRanker:
    """Read the model. Raises a usage error if the two files were given in the wrong order."""
    from sinkprop.model_files import ModelFileError, read_model

    try:
        return read_model_file(model)
    except ModelFileError:
        with suppress(OSError, ModelFileError):
            read_model(data)
            raise click.UsageError(f"MODEL comes first, then DATA, but {str(data)!r} is a model.") from None
        raise


def run_lines(
    queries: Queries,
    ranks: Integers,
    scores: Floats,
    run_name: str,
    *,
    data_name: str,
) -> list[str]:
    """The lines of a TREC run: queries in order of first appearance, documents by rank, scores decreasing."""
    documents, names = document_names(queries, data_name), query_names(queries, data_name)
    groups, lines = queries.groups, []
    order = by_rank(ranks, groups)
    for q, (first, last) in enumerate(zip(groups.offsets[:-1], groups.offsets[1:], strict=True)):
        rows = order[first:last]
        lines += [
            f"{names[q]} Q0 {documents[row]} {rank} {score} {run_name}"
            for rank, (row, score) in enumerate(
                zip(rows.tolist(), falling(scores[rows]).astype(str), strict=True), 1
            )
        ]
    return lines


def by_rank(ranks: Integers, groups: Groups) -> Integers:
    """Row indices, query by query, with the rows of each query in order of rank."""
    rows = np.arange(len(ranks)) if groups.rows is None else groups.rows
    codes = np.repeat(np.arange(len(groups.queries)), np.diff(groups.offsets))
    return rows[np.lexsort((ranks[rows], codes))]


def falling(scores: Floats) -> Singles:
    """Scores of documents in order of rank, rounded to float32 and made strictly decreasing.

    A score that is not below the previous one is lowered to the largest allowed float32 below the previous
    one. The allowed numbers are 0 and all numbers whose absolute value is above 1e-30, the constant
    `_SMALLEST`.

    >>> falling(np.array([2.0, 2.0, 0.5])).tolist()
    [2.0, 1.9999998807907104, 0.5]
    """
    bits = scores.clip(-_LARGEST, _LARGEST).astype(np.float32).view(np.uint32).astype(np.int64)
    # The bits of a nonnegative float32, read as an integer, are its position among all nonnegative float32
    # numbers. `places` numbers the allowed scores in increasing order: 0 is the score 0; 1, 2, ... are the
    # float32 numbers above `_SMALLEST`; and -1, -2, ... are the negatives of these.
    least = int(_SMALLEST.view(np.uint32))
    size = np.maximum((bits & 0x7FFFFFFF) - least, 0)
    places, step = np.where(bits >> 31, -size, size), np.arange(len(bits))
    places = np.minimum.accumulate(places + step) - step
    size = np.where(places == 0, 0, np.abs(places) + least)
    return np.where(places < 0, size | 0x80000000, size).astype(np.uint32).view(np.float32)
