// write_letor: what is written for any features, labels, ids and docids must be read back as the same.
#include <limits>

#include "letor/letor.hpp"
#include "target.hpp"

namespace {

using fuzz::check;
using namespace sinkprop;

// Words of letters one after the other, and the offset where each ends; the first word is never empty if `all`, and
// neither is any other.
void words(fuzz::Input& input, std::size_t n, bool all, std::string& text, std::vector<std::int64_t>& ends) {
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t length = input.below(5) + all;
        for (std::size_t k = 0; k < length; ++k) text += char('a' + input.below(26));
        ends.push_back(std::int64_t(text.size()));
    }
}

template <class T>
void run(fuzz::Input& input) {
    const std::size_t rows = 1 + input.below(6), columns = 1 + input.below(8);
    const bool sparse = input.byte() % 2, named = input.byte() % 2;
    const int threads = 1 + int(input.byte() % 16 == 0);
    const std::size_t split = input.below(rows + 1);
    std::vector<double> y(rows);
    for (double& label : y) label = std::fmod(std::fabs(input.number()), sinkprop::largest_label);
    std::string qid, docid;
    std::vector<std::int64_t> qid_end, docid_end;
    words(input, rows, true, qid, qid_end);
    words(input, rows, false, docid, docid_end);
    std::vector<T> X(rows * columns);
    for (T& x : X) {
        const double value = input.number();
        x = std::fabs(value) <= double(std::numeric_limits<T>::max()) ? T(value) : T(0);
    }
    const LetorRows<T> table = {X.data(),
                                columns,
                                y.data(),
                                {qid.data(), qid.size()},
                                qid_end.data(),
                                {docid.data(), docid.size()},
                                named ? docid_end.data() : nullptr};
    const std::string written = write_letor(table, 0, rows, sparse, threads);
    check(written == write_letor(table, 0, split, sparse, 1) + write_letor(table, split, rows, sparse, 1),
          "what is written depends on the division of the rows");
    const std::vector<char> exact(written.begin(), written.end());
    const Text text = {exact.data(), exact.size()};
    const LetorLayout layout = scan_letor(text, 64, 1);
    check(layout.row.back() == rows && layout.largest_id == std::int64_t(columns),
          "the written text has another shape");
    std::vector<T> X_read(rows * columns, T(-7));
    std::vector<double> y_read(rows, -7);
    std::vector<std::int64_t> names(2 * rows), docids(2 * rows);
    const LetorOptions options = {false, true, false, 0, std::numeric_limits<double>::max()};
    const LetorTable<T> read = {X_read.data(), columns,      y_read.data(),
                                nullptr,       names.data(), layout.comments ? docids.data() : nullptr};
    check(read_letor<T>(text, layout, options, read, 1).fault == LetorFault::none, "the written text has a fault");
    check(fuzz::same(X, X_read) && fuzz::same(y, y_read), "the written numbers are read back as others");
    for (std::size_t i = 0; i < rows; ++i) {
        auto word = [&](const std::string& all, const std::vector<std::int64_t>& ends) {
            const std::size_t begin = i ? std::size_t(ends[i - 1]) : 0;
            return all.substr(begin, std::size_t(ends[i]) - begin);
        };
        auto found = [&](const std::vector<std::int64_t>& at) {
            return written.substr(std::size_t(at[2 * i]), std::size_t(at[2 * i + 1] - at[2 * i]));
        };
        check(found(names) == word(qid, qid_end), "the written query ids are read back as others");
        if (layout.comments)
            check(found(docids) == word(docid, docid_end), "the written docids are read back as others");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    if (input.byte() % 2)
        run<float>(input);
    else
        run<double>(input);
    return 0;
}
