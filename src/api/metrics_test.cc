// GET /metrics as Prometheus reads it: the text is parsed, and its numbers are held against what was asked.

#include "api/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "api/scripted_server_testing.h"
#include "api/socket_client.h"

namespace millrace::api {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;

using LabelMap = std::map<std::string, std::string>;

struct Series {
  std::string name;
  LabelMap labels;
  double value = 0;
};

struct Exposition {
  std::map<std::string, std::string> types;  // of families
  std::map<std::string, std::string> helps;
  std::vector<Series> series;

  // The value of the one series of that name that has these labels among its own; NaN when there is none.
  double Value(const std::string& name, const LabelMap& labels = {}) const {
    for (const Series& candidate : series) {
      bool matches = candidate.name == name;
      for (const auto& [key, value] : labels) {
        const auto found = candidate.labels.find(key);
        matches = matches && found != candidate.labels.end() && found->second == value;
      }
      if (matches) return candidate.value;
    }
    return std::nan("");
  }
};

// name{key="value",...} value; nothing when the line is not of that form.
std::optional<Series> ParseSample(const std::string& line) {
  Series series;
  size_t at = line.find_first_of("{ ");
  if (at == std::string::npos) return std::nullopt;
  series.name = line.substr(0, at);
  if (line[at] == '{') {
    ++at;
    while (at < line.size() && line[at] != '}') {
      const size_t equals = line.find("=\"", at);
      if (equals == std::string::npos) return std::nullopt;
      const std::string key = line.substr(at, equals - at);
      std::string value;
      for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\') ++at;
        value += line[at];
      }
      series.labels[key] = value;
      if (++at < line.size() && line[at] == ',') ++at;
    }
    ++at;
  }
  if (at >= line.size() || line[at] != ' ') return std::nullopt;
  const std::string number = line.substr(at + 1);
  if (number == "+Inf") {
    series.value = std::numeric_limits<double>::infinity();
    return series;
  }
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), series.value);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  return series;
}

Exposition Parse(const std::string& text) {
  Exposition parsed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, name, rest;
    if (line.starts_with("# ")) {
      words >> hash >> kind >> name;
      std::getline(words >> std::ws, rest);
      auto& facts = kind == "TYPE" ? parsed.types : parsed.helps;
      EXPECT_TRUE(facts.emplace(name, rest).second) << "said twice: " << line;
      continue;
    }
    const std::optional<Series> series = ParseSample(line);
    EXPECT_TRUE(series) << "not a sample: " << line;
    if (series) parsed.series.push_back(*series);
  }
  EXPECT_TRUE(text.ends_with('\n'));
  return parsed;
}

class MetricsTest : public ScriptedServerTest {
 protected:
  Exposition Scrape() { return Parse(AskOnce(port(), "GET", "/metrics").body); }
  void Ask(const std::string& body) {
    EXPECT_EQ(AskOnce(port(), "POST", "/v1/completions", body).status, 200);
  }
};

TEST_F(MetricsTest, EveryFamilyIsWellFormedBeforeAnythingHappened) {
  Start();
  const Exposition metrics = Scrape();
  std::set<std::pair<std::string, LabelMap>> seen;
  for (const Series& series : metrics.series) {
    EXPECT_TRUE(seen.emplace(series.name, series.labels).second) << series.name << " is there twice";
    std::string family = series.name;
    if (!metrics.types.contains(family)) family = family.substr(0, family.rfind('_'));
    ASSERT_THAT(metrics.types, Contains(Key(family))) << series.name;
    EXPECT_FALSE(metrics.helps.at(family).empty()) << series.name;
    if (!series.name.starts_with("millrace_")) {
      EXPECT_EQ(series.labels.at("model_name"), "scripted") << series.name;
      EXPECT_EQ(series.labels.at("engine"), "0") << series.name;
    }
  }
}

TEST_F(MetricsTest, BucketsOfHistogramsGrowAndEndWithAll) {
  Start();
  server_->PlayByDefault("one two three");
  Ask(R"({"prompt":"a"})");
  const Exposition metrics = Scrape();
  for (const auto& [family, type] : metrics.types) {
    if (type != "histogram") continue;
    double last_count = 0, last_bound = 0;
    for (const Series& series : metrics.series) {
      if (series.name != family + "_bucket") continue;
      const std::string& le = series.labels.at("le");
      const double bound = le == "+Inf" ? std::numeric_limits<double>::infinity() : std::stod(le);
      EXPECT_GT(bound, last_bound) << family;
      EXPECT_GE(series.value, last_count) << family;
      last_bound = bound;
      last_count = series.value;
    }
    EXPECT_TRUE(std::isinf(last_bound)) << family;
    EXPECT_EQ(last_count, metrics.Value(family + "_count")) << family;
    EXPECT_FALSE(std::isnan(metrics.Value(family + "_sum"))) << family;
  }
}

TEST_F(MetricsTest, NumbersAreThoseOfTheRequests) {
  Start();
  server_->PlayByDefault("one two three");
  Ask(R"({"prompt":[5,6,7],"max_tokens":2,"n":2})");
  Ask(R"({"prompt":[5,6,7,8,9],"max_tokens":50})");
  const Exposition metrics = Scrape();
  const double answer = static_cast<double>(server_->tokenizer().EncodeText("one two three").size()) + 1;
  EXPECT_EQ(metrics.Value("vllm:prompt_tokens_total"), 11);
  EXPECT_EQ(metrics.Value("sglang:prompt_tokens_total"), 11);
  EXPECT_EQ(metrics.Value("vllm:generation_tokens_total"), 4 + answer);
  EXPECT_EQ(metrics.Value("vllm:request_success_total", {{"finished_reason", "length"}}), 2);
  EXPECT_EQ(metrics.Value("vllm:request_success_total", {{"finished_reason", "stop"}}), 1);
  EXPECT_EQ(metrics.Value("vllm:request_success_total", {{"finished_reason", "repetition"}}), 0);
  EXPECT_EQ(metrics.Value("sglang:num_requests_total"), 3);
  EXPECT_EQ(metrics.Value("vllm:request_prompt_tokens_sum"), 11);
  EXPECT_EQ(metrics.Value("vllm:request_generation_tokens_sum"), 4 + answer);
  EXPECT_EQ(metrics.Value("vllm:request_params_n_sum"), 3);
  EXPECT_EQ(metrics.Value("vllm:request_params_n_count"), 2);
  EXPECT_EQ(metrics.Value("vllm:request_max_num_generation_tokens_sum"), 52);
  EXPECT_EQ(metrics.Value("vllm:iteration_tokens_total_sum"), 11 + 4 + answer);
  EXPECT_EQ(metrics.Value("vllm:iteration_tokens_total_count"), metrics.Value("millrace_engine_steps_total"));
  for (const char* name : {"vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds",
                           "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
                           "vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds",
                           "vllm:request_time_per_output_token_seconds", "sglang:time_to_first_token_seconds",
                           "sglang:e2e_request_latency_seconds", "sglang:queue_time_seconds"})
    EXPECT_EQ(metrics.Value(std::string(name) + "_count"), 3) << name;
  for (const char* name : {"vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"})
    EXPECT_EQ(metrics.Value(std::string(name) + "_count"), 1 + answer) << name;
  const double e2e = metrics.Value("vllm:e2e_request_latency_seconds_sum");
  const double parts = metrics.Value("vllm:request_queue_time_seconds_sum") +
                       metrics.Value("vllm:request_prefill_time_seconds_sum") +
                       metrics.Value("vllm:request_decode_time_seconds_sum");
  EXPECT_GT(parts, 0);
  EXPECT_LE(parts, e2e);
}

TEST_F(MetricsTest, FirstTokensAreCountedUpToHalfAnHour) {
  Start();
  const Exposition metrics = Scrape();
  EXPECT_EQ(metrics.Value("vllm:time_to_first_token_seconds_bucket", {{"le", "1800"}}), 0);
}

TEST_F(MetricsTest, ASequenceThatNeverLeftTheQueueHasNoTimesOfItsOwn) {
  ScriptedServerOptions options;
  options.engine.max_num_seqs = 1;
  Start(options);
  server_->PlayByDefault("x");
  server_->model().HoldSteps();
  SocketClient running(port());
  running.Send("POST", "/v1/completions", R"({"prompt":"a"})");
  ASSERT_TRUE(server_->model().WaitUntilHeld());
  {
    SocketClient waiting(port());
    waiting.Send("POST", "/v1/completions", R"({"prompt":"a"})");
    while (server_->engine().stats().waiting == 0) std::this_thread::yield();
  }
  while (server_->http().stats().disconnected == 0) std::this_thread::yield();
  server_->model().ReleaseSteps();
  EXPECT_EQ(running.Read().status, 200);
  const Exposition metrics = Scrape();
  EXPECT_EQ(metrics.Value("vllm:request_success_total", {{"finished_reason", "abort"}}), 1);
  EXPECT_EQ(metrics.Value("vllm:e2e_request_latency_seconds_count"), 2);
  EXPECT_EQ(metrics.Value("vllm:request_queue_time_seconds_count"), 1);
  EXPECT_EQ(metrics.Value("vllm:num_preemptions_total"), 0);
  EXPECT_EQ(metrics.Value("millrace_prefix_cache_waits_total"), 0);
}

}  // namespace
}  // namespace millrace::api
