// What every fuzz target uses: the bytes of an input as values, and a check that ends the program.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

// Ends the program unless `fine`, so that the input is kept as a crash.
inline void check(bool fine, const char* what) {
    if (fine) return;
    std::fprintf(stderr, "fuzz: %s\n", what);
    std::abort();
}

// Values from the bytes of an input, in order; 0 once the bytes have run out
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

    bool empty() const { return size_ == 0; }

    template <class T>
    T take() {
        T value{};
        const std::size_t n = size_ < sizeof value ? size_ : sizeof value;
        if (n) std::memcpy(&value, data_, n);
        data_ += n;
        size_ -= n;
        return value;
    }

    std::uint8_t byte() { return take<std::uint8_t>(); }
    std::size_t below(std::size_t n) { return n > 256 ? take<std::uint16_t>() % n : byte() % n; }

    // A number that is often small and whole, sometimes huge, and always finite
    double number() {
        switch (below(8)) {
            case 0: {
                const double any = take<double>();
                return std::isfinite(any) ? any : 0;
            }
            case 1:
                return std::ldexp(double(take<std::int16_t>()), int(take<std::int8_t>()));
            case 2:
            case 3:
                return double(take<std::int16_t>()) / 256;
            default:
                return double(take<std::int8_t>());
        }
    }

    // The bytes that are left, which end where the input ends
    const char* rest() const { return reinterpret_cast<const char*>(data_); }
    std::size_t left() const { return size_; }

  private:
    const std::uint8_t* data_;
    std::size_t size_;
};

// Whether two arrays have the same bits, so that NaN is equal to itself
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace fuzz
