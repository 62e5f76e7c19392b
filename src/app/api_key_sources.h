#pragma once

#include <string>
#include <vector>

#include "app/settings.h"
#include "base/result.h"

namespace millrace::app {

struct ApiKeySources {
  std::vector<std::string> keys;   // as flags or in the configuration file
  std::vector<std::string> files;  // one key a line; blank lines and those that begin with '#' are left out
};

struct CollectedKeys {
  std::vector<std::string> keys;
  std::vector<std::string> warnings;  // a line each; none shows a key
};

// The keys of all sources given; when there are none, MILLRACE_API_KEY or else VLLM_API_KEY. Errors name the
// source, never a key: a file that cannot be read or holds none, an empty variable, a key that no header can
// carry.
Result<CollectedKeys> CollectApiKeys(const ApiKeySources& sources, const Environment& environment);

}  // namespace millrace::app
