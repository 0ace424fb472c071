// A function that divides work among threads, which sleep between its calls.
#pragma once

#include <cstddef>
#include <functional>

namespace sinkprop {

// Covers the indices [0, n) by calls work(begin, end) on up to `n_threads` threads, each of which takes `piece` indices
// at a time. The calling thread is one of them. The others are kept for later calls; if they are busy with another
// call, fewer take part. At the end of its part, each of the others calls `leave`, which must not throw. When this
// function returns, no thread is in `work` or `leave`. It rethrows the first exception of `work`.
//
// Several threads may call it at once, and `work` may call it. The calling thread must not hold a lock that `work`
// takes, such as Python's. A forked process starts threads of its own.
void in_parallel(std::size_t n, std::size_t piece, int n_threads,
                 const std::function<void(std::size_t, std::size_t)>& work, void (*leave)() = nullptr);

}  // namespace sinkprop
