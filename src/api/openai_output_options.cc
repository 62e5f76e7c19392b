#include "api/openai_output_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace millrace::api {
namespace {

constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxStopTokenIds = 1024;
constexpr size_t kMaxLogitBiases = 4096;
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

// The values of a known but unsupported field that ask for nothing, besides null.
enum class Harmless : uint8_t { kNothing, kFalse, kTrue, kEmpty, kZero, kOne, kText, kAutoOrNone };

enum class Where : uint8_t { kBoth, kChat, kCompletions };

struct UnsupportedField {
  std::string_view key;
  Harmless harmless;
  Where where = Where::kBoth;
  std::string_view instead = {};  // the field that says the same and is supported
};

constexpr UnsupportedField kUnsupported[] = {
    {"tools", Harmless::kEmpty, Where::kCompletions},
    {"tool_choice", Harmless::kAutoOrNone, Where::kCompletions},
    {"continue_final_message", Harmless::kFalse, Where::kCompletions},
    {"functions", Harmless::kEmpty, Where::kBoth, "tools"},
    {"function_call", Harmless::kAutoOrNone, Where::kBoth, "tool_choice"},
    {"suffix", Harmless::kEmpty, Where::kChat},
    {"echo", Harmless::kFalse, Where::kChat},
    {"response_format", Harmless::kText},
    {"length_penalty", Harmless::kOne},
    {"best_of", Harmless::kOne},
    {"use_beam_search", Harmless::kFalse},
    {"modalities", Harmless::kText},
    {"audio", Harmless::kNothing},
    {"web_search_options", Harmless::kNothing},
    {"images", Harmless::kEmpty},
    {"documents", Harmless::kEmpty},
    {"typical_p", Harmless::kOne},
    {"tfs_z", Harmless::kOne},
    {"mirostat", Harmless::kZero},
    {"grammar", Harmless::kEmpty},
    {"json_schema", Harmless::kNothing},
    {"regex", Harmless::kEmpty},
    {"ebnf", Harmless::kEmpty},
    {"guided_json", Harmless::kNothing},
    {"guided_regex", Harmless::kNothing},
    {"guided_choice", Harmless::kEmpty},
    {"guided_grammar", Harmless::kNothing},
    {"structured_outputs", Harmless::kNothing},
    {"bad_words", Harmless::kEmpty},
    {"allowed_token_ids", Harmless::kNothing},
    {"prompt_logprobs", Harmless::kNothing},
    {"truncate_prompt_tokens", Harmless::kNothing},
    {"include_stop_str_in_output", Harmless::kFalse},
    {"skip_special_tokens", Harmless::kTrue},
};

bool IsAt(Where where, OpenAiEndpoint endpoint) {
  if (where == Where::kBoth) return true;
  return (where == Where::kChat) == (endpoint == OpenAiEndpoint::kChat);
}

bool IsEmpty(const text::OrderedJson& value) {
  return (value.if_array() != nullptr && value.if_array()->empty()) ||
         (value.if_object() != nullptr && value.if_object()->empty()) ||
         (value.if_string() != nullptr && value.if_string()->empty());
}

bool IsBool(const text::OrderedJson& value, bool wanted) {
  return value.if_bool() != nullptr && *value.if_bool() == wanted;
}

bool IsString(const text::OrderedJson& value, std::string_view wanted) {
  return value.if_string() != nullptr && *value.if_string() == wanted;
}

// {"type": "text"} and ["text"].
bool IsPlainText(const text::OrderedJson& value) {
  if (const text::OrderedJson* const type = value.Find("type")) return IsString(*type, "text");
  const text::OrderedJson::Array* const items = value.if_array();
  return items != nullptr && items->size() == 1 && IsString((*items)[0], "text");
}

bool IsHarmless(const text::OrderedJson& value, Harmless harmless) {
  switch (harmless) {
    case Harmless::kNothing:
      return false;
    case Harmless::kFalse:
      return IsBool(value, false);
    case Harmless::kTrue:
      return IsBool(value, true);
    case Harmless::kEmpty:
      return IsEmpty(value);
    case Harmless::kZero:
      return AsDouble(value) == 0.0;
    case Harmless::kOne:
      return AsDouble(value) == 1.0;
    case Harmless::kText:
      return IsPlainText(value);
    case Harmless::kAutoOrNone:
      return IsString(value, "auto") || IsString(value, "none");
  }
  return false;
}

std::string_view HarmlessText(Harmless harmless) {
  switch (harmless) {
    case Harmless::kNothing:
      return "null";
    case Harmless::kFalse:
      return "false";
    case Harmless::kTrue:
      return "true";
    case Harmless::kEmpty:
      return "an empty value";
    case Harmless::kZero:
      return "0";
    case Harmless::kOne:
      return "1";
    case Harmless::kText:
      return "text";
    case Harmless::kAutoOrNone:
      return "\"auto\" or \"none\"";
  }
  return "null";
}

std::vector<TokenId> ReadStopTokenIds(FieldReader& body) {
  const text::OrderedJson* const ids = body.Find("stop_token_ids");
  if (ids == nullptr) return {};
  if (ids->if_array() == nullptr) {
    FailType(body.error(), "stop_token_ids", *ids, "an array of token ids");
    return {};
  }
  if (ids->if_array()->size() > kMaxStopTokenIds) {
    FailValue(body.error(), "stop_token_ids", *ids, fmt::format("at most {} token ids", kMaxStopTokenIds));
    return {};
  }
  return ReadTokenIds(*ids->if_array(), "stop_token_ids", body.error());
}

void ReadMaxTokens(FieldReader& body, OutputOptions& output) {
  const std::optional<int64_t> old_name = body.Int("max_tokens", 1, kInt64Max);
  const std::optional<int64_t> new_name = body.Int("max_completion_tokens", 1, kInt64Max);
  output.max_tokens = new_name ? new_name : old_name;
  if (new_name) output.limit_field = "max_completion_tokens";
}

float ReadRepetitionPenalty(FieldReader& body) {
  constexpr double kLeast = 0.01;  // it divides
  constexpr double kMost = 100;
  return static_cast<float>(body.Number("repetition_penalty", kLeast, kMost).value_or(1));
}

int64_t ReadMinTokens(FieldReader& body, const std::optional<int64_t>& max_tokens) {
  return body.Int("min_tokens", 0, max_tokens.value_or(kInt64Max)).value_or(0);
}

// {"50256": -100}: biases by token id.
std::vector<TokenBias> ReadLogitBias(FieldReader& body) {
  constexpr std::string_view kKey = "logit_bias";
  constexpr std::string_view kId = "token ids, integers of at least 0 in quotes, as keys";
  constexpr std::string_view kBias = "a number between -100 and 100";
  constexpr double kMostBias = 100;
  std::vector<TokenBias> biases;
  const text::OrderedJson* const field = body.Object(kKey);
  if (field == nullptr) return biases;
  if (field->if_object()->size() > kMaxLogitBiases) {
    FailValue(body.error(), std::string(kKey), *field, fmt::format("at most {} token ids", kMaxLogitBiases));
    return biases;
  }
  for (const text::OrderedJson::Member& member : *field->if_object()) {
    TokenId id = 0;
    const char* const end = member.key.data() + member.key.size();
    const auto [stop, failure] = std::from_chars(member.key.data(), end, id);
    if (failure != std::errc() || stop != end || id < 0) {
      FailValue(body.error(), std::string(kKey), text::OrderedJson(member.key), kId);
      return biases;
    }
    const std::optional<double> bias = AsDouble(member.value);
    const std::string path = fmt::format("{}.{}", kKey, id);
    if (!bias) {
      FailType(body.error(), path, member.value, kBias);
    } else if (!(std::abs(*bias) <= kMostBias)) {
      FailValue(body.error(), path, member.value, kBias);
    } else {
      biases.push_back({id, static_cast<float>(*bias)});
    }
  }
  return biases;
}

}  // namespace

std::vector<std::string> ReadStopStrings(FieldReader& body, std::string_view key) {
  constexpr std::string_view kExpected = "a non-empty string or an array of up to 16 of them";
  const text::OrderedJson* const stop = body.Find(key);
  std::vector<std::string> strings;
  if (stop == nullptr) return strings;
  const auto add = [&](const text::OrderedJson& value, const std::string& path) {
    const std::string* const text = value.if_string();
    if (text == nullptr) return FailType(body.error(), path, value, kExpected);
    if (text->empty() || text->size() > kMaxStopBytes) {
      return FailValue(body.error(), path, value, fmt::format("a string of 1 to {} bytes", kMaxStopBytes));
    }
    strings.push_back(*text);
  };
  if (stop->if_array() == nullptr) {
    add(*stop, body.PathOf(key));
    return strings;
  }
  const text::OrderedJson::Array& array = *stop->if_array();
  if (array.size() > kMaxStopStrings) {
    FailValue(body.error(), body.PathOf(key), *stop, kExpected);
    return strings;
  }
  for (size_t i = 0; i < array.size(); ++i) add(array[i], fmt::format("{}[{}]", body.PathOf(key), i));
  return strings;
}

int32_t ReadTopK(FieldReader& body) {
  const int64_t top_k = body.Int("top_k", -1, std::numeric_limits<int32_t>::max()).value_or(0);
  return top_k < 0 ? 0 : static_cast<int32_t>(top_k);
}

float ReadTopP(FieldReader& body) {
  constexpr double kOnlyTheMostProbable = 1e-9;
  return static_cast<float>(std::max(body.Number("top_p", 0, 1).value_or(1), kOnlyTheMostProbable));
}

std::vector<TokenId> ReadTokenIds(const text::OrderedJson::Array& array, const std::string& path,
                                  FirstError& error) {
  constexpr std::string_view kExpected = "a token id: an integer of at least 0";
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size() && !error.set(); ++i) {
    const std::optional<int64_t> id = AsInt64(array[i]);
    if (!id) {
      FailType(error, fmt::format("{}[{}]", path, i), array[i], kExpected);
    } else if (*id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      FailValue(error, fmt::format("{}[{}]", path, i), array[i], kExpected);
    } else {
      ids.push_back(static_cast<TokenId>(*id));
    }
  }
  return ids;
}

void RefuseUnsupportedFields(FieldReader& body, OpenAiEndpoint endpoint) {
  for (const UnsupportedField& field : kUnsupported) {
    if (!IsAt(field.where, endpoint)) continue;
    const text::OrderedJson* const value = body.Find(field.key);
    if (value == nullptr || IsHarmless(*value, field.harmless)) continue;
    body.error().Set(
        ApiErrorKind::kUnsupportedField,
        fmt::format("'{}' is not supported by this server, and ignoring it would change the answer. "
                    "Leave it out or send {}{}.",
                    field.key, HarmlessText(field.harmless),
                    field.instead.empty() ? "" : fmt::format(", or say it with '{}'", field.instead)),
        std::string(field.key));
  }
}

OutputOptions ReadOutputOptions(FieldReader& body) {
  OutputOptions output;
  output.model = body.String("model").value_or("");
  ReadMaxTokens(body, output);
  output.temperature = static_cast<float>(body.Number("temperature", 0, 2).value_or(1));
  output.top_p = ReadTopP(body);
  output.top_k = ReadTopK(body);
  output.min_p = static_cast<float>(body.Number("min_p", 0, 1).value_or(0));
  output.presence_penalty = static_cast<float>(body.Number("presence_penalty", -2, 2).value_or(0));
  output.frequency_penalty = static_cast<float>(body.Number("frequency_penalty", -2, 2).value_or(0));
  output.repetition_penalty = ReadRepetitionPenalty(body);
  output.logit_bias = ReadLogitBias(body);
  output.min_tokens = ReadMinTokens(body, output.max_tokens);
  const std::optional<int64_t> seed = body.Int("seed", std::numeric_limits<int64_t>::min(), kInt64Max);
  if (seed) output.seed = static_cast<uint64_t>(*seed);
  output.stop = ReadStopStrings(body, "stop");
  output.stop_token_ids = ReadStopTokenIds(body);
  output.ignore_eos = body.Bool("ignore_eos").value_or(false);
  output.n = static_cast<int>(body.Int("n", 1, kMaxChoices).value_or(1));
  output.stream = body.Bool("stream").value_or(false);
  if (const text::OrderedJson* const options = body.Object("stream_options")) {
    FieldReader reader(*options, "stream_options", body.error());
    output.include_usage = reader.Bool("include_usage").value_or(false);
  }
  return output;
}

}  // namespace millrace::api
