#include "api/openai_format.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "api/logprobs_json.h"
#include "text/ordered_json.h"
#include "text/utf8.h"

namespace millrace::api {
namespace {

namespace json = boost::json;

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

// Serialises `object` and leaves it open for members that are text already.
void AppendOpen(const json::object& object, std::string& out) {
  out += json::serialize(object);
  out.pop_back();
}

// The members behind the log-probabilities, which end a choice; nullptr: it goes on.
void AppendEnd(const AnswerEnd* end, std::string& out) {
  json::object members;
  members["finish_reason"] = nullptr;
  if (end != nullptr) {
    members["finish_reason"] = FinishReasonOf(*end);
    members["stop_reason"] = StopReasonOf(*end);
  }
  out += ',';
  out += std::string_view(json::serialize(members)).substr(1);
}

std::string Event(std::string_view json_text) {
  std::string event = "data: ";
  event += json_text;
  return event += "\n\n";
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
    std::string answer;
    answer.reserve(MostBytes(choices));
    AppendOpen(Head(whole_object_), answer);
    answer += ",\"choices\":[";
    for (size_t c = 0; c < choices.size(); ++c) {
      if (c > 0) answer += ',';
      AppendWholeChoice(c, choices[c], answer);
    }
    answer += "],\"usage\":";
    answer += json::serialize(UsageJson(usage));
    return answer += '}';
  }

  std::string StreamBegin(int64_t /*prompt_tokens*/) override {
    std::string events;
    for (size_t choice = 0; choice < head_.choices; ++choice) {
      const std::string first = FirstChoice(choice);
      if (!first.empty()) events += Chunk(first);
    }
    return events;
  }

  std::string Delta(size_t choice, const TextDelta& delta) override {
    return SaysSomething(delta) ? Chunk(StreamedChoice(choice, delta, nullptr)) : std::string();
  }

  std::string ChoiceEnd(size_t choice, const TextDelta& rest, const AnswerEnd& end) override {
    return Delta(choice, rest) + Chunk(StreamedChoice(choice, {}, &end));
  }

  std::string StreamEnd(const TokenUsage& usage) override {
    std::string events;
    if (head_.include_usage) {
      json::object last = Head(chunk_object_);
      last["choices"] = json::array();
      last["usage"] = UsageJson(usage);
      events = Event(json::serialize(last));
    }
    return events + "data: [DONE]\n\n";
  }

  std::string StreamError(const ApiError& error) override { return "data: " + ErrorJson(error) + "\n\n"; }

  std::string Filler() override { return ": keep-alive\n\n"; }

 protected:
  virtual void AppendWholeChoice(size_t choice, const FinishedChoice& finished, std::string& out) = 0;
  // What a stream says of a choice before anything is generated, as JSON; empty: nothing.
  virtual std::string FirstChoice(size_t choice) = 0;
  // `end`: nullptr as long as it goes on.
  virtual std::string StreamedChoice(size_t choice, const TextDelta& delta, const AnswerEnd* end) = 0;

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

  std::string Chunk(std::string_view choice) {
    std::string chunk;
    AppendOpen(Head(chunk_object_), chunk);
    chunk += ",\"choices\":[";
    chunk += choice;
    chunk += ']';
    if (head_.include_usage) chunk += ",\"usage\":null";
    return Event(chunk += '}');
  }

  // So that the body of a long answer does not grow by doubling.
  static size_t MostBytes(std::span<const FinishedChoice> choices) {
    constexpr size_t kFrame = 1024;
    size_t bytes = kFrame;
    for (const FinishedChoice& choice : choices) {
      bytes += kFrame + 2 * choice.reasoning.size() + choice.content.size();
      for (const FinishedCall& call : choice.calls) bytes += kFrame + call.arguments.size();
      bytes += MostLogprobsBytes(choice.reasoning_tokens) + MostLogprobsBytes(choice.content_tokens);
    }
    return bytes;
  }

  const OpenAiHead head_;
  const std::string_view whole_object_;
  const std::string_view chunk_object_;
};

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

  // Reasoning stands there under two names.
  FormatMemory memory(bool /*stream*/) const override { return {.text_copies = 7}; }

 private:
  void AppendWholeChoice(size_t choice, const FinishedChoice& finished, std::string& out) override {
    json::object message;
    message["role"] = "assistant";
    message["content"] = finished.content;
    if (finished.content.empty() && !finished.calls.empty()) message["content"] = nullptr;
    message["refusal"] = nullptr;
    AddReasoning(finished.reasoning, message);
    if (!finished.calls.empty()) message["tool_calls"] = WholeCalls(finished.calls);
    json::object front;
    front["index"] = choice;
    front["message"] = std::move(message);
    AppendOpen(front, out);
    AppendLogprobs(finished.content_tokens, finished.reasoning_tokens, out);
    AppendEnd(&finished.end, out);
  }

  std::string FirstChoice(size_t choice) override {
    return ChunkChoice(choice, {{"role", "assistant"}, {"content", ""}}, {}, nullptr);
  }

  std::string StreamedChoice(size_t choice, const TextDelta& delta, const AnswerEnd* end) override {
    json::object message;
    AddReasoning(delta.reasoning, message);
    if (!delta.content.empty()) message["content"] = delta.content;
    if (json::array calls = StreamedCalls(delta.calls); !calls.empty())
      message["tool_calls"] = std::move(calls);
    return ChunkChoice(choice, std::move(message), delta, end);
  }

  static std::string ChunkChoice(size_t choice, json::object message, const TextDelta& delta,
                                 const AnswerEnd* end) {
    json::object front;
    front["index"] = choice;
    front["delta"] = std::move(message);
    std::string out;
    AppendOpen(front, out);
    AppendLogprobs(delta.content_tokens, delta.reasoning_tokens, out);
    AppendEnd(end, out);
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

  static void AppendLogprobs(std::span<const ScoredToken> content, std::span<const ScoredToken> reasoning,
                             std::string& out) {
    if (content.empty() && reasoning.empty()) {
      out += ",\"logprobs\":null";
      return;
    }
    out += ",\"logprobs\":{\"content\":[";
    AppendScoredTokens(content, out);
    out += "],\"refusal\":null";
    if (!reasoning.empty()) {
      out += ",\"reasoning_content\":[";
      AppendScoredTokens(reasoning, out);
      out += ']';
    }
    out += '}';
  }
};

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(OpenAiHead head, std::vector<std::string> echo)
      : OpenAiFormat(std::move(head), "text_completion", "text_completion"), echo_(std::move(echo)) {}

  // Kept, and once more while it is written: as a value, as text and in the body.
  FormatMemory memory(bool /*stream*/) const override {
    constexpr uint64_t kCopies = 5;
    uint64_t bytes = 0;
    for (const std::string& text : echo_) bytes += kCopies * text.size();
    return {.fixed_bytes = bytes, .text_copies = 4};
  }

 private:
  void AppendWholeChoice(size_t choice, const FinishedChoice& finished, std::string& out) override {
    AppendChoice(choice, finished.content, finished.content_tokens, &finished.end, out);
  }

  std::string FirstChoice(size_t) override { return {}; }

  std::string StreamedChoice(size_t choice, const TextDelta& delta, const AnswerEnd* end) override {
    std::string out;
    AppendChoice(choice, delta.content, delta.content_tokens, end, out);
    return out;
  }

  void AppendChoice(size_t choice, const std::string& content, std::span<const ScoredToken> tokens,
                    const AnswerEnd* end, std::string& out) {
    std::string text = choice < echo_.size() ? std::exchange(echo_[choice], {}) : "";
    text += content;
    json::object front;
    front["index"] = choice;
    front["text"] = std::move(text);
    AppendOpen(front, out);
    AppendLogprobs(tokens, out);
    AppendEnd(end, out);
  }

  // Parallel lists.
  static void AppendLogprobs(std::span<const ScoredToken> tokens, std::string& out) {
    if (tokens.empty()) {
      out += ",\"logprobs\":null";
      return;
    }
    const auto list = [&](std::string_view name, auto append) {
      out += name;
      for (size_t t = 0; t < tokens.size(); ++t) {
        if (t > 0) out += ',';
        append(tokens[t]);
      }
      out += ']';
    };
    list(",\"logprobs\":{\"tokens\":[", [&](const ScoredToken& token) {
      out += json::serialize(json::string(text::RepairUtf8(token.chosen.bytes)));
    });
    list(",\"token_logprobs\":[",
         [&](const ScoredToken& token) { AppendLogprob(token.chosen.logprob, out); });
    list(",\"top_logprobs\":[", [&](const ScoredToken& token) { AppendTop(token, out); });
    list(",\"text_offset\":[", [&](const ScoredToken& token) { out += std::to_string(token.text_offset); });
    out += '}';
  }

  // The chosen token is among the alternatives whether or not it is one of the best. Of texts that read alike
  // the first one counts, and what was chosen before it.
  static void AppendTop(const ScoredToken& token, std::string& out) {
    std::vector<std::string> names;
    const auto add = [&](const TokenText& text) {
      std::string name = text::RepairUtf8(text.bytes);
      if (std::ranges::find(names, name) != names.end()) return;
      out += names.empty() ? "{\"" : ",\"";
      text::AppendJsonEscaped(name, out);
      out += "\":";
      const bool chosen = name == text::RepairUtf8(token.chosen.bytes);
      AppendLogprob(chosen ? token.chosen.logprob : text.logprob, out);
      names.push_back(std::move(name));
    };
    for (const TokenText& other : token.top) add(other);
    add(token.chosen);
    out += '}';
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
