// XXH64, a fast checksum of bytes. It finds damage; it is no protection against an adversary. The algorithm, by Yann
// Collet, is specified in https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace sinkprop {

class Xxh64 {
  public:
    static std::uint64_t of(const unsigned char* p, std::size_t size, std::uint64_t seed) {
        const unsigned char* const end = p + size;
        std::uint64_t h = seed + prime5;
        if (size >= 32) {
            std::uint64_t a = seed + prime1 + prime2, b = seed + prime2, c = seed, d = seed - prime1;
            for (; end - p >= 32; p += 32) {
                a = mixed(a, little<8>(p));
                b = mixed(b, little<8>(p + 8));
                c = mixed(c, little<8>(p + 16));
                d = mixed(d, little<8>(p + 24));
            }
            h = turned(a, 1) + turned(b, 7) + turned(c, 12) + turned(d, 18);
            for (const std::uint64_t lane : {a, b, c, d}) h = (h ^ mixed(0, lane)) * prime1 + prime4;
        }
        h += size;
        for (; end - p >= 8; p += 8) h = turned(h ^ mixed(0, little<8>(p)), 27) * prime1 + prime4;
        if (end - p >= 4) {
            h = turned(h ^ little<4>(p) * prime1, 23) * prime2 + prime3;
            p += 4;
        }
        for (; p != end; ++p) h = turned(h ^ *p * prime5, 11) * prime1;
        h = (h ^ h >> 33) * prime2;
        h = (h ^ h >> 29) * prime3;
        return h ^ h >> 32;
    }

  private:
    static constexpr std::uint64_t prime1 = 0x9E3779B185EBCA87u, prime2 = 0xC2B2AE3D27D4EB4Fu,
                                   prime3 = 0x165667B19E3779F9u, prime4 = 0x85EBCA77C2B2AE63u,
                                   prime5 = 0x27D4EB2F165667C5u;

    static std::uint64_t turned(std::uint64_t x, int bits) { return x << bits | x >> (64 - bits); }
    static std::uint64_t mixed(std::uint64_t lane, std::uint64_t input) {
        return turned(lane + input * prime2, 31) * prime1;
    }
    // The whole number that `bytes` bytes hold, the lowest first; compilers make one load of the loop
    template <int bytes>
    static std::uint64_t little(const unsigned char* p) {
        std::uint64_t x = 0;
        for (int i = 0; i < bytes; ++i) x |= std::uint64_t(p[i]) << (8 * i);
        return x;
    }
};

}  // namespace sinkprop
