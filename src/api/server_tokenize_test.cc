// The endpoints beside generation: token ids, and what gateways and routers ask a server about itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <string>
#include <thread>

#include "api/scripted_server_testing.h"
#include "api/socket_client.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

class ServerTokenizeTest : public ScriptedServerTest {
 protected:
  json::object Post(const char* path, const std::string& body, int status = 200) {
    const ClientResponse response = AskOnce(port(), "POST", path, body);
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body).as_object();
  }
  json::object Get(const char* path, int status = 200) {
    const ClientResponse response = AskOnce(port(), "GET", path);
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body).as_object();
  }
};

TEST_F(ServerTokenizeTest, TextBecomesTheIdsOfACompletion) {
  Start();
  const json::object answer = Post("/tokenize", R"({"prompt":"Hello <think> h\u00e9"})");
  const auto bos = *server_->tokenizer().FindToken(
      "<\xEF\xBD\x9C"
      "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>");
  std::vector<TokenId> expected = server_->tokenizer().EncodePrompt("Hello <think> h\u00e9");
  EXPECT_EQ(answer.at("count").as_int64(), static_cast<int64_t>(expected.size()) + 1);
  EXPECT_EQ(answer.at("tokens").as_array().at(0).as_int64(), bos);
  EXPECT_EQ(answer.at("tokens").as_array().at(1).as_int64(), expected.at(0));
  EXPECT_EQ(answer.at("max_model_len").as_int64(), server_->engine().max_model_len());
  EXPECT_TRUE(answer.at("token_strs").is_null());

  const json::object bare =
      Post("/tokenize", R"({"prompt":"Hello","add_special_tokens":false,"return_token_strs":true})");
  std::string text;
  for (const json::value& piece : bare.at("token_strs").as_array()) text += piece.as_string();
  EXPECT_EQ(text, "Hello");
  EXPECT_EQ(Post("/tokenize", R"({"prompt":""})").at("count").as_int64(), 1);
}

TEST_F(ServerTokenizeTest, AChatHasTheIdsThatItsAnswerIsBilledFor) {
  Start();
  server_->PlayByDefault("x");
  const std::string chat = R"({"messages":[{"role":"user","content":"Hello!"}]})";
  const json::object answer = Post("/tokenize", chat);
  const json::object usage = Post("/v1/chat/completions", chat).at("usage").as_object();
  EXPECT_EQ(answer.at("count"), usage.at("prompt_tokens"));
  EXPECT_EQ(answer.at("tokens").as_array().size(), static_cast<size_t>(answer.at("count").as_int64()));
}

TEST_F(ServerTokenizeTest, IdsBecomeTheirText) {
  Start();
  const json::object ids =
      Post("/tokenize", R"({"prompt":"<think>Gr\u00fc\u00dfe","add_special_tokens":false})");
  const std::string body = R"({"tokens":)" + json::serialize(ids.at("tokens")) + "}";
  EXPECT_EQ(Post("/detokenize", body).at("prompt"), "<think>Gr\u00fc\u00dfe");
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[]})").at("prompt"), "");
}

TEST_F(ServerTokenizeTest, WhatIsWrongIsNamed) {
  Start();
  const auto param = [&](const char* path, const char* body, int status = 400) {
    return std::string(Post(path, body, status).at("error").as_object().at("param").as_string());
  };
  EXPECT_EQ(param("/tokenize", "{}"), "prompt");
  EXPECT_EQ(param("/tokenize", R"({"prompt":5})"), "prompt");
  EXPECT_EQ(param("/tokenize", R"({"prompt":"a","add_special_tokens":1})"), "add_special_tokens");
  EXPECT_EQ(param("/tokenize", R"({"prompt":"a","return_token_strs":"x"})"), "return_token_strs");
  EXPECT_EQ(param("/tokenize", R"({"messages":[]})"), "messages");
  EXPECT_EQ(
      param("/tokenize", R"({"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false})"),
      "add_generation_prompt");
  EXPECT_EQ(param("/tokenize", R"({"prompt":"a","model":"other"})", 404), "model");
  EXPECT_EQ(param("/detokenize", "{}"), "tokens");
  EXPECT_EQ(param("/detokenize", R"({"tokens":"a"})"), "tokens");
  EXPECT_EQ(param("/detokenize", R"({"tokens":[1,-1]})"), "tokens[1]");
  EXPECT_EQ(param("/detokenize", R"({"tokens":[1000000000]})"), "tokens[0]");
  EXPECT_EQ(param("/detokenize", R"({"tokens":[1.5]})"), "tokens[0]");
}

TEST_F(ServerTokenizeTest, TheServerDescribesItselfToRouters) {
  ScriptedServerOptions options;
  options.service.model_path = "/models/x";
  options.service.max_num_seqs = 3;
  Start(options);
  for (const char* path : {"/server_info", "/get_server_info"}) {
    const json::object info = Get(path);
    EXPECT_EQ(info.at("status"), "ready");
    EXPECT_EQ(info.at("served_model_name"), "scripted");
    EXPECT_EQ(info.at("max_running_requests"), 3);
    EXPECT_EQ(info.at("context_length").as_int64(), server_->engine().max_model_len());
    EXPECT_EQ(info.at("dp_size"), 1);
  }
  for (const char* path : {"/model_info", "/get_model_info"}) {
    EXPECT_EQ(Get(path).at("model_path"), "/models/x");
    EXPECT_EQ(Get(path).at("is_generation"), true);
  }
  EXPECT_EQ(Get("/load").at("server_load"), 0);
  EXPECT_EQ(Get("/v1/models/scripted").at("id"), "scripted");
  EXPECT_EQ(Get("/v1/models/none", 404).at("error").as_object().at("code"), "model_not_found");
}

TEST_F(ServerTokenizeTest, GeneratingHealthComputesATokenWhenIdle) {
  Start();
  server_->PlayByDefault("x");
  EXPECT_EQ(Get("/health_generate").at("status"), "ok");
  EXPECT_EQ(server_->engine().stats().generation_tokens_total, 1u);
}

TEST_F(ServerTokenizeTest, GeneratingHealthBelievesAStepThatRuns) {
  ScriptedServerOptions options;
  Start(options);
  server_->PlayByDefault("x");
  server_->model().HoldSteps();
  SocketClient asking(port());
  asking.Send("POST", "/v1/completions", R"({"prompt":"a"})");
  ASSERT_TRUE(server_->model().WaitUntilHeld());
  EXPECT_EQ(Get("/health_generate").at("status"), "busy");
  EXPECT_EQ(Get("/load").at("server_load"), 1);
  server_->model().ReleaseSteps();
  EXPECT_EQ(asking.Read().status, 200);
}

TEST_F(ServerTokenizeTest, GeneratingHealthCallsAStuckEngineIll) {
  ScriptedServerOptions options;
  options.engine.watchdog.stuck_after_seconds = 0.001;
  Start(options);
  server_->PlayByDefault("x");
  server_->model().HoldSteps();
  SocketClient probe(port());
  probe.Send("GET", "/health_generate");
  ASSERT_TRUE(server_->model().WaitUntilHeld());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(Get("/health_generate", 503).at("status"), "stuck");
  probe.Close();  // its token is cancelled, not waited for
  server_->model().ReleaseSteps();
  for (int i = 0; server_->engine().stats().running > 0 && i < 2000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server_->engine().stats().running, 0);
}

}  // namespace
}  // namespace millrace::api
