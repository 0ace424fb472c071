// Sorting of rows by decreasing score.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "buffer.hpp"

namespace sinkprop {

struct Item {
    double score;
    std::size_t index;
};

inline bool above(const Item& a, const Item& b) {
    return a.score > b.score;
}

inline void insertion_sort(Item* first, std::size_t n) {
    for (std::size_t i = 1; i < n; ++i) {
        const Item x = first[i];
        std::size_t j = i;
        for (; j > 0 && above(x, first[j - 1]); --j) first[j] = first[j - 1];
        first[j] = x;
    }
}

// Stable sort of `items` by decreasing score into `out`; `items` is overwritten. Scores are distributed over buckets of
// equal width, and the scores of a large bucket over smaller buckets. An insertion sort then orders the documents
// within the buckets. Takes linear time for a roughly smooth distribution of scores, n log n in the worst case.
inline void bucket_sort(Item* items, Item* out, std::size_t n, double top, double bottom, int depth,
                        std::vector<std::uint32_t>& count) {
    constexpr std::size_t full = 24;
    // Few enough buckets that their positions in `out` stay in the cache
    const std::size_t buckets = std::min<std::size_t>(n, 4096);
    const double scale = double(buckets - 1) / (top - bottom);
    if (n <= full || depth > 6 || !(scale > 0) || !std::isfinite(scale)) {
        std::copy(items, items + n, out);
        if (n <= full) return insertion_sort(out, n);
        if (top > bottom) std::stable_sort(out, out + n, above);
        return;
    }
    const std::size_t base = count.size();
    count.resize(base + buckets + 1, 0);
    auto bucket = [&](double score) { return std::size_t((top - score) * scale); };
    for (std::size_t i = 0; i < n; ++i) ++count[base + bucket(items[i].score) + 1];
    for (std::size_t b = 0; b < buckets; ++b) count[base + b + 1] += count[base + b];
    for (std::size_t i = 0; i < n; ++i) out[count[base + bucket(items[i].score)]++] = items[i];
    // count[base + b] is now the end of bucket b in `out`
    for (std::size_t b = 0, begin = 0; b < buckets; ++b) {
        const std::size_t end = count[base + b];
        if (end - begin > full) {
            double high = out[begin].score, low = high;
            for (std::size_t i = begin; i < end; ++i) {
                items[i] = out[i];
                high = std::max(high, out[i].score);
                low = std::min(low, out[i].score);
            }
            bucket_sort(items + begin, out + begin, end - begin, high, low, depth + 1, count);
        }
        begin = end;
    }
    count.resize(base);
    if (depth == 0) insertion_sort(out, n);
}

// Writes score(i) and row(i) for all i < n to `scores` and `rows`, sorted by decreasing score, with ties in the order
// of i. Throws if a score is NaN, which has no bucket.
template <class Score, class Row>
void sort_rows(std::size_t n, Score score, Row row, Buffer& buffer, double* scores, std::size_t* rows) {
    if (n > SIZE_MAX / (2 * sizeof(Item))) throw std::bad_alloc();
    Item *items = static_cast<Item*>(buffer.bytes(2 * n * sizeof(Item))), *out = items + n;
    double top = score(0), bottom = top;
    bool numbers = true;
    for (std::size_t i = 0; i < n; ++i) {
        items[i] = {score(i), row(i)};
        numbers &= items[i].score == items[i].score;
        top = std::max(top, items[i].score);
        bottom = std::min(bottom, items[i].score);
    }
    if (!numbers) throw std::invalid_argument("scores must not be NaN");
    if (n > UINT32_MAX) {
        std::copy(items, items + n, out);
        std::stable_sort(out, out + n, above);
    } else {
        static thread_local std::vector<std::uint32_t> count;
        count.clear();
        bucket_sort(items, out, n, top, bottom, 0, count);
    }
    for (std::size_t i = 0; i < n; ++i) {
        rows[i] = out[i].index;
        scores[i] = out[i].score;
    }
}

}  // namespace sinkprop
