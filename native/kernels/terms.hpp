// Gains that are sums of terms. A term is a smooth function of rank-linear statistics of the rank probabilities Pi:
//   of columns  R_c[k] = sum_j Pi_jk a_c[j], the amount of attribute c that is expected at rank k
//   of rows     E[j] = sum_k Pi_jk e[k], the exposure of document j, for the weights e of the ranks
// docs/beyond-rank-linear.md derives them; the reverse pass is that of docs/linear-time.md 1.3, with a discount (for
// columns) or a gain (for rows) that is the derivative of the term with respect to its statistic.
//
// With Pi = diag(u) (A + epsilon) diag(v), a statistic takes one product with A, R_c = v * ((A + epsilon) (u * a_c)) or
// E = u * ((A + epsilon) (v * e)), and its reverse pass one more.
#pragma once

#include "converged.hpp"
#include "kernels.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// F = sum_k d_k R_k (1 + sum_(i<k) R_i): with d_k = 1/k, the sum of the precisions at the ranks of relevant documents.
// Writes factor * dF/dR to D, and returns factor * F.
inline double precision_sum(const double* R, const double* d, std::size_t n, double factor, double* D) {
    double value = 0, above = 0, below = 0;
    for (std::size_t k = 0; k < n; ++k) {
        D[k] = d[k] * (1 + above);
        value += D[k] * R[k];
        above += R[k];
    }
    for (std::size_t k = n; k-- > 0;) {
        D[k] = factor * (D[k] + below);
        below += d[k] * R[k];
    }
    return factor * value;
}

// F = sum_k d_k R_k prod_(i<k) (1 - alpha R_i): the gain of a reader who goes down the list and whose interest shrinks
// by the factor 1 - alpha R_i at rank i. V_k, the part of F from rank k on for an interest of 1, obeys
// V_k = d_k R_k + (1 - alpha R_k) V_(k+1), and dF/dR_k = prod_(i<k) (1 - alpha R_i) (d_k - alpha V_(k+1)). There is no
// division, so that R_k = 1 / alpha is no special case. Writes factor * dF/dR to D, and returns factor * F.
inline double cascade_sum(const double* R, const double* d, std::size_t n, double alpha, double factor, double* D) {
    constexpr double vanished = 1e-200;  // smaller interests are set to 0: subnormal numbers would be slow
    double interest = factor, ahead = 0;
    for (std::size_t k = 0; k < n; ++k) {
        D[k] = interest;
        interest *= 1 - alpha * R[k];
        if (interest < vanished && interest > -vanished) interest = 0;
    }
    for (std::size_t k = n; k-- > 0;) {
        D[k] *= d[k] - alpha * ahead;
        ahead = d[k] * R[k] + (1 - alpha * R[k]) * ahead;
    }
    return factor * ahead;
}

// Whether at most one of n documents has the attribute. It then stands at one rank only, where the interest of a reader
// is 1 and no other document adds to the precision, so that the expectation is linear in R: that of alpha = 0.
inline bool at_most_one(const double* a, std::size_t n) {
    std::size_t count = 0;
    for (std::size_t j = 0; j < n; ++j) count += a[j] != 0;
    return count <= 1;
}

// H = sum_j (E_j - t_j)^2. Writes factor * dH/dE to h, and returns factor * H.
inline double squared_distance(const double* E, const double* t, std::size_t n, double factor, double* h) {
    double value = 0;
    for (std::size_t j = 0; j < n; ++j) {
        const double away = E[j] - t[j];
        value += away * away;
        h[j] = 2 * factor * away;
    }
    return factor * value;
}

// H = mean over all pairs of groups g, g' of (X_g - X_g')^2, with X_g = sum of w_j E_j over the documents of group g.
// group[j] is a whole number below n, or negative for a document that belongs to no group. If there are fewer than two
// groups, H is 0. Writes factor * dH/dE to h, and returns factor * H. X (n,) is scratch.
inline double group_differences(const double* E, const double* group, const double* w, std::size_t n, double factor,
                                double* X, double* h) {
    double groups = 0, total = 0, squares = 0;
    for (std::size_t j = 0; j < n; ++j) X[j] = h[j] = 0;
    for (std::size_t j = 0; j < n; ++j)
        if (group[j] >= 0) {
            const std::size_t g = std::size_t(group[j]);
            if (h[g] == 0) groups += h[g] = 1;  // h marks the groups that were seen
            X[g] += w[j] * E[j];
            total += w[j] * E[j];
        }
    if (groups < 2) {
        for (std::size_t j = 0; j < n; ++j) h[j] = 0;
        return 0;
    }
    for (std::size_t g = 0; g < n; ++g) squares += X[g] * X[g];
    factor *= 2 / (groups * (groups - 1));
    for (std::size_t j = 0; j < n; ++j)
        h[j] = group[j] >= 0 ? 2 * factor * w[j] * (groups * X[std::size_t(group[j])] - total) : 0;
    return factor * (groups * squares - total * total);
}

// Returns the value of a term, and writes its derivatives with respect to the statistics S to S_bar. S and S_bar have
// the shape (products, n): R_c in rank order for each attribute c, or E for the documents in order of their scores.
// `spare` (n,) is scratch.
inline double evaluate(const Term& term, const Query& query, const double* S, double* S_bar, double* spare) {
    const std::size_t n = query.n;
    const double* a = query.gains + term.first * n;
    double value = 0;
    switch (term.form) {
        case Form::linear:
            for (std::size_t c = 0; c < term.count; ++c)
                for (std::size_t k = 0; k < n; ++k) {
                    S_bar[c * n + k] = term.factor * term.discount(c)[k];
                    value += S_bar[c * n + k] * S[c * n + k];
                }
            return value;
        case Form::precisions:
            for (std::size_t c = 0; c < term.count; ++c)
                value += at_most_one(a + c * n, n)
                             ? cascade_sum(S + c * n, term.discount(c), n, 0, term.factor, S_bar + c * n)
                             : precision_sum(S + c * n, term.discount(c), n, term.factor, S_bar + c * n);
            return value;
        case Form::cascade:
            for (std::size_t c = 0; c < term.count; ++c)
                value += cascade_sum(S + c * n, term.discount(c), n, at_most_one(a + c * n, n) ? 0 : term.alpha,
                                     term.factor, S_bar + c * n);
            return value;
        case Form::target:
            return squared_distance(S, a, n, term.factor, S_bar);
        case Form::gap:
            return group_differences(S, a, a + n, n, term.factor, spare, S_bar);
        case Form::column:
        case Form::row:
            value = term.function(term.context, S, a, n, term.count, S_bar);
            for (std::size_t i = 0; i < term.products() * n; ++i) S_bar[i] *= term.factor;
            return term.factor * value;
    }
    return value;
}

// Distributes a value per document, or per rank, to the elements of an operator's vectors. If the elements are ties,
// the i-th of which has the documents first[i] .. first[i + 1] - 1, an element is the mean over the tie.
template <class Operator>
inline void to_elements(const Operator& A, const std::size_t* first, const double* values, double* out) {
    A.each_padding([&](std::size_t slot) SINKPROP_LAMBDA { out[slot] = 0; });
    A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA {
        if constexpr (has_ties<Operator>) {
            double total = 0;
            for (std::size_t j = first[i]; j < first[i + 1]; ++j) total += values[j];
            out[slot] = total / double(first[i + 1] - first[i]);
        } else {
            out[slot] = values[i];
        }
    });
}

// For each tie, the mean over all pairs of its ranks of the upper rank's discount minus the lower rank's (ties.hpp)
template <class Operator>
inline void to_spreads(const Operator& A, const std::size_t* first, const double* d, double* out) {
    A.each_padding([&](std::size_t slot) SINKPROP_LAMBDA { out[slot] = 0; });
    A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA {
        const double count = double(first[i + 1] - first[i]);
        double differences = 0;
        for (std::size_t j = first[i]; j < first[i + 1]; ++j)
            differences += d[j] * (count - 1 - 2 * double(j - first[i]));
        out[slot] = count > 1 ? differences / (0.5 * count * (count - 1)) : 0;
    });
}

// Number of doubles of scratch that terms_gain needs for vectors of N elements
constexpr std::size_t terms_scratch(std::size_t N, std::size_t n, int T, std::size_t products) {
    return (std::size_t(T) + 9 + 3 * products) * N + (2 * products + 1) * round_up(n, 8);
}

// Returns the gain of a query that is a sum of terms, and writes its gradient with respect to the sorted scores, times
// the operator's unit, to `gradient`. The operator must have memory for T + products - 1 half iterations.
//
// If the elements of vectors are ties, `gradient` has the sum over each tie. The derivative of a document is then an
// own part, which is added to own (n,), plus a share of the rest of its tie's sum; see ties.hpp. Otherwise `first` and
// `own` are not used.
template <class Operator>
inline double terms_gain(const Operator& A, const Query& query, const std::size_t* first,
                         const Normalization& normalization, double* scratch, double* SINKPROP_RESTRICT gradient,
                         double* own) {
    const std::size_t N = A.size, n = query.n, M = query.n_products, stride = round_up(n, 8);
    const int T = normalization.T;
    const double epsilon = normalization.epsilon;
    double* q = scratch;
    const Adjoints a(q + (T + 1) * N, N);
    double *spreads = a.g_class, *slopes = spreads + N;
    double *known = slopes + N, *left = known + M * N, *product = left + M * N;
    double *S = product + M * N, *S_bar = S + M * stride, *spare = S_bar + M * stride;
    normalize(A, normalization, q);
    const Factors pi(q, T, N);
    for (std::size_t i = 0; i < 2 * N; i += W) Lanes::all(0).store(a.u_bar + i);
    for (std::size_t i = 0; i < N; i += W) Lanes::all(0).store(gradient + i);

    // statistics: known = a_c or e, left = u * a_c or v * e, product = (A + epsilon) left
    double value = 0;
    for (std::size_t t = 0, m = 0; t < query.n_terms; ++t) {
        const Term& term = query.terms[t];
        const double *inner = term.of_rows() ? pi.v : pi.u, *outer = term.of_rows() ? pi.u : pi.v;
        double *s = S + m * n, *s_bar = S_bar + m * n;
        for (std::size_t c = 0; c < term.products(); ++c, ++m) {
            double *b = known + m * N, *x = left + m * N, *y = product + m * N;
            to_elements(A, first, term.of_rows() ? term.discount(0) : query.gains + (term.first + c) * n, b);
            const Lanes shift = Lanes::all(epsilon) * whole(A, multiply(inner, b, N, x));
            A.prepare(x);
            A.apply(x, T + int(m), nullptr,
                    [&](std::size_t i, Lanes k, Lanes) SINKPROP_LAMBDA { (k + shift).store(y + i); });
            A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA {
                if constexpr (has_ties<Operator>) {
                    for (std::size_t j = first[i]; j < first[i + 1]; ++j)
                        S[m * n + j] = outer[slot] * y[slot] * A.inverse[slot];
                } else {
                    S[m * n + i] = outer[slot] * y[slot];
                }
            });
        }
        value += evaluate(term, query, s, s_bar, spare);
    }

    // The reverse pass: bar = D_c or h, right = v * D_c or u * h, z = (A + epsilon) right
    for (std::size_t t = 0, m = 0; t < query.n_terms; ++t) {
        const Term& term = query.terms[t];
        const bool rows = term.of_rows();
        const double* outer = rows ? pi.u : pi.v;
        double *inner_bar = rows ? a.v_bar : a.u_bar, *outer_bar = rows ? a.u_bar : a.v_bar;
        for (std::size_t c = 0; c < term.products(); ++c, ++m) {
            const double *b = known + m * N, *x = left + m * N, *y = product + m * N;
            double *bar = a.z_bar, *right = a.x;
            to_elements(A, first, S_bar + m * n, bar);
            if constexpr (has_ties<Operator>) to_spreads(A, first, rows ? term.discount(0) : S_bar + m * n, spreads);
            const Lanes shift = Lanes::all(epsilon) * whole(A, multiply(outer, bar, N, right));
            A.prepare(right);
            A.apply_rev(right, T + int(m), nullptr,
                        [&](std::size_t i, Lanes k, Lanes dk, Lanes dx, double*) SINKPROP_LAMBDA {
                            const Lanes z = k + shift;
                            fma(load(b, i), z, load(inner_bar, i)).store(inner_bar + i);
                            fma(load(bar, i), load(y, i), load(outer_bar, i)).store(outer_bar + i);
                            (load(gradient, i) + (load(x, i) * dk + load(right, i) * dx)).store(gradient + i);
                            if constexpr (has_ties<Operator>) {
                                const Lanes u = load(pi.u, i), v = load(pi.v, i), spread = load(spreads, i);
                                (rows ? A.slope(i, load(y, i), dx, spread, u, v) : A.slope(i, z, dk, spread, u, v))
                                    .store(slopes + i);
                            }
                        });
            if constexpr (has_ties<Operator>) {
                const double* g = rows ? S_bar + m * n : query.gains + (term.first + c) * n;
                A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA {
                    for (std::size_t j = first[i]; j < first[i + 1]; ++j) own[j] += g[j] * slopes[slot];
                });
            }
        }
    }
    normalize_rev(A, normalization, q, a, gradient);
    return value;
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
