"""The native evaluation of trees: against a walk through each tree, and against numbers that do not fit."""

import numpy as np
import pytest

from sinkprop import _native


def random_tree(rng, n_leaves, shape):
    """Children (no, yes) of the inner nodes of a tree; leaf i is -1 - i."""
    no, yes = np.zeros(n_leaves - 1, np.int32), np.zeros(n_leaves - 1, np.int32)
    open_ends, leaf = [], 0
    for k in range(n_leaves - 1):
        if k:
            place = {"random": rng.integers(len(open_ends)), "chain": -1, "bushy": 0}[shape]
            array, parent = open_ends.pop(int(place))
            array[parent] = k
        ends = [(no, k), (yes, k)]
        open_ends += ends if rng.random() < 0.5 else ends[::-1]
    for leaf, (array, parent) in enumerate(open_ends):
        array[parent] = -1 - leaf
    return no, yes


def random_forest(rng, sizes, shape="random", n_features=4, single=False):
    """Arguments of `Forest`: binary trees on features with random cuts and random tables."""
    n_cuts = rng.integers(0, 12, n_features)
    n_columns = rng.integers(1, 4, n_features)
    cuts = [np.sort(rng.choice(50, n, replace=False)).astype(float) for n in n_cuts]
    tables = [rng.integers(-128, 128, c * (n + 2)) for n, c in zip(n_cuts, n_columns, strict=True)]
    trees = [random_tree(rng, size, shape) for size in sizes]
    n_questions = sum(sizes) - len(sizes)
    return {
        "n_features": n_features + 1,
        "features": rng.permutation(n_features + 1)[:n_features].astype(np.int32),
        "cut_ends": np.concatenate([[0], np.cumsum(n_cuts)]),
        "cuts": np.concatenate(cuts),
        "column_ends": np.concatenate([[0], np.cumsum(n_columns)]),
        "tables": np.concatenate(tables).astype(np.int8),
        "columns": rng.integers(0, n_columns.sum(), n_questions).astype(np.int32),
        "bounds": rng.integers(-128, 128, n_questions).astype(np.int8),
        "no": np.concatenate([no for no, _ in trees]),
        "yes": np.concatenate([yes for _, yes in trees]),
        "leaf_ends": np.concatenate([[0], np.cumsum(sizes)]),
        "leaves": rng.normal(size=sum(sizes)),
        "single": single,
    }


def documents(rng, given, n):
    X = rng.integers(-2, 53, (n, given["n_features"])) + rng.choice([0.0, 0.5], (n, given["n_features"]))
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def walked(given, X, start):
    """The sums of the leaves, one document, one tree and one question at a time."""
    sizes = np.diff(given["cut_ends"]) + 2
    variable = np.repeat(np.arange(len(sizes)), np.diff(given["column_ends"]))
    starts = np.concatenate([[0], np.cumsum(sizes[variable])])
    out = []
    for x in X:
        answers = []
        for column, bound in zip(given["columns"], given["bounds"], strict=True):
            v = variable[column]
            value = x[given["features"][v]]
            cuts = given["cuts"][given["cut_ends"][v] : given["cut_ends"][v + 1]]
            rank = len(cuts) + 1 if np.isnan(value) else (cuts < value).sum()
            answers.append(given["tables"][starts[column] + rank] > bound)
        total = np.float32(start) if given["single"] else start
        for tree, first in enumerate(given["leaf_ends"][:-1].tolist()):
            n_leaves, node, inner = given["leaf_ends"][tree + 1] - first, 0, first - tree
            if given["no"] is None:
                inner = sum(int(size).bit_length() - 1 for size in np.diff(given["leaf_ends"])[:tree])
                leaf = sum(int(answers[inner + k]) << k for k in range(int(n_leaves).bit_length() - 1))
            else:
                while n_leaves > 1 and node >= 0:
                    node = (given["yes"] if answers[inner + node] else given["no"])[inner + node]
                leaf = -1 - node if n_leaves > 1 else 0
            value = given["leaves"][first + leaf]
            total = total + (np.float32(value) if given["single"] else value)
        out.append(float(total))
    return np.array(out)


def scored(given, X, start):
    out = np.full(len(X), np.nan)
    _native.Forest(**given).score(X, start, out)
    return out


@pytest.mark.parametrize("isa", _native.instruction_sets())
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ([1, 2, 3, 1, 8, 9, 16, 17], "random"),
        ([64, 65, 31, 33], "random"),
        ([255, 256, 257, 300], "random"),
        ([300, 40], "chain"),
        ([300, 9], "bushy"),
        ([], "random"),
    ],
)
def test_binary_trees(sizes, shape, single, isa):
    rng = np.random.default_rng(len(sizes))
    given = random_forest(rng, sizes, shape, single=single) if sizes else random_forest(rng, [1])
    if not sizes:
        given |= {"leaf_ends": np.zeros(1, np.int64), "leaves": np.zeros(0)}
    X = documents(rng, given, 37)
    used = _native.instruction_set()
    _native.use_instruction_set(isa)
    try:
        assert scored(given, X, 0.1).tobytes() == walked(given, X, 0.1).tobytes()
        assert scored(given, X.astype(np.float32), 0.1).tobytes() == walked(given, X, 0.1).tobytes()
    finally:
        _native.use_instruction_set(used)


@pytest.mark.parametrize("depths", [[0, 1, 2, 3], [7, 8, 9], [16]])
def test_oblivious_trees(depths):
    rng = np.random.default_rng(1)
    given = random_forest(rng, [sum(depths) + 1])
    sizes = [2**depth for depth in depths]
    given |= {"no": None, "yes": None, "leaf_ends": np.concatenate([[0], np.cumsum(sizes)])}
    given["leaves"] = rng.normal(size=sum(sizes))
    X = documents(rng, given, 37)
    assert scored(given, X, 0.0).tobytes() == walked(given, X, 0.0).tobytes()


def test_a_tree_of_the_most_leaves():
    rng = np.random.default_rng(2)
    given = random_forest(rng, [65536], "chain")
    X = documents(rng, given, 2)
    assert scored(given, X, 0.0).tobytes() == walked(given, X, 0.0).tobytes()
    with pytest.raises(ValueError, match="a tree must have 1 to 65536 leaves"):
        _native.Forest(**random_forest(rng, [65537]))


WRONG = {
    "feature": ("features", 0, 5, "features must be below n_features"),
    "negative feature": ("features", 0, -1, "features must be below n_features"),
    "cut_ends": ("cut_ends", 1, 10**6, "cut_ends must divide the cuts"),
    "negative cut_ends": ("cut_ends", 1, -1, "cut_ends must divide the cuts"),
    "first cut": ("cut_ends", 0, 1, "cut_ends must divide the cuts"),
    "last cut": ("cut_ends", -1, 2**40, "cut_ends must divide the cuts"),
    "column_ends": ("column_ends", 1, 10**6, "column_ends must divide the columns"),
    "number of columns": ("column_ends", -1, 2**30, "tables must have one entry"),
    "negative columns": ("column_ends", -1, -1, "column_ends must divide the columns"),
    "column": ("columns", 3, 10**6, "columns must be below the number of columns"),
    "negative column": ("columns", 3, -1, "columns must be below the number of columns"),
    "leaf_ends": ("leaf_ends", 1, 2**40, "leaf_ends must divide the leaves"),
    "last leaf": ("leaf_ends", -1, 2**40, "leaf_ends must divide the leaves"),
    "other leaf_ends": ("leaf_ends", 1, 5, "a child must be|children must form a tree|one question per"),
    "no leaf": ("leaf_ends", 1, 0, "a tree must have 1 to 65536 leaves"),
    "circle": ("no", 2, 1, "a child must be a later inner node, or a leaf"),
    "itself": ("yes", 2, 2, "a child must be a later inner node, or a leaf"),
    "inner node": ("yes", 2, 10**6, "a child must be a later inner node, or a leaf"),
    "leaf": ("no", 1, -100, "a child must be a later inner node, or a leaf"),
    "least leaf": ("no", 1, -(2**31), "a child must be a later inner node, or a leaf"),
    "the same": ("no", 9, -1, "children must form a tree"),
}


@pytest.mark.parametrize("name", WRONG)
def test_numbers_that_do_not_fit_are_refused(name):
    argument, place, value, message = WRONG[name]
    given = random_forest(np.random.default_rng(4), [12, 9])
    if name == "the same":
        given["yes"][9] = given["no"][9] = -1
    given[argument][place] = value
    with pytest.raises(ValueError, match=message):
        _native.Forest(**given)


@pytest.mark.parametrize(
    "name", ["cut_ends", "column_ends", "bounds", "no", "yes", "tables", "columns", "leaves"]
)
def test_arrays_of_another_size_are_refused(name):
    given = random_forest(np.random.default_rng(4), [12, 9])
    with pytest.raises((TypeError, ValueError)):
        _native.Forest(**{**given, name: given[name][:-1]})
    with pytest.raises((TypeError, ValueError)):
        _native.Forest(**{**given, name: np.append(given[name], given[name][-1:])})


def test_oblivious_trees_of_another_number_of_leaves_are_refused():
    given = random_forest(np.random.default_rng(4), [3])
    with pytest.raises(ValueError, match="2\\^d leaves"):
        _native.Forest(**{**given, "no": None, "yes": None})


@pytest.mark.parametrize(("shape", "size"), [((3, 4), 3), ((3, 5), 2)])
def test_features_and_scores_of_another_size_are_refused(shape, size):
    forest = _native.Forest(**random_forest(np.random.default_rng(4), [3]))
    with pytest.raises(TypeError, match="must have"):
        forest.score(np.zeros(shape), 0.0, np.zeros(size))
