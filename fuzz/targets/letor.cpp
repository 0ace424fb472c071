// The reader of LETOR text: two divisions into chunks, with different numbers of threads, must give the same result,
// and it must be that of the simple reader.
#include "letor/letor.hpp"

#include <limits>

#include "simple_letor.hpp"
#include "target.hpp"

namespace {

using fuzz::check;
using namespace sinkprop;

constexpr std::size_t most_cells =
    1 << 14;  // above it, features are parsed but not kept, as for a file that is too large

template <class T>
struct Table {
    LetorLayout layout;
    LetorFailure failure;
    std::size_t features = 0, columns = 0;
    bool kept = false;
    std::vector<T> X;
    std::vector<double> y;
    std::vector<std::int64_t> qid, names, docids;
};

template <class T>
Table<T> read(Text text, std::size_t chunk, int threads, const fuzz::SimpleOptions& o) {
    Table<T> t;
    t.layout = scan_letor(text, chunk, threads);
    t.features = count_letor_features(text, t.layout, threads);
    const std::size_t rows = t.layout.row.back();
    const std::uint64_t wide = std::uint64_t(t.layout.largest_id) + o.zero_based;  // -1 + 0 is the largest number
    t.columns = o.limited ? o.columns : t.layout.largest_id < 0 ? 0 : std::size_t(wide);
    t.kept = t.columns && (!rows || t.columns <= most_cells / rows);
    if (t.kept) t.X.assign(rows * t.columns, T(-7));
    t.y.assign(rows, -7);
    if (t.layout.ids == LetorIds::numbers) t.qid.assign(rows, -7);
    if (t.layout.ids == LetorIds::names) t.names.assign(2 * rows, -7);
    if (t.layout.comments) t.docids.assign(2 * rows, -7);
    const LetorOptions options = {o.zero_based, o.limited, o.null_allowed, o.null, o.largest};
    const LetorTable<T> table = {t.kept ? t.X.data() : nullptr,
                                 t.columns,
                                 t.y.data(),
                                 t.qid.data(),
                                 t.names.data(),
                                 t.layout.comments ? t.docids.data() : nullptr};
    t.failure = read_letor<T>(text, t.layout, options, table, threads);
    return t;
}

template <class T>
void compare(const Table<T>& a, const Table<T>& b) {
    check(a.layout.row.back() == b.layout.row.back() && a.layout.largest_id == b.layout.largest_id &&
              a.layout.largest_line == b.layout.largest_line && a.layout.comments == b.layout.comments &&
              a.layout.ids == b.layout.ids && a.features == b.features,
          "the scan depends on the chunks");
    check(a.failure.fault == b.failure.fault && a.failure.line == b.failure.line &&
              a.failure.begin == b.failure.begin && a.failure.end == b.failure.end,
          "the fault depends on the chunks");
    if (a.failure.fault != LetorFault::none) return;
    check(fuzz::same(a.X, b.X) && fuzz::same(a.y, b.y) && fuzz::same(a.qid, b.qid) && fuzz::same(a.names, b.names) &&
              fuzz::same(a.docids, b.docids),
          "the arrays depend on the chunks");
}

std::string word_at(const std::string& text, const std::vector<std::int64_t>& places, std::size_t row) {
    const std::int64_t begin = places[2 * row], end = places[2 * row + 1];
    check(0 <= begin && begin <= end && std::size_t(end) <= text.size(), "a word lies outside the text");
    return text.substr(std::size_t(begin), std::size_t(end - begin));
}

template <class T>
void compare_row(const std::string& text, const Table<T>& t, const fuzz::SimpleRow& row, std::size_t i) {
    check(std::memcmp(&t.y[i], &row.label, sizeof row.label) == 0, "another label than the simple reader");
    if (!t.qid.empty()) check(std::to_string(t.qid[i]) == row.qid, "another qid than the simple reader");
    if (!t.names.empty()) check(word_at(text, t.names, i) == row.qid, "another qid than the simple reader");
    if (!t.docids.empty()) check(word_at(text, t.docids, i) == row.docid, "another docid than the simple reader");
    if (!t.kept) return;
    std::vector<T> x(t.columns, T(0));
    for (const auto& [column, value] : row.features) x[column] = T(value);
    check(std::memcmp(x.data(), t.X.data() + i * t.columns, t.columns * sizeof(T)) == 0,
          "other features than the simple reader");
}

template <class T>
void compare(const std::string& text, const Table<T>& t, const fuzz::SimpleOptions& options) {
    const fuzz::SimpleResult simple = fuzz::simple_letor(text, options);
    check(simple.fault == (t.failure.fault != LetorFault::none),
          "the simple reader disagrees whether there is a fault");
    if (simple.fault) {
        check(simple.line == t.failure.line, "the simple reader finds the fault on another line");
        check(t.failure.begin <= t.failure.end && t.failure.end <= text.size(), "the fault lies outside the text");
        return;
    }
    check(int(simple.ids) == int(t.layout.ids) && simple.comments == t.layout.comments &&
              simple.rows.size() == t.layout.row.back() && (options.limited || simple.columns == t.columns),
          "another layout than the simple reader");
    std::size_t features = 0;
    for (std::size_t i = 0; i < simple.rows.size(); ++i) {
        features += simple.rows[i].features.size();
        compare_row(text, t, simple.rows[i], i);
    }
    check(features == t.features, "another number of features than the simple reader");
}

template <class T>
void run(Text text, std::size_t first, std::size_t second, int threads, const fuzz::SimpleOptions& options) {
    const Table<T> a = read<T>(text, first, 1, options), b = read<T>(text, second, threads, options);
    compare(a, b);
    compare(std::string(text.data, text.size), a, options);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::size_t first = 1 + input.byte(), second = 1 + input.byte();
    const unsigned flags = input.byte();
    // Starting a thread takes longer than all the rest, so that threads have a target of their own.
#ifdef SINKPROP_FUZZ_THREADS
    const int threads = 2 + int(second % 2);
#else
    const int threads = 1;
#endif
    const bool single = flags & 1;
    fuzz::SimpleOptions options = {};
    options.zero_based = flags & 2;
    options.limited = flags & 4;
    options.null_allowed = flags & 8;
    options.null = flags & 16 ? std::numeric_limits<double>::quiet_NaN() : -1.5;
    options.largest =
        single ? std::nextafter(std::ldexp(1.0, 128) - std::ldexp(1.0, 103), 0.0) : std::numeric_limits<double>::max();
    options.columns = 1 + (flags >> 5);
    const Text text = {input.rest(), input.left()};
    if (single)
        run<float>(text, first, second, threads, options);
    else
        run<double>(text, first, second, threads, options);
    return 0;
}
