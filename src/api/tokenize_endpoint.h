#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "api/api_error.h"
#include "api/prepare_generation.h"

// POST /tokenize and POST /detokenize in vLLM's shape: body to body. They take time in proportion to the
// body, so not for an I/O thread. Any thread.
namespace millrace::api {

// {"prompt", "add_special_tokens", "return_token_strs"}, or a chat request, to {"count", "max_model_len",
// "tokens", "token_strs"}: the very ids that the completion endpoints would compute.
std::variant<std::string, ApiError> AnswerTokenize(const ServedModel& model, std::string_view body);

// {"tokens"} to {"prompt"}; control tokens are their literal text.
std::variant<std::string, ApiError> AnswerDetokenize(const ServedModel& model, std::string_view body);

}  // namespace millrace::api
