// Bodies of POST /v1/responses from bytes to prompts: what chat_request_fuzz asks, and besides that what the
// answer repeats of the request is JSON, and that sealed reasoning and custom tools' inputs survive their
// way.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "api/custom_tool_input.h"
#include "api/reasoning_seal.h"
#include "api/responses_decode.h"
#include "chat_request_checks.h"
#include "text/ordered_json.h"

namespace {

using namespace millrace;

void CheckResponsesRequest(const api::ResponsesRequest& request, text::ChatModel model) {
  fuzz::CheckRequest(request.chat, model);
  MILLRACE_CHECK(request.chat.output.n == 1, "one answer");
  MILLRACE_CHECK(text::IsUtf8(request.echo) && text::ParseOrderedJson("{" + request.echo + "}").ok(),
                 "what is repeated is no JSON");
  for (const std::string& name : request.custom_tools)
    MILLRACE_CHECK(request.chat.tools->Declares(name), "a custom tool that is not declared");
}

// `text` is valid UTF-8.
void CheckRoundTrips(const std::string& text) {
  MILLRACE_CHECK(api::UnsealReasoning(api::SealReasoning(text)) == text, "sealed reasoning");
  const std::string arguments = api::CustomToolArguments(text);
  MILLRACE_CHECK(api::CustomToolInput(arguments) == text, "a custom tool's input");
  api::CustomToolInputStream stream;
  std::string streamed;
  std::string piece;
  for (const char byte : arguments) {
    piece += byte;
    if (!text::IsUtf8(piece)) continue;
    streamed += stream.Push(piece);
    piece.clear();
  }
  MILLRACE_CHECK(streamed == text, "a custom tool's input, streamed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const text::ChatModel model : {text::ChatModel::kV41, text::ChatModel::kV4}) {
    const auto decoded = api::DecodeResponsesRequest(body, {}, model);
    if (const auto* const error = std::get_if<api::ApiError>(&decoded)) {
      fuzz::CheckError(*error);
    } else {
      CheckResponsesRequest(std::get<api::ResponsesRequest>(decoded), model);
    }
  }
  MILLRACE_CHECK(api::UnsealReasoning(body).value_or("").size() <= size, "more than it was given");
  CheckRoundTrips(text::RepairUtf8(body));
  return 0;
}
