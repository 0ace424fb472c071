// Partitioned measures (docs/linear-time.md 7): the expected gain of one query, its gradient, and products of the
// matrix Pi of rank probabilities with a vector. The scalings and adjoints are those of docs/linear-time.md 1.3. The
// matrices are dense, so that a query of n documents takes O(n^2) time and memory.
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
    double* nodes;     // for beta only: the nodes of the numerical integration, which beta_nodes writes
    std::size_t used;  // number of doubles in all arrays of this struct, without `nodes`

    Partitioned(std::size_t n_, int T_, std::size_t n_classes, Family family_, double* scratch)
        : n(n_), N(round_up(n_, 8)), rows(round_up(n_, 4)), family(family_), used(0) {
        const std::size_t T = std::size_t(T_);
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
        nodes = take(0);
    }
    double* q_at(int t) const { return q + std::size_t(t) * N; }
    double* p_at(int t) const { return p + std::size_t(t) * N; }
};

// Number of doubles of scratch that partitioned_gain needs. partitioned_project needs the number for n_classes = 1.
inline std::size_t partitioned_scratch(std::size_t n, int T, std::size_t n_classes, Family family) {
    const std::size_t groups = family == Family::beta && n > 1 ? beta_nodes(n, 2 * beta_limit, nullptr, nullptr) : 0;
    return Partitioned(n, T, n_classes, family, nullptr).used + 24 * groups;
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

// Computes the gradient (n, 2) of the expected gain with respect to theta. The adjoint of a matrix or vector is the
// derivative of the expected gain with respect to it; p_t is the adjoint of w_t. The adjoint of A is a sum of products
// of a column and a row vector, left_t right_t': it has p_t q_t' for each product w_t = A q_t (odd t), q_t p_t' for
// each product w_t = A' q_t (even t), and z_bar x_c' in the rows of the documents of class c. The adjoint of A is not
// stored: its rows exist in registers only.
template <bool is_beta>
inline void partitioned_rev(const Partitioned& m, const double* theta, const std::int32_t* classes,
                            std::size_t n_classes, int T, double* gradient) {
    const std::size_t N = m.N;
    if constexpr (!is_beta) {
        // The parameters enter A through the values F_k of the distribution function at the edges. F_k occurs in A_k
        // with the factor 1 and in A_(k+1) with the factor -1. So the adjoint of F is the same sum of products left_t
        // right_t' as the adjoint of A (see the comment on this function), with right_t[k] - right_t[k+1] in the place
        // of right_t[k].
        const auto difference = [&](double* x) {
            for (std::size_t k = 0; k + 1 < N; ++k) x[k] -= x[k + 1];
        };
        for (int t = 0; t < T; ++t) difference(t % 2 ? m.q_at(t) : m.p_at(t));
        for (std::size_t c = 0; c < n_classes; ++c) difference(m.x + c * N);
    }
    for (std::size_t j = 0; j < m.n; j += 4) {
        const double* x[4];
        LocationScale d[4];
        for (std::size_t i = 0; i < 4; ++i) {
            const std::size_t at = j + i < m.n ? j + i : j;
            x[i] = m.x + (n_classes > 1 ? std::size_t(classes[at]) * N : 0);
            d[i] = LocationScale(theta + 2 * at);
            for (int t = 0; t < T; ++t) m.left[4 * std::size_t(t) + i] = (t % 2 ? m.p_at(t) : m.q_at(t))[at];
        }
        Lanes s[4] = {}, s2[4] = {};
        for (std::size_t k = 0; k < N; k += unroll * W) {
            Lanes bar[4][unroll];
            for (std::size_t i = 0; i < 4; ++i)
                for (std::size_t c = 0; c < unroll; ++c) bar[i][c] = Lanes::all(m.z_bar[j + i]) * load(x[i], k + c * W);
            for (int t = 0; t < T; ++t) {
                const double *right = (t % 2 ? m.q_at(t) : m.p_at(t)) + k, *left = m.left + 4 * t;
                for (std::size_t i = 0; i < 4; ++i)
                    for (std::size_t c = 0; c < unroll; ++c)
                        bar[i][c] = fma(Lanes::all(left[i]), load(right, c * W), bar[i][c]);
            }
            for (std::size_t i = 0; i < 4; ++i)
                for (std::size_t c = 0; c < unroll; ++c) {
                    const std::size_t at = (j + i) * N + k + c * W;
                    const Lanes term = bar[i][c] * load(m.dA1, at);
                    s[i] = s[i] + term;
                    if constexpr (is_beta)
                        s2[i] = fma(bar[i][c], load(m.dA2, at), s2[i]);
                    else
                        s2[i] = fma(term, d[i].z(load(m.edges, k + c * W)), s2[i]);
                }
        }
        for (std::size_t i = 0; i < 4 && j + i < m.n; ++i) {
            const double *in = theta + 2 * (j + i), s0 = sum(s[i]), s1 = sum(s2[i]);
            double* out = gradient + 2 * (j + i);
            if constexpr (is_beta) {
                out[0] = s0 * inside(in[0], log_beta_lower, log_beta_upper);
                out[1] = s1 * inside(in[1], log_beta_lower, log_beta_upper);
            } else {
                // the distribution function F at an edge e has dF/dmu = -f(z) / s and dF/dlog s = -z f(z), with
                // z = (e - mu) / s and the standard density f
                out[0] = -d[i].inv_s * s0 * inside(in[0], -mu_limit, mu_limit);
                out[1] = -s1 * inside(in[1], -log_scale_limit, log_scale_limit);
            }
        }
    }
}

// Returns the expected gain sum_jk g_j D[c_j, k] Pi_jk, where Pi_jk is the probability that document j has rank k, and
// writes its gradient (n, 2) with respect to the documents' parameters theta (n, 2). g (n,) has the gains, D
// (n_classes, stride) the discounts of the ranks for each class of documents, and classes (n,) the class c_j of each
// document. If n_classes is 1, `classes` is not used. The scratch must be aligned to 64 bytes.
inline double partitioned_gain(const double* theta, std::size_t n, Family family, const double* g, const double* D,
                               std::size_t stride, const std::int32_t* classes, std::size_t n_classes, int T,
                               double epsilon, double* scratch, double* gradient) {
    const Partitioned m(n, T, n_classes, family, scratch);
    const std::size_t N = m.N;
    form_matrix(m, theta, epsilon);
    scale_ranks(m, T);
    const bool rows_last = T > 0 && T % 2 == 0;
    const double* v = m.q_at(rows_last ? T - 1 : T);
    for (std::size_t c = 0; c < n_classes; ++c)
        for (std::size_t k = 0; k < N; ++k) m.x[c * N + k] = k < n ? v[k] * D[c * stride + k] : 0;

    // The expected gain is sum_j g_j u_j z_j. Here u and v are the factors of Pi's rows and columns, z_j = A_j . x_c,
    // A_j is row j of A, and x_c is the row of m.x for the class c of document j. If the last half iteration computes u
    // (`rows_last`), this loop computes u = 1 / (A v), and also p, the adjoint of A v, which is the derivative of the
    // gain with respect to A v. Otherwise u is known and p is 0. The loop also adds up
    // sums = sum_j A_j * (z_bar_j x_c + p_j v), where * multiplies elementwise and z_bar_j = g_j u_j. This equals v *
    // v_bar, where v_bar is the adjoint of v.
    double value = 0;
    set_zero(m.sums, N);
    for (std::size_t j = 0; j < m.rows; j += 4) {
        const double *row = m.A + j * N, *x[4], *const v4[4] = {v, v, v, v};
        double w[4], z[4], p[4] = {0, 0, 0, 0}, z_bar[4] = {0, 0, 0, 0};
        for (std::size_t i = 0; i < 4; ++i)
            x[i] = m.x + (n_classes > 1 && j + i < n ? std::size_t(classes[j + i]) * N : 0);
        four_products(row, N, x, z);
        if (rows_last) four_products(row, N, v4, w);
        for (std::size_t i = 0; i < 4 && j + i < n; ++i) {
            const double u = rows_last ? reciprocal(w[i]) : T ? m.q_at(T - 1)[j + i] : 1;
            z_bar[i] = g[j + i] * u;
            value += z_bar[i] * z[i];
            m.u_bar[j + i] = g[j + i] * z[i];
            if (rows_last) m.p_at(T - 1)[j + i] = p[i] = -(z_bar[i] * z[i] * u);
        }
        for (std::size_t i = 0; i < 4; ++i) m.z_bar[j + i] = z_bar[i];
        for (std::size_t k = 0; k < N; k += W) {
            Lanes s = load(m.sums, k);
            for (std::size_t i = 0; i < 4; ++i) {
                const Lanes bar = fma(Lanes::all(z_bar[i]), load(x[i], k), Lanes::all(p[i]) * load(v, k));
                s = fma(load(row, i * N + k), bar, s);
            }
            s.store(m.sums + k);
        }
    }

    // Computes p_t for t = last .. 0: the adjoint of w_t = 1 / q_(t+1), that is, the derivative of the gain with
    // respect to w_t. If q_bar is the adjoint of q_(t+1), then p_t = -q_bar q_(t+1)^2. For an odd T, q_(T-1) is u, the
    // factors of Pi's rows. Its adjoint has u_bar as an additional term, because the gain also depends on u directly.
    const int last = T - (rows_last ? 2 : 1);
    if (T > 0)
        for (std::size_t k = 0; k < N; ++k) m.p_at(last)[k] = -m.sums[k] * v[k];
    for (int t = last; t >= 2; t -= 2) {
        const double *q = m.q_at(t), *before = m.q_at(t - 1);
        double *p = m.p_at(t - 1), *p_before = m.p_at(t - 2);
        const double direct = t == T - 1 ? 1 : 0;
        fused_products(m, m.p_at(t), [&](std::size_t j, double w) SINKPROP_LAMBDA {
            return p[j] = -((w + direct * m.u_bar[j]) * q[j] * q[j]);
        });
        for (std::size_t k = 0; k < N; ++k) p_before[k] = -(m.sums[k] * before[k] * before[k]);
    }
    if (family == Family::beta)
        partitioned_rev<true>(m, theta, classes, n_classes, T, gradient);
    else
        partitioned_rev<false>(m, theta, classes, n_classes, T, gradient);
    return value;
}

// The matrix A of a query with a partitioned measure, and the factors u and v of Pi = diag(u) A diag(v). A includes
// epsilon.
struct PartitionedFactors : Partitioned {
    double *u, *v;

    PartitionedFactors(const double* theta, std::size_t n_, Family family_, int T, double epsilon, double* scratch)
        : Partitioned(n_, T, 1, family_, scratch) {
        form_matrix(*this, theta, epsilon);
        scale_ranks(*this, T);
        const bool rows_last = T > 0 && T % 2 == 0;
        v = q_at(rows_last ? T - 1 : T);
        u = T ? q_at(rows_last ? T : T - 1) : q;
        if (!rows_last) return;
        multiply(v, u);
        for (std::size_t j = 0; j < n; ++j) u[j] = reciprocal(u[j]);
    }

    // w = A y
    void multiply(const double* y, double* w) const {
        const double* const y4[4] = {y, y, y, y};
        for (std::size_t j = 0; j < rows; j += 4) four_products(A + j * N, N, y4, w + j);
    }
};

// Multiplies Pi, the matrix of rank probabilities, by several vectors, the rows of X (n_columns, stride): writes
// out[c, j] = sum_k Pi_jk X[c, k] to out (n_columns, n)
inline void partitioned_project(const double* theta, std::size_t n, Family family, const double* X, std::size_t stride,
                                std::size_t n_columns, int T, double epsilon, double* scratch, double* out) {
    const PartitionedFactors m(theta, n, family, T, epsilon, scratch);
    for (std::size_t c = 0; c < n_columns; ++c) {
        for (std::size_t k = 0; k < m.N; ++k) m.x[k] = k < n ? m.v[k] * X[c * stride + k] : 0;
        m.multiply(m.x, m.sums);
        for (std::size_t j = 0; j < n; ++j) out[c * n + j] = m.u[j] * m.sums[j];
    }
}

// The statistics of all terms of a query's gain (terms.hpp): writes R_c = Pi' a_c or E = Pi e to out (n_products, n).
// `vectors` (n_products, n) has the vectors a_c and e.
inline void partitioned_statistics(const double* theta, std::size_t n, Family family, const double* vectors,
                                   const Query& query, int T, double epsilon, double* scratch, double* out) {
    const PartitionedFactors m(theta, n, family, T, epsilon, scratch);
    for (std::size_t t = 0; t < query.n_terms; ++t)
        for (std::size_t c = 0; c < query.terms[t].products(); ++c, vectors += n, out += n) {
            if (query.terms[t].of_rows()) {
                for (std::size_t k = 0; k < m.N; ++k) m.x[k] = k < n ? m.v[k] * vectors[k] : 0;
                m.multiply(m.x, m.sums);
                for (std::size_t j = 0; j < n; ++j) out[j] = m.u[j] * m.sums[j];
                continue;
            }
            set_zero(m.sums, m.N);
            for (std::size_t j = 0; j < n; ++j) {
                const Lanes g = Lanes::all(m.u[j] * vectors[j]);
                for (std::size_t k = 0; k < m.N; k += W)
                    fma(g, load(m.A, j * m.N + k), load(m.sums, k)).store(m.sums + k);
            }
            for (std::size_t k = 0; k < n; ++k) out[k] = m.v[k] * m.sums[k];
        }
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
