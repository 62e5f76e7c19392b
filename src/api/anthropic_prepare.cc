#include "api/anthropic_prepare.h"

#include <optional>
#include <utility>

#include "api/anthropic_decode.h"
#include "api/anthropic_format.h"
#include "api/random_id.h"

namespace millrace::api {
namespace {

constexpr size_t kMessageIdDigits = 24;

// For the check of the model's name: every Claude is this server's model.
void ForgetClaude(OutputOptions& output) {
  if (output.model.starts_with("claude-")) output.model.clear();
}

}  // namespace

std::variant<PreparedGeneration, ApiError> PrepareMessages(const ServedModel& model,
                                                           const RequestOrigin& origin,
                                                           std::string_view body) {
  auto decoded =
      DecodeAnthropicRequest(body, AnthropicEndpoint::kMessages, model.chat_defaults, model.encoder.model());
  if (ApiError* const error = std::get_if<ApiError>(&decoded)) return std::move(*error);
  ChatCompletionRequest& request = std::get<ChatCompletionRequest>(decoded);
  AnthropicHead head;
  head.id = "msg_" + RandomHexId().substr(0, kMessageIdDigits);
  head.model = request.output.model.empty() ? model.names.front() : request.output.model;
  head.request_id = origin.request_id;
  head.signature = RandomHexId();
  head.thinking = request.chat.options.thinking;
  ForgetClaude(request.output);

  auto prepared = PrepareChatRequest(model, origin, std::move(request), nullptr);
  if (PreparedGeneration* const generation = std::get_if<PreparedGeneration>(&prepared)) {
    head.starts_in_reasoning = generation->text.parse->starts_in_reasoning;
    generation->format = MakeAnthropicFormat(std::move(head));
  }
  return prepared;
}

std::variant<std::string, ApiError> CountMessageTokens(const ServedModel& model, std::string_view body) {
  auto decoded = DecodeAnthropicRequest(body, AnthropicEndpoint::kCountTokens, model.chat_defaults,
                                        model.encoder.model());
  if (ApiError* const error = std::get_if<ApiError>(&decoded)) return std::move(*error);
  ChatCompletionRequest& request = std::get<ChatCompletionRequest>(decoded);
  ForgetClaude(request.output);
  if (std::optional<ApiError> error = CheckModel(model, request.output.model)) return *std::move(error);
  auto encoded = EncodeChat(model, request);
  if (ApiError* const error = std::get_if<ApiError>(&encoded)) return std::move(*error);
  return AnthropicTokenCountJson(static_cast<int64_t>(std::get<EncodedChat>(encoded).ids.size()));
}

}  // namespace millrace::api
