// The kernels of lists: several short queries at once, one in each lane of a register (lists.hpp). This file is
// compiled once per instruction set and number of lanes, which SINKPROP_ISA, SINKPROP_WIDTH and SINKPROP_PAIRED name.
// The results of a query do not depend on the number of lanes.
#include "lists.hpp"

#include "kernels.hpp"
#include "list_sums.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {
namespace {

// Numbers of documents up to which queries are processed as lists (times: benchmarks/crossover.py). With two lanes, the
// stretches of LaplaceSums are faster sooner. The methods of the Gaussian kernel do not depend on the number of lanes,
// because their errors differ.
constexpr std::size_t longest_laplace_list = W > 2 ? 256 : 64, longest_gaussian_list = 256;
static_assert(larger(longest_laplace_list, longest_gaussian_list) <= last_place + 1, "a key holds the place");

using DenseLists = PolynomialLists<fast_terms>;

ListKind list_kind(std::size_t n, double spread, const Settings& s) {
    if (!s.lists || !s.smoothed() || s.tol > 0) return ListKind::none;
    if (s.relaxation == Relaxation::laplace) return n <= longest_laplace_list ? ListKind::sweeps : ListKind::none;
    if (n <= longest_small_list) return ListKind::matrix;
    if (n > longest_gaussian_list || s.exact) return ListKind::none;
    const double cell = 2 * GaussianCells<fast_terms>::half_cell(s.sigma);
    if (spread < cell) return ListKind::polynomials;
    // Sums of exponentials have the same small error at every distance of two scores. It would be visible in short or
    // sparse lists, whose gradients may be nearly 0, and for which a band of the matrix is stored.
    const bool few = n <= 48, dense = spread < 3 * cell;
    if (spread >= (few ? 2 : 4) * double(n) * s.sigma) return ListKind::none;
    if (dense && n > 160) return ListKind::none;  // two or three cells take less time
    return few && !dense ? ListKind::matrix : ListKind::sums;
}

std::size_t operator_scratch(std::size_t n, ListKind kind, int T) {
    switch (kind) {
        case ListKind::sweeps:
            return TiedLaplaceLists::scratch(n, T) + ListTies::scratch(n) + n * W;
        case ListKind::matrix:
            return MatrixLists::scratch(n, T);
        case ListKind::polynomials:
            return DenseLists::scratch(n, T);
        default:
            return larger(SummedLists::scratch(n, T), SummedList::scratch(n, T));
    }
}

std::size_t lists_scratch(std::size_t n, ListKind kind, const Settings& s) {
    const std::size_t gain = ListArrays::scratch(n) + operator_scratch(n, kind, s.half_steps) +
                             expected_gain_scratch(n * W, s.half_steps, 1);
    return larger(arrange_scratch(n), gain);
}

// Writes the expected gain of each list, computed with the operator A, to values (W,), and the gradient with respect to
// the sorted scores, times the operator's unit, to slopes (n, W). Returns the last two scaling vectors.
template <class Operator>
Factors lists_gain_by(const Operator& A, const ListArrays& arrays, const Settings& s, double* space, double* values,
                      double* slopes) {
    expected_gain(A, {arrays.gains, arrays.D, nullptr, 1}, normalization(s, nullptr), space, slopes).store(values);
    return Factors(space, s.half_steps, A.size);
}

void lists_gain(const Lists& lists, const Settings& s, double factor, double* space, double* values, double* slopes) {
    const ListArrays arrays(lists, space);
    space += ListArrays::scratch(lists.n);
    const double* y = lists.scores;
    const int T = s.half_steps;
    const auto use = [&](const auto& A) {
        lists_gain_by(A, arrays, s, space + operator_scratch(lists.n, lists.kind, T), values, slopes);
        const Lanes scale = Lanes::all(factor / A.unit);
        // adding 0 turns -0 into 0
        for (std::size_t i = 0; i < A.size; i += W) (scale * load(slopes, i) + Lanes::all(0)).store(slopes + i);
    };
#if !SINKPROP_PAIRED
    switch (lists.kind) {
        case ListKind::matrix:
            return use(MatrixLists(arrays, y, s.sigma, T, space));
        case ListKind::polynomials:
            return use(DenseLists(arrays, y, s.sigma, s.cells, T, space));
        case ListKind::sums:
            return lists.count == 1 ? use(SummedList(arrays, y, s.sigma, T, space))
                                    : use(SummedLists(arrays, y, s.sigma, T, space));
        default:
            break;
    }
#endif
    use(LaplaceLists(arrays, y, s.sigma, T, space));
}

void tree_lists(const Lists& lists, const Settings& s, const TreeLoss& loss, const double* weights, double* space,
                double* values, double* slopes, double* curvatures) {
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
    const double share = 1 / double(loss.n_widths);
    const auto add = [&](double factor) {
        for (std::size_t l = 0; l < W; ++l) values[l] += share * value[l];
        for (std::size_t i = 0; i < size; i += W)
            fma(Lanes::all(factor), load(of_width, i), load(slopes, i)).store(slopes + i);
    };
    if (!tied) {
        for (std::size_t w = 0; w < loss.n_widths; ++w) {
            lists_gain_by(LaplaceLists(arrays, lists.scores, loss.widths[w], T, space), arrays, s,
                          space + LaplaceLists::scratch(n, T), value, of_width);
            add(share / loss.widths[w]);
        }
    } else {
        const ListTies ties(lists, arrays, tie_space);
        for (std::size_t w = 0; w < loss.n_widths; ++w) {
            const Factors pi = lists_gain_by(TiedLaplaceLists(arrays, ties, lists.scores, loss.widths[w], T, space),
                                             arrays, s, space + TiedLaplaceLists::scratch(n, T), value, of_width);
            for (std::size_t i = 0; i < size; i += W)
                fma(load(pi.u, i) * load(pi.v, i), load(ties.own, i), load(of_width, i)).store(of_width + i);
            add(share / loss.widths[w]);
        }
    }
    // If the gains of a query are all equal, no order is better than another. The small derivatives that an incomplete
    // normalization leaves are errors.
    const Lanes zero = Lanes::all(0), first = load(lists.gains, 0);
    Lanes differ = zero;
    for (std::size_t i = 0; i < size; i += W)
        differ = maximum(differ, Lanes::where_equal(load(lists.gains, i), first, zero, load(arrays.mask, i)));
    Lanes total = zero;
    for (std::size_t i = 0; i < size; i += W) {
        const Lanes slope = Lanes::where_less(zero, differ, load(slopes, i), zero);
        slope.store(slopes + i);
        total = total + absolute(slope);
    }
    double lengths[W];
    for (std::size_t l = 0; l < W; ++l) lengths[l] = double(lists.sizes[l]);
    const Lanes mean = Lanes::all(loss.blend) * total / Lanes::load(lengths), rest = Lanes::all(1 - loss.blend),
                weight = Lanes::load(weights);
    for (std::size_t i = 0; i < size; i += W) {
        const Lanes slope = load(slopes, i);
        (weight * fma(rest, absolute(slope), mean)).store(curvatures + i);
        (-weight * slope).store(slopes + i);
    }
}

}  // namespace

extern const ListKernels list_kernels;
const ListKernels list_kernels = {W, list_kind, arrange_lists, lists_gain, tree_lists, lists_scratch};

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
