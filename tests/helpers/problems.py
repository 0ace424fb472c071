"""Small named problems, as data: every kernel and front end is held to the reference on each of them.

Run `from problems import PROBLEMS, GAINS` (pytest puts this folder on the path).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sinkprop.objective.gains import (
    ERR,
    ERRIA,
    NDCG,
    RBP,
    AlphaNDCG,
    ExpectedExposure,
    ExposureGap,
    Gain,
    Precision,
    RankLinear,
)


@dataclass(frozen=True)
class Problem:
    """One query: `scores` and `labels` (n,), the kernel's `sigma`, and `theta` (n, 2) = (mu, log s)."""

    name: str
    scores: NDArray[np.float64]
    labels: NDArray[np.float64]
    theta: NDArray[np.float64]
    sigma: float = 1.0

    @property
    def beta_theta(self) -> NDArray[np.float64]:
        """(log a, log b), within the range that the reference's quadrature is accurate in."""
        return np.clip(self.theta, np.log(0.05), np.log(500))

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def problem(
    name: str,
    scores: list[float],
    labels: list[float],
    theta: list[tuple[float, float]] | None = None,
    sigma: float = 1.0,
) -> Problem:
    """Without `theta`, documents that score high have a low mu, and scales that go from wide to narrow."""
    phi = np.array(scores, dtype=np.float64)
    default = np.stack([-np.clip(phi, -1e6, 1e6), np.linspace(0.5, -1, len(phi))], axis=1)
    return Problem(
        name, phi, np.array(labels, dtype=np.float64), default if theta is None else np.array(theta), sigma
    )


_RNG = np.random.default_rng(1106_1925)

PROBLEMS: list[Problem] = [
    problem("one document", [0.3], [2]),
    problem("one irrelevant document", [0.3], [0]),
    problem("two in order", [1.0, 0.0], [1, 0]),
    problem("two in the wrong order", [1.0, 0.0], [0, 1]),
    problem("two tied", [1.0, 1.0], [0, 1], [(0.5, 0.0), (0.5, 0.0)]),
    problem("all tied", [0.0] * 5, [0, 2, 1, 0, 1], [(0.0, 0.0)] * 5),
    problem("some tied", [2.0, 0.5, 2.0, -1.0, 0.5, 0.5], [0, 1, 2, 4, 0, 1]),
    problem("nearly tied", [1.0, 1.0 + 1e-9, 1.0 - 1e-9, 0.5], [0, 1, 2, 1]),
    problem("all labels zero", [1.5, 0.2, -0.7], [0, 0, 0]),
    problem("all labels equal", [1.5, 0.2, -0.7, 0.4], [2, 2, 2, 2]),
    problem("best order", [2.0, 1.0, 0.0, -1.0, -2.0], [4, 3, 2, 1, 0]),
    problem("worst order", [2.0, 1.0, 0.0, -1.0, -2.0], [0, 1, 2, 3, 4]),
    problem("fractional labels", [0.1, 0.9, -0.4, 0.2], [0.5, 1.5, 2.25, 0]),
    problem(
        "far from zero",
        [1e6, 1e6 + 1, 1e6 - 0.5, 1e6 + 0.25],
        [1, 0, 2, 3],
        [(9.0, 0), (9.5, 0), (8.0, 1), (9.0, -1)],
    ),
    problem("huge scores", [1e6, -1e6, 3e5, 3e5 + 2, 0.0], [0, 3, 1, 2, 0]),
    problem("differences overflow", [1e308, -1e308, 0.0], [0, 1, 2]),
    problem(
        "tiny sigma",
        [0.3, 0.1, 0.2, 0.2],
        [0, 1, 2, 1],
        [(0.3, -12), (0.1, -12), (0.2, -12), (0.2, -12)],
        1e-8,
    ),
    problem(
        "huge sigma", [0.3, 0.1, 0.2, 0.25], [0, 1, 2, 1], [(0.3, 12), (0.1, 12), (0.2, 12), (0.2, 12)], 1e8
    ),
    problem(
        "forty documents",
        list(_RNG.normal(size=40)),
        list(_RNG.integers(0, 5, size=40)),
        list(zip(_RNG.normal(size=40), _RNG.normal(size=40), strict=True)),
        0.3,
    ),
]

GAINS: list[Gain] = [
    NDCG(),
    NDCG(3),
    NDCG(2, discount="log2", gain="linear"),
    Precision(2),
    Precision(50, threshold=2),
    RBP(0.8),
    RBP(0),
    RankLinear(gain=np.sqrt, discount=lambda k: 1 / k, normalize=True),
    RankLinear(gain=np.negative, discount=np.sqrt),
    RankLinear(table=lambda r, k: np.cos(r * k) / k),
]


# gains of losses, which read the first label column alone or several
SINGLE_LABEL_GAINS: dict[str, str | Gain] = {
    "map": "map",
    "map@3": "map(threshold=2)@3",
    "mrr": "mrr@10",
    "err": ERR(10, max_label=4),
    "recall": "recall@3",
    "f": "f(beta=2)@3",
    "sum": "0.8*ndcg@10 + 0.2*mrr - 0.1*p@2",
}
LABEL_COLUMN_GAINS: dict[str, str | Gain] = {
    "column": NDCG(10).on(1),
    "sum of columns": "ndcg@10 - 0.5*mrr[2] + f@2[1]",
    "alphandcg": AlphaNDCG(4),
    "alphandcg, two columns": AlphaNDCG(alpha=0.3).on((1, 2)),
    "erria": ERRIA(4),
    "gap": -ExposureGap(groups=1),
    "gap of merit": NDCG(5) - 0.5 * ExposureGap(groups=2, merit=0, exposure="reciprocal", k=3),
    "exposure": -ExpectedExposure(),
    "target": -ExpectedExposure(target=1, exposure="reciprocal"),
}


class Lists:
    """Lists of 5, 1, 6, 3 and 40 documents with three label columns; one has ties, one no relevant document.

    The arrays have one row per document, list by list; `padded` and `mask` give the batch (5, 40).
    """

    sizes = (5, 1, 6, 3, 40)

    def __init__(self, width: int = 1, seed: int = 3) -> None:
        rng = np.random.default_rng(seed)
        N = sum(self.sizes)
        self.scores = rng.normal(size=(N, 2) if width == 2 else N)
        if width == 1:
            self.scores[6:12] = [0.5, 0.5, -1.0, 0.5, 2.0, 2.0]
        self.labels = rng.integers(0, 4, size=(N, 3)).astype(np.float64)
        self.labels[12:15] = 0
        self.qid = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.weights = rng.uniform(0.2, 1, size=N)
        self.mask = np.arange(max(self.sizes)) < np.array(self.sizes)[:, None]
        # the first documents of all lists, then the second ones, and so on: tied documents keep their order
        self.mixed = np.argsort(np.concatenate([np.arange(n) for n in self.sizes]), kind="stable")

    def padded(self, values: NDArray[np.float64], fill: float, *, first: bool = False) -> NDArray[np.float64]:
        """(5, 40) or (5, 40, L) values, with `fill` at padding, which is last or `first`."""
        rows = np.full((*self.mask.shape, *values.shape[1:]), fill)
        rows[self.mask[:, ::-1] if first else self.mask] = values
        return rows


def gain_name(gain: Gain) -> str:
    """The same in every process, which the text of a function is not."""
    return "RankLinear" if isinstance(gain, RankLinear) else str(gain)
