#include "api/logprobs_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>

#include "text/ordered_json.h"
#include "text/utf8.h"

namespace millrace::api {
namespace {

// Without the braces.
void AppendToken(const TokenText& token, std::string& out) {
  out += "\"token\":\"";
  text::AppendJsonEscaped(text::RepairUtf8(token.bytes), out);
  out += "\",\"logprob\":";
  AppendLogprob(token.logprob, out);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < token.bytes.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(static_cast<uint8_t>(token.bytes[i]));
  }
  out += ']';
}

uint64_t MostBytes(const TokenText& text) {
  return kMostNamesBytes + kMostBytesPerByte * text.bytes.size();
}

}  // namespace

void AppendLogprob(float logprob, std::string& out) {
  constexpr float kFloor = -9999.0f;
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits),
                                 std::isnan(logprob) ? kFloor : std::max(logprob, kFloor))
                       .ptr;
  const std::string_view text(std::begin(digits), static_cast<size_t>(end - std::begin(digits)));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void AppendScoredTokens(std::span<const ScoredToken> tokens, std::string& out) {
  for (size_t t = 0; t < tokens.size(); ++t) {
    out += t > 0 ? ",{" : "{";
    AppendToken(tokens[t].chosen, out);
    out += ",\"top_logprobs\":[";
    for (size_t i = 0; i < tokens[t].top.size(); ++i) {
      out += i > 0 ? ",{" : "{";
      AppendToken(tokens[t].top[i], out);
      out += '}';
    }
    out += "]}";
  }
}

uint64_t MostLogprobsBytes(std::span<const ScoredToken> tokens) {
  uint64_t bytes = 0;
  for (const ScoredToken& token : tokens) {
    bytes += MostBytes(token.chosen);
    for (const TokenText& other : token.top) bytes += MostBytes(other);
  }
  return bytes;
}

}  // namespace millrace::api
