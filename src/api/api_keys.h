#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/http_message.h"

namespace millrace::api {

// The keys that open this server; none: it is open to everyone. Immutable; any thread.
class ApiKeys {
 public:
  ApiKeys() = default;
  // Non-empty keys.
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  bool empty() const { return keys_.empty(); }

  // True when one of them stands in "Authorization: Bearer KEY" or "x-api-key: KEY". How long it takes
  // depends on what was sent alone, not on how much of it is right.
  bool Open(const HttpHeaders& headers) const;

 private:
  bool Knows(std::string_view given) const;

  std::vector<std::string> keys_;
};

}  // namespace millrace::api
