#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "loadgen/chat_client.h"
#include "loadgen/metrics_page.h"
#include "loadgen/text_maker.h"

namespace millrace::loadgen {

struct LoadSessionOptions {
  HttpClientOptions http;
  ChatOptions chat;                       // model empty: the first that /v1/models names
  uint64_t seed = 0;                      // of words, lengths, arrivals and choices
  std::optional<double> tokens_per_word;  // instead of asking the server
};

// A client of one server, ready to make load: it knows the model's name and how long words are in tokens.
struct LoadSession {
  ChatClient client;
  TextMaker text;

  // Asks for the model's name, then two short prompts whose usage tells tokens per word. Runs a RunLoop.
  // Errors name the server and what it answered: unreachable, no model, a refused prompt, an answer without
  // usage.
  static Result<LoadSession> Open(LoadSessionOptions options);
};

// The body of `path`, or nothing when the server has no such page. Error kIo when there is no answer. Runs a
// RunLoop.
Result<std::optional<std::string>> GetPage(const HttpClient& http, const std::string& path);

// What the server says of its load now; nothing when it has no /metrics. Runs a RunLoop.
std::optional<ServerLoad> AskServerLoad(const HttpClient& http);

}  // namespace millrace::loadgen
