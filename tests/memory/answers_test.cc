// Answers under way, of every kind that takes more than its text, in a server's fresh process: many at once,
// to clients that read slowly or not at all for a while. What the process holds stays within what its
// accounts say, these within their plan, and in the end all of it is given back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "api/socket_client.h"
#include "base/units.h"
#include "memory/server_process.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kMessages = "/v1/messages";
constexpr const char* kResponses = "/v1/responses";

std::string Chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"Hello!"}],"ignore_eos":true,"thinking":{"type":"disabled"},)" +
         fields + "}";
}

std::string Completion(const std::string& fields) {
  return R"({"prompt":"Hello!","ignore_eos":true,)" + fields + "}";
}

class AnswersMemoryTest : public ::testing::Test {
 protected:
  // Asks `n` clients' requests at once and again whoever is told to come back; each lets its answer wait.
  void AskTogether(size_t n, const std::string& path, const std::string& body) {
    std::vector<std::thread> clients;
    for (size_t c = 0; c < n; ++c) clients.emplace_back([&] { AskUntilAnswered(path, body); });
    for (std::thread& client : clients) client.join();
  }

  void AskUntilAnswered(const std::string& path, const std::string& body) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      api::SocketClient client(server_.port(), /*receive_buffer_bytes=*/4096);
      client.Send("POST", path, body);
      std::this_thread::sleep_for(milliseconds(150));
      const api::ClientResponse answer = client.Read();
      if (answer.status != 429) {
        EXPECT_EQ(answer.status, 200) << answer.body.substr(0, 500);
        EXPECT_TRUE(answer.complete);
        EXPECT_THAT(answer.body, ::testing::Not(::testing::HasSubstr("\"error\":{")));
        return;
      }
      EXPECT_TRUE(answer.headers.contains("retry-after"));
      ++told_to_come_back_;
      std::this_thread::sleep_for(milliseconds(20));
    }
    ADD_FAILURE() << "never answered: " << body;
  }

  // When no connection but the one that asks is left.
  std::map<std::string, ServerProcess::Account> AccountsAtRest() const {
    std::map<std::string, ServerProcess::Account> accounts;
    for (int i = 0; i < 500; ++i) {
      accounts = server_.Accounts();
      if (accounts.at("answers in progress").live_bytes == 0 &&
          accounts.at("connections").live_bytes <= one_connection_)
        break;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return accounts;
  }

  static constexpr uint64_t kAnswersBytes = 24 * kMiB;
  ServerProcess server_{{MILLRACE_SCRIPTED_SERVER, MILLRACE_SOURCE_DIR "/models/mini", "--noise", "--step-us",
                         "0", "--max-num-seqs", "4", "--max-queue", "60", "--max-model-len", "4096",
                         "--max-answers-size", std::to_string(kAnswersBytes), "--max-unread-total",
                         std::to_string(4 * kMiB)}};
  std::atomic<int> told_to_come_back_{0};
  uint64_t one_connection_ = 0;
};

TEST_F(AnswersMemoryTest, StaysWithinItsAccountsAndTheseWithinTheirPlan) {
  ASSERT_NE(server_.port(), 0);
  // What libraries and allocator take once is no answer's.
  AskUntilAnswered(kChat, Chat(R"("max_tokens":8,"logprobs":true,"top_logprobs":2)"));
  one_connection_ = server_.Accounts().at("connections").live_bytes;
  const auto before = AccountsAtRest();
  const uint64_t resident_before = server_.resident_bytes();

  AskTogether(12, kChat, Chat(R"("max_tokens":200,"n":4,"logprobs":true,"top_logprobs":20)"));
  AskTogether(1, kChat, Chat(R"("max_tokens":55,"n":60,"logprobs":true,"top_logprobs":20)"));
  AskTogether(8, kCompletions, Completion(R"("max_tokens":100,"n":8,"logprobs":20)"));
  EXPECT_GT(told_to_come_back_, 0) << "the budget was never full";
  AskTogether(8, kChat, Chat(R"("max_tokens":200,"n":2,"stream":true,"logprobs":true,"top_logprobs":20)"));
  AskTogether(4, kResponses,
              R"({"input":"Hello!","ignore_eos":true,"reasoning":{"effort":"none"},"max_output_tokens":200,)"
              R"("stream":true,"top_logprobs":20,"include":["message.output_text.logprobs"]})");
  AskTogether(4, kResponses,
              R"({"input":"Hello!","ignore_eos":true,"reasoning":{"effort":"none"},"max_output_tokens":200,)"
              R"("top_logprobs":20,"include":["message.output_text.logprobs"]})");
  // Long texts, which need no reservation: the end of one is written at a time.
  for (const std::string stream : {"false", "true"}) {
    AskTogether(4, kResponses,
                R"({"input":"Hello!","ignore_eos":true,"max_output_tokens":3000,)"
                R"("include":["reasoning.encrypted_content"],"stream":)" +
                    stream + "}");
    AskTogether(
        4, kMessages,
        R"({"messages":[{"role":"user","content":"Hello!"}],"max_tokens":3000,"stream":)" + stream + "}");
  }
  AskTogether(4, kChat, Chat(R"("max_tokens":1000,"n":8)"));

  const auto after = AccountsAtRest();
  uint64_t accounted = 0;
  for (const auto& [name, account] : after) {
    EXPECT_LE(account.peak_bytes, account.planned_bytes) << name;
    if (name == "answers remembered") continue;  // is to grow
    const ServerProcess::Account& first = before.at(name);
    EXPECT_EQ(account.live_bytes, first.live_bytes) << name;
    // Of a connection hardly anything is touched that its account has.
    if (name != "connections") accounted += account.peak_bytes - first.live_bytes;
  }
  accounted += after.at("answers remembered").live_bytes;
  const uint64_t grown = server_.peak_resident_bytes() - resident_before;
  EXPECT_LE(grown, accounted + accounted / 50)
      << "peak resident " << HumanBytes(server_.peak_resident_bytes());
  EXPECT_GT(grown, kAnswersBytes / 4) << "the answers took too little to prove anything";
  RecordProperty("grown", std::to_string(grown));
  RecordProperty("accounted", std::to_string(accounted));
  std::printf("resident +%s, accounted %s, told to come back %d times\n", HumanBytes(grown).c_str(),
              HumanBytes(accounted).c_str(), told_to_come_back_.load());
}

}  // namespace
}  // namespace millrace::testing
