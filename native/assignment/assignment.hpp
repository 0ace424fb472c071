// The assignment problem: one column for each row of a square matrix.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinkprop {

// Finds the assignment with the smallest sum of the n x n costs, in O(n^3) time. column[i] is the column of row i, and
// no two rows have the same. A cost may be infinite, for a pair that must not be assigned, but neither NaN nor
// -infinity. Returns false if every assignment has such a pair.
bool assign(const double* cost, std::size_t n, std::int64_t* column);

}  // namespace sinkprop
