// The interface between the compiled kernels and the batch driver. `Kernels` is a table of functions, of which each
// instruction set has one (docs/linear-time.md 8). `Method` names the methods by which these functions multiply a
// vector by A, the matrix that Sinkhorn's normalization turns into rank probabilities (docs/linear-time.md 3.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sinkprop {

struct ForestView;

enum class Relaxation : int { gaussian, laplace, logit_logistic, probit, beta, rank_binomial };

enum class Method : int { automatic, direct, banded, cells, sums, fine_cells, dense };

// Numbers of conjugate pairs of exponentials and of terms of polynomials for the Gaussian kernel, in its fast and exact
// settings; `fine` terms are those of smaller cells
constexpr int fast_pairs = 4, exact_pairs = 8, fast_terms = 12, exact_terms = 16, fine_terms = 8;

// Number of half iterations that stands for the limit of the normalization (converged.hpp): as after two half
// iterations, there are one vector u and one vector v
constexpr int limit_half_steps = 2;

struct Settings {
    Relaxation relaxation;
    // width of the Gaussian or Laplace kernel; for a partitioned measure, the scale that all documents share, or 0 if
    // each has its own; for rank_binomial, standard deviation of the noise of every score
    double sigma;
    bool exact;  // whether sums with the Gaussian kernel use the accurate setting instead of the fast one
    // T = 2 n_iter, the number of half iterations of the Sinkhorn normalization; limit_half_steps if `tol` is above 0
    int half_steps;
    // If `tol` is above 0, the limit of the normalization is computed: up to row and column sums that are at most `tol`
    // from 1, with at most `max_iter` products.
    double tol;
    int max_iter;
    double epsilon;  // added to every entry of the matrix A that is normalized
    Method method;   // `automatic`, or the method that is used for every query that it can handle
    bool lists;      // whether short queries are processed together (lists.hpp)
    // Coefficients that cell_tables.hpp computes. cells: for polynomials of 16 terms if `exact`, otherwise of 12 terms.
    // fine_cells: for polynomials of 8 terms, which are used for long lists if `exact` is false.
    const double *cells, *fine_cells;
    bool smoothed() const { return relaxation <= Relaxation::laplace; }
    bool partitioned() const { return !smoothed() && relaxation <= Relaxation::beta; }
    // Whether the documents have one score each, and a scale in common, from which their parameters follow
    // (shared_scale.hpp)
    bool shared_scale() const { return partitioned() && sigma > 0; }
    std::size_t width() const { return partitioned() && !shared_scale() ? 2 : 1; }
};

// The function of a term of a gain (terms.hpp, docs/beyond-rank-linear.md). The statistics of `target`, `gap` and `row`
// are the exposures of documents, those of the other forms what is expected at each rank. `column` and `row` call a
// function of the caller's.
enum class Form : int { linear, precisions, cascade, target, gap, column, row };

// What a term's value is divided by, for each query (batch/ideal.hpp): nothing, the value of the best ranking, an
// affine function of the sum of the attribute, the value of a greedy ranking, or a multiple of the number of intents
enum class Norm : int { none, ideal, count, greedy, intents };

// A term of a gain. The gain of a query is the sum of its terms.
struct Term {
    Form form;
    Norm norm;
    std::size_t first, count;  // index of the first attribute, and number of attributes
    const double* D;           // discounts of the ranks; those of attribute c begin at D + c * step
    std::size_t step;
    double weight, alpha;
    double c0, c1;  // parameters of the norm
    // Value of the caller's function, for the forms `column` and `row`. S (products, n) has the statistics, a (count,
    // n) the attributes of the documents in order of their scores. The function writes its derivatives to S_bar, which
    // has the shape of S.
    double (*function)(void* context, const double* S, const double* a, std::size_t n, std::size_t count,
                       double* S_bar);
    void* context;
    double factor;  // weight divided by the query's norm
    bool of_rows() const { return form == Form::target || form == Form::gap || form == Form::row; }
    std::size_t products() const { return of_rows() ? 1 : count; }
    const double* discount(std::size_t c) const { return D + c * step; }
};

// One query of n documents. Where a comment gives (rows) as the first dimension of an array, the array belongs to the
// caller, and the query's i-th document is in its row rows[i].
struct Query {
    std::size_t n;
    // (n,) scores in decreasing order; for a partitioned measure, (n,) scores or (n, 2) parameters of each document, in
    // any order
    const double* scores;
    const std::size_t* rows;  // (n,) row of each document in the caller's arrays
    // (n,) gain of each document, not yet divided by `ideal`; with terms, (attributes, n) attributes of each document
    const double* gains;
    double ideal;
    const std::int32_t* classes;  // (n,) index of each document's class in `present`; read only if n_classes > 1
    const double* D;              // (all classes, stride) D[c, k]: weight of rank k for documents of class c
    // (n_classes,) the classes of documents that occur in the query, each as the index of its row of D
    const std::size_t* present;
    std::size_t n_classes, stride;
    const Term* terms;                // (n_terms,) terms of the gain; if n_terms is 0, the gain is rank-linear
    std::size_t n_terms, n_products;  // n_products: number of statistics of all terms
    // If not null, where to note the largest deviation of a row or column sum of Pi from 1, for the limit
    double* residual;
    const double* discount(std::size_t c) const { return D + present[c] * stride; }
};

// The n ties of a query, in decreasing order of their scores. A tie is the set of all documents with one score
// (ties.hpp).
struct Ties {
    std::size_t n, n_classes;
    const double *scores, *count;  // (n,) score of each tie, and number of its documents
    const std::size_t* first;  // (n + 1,) index of the first document of each tie, followed by that of all documents
    // (n_classes, n) for each class and tie: sum of the gains of the tie's documents of this class, divided by the
    // number of all documents of the tie
    const double* gains;
    const double* D;  // (n_classes, n) for each class and tie: mean of the class's discounts over the tie's ranks
    // (n_classes, n) for each class and tie: mean, over all pairs of the tie's ranks, of the upper rank's discount
    // minus the lower rank's
    const double* spread;
    double* residual;  // as in Query
};

// How a query is processed as one of several lists (list_sums.hpp), or that it is processed alone. Queries of one kind
// can be processed together.
enum class ListKind : int { none, sweeps, matrix, polynomials, sums };
// Number of documents up to which the kind does not depend on the scores
constexpr std::size_t longest_small_list = 24;

// Short queries that are processed together, one in each lane of a register (lists.hpp), each with documents of one
// class. Lanes without a query repeat the last one. In an array (n, lanes), the i-th document of the query in lane l is
// element i * lanes + l.
struct Lists {
    ListKind kind;
    std::size_t n, count;      // number of documents of the longest query; number of queries
    const std::size_t* sizes;  // (lanes,) number of documents of each query, at least 1
    const double* scores;      // (n, lanes) in decreasing order, as arrange_lists leaves them
    // (n, lanes) gains in the order of the scores, not yet divided by the ideal gain; if `exponential`, labels r, which
    // have the gains 2^r - 1
    const double* gains;
    bool exponential;
    const double* const* D;  // (lanes,) pointers to the (n,) weights of the ranks of each query
    // (lanes,) pointers to the (n + 1,) sums of the weights of the first ranks, from 0 ranks on; null if the gains are
    // not divided by the ideal gain
    const double* const* D_sums;
};

// The same queries with their documents in the order in which they were given
struct GivenLists {
    std::size_t n;
    const std::size_t* sizes;
    const double *const *scores, *const *gains;  // (lanes,) pointers to those of each query
    double noise;                                // factor of the noise (noise.hpp) that is added to the scores
    const std::uint64_t* noise_keys;             // (lanes,) first_noise_key of each query; not read without noise
};

// The keys by which lists are sorted hold the place of a document in their lowest bits: last_place for place 0, and one
// less for each further place. So documents with the same score keep their order.
constexpr std::size_t last_place = 0xFF;
static inline std::size_t place_of(double key) {
    std::uint64_t bits;
    std::memcpy(&bits, &key, sizeof bits);
    return last_place - (bits & last_place);
}

// The loss of boosted trees: the negative of the expected gain, which is computed for several widths of the Laplace
// kernel exp(-|difference of two scores| / width) and averaged over them. The loss's derivatives are averaged over all
// orders of tied documents (ties.hpp). The curvature of a document, which takes the place of a second derivative, is
// (1 - blend) * |d| + blend * (mean of |d| over the query), where d is a document's derivative.
struct TreeLoss {
    const double* widths;  // (n_widths,) widths of the Laplace kernel
    std::size_t n_widths;
    double blend;
    double noise;  // standard deviation of the noise that is added to every score; 0 for none
    // seed of the noise; the noise also depends on the query's index and on all scores of the query
    std::uint64_t seed;
};

// The method that is used for a query, and the size of the scratch memory that the method needs
struct Plan {
    Method method;
    std::size_t extent;   // for the method `banded`, width of the band; for `cells` and `fine_cells`, number of cells
    std::size_t scratch;  // number of doubles of scratch memory
};

// One query for a loss over pairs of documents, in decreasing order of their labels. The scores and weights of the n
// documents are followed by `slack` more entries of weight 0, so that a whole register of elements can be loaded from
// any document on.
struct PairQuery {
    static constexpr std::size_t slack = 8;
    std::size_t n;
    const double *scores, *weight;  // (n + slack,) score and weight of each document, then `slack` entries of weight 0
    const std::int64_t* lower;      // (n,) index of the first document with a lower label; n if there is none
};

// What became of scores that were to be sorted: they are sorted; or one of them is NaN; or they are left to a sort that
// compares them, because most of them are too close for the distance between the others
enum class Sorting : int { done, not_numbers, left };

struct Kernels {
    const char* name;
    // Writes the numbers 0 .. n - 1 to `order` by decreasing score, with ties in increasing order, and the scores in
    // this order to `sorted`. The scratch has sort_scratch(n) doubles. n is at least 1.
    Sorting (*sort_scores)(const double* scores, std::size_t n, double* scratch, std::size_t* order, double* sorted);
    Plan (*plan)(const Query&, const Settings&);
    // Returns the expected gain. Writes `factor` times its gradient with respect to the scores to `gradient`, whose
    // shape is (rows, width).
    double (*expected_gain)(const Query&, const Settings&, const Plan&, double factor, double* scratch,
                            double* gradient);
    // Returns the expected gain under the Laplace kernel. Its derivative with respect to the score of a document is a
    // linear function of the document's gain. Adds `factor` times the sum of the derivatives of each tie's documents to
    // total (n,), and `factor` times the slope of the linear function to own (n_classes, n). The scratch has
    // tied_scratch() doubles.
    double (*tied_gain)(const Ties&, const Settings&, double factor, double* scratch, double* total, double* own);
    std::size_t (*tied_scratch)(const Ties&, const Settings&);
    // The same for a gain with terms, except that the parts of the documents' derivatives that are their own are added
    // to own (query.n,)
    double (*tied_terms)(const Query&, const Ties&, const Settings&, double factor, double* scratch, double* total,
                         double* own);
    std::size_t (*tied_terms_scratch)(const Query&, const Ties&, const Settings&);
    // out (rows, n_classes): out[j, c] = sum_k Pi[j, k] D[c, k], where Pi[j, k] is the probability that document j has
    // rank k. The query's gains and classes are not read.
    void (*project)(const Query&, const Settings&, const Plan&, double* scratch, double* out);
    // Returns ListNet's loss over the first k ranks, for n documents with model scores z and target scores y. Writes
    // `scale` times its gradient with respect to z to gradient (n,). The scratch has listnet_scratch(n, k) doubles.
    double (*listnet)(const double* z, const double* y, std::size_t n, int k, double scale, double* scratch,
                      double* gradient);
    double (*pairwise_loss)(const PairQuery&);
    void (*pairwise_derivatives)(const PairQuery&, double* scratch, double* gradient, double* hessian);
    // The members from here on are the functions of row_sums.hpp: products of rows of features with weights, and sums
    // that are held in integer words
    void (*row_scores)(const double* X, std::size_t n, std::size_t d, const double* V, std::size_t k, double* out);
    void (*row_scores_single)(const float* X, std::size_t n, std::size_t d, const double* V, std::size_t k,
                              double* out);
    bool (*add_products)(const double* X, std::size_t d, const double* g, std::size_t k, const std::int64_t* offsets,
                         std::size_t n_queries, const double* scale, double* sums, std::int64_t* words);
    bool (*add_products_single)(const float* X, std::size_t d, const double* g, std::size_t k,
                                const std::int64_t* offsets, std::size_t n_queries, const double* scale, double* sums,
                                std::int64_t* words);
    bool (*add_rows)(const double* values, std::size_t n, const double* scale, std::size_t m, std::int64_t* words);
    // Adds the terms of some pieces of Glynn's formula for the permanent of A (n, n) to sum[0] + sum[1] (glynn.hpp)
    void (*glynn)(const double* A, std::size_t n, std::uint64_t first, std::uint64_t last, double* sum);
    // out (n,): start plus the leaves of each row of X, in the order of the trees (trees/forest_view.hpp). The scratch
    // has trees_scratch() bytes.
    void (*score_trees)(const ForestView&, const double* X, std::size_t n, double start, std::int8_t* scratch,
                        double* out);
    void (*score_trees_single)(const ForestView&, const float* X, std::size_t n, double start, std::int8_t* scratch,
                               double* out);
};

// Functions that process several short queries at once (lists.cpp), at most `most_lanes`
constexpr std::size_t most_lanes = 16;
struct ListKernels {
    std::size_t lanes;  // number of queries that are processed together
    // The kind of a query of n documents of one class. `spread` is the largest score less the smallest.
    ListKind (*list_kind)(std::size_t n, double spread, const Settings&);
    // Sorts the documents by decreasing score: writes their scores and gains to scores and gains (n, lanes), and
    // numbers of which place_of is the place that each had to keys (n, lanes). Returns whether no score is NaN. The
    // scratch has lists_scratch() doubles here and below.
    bool (*arrange_lists)(const GivenLists&, double* scratch, double* scores, double* gains, double* keys);
    // Writes the expected gain of each query to values (lanes,), and `factor` times the derivatives with respect to the
    // scores, in their order, to slopes (n, lanes)
    void (*lists_gain)(const Lists&, const Settings&, double factor, double* scratch, double* values, double* slopes);
    // Writes the negative loss of each query to values (lanes,). Writes the loss's derivatives and their curvatures,
    // each times the query's weight, to slopes and curvatures (n, lanes).
    void (*tree_lists)(const Lists&, const Settings&, const TreeLoss&, const double* weights, double* scratch,
                       double* values, double* slopes, double* curvatures);
    std::size_t (*lists_scratch)(std::size_t n, ListKind, const Settings&);
};

// Number of bits of the numbers below n
constexpr int bits_below(std::size_t n) {
    int bits = 0;
    while (bits < 63 && n > std::size_t(1) << bits) ++bits;
    return bits;
}

// Constants of sorting.hpp: number of bits that choose a bucket at most, number of times that the keys of a bucket are
// distributed over further buckets, and spare elements of its arrays
constexpr int widest_sort = 14;
constexpr std::size_t sort_depth = 6, sort_slack = 32;
constexpr std::size_t sort_scratch(std::size_t n) {
    const int width = bits_below(n) < widest_sort ? bits_below(n) : widest_sort;
    return 2 * n + sort_slack + 8 + (sort_depth + 1) * ((std::size_t(1) << width) / 2 + 1);
}

constexpr std::size_t trees_scratch(std::size_t n_columns) {
    return 64 * (n_columns + 1);
}

// Sizes of the matrices that `glynn` takes, and the numbers of its steps and pieces
constexpr std::size_t glynn_least = 8, glynn_most = 40;
constexpr std::size_t glynn_steps(std::size_t n) {
    return n - glynn_least < 7 ? n - glynn_least : 7;
}
constexpr std::uint64_t glynn_pieces(std::size_t n) {
    return std::uint64_t(1) << (n - glynn_least - glynn_steps(n));
}

constexpr std::size_t listnet_scratch(std::size_t n, int k) {
    return 4 * ((n + 7) / 8 * 8) + (k > 2 ? std::size_t(k) * n : 0);
}

// Prefetches values[rows[i]], since the rows of a long sorted query are scattered over the caller's arrays. The
// function is internal to each translation unit, like all code that is compiled for several instruction sets.
static inline void prefetch(const double* values, const std::size_t* rows, std::size_t i, std::size_t n) {
#if defined(__GNUC__)
    if (i < n) __builtin_prefetch(values + rows[i]);
#else
    (void)values, (void)rows, (void)i, (void)n;
#endif
}

namespace baseline {
extern const Kernels kernels;
extern const ListKernels list_kernels;
}  // namespace baseline
#if SINKPROP_X86
namespace avx2_narrow {  // registers of two lanes
extern const ListKernels list_kernels;
}
namespace avx2_paired {  // pairs of registers, for lists of the kind `sweeps` alone
extern const ListKernels list_kernels;
}
namespace avx2 {
extern const Kernels kernels;
extern const ListKernels list_kernels;
}  // namespace avx2
namespace avx512_paired {
extern const ListKernels list_kernels;
}
namespace avx512 {
extern const Kernels kernels;
extern const ListKernels list_kernels;
}  // namespace avx512
#endif

}  // namespace sinkprop
