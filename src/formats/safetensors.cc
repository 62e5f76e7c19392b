#include "formats/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace millrace::formats {
namespace {

Error SystemError(std::string_view what, const std::filesystem::path& path) {
  const int code = errno;
  return Error(code == ENOENT || code == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
               fmt::format("{}: cannot {}: {}", path.string(), what, std::generic_category().message(code)));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// A private read-only map of a whole file; empty for an empty one.
class FileMap {
 public:
  FileMap() = default;
  FileMap(void* data, size_t size) : data_(data), size_(size) {}
  FileMap(FileMap&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FileMap& operator=(FileMap&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~FileMap() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

Result<FileMap> MapFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe must not wait for its writer. Regular files do not know it.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return SystemError("open", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return SystemError("read the size of", path);
  if (!S_ISREG(status.st_mode)) {
    return Error(ErrorCode::kIo, fmt::format("{}: not a regular file", path.string()));
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return FileMap();
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return SystemError("map", path);
  return FileMap(data, size);
}

}  // namespace

struct SafetensorsFile::Impl {
  std::filesystem::path path;
  FileMap map;
  SafetensorsHeader header;
  std::unordered_map<std::string_view, const TensorInfo*> by_name;  // views into header
};

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

Result<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  MILLRACE_ASSIGN_OR_RETURN(impl->map, MapFile(path));
  const std::span<const std::byte> bytes = impl->map.bytes();
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(bytes, bytes.size());
  if (!header.ok()) return header.error().In(path.string());
  impl->header = std::move(header).value();
  impl->by_name.reserve(impl->header.tensors.size());
  for (const TensorInfo& tensor : impl->header.tensors) impl->by_name.emplace(tensor.name, &tensor);
  return SafetensorsFile(std::move(impl));
}

const std::filesystem::path& SafetensorsFile::path() const {
  return impl_->path;
}
std::span<const TensorInfo> SafetensorsFile::tensors() const {
  return impl_->header.tensors;
}
const SafetensorsHeader& SafetensorsFile::header() const {
  return impl_->header;
}

const TensorInfo* SafetensorsFile::Find(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : found->second;
}

std::span<const std::byte> SafetensorsFile::Bytes(const TensorInfo& tensor) const {
  const std::span<const std::byte> payload = impl_->map.bytes().subspan(impl_->header.payload_offset);
  MILLRACE_CHECK(tensor.begin <= tensor.end && tensor.end <= payload.size(), "a tensor of another file");
  return payload.subspan(tensor.begin, tensor.end - tensor.begin);
}

}  // namespace millrace::formats
