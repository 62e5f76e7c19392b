#include "app/standard_input.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>

namespace millrace::app {

Result<std::string> ReadStandardInput() {
  std::string text;
  std::array<char, 1 << 16> block;
  while (const size_t n = std::fread(block.data(), 1, block.size(), stdin)) {
    text.append(block.data(), n);
    if (text.size() > kMaxInputBytes) {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("the input is longer than {} bytes; split it into several files", kMaxInputBytes));
    }
  }
  if (std::ferror(stdin)) return Error(ErrorCode::kIo, "cannot read standard input");
  return text;
}

}  // namespace millrace::app
