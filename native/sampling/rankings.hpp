// Rankings that are drawn from the probabilities of documents at ranks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinkprop {

// p (n, k): probability of each document at each of the first k ranks. Columns sum to 1, rows to 1 or less; a sum may
// be lower by a rounding error.
// rankings (size, k): documents of each ranking, best first. In each of them document i is at rank j with probability
// p[i, j]; together they are closer to p than independent rankings.
void draw_rankings(const double* p, std::size_t n, std::size_t k, std::size_t size, std::uint64_t seed,
                   std::int64_t* rankings);

}  // namespace sinkprop
