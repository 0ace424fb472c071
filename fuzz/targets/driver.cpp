// A program for a fuzz target where libFuzzer is missing: it mutates seeds at random and calls the target.
//
//     fuzz_letor -runs=100000 -seed=1 FOLDER_OF_SEEDS
//
// A crash writes its input to the file crash-SEED-RUN, and `fuzz_letor crash-SEED-RUN` runs that input alone.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>

#include "target.hpp"

// A report of a sanitizer ends in SIGABRT, whose handler keeps the input.
extern "C" const char* __asan_default_options() {
    return "abort_on_error=1:detect_leaks=0:quarantine_size_mb=1";
}
extern "C" const char* __ubsan_default_options() {
    return "abort_on_error=1:print_stacktrace=1";
}

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes current;
std::string crash_name;

void keep(int) {
    if (std::FILE* file = std::fopen(crash_name.c_str(), "wb")) {
        std::fwrite(current.data(), 1, current.size(), file);
        std::fclose(file);
        std::fprintf(stderr, "fuzz: the input is in %s\n", crash_name.c_str());
    }
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
}

Bytes content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(file), {});
}

class Mutator {
  public:
    Mutator(std::vector<Bytes> seeds, std::uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {
        if (seeds_.empty()) seeds_.emplace_back();
    }

    Bytes next() {
        Bytes bytes = seeds_[below(seeds_.size())];
        for (std::size_t n = below(6); n > 0; --n) mutate(bytes);
        if (bytes.size() > 512) bytes.resize(512);
        // inputs drift away from the seeds, but a quarter of the pool are always these
        if (pool_ < 3 * first_ + 64) {
            seeds_.push_back(bytes);
            ++pool_;
        } else if (below(4) == 0) {
            seeds_[first_ + below(pool_)] = bytes;
        }
        return bytes;
    }

  private:
    std::size_t below(std::size_t n) { return n ? std::size_t(random_() % n) : 0; }

    void mutate(Bytes& bytes) {
        static const char* const words[] = {
            "qid:", "NULL", "nan", "docid", "#",    "\r\n", ":", " ",           "e-308", "9223372036854775807",
            "1:",   "-",    ".",   "\n",    "e400", "0",    "1", "\xEF\xBB\xBF"};
        const std::size_t at = below(bytes.size() + 1), length = 1 + below(8);
        const auto place = bytes.begin() + std::ptrdiff_t(at);
        const std::size_t some = std::min(length, bytes.size() - at);
        switch (below(7)) {
            case 0:
                if (at < bytes.size()) bytes[at] ^= std::uint8_t(1u << below(8));
                break;
            case 1:
                if (at < bytes.size()) bytes[at] = std::uint8_t(random_());
                break;
            case 2:
                for (std::size_t i = 0; i < length; ++i)
                    bytes.insert(bytes.begin() + std::ptrdiff_t(at), std::uint8_t(random_()));
                break;
            case 3:
                bytes.erase(place, place + std::ptrdiff_t(some));
                break;
            case 4: {
                const Bytes copy(place, place + std::ptrdiff_t(some));
                bytes.insert(bytes.begin() + std::ptrdiff_t(below(bytes.size() + 1)), copy.begin(), copy.end());
                break;
            }
            case 5: {
                const std::string word = words[below(sizeof words / sizeof *words)];
                bytes.insert(place, word.begin(), word.end());
                break;
            }
            default: {
                const Bytes& other = seeds_[below(seeds_.size())];
                const std::size_t from = below(other.size() + 1);
                bytes.resize(at);
                bytes.insert(bytes.end(), other.begin() + std::ptrdiff_t(from), other.end());
            }
        }
    }

    std::vector<Bytes> seeds_;
    std::mt19937_64 random_;
    std::size_t first_ = seeds_.size(), pool_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    std::uint64_t runs = 100000, seed = 1;
    std::vector<Bytes> seeds;
    bool single = false;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        std::error_code none;
        if (argument.compare(0, 6, "-runs=") == 0) {
            runs = std::stoull(argument.substr(6));
        } else if (argument.compare(0, 6, "-seed=") == 0) {
            seed = std::stoull(argument.substr(6));
        } else if (std::filesystem::is_directory(argument, none)) {
            for (const auto& entry : std::filesystem::directory_iterator(argument))
                seeds.push_back(content(entry.path()));
        } else if (std::filesystem::is_regular_file(argument, none)) {
            current = content(argument);
            LLVMFuzzerTestOneInput(current.data(), current.size());
            single = true;
        } else {
            std::fprintf(stderr, "fuzz: %s is no option, folder or file\n", argv[i]);
            return 2;
        }
    }
    if (single) return 0;
    std::signal(SIGABRT, keep);
    Mutator mutator(std::move(seeds), seed);
    for (std::uint64_t run = 0; run < runs; ++run) {
        current = mutator.next();
        crash_name = "crash-" + std::to_string(seed) + "-" + std::to_string(run);
        // an exact copy, so that a read past its end is seen
        const Bytes exact(current.begin(), current.end());
        LLVMFuzzerTestOneInput(exact.data(), exact.size());
    }
    std::fprintf(stderr, "Done %llu runs\n", static_cast<unsigned long long>(runs));
    return 0;
}
