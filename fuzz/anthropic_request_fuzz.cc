// Anthropic's bodies from bytes to prompts: any bytes give a request that keeps its promises and renders to
// tokens, or an error that a client can read. What counts tokens takes all that messages take.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "api/anthropic_decode.h"
#include "chat_request_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const text::ChatModel model : {text::ChatModel::kV41, text::ChatModel::kV4}) {
    const auto decoded = api::DecodeAnthropicRequest(body, api::AnthropicEndpoint::kMessages, {}, model);
    const auto counted = api::DecodeAnthropicRequest(body, api::AnthropicEndpoint::kCountTokens, {}, model);
    if (const auto* const error = std::get_if<api::ApiError>(&counted)) fuzz::CheckError(*error);
    if (const auto* const error = std::get_if<api::ApiError>(&decoded)) fuzz::CheckError(*error);
    const auto* const request = std::get_if<api::ChatCompletionRequest>(&decoded);
    if (request == nullptr) continue;
    fuzz::CheckRequest(*request, model);
    MILLRACE_CHECK(std::holds_alternative<api::ChatCompletionRequest>(counted), "counting takes less");
    const api::OutputOptions& output = request->output;
    MILLRACE_CHECK(output.max_tokens && *output.max_tokens >= 1 && output.n == 1, "max_tokens, n");
    MILLRACE_CHECK(output.temperature >= 0 && output.temperature <= 2, "temperature");
    MILLRACE_CHECK(output.top_p > 0 && output.top_p <= 1 && output.top_k >= 0, "top_p, top_k");
    for (const std::string& stop : output.stop) MILLRACE_CHECK(!stop.empty() && text::IsUtf8(stop), "stop");
  }
  return 0;
}
