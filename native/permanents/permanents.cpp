#include "permanents.hpp"

#include <algorithm>
#include <vector>

#include "batch/dispatch.hpp"
#include "batch/threads.hpp"

namespace sinkprop {
namespace {

constexpr std::uint64_t pieces_per_group = 4;

std::size_t number_of_bits(std::uint32_t set) {
    std::size_t count = 0;
    for (; set; set &= set - 1) ++count;
    return count;
}

}  // namespace

std::uint64_t glynn_groups(std::size_t n) {
    return (glynn_pieces(n) + pieces_per_group - 1) / pieces_per_group;
}

void glynn_sums(const double* A, std::size_t n, std::uint64_t first, std::uint64_t last, int n_threads, double* sums) {
    const auto& kernels = kernels_in_use();
    in_parallel(std::size_t(last - first), 1, n_threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t g = begin; g < end; ++g) {
            double* sum = sums + 2 * g;
            sum[0] = sum[1] = 0;
            const std::uint64_t from = (first + g) * pieces_per_group;
            kernels.glynn(A, n, from, std::min(glynn_pieces(n), from + pieces_per_group), sum);
        }
    });
}

// before[S] is the sum of the weights of the matchings of the first |S| rows with the columns S, and after[S] that of
// the other rows with the other columns.
double matching_marginals(const double* A, std::size_t n, double* marginals) {
    const std::uint32_t all = (std::uint32_t(1) << n) - 1;
    std::vector<double> before(std::size_t(all) + 1), after(std::size_t(all) + 1);
    before[0] = after[all] = 1;
    for (std::uint32_t S = 1; S <= all; ++S) {
        const double* row = A + (number_of_bits(S) - 1) * n;
        double sum = 0;
        for (std::size_t j = 0; j < n; ++j)
            if (S >> j & 1) sum += row[j] * before[S ^ std::uint32_t(1) << j];
        before[S] = sum;
    }
    std::fill(marginals, marginals + n * n, 0.0);
    for (std::uint32_t S = all; S-- > 0;) {
        const std::size_t i = number_of_bits(S);
        const double* row = A + i * n;
        double sum = 0;
        for (std::size_t j = 0; j < n; ++j)
            if (!(S >> j & 1)) {
                const double term = row[j] * after[S | std::uint32_t(1) << j];
                sum += term;
                marginals[i * n + j] += before[S] * term;
            }
        after[S] = sum;
    }
    return before[all];
}

}  // namespace sinkprop
