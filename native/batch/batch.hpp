// Many queries in one call: grouping, sorting, threads, the ideal gain. No mathematics of the relaxations here.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.hpp"

namespace sinkprop {

// Row indices and query boundaries; `rows` is null if the queries are consecutive in the caller's arrays.
struct Batch {
    const double* scores;         // (N, width)
    const std::int64_t* offsets;  // (Q + 1,)
    const std::int64_t* rows;     // (N,) or null
    std::size_t n_queries;
    const double* gains;          // (N,) g_j, or labels r_j where g = 2^r - 1; null for a projection
    bool exponential;             // whether `gains` holds labels
    const std::int32_t* classes;  // (N,) or null
    const double* D;              // (n_classes, stride)
    std::size_t n_classes, stride;

    // The row of the i-th document of query q
    std::size_t row(std::size_t q, std::size_t i) const {
        const std::size_t at = std::size_t(offsets[q]) + i;
        return rows ? std::size_t(rows[at]) : at;
    }
};

// per_query (Q,): the expected gain of each query, divided by its ideal if `normalize`; gradient (N, width) of `factor`
// times their sum.
void expected_gain(const Batch&, const Settings&, bool normalize, double factor, int n_threads, double* per_query,
                   double* gradient);

// The loss of boosted trees. The expected gain is the mean over widths of the Laplace kernel, and its derivative is the
// mean over the orders of tied documents (ties.hpp). A document's curvature is the absolute value of its derivative; a
// share `blend` of it is replaced by the mean over the query.
struct TreeLoss {
    const double* widths;  // (n_widths,)
    std::size_t n_widths;
    double blend;
    double noise;  // standard deviation of the noise on every score, which is another for other scores
    std::uint64_t seed;
};

// per_query as above; gradient and hessian (N,): the derivative of minus the sum over queries of weight times gain, and
// the curvature, not below `least`
void tree_derivatives(const Batch&, const Settings&, const TreeLoss&, bool normalize, const double* query_weight,
                      float least, int n_threads, double* per_query, float* gradient, float* hessian);

// out (N, n_classes) = sum_k Pi[j, k] D[c, k]
void project(const Batch&, const Settings&, int n_threads, double* out);

// per_query (Q,): ListNet's loss over the first k places of each query; `batch.gains` are the scores of the target.
// gradient (N,): that of the mean over queries.
void listnet(const Batch&, int k, int n_threads, double* per_query, double* gradient);

// Queries for a loss of pairs: document i of query q is rows[offsets[q] + i], in decreasing order of the labels, and
// lower[offsets[q] + i] counts from the query's first document.
struct PairBatch {
    const double* scores;                        // (N,)
    const std::int64_t *offsets, *rows, *lower;  // (Q + 1,), (N,), (N,)
    std::size_t n_queries;
    const double *sample_weight, *query_weight;  // (N,), (Q,), or null if every weight is 1
};

// per_query (Q,) the pairwise logistic loss of each query times its weight
void pairwise_loss(const PairBatch&, int n_threads, double* per_query);

// gradient and hessian (N,): first and second derivatives of the sum over queries with respect to each score
void pairwise_derivatives(const PairBatch&, int n_threads, double* gradient, double* hessian);

// 2^label - 1, for 0 <= label < 960: below 2^960 no sum of gains overflows.
inline double exponential_gain(double label) {
    const int whole = int(label);
    return label == whole && whole < 63 ? double((std::int64_t(1) << whole) - 1) : std::exp2(label) - 1;
}

// Documents by decreasing score, ties in the given order; `sorted` receives the scores.
void sort_descending(const double* scores, std::size_t n, std::size_t* order, double* sorted);

}  // namespace sinkprop
