// Binding of rankings.hpp.
#include "arrays.hpp"
#include "sampling/rankings.hpp"

void bind_sampling(nb::module_& m) {
    m.def(
        "draw_rankings",
        [](const Matrix& p, std::uint64_t seed, Array<std::int64_t, nb::ndim<2>> rankings) {
            const std::size_t n = p.shape(0), k = p.shape(1), size = rankings.shape(0);
            require_size("rankings", rankings.size(), size * k);
            if (k == 0 || k > n || p.size() >= UINT32_MAX || size == 0 || size > std::size_t(1) << 30)
                throw std::invalid_argument("the numbers of documents, ranks and rankings are out of range");
            nb::gil_scoped_release release;
            sinkprop::draw_rankings(p.data(), n, k, size, seed, rankings.data());
        },
        "p"_a, "seed"_a, nb::arg("rankings").noconvert());
}
