// The class of forest.hpp with any numbers as trees: it must refuse them, or give each document the sum of the leaves
// that a walk through each tree, one question at a time, finds.
#include <limits>
#include <stdexcept>

#include "queries.hpp"
#include "trees/forest.hpp"

namespace {

using fuzz::check;
using namespace sinkprop;

// Trees that are mostly right: a few of their numbers may be any
struct RandomForest {
    std::vector<std::int32_t> features, columns, no, yes;
    std::vector<std::int64_t> cut_ends{0}, column_ends{0}, leaf_ends{0};
    std::vector<double> cuts, leaves;
    std::vector<std::int8_t> tables, bounds;
    ForestData data = {};

    explicit RandomForest(fuzz::Input& input) {
        data.n_features = 1 + input.below(4);
        data.n_variables = input.below(4);
        data.single = input.byte() % 2;
        data.oblivious = input.byte() % 4 == 0;
        std::size_t n_columns = 0;
        for (std::size_t v = 0; v < data.n_variables; ++v) {
            features.push_back(std::int32_t(input.below(data.n_features)));
            const std::size_t n_cuts = input.below(7), own = 1 + input.below(3);
            for (std::size_t i = 0; i < n_cuts; ++i)
                cuts.push_back((i ? cuts.back() : -4) + 1 + double(input.below(3)) / 2);
            cut_ends.push_back(std::int64_t(cuts.size()));
            n_columns += own;
            column_ends.push_back(std::int64_t(n_columns));
            for (std::size_t i = 0; i < own * (n_cuts + 2); ++i) tables.push_back(input.take<std::int8_t>());
        }
        data.n_columns = n_columns;
        data.n_trees = n_columns ? input.below(4) : 0;
        for (std::size_t t = 0; t < data.n_trees; ++t) add_tree(input, n_columns);
        for (std::size_t change = input.below(4); change-- > 1;) damage(input);
        fill();
    }

    void add_tree(fuzz::Input& input, std::size_t n_columns) {
        const std::size_t depth = input.below(6);
        const std::size_t L = data.oblivious ? std::size_t(1) << depth : 1 + input.below(80);
        const std::size_t K = data.oblivious ? depth : L - 1, first = columns.size();
        for (std::size_t k = 0; k < K; ++k) {
            columns.push_back(std::int32_t(input.below(n_columns)));
            bounds.push_back(input.take<std::int8_t>());
            no.push_back(0);
            yes.push_back(0);
        }
        if (!data.oblivious) {
            std::vector<std::size_t> ends;  // 2 k, or 2 k + 1 for the answer yes
            const auto put = [&](std::size_t at, std::int32_t child) {
                (ends[at] % 2 ? yes : no)[first + ends[at] / 2] = child;
                ends[at] = ends.back();
                ends.pop_back();
            };
            for (std::size_t k = 0; k < K; ++k) {
                if (k) put(input.below(ends.size()), std::int32_t(k));
                ends.push_back(2 * k);
                ends.push_back(2 * k + 1);
            }
            for (std::size_t i = 0; !ends.empty(); ++i) put(0, -1 - std::int32_t(i));
        }
        for (std::size_t i = 0; i < L; ++i) leaves.push_back(double(input.take<std::int8_t>()) / 16);
        leaf_ends.push_back(std::int64_t(leaves.size()));
    }

    template <class T>
    static void set_one(fuzz::Input& input, std::vector<T>& values) {
        if (values.empty()) return;
        T& value = values[input.below(values.size())];
        value = input.byte() % 2 ? T(std::uint64_t(value) + std::uint64_t(input.take<std::int8_t>())) : input.take<T>();
    }

    void damage(fuzz::Input& input) {
        switch (input.below(7)) {
            case 0:
                return set_one(input, features);
            case 1:
                return set_one(input, columns);
            case 2:
                return set_one(input, no);
            case 3:
                return set_one(input, yes);
            case 4:
                return set_one(input, cut_ends);
            case 5:
                return set_one(input, column_ends);
            default:
                return set_one(input, leaf_ends);
        }
    }

    void fill() {
        data.features = features.data();
        data.cut_ends = cut_ends.data();
        data.cuts = cuts.data();
        data.n_cuts = cuts.size();
        data.column_ends = column_ends.data();
        data.tables = tables.data();
        data.n_tables = tables.size();
        data.columns = columns.data();
        data.bounds = bounds.data();
        data.n_questions = columns.size();
        data.no = no.data();
        data.yes = yes.data();
        data.leaf_ends = leaf_ends.data();
        data.leaves = leaves.data();
        data.n_leaves = leaves.size();
    }

    bool answer(std::size_t question, const double* x) const {
        std::size_t v = 0, place = 0;
        const auto size = [&] { return std::size_t(cut_ends[v + 1] - cut_ends[v]); };
        for (std::int64_t c = 0; c < columns[question]; ++c) {
            while (c >= column_ends[v + 1]) ++v;
            place += size() + 2;
        }
        while (columns[question] >= column_ends[v + 1]) ++v;
        const double value = x[features[v]];
        std::size_t rank = 0;
        while (rank < size() && cuts[std::size_t(cut_ends[v]) + rank] < value) ++rank;
        if (std::isnan(value)) rank = size() + 1;
        return tables[place + rank] > bounds[question];
    }

    double walk(const double* x, double start) const {
        double sum = data.single ? double(float(start)) : start;
        for (std::size_t t = 0, question = 0; t < data.n_trees; ++t) {
            const std::size_t L = std::size_t(leaf_ends[t + 1] - leaf_ends[t]);
            std::size_t leaf = 0, K = L - 1;
            if (data.oblivious) {
                for (K = 0; std::size_t(1) << K < L; ++K)
                    if (answer(question + K, x)) leaf |= std::size_t(1) << K;
            } else if (K) {
                std::int32_t node = 0;
                while (node >= 0) {
                    const std::size_t at = question + std::size_t(node);
                    node = (answer(at, x) ? yes : no)[at];
                }
                leaf = std::size_t(-1 - node);
            }
            question += K;
            const double value = leaves[std::size_t(leaf_ends[t]) + leaf];
            sum = data.single ? double(float(sum) + float(value)) : sum + value;
        }
        return sum;
    }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    fuzz::choose_instruction_set(input);
    const RandomForest random(input);
    const std::size_t n = 1 + input.below(100), d = random.data.n_features;
    std::vector<double> X(n * d), out(n, -7), out2(n, -8);
    for (double& x : X) {
        x = double(input.take<std::int8_t>()) / 8;
        if (x == 15) x = std::numeric_limits<double>::quiet_NaN();
    }
    const std::vector<float> single(X.begin(), X.end());
    try {
        const Forest forest(random.data);
        forest.score(X.data(), n, 0.5, out.data());
        forest.score(single.data(), n, 0.5, out2.data());
    } catch (const std::invalid_argument&) {
        return 0;
    }
    check(fuzz::same(out, out2), "the scores of rows in single precision are others");
    for (std::size_t i = 0; i < n; ++i)
        check(out[i] == random.walk(X.data() + i * d, 0.5), "a score is not that of a walk through the trees");
    return 0;
}
