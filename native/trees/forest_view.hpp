// Sums of trees, as they are evaluated for documents.
//
// The values of a feature are told apart by its cuts c_0 < c_1 < ... alone. The rank of a value x is the number of cuts
// below x; a missing value has the rank of one more than all cuts. A column holds one byte per document, which is a
// table's entry for the rank of a feature's value. A question compares such a byte with a constant b: its answer is
// no for byte <= b, and yes for byte > b. So each rule for missing values, zeros and categories is an entry of a table,
// and the evaluation of a tree compares bytes of many documents at once.
//
// A tree with L leaves has L bits per document, which are cleared for leaves that the document does not reach. Each
// inner node clears the bits of one of its sides if the answer is the other side. If this side comes first in the order
// of the leaves, then the first bit that is left is that of the document's leaf (Lucchese et al. 2015, QuickScorer).
// Each node may choose the smaller of its sides, so that O(L log L) bits are cleared at most. The bits are processed as
// planes of eight leaves: a plane is one byte per document (Ye et al. 2018, RapidScorer).
//
// An oblivious tree of depth d asks the same question at all nodes of one level. The number of its leaf has the answer
// to question k as bit k.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinkprop {

// A question and the bits of its plane that its answer sets
struct Step {
    std::uint32_t column;
    std::int8_t bound;
    std::uint8_t bits;
    std::uint16_t unused;
};

struct TreePlace {
    std::uint32_t plane;     // its first plane
    std::uint32_t n_planes;  // at least 1
    std::size_t leaf;        // its first leaf
};

// What a kernel reads of a forest; see the arguments of Forest
struct ForestView {
    std::size_t n_features, n_variables, n_columns, n_trees;
    const std::uint32_t* features;    // (n_variables,)
    const std::size_t* cut_ends;      // (n_variables + 1,)
    const double* cuts;               // (cut_ends[n_variables],)
    const std::size_t* column_ends;   // (n_variables + 1,)
    const std::size_t* table_starts;  // (n_columns,)
    const std::int8_t* tables;
    const TreePlace* trees;  // (n_trees,)
    // plane p has the steps from step_ends[2 p] to step_ends[2 p + 1], whose bits are set if the answer is yes, and
    // those to step_ends[2 p + 2], whose bits are set if it is no
    const std::uint32_t* step_ends;
    const Step* steps;
    bool oblivious;  // the bits of all planes are the number of the leaf; otherwise they are the leaves not reached
    bool single;     // sums are in single precision
    const double* leaves;
    const float* single_leaves;
};

}  // namespace sinkprop
