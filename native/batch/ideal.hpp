// The gain of the best ranking, by which a normalized gain is divided.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

namespace sinkprop {

// The gain of a query's best ranking: sum_k g_(k) D(k), for the gains g_(1) >= g_(2) >= ... and the discounts D(k) of
// the ranks
class Ideal {
  public:
    explicit Ideal(const double* D, std::size_t n) : cumulative_(n + 1) {
        for (std::size_t k = 0; k < n; ++k) cumulative_[k + 1] = cumulative_[k] + D[k];
    }

    // Ideal gain of n documents, whose gains may have any order
    double operator()(const double* gains, std::size_t n) const {
        // Usually there are few distinct gains. Then the documents with each gain are counted, and the sum of the
        // discounts of their ranks is a difference of two cumulative sums. If there are more than `most` distinct
        // gains, they are sorted instead.
        constexpr std::size_t most = 32, slots = 4 * most;
        double values[most];
        std::size_t counts[most], distinct = 0;
        std::uint8_t slot[slots] = {};  // hash table: 1 + index of the gain in `values`, or 0 if the slot is empty
        for (std::size_t i = 0; i < n; ++i) {
            const double g = gains[i];
            std::uint64_t bits;
            std::memcpy(&bits, &g, sizeof bits);
            std::size_t at = std::size_t((bits * 0x9E3779B97F4A7C15u) >> 57);
            while (slot[at] && values[slot[at] - 1] != g) at = (at + 1) % slots;
            if (!slot[at]) {
                if (distinct == most) return sorted(gains, n);
                values[distinct] = g;
                counts[distinct] = 0;
                slot[at] = std::uint8_t(++distinct);
            }
            ++counts[slot[at] - 1];
        }
        double total = 0;
        for (std::size_t rank = 0; rank < n;) {
            const std::size_t k = std::max_element(values, values + distinct) - values;
            total += values[k] * (cumulative_[rank + counts[k]] - cumulative_[rank]);
            rank += counts[k];
            values[k] = values[--distinct];
            counts[k] = counts[distinct];
        }
        return total;
    }

  private:
    double sorted(const double* gains, std::size_t n) const {
        std::vector<double> g(gains, gains + n);
        std::sort(g.begin(), g.end(), std::greater<double>());
        double total = 0;
        for (std::size_t k = 0; k < n; ++k) total += g[k] * (cumulative_[k + 1] - cumulative_[k]);
        return total;
    }
    std::vector<double> cumulative_;
};

}  // namespace sinkprop
