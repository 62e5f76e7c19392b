#include "api/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/finished_choice.h"

namespace millrace::api {
namespace {

using engine::FinishReason;
using Kind = AnswerEnd::Kind;
using ::testing::ElementsAre;

class GenerationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = text::Tokenizer::Load(MILLRACE_SOURCE_DIR "/models/mini");
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    tokenizer_.emplace(std::move(loaded).value());
    auto ids = text::ControlIds::Find(*tokenizer_);
    ASSERT_TRUE(ids.ok()) << ids.error().message();
    ids_ = *ids;
  }

  GenerationOptions Reasoning(bool starts_in_reasoning) const {
    GenerationOptions options;
    options.parse.emplace();
    options.parse->ids = ids_;
    options.parse->starts_in_reasoning = starts_in_reasoning;
    return options;
  }

  struct Outcome {
    FinishedChoice text;
    TokenUsage usage;
    size_t tokens_used = 0;  // until the generation asked to stop
  };

  // Feeds `ids` as an engine would, with logprobs.
  Outcome Run(const std::vector<TokenId>& ids, GenerationOptions options, FinishReason reason) {
    Generation generation(*tokenizer_, std::move(options));
    Outcome outcome;
    ChoiceBuilder builder;
    for (TokenId id : ids) {
      engine::TokenEvent event;
      event.token = id;
      event.chosen = engine::TokenLogprob{id, -0.5f};
      event.top = {{id, -0.5f}, {ids_.eos, -1.5f}};
      builder.Append(generation.OnToken(event));
      ++outcome.tokens_used;
      if (generation.stopped()) break;
    }
    engine::FinishEvent finish;
    finish.reason = generation.stopped() ? FinishReason::kCancelled : reason;
    finish.prompt_tokens = 7;
    finish.cached_tokens = 3;
    builder.Append(generation.OnFinish(finish));
    outcome.text = builder.Finish(generation.end());
    outcome.usage = generation.usage();
    return outcome;
  }

  Outcome RunText(std::string_view text, GenerationOptions options,
                  FinishReason reason = FinishReason::kLength) {
    return Run(tokenizer_->EncodePrompt(text), std::move(options), reason);
  }

  static std::string Joined(const std::vector<ScoredToken>& tokens) {
    std::string bytes;
    for (const ScoredToken& token : tokens) bytes += token.chosen.bytes;
    return bytes;
  }

  std::optional<text::Tokenizer> tokenizer_;
  text::ControlIds ids_;
};

TEST_F(GenerationTest, PartsReasoningFromTheAnswerAndCountsBoth) {
  const Outcome outcome =
      RunText("Hard.</think>Paris it is.<｜end▁of▁sentence｜>", Reasoning(true), FinishReason::kStop);
  EXPECT_EQ(outcome.text.reasoning, "Hard.");
  EXPECT_EQ(outcome.text.content, "Paris it is.");
  EXPECT_EQ(outcome.text.end.kind, Kind::kStop);
  EXPECT_EQ(outcome.usage.prompt_tokens, 7);
  EXPECT_EQ(outcome.usage.cached_tokens, 3);
  const auto reasoning_tokens = static_cast<int64_t>(tokenizer_->EncodePrompt("Hard.").size());
  const auto content_tokens = static_cast<int64_t>(tokenizer_->EncodePrompt("Paris it is.").size());
  EXPECT_EQ(outcome.usage.reasoning_tokens, reasoning_tokens);
  EXPECT_EQ(outcome.usage.completion_tokens, reasoning_tokens + content_tokens + 2);
}

TEST_F(GenerationTest, LogprobsCoverTheVisibleTokensOfEachSide) {
  const Outcome outcome = RunText("Hard.</think>Paris é it is.<｜end▁of▁sentence｜>", Reasoning(true));
  EXPECT_EQ(Joined(outcome.text.reasoning_tokens), "Hard.");
  EXPECT_EQ(Joined(outcome.text.content_tokens), "Paris é it is.");
  ASSERT_FALSE(outcome.text.content_tokens.empty());
  EXPECT_EQ(outcome.text.content_tokens[0].top.size(), 2u);
}

TEST_F(GenerationTest, TokensOfARawCompletionKnowTheCharactersInFrontOfThem) {
  const Outcome outcome = RunText("Paris é it is.<｜end▁of▁sentence｜>", {});
  ASSERT_FALSE(outcome.text.content_tokens.empty());
  EXPECT_EQ(outcome.text.content_tokens[0].text_offset, 0);
  EXPECT_EQ(outcome.text.content_tokens.back().text_offset, 13);  // "." behind thirteen characters
}

TEST_F(GenerationTest, WithoutReasoningOptionsAllIsAnswer) {
  const Outcome outcome = RunText("Hard.</think>Paris", {});
  EXPECT_EQ(outcome.text.reasoning, "");
  EXPECT_EQ(outcome.text.content, "Hard.Paris");
  EXPECT_EQ(outcome.usage.reasoning_tokens, 0);
}

TEST_F(GenerationTest, StopStringsEndTheAnswerBeforeThem) {
  GenerationOptions options = Reasoning(true);
  options.stop = {"it is", "Hard"};
  const Outcome outcome = RunText("Hard.</think>Paris it is. And more text behind.", options);
  EXPECT_EQ(outcome.text.reasoning, "Hard.") << "stop strings are of the answer alone";
  EXPECT_EQ(outcome.text.content, "Paris ");
  EXPECT_EQ(outcome.text.end.kind, Kind::kStopString);
  EXPECT_EQ(outcome.text.end.stop_string, "it is");
  EXPECT_EQ(static_cast<size_t>(outcome.usage.completion_tokens), outcome.tokens_used);
  EXPECT_TRUE(std::string("Paris it is").starts_with(Joined(outcome.text.content_tokens)));
}

TEST_F(GenerationTest, HeldTextComesWhenTheStopStringDoesNot) {
  GenerationOptions options;
  options.stop = {"is. Not"};
  const Outcome outcome = RunText("Paris it is.", options);
  EXPECT_EQ(outcome.text.content, "Paris it is.");
  EXPECT_EQ(Joined(outcome.text.content_tokens), "Paris it is.");
  EXPECT_EQ(outcome.text.end.kind, Kind::kLength);
}

TEST_F(GenerationTest, AStopTokenGivesNoText) {
  std::vector<TokenId> ids = tokenizer_->EncodePrompt("Paris it is.");
  GenerationOptions options;
  options.stop_token_ids = {ids.back()};
  const Outcome outcome = Run(ids, options, FinishReason::kStop);
  EXPECT_EQ(outcome.text.content, "Paris it is");
  EXPECT_EQ(static_cast<size_t>(outcome.usage.completion_tokens), ids.size());
}

TEST_F(GenerationTest, ACharacterCutByTheLimitBecomesTheReplacement) {
  std::vector<TokenId> ids = tokenizer_->EncodeText("\U0001F600");
  ASSERT_GT(ids.size(), 1u) << "the mini tokenizer spells this with several tokens";
  ids.pop_back();
  EXPECT_EQ(Run(ids, {}, FinishReason::kLength).text.content, "\uFFFD");
}

TEST_F(GenerationTest, DeltasConcatenateToTheSameTextWhateverIsHeld) {
  const std::string text = "abc abcd é\U0001F600 abcabce ababab";
  for (const char* stop : {"abce", "abab", "\U0001F600 ", "zzz", "ab"}) {
    GenerationOptions options;
    options.stop = {stop};
    const Outcome outcome = RunText(text, options);
    EXPECT_EQ(outcome.text.content, text.substr(0, text.find(stop))) << stop;
  }
}

// With a tool `f` that takes a string.
ParseOptions WithTool(ParseOptions parse) {
  text::ToolSchema schema{.name = "f", .takes_string = {{"a", true}}, .required = {}};
  std::vector<RequestTools::Tool> tools;
  tools.push_back({std::move(schema), {.name_space = "", .name = "f"}});
  parse.tools = std::make_shared<const RequestTools>(std::move(tools), /*namespaces=*/true);
  return parse;
}

constexpr const char* kOpener = "\n\n<｜DSML｜ calls>\n";
constexpr const char* kCloser = "</｜DSML｜ calls>";

std::string CallOf(const std::string& name, const std::string& value) {
  return "<｜DSML｜ invoke name=\"" + name + "\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">" + value +
         "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n";
}

std::string Block(const std::string& calls) {
  return kOpener + calls + kCloser;
}

TEST_F(GenerationTest, CallsHaveIdsNamesAndWholeArguments) {
  GenerationOptions options = Reasoning(true);
  options.parse = WithTool(*options.parse);
  const Outcome outcome = RunText(
      "Hm.</think>Look:" + Block(CallOf("f", "x\"y") + CallOf("ns::g", "z")) + "<｜end▁of▁sentence｜>",
      options, FinishReason::kStop);
  EXPECT_EQ(outcome.text.reasoning, "Hm.");
  EXPECT_EQ(outcome.text.content, "Look:");
  EXPECT_EQ(Joined(outcome.text.content_tokens), "Look:\n\n") << "a token that holds more than the text";
  EXPECT_EQ(outcome.text.end.kind, Kind::kToolCalls);
  ASSERT_EQ(outcome.text.calls.size(), 2u);
  EXPECT_EQ(outcome.text.calls[0].tool.name, "f");
  EXPECT_EQ(outcome.text.calls[0].arguments, R"({"a": "x\"y"})");
  EXPECT_EQ(outcome.text.calls[0].id.size(), 24u);
  EXPECT_NE(outcome.text.calls[0].id, outcome.text.calls[1].id);
  EXPECT_EQ(outcome.text.calls[1].tool.name, "g") << "not declared: given in parts";
  EXPECT_EQ(outcome.text.calls[1].tool.name_space, "ns");
  EXPECT_EQ(outcome.text.calls[1].written_name, "ns::g");
}

TEST_F(GenerationTest, ACallCutByTheLimitIsNone) {
  GenerationOptions options = Reasoning(false);
  options.parse = WithTool(*options.parse);
  const Outcome outcome =
      RunText(kOpener + CallOf("f", "x") + "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ param", options,
              FinishReason::kLength);
  EXPECT_EQ(outcome.text.end.kind, Kind::kLength);
  ASSERT_EQ(outcome.text.calls.size(), 1u);
  EXPECT_EQ(outcome.text.calls[0].arguments, R"({"a": "x"})");
  EXPECT_EQ(outcome.text.content, "");
}

TEST_F(GenerationTest, TheOnlyCallEndsAnAnswer) {
  GenerationOptions options = Reasoning(false);
  options.parse = WithTool(*options.parse);
  options.parse->one_call = true;
  const std::string first = kOpener + CallOf("f", "x");
  const Outcome outcome = RunText(first + CallOf("f", "y") + kCloser, options, FinishReason::kStop);
  EXPECT_EQ(outcome.text.calls.size(), 1u);
  EXPECT_EQ(outcome.text.end.kind, Kind::kToolCalls);
  EXPECT_LE(outcome.tokens_used, tokenizer_->EncodePrompt(first).size());
}

TEST_F(GenerationTest, CallsThatNobodyWantedAreLeftOut) {
  GenerationOptions options = Reasoning(false);
  options.parse = WithTool(*options.parse);
  options.parse->discard_calls = true;
  const Outcome outcome = RunText("No." + Block(CallOf("f", "x")), options, FinishReason::kStop);
  EXPECT_EQ(outcome.text.content, "No.");
  EXPECT_TRUE(outcome.text.calls.empty());
  EXPECT_EQ(outcome.text.end.kind, Kind::kStop);
}

TEST_F(GenerationTest, StopStringsMatchNeitherMarkupNorArgumentsNorAcrossThem) {
  GenerationOptions options = Reasoning(true);
  options.parse = WithTool(*options.parse);
  options.stop = {"Hm", "\n\n", "<｜DSML｜", "invoke", "xyz", "Look:<"};
  const Outcome outcome =
      RunText("Hm.</think>Look:" + Block(CallOf("f", "xyz")), options, FinishReason::kStop);
  EXPECT_EQ(outcome.text.content, "Look:") << "what was held for the last stop string is released";
  EXPECT_EQ(outcome.text.end.kind, Kind::kToolCalls);
  ASSERT_EQ(outcome.text.calls.size(), 1u);
  EXPECT_EQ(outcome.text.calls[0].arguments, R"({"a": "xyz"})");
}

TEST_F(GenerationTest, AThinkTokenBehindPrefilledTextIsText) {
  GenerationOptions options = Reasoning(false);
  EXPECT_EQ(RunText("<think>Hm.</think>Yes.", options).text.reasoning, "Hm.");
  options.parse->continues_text = true;
  const Outcome continued = RunText("<think> is a tag.", options);
  EXPECT_EQ(continued.text.reasoning, "");
  EXPECT_EQ(continued.text.content, "<think> is a tag.");
}

TEST_F(GenerationTest, EveryWayToEndHasItsName) {
  const auto kind = [&](FinishReason reason, Kind at_limit) {
    Generation generation(*tokenizer_, {}, at_limit);
    engine::FinishEvent finish;
    finish.reason = reason;
    generation.OnFinish(finish);
    return generation.end().kind;
  };
  EXPECT_EQ(kind(FinishReason::kStop, Kind::kOutputCap), Kind::kStop);
  EXPECT_EQ(kind(FinishReason::kLength, Kind::kLength), Kind::kLength);
  EXPECT_EQ(kind(FinishReason::kLength, Kind::kOutputCap), Kind::kOutputCap);
  EXPECT_EQ(kind(FinishReason::kLength, Kind::kContextFull), Kind::kContextFull);
  EXPECT_EQ(kind(FinishReason::kRepetition, Kind::kLength), Kind::kRepetition);
}

}  // namespace
}  // namespace millrace::api
