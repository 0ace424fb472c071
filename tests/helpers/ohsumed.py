"""OHSUMED's five folds, from the data folder; tests of it are skipped where it is absent.

Run `from ohsumed import needs_ohsumed, five_fold_means, published` (pytest puts this folder on the path).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from places import DATA

from sinkprop import Fold, Queries, evaluate, load_letor
from sinkprop.experiment.published import published_rows

METRICS = ("ndcg@3", "ndcg@5", "ndcg@10")

needs_ohsumed = pytest.mark.skipif(
    not (DATA / "ohsumed").is_dir(), reason="OHSUMED is not in the folder SINKPROP_DATA"
)


@cache
def folds() -> tuple[Fold, ...]:
    parts = [load_letor(DATA / "ohsumed" / f"S{i}.txt.xz") for i in range(1, 6)]
    made = []
    for i in range(5):
        *train, vali, test = parts[i:] + parts[:i]
        X, y, qid = (np.concatenate([getattr(part, name) for part in train]) for name in ("X", "y", "qid"))
        made.append(Fold(f"Fold{i + 1}", Queries(X, y, qid), vali, test))
    return tuple(made)


def five_fold_means(make) -> np.ndarray:
    """Test NDCG@3, @5 and @10, the means of the folds, of rankers that choose by the validation queries.

    All metrics are in LETOR's convention, as published.
    """
    found = []
    for fold in folds():
        train, vali, test = fold.train, fold.vali, fold.test
        ranker = make().set_params(convention="letor")
        ranker.fit(train.X, train.y, qid=train.qid, eval_set=[(vali.X, vali.y)], eval_qid=[vali.qid])
        result = evaluate(test.y, ranker.predict(test.X, qid=test.qid), test.qid, METRICS, "letor")
        found.append([result[metric] for metric in METRICS])
    return np.mean(found, axis=0)


def published(method: str) -> np.ndarray:
    means = {row.method: row.means for row in published_rows("OHSUMED")}[method]
    return np.array([means[metric] for metric in METRICS])
