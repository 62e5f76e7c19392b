// The generation endpoints over a whole server with a scripted model: transcripts of the good cases and each
// refusal.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "api/server_answers_testing.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kHello = R"({"messages":[{"role":"user","content":"Hello!"}],"temperature":0)";
constexpr const char* kChat = kChatPath;
constexpr const char* kCompletions = kCompletionsPath;

std::string Hello(const std::string& fields) {
  return kHello + fields + "}";
}

class ServerGenerationTest : public ServerAnswersTest {
 protected:
  void Start(ScriptedServerOptions options = {}) {
    ASSERT_NO_FATAL_FAILURE(ScriptedServerTest::Start(std::move(options)));
    server_->PlayChat("Hello!", /*thinking=*/true, "They greet.</think>Hello! How can I help you?");
    server_->PlayChat("Hello!", /*thinking=*/false, "Hello! How can I help you?");
  }
};

TEST_F(ServerGenerationTest, AChatAnswersWithEveryFieldOfTheApi) {
  Start();
  const json::object answer = Answer(kChat, Hello(R"(,"model":"scripted")"));
  EXPECT_THAT(std::string(answer.at("id").as_string()), StartsWith("chatcmpl-"));
  EXPECT_EQ(answer.at("object").as_string(), "chat.completion");
  EXPECT_TRUE(answer.at("created").is_int64());
  EXPECT_EQ(answer.at("model").as_string(), "scripted");
  EXPECT_EQ(answer.at("system_fingerprint").as_string(), "millrace-test");
  const json::object& choice = FirstChoice(answer);
  EXPECT_EQ(choice.at("index").as_int64(), 0);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  const json::object& message = choice.at("message").as_object();
  EXPECT_EQ(message.at("role").as_string(), "assistant");
  EXPECT_EQ(message.at("content").as_string(), "Hello! How can I help you?");
  EXPECT_EQ(message.at("reasoning_content").as_string(), "They greet.");
  EXPECT_EQ(message.at("reasoning").as_string(), "They greet.");

  const auto tokens = [&](const char* text) {
    return static_cast<int64_t>(server_->tokenizer().EncodePrompt(text).size());
  };
  const json::object& usage = answer.at("usage").as_object();
  const int64_t reasoning = tokens("They greet.");
  const int64_t completion = reasoning + 1 + tokens("Hello! How can I help you?") + 1;
  EXPECT_EQ(usage.at("completion_tokens").as_int64(), completion);
  EXPECT_GT(usage.at("prompt_tokens").as_int64(), 10);
  EXPECT_EQ(usage.at("total_tokens").as_int64(), usage.at("prompt_tokens").as_int64() + completion);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), 0);
  EXPECT_EQ(usage.at("completion_tokens_details").at("reasoning_tokens").as_int64(), reasoning);
}

TEST_F(ServerGenerationTest, AStreamedChatSaysTheSameInChunks) {
  Start();
  const std::vector<json::object> chunks =
      Stream(kChat, Hello(R"(,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_GT(chunks.size(), 4u);
  std::string content, reasoning;
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i].at("object").as_string(), "chat.completion.chunk");
    EXPECT_EQ(chunks[i].at("id"), chunks[0].at("id"));
    EXPECT_TRUE(chunks[i].at("created").is_int64());
    EXPECT_TRUE(chunks[i].at("usage").is_null());
    const json::object& choice = FirstChoice(chunks[i]);
    const json::object& delta = choice.at("delta").as_object();
    EXPECT_EQ(delta.contains("role"), i == 0);
    if (const json::value* text = delta.if_contains("content")) content += text->as_string();
    if (const json::value* text = delta.if_contains("reasoning_content")) reasoning += text->as_string();
    EXPECT_EQ(choice.at("finish_reason").is_null(), i + 2 != chunks.size());
  }
  EXPECT_EQ(content, "Hello! How can I help you?");
  EXPECT_EQ(reasoning, "They greet.");
  EXPECT_EQ(FirstChoice(chunks[chunks.size() - 2]).at("finish_reason").as_string(), "stop");
  EXPECT_TRUE(chunks.back().at("choices").as_array().empty());
  EXPECT_EQ(chunks.back().at("usage"), Answer(kChat, Hello("")).at("usage"));
}

TEST_F(ServerGenerationTest, ChunksCarryNoUsageUnlessAskedFor) {
  Start();
  for (const json::object& chunk : Stream(kChat, Hello(R"(,"stream":true)")))
    EXPECT_FALSE(chunk.contains("usage"));
}

TEST_F(ServerGenerationTest, ThinkingCanBeSwitchedOff) {
  Start();
  const json::object answer = Answer(kChat, Hello(R"(,"chat_template_kwargs":{"thinking":false})"));
  EXPECT_EQ(FirstChoice(answer).at("message").at("content").as_string(), "Hello! How can I help you?");
  EXPECT_FALSE(FirstChoice(answer).at("message").as_object().contains("reasoning_content"));
}

TEST_F(ServerGenerationTest, LengthAndStopStringsEndAnAnswer) {
  Start();
  const json::object cut = Answer(kChat, Hello(R"(,"thinking":{"type":"disabled"},"max_tokens":2)"));
  EXPECT_EQ(FirstChoice(cut).at("finish_reason").as_string(), "length");
  EXPECT_EQ(cut.at("usage").at("completion_tokens").as_int64(), 2);

  const std::string stopped = Hello(R"(,"thinking":{"type":"disabled"},"stop":["can I"])");
  const json::object whole = Answer(kChat, stopped);
  EXPECT_EQ(FirstChoice(whole).at("message").at("content").as_string(), "Hello! How ");
  EXPECT_EQ(FirstChoice(whole).at("finish_reason").as_string(), "stop");
  std::string content;
  const std::string streamed = stopped.substr(0, stopped.size() - 1) + R"(,"stream":true})";
  for (const json::object& chunk : Stream(kChat, streamed)) {
    const json::object& delta = FirstChoice(chunk).at("delta").as_object();
    if (const json::value* text = delta.if_contains("content")) content += text->as_string();
  }
  EXPECT_EQ(content, "Hello! How ");
  WaitUntilFree();
}

TEST_F(ServerGenerationTest, LogprobsOfAChat) {
  Start();
  const json::object answer =
      Answer(kChat, Hello(R"(,"thinking":{"type":"disabled"},"logprobs":true,"top_logprobs":2)"));
  const json::object& logprobs = FirstChoice(answer).at("logprobs").as_object();
  std::string text;
  for (const json::value& entry : logprobs.at("content").as_array()) {
    text += entry.at("token").as_string();
    EXPECT_TRUE(entry.at("logprob").is_double());
    EXPECT_EQ(entry.at("bytes").as_array().size(), entry.at("token").as_string().size());
    EXPECT_EQ(entry.at("top_logprobs").as_array().size(), 2u);
    EXPECT_EQ(entry.at("top_logprobs").as_array()[0].at("token"), entry.at("token"));
  }
  EXPECT_EQ(text, "Hello! How can I help you?");
}

TEST_F(ServerGenerationTest, SeveralChoicesShareOnePrompt) {
  Start();
  const json::object one = Answer(kChat, Hello(""));
  const json::object three = Answer(kChat, Hello(R"(,"n":3)"));
  ASSERT_EQ(three.at("choices").as_array().size(), 3u);
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_EQ(three.at("choices").as_array()[static_cast<size_t>(c)].at("index").as_int64(), c);
    EXPECT_EQ(three.at("choices").as_array()[static_cast<size_t>(c)].at("message"),
              FirstChoice(one).at("message"));
  }
  EXPECT_EQ(three.at("usage").at("prompt_tokens"), one.at("usage").at("prompt_tokens"));
  EXPECT_EQ(three.at("usage").at("completion_tokens").as_int64(),
            3 * one.at("usage").at("completion_tokens").as_int64());
}

TEST_F(ServerGenerationTest, SeedsCountUpWithTheChoices) {
  Start();
  // All ids equally likely: the text is the noise of the seed.
  model().ComputeLogits(
      [](std::span<const TokenId>, std::span<float> logits) { std::ranges::fill(logits, 0.0f); });
  const auto texts = [&](const std::string& fields) {
    std::vector<std::string> list;
    const json::object answer = Answer(kCompletions, R"({"prompt":"a","max_tokens":8)" + fields + "}");
    for (const json::value& choice : answer.at("choices").as_array())
      list.emplace_back(choice.at("text").as_string());
    return list;
  };
  const std::vector<std::string> two = texts(R"(,"seed":5,"n":2)");
  EXPECT_NE(two[0], two[1]);
  EXPECT_EQ(texts(R"(,"seed":5)")[0], two[0]);
  EXPECT_EQ(texts(R"(,"seed":6)")[0], two[1]);
  EXPECT_NE(texts("")[0], texts("")[0]) << "without a seed each request draws anew";
}

TEST_F(ServerGenerationTest, CompletionsInEveryPromptForm) {
  Start();
  server_->PlayByDefault("Once.");
  const json::object answer = Answer(kCompletions, R"({"prompt":"Tell","model":"deepseek-v4.1-flash"})");
  EXPECT_THAT(std::string(answer.at("id").as_string()), StartsWith("cmpl-"));
  EXPECT_EQ(answer.at("object").as_string(), "text_completion");
  EXPECT_EQ(answer.at("model").as_string(), "deepseek-v4.1-flash");
  EXPECT_EQ(FirstChoice(answer).at("text").as_string(), "Once.");
  EXPECT_EQ(FirstChoice(answer).at("finish_reason").as_string(), "stop");

  const json::object batch = Answer(kCompletions, R"({"prompt":[[5,6],[7]],"n":2,"echo":true})");
  ASSERT_EQ(batch.at("choices").as_array().size(), 4u);
  EXPECT_EQ(batch.at("usage").at("prompt_tokens").as_int64(), 3);
  const text::Tokenizer& tokenizer = server_->tokenizer();
  const std::vector<TokenId> first = {5, 6}, second = {7};
  EXPECT_EQ(batch.at("choices").as_array()[1].at("text").as_string(), tokenizer.Decode(first) + "Once.");
  EXPECT_EQ(batch.at("choices").as_array()[2].at("text").as_string(), tokenizer.Decode(second) + "Once.");
}

TEST_F(ServerGenerationTest, ARawPromptIsTrustedAndBeginsWithBos) {
  Start();
  const TokenId bos = *server_->tokenizer().FindToken("<｜begin▁of▁sentence｜>");
  const TokenId user = *server_->tokenizer().FindToken("<｜User｜>");
  Answer(kCompletions, R"({"prompt":"<｜User｜>","max_tokens":1})");
  Answer(kCompletions, R"({"prompt":"<｜begin▁of▁sentence｜><｜User｜>","max_tokens":1})");
  for (const auto& step : model().recorded_steps())
    EXPECT_THAT(step.at(0).tokens, ::testing::ElementsAre(bos, user));
  // In a chat the same text is nothing but text.
  Answer(kChat, R"({"messages":[{"role":"user","content":"<｜User｜>"}],"max_tokens":1})");
  const std::vector<TokenId> chat = model().recorded_steps().back().at(0).tokens;
  EXPECT_EQ(std::ranges::count(chat, user), 1);
}

TEST_F(ServerGenerationTest, ASuffixMakesAHoleToBeFilledIn) {
  Start();
  server_->PlayByDefault("middle");
  const text::Tokenizer& tokenizer = server_->tokenizer();
  std::vector<TokenId> expected = {*tokenizer.FindToken("<｜begin▁of▁sentence｜>"),
                                   *tokenizer.FindToken("<｜fim▁begin｜>")};
  const auto append = [&](const std::vector<TokenId>& ids) {
    expected.insert(expected.end(), ids.begin(), ids.end());
  };
  append(tokenizer.EncodeText("def f():"));
  expected.push_back(*tokenizer.FindToken("<｜fim▁hole｜>"));
  append(tokenizer.EncodeText("return x"));
  expected.push_back(*tokenizer.FindToken("<｜fim▁end｜>"));
  const json::object answer =
      Answer(kCompletions, R"({"prompt":"def f():","suffix":"return x","max_tokens":1,"temperature":0})");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens").as_int64(), static_cast<int64_t>(expected.size()));
  EXPECT_EQ(Read(1), expected);
  Answer(kCompletions, R"({"prompt":"<｜begin▁of▁sentence｜>def f():","suffix":"return x","max_tokens":1})");
  EXPECT_EQ(Read(2), expected) << "BOS stands once, in front";
}

TEST_F(ServerGenerationTest, CompletionLogprobsInTheOldForm) {
  Start();
  server_->PlayByDefault("Once there.");
  const json::object answer = Answer(kCompletions, R"({"prompt":"a","logprobs":1})");
  const json::object& logprobs = FirstChoice(answer).at("logprobs").as_object();
  const json::array& tokens = logprobs.at("tokens").as_array();
  ASSERT_GT(tokens.size(), 1u);
  int64_t offset = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(logprobs.at("text_offset").as_array()[i].as_int64(), offset);
    offset += static_cast<int64_t>(tokens[i].as_string().size());
    EXPECT_TRUE(logprobs.at("top_logprobs").as_array()[i].as_object().contains(tokens[i].as_string()));
    EXPECT_TRUE(logprobs.at("token_logprobs").as_array()[i].is_double());
  }
  EXPECT_EQ(offset, 11);
}

TEST_F(ServerGenerationTest, AStreamedCompletionSaysTheSame) {
  Start();
  server_->PlayByDefault("Once there was a dog.");
  std::string text;
  for (const json::object& chunk : Stream(kCompletions, R"({"prompt":"a","echo":true,"stream":true})")) {
    EXPECT_EQ(chunk.at("object").as_string(), "text_completion");
    text += FirstChoice(chunk).at("text").as_string();
  }
  EXPECT_EQ(text, "aOnce there was a dog.");
}

TEST_F(ServerGenerationTest, Models) {
  ScriptedServerOptions options;
  options.service.served_model_names = {"one", "org/two"};
  Start(options);
  const json::value list = json::parse(AskOnce(port(), "GET", "/v1/models").body);
  EXPECT_EQ(list.at("object").as_string(), "list");
  ASSERT_EQ(list.at("data").as_array().size(), 2u);
  const json::value& first = list.at("data").as_array()[0];
  EXPECT_EQ(first.at("id").as_string(), "one");
  EXPECT_EQ(first.at("object").as_string(), "model");
  EXPECT_TRUE(first.at("created").is_int64());
  EXPECT_EQ(first.at("max_model_len").as_int64(), 4096);
  for (const char* path : {"/v1/models/org/two", "/v1/models/org%2Ftwo"})
    EXPECT_EQ(json::parse(AskOnce(port(), "GET", path).body).at("id").as_string(), "org/two");
  const ClientResponse unknown = AskOnce(port(), "GET", "/v1/models/gpt-9");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr(R"("code":"model_not_found")"));
  EXPECT_THAT(unknown.body, HasSubstr("'one', 'org/two'"));
}

TEST_F(ServerGenerationTest, RefusalsAreErrorObjects) {
  ScriptedServerOptions options;
  options.model.max_model_len = 20;
  Start(options);
  const auto refused = [&](const std::string& body, int status, const char* code, const char* says) {
    const ClientResponse response = AskOnce(port(), "POST", kCompletions, body);
    EXPECT_EQ(response.status, status) << body;
    EXPECT_THAT(response.body, HasSubstr(std::string(R"("code":")") + code)) << body;
    EXPECT_THAT(response.body, HasSubstr(says)) << body;
    EXPECT_TRUE(response.headers.contains("x-request-id"));
  };
  refused("{", 400, "invalid_json", "line 1");
  refused(R"({"prompt":"a","model":"gpt-9"})", 404, "model_not_found", "'gpt-9' does not exist");
  refused(R"({"prompt":"a","temperature":-1})", 400, "invalid_value", "'temperature': -1");
  refused(R"({"prompt":[99999]})", 400, "invalid_value", "token id 99999");
  refused(R"({"prompt":"a","stop_token_ids":[99999]})", 400, "invalid_value", "99999");
  refused(R"({"prompt":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]})", 400, "context_length_exceeded",
          "This model's maximum context length is 20 tokens. However, your prompt resulted in 20 tokens.");
  EXPECT_EQ(
      AskOnce(port(), "POST", kCompletions, R"({"prompt":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]})").status,
      200)
      << "one token of room is enough";
  EXPECT_TRUE(model().recorded_steps().size() == 1);
}

TEST_F(ServerGenerationTest, TheOutputIsBoundedByContextAndDefault) {
  ScriptedServerOptions options;
  options.model.max_model_len = 20;
  options.service.default_max_tokens = 6;
  Start(options);
  server_->PlayByDefault("a b c d e f g h i j k l m n o p q r s t u v w x y z");
  const auto generated = [&](const std::string& fields) {
    const json::object answer = Answer(kCompletions, R"({"prompt":[1,1,1,1])" + fields + "}");
    EXPECT_EQ(FirstChoice(answer).at("finish_reason").as_string(), "length");
    return answer.at("usage").at("completion_tokens").as_int64();
  };
  EXPECT_EQ(generated(""), 6);
  EXPECT_EQ(generated(R"(,"max_tokens":9)"), 9);
  EXPECT_EQ(generated(R"(,"max_tokens":1000000000000)"), 16);
}

}  // namespace
}  // namespace millrace::api
