// ListNet's loss of one query: the cross entropy between the Plackett-Luce models of two lists of scores, over the
// first k ranks, and its gradient with respect to the model's scores. docs/baselines.md
//
// Let y be the target's scores and z the model's scores. A Plackett-Luce model draws the document of each rank from
// those that are left: document j with probability P_j = e^(y_j) / sum e^y under the target, and with probability
// Q_j = e^(z_j) / sum e^z under the model. The loss over k ranks is
//
//   L_1 = sum_j P_j (log sum e^z - z_j),     L_k = L_1 + sum_j P_j L_(k-1)(without j).
//
// L_1 and L_2 take linear time; each further rank costs a factor of n. L_2 needs the sum of the exponentials without j,
// for every j. Any exponential but the largest can be subtracted from the sum, since at least half of the sum remains.
// The largest one is not subtracted. Instead, the others are computed in units of the second largest, so that their sum
// is as accurate as the other sums. For any scores, no exponential overflows and no logarithm of 0 is taken.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "simd.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {
namespace listnet {

constexpr double farthest = 1e300;     // the limit of differences of scores, which keeps sums of losses finite
constexpr double nowhere = -INFINITY;  // fills vectors of scores where there is no document: its exponential is 0

SINKPROP_INLINE Lanes get(const double* p, std::size_t count, double fill) {
    if (count == W) return Lanes::load(p);
    double x[W];
    for (std::size_t l = 0; l < W; ++l) x[l] = l < count ? p[l] : fill;
    return Lanes::load(x);
}

SINKPROP_INLINE void put(Lanes v, double* p, std::size_t count) {
    if (count == W) return v.store(p);
    double x[W];
    v.store(x);
    for (std::size_t l = 0; l < count; ++l) p[l] = x[l];
}

// Divides n elements into groups, and calls body(i, count) for each group i .. i + count - 1. `count` is W, the number
// of doubles in a register, or less in the last call.
template <class Body>
SINKPROP_INLINE void sweep(std::size_t n, Body&& body) {
    std::size_t i = 0;
    for (; i + W <= n; i += W) body(i, W);
    if (i < n) body(i, n - i);
}

// Length of a scratch array for n elements. It is a multiple of 8, and so of the number of doubles in a register. So
// loops may read and write whole registers of a scratch array; only for the caller's arrays must they check where the
// array ends.
constexpr std::size_t padded(std::size_t n) {
    return (n + 7) / 8 * 8;
}

struct TwoLargest {
    double most = nowhere, second = nowhere;

    TwoLargest(const double* x, std::size_t n) {
        Lanes first = Lanes::all(nowhere), next = Lanes::all(nowhere);
        sweep(n, [&](std::size_t i, std::size_t count) SINKPROP_LAMBDA {
            const Lanes v = get(x + i, count, nowhere);
            next = maximum(next, minimum(first, v));
            first = maximum(first, v);
        });
        double lanes[2 * W];
        first.store(lanes);
        next.store(lanes + W);
        for (double lane : lanes) {
            const double less = lane > most ? most : lane;
            second = less > second ? less : second;
            most = lane > most ? lane : most;
        }
    }
};

// a - b, limited to the range from 0 to `farthest`
SINKPROP_INLINE Lanes distance(Lanes a, Lanes b) {
    return minimum(maximum(a - b, Lanes::all(0)), Lanes::all(farthest));
}

// -log(1 - q) = 2 artanh(q / (2 - q)) for 0 <= q <= 1/2, by a series whose terms decrease by a factor of at least 9
SINKPROP_INLINE Lanes minus_log1m(Lanes q) {
    const Lanes s = q / (Lanes::all(2) - q), s2 = s * s;
    Lanes sum = Lanes::all(1.0 / 33);
    for (int odd = 31; odd > 0; odd -= 2) sum = fma(sum, s2, Lanes::all(1.0 / odd));
    return (s + s) * sum;
}

// The exponentials of scores x_j: u_j = e^(x_j - second), where `second` is the second largest score, but u_j = 0 for
// the document with the largest score, `most`. In units of the largest exponential, e^most, the other exponentials are
// ratio * u_j.
//   ratio = e^(second - most)
//   rest = sum_j u_j, the sum of all exponentials but the largest, in units of e^second
//   whole = 1 + ratio * rest, the sum of all exponentials, in units of e^most
struct Exponentials {
    std::size_t top;      // index of the document with the largest score
    double most, second;  // the two largest scores
    double ratio, rest, whole;

    Exponentials(const double* x, std::size_t n, double* SINKPROP_RESTRICT u) {
        const TwoLargest largest(x, n);
        most = largest.most;
        second = largest.second;
        for (top = 0; x[top] != most;) ++top;
        Lanes total = Lanes::all(0);
        const Lanes shift = Lanes::all(second), zero = Lanes::all(0);
        sweep(n, [&](std::size_t i, std::size_t count) SINKPROP_LAMBDA {
            const Lanes e = exp(minimum(get(x + i, count, nowhere) - shift, zero));
            e.store(u + i);
            total = total + e;
        });
        u[top] = 0;
        rest = sum(total) - 1;
        ratio = std::exp(second - most);
        whole = 1 + ratio * rest;
    }
    // The sum of all exponentials except that of one document j, in units of the largest exponential, e^most. The
    // argument u is u_j = e^(x_j - second), and j must not be the document with the largest score.
    SINKPROP_INLINE Lanes without(Lanes u) const { return Lanes::all(whole) - Lanes::all(ratio) * u; }
    double without(double u) const { return whole - ratio * u; }
};

// Writes `count` elements v of a gradient to g, or adds them to g if `adds`
template <bool adds>
SINKPROP_INLINE void give(Lanes v, double* g, std::size_t count) {
    put(adds ? get(g, count, 0) + v : v, g, count);
}

// Returns L_1, the loss over the first rank, for model scores z and target scores y. Writes `scale` times its gradient
// with respect to z to g, or adds it to g if `adds`. `scratch` has 2 padded(n) doubles. If `P` is not null, writes to
// it the target's probabilities P_j that document j has the first rank.
template <bool adds>
double top_one(const double* z, const double* y, std::size_t n, double scale, double* scratch,
               double* SINKPROP_RESTRICT g, double* P) {
    double *u = scratch, *t = u + padded(n);
    const Lanes z_most = Lanes::all(TwoLargest(z, n).most), y_most = Lanes::all(TwoLargest(y, n).most);
    Lanes model = Lanes::all(0), target = Lanes::all(0), away = Lanes::all(0);
    sweep(n, [&](std::size_t i, std::size_t count) SINKPROP_LAMBDA {
        const Lanes score = get(z + i, count, nowhere);
        const Lanes e = exp(score - z_most), f = exp(get(y + i, count, nowhere) - y_most);
        e.store(u + i);
        f.store(t + i);
        model = model + e;
        target = target + f;
        away = away + f * distance(z_most, score);
    });
    const double s = sum(model), total = sum(target);
    const Lanes of_model = Lanes::all(scale / s), of_target = Lanes::all(scale / total), share = Lanes::all(1 / total);
    sweep(n, [&](std::size_t i, std::size_t count) SINKPROP_LAMBDA {
        const Lanes f = Lanes::load(t + i);
        give<adds>(Lanes::load(u + i) * of_model - f * of_target, g + i, count);
        if (P) put(f * share, P + i, count);
    });
    return std::log(s) + sum(away) / total;
}

// Returns L_2, the loss over the first two ranks, of n >= 3 documents with model scores z and target scores y. Writes
// `scale` times its gradient with respect to z to g, or adds it to g if `adds`. `scratch` has 4 padded(n) doubles. In
// the code, `first` is the document with the largest model score, and `wanted` the one with the largest target score.
template <bool adds>
double top_two(const double* z, const double* y, std::size_t n, double scale, double* scratch,
               double* SINKPROP_RESTRICT g) {
    const std::size_t stride = padded(n);
    double *u = scratch, *t = u + stride, *a = t + stride, *b = a + stride;
    const Exponentials model(z, n, u), target(y, n, t);
    const std::size_t first = model.top, wanted = target.top;
    // P_j = share * t_j for every document j but `wanted`; t_j is the exponential of the target's score in units of the
    // second largest (see Exponentials)
    const double share = target.ratio / target.whole;
    const double P_wanted = 1 / target.whole, P_first = first == wanted ? P_wanted : share * t[first];
    const bool apart = first != wanted;

    // The target draws document j first with probability P_j. Then any other document is drawn second with
    // a probability that is its exponential divided by the sum of all exponentials without j. The sweep computes
    // a_j = P_j / (this sum for the model), b_j = P_j / (this sum for the target), and the sums of a_j and of b_j over
    // j. The sweep is wrong for `first` and `wanted`, whose exponentials are stored as 0 in u (model) and in t
    // (target), respectively; the code after the sweep corrects the sums. In the end, a of `first` and b of `wanted`
    // are 0. N_shared and M_shared below take their place: they belong to sums without the largest exponential, which
    // are in units of the second largest.
    Lanes lanes_a = Lanes::all(0), lanes_b = Lanes::all(0), logs = Lanes::all(0), others = Lanes::all(0);
    const Lanes by_share = Lanes::all(share), odds = Lanes::all(model.ratio / model.whole);
    sweep(n, [&](std::size_t i, std::size_t) SINKPROP_LAMBDA {
        const Lanes ui = Lanes::load(u + i), ti = Lanes::load(t + i), P = by_share * ti;
        const Lanes ai = P / model.without(ui), bi = P / target.without(ti);
        ai.store(a + i);
        bi.store(b + i);
        lanes_a = lanes_a + ai;
        lanes_b = lanes_b + bi;
        logs = logs + P * minus_log1m(odds * ui);
        others = others + P;
    });
    double sum_a = sum(lanes_a), sum_b = sum(lanes_b), sum_logs = sum(logs), sum_others = sum(others);
    if (apart) {
        sum_a -= a[first];
        sum_others -= P_first;
        const double q = model.ratio / model.whole * u[wanted];
        a[wanted] = P_wanted / model.without(u[wanted]);
        sum_a += a[wanted];
        sum_logs -= P_wanted * std::log1p(-q);
        sum_others += P_wanted;
    }
    a[first] = 0;
    const double b_first = apart ? b[first] : 0;

    // The value begins with the logarithm of the sum of the model's exponentials, for the first draw, and with
    // sum_j P_j log(that sum without j), for the second draw. Without `first`, the sum is `rest`.
    double value = std::log(model.whole);
    value += sum_others * std::log(model.whole) - sum_logs + P_first * std::log(model.rest);

    // M_i and N_i are the probabilities that document i is drawn second, after a first draw from the target: M_i if the
    // second draw is from the target, too, and N_i if it is from the model. Each is a sum over the document of the
    // first draw. M_shared is the term of M_i for a first draw of `wanted`, and N_shared the term of N_i for a first
    // draw of `first`; both are without their last factor, the exponential of document i. The sweep below also adds the
    // remaining part of the value: the expected distance of the drawn document's model score from the largest model
    // score or, after a first draw of `first`, from the second largest one.
    const double M_shared = P_wanted / target.rest, N_shared = P_first / model.rest;
    const Lanes z_most = Lanes::all(model.most), z_second = Lanes::all(model.second);
    const Lanes all_a = Lanes::all(sum_a), all_b = Lanes::all(sum_b), b_rest = Lanes::all(sum_b - b_first);
    const Lanes y_ratio = Lanes::all(target.ratio), z_ratio = Lanes::all(model.ratio);
    const Lanes after_wanted = Lanes::all(M_shared), after_wanted_far = Lanes::all(apart ? M_shared : 0);
    const Lanes after_first = Lanes::all(N_shared), by_scale = Lanes::all(scale);
    Lanes away = Lanes::all(0), after = Lanes::all(0);
    sweep(n, [&](std::size_t i, std::size_t count) SINKPROP_LAMBDA {
        const Lanes ui = Lanes::load(u + i), ti = Lanes::load(t + i), bi = Lanes::load(b + i);
        const Lanes score = get(z + i, count, nowhere), P = by_share * ti, Q = odds * ui;
        const Lanes M = ti * (y_ratio * (all_b - bi) + after_wanted);
        const Lanes N = ui * (z_ratio * (all_a - Lanes::load(a + i)) + after_first);
        give<adds>(by_scale * ((Q - P) + (N - M)), g + i, count);
        away = away + distance(z_most, score) * (P + ti * (y_ratio * (b_rest - bi) + after_wanted_far));
        after = after + distance(z_second, score) * ti;
    });
    value += sum(away);
    // The sweep left out the terms of `first` and `wanted`, because it used u = 0 and t = 0, respectively, for them.
    // They are added here.
    g[first] += scale * (1 / model.whole + sum_a);
    g[wanted] -= scale * (P_wanted + sum_b);
    if (apart) {
        const double far = model.most - z[wanted], near = model.second - z[wanted];
        value += (far < farthest ? far : farthest) * (P_wanted + sum_b - b_first);
        const double after_it = target.ratio * sum(after) + (near < farthest ? near : farthest);
        value += P_first * after_it / target.without(t[first]);
    } else {
        value += P_first * sum(after) / target.rest;
    }
    return value;
}

// Returns L_k, the loss over the first k ranks, for model scores z and target scores y, and adds `scale` times its
// gradient with respect to z to g. For each document that may be drawn first, the function calls itself for the other
// documents. It exchanges elements of z, y and g, and restores their order before it returns. `scratch` has
// 4 padded(n) doubles. `levels` is scratch of (k - 2) n doubles: n probabilities for each level of the recursion.
inline double top_k(double* z, double* y, std::size_t n, int k, double scale, double* scratch, double* levels,
                    double* g) {
    if (n < 2) return 0;
    if (k == 1 || n == 2) return top_one<true>(z, y, n, scale, scratch, g, nullptr);
    if (k == 2) return top_two<true>(z, y, n, scale, scratch, g);
    double *P = levels, *const arrays[] = {z, y, g};
    auto exchange_with_last = [&](std::size_t j) SINKPROP_LAMBDA {
        for (double* x : arrays) {
            const double kept = x[j];
            x[j] = x[n - 1];
            x[n - 1] = kept;
        }
    };
    double value = top_one<true>(z, y, n, scale, scratch, g, P);
    for (std::size_t j = 0; j < n; ++j) {
        if (P[j] == 0) continue;
        exchange_with_last(j);
        value += P[j] * top_k(z, y, n - 1, k - 1, scale * P[j], scratch, levels + n, g);
        exchange_with_last(j);
    }
    return value;
}

// Returns L_k, the loss over the first k ranks, of n documents with model scores z and target scores y, and writes
// `scale` times its gradient with respect to z to g. `scratch` has listnet_scratch(n, k) doubles.
inline double loss(const double* z, const double* y, std::size_t n, int k, double scale, double* scratch, double* g) {
    if (n < 2) {
        for (std::size_t i = 0; i < n; ++i) g[i] = 0;
        return 0;
    }
    if (k == 1 || n == 2) return top_one<false>(z, y, n, scale, scratch, g, nullptr);
    if (k == 2) return top_two<false>(z, y, n, scale, scratch, g);
    double *own_z = scratch + 4 * padded(n), *own_y = own_z + n;
    for (std::size_t i = 0; i < n; ++i) {
        own_z[i] = z[i];
        own_y[i] = y[i];
        g[i] = 0;
    }
    return top_k(own_z, own_y, n, k, scale, scratch, own_y + n, g);
}

}  // namespace listnet
}  // namespace SINKPROP_ISA
}  // namespace sinkprop
