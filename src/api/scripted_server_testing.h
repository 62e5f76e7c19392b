#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "api/scripted_server.h"

namespace millrace::api {

// A test that runs one whole server over a scripted model, with the tokenizer of models/mini.
class ScriptedServerTest : public ::testing::Test {
 protected:
  void Start(ScriptedServerOptions options = {}) {
    options.tokenizer = MILLRACE_SOURCE_DIR "/models/mini";
    auto server = ScriptedServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.error().message();
    server_ = std::move(server).value();
  }
  uint16_t port() const { return server_->http().port(); }

  std::unique_ptr<ScriptedServer> server_;
};

}  // namespace millrace::api
