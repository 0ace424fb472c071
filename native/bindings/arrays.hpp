// Arrays as the bound functions take them.
//
// Every array that is written to is bound with noconvert(): nanobind would otherwise hand the function a converted
// copy, and the caller's array would stay as it was.
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

// An array that the caller will read: one of another size would be written past its end, or left in part.
inline void require_size(const char* name, std::size_t size, std::size_t expected) {
    if (size == expected) return;
    throw nb::type_error(
        (std::string(name) + " must have " + std::to_string(expected) + " elements; it has " + std::to_string(size))
            .c_str());
}
