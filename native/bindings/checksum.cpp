// Binding of xxh64.hpp.
#include "arrays.hpp"
#include "checksum/xxh64.hpp"

void bind_checksum(nb::module_& m) {
    m.def(
        "xxh64",
        [](const Array<const std::uint8_t, nb::ndim<1>>& data, std::uint64_t seed) {
            nb::gil_scoped_release release;
            return sinkprop::Xxh64::of(data.data(), data.size(), seed);
        },
        nb::arg("data").noconvert(), "seed"_a);
}
