// The derivatives that boosted trees are grown on. Noise is added to the scores, the derivatives of tied documents are
// averaged over the orders of these documents, and curvatures take the place of second derivatives.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <new>

#include "batch.hpp"
#include "dispatch.hpp"
#include "ideal.hpp"
#include "kernels/noise.hpp"
#include "lists.hpp"
#include "queries.hpp"

namespace sinkprop {
namespace {

// The noise that is added to scores (kernels/noise.hpp), with the given standard deviation
class Noise {
  public:
    Noise(double deviation, std::uint64_t seed)
        : factor_(deviation > 0 ? deviation / std::sqrt(noise_variance) : 0), seed_(seed) {}

    double factor() const { return factor_; }
    std::uint64_t first_key(std::size_t q) const { return first_noise_key(seed_, q); }
    std::uint64_t key(const Batch& batch, std::size_t q) const {
        std::uint64_t key = first_key(q), bits;
        const std::size_t n = std::size_t(batch.offsets[q + 1] - batch.offsets[q]);
        for (std::size_t i = 0; factor_ > 0 && i < n; ++i) {
            const double score = batch.scores[batch.row(q, i)] + 0.0;  // turns -0 into 0
            std::memcpy(&bits, &score, sizeof bits);
            key = add_to_key(key, bits);
        }
        return key;
    }
    double operator()(std::uint64_t key, std::size_t i) const {
        if (factor_ == 0) return 0;
        const std::uint64_t bits = noise_bits(key, i);
        double noise;
        std::memcpy(&noise, &bits, sizeof noise);
        return factor_ * (noise - noise_offset);
    }

  private:
    double factor_;
    std::uint64_t seed_;
};

// The n ties of a query (a tie is the set of all documents with one score), and derivatives of the query's expected
// gain with respect to the documents' scores. Within a tie, the derivative of a document is a linear function of the
// document's gain, one function per class of documents.
//   total  (n,)            sum of the derivatives of each tie's documents
//   own    (n_classes, n)  slope of the linear function, for each class and tie; for a gain with terms, which has a
//                          linear function for each statistic, (query.n,): their sum for each document
//   slope  (query.n,)      derivative of each document of the query
struct TieSpace {
    Ties ties;
    double *total, *own, *slope;
};

TieSpace find_ties(const Query& query, Workspace& w) {
    static_assert(sizeof(std::size_t) == sizeof(double), "indices are in a buffer of doubles");
    const std::size_t n = query.n, C = query.n_terms ? 0 : query.n_classes;
    if (n > SIZE_MAX / (4 * (C + 2)) / sizeof(double)) throw std::bad_alloc();
    double *scores = w.ties.doubles(n * (6 + 4 * C) + 1), *count = scores + n, *total = count + n, *slope = total + n;
    std::size_t* first = reinterpret_cast<std::size_t*>(slope + n);
    std::size_t m = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (!i || query.scores[i] != scores[m - 1]) {
            scores[m] = query.scores[i];
            first[m] = i;
            count[m++] = 0;
        }
        ++count[m - 1];
    }
    first[m] = n;
    double* rest = slope + 2 * n + 1;
    double *gains = rest, *D = gains + C * m, *spread = D + C * m, *own = spread + C * m;
    for (std::size_t i = 0; i < m; ++i) total[i] = 0;
    if (query.n_terms) std::fill(own, own + n, 0.0);
    for (std::size_t i = 0; i < C * m; ++i) gains[i] = own[i] = 0;
    for (std::size_t b = 0; C && b < m; ++b) {
        const std::size_t from = first[b], to = first[b + 1], size = to - from;
        for (std::size_t i = from; i < to; ++i)
            gains[(C > 1 ? std::size_t(query.classes[i]) : 0) * m + b] += query.gains[i] / query.ideal;
        for (std::size_t c = 0; c < C; ++c) {
            const double* discount = query.discount(c);
            double sum = 0, differences = 0;
            for (std::size_t i = from; i < to; ++i) {
                sum += discount[i];
                differences += discount[i] * (double(size - 1) - 2 * double(i - from));
            }
            gains[c * m + b] /= count[b];
            D[c * m + b] = sum / count[b];
            spread[c * m + b] = size > 1 ? differences / (0.5 * count[b] * (count[b] - 1)) : 0;
        }
    }
    return {{m, C, scores, count, first, gains, D, spread, query.residual}, total, own, slope};
}

// Whether no order of the documents is better than another: all have the same gain or attributes. If there are several
// classes, or terms of exposures, which may be best if all documents have the same, this is not asked.
bool all_alike(const Query& query, std::size_t n_attributes) {
    if (!query.n_terms && query.n_classes > 1) return false;
    for (std::size_t t = 0; t < query.n_terms; ++t)
        if (query.terms[t].of_rows()) return false;
    for (std::size_t c = 0; c < (query.n_terms ? n_attributes : 1); ++c) {
        const double *from = query.gains + c * query.n, *to = from + query.n;
        if (std::adjacent_find(from, to, std::not_equal_to<double>()) != to) return false;
    }
    return true;
}

// Computes `slope`, the derivative of each document, from `total` and `own` of its tie. If all documents are alike,
// their derivatives are set to 0: the small derivatives that an incomplete Sinkhorn normalization leaves are errors.
void distribute(const Query& query, std::size_t n_attributes, const TieSpace& s) {
    const std::size_t m = s.ties.n, C = query.n_classes;
    if (all_alike(query, n_attributes)) {
        std::fill(s.slope, s.slope + query.n, 0.0);
        return;
    }
    for (std::size_t b = 0; b < m; ++b) {
        const std::size_t from = s.ties.first[b], to = s.ties.first[b + 1];
        double own = 0;
        for (std::size_t i = from; i < to; ++i) {
            const std::size_t c = C > 1 ? std::size_t(query.classes[i]) : 0;
            s.slope[i] = query.n_terms ? s.own[i] : query.gains[i] / query.ideal * s.own[c * m + b];
            own += s.slope[i];
        }
        const double shared = (s.total[b] - own) / s.ties.count[b];
        for (std::size_t i = from; i < to; ++i) s.slope[i] += shared;
    }
}

}  // namespace

void tree_derivatives(const Batch& batch, const Settings& settings, const TreeLoss& loss, bool normalize,
                      const double* query_weight, float least, int n_threads, double* per_query, float* gradient,
                      float* hessian, double* residual) {
    const Kernels& kernels = kernels_in_use();
    const Noise noise(loss.noise, loss.seed);
    const Settings chosen = with_method_in_use(settings);
    std::fill(per_query, per_query + batch.n_queries, 0.0);
    const ListGroups groups(batch, chosen, normalize);
    each_group(batch, chosen, groups, n_threads, noise, [&](const ListGroup& group) {
        double weights[most_lanes];
        for (std::size_t l = 0; l < group.kernels.lanes; ++l)
            weights[l] = query_weight && l < group.lists.count ? query_weight[group.queries[l]] : 1;
        group.kernels.tree_lists(group.lists, chosen, loss, weights, group.scratch, group.values, group.slopes,
                                 group.curvatures);
        for (std::size_t l = 0; l < group.lists.count; ++l) {
            const std::size_t q = group.queries[l];
            per_query[q] = group.values[l];
            note_residual(residual, q);
            group.each_document(l, [&](std::size_t at, std::size_t row) {
                gradient[row] = float(group.slopes[at]);
                hessian[row] = std::max(least, float(group.curvatures[at]));
            });
        }
    });
    if (groups.cover_all()) return;
    const Ideal ideal(batch.D, normalize ? longest(batch) : 0);
    const Norms norms(batch.terms, batch.n_terms, batch.n_terms ? longest(batch) : 0);
    const auto leave_out = [&](std::size_t q) { return groups.cover(batch, q); };
    each_arranged(batch, settings, n_threads, noise, leave_out, [&](std::size_t q, Query& query, Workspace& w) {
        if (query.n_terms)
            query.ideal = norms(query, w.terms.data());
        else if (normalize)
            query.ideal = ideal(query.gains, query.n);
        per_query[q] = 0;
        query.residual = note_residual(residual, q);
        if (query.ideal == 0 || query.n == 0) {
            for (std::size_t i = 0; i < query.n; ++i) {
                gradient[query.rows[i]] = 0;
                hessian[query.rows[i]] = least;
            }
            return;
        }
        const TieSpace s = find_ties(query, w);
        Settings of_width = chosen;
        double* scratch = w.scratch.doubles(query.n_terms ? kernels.tied_terms_scratch(query, s.ties, of_width)
                                                          : kernels.tied_scratch(s.ties, of_width));
        const double share = 1 / double(loss.n_widths);
        for (std::size_t i = 0; i < loss.n_widths; ++i) {
            of_width.sigma = loss.widths[i];
            per_query[q] +=
                share * (query.n_terms ? kernels.tied_terms(query, s.ties, of_width, share, scratch, s.total, s.own)
                                       : kernels.tied_gain(s.ties, of_width, share, scratch, s.total, s.own));
        }
        distribute(query, batch.n_attributes, s);
        double mean = 0;
        for (std::size_t i = 0; i < query.n; ++i) mean += std::abs(s.slope[i]);
        mean *= loss.blend / double(query.n);
        const double weight = query_weight ? query_weight[q] : 1, rest = 1 - loss.blend;
        for (std::size_t i = 0; i < query.n; ++i) {
            gradient[query.rows[i]] = float(-weight * s.slope[i]);
            hessian[query.rows[i]] = std::max(least, float(weight * (mean + rest * std::abs(s.slope[i]))));
        }
    });
}

}  // namespace sinkprop
