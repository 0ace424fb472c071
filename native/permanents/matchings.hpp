// Matchings drawn at random by acceptance and rejection (Huber and Law 2008).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinkprop {

// Tries to draw the matchings of numbers [first, first + count), each with its own random numbers, which depend on the
// seed and on its number. weights (n, n) and shrink (n, n) describe the columns in the order in which they are matched:
// if the rows R are free at column j, row i of R is chosen with probability
//     weights[j, i] prod_(k in R) shrink[j, k],
// and the draw is rejected with the probability that is left. matchings (count, n): the column, as a position in this
// order, of each row, or -1 in all places if the draw was rejected.
void draw_matchings(const double* weights, const double* shrink, std::size_t n, std::uint64_t seed, std::uint64_t first,
                    std::size_t count, int n_threads, std::int32_t* matchings);

}  // namespace sinkprop
