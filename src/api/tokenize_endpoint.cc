#include "api/tokenize_endpoint.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <optional>
#include <vector>

#include "api/field_reader.h"
#include "api/json_body.h"
#include "api/openai_decode.h"
#include "api/raw_prompt.h"
#include "text/utf8.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using Ids = std::vector<TokenId>;

std::optional<ApiError> CheckModel(const ServedModel& model, FieldReader& request) {
  const std::optional<std::string> name = request.String("model");
  if (!name || model.Knows(*name)) return std::nullopt;
  return ApiError{ApiErrorKind::kModelNotFound, fmt::format("The model '{}' does not exist.", *name),
                  "model"};
}

std::variant<Ids, ApiError> ChatIds(const ServedModel& model, FieldReader& request, std::string_view body) {
  if (!request.Bool("add_generation_prompt").value_or(true)) {
    return ApiError{ApiErrorKind::kUnsupportedField,
                    "'add_generation_prompt' false is not supported: a user's turn ends with the answer's "
                    "header in this model's format.",
                    "add_generation_prompt"};
  }
  auto decoded = DecodeChatRequest(body, model.chat_defaults, model.encoder.model());
  if (ApiError* const error = std::get_if<ApiError>(&decoded)) return std::move(*error);
  auto encoded = EncodeChat(model, std::get<ChatCompletionRequest>(decoded));
  if (ApiError* const error = std::get_if<ApiError>(&encoded)) return std::move(*error);
  return std::get<EncodedChat>(encoded).ids;
}

std::variant<Ids, ApiError> PromptIds(const ServedModel& model, FieldReader& request) {
  const std::optional<std::string> prompt = request.String("prompt");
  const bool special = request.Bool("add_special_tokens").value_or(true);
  if (!prompt && !request.error().set()) {
    return ApiError{ApiErrorKind::kMissingField, "'prompt' or 'messages' is required.", "prompt"};
  }
  if (!prompt) return Ids();
  return special ? EncodeRaw(model.encoder, *prompt) : model.encoder.tokenizer().EncodePrompt(*prompt);
}

json::array Spellings(const text::Tokenizer& tokenizer, const Ids& ids) {
  json::array list;
  list.reserve(ids.size());
  for (const TokenId id : ids) list.emplace_back(text::RepairUtf8(tokenizer.TokenBytes(id)));
  return list;
}

// The ids of "tokens"; what is wrong with them is recorded.
Ids ReadTokens(const ServedModel& model, FieldReader& request) {
  const std::string expected = fmt::format("an array of token ids from 0 to {}", model.vocab_size - 1);
  const text::OrderedJson* const tokens = request.Find("tokens");
  if (tokens == nullptr) {
    request.error().Set(ApiErrorKind::kMissingField, fmt::format("'tokens' is required: {}.", expected),
                        "tokens");
    return {};
  }
  if (tokens->if_array() == nullptr) {
    FailType(request.error(), "tokens", *tokens, expected);
    return {};
  }
  Ids ids;
  for (const text::OrderedJson& token : *tokens->if_array()) {
    const std::optional<int64_t> id = AsInt64(token);
    if (!id || *id < 0 || *id >= model.vocab_size) {
      FailValue(request.error(), fmt::format("tokens[{}]", ids.size()), token, expected);
      return {};
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

}  // namespace

std::variant<std::string, ApiError> AnswerTokenize(const ServedModel& model, std::string_view body) {
  auto parsed = ParseJsonBody(body);
  if (ApiError* const error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  FirstError error;
  FieldReader request(std::get<text::OrderedJson>(parsed), "", error);
  if (std::optional<ApiError> unknown = CheckModel(model, request)) return *std::move(unknown);
  const bool with_strings = request.Bool("return_token_strs").value_or(false);
  auto tokens =
      request.Find("messages") != nullptr ? ChatIds(model, request, body) : PromptIds(model, request);
  if (error.set()) return error.Take();
  if (ApiError* const refused = std::get_if<ApiError>(&tokens)) return std::move(*refused);
  const Ids& ids = std::get<Ids>(tokens);
  json::object answer;
  answer["count"] = ids.size();
  answer["max_model_len"] = model.max_model_len;
  answer["tokens"] = json::array(ids.begin(), ids.end());
  answer["token_strs"] = with_strings ? json::value(Spellings(model.encoder.tokenizer(), ids)) : nullptr;
  return json::serialize(answer);
}

std::variant<std::string, ApiError> AnswerDetokenize(const ServedModel& model, std::string_view body) {
  auto parsed = ParseJsonBody(body);
  if (ApiError* const error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  FirstError error;
  FieldReader request(std::get<text::OrderedJson>(parsed), "", error);
  if (std::optional<ApiError> unknown = CheckModel(model, request)) return *std::move(unknown);
  const Ids ids = ReadTokens(model, request);
  if (error.set()) return error.Take();
  json::object answer;
  answer["prompt"] = model.encoder.tokenizer().Decode(ids, text::ControlTokens::kKeep);
  return json::serialize(answer);
}

}  // namespace millrace::api
