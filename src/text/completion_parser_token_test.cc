#include <gtest/gtest.h>

#include "text/completion_parser.h"
#include "text/delta_checker_testing.h"
#include "text/small_tokenizer_testing.h"

// What only the token ids of a completion tell.
namespace millrace::text {
namespace {

using Place = CompletionParser::Place;

// Feeds a parser with letters, one token a byte, and control tokens.
class CompletionParserTokens : public ::testing::Test {
 protected:
  CompletionParser Parser(bool thinking) {
    const auto none = ParseOrderedJson("{}");
    auto tools = std::make_shared<const ToolSchemas>(std::vector<ToolSchema>{ToolSchema::Of("noop", *none)});
    return {small_.tokenizer, small_.ids, {.starts_in_reasoning = thinking, .tools = std::move(tools)}};
  }

  void Letters(CompletionParser& parser, std::string_view letters) {
    for (const char letter : letters) Push(parser, static_cast<uint8_t>(letter));
  }
  void Push(CompletionParser& parser, TokenId id) { Add(parser.Push(id)); }
  void Add(const ParsedDelta& delta) {
    message_.Append(delta);
    content_spans_.insert(content_spans_.end(), delta.content_spans.begin(), delta.content_spans.end());
  }
  void Tag(CompletionParser& parser, std::string_view opening, std::string_view rest) {
    Letters(parser, opening);
    Push(parser, small_.ids.dsml);
    Letters(parser, rest);
  }

  const SmallTokenizer small_ = SmallTokenizer::Make();
  ParsedMessage message_;
  std::vector<SourceSpan> content_spans_;
};

TEST_F(CompletionParserTokens, LettersThatSpellAControlTokenAreText) {
  CompletionParser parser = Parser(/*thinking=*/true);
  const std::string_view letters = "</think><think>\n\n<｜DSML｜ calls>\n<｜end▁of▁sentence｜>";
  Letters(parser, letters);
  EXPECT_EQ(message_.reasoning, letters);
  Push(parser, small_.ids.think_end);
  Letters(parser, "<think>a\n\n<｜DSML｜ invoke name=\"noop\"/>");
  EXPECT_EQ(message_.content, "<think>a\n\n<｜DSML｜ invoke name=\"noop\"/>");
}

TEST_F(CompletionParserTokens, MisspeltMarksAreRecognisedWhicheverTokensSpellThem) {
  CompletionParser parser = Parser(/*thinking=*/false);
  Letters(parser, "<｜｜DSML｜｜ calls>");
  EXPECT_EQ(parser.place(), Place::kBlock);
  Tag(parser, "<｜", "｜ invoke name=\"noop\"/>");
  ASSERT_EQ(message_.calls.size(), 1u);
  EXPECT_TRUE(message_.calls[0].complete);
}

TEST_F(CompletionParserTokens, AccidentalControlTokensGiveNoText) {
  CompletionParser parser = Parser(/*thinking=*/false);
  Letters(parser, "a");
  Push(parser, small_.ids.user);
  EXPECT_EQ(parser.position(), 1u);
  Letters(parser, "<");
  Push(parser, small_.ids.user);
  Tag(parser, "", " calls>");
  EXPECT_EQ(message_.content, "a");
  EXPECT_EQ(parser.place(), Place::kBlock);
}

TEST_F(CompletionParserTokens, ControlTokenInterruptsACharacter) {
  CompletionParser parser = Parser(/*thinking=*/true);
  Letters(parser, "\xE6");
  Push(parser, small_.ids.think_end);
  EXPECT_EQ(message_.reasoning, "\xEF\xBF\xBD");
  EXPECT_EQ(parser.reasoning_tokens(), 1);
  Letters(parser, "\xE6\xBC");
  Push(parser, small_.ids.user);
  EXPECT_EQ(message_.content, "\xEF\xBF\xBD");
}

TEST_F(CompletionParserTokens, CountsReasoningOnceItIsKnownToBeSuch) {
  CompletionParser parser = Parser(/*thinking=*/true);
  Letters(parser, "ab\n");
  EXPECT_EQ(parser.reasoning_tokens(), 2);  // the newline may go with a block
  Tag(parser, "<", " calls>");
  EXPECT_EQ(parser.reasoning_tokens(), 3);  // a single one stays
  EXPECT_TRUE(parser.in_reasoning());
  Push(parser, small_.ids.think_end);
  EXPECT_EQ(parser.reasoning_tokens(), 3 + 9);  // `<`, the mark and ` calls>`, but not `</think>`
  EXPECT_EQ(message_.reasoning, "ab\n<｜DSML｜ calls>");
  Letters(parser, "c");
  EXPECT_EQ(parser.reasoning_tokens(), 12);
}

TEST_F(CompletionParserTokens, MarkupIsNotCountedAsReasoning) {
  CompletionParser parser = Parser(/*thinking=*/true);
  Letters(parser, "ab\n\n");
  Tag(parser, "<", " calls>");
  Tag(parser, "<", " invoke name=\"noop\">");
  EXPECT_EQ(parser.reasoning_tokens(), 2);
  EXPECT_EQ(parser.place(), Place::kCall);
  EXPECT_EQ(message_.calls.size(), 1u);
}

TEST_F(CompletionParserTokens, CountsWhatIsHeldAtTheEnd) {
  CompletionParser parser = Parser(/*thinking=*/true);
  Letters(parser, "a<");
  EXPECT_EQ(parser.reasoning_tokens(), 1);
  Add(parser.Finish(CompletionEnd::kStop));
  EXPECT_EQ(parser.reasoning_tokens(), 2);
  EXPECT_EQ(message_.reasoning, "a<");
}

TEST_F(CompletionParserTokens, SaysWhereTheNextTokenBelongs) {
  CompletionParser parser = Parser(/*thinking=*/true);
  EXPECT_EQ(parser.place(), Place::kReasoning);
  Push(parser, small_.ids.think_end);
  EXPECT_EQ(parser.place(), Place::kAnswer);
  Tag(parser, "<", " calls>");
  EXPECT_EQ(parser.place(), Place::kBlock);
  Tag(parser, "<", " invoke name=\"noop\">");
  EXPECT_EQ(parser.place(), Place::kCall);
  Tag(parser, "</", " invoke>");
  EXPECT_EQ(parser.place(), Place::kBlock);
  Tag(parser, "</", " calls>");
  EXPECT_EQ(parser.place(), Place::kAfterCalls);
  Push(parser, small_.ids.eos);
  EXPECT_EQ(parser.place(), Place::kEnded);
  EXPECT_EQ(parser.call_count(), 1u);
  EXPECT_EQ(parser.complete_calls(), 1u);
  EXPECT_TRUE(parser.Finish(CompletionEnd::kStop).empty());
  EXPECT_EQ(parser.reason(), CompletionReason::kToolCalls);
}

TEST_F(CompletionParserTokens, SpansLeaveOutMarkers) {
  CompletionParser parser = Parser(/*thinking=*/false);
  Letters(parser, "a\n");
  Push(parser, small_.ids.think_end);
  Letters(parser, "b<");
  Push(parser, small_.ids.dsml);
  Letters(parser, "c");
  Add(parser.Finish(CompletionEnd::kStop));
  EXPECT_EQ(message_.content, "a\nb<｜DSML｜c");
  const size_t mark = std::string_view("</think>").size();
  std::vector<SourceSpan> joined;
  for (const SourceSpan& span : content_spans_) {
    if (!joined.empty() && joined.back().end == span.begin) {
      joined.back().end = span.end;
    } else {
      joined.push_back(span);
    }
  }
  EXPECT_EQ(joined, (std::vector<SourceSpan>{{0, 2}, {2 + mark, parser.position()}}));
}

}  // namespace
}  // namespace millrace::text
