"""The smoothed indicator by sweeps over blocks, in NumPy, against matrices and complex-step derivatives."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from sinkprop import SmoothedIndicator, _native, reference
from sinkprop.objective import sweeps

KERNELS = ["gaussian", "laplace"]
EPSILON = 1e-3


class Batch:
    """Queries of given sizes in score order, padded to whole blocks, and vectors that are 0 at padding."""

    def __init__(self, kernel, sizes, sigma=0.3, block=8, seed=0, spread=1.0, **options):
        rng = np.random.default_rng(seed)
        self.sizes, self.sigma, self.name = sizes, sigma, kernel
        self.kernel = sweeps.smoothing(kernel, sigma, EPSILON, block=block, **options)
        of_queries = [np.sort(spread * rng.normal(size=n))[::-1] for n in sizes]
        missing = -sum(sizes) % block
        self.y = np.concatenate([*of_queries, np.zeros(missing)])
        self.queries = np.repeat([*range(len(sizes)), -1], [*sizes, missing])
        self.table = sweeps.tables(np, self.y, self.queries, self.kernel, max(sizes))
        self.rng = rng

    def vectors(self, count):
        return self.rng.normal(size=(count, len(self.y))) * (self.queries >= 0)

    def each(self):
        """The places of each query."""
        ends = np.cumsum(self.sizes)
        return [slice(end - n, end) for end, n in zip(ends, self.sizes, strict=True)]

    def matrix(self, y):
        """A + epsilon of one query, of scores that may be complex."""
        i = np.arange(len(y))
        t = (y[:, None] - y) * np.sign(i - i[:, None]) / self.sigma
        return (np.exp(-(t**2) / 2) if self.name == "gaussian" else np.exp(-t)) + EPSILON

    def gain(self, y, d, a, E_bar, R_bar, half_steps):
        """The sum of E_bar E and R_bar R of one query by matrices."""
        A = self.matrix(y)
        q = [np.ones(len(y)), np.ones(len(y))]
        for t in range(half_steps):
            q.append(1 / (A.T if t % 2 == 0 else A).dot(q[-1]))
        u, v = (q[-2], q[-1]) if half_steps % 2 else (q[-1], q[-2])
        Pi = u[:, None] * A * v
        return (E_bar * (d @ Pi.T)).sum() + (R_bar * (a @ Pi)).sum()


@pytest.mark.parametrize(
    "sizes", [[1], [2, 1, 1], [9], [8, 8], [40], [5, 33, 64, 1, 1, 90, 17], [3] * 30, [300]]
)
@pytest.mark.parametrize("block", [2, 8, 32])
@pytest.mark.parametrize("kernel", KERNELS)
def test_products_and_slopes_are_those_of_matrices(kernel, block, sizes):
    batch = Batch(kernel, sizes, block=block)
    x, p = batch.vectors(3), batch.vectors(3)
    Ax = sweeps.product(np, batch.table, x, batch.kernel)
    found = sweeps.slopes(np, batch.table, p, x, batch.kernel)
    for at in batch.each():
        A = batch.matrix(batch.y[at])
        assert_allclose(Ax[:, at], x[:, at] @ A, rtol=0, atol=1e-12 * abs(x[:, at]).sum())
        scale = (abs(x[:, at]).sum() * abs(p[:, at]).max()) / batch.sigma
        for i in range(0, len(A), 1 + len(A) // 20):
            y = batch.y[at].astype(complex)
            y[i] += 1e-30j
            wanted = (p[:, at] @ (batch.matrix(y).imag / 1e-30) * x[:, at]).sum()
            assert_allclose(found[at][i], wanted, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("half_steps", [0, 1, 2, 5, 10])
@pytest.mark.parametrize("kernel", KERNELS)
def test_statistics_and_their_reverse_pass(kernel, half_steps):
    batch = Batch(kernel, [30, 1, 7, 60])
    d, a, E_bar, R_bar = (batch.vectors(count) for count in (2, 3, 2, 3))
    scaled = sweeps.scalings(np, batch.table, batch.kernel, half_steps)
    E, R = sweeps.statistics(np, batch.table, scaled, d, a, batch.kernel)
    y_bar, d_bar, a_bar = sweeps.statistics_rev(np, batch.table, scaled, d, a, E_bar, R_bar, batch.kernel)
    for at in batch.each():
        inputs = [batch.y[at], d[:, at], a[:, at]]
        gain = partial(batch.gain, E_bar=E_bar[:, at], R_bar=R_bar[:, at], half_steps=half_steps)
        value = (E_bar[:, at] * E[:, at]).sum() + (R_bar[:, at] * R[:, at]).sum()
        assert_allclose(value, gain(*inputs), rtol=1e-11, atol=1e-11)
        wanted = [
            complex_step(lambda y, gain=gain, rest=inputs[1:]: gain(y, *rest), inputs[0]),
            complex_step(lambda d, gain=gain, y=inputs[0], a=inputs[2]: gain(y, d, a), inputs[1]),
            complex_step(lambda a, gain=gain, rest=inputs[:2]: gain(*rest, a), inputs[2]),
        ]
        for found, want in zip([y_bar[at], d_bar[:, at], a_bar[:, at]], wanted, strict=True):
            assert_allclose(found, want, rtol=0, atol=2e-12 * max(1, abs(want).max()))


def complex_step(f, x):
    gradient = np.empty(x.size)
    for i in range(x.size):
        z = x.astype(complex)
        z.flat[i] += 1e-30j
        gradient[i] = f(z).imag / 1e-30
    return gradient.reshape(x.shape)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_reverse_pass_of_the_limit(kernel):
    # 400 half steps by matrices are the limit, and their derivative is the limit's
    batch = Batch(kernel, [20, 3, 33], sigma=1.0)
    d, a, E_bar, R_bar = (batch.vectors(count) for count in (1, 2, 1, 2))
    x = np.zeros((1, len(batch.y)))
    for at in batch.each():
        A = batch.matrix(batch.y[at])
        of_query = np.ones(len(A))
        for _ in range(200):
            of_query = np.sqrt(of_query / (A @ of_query))
        x[0, at] = of_query
    scaled = sweeps.Scalings([x], x, x)
    found = sweeps.limit_statistics_rev(np, batch.table, scaled, d, a, E_bar, R_bar, batch.kernel)
    for at in batch.each():
        wanted = complex_step(
            lambda y, at=at: batch.gain(y, d[:, at], a[:, at], E_bar[:, at], R_bar[:, at], 400), batch.y[at]
        )
        assert_allclose(found[0][at], wanted, rtol=0, atol=1e-10 * max(1, abs(wanted).max()))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sigma", [1e-8, 0.01, 100.0, 1e8])
@pytest.mark.parametrize("spread", [0.0, 1e-9, 1.0, 1e6, 1e300])
def test_any_width_and_any_distance(kernel, sigma, spread):
    batch = Batch(kernel, [50, 20], sigma=sigma, spread=spread)
    x = abs(batch.vectors(2))
    found = sweeps.product(np, batch.table, x, batch.kernel)
    for at in batch.each():
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            A = reference.pre_sinkhorn(batch.y[at], SmoothedIndicator(sigma, kernel)) + EPSILON
        assert_allclose(found[:, at], x[:, at] @ A, rtol=1e-11)
    assert np.isfinite(sweeps.slopes(np, batch.table, x, x[::-1], batch.kernel)).all()


def test_four_pairs_of_exponentials_are_enough_for_single_precision():
    batch, exact = (Batch("gaussian", [200], exact=exact) for exact in (False, True))
    x = abs(batch.vectors(1))
    wanted = sweeps.product(np, exact.table, x, exact.kernel)
    error = abs(sweeps.product(np, batch.table, x, batch.kernel) - wanted).max() / wanted.max()
    assert 1e-13 < error < 1e-7


def test_the_coefficients_are_those_of_the_kernels():
    t = np.linspace(0, 20, 2001)
    for pairs, error in ((4, 4e-8), (8, 1e-13)):
        found = _native.gauss_coefficients(pairs)
        assert len(found) == pairs
        E = 2 * sum(w * np.exp(-s * t) for s, w in found).real
        assert abs(E - np.exp(-(t**2) / 4)).max() < error
    with pytest.raises(ValueError, match="pairs must be 4 or 8"):
        _native.gauss_coefficients(5)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 10**6))
def test_queries_are_alone(sizes, seed):
    batch = Batch("gaussian", sizes, seed=seed, block=4)
    scaled = sweeps.scalings(np, batch.table, batch.kernel, 10)
    d = batch.vectors(1)
    E, _ = sweeps.statistics(np, batch.table, scaled, d, d[:0], batch.kernel)
    for at in batch.each():
        missing = -(at.stop - at.start) % 4
        y, queries = (
            np.pad(batch.y[at], (0, missing)),
            np.pad(batch.queries[at], (0, missing), constant_values=-1),
        )
        table = sweeps.tables(np, y, queries, batch.kernel, len(y))
        alone = sweeps.scalings(np, table, batch.kernel, 10)
        mine = np.pad(d[:, at], ((0, 0), (0, missing)))
        wanted, _ = sweeps.statistics(np, table, alone, mine, mine[:0], batch.kernel)
        assert_allclose(E[:, at], wanted[:, : at.stop - at.start], rtol=0, atol=1e-11)
