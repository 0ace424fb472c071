// The loop over the short queries of a batch, which are processed in groups, one query in each lane of a register
// (kernels/lists.hpp, docs/linear-time.md 3.5).
#pragma once

#include <algorithm>
#include <array>
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

// The documents of a group, in W lanes
template <std::size_t W>
class GroupRows {
  public:
    std::size_t sizes[W];
    const double* D[W];

    GroupRows(const Batch& batch, const std::size_t* queries) : batch_(batch) {
        for (std::size_t l = 0; l < W; ++l) {
            const std::size_t q = queries[l];
            begin_[l] = std::size_t(batch.offsets[q]);
            sizes[l] = std::size_t(batch.offsets[q + 1]) - begin_[l];
            D[l] = batch.D + (batch.classes ? batch.classes[row(l, 0)] * batch.stride : 0);
        }
    }

    std::size_t row(std::size_t l, std::size_t i) const {
        return batch_.rows ? std::size_t(batch_.rows[begin_[l] + i]) : begin_[l] + i;
    }

    // Calls use(i, l) for every document; most of the calls for one i come one after another, which is faster than
    // going through the memory of one lane at a time. The sizes increase with the lane.
    template <class Use>
    void each(Use&& use) const {
        for (std::size_t i = 0; i < sizes[0]; ++i)
            for (std::size_t l = 0; l < W; ++l) use(i, l);
        for (std::size_t l = 1; l < W; ++l)
            for (std::size_t i = sizes[0]; i < sizes[l]; ++i) use(i, l);
    }

  private:
    const Batch& batch_;
    std::size_t begin_[W];
};

// Calls work(group) for every group, with the number W of lanes. `noise` has a function keys, which returns a number
// for each of W queries, and noise(key, i) is added to the score of the query's i-th document.
template <std::size_t W, class Noise, class Work>
void each_group_of(const Batch& batch, const Settings& settings, const ListGroups& groups, int n_threads,
                   bool normalize, const Noise& noise, Work&& work) {
    const Kernels& kernels = kernels_in_use();
    const std::size_t piece = (piece_of(batch) + W - 1) / W;
    in_workspaces(groups.size(), piece, n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        for (std::size_t g = from; g < to; ++g) {
            const std::size_t count = groups.first[g + 1] - groups.first[g];
            std::size_t queries[W];
            for (std::size_t l = 0; l < W; ++l) queries[l] = groups.queries[groups.first[g] + std::min(l, count - 1)];
            const GroupRows<W> group(batch, queries);
            const std::size_t n = group.sizes[W - 1];
            double *scores = w.lists.doubles((4 * n + 1) * W), *gains = scores + n * W, *places = gains + n * W,
                   *slopes = places + n * W, *values = slopes + n * W;
            const auto keys = noise.template keys<W>(batch, queries);
            batch.scores.visit([&](const auto* x) {
                group.each([&](std::size_t i, std::size_t l) {
                    scores[i * W + l] = double(x[group.row(l, i)]) + noise(keys[l], i);
                });
            });
            if (!kernels.sort_lists(n, group.sizes, scores, places))
                throw std::invalid_argument("scores must not be NaN");
            group.each([&](std::size_t i, std::size_t l) {
                gains[i * W + l] = batch.gains[group.row(l, std::size_t(places[i * W + l]))];
            });
            work(ListGroup{{n, group.sizes, scores, gains, batch.exponential, group.D, normalize},
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

template <class Noise, class Work>
void each_group(const Batch& batch, const Settings& settings, const ListGroups& groups, int n_threads, bool normalize,
                const Noise& noise, Work&& work) {
    if (batch.offsets[batch.n_queries] < 4000) n_threads = 1;
    switch (kernels_in_use().lanes) {
        case 2:
            return each_group_of<2>(batch, settings, groups, n_threads, normalize, noise, work);
        case 4:
            return each_group_of<4>(batch, settings, groups, n_threads, normalize, noise, work);
        default:
            return each_group_of<8>(batch, settings, groups, n_threads, normalize, noise, work);
    }
}

}  // namespace sinkprop
