// Conversions from decimal text to the nearest double, and from a double to the shortest decimal text that is read as
// the same double. Their results do not depend on the locale or the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace sinkprop {

constexpr double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr std::uint64_t whole_powers_of_ten[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

// The eight characters at p as one integer, the first character in the lowest byte
inline std::uint64_t load_eight(const char* p) {
    std::uint64_t x;
    std::memcpy(&x, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

// Number of zero bits below the lowest bit that is set; x must not be 0
inline int trailing_zeros(std::uint64_t x) {
#if defined(_MSC_VER)
    unsigned long i;
    _BitScanForward64(&i, x);
    return int(i);
#else
    return __builtin_ctzll(x);
#endif
}

inline bool is_digit(char c) {
    return unsigned(static_cast<unsigned char>(c)) - '0' <= 9;
}

// Returns the number of digits at p, at most 8, and sets `value` to the number they form; eight bytes at p must be
// readable. The work does not depend on the number of digits, so that numbers of mixed lengths cause no mispredicted
// branches.
inline int read_digits(const char* p, std::uint64_t& value) {
    // This subtracts '0' from each byte. A borrow changes only bytes that follow a byte that is not a digit.
    std::uint64_t x = load_eight(p) - 0x3030303030303030u;
    const std::uint64_t other = (x | (x + 0x7676767676767676u)) & 0x8080808080808080u;
    const int n = other ? trailing_zeros(other) >> 3 : 8;
    x = n ? x << (64 - 8 * n) : 0;  // puts zeros in front of the n digits
    x = x * 10 + (x >> 8);          // every second byte is the value of a pair of digits
    value =
        ((x & 0x000000FF000000FFu) * 0x000F424000000064u + (x >> 16 & 0x000000FF000000FFu) * 0x0000271000000001u) >> 32;
    return n;
}

// Reads a number from p, after its sign, in any of the forms that read_number accepts. Called by read_number.
const char* read_long_number(const char* p, double& value);

// Reads [+-] digits [. digits] [e [+-] digits] as the nearest double, or infinity beyond the largest one; digits may be
// missing on one side of the point. Returns the end of the number, or null if there is none. The number must be
// followed by a byte that cannot belong to it, and by eight readable bytes after that one.
inline const char* read_number(const char* p, double& value) {
    const bool negative = *p == '-';
    p += negative | (*p == '+');
    const char* const first = p;
    std::uint64_t w = std::uint64_t(static_cast<unsigned char>(*p)) - '0', fraction = 0;
    int digits = 1, places = 0;
    // Most numbers have one digit before the point; all others are read by read_digits, whose cost does not depend on
    // their length.
    if (w > 9 || is_digit(p[1])) digits = read_digits(p, w);
    p += digits;
    if (*p == '.') {
        places = read_digits(++p, fraction);
        p += places;
        w = w * whole_powers_of_ten[places] + fraction;
    }
    const unsigned char next = static_cast<unsigned char>(*p);
    // The number is w / 10^places, where the integer w is formed by all its digits. If w is at most 2^53, w and the
    // power of ten are exact doubles, so that their quotient is rounded only once.
    if (digits < 8 && unsigned(next - '0') > 9 && (next | 32) != 'e' && w <= std::uint64_t(1) << 53) {
        value = double(std::int64_t(w)) / powers_of_ten[places];
        if (digits + places == 0) return nullptr;
    } else {
        p = read_long_number(first, value);
    }
    if (negative) value = -value;
    return p;
}

// Writes the digits of an integer, at most 20, to `out`. Returns the end of the text.
char* write_digits(std::uint64_t x, char* out);

// Writes the shortest text that read_number reads as the finite number x to `out`, which must have 32 bytes. Returns
// the end of the text. If x is a float, the text is the shortest one that rounds to this float. There is one exception:
// if reading this text as a double and rounding the double gives another float, the text of double(x) is written
// instead.
char* write_number(double x, char* out);
char* write_number(float x, char* out);

}  // namespace sinkprop
