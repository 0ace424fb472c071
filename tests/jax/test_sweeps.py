"""sinkprop.jax in JAX's operations, as on a device without native code, against NumPy."""

import importlib

import numpy as np
import pytest
from frontends import front_end
from numpy.testing import assert_allclose
from problems import LABEL_COLUMN_GAINS, SINGLE_LABEL_GAINS, Lists

import sinkprop
from sinkprop import PartitionedMeasure, SmoothedIndicator

jax, sj = front_end("jax", "sinkprop.jax")
jnp = jax.numpy

ALL = SINGLE_LABEL_GAINS | LABEL_COLUMN_GAINS
# one compilation for all of them; a wrong gradient of one is wrong in the sum, too
TOGETHER = (
    "ndcg + 0.7*ndcg(gain=linear)@3 - 0.3*p@2 + rbp@0.8 + 0.9*map@5 - 0.4*f@3 + 0.6*recall@3 - 1.1*mrr@4"
)
EXACT = SmoothedIndicator(0.7, accuracy="exact")
LAPLACE = SmoothedIndicator(0.7, "laplace")


def value_and_gradient(lists, gain, relaxation, dtype=np.float64, **keywords):
    x = lists.padded(lists.scores, np.nan).astype(dtype)
    return jax.value_and_grad(
        lambda x: sj.expected_gain(
            x,
            lists.padded(lists.labels, -1.0),
            where=lists.mask,
            gain=gain,
            relaxation=relaxation,
            backend="jax",
            **keywords,
        )
    )(x)


@pytest.mark.parametrize(
    ("gain", "relaxation"),
    [
        (TOGETHER, EXACT),
        (TOGETHER, LAPLACE),
        *((ALL[name], LAPLACE) for name in ("err", "sum of columns", "alphandcg, two columns", "erria")),
        *((ALL[name], LAPLACE) for name in ("gap of merit", "exposure")),
    ],
    ids=str,
)
def test_values_and_gradients_are_those_of_numpy(gain, relaxation):
    lists = Lists()
    want = sinkprop.expected_gain(lists.scores, lists.labels, lists.qid, gain=gain, relaxation=relaxation)
    found, gradient = value_and_gradient(lists, gain, relaxation)
    assert_allclose(found, want.value, rtol=1e-11)
    assert_allclose(np.asarray(gradient)[lists.mask], want.gradient, atol=1e-10)
    assert not np.asarray(gradient)[~lists.mask].any()


@pytest.mark.parametrize("n_iter", [0, 0.5, 5.5])
def test_iterations(n_iter):
    lists = Lists()
    settings = {"n_iter": n_iter, "epsilon": 1e-3}
    want = sinkprop.expected_gain(
        lists.scores, lists.labels, lists.qid, gain="ndcg@3", relaxation=LAPLACE, **settings
    )
    found, gradient = value_and_gradient(lists, "ndcg@3", LAPLACE, **settings)
    assert_allclose(found, want.value, rtol=1e-11)
    assert_allclose(np.asarray(gradient)[lists.mask], want.gradient, atol=1e-10)


def test_single_precision():
    lists = Lists()
    want = sinkprop.expected_gain(lists.scores, lists.labels, lists.qid, gain="map", relaxation=EXACT)
    found, gradient = value_and_gradient(lists, "map", EXACT, np.float32)
    assert found.dtype == gradient.dtype == np.float32
    assert_allclose(found, want.value, rtol=1e-5)
    assert_allclose(np.asarray(gradient)[lists.mask], want.gradient, atol=1e-4)


@pytest.mark.parametrize("gain", ["map", "ndcg@3 - 0.5*err(max_grade=3)"])
def test_segments_in_any_order(gain):
    lists = Lists()
    want = sinkprop.expected_gain(lists.scores, lists.labels, lists.qid, gain=gain, relaxation=LAPLACE)
    mixed = np.insert(lists.mixed, [4, 20], 0)
    where = np.insert(np.ones(len(lists.qid), bool), [4, 20], False)

    def values(x):
        return sj.expected_gain(
            x,
            lists.labels[mixed],
            segments=lists.qid[mixed],
            where=where,
            gain=gain,
            relaxation=LAPLACE,
            backend="jax",
            reduce_fn=None,
        )

    found, reverse = jax.vjp(values, lists.scores[mixed])
    assert_allclose(np.sort(found[found != 0]), np.sort(want.per_query[want.per_query != 0]), rtol=1e-11)
    (gradient,) = reverse(np.ones(len(mixed)))
    assert_allclose(
        np.asarray(gradient)[where][np.argsort(lists.mixed)], want.gradient * len(want.per_query), atol=1e-10
    )


X = np.array([[0.3, -0.2, 1.1, 0.4], [0.5, 0.1, 2.0, -1.0]])
WHERE = np.array([[True, True, True, False], [True] * 4])


def by_differences(gradient, x, step=1e-5):
    """Derivatives of a gradient by central differences, in the shape (*x.shape, *x.shape)."""
    units = np.eye(x.size).reshape(-1, *x.shape)
    rows = [(gradient(x + step * e) - gradient(x - step * e)) / (2 * step) for e in units]
    return np.moveaxis(np.array(rows).reshape(*x.shape, *x.shape), (0, 1), (2, 3))


@pytest.mark.parametrize("relaxation", [EXACT, LAPLACE], ids=str)
def test_second_derivatives(relaxation):
    y = np.array([[0, 2, 1, 0], [1, 0, 2, 2]])

    def value(x):
        return sj.expected_gain(x, y, where=WHERE, gain="map", relaxation=relaxation)

    H = np.asarray(jax.jit(jax.hessian(value))(X))
    assert_allclose(H, by_differences(jax.jit(jax.grad(value)), X), atol=1e-7)
    assert not H[0, :, 1].any()  # no list depends on another
    assert not H[0, 3].any()  # padding
    with_respect_to_all = jax.jit(jax.jacrev(jax.grad(value)))(X)
    assert_allclose(with_respect_to_all, H, atol=1e-12)


def test_second_derivatives_of_ranks():
    bar = np.random.default_rng(2).normal(size=X.shape)

    def value(x):
        ranks = sj.expected_ranks(x, where=WHERE, relaxation=EXACT)
        return (bar * ranks**2).sum()  # so that the gradient with respect to the ranks depends on x, too

    H = jax.jit(jax.jacrev(jax.grad(value)))(X)
    assert_allclose(H, by_differences(jax.jit(jax.grad(value)), X), atol=1e-6)


def test_a_list_that_is_not_finite_does_not_touch_the_others():
    lists = Lists()
    scores = lists.padded(lists.scores, 0.0)
    scores[0, 2] = np.nan
    y = lists.padded(lists.labels[:, 0], 0.0)
    y[2, 1] = -1.0
    for backend in ("native", "jax"):

        @jax.jit
        def values_and_gradient(x, y, backend=backend):
            def total(x):
                values = sj.expected_gain(
                    x, y, where=lists.mask, relaxation=LAPLACE, backend=backend, reduce_fn=None
                )
                return jnp.nansum(values), values

            return jax.grad(total, has_aux=True)(x)

        gradient, values = values_and_gradient(scores, y)
        assert np.isnan(np.asarray(values)).tolist() == [True, False, True, False, False]
        want = sinkprop.expected_gain(lists.scores, lists.labels[:, 0], lists.qid, relaxation=LAPLACE)
        assert_allclose(np.asarray(values)[[1, 3, 4]], want.per_query[[1, 3, 4]], rtol=1e-11)
        rest = np.isin(lists.qid, [1, 3, 4])
        assert_allclose(np.asarray(gradient)[lists.mask][rest], 5 * want.gradient[rest], atol=1e-10)


def test_memory_is_linear():
    n = 8_000  # one n x n matrix would take 512 MB

    def value(x, y):
        return sj.expected_gain(x, y, relaxation=LAPLACE, backend="jax")

    compiled = jax.jit(jax.value_and_grad(value)).lower(jnp.zeros(n), jnp.zeros(n)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 80e6


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"relaxation": PartitionedMeasure("probit", sigma=1.0)}, "PartitionedMeasure.*backend='jax'"),
        ({"n_iter": "converged"}, "n_iter='converged'.*backend='jax'"),
    ],
)
def test_not_in_operations_of_jax(keywords, message):
    with pytest.raises(NotImplementedError, match=message):
        sj.expected_gain(np.zeros(3), np.ones(3), backend="jax", **keywords)
    second = jax.hessian(lambda x: sj.expected_gain(x, np.ones(3), **keywords))
    with pytest.raises(NotImplementedError, match="Second derivatives"):
        second(np.zeros(3))


def test_platform_is_chosen_when_the_program_is_compiled(monkeypatch):
    core = importlib.import_module("sinkprop.jax.core")
    monkeypatch.setattr(core, "backends", lambda: {"cpu": None, "tpu": None})
    lists = Lists(seed=8)  # values for which nothing has been compiled
    x, y = lists.padded(lists.scores, 0.0)[:, :39], lists.padded(lists.labels[:, 0], 0.0)[:, :39]
    loss = jax.jit(jax.value_and_grad(lambda x: sj.sinkprop_loss(x, y, where=lists.mask[:, :39])))
    program = loss.lower(x).as_text()
    assert "sinkprop_expected_gain" in program
    found, gradient = loss(x)
    monkeypatch.undo()
    want, gradient_by_native = jax.value_and_grad(sj.sinkprop_loss)(
        x, y, where=lists.mask[:, :39], backend="native"
    )
    assert_allclose(found, want, rtol=1e-14)
    assert_allclose(gradient, gradient_by_native, rtol=1e-14)
