#include "api/prepare_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "api/forced_call.h"
#include "api/random_id.h"
#include "base/log.h"

namespace millrace::api {
namespace {

// Names under which clients and gateways ask for this model, whatever the operator calls it.
constexpr std::array<std::string_view, 7> kKnownModelNames = {
    "deepseek-flash",    "deepseek-v4.1-flash", "DeepSeek-V4.1-Flash", "deepseek-ai/DeepSeek-V4.1-Flash",
    "deepseek-v4-flash", "deepseek-chat",       "deepseek-reasoner"};

OutputLimit LimitOf(const ServedModel& model, const OutputOptions& output, size_t prompt_tokens) {
  using Kind = AnswerEnd::Kind;
  const int64_t room = model.max_model_len - static_cast<int64_t>(prompt_tokens);
  const bool named = output.max_tokens.has_value();
  OutputLimit limit{room, Kind::kContextFull, named};
  if (named) {
    limit = {*output.max_tokens, Kind::kLength, named};
  } else if (model.default_max_tokens > 0) {
    limit = {model.default_max_tokens, Kind::kOutputCap, named};
  }
  if (limit.tokens < room) return limit;
  return {room, limit.tokens == room ? limit.at_limit : Kind::kContextFull, named};
}

engine::SamplingParams SamplingOf(const OutputOptions& output) {
  engine::SamplingParams sampling;
  sampling.temperature = output.temperature;
  sampling.top_p = output.top_p;
  sampling.top_k = output.top_k;
  sampling.min_p = output.min_p;
  sampling.presence_penalty = output.presence_penalty;
  sampling.frequency_penalty = output.frequency_penalty;
  sampling.repetition_penalty = output.repetition_penalty;
  for (const TokenBias& bias : output.logit_bias) sampling.logit_bias.push_back({bias.token, bias.bias});
  sampling.seed = output.seed.value_or(RandomNumber());
  sampling.stop_token_ids = output.stop_token_ids;
  sampling.ignore_eos = output.ignore_eos;
  sampling.min_tokens = output.min_tokens;
  sampling.logprobs = output.logprobs;
  return sampling;
}

}  // namespace

const std::string& ModelName(const ServedModel& model, const OutputOptions& output) {
  return output.model.empty() ? model.names.front() : output.model;
}

std::optional<ApiError> CheckModel(const ServedModel& model, const std::string& name) {
  if (name.empty() || model.Knows(name)) return std::nullopt;
  return ApiError{ApiErrorKind::kModelNotFound,
                  fmt::format("The model '{}' does not exist. This server serves '{}'.", name,
                              fmt::join(model.names, "', '")),
                  "model"};
}

std::optional<ApiError> CheckPrompt(const ServedModel& model, const std::vector<TokenId>& ids,
                                    std::string_view what, std::string_view param) {
  const auto length = static_cast<int64_t>(ids.size());
  if (length >= model.max_model_len) {
    return ApiError{
        ApiErrorKind::kContextLength,
        fmt::format("This model's maximum context length is {} tokens. However, your {} resulted in "
                    "{} tokens. Please reduce the length of the {}.",
                    model.max_model_len, what, length, what),
        std::string(param), PromptExcess{length, model.max_model_len}};
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

PreparedGeneration PrepareSequences(const ServedModel& model, const RequestOrigin& origin,
                                    const OutputOptions& output, std::vector<std::vector<TokenId>> prompts) {
  PreparedGeneration prepared;
  prepared.request_id = origin.request_id;
  prepared.arrival = origin.arrival;
  prepared.deadline = origin.deadline;
  prepared.dialect = origin.dialect;
  prepared.model = ModelName(model, output);
  prepared.choices_per_prompt = output.n;
  prepared.stream = output.stream;
  prepared.sampling = SamplingOf(output);
  prepared.fields = {output.limit_field, output.logprobs_field, output.min_tokens};
  prepared.text.stop = output.stop;
  prepared.text.stop_token_ids = output.stop_token_ids;
  for (const std::vector<TokenId>& prompt : prompts)
    prepared.limits.push_back(LimitOf(model, output, prompt.size()));
  prepared.prompts = std::move(prompts);
  return prepared;
}

bool ServedModel::Knows(std::string_view name) const {
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::find(kKnownModelNames, name) != kKnownModelNames.end();
}

std::variant<EncodedChat, ApiError> EncodeChat(const ServedModel& model, ChatCompletionRequest& request) {
  if (request.tool_choice.kind == ToolChoice::Kind::kNone && request.tools) {
    // No tool is shown, but the history reads as with tools.
    request.chat.tools.clear();
    request.chat.options.drop_reasoning = false;
  }
  ConversationHash conversation;
  if (model.replays != nullptr) conversation = model.replays->Restore(request.chat.messages);
  const Result<text::ChatPrompt> prompt = model.encoder.Render(request.chat);
  if (!prompt.ok()) return ApiError{ApiErrorKind::kInvalidValue, prompt.error().message(), "messages"};
  return EncodedChat{model.encoder.Encode(*prompt), prompt->starts_in_reasoning, conversation,
                     prompt->repeated_call_ids};
}

std::variant<PreparedGeneration, ApiError> PrepareChatRequest(const ServedModel& model,
                                                              const RequestOrigin& origin,
                                                              ChatCompletionRequest request,
                                                              std::unique_ptr<AnswerFormat> format) {
  if (std::optional<ApiError> error = CheckModel(model, request.output.model)) return *std::move(error);
  auto encoded = EncodeChat(model, request);
  if (ApiError* const error = std::get_if<ApiError>(&encoded)) return std::move(*error);
  EncodedChat& prompt = std::get<EncodedChat>(encoded);
  if (std::optional<ApiError> error = CheckPrompt(model, prompt.ids, "messages", "messages"))
    return *std::move(error);

  if (prompt.repeated_call_ids) {
    const LogField fields[] = {{"request_id", origin.request_id}};
    LogEvent("repeated_call_ids", fields);
  }

  const bool starts_in_reasoning = prompt.starts_in_reasoning;
  ParseOptions parse;
  parse.ids = model.encoder.control_ids();
  parse.starts_in_reasoning = starts_in_reasoning;
  parse.continues_text =
      request.chat.options.continue_final_message && !request.chat.messages.back().content.empty();
  parse.tools = request.tools;
  parse.discard_calls = request.tool_choice.kind == ToolChoice::Kind::kNone;
  parse.one_call = !request.parallel_tool_calls;
  std::vector<std::vector<TokenId>> prompts;
  prompts.push_back(std::move(prompt.ids));
  PreparedGeneration prepared = PrepareSequences(model, origin, request.output, std::move(prompts));
  prepared.text.parse = std::move(parse);
  prepared.sampling.constraint = ForceCall(model.encoder, request.tool_choice, starts_in_reasoning);
  // The continuation of a message is not yet a message.
  if (model.replays != nullptr && !request.chat.options.continue_final_message)
    prepared.recorder.emplace(*model.replays, model.encoder, prompt.conversation, starts_in_reasoning);
  prepared.format = std::move(format);
  return prepared;
}

}  // namespace millrace::api
