#include "api/openai_prepare.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "api/openai_decode.h"
#include "api/openai_format.h"
#include "api/random_id.h"

namespace millrace::api {
namespace {

OpenAiHead Head(const ServedModel& model, const OutputOptions& output, std::string_view id_prefix,
                size_t choices) {
  OpenAiHead head;
  head.id = fmt::format("{}-{}", id_prefix, RandomHexId());
  head.model = output.model.empty() ? model.names.front() : output.model;
  head.system_fingerprint = model.system_fingerprint;
  head.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  head.include_usage = output.include_usage;
  head.choices = choices;
  return head;
}

// Text is trusted: control strings in it are control tokens, and it begins with BOS however it came.
std::vector<TokenId> EncodeRaw(const text::ChatEncoder& encoder, const Prompt& prompt) {
  if (const auto* const ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  const TokenId bos = encoder.control_ids().bos;
  std::vector<TokenId> ids = encoder.tokenizer().EncodePrompt(std::get<std::string>(prompt));
  if (ids.empty() || ids.front() != bos) ids.insert(ids.begin(), bos);
  return ids;
}

std::string EchoText(const text::ChatEncoder& encoder, const Prompt& prompt) {
  if (const auto* const text = std::get_if<std::string>(&prompt)) return *text;
  return encoder.tokenizer().Decode(std::get<std::vector<TokenId>>(prompt), text::ControlTokens::kKeep);
}

}  // namespace

std::variant<PreparedGeneration, ApiError> PrepareChat(const ServedModel& model, const RequestOrigin& origin,
                                                       std::string_view body) {
  auto decoded = DecodeChatRequest(body);
  if (ApiError* const error = std::get_if<ApiError>(&decoded)) return std::move(*error);
  ChatCompletionRequest& request = std::get<ChatCompletionRequest>(decoded);
  OpenAiHead head = Head(model, request.output, "chatcmpl", static_cast<size_t>(request.output.n));
  return PrepareChatRequest(model, origin, std::move(request), MakeOpenAiChatFormat(std::move(head)));
}

std::variant<PreparedGeneration, ApiError> PrepareCompletion(const ServedModel& model,
                                                             const RequestOrigin& origin,
                                                             std::string_view body) {
  auto decoded = DecodeCompletionRequest(body);
  if (ApiError* const error = std::get_if<ApiError>(&decoded)) return std::move(*error);
  const CompletionRequest& request = std::get<CompletionRequest>(decoded);
  if (std::optional<ApiError> error = CheckModel(model, request.output.model)) return *std::move(error);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::string> echo;
  for (const Prompt& prompt : request.prompts) {
    prompts.push_back(EncodeRaw(model.encoder, prompt));
    if (std::optional<ApiError> error = CheckPrompt(model, prompts.back(), "prompt", "prompt"))
      return *std::move(error);
    if (!request.echo) continue;
    for (int c = 0; c < request.output.n; ++c) echo.push_back(EchoText(model.encoder, prompt));
  }
  const size_t choices = prompts.size() * static_cast<size_t>(request.output.n);
  PreparedGeneration prepared = PrepareSequences(model, origin, request.output, std::move(prompts));
  prepared.format = MakeOpenAiCompletionFormat(Head(model, request.output, "cmpl", choices), std::move(echo));
  return prepared;
}

}  // namespace millrace::api
