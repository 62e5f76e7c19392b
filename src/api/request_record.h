#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace millrace::api {

// What a generation came to, over all choices of its request.
struct GenerationFacts {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  size_t choices = 0;
  std::optional<double> first_token_seconds;       // since arrival; nullopt: there was none
  std::optional<double> decode_tokens_per_second;  // of the tokens after the first; nullopt: there were none
  std::string finish_reason;                       // of the first choice
};

// What the access log tells of a request beside what passes through its exchange. Facts only: nothing of a
// body but a served model's name and the path of a field.
struct RequestRecord {
  std::string model;
  std::optional<GenerationFacts> generation;
  std::string error_code;  // ApiError::code and param
  std::string error_param;
};

}  // namespace millrace::api
