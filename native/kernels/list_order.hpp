// The documents of lists (lists.hpp) in the order of decreasing scores (docs/linear-time.md 3.5).
//
// The queries' documents are transposed into the lanes. There each gets a key that orders it by its score, and holds
// its place in its lowest bits. A sorting network sorts the keys of all lanes together, and what else belongs to a
// document is taken from its place.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "noise.hpp"
#include "scaling.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

SINKPROP_INLINE std::size_t shortest(const std::size_t* sizes) {
    std::size_t least = sizes[0];
    for (std::size_t l = 1; l < W; ++l) least = sizes[l] < least ? sizes[l] : least;
    return least;
}

// Writes the numbers from[l] (sizes[l],) to lane l of out (n, W), and 0 behind them
inline void interleave(std::size_t n, const std::size_t* sizes, const double* const* from, double* out) {
    constexpr int R = native_width;
    const std::size_t common = shortest(sizes) < R ? 0 : shortest(sizes);
    for (int l = 0; l < W; l += R)
        for (std::size_t i = 0; i < common; i += R) {
            if (i + R > common) i = common - R;  // the last block overlaps the one before it
            Vec<R> block[R];
            SINKPROP_UNROLL
            for (int k = 0; k < R; ++k) block[k] = Vec<R>::load(from[l + k] + i);
            transpose(block);
            SINKPROP_UNROLL
            for (int k = 0; k < R; ++k) block[k].store(out + (i + k) * W + l);
        }
    for (std::size_t l = 0; l < W; ++l)
        for (std::size_t i = common; i < n; ++i) out[i * W + l] = i < sizes[l] ? from[l][i] : 0;
}

// Adds noise to scores (n, W)
inline void add_noise(const GivenLists& given, double* scores) {
    constexpr std::size_t step = sizeof(Words) / sizeof(std::uint64_t);
    const auto bits = [](const double* x) SINKPROP_LAMBDA {
        Words words;
        std::memcpy(&words, x, sizeof words);
        return words;
    };
    const Lanes scale = Lanes::all(given.noise), offset = Lanes::all(noise_offset), zero = Lanes::all(0);
    for (std::size_t i = 0; i < given.n * W; i += W) (load(scores, i) + zero).store(scores + i);  // -0 becomes 0
    const std::size_t common = shortest(given.sizes);
    std::uint64_t keys[W];
    for (std::size_t l = 0; l < W; l += step) {
        Words key;
        std::memcpy(&key, given.noise_keys + l, sizeof key);
        for (std::size_t i = 0; i < common; ++i) key = add_to_key(key, bits(scores + i * W + l));
        std::memcpy(keys + l, &key, sizeof key);
    }
    for (std::size_t l = 0; l < W; ++l)
        for (std::size_t i = common; i < given.sizes[l]; ++i) {
            std::uint64_t score;
            std::memcpy(&score, scores + i * W + l, sizeof score);
            keys[l] = add_to_key(keys[l], score);
        }
    Words of_lanes[W / step];
    std::memcpy(of_lanes, keys, sizeof keys);
    for (std::size_t i = 0; i < given.n; ++i) {
        Words numbers[W / step];
        SINKPROP_UNROLL
        for (std::size_t l = 0; l < W / step; ++l) numbers[l] = noise_bits(of_lanes[l], i);
        Lanes noise;
        static_assert(sizeof noise == sizeof numbers, "of the same elements");
        std::memcpy(&noise, numbers, sizeof numbers);
        (load(scores, i * W) + rounded_product(scale, noise - offset)).store(scores + i * W);
    }
}

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

// Sorts each lane of x (n, W) in decreasing order
inline void sort_lanes(std::size_t n, double* x) {
    sorting_network(n, [&](std::size_t i, std::size_t j) SINKPROP_LAMBDA {
        const Lanes a = load(x, i * W), b = load(x, j * W);
        maximum(a, b).store(x + i * W);
        minimum(a, b).store(x + j * W);
    });
}

constexpr std::size_t arrange_scratch(std::size_t n) {
    return 2 * n * W;
}

// Writes the scores of each query, in decreasing order, to scores (n, W), and its gains in the order of the scores to
// gains (n, W). The place that a document had before is place_of its key in keys (n, W). Documents with the same score
// keep their order. The padding has gains of 0, and about the last score. Returns whether no score is NaN.
inline bool arrange_lists(const GivenLists& given, double* space, double* scores, double* gains, double* keys) {
    const std::size_t n = given.n, *sizes = given.sizes;
    double *unsorted = space, *unsorted_gains = space + n * W;
    interleave(n, sizes, given.scores, unsorted);
    interleave(n, sizes, given.gains, unsorted_gains);
    if (given.noise > 0) add_noise(given, unsorted);
    double lengths[W];
    for (std::size_t l = 0; l < W; ++l) lengths[l] = double(sizes[l]);
    const Lanes length = Lanes::load(lengths), zero = Lanes::all(0), one = Lanes::all(1);
    Lanes numbers = one;
    for (std::size_t i = 0; i < n; ++i) {
        const Lanes score = load(unsorted, i * W), key = Lanes::key(score + zero, std::int64_t(last_place - i));
        numbers = Lanes::where_equal(score, score, numbers, zero);
        Lanes::where_less(Lanes::all(double(i)), length, key, zero).store(keys + i * W);
    }
    if (sum(numbers) < W) return false;
    sort_lanes(n, keys);
    const auto pick = [&](std::size_t i, std::size_t l) SINKPROP_LAMBDA {
        const std::size_t at = i * W + l, from = place_of(keys[at]) * W + l;
        scores[at] = unsorted[from];
        gains[at] = unsorted_gains[from];
    };
    const std::size_t common = shortest(sizes);
    for (std::size_t i = 0; i < common; ++i) {
        SINKPROP_UNROLL
        for (std::size_t l = 0; l < W; ++l) pick(i, l);
    }
    for (std::size_t l = 0; l < W; ++l) {
        for (std::size_t i = common; i < sizes[l]; ++i) pick(i, l);
        for (std::size_t i = sizes[l]; i < n; ++i) {
            scores[i * W + l] = scores[(i - 1) * W + l];
            gains[i * W + l] = 0;
        }
    }
    // The keys lack the last bits of the scores: an insertion sort puts scores that differ in these alone in order.
    Lanes wrong = zero;
    for (std::size_t i = W; i < n * W; i += W)
        wrong = Lanes::where_less(load(scores, i - W), load(scores, i), one, wrong);
    if (sum(wrong) > 0)
        for (std::size_t l = 0; l < W; ++l)
            for (std::size_t i = 1; i < sizes[l]; ++i) {
                std::size_t at = i * W + l;
                const double score = scores[at], gain = gains[at], key = keys[at];
                for (; at >= W && scores[at - W] < score; at -= W) {
                    scores[at] = scores[at - W];
                    gains[at] = gains[at - W];
                    keys[at] = keys[at - W];
                }
                scores[at] = score;
                gains[at] = gain;
                keys[at] = key;
            }
    return true;
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
