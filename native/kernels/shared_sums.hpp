// Products with the matrix A of a partitioned measure with a shared scale (shared_scale.hpp) in linear time, and its
// expected gain (docs/linear-time.md 7). They are for the logit-logistic and the probit family.
//
// In units of the scale, document j has the location m_j and the edge between bins k and k + 1 is at a_k. With the
// standard distribution function F, and by summation by parts,
//   (A y)_j = y_last + sum_k F(a_k - m_j) (y_k - y_(k+1)),   (A' g)_k = G_k - G_(k-1), G_k = sum_j g_j F(a_k - m_j).
// Locations and edges are put into cells of width 2. In a pair of cells, F(a - m) is a polynomial in both, a sum of
// products of Chebyshev polynomials T_t(xi) T_s(eta) in the coordinates xi, eta in [-1, 1], with an error near 1e-12.
// So a sum over edges is computed from their moments, sum_k T_s(eta_k) (y_k - y_(k+1)) in each cell; the coefficients
// turn the moments of all cells of edges into an expansion in each cell of documents, which is evaluated at each
// document. The coefficients of a pair of cells depend on the difference of their indices only.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels.hpp"
#include "partitioned_matrix.hpp"
#include "scaling.hpp"
#include "shared_scale.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

class SharedSums {
  public:
    static constexpr std::size_t P = 16;  // number of Chebyshev polynomials
    static constexpr double reach = 40;   // distance from which on F is 0 or 1 for both families

    // Numbers of cells, and where the first ones begin
    struct Cells {
        std::size_t documents, edges;
        double first_document, first_edge;
        std::size_t pairs() const { return documents + edges - 1; }  // differences of indices
    };

    // Lays out the cells for a query of 2 documents or more. Documents farther than `reach` from all edges count as if
    // they were at that distance: F is constant there.
    static Cells lay_out(const Query& query, const Settings& s) {
        const double last = edge(query.n - 1, query.n, s), first = -last;
        const Locations m(query, s, first - reach, last + reach);
        double low = m(0), high = low;
        for (std::size_t j = 1; j < query.n; ++j) {
            if (m(j) < low) low = m(j);
            if (m(j) > high) high = m(j);
        }
        return {count(high - low), count(last - first), low, first};
    }

    // Number of doubles of scratch memory
    static std::size_t scratch(std::size_t n, const Cells& cells) {
        return 2 * n * P + 2 * round_up(n / 2 + 1, 8) + round_up(n, 8) + 2 * cells.pairs() * P * P +
               2 * (cells.documents + cells.edges) * P + 3 * P * P;
    }

    SharedSums(const Query& query, const Settings& s, const Cells& cells_, double* space)
        : n(query.n), cells(cells_), inverse_scale(1 / s.sigma), epsilon(s.epsilon) {
        const auto take = [&](std::size_t size) {
            double* at = space;
            space += round_up(size, 8);
            return at;
        };
        of_documents = take(n * P);
        of_edges = take(n * P);
        cell_of_document = reinterpret_cast<std::int32_t*>(take(n / 2 + 1));
        cell_of_edge = reinterpret_cast<std::int32_t*>(take(n / 2 + 1));
        masses = take(cells.pairs() * P * P);
        densities = take(cells.pairs() * P * P);
        moments = take((cells.documents + cells.edges) * P);
        expansions = take((cells.documents + cells.edges) * P);
        differences = take(n);
        double *transform = take(P * P), *values = take(P * P), *half = take(P * P);
        const double low = cells.first_document;
        const Locations m(query, s, low, low + 2 * double(cells.documents));
        for (std::size_t j = 0; j < n; ++j)
            place(m(j), low, cells.documents, cell_of_document[j], of_documents + j * P);
        for (std::size_t k = 0; k + 1 < n; ++k)
            place(edge(k + 1, n, s), cells.first_edge, cells.edges, cell_of_edge[k], of_edges + k * P);
        const double pi = 3.14159265358979323846;
        for (std::size_t t = 0; t < P; ++t)
            for (std::size_t i = 0; i < P; ++i)
                transform[t * P + i] = (t ? 2.0 : 1.0) / P * std::cos(pi * double(t) * (double(i) + 0.5) / P);
        for (std::size_t pair = 0; pair < cells.pairs(); ++pair)
            for (const bool density : {false, true})
                expand(pair, density, s.relaxation == Relaxation::probit, transform, values, half,
                       (density ? densities : masses) + pair * P * P);
    }

    // out = (A + epsilon) y, with y by rank and out by document
    void by_document(const double* y, double* out) {
        const double last = y[n - 1] + epsilon * total(y);
        gather(y, masses);
        for (std::size_t j = 0; j < n; ++j)
            out[j] = last + evaluate(expansions + std::size_t(cell_of_document[j]) * P, of_documents + j * P);
    }

    // out = (A + epsilon)' g, with g by document and out by rank
    void by_rank(const double* g, double* out) {
        for (std::size_t i = 0; i < cells.documents * P; ++i) moments[i] = 0;
        for (std::size_t j = 0; j < n; ++j)
            add(g[j], of_documents + j * P, moments + std::size_t(cell_of_document[j]) * P);
        for (std::size_t e = 0; e < cells.edges; ++e) {
            double* out_cell = expansions + e * P;
            for (std::size_t s = 0; s < P; ++s) out_cell[s] = 0;
            for (std::size_t d = 0; d < cells.documents; ++d) {
                const double *K = coefficients(masses, d, e), *M = moments + d * P;
                for (std::size_t t = 0; t < P; ++t) add(M[t], K + t * P, out_cell);
            }
        }
        const double sum = total(g), more = epsilon * sum;
        double below = 0;
        for (std::size_t k = 0; k + 1 < n; ++k) {
            const double here = evaluate(expansions + std::size_t(cell_of_edge[k]) * P, of_edges + k * P);
            out[k] = here - below + more;
            below = here;
        }
        out[n - 1] = sum - below + more;
    }

    // Adds left_j sum_k (dA_jk / dmu_j) y_k to slope[2 j] for every document j
    void add_slopes(const double* left, const double* y, double* slope) {
        gather(y, densities);
        for (std::size_t j = 0; j < n; ++j)
            slope[2 * j] -= inverse_scale * left[j] *
                            evaluate(expansions + std::size_t(cell_of_document[j]) * P, of_documents + j * P);
    }

  private:
    std::size_t n;
    Cells cells;
    double inverse_scale, epsilon;
    double *of_documents, *of_edges;  // (n, P) T_t at each location and edge, in the coordinate of its cell
    std::int32_t *cell_of_document, *cell_of_edge;
    double *masses, *densities;  // (pairs, P, P) coefficients [t, s] of F and of its density
    double *moments, *expansions, *differences;

    static std::size_t count(double range) { return 1 + std::size_t(range / 2); }

    // Locations of the documents, bounded
    struct Locations {
        const double* scores;
        double mean, inverse_scale, low, high;
        Locations(const Query& query, const Settings& s, double low_, double high_)
            : scores(query.scores),
              mean(mean_of(query.scores, query.n, 1)),
              inverse_scale(1 / s.sigma),
              low(low_),
              high(high_) {}
        double operator()(std::size_t j) const { return bounded((mean - scores[j]) * inverse_scale, low, high); }
    };

    // The edge between bins k and k + 1, for k = 1 .. n - 1
    static double edge(std::size_t k, std::size_t n, const Settings& s) {
        const double below = double(k), above = double(n) - below;
        return (s.relaxation == Relaxation::probit ? normal_quantile(below / double(n)) : std::log(below / above)) /
               s.sigma;
    }

    static double standard(double z, bool density, bool normal) {
        if (normal)
            return density ? 0.398942280401432678 * std::exp(-0.5 * z * z)
                           : 0.5 * std::erfc(-0.70710678118654752440 * z);
        const double e = std::exp(z < 0 ? z : -z), r = 1 / (1 + e);
        return density ? e * r * r : (z < 0 ? e * r : r);
    }

    // Writes the cell of x and the Chebyshev polynomials at its place in the cell
    static void place(double x, double first, std::size_t n_cells, std::int32_t& cell, double* T) {
        const double at = (x - first) / 2;
        std::size_t index = at > 0 ? std::size_t(at) : 0;
        if (index >= n_cells) index = n_cells - 1;
        cell = std::int32_t(index);
        const double xi = bounded(2 * (at - double(index)) - 1, -1, 1);
        T[0] = 1;
        T[1] = xi;
        for (std::size_t t = 2; t < P; ++t) T[t] = 2 * xi * T[t - 1] - T[t - 2];
    }

    // Coefficients of the cell of documents d and the cell of edges e
    const double* coefficients(const double* table, std::size_t d, std::size_t e) const {
        return table + (e + cells.documents - 1 - d) * P * P;
    }

    void expand(std::size_t pair, bool density, bool normal, const double* transform, double* values, double* half,
                double* K) const {
        const double shift = cells.first_edge - cells.first_document + 2 * (double(pair) - double(cells.documents - 1));
        const double pi = 3.14159265358979323846;
        for (std::size_t i = 0; i < P; ++i)
            for (std::size_t s = 0; s < P; ++s)
                values[i * P + s] =
                    standard(shift + std::cos(pi * (double(s) + 0.5) / P) - std::cos(pi * (double(i) + 0.5) / P),
                             density, normal);
        multiply(transform, values, false, half);
        multiply(half, transform, true, K);
    }

    // out = L R, or L R' if `transposed`
    static void multiply(const double* L, const double* R, bool transposed, double* out) {
        for (std::size_t i = 0; i < P; ++i)
            for (std::size_t j = 0; j < P; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < P; ++k) sum += L[i * P + k] * R[transposed ? j * P + k : k * P + j];
                out[i * P + j] = sum;
            }
    }

    // The expansions in the cells of documents, from y by rank
    void gather(const double* y, const double* table) {
        for (std::size_t i = 0; i < cells.edges * P; ++i) moments[i] = 0;
        for (std::size_t k = 0; k + 1 < n; ++k)
            add(y[k] - y[k + 1], of_edges + k * P, moments + std::size_t(cell_of_edge[k]) * P);
        for (std::size_t d = 0; d < cells.documents; ++d)
            for (std::size_t t = 0; t < P; ++t) {
                double sum = 0;
                for (std::size_t e = 0; e < cells.edges; ++e)
                    sum += evaluate(coefficients(table, d, e) + t * P, moments + e * P);
                expansions[d * P + t] = sum;
            }
    }

    static SINKPROP_INLINE void add(double c, const double* x, double* sums) {
        for (std::size_t s = 0; s < P; s += W) fma(Lanes::all(c), load(x, s), load(sums, s)).store(sums + s);
    }

    static SINKPROP_INLINE double evaluate(const double* a, const double* b) {
        Lanes s = Lanes::all(0);
        for (std::size_t i = 0; i < P; i += W) s = fma(load(a, i), load(b, i), s);
        return sum(s);
    }

    double total(const double* x) const {
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum += x[i];
        return sum;
    }
};

// The arrays of a gain or a projection besides those of SharedSums. `used` is the number of their doubles.
struct SharedArrays {
    std::size_t n;
    double *q, *p, *x, *z, *z_bar, *u_bar, *v_bar, *spare;
    std::size_t used = 0;

    SharedArrays(std::size_t n_, int T, double* scratch) : n(n_) {
        const auto take = [&](std::size_t size) {
            double* at = scratch ? scratch + used : nullptr;
            used += round_up(size, 8);
            return at;
        };
        q = take((std::size_t(T) + 1) * n);
        p = take(std::size_t(T) * n);
        x = take(n), z = take(n), z_bar = take(n), u_bar = take(n), v_bar = take(n), spare = take(n);
    }
    double* q_at(int t) const { return q + std::size_t(t) * n; }
    double* p_at(int t) const { return p + std::size_t(t) * n; }
    // The factors of the rows (documents) and columns (ranks) of Pi
    const double* u(int T) const { return q_at(T % 2 ? T - 1 : T); }
    const double* v(int T) const { return q_at(T == 0 ? 0 : T % 2 ? T : T - 1); }
};

// Sinkhorn's normalization: q_0 .. q_T (partitioned_matrix.hpp)
inline void shared_scale_ranks(SharedSums& A, const SharedArrays& a, int T) {
    for (std::size_t j = 0; j < a.n; ++j) a.q[j] = 1;
    for (int t = 0; t < T; ++t) {
        double* next = a.q_at(t + 1);
        t % 2 ? A.by_document(a.q_at(t), next) : A.by_rank(a.q_at(t), next);
        for (std::size_t i = 0; i < a.n; ++i) next[i] = reciprocal(next[i]);
    }
}

// The expected gain, as partitioned_gain computes it. Writes its gradient with respect to the locations to bar (n, 2),
// and 0 for the scales.
inline double shared_gain(SharedSums& A, const Query& query, int T, double* scratch, double* bar) {
    const std::size_t n = query.n, C = query.n_classes;
    const SharedArrays a(n, T, scratch);
    shared_scale_ranks(A, a, T);
    const double *u = a.u(T), *v = a.v(T);
    const auto in_class = [&](std::size_t j, std::size_t c) { return C == 1 || std::size_t(query.classes[j]) == c; };
    for (std::size_t i = 0; i < 2 * n; ++i) bar[i] = 0;
    for (std::size_t k = 0; k < n; ++k) a.v_bar[k] = 0;
    double value = 0;
    for (std::size_t c = 0; c < C; ++c) {
        const double* D = query.discount(c);
        for (std::size_t k = 0; k < n; ++k) a.x[k] = v[k] * D[k];
        A.by_document(a.x, a.z);
        for (std::size_t j = 0; j < n; ++j) {
            const double g = in_class(j, c) ? query.gains[j] / query.ideal : 0;
            a.z_bar[j] = g * u[j];
            value += a.z_bar[j] * a.z[j];
            if (in_class(j, c)) a.u_bar[j] = g * a.z[j];
        }
        A.add_slopes(a.z_bar, a.x, bar);
        A.by_rank(a.z_bar, a.spare);
        for (std::size_t k = 0; k < n; ++k) a.v_bar[k] += a.spare[k] * D[k];
    }
    // q_bar is the adjoint of q_(t+1); p_t that of w_t = 1 / q_(t+1). The gain depends on the last two q directly.
    double* q_bar = T % 2 ? a.v_bar : a.u_bar;
    const double* direct = T % 2 ? a.u_bar : a.v_bar;
    for (int t = T - 1; t >= 0; --t) {
        const double* q = a.q_at(t + 1);
        double* p = a.p_at(t);
        for (std::size_t i = 0; i < n; ++i) p[i] = -q_bar[i] * q[i] * q[i];
        t % 2 ? A.add_slopes(p, a.q_at(t), bar) : A.add_slopes(a.q_at(t), p, bar);
        if (t == 0) break;
        q_bar = a.spare;
        t % 2 ? A.by_rank(p, q_bar) : A.by_document(p, q_bar);
        if (t == T - 1)
            for (std::size_t i = 0; i < n; ++i) q_bar[i] += direct[i];
    }
    return value;
}

// out (n_classes, n): sum_k Pi_jk D[c, k]
inline void shared_project(SharedSums& A, const Query& query, int T, double* scratch, double* out) {
    const std::size_t n = query.n;
    const SharedArrays a(n, T, scratch);
    shared_scale_ranks(A, a, T);
    for (std::size_t c = 0; c < query.n_classes; ++c) {
        for (std::size_t k = 0; k < n; ++k) a.x[k] = a.v(T)[k] * query.discount(c)[k];
        A.by_document(a.x, out + c * n);
        for (std::size_t j = 0; j < n; ++j) out[c * n + j] *= a.u(T)[j];
    }
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
