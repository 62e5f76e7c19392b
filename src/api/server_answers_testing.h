#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/scripted_server_testing.h"
#include "api/socket_client.h"
#include "api/wait_until_testing.h"

// Heavy header (Boost.JSON): for tests only.

namespace millrace::api {

inline constexpr const char* kChatPath = "/v1/chat/completions";
inline constexpr const char* kCompletionsPath = "/v1/completions";

// A test that asks a scripted server in OpenAI's dialect and looks into its answers.
class ServerAnswersTest : public ScriptedServerTest {
 protected:
  engine::ScriptedModel& model() { return server_->model(); }

  boost::json::object Answer(const char* path, const std::string& body) {
    const ClientResponse response = AskOnce(port(), "POST", path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.headers.at("content-type"), "application/json");
    return boost::json::parse(response.body).as_object();
  }

  // The JSON of every event; the last event must be [DONE].
  std::vector<boost::json::object> Stream(const char* path, const std::string& body) {
    const ClientResponse response = AskOnce(port(), "POST", path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
    EXPECT_TRUE(response.complete);
    std::vector<std::string> events = EventData(response.body);
    std::vector<boost::json::object> chunks;
    EXPECT_FALSE(events.empty());
    if (events.empty()) return chunks;
    EXPECT_EQ(events.back(), "[DONE]");
    events.pop_back();
    for (const std::string& event : events) chunks.push_back(boost::json::parse(event).as_object());
    return chunks;
  }

  void WaitUntilFree() {
    WaitUntil(
        [&] {
          const engine::EngineStats stats = server_->engine().stats();
          return stats.running == 0 && stats.waiting == 0 && model().live_sequences() == 0;
        },
        "all slots free");
  }

  // All that the model read of its `n`-th sequence, counted from 1: the prompt, and what it generated but for
  // the last token.
  std::vector<TokenId> Read(uint64_t n) {
    std::vector<TokenId> ids;
    for (const auto& step : model().recorded_steps()) {
      for (const auto& item : step) {
        if (item.sequence == n) ids.insert(ids.end(), item.tokens.begin(), item.tokens.end());
      }
    }
    return ids;
  }
};

inline const boost::json::object& FirstChoice(const boost::json::object& answer) {
  return answer.at("choices").as_array().at(0).as_object();
}

// {"messages": [...]} to that with more fields behind.
inline std::string WithFields(std::string body, const std::string& fields) {
  body.pop_back();
  return body + fields + "}";
}

}  // namespace millrace::api
