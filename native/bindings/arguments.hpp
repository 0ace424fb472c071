// Arguments of the functions of batch.hpp, from the numbers that Python passes: settings and terms of a gain. They are
// the same for NumPy's arrays (bindings.cpp) and for XLA's (xla.cpp).
#pragma once

#include <cstddef>
#include <stdexcept>

#include "batch/batch.hpp"

namespace sinkprop {

// If `tol` is above 0, the settings are those of the limit of the normalization, and half_steps is `max_iter`.
inline Settings make_settings(int relaxation, double sigma, bool exact, int half_steps, double epsilon,
                              double tol = 0) {
    if (relaxation < 0 || relaxation > int(Relaxation::rank_binomial))
        throw std::invalid_argument("relaxation must be the number of a relaxation");
    if (half_steps < 0) throw std::invalid_argument("half_steps must be at least 0");
    Settings settings = {};
    settings.relaxation = Relaxation(relaxation);
    settings.sigma = sigma;
    settings.exact = exact;
    settings.half_steps = tol > 0 ? limit_half_steps : half_steps;
    settings.tol = tol;
    settings.max_iter = tol > 0 ? half_steps : 0;
    settings.epsilon = epsilon;
    settings.method = Method::automatic;
    return settings;
}

constexpr std::size_t term_columns = 10;  // numbers that describe a term

// The term that a row of 10 numbers describes: form, norm, first attribute, number of attributes, first row of
// discounts, distance of the rows of two attributes, weight, alpha, and the two parameters of the norm. The discounts
// have the shape (n_discounts, ranks).
inline Term make_term(const double* row, std::size_t n_attributes, const double* discounts, std::size_t n_discounts,
                      std::size_t ranks) {
    const auto index = [&](std::size_t column, std::size_t end) {
        if (!(row[column] >= 0 && row[column] < double(end)))
            throw std::invalid_argument("table: a number is out of range");
        return std::size_t(row[column]);
    };
    Term term = {};
    term.form = Form(index(0, std::size_t(Form::row) + 1));
    term.norm = Norm(index(1, std::size_t(Norm::intents) + 1));
    term.first = index(2, n_attributes + 1);
    term.count = index(3, n_attributes + 1 - term.first);
    const std::size_t first = index(4, n_discounts), step = index(5, n_discounts + 1);
    if (term.count == 0 || first + step * (term.products() - 1) >= n_discounts ||
        (term.form == Form::gap && term.count < 2))
        throw std::invalid_argument("table: a term has too few attributes or discounts");
    term.D = discounts + first * ranks;
    term.step = step * ranks;
    term.weight = row[6];
    term.alpha = row[7];
    term.c0 = row[8];
    term.c1 = row[9];
    return term;
}

// Throws if a group of a term of the form `gap` is not below the number of documents of its query
inline void require_groups(const Batch& batch) {
    for (const Term* term = batch.terms; term != batch.terms + batch.n_terms; ++term) {
        if (term->form != Form::gap) continue;
        const double* group = batch.gains + term->first * batch.n_documents;
        for (std::size_t q = 0; q < batch.n_queries; ++q) {
            const std::size_t n = std::size_t(batch.offsets[q + 1] - batch.offsets[q]);
            for (std::size_t i = 0; i < n; ++i)
                if (!(group[batch.row(q, i)] < double(n)))
                    throw std::invalid_argument("groups must be below the number of documents of the query");
        }
    }
}

}  // namespace sinkprop
