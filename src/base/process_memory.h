#pragma once

#include <cstdint>

namespace millrace {

// What the kernel counts for this process now. `anonymous_bytes` is memory of its own (heap, stacks, pools);
// `file_bytes` are pages of mapped files, which weights are, and which the kernel can take back at any time.
struct ProcessMemory {
  uint64_t anonymous_bytes = 0;
  uint64_t file_bytes = 0;
};

// Zeros where /proc is not mounted. Any thread.
ProcessMemory ReadProcessMemory();

}  // namespace millrace
