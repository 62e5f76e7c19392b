#pragma once

#include <cstdint>

namespace millrace::kernels {

// The first float at or after `p` that starts a cache line: wide loads and stores that straddle two cost
// twice.
inline float* AlignToCacheLine(float* p) {
  constexpr uintptr_t kLine = 64;
  const auto address = reinterpret_cast<uintptr_t>(p);
  return p + ((address + kLine - 1) / kLine * kLine - address) / sizeof(float);
}

}  // namespace millrace::kernels
