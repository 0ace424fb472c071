// Noise that is added to scores (docs/boosting.md): nearly normal. That of a query is a function of a seed, of the
// query's index and of its scores; if one bit of any score changes, all of the query's noise changes. A Word is an
// unsigned number of 64 bits, or a vector of them, with one for each of several queries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sampling/splitmix64.hpp"

namespace sinkprop {

// The variance of the noise, which is the sum of four 16-bit uniform numbers
constexpr double noise_variance = (65536.0 * 65536.0 - 1) / 3;

// The key of a query's noise, to which `add_to_key` must add the query's scores
static inline std::uint64_t first_noise_key(std::uint64_t seed, std::size_t query) {
    return splitmix64(seed ^ splitmix64(std::uint64_t(query + 1)));
}

// `score` has the bits of a score. That of 0 must be positive, so that equal scores have equal bits.
template <class Word>
static inline Word add_to_key(Word key, Word score) {
    key = (key ^ score) * 0x9E3779B97F4A7C15u;
    return key ^ key >> 29;
}

// The bits of a double: noise_offset plus the noise of a query's i-th document. Not all instruction sets can convert
// integers to doubles in vectors; here the integer is in the low bits of a number between 2^52 and 2^53.
template <class Word>
static inline Word noise_bits(Word key, std::size_t i) {
    const Word z = splitmix64(key + i * std::uint64_t(0xD1342543DE82EF95u));
    const Word total = (z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48);
    return total | 0x4330000000000000u;
}
constexpr double noise_offset = 4503599627370496.0 + 2 * 65535.0;

}  // namespace sinkprop
