"""Settings of one fit of boosted trees, made from the parameters of `BoostedRanker`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sinkprop.common.arguments import number, whole
from sinkprop.estimator.base import seed_of
from sinkprop.estimator.criteria import gain_under
from sinkprop.gbdt.derivatives import TreeLoss
from sinkprop.gbdt.growing.bagging import query_bagging
from sinkprop.gbdt.growing.loop import Boosting
from sinkprop.gbdt.parameters import booster_parameters, resolved

__all__ = ["FitSettings"]


@dataclass(frozen=True, eq=False)
class FitSettings:
    """Settings of one fit of boosted trees.

    loss                 Settings of the loss.
    own                  The ranker's own parameters, see `resolved`.
    others               Other parameters, by LightGBM's main names.
    n_boosters           Number of boosters that the user has set, or None.
    criterion            Metrics whose mean is the criterion; None if the criterion is the expected gain.
    convention           Convention of these metrics.
    validation_fraction  Fraction of the queries to hold out if there is no evaluation set, or None.
    seed                 Seed of all random numbers.
    """

    loss: TreeLoss
    own: Mapping[str, Any]
    others: Mapping[str, Any]
    n_boosters: int | None
    criterion: str | Sequence[str] | None
    convention: str
    validation_fraction: float | None
    seed: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any], others: Sequence[str]) -> FitSettings:
        """Make the settings from all parameters of a ranker; `others` names those not in its signature."""
        own, rest = resolved(parameters, others)
        seed = seed_of(own["random_state"])
        terms = {f.name: parameters[f.name] for f in fields(TreeLoss) if f.name not in ("gain", "seed")}
        taken = ("n_boosters", "criterion", "convention", "validation_fraction")
        return cls(
            TreeLoss(gain_under(parameters["gain"], parameters["convention"]), **terms, seed=seed),
            own,
            rest,
            **{name: parameters[name] for name in taken},
            seed=seed,
        )

    @property
    def n_threads(self) -> int | None:
        """Number of threads that the user has set, or None."""
        n_threads: int | None = self.own["n_threads"]
        return n_threads

    def boosting(self, n_threads: int, **plan: Any) -> tuple[Boosting, dict[str, Any] | None]:
        """Check the parameters, and make the settings of the boosting loop from them.

        Returns the settings, and the arguments of `QueryBagging` (None without bagging by query).

        plan  Fields of `Boosting` that are not parameters of the ranker, such as `names`.
        """
        own, others = self.own, dict(self.others)
        patience = own["early_stopping_rounds"]
        min_delta = number("early_stopping_min_delta", others.pop("early_stopping_min_delta", 0.0))
        drawing, others = query_bagging(others, self.seed)
        boosting = Boosting(
            booster_parameters(own, others, seed=self.seed, n_threads=n_threads),
            n_rounds=whole("n_estimators", own["n_estimators"], 1),
            patience=whole("early_stopping_rounds", patience, 1) if patience else None,
            min_delta=min_delta,
            **plan,
        )
        return boosting, drawing

    def count(self, boosting: Boosting, n_queries: int) -> int:
        """Return the number of boosters of a fit in this process to `n_queries` training queries."""
        for name, given in (
            ("init_model", boosting.init_model is not None),
            ("callbacks", bool(boosting.callbacks)),
            ("boosting_type='dart'", boosting.dart),
        ):
            if given:
                self.check_one_booster(name)
                return 1
        count = self.own["default_boosters"] if self.n_boosters is None else self.n_boosters
        return min(whole("n_boosters", count, 1), n_queries)

    def check_one_booster(self, name: str) -> None:
        """Raise a ValueError if the user has set several boosters, which `name` does not allow."""
        if self.n_boosters is not None and whole("n_boosters", self.n_boosters, 1) > 1:
            raise ValueError(f"n_boosters must be 1 with {name}; got {self.n_boosters}.")
