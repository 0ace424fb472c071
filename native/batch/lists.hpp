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

// The queries of a batch that are processed in groups: queries[first[g]] .. queries[first[g + 1] - 1] are group g. The
// queries of a group are of one kind, and of about the same length.
class ListGroups {
  public:
    std::vector<std::size_t> queries, first;

    ListGroups(const Batch& batch, const Settings& settings, const ListKernels& kernels)
        : kinds_(batch.n_queries), covered_(batch.n_queries) {
        std::size_t most = 0;
        for (std::size_t q = 0; q < batch.n_queries; ++q) {
            const std::size_t n = size(batch, q);
            kinds_[q] = n ? kind_of(batch, settings, kernels, q) : ListKind::none;
            covered_ -= n && kinds_[q] == ListKind::none;
            if (kinds_[q] != ListKind::none) most = std::max(most, n);
        }
        // at[place]: index of the first query of a kind and length, by kind, then by length
        const auto place = [&](std::size_t q) { return std::size_t(kinds_[q]) * (most + 1) + size(batch, q); };
        std::vector<std::size_t> at((std::size_t(ListKind::sums) + 1) * (most + 1) + 1);
        for (std::size_t q = 0; q < batch.n_queries; ++q)
            if (kinds_[q] != ListKind::none) ++at[place(q) + 1];
        for (std::size_t p = 1; p < at.size(); ++p) at[p] += at[p - 1];
        queries.resize(at.back());
        for (std::size_t q = 0; q < batch.n_queries; ++q)
            if (kinds_[q] != ListKind::none) queries[at[place(q)]++] = q;
        for (std::size_t i = 0; i < queries.size(); ++i)
            if (!i || i - first.back() == kernels.lanes || kinds_[queries[i]] != kinds_[queries[first.back()]])
                first.push_back(i);
        first.push_back(queries.size());
    }
    ListKind kind(std::size_t q) const { return kinds_[q]; }
    // Whether nothing is left to do for query q, or for all queries, after the groups: they are in one, or empty
    bool cover(const Batch& batch, std::size_t q) const { return kinds_[q] != ListKind::none || !size(batch, q); }
    bool cover_all() const { return covered_ == kinds_.size(); }
    std::size_t size() const { return first.size() - 1; }

  private:
    static std::size_t size(const Batch& batch, std::size_t q) {
        return std::size_t(batch.offsets[q + 1] - batch.offsets[q]);
    }

    // Depends on the query alone, so that its results do, too. A query with documents of several classes, or a gain
    // with terms, is processed alone.
    static ListKind kind_of(const Batch& batch, const Settings& settings, const ListKernels& kernels, std::size_t q) {
        const std::size_t n = size(batch, q);
        if (batch.n_terms) return ListKind::none;
        if (batch.classes && batch.n_classes > 1)
            for (std::size_t i = 1; i < n; ++i)
                if (batch.classes[batch.row(q, i)] != batch.classes[batch.row(q, 0)]) return ListKind::none;
        double high = 0, low = 0;
        if (n > longest_small_list && settings.relaxation == Relaxation::gaussian) {
            high = low = batch.scores[batch.row(q, 0)];
            for (std::size_t i = 1; i < n; ++i) {
                const double score = batch.scores[batch.row(q, i)];
                high = std::max(high, score);
                low = std::min(low, score);
            }
        }
        return kernels.list_kind(n, high - low, settings);
    }

    std::vector<ListKind> kinds_;
    std::size_t covered_;
};

// A group of queries, whose documents are sorted
struct ListGroup {
    Lists lists;
    const ListKernels& kernels;
    const std::size_t* queries;
    double *values, *slopes, *scratch;  // outputs and scratch of the functions of ListKernels

    // Derivative of the i-th document in lane l
    double slope(std::size_t l, std::size_t i) const { return slopes[i * kernels.lanes + l]; }
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

// Sorts the documents of a group of at most W queries, and calls work(group, row), where row(l, i) is the row
// of the document that is the i-th in lane l. `noise` has a function keys, which returns a number for each of W
// queries, and noise(key, i) is added to the score of the query's i-th document.
template <std::size_t W, class Noise, class Work>
void with_group(const Batch& batch, const Settings& settings, const std::size_t* given, std::size_t count,
                ListKind kind, bool normalize, const ListKernels& kernels, const Noise& noise, Workspace& w,
                Work&& work) {
    std::size_t queries[W];
    for (std::size_t l = 0; l < W; ++l) queries[l] = given[std::min(l, count - 1)];
    const GroupRows<W> rows(batch, queries);
    const std::size_t n = rows.sizes[W - 1];
    double *scores = w.lists.doubles((4 * n + 1) * W), *gains = scores + n * W, *places = gains + n * W,
           *slopes = places + n * W, *values = slopes + n * W;
    const auto keys = noise.template keys<W>(batch, queries);
    batch.scores.visit([&](const auto* x) {
        rows.each(
            [&](std::size_t i, std::size_t l) { scores[i * W + l] = double(x[rows.row(l, i)]) + noise(keys[l], i); });
    });
    if (!kernels.sort_lists(n, rows.sizes, scores, places)) throw std::invalid_argument("scores must not be NaN");
    const auto row = [&](std::size_t l, std::size_t i) { return rows.row(l, std::size_t(places[i * W + l])); };
    rows.each([&](std::size_t i, std::size_t l) { gains[i * W + l] = batch.gains[row(l, i)]; });
    const Lists lists = {kind, n, count, rows.sizes, scores, gains, batch.exponential, rows.D, normalize};
    work(ListGroup{lists, kernels, queries, values, slopes, w.scratch.doubles(kernels.lists_scratch(lists, settings))},
         row);
}

// Calls work(group, row) for every group, as with_group does
template <class Noise, class Work>
void each_group(const Batch& batch, const Settings& settings, const ListGroups& groups, int n_threads, bool normalize,
                const Noise& noise, Work&& work) {
    if (batch.offsets[batch.n_queries] < 4000) n_threads = 1;
    const std::size_t most = list_kernels_in_use().lanes, piece = (piece_of(batch) + most - 1) / most;
    in_workspaces(groups.size(), piece, n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        for (std::size_t g = from; g < to; ++g) {
            const std::size_t* queries = groups.queries.data() + groups.first[g];
            const std::size_t count = groups.first[g + 1] - groups.first[g];
            const ListKernels& kernels = list_kernels_in_use(count);
            const ListKind kind = groups.kind(queries[0]);
            if (kernels.lanes == 2)
                with_group<2>(batch, settings, queries, count, kind, normalize, kernels, noise, w, work);
            else if (kernels.lanes == 4)
                with_group<4>(batch, settings, queries, count, kind, normalize, kernels, noise, w, work);
            else
                with_group<8>(batch, settings, queries, count, kind, normalize, kernels, noise, w, work);
        }
        w.shrink();
    });
}

}  // namespace sinkprop
