// The gradient of the expected gain as a mean over all orders of tied documents, computed with each tie as one element.
// docs/linear-time.md 5
//
// A tie is the set of all documents with one score. In any order, they have the same row of the matrix Pi of rank
// probabilities, and the columns of their ranks are equal. So the expected gain does not depend on how ties are broken.
// But the one-sided derivatives of the Laplace kernel, whose width is tau, do depend on it.
//
// Let g be the gains of the documents, d the discounts of the ranks, and Pi = diag(u) (A + epsilon) diag(v). The
// derivative has terms that belong to two documents j and k of a tie. When j and k exchange their ranks, all of these
// terms but g_j u_j v_k d_k change sign, so that they cancel in the mean over all orders. For document j there remains
//     (1 / (2 tau)) sum_k (g_j - g_k) u v * spread,
// where u and v are equal for all documents of the tie, and spread is the mean, over all pairs of the tie's ranks, of
// the upper rank's discount less the lower rank's. In all other terms, every rank of the tie has the mean discount of
// the tie. So the derivative of a document is a linear function of its gain.
#pragma once

#include "exponential_sums.hpp"
#include "kernels.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// The operator for ties that scaling.hpp describes, made from an operator `Sums` for documents. For the documents of
// class c in a tie, the derivative of the expected gain with respect to a document's score is a linear function of the
// document's gain: own[c] is the slope of this function. spread[c] is the mean, over all pairs of the tie's ranks, of
// the upper rank's discount minus the lower rank's.
template <class Sums>
struct TiedSums : Sums {
    // inverse (size,): 1 / number of documents of each tie, or 0 in the padding. own and spread (n_classes, size): see
    // the comments on this struct and at the top of this file.
    double *inverse, *own, *spread;
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

    // Returns, for ties i .. i + W - 1, the slope of a document's derivative as a function of its gain g, multiplied by
    // the operator's factor `unit` (see scaling.hpp). The arguments u and v are the factors of Pi's rows and columns,
    // summed over the documents of each tie, z = (A + epsilon) x and dx = (dA) x with x = v * D for the discounts D,
    // and the spread is that of D. The gain enters the derivative in two ways: through the document's term g u z of the
    // expected gain, and through the half iteration that computed u.
    SINKPROP_INLINE Lanes slope(std::size_t i, Lanes z, Lanes dx, Lanes spread_of_D, Lanes u, Lanes v) const {
        const int made = T % 2 ? T - 2 : T - 1;
        u = u * load(inverse, i);
        Lanes result = fma(spread_of_D * Lanes::all(0.5), v, dx);
        if (made >= 0) result = result - z * u * load(Sums::memory + std::size_t(made) * Sums::size, i);
        return u * result;
    }

    // Computes own[c] for ties i .. i + W - 1, after the product with x = v * D[c]
    SINKPROP_INLINE void note(std::size_t c, std::size_t i, Lanes z, Lanes u, Lanes v) const {
        const std::size_t N = Sums::size;
        slope(i, z, load(Sums::memory + std::size_t(T) * N, i), load(spread + c * N, i), u, v).store(own + c * N + i);
    }
};

template <class Sums>
constexpr bool has_ties<TiedSums<Sums>> = true;

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
