"""The command `sinkprop export`: a model for ONNX, Elasticsearch, OpenSearch or Solr."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from numpy.typing import NDArray

from sinkprop.cli.options import check_options_of, data_options, data_path, keep_apart, output_option
from sinkprop.cli.output import complain, counted, is_stdout, notes_on_stderr, working, write_output
from sinkprop.cli.reading import (
    Reading,
    file_name,
    ranks_by_score,
    read_model_file,
    read_queries,
    with_features_of,
)
from sinkprop.common.packages import installed
from sinkprop.data.categories import Categories, Recoding
from sinkprop.data.queries import Queries

if TYPE_CHECKING:
    from sinkprop.estimator.base import BaseRanker
    from sinkprop.export.write import Agreement, Export

__all__ = ["compare_scores", "export_command", "export_ranker"]

_FORMATS = ("onnx", "elasticsearch", "opensearch", "solr")
_ENGINES = _FORMATS[1:]


@click.command("export", short_help="Export a model to ONNX, Elasticsearch, OpenSearch or Solr.")
@click.argument("model", type=data_path(stdin=False))
@click.option(
    "--to", "form", type=click.Choice(_FORMATS), required=True, help="Format or search engine to export to."
)
@output_option(
    "-o", "--out", stdout=True, required=True, help="Output file, replaced only when complete; - for stdout."
)
@click.option(
    "--name",
    metavar="NAME",
    help="Search engines: name of the model.  [default: file name of MODEL without its suffix]",
)
@click.option(
    "--features",
    type=data_path(stdin=False),
    metavar="FILE",
    help="File with the feature names in the model's order: one name per line, a JSON list of names, or a "
    "JSON object that maps names to definitions.  [default: the names in the model, or feature_1, ...]",
)
@output_option(
    "--definitions",
    help="Search engines: output file for the request that defines the features in the engine.",
)
@click.option(
    "--store", metavar="NAME", help="Solr: name of the feature store.  [default: Solr's default store]"
)
@click.option(
    "--missing",
    type=click.Choice(["zero", "nan"]),
    help="Search engines: treat a feature without a value as 0 (zero), or as the model treats missing values "
    "(nan).  [default: zero; required if the model was trained with missing values]",
)
@click.option(
    "--transformed",
    is_flag=True,
    help="Solr: state that the features in Solr are already transformed to sign(x) log(1 + |x|), as the "
    "network expects.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32"]),
    help="ONNX: data type of features and outputs.  [default: float64]",
)
@click.option(
    "--probabilities",
    is_flag=True,
    help="ONNX: add calibrated probabilities of ranks and relevance to the outputs. Each call of the model "
    "then takes the documents of one query.",
)
@click.option(
    "--check",
    "data",
    type=data_path(stored=True),
    metavar="DATA",
    help="Data to score with both the export and the model. If the scores disagree, nothing is written.",
)
@data_options
def export_command(
    model: Path,
    form: str,
    out: Path,
    name: str | None,
    features: Path | None,
    definitions: Path | None,
    data: Path | None,
    **options: Any,
) -> int:
    """Export a saved model to ONNX, Elasticsearch, OpenSearch or Solr.

    \b
    sinkprop export m.model --to onnx -o m.onnx --check test.txt
    sinkprop export m.model --to elasticsearch -o model.json --definitions features.json
    sinkprop export m.model --to opensearch -o model.json --features names.txt --name shop
    sinkprop export m.model --to solr -o model.json --store shop --features features.json

    MODEL is a file written by `sinkprop train` or by a ranker's save method. ONNX supports every ranker
    that scores each document by itself, even if features are scaled within each query. The
    learning-to-rank plugin of Elasticsearch and OpenSearch supports linear models and trees. Solr
    supports these and networks of rectified linear units. If the format cannot express the model, the
    command fails. Search engines compute in single precision, and models for them omit constant terms
    of the score, which do not change rankings.

    --check compares the scores of the export with those of the model. It runs an ONNX model in
    onnxruntime. For a search engine, it computes scores as the engine would, in single precision, but
    does not run the engine. These scores may differ by a constant from those of the model, and documents
    with nearly equal scores may change places. With --probabilities, the probabilities are compared too.
    """  # noqa: D301
    from sinkprop.export.write import OPTIONS

    check_options_of("--to", form, {**OPTIONS, "definitions": _ENGINES})
    if data is not None and form == "onnx" and not installed("onnxruntime"):
        raise click.UsageError("--check needs onnxruntime for ONNX: pip install onnxruntime.")
    if form == "onnx" and not installed("onnx"):
        raise click.UsageError('--to onnx needs onnx: pip install "sinkprop[onnx]".')
    keep_apart(
        {"--out": out, "--definitions": definitions},
        {"MODEL": model, "--features": features, "--check": data, "--group": options["group"]},
    )
    reading = Reading.taken_from(options)
    if form in _ENGINES:
        options["name"] = model.stem if name is None else name
    named = None if features is None else _read_features(features)
    ranker = read_model_file(model)
    exported = export_ranker(ranker, format=form, features=named, **options)
    lines: list[str] = []
    if data is not None:
        lines, wrong = compare_scores(exported, ranker, model, data, reading)
        if wrong:
            for line in lines:
                complain(line, 0)
            return complain(f"{wrong} Nothing was written.", 1)
    if definitions is not None:
        write_output(definitions, exported.definitions or "")
    write_output(out, exported.content)
    lines.insert(0, _summary(exported, ranker, out, definitions))
    for line in lines:
        print(line, file=sys.stderr if is_stdout(out) else sys.stdout)
    return 0


def _read_features(path: Path) -> Any:
    """Read feature names, or a mapping from names to definitions, from a text or JSON file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: feature names must be UTF-8 text; {error}.") from None
    if text.lstrip()[:1] not in ("[", "{"):
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: starts like JSON but is not valid JSON: {error}.") from None
    return found


def export_ranker(ranker: BaseRanker, **options: Any) -> Export:
    """Run `sinkprop.export.write.export`. Error messages name command-line options, not Python arguments."""
    from sinkprop.export.write import export

    try:
        with working("exporting"):
            return export(ranker, **options)
    except ImportError as error:
        raise click.UsageError(f"{error}.") from None
    except ValueError as error:
        message = (
            str(error).replace("missing='nan'", "--missing nan").replace("missing='zero'", "--missing zero")
        )
        message = message.replace("transformed=True", "--transformed").replace("features=", "--features")
        message = message.replace("probabilities=True", "--probabilities")
        raise ValueError(message) from None


def compare_scores(
    exported: Export, ranker: BaseRanker, model: Path, data: Path, reading: Reading
) -> tuple[list[str], str]:
    """Compare the scores of an export with those of its model on the queries of a file.

    Returns a list of lines to print, and an error message, which is "" if the scores agree.
    """
    from sinkprop.export.write import agreement, probability_difference

    queries = read_queries(data, reading, rankers=[ranker])
    queries = with_features_of(ranker, queries, model_name=file_name(model), data_name=file_name(data))
    X, groups, is_onnx = _coded(ranker, queries), queries.groups, exported.format == "onnx"
    with working(f"scoring {len(queries):,} documents"), notes_on_stderr():
        outputs = exported.outputs(X, groups) if is_onnx else {"scores": exported.scores(X, groups)}
        found = agreement(outputs["scores"], ranker.predict(queries), groups, up_to_constant=not is_onnx)
        calibration = ranker.calibration_ if "top_k" in outputs else None
        if found.sound and calibration is not None:
            found = replace(found, probabilities=probability_difference(outputs, calibration, groups))
    by = "onnxruntime" if is_onnx else f"the rules of {exported.format} in single precision"
    lines = [
        f"Checked on {file_name(data)} ({counted(found.queries, 'query', 'queries')}, "
        f"{counted(len(queries), 'document', 'documents')}) with {by}.",
        f"Largest score difference: {found.difference:.2g}"
        f"{'' if is_onnx else ', apart from a constant per query'}.",
        _order(found),
    ]
    if found.probabilities is not None:
        lines.insert(2, f"Largest probability difference: {found.probabilities:.2g}.")
    if not ranks_by_score(ranker):
        lines.append(
            "These are the scores of predict. The model ranks by an assignment from two outputs per document."
        )
    if not found.sound:
        return lines, f"the export does not agree with {file_name(model)} on {file_name(data)}."
    return lines, ""


def _coded(ranker: BaseRanker, queries: Queries) -> NDArray[Any]:
    """Features of queries, in which categories have the codes that they have in the ranker."""
    names: Any = getattr(ranker, "feature_names_in_", ())
    known = getattr(ranker, "categories_", {})
    values = {i: list(known[name]) for i, name in enumerate(names) if name in known}
    return Recoding(queries, Categories(values, ()), names, "X")(queries.X)


def _order(found: Agreement) -> str:
    if found.same == found.queries:
        return f"Same order in {'all ' * (found.queries > 1)}{counted(found.queries, 'query', 'queries')}."
    share = found.turned / found.spread if found.spread else 0.0
    return (
        f"Same order in {found.same:,} of {found.queries:,} queries. Documents that change places differ in "
        f"score by at most {found.turned:.2g}, {share:.1g} of the standard deviation within queries."
    )


def _summary(exported: Export, ranker: BaseRanker, out: Path, definitions: Path | None) -> str:
    where = "" if is_stdout(out) else f" {out}"
    and_features = "" if definitions is None else f" and {definitions}"
    return (
        f"Wrote{where}{and_features}: {type(ranker).__name__} with "
        f"{counted(len(exported.names), 'feature', 'features')} for {exported.format}, "
        f"{len(exported.content):,} bytes."
    )
