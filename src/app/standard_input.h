#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace millrace::app {

inline constexpr size_t kMaxInputBytes = size_t{1} << 30;

// All of standard input; kInvalidArgument when it is longer than kMaxInputBytes.
Result<std::string> ReadStandardInput();

}  // namespace millrace::app
