// Queries from the bytes of an input, for the targets that call the functions of batch.hpp.
#pragma once

#include <numeric>
#include <utility>

#include "batch/dispatch.hpp"
#include "target.hpp"

namespace fuzz {

struct RandomQueries {
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int64_t> rows;  // a permutation of all rows
    std::size_t longest = 0;

    // The queries have at least one document each, as the Python classes see to.
    explicit RandomQueries(Input& input) {
        const std::size_t n = 1 + input.below(5);
        for (std::size_t q = 0; q < n; ++q) {
            const std::size_t kind = input.below(16), size = 1 + (kind ? input.below(12) : input.below(300));
            longest = size > longest ? size : longest;
            offsets.push_back(offsets.back() + std::int64_t(size));
        }
        rows.resize(std::size_t(offsets.back()));
        std::iota(rows.begin(), rows.end(), 0);
        if (input.byte() % 2)
            for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[input.below(i)]);
    }
    std::size_t queries() const { return offsets.size() - 1; }
    std::size_t documents() const { return rows.size(); }
};

inline std::vector<double> numbers(Input& input, std::size_t n) {
    std::vector<double> values(n);
    const bool tied = input.byte() % 4 == 0;
    for (double& value : values) value = tied ? double(input.below(3)) : input.number();
    return values;
}

// Chooses one of the instruction sets that this processor has.
inline void choose_instruction_set(Input& input) {
    static const std::vector<std::string> sets = sinkprop::instruction_sets();
    sinkprop::use_instruction_set(sets[input.below(sets.size())]);
}

inline bool finite(const std::vector<double>& values) {
    for (double value : values)
        if (!std::isfinite(value)) return false;
    return true;
}

}  // namespace fuzz
