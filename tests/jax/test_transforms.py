"""sinkprop.jax under jit, vmap and grad, in training with flax and optax, and its ranks and top-k."""

import numpy as np
import pytest
from frontends import front_end
from numpy.testing import assert_allclose
from problems import Lists

import sinkprop
from sinkprop import PartitionedMeasure, SmoothedIndicator

jax, sj = front_end("jax", "sinkprop.jax")
jnp = jax.numpy

EXACT = SmoothedIndicator(0.7, accuracy="exact")
RELAXATIONS = [EXACT, SmoothedIndicator(0.7, "laplace"), PartitionedMeasure("logit-logistic")]


def batch(relaxation):
    lists = Lists(relaxation.width)
    x = lists.padded(lists.scores, 0.0)
    return x, lists.padded(lists.labels[:, 0], 0.0), lists.mask, lists


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=str)
def test_jit_vmap_and_grad_in_any_order(relaxation):
    x, y, where, lists = batch(relaxation)
    want = sinkprop.expected_gain(
        lists.scores, lists.labels[:, 0], lists.qid, gain="ndcg(discount=log2)@3", relaxation=relaxation
    )

    def loss(x, y, where):
        return sj.sinkprop_loss(x, y, where=where, gain="ndcg@3", relaxation=relaxation)

    per_list = jax.vmap(loss)(x, y, where)
    assert_allclose(per_list, -want.per_query, rtol=1e-12, atol=1e-15)
    assert_allclose(jax.jit(jax.vmap(loss))(x, y, where), per_list, rtol=1e-14)
    for gradients in (
        jax.vmap(jax.grad(loss))(x, y, where),
        jax.jit(jax.vmap(jax.grad(loss)))(x, y, where),
        jax.grad(lambda x: jax.vmap(loss)(x, y, where).sum())(x),
        jax.jit(jax.grad(lambda x: jax.vmap(loss)(x, y, where).sum()))(x),
        jax.vmap(jax.jit(jax.grad(loss)))(x, y, where),
    ):
        assert_allclose(np.asarray(gradients)[where], -5 * want.gradient, rtol=1e-11, atol=1e-14)
    # of the scores alone, with labels for all
    several = jax.vmap(loss, in_axes=(0, None, None))(np.stack([x[4], x[2]]), y[4], where[4])
    again = [loss(x[4], y[4], where[4]), loss(x[2], y[4], where[4])]
    assert_allclose(several, again, rtol=1e-12)
    # twice
    twice = jax.vmap(jax.vmap(loss))(np.stack([x, x]), np.stack([y, y]), np.stack([where, where]))
    assert_allclose(twice, [per_list, per_list], rtol=1e-14)


def test_segments_under_jit_and_vmap():
    lists = Lists()
    mixed = lists.mixed
    x, y, ids = lists.scores[mixed], lists.labels[mixed, 0], lists.qid[mixed]
    want = sinkprop.expected_gain(lists.scores, lists.labels[:, 0], lists.qid, gain="map", relaxation=EXACT)

    def value(x, y, ids):
        return sj.expected_gain(x, y, segments=ids, gain="map", relaxation=EXACT)

    found, gradient = jax.jit(jax.value_and_grad(value))(x, y, ids)
    assert_allclose(found, want.value, rtol=1e-12)
    assert_allclose(np.asarray(gradient)[np.argsort(mixed)], want.gradient, rtol=1e-11, atol=1e-14)
    both, gradients = jax.vmap(jax.value_and_grad(value))(*(np.stack([v, v[::-1]]) for v in (x, y, ids)))
    assert_allclose(both[0], want.value, rtol=1e-12)
    assert_allclose(gradients[0], gradient, rtol=1e-12)
    # rows with lists of their own
    rows = sj.expected_gain(
        np.stack([x, x]),
        np.stack([y, y]),
        segments=np.stack([ids, 0 * ids]),
        gain="map",
        relaxation=EXACT,
        reduce_fn=None,
    )
    alone = sj.expected_gain(x, y, gain="map", relaxation=EXACT)
    assert_allclose(rows[0].sum(), want.per_query.sum(), rtol=1e-12)
    assert_allclose(rows[1], [alone] + [0] * (len(x) - 1), rtol=1e-12)


def test_forward_mode():
    x, y, where, _ = batch(EXACT)
    direction = np.random.default_rng(0).normal(size=x.shape)

    def loss(x):
        return sj.sinkprop_loss(x, y, where=where, relaxation=EXACT)

    _, slope = jax.jvp(loss, (x,), (direction,))
    assert_allclose(slope, (jax.grad(loss)(x) * direction).sum(), rtol=1e-12)


@pytest.mark.parametrize(
    ("relaxation", "backend"), [*((r, "native") for r in RELAXATIONS), (RELAXATIONS[1], "jax")], ids=str
)
def test_ranks_and_top_k(relaxation, backend):
    x, _, where, lists = batch(relaxation)
    bar = np.random.default_rng(0).normal(size=where.shape)
    for found, weights in [
        (lambda x: sj.expected_ranks(x, where=where, relaxation=relaxation, backend=backend), lambda k: k),
        (lambda x: sj.top_k(x, 2, where=where, relaxation=relaxation, backend=backend), lambda k: k <= 2),
    ]:
        values, reverse = jax.vjp(found, x)
        (gradient,) = reverse(bar)
        assert not np.asarray(values)[~where].any()
        assert not np.asarray(gradient)[~where].any()
        for q, n in enumerate(lists.sizes):
            theta = lists.scores[lists.qid == q]
            Pi = sinkprop.doubly_stochastic(theta, relaxation=relaxation)
            assert_allclose(values[q, :n], Pi @ weights(np.arange(1, n + 1)), rtol=1e-9, atol=1e-9)
            # the sum of bar times E is the expected gain of documents with the gains `bar`
            gain = sinkprop.RankLinear(gain=lambda i, q=q: bar[q][i.astype(int)], discount=weights)
            want = sinkprop.expected_gain(theta, np.arange(n), gain=gain, relaxation=relaxation)
            assert_allclose(gradient[q, :n], want.gradient, rtol=1e-8, atol=1e-9)


def test_ranks_of_segments_and_under_vmap():
    lists = Lists()
    mixed = lists.mixed
    of_segments = sj.expected_ranks(lists.scores[mixed], segments=lists.qid[mixed], relaxation=EXACT)
    x, where = lists.padded(lists.scores, 0.0), lists.mask
    padded = sj.expected_ranks(x, where=where, relaxation=EXACT)
    assert_allclose(of_segments[np.argsort(mixed)], np.asarray(padded)[where], rtol=1e-12)
    mapped = jax.jit(jax.vmap(lambda x, w: sj.expected_ranks(x, where=w, relaxation=EXACT)))(x, where)
    assert_allclose(mapped, padded, rtol=1e-12)


def test_sharp_ranks_are_the_ranks():
    ranks = sj.expected_ranks(np.array([[3.0, 1.0, 2.0]]), relaxation=SmoothedIndicator(0.01), epsilon=0)
    assert_allclose(ranks, [[1, 3, 2]], atol=1e-12)
    chosen = sj.top_k(np.array([3.0, 1.0, 2.0]), 2, relaxation=SmoothedIndicator(0.01), epsilon=0)
    assert_allclose(chosen, [1, 0, 1], atol=1e-12)


def test_training_with_flax_and_optax():
    linen = front_end("flax", "flax.linen")[1]
    optax = front_end("optax", "optax")[0]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(64, 12, 5)).astype(np.float32)
    relevance = X @ np.array([1.0, -2.0, 0.5, 0.0, 0.0], np.float32)
    labels = np.digitize(relevance, [0, 2, 4]).astype(np.float32)
    where = np.arange(12) < rng.integers(2, 13, size=(64, 1))

    class Scorer(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(1)(linen.relu(linen.Dense(16)(x)))[..., 0]

    model, optimizer = Scorer(), optax.adam(1e-2)
    parameters = model.init(jax.random.PRNGKey(0), X[:1])
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state):
        def loss(parameters):
            return sj.sinkprop_loss(model.apply(parameters, X), labels, where=where, gain="ndcg@5")

        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, value

    def ndcg(parameters):
        scores = np.asarray(model.apply(parameters, X))[where]
        qid = np.repeat(np.arange(64), where.sum(1))
        return sinkprop.evaluate(labels[where], scores, qid, metrics=("ndcg@5",))["ndcg@5"]

    before = ndcg(parameters)
    values = []
    for _ in range(60):
        parameters, state, value = step(parameters, state)
        values.append(float(value))
    assert values[-1] < values[0] - 0.1
    assert ndcg(parameters) > max(0.9, before + 0.1)


def test_training_with_nnx():
    nnx = front_end("flax", "flax.nnx")[1]
    X = np.random.default_rng(0).normal(size=(16, 8, 3)).astype(np.float32)
    labels = (X[..., 0] > 0.5).astype(np.float32)
    model = nnx.Linear(3, 1, rngs=nnx.Rngs(0))

    @nnx.jit
    def value_and_gradient(model):
        return nnx.value_and_grad(lambda model: sj.sinkprop_loss(model(X)[..., 0], labels))(model)

    before, _ = value_and_gradient(model)
    for _ in range(30):
        _, gradient = value_and_gradient(model)
        nnx.update(model, jax.tree.map(lambda w, g: w - 0.5 * g, nnx.state(model, nnx.Param), gradient))
    assert value_and_gradient(model)[0] < before - 0.1
