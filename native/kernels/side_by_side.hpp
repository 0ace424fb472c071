// Short queries side by side, one in each lane of a register (docs/linear-time.md 3.5).
//
// The vectors of a short query fill few registers, and each step of a sweep waits for the one before. So W queries
// share their registers: element i * W + l of a vector belongs to the i-th document of query l. The functions of
// scaling.hpp then run as for one query, except that a sum over the documents of a query is a sum over registers,
// without a sum over lanes. Queries with fewer documents than the longest one are padded. Elements of the padding are 0
// in every vector, and adding 0 changes no bit, so a query's results do not depend on the queries beside it.
//
// The operators offer what scaling.hpp asks for. The kernel and the letters are those of exponential_sums.hpp.
#pragma once

#include "exponential_sums.hpp"
#include "kernels.hpp"
#include "matrix_sums.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// The arrays (n, W) of W queries, with their documents in decreasing order of scores
struct SortedLists {
    std::size_t n;
    double *mask, *scores, *gains, *D;  // mask: 1 for a document, 0 in the padding

    static constexpr std::size_t scratch(std::size_t n) { return 5 * n * W; }

    // `places` receives the place of each document before sorting
    SortedLists(const Lists& lists, double* space, double* places) : n(lists.n) {
        const std::size_t size = n * W;
        mask = space;
        scores = mask + size;
        gains = scores + size;
        D = gains + size;
        double sizes[W];
        bool same_D = true;
        for (std::size_t l = 0; l < W; ++l) {
            sizes[l] = double(lists.sizes[l]);
            same_D &= lists.D[l] == lists.D[0];
        }
        const Lanes length = Lanes::load(sizes), zero = Lanes::all(0), one = Lanes::all(1), low = Lanes::all(-infinity);
        for (std::size_t i = 0; i < n; ++i) {
            const Lanes place = Lanes::all(double(i)), of_document = Lanes::where_less(place, length, one, zero);
            of_document.store(mask + i * W);
            place.store(places + i * W);
            Lanes::where_less(place, length, load(lists.scores, i * W), low).store(scores + i * W);
            Lanes::where_less(place, length, load(lists.gains, i * W), low).store(gains + i * W);
            if (same_D) {
                Lanes::all(lists.D[0][i]).store(D + i * W);
            } else {
                for (std::size_t l = 0; l < W; ++l) D[i * W + l] = i < lists.sizes[l] ? lists.D[l][i] : 0;
            }
        }
        const Lanes best = lists.normalize ? ideal(space + 4 * size) : one;
        for (std::size_t i = 0; i < size; i += W) {
            // gains of which the best ranking gains nothing count as 0
            const Lanes g = load(mask, i) * where_positive(load(mask, i), load(gains, i));
            Lanes::where_equal(best, zero, zero, g / best).store(gains + i);
        }
        sort(places);
        // the padding repeats the last score
        for (std::size_t i = W; i < size; i += W)
            where_positive(load(mask, i), load(scores, i), load(scores, i - W)).store(scores + i);
    }

  private:
    static constexpr double infinity = __builtin_inf();
    // a where mask is 1, else b
    static SINKPROP_INLINE Lanes where_positive(Lanes mask, Lanes a, Lanes b = Lanes::all(0)) {
        return Lanes::where_less(Lanes::all(0), mask, a, b);
    }

    // Sum of the gains in decreasing order times the weights of the ranks; `sorted` (n, W) is scratch
    Lanes ideal(double* sorted) const {
        const std::size_t size = n * W;
        for (std::size_t i = 0; i < size; i += W) load(gains, i).store(sorted + i);
        for (std::size_t round = 0; round < n; ++round)
            for (std::size_t i = round % 2 * W; i + W < size; i += 2 * W) {
                const Lanes a = load(sorted, i), b = load(sorted, i + W);
                maximum(a, b).store(sorted + i);
                minimum(a, b).store(sorted + i + W);
            }
        Lanes total = Lanes::all(0);
        for (std::size_t i = 0; i < size; i += W)
            total = fma(where_positive(load(mask, i), load(sorted, i)), load(D, i), total);
        return total;
    }

    // Odd-even transposition sort: neighbors change places where the lower one has the higher score, so that equal
    // scores keep their order. It takes n^2 / 2 comparisons, each of W queries.
    void sort(double* places) const {
        const std::size_t size = n * W;
        for (std::size_t round = 0; round < n; ++round)
            for (std::size_t i = round % 2 * W; i + W < size; i += 2 * W) {
                const Lanes a = load(scores, i), b = load(scores, i + W);
                for (double* values : {places, gains, scores}) {
                    const Lanes first = load(values, i), second = load(values, i + W);
                    Lanes::where_less(a, b, second, first).store(values + i);
                    Lanes::where_less(a, b, first, second).store(values + i + W);
                }
            }
    }
};

// Base class of the operators: their mask, and the derivatives that they remember
template <class Operator>
struct SideBySide : Remembering<Operator> {
    std::size_t n, size;
    double unit;
    const double* mask;

    static constexpr std::size_t scratch(std::size_t n, int T) { return (std::size_t(T) + 1) * n * W; }

    SideBySide(const SortedLists& lists, double unit_, double* space)
        : n(lists.n), size(lists.n * W), unit(unit_), mask(lists.mask) {
        this->memory = space;
    }
};

// LaplaceSums of W queries: one sweep up, one down. Their latencies are shared by the queries.
struct LaplaceLists : SideBySide<LaplaceLists> {
    using Base = SideBySide<LaplaceLists>;
    double *e, *up;  // (n + 1, W) decay from the previous document, and 0 at both ends; (n, W) states of the sweep up

    static constexpr std::size_t scratch(std::size_t n, int T) { return Base::scratch(n, T) + (2 * n + 1) * W; }

    LaplaceLists(const SortedLists& lists, double tau, int T, double* space) : Base(lists, tau, space) {
        e = space + Base::scratch(n, T);
        up = e + size + W;
        const Lanes width = Lanes::all(tau);
        for (std::size_t i = W; i < size; i += W)
            exp((load(lists.scores, i) - load(lists.scores, i - W)) / width).store(e + i);
        Lanes::all(0).store(e);
        Lanes::all(0).store(e + size);
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, Finish&& finish) const {
        Lanes state = Lanes::all(0);
        for (std::size_t i = size; i > 0;) {
            i -= W;
            state = fma(load(e, i + W), state, load(x, i));
            state.store(up + i);
        }
        state = Lanes::all(0);
        for (std::size_t i = 0; i < size; i += W) {
            const Lanes xi = load(x, i), above = load(e, i) * state, below = load(up, i);
            state = above + xi;
            finish(i, above + below, state - below);
        }
    }
};

// The matrices A and dA of W queries with the Gaussian kernel: the entries below the diagonal, which are those above it
// for A, and the negative of those above it for dA
struct GaussianLists : SideBySide<GaussianLists> {
    using Base = SideBySide<GaussianLists>;
    double *K, *dK;  // (n (n - 1) / 2, W) entry (i, j), j < i, is element i (i - 1) / 2 + j

    static constexpr std::size_t pairs(std::size_t n) { return n * (n - 1) / 2; }
    static constexpr std::size_t scratch(std::size_t n, int T) { return Base::scratch(n, T) + 2 * pairs(n) * W; }

    GaussianLists(const SortedLists& lists, double sigma, int T, double* space) : Base(lists, sigma, space) {
        K = space + Base::scratch(n, T);
        dK = K + pairs(n) * W;
        const Lanes width = Lanes::all(sigma);
        double *k = K, *dk = dK;
        for (std::size_t i = W; i < size; i += W)
            for (std::size_t j = 0; j < i; j += W, k += W, dk += W) {
                Lanes a, da;
                gaussian_entry((load(lists.scores, i) - load(lists.scores, j)) / width, a, da);
                a.store(k);
                da.store(dk);
            }
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, Finish&& finish) const {
        const double *row = K, *drow = dK;
        for (std::size_t i = 0; i < size; i += W) {
            Lanes k = load(x, i), dk = Lanes::all(0);
            for (std::size_t j = 0; j < i; j += W, row += W, drow += W) {
                const Lanes xj = load(x, j);
                k = fma(load(row, 0), xj, k);
                dk = fma(load(drow, 0), xj, dk);
            }
            const double *below = row + i, *dbelow = drow + i;
            Lanes up = Lanes::all(0);
            for (std::size_t j = i + W; j < size; below += j, dbelow += j, j += W) {
                const Lanes xj = load(x, j);
                k = fma(load(below, 0), xj, k);
                up = fma(load(dbelow, 0), xj, up);
            }
            finish(i, k, dk - up);
        }
    }
};

template <>
constexpr bool side_by_side<LaplaceLists> = true;
template <>
constexpr bool side_by_side<GaussianLists> = true;

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
