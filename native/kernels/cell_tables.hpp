// The Gaussian kernel of two documents as a polynomial of their positions in their cells: docs/linear-time.md 3.3
//
// Cells have the width 2 h, in units of sqrt(2) sigma. For documents at positions a and b, from -1 to 1, in cells whose
// indices differ by d,
//
//     exp(-h^2 (2 d + a - b)^2) = sum_sr T_d[r, s] a^s b^r
//
// by Chebyshev interpolation with P points in each of the variables a and b. The coefficients T are constants. They are
// computed once, when the batch driver first asks for them; the kernels only read them.
#pragma once

#include <cmath>
#include <vector>

namespace sinkprop {

// Cells for polynomials of P terms. h is half the width of a cell, in units of sqrt(2) sigma. The kernel of documents
// in cells whose indices differ by more than `reach` is negligible and is left out.
template <int P>
struct CellShape;

template <>
struct CellShape<8> {
    static constexpr double h = 0.25;
    static constexpr int reach = 9;
};

template <>
struct CellShape<12> {
    static constexpr double h = 0.65;
    static constexpr int reach = 4;
};

template <>
struct CellShape<16> {
    static constexpr double h = 0.4;
    static constexpr int reach = 8;
};

template <int P>
constexpr int cell_stride = (P + 7) / 8 * 8;

// Computes the coefficients T_d[r, s] for d = -reach .. reach, as an array (2 reach + 1, P, cell_stride)
template <int P>
inline std::vector<double> make_cell_table() {
    constexpr int S = cell_stride<P>, reach = CellShape<P>::reach;
    constexpr double h = CellShape<P>::h;
    // lagrange[s][a]: coefficient of x^s in the polynomial that is 1 at point[a] and 0 at the other points
    double point[P], lagrange[P][P] = {};
    for (int a = 0; a < P; ++a) point[a] = std::cos(std::acos(-1.0) * (2 * a + 1) / (2 * P));
    double chebyshev[P][P] = {};
    chebyshev[0][0] = 1;
    if (P > 1) chebyshev[1][1] = 1;
    for (int j = 2; j < P; ++j)
        for (int s = 0; s < P; ++s) chebyshev[j][s] = (s ? 2 * chebyshev[j - 1][s - 1] : 0) - chebyshev[j - 2][s];
    for (int a = 0; a < P; ++a)
        for (int j = 0; j < P; ++j) {
            const double c = (j ? 2.0 : 1.0) / P * std::cos(j * std::acos(point[a]));
            for (int s = 0; s < P; ++s) lagrange[s][a] += c * chebyshev[j][s];
        }
    std::vector<double> table((2 * reach + 1) * P * S, 0.0);
    for (int d = -reach; d <= reach; ++d) {
        // half[s][b]: coefficient of a^s in the kernel, for a first document at position a and a second one at position
        // point[b]
        double half[P][P];
        for (int s = 0; s < P; ++s)
            for (int b = 0; b < P; ++b) {
                half[s][b] = 0;
                for (int a = 0; a < P; ++a) {
                    const double t = h * (2 * d + (point[a] - point[b]));
                    half[s][b] += lagrange[s][a] * std::exp(-t * t);
                }
            }
        for (int r = 0; r < P; ++r)
            for (int s = 0; s < P; ++s) {
                double t = 0;
                for (int b = 0; b < P; ++b) t += lagrange[r][b] * half[s][b];
                // within a cell the kernel is the same if both positions change their signs, so terms of odd degree are
                // rounding errors and are replaced by 0
                table[((d + reach) * P + r) * S + s] = d == 0 && (r + s) % 2 ? 0 : t;
            }
    }
    return table;
}

template <int P>
inline const double* cell_table() {
    static const std::vector<double> table = make_cell_table<P>();
    return table.data();
}

}  // namespace sinkprop
