#pragma once

#include <string_view>
#include <variant>

#include "api/api_error.h"
#include "api/generation_job.h"
#include "api/prepare_generation.h"

namespace millrace::api {

// The bodies of POST /v1/chat/completions and /v1/completions to what the engine needs. Take time in
// proportion to the body, so not for an I/O thread. Any thread.
std::variant<PreparedGeneration, ApiError> PrepareChat(const ServedModel& model, const RequestOrigin& origin,
                                                       std::string_view body);
std::variant<PreparedGeneration, ApiError> PrepareCompletion(const ServedModel& model,
                                                             const RequestOrigin& origin,
                                                             std::string_view body);

}  // namespace millrace::api
