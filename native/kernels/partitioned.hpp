// Partitioned measures (docs/linear-time.md 7): the expected gain of one query, its gradient, and products of the
// matrix Pi of rank probabilities with a vector. The scalings and adjoints are those of docs/linear-time.md 1.3, and
// the matrix A those of partitioned_matrix.hpp.
#pragma once

#include "partitioned_limit.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

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

// Computes p_t for t = last .. 0: the adjoint of w_t = 1 / q_(t+1), that is, the derivative of the gain with respect to
// w_t, from the vectors that the reverse pass of the gain left in m.u_bar and m.sums (see partitioned_gain). If q_bar
// is the adjoint of q_(t+1), then p_t = -q_bar q_(t+1)^2. For an odd T, q_(T-1) is u, the factors of Pi's rows. Its
// adjoint has u_bar as an additional term, because the gain also depends on u directly.
inline void scale_ranks_rev(const Partitioned& m, int T) {
    const bool rows_last = T > 0 && T % 2 == 0;
    const double* v = m.q_at(rows_last ? T - 1 : T);
    const int last = T - (rows_last ? 2 : 1);
    if (T > 0)
        for (std::size_t k = 0; k < m.N; ++k) m.p_at(last)[k] = -m.sums[k] * v[k];
    for (int t = last; t >= 2; t -= 2) {
        const double *q = m.q_at(t), *before = m.q_at(t - 1);
        double *p = m.p_at(t - 1), *p_before = m.p_at(t - 2);
        const double direct = t == T - 1 ? 1 : 0;
        fused_products(m, m.p_at(t), [&](std::size_t j, double w) SINKPROP_LAMBDA {
            return p[j] = -((w + direct * m.u_bar[j]) * q[j] * q[j]);
        });
        for (std::size_t k = 0; k < m.N; ++k) p_before[k] = -(m.sums[k] * before[k] * before[k]);
    }
}

// Returns the expected gain sum_jk g_j D[c_j, k] Pi_jk, where Pi_jk is the probability that document j has rank k, and
// writes its gradient (n, 2) with respect to the documents' parameters theta (n, 2). g (n,) has the gains, D
// (n_classes, stride) the discounts of the ranks for each class of documents, and classes (n,) the class c_j of each
// document. If n_classes is 1, `classes` is not used. The scratch must be aligned to 64 bytes.
inline double partitioned_gain(const double* theta, std::size_t n, Family family, const double* g, const double* D,
                               std::size_t stride, const std::int32_t* classes, std::size_t n_classes,
                               const Normalization& normalization, double* scratch, double* gradient) {
    const Partitioned m(n, normalization, n_classes, family, scratch);
    const std::size_t N = m.N;
    const int T = normalization.T;
    form_matrix(m, theta, normalization.epsilon);
    normalize_ranks(m, normalization);
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

    if (normalization.to_limit())
        limit_rev(m, normalization);
    else
        scale_ranks_rev(m, T);
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

    PartitionedFactors(const double* theta, std::size_t n_, Family family_, const Normalization& z, double* scratch)
        : Partitioned(n_, z, 1, family_, scratch) {
        const int T = z.T;
        form_matrix(*this, theta, z.epsilon);
        normalize_ranks(*this, z);
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
                                std::size_t n_columns, const Normalization& z, double* scratch, double* out) {
    const PartitionedFactors m(theta, n, family, z, scratch);
    for (std::size_t c = 0; c < n_columns; ++c) {
        for (std::size_t k = 0; k < m.N; ++k) m.x[k] = k < n ? m.v[k] * X[c * stride + k] : 0;
        m.multiply(m.x, m.sums);
        for (std::size_t j = 0; j < n; ++j) out[c * n + j] = m.u[j] * m.sums[j];
    }
}

// The statistics of all terms of a query's gain (terms.hpp): writes R_c = Pi' a_c or E = Pi e to out (n_products, n).
// `vectors` (n_products, n) has the vectors a_c and e.
inline void partitioned_statistics(const double* theta, std::size_t n, Family family, const double* vectors,
                                   const Query& query, const Normalization& z, double* scratch, double* out) {
    const PartitionedFactors m(theta, n, family, z, scratch);
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
