#include "dispatch.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#if SINKPROP_X86
#include <cpuid.h>
#endif

namespace sinkprop {
namespace {

#if SINKPROP_X86
// The instruction sets that the processor has and whose registers the operating system saves. It asks the processor
// itself because __builtin_cpu_supports needs a table of the compiler's runtime library, which zig's does not have.
struct Processor {
    bool avx2 = false, avx512 = false;

    Processor() {
        unsigned eax, ebx, ecx, edx;
        if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return;
        const bool fma = ecx >> 12 & 1, xgetbv = ecx >> 27 & 1;
        if (!fma || !xgetbv || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return;
        unsigned saved, upper;
        __asm__("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
        const bool ymm = (saved & 0x06) == 0x06, zmm = (saved & 0xe6) == 0xe6;
        avx2 = ymm && (ebx >> 5 & 1);
        avx512 = zmm && (ebx >> 16 & 1) && (ebx >> 17 & 1) && (ebx >> 31 & 1);  // F, DQ and VL
    }
};
#endif

const Kernels* find(const std::string& name) {
    if (name == "baseline") return &baseline::kernels;
#if SINKPROP_X86
    static const Processor processor;
    if (name == "avx2" && processor.avx2) return &avx2::kernels;
    if (name == "avx512" && processor.avx512) return &avx512::kernels;
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

constexpr int alone = 6;
std::atomic<int> forced_method{0};  // a Method, or `alone`

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

const ListKernels& list_kernels_in_use(ListKind kind, std::size_t n, std::size_t count) {
    const Kernels* kernels = in_use();
#if SINKPROP_X86
    if (kernels != &baseline::kernels) {
        if (count <= avx2_narrow::list_kernels.lanes) return avx2_narrow::list_kernels;
        if (count <= avx2::list_kernels.lanes) return avx2::list_kernels;
        // Pairs of registers take lists of up to this number of documents in all their lanes. The vectors of longer
        // lists are better kept in a small cache than worked on side by side (times: benchmarks/crossover.py).
        constexpr std::size_t most_paired = 768;
        const bool wide = kernels == &avx512::kernels;
        const ListKernels& single = wide ? avx512::list_kernels : avx2::list_kernels;
        const ListKernels& pairs = wide ? avx512_paired::list_kernels : avx2_paired::list_kernels;
        const bool in_pairs = kind == ListKind::sweeps && n * pairs.lanes <= most_paired && count > single.lanes;
        return in_pairs ? pairs : single;
    }
#endif
    (void)kernels, (void)kind, (void)n, (void)count;
    return baseline::list_kernels;
}

Settings with_method_in_use(Settings settings) {
    const int method = forced_method;
    settings.lists = method == 0;
    settings.method = method == alone ? Method::automatic : Method(method);
    return settings;
}

bool use_method(const std::string& name) {
    const char* const names[] = {"auto", "direct", "banded", "cells", "sums", "fine cells", "alone"};
    for (int i = 0; i <= alone; ++i)
        if (name == names[i]) {
            forced_method = i;
            return true;
        }
    return false;
}

}  // namespace sinkprop
