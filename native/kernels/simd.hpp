// Vectors of W doubles and the elementary functions on them, written once for every instruction set
// (docs/linear-time.md 8).
//
// Everything is in a namespace named after the instruction set of the translation unit, so that the linker cannot put a
// function that was compiled for AVX2 into code that runs on processors without AVX2. For the same reason nothing here
// instantiates a template of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifndef SINKPROP_ISA
#error "define SINKPROP_ISA: the name of the instruction set this translation unit is compiled for"
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#define SINKPROP_INLINE __forceinline
#define SINKPROP_LAMBDA
#define SINKPROP_RESTRICT __restrict
#else
#define SINKPROP_INLINE inline __attribute__((always_inline))
#define SINKPROP_LAMBDA __attribute__((always_inline))
#define SINKPROP_RESTRICT __restrict__
#endif

// Before a loop over an array of registers, which stay registers only if the loop is unrolled
#if defined(__clang__)
#define SINKPROP_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define SINKPROP_UNROLL _Pragma("GCC unroll 8")
#else
#define SINKPROP_UNROLL
#endif

#if (defined(__GNUC__) || defined(__clang__)) && !defined(SINKPROP_NO_VECTOR_EXTENSIONS)
#define SINKPROP_VECTOR_EXTENSIONS 1
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SINKPROP_SHUFFLE 1
#endif
#endif

namespace sinkprop {
namespace SINKPROP_ISA {

// SINKPROP_WIDTH replaces the width of the instruction set, for tests: any width works on any processor, if slowly.
#if defined(SINKPROP_WIDTH)
constexpr int native_width = SINKPROP_WIDTH;
#elif defined(__AVX512F__)
constexpr int native_width = 8;
#elif defined(__AVX2__)
constexpr int native_width = 4;
#else
constexpr int native_width = 2;
#endif

// A key is a double that orders other doubles and leaves its low 8 bits free. It is made of the bits of a double x,
// read as an integer that increases with x: its upper bits, with the constant `key_first` added, are the key's bits. So
// keys are positive, neither subnormal nor infinite, and compare alike in every floating-point mode.
constexpr std::int64_t key_bits = 0x3FFFFFFFFFFFFF00, key_first = std::int64_t(1) << 52;

#if SINKPROP_VECTOR_EXTENSIONS

template <int W>
struct Raw {
    typedef double doubles __attribute__((vector_size(W * 8)));
    typedef std::int64_t ints __attribute__((vector_size(W * 8)));
    typedef std::uint64_t words __attribute__((vector_size(W * 8)));
    // a vector in memory, at any address that a double may have (memcpy is not used: it may be compiled to scalar
    // moves)
    typedef double stored __attribute__((vector_size(W * 8), aligned(8), may_alias));
};

template <int W>
struct Vec {
    using Doubles = typename Raw<W>::doubles;
    using Ints = typename Raw<W>::ints;
    Doubles v;

    static SINKPROP_INLINE Vec load(const double* p) { return {*reinterpret_cast<const typename Raw<W>::stored*>(p)}; }
    static SINKPROP_INLINE Vec all(double x) { return {x - Doubles{}}; }
    SINKPROP_INLINE void store(double* p) const { *reinterpret_cast<typename Raw<W>::stored*>(p) = v; }
    SINKPROP_INLINE double operator[](int i) const { return v[i]; }

    friend SINKPROP_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
    friend SINKPROP_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
    friend SINKPROP_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
    friend SINKPROP_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
    friend SINKPROP_INLINE Vec operator-(Vec a) { return {-a.v}; }

    // 2^k, where `magic` is k + round_magic, so that k is in its low bits; -1022 <= k <= 1023
    static SINKPROP_INLINE Vec power_of_two(Vec magic) {
        Ints k = (Ints)magic.v;
        k = (k + 1023) << 52;
        return {(Doubles)k};
    }
    // a where x < y, else b
    static SINKPROP_INLINE Vec where_less(Vec x, Vec y, Vec a, Vec b) { return {x.v < y.v ? a.v : b.v}; }
    // a where x equals y, else b
    static SINKPROP_INLINE Vec where_equal(Vec x, Vec y, Vec a, Vec b) { return {x.v == y.v ? a.v : b.v}; }
    // a where bit number `bit` of k is 1, else b. k is a whole number, given as magic = k + round_magic, whose low bits
    // are k.
    static SINKPROP_INLINE Vec where_bit(Vec magic, int bit, Vec a, Vec b) {
        Ints k = ((Ints)magic.v >> bit) & 1;
        return {k != 0 ? a.v : b.v};
    }
    // The key (see below) of each element of x, with `low` in its low bits
    static SINKPROP_INLINE Vec key(Vec x, std::int64_t low) {
        Ints k = (Ints)x.v;
        k ^= (k >> 63) | INT64_MIN;
        k = (k >> 2 & key_bits) + (key_first | low);
        return {(Doubles)k};
    }
};

#else  // for a compiler without vector extensions: plain loops, which it may vectorize itself

template <int W>
struct Vec {
    double v[W];

    static SINKPROP_INLINE Vec load(const double* p) {
        Vec r;
        std::memcpy(r.v, p, sizeof r.v);
        return r;
    }
    static SINKPROP_INLINE Vec all(double x) {
        Vec r;
        for (int i = 0; i < W; ++i) r.v[i] = x;
        return r;
    }
    SINKPROP_INLINE void store(double* p) const { std::memcpy(p, v, sizeof v); }
    SINKPROP_INLINE double operator[](int i) const { return v[i]; }

#define SINKPROP_ELEMENTWISE(op)                               \
    friend SINKPROP_INLINE Vec operator op(Vec a, Vec b) {     \
        for (int i = 0; i < W; ++i) a.v[i] = a.v[i] op b.v[i]; \
        return a;                                              \
    }
    SINKPROP_ELEMENTWISE(+)
    SINKPROP_ELEMENTWISE(-)
    SINKPROP_ELEMENTWISE(*)
    SINKPROP_ELEMENTWISE(/)
#undef SINKPROP_ELEMENTWISE
    friend SINKPROP_INLINE Vec operator-(Vec a) {
        for (int i = 0; i < W; ++i) a.v[i] = -a.v[i];
        return a;
    }

    static SINKPROP_INLINE Vec power_of_two(Vec magic) {
        for (int i = 0; i < W; ++i) {
            std::uint64_t k;
            std::memcpy(&k, &magic.v[i], 8);
            k = (k + 1023) << 52;
            std::memcpy(&magic.v[i], &k, 8);
        }
        return magic;
    }
    static SINKPROP_INLINE Vec where_less(Vec x, Vec y, Vec a, Vec b) {
        for (int i = 0; i < W; ++i) a.v[i] = x.v[i] < y.v[i] ? a.v[i] : b.v[i];
        return a;
    }
    static SINKPROP_INLINE Vec where_equal(Vec x, Vec y, Vec a, Vec b) {
        for (int i = 0; i < W; ++i) a.v[i] = x.v[i] == y.v[i] ? a.v[i] : b.v[i];
        return a;
    }
    static SINKPROP_INLINE Vec where_bit(Vec magic, int bit, Vec a, Vec b) {
        for (int i = 0; i < W; ++i) {
            std::uint64_t k;
            std::memcpy(&k, &magic.v[i], 8);
            a.v[i] = (k >> bit) & 1 ? a.v[i] : b.v[i];
        }
        return a;
    }
    static SINKPROP_INLINE Vec key(Vec x, std::int64_t low) {
        for (int i = 0; i < W; ++i) {
            std::uint64_t k;
            std::memcpy(&k, &x.v[i], 8);
            k ^= (std::uint64_t(0) - (k >> 63)) | std::uint64_t(1) << 63;
            k = (k >> 2 & key_bits) + std::uint64_t(key_first | low);
            std::memcpy(&x.v[i], &k, 8);
        }
        return x;
    }
};

#endif

// a * b + c. The compiler may make it one fused operation where the instruction set has one (-ffp-contract=fast in
// CMakeLists.txt).
template <int W>
SINKPROP_INLINE Vec<W> fma(Vec<W> a, Vec<W> b, Vec<W> c) {
    return a * b + c;
}

// a * b, rounded before anything is added to it. Of two products that are added, the compiler would choose one to be
// fused, and not the same one in all functions.
template <int W>
SINKPROP_INLINE Vec<W> rounded_product(Vec<W> a, Vec<W> b) {
#if defined(__FMA__) || defined(__FP_FAST_FMA) || defined(__aarch64__)
    return fma(a, b, Vec<W>::all(0));
#else
    return a * b;
#endif
}

template <int W>
SINKPROP_INLINE Vec<W> minimum(Vec<W> a, Vec<W> b) {
    return Vec<W>::where_less(a, b, a, b);
}

template <int W>
SINKPROP_INLINE Vec<W> maximum(Vec<W> a, Vec<W> b) {
    return Vec<W>::where_less(b, a, a, b);
}

template <int W>
SINKPROP_INLINE Vec<W> absolute(Vec<W> a) {
    return maximum(a, -a);
}

// Sum of the lanes, added pairwise in a fixed order, so that a sum has the same bits on every run
template <int W>
SINKPROP_INLINE double sum(Vec<W> a) {
    double x[W];
    a.store(x);
    for (int half = W / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) x[i] += x[i + half];
    return x[0];
}

// Writes four numbers to `out`: the sums of the elements of a, of b, of c and of d, where four elements are added as
// (x_0 + x_1) + (x_2 + x_3). The vectors are transposed, which costs less than four separate sums.
template <int W>
SINKPROP_INLINE void store_sums(Vec<W> a, Vec<W> b, Vec<W> c, Vec<W> d, double* out) {
#if SINKPROP_VECTOR_EXTENSIONS && SINKPROP_SHUFFLE
    if constexpr (W == 2) {
        Vec<2>{__builtin_shufflevector(a.v, b.v, 0, 2) + __builtin_shufflevector(a.v, b.v, 1, 3)}.store(out);
        Vec<2>{__builtin_shufflevector(c.v, d.v, 0, 2) + __builtin_shufflevector(c.v, d.v, 1, 3)}.store(out + 2);
    } else if constexpr (W == 4) {
        const auto ab = __builtin_shufflevector(a.v, b.v, 0, 4, 2, 6) + __builtin_shufflevector(a.v, b.v, 1, 5, 3, 7);
        const auto cd = __builtin_shufflevector(c.v, d.v, 0, 4, 2, 6) + __builtin_shufflevector(c.v, d.v, 1, 5, 3, 7);
        Vec<4>{__builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7)}.store(out);
    } else {
        static_assert(W == 8, "widths are 2, 4 and 8");
        auto fold = [](typename Vec<W>::Doubles x) SINKPROP_LAMBDA -> Vec<4> {
            return {__builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7)};
        };
        store_sums<4>(fold(a.v), fold(b.v), fold(c.v), fold(d.v), out);
    }
#else
    const Vec<W> vectors[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) {
        double x[W];
        vectors[i].store(x);
        for (int l = 0; W > 4 && l < W / 2; ++l) x[l] += x[l + W / 2];
        out[i] = W == 2 ? x[0] + x[1] : (x[0] + x[1]) + (x[W == 2 ? 1 : 2] + x[W == 2 ? 1 : 3]);
    }
#endif
}

// Transposes a block of W vectors: element k of vector i becomes element i of vector k
template <int W>
SINKPROP_INLINE void transpose(Vec<W> (&v)[W]) {
#if SINKPROP_VECTOR_EXTENSIONS && SINKPROP_SHUFFLE
    // Each step exchanges blocks of 1, 2 and 4 elements that lie on the two sides of the diagonal.
    SINKPROP_UNROLL
    for (int i = 0; i < W; i += 2) {
        auto &a = v[i].v, &b = v[i + 1].v;
        const auto above = a;
        if constexpr (W == 2) {
            a = __builtin_shufflevector(above, b, 0, 2);
            b = __builtin_shufflevector(above, b, 1, 3);
        } else if constexpr (W == 4) {
            a = __builtin_shufflevector(above, b, 0, 4, 2, 6);
            b = __builtin_shufflevector(above, b, 1, 5, 3, 7);
        } else {
            a = __builtin_shufflevector(above, b, 0, 8, 2, 10, 4, 12, 6, 14);
            b = __builtin_shufflevector(above, b, 1, 9, 3, 11, 5, 13, 7, 15);
        }
    }
    if constexpr (W >= 4) {
        SINKPROP_UNROLL
        for (int k = 0; k < W / 2; ++k) {
            const int i = k / 2 * 4 + k % 2;
            auto &a = v[i].v, &b = v[i + 2].v;
            const auto above = a;
            if constexpr (W == 4) {
                a = __builtin_shufflevector(above, b, 0, 1, 4, 5);
                b = __builtin_shufflevector(above, b, 2, 3, 6, 7);
            } else {
                a = __builtin_shufflevector(above, b, 0, 1, 8, 9, 4, 5, 12, 13);
                b = __builtin_shufflevector(above, b, 2, 3, 10, 11, 6, 7, 14, 15);
            }
        }
    }
    if constexpr (W == 8) {
        SINKPROP_UNROLL
        for (int i = 0; i < 4; ++i) {
            auto &a = v[i].v, &b = v[i + 4].v;
            const auto above = a;
            a = __builtin_shufflevector(above, b, 0, 1, 2, 3, 8, 9, 10, 11);
            b = __builtin_shufflevector(above, b, 4, 5, 6, 7, 12, 13, 14, 15);
        }
    }
#else
    double elements[W][W];
    for (int i = 0; i < W; ++i) v[i].store(elements[i]);
    for (int i = 0; i < W; ++i) {
        double column[W];
        for (int k = 0; k < W; ++k) column[k] = elements[k][i];
        v[i] = Vec<W>::load(column);
    }
#endif
}

#if SINKPROP_PAIRED
// Two registers as one vector. Neither waits for the other's operations.
template <>
struct Vec<2 * native_width> {
    using Half = Vec<native_width>;
    Half low, high;

    static SINKPROP_INLINE Vec load(const double* p) { return {Half::load(p), Half::load(p + native_width)}; }
    static SINKPROP_INLINE Vec all(double x) { return {Half::all(x), Half::all(x)}; }
    SINKPROP_INLINE void store(double* p) const {
        low.store(p);
        high.store(p + native_width);
    }
    SINKPROP_INLINE double operator[](int i) const { return i < native_width ? low[i] : high[i - native_width]; }

    friend SINKPROP_INLINE Vec operator+(Vec x, Vec y) { return {x.low + y.low, x.high + y.high}; }
    friend SINKPROP_INLINE Vec operator-(Vec x, Vec y) { return {x.low - y.low, x.high - y.high}; }
    friend SINKPROP_INLINE Vec operator*(Vec x, Vec y) { return {x.low * y.low, x.high * y.high}; }
    friend SINKPROP_INLINE Vec operator/(Vec x, Vec y) { return {x.low / y.low, x.high / y.high}; }
    friend SINKPROP_INLINE Vec operator-(Vec x) { return {-x.low, -x.high}; }

    static SINKPROP_INLINE Vec power_of_two(Vec magic) {
        return {Half::power_of_two(magic.low), Half::power_of_two(magic.high)};
    }
    static SINKPROP_INLINE Vec where_less(Vec x, Vec y, Vec a, Vec b) {
        return {Half::where_less(x.low, y.low, a.low, b.low), Half::where_less(x.high, y.high, a.high, b.high)};
    }
    static SINKPROP_INLINE Vec where_equal(Vec x, Vec y, Vec a, Vec b) {
        return {Half::where_equal(x.low, y.low, a.low, b.low), Half::where_equal(x.high, y.high, a.high, b.high)};
    }
    static SINKPROP_INLINE Vec where_bit(Vec magic, int bit, Vec a, Vec b) {
        return {Half::where_bit(magic.low, bit, a.low, b.low), Half::where_bit(magic.high, bit, a.high, b.high)};
    }
    static SINKPROP_INLINE Vec key(Vec x, std::int64_t low_bits) {
        return {Half::key(x.low, low_bits), Half::key(x.high, low_bits)};
    }
};
#endif

constexpr double round_magic = 6755399441055744.0;  // 1.5 * 2^52: the low bits of x + round_magic are round(x)

// exp(x) to 1 ulp for x <= 709; 0 below -708, so that no denormal is ever made.
template <int W>
SINKPROP_INLINE Vec<W> exp(Vec<W> x) {
    using V = Vec<W>;
    const V floor = V::all(-708.0);
    const V y = maximum(x, floor);
    const V magic = fma(y, V::all(1.4426950408889634074), V::all(round_magic));
    const V k = magic - V::all(round_magic);
    V r = fma(k, V::all(-6.93147180369123816490e-01), y);
    r = fma(k, V::all(-1.90821492927058770002e-10), r);
    // exp(x) = 2^k exp(r) with |r| <= ln(2)/2. Taylor's polynomial of degree 13 for exp(r) has a truncation error of
    // 4e-18. Its even and odd terms are evaluated side by side, which halves the latency.
    const V r2 = r * r;
    V odd = V::all(1.0 / 6227020800.0), even = V::all(1.0 / 479001600.0);
    odd = fma(odd, r2, V::all(1.0 / 39916800.0));
    even = fma(even, r2, V::all(1.0 / 3628800.0));
    odd = fma(odd, r2, V::all(1.0 / 362880.0));
    even = fma(even, r2, V::all(1.0 / 40320.0));
    odd = fma(odd, r2, V::all(1.0 / 5040.0));
    even = fma(even, r2, V::all(1.0 / 720.0));
    odd = fma(odd, r2, V::all(1.0 / 120.0));
    even = fma(even, r2, V::all(1.0 / 24.0));
    odd = fma(odd, r2, V::all(1.0 / 6.0));
    even = fma(even, r2, V::all(0.5));
    // exp(r) = 1 + r + r^2 (even + r odd), where `even` and `odd` are the polynomials in r^2 computed above
    const V tail = fma(r2, fma(r, odd, even), r);
    const V result = (tail + V::all(1.0)) * V::power_of_two(magic);
    return V::where_less(x, floor, V::all(0.0), result);
}

// sin(x) and cos(x) for 0 <= x < 2^15, with an absolute error of about 1.5 ulp of 1
template <int W>
SINKPROP_INLINE void sincos(Vec<W> x, Vec<W>& sin_x, Vec<W>& cos_x) {
    using V = Vec<W>;
    const V magic = fma(x, V::all(0.63661977236758134308), V::all(round_magic));
    const V k = magic - V::all(round_magic);
    // r = x - k pi/2, with pi/2 in three parts whose products with k are exact
    V r = fma(k, V::all(-1.57079632673412561417e+00), x);
    r = fma(k, V::all(-6.07710050630396597660e-11), r);
    r = fma(k, V::all(-2.02226624879595063154e-21), r);
    const V r2 = r * r;
    V s = V::all(-7.6471637318198164759e-13);  // -1/15!, the coefficient of r^15 in the Taylor polynomial of sin(r)
    s = fma(s, r2, V::all(1.6059043836821614599e-10));
    s = fma(s, r2, V::all(-2.5052108385441718775e-08));
    s = fma(s, r2, V::all(2.7557319223985890653e-06));
    s = fma(s, r2, V::all(-1.9841269841269841270e-04));
    s = fma(s, r2, V::all(8.3333333333333333333e-03));
    s = fma(s, r2, V::all(-1.6666666666666666667e-01));
    s = fma(r * r2, s, r);
    V c = V::all(4.7794773323873852974e-14);  // 1/16!, the coefficient of r^16 in the Taylor polynomial of cos(r)
    c = fma(c, r2, V::all(-1.1470745597729724714e-11));
    c = fma(c, r2, V::all(2.0876756987868098979e-09));
    c = fma(c, r2, V::all(-2.7557319223985890653e-07));
    c = fma(c, r2, V::all(2.4801587301587301587e-05));
    c = fma(c, r2, V::all(-1.3888888888888888889e-03));
    c = fma(c, r2, V::all(4.1666666666666666667e-02));
    c = fma(c, r2, V::all(-0.5));
    c = fma(c, r2, V::all(1.0));
    const V s1 = V::where_bit(magic, 0, c, s), c1 = V::where_bit(magic, 0, s, c);
    sin_x = V::where_bit(magic, 1, -s1, s1);
    // k is the number of quarter turns in x = k pi/2 + r. For k = 0, 1, 2, 3, cos(x) is cos(r), -sin(r), -cos(r),
    // sin(r): the sign is negative where the two low bits of k differ.
    const V flipped = V::where_bit(magic, 1, c1, -c1), kept = V::where_bit(magic, 1, -c1, c1);
    cos_x = V::where_bit(magic, 0, flipped, kept);
}

// Number of doubles in one register, or in two if they are paired, which are called its lanes. Kernels process W
// elements of an array at a time.
#if SINKPROP_PAIRED
constexpr bool paired = true;
#else
constexpr bool paired = false;
#endif
constexpr int W = paired ? 2 * native_width : native_width;
using Lanes = Vec<W>;

// Unsigned numbers of 64 bits, as many as the instruction set multiplies at a time
#if SINKPROP_VECTOR_EXTENSIONS && (defined(__AVX2__) || SINKPROP_WIDTH > 2)
using Words = Raw<native_width>::words;
#else
using Words = std::uint64_t;
#endif

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
