#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace millrace::kernels {

// Starts on a cache line, as the forward pass's arrays do: kernels read those fastest.
template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  CacheLineAllocator() = default;
  template <typename U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT: implicit as the standard wants it

  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  friend bool operator==(CacheLineAllocator, CacheLineAllocator) { return true; }
};

template <typename T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace millrace::kernels
