#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// The text of a configuration file: the part of YAML that a list of flags needs, which is also what vLLM's
// files hold.
//
//   # a comment
//   model: /models/flash
//   port: 8000
//   served-model-name: [flash, "the flash"]
//   cors-allow-origin:
//     - https://chat.example
namespace millrace::app {

struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  // one, or those of a list
  int line = 0;                     // counted from 1
};

// Entries in order. kInvalidArgument saying at which line: nesting, a key twice, a missing value, an open
// quote.
Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text);

// A line that ParseConfig reads as this entry. Several values, or `is_list`, make a list.
std::string FormatConfigEntry(std::string_view key, const std::vector<std::string>& values, bool is_list);

}  // namespace millrace::app
