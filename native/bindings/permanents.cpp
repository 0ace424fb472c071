// Bindings of permanents.hpp and matchings.hpp.
#include "permanents/permanents.hpp"

#include "arrays.hpp"
#include "kernels/kernels.hpp"
#include "permanents/matchings.hpp"

namespace {

std::size_t require_square(const Matrix& A, std::size_t least, std::size_t most) {
    const std::size_t n = A.shape(0);
    if (A.shape(1) != n || n < least || n > most)
        throw std::invalid_argument("the shape of the matrix is out of range");
    return n;
}

}  // namespace

void bind_permanents(nb::module_& m) {
    m.def(
        "glynn_groups",
        [](std::size_t n) {
            if (n < sinkprop::glynn_least || n > sinkprop::glynn_most) throw std::invalid_argument("n is out of range");
            return sinkprop::glynn_groups(n);
        },
        "n"_a);
    m.def(
        "glynn_sums",
        [](const Matrix& A, std::uint64_t first, int n_threads, Array<double, nb::ndim<2>> sums) {
            const std::size_t n = require_square(A, sinkprop::glynn_least, sinkprop::glynn_most);
            const std::size_t count = sums.shape(0);
            require_size("sums", sums.size(), 2 * count);
            const std::uint64_t groups = sinkprop::glynn_groups(n);
            if (count > groups || first > groups - count) throw std::invalid_argument("groups out of range");
            nb::gil_scoped_release release;
            sinkprop::glynn_sums(A.data(), n, first, first + count, n_threads, sums.data());
        },
        "A"_a, "first"_a, "n_threads"_a, nb::arg("sums").noconvert());
    m.def(
        "matching_marginals",
        [](const Matrix& A, Array<double, nb::ndim<2>> marginals) {
            const std::size_t n = require_square(A, 1, 24);
            require_size("marginals", marginals.size(), n * n);
            nb::gil_scoped_release release;
            return sinkprop::matching_marginals(A.data(), n, marginals.data());
        },
        "A"_a, nb::arg("marginals").noconvert());
    m.def(
        "draw_matchings",
        [](const Matrix& weights, const Matrix& shrink, std::uint64_t seed, std::uint64_t first, int n_threads,
           Array<std::int32_t, nb::ndim<2>> matchings) {
            const std::size_t n = require_square(weights, 1, std::size_t(1) << 16);
            require_size("shrink", shrink.size(), n * n);
            require_size("matchings", matchings.size(), matchings.shape(0) * n);
            nb::gil_scoped_release release;
            sinkprop::draw_matchings(weights.data(), shrink.data(), n, seed, first, matchings.shape(0), n_threads,
                                     matchings.data());
        },
        "weights"_a, "shrink"_a, "seed"_a, "first"_a, "n_threads"_a, nb::arg("matchings").noconvert());
}
