// What answers may take of the server's memory: what is refused for good, what for now, and what is sent
// where there is no room for an answer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "api/server_answers_testing.h"
#include "base/units.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kChat = kChatPath;
constexpr const char* kCompletions = kCompletionsPath;

std::string Hello(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"Hello!"}],"thinking":{"type":"disabled"})" + fields + "}";
}

// Of more than 4,000 tokens.
std::string LongText() {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "The answer to this is a long one. ";
  return text;
}

class ServerAnswersMemoryTest : public ServerAnswersTest {
 protected:
  void StartWith(size_t answers_bytes, size_t unread_bytes = size_t{64} << 20) {
    ScriptedServerOptions options;
    options.model.max_model_len = 200'000;
    options.model.max_batch_tokens = 4096;
    options.service.max_answers_bytes = answers_bytes;
    options.http.max_outputs_bytes = unread_bytes;
    ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
  }

  // The most that would do, as a refusal names it.
  static int MostTokensOf(const ClientResponse& refused) {
    const std::string word = "lower max_tokens to ";
    const size_t at = refused.body.find(word);
    EXPECT_NE(at, std::string::npos) << refused.body;
    return at == std::string::npos ? 1 : std::stoi(refused.body.substr(at + word.size()));
  }

  // Until it is too full for one more token with log-probabilities: the requests that have got the parts.
  std::vector<std::unique_ptr<SocketClient>> FillTheBudget() {
    std::vector<std::unique_ptr<SocketClient>> holders;
    const int refused_before = Refused();
    for (const int max_tokens : {256, 64, 16, 4, 1}) {
      for (int i = 0; i < 4; ++i) {
        const int before = server_->engine().stats().waiting + Refused();
        holders.push_back(std::make_unique<SocketClient>(port()));
        holders.back()->Send(
            "POST", kChat,
            Hello(R"(,"logprobs":true,"top_logprobs":20,"max_tokens":)" + std::to_string(max_tokens)));
        WaitUntil([&] { return server_->engine().stats().waiting + Refused() > before; }, "it is in or out");
      }
    }
    EXPECT_GT(Refused(), refused_before + 4) << "the budget is not full";
    return holders;
  }

  // Answers of status 429 so far.
  int Refused() {
    const std::string metrics = Metrics();
    const std::string name = R"(millrace_http_responses_total{code="429"} )";
    const size_t at = metrics.find(name);
    return at == std::string::npos ? 0 : std::stoi(metrics.substr(at + name.size()));
  }

  std::string Metrics() { return AskOnce(port(), "GET", "/metrics").body; }
};

TEST_F(ServerAnswersMemoryTest, WhatCanNeverBeHeldIsRefusedForGoodWithTheRemedy) {
  StartWith(4 * kMiB);
  const ClientResponse refused =
      AskOnce(port(), "POST", kChat, Hello(R"(,"n":4,"max_tokens":3000,"logprobs":true,"top_logprobs":20)"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("4 sequences of up to 3000 tokens with 20 alternatives each"));
  EXPECT_THAT(refused.body, HasSubstr("more than the 4.00 MiB"));
  EXPECT_THAT(refused.body, HasSubstr("--max-answers-size"));
  const int most = MostTokensOf(refused);
  const auto with = [&](int max_tokens) {
    return Hello(R"(,"n":4,"logprobs":true,"top_logprobs":20,"max_tokens":)" + std::to_string(max_tokens));
  };
  EXPECT_EQ(AskOnce(port(), "POST", kChat, with(most)).status, 200);
  EXPECT_EQ(AskOnce(port(), "POST", kChat, with(most + 1)).status, 400);
  // A stream holds next to nothing of it.
  Stream(kChat, Hello(R"(,"n":4,"max_tokens":3000,"logprobs":true,"top_logprobs":20,"stream":true)"));
}

TEST_F(ServerAnswersMemoryTest, WhatFindsNoRoomNowIsToldToComeBack) {
  StartWith(4 * kMiB);
  const std::string body = Hello(R"(,"n":2,"max_tokens":400,"logprobs":true,"top_logprobs":20)");
  model().HoldSteps();
  SocketClient first(port());
  first.Send("POST", kChat, body);
  ASSERT_TRUE(model().WaitUntilHeld());
  const ClientResponse refused = AskOnce(port(), "POST", kChat, body);
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_THAT(refused.body, HasSubstr("--max-answers-size"));
  SocketClient ordinary(port());
  ordinary.Send("POST", kChat, Hello(""));  // needs no room of these
  model().ReleaseSteps();
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(ordinary.Read().status, 200);
  EXPECT_EQ(AskOnce(port(), "POST", kChat, body).status, 200);
}

TEST_F(ServerAnswersMemoryTest, ALimitThatNobodyNamedIsLoweredToWhatCanBeHeld) {
  StartWith(4 * kMiB);
  const json::object answer =
      Answer(kChat, Hello(R"(,"n":2,"ignore_eos":true,"logprobs":true,"top_logprobs":20)"));
  for (const json::value& choice : answer.at("choices").as_array()) {
    EXPECT_EQ(choice.at("finish_reason").as_string(), "length");
    EXPECT_EQ(choice.at("stop_reason").as_string(), "output_cap");
  }
  const int64_t tokens = answer.at("usage").at("completion_tokens").as_int64();
  EXPECT_GT(tokens, 2 * 100);
  EXPECT_LT(tokens, 2 * 200) << "a quarter of what there is";
}

TEST_F(ServerAnswersMemoryTest, PromptsThatCanNeverWaitTogetherAreRefusedForGood) {
  ScriptedServerOptions options;
  options.model.max_model_len = 60'000;
  options.model.max_batch_tokens = 4096;
  options.engine.max_num_seqs = 1;
  options.engine.max_queue = 3;
  Start(std::move(options));
  std::string prompt = "[1";
  for (int t = 1; t < 59'000; ++t) prompt += ",1";
  prompt += "]";
  const ClientResponse refused =
      AskOnce(port(), "POST", kCompletions, R"({"max_tokens":1,"prompt":[)" + prompt + "," + prompt + "]}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("2 prompts have 118000 tokens together"));
  // Choices share theirs.
  EXPECT_EQ(AskOnce(port(), "POST", kCompletions, R"({"max_tokens":1,"n":4,"prompt":)" + prompt + "}").status,
            200);
}

// The answer is long, and the server has no room for unread ones.
TEST_F(ServerAnswersMemoryTest, AnAnswerThatGaveWayToAnErrorIsCountedAsTheError) {
  StartWith(4 * kMiB, /*unread_bytes=*/1);
  std::string text;
  while (text.size() < 300'000) text += "Hello ";
  const ClientResponse refused =
      AskOnce(port(), "POST", "/tokenize", R"({"return_token_strs":true,"prompt":")" + text + R"("})");
  EXPECT_EQ(refused.status, 413);
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr(R"(millrace_http_responses_total{code="413"} 1)"));
  EXPECT_THAT(metrics, Not(HasSubstr(R"(millrace_http_responses_total{code="200"})")));
}

// Its first events repeat what the client has sent.
TEST_F(ServerAnswersMemoryTest, AStreamWithoutRoomForItsEventsEndsWithOneThatSaysSo) {
  StartWith(4 * kMiB, /*unread_bytes=*/1);
  std::string text;
  while (text.size() < 300'000) text += "Hello ";
  const ClientResponse response =
      AskOnce(port(), "POST", "/v1/responses",
              R"({"input":"Hello!","stream":true,"instructions":")" + text + R"("})");
  EXPECT_EQ(response.status, 200);
  EXPECT_FALSE(response.complete);
  EXPECT_THAT(response.body, HasSubstr("event: error\n"));
  EXPECT_THAT(response.body, HasSubstr("--max-unread-total"));
  WaitUntilFree();
}

// What others have reserved, waiting for a slot, is no reason to break off what needed no reservation.
TEST_F(ServerAnswersMemoryTest, AnOrdinaryAnswerIsNeverBrokenOffByAnothersReservation) {
  ScriptedServerOptions options;
  options.model.max_model_len = 4096;
  options.engine.max_num_seqs = 1;
  options.engine.repetition_limit_tokens = 0;
  options.service.max_answers_bytes = 2 * kMiB;
  Start(std::move(options));
  server_->PlayByDefault(LongText());
  for (const std::string stream : {"true", "false"}) {
    model().HoldSteps();
    SocketClient first(port());
    first.Send("POST", "/v1/responses",
               R"({"input":"Hello!","reasoning":{"effort":"none"},"max_output_tokens":4000,"stream":)" +
                   stream + "}");
    ASSERT_TRUE(model().WaitUntilHeld());
    const auto waiting = FillTheBudget();
    model().ReleaseSteps();
    const ClientResponse answer = first.Read();
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_TRUE(answer.complete);
    EXPECT_THAT(answer.body, HasSubstr(R"("status":"incomplete")"));
    EXPECT_THAT(answer.body, Not(HasSubstr("set aside")));
  }
}

// Its tokens' texts are longer than is usual, all the way: what was set aside is not enough.
TEST_F(ServerAnswersMemoryTest, AnAnswerThatOutgrowsWhatThereIsEndsAndSaysSo) {
  StartWith(kMiB);
  std::vector<TokenId> ids(static_cast<size_t>(server_->tokenizer().vocab_size()));
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::sort(ids, std::ranges::greater(), [&](TokenId id) {
    return server_->tokenizer().IsControl(id) ? 0 : server_->tokenizer().TokenBytes(id).size();
  });
  ids.resize(25);
  model().ComputeLogits([ids](std::span<const TokenId>, std::span<float> logits) {
    std::ranges::fill(logits, -100.0F);
    for (const TokenId id : ids) logits[static_cast<size_t>(id)] = 0;
  });
  const auto completion = [&](int64_t max_tokens) {
    return AskOnce(
        port(), "POST", kCompletions,
        R"({"prompt":"a","ignore_eos":true,"logprobs":20,"max_tokens":)" + std::to_string(max_tokens) + "}");
  };
  const int most = MostTokensOf(completion(100'000));
  EXPECT_EQ(completion(most / 2).status, 200) << "it may take more while there is more";
  const ClientResponse ended = completion(most);
  EXPECT_EQ(ended.status, 503);
  EXPECT_THAT(ended.body, HasSubstr("more than was set aside for it"));
  EXPECT_THAT(ended.body, HasSubstr("--max-answers-size"));

  const auto response = [&](int64_t max_tokens) {
    return AskOnce(
        port(), "POST", "/v1/responses",
        R"({"input":"a","stream":true,"ignore_eos":true,"include":["message.output_text.logprobs"],)"
        R"("reasoning":{"effort":"none"},"top_logprobs":20,"max_output_tokens":)" +
            std::to_string(max_tokens) + "}");
  };
  const ClientResponse streamed = response(MostTokensOf(response(100'000)));
  EXPECT_EQ(streamed.status, 200);
  EXPECT_FALSE(streamed.complete);
  EXPECT_THAT(streamed.body, HasSubstr("event: response.failed\n"));
  EXPECT_THAT(streamed.body, HasSubstr("more than was set aside for it"));
  WaitUntilFree();
  EXPECT_EQ(completion(most / 2).status, 200) << "all of it was given back";
}

}  // namespace
}  // namespace millrace::api
