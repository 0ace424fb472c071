#include "threads.hpp"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#define SINKPROP_UNIX
#include <pthread.h>
#include <signal.h>
#endif

namespace sinkprop {
namespace {

// One call of in_parallel. It is on the stack of the calling thread, which waits until no other thread uses it.
struct Call {
    const std::function<void(std::size_t, std::size_t)>& work;
    void (*const leave)();
    const std::size_t n, piece, pieces;
    std::atomic<std::size_t> next{0};  // the first piece that no thread has taken
    std::mutex failing;
    std::exception_ptr failure;  // the first exception of `work`, guarded by `failing`
    std::fenv_t environment;     // of the calling thread: its rounding, and what it does with subnormal numbers
    // guarded by the pool's mutex:
    std::size_t wanted;                  // number of the pool's threads that may still take part
    std::atomic<std::size_t> inside{0};  // number of the pool's threads that take part; read without the mutex, too
    std::condition_variable left;
    Call* older = nullptr;  // the next call in the pool's list

    Call(std::size_t n_, std::size_t piece_, std::size_t pieces_, std::size_t wanted_,
         const std::function<void(std::size_t, std::size_t)>& work_, void (*leave_)())
        : work(work_), leave(leave_), n(n_), piece(piece_), pieces(pieces_), wanted(wanted_) {
        std::fegetenv(&environment);
    }

    void run() noexcept {
        try {
            for (std::size_t p; (p = next++) < pieces;) work(p * piece, std::min(n, (p + 1) * piece));
        } catch (...) {
            const std::lock_guard<std::mutex> lock(failing);
            if (!failure) failure = std::current_exception();
            next = pieces;
        }
    }
};

// While an object of this class lives, new threads start with all signals blocked except those of faults. Otherwise a
// thread of the pool could receive a signal such as Ctrl-C that the threads of the program have blocked for a while.
class SignalsBlocked {
  public:
    SignalsBlocked() {
#ifdef SINKPROP_UNIX
        sigset_t all;
        sigfillset(&all);
        for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
#endif
    }
    ~SignalsBlocked() {
#ifdef SINKPROP_UNIX
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
#endif
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

#ifdef SINKPROP_UNIX
  private:
    sigset_t before_;
#endif
};

// Threads that take part in calls, and sleep while there are none. They are detached, and the pool is never destroyed:
// at the end of the process the system ends them while they sleep. A destructor that joined them could run while a
// thread of the program is still in a call, and would then destroy what that call uses. Sanitizers report neither
// detached threads nor memory to which a global pointer refers.
//
// There is no deadlock: a thread waits only for calls that it has made itself, which are newer than the one it works
// on, and the thread that has made a call can do all its work alone.
class Pool {
  public:
    // The pool of this process, made by the first call
    static Pool& get() {
        Pool* pool = current;
        if (pool) return *pool;
        Pool* made = new Pool;
        if (current.compare_exchange_strong(pool, made)) return *made;
        delete made;  // another thread was faster
        return *pool;
    }

    // Lets threads of the pool take part in the call
    void open(Call& call) {
        std::size_t woken;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            call.older = newest_;
            newest_ = &call;
            start(call.wanted);
            woken = std::min(call.wanted, asleep_);
        }
        while (woken--) work_.notify_one();
    }

    // Waits until no thread of the pool takes part in the call, all pieces of which are taken. As their last pieces
    // often end at about the same time, and waking a thread takes longer than most pieces, it does not sleep at once.
    void close(Call& call) {
        using namespace std::chrono;
        std::unique_lock<std::mutex> lock(mutex_);
        remove(call);
        if (call.inside) {
            lock.unlock();
            const auto end = steady_clock::now() + microseconds(10);
            while (call.inside && steady_clock::now() < end) {
            }
            lock.lock();
        }
        call.left.wait(lock, [&] { return call.inside == 0; });
    }

    // Whether the process was forked since this pool was made, so that it has none of the threads. The mutex must not
    // be used then, because a thread that does not exist any more may have locked it.
    bool is_left_behind() const { return current != this; }

    // Makes the next call start with a new pool. The old one is not destroyed, for the same reason.
    static void leave_behind() { current = nullptr; }

  private:
    // Starts threads until there are `wanted`, or no more are available: then the existing ones do the work
    void start(std::size_t wanted) {
        if (started_ >= wanted) return;
        const SignalsBlocked blocked;
        try {
            for (; started_ < wanted; ++started_) std::thread([this] { serve(); }).detach();
        } catch (const std::exception&) {
        }
    }

    // What a thread of the pool does. It takes part in the newest call first, for which older ones may wait.
    void serve() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            if (!newest_) {
                ++asleep_;
                work_.wait(lock);
                --asleep_;
                continue;
            }
            Call& call = *newest_;
            ++call.inside;
            if (--call.wanted == 0) remove(call);
            lock.unlock();
            std::fesetenv(&call.environment);
            call.run();
            if (call.leave) call.leave();
            if (is_left_behind()) return;
            lock.lock();
            remove(call);
            if (--call.inside == 0) call.left.notify_one();  // while the mutex is locked the call exists
        }
    }

    // Removes the call from the list, if it is there: no more threads take part in it
    void remove(Call& call) {
        for (Call** at = &newest_; *at; at = &(*at)->older)
            if (*at == &call) {
                *at = call.older;
                return;
            }
    }

    static std::atomic<Pool*> current;
    std::mutex mutex_;
    std::condition_variable work_;
    // guarded by the mutex:
    Call* newest_ = nullptr;                // the list of the calls in which threads may take part
    std::size_t started_ = 0, asleep_ = 0;  // number of threads, and of those that sleep
};

std::atomic<Pool*> Pool::current{nullptr};

#ifdef SINKPROP_UNIX
// Registered when the module is loaded, before any call. To compare process numbers instead would take a system call
// each time, and processes in different namespaces can have the same number.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, Pool::leave_behind);
#endif

}  // namespace

void in_parallel(std::size_t n, std::size_t piece, int n_threads,
                 const std::function<void(std::size_t, std::size_t)>& work, void (*leave)()) {
    const std::size_t pieces = (n + piece - 1) / piece;
    const std::size_t threads = std::min<std::size_t>(std::max(n_threads, 1), pieces);
    if (threads <= 1) return work(0, n);
    Pool& pool = Pool::get();
    Call call(n, piece, pieces, threads - 1, work, leave);
    pool.open(call);
    call.run();
    if (pool.is_left_behind())
        throw std::runtime_error("only the parent process can complete a call during which a function forks");
    pool.close(call);
    if (call.failure) std::rethrow_exception(call.failure);
}

}  // namespace sinkprop
