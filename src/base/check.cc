#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace millrace {

void CheckFailed(const char* file, int line, const char* condition, std::string_view why) {
  std::fprintf(stderr, "%s:%d: check failed: %s (%.*s)\n", file, line, condition,
               static_cast<int>(why.size()), why.data());
  std::abort();
}

}  // namespace millrace
