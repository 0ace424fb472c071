// The functions of row_sums.hpp: sums held in integer words must not depend on the division of the queries into blocks,
// and products must agree with a plain loop.
#include <algorithm>
#include <type_traits>

#include "queries.hpp"

namespace {

using fuzz::check;
using namespace sinkprop;

template <class T>
void run(fuzz::Input& input) {
    const Kernels& kernels = kernels_in_use();
    const fuzz::RandomQueries queries(input);
    const std::size_t n = queries.documents(), d = 1 + input.below(20), k = 1 + input.below(3);
    std::vector<T> X(n * d);
    for (T& x : X) {
        const double value = input.number();
        x = std::fabs(value) < 1e30 ? T(value) : T(1e30);
    }
    std::vector<double> g(n * k), V(k * d), scale(k * d), sums(k * d), out(n * k, -7);
    for (double& x : g) x = input.byte() % 2 ? input.number() : 0;
    for (double& x : V) x = double(input.take<std::int8_t>());
    for (double& x : scale) x = std::ldexp(1.0, -int(input.below(2000)) + 1000);
    if constexpr (std::is_same_v<T, float>)
        kernels.row_scores_single(X.data(), n, d, V.data(), k, out.data());
    else
        kernels.row_scores(X.data(), n, d, V.data(), k, out.data());
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t o = 0; o < k; ++o) {
            double plain = 0, size = 0;
            for (std::size_t f = 0; f < d; ++f) {
                plain += double(X[i * d + f]) * V[o * d + f];
                size += std::fabs(double(X[i * d + f]) * V[o * d + f]);
            }
            check(std::fabs(out[i * k + o] - plain) <= 1e-14 * size, "row_scores is not the product");
        }
    auto add = [&](std::size_t from, std::size_t to, std::vector<std::int64_t>& words) {
        if constexpr (std::is_same_v<T, float>)
            return kernels.add_products_single(X.data(), d, g.data(), k, queries.offsets.data() + from, to - from,
                                               scale.data(), sums.data(), words.data());
        else
            return kernels.add_products(X.data(), d, g.data(), k, queries.offsets.data() + from, to - from,
                                        scale.data(), sums.data(), words.data());
    };
    std::vector<std::int64_t> words(3 * k * d, 0), parts(3 * k * d, 0);
    const std::size_t split = input.below(queries.queries() + 1);
    const bool fits = add(0, queries.queries(), words);
    const bool second = add(split, queries.queries(), parts), first = add(0, split, parts);
    check(fits == (first && second), "whether a sum fits depends on the blocks");
    if (fits) check(fuzz::same(words, parts), "an exact sum depends on the blocks");
}

void run_rows(fuzz::Input& input) {
    const Kernels& kernels = kernels_in_use();
    const std::size_t n = 1 + input.below(20), m = 1 + input.below(20);
    std::vector<double> values = fuzz::numbers(input, n * m), scale(m), reversed(n * m);
    for (double& x : scale) x = std::ldexp(1.0, -int(input.below(2000)) + 1000);
    for (std::size_t i = 0; i < n; ++i) std::copy_n(values.data() + i * m, m, reversed.data() + (n - 1 - i) * m);
    std::vector<std::int64_t> words(3 * m, 0), words2(3 * m, 0);
    const bool fits = kernels.add_rows(values.data(), n, scale.data(), m, words.data());
    check(fits == kernels.add_rows(reversed.data(), n, scale.data(), m, words2.data()),
          "whether a sum fits depends on the order");
    if (fits) check(fuzz::same(words, words2), "an exact sum depends on the order");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    fuzz::choose_instruction_set(input);
    switch (input.below(3)) {
        case 0:
            run<double>(input);
            break;
        case 1:
            run<float>(input);
            break;
        default:
            run_rows(input);
    }
    return 0;
}
