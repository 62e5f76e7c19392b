#include "formats/text_file.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

namespace millrace::formats {

Result<std::string> ReadTextFile(const std::filesystem::path& path, size_t max_bytes) {
  std::error_code status;
  if (!std::filesystem::exists(path, status)) {
    return Error(ErrorCode::kNotFound, fmt::format("{} does not exist", path.string()));
  }
  // Before opening: a named pipe would wait for its writer.
  if (!std::filesystem::is_regular_file(path, status)) {
    return Error(ErrorCode::kIo, fmt::format("{} is not a regular file", path.string()));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char block[1 << 16];
  while (file) {
    file.read(block, sizeof(block));
    text.append(block, static_cast<size_t>(file.gcount()));
    if (text.size() > max_bytes) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("{} has more than the {} bytes that are accepted", path.string(), max_bytes));
    }
  }
  if (!file.eof()) {
    return Error(ErrorCode::kIo,
                 fmt::format("cannot read {}: {}", path.string(), std::generic_category().message(errno)));
  }
  return text;
}

}  // namespace millrace::formats
