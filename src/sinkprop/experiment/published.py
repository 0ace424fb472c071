"""Published test means on LETOR 3.0, by data set and method.

The rows were compiled by N. Tax for a comparison of methods across benchmarks (N. Tax, S. Bockting and
D. Hiemstra, "A cross-benchmark comparison of 87 learning to rank methods", Information Processing and
Management 51, 2015; the repository TaXxER/Afstuderen). It is a secondary source: the numbers were reported by
the methods' authors, as means over the five folds in LETOR's own convention. The results of LRUF and LARF,
which are far above all others, have not been reproduced.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

__all__ = ["CREDIT", "OUTLIERS", "PublishedRow", "published_methods", "published_rows"]

CREDIT = "compiled by N. Tax (TaXxER/Afstuderen), a secondary source"
OUTLIERS = ("LRUF", "LARF")


@dataclass(frozen=True)
class PublishedRow:
    """Published means of a method on a data set.

    Parameters
    ----------
    method : str
        Name of the method.
    means : mapping
        {metric: mean}, without metrics that were not published.
    """

    method: str
    means: Mapping[str, float]


def published_rows(data_set: str) -> tuple[PublishedRow, ...]:
    """Published rows of a data set, the highest NDCG@10 first.

    Parameters
    ----------
    data_set : str
        Name of the data set, in upper or lower case.

    Returns
    -------
    tuple of PublishedRow
        The rows; empty if none are known.

    Examples
    --------
    >>> rows = {row.method: row.means for row in published_rows("ohsumed")}
    >>> rows["Regression"]
    {'ndcg@3': 0.4426, 'ndcg@5': 0.4278, 'ndcg@10': 0.411, 'map': 0.422}
    >>> published_rows("MQ2007")
    ()
    """
    rows = _read().get(data_set.partition("/")[0].lower(), ())
    return tuple(sorted(rows, key=lambda row: (-row.means.get("ndcg@10", -1.0), row.method.lower())))


def published_methods() -> tuple[str, ...]:
    """Names of all methods with a published row, in alphabetical order."""
    return tuple(sorted({row.method for rows in _read().values() for row in rows}, key=str.lower))


@lru_cache(maxsize=1)
def _read() -> dict[str, list[PublishedRow]]:
    text = files("sinkprop.experiment").joinpath("published-letor3.csv").read_text(encoding="utf-8")
    found: dict[str, list[PublishedRow]] = {}
    for row in csv.DictReader(text.splitlines()):
        data_set, method = row.pop("dataset"), row.pop("method")
        means = {metric: float(value) for metric, value in row.items() if value}
        found.setdefault(data_set.lower(), []).append(PublishedRow(method, means))
    return found
