#include "api/prepare_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "api/openai_decode.h"
#include "api/openai_format.h"

namespace millrace::api {
namespace {

// Names under which clients and gateways ask for this model, whatever the operator calls it.
constexpr std::array<std::string_view, 7> kKnownModelNames = {
    "deepseek-flash",    "deepseek-v4.1-flash", "DeepSeek-V4.1-Flash", "deepseek-ai/DeepSeek-V4.1-Flash",
    "deepseek-v4-flash", "deepseek-chat",       "deepseek-reasoner"};

std::mt19937_64 SeededGenerator() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device(), device(), device()};
  return std::mt19937_64(seed);
}

uint64_t RandomNumber() {
  thread_local std::mt19937_64 generator = SeededGenerator();
  return generator();
}

std::optional<ApiError> CheckModel(const ServedModel& model, const std::string& name) {
  if (name.empty() || model.Knows(name)) return std::nullopt;
  return ApiError{ApiErrorKind::kModelNotFound,
                  fmt::format("The model '{}' does not exist. This server serves '{}'.", name,
                              fmt::join(model.names, "', '")),
                  "model"};
}

// Room for at least one token of answer.
std::optional<ApiError> CheckPrompt(const ServedModel& model, const std::vector<TokenId>& ids,
                                    std::string_view what, std::string_view param) {
  const auto length = static_cast<int64_t>(ids.size());
  if (length >= model.max_model_len) {
    return ApiError{
        ApiErrorKind::kContextLength,
        fmt::format("This model's maximum context length is {} tokens. However, your {} resulted in "
                    "{} tokens. Please reduce the length of the {}.",
                    model.max_model_len, what, length, what),
        std::string(param)};
  }
  const auto outside =
      std::ranges::find_if(ids, [&](TokenId id) { return id < 0 || id >= model.vocab_size; });
  if (outside != ids.end()) {
    return ApiError{ApiErrorKind::kInvalidValue,
                    fmt::format("Invalid value for '{}': token id {}. Expected ids from 0 to {}.", param,
                                *outside, model.vocab_size - 1),
                    std::string(param)};
  }
  return std::nullopt;
}

int64_t MaxTokens(const ServedModel& model, const OutputOptions& output, size_t prompt_tokens) {
  const int64_t room = model.max_model_len - static_cast<int64_t>(prompt_tokens);
  if (output.max_tokens) return std::min(*output.max_tokens, room);
  return model.default_max_tokens > 0 ? std::min(model.default_max_tokens, room) : room;
}

// As the client calls it.
const std::string& ModelName(const ServedModel& model, const OutputOptions& output) {
  return output.model.empty() ? model.names.front() : output.model;
}

PreparedGeneration Prepare(const ServedModel& model, const RequestOrigin& origin, const OutputOptions& output,
                           std::vector<std::vector<TokenId>> prompts) {
  PreparedGeneration prepared;
  prepared.request_id = origin.request_id;
  prepared.arrival = origin.arrival;
  prepared.model = ModelName(model, output);
  prepared.choices_per_prompt = output.n;
  prepared.stream = output.stream;
  engine::SamplingParams& sampling = prepared.sampling;
  sampling.temperature = output.temperature;
  sampling.top_p = output.top_p;
  sampling.top_k = output.top_k;
  sampling.min_p = output.min_p;
  sampling.seed = output.seed.value_or(RandomNumber());
  sampling.stop_token_ids = output.stop_token_ids;
  sampling.ignore_eos = output.ignore_eos;
  sampling.logprobs = output.logprobs;
  prepared.text.stop = output.stop;
  prepared.text.stop_token_ids = output.stop_token_ids;
  for (const std::vector<TokenId>& prompt : prompts)
    prepared.max_tokens.push_back(MaxTokens(model, output, prompt.size()));
  prepared.prompts = std::move(prompts);
  return prepared;
}

OpenAiHead Head(const ServedModel& model, const OutputOptions& output, std::string_view id_prefix) {
  OpenAiHead head;
  head.id = fmt::format("{}-{}", id_prefix, RandomHexId());
  head.model = ModelName(model, output);
  head.system_fingerprint = model.system_fingerprint;
  head.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  head.include_usage = output.include_usage;
  return head;
}

std::string EchoText(const text::ChatEncoder& encoder, const Prompt& prompt) {
  if (const auto* const text = std::get_if<std::string>(&prompt)) return *text;
  return encoder.tokenizer().Decode(std::get<std::vector<TokenId>>(prompt), text::ControlTokens::kKeep);
}

}  // namespace

std::vector<TokenId> EncodeRaw(const text::ChatEncoder& encoder, const Prompt& prompt) {
  if (const auto* const ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  const TokenId bos = encoder.control_ids().bos;
  std::vector<TokenId> ids = encoder.tokenizer().EncodePrompt(std::get<std::string>(prompt));
  if (ids.empty() || ids.front() != bos) ids.insert(ids.begin(), bos);
  return ids;
}

bool ServedModel::Knows(std::string_view name) const {
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::find(kKnownModelNames, name) != kKnownModelNames.end();
}

std::variant<PreparedGeneration, ApiError> PrepareChat(const ServedModel& model, const RequestOrigin& origin,
                                                       std::string_view body) {
  auto decoded = DecodeChatRequest(body, model.chat_defaults);
  if (ApiError* const error = std::get_if<ApiError>(&decoded)) return std::move(*error);
  const ChatCompletionRequest& request = std::get<ChatCompletionRequest>(decoded);
  if (std::optional<ApiError> error = CheckModel(model, request.output.model)) return *std::move(error);
  const Result<text::ChatPrompt> prompt = model.encoder.Render(request.chat);
  if (!prompt.ok()) return ApiError{ApiErrorKind::kInvalidValue, prompt.error().message(), "messages"};
  std::vector<TokenId> ids = model.encoder.Encode(*prompt);
  if (std::optional<ApiError> error = CheckPrompt(model, ids, "messages", "messages"))
    return *std::move(error);

  std::vector<std::vector<TokenId>> prompts;
  prompts.push_back(std::move(ids));
  PreparedGeneration prepared = Prepare(model, origin, request.output, std::move(prompts));
  prepared.text.reasoning = ReasoningOptions{model.encoder.control_ids(), prompt->starts_in_reasoning};
  prepared.format = MakeOpenAiChatFormat(Head(model, request.output, "chatcmpl"));
  return prepared;
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
  PreparedGeneration prepared = Prepare(model, origin, request.output, std::move(prompts));
  prepared.format = MakeOpenAiCompletionFormat(Head(model, request.output, "cmpl"), std::move(echo));
  return prepared;
}

std::string RandomHexId() {
  return fmt::format("{:016x}{:016x}", RandomNumber(), RandomNumber());
}

}  // namespace millrace::api
