"""Small training sets for the tests of linear fits."""

import numpy as np

from sinkprop.data import group_rows
from sinkprop.data.training_set import TrainingSet


def training_set(n_queries=5, weights=False, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 20, n_queries)
    n = sizes.sum()
    X = (rng.normal(size=(n, 4)) * [1, 10, 0.1, 1] + [0, 5, 0, -2]).astype(dtype)
    y = np.digitize(X @ [1, 0.1, 3, 0] + rng.normal(size=n), [0.5, 2]).astype(float)
    groups = group_rows(np.repeat(np.arange(n_queries), sizes), n)
    if not weights:
        return TrainingSet(X, y, groups)
    return TrainingSet(X, y, groups, rng.uniform(0.5, 2, n), rng.uniform(0, 2, n_queries))
