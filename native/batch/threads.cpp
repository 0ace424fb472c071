#include "threads.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace sinkprop {

void in_parallel(std::size_t n, std::size_t piece, int n_threads,
                 const std::function<void(std::size_t, std::size_t)>& work) {
    const std::size_t pieces = (n + piece - 1) / piece;
    const std::size_t threads = std::min<std::size_t>(std::max(n_threads, 1), pieces);
    if (threads <= 1) return work(0, n);
    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    std::mutex mutex;
    auto run = [&] {
        try {
            for (std::size_t p; (p = next++) < pieces;) work(p * piece, std::min(n, (p + 1) * piece));
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (!failure) failure = std::current_exception();
            next = pieces;
        }
    };
    std::vector<std::thread> others;
    others.reserve(threads - 1);
    try {
        for (std::size_t t = 1; t < threads; ++t) others.emplace_back(run);
    } catch (const std::system_error&) {
        // no more threads are available: the existing ones do the work
    }
    run();
    for (std::thread& t : others) t.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace sinkprop
