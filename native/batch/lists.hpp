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

// The queries of a batch that are processed in groups: queries[first[g]] .. queries[first[g + 1] - 1] are group g. The
// queries of a group are of one kind, and of about the same length.
class ListGroups {
  public:
    std::vector<std::size_t> queries, first;

    ListGroups(const Batch& batch, const Settings& settings, bool normalize)
        : kinds_(batch.n_queries), covered_(batch.n_queries) {
        const ListKernels& kernels = list_kernels_in_use(ListKind::none, 0);
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
        for (std::size_t i = 0; i < queries.size(); ++i) {
            const ListKind kind = kinds_[queries[i]];
            if (!i || kind != kinds_[queries[first.back()]] ||
                i - first.back() >= list_kernels_in_use(kind, size(batch, queries[i])).lanes)
                first.push_back(i);
        }
        first.push_back(queries.size());
        if (!normalize) return;
        length_ = most + 1;
        D_sums_.resize(batch.n_classes * length_);
        for (std::size_t c = 0; c < batch.n_classes; ++c)
            for (std::size_t k = 0; k < most; ++k)
                D_sums_[c * length_ + k + 1] = D_sums_[c * length_ + k] + batch.D[c * batch.stride + k];
    }
    // Sums of the weights of the first ranks for a class, from 0 ranks on; null if the gains are not to be normalized
    const double* D_sums(std::size_t c) const { return D_sums_.empty() ? nullptr : D_sums_.data() + c * length_; }
    ListKind kind(std::size_t q) const { return kinds_[q]; }
    // The functions that process group g
    const ListKernels& kernels(const Batch& batch, std::size_t g) const {
        const std::size_t last = queries[first[g + 1] - 1];
        return list_kernels_in_use(kinds_[last], size(batch, last), first[g + 1] - first[g]);
    }
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
    std::size_t covered_, length_ = 0;
    std::vector<double> D_sums_;
};

// A group of queries, whose documents are sorted
class ListGroup {
  public:
    const ListKernels& kernels;
    Lists lists;
    const std::size_t* queries;                      // (lists.count,) index of each query in the batch
    double *values, *slopes, *curvatures, *scratch;  // outputs and scratch of the functions of ListKernels

    template <class Noise>
    ListGroup(const Batch& batch, const Settings& settings, const ListGroups& groups, std::size_t g, const Noise& noise,
              Workspace& w)
        : kernels(groups.kernels(batch, g)), queries(groups.queries.data() + groups.first[g]), batch_(batch) {
        const std::size_t count = groups.first[g + 1] - groups.first[g], lanes = kernels.lanes;
        std::uint64_t keys[most_lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            const std::size_t q = queries[std::min(l, count - 1)];
            sizes_[l] = std::size_t(batch.offsets[q + 1] - batch.offsets[q]);
            const std::size_t c = batch.classes ? std::size_t(batch.classes[batch.row(q, 0)]) : 0;
            D_[l] = batch.D + c * batch.stride;
            D_sums_[l] = groups.D_sums(c);
            keys[l] = noise.first_key(q);
        }
        const std::size_t n = sizes_[lanes - 1];  // the sizes increase with the lane
        const ListKind kind = groups.kind(queries[0]);
        double *scores = w.lists.doubles((5 * n + 1) * lanes), *gains = scores + n * lanes, *copies = gains + n * lanes;
        slopes = copies;  // the copies are not read any more when the slopes and curvatures are computed
        curvatures = slopes + n * lanes;
        keys_ = curvatures + n * lanes;
        values = keys_ + n * lanes;
        scratch = w.scratch.doubles(kernels.lists_scratch(n, kind, settings));
        const double *given_scores[most_lanes], *given_gains[most_lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            const std::size_t q = queries[std::min(l, count - 1)];
            given_scores[l] = in_one_piece(batch.scores, q, sizes_[l], copies + l * n);
            given_gains[l] = in_one_piece(Scores(batch.gains), q, sizes_[l], copies + (lanes + l) * n);
        }
        if (!kernels.arrange_lists({n, sizes_, given_scores, given_gains, noise.factor(), keys}, scratch, scores, gains,
                                   keys_))
            throw std::invalid_argument("scores must not be NaN");
        lists = {kind, n, count, sizes_, scores, gains, batch.exponential, D_, D_sums_[0] ? D_sums_ : nullptr};
    }
    ListGroup(const ListGroup&) = delete;
    ListGroup& operator=(const ListGroup&) = delete;

    // Calls use(at, row) for every document of the query in lane l: its results are the elements `at` of the outputs,
    // and belong to a row of the caller's arrays
    template <class Use>
    void each_document(std::size_t l, Use&& use) const {
        const std::size_t begin = std::size_t(batch_.offsets[queries[l]]), end = sizes_[l] * kernels.lanes;
        if (const std::int64_t* rows = batch_.rows)
            for (std::size_t at = l; at < end; at += kernels.lanes)
                use(at, std::size_t(rows[begin + place_of(keys_[at])]));
        else
            for (std::size_t at = l; at < end; at += kernels.lanes) use(at, begin + place_of(keys_[at]));
    }

  private:
    // Numbers of the n documents of query q, one behind the other: where they are, or copied to `space`
    const double* in_one_piece(const Scores& numbers, std::size_t q, std::size_t n, double* space) const {
        if (numbers.doubles() && !batch_.rows) return numbers.doubles() + batch_.offsets[q];
        numbers.visit([&](const auto* x) {
            for (std::size_t i = 0; i < n; ++i) space[i] = double(x[batch_.row(q, i)]);
        });
        return space;
    }

    const Batch& batch_;
    std::size_t sizes_[most_lanes];
    const double *D_[most_lanes], *D_sums_[most_lanes];
    double* keys_;
};

// Calls work(group) for every group. Noise is added to the scores before they are sorted.
template <class Noise, class Work>
void each_group(const Batch& batch, const Settings& settings, const ListGroups& groups, int n_threads,
                const Noise& noise, Work&& work) {
    if (batch.offsets[batch.n_queries] < 4000) n_threads = 1;
    // groups with the same number of documents as piece_of's queries
    const std::size_t per_group = groups.size() ? groups.queries.size() / groups.size() : 1,
                      piece = (piece_of(batch) + per_group - 1) / per_group;
    in_workspaces(groups.size(), piece, n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        for (std::size_t g = from; g < to; ++g) work(ListGroup(batch, settings, groups, g, noise, w));
        w.shrink();
    });
}

}  // namespace sinkprop
