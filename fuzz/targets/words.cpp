// spread_words: the words of a text at given places, one row of code points each.
#include "letor/letor.hpp"
#include "target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::size_t n = input.below(9);
    const int threads = 1 + int(input.byte() % 16 == 0);
    std::vector<std::uint16_t> wanted(2 * n);
    for (std::uint16_t& place : wanted) place = input.take<std::uint16_t>();
    const sinkprop::Text text = {input.rest(), input.left()};
    std::vector<std::int64_t> places(2 * n);
    std::size_t width = 1;
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t begin = wanted[2 * i] % (text.size + 1);
        const std::size_t length = wanted[2 * i + 1] % (text.size - begin + 1);
        places[2 * i] = std::int64_t(begin);
        places[2 * i + 1] = std::int64_t(begin + length);
        width = std::max(width, length);
    }
    std::vector<std::uint32_t> out(n * width, 7);
    const bool ascii = sinkprop::spread_words(text, places.data(), n, width, out.data(), threads);
    bool expected = true;
    for (std::size_t i = 0; i < n; ++i)
        for (std::int64_t k = places[2 * i]; k < places[2 * i + 1]; ++k)
            expected &= static_cast<unsigned char>(text.data[k]) < 128;
    fuzz::check(ascii == expected, "spread_words is wrong about what is ASCII");
    if (!ascii) return 0;
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < width; ++k) {
            const std::int64_t at = places[2 * i] + std::int64_t(k);
            const unsigned point = at < places[2 * i + 1] ? static_cast<unsigned char>(text.data[at]) : 0u;
            fuzz::check(out[i * width + k] == point, "spread_words wrote another word");
        }
    return 0;
}
