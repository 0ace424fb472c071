"""LightGBM's parameters as keyword arguments: names, aliases, defaults, and those that are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from sinkprop.common.arguments import number, whole
from sinkprop.common.processors import usable_processors
from sinkprop.estimator.keyword_habits import advice
from sinkprop.gbdt.boosters import lightgbm_module

__all__ = [
    "DEFAULTS",
    "EFFORTS",
    "OWN",
    "Defaults",
    "Effort",
    "booster_parameters",
    "canonical",
    "check_names",
    "check_no_files",
    "first_names",
    "names_a_file",
    "one_order_of_sums",
    "resolved",
]


@dataclass(frozen=True)
class Defaults:
    """Defaults of `BoostedRanker`, except those of its loss, which are in `TreeLoss`."""

    n_estimators: int = 500
    learning_rate: float = 0.05
    num_leaves: int = 8
    min_child_samples: int = 20


DEFAULTS = Defaults()


@dataclass(frozen=True)
class Effort:
    """Defaults of `BoostedRanker` that trade time for quality.

    n_estimators           Maximum number of rounds.
    learning_rate          Factor by which the output of each tree is multiplied.
    early_stopping_rounds  Number of rounds without improvement after which growth stops.
    n_boosters             Number of boosters whose mean is the model.
    """

    n_estimators: int = DEFAULTS.n_estimators
    learning_rate: float = DEFAULTS.learning_rate
    early_stopping_rounds: int = 50
    n_boosters: int = 5


EFFORTS = {
    "fast": Effort(n_boosters=1),
    "default": Effort(),
    "best": Effort(n_estimators=1250, learning_rate=0.02, early_stopping_rounds=100, n_boosters=10),
}

# LightGBM parameters in the signature of `BoostedRanker`: LightGBM's main name, and the ranker's name
OWN = {
    "num_iterations": "n_estimators",
    "learning_rate": "learning_rate",
    "num_leaves": "num_leaves",
    "min_data_in_leaf": "min_child_samples",
    "early_stopping_round": "early_stopping_rounds",
    "num_threads": "n_threads",
    "seed": "random_state",
}

# Their defaults in that signature; the effort decides those that are None or "auto", except `n_threads`.
_UNSET: dict[str, Any] = {
    "n_estimators": None,
    "learning_rate": None,
    "num_leaves": DEFAULTS.num_leaves,
    "min_child_samples": DEFAULTS.min_child_samples,
    "early_stopping_rounds": "auto",
    "n_threads": None,
    "random_state": 0,
}

_GAIN = "the trees are grown on the derivatives of an expected gain: set gain="
_OTHER = f"it belongs to another objective; {_GAIN}"
_COMMAND = "it is for LightGBM's command line, which reads and writes files"
_NETWORK = "a query's derivatives are computed in one process"
_PREDICTION = "it is for predictions: give it to booster_.predict"
_REFUSED = {
    **dict.fromkeys(("objective",), _GAIN),
    **dict.fromkeys(
        ("metric", "eval_at", "first_metric_only", "metric_freq", "is_provide_training_metric"),
        "sinkprop's metrics validate the trees: set criterion=, such as 'ndcg@10'",
    ),
    "label_gain": "the gain defines the value of a label: set gain=, such as 'ndcg(gain=linear)'",
    **dict.fromkeys(
        (
            "lambdarank_truncation_level", "lambdarank_norm", "lambdarank_position_bias_regularization",
            "sigmoid", "objective_seed", "num_class", "is_unbalance", "scale_pos_weight", "reg_sqrt", "alpha",
            "fair_c", "poisson_max_delta_step", "tweedie_variance_power", "auc_mu_weights",
            "multi_error_top_k", "pos_bagging_fraction", "neg_bagging_fraction", "boost_from_average",
        ),
        _OTHER,
    ),
    "class_weight": "labels are degrees of relevance, not classes: give fit sample_weight= or query_weight=",
    "categorical_feature": "it describes the data: give it to fit",
    **dict.fromkeys(("group_column", "label_column", "weight_column", "ignore_column", "header"), _COMMAND),
    **dict.fromkeys(
        (
            "config", "task", "data", "valid", "input_model", "output_model", "output_result",
            "convert_model", "convert_model_language", "save_binary", "snapshot_freq", "two_round",
            "parser_config_file", "precise_float_parser", "refit_decay_rate",
        ),
        _COMMAND,
    ),
    **dict.fromkeys(
        ("machines", "num_machines", "machine_list_filename", "local_listen_port", "time_out"), _NETWORK
    ),
    **dict.fromkeys(("pre_partition", "top_k"), _NETWORK),
    **dict.fromkeys(
        (
            "predict_contrib", "predict_leaf_index", "predict_raw_score", "predict_disable_shape_check",
            "num_iteration_predict", "start_iteration_predict", "pred_early_stop", "pred_early_stop_freq",
            "pred_early_stop_margin",
        ),
        _PREDICTION,
    ),
}  # fmt: skip

_KEPT = {"tree_learner": ("serial",), "boosting": ("gbdt", "gbrt", "dart", "goss")}


@lru_cache(maxsize=1)
def first_names() -> dict[str, str]:
    """Table from each name and alias of a LightGBM parameter to the parameter's main name."""
    from lightgbm.basic import _ConfigAliases

    table = _ConfigAliases._get_all_param_aliases()
    return {alias: name for name, aliases in table.items() for alias in (name, *aliases)}


def canonical(name: str) -> str | None:
    """Main name of the LightGBM parameter with this name or alias; None if LightGBM has no such parameter.

    >>> canonical("reg_lambda"), canonical("min_child_samples"), canonical("num_leafs")
    ('lambda_l2', 'min_data_in_leaf', None)
    """
    if name == "class_weight":  # only LightGBM's scikit-learn estimators have this one
        return name
    lightgbm_module()
    return first_names().get(name)


def names_a_file(name: str) -> bool:
    """Whether a LightGBM parameter names a file to read or write, or machines to connect to.

    >>> names_a_file("forcedsplits_filename"), names_a_file("fs"), names_a_file("num_leaves")
    (True, True, False)
    """
    first = canonical(name) or ""
    return first.endswith("_filename") or _REFUSED.get(first) in (_COMMAND, _NETWORK)


def check_no_files(names: Iterable[str]) -> None:
    """Raise a ValueError if one of these LightGBM parameters names a file: a model file must not set it."""
    for name in names:
        if names_a_file(name):
            raise ValueError(f"a model file must not set {name}")


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError if LightGBM has no parameter with one of these names.

    The message suggests the most similar name.

    known  Names of the ranker's own parameters, for the suggestion.
    """
    for name in names:
        if canonical(name) is None:
            names = first_names()
            firsts = [*known, *names.values()]
            close = get_close_matches(name, firsts, n=1) or get_close_matches(name, names, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            if text := advice(name, known):
                hint = f" {text[0].upper()}{text[1:]}."
            raise TypeError(
                f"BoostedRanker got an unexpected keyword argument {name!r}: neither it nor LightGBM has "
                f"such a parameter.{hint}"
            )


def resolved(parameters: Mapping[str, Any], others: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Resolve the aliases of LightGBM's parameters, and take from the effort what the user has not set.

    Returns two dictionaries: the ranker's own parameters, and all other parameters by LightGBM's main names.
    The former also have the key "default_boosters": the number of boosters if `n_boosters` is None.

    parameters  All parameters of the ranker.
    others      Names of those that are not in its signature.
    """
    if parameters["effort"] not in EFFORTS:
        names = ", ".join(map(repr, EFFORTS))
        raise ValueError(f"effort must be one of {names}; got {parameters['effort']!r}.")
    effort = EFFORTS[parameters["effort"]]
    own, rest = _by_main_names(
        {name: parameters[name] for name in others}, {name: parameters[name] for name in _UNSET}
    )
    counted = own["n_estimators"] is not None and parameters["effort"] != "best"
    own["default_boosters"] = 1 if counted else effort.n_boosters
    for name in ("n_estimators", "learning_rate"):
        own[name] = getattr(effort, name) if own[name] is None else own[name]
    if own["early_stopping_rounds"] == "auto":
        own["early_stopping_rounds"] = effort.early_stopping_rounds
    return own, rest


def _by_main_names(given: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ranker's own parameters, and all other parameters by LightGBM's main names.

    Raises a ValueError for a parameter that `BoostedRanker` does not take, or for two different values of one
    parameter.

    given  Parameters for LightGBM, by any of their names. A value of None keeps LightGBM's default.
    own    The ranker's own parameters, by the ranker's names. If `given` also has one of them, under another
           name, the value in `given` is used; the value in `own` must then be the default, or equal to the
           value in `given`.
    """
    mine, others = dict(own), {}
    said: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            continue
        first = canonical(name)
        if first is None or first in _REFUSED:
            raise ValueError(
                f"BoostedRanker does not take {name}: {_REFUSED.get(first or '', 'it is unknown')}."
            )
        if first in _KEPT and str(value).lower() not in _KEPT[first]:
            why = _NETWORK if first == "tree_learner" else "LightGBM supports it only with its own objectives"
            choices = " or ".join(map(repr, _KEPT[first]))
            raise ValueError(f"BoostedRanker does not take {name}={value!r}: {why}. Use {choices}.")
        if first in said and said[first] != name and given[said[first]] != value:
            raise ValueError(
                f"{said[first]} and {name} are names of the same LightGBM parameter; give one of them."
            )
        said[first] = name
        if first not in OWN:
            others[first] = value
            continue
        attribute = OWN[first]
        mine[attribute] = _processors(value) if attribute == "n_threads" else value
        if own[attribute] not in (_UNSET[attribute], mine[attribute]):
            raise ValueError(f"{attribute} and {name} are names of the same parameter; give one of them.")
    return mine, others


def booster_parameters(
    own: Mapping[str, Any], others: Mapping[str, Any], *, seed: int, n_threads: int
) -> dict[str, Any]:
    """Return all parameters of the LightGBM booster.

    own     The ranker's own parameters, which are checked here.
    others  Other parameters, by LightGBM's main names, which are passed on unchanged.
    """
    return {
        "objective": "none",
        "metric": "none",
        "learning_rate": number("learning_rate", own["learning_rate"], above=True),
        "num_leaves": whole("num_leaves", own["num_leaves"], 2),
        "min_data_in_leaf": whole("min_child_samples", own["min_child_samples"], 0),
        "seed": seed % 2**31,
        "drop_seed": seed % 2**31,
        "num_threads": n_threads,
        # One thread sums a feature's histogram, so that rounding does not depend on the number of threads.
        "deterministic": True,
        **({} if others.get("force_row_wise") else {"force_col_wise": True}),
        **one_order_of_sums(n_threads),
        "verbosity": -1,
        **others,
    }


def one_order_of_sums(n_threads: int) -> dict[str, Any]:
    """Parameters of the booster with which rounding does not depend on its number of threads.

    LightGBM lets several threads add up one histogram of sparse features, each over some of the rows. With
    one thread, its histograms of sparse features are as exact as the others, and faster.
    """
    return {} if n_threads == 1 else {"is_enable_sparse": False}


def _processors(n_jobs: Any) -> Any:
    """Convert `n_jobs` to a value of `n_threads`.

    -1 means as many threads as processors, -2 one fewer, and so on. 0 becomes None, the default of
    `n_threads`. All other values are returned unchanged.
    """
    if not isinstance(n_jobs, int) or n_jobs > 0:
        return n_jobs
    return None if n_jobs == 0 else max(1, usable_processors() + 1 + n_jobs)
