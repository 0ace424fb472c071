// Sorting of documents by decreasing score.
#pragma once

#include <algorithm>
#include <new>
#include <numeric>
#include <stdexcept>

#include "dispatch.hpp"

namespace sinkprop {

// Size of the scratch of sort_documents, as a number of doubles
inline std::size_t checked_sort_scratch(std::size_t n) {
    if (n > SIZE_MAX / (4 * sizeof(double))) throw std::bad_alloc();
    return sort_scratch(n);
}

// Writes the numbers 0 .. n - 1 to `order` by decreasing score, with ties in increasing order, and the scores in this
// order to `sorted`. Throws if a score is NaN, which has no place.
inline void sort_documents(const double* scores, std::size_t n, double* scratch, std::size_t* order, double* sorted) {
    const Sorting outcome = kernels_in_use().sort_scores(scores, n, scratch, order, sorted);
    if (outcome == Sorting::not_numbers) throw std::invalid_argument("scores must not be NaN");
    if (outcome == Sorting::done) return;
    std::iota(order, order + n, std::size_t(0));
    std::stable_sort(order, order + n, [&](std::size_t i, std::size_t j) { return scores[i] > scores[j]; });
    for (std::size_t i = 0; i < n; ++i) sorted[i] = scores[order[i]];
}

}  // namespace sinkprop
