#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "loadgen/agent_history.h"
#include "loadgen/arrivals.h"
#include "loadgen/chat_answer.h"
#include "loadgen/conversations.h"
#include "loadgen/fairness.h"
#include "loadgen/metrics_page.h"
#include "loadgen/needles.h"
#include "loadgen/samples.h"
#include "loadgen/server_url.h"
#include "loadgen/summary.h"
#include "loadgen/text_maker.h"

// The parts that need no socket.
namespace millrace::loadgen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Samples, QuantilesInterpolateBetweenNeighbours) {
  Samples samples;
  EXPECT_EQ(samples.Quantile(0.5), 0);
  for (const double value : {40.0, 10.0, 30.0, 20.0}) samples.Add(value);
  EXPECT_DOUBLE_EQ(samples.Quantile(0.5), 25);
  EXPECT_DOUBLE_EQ(samples.Quantile(0.9), 37);
  EXPECT_DOUBLE_EQ(samples.Min(), 10);
  EXPECT_DOUBLE_EQ(samples.Max(), 40);
  EXPECT_DOUBLE_EQ(samples.Mean(), 25);
  samples.Add(5);  // after sorting
  EXPECT_DOUBLE_EQ(samples.Min(), 5);
  EXPECT_DOUBLE_EQ(samples.Quantile(0.5), 20);
}

TEST(Arrivals, ArePoissonAndRepeatWithTheSeed) {
  constexpr int kN = 20'000;
  constexpr double kRate = 50;
  Arrivals arrivals(kRate, 7), again(kRate, 7), other(kRate, 8);
  double last = 0, sum = 0, sum_of_squares = 0;
  bool differs = false;
  for (int i = 0; i < kN; ++i) {
    const double at = arrivals.Next();
    EXPECT_EQ(at, again.Next());
    differs = differs || at != other.Next();
    ASSERT_GE(at, last);
    sum += at - last;
    sum_of_squares += (at - last) * (at - last);
    last = at;
  }
  EXPECT_TRUE(differs);
  const double mean = sum / kN;
  EXPECT_NEAR(mean * kRate, 1, 0.03);
  // Exponential gaps: their deviation is their mean. Even gaps would give 0.
  EXPECT_NEAR(std::sqrt(sum_of_squares / kN - mean * mean) * kRate, 1, 0.05);
}

TEST(Arrivals, ComeAllAtOnceWithoutARate) {
  Arrivals arrivals(std::numeric_limits<double>::infinity(), 1);
  EXPECT_EQ(arrivals.Next(), 0);
  EXPECT_EQ(arrivals.Next(), 0);
}

TEST(TextMaker, NoncesNeverRepeatNotEvenWithTheSameSeed) {
  TextMaker a(1), b(1);
  std::set<std::string> nonces;
  for (int i = 0; i < 1000; ++i) {
    nonces.insert(a.Nonce());
    nonces.insert(b.Nonce());
  }
  EXPECT_EQ(nonces.size(), 2000u);
  EXPECT_EQ(TextMaker(1).Words(50), TextMaker(1).Words(50));
  EXPECT_NE(TextMaker(1).Words(50), TextMaker(2).Words(50));
}

TEST(TextMaker, CountsWordsAndTokens) {
  TextMaker text(3);
  for (const int64_t n : {1, 2, 9, 10, 100}) {
    const std::string words = text.Words(n);
    EXPECT_EQ(std::ranges::count(words, ' '), n - 1) << words;
  }
  text.set_rate({.tokens_per_word = 2, .overhead_tokens = 20});
  EXPECT_EQ(std::ranges::count(text.Tokens(100), ' '), 49);
  // The nonce's own tokens are in the overhead: one space behind it.
  EXPECT_EQ(std::ranges::count(text.Prompt(120), ' '), 50);
  EXPECT_THAT(text.Prompt(120), testing::StartsWith("["));
}

TEST(Needle, StandsWhereItIsAskedFor) {
  TextMaker text(5);
  text.set_rate({.tokens_per_word = 1, .overhead_tokens = 10});
  for (const double depth : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const Needle needle = MakeNeedle(text, 3000, depth);
    const std::string fact = "The secret code of " + needle.name + " is " + needle.code + ".";
    const size_t at = needle.prompt.find(fact);
    ASSERT_NE(at, std::string::npos);
    EXPECT_NEAR(static_cast<double>(at) / static_cast<double>(needle.prompt.size()), depth, 0.03);
    EXPECT_THAT(needle.prompt, testing::EndsWith("What is the secret code of " + needle.name + "?"));
    EXPECT_NEAR(static_cast<double>(std::ranges::count(needle.prompt, ' ')), 2990, 20);
  }
}

TEST(ServerUrl, TakesWhatPeopleType) {
  for (const char* text : {"http://h:8000", "h:8000", "http://h:8000/", "http://h:8000/v1", "h:8000/v1/"}) {
    const Result<ServerUrl> url = ServerUrl::Parse(text);
    ASSERT_TRUE(url.ok()) << text;
    EXPECT_EQ(url->ToString(), "http://h:8000") << text;
  }
  EXPECT_EQ(ServerUrl::Parse("http://h")->port, "80");
  EXPECT_EQ(ServerUrl::Parse("http://h:1/api/v1")->prefix, "/api");
  const Result<ServerUrl> v6 = ServerUrl::Parse("http://[::1]:9000");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->HostHeader(), "[::1]:9000");
}

TEST(ServerUrl, RefusesTheRestNamingIt) {
  for (const char* text :
       {"https://h", "ftp://h", "", ":80", "h:0", "h:65536", "h:x", "h:80 ", "u@h:1", "h?x"}) {
    const Result<ServerUrl> url = ServerUrl::Parse(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_THAT(url.error().message(), HasSubstr("'" + std::string(text) + "'"));
  }
}

TEST(ChatAnswer, JoinsDeltasOfAllKinds) {
  ChatAnswerReader reader;
  const std::string stream =
      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
      "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm\"}}]}\n\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"It\"}}]}\n\n: keep-alive\n\n"
      "data: "
      "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"f\","
      "\"arguments\":\"\"}}]}}]}\n\n"
      "data: "
      "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}}]}\n\n"
      "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"usage\":null}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,"
      "\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n";
  EXPECT_EQ(reader.Feed(stream), 4);
  reader.End();
  EXPECT_FALSE(reader.failure());
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(reader.answer().content, "It");
  EXPECT_EQ(reader.answer().reasoning, "Hm");
  EXPECT_EQ(reader.answer().finish_reason, "tool_calls");
  EXPECT_THAT(reader.answer().tool_calls, ElementsAre(ToolCall{"c1", "f", "{}"}));
  ASSERT_TRUE(reader.usage());
  EXPECT_EQ(reader.usage()->prompt_tokens, 9);
  EXPECT_EQ(reader.usage()->completion_tokens, 4);
  EXPECT_EQ(reader.usage()->cached_tokens, 8);
}

TEST(ChatAnswer, NamesWhatIsNoAnswer) {
  const auto failure_of = [](std::string_view stream) {
    ChatAnswerReader reader;
    reader.Feed(stream);
    reader.End();
    return reader.failure() ? reader.failure()->Name() + ": " + reader.failure()->detail : "";
  };
  EXPECT_THAT(failure_of("data: {oops\n\n"), testing::StartsWith("malformed event: "));
  EXPECT_THAT(failure_of("data: [1]\n\n"), HasSubstr("[1]"));
  EXPECT_THAT(failure_of("data: {\"error\":{\"message\":\"out of\\u001b[2J pages\"}}\n\n"),
              "error event: out of?[2J pages");
  EXPECT_THAT(failure_of("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"),
              testing::StartsWith("closed early: "));
  EXPECT_THAT(failure_of(""), testing::StartsWith("closed early: "));
  EXPECT_EQ(failure_of("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"), "");
  EXPECT_EQ(failure_of("data: {\"choices\":[7],\"usage\":[],\"x\":{}}\n\ndata: [DONE]\n\n"), "");
}

TEST(ReuseMeter, DividesByThePreviousPromptNotTheCurrentOne) {
  ReuseMeter reuse;
  reuse.Add({.prompt_tokens = 1000, .completion_tokens = 10, .cached_tokens = 256}, std::nullopt);
  // 10,000 tokens were known; the current prompt is twice as long.
  reuse.Add({.prompt_tokens = 20'000, .completion_tokens = 10, .cached_tokens = 9'000}, 10'000);
  reuse.Add({.prompt_tokens = 30'000, .completion_tokens = 10, .cached_tokens = 20'010}, 20'000);
  reuse.Add({.prompt_tokens = 5, .completion_tokens = 1, .cached_tokens = {}}, 5);  // not told: not counted
  EXPECT_EQ(reuse.later_turns(), 2);
  EXPECT_DOUBLE_EQ(reuse.reuse(), 29'010.0 / 30'000);
  EXPECT_DOUBLE_EQ(reuse.reuse_by_turn().Min(), 0.9);
  EXPECT_DOUBLE_EQ(reuse.recomputed_tokens().Max(), 1'000);
  EXPECT_DOUBLE_EQ(reuse.recomputed_tokens().Min(), 0);
  EXPECT_DOUBLE_EQ(reuse.first_turn_cached().Max(), 256);
}

TimePoint At(int ms) {
  return TimePoint{} + std::chrono::milliseconds(ms);
}

TEST(Summary, CountsFailuresByNameAndTimesOnlySuccess) {
  Summary summary;
  RequestRecord good;
  good.sent = At(0);
  good.text_times = {At(100), At(200), At(400)};
  good.ended = At(450);
  good.usage = Usage{.prompt_tokens = 50, .completion_tokens = 4, .cached_tokens = 20};
  good.refusals = {Failure{.kind = FailureKind::kHttpStatus, .status = 429, .detail = {}}};
  summary.Add(good);
  RequestRecord bad = good;
  bad.refusals.clear();
  bad.failure = Failure{.kind = FailureKind::kStalled, .detail = "silent"};
  summary.Add(bad);
  summary.Add(bad);
  RequestRecord left = good;
  left.refusals.clear();
  left.left = true;
  summary.Add(left);
  EXPECT_EQ(summary.requests, 4);
  EXPECT_EQ(summary.succeeded, 1);
  EXPECT_EQ(summary.left, 1);
  EXPECT_EQ(summary.failed(), 2);
  EXPECT_EQ(summary.failures.at("stalled").count, 2);
  EXPECT_EQ(summary.failures.at("stalled").example, "silent");
  EXPECT_EQ(summary.refusals.at("http 429"), 1);
  EXPECT_EQ(summary.prompt_tokens, 50);
  EXPECT_EQ(summary.cached_tokens, 20);
  EXPECT_EQ(summary.completion_tokens, 4);
  EXPECT_NEAR(summary.ttft_s.Max(), 0.1, 1e-9);
  EXPECT_EQ(summary.gap_s.count(), 2u);
  EXPECT_NEAR(summary.gap_s.Max(), 0.2, 1e-9);
  EXPECT_NEAR(summary.tpot_s.Mean(), 0.1, 1e-9);  // 0.3 s for 3 tokens
  EXPECT_NEAR(summary.e2e_s.Max(), 0.45, 1e-9);
  EXPECT_NEAR(*summary.slowest_tok_s, 10, 1e-6);
}

TEST(Fairness, AStreamsShareCountsSilenceAtBothEnds) {
  const std::vector<TimePoint> times = {At(0), At(100), At(1100), At(1200), At(1300), At(3000)};
  const StreamShare share = ShareBetween(times, At(1000), At(2000), 1.5);
  EXPECT_NEAR(share.tokens_per_s, 4.5, 1e-9);
  EXPECT_NEAR(share.longest_gap_s, 0.7, 1e-9);  // from 1300 to the end
  EXPECT_NEAR(ShareBetween(times, At(200), At(1050), 1).longest_gap_s, 0.85, 1e-9);
  EXPECT_EQ(ShareBetween(times, At(200), At(1050), 1).tokens_per_s, 0);
}

TEST(MetricsPage, ReadsSamplesAndLeavesTheRestOut) {
  const std::vector<Metric> metrics = ParseMetricsPage(
      "# HELP a x\n# TYPE a gauge\na 1\nb{x=\"1\",y=\"a\\\"b\\\\\\n,}\"} 2.5e3 "
      "1700000000\r\nbroken{x=\"\nc{\n"
      "d{} +Inf\nnovalue\nvllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} "
      "3\n"
      "vllm:num_requests_waiting 4\nmillrace_memory_live_bytes{account=\"kv pages\"} 1024\n"
      "millrace_memory_peak_bytes{account=\"kv pages\"} 4096");
  ASSERT_EQ(metrics.size(), 8u);
  EXPECT_EQ(metrics[1].labels.at("y"), "a\"b\\\n,}");
  EXPECT_EQ(metrics[1].value, 2500);
  const ServerLoad load = ReadServerLoad(metrics);
  EXPECT_EQ(load.running, 5);
  EXPECT_EQ(load.waiting, 4);
  EXPECT_THAT(load.live_bytes, ElementsAre(testing::Pair("kv pages", 1024)));
  EXPECT_FALSE(ReadServerLoad({}).running);
}

std::string Contents(const AgentHistory& history) {
  std::string text;
  for (const boost::json::value& message : history.Messages()) {
    text += std::string(message.at("role").as_string()) + "=" +
            std::string(message.at("content").as_string()) + ";";
  }
  return text;
}

TEST(AgentHistory, ChangesAsClientsChangeTheirs) {
  AgentHistory history("S");
  history.AddUser("first task");
  history.Remind("R1");
  EXPECT_EQ(Contents(history), "system=S;user=first task\n<system-reminder>R1</system-reminder>;");
  history.AddAnswer({.content = "A", .reasoning = {}, .tool_calls = {}, .finish_reason = {}});
  history.AddToolOutputs([] { return "out put"; });
  history.Remind("R2");  // leaves the old turn, which is another text from then on
  EXPECT_EQ(Contents(history),
            "system=S;user=first task;assistant=A;user=Output of the tool: out put\n"
            "<system-reminder>R2</system-reminder>;");
  history.ShortenLast(15);
  EXPECT_THAT(Contents(history), HasSubstr("user=Output of the\n"));
  history.Compact("short");
  EXPECT_EQ(Contents(history), "system=S;user=Summary of the conversation so far: short;");
}

TEST(AgentHistory, AnswersEachCallWithAToolMessage) {
  AgentHistory history("S");
  history.AddUser("U");
  history.AddAnswer({.content = "",
                     .reasoning = "why",
                     .tool_calls = {{"c1", "f", "{}"}, {"c2", "g", "{}"}},
                     .finish_reason = {}});
  history.AddToolOutputs([] { return "O"; });
  const boost::json::array messages = history.Messages();
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[2].at("reasoning_content"), "why");
  EXPECT_EQ(messages[2].at("tool_calls").at(1).at("function").at("name"), "g");
  EXPECT_EQ(messages[3].at("tool_call_id"), "c1");
  EXPECT_EQ(messages[4].at("tool_call_id"), "c2");
  EXPECT_EQ(messages[4].at("role"), "tool");
}

}  // namespace
}  // namespace millrace::loadgen
