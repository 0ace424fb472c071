// Glynn's formula for the permanent (docs/permanents.md): with signs d_0 = 1 and d_i = +1 or -1,
//
//   2^(n - 1) per(A) = sum over d of prod_i d_i prod_j s_j(d),   s_j(d) = sum_i d_i A[i, j].
//
// The signs of rows 1 to 3 take all eight combinations within one step, those of the next log2(W) rows are one
// combination per lane, and those of the other rows follow a Gray code: from one step to the next, one of them changes.
#pragma once

#include "kernels.hpp"
#include "simd.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

constexpr std::size_t glynn_lane_rows = W == 2 ? 1 : W == 4 ? 2 : 3;
constexpr std::size_t glynn_fixed_rows = 4 + glynn_lane_rows;

// Adds t to the sum hi + lo without an error of order 1 (Knuth's two-sum)
SINKPROP_INLINE void add_exactly(Lanes t, Lanes& hi, Lanes& lo) {
    const Lanes s = hi + t, b = s - hi;
    lo = lo + ((hi - (s - b)) + (t - b));
    hi = s;
}

// Adds the terms of the pieces [first, last) of A (n, n), for glynn_least <= n, to sum[0] + sum[1]. A piece has the
// terms of 2^glynn_steps(n) steps of the Gray code; the bits of its number are the signs of the rows after those. So
// the column sums of each piece are added up afresh, and rounding errors of updates do not accumulate.
void glynn(const double* A, std::size_t n, std::uint64_t first, std::uint64_t last, double* sum) {
    constexpr std::size_t most = glynn_most;
    const std::size_t bits = glynn_steps(n), from = glynn_fixed_rows;
    // The lane rows and the rows of the Gray code must not depend on the instruction set in number: the rows after
    // `upper` are those of the piece.
    const std::size_t upper = glynn_least + bits;
    double shift[7 * most * W], state[most * W];  // (n, 7, W) and (n, W)
    for (std::size_t j = 0; j < n; ++j)
        for (std::size_t m = 1; m < 8; ++m) {
            double d = 0;
            for (std::size_t i = 0; i < 3; ++i)
                if (m >> i & 1) d -= 2 * A[(1 + i) * n + j];
            Lanes::all(d).store(shift + (7 * j + m - 1) * W);
        }
    double signs[W];
    for (std::size_t l = 0; l < W; ++l) {
        signs[l] = 1;
        for (std::size_t i = 0; i < glynn_lane_rows; ++i)
            if (l >> i & 1) signs[l] = -signs[l];
    }
    Lanes hi = Lanes::all(0), lo = hi;
    for (std::uint64_t piece = first; piece < last; ++piece) {
        bool odd = false;
        for (std::size_t i = upper; i < n; ++i) odd ^= bool(piece >> (i - upper) & 1);
        for (std::size_t j = 0; j < n; ++j)
            for (std::size_t l = 0; l < W; ++l) {
                double s = 0;
                for (std::size_t i = 0; i < n; ++i) {
                    const bool negative = i >= upper           ? piece >> (i - upper) & 1
                                          : i >= 4 && i < from ? l >> (i - 4) & 1
                                                               : false;
                    s += negative ? -A[i * n + j] : A[i * n + j];
                }
                state[j * W + l] = s;
            }
        // The rows from `from` to `upper` follow the Gray code.
        const std::uint64_t steps = std::uint64_t(1) << (upper - from);
        for (std::uint64_t step = 0; step < steps; ++step) {
            const double* change = nullptr;
            double factor = 0;
            if (step) {
                std::size_t row = from;
                for (std::uint64_t b = step; !(b & 1); b >>= 1) ++row;
                const bool negative = (step ^ step >> 1) >> (row - from) & 1;
                change = A + row * n;
                factor = negative ? -2 : 2;
            }
            const Lanes two = Lanes::all(factor);
            Lanes p0 = Lanes::all(1), p1 = p0, p2 = p0, p3 = p0, p4 = p0, p5 = p0, p6 = p0, p7 = p0;
            for (std::size_t j = 0; j < n; ++j) {
                Lanes s = Lanes::load(state + j * W);
                if (change) {
                    s = fma(two, Lanes::all(change[j]), s);
                    s.store(state + j * W);
                }
                const double* d = shift + 7 * j * W;
                p0 = p0 * s;
                p1 = p1 * (s + Lanes::load(d));
                p2 = p2 * (s + Lanes::load(d + W));
                p3 = p3 * (s + Lanes::load(d + 2 * W));
                p4 = p4 * (s + Lanes::load(d + 3 * W));
                p5 = p5 * (s + Lanes::load(d + 4 * W));
                p6 = p6 * (s + Lanes::load(d + 5 * W));
                p7 = p7 * (s + Lanes::load(d + 6 * W));
            }
            const Lanes t = ((p0 - p1) + (p3 - p2)) + ((p5 - p4) + (p6 - p7));
            add_exactly(odd != bool(step & 1) ? -t : t, hi, lo);
        }
    }
    double highs[W], lows[W];
    hi.store(highs);
    lo.store(lows);
    for (std::size_t l = 0; l < W; ++l) {
        const double t = signs[l] * highs[l], s = sum[0] + t, b = s - sum[0];
        sum[1] += ((sum[0] - (s - b)) + (t - b)) + signs[l] * lows[l];
        sum[0] = s;
    }
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
