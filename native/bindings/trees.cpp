// Binding of forest.hpp.
#include <nanobind/stl/optional.h>

#include <new>
#include <optional>

#include "arrays.hpp"
#include "trees/forest.hpp"

namespace {

using Shorts = Array<const std::int32_t, nb::ndim<1>>;
using Octets = Array<const std::int8_t, nb::ndim<1>>;
using sinkprop::Forest;

void make(Forest* self, std::size_t n_features, const Shorts& features, const Index& cut_ends, const Vector& cuts,
          const Index& column_ends, const Octets& tables, const Shorts& columns, const Octets& bounds,
          const std::optional<Shorts>& no, const std::optional<Shorts>& yes, const Index& leaf_ends,
          const Vector& leaves, bool single) {
    const std::size_t V = features.size(), K = columns.size();
    require_size("cut_ends", cut_ends.size(), V + 1);
    require_size("column_ends", column_ends.size(), V + 1);
    require_size("bounds", bounds.size(), K);
    require_size("no", no ? no->size() : 0, no ? K : 0);
    require_size("yes", yes ? yes->size() : 0, no ? K : 0);
    if (leaf_ends.size() == 0) throw std::invalid_argument("leaf_ends must begin with 0");
    const std::int64_t n_columns = column_ends.data()[V];
    if (n_columns < 0) throw std::invalid_argument("column_ends must divide the columns");
    new (self) Forest({n_features,
                       V,
                       std::size_t(n_columns),
                       leaf_ends.size() - 1,
                       features.data(),
                       cut_ends.data(),
                       cuts.data(),
                       cuts.size(),
                       column_ends.data(),
                       tables.data(),
                       tables.size(),
                       columns.data(),
                       bounds.data(),
                       K,
                       !no,
                       data_or_null(no),
                       data_or_null(yes),
                       leaf_ends.data(),
                       leaves.data(),
                       leaves.size(),
                       single});
}

template <class T>
void score(const Forest& forest, const Array<const T, nb::ndim<2>>& X, double start, Array<double, nb::ndim<1>> out) {
    require_size("X", X.size(), X.shape(0) * forest.n_features());
    require_size("out", out.size(), X.shape(0));
    nb::gil_scoped_release release;
    forest.score(X.data(), X.shape(0), start, out.data());
}

}  // namespace

void bind_trees(nb::module_& m) {
    nb::class_<Forest>(m, "Forest")
        .def("__init__", &make, "n_features"_a, nb::arg("features").noconvert(), "cut_ends"_a, "cuts"_a,
             "column_ends"_a, nb::arg("tables").noconvert(), nb::arg("columns").noconvert(),
             nb::arg("bounds").noconvert(), nb::arg("no").noconvert().none(), nb::arg("yes").noconvert().none(),
             "leaf_ends"_a, "leaves"_a, "single"_a)
        .def("score", &score<double>, nb::arg("X").noconvert(), "start"_a, nb::arg("out").noconvert())
        .def("score", &score<float>, nb::arg("X").noconvert(), "start"_a, nb::arg("out").noconvert());
}
