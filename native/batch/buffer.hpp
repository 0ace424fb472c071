// Scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace sinkprop {

// Scratch memory, aligned to 64 bytes. It grows on demand, and growing discards its contents. Large buffers ask for
// huge pages, which cause far fewer page faults.
class Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }

    void* bytes(std::size_t size) {
        if (size > size_) {
            std::free(data_);
            data_ = nullptr;
            size_ = 0;
            const std::size_t alignment = size < large ? 64 : std::size_t(2) << 20;
            if (size > SIZE_MAX - alignment) throw std::bad_alloc();
            size = (size + alignment - 1) / alignment * alignment;
            data_ = std::aligned_alloc(alignment, size);
            if (!data_) throw std::bad_alloc();
            size_ = size;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
            if (size >= large) madvise(data_, size, MADV_HUGEPAGE);
#endif
        }
        return data_;
    }
    double* doubles(std::size_t n) {
        if (n > SIZE_MAX / sizeof(double)) throw std::bad_alloc();
        return static_cast<double*>(bytes(n * sizeof(double)));
    }
    // Frees the memory if there are more than `most` bytes
    void shrink(std::size_t most) {
        if (size_ > most) {
            std::free(data_);
            data_ = nullptr;
            size_ = 0;
        }
    }

  private:
    static constexpr std::size_t large = std::size_t(4) << 20;
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace sinkprop
