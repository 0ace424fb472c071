#!/usr/bin/env python3
"""Near-minimax sums of exponentials for a Gaussian: the generator of native/kernels/gauss_coefficients.hpp.

    g(t) = exp(-t^2/4)  ~  2 Re sum_{m=1..n} w_m exp(-s_m t),   t >= 0,   Re s_m > 0,   n conjugate pairs,

with value 1 and slope 0 at t = 0, so that the even extension to t < 0 has a continuous derivative. The sum is
fitted as sum_m exp(-a_m t) (p_m cos b_m t + q_m sin b_m t), where s = a + ib and w = (p + iq)/2.

For each n: variable projection (least squares in a, b with p, q eliminated), started from the solutions for
fewer pairs, then Lawson reweighting until the error oscillates between equal peaks. The error falls about
90-fold with each pair and the columns are nearly dependent, hence the multiprecision arithmetic.

Needs numpy and gmpy2, and clang-format for --header; not all of them are installed with the package. Takes
about half a minute.

    python -m pip install numpy gmpy2 clang-format
    python tools/soe_gauss.py --header native/kernels/gauss_coefficients.hpp
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gmpy2
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]
Reals = npt.NDArray[Any]  # of gmpy2.mpfr

BITS = 160
HEADER_PAIRS = (4, 8)
TWO_PAIRS = np.array([1.23 + 0.444j, 1.183 + 1.407j])  # starting values for n = 2
HEAVY = 10**9  # the weight of the two equations at t = 0; they then hold to about 1e-18 of the error
LAWSON_ROUNDS = 26
EQUAL = 1.02  # largest / smallest peak at which the error counts as equioscillating

HEADER_START = """\
// Complex w_m, s_m in exp(-t^2/4) = 2 Re sum_m w_m exp(-s_m t), t >= 0; value 1 and slope 0 at t = 0.
// docs/linear-time.md 3.2
//
// Made by tools/soe_gauss.py (multiprecision variable projection, then Lawson reweighting).
#pragma once

namespace sinkprop {

template <int P>
struct GaussCoefficients;

"""

exp, cos, sin, mpfr = (np.frompyfunc(f, 1, 1) for f in (gmpy2.exp, gmpy2.cos, gmpy2.sin, gmpy2.mpfr))


class Projection(NamedTuple):
    """The best p, q for given a, b: minimises |r|, r = f - B c, with c = (p, q)."""

    theta: Reals  # (log a, b)
    a: Reals
    b: Reals
    cosines: Reals  # exp(-a t) cos(b t), one column per pair, not weighted
    sines: Reals
    Q: Reals  # an orthonormal basis of the columns of B
    c: Reals
    r: Reals


def grid(end: float, size: int) -> Reals:
    """t_k = end (1 - cos(pi (2k + 1) / (4 size))), k < size: Chebyshev points, dense near 0 alone."""
    angles = gmpy2.const_pi() * (2 * mpfr(np.arange(size).astype(float)) + 1) / (4 * size)
    return gmpy2.mpfr(end) * (1 - cos(angles))


def gauss(t: Reals) -> Reals:
    """g(t) = exp(-t^2/4)"""
    return exp(-(t * t) / 4)


def damped_waves(a: Reals, b: Reals, t: Reals) -> tuple[Reals, Reals]:
    """exp(-a t) cos(b t) and exp(-a t) sin(b t), of shape (len(t), len(a))"""
    decay, phase = exp(-np.outer(t, a)), np.outer(t, b)
    return decay * cos(phase), decay * sin(phase)


def linear_least_squares(A: Reals, f: Reals) -> tuple[Reals, Reals]:
    """The x minimising |f - A x|, and Q of A = Q R: Gram-Schmidt, every column orthogonalised twice."""
    Q, columns = A.copy(), A.shape[1]
    R = np.zeros((columns, columns), dtype=object)
    for j in range(columns):
        before, v = Q[:, :j], A[:, j]
        for _ in range(2 if j else 0):
            h = before.T.dot(v)
            v = v - before.dot(h)
            R[:j, j] += h
        R[j, j] = gmpy2.sqrt(v.dot(v))
        Q[:, j] = v / R[j, j]
    x = Q.T.dot(f)
    for j in reversed(range(columns)):
        x[j] /= R[j, j]
        x[:j] -= x[j] * R[:j, j]
    return x, Q


def project(theta: Reals, t: Reals, weight: Reals) -> Projection:
    """Least squares in p, q for theta = (log a, b).

    The rows are weight_i (sum_m exp(-a_m t_i) (p_m cos b_m t_i + q_m sin b_m t_i) - g(t_i)), and, weighted by
    HEAVY, the conditions at 0: sum_m p_m = 1 and sum_m (b_m q_m - a_m p_m) = 0.
    """
    n = len(theta) // 2
    a, b = exp(theta[:n]), theta[n:]
    cosines, sines = damped_waves(a, b, t)
    value, slope = mpfr(np.repeat([1.0, 0.0], n)), np.hstack([-a, b])
    B = np.vstack([np.hstack([cosines, sines]) * weight[:, None], HEAVY * value, HEAVY * slope])
    f = np.concatenate([gauss(t) * weight, HEAVY * mpfr(np.array([1.0, 0.0]))])
    c, Q = linear_least_squares(B, f)
    return Projection(theta, a, b, cosines, sines, Q, c, f - B.dot(c))


def jacobian(at: Projection, t: Reals, weight: Reals) -> Reals:
    """J = (I - Q Q^T) (dB/dtheta) c: r moves by -J dtheta (Golub-Pereyra, less the term Kaufman drops).

    (dB/dtheta) c is -a t exp(-a t) (p cos bt + q sin bt) by log a and t exp(-a t) (q cos bt - p sin bt) by b;
    of the conditions at 0 only the slope moves, by -a p and q.
    """
    p, q = np.split(at.c, 2)
    moment = (t * weight)[:, None]
    by_log_a = -at.a * moment * (at.cosines * p + at.sines * q)
    by_b = moment * (at.cosines * q - at.sines * p)
    slope = HEAVY * np.hstack([-at.a * p, q])
    J = np.vstack([np.hstack([by_log_a, by_b]), mpfr(np.zeros(len(slope))), slope])
    return J - at.Q.dot(at.Q.T.dot(J))


def least_squares(theta: Reals, t: Reals, weight: Reals, steps: int, damping: float) -> Projection:
    """Minimise |r(theta)|^2 by Levenberg-Marquardt until a step gains less than 1e-7 of it, or none gains.

    The step d minimises |r - J d|^2 + damping sum_i |J_i|^2 d_i^2, J_i the columns of J.
    """
    at, lam = project(theta, t, weight), gmpy2.mpfr(damping)
    cost = at.r.dot(at.r)
    for _ in range(steps):
        J = jacobian(at, t, weight)
        scale, target = (J * J).sum(axis=0), np.concatenate([at.r, mpfr(np.zeros(len(theta)))])
        for _ in range(12):
            damping_rows = np.diag([gmpy2.sqrt(lam * x) for x in scale])
            d = linear_least_squares(np.vstack([J, damping_rows]), target)[0]
            if np.abs(d).max() < 1.5:
                trial = project(at.theta + d, t, weight)
                trial_cost = trial.r.dot(trial.r)
                if trial_cost < cost:
                    break
            lam *= 8
        else:
            break
        gain = (cost - trial_cost) / cost
        at, cost, lam = trial, trial_cost, lam / 6
        if gain < 1e-7:
            break
    return at


def error(at: Projection, t: Reals) -> Floats:
    """g(t) - sum_m exp(-a_m t) (p_m cos b_m t + q_m sin b_m t)"""
    p, q = np.split(at.c, 2)
    cosines, sines = damped_waves(at.a, at.b, t)
    return (gauss(t) - cosines.dot(p) - sines.dot(q)).astype(float)


def peaks(e: Floats) -> npt.NDArray[np.intp]:
    """Positions where |e| is largest between consecutive changes of sign."""
    runs = np.split(np.arange(len(e)), np.flatnonzero(np.diff(np.sign(e))) + 1)
    return np.array([run[np.abs(e[run]).argmax()] for run in runs])


def near_minimax(start: Complexes) -> tuple[Complexes, Complexes]:
    """s, w of the sum whose error on t >= 0 has nearly the smallest maximum, from a starting s.

    Lawson: weight <- weight * (envelope of |error|), the envelope through the logarithms of the peaks. The
    error then tends to 4n - 1 equal peaks (4n - 2 free parameters); the last, in the tail, is left out.
    """
    n = len(start)
    end = 1.3 * math.sqrt(4 * math.log(10) * 1.97 * n) + 2  # g(end) is far below the error, 10^(-1.97 n)
    t, fine = grid(end, 22 * n + 40), grid(1.25 * end, 80 * n + 200)
    weight = mpfr(np.ones(len(t)))
    theta = mpfr(np.concatenate([np.log(start.real), start.imag]))
    at = least_squares(theta, t, weight, steps=60, damping=1e-3)
    best, smallest, ratio = at, math.inf, math.inf
    for i in range(LAWSON_ROUNDS):
        e = error(at, fine)
        where = peaks(e)[: 4 * n - 2]
        heights = np.abs(e[where])
        if np.abs(e).max() < smallest:
            best, smallest, ratio = at, np.abs(e).max(), heights.max() / heights.min()
        if ratio < EQUAL and i > 3:
            break
        envelope = np.exp(np.interp(t.astype(float), fine[where].astype(float), np.log(heights)))
        weight = weight * mpfr((envelope / envelope.max()) ** (1.0 if i > 2 else 0.6))
        weight = weight / weight.max()
        at = least_squares(at.theta, t, weight, steps=25, damping=1e-4)
    p, q = np.split(best.c.astype(float), 2)
    s, w = best.a.astype(float) + 1j * best.b.astype(float), (p + 1j * q) / 2
    s, w = np.where(s.imag < 0, [s.conj(), w.conj()], [s, w])  # a pair is named by its upper half
    order = np.argsort(s.imag)
    return s[order], w[order]


def extrapolate(solved: Mapping[int, Complexes], n: int) -> Complexes:
    """A start for n pairs from up to three smaller numbers.

    s_k / sqrt(m), k < m, is nearly one smooth function F_m of x = (k + 1/2) / m, its real part even and its
    imaginary part odd: polynomials in x^2 are fitted to both, and F_m is extrapolated in 1/m (Lagrange).
    """

    def shape(m: int) -> Complexes:
        x, y, s = (np.arange(m) + 0.5) / m, (np.arange(n) + 0.5) / n, solved[m] / np.sqrt(m)
        A, B = (np.vander(z**2, min(m, 6), increasing=True) for z in (x, y))
        even = np.linalg.lstsq(A, s.real, rcond=None)[0]
        odd = np.linalg.lstsq(A * x[:, None], s.imag, rcond=None)[0]
        return B @ even + 1j * (B * y[:, None]) @ odd

    known = [m for m in (n - 1, n - 2, n - 3) if m in solved]
    factors = [math.prod((1 / n - 1 / j) / (1 / m - 1 / j) for j in known if j != m) for m in known]
    return math.sqrt(n) * sum(factor * shape(m) for factor, m in zip(factors, known, strict=True))


def errors_in_double(s: Complexes, w: Complexes) -> tuple[float, float]:
    """Largest |g - S| and |g' - S'| over t >= 0, S = 2 Re sum_m w_m exp(-s_m t), all rounded to double"""
    t = np.concatenate([np.linspace(0, 20, 60001), np.linspace(20, 400, 4001)])
    g, waves = np.exp(-(t**2) / 4), np.exp(-np.outer(t, s))
    kernel, derivative = 2 * (waves @ w).real, 2 * (waves @ (-s * w)).real
    return float(np.abs(g - kernel).max()), float(np.abs(-t / 2 * g - derivative).max())


def header(chosen: Sequence[tuple[Complexes, Complexes]], clang_format: str) -> str:
    """The text of native/kernels/gauss_coefficients.hpp"""
    text = HEADER_START
    for s, w in chosen:
        n, (kernel, derivative) = len(s), errors_in_double(s, w)
        text += f"// {n} conjugate pairs: kernel accurate to {kernel:.1e}, derivative to {derivative:.1e}\n"
        text += f"template <>\nstruct GaussCoefficients<{n}> {{\n"
        for name, x in {"s_re": s.real, "s_im": s.imag, "w_re": w.real, "w_im": w.imag}.items():
            numbers = ", ".join(f"{v:.17e}" for v in x)
            text += f"static constexpr double {name}[{n}] = {{{numbers}}};\n"
        text += "};\n\n"
    text += "}  // namespace sinkprop\n"
    style_of = Path(__file__).resolve().parents[1] / "native" / "kernels" / "gauss_coefficients.hpp"
    command = [clang_format, f"--assume-filename={style_of}"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and, if asked, write the header."""
    parser = argparse.ArgumentParser(description="Near-minimax sums of exponentials for exp(-t^2/4).")
    parser.add_argument("--max-pairs", type=int, default=max(HEADER_PAIRS), help="default: %(default)s")
    parser.add_argument("--header", type=Path, metavar="FILE", help="write the C++ header there")
    options = parser.parse_args(arguments)
    environment = str(Path(sys.executable).parent)
    clang_format = shutil.which("clang-format", path=environment) or shutil.which("clang-format")
    if options.header and (clang_format is None or options.max_pairs < max(HEADER_PAIRS)):
        parser.error(f"--header needs clang-format and --max-pairs {max(HEADER_PAIRS)} or more")
    gmpy2.get_context().precision = BITS
    solved: dict[int, Complexes] = {}
    chosen = []
    print("pairs  kernel error  derivative error  largest |w|")
    for n in range(2, options.max_pairs + 1):
        s, w = near_minimax(extrapolate(solved, n) if solved else TWO_PAIRS)
        solved[n] = s
        kernel, derivative = errors_in_double(s, w)
        print(f"{n:5d}  {kernel:12.3e}  {derivative:16.3e}  {np.abs(w).max():11.4g}", flush=True)
        if n in HEADER_PAIRS:
            chosen.append((s, w))
    if options.header:
        options.header.write_text(header(chosen, clang_format), encoding="utf-8")


if __name__ == "__main__":
    main()
