"""The torch backend for long queries: linear memory, and the values of the native code, on every device."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from sinkprop import Converged, SmoothedIndicator
from sinkprop.torch import SinkPropLoss, expected_ranks, sinkprop_loss, top_k
from sinkprop.torch.losses import expectations

KERNELS = ["gaussian", "laplace"]
GAINS = ["ndcg@10", "map", "err", "0.8*ndcg@10 + 0.2*mrr", "recall@20"]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
# the same tests run on a GPU where there is one
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_GPU)]
pytestmark = [  # torch.compile uses parts of torch that torch deprecates
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function.* should not be instantiated"),
]


@pytest.fixture(autouse=True)
def _seed():
    torch.set_num_threads(1)
    torch.manual_seed(1106)


def exact(kernel, sigma=0.5):
    return SmoothedIndicator(sigma, kernel, accuracy="exact")


def batch(sizes, dtype=torch.float64):
    g = torch.Generator().manual_seed(len(sizes))
    scores = torch.randn(sum(sizes), generator=g, dtype=torch.float64).to(dtype)
    return scores, torch.randint(0, 3, (sum(sizes),), generator=g), torch.tensor([0, *np.cumsum(sizes)])


def value_and_gradient(backend, scores, labels, device="cpu", **options):
    x = scores.detach().clone().to(device).requires_grad_()
    options = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    loss = sinkprop_loss(x, labels.to(device), backend=backend, **options)
    loss.backward()
    return loss.item(), x.grad.double().cpu()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_long_queries_are_the_native_ones(kernel, gain, device, dtype):
    # long queries beside short ones, which are computed by matrices
    scores, labels, offsets = batch([1000, 3, 250, 700, 1, 40, 193], dtype)
    options = {"gain": gain, "relaxation": exact(kernel), "offsets": offsets}
    value, gradient = value_and_gradient("torch", scores, labels, device, **options)
    wanted, wanted_gradient = value_and_gradient("native", scores.double(), labels, **options)
    assert value == pytest.approx(wanted, rel=TOLERANCE[dtype])
    error = (gradient - wanted_gradient).abs().max() / wanted_gradient.abs().max()
    assert error < TOLERANCE[dtype]


@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 5, Converged(tol=1e-12)], ids=str)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_any_number_of_iterations_and_their_limit(kernel, device, n_iter):
    scores, labels, offsets = batch([300, 1, 500])
    options = {"relaxation": exact(kernel), "offsets": offsets, "n_iter": n_iter}
    value, gradient = value_and_gradient("torch", scores, labels, device, **options)
    wanted, wanted_gradient = value_and_gradient("native", scores, labels, **options)
    assert value == pytest.approx(wanted, rel=1e-9)
    assert (gradient - wanted_gradient).abs().max() < 1e-8 * wanted_gradient.abs().max()


@pytest.mark.parametrize("device", DEVICES)
def test_layers_and_padding(device):
    lengths = torch.tensor([400, 1, 250])
    mask = torch.arange(400) < lengths[:, None]
    x = torch.randn(3, 400, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[~mask] = np.nan
    x = x.flip(1)  # padding in front
    mask = mask.flip(1)
    for layer in (expected_ranks, lambda x, **options: top_k(x, 30, **options)):
        a, b = x.clone().requires_grad_(), x.clone().to(device).detach().requires_grad_()
        wanted = layer(a, mask=mask, relaxation=exact("gaussian"))
        found = layer(b, mask=mask.to(device), relaxation=exact("gaussian"), backend="torch")
        torch.testing.assert_close(found.cpu(), wanted, rtol=1e-9, atol=1e-9)
        assert not found[~mask].any()
        weights = torch.rand(3, 400, dtype=torch.float64)
        (wanted * weights).sum().backward()
        (found * weights.to(device)).sum().backward()
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=0, atol=1e-9 * a.grad.abs().max().item())


def test_ties_and_scores_far_apart():
    for scores in (torch.zeros(300), torch.cat([torch.zeros(150), torch.ones(150) * 1e6])):
        for kernel in KERNELS:
            labels = torch.arange(300) % 3
            options = {"relaxation": exact(kernel)}
            value, gradient = value_and_gradient("torch", scores.double(), labels, **options)
            wanted, wanted_gradient = value_and_gradient("native", scores.double(), labels, **options)
            assert value == pytest.approx(wanted, rel=1e-9)
            assert (gradient - wanted_gradient).abs().max() <= 1e-9 * max(wanted_gradient.abs().max(), 1e-4)


def test_compiled_in_one_graph():
    x = torch.randn(2, 250, dtype=torch.float64)
    labels = torch.randint(0, 3, (2, 250))
    # the graph has the operations of each iteration; two hold what follows another and what precedes one
    loss = SinkPropLoss("ndcg@10", exact("gaussian"), n_iter=2)
    torch._dynamo.reset()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)(a, labels)
    compiled.backward()
    plain = loss(b, labels)
    plain.backward()
    torch.testing.assert_close(compiled, plain, rtol=1e-9, atol=0)
    torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-9 * b.grad.abs().max().item())


def test_transforms():
    x = torch.randn(3, 200, dtype=torch.float64)
    labels = torch.randint(0, 3, (3, 200))
    loss = SinkPropLoss("ndcg@10", exact("laplace"), reduction="sum")
    found = vmap(grad(loss))(x, labels)
    y = x.clone().requires_grad_()
    loss(y, labels).backward()
    torch.testing.assert_close(found, y.grad, rtol=0, atol=1e-9 * y.grad.abs().max().item())


def test_second_derivatives():
    x = torch.randn(1, 200, dtype=torch.float64, requires_grad=True)
    labels, direction = torch.randint(0, 3, (1, 200)), torch.randn(1, 200, dtype=torch.float64)
    loss = SinkPropLoss("ndcg", exact("gaussian"), backend="torch")

    def slope(x):
        (first,) = torch.autograd.grad(loss(x, labels), x, create_graph=True)
        return (first * direction).sum()

    (second,) = torch.autograd.grad(slope(x), x)
    h = 1e-6
    ahead, behind = (slope((x + k * h * direction).detach().requires_grad_()) for k in (1, -1))
    assert (second * direction).sum().item() == pytest.approx((ahead - behind).item() / (2 * h), rel=1e-5)


@pytest.mark.parametrize("gain", ["ndcg@10", "map", "err"])
@pytest.mark.parametrize("n", [20, 400])
def test_shapes_on_the_meta_device(gain, n):
    x = torch.empty(3, n, device="meta", requires_grad=True)
    for kernel in KERNELS:
        loss = sinkprop_loss(
            x, torch.empty(3, n, device="meta"), gain=gain, relaxation=kernel, reduction="none"
        )
        assert loss.shape == (3,)
        loss.sum().backward()
        assert x.grad.shape == (3, n)
    assert expected_ranks(x).shape == (3, n)
    assert sinkprop_loss(x, torch.empty(3, n, device="meta"), n_iter="converged").shape == ()


MEMORY = """
import torch
from sinkprop.cli.benchmark.figures import peak_memory
from sinkprop.torch import SinkPropLoss
torch.set_num_threads(1)
def step(gain, sizes):
    x = torch.randn(sum(sizes), requires_grad=True)
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    loss = SinkPropLoss(gain, backend="torch")
    loss(x, torch.randint(0, 5, (sum(sizes),)), offsets=offsets).backward()
for gain in ("ndcg@10", "map"):
    step(gain, [300, 10])
before = peak_memory()
for gain in ("ndcg@10", "map"):
    step(gain, [20_000])
    step(gain, [20_000] + [10] * 1000)
print(peak_memory() - before)
"""


def test_memory_is_linear_without_the_native_kernels():
    run = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    # a matrix would take 1.6e9 bytes, and each tensor of the ragged batch, padded to its longest query, 80e6
    assert int(run.stdout) < 150e6


def test_short_queries_are_computed_by_matrices(monkeypatch):
    called = []
    monkeypatch.setattr(expectations.sweeps, "expected", lambda *arguments: called.append(1))
    x = torch.randn(2, 150)
    sinkprop_loss(x, torch.ones(2, 150), backend="torch")
    assert not called
    with pytest.raises(TypeError):
        sinkprop_loss(torch.randn(2, 300), torch.ones(2, 300), backend="torch")
    assert called
