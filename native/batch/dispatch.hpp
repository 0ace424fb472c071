// The choice of the compiled kernels, and of the method by which they compute a product.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace sinkprop {

const Kernels& kernels_in_use();
std::vector<std::string> instruction_sets();        // those that this processor supports, the most basic first
std::string instruction_set();                      // the one in use
bool use_instruction_set(const std::string& name);  // false if it cannot be used

Method method_in_use();
// For tests and benchmarks: every later call uses this method if it can. Returns false for an unknown name.
bool use_method(const std::string& name);

}  // namespace sinkprop
