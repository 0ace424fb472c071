"""The table `METHODS` of ranking methods: `compare` looks them up here by their names."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sinkprop.estimator.selection import Selection

__all__ = ["METHODS", "Method", "parse_methods"]


@dataclass(frozen=True)
class Method:
    """A ranking method that `compare` can run.

    Parameters
    ----------
    description : str
        One line that describes the method.
    make : callable
        Function without arguments that returns an estimator.
    cost : float, default 100.0
        Rough time of a fit, relative to the other methods. `compare` starts the most expensive fits first.
        Methods that take almost no time have a cost below 10.
    needs : str, optional
        Optional package that the method needs; it is also the name of the extra that installs it.
    """

    description: str
    make: Callable[[], Any]
    cost: float = 100.0
    needs: str | None = None


def _sinkprop(**parameters: Any) -> Callable[[], Any]:
    def make() -> Any:
        from sinkprop.linear.ranker import SinkPropRanker

        return SinkPropRanker(**parameters)

    return make


def _baseline(name: str, **parameters: Any) -> Callable[[], Any]:
    def make() -> Any:
        from sinkprop import baselines

        return getattr(baselines, name)(**parameters)

    return make


def _given(estimator: Any) -> Callable[[], Any]:
    return lambda: estimator


_BEST = Selection(method="validation", rule="best")


def _paper(**parameters: Any) -> Callable[[], Any]:
    """Return a function that makes a SinkPropRanker which is trained and selected as in the paper.

    It starts from least squares, anneals the smoothing for each penalty, and selects the stage with the
    highest criterion on the validation set. The criterion is the mean of one or several metrics, see
    `Selection`.
    """

    def make() -> Any:
        from sinkprop.linear.records import Annealing

        recipe = {"start": "least-squares", "max_iter": 20, "tol": 1e-9, "selection": _BEST}
        return _sinkprop(annealing=Annealing(), **recipe, **parameters)()

    return make


def _trees(objective: str) -> Callable[[], Any]:
    return _baseline("LightGBMRanker", objective=objective)


def _catboost(objective: str, **parameters: Any) -> Callable[[], Any]:
    return _baseline("CatBoostRanker", objective=objective, **parameters)


def _boosted() -> Any:
    from sinkprop.gbdt import BoostedRanker

    return BoostedRanker()


def _auto() -> Any:
    from sinkprop.auto import AutoRanker

    return AutoRanker()


def _neural(loss: str) -> Callable[[], Any]:
    def make() -> Any:
        from sinkprop.torch import NeuralRanker

        return NeuralRanker(loss)

    return make


def _attention() -> Any:
    from sinkprop.torch import ListTransformer, NeuralRanker

    return NeuralRanker(network=ListTransformer())


_RIDGE = _baseline("RegressionRanker", penalty="auto", normalization="standard")

METHODS: dict[str, Method] = {
    "regression": Method("least squares on the labels", _baseline("RegressionRanker"), cost=1),
    "sinkprop": Method("SinkPropRanker with its defaults", _sinkprop()),
    "sinkprop-laplace": Method("SinkPropRanker with the Laplace kernel", _sinkprop(relaxation="laplace"), 80),
    "sinkprop-best": Method("SinkPropRanker by the paper's recipe, best on the validation set", _paper(), 20),
    "sinkprop-resampled": Method(
        "SinkPropRanker, 20 resampled copies per query, best on validation", _paper(resample=20), 400
    ),
    "sinkprop-logit-logistic": Method(
        "SinkPropRanker, partitioned (logit-logistic)", _sinkprop(relaxation="logit-logistic"), 250
    ),
    "sinkprop-probit": Method("SinkPropRanker, partitioned (probit)", _sinkprop(relaxation="probit"), 250),
    "sinkprop-beta": Method("SinkPropRanker, partitioned (beta)", _sinkprop(relaxation="beta"), 500),
    "smoothrank": Method("SmoothRank: half a Sinkhorn iteration", _baseline("SmoothRankRanker"), 20),
    "listnet": Method("ListNet on the first rank", _baseline("ListNetRanker"), 10),
    "listnet-top2": Method("ListNet on the first two ranks", _baseline("ListNetRanker", top_k=2), 12),
    "adarank-map": Method("AdaRank on MAP", _baseline("AdaRankRanker"), 10),
    "adarank-ndcg": Method("AdaRank on NDCG@5", _baseline("AdaRankRanker", measure="ndcg@5"), 10),
    "adarank-ranklib": Method(
        "AdaRank on NDCG@5, by RankLib's rules",
        _baseline("AdaRankRanker", measure="ndcg@5", variant="ranklib"),
        15,
    ),
    "softrank": Method("SoftRank: noisy scores, in cubic time", _baseline("SoftRankRanker"), 150),
    "softrank-balanced": Method(
        "SoftRank, ranking by its balanced distribution", _baseline("SoftRankRanker", balance=True), 150
    ),
    "boltzrank-single": Method("BoltzRank with linear scores", _baseline("BoltzRankRanker"), 15),
    "boltzrank-pair": Method(
        "BoltzRank with pair potentials", _baseline("BoltzRankRanker", potential="pair"), 60
    ),
    "ridge": Method("ridge regression on the labels", _RIDGE, cost=1),
    "boosted": Method(
        "trees on the expected gain, same candidates as lambdamart", _trees("sinkprop"), 400, "lightgbm"
    ),
    "boosted-default": Method("BoostedRanker with its defaults", _boosted, 100, "lightgbm"),
    "lambdamart": Method("boosted trees, LightGBM's LambdaMART", _trees("lambdarank"), 400, "lightgbm"),
    "ranknet-trees": Method("boosted trees, pairwise logistic loss", _trees("ranknet"), 200, "lightgbm"),
    "xendcg-trees": Method("boosted trees, cross-entropy NDCG", _trees("rank_xendcg"), 200, "lightgbm"),
    "xgboost-ndcg": Method(
        "XGBoost's LambdaMART, as many candidates as lambdamart",
        _baseline("XGBoostRanker"),
        400,
        "xgboost",
    ),
    "catboost-yetirank": Method(
        "CatBoost's YetiRank, as many candidates as lambdamart", _catboost("yetirank"), 600, "catboost"
    ),
    "catboost-ndcg": Method(
        "CatBoost's YetiRank with mode=NDCG, likewise", _catboost("yetirank-ndcg"), 600, "catboost"
    ),
    "catboost-queryrmse": Method("CatBoost's QueryRMSE, likewise", _catboost("queryrmse"), 300, "catboost"),
    "catboost-stochasticrank": Method(
        "CatBoost's StochasticRank on NDCG, likewise", _catboost("stochasticrank"), 600, "catboost"
    ),
    "catboost-default": Method(
        "CatBoost's YetiRank with CatBoost's own defaults",
        # its rounds, its learning rate, and the number of trees that it chooses on the validation queries
        _catboost("yetirank", n_estimators=1000, depth=6, l2_leaf_reg=None, learning_rate=None, step=None),
        400,
        "catboost",
    ),
    "auto": Method("AutoRanker: linear, trees and networks, combined", _auto, 1000),
    "best-feature": Method(
        "single feature that is best on the training queries", _baseline("FeatureRanker"), cost=2
    ),
    "sinkprop-neural": Method("NeuralRanker with its defaults", _neural("sinkprop"), 30, "torch"),
    "sinkprop-attention": Method(
        "NeuralRanker with attention between a query's documents", _attention, 90, "torch"
    ),
    "neural-listnet": Method("NeuralRanker with ListNet's loss", _neural("listnet"), 30, "torch"),
    "neural-approxndcg": Method("NeuralRanker with ApproxNDCG's loss", _neural("approxndcg"), 40, "torch"),
    "neural-lambdarank": Method("NeuralRanker with LambdaRank's loss", _neural("lambdarank"), 40, "torch"),
}
_NEURAL = tuple(name for name, method in METHODS.items() if method.needs == "torch")
_TREE_LIBRARIES = ("lightgbm", "xgboost", "catboost")
_OURS = ("sinkprop", "boosted", "auto")  # prefixes of the names of sinkprop's own methods
# {name of a group: names of its methods}
GROUPS: dict[str, tuple[str, ...]] = {
    "baselines": tuple(name for name in METHODS if not name.startswith(_OURS) and name not in _NEURAL),
    "trees": tuple(name for name, method in METHODS.items() if method.needs in _TREE_LIBRARIES),
    "neural": _NEURAL,
    "all": tuple(name for name in METHODS if name not in _NEURAL),
    "everything": tuple(METHODS),
}
FEATURE = "feature:N"
_FEATURE_DESCRIPTION = "feature N by itself (from 1), or a name; -N ranks the smallest value first"


def is_ours(name: str, estimator: Any = None) -> bool:
    """Whether a method is one of sinkprop's own rather than a baseline."""
    if name in METHODS:
        return name.startswith(_OURS)
    by = (getattr(estimator, "loss", None), getattr(estimator, "objective", None))
    return type(estimator).__name__ in ("AutoRanker", "SinkPropRanker", "BoostedRanker") or "sinkprop" in by


def described() -> dict[str, str]:
    """Return {name: description} of all methods and all groups of methods."""
    groups = {
        "baselines": "all baselines above except neural ones, if their package is installed",
        "trees": "all methods above that grow boosted trees",
        "neural": "sinkprop-neural, sinkprop-attention and the neural-* methods",
        "all": "all methods above except neural ones, if their package is installed",
        "everything": "all methods above, if their package is installed",
    }
    own = {name: method.description for name, method in METHODS.items()}
    return own | {FEATURE: _FEATURE_DESCRIPTION} | groups


def parse_methods(methods: str | Iterable[str] | Mapping[str, Any]) -> dict[str, Method]:
    """Look up methods by name.

    Parameters
    ----------
    methods : str, iterable of str or mapping
        Names of methods or of groups of methods; a string may hold several names, separated by commas. Or a
        mapping from names to your own estimators. A value of the mapping may also be the name of a method in
        `METHODS`; the mapping's key is then the name under which the results list that method.

    Returns
    -------
    dict of str to Method
        The methods, each once, in the order given.

    Raises
    ------
    ImportError
        If a method is named whose package is not installed; the message says how to install it. The name of
        a group does not raise: the group leaves out such methods.

    Examples
    --------
    >>> list(parse_methods("regression, feature:17"))
    ['regression', 'feature:17']
    >>> parse_methods({"mine": "sinkprop-laplace"})["mine"].description
    'SinkPropRanker with the Laplace kernel'
    """
    found: dict[str, Method] = {}
    if isinstance(methods, Mapping):
        for name, given in methods.items():
            if isinstance(given, str):
                found[str(name)] = _method(given)
            elif callable(getattr(given, "fit", None)) and not isinstance(given, type):
                found[str(name)] = Method(type(given).__name__, _given(given))
            else:
                raise TypeError(f"methods[{name!r}] must be an estimator or a method's name; got {given!r}.")
    else:
        for item in [methods] if isinstance(methods, str) else methods:
            if not isinstance(item, str):
                raise TypeError(f"methods must be names, or a mapping {{name: estimator}}; got {item!r}.")
            for name in (text.strip() for text in item.split(",")):
                if name in GROUPS:
                    found |= {own: METHODS[own] for own in GROUPS[name] if _runs_here(METHODS[own])}
                else:
                    found[name] = _method(name)
    if not found:
        raise ValueError(f"methods must name at least one method. {_names()}")
    return found


def _method(name: str) -> Method:
    if name in METHODS:
        method = METHODS[name]
        if not _runs_here(method):
            raise ImportError(
                f'method {name!r} needs {method.needs}: pip install "sinkprop[{method.needs}]".'
            )
        return method
    feature = re.fullmatch(r"feature:\s*(\S.*)", name)
    if feature:
        text = feature[1].strip()
        number = int(text) if re.fullmatch(r"-?\d+", text) else text
        return Method("one feature by itself", _baseline("FeatureRanker", feature=number), cost=1)
    from difflib import get_close_matches

    close = get_close_matches(name, METHODS, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"method {name!r} is not known.{hint} {_names()}")


def _runs_here(method: Method) -> bool:
    return method.needs is None or importlib.util.find_spec(method.needs) is not None


def _names() -> str:
    return f"The methods are {', '.join(METHODS)} and {FEATURE}; {', '.join(GROUPS)} are groups of methods."
