"""Partitioned measures with a shared scale in torch, beside the native code."""

import numpy as np
import pytest

import sinkprop
from sinkprop import PartitionedMeasure

torch = pytest.importorskip("torch")
from sinkprop.torch import SinkPropLoss, doubly_stochastic  # noqa: E402

FAMILIES = ("logit-logistic", "probit", "beta")
LABELS = torch.tensor([[2, 0, 1, 0, 0, 1], [0, 1, 0, 2, -1, -1]])


def scores():
    x = torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 3
    x[1, 4:] = torch.nan  # padding
    return x


@pytest.mark.parametrize("n_iter", [5, 5.5, "converged"])
@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_are_those_of_the_native_code(family, n_iter):
    relaxation, x = PartitionedMeasure(family, sigma=0.5), scores()
    Pi = doubly_stochastic(x, relaxation=relaxation, n_iter=n_iter, mask=LABELS >= 0)
    for i, n in enumerate((6, 4)):
        expected = sinkprop.doubly_stochastic(x[i, :n].numpy(), relaxation=relaxation, n_iter=n_iter)
        np.testing.assert_allclose(Pi[i, :n, :n].numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_of_the_dense_path_is_that_of_the_native_code(family):
    relaxation = PartitionedMeasure(family, sigma=0.5)
    x = scores()[0].requires_grad_()
    Pi = doubly_stochastic(x, relaxation=relaxation)
    discounts = 1 / torch.log2(torch.arange(6, dtype=torch.float64) + 2)
    gains = 2.0 ** LABELS[0].double() - 1
    best = (gains.sort(descending=True).values * discounts).sum()
    ((gains @ Pi @ discounts) / best).backward()
    found = sinkprop.expected_gain(
        x.detach().numpy(), LABELS[0].numpy(), gain="ndcg(discount=log2)", relaxation=relaxation
    )
    np.testing.assert_allclose(x.grad.numpy(), found.gradient, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_takes_one_score_per_document(family):
    x = torch.nan_to_num(scores()).requires_grad_()
    SinkPropLoss(relaxation=PartitionedMeasure(family, sigma=0.5))(x, LABELS).backward()
    assert x.grad.shape == (2, 6)
    assert (x.grad[1, 4:] == 0).all()
    assert x.grad[0].abs().max() > 1e-4
