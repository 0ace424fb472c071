// The checks of trees, and their preparation for the evaluation.
#include "forest.hpp"

#include <algorithm>
#include <stdexcept>

#include "batch/dispatch.hpp"

namespace sinkprop {
namespace {

constexpr std::size_t most_leaves = 65536;  // of one tree: a leaf has a number of two bytes

void require(bool fine, const char* what) {
    if (!fine) throw std::invalid_argument(what);
}

// ends (n + 1,) as positions: they begin with 0, do not decrease, and end with `last`
std::vector<std::size_t> checked_ends(const std::int64_t* ends, std::size_t n, std::size_t last, const char* what) {
    require(ends[0] == 0 && std::uint64_t(ends[n]) == last, what);
    for (std::size_t i = 0; i < n; ++i) require(ends[i] <= ends[i + 1], what);
    return std::vector<std::size_t>(ends, ends + n + 1);
}

}  // namespace

Forest::Forest(const ForestData& data)
    : n_features_(data.n_features), oblivious_(data.oblivious), single_(data.single) {
    const std::size_t V = data.n_variables;
    for (std::size_t v = 0; v < V; ++v) {
        require(data.features[v] >= 0 && std::size_t(data.features[v]) < n_features_,
                "features must be below n_features");
        features_.push_back(std::uint32_t(data.features[v]));
    }
    cut_ends_ = checked_ends(data.cut_ends, V, data.n_cuts, "cut_ends must divide the cuts");
    cuts_.assign(data.cuts, data.cuts + data.n_cuts);
    require(data.n_cuts < UINT32_MAX && data.n_columns < UINT32_MAX, "there are too many cuts or columns");
    require(data.n_columns <= data.n_tables / 2, "tables must have one entry per cut of each column, and two more");
    column_ends_ = checked_ends(data.column_ends, V, data.n_columns, "column_ends must divide the columns");
    std::size_t size = 0;
    for (std::size_t v = 0; v < V; ++v)
        for (std::size_t c = column_ends_[v]; c < column_ends_[v + 1]; ++c) {
            table_starts_.push_back(size);
            size += cut_ends_[v + 1] - cut_ends_[v] + 2;
        }
    require(size == data.n_tables, "tables must have one entry per cut of each column, and two more");
    tables_.assign(data.tables, data.tables + data.n_tables);
    for (std::size_t k = 0; k < data.n_questions; ++k)
        require(data.columns[k] >= 0 && std::size_t(data.columns[k]) < data.n_columns,
                "columns must be below the number of columns");
    const auto leaf_ends =
        checked_ends(data.leaf_ends, data.n_trees, data.n_leaves, "leaf_ends must divide the leaves");
    step_ends_.push_back(0);
    std::size_t question = 0;
    for (std::size_t t = 0; t < data.n_trees; ++t) {
        const std::size_t L = leaf_ends[t + 1] - leaf_ends[t];
        require(L >= 1 && L <= most_leaves, "a tree must have 1 to 65536 leaves");
        std::size_t n_questions = L - 1;
        if (oblivious_) {
            for (n_questions = 0; std::size_t(1) << n_questions < L;) ++n_questions;
            require(std::size_t(1) << n_questions == L, "an oblivious tree must have 2^d leaves");
        }
        require(n_questions <= data.n_questions - question, "there must be one question per inner node or level");
        if (oblivious_)
            add_oblivious_tree(data, t, question, n_questions);
        else
            add_binary_tree(data, t, question);
        question += n_questions;
    }
    require(question == data.n_questions, "there must be one question per inner node or level");
    if (single_) single_leaves_.assign(leaves_.begin(), leaves_.end());
}

void Forest::add_oblivious_tree(const ForestData& data, std::size_t tree, std::size_t question, std::size_t depth) {
    placed_.clear();
    for (std::size_t k = 0; k < depth; ++k) {
        const Step step = {std::uint32_t(data.columns[question + k]), data.bounds[question + k],
                           std::uint8_t(1u << k % 8), 0};
        placed_.push_back({2 * (k / 8), step});
    }
    const double* const leaves = data.leaves + data.leaf_ends[tree];
    trees_.push_back({0, 0, leaves_.size()});
    leaves_.insert(leaves_.end(), leaves, leaves + (std::size_t(1) << depth));
    add_steps(depth > 8 ? 2 : 1);
}

void Forest::add_binary_tree(const ForestData& data, std::size_t tree, std::size_t question) {
    const double* const leaves = data.leaves + data.leaf_ends[tree];
    const std::size_t L = std::size_t(data.leaf_ends[tree + 1] - data.leaf_ends[tree]), K = L - 1;
    // The inner nodes come first in both arrays, then the leaves: the place of a child in them
    const auto place = [K, L](std::int32_t child, std::size_t parent) {
        const std::size_t at = child >= 0 ? std::size_t(child) : K + ~std::uint32_t(child);
        require(child >= 0 ? at > parent && at < K : at < K + L, "a child must be a later inner node, or a leaf");
        return at;
    };
    const std::int32_t *const no = data.no + question, *const yes = data.yes + question;
    // With 2 K children that all differ, each inner node but the root, and each leaf, has exactly one parent
    sizes_.assign(K + L, 0);
    for (std::size_t k = 0; k < K; ++k)
        for (const std::int32_t child : {no[k], yes[k]})
            require(sizes_[place(child, k)]++ == 0, "the children must form a tree");
    std::fill_n(sizes_.begin(), K, 0u);
    std::fill_n(sizes_.begin() + std::ptrdiff_t(K), L, 1u);
    for (std::size_t k = K; k-- > 0;) sizes_[k] = sizes_[place(no[k], k)] + sizes_[place(yes[k], k)];

    first_.assign(K + L, 0);  // the first leaf of each subtree, in the order of the bits
    placed_.clear();
    for (std::size_t k = 0; k < K; ++k) {
        std::size_t near = place(no[k], k), far = place(yes[k], k);
        const bool swapped = sizes_[far] < sizes_[near];
        if (swapped) std::swap(near, far);
        const std::size_t from = first_[k], to = from + sizes_[near];
        first_[near] = std::uint32_t(from);
        first_[far] = std::uint32_t(to);
        for (std::size_t plane = from / 8; 8 * plane < to; ++plane) {
            const unsigned above = from > 8 * plane ? 0xffu << (from - 8 * plane) : 0xffu;
            const unsigned below = to < 8 * plane + 8 ? 0xffu >> (8 * plane + 8 - to) : 0xffu;
            const Step step = {std::uint32_t(data.columns[question + k]), data.bounds[question + k],
                               std::uint8_t(above & below), 0};
            placed_.push_back({2 * plane + (swapped ? 1 : 0), step});
        }
    }
    const std::size_t n_planes = (L + 7) / 8;
    trees_.push_back({0, 0, leaves_.size()});
    leaves_.resize(leaves_.size() + 8 * n_planes, 0.0);
    for (std::size_t i = 0; i < L; ++i) leaves_[trees_.back().leaf + first_[K + i]] = leaves[i];
    add_steps(n_planes);
}

// Adds the steps that were placed, in the order of their slots, to the last tree
void Forest::add_steps(std::size_t n_planes) {
    require(steps_.size() + placed_.size() < UINT32_MAX && step_ends_.size() + 2 * n_planes < UINT32_MAX,
            "there are too many trees");
    trees_.back().plane = std::uint32_t(step_ends_.size() / 2);
    trees_.back().n_planes = std::uint32_t(n_planes);
    counts_.assign(2 * n_planes + 1, 0);
    for (const Placed& placed : placed_) ++counts_[placed.slot + 1];
    for (std::size_t slot = 0; slot < 2 * n_planes; ++slot) {
        counts_[slot + 1] += counts_[slot];
        step_ends_.push_back(std::uint32_t(steps_.size() + counts_[slot + 1]));
    }
    const std::size_t first = steps_.size();
    steps_.resize(first + placed_.size());
    for (const Placed& placed : placed_) steps_[first + counts_[placed.slot]++] = placed.step;
}

ForestView Forest::view() const {
    return {n_features_,      features_.size(),     table_starts_.size(), trees_.size(),        features_.data(),
            cut_ends_.data(), cuts_.data(),         column_ends_.data(),  table_starts_.data(), tables_.data(),
            trees_.data(),    step_ends_.data(),    steps_.data(),        oblivious_,           single_,
            leaves_.data(),   single_leaves_.data()};
}

void Forest::score(const double* X, std::size_t n, double start, double* out) const {
    std::vector<std::int8_t> scratch(trees_scratch(table_starts_.size()));
    kernels_in_use().score_trees(view(), X, n, start, scratch.data(), out);
}

void Forest::score(const float* X, std::size_t n, double start, double* out) const {
    std::vector<std::int8_t> scratch(trees_scratch(table_starts_.size()));
    kernels_in_use().score_trees_single(view(), X, n, start, scratch.data(), out);
}

}  // namespace sinkprop
