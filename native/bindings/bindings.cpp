// The Python module sinkprop._native: its functions pass NumPy arrays to the functions of batch.hpp. Messages about
// invalid values are made in Python.
#include <nanobind/stl/complex.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "arrays.hpp"
#include "batch/batch.hpp"
#include "batch/dispatch.hpp"
#include "kernels/gauss_coefficients.hpp"
#include "record.hpp"

void bind_checksum(nb::module_&);    // defined in checksum.cpp
void bind_letor(nb::module_&);       // defined in letor.cpp
void bind_assignment(nb::module_&);  // defined in assignment.cpp
void bind_row_sums(nb::module_&);    // defined in row_sums.cpp
void bind_permanents(nb::module_&);  // defined in permanents.cpp
void bind_sampling(nb::module_&);    // defined in sampling.cpp
void bind_trees(nb::module_&);       // defined in trees.cpp
void bind_xla(nb::module_&);         // defined in xla.cpp

namespace {

using Doubles = Array<double, nb::ndim<1>>;
using Floats = Array<float, nb::ndim<1>>;
using Rows = std::optional<Index>;
using Classes = std::optional<Array<const std::int32_t, nb::ndim<1>>>;
using Weights = std::optional<Vector>;
using Residual = std::optional<Doubles>;

// The records of objective/native_terms.py
using NativeSettings = Record<int, double, bool, int, double, double>;
using NativeGains = Record<Vector, bool, Classes, Matrix, bool>;
using NativeTerms = Record<Matrix, Matrix, Matrix, nb::list>;

sinkprop::Settings make_settings(const NativeSettings& given) {
    return std::apply(sinkprop::make_settings, given.values);
}

// Throws unless all documents of the queries are in rows below n. Returns the number of documents of the longest query.
std::size_t require_rows(const Index& offsets, const Rows& rows, std::size_t n, bool empty = false) {
    const std::size_t longest = require_offsets(offsets, rows ? rows->size() : n, empty);
    if (rows) require_below("rows", *rows, n);
    return longest;
}

// A batch of queries whose documents have scores but no gains. The offsets and rows must have been checked.
sinkprop::Batch make_batch(sinkprop::Scores scores, const Index& offsets, const Rows& rows) {
    sinkprop::Batch batch = {};
    batch.scores = scores;
    batch.offsets = offsets.data();
    batch.rows = data_or_null(rows);
    batch.n_queries = offsets.shape(0) - 1;
    return batch;
}

// Gives a batch the weights of the ranks, one row of `discounts` (n_classes, ranks) for each class of documents. Throws
// if a rank of the longest query has no weight.
void add_discounts(sinkprop::Batch& batch, const Matrix& discounts, std::size_t longest, const char* name) {
    if (discounts.shape(0) == 0 || discounts.shape(1) < longest)
        throw std::invalid_argument(std::string(name) + " must have a weight for each of the " +
                                    std::to_string(longest) + " ranks of the longest query");
    batch.D = discounts.data();
    batch.n_classes = discounts.shape(0);
    batch.stride = discounts.shape(1);
}

// A batch of queries with a gain. `gains` holds each document's gain, or its label if `exponential`. Throws if the
// offsets, rows, classes or discounts do not fit the number of gains.
sinkprop::Batch make_batch(sinkprop::Scores scores, const Index& offsets, const Rows& rows, const Vector& gains,
                           bool exponential, const Classes& classes, const Matrix& discounts, bool empty = false) {
    const std::size_t n = gains.size(), longest = require_rows(offsets, rows, n, empty);
    sinkprop::Batch batch = make_batch(scores, offsets, rows);
    add_discounts(batch, discounts, longest, "discounts");
    if (classes) {
        require_size("classes", classes->size(), n);
        require_below("classes", *classes, batch.n_classes);
    } else if (batch.n_classes > 1) {
        throw std::invalid_argument("classes must be given if discounts has several rows");
    }
    batch.gains = gains.data();
    batch.exponential = exponential;
    batch.classes = data_or_null(classes);
    return batch;
}

// A function of the caller's, as the native code calls it: with the statistics of one query (products, n) and the
// attributes of its documents (count, n). The Python function writes the derivatives to its third argument, and returns
// the value.
double call_function(void* context, const double* S, const double* a, std::size_t n, std::size_t count, double* S_bar) {
    const auto& [function, products] = *static_cast<const std::pair<nb::object, std::size_t>*>(context);
    const nb::gil_scoped_acquire acquire;
    const sinkprop::NestedCall nested;  // the function may call this module
    // With an owner, which owns nothing here, the arrays refer to the native memory instead of copies of it. They are
    // valid during the call only.
    const nb::capsule owner(S_bar, [](void*) noexcept {});
    using In = nb::ndarray<nb::numpy, const double, nb::ndim<2>, nb::c_contig>;
    using Out = nb::ndarray<nb::numpy, double, nb::ndim<2>, nb::c_contig>;
    const std::size_t rows = products ? products : count;
    return nb::cast<double>(function(In(S, {rows, n}, owner), In(a, {count, n}, owner), Out(S_bar, {rows, n}, owner)));
}

// The terms of a gain. A row of `table` describes a term (arguments.hpp). `functions` has a Python function for each
// term of the forms `column` and `row`, and None for the others.
struct Terms {
    std::vector<sinkprop::Term> terms;
    std::vector<std::pair<nb::object, std::size_t>> functions;

    Terms(const Matrix& table, const Matrix& discounts, const nb::list& given, std::size_t n_attributes,
          std::size_t longest) {
        const std::size_t n_terms = table.shape(0), ranks = discounts.shape(1);
        if (table.shape(1) != sinkprop::term_columns || n_terms == 0)
            throw std::invalid_argument("table must have 10 columns and a row");
        if (nb::len(given) != n_terms) throw std::invalid_argument("functions must have one item per term");
        if (ranks < longest) throw std::invalid_argument("discounts must have a weight for each rank");
        functions.reserve(n_terms);  // terms point to the elements
        for (std::size_t t = 0; t < n_terms; ++t) {
            sinkprop::Term term = sinkprop::make_term(table.data() + sinkprop::term_columns * t, n_attributes,
                                                      discounts.data(), discounts.shape(0), ranks);
            if (term.form == sinkprop::Form::column || term.form == sinkprop::Form::row) {
                functions.emplace_back(given[t], term.of_rows() ? 1 : 0);
                term.function = call_function;
                term.context = &functions.back();
            }
            terms.push_back(term);
        }
    }

    // A batch of queries with these terms. The attributes have the shape (n_attributes, N).
    sinkprop::Batch batch(sinkprop::Scores scores, const Index& offsets, const Rows& rows,
                          const Matrix& attributes) const {
        sinkprop::Batch batch = make_batch(scores, offsets, rows);
        batch.gains = attributes.data();
        batch.terms = terms.data();
        batch.n_terms = terms.size();
        batch.n_attributes = attributes.shape(0);
        batch.n_documents = attributes.shape(1);
        return batch;
    }
};

// The first flat index whose value is not within [least, most]; -1 if there is none
template <class T>
std::int64_t first_invalid(const Array<const T>& values, double least, double most) {
    const T* p = values.data();
    const std::size_t n = values.size();
    constexpr std::size_t lanes = 8;
    double outside[lanes] = {};  // numbers of such values, as doubles: so compilers use vector instructions
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes)
        for (std::size_t l = 0; l < lanes; ++l) outside[l] += ((p[i + l] >= least) & (p[i + l] <= most)) ? 0.0 : 1.0;
    if (std::count(outside, outside + lanes, 0) < std::ptrdiff_t(lanes)) i = 0;
    for (; i < n; ++i)
        if (!(p[i] >= least && p[i] <= most)) return std::int64_t(i);
    return -1;
}

// Whether an object is a C-ordered vector of doubles that is not empty, and all its values are within [least, most]
bool is_valid_vector(nb::handle values, double least, double most) {
    Array<const double> vector;
    return nb::try_cast(values, vector, false) && vector.ndim() == 1 && vector.size() &&
           first_invalid(vector, least, most) < 0;
}

// Numbers that have the same exact sum as the values, for math.fsum, which takes much longer per number: usually two.
// The values themselves if their sum is not finite.
std::vector<double> exact_parts(const Vector& values) {
    std::vector<double> parts(2);
    double first = 0, second = 0;
    // Knuth's two-sum: replaces `sum` by sum + x, rounded, and returns the rounding error, which is exact
    const auto add = [](double& sum, double x) {
        const double before = sum, after = before + x, added = after - before;
        sum = after;
        return (before - (after - added)) + (x - added);
    };
    for (std::size_t i = 0, n = values.size(); i < n; ++i) {
        const double rest = add(second, add(first, values.data()[i]));
        if (rest != 0) parts.push_back(rest);
    }
    if (!std::isfinite(first)) return {values.data(), values.data() + values.size()};
    parts[0] = first;
    parts[1] = second;
    return parts;
}

void exponential_gains(const Vector& labels, Doubles gains) {
    require_size("gains", gains.size(), labels.size());
    for (std::size_t i = 0, n = labels.shape(0); i < n; ++i)
        gains.data()[i] = sinkprop::exponential_gain(labels.data()[i]);
}

// Finds the runs of equal values in a sequence of query ids. Returns the position where each run begins, followed by
// the length of the sequence; whether the ids strictly increase from run to run; and the length of the longest run.
// Returns None if all ids are equal, which takes no array.
nb::object runs(const Index& ids) {
    const std::int64_t *p = ids.data(), n = std::int64_t(ids.shape(0));
    if (n > 0 && std::all_of(p, p + n, [p](std::int64_t id) { return id == p[0]; })) return nb::none();
    auto* starts = new std::vector<std::int64_t>;
    nb::capsule owner(starts, [](void* p) noexcept { delete static_cast<std::vector<std::int64_t>*>(p); });
    std::int64_t longest = 0;
    bool rising = true;
    starts->push_back(0);
    for (std::int64_t i = 1; i <= n; ++i)
        if (i == n || p[i] != p[i - 1]) {
            rising &= i == n || p[i] > p[i - 1];
            longest = std::max(longest, i - starts->back());
            starts->push_back(i);
        }
    return nb::make_tuple(nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>(starts->data(), {starts->size()}, owner),
                          rising, longest);
}

void sort_descending(const Vector& scores, Array<std::int64_t, nb::ndim<1>> order, Doubles sorted) {
    static_assert(sizeof(std::size_t) == sizeof(std::int64_t), "a 64-bit build");
    require_size("order", order.size(), scores.size());
    require_size("sorted", sorted.size(), scores.size());
    nb::gil_scoped_release release;
    sinkprop::sort_descending(scores.data(), scores.shape(0), reinterpret_cast<std::size_t*>(order.data()),
                              sorted.data());
}

template <class T>
void expected_gain(const Array<const T>& scores, const Index& offsets, Rows rows, const NativeGains& given_gains,
                   const NativeSettings& given_settings, int n_threads, Doubles per_query, Array<T> gradient,
                   std::optional<double> factor, Residual residual) {
    const auto settings = make_settings(given_settings);
    const auto& [gains, exponential, classes, discounts, normalize] = given_gains.values;
    require_size("scores", scores.size(), gains.size() * settings.width());
    const auto batch = make_batch(scores.data(), offsets, rows, gains, exponential, classes, discounts);
    require_size("per_query", per_query.size(), batch.n_queries);
    if (residual) require_size("residual", residual->size(), batch.n_queries);
    require_size("gradient", gradient.size(), scores.size());
    if (gradient.ndim() != scores.ndim()) throw nb::type_error("gradient must have the shape of scores");
    nb::gil_scoped_release release;
    sinkprop::expected_gain(batch, settings, normalize, factor.value_or(1 / double(batch.n_queries)), n_threads,
                            per_query.data(), gradient.data(), data_or_null(residual));
}

template <class T>
void terms_gain(const Array<const T>& scores, const Index& offsets, Rows rows, const NativeTerms& given_terms,
                const NativeSettings& given_settings, int n_threads, Doubles per_query, Array<T> gradient,
                std::optional<double> factor, Residual residual) {
    const auto settings = make_settings(given_settings);
    const auto& [attributes, table, discounts, functions] = given_terms.values;
    if (settings.relaxation == sinkprop::Relaxation::rank_binomial)
        throw std::invalid_argument("rank_binomial takes no gain with terms");
    const std::size_t n = attributes.shape(1);
    require_size("scores", scores.size(), n * settings.width());
    const Terms terms(table, discounts, functions, attributes.shape(0), require_rows(offsets, rows, n));
    const auto batch = terms.batch(scores.data(), offsets, rows, attributes);
    sinkprop::require_groups(batch);
    require_size("per_query", per_query.size(), batch.n_queries);
    if (residual) require_size("residual", residual->size(), batch.n_queries);
    require_size("gradient", gradient.size(), scores.size());
    if (gradient.ndim() != scores.ndim()) throw nb::type_error("gradient must have the shape of scores");
    nb::gil_scoped_release release;
    sinkprop::expected_gain(batch, settings, false, factor.value_or(1 / double(batch.n_queries)), n_threads,
                            per_query.data(), gradient.data(), data_or_null(residual));
}

template <class T>
void project(const Array<const T>& scores, const Index& offsets, Rows rows, const Matrix& columns,
             const NativeSettings& given_settings, int n_threads, Array<T, nb::ndim<2>> out, Residual residual) {
    const auto settings = make_settings(given_settings);
    const std::size_t n = scores.size() / settings.width();
    auto batch = make_batch(scores.data(), offsets, rows);
    add_discounts(batch, columns, require_rows(offsets, rows, n), "columns");
    require_size("out", out.size(), n * columns.shape(0));
    if (residual) require_size("residual", residual->size(), batch.n_queries);
    nb::gil_scoped_release release;
    sinkprop::project(batch, settings, n_threads, out.data(), data_or_null(residual));
}

template <class T>
void tree_derivatives(const Array<const T, nb::ndim<1>>& scores, const Index& offsets, Rows rows,
                      const NativeGains& given_gains, const Vector& widths, double blend, double noise,
                      std::uint64_t seed, int half_steps, double epsilon, double tol, Weights query_weight, float least,
                      int n_threads, Doubles per_query, Floats gradient, Floats hessian, Residual residual) {
    const auto& [gains, exponential, classes, discounts, normalize] = given_gains.values;
    const auto settings =
        sinkprop::make_settings(int(sinkprop::Relaxation::laplace), 1, true, half_steps, epsilon, tol);
    const sinkprop::TreeLoss loss = {widths.data(), widths.size(), blend, noise, seed};
    require_size("scores", scores.size(), gains.size());
    // On a cluster, the queries of other processes are empty; the noise of a query depends on its number.
    const auto batch = make_batch(scores.data(), offsets, rows, gains, exponential, classes, discounts, true);
    require_size("per_query", per_query.size(), batch.n_queries);
    if (residual) require_size("residual", residual->size(), batch.n_queries);
    require_size("gradient", gradient.size(), scores.size());
    require_size("hessian", hessian.size(), scores.size());
    if (query_weight) require_size("query_weight", query_weight->size(), batch.n_queries);
    nb::gil_scoped_release release;
    sinkprop::tree_derivatives(batch, settings, loss, normalize, data_or_null(query_weight), least, n_threads,
                               per_query.data(), gradient.data(), hessian.data(), data_or_null(residual));
}

template <class T>
void tree_terms(const Array<const T, nb::ndim<1>>& scores, const Index& offsets, Rows rows,
                const NativeTerms& given_terms, const Vector& widths, double blend, double noise, std::uint64_t seed,
                int half_steps, double epsilon, double tol, Weights query_weight, float least, int n_threads,
                Doubles per_query, Floats gradient, Floats hessian, Residual residual) {
    const auto& [attributes, table, discounts, functions] = given_terms.values;
    const auto settings =
        sinkprop::make_settings(int(sinkprop::Relaxation::laplace), 1, true, half_steps, epsilon, tol);
    const sinkprop::TreeLoss loss = {widths.data(), widths.size(), blend, noise, seed};
    const std::size_t n = attributes.shape(1);
    require_size("scores", scores.size(), n);
    const Terms terms(table, discounts, functions, attributes.shape(0), require_rows(offsets, rows, n, true));
    const auto batch = terms.batch(scores.data(), offsets, rows, attributes);
    sinkprop::require_groups(batch);
    require_size("per_query", per_query.size(), batch.n_queries);
    if (residual) require_size("residual", residual->size(), batch.n_queries);
    require_size("gradient", gradient.size(), scores.size());
    require_size("hessian", hessian.size(), scores.size());
    if (query_weight) require_size("query_weight", query_weight->size(), batch.n_queries);
    nb::gil_scoped_release release;
    sinkprop::tree_derivatives(batch, settings, loss, false, data_or_null(query_weight), least, n_threads,
                               per_query.data(), gradient.data(), hessian.data(), data_or_null(residual));
}

void listnet(const Vector& scores, const Index& offsets, Rows rows, const Vector& target, int k, int n_threads,
             Doubles per_query, Doubles gradient) {
    require_rows(offsets, rows, scores.size());
    if (k < 1) throw std::invalid_argument("k must be at least 1");
    auto batch = make_batch(scores.data(), offsets, rows);
    batch.gains = target.data();
    require_size("target", target.size(), scores.size());
    require_size("per_query", per_query.size(), batch.n_queries);
    require_size("gradient", gradient.size(), scores.size());
    nb::gil_scoped_release release;
    sinkprop::listnet(batch, k, n_threads, per_query.data(), gradient.data());
}

sinkprop::PairBatch make_pair_batch(const Vector& scores, const Index& offsets, const Index& rows, const Index& lower,
                                    const Weights& sample_weight, const Weights& query_weight) {
    require_size("scores", scores.size(), rows.size());
    require_size("lower", lower.size(), rows.size());
    require_rows(offsets, rows, rows.size());
    const std::int64_t *at = offsets.data(), *first = lower.data();
    const std::size_t n_queries = offsets.shape(0) - 1;
    for (std::size_t q = 0; q < n_queries; ++q)
        for (std::int64_t i = at[q]; i < at[q + 1]; ++i)
            if (first[i] < 0 || first[i] > at[q + 1] - at[q])
                throw std::invalid_argument("lower must be from 0 to the number of documents of the query");
    if (sample_weight) require_size("sample_weight", sample_weight->size(), scores.size());
    if (query_weight) require_size("query_weight", query_weight->size(), n_queries);
    return {scores.data(),
            offsets.data(),
            rows.data(),
            lower.data(),
            n_queries,
            data_or_null(sample_weight),
            data_or_null(query_weight)};
}

void pairwise_loss(const Vector& scores, const Index& offsets, const Index& rows, const Index& lower,
                   Weights sample_weight, Weights query_weight, int n_threads, Doubles per_query) {
    const auto batch = make_pair_batch(scores, offsets, rows, lower, sample_weight, query_weight);
    require_size("per_query", per_query.size(), batch.n_queries);
    nb::gil_scoped_release release;
    sinkprop::pairwise_loss(batch, n_threads, per_query.data());
}

void pairwise_derivatives(const Vector& scores, const Index& offsets, const Index& rows, const Index& lower,
                          Weights sample_weight, Weights query_weight, int n_threads, Doubles gradient,
                          Doubles hessian) {
    const auto batch = make_pair_batch(scores, offsets, rows, lower, sample_weight, query_weight);
    require_size("gradient", gradient.size(), scores.size());
    require_size("hessian", hessian.size(), scores.size());
    nb::gil_scoped_release release;
    sinkprop::pairwise_derivatives(batch, n_threads, gradient.data(), hessian.data());
}

void use_method(const std::string& name) {
    if (!sinkprop::use_method(name))
        throw nb::value_error("method must be auto, alone, direct, banded, cells, fine cells or sums");
}

using Complex = std::complex<double>;

template <int P>
std::vector<std::pair<Complex, Complex>> coefficients() {
    using C = sinkprop::GaussCoefficients<P>;
    std::vector<std::pair<Complex, Complex>> pairs;
    for (int m = 0; m < P; ++m) pairs.push_back({{C::s_re[m], C::s_im[m]}, {C::w_re[m], C::w_im[m]}});
    return pairs;
}

// The pairs (s_m, w_m) of docs/linear-time.md 3.2
std::vector<std::pair<Complex, Complex>> gauss_coefficients(int pairs) {
    if (pairs != 4 && pairs != 8) throw nb::value_error("pairs must be 4 or 8");
    return pairs == 4 ? coefficients<4>() : coefficients<8>();
}

void bind_labels_and_queries(nb::module_& m) {
    m.def("first_invalid", &first_invalid<double>, "values"_a, "least"_a, "most"_a);
    m.def("first_invalid", &first_invalid<float>, nb::arg("values").noconvert(), "least"_a, "most"_a);
    m.def("is_valid_vector", &is_valid_vector, "values"_a, "least"_a, "most"_a);
    m.def("exact_parts", &exact_parts, "values"_a);
    m.def("exponential_gains", &exponential_gains, "labels"_a, nb::arg("gains").noconvert());
    m.def("runs", &runs, "ids"_a);
    m.def("sort_descending", &sort_descending, "scores"_a, nb::arg("order").noconvert(), nb::arg("sorted").noconvert());
}

// The functions for scores and gradients of the type T. Scores of another type are converted to double only: as float,
// they would not be the scores that were given.
template <class T>
void bind_objectives(nb::module_& m) {
    const auto scores = [] {
        if constexpr (std::is_same_v<T, float>)
            return nb::arg("scores").noconvert();
        else
            return nb::arg("scores");
    }();
    m.def("expected_gain", &expected_gain<T>, scores, "offsets"_a, nb::arg("rows").none(), "gains"_a, "settings"_a,
          "n_threads"_a, nb::arg("per_query").noconvert(), nb::arg("gradient").noconvert(), "factor"_a = nb::none(),
          nb::arg("residual").noconvert() = nb::none());
    m.def("terms_gain", &terms_gain<T>, scores, "offsets"_a, nb::arg("rows").none(), "terms"_a, "settings"_a,
          "n_threads"_a, nb::arg("per_query").noconvert(), nb::arg("gradient").noconvert(), "factor"_a = nb::none(),
          nb::arg("residual").noconvert() = nb::none());
    m.def("tree_terms", &tree_terms<T>, scores, "offsets"_a, nb::arg("rows").none(), "terms"_a, "widths"_a, "blend"_a,
          "noise"_a, "seed"_a, "half_steps"_a, "epsilon"_a, "tol"_a, nb::arg("query_weight").none(), "least"_a,
          "n_threads"_a, nb::arg("per_query").noconvert(), nb::arg("gradient").noconvert(),
          nb::arg("hessian").noconvert(), nb::arg("residual").noconvert() = nb::none());
    m.def("project", &project<T>, scores, "offsets"_a, nb::arg("rows").none(), "columns"_a, "settings"_a, "n_threads"_a,
          nb::arg("out").noconvert(), nb::arg("residual").noconvert() = nb::none());
    m.def("tree_derivatives", &tree_derivatives<T>, scores, "offsets"_a, nb::arg("rows").none(), "gains"_a, "widths"_a,
          "blend"_a, "noise"_a, "seed"_a, "half_steps"_a, "epsilon"_a, "tol"_a, nb::arg("query_weight").none(),
          "least"_a, "n_threads"_a, nb::arg("per_query").noconvert(), nb::arg("gradient").noconvert(),
          nb::arg("hessian").noconvert(), nb::arg("residual").noconvert() = nb::none());
}

void bind_baseline_losses(nb::module_& m) {
    m.def("listnet", &listnet, "scores"_a, "offsets"_a, nb::arg("rows").none(), "target"_a, "k"_a, "n_threads"_a,
          nb::arg("per_query").noconvert(), nb::arg("gradient").noconvert());
    m.def("pairwise_loss", &pairwise_loss, "scores"_a, "offsets"_a, "rows"_a, "lower"_a,
          nb::arg("sample_weight").none(), nb::arg("query_weight").none(), "n_threads"_a,
          nb::arg("per_query").noconvert());
    m.def("pairwise_derivatives", &pairwise_derivatives, "scores"_a, "offsets"_a, "rows"_a, "lower"_a,
          nb::arg("sample_weight").none(), nb::arg("query_weight").none(), "n_threads"_a,
          nb::arg("gradient").noconvert(), nb::arg("hessian").noconvert());
}

void bind_dispatch(nb::module_& m) {
    m.def("use_method", &use_method, "name"_a);
    m.def("gauss_coefficients", &gauss_coefficients, "pairs"_a);
    m.def("instruction_sets", &sinkprop::instruction_sets);
    m.def("instruction_set", &sinkprop::instruction_set);
    m.def("use_instruction_set", &sinkprop::use_instruction_set, "name"_a);
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Native kernels of sinkprop";
    // This call makes the import fail if the environment variable SINKPROP_ISA is invalid. Without it, a later call
    // would fail.
    sinkprop::instruction_set();
    bind_labels_and_queries(m);
    bind_objectives<double>(m);
    bind_objectives<float>(m);
    bind_baseline_losses(m);
    bind_assignment(m);
    bind_row_sums(m);
    bind_letor(m);
    bind_checksum(m);
    bind_permanents(m);
    bind_sampling(m);
    bind_trees(m);
    bind_xla(m);
    bind_dispatch(m);
}
