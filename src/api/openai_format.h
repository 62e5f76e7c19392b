#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/answer_format.h"

namespace millrace::api {

// What every object of one answer repeats.
struct OpenAiHead {
  std::string id;     // "chatcmpl-..." or "cmpl-..."
  std::string model;  // as the client called it
  std::string system_fingerprint;
  int64_t created = 0;  // seconds since 1970
  bool include_usage = false;
  size_t choices = 1;
};

// POST /v1/chat/completions: objects chat.completion and chat.completion.chunk.
std::unique_ptr<AnswerFormat> MakeOpenAiChatFormat(OpenAiHead head);

// POST /v1/completions: object text_completion. `echo[c]` stands in front of choice c's text; empty: no echo.
std::unique_ptr<AnswerFormat> MakeOpenAiCompletionFormat(OpenAiHead head, std::vector<std::string> echo);

// GET /v1/models and /v1/models/{id}.
std::string OpenAiModelJson(const std::string& id, int64_t created, int64_t max_model_len);
std::string OpenAiModelListJson(const std::vector<std::string>& ids, int64_t created, int64_t max_model_len);

}  // namespace millrace::api
