// A record that Python passes to a bound function as one argument
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

// A tuple of values of these types, such as a NamedTuple. In the place of the values themselves, it takes half the time
// of a call with many arguments.
template <class... Ts>
struct Record {
    std::tuple<Ts...> values;
};

template <class... Ts>
struct nanobind::detail::type_caster<Record<Ts...>> {
    using Own = Record<Ts...>;
    NB_TYPE_CASTER(Own, const_name("tuple"))

    bool from_python(handle source, std::uint32_t flags, cleanup_list*) noexcept {
        return PyTuple_Check(source.ptr()) && PyTuple_Size(source.ptr()) == Py_ssize_t(sizeof...(Ts)) &&
               read(source, flags & std::uint32_t(cast_flags::convert), std::index_sequence_for<Ts...>());
    }

  private:
    template <std::size_t... I>
    bool read(handle source, bool convert, std::index_sequence<I...>) noexcept {
        return (try_cast(handle(PyTuple_GetItem(source.ptr(), I)), std::get<I>(value.values), convert) && ...);
    }
};
