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
#include <stdexcept>
#include <string>
#include <type_traits>

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

// Throws unless `offsets` divides some of n rows into queries: whole numbers from 0 to n, each larger than the one
// before it, or equal to it if queries may be `empty`. With others, a bound function would read and write past the ends
// of its arrays. Returns the number of rows of the longest query.
inline std::size_t require_offsets(const Index& offsets, std::size_t n, bool empty = false) {
    const std::int64_t *p = offsets.data(), size = std::int64_t(offsets.size());
    if (size == 0 || p[0] < 0) throw std::invalid_argument("offsets must begin with 0 or a larger number");
    std::int64_t longest = 0;
    for (std::int64_t q = 1; q < size; ++q) {
        if (p[q] < p[q - 1] || (p[q] == p[q - 1] && !empty)) throw std::invalid_argument("offsets must increase");
        if (p[q] - p[q - 1] > longest) longest = p[q] - p[q - 1];
    }
    if (std::uint64_t(p[size - 1]) > n) throw std::invalid_argument("offsets must not exceed the number of rows");
    return std::size_t(longest);
}

// Throws unless all elements are at least 0 and below `end`
template <class T>
void require_below(const char* name, const Array<const T, nb::ndim<1>>& values, std::size_t end) {
    using Unsigned = std::make_unsigned_t<T>;  // in which a negative number exceeds every size
    const T* p = values.data();
    bool fits = true;
    for (std::size_t i = 0, n = values.size(); i < n; ++i) fits &= Unsigned(p[i]) < end;
    if (!fits) throw std::invalid_argument(std::string(name) + " must be from 0 to " + std::to_string(end) + " - 1");
}
