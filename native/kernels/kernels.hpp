// The interface between compiled kernels and the batch driver: one table of functions per instruction set
// (docs/linear-time.md 8), and the methods among which the kernels choose (docs/linear-time.md 3.4).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinkprop {

enum class Relaxation : int { gaussian, laplace, logit_logistic, probit, beta, rank_binomial };

enum class Method : int { automatic, direct, banded, cells, sums, fine_cells, dense };

struct Settings {
    Relaxation relaxation;
    double sigma;    // width of the smoothed indicator, or of the rank-binomial distribution's noise
    bool exact;      // the accurate setting of the Gaussian sums
    int half_steps;  // T = 2 n_iter
    double epsilon;  // added to every entry of A
    Method method;   // automatic, or the one to use if it is possible
    const double *cells,
        *fine_cells;  // cell tables: that of the setting, and one of eight terms for long lists in the fast setting
    bool smoothed() const { return relaxation <= Relaxation::laplace; }
    bool partitioned() const { return !smoothed() && relaxation <= Relaxation::beta; }
    std::size_t width() const { return partitioned() ? 2 : 1; }
};

// One query. Arrays marked (rows) belong to the caller; they are read and written at rows[i] for the query's i-th
// document.
struct Query {
    std::size_t n;
    const double* scores;     // (n,) in decreasing order, or (n, 2) for a partitioned measure
    const std::size_t* rows;  // (n,)
    const double* gains;      // (n,) g_j, times the ideal
    double ideal;
    const std::int32_t* classes;  // (n,) number of the document's class among those present; null if there is one class
    const double* D;              // (all classes, stride) weight of rank k
    const std::size_t* present;   // (n_classes,) rows of D
    std::size_t n_classes, stride;
    const double* discount(std::size_t c) const { return D + present[c] * stride; }
};

// The ties of a query, in decreasing order of their scores. A tie is all documents with the same score (ties.hpp).
struct Ties {
    std::size_t n, n_classes;
    const double *scores, *count;  // (n,)
    const double* gains;           // (n_classes, n) sum of the gains of the class's documents, over the tie's count
    const double* D;               // (n_classes, n) mean discount of the tie's ranks
    const double* spread;  // (n_classes, n) mean difference of the discounts of two of its ranks, upper less lower
};

// The plan by which a query is computed
struct Plan {
    Method method;
    std::size_t extent;   // width of the band, or number of cells
    std::size_t scratch;  // doubles
};

// One query for a loss over pairs, its documents in decreasing order of their labels. Scores and weights are followed
// by `slack` more entries, with weight 0, so that a vector can be read from any document on.
struct PairQuery {
    static constexpr std::size_t slack = 8;
    std::size_t n;
    const double *scores, *weight;  // (n + slack)
    const std::int64_t* lower;      // (n,) the first document with a lower label; n if there is none
};

struct Kernels {
    const char* name;
    Plan (*plan)(const Query&, const Settings&);
    // The value; gradient (rows, width) = factor * its gradient.
    double (*expected_gain)(const Query&, const Settings&, const Plan&, double factor, double* scratch,
                            double* gradient);
    // The value under the Laplace kernel. Adds factor * the sum of the derivatives of a tie's documents to total (n,),
    // and factor * the slope of a document's derivative in its gain to own (n_classes, n). Takes tied_scratch doubles.
    double (*tied_gain)(const Ties&, const Settings&, double factor, double* scratch, double* total, double* own);
    std::size_t (*tied_scratch)(const Ties&, const Settings&);
    // out (rows, n_classes) = sum_k Pi[j, k] D[c, k]; gains and classes are not read.
    void (*project)(const Query&, const Settings&, const Plan&, double* scratch, double* out);
    // ListNet's loss over the first k places, for n documents with model scores z and target scores y; gradient (n,) =
    // scale * its gradient with respect to z. Takes listnet_scratch(n, k) doubles.
    double (*listnet)(const double* z, const double* y, std::size_t n, int k, double scale, double* scratch,
                      double* gradient);
    double (*pairwise_loss)(const PairQuery&);
    void (*pairwise_derivatives)(const PairQuery&, double* scratch, double* gradient, double* hessian);
    // Products with rows of features, and sums in integer words: see row_sums.hpp
    void (*row_scores)(const double* X, std::size_t n, std::size_t d, const double* V, std::size_t k, double* out);
    void (*row_scores_single)(const float* X, std::size_t n, std::size_t d, const double* V, std::size_t k,
                              double* out);
    bool (*add_products)(const double* X, std::size_t d, const double* g, std::size_t k, const std::int64_t* offsets,
                         std::size_t n_queries, const double* scale, double* sums, std::int64_t* words);
    bool (*add_products_single)(const float* X, std::size_t d, const double* g, std::size_t k,
                                const std::int64_t* offsets, std::size_t n_queries, const double* scale, double* sums,
                                std::int64_t* words);
    bool (*add_rows)(const double* values, std::size_t n, const double* scale, std::size_t m, std::int64_t* words);
};

constexpr std::size_t listnet_scratch(std::size_t n, int k) {
    return 4 * ((n + 7) / 8 * 8) + (k > 2 ? std::size_t(k) * n : 0);
}

// The rows of a long sorted query are scattered over the caller's arrays: prefetches the i-th before it is needed.
// Internal to each translation unit, like all code that is compiled for several instruction sets.
static inline void prefetch(const double* values, const std::size_t* rows, std::size_t i, std::size_t n) {
#if defined(__GNUC__)
    if (i < n) __builtin_prefetch(values + rows[i]);
#else
    (void)values, (void)rows, (void)i, (void)n;
#endif
}

namespace baseline {
extern const Kernels kernels;
}
#if SINKPROP_X86
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
#endif

}  // namespace sinkprop
