// Types of the arrays that the bound functions take.
//
// Every output array is bound with noconvert(): otherwise nanobind may pass the function a converted copy, and the
// caller's array would not change.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace nb = nanobind;
using namespace nb::literals;

template <class T, class... Extra>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu, Extra...>;
using Vector = Array<const double, nb::ndim<1>>;
using Matrix = Array<const double, nb::ndim<2>>;
using Index = Array<const std::int64_t, nb::ndim<1>>;

template <class A>
auto data_or_null(const std::optional<A>& array) {
    return array ? array->data() : nullptr;
}

// Throws unless an array has the expected size. With an output array of another size, a bound function would write past
// its end, or not fill it.
inline void require_size(const char* name, std::size_t size, std::size_t expected) {
    if (size == expected) return;
    throw nb::type_error(
        (std::string(name) + " must have " + std::to_string(expected) + " elements; it has " + std::to_string(size))
            .c_str());
}
