// Bindings of row_sums.hpp: products with rows of features, and exact sums held in integer words.
#include <type_traits>
#include <vector>

#include "arrays.hpp"
#include "batch/dispatch.hpp"

namespace {

template <class T>
using Features = Array<const T, nb::ndim<2>>;
using Words = Array<std::int64_t, nb::ndim<3>>;

void require(bool fits) {
    if (!fits) throw nb::type_error("arrays that do not fit together");
}

template <class T>
void bind_products(nb::module_& m) {
    m.def(
        "row_scores",
        [](const Features<T>& X, const Matrix& V, Array<double, nb::ndim<2>> out) {
            require(V.shape(1) == X.shape(1) && out.shape(0) == X.shape(0) && out.shape(1) == V.shape(0));
            nb::gil_scoped_release release;
            const auto& kernels = sinkprop::kernels_in_use();
            if constexpr (std::is_same_v<T, float>)
                kernels.row_scores_single(X.data(), X.shape(0), X.shape(1), V.data(), V.shape(0), out.data());
            else
                kernels.row_scores(X.data(), X.shape(0), X.shape(1), V.data(), V.shape(0), out.data());
        },
        nb::arg("X").noconvert(), nb::arg("V").noconvert(), nb::arg("out").noconvert());
    m.def(
        "add_products",
        [](const Features<T>& X, const Matrix& g, const Index& offsets, const Matrix& scale, Words words) {
            const std::size_t d = X.shape(1), k = g.shape(1);
            require(g.shape(0) == X.shape(0) && scale.shape(0) == k && scale.shape(1) == d && words.shape(0) == 3 &&
                    words.shape(1) == k && words.shape(2) == d);
            require_offsets(offsets, X.shape(0));
            nb::gil_scoped_release release;
            std::vector<double> sums(k * d);
            const auto& kernels = sinkprop::kernels_in_use();
            if constexpr (std::is_same_v<T, float>)
                return kernels.add_products_single(X.data(), d, g.data(), k, offsets.data(), offsets.shape(0) - 1,
                                                   scale.data(), sums.data(), words.data());
            else
                return kernels.add_products(X.data(), d, g.data(), k, offsets.data(), offsets.shape(0) - 1,
                                            scale.data(), sums.data(), words.data());
        },
        nb::arg("X").noconvert(), nb::arg("g").noconvert(), "offsets"_a, nb::arg("scale").noconvert(),
        nb::arg("words").noconvert());
}

}  // namespace

void bind_row_sums(nb::module_& m) {
    bind_products<double>(m);
    bind_products<float>(m);
    m.def(
        "add_words",
        [](const Matrix& values, const Vector& scale, Array<std::int64_t, nb::ndim<2>> words) {
            require(scale.shape(0) == values.shape(1) && words.shape(0) == 3 && words.shape(1) == values.shape(1));
            nb::gil_scoped_release release;
            return sinkprop::kernels_in_use().add_rows(values.data(), values.shape(0), scale.data(), values.shape(1),
                                                       words.data());
        },
        nb::arg("values").noconvert(), nb::arg("scale").noconvert(), nb::arg("words").noconvert());
}
