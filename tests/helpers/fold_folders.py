"""Small data sets written to disk as LETOR and its kin lay them out."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Sequence
from pathlib import Path

import numpy as np

NEW = ("train", "vali", "test")
OLD = ("trainingset", "validationset", "testset")
PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def letor_text(
    first: int, n_queries: int, *, n_features: int = 4, n_documents: int = 12, seed: int = 0
) -> str:
    """Queries first, first + 1, ...: labels 0 to 2 that features 1 and 2 tell something about."""
    rng = np.random.default_rng([seed, first])
    lines = []
    for q in range(first, first + n_queries):
        X = rng.normal(size=(n_documents, n_features)).round(4)
        y = np.digitize(X[:, 0] + 0.7 * X[:, 1] + rng.normal(size=n_documents), [0.5, 1.5])
        for i in range(n_documents):
            values = " ".join(f"{k}:{x}" for k, x in enumerate(X[i], 1))
            lines.append(f"{y[i]} qid:{q} {values} #docid = D{q}-{i}\n")
    return "".join(lines)


def write_fold(
    folder: Path, texts: Sequence[str], *, names: Sequence[str] = NEW, packed: str = "", prefix: str = ""
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(names, texts, strict=True):
        (folder / f"{prefix}{name}.txt{packed}").write_bytes(PACKERS[packed](text.encode()))


def write_data_set(
    folder: Path,
    *,
    n_folds: int = 2,
    names: Sequence[str] = NEW,
    packed: str = "",
    seed: int = 0,
    size: int = 6,
) -> Path:
    """Folds whose test queries differ: each part stands once in the test."""
    parts = [letor_text(1 + size * i, size, seed=seed) for i in range(n_folds + 2)]
    for fold in range(n_folds):
        rotated = parts[fold:] + parts[:fold]
        texts = ("".join(rotated[:-2]), rotated[-2], rotated[-1])
        write_fold(folder / f"Fold{fold + 1}", texts, names=names, packed=packed)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, to see that nothing has changed."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
