// What answers may take of the server's memory: what is refused for good, what for now, and what is sent
// where there is no room for an answer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/answer_memory.h"
#include "api/server_answers_testing.h"
#include "base/units.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kChat = kChatPath;
constexpr const char* kCompletions = kCompletionsPath;
constexpr const char* kResponses = "/v1/responses";
constexpr const char* kMessages = "/v1/messages";

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

  // Others wait while an answer runs.
  void StartWithOneSlot(size_t answers_bytes, int max_queue = 256) {
    ScriptedServerOptions options;
    options.model.max_model_len = 4096;
    options.engine.max_num_seqs = 1;
    options.engine.max_queue = max_queue;
    options.engine.repetition_limit_tokens = 0;
    options.service.max_answers_bytes = answers_bytes;
    ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
  }

  // The most that would do, as a refusal names it.
  static int MostTokensOf(const ClientResponse& refused, const std::string& field = "max_tokens") {
    const std::string word = "lower " + field + " to ";
    const size_t at = refused.body.find(word);
    EXPECT_NE(at, std::string::npos) << refused.body;
    return at == std::string::npos ? 1 : std::stoi(refused.body.substr(at + word.size()));
  }

  // Until it is too full for one more token of two choices: the requests that have got the parts.
  std::vector<std::unique_ptr<SocketClient>> FillTheBudget() {
    std::vector<std::unique_ptr<SocketClient>> holders;
    const int refused_before = Refused();
    const std::string large = R"(,"logprobs":true,"top_logprobs":20,"max_tokens":)";
    const std::string small = R"(,"n":2,"max_tokens":)";
    std::vector<std::string> wishes;
    for (const int max_tokens : {128, 64, 16, 4, 1}) wishes.push_back(large + std::to_string(max_tokens));
    for (const int max_tokens : {4, 1}) wishes.push_back(small + std::to_string(max_tokens));
    for (const std::string& wish : wishes) {
      for (int i = 0; i < 4; ++i) {
        const int before = server_->engine().stats().waiting + Refused();
        holders.push_back(std::make_unique<SocketClient>(port()));
        holders.back()->Send("POST", kChat, Hello(wish));
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
  EXPECT_THAT(refused.body, HasSubstr("4 sequences of up to 3000 tokens, with 20 alternatives of each"));
  EXPECT_THAT(refused.body, HasSubstr("more than the 2.00 MiB that this server lets one request have"));
  EXPECT_THAT(refused.body, HasSubstr("--max-answers-size"));
  const int most = MostTokensOf(refused);
  const auto with = [&](int max_tokens) {
    return Hello(R"(,"n":4,"logprobs":true,"top_logprobs":20,"max_tokens":)" + std::to_string(max_tokens));
  };
  EXPECT_EQ(AskOnce(port(), "POST", kChat, with(most)).status, 200);
  EXPECT_EQ(AskOnce(port(), "POST", kChat, with(most + 1)).status, 400);
  // A stream holds no more than a part of its tokens at a time.
  Stream(kChat, Hello(R"(,"n":4,"max_tokens":3000,"logprobs":true,"top_logprobs":20,"stream":true)"));
}

TEST_F(ServerAnswersMemoryTest, WhatFindsNoRoomNowIsToldToComeBack) {
  StartWith(4 * kMiB);
  const std::string body = Hello(R"(,"n":2,"max_tokens":240,"logprobs":true,"top_logprobs":20)");
  model().HoldSteps();
  SocketClient first(port());
  first.Send("POST", kChat, body);
  ASSERT_TRUE(model().WaitUntilHeld());
  SocketClient second(port());
  second.Send("POST", kChat, body);
  WaitUntil(
      [&] {
        const engine::EngineStats stats = server_->engine().stats();
        return stats.running + stats.waiting == 4;
      },
      "both have reserved");
  const ClientResponse refused = AskOnce(port(), "POST", kChat, body);
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_THAT(refused.body, HasSubstr("--max-answers-size"));
  SocketClient ordinary(port());
  ordinary.Send("POST", kChat, Hello(""));  // needs no room of these
  model().ReleaseSteps();
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(second.Read().status, 200);
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
  StartWithOneSlot(2 * kMiB);
  server_->PlayByDefault(LongText());
  for (const std::string stream : {"true", "false"}) {
    model().HoldSteps();
    SocketClient first(port());
    first.Send("POST", kResponses,
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

// Names of tools, stop strings and what an answer repeats have their part by the plan.
TEST_F(ServerAnswersMemoryTest, AFullBudgetKeepsNobodyOutWhoNeedsLittle) {
  StartWithOneSlot(2 * kMiB);
  model().HoldSteps();
  SocketClient first(port());
  first.Send("POST", kChat, Hello(""));
  ASSERT_TRUE(model().WaitUntilHeld());
  const auto holders = FillTheBudget();
  const std::string chat_tool =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}])";
  const std::string tool = R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"}}])";
  const std::pair<const char*, std::string> requests[] = {
      {kChat, Hello("," + chat_tool)},
      {kChat, Hello(R"(,"stop":["never said"],"stream":true)")},
      {kCompletions, R"({"prompt":"a","max_tokens":4,"echo":true})"},
      {kResponses, R"({"input":"Hello!","instructions":"Be brief.",)" + tool + "}"},
      {kMessages, R"({"max_tokens":9,"messages":[{"role":"user","content":"Hello!"}],)"
                  R"("tools":[{"name":"f","input_schema":{"type":"object"}}]})"}};
  const int holding = server_->engine().stats().waiting;
  std::vector<std::unique_ptr<SocketClient>> clients;
  for (const auto& [path, body] : requests) {
    clients.push_back(std::make_unique<SocketClient>(port()));
    clients.back()->Send("POST", path, body);
  }
  WaitUntil(
      [&] { return server_->engine().stats().waiting == holding + static_cast<int>(std::size(requests)); },
      "all of them wait");
  const ClientResponse full =
      AskOnce(port(), "POST", kChat, Hello(R"(,"logprobs":true,"top_logprobs":20,"max_tokens":9)"));
  EXPECT_EQ(full.status, 429);
  model().ReleaseSteps();
  for (size_t c = 0; c < clients.size(); ++c) {
    const ClientResponse answer = clients[c]->Read();
    EXPECT_EQ(answer.status, 200) << requests[c].second << ": " << answer.body;
  }
}

// A queue that is full has no place for what a refused request's sequences would take.
TEST_F(ServerAnswersMemoryTest, WhatFindsNoPlaceIsNotCounted) {
  StartWithOneSlot(2 * kMiB, /*max_queue=*/3);
  model().HoldSteps();
  SocketClient first(port());
  first.Send("POST", kChat, Hello(R"(,"n":2)"));
  ASSERT_TRUE(model().WaitUntilHeld());
  const auto account = [&] {
    const std::string health = AskOnce(port(), "GET", "/health").body;
    return json::parse(health).at("memory").at("accounts").at("answers in progress").as_object();
  };
  const auto live = account().at("live_bytes").to_number<uint64_t>();
  EXPECT_GE(live, 2 * kAnswerBytesPerSequence);
  const ClientResponse refused =
      AskOnce(port(), "POST", kChat,
              Hello(R"(,"max_tokens":1,"n":)" + std::to_string(server_->engine().capacity() - 1)));
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_LT(account().at("peak_bytes").to_number<uint64_t>(), live + kAnswerBytesPerSequence);
  model().ReleaseSteps();
  EXPECT_EQ(first.Read().status, 200);
}

// A refusal names what the client can change, as its API calls it, and that is enough.
TEST_F(ServerAnswersMemoryTest, TheRemedyOfARefusalHelpsInEveryDialect) {
  StartWith(4 * kMiB);
  struct Case {
    const char* path;
    std::string body;  // without its limit
    std::string field;
  };
  const std::string wanted = R"(,"logprobs":true,"top_logprobs":20)";
  const Case cases[] = {
      {kChat, Hello(wanted), "max_tokens"},
      {kChat, Hello(wanted), "max_completion_tokens"},
      {kChat, Hello(wanted + R"(,"n":3)"), "max_tokens"},
      {kCompletions, R"({"prompt":["a","b","c"],"logprobs":20})", "max_tokens"},
      {kResponses, R"({"input":"a","include":["message.output_text.logprobs"],"top_logprobs":20})",
       "max_output_tokens"},
      {kResponses,
       R"({"input":"a","stream":true,"include":["message.output_text.logprobs"],"top_logprobs":20})",
       "max_output_tokens"}};
  for (const Case& c : cases) {
    const auto ask = [&](int64_t tokens) {
      return AskOnce(port(), "POST", c.path,
                     WithFields(c.body, ",\"" + c.field + "\":" + std::to_string(tokens)));
    };
    const ClientResponse refused = ask(90'000);
    ASSERT_EQ(refused.status, 400) << c.body << refused.body;
    const int most = MostTokensOf(refused, c.field);
    EXPECT_EQ(ask(most).status, 200) << c.body;
    EXPECT_EQ(ask(most + 1).status, 400) << c.body;
    EXPECT_THAT(refused.body, Not(HasSubstr(" n to "))) << "one choice would be too much";
    if (std::string(c.path) == kResponses) {
      EXPECT_THAT(refused.body, Not(HasSubstr("stream the answer"))) << "that takes more";
    }
  }
}

// Its tokens' texts are longer than is usual, all the way: what was set aside is not enough.
TEST_F(ServerAnswersMemoryTest, AnAnswerThatOutgrowsWhatThereIsEndsAndSaysSo) {
  StartWithOneSlot(kMiB);
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
  const auto completion = [](int64_t max_tokens) {
    return R"({"prompt":"a","ignore_eos":true,"logprobs":20,"max_tokens":)" + std::to_string(max_tokens) +
           "}";
  };
  const auto response = [](int64_t max_tokens) {
    return R"({"input":"a","stream":true,"ignore_eos":true,"include":["message.output_text.logprobs"],)"
           R"("reasoning":{"effort":"none"},"top_logprobs":20,"max_output_tokens":)" +
           std::to_string(max_tokens) + "}";
  };
  // While others hold the rest.
  const auto ask_beside_others = [&](const char* path, const std::string& body) {
    model().HoldSteps();
    SocketClient client(port());
    client.Send("POST", path, body);
    EXPECT_TRUE(model().WaitUntilHeld());
    const auto holders = FillTheBudget();
    model().ReleaseSteps();
    return client.Read();
  };
  const int most = MostTokensOf(AskOnce(port(), "POST", kCompletions, completion(4000)));
  EXPECT_EQ(AskOnce(port(), "POST", kCompletions, completion(most)).status, 200)
      << "it may take more while there is more";
  const ClientResponse ended = ask_beside_others(kCompletions, completion(most));
  EXPECT_EQ(ended.status, 503);
  EXPECT_THAT(ended.body, HasSubstr("more than was set aside for it"));
  EXPECT_THAT(ended.body, HasSubstr("--max-answers-size"));
  WaitUntilFree();

  const int most_streamed =
      MostTokensOf(AskOnce(port(), "POST", kResponses, response(4000)), "max_output_tokens");
  const ClientResponse streamed = ask_beside_others(kResponses, response(most_streamed));
  EXPECT_EQ(streamed.status, 200);
  EXPECT_FALSE(streamed.complete);
  EXPECT_THAT(streamed.body, HasSubstr("event: response.failed\n"));
  EXPECT_THAT(streamed.body, HasSubstr("more than was set aside for it"));
  WaitUntilFree();
  EXPECT_EQ(AskOnce(port(), "POST", kCompletions, completion(most)).status, 200)
      << "all of it was given back";
}

}  // namespace
}  // namespace millrace::api
