// Sorting of the scores of one query: docs/linear-time.md 8
//
// Document i gets the key T_i 2^b + i. Here b bits are enough for all i, and T_i is a whole number with the other bits
// of a double's mantissa, which does not decrease as the score decreases. So the order of the keys is the order of the
// scores, with ties in the order of i, except for different scores with the same T, which are few and are put right at
// the end. A key is the mantissa of a double between 2^52 and 2^53: it is moved as 8 bytes, and registers compare it.
//
// The keys are distributed over about as many buckets as there are keys, by their leading bits. All buckets are then
// sorted at once, by as many rounds of an odd-even transposition sort as the fullest bucket has keys.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "scaling.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {
namespace sorting {

constexpr int mantissa = 52;
constexpr double key_base = 4503599627370496.0;  // 2^52: the mantissa of key_base + x is the whole number x
// A bucket with at most `full` keys is sorted, one with more keys is distributed over further buckets.
constexpr std::size_t full = 16;

SINKPROP_INLINE std::uint64_t bits_of(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

SINKPROP_INLINE void insertion_sort(double* keys, std::size_t n) {
    for (std::size_t i = 1; i < n; ++i) {
        const double key = keys[i];
        std::size_t j = i;
        for (; j > 0 && keys[j - 1] > key; --j) keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

SINKPROP_INLINE bool ascending(const double* keys, std::size_t n) {
    for (std::size_t i = 1; i < n; ++i)
        if (keys[i] < keys[i - 1]) return false;
    return true;
}

// Puts the lower number of low[i] and high[i] into low[i], and the higher one into high[i], for all i < n
SINKPROP_INLINE void exchange(double* low, double* high, std::size_t n) {
    for (std::size_t i = 0; i < n; i += W) {
        const Lanes a = load(low, i), b = load(high, i);
        minimum(a, b).store(low + i);
        maximum(a, b).store(high + i);
    }
}

// Sorts keys that consist of sorted runs in ascending order, each of at most `rounds` keys that may have any order. In
// turn, the keys of even places are compared with the ones behind them, and with the ones before them. Keys of even and
// of odd places are in two arrays, so that a register holds keys that are compared with those of another register. The
// scratch has n + sort_slack doubles.
inline void transposition_sort(double* keys, std::size_t n, std::size_t rounds, double* scratch) {
    const std::size_t pairs = n / 2, size = round_up(pairs + 1, 8);
    double *even = scratch, *odd = scratch + size + 8;
    for (std::size_t i = 0; i < pairs; ++i) {
        even[i] = keys[2 * i];
        odd[i] = keys[2 * i + 1];
    }
    for (std::size_t i = pairs; i < size + 8; ++i) even[i] = odd[i] = 2 * key_base;  // above all keys
    if (n % 2) even[pairs] = keys[n - 1];
    for (std::size_t r = 0; r < rounds; r += 2) {
        exchange(even, odd, size);
        exchange(odd, even + 1, size);
    }
    for (std::size_t i = 0; i < pairs; ++i) {
        keys[2 * i] = even[i];
        keys[2 * i + 1] = odd[i];
    }
    if (n % 2) keys[n - 1] = even[pairs];
}

// Sorts n keys, which differ in their `left` low bits, into `out`. Their array is overwritten, with sort_slack more
// elements. A bucket that is too full at depth sort_depth is left as it is.
inline void distribute(double* keys, double* out, std::size_t n, int left, std::size_t depth, std::uint32_t* count) {
    // Up to 2^14 keys and their buckets stay in the cache. More keys are first distributed over few buckets, whose ends
    // do.
    int width = bits_below(n) <= widest_sort ? bits_below(n) : 9;
    if (width > left) width = left;
    const int shift = left - width;
    const std::size_t buckets = std::size_t(1) << width;
    const auto bucket = [&](double key) SINKPROP_LAMBDA { return std::size_t(bits_of(key) >> shift) & (buckets - 1); };
    for (std::size_t b = 0; b < buckets; ++b) count[b] = 0;
    for (std::size_t i = 0; i < n; ++i) ++count[bucket(keys[i])];
    std::uint32_t before = 0, fullest = 0;
    for (std::size_t b = 0; b < buckets; ++b) {
        const std::uint32_t size = count[b];
        fullest = size > fullest ? size : fullest;
        count[b] = before;
        before += size;
    }
    for (std::size_t i = 0; i < n; ++i) out[count[bucket(keys[i])]++] = keys[i];
    if (fullest <= full) return transposition_sort(out, n, fullest, keys);
    // count[b] is now the end of bucket b in `out`
    for (std::size_t b = 0, begin = 0; b < buckets; ++b) {
        const std::size_t end = count[b], size = end - begin;
        if (size <= full) {
            insertion_sort(out + begin, size);
        } else if (depth < sort_depth && !ascending(out + begin, size)) {
            for (std::size_t i = begin; i < end; ++i) keys[i] = out[i];
            distribute(keys + begin, out + begin, size, shift, depth + 1, count + buckets);
        }
        begin = end;
    }
}

// Finds the highest and the lowest score. Returns whether no score is NaN.
SINKPROP_INLINE bool find_range(const double* scores, std::size_t n, double& top, double& bottom) {
    const Lanes one = Lanes::all(1), zero = Lanes::all(0);
    Lanes high = Lanes::all(scores[0]), low = high, numbers = one;
    const auto take = [&](Lanes x) SINKPROP_LAMBDA {
        high = maximum(high, x);
        low = minimum(low, x);
        numbers = Lanes::where_equal(x, x, numbers, zero);
    };
    std::size_t i = 0;
    for (; i + W <= n; i += W) take(load(scores, i));
    for (; i < n; ++i) take(Lanes::all(scores[i]));
    top = high[0];
    bottom = low[0];
    for (int l = 1; l < W; ++l) {
        top = high[l] > top ? high[l] : top;
        bottom = low[l] < bottom ? low[l] : bottom;
    }
    return sum(numbers) == W;
}

// Keys for scores that are spread evenly: T is the distance from the highest score, in units of 1 / scale
SINKPROP_INLINE void linear_keys(const double* scores, std::size_t n, double top, double scale, int b, double* keys) {
    const Lanes highest = Lanes::all(top), factor = Lanes::all(scale), base = Lanes::all(key_base),
                step = Lanes::all(double(std::uint64_t(1) << b));
    // The product is rounded before `base` is added, which rounds it to T, so that a score has one T in all registers.
    const auto key = [&](Lanes score, Lanes place) SINKPROP_LAMBDA {
        return fma((rounded_product(highest - score, factor) + base) - base, step, base + place);
    };
    double places[W];
    for (int l = 0; l < W; ++l) places[l] = l;
    Lanes place = Lanes::load(places);
    std::size_t i = 0;
    for (; i + W <= n; i += W) {
        key(load(scores, i), place).store(keys + i);
        place = place + Lanes::all(W);
    }
    for (; i < n; ++i) keys[i] = key(Lanes::all(scores[i]), Lanes::all(double(i)))[0];
}

// Keys for all other scores: T has the sign, the exponent and leading bits of the mantissa
inline void exponent_keys(const double* scores, std::size_t n, int b, double* keys) {
    constexpr std::uint64_t sign = std::uint64_t(1) << 63;
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint64_t bits = bits_of(scores[i] + 0.0);  // -0 becomes 0
        const std::uint64_t order = bits & sign ? bits : ~(bits | sign);
        const std::uint64_t key = bits_of(key_base) | order >> (64 - mantissa) >> b << b | i;
        std::memcpy(keys + i, &key, sizeof key);
    }
}

// Writes the documents and their scores in the order of the keys, and then moves scores with the same T to their
// places. Returns false if that takes too many steps.
SINKPROP_INLINE bool read_keys(const double* keys, const double* scores, std::size_t n, int b, std::size_t* order,
                               double* sorted) {
    const std::uint64_t low_bits = (std::uint64_t(1) << b) - 1;
    std::size_t steps = n / 8 + full;
    double least = INFINITY;
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t document = std::size_t(bits_of(keys[i]) & low_bits);
        const double score = scores[document];
        std::size_t j = i;
        if (score > least) {
            for (; j > 0 && sorted[j - 1] < score; --j) {
                if (!steps--) return false;
                order[j] = order[j - 1];
                sorted[j] = sorted[j - 1];
            }
        } else {
            least = score;
        }
        order[j] = document;
        sorted[j] = score;
    }
    return true;
}

}  // namespace sorting

inline Sorting sort_scores(const double* scores, std::size_t n, double* scratch, std::size_t* order, double* sorted) {
    using namespace sorting;
    double top, bottom, *keys = scratch, *out = keys + round_up(n + sort_slack, 8);
    if (!find_range(scores, n, top, bottom)) return Sorting::not_numbers;
    const int b = bits_below(n);
    if (b > 32) return Sorting::left;  // the counters of a bucket have 32 bits
    std::uint32_t* count = reinterpret_cast<std::uint32_t*>(out + n);
    const double scale = 0.99 * double(std::uint64_t(1) << (mantissa - b)) / (top - bottom);
    if (scale > 0 && scale < INFINITY) {
        linear_keys(scores, n, top, scale, b, keys);
        distribute(keys, out, n, mantissa, 0, count);
        if (read_keys(out, scores, n, b, order, sorted)) return Sorting::done;
    }
    exponent_keys(scores, n, b, keys);
    distribute(keys, out, n, mantissa, 0, count);
    return read_keys(out, scores, n, b, order, sorted) ? Sorting::done : Sorting::left;
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
