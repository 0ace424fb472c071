// The choice of the instruction set whose kernels are used, and of the method by which they multiply by a matrix.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace sinkprop {

const Kernels& kernels_in_use();
std::vector<std::string> instruction_sets();        // names of those that this processor supports, the most basic first
std::string instruction_set();                      // name of the one in use
bool use_instruction_set(const std::string& name);  // returns false if this processor does not support it

Method method_in_use();
// For tests and benchmarks: makes all later calls use this method for queries that it can handle. Returns false if the
// name is unknown.
bool use_method(const std::string& name);

}  // namespace sinkprop
