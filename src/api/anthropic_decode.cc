#include "api/anthropic_decode.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "api/anthropic_decode_messages.h"
#include "api/declare_tools.h"
#include "api/json_body.h"
#include "api/openai_output_options.h"
#include "api/thinking_options.h"
#include "text/ordered_json.h"

namespace millrace::api {
namespace {

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

// Claude Code's way to say that a model has a context of a million tokens.
std::string WithoutContextMark(std::string model) {
  constexpr std::string_view kMark = "[1m]";
  if (model.ends_with(kMark)) model.resize(model.size() - kMark.size());
  return model;
}

// What the model is shown of a tool: the function object of OpenAI's form (section 7).
text::OrderedJson FunctionOf(const std::string& name, const std::optional<std::string>& description,
                             const text::OrderedJson& input_schema) {
  text::OrderedJson::Object function;
  function.push_back({"name", text::OrderedJson(name)});
  if (description) function.push_back({"description", text::OrderedJson(*description)});
  function.push_back({"parameters", input_schema});
  return text::OrderedJson(std::move(function));
}

void ReadTool(FieldReader& tool, const std::string& path, ToolList& list) {
  const std::optional<std::string> type = tool.String("type");
  if (type && *type != "custom") {
    tool.error().Set(
        ApiErrorKind::kUnsupportedField,
        fmt::format("'{}' is \"{}\": a tool that Anthropic's servers run or define. This server takes the "
                    "client's own tools only (type custom, with name, description and input_schema).",
                    tool.PathOf("type"), type->substr(0, 60)),
        tool.PathOf("type"));
    return;
  }
  const std::optional<std::string> name = tool.String("name");
  const std::optional<std::string> description = tool.String("description");
  const text::OrderedJson* const input_schema = tool.Object("input_schema");
  if (tool.error().set()) return;
  if (!name || name->empty()) return FailMissing(tool, "name", "what the model calls the tool");
  if (input_schema == nullptr) return FailMissing(tool, "input_schema", "the JSON schema of its input");
  list.Add(FunctionOf(*name, description, *input_schema), nullptr, path);
}

void ReadTools(FieldReader& body, text::ChatModel model, ChatCompletionRequest& request) {
  const text::OrderedJson::Array* const tools = body.Array("tools");
  if (tools == nullptr) return;
  ToolList list(model, body.error());
  for (size_t i = 0; i < tools->size() && !body.error().set(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if ((*tools)[i].if_object() == nullptr)
      return FailType(body.error(), path, (*tools)[i], "an object with name and input_schema");
    FieldReader tool((*tools)[i], path, body.error());
    ReadTool(tool, path, list);
  }
  list.MoveTo(request);
}

void ReadToolChoice(FieldReader& body, text::ChatModel model, ChatCompletionRequest& request) {
  constexpr std::string_view kAccepted = "auto, any, tool or none";
  const text::OrderedJson* const object = body.Object("tool_choice");
  if (object == nullptr) return;
  FieldReader choice(*object, "tool_choice", body.error());
  const std::optional<std::string> type = choice.String("type");
  request.parallel_tool_calls = !choice.Bool("disable_parallel_tool_use").value_or(false);
  if (body.error().set()) return;
  if (!type) return FailMissing(choice, "type", kAccepted);
  using Kind = ToolChoice::Kind;
  if (*type == "auto") {
    request.tool_choice.kind = Kind::kAuto;
  } else if (*type == "none") {
    request.tool_choice.kind = Kind::kNone;
  } else if (*type == "any") {
    request.tool_choice.kind = Kind::kRequired;
  } else if (*type == "tool") {
    const std::optional<std::string> name = choice.String("name");
    if (!name) return FailMissing(choice, "name", "the tool to be called");
    request.tool_choice = NamedTool(*name, nullptr, model, choice.PathOf("name"), body.error());
  } else {
    return FailValue(body.error(), choice.PathOf("type"), *choice.Find("type"), kAccepted);
  }
  CheckToolChoice(request, "tool_choice", body.error());
}

// An answer that is to keep a schema, which this server cannot hold the model to.
void RefuseFormat(FieldReader& owner, std::string_view key) {
  if (owner.Find(key) == nullptr) return;
  const std::string path = owner.PathOf(key);
  owner.error().Set(
      ApiErrorKind::kUnsupportedField,
      fmt::format("'{}' is not supported by this server, and ignoring it would change the answer. "
                  "Leave it out and ask for the format in words, or declare a tool and choose it.",
                  path),
      path);
}

// Whether to think is said by `thinking`, how hard by output_config.effort; budget_tokens says neither.
void ReadOutputConfig(FieldReader& body, const ChatDefaults& defaults, ChatCompletionRequest& request) {
  const std::optional<bool> thinking = ReadThinkingType(body);
  std::optional<text::ReasoningMode> effort;
  RefuseFormat(body, "output_format");
  if (const text::OrderedJson* const object = body.Object("output_config")) {
    FieldReader config(*object, "output_config", body.error());
    effort = ReadEffort(config, "effort");
    RefuseFormat(config, "format");
  }
  SetThinking(thinking, effort, defaults, request.chat.options);
}

// An answer that was to use them would be another without.
void RefuseUnsupported(FieldReader& body) {
  const text::OrderedJson::Array* const servers = body.Array("mcp_servers");
  if (servers == nullptr || servers->empty()) return;
  body.error().Set(ApiErrorKind::kUnsupportedField,
                   "'mcp_servers' is not supported by this server: it calls no other. Declare their tools in "
                   "'tools' and run them in the client.",
                   "mcp_servers");
}

void ReadOutput(FieldReader& body, AnthropicEndpoint endpoint, OutputOptions& output) {
  output.model = WithoutContextMark(body.String("model").value_or(""));
  if (endpoint == AnthropicEndpoint::kCountTokens) return;
  output.max_tokens = body.Int("max_tokens", 1, kInt64Max);
  if (!output.max_tokens && !body.error().set())
    FailMissing(body, "max_tokens", "the most tokens of the answer, thinking included");
  output.temperature = static_cast<float>(body.Number("temperature", 0, 2).value_or(1));
  output.top_p = ReadTopP(body);
  output.top_k = ReadTopK(body);
  output.stop = ReadStopStrings(body, "stop_sequences");
  output.stream = body.Bool("stream").value_or(false);
}

// A conversation that ends with the assistant is continued where it ends.
void SetContinuation(ChatCompletionRequest& request, FirstError& error) {
  if (error.set() || request.chat.messages.back().role != text::Role::kAssistant) return;
  request.chat.options.continue_final_message = true;
  if (request.chat.messages.back().tool_calls.empty()) return;
  error.Set(
      ApiErrorKind::kInvalidValue,
      "'messages' ends with an assistant message that calls tools, which cannot be continued. Send a user "
      "message with a tool_result for each tool_use.",
      "messages");
}

}  // namespace

std::variant<ChatCompletionRequest, ApiError> DecodeAnthropicRequest(std::string_view body_text,
                                                                     AnthropicEndpoint endpoint,
                                                                     const ChatDefaults& defaults,
                                                                     text::ChatModel model) {
  auto parsed = ParseJsonBody(body_text);
  if (ApiError* const parse_error = std::get_if<ApiError>(&parsed)) return std::move(*parse_error);
  FirstError error;
  FieldReader body(std::get<text::OrderedJson>(parsed), "", error);
  ChatCompletionRequest request;
  RefuseUnsupported(body);
  request.chat.messages = ReadAnthropicMessages(body);
  if (std::optional<text::ChatMessage> system = ReadAnthropicSystem(body))
    request.chat.messages.insert(request.chat.messages.begin(), *std::move(system));
  ReadOutput(body, endpoint, request.output);
  ReadTools(body, model, request);
  ReadToolChoice(body, model, request);
  ReadOutputConfig(body, defaults, request);
  SetContinuation(request, error);
  if (error.set()) return error.Take();
  return request;
}

}  // namespace millrace::api
