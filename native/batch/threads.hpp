// Threads that live for one call.
#pragma once

#include <cstddef>
#include <functional>

namespace sinkprop {

// Calls work(begin, end) over [0, n) in pieces of `piece`. The threads end with this call, which rethrows the first
// exception.
void in_parallel(std::size_t n, std::size_t piece, int n_threads,
                 const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace sinkprop
