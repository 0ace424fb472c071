"""Training steps at extreme rates, ties, labels and sigmas: nothing but the network itself may overflow."""

from __future__ import annotations

import math

import numpy as np
import pytest

import sinkprop

torch = pytest.importorskip("torch", reason="the steps are those of torch's networks")

from sinkprop.torch import SinkPropLoss  # noqa: E402

STEPS = 40  # of a run at most
LABELS = ("all 0", "all equal", "graded", "30", "fractional", "one relevant")
FEATURES = ("normal", "identical", "zero", "huge", "tiny")


def labels_of(kind, n, rng):
    if kind == "all 0":
        return np.zeros(n)
    if kind == "all equal":
        return np.full(n, 2.0)
    if kind == "30":
        return rng.choice([0.0, 30.0], n)
    if kind == "fractional":
        return rng.uniform(0, 4, n)
    if kind == "one relevant":
        return (np.arange(n) == rng.integers(n)).astype(float)
    return rng.integers(0, 5, n).astype(float)


def features_of(kind, n, rng):
    x = rng.normal(size=(n, 4))
    return {"normal": x, "identical": x[:1].repeat(n, 0), "zero": 0 * x, "huge": 1e8 * x, "tiny": 1e-30 * x}[
        kind
    ]


def a_network(start, width, dtype):
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, width)).to(dtype)
    with torch.no_grad():
        for p in net.parameters():
            if start == "zero":
                p.zero_()
            elif start == "large":
                p.mul_(1e3)
    return net


class Run:
    """A random setting, and how far it came."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        kernel = rng.choice(
            ["gaussian", "laplace", "logit-logistic", "probit", "beta"], p=[0.35, 0.35, 0.1, 0.1, 0.1]
        )
        sigma = 10 ** rng.uniform(-6, 6)
        self.relaxation = (
            sinkprop.SmoothedIndicator(sigma, str(kernel))
            if kernel in ("gaussian", "laplace")
            else sinkprop.PartitionedMeasure(str(kernel))
        )
        self.dtype = [torch.float32, torch.float64][rng.integers(2)]
        self.rate = 10 ** rng.uniform(-8, 3)
        self.optimizer = [torch.optim.SGD, torch.optim.Adam][rng.integers(2)]
        self.start = str(rng.choice(["default", "zero", "large"]))
        self.labels, self.features = str(rng.choice(LABELS)), str(rng.choice(FEATURES))
        self.sizes = rng.integers(1, 9, rng.integers(1, 4))
        self.loss = SinkPropLoss(
            str(rng.choice(["ndcg", "ndcg@2", "p@3", "rbp@0.8"])),
            self.relaxation,
            n_iter=float(rng.choice([0.5, 1, 5, 20])),
            epsilon=float(rng.choice([0.0, 1e-6])),
            backend=str(rng.choice(["native", "torch"], p=[0.8, 0.2])),
        )
        self.rng = rng

    def __str__(self):
        kept = {k: v for k, v in vars(self).items() if k != "rng"}
        return ", ".join(f"{k}={v}" for k, v in kept.items())

    def train(self):
        """Steps made until the end, or until the network overflowed."""
        torch.manual_seed(int(self.rng.integers(1 << 31)))
        net = a_network(self.start, self.relaxation.width, self.dtype)
        optimizer = self.optimizer(net.parameters(), lr=self.rate)
        n = int(self.sizes.sum())
        offsets = torch.tensor(np.concatenate([[0], np.cumsum(self.sizes)]))
        x = torch.tensor(features_of(self.features, n, self.rng), dtype=self.dtype)
        y = torch.tensor(labels_of(self.labels, n, self.rng))
        for step in range(STEPS):
            scores = net(x)
            scores = scores.squeeze(-1) if self.relaxation.width == 1 else scores
            scores.retain_grad()
            if not scores.isfinite().all():
                with pytest.raises(ValueError, match=r"scores must be finite; document .* learning rate"):
                    self.loss(scores, y, offsets=offsets)
                assert all(p.isfinite().all() for p in net.parameters())
                return step
            optimizer.zero_grad()
            value = self.loss(scores, y, offsets=offsets)
            value.backward()
            assert value.isfinite()
            assert scores.grad.isfinite().all()
            assert value.item() <= 0
            if not all(p.grad.isfinite().all() for p in net.parameters()):
                # finite numbers, whose products in the network's own backward pass are beyond the dtype
                assert self.overflows_by_itself(net, x, scores)
                return step
            optimizer.step()
            if not all(p.isfinite().all() for p in net.parameters()):
                return step
        return STEPS

    def overflows_by_itself(self, net, x, scores):
        """Whether the products of the network's backward pass are beyond what its dtype holds."""
        weight = net[2].weight.detach().abs().max().item()
        hidden = net[1](net[0](x)).detach().abs().max().item()
        bar = scores.grad.abs().max().item()
        largest = max(bar * hidden, bar * weight * x.abs().max().item(), bar * weight) * x.numel()
        return largest > torch.finfo(self.dtype).max or math.isinf(largest)


# 10,000 steps in four parts, which run side by side, and a few for those who do not wait
@pytest.mark.parametrize(
    ("wanted", "part"), [(500, 0), *(pytest.param(2500, part, marks=pytest.mark.slow) for part in range(4))]
)
def test_steps_without_nan(wanted, part):
    done = 0
    for seed in range(wanted):
        run = Run([wanted, part, seed])
        try:
            done += run.train()
        except Exception:
            print(f"seed {seed}: {run}")
            raise
        if done >= wanted:
            break
    assert done >= wanted  # else the networks overflowed, and little was tried


def test_the_random_runs_reach_what_they_are_for():
    runs = [Run([2500, part, seed]) for part in range(4) for seed in range(60)]
    assert {run.labels for run in runs} == set(LABELS)
    assert {run.features for run in runs} == set(FEATURES)
    rates = [run.rate for run in runs]
    assert min(rates) < 1e-7
    assert max(rates) > 1e2
    sigmas = [run.relaxation.sigma for run in runs if run.relaxation.width == 1]
    assert min(sigmas) < 1e-5
    assert max(sigmas) > 1e5
    assert {run.relaxation.kernel for run in runs if run.relaxation.width == 1} == {"gaussian", "laplace"}
    assert any(run.relaxation.width == 2 for run in runs)
    assert any(run.sizes.tolist() == [1] for run in runs)


@pytest.mark.parametrize("relaxation", ["gaussian", "laplace"])
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_scores_that_overflow_are_an_error_before_the_step(relaxation, backend):
    """Finite parameters and features whose product is beyond float32: the error says so, nothing changes."""
    net = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        net.weight.fill_(1e30)
    x = torch.tensor([[[1.0], [2.0]], [[3.0], [1e20]]])
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with pytest.raises(
        ValueError, match=r"scores must be finite; document 1 of query 1 has inf.*learning rate"
    ):
        SinkPropLoss("ndcg", relaxation, backend=backend)(net(x), torch.tensor([[1, 0], [0, 1]])).backward()
    assert net.weight.item() == pytest.approx(1e30)
    assert net.weight.grad is None
    optimizer.step()
    assert net.weight.item() == pytest.approx(1e30)


@pytest.mark.parametrize("relaxation", ["gaussian", "laplace"])
def test_the_largest_scores_are_no_overflow(relaxation):
    largest = torch.finfo(torch.float32).max
    scores = torch.tensor([[largest, -largest, 0.0, 1.0]], requires_grad=True)
    value = SinkPropLoss("ndcg", relaxation)(scores, torch.tensor([[0, 1, 2, 1]]))
    value.backward()
    assert -1 < value.item() < 0
    assert scores.grad.isfinite().all()


def test_a_network_that_starts_at_zero_learns_by_laplace():
    """All scores are tied at first: the Gaussian kernel's gradient is 0, the Laplace kernel's is not."""
    torch.manual_seed(0)
    x = torch.randn(20, 10, 4)
    labels = (x[..., 0] > 0.5).long()
    ends = {}
    for relaxation in ("gaussian", "laplace"):
        net = a_network("default", 1, torch.float32)
        with torch.no_grad():
            net[2].weight.zero_()
            net[2].bias.zero_()
        loss = SinkPropLoss("ndcg", relaxation)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
        for _ in range(60):
            optimizer.zero_grad()
            value = loss(net(x), labels)
            value.backward()
            optimizer.step()
        ends[relaxation] = value.item()
    assert ends["laplace"] < ends["gaussian"] - 0.1
