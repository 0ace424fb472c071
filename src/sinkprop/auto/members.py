"""Members of an AutoRanker: how each one is made, what it needs, and roughly how long its fit takes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sinkprop.auto.clock import Clock, OutOfTimeError
from sinkprop.common.packages import installed
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import BaseRanker
from sinkprop.estimator.selection import Selection
from sinkprop.objective.gains import Gain

__all__ = ["KINDS", "Kind", "Settings", "fitted_member", "member_class", "named_methods"]

# Fraction of a member's training queries on which trees choose their number and networks their epoch, if the
# held-out queries must not be used for it.
_INNER_FRACTION = 0.2


@dataclass(frozen=True)
class Settings:
    """Settings that an AutoRanker passes on to its members.

    gain          Gain that the members maximize; None for the default of each.
    criterion     Criterion of the selection; None for the default of each.
    metric        Metric of `score`.
    convention    Convention of the metrics.
    n_threads     Number of threads.
    random_state  Seed.
    categorical   Column numbers of the features whose categories have no order.
    """

    gain: str | Gain | None
    criterion: str | tuple[str, ...] | None
    metric: str
    convention: str
    n_threads: int | None
    random_state: int
    categorical: tuple[int, ...] = ()


@dataclass(frozen=True)
class Kind:
    """One kind of member.

    in_words    Description.
    ranker      Name of its class.
    module      Module of this class.
    make        Function (class, settings, whether fit gets validation queries, clock) that makes a ranker.
    seconds     Function (rows, features) with a rough time of a fit, used until the first fit has been timed.
    needs       Package that must be installed; its extra has the same name.
    categories  Whether it accepts categorical features.
    """

    in_words: str
    ranker: str
    module: str
    make: Callable[[Any, Settings, bool, Clock], BaseRanker]
    seconds: Callable[[int, int], float]
    needs: str | None = None
    categories: bool = False


def _shared(settings: Settings) -> dict[str, Any]:
    return {
        "metric": settings.metric,
        "convention": settings.convention,
        "n_threads": settings.n_threads,
        "random_state": settings.random_state,
        "verbose": False,
    }


def _with_gain(settings: Settings) -> dict[str, Any]:
    return _shared(settings) | ({} if settings.gain is None else {"gain": settings.gain})


def _ridge(ranker: Any, settings: Settings, validated: bool, clock: Clock) -> BaseRanker:
    selection = Selection("validation" if validated else "cross-validation", criterion=settings.criterion)
    made: BaseRanker = ranker(
        penalty="auto", normalization="standard", selection=selection, **_shared(settings)
    )
    return made


def _linear(ranker: Any, settings: Settings, validated: bool, clock: Clock) -> BaseRanker:
    given = {} if settings.criterion is None else {"selection": Selection(criterion=settings.criterion)}
    made: BaseRanker = ranker(on_stage=clock.check, **given, **_with_gain(settings))
    return made


def _trees(ranker: Any, settings: Settings, validated: bool, clock: Clock) -> BaseRanker:
    # Under cross-fitting, the fits to the folds are averaged, so each needs only one booster.
    given = {} if validated else {"effort": "fast", "validation_fraction": _INNER_FRACTION}
    made: BaseRanker = ranker(criterion=settings.criterion, **given, **_with_gain(settings))
    return made


def _networks(ranker: Any, settings: Settings, validated: bool, clock: Clock) -> BaseRanker:
    made: BaseRanker = ranker(
        criterion=settings.criterion,
        validation_fraction=_INNER_FRACTION,
        on_epoch=clock.check,
        **_with_gain(settings),
    )
    return made


# The times of linear rankers, trees and networks grow with the number of rows; least squares also depends on
# the number of features.
KINDS: dict[str, Kind] = {
    "ridge": Kind(
        "ridge regression on the labels",
        "RegressionRanker",
        "sinkprop.baselines.regression",
        _ridge,
        lambda rows, features: 0.1 + 2e-9 * rows * features**2,
    ),
    "linear": Kind(
        "SinkPropRanker",
        "SinkPropRanker",
        "sinkprop.linear.ranker",
        _linear,
        lambda rows, features: 0.1 + 3e-4 * rows,
    ),
    "trees": Kind(
        "BoostedRanker",
        "BoostedRanker",
        "sinkprop.gbdt.ranker",
        _trees,
        lambda rows, features: 0.2 + 3e-4 * rows,
        needs="lightgbm",
        categories=True,
    ),
    "networks": Kind(
        "NeuralRanker",
        "NeuralRanker",
        "sinkprop.torch.ranker",
        _networks,
        lambda rows, features: (0.5 if "torch" in sys.modules else 4.0) + 4e-4 * rows,
        needs="torch",
    ),
}


def named_methods(methods: str | Iterable[str] | None) -> list[str]:
    """Names of the members to try, in the order of `KINDS`; all of them if `methods` is None.

    Raises a ValueError for a name that is not known, and an ImportError if a member is named whose package is
    not installed.
    """
    if methods is None:
        return list(KINDS)
    given = methods.split(",") if isinstance(methods, str) else list(methods)
    names = [name.strip() if isinstance(name, str) else name for name in given]
    for name in names:
        if name not in KINDS:
            raise ValueError(f"methods must name some of {', '.join(KINDS)}; got {name!r}.")
        if (needs := KINDS[name].needs) is not None and not installed(needs):
            raise ImportError(f'methods: {name} needs {needs}: pip install "sinkprop[{needs}]".')
    if not names:
        raise ValueError(f"methods must name at least one of {', '.join(KINDS)}, or be None for all.")
    return [name for name in KINDS if name in names]


def member_class(name: str) -> type[BaseRanker]:
    """Class of the rankers of the member `name`."""
    kind = KINDS[name]
    found: type[BaseRanker] = getattr(import_module(kind.module), kind.ranker)
    return found


def _stop_growing(clock: Clock) -> Callable[[Any], None]:
    """Return a callback of LightGBM that ends the growing of trees when no time is left, and keeps them."""
    from lightgbm.callback import EarlyStopException

    def stop(state: Any) -> None:
        try:
            clock.check()
        except OutOfTimeError:
            clock.n_cut += 1
            raise EarlyStopException(state.iteration, state.evaluation_result_list or []) from None

    return stop


def fitted_member(
    name: str, settings: Settings, data: TrainingSet, validation: TrainingSet | None, clock: Clock
) -> BaseRanker:
    """Fit a ranker of the kind `name` to `data`, and return it.

    validation  Queries that may choose its stage, number of trees or epoch; None if it must hold out some of
                `data` itself.

    If the time ends during the fit, trees are cut short: the model has the trees grown so far. Other members
    raise an `OutOfTimeError`.
    """
    kind = member_class(name)
    clock.check()  # the import of its package may have taken long
    ranker = KINDS[name].make(kind, settings, validation is not None, clock)
    more: dict[str, Any] = {}
    if name == "trees":
        more = {"callbacks": [_stop_growing(clock)], "categorical_feature": list(settings.categorical)}
    if validation is not None:
        more |= {"eval_set": [(validation.X, validation.y)], "eval_qid": [validation.codes]}
    with warnings.catch_warnings():
        # The AutoRanker has given the warnings about the data, and its record has the times of all fits.
        warnings.simplefilter("ignore", UserWarning)
        warnings.filterwarnings("ignore", message=".*had a processor for only", category=RuntimeWarning)
        ranker.fit(
            data.X,
            data.y,
            qid=data.codes,
            sample_weight=data.sample_weight,
            query_weight=data.query_weight,
            **more,
        )
    # the fitted ranker must not hold the clock, which cannot be used again
    ranker.set_params(
        **{name: None for name in ("on_stage", "on_epoch") if name in ranker.get_params(deep=False)}
    )
    return ranker
