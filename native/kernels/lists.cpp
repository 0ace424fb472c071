// The kernels of lists: several short queries at once, one in each lane of a register (lists.hpp). This file is
// compiled once per instruction set and number of lanes, which SINKPROP_ISA and SINKPROP_WIDTH name. The results of a
// query do not depend on the number of lanes.
#include "lists.hpp"

#include "kernels.hpp"
#include "list_sums.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {
namespace {

// Numbers of documents up to which queries are processed as lists (times: benchmarks/crossover.py). With two lanes, the
// stretches of LaplaceSums are faster sooner. The matrices of the shortest lists are stored for the Gaussian kernel.
// For longer ones, in its fast setting, a band of the matrix is stored if it has at most `widest_list_band` ranks,
// polynomials are used if all scores are in one cell, and sums of exponentials if not.
constexpr std::size_t longest_laplace_list = W > 2 ? 256 : 64, longest_gaussian_list = 256, widest_list_band = 2;

std::size_t longest_matrix_list(const Settings& s) {
    return s.exact ? 24 : 16;
}

std::size_t longest_list(std::size_t n, const Settings& s) {
    if (!s.lists || !s.smoothed() || s.tol > 0) return 0;
    if (s.relaxation == Relaxation::laplace) return n <= longest_laplace_list ? longest_laplace_list : 0;
    if (n <= longest_matrix_list(s)) return longest_matrix_list(s);
    return n <= longest_gaussian_list && !s.exact ? longest_gaussian_list : 0;
}

using DenseLists = PolynomialLists<fast_terms>;

std::size_t lists_scratch(std::size_t n, const Settings& s) {
    const int T = s.half_steps;
    const std::size_t own = s.relaxation == Relaxation::laplace ? TiedLaplaceLists::scratch(n, T) + ListTies::scratch(n)
                            : n <= longest_matrix_list(s)
                                ? MatrixLists::scratch(n, T)
                                : larger(larger(SummedLists::scratch(n, T), SummedList::scratch(n, T)),
                                         BandedLists::scratch(n, T, widest_list_band));
    return ListArrays::scratch(n) + n * W + own + expected_gain_scratch(n * W, T, 1);
}

// Writes the expected gain of each list, computed with the operator A, to values (W,), and the gradient with respect to
// the sorted scores, times the operator's unit, to slopes (n, W). Returns the last two scaling vectors.
template <class Operator>
Factors lists_gain_by(const Operator& A, const ListArrays& arrays, const Settings& s, double* space, double* values,
                      double* slopes) {
    expected_gain(A, {arrays.gains, arrays.D, nullptr, 1}, normalization(s, nullptr), space, slopes).store(values);
    return Factors(space, s.half_steps, A.size);
}

// Multiplies the slopes by factor / unit
void scale_slopes(double factor, double unit, std::size_t size, double* slopes) {
    const Lanes scale = Lanes::all(factor / unit);
    // adding 0 turns -0 into 0
    for (std::size_t i = 0; i < size; i += W) (scale * load(slopes, i) + Lanes::all(0)).store(slopes + i);
}

template <class Operator>
void lists_gain_with(const Operator& A, const ListArrays& arrays, const Settings& s, double factor, double* space,
                     double* values, double* slopes) {
    lists_gain_by(A, arrays, s, space, values, slopes);
    scale_slopes(factor, A.unit, A.size, slopes);
}

void lists_gain(const Lists& lists, const Settings& s, double factor, double* space, double* values, double* slopes) {
    const ListArrays arrays(lists, space);
    space += ListArrays::scratch(lists.n);
    const std::size_t n = lists.n;
    const int T = s.half_steps;
    const double* y = lists.scores;
    if (s.relaxation == Relaxation::laplace)
        return lists_gain_with(LaplaceLists(arrays, y, s.sigma, T, space), arrays, s, factor,
                               space + LaplaceLists::scratch(n, T), values, slopes);
    if (n <= longest_matrix_list(s))
        return lists_gain_with(MatrixLists(arrays, y, s.sigma, T, space), arrays, s, factor,
                               space + MatrixLists::scratch(n, T), values, slopes);
    // The method of each query depends on its own scores. If the methods of the queries differ, each is used for all of
    // them, and its results are kept for some.
    enum { sums, bands, polynomials, n_methods };
    int method[W];
    std::size_t own_band[W], band = 0;
    for (std::size_t l = 0; l < W; ++l) {
        own_band[l] = BandedLists::needed(lists, s.sigma, widest_list_band, l);
        const bool banded = own_band[l] <= widest_list_band;
        method[l] = banded ? bands : DenseLists::fits(lists, s.sigma, l) ? polynomials : sums;
        if (banded && own_band[l] > band) band = own_band[l];
    }
    double value[W], *slope = space;
    space += n * W;
    for (int m = 0; m < n_methods; ++m) {
        const auto of_m = [&](std::size_t l) { return method[l] == m; };
        bool any = false, all = true;
        for (std::size_t l = 0; l < W; ++l) {
            any |= of_m(l);
            all &= of_m(l);
        }
        if (!any) continue;
        double *value_m = all ? values : value, *slope_m = all ? slopes : slope;
        if (m == sums && lists.count == 1)
            lists_gain_with(SummedList(arrays, y, s.sigma, T, space), arrays, s, factor,
                            space + SummedList::scratch(n, T), value_m, slope_m);
        else if (m == sums)
            lists_gain_with(SummedLists(arrays, y, s.sigma, T, space), arrays, s, factor,
                            space + SummedLists::scratch(n, T), value_m, slope_m);
        else if (m == bands)
            lists_gain_with(BandedLists(arrays, y, s.sigma, band, own_band, T, space), arrays, s, factor,
                            space + BandedLists::scratch(n, T, band), value_m, slope_m);
        else
            lists_gain_with(DenseLists(arrays, y, s.sigma, s.cells, T, space), arrays, s, factor,
                            space + DenseLists::scratch(n, T), value_m, slope_m);
        for (std::size_t l = 0; l < W && !all; ++l) {
            if (!of_m(l)) continue;
            values[l] = value[l];
            for (std::size_t i = 0; i < n; ++i) slopes[i * W + l] = slope[i * W + l];
        }
    }
}

void tied_lists_gain(const Lists& lists, const Settings& s, const double* widths, std::size_t n_widths, double* space,
                     double* values, double* slopes) {
    const ListArrays arrays(lists, space);
    space += ListArrays::scratch(lists.n);
    const std::size_t n = lists.n, size = n * W;
    const int T = s.half_steps;
    const bool tied = ListTies::any(lists, arrays);
    double *of_width = space, value[W];
    space += size;
    double* tie_space = space;
    space += ListTies::scratch(n);
    for (std::size_t l = 0; l < W; ++l) values[l] = 0;
    for (std::size_t i = 0; i < size; ++i) slopes[i] = 0;
    const double share = 1 / double(n_widths);
    const auto add = [&](double factor) {
        for (std::size_t l = 0; l < W; ++l) values[l] += share * value[l];
        for (std::size_t i = 0; i < size; i += W)
            fma(Lanes::all(factor), load(of_width, i), load(slopes, i)).store(slopes + i);
    };
    if (!tied) {
        for (std::size_t w = 0; w < n_widths; ++w) {
            lists_gain_by(LaplaceLists(arrays, lists.scores, widths[w], T, space), arrays, s,
                          space + LaplaceLists::scratch(n, T), value, of_width);
            add(share / widths[w]);
        }
    } else {
        const ListTies ties(lists, arrays, tie_space);
        for (std::size_t w = 0; w < n_widths; ++w) {
            const Factors pi = lists_gain_by(TiedLaplaceLists(arrays, ties, lists.scores, widths[w], T, space), arrays,
                                             s, space + TiedLaplaceLists::scratch(n, T), value, of_width);
            for (std::size_t i = 0; i < size; i += W)
                fma(load(pi.u, i) * load(pi.v, i), load(ties.own, i), load(of_width, i)).store(of_width + i);
            add(share / widths[w]);
        }
    }
    // If the gains of a query are all equal, no order is better than another. The small derivatives that an incomplete
    // normalization leaves are errors.
    const Lanes zero = Lanes::all(0), first = load(lists.gains, 0);
    Lanes differ = zero;
    for (std::size_t i = 0; i < size; i += W)
        differ = maximum(differ, Lanes::where_equal(load(lists.gains, i), first, zero, load(arrays.mask, i)));
    for (std::size_t i = 0; i < size; i += W) Lanes::where_less(zero, differ, load(slopes, i), zero).store(slopes + i);
}

}  // namespace

extern const ListKernels list_kernels;
const ListKernels list_kernels = {W, longest_list, sort_lists, lists_gain, tied_lists_gain, lists_scratch};

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
