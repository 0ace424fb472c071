// Lists: short queries that are processed together, one in each lane of a register (docs/linear-time.md 3.5).
//
// The vectors of a short query fill few registers, and each step of a sweep waits for the one before. So W queries
// share their registers: element i * W + l of a vector belongs to the i-th document of query l. The functions of
// scaling.hpp then run as for one query, except that a sum over the documents of a query is a sum over registers,
// without a sum over lanes. Queries with fewer documents than the longest one are padded. Elements of the padding are 0
// in every vector, and adding 0 changes no bit, so a query's results do not depend on the queries beside it.
//
// list_order.hpp sorts the documents, and this file prepares what else the algorithm needs of them. The operators that
// multiply by the matrices of lists are in list_sums.hpp.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "list_order.hpp"
#include "scaling.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

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
        Labels labels;
        for (std::size_t i = 0; i < n; ++i) {
            const Lanes place = Lanes::all(double(i));
            Lanes::where_less(place, length, one, zero).store(mask + i * W);
            const Lanes gain = load(lists.gains, i * W), power = labels.add(gain);
            (lists.exponential ? power - one : gain).store(gains + i * W);
            if (same_D) {
                Lanes::where_less(place, length, Lanes::all(lists.D[0][i]), zero).store(D + i * W);
            } else {
                for (std::size_t l = 0; l < W; ++l) D[i * W + l] = i < lists.sizes[l] ? lists.D[l][i] : 0;
            }
        }
        if (lists.exponential && sum(labels.fractions) > 0)
            for (std::size_t i = 0; i < size; ++i)
                if (lists.gains[i] != std::floor(lists.gains[i])) gains[i] = std::exp2(lists.gains[i]) - 1;
        if (!lists.D_sums) return;
        const Lanes best = ideal(lists, labels, D + size);
        // gains of which the best ranking gains nothing count as 0
        for (std::size_t i = 0; i < size; i += W)
            Lanes::where_equal(best, zero, zero, load(gains, i) / best).store(gains + i);
    }

  private:
    // How often the labels 1 to `most` occur. The counts, which are below 512, are the digits of a number in base 512.
    struct Labels {
        static constexpr int most = 5;
        Lanes counts = Lanes::all(0), fractions = Lanes::all(0), others = Lanes::all(0);

        // Returns 2^label, if it is a whole number below 960
        SINKPROP_INLINE Lanes add(Lanes label) {
            const Lanes magic = label + Lanes::all(round_magic), whole_label = magic - Lanes::all(round_magic),
                        zero = Lanes::all(0), one = Lanes::all(1);
            fractions = Lanes::where_equal(label, whole_label, fractions, one);
            others = Lanes::where_less(Lanes::all(most), label, one, Lanes::where_less(label, zero, one, others));
            const Lanes digit = fma(minimum(label, Lanes::all(most)), Lanes::all(9), Lanes::all(round_magic - 9));
            counts = counts + Lanes::where_less(zero, label, Lanes::power_of_two(digit), zero);
            return Lanes::power_of_two(magic);
        }
    };

    // Sum of the gains in decreasing order times the weights of the ranks. In longer lists with few labels, the sum
    // over the documents of each label is a difference of two sums of weights. `sorted` (n, W) is scratch.
    Lanes ideal(const Lists& lists, const Labels& labels, double* sorted) const {
        constexpr std::size_t longest_to_sort = 16;
        const Lanes uncounted = labels.fractions + labels.others, zero = Lanes::all(0);
        double totals[W], is_sorted[W];
        for (std::size_t l = 0; l < W; ++l) {
            totals[l] = 0;
            is_sorted[l] = lists.sizes[l] <= longest_to_sort || uncounted[int(l)] > 0;
            if (is_sorted[l]) continue;
            std::uint64_t counts = std::uint64_t(labels.counts[int(l)]);
            std::size_t above = 0;  // number of documents whose label is not lower
            for (int label = Labels::most; label > 0; --label) {
                above += counts >> 9 * (label - 1) & 511;
                totals[l] += double(lists.exponential ? 1 << (label - 1) : 1) * lists.D_sums[l][above];
            }
        }
        const Lanes total = Lanes::load(totals), use_sorted = Lanes::load(is_sorted);
        if (sum(use_sorted) == 0) return total;
        const Lanes low = Lanes::all(-INFINITY);
        for (std::size_t i = 0; i < size; i += W)
            Lanes::where_less(zero, load(mask, i), load(gains, i), low).store(sorted + i);
        sort_lanes(n, sorted);
        Lanes of_sorted = zero;
        for (std::size_t i = 0; i < size; i += W)
            of_sorted = fma(Lanes::where_less(zero, load(mask, i), load(sorted, i), zero), load(D, i), of_sorted);
        return Lanes::where_less(zero, use_sorted, of_sorted, total);
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
