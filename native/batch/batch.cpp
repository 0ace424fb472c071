#include "batch.hpp"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "dispatch.hpp"
#include "ideal.hpp"
#include "kernels/cell_tables.hpp"
#include "lists.hpp"
#include "queries.hpp"

namespace sinkprop {
namespace {

// Settings with the method in use, and the tables that the kernels read
Settings completed(const Settings& given) {
    Settings settings = with_method_in_use(given);
    settings.cells = settings.exact ? cell_table<exact_terms>() : cell_table<fast_terms>();
    settings.fine_cells = cell_table<fine_terms>();
    return settings;
}

// Calls work(q, query, settings, plan, scratch, kernels) for every query of the batch that is not left out. q is the
// query's index, and `query` has its documents in the order that the kernels need. `kernels` has the functions of the
// instruction set in use, `plan` names the method by which they process this query, `settings` are their settings, and
// `scratch` has plan.scratch doubles.
template <class Leave, class Work>
void each_query(const Batch& batch, const Settings& given, int n_threads, Leave&& leave_out, Work&& work) {
    const Kernels& kernels = kernels_in_use();
    const Settings settings = completed(given);
    each_arranged(batch, settings, n_threads, NoNoise(), leave_out, [&](std::size_t q, Query& query, Workspace& w) {
        const Plan plan = kernels.plan(query, settings);
        work(q, query, settings, plan, w.scratch.doubles(plan.scratch), kernels);
    });
}

// Calls compute(query, out), which writes `width` numbers for each document to its row of `out`. If the caller's
// results are float32, `out` has the rows of this query only, and its numbers are rounded once all are known.
template <class Compute>
void write_results(const Query& query, std::size_t width, const Results& results, Workspace& w, Compute&& compute) {
    if (double* out = results.doubles()) return compute(query, out);
    const std::size_t n = query.n;
    const std::size_t* rows = query.rows;
    double* own = w.results.doubles(n * width);
    Query alone = query;
    alone.rows = places_of(w, n);
    compute(alone, own);
    float* out = results.singles();
    if (width == 1)
        for (std::size_t i = 0; i < n; ++i) out[rows[i]] = float(own[i]);
    else
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t d = 0; d < width; ++d) out[rows[i] * width + d] = float(own[i * width + d]);
}

// Calls work(q, query, weight, rows, scratch) for every query of the batch. q is the query's index, `weight` its
// weight, and rows[i] the row of its i-th document in the caller's arrays. For a query of n documents, `scratch` has
// 3 (n + PairQuery::slack) doubles.
template <class Work>
void each_pair_query(const PairBatch& batch, int n_threads, Work&& work) {
    const std::size_t total = batch.offsets[batch.n_queries];
    const std::size_t per_query = std::max<std::size_t>(1, total / std::max<std::size_t>(1, batch.n_queries));
    // a thread takes queries with about ten thousand pairs of documents at a time
    const std::size_t piece = std::max<std::size_t>(1, 20000 / (per_query * per_query));
    in_workspaces(batch.n_queries, piece, n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        for (std::size_t q = from; q < to; ++q) {
            const std::size_t begin = batch.offsets[q], n = batch.offsets[q + 1] - begin;
            const std::size_t padded = n + PairQuery::slack;
            double *scores = w.scores.doubles(padded), *weight = w.gains.doubles(padded);
            const double of_query = batch.query_weight ? batch.query_weight[q] : 1;
            const std::int64_t* rows = batch.rows + begin;
            for (std::size_t i = 0; i < n; ++i) {
                scores[i] = batch.scores[rows[i]];
                weight[i] = batch.sample_weight ? batch.sample_weight[rows[i]] : 1;
            }
            for (std::size_t i = n; i < padded; ++i) scores[i] = weight[i] = 0;
            work(q, PairQuery{n, scores, weight, batch.lower + begin}, of_query, rows, w.scratch.doubles(3 * padded));
        }
        w.shrink();
    });
}

}  // namespace

void sort_descending(const double* scores, std::size_t n, std::size_t* order, double* sorted) {
    if (!n) return;
    sort_documents(scores, n, workspace().sorting.doubles(checked_sort_scratch(n)), order, sorted);
}

void expected_gain(const Batch& batch, const Settings& settings, bool normalize, double factor, int n_threads,
                   double* per_query, Results gradient, double* residual) {
    const Settings of_lists = completed(settings);
    std::fill(per_query, per_query + batch.n_queries, 0.0);
    const ListGroups groups(batch, of_lists, normalize);
    each_group(batch, of_lists, groups, n_threads, NoNoise(), [&](const ListGroup& group) {
        group.kernels.lists_gain(group.lists, of_lists, factor, group.scratch, group.values, group.slopes);
        for (std::size_t l = 0; l < group.lists.count; ++l) {
            per_query[group.queries[l]] = group.values[l];
            note_residual(residual, group.queries[l]);
            gradient.visit([&](auto* out) {
                group.each_document(l, [&](std::size_t at, std::size_t row) {
                    out[row] = std::decay_t<decltype(*out)>(group.slopes[at]);
                });
            });
        }
    });
    if (groups.cover_all()) return;
    const Ideal ideal(batch.D, normalize ? longest(batch) : 0);
    const Norms norms(batch.terms, batch.n_terms, batch.n_terms ? longest(batch) : 0);
    const std::size_t width = settings.width();
    each_query(
        batch, settings, n_threads, [&](std::size_t q) { return groups.cover(batch, q); },
        [&](std::size_t q, Query& query, const Settings& s, const Plan& plan, double* scratch, const Kernels& kernels) {
            if (query.n_terms)
                query.ideal = norms(query, workspace().terms.data());
            else if (normalize)
                query.ideal = ideal(query.gains, query.n);
            query.residual = note_residual(residual, q);
            if (query.ideal == 0) {
                per_query[q] = 0;
                for (std::size_t i = 0; i < query.n; ++i)
                    for (std::size_t d = 0; d < width; ++d) gradient.put(query.rows[i] * width + d, 0);
            } else {
                write_results(query, width, gradient, workspace(), [&](const Query& of, double* out) {
                    per_query[q] = kernels.expected_gain(of, s, plan, factor, scratch, out);
                });
            }
        });
}

void project(const Batch& batch, const Settings& settings, int n_threads, Results out, double* residual) {
    each_query(
        batch, settings, n_threads, [](std::size_t) { return false; },
        [&](std::size_t q, Query& query, const Settings& s, const Plan& plan, double* scratch, const Kernels& kernels) {
            query.residual = note_residual(residual, q);
            write_results(query, batch.n_classes, out, workspace(),
                          [&](const Query& of, double* own) { kernels.project(of, s, plan, scratch, own); });
        });
}

void listnet(const Batch& batch, int k, int n_threads, double* per_query, double* gradient) {
    const Kernels& kernels = kernels_in_use();
    const double factor = 1 / double(batch.n_queries);
    if (k <= 2 && std::size_t(batch.offsets[batch.n_queries]) < 4000) n_threads = 1;
    in_workspaces(batch.n_queries, piece_of(batch), n_threads, [&](std::size_t from, std::size_t to) {
        Workspace& w = workspace();
        for (std::size_t q = from; q < to; ++q) {
            const std::size_t begin = batch.offsets[q], n = batch.offsets[q + 1] - begin;
            double* scratch = w.scratch.doubles(listnet_scratch(n, k));
            if (!batch.rows) {
                per_query[q] = kernels.listnet(batch.scores.doubles() + begin, batch.gains + begin, n, k, factor,
                                               scratch, gradient + begin);
                continue;
            }
            const std::int64_t* rows = batch.rows + begin;
            double *z = w.scores.doubles(2 * n), *g = z + n, *y = w.gains.doubles(n);
            for (std::size_t i = 0; i < n; ++i) {
                z[i] = batch.scores[rows[i]];
                y[i] = batch.gains[rows[i]];
            }
            per_query[q] = kernels.listnet(z, y, n, k, factor, scratch, g);
            for (std::size_t i = 0; i < n; ++i) gradient[rows[i]] = g[i];
        }
        w.shrink();
    });
}

void pairwise_loss(const PairBatch& batch, int n_threads, double* per_query) {
    const Kernels& kernels = kernels_in_use();
    each_pair_query(batch, n_threads,
                    [&](std::size_t q, const PairQuery& query, double weight, const std::int64_t*, double*) {
                        per_query[q] = weight * kernels.pairwise_loss(query);
                    });
}

void pairwise_derivatives(const PairBatch& batch, int n_threads, double* gradient, double* hessian) {
    const Kernels& kernels = kernels_in_use();
    each_pair_query(batch, n_threads,
                    [&](std::size_t, const PairQuery& query, double weight, const std::int64_t* rows, double* scratch) {
                        double *g = scratch + query.n + PairQuery::slack, *h = g + query.n + PairQuery::slack;
                        kernels.pairwise_derivatives(query, scratch, g, h);
                        for (std::size_t i = 0; i < query.n; ++i) {
                            gradient[rows[i]] = weight * g[i];
                            hessian[rows[i]] = weight * h[i];
                        }
                    });
}

}  // namespace sinkprop
