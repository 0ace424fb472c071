#include "matchings.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "batch/threads.hpp"
#include "sampling/splitmix64.hpp"

namespace sinkprop {
namespace {

constexpr std::size_t draws_per_piece = 64;

// Writes the matching, and returns false if it was rejected. `free` is scratch of n numbers.
bool draw(const double* weights, const double* shrink, std::size_t n, std::uint64_t state, std::uint32_t* free,
          std::int32_t* matching) {
    std::iota(free, free + n, std::uint32_t(0));
    for (std::size_t j = 0; j < n; ++j) {
        const double *weight = weights + j * n, *factor = shrink + j * n;
        const std::size_t m = n - j;
        double product = 1;
        for (std::size_t f = 0; f < m; ++f) product *= factor[free[f]];
        // 53 random bits, at the middle of their interval
        const double uniform = (double(splitmix64(state += 0x9E3779B97F4A7C15u) >> 11) + 0.5) * 0x1p-53;
        double left = uniform;
        std::size_t f = 0;
        for (; f < m; ++f) {
            left -= product * weight[free[f]];
            if (left < 0) break;
        }
        if (f == m) return false;
        matching[free[f]] = std::int32_t(j);
        free[f] = free[m - 1];
    }
    return true;
}

}  // namespace

void draw_matchings(const double* weights, const double* shrink, std::size_t n, std::uint64_t seed, std::uint64_t first,
                    std::size_t count, int n_threads, std::int32_t* matchings) {
    const std::uint64_t key = splitmix64(seed);
    in_parallel(count, draws_per_piece, n_threads, [&](std::size_t begin, std::size_t end) {
        std::vector<std::uint32_t> free(n);
        for (std::size_t d = begin; d < end; ++d) {
            std::int32_t* matching = matchings + d * n;
            const std::uint64_t state = splitmix64(key ^ splitmix64(first + d));
            if (!draw(weights, shrink, n, state, free.data(), matching)) std::fill(matching, matching + n, -1);
        }
    });
}

}  // namespace sinkprop
