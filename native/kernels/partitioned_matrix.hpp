// The matrix A of a partitioned measure, and its normalization by half iterations (docs/linear-time.md 7). The matrix
// is dense, so that a query of n documents takes O(n^2) time and memory.
//
// Document j has a distribution on (0, 1), with the distribution function F and two parameters theta_j. The n ranks are
// equal bins of (0, 1), and the matrix A has the masses of the bins: A_jk = F(k/n) - F((k-1)/n) + epsilon, with
//   logit_logistic  F(u) = sigmoid((logit(u) - mu) / s)              theta = (mu, log s)
//   probit          F(u) = Phi((Phi^-1(u) - mu) / s), normal Phi     theta = (mu, log s)
//   beta            F(u) = I_u(a, b), incomplete beta function       theta = (log a, log b)
// T half iterations of Sinkhorn's normalization compute q_0 = 1, q_1 = 1 / (A' q_0), q_2 = 1 / (A q_1), ..., q_T, where
// A' is the transpose. They give Pi = diag(u) A diag(v), where u is the last q of the documents (even index) and v the
// last q of the ranks (odd index). A row or column whose sum is 0, which is possible only if epsilon = 0, gets q = 0.
//
// A parameter beyond its limits is replaced by the limit, and its gradient is 0: |mu| <= 1e30, |log s| <= 50, a and b
// from 1e-4 to 1e5. For a and b from 0.05 to 500 the beta distribution function is within 1e-12 and its derivatives
// within 1e-11 of their values; the other two families keep the relative accuracy of both tails.
//
// A is read four rows at a time, and all work on these rows is done while they are in the first-level cache: a product
// with A gives four elements of the next vector, which are immediately used in the product with A'.
#pragma once

#include <cmath>

#include "beta.hpp"
#include "kernels.hpp"
#include "normal.hpp"
#include "scaling.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

enum class Family { logit_logistic, probit, beta };

constexpr double mu_limit = 1e30, log_scale_limit = 50;

// Parameters of a logit-logistic or probit distribution. The edge between bins k and k + 1, for k = 0 .. n-2, is
// e_k = logit((k+1)/n) or Phi^-1((k+1)/n). At the edge, F is the standard distribution function of
// z_k = (e_k - mu) / s.
struct LocationScale {
    double mu = 0, inv_s = 1;
    LocationScale() = default;
    explicit LocationScale(const double* theta)
        : mu(bounded(theta[0], -mu_limit, mu_limit)),
          inv_s(std::exp(-bounded(theta[1], -log_scale_limit, log_scale_limit))) {}
    SINKPROP_INLINE Lanes z(Lanes edge) const { return (edge - Lanes::all(mu)) * Lanes::all(inv_s); }
};
// Stands for the infinite upper edge of the last bin, and for the edges in the padding: the distribution function is 1
// there for all parameters.
constexpr double last_edge = 1e200;

// Computes one row of A, and the standard density f(z_k) at the edges e_k of the bins (see LocationScale). Let F_k be
// the distribution function at edge k. For accuracy, the smaller tail h_k is used instead of F_k: h_k = F_k if
// e_k < mu, otherwise h_k = F_k - 1, and h = 0 at both ends of (0, 1). Then A_k = h_k - h_(k-1), plus 1 in the bin of
// mu, where the tail changes, plus epsilon.
template <bool normal>
inline void location_scale_row(const double* theta, const double* edges, std::size_t n, std::size_t N, double epsilon,
                               double* h, double* SINKPROP_RESTRICT A, double* SINKPROP_RESTRICT f) {
    const LocationScale d(theta);
    for (std::size_t k = 0; k < N; k += W) {
        const Lanes e = load(edges, k), z = absolute(d.z(e));
        Lanes tail, density;
        if constexpr (normal) {
            tail = normal_tail(z, density);
        } else {
            const Lanes x = exp(-z), r = Lanes::all(1) / (Lanes::all(1) + x);
            tail = x * r;
            density = tail * r;
        }
        Lanes::where_less(e, Lanes::all(d.mu), tail, -tail).store(h + 8 + k);
        density.store(f + k);
    }
    h[7] = 0;
    std::size_t below = 0, above = n - 1;  // binary search for the bin of mu: its index is the number of edges below mu
    while (below < above) {
        const std::size_t middle = (below + above) / 2;
        if (edges[middle] < d.mu)
            below = middle + 1;
        else
            above = middle;
    }
    const double split = h[8 + below] - h[7 + below] + 1;
    for (std::size_t k = 0; k < N; k += W)
        (maximum(load(h, 8 + k) - load(h, 7 + k), Lanes::all(0)) + Lanes::all(epsilon)).store(A + k);
    A[below] = (split > 0 ? split : 0) + epsilon;
    if (d.inv_s < 0.01) {
        // If the scale parameter s is above 100, a bin has nearly the same tail h at both edges, so h_k - h_(k-1) loses
        // digits by cancellation. Instead, the density is integrated over the bin by the trapezoidal rule, corrected by
        // the slopes f' at the bin's ends (error below 1e-10 of A_k).
        const auto slope = [&](std::size_t k) {
            if constexpr (normal) return -(edges[k] - d.mu) * d.inv_s * f[k];
            return f[k] * (edges[k] < d.mu ? 1 - 2 * h[8 + k] : -1 - 2 * h[8 + k]);
        };
        for (std::size_t k = 1; k + 1 < n; ++k) {
            const double width = (edges[k] - edges[k - 1]) * d.inv_s;
            A[k] = width * (0.5 * (f[k - 1] + f[k]) + width / 12 * (slope(k - 1) - slope(k))) + epsilon;
        }
    }
    for (std::size_t k = n; k < N; ++k) A[k] = 0;
}

constexpr std::size_t limit_vectors = 6;

// The arrays of one evaluation, in the caller's scratch. Epsilon is added to the entries of A, except in the padding.
struct Partitioned {
    // n: number of documents. N: number of columns of A. rows: number of rows of A. N and rows include padding with
    // zeros.
    std::size_t n, N, rows;
    Family family;
    // A, dA1, dA2 (rows, N). For beta, dA1 is dA / dlog a and dA2 is dA / dlog b. For the other families, dA1 has the
    // densities at the edges, and dA2 is not used.
    double *A, *dA1, *dA2;
    // q (T + 1, N): row t has the vector q_t of Sinkhorn's normalization (see the top of this file). p (T, N): row t
    // has the derivatives (adjoints) of the expected gain with respect to w_t = 1 / q_(t+1), the row or column sums of
    // half iteration t.
    double *q, *p;
    // (n_classes, N): row c has the elements D[c, k] v_k, the discount of rank k for class c times the factor v_k of
    // column k of Pi
    double* x;
    double* sums;  // (N,): for each column of A, a weighted sum of its entries over all rows
    // Adjoints, which are derivatives of the expected gain. z_bar (rows,): with respect to z_j, the product of row j of
    // A with the row of x for document j's class. u_bar (rows,): with respect to u, the factors of the rows of Pi, the
    // matrix of rank probabilities.
    double *z_bar, *u_bar;
    // (T, 4) for T half iterations. The derivative of the gain with respect to A is a sum of products left_t right_t'
    // of two vectors (see partitioned_rev). Row t has the four elements of left_t for the four rows of A that are being
    // processed.
    double* left;
    // Arrays of length N + 8. For logit-logistic and probit, edges has the edges e_k of the bins, and h the smaller
    // tails h_k at the edges (see location_scale_row). For beta, edges has `corners`, and h has `n_groups` of BetaBins.
    double *edges, *h;
    double* work;      // (limit_vectors, N) for the limit of the normalization only: scratch of partitioned_limit.hpp
    double* nodes;     // for beta only: the nodes of the numerical integration, which beta_nodes writes
    std::size_t used;  // number of doubles in all arrays of this struct, without `nodes`

    Partitioned(std::size_t n_, const Normalization& z, std::size_t n_classes, Family family_, double* scratch)
        : n(n_), N(round_up(n_, 8)), rows(round_up(n_, 4)), family(family_), used(0) {
        const std::size_t T = std::size_t(z.T);
        const auto take = [&](std::size_t size) {
            double* at = scratch ? scratch + used : nullptr;
            used += size;
            return at;
        };
        A = take(rows * N);
        dA1 = take(rows * N);
        dA2 = take(family == Family::beta ? rows * N : 0);
        q = take((T + 1) * N);
        p = take(T * N);
        x = take(n_classes * N);
        sums = take(N);
        z_bar = take(N);
        u_bar = take(N);
        left = take(round_up(4 * T, 8));
        edges = take(N + 8);
        h = take(N + 8);
        work = take(z.to_limit() ? limit_vectors * N : 0);
        nodes = take(0);
    }
    double* q_at(int t) const { return q + std::size_t(t) * N; }
    double* p_at(int t) const { return p + std::size_t(t) * N; }
};

// Number of doubles of scratch that partitioned_gain needs. partitioned_project needs the number for n_classes = 1.
inline std::size_t partitioned_scratch(std::size_t n, const Normalization& z, std::size_t n_classes, Family family) {
    const std::size_t groups = family == Family::beta && n > 1 ? beta_nodes(n, 2 * beta_limit, nullptr, nullptr) : 0;
    return Partitioned(n, z, n_classes, family, nullptr).used + 24 * groups;
}

constexpr std::size_t unroll = W == 8 ? 1 : 2;  // loops advance by unroll * W elements of a row

// out[i] = A_i . x[i], the product of row i of A with x[i], for the four rows that begin at `row`
SINKPROP_INLINE void four_products(const double* row, std::size_t N, const double* const x[4], double out[4]) {
    Lanes s[4][unroll] = {};
    for (std::size_t k = 0; k < N; k += unroll * W)
        for (std::size_t c = 0; c < unroll; ++c)
            for (std::size_t i = 0; i < 4; ++i)
                s[i][c] = fma(load(row, i * N + k + c * W), load(x[i], k + c * W), s[i][c]);
    for (std::size_t i = 0; i < 4; ++i) out[i] = sum(unroll == 2 ? s[i][0] + s[i][unroll - 1] : s[i][0]);
}

// sums += sum_i c[i] A_i over the four rows A_i that begin at `row`
SINKPROP_INLINE void add_four_rows(const double* row, std::size_t N, const double c[4], double* sums) {
    const Lanes c0 = Lanes::all(c[0]), c1 = Lanes::all(c[1]), c2 = Lanes::all(c[2]), c3 = Lanes::all(c[3]);
    for (std::size_t k = 0; k < N; k += W) {
        const Lanes even = fma(c0, load(row, k), fma(c2, load(row, 2 * N + k), load(sums, k)));
        fma(c1, load(row, N + k), fma(c3, load(row, 3 * N + k), even)).store(sums + k);
    }
}

inline void set_zero(double* x, std::size_t size) {
    for (std::size_t k = 0; k < size; k += W) Lanes::all(0).store(x + k);
}

// Computes sums = A' c, where c_j = finish(j, (A x)_j), while reading A only once
template <class Finish>
inline void fused_products(const Partitioned& m, const double* x, Finish finish) {
    set_zero(m.sums, m.N);
    const double* const x4[4] = {x, x, x, x};
    for (std::size_t j = 0; j < m.rows; j += 4) {
        const double* row = m.A + j * m.N;
        double w[4], c[4] = {0, 0, 0, 0};
        four_products(row, m.N, x4, w);
        for (std::size_t i = 0; i < 4 && j + i < m.n; ++i) c[i] = finish(j + i, w[i]);
        add_four_rows(row, m.N, c, m.sums);
    }
}

// 1 / w for a row or column sum w, or 0 if w is at most 1e-250, as in an empty row or column
inline double reciprocal(double w) {
    return w > 1e-250 ? 1 / w : 0;
}

// Writes the matrix A to m.A, what is needed of its derivatives to m.dA1 and m.dA2 (see Partitioned), and the column
// sums of A to m.sums
inline void form_matrix(const Partitioned& m, const double* theta, double epsilon) {
    const std::size_t n = m.n, N = m.N;
    BetaBins bins = {m.h, m.nodes, m.edges, -708};
    if (m.family == Family::beta) {
        double total = 0;
        for (std::size_t j = 0; j < n; ++j) {
            const double ab = beta_parameter(theta[2 * j]) + beta_parameter(theta[2 * j + 1]);
            if (ab > total) total = ab;
        }
        if (n > 1) beta_nodes(n, bounded(total, 0, 2 * beta_limit), m.h, m.nodes);
        for (std::size_t k = 8; k < n; k += 8) {
            m.edges[k / 4] = std::log(double(k) / double(n));
            m.edges[k / 4 + 1] = std::log(double(n - k) / double(n));
        }
        // masses below e^-50 epsilon vanish when epsilon is added to them
        if (epsilon > 0) bins.threshold = bounded(std::log(epsilon) - 50, -708, -50);
    } else {
        for (std::size_t k = 0; k < N; ++k) {
            const double below = double(k + 1), above = double(n) - below;
            if (k + 1 >= n)
                m.edges[k] = last_edge;
            else
                m.edges[k] = m.family == Family::probit ? normal_quantile(below / double(n)) : std::log(below / above);
        }
    }
    set_zero(m.sums, N);
    for (std::size_t j = 0; j < m.rows; j += 4) {
        for (std::size_t i = j; i < j + 4; ++i) {
            double *A = m.A + i * N, *dA1 = m.dA1 + i * N, *dA2 = m.dA2 + i * N;
            if (i >= n || n == 1) {
                set_zero(A, N);
                set_zero(dA1, N);
                if (m.family == Family::beta) set_zero(dA2, N);
                if (i < n) A[0] = 1 + epsilon;
            } else if (m.family == Family::logit_logistic) {
                location_scale_row<false>(theta + 2 * i, m.edges, n, N, epsilon, m.h, A, dA1);
            } else if (m.family == Family::probit) {
                location_scale_row<true>(theta + 2 * i, m.edges, n, N, epsilon, m.h, A, dA1);
            } else {
                beta_row(theta + 2 * i, bins, n, N, epsilon, A, dA1, dA2);
            }
        }
        const double ones[4] = {1, 1, 1, 1};
        add_four_rows(m.A + j * N, N, ones, m.sums);
    }
}

// Computes the vectors q_0 .. q_r of Sinkhorn's normalization: those with an even index scale the documents (rows of
// A), those with an odd index the ranks (columns). r is the largest odd number up to T, so q_r is the last one for
// ranks.
inline void scale_ranks(const Partitioned& m, int T) {
    for (std::size_t j = 0; j < m.N; ++j) m.q[j] = j < m.n ? 1 : 0;
    const auto columns = [&](double* v) {
        for (std::size_t k = 0; k < m.N; ++k) v[k] = reciprocal(m.sums[k]);
    };
    if (T > 0) columns(m.q_at(1));
    for (int t = 1; t + 2 <= T; t += 2) {
        double* u = m.q_at(t + 1);
        fused_products(m, m.q_at(t), [&](std::size_t j, double w) SINKPROP_LAMBDA { return u[j] = reciprocal(w); });
        columns(m.q_at(t + 2));
    }
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
