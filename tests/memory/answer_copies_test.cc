// What a format takes while it writes the end of an answer, against what it says of that (FormatMemory).

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/anthropic_format.h"
#include "api/openai_format.h"
#include "api/responses_format.h"
#include "support/counted_heap.h"

namespace millrace::testing {
namespace {

using api::AnswerFormat;
using api::FinishedChoice;
using api::TextDelta;

// Every twelfth byte needs escaping, as in code.
constexpr const char* kPiece = "return x;\n\"a";
constexpr int kPieces = 20'000;
constexpr int64_t kTextBytes = 12 * kPieces;

struct Case {
  const char* name;
  std::unique_ptr<AnswerFormat> (*make)();
};

std::unique_ptr<AnswerFormat> Responses(bool sealed) {
  api::ResponsesHead head;
  head.seal_reasoning = sealed;
  return api::MakeResponsesFormat(std::move(head));
}

const Case kCases[] = {
    {"chat", [] { return api::MakeOpenAiChatFormat(api::OpenAiHead()); }},
    {"completions", [] { return api::MakeOpenAiCompletionFormat(api::OpenAiHead(), {}); }},
    {"messages", [] { return api::MakeAnthropicFormat(api::AnthropicHead()); }},
    {"responses", [] { return Responses(false); }},
    {"responses, sealed", [] { return Responses(true); }},
};

// The most that `write` has at once beside what was there before.
template <typename Write>
int64_t PeakOf(Write write) {
  counted_heap.ResetPeak();
  const int64_t before = counted_heap.live_bytes;
  write();
  return counted_heap.peak_bytes - before;
}

// In TextBytes, which count each byte of text twice.
double CopiesOf(int64_t bytes) {
  return static_cast<double>(bytes) / (2 * kTextBytes);
}

TEST(AnswerCopies, AWholeAnswerTakesNoMoreThanItsFormatSays) {
  for (const Case& c : kCases) {
    for (const bool reasoning : {false, true}) {
      const auto format = c.make();
      std::vector<FinishedChoice> choices(1);
      std::string& text = reasoning ? choices[0].reasoning : choices[0].content;
      for (int i = 0; i < kPieces; ++i) text += kPiece;
      const int64_t peak = PeakOf([&] { (void)format->Whole(choices, {}); });
      EXPECT_LE(CopiesOf(peak), format->memory(false).text_copies)
          << c.name << (reasoning ? ", reasoning" : "");
    }
  }
}

TEST(AnswerCopies, TheEndOfAStreamTakesNoMoreThanItsFormatSays) {
  for (const Case& c : kCases) {
    for (const bool reasoning : {false, true}) {
      const auto format = c.make();
      (void)format->StreamBegin(1);
      for (int i = 0; i < kPieces; ++i) {
        TextDelta delta;
        (reasoning ? delta.reasoning : delta.content) = kPiece;
        (void)format->Delta(0, delta);
      }
      const int64_t peak = PeakOf([&] {
        (void)format->ChoiceEnd(0, {}, {});
        (void)format->StreamEnd({});
      });
      const api::FormatMemory memory = format->memory(true);
      EXPECT_LE(CopiesOf(peak), memory.keeps_stream ? memory.text_copies : 0.1)
          << c.name << (reasoning ? ", reasoning" : "");
    }
  }
}

}  // namespace
}  // namespace millrace::testing
