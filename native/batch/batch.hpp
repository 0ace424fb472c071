// Functions that process many queries in one call: they sort the documents of each query, divide the queries among
// threads and compute ideal gains. The expected gain of a single query and its gradient are computed in kernels/.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.hpp"

namespace sinkprop {

// While an object of this class lives, functions of this file can be called in the same thread although another of them
// is running there, and waits for a function of the caller's
class NestedCall {
  public:
    NestedCall() { ++depth(); }
    ~NestedCall() { --depth(); }
    NestedCall(const NestedCall&) = delete;
    NestedCall& operator=(const NestedCall&) = delete;
    // Number of such functions that are running in this thread
    static std::size_t& depth() {
        static thread_local std::size_t value = 0;
        return value;
    }
};

// Numbers of the caller's, as float64 or float32. They are converted to doubles where they are read, and doubles are
// rounded to them where they are written.
template <class Double, class Single>
class Numbers {
  public:
    Numbers() = default;
    Numbers(Double* values) : doubles_(values) {}
    Numbers(Single* values) : singles_(values) {}
    double operator[](std::size_t i) const { return singles_ ? double(singles_[i]) : doubles_[i]; }
    void put(std::size_t i, double value) const {
        if (singles_)
            singles_[i] = Single(value);
        else
            doubles_[i] = value;
    }
    // The one of the two that is not null
    Double* doubles() const { return doubles_; }
    Single* singles() const { return singles_; }
    // Calls use(values) with the pointer that is not null: a loop in `use` does not decide again for each number
    template <class Use>
    void visit(Use&& use) const {
        if (singles_)
            use(singles_);
        else
            use(doubles_);
    }

  private:
    Double* doubles_ = nullptr;
    Single* singles_ = nullptr;
};
using Scores = Numbers<const double, const float>;
using Results = Numbers<double, float>;

// Q queries with N documents in total. The i-th document of query q is in row rows[offsets[q] + i] of the caller's
// arrays; if `rows` is null, it is in row offsets[q] + i.
struct Batch {
    // (N, width) scores of the documents. width is 1, except for partitioned measures (docs/linear-time.md 7), which
    // have 2 parameters per document in the place of a score.
    Scores scores;
    const std::int64_t* offsets;  // (Q + 1,) index of the first document of each query, followed by N
    // (N,) row of each document in the caller's arrays; null if the i-th of all N documents is in row i
    const std::int64_t* rows;
    std::size_t n_queries;  // Q, the number of queries
    // (N,) gain of each document, or its label if `exponential`; null if no gains are needed. If the gain has terms,
    // (n_attributes, N) attributes of each document.
    const double* gains;
    bool exponential;  // whether `gains` holds labels r, which have the gains 2^r - 1
    // (N,) class c of each document, which selects its weights D[c, k] of the ranks. It is null if there is only one
    // class, and always null for project().
    const std::int32_t* classes;
    const double* D;  // (n_classes, stride) D[c, k]: weight of rank k for documents of class c
    std::size_t n_classes, stride;
    // (n_terms,) terms of the gain, without `factor`. If n_terms is 0, the gain is rank-linear, and the members above
    // define it.
    const Term* terms;
    std::size_t n_terms, n_attributes, n_documents;  // n_documents: N, the distance of two attributes in `gains`

    // The row of the i-th document of query q
    std::size_t row(std::size_t q, std::size_t i) const {
        const std::size_t at = std::size_t(offsets[q]) + i;
        return rows ? std::size_t(rows[at]) : at;
    }
};

// per_query (Q,): expected gain of each query, divided by the query's ideal gain if `normalize`. A gain with terms has
// the norms of its terms instead.
// gradient (N, width): gradient of `factor` times the sum of these values with respect to the scores.
// residual (Q,): for the limit of the normalization, the largest deviation of a row or column sum from 1; can be null
void expected_gain(const Batch&, const Settings&, bool normalize, double factor, int n_threads, double* per_query,
                   Results gradient, double* residual = nullptr);

// per_query (Q,): expected gain of each query (mean over the widths), divided by the query's ideal gain if `normalize`.
// gradient (N,): derivatives of the loss with respect to the scores. The loss is the negative of the sum, over queries,
// of the query's weight times its value in per_query.
// hessian (N,): curvature of each document (see TreeLoss) times its query's weight; `least` where this is below
// `least`.
// residual (Q,): as for expected_gain, the largest of all widths
void tree_derivatives(const Batch&, const Settings&, const TreeLoss&, bool normalize, const double* query_weight,
                      float least, int n_threads, double* per_query, float* gradient, float* hessian,
                      double* residual = nullptr);

// out (N, n_classes): out[j, c] = sum_k Pi[j, k] D[c, k], where Pi[j, k] is the probability that document j has rank k
// residual (Q,): as for expected_gain
void project(const Batch&, const Settings&, int n_threads, Results out, double* residual = nullptr);

// per_query (Q,): ListNet's loss of each query over the first k ranks. The loss compares two scores of each document:
// `batch.scores` has the model's scores, and `batch.gains` the target's scores, which the model should reproduce.
// gradient (N,): gradient of the mean loss over queries with respect to the model's scores, which must be doubles.
void listnet(const Batch&, int k, int n_threads, double* per_query, double* gradient);

// Q queries with N documents in total, for a loss over pairs of documents. The i-th document of query q in decreasing
// order of labels is in row rows[offsets[q] + i] of the caller's arrays. lower[offsets[q] + i] is the position, in the
// same order, of the query's first document with a lower label, or the query's number of documents if there is none.
struct PairBatch {
    const double* scores;                        // (N,) score of each document, by row of the caller's arrays
    const std::int64_t *offsets, *rows, *lower;  // arrays of length Q + 1, N and N: see the comment on this struct
    std::size_t n_queries;
    // (N,) weight of each document, and (Q,) weight of each query; null if every weight is 1
    const double *sample_weight, *query_weight;
};

// per_query (Q,): pairwise logistic loss of each query, times the query's weight
void pairwise_loss(const PairBatch&, int n_threads, double* per_query);

// gradient and hessian (N,): first and second derivatives, with respect to each score, of the sum of the weighted
// pairwise losses of all queries
void pairwise_derivatives(const PairBatch&, int n_threads, double* gradient, double* hessian);

// 2^label - 1, for 0 <= label < 960: below 2^960 no sum of gains overflows.
inline double exponential_gain(double label) {
    const int whole = int(label);
    return label == whole && whole < 63 ? double((std::int64_t(1) << whole) - 1) : std::exp2(label) - 1;
}

// Sorts documents by decreasing score, with tied documents in the given order: writes their indices to `order` and
// their scores to `sorted`.
void sort_descending(const double* scores, std::size_t n, std::size_t* order, double* sorted);

}  // namespace sinkprop
