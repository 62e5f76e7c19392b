#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/completion_parser.h"
#include "text/delta_checker_testing.h"
#include "text/parsed_message.h"
#include "text/utf8.h"

// Helpers of the tests of completion parsing.
namespace millrace::text {

struct ParseCase {
  std::string completion;
  bool thinking = true;
  std::shared_ptr<const ToolSchemas> tools;
  CompletionEnd end = CompletionEnd::kStop;
};

struct ParseResult {
  ParsedMessage message;
  CompletionReason reason{};

  bool operator==(const ParseResult&) const = default;
};

inline void PrintTo(const ParseResult& result, std::ostream* out) {
  *out << "reasoning " << ::testing::PrintToString(result.message.reasoning) << "\ncontent "
       << ::testing::PrintToString(result.message.content) << "\nreason " << static_cast<int>(result.reason);
  for (const ParsedCall& call : result.message.calls) {
    *out << "\ncall " << call.name << (call.complete ? " " : " (incomplete) ") << call.arguments;
  }
}

// Parses the completion, spelled out, cut at `cuts` (byte offsets, ascending).
inline ParseResult ParseCut(const ParseCase& c, const std::vector<size_t>& cuts) {
  CompletionParser parser({.starts_in_reasoning = c.thinking, .tools = c.tools});
  const std::string repaired = RepairUtf8(c.completion);
  DeltaChecker checker(repaired);
  std::string_view rest = c.completion;
  size_t done = 0;
  for (const size_t cut : cuts) {
    checker.Add(parser.PushText(rest.substr(0, cut - done)));
    rest.remove_prefix(cut - done);
    done = cut;
  }
  checker.Add(parser.PushText(rest));
  checker.Add(parser.Finish(c.end));
  EXPECT_EQ(checker.error(), nullptr) << checker.error() << " in " << c.completion;
  return {.message = checker.message(), .reason = parser.reason()};
}

inline std::vector<size_t> EveryByte(std::string_view text) {
  std::vector<size_t> cuts;
  for (size_t i = 1; i < text.size(); ++i) cuts.push_back(i);
  return cuts;
}

inline std::vector<size_t> EveryCharacter(std::string_view text) {
  std::vector<size_t> cuts;
  for (size_t i = 1; i < text.size(); ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) cuts.push_back(i);
  }
  return cuts;
}

}  // namespace millrace::text
