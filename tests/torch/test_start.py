"""The default of the loss: its width relative to the spread of the scores, and its fading cross entropy."""

import copy
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.func import grad, vmap

import sinkprop
from sinkprop import NDCG, RankLinear, SmoothedIndicator
from sinkprop.objective.gains import ERR, FMeasure, as_gain
from sinkprop.torch import LBFGS, MLP, NeuralRanker, SinkPropLoss, sinkprop_loss

BACKENDS = ["native", "torch"]
SIZES = [6, 1, 4, 2, 9]
OFFSETS = torch.tensor([0, *np.cumsum(SIZES)])


def exponential(y):
    return 2.0**y - 1


def at_least_one(y):
    return (y >= 1).astype(float)


# the target of the cross entropy, before it is divided by its sum
TARGETS = {
    "ndcg@3": exponential,
    "ndcg(gain=linear)": lambda y: y,
    "p@2": at_least_one,
    "rbp@0.8": lambda y: y,
    "map": at_least_one,
    "mrr": at_least_one,
    "recall@2": at_least_one,
    FMeasure(3): at_least_one,
    ERR(max_label=2): exponential,
}
# gains that may have other goals than relevant documents at the top have no cross entropy
OTHERS = [
    RankLinear(gain=np.square, discount=lambda k: 1 / k),
    RankLinear(table=lambda r, k: (r > 1) * (k % 2) + r / k),
    as_gain("ndcg(discount=log2)@3 + 0.5*mrr"),
]
# The fast Gaussian kernel has an error of up to 1e-6 / sigma, and the scores are divided by their spread.
TOLERANCE = 1e-5


def a_batch(spread=1.0, dtype=torch.float64):
    g = torch.Generator().manual_seed(3)
    scores = spread * torch.randn(sum(SIZES), generator=g, dtype=torch.float64)
    return scores.to(dtype), torch.randint(0, 3, (sum(SIZES),), generator=g).to(dtype)


def by_numpy(scores, labels, gain="ndcg@3", weights=None):
    """Loss and gradient of each query by `expected_gain` and arithmetic; the spread is held fixed."""
    values, gradients, target_of = [], [], TARGETS.get(gain)
    ends, weights = np.cumsum(SIZES)[:-1], None if weights is None else np.asarray(weights)
    for i in np.split(np.arange(len(scores)), ends):
        s, y = np.asarray(scores)[i], np.asarray(labels)[i]
        w = np.ones(len(i)) if weights is None else weights[i]
        d = s.std() if len(s) > 1 else 1.0
        unit = min(d, 4.0)
        r = sinkprop.expected_gain(
            s / unit,
            y,
            gain=as_gain(gain, "log2"),
            relaxation=SmoothedIndicator(0.25, accuracy="exact"),
            sample_weight=None if weights is None else w,
        )
        gradient = -r.gradient / unit
        target = np.zeros(len(s)) if target_of is None else w * target_of(y)
        if target.sum() > 0:
            p = np.exp(s - s.max()) / np.exp(s - s.max()).sum()
            gradient = gradient + (p - target / target.sum()) / (1 + (d / 3) ** 2)
        values.append(-r.value)
        gradients.append(gradient)
    return np.array(values), np.concatenate(gradients)


def by_loss(scores, labels, **given):
    x = scores.clone().requires_grad_()
    values = sinkprop_loss(x, labels, **{"gain": "ndcg@3", "reduction": "none", **given})
    (gradient,) = torch.autograd.grad(values.sum(), x)
    return values.detach().numpy(), gradient.numpy()


@pytest.mark.parametrize("spread", [1e-3, 1.0, 3.0, 30.0], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_form_of_batch_is_the_definition(backend, spread):
    scores, labels = a_batch(spread)
    want, want_gradient = by_numpy(scores, labels)
    atol = TOLERANCE * np.abs(want_gradient).max()
    assert np.abs(want_gradient).max() > 0.1
    values, gradient = by_loss(scores, labels, offsets=OFFSETS, backend=backend)
    assert_allclose(values, want, atol=TOLERANCE)
    assert_allclose(gradient, want_gradient, atol=atol)

    mixed = torch.randperm(len(scores), generator=torch.Generator().manual_seed(1))
    qid = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    values, gradient = by_loss(scores[mixed], labels[mixed], qid=qid[mixed], backend=backend)
    as_they_appear = list(dict.fromkeys(qid[mixed].tolist()))
    assert_allclose(values, want[as_they_appear], atol=TOLERANCE)
    assert_allclose(gradient[mixed.argsort()], want_gradient, atol=atol)

    def padded(x, fill):
        return torch.nn.utils.rnn.pad_sequence(x.split(SIZES), batch_first=True, padding_value=fill)

    mask = padded(torch.ones_like(labels), 0.0).bool()
    for fill in (math.nan, -1e9, 1e9):
        values, gradient = by_loss(padded(scores, fill), padded(labels, -1.0), backend=backend)
        assert_allclose(values, want, atol=TOLERANCE)
        assert_allclose(gradient[mask], want_gradient, atol=atol)
        assert not gradient[~mask].any()

    nested = torch.nested.as_nested_tensor(list(labels.split(SIZES)), layout=torch.jagged)
    x = scores.clone().requires_grad_()
    of_nested = torch.nested.as_nested_tensor(list(x.split(SIZES)), layout=torch.jagged)
    sinkprop_loss(of_nested, nested, gain="ndcg@3", reduction="sum", backend=backend).backward()
    assert_allclose(x.grad.numpy(), want_gradient, atol=atol)


@pytest.mark.parametrize("gain", TARGETS, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_metrics_of_relevance_have_a_cross_entropy(backend, gain):
    scores, labels = a_batch()
    values, gradient = by_loss(scores, labels, gain=gain, offsets=OFFSETS, backend=backend)
    want, want_gradient = by_numpy(scores, labels, gain)
    assert_allclose(values, want, atol=TOLERANCE)
    assert_allclose(gradient, want_gradient, atol=TOLERANCE)


@pytest.mark.parametrize("gain", OTHERS, ids=["own", "table", "sum"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_other_gains_have_the_width_alone(backend, gain):
    scores, labels = a_batch()
    values, gradient = by_loss(scores, labels, gain=gain, offsets=OFFSETS, backend=backend)
    want, want_gradient = by_numpy(scores, labels, gain)
    assert_allclose(values, want, atol=TOLERANCE)
    assert_allclose(gradient, want_gradient, atol=TOLERANCE)


def test_a_derivative_with_the_spread_held_fixed():
    """Central differences of minus the expected gain at fixed units, and of the weighted cross entropy."""
    s, y = np.array([0.3, -0.2, 0.9, 0.1, -0.6]), np.array([0.0, 2, 1, 0, 1])
    d = s.std()
    target = exponential(y) / exponential(y).sum()

    def function(s):
        relaxation = SmoothedIndicator(0.25, accuracy="exact")
        gain = sinkprop.expected_gain(s / d, y, gain=NDCG(discount="log2"), relaxation=relaxation).value
        return -gain + target @ (np.log(np.exp(s).sum()) - s) / (1 + (d / 3) ** 2)

    steps = 1e-6 * np.eye(5)
    want = [(function(s + h) - function(s - h)) / 2e-6 for h in steps]
    _, gradient = by_loss(torch.tensor(s), torch.tensor(y), gain="ndcg", reduction="sum")
    assert_allclose(gradient, want, atol=1e-6)


def test_two_documents_by_hand():
    """Two scores are always two spreads apart, eight widths, so their order is certain."""
    x = torch.tensor([0.0, 2.0], dtype=torch.float64, requires_grad=True)
    value = sinkprop_loss(x, torch.tensor([1, 0]))
    value.backward()
    assert_allclose(value.item(), -1 / math.log2(3), atol=TOLERANCE)
    p = 1 / (1 + math.exp(2))  # softmax of the first; the spread is 1, so the weight is 0.9
    assert_allclose(x.grad.numpy(), [0.9 * (p - 1), 0.9 * (1 - p)], atol=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
class TestAwkward:
    def test_tied_scores(self, backend, dtype):
        """The expected gain is the mean over all orders; only the cross entropy tells documents apart."""
        for tied in (0.0, 0.1, -1e30, 1e-30):
            x = torch.full((4,), tied, dtype=dtype, requires_grad=True)
            value = sinkprop_loss(x, torch.tensor([0, 2, 0, 1]), backend=backend)
            value.backward()
            D = 1 / np.log2(np.arange(2, 6))
            assert_allclose(value.item(), -(4 * D.mean()) / (3 * D[0] + D[1]), rtol=1e-5)
            assert_allclose(x.grad.numpy(), 0.9 * (0.25 - np.array([0, 0.75, 0, 0.25])), atol=1e-6)

    def test_scores_that_differ_by_rounding_are_tied(self, backend, dtype):
        x = torch.full((5,), 1000.0, dtype=dtype)
        x[2] = torch.nextafter(x[2], x.new_tensor(2000.0))
        _, gradient = by_loss(x, torch.tensor([0, 2, 0, 1, 0]), backend=backend)
        assert np.abs(gradient).max() < 1

    def test_one_document_and_none_relevant(self, backend, dtype):
        for scores, labels, want in (
            ([3.0], [2], -1.0),
            ([3.0], [0], 0.0),
            ([1.0, 5.0, 2.0], [0, 0, 0], 0.0),
        ):
            x = torch.tensor(scores, dtype=dtype, requires_grad=True)
            value = sinkprop_loss(x, torch.tensor(labels), backend=backend)
            value.backward()
            assert_allclose(value.item(), want, atol=1e-6)
            assert_allclose(x.grad.numpy(), 0, atol=1e-7)

    @pytest.mark.parametrize("size", [1e-30, 1e30], ids=str)
    def test_tiny_and_huge_scores(self, backend, dtype, size):
        x = torch.tensor([1.0, 3.0, -2.0, 0.5], dtype=dtype) * size
        values, gradient = by_loss(x, torch.tensor([1, 0, 0, 2]), backend=backend)
        assert np.isfinite(values).all()
        assert np.isfinite(gradient).all()
        if size < 1:  # the value does not depend on the unit of the scores
            want, _ = by_loss(x / size, torch.tensor([1, 0, 0, 2]), backend=backend)
            assert_allclose(values, want, atol=TOLERANCE)

    def test_a_row_without_documents(self, backend, dtype):
        scores = torch.tensor([[0.2, 0.5], [math.nan, math.inf]], dtype=dtype)
        labels = torch.tensor([[1, 0], [-1, -1]])
        values, gradient = by_loss(scores, labels, backend=backend)
        alone, of_alone = by_loss(scores[:1], labels[:1], backend=backend)
        assert_allclose(values, [alone[0], 0])
        assert_allclose(gradient, [of_alone[0], [0, 0]])

    def test_no_number(self, backend, dtype):
        scores = torch.tensor([[0.2, 0.5], [0.1, math.nan]], dtype=dtype)
        with pytest.raises(ValueError, match="document 1 of query 1 has nan"):
            sinkprop_loss(scores, torch.tensor([[1, 0], [0, 1]]), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights(backend):
    scores, labels = a_batch()
    g = torch.Generator().manual_seed(0)
    rows, of_queries = torch.rand(len(scores), generator=g) + 0.1, torch.rand(len(SIZES), generator=g)
    values, gradient = by_loss(
        scores, labels, offsets=OFFSETS, sample_weight=rows, query_weight=of_queries, backend=backend
    )
    want, want_gradient = by_numpy(scores, labels, weights=rows.double())
    assert_allclose(values, want * of_queries.numpy(), atol=TOLERANCE)
    assert_allclose(gradient, want_gradient * np.repeat(of_queries.numpy(), SIZES), atol=TOLERANCE)


def test_single_and_half_precision():
    scores, labels = a_batch(dtype=torch.float32)
    want, want_gradient = by_loss(scores.double(), labels.double(), offsets=OFFSETS)
    for backend in BACKENDS:
        values, gradient = by_loss(scores, labels, offsets=OFFSETS, backend=backend)
        assert values.dtype == np.float32
        assert_allclose(values, want, atol=2e-5)
        assert_allclose(gradient, want_gradient, atol=1e-4)
    half = scores.bfloat16()
    assert sinkprop_loss(half, labels, offsets=OFFSETS) == sinkprop_loss(
        half.float(), labels, offsets=OFFSETS
    )


def test_labels_above_the_range_of_single_precision():
    scores = torch.tensor([0.3, 0.1, 0.2], requires_grad=True)
    sinkprop_loss(scores, torch.tensor([200, 199, 0])).backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[0] < 0


def test_the_unit_of_the_scores_does_not_matter_to_the_value():
    scores, labels = a_batch()
    want = sinkprop_loss(scores, labels, offsets=OFFSETS, reduction="none")
    for changed in (scores * 0.01, scores + 7):
        got = sinkprop_loss(changed, labels, offsets=OFFSETS, reduction="none")
        assert_allclose(got.numpy(), want.numpy(), atol=TOLERANCE)


def test_transforms_of_torch_func():
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 5, generator=g, dtype=torch.float64)
    labels = torch.randint(0, 3, (3, 5), generator=g)
    _, want = by_loss(scores, labels, gain="ndcg", backend="torch")
    assert_allclose(vmap(grad(sinkprop_loss))(scores, labels).numpy(), want, atol=1e-9)
    assert_allclose(3 * grad(sinkprop_loss)(scores, labels).numpy(), want, atol=1e-9)


# torch instantiates the class of a function that it traces
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.* should not be instantiated")
def test_compiled_is_one_graph():
    torch._dynamo.reset()
    g = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(3, 5, generator=g), torch.randint(0, 3, (3, 5), generator=g)
    labels[1, 3:] = -1
    for gain in ("ndcg@3", "map"):
        loss = SinkPropLoss(gain)
        x, y = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        torch.compile(loss, fullgraph=True, backend="aot_eager")(x, labels).backward()
        loss(y, labels).backward()
        assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=2e-5)
    torch._dynamo.reset()


def test_second_derivatives():
    """The expected gain of two documents is flat, which leaves the second derivative of the cross entropy."""
    scores, labels = torch.tensor([0.0, 2.0], dtype=torch.float64), torch.tensor([1, 0])
    x = scores.requires_grad_()
    (first,) = torch.autograd.grad(sinkprop_loss(x, labels), x, create_graph=True)
    (second,) = torch.autograd.grad(first[0], x)
    p = 1 / (1 + math.exp(2))
    assert_allclose(second.numpy(), [0.9 * p * (1 - p), -0.9 * p * (1 - p)], atol=1e-6)


class TestSettings:
    def test_a_relaxation_means_what_it_says(self):
        scores, labels = a_batch()
        qid = np.repeat(np.arange(len(SIZES)), SIZES)
        want = sinkprop.expected_gain(
            scores.numpy(), labels.numpy(), qid, gain=NDCG(3, discount="log2"), relaxation="gaussian"
        )
        for relaxation in ("gaussian", SmoothedIndicator(1.0)):
            values, gradient = by_loss(scores, labels, offsets=OFFSETS, relaxation=relaxation)
            assert_allclose(values, -want.per_query, rtol=1e-9)
            assert_allclose(gradient, -want.gradient * len(SIZES), atol=1e-9)

    def test_assigned_between_steps(self):
        scores, labels = a_batch()
        loss = SinkPropLoss("ndcg@3")
        default = loss(scores, labels, offsets=OFFSETS)
        assert loss.relaxation is None
        assert "relaxation=None" in repr(loss)
        loss.relaxation = SmoothedIndicator(0.5)
        assert loss(scores, labels, offsets=OFFSETS) == sinkprop_loss(
            scores, labels, offsets=OFFSETS, gain="ndcg@3", relaxation=SmoothedIndicator(0.5)
        )
        loss.relaxation, loss.n_threads = None, 1
        assert copy.deepcopy(loss)(scores, labels, offsets=OFFSETS) == default

    def test_without_gradients(self):
        scores, labels = a_batch()
        with torch.no_grad():
            assert sinkprop_loss(scores, labels, offsets=OFFSETS) == sinkprop_loss(
                scores.requires_grad_(), labels, offsets=OFFSETS
            )

    def test_in_a_ranker(self):
        queries = sinkprop.datasets.make_ranking(30, random_state=0)
        ranker = NeuralRanker(
            loss=SinkPropLoss("ndcg@5"), network=MLP((8,)), max_epochs=3, random_state=0, verbose=False
        )
        ranker.fit(queries)
        assert ranker.fit_result_.epochs[-1].sigma is None
        assert np.isfinite(ranker.predict(queries)).all()
        ranker.set_params(optimizer=LBFGS())
        with pytest.raises(ValueError, match="a SinkPropLoss without a relaxation"):
            ranker.fit(queries)
        ranker.set_params(loss=SinkPropLoss("ndcg@5", "gaussian")).fit(queries)


def test_a_network_that_starts_at_zero_learns():
    """A last layer of zeros ties all scores, and a Gaussian kernel of a fixed width has no gradient there."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(20, 8, 3, generator=g)
    y = (X[..., 0] > 0.5).long()

    def trained(loss):
        net = torch.nn.Linear(3, 1)
        torch.nn.init.zeros_(net.weight)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        for _ in range(20):
            optimizer.zero_grad()
            loss(net(X), y).backward()
            optimizer.step()
        return net.weight.detach()[0]

    weight = trained(SinkPropLoss())
    assert weight[0] > 0.1
    assert weight[0] > 3 * weight[1:].abs().max()
    assert not trained(SinkPropLoss(relaxation="gaussian")).any()
