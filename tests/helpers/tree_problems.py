"""Data sets for the tests of tree libraries, and what the definitions give for them, one query at a time."""

import numpy as np

from sinkprop.data import group_rows
from sinkprop.gbdt import Derivatives, TreeLoss
from sinkprop.gbdt.derivatives import GAIN

AWKWARD = {
    "one document a query": (np.eye(3), [0, 1, 2], [0, 1, 2]),
    "one document": (np.eye(1), [1], [0]),
    "one query": (np.eye(3), [0, 1, 2], [0, 0, 0]),
    "no relevant document": (np.eye(4), [0, 0, 0, 0], [0, 0, 1, 1]),
    "all labels equal": (np.eye(4), [2, 2, 2, 2], [0, 0, 1, 1]),
    "all features equal": (np.full((4, 2), 1 / 3), [0, 1, 2, 0], [0, 0, 1, 1]),
    "all features missing": (np.full((4, 2), np.nan), [0, 1, 2, 0], [0, 0, 1, 1]),
    "huge features": (np.array([[1e150], [2e150], [3e150], [-1e150]]), [0, 1, 2, 0], [0, 0, 1, 1]),
    "tiny features": (np.array([[1e-150], [2e-150], [3e-150], [-1e-150]]), [0, 1, 2, 0], [0, 0, 1, 1]),
    "more features than rows": (np.random.default_rng(0).normal(size=(4, 9)), [0, 1, 2, 0], [0, 0, 1, 1]),
}


def queries(n_queries=20, seed=0, *, sizes=None, labels="graded"):
    """Features, labels and sizes of consecutive queries; labels by a product of features.

    Of unequal sizes, the first of one document; the second query has no relevant one.
    """
    rng = np.random.default_rng(seed)
    sizes = np.array([1, *rng.integers(8, 25, n_queries - 1)]) if sizes is None else np.asarray(sizes)
    X = rng.normal(size=(sizes.sum(), 4))
    worth = 2 * X[:, 0] * X[:, 1] + rng.normal(size=len(X))
    y = np.digitize(worth, [0.5, 2.0]).astype(np.float64)
    if labels == "real":  # of any float value, and beyond 31
        y = np.where(worth > 0.5, 10 * worth, 0.0)
        y[np.argmax(y)] = 57.25
        y = y.astype(np.float32).astype(np.float64)  # as the libraries keep them
    y[sizes[:1].sum() : sizes[:2].sum()] = 0
    return X, y, sizes


def ranking_data(n_queries=20, seed=0, n_features=4):
    """Labels by a product of features, which no linear ranker learns."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(10, 30, n_queries))
    X = rng.normal(size=(len(qid), n_features))
    return X, np.digitize(2 * X[:, 0] * X[:, 1] + rng.normal(size=len(qid)), [0.5, 2.0]).astype(float), qid


def evaluation(validation):
    """Arguments of `fit` for validation queries, from their features, labels and qid."""
    return {"eval_set": [validation[:2]], "eval_qid": [validation[2]]}


def qid_of(sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


def by_hand(y, sizes, gain=GAIN, *, loss=None, **weights):
    """The derivatives, without a library between."""
    return Derivatives(TreeLoss(gain=gain, **(loss or {})), y, group_rows(qid_of(sizes), len(y)), **weights)


def slopes(value, scores, step=1e-6):
    """Central differences of a function of all scores: (N,)."""
    out = np.empty(len(scores))
    for row in range(len(scores)):
        up, down = scores.copy(), scores.copy()
        up[row] += step
        down[row] -= step
        out[row] = (value(up) - value(down)) / (2 * step)
    return out


def hard_gain(gain, y, scores, sizes):
    """The mean over queries of sum_k G(r_k) D(k), a share of the best ranking's where the gain is one."""
    values, start = [], 0
    for size in sizes:
        rows = slice(start, start + size)
        start += size
        G = gain.gains(y[rows])[np.argsort(-scores[rows], kind="stable")]
        D = gain.discounts(size)
        best = np.sort(G)[::-1] @ D if gain.normalized else 1.0
        values.append(G @ D / best if best > 0 else 0.0)
    return np.mean(values)
