// The loop over the short queries of a batch, which are processed in groups, one query in each lane of a register
// (kernels/lists.hpp, docs/linear-time.md 3.5).
#pragma once

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "batch.hpp"
#include "dispatch.hpp"
#include "queries.hpp"
#include "threads.hpp"

namespace sinkprop {

// The queries of a batch that are processed in groups: queries[first[g]] .. queries[first[g + 1] - 1] are group g.
// Queries of about the same length are in a group.
class ListGroups {
  public:
    std::vector<std::size_t> queries, first;

    ListGroups(const Batch& batch, const Settings& settings, const Kernels& kernels)
        : longest_(batch.n_queries), covered_(batch.n_queries) {
        std::vector<std::size_t> at;
        for (std::size_t q = 0; q < batch.n_queries; ++q) {
            const std::size_t n = size(batch, q);
            longest_[q] = n ? longest_with(batch, settings, kernels, q) : 0;
            covered_ -= n && !longest_[q];
            if (!longest_[q]) continue;
            if (at.size() < n + 2) at.resize(n + 2);
            ++at[n + 1];
        }
        // at[n]: index of the first query of n documents, in increasing order of n
        for (std::size_t n = 1; n < at.size(); ++n) at[n] += at[n - 1];
        queries.resize(at.empty() ? 0 : at.back());
        for (std::size_t q = 0; q < batch.n_queries; ++q)
            if (longest_[q]) queries[at[size(batch, q)]++] = q;
        for (std::size_t i = 0; i < queries.size(); ++i)
            if (!i || i - first.back() == kernels.lanes || longest_[queries[i]] != longest_[queries[first.back()]])
                first.push_back(i);
        first.push_back(queries.size());
    }
    // Whether nothing is left to do for query q, or for all queries, after the groups: they are in one, or empty
    bool cover(const Batch& batch, std::size_t q) const { return longest_[q] || !size(batch, q); }
    bool cover_all() const { return covered_ == longest_.size(); }
    std::size_t size() const { return first.size() - 1; }

  private:
    static std::size_t size(const Batch& batch, std::size_t q) {
        return std::size_t(batch.offsets[q + 1] - batch.offsets[q]);
    }

    // Number of documents of the longest query with which query q can be in a group, or 0 if it cannot be in one: if it
    // is too long, or has documents of several classes. Depends on the query alone, so that its results do, too.
    static std::size_t longest_with(const Batch& batch, const Settings& settings, const Kernels& kernels,
                                    std::size_t q) {
        const std::size_t n = size(batch, q), longest = batch.n_terms ? 0 : kernels.longest_list(n, settings);
        if (longest && batch.classes && batch.n_classes > 1)
            for (std::size_t i = 1; i < n; ++i)
                if (batch.classes[batch.row(q, i)] != batch.classes[batch.row(q, 0)]) return 0;
        return longest;
    }

    std::vector<std::size_t> longest_;
    std::size_t covered_;
};

// A group of `count` queries, whose documents are sorted. Lanes without a query repeat the last one.
struct ListGroup {
    Lists lists;
    std::size_t count;
    const std::size_t* queries;
    const double* places;  // (n, lanes) place of each document among the caller's documents of its query
    double *values, *slopes, *scratch;
};

// Calls work(group) for every group. noise_of(q)(i) is added to the score of the i-th document of query q.
template <class NoiseOf, class Work>
void each_group(const Batch& batch, const Settings& settings, const ListGroups& groups, int n_threads, bool normalize,
                NoiseOf&& noise_of, Work&& work) {
    const Kernels& kernels = kernels_in_use();
    const std::size_t W = kernels.lanes;
    if (batch.offsets[batch.n_queries] < 4000) n_threads = 1;
    const std::size_t piece = (piece_of(batch) + W - 1) / W;
    in_parallel(groups.size(), piece, n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        std::vector<std::size_t> sizes(W);
        std::vector<const double*> D(W);
        for (std::size_t g = from; g < to; ++g) {
            const std::size_t* queries = groups.queries.data() + groups.first[g];
            const std::size_t count = groups.first[g + 1] - groups.first[g];
            const auto query = [&](std::size_t l) { return queries[std::min(l, count - 1)]; };
            for (std::size_t l = 0; l < W; ++l) {
                sizes[l] = std::size_t(batch.offsets[query(l) + 1] - batch.offsets[query(l)]);
                D[l] = batch.D + (batch.classes ? batch.classes[batch.row(query(l), 0)] * batch.stride : 0);
            }
            const std::size_t n = sizes[count - 1];
            double *scores = w.lists.doubles((4 * n + 1) * W), *gains = scores + n * W, *places = gains + n * W,
                   *slopes = places + n * W, *values = slopes + n * W;
            bool numbers = true;
            for (std::size_t l = 0; l < W; ++l) {
                const auto noise = noise_of(query(l));
                for (std::size_t i = 0; i < sizes[l]; ++i) {
                    const double score = batch.scores[batch.row(query(l), i)] + noise(i);
                    numbers &= score == score;
                    scores[i * W + l] = score;
                }
            }
            if (!numbers) throw std::invalid_argument("scores must not be NaN");
            kernels.sort_lists(n, sizes.data(), scores, places);
            for (std::size_t l = 0; l < W; ++l)
                for (std::size_t i = 0; i < sizes[l]; ++i) {
                    const double gain = batch.gains[batch.row(query(l), std::size_t(places[i * W + l]))];
                    gains[i * W + l] = batch.exponential ? exponential_gain(gain) : gain;
                }
            work(ListGroup{{n, sizes.data(), scores, gains, D.data(), normalize},
                           count,
                           queries,
                           places,
                           values,
                           slopes,
                           w.scratch.doubles(kernels.lists_scratch(n, settings))});
        }
        w.shrink();
    });
}

}  // namespace sinkprop
