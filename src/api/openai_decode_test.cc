#include "api/openai_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace millrace::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename T>
T Decoded(std::variant<T, ApiError> result) {
  if (const ApiError* const error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<T>(std::move(result));
}

ChatCompletionRequest Chat(const std::string& fields) {
  return Decoded(DecodeChatRequest(R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}"));
}

CompletionRequest Completion(const std::string& fields) {
  return Decoded(DecodeCompletionRequest("{" + fields + "}"));
}

TEST(OpenAiDecode, AMinimalChatGetsTheDefaultsOfTheApi) {
  const ChatCompletionRequest request = Chat("");
  ASSERT_EQ(request.chat.messages.size(), 1u);
  EXPECT_EQ(request.chat.messages[0].role, text::Role::kUser);
  EXPECT_EQ(request.chat.messages[0].content.Text(), "hi");
  EXPECT_TRUE(request.chat.options.thinking);
  EXPECT_EQ(request.chat.options.reasoning_effort, std::nullopt);
  EXPECT_EQ(request.output.temperature, 1.0f);
  EXPECT_EQ(request.output.top_p, 1.0f);
  EXPECT_EQ(request.output.n, 1);
  EXPECT_FALSE(request.output.max_tokens || request.output.seed || request.output.logprobs);
  EXPECT_FALSE(request.output.stream || request.output.include_usage || request.output.ignore_eos);
}

TEST(OpenAiDecode, ReadsEveryOutputField) {
  const OutputOptions output =
      Chat(R"(,"model":"m","max_tokens":5,"temperature":0.5,"top_p":0.25,"top_k":40,"min_p":0.125,"seed":-1,
             "stop":["a","b"],"stop_token_ids":[3,4],"ignore_eos":true,"n":2,"stream":true,
             "stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":3,"user":"u",
             "presence_penalty":0.5,"frequency_penalty":-0.5,"repetition_penalty":1.5,"min_tokens":4,
             "logit_bias":{"7":-100,"3":0.5},
             "unheard_of":{"x":[1]})")
          .output;
  EXPECT_EQ(output.model, "m");
  EXPECT_EQ(output.max_tokens, 5);
  EXPECT_EQ(output.temperature, 0.5f);
  EXPECT_EQ(output.top_p, 0.25f);
  EXPECT_EQ(output.top_k, 40);
  EXPECT_EQ(output.min_p, 0.125f);
  EXPECT_EQ(output.seed, UINT64_MAX);
  EXPECT_THAT(output.stop, ElementsAre("a", "b"));
  EXPECT_THAT(output.stop_token_ids, ElementsAre(3, 4));
  EXPECT_TRUE(output.ignore_eos && output.stream && output.include_usage);
  EXPECT_EQ(output.n, 2);
  EXPECT_EQ(output.logprobs, 3);
  EXPECT_EQ(output.presence_penalty, 0.5f);
  EXPECT_EQ(output.frequency_penalty, -0.5f);
  EXPECT_EQ(output.repetition_penalty, 1.5f);
  EXPECT_EQ(output.min_tokens, 4);
  ASSERT_EQ(output.logit_bias.size(), 2u);
  EXPECT_EQ(output.logit_bias[0].token, 7);
  EXPECT_EQ(output.logit_bias[0].bias, -100.0f);
}

TEST(OpenAiDecode, FieldsWithoutAnEffectHereAreIgnoredWhateverTheyHold) {
  Chat(R"(,"user":5,"metadata":{"a":"b"},"store":true,"service_tier":"auto","prediction":{"type":"content"},
          "cache_control":{"type":"ephemeral"},"reasoning_split":1)");
}

TEST(OpenAiDecode, SpellingsThatMeanTheSame) {
  EXPECT_EQ(Chat(R"(,"max_tokens":5,"max_completion_tokens":7)").output.max_tokens, 7);
  EXPECT_EQ(Chat(R"(,"top_k":-1)").output.top_k, 0);
  EXPECT_GT(Chat(R"(,"top_p":0)").output.top_p, 0.0f);
  EXPECT_THAT(Chat(R"(,"stop":"x")").output.stop, ElementsAre("x"));
  EXPECT_THAT(Chat(R"(,"stop":null)").output.stop, IsEmpty());
  EXPECT_EQ(Chat(R"(,"logprobs":true)").output.logprobs, 0);
  EXPECT_EQ(Chat(R"(,"logprobs":false)").output.logprobs, std::nullopt);
}

TEST(OpenAiDecode, PromptsAsTextAndAsIds) {
  using Ids = std::vector<TokenId>;
  EXPECT_THAT(Completion(R"("prompt":"a")").prompts, ElementsAre(Prompt("a")));
  EXPECT_THAT(Completion(R"("prompt":["a","b"])").prompts, ElementsAre(Prompt("a"), Prompt("b")));
  EXPECT_THAT(Completion(R"("prompt":[1,2])").prompts, ElementsAre(Prompt(Ids{1, 2})));
  EXPECT_THAT(Completion(R"("prompt":[[1],[2,3]])").prompts, ElementsAre(Prompt(Ids{1}), Prompt(Ids{2, 3})));
  EXPECT_TRUE(Completion(R"("prompt":"a","echo":true)").echo);
  EXPECT_EQ(Completion(R"("prompt":"a","logprobs":0)").output.logprobs, 0);
}

TEST(OpenAiDecode, TurnsOfEveryRoleAndContentForm) {
  const ChatCompletionRequest request = Decoded(DecodeChatRequest(R"({"messages":[
      {"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"user","content":null},
      {"role":"assistant","content":"c","reasoning":"r"},
      {"role":"assistant","content":"d","reasoning_content":"q","reasoning":"r","tool_calls":[]}]})"));
  ASSERT_EQ(request.chat.messages.size(), 4u);
  EXPECT_EQ(request.chat.messages[0].role, text::Role::kDeveloper);
  EXPECT_EQ(request.chat.messages[0].content.Text(), "a\n\nb");
  EXPECT_EQ(request.chat.messages[1].content.Text(), "");
  EXPECT_EQ(request.chat.messages[2].role, text::Role::kAssistant);
  EXPECT_EQ(request.chat.messages[2].reasoning, "r");
  EXPECT_EQ(request.chat.messages[3].reasoning, "q");
}

TEST(OpenAiDecode, ThinkingAndEffort) {
  struct Case {
    const char* fields;
    bool thinking;
    std::optional<int> effort;
  };
  const Case cases[] = {
      {R"(,"reasoning_effort":"none")", false, std::nullopt},
      {R"(,"reasoning_effort":"minimal")", true, 50},
      {R"(,"reasoning_effort":"xhigh")", true, 75},
      {R"(,"reasoning_effort":"max")", true, 100},
      {R"(,"reasoning_effort":33)", true, 33},
      {R"(,"reasoning_effort":"34")", true, 34},
      {R"(,"thinking":{"type":"disabled"},"reasoning_effort":"max")", false, std::nullopt},
      {R"(,"thinking":{"type":"adaptive"},"reasoning_effort":"none")", true, std::nullopt},
      {R"(,"thinking":{"type":"enabled"},"chat_template_kwargs":{"thinking":false})", true, std::nullopt},
      {R"(,"chat_template_kwargs":{"thinking":false})", false, std::nullopt},
      {R"(,"chat_template_kwargs":{"enable_thinking":false,"unknown":1})", false, std::nullopt},
      {R"(,"chat_template_kwargs":{"reasoning_effort":"low"})", true, 50},
      {R"(,"chat_template_kwargs":{"reasoning_effort":"low"},"reasoning_effort":"max")", true, 100},
      {R"(,"enable_thinking":false)", false, std::nullopt},
      {R"(,"chat_template_kwargs":{"thinking":true},"enable_thinking":false)", true, std::nullopt},
  };
  for (const Case& c : cases) {
    const ChatCompletionRequest request = Chat(c.fields);
    EXPECT_EQ(request.chat.options.thinking, c.thinking) << c.fields;
    EXPECT_EQ(request.chat.options.reasoning_effort, c.effort) << c.fields;
  }
}

TEST(OpenAiDecode, BrokenTextIsRepairedNotRefused) {
  const auto content = [](const std::string& json) {
    return Decoded(DecodeChatRequest(R"({"messages":[{"role":"user","content":")" + json + R"("}]})"))
        .chat.messages.at(0)
        .content.Text();
  };
  EXPECT_EQ(content("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(content("cut \xE2\x82"), "cut \uFFFD");
  EXPECT_EQ(content(R"(a\ud83dz)"), "a\uFFFDz");
  EXPECT_EQ(content(R"(a\udc00z)"), "a\uFFFDz");
  EXPECT_EQ(content(R"(\ud83d\ud83d\ude00)"), "\uFFFD\U0001F600");
  EXPECT_EQ(content(R"(\ud83d\ude00)"), "\U0001F600");
  EXPECT_EQ(content(R"(\\ud83d)"), "\\ud83d");
  EXPECT_EQ(content(R"(\u0041\n\")"), "A\n\"");
}

struct Refusal {
  const char* body;
  ApiErrorKind kind;
  const char* param;
  const char* says;
};

const std::string kHi = R"("messages":[{"role":"user","content":"hi"}],)";

TEST(OpenAiDecode, RefusesAChatAndNamesTheField) {
  using K = ApiErrorKind;
  const Refusal cases[] = {
      {R"("temperature":7)", K::kInvalidValue, "temperature", "7. Expected a number between 0 and 2"},
      {R"("temperature":"1")", K::kInvalidType, "temperature", "\"1\". Expected a number"},
      {R"("max_tokens":0)", K::kInvalidValue, "max_tokens", "0. Expected an integer of at least 1"},
      {R"("max_tokens":1.5)", K::kInvalidType, "max_tokens", "Expected an integer"},
      {R"("max_tokens":1.0)", K::kInvalidType, "max_tokens", "Expected an integer"},
      {R"("max_tokens":true)", K::kInvalidType, "max_tokens", "true. Expected an integer"},
      {R"("max_tokens":18446744073709551615)", K::kInvalidValue, "max_tokens", "18446744073709551615"},
      {R"("n":129)", K::kInvalidValue, "n", "between 1 and 128"},
      {R"("stream":1)", K::kInvalidType, "stream", "true or false"},
      {R"("stream_options":[])", K::kInvalidType, "stream_options", "an object"},
      {R"("stream_options":{"include_usage":"yes"})", K::kInvalidType, "stream_options.include_usage",
       "\"yes\""},
      {R"("stop":"")", K::kInvalidValue, "stop", "\"\""},
      {R"("stop":["a",""])", K::kInvalidValue, "stop[1]", "a string of 1 to"},
      {R"("stop":["a",1])", K::kInvalidType, "stop[1]", "1. Expected"},
      {R"("stop":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1])", K::kInvalidValue, "stop", "an array of 17"},
      {R"("stop_token_ids":[-1])", K::kInvalidValue, "stop_token_ids[0]", "-1"},
      {R"("stop_token_ids":[4294967296])", K::kInvalidValue, "stop_token_ids[0]", "4294967296"},
      {R"("top_logprobs":2)", K::kInvalidValue, "top_logprobs", "'logprobs': true"},
      {R"("logprobs":true,"top_logprobs":21)", K::kInvalidValue, "top_logprobs", "between 0 and 20"},
      {R"("logprobs":2)", K::kInvalidType, "logprobs", "true or false"},
      {R"("model":5)", K::kInvalidType, "model", "a string"},
      {R"("functions":[{"name":"f"}])", K::kUnsupportedField, "functions", "say it with 'tools'"},
      {R"("function_call":{"name":"f"})", K::kUnsupportedField, "function_call", "'tool_choice'"},
      {R"("suffix":"b")", K::kUnsupportedField, "suffix", "empty"},
      {R"("echo":true)", K::kUnsupportedField, "echo", "false"},
      {R"("response_format":{"type":"json_object"})", K::kUnsupportedField, "response_format", "text"},
      {R"("logit_bias":[1])", K::kInvalidType, "logit_bias", "an object"},
      {R"("logit_bias":{"five":1})", K::kInvalidValue, "logit_bias", "\"five\". Expected token ids"},
      {R"("logit_bias":{"-5":1})", K::kInvalidValue, "logit_bias", "\"-5\""},
      {R"("logit_bias":{"5":101})", K::kInvalidValue, "logit_bias.5", "between -100 and 100"},
      {R"("logit_bias":{"5":"1"})", K::kInvalidType, "logit_bias.5", "a number"},
      {R"("presence_penalty":2.5)", K::kInvalidValue, "presence_penalty", "between -2 and 2"},
      {R"("frequency_penalty":-3)", K::kInvalidValue, "frequency_penalty", "between -2 and 2"},
      {R"("repetition_penalty":0)", K::kInvalidValue, "repetition_penalty", "between"},
      {R"("min_tokens":-1)", K::kInvalidValue, "min_tokens", "at least 0"},
      {R"("min_tokens":6,"max_tokens":5)", K::kInvalidValue, "min_tokens", "between 0 and 5"},
      {R"("modalities":["text","audio"])", K::kUnsupportedField, "modalities", "text"},
      {R"("thinking":{"type":"maybe"})", K::kInvalidValue, "thinking.type", "\"maybe\""},
      {R"("thinking":true)", K::kInvalidType, "thinking", "an object"},
      {R"("reasoning_effort":"hard")", K::kInvalidValue, "reasoning_effort", "minimal"},
      {R"("reasoning_effort":101)", K::kInvalidValue, "reasoning_effort", "101"},
      {R"("reasoning_effort":true)", K::kInvalidType, "reasoning_effort", "true"},
      {R"("chat_template_kwargs":{"thinking":1})", K::kInvalidType, "chat_template_kwargs.thinking",
       "true or"},
  };
  for (const Refusal& c : cases) {
    const auto result = DecodeChatRequest("{" + kHi + c.body + "}");
    const ApiError* const error = std::get_if<ApiError>(&result);
    ASSERT_NE(error, nullptr) << c.body;
    EXPECT_EQ(error->kind, c.kind) << c.body << ": " << error->message;
    EXPECT_EQ(error->param, c.param);
    EXPECT_THAT(error->message, HasSubstr(c.param));
    EXPECT_THAT(error->message, HasSubstr(c.says));
    EXPECT_EQ(error->status(), 400);
    EXPECT_EQ(error->type(), "invalid_request_error");
  }
}

TEST(OpenAiDecode, RefusesMessagesAndNamesTheirPlace) {
  using K = ApiErrorKind;
  const Refusal cases[] = {
      {R"({})", K::kMissingField, "messages", "required"},
      {R"({"messages":[]})", K::kInvalidValue, "messages", "an array of 0"},
      {R"({"messages":"hi"})", K::kInvalidType, "messages", "\"hi\""},
      {R"({"messages":["hi"]})", K::kInvalidType, "messages[0]", "an object"},
      {R"({"messages":[{"content":"hi"}]})", K::kMissingField, "messages[0].role", "required"},
      {R"({"messages":[{"role":"function","name":"f","content":"hi"}]})", K::kInvalidValue,
       "messages[0].role", "\"function\". Expected system"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":5}]})", K::kInvalidType,
       "messages[1].content", "5"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}]})",
       K::kUnsupportedField, "messages[0].content[1].type", "\"image_url\""},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", K::kMissingField,
       "messages[0].content[0].text", "required"},
      {R"({"messages":[{"role":"user","content":[{"type":"input_audio"}]}]})", K::kUnsupportedField,
       "messages[0].content[0].type", "of type text only"},
      {R"({"messages":[{"role":"user","content":[{"type":"file"}]}]})", K::kUnsupportedField,
       "messages[0].content[0].type", "\"file\""},
      {R"({"messages":[{"role":"tool","content":[{"type":"image"}]}]})", K::kUnsupportedField,
       "messages[0].content[0].type", "does not read images"},
      {R"({"messages":[{"role":"assistant","function_call":{"name":"f"}}]})", K::kUnsupportedField,
       "messages[0].function_call", "Send 'tool_calls'"},
      {R"({"messages":[{"role":"assistant","audio":{"id":"a"}}]})", K::kUnsupportedField, "messages[0].audio",
       "'content'"},
  };
  for (const Refusal& c : cases) {
    const auto result = DecodeChatRequest(c.body);
    const ApiError* const error = std::get_if<ApiError>(&result);
    ASSERT_NE(error, nullptr) << c.body;
    EXPECT_EQ(error->kind, c.kind) << c.body << ": " << error->message;
    EXPECT_EQ(error->param, c.param);
    EXPECT_THAT(error->message, HasSubstr(c.says));
  }
}

TEST(OpenAiDecode, RefusesPrompts) {
  using K = ApiErrorKind;
  const Refusal cases[] = {
      {R"({})", K::kMissingField, "prompt", "required"},
      {R"({"prompt":null})", K::kMissingField, "prompt", "required"},
      {R"({"prompt":5})", K::kInvalidType, "prompt", "5"},
      {R"({"prompt":[]})", K::kInvalidValue, "prompt", "an array of 0"},
      {R"({"prompt":[1,"a"]})", K::kInvalidType, "prompt[1]", "a token id"},
      {R"({"prompt":["a",1]})", K::kInvalidType, "prompt[1]", "1"},
      {R"({"prompt":[[1],[]]})", K::kInvalidType, "prompt[1]", "an array of 0"},
      {R"({"prompt":[[1],[-2]]})", K::kInvalidValue, "prompt[1][0]", "-2"},
      {R"({"prompt":["a","b"],"n":100})", K::kInvalidValue, "n", "100 choices of 2 prompts"},
      {R"({"prompt":"a","echo":true,"logprobs":1})", K::kUnsupportedField, "logprobs", "echo"},
      {R"({"prompt":"a","suffix":5})", K::kInvalidType, "suffix", "a string"},
      {R"({"prompt":"a","tools":[{}]})", K::kUnsupportedField, "tools", "empty"},
      {R"({"prompt":"a","best_of":3})", K::kUnsupportedField, "best_of", "1"},
  };
  for (const Refusal& c : cases) {
    const auto result = DecodeCompletionRequest(c.body);
    const ApiError* const error = std::get_if<ApiError>(&result);
    ASSERT_NE(error, nullptr) << c.body;
    EXPECT_EQ(error->kind, c.kind) << c.body << ": " << error->message;
    EXPECT_EQ(error->param, c.param);
    EXPECT_THAT(error->message, HasSubstr(c.says));
  }
}

TEST(OpenAiDecode, RefusesWhatIsNotAJsonObject) {
  const auto message = [](const std::string& body) {
    const auto result = DecodeChatRequest(body);
    const ApiError* const error = std::get_if<ApiError>(&result);
    EXPECT_NE(error, nullptr) << body;
    if (error == nullptr) return std::string();
    EXPECT_EQ(error->kind, ApiErrorKind::kInvalidJson);
    return error->message;
  };
  EXPECT_THAT(message(""), HasSubstr("empty"));
  EXPECT_THAT(message("[]"), HasSubstr("not an object"));
  EXPECT_THAT(message("{\"a\":1"), HasSubstr("line 1, column 7"));
  EXPECT_THAT(message("{'a':1}"), HasSubstr("line 1, column 2"));
  EXPECT_THAT(message("{\"a\":NaN}"), HasSubstr("line 1, column"));
  EXPECT_THAT(message("{} {}"), HasSubstr("line 1, column"));
  EXPECT_THAT(message("{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}"),
              HasSubstr("deeper than 128 levels"));
}

TEST(OpenAiDecode, LongValuesAreNotEchoed) {
  const auto result = DecodeChatRequest("{" + kHi + "\"temperature\":\"" + std::string(5000, 'x') + "\"}");
  EXPECT_LT(std::get<ApiError>(result).message.size(), 200u);
}

}  // namespace
}  // namespace millrace::api
