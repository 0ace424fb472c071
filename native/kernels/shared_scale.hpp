// Partitioned measures whose documents have one score each and share a scale sigma (docs/linear-time.md 7). Document j,
// with the score x_j, is placed at -(x_j - x_mean), where x_mean is the mean of the scores of the query: the larger the
// score, the closer to 0, the top. Its parameters (partitioned.hpp) are
//   logit_logistic, probit  mu = -(x_j - x_mean), log s = log sigma
//   beta                    a = 4 m / sigma^2, b = 4 (1 - m) / sigma^2, m = sigmoid(-(x_j - x_mean))
// A number added to all scores of a query changes nothing.
#pragma once

#include <cmath>

#include "kernels.hpp"

namespace sinkprop {
namespace SINKPROP_ISA {

inline double log_sigmoid(double x) {
    return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

// Mean of x, computed from differences to the first number, so that the mean of equal numbers is this number
inline double mean_of(const double* x, std::size_t n, std::size_t stride) {
    double mean = x[0];
    for (std::size_t i = 1; i < n; ++i) mean += (x[i * stride] - x[0]) / double(n);
    return mean;
}

// Writes the parameters (n, 2) of the documents of a query
inline void shared_parameters(const Query& query, const Settings& s, double* theta) {
    const double mean = mean_of(query.scores, query.n, 1), log_sigma = std::log(s.sigma);
    const double log_total = std::log(4.0) - 2 * log_sigma;
    for (std::size_t i = 0; i < query.n; ++i) {
        const double x = query.scores[i] - mean;
        const bool beta = s.relaxation == Relaxation::beta;
        theta[2 * i] = beta ? log_total + log_sigmoid(-x) : -x;
        theta[2 * i + 1] = beta ? log_total + log_sigmoid(x) : log_sigma;
    }
}

// Writes `factor` times the gradient with respect to the scores to the query's rows of `gradient`. bar (n, 2) has the
// gradient with respect to the parameters theta, and is overwritten.
inline void write_shared_gradient(const Query& query, const Settings& s, double factor, const double* theta,
                                  double* bar, double* gradient) {
    for (std::size_t i = 0; i < query.n; ++i) {
        double slope = -bar[2 * i];
        if (s.relaxation == Relaxation::beta) {  // d log m = -(1 - m) dx and d log(1 - m) = m dx
            const double m = 1 / (1 + std::exp(theta[2 * i + 1] - theta[2 * i]));
            slope = m * bar[2 * i + 1] - (1 - m) * bar[2 * i];
        }
        bar[2 * i] = slope;
    }
    const double mean = mean_of(bar, query.n, 2);
    for (std::size_t i = 0; i < query.n; ++i) gradient[query.rows[i]] = factor * (bar[2 * i] - mean);
}

}  // namespace SINKPROP_ISA
}  // namespace sinkprop
