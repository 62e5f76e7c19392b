#include "text/reasoning_splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "text/golden_testing.h"

namespace millrace::text {
namespace {

ReasoningSplitter::Delta Split(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                               bool starts_in_reasoning) {
  const auto control = ControlIds::Find(tokenizer);
  EXPECT_TRUE(control.ok());
  ReasoningSplitter splitter(tokenizer, *control, starts_in_reasoning);
  ReasoningSplitter::Delta all;
  const auto add = [&](const ReasoningSplitter::Delta& delta) {
    all.reasoning += delta.reasoning;
    all.content += delta.content;
  };
  for (const TokenId id : ids) add(splitter.Push(id));
  add(splitter.Flush());
  return all;
}

// `spelled` has its control tokens written out.
ReasoningSplitter::Delta Split(std::string_view spelled, bool starts_in_reasoning) {
  return Split(MiniTokenizer(), MiniTokenizer().EncodePrompt(spelled), starts_in_reasoning);
}

void ExpectSplit(std::string_view spelled, bool starts_in_reasoning, std::string_view reasoning,
                 std::string_view content) {
  const auto delta = Split(spelled, starts_in_reasoning);
  EXPECT_EQ(delta.reasoning, reasoning) << spelled;
  EXPECT_EQ(delta.content, content) << spelled;
}

TEST(ReasoningSplitter, PartsAtTheEndOfReasoningAndKeepsEveryNewline) {
  ExpectSplit("why\n\n</think>\n\nso<｜end▁of▁sentence｜>", true, "why\n\n", "\n\nso");
  ExpectSplit("an answer", false, "", "an answer");
  ExpectSplit("never ends", true, "never ends", "");
}

TEST(ReasoningSplitter, MarkersInOddPlaces) {
  ExpectSplit("a</think>b", false, "", "ab");                  // stray: absorbed
  ExpectSplit("<think>r</think>a", true, "r", "a");            // again at the start: absorbed
  ExpectSplit("<think>r</think>a", false, "r", "a");           // reasons although told not to
  ExpectSplit("r</think><think>s</think>a", true, "rs", "a");  // reasons again
  ExpectSplit("a <think> b", false, "", "a <think> b");        // later: a word
  ExpectSplit("r <think> s</think>a", true, "r <think> s", "a");
}

TEST(ReasoningSplitter, ControlTokensSampledByAccidentAreDropped) {
  ExpectSplit("a<｜User｜>b<｜latest_reminder｜>c<｜▁pad▁｜>", false, "", "abc");
  ExpectSplit("see <｜DSML｜ calls>", false, "", "see <｜DSML｜ calls>");  // markup without tools is text
}

TEST(ReasoningSplitter, SpelledOutMarkersAreText) {
  const auto ids = MiniTokenizer().EncodeText("a</think>b");
  const auto delta = Split(MiniTokenizer(), ids, true);
  EXPECT_EQ(delta.reasoning, "a</think>b");
}

TEST(ReasoningSplitter, ACharacterCutByTheEndOfReasoningIsReplacedThere) {
  std::vector<TokenId> ids = MiniTokenizer().EncodeText("é");
  ASSERT_EQ(ids.size(), 2u);
  ids.insert(ids.begin() + 1, MiniTokenizer().FindToken("</think>").value());
  const auto delta = Split(MiniTokenizer(), ids, true);
  EXPECT_EQ(delta.reasoning, "\uFFFD");
  EXPECT_EQ(delta.content, "\uFFFD");
}

class ReasoningSplitterGolden : public GoldenTest {};

TEST_F(ReasoningSplitterGolden, ParsesEveryCompletionWithoutTools) {
  int parsed = 0;
  for (const auto& c : Cases("chat/parse.json")) {
    const bool has_markup = String(c.at("completion")).find("DSML") != std::string::npos ||
                            String(c.at("completion")).find("invoke") != std::string::npos;
    if (has_markup && c.at("tools_declared").as_bool()) continue;
    SCOPED_TRACE(c.at("id"));
    const auto ids = Released().EncodePrompt(String(c.at("completion")));
    const auto delta = Split(Released(), ids, c.at("thinking").as_bool());
    EXPECT_EQ(delta.reasoning, String(c.at("expected").at("reasoning")));
    EXPECT_EQ(delta.content, String(c.at("expected").at("content")));
    ++parsed;
  }
  EXPECT_EQ(parsed, 21);
}

}  // namespace
}  // namespace millrace::text
