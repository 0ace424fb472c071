// The choice of the instruction set whose kernels are used, and of the method by which these kernels multiply a vector
// by A, the matrix that Sinkhorn's normalization turns into rank probabilities.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace sinkprop {

const Kernels& kernels_in_use();
// Names of the instruction sets that this processor supports, the most basic first
std::vector<std::string> instruction_sets();
// Name of the instruction set in use
std::string instruction_set();
// Makes all later calls use the named instruction set. Returns false if this processor does not support it.
bool use_instruction_set(const std::string& name);

// Functions with the fewest lanes for `count` lists of a kind at once, the longest of which has n documents. With
// SIZE_MAX lists, those with the most lanes.
const ListKernels& list_kernels_in_use(ListKind kind, std::size_t n, std::size_t count = SIZE_MAX);

// The settings with the method in use
Settings with_method_in_use(Settings settings);
// For tests and benchmarks: makes all later calls use the named method to multiply a vector by the matrix A. Queries
// that this method cannot handle are processed by another one. "alone" leaves the choice, except that short queries are
// not processed together. Returns false if the name is unknown.
bool use_method(const std::string& name);

}  // namespace sinkprop
