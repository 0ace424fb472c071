"""Layouts of batches of queries: padded, flat with offsets or query ids, and nested."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sinkprop.common.types import Mask
from sinkprop.data.checks import unmasked
from sinkprop.data.queries import Groups, group_rows
from sinkprop.torch.losses.modes import hidden, tracing

__all__ = [
    "NO_DOCUMENT",
    "Layout",
    "Part",
    "alike",
    "as_tensor",
    "flat_values",
    "in_batch_order",
    "layout_of",
    "without_last_axis",
]

NO_DOCUMENT = "mask must leave at least one document; it leaves none."


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of each query's documents in a tensor of one number per document.

    shape    Shape of that tensor: (B, n), (n,) for one query, or (N,) for a flat batch.
    mask     Padded batches: (B, n), True for a document; None if there is no padding.
    offsets  Flat batches: (Q + 1,), query q has the rows offsets[q] to offsets[q + 1]. None if padded.
    rows     Flat batches: (N,) row indices sorted by query; None if the rows are sorted already.
    """

    shape: tuple[int, ...]
    mask: Tensor | None = None
    offsets: Tensor | None = None
    rows: Tensor | None = None

    @property
    def is_padded(self) -> bool:
        return self.offsets is None

    @property
    def n_queries(self) -> int:
        """Number of queries, including rows of a padded batch that hold no document."""
        if self.offsets is not None:
            return len(self.offsets) - 1
        return self.shape[0] if len(self.shape) == 2 else 1

    def groups(self) -> tuple[Groups, Mask | None]:
        """Return the rows of each nonempty query, as `Groups` for the native code, and a mask of queries.

        The mask has the shape (Q,) and is True for nonempty queries; it is None if no query is empty. Raises
        a ValueError if all queries are empty.
        """
        if self.offsets is not None:
            offsets = self.offsets.numpy(force=True)
            rows = None if self.rows is None else self.rows.numpy(force=True)
            return Groups.of_sizes(np.diff(offsets), rows=rows), None
        n_queries, n = self.n_queries, self.shape[-1]
        if self.mask is None:
            ends = np.arange(n_queries + 1, dtype=np.int64) * n
            return Groups(ends, None, np.arange(n_queries), n), None
        mask = self.mask.numpy(force=True).reshape(-1, n)
        sizes = mask.sum(axis=1)
        rows = np.flatnonzero(mask)
        if not rows.size:
            raise ValueError(NO_DOCUMENT)
        present = None if sizes.min() else sizes > 0
        sizes = sizes[sizes > 0]
        return Groups.of_sizes(sizes, rows=rows), present

    def pad(self, x: Tensor) -> Tensor:
        """Convert x from the layout's shape to the padded shape (B, n); flat batches are padded with 0.

        If x has further axes at the end, they are kept.
        """
        if self.is_padded:
            return x if len(self.shape) == 2 else x[None]
        places, mask = self._places()
        filled = x[places]
        return torch.where(mask.reshape(mask.shape + (1,) * (x.ndim - 1)), filled, torch.zeros_like(filled))

    def padded_mask(self) -> Tensor | None:
        """Mask (B, n) of the documents in the result of `pad`; None if there is no padding."""
        if self.is_padded:
            return None if self.mask is None else self.mask.reshape(-1, self.shape[-1])
        return self._places()[1]

    def parts(self) -> list[Part]:
        """Split the batch into padded batches of queries of similar length, so that little is padding.

        There is one part if there is no padding, and where lengths are hidden, as in torch.compile.
        """
        if self.offsets is None:
            if self.mask is None or hidden(self.mask):
                return [Part(None, None, self.padded_mask())]
            width, documents = self.shape[-1], self.mask.reshape(-1, self.shape[-1])
            return [
                Part(q, q[:, None] * width + torch.arange(n, device=q.device), documents[q, :n])
                for q, n in alike(documents)
            ]
        sizes = self.offsets.diff()
        groups = [(torch.arange(len(sizes), device=sizes.device), int(sizes.max()))]
        parts = []
        for q, n in groups if tracing() else _by_length(sizes):
            i = torch.arange(n, device=sizes.device)
            mask = i < sizes[q, None]
            places = torch.where(mask, self.offsets[q, None] + i, 0)
            rows = places if self.rows is None else self.rows[places]
            parts.append(Part(q, rows, None if int(sizes[q].min()) == n else mask))
        return parts

    def of_parts(self, values: list[Tensor], parts: list[Part]) -> Tensor:
        """Put the values (B, n) of the documents of all parts into the layout's shape; 0 at padding."""
        if parts[0].rows is None:
            return values[0].reshape(self.shape)
        found = values[0].new_zeros(self.shape).reshape(-1)
        for x, part in zip(values, parts, strict=True):
            at = slice(None) if part.mask is None else part.mask
            found = found.index_put((part.rows[at].reshape(-1),), x[at].reshape(-1))  # type: ignore[index]
        return found.reshape(self.shape)

    def spread(self, per_query: Tensor) -> Tensor:
        """Give each document the value of its query: from (Q,) to a shape that broadcasts to `shape`."""
        if self.offsets is None:
            return per_query[:, None] if len(self.shape) == 2 else per_query
        by_query = per_query.repeat_interleave(self.offsets.diff())
        if self.rows is None:
            return by_query
        return torch.zeros_like(by_query).index_put((self.rows,), by_query)

    def total(self, x: Tensor) -> Tensor:
        """Sum of x, one number per document, over the documents of each query: (Q,)."""
        if self.offsets is None:
            x, mask = self.pad(x), self.padded_mask()
            return (x if mask is None else torch.where(mask, x, 0)).sum(-1)
        return x.new_zeros(self.n_queries).index_add(0, self._query(), x)

    def counts(self, x: Tensor) -> Tensor:
        """Number of documents of each query, at least 1, in the dtype of x: (Q,)."""
        if self.offsets is None and self.mask is None:
            return x.new_full((self.n_queries,), self.shape[-1])
        return self.total(torch.ones_like(x)).clamp(min=1)

    def largest(self, x: Tensor) -> Tensor:
        """Largest x, one number per document, of each query: (Q,). It is 0 if a row has no document."""
        if self.offsets is None:
            x, mask = self.pad(x), self.padded_mask()
            if mask is None:
                return x.amax(-1)
            return torch.where(mask.any(-1), torch.where(mask, x, -math.inf).amax(-1), 0)
        return x.new_zeros(self.n_queries).scatter_reduce(0, self._query(), x, "amax", include_self=False)

    def _query(self) -> Tensor:
        """Return the query of each row of a flat batch, from 0 to Q - 1: (N,)."""
        assert self.offsets is not None
        return self.spread(torch.arange(self.n_queries, device=self.offsets.device))

    def _places(self) -> tuple[Tensor, Tensor]:
        """Return the row index of the i-th document of each query, and a mask that is False if there is none.

        Both have the shape (Q, length of the longest query).
        """
        assert self.offsets is not None
        sizes = self.offsets.diff()
        i = torch.arange(int(sizes.max()), device=sizes.device)
        mask = i < sizes[:, None]
        places = torch.where(mask, self.offsets[:-1, None] + i, 0)
        return places if self.rows is None else self.rows[places], mask


@dataclass(frozen=True, eq=False)
class Part:
    """Some queries of a batch, as a padded batch (B, n).

    queries  (B,) number of each query in the batch; None if the part has all queries in order.
    rows     (B, n) index of each document among all places of the batch, arbitrary at padding; None if the
             batch is padded and the part has all its places.
    mask     (B, n) True for a document; None if there is no padding.
    """

    queries: Tensor | None
    rows: Tensor | None
    mask: Tensor | None

    def of(self, x: Tensor, layout: Layout) -> Tensor:
        """Return the entries of x for the part's documents, (B, n, ...), from the layout's shape."""
        further = tuple(x.shape[len(layout.shape) :])
        if self.rows is None:
            return x.reshape(-1, layout.shape[-1], *further)
        return x.reshape(-1, *further)[self.rows]


def in_batch_order(values: list[Tensor], parts: list[Part]) -> Tensor:
    """Return the values of the queries of all parts, (B,) each, in the order of the batch, (Q,)."""
    queries = [part.queries for part in parts if part.queries is not None]
    return torch.cat(values)[torch.cat(queries).argsort()] if queries else values[0]


def flat_values(x: Tensor) -> Tensor:
    """Return the rows of a nested tensor, query by query; return any other tensor unchanged."""
    if not x.is_nested:
        return x
    if x.layout is torch.jagged and x.lengths() is None:
        return x.values()
    return torch.cat(x.unbind())


def layout_of(
    scores: Tensor,
    labels: Tensor | None = None,
    *,
    width: int = 1,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    padding: float | None = None,
    label_columns: bool = False,
) -> Layout:
    """Return the layout of the scores: where the documents of each query are.

    Scores have the shape (B, n) if they are padded and (N,) if they are flat, or they are a nested tensor.

    Raises a ValueError if the arguments contradict each other or do not fit the scores.

    width          Scores per document. If it is 2, the scores have one more axis, of length 2.
    lengths        (B,) number of documents at the start of each row of a padded batch
    padding        Label, in the first label column, that marks padding if neither a mask nor lengths are
                   given; None if no label marks padding.
    label_columns  Whether the labels may have one axis more, of several label columns.
    """
    ways = {"mask": mask, "lengths": lengths, "offsets": offsets, "qid": qid}
    given = [name for name, x in ways.items() if x is not None]
    if len(given) > 1:
        raise ValueError(f"give mask, lengths, offsets or qid, not {' and '.join(given)} together.")
    if scores.is_nested:
        if given:
            raise ValueError(f"nested scores have their own queries; {given[0]} must not be given.")
        return _nested(scores, labels, label_columns)
    shape = _document_shape(scores, width)
    if labels is not None:
        _check_label_shape(tuple(labels.shape), shape, label_columns)
    if len(shape) == 1 and (offsets is not None or qid is not None):
        if offsets is not None:
            return Layout(shape, None, _checked_offsets(offsets, shape[0], scores.device))
        return _by_id(qid, shape[0], scores.device)
    if offsets is not None or qid is not None:
        raise ValueError(f"{given[0]} goes with flat scores, (N,); got scores of shape {shape}.")
    if lengths is not None:
        mask = _within(lengths, shape, scores.device)
    elif mask is None and labels is not None and padding is not None:
        found = (labels if labels.ndim == len(shape) else labels[..., 0]) != padding
        if hidden(found) or not bool(found.all()):
            mask = found
    elif mask is not None:
        mask = _checked_mask(mask, shape, scores.device)
    return Layout(shape, mask)


def alike(mask: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Group the queries of a padded batch by similar length, longest first; yields (queries, longest length).

    Computations that are quadratic in the length then waste little time on padding. Each group has an
    overhead of a fraction of a millisecond. To avoid many small groups, queries of different lengths are put
    in the same group as long as its padded matrices are small.
    """
    yield from _by_length((mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(dim=1))


def _by_length(ends: Tensor) -> Iterator[tuple[Tensor, int]]:
    """The same as `alike` for the lengths of the queries (Q,)."""
    order = ends.argsort(descending=True, stable=True)
    lengths = ends[order].tolist()
    start = 0
    for end in range(1, len(lengths) + 1):
        longest = lengths[start]
        if end == len(lengths) or (lengths[end] < 0.75 * longest and (end - start) * longest**2 > 50_000):
            yield order[start:end], max(longest, 1)
            start = end


def without_last_axis(scores: Tensor, flat: bool) -> Tensor:
    """Drop a last axis of length 1, which many networks output: from (B, n, 1), or from (N, 1) if flat."""
    dim = 2 if flat else 3
    return scores.squeeze(-1) if scores.ndim == dim and scores.shape[-1] == 1 else scores


def _nested(scores: Tensor, labels: Tensor | None, label_columns: bool) -> Layout:
    sizes = _sizes(scores)
    if labels is not None:
        if not labels.is_nested or _sizes(labels) != sizes:
            got = f"nested with {_sizes(labels)}" if labels.is_nested else f"of shape {tuple(labels.shape)}"
            raise ValueError(
                f"labels must be nested like the scores, with {sizes} documents; they are {got}."
            )
        _check_nested_columns([tuple(part.shape) for part in labels.unbind()], label_columns)
    if not sizes or min(sizes) < 1:
        raise ValueError(f"nested scores must have a document in every query; they have {sizes}.")
    ends = torch.tensor([0, *accumulate(sizes)], device=scores.device)
    return Layout((sum(sizes),), None, ends)


def _check_nested_columns(shapes: list[tuple[int, ...]], label_columns: bool) -> None:
    for shape in shapes:
        _check_label_shape(shape, shape[:1], label_columns)
        if shape[1:] != shapes[0][1:]:
            raise ValueError(
                f"labels must have the same number of label columns in every query; got queries of shape "
                f"{shapes[0]} and {shape}."
            )


def _check_label_shape(got: tuple[int, ...], shape: tuple[int, ...], label_columns: bool) -> None:
    """Raise a ValueError unless labels of the shape `got` fit documents of the shape `shape`."""
    if got == shape or (label_columns and got[:-1] == shape and got[-1] > 0):
        return
    columns = ""
    if label_columns and len(got) > len(shape):
        columns = f", or L label columns, ({', '.join(map(str, shape))}, L)"
    raise ValueError(f"labels must have one value per document, {shape}{columns}; got {got}.")


def _sizes(x: Tensor) -> list[int]:
    return [len(part) for part in x.unbind()]


def _document_shape(scores: Tensor, width: int) -> tuple[int, ...]:
    shape = tuple(scores.shape) if width == 1 else tuple(scores.shape[:-1])
    if len(shape) not in (1, 2) or (width > 1 and scores.shape[-1] != width):
        end = "" if width == 1 else f", {width}"
        raise ValueError(
            f"scores must have the shape (B, n{end}) or (N{end or ','}), or be nested; got "
            f"{tuple(scores.shape)}."
        )
    if 0 in shape:
        raise ValueError(f"scores must hold at least one document; got the shape {tuple(scores.shape)}.")
    return shape


def _checked_mask(mask: Any, shape: tuple[int, ...], device: torch.device) -> Tensor:
    mask = as_tensor("mask", mask, device)
    if tuple(mask.shape) != shape:
        raise ValueError(f"mask must have the shape of the documents, {shape}; got {tuple(mask.shape)}.")
    if mask.dtype is not torch.bool:
        raise ValueError(f"mask must be of dtype bool, True for a document; got {mask.dtype}.")
    return mask


def _within(lengths: Any, shape: tuple[int, ...], device: torch.device) -> Tensor:
    lengths = _whole_numbers("lengths", lengths, device)
    if len(shape) != 2 or len(lengths) != shape[0]:
        raise ValueError(
            f"lengths must have one number per row of scores (B, n); got {len(lengths)} for scores of shape "
            f"{shape}." + (" For flat scores give offsets= or qid=." if len(shape) == 1 else "")
        )
    if not hidden(lengths) and not bool(((lengths >= 0) & (lengths <= shape[1])).all()):
        raise ValueError(f"lengths must be from 0 to {shape[1]}; got {lengths.tolist()}.")
    return torch.arange(shape[1], device=device) < lengths[:, None]


def _checked_offsets(offsets: Any, n: int, device: torch.device) -> Tensor:
    offsets = _whole_numbers("offsets", offsets, device)
    if len(offsets) < 2 or int(offsets[0]) != 0 or int(offsets[-1]) != n:
        raise ValueError(
            f"offsets must go from 0 to the number of documents, {n}; got {offsets[:3].tolist()} ... "
            f"{offsets[-1:].tolist()}."
        )
    steps = offsets.diff()
    if int(steps.min()) < 1:
        query = int((steps < 1).nonzero()[0])
        raise ValueError(f"offsets must increase: every query has a document; query {query} has none.")
    return offsets


def _by_id(qid: Any, n: int, device: torch.device) -> Layout:
    ids = _whole_numbers("qid", qid, device)
    if len(ids) != n:
        raise ValueError(f"qid must have one id per document: {n} documents, but {len(ids)} ids.")
    groups = group_rows(ids.numpy(force=True), n)
    rows = None if groups.rows is None else torch.from_numpy(groups.rows).to(device)
    return Layout((n,), None, torch.from_numpy(groups.offsets).to(device), rows)


def as_tensor(name: str, x: Any, device: torch.device | None = None) -> Tensor:
    """Return x as a tensor. Raises a ValueError that calls it `name` if it has masked entries."""
    return torch.as_tensor(x if isinstance(x, Tensor) else unmasked(name, x), device=device)


def _whole_numbers(name: str, x: Any, device: torch.device) -> Tensor:
    x = as_tensor(name, x, device)
    if x.ndim != 1 or x.is_floating_point() or x.is_complex() or x.dtype is torch.bool:
        raise ValueError(f"{name} must be integers with one axis; got {x.dtype} of shape {tuple(x.shape)}.")
    return x.long()
