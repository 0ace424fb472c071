// Many queries in one call: grouping, sorting, threads, the ideal gain. No mathematics of the relaxations here.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.hpp"

namespace sinkprop {

// Row indices and query boundaries; `rows` is null where the queries are consecutive in the caller's arrays.
struct Batch {
    const double* scores;         // (N, width)
    const std::int64_t* offsets;  // (Q + 1,)
    const std::int64_t* rows;     // (N,) or null
    std::size_t n_queries;
    const double* gains;          // (N,) g_j, or labels r_j where g = 2^r - 1; null for a projection
    bool exponential;             // whether they are labels
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

// What trees are grown on. The expected gain is a mean over widths of the Laplace kernel, tied documents count as a
// mean over their orders (ties.hpp), and a document's curvature is the absolute value of its derivative, of which a
// part `blend` is taken as the mean over the query.
struct TreeLoss {
    const double* widths;  // (n_widths,)
    std::size_t n_widths;
    double blend;
    double noise;  // standard deviation of what is added to every score, anew for other scores
    std::uint64_t seed;
};

// per_query as above; gradient and hessian (N,): the derivative of minus the sum over queries of weight times gain, and
// the curvature, not below `least`
void tree_derivatives(const Batch&, const Settings&, const TreeLoss&, bool normalize, const double* query_weight,
                      float least, int n_threads, double* per_query, float* gradient, float* hessian);

// out (N, n_classes) = sum_k Pi[j, k] D[c, k]
void project(const Batch&, const Settings&, int n_threads, double* out);

// per_query (Q,): ListNet's loss of the first k places of each query, whose target has the scores `batch.gains`;
// gradient (N,) of their mean.
void listnet(const Batch&, int k, int n_threads, double* per_query, double* gradient);

// Queries for a loss of pairs: document i of query q is rows[offsets[q] + i], in decreasing order of the labels, and
// lower[offsets[q] + i] counts from the query's first document.
struct PairBatch {
    const double* scores;                        // (N,)
    const std::int64_t *offsets, *rows, *lower;  // (Q + 1,), (N,), (N,)
    std::size_t n_queries;
    const double *sample_weight, *query_weight;  // (N,), (Q,) or null: each weight is 1
};

// per_query (Q,) the pairwise logistic loss of each query times its weight
void pairwise_loss(const PairBatch&, int n_threads, double* per_query);

// gradient and hessian (N,): the derivatives of the sum over queries by each score, and the second ones
void pairwise_derivatives(const PairBatch&, int n_threads, double* gradient, double* hessian);

// 2^label - 1, for 0 <= label < 960: below 2^960 no sum of gains overflows.
inline double exponential_gain(double label) {
    const int whole = int(label);
    return label == whole && whole < 63 ? double((std::int64_t(1) << whole) - 1) : std::exp2(label) - 1;
}

// Documents by decreasing score, ties in the given order; `sorted` receives the scores.
void sort_descending(const double* scores, std::size_t n, std::size_t* order, double* sorted);

}  // namespace sinkprop
