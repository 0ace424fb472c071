// Pseudorandom numbers.
#pragma once

#include <cstdint>

namespace sinkprop {

// One step of the random number generator splitmix64 of Steele, Lea and Flood, for an unsigned number of 64 bits or a
// vector of such numbers
template <class Word>
static inline Word splitmix64(Word z) {
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

}  // namespace sinkprop
