#include "rig/cold_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/units.h"

namespace millrace::rig {
namespace {

namespace fs = std::filesystem;

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Error IoError(const fs::path& path) {
  return Error(ErrorCode::kIo, fmt::format("{}: {}", path.string(), std::strerror(errno)));
}

// Pages of the file in the kernel's cache.
Result<uint64_t> CachedPages(const fs::path& path, const OpenFile& file, uint64_t bytes) {
  if (bytes == 0) return uint64_t{0};
  void* map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (map == MAP_FAILED) return IoError(path);
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> cached((bytes + page - 1) / page);
  const int failed = mincore(map, bytes, cached.data());
  munmap(map, bytes);
  if (failed != 0) return IoError(path);
  return static_cast<uint64_t>(std::ranges::count_if(cached, [](unsigned char c) { return (c & 1) != 0; }));
}

}  // namespace

uint64_t ColdFiles::bytes() const {
  uint64_t sum = 0;
  for (const fs::path& path : files_) {
    std::error_code none;
    const uintmax_t size = fs::file_size(path, none);
    if (!none) sum += size;
  }
  return sum;
}

Status ColdFiles::Forget() const {
  uint64_t cached = 0;
  for (const fs::path& path : files_) {
    const OpenFile file(path);
    if (file.fd() < 0) return IoError(path);
    fdatasync(file.fd());  // pages that are not written yet would stay
    posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
    std::error_code none;
    MILLRACE_ASSIGN_OR_RETURN(const uint64_t pages, CachedPages(path, file, fs::file_size(path, none)));
    cached += pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  if (cached <= bytes() / 100) return {};
  return Error(ErrorCode::kUnavailable,
               fmt::format("{} of {} stay in the kernel's cache; end the processes that map the files",
                           HumanBytes(cached), HumanBytes(bytes())));
}

Result<uint64_t> ColdFiles::ReadAll() const {
  std::vector<std::byte> chunk(4 * kMiB);
  uint64_t bytes = 0;
  for (const fs::path& path : files_) {
    const OpenFile file(path);
    if (file.fd() < 0) return IoError(path);
    posix_fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);  // doubles what is read ahead
    ssize_t n = 0;
    while ((n = read(file.fd(), chunk.data(), chunk.size())) > 0) bytes += static_cast<uint64_t>(n);
    if (n < 0) return IoError(path);
  }
  return bytes;
}

}  // namespace millrace::rig
