"""What a `BoostedRanker` does unless told otherwise; the defaults of the loss are those of `TreeLoss`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULTS", "Defaults"]


@dataclass(frozen=True)
class Defaults:
    n_estimators: int = 500
    learning_rate: float = 0.05
    num_leaves: int = 8
    min_child_samples: int = 20
    early_stopping_rounds: int | None = 50


DEFAULTS = Defaults()
