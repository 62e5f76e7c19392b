#include "api/anthropic_format.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <string_view>
#include <utility>

#include "api/api_error.h"

namespace millrace::api {
namespace {

namespace json = boost::json;

// This many times a silent stream is kept open by `ping` before a block is opened for it: half a minute at
// the server's usual interval, so that most answers have no block too many.
constexpr int kPingsBeforeBlock = 6;

enum class Block : uint8_t { kNone, kThinking, kText, kToolUse };

// `object` with one more member, whose value is JSON text.
std::string WithMember(const json::object& object, std::string_view key, std::string_view value) {
  std::string text = json::serialize(object);
  text.pop_back();
  text += ",\"";
  text += key;
  text += "\":";
  text += value;
  text += '}';
  return text;
}

std::string Event(std::string_view type, std::string_view data) {
  std::string event = "event: ";
  event += type;
  event += "\ndata: ";
  event += data;
  event += "\n\n";
  return event;
}

// `data` begins with its type.
std::string Event(const json::object& data) {
  return Event(data.at("type").as_string(), json::serialize(data));
}

// Anthropic's words have none for an answer that was cut off for another reason than its length; its clients
// treat all of them alike.
std::string_view StopReasonOf(const AnswerEnd& end) {
  switch (end.kind) {
    case AnswerEnd::Kind::kStop:
      return "end_turn";
    case AnswerEnd::Kind::kStopString:
      return "stop_sequence";
    case AnswerEnd::Kind::kToolCalls:
      return "tool_use";
    case AnswerEnd::Kind::kLength:
    case AnswerEnd::Kind::kOutputCap:
    case AnswerEnd::Kind::kContextFull:
    case AnswerEnd::Kind::kRepetition:
      break;
  }
  return "max_tokens";
}

// What "max_tokens" stands for when it is not the request's own limit; empty: nothing else.
std::string_view CutOffBy(const AnswerEnd& end) {
  if (end.kind == AnswerEnd::Kind::kRepetition) return "repetition";
  return end.kind == AnswerEnd::Kind::kContextFull ? "context_full" : "";
}

void SetEnd(const AnswerEnd& end, json::object& out) {
  out["stop_reason"] = StopReasonOf(end);
  out["stop_sequence"] = nullptr;
  if (end.kind == AnswerEnd::Kind::kStopString) out["stop_sequence"] = end.stop_string;
  out["stop_details"] = nullptr;
  if (const std::string_view by = CutOffBy(end); !by.empty()) out["millrace_stop_reason"] = by;
}

// What both a message and the end of a stream say; of the input only what was computed.
json::object UsageJson(const TokenUsage& usage) {
  json::object out;
  out["input_tokens"] = usage.prompt_tokens - usage.cached_tokens;
  out["cache_creation_input_tokens"] = 0;
  out["cache_read_input_tokens"] = usage.cached_tokens;
  out["output_tokens"] = usage.completion_tokens;
  out["output_tokens_details"] = json::object{{"thinking_tokens", usage.reasoning_tokens}};
  out["server_tool_use"] = nullptr;
  return out;
}

json::object MessageUsageJson(const TokenUsage& usage) {
  json::object out = UsageJson(usage);
  out["cache_creation"] = nullptr;
  out["inference_geo"] = nullptr;
  out["service_tier"] = "standard";
  out["speed"] = nullptr;
  return out;
}

json::object ThinkingBlock(std::string_view thinking, std::string_view signature) {
  return {{"type", "thinking"}, {"thinking", thinking}, {"signature", signature}};
}

json::object TextBlock(std::string_view text) {
  return {{"type", "text"}, {"text", text}, {"citations", nullptr}};
}

// Without its input.
json::object ToolUseBlock(std::string_view id, const text::ToolName& tool) {
  const std::string name = tool.name_space.empty() ? tool.name : tool.name_space + "::" + tool.name;
  json::object block;
  block["type"] = "tool_use";
  block["id"] = "toolu_" + std::string(id);
  block["name"] = name;
  block["caller"] = json::object{{"type", "direct"}};
  return block;
}

class AnthropicFormat final : public AnswerFormat {
 public:
  explicit AnthropicFormat(AnthropicHead head) : head_(std::move(head)) {}

  std::string Whole(std::span<const FinishedChoice> choices, const TokenUsage& usage) override {
    json::object message = Message(usage);
    SetEnd(choices.front().end, message);
    return WithMember(message, "content", Content(choices.front()));
  }

  std::string StreamBegin(int64_t prompt_tokens) override {
    // How much of the prompt is cached is known at the end.
    json::object message = Message({.prompt_tokens = prompt_tokens});
    message["content"] = json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["stop_details"] = nullptr;
    return Event({{"type", "message_start"}, {"message", std::move(message)}});
  }

  std::string Delta(size_t /*choice*/, const TextDelta& delta) override {
    std::string events;
    if (head_.thinking && !delta.reasoning.empty()) {
      if (open_ != Block::kThinking) Open(Block::kThinking, ThinkingBlock("", ""), events);
      events += ThinkingDelta(delta.reasoning);
    }
    if (!delta.content.empty()) {
      if (open_ != Block::kText) Open(Block::kText, TextBlock(""), events);
      events += TextDeltaEvent(delta.content);
    }
    for (const CallDelta& call : delta.calls) {
      if (call.first()) OpenToolUse(call, events);
      if (!call.arguments.empty()) events += InputDelta(call.arguments);
      // Clients may run the tool from here on.
      if (call.complete) Close(events);
    }
    return events;
  }

  std::string ChoiceEnd(size_t choice, const TextDelta& rest, const AnswerEnd& end) override {
    std::string events = Delta(choice, rest);
    Close(events);
    end_ = end;
    return events;
  }

  std::string StreamEnd(const TokenUsage& usage) override {
    json::object delta;
    delta["container"] = nullptr;
    SetEnd(end_, delta);
    return Event({{"type", "message_delta"}, {"delta", std::move(delta)}, {"usage", UsageJson(usage)}}) +
           Event({{"type", "message_stop"}});
  }

  std::string StreamError(const ApiError& error) override {
    return Event("error", ErrorJson(error, {Dialect::kAnthropic, head_.request_id}));
  }

  std::string Filler() override {
    std::string events;
    const bool nothing_said = open_ == Block::kNone && next_index_ == 0;
    if (nothing_said && ++pings_ > kPingsBeforeBlock) {
      if (head_.starts_in_reasoning && head_.thinking) {
        Open(Block::kThinking, ThinkingBlock("", ""), events);
      } else {
        Open(Block::kText, TextBlock(""), events);
      }
    }
    switch (open_) {
      case Block::kNone:
        return Event({{"type", "ping"}});
      case Block::kThinking:
        return events + ThinkingDelta("");
      case Block::kText:
        return events + TextDeltaEvent("");
      case Block::kToolUse:
        return events + InputDelta("");
    }
    return events;
  }

 private:
  // What a message says whatever is in it.
  json::object Message(const TokenUsage& usage) const {
    json::object message;
    message["id"] = head_.id;
    message["type"] = "message";
    message["role"] = "assistant";
    message["model"] = head_.model;
    message["container"] = nullptr;
    message["diagnostics"] = nullptr;
    message["usage"] = MessageUsageJson(usage);
    return message;
  }

  // The blocks of a whole answer as JSON text, because the input of a call is one.
  std::string Content(const FinishedChoice& choice) const {
    std::string blocks;
    const auto add = [&](std::string_view block) {
      blocks += blocks.empty() ? '[' : ',';
      blocks += block;
    };
    if (head_.thinking && !choice.reasoning.empty())
      add(json::serialize(ThinkingBlock(choice.reasoning, head_.signature)));
    if (!choice.content.empty()) add(json::serialize(TextBlock(choice.content)));
    for (const FinishedCall& call : choice.calls)
      add(WithMember(ToolUseBlock(call.id, call.tool), "input", call.arguments));
    return blocks.empty() ? "[]" : blocks + "]";
  }

  void OpenToolUse(const CallDelta& call, std::string& events) {
    json::object block = ToolUseBlock(call.id, call.tool);
    block["input"] = json::object();
    Open(Block::kToolUse, std::move(block), events);
  }

  void Open(Block kind, json::object block, std::string& events) {
    Close(events);
    events +=
        Event({{"type", "content_block_start"}, {"index", next_index_}, {"content_block", std::move(block)}});
    open_ = kind;
  }

  void Close(std::string& events) {
    if (open_ == Block::kNone) return;
    if (open_ == Block::kThinking)
      events += DeltaEvent({{"type", "signature_delta"}, {"signature", head_.signature}});
    events += Event({{"type", "content_block_stop"}, {"index", next_index_}});
    open_ = Block::kNone;
    ++next_index_;
  }

  std::string ThinkingDelta(std::string_view text) const {
    return DeltaEvent({{"type", "thinking_delta"}, {"thinking", text}});
  }
  std::string TextDeltaEvent(std::string_view text) const {
    return DeltaEvent({{"type", "text_delta"}, {"text", text}});
  }
  std::string InputDelta(std::string_view json_text) const {
    return DeltaEvent({{"type", "input_json_delta"}, {"partial_json", json_text}});
  }
  std::string DeltaEvent(json::object delta) const {
    return Event({{"type", "content_block_delta"}, {"index", next_index_}, {"delta", std::move(delta)}});
  }

  const AnthropicHead head_;
  Block open_ = Block::kNone;
  int64_t next_index_ = 0;  // of the open block, or else of the next
  int pings_ = 0;
  AnswerEnd end_;
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeAnthropicFormat(AnthropicHead head) {
  return std::make_unique<AnthropicFormat>(std::move(head));
}

std::string AnthropicTokenCountJson(int64_t input_tokens) {
  return json::serialize(json::object{{"input_tokens", input_tokens}});
}

}  // namespace millrace::api
