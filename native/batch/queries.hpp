// The loop over the queries of a batch. It puts each query's documents into the order that the kernels need, in memory
// that belongs to the thread that processes the query.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "batch.hpp"
#include "buffer.hpp"
#include "sorting.hpp"
#include "threads.hpp"

namespace sinkprop {

// Memory of one thread, which it uses for one query at a time
struct Workspace {
    Buffer index, scores, gains, scratch, sorting, ties, lists, results;
    std::vector<std::size_t> present;
    // classes[i]: class of the query's i-th document, as an index into `present`, the list of the classes that occur in
    // the query. local[c]: index of class c in `present`, or -1 if no document of class c was found yet; used only
    // while `arrange` runs.
    std::vector<std::int32_t> classes, local;
    std::vector<std::size_t> places;  // places[i] = i, for queries whose results are in the order of their documents
    std::vector<Term> terms;
    // Frees the buffers that are larger than `most` bytes
    void shrink(std::size_t most = std::size_t(256) << 20) {
        if (places.capacity() > most / sizeof(std::size_t)) std::vector<std::size_t>().swap(places);
        for (Buffer* b : {&index, &scores, &gains, &scratch, &sorting, &ties, &lists, &results}) b->shrink(most);
    }
};

// The numbers from 0 to n - 1, or further
inline const std::size_t* places_of(Workspace& w, std::size_t n) {
    if (w.places.size() < n) {
        w.places.resize(n);
        std::iota(w.places.begin(), w.places.end(), std::size_t(0));
    }
    return w.places.data();
}

// The workspaces of the calling thread: one for calls of this module, and one for each depth of calls within them
inline std::vector<std::unique_ptr<Workspace>>& workspaces() {
    static thread_local std::vector<std::unique_ptr<Workspace>> levels;
    return levels;
}

// Returns the buffers of the calling thread. A thread keeps its buffers between calls, unless they are very large:
// getting fresh pages from the system takes up to a third of the time of an evaluation. A call from within a function
// of the caller's (NestedCall in batch.hpp) has buffers of its own, because those of the outer call are in use.
inline Workspace& workspace() {
    auto& levels = workspaces();
    while (levels.size() <= NestedCall::depth()) levels.push_back(std::make_unique<Workspace>());
    return *levels[NestedCall::depth()];
}

// At the end of its part of a call, a thread of the pool keeps less than the calling thread. There may be many such
// threads, which sleep until the process ends.
inline void shrink_workspaces() {
    for (auto& w : workspaces()) w->shrink(std::size_t(16) << 20);
}

// in_parallel for work that uses workspace()
inline void in_workspaces(std::size_t n, std::size_t piece, int n_threads,
                          const std::function<void(std::size_t, std::size_t)>& work) {
    in_parallel(n, piece, n_threads, work, shrink_workspaces);
}

// Returns where the residual of query q is noted, and sets it to 0 there; null if `residual` is null
inline double* note_residual(double* residual, std::size_t q) {
    if (!residual) return nullptr;
    residual[q] = 0;
    return residual + q;
}

// Number of documents of the longest query
inline std::size_t longest(const Batch& batch) {
    std::size_t n = 0;
    for (std::size_t q = 0; q < batch.n_queries; ++q)
        n = std::max<std::size_t>(n, batch.offsets[q + 1] - batch.offsets[q]);
    return n;
}

// Number of queries that a thread takes at a time. They have about a thousand documents: enough to be worth waking a
// thread, and few enough to share the work evenly.
inline std::size_t piece_of(const Batch& batch) {
    const std::size_t total = batch.offsets[batch.n_queries];
    const std::size_t per_query = std::max<std::size_t>(1, total / std::max<std::size_t>(1, batch.n_queries));
    return std::max<std::size_t>(1, 1000 / per_query);
}

// The noise of scores to which none is added, see Noise in trees.cpp
struct NoNoise {
    double factor() const { return 0; }
    std::uint64_t first_key(std::size_t) const { return 0; }
    std::uint64_t key(const Batch&, std::size_t) const { return 0; }
    double operator()(std::uint64_t, std::size_t) const { return 0; }
};

// Puts the documents of query q into the order that the kernels need: by decreasing score, with noise added to the
// scores first. For a partitioned measure, the order is left as given.
template <class Noise>
Query arrange(const Batch& batch, const Settings& settings, std::size_t q, Workspace& w, const Noise& noise) {
    const std::size_t begin = batch.offsets[q], n = batch.offsets[q + 1] - begin, width = settings.width();
    auto row = [&](std::size_t i) { return batch.row(q, i); };
    std::size_t* rows = static_cast<std::size_t*>(w.index.bytes(n * sizeof(std::size_t)));
    double* scores = w.scores.doubles(n * width);
    if (settings.partitioned()) {
        for (std::size_t i = 0; i < n; ++i) {
            rows[i] = row(i);
            for (std::size_t d = 0; d < width; ++d) scores[width * i + d] = batch.scores[width * rows[i] + d];
        }
    } else {
        double* scratch = w.sorting.doubles(n + checked_sort_scratch(n));
        const double* given = scratch;
        if (noise.factor() == 0 && !batch.rows && batch.scores.doubles()) {
            given = batch.scores.doubles() + begin;
        } else {
            const std::uint64_t key = noise.key(batch, q);
            for (std::size_t i = 0; i < n; ++i) scratch[i] = batch.scores[row(i)] + noise(key, i);
        }
        sort_documents(given, n, scratch + n, rows, scores);
        if (batch.rows || begin)
            for (std::size_t i = 0; i < n; ++i) rows[i] = row(rows[i]);
    }
    if (batch.n_attributes && n > SIZE_MAX / sizeof(double) / batch.n_attributes) throw std::bad_alloc();
    double* gains = w.gains.doubles(n * (batch.n_terms ? batch.n_attributes : 1));
    w.terms.assign(batch.terms, batch.terms + batch.n_terms);
    std::size_t products = 0;
    for (const Term& term : w.terms) products += term.products();
    if (batch.n_terms)
        for (std::size_t c = 0; c < batch.n_attributes; ++c)
            for (std::size_t i = 0; i < n; ++i) gains[c * n + i] = batch.gains[c * batch.n_documents + rows[i]];
    else if (batch.gains)
        for (std::size_t i = 0; i < n; ++i) {
            prefetch(batch.gains, rows, i + 16, n);
            gains[i] = batch.exponential ? exponential_gain(batch.gains[rows[i]]) : batch.gains[rows[i]];
        }
    // If the weights of the ranks depend on a document's class, the kernels compute one matrix product per class.
    // `present` lists the classes that occur in the query or, if `batch.classes` is null as for project(), all classes.
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
    return {n,
            scores,
            rows,
            gains,
            1,
            w.classes.data(),
            batch.D,
            w.present.data(),
            w.present.size(),
            batch.stride,
            w.terms.data(),
            batch.n_terms,
            products,
            nullptr};
}

// Calls work(q, query, workspace) for every query q of the batch that is not left out, with noise added to its scores
template <class Noise, class Leave, class Work>
void each_arranged(const Batch& batch, const Settings& settings, int n_threads, const Noise& noise, Leave&& leave_out,
                   Work&& work) {
    const bool cubic = settings.relaxation == Relaxation::rank_binomial;
    if (batch.offsets[batch.n_queries] < 4000 && settings.smoothed()) n_threads = 1;
    in_workspaces(batch.n_queries, cubic ? 1 : piece_of(batch), n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        for (std::size_t q = from; q < to; ++q) {
            if (leave_out(q)) continue;
            Query query = arrange(batch, settings, q, w, noise);
            work(q, query, w);
        }
        w.shrink();
    });
}

}  // namespace sinkprop
