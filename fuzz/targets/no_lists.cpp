// In place of the kernels of lists of one instruction set, which dispatch.cpp names: none.
#include "kernels/kernels.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

extern const ListKernels list_kernels;
const ListKernels list_kernels = {};

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
