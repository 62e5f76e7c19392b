#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"

namespace millrace::rig {

// Files that are to be read as if for the first time. Any thread.
class ColdFiles {
 public:
  explicit ColdFiles(std::vector<std::filesystem::path> files) : files_(std::move(files)) {}

  // Asks the kernel to drop what it caches of them. kUnavailable when more than a hundredth stays, as it does
  // while another process maps the files; kIo with the file's name.
  Status Forget() const;
  // Reads all with plain sequential reads; the bytes read. kIo as above.
  Result<uint64_t> ReadAll() const;
  uint64_t bytes() const;

 private:
  std::vector<std::filesystem::path> files_;
};

}  // namespace millrace::rig
