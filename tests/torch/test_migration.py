"""The migration page: its loops run before and after the change that it shows, and its table holds."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT
from warm import Warm

import sinkprop

torch = pytest.importorskip("torch", reason="the page is about losses for torch")

from sinkprop.torch import SinkPropLoss, lambda_loss, sinkprop_loss  # noqa: E402

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")

# Stand-ins of the packages' shapes where they are not installed: what is trained by is not the point here.
STANDINS = {
    "allrank": {
        "allrank/__init__.py": "",
        "allrank/models/__init__.py": "",
        "allrank/models/losses.py": """
import torch

def neuralNDCG(y_pred, y_true, padded_value_indicator=-1):
    mask = y_true == padded_value_indicator
    log_p = torch.log_softmax(y_pred.masked_fill(mask, -1e9), dim=1)
    gains = (2 ** y_true - 1).masked_fill(mask, 0)
    return -(gains / gains.sum(1, keepdim=True).clamp(min=1) * log_p).sum(1).mean()
""",
    },
    "pytorchltr": {
        "pytorchltr/__init__.py": "",
        "pytorchltr/loss.py": """
import torch

class PairwiseHingeLoss(torch.nn.Module):
    def forward(self, scores, relevance, n):
        s, documents = scores.squeeze(-1), torch.arange(scores.shape[1]) < n[:, None]
        pairs = relevance[:, :, None] > relevance.masked_fill(~documents, 99)[:, None, :]
        return ((1 - s[:, :, None] + s[:, None, :]).clamp(min=0) * pairs).sum((1, 2))
""",
    },
}
# allRank imports a name of torchvision that its losses do not use
TORCHVISION = {"torchvision/__init__.py": "", "torchvision/transforms.py": "Compose = list\n"}


def block(package: str, language: str) -> str:
    (found,) = re.findall(rf"<!-- test: {package} -->\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def changed(code: str, diff: str) -> str:
    """The code after a diff of pairs of lines, each of which must be there once."""
    lines = diff.splitlines()
    for old, new in zip(lines[::2], lines[1::2], strict=True):
        assert (old[0], new[0]) == ("-", "+")
        assert code.count(old[1:] + "\n") == 1
        code = code.replace(old[1:], new[1:])
    return code


@pytest.fixture(scope="module")
def strict():
    """Processes that have loaded torch, in which a warning is an error."""
    with Warm("torch", "sinkprop.torch", options=("-W", "error")) as strict:
        yield strict


def ndcg_of(code: str, folder: Path, files: dict[str, str], warm: Warm | None = None) -> float:
    """What the code prints, run in a fork or, for allRank, in a process where warnings are ignored."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    paths = [str(folder), str(Path(sinkprop.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    if warm is None:
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | env, capture_output=True, text=True, check=False
        )
    else:
        done = warm.run("import torch; torch.set_num_threads(1)\n" + code, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    name, value = done.stdout.split()
    assert name == "NDCG@10"
    return float(value)


@pytest.mark.slow
@pytest.mark.parametrize("package", STANDINS)
def test_the_loop_runs_before_and_after(package, tmp_path, strict):
    """The change is two lines, of which one is an import, and what is learned is as good or better."""
    before, diff = block(package, "python"), block(package, "diff")
    after = changed(before, diff)
    assert sum(a != b for a, b in zip(before.splitlines(), after.splitlines(), strict=True)) == 2
    assert package not in after
    first, second = ndcg_of(before, tmp_path, STANDINS[package], strict), ndcg_of(after, tmp_path, {}, strict)
    assert first > 0.5
    assert second > max(0.55, first - 0.05)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("allrank"), reason="allRank runs where it is installed")
def test_the_loop_runs_with_allrank_itself(tmp_path):
    code = block("allrank", "python").replace("range(20)", "range(1)")  # a step takes it a second
    files = {} if importlib.util.find_spec("torchvision") else TORCHVISION
    # its import uses what setuptools has deprecated
    assert ndcg_of(code, tmp_path, files) > 0.3


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("allrank"), reason="allRank runs where it is installed")
def test_allranks_own_trainer_takes_the_loss(tmp_path):
    """As a module, and by name as its configuration gives it; and its metric is ours."""
    code = """
import torch, sinkprop
import allrank.models.losses
from allrank.models.metrics import ndcg
from allrank.training.train_utils import loss_batch
from functools import partial
from sinkprop.torch import SinkPropLoss, sinkprop_loss
allrank.models.losses.sinkprop = sinkprop_loss

class Model(torch.nn.Linear):
    def forward(self, x, mask, indices):
        return super().forward(x).squeeze(-1)

torch.manual_seed(0)
model = Model(3, 1)
x, y = torch.randn(4, 15, 3), torch.randint(0, 3, (4, 15)).float()
y[1, 4:], y[2] = -1, 0
by_name = partial(getattr(allrank.models.losses, "sinkprop"), gain="ndcg@10")
for loss in (SinkPropLoss(gain="ndcg@10"), by_name):
    before = model.weight.detach().clone()
    value, count = loss_batch(model, loss, x, y, None, None, torch.optim.SGD(model.parameters(), lr=0.1))
    assert -1 < value < 0 and count == 4 and not torch.equal(before, model.weight)
scores = model(x, None, None).detach()
theirs = ndcg(scores.clone(), y.clone(), ats=[10]).mean().item()
there = y >= 0
qid = torch.arange(4)[:, None].expand(4, 15)[there].numpy()
ours = sinkprop.evaluate(
    y[there].numpy(), scores[there].numpy(), qid, metrics="ndcg@10", convention="standard", empty=1
)["ndcg@10"]
assert abs(theirs - ours) < 1e-6, (theirs, ours)
print("NDCG@10", ours)
"""
    files = {} if importlib.util.find_spec("torchvision") else TORCHVISION
    ndcg_of(code, tmp_path, files)


def test_the_loss_goes_to_the_same_limit_as_the_table_says():
    """sinkprop_loss with NDCG(10, discount='log2') is minus the standard NDCG@10 as sigma goes to 0."""
    rng = np.random.default_rng(0)
    scores, labels = torch.tensor(rng.normal(size=(3, 30))), torch.tensor(rng.integers(0, 4, (3, 30)))
    loss = sinkprop_loss(
        scores,
        labels,
        gain=sinkprop.NDCG(10, discount="log2"),
        relaxation=sinkprop.SmoothedIndicator(1e-6),
        epsilon=0.0,
    )
    hard = sinkprop.evaluate(
        labels.flatten().numpy(),
        scores.flatten().numpy(),
        np.repeat(np.arange(3), 30),
        metrics=("ndcg@10",),
        convention="standard",
    )
    assert -loss.item() == pytest.approx(hard["ndcg@10"], rel=1e-9)
    assert sinkprop.objective.gains.as_gain("ndcg(discount=log2)@10") == sinkprop.NDCG(10, discount="log2")


def test_padding_is_what_the_page_says():
    scores = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.5, float("nan")]])
    relevance, n = torch.tensor([[0, 1, 2], [1, 0, 0]]), torch.tensor([3, 2])
    labels = torch.tensor([[0, 1, 2], [1, 0, -1]])
    mask = torch.arange(3) < n[:, None]
    expected = sinkprop_loss(scores, labels)
    assert sinkprop_loss(scores, relevance, mask=mask) == expected
    assert sinkprop_loss(scores, relevance, n) == expected
    assert sinkprop_loss(scores[..., None], relevance, n) == expected
    each = SinkPropLoss(reduction="none")(scores[..., None], relevance, n)
    assert each.shape == (2,)
    assert each.mean().item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_logistic_loss_of_pairs():
    """Sum over label_i > label_j of log2(1 + exp(-sigma (s_i - s_j))), one value a query."""
    scores, relevance = torch.tensor([[0.5, -0.2, 0.1, 9.0]]).double(), torch.tensor([[0, 2, 1, 0]])
    found = lambda_loss(
        scores[..., None], relevance, torch.tensor([3]), scheme="ranknet", sigma=2.0, reduction="none"
    )
    pairs = [(1, 0), (1, 2), (2, 0)]
    s = scores[0].tolist()
    assert found.tolist() == pytest.approx(
        [sum(np.log2(1 + np.exp(-2 * (s[i] - s[j]))) for i, j in pairs)], rel=1e-12
    )


def test_a_query_without_a_relevant_document_scales_the_mean_alone():
    scores = torch.tensor([[0.3, 1.0], [0.2, 0.1]], requires_grad=True)
    with_empty = sinkprop_loss(scores, torch.tensor([[1, 0], [0, 0]]))
    without = sinkprop_loss(scores[:1], torch.tensor([[1, 0]]))
    assert with_empty.item() == pytest.approx(without.item() / 2, rel=1e-6)
    (gradient,) = torch.autograd.grad(with_empty, scores)
    assert not gradient[1].any()
