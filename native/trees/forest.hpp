// Sums of trees: checked and prepared once, as forest_view.hpp describes, and then evaluated for any documents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trees/forest_view.hpp"

namespace sinkprop {

// The trees as a caller has them, checked and prepared by Forest.
struct ForestData {
    std::size_t n_features, n_variables, n_columns, n_trees;
    const std::int32_t* features;  // (n_variables,) feature of each variable
    const std::int64_t* cut_ends;  // (n_variables + 1,) where the cuts of each variable begin and end
    const double* cuts;            // increasing for each variable
    std::size_t n_cuts;
    const std::int64_t* column_ends;  // (n_variables + 1,) where the columns of each variable begin and end
    const std::int8_t* tables;        // for each column one entry per cut of its variable, and two more
    std::size_t n_tables;
    // (K,) questions of all trees. A binary tree with L leaves has L - 1, one for each inner node, and the first is its
    // root. An oblivious tree with 2^d leaves has d.
    const std::int32_t* columns;
    const std::int8_t* bounds;
    std::size_t n_questions;
    bool oblivious;
    // (K,) children of each inner node if the answer is no, and yes: the number of a later inner node of the tree, or
    // -1 - i for leaf i; not read for oblivious trees
    const std::int32_t *no, *yes;
    const std::int64_t* leaf_ends;  // (n_trees + 1,) where the leaves of each tree begin and end
    const double* leaves;
    std::size_t n_leaves;
    bool single;
};

// Trees that were checked once: an evaluation reads and writes nothing but its own arrays, for any features. It is
// never changed, so that several threads can use it.
class Forest {
  public:
    // Throws std::invalid_argument if a number is not one of those that it may be
    explicit Forest(const ForestData& data);

    std::size_t n_features() const { return n_features_; }
    // out (n,): start plus the leaves of row i of X (n, n_features), one tree after the other
    void score(const double* X, std::size_t n, double start, double* out) const;
    void score(const float* X, std::size_t n, double start, double* out) const;

  private:
    void add_binary_tree(const ForestData& data, std::size_t tree, std::size_t question);
    void add_oblivious_tree(const ForestData& data, std::size_t tree, std::size_t question, std::size_t depth);
    void add_steps(std::size_t n_planes);
    ForestView view() const;

    struct Placed {
        std::size_t slot;  // 2 plane + (0 if the answer yes sets the bits, otherwise 1)
        Step step;
    };

    std::size_t n_features_;
    bool oblivious_, single_;
    std::vector<std::uint32_t> features_;
    std::vector<std::size_t> cut_ends_, column_ends_, table_starts_;
    std::vector<double> cuts_, leaves_;
    std::vector<std::int8_t> tables_;
    std::vector<TreePlace> trees_;
    std::vector<std::uint32_t> step_ends_;
    std::vector<Step> steps_;
    std::vector<float> single_leaves_;
    // of the tree that is being added
    std::vector<std::uint32_t> sizes_, first_;
    std::vector<Placed> placed_;
    std::vector<std::size_t> counts_;
};

}  // namespace sinkprop
