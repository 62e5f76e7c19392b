#include <gtest/gtest.h>

#include <string>

#include "text/chat_case.h"
#include "text/chat_prompt.h"
#include "text/golden_testing.h"
#include "text/ordered_json.h"

namespace millrace::text {
namespace {

std::vector<OrderedJson> CasesOf(const std::filesystem::path& path) {
  const auto file = ParseOrderedJson(ReadFile(path));
  EXPECT_TRUE(file.ok()) << path;
  if (!file.ok()) return {};
  const OrderedJson* const cases = file->Find("cases");
  return *(cases == nullptr ? *file : *cases).if_array();
}

std::string Text(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = object.Find(key);
  return value == nullptr || value->if_string() == nullptr ? "" : *value->if_string();
}

std::string IdsJson(const std::vector<TokenId>& ids) {
  OrderedJson::Array items;
  for (const TokenId id : ids) items.emplace_back(OrderedJson::Number{std::to_string(id)});
  return PythonJson(OrderedJson(std::move(items)));
}

ChatEncoder Encoder(const Tokenizer& tokenizer, ChatModel model) {
  auto encoder = ChatEncoder::Create(tokenizer, model);
  EXPECT_TRUE(encoder.ok()) << (encoder.ok() ? "" : encoder.error().message());
  return *std::move(encoder);
}

struct Counts {
  int rendered = 0;
  int refused = 0;
  int whole_string_differs = 0;
};

class ChatGolden : public GoldenTest {
 protected:
  static Result<ChatPrompt> Render(const OrderedJson& value, ChatModel* model) {
    MILLRACE_ASSIGN_OR_RETURN(const ChatCase read, ReadChatCase(value, ChatModel::kV41));
    *model = read.model;
    return Encoder(Released(), read.model).Render(read.request);
  }

  static void CheckCase(const OrderedJson& value, Counts& counts) {
    SCOPED_TRACE(Text(value, "id"));
    const OrderedJson& expected = *value.Find("expected");
    ChatModel model = ChatModel::kV41;
    const Result<ChatPrompt> prompt = Render(value, &model);
    if (expected.Find("error") != nullptr) {
      EXPECT_FALSE(prompt.ok());
      ++counts.refused;
      return;
    }
    ASSERT_TRUE(prompt.ok()) << prompt.error().message();
    ++counts.rendered;
    const std::string spelled = prompt->pieces.Spelled(Released());
    const std::vector<TokenId> ids = Encoder(Released(), model).Encode(*prompt);
    EXPECT_EQ(spelled, Text(expected, "prompt"));
    EXPECT_EQ(IdsJson(ids), PythonJson(*expected.Find("ids")));
    EXPECT_EQ(PythonJson(OrderedJson(prompt->images)), PythonJson(*expected.Find("images")));
    // Tokenising the whole string would turn control strings of the caller's into control tokens.
    const std::vector<TokenId> unsafe = Released().EncodePrompt(spelled);
    if (const OrderedJson* const whole = expected.Find("ids_if_whole_string_is_tokenised")) {
      EXPECT_EQ(IdsJson(unsafe), PythonJson(*whole));
      EXPECT_NE(ids, unsafe);
      ++counts.whole_string_differs;
    } else {
      EXPECT_EQ(ids, unsafe);
    }
  }

  static Counts CheckFile(const char* name) {
    Counts counts;
    for (const OrderedJson& value : CasesOf(GoldenDir() / name)) CheckCase(value, counts);
    return counts;
  }
};

TEST_F(ChatGolden, V41RendersEveryCase) {
  const Counts counts = CheckFile("chat/encode-v41.json");
  EXPECT_EQ(counts.rendered, 81);
  EXPECT_EQ(counts.refused, 6);
  EXPECT_EQ(counts.whole_string_differs, 3);
}

TEST_F(ChatGolden, V4RendersEveryCase) {
  const Counts counts = CheckFile("chat/encode-v4.json");
  EXPECT_EQ(counts.rendered, 16);
  EXPECT_EQ(counts.refused, 1);
}

TEST(ChatExamples, TheMiniCheckpointWasTrainedOnTheseIds) {
  const ChatEncoder encoder = Encoder(MiniTokenizer(), ChatModel::kV41);
  int rendered = 0;
  for (const OrderedJson& example : CasesOf(MiniDir() / "examples.json")) {
    auto read = ReadChatCase(example, ChatModel::kV41);
    ASSERT_TRUE(read.ok()) << read.error().message();
    ChatRequest& request = read->request;
    request.options.thinking = *example.Find("thinking")->if_bool();
    if (const OrderedJson::Number* const effort = example.Find("effort")->if_number()) {
      request.options.reasoning_effort = std::stoi(effort->text);
    }
    request.options.always_open_answer = true;
    const auto prompt = encoder.Render(request);
    ASSERT_TRUE(prompt.ok()) << prompt.error().message();
    EXPECT_EQ(prompt->pieces.Spelled(MiniTokenizer()), Text(example, "prompt"));
    EXPECT_EQ(IdsJson(encoder.Encode(*prompt)), PythonJson(*example.Find("prompt_ids")));
    EXPECT_EQ(prompt->starts_in_reasoning, request.options.thinking);
    ++rendered;
  }
  EXPECT_EQ(rendered, 14);
}

}  // namespace
}  // namespace millrace::text
