"""The smoothed indicator in linear time, in the operations of any array library.

Section 10 of docs/linear-time.md derives this form of the sweeps of section 3, for devices on which a loop
over documents is slow. All functions take the array library as `xp`: numpy, torch or jax.numpy. They use only
operations that have the same name and meaning in the three, and shapes that do not depend on values, so that
they can be traced, compiled, mapped over a further axis, and differentiated.

The documents of all queries form one list of N places: query by query, and by decreasing score within each.
The list is cut into blocks of b documents; a block may hold documents of several queries. Within a block, the
kernel matrix is formed, b numbers per document. Between blocks, the kernel is the sum of exponentials of
section 3.2, 2 Re sum_m w_m exp(-s_m t). A block sends down sum_i x_i exp(-s_m t_i), where t_i is the distance
of document i from the last document of the block, and sends up the same for the distances from its first
document. Doubling adds up what the blocks send: each block adds the sum of the block before it, then of the
block 2 before it, 4, 8, ... Epsilon is a further exponential, with s = 0 and w = epsilon / 2.

Vectors are rows: (U, N) holds U of them. For any x, x_bar is the gradient of the final result with respect to
x.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sinkprop import _native

__all__ = [
    "Kernel",
    "Scalings",
    "Tables",
    "limit_statistics_rev",
    "product",
    "scalings",
    "slopes",
    "smoothing",
    "statistics",
    "statistics_rev",
    "tables",
]

Array = Any
Complex = tuple[Array, Array]  # real and imaginary parts

_FARTHEST = 700.0  # distance at which all kernels are 0 in float64; its exponential does not overflow
_AT_ONCE = 2  # number of pairs of vectors whose slopes are computed together; more would take more memory
_SOLVE = 20  # number of iterations that solve the system of the limit to the precision of float64
_GAUSSIAN = {
    pairs: tuple((s.real, s.imag, w.real, w.imag) for s, w in _native.gauss_coefficients(pairs))
    for pairs in (4, 8)
}


class Kernel(NamedTuple):
    """The kernel of a smoothed indicator, and how its products are computed; see `smoothing`.

    is_gaussian  Whether K(t) = exp(-t^2 / 4), or exp(-t) for the Laplace kernel.
    scale        Factor from a difference of scores to the distance t.
    epsilon      Number added to every entry of the matrix.
    block        Number b of documents per block.
    pairs        (s_m, w_m) of each exponential: real and imaginary part of s_m, then of w_m.
    """

    is_gaussian: bool
    scale: float
    epsilon: float
    block: int
    pairs: tuple[tuple[float, float, float, float], ...]


def smoothing(kernel: str, sigma: float, epsilon: float, *, exact: bool = True, block: int = 32) -> Kernel:
    """Return the kernel called "gaussian" or "laplace" of the width sigma.

    exact  Whether the Gaussian between blocks is the sum of 8 pairs of exponentials, with an error of 1e-13,
           or of 4, with an error of 3e-8, which suffices for float32
    """
    gaussian = kernel == "gaussian"
    pairs = _GAUSSIAN[8 if exact else 4] if gaussian else ((1.0, 0.0, 0.5, 0.0),)
    scale = (2**0.5 if gaussian else 1.0) / sigma
    return Kernel(gaussian, scale, epsilon, block, (*pairs, (0.0, 0.0, epsilon / 2, 0.0)))


class Tables(NamedTuple):
    """Numbers that depend on the scores and are shared by all products. There are B blocks.

    y, queries  (B, b) scores and query numbers.
    near        (B, b, b) kernel within each block, with epsilon.
    features    (B, b, 4 P) exp(-s_m t) of each document, for the distance t from the last document of its
                block, then from the first; real parts, then imaginary parts.
    gates       (2, B, 1, P) exp(-s_m t) for the distance t from the last document of the block before to the
                first document of this block. In this and in `jumps`, [0] is for what goes down the list and
                [1] for what goes up, with the blocks in reverse order.
    jumps       For each doubling, (2, B - shift, 1, P) exp(-s_m t) for the distance t between the last
                (first) documents of two blocks that are `shift` blocks apart.
    """

    y: Array
    queries: Array
    near: Array
    features: Array
    gates: Complex
    jumps: list[Complex]


def tables(xp: Any, y: Array, queries: Array, kernel: Kernel, longest: int) -> Tables:
    """Return the tables of a list of scores y (N,), where N is a multiple of the block size.

    queries  (N,) number of the query of each document, -1 at padding. Documents of a query are consecutive,
             and their scores decrease.
    longest  number of documents of the longest query, or an upper bound
    """
    y, queries = y.reshape(-1, kernel.block), queries.reshape(-1, kernel.block)
    t, same, _ = _distances(xp, y, queries, kernel)
    near = xp.where(same, _shape(xp, t, kernel) + kernel.epsilon, 0)

    down = _exponentials(xp, y - y[:, -1:], queries == queries[:, -1:], kernel)
    up = _exponentials(xp, y[:, :1] - y, queries == queries[:, :1], kernel)
    features = _joined(xp, [*down, *up], -1)

    none = xp.zeros_like(y[:1, 0])
    gap = y[:-1, -1] - y[1:, 0]
    gaps = _both_ways(xp, _joined(xp, [none, gap], 0), _joined(xp, [gap, none], 0))
    joined, no = queries[:-1, -1] == queries[1:, 0], queries[:1, 0] != queries[:1, 0]
    joins = _both_ways(xp, _joined(xp, [no, joined], 0), _joined(xp, [joined, no], 0))
    gates = _exponentials(xp, gaps, joins, kernel)

    ends = _both_ways(xp, y[:, -1], -y[:, 0])
    of_ends = _both_ways(xp, queries[:, -1], queries[:, 0])
    jumps, shift = [], 1
    # a query of n documents lies in at most (n - 2) // b + 2 blocks
    while shift < min((longest - 2) // kernel.block + 1, y.shape[0]):
        same = of_ends[:, :-shift] == of_ends[:, shift:]
        re, im = _exponentials(xp, ends[:, :-shift] - ends[:, shift:], same, kernel)
        jumps.append((re[:, :, None], im[:, :, None]))
        shift *= 2
    return Tables(y, queries, near, features, (gates[0][:, :, None], gates[1][:, :, None]), jumps)


def _both_ways(xp: Any, down: Array, up: Array) -> Array:
    """Stack arrays with one entry per block: that of what goes down, and that of what goes up in reverse."""
    return xp.stack([down, xp.flip(up, (0,))], 0)


def _distances(xp: Any, y: Array, queries: Array, kernel: Kernel) -> tuple[Array, Array, Array]:
    """Return (B, b, b) distances t, whether both documents are of one query, and the sign of y_i - y_k.

    The sign, (b, b), is that of the places, so that it is not 0 for tied documents.
    """
    i = xp.cumsum(xp.ones_like(y[0]), 0)
    sign = xp.sign(i[None, :] - i[:, None])
    same = queries[:, :, None] == queries[:, None, :]
    t = xp.where(same, sign * (y[:, :, None] - y[:, None, :]), 0)
    return _within_reach(xp, t, kernel), same, sign


def _within_reach(xp: Any, difference: Array, kernel: Kernel) -> Array:
    """Return the distances t of differences of scores, limited to where the kernel is not yet 0."""
    return xp.clip(difference, 0, _FARTHEST / kernel.scale) * kernel.scale


def _shape(xp: Any, t: Array, kernel: Kernel) -> Array:
    """Return the kernel at the distances t."""
    return xp.exp(t * t * -0.25 if kernel.is_gaussian else -t)


def _exponentials(xp: Any, difference: Array, same: Array, kernel: Kernel) -> Complex:
    """Return exp(-s_m t), (..., P), for differences of scores (...); 0 where `same` is false."""
    t = _within_reach(xp, xp.where(same, difference, 0), kernel)
    one = xp.where(same, xp.ones_like(t), 0)
    decay, turn = (_numbers(xp, t, [pair[i] for pair in kernel.pairs]) for i in (0, 1))
    size, angle = one[..., None] * xp.exp(-t[..., None] * decay), t[..., None] * turn
    return size * xp.cos(angle), -size * xp.sin(angle)


def _numbers(xp: Any, like: Array, values: list[float]) -> Array:
    """An array of numbers, of the library, dtype and device of another array."""
    one = xp.ones_like(like.reshape(-1)[0])
    return xp.stack([one * value for value in values], 0)


def product(xp: Any, table: Tables, x: Array, kernel: Kernel) -> Array:
    """Return (A + epsilon) x for vectors x (U, N), where A is the kernel matrix of each query."""
    rows = _as_blocks(xp, x, kernel)
    y = rows @ table.near
    if rows.shape[0] > 1:
        arrived = _arrivals(xp, table, rows @ table.features, kernel, slopes=False)
        y = y + arrived @ _swapped(xp, table.features, 1, 2)
    return _swapped(xp, y, 0, 1).reshape(x.shape)


def slopes(xp: Any, table: Tables, p: Array, q: Array, kernel: Kernel) -> Array:
    """Return sum_u p_u (dA q_u) + q_u (dA p_u), (N,), for vectors p and q (U, N).

    dA[i, k] is the derivative of A[i, k] with respect to the score of row i.
    """
    t, same, sign = _distances(xp, table.y, table.queries, kernel)
    K = xp.where(same, _shape(xp, t, kernel), 0)
    dK = -sign * (0.5 * t * K if kernel.is_gaussian else K)
    P, Q = _as_blocks(xp, p, kernel), _as_blocks(xp, q, kernel)
    pairs = _swapped(xp, P, 1, 2) @ Q
    y = (dK * (pairs + _swapped(xp, pairs, 1, 2))).sum(-1)
    if P.shape[0] > 1:
        for u in range(0, P.shape[1], _AT_ONCE):
            some, others = P[:, u : u + _AT_ONCE], Q[:, u : u + _AT_ONCE]
            sent = _joined(xp, [some, others], 1) @ table.features
            far = _arrivals(xp, table, sent, kernel, slopes=True) @ _swapped(xp, table.features, 1, 2)
            y = y + (far * _joined(xp, [others, some], 1)).sum(1)
    return y.reshape(-1) * kernel.scale


def _arrivals(xp: Any, table: Tables, sent: Array, kernel: Kernel, *, slopes: bool) -> Array:
    """Return what arrives in each block, as coefficients (B, U, 4 P) of the features of its documents.

    sent    (B, U, 4 P) what each block sends down, then up: real parts, then imaginary parts
    slopes  whether the coefficients are those of the derivative of the kernel by the document's distance from
            the documents above it
    """
    P = len(kernel.pairs)
    re = _both_ways(xp, sent[..., :P], sent[..., 2 * P : 3 * P])
    im = _both_ways(xp, sent[..., P : 2 * P], sent[..., 3 * P :])
    shift = 1
    for jump in table.jumps:
        far = _times(jump, (re[:, :-shift], im[:, :-shift]))
        re = _joined(xp, [re[:, :shift], re[:, shift:] + far[0]], 1)
        im = _joined(xp, [im[:, :shift], im[:, shift:] + far[1]], 1)
        shift *= 2
    none = xp.zeros_like(re[:, :1])
    re, im = _times(table.gates, tuple(_joined(xp, [none, x[:, :-1]], 1) for x in (re, im)))
    weights = [complex(w_re, w_im) for _, _, w_re, w_im in kernel.pairs]
    if slopes:
        weights = [
            complex(s_re, s_im) * w for (s_re, s_im, _, _), w in zip(kernel.pairs, weights, strict=True)
        ]
    w_re, w_im = (
        _numbers(xp, re, [2 * part for part in parts])
        for parts in ([w.real for w in weights], [w.imag for w in weights])
    )
    re, im = _times((w_re, w_im), (re, im))
    below = -1 if slopes else 1
    # what went up is for distances from the last document of a block, what went down for those from the first
    return _joined(xp, [below * xp.flip(re[1], (0,)), -below * xp.flip(im[1], (0,)), re[0], -im[0]], -1)


# unlike torch.cat and torch.transpose, torch.concatenate and torch.swapaxes refuse is_grads_batched=True


def _joined(xp: Any, arrays: list[Array], axis: int) -> Array:
    join = xp.cat if hasattr(xp, "cat") else xp.concatenate
    return join(arrays, axis)


def _swapped(xp: Any, x: Array, i: int, j: int) -> Array:
    swap = xp.transpose if hasattr(xp, "cat") else xp.swapaxes
    return swap(x, i, j)


def _times(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _as_blocks(xp: Any, x: Array, kernel: Kernel) -> Array:
    """From vectors (U, N) to blocks (B, U, b)."""
    return _swapped(xp, x.reshape(x.shape[0], x.shape[1] // kernel.block, kernel.block), 0, 1)


class Scalings(NamedTuple):
    """Scaling vectors, each (1, N) and 0 at padding: those of all half steps, q_0 to q_T, and u and v."""

    q: list[Array]
    u: Array
    v: Array

    @classmethod
    def of_steps(cls, q: list[Array]) -> Scalings:
        """The scalings after the half steps q_0, ..., q_T: of columns if t is odd, of rows if it is even."""
        last, before = q[-1], q[-2] if len(q) > 1 else q[-1]
        return cls(q, last, before) if len(q) % 2 else cls(q, before, last)


def scalings(xp: Any, table: Tables, kernel: Kernel, half_steps: int) -> Scalings:
    """Return the scaling vectors of Sinkhorn's iterations: section 1.1 of docs/linear-time.md."""
    present = table.queries.reshape(1, -1) >= 0
    q = [xp.where(present, xp.ones_like(table.y.reshape(1, -1)), 0)]
    for _ in range(half_steps):
        w = product(xp, table, q[-1], kernel)
        q.append(xp.where(present, 1 / xp.where(present, w, 1), 0))
    return Scalings.of_steps(q)


def statistics(
    xp: Any, table: Tables, scaled: Scalings, d: Array, a: Array, kernel: Kernel
) -> tuple[Array, Array]:
    """Return E[m, j] = sum_k Pi[j, k] d[m, k] and R[c, k] = sum_j Pi[j, k] a[c, j].

    d  (M, N) numbers of the ranks; place i stands for its document and for the rank that the order gives it
    a  (C, N) numbers of the documents
    """
    u, v = scaled.u, scaled.v
    z = product(xp, table, _joined(xp, [v * d, u * a], 0), kernel)
    return u * z[: len(d)], v * z[len(d) :]


def statistics_rev(
    xp: Any, table: Tables, scaled: Scalings, d: Array, a: Array, E_bar: Array, R_bar: Array, kernel: Kernel
) -> tuple[Array, Array, Array]:
    """Reverse pass of `statistics`, with section 1.3: gradients with respect to the scores (N,), d and a."""
    q, T = scaled.q, len(scaled.q) - 1
    u_bar, v_bar, left, right, d_bar, a_bar = _gain_rev(xp, table, scaled, d, a, E_bar, R_bar, kernel)
    q_bar, before_bar = (v_bar, u_bar) if T % 2 else (u_bar, v_bar)
    for t in range(T, 0, -1):
        w_bar = -q[t] * (q[t] * q_bar)
        left.append(w_bar)
        right.append(q[t - 1])
        if t > 1:  # q_0 is constant
            q_bar = product(xp, table, w_bar, kernel)
            if t == T:
                q_bar = q_bar + before_bar
    y_bar = slopes(xp, table, _joined(xp, left, 0), _joined(xp, right, 0), kernel)
    return y_bar, d_bar, a_bar


def limit_statistics_rev(
    xp: Any, table: Tables, scaled: Scalings, d: Array, a: Array, E_bar: Array, R_bar: Array, kernel: Kernel
) -> tuple[Array, Array, Array]:
    """Reverse pass of `statistics` if u = v = x is the limit of the iterations: section 9.2.

    Chebyshev's iteration solves (I + Pi) alpha = b, whose eigenvalues lie in [1, 2].
    """
    x = scaled.u
    u_bar, v_bar, left, right, d_bar, a_bar = _gain_rev(xp, table, scaled, d, a, E_bar, R_bar, kernel)
    residual = x * (u_bar + v_bar)
    alpha, change, r = xp.zeros_like(x), residual / 1.5, 1 / 3
    for _ in range(_SOLVE):
        alpha = alpha + change
        residual = residual - change - x * product(xp, table, x * change, kernel)
        before, r = r, 1 / (6 - r)
        change = r * before * change + 4 * r * residual
    p, q = _joined(xp, [*left, -x * alpha], 0), _joined(xp, [*right, x], 0)
    return slopes(xp, table, p, q, kernel), d_bar, a_bar


def _gain_rev(
    xp: Any, table: Tables, scaled: Scalings, d: Array, a: Array, E_bar: Array, R_bar: Array, kernel: Kernel
) -> tuple[Array, Array, list[Array], list[Array], Array, Array]:
    """Return u_bar, v_bar, the rank-one terms of A_bar, d_bar and a_bar: section 1.3, the first lines."""
    u, v, n = scaled.u, scaled.v, len(d)
    x, z_bar = _joined(xp, [v * d, u * a], 0), _joined(xp, [u * E_bar, v * R_bar], 0)
    z, x_bar = product(xp, table, x, kernel), product(xp, table, z_bar, kernel)
    u_bar = ((E_bar * z[:n]).sum(0) + (a * x_bar[n:]).sum(0))[None]
    v_bar = ((R_bar * z[n:]).sum(0) + (d * x_bar[:n]).sum(0))[None]
    return u_bar, v_bar, [z_bar], [x], v * x_bar[:n], u * x_bar[n:]
