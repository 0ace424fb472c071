// The pairwise logistic loss of one query, its gradient and the diagonal of its Hessian. The loss is
// sum_ij w_i w_j log(1 + exp(s_j - s_i)) over all pairs in which document i has the larger label, for scores s and
// weights w. The trees of docs/baselines.md are grown on it.
#pragma once

#include "kernels.hpp"
#include "simd.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// log(1 + t) for 0 <= t <= 1: 2 atanh(z) with z = t / (2 + t) <= 1/3, by its series, accurate to 2e-18
SINKPROP_INLINE Lanes log_of_one_plus(Lanes t) {
    const Lanes z = t / (Lanes::all(2.0) + t), z2 = z * z;
    Lanes series = Lanes::all(1.0 / 35.0);
    for (int k = 33; k >= 1; k -= 2) series = fma(series, z2, Lanes::all(1.0 / k));
    return Lanes::all(2.0) * z * series;
}

// FromPowers and FromScores compute p = 1 / (1 + exp(s_i - s_j)), the probability that document j, which has the lower
// label, is ranked above document i, and rest = 1 - p. Both are exact up to rounding.
//
// FromPowers takes exp(s_i) and exp(s_j), up to a common factor. It is used if the scores lie close enough together:
// then one exponential per document suffices, and a pair costs only a division.
struct FromPowers {
    Lanes at_i;
    SINKPROP_INLINE void operator()(Lanes at_j, Lanes& p, Lanes& rest) const {
        const Lanes both = Lanes::all(1.0) / (at_i + at_j);
        p = at_j * both;
        rest = at_i * both;
    }
};

struct FromScores {
    Lanes at_i;
    SINKPROP_INLINE void operator()(Lanes at_j, Lanes& p, Lanes& rest) const {
        const Lanes d = at_i - at_j, t = exp(-absolute(d)), both = Lanes::all(1.0) / (Lanes::all(1.0) + t),
                    none = Lanes::all(0.0);
        p = Lanes::where_less(d, none, both, t * both);
        rest = Lanes::where_less(d, none, t * both, both);
    }
};

// Adds the first derivatives of the loss with respect to the scores to g, and the second derivatives to h. Both must
// still be multiplied by the document's own weight. g and h have n + slack elements, of which the last `slack` are
// padding. For a pair of documents with different labels, let p be the probability that the document with the lower
// label is ranked above the other one. The first derivative of a document is the sum, over its pairs, of the other
// document's weight times p, with a minus sign if the other document has the lower label. The second derivative is the
// sum, over its pairs, of the other document's weight times p (1 - p). at[i] is the number from which the class
// Probability computes p: for FromScores the score of document i, and for FromPowers the exponential of this score, up
// to a factor that is the same for all documents.
template <class Probability>
SINKPROP_INLINE void add_pairs(const PairQuery& query, const double* at, double* SINKPROP_RESTRICT g,
                               double* SINKPROP_RESTRICT h) {
    const double* w = query.weight;
    for (std::size_t i = 0; i < query.n; ++i) {
        const Probability probability = {Lanes::all(at[i])};
        const Lanes wi = Lanes::all(w[i]);
        Lanes gi = Lanes::all(0.0), hi = Lanes::all(0.0);
        for (std::size_t j = query.lower[i]; j < query.n; j += W) {
            Lanes p, rest;
            probability(Lanes::load(at + j), p, rest);
            const Lanes wj = Lanes::load(w + j), curvature = p * rest;
            gi = fma(wj, p, gi);
            hi = fma(wj, curvature, hi);
            fma(wi, p, Lanes::load(g + j)).store(g + j);
            fma(wi, curvature, Lanes::load(h + j)).store(h + j);
        }
        g[i] -= sum(gi);
        h[i] += sum(hi);
    }
}

inline double pairwise_loss(const PairQuery& query) {
    double total = 0;
    for (std::size_t i = 0; i < query.n; ++i) {
        const Lanes si = Lanes::all(query.scores[i]);
        Lanes row = Lanes::all(0.0);
        for (std::size_t j = query.lower[i]; j < query.n; j += W) {
            const Lanes d = si - Lanes::load(query.scores + j);
            const Lanes loss = maximum(-d, Lanes::all(0.0)) + log_of_one_plus(exp(-absolute(d)));
            row = fma(Lanes::load(query.weight + j), loss, row);
        }
        total += query.weight[i] * sum(row);
    }
    return total;
}

// Computes the gradient of the loss and the diagonal of its Hessian. scratch, gradient and hessian have n + slack
// elements.
inline void pairwise_derivatives(const PairQuery& query, double* scratch, double* gradient, double* hessian) {
    const std::size_t n = query.n, padded = n + PairQuery::slack;
    double least = query.scores[0], most = query.scores[0];
    for (std::size_t i = 1; i < n; ++i) {
        least = query.scores[i] < least ? query.scores[i] : least;
        most = query.scores[i] > most ? query.scores[i] : most;
    }
    for (std::size_t i = 0; i < padded; ++i) gradient[i] = hessian[i] = 0;
    if (most - least <= 600) {  // then the probabilities p of all pairs are at least about exp(-600), and not denormal
        const Lanes middle = Lanes::all(least + (most - least) / 2);
        for (std::size_t i = 0; i < n; i += W) exp(Lanes::load(query.scores + i) - middle).store(scratch + i);
        for (std::size_t i = n; i < padded; ++i) scratch[i] = 1;
        add_pairs<FromPowers>(query, scratch, gradient, hessian);
    } else {
        add_pairs<FromScores>(query, query.scores, gradient, hessian);
    }
    for (std::size_t i = 0; i < n; ++i) {
        gradient[i] *= query.weight[i];
        hessian[i] *= query.weight[i];
    }
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
