// sort_descending against the standard library's stable sort.
#include <algorithm>
#include <numeric>

#include "batch/batch.hpp"
#include "target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::size_t n = 1 + input.below(2000);
    const std::uint8_t distinct = input.byte();
    std::vector<double> base, scores(n), sorted(n, -7);
    while (!input.empty() && base.size() < n) base.push_back(input.number());
    if (base.empty()) base.push_back(0);
    // few bytes become many scores, some of them tied
    for (std::size_t i = 0; i < n; ++i) {
        const double x = base[i % base.size()];
        const double moved = x * (1 + double(i % (distinct + 1u)) / 256);
        scores[i] = std::isfinite(moved) ? moved : x;
    }
    std::vector<std::size_t> order(n), expected(n);
    std::iota(expected.begin(), expected.end(), std::size_t(0));
    std::stable_sort(expected.begin(), expected.end(),
                     [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    sinkprop::sort_descending(scores.data(), n, order.data(), sorted.data());
    fuzz::check(order == expected, "another order than the standard library's stable sort");
    for (std::size_t i = 0; i < n; ++i)
        fuzz::check(std::memcmp(&sorted[i], &scores[order[i]], sizeof(double)) == 0, "a sorted score is another");
    return 0;
}
