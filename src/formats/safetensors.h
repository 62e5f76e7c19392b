#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace::formats {

// A safetensors file (docs/formats/safetensors.md): the header length as 8 little-endian bytes, a JSON header
// padded with blanks, then the payload. This page is the reader and writer of the released checkpoint's
// shards.

// Limits of this reader, well above anything released; they bound what a hostile header can cost.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxTensorNameBytes = 1024;
inline constexpr size_t kMaxTensorDims = 16;

enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kF8E4M3, kF8E8M0, kI64, kI32, kI16, kI8, kU8, kBool };

// The format's own spelling: "F32", "F8_E4M3", ...
std::string_view DTypeName(DType dtype);
// Error: lists the spellings that are known.
Result<DType> ParseDType(std::string_view name);
// Bytes of one element.
uint64_t DTypeBytes(DType dtype);

// One tensor of a file's header. [begin, end) is relative to the start of the payload.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // row-major; empty is a scalar
  uint64_t begin = 0;
  uint64_t end = 0;
};

using Metadata = std::vector<std::pair<std::string, std::string>>;

// "[1280, 5120]"
std::string ShapeString(std::span<const int64_t> shape);
// Bytes of a tensor's elements. kInvalidArgument for a negative dimension or a product beyond int64.
Result<uint64_t> TensorBytes(DType dtype, std::span<const int64_t> shape);

// A validated header: every tensor's byte range lies inside the payload, ranges are in ascending order
// without gap or overlap and cover the payload, dtype x shape equals the byte count, names are unique.
struct SafetensorsHeader {
  uint64_t payload_offset = 0;      // in the file
  std::vector<TensorInfo> tensors;  // by ascending begin
  Metadata metadata;                // "__metadata__", in the order of the file
};

// `prefix` is at least the first 8 + header length bytes of a file of `file_bytes` bytes (or less, when the
// file is shorter: that is an error). Never reads outside `prefix`; any input gives a header or an error.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> prefix, uint64_t file_bytes);

// A memory-mapped, read-only safetensors file. Movable; spans and TensorInfo pointers live as long as the
// object (or what it moved into). Any thread may read. The file must not be truncated while it is open: the
// kernel answers reads of the lost part with SIGBUS.
class SafetensorsFile {
 public:
  // Errors carry the path: kNotFound, kIo, or kCorrupt from ParseSafetensorsHeader.
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
// tensor's bytes in that order through Append, then Finish. The bytes go to "<path>.partial"; only Finish
// gives the file its name (replacing what had it), so a reader never meets half a file. One thread.
class SafetensorsWriter {
 public:
  // kInvalidArgument if a reader would refuse the header (repeated name, negative dimension, ...); kIo.
  static Result<SafetensorsWriter> Create(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                                          const Metadata& metadata = {});
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();  // without Finish the partial file is removed

  // The next bytes of the payload; may be any part of a tensor. kInvalidArgument past the announced payload;
  // kIo if the system refuses (disk full, ...). After an error only destruction is left.
  Status Append(std::span<const std::byte> bytes);
  // Checks that exactly the announced payload was written, closes and renames. Not synced to the disk: after
  // a power cut the file may be short, which a reader notices.
  Status Finish();

 private:
  struct Impl;
  explicit SafetensorsWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::formats
