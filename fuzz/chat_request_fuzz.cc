// Chat bodies from bytes to prompts: any bytes give a request that keeps its promises and renders to tokens,
// or an error that a client can read. Nothing that a client says becomes a control token.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "api/openai_decode.h"
#include "chat_request_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const text::ChatModel model : {text::ChatModel::kV41, text::ChatModel::kV4}) {
    const auto decoded = api::DecodeChatRequest(body, {}, model);
    if (const auto* const error = std::get_if<api::ApiError>(&decoded)) {
      fuzz::CheckError(*error);
    } else {
      fuzz::CheckRequest(std::get<api::ChatCompletionRequest>(decoded), model);
    }
  }
  return 0;
}
