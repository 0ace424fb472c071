// The evaluation of trees for many documents, compiled once per instruction set; forest_view.hpp says how it works.
#include "kernels/kernels.hpp"
#include "kernels/simd.hpp"
#include "trees/forest_view.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {
namespace {

// Bytes of as many documents as a vector register has
#if SINKPROP_VECTOR_EXTENSIONS
#if defined(__AVX2__)
constexpr int width = 32;
#else
constexpr int width = 16;
#endif
typedef std::int8_t Bytes __attribute__((vector_size(width)));
typedef std::uint8_t Unsigned __attribute__((vector_size(width)));

SINKPROP_INLINE Bytes all(std::int8_t x) {
    return x - Bytes{};
}
SINKPROP_INLINE Bytes above(Bytes a, Bytes b) {
    return Bytes(a > b);
}
SINKPROP_INLINE Bytes not_zero(Bytes a) {
    return Bytes(a != Bytes{});
}
SINKPROP_INLINE Bytes minus(Bytes a) {
    return Bytes(Unsigned{} - Unsigned(a));
}
#else
constexpr int width = 16;
struct Bytes {
    std::int8_t v[width];

    template <class F>
    static SINKPROP_INLINE Bytes each(F f) {
        Bytes out;
        for (int i = 0; i < width; ++i) out.v[i] = std::int8_t(f(i));
        return out;
    }
    friend SINKPROP_INLINE Bytes operator&(const Bytes& a, const Bytes& b) {
        return each([&](int i) { return a.v[i] & b.v[i]; });
    }
    friend SINKPROP_INLINE Bytes operator|(const Bytes& a, const Bytes& b) {
        return each([&](int i) { return a.v[i] | b.v[i]; });
    }
    friend SINKPROP_INLINE Bytes operator~(const Bytes& a) {
        return each([&](int i) { return ~a.v[i]; });
    }
};

SINKPROP_INLINE Bytes all(std::int8_t x) {
    return Bytes::each([&](int) { return x; });
}
SINKPROP_INLINE Bytes above(const Bytes& a, const Bytes& b) {
    return Bytes::each([&](int i) { return a.v[i] > b.v[i] ? -1 : 0; });
}
SINKPROP_INLINE Bytes not_zero(const Bytes& a) {
    return Bytes::each([&](int i) { return a.v[i] != 0 ? -1 : 0; });
}
SINKPROP_INLINE Bytes minus(const Bytes& a) {
    return Bytes::each([&](int i) { return -a.v[i]; });
}
#endif

constexpr int longest = 64 / width;  // vectors of a block of documents
constexpr int block = 64;

// The bytes of all columns for m documents, the rows of X: 64 bytes per column, of which the first `size` are set
template <class T>
void fill_columns(const ForestView& forest, const T* X, std::size_t m, std::size_t size, std::int8_t* bytes) {
    double x[block];
    std::uint32_t rank[block];
    for (std::size_t v = 0; v < forest.n_variables; ++v) {
        const T* const column = X + forest.features[v];
        for (std::size_t i = 0; i < m; ++i) x[i] = double(column[i * forest.n_features]);
        for (std::size_t i = m; i < size; ++i) x[i] = x[m - 1];
        const double* const cuts = forest.cuts + forest.cut_ends[v];
        const std::uint32_t n = std::uint32_t(forest.cut_ends[v + 1] - forest.cut_ends[v]);
        for (std::size_t i = 0; i < size; ++i) rank[i] = 0;
        if (n) {
            std::uint32_t left = n;
            for (; left > 1; left -= left / 2) {
                const std::uint32_t half = left / 2;
                for (std::size_t i = 0; i < size; ++i) rank[i] += cuts[rank[i] + half - 1] < x[i] ? half : 0;
            }
            for (std::size_t i = 0; i < size; ++i) rank[i] += cuts[rank[i]] < x[i] ? 1 : 0;
        }
        for (std::size_t i = 0; i < size; ++i) rank[i] = x[i] == x[i] ? rank[i] : n + 1;
        for (std::size_t c = forest.column_ends[v]; c < forest.column_ends[v + 1]; ++c) {
            const std::int8_t* const table = forest.tables + forest.table_starts[c];
            std::int8_t* const to = bytes + block * c;
            for (std::size_t i = 0; i < size; ++i) to[i] = table[rank[i]];
        }
    }
}

// The bits of a plane that the steps set, for G vectors of documents
template <int G>
SINKPROP_INLINE void set_bits(const ForestView& forest, std::size_t plane, const std::int8_t* bytes, Bytes (&set)[G]) {
    for (int g = 0; g < G; ++g) set[g] = all(0);
    const Step* step = forest.steps + forest.step_ends[2 * plane];
    for (const Step* const end = forest.steps + forest.step_ends[2 * plane + 1]; step != end; ++step) {
        const Bytes bound = all(step->bound), bits = all(std::int8_t(step->bits));
        const Bytes* const from = reinterpret_cast<const Bytes*>(bytes + std::size_t(block) * step->column);
        for (int g = 0; g < G; ++g) set[g] = set[g] | (above(from[g], bound) & bits);
    }
    for (const Step* const end = forest.steps + forest.step_ends[2 * plane + 2]; step != end; ++step) {
        const Bytes bound = all(step->bound), bits = all(std::int8_t(step->bits));
        const Bytes* const from = reinterpret_cast<const Bytes*>(bytes + std::size_t(block) * step->column);
        for (int g = 0; g < G; ++g) set[g] = set[g] | (~above(from[g], bound) & bits);
    }
}

// The number of the lowest bit of each byte, which is not 0
SINKPROP_INLINE Bytes lowest_bit(Bytes bits) {
    const Bytes lowest = bits & minus(bits);
    return (not_zero(lowest & all(std::int8_t(0xaa))) & all(1)) | (not_zero(lowest & all(std::int8_t(0xcc))) & all(2)) |
           (not_zero(lowest & all(std::int8_t(0xf0))) & all(4));
}

// The number of the leaf of each document: its low bytes, and its high bytes if the tree has more than 256 leaves
template <int G>
SINKPROP_INLINE void find_leaves(const ForestView& forest, const TreePlace& tree, const std::int8_t* bytes,
                                 Bytes (&low)[G], Bytes (&high)[G]) {
    Bytes set[G];
    for (int g = 0; g < G; ++g) low[g] = high[g] = all(0);
    if (forest.oblivious) {
        set_bits(forest, tree.plane, bytes, low);
        if (tree.n_planes > 1) set_bits(forest, tree.plane + 1, bytes, high);
        return;
    }
    for (std::size_t plane = tree.n_planes; plane-- > 0;) {
        set_bits(forest, tree.plane + plane, bytes, set);
        for (int g = 0; g < G; ++g) {
            const Bytes left = ~set[g], some = not_zero(left);
            low[g] = (~some & low[g]) | (some & (lowest_bit(left) | all(std::int8_t(8 * plane))));
            if (tree.n_planes > 32) high[g] = (~some & high[g]) | (some & all(std::int8_t(plane / 32)));
        }
    }
}

template <int G, class S, class T>
void score_block(const ForestView& forest, const S* leaves, const T* X, std::size_t m, double start, std::int8_t* bytes,
                 double* out) {
    constexpr int size = G * width;
    fill_columns(forest, X, m, size, bytes);
    S sums[size];
    for (int i = 0; i < size; ++i) sums[i] = S(start);
    alignas(64) std::uint8_t lows[size], highs[size];
    for (std::size_t t = 0; t < forest.n_trees; ++t) {
        const TreePlace tree = forest.trees[t];
        Bytes low[G], high[G];
        find_leaves(forest, tree, bytes, low, high);
        for (int g = 0; g < G; ++g) reinterpret_cast<Bytes*>(lows)[g] = low[g];
        const S* const own = leaves + tree.leaf;
        if (tree.n_planes > 32 || (forest.oblivious && tree.n_planes > 1)) {
            for (int g = 0; g < G; ++g) reinterpret_cast<Bytes*>(highs)[g] = high[g];
            for (int i = 0; i < size; ++i) sums[i] += own[256 * std::size_t(highs[i]) + lows[i]];
        } else {
            for (int i = 0; i < size; ++i) sums[i] += own[lows[i]];
        }
    }
    for (std::size_t i = 0; i < m; ++i) out[i] = double(sums[i]);
}

template <class S, class T>
void score(const ForestView& forest, const S* leaves, const T* X, std::size_t n, double start, std::int8_t* scratch,
           double* out) {
    std::int8_t* const bytes = scratch + (64 - reinterpret_cast<std::uintptr_t>(scratch) % 64) % 64;
    for (std::size_t i = 0; i < n; i += block) {
        const std::size_t m = n - i < block ? n - i : block;
        const T* const rows = X + i * forest.n_features;
        switch ((m + width - 1) / width) {
            case 1:
                score_block<1>(forest, leaves, rows, m, start, bytes, out + i);
                break;
            case 2:
                score_block<2>(forest, leaves, rows, m, start, bytes, out + i);
                break;
            case 3:
                score_block < longest<3 ? longest : 3>(forest, leaves, rows, m, start, bytes, out + i);
                break;
            default:
                score_block<longest>(forest, leaves, rows, m, start, bytes, out + i);
        }
    }
}

template <class T>
void score_rows(const ForestView& forest, const T* X, std::size_t n, double start, std::int8_t* scratch, double* out) {
    if (forest.single)
        score(forest, forest.single_leaves, X, n, start, scratch, out);
    else
        score(forest, forest.leaves, X, n, start, scratch, out);
}

}  // namespace

void score_trees(const ForestView&, const double*, std::size_t, double, std::int8_t*, double*);
void score_trees_single(const ForestView&, const float*, std::size_t, double, std::int8_t*, double*);

void score_trees(const ForestView& forest, const double* X, std::size_t n, double start, std::int8_t* scratch,
                 double* out) {
    score_rows(forest, X, n, start, scratch, out);
}

void score_trees_single(const ForestView& forest, const float* X, std::size_t n, double start, std::int8_t* scratch,
                        double* out) {
    score_rows(forest, X, n, start, scratch, out);
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
