"""The program of docs/lightning.md, its metric in several processes and in half precision.

Everything runs in one process of its own, which is forked for two ranks: importing Lightning takes seconds.
"""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from frontends import front_end
from places import ROOT

from sinkprop.common.packages import installed
from sinkprop.datasets import load_pydocs

PROGRAM = r"""
import json, os, re, sys
import numpy as np

with open(sys.argv[1], encoding="utf-8") as file:
    blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.S | re.M)
page = {"__name__": "__main__"}
for code in blocks:
    exec(compile(code, sys.argv[1], "exec"), page)
L, torch, fold, items, collate = (page[name] for name in ("L", "torch", "fold", "items", "collate"))
found = {"blocks": len(blocks), "best": float(page["best"].best_model_score)}

with torch.no_grad():
    found["scores"] = page["model"](page["features"](fold.vali)).tolist()

# batches of two and of all queries, rows in another order
shuffled = fold.train.X[::-1].copy(), fold.train.y[::-1].copy(), fold.train.qid[::-1].copy()
again = type(fold.train)(*shuffled)
X, y, offsets, rows = collate(items(again))
found["whole"] = bool(all(len(set(again.qid[r.numpy()])) == 1 for _, _, r in items(again)))
found["labels"] = bool((y.numpy() == again.y[rows.numpy()]).all() and len(y) == len(again))
found["offsets"] = bool((offsets.diff().numpy() == again.groups.sizes).all())

# an odd number of queries: the sampler of two ranks repeats one of them
vali = fold.vali.select(list(dict.fromkeys(fold.vali.qid.tolist()))[:31])


class Compare(L.Callback):
    def __init__(self, name):
        self.name = name

    def on_validation_epoch_end(self, trainer, module):
        if trainer.sanity_checking:
            return
        half = torch.autocast("cpu", torch.bfloat16, enabled=self.name == "half")
        with torch.no_grad(), half:
            scores = module(page["features"](vali)).float().numpy()
        own = page["evaluate"](vali, scores, metrics="ndcg@10")["ndcg@10"]
        with open(f"{self.name}-{trainer.global_rank}.json", "w") as file:
            json.dump([float(module.ndcg.compute()), own, len(set(scores.tolist())) / len(vali)], file)


quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
kinds = {"ranks": {"strategy": "ddp_fork", "devices": 2}, "half": {"precision": "bf16-mixed"}}
for name, options in kinds.items():
    trainer = L.Trainer(
        max_epochs=2,
        callbacks=[Compare(name)],
        enable_checkpointing=False,
        accelerator="cpu",
        **options,
        **quiet,
    )
    loaders = [
        page["DataLoader"](items(queries), batch_size=8, collate_fn=collate) for queries in (fold.train, vali)
    ]
    trainer.fit(page["Ranker"](vali), *loaders)
found["compared"] = {}
for name in sorted(os.listdir(".")):
    if name.endswith(".json"):
        with open(name) as file:
            found["compared"][name.removesuffix(".json")] = json.load(file)
print("\nFOUND " + json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    if not installed("lightning"):
        front_end("lightning", "sinkprop.torch")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT / "docs/lightning.md")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path_factory.mktemp("lightning"),
    )
    assert done.returncode == 0, done.stderr
    head, _, last = done.stdout.rpartition("\nFOUND ")
    return {"printed": head, **json.loads(last)}


def ndcg(labels, scores, k=10):
    """NDCG@k of one query; 0 if no document is relevant."""
    discount = 1 / np.log2(np.arange(2, min(k, len(labels)) + 2))
    gains = 2.0**labels - 1
    ideal = np.sort(gains)[::-1][:k] @ discount
    return gains[np.argsort(-scores, kind="stable")][:k] @ discount / ideal if ideal else 0.0


def test_the_program_of_the_page_runs(found):
    assert found["blocks"] == 2
    best, test = re.findall(r"NDCG@10 (0\.\d+)|^ndcg@10 (0\.\d+)", found["printed"], re.M)
    assert float(best[0]) == pytest.approx(found["best"], abs=5e-4)
    assert 0.5 < float(test[1]) < 0.8


def test_the_metric_is_the_mean_over_all_queries(found):
    vali = load_pydocs().vali
    scores = np.array(found["scores"])
    values = [ndcg(vali.y[vali.qid == q], scores[vali.qid == q]) for q in np.unique(vali.qid)]
    assert found["best"] == pytest.approx(np.mean(values), abs=1e-6)


def test_items_are_whole_queries_for_rows_in_any_order(found):
    assert found["whole"]
    assert found["labels"]
    assert found["offsets"]


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_agree_although_a_query_is_repeated(found, rank):
    logged, own, distinct = found["compared"][f"ranks-{rank}"]
    assert logged == pytest.approx(own, abs=1e-6)
    assert 0.3 < own < 0.9
    assert distinct > 0.95


def test_half_precision_makes_ties(found):
    logged, own, distinct = found["compared"]["half-0"]
    assert logged == pytest.approx(own, abs=1e-6)
    assert distinct < 0.5  # as the page warns
