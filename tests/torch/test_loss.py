"""sinkprop.torch's loss: every kind of batch, on both backends, against the NumPy front end."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch.func import grad, jacrev, vmap

import sinkprop
from sinkprop import NDCG, PartitionedMeasure, RankLinear, SmoothedIndicator, _native, reference
from sinkprop.objective.gains import as_gain
from sinkprop.torch import SinkPropLoss, sinkprop_loss
from sinkprop.torch.losses import sinkprop as loss_module
from sinkprop.torch.losses.native import as_array

pytestmark = pytest.mark.usefixtures("sweeps_from_five")

BACKENDS = ["native", "torch"]
EXACT = SmoothedIndicator(0.7, accuracy="exact")
SIZES = [4, 1, 6, 3]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5}
GAINS = [
    "ndcg",
    "ndcg@3",
    NDCG(5, discount="letor", gain="linear"),
    "p@2",
    "rbp@0.8",
    RankLinear(gain=np.square, discount=lambda k: 1 / k, normalize=True),
    RankLinear(table=lambda r, k: (r > 1) * (k % 2) + r / k),
]
RELAXATIONS = [
    EXACT,
    SmoothedIndicator(0.7, "laplace"),
    PartitionedMeasure("logit-logistic"),
    PartitionedMeasure("probit"),
    PartitionedMeasure("beta"),
]


class Problem:
    """Queries of different sizes, in every form that the loss takes."""

    def __init__(self, relaxation=EXACT, sizes=SIZES, dtype=torch.float64, seed=0):
        g = torch.Generator().manual_seed(seed)
        end = (2,) if relaxation.width == 2 else ()
        self.sizes, self.dtype = sizes, dtype
        self.scores = torch.randn(sum(sizes), *end, generator=g, dtype=torch.float64).to(dtype)
        self.labels = torch.randint(0, 4, (sum(sizes),), generator=g).to(dtype)
        self.offsets = torch.tensor([0, *np.cumsum(sizes)])
        self.qid = torch.repeat_interleave(torch.arange(len(sizes)) * 3 % 7, torch.tensor(sizes))
        self.weight = torch.rand(sum(sizes), generator=g, dtype=torch.float64) + 0.1
        self.query_weight = torch.rand(len(sizes), generator=g, dtype=torch.float64) + 0.1

    def expected(self, *, gain="ndcg", sample_weight=None, query_weight=None, **settings):
        """`expected_gain`, in which a discount that the gain leaves open is log2's, as for the loss."""
        return sinkprop.expected_gain(
            self.scores.double().numpy(),
            self.labels.double().numpy(),
            self.qid.numpy(),
            gain=as_gain(gain, "log2"),
            sample_weight=sample_weight,
            query_weight=query_weight,
            **settings,
        )

    def padded(self, x, fill):
        return torch.nn.utils.rnn.pad_sequence(x.split(self.sizes), batch_first=True, padding_value=fill)

    def forms(self):
        """(name, scores to differentiate, labels, keywords, how to read a gradient back as flat rows)"""
        yield "offsets", self.scores, self.labels, {"offsets": self.offsets}, lambda g: g
        yield "qid", self.scores, self.labels, {"qid": self.qid}, lambda g: g
        mixed = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(1))
        yield (
            "mixed qid",
            self.scores[mixed],
            self.labels[mixed],
            {"qid": self.qid[mixed]},
            lambda g: g[mixed.argsort()],
        )
        mask = self.padded(torch.ones_like(self.labels), 0).bool()
        scores = self.padded(self.scores, 99.0)
        yield "label -1", scores, self.padded(self.labels, -1.0), {}, lambda g: g[mask]
        yield "mask", scores, self.padded(self.labels, 2.0), {"mask": mask}, lambda g: g[mask]
        lengths = torch.tensor(self.sizes)
        yield "lengths", scores, self.padded(self.labels, 2.0), {"lengths": lengths}, lambda g: g[mask]
        if scores.ndim == 2:  # as networks end
            yield "(B, n, 1)", scores[..., None], self.padded(self.labels, -1.0), {}, lambda g: g[mask][:, 0]
            yield (
                "(N, 1)",
                self.scores[:, None],
                self.labels,
                {"offsets": self.offsets},
                lambda g: g[:, 0],
            )
        # padding in front, and a score there that is no number
        flipped = self.padded(self.scores, float("nan")).flip(1)
        yield (
            "padding first",
            flipped,
            self.padded(self.labels, -1.0).flip(1),
            {"mask": mask.flip(1)},
            lambda g: g.flip(1)[mask],
        )


def nested(x, sizes, layout):
    return torch.nested.as_nested_tensor(list(x.split(sizes)), layout=layout)


@pytest.fixture(scope="module", autouse=True)
def _prototype_warning():
    """Torch warns once that strided nested tensors are a prototype."""
    with pytest.warns(UserWarning, match="prototype"):
        torch.nested.nested_tensor([torch.ones(1)])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=str)
def test_every_form_of_batch_is_expected_gain(relaxation, backend):
    problem = Problem(relaxation)
    want = problem.expected(relaxation=relaxation, gain="ndcg@3")
    for name, scores, labels, keywords, flat in problem.forms():
        x = scores.clone().requires_grad_()
        loss = sinkprop_loss(x, labels, gain="ndcg@3", relaxation=relaxation, backend=backend, **keywords)
        loss.backward()
        assert_allclose(loss.item(), -want.value, rtol=1e-9, err_msg=name)
        assert_allclose(flat(x.grad).numpy(), -want.gradient, atol=1e-9, err_msg=name)
        assert torch.count_nonzero(x.grad) <= want.gradient.size, name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
@pytest.mark.parametrize("relaxation", [EXACT, PartitionedMeasure("probit")], ids=str)
def test_nested(layout, backend, relaxation):
    problem = Problem(relaxation)
    want = problem.expected(relaxation=relaxation)
    x = problem.scores.clone().requires_grad_()
    labels = nested(problem.labels, problem.sizes, layout)
    loss = sinkprop_loss(
        nested(x, problem.sizes, layout), labels, relaxation=relaxation, backend=backend, reduction="none"
    )
    loss.mean().backward()
    assert_allclose(loss.detach().numpy(), -want.per_query, rtol=1e-9)
    assert_allclose(x.grad.numpy(), -want.gradient, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gain", GAINS, ids=["ndcg", "ndcg@3", "letor", "p", "rbp", "own", "table"])
def test_gains_against_the_reference(gain, backend, dtype):
    problem = Problem(dtype=dtype)
    x = problem.scores.clone().requires_grad_()
    loss = sinkprop_loss(
        x,
        problem.labels,
        offsets=problem.offsets,
        gain=gain,
        relaxation=EXACT,
        backend=backend,
        reduction="none",
    )
    loss.sum().backward()
    assert loss.dtype is x.grad.dtype is dtype
    for q, (a, b) in enumerate(zip(problem.offsets[:-1], problem.offsets[1:], strict=True)):
        value, gradient = reference.expected_gain(
            problem.scores[a:b].double().numpy(),
            problem.labels[a:b].double().numpy(),
            as_gain(gain, "log2"),
            EXACT,
        )
        scale = max(1.0, abs(value))
        assert_allclose(loss[q].item(), -value, atol=TOLERANCE[dtype] * scale)
        assert_allclose(x.grad[a:b].numpy(), -gradient, atol=TOLERANCE[dtype] * scale)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 2.5, 5, 20])
def test_iterations(n_iter, backend):
    problem = Problem()
    want = problem.expected(relaxation=EXACT, n_iter=n_iter, epsilon=1e-3)
    x = problem.scores.clone().requires_grad_()
    loss = sinkprop_loss(
        x,
        problem.labels,
        offsets=problem.offsets,
        relaxation=EXACT,
        n_iter=n_iter,
        epsilon=1e-3,
        backend=backend,
    )
    loss.backward()
    assert_allclose(loss.item(), -want.value, rtol=1e-9)
    assert_allclose(x.grad.numpy(), -want.gradient, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("gain", ["ndcg", GAINS[-1]], ids=["ndcg", "table"])
def test_weights_and_reductions(backend, reduction, gain):
    problem = Problem()
    c, w = problem.query_weight, problem.weight
    want = problem.expected(relaxation=EXACT, gain=gain, sample_weight=w.numpy(), query_weight=c.numpy())
    expected = {
        "mean": want.value,
        "sum": (want.per_query * c.numpy()).sum(),
        "none": want.per_query * c.numpy(),
    }[reduction]
    mask = problem.padded(torch.ones_like(w), 0).bool()
    for scores, labels, weight, keywords, flat in (
        (problem.scores, problem.labels, w, {"offsets": problem.offsets}, lambda g: g),
        (
            problem.padded(problem.scores, 0.0),
            problem.padded(problem.labels, -1.0),
            problem.padded(w, float("nan")),  # a weight where there is no document does not matter
            {},
            lambda g: g[mask],
        ),
    ):
        x = scores.clone().requires_grad_()
        loss = sinkprop_loss(
            x,
            labels,
            gain=gain,
            relaxation=EXACT,
            sample_weight=weight,
            query_weight=c,
            reduction=reduction,
            backend=backend,
            **keywords,
        )
        assert_allclose(loss.detach().numpy(), -expected, rtol=1e-9)
        loss.sum().backward()
        factor = 1.0 if reduction == "mean" else float(c.sum())
        assert_allclose(flat(x.grad).numpy(), -want.gradient * factor, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_without_documents_is_no_query(backend):
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1.0, 0, 2, -1], [-1, -1, -1, -1], [0, 0, 0, -1]], dtype=torch.float64)
    each = sinkprop_loss(x, labels, reduction="none", backend=backend)
    assert each.shape == (3,)
    assert each[0] < 0 == each[1] == each[2]
    mean = sinkprop_loss(x, labels, backend=backend)
    assert_allclose(mean.item(), each[0].item() / 2)  # the third has documents, though none is relevant
    mean.backward()
    assert x.grad[0, :3].abs().min() > 0
    assert not x.grad[1:].any()
    assert not x.grad[0, 3]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("shift", [-1e3, 0.0, 1e3])
def test_padding_far_from_the_scores(shift, kernel, backend):
    x = (
        torch.tensor([[0.0, 1.0, 2.0, 0.0], [3.0, 0.0, 0.0, 0.0]], dtype=torch.float64) + shift
    ).requires_grad_()
    labels = torch.tensor([[1.0, 0.0, 2.0, -1.0], [1.0, -1.0, -1.0, -1.0]])
    relaxation = SmoothedIndicator(0.5, kernel, accuracy="exact")
    loss = sinkprop_loss(x, labels, relaxation=relaxation, backend=backend, reduction="none")
    loss.sum().backward()
    value, gradient = reference.expected_gain(
        [0.0, 1.0, 2.0], [1.0, 0.0, 2.0], NDCG(discount="log2"), relaxation
    )
    assert_allclose(loss.detach().numpy(), [-value, -1.0], rtol=1e-9)
    assert_allclose(x.grad.numpy(), [[*-gradient, 0.0], [0.0] * 4], atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=str)
def test_first_and_second_derivatives(relaxation, backend):
    problem = Problem(relaxation, sizes=[3, 1, 4])
    x = problem.scores.clone().requires_grad_()

    def loss(x):
        return sinkprop_loss(
            x,
            problem.labels,
            offsets=problem.offsets,
            relaxation=relaxation,
            reduction="none",
            backend=backend,
        )

    assert torch.autograd.gradcheck(loss, (x,))
    if relaxation != PartitionedMeasure("beta"):  # whose derivatives are not torch's
        assert torch.autograd.gradgradcheck(loss, (x,))


def test_transforms_of_torch_func():
    problem = Problem(sizes=[5, 5, 5])
    scores, labels = problem.scores.reshape(3, 5), problem.labels.reshape(3, 5)

    def loss(x, y):
        return sinkprop_loss(x, y, relaxation=EXACT)

    want = -problem.expected(relaxation=EXACT).gradient.reshape(3, 5) * 3
    assert_allclose(vmap(grad(loss))(scores, labels).numpy(), want, atol=1e-9)
    assert_allclose(jacrev(loss)(scores[0], labels[0]).numpy(), want[0], atol=1e-9)
    whole = grad(lambda x: sinkprop_loss(x, labels, relaxation=EXACT))(scores)
    assert_allclose(whole.numpy(), want / 3, atol=1e-9)


class TestCompiled:
    @pytest.fixture(autouse=True)
    def _fresh(self):
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    # torch instantiates the class of a function that it traces
    @pytest.mark.filterwarnings("ignore:.*autograd.function.Function.* should not be instantiated")
    def test_padded_is_one_graph(self):
        problem = Problem(dtype=torch.float32)
        scores, labels = problem.padded(problem.scores, 0.0), problem.padded(problem.labels, -1.0)
        loss = SinkPropLoss("ndcg@3", "laplace")
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        x, y = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        compiled(x, labels).backward()
        loss(y, labels).backward()
        assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-6)
        assert y.grad.any()
        # another length is another graph, not another result
        shorter = scores[:, :2].clone(), labels[:, :2].clone()
        assert_allclose(compiled(*shorter).item(), loss(*shorter).item(), rtol=1e-5)

    # torch's own, where a graph ends between a tensor that is no leaf and its use
    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
    def test_flat_ends_the_graph(self):
        problem = Problem(dtype=torch.float32)

        def step(x, labels, offsets):
            return 2 * sinkprop_loss(3 * x, labels, offsets=offsets)

        x = problem.scores.clone().requires_grad_()
        compiled = torch.compile(step, backend="aot_eager")(x, problem.labels, problem.offsets)
        assert_allclose(compiled.item(), step(x, problem.labels, problem.offsets).item(), rtol=1e-6)
        (got,) = torch.autograd.grad(compiled, x)
        (want,) = torch.autograd.grad(step(x, problem.labels, problem.offsets), x)
        assert_allclose(got.numpy(), want.numpy(), atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_single(backend, dtype):
    problem = Problem()
    x = problem.scores.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = sinkprop_loss(x, problem.labels, offsets=problem.offsets, relaxation=EXACT, backend=backend)
        loss.backward()
    rounded = x.detach().double().requires_grad_()
    want = sinkprop_loss(rounded, problem.labels, offsets=problem.offsets, relaxation=EXACT)
    want.backward()
    assert loss.dtype is torch.float32
    assert x.grad.dtype is dtype
    assert_allclose(loss.item(), want.item(), rtol=1e-6)
    assert_allclose(x.grad.float().numpy(), rounded.grad.numpy(), atol=1e-3)


def test_the_kernels_read_the_tensors_own_memory():
    x = torch.randn(7, dtype=torch.float64)
    assert np.shares_memory(as_array(x), x.numpy())
    assert_allclose(as_array(x.reshape(1, 7).expand(3, 7)), x.repeat(3, 1).numpy())


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.bool], ids=str
)
def test_labels_of_any_dtype(dtype):
    x, labels = torch.randn(6), torch.tensor([0, 1, 1, 0, 1, 0])
    for backend in BACKENDS:
        found = sinkprop_loss(x, labels.to(dtype), backend=backend)
        assert found == sinkprop_loss(x, labels.double(), backend=backend)


def test_a_million_documents():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(10**6, generator=g, requires_grad=True)
    loss = sinkprop_loss(x, torch.randint(0, 3, (10**6,), generator=g))
    loss.backward()
    assert -1 < loss.item() < 0
    assert x.grad.isfinite().all()
    assert x.grad.any()


MEMORY = """
import torch
from sinkprop.cli.benchmark.figures import peak_memory
from sinkprop.torch import SinkPropLoss
loss, n = SinkPropLoss("ndcg@10"), {n}
def step(n):
    x = torch.randn(1, n, requires_grad=True)
    loss(x, torch.randint(0, 5, (1, n))).backward()
step(10)
before = peak_memory()
step(n)
print(peak_memory() - before)
"""


def test_memory_of_a_long_list_is_linear():
    run = subprocess.run(
        [sys.executable, "-c", MEMORY.format(n=20_000)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 30e6  # a matrix would be 1.6e9


def test_threads_do_not_change_a_bit():
    problem = Problem(SmoothedIndicator(), sizes=[300] * 40)
    losses = [
        sinkprop_loss(problem.scores, problem.labels, offsets=problem.offsets, n_threads=n, reduction="none")
        for n in (1, 2, 3)
    ]
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], losses[2])


class TestModule:
    def test_an_open_discount_distinguishes_the_first_two_ranks(self):
        scores, labels = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
        loss = SinkPropLoss("ndcg", SmoothedIndicator(0.01))
        assert loss.gain == NDCG(discount="log2")
        assert loss(scores, labels).item() == pytest.approx(-1 / np.log2(3), abs=1e-4)
        loss.gain = "ndcg@2"
        assert loss.gain == NDCG(2, discount="log2")
        loss.gain = NDCG(discount="letor")
        assert loss(scores, labels).item() == pytest.approx(-1, abs=1e-4)

    def test_sharpening(self):
        problem = Problem()
        loss = SinkPropLoss("ndcg(discount=letor)", SmoothedIndicator(10.0))
        soft = loss(problem.scores, problem.labels, qid=problem.qid)
        loss.relaxation = SmoothedIndicator(1e-3)
        sharp = loss(problem.scores, problem.labels, qid=problem.qid)
        metric = sinkprop.evaluate(
            problem.labels.numpy(), problem.scores.numpy(), problem.qid.numpy(), "ndcg@6", convention="letor"
        )
        assert soft.item() != pytest.approx(sharp.item(), abs=1e-3)
        hard = sinkprop_loss(problem.scores, problem.labels, qid=problem.qid, reduction="none").shape
        assert hard == (len(problem.sizes),)
        # LETOR counts a query of fewer than six documents 0 in NDCG@6: only the one of six is alike
        each = loss(problem.scores[5:11], problem.labels[5:11])
        assert -each.item() / 4 == pytest.approx(metric["ndcg@6"], abs=1e-6)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("gain", "p@2"),
            ("relaxation", SmoothedIndicator(0.3, "laplace")),
            ("n_iter", 2.5),
            ("epsilon", 0.01),
            ("reduction", "none"),
            ("padding", 0.0),
            ("backend", "torch"),
            ("n_threads", 2),
        ],
    )
    def test_a_setting_assigned_is_a_setting_given(self, name, value):
        problem, loss = Problem(), SinkPropLoss(relaxation=EXACT)
        setattr(loss, name, value)
        given = {"relaxation": EXACT, name: value}
        want = sinkprop_loss(problem.scores[None], problem.labels[None], **given)
        assert torch.equal(loss(problem.scores[None], problem.labels[None]), want)
        assert getattr(loss, name) == (sinkprop.Precision(2) if name == "gain" else value)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("gain", "ndgc", "ndgc"),
            ("relaxation", "gauss", "relaxation must be one of"),
            ("n_iter", -1, "n_iter must be a number of iterations"),
            ("epsilon", -1.0, "epsilon must be a finite number"),
            ("reduction", "median", "reduction must be"),
            ("backend", "cuda", "backend must be"),
        ],
    )
    def test_a_wrong_setting_is_an_error_when_it_is_set(self, name, value, message):
        with pytest.raises(ValueError, match=message):
            SinkPropLoss(**{name: value})
        problem, loss = Problem(), SinkPropLoss(relaxation=EXACT)
        before = loss(problem.scores, problem.labels)
        with pytest.raises(ValueError, match=message):
            setattr(loss, name, value)
        assert torch.equal(loss(problem.scores, problem.labels), before)

    def test_settings_are_checked_once(self, monkeypatch):
        problem, loss = Problem(), SinkPropLoss(relaxation=EXACT)
        checks = []
        for name in ("as_gain", "as_relaxation", "native_settings", "check_reduction", "check_backend"):
            real = getattr(loss_module, name)
            monkeypatch.setattr(
                loss_module, name, lambda *a, real=real, name=name: checks.append(name) or real(*a)
            )
        loss(problem.scores, problem.labels, offsets=problem.offsets)
        assert checks == []
        loss.relaxation = "laplace"
        assert len(checks) == 5

    def test_copies_and_pickles(self):
        loss = SinkPropLoss(NDCG(10, discount="log2"), "laplace", n_iter=2.5)
        assert not loss.state_dict()
        for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
            assert repr(other) == repr(loss)
            assert "ndcg(discount=log2)@10" in repr(other)
        assert repr(loss).endswith("n_iter=2.5)")


@pytest.mark.parametrize("backend", BACKENDS)
class TestErrors:
    @pytest.mark.parametrize(
        ("scores", "labels", "keywords", "message"),
        [
            (
                [[1.0, float("nan")]],
                [[1.0, 0.0]],
                {},
                r"must be finite; document 1 of query 0 has nan",
            ),
            (
                [1.0, float("inf")],
                [1.0, 0.0],
                {},
                r"document 1 has inf\. .*overflowed: lower the learn",
            ),
            ([1.0, 2.0], [1.0, -2.0], {}, r"labels must be finite and not below 0; document 1 has -2"),
            ([1.0, 2.0], [1.0, float("nan")], {}, r"labels must be finite .* document 1 has nan"),
            ([1.0, 2.0], [1.0], {}, r"labels must have one value per document, \(2,\); got \(1,\)"),
            ([[[1.0, 2.0]]], [[[1.0, 0.0]]], {}, r"scores must have the shape \(B, n\) or \(N,\)"),
            ([], [], {}, r"at least one document"),
            ([[1.0, 2.0]], [[1.0, 0.0]], {"mask": [[1, 0]]}, r"mask must be of dtype bool"),
            ([[1.0, 2.0]], [[1.0, 0.0]], {"mask": [True, False]}, r"mask must have the shape .*\(1, 2\)"),
            (
                [[1.0, 2.0]],
                [[1.0, 0.0]],
                {"mask": [[False, False]]},
                r"mask must leave at least one doc",
            ),
            ([[1.0, 2.0]], [[1.0, 0.0]], {"lengths": [3]}, r"lengths must be from 0 to 2; got \[3\]"),
            ([[1.0, 2.0]], [[1.0, 0.0]], {"lengths": [1, 2]}, r"one number per row of scores"),
            (
                [1.0, 2.0],
                [1.0, 0.0],
                {"lengths": [2]},
                r"one number per row of scores \(B, n\).*give offsets= or qid=",
            ),
            ([[1.0, 2.0]], [[1.0, 0.0]], {"qid": [0, 0]}, r"qid goes with flat scores"),
            ([1.0, 2.0], [1.0, 0.0], {"qid": [0, 0], "offsets": [0, 2]}, r"not offsets and qid together"),
            ([1.0, 2.0], [1.0, 0.0], {"qid": [0.0, 0.0]}, r"qid must be integers"),
            ([1.0, 2.0], [1.0, 0.0], {"qid": [0]}, r"2 documents, but 1 ids"),
            ([1.0, 2.0], [1.0, 0.0], {"offsets": [0, 1]}, r"offsets must go from 0 to .* 2"),
            ([1.0, 2.0], [1.0, 0.0], {"offsets": [0, 2, 2]}, r"every query has a document; query 1 has none"),
            ([1.0, 2.0], [1.0, 0.0], {"query_weight": [1.0, 2.0]}, r"one weight per query, \(1,\)"),
            (
                [1.0, 2.0],
                [1.0, 0.0],
                {"query_weight": [-1.0]},
                r"query_weight must be finite and not",
            ),
            ([1.0, 2.0], [1.0, 0.0], {"query_weight": [0.0]}, r"a sum above 0"),
            ([1.0, 2.0], [1.0, 0.0], {"sample_weight": [1.0]}, r"sample_weight must have one weight"),
            ([1.0, 2.0], [1.0, 0.0], {"sample_weight": [1.0, -1.0]}, r"sample_weight must be finite and not"),
            ([1.0, 2.0], [1.0, 0.0], {"reduction": "avg"}, r"reduction must be 'mean'"),
            ([1.0, 2.0], [1.0, 0.0], {"relaxation": "gauss"}, r"relaxation must be one of"),
            ([1.0, 2.0], [1.0, 0.0], {"relaxation": "probit"}, r"\(B, n, 2\) or \(N, 2\)"),
            ([1.0, 2.0], [1.0, 0.0], {"gain": "dcg"}, r"dcg"),
            ([1.0, 2.0], [1.0, 0.0], {"n_iter": -1}, r"n_iter"),
            ([1.0, 2.0], [1.0, 2000.0], {}, r"labels"),
        ],
    )
    def test_bad_input(self, backend, scores, labels, keywords, message):
        keywords = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in keywords.items()}
        with pytest.raises(ValueError, match=message):
            sinkprop_loss(torch.tensor(scores), torch.tensor(labels), backend=backend, **keywords)

    def test_other_kinds(self, backend):
        with pytest.raises(TypeError, match=r"scores must be a torch\.Tensor; got list"):
            sinkprop_loss([1.0, 2.0], torch.ones(2), backend=backend)
        with pytest.raises(ValueError, match=r"scores must be of a floating-point dtype; got torch\.int64"):
            sinkprop_loss(torch.ones(2).long(), torch.ones(2), backend=backend)

    def test_nested_unlike(self, backend):
        x = nested(torch.ones(3), [1, 2], torch.jagged)
        with pytest.raises(ValueError, match=r"labels must be nested like the scores, with \[1, 2\]"):
            sinkprop_loss(x, torch.ones(3), backend=backend)
        with pytest.raises(ValueError, match=r"they are nested with \[2, 1\]"):
            sinkprop_loss(x, nested(torch.ones(3), [2, 1], torch.jagged), backend=backend)
        with pytest.raises(ValueError, match=r"nested scores have their own queries; offsets"):
            sinkprop_loss(x, x, offsets=torch.tensor([0, 3]), backend=backend)
        x = nested(torch.ones(3), [1, 2], torch.strided)
        labels = torch.nested.as_nested_tensor([torch.ones(1, 2), torch.ones(2, 3)], layout=torch.strided)
        with pytest.raises(
            ValueError, match=r"same number of label columns .*; got .* \(1, 2\) and \(2, 3\)"
        ):
            sinkprop_loss(x, labels, backend=backend)


@pytest.mark.parametrize("gain", GAINS[-2:], ids=["own", "table"])
def test_a_gain_of_ones_own_under_a_transform(gain):
    with pytest.raises(NotImplementedError, match=r"a custom gain is a NumPy function"):
        grad(lambda x: sinkprop_loss(x, torch.ones(2), gain=gain))(torch.ones(2))


def test_native_where_it_cannot_be():
    with pytest.raises(ValueError, match=r"backend must be 'auto'"):
        SinkPropLoss(backend="cuda")
    with pytest.raises(ValueError, match=r"backend='native' needs scores on the CPU"):
        grad(lambda x: sinkprop_loss(x, torch.ones(2), backend="native"))(torch.ones(2))


@settings(max_examples=40)
@given(st.data())
def test_both_backends_agree(data):
    n_queries, n = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    numbers = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(-50, 50))
    scores = torch.tensor(data.draw(st.lists(numbers, min_size=n_queries * n, max_size=n_queries * n)))
    labels = torch.tensor(
        data.draw(st.lists(st.integers(-1, 4), min_size=n_queries * n, max_size=n_queries * n))
    )
    scores, labels = scores.reshape(n_queries, n).double(), labels.reshape(n_queries, n)
    if not (labels >= 0).any():
        return
    relaxation = SmoothedIndicator(
        data.draw(st.sampled_from([0.01, 1.0, 100.0])),
        data.draw(st.sampled_from(["gaussian", "laplace"])),
        accuracy="exact",
    )
    gain = data.draw(st.sampled_from(GAINS[:5]))
    found = []
    for backend in BACKENDS:
        x = scores.clone().requires_grad_()
        loss = sinkprop_loss(x, labels, gain=gain, relaxation=relaxation, backend=backend)
        loss.backward()
        found.append((loss.item(), x.grad.numpy()))
    assert_allclose(found[0][0], found[1][0], atol=1e-9)
    size = max(1.0, np.abs(found[1][1]).max())
    assert_allclose(found[0][1] / size, found[1][1] / size, atol=2e-8)


WITHOUT_TORCH = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name="torch")
sys.meta_path.insert(0, Missing())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else real(name, package)
from sinkprop import *
import sinkprop
SinkPropRanker(selection="validation", verbose=False)
assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
try:
    sinkprop.torch
except ImportError as error:
    print(error)
"""


def test_without_torch():
    run = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == 'sinkprop.torch needs PyTorch: pip install "sinkprop[torch]".'


def test_memory_by_torch_is_that_of_each_query():
    """A long query beside short ones keeps its own matrix, not one of that size for each of them."""
    sizes = [400] + [20] * 50
    problem = Problem(dtype=torch.float32, sizes=sizes)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        loss = sinkprop_loss(
            problem.scores.requires_grad_(), problem.labels, offsets=problem.offsets, backend="torch"
        )
    stored = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() / 4 for x in kept}
    assert sum(stored.values()) < 1.5 * sum(n**2 for n in sizes)
    want = sinkprop_loss(problem.scores, problem.labels, offsets=problem.offsets)
    assert_allclose(loss.item(), want.item(), rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_inverted_mask_is_named(backend):
    labels = torch.tensor([[2.0, 0, 1], [1.0, 0, -1]])
    with pytest.raises(ValueError, match=r"mask looks inverted: .* pass ~mask"):
        sinkprop_loss(torch.zeros(2, 3), labels, mask=labels < 0, backend=backend)
    labels[0, 1] = -1  # a wrong label, with a mask that is right
    with pytest.raises(ValueError, match=r"document 1 of query 0 has -1.0. Mark padding"):
        sinkprop_loss(
            torch.zeros(2, 3), labels, mask=torch.tensor([[1, 1, 1], [1, 1, 0]]).bool(), backend=backend
        )


@pytest.mark.parametrize("sizes", [[4, 1, 6, 3, 3], [400, 1, 150]], ids=["short", "long"])
@pytest.mark.parametrize("relaxation", ["gaussian", "laplace", "probit"])
@pytest.mark.parametrize("gain", ["ndcg", "map"])
def test_float32_gives_the_float64_results_rounded_once(gain, relaxation, sizes):
    """In every kind of batch."""
    problem = Problem(PartitionedMeasure("probit") if relaxation == "probit" else EXACT, sizes, torch.float32)
    settings = {"gain": gain, "relaxation": relaxation, "backend": "native", "reduction": "none"}
    for name, scores, labels, form, _ in problem.forms():
        found = {}
        for dtype in (torch.float32, torch.float64):
            x = scores.detach().to(dtype, copy=True).requires_grad_()
            loss = sinkprop_loss(x, labels, **form, **settings)
            loss.sum().backward()
            assert loss.dtype is x.grad.dtype is dtype
            found[dtype] = loss.detach(), x.grad
        for single, double in zip(found[torch.float32], found[torch.float64], strict=True):
            assert_array_equal(single.numpy(), double.float().numpy(), err_msg=name)


def test_the_kernels_get_float32_scores_without_a_copy(monkeypatch):
    seen, native = [], _native.expected_gain
    monkeypatch.setattr(_native, "expected_gain", lambda x, *a: (seen.append(x), native(x, *a))[1])
    x = torch.randn(3, 8, requires_grad=True)
    labels = torch.randint(0, 3, (3, 8))
    sinkprop_loss(x, labels, relaxation="laplace").backward()
    assert np.shares_memory(seen[-1], x.detach().numpy())
    for dtype in (torch.bfloat16, torch.float16):
        half = x.detach().to(dtype).requires_grad_()
        sinkprop_loss(half, labels, relaxation="laplace").backward()
        assert seen[-1].dtype == np.float32
        assert half.grad.dtype is dtype
