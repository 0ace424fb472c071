"""Gains of documents that are relevant to intents: of a ranking, and of the greedy ideal ranking.

A document at rank k that is relevant to intent i adds (1 - alpha)^c, where c is the number of documents above
rank k that are relevant to i. Its gain is the sum over its intents. The functions take all queries at once,
one after another; they have no Python loops over documents or queries.
"""

from __future__ import annotations

import numpy as np

from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["greedy_gains", "intents_present", "novelty_gains"]


_EQUAL = 1 - 1e-12  # gains above this share of the largest are equal to it, up to rounding
_VANISHED = 1e-30  # gains below this do not change any digit of a sum
_WIDTH = 31  # number of intents whose relevance is put into one integer


def intents_present(relevant: Mask, sizes: Integers) -> Integers:
    """(Q,) number of intents of each query that have a relevant document.

    relevant  (N, I) whether each document is relevant to each intent, query after query.
    sizes     (Q,) number of documents of each query.
    """
    found: Mask = np.logical_or.reduceat(relevant, np.cumsum(sizes) - sizes, axis=0)
    number: Integers = found.sum(axis=1, dtype=np.int64)
    return number


def novelty_gains(relevant: Mask, sizes: Integers, alpha: float) -> Floats:
    """(N,) gain of each document of rankings, sum_i a_i (1 - alpha)^c_i.

    relevant  (N, I) a: whether each document is relevant to each intent, query after query in rank order.
    sizes     (Q,) number of documents of each query.
    alpha     From 0 to 1: how much a document that repeats an intent loses.
    """
    above = np.cumsum(relevant, axis=0, dtype=np.int64)
    above -= relevant
    above -= np.repeat(above[np.cumsum(sizes) - sizes], sizes, axis=0)
    powers = np.power(1.0 - alpha, np.arange(int(sizes.max())))
    gains: Floats = np.where(relevant, powers[above], 0.0).sum(axis=1)
    return gains


def greedy_gains(relevant: Mask, sizes: Integers, alpha: float, depth: int) -> Floats:
    """(N,) gain at each rank of the greedy ideal ranking of each query; 0 at ranks after `depth`.

    The ideal ranking puts at each rank the document with the largest gain, given those above; among documents
    with equal gains, the one that comes first.

    relevant  (N, I) whether each document is relevant to each intent, query after query, in document order.
    sizes     (Q,) number of documents of each query.
    alpha     From 0 to 1: how much a document that repeats an intent loses.

    All queries are processed together, rank by rank. Documents of a query that are relevant to the same
    intents always have equal gains, so they form one kind, and the search is over kinds. The loop ends when
    no document has a gain left.
    """
    gains = np.zeros(len(relevant))
    documents = np.flatnonzero(relevant.any(axis=1))
    if not len(documents):
        return gains
    query = np.repeat(np.arange(len(sizes)), sizes)[documents]
    kind = _kinds(query, relevant[documents])
    order = np.argsort(kind, kind="stable")
    end = np.cumsum(np.bincount(kind))  # (P,) end of the documents of each kind in `order`
    head = np.concatenate([[0], end[:-1]])  # (P,) place in `order` of the first document left of each kind
    a = relevant[documents[order[head]]].astype(np.float64)  # (P, I)
    # `queries` (L,) are the queries that are not finished; kind p belongs to the one at place owner[p]
    queries, first, owner = np.unique(query[order[head]], return_index=True, return_inverse=True)
    worth = np.ones((len(queries), relevant.shape[1]))  # (1 - alpha)^c of each intent
    start = np.cumsum(sizes) - sizes
    for rank in range(depth):
        gain = np.einsum("pi,pi->p", a, worth[owner])
        top = np.maximum.reduceat(gain, first)
        going = top > _VANISHED
        if not going.any():
            break
        candidate = (gain >= top[owner] * _EQUAL) & (gain > _VANISHED)
        document = np.where(candidate, order[np.minimum(head, len(order) - 1)], len(order))
        chosen = np.flatnonzero(candidate & (document == np.minimum.reduceat(document, first)[owner]))
        of = owner[chosen]
        gains[start[queries[of]] + rank] = gain[chosen]
        worth[of] *= np.where(a[chosen] > 0, 1.0 - alpha, 1.0)
        head[chosen] += 1
        a[chosen[head[chosen] == end[chosen]]] = 0  # no document of this kind is left
        if 2 * np.count_nonzero(going) <= len(going):
            kept = going[owner]
            a, head, end = a[kept], head[kept], end[kept]
            queries, worth = queries[going], worth[going]
            owner = (np.cumsum(going) - 1)[owner[kept]]
            first = np.flatnonzero(np.diff(owner, prepend=-1))
    return gains


def _kinds(query: Integers, relevant: Mask) -> Integers:
    """(M,) number of each document's kind: documents of one query and the same intents have the same number.

    The numbers rise with the query.
    """
    kind = query
    for i in range(0, relevant.shape[1], _WIDTH):
        part = relevant[:, i : i + _WIDTH]
        bits = part @ (1 << np.arange(part.shape[1]))
        kind = np.unique(kind << part.shape[1] | bits, return_inverse=True)[1]
    return kind
