#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

// Everything that a program allocates with new is counted, whoever asks for it, and refused above a limit.
// Include in one file of a program: it replaces the program's operators.

namespace millrace::testing {

struct CountedHeap {
  std::atomic<int64_t> live_bytes{0};  // as the allocator rounds them
  std::atomic<int64_t> peak_bytes{0};
  std::atomic<int64_t> limit_bytes{std::numeric_limits<int64_t>::max()};
  std::atomic<int64_t> refusals{0};

  void ResetPeak() { peak_bytes = live_bytes.load(); }
};
inline CountedHeap counted_heap;

inline void* CountedAllocate(size_t bytes, size_t alignment) {
  CountedHeap& heap = counted_heap;
  if (heap.live_bytes + static_cast<int64_t>(bytes) > heap.limit_bytes) {
    ++heap.refusals;
    throw std::bad_alloc();
  }
  void* const block = alignment <= alignof(std::max_align_t)
                          ? std::malloc(bytes)
                          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (block == nullptr) throw std::bad_alloc();
  const auto taken = static_cast<int64_t>(malloc_usable_size(block));
  const int64_t live = heap.live_bytes += taken;
  int64_t peak = heap.peak_bytes.load();
  while (live > peak && !heap.peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return block;
}

inline void CountedFree(void* block) {
  if (block == nullptr) return;
  counted_heap.live_bytes -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace millrace::testing

void* operator new(size_t bytes) {
  return millrace::testing::CountedAllocate(bytes, 1);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return millrace::testing::CountedAllocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  millrace::testing::CountedFree(memory);
}
void operator delete(void* memory, size_t) noexcept {
  millrace::testing::CountedFree(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  millrace::testing::CountedFree(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  millrace::testing::CountedFree(memory);
}
