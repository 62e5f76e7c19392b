#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace millrace::formats {
namespace {

constexpr uint64_t kHeaderAlignment = 8;

// The length field and the padded JSON.
std::string HeaderText(const std::vector<TensorInfo>& tensors, const Metadata& metadata) {
  std::string json = "{";
  const auto separate = [&json] {
    if (json.size() > 1) json += ',';
  };
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      json += fmt::format("{}{}:{}", json.back() == '{' ? "" : ",", JsonString(key), JsonString(value));
    }
    json += '}';
  }
  for (const TensorInfo& tensor : tensors) {
    separate();
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        JsonString(tensor.name), DTypeName(tensor.dtype), fmt::join(tensor.shape, ","),
                        tensor.begin, tensor.end);
  }
  json += '}';
  json.resize(RoundUp(json.size(), kHeaderAlignment), ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(json.size() >> 8 * i & 0xFF);
  return length + json;
}

// Sets begin and end in order; returns the payload's size.
Result<uint64_t> Place(std::vector<TensorInfo>* tensors) {
  int64_t at = 0;
  for (TensorInfo& tensor : *tensors) {
    const Result<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!bytes.ok()) return bytes.error().In("tensor " + Quoted(tensor.name));
    tensor.begin = static_cast<uint64_t>(at);
    if (__builtin_add_overflow(at, static_cast<int64_t>(*bytes), &at)) {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("tensor {}: the payload has more bytes than 63 bits can count", Quoted(tensor.name)));
    }
    tensor.end = static_cast<uint64_t>(at);
  }
  return static_cast<uint64_t>(at);
}

}  // namespace

struct SafetensorsWriter::Impl {
  std::filesystem::path path;
  std::filesystem::path partial_path;
  int fd = -1;
  uint64_t payload_bytes = 0;
  uint64_t written_bytes = 0;  // of the payload

  ~Impl() {
    if (fd < 0) return;
    ::close(fd);
    ::unlink(partial_path.c_str());
  }

  Error SystemError(std::string_view what) const {
    return Error(ErrorCode::kIo, fmt::format("{}: cannot {}: {}", partial_path.string(), what,
                                             std::generic_category().message(errno)));
  }

  Status Write(const char* data, size_t size) {
    while (size > 0) {
      const ssize_t n = ::write(fd, data, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemError("write");
      data += n;
      size -= static_cast<size_t>(n);
    }
    return {};
  }
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::filesystem::path& path,
                                                    std::vector<TensorInfo> tensors,
                                                    const Metadata& metadata) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->partial_path = path.string() + ".partial";
  const Result<uint64_t> payload_bytes = Place(&tensors);
  if (!payload_bytes.ok()) return payload_bytes.error().In(path.string());
  impl->payload_bytes = *payload_bytes;
  const std::string header = HeaderText(tensors, metadata);
  // What is written can be read: the reader judges the header before a byte reaches the disk.
  const auto readable =
      ParseSafetensorsHeader(std::as_bytes(std::span(header)), header.size() + *payload_bytes);
  if (!readable.ok()) {
    return Error(ErrorCode::kInvalidArgument, readable.error().message()).In(path.string());
  }
  impl->fd = ::open(impl->partial_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (impl->fd < 0) return impl->SystemError("create");
  MILLRACE_RETURN_IF_ERROR(impl->Write(header.data(), header.size()));
  return SafetensorsWriter(std::move(impl));
}

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > impl_->payload_bytes - impl_->written_bytes) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: {} bytes appended to {}, but the announced payload has only {}",
                             impl_->path.string(), bytes.size(), impl_->written_bytes, impl_->payload_bytes));
  }
  MILLRACE_RETURN_IF_ERROR(impl_->Write(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  impl_->written_bytes += bytes.size();
  return {};
}

Status SafetensorsWriter::Finish() {
  if (impl_->written_bytes != impl_->payload_bytes) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: {} payload bytes written, {} were announced", impl_->path.string(),
                             impl_->written_bytes, impl_->payload_bytes));
  }
  // From here on the destructor has nothing to close; every failure removes the partial file itself.
  const int fd = std::exchange(impl_->fd, -1);
  if (::close(fd) == 0 && ::rename(impl_->partial_path.c_str(), impl_->path.c_str()) == 0) return {};
  const Error error = impl_->SystemError("finish the file");
  ::unlink(impl_->partial_path.c_str());
  return error;
}

}  // namespace millrace::formats
