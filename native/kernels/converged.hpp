// The limit of Sinkhorn's normalization, in which all rows and columns of Pi sum to 1, and the reverse pass of this
// limit (docs/linear-time.md 9). Operators, vectors and names are those of scaling.hpp.
//
// A is symmetric and positive semidefinite. So its limit is symmetric, too: Pi = diag(x) (A + epsilon) diag(x), where x
// solves x * (A + epsilon) x = 1, and all eigenvalues of Pi lie in [0, 1]. Both the equation for x and the linear
// system of the reverse pass have the matrix I + Pi, whose eigenvalues lie in [1, 2] for any scores and any width of
// the kernel. So both take few products.
//
// In an operator of ties, an element of x is the sum over the documents of a tie. The equation is then
// x * (A + epsilon) x = mask, and the matrix of the linear system is diag(mask) + diag(x) (A + epsilon) diag(x).
#pragma once

#include <cmath>

#include "scaling.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// Under these numbers the operator remembers products for the limit: those of linear systems, and (dA) x.
constexpr int solving = 0, scaled = limit_half_steps - 1;

// Returns r / mask for elements i .. i + W - 1 of a vector r that is 0 in the padding
template <class Operator>
SINKPROP_INLINE Lanes divided(const Operator& A, Lanes r, std::size_t i) {
    if constexpr (has_ties<Operator>) return r * load(A.inverse, i);
    return r;
}

// A rational function of s that is s^-w up to terms of (s - 1)^3, for |w| < 1. Its values lie between
// (1 - w) / (1 + w) and (1 + w) / (1 - w) for every s >= 0, so that a step with it is never too large.
SINKPROP_INLINE Lanes bounded_power(Lanes s, double w) {
    const Lanes more = Lanes::all(1 + w), less = Lanes::all(1 - w);
    return fma(less, s, more) / fma(more, s, less);
}

SINKPROP_INLINE Lanes square_root(Lanes x) {
    double each[W];
    x.store(each);
    for (std::size_t l = 0; l < W; ++l) each[l] = std::sqrt(each[l]);
    return Lanes::load(each);
}

// Computes the vector x of the limit, and writes it to the rows 1 and 2 of q (3, size), where Factors expects v and u.
// Afterwards, the operator remembers (dA) x under the number `scaled`.
//
// Let s = x * (A + epsilon) x. The first steps, x / sqrt(s), at least do not increase the largest |log s|, and halve
// it near the solution. Then follow the steps of Chebyshev's iteration for the interval [1, 2], which divide it by 5.8
// each. Their exact form is log x_(k+1) = log x_k - 4 r_k log s_k + r_k r_(k-1) (log x_k - log x_(k-1)) with r_0 = 1/3
// and r_(k+1) = 1 / (6 - r_k), and 2/3 in place of 4 r_0. Powers are replaced by `bounded_power`, which needs no
// logarithms.
template <class Operator>
inline void scale_to_limit(const Operator& A, const Normalization& z, double* q) {
    constexpr double near = 0.5;  // largest |s - 1| at which Chebyshev's iteration begins
    constexpr int patience = 30;  // number of products without progress, at which rounding errors prevent more of it
    const std::size_t N = A.size;
    double *change = q, *x = q + N, *next = x + N;
    Lanes total = Lanes::all(0);
    for (std::size_t i = 0; i < N; i += W) {
        const Lanes count = load(A.mask, i);
        count.store(x + i);
        total = total + count;
    }
    A.prepare(x);
    double residual = 1e300, least = 1e300, r = 0;
    for (int made = 0, waiting = 0;;) {
        const Lanes shift = Lanes::all(z.epsilon * sum(total));
        const double before = r;
        r = !(residual <= near) ? 0 : before > 0 ? 1 / (6 - before) : 1.0 / 3;
        Lanes worst = Lanes::all(0);
        total = Lanes::all(0);
        A.apply(x, scaled, next, [&](std::size_t i, Lanes k, Lanes mask) SINKPROP_LAMBDA {
            const Lanes xi = load(x, i), w = k + shift, y = xi * w, s = divided(A, y, i);
            worst = maximum(worst, absolute(divided(A, y - mask, i)));
            Lanes to;
            if (r == 0) {
                to = square_root(xi * mask / w);
            } else {
                Lanes step = bounded_power(s, before > 0 ? 4 * r : 2.0 / 3);
                if (before > 0) step = step * bounded_power(load(change, i), -r * before);
                step.store(change + i);
                to = xi * step;
            }
            to.store(next + i);
            total = total + to;
        });
        double each[W];
        worst.store(each);
        residual = 0;
        for (std::size_t l = 0; l < W; ++l)
            if (!(each[l] <= residual)) residual = each[l];
        waiting = residual < 0.5 * least ? 0 : waiting + 1;
        if (residual < least) least = residual;
        if (residual <= z.tol || ++made >= z.max_iter || waiting >= patience) break;
        double* swap = x;
        x = next;
        next = swap;
    }
    for (std::size_t i = 0; i < N; i += W) load(x, i).store(next + i);
    if (z.residual && !(residual <= *z.residual)) *z.residual = residual;
}

// The reverse pass of `scale_to_limit`: adds to the gradient how the scores affect the gain through x. The derivative
// of the gain with respect to log x is b = x * (u_bar + v_bar). With the solution of (I + Pi) alpha = b, which the
// method of conjugate gradients finds, the adjoint of A has the term p x' with p = -(x * alpha).
template <class Operator>
inline void limit_rev(const Operator& A, const Normalization& z, const double* q, const Adjoints& a,
                      double* SINKPROP_RESTRICT gradient) {
    constexpr int most = 100;
    const std::size_t N = A.size;
    const double* x = q + N;
    // the residual of the system, its solution, the direction of a step, x * direction, and (I + Pi) direction
    double *r = a.u_bar, *alpha = a.v_bar, *d = a.z_bar, *xd = a.x, *w = a.p_next;
    Lanes square = Lanes::all(0), total = Lanes::all(0);
    for (std::size_t i = 0; i < N; i += W) {
        const Lanes xi = load(x, i), b = xi * (load(a.u_bar, i) + load(a.v_bar, i)), first = divided(A, b, i);
        b.store(r + i);
        Lanes::all(0).store(alpha + i);
        first.store(d + i);
        (xi * first).store(xd + i);
        square = fma(b, first, square);
        total = fma(xi, first, total);
    }
    double size = sum(square);
    const double enough = z.linear_tol() * z.linear_tol() * size;
    for (int made = 0; made < most && size > enough; ++made) {
        const Lanes shift = Lanes::all(z.epsilon * sum(total));
        Lanes product = Lanes::all(0);
        A.prepare(xd);
        A.apply(xd, solving, nullptr, [&](std::size_t i, Lanes k, Lanes mask) SINKPROP_LAMBDA {
            const Lanes di = load(d, i), wi = fma(load(x, i), k + shift, mask * di);
            wi.store(w + i);
            product = fma(di, wi, product);
        });
        const double length = size / sum(product);
        const Lanes step = Lanes::all(length);
        square = total = Lanes::all(0);
        for (std::size_t i = 0; i < N; i += W) {
            fma(step, load(d, i), load(alpha, i)).store(alpha + i);
            const Lanes left = load(r, i) - step * load(w, i);
            left.store(r + i);
            square = fma(left, divided(A, left, i), square);
        }
        const double before = size;
        size = sum(square);
        const Lanes share = Lanes::all(size / before);
        for (std::size_t i = 0; i < N; i += W) {
            const Lanes to = fma(share, load(d, i), divided(A, load(r, i), i)), xi = load(x, i);
            to.store(d + i);
            (xi * to).store(xd + i);
            total = fma(xi, to, total);
        }
    }
    for (std::size_t i = 0; i < N; i += W) (-(load(x, i) * load(alpha, i))).store(xd + i);
    A.prepare(xd);
    A.apply_rev(xd, scaled, nullptr, [&](std::size_t i, Lanes, Lanes dk, Lanes m, double*) SINKPROP_LAMBDA {
        (load(gradient, i) + (load(xd, i) * m + load(x, i) * dk)).store(gradient + i);
    });
}

template <class Operator>
inline void normalize(const Operator& A, const Normalization& z, double* q) {
    if (z.to_limit())
        scale_to_limit(A, z, q);
    else
        scale(A, z.T, z.epsilon, q);
}

template <class Operator>
inline void normalize_rev(const Operator& A, const Normalization& z, const double* q, const Adjoints& a,
                          double* SINKPROP_RESTRICT gradient) {
    if (z.to_limit())
        limit_rev(A, z, q, a, gradient);
    else if (z.T > 0)
        scale_rev(A, z.T, z.epsilon, q, a, gradient);
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
