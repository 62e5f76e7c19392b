// The decoders of request bodies: any bytes give a request whose values keep their promises, or an error that
// a client can read.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "api/openai_decode.h"
#include "base/check.h"
#include "text/json_repair.h"
#include "text/reasoning_effort.h"
#include "text/utf8.h"

namespace {

using namespace millrace;

void CheckError(const api::ApiError& error) {
  MILLRACE_CHECK(error.status() >= 400 && error.status() < 500, "a body is the client's fault");
  MILLRACE_CHECK(!error.message.empty() && error.message.size() < 2000,
                 "an error that says nothing, or echoes");
  MILLRACE_CHECK(text::IsUtf8(api::ErrorJson(error)), "an error object that is not UTF-8");
}

void CheckOutput(const api::OutputOptions& output) {
  MILLRACE_CHECK(output.temperature >= 0 && output.temperature <= 2, "temperature");
  MILLRACE_CHECK(output.top_p > 0 && output.top_p <= 1, "top_p");
  MILLRACE_CHECK(output.min_p >= 0 && output.min_p <= 1, "min_p");
  MILLRACE_CHECK(output.top_k >= 0 && output.n >= 1, "top_k, n");
  MILLRACE_CHECK(!output.max_tokens || *output.max_tokens >= 1, "max_tokens");
  MILLRACE_CHECK(output.stop.size() <= 16, "stop");
  for (const std::string& stop : output.stop) MILLRACE_CHECK(!stop.empty() && text::IsUtf8(stop), "stop");
  for (TokenId id : output.stop_token_ids) MILLRACE_CHECK(id >= 0, "stop_token_ids");
}

void Check(const api::CompletionRequest& request) {
  CheckOutput(request.output);
  MILLRACE_CHECK(!request.prompts.empty(), "prompts");
  for (const api::Prompt& prompt : request.prompts) {
    if (const auto* const words = std::get_if<std::string>(&prompt)) {
      MILLRACE_CHECK(text::IsUtf8(*words), "prompt text");
    } else {
      for (TokenId id : std::get<std::vector<TokenId>>(prompt)) MILLRACE_CHECK(id >= 0, "prompt ids");
    }
  }
}

void Check(const api::ChatCompletionRequest& request) {
  CheckOutput(request.output);
  MILLRACE_CHECK(!request.chat.messages.empty(), "messages");
  const std::optional<int> effort = request.chat.options.reasoning_effort;
  MILLRACE_CHECK(!effort || text::IsReasoningEffort(*effort), "effort");
  for (const text::ChatMessage& message : request.chat.messages)
    MILLRACE_CHECK(text::IsUtf8(message.content.Text()) && text::IsUtf8(message.reasoning), "message text");
}

template <typename T>
void CheckResult(const std::variant<T, api::ApiError>& result) {
  if (const auto* const error = std::get_if<api::ApiError>(&result)) {
    CheckError(*error);
  } else {
    Check(std::get<T>(result));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const std::string repaired = text::RepairJsonText(body);
  MILLRACE_CHECK(text::IsUtf8(repaired), "repairing left broken UTF-8");
  MILLRACE_CHECK(text::RepairJsonText(repaired) == repaired, "repairing twice changes more");
  CheckResult(api::DecodeCompletionRequest(body));
  CheckResult(api::DecodeChatRequest(body));
  return 0;
}
