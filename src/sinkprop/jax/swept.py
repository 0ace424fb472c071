"""Expected gains and projections of smoothed indicators in JAX's operations, in linear time on any device.

`objective/sweeps.py` has the products. Here are the lists, which become one list of documents in score order,
the iterations as compiled loops, and the functions of the statistics, with sums, running sums and running
products within each list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sinkprop.jax.plans import Plan
from sinkprop.objective import sweeps
from sinkprop.objective.native_terms import TermRow, term_rows
from sinkprop.objective.relaxations import SmoothedIndicator

__all__ = ["check", "gain", "projection", "supported"]

Array = Any


def supported(plan: Plan) -> bool:
    """Whether JAX's operations are written for the relaxation and the iterations."""
    return isinstance(plan.normalization.relaxation, SmoothedIndicator) and not plan.settings.tol


def check(plan: Plan, who: str) -> None:
    """Raise a NotImplementedError unless JAX's operations are written for the plan; `who` needs them."""
    if not supported(plan):
        what = "n_iter='converged'" if plan.settings.tol else f"relaxation={plan.normalization.relaxation}"
        raise NotImplementedError(
            f"{what} has native code for the CPU only. {who} needs JAX's operations, which take a "
            "SmoothedIndicator and a number of iterations."
        )


def gain(plan: Plan, x: Array, first: Array, a: Array) -> tuple[Array, Array]:
    """Return the expected gain of each list, at its first document, and the gradient of their sum.

    x      (..., n) scores
    first  (..., n) place of the first document of each document's list; -1 at padding
    a      (..., A, n) attributes of the documents
    """
    n = first.shape[-1]
    a = a.reshape(-1, a.shape[-2], n)
    order = _Order.of(plan, x, first, jnp.isfinite(x.reshape(-1, n)) & jnp.isfinite(a).all(1))
    a = jnp.where(order.present[:, None], order.sorted(jnp.where(jnp.isfinite(a), a, 0)), 0)
    D = order.discounts(plan)
    terms = term_rows(plan.table)
    kept = [term for term in terms if term.of_rows]
    d = (
        jnp.stack([D[term.row] for term in kept])
        if kept
        else jnp.zeros((0, *first.reshape(-1, n).shape), x.dtype)
    )
    columns = [(term, c) for term in terms if not term.of_rows for c in range(term.width)]
    b = jnp.stack([a[:, term.first + c] for term, c in columns]) if columns else d[:0]
    factors = [_factor(term, a, D, order, plan.rows.shape[1]) for term in terms]

    def value(E: Array, R: Array) -> Array:
        """(R, n) value of each document's list"""
        exposures, expected = iter(E), iter(R)
        total = jnp.zeros_like(a[:, 0])
        for term, factor in zip(terms, factors, strict=True):
            S = [next(exposures)] if term.of_rows else [next(expected) for _ in range(term.width)]
            total = total + factor * _value(term, S, a, D, order)
        return total

    by_start, gradient = _value_and_gradient(plan, order, d, b, value)
    return order.by_list(by_start).reshape(first.shape), order.unsorted(gradient).reshape(x.shape)


def projection(plan: Plan, x: Array, first: Array) -> Array:
    """Return sum_k Pi[j, k] d_k for each document j (..., n), for the row d of discounts of the plan."""
    order = _Order.of(plan, x, first, jnp.isfinite(x.reshape(-1, first.shape[-1])))
    d = order.discounts(plan)[:1]
    scaled = _Scaled.of(plan, order)
    none = order.flat(d[:0])
    E, _ = sweeps.statistics(jnp, scaled.table, scaled.scalings, order.flat(d), none, scaled.kernel)
    return order.unsorted(order.rows(E)[0]).reshape(first.shape)


@dataclass(frozen=True)
class _Order:
    """Documents of R rows in the order of their lists and, within each list, of decreasing scores.

    All arrays have the shape (R, n) and are in this order.

    y        Scores; 0 at padding, which is at the end of a row.
    key      Place, among the n of the row, of the first document of each document's list; n at padding.
    order    Place of each document among the n of its row.
    start    Place in this order at which the document's list begins.
    present  Whether there is a document.
    fine     Whether all numbers of the document's list are finite.
    segmented  Whether a row may have several lists.
    """

    y: Array
    key: Array
    order: Array
    start: Array
    present: Array
    fine: Array
    segmented: bool

    @classmethod
    def of(cls, plan: Plan, x: Array, first: Array, finite: Array) -> _Order:
        n = first.shape[-1]
        x, first = jnp.where(finite, x.reshape(-1, n), 0), first.reshape(-1, n)
        key = jnp.where(first < 0, n, first)
        order = jnp.lexsort((-x, key), axis=-1)
        x, key, finite = (jnp.take_along_axis(v, order, -1) for v in (x, key, finite))
        begins = jnp.concatenate([jnp.ones_like(key[:, :1], bool), key[:, 1:] != key[:, :-1]], -1)
        start = jax.lax.cummax(jnp.where(begins, jnp.arange(n), 0), axis=1)
        found = cls(jnp.where(key < n, x, 0), key, order, start, key < n, finite, plan.segmented)
        return replace(found, fine=found.total((~finite).astype(x.dtype)) == 0)

    def sorted(self, v: Array) -> Array:
        """From (R, ..., n) in the caller's order to this order."""
        index = self.order.reshape(self.order.shape[0], *[1] * (v.ndim - 2), -1)
        return jnp.take_along_axis(v, jnp.broadcast_to(index, v.shape), -1)

    def unsorted(self, v: Array) -> Array:
        """From (R, n) in this order to the caller's; NaN for documents of lists that are not `fine`."""
        v = jnp.where(self.present, jnp.where(self.fine, v, jnp.nan), 0)
        return jnp.zeros_like(v).at[jnp.arange(v.shape[0])[:, None], self.order].set(v)

    def by_list(self, v: Array) -> Array:
        """From values of the documents' lists, in this order, to values at the places of first documents."""
        place = jnp.arange(v.shape[1])
        to = jnp.where(self.start == place, self.key, v.shape[1])
        v = jnp.where(self.fine, v, jnp.nan)
        rows = jnp.arange(v.shape[0])[:, None]
        return jnp.zeros_like(v).at[rows, to].set(v, mode="drop")

    def flat(self, v: Array) -> Array:
        """From (U, R, n) to (U, N), with further padding up to whole blocks."""
        v = v.reshape(v.shape[0], self.y.size)
        return jnp.pad(v, ((0, 0), (0, -v.shape[1] % _BLOCK)))

    def rows(self, v: Array) -> Array:
        """From (U, N) to (U, R, n)."""
        return v[:, : self.y.size].reshape(v.shape[0], *self.y.shape)

    def queries(self) -> Array:
        """(N,) number of each document's list; -1 at padding."""
        R, n = self.y.shape
        ids = jnp.where(self.present, self.key + n * jnp.arange(R)[:, None], -1).reshape(-1)
        return jnp.pad(ids, (0, -ids.size % _BLOCK), constant_values=-1)

    def discounts(self, plan: Plan) -> Array:
        """(U, R, n) discounts of the ranks that the documents have in this order."""
        D = jnp.asarray(plan.rows, self.y.dtype)
        D = jnp.pad(D, ((0, 0), (0, max(0, self.y.shape[1] - D.shape[1]))))
        rank = jnp.arange(self.y.shape[1]) - self.start
        return jnp.where(self.present, D[:, rank], 0)

    def total(self, h: Array) -> Array:
        """Sum of h over each document's list."""
        if not self.segmented:
            return jnp.broadcast_to(h.sum(-1, keepdims=True), h.shape)
        totals = jnp.zeros_like(h).at[jnp.arange(h.shape[0])[:, None], self.start].add(h)
        return jnp.take_along_axis(totals, self.start, -1)

    def above(self, h: Array) -> Array:
        """Sum of h_i over the places i < k of each list."""
        if not self.segmented:
            return jnp.cumsum(h, -1) - h
        return self._affine(jnp.ones_like(h), h)

    def survival(self, g: Array) -> Array:
        """Product of g_i over the places i < k of each list."""
        before = jnp.concatenate([jnp.ones_like(g[:, :1]), g[:, :-1]], -1)
        if not self.segmented:
            return jnp.cumprod(before, -1)
        begins = self.start == jnp.arange(g.shape[1])
        _, found = self._scan(jnp.where(begins, 0, before), begins.astype(g.dtype))
        return found

    def _affine(self, g: Array, h: Array) -> Array:
        """V_k = h_(k-1) + g_(k-1) V_(k-1) within each list, and 0 at its start."""
        begins = self.start == jnp.arange(h.shape[1])
        g, h = (jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], -1) for x in (g, h))
        return self._scan(jnp.where(begins, 0, g), jnp.where(begins, 0, h))[1]

    @staticmethod
    def _scan(g: Array, h: Array) -> tuple[Array, Array]:
        """V_k = h_k + g_k V_(k-1) along the last axis."""

        def then(one: tuple[Array, Array], two: tuple[Array, Array]) -> tuple[Array, Array]:
            return one[0] * two[0], two[1] + two[0] * one[1]

        scanned: tuple[Array, Array] = jax.lax.associative_scan(then, (g, h), axis=g.ndim - 1)
        return scanned


_BLOCK = 32


class _Scaled(NamedTuple):
    """The scaling vectors (1, N) of all half steps, and the tables of the products.

    The functions are those of `objective/sweeps.py` with loops that are compiled once, not per half step.
    """

    kernel: sweeps.Kernel
    table: sweeps.Tables
    q: Array  # (T + 1, 1, N)

    @classmethod
    def of(cls, plan: Plan, order: _Order) -> _Scaled:
        settings, relaxation = plan.settings, plan.normalization.relaxation
        assert isinstance(relaxation, SmoothedIndicator)
        exact = order.y.dtype == jnp.float64
        kernel = sweeps.smoothing(
            relaxation.kernel, settings.sigma, settings.epsilon, exact=exact, block=_BLOCK
        )
        y, ids = order.flat(order.y[None])[0], order.queries()
        table = sweeps.tables(jnp, y, ids, kernel, order.y.shape[1])
        present = ids[None] >= 0

        def half_step(q: Array, _: None) -> tuple[Array, Array]:
            w = sweeps.product(jnp, table, q, kernel)
            q = jnp.where(present, 1 / jnp.where(present, w, 1), 0)
            return q, q

        one = present.astype(y.dtype)
        _, later = jax.lax.scan(half_step, one, None, length=settings.half_steps)
        return cls(kernel, table, jnp.concatenate([one[None], later]))

    @property
    def scalings(self) -> sweeps.Scalings:
        return sweeps.Scalings.of_steps(
            list(self.q[-2:]) if len(self.q) % 2 == 0 else [self.q[0], *self.q[-2:]]
        )

    def product(self, x: Array) -> Array:
        return sweeps.product(jnp, self.table, x, self.kernel)

    def slopes(self, p: Array, q: Array) -> Array:
        return sweeps.slopes(jnp, self.table, p, q, self.kernel)

    def gradient(self, d: Array, a: Array, E_bar: Array, R_bar: Array) -> Array:
        """Reverse pass of `sweeps.statistics`: the gradient (N,) with respect to the scores."""
        _, u, v = self.scalings
        n, T, q = len(d), len(self.q) - 1, self.q
        x, z_bar = jnp.concatenate([v * d, u * a]), jnp.concatenate([u * E_bar, v * R_bar])
        z, x_bar = jnp.split(self.product(jnp.concatenate([x, z_bar])), 2)
        u_bar = ((E_bar * z[:n]).sum(0) + (a * x_bar[n:]).sum(0))[None]
        v_bar = ((R_bar * z[n:]).sum(0) + (d * x_bar[:n]).sum(0))[None]
        y_bar = self.slopes(z_bar, x)
        if not T:
            return y_bar
        q_bar, before_bar = (v_bar, u_bar) if T % 2 else (u_bar, v_bar)

        def back(state: tuple[Array, Array, Array], qs: tuple[Array, Array]) -> tuple[Any, None]:
            y_bar, q_bar, extra = state
            after, before = qs
            w_bar = -after * (after * q_bar)
            y_bar = y_bar + self.slopes(w_bar, before)
            return (y_bar, self.product(w_bar) + extra, jnp.zeros_like(extra)), None

        start = (y_bar, q_bar, before_bar)
        return jax.lax.scan(back, start, (q[1:], q[:-1]), reverse=True)[0][0]


def _value_and_gradient(plan: Plan, order: _Order, d: Array, a: Array, value: Any) -> tuple[Array, Array]:
    """Return value(E, R) (R, n), and the gradient (R, n) of the sum of its values at the starts of lists."""
    scaled = _Scaled.of(plan, order)
    d, a = order.flat(d), order.flat(a)
    E, R = sweeps.statistics(jnp, scaled.table, scaled.scalings, d, a, scaled.kernel)
    values, reverse = jax.vjp(lambda E, R: value(order.rows(E), order.rows(R)), E, R)
    starts = (order.start == jnp.arange(order.y.shape[1])) & order.present
    E_bar, R_bar = reverse(starts.astype(values.dtype))
    return values, order.rows(scaled.gradient(d, a, E_bar, R_bar)[None])[0]


def _value(term: TermRow, S: list[Array], a: Array, D: Array, order: _Order) -> Array:
    """Return the function of a term for each document's list, without the term's factor."""
    if term.form == "target":
        return order.total(jnp.where(order.present, (S[0] - a[:, term.first]) ** 2, 0))
    if term.form == "gap":
        return _gap(S[0], a[:, term.first], a[:, term.first + 1], order)
    total = jnp.zeros_like(a[:, 0])
    for c, R in enumerate(S):
        d, own = D[term.row + term.step * c], a[:, term.first + c]
        # An attribute of one document is at one rank only, and the expectation is linear in R.
        several = (order.total((own != 0).astype(R.dtype)) > 1).astype(R.dtype)
        if term.form == "linear":
            total = total + order.total(d * R)
        elif term.form == "precisions":
            total = total + order.total(d * R * (1 + several * order.above(R)))
        else:
            total = total + order.total(d * R * order.survival(1 - term.alpha * several * R))
    return total


def _gap(E: Array, group: Array, weight: Array, order: _Order) -> Array:
    """Mean over pairs of m groups of (X_g - X_h)^2, which is 2 / (m - 1) times sum_g (X_g - mean)^2."""
    belongs = order.present & (group >= 0)
    n = E.shape[1]
    slot = jnp.where(belongs, order.start + group.astype(order.start.dtype), n)
    rows = jnp.arange(E.shape[0])[:, None]
    X = jnp.zeros_like(E).at[rows, slot].add(weight * E, mode="drop")
    seen = jnp.zeros_like(E).at[rows, slot].max(jnp.ones_like(E), mode="drop")
    m = order.total(seen)
    mean = order.total(X) / jnp.maximum(m, 1)
    squares = order.total(jnp.where(seen > 0, (X - mean) ** 2, 0))
    return 2 * squares / jnp.maximum(m - 1, 1)


def _factor(term: TermRow, a: Array, D: Array, order: _Order, ranks: int) -> Array:
    """Return the weight of a term divided by its norm, for the list of each document; 0 if the norm is 0."""
    own = a[:, term.first : term.first + term.width]
    if term.norm == "none":
        return jnp.full_like(own[:, 0], term.weight)
    if term.norm == "ideal":
        best = jnp.take_along_axis(own[:, 0], jnp.lexsort((-own[:, 0], order.key), axis=-1), -1)
        norm = order.total(best * D[term.row])
    elif term.norm == "count":
        total = order.total(own.sum(1))
        norm = jnp.where(total > 0, term.c0 + term.c1 * total, 0)
    elif term.norm == "intents":
        norm = sum(term.c0 * (order.total((own[:, c] > 0).astype(own.dtype)) > 0) for c in range(term.width))
    else:
        norm = _greedy(term, own, D, order, ranks)
    factor = jnp.where(norm > 0, term.weight / jnp.where(norm > 0, norm, 1), 0)
    return jnp.where(jnp.isfinite(factor), factor, 0)


def _greedy(term: TermRow, own: Array, D: Array, order: _Order, ranks: int) -> Array:
    """Return the value of the ranking that has the document that adds most at each rank in turn."""
    R, C, n = own.shape
    rows = jnp.arange(R)[:, None]

    def best(values: Array, lowest: float) -> Array:
        """Largest value within each list, for its documents."""
        most = jnp.full_like(values, lowest).at[rows, order.start].max(values)
        return jnp.take_along_axis(most, order.start, -1)

    def rank(k: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        left, interest, value = state
        gains = (left * interest).sum(1)
        most = best(gains, 0.0)
        # of documents that add the same, the first one
        among = jnp.where((gains == most) & order.present, -order.order, -n)
        chosen = (among == best(among, -n)) & (among > -n)
        taken = jnp.stack([order.total(jnp.where(chosen, left[:, c], 0)) for c in range(C)], 1)
        d = jnp.take_along_axis(D[term.row], jnp.minimum(order.start + k, n - 1), -1)
        value = value + jnp.where(most > 0, d * most, 0)
        return jnp.where(chosen[:, None], 0, left), interest * (1 - term.alpha * taken), value

    start = (own, jnp.ones_like(own), jnp.zeros_like(own[:, 0]))
    return jax.lax.fori_loop(0, min(n, ranks), rank, start)[2]
