// Binding of assignment.hpp.
#include "assignment/assignment.hpp"

#include <cmath>

#include "arrays.hpp"

void bind_assignment(nb::module_& m) {
    m.def(
        "assign",
        [](const Matrix& cost, Array<std::int64_t, nb::ndim<1>> column) {
            const std::size_t n = cost.shape(0);
            if (cost.shape(1) != n || column.shape(0) != n) throw nb::type_error("arrays that do not fit together");
            for (std::size_t k = 0; k < n * n; ++k)
                if (std::isnan(cost.data()[k]) || cost.data()[k] == -HUGE_VAL)
                    throw nb::value_error("costs must be numbers above minus infinity");
            nb::gil_scoped_release release;
            return sinkprop::assign(cost.data(), n, column.data());
        },
        nb::arg("cost").noconvert(), nb::arg("column").noconvert());
}
