"""Examination and relevance together: likelihood, covariance, posterior relevance, and predictors of it."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import gamma, multinomial, nbinom, poisson

from sinkprop import Queries
from sinkprop.clicks.models.cells import Cells
from sinkprop.clicks.models.hierarchical import (
    _PRIOR,
    examinations,
    fit_hierarchical,
    fit_relevance,
    posterior_relevance,
)
from sinkprop.clicks.models.regression import columns, predictions, tell_apart

THETA = np.array([1.0, 0.6, 0.3])
B = np.array([0.9, -0.5, -1.0])


def cells_from(n, x):
    """Cells of tables of impressions and clicks, (D, K), where each document is shown."""
    n, x = np.asarray(n, dtype=float), np.asarray(x, dtype=float)
    starts = np.r_[0, np.cumsum((n > 0).sum(axis=1))]
    return Cells(np.arange(len(n)), starts, np.nonzero(n)[1], n[n > 0], x[n > 0], n.shape[1])


def tables(seed, D=60, several=0.5, shape=4.0, size=200):
    """Impressions and clicks of documents at one position or several, and their features; clicks are rare."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, size, (D, 3))
    alone = rng.random(D) >= several
    n[alone] *= np.eye(3, dtype=int)[rng.integers(3, size=alone.sum())]
    Z = np.column_stack([rng.normal(size=(D, 2)), np.ones(D)])
    relevance = 0.2 * expit(Z @ B) * rng.gamma(shape, 1 / shape, D)
    return n, rng.poisson(n * THETA * relevance[:, None]), Z


def log_likelihood(u, b, s, n, x, Z):
    """The logarithm of the probability of all clicks: their number, and their positions."""
    mass = n * np.exp(np.r_[0.0, u])
    E, X = mass.sum(axis=1), x.sum(axis=1)
    number = nbinom.logpmf(X, s, s / (s + E * expit(Z @ b)))
    return (number + multinomial.logpmf(x, X, mass / E[:, None])).sum()


def log_prior(b):
    """Logarithm of the density of the coefficients, whose precision is the more the more there are."""
    return -0.5 * _PRIOR * (len(b) - 1) * (b[:-1] ** 2).sum()


def hessian(f, u, h=1e-4):
    eye = np.eye(len(u)) * h
    return np.array(
        [
            [(f(u + a + b) - f(u + a - b) - f(u - a + b) + f(u - a - b)) / (4 * h * h) for b in eye]
            for a in eye
        ]
    )


@pytest.mark.parametrize(("seed", "several"), [(0, 0.5), (1, 0.0), (2, 1.0)])
def test_the_maximum_is_that_of_a_general_optimizer(seed, several):
    n, x, Z = tables(seed, several=several)
    found = fit_hierarchical(cells_from(n, x), Z, max_iter=500, tol=1e-14)

    def objective(point):
        u, b, s = point[:2], point[2:5], np.exp(point[5])
        return -log_prior(b) - log_likelihood(u, b, s, n, x, Z)

    best = minimize(objective, np.zeros(6), method="BFGS", options={"gtol": 1e-5})
    again = np.r_[found.u, found.coefficients, np.log(found.shape)]
    assert objective(again) <= best.fun + 1e-6
    np.testing.assert_allclose(again, best.x, atol=2e-3)
    np.testing.assert_allclose(found.predicted, expit(Z @ found.coefficients), rtol=1e-12)


def test_the_maximum_is_the_same_from_another_start():
    n, x, Z = tables(3)
    cells = cells_from(n, x)
    u = fit_hierarchical(cells, Z, max_iter=500, tol=1e-14).u
    again = fit_hierarchical(cells, Z, start=np.array([1.0, 2.0]), max_iter=500, tol=1e-14).u
    np.testing.assert_allclose(again, u, atol=1e-5)


@pytest.mark.parametrize("several", [0.0, 0.5])
def test_clicks_as_expected_give_the_truth(several):
    n, _, Z = tables(4, D=200, several=several)
    x = 1e4 * n * THETA * expit(Z @ B)[:, None]
    found = fit_hierarchical(cells_from(1e4 * n, x), Z, max_iter=2000, tol=0.0)
    np.testing.assert_allclose(np.exp(found.u), THETA[1:], rtol=1e-4)
    np.testing.assert_allclose(found.coefficients, B, atol=1e-4)
    assert found.shape > 1e4  # the predictions are right


@pytest.mark.parametrize("several", [0.0, 0.5, 1.0])
def test_the_covariance_inverts_expected_second_derivatives(several):
    n, x, Z = tables(5, several=several)
    found = fit_hierarchical(cells_from(n, x), Z, max_iter=500, tol=1e-14)
    s = found.shape
    mass = n * np.exp(np.r_[0.0, found.u])
    expected = mass * found.predicted[:, None]  # second derivatives by u and b are linear in the clicks

    def value(point):
        u, b = point[:2], point[2:]
        E, X = (n * np.exp(np.r_[0.0, u])).sum(axis=1), expected.sum(axis=1)
        m = expit(Z @ b)
        of_clicks = X * np.log(m / (1 + E * m / s)) - s * np.log1p(E * m / s)
        return expected.sum(axis=0)[1:] @ u + of_clicks.sum() + log_prior(b)

    inverse = np.linalg.inv(-hessian(value, np.r_[found.u, found.coefficients]))
    np.testing.assert_allclose(found.covariance, inverse[:2, :2], rtol=1e-4)


@pytest.mark.parametrize("several", [0.0, 0.5])
def test_the_covariance_is_that_of_estimates_from_new_clicks_and_relevance(several):
    found = []
    for seed in range(150):
        n, x, Z = tables(seed, D=150, several=several)
        found.append(fit_hierarchical(cells_from(n, x), Z, max_iter=500, tol=1e-12))
    u = np.array([f.u for f in found])
    errors = u - np.log(THETA[1:])
    assert (np.abs(errors.mean(axis=0)) < 4 * errors.std(axis=0) / np.sqrt(150)).all()
    claimed = np.sqrt(np.mean([np.diag(f.covariance) for f in found], axis=0))
    assert claimed / u.std(axis=0) == pytest.approx(np.ones(2), abs=0.23)  # 4 standard errors
    assert np.median([f.shape for f in found]) == pytest.approx(4, rel=0.15)


def test_mean_and_shape_of_the_relevance_are_those_of_a_general_optimizer():
    n, x, _ = tables(6, D=200)
    u = np.log(THETA[1:])
    mean, shape = fit_relevance(cells_from(n, x), u)
    E, X = n @ THETA, x.sum(axis=1)

    def objective(point):
        s = np.exp(point[1])
        return -nbinom.logpmf(X, s, s / (s + E * expit(point[0]))).sum()

    best = minimize(objective, [0.0, 0.0], method="BFGS")
    np.testing.assert_allclose([np.log(mean / (1 - mean)), np.log(shape)], best.x, atol=1e-3)


def test_the_relevance_given_clicks_is_the_mean_of_its_posterior_by_integration():
    n, x = np.array([[90, 0, 40], [0, 8, 0], [300, 200, 10]]), np.array([[9, 0, 2], [0, 0, 0], [45, 20, 0]])
    predicted, shape, u = np.array([0.05, 0.2, 0.15]), 3.5, np.log(THETA[1:])
    found = posterior_relevance(cells_from(n, x), u, predicted, shape)
    for i, (E, X) in enumerate(zip(n @ THETA, x.sum(axis=1), strict=True)):

        def density(r, E=E, X=X, m=predicted[i]):
            return gamma.pdf(r, shape, scale=m / shape) * poisson.pmf(X, E * r)

        mean = quad(lambda r: r * density(r), 0, 2)[0] / quad(density, 0, 2)[0]
        assert found[i] == pytest.approx(mean, rel=1e-6)
    assert examinations(cells_from(n, x), u) == pytest.approx(n @ THETA, rel=1e-12)


def test_the_relevance_given_clicks_is_at_most_1():
    cells = cells_from([[1, 1, 0]], [[1, 1, 0]])
    assert posterior_relevance(cells, np.log(THETA[1:]), np.array([0.9]), 2.0).tolist() == [1.0]


class TestFeatures:
    X = np.array([[1.0, -3, 5], [2, np.nan, 5], [6, 8, 5], [1, 4, 5]])
    documents = Queries(X, np.zeros(4), [0, 0, 0, 1], allow_nan=True)

    def test_are_standardized_over_all_documents_and_within_queries(self):
        Z = columns(self.documents)
        a, log = self.X[:, 0], np.log1p(self.X[:, 0])
        np.testing.assert_allclose(Z[:, 0], (a - a.mean()) / a.std())
        np.testing.assert_allclose(Z[:, 2], (log - log.mean()) / log.std())
        of_query = a[:3]
        np.testing.assert_allclose(Z[:, 4], [*((of_query - 3) / of_query.std()), 0])
        assert (Z[:, 6] == 1).all()

    def test_that_are_missing_are_0_and_those_that_are_constant_are_left_out(self):
        Z = columns(self.documents)
        assert Z.shape == (4, 2 * 3 + 1)
        known = np.array([-3, 8, 4.0])
        np.testing.assert_allclose(Z[[0, 2, 3], 1], (known - known.mean()) / known.std())
        signed = np.array([-np.log(4), np.log(9), np.log(5)])
        np.testing.assert_allclose(Z[[0, 2, 3], 3], (signed - signed.mean()) / signed.std())
        np.testing.assert_allclose(Z[:3, 5], [-1, 0, 1])
        assert not Z[1, [1, 3, 5]].any()

    def test_outliers_are_cut_off_at_5_standard_deviations(self):
        X = np.zeros((100, 1))
        X[0] = 1e9
        assert np.abs(columns(Queries(X, np.zeros(100), np.zeros(100, int)))).max() == 5

    @pytest.mark.parametrize(
        ("X", "apart"),
        [
            ([[0.0], [0.0]], False),
            ([[3.0, np.nan], [3.0, 7.0]], False),
            ([[np.nan], [np.nan]], False),
            ([[0.0, 1.0], [0.0, 2.0]], True),
        ],
    )
    def test_tell_documents_apart_if_one_differs(self, X, apart):
        assert tell_apart(Queries(X, [0, 0], [0, 0], allow_nan=True)) is apart


class Recording:
    """A ranker without anything of scikit-learn, which scores by the first feature and keeps its data."""

    fits: list = []  # noqa: RUF012

    def fit(self, X, y, *, qid):
        self.fits.append((X, y, qid))
        return self

    def predict(self, X, *, qid):
        return np.asarray(X)[:, 0] * 10 + 3


class TestPredictions:
    def problem(self, Q=40, n=10):
        rng = np.random.default_rng(0)
        documents = Queries(rng.normal(size=(Q * n, 2)), np.zeros(Q * n), np.repeat(np.arange(Q), n))
        y = expit(2 * documents.X[:, 0] - 1)
        return documents, np.arange(Q * n), y, np.ones(Q * n)

    def test_of_trees_follow_the_relevance_of_other_queries(self):
        documents, shown, y, weight = self.problem()
        found = predictions("trees", documents, shown, y, weight)
        assert np.corrcoef(found, documents.X[:, 0])[0, 1] > 0.95
        assert expit(found) == pytest.approx(y, abs=0.35)

    def test_of_a_query_do_not_depend_on_its_clicks(self):
        documents, shown, y, weight = self.problem()
        of_query = documents.qid == 7
        other = np.where(of_query, 1 - y, y)
        first, second = (predictions("trees", documents, shown, v, weight) for v in (y, other))
        np.testing.assert_array_equal(first[of_query], second[of_query])
        assert (first != second).any()

    def test_rankers_get_whole_queries_and_their_scores_are_standardized(self):
        documents, shown, y, weight = self.problem()
        shown = shown[shown % 10 != 9]  # the last document of each query is never shown
        Recording.fits.clear()
        found = predictions(Recording(), documents, shown, y[shown], weight[shown])
        assert len(Recording.fits) == 5
        for X, labels, qid in Recording.fits:
            rows = np.flatnonzero(np.isin(documents.qid, qid) & (np.arange(400) % 10 != 9))
            np.testing.assert_array_equal(X, documents.X[rows])
            np.testing.assert_array_equal(labels, y[rows])
            assert len(set(qid)) == 32
        assert found.std() == pytest.approx(1, rel=0.01)
        assert np.corrcoef(found, documents.X[:, 0])[0, 1] > 0.95

    @pytest.mark.parametrize("relevance", ["trees", Recording()])
    def test_where_no_other_query_was_shown_are_equal(self, relevance):
        documents, shown, y, weight = self.problem()
        of_query = documents.qid == 7
        found = predictions(relevance, documents, shown[of_query], y[of_query], weight[of_query])
        assert found.shape == (400,)
        assert np.ptp(found[of_query]) == 0
