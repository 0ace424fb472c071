// Conversions of decimal text: read_number against the C library's strtod, and write_number against read_number.
#include "letor/decimal.hpp"

#include "simple_letor.hpp"
#include "target.hpp"

namespace {

using fuzz::check;

bool same_bits(double a, double b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

// Reads a text that is followed by one byte that ends a number and eight more, in memory of exactly this size.
const char* read(const std::string& text, std::vector<char>& copy, double& value) {
    copy.assign(text.begin(), text.end());
    copy.insert(copy.end(), 9, ' ');
    return sinkprop::read_number(copy.data(), value);
}

void read_as_strtod(const std::string& text) {
    std::vector<char> copy;
    double value = -7;
    const char* const end = read(text, copy, value);
    const bool whole = end == copy.data() + text.size();
    check(whole == fuzz::is_number(text), "read_number and the grammar disagree whether the text is a number");
    if (whole) check(same_bits(value, std::strtod(text.c_str(), nullptr)), "another number than strtod");
}

template <class T>
void write_and_read(T x) {
    if (!std::isfinite(x)) return;
    char out[32];
    const std::string text(out, std::size_t(sinkprop::write_number(x, out) - out));
    std::vector<char> copy;
    double value = -7;
    check(read(text, copy, value) == copy.data() + text.size(), "a written number is not read back whole");
    const T back = T(value);
    check(std::memcmp(&back, &x, sizeof x) == 0, "a written number is read back as another");
    char library[64];
    std::snprintf(library, sizeof library, "%.*e", sizeof(T) == 8 ? 16 : 8, double(x));
    if (sizeof(T) == 8) check(text.size() <= std::strlen(library) + 1, "a written number is longer than need be");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    if (input.byte() % 4 == 0) {
        write_and_read(input.take<double>());
        write_and_read(input.take<float>());
        const int exponent = input.take<std::int16_t>() % 1100;
        write_and_read(std::ldexp(double(input.take<std::uint16_t>()), exponent));
        return 0;
    }
    std::string text(input.rest(), input.left());
    // Other bytes only end a number; most inputs shall be numbers.
    for (char& c : text) c = "0123456789+-.eE9"[static_cast<unsigned char>(c) % 16];
    read_as_strtod(text);
    return 0;
}
