// The kernels of one instruction set with those of trees alone.
#include "kernels/kernels.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// defined in trees/evaluation.cpp
void score_trees(const ForestView&, const double*, std::size_t, double, std::int8_t*, double*);
void score_trees_single(const ForestView&, const float*, std::size_t, double, std::int8_t*, double*);

extern const Kernels kernels;
const Kernels kernels = [] {
    Kernels trees = {};
    trees.score_trees = score_trees;
    trees.score_trees_single = score_trees_single;
    return trees;
}();

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
