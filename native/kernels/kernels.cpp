// The kernels of one instruction set. This file is compiled once per instruction set, which SINKPROP_ISA names.
#include "kernels.hpp"

#include "cell_sums.hpp"
#include "converged.hpp"
#include "exponential_sums.hpp"
#include "glynn.hpp"
#include "listnet.hpp"
#include "matrix_sums.hpp"
#include "pairwise.hpp"
#include "partitioned.hpp"
#include "rank_binomial.hpp"
#include "row_sums.hpp"
#include "shared_scale.hpp"
#include "shared_sums.hpp"
#include "sorting.hpp"
#include "terms.hpp"
#include "ties.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {
namespace {

#define SINKPROP_STRING_(x) #x
#define SINKPROP_STRING(x) SINKPROP_STRING_(x)

// Numbers of documents from which on, and of pairs of cells up to which, shared_sums.hpp is used
constexpr std::size_t least_by_sums = 300, most_pairs = 4096;

// Limits that decide which operator multiplies by the matrix of a query with the Gaussian kernel. The fastest operator
// that is accurate enough is chosen (times: benchmarks/crossover.py). Sums of exponentials have the same small error at
// every distance of two scores. In a short or sparse list, whose gradients may be nearly 0, this error would be
// visible. For such a list, the entries of the matrix are stored: all of them, or a band along the diagonal.
struct Limits {
    // number of documents up to which storing all entries of the matrix is preferred to cells (intervals of scores, see
    // cell_sums.hpp)
    std::size_t direct;
    // number of documents up to which the matrix is stored if neither cells nor a band can be used
    std::size_t direct_at_worst;
    std::size_t band;  // for more than `direct_at_worst` documents: widest band along the diagonal that is stored
    // Cells (see cell_sums.hpp) can be made smaller, so that polynomials of fewer terms (fine_terms) suffice. This is
    // done if the cells have at least `fine` documents on average, because it is faster then. If `fine` is 0, it is
    // never done.
    std::size_t fine;
    std::size_t band_for(std::size_t n) const { return n <= direct ? n / 8 : n <= direct_at_worst ? n / 4 : band; }
};
constexpr Limits fast_limits = {24, 48, 12, 200}, exact_limits = {32, 64, 24, 0};
constexpr std::size_t direct_up_to_laplace = 9;

// Number of half iterations for which an operator of the query must remember products: T, and one more for each
// statistic of a gain with terms after the first
int remembered(const Query& query, const Settings& s) {
    return s.half_steps + (query.n_products > 1 ? int(query.n_products - 1) : 0);
}

// Writes `factor` times the gradient with respect to the sorted scores to the query's rows of `gradient`. `slope` has
// the gradient in the order of the operator's vectors, times the operator's unit; it is overwritten.
template <class Operator>
void write_gradient(const Operator& A, const Query& query, double factor, double* slope, double* gradient) {
    for (std::size_t i = 0; i < A.size; i += W)
        (Lanes::all(factor) * load(slope, i) / Lanes::all(A.unit)).store(slope + i);
    A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA {
        prefetch(gradient, query.rows, i + 16, query.n);
        gradient[query.rows[i]] = slope[slot];
    });
}

// Returns the expected gain of a query, computed with the operator A, and writes `factor` times its gradient to the
// query's rows of `gradient`. `space` is scratch: it holds copies of the gains, discounts and classes, padded and
// ordered like the operator's vectors, and the vectors of the computation.
template <class Operator>
double smoothed_gain(const Operator& A, const Query& query, const Settings& s, double factor, double* space,
                     double* gradient) {
    const std::size_t N = A.size, C = query.n_classes;
    double *g = space, *D = g + N, *slope = D + C * N, *scratch = slope + (C > 1 ? 2 : 1) * N;
    std::int32_t* classes = reinterpret_cast<std::int32_t*>(slope + N);
    A.each_padding([&](std::size_t slot) SINKPROP_LAMBDA {
        g[slot] = 0;
        for (std::size_t c = 0; c < C; ++c) D[c * N + slot] = 0;
        if (C > 1) classes[slot] = 0;
    });
    A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA { g[slot] = query.gains[i]; });
    for (std::size_t i = 0; i < N; i += W) (load(g, i) / Lanes::all(query.ideal)).store(g + i);
    for (std::size_t c = 0; c < C; ++c)
        A.each_document([&](std::size_t i, std::size_t slot)
                            SINKPROP_LAMBDA { D[c * N + slot] = query.discount(c)[i]; });
    if (C > 1) {
        A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA { classes[slot] = query.classes[i]; });
    }
    const double value = expected_gain(A, {g, D, classes, C}, normalization(s, query.residual), scratch, slope)[0];
    write_gradient(A, query, factor, slope, gradient);
    return value;
}

// The same for a gain with terms
template <class Operator>
double smoothed_terms(const Operator& A, const Query& query, const Settings& s, double factor, double* space,
                      double* gradient) {
    const double value =
        terms_gain(A, query, nullptr, normalization(s, query.residual), space + A.size, space, nullptr);
    write_gradient(A, query, factor, space, gradient);
    return value;
}

template <class Operator>
void smoothed_project(const Operator& A, const Query& query, const Settings& s, double* space, double* out) {
    const std::size_t N = A.size, C = query.n_classes;
    double *D = space, *product = D + N, *result = product + N, *q = result + N;
    A.each_padding([&](std::size_t slot) SINKPROP_LAMBDA { D[slot] = 0; });
    normalize(A, normalization(s, query.residual), q);
    for (std::size_t c = 0; c < C; ++c) {
        A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA { D[slot] = query.discount(c)[i]; });
        project(A, D, s.half_steps, s.epsilon, q, product, result);
        A.each_document([&](std::size_t i, std::size_t slot)
                            SINKPROP_LAMBDA { out[query.rows[i] * C + c] = result[slot]; });
    }
}

// Number of doubles that smoothed_gain or smoothed_terms needs in `space`, for vectors of length N. The arrays of the
// operator are not included.
std::size_t use_scratch(std::size_t N, const Query& query, const Settings& s) {
    const std::size_t C = query.n_classes;
    if (query.n_terms) return N + terms_scratch(N, query.n, s.half_steps, query.n_products);
    return expected_gain_scratch(N, s.half_steps, C) + (C + (C > 1 ? 3 : 2)) * N;
}

template <int terms, int pairs>
Plan plan_gaussian(const Query& query, const Settings& s, const Limits& limits) {
    using Cells = GaussianCells<terms>;
    using Sums = GaussianSums<pairs>;
    const std::size_t n = query.n, use = use_scratch(Sums::padded(n), query, s);
    const int T = remembered(query, s);
    const bool choose = s.method == Method::automatic;
    if (limits.fine > 0 && (choose || s.method == Method::fine_cells)) {
        using Fine = GaussianCells<fine_terms>;
        const std::size_t most = choose ? n / limits.fine : n;
        const std::size_t cells = most ? Fine::lay_out(query.scores, n, s.sigma, most, nullptr) : 1;
        if (cells <= most)
            return {Method::fine_cells, cells,
                    Fine::scratch(n, cells, T) + use_scratch(Fine::padded(n, cells), query, s)};
    }
    if (choose ? n > limits.direct : s.method == Method::cells) {
        const std::size_t most = choose ? Cells::most_cells(n) : n;
        const std::size_t cells = Cells::lay_out(query.scores, n, s.sigma, most, nullptr);
        if (cells <= most)
            return {Method::cells, cells, Cells::scratch(n, cells, T) + use_scratch(Cells::padded(n, cells), query, s)};
    }
    if (choose || s.method == Method::banded) {
        const std::size_t most = choose ? limits.band_for(n) : BandedSums::front;
        const std::size_t band = BandedSums::needed(query.scores, n, s.sigma, most);
        if (band <= most) return {Method::banded, band, use + BandedSums::scratch(n, T, band)};
    }
    if (choose ? n <= limits.direct_at_worst : s.method == Method::direct)
        return {Method::direct, 0, use + DirectSums::scratch(n, T)};
    return {Method::sums, 0, use + Sums::scratch(n, T)};
}

template <int terms, int pairs, class Use>
auto with_gaussian(const Query& query, const Settings& s, const Plan& plan, double* space, Use& use) {
    const std::size_t n = query.n;
    const int T = remembered(query, s);
    if (plan.method == Method::cells) {
        GaussianCells<terms> A(query.scores, n, s.sigma, plan.extent, s.cells, T, space);
        return use(A, space + A.scratch(n, plan.extent, T));
    }
    if (plan.method == Method::fine_cells) {
        GaussianCells<fine_terms> A(query.scores, n, s.sigma, plan.extent, s.fine_cells, T, space);
        return use(A, space + A.scratch(n, plan.extent, T));
    }
    if (plan.method == Method::banded) {
        BandedSums A(query.scores, n, s.sigma, plan.extent, T, space);
        return use(A, space + A.scratch(n, T, plan.extent));
    }
    if (plan.method == Method::direct) {
        DirectSums A(query.scores, n, s.sigma, true, T, space);
        return use(A, space + A.scratch(n, T));
    }
    GaussianSums<pairs> A(query.scores, n, s.sigma, T, space);
    return use(A, space + A.scratch(n, T));
}

// Makes the operator A that the plan names, with its arrays at the beginning of `space`. Then calls use(A, rest), where
// `rest` points to the first double after these arrays, and returns the result.
template <class Use>
auto with_operator(const Query& query, const Settings& s, const Plan& plan, double* space, Use&& use) {
    const std::size_t n = query.n;
    const int T = remembered(query, s);
    if (s.relaxation == Relaxation::gaussian)
        return s.exact ? with_gaussian<exact_terms, exact_pairs>(query, s, plan, space, use)
                       : with_gaussian<fast_terms, fast_pairs>(query, s, plan, space, use);
    if (plan.method == Method::direct) {
        DirectSums A(query.scores, n, s.sigma, false, T, space);
        return use(A, space + A.scratch(n, T));
    }
    LaplaceSums A(query.scores, n, s.sigma, T, space);
    return use(A, space + A.scratch(n, T));
}

Family family(const Settings& s) {
    return s.relaxation == Relaxation::probit ? Family::probit
           : s.relaxation == Relaxation::beta ? Family::beta
                                              : Family::logit_logistic;
}

// Number of doubles for the arrays of a query with a partitioned measure (two parameters per document, see
// partitioned.hpp): copies of the gains (n,) and of D (n_classes, n), and the output, which is a gradient (n, 2) or a
// projection (n_classes, n)
constexpr std::size_t partitioned_arrays(std::size_t n, std::size_t n_classes) {
    return round_up(n + n_classes * n + larger(2, n_classes) * n, 8);
}

// Number of doubles that a query with a partitioned measure needs. A gain with terms is computed as one with as many
// classes as documents, after its statistics.
std::size_t partitioned_use(const Query& query, const Settings& s) {
    const std::size_t n = query.n, C = query.n_terms ? n : query.n_classes;
    const std::size_t terms = query.n_terms ? (3 * query.n_products + 1) * n + round_up(n, 2) : 0;
    return (s.shared_scale() ? round_up(2 * n, 8) : 0) + round_up(terms, 8) + partitioned_arrays(n, C) +
           partitioned_scratch(n, normalization(s, nullptr), C, family(s));
}

// Whether products with the matrix of a query with a partitioned measure are computed in linear time. The families
// whose matrix depends on the differences of locations and edges have such products if all documents share one scale.
bool shared_by_sums(const Query& query, const Settings& s) {
    const std::size_t n = query.n;
    if (!s.shared_scale() || s.relaxation == Relaxation::beta || query.n_terms || s.tol > 0 || n < 2) return false;
    if (s.method != Method::automatic && s.method != Method::sums) return false;
    const SharedSums::Cells cells = SharedSums::lay_out(query, s);
    if (s.method == Method::sums) return cells.pairs() <= most_pairs;
    // with a large scale, differences between neighbors lose digits, which matters least for long lists
    const double pairs = double(cells.documents) * double(cells.edges) * SharedSums::P * SharedSums::P;
    return n >= least_by_sums && (s.sigma <= 10 || n > 20000) && pairs < 0.5 * double(n) * double(n);
}

std::size_t shared_sums_use(const Query& query, const Settings& s) {
    return SharedSums::scratch(query.n, SharedSums::lay_out(query, s)) +
           SharedArrays(query.n, s.half_steps, nullptr).used + round_up(larger(2, query.n_classes) * query.n, 8);
}

Plan plan(const Query& query, const Settings& s) {
    const std::size_t n = query.n;
    if (shared_by_sums(query, s)) return {Method::sums, 0, shared_sums_use(query, s)};
    if (s.partitioned()) return {Method::dense, 0, partitioned_use(query, s)};
    if (s.relaxation == Relaxation::rank_binomial) return {Method::dense, 0, rank_binomial::scratch_size(query)};
    if (s.relaxation == Relaxation::gaussian)
        return s.exact ? plan_gaussian<exact_terms, exact_pairs>(query, s, exact_limits)
                       : plan_gaussian<fast_terms, fast_pairs>(query, s, fast_limits);
    const int T = remembered(query, s);
    if (s.method == Method::automatic ? n <= direct_up_to_laplace : s.method == Method::direct)
        return {Method::direct, 0, use_scratch(DirectSums::padded(n), query, s) + DirectSums::scratch(n, T)};
    return {Method::sums, 0, use_scratch(LaplaceSums::padded(n), query, s) + LaplaceSums::scratch(n, T)};
}

// Returns the parameters (n, 2) of the documents of a query with a partitioned measure. If they are computed from
// scores, they are at the beginning of `space`, which is then moved behind them.
const double* parameters(const Query& query, const Settings& s, double*& space) {
    if (!s.shared_scale()) return query.scores;
    double* theta = space;
    shared_parameters(query, s, theta);
    space += round_up(2 * query.n, 8);
    return theta;
}

// Writes `factor` times the gradient with respect to the scores, or to the two parameters of each document, to the
// query's rows of `gradient`. theta_bar (n, 2) has the gradient with respect to theta; it may be overwritten.
void write_parameter_gradient(const Query& query, const Settings& s, double factor, const double* theta,
                              double* theta_bar, double* gradient) {
    if (s.shared_scale()) return write_shared_gradient(query, s, factor, theta, theta_bar, gradient);
    for (std::size_t i = 0; i < 2 * query.n; ++i) gradient[2 * query.rows[i / 2] + i % 2] = factor * theta_bar[i];
}

double partitioned_gain(const Query& query, const Settings& s, double factor, double* space, double* gradient) {
    const double* theta = parameters(query, s, space);
    const std::size_t n = query.n, C = query.n_classes;
    double *g = space, *D = g + n, *theta_bar = D + C * n;
    for (std::size_t i = 0; i < n; ++i) g[i] = query.gains[i] / query.ideal;
    for (std::size_t c = 0; c < C; ++c)
        for (std::size_t k = 0; k < n; ++k) D[c * n + k] = query.discount(c)[k];
    const double value =
        partitioned_gain(theta, n, family(s), g, D, n, query.classes, C, normalization(s, query.residual),
                         space + partitioned_arrays(n, C), theta_bar);
    write_parameter_gradient(query, s, factor, theta, theta_bar, gradient);
    return value;
}

// The expected gain of a sum of terms. First the statistics and the derivatives of the terms with respect to them are
// computed; the gain that is linear in Pi with these derivatives as coefficients, M_jk = sum of a_c[j] D_c[k] and of
// h[j] e[k], has the same gradient. Its row for document j takes the place of the discounts of a class.
double partitioned_terms(const Query& query, const Settings& s, double factor, double* space, double* gradient) {
    const double* theta = parameters(query, s, space);
    const std::size_t n = query.n, products = query.n_products;
    double *S = space, *S_bar = S + products * n, *vectors = S_bar + products * n, *spare = vectors + products * n;
    std::int32_t* classes = reinterpret_cast<std::int32_t*>(spare + n);
    space += round_up((3 * products + 1) * n + round_up(n, 2), 8);
    double *g = space, *D = g + n, *theta_bar = D + n * n, *scratch = space + partitioned_arrays(n, n);
    double value = 0;
    for (std::size_t t = 0, m = 0; t < query.n_terms; ++t)
        for (std::size_t c = 0; c < query.terms[t].products(); ++c, ++m) {
            const Term& term = query.terms[t];
            const double* x = term.of_rows() ? term.discount(0) : query.gains + (term.first + c) * n;
            for (std::size_t i = 0; i < n; ++i) vectors[m * n + i] = x[i];
        }
    partitioned_statistics(theta, n, family(s), vectors, query, normalization(s, query.residual), scratch, S);
    for (std::size_t t = 0, m = 0; t < query.n_terms; m += query.terms[t++].products())
        value += evaluate(query.terms[t], query, S + m * n, S_bar + m * n, spare);
    for (std::size_t j = 0; j < n; ++j) {
        g[j] = 1;
        classes[j] = std::int32_t(j);
        double* row = D + j * n;
        for (std::size_t k = 0; k < n; ++k) row[k] = 0;
        for (std::size_t t = 0, m = 0; t < query.n_terms; ++t)
            for (std::size_t c = 0; c < query.terms[t].products(); ++c, ++m) {
                const bool rows = query.terms[t].of_rows();
                const double *left = (rows ? S_bar : vectors) + m * n, *right = (rows ? vectors : S_bar) + m * n;
                for (std::size_t k = 0; k < n; ++k) row[k] += left[j] * right[k];
            }
    }
    partitioned_gain(theta, n, family(s), g, D, n, classes, n, normalization(s, query.residual), scratch, theta_bar);
    write_parameter_gradient(query, s, factor, theta, theta_bar, gradient);
    return value;
}

void partitioned_project(const Query& query, const Settings& s, double* space, double* out) {
    const double* theta = parameters(query, s, space);
    const std::size_t n = query.n, C = query.n_classes;
    double *D = space + n, *result = D + C * n;
    for (std::size_t c = 0; c < C; ++c)
        for (std::size_t k = 0; k < n; ++k) D[c * n + k] = query.discount(c)[k];
    partitioned_project(theta, n, family(s), D, n, C, normalization(s, query.residual),
                        space + partitioned_arrays(n, C), result);
    for (std::size_t c = 0; c < C; ++c)
        for (std::size_t i = 0; i < n; ++i) out[query.rows[i] * C + c] = result[c * n + i];
}

// Calls use(sums, scratch, out), where out has room for the gradient (n, 2) or for a projection (n_classes, n)
template <class Use>
auto with_shared_sums(const Query& query, const Settings& s, double* space, Use&& use) {
    const SharedSums::Cells cells = SharedSums::lay_out(query, s);
    SharedSums sums(query, s, cells, space);
    double* rest = space + SharedSums::scratch(query.n, cells);
    return use(sums, rest, rest + SharedArrays(query.n, s.half_steps, nullptr).used);
}

double expected_gain_of_query(const Query& query, const Settings& s, const Plan& p, double factor, double* space,
                              double* gradient) {
    if (s.partitioned() && p.method == Method::sums)
        return with_shared_sums(query, s, space, [&](SharedSums& sums, double* scratch, double* bar) {
            const double value = shared_gain(sums, query, s.half_steps, scratch, bar);
            write_shared_gradient(query, s, factor, nullptr, bar, gradient);
            return value;
        });
    if (s.partitioned())
        return query.n_terms ? partitioned_terms(query, s, factor, space, gradient)
                             : partitioned_gain(query, s, factor, space, gradient);
    if (s.relaxation == Relaxation::rank_binomial) return rank_binomial::gain(query, s.sigma, factor, space, gradient);
    return with_operator(query, s, p, space, [&](const auto& A, double* rest) {
        return query.n_terms ? smoothed_terms(A, query, s, factor, rest, gradient)
                             : smoothed_gain(A, query, s, factor, rest, gradient);
    });
}

void project_query(const Query& query, const Settings& s, const Plan& p, double* space, double* out) {
    if (s.partitioned() && p.method == Method::sums)
        return with_shared_sums(query, s, space, [&](SharedSums& sums, double* scratch, double* result) {
            shared_project(sums, query, s.half_steps, scratch, result);
            for (std::size_t c = 0; c < query.n_classes; ++c)
                for (std::size_t i = 0; i < query.n; ++i)
                    out[query.rows[i] * query.n_classes + c] = result[c * query.n + i];
        });
    if (s.partitioned()) return partitioned_project(query, s, space, out);
    if (s.relaxation == Relaxation::rank_binomial) return rank_binomial::project(query, s.sigma, space, out);
    with_operator(query, s, p, space, [&](const auto& A, double* rest) { smoothed_project(A, query, s, rest, out); });
}

// Number of doubles that tied_gain_by needs in `space`: the arrays of the operator, the gains and discounts of each
// class, the derivatives of the ties, and the scratch of expected_gain
template <class Sums>
std::size_t tied_scratch_of(const Ties& ties, const Settings& s) {
    const std::size_t N = Sums::padded(ties.n), C = ties.n_classes;
    return TiedSums<Sums>::scratch(ties.n, s.half_steps, C) + (2 * C + 1) * N +
           expected_gain_scratch(N, s.half_steps, 1);
}

template <class Sums>
double tied_gain_by(const Sums& sums, const Ties& ties, const Settings& s, double factor, double* space, double* total,
                    double* own) {
    const std::size_t n = ties.n, C = ties.n_classes, N = sums.size;
    const TiedSums<Sums> A(sums, ties, s.half_steps, space + Sums::scratch(n, s.half_steps));
    double *g = space + TiedSums<Sums>::scratch(n, s.half_steps, C), *D = g + C * N, *slope = D + C * N;
    for (std::size_t i = 0; i < 2 * C * N; ++i) g[i] = 0;
    for (std::size_t c = 0; c < C; ++c)
        A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA {
            g[c * N + slot] = ties.gains[c * n + i];
            D[c * N + slot] = ties.D[c * n + i];
        });
    const double value = expected_gain(A, {g, D, nullptr, C}, normalization(s, ties.residual), slope + N, slope)[0];
    factor /= A.unit;
    A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA {
        total[i] += factor * slope[slot];
        for (std::size_t c = 0; c < C; ++c) own[c * n + i] += factor * A.own[c * N + slot];
    });
    return value;
}

bool direct_for(const Ties& ties, const Settings& s) {
    return s.method == Method::automatic ? ties.n <= direct_up_to_laplace : s.method == Method::direct;
}

std::size_t tied_scratch(const Ties& ties, const Settings& s) {
    return direct_for(ties, s) ? tied_scratch_of<DirectSums>(ties, s) : tied_scratch_of<LaplaceSums>(ties, s);
}

double tied_gain(const Ties& ties, const Settings& s, double factor, double* space, double* total, double* own) {
    const int T = s.half_steps;
    if (direct_for(ties, s))
        return tied_gain_by(DirectSums(ties.scores, ties.n, s.sigma, false, T, space), ties, s, factor, space, total,
                            own);
    return tied_gain_by(LaplaceSums(ties.scores, ties.n, s.sigma, T, space), ties, s, factor, space, total, own);
}

// Number of doubles that tied_terms_by needs in `space`: the arrays of the operator, the gradient of the ties, and the
// scratch of terms_gain
template <class Sums>
std::size_t tied_terms_scratch_of(const Query& query, const Ties& ties, const Settings& s) {
    const std::size_t N = Sums::padded(ties.n);
    return TiedSums<Sums>::scratch(ties.n, remembered(query, s), 0) + N +
           terms_scratch(N, query.n, s.half_steps, query.n_products);
}

template <class Sums>
double tied_terms_by(const Sums& sums, const Query& query, const Ties& ties, const Settings& s, double factor,
                     double* space, double* total, double* own) {
    const int T = remembered(query, s);
    const TiedSums<Sums> A(sums, ties, s.half_steps, space + Sums::scratch(ties.n, T));
    double *slope = space + TiedSums<Sums>::scratch(ties.n, T, 0), *scratch = slope + A.size;
    double* parts = scratch + terms_scratch(A.size, query.n, s.half_steps, query.n_products);
    for (std::size_t j = 0; j < query.n; ++j) parts[j] = 0;
    const double value = terms_gain(A, query, ties.first, normalization(s, ties.residual), scratch, slope, parts);
    factor /= A.unit;
    A.each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA { total[i] += factor * slope[slot]; });
    for (std::size_t j = 0; j < query.n; ++j) own[j] += factor * parts[j];
    return value;
}

std::size_t tied_terms_scratch(const Query& query, const Ties& ties, const Settings& s) {
    return query.n + (direct_for(ties, s) ? tied_terms_scratch_of<DirectSums>(query, ties, s)
                                          : tied_terms_scratch_of<LaplaceSums>(query, ties, s));
}

double tied_terms(const Query& query, const Ties& ties, const Settings& s, double factor, double* space, double* total,
                  double* own) {
    const int T = remembered(query, s);
    if (direct_for(ties, s))
        return tied_terms_by(DirectSums(ties.scores, ties.n, s.sigma, false, T, space), query, ties, s, factor, space,
                             total, own);
    return tied_terms_by(LaplaceSums(ties.scores, ties.n, s.sigma, T, space), query, ties, s, factor, space, total,
                         own);
}

}  // namespace

// defined in trees/evaluation.cpp
void score_trees(const ForestView&, const double*, std::size_t, double, std::int8_t*, double*);
void score_trees_single(const ForestView&, const float*, std::size_t, double, std::int8_t*, double*);

extern const Kernels kernels;
const Kernels kernels = {SINKPROP_STRING(SINKPROP_ISA),
                         sort_scores,
                         plan,
                         expected_gain_of_query,
                         tied_gain,
                         tied_scratch,
                         tied_terms,
                         tied_terms_scratch,
                         project_query,
                         listnet::loss,
                         pairwise_loss,
                         pairwise_derivatives,
                         row_scores<double>,
                         row_scores<float>,
                         add_products<double>,
                         add_products<float>,
                         add_rows,
                         glynn,
                         score_trees,
                         score_trees_single};

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
