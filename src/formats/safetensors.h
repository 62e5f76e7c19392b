#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace::formats {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kF8E4M3, kF8E8M0, kI64, kI32, kI16, kI8, kU8, kBool };

// The format's own spelling: "F32", "F8_E4M3", ...
std::string_view DTypeName(DType dtype);
Result<DType> ParseDType(std::string_view name);
uint64_t DTypeBytes(DType dtype);

// One tensor of a file's header. [begin, end) is relative to the start of the payload.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // row-major; empty is a scalar
  uint64_t begin = 0;
  uint64_t end = 0;
};

// "[1280, 5120]"
std::string ShapeString(std::span<const int64_t> shape);

// A validated header: every tensor's byte range lies inside the payload, ranges are in ascending order
// without gap or overlap and cover the payload, dtype x shape equals the byte count, names are unique.
struct SafetensorsHeader {
  uint64_t payload_offset = 0;      // in the file
  std::vector<TensorInfo> tensors;  // by ascending begin
  std::vector<std::pair<std::string, std::string>> metadata;
};

// `prefix` is at least the first 8 + header length bytes of a file of `file_bytes` bytes (or less, when the
// file is shorter: that is an error). Never reads outside `prefix`; any input gives a header or an error.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> prefix, uint64_t file_bytes);

// A memory-mapped, read-only safetensors file. Movable; spans live as long as the object (or what it moved
// into). Any thread may read.
class SafetensorsFile {
 public:
  // Errors carry the path.
  static Result<SafetensorsFile> Open(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::filesystem::path& path() const;
  std::span<const TensorInfo> tensors() const;
  const SafetensorsHeader& header() const;
  // nullptr when absent.
  const TensorInfo* Find(std::string_view name) const;
  // The tensor's bytes in the map; `tensor` is one of tensors().
  std::span<const std::byte> Bytes(const TensorInfo& tensor) const;

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Writes one file front to back: the header from `tensors` (begin/end are computed, order is kept), then each
// tensor's bytes in that order through Append, then Finish.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> Create(const std::filesystem::path& path, std::vector<TensorInfo> tensors);
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();  // without Finish the partial file is removed

  // The next bytes of the payload; may be any part of a tensor.
  Status Append(std::span<const std::byte> bytes);
  // Checks that exactly the announced payload was written, and closes.
  Status Finish();

 private:
  struct Impl;
  explicit SafetensorsWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::formats
