// Products of vectors with the matrix A_ij = K(y_i - y_j), where K is the Gaussian or the Laplace kernel and y are the
// sorted scores (docs/linear-time.md 2). The entries of A are stored: all of them for a short query (method "matrix"),
// or those near the diagonal if the scores lie far apart (method "band" of docs/linear-time.md 3.4). The products are
// exact up to rounding. The derivative of A is (dA)_ij = unit * d(A_ij) / dy_i, with the kernel's width sigma as unit.
#pragma once

#include "exponential_sums.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

// k = exp(-z^2 / 2), the Gaussian kernel for z = (y_i - y_j) / sigma, and dk = -z k, sigma times the derivative of k
// with respect to y_i
SINKPROP_INLINE void gaussian_entry(Lanes z, Lanes& k, Lanes& dk) {
    // Beyond 1000 widths the kernel is 0 in double precision; the limit keeps the square finite.
    const Lanes far = Lanes::all(1e3), t = maximum(minimum(z, far), -far);
    k = exp(t * t * Lanes::all(-0.5));
    dk = -(t * k);
}

struct DirectSums : Remembering<DirectSums> {
    std::size_t n, size;
    double unit;
    // mask (size,): 1 for a document, 0 in the padding. K, dK (n, stride): the matrices A and dA, stored by columns:
    // row j of K is column j of A, padded.
    double *mask, *K, *dK;

    static constexpr std::size_t padded(std::size_t n) { return round_up(n, 8); }
    // Distance of two columns in memory: an odd number of cache lines, so that they do not compete for the same places
    // in the cache
    static constexpr std::size_t stride(std::size_t n) { return padded(n) | 8; }
    static constexpr std::size_t scratch(std::size_t n, int T) {
        return padded(n) * (3 + std::size_t(T)) + 2 * n * stride(n);
    }

    DirectSums(const double* y, std::size_t n_, double sigma, bool gaussian, int T, double* space)
        : n(n_), size(padded(n_)), unit(sigma) {
        memory = space;
        mask = space + (std::size_t(T) + 1) * size;
        double* padded_y = mask + size;
        K = padded_y + size;
        dK = K + n * stride(n);
        for (std::size_t i = 0; i < size; ++i) {
            mask[i] = i < n ? 1 : 0;
            padded_y[i] = i < n ? y[i] : y[n - 1];
        }
        const Lanes width = Lanes::all(sigma);
        for (std::size_t j = 0; j < n; ++j) {
            double *kj = K + j * stride(n), *dj = dK + j * stride(n);
            const Lanes yj = Lanes::all(y[j]);
            for (std::size_t i = 0; i < size; i += W) {
                const Lanes z = (load(padded_y, i) - yj) / width;
                Lanes k, dk;
                if (gaussian) {
                    gaussian_entry(z, k, dk);
                } else {
                    // The sign of the Laplace kernel's derivative follows the order of the documents: a document before
                    // j counts as above j even if their scores are equal.
                    double sign[W];
                    for (std::size_t l = 0; l < W; ++l) sign[l] = i + l < j ? -1 : i + l > j ? 1 : 0;
                    k = exp(-absolute(z));
                    dk = Lanes::load(sign) * k;
                }
                k.store(kj + i);
                dk.store(dj + i);
            }
            for (std::size_t i = n; i < size; ++i) {
                kj[i] = 1;
                dj[i] = 0;
            }
        }
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double*, Finish&& finish) const {
        // number of registers for 8 elements of a column, one cache line
        constexpr std::size_t registers = W < 8 ? 8 / W : 1;
        const std::size_t step = stride(n);
        for (std::size_t i = 0; i < size; i += 8) {
            Lanes k[registers], d[registers];
            for (std::size_t r = 0; r < registers; ++r) k[r] = d[r] = Lanes::all(0);
            const double *kj = K + i, *dj = dK + i;
            for (std::size_t j = 0; j < n; ++j, kj += step, dj += step) {
                const Lanes xj = Lanes::all(x[j]);
                for (std::size_t r = 0; r < registers; ++r) {
                    k[r] = fma(load(kj, r * W), xj, k[r]);
                    d[r] = fma(load(dj, r * W), xj, d[r]);
                }
            }
            for (std::size_t r = 0; r < registers; ++r) finish(i + r * W, k[r], d[r]);
        }
    }
};

// Products with the entries of A for documents at most `band` ranks apart. All other entries must be negligible in
// double precision.
struct BandedSums : Remembering<BandedSums> {
    static constexpr double cut = 8.7;  // entries of documents farther apart than cut * sigma are below 1e-16

    std::size_t n, size, band;
    double unit;
    // mask (size,): 1 for a document, 0 in the padding. K, dK (band, row(n)): the entries of A and dA above the
    // diagonal, stored by diagonals. Row o - 1 has the entries of all pairs of documents i and i + o, at element
    // front + i; all other elements are 0. copy (row(n),): the vector that A is multiplied by, at elements front + i,
    // with zeros before and after it.
    double *mask, *K, *dK, *copy;

    static constexpr std::size_t padded(std::size_t n) { return round_up(n, 8); }
    static constexpr std::size_t front = 64;  // number of zeros before and after each row, and width of the widest band
    static constexpr std::size_t row(std::size_t n) { return padded(n) + 2 * front; }
    static constexpr std::size_t scratch(std::size_t n, int T, std::size_t band) {
        return padded(n) * (2 + std::size_t(T)) + (2 * band + 1) * row(n);
    }

    // Returns the width of the smallest band that has the entries of all pairs of documents less than cut * sigma
    // apart, or `most` + 1 if this band is wider than `most`
    static std::size_t needed(const double* y, std::size_t n, double sigma, std::size_t most) {
        std::size_t band = 0;
        for (std::size_t i = 0; i + band < n; ++i)
            while (i + band + 1 < n && (y[i] - y[i + band + 1]) / sigma < cut)
                if (++band > most) return band;
        return band;
    }

    BandedSums(const double* y, std::size_t n_, double sigma, std::size_t band_, int T, double* space)
        : n(n_), size(padded(n_)), band(band_), unit(sigma) {
        memory = space;
        mask = space + (std::size_t(T) + 1) * size;
        copy = mask + size;
        K = copy + row(n);
        dK = K + band * row(n);
        for (std::size_t i = 0; i < size; ++i) mask[i] = i < n ? 1 : 0;
        for (std::size_t i = 0; i < (2 * band + 1) * row(n); ++i) copy[i] = 0;
        for (std::size_t o = 1; o <= band; ++o) {
            double *k = K + (o - 1) * row(n) + front, *d = dK + (o - 1) * row(n) + front;
            for (std::size_t i = 0; i + o < n; i += W) {
                double z[W] = {};
                const std::size_t count = n - o - i < W ? n - o - i : W;
                for (std::size_t l = 0; l < count; ++l) z[l] = (y[i + l] - y[i + o + l]) / sigma;
                Lanes ki, di;
                gaussian_entry(Lanes::load(z), ki, di);
                double kl[W], dl[W];
                ki.store(kl);
                di.store(dl);
                for (std::size_t l = 0; l < count; ++l) {
                    k[i + l] = kl[l];
                    d[i + l] = dl[l];
                }
            }
        }
    }

    template <class Finish>
    SINKPROP_INLINE void both(const double* x, double*, Finish&& finish) const {
        double* y = copy + front;
        for (std::size_t i = 0; i < size; i += W) load(x, i).store(y + i);
        const std::size_t step = row(n), bands = band;
        for (std::size_t i = 0; i < size; i += W) {
            // The diagonal of A is 1, so the sum begins with the elements of x. In the padding x is 0, and the sum
            // begins with 1 instead: products must be positive, because the caller divides by them.
            Lanes k0 = load(y, i) + (Lanes::all(1) - load(mask, i)), k1 = Lanes::all(0), d0 = k1, d1 = k1;
            const double *k = K + front + i, *d = dK + front + i;
            for (std::size_t o = 1; o <= bands; ++o, k += step, d += step) {
                const Lanes below = load(y + o, i), above = Lanes::load(y + i - o);
                k0 = fma(Lanes::load(k), below, k0);
                d0 = fma(Lanes::load(d), below, d0);
                k1 = fma(Lanes::load(k - o), above, k1);
                d1 = fma(Lanes::load(d - o), above, d1);
            }
            finish(i, k0 + k1, d0 - d1);
        }
    }
};

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
