"""sinkprop.jax: values and gradients of every gain and relaxation, against the NumPy front end."""

import importlib

import numpy as np
import pytest
from frontends import front_end
from numpy.testing import assert_allclose
from problems import GAINS, LABEL_COLUMN_GAINS, PROBLEMS, SINGLE_LABEL_GAINS, Lists, gain_name

import sinkprop
from sinkprop import ColumnGain, PartitionedMeasure, RankLinear, RowGain, SmoothedIndicator

jax, sj = front_end("jax", "sinkprop.jax")
jnp = jax.numpy
check_grads = importlib.import_module("jax.test_util").check_grads

ALL = SINGLE_LABEL_GAINS | LABEL_COLUMN_GAINS
RELAXATIONS = [
    SmoothedIndicator(0.7),
    SmoothedIndicator(0.7, accuracy="exact"),
    SmoothedIndicator(0.7, "laplace"),
    PartitionedMeasure("logit-logistic"),
    PartitionedMeasure("probit"),
    PartitionedMeasure("beta"),
    PartitionedMeasure("probit", sigma=0.8),
    PartitionedMeasure("beta", sigma=0.8),
]
EXACT = RELAXATIONS[1]
# gains whose attributes are formulas, so that labels can be traced
TRACED = {
    name: gain for name, gain in ALL.items() if name not in ("gap", "gap of merit", "exposure", "target")
}


def close(found, expected, tolerance=1e-12):
    assert_allclose(np.asarray(found), expected, rtol=tolerance, atol=tolerance)


def by_numpy(lists, gain, relaxation=EXACT, **settings):
    return sinkprop.expected_gain(
        lists.scores, lists.labels, lists.qid, gain=gain, relaxation=relaxation, **settings
    )


def batches(lists):
    """(name, scores, labels, keywords, how to read a gradient back as flat rows)"""
    N = len(lists.qid)
    yield (
        "where",
        lists.padded(lists.scores, np.nan),
        lists.padded(lists.labels, -1.0),
        {"where": lists.mask},
        lambda g: g[lists.mask],
    )
    flipped = lists.mask[:, ::-1]
    yield (
        "padding first",
        lists.padded(lists.scores, 99.0, first=True),
        lists.padded(lists.labels, 7.0, first=True),
        {"where": flipped},
        lambda g: g[flipped],
    )
    mixed = lists.mixed
    yield (
        "segments",
        lists.scores[mixed],
        lists.labels[mixed],
        {"segments": (lists.qid * 3 % 7)[mixed]},
        lambda g: g[np.argsort(mixed)],
    )
    with_padding = np.insert(mixed, [4, 20], 0)
    where = np.insert(np.ones(N, bool), [4, 20], False)
    yield (
        "segments and where",
        lists.scores[with_padding],
        lists.labels[with_padding],
        {"segments": lists.qid[with_padding], "where": where},
        lambda g: g[where][np.argsort(mixed)],
    )


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=str)
@pytest.mark.parametrize("gain", ALL.values(), ids=ALL)
def test_every_gain_and_relaxation(gain, relaxation):
    lists = Lists(relaxation.width)
    want = by_numpy(lists, gain, relaxation)
    for name, scores, labels, keywords, flat in batches(lists):

        def value(x, y, keywords=keywords):
            return sj.expected_gain(x, y, gain=gain, relaxation=relaxation, **keywords)

        found, gradient = jax.value_and_grad(value)(jnp.asarray(scores), labels)
        close(found, want.value)
        close(flat(np.asarray(gradient)), want.gradient)
        assert np.count_nonzero(gradient) <= want.gradient.size, name


@pytest.mark.parametrize("gain", TRACED.values(), ids=TRACED)
def test_traced_labels(gain):
    lists = Lists()
    want = by_numpy(lists, gain, sample_weight=lists.weights)
    weights = lists.padded(lists.weights, -3.0)
    for scores, labels, mask, w in [
        (lists.padded(lists.scores, np.nan), lists.padded(lists.labels, -1.0), lists.mask, weights),
        (lists.padded(lists.scores, np.inf), lists.padded(lists.labels, np.nan), lists.mask, weights),
    ]:

        @jax.jit
        def value_and_gradient(x, y, where, w):
            return jax.value_and_grad(
                lambda x: sj.expected_gain(x, y, where=where, weights=w, gain=gain, relaxation=EXACT)
            )(x)

        found, gradient = value_and_gradient(scores, labels, mask, w)
        close(found, want.value)
        close(np.asarray(gradient)[lists.mask], want.gradient)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("gain", GAINS, ids=gain_name)
def test_named_problems(problem, gain):
    for kernel in ("gaussian", "laplace"):
        relaxation = SmoothedIndicator(problem.sigma, kernel)
        want = sinkprop.expected_gain(problem.scores, problem.labels, gain=gain, relaxation=relaxation)
        found, gradient = jax.value_and_grad(sj.expected_gain)(
            problem.scores, problem.labels, gain=gain, relaxation=relaxation
        )
        close(found, want.value)
        assert_allclose(gradient, want.gradient, rtol=1e-12, atol=1e-12 * max(1, abs(want.gradient).max()))


@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 5.5, "converged"])
@pytest.mark.parametrize("relaxation", [EXACT, PartitionedMeasure("probit")], ids=str)
def test_iterations(n_iter, relaxation):
    lists = Lists(relaxation.width)
    want = by_numpy(lists, "ndcg@3", relaxation, n_iter=n_iter, epsilon=1e-3)
    x, y = lists.padded(lists.scores, 0.0), lists.padded(lists.labels[:, 0], 0.0)

    @jax.jit
    def value(x):
        return sj.expected_gain(
            x, y, where=lists.mask, gain="ndcg@3", relaxation=relaxation, n_iter=n_iter, epsilon=1e-3
        )

    found, gradient = jax.value_and_grad(value)(x)
    close(found, want.value)
    close(np.asarray(gradient)[lists.mask], want.gradient)


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=str)
@pytest.mark.parametrize(
    "gain", ["ndcg@3", "map", "err(max_grade=4)", "0.8*ndcg@10 - 0.2*exposuregap(groups=1)"]
)
def test_derivatives_by_finite_differences(gain, relaxation):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2, 6, 2) if relaxation.width == 2 else (2, 6))
    labels = rng.integers(0, 4, size=(2, 6, 2)).astype(float)
    where = np.array([[True] * 6, [True] * 4 + [False] * 2])

    def value(x):
        return sj.expected_gain(x, labels, where=where, gain=gain, relaxation=relaxation)

    tolerance = 1e-4 if relaxation == SmoothedIndicator(0.7) else 1e-6  # of the setting "fast"
    check_grads(value, (x,), order=1, modes=["fwd", "rev"], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("relaxation", [EXACT, PartitionedMeasure("logit-logistic")], ids=str)
def test_single_precision(relaxation):
    lists = Lists(relaxation.width)
    lists.scores = lists.scores.astype(np.float32)
    x = jnp.asarray(lists.padded(lists.scores, 0.0), jnp.float32)
    for gain in ("ndcg@10", "map"):
        want = by_numpy(lists, gain, relaxation)
        found, gradient = jax.jit(
            jax.value_and_grad(
                lambda x, y, gain=gain: sj.expected_gain(
                    x, y, where=lists.mask, gain=gain, relaxation=relaxation
                )
            )
        )(x, lists.padded(lists.labels[:, 0], 0.0))
        assert found.dtype == gradient.dtype == jnp.float32
        close(found, want.value, 1e-6)
        close(np.asarray(gradient)[lists.mask], want.gradient, 1e-6)


def test_without_double_precision_and_in_half_precision():
    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
            scores = jnp.array([[0.5, 1.5, 0.25]], dtype)
            loss, gradient = jax.value_and_grad(sj.sinkprop_loss)(scores, jnp.array([[2, 0, 1]]))
            assert loss.dtype == jnp.float32
            assert gradient.dtype == dtype
            want = sinkprop.expected_gain([0.5, 1.5, 0.25], [2, 0, 1], gain="ndcg(discount=log2)")
            close(loss, -want.value, 1e-6)
            close(gradient[0].astype(float), -want.gradient, 1e-2)


def test_loss_is_minus_the_gain_with_the_discount_of_rax():
    lists = Lists()
    x, y = lists.padded(lists.scores, 0.0), lists.padded(lists.labels[:, 0], 0.0)
    gain = sj.expected_gain(x, y, where=lists.mask, gain="ndcg(discount=log2)@5")
    close(sj.sinkprop_loss(x, y, where=lists.mask, gain="ndcg@5"), -gain)
    assert gain != sj.expected_gain(
        x, y, where=lists.mask, gain="ndcg@5"
    )  # LETOR's, as in sinkprop.expected_gain


def test_reductions_and_values_of_lists():
    lists = Lists()
    want = by_numpy(lists, "map").per_query
    scores, labels = lists.padded(lists.scores, 0.0), lists.padded(lists.labels, 0.0)
    scores, labels = np.vstack([scores, scores[:1]]), np.concatenate([labels, labels[:1]])
    where = np.vstack([lists.mask, lists.mask[:1] & False])  # a row of padding

    def gain(reduce_fn, x=scores):
        return sj.expected_gain(x, labels, where=where, gain="map", relaxation=EXACT, reduce_fn=reduce_fn)

    close(gain(None), [*want, 0])
    close(gain(jnp.mean), want.mean())
    close(gain(jnp.sum), want.sum())
    gradient = jax.grad(lambda x: gain(jnp.mean, x))(scores)
    assert not gradient[-1].any()
    shaped = sj.expected_gain(
        scores.reshape(2, 3, 40),
        labels.reshape(2, 3, 40, 3),
        where=where.reshape(2, 3, 40),
        gain="map",
        relaxation=EXACT,
        reduce_fn=None,
    )
    close(shaped, np.array([*want, 0]).reshape(2, 3))


def test_values_of_segments_are_at_their_first_documents():
    lists = Lists()
    mixed = lists.mixed
    qid = lists.qid[mixed]
    found = sj.expected_gain(
        lists.scores[mixed],
        lists.labels[mixed],
        segments=qid,
        gain="map",
        relaxation=EXACT,
        reduce_fn=None,
    )
    expected = np.zeros(len(qid))
    expected[[np.argmax(qid == q) for q in range(5)]] = by_numpy(lists, "map").per_query
    close(found, expected)
    mean = sj.expected_gain(
        lists.scores[mixed], lists.labels[mixed], segments=qid, gain="map", relaxation=EXACT
    )
    close(mean, by_numpy(lists, "map").value)


def test_weights_are_weights_of_documents():
    lists = Lists()
    for gain in ("ndcg@3", "map"):
        want = by_numpy(lists, gain, sample_weight=lists.weights)
        found = sj.expected_gain(
            lists.padded(lists.scores, 0.0),
            lists.padded(lists.labels, 0.0),
            where=lists.mask,
            weights=lists.padded(lists.weights, -1.0),
            gain=gain,
            relaxation=EXACT,
        )
        close(found, want.value)
    # weights of lists, with one value per list
    per_list = sj.expected_gain(
        lists.padded(lists.scores, 0.0),
        lists.padded(lists.labels, 0.0),
        where=lists.mask,
        gain="map",
        relaxation=EXACT,
        reduce_fn=None,
    )
    c = np.arange(1.0, 6.0)
    close((c * per_list).sum() / c.sum(), by_numpy(lists, "map", query_weight=c).value)


CUSTOM = {
    "table": RankLinear(table=lambda r, k: (r > 1) * (k % 2) + r / k),
    "ColumnGain": ColumnGain(
        attributes=lambda labels: labels[:, :2],
        function=lambda R: np.sum(R[:, 0] * R[:, 1] / np.arange(1, len(R) + 1)),
        gradient=lambda R: R[:, ::-1] / np.arange(1, len(R) + 1)[:, None],
    ),
    "RowGain": RowGain(
        function=lambda E, labels: -((E - labels[:, 1] / 3) ** 2).sum(),
        gradient=lambda E, labels: -2 * (E - labels[:, 1] / 3),
    ),
}


@pytest.mark.parametrize("gain", CUSTOM.values(), ids=CUSTOM)
def test_custom_gains_outside_of_compiled_programs(gain):
    lists = Lists()
    want = by_numpy(lists, gain)
    for _, scores, labels, keywords, flat in batches(lists):

        def value(x, labels=labels, keywords=keywords):
            return sj.expected_gain(x, labels, gain=gain, relaxation=EXACT, **keywords)

        found, gradient = jax.value_and_grad(value)(jnp.asarray(scores))
        close(found, want.value)
        close(flat(np.asarray(gradient)), want.gradient)
    with pytest.raises(NotImplementedError, match="NumPy function"):
        jax.jit(lambda x, y: sj.expected_gain(x, y, gain=gain))(scores, labels)


def test_custom_gain_of_known_labels_can_be_compiled():
    lists = Lists()
    gain = RankLinear(gain=np.sqrt, discount=lambda k: 1 / k)
    y = lists.padded(lists.labels[:, 0], 0.0)
    found = jax.jit(lambda x: sj.expected_gain(x, y, where=lists.mask, gain=gain, relaxation=EXACT))(
        lists.padded(lists.scores, 0.0)
    )
    close(found, by_numpy(lists, gain).value)
