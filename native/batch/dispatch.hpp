// Which compiled set of kernels is in use, and by which method they compute a product.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace sinkprop {

const Kernels& kernels_in_use();
std::vector<std::string> instruction_sets();        // those this processor runs, plainest first
std::string instruction_set();                      // the one in use
bool use_instruction_set(const std::string& name);  // false where it cannot be used

Method method_in_use();
// For tests and benchmarks: every later call uses this method wherever it can. False for an unknown name.
bool use_method(const std::string& name);

}  // namespace sinkprop
