"""Answers to keywords that LightGBM, XGBoost, CatBoost and scikit-learn know and a ranker does not.

`refuse` raises a TypeError that says what to write instead. It is called for the constructor and for `fit` of
every ranker.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

__all__ = ["advice", "answering", "refuse"]

F = TypeVar("F", bound=Callable[..., Any])

# An answer is a text, or {parameter: text}: the text of the first parameter that the ranker has, where ""
# stands for any ranker.
Answer = str | dict[str, str]

_METRICS: Answer = {
    "criterion": 'name the metrics that select the model in the constructor, criterion="ndcg@5"',
    "selection": 'name the metrics that select the model in the constructor, selection=Selection(criterion="ndcg@5")',  # noqa: E501
    "": 'name the metric in the constructor, metric="ndcg@5"',
}
_VALIDATION = "give the validation queries as eval_set=[(X, y)] with eval_qid=[qid] to fit"
_QUERIES = "give fit the query id of each row as qid=, or the sizes of consecutive queries as group="
_STOPPING: Answer = {
    "early_stopping_rounds": "set early_stopping_rounds= in the constructor and give fit an eval_set",
    "patience": "set patience= in the constructor, the number of epochs without improvement",
    "": "leave it out: the ranker selects its model by the criterion on validation queries",
}
_ROUNDS: Answer = {
    "n_estimators": "set n_estimators= in the constructor",
    "n_rounds": "set n_rounds= in the constructor",
    "max_epochs": "set max_epochs= in the constructor",
    "max_iter": "this ranker grows no trees; max_iter= in the constructor limits the steps of its optimizer",
    "": "this ranker grows no trees; leave it out, or use sinkprop.gbdt.BoostedRanker",
}
_RATE: Answer = {
    "learning_rate": "set learning_rate= in the constructor",
    "optimizer": "set it in the constructor, optimizer=Adam(learning_rate=0.001)",
    "": "this ranker's optimizer chooses its own steps; leave it out",
}
_TREES: Answer = {
    "num_leaves": "this ranker does not take it; sinkprop.gbdt.BoostedRanker takes LightGBM's tree settings",
    "": "it is a setting of trees; use sinkprop.gbdt.BoostedRanker, which takes LightGBM's",
}
_STRENGTH: Answer = {
    "penalty": "set penalty= in the constructor, the regularization strength",
    "optimizer": "set it in the constructor, optimizer=Adam(weight_decay=0.01)",
    "": "this ranker has no regularization strength; leave it out",
}
_OBJECTIVE: Answer = {
    "objective": 'set objective= in the constructor, such as "lambdarank"',
    "loss": 'set loss= in the constructor, such as "lambdarank"',
    "gain": 'set gain= in the constructor, the metric to maximize, such as "ndcg@10"; LambdaMART is sinkprop.baselines.LightGBMRanker',  # noqa: E501
    "measure": 'set measure= in the constructor, such as "ndcg@5"',
    "": "this ranker has one objective; leave it out",
}
_LABEL_GAIN: Answer = {
    "gain": 'the gain defines the value of a label, gain="ndcg(gain=linear)" in the constructor',
    "": 'the convention defines the value of a label, convention="trec" for linear gain',
}
_CATEGORIES: Answer = {
    "widths": "give fit categorical_feature=, or a data frame with categorical columns",
    "": "only sinkprop.gbdt.BoostedRanker takes categorical features, by categorical_feature= of its fit",
}
_START: Answer = "a fit takes no starting scores; leave it out, or add them to X as a feature"
_CONTINUE: Answer = {
    "widths": "give fit init_model=",
    "": "only sinkprop.gbdt.BoostedRanker continues from a model, by init_model= of its fit",
}
_CALLBACKS: Answer = {
    "on_stage": "set on_stage= in the constructor, a function that is called after every stage",
    "on_epoch": "set on_epoch= in the constructor, a function that is called after every epoch",
    "on_round": "set on_round= in the constructor, a function that is called after every round, or give fit LightGBM's callbacks=",  # noqa: E501
    "": "this ranker calls none; leave it out",
}
_THREADS: Answer = {
    "n_threads": "set n_threads= in the constructor",
    "": "this ranker uses one thread; leave it out",
}
_SEED: Answer = {
    "random_state": "set random_state= in the constructor",
    "": "this ranker draws no random numbers; leave it out",
}
_SILENCE: Answer = {
    "verbose": "set verbose=False in the constructor",
    "": "this ranker prints nothing; leave it out",
}
_BUDGET: Answer = {
    "time_budget": "set time_budget= in the constructor, in seconds",
    "": "this ranker has no time limit; sinkprop.AutoRanker takes time_budget=",
}
_MEMBERS: Answer = {
    "methods": 'set methods= in the constructor, such as methods="linear,trees"',
    "": "this ranker is a single method; sinkprop.AutoRanker tries several, by methods=",
}
_WEIGHTS = "give fit sample_weight=, one per row, or query_weight=, one per query"
_NAMES = "give X as a data frame, whose column names become the names of the features"
_SCALING: Answer = {
    "normalization": 'set normalization= in the constructor: "standard", "query" or "none"',
    "": "this ranker does not scale features; leave it out",
}

INSTEAD: dict[str, Answer] = {
    keyword: answer
    for answer, keywords in (
        (_METRICS, "eval_at eval_metric eval_metrics metric metrics feval custom_metric scoring"),
        (_VALIDATION, "eval_X eval_x eval_y eval_data eval_sets evals eval_pool X_val X_valid y_val y_valid"),
        (_VALIDATION, "valid_set valid_sets validation_data eval_qids eval_groups eval_group_id"),
        (_VALIDATION, "eval_set eval_qid eval_group"),
        (_QUERIES, "qid group group_id group_ids groups qids query query_id query_ids queries"),
        (_STOPPING, "early_stopping_rounds early_stopping_round early_stopping od_wait use_best_model"),
        (_STOPPING, "early_stopping_min_delta n_iter_no_change"),
        (_ROUNDS, "n_estimators num_boost_round num_iterations num_rounds num_round num_trees iterations"),
        (_ROUNDS, "epochs max_epochs max_iter"),
        (_RATE, "learning_rate eta lr shrinkage_rate"),
        (_TREES, "num_leaves max_leaves max_depth depth min_child_samples min_data_in_leaf min_child_weight"),
        (_TREES, "subsample bagging_fraction bagging_freq subsample_freq colsample_bytree feature_fraction"),
        (_TREES, "max_bin boosting_type boosting booster tree_method grow_policy min_split_gain"),
        (_TREES, "gamma device device_type task_type gpu_id tree_learner importance_type lambdarank_norm"),
        (_STRENGTH, "reg_alpha reg_lambda lambda_l1 lambda_l2 l2_leaf_reg alpha C l1_ratio weight_decay"),
        (_OBJECTIVE, "objective loss_function loss obj fobj lambdarank_truncation_level"),
        (_LABEL_GAIN, "label_gain ndcg_exp_gain"),
        (_CATEGORIES, "categorical_feature categorical_features cat_features enable_categorical"),
        (_START, "init_score base_margin baseline eval_init_score"),
        (_CONTINUE, "init_model xgb_model warm_start"),
        (_CALLBACKS, "callbacks callback"),
        (_THREADS, "n_jobs nthread nthreads num_threads thread_count"),
        (_SEED, "seed random_seed"),
        (_SILENCE, "verbose verbosity verbose_eval silent logging_level metric_period"),
        (_BUDGET, "time_budget time_limit max_time max_runtime_secs time_left_for_this_task timeout"),
        (_MEMBERS, "methods estimator_list include_algos hyperparameters presets models estimators"),
        (_WEIGHTS, "weight weights group_weight sample_weight query_weight"),
        ("validation queries have no weights; leave it out", "eval_sample_weight sample_weight_eval_set"),
        ("leave it out: there is one set of validation queries", "eval_names eval_class_weight"),
        ("labels are degrees of relevance, not classes; leave it out", "class_weight scale_pos_weight"),
        (_NAMES, "feature_name feature_names feature_types"),
        (_SCALING, "normalize scaler standardize"),
    )
    for keyword in keywords.split()
}  # fmt: skip


def advice(keyword: str, parameters: Iterable[str]) -> str:
    """Return what to write instead of a keyword, for a ranker with these parameters; empty if not known."""
    answer = INSTEAD.get(keyword, "")
    if isinstance(answer, str):
        return answer
    known = {*parameters, ""}
    return next(text for parameter, text in answer.items() if parameter in known)


def refuse(kind: type[Any], unknown: Iterable[str], *, method: str = "") -> None:
    """Raise a TypeError if keywords were given that a method of a ranker does not have.

    The message says for each of them what to write instead, or which known name is the most similar.

    kind    Class of the ranker.
    method  Name of the method; empty for the constructor.
    """
    given = list(unknown)
    if not given:
        return
    parameters, arguments = (list(inspect.signature(of).parameters) for of in (kind, kind.fit))
    texts = []
    for keyword in given:
        text = advice(keyword, parameters)
        if method and keyword in parameters:
            text = f"set {keyword}= in the constructor"
        elif not method and keyword in arguments:
            text = f"give {keyword}= to fit"
        elif not text:
            close = get_close_matches(keyword, arguments if method else parameters, n=1)
            text = f"did you mean {close[0]!r}?" if close else ""
        texts.append(repr(keyword) + (f" ({text})" if text else ""))
    name = f"{kind.__name__}.{method}()" if method else f"{kind.__name__}()"
    noun = "an unexpected keyword argument" if len(given) == 1 else "unexpected keyword arguments"
    raise TypeError(f"{name} got {noun} {', '.join(texts)}.")


def answering(constructor: F) -> F:
    """Wrap the constructor of a ranker, so that unknown keywords are refused by `refuse`."""
    known = inspect.signature(constructor).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return constructor  # it takes and checks further keywords itself

    @functools.wraps(constructor)
    def wrapped(self: Any, *arguments: Any, **keywords: Any) -> None:
        refuse(type(self), [keyword for keyword in keywords if keyword not in known])
        constructor(self, *arguments, **keywords)

    return wrapped  # type: ignore[return-value]
