// A random matrix of whole numbers with the mean 2^bits p and with row and column sums of at most 2^bits is a
// multigraph of documents and ranks. Splitting its edges into two random halves gives two such matrices, each with the
// mean 2^(bits - 1) p. After `bits` splits every sum is at most 1, and the matrix is a ranking.
#include "rankings.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "sampling/splitmix64.hpp"

namespace sinkprop {
namespace {

constexpr int precision = 34;  // bits of the first matrix

// An entry of the matrix. Edges are in the order of their documents.
struct Edge {
    std::uint32_t document, rank;
    std::uint64_t weight;
};

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(splitmix64(seed)) {}
    std::uint64_t bits() { return splitmix64(state_ += 0x9E3779B97F4A7C15u); }
    bool coin() { return bits() >> 63; }
    double uniform() { return double(bits() >> 11) * 0x1p-53; }
    // A number below n, for n up to 2^32; the error of its distribution is below n 2^-64
    std::size_t below(std::size_t n) {
        const std::uint64_t b = bits();
        return std::size_t(((b >> 32) * n + ((b & UINT32_MAX) * n >> 32)) >> 32);
    }

  private:
    std::uint64_t state_;
};

// Random halves of edges. An even weight is halved. Edges of odd weight are paired at each document and at each rank,
// and one edge of a pair gets the greater half. So the sums of a row or column in the two halves differ by at most 1.
class Halves {
  public:
    Halves(std::size_t n_ranks, Random& random) : open_(n_ranks), random_(random) {}

    // Decides for each edge of odd weight which half gets the greater part.
    void choose(const Edge* edges, std::size_t m) {
        pair(edges, m);
        for (std::uint32_t i = 1; i <= n_odd_; ++i) {
            if (side_[i] != undecided) continue;
            side_[i] = random_.coin();
            alternate(i, true);
            alternate(i, false);  // which does nothing after a cycle
        }
    }

    // Writes one half of the edges that choose() was called with, without weights of 0, and returns their number.
    // `half` can be `edges` itself.
    std::size_t take(const Edge* edges, std::size_t m, bool side, Edge* half) const {
        std::size_t taken = 0, i = 1;
        for (std::size_t e = 0; e < m; ++e) {
            Edge edge = edges[e];
            const std::uint64_t odd = edge.weight & 1;
            edge.weight = (edge.weight >> 1) + (odd & std::uint64_t(side_[i] == side));
            i += odd;
            half[taken] = edge;
            taken += edge.weight != 0;
        }
        return taken;
    }

  private:
    // The two edges of odd weight with which such an edge is paired. They are numbered from 1; 0 stands for none.
    struct Mates {
        std::uint32_t by_document, by_rank;
    };
    static constexpr std::uint8_t undecided = 2;

    // There are no branches that depend on weights, because these could not be predicted.
    void pair(const Edge* edges, std::size_t m) {
        if (odd_.size() < m + 2) {
            odd_.resize(m + 2);
            mates_.resize(m + 2);
        }
        n_odd_ = 0;
        for (std::size_t e = 0; e < m; ++e) {
            odd_[n_odd_ + 1] = std::uint32_t(e);
            n_odd_ += edges[e].weight & 1;
        }
        side_.assign(n_odd_ + 2, undecided);
        side_[0] = 0;
        std::fill(open_.begin(), open_.end(), 0);
        std::uint32_t open = 0, document = 0;
        for (std::uint32_t i = 1; i <= n_odd_; ++i) {
            const Edge& edge = edges[odd_[i]];
            open = edge.document == document ? open : 0;
            document = edge.document;
            std::uint32_t& other = open_[edge.rank];
            mates_[i] = {open, other};
            mates_[open].by_document = i;
            mates_[other].by_rank = i;
            open = open ? 0 : i;
            other = other ? 0 : i;
        }
    }

    // Follows pairs from edge i, by document and by rank in turn, and assigns the two sides alternately.
    void alternate(std::uint32_t i, bool by_document) {
        std::uint8_t side = side_[i];
        for (;; by_document = !by_document) {
            i = by_document ? mates_[i].by_document : mates_[i].by_rank;
            if (side_[i] != undecided) return;
            side_[i] = side ^= 1;
        }
    }

    std::size_t n_odd_ = 0;
    std::vector<std::uint32_t> odd_;  // positions of the edges of odd weight
    std::vector<Mates> mates_;
    std::vector<std::uint8_t> side_;
    std::vector<std::uint32_t> open_;  // (n_ranks,) last edge at each rank that is not paired yet
    Random& random_;
};

// The edges of 2^precision p, rounded at random. Along a column, an entry is the number of whole numbers that the sum
// of the entries passes; the sum starts at a random number from 0 to 1. A row sum above 2^precision is cut, and what
// columns lack then is put back where row sums permit it.
std::vector<Edge> fixed_point(const double* p, std::size_t n, std::size_t k, Random& random) {
    const double one = std::ldexp(1.0, precision);
    const auto whole = std::int64_t(one);
    std::vector<Edge> edges;
    std::vector<double> sum(k);
    for (double& start : sum) start = random.uniform();
    std::vector<std::int64_t> row(n, whole), column(k, whole);  // what is left of each sum
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < k; ++j) {
            const double before = std::floor(sum[j]);
            sum[j] += p[i * k + j] * one;
            const std::int64_t weight = std::min({std::int64_t(std::floor(sum[j]) - before), row[i], column[j]});
            row[i] -= weight;
            column[j] -= weight;
            if (weight) edges.push_back({std::uint32_t(i), std::uint32_t(j), std::uint64_t(weight)});
        }
    for (Edge& edge : edges) {
        std::int64_t &r = row[edge.document], &c = column[edge.rank];
        const std::int64_t more = std::min(r, c);
        edge.weight += std::uint64_t(more);
        r -= more;
        c -= more;
    }
    return edges;
}

// Rankings from a matrix with column sums of exactly 2^bits
class Splitting {
  public:
    Splitting(std::size_t k, int bits, Halves& halves, std::int64_t* rankings, std::vector<std::size_t> places)
        : k_(k), room_(std::size_t(bits)), halves_(halves), rankings_(rankings), places_(std::move(places)) {}

    // Writes `size` different ones of the 2^bits parts of the matrix, and overwrites the edges.
    void draw(Edge* edges, std::size_t m, int bits, std::size_t size) {
        while (bits > 0) {
            --bits;
            halves_.choose(edges, m);
            if (size > 1) {
                std::vector<Edge>& room = room_[std::size_t(bits)];
                if (room.size() < m) room.resize(m);
                const std::size_t taken = halves_.take(edges, m, false, room.data());
                m = halves_.take(edges, m, true, edges);
                draw(room.data(), taken, bits, size / 2);
            } else {
                m = halves_.take(edges, m, true, edges);
            }
            size -= size / 2;
        }
        std::int64_t* ranking = rankings_ + places_[written_++] * k_;
        for (std::size_t e = 0; e < m; ++e) ranking[edges[e].rank] = edges[e].document;
    }

  private:
    std::size_t k_, written_ = 0;
    std::vector<std::vector<Edge>> room_;  // by number of bits
    Halves& halves_;
    std::int64_t* rankings_;
    std::vector<std::size_t> places_;  // the rankings in random order
};

std::vector<std::size_t> shuffled(std::size_t n, Random& random) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t(0));
    for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    return order;
}

}  // namespace

void draw_rankings(const double* p, std::size_t n, std::size_t k, std::size_t size, std::uint64_t seed,
                   std::int64_t* rankings) {
    int bits = 0;
    while (std::size_t(1) << bits < size) ++bits;
    Random random(seed);
    Halves halves(k, random);
    std::vector<Edge> edges;
    std::uint64_t total;
    do {
        edges = fixed_point(p, n, k, random);
        std::size_t m = edges.size();
        for (int b = precision; b > bits; --b) {
            halves.choose(edges.data(), m);
            m = halves.take(edges.data(), m, true, edges.data());
        }
        edges.resize(m);
        total = 0;
        for (const Edge& edge : edges) total += edge.weight;
        // Where fixed_point() could not fill a column, a half can lack a document; this is very unlikely.
    } while (total < std::uint64_t(k) << bits);
    Splitting(k, bits, halves, rankings, shuffled(size, random)).draw(edges.data(), edges.size(), bits, size);
}

}  // namespace sinkprop
