"""The file formats that sinkprop reads: how a small valid file is made, used, and given its checksum again.

The content of a format is a dict of file names and bytes: a model is one file, a stored set a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))
from stored_mutations import with_checksums

Content = dict[str, bytes]

_CLOSING = re.compile(rb'  "sha256": "[0-9a-f]{64}"\n\}\n')
_CLOSING_BYTES = 81
_NETWORK = b'{"__metadata__":{"sha256":"'


@dataclass(frozen=True)
class Format:
    """A format of files.

    make     Function make(path) that writes a valid file, or a valid folder.
    use      Function use(path) that reads it, uses what was read, and returns the results.
    redo     Function that returns a content whose checksums agree with it again; None without checksums.
    refusal  Names of the error classes that reading may raise.
    """

    make: Callable[[Path], None]
    use: Callable[[Path], Any]
    redo: Callable[[Content], Content] | None
    refusal: tuple[str, ...] = ("ModelFileError",)


def queries() -> Any:
    """Six queries of seven documents with four features and docids."""
    from sinkprop import Queries

    rng = np.random.default_rng(5)
    X = rng.normal(size=(42, 4)).round(3)
    y = np.digitize(X[:, 0] + rng.normal(size=42), [0.0, 1.0]).astype(float)
    return Queries(X, y, np.repeat(np.arange(6), 7), np.array([f"d{i}" for i in range(42)]))


def _rankers() -> dict[str, Callable[[], Any]]:
    from sinkprop import SinkPropRanker, baselines
    from sinkprop.gbdt.ranker import BoostedRanker
    from sinkprop.linear.records import Annealing

    short: dict[str, Any] = {"annealing": Annealing(0.5, 0.25), "penalty": 0.01, "verbose": False}
    few: dict[str, Any] = {"penalty": 0.1, "max_iter": 2, "verbose": False}
    trees: dict[str, Any] = {"n_estimators": 3, "num_leaves": 4, "min_child_samples": 2, "verbose": False}
    return {
        "SinkPropRanker": lambda: SinkPropRanker(**short),
        "SinkPropRanker-beta": lambda: SinkPropRanker(relaxation="beta", max_iter=2, **short),
        "AdaRankRanker": lambda: baselines.AdaRankRanker(n_rounds=3, verbose=False),
        "BoltzRankRanker": lambda: baselines.BoltzRankRanker(**few),
        "FeatureRanker": lambda: baselines.FeatureRanker(2),
        "ListNetRanker": lambda: baselines.ListNetRanker(penalty=0.1, verbose=False),
        "RegressionRanker": baselines.RegressionRanker,
        "SmoothRankRanker": lambda: baselines.SmoothRankRanker(**short),
        "SoftRankRanker": lambda: baselines.SoftRankRanker(**few),
        "BoostedRanker": lambda: BoostedRanker(**trees),
        "LightGBMRanker": lambda: baselines.LightGBMRanker(**trees),
        "XGBoostRanker": lambda: baselines.XGBoostRanker(
            n_estimators=3, num_leaves=4, min_child_weight=0.1, verbose=False
        ),
        "CatBoostRanker": lambda: baselines.CatBoostRanker(
            n_estimators=3, depth=2, l2_leaf_reg=None, verbose=False
        ),
        "NeuralRanker": _network,
    }


def _network(**parameters: Any) -> Any:
    from sinkprop.torch import MLP, NeuralRanker

    return NeuralRanker(network=MLP((3,)), max_epochs=2, validation_fraction=0, verbose=False, **parameters)


def ranker(name: str) -> Any:
    """Return a new ranker of a kind, with settings for a short fit."""
    return _rankers()[name]()


def fitted(name: str, repeat: int = 1) -> Any:
    """Return a ranker of a kind, fitted to `queries`, in which each document occurs `repeat` times."""
    q = queries()
    return ranker(name).fit(np.tile(q.X, (repeat, 1)), np.tile(q.y, repeat), qid=np.tile(q.qid, repeat))


RANKERS = (
    "SinkPropRanker",
    "SinkPropRanker-beta",
    "AdaRankRanker",
    "BoltzRankRanker",
    "FeatureRanker",
    "ListNetRanker",
    "RegressionRanker",
    "SmoothRankRanker",
    "SoftRankRanker",
    "BoostedRanker",
    "LightGBMRanker",
    "XGBoostRanker",
    "CatBoostRanker",
    "NeuralRanker",
)


def use_model(path: Path) -> Any:
    """Load a model, score and rank with it, describe it, and save it again."""
    from sinkprop import load_model

    model, q = load_model(path), queries()
    scores = model.predict(q.X, qid=q.qid)
    ranks = model.rank(q.X, qid=q.qid)
    str(model), str(getattr(model, "fit_result_", ""))
    model.save(path.with_suffix(".again"))
    return scores, ranks


def _linear_checkpoint(path: Path, **parameters: Any) -> Any:
    from sinkprop import SinkPropRanker
    from sinkprop.linear.records import Annealing

    q = queries()
    ranker = SinkPropRanker(
        annealing=Annealing(0.5, 0.25), penalty=(0.01, 0.1), verbose=False, checkpoint=path, **parameters
    )
    return ranker.fit(q.X, q.y, qid=q.qid)


class _StoppedError(Exception):
    """Raised to end a fit after some of its stages, so that its checkpoint remains."""


def _make_linear_checkpoint(path: Path) -> None:
    stages = []

    def stop(stage: Any) -> None:
        stages.append(stage)
        if len(stages) == 3:
            raise _StoppedError

    try:
        _linear_checkpoint(path, on_stage=stop)
    except _StoppedError:
        return
    raise AssertionError("the fit had fewer than three stages")


def _network_fit(path: Path, **parameters: Any) -> Any:
    q = queries()
    return _network(checkpoint=path, **parameters).fit(q.X, q.y, qid=q.qid)


def _make_network_checkpoint(path: Path) -> None:
    epochs = []

    def stop(epoch: Any) -> None:
        epochs.append(epoch)
        raise _StoppedError

    try:
        _network_fit(path, on_epoch=stop)
    except _StoppedError:
        return
    raise AssertionError("the fit had no epoch")


def _scores(ranker: Any) -> Any:
    return ranker.predict(queries().X)


def _make_stored(path: Path, docids: bool) -> None:
    from sinkprop import Queries
    from sinkprop.store import save_queries

    q = queries()
    save_queries(path, q if docids else Queries(q.X, q.y, [f"q{i}" for i in q.qid]))


def _use_stored(path: Path) -> Any:
    from sinkprop import open_queries
    from sinkprop.baselines import RegressionRanker

    stored = open_queries(path)
    ranker = RegressionRanker()
    q = queries()
    ranker.fit(q.X, q.y, qid=q.qid)
    scores = ranker.predict(stored)
    whole = stored.load()
    docid = [] if whole.docid is None else whole.docid.tolist()
    return scores, whole.X, whole.y, whole.qid.tolist(), docid, stored.sizes, ranker.score(stored)


def _make_comparison(path: Path) -> None:
    from sinkprop import Fold
    from sinkprop.experiment import compare

    q = queries()
    folds = [Fold(name, q, q, q) for name in ("Fold1", "Fold2")]
    found = compare(folds, "regression,feature:1,feature:2", metrics="ndcg@1,ndcg@5,map", n_jobs=1)
    path.write_text(found.to_json(), encoding="utf-8")


def _use_comparison(path: Path) -> Any:
    from sinkprop.cli.report import report_on_comparison
    from sinkprop.experiment import Comparison
    from sinkprop.report import report_html

    report = report_on_comparison(path)
    report_html(report)
    found = Comparison.from_json(path.read_text(encoding="utf-8"))
    return found.to_csv(), found.per_query_csv(), found.to_json()


def _redone_text(data: bytes) -> bytes:
    covered = data[: -min(_CLOSING_BYTES, len(data))]
    return covered + f'  "sha256": "{hashlib.sha256(covered).hexdigest()}"\n}}\n'.encode()


def redo_text(content: Content) -> Content:
    """Give each model file, or manifest, the checksum of its bytes."""
    return {name: _redone_text(data) for name, data in content.items()}


def redo_network(content: Content) -> Content:
    """Give a network the checksum of its bytes, and the model in its header too if the header is valid."""
    ((name, data),) = content.items()
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        text = header["__metadata__"]["model"].encode()
        header["__metadata__"]["model"] = _redone_text(text).decode()
        data = network_bytes(header, data[8 + length :])
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # a damaged header is part of the test
    first = 8 + len(_NETWORK)
    digest = hashlib.sha256(data[:first] + data[first + 64 :]).hexdigest().encode()
    return {name: data[:first] + digest + data[first + 64 :]}


def network_bytes(header: dict[str, Any], body: bytes) -> bytes:
    """Return the bytes of a network file with this header, whose checksum is not redone."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def read_content(path: Path) -> Content:
    """Return the bytes of a file, or of every file of a folder, by name."""
    if path.is_dir():
        return {file.name: file.read_bytes() for file in sorted(path.iterdir())}
    return {"": path.read_bytes()}


def write_content(path: Path, content: Content) -> None:
    """Write what `read_content` returned."""
    for name, data in content.items():
        file = path / name if name else path
        os.makedirs(file.parent, exist_ok=True)
        file.write_bytes(data)


def _formats() -> dict[str, Format]:
    found = {}
    for name in RANKERS:
        redo = redo_network if name == "NeuralRanker" else redo_text
        found[name] = Format(lambda path, name=name: fitted(name).save(path), use_model, redo)
    found["linear-checkpoint"] = Format(
        _make_linear_checkpoint, lambda path: _scores(_linear_checkpoint(path)), redo_text
    )
    found["network-checkpoint"] = Format(
        _make_network_checkpoint, lambda path: _scores(_network_fit(path)), redo_network
    )
    for name, docids in (("stored-docids", True), ("stored", False)):
        found[name] = Format(
            lambda path, docids=docids: _make_stored(path, docids),
            _use_stored,
            with_checksums,
            ("StoreError",),
        )
    found["comparison"] = Format(_make_comparison, _use_comparison, None, ("ValueError",))
    return found


FORMATS = _formats()
