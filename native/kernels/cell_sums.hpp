// Gaussian sums over a dense list: the operator for queries with many documents per width sigma.
// docs/linear-time.md 3.3
//
// The operator multiplies a vector x by the matrix A_ij = exp(-(y_i - y_j)^2 / (2 sigma^2)) of the sorted scores y, and
// by its derivative (dA)_ij = unit * d(A_ij) / dy_i. The scores fall into cells of equal width
// 2 unit = 2 sqrt(2) sigma h, with the constant h of cell_tables.hpp. Document i has the position a_i in its cell, from
// -1 at the upper end to 1 at the lower end. A product takes three steps, with polynomials of P terms:
//   moments      M_b[r] = sum_(j in b) x_j a_j^r                     of every cell b,
//   expansions   L_c[s] = sum_b sum_r T_(c-b)[r, s] M_b[r]           of every cell c, from the cells b at most `reach`
//                                                                    cells away, with the table T of cell_tables.hpp,
//   products     (A x)_i = sum_s L_c[s] a_i^s,  (dA x)_i = -sum_s s L_c[s] a_i^(s-1)   for the documents i of cell c.
// The expansions are stored, so that (dA) x can be computed later without another product.
//
// With vectors of W doubles, a product costs about 3 P / W vector multiply-adds per document, and (2 reach + 1) P^2
// multiply-adds per cell. Sums of exponentials (exponential_sums.hpp) need a dozen vector multiply-adds per document,
// and read 64 bytes of decay factors per document.
#pragma once

#include "cell_tables.hpp"
#include "exponential_sums.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

struct Cell {
    std::size_t first, count;  // index of the cell's first document, and number of documents in the cell
    // The slots of the cell are elements begin .. end - 1 of the padded vectors: one slot per document, then padding up
    // to a multiple of W.
    std::size_t begin, end;
    std::int64_t segment, index;  // the cell's segment (see lay_out), and its position in the segment, in cells
    // origin: score of the first document of the cell's segment. center: distance from there down to the middle of the
    // cell, divided by `unit`, half the width of a cell. So a document with score y has the position
    // a = (origin - y) / unit - center in its cell, from -1 to 1.
    double origin, center;
};

template <int P>
struct GaussianCells {
    static constexpr int S = cell_stride<P>, reach = CellShape<P>::reach;
    static constexpr double h = CellShape<P>::h;

    std::size_t n, size = 0, n_cells;
    double unit;  // half the width of a cell
    // mask (size,): 1 for a document, 0 in the padding. place (size,): each document's position a, from -1 to 1, in its
    // cell. moments, expansions (n_cells, S): the moments M_b and the expansions L_c of one product, where b and c are
    // cells (see the top of this file); the P terms of each are padded to S. memory (T + 1, n_cells, S), where T is the
    // number of half iterations of Sinkhorn's normalization: row t has the expansions of the product that `apply`
    // remembers under the number t.
    double *mask, *place, *moments, *expansions, *memory;
    Cell* cells;
    const double* table;

    // Number of cells up to which this operator is faster than sums of exponentials for n documents: a pair of cells
    // costs as much time as 4.5 documents save, and a single cell as much as 19 documents save
    // (benchmarks/crossover.py). Three cells are always allowed, for accuracy.
    static constexpr std::size_t most_cells(std::size_t n) {
        std::size_t c = 3;
        while (c < 2 * reach + 1 && (9 * (c + 1) + 38) * (c + 1) <= 2 * n) ++c;
        return c < 2 * reach + 1 ? c : 2 * n / (9 * (2 * reach + 1) + 38);
    }
    static constexpr double half_cell(double sigma) { return sqrt2 * sigma * h; }
    static constexpr std::size_t padded(std::size_t n, std::size_t n_cells) {
        return round_up(n + n_cells * (W - 1), 8);
    }
    static constexpr std::size_t scratch(std::size_t n, std::size_t n_cells, int T) {
        return 2 * padded(n, n_cells) + n_cells * ((std::size_t(T) + 3) * S + sizeof(Cell) / sizeof(double));
    }

    // Returns the number of cells that the sorted scores y fall into, or `most` + 1 if there are more than `most`.
    // Writes the cells to `cells` if that is not null. The list is cut into segments at every gap of more than
    // reach + 1 cells between neighboring scores, so that documents of different segments do not interact.
    static std::size_t lay_out(const double* y, std::size_t n, double sigma, std::size_t most, Cell* cells) {
        const double unit = half_cell(sigma), gap = 2 * (reach + 1) * unit;
        std::size_t count = 0;
        std::int64_t segment = 0;
        for (std::size_t first = 0, last; first < n; first = last + 1, ++segment) {
            last = first;
            while (last + 1 < n && y[last] - y[last + 1] <= gap) ++last;
            // The cells are centered on the segment. In a segment of one cell, a document in the middle then has the
            // position a = 0, where all odd powers of a are exactly 0.
            const double origin = y[first], extent = (origin - y[last]) / (2 * unit);
            if (!(extent < 1e15)) return most + 1;  // too many cells, or the difference of the scores overflowed
            // distance of the first document from the top of its cell, in half-cells
            const double shift = double(std::int64_t(extent)) + 1 - extent;
            for (std::size_t i = first; i <= last;) {
                if (count == most) return most + 1;
                const std::int64_t index = std::int64_t(((origin - y[i]) / unit + shift) / 2);
                const double end = (2.0 * double(index + 1) - shift) * unit;
                const std::size_t begin = i;
                while (++i <= last && origin - y[i] < end) {
                }
                if (cells)
                    cells[count] = {begin, i - begin, 0, 0, segment, index, origin, 2.0 * double(index) + 1 - shift};
                ++count;
            }
        }
        return count;
    }

    GaussianCells(const double* y, std::size_t n_, double sigma, std::size_t n_cells_, const double* table_, int T,
                  double* space)
        : n(n_), n_cells(n_cells_), unit(half_cell(sigma)), table(table_) {
        mask = space;
        place = mask + padded(n, n_cells);
        moments = place + padded(n, n_cells);
        expansions = moments + n_cells * S;
        memory = expansions + n_cells * S;
        cells = reinterpret_cast<Cell*>(memory + (std::size_t(T) + 1) * n_cells * S);
        lay_out(y, n, sigma, n_cells, cells);
        for (std::size_t c = 0; c < n_cells; ++c) {
            Cell& cell = cells[c];
            cell.begin = size;
            cell.end = size + round_up(cell.count, W);
            for (std::size_t j = 0; j < cell.count; ++j) {
                place[size + j] = (cell.origin - y[cell.first + j]) / unit - cell.center;
                mask[size + j] = 1;
            }
            for (std::size_t j = size + cell.count; j < cell.end; ++j) place[j] = mask[j] = 0;
            size = cell.end;
        }
    }

    template <class F>
    void each_document(F&& f) const {
        for (std::size_t c = 0; c < n_cells; ++c)
            for (std::size_t j = 0; j < cells[c].count; ++j) f(cells[c].first + j, cells[c].begin + j);
    }
    template <class F>
    void each_padding(F&& f) const {
        for (std::size_t c = 0; c < n_cells; ++c)
            for (std::size_t j = cells[c].begin + cells[c].count; j < cells[c].end; ++j) f(j);
    }

    // Adds the moments sum_j x_j a_j^r to M[r], for r = r0 .. r0 + terms - 1. The sum is over `count` slots j of a
    // cell, where x_j is an element of a vector and a_j the position of its document in the cell, from -1 to 1.
    template <int r0, int terms>
    static SINKPROP_INLINE void add_moments(const double* x, const double* a, std::size_t count, double* M) {
        Lanes acc[terms];
        for (int r = 0; r < terms; ++r) acc[r] = Lanes::all(0);
        for (std::size_t i = 0; i < count; i += W) {
            const Lanes ai = load(a, i), a2 = ai * ai;
            Lanes even = load(x, i);
            for (int r = 0; r < r0; r += 2) even = even * a2;
            Lanes odd = even * ai;
            for (int r = 0; r < terms; r += 2) {
                acc[r] = acc[r] + even;
                even = even * a2;
                if (r + 1 < terms) {
                    acc[r + 1] = acc[r + 1] + odd;
                    odd = odd * a2;
                }
            }
        }
        for (int r = 0; r < terms; ++r) M[r0 + r] += sum(acc[r]);
    }

    static SINKPROP_INLINE void add_moments(const double* x, const double* a, std::size_t count, double* M) {
        constexpr int low = P <= 12 ? P : P / 2;
        add_moments<0, low>(x, a, count, M);
        if constexpr (low < P) add_moments<low, P - low>(x, a, count, M);
    }

    // Writes the expansion L_c of cell c to L: L_c[s] = sum_b sum_r T_(c-b)[r, s] M_b[r] over the cells b in
    // [from, to), with the moments M and the table T that are described at the top of this file
    SINKPROP_INLINE void interact(std::size_t c, std::size_t from, std::size_t to, double* L) const {
        // sets: number of independent sums, which hide the latency of additions
        constexpr int registers = (P + W - 1) / W, sets = 4 * registers <= 12 ? 4 : 2;
        static_assert(P % sets == 0, "terms are taken in sets");
        Lanes acc[sets][registers];
        for (int k = 0; k < sets; ++k)
            for (int v = 0; v < registers; ++v) acc[k][v] = Lanes::all(0);
        for (std::size_t b = from; b < to; ++b) {
            const double *T_d = table + std::size_t(cells[c].index - cells[b].index + reach) * P * S,
                         *M = moments + b * S;
            for (int r = 0; r < P; r += sets, T_d += sets * S)
                for (int k = 0; k < sets; ++k) {
                    const Lanes m = Lanes::all(M[r + k]);
                    for (int v = 0; v < registers; ++v) acc[k][v] = fma(Lanes::load(T_d + k * S + v * W), m, acc[k][v]);
                }
        }
        for (int v = 0; v < registers; ++v) {
            for (int k = 1; k < sets; ++k) acc[0][v] = acc[0][v] + acc[k][v];
            acc[0][v].store(L + v * W);
        }
    }

    void prepare(const double* x) const {
        for (std::size_t c = 0; c < n_cells; ++c) {
            double* M = moments + c * S;
            for (int r = 0; r < S; ++r) M[r] = 0;
            add_moments(x + cells[c].begin, place + cells[c].begin, cells[c].end - cells[c].begin, M);
        }
    }

    // Writes the expansions of A x to L (n_cells, S), from the moments of x, and then sets the moments to 0
    SINKPROP_INLINE void expand(double* L) const {
        std::size_t from = 0, to = 0;
        for (std::size_t c = 0; c < n_cells; ++c) {
            const Cell& cell = cells[c];
            while (cells[from].segment != cell.segment || cells[from].index < cell.index - reach) ++from;
            while (to < n_cells && cells[to].segment == cell.segment && cells[to].index <= cell.index + reach) ++to;
            interact(c, from, to, L + c * S);
        }
        for (std::size_t i = 0; i < n_cells * S; ++i) moments[i] = 0;
    }

    // Goes through the slots of cell c in stretches, which are runs of at most `stretch` slots. Calls lanes(i, mask, j)
    // for every W slots i .. i + W - 1, where `mask` has 1 for a slot with a document and 0 for padding, and j is the
    // position of slot i in its stretch. After each stretch, calls done(i, count), where i is the first slot of the
    // stretch and `count` its length, while the values that `lanes` wrote are in the cache.
    static constexpr std::size_t stretch = 512;
    template <class F, class Done>
    SINKPROP_INLINE void each_lanes(std::size_t c, F&& lanes, Done&& done) const {
        const std::size_t last = cells[c].end - W;  // only the last W slots of a cell may have padding
        for (std::size_t from = cells[c].begin; from <= last;) {
            const std::size_t to = last - from >= stretch ? from + stretch : last;
            for (std::size_t i = from; i < to; i += W) lanes(i, Lanes::all(1), i - from);
            std::size_t end = to;
            if (to == last && last - from < stretch) {
                lanes(last, load(mask, last), last - from);
                end += W;
            }
            done(from, end - from);
            from = end;
        }
    }

    template <class Finish>
    SINKPROP_INLINE void apply(const double*, int t, const double* next, Finish&& finish) const {
        double* L = memory + std::size_t(t) * n_cells * S;
        expand(L);
        for (std::size_t c = 0; c < n_cells; ++c, L += S) {
            Lanes coefficient[P];
            for (int s = 0; s < P; ++s) coefficient[s] = Lanes::all(L[s]);
            each_lanes(
                c,
                [&](std::size_t i, Lanes real, std::size_t) SINKPROP_LAMBDA {
                    const Lanes a = load(place, i);
                    Lanes value = coefficient[P - 1];
                    for (int s = P - 2; s >= 0; --s) value = fma(value, a, coefficient[s]);
                    finish(i, value, real);
                },
                [&](std::size_t i, std::size_t count) SINKPROP_LAMBDA {
                    if (next) add_moments(next + i, place + i, count, moments + c * S);
                });
        }
    }

    // `finish` writes the vector that will be multiplied by A next. The operator needs only its moments (the sums M_b
    // at the top of this file), so the vector is not stored as a whole: `written` holds at most `stretch` elements of
    // it, until they have been added to the moments.
    template <class Finish>
    SINKPROP_INLINE void apply_rev(const double*, int t, const double* next, Finish&& finish) const {
        const double *remembered = memory + std::size_t(t) * n_cells * S, *L = expansions;
        alignas(64) double written[stretch];
        expand(expansions);
        for (std::size_t c = 0; c < n_cells; ++c, L += S, remembered += S) {
            double slope[P], earlier[P];
            differentiate(L, slope);
            differentiate(remembered, earlier);
            each_lanes(
                c,
                [&](std::size_t i, Lanes, std::size_t j) SINKPROP_LAMBDA {
                    const Lanes a = load(place, i);
                    Lanes k = Lanes::all(L[P - 1]), dk = Lanes::all(slope[P - 1]), m = Lanes::all(earlier[P - 1]);
                    for (int s = P - 2; s > 0; --s) {
                        k = fma(k, a, Lanes::all(L[s]));
                        dk = fma(dk, a, Lanes::all(slope[s]));
                        m = fma(m, a, Lanes::all(earlier[s]));
                    }
                    finish(i, fma(k, a, Lanes::all(L[0])), dk, m, written + j);
                },
                [&](std::size_t i, std::size_t count) SINKPROP_LAMBDA {
                    if (next) add_moments(written, place + i, count, moments + c * S);
                });
        }
    }

    template <class F>
    SINKPROP_INLINE void each_remembered(int t, F&& f) const {
        const double* L = memory + std::size_t(t) * n_cells * S;
        for (std::size_t c = 0; c < n_cells; ++c, L += S) {
            double slope[P];
            differentiate(L, slope);
            for (std::size_t i = cells[c].begin; i < cells[c].end; i += W) {
                const Lanes a = load(place, i);
                Lanes m = Lanes::all(slope[P - 1]);
                for (int s = P - 2; s > 0; --s) m = fma(m, a, Lanes::all(slope[s]));
                f(i, m);
            }
        }
    }

    // An expansion is the polynomial sum_s L[s] a^s in a document's position a in its cell. Writes its derivative with
    // respect to the document's score, times `unit`: slope[s] is the coefficient of a^(s-1). The sign changes because a
    // decreases by 1 / unit if the score increases by 1.
    static SINKPROP_INLINE void differentiate(const double* L, double* slope) {
        for (int s = 1; s < P; ++s) slope[s] = -s * L[s];
    }
};

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
