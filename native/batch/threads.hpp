// Threads that live for one call.
#pragma once

#include <cstddef>
#include <functional>

namespace sinkprop {

// work(begin, end) over [0, n) in pieces of `piece`. Threads end with the call; the first exception is thrown again
// here.
void in_parallel(std::size_t n, std::size_t piece, int n_threads,
                 const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace sinkprop
