#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/commands.h"
#include "app/standard_input.h"
#include "formats/json.h"
#include "text/tokenizer.h"

namespace millrace::app {
namespace {

namespace json = boost::json;

struct TokenizeFlags {
  std::string tokenizer;
  bool prompt = false;
};

const json::string* StringField(const json::object& item, std::string_view key) {
  const json::value* value = item.if_contains(key);
  return value == nullptr ? nullptr : value->if_string();
}

// What names a case in the output and in errors: its id, else its bytes, else its place.
json::value CaseId(const json::value& item, size_t index) {
  if (const json::object* object = item.if_object()) {
    if (const json::value* id = object->if_contains("id")) return *id;
    if (const json::string* hex = StringField(*object, "hex")) return *hex;
  }
  return json::value(index);
}

// For an error message.
std::string Shown(const json::value& value) {
  return formats::Quoted(value.is_string() ? std::string(value.get_string()) : json::serialize(value));
}

Result<std::string> BytesOfHex(std::string_view hex) {
  const auto digit = [](char c) -> std::optional<int> {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return std::nullopt;
  };
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const auto high = digit(hex[i]);
    const auto low = i + 1 < hex.size() ? digit(hex[i + 1]) : std::nullopt;
    if (!high || !low) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("hex is {}, expected two hexadecimal digits a byte", formats::Quoted(hex)));
    }
    bytes += static_cast<char>(*high * 16 + *low);
  }
  return bytes;
}

Result<std::string> Repeated(std::string_view unit, const json::value& times) {
  const int64_t* n = times.if_int64();
  if (n == nullptr || *n < 0 || (!unit.empty() && static_cast<uint64_t>(*n) > kMaxInputBytes / unit.size())) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("times is {}, expected a count that makes at most {} bytes", Shown(times),
                             kMaxInputBytes));
  }
  std::string text;
  text.reserve(unit.size() * static_cast<size_t>(*n));
  for (int64_t i = 0; i < *n; ++i) text += unit;
  return text;
}

// The input of one case: bytes by hex, a repeated unit, or text.
Result<std::string> CaseText(const json::value& item) {
  if (const json::object* object = item.if_object()) {
    if (const json::string* hex = StringField(*object, "hex")) return BytesOfHex(*hex);
    const json::string* unit = StringField(*object, "unit");
    const json::value* times = object->if_contains("times");
    if (unit != nullptr && times != nullptr) return Repeated(*unit, *times);
    if (const json::string* text = StringField(*object, "text")) return std::string(*text);
  }
  return Error(ErrorCode::kInvalidArgument,
               "expected an object with a string \"text\", with \"unit\" and \"times\", or with \"hex\"");
}

Result<json::array> ReadCases(std::string_view input) {
  MILLRACE_ASSIGN_OR_RETURN(json::value root, formats::ParseJson(input, {.max_bytes = kMaxInputBytes}));
  json::value* cases = &root;
  if (json::object* object = root.if_object()) cases = object->if_contains("cases");
  if (cases == nullptr || !cases->is_array()) {
    return Error(ErrorCode::kInvalidArgument, "expected {\"cases\": [...]} or an array of cases");
  }
  return std::move(cases->get_array());
}

// Prints case by case, so that a reader at the other end of a pipe can follow.
Status Tokenize(const TokenizeFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::Tokenizer::Load(flags.tokenizer));
  MILLRACE_ASSIGN_OR_RETURN(const std::string input, ReadStandardInput());
  Result<json::array> cases = ReadCases(input);
  if (!cases.ok()) return cases.error().In("standard input");
  const char* separator = "[\n";
  for (size_t i = 0; i < cases->size(); ++i) {
    const json::value& item = (*cases)[i];
    const json::value id = CaseId(item, i);
    const Result<std::string> text = CaseText(item);
    if (!text.ok()) return text.error().In(fmt::format("case {} ({})", i, Shown(id)));
    const std::vector<TokenId> ids =
        flags.prompt ? tokenizer.EncodePrompt(*text) : tokenizer.EncodeText(*text);
    const json::value line = {{"id", id}, {"ids", json::array(ids.begin(), ids.end())}};
    fmt::print("{}{}", separator, json::serialize(line));
    separator = ",\n";
  }
  fmt::print("{}\n", cases->empty() ? "[]" : "\n]");
  if (std::fflush(stdout) != 0) return Error(ErrorCode::kIo, "cannot write standard output");
  return {};
}

}  // namespace

void AddTokenizeCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = root.add_subcommand(
      "tokenize", "Read texts as JSON from standard input, print their token ids as JSON");
  command->footer(
      "Input: {\"cases\": [{\"id\", \"text\"}, ...]}; instead of text a case may have \"unit\" and "
      "\"times\", or "
      "\"hex\" for\nbytes that need not be UTF-8. Output: [{\"id\", \"ids\"}, ...].");
  command->add_option("--tokenizer", flags->tokenizer, "A tokenizer.json or the directory that holds one")
      ->required();
  command->add_flag("--prompt", flags->prompt,
                    "Take the texts as trusted prompts: control tokens such as <think> are recognised");
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportStatus(Tokenize(*flags)); }; });
}

}  // namespace millrace::app
