// Bindings of letor.hpp: functions that read the bytes of a LETOR text into arrays, and that write arrays as text.
// Messages about faulty lines are made in Python.
#include "letor/letor.hpp"

#include <nanobind/stl/optional.h>

#include "arrays.hpp"
#include "letor/letor.hpp"

namespace {

using Bytes = Array<const std::uint8_t, nb::ndim<1>>;
using Labels = Array<double, nb::ndim<1>>;
using Ids = Array<std::int64_t, nb::ndim<1>>;
using Words = Array<std::int64_t, nb::ndim<2>>;
using sinkprop::LetorLayout;

sinkprop::Text text_of(const Bytes& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void require(bool fits, const char* name) {
    if (!fits) throw nb::type_error((std::string(name) + " has the wrong size").c_str());
}

// Throws unless each of the words (n, 2) begins and ends in a text of `size` bytes, and has at most `width` of them
void require_words(const Words& words, std::size_t size, std::size_t width) {
    const std::int64_t* p = words.data();
    for (std::size_t i = 0, n = words.shape(0); i < n; ++i, p += 2)
        if (p[0] < 0 || p[1] < p[0] || std::uint64_t(p[1]) > size || std::uint64_t(p[1] - p[0]) > width)
            throw std::invalid_argument("words must begin and end in the text, and fit into the rows of out");
}

// Throws unless each of the words ends in a text of `size` bytes, where or after the word before it ends
void require_ends(const char* name, const Index& ends, std::size_t size) {
    std::int64_t before = 0;
    for (std::size_t i = 0, n = ends.size(); i < n; before = ends.data()[i++])
        if (ends.data()[i] < before) throw std::invalid_argument(std::string(name) + " must not decrease");
    if (std::uint64_t(before) > size) throw std::invalid_argument(std::string(name) + " must not exceed the text");
}

template <class T>
nb::tuple read(const Bytes& data, const LetorLayout& layout, std::optional<Array<T, nb::ndim<2>>> X,
               std::size_t columns, const Labels& y, std::optional<Ids> qid, std::optional<Words> names,
               std::optional<Words> docids, bool zero_based, bool limited, std::optional<double> null, double largest,
               int n_threads) {
    const std::size_t rows = layout.row.back();
    auto words = [&](const std::optional<Words>& w) { return !w || (w->shape(0) == rows && w->shape(1) == 2); };
    require(layout.begin.back() == data.size(), "data");
    require(!X || (X->shape(0) == rows && X->shape(1) == columns), "X");
    require(y.size() == rows, "y");
    require((qid && qid->size() == rows) || layout.ids != sinkprop::LetorIds::numbers, "qid");
    require((names && words(names)) || layout.ids != sinkprop::LetorIds::names, "names");
    require(words(docids), "docids");
    const sinkprop::LetorOptions options = {zero_based, limited, null.has_value(), null.value_or(0), largest};
    const sinkprop::LetorTable<T> table = {
        data_or_null(X), columns, y.data(), data_or_null(qid), data_or_null(names), data_or_null(docids)};
    sinkprop::LetorFailure failure;
    {
        nb::gil_scoped_release release;
        failure = sinkprop::read_letor<T>(text_of(data), layout, options, table, n_threads);
    }
    return nb::make_tuple(int(failure.fault), failure.line, failure.begin, failure.end);
}

template <class T>
void bind_read(nb::module_& m) {
    m.def("letor_read", &read<T>, "data"_a, "layout"_a, nb::arg("X").noconvert().none(), "columns"_a,
          nb::arg("y").noconvert(), nb::arg("qid").noconvert().none(), nb::arg("names").noconvert().none(),
          nb::arg("docids").noconvert().none(), "zero_based"_a, "limited"_a, nb::arg("null").none(), "largest"_a,
          "n_threads"_a);
}

template <class T>
void bind_write(nb::module_& m) {
    m.def(
        "letor_write",
        [](const Array<const T, nb::ndim<2>>& X, const Vector& y, const nb::bytes& qid, const Index& qid_end,
           const nb::bytes& docid, std::optional<Index> docid_end, std::size_t first, std::size_t last, bool sparse,
           int n_threads) {
            const std::size_t rows = X.shape(0);
            require(y.size() == rows, "y");
            require(qid_end.size() == rows, "qid_end");
            require_ends("qid_end", qid_end, qid.size());
            require(!docid_end || docid_end->size() == rows, "docid_end");
            if (docid_end) require_ends("docid_end", *docid_end, docid.size());
            require(first <= last && last <= rows, "rows");
            const sinkprop::LetorRows<T> table = {X.data(),
                                                  X.shape(1),
                                                  y.data(),
                                                  {qid.c_str(), qid.size()},
                                                  qid_end.data(),
                                                  {docid.c_str(), docid.size()},
                                                  data_or_null(docid_end)};
            std::string text;
            {
                nb::gil_scoped_release release;
                text = sinkprop::write_letor(table, first, last, sparse, n_threads);
            }
            return nb::bytes(text.data(), text.size());
        },
        nb::arg("X").noconvert(), "y"_a, "qid"_a, "qid_end"_a, "docid"_a, nb::arg("docid_end").none(), "first"_a,
        "last"_a, "sparse"_a, "n_threads"_a);
}

}  // namespace

void bind_letor(nb::module_& m) {
    m.attr("LARGEST_LABEL") = sinkprop::largest_label;

    nb::class_<LetorLayout>(m, "LetorLayout")
        .def_prop_ro("rows", [](const LetorLayout& layout) { return layout.row.back(); })
        .def_prop_ro("chunks", [](const LetorLayout& layout) { return layout.begin.size() - 1; })
        .def_ro("largest_id", &LetorLayout::largest_id)
        .def_ro("largest_line", &LetorLayout::largest_line)
        .def_ro("comments", &LetorLayout::comments)
        .def_prop_ro("ids", [](const LetorLayout& layout) { return int(layout.ids); });

    m.def(
        "letor_scan",
        [](const Bytes& data, std::size_t chunk, int n_threads) {
            require(chunk > 0, "chunk");
            nb::gil_scoped_release release;
            return sinkprop::scan_letor(text_of(data), chunk, n_threads);
        },
        "data"_a, "chunk"_a, "n_threads"_a);

    m.def(
        "letor_count_features",
        [](const Bytes& data, const LetorLayout& layout, int n_threads) {
            require(layout.begin.back() == data.size(), "data");
            nb::gil_scoped_release release;
            return sinkprop::count_letor_features(text_of(data), layout, n_threads);
        },
        "data"_a, "layout"_a, "n_threads"_a);

    bind_read<double>(m);
    bind_read<float>(m);

    m.def(
        "letor_words",
        [](const Bytes& data, const Words& words, Array<std::uint32_t, nb::ndim<2>> out, int n_threads) {
            require(words.shape(1) == 2 && words.shape(0) == out.shape(0), "out");
            require_words(words, data.size(), out.shape(1));
            nb::gil_scoped_release release;
            return sinkprop::spread_words(text_of(data), words.data(), words.shape(0), out.shape(1), out.data(),
                                          n_threads);
        },
        "data"_a, "words"_a, nb::arg("out").noconvert(), "n_threads"_a);

    bind_write<double>(m);
    bind_write<float>(m);
}
