// Incomplete Sinkhorn normalization in scaling form, the expected gain under it, and the exact adjoint of both.
//
// In score order the matrix A is symmetric and is known only through its products. With q_0 = 1 and
// q_(t+1) = 1 / (A q_t + epsilon sum(q_t)), T half iterations (columns, rows, columns, ...) give
// Pi = diag(u) (A + epsilon) diag(v), where u and v are the two last q: u = q_T and v = q_(T-1) for an even T.
//
// An operator offers
//   size                    padded length of every vector, a multiple of W
//   mask                    1 where a vector's element belongs to a document, 0 where it pads
//   unit                    a length: with it, (dA)_ij = unit * dA_ij / dy_i
//   prepare(x)              to be called before a product with x, unless x was the `next` of the product before
//   apply(x, t, next, finish)
//                           finish(i, k, mask) for the lanes i of k = A x; remembers (dA) x under the number t
//                           `next`, if not null, is what finish writes, and multiplies A next
//   apply_rev(p, t, next, finish)
//                           finish(i, k, dk, m, out) for the lanes i of k = A p, dk = (dA) p and the m remembered
//                           under t. `next`, if not null, says that finish writes to `out` lanes of what multiplies A
//                           next; it may or may not be stored in `next`
//   each_remembered(t, f)   f(i, m) for the lanes i of what is remembered under t
//   each_document(f)        f(i, slot): where in the vectors the i-th document by score stands
//   each_padding(f)         f(slot) for the others
// An operator of ties, each of several documents with the same score (see ties.hpp), has their numbers in its mask, so
// that every vector holds the sum over a tie. It offers further
//   inverse                 1 / mask, 0 in the padding
//   note(c, i, z, u, v)     to be called for the lanes i of z = (A + epsilon) x, x = v * D[c]
// For a positive x the products are positive in the padding too, so that mask / k is 0 there.
#pragma once

#include "simd.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

constexpr std::size_t round_up(std::size_t n, std::size_t to) {
    return (n + to - 1) / to * to;
}

SINKPROP_INLINE Lanes load(const double* p, std::size_t i) {
    return Lanes::load(p + i);
}

template <class Operator>
constexpr bool has_ties = false;

// A gain sum_jk g_j D[c_j, k] Pi_jk. A separable gain has one class of documents, and D is its discount.
// The arrays are in the operator's order, padded like its vectors.
struct GainView {
    const double* g;              // (size,); (n_classes, size) for ties, the mean of each class's documents
    const double* D;              // (n_classes, size); for ties, the mean of their ranks
    const std::int32_t* classes;  // (size,); read only if there are several classes, and not for ties
    std::size_t n_classes;
};

// q_0 .. q_T (T + 1, size)
template <class Operator>
inline void scale(const Operator& A, int T, double epsilon, double* q) {
    const std::size_t N = A.size;
    Lanes total = Lanes::all(0);
    for (std::size_t i = 0; i < N; i += W) {
        const Lanes x = load(A.mask, i);
        x.store(q + i);
        total = total + x;
    }
    if (T) A.prepare(q);
    for (int t = 0; t < T; ++t) {
        double* next = q + (t + 1) * N;
        const Lanes shift = Lanes::all(epsilon * sum(total));
        total = Lanes::all(0);
        A.apply(q + t * N, t, t + 1 < T ? next : nullptr, [&](std::size_t i, Lanes k, Lanes mask) SINKPROP_LAMBDA {
            const Lanes r = mask / (k + shift);
            r.store(next + i);
            total = total + r;
        });
    }
}

// How r = mask / w changes with w: -r^2 / mask
template <class Operator>
SINKPROP_INLINE Lanes squared(const Operator& A, Lanes r, std::size_t i) {
    if constexpr (has_ties<Operator>) return r * r * load(A.inverse, i);
    return r * r;
}

constexpr std::size_t expected_gain_scratch(std::size_t size, int T, std::size_t n_classes) {
    return (std::size_t(T) + (n_classes > 1 ? 7 : 6)) * size;
}

// The value; its gradient with respect to the sorted scores, times the operator's unit, is written to `gradient`.
//
// Every product w = A q contributes the rank-one term p q' to the adjoint of A, p = w_bar, and so
// p * (dA) q + q * (dA) p to the gradient: A is symmetric, and y_i moves both its row and its column.
template <class Operator>
inline double expected_gain(const Operator& A, const GainView& gain, int T, double epsilon, double* scratch,
                            double* SINKPROP_RESTRICT gradient) {
    const std::size_t N = A.size;
    double *q = scratch, *u_bar = q + (T + 1) * N, *v_bar = u_bar + N;
    double *x = v_bar + N, *z_bar = x + N, *p_next = z_bar + N, *g_class = p_next + N;

    scale(A, T, epsilon, q);
    const double *last = q + T * N, *before = T ? last - N : last;
    const double *u = T % 2 ? before : last, *v = T % 2 ? last : before;

    for (std::size_t i = 0; i < 2 * N; i += W) Lanes::all(0).store(u_bar + i);
    double value = 0;
    for (std::size_t c = 0; c < gain.n_classes; ++c) {
        const double *d = gain.D + c * N, *g = gain.g;
        if constexpr (has_ties<Operator>) {
            g += c * N;
        } else if (gain.n_classes > 1) {
            for (std::size_t i = 0; i < N; ++i) g_class[i] = gain.classes[i] == std::int32_t(c) ? gain.g[i] : 0;
            g = g_class;
        }
        // f = sum_j g_j u_j z_j with z = (A + epsilon) x, x = v * d
        Lanes total_x = Lanes::all(0), total_z_bar = Lanes::all(0), f = Lanes::all(0);
        for (std::size_t i = 0; i < N; i += W) {
            const Lanes xi = load(v, i) * load(d, i), zi = load(g, i) * load(u, i);
            xi.store(x + i);
            zi.store(z_bar + i);
            total_x = total_x + xi;
            total_z_bar = total_z_bar + zi;
        }
        const Lanes shift = Lanes::all(epsilon * sum(total_x)), shift_bar = Lanes::all(epsilon * sum(total_z_bar));
        A.prepare(x);
        A.apply(x, T, nullptr, [&](std::size_t i, Lanes k, Lanes) SINKPROP_LAMBDA {
            const Lanes z = k + shift;
            f = fma(load(z_bar, i), z, f);
            fma(load(g, i), z, load(u_bar, i)).store(u_bar + i);
            if constexpr (has_ties<Operator>) A.note(c, i, z, load(u, i), load(v, i));
        });
        value += sum(f);
        A.prepare(z_bar);
        A.apply_rev(z_bar, T, nullptr, [&](std::size_t i, Lanes k, Lanes dk, Lanes m, double*) SINKPROP_LAMBDA {
            fma(load(d, i), k + shift_bar, load(v_bar, i)).store(v_bar + i);
            const Lanes term = load(z_bar, i) * m + load(x, i) * dk;
            (c ? load(gradient, i) + term : term).store(gradient + i);
        });
    }
    if (T == 0) return value;

    // q_(t+1) = 1 / w_t, so p_t = w_bar = -q_bar q_(t+1)^2; q_(T-1) is also used by the gain itself. A term p_t * (dA)
    // q_t is taken when p_t is made, and q_t * (dA) p_t with the product that makes p_(t-1).
    const double *last_bar = T % 2 ? v_bar : u_bar, *before_bar = T % 2 ? u_bar : v_bar;
    double* p = z_bar;
    Lanes total = Lanes::all(0);
    A.each_remembered(T - 1, [&](std::size_t i, Lanes m) SINKPROP_LAMBDA {
        const Lanes pi = -(load(last_bar, i) * squared(A, load(last, i), i));
        pi.store(p + i);
        (load(gradient, i) + pi * m).store(gradient + i);
        total = total + pi;
    });
    A.prepare(p);
    for (int t = T - 1; t > 0; --t) {
        const double* qt = q + t * N;
        const Lanes shift = Lanes::all(epsilon * sum(total));
        const bool direct = t == T - 1;
        total = Lanes::all(0);
        A.apply_rev(p, t - 1, p_next, [&](std::size_t i, Lanes k, Lanes dk, Lanes m, double* out) SINKPROP_LAMBDA {
            const Lanes r = load(qt, i);
            Lanes q_bar = k + shift;
            if (direct) q_bar = q_bar + load(before_bar, i);
            const Lanes next = -(q_bar * squared(A, r, i));
            next.store(out);
            (load(gradient, i) + (next * m + r * dk)).store(gradient + i);
            total = total + next;
        });
        double* swap = p;
        p = p_next;
        p_next = swap;
    }
    A.apply_rev(p, 0, nullptr, [&](std::size_t i, Lanes, Lanes dk, Lanes, double*) SINKPROP_LAMBDA {
        (load(gradient, i) + load(q, i) * dk).store(gradient + i);
    });
    return value;
}

// Pi x = u * ((A + epsilon) (v * x)), from the q that scale() left at `q`; `y` is scratch.
template <class Operator>
inline void project(const Operator& A, const double* x, int T, double epsilon, const double* q, double* y,
                    double* out) {
    const std::size_t N = A.size;
    const double *last = q + T * N, *before = T ? last - N : last;
    const double *u = T % 2 ? before : last, *v = T % 2 ? last : before;
    Lanes total = Lanes::all(0);
    for (std::size_t i = 0; i < N; i += W) {
        const Lanes yi = load(v, i) * load(x, i);
        yi.store(y + i);
        total = total + yi;
    }
    const Lanes shift = Lanes::all(epsilon * sum(total));
    A.prepare(y);
    A.apply(y, T, nullptr,
            [&](std::size_t i, Lanes k, Lanes) SINKPROP_LAMBDA { (load(u, i) * (k + shift)).store(out + i); });
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
