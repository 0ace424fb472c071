"""Lists of documents as flat batches: the checks of queries, documents, labels and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Lists", "check_mini_batch_size", "check_scores"]

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
                f"inputs must be two columns, queries and lists of documents; got {len(inputs)} columns. "
                "Remove the others from the dataset with select_columns."
            )
        queries, docs = inputs
        if labels is None:
            raise ValueError(
                "labels: the batch has none. Name the column of lists of labels 'label' or 'labels'."
            )
        if not len(queries) == len(docs) == len(labels):
            raise ValueError(
                "inputs and labels must have one entry per query; got "
                f"{len(queries)} queries, {len(docs)} lists of documents and {len(labels)} lists of labels."
            )
        if len(queries) == 0:
            raise ValueError("inputs must hold at least one query; got none.")
        own = [torch.as_tensor(of) for of in labels]
        for q, (texts, of) in enumerate(zip(docs, own, strict=True)):
            query = f"query {q} ({_shown(queries[q])})"
            if isinstance(texts, str) or of.ndim == 0:
                raise ValueError(
                    "inputs and labels must hold a list of documents and a list of labels per query; "
                    f"{query} has {_shown(texts)} and the label {of.tolist()}. Put all documents of a query "
                    "into one row of the dataset."
                )
            if len(texts) == 0:
                raise ValueError(f"inputs: {query} has no documents. Remove it from the dataset.")
            if of.shape != (len(texts),):
                raise ValueError(
                    f"labels must have one label per document; {query} has {len(texts)} documents and labels "
                    f"of shape {tuple(of.shape)}."
                )
        pairs = [(query, text) for query, texts in zip(queries, docs, strict=True) for text in texts]
        flat = torch.cat([of.detach().cpu().float() for of in own])
        offsets = torch.tensor([0, *map(len, docs)]).cumsum(0)
        row = _first(~(flat.isfinite() & (flat >= 0)))
        if row is not None:
            raise ValueError(
                f"labels must be finite and not below 0; {_named(row, offsets, pairs)} has "
                f"{flat[row].item()}. Lists need no padding: leave out the documents that have no label."
            )
        return Lists(pairs, flat, offsets)


def check_scores(scores: Tensor, offsets: Tensor, pairs: Sequence[tuple[Any, Any]] | None = None) -> None:
    """Raise a ValueError for the first score that is NaN or infinite; the pairs' texts are shown if given."""
    row = _first(~scores.detach().isfinite())
    if row is not None:
        raise ValueError(
            f"scores must be finite; the model gives {_named(row, offsets, pairs)} the score "
            f"{scores[row].item()}. If it did not at the start of the training, the network has diverged: "
            "lower the learning rate, use more warm-up steps, clip the gradient (max_grad_norm), or train in "
            "bf16 or float32 instead of fp16."
        )


def _first(bad: Tensor) -> int | None:
    """Row of the first True, or None."""
    return int(bad.nonzero()[0]) if bool(bad.any()) else None


def _named(row: int, offsets: Tensor, pairs: Sequence[tuple[Any, Any]] | None = None) -> str:
    """Numbers, and texts if given, of the query and the document of a row."""
    q = int(torch.searchsorted(offsets.cpu(), row, right=True)) - 1
    place = row - int(offsets[q])
    if pairs is None:
        return f"document {place} of query {q} of the batch"
    query, text = pairs[row]
    return f"document {place} ({_shown(text)}) of query {q} ({_shown(query)})"


def check_mini_batch_size(size: Any) -> None:
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise ValueError(
            f"mini_batch_size must be a whole number from 1, or None for all documents at once; got {size!r}."
        )


def _shown(text: Any) -> str:
    return repr(text if len(str(text)) <= _SHOWN else f"{str(text)[:_SHOWN]}...")
