"""`sinkprop export`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkprop.cli.options import check_new_file, installed, keep_apart
from sinkprop.cli.output import complain, counted, is_stdout, working, write_output
from sinkprop.cli.reading import (
    Reading,
    Scorer,
    data_options,
    data_path,
    file_name,
    read_model_file,
    read_queries,
)

if TYPE_CHECKING:
    import click

    from sinkprop.estimator.base import BaseRanker
    from sinkprop.export.write import Agreement, Export

__all__ = ["export_command"]

_FORMATS = ("onnx", "elasticsearch", "opensearch", "solr")
_ENGINES = _FORMATS[1:]


def export_command() -> click.Command:
    import click

    @click.command("export", short_help="Write a model for ONNX, Elasticsearch, OpenSearch or Solr.")
    @click.argument("model", type=data_path(stdin=False))
    @click.option(
        "--to",
        "form",
        type=click.Choice(_FORMATS),
        required=True,
        help="What the model is written for.",
    )
    @click.option(
        "-o",
        "--out",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        required=True,
        metavar="FILE",
        callback=check_new_file,
        help="Where to write, in one step; - for stdout.",
    )
    @click.option(
        "--name", metavar="NAME", help="Engines: of the model.  [default: MODEL's, without its suffix]"
    )
    @click.option(
        "--features",
        type=data_path(stdin=False),
        metavar="FILE",
        help="Names of the features in their order: one a line, or JSON, a list of names or an object that "
        "says what each is.  [default: the model's names, or feature_1, ...]",
    )
    @click.option(
        "--definitions",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        callback=check_new_file,
        help="Engines: also write the request that defines the features.",
    )
    @click.option("--store", metavar="NAME", help="Solr: the feature store.  [default: Solr's]")
    @click.option(
        "--missing",
        type=click.Choice(["zero", "nan"]),
        help="Engines: whether a feature without a value goes where 0 goes in a tree, or where the model "
        "sends missing values.  [default: zero; to be said where the model was trained with such]",
    )
    @click.option(
        "--transformed",
        is_flag=True,
        help="Solr: its features are already sign(x) log(1 + |x|), as the network takes them.",
    )
    @click.option(
        "--dtype",
        type=click.Choice(["float64", "float32"]),
        help="ONNX: of features and scores.  [default: float64]",
    )
    @click.option(
        "--check",
        "data",
        type=data_path(stored=True),
        metavar="DATA",
        help="Score this file by the export and by the model; nothing is written where they do not agree.",
    )
    @data_options
    def export(
        model: Path,
        form: str,
        out: Path,
        name: str | None,
        features: Path | None,
        definitions: Path | None,
        data: Path | None,
        store: str | None,
        missing: str | None,
        transformed: bool,
        dtype: str | None,
        **reading: Any,
    ) -> int:
        """Write MODEL for where it serves.

        ONNX takes every ranker whose scores are a function of the document, or of the query's documents where
        features are normalized by query; the plugin of Elasticsearch and OpenSearch takes linear models and
        trees, Solr those and networks of rectified units. What a format cannot say is an error. Engines drop
        constants and count in single precision.

        A check of ONNX is by onnxruntime. That of an engine is by its rules, in single precision, and without
        the engine: the scores may differ by a constant, and documents with nearly equal scores may change
        places.

        \b
        sinkprop export m.model --to onnx -o m.onnx --check test.txt
        sinkprop export m.model --to elasticsearch -o model.json --definitions features.json
        sinkprop export m.model --to opensearch -o model.json --features names.txt --name shop
        sinkprop export m.model --to solr -o model.json --store shop --features features.json
        """  # noqa: D301
        context = click.get_current_context()
        _check_options(context, form)
        if data is not None and form == "onnx" and not installed("onnxruntime"):
            raise click.UsageError(
                "--check needs onnxruntime for ONNX: pip install onnxruntime.", ctx=context
            )
        if form == "onnx" and not installed("onnx"):
            raise click.UsageError('--to onnx needs onnx: pip install "sinkprop[onnx]".', ctx=context)
        keep_apart(
            {"--out": out, "--definitions": definitions},
            {"MODEL": model, "--features": features, "--check": data, "--group": reading["group"]},
        )
        named = _read_features(features) if features is not None else None
        ranker = read_model_file(model)
        exported = _export(
            context,
            ranker,
            format=form,
            name=(model.stem if name is None else name) if form in _ENGINES else None,
            features=named,
            store=store,
            missing=missing,
            transformed=transformed,
            dtype=dtype,
        )
        lines: list[str] = []
        if data is not None:
            lines, wrong = _check(exported, ranker, model, data, Reading(**reading))
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

    return export


def _check_options(context: click.Context, form: str) -> None:
    import click
    from click.core import ParameterSource

    from sinkprop.export.write import OPTIONS

    for name, formats in {**OPTIONS, "definitions": _ENGINES}.items():
        given = context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
        if given and form not in formats:
            raise click.UsageError(f"--{name} is an option of --to {' or '.join(formats)}.", ctx=context)


def _read_features(path: Path) -> Any:
    """Names, or a mapping from names to definitions, of a text or JSON file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: names of features must be UTF-8 text; {error}.") from None
    if text.lstrip()[:1] not in ("[", "{"):
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: looks like JSON, and is none: {error}.") from None
    return found


def _export(context: click.Context, ranker: BaseRanker, **options: Any) -> Export:
    import click

    from sinkprop.export.write import export

    try:
        with working("exporting"):
            return export(ranker, **options)
    except ImportError as error:
        raise click.UsageError(f"{error}.", ctx=context) from None
    except ValueError as error:
        # what Python takes as arguments are options here
        message = (
            str(error).replace("missing='nan'", "--missing nan").replace("missing='zero'", "--missing zero")
        )
        message = message.replace("transformed=True", "--transformed").replace("features=", "--features")
        raise ValueError(message) from None


def _check(
    exported: Export, ranker: BaseRanker, model: Path, data: Path, reading: Reading
) -> tuple[list[str], str]:
    """What to print of the export's scores of a file, and what is wrong with them, if anything is."""
    from sinkprop.data.queries import group_rows
    from sinkprop.export.write import agreement

    queries = read_queries(data, reading)
    scorer = Scorer.of(ranker, queries, model_name=file_name(model), data_name=file_name(data))
    groups = group_rows(scorer.qid, len(scorer.X))
    with working(f"scoring {len(queries):,} documents"):
        found = agreement(
            exported.scores(scorer.X, groups),
            scorer.scores(),
            groups,
            up_to_constant=exported.format != "onnx",
        )
    by = (
        "onnxruntime" if exported.format == "onnx" else f"the rules of {exported.format}, in single precision"
    )
    lines = [
        f"Checked on {file_name(data)}, {counted(found.queries, 'query', 'queries')} of "
        f"{counted(len(queries), 'document', 'documents')}, by {by}.",
        f"Largest difference of a score: {found.difference:.2g}"
        f"{'' if exported.format == 'onnx' else ', but for a constant'}.",
        _order(found),
    ]
    if not scorer.ranks_by_score:
        lines.append(
            "Scores are those of predict; the model's own ranks are an assignment of two outputs a document."
        )
    if not found.sound:
        return lines, f"the export does not agree with {file_name(model)} on {file_name(data)}."
    return lines, ""


def _order(found: Agreement) -> str:
    if found.same == found.queries:
        return (
            f"Order: the same in {'all ' * (found.queries > 1)}{counted(found.queries, 'query', 'queries')}."
        )
    share = found.turned / found.spread if found.spread else 0.0
    return (
        f"Order: the same in {found.same:,} of {found.queries:,} queries; documents that change places have "
        f"scores within {found.turned:.2g}, {share:.1g} of the standard deviation in a query."
    )


def _summary(exported: Export, ranker: BaseRanker, out: Path, definitions: Path | None) -> str:
    where = "" if is_stdout(out) else f" {out}"
    and_features = "" if definitions is None else f" and {definitions}"
    return (
        f"Wrote{where}{and_features}: {type(ranker).__name__} of "
        f"{counted(len(exported.names), 'feature', 'features')} for {exported.format}, "
        f"{len(exported.content):,} bytes."
    )
