#include "api/openai_format.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "text/utf8.h"

namespace millrace::api {
namespace {

namespace json = boost::json;

// The double that prints with as few digits as the float. JSON has no infinity: the floor is vLLM's.
double JsonNumber(float value) {
  constexpr float kFloor = -9999.0f;
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), std::max(value, kFloor)).ptr;
  double number = 0;
  std::from_chars(digits, end, number);
  return number;
}

json::object UsageJson(const TokenUsage& usage) {
  json::object out;
  out["prompt_tokens"] = usage.prompt_tokens;
  out["completion_tokens"] = usage.completion_tokens;
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  out["prompt_tokens_details"] = json::object{{"cached_tokens", usage.cached_tokens}};
  out["completion_tokens_details"] = json::object{{"reasoning_tokens", usage.reasoning_tokens}};
  // The vendor's own service counts the same this way.
  out["prompt_cache_hit_tokens"] = usage.cached_tokens;
  out["prompt_cache_miss_tokens"] = usage.prompt_tokens - usage.cached_tokens;
  return out;
}

// Of the words that OpenAI's clients know: what cut an answer off is a kind of length.
std::string_view FinishReasonOf(const AnswerEnd& end) {
  using Kind = AnswerEnd::Kind;
  if (end.kind == Kind::kToolCalls) return "tool_calls";
  return end.kind == Kind::kStop || end.kind == Kind::kStopString ? "stop" : "length";
}

// vLLM's field beside it: the stop string; here also what else ended an answer before its time.
json::value StopReasonOf(const AnswerEnd& end) {
  switch (end.kind) {
    case AnswerEnd::Kind::kStopString:
      return json::string(end.stop_string);
    case AnswerEnd::Kind::kRepetition:
      return "repetition";
    case AnswerEnd::Kind::kOutputCap:
      return "output_cap";
    case AnswerEnd::Kind::kContextFull:
      return "context_full";
    case AnswerEnd::Kind::kStop:
    case AnswerEnd::Kind::kLength:
    case AnswerEnd::Kind::kToolCalls:
      break;
  }
  return nullptr;
}

void SetEnd(const AnswerEnd& end, json::object& choice) {
  choice["finish_reason"] = FinishReasonOf(end);
  choice["stop_reason"] = StopReasonOf(end);
}

std::string Event(const json::object& object) {
  return "data: " + json::serialize(object) + "\n\n";
}

// That a call is complete is no news of its own here.
bool SaysSomething(const TextDelta& delta) {
  const bool calls = std::ranges::any_of(
      delta.calls, [](const CallDelta& call) { return call.first() || !call.arguments.empty(); });
  return calls || !delta.reasoning.empty() || !delta.content.empty() || !delta.reasoning_tokens.empty() ||
         !delta.content_tokens.empty();
}

// The parts that both endpoints share.
class OpenAiFormat : public AnswerFormat {
 public:
  OpenAiFormat(OpenAiHead head, std::string_view whole_object, std::string_view chunk_object)
      : head_(std::move(head)), whole_object_(whole_object), chunk_object_(chunk_object) {}

  std::string Whole(std::span<const FinishedChoice> choices, const TokenUsage& usage) override {
    json::array list;
    for (size_t c = 0; c < choices.size(); ++c) list.push_back(WholeChoice(c, choices[c]));
    json::object answer = Head(whole_object_);
    answer["choices"] = std::move(list);
    answer["usage"] = UsageJson(usage);
    return json::serialize(answer);
  }

  std::string StreamBegin(int64_t /*prompt_tokens*/) override {
    std::string events;
    for (size_t choice = 0; choice < head_.choices; ++choice) {
      json::object first = FirstChoice(choice);
      if (!first.empty()) events += Chunk(std::move(first), nullptr);
    }
    return events;
  }

  std::string Delta(size_t choice, const TextDelta& delta) override {
    return SaysSomething(delta) ? Chunk(StreamedChoice(choice, delta), nullptr) : std::string();
  }

  std::string ChoiceEnd(size_t choice, const TextDelta& rest, const AnswerEnd& end) override {
    std::string events = Delta(choice, rest);
    json::object last = StreamedChoice(choice, {});
    SetEnd(end, last);
    return events + Chunk(std::move(last), nullptr);
  }

  std::string StreamEnd(const TokenUsage& usage) override {
    std::string events;
    if (head_.include_usage) {
      json::object last = Head(chunk_object_);
      last["choices"] = json::array();
      last["usage"] = UsageJson(usage);
      events = Event(last);
    }
    return events + "data: [DONE]\n\n";
  }

  std::string StreamError(const ApiError& error) override { return "data: " + ErrorJson(error) + "\n\n"; }

  std::string Filler() override { return ": keep-alive\n\n"; }

 protected:
  virtual json::object WholeChoice(size_t choice, const FinishedChoice& finished) = 0;
  // What a stream says of a choice before anything is generated; empty: nothing.
  virtual json::object FirstChoice(size_t choice) = 0;
  virtual json::object StreamedChoice(size_t choice, const TextDelta& delta) = 0;

 private:
  json::object Head(std::string_view object) const {
    json::object head;
    head["id"] = head_.id;
    head["object"] = object;
    head["created"] = head_.created;
    head["model"] = head_.model;
    head["system_fingerprint"] = head_.system_fingerprint;
    return head;
  }

  std::string Chunk(json::object choice, json::value usage) {
    json::object chunk = Head(chunk_object_);
    json::array list;
    list.push_back(std::move(choice));
    chunk["choices"] = std::move(list);
    if (head_.include_usage) chunk["usage"] = std::move(usage);
    return Event(chunk);
  }

  const OpenAiHead head_;
  const std::string_view whole_object_;
  const std::string_view chunk_object_;
};

json::object TokenJson(const TokenText& token) {
  json::array bytes;
  for (char byte : token.bytes) bytes.push_back(static_cast<int64_t>(static_cast<uint8_t>(byte)));
  json::object out;
  out["token"] = text::RepairUtf8(token.bytes);
  out["logprob"] = JsonNumber(token.logprob);
  out["bytes"] = std::move(bytes);
  return out;
}

json::array ScoredTokensJson(std::span<const ScoredToken> tokens) {
  json::array list;
  for (const ScoredToken& token : tokens) {
    json::object entry = TokenJson(token.chosen);
    json::array top;
    for (const TokenText& alternative : token.top) top.push_back(TokenJson(alternative));
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

// Beside a name that the client declared in a namespace stands that namespace.
json::object FunctionJson(const text::ToolName& tool) {
  json::object function;
  if (!tool.name_space.empty()) function["namespace"] = tool.name_space;
  function["name"] = tool.name;
  return function;
}

json::object CallJson(const std::string& id, json::object function) {
  json::object call;
  call["id"] = "call_" + id;
  call["type"] = "function";
  call["function"] = std::move(function);
  return call;
}

class ChatFormat final : public OpenAiFormat {
 public:
  explicit ChatFormat(OpenAiHead head)
      : OpenAiFormat(std::move(head), "chat.completion", "chat.completion.chunk") {}

 private:
  json::object WholeChoice(size_t choice, const FinishedChoice& finished) override {
    json::object message;
    message["role"] = "assistant";
    message["content"] = finished.content;
    if (finished.content.empty() && !finished.calls.empty()) message["content"] = nullptr;
    message["refusal"] = nullptr;
    AddReasoning(finished.reasoning, message);
    if (!finished.calls.empty()) message["tool_calls"] = WholeCalls(finished.calls);
    json::object out;
    out["index"] = choice;
    out["message"] = std::move(message);
    out["logprobs"] = Logprobs(finished.content_tokens, finished.reasoning_tokens);
    SetEnd(finished.end, out);
    return out;
  }

  json::object FirstChoice(size_t choice) override {
    return ChunkChoice(choice, {{"role", "assistant"}, {"content", ""}}, nullptr);
  }

  json::object StreamedChoice(size_t choice, const TextDelta& delta) override {
    json::object message;
    AddReasoning(delta.reasoning, message);
    if (!delta.content.empty()) message["content"] = delta.content;
    if (json::array calls = StreamedCalls(delta.calls); !calls.empty())
      message["tool_calls"] = std::move(calls);
    return ChunkChoice(choice, std::move(message), Logprobs(delta.content_tokens, delta.reasoning_tokens));
  }

  static json::object ChunkChoice(size_t choice, json::object message, json::value logprobs) {
    json::object out;
    out["index"] = choice;
    out["delta"] = std::move(message);
    out["logprobs"] = std::move(logprobs);
    out["finish_reason"] = nullptr;
    return out;
  }

  static json::array WholeCalls(std::span<const FinishedCall> calls) {
    json::array list;
    for (const FinishedCall& call : calls) {
      json::object function = FunctionJson(call.tool);
      function["arguments"] = call.arguments;
      list.push_back(CallJson(call.id, std::move(function)));
    }
    return list;
  }

  // The first piece of a call has its id and name, the others only more of its arguments.
  static json::array StreamedCalls(std::span<const CallDelta> deltas) {
    json::array list;
    for (const CallDelta& delta : deltas) {
      if (!delta.first() && delta.arguments.empty()) continue;
      json::object call{{"index", delta.index}};
      json::object function;
      if (delta.first()) function = FunctionJson(delta.tool);
      function["arguments"] = delta.arguments;
      if (delta.first()) {
        json::object whole = CallJson(delta.id, std::move(function));
        call.insert(whole.begin(), whole.end());
      } else {
        call["function"] = std::move(function);
      }
      list.push_back(std::move(call));
    }
    return list;
  }

  // Under both names that clients look for.
  static void AddReasoning(const std::string& reasoning, json::object& message) {
    if (reasoning.empty()) return;
    message["reasoning_content"] = reasoning;
    message["reasoning"] = reasoning;
  }

  static json::value Logprobs(std::span<const ScoredToken> content, std::span<const ScoredToken> reasoning) {
    if (content.empty() && reasoning.empty()) return nullptr;
    json::object out;
    out["content"] = ScoredTokensJson(content);
    out["refusal"] = nullptr;
    if (!reasoning.empty()) out["reasoning_content"] = ScoredTokensJson(reasoning);
    return out;
  }
};

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(OpenAiHead head, std::vector<std::string> echo)
      : OpenAiFormat(std::move(head), "text_completion", "text_completion"), echo_(std::move(echo)) {}

 private:
  json::object WholeChoice(size_t choice, const FinishedChoice& finished) override {
    json::object out = ChoiceJson(choice, finished.content, finished.content_tokens);
    SetEnd(finished.end, out);
    return out;
  }

  json::object FirstChoice(size_t) override { return {}; }

  json::object StreamedChoice(size_t choice, const TextDelta& delta) override {
    return ChoiceJson(choice, delta.content, delta.content_tokens);
  }

  json::object ChoiceJson(size_t choice, const std::string& content, std::span<const ScoredToken> tokens) {
    std::string text = choice < echo_.size() ? std::exchange(echo_[choice], {}) : "";
    text += content;
    json::object out;
    out["index"] = choice;
    out["text"] = std::move(text);
    out["logprobs"] = Logprobs(tokens);
    out["finish_reason"] = nullptr;
    return out;
  }

  // Parallel lists; the chosen token is among the alternatives whether or not it is one of the best.
  static json::value Logprobs(std::span<const ScoredToken> tokens) {
    if (tokens.empty()) return nullptr;
    json::array names, logprobs, tops, offsets;
    for (const ScoredToken& token : tokens) {
      const std::string name = text::RepairUtf8(token.chosen.bytes);
      json::object top;
      for (const TokenText& other : token.top)
        top.emplace(text::RepairUtf8(other.bytes), JsonNumber(other.logprob));
      top[name] = JsonNumber(token.chosen.logprob);
      names.push_back(json::string(name));
      logprobs.push_back(JsonNumber(token.chosen.logprob));
      tops.push_back(std::move(top));
      offsets.push_back(token.text_offset);
    }
    json::object out;
    out["tokens"] = std::move(names);
    out["token_logprobs"] = std::move(logprobs);
    out["top_logprobs"] = std::move(tops);
    out["text_offset"] = std::move(offsets);
    return out;
  }

  std::vector<std::string> echo_;  // by choice; emptied once sent
};

json::object ModelObject(const std::string& id, int64_t created, int64_t max_model_len) {
  json::object model;
  model["id"] = id;
  model["object"] = "model";
  model["created"] = created;
  model["owned_by"] = "millrace";
  model["max_model_len"] = max_model_len;
  return model;
}

}  // namespace

std::unique_ptr<AnswerFormat> MakeOpenAiChatFormat(OpenAiHead head) {
  return std::make_unique<ChatFormat>(std::move(head));
}

std::unique_ptr<AnswerFormat> MakeOpenAiCompletionFormat(OpenAiHead head, std::vector<std::string> echo) {
  return std::make_unique<CompletionFormat>(std::move(head), std::move(echo));
}

std::string OpenAiModelJson(const std::string& id, int64_t created, int64_t max_model_len) {
  return json::serialize(ModelObject(id, created, max_model_len));
}

std::string OpenAiModelListJson(const std::vector<std::string>& ids, int64_t created, int64_t max_model_len) {
  json::array data;
  for (const std::string& id : ids) data.push_back(ModelObject(id, created, max_model_len));
  json::object list;
  list["object"] = "list";
  list["data"] = std::move(data);
  return json::serialize(list);
}

}  // namespace millrace::api
