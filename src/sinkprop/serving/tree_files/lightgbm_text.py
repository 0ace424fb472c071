"""Models in LightGBM's text format: taken apart, and checked before LightGBM reads them.

LightGBM trusts the text. A wrong number in it can end the process, or make LightGBM read memory that is not
its own or walk in a circle. A model file may come from a stranger, so `check_model_text` checks everything
that LightGBM relies on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np

from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.serving.tree_files.tree import Tree, one_leaf

__all__ = [
    "check_model_text",
    "check_parents",
    "checked_fields",
    "mean_of_models",
    "numbers_of",
    "tree_fields",
    "trees_of_fields",
]

_ONE = r"-?(?:\d+(?:\.\d*)?(?:e[-+]?\d{1,5})?|inf|nan)"
_NUMBER = re.compile(rf"{_ONE}(?: {_ONE})*", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,10}(?: -?\d{1,10})*", re.ASCII)
_OBJECTIVE = re.compile(r"[a-z_0-9]{1,40}(?: [a-z_]{1,40}(?::[-+.0-9e]{1,40})?)*")
_NAME = re.compile("[a-z_]+")
_COUNT = re.compile(r"\d{1,8}", re.ASCII)
_PARAMETER = re.compile(r"\[\w+: .*\]")

# LightGBM's codes for the values that a split treats as missing: no values, zeros, or NaN.
_NONE, _ZERO, _NAN = 0, 1, 2

# The arrays of a tree that are in units of the score.
_IN_SCORES = ("leaf_value", "internal_value", "leaf_const", "leaf_coeff", "shrinkage")
# The arrays of a tree, by what they have one value for.
_PER_SPLIT = ("split_feature", "threshold", "decision_type", "left_child", "right_child")
_PER_SPLIT_OPTIONAL = ("split_gain", "internal_value", "internal_weight", "internal_count")
_PER_LEAF_OPTIONAL = ("leaf_weight", "leaf_count")
_WHOLE = ("split_feature", "decision_type", "left_child", "right_child", "internal_count", "leaf_count")


def check_model_text(text: str, n_features: int) -> None:
    """Raise a ValueError unless LightGBM can safely read the text as a model of `n_features` features."""
    checked_fields(text, n_features)


def checked_fields(text: str, n_features: int) -> list[dict[str, str]]:
    """Return what `tree_fields` yields, after `check_model_text`."""
    head, trees, rest = _sections(text)
    _check_header(head, n_features)
    found: list[dict[str, str]] = []
    try:
        for tree in trees:
            fields = _fields(tree.split("\n"))
            _check_tree(fields, n_features)
            found.append(fields)
    except ValueError as error:
        raise ValueError(f"tree {len(found)}: {error}") from None
    _check_rest(rest)
    return found


def tree_fields(text: str) -> Iterator[dict[str, str]]:
    """The lines name=value of each tree of a model, as a dict."""
    for tree in _sections(text)[1]:
        yield _fields(tree.split("\n"))


def trees_of_fields(records: Iterable[dict[str, str]]) -> list[Tree]:
    """The trees of a model, from what `tree_fields` or `checked_fields` returned.

    In this format, each line of a tree is an array with one value per inner node or one per leaf.
    """
    trees = []
    for fields in records:
        if int(fields.get("is_linear", "0")):
            raise ValueError(
                "the model has linear functions in its leaves (linear_tree), which no export format and no "
                "scorer without LightGBM supports. Train without linear_tree."
            )
        trees.append(_tree(fields))
    return trees


def _tree(fields: dict[str, str]) -> Tree:
    leaves = numbers_of(fields, "leaf_value")
    if len(leaves) == 1:
        return one_leaf(float(leaves[0]))
    decision = numbers_of(fields, "decision_type").astype(np.int64)
    threshold = numbers_of(fields, "threshold")
    default_left, kind, zero_left = (decision & 2) > 0, (decision >> 2) & 3, threshold >= 0
    missing_left = np.where(kind == _NONE, zero_left, default_left)
    zero_missing = (kind == _ZERO) & (default_left != zero_left)
    members: dict[int, Integers] = {}
    by_category = (decision & 1) > 0
    if by_category.any():
        members = _members(fields, by_category, threshold)
        # at a split by category, LightGBM sends everything that is not in the set right, also missing values
        missing_left, zero_missing = missing_left & ~by_category, zero_missing & ~by_category
    return Tree(
        numbers_of(fields, "split_feature").astype(np.int64),
        threshold,
        numbers_of(fields, "left_child").astype(np.int64),
        numbers_of(fields, "right_child").astype(np.int64),
        missing_left,
        leaves,
        members,
        tuple(np.flatnonzero(zero_missing).tolist()),
    )


def _members(fields: dict[str, str], categorical: Mask, threshold: Floats) -> dict[int, Integers]:
    """Return the codes that go left at each split by category, {inner node: codes}.

    LightGBM writes a set as bits of 32-bit words. The threshold of such a split is the number of its set, and
    `cat_boundaries` has the first word of each set.
    """
    members = {}
    ends = numbers_of(fields, "cat_boundaries").astype(np.int64)
    words = numbers_of(fields, "cat_threshold").astype(np.uint32)
    for node in np.flatnonzero(categorical).tolist():
        first, last = ends[int(threshold[node]) : int(threshold[node]) + 2]
        bits = np.unpackbits(words[first:last].astype("<u4").view(np.uint8), bitorder="little")
        members[node] = np.flatnonzero(bits).astype(np.int64)
    return members


def mean_of_models(texts: Sequence[str]) -> str:
    """One model whose scores are the mean of the scores of several models of the same features.

    It has the trees of all models, with their outputs divided by the number of models: the first tree of each
    model, then the second of each, and so on. The rest of the text is that of the first model.

    texts  Models that LightGBM wrote in this process.
    """
    parts = [_sections(text) for text in texts]
    rounds = zip_longest(*([_divided(tree, len(texts)) for tree in trees] for _, trees, _ in parts))
    grown = [tree for together in rounds for tree in together if tree is not None]
    blocks = [f"Tree={number}\n{tree}\n\n\n" for number, tree in enumerate(grown)]
    head, _, rest = parts[0]
    sizes = "tree_sizes=" + " ".join(str(len(block)) for block in blocks)
    lines = ["tree", *(sizes if line.startswith("tree_sizes=") else line for line in head)]
    return "\n".join(lines) + "\n\n" + "".join(blocks) + rest


def _divided(tree: str, count: int) -> str:
    """Text of a tree whose output is that of `tree`, divided by `count`."""
    lines = []
    for line in tree.split("\n"):
        name, _, values = line.partition("=")
        if name in _IN_SCORES:
            # LightGBM separates the leaves of `leaf_coeff` by further spaces, which are kept
            values = " ".join(repr(float(value) / count) if value else "" for value in values.split(" "))
            lines.append(f"{name}={values}")
        else:
            lines.append(line)
    return "\n".join(lines)


def numbers_of(fields: dict[str, str], name: str) -> Floats:
    """Return the array `name` of a tree as floats. Raises a ValueError if it holds anything else."""
    line = fields.get(name)
    if line is None:
        raise ValueError(f"the line {name}= is missing")
    if not line:
        return np.zeros(0)
    if not (_INTEGER if name in _WHOLE else _NUMBER).fullmatch(line):
        raise ValueError(f"{name} has an entry that is not a number")
    return np.array(line.split(" "), dtype=np.float64)


def check_parents(left: Integers, right: Integers, n_leaves: int) -> None:
    """Raise a ValueError unless the children of the splits form one binary tree, with split 0 at its top.

    left, right  Children of each split: the number of a split, or ~i for leaf i.
    """
    n_splits = len(left)
    children, parents = np.concatenate([left, right]), np.tile(np.arange(n_splits), 2)
    inner = children >= 0
    # Every split but the first, and every leaf, is the child of exactly one split. A split comes after its
    # parent, so there is no circle, and every split is reached from the first.
    if not (
        np.array_equal(np.sort(children[inner]), np.arange(1, n_splits))
        and np.array_equal(np.sort(~children[~inner]), np.arange(n_leaves))
        and (children > parents)[inner].all()
    ):
        raise ValueError("the children of its splits do not form a tree")


def _sections(text: str) -> tuple[list[str], list[str], str]:
    """Take a model apart: the lines of its header, the text of each tree, and what follows the trees.

    The trees are where the header's `tree_sizes` has them, because LightGBM finds them by these sizes.
    """
    if "\0" in text or "\r" in text:
        raise ValueError("not a model that LightGBM wrote: it has control characters")
    head, blank, body = text.partition("\n\n")
    lines = head.split("\n")
    sizes = [line.removeprefix("tree_sizes=") for line in lines if line.startswith("tree_sizes=")]
    if not blank or lines[0] != "tree" or len(sizes) != 1:
        raise ValueError("not a model that LightGBM wrote: its header is not complete")
    if sizes[0] and not re.fullmatch(r"\d{1,10}(?: \d{1,10})*", sizes[0], re.ASCII):
        raise ValueError("the sizes of the trees are not whole numbers")
    trees, place = [], 0
    for number, size in enumerate(map(int, sizes[0].split(" ") if sizes[0] else ())):
        tree = body[place : place + size]
        first, last = f"Tree={number}\n", "\n\n\n"
        if len(tree) != size or not tree.isascii() or not tree.startswith(first) or not tree.endswith(last):
            raise ValueError(f"tree {number} is not where the header has it")
        trees.append(tree.removeprefix(first).removesuffix(last))
        place += size
    if not body.startswith("end of trees\n", place):
        raise ValueError(f"the header has {len(trees)} trees, but the text has others")
    return lines[1:], trees, body[place:]


def _fields(lines: list[str]) -> dict[str, str]:
    """Lines name=value as a dict. Raises a ValueError for any other line, and for two of one name."""
    fields: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or not _NAME.fullmatch(name) or name in fields:
            raise ValueError(f"an unexpected line: {line[:40]!r}")
        fields[name] = value
    return fields


def _check_header(lines: list[str], n_features: int) -> None:
    # a model of random forests says "average_output", without a value
    fields = _fields([line for line in lines if line != "average_output"])
    for name, value in (("num_class", 1), ("num_tree_per_iteration", 1), ("label_index", 0)):
        if fields.get(name, str(value)) != str(value):
            raise ValueError(f"{name} is {fields[name][:20]}, not {value}")
    if fields.get("max_feature_idx") != str(n_features - 1):
        raise ValueError(f"trees of another number of features than {n_features}")
    if not re.fullmatch(r"v\d", fields.get("version", "")):
        raise ValueError("the version of its format is missing")
    for name in ("feature_names", "feature_infos"):
        if len(fields.get(name, "").split(" ")) != n_features:
            raise ValueError(f"{name} has another number of entries than {n_features}")
    monotone = fields.get("monotone_constraints")
    if monotone is not None and not re.fullmatch(rf"-?[01]( -?[01]){{{n_features - 1}}}", monotone):
        raise ValueError("monotone_constraints has other entries than -1, 0 and 1")
    objective = fields.get("objective", "custom")
    if not _OBJECTIVE.fullmatch(objective) or objective.startswith("multiclass"):
        raise ValueError(f"an unexpected objective: {objective[:40]!r}")


def _check_rest(rest: str) -> None:
    """Check what follows the trees: the parameters of the fit, and the categories of a data frame."""
    _, found, parameters = rest.partition("\nparameters:\n")
    if found:
        parameters, end, _ = parameters.partition("\nend of parameters\n")
        lines = [line for line in parameters.split("\n") if line]
        if not end or not all(map(_PARAMETER.fullmatch, lines)):
            raise ValueError("the parameters of the fit are not complete")
    _, found, categories = rest.rpartition("\npandas_categorical:")
    try:
        values = json.loads(categories) if found else None
    except (ValueError, RecursionError):
        values = 0
    if values is not None and not isinstance(values, list):
        raise ValueError("the categories of the data frame are not a list")


def _check_tree(fields: dict[str, str], n_features: int) -> None:
    """Raise a ValueError unless LightGBM can read, walk and explain the tree."""
    n_leaves, n_categorical, is_linear = (
        _whole(fields, name) for name in ("num_leaves", "num_cat", "is_linear")
    )
    n_splits = n_leaves - 1
    values = _array(fields, "leaf_value", n_leaves)
    if n_leaves < 1 or not np.isfinite(values).all() or not np.isfinite(_array(fields, "shrinkage", 1)).all():
        raise ValueError("its leaves have no finite values")
    for names, size in ((_PER_SPLIT_OPTIONAL, n_splits), (_PER_LEAF_OPTIONAL, n_leaves)):
        for name in names:
            # LightGBM leaves out, or leaves empty, what a tree without splits does not have
            if fields.get(name):
                _array(fields, name, size)
    if n_splits:
        feature, threshold, decision, left, right = (_array(fields, name, n_splits) for name in _PER_SPLIT)
        if feature.min() < 0 or feature.max() >= n_features:
            raise ValueError(f"it splits by a feature that is not among the {n_features} of the model")
        check_parents(left.astype(np.int64), right.astype(np.int64), n_leaves)
        kind = decision.astype(np.int64)
        if kind.min() < 0 or (kind >> 2).max() > 2:
            raise ValueError("decision_type has an entry that LightGBM does not know")
        # the threshold of a split between known and missing values is infinite: every known value goes left
        if np.isnan(threshold).any() or (threshold == -np.inf).any():
            raise ValueError("a threshold is not a number")
        _check_categories(fields, threshold[(kind & 1) == 1], n_categorical)
    if is_linear:
        _check_linear(fields, n_leaves, n_features)


def _check_categories(fields: dict[str, str], chosen: Floats, n_categorical: int) -> None:
    """Check the sets of categories of a tree; `chosen` is the number of the set of each split by category."""
    if len(chosen) and not (
        chosen.min() >= 0 and chosen.max() < n_categorical and (chosen == chosen // 1).all()
    ):
        raise ValueError("a split by category has no set of categories")
    if n_categorical:
        ends = _array(fields, "cat_boundaries", n_categorical + 1)
        if ends[0] != 0 or (np.diff(ends) < 0).any():
            raise ValueError("cat_boundaries does not increase from 0")
        sets = _array(fields, "cat_threshold", int(ends[-1]))
        if len(sets) and not (sets.min() >= 0 and sets.max() < 2**32):
            raise ValueError("cat_threshold has an entry that is no set of 32 categories")


def _check_linear(fields: dict[str, str], n_leaves: int, n_features: int) -> None:
    """Check the linear functions in the leaves of a tree."""
    constants, sizes = _array(fields, "leaf_const", n_leaves), _array(fields, "num_features", n_leaves)
    # LightGBM separates the leaves by further spaces
    features = _array(_joined(fields, "leaf_features"), "leaf_features", int(sizes.sum()))
    weights = _array(_joined(fields, "leaf_coeff"), "leaf_coeff", int(sizes.sum()))
    if sizes.min() < 0 or not np.isfinite(constants).all() or not np.isfinite(weights).all():
        raise ValueError("the linear function of a leaf is not finite")
    if len(features) and not (features.min() >= 0 and features.max() < n_features):
        raise ValueError(f"a leaf has a feature that is not among the {n_features} of the model")


def _joined(fields: dict[str, str], name: str) -> dict[str, str]:
    return {name: " ".join(entry for entry in fields.get(name, "").split(" ") if entry)}


def _whole(fields: dict[str, str], name: str) -> int:
    value = fields.get(name, "0" if name == "is_linear" else "")
    if not _COUNT.fullmatch(value):
        raise ValueError(f"{name} is not a whole number")
    return int(value)


def _array(fields: dict[str, str], name: str, size: int) -> Floats:
    values = numbers_of(fields, name)
    if len(values) != size:
        raise ValueError(f"{name} has {len(values)} entries, not {size}")
    return values
