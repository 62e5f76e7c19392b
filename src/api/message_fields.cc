#include "api/message_fields.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "text/tool_declaration.h"

namespace millrace::api {
namespace {

// One part of a content list. Only text: an image that is silently dropped is a wrong answer.
std::string ReadPart(const text::OrderedJson& part, const std::string& path, FirstError& error) {
  if (part.if_string() != nullptr) return *part.if_string();
  if (part.if_object() == nullptr) {
    FailType(error, path, part, "an object {\"type\": \"text\", \"text\": ...}");
    return "";
  }
  FieldReader reader(part, path, error);
  const std::optional<std::string> type = reader.String("type");
  if (error.set()) return "";
  const bool is_refusal = type == "refusal";
  if (!is_refusal && type != "text" && type != "input_text" && type != "output_text") {
    const bool is_image = type == "image_url" || type == "image" || type == "input_image";
    error.Set(ApiErrorKind::kUnsupportedField,
              fmt::format("'{}' is {}; {} Leave the part out or describe it in words.", reader.PathOf("type"),
                          type ? "\"" + type->substr(0, 100) + "\"" : "missing",
                          is_image ? "this server does not read images."
                                   : "this server takes content parts of type text only."),
              reader.PathOf("type"));
    return "";
  }
  const std::string_view key = is_refusal ? "refusal" : "text";
  const std::optional<std::string> text = reader.String(key);
  if (!text && !error.set()) FailMissing(reader, key, "the part's text");
  return text.value_or("");
}

}  // namespace

text::MessageContent ReadContent(FieldReader& message, std::string_view key) {
  const text::OrderedJson* const content = message.Find(key);
  if (content == nullptr) return {};
  if (content->if_string() != nullptr) return *content->if_string();
  const std::string path = message.PathOf(key);
  const text::OrderedJson::Array* const list = content->if_array();
  if (list == nullptr) {
    FailType(message.error(), path, *content, "a string or an array of text parts");
    return {};
  }
  std::vector<text::ContentPart> parts;
  for (size_t i = 0; i < list->size() && !message.error().set(); ++i)
    parts.emplace_back(ReadPart((*list)[i], fmt::format("{}[{}]", path, i), message.error()));
  return parts;
}

std::string ReadCallArguments(FieldReader& function) {
  const text::OrderedJson* const arguments = function.Find("arguments");
  if (arguments == nullptr) return "";
  if (arguments->if_string() != nullptr) return *arguments->if_string();
  if (arguments->if_object() != nullptr) return text::PythonJson(*arguments);
  FailType(function.error(), function.PathOf("arguments"), *arguments, "a string of JSON, or an object");
  return "";
}

std::string ReadCallName(FieldReader& function, const text::OrderedJson* name_space, text::ChatModel model) {
  const std::optional<std::string> name = function.String("name");
  if (function.error().set()) return "";
  if (!name) {
    FailMissing(function, "name", "the tool that was called");
    return "";
  }
  Result<std::string> written = text::WrittenCallName(*name, name_space, model);
  if (written.ok()) return std::move(written).value();
  const std::string path = function.PathOf("name");
  function.error().Set(ApiErrorKind::kInvalidValue,
                       fmt::format("Invalid value for '{}': {}.", path, written.error().message()), path);
  return "";
}

}  // namespace millrace::api
