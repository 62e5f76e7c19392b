#pragma once

#include <string>
#include <unordered_set>

#include "api/requests.h"

namespace millrace::api {

// The body of POST /v1/responses: the conversation, and what only this dialect's answer needs of it.
struct ResponsesRequest {
  ChatCompletionRequest chat;
  // The members of a response object that repeat the request, as JSON text.
  std::string echo;
  // Tools that take free text, by the names written in the prompt.
  std::unordered_set<std::string> custom_tools;
  // The client wants to bring the reasoning back as "encrypted_content".
  bool seal_reasoning = false;
};

}  // namespace millrace::api
