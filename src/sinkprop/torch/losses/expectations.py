"""Expectations of documents and ranks by torch's operations: matrices or, for long queries, sweeps.

Matrices take quadratic time and memory (`dense`), sweeps linear ones (`sweeps`). Sweeps need the symmetric
matrix of a smoothed indicator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sinkprop.objective.relaxations import Relaxation, SmoothedIndicator
from sinkprop.torch.losses import dense, sweeps
from sinkprop.torch.losses.terms import BatchTerm

__all__ = ["expected_gain", "project", "statistics"]

# number of documents from which sweeps are used; benchmarks/device.py measures the times of both
_FROM = 192


def expected_gain(
    scores: Tensor,
    gains: Tensor,
    discounts: Tensor,
    mask: Tensor | None,
    relaxation: Relaxation,
    half_steps: int,
    epsilon: float,
    tol: float = 0.0,
) -> Tensor:
    """Expected gain of each query b, (B,): sum_jm gains[b, j, m] sum_k Pi_b[j, k] discounts[m, k].

    Pi_b[j, k] is the probability that document j of query b is at rank k.

    scores     (B, n), larger is better; (B, n, 2), two parameters per document, for a `PartitionedMeasure`
    gains      (B, n, U) gain of each document under each of U discounts, divided by the query's ideal gain
    discounts  (U, n) each discount at each rank
    mask       (B, n) True for a document; None if there is no padding
    tol        if above 0, the limit of the normalization is taken, in which row and column sums are at most
               `tol` from 1; then `half_steps` is the largest number of iterations

    Differentiable in scores, gains and discounts.
    """
    E = project(scores, discounts, mask, relaxation, half_steps, epsilon, tol)
    # padding may hold any gain, including NaN
    products = gains * E if mask is None else torch.where(mask.unsqueeze(-1), gains, 0) * E
    return products.sum((-2, -1))


def project(
    scores: Tensor,
    discounts: Tensor,
    mask: Tensor | None,
    relaxation: Relaxation,
    half_steps: int,
    epsilon: float,
    tol: float = 0.0,
) -> Tensor:
    """Return the expected value of each discount for each document, E (B, n, U); 0 at padding.

    E[b, j, m] = sum_k Pi_b[j, k] discounts[m, k], with documents in the order of the input. Arguments are as
    in `expected_gain`.
    """
    if isinstance(relaxation, SmoothedIndicator) and scores.shape[1] >= _FROM:
        return sweeps.expected(scores, discounts, None, mask, relaxation, half_steps, epsilon, tol)[0]
    return dense.project(scores, discounts, mask, relaxation, half_steps, epsilon, tol)


def statistics(
    terms: Sequence[BatchTerm],
    scores: Tensor,
    mask: Tensor | None,
    relaxation: Relaxation,
    half_steps: int,
    epsilon: float,
    tol: float = 0.0,
) -> list[Tensor]:
    """Return the statistics of each term.

    R[b, c, k] = sum_j Pi_b[j, k] a_c[j] has the shape (B, C, n), and E[b, 0, j] = sum_k Pi_b[j, k] e[k] the
    shape (B, 1, n). Both are 0 at padding. Arguments are as in `expected_gain`.
    """
    if not (isinstance(relaxation, SmoothedIndicator) and scores.shape[1] >= _FROM):
        Pi = dense.normalized(scores, mask, relaxation, half_steps, epsilon, tol)
        # These are sums and not matrix products, because autocast would reduce a product's precision, also in
        # the reverse pass.
        return [
            (Pi * term.discounts[0]).sum(-1).unsqueeze(-2)
            if term.of_rows
            else torch.stack([(Pi * a.unsqueeze(-1)).sum(-2) for a in term.attributes.unbind(-1)], -2)
            for term in terms
        ]
    n = scores.shape[1]
    weights = [term.discounts[:1] for term in terms if term.of_rows]
    attributes = [term.attributes for term in terms if not term.of_rows]
    E, R = sweeps.expected(
        scores,
        torch.cat(weights) if weights else scores.new_zeros((0, n)),
        torch.cat(attributes, -1) if attributes else None,
        mask,
        relaxation,
        half_steps,
        epsilon,
        tol,
    )
    rows, columns = iter(E.mT.split(1, 1)), iter(R.split([a.shape[-1] for a in attributes], 1))
    return [next(rows) if term.of_rows else next(columns) for term in terms]
