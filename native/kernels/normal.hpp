// The normal distribution: tail probability and density of all numbers in a vector, and the quantile of a single
// number. The probit family of docs/linear-time.md 7 needs all three functions. The noise of SoftRank
// (docs/baselines.md) needs only the tail probability and the density.
#pragma once

#include <cmath>

#include "simd.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// Returns the normal tail probability Phi(-t) for t >= 0, with a relative error of about 1e-15 until it underflows, and
// sets `density` to phi(t) = exp(-t^2 / 2) / sqrt(2 pi). Phi(-t) = exp(-t^2 / 2) R(t), where R is a rational function
// fitted on [0, 39] with a relative error of 5e-17. All coefficients of R are positive, so nothing cancels.
template <int W>
SINKPROP_INLINE Vec<W> normal_tail(Vec<W> t, Vec<W>& density) {
    using V = Vec<W>;
    t = minimum(t, V::all(39.0));
    // h is t rounded to a multiple of 2^-20, so that h^2 is exact in
    // exp(-t^2 / 2) = exp(-h^2 / 2) exp(-(t - h)(t + h) / 2)
    const V magic = V::all(round_magic / 1048576.0);
    const V h = (t + magic) - magic;
    const V d = (t - h) * (t + h) * V::all(-0.5);
    const V correction = fma(d, fma(d, fma(d, V::all(1.0 / 6.0), V::all(0.5)), V::all(1.0)), V::all(1.0));
    const V bell = exp(h * h * V::all(-0.5)) * correction;
    density = bell * V::all(0.398942280401432678);

    V p = V::all(1.38598578122696005e-6), q = V::all(3.47415114747033237e-6);
    q = fma(q, t, V::all(0.0000933980769582201927));
    p = fma(p, t, V::all(0.000037260441807671625));
    q = fma(q, t, V::all(0.00123293909284220315));
    p = fma(p, t, V::all(0.000490485547433884057));
    q = fma(q, t, V::all(0.0103449526988316896));
    p = fma(p, t, V::all(0.00408977858296861102));
    q = fma(q, t, V::all(0.0604405704378647882));
    p = fma(p, t, V::all(0.0236245852537735643));
    q = fma(q, t, V::all(0.254978180574355451));
    p = fma(p, t, V::all(0.097706323782993333));
    q = fma(q, t, V::all(0.78208188113182569));
    p = fma(p, t, V::all(0.28934795778301638));
    q = fma(q, t, V::all(1.71444652941721077));
    p = fma(p, t, V::all(0.59406741788201637));
    q = fma(q, t, V::all(2.56129742409895755));
    p = fma(p, t, V::all(0.774888296323698029));
    q = fma(q, t, V::all(2.34766115345025131));
    p = fma(p, t, V::all(0.5));
    q = fma(q, t, V::all(1.0));
    return bell * (p / q);
}

// Quantile Phi^-1(u) of the normal distribution for 0 < u < 1: formula 26.2.23 of Abramowitz and Stegun, improved by
// two steps of Halley's method
inline double normal_quantile(double u) {
    const bool upper = u > 0.5;
    const double tail = upper ? 1.0 - u : u;
    const double r = std::sqrt(-2.0 * std::log(tail));
    double x = (2.515517 + r * (0.802853 + r * 0.010328)) / (1.0 + r * (1.432788 + r * (0.189269 + r * 0.001308))) - r;
    for (int step = 0; step < 2; ++step) {
        const double error = 0.5 * std::erfc(x * -0.70710678118654752440) - tail;
        const double newton = error * 2.50662827463100050242 * std::exp(0.5 * x * x);
        x -= newton / (1.0 + 0.5 * x * newton);
    }
    return upper ? -x : x;
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
