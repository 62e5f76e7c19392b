#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "api/api_error.h"
#include "api/generation_job.h"
#include "api/prepare_generation.h"

namespace millrace::api {

// The body of POST /v1/messages to what the engine needs. Whatever Claude is asked for, this server's model
// answers under that name: clients name Claude's models by themselves, for titles and summaries.
// Takes time in proportion to the body, so not for an I/O thread. Any thread; so the next.
std::variant<PreparedGeneration, ApiError> PrepareMessages(const ServedModel& model,
                                                           const RequestOrigin& origin,
                                                           std::string_view body);

// The answer to POST /v1/messages/count_tokens: how long the prompt of that body really is, even if it is too
// long.
std::variant<std::string, ApiError> CountMessageTokens(const ServedModel& model, std::string_view body);

}  // namespace millrace::api
