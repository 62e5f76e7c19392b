#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace millrace::formats {

// The whole of a regular file that has at most `max_bytes` bytes. Errors carry the path: kNotFound, kIo, or
// kCorrupt when it is larger. Works for files whose size is only known by reading (under /proc).
Result<std::string> ReadTextFile(const std::filesystem::path& path, size_t max_bytes);

}  // namespace millrace::formats
