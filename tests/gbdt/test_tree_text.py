"""Models in LightGBM's text format that a stranger may have written."""

import os
import re

import numpy as np
import pytest
from forking import end_of_child, uses_of_changed_digits
from numpy.testing import assert_array_equal

from sinkprop.model_files import ModelFileError, read_model, write_model

lightgbm = pytest.importorskip(
    "lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm"
)

from sinkprop import load_model  # noqa: E402
from sinkprop.baselines import LightGBMRanker  # noqa: E402
from sinkprop.gbdt import BoostedRanker  # noqa: E402
from sinkprop.gbdt.boosters import checked_booster  # noqa: E402
from sinkprop.serving.tree_files.lightgbm_text import check_model_text  # noqa: E402

SMALL = {"num_leaves": 6, "verbosity": -1, "num_threads": 1, "min_data_per_group": 5}


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    X[:, 2] = rng.integers(0, 40, 500)
    return X, (X[:, 0] + X[:, 2] > 10) * 1.0


def trained(n_trees=3, data=None, **parameters):
    X, y = rows()
    given = {"group": [50] * 10} if parameters.get("objective") == "lambdarank" else {}
    return lightgbm.train(
        {**SMALL, **parameters}, lightgbm.Dataset(X, y, **given, **(data or {})), n_trees
    ).model_to_string()


@pytest.fixture(scope="module")
def models():
    return {
        "categories": trained(objective="lambdarank", data={"categorical_feature": [2]}),
        "linear leaves": trained(linear_tree=True, monotone_constraints=[1, 0, -1]),
        "one leaf": trained(1, min_data_in_leaf=500),
        "names": trained(data={"feature_name": ["größe", "名", "x"]}),
        "dart": trained(boosting="dart"),
        "forest": trained(boosting="rf", bagging_freq=1, bagging_fraction=0.5),
    }


def test_every_model_of_lightgbm_is_accepted(models):
    X, _ = rows()
    for text in models.values():
        expected = lightgbm.Booster(model_str=text).predict(X, num_threads=1)
        assert_array_equal(checked_booster(text, 3).predict(X, num_threads=1), expected)


def changed(text, name, change):
    """The text with another value of a line of the last tree that has it; sizes are mended."""
    lines = text.split("\n")
    number = max(i for i, line in enumerate(lines) if line.startswith(name + "="))
    before = lines[number]
    lines[number] = f"{name}={change(before.partition('=')[2].split(' '))}"
    tree = int([line for line in lines[:number] if line.startswith("Tree=")][-1][5:])
    sizes = next(i for i, line in enumerate(lines) if line.startswith("tree_sizes="))
    entries = [int(size) for size in lines[sizes][11:].split(" ")]
    entries[tree] += len(lines[number]) - len(before)
    lines[sizes] = "tree_sizes=" + " ".join(map(str, entries))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("model", "name", "change", "message"),
    [
        ("categories", "left_child", lambda v: " ".join(["99", *v[1:]]), "do not form a tree"),
        ("categories", "left_child", lambda v: " ".join(["0", *v[1:]]), "do not form a tree"),
        ("categories", "right_child", lambda v: " ".join([*v[:-1], "-99"]), "do not form a tree"),
        ("categories", "left_child", lambda v: " ".join(v[:-1]), "left_child has 4 entries, not 5"),
        ("categories", "split_feature", lambda v: " ".join(["3", *v[1:]]), "not among the 3"),
        ("categories", "split_feature", lambda v: " ".join(["-1", *v[1:]]), "not among the 3"),
        ("categories", "num_leaves", lambda _: "7", "entries, not"),
        ("categories", "num_leaves", lambda _: "99999999999", "num_leaves is not a whole number"),
        ("categories", "num_leaves", lambda _: "0", "entries, not 0"),
        ("categories", "num_cat", lambda _: "0", "no set of categories"),
        ("categories", "num_cat", lambda _: "\nno_cat=1", "num_cat is not a whole number"),
        ("categories", "num_cat", lambda _: "9", "cat_boundaries has"),
        ("categories", "cat_boundaries", lambda v: " ".join(["1", *v[1:]]), "does not increase from 0"),
        ("categories", "cat_boundaries", lambda v: " ".join([*v[:-1], "99"]), "cat_threshold has"),
        ("categories", "cat_threshold", lambda v: " ".join(["4294967296", *v[1:]]), "32 categories"),
        ("categories", "decision_type", lambda v: " ".join(["15", *v[1:]]), "decision_type has"),
        ("categories", "threshold", lambda v: " ".join(["nan", *v[1:]]), "a threshold is not a number"),
        ("categories", "threshold", lambda v: " ".join(["1_0", *v[1:]]), "threshold has an entry"),
        ("categories", "leaf_value", lambda v: " ".join(["inf", *v[1:]]), "no finite values"),
        ("categories", "leaf_value", lambda v: " ".join([*v, "1"]), "leaf_value has 7 entries, not 6"),
        ("categories", "internal_count", lambda v: " ".join(v[:-1]), "internal_count has 4 entries"),
        ("linear leaves", "leaf_features", lambda v: " ".join([*v, "99"]), "leaf_features has"),
        ("linear leaves", "num_features", lambda v: " ".join(["9", *v[1:]]), "leaf_features has"),
        ("linear leaves", "leaf_coeff", lambda v: " ".join(v).replace(" -", " \x1e"), "leaf_coeff has"),
        ("linear leaves", "is_linear", lambda _: "x", "is_linear is not a whole number"),
    ],
)
def test_what_lightgbm_would_not_notice_is_refused(models, model, name, change, message):
    check_model_text(models[model], 3)
    with pytest.raises(ValueError, match=message):
        check_model_text(changed(models[model], name, change), 3)


@pytest.mark.parametrize(
    ("pattern", "text", "message"),
    [
        ("^tree\n", "forest\n", "its header is not complete"),
        (r"\ntree_sizes=.*", "", "its header is not complete"),
        (r"tree_sizes=\d+", "tree_sizes=1", "tree 0 is not where the header has it"),
        (r"tree_sizes=\d+", "tree_sizes=-1", "the sizes of the trees are not whole numbers"),
        (r"(tree_sizes=\d+).*", r"\1", "the header has 1 trees, but the text has others"),
        (r"max_feature_idx=2", "max_feature_idx=3", "another number of features than 3"),
        (r"feature_names=\S+ ", "feature_names=", "feature_names has another number of entries than 3"),
        (r"num_class=1", "num_class=7", "num_class is 7, not 1"),
        (r"objective=lambdarank", "objective=multiclass num_class:9", "an unexpected objective"),
        (r"version=v4\n", "version=v4\nversion=v4\n", "an unexpected line"),
        (r"version=v4", "version=\0", "control characters"),
        (r"end of parameters", "the end", "the parameters of the fit are not complete"),
        (r"pandas_categorical:null", "pandas_categorical:" + "[" * 100_000, "are not a list"),
        (r"pandas_categorical:null", "pandas_categorical:{}", "are not a list"),
        (r"Tree=1\n", "Tree=2\n", "tree 1 is not where the header has it"),
    ],
)
def test_a_changed_header_is_refused(models, pattern, text, message):
    model = models["categories"]
    hostile = re.sub(pattern, text, model, count=1)
    assert hostile != model
    with pytest.raises(ValueError, match=message):
        check_model_text(hostile, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a crash is watched for in a forked process")
def test_changed_digits_end_no_process(models):
    """Each of these models is refused, or works; LightGBM alone would crash or hang on some of them."""
    X = np.vstack([rows()[0], np.full((1, 3), np.nan), [[1e300, -1, 1e9]]])
    texts = [models[name] for name in ("categories", "linear leaves", "names", "dart")]

    def work():
        return uses_of_changed_digits(
            texts,
            lambda text: checked_booster(text, 3),
            lambda booster: booster.predict(X, raw_score=True, num_threads=1),
            400,
        )

    assert end_of_child(work) == 0


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    settings = {"n_estimators": 3, "num_leaves": 4, "n_threads": 1}
    return {
        kind: kind(**settings, min_child_samples=20).fit(X, y, qid=np.repeat(np.arange(10), 50))
        for kind in (BoostedRanker, LightGBMRanker)
    }


@pytest.mark.parametrize("kind", [BoostedRanker, LightGBMRanker])
def test_a_model_file_with_other_trees_is_refused(tmp_path, fitted, kind):
    path = tmp_path / "m"
    fitted[kind].save(path)
    state = read_model(path).state
    holder = state["fitted"] if kind is BoostedRanker else state["fitted"]["model"]
    trees = "\n".join(holder["lightgbm"])
    holder["lightgbm"] = changed(trees, "left_child", lambda v: " ".join(["0", *v[1:]])).split("\n")
    write_model(path, kind.__name__, state)
    with pytest.raises(ModelFileError, match="tree 2: the children of its splits do not form a tree"):
        load_model(path)


@pytest.mark.parametrize("kind", [BoostedRanker, LightGBMRanker])
def test_a_model_file_sets_nothing_of_a_later_fit(tmp_path, fitted, kind):
    """A stranger's file must not make a later fit read, write or connect to anything."""
    path, forced = tmp_path / "m", tmp_path / "splits.json"
    fitted[kind].save(path)
    state = read_model(path).state
    hostile = [("cluster", "tcp://192.0.2.1:8786"), ("n_threads", 64)]
    if kind is BoostedRanker:
        hostile += [("forcedsplits_filename", "/etc/passwd"), ("fs", "/etc/passwd")]
    changes = [{**state["parameters"], name: value} for name, value in hostile]
    if kind is LightGBMRanker:
        changes += [
            {**state["parameters"], "params": {name: "x"}}
            for name in ("output_model", "forced_splits", "machines")
        ]
    for parameters in changes:
        write_model(path, kind.__name__, {**state, "parameters": parameters})
        with pytest.raises(ModelFileError, match="a model file must not set"):
            load_model(path)

    forced.write_text('{"feature": 0, "threshold": 0.5}')
    given = {"forcedsplits_filename": str(forced)}
    X, y = rows()
    own = given if kind is BoostedRanker else {"params": given}
    ranker = kind(n_estimators=2, num_leaves=4, min_child_samples=20, n_threads=1, **own)
    ranker.fit(X, y, qid=np.repeat(np.arange(10), 50)).save(path)
    loaded = load_model(path)
    assert "forcedsplits_filename" not in {**loaded.get_params(), **(loaded.get_params().get("params") or {})}
    assert_array_equal(loaded.predict(X), ranker.predict(X))
