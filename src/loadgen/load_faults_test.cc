#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "loadgen/conversations.h"
#include "loadgen/fairness.h"
#include "loadgen/load_report.h"
#include "loadgen/random_load.h"
#include "loadgen/rude_server_testing.h"
#include "loadgen/soak.h"
#include "loadgen/soak_report.h"

// Servers that misbehave, and servers whose figures are known.
namespace millrace::loadgen {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

LoadSessionOptions OptionsFor(const std::string& url) {
  LoadSessionOptions options;
  options.http.url = ServerUrl::Parse(url).value();
  options.http.stall_timeout = 30s;  // of a busy machine
  options.chat.model = "m";
  options.tokens_per_word = 1;
  return options;
}

LoadSession Session(const LoadSessionOptions& options) {
  Result<LoadSession> session = LoadSession::Open(options);
  MILLRACE_CHECK(session.ok(), "the model's name and a word's length are given: nothing is asked");
  return std::move(session).value();
}

// What three requests to such a server are counted as.
Summary LoadOf(const RudeServer::Handler& handler,
               const std::function<void(LoadSessionOptions&)>& change = {}) {
  RudeServer server(handler);
  LoadSessionOptions options = OptionsFor(server.url());
  if (change) change(options);
  LoadSession session = Session(options);
  const TimePoint begin = Clock::now();
  const RandomLoadResult result = RunRandomLoad(
      session, {.num_prompts = 3, .max_concurrency = 2, .input_tokens = 10, .output_tokens = 4});
  EXPECT_LT(Seconds(Clock::now() - begin), 20);
  EXPECT_EQ(result.summary.requests, 3);
  EXPECT_EQ(result.summary.succeeded + result.summary.failed(), 3);
  return result.summary;
}

void Answer(const RudePeer& peer, int n_texts = 4, int64_t cached = 0) {
  peer.SendStreamHead();
  for (int i = 0; i < n_texts; ++i) peer.SendText("word ");
  peer.SendEnd(100, n_texts, cached);
}

TEST(LoadFaults, AGoodServerHasNone) {
  const Summary summary = LoadOf([](const RudePeer& peer, auto, auto) { Answer(peer, 4, 64); });
  EXPECT_EQ(summary.succeeded, 3);
  EXPECT_EQ(summary.prompt_tokens, 300);
  EXPECT_EQ(summary.cached_tokens, 192);
  EXPECT_EQ(summary.completion_tokens, 12);
  EXPECT_EQ(summary.gap_s.count(), 9u);
}

struct Fault {
  const char* what;
  RudeServer::Handler handler;
  const char* name;
  const char* detail;
};

TEST(LoadFaults, EachIsCountedUnderItsName) {
  const Fault faults[] = {
      {"stalls before its answer", [](const RudePeer& peer, auto, auto) { peer.WaitUntilGone(); }, "stalled",
       "sent no answer for 0.3 s"},
      {"stalls inside its answer",
       [](const RudePeer& peer, auto, auto) {
         peer.SendStreamHead();
         peer.SendText("a");
         peer.WaitUntilGone();
       },
       "stalled", "stopped inside its answer for 0.3 s"},
      {"sends garbage", [](const RudePeer& peer, auto, auto) { peer.Send("\x01\x02garbage\r\n\r\n"); },
       "malformed http", "sent no answer"},
      {"sends garbage in its stream",
       [](const RudePeer& peer, auto, auto) {
         peer.SendStreamHead();
         peer.Send("data: {\"choices\": [\x1b[2J\n\n");
         peer.WaitUntilGone();
       },
       "malformed event", "{\"choices\": [?[2J"},
      {"sends a chunk length that is none",
       [](const RudePeer& peer, auto, auto) {
         peer.Send(
             "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
             "chunked\r\n\r\nzz\r\n");
       },
       "malformed http", "stopped inside its answer"},
      {"answers with a page",
       [](const RudePeer& peer, auto, auto) {
         peer.SendAnswer("200 OK", "Content-Type: text/html\r\n", "<html>hello</html>");
       },
       "malformed event", "not an event stream but 'text/html': <html>hello</html>"},
      {"closes at once", [](const RudePeer&, auto, auto) {}, "closed early", "sent no answer"},
      {"closes mid-stream",
       [](const RudePeer& peer, auto, auto) {
         peer.SendStreamHead();
         peer.SendText("a");
         peer.Send("data: {\"choi");
       },
       "closed early", "without a finish reason"},
      {"closes inside a chunk",
       [](const RudePeer& peer, auto, auto) {
         peer.Send(
             "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
             "chunked\r\n\r\nff\r\nda");
       },
       "closed early", "stopped inside its answer"},
      {"sends an error in its stream",
       [](const RudePeer& peer, auto, auto) {
         peer.SendStreamHead();
         peer.SendText("a");
         peer.Send("data: {\"error\": {\"message\": \"engine stuck\"}}\n\ndata: [DONE]\n\n");
       },
       "error event", "engine stuck"},
      {"refuses",
       [](const RudePeer& peer, auto, auto) {
         peer.SendAnswer("400 Bad Request", "Content-Type: application/json\r\n",
                         "{\"error\": {\"message\": \"no such model\"}}");
       },
       "http 400", "no such model"},
      {"is full",
       [](const RudePeer& peer, auto, auto) {
         peer.SendAnswer("429 Too Many Requests", "Retry-After: 1\r\n", "busy");
       },
       "http 429", "busy"},
  };
  for (const Fault& fault : faults) {
    const Summary summary = LoadOf(fault.handler, [&](LoadSessionOptions& options) {
      if (fault.name == std::string_view("stalled")) options.http.stall_timeout = 300ms;
    });
    ASSERT_EQ(summary.failures.size(), 1u) << fault.what << "\n" << SummaryText(summary, 0);
    const auto& [name, count] = *summary.failures.begin();
    EXPECT_EQ(name, fault.name) << fault.what;
    EXPECT_EQ(count.count, 3) << fault.what;
    EXPECT_THAT(count.example, HasSubstr(fault.detail)) << fault.what;
    EXPECT_THAT(SummaryText(summary, 1), HasSubstr(fmt::format("3 x {}", fault.name)));
  }
}

TEST(LoadFaults, AStreamThatNeverEndsMeetsTheTimeout) {
  const auto dribble = [](const RudePeer& peer, auto, auto) {
    peer.SendStreamHead();
    for (int i = 0; i < 60; ++i) {  // never silent for long
      peer.Send(": keep-alive\n\n");
      std::this_thread::sleep_for(20ms);
    }
  };
  const Summary summary = LoadOf(dribble, [](LoadSessionOptions& options) { options.http.timeout = 400ms; });
  EXPECT_EQ(summary.failures.at("timeout").count, 3);
}

TEST(LoadFaults, NobodyListens) {
  std::string url;
  {
    const RudeServer gone([](auto&&...) {});
    url = gone.url();
  }
  LoadSession session = Session(OptionsFor(url));
  const RandomLoadResult result = RunRandomLoad(session, {.num_prompts = 2, .max_concurrency = 1});
  EXPECT_EQ(result.summary.failures.at("no connection").count, 2);
  LoadSessionOptions asking = OptionsFor(url);
  asking.chat.model.clear();
  const Result<LoadSession> unopened = LoadSession::Open(asking);
  ASSERT_FALSE(unopened.ok());
  EXPECT_THAT(unopened.error().message(), HasSubstr(url));
}

TEST(LoadFaults, RetryAfterIsHonouredAndCounted) {
  std::mutex mutex;
  std::map<std::string, TimePoint> refused;  // by body, which a nonce makes unique
  std::vector<double> waits;
  const auto full_at_first = [&](const RudePeer& peer, auto, std::string_view body) {
    {
      const std::lock_guard lock(mutex);
      const auto [first, is_new] = refused.emplace(body, Clock::now());
      if (is_new) {
        peer.SendAnswer("429 Too Many Requests", "Retry-After: 1\r\n", "busy");
        return;
      }
      waits.push_back(Seconds(Clock::now() - first->second));
    }
    Answer(peer);
  };
  const Summary summary = LoadOf(full_at_first, [](LoadSessionOptions& options) {
    options.chat.max_retries = 1;
    options.chat.retry_wait_s = 0.01;  // not this: the server said one second
  });
  EXPECT_EQ(summary.succeeded, 3);
  EXPECT_EQ(summary.refusals.at("http 429"), 3);
  ASSERT_EQ(waits.size(), 3u);
  for (const double wait : waits) EXPECT_GE(wait, 1);
  EXPECT_GE(summary.ttft_s.Min(), 1);  // clients waited through the refusal
}

TEST(LoadSession, AsksForModelAndTokensOfAWord) {
  RudeServer server([](const RudePeer& peer, std::string_view path, std::string_view body) {
    if (path == "/v1/models") {
      return peer.SendAnswer("200 OK", "Content-Type: application/json\r\n",
                             "{\"data\": [{\"id\": \"flash\"}, {\"id\": \"other\"}]}");
    }
    const boost::json::value request = boost::json::parse(body);
    EXPECT_EQ(request.at("model"), "flash");
    const auto& content = request.at("messages").at(0).at("content").as_string();
    peer.SendStreamHead();
    peer.SendText("a");
    // Seven for template and nonce, three for two words; the nonce ends with a space.
    peer.SendEnd(7 + 3 * std::ranges::count(content, ' ') / 2, 1, 0);
  });
  LoadSessionOptions options = OptionsFor(server.url());
  options.chat.model.clear();
  options.tokens_per_word.reset();
  const Result<LoadSession> session = LoadSession::Open(options);
  ASSERT_TRUE(session.ok()) << session.error().message();
  EXPECT_EQ(session->client.options().model, "flash");
  EXPECT_DOUBLE_EQ(session->text.rate().tokens_per_word, 1.5);
  EXPECT_DOUBLE_EQ(session->text.rate().overhead_tokens, 7);
}

TEST(LoadSession, SaysWhatToDoWithoutUsageOrKey) {
  RudeServer without_usage([](const RudePeer& peer, auto, auto) {
    peer.SendStreamHead();
    peer.Send("data: [DONE]\n\n");
  });
  LoadSessionOptions options = OptionsFor(without_usage.url());
  options.tokens_per_word.reset();
  EXPECT_THAT(LoadSession::Open(options).error().message(), HasSubstr("--tokens-per-word"));
  RudeServer locked([](const RudePeer& peer, auto, auto) { peer.SendAnswer("401 Unauthorized", "", "{}"); });
  options = OptionsFor(locked.url());
  options.chat.model.clear();
  EXPECT_THAT(LoadSession::Open(options).error().message(), HasSubstr("--api-key"));
}

TEST(RandomLoad, AnOpenLoopDoesNotWaitForAnswers) {
  std::atomic<int> in_flight{0}, most{0};
  RudeServer server([&](const RudePeer& peer, auto, auto) {
    const int now = ++in_flight;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(200ms);
    --in_flight;
    Answer(peer);
  });
  LoadSession session = Session(OptionsFor(server.url()));
  const RandomLoadResult open =
      RunRandomLoad(session, {.num_prompts = 20, .request_rate = 200, .input_tokens = 10, .arrival_seed = 3});
  EXPECT_EQ(open.summary.succeeded, 20);
  EXPECT_GT(most, 6);
  EXPECT_EQ(open.late_s.count(), 20u);
  most = 0;
  const RandomLoadResult closed =
      RunRandomLoad(session, {.num_prompts = 6, .max_concurrency = 2, .input_tokens = 10});
  EXPECT_EQ(closed.summary.succeeded, 6);
  EXPECT_EQ(most, 2);
}

TEST(Conversations, RepeatTheServersAnswersAndMeasureReuse) {
  std::mutex mutex;
  std::vector<boost::json::value> bodies;
  RudeServer server([&](const RudePeer& peer, auto, std::string_view body) {
    const boost::json::value request = boost::json::parse(body);
    {
      const std::lock_guard lock(mutex);
      bodies.push_back(request);
    }
    const auto n_messages = static_cast<int64_t>(request.at("messages").as_array().size());
    peer.SendStreamHead();
    peer.SendText(fmt::format("answer {}", n_messages));
    // Prompts of 100 tokens a message; a later turn finds 90 % of the one before.
    peer.SendEnd(100 * n_messages, 1, n_messages == 2 ? 0 : 90 * (n_messages - 2));
  });
  LoadSession session = Session(OptionsFor(server.url()));
  const ConversationsResult result = RunConversations(
      session, {.conversations = 3, .turns = 3, .system_tokens = 20, .input_tokens = 5, .output_tokens = 4});
  EXPECT_EQ(result.summary.succeeded, 9);
  EXPECT_EQ(result.reuse.later_turns(), 6);
  EXPECT_DOUBLE_EQ(result.reuse.reuse(), 0.9);
  EXPECT_DOUBLE_EQ(result.reuse.recomputed_tokens().Max(), 40);
  const std::lock_guard lock(mutex);
  std::map<std::string, int> systems;
  for (const boost::json::value& body : bodies) {
    const boost::json::array& messages = body.at("messages").as_array();
    ++systems[std::string(messages[0].at("content").as_string())];
    for (size_t i = 2; i < messages.size(); i += 2)
      EXPECT_EQ(std::string(messages[i].at("content").as_string()), fmt::format("answer {}", i));
  }
  EXPECT_EQ(systems.size(), 1u);  // shared by all
  EXPECT_DOUBLE_EQ(Json(result).at("reuse").at("reuse_of_previous_prompt").as_double(), 0.9);
}

// Answers every conversation by a function of its messages; the page of metrics counts.
class AgentServer {
 public:
  explicit AgentServer(bool honest, int stuck = 0)
      : server_([this, honest, stuck](const RudePeer& peer, std::string_view path, std::string_view body) {
          if (path == "/metrics") {
            return peer.SendAnswer("200 OK", "",
                                   fmt::format("vllm:num_requests_running {}\nvllm:num_requests_waiting 0\n"
                                               "millrace_memory_live_bytes{{account=\"kv pages\"}} 512\n",
                                               stuck));
          }
          const boost::json::value request = boost::json::parse(body);
          const std::string messages = boost::json::serialize(request.at("messages"));
          size_t state = std::hash<std::string>()(messages) + (honest ? 0 : n_requests_.fetch_add(1));
          peer.SendStreamHead();
          for (int i = 0; i < 8; ++i)
            peer.SendText(fmt::format("{:x} ", state = state * 6364136223846793005u + 1));
          peer.SendEnd(static_cast<int64_t>(messages.size()) / 4, 8,
                       static_cast<int64_t>(messages.size()) / 8);
        }) {}

  SoakResult Soak() {
    LoadSession session = Session(OptionsFor(server_.url()));
    SoakOptions options{.duration_s = 0.7,
                        .sessions = 4,
                        .system_tokens = 40,
                        .input_tokens = 10,
                        .tool_tokens = 30,
                        .output_tokens = 8,
                        .compact_at_tokens = 600};
    options.disconnect_rate = options.repeat_rate = options.edit_rate = 0.3;
    options.settle_s = 0.1;
    return RunSoak(session, options);
  }

 private:
  std::atomic<size_t> n_requests_{0};
  RudeServer server_;
};

TEST(Soak, AnHonestServerHasNoFaults) {
  const SoakResult result = AgentServer(/*honest=*/true).Soak();
  EXPECT_THAT(result.Faults(), testing::IsEmpty()) << Text(result);
  EXPECT_GT(result.compared, 20);
  EXPECT_GT(result.summary.left, 0);
  EXPECT_GT(result.compactions, 0);
  EXPECT_GT(result.subagents, 0);
  EXPECT_GT(result.tool_outputs, 0);
  for (const char* change : {"begun", "extended", "edited near the end", "reminder moved", "repeated"})
    EXPECT_TRUE(result.reuse.contains(change)) << change;
  ASSERT_TRUE(result.after);
  EXPECT_EQ(result.after->live_bytes.at("kv pages"), 512);
}

TEST(Soak, AnAnswerThatChangesIsAFault) {
  const SoakResult result = AgentServer(/*honest=*/false).Soak();
  EXPECT_GT(result.mismatches, result.compared / 2);
  ASSERT_FALSE(result.Faults().empty());
  EXPECT_THAT(result.Faults().front(), HasSubstr("answered otherwise at temperature 0"));
  ASSERT_FALSE(result.examples.empty());
  EXPECT_NE(result.examples[0].first, result.examples[0].second);
  EXPECT_THAT(Text(result), HasSubstr("FAULT: "));
}

TEST(Soak, AServerThatStaysBusyIsAFault) {
  const SoakResult result = AgentServer(/*honest=*/true, /*stuck=*/2).Soak();
  EXPECT_THAT(result.Faults(), testing::ElementsAre(HasSubstr("still holds 2 running and 0 waiting")));
}

SoakResult SoakOf(const std::string& url, const SoakOptions& options) {
  LoadSession session = Session(OptionsFor(url));
  return RunSoak(session, options);
}

SoakOptions ShortSoak() {
  SoakOptions options{.duration_s = 0.8, .sessions = 4, .system_tokens = 10, .input_tokens = 5};
  options.disconnect_rate = options.repeat_rate = options.edit_rate = options.subagent_rate = 0;
  options.settle_s = 0.1;
  return options;
}

// With pauses of 0.1, 0.2, 0.4 s an agent asks a few times; without any it would thousands of times.
TEST(Soak, AgentsBackOffFromAServerThatOnlyFails) {
  RudeServer failing(
      [](const RudePeer& peer, auto, auto) { peer.SendAnswer("500 Internal Server Error", "", "{}"); });
  const SoakResult result = SoakOf(failing.url(), ShortSoak());
  EXPECT_EQ(result.unreachable, "");
  EXPECT_EQ(result.summary.failures.at("http 500").count, result.summary.requests);
  EXPECT_GE(result.summary.requests, 4 * 2);
  EXPECT_LE(result.summary.requests, 4 * 4);
}

TEST(Soak, GivesUpOnAServerThatIsGone) {
  std::string url;
  {
    const RudeServer gone([](const RudePeer&, auto, auto) {});
    url = gone.url();
  }
  SoakOptions options = ShortSoak();
  options.duration_s = 600;
  options.give_up_s = 0.5;
  const SoakResult result = SoakOf(url, options);
  EXPECT_LT(result.duration_s, 3);
  EXPECT_LE(result.summary.requests, 4 * 4);
  EXPECT_THAT(result.Faults().front(), HasSubstr("the soak ended early: " + url));
  EXPECT_THAT(Text(result), HasSubstr("FAULT: no connection in "));
}

TEST(NameLookup, HasADeadlineAndCanBeLeft) {
  RudeServer server([](const RudePeer& peer, auto, auto) { Answer(peer); });
  LoadSessionOptions options = OptionsFor("http://a-name:" + std::to_string(server.port()));
  options.http.connect_timeout = 200ms;
  const auto slow = std::make_shared<std::atomic<bool>>(true);
  const auto ended = std::make_shared<std::atomic<int>>(0);
  options.http.look_up = [slow, ended](const std::string&, const std::string& port) {
    if (*slow) std::this_thread::sleep_for(1s);
    ++*ended;
    return SystemLookUp("127.0.0.1", port);
  };
  LoadSession session = Session(options);
  const TimePoint begin = Clock::now();
  const RandomLoadOptions load{.num_prompts = 3, .max_concurrency = 3, .input_tokens = 5};
  const Summary late = RunRandomLoad(session, load).summary;
  EXPECT_LT(Seconds(Clock::now() - begin), 0.9);
  EXPECT_EQ(late.failures.at("no connection").count, 3);
  EXPECT_THAT(late.failures.at("no connection").example, HasSubstr("the name a-name is not found"));
  *slow = false;
  EXPECT_EQ(RunRandomLoad(session, load).summary.succeeded, 3);
  while (*ended < 6) std::this_thread::sleep_for(10ms);  // their threads outlive the loop, and touch nothing
}

// A fairness run on a server that sends 8 pieces of text an answer and counts `n_tokens` in its usage, and,
// if any, in its /metrics.
FairnessResult FairnessWhere(int64_t n_tokens, bool has_usage, bool has_metrics) {
  std::atomic<int64_t> generated{0};
  RudeServer server([&](const RudePeer& peer, std::string_view path, std::string_view) {
    if (path == "/metrics") {
      return has_metrics ? peer.SendAnswer("200 OK", "",
                                           fmt::format("vllm:generation_tokens_total {}\n", generated.load()))
                         : peer.SendAnswer("404 Not Found", "", "");
    }
    peer.SendStreamHead();
    for (int i = 0; i < 8; ++i) {
      peer.SendText("word ");
      std::this_thread::sleep_for(1ms);
    }
    generated += n_tokens;
    peer.SendEnd(100, has_usage ? n_tokens : 8, 0);
  });
  LoadSession session = Session(OptionsFor(server.url()));
  const Result<FairnessResult> result = RunFairness(session, {.decode_streams = 2,
                                                              .solo_tokens = 8,
                                                              .solo_s = 0.01,
                                                              .long_prompts = 1,
                                                              .long_input_tokens = 10,
                                                              .short_input_tokens = 10});
  MILLRACE_CHECK(result.ok(), result.error().message().c_str());
  return *result;
}

TEST(LoadFaults, FairnessRefusesRatesWhereTokensAreNoText) {
  const FairnessResult good = FairnessWhere(9, true, true);
  EXPECT_EQ(good.no_rates, "");
  EXPECT_TRUE(good.SlowestKept());
  const FairnessResult by_usage = FairnessWhere(40, true, false);
  EXPECT_THAT(by_usage.no_rates, HasSubstr("usage"));
  EXPECT_THAT(by_usage.no_rates, HasSubstr(" 20 %"));
  const FairnessResult by_metrics = FairnessWhere(40, false, true);
  EXPECT_THAT(by_metrics.no_rates, HasSubstr("the server counts"));
  EXPECT_FALSE(by_metrics.SlowestKept());
  EXPECT_THAT(Text(by_metrics), testing::Not(HasSubstr("of its solo rate")));
  EXPECT_FALSE(Json(by_metrics).contains("slowest_of_solo"));
}

}  // namespace
}  // namespace millrace::loadgen
