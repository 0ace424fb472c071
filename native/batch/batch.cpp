#include "batch.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "buffer.hpp"
#include "ideal.hpp"
#include "kernels/cell_tables.hpp"
#include "sorting.hpp"

namespace sinkprop {
namespace {

// ---- instruction sets

const Kernels* find(const std::string& name) {
    if (name == "baseline") return &baseline::kernels;
#if SINKPROP_X86
    __builtin_cpu_init();
    if (name == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2::kernels;
    if (name == "avx512" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma"))
        return &avx512::kernels;
#endif
    return nullptr;
}

std::atomic<const Kernels*>& in_use() {
    static std::atomic<const Kernels*> kernels{[] {
        const char* wish = std::getenv("SINKPROP_ISA");
        const Kernels* found = find(wish ? wish : instruction_sets().back());
        if (found) return found;
        std::string known;
        for (const std::string& name : instruction_sets()) known += (known.empty() ? "" : ", ") + name;
        throw std::runtime_error("SINKPROP_ISA must name an instruction set that this processor has (" + known +
                                 "); got '" + wish + "'");
    }()};
    return kernels;
}

std::atomic<Method> forced_method{Method::automatic};

// ---- memory

struct Workspace {
    Buffer index, scores, gains, scratch, sorting, blocks;
    std::vector<std::size_t> present;
    std::vector<std::int32_t> classes, local;  // local: number of a class within the query, -1 if it is not there
    void shrink() {
        for (Buffer* b : {&index, &scores, &gains, &scratch, &sorting, &blocks}) b->shrink();
    }
};

// A thread that calls again finds its buffers as it left them, unless they are very large: to be given fresh pages
// costs as much as a third of an evaluation.
Workspace& workspace() {
    static thread_local Workspace w;
    return w;
}

// ---- threads

// work(begin, end) over [0, n) in pieces of `piece`. Threads end with the call; the first exception is thrown again
// here.
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
        // no more threads to be had: those there are do the work
    }
    run();
    for (std::thread& t : others) t.join();
    if (failure) std::rethrow_exception(failure);
}

// ---- the loop over queries

std::size_t longest(const Batch& batch) {
    std::size_t n = 0;
    for (std::size_t q = 0; q < batch.n_queries; ++q)
        n = std::max<std::size_t>(n, batch.offsets[q + 1] - batch.offsets[q]);
    return n;
}

// Queries to a piece. A thread is worth starting for some thousand documents; pieces small enough to share the work
// evenly.
std::size_t piece_of(const Batch& batch) {
    const std::size_t total = batch.offsets[batch.n_queries];
    const std::size_t per_query = std::max<std::size_t>(1, total / std::max<std::size_t>(1, batch.n_queries));
    return std::max<std::size_t>(1, 1000 / per_query);
}

// What is added to the scores of the q-th query, the same for the same scores and seed: nearly normal, of the given
// standard deviation. A bit more or less in any score makes all of it anew.
class Noise {
  public:
    Noise(const Batch& batch, std::size_t q, double deviation, std::uint64_t seed) : scale_(0) {
        if (!(deviation > 0)) return;
        // the sum of four 16-bit uniform numbers has a variance of 4 (2^32 - 1) / 12
        scale_ = deviation / std::sqrt((65536.0 * 65536.0 - 1) / 3);
        key_ = mixed(seed ^ mixed(q + 1));
        const std::size_t n = std::size_t(batch.offsets[q + 1] - batch.offsets[q]);
        for (std::size_t i = 0; i < n; ++i) {
            std::uint64_t bits;
            const double score = batch.scores[batch.row(q, i)] + 0.0;  // one zero only
            std::memcpy(&bits, &score, sizeof bits);
            key_ = (key_ ^ bits) * 0x9E3779B97F4A7C15u;
            key_ ^= key_ >> 29;
        }
    }

    double operator()(std::size_t i) const {
        if (scale_ == 0) return 0;
        const std::uint64_t z = mixed(key_ + i * 0xD1342543DE82EF95u);
        const std::uint64_t sum = (z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48);
        return scale_ * (double(sum) - 2 * 65535.0);
    }

  private:
    // Steele, Lea and Flood's splitmix64
    static std::uint64_t mixed(std::uint64_t z) {
        z += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    double scale_;
    std::uint64_t key_ = 0;
};

// The query's documents in the order the kernels want: by decreasing score, or as they come for a partitioned measure.
// noise(i) is added to the score of the i-th.
template <class Added>
Query arrange(const Batch& batch, const Settings& settings, std::size_t q, Workspace& w, const Added& noise) {
    const std::size_t begin = batch.offsets[q], n = batch.offsets[q + 1] - begin, width = settings.width();
    auto row = [&](std::size_t i) { return batch.row(q, i); };
    std::size_t* rows = static_cast<std::size_t*>(w.index.bytes(n * sizeof(std::size_t)));
    double* scores = w.scores.doubles(n * width);
    if (settings.partitioned()) {
        for (std::size_t i = 0; i < n; ++i) {
            rows[i] = row(i);
            scores[2 * i] = batch.scores[2 * rows[i]];
            scores[2 * i + 1] = batch.scores[2 * rows[i] + 1];
        }
    } else {
        sort_rows(n, [&](std::size_t i) { return batch.scores[row(i)] + noise(i); }, row, w.sorting, scores, rows);
    }
    double* gains = w.gains.doubles(n);
    if (batch.gains)
        for (std::size_t i = 0; i < n; ++i) {
            prefetch(batch.gains, rows, i + 16, n);
            gains[i] = batch.exponential ? exponential_gain(batch.gains[rows[i]]) : batch.gains[rows[i]];
        }
    // A gain by table needs one product for each class of labels in the query; a projection wants them all.
    w.present.clear();
    if (batch.classes && batch.n_classes > 1) {
        w.local.resize(batch.n_classes, -1);
        w.classes.resize(n);
        for (std::size_t i = 0; i < n; ++i) {
            std::int32_t& local = w.local[batch.classes[rows[i]]];
            if (local < 0) {
                local = std::int32_t(w.present.size());
                w.present.push_back(batch.classes[rows[i]]);
            }
            w.classes[i] = local;
        }
        for (std::size_t c : w.present) w.local[c] = -1;
    } else {
        for (std::size_t c = 0; c < batch.n_classes; ++c) w.present.push_back(c);
    }
    return {n, scores, rows, gains, 1, w.classes.data(), batch.D, w.present.data(), w.present.size(), batch.stride};
}

// Calls work(q, query, workspace) for every query, with noise_of(q) added to its scores
template <class NoiseOf, class Work>
void each_arranged(const Batch& batch, const Settings& settings, int n_threads, NoiseOf&& noise_of, Work&& work) {
    const bool cubic = settings.relaxation == Relaxation::rank_binomial;
    if (batch.offsets[batch.n_queries] < 4000 && settings.smoothed()) n_threads = 1;
    in_parallel(batch.n_queries, cubic ? 1 : piece_of(batch), n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        for (std::size_t q = from; q < to; ++q) {
            Query query = arrange(batch, settings, q, w, noise_of(q));
            work(q, query, w);
        }
        w.shrink();
    });
}

// Calls work(q, query, settings, plan, scratch, kernels) for every query
template <class Work>
void each_query(const Batch& batch, Settings settings, int n_threads, Work&& work) {
    const Kernels& kernels = *in_use();
    settings.method = forced_method;
    settings.cells = settings.exact ? cell_table<16>() : cell_table<12>();
    settings.fine_cells = cell_table<8>();
    const auto none = [](std::size_t) { return [](std::size_t) { return 0.0; }; };
    each_arranged(batch, settings, n_threads, none, [&](std::size_t q, Query& query, Workspace& w) {
        const Plan plan = kernels.plan(query, settings);
        work(q, query, settings, plan, w.scratch.doubles(plan.scratch), kernels);
    });
}

// A query's tied documents as blocks, and what is found for them
struct BlockSpace {
    Blocks blocks;
    double *total, *own, *slope;  // (n,), (n_classes, n), (documents,)
};

BlockSpace find_blocks(const Query& query, Workspace& w) {
    const std::size_t n = query.n, C = query.n_classes;
    if (n > SIZE_MAX / (4 * (C + 1)) / sizeof(double)) throw std::bad_alloc();
    double *scores = w.blocks.doubles(n * (4 + 4 * C)), *count = scores + n, *total = count + n, *slope = total + n;
    std::size_t m = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (!i || query.scores[i] != scores[m - 1]) {
            scores[m] = query.scores[i];
            count[m++] = 0;
        }
        ++count[m - 1];
    }
    double *gains = slope + n, *D = gains + C * m, *spread = D + C * m, *own = spread + C * m;
    for (std::size_t i = 0; i < m; ++i) total[i] = 0;
    for (std::size_t i = 0; i < C * m; ++i) gains[i] = own[i] = 0;
    for (std::size_t b = 0, from = 0; b < m; ++b) {
        const std::size_t size = std::size_t(count[b]), to = from + size;
        for (std::size_t i = from; i < to; ++i)
            gains[(C > 1 ? std::size_t(query.classes[i]) : 0) * m + b] += query.gains[i] / query.ideal;
        for (std::size_t c = 0; c < C; ++c) {
            const double* discount = query.discount(c);
            double sum = 0, differences = 0;
            for (std::size_t i = from; i < to; ++i) {
                sum += discount[i];
                differences += discount[i] * (double(size - 1) - 2 * double(i - from));
            }
            gains[c * m + b] /= count[b];
            D[c * m + b] = sum / count[b];
            spread[c * m + b] = size > 1 ? differences / (0.5 * count[b] * (count[b] - 1)) : 0;
        }
        from = to;
    }
    return {{m, C, scores, count, gains, D, spread}, total, own, slope};
}

// What the blocks were found to have, to their documents: slope (documents,). Documents that are all worth the same
// have no derivative: what an incomplete normalization leaves them is an error, and no order is better than another.
void distribute(const Query& query, const BlockSpace& s) {
    const std::size_t m = s.blocks.n, C = query.n_classes;
    const double* last = query.gains + query.n;
    if (C == 1 && std::adjacent_find(query.gains, last, std::not_equal_to<double>()) == last) {
        std::fill(s.slope, s.slope + query.n, 0.0);
        return;
    }
    for (std::size_t b = 0, from = 0; b < m; ++b) {
        const std::size_t to = from + std::size_t(s.blocks.count[b]);
        double own = 0;
        for (std::size_t i = from; i < to; ++i) {
            const std::size_t c = C > 1 ? std::size_t(query.classes[i]) : 0;
            s.slope[i] = query.gains[i] / query.ideal * s.own[c * m + b];
            own += s.slope[i];
        }
        const double shared = (s.total[b] - own) / s.blocks.count[b];
        for (std::size_t i = from; i < to; ++i) s.slope[i] += shared;
        from = to;
    }
}

// Calls work(q, query, its weight, its rows, scratch) for every query; scratch has 3 (n + slack) doubles.
template <class Work>
void each_pair_query(const PairBatch& batch, int n_threads, Work&& work) {
    const std::size_t total = batch.offsets[batch.n_queries];
    const std::size_t per_query = std::max<std::size_t>(1, total / std::max<std::size_t>(1, batch.n_queries));
    // some ten thousand pairs at a time
    const std::size_t piece = std::max<std::size_t>(1, 20000 / (per_query * per_query));
    in_parallel(batch.n_queries, piece, n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        for (std::size_t q = from; q < to; ++q) {
            const std::size_t begin = batch.offsets[q], n = batch.offsets[q + 1] - begin;
            const std::size_t padded = n + PairQuery::slack;
            double *scores = w.scores.doubles(padded), *weight = w.gains.doubles(padded);
            const double of_query = batch.query_weight ? batch.query_weight[q] : 1;
            const std::int64_t* rows = batch.rows + begin;
            for (std::size_t i = 0; i < n; ++i) {
                scores[i] = batch.scores[rows[i]];
                weight[i] = batch.sample_weight ? batch.sample_weight[rows[i]] : 1;
            }
            for (std::size_t i = n; i < padded; ++i) scores[i] = weight[i] = 0;
            work(q, PairQuery{n, scores, weight, batch.lower + begin}, of_query, rows, w.scratch.doubles(3 * padded));
        }
        w.shrink();
    });
}

}  // namespace

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const char* name : {"baseline", "avx2", "avx512"})
        if (find(name)) names.emplace_back(name);
    return names;
}

const Kernels& kernels_in_use() {
    return *in_use();
}

std::string instruction_set() {
    return in_use().load()->name;
}

bool use_instruction_set(const std::string& name) {
    const Kernels* found = find(name);
    if (found) in_use() = found;
    return found != nullptr;
}

double exponential_gain(double label) {
    const int whole = int(label);
    return label == whole && whole < 63 ? double((std::int64_t(1) << whole) - 1) : std::exp2(label) - 1;
}

bool use_method(const std::string& name) {
    const char* const names[] = {"auto", "direct", "banded", "cells", "sums", "fine cells"};
    for (int i = 0; i < 6; ++i)
        if (name == names[i]) {
            forced_method = Method(i);
            return true;
        }
    return false;
}

void sort_descending(const double* scores, std::size_t n, std::size_t* order, double* sorted) {
    if (!n) return;
    sort_rows(
        n, [&](std::size_t i) { return scores[i]; }, [](std::size_t i) { return i; }, workspace().sorting, sorted,
        order);
}

void expected_gain(const Batch& batch, const Settings& settings, bool normalize, double factor, int n_threads,
                   double* per_query, double* gradient) {
    const Ideal ideal(batch.D, normalize ? longest(batch) : 0);
    const std::size_t width = settings.width();
    each_query(
        batch, settings, n_threads,
        [&](std::size_t q, Query& query, const Settings& s, const Plan& plan, double* scratch, const Kernels& kernels) {
            if (normalize) query.ideal = ideal(query.gains, query.n);
            if (query.ideal == 0) {
                per_query[q] = 0;
                for (std::size_t i = 0; i < query.n; ++i)
                    for (std::size_t d = 0; d < width; ++d) gradient[query.rows[i] * width + d] = 0;
            } else {
                per_query[q] = kernels.expected_gain(query, s, plan, factor, scratch, gradient);
            }
        });
}

void tree_derivatives(const Batch& batch, const Settings& settings, const TreeLoss& loss, bool normalize,
                      const double* query_weight, float least, int n_threads, double* per_query, float* gradient,
                      float* hessian) {
    const Kernels& kernels = *in_use();
    const Ideal ideal(batch.D, normalize ? longest(batch) : 0);
    const auto noise = [&](std::size_t q) { return Noise(batch, q, loss.noise, loss.seed); };
    each_arranged(batch, settings, n_threads, noise, [&](std::size_t q, Query& query, Workspace& w) {
        if (normalize) query.ideal = ideal(query.gains, query.n);
        per_query[q] = 0;
        if (query.ideal == 0) {
            for (std::size_t i = 0; i < query.n; ++i) {
                gradient[query.rows[i]] = 0;
                hessian[query.rows[i]] = least;
            }
            return;
        }
        const BlockSpace s = find_blocks(query, w);
        Settings of_width = settings;
        of_width.method = forced_method;
        double* scratch = w.scratch.doubles(kernels.blocks_scratch(s.blocks, of_width));
        const double share = 1 / double(loss.n_widths);
        for (std::size_t i = 0; i < loss.n_widths; ++i) {
            of_width.sigma = loss.widths[i];
            per_query[q] += share * kernels.blocks_gain(s.blocks, of_width, share, scratch, s.total, s.own);
        }
        distribute(query, s);
        double mean = 0;
        for (std::size_t i = 0; i < query.n; ++i) mean += std::abs(s.slope[i]);
        mean *= loss.blend / double(query.n);
        const double weight = query_weight ? query_weight[q] : 1, rest = 1 - loss.blend;
        for (std::size_t i = 0; i < query.n; ++i) {
            gradient[query.rows[i]] = float(-weight * s.slope[i]);
            hessian[query.rows[i]] = std::max(least, float(weight * (mean + rest * std::abs(s.slope[i]))));
        }
    });
}

void project(const Batch& batch, const Settings& settings, int n_threads, double* out) {
    each_query(batch, settings, n_threads,
               [&](std::size_t, const Query& query, const Settings& s, const Plan& plan, double* scratch,
                   const Kernels& kernels) { kernels.project(query, s, plan, scratch, out); });
}

void listnet(const Batch& batch, int k, int n_threads, double* per_query, double* gradient) {
    const Kernels& kernels = *in_use();
    const double factor = 1 / double(batch.n_queries);
    if (k <= 2 && std::size_t(batch.offsets[batch.n_queries]) < 4000) n_threads = 1;
    in_parallel(batch.n_queries, piece_of(batch), n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        for (std::size_t q = from; q < to; ++q) {
            const std::size_t begin = batch.offsets[q], n = batch.offsets[q + 1] - begin;
            double* scratch = w.scratch.doubles(listnet_scratch(n, k));
            if (!batch.rows) {
                per_query[q] =
                    kernels.listnet(batch.scores + begin, batch.gains + begin, n, k, factor, scratch, gradient + begin);
                continue;
            }
            const std::int64_t* rows = batch.rows + begin;
            double *z = w.scores.doubles(2 * n), *g = z + n, *y = w.gains.doubles(n);
            for (std::size_t i = 0; i < n; ++i) {
                z[i] = batch.scores[rows[i]];
                y[i] = batch.gains[rows[i]];
            }
            per_query[q] = kernels.listnet(z, y, n, k, factor, scratch, g);
            for (std::size_t i = 0; i < n; ++i) gradient[rows[i]] = g[i];
        }
        w.shrink();
    });
}

void pairwise_loss(const PairBatch& batch, int n_threads, double* per_query) {
    const Kernels& kernels = *in_use();
    each_pair_query(batch, n_threads,
                    [&](std::size_t q, const PairQuery& query, double weight, const std::int64_t*, double*) {
                        per_query[q] = weight * kernels.pairwise_loss(query);
                    });
}

void pairwise_derivatives(const PairBatch& batch, int n_threads, double* gradient, double* hessian) {
    const Kernels& kernels = *in_use();
    each_pair_query(batch, n_threads,
                    [&](std::size_t, const PairQuery& query, double weight, const std::int64_t* rows, double* scratch) {
                        double *g = scratch + query.n + PairQuery::slack, *h = g + query.n + PairQuery::slack;
                        kernels.pairwise_derivatives(query, scratch, g, h);
                        for (std::size_t i = 0; i < query.n; ++i) {
                            gradient[rows[i]] = weight * g[i];
                            hessian[rows[i]] = weight * h[i];
                        }
                    });
}

}  // namespace sinkprop
