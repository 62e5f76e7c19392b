#include <cstdio>

#include "app/commands.h"

namespace millrace::app {

int ReportStatus(const Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "millrace: %s\n", status.error().message().c_str());
  return 1;
}

}  // namespace millrace::app
