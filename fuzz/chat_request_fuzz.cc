// Chat bodies from bytes to prompts: any bytes give a request that keeps its promises and renders to tokens,
// or an error that a client can read. Nothing that a client says becomes a control token.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/openai_decode.h"
#include "chat_request_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::text::ChatModel;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const ChatModel model : {ChatModel::kV41, ChatModel::kV4})
    millrace::CheckDecodedChat(millrace::api::DecodeChatRequest(body, {}, model), model);
  return 0;
}
