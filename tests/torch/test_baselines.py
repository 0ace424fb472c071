"""ListNet, ApproxNDCG and lambda losses for networks, against loops from the papers and allRank's values."""

from __future__ import annotations

import importlib
import math
import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import sinkprop.baselines.listnet_loss
from sinkprop.cli.benchmark.methods import _torchvision_stub

torch = pytest.importorskip("torch", reason="the losses of networks need the extra torch")

from sinkprop.torch.losses.baselines import LOSSES, approx_ndcg_loss, lambda_loss, listnet_loss  # noqa: E402
from sinkprop.torch.losses.batches import alike  # noqa: E402

SCHEMES = ("lambdarank", "ndcg-loss2", "ndcg-loss2++", "ranknet")
VARIANTS = {
    "listnet": listnet_loss,
    "approxndcg": approx_ndcg_loss,
    "approxndcg, alpha 7": partial(approx_ndcg_loss, alpha=7.0),
    **{scheme: partial(lambda_loss, scheme=scheme, sigma=0.7) for scheme in SCHEMES},
    **{f"{scheme}@3": partial(lambda_loss, scheme=scheme, k=3) for scheme in SCHEMES},
}
every_loss = pytest.mark.parametrize("loss", VARIANTS.values(), ids=VARIANTS)


# One query at a time, term by term, as the papers have it.


def listnet_by_loops(s, y):
    target, p = ([math.exp(x) / math.fsum(math.exp(z) for z in xs) for x in xs] for xs in (y, s))
    return -math.fsum(t * math.log(q) for t, q in zip(target, p, strict=True))


def ideal_dcg(y, k):
    best = sorted((2.0**label - 1 for label in y), reverse=True)[:k]
    return math.fsum(G / math.log2(1 + rank) for rank, G in enumerate(best, start=1))


def approx_ndcg_by_loops(s, y, alpha=1.0):
    total = 0.0
    for i in range(len(s)):
        rank = 1.0
        for j in range(len(s)):
            if j != i:
                rank += 1 / (1 + math.exp(alpha * (s[i] - s[j])))
        total += (2.0 ** y[i] - 1) / math.log2(1 + rank)
    return -total / ideal_dcg(y, None)


def lambda_by_loops(s, y, scheme, k=None, sigma=1.0, mu=10.0):
    rank = {document: r for r, document in enumerate(sorted(range(len(s)), key=lambda j: -s[j]), start=1)}

    def inverse_discount(r):
        return 1 / math.log2(1 + r) if k is None or r <= k else 0.0

    total = 0.0
    for i in range(len(s)):
        for j in range(len(s)):
            if y[i] <= y[j] or (k is not None and rank[i] > k and rank[j] > k):
                continue
            G = (2.0 ** y[i] - 2.0 ** y[j]) / ideal_dcg(y, k)
            m = abs(rank[i] - rank[j])
            rho = abs(inverse_discount(rank[i]) - inverse_discount(rank[j]))
            delta = abs(1 / math.log2(1 + m) - 1 / math.log2(2 + m))
            weight = {
                "lambdarank": rho * G,
                "ndcg-loss2": delta * G,
                "ndcg-loss2++": (rho + mu * delta) * G,
                "ranknet": 1.0,
            }[scheme]
            total += weight * math.log2(1 + math.exp(-sigma * (s[i] - s[j])))
    return total


BY_LOOPS = {
    "listnet": listnet_by_loops,
    "approxndcg": approx_ndcg_by_loops,
    "approxndcg, alpha 7": partial(approx_ndcg_by_loops, alpha=7.0),
    **{scheme: partial(lambda_by_loops, scheme=scheme, sigma=0.7) for scheme in SCHEMES},
    **{f"{scheme}@3": partial(lambda_by_loops, scheme=scheme, k=3) for scheme in SCHEMES},
}


def queries(sizes, seed=0):
    """Scores and labels (N,) with offsets; every query has a relevant document."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    labels = rng.integers(0, 5, n).astype(np.float64)
    labels[offsets[:-1]] = np.maximum(labels[offsets[:-1]], 1)
    return torch.tensor(rng.normal(size=n)), torch.tensor(labels), torch.tensor(offsets)


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_paper_term_by_term(name):
    scores, labels, offsets = queries([9, 2, 5, 1, 30])
    found = VARIANTS[name](scores, labels, offsets=offsets, reduction="none")
    parts = zip(scores.split(offsets.diff().tolist()), labels.split(offsets.diff().tolist()), strict=True)
    assert_allclose(found, [BY_LOOPS[name](s.tolist(), y.tolist()) for s, y in parts], rtol=1e-12, atol=1e-15)


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=8),
    st.lists(st.floats(0, 6), min_size=8, max_size=8),
    st.sampled_from(sorted(VARIANTS)),
)
@settings(deadline=None, max_examples=60)
def test_fractional_labels_equal_the_paper_term_by_term(scores, labels, name):
    y = labels[: len(scores)]
    if len(set(scores)) < len(scores) or max(y) < 1e-3:  # ranks of ties are anyone's
        return
    found = VARIANTS[name](
        torch.tensor(scores, dtype=torch.float64), torch.tensor(y, dtype=torch.float64), padding=-9
    )
    assert found.item() == pytest.approx(BY_LOOPS[name](scores, y), rel=1e-9, abs=1e-12)


@every_loss
def test_gradients(loss):
    scores, labels, offsets = queries([6, 1, 4], seed=3)
    scores.requires_grad_()
    call = partial(loss, labels=labels, offsets=offsets)
    assert torch.autograd.gradcheck(call, scores)
    assert torch.autograd.gradgradcheck(call, scores)


# allRank 1.4.3 on the CPU in float32: value, and gradient in the scores, of
#   losses.listNet(s, y), losses.approxNDCGLoss(s, y[, alpha=10.]),
#   losses.lambdaLoss(s, y, weighing_scheme=NAME[, sigma=2.])
# with s and y of the two tables, y as float32.
SCORES = [[0.3, -1.2, 2.0, 0.9, 0.1], [1.5, 0.25, -0.5, 0.0, 0.0], [0.4, 0.0, 0.0, 0.0, 0.0]]
LABELS = [[2, 0, 1, 4, 0], [0, 1, 3, -1, -1], [1, -1, -1, -1, -1]]
ALLRANK = {
    "listNet": (
        1.293827,
        [[-0.001227, 0.002968, 0.181818, -0.207788, 0.024229], [0.220435, 0.029103, -0.249537, 0, 0]],
    ),
    "approxNDCGLoss": (
        -0.727416,
        [[0.00527, 0.0044, 0.0046, -0.02374, 0.009471], [0.0052, 0.005058, -0.010258, 0, 0]],
    ),
    "approxNDCGLoss, alpha 10": (
        -0.742342,
        [[-0.003841, 0.0, 7e-06, -0.001425, 0.00526], [0.0, 0.000106, -0.000106, 0, 0]],
    ),
    "lambdaRank_scheme": (
        2.639740,
        [[-0.036858, 0.040259, 0.383553, -0.47811, 0.091155], [0.637066, 0.046635, -0.683701, 0, 0]],
    ),
    "ndcgLoss2_scheme, sigma 2": (
        2.827787,
        [[0.051228, 0.005651, 0.813451, -0.999026, 0.128695], [0.469281, 0.555599, -1.02488, 0, 0]],
    ),
    "ndcgLoss2PP_scheme": (
        21.420181,
        [[0.608342, 0.195219, 3.773846, -5.594528, 1.017121], [2.705627, 2.347689, -5.053316, 0, 0]],
    ),
    "rankNet_scheme": (
        14.317089,
        [[-1.621275, 0.477082, 2.058034, -2.198272, 1.284431], [2.392128, -0.141559, -2.250569, 0, 0]],
    ),
}
OURS = {
    "listNet": listnet_loss,
    "approxNDCGLoss": approx_ndcg_loss,
    "approxNDCGLoss, alpha 10": partial(approx_ndcg_loss, alpha=10.0),
    "lambdaRank_scheme": partial(lambda_loss, reduction="sum"),
    "ndcgLoss2_scheme, sigma 2": partial(lambda_loss, scheme="ndcg-loss2", sigma=2.0, reduction="sum"),
    "ndcgLoss2PP_scheme": partial(lambda_loss, scheme="ndcg-loss2++", reduction="sum"),
    "rankNet_scheme": partial(lambda_loss, scheme="ranknet", reduction="sum"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ALLRANK)
def test_equals_the_values_that_allrank_gave(name, dtype):
    value, gradient = ALLRANK[name]
    scores = torch.tensor(SCORES, dtype=dtype, requires_grad=True)
    found = OURS[name](scores, torch.tensor(LABELS))
    found.backward()
    assert found.dtype == dtype
    assert found.item() == pytest.approx(value, rel=1e-6)
    assert_allclose(scores.grad, [*gradient, [0] * 5], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ALLRANK)
def test_equals_allrank_where_it_is_installed(name):
    pytest.importorskip("allrank", reason="allRank is compared where it is installed")
    with _torchvision_stub(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        losses = importlib.import_module("allrank.models.losses")
    base, _, option = name.partition(", ")
    options = {"alpha 10": {"alpha": 10.0}, "sigma 2": {"sigma": 2.0}, "": {}}[option]
    theirs = (
        partial(losses.lambdaLoss, weighing_scheme=base) if base.endswith("scheme") else getattr(losses, base)
    )
    torch.manual_seed(5)
    sizes = torch.tensor([40, 40, 33, 12, 2])
    labels = torch.randint(0, 5, (5, 40)).float()
    labels[:, 0] = 3
    labels[torch.arange(40) >= sizes[:, None]] = -1
    results = []
    for loss in (OURS[name], partial(theirs, **options)):
        torch.manual_seed(6)
        scores = torch.randn(5, 40, requires_grad=True)
        value = loss(scores, labels)
        value.backward()
        results.append((value.item(), scores.grad))
    (ours, our_gradient), (their, their_gradient) = results
    assert ours == pytest.approx(their, rel=2e-6)
    assert_allclose(our_gradient, their_gradient, rtol=1e-4, atol=2e-6 * their_gradient.abs().max())


def test_listnet_equals_the_native_one():
    scores, labels, offsets = queries([12, 1, 7, 300], seed=8)
    qid = np.repeat(np.arange(4), np.diff(offsets))
    theirs = sinkprop.baselines.listnet_loss.listnet_loss(scores.numpy(), labels.numpy(), qid)
    scores.requires_grad_()
    ours = listnet_loss(scores, labels, offsets=offsets)
    ours.backward()
    assert ours.item() == pytest.approx(theirs.value, rel=1e-13)
    assert_allclose(scores.grad, theirs.gradient, rtol=0, atol=1e-15)


def hard_ndcg(labels, scores):
    name = f"ndcg@{len(labels)}"
    return sinkprop.evaluate(labels, scores, np.zeros(len(labels)), metrics=(name,), convention="standard")[
        name
    ]


@pytest.mark.parametrize("alpha", [1e3, 1e6])
def test_a_steep_approx_ndcg_is_ndcg(alpha):
    scores, labels, _ = queries([20], seed=2)
    found = approx_ndcg_loss(scores, labels, alpha=alpha).item()
    assert -found == pytest.approx(hard_ndcg(labels.numpy(), scores.numpy()), rel=1e-6)


def test_a_lambda_is_what_an_exchange_changes():
    """With one relevant document on top of another the loss weighs their pair by the change of NDCG."""
    scores, labels = [3.0, 2.0, 1.0, 0.0], [0, 2, 0, 1]
    x = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    loss = lambda_loss(x, torch.tensor(labels), sigma=1e-9)
    loss.backward()
    # at sigma near 0 every pair has the slope sigma / (2 ln 2), so the gradient sums the exchanges

    def ndcg(order):
        found = sinkprop.evaluate(
            np.array(labels)[order],
            np.arange(4.0)[::-1],
            np.zeros(4),
            metrics=("ndcg@4",),
            convention="standard",
        )
        return found["ndcg@4"]

    expected = np.zeros(4)
    for i in range(4):
        for j in range(4):
            if labels[i] > labels[j]:
                order = np.arange(4)
                order[[i, j]] = order[[j, i]]
                change = abs(ndcg(order) - ndcg(np.arange(4)))
                expected[[i, j]] += np.array([-change, change]) * 1e-9 / (2 * math.log(2))
    assert_allclose(x.grad, expected, rtol=1e-7)


@every_loss
def test_batches_of_every_kind_agree(loss):
    scores, labels, offsets = queries([5, 2, 1, 5], seed=4)
    sizes = offsets.diff().tolist()
    flat = loss(scores, labels, offsets=offsets, reduction="none")
    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    s = pad(scores.split(sizes), padding_value=math.nan)  # the padding may hold anything
    y = pad(labels.split(sizes), padding_value=-1)
    assert_allclose(loss(s, y, reduction="none"), flat, rtol=1e-13, atol=1e-15)
    assert_allclose(loss(s, y.abs(), mask=y >= 0, reduction="none"), flat, rtol=1e-13, atol=1e-15)
    by_length = loss(s[..., None], y.abs(), offsets.diff(), reduction="none")
    assert_allclose(by_length, flat, rtol=1e-13, atol=1e-15)
    mixed = torch.randperm(len(scores), generator=torch.Generator().manual_seed(0))
    qid = torch.repeat_interleave(torch.tensor([7, -2, 30, 4]), offsets.diff())[mixed]
    by_id = loss(scores[mixed], labels[mixed], qid=qid, reduction="none")
    position = torch.tensor([list(dict.fromkeys(qid.tolist())).index(i) for i in (7, -2, 30, 4)])
    assert_allclose(by_id[position], flat, rtol=1e-13, atol=1e-15)
    nested = [torch.nested.nested_tensor(list(x.split(sizes)), layout=torch.jagged) for x in (scores, labels)]
    assert_allclose(loss(*nested, reduction="none"), flat, rtol=1e-13, atol=1e-15)
    one = scores.split(sizes)[0], labels.split(sizes)[0]
    assert loss(*one).item() == pytest.approx(flat[0].item(), rel=1e-13)


@every_loss
def test_queries_of_many_lengths_are_taken_in_groups_and_come_back_in_order(loss):
    sizes = [700, 3, 250, 90, 1, 400, 40]
    scores, labels, offsets = queries(sizes, seed=9)
    mask = torch.arange(700) < torch.tensor(sizes)[:, None]
    assert len(list(alike(mask))) > 2
    scores.requires_grad_()
    found = loss(scores, labels, offsets=offsets, reduction="none")
    weight = torch.arange(1.0, 8.0, dtype=torch.float64)
    (found * weight).sum().backward()
    for q, (a, b) in enumerate(pairwise(offsets.tolist())):
        x = scores[a:b].detach().requires_grad_()
        alone = loss(x, labels[a:b])
        alone.backward()
        assert found[q].item() == pytest.approx(alone.item(), rel=1e-12, abs=1e-15)
        assert_allclose(scores.grad[a:b], weight[q] * x.grad, rtol=1e-9, atol=1e-14)


@every_loss
def test_padding_gets_a_gradient_of_zero(loss):
    scores = torch.tensor([[0.5, math.nan, -1.0], [math.inf, 2.0, -math.inf], [0, 0, 0]], requires_grad=True)
    labels = torch.tensor([[1, -1, 0], [-1, 2, -1], [-1, -1, -1]])
    value = loss(scores, labels)
    value.backward()
    assert value.isfinite()
    assert scores.grad.isfinite().all()
    assert not scores.grad[labels < 0].any()


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e4, 1e38])
def test_finite_at_any_scale_and_with_ties(loss, dtype, size):
    scores = (
        size * torch.tensor([[0.0, 0.0, 0.0, 0.0], [3.0, -3.0, 1.0, 1.0]], dtype=dtype)
    ).requires_grad_()
    for labels in ([[0, 1, 2, 30], [0, 0, 1, 0]], [[2, 2, 2, 2], [0.5, 0.25, 1e-9, 0]]):
        scores.grad = None
        value = loss(scores, torch.tensor(labels))
        value.backward()
        assert value.isfinite()
        assert scores.grad.isfinite().all()


@every_loss
def test_a_query_without_a_relevant_document_counts_zero(loss):
    scores, labels, offsets = queries([4, 3, 5])
    labels[4:7] = 0
    scores.requires_grad_()
    found = loss(scores, labels, offsets=offsets, reduction="none")
    found.sum().backward()
    assert found[1].item() == 0
    assert not scores.grad[4:7].any()
    assert loss(scores, labels, offsets=offsets).item() == pytest.approx(found.sum().item() / 3, rel=1e-14)
    nothing = loss(scores, torch.zeros_like(scores), offsets=offsets)
    nothing.backward()
    assert nothing.item() == 0


@every_loss
def test_reductions_weights_and_rows_without_documents(loss):
    scores = torch.tensor([[0.1, 0.7, -0.2], [0.0, 0.0, 0.0], [2.0, 1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([[1, 0, 2], [-1, -1, -1], [0, 3, -1]])
    each = loss(scores, labels, reduction="none")
    assert each.shape == (3,)
    assert each[1].item() == 0
    assert loss(scores, labels, reduction="sum").item() == pytest.approx(each.sum().item(), rel=1e-14)
    assert loss(scores, labels).item() == pytest.approx(each.sum().item() / 2, rel=1e-14)
    weight = torch.tensor([3.0, 5.0, 1.0])
    assert loss(scores, labels, query_weight=weight).item() == pytest.approx(
        (3 * each[0] + each[2]).item() / 4, rel=1e-14
    )
    assert loss(scores, labels, query_weight=weight, reduction="sum").item() == pytest.approx(
        (3 * each[0] + each[2]).item(), rel=1e-14
    )


@every_loss
def test_half_precision_is_computed_in_single(loss):
    scores, labels, offsets = queries([6, 8])
    half = scores.to(torch.bfloat16)
    found = loss(half, labels, offsets=offsets)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(loss(half.double(), labels, offsets=offsets).item(), rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_a_network_learns_by_each(name):
    torch.manual_seed(0)
    x = torch.randn(40, 12, 5)
    labels = (x[..., 0] - x[..., 1] > 0.8).long() + (x[..., 0] - x[..., 1] > 1.6)
    net = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)

    def ndcg():
        return sinkprop.evaluate(
            labels.flatten().numpy(),
            net(x).detach().flatten().numpy(),
            np.repeat(np.arange(40), 12),
            metrics=("ndcg@5",),
            convention="standard",
        )["ndcg@5"]

    before = ndcg()
    for _ in range(80):
        optimizer.zero_grad()
        LOSSES[name](net(x).squeeze(-1), labels).backward()
        optimizer.step()
    assert ndcg() > max(0.9, before + 0.1)


def test_names():
    assert list(LOSSES) == ["listnet", "approxndcg", "lambdarank"]


BAD = torch.tensor([[0.0, math.nan], [1.0, 2.0]])
GOOD = torch.tensor([[0.0, 1.0], [1.0, 2.0]])
ONES = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: listnet_loss(BAD, ONES), "scores must be finite; document 1 of query 0 has nan"),
        (lambda: listnet_loss(GOOD, -2 * ONES), "labels must be finite and not below 0; document 0"),
        (lambda: lambda_loss(GOOD, 2e3 * ONES), "labels must be below 960"),
        (lambda: listnet_loss(GOOD, ONES[:1]), "labels must"),
        (lambda: listnet_loss(GOOD, ONES, reduction="median"), "reduction must be 'mean', 'sum' or 'none'"),
        (lambda: listnet_loss(GOOD, ONES, query_weight=torch.ones(3)), r"query_weight .* \(2,\); got \(3,\)"),
        (lambda: listnet_loss(GOOD, ONES, query_weight=-torch.ones(2)), "query_weight must be finite"),
        (lambda: listnet_loss(GOOD, ONES, query_weight=torch.zeros(2)), "query_weight must have a sum"),
        (lambda: listnet_loss(GOOD.int(), ONES), "scores must be of a floating-point dtype"),
        (lambda: approx_ndcg_loss(GOOD, ONES, alpha=0), "alpha must be a finite number above 0; got 0"),
        (lambda: lambda_loss(GOOD, ONES, sigma=math.inf), "sigma must be a finite number above 0"),
        (lambda: lambda_loss(GOOD, ONES, k=0), "k must be a whole number of at least 1"),
        (lambda: lambda_loss(GOOD, ONES, scheme="lambdaRank_scheme"), "scheme must be one of 'lambdarank', "),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()
