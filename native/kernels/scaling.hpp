// Sinkhorn normalization by a given number of half iterations, the expected gain under the rank probabilities that it
// gives, and the exact gradient of this gain.
//   scale                   docs/linear-time.md 1.1
//   gain                    docs/linear-time.md 1.2
//   gain_rev, scale_rev     docs/linear-time.md 1.3, with the gradient of docs/linear-time.md 2
// The limit of the normalization, which can take the place of the half iterations, is in converged.hpp.
//
// The matrix A has the entries A_ij = K(y_i - y_j), for a kernel K and scores y. With the documents in score order it
// is symmetric. Its entries are not used here: an operator computes its products with vectors. T half iterations of
// Sinkhorn's normalization (columns, rows, columns, ...) compute the scaling vectors q_0 = 1 and
// q_(t+1) = 1 / (A q_t + epsilon sum(q_t)). They give the matrix of rank probabilities,
// Pi = diag(u) (A + epsilon) diag(v), where u and v are the last two q: u = q_T and v = q_(T-1) for an even T,
// u = q_(T-1) and v = q_T for an odd T. In names, _bar is an adjoint: the derivative of the expected gain with respect
// to a vector. p_t is the adjoint of the sums w_t = 1 / q_(t+1). In formulas, * multiplies vectors elementwise.
//
// An operator offers
//   size                    padded length of every vector, a multiple of W
//   mask                    1 where a vector's element belongs to a document, 0 in the padding
//   unit                    the length that makes derivatives dimensionless: (dA)_ij = unit * d(A_ij) / dy_i
//   prepare(x)              must be called before a product with x, unless x was the `next` of the previous product
//   apply(x, t, next, finish)
//                           calls finish(i, k, mask) with elements i .. i + W - 1 (the lanes of a register) of
//                           k = A x and of the mask, for i = 0, W, 2 W, ...; remembers (dA) x under the number t.
//                           `next`, if not null, is the vector that finish writes and that will be multiplied by A
//                           next
//   apply_rev(p, t, next, finish)
//                           calls finish(i, k, dk, m, out) with the lanes of k = A p, of dk = (dA) p and of the
//                           vector m that is remembered under t. If `next` is not null, finish must write to `out`
//                           the lanes of the vector that will be multiplied by A next. The operator may store this
//                           vector in `next`, but need not
//   each_remembered(t, f)   calls f(i, m) with the lanes of the vector m that is remembered under t
//   each_document(f)        calls f(i, slot) for the i-th document by score, which is element `slot` of the vectors
//   each_padding(f)         calls f(slot) for the elements of the vectors that belong to no document
// For a positive x the products are positive in the padding, too, so that mask / k is 0 there.
//
// A product A x is never stored as a vector. Instead, the operator calls the function `finish` with W of its elements
// at a time, while they are in a register. This code computes q_1 = 1 / (A q_0), and then q_2 = 1 / (A q_1):
//
//     A.prepare(q_0);
//     A.apply(q_0, 0, q_1, [&](std::size_t i, Lanes k, Lanes mask) SINKPROP_LAMBDA {
//         (mask / k).store(q_1 + i);  // elements i .. i + W - 1 of q_1
//     });
//     A.apply(q_1, 1, nullptr, [&](std::size_t i, Lanes k, Lanes mask) SINKPROP_LAMBDA {
//         (mask / k).store(q_2 + i);  // no prepare(q_1): the first call was told that q_1 comes next
//     });
//
// Afterwards (dA) q_0 is remembered under 0 and (dA) q_1 under 1. The argument `next` lets GaussianCells compute the
// moments of q_1 in the call that computes q_1, while it is in the cache. In the reverse pass the operator need not
// even store the vector. This code computes p_0 = -(A p_1) * q_1^2 from p_1, and adds two terms to the gradient,
// p_0 * (dA) q_0 and q_1 * (dA) p_1:
//
//     A.prepare(p_1);
//     A.apply_rev(p_1, 0, p_0, [&](std::size_t i, Lanes k, Lanes dk, Lanes m, double* out) SINKPROP_LAMBDA {
//         const Lanes q = load(q_1, i), p = -(k * q * q);
//         p.store(out);                                                // not to p_0, which need not be written
//         (load(gradient, i) + (p * m + q * dk)).store(gradient + i);  // the two terms
//     });
//
// In an operator of ties (see ties.hpp), an element of a vector belongs to all documents with one score, and is the sum
// over these documents. The mask has the number of documents of each tie. The operator also offers
//   inverse                 1 / mask, or 0 in the padding
//   note(c, i, z, u, v)     must be called for each class c and each i with the lanes of u, v and z = (A + epsilon) x,
//                           where x = v * D[c]; computes the slopes that ties.hpp describes
#pragma once

#include "kernels.hpp"
#include "simd.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

constexpr std::size_t round_up(std::size_t n, std::size_t to) {
    return (n + to - 1) / to * to;
}

constexpr std::size_t larger(std::size_t a, std::size_t b) {
    return a > b ? a : b;
}

SINKPROP_INLINE Lanes load(const double* p, std::size_t i) {
    return Lanes::load(p + i);
}

template <class Operator>
constexpr bool has_ties = false;

// Whether the vectors of an operator hold W queries, one in each lane (see lists.hpp). Otherwise they hold W documents
// of one query.
template <class Operator>
constexpr bool in_lists = false;

// The sum of a vector's elements over the documents of each query, in every lane that belongs to the query. `sums` has
// the sum over the registers of the vector, from the first to the last.
template <class Operator>
SINKPROP_INLINE Lanes whole(const Operator&, Lanes sums) {
    if constexpr (in_lists<Operator>)
        return sums;
    else
        return Lanes::all(sum(sums));
}

// The same for a vector x whose registers were summed up in the order in which an operator went through them. For
// lists, this order depends on the longest of the queries, so that they are summed up once more.
template <class Operator>
SINKPROP_INLINE Lanes whole(const Operator& A, Lanes sums, const double* x) {
    if constexpr (in_lists<Operator>) {
        Lanes a = Lanes::all(0), b = a, c = a, d = a;
        std::size_t i = 0;
        for (; i + 3 * W < A.size; i += 4 * W) {
            a = a + load(x, i);
            b = b + load(x, i + W);
            c = c + load(x, i + 2 * W);
            d = d + load(x, i + 3 * W);
        }
        if (i < A.size) a = a + load(x, i);
        if (i + W < A.size) b = b + load(x, i + W);
        if (i + 2 * W < A.size) c = c + load(x, i + 2 * W);
        return (a + b) + (c + d);
    }
    return whole(A, sums);
}

// The expected gain sum_jk g_j D[c_j, k] Pi_jk. Document j has the gain g_j and the class c_j, D[c, k] is the discount
// of rank k for class c, and Pi_jk is the probability that document j has rank k. Often there is only one class. The
// arrays are sorted and padded like the vectors that the operator (the matrix A, see above) multiplies.
struct GainView {
    // (size,) gain of each document. If the elements are ties: (n_classes, size), for each class and tie the sum of the
    // gains of the tie's documents of this class, divided by the number of all documents of the tie.
    const double* g;
    // (n_classes, size) discount of each rank, for each class. If the elements are ties: mean discount of each tie's
    // ranks.
    const double* D;
    const std::int32_t* classes;  // (size,) class of each document; read only if n_classes > 1, and not for ties
    std::size_t n_classes;
};

// Writes x * y, elementwise, to out (N,), and returns the sum of its registers
SINKPROP_INLINE Lanes multiply(const double* x, const double* y, std::size_t N, double* out) {
    Lanes total = Lanes::all(0);
    for (std::size_t i = 0; i < N; i += W) {
        const Lanes product = load(x, i) * load(y, i);
        product.store(out + i);
        total = total + product;
    }
    return total;
}

// A normalization of A + epsilon: T half iterations or, if `tol` is above 0, the limit. Then T is limit_half_steps, no
// row or column sum of Pi may be farther than `tol` from 1, and `max_iter` limits the number of products that are
// spent on it.
struct Normalization {
    int T;
    double epsilon, tol;
    int max_iter;
    // If not null, this is raised to the largest deviation of a row or column sum from 1 that remains. Used only for
    // the limit.
    double* residual;
    bool to_limit() const { return tol > 0; }
    // Relative error that is allowed in the linear systems of the reverse pass
    double linear_tol() const { return tol < 1e-13 ? 1e-14 : tol < 1e-5 ? 0.1 * tol : 1e-6; }
};

SINKPROP_INLINE Normalization normalization(const Settings& s, double* residual) {
    return {s.half_steps, s.epsilon, s.tol, s.max_iter, residual};
}

// Computes the scaling vectors q_0 .. q_T of T half iterations (see the top of this file) and writes them to q
// (T + 1, size)
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
        const Lanes shift = Lanes::all(epsilon) * whole(A, total, q + t * N);
        total = Lanes::all(0);
        A.apply(q + t * N, t, t + 1 < T ? next : nullptr, [&](std::size_t i, Lanes k, Lanes mask) SINKPROP_LAMBDA {
            const Lanes r = mask / (k + shift);
            r.store(next + i);
            total = total + r;
        });
    }
}

// The last two scaling vectors q, which give the rank probabilities Pi = diag(u) (A + epsilon) diag(v): u has a factor
// for each row, v a factor for each column
struct Factors {
    const double *u, *v;
    Factors(const double* q, int T, std::size_t N) {
        const double *last = q + T * N, *before = T ? last - N : last;
        u = T % 2 ? before : last;
        v = T % 2 ? last : before;
    }
};

// The vectors that the computation of an expected gain and its gradient needs in addition to q. Each has the shape
// (size,); they lie in the caller's scratch.
struct Adjoints {
    // derivatives of the expected gain with respect to u and v, as if u and v did not depend on each other; sums over
    // all classes
    double *u_bar, *v_bar;
    // x = v * d, the product of the scaling vector v and the discounts d of one class, elementwise. z_bar: derivative
    // of the expected gain with respect to z = (A + epsilon) x.
    double *x, *z_bar;
    // p_next: scratch of scale_rev. g_class: gains of the documents of one class, and 0 for all others; used only if
    // n_classes > 1.
    double *p_next, *g_class;
    explicit Adjoints(double* space, std::size_t N)
        : u_bar(space), v_bar(u_bar + N), x(v_bar + N), z_bar(x + N), p_next(z_bar + N), g_class(p_next + N) {}
};

constexpr std::size_t expected_gain_scratch(std::size_t size, int T, std::size_t n_classes) {
    return (std::size_t(T) + (n_classes > 1 ? 7 : 6)) * size;
}

// Returns, in every lane of a query, the part of the expected gain from the documents of class c, with gains g and
// discounts d: g' (u * z), where z = (A + epsilon) x, x = v * d, and u and v are the last two scaling vectors (see
// Factors). Also adds g * z to u_bar, the derivative of the gain with respect to u. This belongs to the reverse pass,
// but z is not stored until then.
template <class Operator>
SINKPROP_INLINE Lanes gain(const Operator& A, std::size_t c, const double* g, const double* d, int T, double epsilon,
                           const Factors& pi, const Adjoints& a) {
    Lanes f = Lanes::all(0);
    const Lanes shift = Lanes::all(epsilon) * whole(A, multiply(pi.v, d, A.size, a.x));
    A.prepare(a.x);
    A.apply(a.x, T, nullptr, [&](std::size_t i, Lanes k, Lanes) SINKPROP_LAMBDA {
        const Lanes z = k + shift, gi = load(g, i);
        f = fma(gi * load(pi.u, i), z, f);
        fma(gi, z, load(a.u_bar, i)).store(a.u_bar + i);
        if constexpr (has_ties<Operator>) A.note(c, i, z, load(pi.u, i), load(pi.v, i));
    });
    if constexpr (in_lists<Operator>) {  // u_bar is g * z, because lists have one class
        f = Lanes::all(0);
        for (std::size_t i = 0; i < A.size; i += W) f = fma(load(pi.u, i), load(a.u_bar, i), f);
    }
    return whole(A, f);
}

// The reverse pass of `gain`, which computed z = (A + epsilon) x with x = v * d. Computes the derivatives of the gain
// with respect to z and x, which are z_bar = g * u and x_bar = (A + epsilon) z_bar, and adds d * x_bar to v_bar. Also
// adds z_bar * (dA) x + x * (dA) z_bar to the gradient, which is how the scores affect the gain through the product
// A x; for class 0, the gradient is overwritten instead.
template <class Operator>
SINKPROP_INLINE void gain_rev(const Operator& A, std::size_t c, const double* g, const double* d, int T, double epsilon,
                              const Factors& pi, const Adjoints& a, double* SINKPROP_RESTRICT gradient) {
    const Lanes shift = Lanes::all(epsilon) * whole(A, multiply(g, pi.u, A.size, a.z_bar));
    A.prepare(a.z_bar);
    A.apply_rev(a.z_bar, T, nullptr, [&](std::size_t i, Lanes k, Lanes dk, Lanes m, double*) SINKPROP_LAMBDA {
        fma(load(d, i), k + shift, load(a.v_bar, i)).store(a.v_bar + i);
        const Lanes term = fma(load(a.z_bar, i), m, rounded_product(load(a.x, i), dk));
        (c ? load(gradient, i) + term : term).store(gradient + i);
    });
}

// Returns r^2 / mask for elements i .. i + W - 1 of a vector r = mask / w. The derivative of r with respect to w is the
// negative of this. The mask of an element is 1 or, if the element is a tie, the number of the tie's documents.
template <class Operator>
SINKPROP_INLINE Lanes squared(const Operator& A, Lanes r, std::size_t i) {
    if constexpr (has_ties<Operator>) return r * r * load(A.inverse, i);
    return r * r;
}

// The reverse pass of `scale`, for T > 0: adds to the gradient how the scores affect the gain through the scaling
// vectors q_t. The adjoint of a vector is the derivative of the gain with respect to it. `scale` computed
// q_(t+1) = 1 / w_t with w_t = (A + epsilon) q_t. So the adjoint of w_t is p_t = -q_bar * q_(t+1)^2, where q_bar is the
// adjoint of q_(t+1). For t + 1 < T, q_bar is (A + epsilon) p_(t+1), plus u_bar or v_bar if q_(t+1) is u or v. For the
// last vector, q_T, it is u_bar or v_bar alone. Each t adds two terms to the gradient: p_t * (dA) q_t when p_t is
// computed, and q_t * (dA) p_t during the product that gives p_(t-1).
template <class Operator>
SINKPROP_INLINE void scale_rev(const Operator& A, int T, double epsilon, const double* q, const Adjoints& a,
                               double* SINKPROP_RESTRICT gradient) {
    const std::size_t N = A.size;
    const double *last = q + T * N, *last_bar = T % 2 ? a.v_bar : a.u_bar, *before_bar = T % 2 ? a.u_bar : a.v_bar;
    double *p = a.z_bar, *p_next = a.p_next;
    Lanes total = Lanes::all(0);
    A.each_remembered(T - 1, [&](std::size_t i, Lanes m) SINKPROP_LAMBDA {
        const Lanes pi = -(load(last_bar, i) * squared(A, load(last, i), i));
        pi.store(p + i);
        fma(pi, m, load(gradient, i)).store(gradient + i);
        total = total + pi;
    });
    A.prepare(p);
    for (int t = T - 1; t > 0; --t) {
        const double* qt = q + t * N;
        const Lanes shift = Lanes::all(epsilon) * whole(A, total, p);
        const bool direct = t == T - 1;
        total = Lanes::all(0);
        A.apply_rev(p, t - 1, p_next, [&](std::size_t i, Lanes k, Lanes dk, Lanes m, double* out) SINKPROP_LAMBDA {
            const Lanes r = load(qt, i);
            Lanes q_bar = k + shift;
            if (direct) q_bar = q_bar + load(before_bar, i);
            const Lanes next = -(q_bar * squared(A, r, i));
            next.store(out);
            fma(next, m, fma(r, dk, load(gradient, i))).store(gradient + i);
            total = total + next;
        });
        double* swap = p;
        p = p_next;
        p_next = swap;
    }
    A.apply_rev(p, 0, nullptr, [&](std::size_t i, Lanes, Lanes dk, Lanes, double*) SINKPROP_LAMBDA {
        fma(load(q, i), dk, load(gradient, i)).store(gradient + i);
    });
}

// Computes the scaling vectors of a normalization: those of `scale`, or those of the limit (converged.hpp)
template <class Operator>
void normalize(const Operator& A, const Normalization& z, double* q);

// The reverse pass of `normalize`, after that of the gain: `scale_rev`, or that of the limit (converged.hpp)
template <class Operator>
void normalize_rev(const Operator& A, const Normalization& z, const double* q, const Adjoints& a,
                   double* SINKPROP_RESTRICT gradient);

// Returns the expected gain of each query, in every lane that belongs to it, and writes its gradient with respect to
// the sorted scores, times the operator's unit, to `gradient`.
//
// The adjoint of a vector or matrix is the derivative of the expected gain with respect to it. Every product w = A q
// adds the matrix p q' to the adjoint of A, where p is the adjoint of w. So the product contributes
// p * (dA) q + q * (dA) p to the gradient: A is symmetric, and the score y_i changes both row i and column i of A.
template <class Operator>
inline Lanes expected_gain(const Operator& A, const GainView& view, const Normalization& normalization, double* scratch,
                           double* SINKPROP_RESTRICT gradient) {
    const std::size_t N = A.size;
    const int T = normalization.T;
    const double epsilon = normalization.epsilon;
    double* q = scratch;
    const Adjoints a(q + (T + 1) * N, N);
    if constexpr (in_lists<Operator>)
        scale(A, T, epsilon, q);
    else
        normalize(A, normalization, q);
    const Factors pi(q, T, N);
    for (std::size_t i = 0; i < 2 * N; i += W) Lanes::all(0).store(a.u_bar + i);
    Lanes value = Lanes::all(0);
    for (std::size_t c = 0; c < view.n_classes; ++c) {
        const double *d = view.D + c * N, *g = view.g;
        if constexpr (has_ties<Operator>) {
            g += c * N;
        } else if (view.n_classes > 1) {
            for (std::size_t i = 0; i < N; ++i) a.g_class[i] = view.classes[i] == std::int32_t(c) ? view.g[i] : 0;
            g = a.g_class;
        }
        value = value + gain(A, c, g, d, T, epsilon, pi, a);
        gain_rev(A, c, g, d, T, epsilon, pi, a, gradient);
    }
    if constexpr (!in_lists<Operator>)
        normalize_rev(A, normalization, q, a, gradient);
    else if (T)
        scale_rev(A, T, epsilon, q, a, gradient);
    return value;
}

// Computes the product out = Pi x with the matrix of rank probabilities, which is u * ((A + epsilon) (v * x)). `q` must
// hold the result of scale(), whose last two vectors are u and v. `y` (size,) is scratch.
template <class Operator>
inline void project(const Operator& A, const double* x, int T, double epsilon, const double* q, double* y,
                    double* out) {
    const Factors pi(q, T, A.size);
    const Lanes shift = Lanes::all(epsilon) * whole(A, multiply(pi.v, x, A.size, y));
    A.prepare(y);
    A.apply(y, T, nullptr,
            [&](std::size_t i, Lanes k, Lanes) SINKPROP_LAMBDA { (load(pi.u, i) * (k + shift)).store(out + i); });
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
