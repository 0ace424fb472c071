"""The smoothed indicator in linear time, in the operations of any array library.

Section 10 of docs/linear-time.md derives this form of the sweeps of section 3, for devices where a loop over documents is slow.
All functions take the array library as `xp`: numpy, torch or jax.numpy. They use only operations with the same name and
meaning in the three, and shapes that do not depend on the values, so that they can be traced, compiled, mapped over
a further axis and differentiated.

The documents of all queries form one list of N places, query by query, each query in the order of decreasing
scores. The list is cut into blocks of b documents, which may hold documents of several queries. Within a block, the
kernel matrix is formed, b numbers per document. Between blocks, the kernel is the sum of exponentials of section
3.2, 2 Re sum_m w_m exp(-s_m t): a block sends down sum_i x_i exp(-s_m t_i), where t_i is the distance of document i
from the block's last document, and these states are added up over the blocks by doubling: each adds the state of
the block before it, then of the block 2 before it, 4, 8, .... In the same way it sends up sums over the distances from its
first document.
Epsilon is a further exponential, with s = 0 and w = epsilon / 2.

Vectors are rows: (U, N) holds U of them. For any x, x_bar is the gradient of the final result with respect to x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sinkprop import _native

__all__ = ["Kernel", "Tables", "product", "slopes", "statistics", "statistics_rev", "tables"]

Array = Any
_AT_ONCE = 2  # number of pairs of vectors for which the slopes are computed together; more take more memory
_FARTHEST = 700.0  # distance at which all kernels are 0 in float64; its exponential does not overflow


@dataclass(frozen=True)
class Kernel:
    """The kernel of a smoothed indicator, and how its products are computed.

    name     "gaussian" or "laplace".
    sigma    Width of the kernel.
    epsilon  Number added to every entry of the matrix.
    block    Number b of documents per block.
    exact    Whether the Gaussian between blocks is a sum of 8 pairs of exponentials, with an error of 1e-13, or of 4, with
             an error of 3e-8, which suffices for float32.
    """

    name: str
    sigma: float
    epsilon: float
    block: int = 32
    exact: bool = True

    @property
    def scale(self) -> float:
        """Factor from a difference of scores to the distance t of the kernel."""
        return (2**0.5 if self.name == "gaussian" else 1.0) / self.sigma

    @property
    def exponents(self) -> list[tuple[complex, complex]]:
        """The pairs (s_m, w_m). The last one stands for epsilon."""
        laplace = [(1 + 0j, 0.5 + 0j)]
        pairs = laplace if self.name == "laplace" else _native.gauss_coefficients(8 if self.exact else 4)
        return [*pairs, (0j, self.epsilon / 2 + 0j)]


class Tables(NamedTuple):
    """Numbers that depend on the scores, shared by all products.

    y, queries  (B, b) scores and query numbers, in B blocks.
    near        (B, b, b) kernel within a block, with epsilon.
    features    (B, b, 4 P) exp(-s_m t) for the distance t from the block's last document, real and imaginary parts, and for
                that from its first document.
    gates       Real and imaginary parts (2, B, 1, P) of exp(-s_m t), where t is the distance from the last document of a
                block to the first document of the next. In this and in `jumps`, [0] is for sums that go down the list,
                and [1] for sums that go up, whose blocks are in reverse order.
    jumps       For each doubling, real and imaginary parts (2, B - shift, 1, P) of exp(-s_m t), where t is the distance
                between the last (first) documents of two blocks that are `shift` blocks apart.
    """

    y: Array
    queries: Array
    near: Array
    features: Array
    gates: tuple[Array, Array]
    jumps: list[tuple[Array, Array]]


def tables(xp: Any, y: Array, queries: Array, kernel: Kernel, longest: int) -> Tables:
    """Return the tables of a list of scores y (N,), N a multiple of the block size.

    queries  (N,) number of the query of each document, -1 at padding. Documents of one query are consecutive, and their
             scores decrease.
    longest  Number of documents of the longest query, or an upper bound.
    """
    b = kernel.block
    y, queries = y.reshape(-1, b), queries.reshape(-1, b)
    n_blocks = y.shape[0]
    t, same, _ = _distances(xp, y, queries, kernel)
    near = xp.where(same, _shape(xp, t, kernel) + kernel.epsilon, 0)

    first, last = y[:, :1], y[:, -1:]
    down = _exponentials(xp, y - last, queries == queries[:, -1:], kernel)
    up = _exponentials(xp, first - y, queries == queries[:, :1], kernel)
    features = xp.concatenate([*down, *up], -1)

    ends = xp.stack([y[:, -1], -xp.flip(y[:, 0], (0,))], 0)
    ids = xp.stack([queries[:, -1], xp.flip(queries[:, 0], (0,))], 0)
    gap = xp.concatenate([xp.zeros_like(y[:1, 0]), y[:-1, -1] - y[1:, 0]], 0)
    joined = xp.concatenate([queries[:1, 0] < queries[:1, 0], queries[:-1, -1] == queries[1:, 0]], 0)
    gaps = xp.stack([gap, xp.concatenate([gap[:1], xp.flip(gap[1:], (0,))], 0)], 0)
    joins = xp.stack([joined, xp.concatenate([joined[:1], xp.flip(joined[1:], (0,))], 0)], 0)
    jumps, shift = [], 1
    while shift < min(_spread(longest, b), n_blocks):
        far = _exponentials(xp, ends[:, :-shift] - ends[:, shift:], ids[:, :-shift] == ids[:, shift:], kernel)
        jumps.append((far[0][:, :, None], far[1][:, :, None]))
        shift *= 2
    re, im = _exponentials(xp, gaps, joins, kernel)
    return Tables(y, queries, near, features, (re[:, :, None], im[:, :, None]), jumps)


def _spread(longest: int, b: int) -> int:
    """Return the largest number of blocks, besides its own, in which a document's query has documents above it."""
    return 0 if longest < 2 else (longest - 2) // b + 1


def _distances(xp: Any, y: Array, queries: Array, kernel: Kernel) -> tuple[Array, Array, Array]:
    """Return the distances t (B, b, b) of the documents of each block, whether their queries are the same, and the sign of y_i - y_k.

    Positions tell the sign, so that it is not 0 for tied documents.
    """
    i = xp.cumsum(xp.ones_like(y[0]), 0)
    sign = xp.sign(i[None, :] - i[:, None])
    same = queries[:, :, None] == queries[:, None, :]
    t = xp.where(same, sign * (y[:, :, None] - y[:, None, :]), 0)
    return xp.clip(t * kernel.scale, 0, _FARTHEST), same, sign


def _shape(xp: Any, t: Array, kernel: Kernel) -> Array:
    """The kernel K at the distances t."""
    return xp.exp(t * t * -0.25 if kernel.name == "gaussian" else -t)


def _exponentials(xp: Any, distance: Array, same: Array, kernel: Kernel) -> tuple[Array, Array]:
    """Return the real and imaginary parts (..., P) of exp(-s_m t) for differences of scores (...); 0 where `same` is false."""
    t = xp.clip(xp.where(same, distance, 0) * kernel.scale, 0, _FARTHEST)
    one = xp.where(same, xp.ones_like(t), 0)
    re, im = [], []
    for s, _ in kernel.exponents:
        size = one * xp.exp(t * -s.real) if s else one
        re.append(size * xp.cos(t * s.imag) if s.imag else size)
        im.append(size * -xp.sin(t * s.imag) if s.imag else xp.zeros_like(t))
    return xp.stack(re, -1), xp.stack(im, -1)


def product(xp: Any, table: Tables, x: Array, kernel: Kernel) -> Array:
    """Return (A + epsilon) x for vectors x (U, N), where A is the kernel matrix of each query."""
    rows = _as_blocks(xp, x, kernel.block)
    y = rows @ table.near
    if rows.shape[0] > 1:
        arrived = _arrivals(xp, table, rows @ table.features, [w for _, w in kernel.exponents])
        y = y + arrived @ xp.swapaxes(table.features, 1, 2)
    return _as_vectors(xp, y)


def slopes(xp: Any, table: Tables, p: Array, q: Array, kernel: Kernel) -> Array:
    """Return sum_u p_u (dA q_u) + q_u (dA p_u), (N,), where dA[i, k] is the derivative of A[i, k] by the score of row i.

    p, q  (U, N) vectors
    """
    t, same, sign = _distances(xp, table.y, table.queries, kernel)
    K = _shape(xp, t, kernel)
    dK = -sign * xp.where(same, 0.5 * t * K if kernel.name == "gaussian" else K, 0)
    P, Q = _as_blocks(xp, p, kernel.block), _as_blocks(xp, q, kernel.block)
    pairs = xp.swapaxes(P, 1, 2) @ Q
    y = (dK * (pairs + xp.swapaxes(pairs, 1, 2))).sum(-1)
    if P.shape[0] > 1:
        weights = [s * w for s, w in kernel.exponents]
        for u in range(0, P.shape[1], _AT_ONCE):
            some, others = P[:, u : u + _AT_ONCE], Q[:, u : u + _AT_ONCE]
            both = xp.concatenate([some, others], 1)
            arrived = _arrivals(xp, table, both @ table.features, weights, opposite=True)
            far = arrived @ xp.swapaxes(table.features, 1, 2)
            y = y + (far * xp.concatenate([others, some], 1)).sum(1)
    return y.reshape(-1) * kernel.scale


def _arrivals(
    xp: Any, table: Tables, sent: Array, weights: Sequence[complex], opposite: bool = False
) -> Array:
    """Return what arrives in each block from those above and below it, as coefficients (B, U, 4 P) of its features.

    sent      (B, U, 4 P) what each block sends: for down and up, real and imaginary parts
    weights   Number per exponential
    opposite  Whether what comes from below counts negative
    """
    n = len(weights)
    re, im = (
        xp.stack([sent[..., k : k + n], xp.flip(sent[..., k + 2 * n : k + 3 * n], (0,))], 0) for k in (0, n)
    )
    shift = 1
    for jump in table.jumps:
        far_re, far_im = _times(jump, (re[:, :-shift], im[:, :-shift]))
        re = xp.concatenate([re[:, :shift], re[:, shift:] + far_re], 1)
        im = xp.concatenate([im[:, :shift], im[:, shift:] + far_im], 1)
        shift *= 2
    zero = xp.zeros_like(re[:, :1])
    before = (xp.concatenate([zero, re[:, :-1]], 1), xp.concatenate([zero, im[:, :-1]], 1))
    re, im = _times(table.gates, before)
    w = xp.stack([xp.full_like(re[0, 0, 0, 0], weight.real) for weight in weights], 0)
    v = xp.stack([xp.full_like(re[0, 0, 0, 0], weight.imag) for weight in weights], 0)
    re, im = 2 * (w * re - v * im), -2 * (w * im + v * re)
    sign = -1 if opposite else 1
    # what came down is for distances from the first document, what came up for those from the last
    return xp.concatenate([sign * xp.flip(re[1], (0,)), sign * xp.flip(im[1], (0,)), re[0], im[0]], -1)


def _times(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the product of complex numbers, given and returned as real and imaginary parts."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _as_blocks(xp: Any, x: Array, b: int) -> Array:
    """From vectors (U, N) to blocks (B, U, b)."""
    return xp.swapaxes(x.reshape(x.shape[0], -1, b), 0, 1)


def _as_vectors(xp: Any, x: Array) -> Array:
    """From blocks (B, U, b) to vectors (U, N)."""
    return xp.swapaxes(x, 0, 1).reshape(x.shape[1], -1)


class Scalings(NamedTuple):
    """The vectors q_0, ..., q_T of Sinkhorn's half steps, each (1, N) and 0 at padding, and u and v."""

    q: list[Array]
    u: Array
    v: Array


def scalings(xp: Any, table: Tables, kernel: Kernel, half_steps: int) -> Scalings:
    """Sinkhorn's iterations as vectors: section 1.1 of docs/linear-time.md."""
    present = table.queries.reshape(1, -1) >= 0
    one = xp.where(present, xp.ones_like(table.y.reshape(1, -1)), 0)
    q = [one]
    for _ in range(half_steps):
        w = product(xp, table, q[-1], kernel)
        q.append(xp.where(present, 1 / xp.where(present, w, 1), 0))
    u, v = (q[-1], (q[-2] if half_steps else one))[:: 1 if half_steps % 2 == 0 else -1]
    return Scalings(q, u, v)


def statistics(
    xp: Any, table: Tables, found: Scalings, d: Array, a: Array, kernel: Kernel
) -> tuple[Array, Array]:
    """Return what documents and ranks expect: E[m, j] = sum_k Pi[j, k] d[m, k] and R[c, k] = sum_j Pi[j, k] a[c, j].

    d  (U, N) numbers of the ranks; the document at place i is compared with rank i of its query
    a  (C, N) numbers of the documents
    """
    u, v = found.u, found.v
    made = product(xp, table, xp.concatenate([v * d, u * a], 0), kernel)
    n = d.shape[0]
    return u * made[:n], v * made[n:]


def statistics_rev(
    xp: Any, table: Tables, found: Scalings, d: Array, a: Array, E_bar: Array, R_bar: Array, kernel: Kernel
) -> tuple[Array, Array, Array]:
    """Reverse pass of `statistics`: the gradients with respect to the scores (N,), d and a. Section 1.3 and 2."""
    q, u, v = found
    n, T = d.shape[0], len(q) - 1
    x, z_bar = xp.concatenate([v * d, u * a], 0), xp.concatenate([u * E_bar, v * R_bar], 0)
    z, x_bar = product(xp, table, x, kernel), product(xp, table, z_bar, kernel)
    u_bar = (E_bar * z[:n]).sum(0)[None] + (a * x_bar[n:]).sum(0)[None]
    v_bar = (R_bar * z[n:]).sum(0)[None] + (d * x_bar[:n]).sum(0)[None]
    left, right = [z_bar], [x]
    q_bar, other_bar = (v_bar, u_bar) if T % 2 else (u_bar, v_bar)
    for t in range(T, 0, -1):
        w_bar = -q[t] * (q[t] * q_bar)
        left.append(w_bar)
        right.append(q[t - 1])
        if t > 1:  # q_0 is constant
            q_bar = product(xp, table, w_bar, kernel)
            if t == T:
                q_bar = q_bar + other_bar
    y_bar = slopes(xp, table, xp.concatenate(left, 0), xp.concatenate(right, 0), kernel)
    return y_bar, v * x_bar[:n], u * x_bar[n:]
