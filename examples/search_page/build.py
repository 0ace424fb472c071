"""A search page for the documentation of Python's standard library, ranked by a model in the browser.

    python examples/search_page/build.py DIR
    python -m http.server --directory DIR

The documents are the docstrings of the Python that runs this program, and the queries and labels are those
of pydocs (tools/pydocs_judgments.txt). Every query gets the candidates and features that the page computes
for it. A linear model is trained on three fifths of the queries, selected and calibrated on a fifth, and
tested on the rest. The page holds an index of the documents, the model as ONNX with its probabilities, and
onnxruntime-web, which `npm ci --ignore-scripts --prefix tests/browser` installs.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from sinkprop import Queries, SinkPropRanker, datasets
from sinkprop.export import to_onnx
from sinkprop.metrics import evaluate

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ("index.html", "style.css", "page.mjs", "search.mjs")
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
N_CANDIDATES = 100


def load_tool() -> ModuleType:
    """The program that makes pydocs: its documents, words, formulas and judgments."""
    spec = importlib.util.spec_from_file_location("make_pydocs", ROOT / "tools" / "make_pydocs.py")
    assert spec is not None
    assert spec.loader is not None
    tool = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(tool)
    return tool


TOOL = load_tool()


def collection() -> Any:
    """The documents of the modules that this Python has."""
    return TOOL.Collection(TOOL.collect([name for name in TOOL.MODULES.split() if _exists(name)]))


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def candidates(documents: Any, words: Sequence[str]) -> list[int]:
    """The documents that the model ranks: the first of several rankings in turn."""
    rankings = [iter(documents.ranking(feature, field, words)) for feature, field in TOOL.RUNS]
    chosen: dict[int, None] = {}
    while rankings and len(chosen) < N_CANDIDATES:
        for ranking in list(rankings):
            d = next((d for d in ranking if d not in chosen), None)
            if d is None:
                rankings.remove(ranking)
            elif len(chosen) < N_CANDIDATES:
                chosen[d] = None
    return list(chosen)


def features(documents: Any, chosen: Sequence[int], words: Sequence[str]) -> Any:
    """The features of documents of one query, each scaled to [0, 1] among them, as an array."""
    return np.array(TOOL.query_level_norm([documents.features(d, words) for d in chosen]))


def judged(documents: Any) -> list[tuple[Any, dict[int, int]]]:
    """The queries with their labels by document, without what this Python does not have."""
    found = []
    for query in TOOL.read_judgments(TOOL.JUDGMENTS):
        patterns = {
            grade: tuple(p for p in listed if TOOL.matching(p, documents.number))
            for grade, listed in query.patterns.items()
        }
        if patterns[2]:
            found.append((query, TOOL.grades(dataclasses.replace(query, patterns=patterns), documents)))
    return found


@dataclasses.dataclass(frozen=True)
class Part:
    """Queries with their labels, and the features of their candidates."""

    queries: list[tuple[Any, dict[int, int]]]
    candidates: list[list[int]]
    rows: Queries


def parts(documents: Any) -> list[Part]:
    """Five parts of the queries, as in pydocs."""
    labeled = judged(documents)
    labels = {query.text: graded for query, graded in labeled}
    made = []
    for queries in TOOL.deal([query for query, _ in labeled]):
        chosen, X, y, qid = [], [], [], []
        for q, query in enumerate(queries):
            words = documents.words(query.text)
            chosen.append(candidates(documents, words))
            X.append(features(documents, chosen[-1], words))
            y += [labels[query.text].get(d, 0) for d in chosen[-1]]
            qid += [q] * len(chosen[-1])
        rows = Queries(np.concatenate(X), np.array(y, dtype=float), np.array(qid))
        made.append(Part([(query, labels[query.text]) for query in queries], chosen, rows))
    return made


def feature_names() -> tuple[str, ...]:
    """Names of the features, those of pydocs."""
    return tuple(name for _, name, _, _ in TOOL.feature_table())


def train(made: Sequence[Part]) -> SinkPropRanker:
    """A linear model of the first three parts, selected and calibrated on the fourth."""
    X, y = (np.concatenate([getattr(part.rows, name) for part in made[:3]]) for name in ("X", "y"))
    qid = np.concatenate([1000 * i + part.rows.qid for i, part in enumerate(made[:3])])
    ranker = SinkPropRanker(selection="validation", verbose=False)
    return ranker.fit(Queries(X, y, qid), eval_set=made[3].rows)


def bm25(documents: Any, part: Part) -> Any:
    """Scores that decrease down BM25's order of all documents, whose ties are in order of their names."""
    scores: list[int] = []
    for (query, _), chosen in zip(part.queries, part.candidates, strict=True):
        ranking = documents.ranking(TOOL.bm25, "whole", documents.words(query.text))
        place = {d: i for i, d in enumerate(ranking)}
        scores += [-place[d] for d in chosen]
    return np.array(scores, dtype=float)


def ndcg(part: Part, scores: Any) -> float:
    """Mean NDCG@10; labeled documents that are no candidates follow after the candidates."""
    labels, values, qid = [], [], []
    for q, (_, graded) in enumerate(part.queries):
        rows = part.rows.qid == q
        missed = [label for d, label in graded.items() if d not in part.candidates[q]]
        labels += [*part.rows.y[rows], *missed]
        values += [*scores[rows], *[scores.min() - 1] * len(missed)]
        qid += [q] * (rows.sum() + len(missed))
    return float(evaluate(np.array(labels), np.array(values), np.array(qid), metrics="ndcg@10")["ndcg@10"])


def postings(words: Sequence[Sequence[str]], number: dict[str, int]) -> list[list[int]]:
    """[gap, occurrences, gap, ...] of each word of the vocabulary, by increasing documents."""
    found: list[list[tuple[int, int]]] = [[] for _ in number]
    for d, counts in enumerate(map(Counter, words)):
        for word, tf in counts.items():
            found[number[word]].append((d, tf))
    return [
        [value for (before, _), (d, tf) in pairwise([(-1, 0), *pairs]) for value in (d - before, tf)]
        for pairs in found
    ]


def index_of(documents: Any, test: Part, quality: dict[str, float]) -> dict[str, Any]:
    """What the page needs besides the model: documents, words, and the test queries with their labels."""
    listed = documents.documents
    vocabulary = sorted({word for document in listed for word in document.words["whole"]})
    number = {word: t for t, word in enumerate(vocabulary)}
    kinds = ("method", "function", "class", "module")
    run_names = {feature: name for name, (feature, _) in TOOL.FIELD_FEATURES.items()}
    return {
        "python": platform.python_version(),
        "quality": quality,
        "features": feature_names(),
        "nCandidates": N_CANDIDATES,
        "runs": [(run_names[feature], field) for feature, field in TOOL.RUNS],
        "stopWords": TOOL.STOP_WORDS.split(),
        "documents": {
            "docid": [d.docid for d in listed],
            "summary": [d.line for d in listed],
            "kind": [kinds.index(d.kind) for d in listed],
            "parent": [documents.number.get(d.parent, -1) for d in listed],
            "parts": [d.docid.count(".") + 1 for d in listed],
            "parameters": [d.n_parameters for d in listed],
            "siblings": [documents.siblings[d.parent] - (d.kind != "module") for d in listed],
        },
        "vocabulary": vocabulary,
        "postings": {f: postings([d.words[f] for d in listed], number) for f in TOOL.FIELDS[:4]},
        "queries": [{"text": query.text, "labels": list(graded.items())} for query, graded in test.queries],
    }


def build(folder: Path, packages: Path) -> tuple[Any, list[Part], SinkPropRanker]:
    """Write the page, and return the documents, the parts of the queries, and the ranker."""
    runtime = packages / "onnxruntime-web" / "dist"
    missing = [name for name in RUNTIME if not (runtime / name).exists()]
    if missing:
        raise SystemExit(
            f"{packages} must have onnxruntime-web; not found: {', '.join(missing)}. "
            "Run npm ci --ignore-scripts --prefix tests/browser, or name its folder with --packages."
        )
    documents = collection()
    made = parts(documents)
    ranker = train(made)
    test = made[4]
    quality = {"model": ndcg(test, ranker.predict(test.rows)), "bm25": ndcg(test, bm25(documents, test))}

    (folder / "ort").mkdir(parents=True, exist_ok=True)
    for name in PAGE:
        shutil.copy(HERE / name, folder)
    for name in RUNTIME:
        shutil.copy(runtime / name, folder / "ort")
    license_of_names = Path(datasets.__file__).parent / "pydocs" / "PSF-LICENSE.txt"
    shutil.copy(license_of_names, folder)
    to_onnx(ranker, folder / "model.onnx", probabilities=True, features=feature_names())
    text = json.dumps(index_of(documents, test, quality), ensure_ascii=False, separators=(",", ":"))
    (folder / "index.json").write_text(text, encoding="utf-8")
    print(f"NDCG@10 on {len(test.queries)} test queries: {quality['model']:.4f}; BM25 {quality['bm25']:.4f}")
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        print(f"{path.stat().st_size / 1000:8,.0f} kB  {path.relative_to(folder)}")
    return documents, made, ranker


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and build the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of the page; created if it is missing")
    parser.add_argument(
        "--packages", type=Path, default=ROOT / "tests/browser/node_modules", help="folder of npm packages"
    )
    options = parser.parse_args(arguments)
    build(options.folder, options.packages)


if __name__ == "__main__":
    main()
