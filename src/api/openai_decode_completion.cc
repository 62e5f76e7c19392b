#include <fmt/format.h>

#include "api/json_body.h"
#include "api/openai_decode.h"
#include "api/openai_output_options.h"

namespace millrace::api {
namespace {

constexpr std::string_view kPromptForms =
    "a string, an array of strings, an array of token ids, or an array of arrays of token ids";

// An array holds one kind: ids of a single prompt, or prompts.
void ReadPromptArray(const text::OrderedJson& prompt, FirstError& error, std::vector<Prompt>& prompts) {
  const text::OrderedJson::Array& array = *prompt.if_array();
  if (array.empty()) return FailValue(error, "prompt", prompt, kPromptForms);
  if (array[0].if_number() != nullptr) {
    prompts.emplace_back(ReadTokenIds(array, "prompt", error));
    return;
  }
  if (array.size() > kMaxChoices)
    return FailValue(error, "prompt", prompt, fmt::format("at most {} prompts", kMaxChoices));
  const bool texts = array[0].if_string() != nullptr;
  for (size_t i = 0; i < array.size() && !error.set(); ++i) {
    const std::string path = fmt::format("prompt[{}]", i);
    const std::string* const text = array[i].if_string();
    const text::OrderedJson::Array* const ids = array[i].if_array();
    if (texts && text != nullptr) {
      prompts.emplace_back(*text);
    } else if (!texts && ids != nullptr && !ids->empty()) {
      prompts.emplace_back(ReadTokenIds(*ids, path, error));
    } else {
      FailType(error, path, array[i], kPromptForms);
    }
  }
}

std::vector<Prompt> ReadPrompts(FieldReader& body) {
  std::vector<Prompt> prompts;
  const text::OrderedJson* const prompt = body.Find("prompt");
  if (prompt == nullptr) {
    body.error().Set(ApiErrorKind::kMissingField, fmt::format("'prompt' is required: {}.", kPromptForms),
                     "prompt");
  } else if (const std::string* const text = prompt->if_string()) {
    prompts.emplace_back(*text);
  } else if (prompt->if_array() != nullptr) {
    ReadPromptArray(*prompt, body.error(), prompts);
  } else {
    FailType(body.error(), "prompt", *prompt, kPromptForms);
  }
  return prompts;
}

std::variant<CompletionRequest, ApiError> Decode(const text::OrderedJson& object) {
  FirstError error;
  FieldReader body(object, "", error);
  CompletionRequest request;
  RefuseUnsupportedFields(body, OpenAiEndpoint::kCompletions);
  request.prompts = ReadPrompts(body);
  request.output = ReadOutputOptions(body);
  request.suffix = body.String("suffix").value_or("");
  request.echo = body.Bool("echo").value_or(false);
  const std::optional<int64_t> logprobs = body.Int("logprobs", 0, kMaxTopLogprobs);
  request.output.logprobs_field = "logprobs";
  if (logprobs) request.output.logprobs = static_cast<int>(*logprobs);
  if (request.echo && logprobs) {
    error.Set(
        ApiErrorKind::kUnsupportedField,
        "'echo' together with 'logprobs' asks for the logprobs of the prompt, which this server does not "
        "compute. Leave one of the two out.",
        "logprobs");
  }
  if (request.prompts.size() * static_cast<size_t>(request.output.n) > kMaxChoices) {
    error.Set(
        ApiErrorKind::kInvalidValue,
        fmt::format("Invalid value for 'n': {} choices of {} prompts are more than the {} that one request "
                    "may ask for.",
                    request.output.n, request.prompts.size(), kMaxChoices),
        "n");
  }
  if (error.set()) return error.Take();
  return request;
}

}  // namespace

std::variant<CompletionRequest, ApiError> DecodeCompletionRequest(std::string_view body) {
  auto parsed = ParseJsonBody(body);
  if (ApiError* const error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  return Decode(std::get<text::OrderedJson>(parsed));
}

}  // namespace millrace::api
