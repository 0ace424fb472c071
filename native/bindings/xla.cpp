// The handlers by which XLA calls the functions of batch.hpp from compiled JAX programs. JAX registers them under the
// names that sinkprop.jax gives them; neither XLA nor JAX is needed to compile or to load this file.
//
// The operands have leading axes, which are batches, and hold R rows of n places. The documents of a list are places of
// one row. `lists` (R, n) has, for each document, the place of the first document of its list; it is negative for a
// place without a document. Results at such places are 0. A list with a number that is not finite has NaN as its
// results, because a compiled program cannot raise an error about values.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "batch/batch.hpp"
#include "xla/ffi/api/ffi.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace {

// Number of the operands and attributes that the handlers take. It changes with them.
constexpr std::int64_t interface_version = 1;

using Doubles = std::vector<double>;
using Numbers = ffi::Span<const double>;

const char* const other_version =
    "sinkprop: this program was compiled for another version of sinkprop's native code. Import the installed version "
    "of "
    "sinkprop.jax, and compile the program again.";

// Values of a buffer as doubles. Those of a buffer of doubles are not copied.
const double* as_doubles(const ffi::AnyBuffer& buffer, Doubles& copy) {
    if (buffer.element_type() == ffi::F64) return buffer.typed_data<double>();
    const float* values = buffer.typed_data<float>();
    copy.assign(values, values + buffer.element_count());
    return copy.data();
}

sinkprop::Scores scores_of(const ffi::AnyBuffer& buffer) {
    if (buffer.element_type() == ffi::F64) return buffer.typed_data<double>();
    return buffer.typed_data<float>();
}

// A result, which is 0 if it is not `covered`, that is, if the work does not write to all of it
sinkprop::Results results_of(ffi::Result<ffi::AnyBuffer>& result, bool covered) {
    const auto of = [&](auto* values) -> sinkprop::Results {
        if (!covered) std::fill_n(values, result->element_count(), 0);
        return values;
    };
    return result->element_type() == ffi::F64 ? of(result->typed_data<double>()) : of(result->typed_data<float>());
}

// The lists of an operand `lists`, as a batch takes them
struct Lists {
    std::vector<std::int64_t> offsets{0}, rows;
    std::vector<std::size_t> at;  // place of the first document of each list, among all places
    // lists with a number that is not finite: places of their first documents, and of all their documents
    std::vector<std::size_t> invalid_at, invalid;
    bool covered;  // whether all places have documents, list after list, so that `rows` is not used

    // finite(i): whether all numbers of the document at place i are finite
    template <class Finite>
    Lists(const std::int32_t* lists, std::size_t n_rows, std::size_t n, Finite&& finite) {
        const std::size_t N = n_rows * n;
        covered = true;
        for (std::size_t i = 0; i < N && covered; ++i) covered = lists[i] == 0 && finite(i);
        if (covered) {
            for (std::size_t r = 0; r < n_rows; ++r) {
                at.push_back(r * n);
                offsets.push_back(std::int64_t((r + 1) * n));
            }
            return;
        }
        std::vector<std::size_t> next(n);
        std::vector<char> valid(n);
        rows.resize(N);
        for (std::size_t r = 0; r < n_rows; ++r, lists += n) {
            std::fill(next.begin(), next.end(), 0);
            std::fill(valid.begin(), valid.end(), 1);
            for (std::size_t i = 0; i < n; ++i) {
                if (lists[i] < 0) continue;
                if (std::size_t(lists[i]) >= n) throw std::invalid_argument("lists: a place is out of range");
                ++next[lists[i]];
                valid[lists[i]] &= finite(r * n + i);
            }
            std::size_t total = std::size_t(offsets.back());
            for (std::size_t f = 0; f < n; ++f) {
                const std::size_t count = next[f];
                next[f] = total;
                if (!valid[f]) invalid_at.push_back(r * n + f);
                if (!count || !valid[f]) continue;
                at.push_back(r * n + f);
                offsets.push_back(std::int64_t(total += count));
            }
            for (std::size_t i = 0; i < n; ++i) {
                if (lists[i] < 0) continue;
                if (valid[lists[i]])
                    rows[next[lists[i]]++] = std::int64_t(r * n + i);
                else
                    invalid.push_back(r * n + i);
            }
        }
    }

    const std::int64_t* rows_or_null() const { return covered ? nullptr : rows.data(); }
};

// Writes NaN to the `width` results at each of some places
void write_nan(const std::vector<std::size_t>& places, const sinkprop::Results& out, std::size_t width) {
    for (std::size_t i : places)
        for (std::size_t d = 0; d < width; ++d) out.put(i * width + d, std::numeric_limits<double>::quiet_NaN());
}

sinkprop::Settings settings_of(Numbers s) {
    if (s.size() != 6) throw std::invalid_argument("settings must have 6 numbers");
    return sinkprop::make_settings(int(s[0]), s[1], s[2] != 0, int(s[3]), s[4], s[5]);
}

// Whether the `width` scores of the i-th document are finite
bool is_finite(const sinkprop::Scores& scores, std::size_t i, std::size_t width) {
    bool finite = true;
    for (std::size_t d = 0; d < width; ++d) finite &= std::isfinite(scores[i * width + d]);
    return finite;
}

// Runs a handler's work, and returns its failure as XLA words it
template <class Work>
ffi::Error guarded(const ffi::Dictionary& attributes, Work&& work) {
    const auto version = attributes.get<std::int64_t>("version");
    if (version.has_error() || *version != interface_version)
        return ffi::Error(ffi::ErrorCode::kFailedPrecondition, other_version);
    try {
        work();
        return ffi::Error::Success();
    } catch (const std::bad_alloc&) {
        return ffi::Error(ffi::ErrorCode::kResourceExhausted, "sinkprop: out of memory");
    } catch (const std::exception& error) {
        return ffi::Error(ffi::ErrorCode::kInvalidArgument, std::string("sinkprop: ") + error.what());
    }
}

// An attribute of the program that calls a handler
template <class T>
T attribute(const ffi::Dictionary& attributes, const char* name) {
    const auto value = attributes.get<T>(name);
    if (value.has_error())
        throw std::invalid_argument(std::string(name) + ": the attribute is missing or of another type");
    return *value;
}

void require(bool fine, const char* what) {
    if (!fine) throw std::invalid_argument(what);
}

bool is_real(const ffi::AnyBuffer& buffer) {
    return buffer.element_type() == ffi::F64 || buffer.element_type() == ffi::F32;
}

// Weights of the ranks, (rows, ranks), from those of the first ranks; the weights of the ranks after are 0
Doubles padded(Numbers given, std::size_t rows, std::size_t ranks) {
    require(rows > 0 && given.size() % rows == 0, "discounts must have one row of weights after the other");
    const std::size_t had = given.size() / rows;
    Doubles weights(rows * ranks);
    for (std::size_t c = 0; c < rows; ++c)
        std::copy_n(given.begin() + c * had, std::min(had, ranks), weights.begin() + c * ranks);
    return weights;
}

// scores (R, n) or (R, n, 2), lists (R, n), gains (R, A, n) attributes of the documents. values (R, n): expected gain
// of each list, at the place of its first document. gradient: that of the sum of the values, in the shape of scores.
ffi::Error expected_gain(ffi::AnyBuffer scores, ffi::Buffer<ffi::S32> lists, ffi::AnyBuffer gains,
                         ffi::Result<ffi::AnyBuffer> values, ffi::Result<ffi::AnyBuffer> gradient,
                         ffi::Dictionary attributes) {
    return guarded(attributes, [&] {
        const auto settings = settings_of(attribute<Numbers>(attributes, "settings"));
        const auto table = attribute<Numbers>(attributes, "table");
        const auto n_discounts = std::size_t(attribute<std::int64_t>(attributes, "n_discounts"));
        const auto n_threads = int(attribute<std::int64_t>(attributes, "n_threads"));
        const std::size_t width = settings.width(), N = lists.element_count();
        require(lists.dimensions().size() >= 1 && gains.dimensions().size() >= 2, "operands must have a last axis");
        const std::size_t n = lists.dimensions().back();
        const std::size_t A = gains.dimensions()[gains.dimensions().size() - 2];
        require(n > 0 && A > 0, "operands must not be empty");
        require(is_real(scores) && is_real(gains) && is_real(*values) && is_real(*gradient),
                "numbers must be float32 or float64");
        require(scores.element_count() == N * width && gains.element_count() == N * A && values->element_count() == N &&
                    gradient->element_count() == N * width,
                "operands must have the same documents");
        const std::size_t n_rows = N / n, n_terms = table.size() / sinkprop::term_columns;
        require(n_terms > 0 && table.size() % sinkprop::term_columns == 0, "table must have rows of 10 numbers");
        const Doubles D = padded(attribute<Numbers>(attributes, "discounts"), n_discounts, n);

        Doubles gains_copy, by_attribute;
        const sinkprop::Scores x = scores_of(scores);
        const double* a = as_doubles(gains, gains_copy);
        if (A > 1 && n_rows > 1) {  // (A, R, n), as a batch has them
            by_attribute.resize(A * N);
            for (std::size_t r = 0; r < n_rows; ++r)
                for (std::size_t c = 0; c < A; ++c)
                    std::copy_n(a + (r * A + c) * n, n, by_attribute.begin() + c * N + r * n);
            a = by_attribute.data();
        }
        const Lists of(lists.typed_data(), n_rows, n, [&](std::size_t i) {
            bool finite = is_finite(x, i, width);
            for (std::size_t c = 0; c < A; ++c) finite &= std::isfinite(a[c * N + i]);
            return finite;
        });
        std::vector<sinkprop::Term> terms;
        for (std::size_t t = 0; t < n_terms; ++t) {
            terms.push_back(
                sinkprop::make_term(table.begin() + t * sinkprop::term_columns, A, D.data(), n_discounts, n));
            require(terms[t].form != sinkprop::Form::column && terms[t].form != sinkprop::Form::row,
                    "a function of Python cannot be called");
        }
        sinkprop::Batch batch = {};
        batch.scores = x;
        batch.offsets = of.offsets.data();
        batch.rows = of.rows_or_null();
        batch.n_queries = of.at.size();
        batch.gains = a;
        batch.n_documents = N;
        const sinkprop::Term& one = terms[0];
        const bool normalize = one.norm == sinkprop::Norm::ideal;
        if (n_terms == 1 && one.form == sinkprop::Form::linear && one.count == 1 && one.weight == 1 &&
            (normalize || one.norm == sinkprop::Norm::none)) {  // a rank-linear gain, which the kernels know as such
            batch.gains = a + one.first * N;
            batch.D = one.D;
            batch.n_classes = 1;
            batch.stride = n;
        } else {
            batch.terms = terms.data();
            batch.n_terms = n_terms;
            batch.n_attributes = A;
            sinkprop::require_groups(batch);
        }
        Doubles per_query(of.at.size());
        const auto value = results_of(values, false), g = results_of(gradient, of.covered);
        sinkprop::expected_gain(batch, settings, normalize && !batch.n_terms, 1.0, n_threads, per_query.data(), g);
        for (std::size_t q = 0; q < of.at.size(); ++q) value.put(of.at[q], per_query[q]);
        write_nan(of.invalid_at, value, 1);
        write_nan(of.invalid, g, width);
    });
}

// out (R, n): sum_k Pi[j, k] e[k] of each document j, for the weights e of the ranks in the attribute `column`
ffi::Error project(ffi::AnyBuffer scores, ffi::Buffer<ffi::S32> lists, ffi::Result<ffi::AnyBuffer> out,
                   ffi::Dictionary attributes) {
    return guarded(attributes, [&] {
        const auto settings = settings_of(attribute<Numbers>(attributes, "settings"));
        const auto n_threads = int(attribute<std::int64_t>(attributes, "n_threads"));
        const std::size_t width = settings.width(), N = lists.element_count();
        require(lists.dimensions().size() >= 1, "operands must have a last axis");
        const std::size_t n = lists.dimensions().back();
        require(n > 0, "operands must not be empty");
        require(is_real(scores) && is_real(*out), "numbers must be float32 or float64");
        require(scores.element_count() == N * width && out->element_count() == N,
                "operands must have the same documents");
        const Doubles column = padded(attribute<Numbers>(attributes, "column"), 1, n);
        const sinkprop::Scores x = scores_of(scores);
        const Lists of(lists.typed_data(), N / n, n, [&](std::size_t i) { return is_finite(x, i, width); });
        sinkprop::Batch batch = {};
        batch.scores = x;
        batch.offsets = of.offsets.data();
        batch.rows = of.rows_or_null();
        batch.n_queries = of.at.size();
        batch.D = column.data();
        batch.n_classes = 1;
        batch.stride = n;
        const auto e = results_of(out, of.covered);
        sinkprop::project(batch, settings, n_threads, e);
        write_nan(of.invalid, e, 1);
    });
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(expected_gain_handler, expected_gain,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    project_handler, project,
    ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Arg<ffi::Buffer<ffi::S32>>().Ret<ffi::AnyBuffer>().Attrs());

// The handlers by name, as JAX registers them, and the version of their interface
nb::tuple xla_handlers() {
    nb::dict handlers;
    handlers["sinkprop_expected_gain"] = nb::capsule(reinterpret_cast<void*>(expected_gain_handler));
    handlers["sinkprop_project"] = nb::capsule(reinterpret_cast<void*>(project_handler));
    return nb::make_tuple(handlers, interface_version);
}

}  // namespace

void bind_xla(nb::module_& m) {
    m.def("xla_handlers", &xla_handlers);
}
