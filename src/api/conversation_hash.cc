#include "api/conversation_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "api/random_id.h"
#include "text/ordered_json.h"

namespace millrace::api {
namespace {

// Doubles up to here hold every integer.
constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

void AppendNumber(uint64_t number, std::string& out) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(number >> shift & 0xFF);
}

// With its length in front, so that two texts never read as two others.
void AppendText(std::string_view text, std::string& out) {
  AppendNumber(text.size(), out);
  out += text;
}

// 1, 1.0 and 1e0 are one value; integers keep all their digits.
text::OrderedJson::Number CanonicalNumber(const text::OrderedJson::Number& number) {
  if (number.text.find_first_of(".eE") == std::string::npos) return number;
  double value = 0;
  std::from_chars(number.text.data(), number.text.data() + number.text.size(), value);
  if (std::abs(value) > kExactIntegers || value != std::trunc(value)) return number;
  return {std::to_string(static_cast<int64_t>(value))};
}

text::OrderedJson Canonical(const text::OrderedJson& value) {
  using text::OrderedJson;
  if (const OrderedJson::Number* const number = value.if_number())
    return OrderedJson(CanonicalNumber(*number));
  if (const OrderedJson::Array* const items = value.if_array()) {
    OrderedJson::Array list;
    for (const OrderedJson& item : *items) list.push_back(Canonical(item));
    return OrderedJson(std::move(list));
  }
  const OrderedJson::Object* const members = value.if_object();
  if (members == nullptr) return value;
  OrderedJson::Object sorted;
  for (const OrderedJson::Member& member : *members) sorted.push_back({member.key, Canonical(member.value)});
  std::ranges::sort(sorted, {}, &OrderedJson::Member::key);
  return OrderedJson(std::move(sorted));
}

std::string Spoken(const text::ChatMessage& message) {
  std::string spoken(1, static_cast<char>(message.role));
  AppendText(message.content.Text(), spoken);
  for (const text::ToolCall& call : message.tool_calls) {
    AppendText(call.name, spoken);
    AppendText(CanonicalArguments(call.arguments), spoken);
  }
  return spoken;
}

uint64_t Seed() {
  static const uint64_t seed = RandomNumber();
  return seed;
}

}  // namespace

Hash128 HashText(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(text.data(), text.size(), Seed());
  return {hash.low64, hash.high64};
}

std::string CanonicalArguments(const std::string& arguments) {
  if (arguments.find_first_not_of(" \t\r\n") == std::string::npos) return "{}";
  const Result<text::OrderedJson> value = text::ParseOrderedJson(arguments);
  return value.ok() ? text::PythonJson(Canonical(*value)) : arguments;
}

void ConversationHash::Add(const text::ChatMessage& message) {
  const Hash128 spoken = HashText(Spoken(message));
  if (message.role == text::Role::kTool) {
    results_.low += spoken.low;
    results_.high += spoken.high;
    ++result_count_;
    return;
  }
  chain_ = value();
  results_ = {};
  result_count_ = 0;
  std::string link;
  for (const uint64_t number : {chain_.low, chain_.high, spoken.low, spoken.high}) AppendNumber(number, link);
  chain_ = HashText(link);
}

Hash128 ConversationHash::value() const {
  if (result_count_ == 0) return chain_;
  std::string link;
  for (const uint64_t number : {chain_.low, chain_.high, results_.low, results_.high, result_count_})
    AppendNumber(number, link);
  return HashText(link);
}

}  // namespace millrace::api
