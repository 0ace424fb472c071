// Products with the matrices A_ij = K(y_i - y_j) of W queries, one in each lane (lists.hpp), and with the derivatives
// (dA)_ij = unit * d(A_ij) / dy_i, in the four ways of docs/linear-time.md 3.5. The operators offer what scaling.hpp
// asks for.
#pragma once

#include "cell_sums.hpp"
#include "exponential_sums.hpp"
#include "lists.hpp"
#include "matrix_sums.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// Base class of the operators: their mask, and the derivatives that they remember
template <class Operator>
struct ListOperator : Remembering<Operator> {
    std::size_t n, size;
    double unit;
    const double* mask;

    static constexpr std::size_t scratch(std::size_t n, int T) { return (std::size_t(T) + 1) * n * W; }

    ListOperator(const ListArrays& arrays, double unit_, double* space)
        : n(arrays.n), size(arrays.size), unit(unit_), mask(arrays.mask) {
        this->memory = space;
    }
};

// The Laplace kernel, by two sweeps as in LaplaceSums: with H_i = e_i H_(i-1) + x_i and G_i = e_(i+1) G_(i+1) + x_i,
//   (A x)_i = H_i + G_i - x_i,      (dA x)_i = H_i - G_i.
// Both sweeps advance in one loop, from opposite ends, so that the latency of one hides behind the other. Up to the
// middle they store their states; beyond it, each document has the state of one sweep in a register and that of the
// other in memory. They store them where the results will be: the fewer vectors, the more of them are in the cache.
struct LaplaceLists : ListOperator<LaplaceLists> {
    using Base = ListOperator<LaplaceLists>;
    double *e, *own_states;  // (n + 1, W) decay from the previous document, and 0 at both ends; (n, W)

    static constexpr std::size_t scratch(std::size_t n, int T) { return Base::scratch(n, T) + (2 * n + 1) * W; }

    LaplaceLists(const ListArrays& arrays, const double* y, double tau, int T, double* space)
        : Base(arrays, tau, space) {
        e = space + Base::scratch(n, T);
        own_states = e + size + W;
        const Lanes inverse = Lanes::all(1 / tau);
        for (std::size_t i = W; i < size; i += W) exp((load(y, i) - load(y, i - W)) * inverse).store(e + i);
        Lanes::all(0).store(e);
        Lanes::all(0).store(e + size);
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double* spare, Finish&& finish) const {
        double* const states = spare ? spare : own_states;
        Lanes H = Lanes::all(0), G = Lanes::all(0);
        std::size_t i = 0, j = size;  // documents from i on, and before j, have not been reached by the sweeps
        for (; i + W < j; i += W) {
            j -= W;
            H = fma(load(e, i), H, load(x, i));
            G = fma(load(e, j + W), G, load(x, j));
            H.store(states + i);
            G.store(states + j);
        }
        if (i < j) {
            j -= W;
            const Lanes xi = load(x, i);
            H = fma(load(e, i), H, xi);
            G = fma(load(e, j + W), G, xi);
            finish(i, H + G - xi, H - G);
            i += W;
        }
        for (; i < size; i += W) {
            j -= W;
            const Lanes xi = load(x, i), xj = load(x, j), Gi = load(states, i), Hj = load(states, j);
            H = fma(load(e, i), H, xi);
            G = fma(load(e, j + W), G, xj);
            finish(i, H + Gi - xi, H - Gi);
            finish(j, Hj + G - xj, Hj - G);
        }
    }
};

// The same with a derivative that is 0 between tied documents (ListTies). The states S and R of the sweeps down and up
// leave out the documents of a tie: S_i = e_i H_(i-1) for the first document of a tie, S_i = S_(i-1) for the others.
// A document without ties has the same bits as in LaplaceLists.
struct TiedLaplaceLists : ListOperator<TiedLaplaceLists> {
    using Base = ListOperator<TiedLaplaceLists>;
    LaplaceLists sums;
    const double* tied;
    double *first, *S;  // (n + 1, W) e, and 0 for a document tied with the one before it; (n, W)

    static constexpr std::size_t scratch(std::size_t n, int T) { return LaplaceLists::scratch(n, T) + (2 * n + 1) * W; }

    TiedLaplaceLists(const ListArrays& arrays, const ListTies& ties, const double* y, double tau, int T, double* space)
        : Base(arrays, tau, space), sums(arrays, y, tau, T, space), tied(ties.tied) {
        first = space + LaplaceLists::scratch(n, T);
        S = first + size + W;
        const Lanes zero = Lanes::all(0);
        for (std::size_t i = 0; i < size; i += W)
            Lanes::where_less(zero, load(tied, i), zero, load(sums.e, i)).store(first + i);
        zero.store(first + size);
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double*, Finish&& finish) const {
        const double* e = sums.e;
        const Lanes zero = Lanes::all(0);
        Lanes H = zero, G = zero, R = zero, s = zero;
        for (std::size_t i = 0; i < size; i += W) {
            s = fma(load(first, i), H, rounded_product(load(tied, i), s));
            H = fma(load(e, i), H, load(x, i));
            s.store(S + i);
            H.store(sums.own_states + i);
        }
        for (std::size_t i = size; i > 0;) {
            i -= W;
            const Lanes below = i + W < size ? load(tied, i + W) : zero, xi = load(x, i), Hi = load(sums.own_states, i);
            R = fma(load(first, i + W), G, rounded_product(below, R));
            G = fma(load(e, i + W), G, xi);
            const Lanes in_tie = load(tied, i) + below;
            finish(i, Hi + G - xi, Lanes::where_less(zero, in_tie, load(S, i) - R, Hi - G));
        }
    }
};

// The Gaussian kernel of the shortest queries: the entries of A and dA below the diagonal, which are those above it for
// A, and the negative of those above it for dA. Entry (i, j), j < i, is used for the products of both documents while
// it is in a register. The entries are taken in blocks of `rows` documents i and `rows` documents j, whose sums and
// elements of x are in registers, too. The size of the blocks does not change the order in which the sum of a document
// is taken.
struct MatrixLists : ListOperator<MatrixLists> {
    using Base = ListOperator<MatrixLists>;
    static constexpr std::size_t rows = W == 8 ? 4 : 2;  // of 32 and 16 registers, respectively
    double *entries, *k, *dk;  // (n (n - 1) / 2, 2, W) K, dK in the order in which `both` takes them; (n, W) sums

    static constexpr std::size_t scratch(std::size_t n, int T) { return Base::scratch(n, T) + (n + 1) * n * W; }

    MatrixLists(const ListArrays& arrays, const double* y, double sigma, int T, double* space)
        : Base(arrays, sigma, space) {
        entries = space + Base::scratch(n, T);
        k = entries + n * (n - 1) * W;
        dk = k + size;
        const Lanes inverse = Lanes::all(1 / sigma);
        double* entry = entries;
        const auto add = [&](std::size_t i, std::size_t j) SINKPROP_LAMBDA {
            Lanes a, da;
            gaussian_entry((load(y, i * W) - load(y, j * W)) * inverse, a, da);
            a.store(entry);
            da.store(entry + W);
            entry += 2 * W;
        };
        for (std::size_t i = 0; i < n; i += rows) {
            const std::size_t end = i + rows < n ? i + rows : n;
            for (std::size_t j = 0; j < i; j += rows)
                for (std::size_t r = i; r < end; ++r)
                    for (std::size_t c = j; c < j + rows; ++c) add(r, c);
            for (std::size_t r = i; r < end; ++r)
                for (std::size_t c = i; c < r; ++c) add(r, c);
        }
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double*, Finish&& finish) const {
        const double* entry = entries;
        std::size_t i = 0;
        for (; i + rows <= n; i += rows) add_rows<rows>(i, x, entry);
        if constexpr (rows > 2) {
            if (n - i == 3) add_rows<3>(i, x, entry);
            if (n - i == 2) add_rows<2>(i, x, entry);
        }
        if (n - i == 1) add_rows<1>(i, x, entry);
        for (i = 0; i < size; i += W) finish(i, load(k, i), load(dk, i));
    }

  private:
    // Sums of R documents from i on, and what these documents add to the sums of those before them
    template <std::size_t R>
    SINKPROP_INLINE void add_rows(std::size_t i, const double* x, const double*& entry) const {
        Lanes xi[R], ki[R], di[R];
        SINKPROP_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
            ki[r] = xi[r] = load(x, (i + r) * W);
            di[r] = Lanes::all(0);
        }
        for (std::size_t j = 0; j < i; j += rows) {
            Lanes xj[rows], kj[rows], dj[rows];
            SINKPROP_UNROLL
            for (std::size_t c = 0; c < rows; ++c) {
                xj[c] = load(x, (j + c) * W);
                kj[c] = load(k, (j + c) * W);
                dj[c] = load(dk, (j + c) * W);
            }
            SINKPROP_UNROLL
            for (std::size_t r = 0; r < R; ++r) SINKPROP_UNROLL
            for (std::size_t c = 0; c < rows; ++c) add(entry, xi[r], ki[r], di[r], xj[c], kj[c], dj[c]);
            SINKPROP_UNROLL
            for (std::size_t c = 0; c < rows; ++c) {
                kj[c].store(k + (j + c) * W);
                dj[c].store(dk + (j + c) * W);
            }
        }
        SINKPROP_UNROLL
        for (std::size_t r = 0; r < R; ++r) SINKPROP_UNROLL
        for (std::size_t c = 0; c < r; ++c) add(entry, xi[r], ki[r], di[r], xi[c], ki[c], di[c]);
        SINKPROP_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
            ki[r].store(k + (i + r) * W);
            di[r].store(dk + (i + r) * W);
        }
    }

    static SINKPROP_INLINE void add(const double*& entry, Lanes xi, Lanes& ki, Lanes& di, Lanes xj, Lanes& kj,
                                    Lanes& dj) {
        const Lanes a = load(entry, 0), da = load(entry, W);
        ki = fma(a, xj, ki);
        kj = fma(a, xi, kj);
        di = fma(da, xj, di);
        dj = fma(-da, xi, dj);
        entry += 2 * W;
    }
};

// The Gaussian kernel as a sum of P pairs of complex exponentials, by two sweeps as in GaussianSums. The states leave
// out the document itself: H_i = e_i (H_(i-1) + x_(i-1)) and G_i = e_(i+1) (G_(i+1) + x_(i+1)), so that
//   (A x)_i = x_i + 2 Re sum_m w_m (H_i + G_i),      (dA x)_i = 2 Re sum_m w_m s_m (H_i - G_i).
// The sweeps compute such sums for their own states, two numbers per document in the place of 2 P states.
//
// SummedLists has one query in each lane and the state of a pair in each register; SummedList has one query, and the
// states of all P = 4 pairs in a register. Both round in the same way.
struct Exponentials {
    static constexpr int P = fast_pairs;
    using Coefficients = GaussCoefficients<P>;

    // e = exp(-s t) for the coefficient s of a pair, and t = sqrt(2) |difference| / sigma
    template <int L>
    static SINKPROP_INLINE void decay(Vec<L> s_re, Vec<L> s_im, Vec<L> t, Vec<L>& re, Vec<L>& im) {
        Vec<L> sine, cosine;
        const Vec<L> radius = exp(-(s_re * t));
        sincos(s_im * t, sine, cosine);
        re = radius * cosine;
        im = -(radius * sine);
    }
    // The state of a pair, with the decay a + b i and the element x of the vector
    template <int L>
    static SINKPROP_INLINE void step(Vec<L> a, Vec<L> b, Vec<L> x, Vec<L>& re, Vec<L>& im) {
        const Vec<L> sum = re + x;
        re = fma(a, sum, -rounded_product(b, im));
        im = fma(a, im, rounded_product(b, sum));
    }
    // 2 Re w (re + im i), with 2 w = w_re - w_im i
    template <int L>
    static SINKPROP_INLINE Vec<L> part(Vec<L> w_re, Vec<L> w_im, Vec<L> re, Vec<L> im) {
        return fma(w_re, re, rounded_product(w_im, im));
    }
    // Weights of the real and imaginary parts of states in A x, and in (dA) x. They are computed when this is compiled:
    // at run time, their products could be fused in one function and not in another.
    struct Weights {
        double k_re[P] = {}, k_im[P] = {}, d_re[P] = {}, d_im[P] = {};
        constexpr Weights() {
            for (int m = 0; m < P; ++m) {
                const double wr = Coefficients::w_re[m], wi = Coefficients::w_im[m], sr = Coefficients::s_re[m],
                             si = Coefficients::s_im[m];
                k_re[m] = 2 * wr;
                k_im[m] = -2 * wi;
                d_re[m] = 2 * (wr * sr - wi * si);
                d_im[m] = -2 * (wr * si + wi * sr);
            }
        }
    };
    template <int L>
    static SINKPROP_INLINE Vec<L> distance(Vec<L> above, Vec<L> below, double sigma) {
        return minimum(Vec<L>::all(sqrt2) * ((above - below) / Vec<L>::all(sigma)),
                       Vec<L>::all(GaussianSums<P>::t_max));
    }
};

struct SummedLists : ListOperator<SummedLists>, Exponentials {
    using Base = ListOperator<SummedLists>;
    double *decays, *sums;  // (n, 2 P, W) real, then imaginary parts of e_i; (n, 2, W) the sums of the sweep up

    static constexpr std::size_t scratch(std::size_t n, int T) { return Base::scratch(n, T) + (2 * P + 2) * n * W; }

    SummedLists(const ListArrays& arrays, const double* y, double sigma, int T, double* space)
        : Base(arrays, sigma / sqrt2, space) {
        decays = space + Base::scratch(n, T);
        sums = decays + 2 * P * size;
        for (std::size_t i = 1; i < n; ++i) {
            const Lanes t = distance(load(y, (i - 1) * W), load(y, i * W), sigma);
            for (int m = 0; m < P; ++m) {
                Lanes re, im;
                decay(Lanes::all(Coefficients::s_re[m]), Lanes::all(Coefficients::s_im[m]), t, re, im);
                re.store(decays + (2 * P * i + m) * W);
                im.store(decays + (2 * P * i + P + m) * W);
            }
        }
    }

    struct State {
        Lanes re[P], im[P];
        SINKPROP_INLINE State() {
            for (int m = 0; m < P; ++m) re[m] = im[m] = Lanes::all(0);
        }
        SINKPROP_INLINE void next(const double* e, Lanes x, Lanes& k, Lanes& dk) {
            static constexpr Weights w;
            Lanes parts[P], d_parts[P];
            for (int m = 0; m < P; ++m) {
                step(load(e, m * W), load(e, (P + m) * W), x, re[m], im[m]);
                parts[m] = part(Lanes::all(w.k_re[m]), Lanes::all(w.k_im[m]), re[m], im[m]);
                d_parts[m] = part(Lanes::all(w.d_re[m]), Lanes::all(w.d_im[m]), re[m], im[m]);
            }
            k = (parts[0] + parts[1]) + (parts[2] + parts[3]);
            dk = (d_parts[0] + d_parts[1]) + (d_parts[2] + d_parts[3]);
        }
    };

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double*, Finish&& finish) const {
        Lanes k = Lanes::all(0), dk = k;
        k.store(sums + (2 * n - 2) * W);
        k.store(sums + (2 * n - 1) * W);
        State up, down;
        for (std::size_t i = n - 1; i > 0; --i) {
            up.next(decays + 2 * P * i * W, load(x, i * W), k, dk);
            k.store(sums + (2 * i - 2) * W);
            dk.store(sums + (2 * i - 1) * W);
        }
        k = dk = Lanes::all(0);
        for (std::size_t i = 0; i < n; ++i) {
            if (i) down.next(decays + 2 * P * i * W, load(x, (i - 1) * W), k, dk);
            // products must be positive in the padding, too
            const Lanes own = load(x, i * W) + (Lanes::all(1) - load(mask, i * W));
            finish(i * W, own + (k + load(sums, 2 * i * W)), dk - load(sums, (2 * i + 1) * W));
        }
    }
};

struct SummedList : ListOperator<SummedList>, Exponentials {
    using Base = ListOperator<SummedList>;
    using V = Vec<P>;
    // (n, 2 P) real, then imaginary parts of e_i; then the sums of each document: those of the sweep down, and those of
    // the sweep up, in A x and in (dA) x, each of length padded(n)
    double *decays, *k_down, *d_down, *k_up, *d_up;

    static constexpr std::size_t padded(std::size_t n) { return round_up(n, 4) + 4; }
    static constexpr std::size_t scratch(std::size_t n, int T) { return Base::scratch(n, T) + (2 * P + 4) * padded(n); }

    SummedList(const ListArrays& arrays, const double* y, double sigma, int T, double* space)
        : Base(arrays, sigma / sqrt2, space) {
        decays = space + Base::scratch(n, T);
        k_down = decays + 2 * P * padded(n);
        d_down = k_down + padded(n);
        k_up = d_down + padded(n);
        d_up = k_up + padded(n);
        for (std::size_t i = 1; i < n; ++i) {
            V re, im;
            decay(V::load(Coefficients::s_re), V::load(Coefficients::s_im),
                  distance(V::all(y[(i - 1) * W]), V::all(y[i * W]), sigma), re, im);
            re.store(decays + 2 * P * i);
            im.store(decays + 2 * P * i + P);
        }
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double*, Finish&& finish) const {
        static_assert(P == 4, "store_sums adds four numbers");
        static constexpr Weights w;
        const V k_re = V::load(w.k_re), k_im = V::load(w.k_im), d_re = V::load(w.d_re), d_im = V::load(w.d_im);
        const V zero = V::all(0);
        V re = zero, im = zero, up_re = zero, up_im = zero;
        // Both sweeps advance in one loop: that down reaches document i, that up document n - 1 - i. They begin with
        // states of 0 at the first and the last document.
        for (std::size_t i = 0; i < n; i += 4) {
            V k[4], d[4], l[4], o[4];
            for (std::size_t s = 0; s < 4; ++s) {
                const std::size_t at = i + s;
                if (at > 0 && at < n) {
                    const double *e = decays + 2 * P * at, *e_up = decays + 2 * P * (n - at);
                    step(V::load(e), V::load(e + P), V::all(x[(at - 1) * W]), re, im);
                    step(V::load(e_up), V::load(e_up + P), V::all(x[(n - at) * W]), up_re, up_im);
                }
                k[s] = part(k_re, k_im, re, im);
                d[s] = part(d_re, d_im, re, im);
                l[s] = part(k_re, k_im, up_re, up_im);
                o[s] = part(d_re, d_im, up_re, up_im);
            }
            store_sums(k[0], k[1], k[2], k[3], k_down + i);
            store_sums(d[0], d[1], d[2], d[3], d_down + i);
            store_sums(l[0], l[1], l[2], l[3], k_up + i);
            store_sums(o[0], o[1], o[2], o[3], d_up + i);
        }
        for (std::size_t i = 0; i < n; ++i) {
            const std::size_t j = n - 1 - i;
            finish(i * W, load(x, i * W) + (Lanes::all(k_down[i]) + Lanes::all(k_up[j])),
                   Lanes::all(d_down[i]) - Lanes::all(d_up[j]));
        }
    }
};

// The Gaussian kernel if all scores of a query lie in one cell of GaussianCells, whose polynomials this operator takes.
template <int P>
struct PolynomialLists : ListOperator<PolynomialLists<P>> {
    using Base = ListOperator<PolynomialLists<P>>;
    using Base::size;
    double* place;  // (n, W) position of each document in the cell, from -1 to 1
    const double* T;

    static constexpr std::size_t scratch(std::size_t n, int T) { return Base::scratch(n, T) + n * W; }

    PolynomialLists(const ListArrays& arrays, const double* y, double sigma, const double* table, int T_, double* space)
        : Base(arrays, GaussianCells<P>::half_cell(sigma), space),
          place(space + Base::scratch(arrays.n, T_)),
          T(table + CellShape<P>::reach * P * cell_stride<P>) {
        const Lanes half = Lanes::all(Base::unit), top = load(y, 0),
                    middle = Lanes::all(0.5) * (top - load(y, size - W));
        for (std::size_t i = 0; i < size; i += W) (((top - load(y, i)) - middle) / half).store(place + i);
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double*, Finish&& finish) const {
        Lanes M[P], L[P];
        for (int r = 0; r < P; ++r) M[r] = Lanes::all(0);
        for (std::size_t i = 0; i < size; i += W) {
            const Lanes a = load(place, i), a2 = a * a;
            Lanes even = load(x, i), odd = even * a;
            for (int r = 0; r < P; r += 2) {
                M[r] = M[r] + even;
                M[r + 1] = M[r + 1] + odd;
                even = even * a2;
                odd = odd * a2;
            }
        }
        for (int s = 0; s < P; ++s) {
            L[s] = Lanes::all(0);
            for (int r = s % 2; r < P; r += 2) L[s] = fma(Lanes::all(T[r * cell_stride<P> + s]), M[r], L[s]);
        }
        for (std::size_t i = 0; i < size; i += W) {
            const Lanes a = load(place, i);
            Lanes k = L[P - 1], dk = Lanes::all(-(P - 1)) * L[P - 1];
            for (int s = P - 2; s > 0; --s) {
                k = fma(k, a, L[s]);
                dk = fma(dk, a, rounded_product(Lanes::all(-s), L[s]));
            }
            finish(i, fma(k, a, L[0]), dk);
        }
    }
};

template <>
constexpr bool in_lists<LaplaceLists> = true;
template <>
constexpr bool in_lists<TiedLaplaceLists> = true;
template <>
constexpr bool in_lists<MatrixLists> = true;
template <>
constexpr bool in_lists<SummedLists> = true;
template <>
constexpr bool in_lists<SummedList> = true;
template <int P>
constexpr bool in_lists<PolynomialLists<P>> = true;

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
