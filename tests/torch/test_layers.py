"""The layers in torch are the library's own functions, with derivatives."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scipy.optimize import linear_sum_assignment

import sinkprop
from sinkprop import PartitionedMeasure, SmoothedIndicator, reference

torch = pytest.importorskip("torch", reason="sinkprop.torch needs PyTorch")

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, jacfwd, jacrev, vmap  # noqa: E402

from sinkprop.torch import (  # noqa: E402
    doubly_stochastic,
    expected_ranks,
    gumbel_sinkhorn,
    partitioned,
    sinkhorn,
    top_k,
)

# torch's own, when the first forward-mode derivative is taken and when a compiler is set up
pytestmark = [
    pytest.mark.usefixtures("sweeps_from_five"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

N_ITER = [0, 0.5, 1, 2.5, 5]
EXACT = [SmoothedIndicator(0.7, accuracy="exact"), SmoothedIndicator(0.7, "laplace")]
MEASURES = [PartitionedMeasure(family) for family in ("logit-logistic", "probit", "beta")]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1925)
    torch.set_num_threads(1)


def name(relaxation):
    return getattr(relaxation, "kernel", None) or relaxation.family


def draw(relaxation, *shape):
    return torch.randn(*shape, *(2,) * (relaxation.width > 1), dtype=torch.float64)


def matrices_kept(f, x):
    """Sizes, in elements, of the storages that the graph of f(x) holds, of those that a matrix would fill."""
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes() // x.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = f(x)
    return [size for size in kept.values() if size >= result.numel()]


# sinkhorn


@pytest.mark.parametrize("n_iter", N_ITER)
@pytest.mark.parametrize("epsilon", [0.0, 0.01])
def test_sinkhorn_and_its_gradient_are_the_librarys(n_iter, epsilon):
    A = torch.rand(2, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    C = torch.randn_like(A)
    Z = sinkhorn(A, n_iter, epsilon=epsilon)
    (A_bar,) = torch.autograd.grad(Z, A, C)
    for at in np.ndindex(2, 3):
        a, c = A[at].detach().numpy(), C[at].numpy()
        expected = sinkprop.sinkhorn(a, n_iter, epsilon=epsilon)
        np.testing.assert_allclose(Z[at].detach(), expected, rtol=1e-13, atol=0)
        expected = sinkprop.sinkhorn_vjp(a, c, n_iter, epsilon=epsilon)
        np.testing.assert_allclose(A_bar[at], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n_iter", N_ITER)
@pytest.mark.parametrize("log", [False, True])
def test_sinkhorns_derivatives_of_both_orders(n_iter, log):
    A = torch.rand(2, 3, 3, dtype=torch.float64)
    A = (A.log() if log else A).requires_grad_()

    def f(A):
        return sinkhorn(A, n_iter, log=log)

    assert gradcheck(f, A, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, A)


def test_sinkhorn_under_transforms():
    A, C = torch.rand(4, 3, 3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    for log in (False, True):

        def f(A, log=log):
            return (C * sinkhorn(A, 2, log=log)).sum()

        A.requires_grad_()
        (expected,) = torch.autograd.grad(sum(f(a) for a in A), A)
        A = A.detach()
        torch.testing.assert_close(vmap(grad(f))(A), expected, rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(jacfwd(jacfwd(f))(A[0]), jacrev(jacrev(f))(A[0]), rtol=1e-9, atol=1e-12)


MATRICES = hnp.arrays(
    np.float64, (4, 4), elements=st.one_of(st.just(0.0), st.floats(-600, 600).map(math.exp))
)


@given(MATRICES, st.sampled_from(N_ITER), st.sampled_from([0.0, 1e-6]))
def test_magnitudes_of_any_kind(A, n_iter, epsilon):
    np.fill_diagonal(A, np.maximum(A.diagonal(), 1e-100))
    x = torch.tensor(A, requires_grad=True)
    Z = sinkhorn(x, n_iter, epsilon=epsilon)
    np.testing.assert_allclose(
        Z.detach(), sinkprop.sinkhorn(A, n_iter, epsilon=epsilon), rtol=1e-10, atol=1e-290
    )
    C = np.cos(np.arange(16.0)).reshape(4, 4)
    (A_bar,) = torch.autograd.grad(Z, x, torch.tensor(C))
    expected = sinkprop.sinkhorn_vjp(A, C, n_iter, epsilon=epsilon)
    # per unit of ln A: the derivative by an entry next to 0 is a difference of numbers without bound
    if n_iter:
        there = A > 0
        by_log, expected_by_log = A_bar.numpy()[there] * A[there], expected[there] * A[there]
        np.testing.assert_allclose(by_log, expected_by_log, rtol=1e-9, atol=1e-12)
    if not n_iter or (A > 1e-8).all():
        np.testing.assert_allclose(A_bar, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_a_zero_has_a_derivative_too():
    # A[0, 1] = 0: of diagonal matrices that stay so, entries by entry
    A = torch.tensor([[1e200, 0.0], [1e-200, 1e150]], dtype=torch.float64, requires_grad=True)
    C = torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.float64)
    (A_bar,) = torch.autograd.grad(sinkhorn(A, 1), A, C)
    expected = sinkprop.sinkhorn_vjp(A.detach().numpy(), C.numpy(), 1)
    assert expected[0, 1] != 0
    np.testing.assert_allclose(A_bar, expected, rtol=1e-9, atol=1e-300)


def test_single_precision_takes_logarithms_in_time():
    log_A = torch.randn(3, 6, 6, dtype=torch.float64) * 20
    A = log_A.exp().float()
    Z = sinkhorn(A)
    assert Z.dtype is torch.float32
    torch.testing.assert_close(Z.double(), sinkhorn(A.double()), rtol=1e-4, atol=1e-30)
    torch.testing.assert_close(sinkhorn(A * 1e8), Z, rtol=1e-4, atol=1e-30)


def test_logarithms_of_any_magnitude():
    log_A = torch.tensor([[3e4, -math.inf, 0.0], [-1e5, 2.0, 1.0], [5.0, 4e4, -7.0]]).double()
    Z = sinkhorn(log_A.requires_grad_(), 3, log=True)
    torch.testing.assert_close(Z.sum(-1), torch.ones(3).double(), rtol=1e-14, atol=0)
    assert Z[0, 1] == 0
    (gradient,) = torch.autograd.grad((Z * torch.randn(3, 3).double()).sum(), log_A)
    assert gradient.isfinite().all()
    assert gradient[0, 1] == 0
    shifted = sinkhorn(log_A + 1e3, 3, log=True)  # a constant factor changes nothing
    torch.testing.assert_close(shifted, Z, rtol=1e-8, atol=1e-290)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 30.0, 3000.0])
def test_plain_products_take_over_where_they_can(spread, dtype):
    log_A = (torch.randn(3, 8, 8, dtype=torch.float64) * spread).to(dtype).requires_grad_()
    C = torch.randn(3, 8, 8, dtype=dtype)
    Z = sinkhorn(log_A, 30, log=True)
    (gradient,) = torch.autograd.grad(Z, log_A, C)

    def f(log_A):  # of which torch.func hides the magnitudes, so that all is by logarithms
        return sinkhorn(log_A, 30, log=True)

    by_logarithms, pullback = torch.func.vjp(f, log_A.detach())
    digits = 1e-3 if dtype is torch.float32 else 1e-10
    torch.testing.assert_close(Z, by_logarithms, rtol=0, atol=digits)
    torch.testing.assert_close(
        gradient, pullback(C)[0], rtol=0, atol=digits * max(1, gradient.abs().max().item())
    )


def test_the_limit_is_the_transport_plan():
    ot = pytest.importorskip("ot", reason="POT is the other implementation")
    cost = torch.rand(6, 6, dtype=torch.float64)
    ones = np.ones(6)
    for reg in (1.0, 0.1):
        plan = ot.bregman.sinkhorn_log(ones, ones, cost.numpy(), reg, numItermax=5000, stopThr=1e-14)
        np.testing.assert_allclose(sinkhorn(-cost / reg, 1000, log=True), plan, atol=1e-9)
    np.testing.assert_allclose(sinkhorn((-cost).exp(), 200), sinkhorn(-cost, 200, log=True), rtol=1e-12)


@pytest.mark.parametrize("log", [False, True])
def test_sinkhorn_keeps_one_matrix(log):
    A = torch.rand(3, 40, 40, dtype=torch.float64, requires_grad=True)
    kept = matrices_kept(lambda A: sinkhorn(A * 2, log=log), A)
    assert kept == [4800]


@pytest.mark.parametrize(
    ("A", "options", "message"),
    [
        (torch.rand(3, 2), {}, r"A must hold square matrices, \(..., n, n\), n at least 1; got \(3, 2\)"),
        (torch.rand(3), {}, "A must hold square matrices"),
        (torch.ones(2, 2, dtype=torch.int64), {}, "A must be of a floating-point dtype"),
        (torch.tensor([[1.0, -1.0], [1.0, 1.0]]), {}, r"matrix 0 has -1.0 at \[0, 1\]"),
        (torch.tensor([[1.0, 1.0], [math.nan, 1.0]]), {}, r"matrix 0 has nan at \[1, 0\]"),
        (torch.tensor([[1.0, math.inf], [1.0, 1.0]]), {"log": True}, "numbers below infinity"),
        (torch.tensor([[0.0, 0.0], [1.0, 1.0]]), {}, "row 0 of matrix 0 is all zeros"),
        (torch.tensor([[0.0, 1.0], [-math.inf, 1.0]]).log(), {"log": True}, "numbers below infinity"),
        (torch.tensor([[0.0, 1.0], [0.0, 1.0]]).log(), {"log": True}, "column 0 of matrix 0 is all zeros"),
        (torch.rand(2, 2), {"n_iter": 0.3}, "n_iter must be a number of iterations"),
        (torch.rand(2, 2), {"epsilon": -1.0}, "epsilon must be a finite number, not below 0"),
        (torch.rand(2, 2), {"epsilon": 1e-6, "log": True}, "epsilon goes with log=False"),
    ],
)
def test_what_sinkhorn_does_not_take(A, options, message):
    with pytest.raises(ValueError, match=message):
        sinkhorn(A, **options)


# Gumbel noise


def test_cold_samples_are_the_best_assignments():
    log_A = torch.randn(5, 6, 6, dtype=torch.float64)
    Z = gumbel_sinkhorn(log_A, tau=0.001, noise=0.0, n_iter=3000)
    for a, z in zip(log_A, Z, strict=True):
        _, best = linear_sum_assignment(a.numpy(), maximize=True)
        torch.testing.assert_close(z, torch.eye(6, dtype=torch.float64)[best], rtol=0, atol=1e-3)


def test_samples_of_two_are_a_logistic_choice():
    # log A + G: the identity is best where a sum of four Gumbel variables, two taken negative, exceeds -delta
    delta, generator = 1.3, torch.Generator().manual_seed(4)
    log_A = torch.tensor([[delta, 0.0], [0.0, 0.0]])
    samples = gumbel_sinkhorn(log_A, tau=0.01, n_samples=20_000, n_iter=10, generator=generator)
    assert samples.shape == (20_000, 2, 2)
    rng = np.random.default_rng(0)
    share = (rng.logistic(size=(2, 1_000_000)).sum(axis=0) > -delta).mean()
    assert (samples[:, 0, 0] > 0.5).double().mean().item() == pytest.approx(share, abs=0.015)


def test_samples_are_drawn_by_the_generator_and_differentiable():
    log_A = torch.randn(2, 4, 4, requires_grad=True)
    draws = [
        gumbel_sinkhorn(log_A, n_samples=3, generator=torch.Generator().manual_seed(s)) for s in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert gumbel_sinkhorn(log_A).shape == (2, 4, 4)
    (gradient,) = torch.autograd.grad((draws[0] * torch.randn(3, 2, 4, 4)).sum(), log_A)
    assert gradient.abs().min() > 0


@pytest.mark.parametrize(
    "options", [{"tau": 0.0}, {"tau": math.inf}, {"noise": -1.0}, {"n_samples": 0}, {"n_samples": 1.5}]
)
def test_what_gumbel_sinkhorn_does_not_take(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        gumbel_sinkhorn(torch.zeros(2, 2), **options)


def test_noisy_scores_are_ranked_by_plackett_and_luce():
    scores, scale, draws = torch.tensor([0.5, -0.4, 0.1], dtype=torch.float64), 0.7, 6000
    Pi = doubly_stochastic(
        scores.expand(draws, 3),
        relaxation=SmoothedIndicator(1e-9),
        gumbel=scale,
        generator=torch.Generator().manual_seed(7),
    )
    orders = Pi.argmax(dim=-2)  # the document at each rank
    codes = (orders * torch.tensor([9, 3, 1])).sum(-1)
    weights = (scores / scale).exp().tolist()
    counts, expected = [], []
    for order in itertools.permutations(range(3)):
        counts.append(int((codes == 9 * order[0] + 3 * order[1] + order[2]).sum()))
        left, probability = sum(weights), 1.0
        for j in order:
            probability *= weights[j] / left
            left -= weights[j]
        expected.append(draws * probability)
    assert sum(counts) == draws
    assert stats.chisquare(counts, expected).pvalue > 1e-3


# doubly_stochastic and partitioned


@pytest.mark.parametrize("n_iter", N_ITER)
@pytest.mark.parametrize("relaxation", [*EXACT, *MEASURES], ids=name)
def test_pi_is_the_librarys_and_0_at_padding(relaxation, n_iter):
    x, mask = draw(relaxation, 2, 3, 6), torch.rand(2, 3, 6) > 0.3
    mask[0, 0] = True
    mask[1, 2] = False
    x[~mask] = math.nan
    Pi = doubly_stochastic(x, mask=mask, relaxation=relaxation, n_iter=n_iter)
    A = None if relaxation.width == 1 else partitioned(x, relaxation.family, mask=mask)
    for at in np.ndindex(2, 3):
        keep = mask[at].numpy()
        n = int(keep.sum())
        assert Pi[at].count_nonzero() <= n * n
        if n:
            one = x[at][mask[at]].numpy()
            expected = sinkprop.doubly_stochastic(one, relaxation=relaxation, n_iter=n_iter)
            np.testing.assert_allclose(Pi[at][keep][:, :n], expected, rtol=1e-9, atol=1e-12)
        if A is not None:
            assert A[at].count_nonzero() <= n * n
            expected = reference.partitioned_measure(one, relaxation.family) if n else np.zeros((0, 0))
            np.testing.assert_allclose(A[at][keep][:, :n], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("relaxation", [*EXACT, *MEASURES], ids=name)
def test_derivatives_of_the_matrices(relaxation):
    x, mask = draw(relaxation, 2, 4).requires_grad_(), torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0]]).bool()

    def f(x):
        return doubly_stochastic(x, mask=mask, relaxation=relaxation, n_iter=1.5)

    def g(x):
        return partitioned(x, relaxation.family, mask=mask)

    for h in (f,) if relaxation.width == 1 else (f, g):
        assert gradcheck(h, x)
        if name(relaxation) != "beta":
            assert gradgradcheck(h, x, fast_mode=True)


@pytest.mark.parametrize("relaxation", [*EXACT, *MEASURES], ids=name)
def test_what_the_matrices_keep(relaxation):
    x = draw(relaxation, 4, 30).requires_grad_()
    assert matrices_kept(lambda x: doubly_stochastic(x, relaxation=relaxation), x) == [4 * 900]
    if relaxation.width > 1:
        assert matrices_kept(lambda x: partitioned(x, relaxation.family), x) == []


def test_the_sharpest_pi_is_the_sort():
    scores = torch.tensor([0.2, 1.5, 0.3, -4.0])
    Pi = doubly_stochastic(scores, relaxation=SmoothedIndicator(1e-3))
    assert sinkprop.choose_permutation(Pi.numpy()).tolist() == scores.argsort(descending=True).tolist()
    torch.testing.assert_close(Pi.mT @ scores, scores.sort(descending=True).values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: doubly_stochastic(torch.zeros(3, 2), relaxation="beta", gumbel=1.0), "gumbel goes with"),
        (
            lambda: doubly_stochastic(torch.zeros(3), gumbel=-1.0),
            "gumbel must be a finite number, not below 0",
        ),
        (lambda: doubly_stochastic(torch.zeros(2, 3), relaxation="probit"), r"shape \(..., n, 2\)"),
        (lambda: doubly_stochastic(torch.zeros(0)), "n at least 1"),
        (lambda: doubly_stochastic(torch.tensor(1.0)), "n at least 1"),
        (lambda: doubly_stochastic(torch.zeros(2, 3), mask=torch.ones(2, 3)), "mask must be of dtype bool"),
        (lambda: doubly_stochastic(torch.zeros(2, 3), mask=torch.ones(3).bool()), r"of shape \(2, 3\)"),
        (lambda: doubly_stochastic(torch.tensor([0.0, math.nan])), "document 1 of query 0 has nan"),
        (lambda: doubly_stochastic(torch.zeros(3), relaxation="cauchy"), "relaxation must be one of"),
        (lambda: partitioned(torch.zeros(3, 3)), r"theta must have the shape \(..., n, 2\)"),
        (lambda: partitioned(torch.zeros(3, 2), "cauchy"), "family must be"),
        (lambda: expected_ranks(torch.tensor([[0.0, math.inf]])), "document 1 of query 0 has inf"),
        (lambda: expected_ranks(torch.zeros(3), backend="cuda"), "backend must be"),
        (lambda: expected_ranks(torch.zeros(3).to("meta"), backend="native"), "backend='native' needs"),
        (lambda: expected_ranks(torch.zeros(2, 3), qid=torch.zeros(3)), "qid goes with flat scores"),
        (lambda: top_k(torch.zeros(3), 0), "k must be at least 1"),
    ],
)
def test_what_the_layers_do_not_take(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# expected_ranks and top_k


@pytest.mark.parametrize("n_iter", [0.5, 1, 5])
@pytest.mark.parametrize("relaxation", [*EXACT, *MEASURES], ids=name)
def test_ranks_and_membership_both_ways(relaxation, n_iter):
    x, mask = draw(relaxation, 2, 3, 6), torch.rand(2, 3, 6) > 0.3
    mask[0, 0] = True
    mask[1, 2] = False
    x[~mask] = math.nan
    weights = torch.randn(2, 3, 6, dtype=torch.float64)
    for layer, number in ((expected_ranks, sinkprop.expected_ranks), (top_k, sinkprop.top_k_probability)):
        k = () if layer is expected_ranks else (2,)
        results = []
        for backend in ("native", "torch"):
            leaf = x.clone().requires_grad_()
            E = layer(leaf, *k, mask=mask, relaxation=relaxation, n_iter=n_iter, backend=backend)
            E.backward(weights)
            assert not E[~mask].any()
            assert not leaf.grad[~mask].any()
            results.append((E.detach(), leaf.grad))
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
        one = x[0, 1][mask[0, 1]].numpy()
        expected = number(one, *k, relaxation=relaxation, n_iter=n_iter)
        np.testing.assert_allclose(results[0][0][0, 1][mask[0, 1]], expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("relaxation", [*EXACT, *MEASURES[:2]], ids=name)
def test_ranks_have_derivatives_of_both_orders(relaxation):
    qid = torch.tensor([3, 1, 3, 3, 1, 7])
    x = draw(relaxation, 6).requires_grad_()

    def f(x):
        return expected_ranks(x, qid=qid, relaxation=relaxation, n_iter=2), top_k(x, 2, relaxation=relaxation)

    assert gradcheck(f, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, x, fast_mode=True)


def test_every_kind_of_batch():
    x, sizes = torch.randn(9, dtype=torch.float64), [2, 4, 3]
    parts = [expected_ranks(part, relaxation="laplace") for part in x.split(sizes)]
    flat = torch.cat(parts)
    offsets = torch.tensor([0, 2, 6, 9])
    shuffled = torch.randperm(9)
    qid = torch.tensor([5, 5, 1, 1, 1, 1, 3, 3, 3])
    for backend in ("native", "torch"):
        options = {"relaxation": "laplace", "backend": backend}
        torch.testing.assert_close(expected_ranks(x, offsets=offsets, **options), flat)
        found = expected_ranks(x[shuffled], qid=qid[shuffled], **options)
        torch.testing.assert_close(found, flat[shuffled])
        nested = torch.nested.nested_tensor(list(x.split(sizes)), layout=torch.jagged)
        torch.testing.assert_close(expected_ranks(nested, **options), flat)
        padded = torch.nested.to_padded_tensor(nested, 1e9)
        mask = torch.arange(4) < torch.tensor(sizes)[:, None]
        found = expected_ranks(padded, mask=mask, **options)
        torch.testing.assert_close(found, torch.nn.utils.rnn.pad_sequence(parts, batch_first=True))


def test_long_lists_take_linear_room():
    x = torch.randn(100_000, requires_grad=True)
    ranks = expected_ranks(x, relaxation=SmoothedIndicator(1e-7), epsilon=0.0)
    hard = x.argsort(descending=True).argsort() + 1
    assert (ranks - hard).abs().median() < 2
    top_k(x, 1000, relaxation=SmoothedIndicator(0.1)).sum().backward()
    assert x.grad.isfinite().all()
    assert ranks.dtype is torch.float32


def test_membership_is_a_probability_for_a_cross_entropy():
    x = torch.randn(5, 40, requires_grad=True)
    for backend in ("native", "torch"):
        p = top_k(x, 40, relaxation=SmoothedIndicator(0.3), backend=backend)
        torch.testing.assert_close(p, torch.ones(5, 40), rtol=0, atol=2e-5)
        p = top_k(x, 10, relaxation=SmoothedIndicator(0.3), backend=backend)
        target = torch.zeros(5, 40)
        target[:, :10] = 1
        torch.nn.functional.binary_cross_entropy(p, target).backward()
        assert x.grad.isfinite().all()
        torch.testing.assert_close(p.sum(-1), torch.full((5,), 10.0), rtol=0.05, atol=0)


def test_layers_under_transforms():
    x = torch.randn(4, 5, dtype=torch.float64)
    for f in (expected_ranks, lambda x: top_k(x, 2), doubly_stochastic):
        torch.testing.assert_close(vmap(f)(x), torch.stack([f(row) for row in x]), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(vmap(jacrev(f))(x), vmap(jacfwd(f))(x), rtol=1e-10, atol=1e-12)


def test_layers_are_compiled():
    x = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    exact = SmoothedIndicator(0.7, accuracy="exact")

    def f(x):
        Z = sinkhorn(x[:, :, None] * x[:, None, :], 0.5, log=True)
        return Z * top_k(x, 2, relaxation=exact, n_iter=1)[:, None]

    torch._dynamo.reset()
    expected, found = f(x), torch.compile(f, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)


def test_flat_queries_among_compiled_graphs():
    x, qid = torch.randn(5, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1])

    def f(x):
        return expected_ranks(2 * x, qid=qid) + 1

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(f, backend="aot_eager")(x), f(x))


def test_half_precision_gives_single():
    x = torch.randn(3, 8)
    for f in (expected_ranks, doubly_stochastic, lambda x: sinkhorn(x.expand(8, 3, 8)[:, [0] * 8], log=True)):
        found = f(x.bfloat16())
        assert found.dtype is torch.float32
        torch.testing.assert_close(found, f(x.bfloat16().float()), rtol=0, atol=0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(f(x), f(x.clone()), rtol=0, atol=0)
            inside = f(x)
        torch.testing.assert_close(inside, f(x), rtol=0, atol=0)


@pytest.mark.parametrize("relaxation", ["gaussian", "laplace", "probit"])
@pytest.mark.parametrize("n", [7, 300])
def test_float32_gives_the_float64_ranks_rounded_once(n, relaxation):
    """And the float64 gradient: padding holds no numbers, and the ranks have weights."""
    x = torch.randn(3, n, 2) if relaxation == "probit" else torch.randn(3, n)
    weights = torch.randn(3, n)
    mask = torch.arange(n) < torch.tensor([n, 5, 1])[:, None]
    x[~mask] = math.nan
    for options in ({"mask": mask}, {}):
        found = {}
        for dtype in (torch.float32, torch.float64):
            scores = (x if options else x.nan_to_num()).to(dtype, copy=True).requires_grad_()
            ranks = expected_ranks(scores, relaxation=relaxation, backend="native", **options)
            (ranks * weights.to(dtype)).sum().backward()
            assert ranks.dtype is scores.grad.dtype is dtype
            found[dtype] = ranks.detach(), scores.grad
        for single, double in zip(found[torch.float32], found[torch.float64], strict=True):
            torch.testing.assert_close(single, double.float(), rtol=0, atol=0)
