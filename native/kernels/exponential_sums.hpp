// Products of vectors with the matrix A_ij = K(y_i - y_j), where K is the Laplace or the Gaussian kernel and y are the
// sorted scores, and with its derivative (dA)_ij = unit * d(A_ij) / dy_i, where unit is proportional to the kernel's
// width.
//
// LaplaceSums (docs/linear-time.md 3.1) and GaussianSums (docs/linear-time.md 3.2) are operators, whose functions are
// listed in scaling.hpp. Both sweep over the sorted scores, and take linear time for any scores.
#pragma once

#include "gauss_coefficients.hpp"
#include "scaling.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

constexpr double sqrt2 = 1.41421356237309504880;

// Base class that implements the functions of an operator (apply, apply_rev and others, see scaling.hpp) by one
// function of the derived class, both(x, spare, finish). That function must compute k = A x and dk = (dA) x, where A is
// the operator's matrix and dA its derivative, and call finish(i, k, dk) with their elements i .. i + W - 1 for every
// multiple i of W, the number of doubles in a register. If `spare` is not null, `finish` writes to elements i .. i + W
// - 1 of it, and until then `both` may keep there what it needs. `apply` stores the products (dA) x in `memory`,
// because the reverse pass needs them. The i-th document is element i of the vectors, unless the operator overrides
// each_document and each_padding.
template <class Operator>
struct Remembering {
    // (T + 1, size) for T half iterations of Sinkhorn's normalization: row t has the vector (dA) x of the call
    // apply(x, t, ...)
    double* memory = nullptr;

    void prepare(const double*) const {}
    template <class Finish>
    SINKPROP_INLINE void apply(const double* x, int t, const double*, Finish&& finish) const {
        double* m = memory + std::size_t(t) * self().size;
        self().both(x, m, [&](std::size_t i, Lanes k, Lanes dk) SINKPROP_LAMBDA {
            dk.store(m + i);
            finish(i, k, load(self().mask, i));
        });
    }
    template <class Finish>
    SINKPROP_INLINE void apply_rev(const double* p, int t, double* next, Finish&& finish) const {
        const double* m = memory + std::size_t(t) * self().size;
        self().both(p, next, [&](std::size_t i, Lanes k, Lanes dk) SINKPROP_LAMBDA {
            finish(i, k, dk, load(m, i), next ? next + i : nullptr);
        });
    }
    template <class F>
    SINKPROP_INLINE void each_remembered(int t, F&& f) const {
        const double* m = memory + std::size_t(t) * self().size;
        for (std::size_t i = 0; i < self().size; i += W) f(i, load(m, i));
    }

    template <class F>
    void each_document(F&& f) const {
        for (std::size_t i = 0; i < self().n; ++i) f(i, i);
    }
    template <class F>
    void each_padding(F&& f) const {
        for (std::size_t i = self().n; i < self().size; ++i) f(i);
    }

  private:
    const Operator& self() const { return static_cast<const Operator&>(*this); }
};

// The Gaussian kernel as a sum of P pairs of complex conjugate exponentials:
//   K(y_i - y_j) = exp(-t^2/4) = 2 Re sum_m w_m exp(-s_m t),      t = sqrt(2) |y_i - y_j| / sigma,      m = 1 .. P,
// with the complex constants w_m and s_m of gauss_coefficients.hpp.
//
// For each m there are two sweeps over the documents, each with one complex number as its state:
//   H_i = e_i H_(i-1) + x_i from the top,      G_i = e_(i+1) G_(i+1) + x_i from the bottom,
// where e_i = exp(-s_m t_i), and t_i is the t of documents i - 1 and i. With unit = sigma / sqrt(2),
//   (A x)_i = 2 Re sum_m w_m (H_i + G_i) - x_i,      (dA x)_i = 2 Re sum_m w_m s_m (H_i - G_i).
// Both sweeps advance in one loop, from opposite ends, so that the latency of one hides behind the other. Up to the
// middle they only store their states. Beyond it, the two states of each document are added before they are multiplied
// by the weights w_m, which halves the number of these multiplications.
template <int P>
struct GaussianSums : Remembering<GaussianSums<P>> {
    // The state of a sweep is P complex numbers. `registers` registers hold their real parts, and as many hold their
    // imaginary parts; each register has `lanes` numbers.
    static constexpr int lanes = P < W ? P : W;
    static constexpr int registers = P / lanes;
    using V = Vec<lanes>;
    using Coefficients = GaussCoefficients<P>;

    std::size_t n, size;
    double unit;
    double *mask, *decay, *states, *products;

    // Largest value of t = sqrt(2) |y_i - y_j| / sigma, at which the kernel exp(-t^2/4) is below 1e-400. Larger t are
    // replaced by it, which keeps the arguments of sine and cosine in range and avoids denormal numbers.
    static constexpr double t_max = 64;

    static constexpr std::size_t padded(std::size_t n) { return round_up(n, 8); }
    static constexpr std::size_t scratch(std::size_t n, int T) {
        return (4 + std::size_t(T) + 4 * P) * padded(n) + 2 * P;
    }

    GaussianSums(const double* y, std::size_t n_, double sigma, int T, double* space)
        : n(n_), size(padded(n_)), unit(sigma / sqrt2) {
        this->memory = space;
        mask = space + (std::size_t(T) + 1) * size;
        products = mask + size;        // (2, size): A x and (dA) x, for the vector x that was multiplied last
        states = products + 2 * size;  // (size, 2 P): at each document, the states of the sweep that reached it first
        // (size + 1, 2 P): row i has the decay factors e_i = exp(-s_m t_i) from document i - 1 to document i, for
        // m = 1 .. P: first P real parts, then P imaginary parts
        decay = states + 2 * P * size;
        for (std::size_t i = 0; i < size; ++i) mask[i] = i < n ? 1 : 0;
        for (int c = 0; c < 2 * P; ++c) {
            decay[c] = decay[2 * P * size + c] = 0;
            for (std::size_t i = n; i < size; ++i) decay[2 * P * i + c] = c < P ? 1 : 0;
        }
        V s_re[registers], s_im[registers];
        for (int r = 0; r < registers; ++r) {
            s_re[r] = V::load(Coefficients::s_re + r * lanes);
            s_im[r] = V::load(Coefficients::s_im + r * lanes);
        }
        for (std::size_t i = 1; i < n; ++i) {
            const double gap = sqrt2 * ((y[i - 1] - y[i]) / sigma);
            const V t = V::all(gap < t_max ? gap : t_max);
            for (int r = 0; r < registers; ++r) {
                V sine, cosine;
                const V radius = exp(-(s_re[r] * t));
                sincos(s_im[r] * t, sine, cosine);
                (radius * cosine).store(decay + 2 * P * i + r * lanes);
                (-(radius * sine)).store(decay + 2 * P * i + P + r * lanes);
            }
        }
    }

    struct Weights {
        V k_re[registers], k_im[registers], m_re[registers], m_im[registers];
        SINKPROP_INLINE Weights() {
            double kr[P], ki[P], mr[P], mi[P];
            for (int c = 0; c < P; ++c) {
                kr[c] = 2 * Coefficients::w_re[c];
                ki[c] = -2 * Coefficients::w_im[c];
                mr[c] =
                    2 * (Coefficients::w_re[c] * Coefficients::s_re[c] - Coefficients::w_im[c] * Coefficients::s_im[c]);
                mi[c] = -2 *
                        (Coefficients::w_re[c] * Coefficients::s_im[c] + Coefficients::w_im[c] * Coefficients::s_re[c]);
            }
            for (int r = 0; r < registers; ++r) {
                k_re[r] = V::load(kr + r * lanes);
                k_im[r] = V::load(ki + r * lanes);
                m_re[r] = V::load(mr + r * lanes);
                m_im[r] = V::load(mi + r * lanes);
            }
        }
    };

    struct State {
        V re[registers], im[registers];
        SINKPROP_INLINE State() {
            for (int r = 0; r < registers; ++r) re[r] = im[r] = V::all(0);
        }
        // Advances the state H of a sweep by one document: H = e H + x, with the document's decay factors e and its
        // element x of the vector
        SINKPROP_INLINE void step(const double* e, double x) {
            for (int r = 0; r < registers; ++r) {
                const V a = V::load(e + r * lanes), b = V::load(e + P + r * lanes);
                const V next = fma(a, re[r], V::all(x) - b * im[r]);
                im[r] = fma(a, im[r], b * re[r]);
                re[r] = next;
            }
        }
        SINKPROP_INLINE void store(double* p) const {
            for (int r = 0; r < registers; ++r) {
                re[r].store(p + r * lanes);
                im[r].store(p + P + r * lanes);
            }
        }
    };

    // Computes the products for one document i from the states of both sweeps: the numbers in the register k add up to
    // (A x)_i + x_i, from which x_i is subtracted later, and the numbers in the register m add up to (dA x)_i. `here`
    // has the states of one sweep at this document, and `other` the stored states of the other sweep. `sign` is 1 if
    // `here` belongs to the sweep from the top, otherwise -1.
    template <int sign>
    static SINKPROP_INLINE void join(const State& here, const double* other, const Weights& w, V& k, V& m) {
        for (int r = 0; r < registers; ++r) {
            const V re = V::load(other + r * lanes), im = V::load(other + P + r * lanes);
            const V sum_re = here.re[r] + re, sum_im = here.im[r] + im;
            const V dif_re = sign > 0 ? here.re[r] - re : re - here.re[r];
            const V dif_im = sign > 0 ? here.im[r] - im : im - here.im[r];
            k = r ? fma(w.k_re[r], sum_re, fma(w.k_im[r], sum_im, k)) : fma(w.k_re[r], sum_re, w.k_im[r] * sum_im);
            m = r ? fma(w.m_re[r], dif_re, fma(w.m_im[r], dif_im, m)) : fma(w.m_re[r], dif_re, w.m_im[r] * dif_im);
        }
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double*, Finish&& finish) const {
        const Weights w;
        State h, g;
        const std::size_t N = size;
        const double *e_down = decay, *e_up = decay + 2 * P * N, *x_down = x, *x_up = x + N;
        double *s_down = states, *s_up = states + 2 * P * N, *k_out = products, *m_out = products + N;
        // up to the middle, both sweeps store their states
        for (const double* const middle = x + N / 2; x_down != middle;) {
            h.step(e_down, *x_down++);
            g.step(e_up, *--x_up);
            h.store(s_down);
            e_down += 2 * P;
            e_up -= 2 * P;
            s_down += 2 * P;
            s_up -= 2 * P;
            g.store(s_up);
        }
        // beyond the middle, each sweep uses the states that the other one stored
        for (std::size_t i = N / 2, j = N / 2 - 4; i < N; i += 4, j -= 4) {
            V k[4], m[4], l[4], o[4];
            for (int s = 0; s < 4; ++s) {
                h.step(e_down, *x_down++);
                g.step(e_up, *--x_up);
                join<1>(h, s_down, w, k[s], m[s]);
                s_up -= 2 * P;
                join<-1>(g, s_up, w, l[3 - s], o[3 - s]);
                e_down += 2 * P;
                e_up -= 2 * P;
                s_down += 2 * P;
            }
            store_sums(k[0], k[1], k[2], k[3], k_out + i);
            store_sums(m[0], m[1], m[2], m[3], m_out + i);
            store_sums(l[0], l[1], l[2], l[3], k_out + j);
            store_sums(o[0], o[1], o[2], o[3], m_out + j);
        }
        for (std::size_t i = 0; i < N; i += W) finish(i, load(k_out, i) - load(x, i), load(m_out, i));
    }
};

// The Laplace kernel K(y_i - y_j) = exp(-|y_i - y_j| / tau). With the real states H_i = e_i H_(i-1) + x_i from the top
// and G_i = e_(i+1) G_(i+1) + x_i from the bottom, e_i = exp(-(y_(i-1) - y_i) / tau) and unit = tau,
//   (A x)_i = H_i + G_i - x_i,      (dA x)_i = H_i - G_i.
//
// The list is cut into stretches of `rows` documents, which are swept side by side: the r-th document of stretch c is
// element r * stretches + c of the vectors. The upward sweep starts each stretch with a zero state and stores its
// states. It also computes the state with which a downward sweep, started with a zero state, would leave the stretch.
// From these, the states that enter each stretch from above and from below follow. The downward sweep starts each
// stretch with the state that enters from above. To the stored states of the upward sweep it adds the state that enters
// from below, times the decay.
struct LaplaceSums : Remembering<LaplaceSums> {
    static constexpr int stretches = W < 4 ? 8 : 2 * W;
    static constexpr int registers = stretches / W;  // number of registers that hold one element per stretch

    std::size_t n, rows, size;
    double unit;
    double *mask, *e, *to_end, *g;

    static constexpr std::size_t padded(std::size_t n) { return round_up(n, stretches); }
    static constexpr std::size_t scratch(std::size_t n, int T) { return (5 + std::size_t(T)) * padded(n) + stretches; }

    LaplaceSums(const double* y, std::size_t n_, double tau, int T, double* space)
        : n(n_), rows(padded(n_) / stretches), size(padded(n_)), unit(tau) {
        memory = space;
        mask = space + (std::size_t(T) + 1) * size;
        // (rows, stretches): value of the kernel for each document and the last document of its stretch (one of the
        // equal parts that the list is cut into)
        to_end = mask + size;
        g = to_end + size;
        // (rows + 1, stretches): e[r, c] is the decay factor from the previous document to the r-th document of stretch
        // c. The last row has the factor from the last document of stretch c to the first one of stretch c + 1.
        e = g + size;
        for (std::size_t i = 0; i < size; ++i) mask[i] = 1;
        each_padding([&](std::size_t slot) SINKPROP_LAMBDA { mask[slot] = e[slot] = 0; });
        each_document([&](std::size_t i, std::size_t slot) SINKPROP_LAMBDA { e[slot] = i > 0 ? y[i - 1] - y[i] : 0; });
        for (std::size_t i = 0; i < size; i += W) exp(-(load(e, i) / Lanes::all(tau))).store(e + i);
        for (std::size_t c = 0; c < stretches; ++c) e[rows * stretches + c] = c + 1 < stretches ? e[c + 1] : 0;
        e[0] = 0;
        for (int l = 0; l < registers; ++l) {
            Lanes decay = Lanes::all(1);
            for (std::size_t r = rows; r-- > 0;) {
                decay.store(to_end + r * stretches + l * W);
                decay = decay * Lanes::load(e + r * stretches + l * W);
            }
        }
    }

    // Goes through blocks of rows that stay in the cache, because two neighbors in a stretch are far apart in the
    // vectors
    template <class F>
    void each_document(F&& f) const {
        constexpr std::size_t block = 8;
        for (std::size_t from = 0; from < rows; from += block)
            for (std::size_t c = 0; c < stretches && c * rows + from < n; ++c) {
                std::size_t to = from + block < rows ? from + block : rows;
                if (c * rows + to > n) to = n - c * rows;
                for (std::size_t r = from; r < to; ++r) f(c * rows + r, r * stretches + c);
            }
    }
    template <class F>
    void each_padding(F&& f) const {
        for (std::size_t i = n; i < size; ++i) f(i % rows * stretches + i / rows);
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double*, Finish&& finish) const {
        const std::size_t N = size;
        const double *decay = e, *end_decay = to_end;
        double* up = g;
        Lanes state[registers], handed[registers];
        for (int l = 0; l < registers; ++l) state[l] = handed[l] = Lanes::all(0);
        for (std::size_t i = N; i > 0;) {
            i -= stretches;
            for (int l = 0; l < registers; ++l) {
                const std::size_t j = i + l * W;
                const Lanes xj = load(x, j);
                handed[l] = fma(load(end_decay, j), xj, handed[l]);
                state[l] = fma(load(decay + stretches, j), state[l], xj);
                state[l].store(up + j);
            }
        }
        // from_above[c] is the state with which the downward sweep enters stretch c. from_below[c] is the state with
        // which the upward sweep enters it, already multiplied by the decay factor up to its last document. last[c] and
        // first[c] are the states with which the downward and the upward sweep, respectively, would leave stretch c if
        // they entered it with a zero state.
        double from_above[stretches], from_below[stretches], first[stretches], last[stretches];
        for (int l = 0; l < registers; ++l) {
            state[l].store(first + l * W);
            handed[l].store(last + l * W);
        }
        double carry = 0;
        for (int c = 0; c < stretches; ++c) {
            from_above[c] = carry;
            carry = last[c] + end_decay[c] * decay[c] * carry;
        }
        carry = 0;
        for (int c = stretches; c-- > 0;) {
            from_below[c] = decay[N + c] * carry;
            carry = first[c] + end_decay[c] * decay[N + c] * carry;
        }
        Lanes below[registers];
        for (int l = 0; l < registers; ++l) {
            state[l] = Lanes::load(from_above + l * W);
            below[l] = Lanes::load(from_below + l * W);
        }
        for (std::size_t i = 0; i < N; i += stretches)
            for (int l = 0; l < registers; ++l) {
                const std::size_t j = i + l * W;
                const Lanes xj = load(x, j), up_j = fma(load(end_decay, j), below[l], load(up, j));
                state[l] = fma(load(decay, j), state[l], xj);
                finish(j, state[l] + up_j - xj, state[l] - up_j);
            }
    }
};

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
