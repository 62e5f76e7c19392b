#include "app/version.h"

#include <fmt/format.h>

#include "app/commit.h"
#include "kernels/instruction_set.h"

namespace millrace::app {

std::string Version() {
  return MILLRACE_VERSION;
}

std::string VersionText() {
  const std::string commit = MILLRACE_COMMIT;
  return fmt::format("millrace {}{}\ninstruction sets: {}", Version(),
                     commit.empty() ? "" : fmt::format(" (commit {})", commit),
                     fmt::join(kernels::InstructionSets(), ", "));
}

}  // namespace millrace::app
