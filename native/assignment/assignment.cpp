// Shortest augmenting paths with potentials u of the rows and v of the columns (Jonker and Volgenant 1987; Crouse
// 2016). Before and after each step, cost[i][j] - u[i] - v[j] >= 0, with equality for assigned pairs.
#include "assignment/assignment.hpp"

#include <limits>
#include <utility>
#include <vector>

namespace sinkprop {

namespace {

constexpr std::int64_t none = -1;

class Assignment {
  public:
    Assignment(const double* cost, std::size_t n, std::int64_t* column)
        : cost_(cost), n_(n), column_(column), row_(n, none), u_(n), v_(n), length_(n), before_(n) {
        for (std::size_t i = 0; i < n; ++i) column_[i] = none;
    }

    // Assigns a row; returns false if there is no way to.
    bool add(std::size_t row) {
        const std::size_t end = search(row);
        if (end == n_) return false;
        move_potentials(row);
        // the pairs along the path change places: each row takes the column by which it was left
        for (auto j = std::int64_t(end);;) {
            const std::size_t i = before_[j];
            row_[j] = std::int64_t(i);
            std::swap(column_[i], j);
            if (i == row) return true;
        }
    }

  private:
    // Dijkstra's algorithm from a row to the nearest column without a row; returns this column, or n.
    std::size_t search(std::size_t row) {
        open_.resize(n_);
        for (std::size_t k = 0; k < n_; ++k) open_[k] = n_ - 1 - k;
        length_.assign(n_, std::numeric_limits<double>::infinity());
        closed_.clear();
        rows_.clear();
        shortest_ = 0;
        for (std::size_t i = row;;) {
            rows_.push_back(i);
            std::size_t nearest = 0;
            double least = std::numeric_limits<double>::infinity();
            for (std::size_t k = 0; k < open_.size(); ++k) {
                const std::size_t j = open_[k];
                const double length = shortest_ + cost_[i * n_ + j] - u_[i] - v_[j];
                if (length < length_[j]) length_[j] = length, before_[j] = i;
                // of equally near columns, one without a row ends the search
                if (length_[j] < least || (length_[j] == least && row_[j] == none)) least = length_[j], nearest = k;
            }
            if (least == std::numeric_limits<double>::infinity()) return n_;
            const std::size_t j = open_[nearest];
            shortest_ = least;
            open_[nearest] = open_.back();
            open_.pop_back();
            closed_.push_back(j);
            if (row_[j] == none) return j;
            i = std::size_t(row_[j]);
        }
    }

    void move_potentials(std::size_t row) {
        for (const std::size_t i : rows_) u_[i] += i == row ? shortest_ : shortest_ - length_[column_[i]];
        for (const std::size_t j : closed_) v_[j] -= shortest_ - length_[j];
    }

    const double* cost_;
    std::size_t n_;
    std::int64_t* column_;
    std::vector<std::int64_t> row_;       // row of each column, or none
    std::vector<double> u_, v_, length_;  // potentials, and lengths of the shortest paths to the columns
    std::vector<std::size_t> before_;     // row from which the shortest path enters each column
    std::vector<std::size_t> open_, closed_, rows_;
    double shortest_ = 0;
};

}  // namespace

bool assign(const double* cost, std::size_t n, std::int64_t* column) {
    Assignment assignment(cost, n, column);
    for (std::size_t row = 0; row < n; ++row)
        if (!assignment.add(row)) return false;
    return true;
}

}  // namespace sinkprop
