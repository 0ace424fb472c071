// The functions of batch.hpp on queries of any sizes, scores and gains: with one thread and with two, and with the rows
// in their own order and permuted, the results must be the same, and an expected gain must be a number within its
// range.
#include "batch/batch.hpp"

#include <algorithm>

#include "queries.hpp"

namespace {

using fuzz::check;
using namespace sinkprop;

struct Problem {
    fuzz::RandomQueries queries;
    Settings settings = {};
    std::vector<double> scores, gains, D;
    std::vector<std::int32_t> classes;
    std::size_t n_classes = 1;

    explicit Problem(fuzz::Input& input) : queries(input) {
        const std::size_t n = queries.documents();
        settings.relaxation = Relaxation(input.below(6));
        settings.sigma = std::fabs(input.number());
        if (!(settings.sigma > 0)) settings.sigma = 1;
        if (settings.partitioned() && input.byte() % 2) settings.sigma = 0;  // every document has its own scale
        settings.exact = input.byte() % 2;
        settings.half_steps = int(input.below(9));
        settings.epsilon = input.byte() % 2 ? std::ldexp(1.0, -int(input.below(60))) : 0;
        scores = fuzz::numbers(input, n * settings.width());
        for (std::size_t i = 0; i < n; ++i) gains.push_back(double(input.below(5)));
        if (input.byte() % 4 == 0) {
            n_classes = 2;
            for (std::size_t i = 0; i < n; ++i) classes.push_back(std::int32_t(input.below(2)));
        }
        for (std::size_t k = 0; k < n_classes * queries.longest; ++k)
            D.push_back(1 / std::log2(double(k % queries.longest) + 2));
        if (input.byte() % 4 == 1) {  // the limit of the normalization
            settings.half_steps = limit_half_steps;
            settings.tol = std::ldexp(1.0, -int(input.below(60)));
            settings.max_iter = 1 + int(input.below(100));
        }
    }

    Batch batch() const {
        Batch b = {};
        b.scores = scores.data();
        b.offsets = queries.offsets.data();
        b.rows = queries.rows.data();
        b.n_queries = queries.queries();
        b.gains = gains.data();
        b.exponential = true;
        b.classes = classes.empty() ? nullptr : classes.data();
        b.D = D.data();
        b.n_classes = n_classes;
        b.stride = queries.longest;
        return b;
    }
};

void gain(const Problem& p, bool normalize) {
    const std::size_t queries = p.queries.queries(), n = p.scores.size();
    std::vector<double> value(queries, -7), gradient(n, -7), value2(queries, -8), gradient2(n, -8);
    std::vector<double> residual(queries, -7), residual2(queries, -8);
    expected_gain(p.batch(), p.settings, normalize, 1, 1, value.data(), gradient.data(), residual.data());
    expected_gain(p.batch(), p.settings, normalize, 1, 2, value2.data(), gradient2.data(), residual2.data());
    check(fuzz::same(value, value2) && fuzz::same(gradient, gradient2), "expected_gain depends on the threads");
    check(fuzz::same(residual, residual2), "the residual depends on the threads");
    for (double r : residual) check(r >= 0, "a residual is negative or not a number");
    check(fuzz::finite(value), "expected_gain is not finite");
    // The columns of Pi need not sum to 1 after few half steps, so that only its sign is certain.
    for (double v : value) check(v >= -1e-9, "an expected gain is negative");
}

// The gradient of scores in float32 must be that of the same scores in float64, rounded.
void single(Problem p, bool normalize) {
    const std::size_t queries = p.queries.queries(), n = p.scores.size();
    std::vector<float> scores;
    for (double& score : p.scores) {
        scores.push_back(float(std::max(-1e38, std::min(1e38, score))));
        score = scores.back();
    }
    Batch batch = p.batch();
    std::vector<double> value(queries, -7), gradient(n, -7), value2(queries, -8);
    std::vector<float> gradient2(n, -8);
    expected_gain(batch, p.settings, normalize, 1, 1, value.data(), gradient.data());
    batch.scores = scores.data();
    expected_gain(batch, p.settings, normalize, 1, 1, value2.data(), gradient2.data());
    const std::vector<float> rounded(gradient.begin(), gradient.end());
    check(fuzz::same(value, value2) && fuzz::same(rounded, gradient2), "expected_gain depends on the type of scores");
}

void projection(const Problem& p) {
    Batch batch = p.batch();
    batch.classes = nullptr;
    const std::size_t n = p.queries.documents() * p.n_classes;
    std::vector<double> out(n, -7), out2(n, -8);
    project(batch, p.settings, 1, out.data());
    project(batch, p.settings, 2, out2.data());
    check(fuzz::same(out, out2), "project depends on the threads");
    check(fuzz::finite(out), "project is not finite");
}

void trees(const Problem& p, fuzz::Input& input) {
    const std::size_t queries = p.queries.queries(), n = p.queries.documents();
    const double widths[] = {p.settings.sigma > 0 ? p.settings.sigma : 1, 1};
    const TreeLoss loss = {widths, 1 + input.below(2), double(input.below(3)) / 2, double(input.below(2)),
                           input.byte()};
    Settings settings = p.settings;
    settings.relaxation = Relaxation::laplace;
    settings.sigma = 1;
    settings.exact = true;
    std::vector<double> value(queries, -7), value2(queries, -8);
    std::vector<float> gradient(n, -7), hessian(n, -7), gradient2(n, -8), hessian2(n, -8);
    tree_derivatives(p.batch(), settings, loss, true, nullptr, 1e-6f, 1, value.data(), gradient.data(), hessian.data());
    tree_derivatives(p.batch(), settings, loss, true, nullptr, 1e-6f, 2, value2.data(), gradient2.data(),
                     hessian2.data());
    check(fuzz::same(value, value2) && fuzz::same(gradient, gradient2) && fuzz::same(hessian, hessian2),
          "tree_derivatives depends on the threads");
    check(fuzz::finite(value), "tree_derivatives is not finite");
}

void listnet_loss(const Problem& p, fuzz::Input& input) {
    const std::size_t queries = p.queries.queries(), n = p.queries.documents();
    const int k = 1 + int(input.below(4));
    Batch batch = p.batch();
    std::vector<double> value(queries, -7), gradient(n, -7), value2(queries, -8), gradient2(n, -8);
    listnet(batch, k, 1, value.data(), gradient.data());
    listnet(batch, k, 2, value2.data(), gradient2.data());
    check(fuzz::same(value, value2) && fuzz::same(gradient, gradient2), "listnet depends on the threads");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    fuzz::choose_instruction_set(input);
    const std::size_t kind = input.below(4);
    const Problem problem(input);
    // the rank-binomial distribution takes cubic time
    if (problem.settings.relaxation == Relaxation::rank_binomial && problem.queries.longest > 40) return 0;
    if (kind == 0) {
        const bool normalize = input.byte() % 2;
        gain(problem, normalize);
        single(problem, normalize);
    }
    if (kind == 1) projection(problem);
    if (kind == 2) trees(problem, input);
    if (kind == 3 && !problem.settings.partitioned()) listnet_loss(problem, input);
    return 0;
}
