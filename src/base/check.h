#pragma once

#include <string_view>

namespace millrace {

// Prints where and what to stderr and aborts. For our own mistakes only: no input from outside may reach one.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, std::string_view why);

}  // namespace millrace

// Aborts when `condition` is false; `why` says what is then broken in our own code.
#define MILLRACE_CHECK(condition, why)                              \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::millrace::CheckFailed(__FILE__, __LINE__, #condition, why); \
  } while (false)
