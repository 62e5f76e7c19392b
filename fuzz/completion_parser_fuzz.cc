#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/completion_parser.h"
#include "text/delta_checker_testing.h"
#include "text/ordered_json.h"
#include "text/small_tokenizer_testing.h"
#include "text/utf8.h"

namespace {

using millrace::text::CompletionEnd;
using millrace::text::CompletionParser;
using millrace::text::DeltaChecker;
using millrace::text::ParsedMessage;
using millrace::text::SmallTokenizer;
using millrace::text::ToolSchema;
using millrace::text::ToolSchemas;

std::shared_ptr<const ToolSchemas> Tools() {
  const auto schema = [](const char* text) { return *millrace::text::ParseOrderedJson(text); };
  return std::make_shared<const ToolSchemas>(std::vector<ToolSchema>{
      ToolSchema::Of("get_weather", schema(R"({"properties": {"city": {"type": "string"}, "days": {}}})")),
      ToolSchema::Of("run_shell", schema(R"({"properties": {"cmd": {"type": ["string", "null"]}},
                                             "required": ["cmd"]})")),
      ToolSchema::Of("noop", schema("{}"))});
}

// Parses with `push`, which gives all of the completion to the parser, and checks what comes.
template <typename Push>
ParsedMessage Parse(CompletionParser parser, const std::string& completion, CompletionEnd end,
                    const Push& push) {
  DeltaChecker checker(completion);
  push(parser, checker);
  checker.Add(parser.Finish(end));
  MILLRACE_CHECK(checker.error() == nullptr, checker.error());
  for (const auto& call : checker.message().calls) {
    if (!call.complete) continue;
    const auto arguments = millrace::text::ParseOrderedJson(call.arguments);
    MILLRACE_CHECK(arguments.ok() && arguments->if_object() != nullptr, "arguments that are no JSON object");
  }
  return checker.message();
}

}  // namespace

// Any bytes, behind one that holds the options, parse the same whole, byte by byte and cut at random; as
// tokens, any ids keep the promises of ParsedDelta.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const SmallTokenizer small = SmallTokenizer::Make();
  static const std::shared_ptr<const ToolSchemas> tools = Tools();
  if (size == 0) return 0;
  const unsigned flags = data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const CompletionParser::Options options{.starts_in_reasoning = (flags & 1) != 0,
                                          .tools = (flags & 4) != 0 ? nullptr : tools};
  const CompletionEnd end = (flags & 2) != 0 ? CompletionEnd::kLength : CompletionEnd::kStop;
  const std::string repaired = millrace::text::RepairUtf8(text);

  // In pieces of `piece` bytes, or of sizes that follow from the text.
  const auto parse_cut = [&](size_t piece) {
    return Parse(CompletionParser(options), repaired, end,
                 [&](CompletionParser& parser, DeltaChecker& checker) {
                   uint32_t state = static_cast<uint32_t>(text.size());
                   for (std::string_view rest = text; !rest.empty();) {
                     state = state * 1664525 + 1013904223 + static_cast<uint8_t>(rest[0]);
                     const size_t n = std::min(piece != 0 ? piece : 1 + (state >> 27), rest.size());
                     checker.Add(parser.PushText(rest.substr(0, n)));
                     rest.remove_prefix(n);
                   }
                 });
  };
  const ParsedMessage whole = parse_cut(text.size());
  MILLRACE_CHECK(parse_cut(1) == whole, "byte by byte the completion parses otherwise");
  MILLRACE_CHECK(parse_cut(0) == whole, "cut at random the completion parses otherwise");

  const auto ids = small.tokenizer.EncodePrompt(text);
  std::string kept;  // accidental control tokens are no part of the completion
  for (const auto id : ids) {
    if (id != small.ids.user) kept += small.tokenizer.TokenBytes(id);
  }
  Parse(CompletionParser(small.tokenizer, small.ids, options), kept, end,
        [&](CompletionParser& parser, DeltaChecker& checker) {
          for (const auto id : ids) checker.Add(parser.Push(id));
        });
  return 0;
}
