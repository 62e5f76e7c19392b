#pragma once

#include <string>
#include <vector>

#include "text/parsed_delta.h"

namespace millrace::text {

struct ParsedCall {
  std::string name;       // as the model wrote it
  std::string arguments;  // JSON text of an object; of an incomplete call its beginning
  bool complete = false;

  bool operator==(const ParsedCall&) const = default;
};

// The whole of a parsed completion: what its deltas add up to.
struct ParsedMessage {
  std::string reasoning;
  std::string content;
  std::vector<ParsedCall> calls;

  void Append(const ParsedDelta& delta);

  bool operator==(const ParsedMessage&) const = default;
};

}  // namespace millrace::text
