#pragma once

#include <cstddef>
#include <span>

namespace millrace::rig {

// Anonymous memory for which the kernel was asked for huge pages; zeros at first. Ends the process when the
// machine has no such memory: a benchmark has nothing else to do.
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace::rig
