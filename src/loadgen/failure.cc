#include "loadgen/failure.h"

#include <fmt/format.h>

namespace millrace::loadgen {

std::string Failure::Name() const {
  switch (kind) {
    case FailureKind::kConnect:
      return "no connection";
    case FailureKind::kTimeout:
      return "timeout";
    case FailureKind::kStalled:
      return "stalled";
    case FailureKind::kHttpStatus:
      return fmt::format("http {}", status);
    case FailureKind::kMalformedHttp:
      return "malformed http";
    case FailureKind::kMalformedEvent:
      return "malformed event";
    case FailureKind::kErrorEvent:
      return "error event";
    case FailureKind::kClosedEarly:
      return "closed early";
  }
  return "unknown";
}

}  // namespace millrace::loadgen
