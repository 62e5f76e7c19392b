// What the model generated is what the next prompt contains, token for token, whatever a client sends back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "text/chat_prompt.h"
#include "text/golden_testing.h"
#include "text/tool_declaration.h"

namespace millrace::text {
namespace {

ChatEncoder Encoder(ChatModel model) {
  auto encoder = ChatEncoder::Create(MiniTokenizer(), model);
  EXPECT_TRUE(encoder.ok()) << (encoder.ok() ? "" : encoder.error().message());
  return *std::move(encoder);
}

std::vector<TokenId> Ids(const ChatEncoder& encoder, const ChatRequest& request,
                         bool* in_reasoning = nullptr) {
  const auto prompt = encoder.Render(request);
  EXPECT_TRUE(prompt.ok()) << (prompt.ok() ? "" : prompt.error().message());
  if (!prompt.ok()) return {};
  if (in_reasoning != nullptr) *in_reasoning = prompt->starts_in_reasoning;
  return encoder.Encode(*prompt);
}

// Random answers and what random clients make of them.
class Player {
 public:
  Player(const ControlIds& ids, uint32_t seed) : ids_(ids), random_(seed) {}

  bool Chance(int percent) { return Below(100) < percent; }
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  // Tokens that no tokenizer would join in this way, a think token where reasoning ends, marks of calls.
  std::vector<TokenId> Answer(bool in_reasoning) {
    std::vector<TokenId> ids;
    if (in_reasoning) {
      AddWords(ids);
      if (Chance(15)) return ids;  // cut off
      ids.push_back(ids_.think_end);
    }
    AddWords(ids);
    for (int n = Below(3); n > 0; --n) {
      ids.push_back(ids_.dsml);
      AddWords(ids);
    }
    return ids;
  }

  // The client keeps little of what it got: no reasoning, other spacing, other arguments.
  ChatMessage Replayed(std::vector<TokenId> ids, bool in_reasoning) {
    ChatMessage message{.role = Role::kAssistant, .content = Words()};
    if (std::ranges::find(ids, ids_.dsml) != ids.end()) {
      message.tool_calls = {{.id = "a", .name = "f", .arguments = "{}"}, {.id = "b", .name = "f"}};
    }
    message.generated_ids = std::move(ids);
    message.generated_in_reasoning = in_reasoning;
    return message;
  }

  std::string Words() { return std::string(static_cast<size_t>(1 + Below(3)), 'x') + "</think> <｜User｜>"; }

  // What follows an answer: results, words, an instruction or a reminder.
  void GoOn(ChatRequest& request) {
    if (!request.messages.back().tool_calls.empty()) {
      request.messages.push_back({.role = Role::kTool, .content = Words(), .tool_call_id = "b"});
      request.messages.push_back({.role = Role::kTool, .content = Words(), .tool_call_id = "a"});
      if (Chance(50)) return;
    }
    if (Chance(10)) return;  // another answer at once
    request.messages.push_back({.role = Chance(80) ? Role::kUser : Role::kSystem, .content = Words()});
    if (Chance(20)) request.messages.push_back({.role = Role::kLatestReminder, .content = Words()});
  }

 private:
  void AddWords(std::vector<TokenId>& ids) {
    for (int n = Below(6); n >= 0; --n) ids.push_back(3 + Below(1000));
  }

  const ControlIds& ids_;
  std::mt19937 random_;
};

ToolDeclaration SomeTool() {
  return *DeclareTool(*ParseOrderedJson(R"({"name":"f","parameters":{}})"), nullptr, ChatModel::kV41);
}

TEST(ChatReplay, TheNextPromptBeginsWithThePromptAndItsAnswer) {
  for (const ChatModel model : {ChatModel::kV41, ChatModel::kV4}) {
    const ChatEncoder encoder = Encoder(model);
    for (uint32_t seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(seed);
      Player player(encoder.control_ids(), seed);
      ChatRequest request;
      request.options.thinking = player.Chance(70);
      // Reasoning that the format drops cannot stay in front of a new question.
      if (player.Chance(50)) {
        request.tools = {SomeTool()};
      } else {
        request.options.drop_reasoning = !request.options.thinking;
      }
      request.messages.push_back(
          {.role = player.Chance(80) ? Role::kUser : Role::kSystem, .content = player.Words()});
      bool in_reasoning = false;
      std::vector<TokenId> expected = Ids(encoder, request, &in_reasoning);
      for (int turn = 0; turn < 5; ++turn) {
        ASSERT_EQ(in_reasoning, request.options.thinking);
        const std::vector<TokenId> answer = player.Answer(in_reasoning);
        expected.insert(expected.end(), answer.begin(), answer.end());
        request.messages.push_back(player.Replayed(answer, in_reasoning));
        player.GoOn(request);
        std::vector<TokenId> next = Ids(encoder, request, &in_reasoning);
        ASSERT_GT(next.size(), expected.size());
        ASSERT_TRUE(std::ranges::equal(std::span(next).first(expected.size()), expected));
        expected = std::move(next);
      }
    }
  }
}

// Reasoning, ids of its own: 5 6 </think> 7 8.
struct Scene {
  ChatEncoder encoder = Encoder(ChatModel::kV41);
  const ControlIds& ids = encoder.control_ids();
  ChatRequest request{.messages = {{.role = Role::kUser, .content = "a"},
                                   {.role = Role::kAssistant, .content = "spelled", .reasoning = "thought"},
                                   {.role = Role::kUser, .content = "b"}}};

  ChatMessage& answer() { return request.messages[1]; }
  // From behind the first assistant header's think token up to the end token.
  std::vector<TokenId> Shown() {
    const std::vector<TokenId> prompt = Ids(encoder, request);
    const auto begin = std::ranges::find(prompt, ids.assistant) + 2;
    return {begin, std::find(begin, prompt.end(), ids.eos)};
  }
};

TEST(ChatReplay, DroppedReasoningLeavesTheAnswersTokens) {
  Scene scene;
  scene.answer().generated_ids = {5, 6, scene.ids.think_end, 7, 8};
  EXPECT_EQ(scene.Shown(), (std::vector<TokenId>{7, 8}));
  scene.request.options.thinking = false;
  EXPECT_EQ(scene.Shown(), (std::vector<TokenId>{7, 8}));
}

TEST(ChatReplay, ReasoningWithoutAClearEndIsSpelledWhenItMustGo) {
  Scene scene;
  const std::vector<TokenId> spelled = scene.encoder.tokenizer().EncodeText("spelled");
  const TokenId end = scene.ids.think_end;
  const std::vector<std::vector<TokenId>> unclear = {
      {5, 6},                          // cut off, or a call in the reasoning
      {5, scene.ids.dsml, 6, end, 7},  // a call in front of the end
      {5, end, 6, end, 7},             // two ends
      {5, end, scene.ids.think_begin, 6, end, 7}};
  for (const std::vector<TokenId>& ids : unclear) {
    scene.answer().generated_ids = ids;
    EXPECT_EQ(scene.Shown(), spelled);
  }
}

TEST(ChatReplay, AnAnswerOfChatModeGetsAnEmptyReasoningBlockWhereReasoningIsKept) {
  Scene scene;
  scene.request.options.drop_reasoning = false;
  scene.answer().generated_ids = {7, 8};
  scene.answer().generated_in_reasoning = false;
  EXPECT_EQ(scene.Shown(), (std::vector<TokenId>{scene.ids.think_end, 7, 8}));
}

TEST(ChatReplay, ReasoningThatWasCutOffIsClosedAndOneThatCalledIsNot) {
  Scene scene;
  scene.request.options.drop_reasoning = false;
  scene.answer().generated_ids = {5, 6};
  EXPECT_EQ(scene.Shown(), (std::vector<TokenId>{5, 6, scene.ids.think_end}));
  scene.answer().tool_calls = {{.id = "1", .name = "f"}};
  EXPECT_EQ(scene.Shown(), (std::vector<TokenId>{5, 6}));
}

TEST(ChatReplay, AContinuedAnswerStaysOpen) {
  Scene scene;
  scene.request.messages.pop_back();
  scene.request.options.continue_final_message = true;
  scene.answer().generated_ids = {5, 6};
  scene.answer().content = "";
  const auto prompt = scene.encoder.Render(scene.request);
  ASSERT_TRUE(prompt.ok());
  EXPECT_TRUE(prompt->starts_in_reasoning);
  EXPECT_THAT(scene.encoder.Encode(*prompt), ::testing::Not(::testing::Contains(scene.ids.eos)));
  scene.answer().generated_ids = {5, scene.ids.think_end, 7};
  EXPECT_FALSE(scene.encoder.Render(scene.request)->starts_in_reasoning);
}

}  // namespace
}  // namespace millrace::text
