// Products of rows of features with weights, and sums over queries whose results do not depend on the order of
// addition: see "Reproducibility" in docs/cluster.md.
//
// A query's contribution to a sum is computed from its own rows alone, scaled into (-1, 1) by a power of two, and cut
// into three words of 31 bits, which are added as integers. So the words of the sum are the same for any division of
// the queries into blocks, and for any threads or machines that add them.
#pragma once

#include <cmath>

#include "simd.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

constexpr double word = 2147483648.0;  // 2^31, the range of a word
// x + rounder - rounder is x rounded to a whole number, for |x| < 2^51
constexpr double rounder = 1.5 * 4503599627370496.0;

SINKPROP_INLINE std::uint64_t bits(double x) {
    std::uint64_t b;
    std::memcpy(&b, &x, sizeof b);
    return b;
}

// Adds the whole number that t - rounder is to a word. The addition wraps around where a signed one would overflow:
// that happens only if t comes from a product that is too large, whose words are invalid anyway.
SINKPROP_INLINE std::int64_t added(std::int64_t sum, double t) {
    return std::int64_t(std::uint64_t(sum) + (bits(t) - bits(rounder)));
}

// Adds values[j] * scale[j] to the j-th of m sums, for j < m. Each sum is held in three integer words, column j of
// words (3, m). The elements of `scale` are powers of two. Returns false if a product is not within (-1, 1); the words
// are then invalid.
inline bool add_words(const double* SINKPROP_RESTRICT values, const double* SINKPROP_RESTRICT scale, std::size_t m,
                      std::int64_t* SINKPROP_RESTRICT words) {
    std::int64_t outside = 0;
    std::int64_t *SINKPROP_RESTRICT high = words, *SINKPROP_RESTRICT middle = words + m,
                                    *SINKPROP_RESTRICT low = words + 2 * m;
    for (std::size_t j = 0; j < m; ++j) {
        double v = values[j] * scale[j];
        outside |= !(v > -1.0 && v < 1.0);
        v *= word;
        double t = v + rounder;
        high[j] = added(high[j], t);
        v = (v - (t - rounder)) * word;
        t = v + rounder;
        middle[j] = added(middle[j], t);
        v = (v - (t - rounder)) * word;
        t = v + rounder;
        low[j] = added(low[j], t);
    }
    return !outside;
}

// Adds the n rows of values (n, m), times scale (m,), to the sums that are held in words (3, m); see add_words
inline bool add_rows(const double* values, std::size_t n, const double* scale, std::size_t m, std::int64_t* words) {
    bool fine = true;
    for (std::size_t i = 0; i < n; ++i) fine &= add_words(values + i * m, scale, m, words);
    return fine;
}

SINKPROP_INLINE Lanes load_row(const double* p) {
    return Lanes::load(p);
}

SINKPROP_INLINE Lanes load_row(const float* p) {
#if SINKPROP_VECTOR_EXTENSIONS
    typedef float singles __attribute__((vector_size(W * 4), aligned(4), may_alias));
    return {__builtin_convertvector(*reinterpret_cast<const singles*>(p), Lanes::Doubles)};
#else
    Lanes r;
    for (int i = 0; i < W; ++i) r.v[i] = double(p[i]);
    return r;
#endif
}

// Computes the products of `rows` consecutive rows of features with the weights v; a row has d features. The terms of
// each product are added in the same order for any number of rows.
template <int rows, class Feature>
SINKPROP_INLINE void dots(const Feature* x, const double* v, std::size_t d, double* out, std::size_t stride) {
    Lanes even[rows], odd[rows];
    for (int r = 0; r < rows; ++r) even[r] = odd[r] = Lanes::all(0);
    std::size_t f = 0;
    for (; f + 2 * W <= d; f += 2 * W) {
        const Lanes a = Lanes::load(v + f), b = Lanes::load(v + f + W);
        for (int r = 0; r < rows; ++r) {
            even[r] = even[r] + load_row(x + r * d + f) * a;
            odd[r] = odd[r] + load_row(x + r * d + f + W) * b;
        }
    }
    if (f + W <= d) {
        const Lanes a = Lanes::load(v + f);
        for (int r = 0; r < rows; ++r) even[r] = even[r] + load_row(x + r * d + f) * a;
        f += W;
    }
    for (int r = 0; r < rows; ++r) {
        const Lanes both = even[r] + odd[r];
        double sum = 0;
        for (int i = 0; i < W; ++i) sum += both[i];
        for (std::size_t g = f; g < d; ++g) sum += double(x[r * d + g]) * v[g];
        out[r * stride] = sum;
    }
}

// out (n, k) = X V', for features X (n, d) and weights V (k, d)
template <class Feature>
void row_scores(const Feature* X, std::size_t n, std::size_t d, const double* V, std::size_t k, double* out) {
    for (std::size_t o = 0; o < k; ++o) {
        std::size_t i = 0;
        for (; i + 4 <= n; i += 4) dots<4>(X + i * d, V + o * d, d, out + i * k + o, k);
        for (; i < n; ++i) dots<1>(X + i * d, V + o * d, d, out + i * k + o, k);
    }
}

// Adds the gradient of every query with respect to weights (k, d) to sums that are held in words (3, k, d), see
// add_words. X (n, d) has the features of the n documents of all queries, and g (n, k) the derivatives of the objective
// with respect to their k scores. Query q has the rows offsets[q] .. offsets[q + 1] - 1. Its gradient is the sum of
// g[i, o] X[i, f] over these rows i, for each o < k and f < d, and is multiplied by scale (k, d). Its rows of X are not
// read if its rows of g are all 0. `sums` (k, d) is scratch. Returns false in the same case as add_words.
template <class Feature>
bool add_products(const Feature* X, std::size_t d, const double* g, std::size_t k, const std::int64_t* offsets,
                  std::size_t n_queries, const double* scale, double* SINKPROP_RESTRICT sums, std::int64_t* words) {
    bool fine = true;
    for (std::size_t q = 0; q < n_queries; ++q) {
        const std::size_t begin = std::size_t(offsets[q]), end = std::size_t(offsets[q + 1]);
        bool any = false;
        for (std::size_t i = begin * k; i < end * k; ++i) any |= g[i] != 0;
        if (!any) continue;
        for (std::size_t o = 0; o < k; ++o) {
            double* SINKPROP_RESTRICT s = sums + o * d;
            for (std::size_t f = 0; f < d; ++f) s[f] = 0;
            std::size_t i = begin;
            for (; i + 4 <= end; i += 4) {
                const double a = g[i * k + o], b = g[(i + 1) * k + o], c = g[(i + 2) * k + o], e = g[(i + 3) * k + o];
                const Feature *SINKPROP_RESTRICT x = X + i * d, *SINKPROP_RESTRICT y = x + d,
                                                 *SINKPROP_RESTRICT z = y + d, *SINKPROP_RESTRICT w = z + d;
                for (std::size_t f = 0; f < d; ++f)
                    s[f] += (a * double(x[f]) + b * double(y[f])) + (c * double(z[f]) + e * double(w[f]));
            }
            for (; i < end; ++i) {
                const double a = g[i * k + o];
                const Feature* SINKPROP_RESTRICT x = X + i * d;
                for (std::size_t f = 0; f < d; ++f) s[f] += a * double(x[f]);
            }
        }
        fine &= add_words(sums, scale, k * d, words);
    }
    return fine;
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
