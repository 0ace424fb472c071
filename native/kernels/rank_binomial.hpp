// SoftRank's rank-binomial distribution (Taylor, Guiver, Robertson and Minka 2008): the expected gain of one query, its
// gradient, and sums of the rank probabilities with given weights. docs/baselines.md
//
// The scores s carry independent normal noise of standard deviation sigma, so that document i beats document j with
// probability pi_i = Phi((s_i - s_j) / (sqrt(2) sigma)). The number r of documents that beat j is treated as a sum of
// independent events. Its distribution, the state p, starts as p(0) = 1, and each other document i adds a step
//   p'(r) = (1 - pi_i) p(r) + pi_i p(r - 1)
// from p to the next state p'. After all steps, p(r) is the probability that j has rank r + 1. The gradient is computed
// by going through the steps backward, from l(r) = D(r + 1), the discount of rank r + 1:
//   pi_i_bar = sum_r p(r) (l'(r + 1) - l'(r)),       l(r) = (1 - pi_i) l'(r) + pi_i l'(r + 1),
// where l is the adjoint of p, l' that of p', and pi_i_bar that of pi_i. l(r) is the expected discount of j if r of the
// documents of the earlier steps beat it. For K ranks with a discount, a document takes O(n K) time and a query
// O(n^2 K).
//
// Documents are in score order. A document that is above or below j with near certainty does not take a step: it is
// only counted. Only a window of p is kept, a range of r outside of which p is negligible: p is log-concave, so it
// decreases on both sides of its mode. For gains and gradients, negligible means below 1e-40, which changes none of
// their digits. If the probabilities themselves are requested, it means below 1e-299. All sums for p have positive
// terms, so p is accurate to the last digits even if it is very small.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "normal.hpp"
#include "scaling.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {
namespace rank_binomial {

// Limits of what is computed. A probability below `nothing` counts as 0. A document is surely above another one if its
// score is higher by more than `surely` standard deviations of the difference: the probability of the opposite order,
// Phi(-surely), is below `nothing`.
struct Cut {
    double surely, nothing;
};
constexpr Cut of_gains = {13.4, 1e-40}, of_probabilities = {37, 1e-299};

// The part that is kept of a state p, the distribution of a document's rank after some steps (see the top of this
// file). p is divided into units of W ranks, as many as there are doubles in a register. Units lo .. hi - 1 are kept.
// Units lo - 1 and hi are stored as zeros, since a step reads beyond both ends.
struct Window {
    std::size_t lo, hi;
    bool empty() const { return lo == hi; }
};

// The arrays of one query, in the caller's scratch.
struct Workspace {
    std::size_t n, N;    // number of documents, and the same rounded up to a multiple of 8
    std::size_t units;   // number of units (see Window) that cover all ranks up to the last one with a discount
    std::size_t stride;  // number of doubles of a state p (see the top of this file), with its padding
    // The steps of a document, one per other document, are divided into segments of `length` steps. Memory holds all
    // states of one segment, and only the first state of every other segment.
    std::size_t length;
    double* s;  // (N,) score of each document, divided by 2
    // (N,) For the document j that is being processed, and every document i that is not surely above or below it:
    // pi, the probability that i beats j; rest, which is 1 - pi; and the normal density phi(t), where pi = Phi(t).
    double *pi, *rest, *density;
    // (N, W) derivative of the expected discount of document j with respect to pi_i, the probability that document i
    // beats j. It is the sum of the W numbers of row i.
    double* dots;
    // l (stride,): adjoint of the state that the reverse pass has reached, which is the expected discount of document j
    // for each number of documents that beat it so far. slope (N,): the gradient, still to be divided by sqrt(2) sigma.
    double *l, *slope;
    // starts (segments + 1, stride): the first state of each segment, followed by the state after the last segment.
    // states (length, stride): the states of one segment.
    double *starts, *states;
    Window *start_windows, *windows;  // the windows of the states in `starts` and in `states`, respectively
    std::size_t used;                 // number of doubles in all arrays

    // `columns` is the number of ranks up to the last one with a discount
    Workspace(std::size_t n_, std::size_t columns, double* scratch) : n(n_), N(round_up(n_, 8)), used(0) {
        units = round_up(columns, 8) / W;
        stride = round_up(columns, 8) + 16;
        // For a long query the steps are computed again in the reverse pass, segment by segment: this stores n^1.5
        // numbers instead of n^2.
        length = n;
        if (n * stride > kept) {
            length = 1;
            while (length * length < n) ++length;
        }
        const std::size_t segments = (n + length - 1) / length;
        const auto take = [&](std::size_t size) {
            double* at = scratch ? scratch + used : nullptr;
            used += round_up(size, 8);
            return at;
        };
        static_assert(sizeof(Window) == 2 * sizeof(double), "a 64-bit build");
        s = take(N);
        pi = take(N);
        rest = take(N);
        density = take(N);
        dots = take(N * W);
        l = take(stride);
        slope = take(N);
        starts = take((segments + 1) * stride);
        states = take(length * stride);
        start_windows = reinterpret_cast<Window*>(take(2 * (segments + 1)));
        windows = reinterpret_cast<Window*>(take(2 * length));
    }
    // all states are stored if they have at most this many doubles, about as many as a second-level cache holds
    static constexpr std::size_t kept = std::size_t(1) << 17;

    // Returns the address of the state before step t of segment g, which has `steps` steps; for t = steps, the state
    // after the segment
    double* state(std::size_t g, std::size_t t, std::size_t steps) const {
        double* at = t == 0 ? starts + g * stride : t == steps ? starts + (g + 1) * stride : states + t * stride;
        return at + 8;
    }
    Window& window(std::size_t g, std::size_t t, std::size_t steps) const {
        return t == 0 ? start_windows[g] : t == steps ? start_windows[g + 1] : windows[t];
    }
};

// Documents first .. last - 1 may be above document j or below it. All documents before them are surely above j, and
// all documents after them are surely below j.
struct Contest {
    std::size_t first, last;
};

SINKPROP_INLINE void close(double* p, Window w) {
    Lanes::all(0).store(p + w.hi * W);
    Lanes::all(0).store(p + w.lo * W - W);
}

// Takes one step from the state p with window w to the state `next`, and returns the window of `next`
SINKPROP_INLINE Window step(const double* p, Window w, double pi, double rest, std::size_t units, double nothing,
                            double* next) {
    if (w.hi < units && p[w.hi * W - 1] * pi > nothing) ++w.hi;
    const Lanes up = Lanes::all(pi), stay = Lanes::all(rest);
    for (std::size_t b = w.lo; b < w.hi; ++b)
        fma(stay, load(p, b * W), up * Lanes::load(p + b * W - 1)).store(next + b * W);
    const auto fades = [&](std::size_t edge, std::size_t inner)
                           SINKPROP_LAMBDA { return next[edge] < nothing && next[edge] < next[inner]; };
    while (w.hi - w.lo > 1 && fades(w.lo * W + W - 1, w.lo * W + W)) ++w.lo;
    while (w.hi - w.lo > 1 && fades(w.hi * W - W, w.hi * W - W - 1)) --w.hi;
    // the window is empty if all of p has moved beyond the last rank with a discount
    if (w.hi == units && w.hi - w.lo == 1) {
        bool left = false;
        for (std::size_t r = w.lo * W; r < w.hi * W; ++r) left |= next[r] >= nothing;
        if (!left) w.lo = w.hi;
    }
    close(next, w);
    return w;
}

// Compares document j with the others: finds the range c of documents that are neither surely above j nor surely below
// j, and computes `pi`, `rest` and `density` for them
inline void compare(const Workspace& m, std::size_t j, double half_width, double surely, Contest& c) {
    const double sj = m.s[j];
    const auto z = [&](std::size_t i) SINKPROP_LAMBDA { return (m.s[i] - sj) / half_width; };
    while (z(c.first) > surely) ++c.first;
    if (c.last <= j) c.last = j + 1;
    while (c.last < m.n && z(c.last) >= -surely) ++c.last;
    const Lanes center = Lanes::all(sj), width = Lanes::all(half_width), zero = Lanes::all(0), one = Lanes::all(1);
    for (std::size_t i = c.first / W * W; i < c.last; i += W) {
        const Lanes t = (load(m.s, i) - center) / width;
        Lanes density;
        const Lanes tail = normal_tail(absolute(t), density), head = one - tail;
        Lanes::where_less(t, zero, tail, head).store(m.pi + i);
        Lanes::where_less(t, zero, head, tail).store(m.rest + i);
        density.store(m.density + i);
    }
    m.pi[j] = 0;
    m.rest[j] = 1;
    m.density[j] = 0;
}

// Takes the steps of segment g: one step for each of the `steps` documents from `first` on. The segment's first state
// must have been computed before. Returns false if the window becomes empty.
SINKPROP_INLINE bool forward(const Workspace& m, std::size_t g, std::size_t first, std::size_t steps,
                             std::size_t units) {
    for (std::size_t t = 0; t < steps; ++t) {
        const Window w = m.window(g, t, steps);
        const Window next = step(m.state(g, t, steps), w, m.pi[first + t], m.rest[first + t], units, of_gains.nothing,
                                 m.state(g, t + 1, steps));
        if (next.empty()) return false;
        m.window(g, t + 1, steps) = next;
    }
    return true;
}

// Goes through the steps of `forward` backward. The adjoint of a state is the derivative of document j's expected
// discount with respect to it. On entry l is the adjoint of the state after the segment, on return l is the adjoint of
// the segment's first state. For the document i of each step, writes the derivative with respect to pi_i, the
// probability that i beats j, to `dots`.
SINKPROP_INLINE void forward_rev(const Workspace& m, std::size_t g, std::size_t first, std::size_t steps) {
    for (std::size_t t = steps; t-- > 0;) {
        const double* p = m.state(g, t, steps);
        const Window w = m.window(g, t, steps);
        const Lanes up = Lanes::all(m.pi[first + t]);
        double* l = m.l + 8;
        Lanes dot[4] = {};
        const auto one = [&](std::size_t b, Lanes& total) SINKPROP_LAMBDA {
            const Lanes here = load(l, b * W), change = Lanes::load(l + b * W + 1) - here;
            total = fma(load(p, b * W), change, total);
            fma(up, change, here).store(l + b * W);
        };
        std::size_t b = w.lo;
        for (; b + 4 <= w.hi; b += 4)  // four independent sums hide the latency of additions
            for (std::size_t k = 0; k < 4; ++k) one(b + k, dot[k]);
        for (; b < w.hi; ++b) one(b, dot[0]);
        ((dot[0] + dot[1]) + (dot[2] + dot[3])).store(m.dots + (first + t) * W);
    }
}

inline void start(const Workspace& m) {
    double* p = m.state(0, 0, m.length);
    m.start_windows[0] = {0, 1};
    Lanes::all(0).store(p);
    close(p, {0, 1});
    p[0] = 1;
}

inline void half_scores(const Workspace& m, const double* scores) {
    // The scores are halved, so that their differences cannot overflow.
    for (std::size_t i = 0; i < m.N; ++i) m.s[i] = 0.5 * scores[i < m.n ? i : m.n - 1];
}

// Divisor for differences of half the scores: (s_i / 2 - s_j / 2) / half_width(sigma) = (s_i - s_j) / (sqrt(2) sigma)
inline double half_width(double sigma) {
    return sigma * 0.70710678118654752440;
}

// Number of ranks up to the last one whose weight is not 0
inline std::size_t last_column(const double* D, std::size_t n) {
    while (n > 0 && D[n - 1] == 0) --n;
    return n;
}

inline std::size_t last_column(const Query& query) {
    std::size_t last = 1;
    for (std::size_t c = 0; c < query.n_classes; ++c) {
        const std::size_t column = last_column(query.discount(c), query.n);
        if (column > last) last = column;
    }
    return last;
}

inline std::size_t scratch_size(const Query& query) {
    // `project` also stores the first and the last rank with a weight, for each class
    return Workspace(query.n, last_column(query), nullptr).used + 2 * query.n_classes;
}

// Returns the expected gain, and writes `factor` times its gradient to gradient (rows,)
inline double gain(const Query& query, double sigma, double factor, double* scratch, double* gradient) {
    const std::size_t n = query.n;
    const Workspace m(n, last_column(query), scratch);
    half_scores(m, query.scores);
    for (std::size_t i = 0; i < m.N; ++i) m.slope[i] = 0;
    Contest c = {0, 0};
    double value = 0;
    for (std::size_t j = 0; j < n; ++j) {
        if (query.gains[j] == 0) continue;
        const double* D = query.discount(query.n_classes > 1 ? std::size_t(query.classes[j]) : 0);
        compare(m, j, half_width(sigma), of_gains.surely, c);
        const std::size_t steps = c.last - c.first, end = last_column(D, c.last);
        // Document j surely has a rank after the last one with a discount, so it adds nothing to the gain.
        if (end <= c.first) continue;
        const std::size_t units = round_up(end - c.first, W) / W;

        start(m);
        std::size_t g = 0, at = 0;
        bool left = true;
        for (; left && at < steps; ++g) {
            const std::size_t size = steps - at < m.length ? steps - at : m.length;
            left = forward(m, g, c.first + at, size, units);
            at += size;
        }
        if (!left) continue;
        double* l = m.l + 8;
        for (std::size_t r = 0; r < units * W + W; ++r) l[r] = c.first + r < end ? D[c.first + r] : 0;
        const double *p = m.state(g, 0, m.length), weight = query.gains[j] / query.ideal;
        const Window w = m.start_windows[g];
        Lanes dot = Lanes::all(0);
        for (std::size_t b = w.lo; b < w.hi; ++b) dot = fma(load(p, b * W), load(l, b * W), dot);
        value += weight * sum(dot);

        for (bool last = true; g-- > 0; last = false) {
            const std::size_t first = g * m.length, size = at - first;
            if (!last) forward(m, g, c.first + first, size, units);
            forward_rev(m, g, c.first + first, size);
            at = first;
        }
        double total = 0;
        for (std::size_t i = c.first; i < c.last; ++i) {
            const double term = weight * m.density[i] * sum(load(m.dots, i * W));
            m.slope[i] += term;
            total += term;
        }
        m.slope[j] -= total;
    }
    const double width = 2 * half_width(sigma);
    for (std::size_t i = 0; i < n; ++i) gradient[query.rows[i]] = factor * m.slope[i] / width;
    return value;
}

// out (rows, n_classes): out[j, c] = sum_k p_j(k) D[c, k], where p_j(k) is the probability that document j has rank k
inline void project(const Query& query, double sigma, double* scratch, double* out) {
    const std::size_t n = query.n, C = query.n_classes;
    const Workspace m(n, last_column(query), scratch);
    std::size_t *first = reinterpret_cast<std::size_t*>(scratch + m.used), *last = first + C;
    // Only ranks first[k] .. last[k] - 1, counted from 0, have a nonzero weight for class k. Often this is a single
    // rank.
    for (std::size_t k = 0; k < C; ++k) {
        const double* D = query.discount(k);
        last[k] = last_column(D, n);
        for (first[k] = 0; first[k] < last[k] && D[first[k]] == 0;) ++first[k];
    }
    half_scores(m, query.scores);
    Contest c = {0, 0};
    for (std::size_t j = 0; j < n; ++j) {
        compare(m, j, half_width(sigma), of_probabilities.surely, c);
        const std::size_t steps = c.last - c.first, columns = m.units * W;
        std::size_t units = round_up(steps, W) / W;
        if (c.first + units * W > columns) units = columns > c.first ? round_up(columns - c.first, W) / W : 0;
        double *p = m.starts + 8, *next = p + m.stride;
        Window w = {0, 0};
        if (units > 0) {
            start(m);
            w = m.start_windows[0];
        }
        for (std::size_t i = c.first; i < c.last && !w.empty(); ++i) {
            w = step(p, w, m.pi[i], m.rest[i], units, of_probabilities.nothing, next);
            double* swap = p;
            p = next;
            next = swap;
        }
        for (std::size_t k = 0; k < C; ++k) {
            const double* D = query.discount(k);
            const std::size_t from = first[k] > c.first + w.lo * W ? first[k] : c.first + w.lo * W;
            const std::size_t to = last[k] < c.first + w.hi * W ? last[k] : c.first + w.hi * W;
            double total = 0;
            for (std::size_t r = from; r < to; ++r) total += p[r - c.first] * D[r];
            out[query.rows[j] * C + k] = total;
        }
    }
}

}  // namespace rank_binomial
}  // namespace SINKPROP_ISA
}  // namespace sinkprop
