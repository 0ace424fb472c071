"""The limit of the Sinkhorn normalization in torch: both backends, derivatives of all orders, layers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sinkprop
from sinkprop import Converged, PartitionedMeasure, SmoothedIndicator

torch = pytest.importorskip("torch", reason="tests of the torch losses")

from sinkprop.torch import (  # noqa: E402
    NeuralRanker,
    SinkPropLoss,
    doubly_stochastic,
    expected_ranks,
    sinkhorn,
    sinkprop_loss,
    top_k,
)

pytestmark = [
    pytest.mark.usefixtures("sweeps_from_five"),
    # torch.compile and torch.func use parts of torch that torch deprecates
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function.* should not be instantiated"),
]

TIGHT = Converged(1e-13)
RELAXATIONS = [
    SmoothedIndicator(0.3, accuracy="exact"),
    SmoothedIndicator(0.3, kernel="laplace"),
    PartitionedMeasure("logit-logistic"),
    PartitionedMeasure("probit"),
    PartitionedMeasure("beta"),
]
TWICE = RELAXATIONS[:4]  # the beta distribution has no second derivative


def batch(relaxation, seed=0):
    """Scores of four queries of up to seven documents, and labels, which are -1 at padding."""
    generator = torch.Generator().manual_seed(seed)
    shape = (4, 7) if relaxation.width == 1 else (4, 7, 2)
    x = torch.randn(shape, dtype=torch.float64, generator=generator)
    y = torch.randint(0, 3, (4, 7), generator=generator).double()
    y[0, 5:] = y[2, 1:] = -1
    return x.requires_grad_(), y


@pytest.mark.parametrize("gain", ["ndcg", "map"])
@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=str)
def test_both_backends_are_the_expected_gain(relaxation, gain):
    x, y = batch(relaxation)
    y = y.clamp(max=1) if gain == "map" else y
    found = []
    for backend in ("native", "torch"):
        loss = sinkprop_loss(
            x, y, gain=gain, relaxation=relaxation, n_iter=TIGHT, backend=backend, reduction="sum"
        )
        found.append((loss.item(), torch.autograd.grad(loss, x)[0].numpy()))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-11)
    assert_allclose(found[0][1], found[1][1], atol=1e-11)
    rows = y.numpy() >= 0
    qid = np.nonzero(rows)[0]
    r = sinkprop.expected_gain(
        x.detach().numpy()[rows],
        y.numpy()[rows],
        qid,
        gain="ndcg(discount=log2)" if gain == "ndcg" else gain,
        relaxation=relaxation,
        n_iter=TIGHT,
    )
    assert found[1][0] == pytest.approx(-4 * r.value, abs=1e-11)
    assert_allclose(found[1][1][rows], -4 * r.gradient, atol=1e-11)
    assert (found[1][1][~rows] == 0).all()


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("relaxation", TWICE, ids=str)
def test_first_and_second_derivatives(relaxation, backend):
    x, y = batch(relaxation)
    x, y = x[:2].detach().requires_grad_(), y[:2]

    def loss(x):
        return sinkprop_loss(x, y, relaxation=relaxation, n_iter=TIGHT, backend=backend)

    assert torch.autograd.gradcheck(loss, (x,))
    assert torch.autograd.gradgradcheck(loss, (x,))


def test_third_derivatives_by_the_torch_backend():
    x, y = batch(RELAXATIONS[0])
    x, y = x[1, :4].detach(), y[1, :4]

    def slope(x):
        loss = sinkprop_loss(x[None], y[None], relaxation=RELAXATIONS[0], n_iter=TIGHT, backend="torch")
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), x, create_graph=True)
        return h.sum()

    x.requires_grad_()
    assert torch.autograd.gradcheck(slope, (x,), atol=1e-4)


@pytest.mark.parametrize("relaxation", RELAXATIONS[:2], ids=str)
def test_smoothed_indicators_run_where_values_are_hidden(relaxation):
    x, y = batch(relaxation)
    x, y = x[1:2].detach(), y[1:2]

    def loss(x, backend="torch"):
        return sinkprop_loss(x, y, relaxation=relaxation, n_iter="converged", backend=backend)

    H = torch.autograd.functional.hessian(loss, x)
    assert_allclose(torch.func.hessian(loss)(x).numpy(), H.numpy(), atol=1e-7)
    direction = torch.ones_like(x).cumsum(-1)
    slope = torch.func.jvp(loss, (x,), (direction,))[1]
    gradient = torch.func.grad(loss)(x)
    assert slope.item() == pytest.approx((gradient * direction).sum().item(), abs=1e-9)
    x.requires_grad_()
    (native,) = torch.autograd.grad(loss(x, "native"), x)
    assert_allclose(gradient.numpy(), native.numpy(), atol=1e-8)


def test_a_compiled_loss_is_the_loss():
    x, y = batch(RELAXATIONS[0])
    loss = SinkPropLoss(n_iter="converged", backend="torch")
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    found, expected = (torch.autograd.grad(f(x, y), x)[0].numpy() for f in (compiled, loss))
    assert_allclose(found, expected, atol=1e-8)


def test_partitioned_measures_say_where_they_cannot_run():
    x, y = batch(RELAXATIONS[3])
    with pytest.raises(ValueError, match="give a number of iterations"):
        torch.func.grad(lambda x: sinkprop_loss(x, y, relaxation="probit", n_iter="converged"))(x.detach())


@pytest.mark.parametrize("relaxation", TWICE, ids=str)
def test_single_precision(relaxation):
    x, y = batch(relaxation)
    expected = torch.autograd.grad(sinkprop_loss(x, y, relaxation=relaxation, n_iter=TIGHT), x)[0]
    single = x.detach().float().requires_grad_()
    loss = sinkprop_loss(single, y.float(), relaxation=relaxation, n_iter="converged", backend="torch")
    loss.backward()
    assert single.grad.dtype == torch.float32
    assert_allclose(single.grad.numpy(), expected.numpy(), atol=3e-6)


def test_too_few_iterations_are_a_warning():
    x, y = batch(RELAXATIONS[0])
    few = Converged(max_iter=2)
    for relaxation in ("gaussian", "probit"):
        x, y = batch(sinkprop.objective.relaxations.as_relaxation(relaxation))
        for backend in ("native", "torch"):
            with pytest.warns(RuntimeWarning, match="did not converge"):
                sinkprop_loss(x, y, relaxation=relaxation, n_iter=few, backend=backend)
        with pytest.warns(RuntimeWarning, match="did not converge"):
            expected_ranks(x, relaxation=relaxation, n_iter=few)


def test_a_module_shows_the_setting():
    assert "n_iter=converged" in repr(SinkPropLoss(n_iter="converged"))
    assert "n_iter=converged(tol=1e-06)" in repr(SinkPropLoss(n_iter=Converged(1e-6)))
    assert "n_iter=5," in repr(SinkPropLoss()) or repr(SinkPropLoss()).endswith("n_iter=5)")
    with pytest.raises(ValueError, match="'converged' or a form such as"):
        SinkPropLoss(n_iter="limit")


class TestLayers:
    @pytest.mark.parametrize("relaxation", RELAXATIONS, ids=str)
    def test_distributions_are_those_of_the_library(self, relaxation):
        x = batch(relaxation)[0][1]
        given = {"relaxation": relaxation, "n_iter": Converged(1e-12)}
        Pi = sinkprop.doubly_stochastic(x.detach().numpy(), **given)
        assert_allclose(doubly_stochastic(x, **given).detach().numpy(), Pi, atol=1e-10)
        for backend in ("native", "torch"):
            ranks = expected_ranks(x, **given, backend=backend)
            assert_allclose(ranks.detach().numpy(), Pi @ np.arange(1, 8), atol=1e-9)
            top = top_k(x, 2, **given, backend=backend)
            assert_allclose(top.detach().numpy(), Pi[:, :2].sum(axis=1), atol=1e-10)
        slopes = [
            torch.autograd.grad(expected_ranks(x, **given, backend=b)[0], x, retain_graph=True)[0].numpy()
            for b in ("native", "torch")
        ]
        assert_allclose(*slopes, atol=1e-8)

    @pytest.mark.parametrize("given", [{}, {"log": True}, {"epsilon": 0.1}], ids=str)
    def test_derivatives_of_the_limit_of_matrices(self, given):
        A = torch.rand(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.05
        A.requires_grad_()

        def limit(A):
            return sinkhorn(A, TIGHT, **given)

        assert torch.autograd.gradcheck(limit, (A,))
        assert torch.autograd.gradgradcheck(limit, (A,))

    def test_the_gradient_is_that_of_sinkhorn_vjp(self):
        rng = np.random.default_rng(0)
        A, C = rng.random((6, 6)), rng.normal(size=(6, 6))
        a = torch.from_numpy(A).requires_grad_()
        (sinkhorn(a, TIGHT) * torch.from_numpy(C)).sum().backward()
        assert_allclose(a.grad.numpy(), sinkprop.sinkhorn_vjp(A, C, TIGHT), atol=1e-9)

    @pytest.mark.parametrize("spread", [3, 30])
    def test_entries_of_any_magnitude(self, spread):
        log_A = spread * torch.randn(
            2, 20, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
        )
        log_A.requires_grad_()
        Pi = sinkhorn(log_A, "converged", log=True)
        limits = [sinkprop.sinkhorn_limit(np.exp(a)).matrix for a in log_A.detach().numpy()]
        assert_allclose(Pi.detach().numpy(), limits, atol=1e-7)
        Pi[0, 0, 0].backward()
        assert log_A.grad.isfinite().all()

    def test_zeros_have_finite_derivatives(self):
        A = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
        C = np.arange(9.0).reshape(3, 3)
        A.requires_grad_()
        (sinkhorn(A, TIGHT) * torch.from_numpy(C)).sum().backward()
        assert_allclose(A.grad.numpy(), sinkprop.sinkhorn_vjp(A.detach().numpy(), C, TIGHT), atol=1e-9)


def test_a_neural_ranker_is_trained_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(12), 6)
    X = rng.normal(size=(72, 3))
    y = np.digitize(X[:, 0] + rng.normal(size=72), [0.3, 1.2])
    for relaxation in ("gaussian", "probit"):
        given = {"relaxation": relaxation, "max_epochs": 2, "validation_fraction": 0, "verbose": False}
        ranker = NeuralRanker(n_iter=Converged(1e-7), **given).fit(X, y, qid=qid)
        short = NeuralRanker(n_iter=1, **given).fit(X, y, qid=qid)
        assert (short.predict(X) != ranker.predict(X)).any()
        ranker.save(tmp_path / relaxation)
        loaded = sinkprop.load_model(tmp_path / relaxation)
        assert loaded.n_iter == Converged(1e-7)
        assert_array_equal(loaded.predict(X), ranker.predict(X))
        assert_array_equal(loaded.rank(X, qid=qid), ranker.rank(X, qid=qid))
