// LETOR and SVMlight ranking text: `label qid:7 1:0.5 3:2 # docid ...`, one line per document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sinkprop {

struct Text {
    const char* data;
    std::size_t size;
};

// The kind of query ids that a text has, taken from its first document
enum class LetorIds { none, numbers, names };

// The faults that a line can have, in the order of FAULTS in data/letor_errors.py, which has their messages
enum class LetorFault {
    none,
    label_missing,
    label,
    label_negative,
    label_overflow,
    qid_missing,
    qid_unexpected,
    qid_twice,
    qid_late,
    qid,
    qid_overflow,
    qid_name,
    qid_number,
    word,
    id,
    id_negative,
    id_zero,
    id_overflow,
    id_above,
    id_repeated,
    id_order,
    value_missing,
    value,
    value_overflow,
    value_null,
    lone_return,
    zero_byte,
};

// The first line that cannot be read. `line` is the offset of the line in the text; `begin` and `end` are the offsets
// in the text where the fault begins and ends.
struct LetorFailure {
    LetorFault fault = LetorFault::none;
    std::size_t line = 0, begin = 0, end = 0;
};

// Results of a first, quick scan of a text, which are correct if the text has no faults. The text is cut into chunks of
// whole lines; a row is a line with a document.
struct LetorLayout {
    std::vector<std::size_t> begin;  // offset of each chunk in the text, followed by the size of the text
    std::vector<std::size_t> row;    // index of the first row of each chunk, followed by the number of rows
    std::int64_t largest_id = -1;    // largest feature id, as written; -1 if there is none
    std::size_t largest_line = 0;    // offset of the first line that has the largest feature id
    bool comments = false;           // whether any line with a document has a comment
    LetorIds ids = LetorIds::none;
};

// The largest label. Up to it a double holds every whole number exactly, so that no two labels are confused, and sums
// of labels are finite.
constexpr double largest_label = 9007199254740992.0;  // 2^53

struct LetorOptions {
    bool zero_based;    // whether feature ids count from 0 instead of 1
    bool limited;       // whether a feature id past the last column is a fault
    bool null_allowed;  // whether NULL is allowed as the value of a feature
    double null;        // number that is stored for NULL; NaN marks a missing value
    double largest;     // largest absolute value that the type of X can hold
};

// Arrays that a text is read into, with one row per document
template <class T>
struct LetorTable {
    T* X;  // (rows, columns) features, or null if they are not kept
    std::size_t columns;
    double* y;             // (rows,) labels
    std::int64_t* qid;     // (rows,) query ids, used only if they are numbers
    std::int64_t* names;   // (rows, 2) begin and end of each query id in the text, used only if the ids are names
    std::int64_t* docids;  // (rows, 2) begin and end of each docid in the text; or null
};

LetorLayout scan_letor(Text, std::size_t chunk, int n_threads);

// Number of `id:value` pairs of features in the text
std::size_t count_letor_features(Text, const LetorLayout&, int n_threads);

// Reads a text into arrays. Returns the failure of the first line with a fault, which does not depend on the chunks and
// the number of threads; LetorFault::none if all lines were read.
template <class T>
LetorFailure read_letor(Text, const LetorLayout&, const LetorOptions&, const LetorTable<T>&, int n_threads);

// Copies n words to the rows of out (n, width), as Unicode code points padded with 0. words (n, 2) has the offsets
// where each word begins and ends in the text. Returns false if a word is not ASCII.
bool spread_words(Text, const std::int64_t* words, std::size_t n, std::size_t width, std::uint32_t* out, int n_threads);

// Rows that are written as text. `qid` has the query ids of all rows, one after another, and `qid_end` the offset where
// each of them ends; `docid` and `docid_end` have the docids in the same form.
template <class T>
struct LetorRows {
    const T* X;  // (rows, columns) features
    std::size_t columns;
    const double* y;
    Text qid;
    const std::int64_t* qid_end;
    Text docid;
    const std::int64_t* docid_end;  // null if there are no docids
};

// Returns rows [first, last) as lines of text. If `sparse`, zeros are left out, except for the last feature of row 0,
// from which a reader learns the number of features.
template <class T>
std::string write_letor(const LetorRows<T>&, std::size_t first, std::size_t last, bool sparse, int n_threads);

}  // namespace sinkprop
