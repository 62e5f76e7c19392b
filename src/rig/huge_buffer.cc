#include "rig/huge_buffer.h"

#include <sys/mman.h>

#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace millrace::rig {

HugeBuffer::HugeBuffer(size_t bytes) : size_(RoundUp(bytes, 2 * kMiB)) {
  void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MILLRACE_CHECK(memory != MAP_FAILED, "no address space for a benchmark's buffer");
  madvise(memory, size_, MADV_HUGEPAGE);  // a wish: small pages only cost time
  data_ = static_cast<std::byte*>(memory);
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace millrace::rig
