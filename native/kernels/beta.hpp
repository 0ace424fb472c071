// Beta distributions with parameters a and b: the masses of n equal bins of (0, 1), and their derivatives with respect
// to log a and log b. The masses of one document's distribution are a row of the matrix A of docs/linear-time.md 7. The
// other two families of distributions in that section have a location and a scale parameter instead of a and b.
#pragma once

#include <cmath>

#include "scaling.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

constexpr double beta_limit = 1e5, log_beta_lower = -9.21034037197618274, log_beta_upper = 11.5129254649702284;

inline double bounded(double x, double lower, double upper) {
    return x < lower ? lower : x > upper ? upper : x;
}
inline double inside(double x, double lower, double upper) {
    return x < lower || x > upper ? 0 : 1;
}
inline double beta_parameter(double theta) {
    return std::exp(bounded(theta, log_beta_lower, log_beta_upper));
}

// A Gauss-Legendre rule for integrals of the beta density over a bin. The variable of integration is z = logit(u), in
// which the density u^a (1-u)^b / B(a, b) is smooth and bell-shaped. The logarithm of the density has the second
// derivative -(a + b) u (1 - u) with respect to z. The larger its absolute value, the narrower are the intervals that
// the rule integrates accurately. A bin that is too wide is cut into several intervals, its panels. The nodes, which
// are the points where the density is evaluated, are chosen once per query, for the query's largest a + b. They are
// stored in groups of 8 nodes: 8 values of ln u, then 8 of ln(1 - u), then 8 weights.
struct GaussRule {
    std::size_t nodes;
    // largest width of an interval of z = logit(u) that the rule integrates accurately, in units of
    // 1 / sqrt(1 + (a + b) u (1 - u)), where a and b are the parameters of the beta distribution
    double reach;
    // x and w: nodes and weights of the rule for the interval (-1, 1). The rule is symmetric: -x is a node with the
    // same weight as x. So only the nodes x >= 0 are stored, in decreasing order.
    double x[6], w[6];
};
constexpr GaussRule gauss_rules[] = {
    {2, 0.0062, {0.577350269189625765}, {1.0}},
    {3, 0.07, {0.774596669241483377, 0.0}, {0.555555555555555556, 0.888888888888888889}},
    {4, 0.25, {0.861136311594052575, 0.339981043584856265}, {0.347854845137453857, 0.652145154862546143}},
    {6,
     0.9,
     {0.932469514203152028, 0.661209386466264514, 0.238619186083196909},
     {0.171324492379170345, 0.360761573048138608, 0.467913934572691047}},
    {8,
     1.8,
     {0.960289856497536232, 0.79666647741362674, 0.525532409916328986, 0.183434642495649805},
     {0.101228536290376259, 0.222381034453374471, 0.313706645877887287, 0.362683783378361983}},
    {12,
     3.5,
     {0.981560634246719251, 0.904117256370474857, 0.769902674194304687, 0.587317954286617447, 0.367831498998180194,
      0.125233408511468915},
     {0.0471753363865118272, 0.106939325995318431, 0.160078328543346226, 0.203167426723065922, 0.233492536538354809,
      0.249147045813402785}},
};
constexpr int n_gauss_rules = sizeof gauss_rules / sizeof gauss_rules[0];
// Below z = logit(u) = -40, the density as a function of z equals e^(a z) / B(a, b) up to rounding.
constexpr double beta_cut = 40;

// Writes node i of a rule for the interval (lower, lower + 2 half) of z = logit(u) to a group of 8 nodes (see
// GaussRule), as node number `lane`
inline void put_node(double* group, std::size_t lane, const GaussRule& rule, std::size_t i, double lower, double half) {
    const std::size_t at = 2 * i < rule.nodes ? i : rule.nodes - 1 - i;
    const double z = lower + half * (1 + (at == i ? -rule.x[at] : rule.x[at]));
    const double l = std::log1p(std::exp(z < 0 ? z : -z));
    group[lane] = (z < 0 ? z : 0) - l;
    group[8 + lane] = (z < 0 ? 0 : -z) - l;
    group[16 + lane] = half * rule.w[at];
}

// Returns the number of groups of 8 nodes (see GaussRule) for n >= 2 bins and a + b <= total. If `nodes` is not null,
// writes the groups to `nodes` and counts them in n_groups: n_groups[0] is the number of groups for bin 0 alone, and
// n_groups[1 + i] the number of groups for bins 8 i .. 8 i + 7. A group for bin 0 alone holds 8 nodes of that bin;
// these groups cover z from the bin's upper edge down to -40. Every other group holds one node of each of its 8 bins,
// with weight 0 for bins 0 and n - 1: bin n - 1 is computed as bin 0 with a and b exchanged. Unused positions of a
// group have weight 0, too.
inline std::size_t beta_nodes(std::size_t n, double total, double* n_groups, double* nodes) {
    const double count = double(n);
    const auto bend = [&](double u) { return std::sqrt(1 + total * u * (1 - u)); };
    const GaussRule& longest = gauss_rules[n_gauss_rules - 1];
    std::size_t placed = 0;
    for (double upper = -std::log(count - 1); upper > -beta_cut;) {
        const double width = longest.reach / bend(1 / (1 + std::exp(-upper)));
        const double lower = upper - width > -beta_cut ? upper - width : -beta_cut;
        for (std::size_t i = longest.nodes; i-- > 0; ++placed)
            if (nodes) put_node(nodes + 24 * (placed / 8), placed % 8, longest, i, lower, 0.5 * (upper - lower));
        upper = lower;
    }
    for (; placed % 8; ++placed)
        if (nodes) put_node(nodes + 24 * (placed / 8), placed % 8, longest, 0, -beta_cut, 0);
    std::size_t groups = placed / 8;
    if (nodes) n_groups[0] = double(groups);
    for (std::size_t first = 0; first < n; first += 8) {
        double widest = 0;
        for (std::size_t k = first ? first : 1; k < first + 8 && k + 1 < n; ++k) {
            const double lower = double(k), upper = lower + 1;
            const double steepest = 2 * upper < count ? upper : 2 * lower > count ? lower : 0.5 * count;
            // Bin k, which is the interval from u = k/n to (k+1)/n, has a width of a little less than
            // n / (k (n - k - 1)) in the variable z = logit(u). Here n is `count`, and k is `lower`. bend() converts
            // the width to the units of GaussRule::reach.
            const double width = count / (lower * (count - upper)) * bend(steepest / count);
            if (width > widest) widest = width;
        }
        int r = 0;
        while (r + 1 < n_gauss_rules && widest > gauss_rules[r].reach) ++r;
        const GaussRule& rule = gauss_rules[r];
        const std::size_t panels = widest > rule.reach ? std::size_t(std::ceil(widest / rule.reach)) : 1;
        for (std::size_t k = first; nodes && k < first + 8; ++k) {
            const bool interior = k > 0 && k + 1 < n;
            const double lower = interior ? std::log(double(k) / double(n - k)) : 0;
            const double upper = interior ? std::log(double(k + 1) / double(n - k - 1)) : 0;
            const double half = 0.5 * (upper - lower) / double(panels);
            for (std::size_t i = 0; i < panels * rule.nodes; ++i)
                put_node(nodes + 24 * (groups + i), k - first, rule, i % rule.nodes,
                         lower + 2 * half * double(i / rule.nodes), half);
        }
        if (nodes) n_groups[1 + first / 8] = double(panels * rule.nodes);
        groups += panels * rule.nodes;
    }
    return groups;
}

struct BetaBins {
    const double *n_groups, *nodes;
    const double* corners;  // elements 2 i, 2 i + 1: ln u, ln(1 - u) at u = 8 i / n, the lower edge of bin 8 i
    double threshold;       // bins where the density is below exp(threshold) times its maximum are left out
};

struct BetaDensity {
    double a, b, shift;  // the density, up to a factor: exp(a ln u + b ln(1 - u) - shift), which is 1 at its maximum
    BetaDensity(double a_, double b_)
        : a(a_), b(b_), shift(a_ * std::log(a_ / (a_ + b_)) + b_ * std::log(b_ / (a_ + b_))) {}
    double exponent(double ln_u, double ln_1u) const { return a * ln_u + b * ln_1u - shift; }
};

// Integrals over a bin of the density, of ln u times the density, and of ln(1 - u) times the density
template <class Number>
struct BetaIntegrals {
    Number mass, ln_u, ln_1u;
};

SINKPROP_INLINE void add_node(const BetaDensity& d, const double* node, BetaIntegrals<Lanes>& sums) {
    const Lanes ln_u = load(node, 0), ln_1u = load(node, 8);
    const Lanes x = fma(Lanes::all(d.a), ln_u, fma(Lanes::all(d.b), ln_1u, Lanes::all(-d.shift)));
    const Lanes e = exp(x) * load(node, 16);
    sums.mass = sums.mass + e;
    sums.ln_u = fma(ln_u, e, sums.ln_u);
    sums.ln_1u = fma(ln_1u, e, sums.ln_1u);
}

// Integrals over bin 0, with the variable z = logit(u). The integrals over z < -40 have closed forms: there the density
// is proportional to e^(a z), and ln u is z.
inline BetaIntegrals<double> beta_end_bin(const BetaDensity& d, const BetaBins& bins) {
    BetaIntegrals<Lanes> sums[8 / W] = {};
    const double mode = std::log(d.a / (d.a + d.b));
    const double* node = bins.nodes;
    for (std::size_t i = 0; i < std::size_t(bins.n_groups[0]); ++i, node += 24) {
        if (node[0] < mode && d.exponent(node[0], node[8]) < bins.threshold) break;
        for (int c = 0; c < 8 / W; ++c) add_node(d, node + c * W, sums[c]);
    }
    const double tail = std::exp(-beta_cut * d.a - d.shift) / d.a;
    BetaIntegrals<double> result = {tail, tail * (-beta_cut - 1 / d.a), 0};
    for (const auto& s : sums) {
        result.mass += sum(s.mass);
        result.ln_u += sum(s.ln_u);
        result.ln_1u += sum(s.ln_1u);
    }
    return result;
}

// Writes the row of one document to A, and the row's derivatives with respect to log a and log b to `da` and `db`. Let
// mass_k be the integral of the density over bin k, ln_k the integral of ln u times the density over bin k, and
// P_k = mass_k / sum(mass). Then A_k = P_k + epsilon, and its derivative with respect to log a is
// a (ln_k - P_k sum(ln)) / sum(mass). For log b, a is replaced by b and ln u by ln(1 - u). The density's factor
// 1 / B(a, b) cancels, so it is never computed.
inline void beta_row(const double* theta, const BetaBins& bins, std::size_t n, std::size_t N, double epsilon,
                     double* SINKPROP_RESTRICT A, double* SINKPROP_RESTRICT da, double* SINKPROP_RESTRICT db) {
    const double a = beta_parameter(theta[0]), b = beta_parameter(theta[1]);
    const BetaDensity d(a, b);
    const double mode = a / (a + b) * double(n);
    const double* node = bins.nodes + 24 * std::size_t(bins.n_groups[0]);
    for (std::size_t first = 0; first < N; first += 8) {
        const std::size_t groups = std::size_t(bins.n_groups[1 + first / 8]);
        // the end of these 8 bins that is nearer to the density's maximum; 0 if the maximum lies within them
        const std::size_t corner = double(first) > mode ? first : double(first + 8) < mode ? first + 8 : 0;
        const double* at = bins.corners + corner / 4;
        BetaIntegrals<Lanes> sums[8 / W] = {};
        if (corner == 0 || d.exponent(at[0], at[1]) > bins.threshold)
            for (std::size_t i = 0; i < groups; ++i)
                for (int c = 0; c < 8 / W; ++c) add_node(d, node + 24 * i + c * W, sums[c]);
        node += 24 * groups;
        for (std::size_t c = 0; c < 8 / W; ++c) {
            sums[c].mass.store(A + first + c * W);
            sums[c].ln_u.store(da + first + c * W);
            sums[c].ln_1u.store(db + first + c * W);
        }
    }
    const BetaIntegrals<double> low = beta_end_bin(d, bins), high = beta_end_bin(BetaDensity(b, a), bins);
    A[0] = low.mass, da[0] = low.ln_u, db[0] = low.ln_1u;
    A[n - 1] = high.mass, da[n - 1] = high.ln_1u, db[n - 1] = high.ln_u;

    BetaIntegrals<Lanes> totals = {};
    for (std::size_t k = 0; k < N; k += W) {
        totals.mass = totals.mass + load(A, k);
        totals.ln_u = totals.ln_u + load(da, k);
        totals.ln_1u = totals.ln_1u + load(db, k);
    }
    const double scale = 1 / sum(totals.mass);
    const Lanes mean_u = Lanes::all(scale * sum(totals.ln_u)), mean_1u = Lanes::all(scale * sum(totals.ln_1u));
    for (std::size_t k = 0; k < N; k += W) {
        const Lanes mass = load(A, k);
        (Lanes::all(a * scale) * (load(da, k) - mass * mean_u)).store(da + k);
        (Lanes::all(b * scale) * (load(db, k) - mass * mean_1u)).store(db + k);
        (mass * Lanes::all(scale) + Lanes::all(epsilon)).store(A + k);
    }
    for (std::size_t k = n; k < N; ++k) A[k] = 0;
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
