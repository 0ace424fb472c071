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

// The kind of the query ids of a text, by its first line
enum class LetorIds { none, numbers, names };

// The fault of a line. Python has the words for it: the order is that of FAULTS in data/letor_errors.py.
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

// The first line that cannot be read, and the position of the fault in it: offsets into the text
struct LetorFailure {
    LetorFault fault = LetorFault::none;
    std::size_t line = 0, begin = 0, end = 0;
};

// Results of a first, quick scan of a text. They are correct for a text without faults. A chunk is a run of whole
// lines.
struct LetorLayout {
    std::vector<std::size_t> begin;  // offset of each chunk, and of the end of the text
    std::vector<std::size_t> row;    // first row of each chunk, and the number of rows
    std::int64_t largest_id = -1;    // largest feature id, as written; -1 if there is none
    std::size_t largest_line = 0;    // offset of the first line that has it
    bool comments = false;           // whether the line of a document has a comment
    LetorIds ids = LetorIds::none;
};

struct LetorOptions {
    bool zero_based;    // whether ids count from 0
    bool limited;       // whether an id past the last column is a fault
    bool null_allowed;  // whether NULL is allowed as a value
    double null;        // value to use for NULL; NaN keeps it as missing
    double largest;     // the largest value that the type of X holds
};

// Arrays that a text is read into. Words are given by their begin and end offsets in the text.
template <class T>
struct LetorTable {
    T* X;  // (rows, columns), or null to read without keeping
    std::size_t columns;
    double* y;             // (rows,)
    std::int64_t* qid;     // (rows,), where ids are numbers
    std::int64_t* names;   // (rows, 2), where ids are names
    std::int64_t* docids;  // (rows, 2), or null
};

LetorLayout scan_letor(Text, std::size_t chunk, int n_threads);

// Number of features in the text, that is, of cells of X that it fills
std::size_t count_letor_features(Text, const LetorLayout&, int n_threads);

// Returns the failure of the first faulty line, for any chunks and any number of threads.
template <class T>
LetorFailure read_letor(Text, const LetorLayout&, const LetorOptions&, const LetorTable<T>&, int n_threads);

// Writes words as rows of `width` code points, padded with 0. Returns false if a word is not ASCII.
bool spread_words(Text, const std::int64_t* words, std::size_t n, std::size_t width, std::uint32_t* out, int n_threads);

// Rows to write. Query ids and docids are concatenated texts, with the offset of the end of each.
template <class T>
struct LetorRows {
    const T* X;  // (rows, columns)
    std::size_t columns;
    const double* y;
    Text qid;
    const std::int64_t* qid_end;
    Text docid;
    const std::int64_t* docid_end;  // or null
};

// The lines of rows [first, last). `sparse` leaves out zeros, except the last feature of row 0, from which a reader
// knows the number of features.
template <class T>
std::string write_letor(const LetorRows<T>&, std::size_t first, std::size_t last, bool sparse, int n_threads);

}  // namespace sinkprop
