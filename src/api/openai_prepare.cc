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

// Control strings in raw text are control tokens.
std::vector<TokenId> EncodeTrusted(const text::ChatEncoder& encoder, const Prompt& prompt) {
  if (const auto* const ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  return encoder.tokenizer().EncodePrompt(std::get<std::string>(prompt));
}

// Text begins with BOS however it came; ids are taken as they are.
std::vector<TokenId> EncodeRaw(const text::ChatEncoder& encoder, const Prompt& prompt) {
  std::vector<TokenId> ids = EncodeTrusted(encoder, prompt);
  const TokenId bos = encoder.control_ids().bos;
  const bool is_text = std::holds_alternative<std::string>(prompt);
  if (is_text && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

// BOS, and then prompt and suffix around a hole, which the model fills in (chat-encoding.md, section 13.2).
// nullopt: the tokenizer has no tokens for that.
std::optional<std::vector<TokenId>> EncodeAroundHole(const text::ChatEncoder& encoder, const Prompt& prompt,
                                                     const std::string& suffix) {
  const text::Tokenizer& tokenizer = encoder.tokenizer();
  const auto begin = tokenizer.FindToken("<｜fim▁begin｜>");
  const auto hole = tokenizer.FindToken("<｜fim▁hole｜>");
  const auto end = tokenizer.FindToken("<｜fim▁end｜>");
  if (!begin || !hole || !end) return std::nullopt;
  const TokenId bos = encoder.control_ids().bos;
  std::vector<TokenId> before = EncodeTrusted(encoder, prompt);
  if (!before.empty() && before.front() == bos) before.erase(before.begin());
  const std::vector<TokenId> after = tokenizer.EncodePrompt(suffix);
  std::vector<TokenId> ids = {bos, *begin};
  ids.insert(ids.end(), before.begin(), before.end());
  ids.push_back(*hole);
  ids.insert(ids.end(), after.begin(), after.end());
  ids.push_back(*end);
  return ids;
}

std::string EchoText(const text::ChatEncoder& encoder, const Prompt& prompt) {
  if (const auto* const text = std::get_if<std::string>(&prompt)) return *text;
  return encoder.tokenizer().Decode(std::get<std::vector<TokenId>>(prompt), text::ControlTokens::kKeep);
}

}  // namespace

std::variant<PreparedGeneration, ApiError> PrepareChat(const ServedModel& model, const RequestOrigin& origin,
                                                       std::string_view body) {
  auto decoded = DecodeChatRequest(body, model.encoder.model());
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
