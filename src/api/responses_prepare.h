#pragma once

#include <string_view>
#include <variant>

#include "api/api_error.h"
#include "api/generation_job.h"
#include "api/prepare_generation.h"

namespace millrace::api {

// The body of POST /v1/responses to what the engine needs. Takes time in proportion to the body, so not for
// an I/O thread. Any thread.
std::variant<PreparedGeneration, ApiError> PrepareResponses(const ServedModel& model,
                                                            const RequestOrigin& origin,
                                                            std::string_view body);

}  // namespace millrace::api
