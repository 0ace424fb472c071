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
#include "queries.hpp"

namespace sinkprop {
namespace {

// Noise that is added to the scores of the q-th query: nearly normal, with the given standard deviation. It is a
// function of the seed, of q and of the query's scores; if one bit of any score changes, all of the query's noise
// changes.
class Noise {
  public:
    Noise(const Batch& batch, std::size_t q, double deviation, std::uint64_t seed) : scale_(0) {
        if (!(deviation > 0)) return;
        // the sum of four 16-bit uniform numbers has a variance of 4 (2^32 - 1) / 12
        scale_ = deviation / std::sqrt((65536.0 * 65536.0 - 1) / 3);
        key_ = mixed(seed ^ mixed(q + 1));
        const std::size_t n = std::size_t(batch.offsets[q + 1] - batch.offsets[q]);
        for (std::size_t i = 0; i < n; ++i) {
            std::uint64_t bits;
            // adding 0 turns -0 into 0, so that equal scores have equal bits
            const double score = batch.scores[batch.row(q, i)] + 0.0;
            std::memcpy(&bits, &score, sizeof bits);
            key_ = (key_ ^ bits) * 0x9E3779B97F4A7C15u;
            key_ ^= key_ >> 29;
        }
    }

    double operator()(std::size_t i) const {
        if (scale_ == 0) return 0;
        const std::uint64_t z = mixed(key_ + i * 0xD1342543DE82EF95u);
        const std::uint64_t sum = (z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48);
        return scale_ * (double(sum) - 2 * 65535.0);
    }

  private:
    // One step of the random number generator splitmix64 of Steele, Lea and Flood
    static std::uint64_t mixed(std::uint64_t z) {
        z += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    double scale_;
    std::uint64_t key_ = 0;
};

// The n ties of a query (a tie is the set of all documents with one score), and derivatives of the query's expected
// gain with respect to the documents' scores. Within a tie, the derivative of a document is a linear function of the
// document's gain, one function per class of documents.
//   total  (n,)            sum of the derivatives of each tie's documents
//   own    (n_classes, n)  slope of the linear function, for each class and tie
//   slope  (query.n,)      derivative of each document of the query
struct TieSpace {
    Ties ties;
    double *total, *own, *slope;
};

TieSpace find_ties(const Query& query, Workspace& w) {
    const std::size_t n = query.n, C = query.n_classes;
    if (n > SIZE_MAX / (4 * (C + 1)) / sizeof(double)) throw std::bad_alloc();
    double *scores = w.ties.doubles(n * (4 + 4 * C)), *count = scores + n, *total = count + n, *slope = total + n;
    std::size_t m = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (!i || query.scores[i] != scores[m - 1]) {
            scores[m] = query.scores[i];
            count[m++] = 0;
        }
        ++count[m - 1];
    }
    double *gains = slope + n, *D = gains + C * m, *spread = D + C * m, *own = spread + C * m;
    for (std::size_t i = 0; i < m; ++i) total[i] = 0;
    for (std::size_t i = 0; i < C * m; ++i) gains[i] = own[i] = 0;
    for (std::size_t b = 0, from = 0; b < m; ++b) {
        const std::size_t size = std::size_t(count[b]), to = from + size;
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
        from = to;
    }
    return {{m, C, scores, count, gains, D, spread}, total, own, slope};
}

// Computes `slope`, the derivative of each document, from `total` and `own` of its tie. If there is one class and all
// documents have the same gain, their derivatives are set to 0: no order is better than another, and the small
// derivatives that an incomplete Sinkhorn normalization leaves are errors.
void distribute(const Query& query, const TieSpace& s) {
    const std::size_t m = s.ties.n, C = query.n_classes;
    const double* last = query.gains + query.n;
    if (C == 1 && std::adjacent_find(query.gains, last, std::not_equal_to<double>()) == last) {
        std::fill(s.slope, s.slope + query.n, 0.0);
        return;
    }
    for (std::size_t b = 0, from = 0; b < m; ++b) {
        const std::size_t to = from + std::size_t(s.ties.count[b]);
        double own = 0;
        for (std::size_t i = from; i < to; ++i) {
            const std::size_t c = C > 1 ? std::size_t(query.classes[i]) : 0;
            s.slope[i] = query.gains[i] / query.ideal * s.own[c * m + b];
            own += s.slope[i];
        }
        const double shared = (s.total[b] - own) / s.ties.count[b];
        for (std::size_t i = from; i < to; ++i) s.slope[i] += shared;
        from = to;
    }
}

}  // namespace

void tree_derivatives(const Batch& batch, const Settings& settings, const TreeLoss& loss, bool normalize,
                      const double* query_weight, float least, int n_threads, double* per_query, float* gradient,
                      float* hessian) {
    const Kernels& kernels = kernels_in_use();
    const Ideal ideal(batch.D, normalize ? longest(batch) : 0);
    const auto noise = [&](std::size_t q) { return Noise(batch, q, loss.noise, loss.seed); };
    each_arranged(batch, settings, n_threads, noise, [&](std::size_t q, Query& query, Workspace& w) {
        if (normalize) query.ideal = ideal(query.gains, query.n);
        per_query[q] = 0;
        if (query.ideal == 0 || query.n == 0) {
            for (std::size_t i = 0; i < query.n; ++i) {
                gradient[query.rows[i]] = 0;
                hessian[query.rows[i]] = least;
            }
            return;
        }
        const TieSpace s = find_ties(query, w);
        Settings of_width = settings;
        of_width.method = method_in_use();
        double* scratch = w.scratch.doubles(kernels.tied_scratch(s.ties, of_width));
        const double share = 1 / double(loss.n_widths);
        for (std::size_t i = 0; i < loss.n_widths; ++i) {
            of_width.sigma = loss.widths[i];
            per_query[q] += share * kernels.tied_gain(s.ties, of_width, share, scratch, s.total, s.own);
        }
        distribute(query, s);
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
