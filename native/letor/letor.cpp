#include "letor.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "decimal.hpp"

namespace sinkprop {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

// Calls work(i) for i = 0, 1, ..., n - 1 on up to `n_threads` threads, which end before this function returns. If
// work(i) returns false, no new calls are started, but work is called for all indices below i. Rethrows the first
// exception.
template <class Work>
void in_order(std::size_t n, int n_threads, Work work) {
    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    std::mutex mutex;
    auto run = [&] {
        try {
            for (std::size_t i; (i = next++) < n;)
                if (!work(i)) next = n;
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (!failure) failure = std::current_exception();
            next = n;
        }
    };
    std::vector<std::thread> others;
    const std::size_t threads = std::min(n, std::size_t(std::max(n_threads, 1)));
    others.reserve(threads);
    try {
        while (others.size() + 1 < threads) others.emplace_back(run);
    } catch (const std::exception&) {
        // no more threads are available: the existing ones do the work
    }
    run();
    for (std::thread& t : others) t.join();
    if (failure) std::rethrow_exception(failure);
}

bool is_space(char c) {
    return c == ' ' || c == '\t';
}
bool is_letter(char c) {
    return unsigned(static_cast<unsigned char>(c) | 32) - 'a' <= 'z' - 'a';
}

const char* skip_spaces(const char* p, const char* end) {
    while (p != end && is_space(*p)) ++p;
    return p;
}

const char* find(const char* p, char c, const char* end) {
    const void* found = p == end ? nullptr : std::memchr(p, c, std::size_t(end - p));
    return found ? static_cast<const char*>(found) : end;
}

// The end of a line, without the carriage returns that precede its newline
const char* cut_return(const char* line, const char* end) {
    while (end != line && end[-1] == '\r') --end;
    return end;
}

// The text [begin, end) of a line up to its comment. `comment` says whether the line has a comment, and `document`
// whether it has a document.
struct Body {
    const char *begin, *end;
    bool comment, document;
};

Body body(const char* line, const char* end) {
    end = cut_return(line, end);
    const char* begin = skip_spaces(line, end);
    const char* hash = find(begin, '#', end);
    return {begin, hash, hash != end, begin != hash};
}

bool starts_qid(const char* p, const char* end) {
    return end - p >= 4 && std::memcmp(p, "qid:", 4) == 0;
}

// The id of the last feature on a line, which is the largest in a line without faults; -1 if there is none
std::int64_t last_id(const char* begin, const char* end) {
    while (end != begin && is_space(end[-1])) --end;
    while (end != begin && !is_space(end[-1]) && end[-1] != ':') --end;
    if (end == begin || end[-1] != ':') return -1;
    const char* p = --end;
    while (p != begin && is_digit(p[-1])) --p;
    if (p == end || (p != begin && !is_space(p[-1]))) return -1;
    std::int64_t id = 0;
    for (; p != end; ++p) {
        if (id > (most - 9) / 10) return most;
        id = id * 10 + (*p - '0');
    }
    return id;
}

// Calls work(line, end) for every line that begins at an offset in [begin, end), until one call returns false. The
// second argument points to the line's newline or to the end of the text.
template <class Work>
void each_line(Text text, std::size_t begin, std::size_t end, Work work) {
    const char* const last = text.data + text.size;
    for (const char *p = text.data + begin, *stop = text.data + end; p < stop;) {
        const char* newline = find(p, '\n', last);
        if (!work(p, newline) || newline == last) return;
        p = newline + 1;
    }
}

LetorIds kind_of_ids(Text text, std::size_t begin) {
    LetorIds kind = LetorIds::none;
    each_line(text, begin, text.size, [&](const char* line, const char* end) {
        const Body b = body(line, end);
        if (!b.document) return true;
        const char* p = b.begin;
        while (p != b.end && !is_space(*p)) ++p;
        p = skip_spaces(p, b.end);
        if (starts_qid(p, b.end)) kind = p + 4 != b.end && is_letter(p[4]) ? LetorIds::names : LetorIds::numbers;
        return false;
    });
    return kind;
}

}  // namespace

LetorLayout scan_letor(Text text, std::size_t chunk, int n_threads) {
    LetorLayout layout;
    const std::size_t start = text.size >= 3 && std::memcmp(text.data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    const char* const last = text.data + text.size;
    layout.begin.push_back(start);
    for (std::size_t at = start; text.size - at > chunk;) {
        const char* newline = find(text.data + at + chunk - 1, '\n', last);
        if (newline == last) break;
        at = std::size_t(newline - text.data) + 1;
        layout.begin.push_back(at);
    }
    if (layout.begin.back() != text.size || layout.begin.size() == 1) layout.begin.push_back(text.size);
    layout.ids = kind_of_ids(text, start);

    struct Part {
        std::size_t rows = 0;
        std::int64_t largest = -1;
        std::size_t line = 0;
        bool comments = false;
    };
    std::vector<Part> parts(layout.begin.size() - 1);
    in_order(parts.size(), n_threads, [&](std::size_t c) {
        Part part;
        each_line(text, layout.begin[c], layout.begin[c + 1], [&](const char* line, const char* end) {
            const Body b = body(line, end);
            if (!b.document) return true;
            ++part.rows;
            part.comments |= b.comment;
            const std::int64_t id = last_id(b.begin, b.end);
            if (id > part.largest) {
                part.largest = id;
                part.line = std::size_t(line - text.data);
            }
            return true;
        });
        parts[c] = part;
        return true;
    });
    layout.row.push_back(0);
    for (const Part& part : parts) {
        layout.row.push_back(layout.row.back() + part.rows);
        layout.comments |= part.comments;
        if (part.largest > layout.largest_id) {
            layout.largest_id = part.largest;
            layout.largest_line = part.line;
        }
    }
    return layout;
}

std::size_t count_letor_features(Text text, const LetorLayout& layout, int n_threads) {
    std::atomic<std::size_t> colons{0};
    in_order(layout.begin.size() - 1, n_threads, [&](std::size_t c) {
        std::size_t count = 0;
        each_line(text, layout.begin[c], layout.begin[c + 1], [&](const char* line, const char* end) {
            const Body b = body(line, end);
            count += std::size_t(std::count(b.begin, b.end, ':'));
            return true;
        });
        colons += count;
        return true;
    });
    const std::size_t qids = layout.ids == LetorIds::none ? 0 : layout.row.back();
    return colons > qids ? colons - qids : 0;
}

namespace {

// Reads the lines of one chunk, a part of the text that consists of whole lines. Each line must be followed by a byte
// that cannot be in a token, and by eight readable bytes after that one.
template <class T>
class LineReader {
  public:
    LineReader(const LetorOptions& options, LetorIds ids, const LetorTable<T>& table)
        : options_(options), ids_(ids), table_(table) {}

    // Reads [line, newline), which begins at `offset` of the text, into row `row`, and advances `row` if the line is a
    // document. Returns whether the line has no fault. Throws if the line is a document but `row` is `end_row`, the row
    // after the last one of the chunk.
    bool read(const char* line, const char* newline, std::size_t offset, std::size_t& row, std::size_t end_row) {
        line_ = line;
        offset_ = offset;
        end_ = cut_return(line, newline);
        const char* p = skip_spaces(line, end_);
        if (p != end_ && *p != '#') {
            if (row == end_row) throw std::invalid_argument("letor: the layout is not that of the text");
            p = read_label(p, row);
            if (p) p = read_qid(p, row);
            if (p) p = read_features(p, row);
            if (!p) return false;
            if (table_.docids) read_docid(p, row);
            ++row;
        }
        // Only a comment can be left. A carriage return in it is a fault: in some texts it ends a line, so that
        // documents may follow it.
        const char* lone = find(p, '\r', end_);
        if (lone != end_) return fail(LetorFault::lone_return, lone, lone + 1);
        const char* zero = find(p, '\0', end_);
        return zero == end_ || fail(LetorFault::zero_byte, zero, zero + 1);
    }

    const LetorFailure& failure() const { return failure_; }

  private:
    bool at_end(const char* p) const { return p == end_ || *p == '#'; }
    bool at_break(const char* p) const { return is_space(*p) || at_end(p); }

    const char* token_end(const char* p) const {
        while (!at_break(p)) ++p;
        return p;
    }

    bool fail(LetorFault fault, const char* begin, const char* end) {
        auto place = [&](const char* p) { return offset_ + std::size_t(p - line_); };
        failure_ = {fault, offset_, place(begin), place(end)};
        return false;
    }
    const char* fail(LetorFault fault, const char* token) {
        fail(fault, token, token_end(token));
        return nullptr;
    }

    void put(std::int64_t* words, std::size_t row, const char* begin, const char* end) const {
        words[2 * row] = std::int64_t(offset_ + std::size_t(begin - line_));
        words[2 * row + 1] = std::int64_t(offset_ + std::size_t(end - line_));
    }

    const char* read_label(const char* p, std::size_t row) {
        double label;
        const char* after = read_number(p, label);
        if (!after || !at_break(after)) {
            const bool other = find(p, ':', token_end(p)) != token_end(p);
            return fail(other ? LetorFault::label_missing : LetorFault::label, p);
        }
        if (label < 0) return fail(LetorFault::label_negative, p);
        if (label > largest_label) return fail(LetorFault::label_overflow, p);
        table_.y[row] = label;
        return after;
    }

    const char* read_qid(const char* p, std::size_t row) {
        p = skip_spaces(p, end_);
        if (!starts_qid(p, end_)) {
            if (ids_ == LetorIds::none) return p;
            return fail(LetorFault::qid_missing, p);
        }
        const char *const token = p, *const first = p + 4;
        p = first;
        if (at_break(p)) return fail(LetorFault::qid, token);
        if (is_letter(*p)) {
            while (is_letter(*p) || is_digit(*p) || *p == '.' || *p == '_' || *p == '-') ++p;
            if (!at_break(p)) return fail(LetorFault::qid, token);
            if (ids_ != LetorIds::names)
                return fail(ids_ == LetorIds::none ? LetorFault::qid_unexpected : LetorFault::qid_name, token);
            put(table_.names, row, first, p);
            return p;
        }
        std::int64_t id = 0;
        bool overflow = false;
        for (; is_digit(*p); ++p) {
            const int digit = *p - '0';
            overflow |= id > (most - digit) / 10;
            if (!overflow) id = id * 10 + digit;
        }
        if (!at_break(p)) return fail(LetorFault::qid, token);
        if (overflow) return fail(LetorFault::qid_overflow, token);
        if (ids_ != LetorIds::numbers)
            return fail(ids_ == LetorIds::none ? LetorFault::qid_unexpected : LetorFault::qid_number, token);
        table_.qid[row] = id;
        return p;
    }

    const char* read_features(const char* p, std::size_t row) {
        const std::uint64_t columns = table_.columns, from = options_.zero_based ? 0 : 1;
        T* const x = table_.X ? table_.X + row * columns : nullptr;
        std::uint64_t next = 0;  // the first column of the row that is not filled yet
        for (;;) {
            while (is_space(*p)) ++p;
            if (at_end(p)) break;
            const char* const token = p;
            std::uint64_t id = std::uint64_t(static_cast<unsigned char>(*p)) - '0';
            if (id > 9) return fail_id(token);
            for (++p; is_digit(*p); ++p) {
                if (id > std::uint64_t(most) / 10 - 1) return fail_id(token);
                id = id * 10 + std::uint64_t(*p - '0');
            }
            if (*p != ':') return fail_id(token);
            if (id < from) return fail(LetorFault::id_zero, token);
            const std::uint64_t column = id - from;
            if (column < next) return fail(column + 1 == next ? LetorFault::id_repeated : LetorFault::id_order, token);
            if (column >= columns && options_.limited) return fail(LetorFault::id_above, token);
            double value;
            const char* after = read_number(++p, value);
            if (!after || !at_break(after)) {
                after = read_null(p, value);
                if (!after) return fail_value(token, p);
            }
            p = after;
            // The comparison is false for NaN, which is not a fault: NULL may be stored as NaN.
            if (std::fabs(value) > options_.largest) return fail(LetorFault::value_overflow, token);
            if (x && column < columns) {
                for (; next < column; ++next) x[next] = 0;
                x[column] = T(value);
            }
            next = column + 1;
        }
        if (next > columns && table_.X) throw std::logic_error("letor: a feature number exceeds the number of columns");
        if (x)
            for (; next < columns; ++next) x[next] = 0;
        return p;
    }

    // The end of the word NULL, or of nan in any case, if one of them is at p; else null. Both mean a missing value.
    const char* null_end(const char* p) const {
        if (end_ - p >= 4 && std::memcmp(p, "NULL", 4) == 0 && at_break(p + 4)) return p + 4;
        const auto lower = [](char c) { return char(c | 0x20); };
        if (end_ - p >= 3 && lower(p[0]) == 'n' && lower(p[1]) == 'a' && lower(p[2]) == 'n' && at_break(p + 3))
            return p + 3;
        return nullptr;
    }

    const char* read_null(const char* p, double& value) const {
        const char* const after = options_.null_allowed ? null_end(p) : nullptr;
        if (after) value = options_.null;
        return after;
    }

    const char* fail_id(const char* token) {
        const char* const end = token_end(token);
        const char* const colon = find(token, ':', end);
        if (colon == end) return fail(LetorFault::word, token);
        if (starts_qid(token, end))
            return fail(ids_ == LetorIds::none ? LetorFault::qid_late : LetorFault::qid_twice, token);
        const char* p = token + (*token == '-');
        while (is_digit(*p)) ++p;
        if (p != colon || p == token + (*token == '-')) return fail(LetorFault::id, token);
        return fail(*token == '-' ? LetorFault::id_negative : LetorFault::id_overflow, token);
    }

    const char* fail_value(const char* token, const char* value) {
        if (at_break(value)) return fail(LetorFault::value_missing, token);
        return fail(null_end(value) ? LetorFault::value_null : LetorFault::value, token);
    }

    // Stores the docid of a line. If the line's comment starts with `docid =`, `docid:` or `docid`, the docid is the
    // next word, otherwise it is the comment's first word.
    void read_docid(const char* p, std::size_t row) const {
        auto blank = [](char c) { return static_cast<unsigned char>(c) <= ' '; };
        auto skip = [&] {
            while (p != end_ && blank(*p)) ++p;
        };
        while (p != end_ && (*p == '#' || blank(*p))) ++p;
        const char* word = p;
        while (p != end_ && !blank(*p)) ++p;
        if (p - word >= 5 && std::memcmp(word, "docid", 5) == 0) {
            const char* const end = p;
            p = word + 5;
            const bool apart = p == end;
            skip();
            const bool sign = p != end_ && (*p == '=' || *p == ':');
            if (sign) ++p;
            skip();
            if (sign || (apart && p != end_)) {
                word = p;
                while (p != end_ && !blank(*p)) ++p;
            } else {
                p = end;
            }
        }
        put(table_.docids, row, word, p);
    }

    const LetorOptions& options_;
    const LetorIds ids_;
    const LetorTable<T>& table_;
    const char *line_ = nullptr, *end_ = nullptr;
    std::size_t offset_ = 0;
    LetorFailure failure_;
};

}  // namespace

template <class T>
LetorFailure read_letor(Text text, const LetorLayout& layout, const LetorOptions& options, const LetorTable<T>& table,
                        int n_threads) {
    const std::size_t chunks = layout.begin.size() - 1;
    std::size_t failed = chunks;
    LetorFailure first;
    std::mutex mutex;
    in_order(chunks, n_threads, [&](std::size_t c) {
        LineReader<T> reader(options, layout.ids, table);
        std::size_t row = layout.row[c];
        bool fine = true;
        std::string copy;
        each_line(text, layout.begin[c], layout.begin[c + 1], [&](const char* line, const char* end) {
            const std::size_t offset = std::size_t(line - text.data);
            // The reader looks eight bytes ahead, so a line that ends near the end of the text is copied to a longer
            // buffer.
            if (std::size_t(text.data + text.size - end) < 8) {
                copy.assign(line, end);
                copy.append("\n       ");
                line = copy.data();
                end = line + copy.size() - 8;
            }
            return fine = reader.read(line, end, offset, row, layout.row[c + 1]);
        });
        if (fine) {
            if (row != layout.row[c + 1]) throw std::invalid_argument("letor: the layout is not that of the text");
            return true;
        }
        const std::lock_guard<std::mutex> lock(mutex);
        if (c < failed) {
            failed = c;
            first = reader.failure();
        }
        return false;
    });
    return first;
}

template LetorFailure read_letor(Text, const LetorLayout&, const LetorOptions&, const LetorTable<double>&, int);
template LetorFailure read_letor(Text, const LetorLayout&, const LetorOptions&, const LetorTable<float>&, int);

bool spread_words(Text text, const std::int64_t* words, std::size_t n, std::size_t width, std::uint32_t* out,
                  int n_threads) {
    const std::size_t piece = 1 << 14;
    std::atomic<bool> ascii{true};
    in_order((n + piece - 1) / piece, n_threads, [&](std::size_t c) {
        unsigned char seen = 0;
        for (std::size_t i = c * piece, last = std::min(n, i + piece); i < last; ++i) {
            const char* from = text.data + words[2 * i];
            const std::size_t length = std::size_t(words[2 * i + 1] - words[2 * i]);
            std::uint32_t* to = out + i * width;
            for (std::size_t k = 0; k < length; ++k) {
                to[k] = static_cast<unsigned char>(from[k]);
                seen |= static_cast<unsigned char>(from[k]);
            }
            std::fill(to + length, to + width, 0);
        }
        if (seen > 127) ascii = false;
        return ascii.load();
    });
    return ascii;
}

namespace {

template <class T>
void write_row(const LetorRows<T>& rows, std::size_t i, bool sparse, std::string& out) {
    auto word = [&](Text text, const std::int64_t* ends) {
        const std::size_t begin = i ? std::size_t(ends[i - 1]) : 0;
        out.append(text.data + begin, std::size_t(ends[i]) - begin);
    };
    char buffer[4096], *p = write_number(rows.y[i], buffer);
    auto flush = [&] {
        out.append(buffer, std::size_t(p - buffer));
        p = buffer;
    };
    flush();
    out += " qid:";
    word(rows.qid, rows.qid_end);
    const T* x = rows.X + i * rows.columns;
    for (std::size_t j = 0; j < rows.columns; ++j) {
        if (sparse && x[j] == 0 && !std::signbit(x[j]) && (i > 0 || j + 1 < rows.columns)) continue;
        if (buffer + sizeof buffer - p < 64) flush();
        *p++ = ' ';
        p = write_digits(j + 1, p);
        *p++ = ':';
        p = write_number(x[j], p);
    }
    flush();
    if (rows.docid_end && rows.docid_end[i] > (i ? rows.docid_end[i - 1] : 0)) {
        out += " #docid = ";
        word(rows.docid, rows.docid_end);
    }
    out += '\n';
}

}  // namespace

template <class T>
std::string write_letor(const LetorRows<T>& rows, std::size_t first, std::size_t last, bool sparse, int n_threads) {
    const std::size_t pieces = std::min(last - first, std::size_t(std::max(n_threads, 1)));
    std::vector<std::string> parts(pieces);
    in_order(pieces, n_threads, [&](std::size_t c) {
        const std::size_t n = last - first;
        for (std::size_t i = first + n * c / pieces, end = first + n * (c + 1) / pieces; i < end; ++i)
            write_row(rows, i, sparse, parts[c]);
        return true;
    });
    if (parts.empty()) return {};
    for (std::size_t c = 1; c < pieces; ++c) parts[0] += parts[c];
    return std::move(parts[0]);
}

template std::string write_letor(const LetorRows<double>&, std::size_t, std::size_t, bool, int);
template std::string write_letor(const LetorRows<float>&, std::size_t, std::size_t, bool, int);

}  // namespace sinkprop
