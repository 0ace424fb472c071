"""The scaling form in torch is the reference's expected gain, whatever takes its derivative."""

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import PROBLEMS

import sinkprop
from sinkprop import PartitionedMeasure, SmoothedIndicator, reference

torch = pytest.importorskip("torch", reason="sinkprop.torch needs PyTorch")

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap  # noqa: E402

from sinkprop.torch.losses import dense, expectations, pre_sinkhorn  # noqa: E402

# torch's own, when the first forward-mode derivative is taken and when a compiler is set up
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

SMOOTH = [SmoothedIndicator(0.7), SmoothedIndicator(0.7, "laplace")]
CLOSED = [*SMOOTH, PartitionedMeasure("logit-logistic"), PartitionedMeasure("probit")]
ALL = [*CLOSED, PartitionedMeasure("beta")]
# of a value, and of a gradient relative to its largest entry, or to 1 for beta, whose derivatives are sums
TOLERANCE = {"gaussian": 1e-12, "laplace": 1e-12, "logit-logistic": 1e-11, "probit": 1e-11, "beta": 1e-10}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1106)
    torch.set_num_threads(1)


def name(relaxation):
    return getattr(relaxation, "kernel", None) or relaxation.family


def draw(relaxation, *shape, dtype=torch.float64):
    return torch.randn(*shape, *(2,) * (relaxation.width > 1), dtype=dtype)


def by_reference(scores, C, relaxation, n_iter, epsilon):
    """The value sum(C * Pi) of one query, C (n, n), and its gradient."""
    if relaxation.width > 1:
        scores = scores.clip(*relaxation.limits)
    A = reference.pre_sinkhorn(scores, relaxation) + epsilon
    value = (reference.sinkhorn(A, n_iter) * C).sum()
    return value, reference.pre_sinkhorn_rev(scores, relaxation, reference.sinkhorn_rev(A, n_iter, C))


def two_tables(n):
    """Gains (n, 2) and discounts (2, n), and the matrix (n, n) that they make."""
    rng = np.random.default_rng(n)
    g, d = rng.normal(size=(n, 2)), rng.normal(size=(2, n))
    return g, d, g @ d


@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 2.5, 5])
@pytest.mark.parametrize("kind", TOLERANCE)
def test_every_problem_is_the_references(kind, n_iter):
    for p in PROBLEMS:
        if kind in ("gaussian", "laplace"):
            relaxation, scores = SmoothedIndicator(p.sigma, kind), p.scores
        else:
            relaxation, scores = PartitionedMeasure(kind), p.beta_theta if kind == "beta" else p.theta
        n = len(scores)
        g, d, C = two_tables(n)
        value, gradient = by_reference(scores, C, relaxation, n_iter, 1e-6)
        f, f_bar = padded(scores, g, d, relaxation, n_iter)
        np.testing.assert_allclose(
            f, [value, 0.0], rtol=TOLERANCE[kind], atol=TOLERANCE[kind], err_msg=p.name
        )
        error = np.abs(f_bar[0] - gradient).max()
        least = 1 if kind == "beta" else 1e-3
        assert error <= TOLERANCE[kind] * max(least, np.abs(gradient).max()), (p.name, error)
        assert not f_bar[1].any()


def padded(scores, g, d, relaxation, n_iter):
    """Values of a batch of the query, among padding that holds anything, and of a row of padding alone."""
    n = len(scores)
    places = np.sort(np.random.default_rng(n).permutation(n + 3)[:n])
    x = np.full((2, n + 3, *scores.shape[1:]), np.nan)
    x[:, ::2] = -np.inf
    x[0, places] = scores
    gains = np.full((2, n + 3, 2), np.nan)
    gains[0, places] = g
    discounts = np.hstack([d, np.full((2, 3), 7.0)])
    mask = np.zeros((2, n + 3), dtype=bool)
    mask[0, places] = True
    x, mask = torch.tensor(x, requires_grad=True), torch.tensor(mask)
    f = expectations.expected_gain(
        x, torch.tensor(gains), torch.tensor(discounts), mask, relaxation, int(2 * n_iter), 1e-6
    )
    f.sum().backward()
    assert not x.grad[~mask].any()
    return f.detach().numpy(), [x.grad[0, places].numpy(), x.grad[1].numpy()]


@pytest.mark.parametrize("relaxation", ALL, ids=name)
def test_queries_of_a_batch_are_alone(relaxation):
    x, g, d = draw(relaxation, 5, 7), torch.rand(5, 7, 1, dtype=torch.float64), torch.rand(1, 7).double()
    mask = torch.rand(5, 7) > 0.3
    together = expectations.expected_gain(x, g, d, mask, relaxation, 10, 1e-6)
    for b in range(5):
        keep = mask[b]
        alone = expectations.expected_gain(
            x[b : b + 1, keep], g[b : b + 1, keep], d[:, : int(keep.sum())], None, relaxation, 10, 1e-6
        )
        torch.testing.assert_close(together[b], alone[0], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("relaxation", ALL, ids=name)
def test_longer_queries_agree_with_the_native_layer(relaxation):
    n = 150
    if relaxation.width == 1:
        relaxation = SmoothedIndicator(0.2, relaxation.kernel, accuracy="exact")
    x = draw(relaxation, 1, n).requires_grad_()
    labels = torch.randint(0, 3, (n,)).double()
    expected = sinkprop.expected_gain(
        x[0].detach().numpy(), labels.numpy(), gain="p@9", relaxation=relaxation
    )
    d = (torch.arange(n) < 9).double()[None] / 9
    g = (labels >= 1).double()[None, :, None]
    f = expectations.expected_gain(x, g, d, None, relaxation, 10, 1e-6)
    f.backward()
    assert f.item() == pytest.approx(expected.value, rel=1e-9)
    np.testing.assert_allclose(
        x.grad[0], expected.gradient, rtol=0, atol=1e-9 * np.abs(expected.gradient).max()
    )


@pytest.mark.parametrize("half_steps", [0, 3, 4])
@pytest.mark.parametrize("relaxation", CLOSED, ids=name)
def test_derivatives_of_both_orders(relaxation, half_steps):
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0]]).bool()
    inputs = draw(relaxation, 2, 4), torch.rand(2, 4, 2).double(), torch.rand(2, 4).double()
    inputs = tuple(x.requires_grad_() for x in inputs)

    def f(x, g, d):
        return expectations.expected_gain(x, g, d, mask, relaxation, half_steps, 1e-3)

    assert gradcheck(f, inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(f, inputs, fast_mode=True)


def test_the_beta_distributions_derivative():
    x = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    g, d = torch.rand(2, 4, 1).double(), torch.rand(1, 4).double()
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1]]).bool()
    assert gradcheck(lambda x: expectations.expected_gain(x, g, d, mask, ALL[-1], 4, 1e-3), x)


@pytest.mark.parametrize("relaxation", CLOSED, ids=name)
def test_every_way_to_a_hessian(relaxation):
    x, g, d = draw(relaxation, 1, 4), torch.rand(1, 4, 1).double(), torch.rand(1, 4).double()

    def f(x):
        return expectations.expected_gain(x, g, d, None, relaxation, 4, 1e-3).sum()

    expected = torch.autograd.functional.hessian(f, x)
    assert expected.abs().max() > 1e-3
    for way in (hessian(f), jacrev(jacrev(f)), jacrev(jacfwd(f)), jacfwd(jacfwd(f))):
        torch.testing.assert_close(way(x), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("relaxation", ALL, ids=name)
def test_vmap_over_queries(relaxation):
    x, g, d = draw(relaxation, 3, 5), torch.rand(3, 5, 1).double(), torch.rand(1, 5).double()
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1], [0, 0, 0, 1, 0]]).bool()

    def one(x, g, mask):
        return expectations.expected_gain(x[None], g[None], d, mask[None], relaxation, 5, 1e-6)[0]

    x.requires_grad_()
    values = expectations.expected_gain(x, g, d, mask, relaxation, 5, 1e-6)
    (expected,) = torch.autograd.grad(values.sum(), x)
    x = x.detach()
    torch.testing.assert_close(vmap(one)(x, g, mask), values.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(vmap(grad(one))(x, g, mask), expected, rtol=1e-10, atol=1e-13)
    rows = jacrev(lambda x: expectations.expected_gain(x, g, d, mask, relaxation, 5, 1e-6))(x)
    torch.testing.assert_close(rows.sum(0), expected, rtol=1e-10, atol=1e-13)


def test_the_beta_distribution_says_where_it_is_not():
    x, g, d = torch.zeros(1, 3, 2), torch.ones(1, 3, 1), torch.ones(1, 3)
    beta = PartitionedMeasure("beta")

    def f(x):
        return expectations.expected_gain(x, g, d, None, beta, 2, 1e-6).sum()

    with pytest.raises(NotImplementedError, match="second derivative"):
        hessian_by_backward(f, x)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives"):
        jvp(f, (x,), (x,))
    with pytest.raises(NotImplementedError, match="got scores on 'meta'"):
        f(x.to("meta"))


def hessian_by_backward(f, x):
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x)


@pytest.mark.parametrize("relaxation", [SMOOTH[0], CLOSED[2]], ids=name)
def test_compiled_in_one_graph(relaxation):
    compiled_is_plain(relaxation, "aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the inductor backend needs g++")
def test_compiled_to_machine_code():
    compiled_is_plain(SMOOTH[1], "inductor")


def compiled_is_plain(relaxation, backend):
    x, g, d = draw(relaxation, 2, 6).requires_grad_(), torch.rand(2, 6, 1).double(), torch.rand(1, 6).double()
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 0, 0]]).bool()

    def f(x):
        return expectations.expected_gain(x, g, d, mask, relaxation, 3, 1e-6)

    torch._dynamo.reset()
    expected, found = f(x), torch.compile(f, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    weights = torch.tensor([1.0, -2.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(found, x, weights)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, x, weights)[0], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("relaxation", ALL, ids=name)
def test_a_graph_keeps_one_matrix_a_query(relaxation):
    B, n = 3, 40
    x, g, d = draw(relaxation, B, n).requires_grad_(), torch.rand(B, n, 1).double(), torch.rand(1, n).double()
    mask = torch.rand(B, n) > 0.2
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes() // 8
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        f = expectations.expected_gain(x, g, d, mask, relaxation, 10, 1e-6)
    matrices = [size for size in kept.values() if size >= n * n]
    assert matrices == [B * n * n]
    f.sum().backward()


@pytest.mark.parametrize("relaxation", ALL, ids=name)
def test_single_precision(relaxation):
    x, g, d = draw(relaxation, 4, 60), torch.rand(4, 60, 1).double(), torch.rand(1, 60).double()
    results = []
    for dtype in (torch.float64, torch.float32):
        leaf = x.detach().clone().to(dtype).requires_grad_()
        f = expectations.expected_gain(leaf, g.to(dtype), d.to(dtype), None, relaxation, 10, 1e-6)
        f.sum().backward()
        assert f.dtype == leaf.grad.dtype == dtype
        results.append((f.detach().double(), leaf.grad.double()))
    (f, f_bar), (f_32, f_bar_32) = results
    torch.testing.assert_close(f_32, f, rtol=3e-6, atol=0)
    torch.testing.assert_close(f_bar_32, f_bar, rtol=0, atol=1e-5 * f_bar.abs().max().item())


def test_single_precision_keeps_narrow_bins():
    # 300 bins of a wide distribution: what a difference of distribution functions would lose
    theta = torch.stack([torch.linspace(-3, 3, 300), torch.full((300,), 1.5)], -1)[None]
    for family in ("logit-logistic", "probit"):
        A = pre_sinkhorn.partitioned(theta, None, PartitionedMeasure(family))[0].double()
        expected = torch.from_numpy(reference.partitioned_measure(theta[0].double().numpy(), family))
        torch.testing.assert_close(A, expected, rtol=2e-5, atol=0)


@pytest.mark.parametrize("family", ["logit-logistic", "probit"])
def test_masses_far_out_keep_their_digits(family):
    theta = np.array([[30.0, 0.0], [-30.0, 0.0], [5.0, -1.5], [-5.0, -1.5], [0.0, -3.0], [0.0, 6.0]])
    if family == "probit":
        theta /= 3
    expected = reference.partitioned_measure(theta, family)
    assert 0 < expected.min() < 1e-12
    A = pre_sinkhorn.partitioned(torch.tensor(theta)[None], None, PartitionedMeasure(family))[0]
    np.testing.assert_allclose(A, expected, rtol=1e-10, atol=1e-290)


@pytest.mark.parametrize("relaxation", [SMOOTH[0], CLOSED[2]], ids=name)
def test_half_precision_and_autocast_lose_nothing(relaxation):
    x, g, d = draw(relaxation, 2, 50, dtype=torch.float32), torch.rand(2, 50, 1), torch.rand(1, 50)

    def value_and_gradient(x):
        leaf = x.clone().requires_grad_()
        f = expectations.expected_gain(leaf, g, d, None, relaxation, 10, 1e-6)
        f.sum().backward()
        return f.detach(), leaf.grad

    expected = value_and_gradient(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = value_and_gradient(x)
    assert found[0].dtype is torch.float32
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    halved, _ = value_and_gradient(x.bfloat16())
    torch.testing.assert_close(halved, value_and_gradient(x.bfloat16().float())[0], rtol=0, atol=0)


def test_ties_are_parted_by_the_laplace_kernel_alone():
    g, d = torch.tensor([0.0, 1.0, 0.0]).double()[None, :, None], torch.tensor([1.0, 0.5, 0.0]).double()[None]
    for relaxation, tied in ((SmoothedIndicator(), True), (SmoothedIndicator(1.0, "laplace"), False)):
        x = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
        expectations.expected_gain(x, g, d, None, relaxation, 10, 1e-6).sum().backward()
        assert bool((x.grad == 0).all()) is tied


EXTREME = st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e30, -1e30, 1e300, -1e300, 3e38, -3e38, 1.7e308, 5e-324])


@given(
    st.lists(st.one_of(EXTREME, st.floats(-1e3, 1e3)), min_size=8, max_size=8),
    st.sampled_from([1e-300, 1e-40, 1e-3, 1.0, 1e5, 1e40, 1e300]),
    st.sampled_from(ALL),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([0.0, 1e-6]),
)
def test_nothing_is_ever_nan(values, sigma, relaxation, dtype, epsilon):
    if relaxation.width == 1:
        relaxation = SmoothedIndicator(sigma, relaxation.kernel)
    x = torch.tensor(values, dtype=torch.float64).clamp(-3.4e38, 3.4e38) if dtype is torch.float32 else None
    x = (torch.tensor(values, dtype=torch.float64) if x is None else x).to(dtype)
    x = x.reshape(2, 4) if relaxation.width == 1 else x.reshape(1, 4, 2)
    mask = torch.tensor([[True, True, False, True]]).expand(len(x), 4)
    g, d = torch.ones(len(x), 4, 1, dtype=dtype), torch.tensor([[1.0, 1.0, 0.5, 0.25]], dtype=dtype)
    x.requires_grad_()
    f = expectations.expected_gain(x, g, d, mask, relaxation, 10, epsilon)
    # a gradient in sigma's own unit, which may be beyond the numbers that there are
    f.sum().mul(min(sigma, 1.0) if relaxation.width == 1 else 1.0).backward()
    assert f.isfinite().all()
    assert x.grad.isfinite().all()


def test_parameters_beyond_the_limits_count_as_at_them():
    measure = PartitionedMeasure("probit")
    theta = torch.tensor([[[2e30, 0.0], [0.0, 60.0], [0.3, -0.2]]], dtype=torch.float64, requires_grad=True)
    A = pre_sinkhorn.partitioned(theta, None, measure)
    at = pre_sinkhorn.partitioned(
        torch.tensor([[[1e30, 0.0], [0.0, 50.0], [0.3, -0.2]]], dtype=torch.float64), None, measure
    )
    assert torch.equal(A, at)
    (A * torch.rand(3, 3).double()).sum().backward()
    assert theta.grad[0, 0, 0] == theta.grad[0, 1, 1] == 0
    assert theta.grad[0, 2].abs().min() > 0


def test_a_line_of_zeros_stays_so_as_in_the_native_layer():
    theta = np.array(
        [[-200.0, -5.0], [-200.0, -5.0], [-190.0, -5.0]]
    )  # all mass in the first bin, the rest 0
    measure = PartitionedMeasure()
    expected = sinkprop.expected_ranks(theta, relaxation=measure, epsilon=0.0)
    E = dense.project(torch.tensor(theta)[None], torch.arange(1.0, 4.0)[None], None, measure, 10, 0.0)
    np.testing.assert_allclose(E[0, :, 0], expected, rtol=1e-12)


def test_a_relaxation_of_another_kind():
    with pytest.raises(TypeError, match="relaxation must be a SmoothedIndicator or a PartitionedMeasure"):
        pre_sinkhorn.pre_sinkhorn(torch.zeros(1, 3), None, "gaussian")
