#include "dispatch.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

namespace sinkprop {
namespace {

const Kernels* find(const std::string& name) {
    if (name == "baseline") return &baseline::kernels;
#if SINKPROP_X86
    __builtin_cpu_init();
    if (name == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2::kernels;
    if (name == "avx512" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma"))
        return &avx512::kernels;
#endif
    return nullptr;
}

std::atomic<const Kernels*>& in_use() {
    static std::atomic<const Kernels*> kernels{[] {
        const char* wish = std::getenv("SINKPROP_ISA");
        const Kernels* found = find(wish ? wish : instruction_sets().back());
        if (found) return found;
        std::string known;
        for (const std::string& name : instruction_sets()) known += (known.empty() ? "" : ", ") + name;
        throw std::runtime_error("SINKPROP_ISA must name an instruction set that this processor has (" + known +
                                 "); got '" + wish + "'");
    }()};
    return kernels;
}

std::atomic<Method> forced_method{Method::automatic};

}  // namespace

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const char* name : {"baseline", "avx2", "avx512"})
        if (find(name)) names.emplace_back(name);
    return names;
}

const Kernels& kernels_in_use() {
    return *in_use();
}

std::string instruction_set() {
    return in_use().load()->name;
}

bool use_instruction_set(const std::string& name) {
    const Kernels* found = find(name);
    if (found) in_use() = found;
    return found != nullptr;
}

Method method_in_use() {
    return forced_method;
}

bool use_method(const std::string& name) {
    const char* const names[] = {"auto", "direct", "banded", "cells", "sums", "fine cells"};
    for (int i = 0; i < 6; ++i)
        if (name == names[i]) {
            forced_method = Method(i);
            return true;
        }
    return false;
}

}  // namespace sinkprop
