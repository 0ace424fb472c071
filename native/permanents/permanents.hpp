// Permanents of matrices, and the probabilities of the entries of a random matching. A matching s of the rows with the
// columns has a probability proportional to its weight prod_i A[i, s(i)]; the permanent is the sum of all weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinkprop {

// Number of groups of terms into which Glynn's formula is divided for an (n, n) matrix, with glynn_least <= n <=
// glynn_most. It does not depend on the number of threads, so results do not, either.
std::uint64_t glynn_groups(std::size_t n);

// sums (last - first, 2): each row is a sum, and its rounding error, of the terms of one of the groups [first, last).
// The sum over all groups is 2^(n - 1) times the permanent.
void glynn_sums(const double* A, std::size_t n, std::uint64_t first, std::uint64_t last, int n_threads, double* sums);

// Returns the permanent of A (n, n), and writes to marginals (n, n) the probability of each entry to be in a random
// matching, times the permanent. Only positive numbers are added: results are accurate to a few rounding errors. Takes
// time n 2^n and 16 2^n bytes.
double matching_marginals(const double* A, std::size_t n, double* marginals);

}  // namespace sinkprop
