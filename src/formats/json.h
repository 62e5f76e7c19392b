#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/fwd.hpp>

#include "base/result.h"

namespace millrace::formats {

// What a JSON text may cost its reader before it is refused.
struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  size_t max_depth = 32;  // nested arrays and objects
};

// Parses one strict JSON text: RFC 8259, valid UTF-8, a key at most once per object at every level, nothing
// after the value. Numbers with a fraction or exponent are rounded to the nearest double, integers are kept
// as int64 or uint64. Errors (kCorrupt) give line and column. Any thread.
Result<boost::json::value> ParseJson(std::string_view text, const JsonLimits& limits = {});

// The double nearest to a JSON number's text; nullopt if it lies beyond the double range (what is too small
// becomes zero). `approximate` is any parser's own idea of it.
std::optional<double> NearestDouble(std::string_view text, double approximate);

// `text` as a JSON string literal with its quotes. Invalid UTF-8 is passed through.
std::string JsonString(std::string_view text);

// For error messages, so that text out of an untrusted file cannot flood or steer a terminal: Clipped cuts
// UTF-8 text after 120 bytes (not inside a character) and says so with "..."; Quoted also makes it a JSON
// string literal.
std::string Clipped(std::string_view text);
std::string Quoted(std::string_view text);

// "line 3, column 14" of byte `offset` in `text`, both counted from 1.
std::string LineAndColumn(std::string_view text, size_t offset);

}  // namespace millrace::formats
