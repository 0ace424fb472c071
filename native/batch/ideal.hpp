// The numbers by which normalized gains are divided: the gain of the best ranking, and others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/kernels.hpp"

namespace sinkprop {

// The gain of a query's best ranking: sum_k g_(k) D(k), for the gains g_(1) >= g_(2) >= ... and the discounts D(k) of
// the ranks
class Ideal {
  public:
    explicit Ideal(const double* D, std::size_t n) : cumulative_(n + 1) {
        for (std::size_t k = 0; k < n; ++k) cumulative_[k + 1] = cumulative_[k] + D[k];
    }

    // Ideal gain of n documents, whose gains may have any order
    double operator()(const double* gains, std::size_t n) const {
        // Usually there are few distinct gains. Then the documents with each gain are counted, and the sum of the
        // discounts of their ranks is a difference of two cumulative sums. If there are more than `most` distinct
        // gains, they are sorted instead.
        constexpr std::size_t most = 32, slots = 4 * most;
        double values[most];
        std::size_t counts[most], distinct = 0;
        std::uint8_t slot[slots] = {};  // hash table: 1 + index of the gain in `values`, or 0 if the slot is empty
        for (std::size_t i = 0; i < n; ++i) {
            const double g = gains[i];
            std::uint64_t bits;
            std::memcpy(&bits, &g, sizeof bits);
            std::size_t at = std::size_t((bits * 0x9E3779B97F4A7C15u) >> 57);
            while (slot[at] && values[slot[at] - 1] != g) at = (at + 1) % slots;
            if (!slot[at]) {
                if (distinct == most) return sorted(gains, n);
                values[distinct] = g;
                counts[distinct] = 0;
                slot[at] = std::uint8_t(++distinct);
            }
            ++counts[slot[at] - 1];
        }
        double total = 0;
        for (std::size_t rank = 0; rank < n;) {
            const std::size_t k = std::max_element(values, values + distinct) - values;
            total += values[k] * (cumulative_[rank + counts[k]] - cumulative_[rank]);
            rank += counts[k];
            values[k] = values[--distinct];
            counts[k] = counts[distinct];
        }
        return total;
    }

  private:
    double sorted(const double* gains, std::size_t n) const {
        std::vector<double> g(gains, gains + n);
        std::sort(g.begin(), g.end(), std::greater<double>());
        double total = 0;
        for (std::size_t k = 0; k < n; ++k) total += g[k] * (cumulative_[k + 1] - cumulative_[k]);
        return total;
    }
    std::vector<double> cumulative_;
};

// The value of a ranking that is built from the top, at each rank with the document that adds most to
// sum_c sum_k d_k a_c[s_k] prod_(i<k) (1 - alpha a_c[s_i]), for the attributes a_c of the documents s_k. Among
// documents that add the same, the one in the first row is taken. To find the best ranking is NP-hard; this one is
// within 1 - 1/e of it, and is what alpha-NDCG is divided by.
//
// Documents with the same attributes add the same. There are few different sets of attributes, and only the first
// document of each that is left is compared with the others.
class GreedyRanking {
  public:
    GreedyRanking(const Query& query, const Term& term)
        : n_(query.n), C_(term.count), a_(query.gains + term.first * query.n), interest_(term.count, 1.0) {
        find_sets();
        rows_.resize(members_.back());
        std::vector<std::size_t> next(members_.begin(), members_.end() - 1);
        for (std::size_t j = 0; j < n_; ++j)
            if (set_of_[j] < next.size()) rows_[next[set_of_[j]]++] = query.rows[j];
        for (std::size_t s = 0; s < example_.size(); ++s) std::make_heap(begin(s), end(s), std::greater<std::size_t>());
    }

    double value(const Term& term) {
        struct Candidate {
            double gain;  // what a document of the set added at the rank `seen`, at least what it adds now
            std::size_t row, set, seen;
            bool operator<(const Candidate& other) const {
                return gain < other.gain || (gain == other.gain && row > other.row);
            }
        };
        const double* d = term.discount(0);
        std::vector<Candidate> heap;
        for (std::size_t s = 0; s < example_.size(); ++s) heap.push_back({gain(s), *begin(s), s, 0});
        std::make_heap(heap.begin(), heap.end());
        double total = 0;
        for (std::size_t k = 0; k < n_ && d[k] != 0 && !heap.empty(); ++k) {
            while (heap.front().seen < k) {
                std::pop_heap(heap.begin(), heap.end());
                heap.back().gain = gain(heap.back().set);
                heap.back().seen = k;
                std::push_heap(heap.begin(), heap.end());
            }
            std::pop_heap(heap.begin(), heap.end());
            Candidate& best = heap.back();
            const std::size_t s = best.set;
            total += d[k] * best.gain;
            for (std::size_t c = 0; c < C_; ++c) interest_[c] *= 1 - term.alpha * a_[c * n_ + example_[s]];
            std::pop_heap(begin(s), end(s), std::greater<std::size_t>());
            --left_[s];
            if (begin(s) == end(s)) {
                heap.pop_back();
            } else {
                best = {gain(s), *begin(s), s, k + 1};
                std::push_heap(heap.begin(), heap.end());
            }
        }
        return total;
    }

  private:
    // Finds the different sets of attributes, without the one that is 0: set_of_[j] is the set of document j,
    // example_[s] a document of set s, and members_[s] .. members_[s + 1] - 1 are the places of its documents in rows_
    void find_sets() {
        constexpr std::size_t none = SIZE_MAX;
        std::size_t slots = 64;
        std::vector<std::size_t> table(slots, none);
        set_of_.assign(n_, none);
        const auto hash = [&](std::size_t j) {
            std::uint64_t h = 0;
            for (std::size_t c = 0; c < C_; ++c) {
                std::uint64_t bits;
                std::memcpy(&bits, a_ + c * n_ + j, sizeof bits);
                h = (h ^ bits) * 0x9E3779B97F4A7C15u;
                h ^= h >> 29;
            }
            return std::size_t(h);
        };
        const auto equal = [&](std::size_t i, std::size_t j) {
            for (std::size_t c = 0; c < C_; ++c)
                if (a_[c * n_ + i] != a_[c * n_ + j]) return false;
            return true;
        };
        for (std::size_t j = 0; j < n_; ++j) {
            double most = 0;
            for (std::size_t c = 0; c < C_; ++c) most = std::max(most, a_[c * n_ + j]);
            if (!(most > 0)) continue;
            std::size_t at = hash(j) % slots;
            while (table[at] != none && !equal(example_[table[at]], j)) at = (at + 1) % slots;
            const bool known = table[at] != none;
            if (!known) {
                table[at] = example_.size();
                example_.push_back(j);
                left_.push_back(0);
            }
            set_of_[j] = table[at];
            ++left_[set_of_[j]];
            if (known || 2 * example_.size() <= slots) continue;
            slots *= 2;
            table.assign(slots, none);
            for (std::size_t s = 0; s < example_.size(); ++s) {
                std::size_t to = hash(example_[s]) % slots;
                while (table[to] != none) to = (to + 1) % slots;
                table[to] = s;
            }
        }
        members_.push_back(0);
        for (std::size_t& count : left_) {
            members_.push_back(members_.back() + count);
            count = members_.back();
        }
    }
    double gain(std::size_t s) const {
        double total = 0;
        for (std::size_t c = 0; c < C_; ++c) total += a_[c * n_ + example_[s]] * interest_[c];
        return total;
    }
    std::size_t* begin(std::size_t s) { return rows_.data() + members_[s]; }
    std::size_t* end(std::size_t s) { return rows_.data() + left_[s]; }

    std::size_t n_, C_;
    const double* a_;               // (C, n) attributes
    std::vector<double> interest_;  // (C,) factor by which the documents above have reduced each attribute
    std::vector<std::size_t> set_of_, example_, members_;
    // rows of the documents of each set that are left, as heaps with the first row on top; left_[s]: end of the heap
    std::vector<std::size_t> rows_, left_;
};

// Norms of the terms of a gain
class Norms {
  public:
    // longest  Number of documents of the longest query
    Norms(const Term* terms, std::size_t n_terms, std::size_t longest) {
        for (std::size_t t = 0; t < n_terms; ++t)
            ideals_.emplace_back(terms[t].D, terms[t].norm == Norm::ideal ? longest : 0);
    }

    // Computes the factor of each of the query's terms. Returns whether one of them is not 0.
    bool operator()(Query& query, Term* terms) const {
        bool any = false;
        for (std::size_t t = 0; t < query.n_terms; ++t) {
            const double norm = of_term(query, terms[t], ideals_[t]);
            const double factor = norm > 0 ? terms[t].weight / norm : 0;
            terms[t].factor = std::isfinite(factor) ? factor : 0;  // not of norms that nearly vanish
            any |= terms[t].factor != 0;
        }
        return any;
    }

  private:
    static double of_term(const Query& query, const Term& term, const Ideal& ideal) {
        const std::size_t n = query.n;
        const double* a = query.gains + term.first * n;
        double total = 0;
        switch (term.norm) {
            case Norm::none:
                return 1;
            case Norm::ideal:
                return ideal(a, n);
            case Norm::count:
                for (std::size_t j = 0; j < n; ++j) total += a[j];
                return total > 0 ? term.c0 + term.c1 * total : 0;
            case Norm::greedy:
                return GreedyRanking(query, term).value(term);
            case Norm::intents:
                for (std::size_t c = 0; c < term.count; ++c)
                    total += std::any_of(a + c * n, a + (c + 1) * n, [](double x) { return x > 0; });
                return term.c0 * total;
        }
        return 1;
    }
    std::vector<Ideal> ideals_;
};

}  // namespace sinkprop
