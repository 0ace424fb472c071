// The limit of Sinkhorn's normalization for a partitioned measure, in which all rows and columns of
// Pi = diag(u) A diag(v) sum to 1, and the reverse pass of this limit (docs/linear-time.md 9).
//
// Half iterations converge slowly if Pi is nearly made of blocks, as with small scale parameters. Then Newton steps
// take over. With y = log v and rows that sum to 1, the limit minimizes the convex function
//     f(y) = sum_j log((A v)_j) - sum_k y_k,
// with the gradient c - 1, where c are the column sums of Pi, and the matrix H = diag(c) - Pi' Pi of second
// derivatives. The reverse pass has a linear system with the same matrix. The method of conjugate gradients solves
// both; a product with H reads A once.
#pragma once

#include <cmath>

#include "partitioned_matrix.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// Solves H x = b for the matrix H at the top of this file. The sum of the elements of b must be 0, and the solution is
// determined up to a constant. On entry, `x` has b. r, d and y (N,) are scratch, like m.sums. Stops when the residual
// is `tol` times b, and returns its size relative to b. Adds the number of products to `made`, and stops at `most`.
inline double solve_columns(const Partitioned& m, const double* u, const double* v, const double* c, double* x,
                            double* r, double* d, double* y, double tol, int most, int& made) {
    const std::size_t n = m.n, N = m.N;
    double size = 0;
    for (std::size_t k = 0; k < N; ++k) {
        r[k] = x[k];
        x[k] = 0;
        d[k] = k < n && c[k] > 0 ? r[k] / c[k] : 0;
        size += r[k] * d[k];
    }
    const double first = size;
    while (size > tol * tol * first && made < most) {
        ++made;
        for (std::size_t k = 0; k < N; ++k) y[k] = v[k] * d[k];
        fused_products(m, y, [&](std::size_t j, double w) SINKPROP_LAMBDA { return u[j] * u[j] * w; });
        double product = 0;
        for (std::size_t k = 0; k < N; ++k) {
            y[k] = c[k] * d[k] - v[k] * m.sums[k];
            product += d[k] * y[k];
        }
        if (!(product > 0)) break;
        const double step = size / product, before = size;
        size = 0;
        for (std::size_t k = 0; k < N; ++k) {
            x[k] += step * d[k];
            r[k] -= step * y[k];
            y[k] = k < n && c[k] > 0 ? r[k] / c[k] : 0;
            size += r[k] * y[k];
        }
        for (std::size_t k = 0; k < N; ++k) d[k] = y[k] + size / before * d[k];
    }
    return first > 0 ? std::sqrt(size / first) : 0;
}

// Writes u = 1 / (A v) to u, the column sums of Pi to c, and A' u to m.sums. Returns the largest deviation of a row or
// column sum from 1. A row can deviate only if it is empty. `gained` is the sum of log(before_j / u_j) over the rows.
inline double balance_rows(const Partitioned& m, const double* v, const double* before, double* u, double* c,
                           double& gained) {
    double worst = 0, logs = 0;
    fused_products(m, v, [&](std::size_t j, double w) SINKPROP_LAMBDA {
        u[j] = reciprocal(w);
        if (u[j] == 0)
            worst = 1;
        else if (before && before[j] > 0)
            logs += std::log(before[j] / u[j]);
        return u[j];
    });
    for (std::size_t k = 0; k < m.N; ++k) {
        c[k] = v[k] * m.sums[k];
        const double away = k < m.n ? std::fabs(c[k] - 1) : 0;
        if (!(away <= worst)) worst = away;
    }
    gained = logs;
    return worst;
}

// Computes the factors of the limit: u is written to row 0 of m.q, and v to row 1
inline void limit_ranks(const Partitioned& m, const Normalization& z) {
    constexpr double slow = 25;  // number of iterations that must be ahead before Newton steps are taken
    const std::size_t n = m.n, N = m.N;
    double *u = m.q_at(0), *v = m.q_at(1), *u_new = m.q_at(2), *v_new = m.work;
    double *c = v_new + N, *step = c + N, *r = step + N, *d = r + N, *y = d + N;
    for (std::size_t k = 0; k < N; ++k) u[k] = u_new[k] = 0;
    for (std::size_t k = 0; k < N; ++k) v[k] = reciprocal(m.sums[k]);
    double gained, error = balance_rows(m, v, nullptr, u, c, gained), before = error;
    bool newton = false, refused = false;
    for (int made = 1; error > z.tol && made < z.max_iter;) {
        if (!newton) {
            for (std::size_t k = 0; k < N; ++k) v[k] = reciprocal(m.sums[k]);
            before = error;
            error = balance_rows(m, v, nullptr, u, c, gained);
            ++made;
            const double ratio = error / before;
            newton = !refused && made > 4 && error > z.tol &&
                     (ratio >= 1 || std::log(z.tol / error) < slow * std::log(ratio));
            // without progress for rounding errors
            if (refused && ratio > 0.9999 && error < 1e-9) break;
            continue;
        }
        for (std::size_t k = 0; k < N; ++k) step[k] = k < n ? 1 - c[k] : 0;
        solve_columns(m, u, v, c, step, r, d, y, error < 0.1 ? (error > 1e-6 ? error : 1e-6) : 0.1, z.max_iter, made);
        double slope = 0, sum = 0, largest = 0;
        for (std::size_t k = 0; k < n; ++k) {
            slope += (1 - c[k]) * step[k];
            sum += step[k];
            if (std::fabs(step[k]) > largest) largest = std::fabs(step[k]);
        }
        double length = largest > 20 ? 20 / largest : 1, trial = error;
        bool taken = false;
        for (int tries = 0; tries < 30 && made < z.max_iter && !taken; ++tries, ++made, length *= 0.5) {
            for (std::size_t k = 0; k < N; ++k) v_new[k] = v[k] * std::exp(length * step[k]);
            // c is needed again if the step is refused, so the column sums of the trial go to y
            trial = balance_rows(m, v_new, u, u_new, y, gained);
            taken = length * sum - gained >= 1e-4 * length * slope || trial <= 0.5 * error;
        }
        if (taken) {
            for (std::size_t k = 0; k < N; ++k) {
                u[k] = u_new[k];
                v[k] = v_new[k];
                c[k] = y[k];
            }
            error = trial;
        } else {
            refused = true;
            newton = false;
            error = balance_rows(m, v, nullptr, u, c, gained);
        }
    }
    if (z.residual && !(error <= *z.residual)) *z.residual = error;
}

// Computes the factors of Pi by half iterations (scale_ranks), or those of the limit
inline void normalize_ranks(const Partitioned& m, const Normalization& z) {
    if (z.to_limit())
        limit_ranks(m, z);
    else
        scale_ranks(m, z.T);
}

// The reverse pass of `limit_ranks`. Let M be the derivative of the gain with respect to Pi, and a and b the sums of
// the rows and of the columns of M * Pi. The adjoint of A is uv' * (M - alpha 1' - 1 beta'), where
//     alpha + Pi beta = a,      Pi' alpha + beta = b,
// so that H beta = b - Pi' a. On entry, m.sums has b - Pi' a, and row 1 of m.p has -(u * a). On return, the rows of m.p
// have -(v * beta) and -(u * alpha), as partitioned_rev expects for two half iterations.
inline void limit_rev(const Partitioned& m, const Normalization& z) {
    const std::size_t n = m.n, N = m.N;
    double *u = m.q_at(0), *v = m.q_at(1), *p_rows = m.p_at(1), *p_columns = m.p_at(0);
    double *c = m.work, *beta = c + N, *r = beta + N, *d = r + N, *y = d + N;
    double mean = 0, unused;
    for (std::size_t k = 0; k < n; ++k) mean += m.sums[k] / double(n);
    for (std::size_t k = 0; k < N; ++k) beta[k] = k < n ? m.sums[k] - mean : 0;
    balance_rows(m, v, nullptr, u, c, unused);
    int made = 0;
    const double tol = z.linear_tol(), left = solve_columns(m, u, v, c, beta, r, d, y, tol, z.max_iter, made);
    if (z.residual && left > 1e-6 && left > *z.residual) *z.residual = left;
    for (std::size_t k = 0; k < N; ++k) {
        y[k] = v[k] * beta[k];
        p_columns[k] = -y[k];
    }
    fused_products(m, y, [&](std::size_t j, double w) SINKPROP_LAMBDA {
        p_rows[j] += u[j] * (u[j] * w);
        return 0.0;
    });
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
