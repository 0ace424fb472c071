"""Bad input of sinkprop.jax: each error names the argument, and says what is wrong and what to do."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
from frontends import front_end

import sinkprop
from sinkprop import ERR, ExposureGap

jax, sj = front_end("jax", "sinkprop.jax")
jnp = jax.numpy

X = np.array([[0.5, 1.5, 0.2], [1.0, -1.0, 0.0]])
Y = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
WHERE = np.array([[True, True, True], [True, True, False]])


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((X, Y[:, :2]), {}, r"labels must have one value per document, the shape \(2, 3\).*got \(2, 2\)"),
        ((X, Y[0]), {}, r"labels must have one value per document"),
        ((X, Y), {"where": WHERE[0]}, r"where must have one value per document.*got \(3,\)"),
        ((X, Y), {"where": WHERE.astype(int)}, r"where must be boolean.*where.astype\(bool\)"),
        ((X, Y), {"segments": np.zeros(3, int)}, r"segments must have one value per document"),
        ((X, Y), {"segments": np.zeros((2, 3))}, r"segments must be integers"),
        (
            (X, Y),
            {"weights": np.ones(2)},
            r"weights must have one value per document.*weights of lists.*reduce_fn=None",
        ),
        ((X, Y), {"weights": np.ones((3, 2))}, r"weights must have one value per document"),
        ((np.float64(1.0), Y), {}, r"scores must have the documents of a list on the last axis"),
        ((X, Y), {"relaxation": "probit"}, r"scores must have the shape \(..., n, 2\)"),
        ((X.astype(complex), Y), {}, r"scores must be real"),
        ((X, Y.astype(complex)), {}, r"labels must be real"),
        ((X, Y[..., None][..., :0]), {}, r"labels must have at least one column"),
        ((X, Y), {"gain": "ndcg[2]"}, r"labels: .*reads label column 2"),
    ],
)
def test_wrong_shapes_and_types_are_found_when_a_program_is_traced(arguments, keywords, message):
    static = {name: keywords[name] for name in ("gain", "relaxation") if name in keywords}
    arrays = {name: value for name, value in keywords.items() if name not in static}
    with pytest.raises(ValueError, match=message):
        sj.sinkprop_loss(*arguments, **keywords)
    with pytest.raises(ValueError, match=message):
        jax.jit(lambda x, y, arrays: sj.sinkprop_loss(x, y, **arrays, **static))(*arguments, arrays)


@pytest.mark.parametrize("function", [sj.expected_ranks, lambda x, **kw: sj.top_k(x, 2, **kw)])
def test_ranks_check_their_arguments(function):
    with pytest.raises(ValueError, match="where must have one value per document"):
        function(X, where=WHERE[0])
    with pytest.raises(ValueError, match="scores must be finite; document 1 of list 0 has nan"):
        function(np.where(X == 1.5, np.nan, X))
    assert function(np.zeros((2, 0))).shape == (2, 0)
    with pytest.raises(ValueError, match="k must be"):
        sj.top_k(X, 0)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (
            (np.where(X == 1.5, np.nan, X), Y),
            {},
            r"scores must be finite; document 1 of list 0 has nan.*learning rate",
        ),
        ((np.where(X == 0.2, np.inf, X)[0], Y[0]), {}, r"scores must be finite; document 2 has inf"),
        ((X, Y - 1), {}, r"labels must be finite and not below 0; document 1 of list 0 has -1.0.*where="),
        ((X, np.where(Y == 2, np.nan, Y)), {}, r"labels must be finite.*document 2 of list 0 has nan"),
        ((X, Y * 500), {}, r"labels.*1000"),
        ((X.astype(np.float32), Y * 100), {}, r"labels are too large for ndcg.* in float32"),
        ((X, Y), {"gain": ERR(max_label=1)}, r"labels.*max_label"),
        ((X, Y), {"weights": -Y}, r"weights must be finite and not below 0"),
        ((X, Y), {"weights": 2 + Y, "gain": "mrr"}, r"weights: mrr takes weights"),
        ((X, Y), {"gain": ExposureGap(np.arange(3))}, r"gain: a loss cannot match an array"),
        ((X, Y), {"backend": "torch"}, r"backend must be 'auto', 'native' or 'jax'; got 'torch'"),
        ((X, Y), {"relaxation": "softmax"}, r"relaxation must be one of"),
        ((X, Y), {"n_iter": -1}, r"n_iter"),
        ((X, Y), {"epsilon": -1}, r"epsilon must be"),
        (
            ([[0.5, 1.5], [1.0]], Y),
            {},
            r"scores must be a rectangular array.*Pad lists of different lengths.*where=",
        ),
        ((X, [[1], [0, 1]]), {}, r"labels must be a rectangular array"),
    ],
)
def test_invalid_values_that_are_known(arguments, keywords, message):
    with pytest.raises(ValueError, match=message):
        sj.sinkprop_loss(*arguments, **keywords)


def test_an_array_of_something_else():
    with pytest.raises(TypeError, match="scores must be an array of numbers; got dict"):
        sj.sinkprop_loss({"a": 1}, Y)


def test_an_inverted_mask():
    padded = np.where(WHERE, Y, -1.0)
    with pytest.raises(ValueError, match=r"where= looks inverted.*pass ~where"):
        sj.sinkprop_loss(X, padded, where=~WHERE)
    # padding that is 0 can only be told by what is left out
    with pytest.raises(
        ValueError, match="where= looks inverted: no place where it is True has a label above 0"
    ):
        sj.sinkprop_loss(X, np.where(WHERE, Y, 0.0), where=~WHERE)
    assert np.isfinite(sj.sinkprop_loss(X, padded, where=WHERE))
    # documents left out on purpose are no inverted mask, although the relevant ones are among them
    assert sj.sinkprop_loss(X, Y, where=Y == 0) == 0
    # in a compiled program, where labels are not known, an invalid label gives NaN
    assert np.isnan(jax.jit(lambda y, w: sj.sinkprop_loss(X, y, where=w))(padded, ~WHERE))


@pytest.mark.parametrize("backend", ["native", "jax"])
def test_padding_and_empty_lists_have_the_value_0_and_the_gradient_0(backend):
    def loss(x, y, where, reduce_fn=jnp.mean):
        return sj.sinkprop_loss(x, y, where=where, backend=backend, reduce_fn=reduce_fn)

    nothing = np.zeros_like(WHERE)
    for f in (loss, jax.jit(loss, static_argnums=3)):
        value, gradient = jax.value_and_grad(f)(X, 0 * Y, nothing)
        assert value == 0
        assert not gradient.any()
        assert f(X, 0 * Y, nothing, None).tolist() == [0, 0]
    for shape in ((0,), (2, 0), (0, 3)):
        value, gradient = jax.value_and_grad(lambda x: sj.sinkprop_loss(x, x, backend=backend))(
            np.zeros(shape)
        )
        assert value == 0
        assert gradient.shape == shape
    assert sj.sinkprop_loss(np.zeros((2, 0)), np.zeros((2, 0)), reduce_fn=None).tolist() == [0, 0]


def test_invalid_values_in_a_compiled_program_are_nan():
    @jax.jit
    def values(x, y, w):
        return sj.expected_gain(x, y, weights=w, gain=ERR(max_label=2), reduce_fn=None)

    one = np.ones_like(X)
    good = values(X, Y, one)
    assert np.isfinite(good).all()
    for bad in (
        values(np.where(X == 1.5, np.nan, X), Y, one),
        values(X, np.where(Y == 2, 3.0, Y), one),  # above max_label
        values(X, np.where(Y == 2, -1.0, Y), one),
        values(X, Y, np.where(Y == 2, -1.0, one)),
        values(X, Y, np.where(Y == 2, np.inf, one)),
    ):
        assert np.isnan(bad[0])
        assert bad[1] == good[1]


def test_a_program_for_another_version_of_the_native_code(monkeypatch):
    native = importlib.import_module("sinkprop.jax.native")
    monkeypatch.setattr(native, "_VERSION", 0)
    x = np.arange(7.0)  # a shape for which nothing has been compiled
    with pytest.raises(
        Exception, match=r"another version of sinkprop's native code.*compile the program again"
    ):
        sj.sinkprop_loss(x, x, gain="ndcg@6").block_until_ready()


def test_handlers_check_sizes():
    native = importlib.import_module("sinkprop.jax.native")
    call = native.ffi.ffi_call("sinkprop_project", jax.ShapeDtypeStruct((4,), jnp.float64))
    settings = {
        "version": np.int64(1),
        "settings": np.zeros(6),
        "n_threads": np.int64(1),
        "column": np.ones(3),
    }
    first = jnp.zeros(3, jnp.int32)
    with pytest.raises(Exception, match="the same documents"):
        call(jnp.zeros(3), first, **settings).block_until_ready()
    call = native.ffi.ffi_call("sinkprop_project", jax.ShapeDtypeStruct((3,), jnp.float64))
    with pytest.raises(Exception, match="a place is out of range"):
        call(jnp.zeros(3), first + 3, **settings).block_until_ready()
    with pytest.raises(Exception, match="settings must have 6 numbers"):
        call(jnp.zeros(3), first, **settings | {"settings": np.zeros(2)}).block_until_ready()


def test_sinkprop_and_sinkprop_torch_do_not_import_jax():
    code = "import sys, sinkprop, sinkprop.torch; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_without_jax():
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "jax" else found(name, *rest)
import sinkprop.jax
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert 'ImportError: sinkprop.jax needs JAX: pip install "sinkprop[jax]".' in run.stderr


def test_with_an_older_jax():
    code = """
import jax
import jax.extend
for module in (jax, jax.extend):
    module.__dict__.pop("ffi", None)
import sys
sys.modules["jax.ffi"] = sys.modules["jax.extend.ffi"] = None
import sinkprop.jax
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "ImportError: sinkprop.jax needs JAX 0.4.38 or later" in run.stderr


def test_numpy_agrees_on_what_labels_are_valid():
    for labels in (Y[0] * 0, [0.5, 1.5, 0], [959, 0, 1]):
        want = sinkprop.expected_gain(X[0], labels)
        assert abs(sj.expected_gain(X[0], labels) - want.value) < 1e-12
