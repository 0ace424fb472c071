"""Rankings of many queries as flat arrays, and the sums over ranks from which metrics are computed.

The arrays hold one query after another, with the documents in rank order. For speed, this module has no
Python loops over documents, and it has Python loops over queries only where these are few or long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.queries import Groups
from sinkprop.metrics.ranking import ranks_in_order, sorted_order

__all__ = ["Cutoffs", "Ranked", "Ties"]


Ties = Literal["file", "average", "worst", "best"]
Cutoffs = Sequence[int | None]  # None is the whole ranking

_FEW_RANKS = 32  # largest cutoff for which a sum over ranks is computed rank by rank
_CHUNK = 4096
_VANISHED = 1e-60  # probabilities below this do not change any digit of a sum
_STEP = 3000  # cost of one step of a Python loop, in floating-point additions
_MOST_WORK = 2e9


@dataclass(frozen=True, eq=False)
class Blocks:
    """Runs of tied documents. A run is all documents of one query that have the same score.

    Documents are in rank order, so those of a run are consecutive. A document without a tie is a run of one.

    starts  (B,) position of the first document of each run.
    sizes   (B,) number of documents of each run.
    """

    starts: Integers
    sizes: Integers

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return (N,) values, one per document, from (B,) values, one per run of tied documents."""
        return np.repeat(values, self.sizes)

    @cached_property
    def places(self) -> Integers:
        """(N,) position of each document among the documents of its query with the same score, from 0."""
        places: Integers = np.arange(int(self.sizes.sum()), dtype=np.int64) - self.spread(self.starts)
        return places


@dataclass(frozen=True, eq=False)
class Ranked:
    """The labels of every query in rank order.

    labels   (N,) labels in input order; the first column, if there is one label per intent.
    values   (V,) distinct labels in ascending order. For whole-number labels these are 0, 1, ... up to the
             largest, even if no document has some of them.
    codes    (N,) label of each document as an index of `values`, in rank order.
    offsets  (Q + 1,) start of each query, and the end of the last.
    longest  Number of documents of the longest query.
    blocks   Runs of tied documents, if ties are averaged and there are any; else None.
    intents  (N, I) labels of each intent in input order; (N, 1) if there is one label per document.
    rows     (N,) index of each document's row in `labels` and `intents`, query after query in rank order,
             with tied documents in input order.
    groups   The groups that assign the rows to queries.
    """

    labels: Floats
    values: Floats
    codes: Integers
    offsets: Integers
    longest: int
    blocks: Blocks | None
    intents: Floats
    rows: Integers
    groups: Groups

    @staticmethod
    def of(y: Floats, x: Floats, groups: Groups, ties: Ties) -> Ranked:
        """Return the labels y, with the documents of each query ranked by their scores x (N,).

        y is one label per document, (N,), or one per document and intent, (N, I). The arguments must have
        been checked. `groups` assigns the rows to queries, and `ties` is the order of documents with equal
        scores, as in `Convention`.
        """
        intents = y.reshape(len(x), -1)
        y = y if y.ndim == 1 else np.ascontiguousarray(y[:, 0])
        values, codes = _label_codes(y)
        rows = sorted_order(x, groups)
        codes = codes[rows]
        blocks = None if ties == "file" else _tied_blocks(x[rows], groups.offsets)
        if blocks is not None and ties != "average":
            codes = _sorted_codes(codes, blocks.starts, blocks.sizes, len(values), falling=ties == "best")
            blocks = None
        return Ranked(y, values, codes, groups.offsets, groups.longest, blocks, intents, rows, groups)

    @cached_property
    def starts(self) -> Integers:
        return self.offsets[:-1]

    @cached_property
    def sizes(self) -> Integers:
        return np.diff(self.offsets)

    @cached_property
    def rows_by_query(self) -> Integers:
        """(N,) indices of the rows, query after query, in input order within each query."""
        rows = self.groups.rows
        return np.arange(len(self.rows), dtype=np.int64) if rows is None else rows

    @cached_property
    def ranks(self) -> Integers:
        """(N,) ranks 1, 2, ... within each query."""
        return ranks_in_order(self.offsets)

    @cached_property
    def ideal(self) -> Integers:
        """(N,) labels of each query in descending order, each as an index of `values`."""
        return _sorted_codes(self.codes, self.starts, self.sizes, len(self.values), falling=True)

    @cached_property
    def _counts(self) -> dict[bytes, Integers]:
        return {}

    def count(self, positive: Mask) -> Integers:
        """(Q,) number of documents of each query whose label is in `positive`, a mask of `values`."""
        key = positive.tobytes()
        if key not in self._counts:
            self._counts[key] = np.add.reduceat(positive[self.codes].astype(np.int64), self.starts)
        return self._counts[key]

    def by_rank(self, table: Floats) -> Floats:
        """Return the entry of `table` for the label of each document, in rank order: (N,).

        `table` has one entry per label of `values`. If ties are averaged, tied documents get the mean of
        their entries.
        """
        values = table[self.codes]
        if self.blocks is None:
            return values
        means: Floats = np.add.reduceat(values, self.blocks.starts) / self.blocks.sizes
        return self.blocks.spread(means)

    def without_short(self, values: Floats, k: int | None) -> Floats:
        """Return values per query, with 0 in place of the values of queries with fewer than k documents."""
        return values if k is None else values * (self.sizes >= min(k, self.longest + 1))

    def first(self, k: int | None) -> Integers:
        """(Q,) number of documents at the first k ranks: k, or the size of a shorter query."""
        return self.sizes if k is None else np.minimum(self.sizes, min(k, self.longest))

    def sums(self, values: Floats, weights: Floats | None, cutoffs: Cutoffs) -> list[Floats]:
        """Sum values * weights[rank - 1] over the first k ranks of each query: (Q,) for each cutoff k.

        All cutoffs from the size of the longest query on have the same sums, and share one array. For small
        cutoffs, ranks are added one after another, so the cutoffs 1 to 10 together take one pass over ten
        ranks. For a larger cutoff, whole arrays are summed.
        """
        ends = [self.longest if k is None else min(k, self.longest) for k in cutoffs]
        done: dict[int, Floats] = {}
        if small := sorted({end for end in ends if end <= _FEW_RANKS}):
            total, shortest = np.zeros(len(self.starts)), int(self.sizes.min())
            for place in range(small[-1]):
                weight = 1.0 if weights is None else weights[place]
                if place < shortest:
                    total += values[self.starts + place] * weight
                else:
                    longer = np.flatnonzero(self.sizes > place)
                    total[longer] += values[self.starts[longer] + place] * weight
                if place + 1 in small:
                    done[place + 1] = total.copy()
        if large := set(ends) - done.keys():
            terms = values if weights is None else values * weights[self.ranks - 1]
            for end in large:
                kept = terms if end == self.longest else np.where(self.ranks <= end, terms, 0.0)
                done[end] = np.add.reduceat(kept, self.starts)
        return [done[end] for end in ends]

    def running(self, operation: np.ufunc, values: Floats, depth: int | None = None) -> Floats:
        """Running sums or products (N,) over the first `depth` ranks of each query; 0 at later ranks.

        All queries are processed together, rank by rank, until so few longer queries are left that it is
        cheaper to process them one by one. This takes at most about 2 sqrt(N) steps.
        """
        sizes = self.sizes if depth is None else np.minimum(self.sizes, depth)
        longest = int(sizes.max())
        if self.longest == 1:
            return values.copy()
        # uint16 is faster, because NumPy sorts it by a radix sort
        kind = np.uint16 if longest < 2**16 else np.int64
        by_size = np.argsort((longest - sizes).astype(kind), kind="stable")
        starts, falling = self.starts[by_size], sizes[by_size]
        # steps[i]: number of ranks to process for all queries together if the i longest queries are finished
        # one by one afterwards; it is the size of the longest of the other queries
        steps = np.append(falling, 1)
        alone = int(np.argmin(np.arange(len(steps)) + steps))
        together = int(steps[alone])
        out = np.zeros_like(values)
        out[starts] = values[starts]
        longer = np.searchsorted(
            -falling, -np.arange(1, together), side="left"
        )  # for each number 1, 2, ..., how many queries have more documents than that
        for place, many in enumerate(longer.tolist(), start=1):
            here = starts[:many] + place
            out[here] = operation(out[here - 1], values[here])
        for start, size in zip(starts[:alone].tolist(), falling[:alone].tolist(), strict=True):
            end = start + size
            for a in range(start + together - 1, end - 1, _CHUNK):
                b = min(a + 1 + _CHUNK, end)
                out[a:b] = operation.accumulate(np.append(out[a], values[a + 1 : b]))
                if operation is np.multiply and abs(out[b - 1]) < _VANISHED:
                    break  # later products are left at 0; they could be subnormal numbers, which are slow
        return out

    def cascade(self, hazards: Floats, cutoffs: Cutoffs) -> Floats:
        """(N,) probability that a reader stops at each rank, up to the largest cutoff.

        It is h_k prod_(i<k) (1 - h_i) at rank k, where the hazard h_k is the probability that a reader who
        reaches rank k stops there.
        """
        before = self._before(self.running(np.multiply, 1 - hazards, self.depth(cutoffs)))
        return hazards * before

    def first_relevant(self, positive: Mask, cutoffs: Cutoffs) -> Floats:
        """(N,) probability that the first relevant document is at each rank, up to the largest cutoff.

        It is 1 or 0 unless ties are averaged. In a run of n tied documents, r of them relevant, the document
        after i irrelevant ones is relevant with probability r/(n - i).
        """
        found = positive[self.codes].astype(np.float64)
        if self.blocks is None:
            return self.cascade(found, cutoffs)
        relevant = self.blocks.spread(np.add.reduceat(found, self.blocks.starts))
        left = self.blocks.spread(self.blocks.sizes) - self.blocks.places
        return self.cascade(np.minimum(relevant / left, 1.0), cutoffs)

    def average_cascade(self, table: Floats, cutoffs: Cutoffs) -> Floats:
        """(N,) probability that a reader stops at each rank, averaged over all orders of tied documents.

        A reader who reaches a document stops there with the probability that `table` has for its label.
        """
        hazards, depth = table[self.codes], self.depth(cutoffs)
        going = self.running(np.multiply, 1 - hazards, depth)
        before = self._before(going)
        stops = hazards * before
        if self.blocks is None:
            return stops
        b = self.blocks
        mixed = np.maximum.reduceat(self.codes, b.starts) != np.minimum.reduceat(self.codes, b.starts)
        mixed &= (self.ranks[b.starts] <= depth) & (before[b.starts] > _VANISHED)
        stops[b.spread(mixed)] = 0
        chosen = np.flatnonzero(mixed)
        power = np.frexp(b.sizes[chosen])[1]
        # Runs of similar sizes are processed together, as rows of one matrix, which then has little padding.
        for p in np.unique(power):
            some = chosen[power == p]
            starts, sizes = b.starts[some], b.sizes[some]
            means = _symmetric_means(1 - table, self.codes, starts, sizes, depth)
            falls = before[starts, None] * (means[:, :-1] - means[:, 1:])
            places = np.arange(falls.shape[1])
            inside = places < sizes[:, None]
            stops[(starts[:, None] + places)[inside]] = falls[inside]
        return stops

    def _before(self, running: Floats) -> Floats:
        """Shift running products by one rank: the product over all earlier ranks, which is 1 at the first."""
        before = np.empty_like(running)
        before[1:] = running[:-1]
        before[self.starts] = 1
        return before

    def depth(self, cutoffs: Cutoffs) -> int:
        """Return the largest number of ranks that count in any query."""
        return max(self.longest if k is None else min(k, self.longest) for k in cutoffs)


def _symmetric_means(x: Floats, codes: Integers, starts: Integers, sizes: Integers, depth: int) -> Floats:
    """Elementary symmetric means m_0 = 1, m_1, ..., m_W of each of B runs of tied documents: (B, W + 1).

    m_i is the probability that a reader continues after each of the first i documents of a run, averaged
    over all orders of the run. So m_(i-1) - m_i is the probability that the reader stops at document i.
    For a run of n documents whose probabilities to continue are x_1, ..., x_n,
    m_i = e_i(x_1, ..., x_n) / C(n, i), where e_i is the elementary symmetric polynomial of degree i.

    x              Probability to continue after a document of each label.
    codes          (N,) label of each document as an index of `x`, in rank order.
    starts, sizes  (B,) position of the first document, and number of documents, of each run.
    depth          Largest i that is needed.

    W is the smallest of three numbers: the size of the largest run, `depth`, and the i from which m_i is
    negligible. By Maclaurin's inequality, m_i is at most the i-th power of the mean of the x_j.

    The documents are added one by one (`_with_one`) or label by label (`_with_copies`), whichever is faster.
    Both ways add and multiply nonnegative numbers only, so there is no cancellation.
    """
    n_blocks, longest = len(starts), int(sizes.max())
    block = np.repeat(np.arange(n_blocks), sizes)
    place = np.arange(len(block)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    theirs = codes[starts[block] + place]
    mean = float((np.bincount(block, x[theirs]) / sizes).max().clip(1e-300, 1 - 1e-15))
    width = min(longest, depth, int(np.log(_VANISHED) / np.log(mean)) + 1)
    present = np.unique(theirs)
    counts = np.stack([np.bincount(block[theirs == v], minlength=n_blocks) for v in present])
    most = np.minimum(counts.max(axis=1), width)
    one_by_one = longest * (_STEP + n_blocks * width)
    by_value = float((width * (_STEP + n_blocks * most)).sum())
    if min(one_by_one, by_value) > _MOST_WORK:
        raise ValueError(
            f"ties='average' takes too long for err if {longest} documents are tied: the time grows with the "
            "square of that number, or of the cutoff. Use a smaller cutoff such as err@10, or ties='worst', "
            "'best' or 'file'."
        )
    means = np.zeros((n_blocks, width + 1))
    means[:, 0] = 1
    if one_by_one <= by_value:
        values = np.ones((n_blocks, longest))
        values[block, place] = x[theirs]
        for e in range(longest):
            live = np.flatnonzero(sizes > e)
            means[live] = _with_one(means[live], e, values[live, e])
    else:
        before = np.zeros(n_blocks, np.int64)
        for value, count, top in zip(x[present], counts, most, strict=True):
            means = _with_copies(means, before, value, count, int(top))
            before += count
    return means


def _with_one(means: Floats, n: int, x: Floats) -> Floats:
    """Update the elementary symmetric means of B runs, each of n documents, for one more document per run.

    `means` (B, W + 1) are the means m_0, ..., m_W of `_symmetric_means`, and x (B,) is the probability to
    continue after the added document.
    """
    i = np.arange(1, means.shape[1])
    out = means.copy()
    out[:, 1:] *= np.maximum(n + 1 - i, 0) / (n + 1)
    out[:, 1:] += means[:, :-1] * x[:, None] * (np.minimum(i, n + 1) / (n + 1))
    return out


def _with_copies(means: Floats, n: Integers, x: float, count: Integers, most: int) -> Floats:
    """Update the elementary symmetric means of B runs for several more documents of the same label.

    means  (B, W + 1) means m_0, ..., m_W of `_symmetric_means` before the update.
    n      (B,) number of documents of each run before the update.
    x      Probability to continue after each added document.
    count  (B,) number of documents to add to each run.
    most   Largest number of added documents among the first i documents of a run, for any i up to W.

    The first i documents of a run after the update are a random draw from it. With the hypergeometric
    probability H[j], j of them are added documents and i - j are old ones. The probability to continue after
    all i is then x^j m_(i-j). So the new m_i is the sum of H[j] x^j m_(i-j) over j.
    """
    j = np.arange(most + 1)
    H = np.zeros((len(means), most + 1))
    H[:, 0] = 1
    powers = x**j
    out = np.zeros_like(means)
    out[:, 0] = 1
    for i in range(1, means.shape[1]):
        left = np.maximum(n + count - (i - 1), 1)[:, None]
        new = H * (np.maximum(count[:, None] - j, 0) / left)
        H *= np.maximum(n[:, None] - (i - 1 - j), 0) / left
        H[:, 1:] += new[:, :-1]
        top = min(i, most)
        drawn = H[:, : top + 1] * powers[: top + 1]
        out[:, i] = np.einsum("bj,bj->b", drawn, means[:, i - top : i + 1][:, ::-1])
    return out


def _label_codes(y: Floats) -> tuple[Floats, Integers]:
    """Return distinct labels in ascending order, and the label of each document (N,) as an index of them.

    If all labels are whole numbers below 1024, the distinct labels are 0, 1, ... up to the largest label.
    """
    largest = float(y.max())
    if largest < 1024:
        codes = y.astype(np.int64)
        if (codes == y).all():
            return np.arange(int(largest) + 1, dtype=np.float64), codes
    values, inverse = np.unique(y, return_inverse=True)
    return values, inverse.astype(np.int64)


def _tied_blocks(sorted_scores: Floats, offsets: Integers) -> Blocks | None:
    """Find the runs of equal scores within queries; None if no two scores of a query are equal."""
    first = np.empty(len(sorted_scores), dtype=bool)
    np.not_equal(sorted_scores[1:], sorted_scores[:-1], out=first[1:])
    first[offsets[:-1]] = True
    if first.all():
        return None
    starts = np.flatnonzero(first)
    return Blocks(starts, np.diff(starts, append=len(first)))


def _sorted_codes(
    codes: Integers, starts: Integers, sizes: Integers, n_values: int, *, falling: bool
) -> Integers:
    """Sort the codes within each segment, in descending order if `falling`, else in ascending order.

    Segment i has the codes from starts[i] to starts[i] + sizes[i]; the segments follow one another. Codes are
    whole numbers below `n_values`.
    """
    if len(starts) == len(codes):
        return codes
    base = np.repeat(np.arange(len(starts), dtype=np.int64) * n_values, sizes)
    key = base + (n_values - 1 - codes if falling else codes)
    if len(starts) * n_values <= len(codes):  # counting is faster than sorting if there are few values
        counts = np.bincount(key, minlength=len(starts) * n_values)
        key = np.repeat(np.tile(np.arange(n_values, dtype=np.int64), len(starts)), counts)
    else:
        key.sort()
        key -= base
    return n_values - 1 - key if falling else key
