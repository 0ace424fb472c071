#include "decimal.hpp"

#include <stdlib.h>

#include <array>
#include <cmath>
#include <limits>
#include <new>
#include <string>
#if defined(_MSC_VER)
#include <locale.h>
#elif defined(__APPLE__)
#include <xlocale.h>
#else
#include <locale.h>
#endif

namespace sinkprop {

char* write_digits(std::uint64_t x, char* out) {
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354"
        "555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    char text[20];
    char* p = text + 20;
    for (; x >= 100; x /= 100) std::memcpy(p -= 2, pairs + 2 * (x % 100), 2);
    if (x >= 10)
        std::memcpy(p -= 2, pairs + 2 * x, 2);
    else
        *--p = char('0' + x);
    const std::size_t n = std::size_t(text + 20 - p);
    std::memcpy(out, p, n);
    return out + n;
}

namespace {

struct Wide {
    std::uint64_t high, low;
};

Wide multiply(std::uint64_t a, std::uint64_t b) {
#if defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 uint128;
    const uint128 product = uint128(a) * b;
    return {std::uint64_t(product >> 64), std::uint64_t(product)};
#else
    const std::uint64_t half = 0xFFFFFFFFu, a0 = a & half, a1 = a >> 32, b0 = b & half, b1 = b >> 32;
    const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32), cross = a0 * b1 + (middle & half);
    return {a1 * b1 + (middle >> 32) + (cross >> 32), a * b};
#endif
}

// Number of zero bits before the highest bit that is set; x must not be 0
int leading_zeros(std::uint64_t x) {
#if defined(_MSC_VER)
    unsigned long i;
    _BitScanReverse64(&i, x);
    return 63 - int(i);
#else
    return __builtin_clzll(x);
#endif
}

// floor(log2(10^q)), for |q| < 1234
int log2_of_power(int q) {
    return (q * 1741647) >> 19;
}

// The first 128 bits of 10^q, truncated, which are also those of 5^q. They are exact for 0 <= q <= 55.
class Powers {
  public:
    static constexpr int least = -342, most = 324;

    Powers() {
        Number up{};  // 5^q in each round q of the loop
        up[0] = 1;
        for (int q = 0; q <= most; ++q) {
            top(up, q);
            std::uint32_t carry = 0;
            for (std::uint32_t& digit : up) {
                const std::uint64_t x = std::uint64_t(digit) * 5 + carry;
                digit = std::uint32_t(x);
                carry = std::uint32_t(x >> 32);
            }
        }
        // floor(2^1023 / 5^-q) in each round q < 0 of the loop. Every round divides the previous value by 5 and rounds
        // down, which gives the same number as rounding down only once.
        Number down{};
        down[words - 1] = 0x80000000u;
        for (int q = -1; q >= least; --q) {
            std::uint64_t rest = 0;
            for (std::size_t i = words; i-- > 0;) {
                const std::uint64_t x = rest << 32 | down[i];
                down[i] = std::uint32_t(x / 5);
                rest = x % 5;
            }
            top(down, q);
        }
    }

    Wide floor(int q) const { return entries_[std::size_t(q - least)]; }
    Wide ceiling(int q) const {
        Wide x = floor(q);
        if (q < 0 || q > 55) x.high += ++x.low == 0;
        return x;
    }

  private:
    // Number of 32-bit words in a Number. The smallest number, 2^1023 / 5^342, still has 229 bits, of which 128 are
    // needed.
    static constexpr std::size_t words = 32;
    using Number = std::array<std::uint32_t, words>;

    void top(const Number& x, int q) {
        std::size_t i = words - 1;
        while (!x[i]) --i;
        auto word = [&](std::size_t back) { return i >= back ? std::uint64_t(x[i - back]) : 0; };
        const std::uint64_t a = word(0) << 32 | word(1), b = word(2) << 32 | word(3), c = word(4) << 32;
        const int shift = leading_zeros(a);
        Wide& entry = entries_[std::size_t(q - least)];
        entry = shift ? Wide{a << shift | b >> (64 - shift), b << shift | c >> (64 - shift)} : Wide{a, b};
    }

    std::array<Wide, most - least + 1> entries_;
};

const Powers& powers() {
    static const Powers table;
    return table;
}

double from_bits(std::uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, 8);
    return x;
}

// The double nearest to w 10^q for w != 0, or infinity beyond the largest double. NaN if the double would be denormal
// or 0, or if 128 bits of 10^q do not decide which double it is. D. Lemire, "Number parsing at a gigabyte per second",
// 2021.
double nearest(std::uint64_t w, std::int64_t q) {
    const double undecided = std::numeric_limits<double>::quiet_NaN();
    if (q > 308) return std::numeric_limits<double>::infinity();
    if (q < Powers::least) return undecided;
    const int zeros = leading_zeros(w);
    w <<= zeros;
    const Wide power = q < 0 ? powers().ceiling(int(q)) : powers().floor(int(q));
    Wide product = multiply(w, power.high);
    if ((product.high & 0x1FF) == 0x1FF) {
        const std::uint64_t more = multiply(w, power.low).high;
        product.low += more;
        product.high += product.low < more;
    }
    if (product.low == ~std::uint64_t(0) && (q < -27 || q > 55)) return undecided;
    const int upper = int(product.high >> 63);
    std::uint64_t m = product.high >> (upper + 9);  // 54 bits: one more than a significand has
    int exponent = log2_of_power(int(q)) + 63 + upper - zeros + 1023;
    if (exponent <= 0) return undecided;
    // a number halfway between two doubles, which is possible only for these q, is rounded to the even one
    if (product.low <= 1 && q >= -4 && q <= 23 && (m & 3) == 1 && m << (upper + 9) == product.high)
        m &= ~std::uint64_t(1);
    m = (m + (m & 1)) >> 1;
    if (m >> 53) {
        m >>= 1;
        ++exponent;
    }
    if (exponent >= 0x7FF) return std::numeric_limits<double>::infinity();
    return from_bits(std::uint64_t(exponent) << 52 | (m & ((std::uint64_t(1) << 52) - 1)));
}

// The C library's conversion, which is exact. It uses the locale "C", so that the decimal separator is always a point.
double by_library(const char* begin, const char* end) {
    const std::string text(begin, end);
#if defined(_MSC_VER)
    static const _locale_t plain = _create_locale(LC_ALL, "C");
    if (!plain) throw std::bad_alloc();
    return _strtod_l(text.c_str(), nullptr, plain);
#else
    static const locale_t plain = newlocale(LC_ALL_MASK, "C", locale_t(0));
    if (!plain) throw std::bad_alloc();
    return strtod_l(text.c_str(), nullptr, plain);
#endif
}

}  // namespace

const char* read_long_number(const char* const begin, double& value) {
    const char* p = begin;
    std::uint64_t w = 0;
    // number of digits in w, the integer that the digits read so far form, without leading zeros; at most 19, so that w
    // does not overflow
    int kept = 0;
    std::int64_t shift = 0;  // the number read so far is w 10^shift, and a little more if digits were cut off
    bool any = false, cut = false;
    auto digit = [&](int fractional) {
        any = true;
        if (kept < 19) {
            w = w * 10 + std::uint64_t(*p - '0');
            kept += w != 0;
            shift -= fractional;
        } else {
            cut |= *p != '0';
            shift += 1 - fractional;
        }
    };
    for (; is_digit(*p); ++p) digit(0);
    if (*p == '.') {
        ++p;
        while (kept <= 11) {
            std::uint64_t next;
            const int n = read_digits(p, next);
            p += n;
            any |= n > 0;
            w = w * whole_powers_of_ten[n] + next;
            kept = w ? kept + n : 0;
            shift -= n;
            if (n < 8) break;
        }
        for (; is_digit(*p); ++p) digit(1);
    }
    if (!any) return nullptr;
    if (*p == 'e' || *p == 'E') {
        const bool negative = *++p == '-';
        p += negative || *p == '+';
        if (!is_digit(*p)) return nullptr;
        std::int64_t exponent = 0;
        for (; is_digit(*p); ++p)
            // An exponent beyond 2^56 need not be exact: no text has enough digits to make up for it.
            if (exponent < std::int64_t(1) << 56) exponent = exponent * 10 + (*p - '0');
        shift += negative ? -exponent : exponent;
    }
    if (w == 0) {
        value = 0;
    } else if (!cut && w <= std::uint64_t(1) << 53 && shift >= -22 && shift <= 22) {
        const double x = double(std::int64_t(w));
        value = shift < 0 ? x / powers_of_ten[-shift] : x * powers_of_ten[shift];
    } else {
        value = nearest(w, shift);
        // The digits that were cut off matter only if they would change the nearest double.
        if (std::isnan(value) || (cut && value != nearest(w + 1, shift))) value = by_library(begin, p);
    }
    return p;
}

namespace {

struct Decimal {
    std::uint64_t digits;
    int exponent;
};

// The shortest decimal that rounds to the double c 2^q; of several, the one closest to it. lower_is_closer: whether the
// next smaller double is only half as far away as the next larger one, as it is for a power of two. R. Giulietti, "The
// Schubfach way to render doubles", 2020.
Decimal shortest(std::uint64_t c, int q, bool lower_is_closer) {
    // floor(log10(width of the interval of numbers that round to c 2^q))
    const int k = (q * 1262611 - (lower_is_closer ? 524031 : 0)) >> 22;
    const int h = q + log2_of_power(-k) + 1;
    const Wide power = powers().ceiling(-k);
    auto scaled = [&](std::uint64_t x) {  // x 2^q 10^-k; the last bit is set if lower bits were lost
        const Wide high = multiply(power.high, x << h);
        const std::uint64_t carry = multiply(power.low, x << h).high, low = high.low + carry;
        return (high.high + (low < carry)) | (low > 1);
    };
    const bool odd = c & 1;
    const std::uint64_t value = scaled(4 * c), lower = scaled(4 * c - 2 + lower_is_closer) + odd,
                        upper = scaled(4 * c + 2) - odd, s = value / 4;
    if (s >= 10) {
        const std::uint64_t tenth = s / 10;
        const bool below = lower <= 40 * tenth, above = 40 * tenth + 40 <= upper;
        if (below != above) return {tenth + above, k + 1};
    }
    const bool below = lower <= 4 * s, above = 4 * s + 4 <= upper;
    if (below != above) return {s + above, k};
    return {s + (value > 4 * s + 2 || (value == 4 * s + 2 && (s & 1))), k};
}

// The shortest decimal that rounds to the double x > 0
Decimal shortest(double x) {
    // At most one decimal of up to 15 digits is read as x. This test finds that decimal if it has at most 6 decimal
    // places, which is true of most numbers that people write.
    const double scaled = x * 1e6;
    if (scaled < 1e15) {
        const std::int64_t digits = std::int64_t(scaled + 0.5);
        if (double(digits) / 1e6 == x) return {std::uint64_t(digits), -6};
    }
    std::uint64_t bits;
    std::memcpy(&bits, &x, 8);
    const std::uint64_t fraction = bits & ((std::uint64_t(1) << 52) - 1);
    const int exponent = int(bits >> 52);
    if (!exponent) return shortest(fraction, -1074, false);
    return shortest(fraction | std::uint64_t(1) << 52, exponent - 1075, !fraction && exponent > 1);
}

// The shortest decimal that rounds to the float x > 0
Decimal shortest(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const std::uint32_t fraction = bits & 0x7FFFFFu;
    const int exponent = int(bits >> 23);
    return exponent ? shortest(fraction | 0x800000u, exponent - 150, !fraction && exponent > 1)
                    : shortest(fraction, -149, false);
}

// Writes x in the form that Python gives a float, without ".0": 0.0001, 1e-05, 1234567890123456, 1e+16
char* write_decimal(Decimal x, char* out) {
    while (x.digits % 10 == 0) {
        x.digits /= 10;
        ++x.exponent;
    }
    char digits[20];
    const int n = int(write_digits(x.digits, digits) - digits), point = n + x.exponent;
    auto put = [&](const char* from, int count) {
        std::memcpy(out, from, std::size_t(count));
        out += count;
    };
    static const char zeros[] = "0000000000000000";
    if (point > 16 || point < -3) {
        put(digits, 1);
        if (n > 1) *out++ = '.';
        put(digits + 1, n - 1);
        *out++ = 'e';
        *out++ = point > 0 ? '+' : '-';
        const int exponent = point > 0 ? point - 1 : 1 - point;
        if (exponent < 10) *out++ = '0';
        return write_digits(std::uint64_t(exponent), out);
    }
    if (point <= 0) {
        put("0.", 2);
        put(zeros, -point);
        put(digits, n);
    } else if (point >= n) {
        put(digits, n);
        put(zeros, point - n);
    } else {
        put(digits, point);
        *out++ = '.';
        put(digits + point, n - point);
    }
    return out;
}

template <class T>
char* write_signed(T x, char* out) {
    if (std::signbit(x)) {
        *out++ = '-';
        x = -x;
    }
    if (x == 0) {
        *out++ = '0';
        return out;
    }
    return write_decimal(shortest(x), out);
}

}  // namespace

char* write_number(double x, char* out) {
    return write_signed(x, out);
}

char* write_number(float x, char* out) {
    char* end = write_signed(x, out);
    // A reader rounds twice, to a double and then to a float. If that gives a float other than x, the text of double(x)
    // is written instead, which is read as x.
    char copy[48] = {};  // has zeros after the text, because read_number reads beyond its end
    double back;
    std::memcpy(copy, out, std::size_t(end - out));
    read_number(copy, back);
    return float(back) == x ? end : write_signed(double(x), out);
}

}  // namespace sinkprop
