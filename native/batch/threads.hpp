// A function that divides work among threads, which end before it returns.
#pragma once

#include <cstddef>
#include <functional>

namespace sinkprop {

// Covers the indices [0, n) by calls work(begin, end) on up to `n_threads` threads, each of which takes `piece` indices
// at a time. The threads end before this function returns. It rethrows the first exception of `work`.
void in_parallel(std::size_t n, std::size_t piece, int n_threads,
                 const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace sinkprop
