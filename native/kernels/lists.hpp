// Lists: short queries that are processed together, one in each lane of a register (docs/linear-time.md 3.5).
//
// The vectors of a short query fill few registers, and each step of a sweep waits for the one before. So W queries
// share their registers: element i * W + l of a vector belongs to the i-th document of query l. The functions of
// scaling.hpp then run as for one query, except that a sum over the documents of a query is a sum over registers,
// without a sum over lanes. Queries with fewer documents than the longest one are padded. Elements of the padding are 0
// in every vector, and adding 0 changes no bit, so a query's results do not depend on the queries beside it.
//
// This file prepares the documents. The operators that multiply by the matrices of lists are in list_sums.hpp.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "scaling.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// Calls exchange(i, j) for the pairs i < j of Batcher's sorting network for n elements (merge exchange: Knuth, The Art
// of Computer Programming, volume 3, algorithm 5.2.2M). The pairs do not depend on the elements, so that all lanes are
// sorted by the same comparisons, about n log2(n)^2 / 4 of them.
template <class Exchange>
SINKPROP_INLINE void sorting_network(std::size_t n, Exchange&& exchange) {
    std::size_t half = 1;
    while (2 * half < n) half *= 2;
    for (std::size_t p = half; p > 0; p /= 2) {
        std::size_t q = half, r = 0, distance = p;
        for (;;) {
            for (std::size_t from = r; from + distance < n; from += 2 * p)
                for (std::size_t i = from; i < from + p && i + distance < n; ++i) exchange(i, i + distance);
            if (q == p) break;
            distance = q - p;
            q /= 2;
            r = p;
        }
    }
}

// Sorts the scores (n, W) of each query in decreasing order, and writes the place that each document had before to
// `places` (n, W). Documents with the same score keep their order. Elements behind a query's documents are overwritten.
// Returns whether no score is NaN.
inline bool sort_lists(std::size_t n, const std::size_t* sizes, double* scores, double* places) {
    double lengths[W];
    for (std::size_t l = 0; l < W; ++l) lengths[l] = double(sizes[l]);
    const Lanes length = Lanes::load(lengths), low = Lanes::all(-INFINITY);
    const Lanes zero = Lanes::all(0), one = Lanes::all(1);
    Lanes numbers = one;
    for (std::size_t i = 0; i < n; ++i) {
        const Lanes place = Lanes::all(double(i)), score = Lanes::where_less(place, length, load(scores, i * W), low);
        place.store(places + i * W);
        score.store(scores + i * W);
        numbers = Lanes::where_equal(score, score, numbers, zero);
    }
    sorting_network(n, [&](std::size_t i, std::size_t j) SINKPROP_LAMBDA {
        const Lanes a = load(scores, i * W), b = load(scores, j * W), first = load(places, i * W),
                    second = load(places, j * W);
        // above 0 where the two documents change places
        const Lanes wrong = Lanes::where_less(a, b, one, Lanes::where_equal(a, b, first - second, -one));
        maximum(a, b).store(scores + i * W);
        minimum(a, b).store(scores + j * W);
        Lanes::where_less(zero, wrong, second, first).store(places + i * W);
        Lanes::where_less(zero, wrong, first, second).store(places + j * W);
    });
    // the padding repeats the last score
    for (std::size_t i = 1; i < n; ++i)
        Lanes::where_less(Lanes::all(double(i)), length, load(scores, i * W), load(scores, (i - 1) * W))
            .store(scores + i * W);
    return sum(numbers) == W;
}

// 2^label - 1, for 0 <= label < 960
SINKPROP_INLINE Lanes exponential_gains(Lanes label) {
    const Lanes magic = label + Lanes::all(round_magic), whole = magic - Lanes::all(round_magic), one = Lanes::all(1);
    const Lanes gain = Lanes::power_of_two(magic) - one;
    if (sum(Lanes::where_equal(label, whole, one, Lanes::all(0))) == W) return gain;
    double values[W];
    gain.store(values);
    for (std::size_t l = 0; l < W; ++l)
        if (label[int(l)] != whole[int(l)]) values[l] = std::exp2(label[int(l)]) - 1;
    return Lanes::load(values);
}

// The arrays (n, W) that scaling.hpp needs of W queries, whose documents are sorted
struct ListArrays {
    std::size_t n, size;
    double *mask, *gains, *D;  // mask: 1 for a document, 0 in the padding. gains: divided by the ideal gain

    static constexpr std::size_t scratch(std::size_t n) { return 4 * n * W; }

    ListArrays(const Lists& lists, double* space) : n(lists.n), size(lists.n * W) {
        mask = space;
        gains = mask + size;
        D = gains + size;
        bool same_D = true;
        for (std::size_t l = 1; l < W; ++l) same_D &= lists.D[l] == lists.D[0];
        double lengths[W];
        for (std::size_t l = 0; l < W; ++l) lengths[l] = double(lists.sizes[l]);
        const Lanes length = Lanes::load(lengths), zero = Lanes::all(0), one = Lanes::all(1);
        for (std::size_t i = 0; i < n; ++i) {
            const Lanes place = Lanes::all(double(i));
            Lanes::where_less(place, length, one, zero).store(mask + i * W);
            const Lanes given = Lanes::where_less(place, length, load(lists.gains, i * W), zero);
            (lists.exponential ? exponential_gains(given) : given).store(gains + i * W);
            if (same_D) {
                Lanes::where_less(place, length, Lanes::all(lists.D[0][i]), zero).store(D + i * W);
            } else {
                for (std::size_t l = 0; l < W; ++l) D[i * W + l] = i < lists.sizes[l] ? lists.D[l][i] : 0;
            }
        }
        const Lanes best = lists.normalize ? ideal(D + size) : one;
        // gains of which the best ranking gains nothing count as 0
        for (std::size_t i = 0; i < size; i += W)
            Lanes::where_equal(best, zero, zero, load(gains, i) / best).store(gains + i);
    }

  private:
    // Sum of the gains in decreasing order times the weights of the ranks; `sorted` (n, W) is scratch
    Lanes ideal(double* sorted) const {
        const Lanes zero = Lanes::all(0), low = Lanes::all(-INFINITY);
        for (std::size_t i = 0; i < size; i += W)
            Lanes::where_less(zero, load(mask, i), load(gains, i), low).store(sorted + i);
        sorting_network(n, [&](std::size_t i, std::size_t j) SINKPROP_LAMBDA {
            const Lanes a = load(sorted, i * W), b = load(sorted, j * W);
            maximum(a, b).store(sorted + i * W);
            minimum(a, b).store(sorted + j * W);
        });
        Lanes total = zero;
        for (std::size_t i = 0; i < size; i += W)
            total = fma(Lanes::where_less(zero, load(mask, i), load(sorted, i), zero), load(D, i), total);
        return total;
    }
};

// What the derivatives of boosted trees need of the ties of W queries (ties.hpp): a tie is the set of all documents
// with one score. Here every document remains an element, and the derivative is averaged over all orders of tied
// documents by three changes: the ranks of a tie have its mean discount; the derivative of the matrix is 0 between tied
// documents (TiedLaplaceLists); and to the derivative of a document is added
//     (1 / (2 tau)) u v spread sum_k (g_j - g_k), over the documents k of its tie.
struct ListTies {
    double *tied, *own;  // (n, W) 1 for a document with the score of the one before it; spread sum_k (g_j - g_k) / 2

    static constexpr std::size_t scratch(std::size_t n) { return 2 * n * W; }

    static bool any(const Lists& lists, const ListArrays& arrays) {
        const Lanes zero = Lanes::all(0);
        Lanes found = zero;
        for (std::size_t i = W; i < arrays.size; i += W)
            found = maximum(found, Lanes::where_equal(load(lists.scores, i), load(lists.scores, i - W),
                                                      load(arrays.mask, i), zero));
        return sum(found) > 0;
    }

    // Replaces the discounts of each tie's ranks by their mean
    ListTies(const Lists& lists, const ListArrays& arrays, double* space) : tied(space), own(space + arrays.size) {
        for (std::size_t i = 0; i < arrays.size; ++i) tied[i] = own[i] = 0;
        for (std::size_t l = 0; l < W; ++l)
            for (std::size_t from = 0, to; from < lists.sizes[l]; from = to) {
                for (to = from + 1; to < lists.sizes[l]; ++to) {
                    if (lists.scores[to * W + l] != lists.scores[from * W + l]) break;
                    tied[to * W + l] = 1;
                }
                const double count = double(to - from);
                if (to - from == 1) continue;
                double discounts = 0, differences = 0, gains = 0;
                for (std::size_t i = from; i < to; ++i) {
                    discounts += arrays.D[i * W + l];
                    differences += arrays.D[i * W + l] * (count - 1 - 2 * double(i - from));
                    gains += arrays.gains[i * W + l];
                }
                const double spread = differences / (0.5 * count * (count - 1));
                for (std::size_t i = from; i < to; ++i) {
                    own[i * W + l] = 0.5 * spread * (count * arrays.gains[i * W + l] - gains);
                    arrays.D[i * W + l] = discounts / count;
                }
            }
    }
};

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
