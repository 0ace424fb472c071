"""A data frame with missing values and categories of every kind, for tests."""

import numpy as np

SITES, SIZES = ("blog", "docs", "news", "wiki"), ("small", "mid", "large")


def frame(pandas, n_queries=30, seed=0):
    """Return a pandas frame whose labels follow from its categories and numbers.

    The numbers are exact in float32, so that a stored set holds the same values.
    """
    rng = np.random.default_rng(seed)
    n = 12 * n_queries
    bm25, site, size = rng.integers(0, 40, n) / 4, rng.integers(0, 4, n), rng.integers(0, 3, n)
    label = np.isin(site, [1, 3]) * 1.0 + (bm25 > 6) + (size == 1)
    bm25[rng.random(n) < 0.2] = np.nan
    sites = np.array(SITES, dtype=object)[site]
    sites[rng.random(n) < 0.1] = None
    return pandas.DataFrame(
        {
            "qid": np.repeat(np.arange(n_queries), 12),
            "label": label,
            "bm25": bm25,
            "site": pandas.Categorical(sites, categories=SITES),
            "size": pandas.Categorical(np.array(SIZES)[size], categories=SIZES, ordered=True),
        }
    )


def features(frame):
    return frame.drop(columns=["qid", "label"])
