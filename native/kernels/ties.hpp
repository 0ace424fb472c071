// Tied documents treated as one: the gradient of the expected gain as a mean over all orders of tied documents.
// docs/linear-time.md 5
//
// Documents with the same score have the same row of Pi in any order, and the columns of their ranks are equal: the
// value does not depend on how ties are broken. The one-sided derivatives of the Laplace kernel do depend on it. Of the
// terms between two documents of a tie, all but g_j u_j v_k d_k, with j and k at two of its ranks, change sign when the
// two are exchanged, and cancel in the mean over all orders. What remains is
//     (1 / 2 tau) sum_k (g_j - g_k) u v * (mean over pairs of the tie's ranks of the upper's discount less the
//     lower's)
// and all other terms are those of the mean discount. The derivative of a document is then linear in its gain.
#pragma once

#include "exponential_sums.hpp"
#include "kernels.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// An operator of scaling.hpp for ties, made from one for documents
template <class Sums>
struct TiedSums : Sums {
    double *inverse, *own, *spread;  // (size,), (n_classes, size), (n_classes, size)
    int T;

    static constexpr std::size_t scratch(std::size_t n, int T, std::size_t n_classes) {
        return Sums::scratch(n, T) + (2 * n_classes + 1) * Sums::padded(n);
    }

    TiedSums(const Sums& sums, const Ties& ties, int T_, double* space) : Sums(sums), T(T_) {
        const std::size_t N = Sums::size, C = ties.n_classes;
        inverse = space;
        own = inverse + N;
        spread = own + C * N;
        for (std::size_t i = 0; i < N; ++i) inverse[i] = 0;
        for (std::size_t i = 0; i < C * N; ++i) spread[i] = 0;
        Sums::each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA {
            Sums::mask[slot] = ties.count[i];
            inverse[slot] = 1 / ties.count[i];
        });
        for (std::size_t c = 0; c < C; ++c)
            Sums::each_document([&](std::size_t i, std::size_t slot)
                                    SINKPROP_LAMBDA { spread[c * N + slot] = ties.spread[c * ties.n + i]; });
    }

    // The slope of a document's derivative, times the unit, in its gain: through g u (A x), and through the half
    // iteration that made u.
    SINKPROP_INLINE void note(std::size_t c, std::size_t i, Lanes z, Lanes u, Lanes v) const {
        const std::size_t N = Sums::size;
        const int made = T % 2 ? T - 2 : T - 1;
        u = u * load(inverse, i);
        Lanes slope = fma(load(spread + c * N, i) * Lanes::all(0.5), v, load(Sums::memory + std::size_t(T) * N, i));
        if (made >= 0) slope = slope - z * u * load(Sums::memory + std::size_t(made) * N, i);
        (u * slope).store(own + c * N + i);
    }
};

template <class Sums>
constexpr bool has_ties<TiedSums<Sums>> = true;

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
