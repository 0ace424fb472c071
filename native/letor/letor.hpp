// LETOR and SVMlight ranking text: `label qid:7 1:0.5 3:2 # docid ...`, a line a document.
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

// What the query ids of a text are, by its first line
enum class LetorIds { none, numbers, names };

// What is wrong with a line. Python words it: the order is that of FAULTS in readers.py.
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

// The first line that cannot be read, and the place in it: offsets into the text
struct LetorFailure {
    LetorFault fault = LetorFault::none;
    std::size_t line = 0, begin = 0, end = 0;
};

// What a first, quick look at a text tells, right wherever the text can be read. A chunk is a run of whole lines.
struct LetorLayout {
    std::vector<std::size_t> begin;  // of each chunk, and the end of the text
    std::vector<std::size_t> row;    // the first of each chunk, and their number
    std::int64_t largest_id = -1;    // of a feature, as written; -1 if there is none
    std::size_t largest_line = 0;    // where the line of its first appearance begins
    bool comments = false;           // whether a line of a document has one
    LetorIds ids = LetorIds::none;
};

struct LetorOptions {
    bool zero_based;    // whether ids count from 0
    bool limited;       // whether an id past the last column is a fault
    bool null_allowed;  // whether NULL may stand for a value
    double null;        // and which; NaN keeps it as missing
    double largest;     // the largest value that the type of X holds
};

// Where a text is read to. Words are begin and end offsets into the text.
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

// Features in the text, that is cells of X that it fills
std::size_t count_letor_features(Text, const LetorLayout&, int n_threads);

// The failure is that of the first faulty line, whatever the chunks and threads.
template <class T>
LetorFailure read_letor(Text, const LetorLayout&, const LetorOptions&, const LetorTable<T>&, int n_threads);

// Words as rows of `width` code points, filled up with 0. False if one is not ASCII.
bool spread_words(Text, const std::int64_t* words, std::size_t n, std::size_t width, std::uint32_t* out, int n_threads);

// Rows to write: the ids and docids are texts, one after another, with the offsets of their ends.
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

// The lines of rows [first, last). `sparse` leaves out zeros, but the last feature of row 0, which tells how many
// there are.
template <class T>
std::string write_letor(const LetorRows<T>&, std::size_t first, std::size_t last, bool sparse, int n_threads);

}  // namespace sinkprop
