"""Lists of documents as flat batches: the checks of queries, documents, labels and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Lists", "check_mini_batch_size", "finite_scores"]

_SHOWN = 60  # characters of a text in an error


@dataclass(frozen=True, eq=False)
class Lists:
    """Checked lists of documents, one per query.

    pairs    N pairs of a query's text and a document's text, query after query.
    labels   (N,) labels, float32, on the CPU.
    offsets  (Q + 1,) first pair of each query, and N.
    """

    pairs: list[tuple[Any, Any]]
    labels: Tensor
    offsets: Tensor

    @staticmethod
    def of(inputs: Sequence[Any], labels: Any) -> Lists:
        """Check the columns of a batch: queries and lists of documents, and the lists of their labels."""
        if len(inputs) != 2:
            raise ValueError(
                f"inputs must be two columns, queries and lists of documents; got {len(inputs)} columns. Remove "
                "the others from the dataset with select_columns."
            )
        queries, docs = inputs
        if labels is None:
            raise ValueError(
                "labels: the batch has none. Name the dataset's column of lists of labels 'label' or 'labels'."
            )
        if not len(queries) == len(docs) == len(labels):
            raise ValueError(
                "inputs and labels must have one entry per query; got "
                f"{len(queries)} queries, {len(docs)} lists of documents and {len(labels)} lists of labels."
            )
        flat = []
        for q, (texts, own) in enumerate(zip(docs, labels, strict=True)):
            own = torch.as_tensor(own)
            if isinstance(texts, str) or own.ndim == 0:
                raise ValueError(
                    f"inputs and labels must hold a list of documents and a list of labels per query; query {q} "
                    f"has {_shown(texts)} and the label {own.tolist()}. Group the rows of a query into one row."
                )
            if len(texts) == 0:
                raise ValueError(
                    f"inputs: query {q} ({_shown(queries[q])}) has no documents. Remove it from the dataset."
                )
            if own.shape != (len(texts),):
                raise ValueError(
                    f"labels must have one label per document; query {q} ({_shown(queries[q])}) has "
                    f"{len(texts)} documents and labels of shape {tuple(own.shape)}."
                )
            flat.append(own.detach().cpu().float())
        sizes = torch.tensor([0, *map(len, docs)])
        pairs = [(query, text) for query, texts in zip(queries, docs, strict=True) for text in texts]
        lists = Lists(pairs, torch.cat(flat), sizes.cumsum(0))
        place = lists.first(~(lists.labels.isfinite() & (lists.labels >= 0)))
        if place is not None:
            raise ValueError(
                f"labels must be finite and not below 0; {lists.named(place)} has {lists.labels[place].item()}. "
                "Lists need no padding: leave out the documents that have no label."
            )
        return lists

    @staticmethod
    def first(bad: Tensor) -> int | None:
        """Row of the first True, or None."""
        return int(bad.nonzero()[0]) if bool(bad.any()) else None

    def named(self, row: int) -> str:
        """Number and text of the query and the document of a row."""
        q = int(torch.searchsorted(self.offsets, row, right=True)) - 1
        query, text = self.pairs[row]
        return f"document {row - int(self.offsets[q])} ({_shown(text)}) of query {q} ({_shown(query)})"


def finite_scores(scores: Tensor, lists: Lists) -> Tensor:
    """Return the scores (N,), or raise an error that shows the first pair whose score is NaN or infinite."""
    row = Lists.first(~scores.detach().isfinite())
    if row is not None:
        raise ValueError(
            f"scores must be finite; the model gives {lists.named(row)} the score {scores[row].item()}. If it "
            "did not at the start of the training, the network has diverged: lower the learning rate, use more "
            "warm-up steps, clip the gradient (max_grad_norm), or train in bf16 or float32 instead of fp16."
        )
    return scores


def check_mini_batch_size(size: Any) -> None:
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise ValueError(
            f"mini_batch_size must be a whole number from 1, or None for all documents at once; got {size!r}."
        )


def _shown(text: Any) -> str:
    return repr(text if len(str(text)) <= _SHOWN else f"{str(text)[:_SHOWN]}...")
