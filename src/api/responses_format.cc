#include "api/responses_format.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "api/custom_tool_input.h"
#include "api/json_object_text.h"
#include "api/random_id.h"
#include "api/reasoning_seal.h"
#include "api/responses_items.h"
#include "base/check.h"
#include "text/utf8.h"

namespace millrace::api {
namespace {

constexpr std::string_view kInProgress = "in_progress";
constexpr std::string_view kCompleted = "completed";
constexpr std::string_view kIncomplete = "incomplete";
constexpr std::string_view kFailed = "failed";

std::string Array(std::string_view items) {
  return Enclosed('[', items, ']');
}

void AppendItem(std::string& items, std::string_view item) {
  if (!items.empty()) items += ',';
  items += item;
}

int64_t Now() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count();
}

std::string NewId(std::string_view prefix) {
  return fmt::format("{}_{}", prefix, RandomHexId());
}

bool IsCut(const AnswerEnd& end) {
  using Kind = AnswerEnd::Kind;
  switch (end.kind) {
    case Kind::kStop:
    case Kind::kStopString:
    case Kind::kToolCalls:
      return false;
    case Kind::kLength:
    case Kind::kOutputCap:
    case Kind::kContextFull:
    case Kind::kRepetition:
      break;
  }
  return true;
}

// The reasons that OpenAI's clients know are the limit and the content filter; which limit it was stands
// beside it, in the words of chat/completions' stop_reason.
std::string IncompleteDetails(const AnswerEnd& end) {
  JsonObjectText details;
  details.Text("reason", "max_output_tokens");
  if (end.kind == AnswerEnd::Kind::kOutputCap) details.Text("stop_reason", "output_cap");
  if (end.kind == AnswerEnd::Kind::kContextFull) details.Text("stop_reason", "context_full");
  if (end.kind == AnswerEnd::Kind::kRepetition) details.Text("stop_reason", "repetition");
  return details.Object();
}

std::string UsageJson(const TokenUsage& usage) {
  const std::string input =
      JsonObjectText().Int("cached_tokens", usage.cached_tokens).Int("cache_write_tokens", 0).Object();
  const std::string output = JsonObjectText().Int("reasoning_tokens", usage.reasoning_tokens).Object();
  return JsonObjectText()
      .Int("input_tokens", usage.prompt_tokens)
      .Json("input_tokens_details", input)
      .Int("output_tokens", usage.completion_tokens)
      .Json("output_tokens_details", output)
      .Int("total_tokens", usage.prompt_tokens + usage.completion_tokens)
      .Object();
}

// The codes that OpenAI's types list.
std::string ErrorMember(const ApiError& error) {
  const bool busy = error.kind == ApiErrorKind::kQueueFull;
  return JsonObjectText()
      .Text("code", busy ? "rate_limit_exceeded" : "server_error")
      .Text("message", text::RepairUtf8(error.message))
      .Object();
}

// The item that a stream is at.
struct OpenItem {
  enum class Kind : uint8_t { kReasoning, kMessage, kCall };
  Kind kind{};
  std::string id = {};
  std::string text = {};      // so far: reasoning, answer, or a call's arguments as JSON
  std::string logprobs = {};  // of a message: the entries so far, as JSON between commas
  CallItem call = {};         // of kCall
  CustomToolInputStream input = {};
  std::string sent_input = {};  // of a custom tool's call

  // The one part of its content with the text so far; a call has none.
  std::string Part() const {
    return kind == Kind::kReasoning ? ReasoningPartJson(text) : TextPartJson(text, Array(logprobs));
  }
  std::string_view TypeOfDelta() const {
    if (kind == Kind::kReasoning) return "response.reasoning_text.delta";
    if (kind == Kind::kMessage) return "response.output_text.delta";
    return call.custom ? "response.custom_tool_call_input.delta" : "response.function_call_arguments.delta";
  }
};

class ResponsesFormat final : public AnswerFormat {
 public:
  explicit ResponsesFormat(ResponsesHead head) : head_(std::move(head)) {}

  FormatMemory memory(bool stream) const override;

  std::string Whole(std::span<const FinishedChoice> choices, const TokenUsage& usage) override;
  std::string StreamBegin(int64_t prompt_tokens) override;
  std::string Delta(size_t choice, const TextDelta& delta) override;
  std::string ChoiceEnd(size_t choice, const TextDelta& rest, const AnswerEnd& end) override;
  std::string StreamEnd(const TokenUsage& usage) override;
  std::string StreamError(const ApiError& error) override;
  std::string ShortStreamError(const ApiError& error) override;
  std::string Filler() override;

 private:
  using Kind = OpenItem::Kind;

  CallItem NewCall(const std::string& id, const text::ToolName& tool, const std::string& written) const;
  std::string Seal(std::string_view reasoning) const;
  std::string Response(std::string_view status, std::string_view error, std::string_view details,
                       const TokenUsage* usage) const;
  std::string EndedResponse(const TokenUsage& usage) const;

  std::string Event(std::string_view type, const JsonObjectText& members);
  std::string ResponseEvent(std::string_view type, std::string_view response);
  JsonObjectText Place() const;
  std::string DeltaEvent(std::string_view text, std::string_view logprobs);

  std::string Open(OpenItem item);
  std::string AppendText(Kind kind, std::string_view text, std::span<const ScoredToken> tokens);
  std::string AppendCall(const CallDelta& call);
  std::string CloseText(std::string_view status);
  std::string CloseCall();
  std::string Done(std::string_view item);

  const ResponsesHead head_;
  std::string items_;  // of the output, done ones only, as JSON between commas
  AnswerEnd end_;
  int fillers_ = 0;  // before the first item

  // Of a stream.
  int64_t sequence_number_ = 0;
  int64_t output_index_ = 0;  // of the open item, or of the next
  std::optional<OpenItem> open_;
};

CallItem ResponsesFormat::NewCall(const std::string& id, const text::ToolName& tool,
                                  const std::string& written) const {
  const bool custom = head_.custom_tools.contains(written);
  return {NewId(custom ? "ctc" : "fc"), "call_" + id, tool, custom};
}

std::string ResponsesFormat::Seal(std::string_view reasoning) const {
  return head_.seal_reasoning ? SealReasoning(reasoning) : "";
}

// Measured, with what strings hold ahead while they grow: the events that end a stream say a message four
// times, in layers that are text each, and what is sealed goes with each. What the client has sent stands in
// every response object.
FormatMemory ResponsesFormat::memory(bool stream) const {
  constexpr uint64_t kSmall = 64 << 10;
  constexpr uint64_t kEchoCopies = 6;
  constexpr int kStreamCopies = 12;
  constexpr int kWholeCopies = 5;
  const int text_copies = (stream ? 7 : 4) + (head_.seal_reasoning ? 3 : 0);
  const uint64_t echo = head_.echo.size();
  return {.fixed_bytes = echo > kSmall ? (1 + kEchoCopies) * echo : echo,
          .copies = stream ? kStreamCopies : kWholeCopies,
          .text_copies = text_copies,
          .keeps_stream = true};
}

std::string ResponsesFormat::Whole(std::span<const FinishedChoice> choices, const TokenUsage& usage) {
  const FinishedChoice& answer = choices.front();
  end_ = answer.end;
  const auto status = [&](bool last) { return last && IsCut(end_) ? kIncomplete : kCompleted; };
  if (!answer.reasoning.empty()) {
    const bool last = answer.content.empty() && answer.calls.empty();
    AppendItem(items_, ReasoningItemJson(NewId("rs"), Array(ReasoningPartJson(answer.reasoning)),
                                         Seal(answer.reasoning), status(last)));
  }
  if (!answer.content.empty()) {
    const std::string part = TextPartJson(answer.content, Array(LogprobsJson(answer.content_tokens)));
    AppendItem(items_, MessageItemJson(NewId("msg"), Array(part), status(answer.calls.empty())));
  }
  for (const FinishedCall& finished : answer.calls) {
    const CallItem call = NewCall(finished.id, finished.tool, finished.written_name);
    const std::string text = call.custom ? CustomToolInput(finished.arguments) : finished.arguments;
    AppendItem(items_, CallItemJson(call, text, kCompleted));
  }
  return EndedResponse(usage);
}

// `error` and `details` are JSON. `usage`: nullptr while there is none.
std::string ResponsesFormat::Response(std::string_view status, std::string_view error,
                                      std::string_view details, const TokenUsage* usage) const {
  JsonObjectText response;
  response.Text("id", head_.id).Text("object", "response").Int("created_at", head_.created);
  if (status == kCompleted) response.Int("completed_at", Now());
  response.Text("status", status).Text("model", head_.model).Json("error", error);
  response.Json("incomplete_details", details).Json("output", Array(items_)).Append(head_.echo);
  if (usage != nullptr) response.Json("usage", UsageJson(*usage));
  return response.Object();
}

std::string ResponsesFormat::EndedResponse(const TokenUsage& usage) const {
  if (IsCut(end_)) return Response(kIncomplete, "null", IncompleteDetails(end_), &usage);
  return Response(kCompleted, "null", "null", &usage);
}

std::string ResponsesFormat::StreamBegin(int64_t /*prompt_tokens*/) {
  const std::string response = Response(kInProgress, "null", "null", nullptr);
  std::string events = ResponseEvent("response.created", response);
  return events += ResponseEvent("response.in_progress", response);
}

std::string ResponsesFormat::Delta(size_t /*choice*/, const TextDelta& delta) {
  std::string events;
  if (!delta.reasoning.empty()) events += AppendText(Kind::kReasoning, delta.reasoning, {});
  if (!delta.content.empty()) events += AppendText(Kind::kMessage, delta.content, delta.content_tokens);
  for (const CallDelta& call : delta.calls) events += AppendCall(call);
  return events;
}

std::string ResponsesFormat::ChoiceEnd(size_t choice, const TextDelta& rest, const AnswerEnd& end) {
  std::string events = Delta(choice, rest);
  end_ = end;
  if (open_ && open_->kind != Kind::kCall) events += CloseText(IsCut(end) ? kIncomplete : kCompleted);
  open_.reset();  // a call that was cut off: clients run what is done
  return events;
}

std::string ResponsesFormat::StreamEnd(const TokenUsage& usage) {
  return ResponseEvent(IsCut(end_) ? "response.incomplete" : "response.completed", EndedResponse(usage));
}

std::string ResponsesFormat::StreamError(const ApiError& error) {
  return ResponseEvent("response.failed", Response(kFailed, ErrorMember(error), "null", nullptr));
}

// OpenAI's event for errors that are not the response's own.
std::string ResponsesFormat::ShortStreamError(const ApiError& error) {
  JsonObjectText members;
  members.Text("code", error.code()).Text("message", text::RepairUtf8(error.message)).Null("param");
  return Event("error", members);
}

std::string ResponsesFormat::Filler() {
  if (open_) return DeltaEvent("", "");
  if (output_index_ > 0) return ": keep-alive\n\n";
  // The whole response repeats the client's instructions and tools: often enough to keep it waiting, no more.
  constexpr int kCommentsBetween = 5;
  if (fillers_++ % (kCommentsBetween + 1) != 0) return ": keep-alive\n\n";
  return ResponseEvent("response.in_progress", Response(kInProgress, "null", "null", nullptr));
}

std::string ResponsesFormat::Event(std::string_view type, const JsonObjectText& members) {
  std::string event = fmt::format(R"(event: {}
data: {{"type":"{}","sequence_number":{})",
                                  type, type, sequence_number_++);
  // In one piece: members may be the whole answer.
  constexpr size_t kPunctuation = 4;
  event.reserve(event.size() + members.Members().size() + kPunctuation);
  if (!members.Members().empty()) event += ',';
  event += members.Members();
  return event += "}\n\n";
}

std::string ResponsesFormat::ResponseEvent(std::string_view type, std::string_view response) {
  return Event(type, JsonObjectText().Json("response", response));
}

// Which item, and which part of it, an event is about.
JsonObjectText ResponsesFormat::Place() const {
  JsonObjectText place;
  place.Text("item_id", open_->id).Int("output_index", output_index_);
  if (open_->kind != Kind::kCall) place.Int("content_index", 0);
  return place;
}

// `logprobs`: the entries of a message's text, as JSON between commas.
std::string ResponsesFormat::DeltaEvent(std::string_view text, std::string_view logprobs) {
  JsonObjectText delta = Place().Text("delta", text);
  if (open_->kind == Kind::kMessage) delta.Json("logprobs", Array(logprobs));
  return Event(open_->TypeOfDelta(), delta);
}

std::string ResponsesFormat::Open(OpenItem item) {
  std::string events;
  if (open_ && open_->kind != Kind::kCall) events = CloseText(kCompleted);
  open_ = std::move(item);
  std::string json;
  if (open_->kind == Kind::kReasoning) json = ReasoningItemJson(open_->id, "[]", "", kInProgress);
  if (open_->kind == Kind::kMessage) json = MessageItemJson(open_->id, "[]", kInProgress);
  if (open_->kind == Kind::kCall) json = CallItemJson(open_->call, "", kInProgress);
  events += Event("response.output_item.added",
                  JsonObjectText().Int("output_index", output_index_).Json("item", json));
  if (open_->kind != Kind::kCall)
    events += Event("response.content_part.added", Place().Json("part", open_->Part()));
  return events;
}

std::string ResponsesFormat::AppendText(Kind kind, std::string_view text,
                                        std::span<const ScoredToken> tokens) {
  std::string events;
  if (!open_ || open_->kind != kind)
    events = Open({.kind = kind, .id = NewId(kind == Kind::kReasoning ? "rs" : "msg")});
  open_->text += text;
  const std::string logprobs = LogprobsJson(tokens);
  if (!logprobs.empty()) AppendItem(open_->logprobs, logprobs);
  return events += DeltaEvent(text, logprobs);
}

std::string ResponsesFormat::AppendCall(const CallDelta& call) {
  std::string events;
  if (call.first()) {
    CallItem item = NewCall(call.id, call.tool, call.written_name);
    events = Open({.kind = Kind::kCall, .id = item.id, .call = item});
  }
  MILLRACE_CHECK(open_ && open_->kind == Kind::kCall, "a call's pieces come together");
  open_->text += call.arguments;
  const std::string piece = open_->call.custom ? open_->input.Push(call.arguments) : call.arguments;
  open_->sent_input += open_->call.custom ? piece : "";
  if (!piece.empty()) events += DeltaEvent(piece, "");
  if (call.complete) events += CloseCall();
  return events;
}

std::string ResponsesFormat::CloseText(std::string_view status) {
  const bool reasoning = open_->kind == Kind::kReasoning;
  std::string events;
  {
    JsonObjectText text = Place().Text("text", open_->text);
    if (!reasoning) text.Json("logprobs", Array(open_->logprobs));
    events = Event(reasoning ? "response.reasoning_text.done" : "response.output_text.done", text);
  }
  const std::string part = open_->Part();
  events += Event("response.content_part.done", Place().Json("part", part));
  return events += Done(reasoning ? ReasoningItemJson(open_->id, Array(part), Seal(open_->text), status)
                                  : MessageItemJson(open_->id, Array(part), status));
}

std::string ResponsesFormat::CloseCall() {
  const std::string arguments = WithoutRepeatedKeys(std::move(open_->text));
  std::string events;
  if (!open_->call.custom) {
    const JsonObjectText done = Place().Text("name", open_->call.tool.name).Text("arguments", arguments);
    events = Event("response.function_call_arguments.done", done);
    return events += Done(CallItemJson(open_->call, arguments, kCompleted));
  }
  const std::string input = CustomToolInput(arguments);
  if (input.size() > open_->sent_input.size() && input.starts_with(open_->sent_input))
    events = DeltaEvent(std::string_view(input).substr(open_->sent_input.size()), "");
  events += Event("response.custom_tool_call_input.done", Place().Text("input", input));
  return events += Done(CallItemJson(open_->call, input, kCompleted));
}

std::string ResponsesFormat::Done(std::string_view item) {
  open_.reset();
  AppendItem(items_, item);
  return Event("response.output_item.done",
               JsonObjectText().Int("output_index", output_index_++).Json("item", item));
}

}  // namespace

std::unique_ptr<AnswerFormat> MakeResponsesFormat(ResponsesHead head) {
  return std::make_unique<ResponsesFormat>(std::move(head));
}

}  // namespace millrace::api
