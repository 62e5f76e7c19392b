#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/request_record.h"

namespace millrace::api {

// nginx's status of requests whose client left before the answer.
inline constexpr int kClientGone = 499;

// A request as it arrived.
struct RequestLine {
  std::string request_id;
  std::string method;
  std::string path;  // as sent, without the query: that may hold anything
  std::chrono::steady_clock::time_point arrival;
};

struct AccessLogOptions {
  bool enabled = true;
  std::vector<std::string> excluded_prefixes = {};  // of paths that are not worth a line
};

// One line for each request, when it ends. Immutable; any thread.
class AccessLog {
 public:
  explicit AccessLog(AccessLogOptions options) : options_(std::move(options)) {}

  // `body_bytes`: of the answer's body. Fields that do not apply are left out.
  void Write(const RequestLine& line, const RequestRecord& record, int status, uint64_t body_bytes) const;

 private:
  AccessLogOptions options_;
};

}  // namespace millrace::api
