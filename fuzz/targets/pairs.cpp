// The pairwise loss on queries of any sizes: the result must not depend on the threads.
#include <algorithm>

#include "batch/batch.hpp"
#include "queries.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    fuzz::choose_instruction_set(input);
    const fuzz::RandomQueries queries(input);
    const std::size_t n = queries.documents(), q = queries.queries();
    const std::vector<double> scores = fuzz::numbers(input, n);
    // labels in decreasing order within each query, as the caller sorts them
    std::vector<std::int64_t> lower(n);
    for (std::size_t i = 0; i < q; ++i) {
        const std::size_t begin = std::size_t(queries.offsets[i]), m = std::size_t(queries.offsets[i + 1]) - begin;
        std::vector<std::size_t> labels(m);
        for (std::size_t& label : labels) label = input.below(3);
        std::sort(labels.rbegin(), labels.rend());
        for (std::size_t j = 0; j < m; ++j) {
            std::size_t k = j;
            while (k < m && labels[k] == labels[j]) ++k;
            lower[begin + j] = std::int64_t(k);
        }
    }
    std::vector<double> weight(n);
    for (double& w : weight) w = double(input.below(3));
    const bool weighted = input.byte() % 2;
    const sinkprop::PairBatch batch = {
        scores.data(), queries.offsets.data(), queries.rows.data(), lower.data(), q, weighted ? weight.data() : nullptr,
        nullptr};
    std::vector<double> loss(q, -7), loss2(q, -8), g(n, -7), h(n, -7), g2(n, -8), h2(n, -8);
    sinkprop::pairwise_loss(batch, 1, loss.data());
    sinkprop::pairwise_loss(batch, 2, loss2.data());
    sinkprop::pairwise_derivatives(batch, 1, g.data(), h.data());
    sinkprop::pairwise_derivatives(batch, 2, g2.data(), h2.data());
    fuzz::check(fuzz::same(loss, loss2) && fuzz::same(g, g2) && fuzz::same(h, h2),
                "the pairwise loss depends on the threads");
    for (double value : h) fuzz::check(!(value < 0), "a second derivative of the pairwise loss is negative");
    return 0;
}
