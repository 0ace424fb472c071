"""The torch loss of gains that are not rank-linear, and of several label columns, against the reference."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from problems import LABEL_COLUMN_GAINS, SINGLE_LABEL_GAINS
from torch.func import grad, hessian, vmap

from sinkprop import (
    ERR,
    NDCG,
    AlphaNDCG,
    ColumnGain,
    ExpectedExposure,
    ExposureGap,
    PartitionedMeasure,
    Precision,
    RankLinear,
    ReciprocalRank,
    RowGain,
    SmoothedIndicator,
    reference,
)
from sinkprop.objective.gains import as_gain
from sinkprop.torch import SinkPropLoss, sinkprop_loss
from sinkprop.torch.losses.baselines import listnet_loss
from sinkprop.torch.losses.terms import BatchTerm, gain_of_statistics

pytestmark = [
    pytest.mark.usefixtures("sweeps_from_five"),
    # forward mode loads decompositions that torch scripts
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

BACKENDS = ["native", "torch"]
EXACT = SmoothedIndicator(0.7, accuracy="exact")
TOLERANCE = {torch.float64: 1e-9, torch.float32: 3e-5}

SINGLE = SINGLE_LABEL_GAINS
COLUMNS = LABEL_COLUMN_GAINS | {
    "table": RankLinear(table=lambda r, k: (r > 1) * (k % 2) + r / k) + 2 * ReciprocalRank(),
    "ColumnGain": ColumnGain(
        attributes=lambda labels: (labels[:, 0] > 0) * 0.9,
        function=lambda R: 1 - (1 - R[:3]).prod(),
        differentiate="torch",
    ),
    "ColumnGain of columns": Precision(2)
    + 0.5
    * ColumnGain(
        attributes=lambda labels: labels[:, :2],
        function=lambda R: np.sum(R[:, 0] * R[:, 1] / np.arange(1, len(R) + 1)),
        gradient=lambda R: R[:, ::-1] / np.arange(1, len(R) + 1)[:, None],
    ),
    "RowGain": RowGain(function=lambda E, labels: -((E - labels[:, 1] / 3) ** 2).sum()),
}
GAINS = SINGLE | COLUMNS


class Problem:
    """Queries with three label columns: one document, ties, no relevant document, and 40 documents."""

    sizes = (5, 1, 6, 3, 40)

    def __init__(self, relaxation=EXACT, dtype=torch.float64):
        rng = np.random.default_rng(3)
        N = sum(self.sizes)
        scores = rng.normal(size=(N, 2) if relaxation.width == 2 else N)
        if relaxation.width == 1:
            scores[6:12] = [0.5, 0.5, -1.0, 0.5, 2.0, 2.0]
        labels = rng.integers(0, 4, size=(N, 3))
        labels[12:15] = 0
        self.scores, self.labels = torch.tensor(scores, dtype=dtype), torch.tensor(labels, dtype=dtype)
        self.offsets = torch.tensor([0, *np.cumsum(self.sizes)])
        self.relaxation = relaxation

    def expected(self, gain):
        """Return the value of each query, and the gradient of their sum, by the reference."""
        found = [
            reference.expected_gain(
                x.double().numpy(), y.double().numpy(), as_gain(gain, "log2"), self.relaxation
            )
            for x, y in zip(self.split(self.scores), self.split(self.labels), strict=True)
        ]
        return np.array([value for value, _ in found]), np.concatenate([gradient for _, gradient in found])

    def split(self, x):
        return x.split(self.sizes)

    def padded(self, x, fill, *, first=False):
        """Return x (N, ...) with one row per query; the padding is last, or first."""
        parts = [part.flip(0) if first else part for part in self.split(x)]
        rows = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=fill)
        return rows.flip(1) if first else rows

    def forms(self, columns=True):
        """(name, scores, labels, keywords, how to read a gradient back as flat rows)"""
        labels = self.labels if columns else self.labels[:, 0]
        yield "offsets", self.scores, labels, {"offsets": self.offsets}, lambda g: g
        qid = torch.repeat_interleave(torch.arange(5), torch.tensor(self.sizes))
        # the first documents of all queries, then the second ones, and so on
        mixed = torch.cat([torch.arange(n) for n in self.sizes]).argsort(stable=True)
        yield "qid", self.scores[mixed], labels[mixed], {"qid": qid[mixed]}, lambda g: g[mixed.argsort()]
        mask = self.padded(torch.ones(len(qid)), 0).bool()
        padded = self.padded(self.scores, 99.0)
        yield "padded", padded, self.padded(labels, -1.0), {}, lambda g: g[mask]
        lengths = torch.tensor(self.sizes)
        yield "lengths", padded, self.padded(labels, 2.0), {"lengths": lengths}, lambda g: g[mask]
        yield (
            "padding first",
            self.padded(self.scores, float("nan"), first=True),
            self.padded(labels, float("nan"), first=True),
            {"mask": mask.flip(1)},
            lambda g: g[mask.flip(1)],
        )

    def loss(self, x, labels, gain, **keywords):
        keywords = {"relaxation": self.relaxation, "reduction": "none", **keywords}
        return sinkprop_loss(x, labels, gain=gain, **keywords)


def nested(parts):
    return torch.nested.as_nested_tensor(list(parts), layout=torch.jagged)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("gain", GAINS.values(), ids=GAINS)
def test_every_form_of_batch_is_the_reference(gain, dtype):
    problem = Problem(dtype=dtype)
    values, gradient = problem.expected(gain)
    scale = max(1.0, np.abs(gradient).max())
    for backend in BACKENDS:
        for name, scores, labels, keywords, flat in problem.forms():
            x = scores.clone().requires_grad_()
            loss = problem.loss(x, labels, gain, backend=backend, **keywords)
            loss.sum().backward()
            assert loss.dtype is x.grad.dtype is dtype
            case = f"{backend}, {name}"
            assert_allclose(loss.detach().numpy(), -values, atol=TOLERANCE[dtype] * scale, err_msg=case)
            assert_allclose(flat(x.grad).numpy(), -gradient, atol=TOLERANCE[dtype] * scale, err_msg=case)
            assert torch.count_nonzero(x.grad) <= gradient.size, case
        x = problem.scores.clone().requires_grad_()
        loss = problem.loss(
            nested(problem.split(x)), nested(problem.split(problem.labels)), gain, backend=backend
        )
        loss.sum().backward()
        assert_allclose(loss.detach().numpy(), -values, atol=TOLERANCE[dtype] * scale)
        assert_allclose(x.grad.numpy(), -gradient, atol=TOLERANCE[dtype] * scale)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gain", SINGLE.values(), ids=SINGLE)
def test_one_label_is_one_column(gain, backend):
    problem = Problem()
    values, _ = problem.expected(gain)
    for name, scores, labels, keywords, _ in problem.forms(columns=False):
        for y in (labels, labels[..., None]):
            loss = problem.loss(scores, y, gain, backend=backend, **keywords)
            assert_allclose(loss.numpy(), -values, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gain", ["map", AlphaNDCG(4), GAINS["gap"], GAINS["RowGain"]], ids=str)
def test_partitioned_measures(gain, backend):
    problem = Problem(PartitionedMeasure("logit-logistic"))
    values, gradient = problem.expected(gain)
    for name, scores, labels, keywords, flat in problem.forms():
        x = scores.clone().requires_grad_()
        loss = problem.loss(x, labels, gain, backend=backend, **keywords)
        loss.sum().backward()
        assert_allclose(loss.detach().numpy(), -values, atol=1e-9, err_msg=name)
        assert_allclose(flat(x.grad).numpy(), -gradient, atol=1e-8, err_msg=name)


@pytest.mark.parametrize(
    "gain", ["map", "f@3", "0.5*ndcg + 2*mrr[1]", AlphaNDCG(4), GAINS["ColumnGain"]], ids=str
)
def test_weights_and_reductions(gain):
    problem = Problem()
    g = torch.Generator().manual_seed(0)
    w = torch.rand(len(problem.labels), generator=g, dtype=torch.float64)
    c = torch.rand(5, generator=g, dtype=torch.float64)
    found = []
    for backend in BACKENDS:
        for padded in (False, True):
            x = problem.scores.clone().requires_grad_()
            scores, labels, weight, keywords = x, problem.labels, w, {"offsets": problem.offsets}
            if padded:
                scores, labels = problem.padded(x, 0.0), problem.padded(problem.labels, 7.0)
                weight, keywords = problem.padded(w, float("nan")), {"padding": 7.0}
            each, mean = (
                problem.loss(
                    scores,
                    labels,
                    gain,
                    sample_weight=weight,
                    query_weight=c,
                    reduction=reduction,
                    backend=backend,
                    **keywords,
                )
                for reduction in ("none", "mean")
            )
            mean.backward()
            assert_allclose(mean.item(), each.sum().item() / c.sum().item())
            found.append(np.concatenate([each.detach().numpy(), x.grad.numpy()]))
    for other in found[1:]:
        assert_allclose(other, found[0], atol=1e-9)


def test_a_weight_multiplies_the_attribute():
    x, labels = torch.tensor([30.0, 20.0, 10.0]), torch.tensor([1.0, 0.0, 1.0])
    weight = torch.tensor([1.0, 1.0, 0.25])
    for backend in BACKENDS:
        loss = sinkprop_loss(x, labels, gain="recall@1", sample_weight=weight, backend=backend)
        assert loss.item() == pytest.approx(-1 / 1.25, abs=1e-5)
        with pytest.raises(ValueError, match="leave its probabilities at most 1; one is 4"):
            sinkprop_loss(x, labels, gain="mrr", sample_weight=1 / weight, backend=backend)
        with pytest.raises(ValueError, match="expectedexposure has no row weights"):
            sinkprop_loss(x, labels, gain=ExpectedExposure(), sample_weight=weight, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gain", ["map", AlphaNDCG(), GAINS["gap"], GAINS["RowGain"]], ids=str)
def test_a_row_without_documents_is_no_query(gain, backend):
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1.0, 0, 2, -1], [-1, -1, -1, -1], [0, 1, 1, -1]])
    labels = torch.stack([labels, labels.flip(0)], -1)
    each = sinkprop_loss(x, labels, gain=gain, reduction="none", backend=backend)
    assert each[1] == 0
    mean = sinkprop_loss(x, labels, gain=gain, backend=backend)
    assert_allclose(mean.item(), each.sum().item() / 2)
    mean.backward()
    assert not x.grad[1].any()
    assert not x.grad[:, 3].any()


def test_err_takes_the_largest_label_of_the_batch():
    x, labels = torch.tensor([[2.0, 1.0, 0.0]] * 2), torch.tensor([[0.0, 1.0, 0.0], [0.0, 3.0, -1.0]])
    want = sinkprop_loss(x, labels, gain=ERR(max_label=3))
    for backend in BACKENDS:
        assert_allclose(sinkprop_loss(x, labels, gain="err", backend=backend).item(), want.item(), rtol=1e-6)
    assert_allclose(grad(lambda x: sinkprop_loss(x, labels, gain="err"))(x).sum().item(), 0, atol=1e-6)
    with pytest.raises(ValueError, match=r"labels\[1\] = 3\.0: .* cannot take it"):
        sinkprop_loss(x[1], labels[1], gain=ERR(max_label=2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gain", ["map", AlphaNDCG(4), GAINS["gap"]], ids=str)
def test_half_precision_is_computed_in_single(gain, backend, dtype):
    problem = Problem()
    x = problem.scores.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = problem.loss(x, problem.labels, gain, offsets=problem.offsets, backend=backend)
        loss.sum().backward()
    rounded = x.detach().double().requires_grad_()
    want = problem.loss(rounded, problem.labels, gain, offsets=problem.offsets)
    want.sum().backward()
    assert loss.dtype is torch.float32
    assert_allclose(loss.detach().numpy(), want.detach().numpy(), atol=1e-5)
    assert_allclose(x.grad.float().numpy(), rounded.grad.numpy(), atol=3e-3)


def test_autocast_loses_nothing():
    problem, found = Problem(dtype=torch.float32), []
    for enabled in (False, True):
        x = problem.scores.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = problem.loss(
                x, problem.labels, GAINS["sum of columns"], offsets=problem.offsets, backend="torch"
            )
            loss.sum().backward()
        found.append((loss.detach(), x.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_labels_do_not_overflow_in_a_sum(backend):
    x, labels = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 300.0])
    loss = sinkprop_loss(x, labels, gain="ndcg + 0*mrr", relaxation=SmoothedIndicator(0.01), backend=backend)
    assert loss.item() == pytest.approx(-1 / np.log2(3), abs=1e-4)


class TestDerivatives:
    DIFFERENTIABLE = ("map", "mrr", "sum", "alphandcg", "erria", "gap of merit", "exposure")

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("name", DIFFERENTIABLE)
    def test_first_and_second(self, name, backend):
        problem = Problem()
        x, labels = problem.scores[:6].clone().requires_grad_(), problem.labels[:6]

        def loss(x):
            return problem.loss(x, labels, GAINS[name], offsets=torch.tensor([0, 5, 6]), backend=backend)

        assert torch.autograd.gradcheck(loss, (x,))
        assert torch.autograd.gradgradcheck(loss, (x,))

    @pytest.mark.parametrize("alpha", [1.0, 0.5])
    def test_where_the_interest_of_a_reader_is_0(self, alpha):
        # Pi is a permutation matrix, and R is 1 / alpha at two of the ranks.
        order = torch.tensor([2, 0, 1, 3])
        Pi = torch.eye(4, dtype=torch.float64)[order][None].requires_grad_()
        a = torch.tensor([1 / alpha, 0.3, 1 / alpha, 0.2], dtype=torch.float64)[None, :, None]
        d = 1 / torch.arange(1, 5, dtype=torch.float64)[None]
        term = BatchTerm("cascade", a, d, torch.ones(1, dtype=torch.float64), alpha)

        def value(Pi):
            return gain_of_statistics([term], [(Pi.mT @ a).mT], None)

        assert torch.autograd.gradcheck(value, (Pi,))
        assert torch.autograd.gradgradcheck(value, (Pi,))

    @pytest.mark.parametrize("name", ["ColumnGain", "RowGain"])
    def test_a_function_of_the_users(self, name):
        problem, gain = Problem(), GAINS[name]
        x, labels = problem.scores[:5].clone().requires_grad_(), problem.labels[:5]
        assert torch.autograd.gradcheck(lambda x: problem.loss(x, labels, gain, backend="torch"), (x,))
        for backend in BACKENDS:
            with pytest.raises(NotImplementedError, match="has no second derivative; call backward without"):
                torch.autograd.grad(problem.loss(x, labels, gain, backend=backend), x, create_graph=True)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
            with pytest.raises(NotImplementedError, match="no forward-mode derivatives"):
                problem.loss(dual, labels, gain)

    def test_forward_mode(self):
        problem = Problem()
        x, labels, tangent = problem.scores[:5], problem.labels[:5], torch.randn(5).double()
        leaf = x.clone().requires_grad_()
        problem.loss(leaf, labels, AlphaNDCG(3)).sum().backward()
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, tangent)
            found = torch.autograd.forward_ad.unpack_dual(problem.loss(dual, labels, AlphaNDCG(3))).tangent
        assert_allclose(found.item(), (leaf.grad * tangent).sum().item(), atol=1e-12)


class TestTransforms:
    @pytest.mark.parametrize("name", [*SINGLE, "column", "sum of columns"])
    def test_torch_func(self, name):
        problem, gain = Problem(), GAINS[name]
        scores, labels = (
            problem.padded(problem.scores, 0.0)[:4, :7],
            problem.padded(problem.labels, -1.0)[:4, :7],
        )
        leaf = scores.clone().requires_grad_()
        problem.loss(leaf, labels, gain).sum().backward()

        def loss(x, y):
            return problem.loss(x[None], y[None], gain)[0]

        assert_allclose(vmap(grad(loss))(scores, labels).numpy(), leaf.grad.numpy(), atol=1e-9)
        whole = grad(lambda x: problem.loss(x, labels, gain).sum())(scores)
        assert_allclose(whole.numpy(), leaf.grad.numpy(), atol=1e-9)
        curvature = torch.autograd.functional.hessian(lambda x: loss(x, labels[0]), scores[0])
        assert_allclose(hessian(loss)(scores[0], labels[0]).numpy(), curvature.numpy(), atol=1e-9)

    def test_weights(self):
        problem = Problem()
        x, labels, weight = problem.scores[:5], problem.labels[:5], torch.linspace(0.1, 1, 5).double()
        for gain in SINGLE.values():
            want = x.clone().requires_grad_()
            problem.loss(want, labels, gain, sample_weight=weight).sum().backward()
            found = grad(lambda x, gain=gain: problem.loss(x, labels, gain, sample_weight=weight).sum())(x)
            assert_allclose(found.numpy(), want.grad.numpy(), atol=1e-9)

    @pytest.mark.filterwarnings("ignore:.*autograd.function.Function.* should not be instantiated")
    @pytest.mark.parametrize("gain", ["map", "mrr@10"])
    def test_compiled_in_one_graph(self, gain):
        problem = Problem(dtype=torch.float32)
        scores, labels = (
            problem.padded(problem.scores, 0.0)[:4, :7],
            problem.padded(problem.labels, -1.0)[:4, :7],
        )
        loss = SinkPropLoss(gain, "laplace")
        torch._dynamo.reset()
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        x, y = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        compiled(x, labels).backward()
        loss(y, labels).backward()
        assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-6)
        assert y.grad.any()
        torch._dynamo.reset()

    @pytest.mark.parametrize("name", ["alphandcg", "erria", "gap", "exposure", "ColumnGain", "RowGain"])
    def test_gains_of_numpy_functions(self, name):
        x, labels = torch.ones(1, 2), torch.ones(1, 2, 2)
        with pytest.raises(NotImplementedError, match=r"NumPy function.* call the loss outside of them"):
            grad(lambda x: sinkprop_loss(x, labels, gain=GAINS[name]))(x)

    def test_a_column_that_is_not_there(self):
        x, labels = torch.ones(1, 2), torch.ones(1, 2, 2)
        with pytest.raises(ValueError, match=r"ndcg.*\[2\] reads label column 2, .* columns is 2"):
            grad(lambda x: sinkprop_loss(x, labels, gain=NDCG().on(2)))(x)


@pytest.mark.parametrize("backend", BACKENDS)
class TestErrors:
    @pytest.mark.parametrize(
        ("scores", "labels", "keywords", "message"),
        [
            (
                (2, 3),
                (2, 2, 4),
                {},
                r"one value per document, \(2, 3\), or L label columns, \(2, 3, L\); got",
            ),
            ((2, 3), (2, 3, 0), {}, r"or L label columns, \(2, 3, L\); got \(2, 3, 0\)"),
            ((2, 3), (2, 3, 1, 1), {}, r"or L label columns"),
            ((2, 3), (3,), {}, r"labels must have one value per document, \(2, 3\); got \(3,\)"),
            ((6,), (5, 2), {"offsets": torch.tensor([0, 6])}, r"or L label columns, \(6, L\); got \(5, 2\)"),
            ((2, 3), (2, 3), {"gain": NDCG().on(1)}, r"reads label column 1, but there is one column"),
            ((2, 3), (2, 3, 2), {"gain": ExposureGap(2)}, r"reads label column 2, but there are 2 columns"),
            (
                (2, 3),
                (2, 3, 2),
                {"sample_weight": torch.ones(2, 3, 2)},
                r"one weight per document, \(2, 3\); got",
            ),
        ],
    )
    def test_shapes(self, backend, scores, labels, keywords, message):
        with pytest.raises(ValueError, match=message):
            sinkprop_loss(torch.ones(scores), torch.ones(labels), backend=backend, **keywords)

    def test_values(self, backend):
        labels = torch.ones(2, 3, 2)
        labels[1, 2, 1] = -1  # marks padding in the first column alone
        with pytest.raises(ValueError, match=r"not below 0; document 2 of query 1 has \[1\.0, -1\.0\]"):
            sinkprop_loss(torch.ones(2, 3), labels, gain="map", backend=backend)

    def test_nested(self, backend):
        x, labels = nested([torch.ones(2), torch.ones(3)]), nested([torch.ones(2, 2, 2), torch.ones(3, 2, 2)])
        with pytest.raises(ValueError, match=r"labels must have one value per document, \(2,\), or L label"):
            sinkprop_loss(x, labels, backend=backend)


@pytest.mark.parametrize(
    ("gain", "name"),
    [
        (ExposureGap(groups=["a", "b"]), "ExposureGap: groups"),
        (NDCG() + NDCG().on(np.ones(2)), "labels"),
        (ColumnGain(attributes=np.ones(2), function=sum), "attributes"),
        (-ExpectedExposure(target=np.ones(2)), "ExpectedExposure: target"),
    ],
    ids=str,
)
def test_an_array_in_a_gain(gain, name):
    loss = SinkPropLoss()
    for make in (SinkPropLoss, lambda gain: sinkprop_loss(torch.ones(2), torch.ones(2), gain=gain)):
        with pytest.raises(ValueError, match=rf"holds one \(.*{name}\)\. Pass the array as further columns"):
            make(gain)
    with pytest.raises(ValueError, match="a loss cannot match an array"):
        loss.gain = gain


def test_other_losses_take_one_label():
    with pytest.raises(
        ValueError, match=r"labels must have one value per document, \(2, 3\); got \(2, 3, 2\)"
    ):
        listnet_loss(torch.ones(2, 3), torch.ones(2, 3, 2))
