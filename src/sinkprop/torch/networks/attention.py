"""A network with attention between the documents of a query, whose score depends on the whole list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from sinkprop.common.arguments import number, one_of, true_or_false, whole
from sinkprop.torch.networks.layers import ACTIVATIONS, Dropout

__all__ = ["AttentionNetwork", "ListTransformer", "padded_groups"]

# Largest number of padded rows of queries that attend together. It bounds the memory for the padding; one
# query with more documents is a group by itself.
_PADDED_ROWS = 1 << 14


class _Attention(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Multi-head scaled dot-product attention of each document to all documents of its query."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, groups: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor:
        """Return (N, width) for rows x (N, width); `groups` is the result of `padded_groups`."""
        projected = self.project(x)
        parts, places = [], []
        for rows, mask in groups:
            b, n = rows.shape
            q, k, v = projected[rows].view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            keys = None if mask is None else mask[:, None, None, :]
            seen = scaled_dot_product_attention(q, k, v, attn_mask=keys).transpose(1, 2).reshape(b, n, -1)
            parts.append(seen.flatten(0, 1) if mask is None else seen[mask])
            places.append(rows.flatten() if mask is None else rows[mask])
        order = torch.cat(places).argsort()
        mixed: Tensor = self.out(torch.cat(parts)[order])
        return mixed


class _Block(nn.Module):  # type: ignore[misc]
    """Attention and a layer on each document, each after layer normalization and added to its input."""

    def __init__(self, settings: ListTransformer) -> None:
        super().__init__()
        width = settings.width
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = _Attention(width, settings.heads)
        self.layers = nn.Sequential(
            nn.Linear(width, 2 * width),
            ACTIVATIONS[settings.activation](),
            Dropout(settings.dropout),
            nn.Linear(2 * width, width),
        )
        self.dropout = Dropout(settings.dropout)

    def forward(self, x: Tensor, groups: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor:
        x = x + self.dropout(self.attention(self.before_attention(x), groups))
        out: Tensor = x + self.dropout(self.layers(self.before_layers(x)))
        return out


class AttentionNetwork(nn.Module):  # type: ignore[misc]
    """Module that `ListTransformer` creates: blocks of attention, plus a linear function of the features."""

    def __init__(self, settings: ListTransformer, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self._n_outputs = n_outputs
        self._relative = settings.relative
        self.embed = nn.Linear((1 + settings.relative) * n_features, settings.width)
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(_Block(settings) for _ in range(settings.blocks))
        self.normalize = nn.LayerNorm(settings.width)
        self.head = nn.Linear(settings.width, n_outputs)
        self.linear = nn.Linear(n_features, n_outputs) if settings.linear else None

    def forward(self, rows: Tensor, offsets: Tensor) -> Tensor:
        groups = padded_groups(offsets)
        given = torch.cat([rows, _centered(rows, offsets)], dim=1) if self._relative else rows
        x = self.dropout(self.embed(given))
        for block in self.blocks:
            x = block(x, groups)
        out = self.head(self.normalize(x))
        if self.linear is not None:
            out = out + self.linear(rows)
        return out.squeeze(1) if self._n_outputs == 1 else out


def _centered(rows: Tensor, offsets: Tensor) -> Tensor:
    """Differences (N, D) of the rows from the mean row of their query."""
    sizes = offsets.diff()
    query = torch.repeat_interleave(torch.arange(len(sizes), device=rows.device), sizes)
    sums = torch.zeros((len(sizes), rows.shape[1]), dtype=rows.dtype, device=rows.device)
    means = sums.index_add(0, query, rows) / sizes[:, None]
    return rows - means[query]


def padded_groups(offsets: Tensor) -> list[tuple[Tensor, Tensor | None]]:
    """Put queries of similar length together; return the rows (b, n) of each group, and a mask (b, n).

    The mask is True for a document and False for padding, whose row is the query's first. It is None if all
    queries of the group have n documents. At most a quarter of a group of many rows is padding.

    >>> for rows, mask in padded_groups(torch.tensor([0, 1, 3])):
    ...     print(rows.tolist(), mask.tolist())
    [[1, 2], [0, 0]] [[True, True], [True, False]]
    """
    sizes = offsets.diff()
    sizes, order = sizes.sort(descending=True, stable=True)
    lengths, starts = sizes.tolist(), offsets[order]
    found, begin = [], 0
    for end in range(1, len(lengths) + 1):
        longest, count = lengths[begin], end - begin
        if (
            end < len(lengths)
            and (count + 1) * longest <= _PADDED_ROWS
            and (4 * lengths[end] >= 3 * longest or count * longest < 512)
        ):
            continue
        place = torch.arange(longest, device=offsets.device)
        mask = place < sizes[begin:end, None]
        rows = starts[begin:end, None] + torch.where(mask, place, 0)
        found.append((rows, None if lengths[end - 1] == longest else mask))
        begin = end
    return found


@final
@dataclass(frozen=True)
class ListTransformer:
    """Settings of a network for `NeuralRanker` with attention between the documents of a query.

    The score of a document depends on all documents of its query, but not on their order. So `predict` needs
    the queries. Calling it, ``ListTransformer(...)(n_features, n_outputs=1)``, creates the module with new
    random weights.

    Parameters
    ----------
    width : int, default 32
        Number of values per document within the network, a multiple of `heads`.
    blocks : int, default 1
        Number of blocks. Each has self-attention over the documents of a query, then a hidden layer of
        twice the width on each document. Both come after layer normalization and are added to their input.
    heads : int, default 2
        Number of attention heads.
    activation : {"relu", "gelu", "silu", "elu", "tanh"}, default "relu"
        Activation function of the hidden layers.
    dropout : float, default 0.3
        Probability with which an output of a layer is set to 0 in training, below 1.
    relative : bool, default True
        Whether the differences of the features from the query's means are inputs too. From few queries, the
        attention alone hardly learns to subtract them.
    linear : bool, default True
        Whether a linear function of the features is added to the output.

    Notes
    -----
    Queries of similar length are padded to the same length for the attention, at most about 16,000 rows at a
    time. PyTorch's attention does not keep the matrix of all pairs of documents.

    Examples
    --------
    >>> ListTransformer(16, blocks=1)  # doctest: +NORMALIZE_WHITESPACE
    ListTransformer(width=16, blocks=1, heads=2, activation='relu', dropout=0.3, relative=True,
                    linear=True)
    >>> module = ListTransformer(16)(n_features=3)
    >>> module(torch.zeros(5, 3), offsets=torch.tensor([0, 2, 5])).shape  # two queries
    torch.Size([5])
    """

    width: int = 32
    _: KW_ONLY
    blocks: int = 1
    heads: int = 2
    activation: str = "relu"
    dropout: float = 0.3
    relative: bool = True
    linear: bool = True

    def __post_init__(self) -> None:
        for name in ("width", "blocks", "heads"):
            object.__setattr__(self, name, whole(f"ListTransformer: {name}", getattr(self, name), 1))
        if self.width % self.heads:
            raise ValueError(
                f"ListTransformer: width must be a multiple of heads; got {self.width} and {self.heads}."
            )
        one_of("ListTransformer: activation", self.activation, tuple(ACTIVATIONS))
        object.__setattr__(self, "dropout", number("ListTransformer: dropout", self.dropout, below=1))
        for name in ("relative", "linear"):
            true_or_false(f"ListTransformer: {name}", getattr(self, name))

    def __call__(self, n_features: int, n_outputs: int = 1) -> AttentionNetwork:
        """Create the module for a number of features.

        Parameters
        ----------
        n_features : int
            Number of columns of the rows (N, n_features) that the module takes, with the `offsets` (Q + 1,)
            of the queries.
        n_outputs : int, default 1
            1 for one score per row, (N,), or 2 for the two parameters per row of a `PartitionedMeasure`,
            (N, 2).

        Returns
        -------
        torch.nn.Module
            Module with random weights, drawn from torch's global generator.
        """
        return AttentionNetwork(self, whole("n_features", n_features, 1), whole("n_outputs", n_outputs, 1))
