#include "api/openai_prepare.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "api/openai_decode.h"
#include "api/openai_format.h"
#include "api/random_id.h"
#include "api/raw_prompt.h"

namespace millrace::api {
namespace {

OpenAiHead Head(const ServedModel& model, const OutputOptions& output, std::string_view id_prefix,
                size_t choices) {
  OpenAiHead head;
  head.id = fmt::format("{}-{}", id_prefix, RandomHexId());
  head.model = ModelName(model, output);
  head.system_fingerprint = model.system_fingerprint;
  head.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  head.include_usage = output.include_usage;
  head.choices = choices;
  return head;
}

}  // namespace

std::variant<PreparedGeneration, ApiError> PrepareChat(const ServedModel& model, const RequestOrigin& origin,
                                                       std::string_view body) {
  auto decoded = DecodeChatRequest(body, model.chat_defaults, model.encoder.model());
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
    std::optional<std::vector<TokenId>> ids = request.suffix.empty()
                                                  ? EncodeRaw(model.encoder, prompt)
                                                  : EncodeAroundHole(model.encoder, prompt, request.suffix);
    if (!ids) {
      return ApiError{ApiErrorKind::kUnsupportedField,
                      "'suffix' is not supported by this model: its tokenizer has no tokens for filling in. "
                      "Leave it out.",
                      "suffix"};
    }
    prompts.push_back(*std::move(ids));
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
