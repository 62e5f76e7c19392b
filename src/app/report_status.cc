#include <cstdio>

#include "app/commands.h"

namespace millrace::app {

int ReportStatus(const Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "millrace: %s\n", status.error().message().c_str());
  return 1;
}

int ReportUsage(const Error& error) {
  (void)ReportStatus(error);
  return 2;
}

int ReportRun(const Status& status) {
  const bool is_usage = !status.ok() && status.error().code() == ErrorCode::kInvalidArgument;
  return is_usage ? ReportUsage(status.error()) : ReportStatus(status);
}

}  // namespace millrace::app
